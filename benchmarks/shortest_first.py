"""Plain list scheduling, shortest job first: what the models are measured against.

python benchmarks/corpus.py instances --models pcp --baseline benchmarks.shortest_first:RULE
"""

from __future__ import annotations

import numpy as np

from cpdispatch.decision import Decision
from cpdispatch.instance import Instance
from cpdispatch.models.budget import Budget
from cpdispatch.models.engine import Engine
from cpdispatch.models.part_search import Answer


class ShortestFirst:
    """Places the jobs that the engine would plan, the shortest first, each as early as it fits."""

    name = "shortest-first"

    def dispatch(self, instance: Instance) -> Decision:
        engine = Engine("hcp")
        budget = Budget(engine.limit_s, live=False)
        answers = []
        instance = engine.planned(instance)
        for part in engine.parts(instance, engine.select(instance)):
            order = part.feasible_order(np.argsort(part.jobs.planned_s, kind="stable"))
            answers.append(Answer(part, part.generator.schedule(order), 0.0))
        return engine.decision(instance, answers, budget)


RULE = ShortestFirst()
