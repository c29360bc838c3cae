from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from ortools.sat.python import cp_model

from cpdispatch.models.solver import (
    ANSWER,
    COMMAND,
    DIED,
    GIVE_UP_AFTER,
    LATE,
    NONSENSE,
    NOT_STARTED,
    READY,
    REQUEST,
    Solver,
    shared,
)
from tests.scripts import WITH_TESTS

PATIENCE_S = 20.0
"""A deadline for what needs no time, on a machine that is very busy."""

TOOLS = f"""
import os, signal, struct, sys, time

def say(told):
    sys.stdout.buffer.write(told)
    sys.stdout.buffer.flush()

def problem():
    number, *sizes = struct.unpack({REQUEST.format!r}, sys.stdin.buffer.read({REQUEST.size}))
    for size in sizes:
        sys.stdin.buffer.read(size)
    return number

def header(number, status=4, count=2, objective=3.0, bound=3.0, word={READY!r}):
    counts = (count, 7)  # 7 conflicts
    return struct.pack({ANSWER.format!r}, word, number, status, *counts, objective, bound, 0.0, 0.0)

def ready():
    say({READY!r})

TWO = struct.pack("<qq", 3, 9)
"""

FAULTS = {
    "hangs": "ready(); problem(); time.sleep(600)",
    "hangs_deaf": "ready(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "stops": "ready(); problem(); os.kill(os.getpid(), signal.SIGSTOP)",
    "exits_at_once": "",
    "exits_when_ready": "ready()",
    "exits_while_solving": "ready(); problem(); sys.exit(3)",
    "crashes": "ready(); problem(); os.kill(os.getpid(), signal.SIGSEGV)",
    "prints_before": "say(b'Welcome to this machine\\n'); ready(); time.sleep(600)",
    "prints_garbage": "ready(); problem(); say(bytes(range(256)) * 99); time.sleep(600)",
    "prints_for_ever": "ready(); problem()\nwhile True: say(bytes(9999))",
    "truncates_header": "ready(); say(header(problem())[:20])",
    "truncates_values": "ready(); say(header(problem()) + TWO[:11])",
    "truncates_and_hangs": "ready(); say(header(problem()) + TWO[:11]); time.sleep(600)",
    "too_few_values": "ready(); say(header(problem(), count=1) + TWO[:8]); time.sleep(600)",
    "too_many_values": "ready(); say(header(problem(), count=3) + TWO + TWO); time.sleep(600)",
    "endless_values": "ready(); say(header(problem(), count=2**60) + TWO); time.sleep(600)",
    "no_values": "ready(); say(header(problem(), count=0)); time.sleep(600)",
    "infeasible_with_values": "ready(); say(header(problem(), status=3) + TWO); time.sleep(600)",
    "unknown_status": "ready(); say(header(problem(), status=17) + TWO); time.sleep(600)",
    "unknown_status_alone": "ready(); say(header(problem(), 17, 0)); time.sleep(600)",
    "negative_status": "ready(); say(header(problem(), status=-1) + TWO); time.sleep(600)",
    "no_number": "ready(); say(header(problem(), objective=float('nan')) + TWO); time.sleep(600)",
    "another_word": "ready(); say(header(problem(), word=b'12345678') + TWO); time.sleep(600)",
    "another_problem": "ready(); say(header(problem() + 1) + TWO); time.sleep(600)",
    "closes_its_pipes": "ready(); problem(); os.close(0); os.close(1); time.sleep(600)",
}
"""What a process may do to its caller, by name."""

SILENT = ("hangs", "hangs_deaf", "stops", "truncates_and_hangs")
"""Those that only the deadline tells from a process that is still at work."""


@pytest.fixture(scope="module")
def real() -> Iterator[Solver]:
    """A solver that works, and is warm."""
    solver = Solver()
    assert solver.warm_up()
    yield solver
    solver.close()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Solver]]:
    """Makes a solver whose process is faulty, the first time it is started or every time."""
    made = []

    def make(fault: str, *, once: bool = False, ready_s: float = PATIENCE_S) -> Solver:
        path, starts = tmp_path / "worker.py", tmp_path / "starts"
        good = f"if len(open({str(starts)!r}).read()) > 1: os.execv({COMMAND[0]!r}, {COMMAND!r})\n"
        path.write_text(
            TOOLS + f"open({str(starts)!r}, 'a').write('*')\n" + (good if once else "") + fault
        )
        made.append(Solver((sys.executable, str(path)), ready_s))
        return made[-1]

    yield make
    for solver in made:
        solver.close()


def soon(wait_s: float = PATIENCE_S) -> float:
    return perf_counter() + wait_s


def limits(**given: Any) -> Any:
    parameters = cp_model.CpSolver().parameters
    parameters.num_workers = 1
    for name, value in given.items():
        setattr(parameters, name, value)
    return parameters


def easy(least: int = 3) -> cp_model.CpModel:
    """Two numbers, 3 and 9 at best."""
    model = cp_model.CpModel()
    low, high = model.new_int_var(least, 9, 'lo"w é\n'), model.new_int_var(9, 9, "")
    model.minimize(low)
    assert high.index == 1
    return model


def hard(jobs: int = 60) -> cp_model.CpModel:
    """Jobs on a machine: solved at once, proven never."""
    draw, model = random.Random(1), cp_model.CpModel()
    starts = [model.new_int_var(0, 100_000, "") for _ in range(jobs)]
    held = [model.new_fixed_size_interval_var(s, draw.randint(10, 90), "") for s in starts]
    model.add_cumulative(held, [draw.randint(1, 7) for _ in range(jobs)], 10)
    model.minimize(sum(draw.randint(1, 100) * start for start in starts))
    return model


def gone(pid: int) -> bool:
    """Whether a process ends in due time; one that nobody has taken note of has ended, too."""
    until = soon()
    while perf_counter() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except ProcessLookupError:
            return True
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    return False


def run(source: str) -> subprocess.CompletedProcess[str]:
    """What a script of a user does, which has no main guard."""
    head = (
        f"{WITH_TESTS}import os, signal, time\nfrom tests.models.test_solver import *\n"
        "from cpdispatch.models.solver import Solver, shared\n"
    )
    return subprocess.run(
        [sys.executable, "-c", head + source],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# ----------------------------------------------------------------------------- a solver that works


def test_an_optimum_has_its_value_bound_and_variables(real: Solver) -> None:
    response = real.solve(easy(), limits(), soon())
    assert response is not None
    assert response.status == cp_model.OPTIMAL
    assert (response.objective, response.bound, response.values) == (3.0, 3.0, (3, 9))
    assert response.wall_s > 0


def test_a_model_without_solution_is_infeasible(real: Solver) -> None:
    model = easy()
    model.add(model.get_int_var_from_proto_index(0) > 9)
    response = real.solve(model, limits(), soon())
    assert response is not None
    assert response.status == cp_model.INFEASIBLE
    assert (response.objective, response.bound, response.values) == (None, None, ())


def test_a_limit_that_is_over_at_once_leaves_it_unknown(real: Solver) -> None:
    response = real.solve(hard(), limits(max_deterministic_time=1e-9), soon())
    assert response is not None
    assert response.status == cp_model.UNKNOWN
    assert (response.objective, response.bound, response.values) == (None, None, ())


def test_an_invalid_model_is_called_so(real: Solver) -> None:
    model = cp_model.CpModel()
    model.new_int_var(-(2**62), 2**62, "")
    model.proto.variables[0].domain[0] = 2**62 + 1
    response = real.solve(model, limits(), soon())
    assert response is not None
    assert response.status == cp_model.MODEL_INVALID


def test_a_model_without_variables_is_solved(real: Solver) -> None:
    response = real.solve(cp_model.CpModel(), limits(), soon())
    assert response is not None
    assert (response.status, response.values) == (cp_model.OPTIMAL, ())


@pytest.mark.parametrize("seed", range(3))
def test_it_answers_as_a_solver_in_this_process(real: Solver, seed: int) -> None:
    model, given = hard(), limits(max_deterministic_time=0.2, random_seed=seed)
    for index, hinted in ((0, 40), (7, 0)):
        model.add_hint(model.get_int_var_from_proto_index(index), hinted)
    here = cp_model.CpSolver()
    here.parameters.copy_from(given)
    status = here.solve(model)
    response = real.solve(model, given, soon())
    assert response is not None
    assert response.status == status == cp_model.FEASIBLE
    assert response.values == tuple(here.response_proto.solution)
    assert response.objective == here.objective_value
    assert response.bound == here.best_objective_bound
    assert response.deterministic_s == here.deterministic_time
    assert response.conflicts == here.num_conflicts > 0


def test_one_process_serves_many_problems(real: Solver) -> None:
    pid = real.pid
    for least in range(10):
        response = real.solve(easy(least), limits(), soon())
        assert response is not None
        assert response.values == (least, 9)
    assert real.pid == pid


def test_what_the_solver_prints_is_no_answer(real: Solver) -> None:
    response = real.solve(easy(), limits(log_search_progress=True, log_to_stdout=True), soon())
    assert response is not None
    assert response.values == (3, 9)


def test_a_large_model_comes_and_goes_whole(real: Solver) -> None:
    model = cp_model.CpModel()
    numbers = [model.new_int_var(index, 2**40, f"number {index}") for index in range(30_000)]
    model.minimize(cp_model.LinearExpr.sum(numbers))
    response = real.solve(model, limits(), soon())
    assert response is not None
    assert response.values == tuple(range(30_000))


def test_a_new_problem_ends_the_one_before_it(real: Solver) -> None:
    pid = real.pid
    # While it is read, while it is presolved, while it is searched.
    for pause_s in (0.0, 0.02, 0.3):
        assert real.begin(hard(3000), limits(max_time_in_seconds=600), soon())
        time.sleep(pause_s)
    response = real.solve(easy(), limits(), soon())
    assert response is not None
    assert response.values == (3, 9)
    assert real.pid == pid


def test_the_answer_of_an_abandoned_problem_is_left_out(script: Callable[..., Solver]) -> None:
    solver = script(
        "ready(); say(header(problem(), count=5) + bytes(40)); say(header(problem()) + TWO)\n"
        "time.sleep(600)"
    )
    assert solver.warm_up()
    assert solver.begin(hard(5), limits(), soon())
    response = solver.solve(easy(), limits(), soon())
    assert response is not None
    assert response.values == (3, 9)


def test_without_a_problem_there_is_no_result(real: Solver) -> None:
    pid = real.pid
    assert real.result(soon()) is None
    assert real.solve(easy(), limits(), soon()) is not None
    assert real.result(soon()) is None
    assert real.pid == pid


def test_an_answer_is_told_before_it_is_taken(real: Solver) -> None:
    assert real.answered
    assert real.begin(hard(), limits(max_time_in_seconds=600), soon())
    assert not real.answered
    assert real.begin(easy(), limits(), soon())
    until = soon()
    while not real.answered and perf_counter() < until:
        time.sleep(0.001)
    assert real.answered
    assert real.result(perf_counter()) is not None


def test_a_process_that_is_gone_is_not_waited_for(script: Callable[..., Solver]) -> None:
    solver = script("ready(); problem()")
    assert solver.warm_up()
    assert solver.begin(easy(), limits(), soon())
    until = soon()
    while not solver.answered and perf_counter() < until:
        time.sleep(0.001)
    assert solver.answered
    assert solver.result(soon()) is None


def test_a_bound_that_is_infinite_is_none(script: Callable[..., Solver]) -> None:
    solver = script("ready(); say(header(problem(), bound=-float('inf')) + TWO); time.sleep(600)")
    assert solver.warm_up()
    response = solver.solve(easy(), limits(), soon())
    assert response is not None
    assert (response.objective, response.bound) == (3.0, None)


# ------------------------------------------------------------------------------ one that does not


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_comes_from_a_faulty_process_and_the_next_one_works(
    script: Callable[..., Solver], fault: str
) -> None:
    solver = script(FAULTS[fault], once=True)
    # The good process is only started when the faulty one has failed.
    solver.warm_up()
    first = solver.pid
    if fault not in ("exits_at_once", "prints_before"):
        began = perf_counter()
        until = began + (0.3 if fault in SILENT else PATIENCE_S)
        assert solver.solve(easy(), limits(), until) is None
        assert perf_counter() - began < 5
        assert solver.pid != first
        assert first is not None
        assert gone(first)
    assert solver.warm_up()
    response = solver.solve(easy(), limits(), soon())
    assert response is not None
    assert response.values == (3, 9)
    assert not solver.given_up


def test_a_limit_that_is_ignored_is_kept_all_the_same() -> None:
    solver = Solver()
    try:
        assert solver.warm_up()
        began = perf_counter()
        assert solver.solve(hard(), limits(max_time_in_seconds=600), began + 0.3) is None
        assert 0.3 <= perf_counter() - began < 5
    finally:
        solver.close()


def test_a_deadline_is_not_spent_on_a_new_process_but_a_crash_before_it_is(
    script: Callable[..., Solver],
) -> None:
    solver = script("ready(); problem(); sys.exit(1)")
    assert solver.warm_up()
    assert solver.solve(easy(), limits(), soon()) is None
    assert solver.pid is not None
    assert solver.warm_up()
    assert solver.begin(easy(), limits(), soon())
    assert solver.result(perf_counter()) is None
    assert solver.pid is None
    assert solver.warm_up()
    assert solver.pid is not None


def test_a_model_that_nobody_reads_does_not_block(script: Callable[..., Solver]) -> None:
    solver = script("ready(); time.sleep(600)")
    assert solver.warm_up()
    model = hard(5_000)
    began = perf_counter()
    assert not solver.begin(model, limits(), began + 0.3)
    assert perf_counter() - began < 5
    assert solver.result(soon()) is None


def test_a_process_that_is_not_ready_gets_no_problem_and_is_not_waited_for(
    script: Callable[..., Solver],
) -> None:
    solver = script("time.sleep(600)", ready_s=0.5)
    began = perf_counter()
    assert not solver.begin(easy(), limits(), soon())
    first = solver.pid
    assert solver.result(soon()) is None
    assert not solver.warm_up()
    assert perf_counter() - began < 5
    assert solver.pid != first


@pytest.mark.parametrize("fault", ["", "ready()", "ready(); problem(); time.sleep(600)"])
def test_after_some_failures_it_gives_up(
    script: Callable[..., Solver], tmp_path: Path, fault: str
) -> None:
    solver = script(fault)
    for _ in range(2 * GIVE_UP_AFTER):
        solver.warm_up()
        assert solver.solve(easy(), limits(), soon(0.1)) is None
    assert solver.given_up
    assert solver.pid is None
    assert len((tmp_path / "starts").read_text()) == GIVE_UP_AFTER


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("crashes", DIED), ("exits_while_solving", DIED), ("truncates_values", DIED),
        ("prints_garbage", NONSENSE), ("too_few_values", NONSENSE), ("unknown_status", NONSENSE),
        ("prints_before", NONSENSE),
    ],
)  # fmt: skip
def test_one_that_insists_gets_its_answer_from_another_process(
    script: Callable[..., Solver], fault: str, told: str
) -> None:
    solver = script(FAULTS[fault], once=True)
    response = solver.insist(easy(), limits(), soon())
    assert response is not None
    assert response.values == (3, 9)
    assert solver.faults == {told: 1}


@pytest.mark.parametrize("fault", SILENT)
def test_one_that_insists_waits_for_no_longer_than_it_says(
    script: Callable[..., Solver], fault: str
) -> None:
    solver = script(FAULTS[fault])
    assert solver.warm_up()
    assert solver.insist(easy(), limits(), soon(0.3)) is None
    assert solver.faults == {LATE: 1}


def test_one_that_insists_ends_when_the_solver_gives_up(script: Callable[..., Solver]) -> None:
    solver = script("ready()")
    assert solver.insist(easy(), limits(), soon()) is None
    assert solver.given_up
    assert solver.faults == {DIED: GIVE_UP_AFTER}
    nothing = Solver(("no such program",))
    assert nothing.insist(easy(), limits(), soon()) is None
    assert nothing.faults == {NOT_STARTED: GIVE_UP_AFTER}


def test_an_answer_makes_up_for_failures(script: Callable[..., Solver], tmp_path: Path) -> None:
    solver = script("ready(); say(header(problem()) + TWO); problem()")
    for _ in range(GIVE_UP_AFTER + 2):
        assert solver.warm_up()
        assert solver.solve(easy(), limits(), soon()) is not None
        assert solver.solve(easy(), limits(), soon()) is None
    assert not solver.given_up


@pytest.mark.parametrize("command", ["no such program", "", "a\0b", os.devnull])
def test_a_process_that_cannot_be_started_is_no_error(command: str) -> None:
    solver = Solver((command,))
    assert not solver.begin(easy(), limits(), soon())
    assert solver.result(soon()) is None
    assert not solver.warm_up()
    assert solver.given_up
    solver.close()


def test_an_interrupt_of_the_caller_leaves_a_solver_that_works() -> None:
    solver = Solver()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        assert solver.warm_up()
        assert solver.begin(hard(), limits(), soon())
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            solver.result(soon())
        assert solver.pid is None
        assert solver.warm_up()
        assert solver.solve(easy(), limits(), soon()) is not None
    finally:
        signal.signal(signal.SIGALRM, before)
        solver.close()


# -------------------------------------------------------------------------------- the process' life


def test_a_closed_solver_has_no_process_and_can_be_used_again() -> None:
    solver = Solver()
    solver.close()
    assert solver.warm_up()
    first = solver.pid
    assert first is not None
    solver.close()
    solver.close()
    assert solver.pid is None
    assert gone(first)
    assert solver.result(soon()) is None
    assert solver.warm_up()
    assert solver.solve(easy(), limits(), soon()) is not None
    solver.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_process_takes_no_notice_of_what_ends_a_command(real: Solver, number: int) -> None:
    pid = real.pid
    assert pid is not None
    os.kill(pid, number)
    assert real.solve(easy(), limits(), soon()) is not None
    assert real.pid == pid


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", ""])
def test_the_process_ends_with_its_caller_even_while_it_searches(end: str) -> None:
    done = run(
        "solver = shared(); solver.warm_up()\n"
        "assert solver.begin(hard(), limits(max_time_in_seconds=600), soon())\n"
        "time.sleep(0.2); print(solver.pid, flush=True)\n" + end
    )
    assert done.stdout, done.stderr
    assert gone(int(done.stdout))


def test_a_fork_does_not_keep_the_process_alive_and_has_its_own() -> None:
    done = run(
        "solver = shared(); solver.warm_up(); pid = solver.pid\n"
        "assert solver.begin(easy(), limits(), soon())\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    assert solver.pid is None and solver.result(soon()) is None and solver.warm_up()\n"
        "    assert solver.solve(easy(5), limits(), soon()).values == (5, 9)\n"
        "    assert solver.pid != pid\n"
        "    raise SystemExit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "assert solver.result(soon()).values == (3, 9) and solver.pid == pid\n"
        "child = os.fork()\n"
        "if child == 0: os.closerange(0, 3); time.sleep(120); os._exit(0)\n"
        "print(pid, child, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert done.stdout, done.stderr
    pid, child = map(int, done.stdout.split())
    try:
        assert gone(pid)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_leaves_its_parents_process_alone(real: Solver) -> None:
    pid = real.pid
    assert real.begin(easy(), limits(), soon())
    child = os.fork()
    if child == 0:
        try:
            begun = real.begin(easy(), limits(), soon())
            own = real.pid not in (None, pid)
            real.close()
        finally:
            os._exit(7 if own and not begun and real.pid is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    response = real.result(soon())
    assert response is not None
    assert response.values == (3, 9)
    assert real.pid == pid


def test_there_is_one_solver_for_all() -> None:
    assert shared() is shared()


def test_an_answer_is_only_for_the_thread_that_asked(real: Solver) -> None:
    thread = threading.Thread(target=real.begin, args=(easy(), limits(), soon()))
    thread.start()
    thread.join()
    assert real.result(soon()) is None
    assert real.solve(easy(5), limits(), soon()) is not None


def test_threads_that_meet_get_no_answers_of_each_other(real: Solver) -> None:
    began, seen = threading.Event(), []

    def other() -> None:
        assert real.begin(hard(), limits(max_time_in_seconds=0.5), soon())
        began.set()
        seen.append(real.result(soon()))

    thread = threading.Thread(target=other)
    thread.start()
    assert began.wait(PATIENCE_S)
    assert real.result(soon()) is None
    thread.join()
    assert seen[0] is None or seen[0].status == cp_model.FEASIBLE
    assert real.warm_up()
    assert real.solve(easy(), limits(), soon()) is not None


def test_the_process_loads_no_more_than_it_needs_and_ends_with_its_input() -> None:
    done = subprocess.run(
        [COMMAND[0], "-X", "importtime", *COMMAND[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )
    loaded = {line.split("|")[-1].strip() for line in done.stderr.decode().splitlines()}
    assert done.stdout == READY
    assert "ortools.sat.python.cp_model_helper" in loaded
    assert not loaded & {"numpy", "pandas", "numba", "pyarrow", "ortools.sat.python.cp_model"}


def test_the_process_finds_what_its_caller_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "far_away.py").write_text(f"print({READY.decode()!r}, end='')")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    solver = Solver((sys.executable, "-c", "import far_away"))
    assert solver.warm_up()
    solver.close()
