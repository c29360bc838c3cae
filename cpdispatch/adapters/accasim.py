"""Any dispatcher inside AccaSim's loop: a scheduler that answers its calls with our decisions.

::

    from cpdispatch.adapters import accasim

    simulator = accasim.imported("base.simulator_class").Simulator
    simulator("log.swf", "system.json", accasim.scheduler("hcp")).start_simulation()

AccaSim calls a scheduler at instants at which nothing has happened, too: at the submission of a job
that the whole system could not run, one second before a submission when its clock stands at 0,
whenever additional data wake it, and every second when jobs wait and nothing else is to come. The
scheduler dispatches where `cpdispatch.simulator` does, and where the capacity has changed, so that
both give the same schedule. One difference stays: a job without runtime ends within the call that
starts it, and AccaSim dispatches again only at its next event.

References
----------
Galleguillos, Kiziltan, Netti, Soto, "AccaSim: a customizable workload management simulator for job
dispatching research in HPC systems", Cluster Computing 2020. Written for version 1.1.3.
"""

from __future__ import annotations

import collections
import collections.abc
import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import numpy as np

from cpdispatch import dispatch
from cpdispatch.access.spread import ON_FIRST, PER_NODE
from cpdispatch.adapters.decided import decided
from cpdispatch.arrays import IntArray, sealed
from cpdispatch.decision import Decision, Reason
from cpdispatch.dispatch import DEFAULTS, Dispatcher, Settings
from cpdispatch.errors import DecisionError, InputError, UsageError
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.instance import Instance, Running, is_number
from cpdispatch.jobs import (
    LABELLED,
    PRIORITY_MAX,
    SPREADS,
    TERMS,
    UNKNOWN,
    WISHES,
    Column,
    JobTable,
)
from cpdispatch.system import LIMIT, USUAL_TIER, NodeGroup, System

Plan: TypeAlias = list[tuple[int | None, str, list[str]]]
"""AccaSim's form of a decision: (time, job, a node's name for each unit).

Its order is the queue's next one. Without nodes a job waits; the time would wake AccaSim then, None
does not.
"""

NAMED_FROM = 2**47
"""First number for ids that are no numbers: above every one that is taken as it stands."""

_NAMED_AS = {"user": "user_id", "group": "group_id"}
_UNHEEDED = (*WISHES, *TERMS, *SPREADS, "exclusive", "array_limit", "begin", "hold")
"""Attributes of jobs by which `cpdispatch simulate` would keep them to nodes, or back."""
_REFUSED = (int(Reason.NEVER_FITS), int(Reason.REJECTED))


class Event(Protocol):
    """What is read of AccaSim's job; its ``duration``, the real runtime, is not."""

    @property
    def id(self) -> str:
        """Name of the job."""

    @property
    def queued_time(self) -> int:
        """Submission, seconds."""

    @property
    def expected_duration(self) -> int:
        """Requested time, seconds."""

    @property
    def requested_nodes(self) -> int:
        """Number of units."""

    @property
    def requested_resources(self) -> Mapping[str, int]:
        """What each unit asks of each resource type."""

    @property
    def start_time(self) -> int:
        """Start in seconds of a job that runs."""

    @property
    def assigned_nodes(self) -> Sequence[str]:
        """The nodes of a job that runs: a name for each unit."""


class ResourceManager(Protocol):
    """What is read of AccaSim's resource manager."""

    @property
    def node_names(self) -> Sequence[str]:
        """Every node, in the order of the system's file."""

    @property
    def resource_types(self) -> Sequence[str]:
        """Every resource type, in the order of the system's file."""

    @property
    def current_availability(self) -> Mapping[str, Mapping[str, int]]:
        """What is free of each resource type on each node in service."""

    @property
    def current_allocations(self) -> Mapping[str, object]:
        """The running jobs, in the order in which they started."""

    def system_capacity(self, type: str, /) -> Mapping[str, Mapping[str, int]]:
        """Capacity of every node, when asked for ``nodes``."""

    def groups_available_resource(self) -> Mapping[str, Mapping[str, int]]:
        """Capacity of a node of each group."""


def imported(module: str) -> Any:
    """Import a module of AccaSim, such as ``base.simulator_class``.

    AccaSim 1.1.3 takes `Mapping` from where Python 3.10 and later no longer have it: it is put
    there during the import. Once it is loaded, AccaSim can be imported in the usual way too.

    Raises
    ------
    UsageError
        When AccaSim is not installed, or cannot be imported.
    """
    lacking = not hasattr(collections, "Mapping")
    if lacking:
        setattr(collections, "Mapping", collections.abc.Mapping)  # noqa: B010
    try:
        return importlib.import_module(f"accasim.{module}")
    except ImportError as error:
        raise UsageError(
            f"AccaSim cannot be imported ({error}): pip install 'cpdispatch[accasim]'"
        ) from error
    finally:
        if lacking:
            delattr(collections, "Mapping")


def scheduler(
    dispatcher: str | Dispatcher,
    settings: Settings = DEFAULTS,
    expected_wait_s: Mapping[str, int] | None = None,
) -> Any:
    """Make a scheduler to hand to AccaSim's ``Simulator``.

    Parameters
    ----------
    dispatcher : str or Dispatcher
        A name as on the command line, or an object with ``name`` and ``dispatch(instance)``.
    settings : Settings
        Time limit and seed of a dispatcher that is given by name.
    expected_wait_s : mapping of str to int, optional
        Expected waiting time by queue name, seconds; for other queues it is the mean wait so far.

    Returns
    -------
    accasim.base.scheduler_class.SchedulerBase
        For one simulation: dispatchers may remember what they have promised. Jobs that ask for more
        than the whole system has are rejected, and so are those that the dispatcher refuses.

    Raises
    ------
    UsageError
        When AccaSim is not installed, there is no such dispatcher, or it makes test runs. During
        the simulation: `DecisionError` when the dispatcher fails, answers with an infeasible
        decision, or leaves jobs for ever on an idle system with all its nodes; `InputError` when a
        job lacks what a dispatcher needs, or has an attribute that AccaSim's resource manager could
        not keep to, such as ``features``, ``exclusive`` or ``licences``.
    """
    if isinstance(dispatcher, str):
        dispatcher = dispatch.make(dispatcher, settings, warm=dispatch.but_stopped)
    if getattr(dispatcher, "test_s", 0):
        raise UsageError(
            f"dispatcher {dispatcher.name} makes test runs, and AccaSim cannot kill a job and "
            "queue it again: leave test out"
        )
    base = imported("base.scheduler_class")
    bridge = Bridge(dispatcher, {} if expected_wait_s is None else expected_wait_s)
    name = dispatcher.name

    def get_id(self: Any) -> str:
        return f"cpdispatch-{name}"

    def scheduling_method(
        self: Any, cur_time: int, jobs: list[Event], es_dict: Mapping[str, Event]
    ) -> tuple[Plan, list[str]]:
        return bridge.answer(self.resource_manager, cur_time, jobs, es_dict)

    body = {"name": name, "get_id": get_id, "scheduling_method": scheduling_method}
    made = type("Scheduler", (base.SchedulerBase,), body)
    # AccaSim's own check of requests fails on a job that asks for nothing.
    return made(settings.seed, job_check=base.JobVerification.NO_CHECK)


@dataclass(frozen=True, slots=True)
class _Known:
    """A job as it was when it was first seen: its column of the block, and its nodes once known."""

    column: IntArray
    nodes: dict[int, int] = field(default_factory=dict)


class Bridge:
    """Turns AccaSim's calls into instances, and a dispatcher's decisions into AccaSim's plans.

    Parameters
    ----------
    dispatcher : Dispatcher
    expected_wait_s : mapping of str to int
        Expected waiting time by queue name, where the site has stated it.
    """

    def __init__(self, dispatcher: Dispatcher, expected_wait_s: Mapping[str, int]) -> None:
        self._dispatcher = dispatcher
        self._expected_wait_s = expected_wait_s
        self._system: System | None = None
        self._node: dict[str, int] = {}
        self._capacity: IntArray = np.empty(0, dtype=np.int64)
        self._jobs: dict[str, _Known] = {}
        self._named = 0
        self._labels: dict[str, tuple[str, ...]] = dict.fromkeys(LABELLED, ())
        self._label_number: dict[tuple[str, str], int] = {}
        self._wait_sum: Counter[int] = Counter()
        self._wait_count: Counter[int] = Counter()
        self._running: set[str] = set()
        self._last_s = -1

    def answer(
        self,
        manager: ResourceManager,
        now: int,
        jobs: Sequence[Event],
        events: Mapping[str, Event],
    ) -> tuple[Plan, list[str]]:
        """Plan the queued jobs.

        Parameters
        ----------
        manager : ResourceManager
        now : int
            Seconds.
        jobs : sequence of Event
            The queue.
        events : mapping of str to Event
            Every job that AccaSim has loaded, by name.

        Returns
        -------
        plan : list of (time, name, nodes)
            See `Plan`.
        rejected : list of str
        """
        system = self._look(manager)
        ended = [name for name in self._running if name not in manager.current_allocations]
        for name in ended:
            if name not in events:
                del self._jobs[name]
        self._running = set(manager.current_allocations)
        new = [job for job in jobs if job.id not in self._jobs]
        rejected = self._admit(system, new)
        queue = [job for job in jobs if job.id in self._jobs]
        if not queue:
            return [], rejected
        queue.sort(key=lambda job: job.queued_time)
        instance = self._snapshot(system, manager, now, queue, events)
        if not (self._capacity_changed(instance) or ended or len(new) > len(rejected)):
            # Nodes that are out of service may come back.
            self._beware_of_idling(now, len(queue), bool(new) or len(instance.down) > 0)
            return [(None, job.id, []) for job in queue], rejected
        self._last_s = now
        decision = decided(self._dispatcher, instance)
        plan = self._start(manager, instance, decision, queue)
        refused = [
            job.id
            for job, reason in zip(queue, decision.reason.tolist(), strict=True)
            if reason in _REFUSED and job.id not in self._running
        ]
        for name in refused:
            del self._jobs[name]
        waiting = [job.id for job in queue if job.id in self._jobs and job.id not in self._running]
        return plan + [(None, name, []) for name in waiting], rejected + refused

    def _capacity_changed(self, instance: Instance) -> bool:
        """Whether what is free and held differs from the last call: AccaSim's users may change it.

        Their classes of additional data take nodes out of service, and bring them back.
        """
        capacity = instance.free + instance.running.usage(instance.system.nodes)
        changed = not np.array_equal(capacity, self._capacity)
        self._capacity = capacity
        return changed

    def _beware_of_idling(self, now: int, queued: int, hope: bool) -> None:
        """Raise when AccaSim goes on second by second because nothing will ever start.

        It does so when jobs wait and it knows of no time at which anything could happen.
        """
        if not hope and not self._running and now == self._last_s + 1:
            raise DecisionError(
                f"{self._dispatcher.name} leaves {queued} jobs waiting on an idle system at time "
                f"{self._last_s}, and no event is left: AccaSim would never end"
            )
        self._last_s = now

    # ------------------------------------------------------------------- AccaSim's data as ours

    def _look(self, manager: ResourceManager) -> System:
        """The system, which does not change: nodes in the order of AccaSim's file."""
        if self._system is None:
            resources = tuple(manager.resource_types)
            capacity = manager.system_capacity("nodes")
            rows = [
                tuple(capacity[node][kind] for kind in resources) for node in manager.node_names
            ]
            names = {
                tuple(group[kind] for kind in resources): name
                for name, group in manager.groups_available_resource().items()
            }
            # Like groups that stand apart have the same name in `names`.
            groups = tuple(
                NodeGroup(f"{names[row]} {k}", len(list(same)), row)
                for k, (row, same) in enumerate(groupby(rows))
            )
            self._node = {name: k for k, name in enumerate(manager.node_names)}
            self._system = System(
                "accasim", resources, groups, expected_wait_s=self._expected_wait_s
            )
        return self._system

    def _admit(self, system: System, new: Sequence[Event]) -> list[str]:
        """Remember jobs that are seen for the first time; give back those that never fit."""
        if not new:
            return []
        columns = [self._column(system, job) for job in new]
        fits = system_fits(system, JobTable(np.stack(columns, axis=1))).tolist()
        for job, column, fit in zip(new, columns, fits, strict=True):
            if fit:
                self._jobs[job.id] = _Known(column)
        return [job.id for job, fit in zip(new, fits, strict=True) if not fit]

    def _column(self, system: System, job: Event) -> IntArray:
        """A job's column of the block, see `cpdispatch.jobs.Column`."""
        request = [job.requested_resources.get(kind, 0) for kind in system.resources]
        for kind, amount in job.requested_resources.items():
            if amount and kind not in system.resources:
                has = f"the system has no {kind}: it has {', '.join(system.resources)}"
                raise _wrong(job, "requested_resources", job.requested_resources, has)
        _need(job, "requested_nodes", job.requested_nodes, 1)
        _need(job, "requested_resources", min(request), 0)
        _need(job, "requested_resources", max(request) * job.requested_nodes, 0)
        _need(job, "expected_duration", job.expected_duration, 0)
        column = np.empty(Column.REQUEST + len(request), dtype=np.int64)
        column[Column.ID] = self._number(job.id)
        column[Column.SUBMIT] = job.queued_time
        column[Column.UNITS] = job.requested_nodes
        for times in (Column.REQUESTED, Column.EXPECTED, Column.UPPER):
            column[times] = max(1, job.expected_duration)
        column[Column.EWT] = 1
        for name in LABELLED:
            value = getattr(job, _NAMED_AS.get(name, name), None)
            column[Column[name.upper()]] = self._label(name, value)
        column[Column.RESTARTABLE] = 0  # AccaSim cannot kill a job and queue it again
        column[Column.PRIORITY] = self._priority(system, job)
        column[Column.TIER] = USUAL_TIER
        column[Column.REQUEST :] = request
        return column

    def _priority(self, system: System, job: Event) -> int:
        """The site's priority, where AccaSim's reader gave the job one."""
        amounts = (per + kind for kind in system.resources for per in (PER_NODE, ON_FIRST))
        for name in (*_UNHEEDED, *amounts):
            if getattr(job, name, None):
                raise InputError(
                    "AccaSim does not know it and cannot keep it",
                    file=f"AccaSim's job {job.id}", field=name, value=getattr(job, name),
                    advice="replay the log with `cpdispatch simulate`, or leave the attribute out",
                )  # fmt: skip
        value = getattr(job, "priority", None) or 0
        if not isinstance(value, int):
            raise _wrong(job, "priority", value, "not a whole number")
        _need(job, "priority", value, 0, PRIORITY_MAX)
        return value

    def _number(self, name: str) -> int:
        """The number that a job's name is, or else a new one."""
        if is_number(name) and int(name) < NAMED_FROM:
            return int(name)
        self._named += 1
        return NAMED_FROM + self._named - 1

    def _label(self, column: str, value: object) -> int:
        """The number of a user's, group's, queue's, executable's or partition's name."""
        if value is None or value in ("", UNKNOWN):
            return UNKNOWN
        name = str(value)
        number = self._label_number.setdefault((column, name), len(self._labels[column]))
        if number == len(self._labels[column]):
            # A new mapping: instances share the old one.
            self._labels = {**self._labels, column: (*self._labels[column], name)}
        return number

    def _snapshot(
        self,
        system: System,
        manager: ResourceManager,
        now: int,
        queue: Sequence[Event],
        events: Mapping[str, Event],
    ) -> Instance:
        available = manager.current_availability
        nothing = dict.fromkeys(system.resources, 0)
        rows = [available.get(name, nothing) for name in self._node]
        free = np.array([[row[kind] for kind in system.resources] for row in rows], dtype=np.int64)
        down = [node for name, node in self._node.items() if name not in available]
        block = np.stack([self._jobs[job.id].column for job in queue], axis=1)
        block[Column.EWT] = self._expected_waits(system, block[Column.QUEUE])
        return Instance(
            now,
            system,
            sealed(free),
            JobTable(block, self._labels),
            self._run(system, now, [events[name] for name in manager.current_allocations]),
            sealed(np.array(down, dtype=np.int64)),
        )

    def _expected_waits(self, system: System, queues: IntArray) -> list[int]:
        """Expected wait by queue, s: as the site states it, else the mean so far, at least 1."""
        ewt: dict[int, int] = {}
        for queue in set(queues.tolist()):
            label = "" if queue == UNKNOWN else self._labels["queue"][queue]
            mean_s = self._wait_sum[queue] // max(1, self._wait_count[queue])
            ewt[queue] = system.expected_wait_s.get(label, 0) or max(1, mean_s)
        return [ewt[queue] for queue in queues.tolist()]

    def _run(self, system: System, now: int, events: Sequence[Event]) -> Running:
        """The running jobs; one that outlived its expected duration ends 1 s from now."""
        jobs = [self._jobs[event.id] for event in events]
        rows = int(Column.REQUEST) + len(system.resources)
        block = np.array([job.column for job in jobs], dtype=np.int64).reshape(-1, rows).T.copy()
        start_s = np.array([event.start_time for event in events], dtype=np.int64)
        end_s = start_s + block[Column.EXPECTED]
        for event, job in zip(events, jobs, strict=True):
            if not job.nodes:
                job.nodes.update(Counter(self._node[name] for name in event.assigned_nodes))
        return Running(
            JobTable(block, self._labels),
            sealed(start_s),
            sealed(np.maximum(end_s, now + 1)),
            sealed((end_s <= now).astype(np.int64)),
            sealed(np.cumsum([0, *(len(job.nodes) for job in jobs)], dtype=np.int64)),
            sealed(np.array([n for job in jobs for n in job.nodes], dtype=np.int64)),
            sealed(np.array([u for job in jobs for u in job.nodes.values()], dtype=np.int64)),
        )

    # ----------------------------------------------------------------- our decision as AccaSim's

    def _start(
        self,
        manager: ResourceManager,
        instance: Instance,
        decision: Decision,
        queue: Sequence[Event],
    ) -> Plan:
        """The part of the plan that starts jobs, in the decision's order as AccaSim keeps it."""
        plan: Plan = []
        names = manager.node_names
        for position, nodes in decision.placements.as_dict().items():
            if decision.start_s[position] != instance.now:
                continue
            name = queue[position].id
            places = [names[node] for node, units in nodes.items() for _ in range(units)]
            plan.append((instance.now, name, places))
            self._running.add(name)
            job = instance.queue[position]
            self._jobs[name].column[Column.EWT] = job.ewt_s
            self._wait_sum[job.queue] += instance.now - job.submit_s
            self._wait_count[job.queue] += 1
        return plan


def _need(job: Event, name: str, value: int, least: int, most: int = LIMIT) -> None:
    """Raise unless a number of a job lies between ``least`` and ``most``."""
    if not least <= value <= most:
        raise _wrong(job, name, value, f"from {least} to {most} is needed")


def _wrong(job: Event, name: str, value: object, problem: str) -> InputError:
    return InputError(
        problem, file=f"AccaSim's job {job.id}", field=name, value=value,
        advice="correct it where the job is read, in AccaSim's reader or tweak function",
    )  # fmt: skip
