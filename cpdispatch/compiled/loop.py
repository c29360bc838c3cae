"""The loop of a compiled replay over events, and one dispatch."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    WAITS,
    WAS_LATE,
    Dispatches,
    Own,
    State,
    Tables,
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
from cpdispatch.compiled.running import complete, correct
from cpdispatch.compiled.shadow import ends, follow, has_room, starts, submit
from cpdispatch.compiled.stopped import clear, is_killed, outlives, settle, takes_back
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
    Tests,
    due_of,
    is_past_tests,
    line_up_newcomers,
    may_be_tested,
    no_test_any_more,
    note_newcomer,
)
from cpdispatch.heuristics.policies import NO_THRESHOLD, key_of, key_of_own


@kernel
def go(
    tables: Tables, memory: Memory, dispatches: Dispatches, events: int, own: Own, nodes: Any,
    deep: Any, caution: Any, tests: Any, shadow: Any, gate: Any,
) -> int:  # fmt: skip
    """Go on for about so many events, or until somebody else has to act; why it stopped.

    See `layout.USED_UP` and what follows it there.

    Arguments may be None, and what they are for is then left out of the compiled code: ``nodes`` on
    a processor pool; ``deep`` up to one reservation; ``caution`` where jobs are taken to last as
    expected; ``tests`` where no job is tested; ``shadow`` where no wait is bounded; ``gate`` where
    the system has no limits.
    """
    state, by_event = tables.state, tables.rule.by_event
    while events > 0:
        left, state.left_to_do = state.left_to_do, NOTHING_LEFT
        if left == DISPATCH_LEFT:
            _tell(tables, shadow, gate)
            dispatch(tables, dispatches, own, nodes, deep, caution, tests, shadow)
        comes, end = _next_submission(tables), NEVER
        if state.pending > 0:
            end = tables.running[HEAP_END, 0]
        if left != QUEUE_LEFT:
            if comes == NEVER and end == NEVER:
                return OVER
            state.now = min(comes, end)
        submitting = comes == state.now and not (by_event and end < comes)
        events -= 1
        if end == state.now and not (by_event and submitting):
            _complete(tables, memory, nodes, caution, tests, gate)
        if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
            if tests.state.requeued > 0:
                if tests.state.asks and tests.state.stopped > 0 and left != QUEUE_LEFT:
                    state.left_to_do = QUEUE_LEFT
                    return OUTLIVED
                _wait_again(tables, own, nodes, caution, tests, shadow)
        if submitting and not _submit(tables, memory, own, nodes, caution, tests, shadow, gate):
            return UNPREDICTED
        if gate is not None:
            for k in range(let_pass(gate)):
                job = gate.passed[k]
                tables.outcome[START, job] = -1
                state.oldest_waiting = min(state.oldest_waiting, job)
                _offer(tables, own, nodes, caution, tests, shadow, job)
        if by_event and submitting and not _last_may_start(tables, nodes):
            continue
        if state.queued > 0:
            if shadow is not None and not has_room(shadow, queued_anew(state, gate)):
                state.left_to_do = DISPATCH_LEFT
                return NO_ROOM
            _tell(tables, shadow, gate)
            dispatch(tables, dispatches, own, nodes, deep, caution, tests, shadow)
    return USED_UP


@inlined
def _next_submission(tables: Tables) -> int:
    """When the next job is submitted, `NEVER` if none is."""
    number = tables.state.submitted
    return int(tables.jobs[SUBMIT, number]) if number < tables.jobs.shape[1] else NEVER


@inlined
def _complete(
    tables: Tables, memory: Memory, nodes: Any, caution: Any, tests: Any, gate: Any
) -> None:
    """Deal with the completions of this instant; with the first alone under the trigger `event`."""
    state, completing = tables.state, True
    while completing:
        state.blocked = -1
        waits = False
        if tests is not None:
            waits = outlives(tables, nodes, caution, tests)
        if not waits:
            ended = complete(tables, memory)
            if gate is not None:
                give_back(gate, ended)
            if tests is not None:
                no_test_any_more(tests, ended)
            if nodes is not None:
                on_nodes.end(tables, nodes, ended)
        completing = (
            not tables.rule.by_event
            and state.pending > 0
            and tables.running[HEAP_END, 0] == state.now
        )


@inlined
def _submit(
    tables: Tables, memory: Memory, own: Own, nodes: Any, caution: Any, tests: Any, shadow: Any,
    gate: Any,
) -> bool:  # fmt: skip
    """Submit the jobs of this instant; the first alone under the trigger `event`.

    Returns False where a job has to be predicted first.
    """
    state, jobs, outcome, submitting = tables.state, tables.jobs, tables.outcome, True
    while submitting:
        job = state.submitted
        if job == state.predicted:
            return False
        state.submitted += 1
        if outcome[EXPECTED, job] == 0:
            outcome[EXPECTED, job] = expect(memory, job, jobs[REQUESTED, job])
        if caution is not None:
            outcome[UPPER, job] = max(outcome[UPPER, job], outcome[EXPECTED, job])
            outcome[LIMIT, job] = max(jobs[REQUESTED, job], outcome[EXPECTED, job])
        if gate is None:
            _offer(tables, own, nodes, caution, tests, shadow, job)
        else:
            outcome[START, job] = NEVER  # as if it had started: it is in no queue
            come(gate, job)
        submitting = not tables.rule.by_event and _next_submission(tables) == state.now
    return True


@inlined
def _wait_again(
    tables: Tables, own: Own, nodes: Any, caution: Any, tests: Tests, shadow: Any
) -> None:
    """Put the jobs into the queues that are to be there again."""
    outcome = tables.outcome
    # The gaps that they left when they started are closed before they are in the queues again.
    _close_gaps(tables)
    for k in range(tests.state.requeued):
        job = tests.table[REQUEUED, k]
        if shadow is not None:  # noqa: SIM102 - numba drops only what stands alone
            if tests.table[STOPPED_START, job] < 0:
                starts(shadow, outcome[EASY_NUMBER, job], -1)
        outcome[START, job], outcome[REASON, job] = -1, WAITS
        if caution is not None:
            outcome[UPPER, job] = max(outcome[UPPER, job], outcome[EXPECTED, job])
        _offer(tables, own, nodes, caution, tests, shadow, job)
    tests.state.requeued = 0


@inlined
def _offer(
    tables: Tables, own: Own, nodes: Any, caution: Any, tests: Any, shadow: Any, job: int
) -> None:
    """Put a job into the queues: it was submitted and has passed the gate, or waits again."""
    state, jobs = tables.state, tables.jobs
    if nodes is None:
        demand = jobs[NEED, job]
    else:
        duration = max(due_of(tables, caution, tests, job) - state.now, 1)
        demand = on_nodes.demand_of(jobs[KIND, job], duration)
        on_nodes.wait(nodes, jobs[KIND, job], duration)
    if shadow is not None:
        after = late_after(jobs, job, tables.primary.rule.threshold)
        state.none_late_until = min(state.none_late_until, after)
    enqueue(tables, tables.primary, job, demand, own.primary, caution)
    if not tables.rule.one_queue:
        enqueue(tables, tables.secondary, job, demand, own.secondary, caution)
    if tests is not None:
        note_newcomer(tests, job)
    state.queued += 1


@inlined
def _close_gaps(tables: Tables) -> None:
    """Take the jobs out of the queues that have started."""
    without_started(tables, tables.primary)
    if not tables.rule.one_queue:
        without_started(tables, tables.secondary)


@inlined
def _last_may_start(tables: Tables, nodes: Any) -> bool:
    """Whether the job that was submitted last is in the queues, and fits what is free."""
    state = tables.state
    job = state.submitted - 1
    if tables.outcome[START, job] >= 0:
        return False
    ended, ending = correct(tables)
    if nodes is None:
        fits = tables.jobs[NEED, job] <= state.free + ending
    else:
        on_nodes.lend(tables, nodes, ended, 1)
        fits = on_nodes.job_fits(tables, nodes, job)
        on_nodes.lend(tables, nodes, ended, -1)
    return bool(fits)


@inlined
def queued_anew(state: State, gate: Any) -> int:
    """How many jobs have come into the queue that were not there at the last dispatch."""
    if gate is None:
        return int(state.submitted - state.submitted_before)
    return int(gate.state.passed)


@inlined
def _tell(tables: Tables, shadow: Any, gate: Any) -> None:
    """Tell EASY of the jobs that have come into the queue. There must be room for them."""
    if shadow is not None:
        state, jobs = tables.state, tables.jobs
        for k in range(queued_anew(state, gate)):
            job = state.submitted_before + k
            if gate is not None:
                job = gate.passed[k]
            number = tables.outcome[EASY_NUMBER, job] = state.easy_numbers
            requested = jobs[REQUESTED, job]
            submit(shadow, number, state.now, jobs[ON_POOL, job], requested)
            state.easy_numbers += 1


@inlined
def _record(
    tables: Tables, dispatches: Dispatches, queued: int, still_running: int, started: int
) -> None:
    """Keep a record of a dispatch, where there is room for records."""
    state, counts = tables.state, dispatches.counts
    row = state.dispatches
    if dispatches.time_s.shape[0] > 0:
        dispatches.time_s[row], counts[0, row] = state.now, queued
        counts[1, row], counts[2, row] = still_running, started
        if counts.shape[0] > 3:
            counts[3, row] = state.easy_wait
    state.dispatches += 1


@inlined
def _thresholds_change(tables: Tables, caution: Any, tests: Any, shadow: Any) -> bool:
    """Follow EASY up to now, and take the thresholds from the longest wait under it.

    Returns whether any job may have become late, or be late no more. When jobs ended between two
    dispatches is told as a dispatcher may know it, see `cpdispatch.bounded.ended_s`.
    """
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    now, before = state.now, shadow.tables.state.now
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
    changes = longest != state.easy_wait or now > state.none_late_until
    state.easy_wait = longest
    patience_s = longest * tables.rule.in_turn_after // 1000
    tables.primary.rule.threshold.seconds = patience_s
    if not tables.rule.one_queue:
        tables.secondary.rule.threshold.seconds = longest
    if caution is not None:
        caution.strict_after_s = caution.patience.seconds = patience_s
    if changes:
        state.none_late_until = NEVER
    return bool(changes)


@inlined
def _choose_limits(tables: Tables, nodes: Any, caution: Any, tests: Any) -> None:
    """Take jobs to last as requested once one has waited too long, else as they probably do."""
    state, outcome = tables.state, tables.outcome
    while state.oldest_waiting < state.submitted and outcome[START, state.oldest_waiting] >= 0:
        state.oldest_waiting += 1
    strict = (
        state.oldest_waiting < state.submitted
        and state.now - tables.jobs[SUBMIT, state.oldest_waiting] > caution.strict_after_s
    )
    before = state.duration_row
    state.duration_row = LIMIT if strict else caution.duration_row
    if state.duration_row == before:
        return
    state.blocked = -1
    if nodes is not None:
        on_nodes.take_anew(tables, caution, nodes, tests, tables.primary)
        if not tables.rule.one_queue:
            on_nodes.take_anew(tables, caution, nodes, tests, tables.secondary)


@inlined
def _order_queues(tables: Tables, own: Own, caution: Any, shadow: Any, changes: bool) -> None:
    """Sort the primary queue if its keys change, else move late jobs to the front of the queues.

    ``changes`` is what `_thresholds_change` has returned. A secondary queue whose keys change is
    sorted only when a job is blocked.
    """
    state, primary, secondary = tables.state, tables.primary, tables.secondary
    if primary.rule.changes:
        sort_anew(tables, primary, own.primary)
    elif shadow is not None:
        if changes and let_late_ones_first_now(tables, primary, own.primary, caution):
            state.blocked = state.ahead_job = -1
    elif primary.rule.threshold.seconds != NO_THRESHOLD:
        moved = let_late_ones_first(tables, primary)
        if caution is not None and moved and caution.keeps_free:
            state.blocked = state.ahead_job = -1
    if shadow is not None and changes and not (tables.rule.one_queue or secondary.rule.changes):
        let_late_ones_first_now(tables, secondary, own.secondary, caution)


@inlined
def _tell_starts(tables: Tables, shadow: Any, serial: int) -> None:
    """Tell EASY of the starts from a serial number on, and give late jobs their reason."""
    if shadow is not None:
        state, jobs, outcome = tables.state, tables.jobs, tables.outcome
        for k in range(serial, state.next_serial):
            job = tables.running[BY_SERIAL, k]
            starts(shadow, outcome[EASY_NUMBER, job], outcome[START, job])
            if outcome[START, job] < state.now:
                continue
            late = is_late(jobs, job, state.now, tables.primary.rule.threshold)
            if late and outcome[REASON, job] == IN_TURN:
                outcome[REASON, job] = WAS_LATE


@inlined
def _tell_kills(tables: Tables, tests: Tests, shadow: Any) -> None:
    """Tell EASY of the jobs that this dispatch has killed."""
    if shadow is not None:
        for k in range(tests.state.stopped):
            job = tests.table[STOPPED, k]
            if is_killed(tables.outcome, tests, job):
                starts(shadow, tables.outcome[EASY_NUMBER, job], -1)


@kernel
def dispatch(
    tables: Tables, dispatches: Dispatches, own: Own, nodes: Any, deep: Any, caution: Any,
    tests: Any, shadow: Any,
) -> None:  # fmt: skip
    """One pass: start in the primary order, reserve, backfill in the secondary order."""
    state, rule, primary, secondary = tables.state, tables.rule, tables.primary, tables.secondary
    queued, serial = state.queued, state.next_serial
    if rule.depth == REJECT:
        _reject(tables)
        _record(tables, dispatches, queued, 0, 0)
        return
    changes = False
    if shadow is not None:
        changes = _thresholds_change(tables, caution, tests, shadow)
    ended, ending = correct(tables)
    still_running = state.running - ended
    if caution is not None:
        _choose_limits(tables, nodes, caution, tests)
    _order_queues(tables, own, caution, shadow, changes)
    is_sorted = rule.one_queue or not secondary.rule.changes
    if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
        # Where killing takes time, starts may be taken back: their jobs have to be in the queue.
        if not is_sorted and tests.state.stopped > 0 and tests.state.restart_cost_s > 0:
            sort_anew(tables, secondary, own.secondary)
            is_sorted = True
    if nodes is not None and deep is None:
        on_nodes.lend(tables, nodes, ended, 1)
    head, entries, deciding = primary.marks.head, state.entries, True
    while deciding:
        blocked = _start_in_turn(tables, nodes, deep, caution, tests, ending)
        if blocked >= 0 and rule.depth > 0:
            if not is_sorted:
                sort_anew(tables, secondary, own.secondary)
            if deep is not None:
                dispatch_deep(tables, nodes, deep, caution, ended)
            elif nodes is None:
                if tests is None:
                    on_pool.backfill(tables, caution, None, blocked, ended, ending, -1, 0)
                else:
                    on_pool.backfill_and_test(
                        tables, caution, tests, blocked, ended, ending, serial
                    )
            elif tests is None:
                on_nodes.backfill(tables, caution, nodes, blocked, ended)
            else:
                on_nodes.backfill_and_test(tables, caution, nodes, tests, blocked)
        deciding = False
        if tests is not None:
            deciding = takes_back(tables, nodes, caution, tests, serial, entries)
            if deciding:
                primary.marks.head = head
    if nodes is not None and deep is None:
        on_nodes.lend(tables, nodes, ended, -1)
    if tests is not None:
        _tell_kills(tables, tests, shadow)
        settle(tables, tests)
    started = state.next_serial - serial
    if started > 0:
        if caution is not None:
            on_nodes.settle(tables, nodes, tests, serial)
        state.queued -= started
        state.blocked = -1
        tidy(tables, primary)
        if not rule.one_queue:
            tidy(tables, secondary)
    _tell_starts(tables, shadow, serial)
    state.submitted_before = state.submitted
    _record(tables, dispatches, queued, still_running, started)
    if tests is not None:
        clear(tables, tests)


@inlined
def _reject(tables: Tables) -> None:
    """Refuse every job that waits."""
    marks = tables.primary.marks
    for k in range(marks.tail):
        tables.outcome[REASON, tables.primary.place[JOB, k]] = REJECTED
    tables.state.queued = marks.tail = 0


@inlined
def _start_in_turn(
    tables: Tables, nodes: Any, deep: Any, caution: Any, tests: Any, ending: int
) -> int:
    """Start jobs in the primary order while they fit; the first one that does not, -1 if none."""
    place, marks = tables.primary.place, tables.primary.marks
    if deep is not None:
        _close_gaps(tables)  # it starts jobs itself
    else:
        if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
            if tests.state.way == IN_FRONT:
                return _start_tests_first(tables, nodes, caution, tests)
        if nodes is None:
            on_pool.start_in_turn(tables, caution, tests, ending)
        else:
            on_nodes.start_in_turn(tables, caution, nodes, tests)
    return int(place[JOB, marks.head]) if marks.head < marks.tail else -1


@kernel
def _start_tests_first(tables: Tables, nodes: Any, caution: Any, tests: Tests) -> int:
    """Start jobs in the primary order, in which tests have places of their own.

    Returns the first one that does not fit, -1 if there is none.
    """
    state, jobs, outcome, primary = tables.state, tables.jobs, tables.outcome, tables.primary
    place, marks, front, by_key = primary.place, primary.marks, tests.front, tests.state.by_key
    # Else all tests come before all jobs that are not late: whether the next one is late decides.
    skips = by_key or state.tiered
    line_up_newcomers(tables, tests, nodes)
    k, blocked = marks.head, -1
    while blocked < 0:
        n = 0
        while n < tests.state.lined_up and is_past_tests(tables, tests, front.place[JOB, n]):
            n += 1
        while k < marks.tail and (
            outcome[START, place[JOB, k]] >= 0
            or (skips and may_be_tested(tables, tests, place[JOB, k]))
        ):
            k += 1
        testing = n < tests.state.lined_up
        if testing and k < marks.tail:
            other, waits = front.place[JOB, n], place[JOB, k]
            testing = primary.key[k] != -np.inf
            if testing and by_key:
                testing = goes_before(tables, front.key[n], other, primary.key[k], waits)
            elif testing and state.tiered:
                testing = jobs[TIER, other] >= jobs[TIER, waits]
        if not testing and k == marks.tail:
            break
        job = front.place[JOB, n] if testing else place[JOB, k]
        if nodes is None:
            need = jobs[NEED, job]
            starts_now = on_pool.starts_in_turn(tables, caution, tests, job, need, 0, testing)
        else:
            starts_now = on_nodes.starts_in_turn(tables, caution, nodes, tests, job, testing)
        if not starts_now:
            blocked = job
    while marks.head < marks.tail and outcome[START, place[JOB, marks.head]] >= 0:
        marks.head += 1
    return int(blocked)


WITH_OWN = (
    go, dispatch, _submit, _wait_again, _offer, _order_queues, sort_anew, let_late_ones_first_now,
    enqueue, lasting_key, key_under, key_of, key_of_own,
)  # fmt: skip
"""Kernels that are compiled anew for a user's own policy."""
