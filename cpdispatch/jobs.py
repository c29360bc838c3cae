"""Jobs as a dispatcher may know them, and workloads whose real runtimes are kept apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from operator import index
from typing import Any

import numpy as np

from cpdispatch.arrays import IntArray, packed, sealed, unpacked
from cpdispatch.errors import InputError


class Column(IntEnum):
    """The rows of a job block: one int64 row each, one column a job.

    The per-unit request follows from row ``REQUEST`` on, one row for each resource type.
    """

    ID = 0
    SUBMIT = 1
    UNITS = 2
    REQUESTED = 3
    EXPECTED = 4
    UPPER = 5
    EWT = 6
    USER = 7
    GROUP = 8
    QUEUE = 9
    EXECUTABLE = 10
    PARTITION = 11
    RESTARTABLE = 12
    PRIORITY = 13
    TIER = 14
    REQUEST = 15


# An integer indexes an array twice as fast as an enumeration does.
(
    ID, SUBMIT, UNITS, REQUESTED, EXPECTED, UPPER, EWT, USER, GROUP, QUEUE, EXECUTABLE, PARTITION,
    RESTARTABLE, PRIORITY, TIER, REQUEST,
) = map(int, Column)  # fmt: skip
_BETWEEN = Column.REQUEST - Column.REQUESTED
TAU_S = 10
"""Runtime below which a job counts as this long in the bounded slowdown, seconds."""
LABELLED = ("user", "group", "queue", "executable", "partition")
UNKNOWN = -1
PRIORITY_MAX = 2**32 - 1
"""The largest priority of a job, as in Slurm."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a dispatcher or a predictor may know of one job.

    Attributes
    ----------
    id : int
        Unique within a workload or an instance.
    submit_s : int
        Submission time, seconds.
    units : int
        Number of identical parts that may share nodes or not (``rn`` in the thesis).
    request : tuple of int
        What each unit asks of each resource type, in the system's order.
    requested_s : int
        Requested time (walltime), seconds.
    expected_s : int
        Expected duration by the predictor in use, seconds.
    upper_s : int
        What the job will probably not run longer than, seconds: the requested time, unless the
        predictor in use knows better. Never less than the expected duration.
    ewt_s : int
        Expected waiting time of the job's queue, seconds.
    user, group, queue, executable, partition : int
        The log's number, or the index of the name in the table's ``labels``; -1 when unknown.
    restartable : int
        1 if the job may be killed and queued again, which happens once at most; else 0.
    priority : int
        The site's own, higher first; 0 where it says nothing.
    tier : int
        The highest tier of the partitions that it may use, higher first; 1 where it names none.
    """

    id: int
    submit_s: int
    units: int
    request: tuple[int, ...]
    requested_s: int
    expected_s: int
    upper_s: int
    ewt_s: int
    user: int
    group: int
    queue: int
    executable: int
    partition: int
    restartable: int = 0
    priority: int = 0
    tier: int = 1


class JobTable:
    """A read-only table of jobs: a block of int64 rows, see `Column`.

    Parameters
    ----------
    columns : int64 array, shape (Column.REQUEST + resources, jobs), or sequence of its rows
        Sealed by this call. Rows by themselves may share memory, or be `compact`: that is how
        large logs are kept.
    labels : mapping of column name to names
        Names behind the numbers of the columns in `LABELLED`, where the source had names.
    planned_s : int64 array, shape (jobs,), optional
        Planned durations, see `planned_s`. Sealed by this call.

    Attributes
    ----------
    checked : bool
        Whether it is known that an instance may have these jobs in its queue.
    """

    __slots__ = ("_planned_s", "checked", "columns", "labels")

    def __init__(
        self,
        columns: IntArray | Sequence[IntArray],
        labels: Mapping[str, tuple[str, ...]] | None = None,
        planned_s: IntArray | None = None,
    ) -> None:
        self.columns = (
            sealed(columns)
            if isinstance(columns, np.ndarray)
            else tuple(sealed(column) for column in columns)
        )
        self.labels = {} if labels is None else labels
        self._planned_s = None if planned_s is None else sealed(planned_s)
        self.checked = False

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, position: int) -> Job:
        return job_of(self.values(index(position)))

    def __iter__(self) -> Iterator[Job]:
        return (self[position] for position in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.columns, np.ndarray):
            return JobTable, (self.columns, self.labels, self._planned_s)
        columns = [packed(column) for column in self.columns]
        return _table, (columns, len(self), self.labels, self._planned_s)

    @property
    def block(self) -> IntArray:
        """All columns as one array, shape (columns, jobs): made anew where they are apart."""
        if isinstance(self.columns, np.ndarray):
            return self.columns
        return sealed(np.stack(self.columns))

    def values(self, position: int) -> IntArray:
        """One column of the block, all that is known of a job, shape (columns,)."""
        if isinstance(self.columns, np.ndarray):
            return self.columns[:, position]
        return np.array([column.item(position) for column in self.columns])

    def column(self, which: int) -> IntArray:
        """One row of the block, shape (jobs,)."""
        row: IntArray = self.columns[which]
        return row

    @property
    def id(self) -> IntArray:
        """Identifiers, shape (jobs,)."""
        return self.column(ID)

    @property
    def submit_s(self) -> IntArray:
        """Submission times in seconds, shape (jobs,)."""
        return self.column(SUBMIT)

    @property
    def units(self) -> IntArray:
        """Numbers of units, shape (jobs,)."""
        return self.column(UNITS)

    @property
    def requested_s(self) -> IntArray:
        """Requested times in seconds, shape (jobs,)."""
        return self.column(REQUESTED)

    @property
    def expected_s(self) -> IntArray:
        """Expected durations in seconds, shape (jobs,)."""
        return self.column(EXPECTED)

    @property
    def planned_s(self) -> IntArray:
        """Planned durations in seconds, shape (jobs,): how long plans take the jobs to last.

        They are the expected durations unless a dispatcher plans with care, see
        `cpdispatch.heuristics.limits`.
        """
        return self.expected_s if self._planned_s is None else self._planned_s

    @property
    def planned_as_expected(self) -> bool:
        """Whether the planned durations are the expected ones."""
        return self._planned_s is None

    def planned_with(self, planned_s: IntArray) -> JobTable:
        """The same jobs with these planned durations, shape (jobs,)."""
        return self._as_checked(JobTable(self.columns, self.labels, planned_s))

    def asking(self, block: IntArray) -> JobTable:
        """The same jobs with a block that differs in what they ask for."""
        return JobTable(block, self.labels, self._planned_s)

    def contiguous(self) -> JobTable:
        """The same jobs with a block that is contiguous, row by row; itself where it is so."""
        columns = self.columns
        if not isinstance(columns, np.ndarray) or columns.flags.c_contiguous:
            return self
        return self._as_checked(
            JobTable(np.ascontiguousarray(columns), self.labels, self._planned_s)
        )

    def having(self, column: int, values: IntArray) -> JobTable:
        """The same jobs with other values of a `Column`, shape (jobs,)."""
        columns = list(self.columns)
        columns[column] = values
        return JobTable(columns, self.labels)

    def _as_checked(self, other: JobTable) -> JobTable:
        """A table of some of these jobs, which need no other check."""
        other.checked = self.checked
        return other

    @property
    def upper_s(self) -> IntArray:
        """What the jobs will probably not run longer than, in seconds, shape (jobs,)."""
        return self.column(UPPER)

    @property
    def ewt_s(self) -> IntArray:
        """Expected waiting times of the jobs' queues in seconds, shape (jobs,)."""
        return self.column(EWT)

    @property
    def restartable(self) -> IntArray:
        """1 for each job that may still be killed and queued again, else 0; shape (jobs,)."""
        return self.column(RESTARTABLE)

    @property
    def priority(self) -> IntArray:
        """The site's priorities of the jobs, higher first, shape (jobs,)."""
        return self.column(PRIORITY)

    @property
    def tier(self) -> IntArray:
        """The highest tiers of the partitions that jobs may use, higher first, shape (jobs,)."""
        return self.column(TIER)

    @property
    def request(self) -> IntArray:
        """Per-unit requests, shape (jobs, resources)."""
        return np.asarray(self.columns[Column.REQUEST :]).T

    def label(self, column: str, position: int) -> str:
        """Name of a job's user, group, queue, executable or partition; its number if unnamed."""
        number = int(self.column(Column[column.upper()])[position])
        names = self.labels.get(column)
        if number == UNKNOWN:
            return ""
        return str(number) if names is None else names[number]

    def take(self, positions: IntArray) -> JobTable:
        """The table of the jobs at these positions, in this order."""
        planned_s = None if self._planned_s is None else self._planned_s[positions]
        if isinstance(self.columns, np.ndarray):
            block = np.ascontiguousarray(self.columns[:, positions])
        else:
            block = np.stack([column[positions] for column in self.columns])
        return self._as_checked(JobTable(block, self.labels, planned_s))


def largest_share(jobs: JobTable, total: IntArray) -> IntArray:
    """The share of a system that each job asks for, of the resource type that it asks most of.

    Parameters
    ----------
    jobs : JobTable
    total : int64 array, shape (resources,)
        What the system has, see `cpdispatch.access.total`.

    Returns
    -------
    int64 array, shape (jobs,)
        In thousandths, rounded down; 1000 at most.
    """
    asked = jobs.units[:, None] * jobs.request * 1000 // np.maximum(total, 1)
    share: IntArray = np.minimum(asked.max(axis=1, initial=0), 1000)
    return share


def on_pool(jobs: JobTable, total: IntArray) -> IntArray:
    """Processors that each job would ask for on a pool, by what it asks most of.

    Parameters
    ----------
    jobs : JobTable
    total : int64 array, shape (resources,)
        The same; the first resource type is processors.

    Returns
    -------
    int64 array, shape (jobs,)
        From 1 to ``total[0]``.
    """
    asked = jobs.units[:, None] * jobs.request
    share = -(-asked * total[0] // np.maximum(total, 1))
    # Memory in bytes is too much for products in 64 bits.
    large = total > 2**62 // max(total[0], 1)
    share[:, large] = np.ceil(asked[:, large] / total[large] * total[0])
    found: IntArray = np.clip(share.max(axis=1, initial=0), 1, total[0])
    return found


def job_of(column: IntArray) -> Job:
    """The job of one column of a block, shape (columns,)."""
    id, submit_s, units, *rest = column.tolist()
    return Job(id, submit_s, units, tuple(rest[_BETWEEN:]), *rest[:_BETWEEN])


def _table(
    columns: Sequence[IntArray],
    jobs: int,
    labels: Mapping[str, tuple[str, ...]],
    planned_s: IntArray | None = None,
) -> JobTable:
    return JobTable([unpacked(column, jobs) for column in columns], labels, planned_s)


def job_block(
    *,
    id: Any,
    submit_s: Any,
    units: Any,
    requested_s: Any,
    request: Any,
    expected_s: Any = None,
    upper_s: Any = None,
    ewt_s: Any = 1,
    user: Any = UNKNOWN,
    group: Any = UNKNOWN,
    queue: Any = UNKNOWN,
    executable: Any = UNKNOWN,
    partition: Any = UNKNOWN,
    restartable: Any = 0,
    priority: Any = 0,
    tier: Any = 1,
) -> IntArray:
    """Build a job block from columns; scalars stand for constant columns.

    Parameters
    ----------
    request : int array, shape (jobs, resources)
        Per-unit requests.
    expected_s : int array, optional
        Expected durations; the requested times when left out. So are the upper ones.
    """
    request = np.asarray(request, dtype=np.int64)
    jobs, resources = request.shape
    block = np.empty((Column.REQUEST + resources, jobs), dtype=np.int64)
    columns = (
        id, submit_s, units, requested_s, requested_s if expected_s is None else expected_s,
        requested_s if upper_s is None else upper_s, ewt_s,
        user, group, queue, executable, partition, restartable, priority, tier,
    )  # fmt: skip
    for row, values in enumerate(columns):
        block[row] = values
    block[Column.REQUEST :] = request.T
    return block


@dataclass(frozen=True, slots=True)
class Starvation:
    """How long a job may be kept waiting by jobs that have waited less.

    A queued job that has waited longer than the threshold is starved. No plan starts it later than
    the bound, counted from when it became starved, though it could start earlier beside the
    running jobs, the reservations and the other starved jobs, if all of these last until their
    requested times.

    Attributes
    ----------
    threshold_s, bound_s : int
    wide : int
        Wide jobs find room less easily, so both are shorter for them: by this many thousandths
        for a job that asks for the whole system, by half as many for one that asks for half of it.
    """

    threshold_s: int
    bound_s: int
    wide: int = 0

    def shortened_s(self, seconds: int, share: IntArray) -> IntArray:
        """These seconds for jobs that ask for such shares of the system, in thousandths."""
        found: IntArray = seconds * (1000 - self.wide * share // 1000) // 1000
        return found


@dataclass(frozen=True, slots=True)
class Access:
    """Where a job asks to run, beside the partition that it names.

    Attributes
    ----------
    features : str
        Names of features with ``&`` and ``|`` between them, of which ``&`` binds first: all of its
        nodes have the features that one of the alternatives names. Empty: any node.
    nodelist, exclude : str
        The nodes that it is kept to and those that it keeps away from, as
        `cpdispatch.system.System.named_nodes` reads them. Empty: no such wish.
    exclusive : bool
        Whether each of its units takes a whole node.
    """

    features: str = ""
    nodelist: str = ""
    exclude: str = ""
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """What else decides how many of some jobs may run at once.

    Attributes
    ----------
    licences : str
        What it takes of the system's licences while it runs: ``matlab:2 ansys``.
    array : str
        The array that it is a task of; empty for none.
    array_limit : int
        So many tasks of the array run at once at most; 0: as many as there are.
    """

    licences: str = ""
    array: str = ""
    array_limit: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """How the units of a job lie on its nodes; 0: nothing is asked for.

    Attributes
    ----------
    units_per_node : int
        Each of its nodes has exactly so many of its units.
    units_per_node_min, units_per_node_max : int
        The least and the most of its units on each of its nodes.
    nodes_min, nodes_max : int
        On how many nodes it is at least and at most.
    """

    units_per_node: int = 0
    units_per_node_min: int = 0
    units_per_node_max: int = 0
    nodes_min: int = 0
    nodes_max: int = 0


FREE = Terms()
ANYHOW = Spread()
ANYWHERE = Access()
WISHES = ("features", "nodelist", "exclude")
"""The fields of `Access` that hold texts."""
SPREADS = ("units_per_node", "units_per_node_min", "units_per_node_max", "nodes_min", "nodes_max")
"""The fields of `Spread`."""
TERMS = ("licences", "array")
"""The fields of `Terms` that hold texts."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A whole log as columns, sorted by submission, with the real runtimes kept apart.

    Only `table` ever reaches a dispatcher, and of it only the jobs submitted so far.

    Attributes
    ----------
    name : str
    resources : tuple of str
        Names of the resource types that the requests speak of, in order.
    table : JobTable
        One job a column, sorted by submission; ties keep the order of the source.
    runtime_s : int64 array, shape (jobs,)
        Real runtimes in seconds.
    preceding, think_s : int64 array, shape (jobs,)
        SWF fields 17 and 18: the job to wait for and the time between its end and this submission.
    processors : int or None
        Size of the machine that the log comes from, where its source says so.
    notes : dict
        What reading dropped or repaired: rule -> number of jobs.
    header : tuple of str
        The comment lines of the source, to be written back.
    memory_unit_kb : int or None
        What one unit of the resource ``mem`` is, in KB; None: whatever the system's own is.
    per_processor : bool
        Whether the source knows no nodes: each unit is one processor and its memory, and how the
        processors make up the units of a system is for `cpdispatch.workloads.fit` to say.
    access : tuple of Access
        Where jobs ask to run.
    access_of : int64 array, shape (jobs,), or None
        Which of these each job asks for; None: all the first.
    terms : tuple of Terms
        What else decides how many jobs may run at once.
    terms_of : int64 array, shape (jobs,), or None
        Which of these each job has; None: all the first.
    begin_s : int64 array, shape (jobs,), or None
        When each job may start at the earliest, seconds; -1 for at once. None: all at once.
    spread : tuple of Spread
        How the units of jobs lie on nodes.
    spread_of : int64 array, shape (jobs,), or None
        Which of these each job asks for; None: all the first.
    together : int64 array, shape (jobs,), or None
        How many units of the log each unit is, see `cpdispatch.access.spread`. None before the
        workload is fitted to a system, and where no job says how its units are spread.
    """

    name: str
    resources: tuple[str, ...]
    table: JobTable
    runtime_s: IntArray
    preceding: IntArray
    think_s: IntArray
    processors: int | None = None
    notes: dict[str, int] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    memory_unit_kb: int | None = None
    per_processor: bool = False
    access: tuple[Access, ...] = (ANYWHERE,)
    access_of: IntArray | None = None
    terms: tuple[Terms, ...] = (FREE,)
    terms_of: IntArray | None = None
    begin_s: IntArray | None = None
    spread: tuple[Spread, ...] = (ANYHOW,)
    spread_of: IntArray | None = None
    together: IntArray | None = None

    def __post_init__(self) -> None:
        jobs = len(self.table)
        if jobs == 0:
            raise InputError("the log holds no job that can be run", file=self.name)
        if np.any(np.diff(self.table.submit_s) < 0):
            raise ValueError("a workload's jobs must be sorted by submission")
        # Not by `np.unique`: its hash table of a large log is slow, and holds on to memory.
        if not (np.diff(np.sort(self.table.id)) > 0).all():
            raise ValueError("a workload's job ids must be unique")
        for column in self._columns().values():
            if column.shape != (jobs,):
                raise ValueError("every column of a workload has one value a job")
            sealed(column)

    def __len__(self) -> int:
        return len(self.table)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        columns = {name: packed(column) for name, column in self._columns().items()}
        return _workload, (parts | columns,)

    def take(self, positions: IntArray, table: JobTable | None = None) -> Workload:
        """The workload of the jobs at these (ascending) positions.

        With a table of its own for these jobs, the positions may come in any order, and repeat.
        """
        columns = {name: column[positions] for name, column in self._columns().items()}
        table = self.table.take(positions) if table is None else table
        return replace(self, table=table, **columns)

    def _columns(self) -> dict[str, Any]:
        """The columns beside the table that there are."""
        found = {name: getattr(self, name) for name in _COLUMNS}
        return {name: column for name, column in found.items() if column is not None}

    def asked(self, what: str) -> tuple[IntArray, tuple[str, ...]]:
        """A text of `Access` or `Terms`: for each job its number, shape (jobs,); the texts."""
        terms = what in TERMS
        every: Sequence[Any] = self.terms if terms else self.access
        texts = [getattr(each, what) for each in every]
        number = {text: k for k, text in enumerate(sorted(set(texts)))}
        of = self.terms_of if terms else self.access_of
        return self._of(of, [number[text] for text in texts]), tuple(number)

    def array_limit(self) -> IntArray:
        """How many tasks of each job's array run at once at most, 0 for any; shape (jobs,)."""
        return self._of(self.terms_of, [terms.array_limit for terms in self.terms])

    def spreads(self, what: str) -> IntArray:
        """A field of `Spread` for each job, shape (jobs,)."""
        return self._of(self.spread_of, [getattr(spread, what) for spread in self.spread])

    def exclusive(self) -> IntArray:
        """1 for each job whose units take whole nodes, else 0; shape (jobs,)."""
        return self._of(self.access_of, [access.exclusive for access in self.access])

    def _of(self, which: IntArray | None, values: Sequence[int]) -> IntArray:
        every = np.array(values, dtype=np.int64)
        return np.broadcast_to(every[0], len(self)) if which is None else every[which]


_COLUMNS = (
    "runtime_s", "preceding", "think_s", "access_of", "terms_of", "begin_s", "spread_of",
    "together",
)  # fmt: skip


def _workload(parts: dict[str, Any]) -> Workload:
    jobs, there = len(parts["table"]), [name for name in _COLUMNS if parts[name] is not None]
    return Workload(**parts | {name: unpacked(parts[name], jobs) for name in there})
