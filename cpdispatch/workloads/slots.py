"""Workloads like a real log, of any length and for another system: fitted to slots of the day.

`fit` learns from a log when jobs are submitted, of which sizes they are, how much work they do
and how people ask for time; `generate` makes new jobs of that.

A day has 48 slots of half an hour. The weight of a slot is the product of what the log says of
its half hour, its weekday and its month. Times between jobs are drawn from those of the log, as
they are when time passes through each slot at the slot's weight. Progress corrects them: where an
hour, a weekday or a month has had fewer jobs so far than its share, its slots weigh more.

A job's work is its runtime times the performance of the units that it asks for: with core = 10
(GFLOPS) an hour on two cores is 72,000 GFLOP. The same work on faster units takes less time.

References
----------
The workload generator of the thesis on dispatching by constraint programming (chapter 3), which
is that of AccaSim: C. Galleguillos, Z. Kiziltan, A. Netti, R. Soto, "AccaSim: a customizable
workload management simulator for job dispatching research in HPC systems", Cluster Computing 23
(2020). It fits families of distributions; here quantiles are kept, which need no family. It draws
work and size independently; here the work of a job depends on its size, as in logs.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite, log2, sqrt
from typing import Literal

import msgspec
import numpy as np

from cpdispatch.arrays import FloatArray, IntArray, sealed
from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import parse_json, read_text, write_bytes
from cpdispatch.jobs import UNKNOWN, JobTable, Workload, job_block
from cpdispatch.system import LIMIT, System
from cpdispatch.workloads import amounts
from cpdispatch.workloads.clock import (
    DAY_S,
    SLOT_S,
    SLOTS,
    WEEK_S,
    by_day,
    header,
    midnight_s,
    month_of,
    slot_of,
    wall_s,
    weekday_of,
)

FORMAT: Literal["cpdispatch-slots/1"] = "cpdispatch-slots/1"
JOBS_MIN = 100
"""Fewest jobs that a log needs to be fitted."""
CLASS_JOBS_MIN = 50
"""Fewest jobs of a class of sizes, each of which has its own distribution of work."""
QUANTILES = np.concatenate(
    (np.linspace(0, 0.95, 96), 1 - 0.05 * (1 - np.linspace(0, 1, 33)[1:]) ** 3)
)
"""The quantiles kept of a distribution: denser towards 1, since the tails are heavy."""
REQUEST_BINS, REQUEST_VALUES = 20, 101
WEIGHT_MAX = 1_000_000
"""The greatest weight of an hour, a weekday or a month. Logs have weights of about 1."""

SPAN_TRIES, SPAN_ERROR = 20, 0.005
"""How often, and to which relative error, the rate is corrected to reach a load."""


class SizeClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs of like size.

    Attributes
    ----------
    from_processors : int
        The smallest size; the next class begins where this one ends.
    work : tuple of float
        Quantiles of the work for each processor asked for, GFLOP.
    """

    from_processors: int
    work: tuple[float, ...]


class SlotModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was learned from a log.

    Attributes
    ----------
    name : str
        Of the log.
    start_s : int
        Local midnight before its first job, seconds since 1970.
    jobs_per_day : float
    slots : tuple of float, 48 values
        Weight of each half hour of the day.
    weekdays : tuple of float, 7 values
        Weight of each day of the week from Monday.
    months : tuple of float, 12 values
        Weight of each month from January; 1 for those that the log has not seen.
    gaps : tuple of float
        Quantiles of the times between jobs, 1 in the mean.
    sizes, size_jobs : tuple of int
        The numbers of processors that jobs ask for, ascending, and how many jobs do.
    classes : tuple of SizeClass
        Ascending.
    performance : dict of str to float
        GFLOPS of each unit of a resource type of the log's machine.
    runtimes_s : tuple of int
        From where on each of the rows of ``requested_s`` holds, ascending.
    requested_s : tuple of tuples of int
        Requested times of the jobs of like runtime, ascending; none when the log has none.
    format : str
    """

    name: str
    start_s: int
    jobs_per_day: float
    slots: tuple[float, ...]
    weekdays: tuple[float, ...]
    months: tuple[float, ...]
    gaps: tuple[float, ...]
    sizes: tuple[int, ...]
    size_jobs: tuple[int, ...]
    classes: tuple[SizeClass, ...]
    performance: dict[str, float]
    runtimes_s: tuple[int, ...] = ()
    requested_s: tuple[tuple[int, ...], ...] = ()
    format: Literal["cpdispatch-slots/1"] = FORMAT

    def __post_init__(self) -> None:
        weights = {"slots": SLOTS, "weekdays": 7, "months": 12}
        for name, count in weights.items():
            values = getattr(self, name)
            in_range = len(values) == count and 0 <= min(values) <= max(values) <= WEIGHT_MAX
            if not in_range or sum(values) == 0:
                raise ValueError(
                    f"{name} needs {count} weights from 0 to {WEIGHT_MAX:,}, not all 0"
                )
        positive = (self.jobs_per_day, *self.performance.values())
        if not all(isfinite(value) and value > 0 for value in positive):
            raise ValueError("jobs_per_day and performance must be above 0")
        if not _ascending(self.sizes) or min(self.sizes) < 1 or max(self.sizes) > LIMIT:
            raise ValueError("sizes must ascend from 1 or more")
        jobs = self.size_jobs
        if len(self.sizes) != len(jobs) or min(jobs) < 1 or sum(jobs) > LIMIT:
            raise ValueError("size_jobs needs a number of 1 or more for each size")
        if not _ascending([part.from_processors for part in self.classes]):
            raise ValueError("classes must ascend")
        for values in (self.gaps, *(part.work for part in self.classes)):
            if len(values) != len(QUANTILES) or min(values) < 0 or not isfinite(max(values)):
                raise ValueError(f"a distribution needs {len(QUANTILES)} quantiles of 0 or more")
        if max(self.gaps) == 0 or min(min(part.work) for part in self.classes) == 0:
            raise ValueError("work must be above 0, and not all gaps 0")
        if max(self.gaps) > LIMIT:
            raise ValueError(f"gaps must be {LIMIT:,} at most")
        if not 0 <= self.start_s <= LIMIT or self.start_s % DAY_S:
            raise ValueError("start_s must be a midnight since 1970")
        self._check_requests()

    def _check_requests(self) -> None:
        if len(self.runtimes_s) != len(self.requested_s) or not all(self.requested_s):
            raise ValueError("requested_s needs a row for each of runtimes_s")
        if self.runtimes_s and not _ascending(self.runtimes_s):
            raise ValueError("runtimes_s must ascend")
        if any(not 1 <= value <= LIMIT for row in self.requested_s for value in row):
            raise ValueError("requested_s must be 1 or more seconds")


def _ascending(values: tuple[int, ...] | list[int]) -> bool:
    return len(values) > 0 and all(a < b for a, b in pairwise(values))


@dataclass(frozen=True, slots=True)
class Limits:
    """What jobs may ask for on the system that they are made for.

    Attributes
    ----------
    request : mapping of str to (int, int)
        Least and most that each unit asks of a resource type, drawn evenly. ``core`` is (1, 1)
        and everything else (0, 0) unless it is stated; an accelerator that a job uses is (1, 1).
    accelerators : mapping of str to float
        Share of the jobs that use a resource type such as ``gpu``. A job uses one of them at most.
    performance : mapping of str to float
        GFLOPS of each unit of a resource type; what is left out has that of the log's machine.
    """

    request: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    accelerators: Mapping[str, float] = field(default_factory=dict)
    performance: Mapping[str, float] = field(default_factory=dict)


# --------------------------------------------------------------------------------- fitting


def fit(workload: Workload, performance: Mapping[str, float] | None = None) -> SlotModel:
    """Learn from a log.

    Parameters
    ----------
    workload : Workload
    performance : mapping of str to float, optional
        GFLOPS of each unit of a resource type; 1 a core when left out, so that work is in
        core-seconds. Resource types that are not named do no work.

    Raises
    ------
    InputError
        When the log has too few jobs, is shorter than a week, or has no runtimes.
    UsageError
        When the performance is that of none of the log's resource types.
    """
    rates = {"core": 1.0} if performance is None else dict(performance)
    _check_rates(rates)
    if len(workload) < JOBS_MIN:
        raise InputError(
            f"{len(workload)} jobs are too few to learn from", file=workload.name,
            advice=f"take a log of {JOBS_MIN} or more",
        )  # fmt: skip
    if not np.any(workload.runtime_s > 0):
        raise InputError(
            "no job has a runtime, so there is no work to learn",
            file=workload.name,
            field="runtime",
        )
    wall = np.sort(wall_s(workload))
    start_s = midnight_s(workload)
    days = (int(wall[-1]) - start_s) // DAY_S + 1
    if days < WEEK_S // DAY_S:
        raise InputError(
            f"the log spans {days} days, too few to tell the days of a week apart",
            file=workload.name, advice="take a log of a week or more",
        )  # fmt: skip
    slots: FloatArray = np.bincount(slot_of(wall), minlength=SLOTS) * np.float64(SLOTS / len(wall))
    weekdays = np.nan_to_num(by_day(wall, weekday_of, 7), nan=1.0)
    months = np.nan_to_num(by_day(wall, month_of, 12), nan=1.0)
    processors, power = processors_of(workload), _power(workload, rates)
    runtimes_s, requested_s = _requests(workload)
    sizes, size_jobs = np.unique(processors, return_counts=True)
    return SlotModel(
        name=workload.name,
        start_s=start_s,
        jobs_per_day=len(workload) / days,
        slots=tuple(slots.tolist()),
        weekdays=tuple(weekdays.tolist()),
        months=tuple(months.tolist()),
        gaps=_gaps(wall, start_s, _rate(start_s, days, slots, weekdays, months)),
        sizes=tuple(sizes.tolist()),
        size_jobs=tuple(size_jobs.tolist()),
        classes=_classes(processors, np.maximum(workload.runtime_s, 1) * power / processors),
        performance=rates,
        runtimes_s=runtimes_s,
        requested_s=requested_s,
    )


def _rate(
    start_s: int, days: int, slots: FloatArray, weekdays: FloatArray, months: FloatArray
) -> FloatArray:
    """Weight of every slot of so many days, 1 in the mean, shape (days x 48,)."""
    noons = start_s + np.arange(days) * DAY_S + DAY_S // 2
    of_day = weekdays[weekday_of(noons)] * months[month_of(noons)]
    rate = np.outer(of_day, slots).ravel()
    return np.asarray(rate / rate.mean(), dtype=np.float64)


def _gaps(wall: IntArray, start_s: int, rate: FloatArray) -> tuple[float, ...]:
    """Quantiles of the times between jobs, in the time that passes at the slots' weights."""
    passed = np.concatenate(([0.0], np.cumsum(rate)))
    edges = np.arange(len(passed)) * float(SLOT_S)
    values = np.diff(np.interp(wall - float(start_s), edges, passed))
    quantiles = np.quantile(values, QUANTILES)
    mean = float(np.sum(np.diff(QUANTILES) * (quantiles[1:] + quantiles[:-1])) / 2)
    return tuple((quantiles / mean).tolist()) if mean > 0 else (1.0,) * len(QUANTILES)


def processors_of(workload: Workload) -> IntArray:
    """Processors of each job, shape (jobs,)."""
    names = workload.resources
    cores = workload.table.request[:, names.index("core")] if "core" in names else 1
    return workload.table.units * np.maximum(cores, 1)


def power_of(workload: Workload, rates: Mapping[str, float]) -> FloatArray:
    """GFLOPS of all that each job asks for, shape (jobs,)."""
    gflops = np.array([rates.get(name, 0.0) for name in workload.resources])
    power: FloatArray = workload.table.units * (workload.table.request @ gflops)
    return power


def _power(workload: Workload, rates: Mapping[str, float]) -> FloatArray:
    """The same, where every job asks for something that works."""
    if not any(name in rates for name in workload.resources):
        raise UsageError(
            f"performance of {', '.join(rates) or 'nothing'}: the jobs of {workload.name} ask for "
            f"{', '.join(workload.resources)}"
        )
    power = power_of(workload, rates)
    if not np.all(power > 0):
        position = int(np.argmin(power))
        raise InputError(
            f"job {workload.table.id[position]} asks for nothing of {', '.join(rates)}",
            file=workload.name, advice="state the performance of all resource types that work",
        )  # fmt: skip
    return power


def _classes(processors: IntArray, work: FloatArray) -> tuple[SizeClass, ...]:
    """Classes of sizes that double, each with the quantiles of its work."""
    edges: list[int] = []
    for edge in (1 << k for k in range(int(log2(processors.max())) + 1)):
        here = np.count_nonzero((processors >= edge) & (processors < 2 * edge))
        if here >= CLASS_JOBS_MIN or not edges:
            edges.append(edge)
    of_class = np.searchsorted(edges, processors, side="right")
    found = []
    for number, edge in enumerate(edges, start=1):
        values = np.log(work[of_class == number])
        if values.size:
            quantiles = np.exp(np.quantile(values, QUANTILES))
            found.append(SizeClass(edge, tuple(quantiles.tolist())))
    return tuple(found)


def _requests(workload: Workload) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Requested times of jobs of like runtime: as people ask, so no means of them."""
    runtime_s, requested_s = workload.runtime_s, workload.table.requested_s
    if np.array_equal(runtime_s, requested_s):
        return (), ()
    order = np.argsort(runtime_s, kind="stable")
    parts = np.array_split(order, min(REQUEST_BINS, len(order)))
    rows: dict[int, tuple[int, ...]] = {}
    for part in parts:
        values = np.sort(requested_s[part])
        picked = np.linspace(0, len(values) - 1, REQUEST_VALUES).round().astype(np.int64)
        rows.setdefault(int(runtime_s[part[0]]), tuple(values[picked].tolist()))
    return tuple(rows), tuple(rows.values())


# --------------------------------------------------------------------------- saved and loaded


def save(model: SlotModel, path: str | os.PathLike[str]) -> None:
    """Write a model as JSON, packed when its name ends in .gz, .xz or .zst."""
    write_bytes(path, msgspec.json.encode(model) + b"\n")


def load(path: str | os.PathLike[str]) -> SlotModel:
    """Read a model that was saved.

    Raises
    ------
    InputError
        When the file cannot be read or holds no model.
    """
    return parse_json(read_text(path), SlotModel, "a saved model of a log", path, FORMAT)


# ------------------------------------------------------------------------------- generating


def generate(
    model: SlotModel,
    system: System,
    jobs: int,
    seed: int = 0,
    *,
    limits: Limits | None = None,
    load: float | None = None,
) -> Workload:
    """Make a workload of a model for a system, on which every job fits.

    A job's size is drawn from those of the log that the system has room for. Each unit asks for a
    number of cores within the limits, and the units are as many as make up the size. The jobs'
    users are unknown.

    Parameters
    ----------
    model : SlotModel
    system : System
    jobs : int
    seed : int
    limits : Limits, optional
    load : float, optional
        Offered load: what the jobs ask of the most demanded resource type, times their runtime,
        over its capacity times the time that they are submitted in. Without it as many jobs are
        submitted a day as in the log.

    Returns
    -------
    Workload
        It begins on the day on which the log does, and its header says so.

    Raises
    ------
    UsageError
        When a number is out of range, or the limits cannot be met on the system.
    """
    amounts.check(jobs, seed, load)
    limits = Limits() if limits is None else limits
    gflops = _gflops(model, system, limits)
    random = np.random.Generator(np.random.PCG64(seed))
    request = _shapes(system, limits, jobs, random)
    units, request, processors = _sizes(model, system, request, random)
    work = _work(model, processors, random)
    seconds = np.maximum(np.rint(work / (units * (request @ gflops))), 1)
    if seconds.max() > LIMIT:
        raise UsageError(f"performance: jobs would run {seconds.max():.3g} s; state more GFLOPS")
    runtime_s = seconds.astype(np.int64)
    requested_s = _requested(model, runtime_s, random)
    span_s = None
    if load is not None:
        demand = (units * runtime_s) @ request
        has = system.total > 0
        span_s = float(np.max(demand[has] / system.total[has])) / load
    due = _due(model, jobs, random)
    block = job_block(
        id=np.arange(1, jobs + 1),
        submit_s=_spanning(model, due, span_s),
        units=units,
        requested_s=requested_s,
        request=request,
    )
    unknown = sealed(np.full(jobs, UNKNOWN, dtype=np.int64))
    return Workload(
        name=f"{model.name}-like",
        resources=system.resources,
        table=JobTable(block),
        runtime_s=sealed(runtime_s),
        preceding=unknown,
        think_s=unknown,
        processors=system.processors,
        header=header(_machine(system), model.start_s, f"made like {model.name}, seed {seed}"),
        memory_unit_kb=system.memory_unit_kb,
    )


def _machine(system: System) -> tuple[str, ...]:
    processors = system.processors
    return (
        f"; Computer: {system.name}",
        f"; MaxNodes: {system.nodes}",
        f"; MaxProcs: {processors}",
    )


def _gflops(model: SlotModel, system: System, limits: Limits) -> FloatArray:
    """Performance of a unit of each resource type of the system; checks names and numbers."""
    for what, names in (
        ("request limits", limits.request),
        ("accelerators", limits.accelerators),
        ("performance", limits.performance),
    ):
        for name in names:
            if name not in system.resources:
                raise UsageError(
                    f"{what}: {name} is not a resource type of the system {system.name} (it has "
                    f"{', '.join(system.resources)})"
                )
    for name, (least, most) in limits.request.items():
        if not 0 <= least <= most or (name == "core" and least < 1):
            raise UsageError(
                f"request limits of {name}: {least} to {most}; they must ascend from 0 or more, "
                "and from 1 or more for core"
            )
    shares = limits.accelerators
    if any(not 0 <= share <= 1 for share in shares.values()) or sum(shares.values()) > 1:
        raise UsageError(f"accelerators: the shares {dict(shares)} must add up to 1 at most")
    rates = rates_of(model, limits)
    for name in shares:
        if name not in rates or name == "core":
            raise UsageError(
                f"accelerators: say how fast {name} is, too, for example --performance "
                f"core={rates.get('core', 1.0):g},{name}={50 * rates.get('core', 1.0):g}"
            )
    _check_rates(rates)
    if system.resource("core") < 0 or "core" not in rates:
        raise UsageError(
            f"jobs are made of cores: {system.name} has none, or their performance is unknown"
        )
    return np.array([rates.get(name, 0.0) for name in system.resources])


def rates_of(model: SlotModel, limits: Limits) -> dict[str, float]:
    """GFLOPS of a unit of each resource type that works on the system."""
    return model.performance | dict(limits.performance)


def _check_rates(rates: Mapping[str, float]) -> None:
    if any(not (isfinite(rate) and rate > 0) for rate in rates.values()):
        raise UsageError(f"performance {dict(rates)}: numbers above 0 are needed")


def _shapes(system: System, limits: Limits, jobs: int, random: np.random.Generator) -> IntArray:
    """What each unit of the jobs asks for within the limits, shape (jobs, resources)."""
    request = np.zeros((jobs, len(system.resources)), dtype=np.int64)
    edges = np.cumsum(list(limits.accelerators.values()))
    uses = np.searchsorted(edges, random.random(jobs), side="right")
    bounds = [_bounds(limits, name) for name in system.resources]
    _check_room(system, limits, np.array([most for _, most in bounds]))
    for column, (name, (least, most)) in enumerate(zip(system.resources, bounds, strict=True)):
        drawn = least + np.floor(random.random(jobs) * (most - least + 1)).astype(np.int64)
        if name in limits.accelerators:
            drawn[uses != list(limits.accelerators).index(name)] = 0
        request[:, column] = drawn
    return request


def _bounds(limits: Limits, name: str) -> tuple[int, int]:
    """Least and most that each unit asks of a resource type, if its job uses it."""
    accelerator = name in limits.accelerators
    least, most = limits.request.get(name, (1, 1) if name == "core" or accelerator else (0, 0))
    return (max(least, 1), max(most, 1)) if accelerator else (least, most)


def _check_room(system: System, limits: Limits, most: IntArray) -> None:
    """Raise when some node has no room for the largest unit that may be drawn.

    Parameters
    ----------
    most : int64 array, shape (resources,)
        What a unit asks for at most of each resource type.
    """
    for column, name in enumerate(system.resources):
        has = max(group.capacity[column] for group in system.groups)
        if most[column] > has:
            raise UsageError(
                f"request limits of {name}: {_bounds(limits, name)[0]} to {most[column]}; a node "
                f"of the system {system.name} has {has} at most: lower the limit"
            )
    used = [name for name, share in limits.accelerators.items() if share > 0]
    kinds = used + [""] * (sum(limits.accelerators.values()) < 1)
    request = np.stack([
        [0 if name in limits.accelerators and name != kind else many
         for name, many in zip(system.resources, most.tolist(), strict=True)]
        for kind in kinds
    ])  # fmt: skip
    room = system.room(request)
    if room.min() < 1:
        asked = dict(zip(system.resources, request[int(np.argmin(room))].tolist(), strict=True))
        wanted = ", ".join(f"{amount} {name}" for name, amount in asked.items() if amount)
        raise UsageError(
            f"request limits: no node of the system {system.name} has {wanted} for a unit; lower "
            "the limits"
        )


def _sizes(
    model: SlotModel, system: System, request: IntArray, random: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Units, requests and processors of the jobs: the log's sizes that the system has room for."""
    core = system.resource("core")
    most = system.room(request) * request[:, core]
    sizes = np.array(model.sizes)
    jobs_up_to = np.concatenate(([0], np.cumsum(model.size_jobs)))
    fitting = np.maximum(np.searchsorted(sizes, most, side="right"), 1)
    place = random.random(len(request)) * jobs_up_to[fitting]
    wanted = np.minimum(sizes[np.searchsorted(jobs_up_to, place, side="right") - 1], most)
    request = request.copy()
    request[:, core] = np.minimum(request[:, core], wanted)
    units = np.maximum(np.rint(wanted / request[:, core]).astype(np.int64), 1)
    return units, request, units * request[:, core]


def _work(model: SlotModel, processors: IntArray, random: np.random.Generator) -> FloatArray:
    """Work of jobs of these sizes, GFLOP, shape (jobs,)."""
    edges = [part.from_processors for part in model.classes]
    of_class = np.maximum(np.searchsorted(edges, processors, side="right") - 1, 0)
    place, work = random.random(len(processors)), np.empty(len(processors))
    for number, part in enumerate(model.classes):
        of = of_class == number
        logs = np.interp(place[of], QUANTILES, np.log(part.work))
        work[of] = np.exp(logs) * processors[of]
    return work


def _requested(model: SlotModel, runtime_s: IntArray, random: np.random.Generator) -> IntArray:
    """Requested times of jobs of the log that ran about as long, no shorter than the runtimes."""
    if not model.runtimes_s:
        return runtime_s
    row = np.maximum(np.searchsorted(model.runtimes_s, runtime_s, side="right") - 1, 0)
    place = random.random(len(runtime_s))
    requested_s = np.empty_like(runtime_s)
    for number, values in enumerate(model.requested_s):
        of = row == number
        known = np.sort(np.array(values))
        low = np.searchsorted(known, runtime_s[of])
        picked = np.maximum((place[of] * len(known)).astype(np.int64), low)
        chosen = known[np.minimum(picked, len(known) - 1)]
        requested_s[of] = np.maximum(chosen, runtime_s[of])
    return requested_s


class _Progress:
    """How far the hours, weekdays and months are behind the jobs that they should have had."""

    PRIOR = 5.0
    """Jobs that every share begins with, so that the first few decide little."""
    MOST = 3.0
    """Most that the correction may be."""

    def __init__(self) -> None:
        self.wanted = [[self.PRIOR] * count for count in (24, 7, 12)]
        self.made = [[self.PRIOR] * count for count in (24, 7, 12)]

    def correction(self, places: tuple[int, int, int]) -> float:
        """What to multiply the weight of a slot of this hour, weekday and month with."""
        product = 1.0
        for wanted, made, place in zip(self.wanted, self.made, places, strict=True):
            product *= wanted[place] / made[place]
        return min(max(product, 1 / self.MOST), self.MOST)

    def count(self, places: tuple[int, int, int], wanted: float, made: int) -> None:
        """Note the jobs that a slot should have had, and those that it got."""
        for table, number in ((self.wanted, wanted), (self.made, made)):
            for row, place in zip(table, places, strict=True):
                row[place] += number


def _due(model: SlotModel, jobs: int, random: np.random.Generator) -> FloatArray:
    """The times between jobs drawn and added up, 1 in the mean, shape (jobs,)."""
    due = np.cumsum(np.interp(random.random(jobs), QUANTILES, model.gaps))
    # A few jobs may well all come at once.
    return np.asarray(due * (jobs / due[-1]) if due[-1] > 0 else due, dtype=np.float64)


def _spanning(model: SlotModel, due: FloatArray, span_s: float | None) -> IntArray:
    """Submission times from the first to the last of which it takes so long, shape (jobs,).

    Nights, weekends and months make the span of a few jobs depend on the rate in leaps, so the
    rate is approached and the nearest span is kept. Where the quotient of the spans would lead to
    and fro, the next rate lies halfway between those that are known to be too low and too high.
    """
    per_day = model.jobs_per_day
    if span_s is None or len(due) == 1:
        return _submissions(model, due, per_day)
    per_day = len(due) * DAY_S / max(span_s, 1.0)
    best, error = np.empty(0, dtype=np.int64), np.inf
    low, high, last = 0.0, np.inf, np.inf
    for _ in range(SPAN_TRIES):
        submit_s = _submissions(model, due, per_day)
        off = max(float(np.ptp(submit_s)), 1.0) / max(span_s, 1.0)
        if abs(np.log(off)) < error:
            best, error = submit_s, abs(np.log(off))
        if error < SPAN_ERROR:
            break
        low, high = (max(low, per_day), high) if off > 1 else (low, min(high, per_day))
        to_and_fro = 0 < low < high < np.inf and abs(np.log(off)) > last / 2
        last = abs(np.log(off))
        per_day = sqrt(low * high) if to_and_fro else per_day * min(max(off, 0.25), 4.0)
    return best


def _submissions(model: SlotModel, due: FloatArray, per_day: float) -> IntArray:
    """Submission times in seconds from the model's midnight, ascending, shape (jobs,)."""
    jobs = len(due)
    amounts.check_days(jobs, per_day)
    listed = due.tolist()
    days = 10 * (int(jobs / per_day) + 366)
    per_slot = per_day / SLOTS
    slots, submit = np.array(model.slots) / np.mean(model.slots), np.empty(jobs)
    progress, passed, done, day = _Progress(), 0.0, 0, 0
    while done < jobs and day < days:
        noon = np.array([model.start_s + day * DAY_S + DAY_S // 2])
        weekday, month = int(weekday_of(noon)[0]), int(month_of(noon)[0])
        of_day = model.weekdays[weekday] * model.months[month]
        for slot in range(SLOTS):
            places = (slot // 2, weekday, month)
            wanted = per_slot * of_day * float(slots[slot])
            step = wanted * progress.correction(places)
            if step == 0:
                continue
            end = bisect_right(listed, passed + step, done)
            if end > done:
                share = (due[done:end] - passed) / step
                submit[done:end] = day * DAY_S + (slot + share) * SLOT_S
            progress.count(places, wanted, end - done)
            done, passed = end, passed + step
        day += 1
    if done < jobs:
        raise UsageError(
            f"the weights of the model let in {done} of {jobs} jobs in {day:,} days: correct them"
        )
    return np.asarray(np.minimum(submit, day * DAY_S - 1).astype(np.int64), dtype=np.int64)
