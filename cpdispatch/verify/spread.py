"""How the units of jobs lie on nodes, checked from what the jobs ask for alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.verify.access import Stay
from cpdispatch.verify.tables import Findings, numbers
from cpdispatch.verify.violation import Kind, Violation

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("units_per_node", "units_per_node_min", "units_per_node_max", "nodes_min", "nodes_max")


def spread(jobs: pd.DataFrame, stay: Stay) -> list[Violation]:
    """Whether each job has as many units on each node, and as many nodes, as it asks for.

    Parameters
    ----------
    jobs : DataFrame
        The column ``id``; of `COLUMNS` those that there are (0: nothing is asked for), and
        ``together``: how many units of the log each unit is.
    stay : Stay
        Each job once on each of its nodes.
    """
    named = [name for name in COLUMNS if name in jobs.columns]
    if not named:
        return []
    ids, together = numbers(jobs["id"]), numbers(jobs["together"])
    units = stay.units * together[stay.job]
    # A job that was stopped has been on other nodes before.
    _, run = np.unique(np.stack([stay.job, stay.start_s]), axis=1, return_inverse=True)
    nodes = np.bincount(run.reshape(-1))[run.reshape(-1)]
    found = Findings()
    for name in named:
        have = nodes if name.startswith("nodes") else units
        most, least = not name.endswith("_min"), not name.endswith("_max")
        want = numbers(jobs[name])[stay.job]
        wrong = (want > 0) & ((least & (have < want)) | (most & (have > want)))

        def text(e: int, name: str = name, have: IntArray = have, want: IntArray = want) -> str:
            where = (
                f"is on {have[e]} nodes"
                if name.startswith("nodes")
                else f"has {have[e]} units on node {stay.node[e]}"
            )
            return f"job {ids[stay.job[e]]} {where} at {stay.start_s[e]}, {name} is {want[e]}"

        found.add(Kind.SPREAD, wrong.nonzero()[0], text)
    return found.all()
