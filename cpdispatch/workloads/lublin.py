"""The workload model of Lublin and Feitelson, with its published parameters.

A job is serial, or its size is 2 to the power of a number drawn from one of two adjoining
intervals, rounded to a power of two more often than not. The logarithm of its runtime comes from
one of two gamma distributions, the longer one the more often the larger the job is. The
logarithm of the time between two jobs is gamma distributed as well; that time passes faster or
slower through the 48 half hours of a day, in proportion to the jobs that arrive in each.

References
----------
U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the
characteristics of rigid jobs", Journal of Parallel and Distributed Computing 63 (2003). The
parameters are those of the authors' program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import lgamma, log, log2

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray, sealed
from cpdispatch.errors import UsageError, unknown
from cpdispatch.jobs import UNKNOWN, JobTable, Workload, job_block
from cpdispatch.workloads import amounts
from cpdispatch.workloads.clock import DAY_S, SLOT_S, SLOTS

PROCESSORS, PROCESSORS_MIN, PROCESSORS_MAX = 256, 8, 2**30
"""Of the machine: usual, least and most."""
REQUEST_FACTOR_MAX = 1000
LOG_RUNTIME_MAX = 12.0
"""Logarithm of the longest runtime in seconds, 162,754 s."""
LOG_GAP_MAX = 13.0
"""Logarithm of the longest time between two jobs in seconds, as counted at the mean rate."""
FIRST_SLOT = 11
"""Number of the half hour (from 1) at which the day of the arrival cycle begins."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of one kind of jobs.

    Attributes
    ----------
    serial, power_of_two : float
        Shares of the serial jobs and of those whose size is made a power of two.
    size_low : float
        Logarithm (base 2) of the smallest parallel size; 0.2 more or less than 1 makes size 2
        rarer or more frequent.
    size_medium_below, size_high_below : float
        How far below the logarithm of the machine's processors the two intervals meet, and end.
    size_low_share : float
        Share of the lower interval.
    runtime_1, runtime_2 : (float, float)
        Shape and scale of the two gamma distributions of the logarithm of the runtime.
    runtime_slope, runtime_intercept : float
        The share of the first one is slope x processors + intercept, cut to [0, 1].
    gap : (float, float)
        Shape and scale of the gamma distribution of the logarithm of the time between two jobs,
        in the rush hours.
    gap_rush_to_all : float
        What the shape is multiplied with to make it that of all hours.
    cycle : (float, float)
        Shape and scale of the gamma distribution of the arrivals over the half hours of the day.
    """

    serial: float
    power_of_two: float
    size_low: float
    size_medium_below: float
    size_high_below: float
    size_low_share: float
    runtime_1: tuple[float, float]
    runtime_2: tuple[float, float]
    runtime_slope: float
    runtime_intercept: float
    gap: tuple[float, float]
    gap_rush_to_all: float
    cycle: tuple[float, float]


BATCH = Parameters(
    0.2927, 0.6686, 1.2, 2.0, 0.0, 0.875, (6.57, 0.823), (639.1, 0.0156), -0.003, 0.6986,
    (6.0415, 0.8531), 1.0519, (6.1271, 5.2740),
)  # fmt: skip
INTERACTIVE = Parameters(
    0.1541, 0.625, 1.0, 4.0, 1.5, 0.705, (3.8351, 0.6605), (7.073, 0.6856), -0.0118, 0.9156,
    (6.5510, 0.6621), 0.9797, (8.9186, 3.6680),
)  # fmt: skip
ALL = Parameters(
    0.244, 0.576, 0.8, 2.5, 0.0, 0.86, (4.2, 0.94), (312.0, 0.03), -0.0054, 0.78,
    (10.2303, 0.4871), 1.0225, (8.1737, 3.9631),
)  # fmt: skip

KINDS: Mapping[str, Mapping[str, Parameters]] = {
    "all": {"": ALL},
    "batch": {"batch": BATCH},
    "interactive": {"interactive": INTERACTIVE},
    "both": {"interactive": INTERACTIVE, "batch": BATCH},
}
"""Queues and parameters of what `generate` can make.

``all`` has one set of parameters for the jobs of both kinds together, ``both`` one stream of jobs
for each of them.
"""


def generate(
    jobs: int,
    seed: int = 0,
    *,
    processors: int = 256,
    kind: str = "all",
    load: float | None = None,
    request_factor: float = 1.0,
    streams: Mapping[str, Parameters] | None = None,
) -> Workload:
    """Make a workload of the model.

    Parameters
    ----------
    jobs : int
    seed : int
    processors : int
        Size of the machine.
    kind : {"all", "batch", "interactive", "both"}
        See `KINDS`.
    load : float, optional
        Offered load, processors x runtime of all jobs over the machine's processors x the time
        from the first to the last arrival; the times between jobs are scaled to it. Without it
        they are the model's.
    request_factor : float
        The model has no requested times: they are the runtimes times this factor, from
        1 to 1000, rounded up. With 1, the default, dispatchers know the runtimes.
    streams : mapping of queue name to Parameters, optional
        Parameters of your own, instead of those of ``kind``.

    Returns
    -------
    Workload
        Each unit is one processor. Its time begins at midnight.

    Raises
    ------
    UsageError
        When a number is out of range or there is no such kind.
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    amounts.check(jobs, seed, load)
    if not 1 <= request_factor <= REQUEST_FACTOR_MAX:
        raise UsageError(
            f"request factor {request_factor:g}: a number from 1 to {REQUEST_FACTOR_MAX} is needed"
        )
    if not PROCESSORS_MIN <= processors <= PROCESSORS_MAX:
        raise UsageError(
            f"{processors} processors: the model is for {PROCESSORS_MIN} to {PROCESSORS_MAX}"
        )
    random = np.random.Generator(np.random.PCG64(seed))
    chosen = KINDS[kind] if streams is None else streams
    drawn = [_stream(given, jobs, processors, random) for given in chosen.values()]
    arrival_s, sizes, runtime_s, stream = _first(chosen, drawn, jobs, load, processors)
    queues = tuple(chosen)
    named = all(queues)
    block = job_block(
        id=np.arange(1, jobs + 1),
        submit_s=arrival_s.astype(np.int64),
        units=sizes,
        requested_s=np.ceil(runtime_s * request_factor).astype(np.int64),
        request=np.ones((jobs, 1), dtype=np.int64),
        queue=stream if named else UNKNOWN,
    )
    missing = sealed(np.full(jobs, UNKNOWN, dtype=np.int64))
    return Workload(
        name=f"lublin-{processors}",
        resources=("core",),
        table=JobTable(block, {"queue": queues} if named else None),
        runtime_s=sealed(runtime_s),
        preceding=missing,
        think_s=missing,
        processors=processors,
        per_processor=True,
    )


_Drawn = tuple[FloatArray, IntArray, IntArray]
"""Points of the arrivals, sizes in processors and runtimes in seconds, shape (jobs,) each."""


def _first(
    chosen: Mapping[str, Parameters],
    drawn: list[_Drawn],
    jobs: int,
    load: float | None,
    processors: int,
) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
    """Arrivals (s), sizes, runtimes (s) and streams of the first jobs of all streams, in order."""
    sizes, runtime_s = (np.concatenate([part[k] for part in drawn]) for k in (1, 2))
    stream = np.repeat(np.arange(len(drawn)), jobs)

    def arrivals(factor: float) -> FloatArray:
        parts = zip(chosen.values(), drawn, strict=True)
        return np.concatenate([_time(given, part[0] * factor) for given, part in parts])

    arrival_s = arrivals(1.0)
    order = np.argsort(arrival_s, kind="stable")[:jobs]
    if load is not None:
        span_s = float(sizes[order] @ runtime_s[order]) / (processors * load)
        amounts.check_days(jobs, jobs * DAY_S / span_s)
        over = np.ptp if jobs > 1 else np.max
        arrival_s = arrivals(_factor(lambda factor: float(over(arrivals(factor)[order])), span_s))
        order = order[np.argsort(arrival_s[order], kind="stable")]
    return arrival_s[order], sizes[order], runtime_s[order], stream[order]


def _factor(last_s: Callable[[float], float], span_s: float) -> float:
    """Where a time of arrivals, which grows with the factor, comes to ``span_s``: by bisection."""
    low, high = 0.0, 1.0
    while last_s(high) < span_s:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if last_s(middle) > span_s else (middle, high)
    return high


def _stream(given: Parameters, jobs: int, processors: int, random: np.random.Generator) -> _Drawn:
    """Draw the jobs of one stream."""
    shape, scale = given.gap
    gap_s = np.exp(_gamma((shape * given.gap_rush_to_all, scale), LOG_GAP_MAX, jobs, random))
    points = np.cumsum(gap_s / SLOT_S)
    sizes = _sizes(given, jobs, processors, random)
    first = np.clip(given.runtime_slope * sizes + given.runtime_intercept, 0, 1)
    of_first = random.random(jobs) <= first
    logs = np.where(
        of_first,
        _gamma(given.runtime_1, LOG_RUNTIME_MAX, jobs, random),
        _gamma(given.runtime_2, LOG_RUNTIME_MAX, jobs, random),
    )
    return points, sizes, np.exp(logs).astype(np.int64)


def _sizes(given: Parameters, jobs: int, processors: int, random: np.random.Generator) -> IntArray:
    high = log2(processors) - given.size_high_below
    medium = max(log2(processors) - given.size_medium_below, given.size_low)
    kind, interval, place = random.random((3, jobs))
    lower = interval <= given.size_low_share
    low, top = np.where(lower, given.size_low, medium), np.where(lower, medium, high)
    logs = low + place * (top - low)
    power = kind <= given.serial + given.power_of_two
    logs = np.where(power, np.floor(logs + 0.5), logs)
    sizes = np.floor(2.0**logs + 0.5).astype(np.int64)
    return np.where(kind <= given.serial, 1, np.minimum(sizes, processors))


def _gamma(
    shape_scale: tuple[float, float], most: float, count: int, random: np.random.Generator
) -> FloatArray:
    """Gamma variates, those above ``most`` drawn again."""
    values = random.gamma(*shape_scale, count)
    while (above := np.flatnonzero(values > most)).size:
        values[above] = random.gamma(*shape_scale, above.size)
    return values


def weights(cycle: tuple[float, float]) -> FloatArray:
    """Arrivals in each half hour of the day from midnight, 1 in the mean, shape (48,)."""
    shape, scale = cycle
    nodes, factors = np.polynomial.legendre.leggauss(16)
    number = np.arange(FIRST_SLOT, FIRST_SLOT + SLOTS)
    place = (number[:, None] + nodes / 2) / scale
    density = np.exp((shape - 1) * np.log(place) - place - lgamma(shape) - log(scale))
    found = np.empty(SLOTS)
    found[(number - 1) % SLOTS] = density @ factors / 2
    return np.asarray(found / found.mean(), dtype=np.float64)


def _time(given: Parameters, points: FloatArray) -> FloatArray:
    """When the points have been paid, in seconds: each half hour takes as many as its weight."""
    paid = np.concatenate(([0.0], np.cumsum(weights(given.cycle))))
    days, rest = np.divmod(points, paid[-1])
    slot = days * SLOTS + np.interp(rest, paid, np.arange(SLOTS + 1.0))
    return np.asarray(slot * SLOT_S, dtype=np.float64)
