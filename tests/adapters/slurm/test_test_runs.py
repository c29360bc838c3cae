"""Test runs of jobs that Slurm may queue again, on a recorded Slurm."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cpdispatch import dispatch
from cpdispatch.adapters.slurm.client import RefusedError, SlurmError
from cpdispatch.adapters.slurm.drive import Cycle, Driver
from cpdispatch.adapters.slurm.journal import NAME, Journal
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.adapters.slurm.watch import watch
from tests.adapters.slurm.recorded import Recorded
from tests.adapters.slurm.test_recorded import MINE, Killed
from tests.effort import examples

TEST_S = 10
EASY = f"easy-spf-spf:test={TEST_S},tests=turn"
LONG = ("5", "6", "9", "11", "14")
"""Jobs that outlive a test; the others end in 3 s."""
NOT_AGAIN = "15"
"""One that was submitted with --no-requeue, and outlives a test, too."""


@pytest.fixture
def slurm() -> Recorded:
    found = Recorded.load()
    # Beside reservations, and nodes out of service, tests come last: there is room for all here.
    found.data["reservations"] = []
    found.data["nodes"] = found.data["nodes"][:15]
    for job in (*LONG, NOT_AGAIN):
        found.row(job)["seconds"] = 40
    found.row(NOT_AGAIN)["requeue"] = False
    return found


def crowd(slurm: Recorded) -> list[str]:
    """Short jobs that take the memory of a node each, more than there are nodes; their keys."""
    row = slurm.row(14)
    for number in range(300, 330):
        new = {"job_id": number, "time_limit": 1, "seconds": 3, "job_state": "PENDING",
               "priority": 0, "state_reason": "JobHeldUser", "required_nodes": "", "requeue": False,
               "job_resources": {}, "gres_detail": [], "start_time": 0}  # fmt: skip
        slurm.data["jobs"].append(row | new)
    return [str(number) for number in range(300, 330)]


def driver(slurm: Any, folder: Path, name: str = EASY, **rules: Any) -> Driver:
    return Driver(slurm, dispatch.make(name), folder, Rules(tests=True, **rules))


def stopping(slurm: Recorded, made: Driver) -> Cycle:
    """Drive until a job is stopped; that cycle."""
    made.cycle()
    slurm.step()
    crowd(slurm)
    for _ in range(30):
        done = made.cycle()
        if done.stopped:
            return done
        slurm.step()
    raise AssertionError("no job was stopped")


def stop(slurm: Recorded, folder: Path, job: str) -> None:
    """Stop a job after its test, as the driver does: that is the same to the journal."""
    kept = Journal(folder)
    entry = kept.jobs[job]
    entry.state, entry.outlived_s = "stopped", TEST_S
    entry.submit_s = slurm.row(job)["submit_time"]
    kept.save()
    slurm.requeue(job)


def completed(slurm: Recorded) -> list[str]:
    return sorted(job for job in slurm.began if slurm.row(job)["job_state"] == "COMPLETED")


@pytest.mark.parametrize("name", [EASY, "hcp:test=10", "best:test=10"])
def test_jobs_are_tested_once_and_run_to_their_ends(
    slurm: Recorded, tmp_path: Path, name: str
) -> None:
    made = driver(slurm, tmp_path, name)
    tests = made.cycle().tests
    went_on, stopped = [], []
    slurm.step()
    others = crowd(slurm)
    for _ in range(140):
        done = made.cycle()
        assert not tests.keys() & done.tests.keys()  # once
        tests |= done.tests
        went_on += done.went_on
        stopped += done.stopped
        slurm.step(2)
    assert completed(slurm) == sorted([*MINE, *others])
    assert set(tests.values()) <= {TEST_S}
    assert not {NOT_AGAIN, "12"} & tests.keys()
    assert sorted(went_on + stopped) == sorted(set(LONG) & tests.keys())
    assert sorted(slurm.stopped) == sorted(stopped)
    assert stopped or name != EASY


def test_a_job_that_waits_takes_the_nodes_of_one_that_is_stopped(
    slurm: Recorded, tmp_path: Path
) -> None:
    """On two nodes: a job is tested, and what came after it starts on its nodes."""
    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_id"] in (11, 14)]
    slurm.data["nodes"] = slurm.data["nodes"][5:7]
    # 11 has two whole nodes, 14 the memory of one: the second is short as far as is known.
    slurm.row(14)["seconds"] = 3
    for k in range(3):
        slurm.data["jobs"].append(slurm.row(14) | {"job_id": 300 + k, "time_limit": 1})
    made = driver(slurm, tmp_path, "easy-spf-spf:test=10,tests=turn")
    for job in ("14", "300", "301", "302"):
        slurm.row(job)["priority"] = 1  # Slurm holds them back for now: they are not ours yet
    first = made.cycle()
    assert first.tests == {"11": TEST_S}
    slurm.step()
    assert made.cycle().stopped == []
    for job in ("300", "301", "302"):
        slurm.row(job)["priority"] = 0
    slurm.step(TEST_S)
    done = made.cycle()
    assert done.stopped == ["11"]
    assert sorted(node for nodes in done.released.values() for node in nodes) == ["n06", "n07"]
    assert set(done.released) == {"300", "301"}
    assert Journal(tmp_path).jobs["11"].outlived_s == TEST_S
    assert slurm.row(11)["priority"] == 0


def test_a_stopped_job_keeps_its_place_in_the_queue(slurm: Recorded, tmp_path: Path) -> None:
    submit_s = slurm.row(11)["submit_time"]
    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_id"] == 11]
    seen = []

    class Looking:
        name = "looks"
        test_s = TEST_S
        inner = dispatch.make(EASY)

        def dispatch(self, instance: Any) -> Any:
            seen.append(instance)
            return self.inner.dispatch(instance)

    made = Driver(slurm, Looking(), tmp_path, Rules(tests=True))
    made.cycle()
    slurm.step()
    stop(slurm, tmp_path, "11")
    slurm.step(200)
    Driver(slurm, Looking(), tmp_path, Rules(tests=True)).cycle()
    assert slurm.row(11)["submit_time"] > submit_s
    assert seen[-1].queue.submit_s.tolist() == [submit_s]
    assert seen[-1].queue.restartable.tolist() == [0]


def test_a_stopped_job_stays_the_drivers_though_its_second_release_gets_no_answer(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Silent(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if changes.get("hold") is False:
                raise SlurmError("no answer within 30 s")
            super().update(job, changes)

    # There are two nodes: it is sent to those of its test once more.
    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_id"] == 11]
    slurm.data["nodes"] = slurm.data["nodes"][5:7]
    made = driver(slurm, tmp_path)
    had = made.cycle().released
    slurm.step()
    made.cycle()
    stop(slurm, tmp_path, "11")
    slurm.step(200)
    slurm.__class__ = Silent
    with pytest.raises(SlurmError, match="no answer"):
        driver(slurm, tmp_path).cycle()
    slurm.__class__ = Recorded
    done = driver(slurm, tmp_path).cycle()
    assert not done.kept
    assert done.released == had


@pytest.mark.parametrize("seed", range(examples(8, 4)))
def test_a_driver_that_is_killed_or_without_answer_loses_no_job_and_runs_none_twice(
    slurm: Recorded, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)

    class Deadly:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def asked(*arguments: Any) -> Any:
                fails = rng.random() < 0.03, rng.random() < 0.03
                fault = Killed if rng.random() < 0.5 else SlurmError("no answer within 30 s")
                if fails[0]:
                    raise fault
                answer = getattr(slurm, name)(*arguments)
                if fails[1]:  # it was done all the same
                    raise fault
                return answer

            return asked

    made, faults = driver(Deadly(), tmp_path, patience_s=5), 0
    tests: list[str] = []
    others: list[str] = []
    for cycle in range(160):
        if cycle == 4:
            others = crowd(slurm)
        try:
            tests += made.cycle().tests
        except (Killed, SlurmError):
            faults += 1
            tests += made.done.tests if made.done is not None else ()
            made = driver(Deadly(), tmp_path, patience_s=5)
        slurm.step(2)
    assert faults > 10
    assert completed(slurm) == sorted([*MINE, *others])
    assert slurm.stopped or seed
    assert len(slurm.stopped) == len(set(slurm.stopped))
    assert NOT_AGAIN not in slurm.stopped
    assert tests


def test_a_job_that_slurm_does_not_stop_runs_on_and_nobody_gets_its_nodes(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Stubborn(Recorded):
        def requeue(self, job: str) -> None:
            raise RefusedError("Requested operation is presently disabled")

    stubborn = Stubborn(slurm.data)
    made = driver(stubborn, tmp_path)
    refused: dict[str, str] = {}
    for cycle in range(100):
        done = made.cycle()
        if not cycle:
            others = crowd(stubborn)
        assert not done.stopped
        if done.refused:  # whoever was to have its nodes is not released
            named = {node for nodes in done.released.values() for node in nodes}
            assert not [job for job in done.refused if named & set(stubborn.began[job])]
        refused |= done.refused
        stubborn.step(2)
    assert completed(stubborn) == sorted([*MINE, *others])
    assert refused
    assert all("disabled" in said for said in refused.values())


def test_handing_back_lets_tests_run_on_and_releases_what_was_stopped(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path)
    done = stopping(slurm, made)
    running = [job for job in slurm.began if slurm.row(job)["job_state"] == "RUNNING"]
    handed = made.hand_back()
    assert set(done.stopped) <= set(handed)
    for job in done.stopped:
        assert slurm.row(job)["priority"] > 0
        assert slurm.row(job)["required_nodes"] == ""
    for _ in range(100):
        slurm.step(4)
    assert set(MINE) <= set(completed(slurm))
    assert set(running) <= set(completed(slurm))


def test_a_lost_journal_leaves_a_stopped_job_free_to_go_elsewhere(
    slurm: Recorded, tmp_path: Path
) -> None:
    done = stopping(slurm, driver(slurm, tmp_path))
    (tmp_path / NAME).unlink()
    job = done.stopped[0]
    assert slurm.row(job)["required_nodes"]
    made = driver(slurm, tmp_path)
    for _ in range(120):
        done = made.cycle()
        assert job not in done.tests  # Slurm says that it was queued again once
        assert job not in done.left
        slurm.step(2)
    assert set(MINE) <= set(completed(slurm))


def test_tests_that_run_go_on_where_the_dispatcher_makes_none_any_more(
    slurm: Recorded, tmp_path: Path
) -> None:
    driver(slurm, tmp_path).cycle()
    made = Driver(slurm, dispatch.make("easy"), tmp_path, Rules())
    for _ in range(80):
        assert not made.cycle().stopped
        slurm.step(2)
    assert completed(slurm) == sorted(MINE)


@pytest.mark.parametrize("between", ["hours", "a driver without tests"])
def test_a_test_that_nobody_looked_after_stops_no_job(
    slurm: Recorded, tmp_path: Path, between: str
) -> None:
    for job in LONG:
        slurm.row(job)["seconds"] = 10_000
    made = driver(slurm, tmp_path)
    tests = made.cycle().tests
    slurm.step()
    crowd(slurm)
    made.cycle()
    slurm.step(135 if between == "hours" else 1)
    if between != "hours":
        Driver(slurm, dispatch.make("easy"), tmp_path, Rules()).cycle()
    made = driver(slurm, tmp_path)
    for _ in range(9):
        assert not made.cycle().stopped
        slurm.step(2)
    assert tests


def test_watching_says_which_jobs_would_be_tested(slurm: Recorded) -> None:
    why = {each.job: each.why for each in watch(slurm, dispatch.make(EASY), Rules(tests=True)).jobs}
    assert why["9"] == "for a test run of 10 s"
    assert "test" not in why[NOT_AGAIN]
    plain = watch(slurm, dispatch.make(EASY), Rules()).jobs
    assert not [each for each in plain if "test" in each.why]


@pytest.mark.parametrize(
    ("name", "tests"),
    [("easy", 0), (EASY, 1), ("best", 0), ("best:test=off", 0), ("best:test=60", 1), ("hcp", 0),
     ("hcp:test=60", 1), ("best:test=60,wait=off", 1)],
)  # fmt: skip
def test_tests_are_made_where_their_length_was_given(name: str, tests: int) -> None:
    from cpdispatch.cli.slurm import SlurmOptions

    given: Mapping[str, Any] = {"dispatcher": name}
    made = dispatch.make(name, warm=dispatch.not_at_all)
    assert SlurmOptions(**given).rules(dispatcher=made).tests == bool(tests)


def test_handing_back_waits_for_a_job_that_is_being_stopped(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver(slurm, tmp_path)
    job = stopping(slurm, made).stopped[0]
    slurm.row(job)["job_state"] = "COMPLETING"
    waited = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            slurm.row(job)["job_state"] = "PENDING"

    monkeypatch.setattr("cpdispatch.adapters.slurm.drive.time.sleep", wait)
    assert job in made.hand_back()
    assert len(waited) < 5
    assert slurm.row(job)["priority"] > 0
