"""The same answer whatever the machine does meanwhile: replays beside slowness and deaths."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pytest

from cpdispatch import verify
from cpdispatch.dispatch import Settings
from cpdispatch.models import budget, engine, hyper, part_search, solver
from cpdispatch.models.budget import Budget
from cpdispatch.simulator import simulate
from cpdispatch.simulator.run import Run
from cpdispatch.system import NAMED
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.generate import EURORA, generate

JOBS, SEED, LOAD = 36, 8, 8.0
"""A load of the sample's kind on which CP-SAT is asked often."""

SOLVERS = {
    "sleeps": "time.sleep(0.02)",
    "dies": "solved += 1\n    if solved == 3: os._exit(9)",
    "babbles": "solved += 1\n    if solved == 3: return b'nonsense' * 99",
}
"""What the solver's process does before each answer."""

PROCESS = """
import os, time
from cpdispatch.models import solver

answer, solved = solver._Desk.answer, 0

def slowly(desk, number, model, parameters):
    global solved
    if number == 0:
        return answer(desk, number, model, parameters)
    {fault}
    return answer(desk, number, model, parameters)

solver._Desk.answer = slowly
solver._serve()
"""


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Has the solver's process do something before each answer."""

    def start(fault: str) -> None:
        path = tmp_path / "process.py"
        path.write_text(PROCESS.format(fault=SOLVERS[fault]))
        solver.shared().close()
        solver.shared.cache_clear()
        monkeypatch.setattr(solver, "COMMAND", (sys.executable, str(path)))

    yield start
    solver.shared().close()
    solver.shared.cache_clear()


def replay(dispatcher: str) -> Run:
    system = NAMED["eurora"]
    workload = fit(generate(EURORA, JOBS, SEED, LOAD), system)
    return simulate(
        workload, system, dispatcher, predictor="walltime", settings=Settings(0.3, seed=3)
    )


def content(run: Run) -> bytes:
    """Jobs and dispatches as bytes, but for the times that dispatches took."""
    names = run.decision_table.column_names
    untimed = run.decision_table.drop_columns([name for name in names if name.endswith("ms")])
    sink = pa.BufferOutputStream()
    for table in (run.job_table, untimed):
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return bytes(sink.getvalue())


DISPATCHERS = [f"{name}patience=0.002" for name in ("hcp:", "pcp:", "pcp:model=boxes,", "hyper:")]


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, bytes]:
    return {}


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT is asked for what the local search leaves; the clock is not what ends the work."""
    monkeypatch.setattr(part_search, "SEARCHED", 0)
    monkeypatch.setattr(part_search, "LOCAL_SHARE", 0.001)
    monkeypatch.setattr(part_search, "HASTE_S", 0.0)

    def ample(limit_s: float, live: bool, work_s: float | None = None) -> Budget:
        return Budget(60.0, live, limit_s if work_s is None else work_s)

    for module in (engine, hyper):
        monkeypatch.setattr(module, "Budget", ample)


def same(undisturbed: dict[str, bytes], dispatcher: str, run: Run) -> None:
    if dispatcher not in undisturbed:
        plain = replay(dispatcher)
        assert verify.run(plain.jobs, plain.system) == []
        assert plain.decisions["solve_ms"].notna().sum() > 4
        undisturbed[dispatcher] = content(plain)
    assert content(run) == undisturbed[dispatcher]


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_a_clock_that_runs_ahead_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, bytes], dispatcher: str
) -> None:
    ahead_s = 0.0

    def clock() -> float:
        nonlocal ahead_s
        ahead_s += 0.001
        return perf_counter() + ahead_s

    with monkeypatch.context() as patch:
        for module in (part_search, budget):
            patch.setattr(module, "perf_counter", clock)
        run = replay(dispatcher)
    same(undisturbed, dispatcher, run)


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
@pytest.mark.parametrize("fault", sorted(SOLVERS))
def test_a_solver_that_is_slow_or_fails_changes_nothing(
    process: Callable[[str], None], undisturbed: dict[str, bytes], dispatcher: str, fault: str
) -> None:
    process(fault)
    run = replay(dispatcher)
    faults = {k: n for k, n in run.about["notes"].items() if k.startswith("dispatcher")}
    if fault == "sleeps":
        assert faults == {}
    else:
        what = solver.DIED if fault == "dies" else solver.NONSENSE
        assert list(faults) == [f"dispatcher {dispatcher}, CP-SAT: {what}"]
    same(undisturbed, dispatcher, run)
