"""The simulator: a clock, a total order of events, and a numbered cycle around a snapshot.

Events are ordered by (time, kind, sequence). With the trigger ``instant`` all completions of an
instant come before all its submissions, and one dispatch follows them. With the trigger ``event``
a submission comes before a completion, completions in the order in which their jobs started, and
a dispatch follows each single event. The end of a job's think time is an event like a completion.
All attempts of an instant that end though their jobs do not are one event, before all others. In
an instant in which something happens to the system, one dispatch follows that and all that ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from cpdispatch import verify
from cpdispatch.analyze.energy import watts_of
from cpdispatch.arrays import BoolArray, IntArray, sealed
from cpdispatch.data import AdditionalData, Moment, made, next_of, value_of
from cpdispatch.decision import Decision, Placements, Reason, wrong_type
from cpdispatch.energy import Steps
from cpdispatch.errors import DecisionError, UsageError, infeasible
from cpdispatch.events import (
    CAPACITY,
    FAIL,
    MAINTAIN,
    REQUEUES_MAX,
    Event,
    Events,
    with_maintenance,
)
from cpdispatch.heuristics import kernels
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.instance import Instance, Power, Starvation
from cpdispatch.jobs import Column, Job, Workload, job_of
from cpdispatch.predict import Predictor, bounding, given_s, known_s, refreshing, warm_up
from cpdispatch.predict import made as predictor_of
from cpdispatch.predict.guard import Guard
from cpdispatch.simulator.agenda import Agenda
from cpdispatch.simulator.attempts import Attempts
from cpdispatch.simulator.checks import (
    check_case,
    check_gated,
    check_kind,
    check_power_cap,
    check_restarts,
    check_rules,
    check_switches,
    check_switching,
    seed_of,
)
from cpdispatch.simulator.course import Course
from cpdispatch.simulator.gates import Gates
from cpdispatch.simulator.kernels import (
    BEGIN,
    END,
    FULL,
    NEVER,
    NEXT,
    NOW,
    OVER,
    ROW,
    go_on,
)
from cpdispatch.simulator.live import LAST, Now
from cpdispatch.simulator.precedence import Precedence
from cpdispatch.simulator.records import NOT_STARTED, Records, Test
from cpdispatch.simulator.state import State
from cpdispatch.simulator.switching import Switching
from cpdispatch.system import System
from cpdispatch.terms import asked_in_all, gated, with_first, without_restarts
from cpdispatch.workloads.restarts import mark

OVER_CAP = "never runs: draws more than the power cap leaves"
BEFORE = "events before the first submission, on the clock of the log"
AFTER_THE_END = "ignored: events after the end of the last job"
_REJECTED, _RESERVED = int(Reason.REJECTED), int(Reason.RESERVED)
_REQUESTED, _EXPECTED, _UPPER = int(Column.REQUESTED), int(Column.EXPECTED), int(Column.UPPER)
_PART = 1 << 10  # jobs that are read from the log at once, and one more
_NO_POSITIONS = sealed(np.empty(0, dtype=np.int64))
_PATIENCE = 10_000
"""Events in a row after which the jobs left are given up: nothing runs, and what is to come is
drawn, or a change of additional data."""


class Simulation:
    """Replays a workload on a system; the caller dispatches.

    ::

        sim = Simulation(workload, system)
        while (instance := sim.advance()) is not None:
            sim.apply(dispatcher.dispatch(instance))

    Parameters
    ----------
    workload : Workload
        Its requests speak of the system's resource types, see `cpdispatch.workloads.prepare`.
    system : System
    predictor : str or Predictor
        Says the expected duration of each job at its submission.
    seed : int
        Of what a predictor that is given by name draws at random.
    trigger : str
        ``instant`` or ``event``.
    correction : str
        What becomes of an expected end that has passed: ``minimal``, ``incremental`` or
        ``requested``, see `cpdispatch.compiled.correction.corrected`; ``refresh``: what a predictor
        says that is `Refreshing`, and like ``incremental`` where that has passed, too.
    kill_at_limit : bool
        End jobs at their requested time, as real systems do.
    dependencies : bool
        Start no job before the end, plus think time, of the one that the log puts before it.
    starvation : Starvation, optional
        The bound that every instance carries.
    idempotent : bool
        A job that may be restarted, and outlives the bound that the predictor gave it at its
        submission, is killed and queued again, see `cpdispatch.predict.Bounding`. If the workload
        has no job that may be restarted, all may.
    restart_cost_s : int
        The nodes of a killed job stay busy so long before it is queued again, and its next run is
        so much longer.
    events : Events, optional
        What happens to the system, beside its maintenance. Where jobs write checkpoints, none is
        tested, judged by a predictor or restarted at a cost.
    data : sequence of AdditionalData or str
        What every instance tells beside jobs and nodes, or names of it, see `cpdispatch.data`.
    power_cap : Steps, optional
        What the system may draw, see `cpdispatch.energy`. No job is tested, judged by a predictor
        or restarted at a cost then.
    energy_price : Steps, optional
        What instances tell of the price of energy. Jobs are dispatched when it changes; `simulate`
        does so for a dispatcher of your own alone.
    switch_off_s : int, optional
        How long a node is idle before it is switched off; without it, none is. No job is tested,
        judged by a predictor or restarted at a cost then.

    Attributes
    ----------
    now : int
        The clock, seconds.
    records : Records
    dependencies : bool
    """

    log_is_apart = False
    """Whether the workload is left out when it is pickled: a checkpoint has a file of it."""

    def __init__(
        self,
        workload: Workload,
        system: System,
        *,
        predictor: str | Predictor = "walltime",
        seed: int = 0,
        trigger: str = "instant",
        correction: str = "minimal",
        kill_at_limit: bool = False,
        dependencies: bool = False,
        starvation: Starvation | None = None,
        idempotent: bool = False,
        restart_cost_s: int = 0,
        events: Events | None = None,
        data: Sequence[AdditionalData | str] = (),
        power_cap: Steps | None = None,
        energy_price: Steps | None = None,
        switch_off_s: int | None = None,
    ) -> None:
        check_case(workload, system)
        check_rules(trigger, correction, restart_cost_s, starvation)
        check_switches(
            kill_at_limit=kill_at_limit, dependencies=dependencies, idempotent=idempotent
        )
        seed = seed_of(seed)
        if events is not None:
            check_kind("events", events, Events, "cpdispatch.events.read gives them")
        first_s, stated = int(workload.table.submit_s[0]), () if events is None else events.rows
        self._before = sum(row.time_s < first_s for row in stated)
        events = with_maintenance(events, system, workload.table.submit_s)
        for name, given in (("power_cap", power_cap), ("energy_price", energy_price)):
            if given is not None:
                check_kind(name, given, Steps, f"cpdispatch.energy.{name} gives it")
        if power_cap is not None:
            check_power_cap(power_cap, workload, system, kill_at_limit)
        if switch_off_s is not None:
            check_switching(system, switch_off_s)
        if idempotent or restart_cost_s:
            check_restarts(workload, system, events, power_cap, switch_off_s)
        if dependencies:
            check_gated(workload, system)
        self.system = system
        self._checkpoints = None if events is None else events.checkpoints
        if events is not None:
            workload = events.within(workload)
        if idempotent and not workload.table.restartable.any():
            workload = mark(workload, 1.0)
        workload = without_restarts(workload, system)
        self.workload = workload
        self._event_by_event = trigger == "event"
        self.now = 0
        self.records = Records(workload, events is not None, promises=True)
        seen = replace(system, limits=()) if system.limits else system
        self._state = State(workload, seen, correction, starvation, restart_cost_s)
        limit = workload.table.requested_s if kill_at_limit else np.int64(NEVER)
        self._runtime_s = np.minimum(workload.runtime_s, limit)
        self.records.killed[:] = self._runtime_s < workload.runtime_s
        self._ask_predictor(predictor, seed, correction)
        special = events, power_cap, starvation, switch_off_s
        self._is_plain = all(of is None for of in special) and not system.once
        """Whether only free capacity, what jobs come after, and test runs bind decisions."""
        self._untested = any(of is not None for of in (self._checkpoints, power_cap, switch_off_s))
        """Whether there are no test runs."""
        self._allow_restarts(idempotent, restart_cost_s)
        self._given_s = None
        """What jobs are expected to last, shape (jobs,), if the predictor need not be called."""
        if self._is_plain and not self._attempts.possible and not self._refreshing:
            self._given_s = given_s(self.predictor, workload)
        self._hold_back(dependencies)
        self._power_cap = power_cap
        self._over_cap = 0
        """How many jobs fit the system and draw more than the cap leaves from some time on."""
        if power_cap is not None:
            self._watts = asked_in_all(system, workload.table) @ np.array(system.unit_watts)
        steps = [one for one in (power_cap, energy_price) if one is not None]
        self._let_happen(seen, events, switch_off_s, made([*made(data, seed), *steps], seed), seed)
        self._asked: Instance | None = None
        self._asked_at = 0.0

    def _ask_predictor(self, predictor: str | Predictor, seed: int, correction: str) -> None:
        """Say who is asked for durations, and when."""
        self.predictor = predictor_of(predictor, self.workload, seed)
        self._refreshing = correction == "refresh"
        if self._refreshing:
            refreshing(self.predictor)
        warm_up(self.predictor)
        self._guard = Guard(self.predictor)
        self._known_s = known_s(self.predictor, self.workload)

    def _allow_restarts(self, idempotent: bool, cost_s: int) -> None:
        """Say which jobs may be restarted, and at what cost."""
        if idempotent:
            bounding(self.predictor)
        self._idempotent = idempotent
        self.restart_cost_s = cost_s
        self._live: dict[int, Job] = {}
        self._agenda = Agenda(self._state)
        self._attempts = Attempts(
            self.workload.table.restartable, self._state, self.records, self._guard, self._agenda,
            self._live, self._runtime_s, cost_s, self._seen_of,
        )  # fmt: skip

    def _hold_back(self, dependencies: bool) -> None:
        """Say which jobs are submitted at all, and what keeps them back then."""
        workload, system = self.workload, self.system
        runnable = system_fits(system, workload.table)
        self._gates = Gates(workload, system) if gated(workload, system) else None
        self._beyond: dict[str, int] = {}
        """How many jobs fit the system and never pass, and why."""
        if self._gates is not None:
            self._beyond = self._gates.notes(runnable & ~self._gates.passable)
            runnable = runnable & self._gates.passable
        self._expected: dict[int, tuple[int, int]] = {}
        """Expected and upper durations of the jobs that wait behind the gate, or for their time."""
        self.records.reason[~runnable] = Reason.NEVER_FITS
        self.dependencies = dependencies
        self._precedence = Precedence(workload, runnable) if dependencies else None
        self._order = np.flatnonzero(runnable)
        submits = workload.table.submit_s[self._order]
        self._submits = array("q", np.append(submits, NEVER).tobytes())
        self._coming: tuple[int, IntArray] | None = None

    def _let_happen(
        self,
        system: System,
        events: Events | None,
        switch_off_s: int | None,
        data: Sequence[AdditionalData],
        seed: int,
    ) -> None:
        """Say what happens to the system beside jobs, and what is told of it."""
        self._requeue = (
            np.zeros(0, dtype=np.bool_) if events is None else events.requeues(self.workload)
        )
        """Which jobs are queued again when a node fails under them; empty without events."""
        jobs = 0 if self._checkpoints is None else len(self.workload)
        self._saved_s = np.zeros(jobs, dtype=np.int64)
        """What checkpoints have kept of each job's earlier runs; empty without checkpoints."""
        self._idle = 0
        """How many events happened in a row while nothing ran and nothing certain was to come."""
        self._data = data
        self._values: dict[str, object] = {}
        """The values of the additional data."""
        self._change_s = NEVER
        """When one of them changes by itself next."""
        self._told: tuple[int, int] | None = None
        """When they were asked last, and how many events had happened by then."""
        first_s = int(self.workload.table.submit_s.min())
        self._course: Course | None = None
        if events is not None:
            self._course = Course(events, system, seed, first_s)
            self._state.reservations = self._course.reservations(0)
        self._switching: Switching | None = None
        if switch_off_s is not None:
            self._switching = Switching(self.system, switch_off_s, first_s)
        self._can_happen = any((self._course, self._switching, self._data))
        """Whether anything happens beside submissions and what is in the agenda."""
        self._came_s = self.workload.table.submit_s.copy()
        """Since when jobs have waited for nodes, by row; see `Instance.came_s`."""
        self._by_kernel = (
            self._given_s is not None
            and not self._event_by_event
            and not self._can_happen
            and self._gates is None
            and self._precedence is None
            and self.workload.begin_s is None
        )
        """Whether a kernel goes from one dispatch to the next: nobody is told of jobs between."""

    # ------------------------------------------------------------------------------ the cycle

    def advance(self) -> Instance | None:
        """Go on to the next moment at which jobs wait; None when the log is done.

        (1) advance the clock to the next event; (2) apply completions and submissions; (3) take a
        snapshot.

        Raises
        ------
        UsageError
            When the instance before this one was not answered by `apply`.
        """
        if self._asked is not None:
            raise UsageError(
                "advance() was called before the last instance was answered by apply()"
            )
        if self._by_kernel:
            self._asked = self._next_instant()
            self._asked_at = perf_counter()
            return self._asked
        step = self._one_event if self._event_by_event else self._one_instant
        while self._next < len(self._order) or self._agenda or self._is_worth_waiting():
            held = self._state.system.capacity - self._state.free if self._data else None
            due = step()
            if self._power_cap is not None:
                self._give_up(self._power_cap)
            if self._switching is not None:
                self._look_at_nodes(self._switching)
                if not due:
                    self._switch(self._switching)
            if held is not None:
                self._ask_data(held)
            if due and self._attempts.stopped and self._course is not None:
                self._attempts.kill_on(self._state.down, self.now)
            if due and self._state.queued:
                self._asked = self._snapshot()
                if self._precedence is not None:
                    self._asked = self._with_dependencies(self._asked, self._precedence)
                self._asked_at = perf_counter()
                return self._asked
        return None

    def apply(self, decision: Decision, dispatcher: str = "", *, stated: bool = False) -> None:
        """Take the answer to the last instance: (5) verify and apply it, (6) record it.

        Parameters
        ----------
        dispatcher : str
            Whom errors name as the one that answered; empty for the model of the certificate.
        stated : bool
            Whether the bound on waits that the decision states has to hold, see
            `cpdispatch.verify.decision`.

        Raises
        ------
        DecisionError
            When the decision is not feasible; nothing of it is applied, and the instance may be
            answered by another one.
        """
        ms = (perf_counter() - self._asked_at) * 1e3
        instance = self._asked
        if instance is None:
            raise UsageError("apply() was called without an instance from advance()")
        if not isinstance(decision, Decision):
            raise DecisionError(
                f"apply() needs a Decision, not {type(decision).__name__}, at time {self.now}"
            )
        if (wrong := wrong_type(decision)) is not None:
            part, found, needed = wrong
            raise DecisionError(
                f"apply() needs a Decision whose {part} is {needed}, not {found}, at time "
                f"{self.now}"
            )
        queued, running = self._state.queued, self._state.ran
        started = self._apply_plainly(instance, decision) if self._is_plain else None
        if started is None:
            started = self._apply_checked(instance, decision, dispatcher, stated)
        self._asked = None
        self.records.note(self.now, queued, running, started, ms, decision.certificate)
        if self._switching is not None:
            self._switch(self._switching)

    def _apply_checked(
        self, instance: Instance, decision: Decision, dispatcher: str, stated: bool
    ) -> int:
        """Take a decision that `verify` finds nothing wrong with; how many jobs it starts."""
        violations = verify.decision(instance, decision, stated=stated)
        model = decision.certificate.model
        if violations:
            by = f" made by {model}" if dispatcher not in ("", model) else ""
            raise infeasible(dispatcher or model, self.now, violations[0], by)
        started = 0
        closing = _NO_POSITIONS
        if instance.stopped is not None:
            closing = self._attempts.decide(instance, decision, self.now)
        if _RESERVED in decision.reason.tobytes():
            reserved = (decision.reason == _RESERVED) & (decision.start_s > self.now)
            later = reserved.nonzero()[0]
            rows = self._state.queue_hidden[ROW, later]
            self.records.promised(self.now, rows, decision.start_s[later])
        starting = _NO_POSITIONS
        if len(decision.placements.position):
            starting = (decision.start_s == self.now).nonzero()[0]
            started = len(starting)
        if started:
            self._start(decision)
        # A search for the byte costs a tenth of a comparison, and most decisions refuse nothing.
        if _REJECTED in decision.reason.tobytes() and len(
            refused := (decision.reason == _REJECTED).nonzero()[0]
        ):
            self._refuse(refused, Reason.REJECTED)
            starting = np.union1d(starting, refused)
        if len(closing):
            starting = np.union1d(starting, closing)
        if len(starting):
            self._state.remove(starting)
        return started

    def _apply_plainly(self, instance: Instance, decision: Decision) -> int | None:
        """Take a decision that only free capacity binds, if it is sound; how many jobs it starts.

        None, with nothing changed, if it has to be looked at with more care.
        """
        if (
            decision.bound_s is not None
            or decision.certificate.starvation is not None
            or instance.dependencies is not None
            or instance.stopped is not None
        ):
            return None
        state = self._state
        started = state.settle(
            self.now, decision, self._runtime_s, self._attempts.bound_s, self.records
        )
        if started and self._given_s is None:
            running = state.running
            for row in state.run_hidden[ROW, running - started : running].tolist():
                self._guard.start(self._live[row], self.now)
        return started

    def _refuse(self, positions: IntArray, reason: Reason) -> None:
        """Note that the queued jobs at these positions will never start; they stay there yet."""
        rows = self._state.queue_hidden[ROW, positions]
        self.records.reason[rows] = reason
        for row in rows.tolist():
            if (job := self._live.pop(row, None)) is not None:
                self._guard.leave(job)
            if self._gates is not None:
                self._gates.end(row)
        if self._gates is not None and self._gates.behind:
            self._agenda.wake(self.now)
        if self._precedence is not None:
            for row in rows.tolist():
                self._wake_after(row, self._precedence, rejected=True)

    # ------------------------------------------------------------------------------ the events

    def _next_instant(self) -> Instance | None:
        """Go on to the next instant at which jobs wait, in compiled code; None at the end."""
        state = self._state
        while True:
            first, coming = self._coming or self._next_part()
            flat: IntArray = go_on(
                state.memory, coming, first, state.correction, self.records.table
            )
            self.now = state.marks.item(NOW)
            if len(flat) > 1:
                return state.seen(flat)
            if flat[0] == OVER:
                return None
            if flat[0] == FULL:
                state.make_room(queued=1)
            else:
                self._next_part()

    def _one_instant(self) -> bool:
        """Apply every event of the next instant."""
        agenda, submits = self._agenda, self._submits
        now = min(submits[self._next], agenda.next_s)
        if self._can_happen:
            now = min(now, self._next_event(), self._next_change())
        self.now = now
        if self._can_happen and now == self._next_change():
            self._note_idle()
        while agenda.next_s == now:
            self._complete()
        while self._can_happen and self._next_event() == now:
            self._happen()
        while submits[self._next] == now:
            self._submit()
        if self._gates is not None:
            self._offer()
        return True

    def _one_event(self) -> bool:
        """Apply the next single event; whether a dispatch follows it."""
        submit, completion = self._submits[self._next], self._agenda.next_s
        event, change = self._next_event(), self._next_change()
        self.now = min(submit, completion, event, change)
        if self.now < min(submit, completion, event):
            self._note_idle()
            return True
        if event == self.now:
            while self._agenda.next_s == self.now:
                self._complete()
            while self._next_event() == self.now:
                self._happen()
            self._offer()
            return True
        if self._end_attempts():
            return True
        if completion < submit:
            self._complete()
            self._offer()
            return True
        column = self._submit()
        if self._gates is not None and not self._offer():
            return change == self.now
        if change == self.now:
            return True
        instance = self._snapshot()
        ask = with_first(self.system, column[:, None])[Column.REQUEST :, 0].copy()
        could_start = bool(kernels.fits(instance.free, ask, column.item(Column.UNITS)))
        if could_start and self._precedence is not None:
            instance = self._with_dependencies(instance, self._precedence)
            return bool(instance.eligible()[-1])
        return could_start

    def _next_event(self) -> int:
        return NEVER if self._course is None else self._course.next_s

    def _is_worth_waiting(self) -> bool:
        """Whether jobs wait, and what happens to the system may let them start."""
        if not self._state.queued or self._idle >= _PATIENCE:
            return False
        return min(self._next_event(), self._next_change()) < NEVER

    def _next_change(self) -> int:
        """When additional data change by themselves, or a node is back or switched off next."""
        if self._switching is None:
            return self._change_s
        return min(self._change_s, self._switching.next_s(self._state.queued > 0))

    def _look_at_nodes(self, switching: Switching) -> None:
        """Switch off the nodes that have been idle for long, if no job waits."""
        state = self._state
        busy = state.entries[0, : state.offset[state.running]]
        switching.look(self.now, busy, state.down, state.queued > 0)

    def _switch(self, switching: Switching) -> None:
        """Switch nodes on for the jobs that wait after a dispatch, or off if none does."""
        self._look_at_nodes(switching)
        if self._state.queued and switching.off:
            left = self._state.free.copy()
            left[self._state.down] = 0
            known = self._state.reservations
            for window in known:
                if window.start_s <= self.now:
                    left[list(window.nodes)] = 0
            instance = self._snapshot()
            if self._precedence is not None:
                instance = self._with_dependencies(instance, self._precedence)
            switching.wake(instance, left, [w for w in known if w.start_s > self.now])

    def _note_idle(self) -> None:
        """Count what happens in vain: nothing runs, and nothing is certain to come."""
        course, cap, switching = self._course, self._power_cap, self._switching
        certain = (
            self._agenda
            or self._next < len(self._order)
            or (course is not None and course.is_certain)
            or (cap is not None and cap.next_s(self.now) is not None)
            or (switching is not None and switching.next_s(waiting=True) < NEVER)
        )
        self._idle = 0 if certain else self._idle + 1

    def _ask_data(self, held: IntArray) -> None:
        """Tell the additional data what has happened, and ask for the values.

        ``held`` is what jobs held since they were asked last, shape (nodes, resources).
        """
        happened = [] if self._course is None else self._course.happened
        since_s, known = self._told or (self.now, 0)
        queue, running = self._state.look(self.now)
        moment = Moment(
            self.now, since_s, self._state.system, sealed(held), running, queue, self._state.down,
            tuple(happened[known:]),
        )  # fmt: skip
        self._told = self.now, len(happened)
        self._values = {one.name: value_of(one, moment) for one in self._data}
        changes = (next_of(one, self.now) for one in self._data)
        self._change_s = min((at for at in changes if at is not None), default=NEVER)

    def _submit(self) -> IntArray:
        """Submit the next job; its column of the block."""
        row, column = self._next_job()
        if self._given_s is not None:
            expected_s, upper_s = column.item(_EXPECTED), column.item(_UPPER)
        else:
            job = self._live[row] = job_of(column)
            expected_s = self._guard.predict(job, self.now)
            upper_s = max(expected_s, self._guard.upper(job, self.now))
            if self._idempotent and job.restartable:
                self._attempts.bound(row, self._guard.bound(job))
        self.records.expected_s[row] = expected_s
        self._enqueue(row, column, expected_s, upper_s)
        return column

    def _enqueue(self, row: int, column: IntArray, expected_s: int, upper_s: int) -> None:
        """Put a job into the queue when its time has come, or behind the gate if there is one."""
        begin_s = self.workload.begin_s
        if begin_s is not None and begin_s[row] > self.now:
            self._expected[row] = expected_s, upper_s
            self._agenda.add(int(begin_s[row]), row, BEGIN)
        elif self._gates is None:
            self._state.submit(row, self._as_seen(row, column), expected_s, upper_s)
            self._came_s[row] = max(self._came_s[row], self.now)
        else:
            self._expected[row] = expected_s, upper_s
            self._gates.submit(row)

    def _offer(self) -> bool:
        """Put the jobs that pass the gate into the queue; whether there are any."""
        passed = [] if self._gates is None else self._gates.passing()
        for row in passed:
            self._state.submit(row, self._seen_of(row), *self._expected.pop(row))
            self._came_s[row] = max(self._came_s[row], self.now)
        return bool(passed)

    def _seen_of(self, row: int) -> IntArray:
        """The column of the job of a row, as dispatchers see it."""
        return self._as_seen(row, self.workload.table.values(row))

    def _as_seen(self, row: int, column: IntArray) -> IntArray:
        """The column of a job as dispatchers see it.

        A clairvoyant predictor knows what it requests, see `cpdispatch.predict.Clairvoyant`. Where
        no job is tested, none may be restarted for that. One that was tested to the end, or killed,
        may not be again; if it was killed it requests what that cost, too.
        """
        restarts = self._attempts.possible
        killed = restarts and self.records.lost_end_s[row] != NOT_STARTED
        once = killed or (restarts and self.records.test[row] == Test.WENT_ON)
        if self._known_s is None and not self._untested and not once:
            return column
        column = column.copy()
        saved_s = self._kept_s(row)
        if self._known_s is not None:
            column[Column.REQUESTED] = self._known_s[row]
        if self._untested or once:
            column[Column.RESTARTABLE] = 0
        if killed:
            column[Column.REQUESTED] += self.restart_cost_s
        if saved_s:
            column[Column.REQUESTED] = max(column[Column.REQUESTED] - saved_s, 1)
        return column

    def _kept_s(self, row: int) -> int:
        """What checkpoints have kept of a job's earlier runs, seconds."""
        return self._saved_s.item(row) if len(self._saved_s) else 0

    @property
    def _next(self) -> int:
        """How many jobs have been submitted."""
        return self._state.marks.item(NEXT)

    def _next_job(self) -> tuple[int, IntArray]:
        """Row and column of the block of the next job."""
        at = self._next
        if self._coming is None or at - self._coming[0] == len(self._coming[1]) - 1:
            self._next_part()
        assert self._coming is not None
        first, coming = self._coming
        self._state.marks[NEXT] += 1
        return coming.item(at - first, 0), coming[at - first, 2:]

    def _next_part(self) -> tuple[int, IntArray]:
        """Read the next jobs of the log, see `cpdispatch.simulator.kernels.go_on`."""
        first = self._next
        rows = self._order[first : first + _PART + 1]
        block = self.workload.table.take(rows).block
        coming = np.empty((len(rows), 2 + len(block)), dtype=np.int64)
        coming[:, 0], coming[:, 1], coming[:, 2:] = rows, self._state.queue_code[rows], block.T
        if self._given_s is not None:
            upper_s = np.maximum(block[_REQUESTED], 1)
            coming[:, 2 + _UPPER] = upper_s
            coming[:, 2 + _EXPECTED] = np.minimum(np.maximum(self._given_s[rows], 1), upper_s)
        if len(rows) <= _PART:
            coming = np.concatenate((coming, np.full((1, coming.shape[1]), NEVER)))
        self._coming = first, coming
        return self._coming

    def _complete(self) -> None:
        row, kind = self._agenda.take()
        if kind == BEGIN:
            self._enqueue(row, self.workload.table.values(row), *self._expected.pop(row))
        if kind != END or self._attempts.outlives(row, self.now):
            return
        self._state.end(row)
        if self._gates is not None:
            self._gates.end(row)
        self.records.end_s[row] = self.now
        if self._given_s is None:
            runtime_s = self._runtime_s.item(row) + self._kept_s(row)
            self._guard.learn(self._live.pop(row), runtime_s)
        if self._precedence is not None:
            self._wake_after(row, self._precedence)

    def _end_attempts(self) -> bool:
        """End the attempts that end in this second though their jobs do not, if there are any."""
        rows = self._attempts.ending(self.now)
        for row in rows:
            self._agenda.forget(row)
            self._attempts.outlives(row, self.now)
        return bool(rows)

    def _happen(self) -> None:
        """Let the next event happen: jobs on nodes that it takes are queued again, or end."""
        assert self._course is not None
        event = self._course.take()
        self._state.down = self._course.down
        self._state.reservations = self._course.reservations(self.now)
        self._note_idle()
        if event is not None and event.kind in (FAIL, MAINTAIN):
            for row in self._state.running_on(event.nodes):
                self._node_failed(row)
            for row in self._attempts.stopped_on(event.nodes):
                self._queue_after_failure(row, *self._attempts.cut_stopped(row), tested=True)
        elif event is not None and event.kind == CAPACITY:
            for row in self._state.misfits(event.nodes, self._course.system.capacity):
                self._node_failed(row)
            rows, fit = self._state.fitting()
            self._came_s[rows[~fit]] = self.now
            self._state.resize(self._course.system)
            for row in self._attempts.misfits(event.nodes):
                self._queue_after_failure(row, *self._attempts.cut_stopped(row), tested=True)

    def _node_failed(self, row: int) -> None:
        """Stop a job on a node that failed, or the clearing of its nodes if it was killed."""
        self._agenda.forget(row)
        if not self._attempts.clear(row, self.now):
            self._queue_after_failure(row, *self._attempts.cut(row))

    def _queue_after_failure(self, row: int, expected_s: int, upper_s: int, tested: bool) -> None:
        """Queue a job again that ran on a node that failed, if it may be; else it has ended."""
        again = bool(self._requeue[row] and self.records.requeued[row] < REQUEUES_MAX)
        saved_s = 0
        if again and self._checkpoints is not None:
            saved_s = self._checkpoints.saved_s(self.now - self.records.start_s.item(row))
            self._saved_s[row] += saved_s
            self._runtime_s[row] -= saved_s
        self.records.node_failed(row, self.now, again, saved_s, tested)
        if self._gates is not None:
            self._gates.end(row)
        if again:
            self._guard.restart(self._live[row], self.now)
            left_s = (max(said_s - saved_s, 1) for said_s in (expected_s, upper_s))
            self._enqueue(row, self.workload.table.values(row), *left_s)
            return
        self._guard.leave(self._live.pop(row))
        if self._precedence is not None:
            self._wake_after(row, self._precedence)

    def _start(self, decision: Decision) -> None:
        """Start jobs that are not on their nodes already; stopped ones end as if never stopped."""
        placements = decision.placements
        now = decision.start_s[placements.position] == self.now
        if not now.all():
            placements = _only(placements, now)
        rows = self._state.queue_hidden[ROW, placements.position]
        goes_on = self._attempts.go_on()
        bound_s, new = None, rows
        if goes_on:
            others = ~np.isin(rows, list(goes_on))
            placements, new = _only(placements, others), rows[others]
        if self._attempts.possible and decision.bound_s is not None:
            bound_s = decision.bound_s[placements.position]
            self._attempts.start(new, bound_s)
        if len(new):
            self._state.start(self.now, placements, self.now + self._runtime_s[new], bound_s)
            self.records.started(self.now, new, decision, placements)
        for row, run_s in zip(rows.tolist(), self._attempts.run_s(rows).tolist(), strict=True):
            self._agenda.add(goes_on.get(row, self.now) + run_s, row)
            if self._given_s is None and row not in goes_on:
                self._guard.start(self._live[row], self.now)

    def _snapshot(self) -> Instance:
        if self._refreshing:
            self._state.refresh(self.now, self._asked_again)
        known = self._state.reservations
        if self._switching is not None:
            capacity, down = self._state.system.capacity, self._state.down
            off = self._switching.reservations(self.now, capacity, down, known)
            self._state.reservations = (*known, *off)
        data = dict(self._values) if self._data else None
        instance = self._state.snapshot(self.now, self._attempts.stopped, data, self._came_s)
        self._state.reservations = known
        return instance if self._power_cap is None else self._with_power(instance, self._power_cap)

    def _asked_again(self, row: int, elapsed_s: int) -> int:
        """How long a job will run, of which a predictor is asked that knows its earlier runs."""
        kept_s = self._kept_s(row)
        return self._guard.refresh(self._live[row], elapsed_s + kept_s) - kept_s

    def _with_power(self, instance: Instance, cap: Steps) -> Instance:
        """The snapshot with the least cap that any job which starts now may live to see.

        So what starts now cannot exceed a lower cap that is to come. What already runs may be more
        than that: it will have ended by then. A unit counts with what it draws where it draws the
        most, and what runs as if it did, so that just as much is left as there is.
        """
        longest_s = int(instance.queue.requested_s.max(initial=1))
        power = Power(int(cap.least(self.now, self.now + longest_s)), self.system.unit_watts)
        running = instance.running
        told = int(replace(instance, power=power).job_power(running.jobs).sum())
        places = running.offset, running.node, running.units
        drawn = int(watts_of(self.system, running.jobs.request, *places).sum())
        left = max(power.cap - self.system.idle_total - drawn, 0)
        return replace(instance, power=replace(power, cap=told + left))

    def _give_up(self, cap: Steps) -> None:
        """Take the jobs out of the queue that draw more than the cap will ever leave again."""
        rows = self._state.queue_hidden[ROW, : self._state.queued]
        over = (self._watts[rows] > int(cap.most(self.now)) - self.system.idle_total).nonzero()[0]
        if len(over):
            self._over_cap += len(over)
            self._refuse(over, Reason.NEVER_FITS)
            self._state.remove(over)

    # ------------------------------------------------------------------------ the dependencies

    def _with_dependencies(self, instance: Instance, precedence: Precedence) -> Instance:
        """The snapshot with what keeps its queued jobs back."""
        rows = self._state.queue_hidden[ROW, : self._state.queued]
        ending = precedence.ending(instance, rows, self.records)
        if len(ending):
            self._came_s[ending] = np.maximum(self._came_s[ending], self.now)
            instance = replace(instance, came_s=self._state.came(self._came_s))
        found = precedence.dependencies(instance, rows, self.records)
        return instance if found is None else replace(instance, dependencies=found)

    def _wake_after(self, row: int, precedence: Precedence, rejected: bool = False) -> None:
        """See to it that a dispatch comes when jobs need not wait for this one any longer."""
        for later in precedence.after(row).tolist():
            think_s = 0 if rejected else int(precedence.think_s[later])
            at = self.now + think_s
            self._came_s[later] = max(self._came_s[later], at)
            # An end is followed by a dispatch anyway, and so is the submission of a later job.
            if (think_s or rejected) and self.workload.table.submit_s[later] <= at:
                self._agenda.wake(at)

    # ----------------------------------------------------------------------- progress, saving

    @property
    def notes(self) -> dict[str, int]:
        """What went otherwise than the log or the predictor would have it, and how often.

        Dependencies that are not honoured, and why; events that have not happened; faults of the
        predictor so far.
        """
        dependencies = {} if self._precedence is None else self._precedence.notes
        over = {OVER_CAP: self._over_cap} if self._over_cap else {}
        to_come = 0 if self._course is None else self._course.to_come
        out = {BEFORE: self._before, AFTER_THE_END: to_come}
        outside = {what: events for what, events in out.items() if events}
        return {**dependencies, **self._beyond, **over, **outside, **self._guard.faults}

    @property
    def of_predictor(self) -> dict[str, object]:
        """The wall time of the predictor's calls so far, seconds, and its own tables if any."""
        return self._guard.summary()

    @property
    def happened(self) -> list[Event] | None:
        """What has happened to the system so far; None where nothing can."""
        return None if self._course is None else self._course.happened

    @property
    def switched(self) -> list[list[int]] | None:
        """Each time that a node was off, see `Switching`; None where none can be."""
        return None if self._switching is None else self._switching.spells

    @property
    def checkpoints(self) -> bool:
        """Whether jobs write checkpoints."""
        return self._checkpoints is not None

    @property
    def at_present(self) -> Now:
        """What it is like now, for those who look on."""
        state = self._state
        held = state.system.capacity - state.free
        behind = len(self._expected)
        return Now(
            self.now, state.queued + behind, state.running, len(self.records), held,
            self.records.last_dispatches(LAST),
        )  # fmt: skip

    @property
    def progress(self) -> float:
        """Share of the jobs that have been submitted so far."""
        return self._next / max(len(self._order), 1)

    def __getstate__(self) -> dict[str, object]:
        """Everything, but for the workload where that is kept beside it."""
        state = self.__dict__ | {"_coming": None}
        if self.log_is_apart:
            del state["workload"]
        return state


def _only(placements: Placements, keep: BoolArray) -> Placements:
    """Some of the placements, shape (placed,)."""
    count = np.diff(placements.offset)
    entry = np.repeat(keep, count)
    return Placements(
        placements.position[keep],
        np.concatenate(([0], np.cumsum(count[keep]))),
        placements.node[entry],
        placements.units[entry],
    )
