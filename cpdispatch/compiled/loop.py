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
    TURN,
    UNPREDICTED,
    UPPER,
    USED_UP,
    WAS_LATE,
    WHO,
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
    AGAIN,
    BEGAN,
    CLEARING,
    FATE,
    IN_FRONT,
    KILLED,
    LIST,
    SAID,
    TESTING,
    UNDER,
    may_be_tested,
    no_test_any_more,
    place_in_front,
)
from cpdispatch.heuristics.policies import NO_THRESHOLD, key_of


@kernel
def go(
    state: State, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, run: IntArray, times: IntArray,
    counts: NDArray[np.int32],
    memory: Memory, rule: Rule, first_weights: FloatArray, second_weights: FloatArray,
    events: int, own_first: Any, own_second: Any, nodes: Any, deep: Any, caution: Any, trials: Any,
    shadow: Any, gate: Any,
) -> int:  # fmt: skip
    """Go on for about so many events, or until somebody else has to act; why it stopped.

    See `layout.USED_UP` and what follows it there.

    Arguments may be None, and what they are for is then left out of the compiled code: a user's own
    policies; ``nodes`` on a processor pool; ``deep`` up to one reservation; ``caution`` where jobs
    are taken to last as expected; ``trials`` where no job is tested; ``shadow`` where no wait is
    bounded; ``gate`` where the system has no limits.
    """
    jobs = given.shape[1]
    while events > 0:
        left, state.left_to_do = state.left_to_do, NOTHING_LEFT
        if left == DISPATCH_LEFT:
            _tell(state, given, fate, shadow, gate)
            dispatch(
                state, given, fate, first, first_key, second, second_key, run, times, counts, rule,
                first_weights, second_weights, own_first, own_second, nodes, deep, caution, trials,
                shadow,
            )  # fmt: skip
        submit = given[SUBMIT, state.submitted] if state.submitted < jobs else NEVER
        end = run[HEAP_END, 0] if state.pending > 0 else NEVER
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
            if trials is not None:
                waits = outlives(state, given, fate, run, nodes, caution, trials)
            if not waits:
                ended = complete(state, given, fate, run, memory)
                if gate is not None:
                    give_back(gate, ended)
                if trials is not None:
                    no_test_any_more(trials, ended)
                if nodes is not None:
                    on_nodes.end(state, fate, given, nodes, ended)
            completing = not by_event and state.pending > 0 and run[HEAP_END, 0] == now
        if trials is not None:  # noqa: SIM102 - numba drops only what stands alone
            if trials.state.requeued > 0:
                if trials.state.asks and trials.state.stopped > 0 and left != QUEUE_LEFT:
                    state.left_to_do = QUEUE_LEFT
                    return OUTLIVED
                if shadow is not None:
                    for k in range(trials.state.requeued):
                        job = trials.of[AGAIN, k]
                        if trials.of[BEGAN, job] < 0:
                            starts(shadow, fate[TURN, job], -1)
                wait_again(
                    state, given, fate, first, first_key, second, second_key, rule,
                    first_weights, second_weights, own_first, own_second, nodes, caution, trials,
                    shadow,
                )  # fmt: skip
        came = submitting
        while submitting:
            job = state.submitted
            if job == state.predicted:
                return UNPREDICTED
            state.submitted += 1
            if fate[EXPECTED, job] == 0:
                fate[EXPECTED, job] = expect(memory, job, given[REQUESTED, job])
            if caution is not None:
                fate[UPPER, job] = max(fate[UPPER, job], fate[EXPECTED, job])
                fate[LIMIT, job] = max(given[REQUESTED, job], fate[EXPECTED, job])
            if gate is None:
                _offer(
                    state, given, fate, first, first_key, second, second_key, rule, first_weights,
                    second_weights, own_first, own_second, nodes, caution, shadow, job,
                )  # fmt: skip
            else:
                fate[START, job] = NEVER  # as if it had started: it is in no queue
                come(gate, job)
            submitting = (
                not by_event and state.submitted < jobs and given[SUBMIT, state.submitted] == now
            )
        if gate is not None:
            for k in range(let_pass(gate)):
                job = gate.passed[k]
                fate[START, job] = -1
                state.oldest_waiting = min(state.oldest_waiting, job)
                _offer(
                    state, given, fate, first, first_key, second, second_key, rule, first_weights,
                    second_weights, own_first, own_second, nodes, caution, shadow, job,
                )  # fmt: skip
        fits = True
        if by_event and came:
            job = state.submitted - 1
            fits = fate[START, job] < 0
            if fits:
                gone, ending = correct(state, given, fate, run, rule.correction)
                if nodes is None:
                    fits = given[NEED, job] <= state.free + ending
                else:
                    on_nodes.lend(state, fate, given, run, nodes, gone, 1)
                    fits = on_nodes.job_fits(state, given, nodes, job)
                    on_nodes.lend(state, fate, given, run, nodes, gone, -1)
        if fits and state.queued > 0:
            if shadow is not None and not has_room(shadow, queued_anew(state, gate)):
                state.left_to_do = DISPATCH_LEFT
                return NO_ROOM
            _tell(state, given, fate, shadow, gate)
            dispatch(
                state, given, fate, first, first_key, second, second_key, run, times, counts, rule,
                first_weights, second_weights, own_first, own_second, nodes, deep, caution, trials,
                shadow,
            )  # fmt: skip
    return USED_UP


@inlined
def _offer(
    state: State, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, rule: Rule, first_weights: FloatArray,
    second_weights: FloatArray, own_first: Any, own_second: Any, nodes: Any, caution: Any,
    shadow: Any, job: int,
) -> None:  # fmt: skip
    """Put a job that was submitted, and has passed the gate, into the queues."""
    if nodes is None:
        wants = given[NEED, job]
    else:
        wants = on_nodes.wanted(given[KIND, job], lasts(state, fate, caution, job))
    if shadow is not None:
        after = late_after(given, job, rule.primary.threshold)
        state.none_late_until = min(state.none_late_until, after)
    enqueue(
        state, given, fate, first, first_key, job, wants, state.primary, rule.primary,
        first_weights, own_first, caution,
    )  # fmt: skip
    if not rule.one_queue:
        enqueue(
            state, given, fate, second, second_key, job, wants, state.secondary,
            rule.secondary, second_weights, own_second, caution,
        )  # fmt: skip
    state.queued += 1
    if nodes is not None:
        on_nodes.wait(nodes, given[KIND, job], lasts(state, fate, caution, job))


@inlined
def queued_anew(state: State, gate: Any) -> int:
    """How many jobs have come into the queue that were not there at the last dispatch."""
    if gate is None:
        return int(state.submitted - state.submitted_before)
    return int(gate.state.passed)


@inlined
def _tell(state: State, given: IntArray, fate: IntArray, shadow: Any, gate: Any) -> None:
    """Tell EASY of the jobs that have come into the queue. There must be room for them."""
    if shadow is not None:
        for k in range(queued_anew(state, gate)):
            job = state.submitted_before + k
            if gate is not None:
                job = gate.passed[k]
            fate[TURN, job] = state.easy_numbers
            submit(
                shadow,
                state.easy_numbers,
                given[SUBMIT, job],
                given[ON_POOL, job],
                given[REQUESTED, job],
            )
            state.easy_numbers += 1


@inlined
def _record(
    state: State, times: IntArray, counts: NDArray[np.int32], now: int, queued: int, running: int,
    started: int,
) -> None:  # fmt: skip
    """Keep a record of a dispatch, where there is room for records."""
    row = state.dispatches
    if times.shape[0] > 0:
        times[row], counts[0, row] = now, queued
        counts[1, row], counts[2, row] = running, started
    state.dispatches += 1


@inlined
def _thresholds_change(
    state: State, given: IntArray, fate: IntArray, run: IntArray, rule: Rule, caution: Any,
    trials: Any, shadow: Any,
) -> bool:  # fmt: skip
    """Follow EASY up to now, and take the thresholds from the longest wait under it.

    Returns whether any job may have become late, or be late no more. When jobs ended between two
    dispatches is told as a dispatcher may know it, see `cpdispatch.bounded.ended_s`.
    """
    now, before = state.now, shadow.state.now
    for k in range(shadow.totals.ends_told, state.next_serial - state.pending):
        job = run[COMPLETED, k]
        if job < 0:
            shadow.totals.ends_told += 1
            continue
        start, expected, requested = fate[START, job], fate[EXPECTED, job], given[REQUESTED, job]
        if trials is not None:
            if trials.of[SAID, job] > 0:
                expected = trials.of[SAID, job]
            if trials.of[FATE, job] == KILLED:
                requested -= trials.state.restart_cost_s
        end = min(max(max(before, start), start + expected), now)
        ends(shadow, fate[TURN, job], max(end - start, 1), given[ON_POOL, job], requested)
    if trials is not None:
        for k in range(trials.state.tested):
            job = trials.of[UNDER, k]
            if trials.of[TESTING, job] == CLEARING:
                starts(shadow, fate[TURN, job], fate[START, job])
    work = 0
    for k in range(state.running):
        job = run[JOB, k]
        work += given[ON_POOL, job] * (now - fate[START, job])
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
def _limits_change(state: State, given: IntArray, fate: IntArray, caution: Any) -> bool:
    """Take jobs to last as requested once one has waited too long, else as they probably do.

    Returns whether this is another limit than before.
    """
    while state.oldest_waiting < state.submitted and fate[START, state.oldest_waiting] >= 0:
        state.oldest_waiting += 1
    strict = (
        state.oldest_waiting < state.submitted
        and state.now - given[SUBMIT, state.oldest_waiting] > caution.strict_after_s
    )
    before = state.duration_row
    state.duration_row = LIMIT if strict else caution.duration_row
    return bool(state.duration_row != before)


@kernel
def dispatch(
    state: State, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, run: IntArray, times: IntArray,
    counts: NDArray[np.int32],
    rule: Rule, first_weights: FloatArray, second_weights: FloatArray,
    own_first: Any, own_second: Any, nodes: Any, deep: Any, caution: Any, trials: Any, shadow: Any,
) -> None:  # fmt: skip
    """One pass: start in the primary order, reserve, backfill in the secondary order."""
    now, queued, serial = state.now, state.queued, state.next_serial
    if rule.depth == REJECT:
        for k in range(state.primary.tail):
            fate[REASON, first[WHO, k]] = REJECTED
        state.queued = state.primary.tail = 0
        _record(state, times, counts, now, queued, 0, 0)
        return
    changes = False
    if shadow is not None:
        changes = _thresholds_change(state, given, fate, run, rule, caution, trials, shadow)
    ended, ending = correct(state, given, fate, run, rule.correction)
    running, best_fit = state.running - ended, rule.best_fit
    if caution is not None and _limits_change(state, given, fate, caution):
        state.blocked = -1
        if nodes is not None:
            on_nodes.take_anew(
                state, given, fate, caution, nodes, trials, first, state.primary.tail
            )
            if not rule.one_queue:
                on_nodes.take_anew(
                    state, given, fate, caution, nodes, trials, second, state.secondary.tail
                )
    if rule.primary.changes:
        sort_anew(
            state, given, fate, first, first_key,
            state.primary, rule.primary, first_weights, own_first,
        )  # fmt: skip
    elif shadow is not None:
        if changes and let_late_ones_first_now(
            state, given, fate, first, first_key, state.primary, rule.primary, first_weights,
            own_first, caution,
        ):  # fmt: skip
            state.blocked = state.ahead_job = -1
    elif rule.primary.threshold.seconds != NO_THRESHOLD:
        moved = let_late_ones_first(
            state, given, fate, first, first_key, state.primary, rule.primary.threshold.seconds
        )
        if caution is not None and moved and caution.keeps_free:
            state.blocked = state.ahead_job = -1
    if shadow is not None and changes and not (rule.one_queue or rule.secondary.changes):
        let_late_ones_first_now(
            state, given, fate, second, second_key, state.secondary, rule.secondary,
            second_weights, own_second, caution,
        )  # fmt: skip
    is_sorted = rule.one_queue or not rule.secondary.changes
    if trials is not None:  # noqa: SIM102 - numba drops only what stands alone
        # Where killing takes time, starts may be taken back: their jobs have to be in the queue.
        if not is_sorted and trials.state.stopped > 0 and trials.state.restart_cost_s > 0:
            sort_anew(
                state, given, fate, second, second_key, state.secondary, rule.secondary,
                second_weights, own_second,
            )  # fmt: skip
            is_sorted = True
    head, entries, deciding = state.primary.head, state.entries, True
    while deciding:
        blocked, ahead = -1, False
        if trials is not None:
            ahead = trials.state.way == IN_FRONT
        if deep is not None:
            without_started(fate, first, first_key, state.primary)
            if not rule.one_queue:
                without_started(fate, second, second_key, state.secondary)
        elif ahead:
            if trials is not None:
                blocked = _start_tests_first(
                    state, given, fate, run, caution, nodes, trials, first, first_key,
                    first_weights, rule, best_fit,
                )  # fmt: skip
        elif nodes is None:
            on_pool.start_in_turn(state, given, fate, run, caution, trials, first, ending)
        else:
            on_nodes.lend(state, fate, given, run, nodes, ended, 1)
            on_nodes.start_in_turn(state, given, fate, run, caution, first, nodes, trials, best_fit)
        if not ahead and state.primary.head < state.primary.tail:
            blocked = first[WHO, state.primary.head]
        if blocked >= 0 and rule.depth > 0:
            if not is_sorted:
                sort_anew(
                    state, given, fate, second, second_key, state.secondary, rule.secondary,
                    second_weights, own_second,
                )  # fmt: skip
            queue = first if rule.one_queue else second
            size = state.primary.tail if rule.one_queue else state.secondary.tail
            if deep is not None:
                dispatch_deep(
                    state,
                    given,
                    fate,
                    run,
                    first,
                    queue,
                    nodes,
                    deep,
                    caution,
                    rule.depth,
                    best_fit,
                    ended,
                )
            elif nodes is None:
                if trials is None:
                    on_pool.backfill(
                        state,
                        given,
                        fate,
                        run,
                        caution,
                        None,
                        queue,
                        size,
                        blocked,
                        ended,
                        ending,
                        -1,
                        0,
                    )
                else:
                    on_pool.backfill_and_test(
                        state, given, fate, run, caution, trials, first, queue, size, blocked,
                        ended, ending, rule, serial,
                    )  # fmt: skip
            else:
                low = state.primary.head if rule.one_queue else 0
                if trials is None:
                    on_nodes.backfill(
                        state, given, fate, run, caution, queue, nodes, low, size, blocked, ended,
                        best_fit,
                    )  # fmt: skip
                else:
                    on_nodes.backfill_and_test(
                        state, given, fate, run, caution, trials, first, queue, nodes, low, size,
                        blocked, best_fit, rule,
                    )  # fmt: skip
        deciding = False
        if trials is not None:
            deciding = takes_back(
                state,
                given,
                fate,
                run,
                first,
                second,
                rule,
                nodes,
                caution,
                trials,
                serial,
                entries,
            )
            if deciding:
                state.primary.head = head
    if nodes is not None and deep is None:
        on_nodes.lend(state, fate, given, run, nodes, ended, -1)
    if trials is not None:
        if shadow is not None:
            for k in range(trials.state.stopped):
                job = trials.of[LIST, k]
                if is_killed(fate, trials, job):
                    starts(shadow, fate[TURN, job], -1)
        settle(state, fate, trials)
    if state.next_serial > serial:
        if caution is not None:
            on_nodes.settle(state, given, fate, run, nodes, trials, serial)
        state.queued -= state.next_serial - serial
        state.blocked = -1
        tidy(state, fate, first, first_key, state.primary)
        if not rule.one_queue:
            tidy(state, fate, second, second_key, state.secondary)
    if shadow is not None:
        for k in range(serial, state.next_serial):
            job = run[BY_SERIAL, k]
            starts(shadow, fate[TURN, job], fate[START, job])
            if fate[START, job] < now:
                continue
            late = is_late(given, job, now, rule.primary.threshold)
            if late and fate[REASON, job] == IN_TURN:
                fate[REASON, job] = WAS_LATE
    state.submitted_before = state.submitted
    _record(state, times, counts, now, queued, running, state.next_serial - serial)
    if shadow is not None and times.shape[0] > 0:
        counts[3, state.dispatches - 1] = rule.secondary.threshold.seconds
    if trials is not None:
        clear(state, run, trials)


@kernel
def _start_tests_first(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, nodes: Any,
    trials: Any, first: IntArray, first_key: FloatArray, weights: FloatArray, rule: Rule,
    best_fit: bool,
) -> int:  # fmt: skip
    """Start jobs in the primary order, in which tests have places of their own.

    Returns the first one that does not fit, -1 if there is none.
    """
    count, by_key = place_in_front(state, given, fate, first, trials, rule, weights)
    k, n, blocked = state.primary.head, 0, -1
    while blocked < 0:
        while k < state.primary.tail and (
            fate[START, first[WHO, k]] >= 0
            or may_be_tested(state, given, fate, trials, first[WHO, k], rule)
        ):
            k += 1
        testing = n < count
        if testing and k < state.primary.tail:
            other, waits = trials.chosen[n], first[WHO, k]
            testing = first_key[k] != -np.inf
            if testing and by_key:
                testing = goes_before(state, given, trials.key[n], other, first_key[k], waits)
            elif testing and state.tiered:
                testing = given[TIER, other] >= given[TIER, waits]
        if not testing and k == state.primary.tail:
            break
        job = trials.chosen[n] if testing else first[WHO, k]
        if nodes is None:
            need = given[NEED, job]
            starts_now = on_pool.starts_in_turn(
                state, given, fate, run, caution, trials, job, need, 0, testing
            )
        else:
            starts_now = on_nodes.starts_in_turn(
                state, given, fate, run, caution, nodes, trials, job, best_fit, testing
            )
        if not starts_now:
            blocked = job
        elif testing:
            n += 1
    while (
        state.primary.head < state.primary.tail and fate[START, first[WHO, state.primary.head]] >= 0
    ):
        state.primary.head += 1
    return int(blocked)


WITH_OWN = (
    go, dispatch, sort_anew, let_late_ones_first_now, enqueue, _offer, wait_again, lasting_key,
    key_under, key_of,
)  # fmt: skip
"""Kernels that are compiled anew for a user's own policy."""
