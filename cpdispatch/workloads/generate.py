"""Workloads made up by a seeded generator of our own, such as the bundled Eurora sample.

Users submit campaigns: bursts of like jobs of one program, by day rather than by night or at the
weekend. Runtimes are heavy-tailed, alike within a campaign, and requested as people request them:
in round numbers, far too much, often whatever the queue allows.

The same seed gives the same jobs with every version of NumPy: only uniform doubles are drawn
(their stream is fixed for PCG64), and every distribution is an inverse function written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray, sealed
from cpdispatch.errors import UsageError
from cpdispatch.jobs import UNKNOWN, JobTable, Workload, job_block
from cpdispatch.system import NAMED, System
from cpdispatch.workloads import amounts
from cpdispatch.workloads.clock import DAY_S

HOUR_S = 3600
ROUND_TIMES_S = tuple(
    minutes * 60 for minutes in (5, 10, 15, 30, 60, 120, 240, 360, 480, 720, 1440)
)
"""The times that people ask for."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What each unit of a job asks for, by resource type, and how often that is so."""

    weight: float
    request: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobClass:
    """A class of jobs.

    Attributes
    ----------
    name : str
    share : float
        Of all jobs.
    runtime_s_mean : float
        Mean runtime, seconds.
    long_share : float
        Share of its jobs that run for an hour or longer.
    campaign_jobs_mean : float
        Mean number of jobs of a campaign.
    units : tuple of (int, float)
        Numbers of units, and their weights.
    shapes : tuple of Shape
    """

    name: str
    share: float
    runtime_s_mean: float
    long_share: float
    campaign_jobs_mean: float
    units: tuple[tuple[int, float], ...]
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """What is submitted to a system, and when.

    Attributes
    ----------
    name : str
    classes : tuple of JobClass
        Their shares add up to 1.
    queues : tuple of (str, int)
        Names and time limits in seconds, ascending.
    users : int
        The k-th one is k times less active than the first.
    programs : int
        Of each user in each class.
    runtime_s_max : int
        Longest runtime, seconds.
    tail : float
        Exponent of the Pareto law of the runtimes beyond an hour: the smaller, the heavier.
    limit_share, tight_share : float
        Share of the campaigns that ask for whatever their queue allows, and of those that ask
        for too little, so that their longer jobs end at the limit.
    overestimate : float
        The others ask for a uniform multiple from 1 to this of their longest job, rounded up.
    gap_s_mean : float
        Mean time between the jobs of a campaign, seconds.
    hours, days : tuple of float
        Rate of campaigns by hour of the day, and by day of the week from Monday.
    first_day : int
        The day of the week that begins at time 0. Thursday: a few days then hold a weekend.
    """

    name: str
    classes: tuple[JobClass, ...]
    queues: tuple[tuple[str, int], ...]
    users: int = 60
    programs: int = 3
    runtime_s_max: int = 12 * HOUR_S
    tail: float = 1.5
    limit_share: float = 0.4
    tight_share: float = 0.04
    overestimate: float = 6.0
    gap_s_mean: float = 60.0
    hours: tuple[float, ...] = (
        0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.9, 1.3, 1.5, 1.6,
        1.4, 1.4, 1.6, 1.6, 1.6, 1.5, 1.3, 1.0, 0.9, 0.8, 0.7, 0.6,
    )  # fmt: skip
    days: tuple[float, ...] = (1.0, 1.1, 1.1, 1.1, 1.0, 0.6, 0.5)
    first_day: int = 3


EURORA = Mix(
    "eurora",
    (
        JobClass(
            "cpu", 0.246, 49 * 60, 0.25, 2.0,
            ((1, 0.2), (2, 0.25), (4, 0.3), (8, 0.2), (16, 0.05)),
            (
                Shape(0.15, {"core": 4, "mem": 4}),
                Shape(0.2, {"core": 8, "mem": 7}),
                Shape(0.65, {"core": 16, "mem": 14}),
            ),
        ),
        JobClass(
            "gpu", 0.747, 7.4 * 60, 0.022, 10.0,
            ((1, 0.4), (2, 0.25), (4, 0.2), (8, 0.1), (16, 0.05)),
            (
                Shape(0.3, {"core": 1, "gpu": 1, "mem": 2}),
                Shape(0.25, {"core": 4, "gpu": 1, "mem": 4}),
                Shape(0.15, {"core": 8, "gpu": 1, "mem": 7}),
                Shape(0.15, {"core": 2, "gpu": 2, "mem": 4}),
                Shape(0.15, {"core": 16, "gpu": 2, "mem": 14}),
            ),
        ),
        JobClass(
            "mic", 0.007, 56 * 60, 0.34, 3.0,
            ((1, 0.4), (2, 0.3), (4, 0.2), (8, 0.1)),
            (
                Shape(0.6, {"core": 8, "mic": 1, "mem": 7}),
                Shape(0.4, {"core": 16, "mic": 2, "mem": 14}),
            ),
        ),
    ),
    (("debug", 30 * 60), ("parallel", 6 * HOUR_S), ("longpar", 24 * HOUR_S)),
)  # fmt: skip
"""Shares and mean runtimes are the published ones of Eurora; of all jobs, 92 % end in an hour.

References
----------
Shares and mean durations of the CPU, GPU and MIC jobs: the thesis on dispatching by constraint
programming (models.md). Sizes and habits are ours.
"""

KIT = Mix(
    "kit",
    (
        JobClass(
            "cpu", 0.94, 90 * 60, 0.45, 4.0,
            ((1, 0.35), (2, 0.15), (4, 0.15), (8, 0.12), (16, 0.1), (32, 0.08), (64, 0.05)),
            (
                Shape(0.15, {"core": 4, "mem": 12}),
                Shape(0.15, {"core": 10, "mem": 30}),
                Shape(0.7, {"core": 20, "mem": 60}),
            ),
        ),
        JobClass(
            "gpu", 0.06, 60 * 60, 0.25, 3.0,
            ((1, 0.7), (2, 0.2), (4, 0.1)),
            (
                Shape(0.6, {"core": 12, "gpu": 1, "mem": 200}),
                Shape(0.4, {"core": 48, "gpu": 4, "mem": 800}),
            ),
        ),
    ),
    (("develop", HOUR_S), ("normal", 8 * HOUR_S), ("long", 24 * HOUR_S)),
    users=150,
    runtime_s_max=20 * HOUR_S,
    tail=1.1,
)  # fmt: skip
"""A mix of our own for the KIT system: mostly whole thin nodes, few jobs with GPUs."""

MIXES: Mapping[str, Mix] = {mix.name: mix for mix in (EURORA, KIT)}
"""The mixes by name: each is for the named system of that name."""


def eurora_sample(jobs: int = 5000, seed: int = 0) -> Workload:
    """Make the bundled sample: `EURORA` on the system ``eurora`` at a load of 0.8."""
    return generate(EURORA, jobs, seed)


def generate(
    mix: Mix, jobs: int, seed: int = 0, load: float = 0.8, system: System | None = None
) -> Workload:
    """Make a workload of a mix.

    The shares of the classes, their shares of long jobs and their mean runtimes hold to the
    nearest job and second, for any seed, unless there are too few jobs for that.

    Parameters
    ----------
    mix : Mix
    jobs : int
    seed : int
    load : float
        Offered load: what the jobs ask of the most demanded resource type, times their runtime,
        over its capacity times the time from the first to the last submission.
    system : System, optional
        Where they are to run; else the named system of the mix's name.

    Returns
    -------
    Workload
        Its time begins at midnight of the mix's first day.

    Raises
    ------
    UsageError
        When a number is out of range, or a job of the mix could never run on the system.
    """
    amounts.check(jobs, seed, load, least=2)
    system = NAMED[mix.name] if system is None else system
    _check(mix, system)
    draw = _Draw(seed)
    counts = _quotas([kind.share for kind in mix.classes], jobs)
    parts = [
        _class_jobs(mix, kind, position, count, system, draw)
        for position, (kind, count) in enumerate(zip(mix.classes, counts, strict=True))
        if count
    ]
    made = _joined(parts)
    demand = (made.units * made.runtime_s) @ made.request
    has = system.total > 0
    span_s = float(np.max(demand[has] / system.total[has])) / load
    amounts.check_days(jobs, jobs * DAY_S / span_s)
    submit_s = _submissions(mix, made.campaign, span_s, draw)
    return _workload(mix, system, made, submit_s)


# ---------------------------------------------------------------------------------- drawing


class _Draw:
    """Random numbers, all of them made of uniform doubles from one stream."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, count: int) -> FloatArray:
        """From 0 up to, but not including, 1."""
        drawn: FloatArray = self._generator.random(count)
        return drawn

    def choice(self, weights: FloatArray, count: int) -> IntArray:
        """Positions, as often as their weights say."""
        steps = np.cumsum(weights)
        picked = np.searchsorted(steps, self.uniform(count) * steps[-1], side="right")
        return np.asarray(np.minimum(picked, len(weights) - 1), dtype=np.int64)

    def exponential(self, mean: float, count: int) -> FloatArray:
        """Inverse of 1 - exp(-x / mean)."""
        return np.asarray(-mean * np.log1p(-self.uniform(count)), dtype=np.float64)

    def geometric(self, mean: float, count: int) -> IntArray:
        """From 1 on: how often a coin is thrown until it first shows the side of odds 1 / mean."""
        if mean <= 1:
            return np.ones(count, dtype=np.int64)
        throws = np.log1p(-self.uniform(count)) / np.log1p(-1 / mean)
        return np.asarray(1 + np.floor(throws), dtype=np.int64)


def _quotas(shares: list[float], jobs: int) -> list[int]:
    """Whole numbers in these shares that add up to ``jobs``: the largest fractions round up."""
    exact = np.array(shares) * jobs / sum(shares)
    counts = np.floor(exact).astype(np.int64)
    short = jobs - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    return [int(count) for count in counts]


# ------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Columns of jobs in the order of their campaigns."""

    campaign: IntArray
    user: IntArray
    executable: IntArray
    units: IntArray
    request: IntArray
    runtime_s: IntArray
    requested_s: IntArray
    queue: IntArray


def _class_jobs(
    mix: Mix, kind: JobClass, position: int, jobs: int, system: System, draw: _Draw
) -> _Jobs:
    """All jobs of one class."""
    sizes = draw.geometric(kind.campaign_jobs_mean, jobs)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), jobs)) + 1]
    sizes[-1] -= int(sizes.sum()) - jobs
    campaigns = len(sizes)
    campaign = np.repeat(np.arange(campaigns), sizes)
    user = draw.choice(1.0 / np.arange(1, mix.users + 1), campaigns)
    program = draw.choice(np.ones(mix.programs), campaigns)
    habit = draw.uniform(mix.users * mix.programs)[user * mix.programs + program]
    # How long a job runs compared with others of its class: the program, the campaign's input,
    # and a little chance.
    length = (habit + 1.5 * draw.uniform(campaigns))[campaign] + 0.3 * draw.uniform(jobs)
    shapes = np.array(
        [[shape.request.get(name, 0) for name in system.resources] for shape in kind.shapes]
    )
    shape = draw.choice(np.array([shape.weight for shape in kind.shapes]), campaigns)
    unit_counts = np.array([count for count, _ in kind.units])
    units = unit_counts[draw.choice(np.array([weight for _, weight in kind.units]), campaigns)]
    runtime_s, requested_s = _times(mix, kind, campaign, length, draw)
    limits = np.array([limit for _, limit in mix.queues])
    return _Jobs(
        campaign=campaign,
        user=user[campaign],
        executable=((user * len(mix.classes) + position) * mix.programs + program)[campaign],
        units=units[campaign],
        request=shapes[shape][campaign],
        runtime_s=runtime_s,
        requested_s=requested_s[campaign],
        queue=np.searchsorted(limits, requested_s)[campaign],
    )


def _times(
    mix: Mix, kind: JobClass, campaign: IntArray, length: FloatArray, draw: _Draw
) -> tuple[IntArray, IntArray]:
    """Runtimes of the jobs and requested times of the campaigns of one class.

    The tight campaigns come first: their requested times cut runtimes, and the other jobs then
    make up for it, so that the mean of the class holds all the same.
    """
    first = np.flatnonzero(np.diff(campaign, prepend=-1))
    style = draw.uniform(len(first))
    factor = 1 + (mix.overestimate - 1) * draw.uniform(len(first))
    higher = draw.uniform(len(first)) < 0.5

    fixed = np.zeros(len(campaign), dtype=np.int64)
    runtime_s = _runtimes(mix, kind, length, fixed)
    longest_s = np.maximum.reduceat(runtime_s, first)
    ladder = np.array(ROUND_TIMES_S)
    below = np.maximum(np.searchsorted(ladder, longest_s, side="right") - 1, 0)
    tight = style < mix.tight_share
    of_tight = tight[campaign]
    fixed[of_tight] = np.minimum(runtime_s, ladder[below][campaign])[of_tight]

    runtime_s = _runtimes(mix, kind, length, fixed)
    longest_s = np.maximum.reduceat(runtime_s, first)
    limits = np.array([limit for _, limit in mix.queues])
    lowest = np.searchsorted(limits, longest_s)
    # Half of those who do not care about the time do not care about the queue either.
    careless = limits[np.minimum(lowest + higher, len(limits) - 1)]
    last = len(ladder) - 1
    careful = ladder[np.minimum(np.searchsorted(ladder, longest_s * factor), last)]
    requested_s = np.where(style < mix.tight_share + mix.limit_share, careless, careful)
    return runtime_s, np.where(tight, ladder[below], requested_s)


def _runtimes(mix: Mix, kind: JobClass, length: FloatArray, fixed: IntArray) -> IntArray:
    """Runtimes in the order of ``length``: an even spread over the class' distribution.

    The k-th of n jobs gets the (k + 1/2) / n quantile, so that the distribution itself is not
    left to chance. The long jobs follow `_long_times`, the others a log-logistic law (exponent
    1.2) cut at an hour, whose scale is the one with which the mean of the class comes out.
    Runtimes in ``fixed`` that are not 0 stay.
    """
    jobs = len(length)
    rank = np.empty(jobs, dtype=np.int64)
    rank[np.argsort(length, kind="stable")] = np.arange(jobs)
    long_jobs = round(kind.long_share * jobs)
    short_jobs = jobs - long_jobs
    short = rank < short_jobs
    u_short = (rank[short] + 0.5) / max(short_jobs, 1)
    u_long = (rank[~short] - short_jobs + 0.5) / max(long_jobs, 1)
    runtime = np.empty(jobs)
    runtime[~short] = _long_times(mix, u_long)
    low, high = 0.0, 10.0 * HOUR_S
    for _ in range(50):  # bisection: the mean grows with the scale
        scale = (low + high) / 2
        cut = u_short / (1 + (scale / HOUR_S) ** 1.2)
        runtime[short] = np.maximum(scale * (cut / (1 - cut)) ** (1 / 1.2), 1)
        seconds = np.where(fixed > 0, fixed, np.rint(runtime))
        if seconds.mean() > kind.runtime_s_mean:
            high = scale
        else:
            low = scale
    return seconds.astype(np.int64)


def _long_times(mix: Mix, share: FloatArray) -> FloatArray:
    """Quantiles of a Pareto law from an hour to the longest runtime."""
    kept = 1 - (HOUR_S / mix.runtime_s_max) ** mix.tail
    times: FloatArray = HOUR_S * (1 - share * kept) ** (-1 / mix.tail)
    return times


def _submissions(mix: Mix, campaign: IntArray, span_s: float, draw: _Draw) -> IntArray:
    """Submission times: campaigns begin at the rate of the hour, their jobs follow closely."""
    hours = np.arange(int(span_s // HOUR_S) + 2) + 24 * mix.first_day
    rate = np.array(mix.hours)[hours % 24] * np.array(mix.days)[hours // 24 % 7]
    begun = np.concatenate(([0.0], np.cumsum(rate)))
    edges = np.arange(len(begun)) * float(HOUR_S)
    count = int(campaign[-1]) + 1
    share = draw.uniform(count) * np.interp(span_s, edges, begun)
    start = np.interp(share, begun, edges)
    gaps = np.cumsum(draw.exponential(mix.gap_s_mean, len(campaign)))
    first = np.flatnonzero(np.diff(campaign, prepend=-1))
    submit = start[campaign] + gaps - gaps[first][campaign]
    # The last campaign may end a little after the span, the first begin after its start.
    submit = np.rint((submit - submit.min()) * (span_s / np.ptp(submit)))
    return np.asarray(submit, dtype=np.int64)


def _joined(parts: list[_Jobs]) -> _Jobs:
    offsets = np.cumsum([0, *(int(part.campaign[-1]) + 1 for part in parts)])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in _Jobs.__dataclass_fields__
    }
    columns["campaign"] = np.concatenate(
        [part.campaign + offset for part, offset in zip(parts, offsets[:-1], strict=True)]
    )
    return _Jobs(**columns)


def _workload(mix: Mix, system: System, made: _Jobs, submit_s: IntArray) -> Workload:
    order = np.argsort(submit_s, kind="stable")
    users = tuple(f"u{number:03}" for number in range(1, mix.users + 1))
    executables = tuple(
        f"{user}-{kind.name}-{program}"
        for user in users
        for kind in mix.classes
        for program in range(1, mix.programs + 1)
    )
    block = job_block(
        id=np.arange(1, len(order) + 1),
        submit_s=submit_s[order],
        units=made.units[order],
        requested_s=made.requested_s[order],
        request=made.request[order],
        user=made.user[order],
        queue=made.queue[order],
        executable=made.executable[order],
    )
    labels = {
        "user": users,
        "queue": tuple(name for name, _ in mix.queues),
        "executable": executables,
    }
    unknown = sealed(np.full(len(order), UNKNOWN, dtype=np.int64))
    return Workload(
        name=f"{mix.name}-sample",
        resources=system.resources,
        table=JobTable(block, labels),
        runtime_s=sealed(made.runtime_s[order]),
        preceding=unknown,
        think_s=unknown,
        memory_unit_kb=system.memory_unit_kb,
    )


def _check(mix: Mix, system: System) -> None:
    long_s = float(_long_times(mix, (np.arange(1000) + 0.5) / 1000).mean())
    for kind in mix.classes:
        others_s = kind.runtime_s_mean - kind.long_share * long_s
        if not 0 < others_s < 0.9 * HOUR_S * (1 - kind.long_share):
            raise UsageError(
                f"the {kind.name} jobs of the mix {mix.name} cannot run {kind.runtime_s_mean} s on "
                f"average: those of an hour or more run {long_s:.0f} s, and are a share of "
                f"{kind.long_share}"
            )
        most = max(count for count, _ in kind.units)
        for shape in kind.shapes:
            names = [name for name, amount in shape.request.items() if amount > 0]
            lacking = [name for name in names if name not in system.resources]
            if lacking:
                raise UsageError(
                    f"the mix {mix.name} asks for {lacking[0]}, which {system.name} has not"
                )
            asked = np.array([[shape.request.get(name, 0) for name in system.resources]])
            places = int(system.room(asked)[0])
            if places < most:
                raise UsageError(
                    f"{system.name} has room for {places} units of {dict(shape.request)}, and jobs "
                    f"of the mix {mix.name} have up to {most}"
                )
