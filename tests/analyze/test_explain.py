from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.analyze.explain import Explanation, Fewer, Shorter, as_dict
from cpdispatch.analyze.moment import moment
from cpdispatch.errors import UsageError
from cpdispatch.events import FAIL, MAINTAIN, REPAIR, Event, Events
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import System
from cpdispatch.verify import Kind
from tests.effort import examples
from tests.oracles.plain_explain import Held, Job, Plain
from tests.simulator.cases import workload
from tests.simulator.test_events import FOUR, failures, happen, of, restartable
from tests.strategies import systems, workloads

POOL = System.pool(4)


def check(run: Run) -> None:
    """Every claim of the explanation of every job, counted anew."""
    plain = Plain.of(run)
    for job in plain.jobs:
        found = run.explain(job.id)
        start = job.start if job.start >= 0 else plain.last
        if job.reason in ("never_fits", "rejected"):
            start = job.submit
        facts(plain, job, found, start)
        waited(plain, job, found, start)
        sooner(plain, job, found, start)


def facts(plain: Plain, job: Job, found: Explanation, start: int) -> None:
    ran = job.end - job.start
    assert (found.submit_s, found.units, found.reason) == (job.submit, job.units, job.reason)
    assert dict(found.request) == {
        name: asked for name, asked in zip(plain.names, job.request, strict=True) if asked
    }
    if job.start < 0:
        assert (found.start_s, found.end_s, found.ran_s, found.wait_s) == (None,) * 4
        assert found.needs_s == max(1, job.requested)
    else:
        assert (found.start_s, found.end_s, found.ran_s) == (job.start, job.end, ran)
        assert found.wait_s == job.start - job.submit
        assert found.needs_s == max(1, job.requested, ran)
    tried = sorted((h.start, h.stop, h.end, h.test) for h in plain.held if h.job == job.id)
    tried = [each for each in tried if (each[0], each[2]) != (job.start, job.end)]
    assert list(found.attempts) == [each[:2] for each in tried]
    assert list(found.tests) == [each[3] for each in tried]
    ahead = [other for other in plain.jobs[: job.row] if plain.waits(other, job.submit)]
    assert found.waiting_at_submit == len(ahead)
    assert found.first_of_those == sum(0 <= other.start < start for other in ahead)
    later = [other for other in plain.jobs[job.row + 1 :] if 0 <= other.start < start]
    assert found.overtook == len(later)
    assert found.overtook_backfilled == sum(other.reason == "backfilled" for other in later)
    assert found.overtook_late == sum(other.reason == "late" for other in later)
    alone = Plain(plain.capacity, plain.names, [job])
    assert found.most_units == min(job.units, sum(alone.room(job, 0)))


def waited(plain: Plain, job: Job, found: Explanation, start: int) -> None:
    """The stretches, second by second."""
    ready = plain.ready(job, start)
    seconds = [
        second
        for second in range(job.submit, start)
        if not any(begin <= second < end for begin, end in found.attempts)
    ]
    told = [
        (s, stretch) for stretch in found.stretches for s in range(stretch.from_s, stretch.until_s)
    ]
    assert [second for second, _ in told] == seconds
    for second, stretch in told:
        if second < ready:
            assert stretch.cause == "job"
            continue
        if any(h.job == job.id and h.stop <= second < h.end for h in plain.held):
            assert stretch.cause == "limit"
            continue
        if plain.powered(job, second) < job.units:
            assert stretch.cause == "limit"
            assert stretch.lacking[0].startswith("the power cap")
            continue
        lacking = plain.lacking(job, second)
        fits = "order" if plain.clear(job, second) == job.units else "maintenance"
        assert stretch.cause == (fits if lacking is None else "capacity")
        assert stretch.lacking == (lacking or ())
    for before, after in zip(found.stretches, found.stretches[1:], strict=False):
        apart = before.until_s < after.from_s
        assert apart or (before.cause, before.lacking) != (after.cause, after.lacking)
    earlier = plain.jobs[: job.row]
    later = plain.jobs[job.row + 1 :]
    for s in found.stretches:
        span = range(s.from_s, s.until_s)
        if s.cause not in ("job", "limit"):
            room = plain.clear if s.cause == "maintenance" else partial(plain.fits, seconds=1)
            rooms = [room(job, second) for second in span]
            assert (s.room_min, s.room_max) == (min(rooms), max(rooms))
        kinds = [k for k, name in enumerate(plain.names) if name in s.lacking]
        kinds = kinds or [k for k, asked in enumerate(job.request) if asked]
        held = [
            h
            for h in plain.held
            if h.job != job.id
            and any(plain.job(h.job).request[k] for k in kinds)
            and any(h.start <= second < h.end for second in span)
        ]
        assert s.ran == len({h.job for h in held})
        assert s.ended == len({h.job for h in held if s.from_s < h.end <= s.until_s})
        assert s.overtook == sum(o.start in span and o.start < start for o in later)
        waits = [o for o in earlier if plain.waits(o, job.submit) or o.start > job.submit]
        assert s.started_ahead == sum(o.start in span for o in waits)
        assert s.ahead == sum(plain.waits(o, s.from_s) for o in earlier)
        out = [at[s.from_s] for at in (plain.down, plain.drained)]
        assert s.nodes_out == len(out[0] | out[1])
        if s.cause == "order":
            assert s.fits_for_s == plain.fits_for(job, s.from_s, found.needs_s)
            until = s.from_s + s.fits_for_s
            starts = {h.job for h in plain.held if h.start == until < h.end and h.job != job.id}
            assert set(s.then) == (starts if s.fits_for_s < found.needs_s else set())
        else:
            assert (s.fits_for_s, s.then) == (None, ())
        if s.cause == "maintenance":
            assert s.window_s == min(w.time_s for w in plain.ahead(job, s.from_s))
        else:
            assert s.window_s is None
    if not (found.stretches and found.stretches[-1].cause == "capacity" and job.start >= 0):
        assert found.freed_by == ()
        return
    mine = next(h for h in plain.held if (h.job, h.start) == (job.id, job.start))
    assert set(found.freed_by) == {
        h.job
        for h in plain.held
        if h.job != job.id  # an earlier attempt of its own
        and h.end == job.start > h.start and set(h.nodes) & set(mine.nodes)
        and any(a and b for a, b in zip(plain.job(h.job).request, job.request, strict=True))
    }  # fmt: skip


def sooner(plain: Plain, job: Job, found: Explanation, start: int) -> None:
    """The fronts over all seconds: so each claim is true, the most, and the earliest."""
    mine = [h.end for h in plain.held if h.job == job.id and h.start < start]
    first = max([plain.ready(job, start), *mine])
    if first >= start or not found.stretches:
        assert (found.fewer, found.shorter) == ((), ())
        return
    needs, most, longest = found.needs_s, -1, 0
    fewer, shorter = [], []
    for second in range(first, start):
        units = plain.fits(job, second, needs)
        if units > most:
            most = units
            fewer.append(Fewer(second, units))
        seconds = plain.fits_for(job, second, needs)
        if seconds > longest:
            longest = seconds
            shorter.append(Shorter(second, seconds))
    assert list(found.fewer) == fewer
    assert list(found.shorter) == shorter


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Small crowded runs of all kinds."""
    kinds = ["compiled", "loop", "events", "after", "tests", "windows", "capped"]
    kind = draw(st.sampled_from(kinds))
    system = draw(systems(max_nodes=4))
    log = draw(workloads(system, max_jobs=9))
    dispatcher = draw(st.sampled_from(["easy", "conservative", "easy-spf-saf", "sjf", "reject"]))
    how: dict[str, Any] = {"compiled": kind == "compiled"}
    if kind == "events":
        which = draw(st.lists(st.integers(0, 1), min_size=len(log), max_size=len(log)))
        log = restartable(log, which)
        how["events"] = of(draw(failures(system.nodes, 40)))
    elif kind == "tests":
        log, dispatcher = restartable(log, [1] * len(log)), "easy:test=3"
        how["restart_cost_s"] = draw(st.integers(0, 2))
        if draw(st.booleans()):
            how["events"] = of(draw(failures(system.nodes, 40)))
    elif kind == "after":
        log, how["dependencies"] = depending(draw, log), True
    elif kind == "windows":
        how["events"] = of(draw(windows(system.nodes)))
    elif kind == "capped":
        watts = {name: draw(st.integers(0, 3)) for name in system.resources}
        system = replace(system, watts=watts)
        most = int((log.table.units * (log.table.request @ np.array(system.unit_watts))).max())
        how["power_cap"] = draw(st.integers(1, 2 * most + 1))
    run = simulate(log, system, dispatcher, **how)
    assert run.verify() == []
    return run


@st.composite
def windows(draw: st.DrawFn, nodes: int) -> list[Event]:
    """Maintenance windows that do not meet, each known at some time before it begins."""
    times = sorted(draw(st.sets(st.integers(1, 60), max_size=6)))
    found = []
    for begin, until in zip(times[::2], times[1::2], strict=False):
        which = draw(st.sets(st.integers(0, nodes - 1), min_size=1))
        known = draw(st.integers(0, begin))
        found.append(Event(begin, MAINTAIN, tuple(sorted(which)), until, known))
    return found


def depending(draw: st.DrawFn, log: Workload) -> Workload:
    jobs = len(log)
    preceding = [draw(st.integers(-1, max(row - 1, -1))) for row in range(jobs)]
    think = draw(st.lists(st.integers(-1, 5), min_size=jobs, max_size=jobs))
    return replace(
        log, preceding=np.array(preceding, dtype=np.int64), think_s=np.array(think, dtype=np.int64)
    )


@settings(max_examples=examples(40), deadline=None)
@given(runs())
def test_every_claim_of_every_explanation_is_what_plain_counting_says(run: Run) -> None:
    check(run)


@settings(max_examples=examples(60), deadline=None)
@given(systems(max_nodes=4).flatmap(lambda s: st.tuples(st.just(s), workloads(s, max_jobs=9))))
def test_a_request_that_would_have_fit_can_be_put_into_the_schedule(
    case: tuple[System, Workload],
) -> None:
    system, log = case
    run = simulate(log, system, "easy")
    plain = Plain.of(run)
    for job in plain.jobs:
        found = run.explain(job.id)
        for each in found.fewer:
            if each.units:
                moved = put(run, plain, job, each.at_s, found.needs_s, each.units)
                assert verify.run(moved.jobs, system) == []
            if each.units < job.units:
                one_more = put(run, plain, job, each.at_s, found.needs_s, each.units + 1)
                assert Kind.UNITS in {v.kind for v in verify.run(one_more.jobs, system)}
        for each_s in found.shorter:
            moved = put(run, plain, job, each_s.at_s, each_s.fits_s, job.units)
            assert verify.run(moved.jobs, system) == []


def put(run: Run, plain: Plain, job: Job, at_s: int, lasts_s: int, units: int) -> Run:
    """The run with the job elsewhere, first fit, and all others as they were."""
    nodes = plain.placed(job, at_s, lasts_s, units)
    rows = run.job_table.to_pylist()
    rows[job.row] |= {
        "start": at_s, "end": at_s + lasts_s, "units": units, "requested_s": lasts_s,
        "runtime_s": lasts_s, "killed": False, "nodes": list(nodes),
        "node_units": list(nodes.values()), "reason": "started",
    }  # fmt: skip
    return replace(run, job_table=pa.Table.from_pylist(rows))


ROWS = [(0, 3, 10, 10), (1, 4, 20, 20), (2, 1, 30, 5), (3, 2, 9, 9)]
"""On 4 processors under EASY: job 1 at 0; 2 at 10; 3 waits, 30 s would delay job 2; 4 after it."""


def test_an_explanation_says_what_held_a_job_back_and_what_would_have_helped() -> None:
    found = simulate(workload(ROWS), POOL, "easy").explain(3)
    assert (found.submit_s, found.start_s, found.wait_s) == (2, 30, 28)
    assert (found.waiting_at_submit, found.first_of_those, found.overtook) == (1, 1, 0)
    first, second = found.stretches
    assert (first.from_s, first.until_s, first.cause) == (2, 10, "order")
    assert (first.fits_for_s, first.then) == (8, (2,))
    assert (second.cause, second.lacking, second.ran, second.ended) == ("capacity", ("core",), 1, 1)
    assert found.freed_by == (2,)
    assert found.shorter == (Shorter(2, 8),)
    assert found.fewer == (Fewer(2, 0),)


def test_what_would_have_fit_is_asked_of_the_wait_after_the_last_attempt_alone() -> None:
    """The room of its own first 20 s was no gap in which a shorter request would have fit."""
    failing = happen((20, FAIL, "all"), (25, REPAIR, "all"))
    run = simulate(workload([(0, 1, 100, 100)]), FOUR, "easy", events=failing)
    found = run.explain(1)
    assert (found.attempts, found.start_s) == (((0, 20),), 25)
    assert found.fewer == (Fewer(20, 0),)
    assert found.shorter == ()


def test_a_failure_before_a_lost_test_run_comes_first() -> None:
    rows = [(0, 3, 100, 100), (0, 4, 50, 50), (1, 1, 200, 40)]
    failing = happen((11, FAIL, "3"), (30, REPAIR, "3"))
    log = restartable(workload(rows), [0, 0, 1])
    found = simulate(log, FOUR, "easy:test=10", events=failing).explain(3)
    assert found.attempts == ((1, 11), (30, 40))
    assert found.tests == (True, True)
    assert [(s.from_s, s.until_s) for s in found.stretches] == [(11, 30), (40, 100), (100, 150)]


TESTED = [(0, 3, 100, 100), (0, 4, 50, 50), (1, 1, 200, 40)]
"""On four nodes under EASY with test runs of 10 s: job 3 is tested from 1 to 11."""


@pytest.mark.parametrize(("compiled", "failing", "clear_s"), [
    (True, None, 41), (False, None, 41), (False, happen((14, FAIL, "3"), (20, REPAIR, "3")), 14),
])  # fmt: skip
def test_a_lost_test_run_ends_when_it_is_stopped(
    compiled: bool, failing: Events | None, clear_s: int
) -> None:
    log = restartable(workload(TESTED), [0, 0, 1])
    how: dict[str, Any] = {"compiled": compiled, "events": failing, "restart_cost_s": 30}
    found = simulate(log, FOUR, "easy:test=10", **how).explain(3)
    assert (found.attempts, found.tests) == (((1, 11),), (True,))
    first = found.stretches[0]
    assert (first.from_s, first.until_s, first.cause) == (11, clear_s, "limit")
    assert first.lacking == ("the clearing of the nodes on which it was stopped",)


def test_only_the_general_loop_records_promises() -> None:
    rows = [(0, 4, 10, 8), (1, 4, 20, 20)]
    told = simulate(workload(rows), POOL, "easy", compiled=False).explain(2)
    assert (told.promises_known, told.promised_at_s, told.promised_s) == (True, 1, 10)
    assert told.start_s == 8
    untold = simulate(workload(rows), POOL, "easy").explain(2)
    assert (untold.promises_known, untold.promised_at_s, untold.promised_s) == (False, None, None)


def test_promises_are_kept_with_the_run(tmp_path: Any) -> None:
    rows = [(0, 4, 10, 8), (1, 4, 20, 20)]
    for compiled in (False, True):
        made = simulate(workload(rows), POOL, "easy", compiled=compiled)
        made.save(tmp_path)
        loaded = Run.load(tmp_path)
        for job in (1, 2):
            assert as_dict(loaded.explain(job)) == as_dict(made.explain(job))


def test_a_job_that_is_not_there_is_an_error_with_ids_near_it() -> None:
    run = simulate(workload(ROWS), POOL, "easy")
    with pytest.raises(UsageError, match=r"no job 7; ids near it: 2, 3, 4 \(it has 4 jobs, 1 to 4"):
        run.explain(7)


@pytest.mark.parametrize("job", ["1", 1.0, None, True])
def test_a_job_is_named_by_a_whole_number(job: Any) -> None:
    run = simulate(workload([(0, 1, 10, 10)]), System.pool(1), "easy")
    with pytest.raises(UsageError, match="the id of a job, a whole number, is needed"):
        run.explain(job)


def test_the_plain_twin_counts_what_others_hold() -> None:
    plain = Plain.of(simulate(workload(ROWS), POOL, "easy"))
    assert plain.held[:2] == [Held(1, 0, 10, {0: 3}, 10), Held(2, 10, 30, {0: 4}, 30)]
    assert plain.room(plain.job(3), 5) == [1]
    assert plain.fits_for(plain.job(3), 2, 30) == 8


@settings(max_examples=examples(100), deadline=None)
@given(runs(), st.data())
def test_a_moment_is_what_plain_counting_says(run: Run, data: st.DataObject) -> None:
    plain = Plain.of(run)
    first = min(job.submit for job in plain.jobs)
    at_s = data.draw(st.integers(first, plain.last - 1))
    found = run.moment(at_s)
    held = [h for h in plain.held if h.start <= at_s < h.end]
    told = [(r.job, r.start_s, r.end_s, dict(r.nodes)) for r in found.running]
    assert sorted(told, key=str) == sorted(
        ((h.job, h.start, h.end, h.nodes) for h in held), key=str
    )
    waiting = [job for job in plain.jobs if plain.waits(job, at_s)]
    assert [each.job for each in found.waiting] == [job.id for job in waiting]
    for each, job in zip(found.waiting, waiting, strict=True):
        start = job.start if job.start >= 0 else plain.last
        lacking = plain.lacking(job, at_s)
        clear = plain.clear(job, at_s)
        room = min(job.units, sum(plain.through(job, at_s, 1)))
        assert each.room == (clear if each.cause == "maintenance" else room)
        if at_s < plain.ready(job, start):
            assert each.cause == "job"
        elif plain.powered(job, at_s) < job.units:
            assert each.cause == "limit"
        else:
            assert (each.cause, each.lacking) == (
                (each.cause, ()) if lacking is None else ("capacity", lacking)
            )
            assert (each.cause == "maintenance") == (lacking is None and clear < job.units)
    groups = run.system.group_of.tolist()
    for use in found.use:
        kind = plain.names.index(use.resource)
        nodes = [n for n, g in enumerate(groups) if run.system.groups[g].name == use.group]
        assert use.total == sum(plain.capacity[n][kind] for n in nodes)
        assert use.held == sum(
            h.nodes.get(n, 0) * plain.job(h.job).request[kind] for h in held for n in nodes
        )
    assert set(found.down) == plain.down[at_s]
    assert set(found.drained) == plain.drained[at_s]


def test_a_time_outside_of_the_run_is_an_error() -> None:
    run = simulate(workload(ROWS), POOL, "easy")
    for at_s in (-1, 10_000):
        with pytest.raises(UsageError, match=f"time {at_s} s is outside of the run"):
            moment(run.occupancy, at_s)
