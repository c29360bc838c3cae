"""Dispatchers and predictors of a user's own that fail, or share a name."""

from __future__ import annotations

import sys
from dataclasses import replace

from cpdispatch.decision import Decision
from cpdispatch.dispatch import make
from cpdispatch.instance import Instance
from cpdispatch.jobs import Job


class Mine:
    """EASY under a name of its own."""

    name = "mine"

    def __init__(self) -> None:
        self._easy = make("easy")

    def dispatch(self, instance: Instance) -> Decision:
        return self._easy.dispatch(instance)


class Mine2(Mine):
    """Another one of the same name."""


class FailsOnEight(Mine):
    """Fails on a system of eight cores."""

    name = "fails on eight"

    def dispatch(self, instance: Instance) -> Decision:
        if int(instance.system.total[0]) == 8:
            raise RuntimeError("too small")
        return super().dispatch(instance)


class TooEarly(Mine):
    """Starts a job before now."""

    name = "too early"

    def dispatch(self, instance: Instance) -> Decision:
        decision = super().dispatch(instance)
        start_s = decision.start_s.copy()
        start_s[0] = instance.now - 5
        return replace(decision, start_s=start_s)


class Leaves(Mine):
    """Ends the command, as it believes."""

    name = "leaves"

    def dispatch(self, instance: Instance) -> Decision:
        sys.exit(0)


class Says:
    """Predicts the requested time."""

    name = "says"

    def predict(self, job: Job, now: int) -> float:
        return job.requested_s

    def learn(self, job: Job, runtime_s: int) -> None:
        pass


class SaysHalf(Says):
    """Another one of the same name."""

    def predict(self, job: Job, now: int) -> float:
        return max(job.requested_s // 2, 1)
