"""The table of a run's jobs: a whole simulated schedule as a simulation saved it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cpdispatch.arrays import BoolArray, FloatArray, IntArray
from cpdispatch.decision import OF_STARTS, UNTOLD
from cpdispatch.errors import InputError
from cpdispatch.instance import NO_NODES
from cpdispatch.system import System
from cpdispatch.verify.access import Stay, access
from cpdispatch.verify.dispatches import (
    Dispatches,
    Flow,
    Told,
    again,
    dispatches,
    flow,
    several,
)
from cpdispatch.verify.limits import Spell, beyond, limited, limits
from cpdispatch.verify.off import in_due_time, off
from cpdispatch.verify.once import apart, heads
from cpdispatch.verify.power import drawn, drawn_on, energy, power
from cpdispatch.verify.promises import promises
from cpdispatch.verify.reasons import (
    alone,
    by_duration,
    by_submission,
    called_late,
    in_order,
    late_ones,
    unstarted,
)
from cpdispatch.verify.schedules import schedule
from cpdispatch.verify.service import Outages, Service
from cpdispatch.verify.spread import COLUMNS as OF_SPREAD
from cpdispatch.verify.spread import spread
from cpdispatch.verify.tables import Attempts, Findings, Schedule, numbers
from cpdispatch.verify.tested import RESULTS, tested
from cpdispatch.verify.violation import Kind, Violation
from cpdispatch.verify.waits import WaitRules, waits

if TYPE_CHECKING:
    import pandas as pd

_OF_STARTS = [reason.name.lower() for reason in OF_STARTS]


def run(
    jobs: pd.DataFrame, system: System, *, dependencies: bool = False, restarts: bool = False,
    restart_cost_s: int = 0, decisions: pd.DataFrame | None = None,
    wait: Mapping[str, Any] | None = None, service: Service | None = None,
    power_cap: Sequence[Sequence[float]] | None = None, switched: pd.DataFrame | None = None,
    switch_off_s: int | None = None, told: Told | None = None, promised: pd.DataFrame | None = None,
    kill_at_limit: bool | None = None,
) -> list[Violation]:  # fmt: skip
    """What is wrong with a whole simulated schedule.

    Parameters
    ----------
    jobs : DataFrame
        One row a job: ``id``, ``submit``, ``start`` and ``end`` in seconds (-1: never started),
        ``units``, ``requested_s``, ``runtime_s``, ``killed``, ``reason``, the per-unit
        ``request_<resource>`` of each of the system's resource types, and the lists ``nodes`` and
        ``node_units``. Where they are there, ``partition``, ``features``, ``nodelist``, ``exclude``
        and ``exclusive`` say where each job may run, and ``licences``, ``array`` and
        ``array_limit`` which jobs may run at once. ``units_per_node`` and the other columns of
        `cpdispatch.verify.spread` say how units lie on nodes; with one of them, ``together`` says
        how many units of the log each unit is. ``energy_j`` says what each job drew in J, attempts
        that were lost included.
    system : System
        The machine on which it ran.
    dependencies : bool
        Whether the run honoured dependencies, which the columns ``preceding`` and ``think_s`` hold.
    restarts : bool
        Whether jobs could be restarted: the columns ``lost_start``, ``lost_end``, ``lost_nodes``
        and ``lost_node_units`` hold the attempts that were killed, and ``restartable`` says which
        jobs could; without that column all could.
    restart_cost_s : int
        How long the nodes of a killed job stayed busy, and so much longer it ran again.
    decisions : DataFrame, optional
        One row a dispatch: ``time`` and ``easy_wait``, seconds. Needed to check waits. With
        ``told`` also ``queue``, ``running`` and ``started``, see
        `cpdispatch.verify.dispatches.dispatches`.
    wait : mapping, optional
        By what waits were bounded, as the run tells it: ``in_turn_after``, ``wide`` and
        ``first_after``. Waits are checked in a schedule that is feasible, see
        `cpdispatch.verify.waits`. They are not where things happened to the system, nor where it
        has limits.
    service : Service, optional
        What happened to the system. The columns ``requeued`` and ``failed`` say how often each job
        was queued again because a node failed, and whether it ended so, and ``expected_s`` how
        long it was expected to run, seconds, -1 for unknown; ``restartable`` as above,
        without that column the same for all jobs; ``test`` what became of its test run.
    power_cap : sequence of (time, watts), optional
        From when on how much the whole system may draw, as the run tells it. Waits are not checked
        under a cap.
    switched : DataFrame, optional
        One row for each time that a node was off: ``node``, ``off``, ``wake`` and ``on``, seconds,
        -1 for what did not happen. Waits are not checked then.
    switch_off_s : int, optional
        How long a node has to be idle before it is switched off.
    told : Told, optional
        How the run was made. Where its schedule is feasible, what else its tables say is then held
        against it: dispatches, promises, results of test runs, and reasons.
    promised : DataFrame, optional
        One row for each job that was promised a later start: ``id``, ``at``, ``start``, seconds.
    kill_at_limit : bool, optional
        Whether jobs were killed at their requested times; without it, each may have been.

    Returns
    -------
    list of Violation
        The first of each kind; those of the kind `Kind.MORE` say how many others there are.

    Raises
    ------
    InputError
        When a column is missing or cannot be read.
    """
    table, found = _schedule(jobs, system, dependencies, restarts, restart_cost_s, service), []
    if told is not None and told.recorded:
        table = replace(table, of_start=table.of_start | _is(jobs["reason"], UNTOLD))
    if told is not None and not told.recorded:
        found = unstarted(table, system, told.rejects)
        if not told.rejects:  # then they wait
            table = replace(table, rejected=np.zeros_like(table.rejected))
    if power_cap is not None:
        table = _with_cap(table, system, power_cap)
    # Records are of whole seconds: of a job that lasted for less, nothing is certain.
    brief = told is None or not told.recorded
    found += schedule(replace(table, kills=kill_at_limit), system, brief=brief)
    if not found:
        stay = _stay(table)
        found = access(_as_asked(jobs, service), system, stay, brief=brief) + spread(jobs, stay)
        if limited(jobs, system):
            found += limits(jobs, system, _spell(table), brief=brief)
        found += _of_watts(jobs, table, system, power_cap)
    if switched is not None and not found:
        names = ("node", "off", "wake", "on")
        _need(switched, "nodes that were off", names)
        columns = [numbers(switched[name]) for name in names]
        first_s = int(table.submit_s.min(initial=0))
        stay, idle_s = _stay(table), switch_off_s or 0
        found += off(table.id, stay, system, columns, idle_s, first_s)
        if service is None and not dependencies and not limited(jobs, system) and not found:
            found += in_due_time(table, stay, system, columns, idle_s)
    plain = switched is None and service is None and power_cap is None
    rules, sound = None if wait is None else WaitRules(**wait), not found
    if plain and sound and rules is not None and not limited(jobs, system):
        found = _waits(table, system, decisions, rules)
    if told is not None and sound:
        capped = power_cap is not None
        of = _Tables(jobs, table, system, told, decisions, capped, plain=plain)
        found += of.durations() + of.dispatches() + of.promises(promised) + of.tests()
        found += of.reasons(rules)
    return found


class _Tables:
    """What the tables of a run say beside its schedule, which is feasible.

    Parameters
    ----------
    capped : bool
        Whether there was a power cap.
    plain : bool
        Whether nothing happened to the system, and there was none.
    """

    def __init__(
        self, jobs: pd.DataFrame, table: Schedule, system: System, told: Told,
        decisions: pd.DataFrame | None, capped: bool, *, plain: bool,
    ) -> None:  # fmt: skip
        self._jobs, self._table, self._system, self._told = jobs, table, system, told
        self._plain = plain
        terms = any(name in jobs.columns for name in ("licences", "array_limit"))
        self._gated = bool(system.limits) or terms
        self._came_s = table.submit_s
        if "begin" in jobs.columns:
            self._came_s = np.maximum(table.submit_s, numbers(jobs["begin"]))
        self._results = {}
        if "test" in jobs.columns:
            self._results = {name: _is(jobs["test"], name) for name in RESULTS}
        went_on = self._results.get("went_on", np.zeros(len(jobs), dtype=np.bool_))
        self._tested = bool(self._results) or (
            table.lost is not None and bool((table.lost.start_s >= 0).any())
        )
        self._flow: Flow = flow(table, self._came_s, _spell(table), told, went_on, capped)
        self._decisions = None if told.recorded else decisions

    def durations(self) -> list[Violation]:
        """Whether jobs were expected to run for what they request, or less, and for 1 s or more."""
        if self._told.recorded or "expected_s" not in self._jobs.columns:
            return []
        t, found = self._table, Findings()
        expected_s = numbers(self._jobs["expected_s"])
        found.add(
            Kind.DURATION,
            ((t.start_s >= 0) & (expected_s < 1)).nonzero()[0],
            lambda k: f"job {t.id[k]} is expected to run {expected_s[k]} s, at least 1 s is said",
        )
        found.add(
            Kind.DURATION,
            (expected_s > np.maximum(t.requested_s, 1)).nonzero()[0],
            lambda k: (
                f"job {t.id[k]} is expected to run {expected_s[k]} s and requests "
                f"{t.requested_s[k]} s"
            ),
        )
        return found.all()

    def dispatches(self) -> list[Violation]:
        """Whether the table of dispatches agrees with the table of jobs."""
        if self._decisions is None:
            return []
        names = ("time", "queue", "running", "started")
        _need(self._decisions, "dispatches", names)
        made = Dispatches(*(numbers(self._decisions[name]) for name in names))
        found = dispatches(self._table, made, self._flow, self._told, self._gated)
        sure = self._plain and not self._tested and self._table.preceding is None
        sure &= not limited(self._jobs, self._system) and not self._told.by_event
        sure &= self._told.changes_s is not None and not self._table.rejected.any()
        return found + (again(made, self._flow) if sure else [])

    def promises(self, promised: pd.DataFrame | None) -> list[Violation]:
        """Whether promises could be made, and were kept where that is certain.

        It is where nothing took the place of a job that was promised it: nothing happened to the
        system, no job waited for another, was tested or ran longer than it was expected to.
        """
        if promised is None:
            return []
        t, decisions = self._table, self._decisions
        kept = self._told.keeps_promises and self._plain and t.preceding is None
        kept &= not self._tested and "expected_s" in self._jobs.columns
        if kept:
            expected_s = np.maximum(numbers(self._jobs["expected_s"]), 1)
            kept = bool((t.end_s - t.start_s <= expected_s).all())
        names = ("id", "at", "start")
        _need(promised, "promises", names)
        columns = [numbers(promised[name]) for name in names]
        decided_s = None if decisions is None else numbers(decisions["time"])
        # A driver has promised before the accounting calls a job eligible.
        came_s = t.submit_s if self._told.recorded else self._came_s
        return promises(t, columns, came_s, decided_s, kept)

    def tests(self) -> list[Violation]:
        """Whether the results of test runs agree with the attempts."""
        if not self._results or self._table.lost is None:
            return []
        return tested(self._table, self._results, self._told)

    def reasons(self, rules: WaitRules | None) -> list[Violation]:
        """Whether jobs can have started for the reasons that are given."""
        t, of, told, decisions = self._table, self._flow, self._told, self._decisions
        if decisions is None or not told.ours:
            return []
        in_turn, backfilled, late = (
            _is(self._jobs["reason"], name) & (t.start_s >= 0)
            for name in ("started", "backfilled", "late")
        )
        time_s, found = numbers(decisions["time"]), []
        if told.strict:
            found += in_order(t, backfilled)
        if (time_s[1:] < time_s[:-1]).any():
            return found
        if rules is None:
            found += called_late(t, late)
        elif self._plain and "easy_wait" in decisions.columns:
            easy_wait_s = _seconds(decisions["easy_wait"])
            found += late_ones(t, self._system, late, in_turn, time_s, easy_wait_s, rules)
        if self._tested:
            return found
        starts = np.searchsorted(of.start_s, t.start_s, side="right")
        starts -= np.searchsorted(of.start_s, t.start_s)
        waiting = of.queued(t.start_s) + of.most(t.start_s) - starts
        several_s = several(time_s)
        # What waited after the first decision of a second may have started in the next one.
        found += alone(t, backfilled & ~np.isin(t.start_s, several_s), waiting)
        simple = self._plain and not limited(self._jobs, self._system) and t.preceding is None
        if told.first_come and simple and not told.by_event and "tier" not in self._jobs.columns:
            found += by_submission(t, backfilled, in_turn, several_s)
        if told.order and simple and not told.by_event and "expected_s" in self._jobs.columns:
            expected_s = numbers(self._jobs["expected_s"])
            found += by_duration(t, expected_s, longest=told.order == "longest")
        return found


def _is(column: pd.Series[Any], name: str) -> BoolArray:
    """On which rows a column of names has this one."""
    return np.asarray((column == name).to_numpy(dtype=np.bool_, na_value=False), dtype=np.bool_)


def _of_watts(
    jobs: pd.DataFrame, table: Schedule, system: System,
    power_cap: Sequence[Sequence[float]] | None,
) -> list[Violation]:  # fmt: skip
    """Whether the cap was kept, and the stated energy of jobs is what they drew."""
    if power_cap is None and "energy_j" not in jobs.columns:
        return []
    watts, spell, found = _drawn(table, system), _spell(table), []
    if power_cap is not None:
        found += power(table.id, watts, spell, system, power_cap)
    if "energy_j" in jobs.columns:
        found += energy(table.id, numbers(jobs["energy_j"]), watts, spell)
    return found


def _waits(
    table: Schedule, system: System, decisions: pd.DataFrame | None, rules: WaitRules
) -> list[Violation]:
    """Whether waits kept to their bound, where the dispatches tell what EASY would have led to."""
    if decisions is None or "easy_wait" not in decisions.columns:
        return []
    _need(decisions, "dispatches", ("time",))
    time_s, easy_wait_s = numbers(decisions["time"]), _seconds(decisions["easy_wait"])
    return waits(table, system, time_s, easy_wait_s, rules)


def _schedule(
    jobs: pd.DataFrame, system: System, dependencies: bool, restarts: bool, restart_cost_s: int,
    service: Service | None,
) -> Schedule:  # fmt: skip
    """The table of jobs as flat arrays, see `run`."""
    needed = [
        "id", "submit", "start", "end", "units", "requested_s", "runtime_s", "killed", "reason",
        *(f"request_{name}" for name in system.resources), "nodes", "node_units",
        *(("preceding", "think_s") if dependencies else ()),
        *(("lost_start", "lost_end", "lost_nodes", "lost_node_units") if restarts else ()),
        *(("requeued", "failed", "expected_s") if service is not None else ()),
        *(("together",) if any(name in jobs.columns for name in OF_SPREAD) else ()),
        *(("array",) if "array_limit" in jobs.columns else ()),
    ]  # fmt: skip
    _need(jobs, "jobs", needed)
    offset, node, units = _entries(jobs, "nodes", "node_units")
    asked = np.stack([numbers(jobs[f"request_{name}"]) for name in system.resources], axis=1)
    request, once = apart(system.resources, asked)
    return Schedule(
        id=numbers(jobs["id"]),
        submit_s=numbers(jobs["submit"]),
        start_s=numbers(jobs["start"]),
        end_s=numbers(jobs["end"]),
        units=numbers(jobs["units"]),
        requested_s=numbers(jobs["requested_s"]),
        runtime_s=numbers(jobs["runtime_s"]),
        killed=jobs["killed"].to_numpy(dtype=np.bool_),
        reason=cast("Sequence[str]", jobs["reason"].array),
        of_start=jobs["reason"].isin(_OF_STARTS).to_numpy(dtype=np.bool_),
        never_fits=(jobs["reason"] == "never_fits").to_numpy(dtype=np.bool_, na_value=False),
        rejected=(jobs["reason"] == "rejected").to_numpy(dtype=np.bool_, na_value=False),
        request=request,
        offset=offset,
        node=node,
        node_units=units,
        preceding=numbers(jobs["preceding"]) if dependencies else None,
        think_s=numbers(jobs["think_s"]) if dependencies else None,
        lost=Attempts(
            numbers(jobs["lost_start"]),
            numbers(jobs["lost_end"]),
            *_entries(jobs, "lost_nodes", "lost_node_units"),
            _restartable(jobs),
            restart_cost_s,
        )
        if restarts
        else None,
        outages=None if service is None else _outages(jobs, service),
        beyond=beyond(jobs, system) if limited(jobs, system) else None,
        once=once,
        head=None if once is None else heads(np.diff(offset)),
    )


def _need(table: pd.DataFrame, of: str, names: Sequence[str]) -> None:
    """Raise where a table lacks one of these columns."""
    for name in names:
        if name not in table.columns:
            raise InputError(f"the table of {of} lacks this column", field=name)


def _as_asked(jobs: pd.DataFrame, service: Service | None) -> pd.DataFrame:
    """The jobs with the requested times of the log, which grew by what checkpoints take."""
    if service is None or not service.checkpoints:
        return jobs
    asked_s = numbers(jobs["requested_s"])
    made = (np.maximum(asked_s, 1) - 1) // service.period_s
    return jobs.assign(requested_s=asked_s - made * service.checkpoints["cost_s"])


def _with_cap(table: Schedule, system: System, power_cap: Sequence[Sequence[float]]) -> Schedule:
    """The schedule in which jobs that draw more than the last cap, which stays, may not have run.

    They are given up once no higher cap is to come.
    """
    most = power_cap[-1][1] - system.idle_total
    over = drawn(table.units, table.request, system, table.once) > most
    return replace(table, beyond=over if table.beyond is None else over | table.beyond)


def _drawn(table: Schedule, system: System) -> IntArray:
    """Watts that jobs drew where they were, attempts that were stopped among them."""
    return np.concatenate([
        drawn_on(
            table.request[row], held.offset, held.node, held.node_units, system,
            None if table.once is None else table.once[row],
        )[held.start_s >= 0]
        for row, held in _parts(table)
    ])  # fmt: skip


def _stay(table: Schedule) -> Stay:
    """Where jobs were, attempts that were stopped among them."""
    columns = []
    for row, held in _parts(table):
        owner = np.repeat(np.arange(len(row)), np.diff(held.offset))
        columns.append(
            (row[owner], held.node, held.node_units, held.start_s[owner], held.end_s[owner])
        )
    return Stay(*map(np.concatenate, zip(*columns, strict=True)))


def _spell(table: Schedule) -> Spell:
    """When jobs ran, attempts that were stopped among them."""
    columns = []
    for row, held in _parts(table):
        ran = held.start_s >= 0
        columns.append((row[ran], held.start_s[ran], held.end_s[ran]))
    return Spell(*map(np.concatenate, zip(*columns, strict=True)))


def _parts(table: Schedule) -> list[tuple[IntArray, Schedule | Attempts | Outages]]:
    """What held nodes, and of which rows of the table of jobs."""
    every = np.arange(len(table.id))
    parts: list[tuple[IntArray, Schedule | Attempts | Outages]] = [(every, table)]
    if table.lost is not None:
        parts.append((every, table.lost))
    if table.outages is not None:
        parts.append((table.outages.row, table.outages))
    return parts


def _outages(jobs: pd.DataFrame, service: Service) -> Outages:
    attempts, saved = service.attempts, ("saved_s",) * bool(service.period_s)
    _need(attempts, "attempts", ("id", "start", "end", "nodes", "node_units", *saved))
    ids, which = numbers(jobs["id"]), numbers(attempts["id"])
    by_id = np.argsort(ids, kind="stable")
    row = by_id[np.minimum(np.searchsorted(ids[by_id], which), len(ids) - 1)]
    for k in (ids[row] != which).nonzero()[0][:1].tolist():
        problem = "the table of jobs lacks a job of the table of attempts"
        raise InputError(problem, field="id", value=int(which[k]))
    return Outages(
        service.happened,
        row,
        numbers(attempts["start"]),
        numbers(attempts["end"]),
        *_entries(attempts, "nodes", "node_units"),
        jobs["failed"].to_numpy(dtype=np.bool_, na_value=False),
        numbers(jobs["requeued"]),
        service.may_requeue(_restartable(jobs)),
        numbers(jobs["expected_s"]),
        numbers(attempts["saved_s"]) if service.period_s else np.zeros_like(which),
        service.period_s,
        (jobs["test"] != "none").to_numpy(dtype=np.bool_)
        if "test" in jobs.columns
        else np.zeros(len(jobs), dtype=np.bool_),
        attempts["test"].to_numpy(dtype=np.bool_)
        if "test" in attempts.columns
        else np.zeros(len(which), dtype=np.bool_),
    )


def _restartable(jobs: pd.DataFrame) -> BoolArray:
    if "restartable" not in jobs.columns:
        return np.ones(len(jobs), dtype=np.bool_)
    return jobs["restartable"].to_numpy(dtype=np.bool_, na_value=False)


def _entries(jobs: pd.DataFrame, nodes: str, units: str) -> tuple[IntArray, IntArray, IntArray]:
    """Offset, nodes and units of two columns of lists, which are of the same lengths."""
    lengths, node = _flat(jobs[nodes])
    unit_lengths, of_node = _flat(jobs[units])
    for row in (lengths != unit_lengths).nonzero()[0][:1].tolist():
        raise InputError(
            f"job {jobs['id'].iloc[row]} has {lengths[row]} nodes",
            field=units,
            value=int(unit_lengths[row]),
            advice="there is one number of units for each node",
        )
    return np.concatenate(([0], np.cumsum(lengths))), node, of_node


def _seconds(column: pd.Series[Any]) -> FloatArray:
    """A column of seconds; what is missing is NaN."""
    try:
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"not numbers: {error}", field=str(column.name)) from error


def _flat(column: pd.Series[Any]) -> tuple[IntArray, IntArray]:
    """Length of every list of a column, and all their items."""
    if hasattr(column.dtype, "pyarrow_dtype"):
        return numbers(column.list.len().fillna(0)), numbers(column.list.flatten())
    lists: list[Any] = [() if row is None or isinstance(row, float) else row for row in column]
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    items = [np.asarray(row, dtype=np.int64) for row in lists if len(row)]
    return lengths, np.concatenate([NO_NODES, *items])
