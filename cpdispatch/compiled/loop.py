"""The loop of a compiled replay over events, and one dispatch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled import nodes as on_nodes
from cpdispatch.compiled import pool as on_pool
from cpdispatch.compiled.deep import dispatch_deep
from cpdispatch.compiled.gates import come, give_back, let_pass
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    COMPLETED,
    DISPATCH_LEFT,
    EASY_NUMBER,
    EXPECTED,
    HEAP_END,
    IN_TURN,
    JOB,
    KIND,
    LIMIT,
    NEED,
    NEVER,
    NO_ROOM,
    NOTHING_LEFT,
    ON_POOL,
    OUTLIVED,
    OVER,
    QUEUE_LEFT,
    REASON,
    REJECT,
    REJECTED,
    REQUESTED,
    START,
    SUBMIT,
    TIER,
    UNPREDICTED,
    UPPER,
    USED_UP,
    WAS_LATE,
    Rule,
    State,
)
from cpdispatch.compiled.memory import Memory, expect
from cpdispatch.compiled.queue import (
    enqueue,
    goes_before,
    is_late,
    key_under,
    lasting_key,
    late_after,
    let_late_ones_first,
    let_late_ones_first_now,
    sort_anew,
    tidy,
    without_started,
)
from cpdispatch.compiled.running import complete, correct, lasts
from cpdispatch.compiled.shadow import ends, follow, has_room, starts, submit
from cpdispatch.compiled.stopped import clear, is_killed, outlives, settle, takes_back, wait_again
from cpdispatch.compiled.test_runs import (
    CLEARING,
    FIRST_EXPECTED,
    IN_FRONT,
    KILLED,
    REQUEUED,
    RESULT,
    STOPPED,
    STOPPED_START,
    TESTED,
    TESTING,
    may_be_tested,
    no_test_any_more,
    place_in_front,
)
from cpdispatch.heuristics.policies import NO_THRESHOLD, key_of, key_of_own


@kernel
def go(
    state: State, jobs: IntArray, outcome: IntArray, primary: IntArray, primary_key: FloatArray,
    secondary: IntArray, secondary_key: FloatArray, running: IntArray, dispatch_s: IntArray,
    dispatch_counts: NDArray[np.int32], memory: Memory, rule: Rule, primary_weights: FloatArray,
    secondary_weights: FloatArray, events: int, own_primary: Any, own_secondary: Any, nodes: Any,
    deep: Any, caution: Any, tests: Any, shadow: Any, gate: Any,
) -> int:  # fmt: skip
    """Go on for about so many events, or until somebody else has to act; why it stopped.

    See `layout.USED_UP` and what follows it there.

    Arguments may be None, and what they are for is then left out of the compiled code: a user's own
    policies; ``nodes`` on a processor pool; ``deep`` up to one reservation; ``caution`` where jobs
    are taken to last as expected; ``tests`` where no job is tested; ``shadow`` where no wait is
    bounded; ``gate`` where the system has no limits.
    """
    job_count = jobs.shape[1]
    while events > 0:
        left, state.left_to_do = state.left_to_do, NOTHING_LEFT
        if left == DISPATCH_LEFT:
            _tell(state, jobs, outcome, shadow, gate)
            dispatch(
                state, jobs, outcome, primary, primary_key, secondary, secondary_key, running,
                dispatch_s, dispatch_counts, rule, primary_weights, secondary_weights, own_primary,
                own_secondary, nodes, deep, caution, tests, shadow,
            )  # fmt: skip
        submit = jobs[SUBMIT, state.submitted] if state.submitted < job_count else NEVER
        end = running[HEAP_END, 0] if state.pending > 0 else NEVER
        if left != QUEUE_LEFT:
            if submit == NEVER and end == NEVER:
                return OVER
            state.now = min(submit, end)
        now = state.now
        by_event = rule.by_event
        submitting = submit == now and not (by_event and end < submit)
        completing = end == now and not (by_event and submitting)
        events -= 1
        while completing:
            state.blocked = -1
            waits = False
            if tests is not None:
                waits = outlives(state, jobs, outcome, running, nodes, caution, tests)
            if not waits:
                ended = complete(state, jobs, outcome, running, memory)
                if gate is not None:
                    give_back(gate, ended)
                if tests is not None:
                    no_test_any_more(tests, ended)
                if nodes is not None:
                    on_nodes.end(state, outcome, jobs, nodes, ended)
            completing = not by_event and state.pending > 0 and running[HEAP_END, 0] == now
        if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
            if tests.state.requeued > 0:
                if tests.state.asks and tests.state.stopped > 0 and left != QUEUE_LEFT:
                    state.left_to_do = QUEUE_LEFT
                    return OUTLIVED
                if shadow is not None:
                    for k in range(tests.state.requeued):
                        job = tests.table[REQUEUED, k]
                        if tests.table[STOPPED_START, job] < 0:
                            starts(shadow, outcome[EASY_NUMBER, job], -1)
                wait_again(
                    state, jobs, outcome, primary, primary_key, secondary, secondary_key, rule,
                    primary_weights, secondary_weights, own_primary, own_secondary, nodes, caution,
                    tests, shadow,
                )  # fmt: skip
        came = submitting
        while submitting:
            job = state.submitted
            if job == state.predicted:
                return UNPREDICTED
            state.submitted += 1
            if outcome[EXPECTED, job] == 0:
                outcome[EXPECTED, job] = expect(memory, job, jobs[REQUESTED, job])
            if caution is not None:
                outcome[UPPER, job] = max(outcome[UPPER, job], outcome[EXPECTED, job])
                outcome[LIMIT, job] = max(jobs[REQUESTED, job], outcome[EXPECTED, job])
            if gate is None:
                _offer(
                    state, jobs, outcome, primary, primary_key, secondary, secondary_key, rule,
                    primary_weights, secondary_weights, own_primary, own_secondary, nodes, caution,
                    shadow, job,
                )  # fmt: skip
            else:
                outcome[START, job] = NEVER  # as if it had started: it is in no queue
                come(gate, job)
            submitting = (
                not by_event
                and state.submitted < job_count
                and jobs[SUBMIT, state.submitted] == now
            )
        if gate is not None:
            for k in range(let_pass(gate)):
                job = gate.passed[k]
                outcome[START, job] = -1
                state.oldest_waiting = min(state.oldest_waiting, job)
                _offer(
                    state, jobs, outcome, primary, primary_key, secondary, secondary_key, rule,
                    primary_weights, secondary_weights, own_primary, own_secondary, nodes, caution,
                    shadow, job,
                )  # fmt: skip
        fits = True
        if by_event and came:
            job = state.submitted - 1
            fits = outcome[START, job] < 0
            if fits:
                gone, ending = correct(state, jobs, outcome, running, rule.correction)
                if nodes is None:
                    fits = jobs[NEED, job] <= state.free + ending
                else:
                    on_nodes.lend(state, outcome, jobs, running, nodes, gone, 1)
                    fits = on_nodes.job_fits(state, jobs, nodes, job)
                    on_nodes.lend(state, outcome, jobs, running, nodes, gone, -1)
        if fits and state.queued > 0:
            if shadow is not None and not has_room(shadow, queued_anew(state, gate)):
                state.left_to_do = DISPATCH_LEFT
                return NO_ROOM
            _tell(state, jobs, outcome, shadow, gate)
            dispatch(
                state, jobs, outcome, primary, primary_key, secondary, secondary_key, running,
                dispatch_s, dispatch_counts, rule, primary_weights, secondary_weights, own_primary,
                own_secondary, nodes, deep, caution, tests, shadow,
            )  # fmt: skip
    return USED_UP


@inlined
def _offer(
    state: State, jobs: IntArray, outcome: IntArray, primary: IntArray, primary_key: FloatArray,
    secondary: IntArray, secondary_key: FloatArray, rule: Rule, primary_weights: FloatArray,
    secondary_weights: FloatArray, own_primary: Any, own_secondary: Any, nodes: Any, caution: Any,
    shadow: Any, job: int,
) -> None:  # fmt: skip
    """Put a job that was submitted, and has passed the gate, into the queues."""
    if nodes is None:
        demand = jobs[NEED, job]
    else:
        demand = on_nodes.demand_of(jobs[KIND, job], lasts(state, outcome, caution, job))
    if shadow is not None:
        after = late_after(jobs, job, rule.primary.threshold)
        state.none_late_until = min(state.none_late_until, after)
    enqueue(
        state, jobs, outcome, primary, primary_key, job, demand, state.primary, rule.primary,
        primary_weights, own_primary, caution,
    )  # fmt: skip
    if not rule.one_queue:
        enqueue(
            state, jobs, outcome, secondary, secondary_key, job, demand, state.secondary,
            rule.secondary, secondary_weights, own_secondary, caution,
        )  # fmt: skip
    state.queued += 1
    if nodes is not None:
        on_nodes.wait(nodes, jobs[KIND, job], lasts(state, outcome, caution, job))


@inlined
def queued_anew(state: State, gate: Any) -> int:
    """How many jobs have come into the queue that were not there at the last dispatch."""
    if gate is None:
        return int(state.submitted - state.submitted_before)
    return int(gate.state.passed)


@inlined
def _tell(state: State, jobs: IntArray, outcome: IntArray, shadow: Any, gate: Any) -> None:
    """Tell EASY of the jobs that have come into the queue. There must be room for them."""
    if shadow is not None:
        for k in range(queued_anew(state, gate)):
            job = state.submitted_before + k
            if gate is not None:
                job = gate.passed[k]
            outcome[EASY_NUMBER, job] = state.easy_numbers
            submit(
                shadow, state.easy_numbers, jobs[SUBMIT, job], jobs[ON_POOL, job],
                jobs[REQUESTED, job],
            )  # fmt: skip
            state.easy_numbers += 1


@inlined
def _record(
    state: State, dispatch_s: IntArray, dispatch_counts: NDArray[np.int32], now: int, queued: int,
    still_running: int, started: int,
) -> None:  # fmt: skip
    """Keep a record of a dispatch, where there is room for records."""
    row = state.dispatches
    if dispatch_s.shape[0] > 0:
        dispatch_s[row], dispatch_counts[0, row] = now, queued
        dispatch_counts[1, row], dispatch_counts[2, row] = still_running, started
    state.dispatches += 1


@inlined
def _thresholds_change(
    state: State, jobs: IntArray, outcome: IntArray, running: IntArray, rule: Rule, caution: Any,
    tests: Any, shadow: Any,
) -> bool:  # fmt: skip
    """Follow EASY up to now, and take the thresholds from the longest wait under it.

    Returns whether any job may have become late, or be late no more. When jobs ended between two
    dispatches is told as a dispatcher may know it, see `cpdispatch.bounded.ended_s`.
    """
    now, before = state.now, shadow.state.now
    for k in range(shadow.totals.ends_told, state.next_serial - state.pending):
        job = running[COMPLETED, k]
        if job < 0:
            shadow.totals.ends_told += 1
            continue
        start, expected = outcome[START, job], outcome[EXPECTED, job]
        requested = jobs[REQUESTED, job]
        if tests is not None:
            if tests.table[FIRST_EXPECTED, job] > 0:
                expected = tests.table[FIRST_EXPECTED, job]
            if tests.table[RESULT, job] == KILLED:
                requested -= tests.state.restart_cost_s
        end = min(max(max(before, start), start + expected), now)
        ends(shadow, outcome[EASY_NUMBER, job], max(end - start, 1), jobs[ON_POOL, job], requested)
    if tests is not None:
        for k in range(tests.state.tested):
            job = tests.table[TESTED, k]
            if tests.table[TESTING, job] == CLEARING:
                starts(shadow, outcome[EASY_NUMBER, job], outcome[START, job])
    work = 0
    for k in range(state.running):
        job = running[JOB, k]
        work += jobs[ON_POOL, job] * (now - outcome[START, job])
    longest = follow(shadow, now, work)
    changes = longest != rule.secondary.threshold.seconds or now > state.none_late_until
    rule.secondary.threshold.seconds = longest
    rule.primary.threshold.seconds = longest * rule.in_turn_after // 1000
    if caution is not None:
        caution.strict_after_s = caution.patience.seconds = rule.primary.threshold.seconds
    if changes:
        state.none_late_until = NEVER
    return bool(changes)


@inlined
def _limits_change(state: State, jobs: IntArray, outcome: IntArray, caution: Any) -> bool:
    """Take jobs to last as requested once one has waited too long, else as they probably do.

    Returns whether this is another limit than before.
    """
    while state.oldest_waiting < state.submitted and outcome[START, state.oldest_waiting] >= 0:
        state.oldest_waiting += 1
    strict = (
        state.oldest_waiting < state.submitted
        and state.now - jobs[SUBMIT, state.oldest_waiting] > caution.strict_after_s
    )
    before = state.duration_row
    state.duration_row = LIMIT if strict else caution.duration_row
    return bool(state.duration_row != before)


@inlined
def _order_queues(
    state: State, jobs: IntArray, outcome: IntArray, primary: IntArray, primary_key: FloatArray,
    secondary: IntArray, secondary_key: FloatArray, rule: Rule, primary_weights: FloatArray,
    secondary_weights: FloatArray, own_primary: Any, own_secondary: Any, caution: Any, shadow: Any,
    changes: bool,
) -> None:  # fmt: skip
    """Sort the primary queue if its keys change, else move late jobs to the front of the queues.

    ``changes`` is what `_thresholds_change` has returned. A secondary queue whose keys change is
    sorted only when a job is blocked.
    """
    if rule.primary.changes:
        sort_anew(
            state, jobs, outcome, primary, primary_key, state.primary, rule.primary,
            primary_weights, own_primary,
        )  # fmt: skip
    elif shadow is not None:
        if changes and let_late_ones_first_now(
            state, jobs, outcome, primary, primary_key, state.primary, rule.primary,
            primary_weights, own_primary, caution,
        ):  # fmt: skip
            state.blocked = state.ahead_job = -1
    elif rule.primary.threshold.seconds != NO_THRESHOLD:
        moved = let_late_ones_first(
            state, jobs, outcome, primary, primary_key, state.primary,
            rule.primary.threshold.seconds,
        )  # fmt: skip
        if caution is not None and moved and caution.keeps_free:
            state.blocked = state.ahead_job = -1
    if shadow is not None and changes and not (rule.one_queue or rule.secondary.changes):
        let_late_ones_first_now(
            state, jobs, outcome, secondary, secondary_key, state.secondary, rule.secondary,
            secondary_weights, own_secondary, caution,
        )  # fmt: skip


@inlined
def _tell_starts(
    state: State, jobs: IntArray, outcome: IntArray, running: IntArray, rule: Rule, shadow: Any,
    serial: int,
) -> None:  # fmt: skip
    """Tell EASY of the starts from a serial number on, and give late jobs their reason."""
    if shadow is not None:
        for k in range(serial, state.next_serial):
            job = running[BY_SERIAL, k]
            starts(shadow, outcome[EASY_NUMBER, job], outcome[START, job])
            if outcome[START, job] < state.now:
                continue
            late = is_late(jobs, job, state.now, rule.primary.threshold)
            if late and outcome[REASON, job] == IN_TURN:
                outcome[REASON, job] = WAS_LATE


@kernel
def dispatch(
    state: State, jobs: IntArray, outcome: IntArray, primary: IntArray, primary_key: FloatArray,
    secondary: IntArray, secondary_key: FloatArray, running: IntArray, dispatch_s: IntArray,
    dispatch_counts: NDArray[np.int32], rule: Rule, primary_weights: FloatArray,
    secondary_weights: FloatArray, own_primary: Any, own_secondary: Any, nodes: Any, deep: Any,
    caution: Any, tests: Any, shadow: Any,
) -> None:  # fmt: skip
    """One pass: start in the primary order, reserve, backfill in the secondary order."""
    now, queued, serial = state.now, state.queued, state.next_serial
    if rule.depth == REJECT:
        for k in range(state.primary.tail):
            outcome[REASON, primary[JOB, k]] = REJECTED
        state.queued = state.primary.tail = 0
        _record(state, dispatch_s, dispatch_counts, now, queued, 0, 0)
        return
    changes = False
    if shadow is not None:
        changes = _thresholds_change(state, jobs, outcome, running, rule, caution, tests, shadow)
    ended, ending = correct(state, jobs, outcome, running, rule.correction)
    still_running, best_fit = state.running - ended, rule.best_fit
    if caution is not None and _limits_change(state, jobs, outcome, caution):
        state.blocked = -1
        if nodes is not None:
            on_nodes.take_anew(
                state, jobs, outcome, caution, nodes, tests, primary, state.primary.tail
            )
            if not rule.one_queue:
                on_nodes.take_anew(
                    state, jobs, outcome, caution, nodes, tests, secondary, state.secondary.tail
                )
    _order_queues(
        state, jobs, outcome, primary, primary_key, secondary, secondary_key, rule, primary_weights,
        secondary_weights, own_primary, own_secondary, caution, shadow, changes,
    )  # fmt: skip
    is_sorted = rule.one_queue or not rule.secondary.changes
    if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
        # Where killing takes time, starts may be taken back: their jobs have to be in the queue.
        if not is_sorted and tests.state.stopped > 0 and tests.state.restart_cost_s > 0:
            sort_anew(
                state, jobs, outcome, secondary, secondary_key, state.secondary, rule.secondary,
                secondary_weights, own_secondary,
            )  # fmt: skip
            is_sorted = True
    head, entries, deciding = state.primary.head, state.entries, True
    while deciding:
        blocked, ahead = -1, False
        if tests is not None:
            ahead = tests.state.way == IN_FRONT
        if deep is not None:
            without_started(outcome, primary, primary_key, state.primary)
            if not rule.one_queue:
                without_started(outcome, secondary, secondary_key, state.secondary)
        elif ahead:
            if tests is not None:
                blocked = _start_tests_first(
                    state, jobs, outcome, running, caution, nodes, tests, primary, primary_key,
                    primary_weights, rule, best_fit,
                )  # fmt: skip
        elif nodes is None:
            on_pool.start_in_turn(state, jobs, outcome, running, caution, tests, primary, ending)
        else:
            on_nodes.lend(state, outcome, jobs, running, nodes, ended, 1)
            on_nodes.start_in_turn(
                state, jobs, outcome, running, caution, primary, nodes, tests, best_fit
            )
        if not ahead and state.primary.head < state.primary.tail:
            blocked = primary[JOB, state.primary.head]
        if blocked >= 0 and rule.depth > 0:
            if not is_sorted:
                sort_anew(
                    state, jobs, outcome, secondary, secondary_key, state.secondary, rule.secondary,
                    secondary_weights, own_secondary,
                )  # fmt: skip
            queue = primary if rule.one_queue else secondary
            size = state.primary.tail if rule.one_queue else state.secondary.tail
            if deep is not None:
                dispatch_deep(
                    state, jobs, outcome, running, primary, queue, nodes, deep, caution, rule.depth,
                    best_fit, ended,
                )  # fmt: skip
            elif nodes is None:
                if tests is None:
                    on_pool.backfill(
                        state, jobs, outcome, running, caution, None, queue, size, blocked, ended,
                        ending, -1, 0,
                    )  # fmt: skip
                else:
                    on_pool.backfill_and_test(
                        state, jobs, outcome, running, caution, tests, primary, queue, size,
                        blocked, ended, ending, rule, serial,
                    )  # fmt: skip
            else:
                low = state.primary.head if rule.one_queue else 0
                if tests is None:
                    on_nodes.backfill(
                        state, jobs, outcome, running, caution, queue, nodes, low, size, blocked,
                        ended, best_fit,
                    )  # fmt: skip
                else:
                    on_nodes.backfill_and_test(
                        state, jobs, outcome, running, caution, tests, primary, queue, nodes, low,
                        size, blocked, best_fit, rule,
                    )  # fmt: skip
        deciding = False
        if tests is not None:
            deciding = takes_back(
                state, jobs, outcome, running, primary, secondary, rule, nodes, caution, tests,
                serial, entries,
            )  # fmt: skip
            if deciding:
                state.primary.head = head
    if nodes is not None and deep is None:
        on_nodes.lend(state, outcome, jobs, running, nodes, ended, -1)
    if tests is not None:
        if shadow is not None:
            for k in range(tests.state.stopped):
                job = tests.table[STOPPED, k]
                if is_killed(outcome, tests, job):
                    starts(shadow, outcome[EASY_NUMBER, job], -1)
        settle(state, outcome, tests)
    if state.next_serial > serial:
        if caution is not None:
            on_nodes.settle(state, jobs, outcome, running, nodes, tests, serial)
        state.queued -= state.next_serial - serial
        state.blocked = -1
        tidy(state, outcome, primary, primary_key, state.primary)
        if not rule.one_queue:
            tidy(state, outcome, secondary, secondary_key, state.secondary)
    _tell_starts(state, jobs, outcome, running, rule, shadow, serial)
    state.submitted_before = state.submitted
    _record(
        state, dispatch_s, dispatch_counts, now, queued, still_running, state.next_serial - serial
    )
    if shadow is not None and dispatch_s.shape[0] > 0:
        dispatch_counts[3, state.dispatches - 1] = rule.secondary.threshold.seconds
    if tests is not None:
        clear(state, running, tests)


@kernel
def _start_tests_first(
    state: State, jobs: IntArray, outcome: IntArray, running: IntArray, caution: Any, nodes: Any,
    tests: Any, primary: IntArray, primary_key: FloatArray, weights: FloatArray, rule: Rule,
    best_fit: bool,
) -> int:  # fmt: skip
    """Start jobs in the primary order, in which tests have places of their own.

    Returns the first one that does not fit, -1 if there is none.
    """
    count, by_key = place_in_front(state, jobs, outcome, primary, tests, rule, weights)
    k, n, blocked = state.primary.head, 0, -1
    while blocked < 0:
        while k < state.primary.tail and (
            outcome[START, primary[JOB, k]] >= 0
            or may_be_tested(state, jobs, outcome, tests, primary[JOB, k], rule)
        ):
            k += 1
        testing = n < count
        if testing and k < state.primary.tail:
            other, waits = tests.chosen[n], primary[JOB, k]
            testing = primary_key[k] != -np.inf
            if testing and by_key:
                testing = goes_before(state, jobs, tests.key[n], other, primary_key[k], waits)
            elif testing and state.tiered:
                testing = jobs[TIER, other] >= jobs[TIER, waits]
        if not testing and k == state.primary.tail:
            break
        job = tests.chosen[n] if testing else primary[JOB, k]
        if nodes is None:
            need = jobs[NEED, job]
            starts_now = on_pool.starts_in_turn(
                state, jobs, outcome, running, caution, tests, job, need, 0, testing
            )
        else:
            starts_now = on_nodes.starts_in_turn(
                state, jobs, outcome, running, caution, nodes, tests, job, best_fit, testing
            )
        if not starts_now:
            blocked = job
        elif testing:
            n += 1
    while (
        state.primary.head < state.primary.tail
        and outcome[START, primary[JOB, state.primary.head]] >= 0
    ):
        state.primary.head += 1
    return int(blocked)


WITH_OWN = (
    go, dispatch, _order_queues, sort_anew, let_late_ones_first_now, enqueue, _offer, wait_again,
    lasting_key, key_under, key_of, key_of_own,
)  # fmt: skip
"""Kernels that are compiled anew for a user's own policy."""
