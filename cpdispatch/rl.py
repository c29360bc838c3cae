"""A Gymnasium environment over the simulation, for policies that learn which job goes next.

::

    import gymnasium
    import cpdispatch.rl

    env = gymnasium.make("cpdispatch/Dispatch-v0", log="KTH-SP2-1996-2.swf.gz", jobs=256)
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch.analyze import metrics as figures
from cpdispatch.analyze.metrics import ScheduleColumns
from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.errors import UsageError, unknown
from cpdispatch.extra import needed
from cpdispatch.heuristics import kernels
from cpdispatch.heuristics.allocate import fit_capacity
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD, Order, Policy, find
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, Workload
from cpdispatch.parameters import whole
from cpdispatch.predict import Predictor
from cpdispatch.simulator.gates import runnable
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import System, is_own
from cpdispatch.terms import with_first
from cpdispatch.workloads import prepare

gymnasium: Any = needed("gymnasium", "rl")

ID = "cpdispatch/Dispatch-v0"
WINDOW = 64
FEATURES = ("waits", "requested", "expected", "fits now")
"""What is told of a job, before its share of the system by resource type."""
AHEAD_S = (0, 600, 3_600, 14_400, 86_400)
"""Instants, seconds from now, of which it is told what is expected to be free."""
RULES = ("submit_s", "requested_s", "expected_s", "processors")
"""What ``info`` holds of the jobs of the window as it is, for rules that are no networks."""
MORE_IS_BETTER = ("utilisation", "throughput_per_h")
METRICS = (
    *(
        f"{value}_{of}"
        for value in ("wait_s", "slowdown", "bounded_slowdown", "per_processor_bounded_slowdown")
        for of in ("mean", "median", "p95", "p99", "max")
    ),
    "makespan_s", "queue_length_mean", "queue_length_max", *MORE_IS_BETTER,
)  # fmt: skip
"""Figures that may be learned, of `cpdispatch.analyze.metrics.summary`."""
_LONGEST_S = 30 * 86_400
_MOST_JOBS = 10_000
_WHEN_STARTED = {
    "wait_s_mean": figures.wait_s,
    "slowdown_mean": figures.slowdown,
    "bounded_slowdown_mean": figures.bounded_slowdown,
}
"""Means over jobs, whose values are known as soon as a job starts."""


@dataclass(frozen=True)
class _Chosen(Order):
    """The positions of the queue that were chosen, then the others by submission."""

    positions: tuple[int, ...] = ()

    def rank(self, now: int, block: IntArray, threshold_s: int = NO_THRESHOLD) -> IntArray:
        """The positions, see `Order.rank`."""
        if not self.positions:
            return np.arange(block.shape[1])
        first, others = np.array(self.positions), np.ones(block.shape[1], dtype=np.bool_)
        others[first] = False
        return np.concatenate((first, others.nonzero()[0]))


class Dispatch(gymnasium.Env):  # type: ignore[misc] # Gymnasium may be missing
    """Choose which job of the queue goes next.

    At each moment at which a job can start, the agent chooses one after the other. A job that fits
    beside those that were chosen before it starts. The first one that does not is reserved its
    earliest start, others are backfilled in the order ``backfill``, and time goes on. The agent
    that always takes the first key of an order P is the dispatcher ``easy-P-B``, unless partitions
    have tiers: dispatchers take the jobs of a higher tier first.

    Parameters
    ----------
    log : path or Workload, optional
        See `cpdispatch.prepare`; else the jobs of `cpdispatch.eurora_sample`.
    system : System, str or int, optional
        See `cpdispatch.prepare`; ``eurora`` for the sample.
    jobs : int
        Jobs of an episode: consecutive ones, of which `reset` draws the first; 0 for all.
    window : int
        How many jobs are shown and can be chosen: those that were submitted first.
    backfill : str or None
        The order of the jobs that are backfilled; None for a strict order, without backfilling.
    metric : str
        One of `METRICS`. The rewards of an episode add up to minus its value, or to its value where
        more is better. Means of waits and slowdowns are given when jobs start, others at the end.
    predictor : str or Predictor
        Whose expected durations are shown. Each episode has a copy of an object.
    filter : str
        Which jobs of a file are kept, see `cpdispatch.prepare`.
    render_mode : {None, "ansi"}

    Attributes
    ----------
    action_space : Discrete
        Places of the window. A place without a job stands for the first one.
    observation_space : Dict
        ``jobs``, shape (window, 4 + resources): see `FEATURES`, then the share of the system that
        the job asks for, by resource type. ``machine``, shape (5 resources + 2,): the share of each
        resource type that is expected to be free at the instants `AHEAD_S`; how many jobs wait
        beyond the window, and how many were chosen at this moment. ``mask``: which places of the
        window have a job that was not chosen yet. All from 0 to 1; times and numbers of jobs on a
        logarithmic scale. Resource types are the system's own, without those that stand for where
        jobs may run, see `cpdispatch.access`.

    Raises
    ------
    UsageError
        When an argument is wrong; as of `cpdispatch.prepare`.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium has it

    def __init__(
        self, log: str | os.PathLike[str] | Workload | None = None,
        system: System | str | os.PathLike[str] | int | None = None,
        *, jobs: int = 256, window: int = WINDOW,
        backfill: str | None = "fcfs", metric: str = "bounded_slowdown_mean",
        predictor: str | Predictor = "walltime", filter: str = "all",
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        window, jobs = whole("window", window, 1, of="jobs"), whole("jobs", jobs)
        if render_mode not in (None, "ansi"):
            raise UsageError(f"unknown render mode {render_mode!r}: None or ansi")
        if log is None:
            from cpdispatch.workloads.generate import eurora_sample

            log, system = eurora_sample(), system or "eurora"
        workload, self.system = prepare(log, system, filter=filter)
        self._workload = _runnable(workload, self.system)
        self._jobs = len(self._workload) if jobs == 0 else min(jobs, len(self._workload))
        self._window, self._metric, self._predictor = window, metric, predictor
        secondary = find(backfill or "fcfs")
        self._rule = Backfill(secondary=secondary, depth=0 if backfill is None else 1)
        self.render_mode = render_mode
        self._own = [k for k, name in enumerate(self.system.resources) if is_own(name)]
        self._total = np.maximum(self.system.total[self._own], 1)
        resources = len(self._own)
        box = gymnasium.spaces.Box
        self.action_space = gymnasium.spaces.Discrete(window)
        self.observation_space = gymnasium.spaces.Dict(
            {
                "jobs": box(0.0, 1.0, (window, len(FEATURES) + resources), np.float32),
                "machine": box(0.0, 1.0, (len(AHEAD_S) * resources + 2,), np.float32),
                "mask": gymnasium.spaces.MultiBinary(window),
            }
        )
        self._simulation: Simulation | None = None
        self._instance: Instance | None = None
        self._chosen: list[int] = []
        self._paid = 0.0
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Begin an episode.

        Parameters
        ----------
        options : mapping, optional
            ``first``: which job of the log is the episode's first, instead of one drawn.
        """
        super().reset(seed=seed)
        last = len(self._workload) - self._jobs
        for name in options or {}:
            if name != "first":
                raise unknown("option", name, ["first"])
        first = (options or {}).get("first")
        if first is None:
            first = int(self.np_random.integers(0, last + 1))
        elif not isinstance(first, int | np.integer) or not 0 <= first <= last:
            raise UsageError(f"first {first!r}: a whole number from 0 to {last} is needed")
        episode = self._workload.take(np.arange(first, first + self._jobs))
        self._paid = 0.0
        self._request = episode.table.request
        self._row_of = np.argsort(episode.table.id, kind="stable")
        self._ids = episode.table.id[self._row_of]
        self._simulation = Simulation(
            episode, self.system, predictor=copy.deepcopy(self._predictor)
        )
        self._go_on(self._simulation)
        return self._observed()

    def step(
        self, action: int
    ) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Choose a job; when it does not fit, or none is left, go on to the next moment."""
        instance, simulation = self._instance, self._simulation
        if instance is None or simulation is None:
            raise UsageError("step() was called before reset(), or after the end of the episode")
        number = np.asarray(action)
        if number.ndim or not np.issubdtype(number.dtype, np.integer):
            raise UsageError(f"action {action!r}: the number of a place in the window is needed")
        shown, place = self._shown(instance), int(action)
        position = shown[place] if 0 <= place < len(shown) else shown[0]
        self._chosen.append(position)
        fits = self._take(instance, position)
        reward = 0.0
        if not fits or len(self._chosen) == len(instance.queue):
            self._rule.primary = _Chosen(Policy.FCFS, positions=tuple(self._chosen))
            decision = self._rule.dispatch(instance)
            simulation.apply(decision)
            reward = self._earned(instance, decision)
            self._paid += reward
            self._go_on(simulation)
        over = self._instance is None
        observed, info = self._observed()
        if over:
            found = figures.summary(self._schedule(), np.empty(0))
            found["decisions"] = len(simulation.records.decisions()[0]["time"])
            info["metrics"] = found
            value = float(found[self._metric])
            # A job that started more than once was paid for each time: the rewards add up again.
            if not np.isnan(value):
                reward += (value if self._metric in MORE_IS_BETTER else -value) - self._paid
        return observed, reward, over, False, info

    def render(self) -> str | None:
        """The moment as text: what is free, and the first jobs of the queue."""
        if self.render_mode is None or self._instance is None:
            return None
        instance = self._instance
        shares = instance.free.sum(axis=0)[self._own] / self._total
        free = ", ".join(
            f"{self.system.resources[k]} {share:.0%}"
            for k, share in zip(self._own, shares, strict=True)
        )
        lines = [f"time {instance.now} s, queue {len(instance.queue)}, free: {free}"]
        for position in self._shown(instance)[:10]:
            job = instance.queue[position]
            lines.append(
                f"  job {job.id}: waits {instance.now - job.submit_s} s, units {job.units}, "
                f"expected {job.expected_s} s"
            )
        return "\n".join(lines)

    def _shown(self, instance: Instance) -> list[int]:
        """The positions of the jobs that can be chosen, those submitted first."""
        most = min(len(instance.queue), self._window + len(self._chosen))
        if not self._chosen:
            return list(range(most))
        chosen = set(self._chosen)
        left = (position for position in range(len(instance.queue)) if position not in chosen)
        return list(islice(left, self._window))

    def _go_on(self, simulation: Simulation) -> None:
        """Go on to the next moment at which a job can start; in between nothing is to be chosen."""
        self._chosen = []
        while (instance := simulation.advance()) is not None:
            self._left = instance.free.copy()
            self._asks = with_first(instance.system, instance.queue.block)
            if fit_capacity(self._left, self._asks).any():
                break
            simulation.apply(_nothing(len(instance.queue)))
        self._instance = instance

    def _take(self, instance: Instance, position: int) -> bool:
        """Take what a chosen job would hold off what is free; whether it fits there."""
        ask = self._asks[Column.REQUEST :, position].copy()
        units = int(instance.queue.units[position])
        if not kernels.fits(self._left, ask, units):
            return False
        node, many = np.empty((2, len(self._left)), dtype=np.int64)
        count = kernels.place(
            self._left, instance.system.capacity, ask, units, False, node, many
        )  # fmt: skip
        kernels.change(self._left, ask, node[:count], many[:count], -1)
        return True

    def _earned(self, instance: Instance, decision: Decision) -> float:
        """The reward for the jobs that start, where a metric is known then."""
        value = _WHEN_STARTED.get(self._metric)
        if value is None or self._simulation is None:
            return 0.0
        started = instance.queue.id[decision.start_s == instance.now]
        if not len(started):
            return 0.0
        rows = self._row_of[np.searchsorted(self._ids, started)]
        table, runtime_s = self._simulation.workload.table, self._simulation.workload.runtime_s
        start_s = np.full(len(rows), instance.now, dtype=np.int64)
        schedule = ScheduleColumns(
            table.submit_s[rows], start_s, start_s + runtime_s[rows], table.units[rows],
            self._request[rows], start_s < 0, self.system.total,
        )  # fmt: skip
        return -float(value(schedule).sum()) / self._jobs

    def _schedule(self) -> ScheduleColumns:
        """What became of the jobs of the episode."""
        assert self._simulation is not None
        records, table = self._simulation.records, self._simulation.workload.table
        backfilled = records.reason == Reason.BACKFILLED
        return ScheduleColumns(
            table.submit_s, records.start_s, records.end_s, table.units, table.request,
            backfilled, self.system.total,
        )  # fmt: skip

    def _observed(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The observation of this moment, and what else is known of it."""
        space = self.observation_space.spaces
        jobs = np.zeros(space["jobs"].shape, dtype=np.float32)
        machine = np.zeros(space["machine"].shape, dtype=np.float32)
        mask = np.zeros(self._window, dtype=np.int8)
        info: dict[str, Any] = {name: np.zeros(self._window, dtype=np.int64) for name in RULES}
        instance = self._instance
        if instance is not None:
            shown = np.array(self._shown(instance))
            count, queue = len(shown), instance.queue
            request = (queue.request[shown] * queue.units[shown, None])[:, self._own]
            fits = fit_capacity(self._left, self._asks[:, shown])
            mask[:count] = 1
            jobs[:count, 0] = _log(instance.now - queue.submit_s[shown], _LONGEST_S)
            jobs[:count, 1] = _log(queue.requested_s[shown], _LONGEST_S)
            jobs[:count, 2] = _log(queue.expected_s[shown], _LONGEST_S)
            free = self._free(instance)
            jobs[:count, 3] = fits
            jobs[:count, len(FEATURES) :] = request / self._total
            machine[:-2] = np.minimum(free / self._total, 1.0).ravel()
            beyond = len(queue) - len(self._chosen) - count
            machine[-2:] = _log(np.array([beyond, len(self._chosen)]), _MOST_JOBS)
            for name in RULES[:-1]:
                info[name][:count] = getattr(queue, name)[shown]
            info["processors"][:count] = np.maximum(request[:, 0], 1)
        info["action_mask"] = mask
        return {"jobs": jobs, "machine": machine, "mask": mask.copy()}, info

    def _free(self, instance: Instance) -> IntArray:
        """What is free of the whole system now beside the chosen jobs, and is expected to be later.

        Shape (instants, resources of the system's own).
        """
        running = instance.running
        held = running.jobs.request * running.jobs.units[:, None]
        ended = running.end_s[:, None] <= instance.now + np.array(AHEAD_S[1:])
        later = np.concatenate((np.zeros((1, held.shape[1]), dtype=np.int64), ended.T @ held))
        free: IntArray = (self._left.sum(axis=0) + later)[:, self._own]
        return free


def _nothing(jobs: int) -> Decision:
    """No job starts, and nothing is promised."""
    return Decision(
        np.full(jobs, NO_START, dtype=np.int64), np.full(jobs, Reason.WAITS, dtype=np.int8),
        Placements.of({}), Certificate("none"),
    )  # fmt: skip


def _log(values: IntArray, most: int) -> NDArray[np.float64]:
    """Values from 0 to 1 on a logarithmic scale, 1 at the most and beyond it."""
    found: NDArray[np.float64] = np.log1p(values) / np.log1p(most)
    return np.minimum(found, 1.0)


def _runnable(workload: Workload, system: System) -> Workload:
    """The jobs that fit the system and its limits: others never start."""
    fits = runnable(workload, system)
    if not fits.any():
        raise UsageError(f"no job of {workload.name} fits the system {system.name}")
    return workload.take(np.flatnonzero(fits))


gymnasium.register(ID, entry_point="cpdispatch.rl:Dispatch")
