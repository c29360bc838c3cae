"""From a log as its file states it to a workload that can be run: filters, repairs, counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cpdispatch.access.spread import ON_FIRST
from cpdispatch.arrays import IntArray, compact
from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import (
    ANYHOW,
    ANYWHERE,
    FREE,
    LABELLED,
    UNKNOWN,
    Access,
    Column,
    JobTable,
    Spread,
    Terms,
    Workload,
)
from cpdispatch.system import USUAL_TIER

FILTERS = ("all", "strong", "drop")

SIZE_UNKNOWN = "dropped: size unknown"
TOO_LARGE = "dropped: larger than the machine"
RUNTIME_UNKNOWN = "dropped: runtime unknown"
RUNTIME_ZERO = "dropped: runtime zero or unknown"
REQUEST_UNKNOWN = "dropped: requested time unknown"
SUBMIT_UNKNOWN = "dropped: submit time unknown"
NOTHING_ASKED = "dropped: asks for no resource"
SIZE_COPIED = "repaired: requested or allocated size missing, the other stands in"
REQUEST_COPIED = "repaired: requested time missing, the runtime stands in"
RUNTIME_EXCEEDS = "dropped: runtime exceeds the requested time"
RUNTIME_CUT = "repaired: runtime cut at the requested time"
ROUNDED = "repaired: fraction rounded to a whole number"
UNSORTED = "repaired: submitted before a job ahead of it, sorted"
RENUMBERED = "repaired: job id missing or taken, renumbered"

BoolArray = NDArray[np.bool_]


class NoJobError(InputError):
    """A log has no job, or none that the filter leaves; ``notes`` count those that it had."""

    notes: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class RawLog:
    """A log in the order of its file, columns of shape (jobs,); a value of -1 is unknown."""

    path: Path
    """Where it was read; names the workload and stands in errors."""
    id: IntArray
    submit_s: IntArray
    runtime_s: IntArray
    requested_s: IntArray
    units: IntArray
    allocated: IntArray
    """Units asked for and, where the log tells it apart, units that the job got."""
    cores: IntArray | int
    """Cores of each unit: what the filters `strong` and `drop` compare with the machine's
    processors.
    """
    request: Mapping[str, IntArray | int]
    """What each unit asks for, in the order of the resource types."""
    named: Mapping[str, IntArray]
    """The columns user, group, queue, executable, partition that the log has."""
    preceding: IntArray
    think_s: IntArray
    rounded: BoolArray | None = None
    """Jobs of which a fraction was rounded."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    processors: int | None = None
    header: tuple[str, ...] = ()
    memory_unit_kb: int | None = None
    per_processor: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)
    """What the reader left out or repaired: rule -> number of jobs."""
    restartable: IntArray | None = None
    """1 for jobs that may be restarted, else 0; None where the log does not say."""
    priority: IntArray | None = None
    """The site's priority of each job, higher first."""
    access: tuple[Access, ...] = (ANYWHERE,)
    access_of: IntArray | None = None
    """Where jobs ask to run, as in `Workload`."""
    terms: tuple[Terms, ...] = (FREE,)
    terms_of: IntArray | None = None
    """What else decides how many jobs may run at once, as in `Workload`."""
    begin_s: IntArray | None = None
    """When each job may start at the earliest; -1 for at once."""
    spread: tuple[Spread, ...] = (ANYHOW,)
    spread_of: IntArray | None = None
    """How the units of jobs lie on nodes, as in `Workload`."""


def log_name(path: str | os.PathLike[str]) -> str:
    """Name of the log in a file: ``KTH-SP2-1996-2`` for ``.../KTH-SP2-1996-2.swf.gz``."""
    path = Path(path)
    if path.suffix in {".gz", ".xz", ".zst"}:
        path = path.with_suffix("")
    return path.stem


def clean(raw: RawLog, filter: str = "all", processors: int | None = None) -> Workload:
    """Drop what cannot be run, repair what can, count both by rule, and sort by submission.

    Parameters
    ----------
    filter : {"all", "strong", "drop"}
        `all` keeps every job whose size, runtime and submission are known. `strong` also drops
        jobs larger than the machine, without a requested time or with a runtime of 0, and cuts
        runtimes at the requested time. `drop` does the same, but drops the jobs whose runtime
        exceeds the requested time. Its other rules are those of `strong`, since a job needs a
        size that fits, a runtime and a requested time under either; with them the published
        mean wait of the order SQF-SQF on CTC-SP2 comes out to the second.
    processors : int, optional
        Size of the machine for `strong` and `drop`; else the log must state it.

    Raises
    ------
    UsageError
        When the filter is unknown.
    InputError
        When the size of the machine is needed and unknown, or no job is left.

    References
    ----------
    `strong`: Gaussier, Glesser, Reis, Trystram, "Improving backfilling by using machine learning
    to predict running times", SC'15. `drop`: Lelong, Reis, Trystram, "Tuning EASY-Backfilling
    Queues", JSSPP 2017, section 7.2.
    """
    if filter not in FILTERS:
        raise UsageError(f"unknown filter {filter!r}: {', '.join(FILTERS[:-1])} or {FILTERS[-1]}")
    jobs = _Sieve(len(raw.id))
    jobs.notes.update(raw.notes)
    if filter != "all":
        _published(raw, jobs, processors, filter)
    else:
        _all(raw, jobs)
    of_units = (ask for name, ask in raw.request.items() if not name.startswith(ON_FIRST))
    asked = sum((np.asarray(ask) > 0 for ask in of_units), start=np.False_)
    jobs.drop(NOTHING_ASKED, ~np.broadcast_to(asked, jobs.keep.shape))
    if raw.rounded is not None:
        jobs.repaired(ROUNDED, raw.rounded)
    positions = np.flatnonzero(jobs.keep)
    if not len(positions):
        raise _empty(raw, filter, jobs.notes)
    id = _numbered(raw.id[positions].astype(np.int64), jobs)
    submit_s = raw.submit_s[positions]
    late = submit_s < np.maximum.accumulate(submit_s)
    if late.any():
        jobs.notes[UNSORTED] = int(np.count_nonzero(late))
    # Of jobs that are submitted in one second, that with the least id comes first everywhere.
    if late.any() or ((np.diff(submit_s) == 0) & (np.diff(id) < 0)).any():
        order = np.lexsort((id, submit_s))
        positions, id = positions[order], id[order]
    return _workload(raw, positions, id, jobs.notes)


class _Sieve:
    """Which jobs are left, and how many each rule dropped or repaired."""

    def __init__(self, jobs: int) -> None:
        self.keep: BoolArray = np.ones(jobs, dtype=np.bool_)
        self.notes: dict[str, int] = {}

    def drop(self, rule: str, which: BoolArray) -> None:
        """Drop jobs; each is counted by the first rule that drops it."""
        self.repaired(rule, which)
        self.keep &= ~which

    def repaired(self, rule: str, which: BoolArray) -> None:
        """Count jobs that are still in and that were repaired."""
        count = int(np.count_nonzero(which & self.keep))
        if count:
            self.notes[rule] = count


def _all(raw: RawLog, jobs: _Sieve) -> None:
    jobs.drop(SIZE_UNKNOWN, (raw.units <= 0) & (raw.allocated <= 0))
    jobs.drop(RUNTIME_UNKNOWN, raw.runtime_s < 0)
    jobs.drop(SUBMIT_UNKNOWN, raw.submit_s < 0)
    _copy_size(raw, jobs, raw.units <= 0)
    missing = raw.requested_s <= 0
    jobs.repaired(REQUEST_COPIED, missing)
    # Nobody can ask for no time at all: a job of 0 s is taken to have asked for 1 s.
    raw.requested_s = np.where(missing, np.maximum(raw.runtime_s, 1), raw.requested_s)


def _published(raw: RawLog, jobs: _Sieve, processors: int | None, filter: str) -> None:
    machine = raw.processors if processors is None else processors
    if machine is None:
        raise InputError(
            f"the filter `{filter}` needs the size of the machine, and the log does not state it",
            file=raw.path,
            advice="give --system",
        )
    # As floats, since absurd numbers must not overflow into harmless ones.
    size = np.maximum(raw.allocated, raw.units).astype(np.float64) * raw.cores
    jobs.drop(TOO_LARGE, size > machine)
    jobs.drop(SIZE_UNKNOWN, (raw.units <= 0) & (raw.allocated <= 0))
    jobs.drop(RUNTIME_ZERO, raw.runtime_s <= 0)
    jobs.drop(REQUEST_UNKNOWN, raw.requested_s <= 0)
    jobs.drop(SUBMIT_UNKNOWN, raw.submit_s < 0)
    exceeds = raw.runtime_s > raw.requested_s
    if filter == "drop":
        jobs.drop(RUNTIME_EXCEEDS, exceeds)
    _copy_size(raw, jobs, (raw.units <= 0) | (raw.allocated <= 0))
    jobs.repaired(RUNTIME_CUT, exceeds)
    raw.runtime_s = np.minimum(raw.runtime_s, raw.requested_s)


def _copy_size(raw: RawLog, jobs: _Sieve, copied: BoolArray) -> None:
    jobs.repaired(SIZE_COPIED, copied)
    raw.units = np.where(raw.units > 0, raw.units, raw.allocated)


def _numbered(id: IntArray, jobs: _Sieve) -> IntArray:
    """Give jobs without an id of their own the numbers after the largest one."""
    if id[0] >= 0 and np.all(np.diff(id) > 0):
        return id
    first = np.zeros(len(id), dtype=np.bool_)
    first[np.unique(id, return_index=True)[1]] = True
    wrong = ~first | (id < 0)
    count = int(np.count_nonzero(wrong))
    if count:
        jobs.notes[RENUMBERED] = count
        id = id.copy()
        id[wrong] = max(int(id.max()), 0) + 1 + np.arange(count)
    return id


def _empty(raw: RawLog, filter: str, notes: Mapping[str, int]) -> NoJobError:
    if not len(raw.id):
        return NoJobError("the log has no job", file=raw.path)
    dropped = "; ".join(f"{rule}: {jobs}" for rule, jobs in notes.items())
    error = NoJobError(
        f"no job is left of {len(raw.id)} by the filter `{filter}` ({dropped})", file=raw.path
    )
    error.notes = notes
    return error


def _workload(raw: RawLog, positions: IntArray, id: IntArray, notes: dict[str, int]) -> Workload:
    whole = len(positions) == len(raw.id) and bool((np.diff(positions) > 0).all())

    def column(values: IntArray | int | None, least: int | None = None) -> IntArray:
        """The values of these jobs, no less than the least; unknown without values."""
        if not isinstance(values, np.ndarray):
            constant = np.int64(UNKNOWN if values is None else values)
            return np.broadcast_to(constant, id.shape)
        kept = values if whole else values[positions]
        kept = kept if least is None else np.maximum(kept, least)
        return compact(kept.astype(np.int64))

    requested_s = column(raw.requested_s)
    columns = {
        Column.ID: id,
        Column.SUBMIT: column(raw.submit_s),
        Column.UNITS: column(raw.units),
        Column.REQUESTED: requested_s,
        Column.EXPECTED: requested_s,
        Column.UPPER: requested_s,
        Column.EWT: column(1),
        **{Column[name.upper()]: column(raw.named.get(name), UNKNOWN) for name in LABELLED},
        Column.RESTARTABLE: column(0 if raw.restartable is None else raw.restartable),
        Column.PRIORITY: column(0 if raw.priority is None else raw.priority, 0),
        Column.TIER: column(USUAL_TIER),
    }
    table = [columns[which] for which in Column if which != Column.REQUEST]
    return Workload(
        name=log_name(raw.path),
        resources=tuple(raw.request),
        table=JobTable([*table, *map(column, raw.request.values())], raw.labels),
        runtime_s=column(raw.runtime_s),
        preceding=column(raw.preceding, UNKNOWN),
        think_s=column(raw.think_s, UNKNOWN),
        processors=raw.processors,
        notes=notes,
        header=raw.header,
        memory_unit_kb=raw.memory_unit_kb,
        per_processor=raw.per_processor,
        access=raw.access,
        access_of=None if raw.access_of is None else column(raw.access_of),
        terms=raw.terms,
        terms_of=None if raw.terms_of is None else column(raw.terms_of),
        begin_s=None if raw.begin_s is None else column(raw.begin_s),
        spread=raw.spread,
        spread_of=None if raw.spread_of is None else column(raw.spread_of),
    )
