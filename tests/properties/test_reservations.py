"""What a reservation promises, when requested times are upper bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.decision import Reason
from cpdispatch.heuristics.backfill import ALL, Backfill
from cpdispatch.heuristics.policies import Order, find
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, Job, JobTable, Workload
from cpdispatch.simulator import simulate
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import System
from tests.effort import examples
from tests.oracles import plain
from tests.strategies import instances, systems, workloads

Promise = tuple[int, int]
"""To which job, for which start."""
TWELVE = [find(name) for name in list(plain.KEYS)[:12]]
orders = st.sampled_from(TWELVE)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System]:
    system = draw(systems(max_nodes=5))
    return draw(workloads(system, upper_bounds=True)), system


def promises(
    case: tuple[Workload, System], dispatcher: Backfill, trigger: str = "instant"
) -> tuple[list[tuple[int, list[Promise]]], dict[int, int]]:
    """For each dispatch the job that is first in the primary order and the promises; all starts."""
    workload, system = case
    sim = Simulation(workload, system, trigger=trigger)
    made = []
    while (instance := sim.advance()) is not None:
        decision = dispatcher.dispatch(instance)
        reserved = np.flatnonzero(decision.reason == Reason.RESERVED).tolist()
        promised = [(instance.queue[p].id, int(decision.start_s[p])) for p in reserved]
        made.append((first_in_line(instance, dispatcher.primary), promised))
        sim.apply(decision)
    starts = zip(workload.table.id.tolist(), sim.records.start_s.tolist(), strict=True)
    return made, dict(starts)


def first_in_line(instance: Instance, policy: Order) -> int:
    def key(job: Job) -> float:
        processors = max(1, job.units * job.request[0])
        wait = instance.now - job.submit_s
        return plain.KEYS[policy.name](job.submit_s, job.expected_s, processors, wait)

    return min(instance.queue, key=key).id


@settings(max_examples=examples(700))
@given(cases(), orders, orders, st.booleans())
def test_the_promise_to_the_first_job_never_moves_later(
    case: tuple[Workload, System], primary: Order, secondary: Order, best_fit: bool
) -> None:
    made, _ = promises(case, Backfill(primary, secondary, best_fit=best_fit))
    promise: dict[int, int] = {}
    for first, reserved in made:
        assert len(reserved) <= 1
        promise = {job: start for job, start in promise.items() if job == first}
        for job, start in reserved:
            assert start <= promise.get(job, start)
        promise = dict(reserved)


@settings(max_examples=examples(300))
@given(cases(), orders, st.booleans(), st.sampled_from(["instant", "event"]))
def test_under_fcfs_no_reserved_job_starts_later_than_first_promised(
    case: tuple[Workload, System], secondary: Order, best_fit: bool, trigger: str
) -> None:
    made, starts = promises(case, Backfill(find("fcfs"), secondary, best_fit=best_fit), trigger)
    first: dict[int, int] = {}
    for job, start in (promise for _, reserved in made for promise in reserved):
        first.setdefault(job, start)
    assert all(0 <= starts[job] <= promised for job, promised in first.items())


@settings(max_examples=examples(500))
@given(cases(), orders, orders, st.sampled_from([2, 3, ALL]),
       st.booleans())  # fmt: skip
def test_beyond_depth_one_every_promise_is_kept_and_only_moves_earlier(
    case: tuple[Workload, System], primary: Order, secondary: Order, depth: int, best_fit: bool
) -> None:
    made, starts = promises(case, Backfill(primary, secondary, depth=depth, best_fit=best_fit))
    last: dict[int, int] = {}
    for job, start in (promise for _, reserved in made for promise in reserved):
        assert start <= last.get(job, start)
        last[job] = start
    assert all(0 <= starts[job] <= promised for job, promised in last.items())


@settings(max_examples=examples(300))
@given(instances(reservations=False, power=True), orders, st.booleans())
def test_planning_one_reservation_ahead_is_easy(
    instance: Instance, policy: Order, best_fit: bool
) -> None:
    dispatcher = Backfill(policy, policy, best_fit=best_fit)
    easy = dispatcher.dispatch(instance)
    ranked = policy.rank(instance.now, instance.queue.block)
    start, reason, *_ = dispatcher._plan(instance, ranked, ranked, ranked[:0])
    assert (start == instance.now).tolist() == (easy.start_s == instance.now).tolist()
    fits_some_day = reason != Reason.NEVER_FITS
    assert start[fits_some_day].tolist() == easy.start_s[fits_some_day].tolist()


@settings(max_examples=examples(300))
@given(instances(), orders, st.sampled_from([0, 1, 2, ALL]), st.booleans())
def test_every_backfilling_decision_is_feasible(
    instance: Instance, policy: Order, depth: int, best_fit: bool
) -> None:
    decision = Backfill(policy, depth=depth, best_fit=best_fit).dispatch(instance)
    assert verify.decision(instance, decision) == []


@settings(max_examples=examples(300))
@given(cases(), st.booleans(), st.booleans())
def test_smallest_first_in_both_queues_backfills_nothing(
    case: tuple[Workload, System], best_fit: bool, actual: bool
) -> None:
    """Proposition 1 of Zrigui's thesis: when the smallest job does not fit, none does.

    It speaks of processors alone: jobs of one unit with several resources may fit where a smaller
    one does not.
    """
    workload, system = case
    pool = System.pool(int(system.total[0]) + 1)
    block = workload.table.block[: Column.REQUEST + 1].copy()
    block[Column.REQUEST] = np.maximum(block[Column.REQUEST], 1)
    cores = JobTable(block)
    jobs = replace(workload, resources=pool.resources, table=cores)
    sqf = find("sqf")
    predictor = "actual" if actual else "walltime"
    run = simulate(jobs, pool, Backfill(sqf, sqf, best_fit=best_fit), predictor=predictor)
    assert "backfilled" not in run.job_table.column("reason").to_pylist()
