"""CP-SAT in a process of its own: a solve that can be abandoned.

A solver that crashes takes its process with it, not the dispatcher; one that hangs, or takes no
notice of its limit, is killed at the dispatcher's deadline. Run as a program
(``python -m cpdispatch.models.solver``), this module is that process.

Notes
-----
The two talk over pipes, each message a fixed header and bytes. Models and parameters travel as
protobuf text, since the Python protos of OR-Tools 9.15 have no binary form. The process sends
`READY` once it can solve, then an answer to each problem. It imports OR-Tools' compiled module
alone: ``cp_model`` would load pandas, which takes five times as long.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, NoReturn

from ortools.sat.python import cp_model_helper as cp_sat

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

COMMAND = (sys.executable or "python3", "-P", "-m", "cpdispatch.models.solver")
"""What starts the process."""

GIVE_UP_AFTER = 3
"""Failures in a row, no answer between them, after which no new process is started."""

READY_S = 60.0
"""Seconds that a process may take until it can solve; 0.1 on a machine that is not busy."""

START_S = 0.05
"""Seconds that starting a process may take from its caller, on a machine that is very busy."""

READY = b"CP-SAT!\n"
"""What the process says when it can solve."""

REQUEST = struct.Struct("<QQQ")
"""Header of a problem: its number, the bytes of its model and of its parameters, which follow."""

ANSWER = struct.Struct("<8sQiQQdddd")
"""Header of an answer: `READY`, the problem's number, status, how many values follow (int64 each),
conflicts, objective, bound, wall and deterministic time."""

NOT_STARTED, DIED = "its process could not be started", "its process died"
LATE, NONSENSE = "its process gave no answer in time", "its process answered nonsense"
"""What `Solver.faults` counts."""

_STATUSES = {int(status): status for status in cp_sat.CpSolverStatus.__members__.values()}
_SOLVED = (cp_sat.CpSolverStatus.OPTIMAL, cp_sat.CpSolverStatus.FEASIBLE)
_CHUNK = 1 << 20
_NAP_S = 3600.0
_BURY_S = 1.0


@dataclass(frozen=True, slots=True)
class Response:
    """What CP-SAT answered."""

    status: cp_sat.CpSolverStatus
    """One of those of ``cp_model``."""
    objective: float | None
    """Of the solution; None where there is none."""
    bound: float | None
    """Proven bound of the objective; None where there is no solution, or it is infinite."""
    values: tuple[int, ...]
    """The value of each variable of the model, by index; empty where there is no solution."""
    wall_s: float
    deterministic_s: float
    """CP-SAT's own account of the search, seconds."""
    conflicts: int


# ------------------------------------------------------------------------------- the caller's side


class _Worker:
    """A process, and what has come from it."""

    def __init__(self, command: Sequence[str]) -> None:
        # A script that extended its path finds OR-Tools there; the process must, too.
        path = os.pathsep.join(entry for entry in sys.path if isinstance(entry, str))
        self.process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._pipes = self.process.stdin, self.process.stdout
        self._into, self._from = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self._into, False)
        os.set_blocking(self._from, False)
        self._unread = bytearray()
        self.began = perf_counter()
        self.ready = False

    def send(self, message: bytes, until: float) -> bool:
        """Whether all of a message went into the pipe in time; OSError when nobody reads it."""
        rest = memoryview(message)
        while rest:
            if not _wait(self._into, select.POLLOUT, until):
                return False
            rest = rest[os.write(self._into, rest) :]
        return True

    def receive(self, size: int, until: float) -> bytes | None:
        """The next bytes, None when they have not come in time; EOFError when none will come."""
        while len(self._unread) < size:
            if not _wait(self._from, select.POLLIN, until):
                return None
            came = os.read(self._from, _CHUNK)
            if not came:
                raise EOFError
            self._unread += came
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    @property
    def speaks(self) -> bool:
        """Whether something has come from it that was not read yet."""
        return bool(self._unread) or _wait(self._from, select.POLLIN, 0.0)

    def kill(self) -> None:
        """End the process, without waiting for its end."""
        self.process.kill()
        self.leave()

    def leave(self) -> None:
        """Close the pipes, which is the end of the process if nobody else has them."""
        for pipe in self._pipes:
            pipe.close()


def _wait(descriptor: int, event: int, until: float) -> bool:
    """Whether a pipe can be written or read; looks once even when the time is over."""
    poller = select.poll()
    poller.register(descriptor, event)
    while True:
        left_s = min(max(until - perf_counter(), 0.0), _NAP_S)
        if poller.poll(math.ceil(left_s * 1e3)):
            return True
        if perf_counter() >= until:
            return False


class Solver:
    """CP-SAT in another process, which is replaced when it does not do as it should.

    Whatever happens there (a crash, a hang, nonsense), the caller gets no exception: there is no
    answer then, at the time it set and not later. A new process is started in the background, at
    once where there is time for that before the deadline, else with the next problem, which then
    has to do without.

    Parameters
    ----------
    command : sequence of str
        What starts the process.
    ready_s : float
        Seconds that it may take until it can solve.

    Notes
    -----
    A solver serves one caller at a time. Threads that share one harm neither it nor each other,
    but get no answers where they meet. In a forked child it starts a process of its own.

    After `GIVE_UP_AFTER` failures in a row (no answer in time, a crash, nonsense, no start) it
    gives up: there are no answers any more.

    Attributes
    ----------
    faults : Counter of str
        How often each of `NOT_STARTED`, `DIED`, `LATE` and `NONSENSE` has happened.

    Examples
    --------
    >>> from time import perf_counter
    >>> from ortools.sat.python import cp_model
    >>> model = cp_model.CpModel()
    >>> number = model.new_int_var(3, 9, "number")
    >>> model.minimize(number)
    >>> solver = Solver()
    >>> solver.warm_up()
    True
    >>> response = solver.solve(model, cp_model.CpSolver().parameters, perf_counter() + 10)
    >>> response.values[number.index]
    3
    >>> solver.close()
    """

    def __init__(self, command: Sequence[str] = COMMAND, ready_s: float = READY_S) -> None:
        self._command = tuple(command)
        self._ready_s = ready_s
        self._worker: _Worker | None = None
        self._killed: list[_Worker] = []
        self.faults: Counter[str] = Counter()
        self._failures = 0
        self._cause = LATE
        self._number = 0
        self._variables: int | None = None
        self._caller = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[], Solver], tuple[()]]:
        """What is left of a solver in a file or another process is the one that is shared there."""
        return shared, ()

    # ------------------------------------------------------------------------------------- problems

    def warm_up(self) -> bool:
        """Start the process if there is none, and wait until it can solve.

        Returns
        -------
        bool
            Whether it can: no when it could not be started, or not in ``ready_s``.
        """
        with self._turn() as mine:
            until = perf_counter() + self._ready_s
            ready = False
            while mine and not ready and not self.given_up and perf_counter() <= until:
                ready = self._ready(until)
            return ready

    def begin(
        self,
        model: cp_model.CpModel,
        parameters: cp_sat.SatParameters,
        until: float,
        *,
        wait: bool = False,
    ) -> bool:
        """Hand over a problem; an earlier one that has not been answered is abandoned.

        Parameters
        ----------
        parameters : SatParameters
            The limits in them should leave some time to answer.
        until : float
            When to stop trying, on the clock of ``time.perf_counter``, seconds.
        wait : bool
            Whether to wait for a process that has just been started.

        Returns
        -------
        bool
            Whether the process has the problem: no when it is not ready yet, or failed.
        """
        with self._turn() as mine:
            if not mine or not self._ready(until if wait else perf_counter()):
                return False
            contents = str(model.proto).encode(), str(parameters).encode()
            self._number += 1
            self._variables = len(model.proto.variables)
            self._caller = threading.get_ident()
            message = b"".join((REQUEST.pack(self._number, *map(len, contents)), *contents))
            with self._exchange() as worker:
                if worker.send(message, until):
                    return True
            self._replace(until)
            return False

    @property
    def answered(self) -> bool:
        """Whether `result` has nothing to wait for, or not for long."""
        return self._variables is None or self._worker is None or self._worker.speaks

    def result(self, until: float) -> Response | None:
        """Wait for the answer to the problem that was handed over last.

        Parameters
        ----------
        until : float
            When to stop waiting, on the clock of ``time.perf_counter``, seconds.

        Returns
        -------
        Response or None
            None when there is no such problem, or nothing usable came in time; the process has
            then been killed.
        """
        with self._turn() as mine:
            # Where two threads meet, the answer belongs to the one that asked last.
            if not mine or self._variables is None or self._caller != threading.get_ident():
                return None
            with self._exchange() as worker:
                response = self._answer(worker, self._variables, until)
                if response is not None:
                    self._variables, self._failures = None, 0
                    return response
            self._replace(until)
            return None

    def solve(
        self, model: cp_model.CpModel, parameters: cp_sat.SatParameters, until: float
    ) -> Response | None:
        """Hand over a problem and wait for its answer; see `begin` and `result`."""
        return self.result(until) if self.begin(model, parameters, until) else None

    def insist(
        self, model: cp_model.CpModel, parameters: cp_sat.SatParameters, until: float
    ) -> Response | None:
        """Hand over a problem and wait for its answer, from another process when one fails.

        The answer is that of `solve`. It does not depend on whether a process was killed or slow,
        as long as there is time for another one.
        """
        failures = -1
        while self._failures > failures and not self.given_up and perf_counter() < until:
            failures = self._failures
            if self.begin(model, parameters, until, wait=True):
                response = self.result(until)
                if response is not None:
                    return response
        return None

    def close(self) -> None:
        """End the process; a later problem would start another one."""
        with self._turn() as mine:
            if mine:
                self._kill()
                self._bury(_BURY_S)

    @property
    def given_up(self) -> bool:
        """Whether it has failed too often to be tried again."""
        return self._failures >= GIVE_UP_AFTER

    @property
    def pid(self) -> int | None:
        """The number of the process, if there is one."""
        return None if self._worker is None else self._worker.process.pid

    # ------------------------------------------------------------------------------------- internal

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """Whether it is this caller's turn: nobody else is at it."""
        if self._pid != os.getpid():
            self._forget()
        mine = self._lock.acquire(blocking=False)
        try:
            yield mine
        finally:
            if mine:
                self._lock.release()

    def _forget(self) -> None:
        """In a forked child: the process is the parent's, and the lock may be held for ever."""
        if self._worker is not None:
            self._worker.leave()
            self._killed.append(self._worker)
        for worker in self._killed:
            worker.process.poll()
        self._worker, self._killed = None, []
        self._failures, self._variables = 0, None
        self._pid, self._lock = os.getpid(), threading.Lock()

    @contextmanager
    def _exchange(self) -> Iterator[_Worker]:
        """Do something with the process; the failures that are its own end it quietly."""
        assert self._worker is not None
        self._cause = LATE
        try:
            yield self._worker
        except ValueError:
            self._cause = NONSENSE
        except (OSError, EOFError):
            self._cause = DIED
        except BaseException:
            # A Ctrl-C leaves half a message in a pipe, and nothing can follow that.
            self._kill()
            raise

    def _answer(self, worker: _Worker, variables: int, until: float) -> Response | None:
        """The answer to the last problem, None when it is late; ValueError when it is nonsense."""
        while (header := worker.receive(ANSWER.size, until)) is not None:
            word, number, code, count, *figures = ANSWER.unpack(header)
            last = number == self._number
            if word != READY or number > self._number or (last and count not in (0, variables)):
                raise ValueError
            values = worker.receive(8 * count, until)
            if values is None:
                return None
            # That of an abandoned problem may have been on its way.
            if last:
                return _response(code, array("q", values), variables, *figures)
        return None

    def _ready(self, until: float) -> bool:
        """Whether the process can solve; starts it where there is none."""
        self._start()
        if self._worker is None or self._worker.ready:
            return self._worker is not None
        with self._exchange() as worker:
            word = worker.receive(len(READY), until)
            worker.ready = word == READY
            if worker.ready:
                return True
            if word is None and perf_counter() < worker.began + self._ready_s:
                return False
            if word is not None:
                raise ValueError
        self._replace()
        return False

    def _replace(self, until: float = math.inf) -> None:
        """Kill the process, which has failed, and start another one if there is time for that."""
        self._failures += 1
        self.faults[self._cause] += 1
        self._kill()
        if until - perf_counter() > START_S:
            self._start()

    def _start(self) -> None:
        """Start a process in the background, where there is none."""
        if self._worker is not None or self.given_up:
            return
        self._bury(0.0)
        try:
            self._worker = _Worker(self._command)
        except (OSError, ValueError):
            self._failures += 1
            self.faults[NOT_STARTED] += 1

    def _kill(self) -> None:
        self._variables = None
        if self._worker is not None:
            self._worker.kill()
            self._killed.append(self._worker)
            self._worker = None

    def _bury(self, wait_s: float) -> None:
        """Take note of the end of killed processes, which the system keeps until then."""
        until = perf_counter() + wait_s
        for worker in self._killed:
            try:
                worker.process.wait(max(0.0, until - perf_counter()))
            except subprocess.TimeoutExpired:
                continue
        self._killed = [worker for worker in self._killed if worker.process.returncode is None]


def _response(
    code: int,
    values: array[int],
    variables: int,
    conflicts: int,
    objective: float,
    bound: float,
    wall_s: float,
    deterministic_s: float,
) -> Response:
    """What an answer's figures say; ValueError when they make no sense."""
    if code not in _STATUSES:
        raise ValueError
    status = _STATUSES[code]
    if status not in _SOLVED:
        if values:
            raise ValueError
        return Response(status, None, None, (), wall_s, deterministic_s, conflicts)
    if len(values) != variables or not math.isfinite(objective):
        raise ValueError
    proven = bound if math.isfinite(bound) else None
    return Response(status, objective, proven, tuple(values), wall_s, deterministic_s, conflicts)


@functools.cache
def shared() -> Solver:
    """The solver of this Python process; the process of the solver ends with it.

    A forked child gives up the solver of its parent, and starts its own when it first needs one.
    """
    solver = Solver(COMMAND)
    atexit.register(solver.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=solver.close)
    return solver


# ------------------------------------------------------------------------------ the process' side


class _Desk:
    """Where problems come in, in a thread: it sees to what a busy solver would not notice.

    A new problem stops the search for the one before it, and the end of the input (the caller has
    closed it, or is dead) ends the process.
    """

    def __init__(self) -> None:
        self.problems: queue.SimpleQueue[tuple[int, str, str]] = queue.SimpleQueue()
        self._newest = 0
        self._running: cp_sat.SolveWrapper | None = None
        self._lock = threading.Lock()

    def read(self) -> NoReturn:
        """Take in problems for as long as there are any."""
        source = sys.stdin.buffer
        try:
            while len(header := source.read(REQUEST.size)) == REQUEST.size:
                number, *sizes = REQUEST.unpack(header)
                model, parameters = (source.read(size).decode() for size in sizes)
                with self._lock:
                    self._newest = number
                    if self._running is not None:
                        self._running.stop_search()
                self.problems.put((number, model, parameters))
        finally:
            os._exit(0)

    def answer(self, number: int, model: str, parameters: str) -> bytes:
        """Solve a problem; nothing is answered when there is a newer one."""
        problem, given = cp_sat.CpModelProto(), cp_sat.SatParameters()
        if not problem.parse_text_format(model) or not given.parse_text_format(parameters):
            raise ValueError("not a problem")
        # CP-SAT's own care for Ctrl-C ends with the default, which ends the process.
        given.catch_sigint_signal = False
        # One for each search: a second one with the same ends the process.
        solver = cp_sat.SolveWrapper()
        solver.set_parameters(given)
        with self._lock:
            if number < self._newest:
                return b""
            self._running = solver
        response = solver.solve(problem)  # type: ignore[no-untyped-call]
        with self._lock:
            self._running = None
        values = array("q", response.solution)
        counts = (len(values), response.num_conflicts)
        figures = (response.objective_value, response.best_objective_bound)
        times = (response.wall_time, response.deterministic_time)
        header = ANSWER.pack(READY, number, int(response.status), *counts, *figures, *times)
        return b"" if number < self._newest else header + values.tobytes()


def _serve() -> NoReturn:
    """The loop of the solver's process: solve each model that arrives."""
    # A signal to the whole group of processes is for the caller; this process ends with the caller.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What a solver prints must not get between the answers.
    os.dup2(2, 1)
    desk = _Desk()
    try:
        # The first search takes some time of its own; and that it works is worth knowing.
        desk.answer(0, "variables { domain: 0 domain: 1 }", "num_workers: 1")
        answers.write(READY)
        answers.flush()
        threading.Thread(target=desk.read, daemon=True).start()
        while True:
            answers.write(desk.answer(*desk.problems.get()))
            answers.flush()
    finally:
        # Not the usual way out, which waits for the thread that reads.
        os._exit(1)


if __name__ == "__main__":
    _serve()
