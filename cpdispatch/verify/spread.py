"""How the units of jobs lie on nodes, checked from what the jobs ask for alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.verify.access import Stay
from cpdispatch.verify.violation import Kind, Violation

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("units_per_node", "units_per_node_min", "units_per_node_max", "nodes_min", "nodes_max")
_MOST = 8


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
    ids, together = _numbers(jobs["id"]), _numbers(jobs["together"])
    asked = {name: _numbers(jobs[name]) for name in named}
    units = stay.units * together[stay.job]
    # A job that was stopped has been on other nodes before.
    _, run = np.unique(np.stack([stay.job, stay.start_s]), axis=1, return_inverse=True)
    nodes = np.bincount(run.reshape(-1))[run.reshape(-1)]
    found = []
    for name, wanted in asked.items():
        have = nodes if name.startswith("nodes") else units
        most, least = not name.endswith("_min"), not name.endswith("_max")
        want = wanted[stay.job]
        wrong = (want > 0) & ((least & (have < want)) | (most & (have > want)))
        for e in wrong.nonzero()[0][:_MOST].tolist():
            where = (
                f"is on {have[e]} nodes"
                if name.startswith("nodes")
                else f"has {have[e]} units on node {stay.node[e]}"
            )
            text = f"job {ids[stay.job[e]]} {where} at {stay.start_s[e]}, {name} is {want[e]}"
            found.append(Violation(Kind.SPREAD, text))
    return found


def _numbers(column: pd.Series[int]) -> IntArray:
    return np.asarray(column.fillna(0).to_numpy(dtype=np.int64), dtype=np.int64)
