"""What `explain` and `status` say of limits, licences, arrays, begin times, priorities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import cli
from cpdispatch.analyze.moment import moment
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import Limit, NodeGroup, System
from cpdispatch.workloads import from_table, prepare
from tests.effort import examples
from tests.oracles.plain_gates import PlainJob, passes
from tests.simulator.test_gates import CORES, jobs, limited, some_limits, workload_of

SYSTEM = System("four", ("core",), (NodeGroup("n", 4, (2,)),), licences={"matlab": 1})


def run_of(dispatcher: str = "easy", limits: tuple[Limit, ...] = (), **columns: Any) -> Run:
    count = len(next(iter(columns.values())))
    one = {"submit": 0, "runtime": 10, "requested": 10, "units": 1, "core": 1}
    log = from_table({"id": range(1, count + 1)} | one | columns)
    return simulate(*prepare(log, replace(SYSTEM, limits=limits)), dispatcher)


def waited(run: Run, job: int) -> list[tuple[int, int, str, tuple[str, ...]]]:
    return [(s.from_s, s.until_s, s.cause, s.lacking) for s in run.explain(job).stretches]


@pytest.mark.parametrize(
    ("limits", "columns", "why"),
    [
        ((Limit(1, per="user"),), {"user": ["ann", "ann"]}, "at most 1 job per user (ann)"),
        ((Limit(1, "core", "user", "ann"),), {"user": ["ann", "ann"]},
         "at most 1 core for user ann"),
        ((Limit(1),), {"user": ["ann", "bob"]}, "at most 1 job"),
        ((), {"licences": ["matlab", "matlab"]}, "1 licences matlab"),
        ((), {"array": ["7", "7"], "array_limit": [1, 1]}, "at most 1 task of array 7"),
        ((), {"begin": [-1, 10]}, "its begin time"),
    ],
)  # fmt: skip
def test_it_says_which_limit_held_a_job_back(
    limits: tuple[Limit, ...], columns: dict[str, Any], why: str
) -> None:
    run = run_of(limits=limits, **columns)
    assert waited(run, 1) == []
    assert waited(run, 2) == [(0, 10, "limit", (why,))]
    (each,) = moment(run.occupancy, 5).waiting
    assert (each.job, each.cause, each.lacking) == (2, "limit", (why,))


def test_a_job_that_passed_its_limit_waits_for_nodes_like_any_other() -> None:
    run = run_of(
        limits=(Limit(1, per="user"),), user=["ann", "ann", "bob"], submit=[0, 1, 2],
        runtime=[10, 5, 20], requested=[10, 5, 20], units=[1, 8, 4],
    )  # fmt: skip
    assert waited(run, 2) == [
        (1, 10, "limit", ("at most 1 job per user (ann)",)), (10, 22, "capacity", ("core",)),
    ]  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(jobs(), some_limits(), st.sampled_from(["fifo", "easy"]))
def test_a_limit_held_a_job_back_until_a_count_of_all_jobs_finds_room(
    jobs: list[PlainJob], limits: tuple[Limit, ...], name: str
) -> None:
    run = simulate(workload_of(jobs), limited(*limits), name)
    assert run.verify() == []
    _, passed = passes(limits, jobs, CORES)
    for k, job in enumerate(jobs):
        held = [s for s in run.explain(int(run.jobs["id"][k])).stretches if s.cause == "limit"]
        if name == "fifo" and passed[k] > job.submit_s:
            assert [(s.from_s, s.until_s) for s in held] == [(job.submit_s, passed[k])]
            assert any(str(limit) in held[0].lacking[0] for limit in limits)
        elif name == "fifo":
            assert held == []
        for s in held:
            assert s.from_s == job.submit_s
            assert s.until_s <= run.jobs["start"][k]


def test_jobs_of_a_higher_priority_are_counted() -> None:
    run = run_of(
        "easy-priority-priority", submit=[0, 1, 2, 3], units=[8, 8, 8, 8], priority=[0, 1, 5, 9]
    )
    assert run.jobs["start"].tolist() == [0, 30, 20, 10]
    assert sum(stretch.preferred for stretch in run.explain(2).stretches) == 2


def test_the_commands_say_it_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(limits=(Limit(1, per="user"),), user=["ann", "ann"]).save(tmp_path / "run")
    assert cli.run(["explain", str(tmp_path / "run"), "--job", "2"]) == 0
    said = capsys.readouterr().out
    assert "at most 1 job per user (ann)" in said
    # There was room all the time.
    assert "No other request: no lack of room held it back." in said
    assert "A shorter request" not in said
    assert "Fewer units" not in said
    assert cli.run(["status", str(tmp_path / "run"), "--at", "5"]) == 0
    assert "at most 1 job per user (ann)" in capsys.readouterr().out
