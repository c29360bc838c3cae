from __future__ import annotations

from cpdispatch.decision import Decision
from cpdispatch.instance import Instance


class Failing:
    name = "failing"

    def dispatch(self, instance: Instance) -> Decision:
        raise RuntimeError("no answer")
