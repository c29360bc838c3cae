"""Plain list scheduling, shortest job first: what the models are measured against.

python benchmarks/corpus.py instances --models pcp3 --baseline benchmarks.shortest_first:RULE
"""

from __future__ import annotations

import numpy as np

from cpdispatch.decision import Decision
from cpdispatch.instance import Instance
from cpdispatch.models.engine import MODELS, Answer, Budget, Engine
from cpdispatch.models.part import in_turn


class ShortestFirst:
    """Places the jobs that the engine would plan, the shortest first, each as early as it fits."""

    name = "shortest-first"

    def dispatch(self, instance: Instance) -> Decision:
        engine = Engine(*MODELS["pcp3"])
        budget = Budget(engine.limit_s, live=False)
        answers = []
        for part in engine.parts(instance, engine.select(instance)):
            front = part.first_order[: part.locked]
            order = np.argsort(part.jobs.expected_s, kind="stable")
            order = np.concatenate((front, order[~np.isin(order, front)]))
            answers.append(Answer(part, part.search.schedule(in_turn(order, part.after)), 0.0))
        return engine.decision(instance, answers, budget)


RULE = ShortestFirst()
