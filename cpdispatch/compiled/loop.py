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
from cpdispatch.compiled.gates import PASSED, come, give_back, let_pass
from cpdispatch.compiled.layout import (
    AHEAD_JOB,
    BEST_FIT,
    BLOCKED,
    BY_EVENT,
    BY_SERIAL,
    COMPLETED,
    CORRECTION,
    DEPTH,
    DISPATCH_LEFT,
    DISPATCHES,
    ENTRIES,
    EXPECTED,
    FIRST_SIZE,
    FREE,
    HEAD,
    HEAP_END,
    IN_TURN,
    IN_TURN_AFTER,
    JOB,
    KEEPS,
    KIND,
    LASTS,
    LIMIT,
    NEED,
    NEVER,
    NEXT,
    NO_ROOM,
    NONE_LATE,
    NOTHING_LEFT,
    NOW,
    OLDEST,
    ON_POOL,
    OUTLIVED,
    OVER,
    PATIENCE,
    PAUSED,
    PENDING,
    PREDICTED,
    PRIMARY,
    PRIMARY_CHANGES,
    QUEUE_LEFT,
    QUEUED,
    REASON,
    REJECT,
    REJECTED,
    REQUESTED,
    RUNNING,
    SAME,
    SECOND_SIZE,
    SECOND_THRESHOLD,
    SECONDARY,
    SECONDARY_CHANGES,
    SEEN,
    SERIAL,
    SHARE,
    START,
    STRICT,
    SUBMIT,
    THRESHOLD,
    TIER,
    TIERED,
    TURN,
    TURNS,
    UNPREDICTED,
    UPPER,
    USED_UP,
    USUAL,
    WAS_LATE,
    WHO,
    WIDE,
)
from cpdispatch.compiled.memory import Memory, expect
from cpdispatch.compiled.queue import (
    enqueue,
    goes_before,
    is_late,
    key_under,
    lasting_key,
    let_late_ones_first,
    let_late_ones_first_now,
    shortened,
    sort_anew,
    tidy,
    without_started,
)
from cpdispatch.compiled.running import complete, correct, lasts
from cpdispatch.compiled.shadow import TOLD, ends, follow, has_room, starts, submit
from cpdispatch.compiled.stopped import clear, is_killed, outlives, settle, takes_back, wait_again
from cpdispatch.compiled.test_runs import (
    AGAIN,
    ASKS,
    BEGAN,
    CLEARING,
    COST,
    FATE,
    IN_FRONT,
    KILLED,
    LIST,
    SAID,
    STOPPED,
    TESTED,
    TESTING,
    UNDER,
    WAITING,
    WAY,
    may_be_tested,
    no_test_any_more,
    place_in_front,
)
from cpdispatch.heuristics.policies import NO_THRESHOLD, key_of


@kernel
def go(
    at: IntArray, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, run: IntArray, times: IntArray,
    counts: NDArray[np.int32],
    memory: Memory, rule: IntArray, first_weights: FloatArray, second_weights: FloatArray,
    events: int, own_first: Any, own_second: Any, nodes: Any, deep: Any, care: Any, trials: Any,
    shadow: Any, gate: Any,
) -> int:  # fmt: skip
    """Go on for about so many events, or until somebody else has to act; why it stopped.

    See `layout.USED_UP` and what follows it there.

    Arguments may be None, and what they are for is then left out of the compiled code: a user's own
    policies; ``nodes`` on a processor pool; ``deep`` up to one reservation; ``care`` where jobs are
    taken to last as expected; ``trials`` where no job is tested; ``shadow`` where no wait is
    bounded; ``gate`` where the system has no limits.
    """
    jobs = given.shape[1]
    while events > 0:
        left, at[PAUSED] = at[PAUSED], NOTHING_LEFT
        if left == DISPATCH_LEFT:
            _tell(at, given, fate, shadow, gate)
            dispatch(
                at, given, fate, first, first_key, second, second_key, run, times, counts, rule,
                first_weights, second_weights, own_first, own_second, nodes, deep, care, trials,
                shadow,
            )  # fmt: skip
        submit = given[SUBMIT, at[NEXT]] if at[NEXT] < jobs else NEVER
        end = run[HEAP_END, 0] if at[PENDING] > 0 else NEVER
        if left != QUEUE_LEFT:
            if submit == NEVER and end == NEVER:
                return OVER
            at[NOW] = min(submit, end)
        now = at[NOW]
        by_event = rule[BY_EVENT] != 0
        submitting = submit == now and not (by_event and end < submit)
        completing = end == now and not (by_event and submitting)
        events -= 1
        while completing:
            at[BLOCKED] = -1
            waits = False
            if trials is not None:
                waits = outlives(at, given, fate, run, nodes, care, trials)
            if not waits:
                ended = complete(at, given, fate, run, memory)
                if gate is not None:
                    give_back(gate, ended)
                if trials is not None:
                    no_test_any_more(trials, ended)
                if nodes is not None:
                    on_nodes.end(at, fate, given, nodes, ended)
            completing = not by_event and at[PENDING] > 0 and run[HEAP_END, 0] == now
        if trials is not None:  # noqa: SIM102 - numba drops only what stands alone
            if trials.rule[WAITING] > 0:
                if trials.rule[ASKS] and trials.rule[STOPPED] > 0 and left != QUEUE_LEFT:
                    at[PAUSED] = QUEUE_LEFT
                    return OUTLIVED
                if shadow is not None:
                    for k in range(trials.rule[WAITING]):
                        job = trials.of[AGAIN, k]
                        if trials.of[BEGAN, job] < 0:
                            starts(shadow, fate[TURN, job], -1)
                wait_again(
                    at, given, fate, first, first_key, second, second_key, rule,
                    first_weights, second_weights, own_first, own_second, nodes, care, trials,
                    shadow,
                )  # fmt: skip
        came = submitting
        while submitting:
            job = at[NEXT]
            if job == at[PREDICTED]:
                return UNPREDICTED
            at[NEXT] += 1
            if fate[EXPECTED, job] == 0:
                fate[EXPECTED, job] = expect(memory, job, given[REQUESTED, job])
            if care is not None:
                fate[UPPER, job] = max(fate[UPPER, job], fate[EXPECTED, job])
                fate[LIMIT, job] = max(given[REQUESTED, job], fate[EXPECTED, job])
            if gate is None:
                _offer(
                    at, given, fate, first, first_key, second, second_key, rule, first_weights,
                    second_weights, own_first, own_second, nodes, care, shadow, job,
                )  # fmt: skip
            else:
                fate[START, job] = NEVER  # as if it had started: it is in no queue
                come(gate, job)
            submitting = not by_event and at[NEXT] < jobs and given[SUBMIT, at[NEXT]] == now
        if gate is not None:
            for k in range(let_pass(gate)):
                job = gate.passed[k]
                fate[START, job] = -1
                at[OLDEST] = min(at[OLDEST], job)
                _offer(
                    at, given, fate, first, first_key, second, second_key, rule, first_weights,
                    second_weights, own_first, own_second, nodes, care, shadow, job,
                )  # fmt: skip
        fits = True
        if by_event and came:
            job = at[NEXT] - 1
            fits = fate[START, job] < 0
            if fits:
                gone, ending = correct(at, given, fate, run, rule[CORRECTION])
                if nodes is None:
                    fits = given[NEED, job] <= at[FREE] + ending
                else:
                    on_nodes.lend(at, fate, given, run, nodes, gone, 1)
                    fits = on_nodes.job_fits(at, given, nodes, job)
                    on_nodes.lend(at, fate, given, run, nodes, gone, -1)
        if fits and at[QUEUED] > 0:
            if shadow is not None and not has_room(shadow, queued_anew(at, gate)):
                at[PAUSED] = DISPATCH_LEFT
                return NO_ROOM
            _tell(at, given, fate, shadow, gate)
            dispatch(
                at, given, fate, first, first_key, second, second_key, run, times, counts, rule,
                first_weights, second_weights, own_first, own_second, nodes, deep, care, trials,
                shadow,
            )  # fmt: skip
    return USED_UP


@inlined
def _offer(
    at: IntArray, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, rule: IntArray, first_weights: FloatArray,
    second_weights: FloatArray, own_first: Any, own_second: Any, nodes: Any, care: Any,
    shadow: Any, job: int,
) -> None:  # fmt: skip
    """Put a job that was submitted, and has passed the gate, into the queues."""
    if nodes is None:
        wants = given[NEED, job]
    else:
        wants = on_nodes.wanted(given[KIND, job], lasts(at, fate, care, job))
    if shadow is not None:
        due = given[SUBMIT, job] + shortened(rule[THRESHOLD], rule[WIDE], given[SHARE, job])
        at[NONE_LATE] = min(at[NONE_LATE], due)
    enqueue(
        at, given, fate, first, first_key, job,
        rule[PRIMARY], first_weights, rule[PRIMARY_CHANGES], own_first,
        FIRST_SIZE, wants, care,
    )  # fmt: skip
    if not rule[SAME]:
        enqueue(
            at, given, fate, second, second_key, job,
            rule[SECONDARY], second_weights, rule[SECONDARY_CHANGES], own_second,
            SECOND_SIZE, wants, care,
        )  # fmt: skip
    at[QUEUED] += 1
    if nodes is not None:
        on_nodes.wait(nodes, given[KIND, job], lasts(at, fate, care, job))


@inlined
def queued_anew(at: IntArray, gate: Any) -> int:
    """How many jobs have come into the queue that were not there at the last dispatch."""
    if gate is None:
        return int(at[NEXT] - at[SEEN])
    return int(gate.book[PASSED])


@inlined
def _tell(at: IntArray, given: IntArray, fate: IntArray, shadow: Any, gate: Any) -> None:
    """Tell EASY of the jobs that have come into the queue. There must be room for them."""
    if shadow is not None:
        for k in range(queued_anew(at, gate)):
            job = at[SEEN] + k
            if gate is not None:
                job = gate.passed[k]
            fate[TURN, job] = at[TURNS]
            submit(
                shadow, at[TURNS], given[SUBMIT, job], given[ON_POOL, job], given[REQUESTED, job]
            )
            at[TURNS] += 1


@inlined
def _record(
    at: IntArray, times: IntArray, counts: NDArray[np.int32], now: int, queued: int, running: int,
    started: int,
) -> None:  # fmt: skip
    """Keep a record of a dispatch, where there is room for records."""
    row = at[DISPATCHES]
    if times.shape[0] > 0:
        times[row], counts[0, row] = now, queued
        counts[1, row], counts[2, row] = running, started
    at[DISPATCHES] += 1


@inlined
def _thresholds_change(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, rule: IntArray, care: Any,
    trials: Any, shadow: Any,
) -> bool:  # fmt: skip
    """Follow EASY up to now, and take the thresholds from the longest wait under it.

    Returns whether any job may have become late, or be late no more. When jobs ended between two
    dispatches is told as a dispatcher may know it, see `cpdispatch.bounded.ended_s`.
    """
    now, before = at[NOW], shadow.at[NOW]
    for k in range(shadow.book[TOLD], at[SERIAL] - at[PENDING]):
        job = run[COMPLETED, k]
        if job < 0:
            shadow.book[TOLD] += 1
            continue
        start, expected, requested = fate[START, job], fate[EXPECTED, job], given[REQUESTED, job]
        if trials is not None:
            if trials.of[SAID, job] > 0:
                expected = trials.of[SAID, job]
            if trials.of[FATE, job] == KILLED:
                requested -= trials.rule[COST]
        end = min(max(max(before, start), start + expected), now)
        ends(shadow, fate[TURN, job], max(end - start, 1), given[ON_POOL, job], requested)
    if trials is not None:
        for k in range(trials.rule[TESTED]):
            job = trials.of[UNDER, k]
            if trials.of[TESTING, job] == CLEARING:
                starts(shadow, fate[TURN, job], fate[START, job])
    work = 0
    for k in range(at[RUNNING]):
        job = run[JOB, k]
        work += given[ON_POOL, job] * (now - fate[START, job])
    longest = follow(shadow, now, work)
    changes = longest != rule[SECOND_THRESHOLD] or now > at[NONE_LATE]
    rule[SECOND_THRESHOLD] = longest
    rule[THRESHOLD] = longest * rule[IN_TURN_AFTER] // 1000
    if care is not None:
        care[STRICT] = care[PATIENCE] = rule[THRESHOLD]
    if changes:
        at[NONE_LATE] = NEVER
    return bool(changes)


@inlined
def _limits_change(at: IntArray, given: IntArray, fate: IntArray, care: IntArray) -> bool:
    """Take jobs to last as requested once one has waited too long, else as they probably do.

    Returns whether this is another limit than before.
    """
    while at[OLDEST] < at[NEXT] and fate[START, at[OLDEST]] >= 0:
        at[OLDEST] += 1
    strict = at[OLDEST] < at[NEXT] and at[NOW] - given[SUBMIT, at[OLDEST]] > care[STRICT]
    before = at[LASTS]
    at[LASTS] = LIMIT if strict else care[USUAL]
    return bool(at[LASTS] != before)


@kernel
def dispatch(
    at: IntArray, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, run: IntArray, times: IntArray,
    counts: NDArray[np.int32],
    rule: IntArray, first_weights: FloatArray, second_weights: FloatArray,
    own_first: Any, own_second: Any, nodes: Any, deep: Any, care: Any, trials: Any, shadow: Any,
) -> None:  # fmt: skip
    """One pass: start in the primary order, reserve, backfill in the secondary order."""
    now, queued, serial = at[NOW], at[QUEUED], at[SERIAL]
    if rule[DEPTH] == REJECT:
        for k in range(at[FIRST_SIZE]):
            fate[REASON, first[WHO, k]] = REJECTED
        at[QUEUED] = at[FIRST_SIZE] = 0
        _record(at, times, counts, now, queued, 0, 0)
        return
    changes = False
    if shadow is not None:
        changes = _thresholds_change(at, given, fate, run, rule, care, trials, shadow)
    ended, ending = correct(at, given, fate, run, rule[CORRECTION])
    running, best_fit = at[RUNNING] - ended, rule[BEST_FIT] != 0
    if care is not None and _limits_change(at, given, fate, care):
        at[BLOCKED] = -1
        if nodes is not None:
            on_nodes.take_anew(at, given, fate, care, nodes, trials, first, at[FIRST_SIZE])
            if not rule[SAME]:
                on_nodes.take_anew(at, given, fate, care, nodes, trials, second, at[SECOND_SIZE])
    if rule[PRIMARY_CHANGES]:
        sort_anew(
            at, given, fate, first, first_key,
            rule[PRIMARY], first_weights, rule[THRESHOLD], rule[WIDE], own_first, FIRST_SIZE,
        )  # fmt: skip
    elif shadow is not None:
        if changes and let_late_ones_first_now(
            at, given, fate, first, first_key, rule[PRIMARY], first_weights,
            rule[THRESHOLD], rule[WIDE], own_first, care, FIRST_SIZE,
        ):  # fmt: skip
            at[BLOCKED] = at[AHEAD_JOB] = -1
    elif rule[THRESHOLD] != NO_THRESHOLD:
        moved = let_late_ones_first(at, given, fate, first, first_key, rule[THRESHOLD])
        if care is not None and moved and care[KEEPS]:
            at[BLOCKED] = at[AHEAD_JOB] = -1
    if shadow is not None and changes and not (rule[SAME] or rule[SECONDARY_CHANGES]):
        let_late_ones_first_now(
            at, given, fate, second, second_key, rule[SECONDARY], second_weights,
            rule[SECOND_THRESHOLD], rule[WIDE], own_second, care, SECOND_SIZE,
        )  # fmt: skip
    is_sorted = rule[SAME] or not rule[SECONDARY_CHANGES]
    if trials is not None:  # noqa: SIM102 - numba drops only what stands alone
        # Where killing takes time, starts may be taken back: their jobs have to be in the queue.
        if not is_sorted and trials.rule[STOPPED] > 0 and trials.rule[COST] > 0:
            sort_anew(
                at, given, fate, second, second_key, rule[SECONDARY], second_weights,
                rule[SECOND_THRESHOLD], rule[WIDE], own_second, SECOND_SIZE,
            )  # fmt: skip
            is_sorted = True
    head, entries, deciding = at[HEAD], at[ENTRIES], True
    while deciding:
        blocked, ahead = -1, False
        if trials is not None:
            ahead = trials.rule[WAY] == IN_FRONT
        if deep is not None:
            without_started(at, fate, first, first_key, FIRST_SIZE)
            if not rule[SAME]:
                without_started(at, fate, second, second_key, SECOND_SIZE)
        elif ahead:
            if trials is not None:
                blocked = _start_tests_first(
                    at, given, fate, run, care, nodes, trials, first, first_key, first_weights,
                    rule, best_fit,
                )  # fmt: skip
        elif nodes is None:
            on_pool.start_in_turn(at, given, fate, run, care, trials, first, ending)
        else:
            on_nodes.lend(at, fate, given, run, nodes, ended, 1)
            on_nodes.start_in_turn(at, given, fate, run, care, first, nodes, trials, best_fit)
        if not ahead and at[HEAD] < at[FIRST_SIZE]:
            blocked = first[WHO, at[HEAD]]
        if blocked >= 0 and rule[DEPTH] > 0:
            if not is_sorted:
                sort_anew(
                    at, given, fate, second, second_key, rule[SECONDARY], second_weights,
                    rule[SECOND_THRESHOLD], rule[WIDE], own_second, SECOND_SIZE,
                )  # fmt: skip
            queue = first if rule[SAME] else second
            size = at[FIRST_SIZE] if rule[SAME] else at[SECOND_SIZE]
            if deep is not None:
                dispatch_deep(
                    at,
                    given,
                    fate,
                    run,
                    first,
                    queue,
                    nodes,
                    deep,
                    care,
                    rule[DEPTH],
                    best_fit,
                    ended,
                )
            elif nodes is None:
                if trials is None:
                    on_pool.backfill(
                        at, given, fate, run, care, None, queue, size, blocked, ended, ending, -1, 0
                    )
                else:
                    on_pool.backfill_and_test(
                        at, given, fate, run, care, trials, first, queue, size, blocked, ended,
                        ending, rule, serial,
                    )  # fmt: skip
            else:
                low = at[HEAD] if rule[SAME] else 0
                if trials is None:
                    on_nodes.backfill(
                        at, given, fate, run, care, queue, nodes, low, size, blocked, ended,
                        best_fit,
                    )  # fmt: skip
                else:
                    on_nodes.backfill_and_test(
                        at, given, fate, run, care, trials, first, queue, nodes, low, size,
                        blocked, best_fit, rule,
                    )  # fmt: skip
        deciding = False
        if trials is not None:
            deciding = takes_back(
                at, given, fate, run, first, second, rule, nodes, care, trials, serial, entries
            )
            if deciding:
                at[HEAD] = head
    if nodes is not None and deep is None:
        on_nodes.lend(at, fate, given, run, nodes, ended, -1)
    if trials is not None:
        if shadow is not None:
            for k in range(trials.rule[STOPPED]):
                job = trials.of[LIST, k]
                if is_killed(fate, trials, job):
                    starts(shadow, fate[TURN, job], -1)
        settle(at, fate, trials)
    if at[SERIAL] > serial:
        if care is not None:
            on_nodes.settle(at, given, fate, run, nodes, trials, serial)
        at[QUEUED] -= at[SERIAL] - serial
        at[BLOCKED] = -1
        tidy(at, fate, first, first_key, FIRST_SIZE)
        if not rule[SAME]:
            tidy(at, fate, second, second_key, SECOND_SIZE)
    if shadow is not None:
        for k in range(serial, at[SERIAL]):
            job = run[BY_SERIAL, k]
            starts(shadow, fate[TURN, job], fate[START, job])
            if fate[START, job] < now:
                continue
            late = is_late(given, job, now, rule[THRESHOLD], rule[WIDE])
            if late and fate[REASON, job] == IN_TURN:
                fate[REASON, job] = WAS_LATE
    at[SEEN] = at[NEXT]
    _record(at, times, counts, now, queued, running, at[SERIAL] - serial)
    if shadow is not None and times.shape[0] > 0:
        counts[3, at[DISPATCHES] - 1] = rule[SECOND_THRESHOLD]
    if trials is not None:
        clear(at, run, trials)


@kernel
def _start_tests_first(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, nodes: Any,
    trials: Any, first: IntArray, first_key: FloatArray, weights: FloatArray, rule: IntArray,
    best_fit: bool,
) -> int:  # fmt: skip
    """Start jobs in the primary order, in which tests have places of their own.

    Returns the first one that does not fit, -1 if there is none.
    """
    count, by_key = place_in_front(at, given, fate, first, trials, rule, weights)
    k, n, blocked = at[HEAD], 0, -1
    while blocked < 0:
        while k < at[FIRST_SIZE] and (
            fate[START, first[WHO, k]] >= 0
            or may_be_tested(at, given, fate, trials, first[WHO, k], rule)
        ):
            k += 1
        testing = n < count
        if testing and k < at[FIRST_SIZE]:
            other, waits = trials.chosen[n], first[WHO, k]
            testing = first_key[k] != -np.inf
            if testing and by_key:
                testing = goes_before(at, given, trials.key[n], other, first_key[k], waits)
            elif testing and at[TIERED]:
                testing = given[TIER, other] >= given[TIER, waits]
        if not testing and k == at[FIRST_SIZE]:
            break
        job = trials.chosen[n] if testing else first[WHO, k]
        if nodes is None:
            need = given[NEED, job]
            starts_now = on_pool.starts_in_turn(
                at, given, fate, run, care, trials, job, need, 0, testing
            )
        else:
            starts_now = on_nodes.starts_in_turn(
                at, given, fate, run, care, nodes, trials, job, best_fit, testing
            )
        if not starts_now:
            blocked = job
        elif testing:
            n += 1
    while at[HEAD] < at[FIRST_SIZE] and fate[START, first[WHO, at[HEAD]]] >= 0:
        at[HEAD] += 1
    return int(blocked)


WITH_OWN = (
    go, dispatch, sort_anew, let_late_ones_first_now, enqueue, _offer, wait_again, lasting_key,
    key_under, key_of,
)  # fmt: skip
"""Kernels that are compiled anew for a user's own policy."""
