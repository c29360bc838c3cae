"""The log of `slurm drive`, a line of JSON a cycle, as it is read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from cpdispatch.errors import InputError
from cpdispatch.files import read_text

T = TypeVar("T")

UNREAD = "lines of the log that cannot be read: not used"
DRY = "lines of the log that a dry run wrote: not used"
SLACK_S = 5
"""A cycle asks for the time, then for the jobs: a job may be younger than the cycle."""


class Made(msgspec.Struct):
    """How a decision came about, see `cpdispatch.adapters.slurm.drive.Cycle`."""

    ms: float = 0.0
    model: str = ""
    status: str = "heuristic"
    limit_hit: bool = False
    value: float | None = None
    bound: float | None = None


class _Predicted(msgspec.Struct):
    predictor: str = ""


class Line(msgspec.Struct):
    """A cycle, see `cpdispatch.adapters.slurm.drive.Cycle`; without a time, one that failed."""

    now_s: int = -1
    running: int = 0
    waiting: int = 0
    released: dict[str, list[str]] = {}
    started: dict[str, list[str]] = {}
    retracted: list[str] = []
    tests: dict[str, int] = {}
    stopped: list[str] = []
    left: dict[str, str] = {}
    kept: dict[str, str] = {}
    went_on: list[str] = []
    dispatcher: str = ""
    dry_run: bool = False
    decision: Made | None = None
    reasons: dict[str, str] = {}
    expected_s: dict[str, int] = {}
    entered: list[str] = []
    promised: dict[str, int] = {}
    durations: _Predicted | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """A job that was released."""

    at_s: int
    """When, by Slurm's clock."""
    reason: str
    """Of `cpdispatch.decision.Reason`, in small letters."""
    test_s: int
    """The length of its test run; 0 for none."""
    expected_s: int
    """How long it was expected to run; 0 where that is not told."""
    until_s: int | None = None
    """When the job was held again: what started later was not started by this release."""


@dataclass(slots=True)
class Log:
    """What drivers have logged, by the keys of jobs; those of a key by time."""

    lines: list[Line] = field(default_factory=list)
    """The cycles that decided, by time."""
    notes: dict[str, int] = field(default_factory=dict)
    """Lines that are not used, by reason."""
    released: dict[str, list[Release]] = field(default_factory=dict)
    entered: dict[str, list[int]] = field(default_factory=dict)
    promised: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    went_on: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        last = Line()
        for line in self.lines:
            now = line.now_s
            # It had started already when it was to be held again.
            for key in {*last.retracted}.intersection(line.started):
                if before := self.released.get(key):
                    before[-1] = replace(before[-1], until_s=None)
            last = line
            # A cycle takes releases back before it makes new ones.
            for key in (*line.retracted, *line.stopped, *line.left, *line.kept):
                before = self.released.get(key)
                if before and before[-1].until_s is None:
                    before[-1] = replace(before[-1], until_s=now)
            for key in line.released:
                found = Release(
                    now, line.reasons.get(key, "started"), line.tests.get(key, 0),
                    line.expected_s.get(key, 0),
                )  # fmt: skip
                self.released.setdefault(key, []).append(found)
            for key in line.entered:
                self.entered.setdefault(key, []).append(now)
            for key in line.went_on:
                self.went_on.setdefault(key, []).append(now)
            for key, start_s in line.promised.items():
                self.promised.setdefault(key, []).append((now, start_s))

    def between(self, from_s: int, until_s: int) -> Log:
        """The cycles of a period: a log may be of a longer one than the jobs."""
        span = range(from_s - SLACK_S, until_s + 1)
        return Log([line for line in self.lines if line.now_s in span], self.notes)

    @property
    def dispatchers(self) -> list[str]:
        """Those that decided on jobs, in the order of their first cycles.

        Those of all cycles where none tells of jobs: cycles go on before and after them.
        """
        named = [line for line in self.lines if line.dispatcher]
        deciding = [line for line in named if line.released or line.entered or line.promised]
        return list(dict.fromkeys(line.dispatcher for line in deciding or named))

    @property
    def predictor(self) -> str:
        """What predicted durations last; ``walltime`` for the requested times."""
        named = (line.durations.predictor for line in reversed(self.lines) if line.durations)
        return next(filter(None, named), "walltime")


def within(found: Iterable[T], from_s: int, until_s: int, at: Callable[[T], int]) -> Iterator[T]:
    """Those that happened in a job's life: keys of jobs are used again."""
    return (each for each in found if from_s - SLACK_S <= at(each) <= until_s)


def read(paths: Sequence[Path]) -> Log:
    """Read what drivers have logged with ``--log``.

    A line that was cut short, since the driver was killed, is counted.

    Raises
    ------
    InputError
        When a file cannot be read, or holds no line of such a log.
    """
    lines: list[Line] = []
    notes = dict.fromkeys((UNREAD, DRY), 0)
    decoder = msgspec.json.Decoder(Line)
    for path in paths:
        good = 0
        for text in read_text(path).splitlines():
            try:
                line = decoder.decode(text)
            except msgspec.DecodeError:
                notes[UNREAD] += 1
                continue
            if line.now_s < 0 and not line.failed:
                notes[UNREAD] += 1
                continue
            good += 1
            notes[DRY] += line.dry_run
            if line.now_s >= 0 and not line.dry_run:
                lines.append(line)
        if not good:
            raise InputError(
                "no line of it is one of slurm drive", file=path,
                advice="give the file that slurm drive --log has written",
            )  # fmt: skip
    lines.sort(key=lambda line: line.now_s)
    return Log(lines, {what: many for what, many in notes.items() if many})
