"""What ran at once against limits, licences and arrays, added up from the schedule alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.errors import InputError
from cpdispatch.system import Limit, System
from cpdispatch.verify.levels import Around, Sweep
from cpdispatch.verify.tables import Findings, numbers
from cpdispatch.verify.violation import Kind, Violation, jobs_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Spell:
    """Times in which jobs ran, one row each: row in the table of jobs, from when to when."""

    job: IntArray
    start_s: IntArray
    end_s: IntArray


def limited(jobs: pd.DataFrame, system: System) -> bool:
    """Whether something beside the nodes keeps jobs back."""
    return bool(system.limits) or any(
        name in jobs.columns for name in ("licences", "array_limit", "begin")
    )


def limits(
    jobs: pd.DataFrame, system: System, spell: Spell, *, brief: bool = True
) -> list[Violation]:
    """Whether more ran at once than limits, licences and arrays allow, or a job before its time.

    Parameters
    ----------
    jobs : DataFrame
        The columns ``id``, ``units``, ``request_<resource>``, and those that the limits name;
        ``licences``, ``array``, ``array_limit`` and ``begin`` where they are there.
    brief : bool
        Whether jobs that end in the second in which they start had room, too.

    Raises
    ------
    InputError
        When a column that a limit names is missing.
    """
    found = Findings()
    ids = numbers(jobs["id"])
    lasting = spell.end_s > spell.start_s
    job, start_s, end_s = spell.job[lasting], spell.start_s[lasting], spell.end_s[lasting]
    passing = brief & (spell.end_s == spell.start_s)
    short = Spell(spell.job[passing], spell.start_s[passing], spell.end_s[passing])
    for limit in system.limits:
        row, name, names = _held(jobs, limit)
        amount = _amount(jobs, limit)
        each, place = _by_value(row, name, job)
        sweep = Sweep.of(place, start_s[each], end_s[each])
        level = sweep.level(amount[job[each]])
        ran = (place, job[each], start_s[each], end_s[each])

        def over(
            k: int, limit: Limit = limit, names: list[str] = names, sweep: Sweep = sweep,
            level: IntArray = level, ran: tuple[IntArray, ...] = ran,
        ) -> str:  # fmt: skip
            whose = f" of {limit.per} {names[int(sweep.place[k])]}" if limit.per else ""
            what = f"{level[k]} {limit.of}{whose} run at {sweep.time[k]}, {limit}"
            return f"{what}: {jobs_text(ids[_on(sweep, k, *ran)].tolist())}"

        found.add(Kind.LIMIT, sweep.firsts(level > limit.most), over)
        which, at_place = _by_value(row, name, short.job)
        around = Around(place, start_s[each], end_s[each], at_place, short.start_s[which])
        level = around.level(amount[job[each]]) + amount[short.job[which]]
        rows = which[level > limit.most]
        found.add(Kind.LIMIT, rows, partial(_too_many, ids, short, str(limit)))
    if "begin" in jobs.columns:
        begin_s = numbers(jobs["begin"])[spell.job]
        found.add(
            Kind.EARLY_START,
            (spell.start_s < begin_s).nonzero()[0],
            lambda k: (
                f"job {ids[spell.job[k]]} starts at {spell.start_s[k]}, it may from {begin_s[k]} on"
            ),
        )
    for place, amount, most, words in _terms(jobs, system):
        on = (place >= 0)[job]
        sweep = Sweep.of(place[job[on]], start_s[on], end_s[on])
        level = sweep.level(amount[job[on]])
        ran = (place[job], job, start_s, end_s)

        def beyond_terms(
            k: int, words: str = words, most: IntArray = most, sweep: Sweep = sweep,
            level: IntArray = level, ran: tuple[IntArray, ...] = ran,
        ) -> str:  # fmt: skip
            said = words.format(level[k], most[sweep.place[k]], sweep.time[k])
            return f"{said}: {jobs_text(ids[_on(sweep, k, *ran)].tolist())}"

        found.add(Kind.LIMIT, sweep.firsts(level > most[sweep.place]), beyond_terms)
        rows = (place >= 0)[short.job].nonzero()[0]
        at_place = place[short.job[rows]]
        around = Around(place[job[on]], start_s[on], end_s[on], at_place, short.start_s[rows])
        level = around.level(amount[job[on]]) + amount[short.job[rows]]
        what = "its licences, or its array"
        rows = rows[level > most[at_place]]
        found.add(Kind.LIMIT, rows, partial(_too_many, ids, short, what))
    return found.all()


def _by_value(row: IntArray, name: IntArray, job: IntArray) -> tuple[IntArray, IntArray]:
    """Each spell of these jobs once for each value of its job: the spell, and the value."""
    by_job = np.argsort(row, kind="stable")
    low, high = np.searchsorted(row[by_job], (job, job + 1))
    each = np.repeat(np.arange(len(job)), high - low)
    within = np.arange(len(each)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
    return each, name[by_job[low[each] + within]]


def _too_many(ids: IntArray, brief: Spell, what: str, k: int) -> str:
    return (
        f"job {ids[brief.job[k]]} starts and ends at {brief.start_s[k]}, when what runs before and "
        f"after leaves it no room: {what}"
    )


def _on(
    sweep: Sweep, k: int, place: IntArray, job: IntArray, start_s: IntArray, end_s: IntArray
) -> IntArray:
    """The jobs that run at a place and an instant of a sweep, by their rows."""
    time = sweep.time[k]
    there: IntArray = job[(place == sweep.place[k]) & (start_s <= time) & (time < end_s)]
    return there


def _terms(
    jobs: pd.DataFrame, system: System
) -> Iterator[tuple[IntArray, IntArray, IntArray, str]]:
    """Of licences and arrays: where each job counts (-1: nowhere) and how much, what is allowed."""
    if "licences" in jobs.columns:
        asked = [_asked(text) for text in jobs["licences"].tolist()]
        for name, most in system.licences.items():
            amount = np.array([each.get(name, 0) for each in asked], dtype=np.int64)
            place = np.where(amount > 0, 0, -1)
            text = f"{{}} of {{}} licences {name} are in use at {{}}"
            yield place, amount, np.array([most]), text
    if "array_limit" in jobs.columns:
        limit = numbers(jobs["array_limit"])
        names, number = np.unique([_text(name) for name in jobs["array"]], return_inverse=True)
        allowed = np.full(len(names), limit.max(initial=0))
        for k, at_most in zip(number.tolist(), limit.tolist(), strict=True):
            allowed[k] = min(allowed[k], at_most) if at_most > 0 else allowed[k]
        held = np.isin(number, number[limit > 0])
        yield (
            np.where(held, number, -1), np.ones(len(jobs), dtype=np.int64), allowed,
            "{} tasks of an array run, {} may, at {}",
        )  # fmt: skip


def _asked(text: Any) -> dict[str, int]:
    """The licences that a job asks for."""
    found: dict[str, int] = {}
    for part in _text(text).replace(",", " ").split():
        name, _, count = part.partition(":")
        found[name] = found.get(name, 0) + int(count or 1)
    return found


def beyond(jobs: pd.DataFrame, system: System) -> BoolArray:
    """Which jobs ask by themselves for more than a limit allows, shape (jobs,)."""
    over = np.zeros(len(jobs), dtype=np.bool_)
    for limit in system.limits:
        row, _, _ = _held(jobs, limit)
        over[row[_amount(jobs, limit)[row] > limit.most]] = True
    for place, amount, most, _ in _terms(jobs, system):
        over |= (place >= 0) & (amount > most[np.maximum(place, 0)])
    return over


def _amount(jobs: pd.DataFrame, limit: Limit) -> IntArray:
    """What each job counts, shape (jobs,)."""
    if limit.of == "jobs":
        return np.ones(len(jobs), dtype=np.int64)
    units = jobs["units"].to_numpy(dtype=np.int64)
    amount: IntArray = units * jobs[f"request_{limit.of}"].to_numpy(dtype=np.int64)
    if (once := f"request_first@{limit.of}") in jobs.columns:
        amount += jobs[once].to_numpy(dtype=np.int64)
    return amount


def _held(jobs: pd.DataFrame, limit: Limit) -> tuple[IntArray, IntArray, list[str]]:
    """The jobs that a limit holds for, the number of the value of each, and the values."""
    if not limit.per:
        every = np.arange(len(jobs))
        return every, np.zeros_like(every), [""]
    if limit.per not in jobs.columns:
        raise InputError("the table of jobs lacks this column", field=limit.per)
    rows, numbers, names = [], [], dict[str, int]()
    for k, value in enumerate(jobs[limit.per].tolist()):
        text = _text(value)
        for part in {part.strip() for part in text.split(",")} if _lists(limit) else {text}:
            if part and limit.name in ("", part):
                rows.append(k)
                numbers.append(names.setdefault(part, len(names)))
    return np.array(rows, dtype=np.int64), np.array(numbers, dtype=np.int64), list(names)


def _lists(limit: Limit) -> bool:
    """Whether a job may have several values of the limit's column."""
    return limit.per == "partition"


def _text(value: Any) -> str:
    """A value as a text; an unknown one is ""."""
    if not isinstance(value, str) and (value is None or value != value or value < 0):
        return ""
    return str(int(value)) if isinstance(value, float) else str(value).strip()
