"""What every predictor keeps to, as rules that run on any: one of the package, or your own.

::

    @pytest.mark.parametrize("rule", RULES)
    def test_my_predictor_conforms(rule: str) -> None:
        check(lambda workload: Mine(), rule)

Predictors go through a small generated log in which every job starts some time after its
submission, and see what they would see in a simulation: `predict` at submissions, `learn` at ends,
`start` and `refresh` where they have them.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple, TypeVar

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.errors import CpdispatchError, unknown
from cpdispatch.jobs import UNKNOWN, JobTable, Workload, job_block
from cpdispatch.predict import Predictor, Refreshing, Watching

Make = Callable[[Workload], Predictor]
START, END, SUBMIT, RUNS = range(4)
"""Kinds of events, in the order of those of one instant."""
_SOME, _MANY, _MORE = 300, 50_000, 15_000
_Any = TypeVar("_Any")


class ConformanceError(CpdispatchError, AssertionError):
    """A predictor breaks a rule: which, and by what."""


class Event(NamedTuple):
    """Something that a predictor may see."""

    time: int
    kind: int
    row: int
    """Row of the job in the log."""
    value: int
    """What comes with the job: the time, its runtime when it ends, how long it has run, in s."""


def check(make: Make, *rules: str) -> None:
    """Run rules on a predictor.

    Parameters
    ----------
    make : callable
        Makes a predictor that has learned nothing, for a workload; every rule calls it anew.
    *rules : str
        Names in `RULES`; all of them when none is given.

    Raises
    ------
    ConformanceError
        When a rule is broken, or the predictor raises.
    UsageError
        When there is no rule of a name.
    """
    for name in rules or RULES:
        if name not in RULES:
            raise unknown("rule", name, RULES)
        try:
            RULES[name](make)
        except ConformanceError as error:
            raise ConformanceError(f"rule {name}: {error}") from None
        except Exception as error:
            raise ConformanceError(f"rule {name}: it raised {error!r}") from error


def sample(jobs: int = _SOME, seed: int = 0) -> Workload:
    """A log of users who repeat themselves and some who are unknown; runtimes from 0 on."""
    draw = np.random.default_rng(seed)
    requested_s = draw.choice([60, 600, 3600, 36000], jobs)
    return _workload(
        np.sort(draw.integers(0, 40 * jobs, jobs)),
        requested_s,
        (requested_s * draw.choice([0, 0.01, 0.1, 0.5, 0.95, 1, 1.2], jobs)).astype(np.int64),
        units=draw.integers(1, 65, jobs),
        user=draw.integers(UNKNOWN, 8, jobs),
        queue=draw.integers(UNKNOWN, 3, jobs),
        executable=draw.integers(UNKNOWN, 5, jobs),
    )


def events(workload: Workload) -> list[Event]:
    """What happens to the jobs of a log; jobs that run are asked about now and then."""
    draw = np.random.default_rng(len(workload))
    submit_s, runtime_s = workload.table.submit_s, workload.runtime_s
    start_s = submit_s + draw.integers(1, 5000, len(workload))
    end_s = start_s + runtime_s
    columns = [
        (start_s, START, start_s),
        (end_s, END, runtime_s),
        (submit_s, SUBMIT, submit_s),
        *((start_s + after, RUNS, 0 * start_s + after) for after in (30, 300, 3000)),
    ]
    return sorted(
        Event(time, kind, row, value)
        for times, kind, values in columns
        for row, (time, value) in enumerate(zip(times.tolist(), values.tolist(), strict=True))
        if kind != RUNS or time < end_s[row]
    )


def drive(predictor: Predictor, workload: Workload, seen: Iterable[Event]) -> list[float]:
    """The predictor's answers as it goes through these events."""
    answers = []
    for _, kind, row, value in seen:
        job = workload.table[row]
        if kind == SUBMIT:
            answers.append(predictor.predict(job, value))
        elif kind == END:
            predictor.learn(job, value)
        elif kind == START and isinstance(predictor, Watching):
            predictor.start(job, value)
        elif kind == RUNS and isinstance(predictor, Refreshing):
            answers.append(predictor.refresh(job, value))
    return answers


def _labels(make: Make) -> None:
    """What it says at a moment does not depend on runtimes of jobs that have not ended by then."""
    workload = sample()
    happens = events(workload)
    end_s = np.zeros(len(workload), dtype=np.int64)
    for event in happens:
        if event.kind == END:
            end_s[event.row] = event.time
    for now in np.quantile(workload.table.submit_s, (0, 0.3, 0.6, 1)).astype(np.int64).tolist():
        started_s = end_s - workload.runtime_s
        later = np.maximum(now, started_s) - started_s + 7 * workload.table.requested_s
        other = replace(workload, runtime_s=np.where(end_s > now, later, workload.runtime_s))
        said = [
            drive(make(log), log, (event for event in events(log) if event.time <= now))
            for log in (workload, other)
        ]
        _same(f"runtimes of jobs that end after {now} s change what it said until then", *said)


def _pure(make: Make) -> None:
    """To be asked changes nothing: neither twice, nor about other jobs, nor about running ones."""
    workload = sample()
    happens = events(workload)
    asked, plain = make(workload), make(workload)
    draw = np.random.default_rng(0)
    for event in happens:
        said = [drive(each, workload, [event]) for each in (plain, asked)]
        _same(f"to be asked about other jobs until {event.time} s changed what it says", *said)
        job = workload.table[event.row]
        if event.kind == SUBMIT:
            twice = [asked.predict(job, event.time) for _ in range(2)]
            _same(f"asked twice about job {job.id} it gave two answers", twice[:1], twice[1:])
        for row in draw.integers(0, len(workload), 2).tolist():
            asked.predict(workload.table[row], event.time)
            if isinstance(asked, Refreshing) and event.kind == RUNS:
                asked.refresh(job, event.value)


def _cold(make: Make) -> None:
    """It says something of every job before it has learned anything."""
    workload = sample()
    predictor = make(workload)
    _finite([predictor.predict(job, job.submit_s) for job in workload.table])


def _unknown(make: Make) -> None:
    """It does with logs in which user, queue, name and all else that may be missing is missing."""
    known = sample()
    table = known.table
    bare = _workload(table.submit_s, table.requested_s, known.runtime_s, units=table.units)
    for workload in (known, bare):
        _finite(drive(make(workload), workload, events(workload)))


def _copies(make: Make) -> None:
    """A deep copy and a pickled one go on as the original does, and do not disturb it."""
    workload = sample()
    happens = events(workload)
    half = len(happens) // 2
    alone, original = make(workload), make(workload)
    drive(alone, workload, happens[:half])
    drive(original, workload, happens[:half])
    expected = drive(alone, workload, happens[half:])
    for how, duplicate in (("a deep copy", copy.deepcopy), ("a pickled copy", _pickled)):
        said = drive(duplicate(original), workload, happens[half:])
        _same(f"{how} goes on otherwise than the original", expected, said)
    said = drive(original, workload, happens[half:])
    _same("what its copies learned changed the original", expected, said)


def _bounded(make: Make) -> None:
    """Ever new users and names fill no memory without end, nor do jobs that never end."""
    jobs = _MANY + _MORE
    new = np.arange(jobs) + 10**6
    workload = _workload(
        new, np.full(jobs, 600), new % 600, units=new % 64 + 1, user=new, queue=new, executable=new
    )
    predictor = make(workload)
    watching = predictor if isinstance(predictor, Watching) else None
    sizes = []
    for rows in (range(_MANY), range(_MANY, jobs)):
        for row in rows:
            job = workload.table[row]
            predictor.predict(job, job.submit_s)
            if watching is not None:
                watching.start(job, job.submit_s)
            if row % 3:
                predictor.learn(job, row % 600)
        sizes.append(len(pickle.dumps(predictor)))
    if sizes[1] > 1.03 * sizes[0]:
        raise ConformanceError(
            f"pickled, it has {sizes[0]:,} bytes after {_MANY:,} jobs of as many users and "
            f"{sizes[1]:,} after {jobs:,}"
        )


def _seeded(make: Make) -> None:
    """Made twice in the same way, it says the same twice."""
    workload = sample()
    happens = events(workload)
    said = [drive(make(workload), workload, happens) for _ in range(2)]
    _same("two predictors made in the same way say different things", *said)


RULES: Mapping[str, Callable[[Make], None]] = {
    "labels": _labels,
    "pure": _pure,
    "cold": _cold,
    "unknown": _unknown,
    "copies": _copies,
    "bounded": _bounded,
    "seeded": _seeded,
}
"""What a predictor keeps to, by name: no label before the job's end, pure predictions, cold start,
missing users and names, deep copies and pickling, bounded memory, same seed same answers."""


def _workload(
    submit_s: IntArray, requested_s: IntArray, runtime_s: IntArray, **columns: IntArray
) -> Workload:
    jobs = len(submit_s)
    none = np.full(jobs, UNKNOWN, dtype=np.int64)
    block = job_block(
        id=np.arange(1, jobs + 1), submit_s=submit_s, requested_s=requested_s,
        request=np.ones((jobs, 1), dtype=np.int64), **columns,
    )  # fmt: skip
    return Workload("conformance", ("core",), JobTable(block), runtime_s, none, none.copy())


def _same(problem: str, expected: Sequence[float], said: Sequence[float]) -> None:
    if list(expected) != list(said):
        first = next(
            (pair for pair in zip(expected, said, strict=False) if pair[0] != pair[1]), None
        )
        raise ConformanceError(problem + ("" if first is None else f": {first[0]}, {first[1]}"))


def _finite(said: Iterable[float]) -> None:
    for answer in said:
        if not 0 <= answer < inf:
            raise ConformanceError(f"it said {answer}, which is not a duration")


def _pickled(value: _Any) -> _Any:
    copied: _Any = pickle.loads(pickle.dumps(value))
    return copied
