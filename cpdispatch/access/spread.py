"""How the units of a job are spread over nodes: groups of units, and how many share a node.

Where each node of a job has at least so many of its units, or the job is on so many nodes at most,
units are placed in groups: each group becomes one unit that asks for the sum. How many of these
share a node is said by a resource type of which no node has any: a job asks for minus as many as
may, see `LIMIT_TYPE`.
"""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.errors import InputError
from cpdispatch.jobs import JobTable, Spread, Workload

LIMIT_TYPE = "limit@node"
"""The resource type by which the units of a job on one node are limited.

A request of -3 says that 3 units of the job share a node at most. Nothing is taken by it.
"""
PER_NODE = "node_"
"""What comes before the name of a resource type that is asked for once on each node of a job."""
ON_FIRST = "first_"
"""What comes before the name of a resource type that is asked for once, on a job's first node."""


def grouped(units: int, spread: Spread) -> tuple[int, int]:
    """How many units are placed together, and how many such groups share a node at most.

    Groups are as small as the least number on a node asks for, and of equal size. The most on a
    node is the largest that leads to the least number of nodes.

    Parameters
    ----------
    units : int
        Of the job.

    Returns
    -------
    together, most : int

    Raises
    ------
    InputError
        When the units cannot be spread in that way: the field is named.

    Examples
    --------
    >>> grouped(12, Spread(units_per_node=4))
    (4, 1)
    >>> grouped(12, Spread(nodes_min=2, nodes_max=3))
    (4, 2)
    """
    exactly = spread.units_per_node
    for name in ("units_per_node_min", "units_per_node_max") if exactly else ():
        if value := getattr(spread, name):
            problem = "units_per_node says already how many units are on a node"
            raise InputError(problem, field=name, value=value, advice="state one of the two")
    least = exactly or max(spread.units_per_node_min, 1)
    most = exactly or spread.units_per_node_max or units
    if spread.nodes_max:
        least = max(least, -(-units // spread.nodes_max))
    if spread.nodes_min > units:
        raise InputError(
            f"the job has {units} units", field="nodes_min", value=spread.nodes_min,
            advice="state as many nodes as units, or fewer",
        )  # fmt: skip
    if spread.nodes_min > 1:
        most = min(most, -(-units // (spread.nodes_min - 1)) - 1)
    together = next((k for k in range(least, most + 1) if units % k == 0), 0)
    if not together:
        said = {name: getattr(spread, name) for name in Spread.__slots__}
        field, value = next((name, value) for name, value in said.items() if value)
        raise InputError(
            f"the job's {units} units cannot be put on nodes in equal groups of {least} to {most}",
            field=field, value=value,
            advice="state a divisor of units, or other limits of units and nodes",
        )  # fmt: skip
    return together, most // together


def of_jobs(workload: Workload, units: IntArray) -> tuple[IntArray, IntArray]:
    """What `grouped` says of each job, shape (2, jobs): units together, groups on a node at most.

    Parameters
    ----------
    units : int64 array, shape (jobs,)
        As the log has them.

    Raises
    ------
    InputError
        When the units of a job cannot be spread as it asks.
    """
    which = workload.spread_of
    kind = np.zeros(len(workload), dtype=np.int64) if which is None else which
    pairs, first, of = np.unique(
        np.stack([kind, units]), axis=1, return_index=True, return_inverse=True
    )
    found = np.empty((2, pairs.shape[1]), dtype=np.int64)
    for k, (spread, many) in enumerate(pairs.T.tolist()):
        try:
            found[:, k] = grouped(many, workload.spread[spread])
        except InputError as error:
            job = workload.table.id[first[k]]
            raise InputError(
                f"job {job}: {error.problem}", file=workload.name, field=error.field,
                value=error.value, advice=error.advice,
            ) from error  # fmt: skip
    together, most = found[:, of.reshape(-1)]
    return together, most


def limit(workload: Workload) -> IntArray | None:
    """How many units of each job share a node at most; None where nothing limits that.

    Parameters
    ----------
    workload : Workload
        Fitted to a system. A job that no limit holds has as many as it has units.
    """
    if workload.together is None:
        return None
    _, most = of_jobs(workload, workload.table.units * workload.together)
    free = (most >= workload.table.units) | (workload.exclusive() == 1)
    return None if free.all() else np.where(free, workload.table.units, most)


def most_on_a_node(jobs: JobTable) -> IntArray:
    """How many units of each job may share a node, all of them at most; shape (jobs,)."""
    limit = -jobs.request.min(axis=1, initial=0)
    return np.where(limit > 0, np.minimum(jobs.units, limit), jobs.units)
