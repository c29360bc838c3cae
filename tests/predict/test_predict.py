from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import verify
from cpdispatch.dispatch import Settings
from cpdispatch.errors import UsageError, nearest
from cpdispatch.jobs import Column, Job, JobTable
from cpdispatch.predict import PREDICTORS, Cautious, Restarting, Watching, make
from cpdispatch.predict.actual import Actual
from cpdispatch.predict.conformance import START, drive, events, sample
from cpdispatch.predict.last import Last2
from cpdispatch.predict.profile import NO_PREFIX
from cpdispatch.predict.walltime import Walltime
from cpdispatch.simulator import Simulation, simulate
from cpdispatch.system import System
from tests.predict.cases import NEEDING_SCIKIT_LEARN, names
from tests.simulator.cases import play, workload

ROWS = [(0, 4, 100, 7), (1, 2, 50, 80), (2, 1, 30, 30)]


@pytest.mark.parametrize("name", names(PREDICTORS))
def test_every_predictor_carries_its_registry_name(name: str) -> None:
    assert make(name, workload(ROWS)).name == name


def test_walltime_is_the_requested_time() -> None:
    sim, _ = play(ROWS, predictor="walltime")
    assert sim.records.expected_s.tolist() == [100, 50, 30]


def test_actual_is_the_real_runtime_capped_at_the_requested_time() -> None:
    sim, _ = play(ROWS, predictor="actual")
    assert sim.records.expected_s.tolist() == [7, 50, 30]


def test_with_actual_jobs_request_what_they_run_in_what_dispatchers_see() -> None:
    sim, met = play(ROWS, processors=5, predictor="actual")
    for job, seconds in ((1, 7), (2, 50), (3, 30)):
        tables = [each for one in met for each in (one.queue, one.running.jobs)]
        for name in ("requested_s", "expected_s", "upper_s"):
            seen = {
                int(getattr(each, name)[each.id == job][0]) for each in tables if job in each.id
            }
            assert seen == {seconds}
    assert sim.workload.table.requested_s.tolist() == [100, 50, 30]


def test_actual_states_its_upper_duration() -> None:
    log = workload(ROWS)
    actual = Actual.of(log)
    assert isinstance(actual, Cautious)
    assert [actual.upper(job, job.submit_s) for job in log.table] == [7, 80, 30]


@pytest.mark.parametrize(
    "name", ["easy-spf-spf", "conservative", "best", "hcp:cp=off", "pcp:cp=off"]
)
def test_with_actual_no_dispatcher_plans_by_anything_but_the_runtime(name: str) -> None:
    """The schedule is that of a log whose jobs request what they run."""
    log = sample(60)
    block = log.table.block.copy()
    block[Column.REQUESTED] = np.clip(log.runtime_s, 1, log.table.requested_s)
    exact = replace(log, table=JobTable(block))
    system = System.pool(int(log.table.units.max()))
    for compiled in (True, False):
        known, told = (
            simulate(one, system, name, predictor=predictor, compiled=compiled)
            for one, predictor in ((log, "actual"), (exact, "walltime"))
        )
        assert verify.run(known.jobs, system) == []
        assert known.jobs["start"].tolist() == told.jobs["start"].tolist()
        assert known.jobs["requested_s"].tolist() == log.table.requested_s.tolist()


def test_a_predictor_learns_a_runtime_only_when_the_job_has_ended() -> None:
    heard: list[tuple[str, int, int]] = []

    class Listener:
        name = "listener"

        def predict(self, job: Job, now: int) -> float:
            heard.append(("asked", job.id, now))
            return 5

        def learn(self, job: Job, runtime_s: int) -> None:
            heard.append(("told", job.id, runtime_s))

    play(ROWS, predictor=Listener())
    assert heard == [
        ("asked", 1, 0),
        ("asked", 2, 1),
        ("asked", 3, 2),
        ("told", 1, 7),
        ("told", 3, 30),
        ("told", 2, 80),
    ]


def test_an_unknown_predictor_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean actual"):
        make("actuals", workload(ROWS))


def test_of_names_that_are_as_near_the_one_with_the_same_letters_is_meant() -> None:
    assert nearest("hpc", ["pcp", "hcp"]) == "; did you mean hcp?"


@pytest.mark.parametrize("name", names(NEEDING_SCIKIT_LEARN))
def test_the_seed_of_a_run_is_that_of_a_predictor_that_draws_numbers(name: str) -> None:
    block = sample(600).table.block.copy()
    block[Column.SUBMIT] *= 60  # 2 weeks: class grows its forest after the first one
    log = replace(sample(600), table=JobTable(block))
    system = System.pool(int(log.table.units.max()))
    first, second, again = (
        simulate(log, system, predictor=name, settings=Settings(seed=seed)).jobs["expected_s"]
        for seed in (0, 1, 1)
    )
    assert second.tolist() == again.tolist() != first.tolist()


OWN = """
class Seeded:
    name = "seeded"
    def __init__(self, seed=7):
        self.seed = seed
    def predict(self, job, now):
        return self.seed
    def learn(self, job, runtime_s):
        pass
class Plain(Seeded):
    def __init__(self):
        super().__init__()
def make(*, seed):
    return Seeded(seed)
ready = Seeded(8)
"""


@pytest.mark.parametrize(
    ("attribute", "seed"), [("Seeded", 5), ("make", 5), ("Plain", 7), ("ready", 8)]
)
def test_what_makes_a_users_own_predictor_is_told_the_seed_if_it_takes_one(
    attribute: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_seeded.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_seeded", raising=False)
    name = f"own_seeded:{attribute}"
    run = simulate(workload(ROWS), System.pool(10), predictor=name, settings=Settings(seed=5))
    assert run.jobs["expected_s"].tolist() == [seed] * 3
    alone: Any = Simulation(workload(ROWS), System.pool(10), predictor=name, seed=5).predictor
    assert alone.seed == seed


@pytest.mark.parametrize("name", names(NEEDING_SCIKIT_LEARN))
def test_a_predictor_named_to_a_simulation_has_the_simulations_seed(name: str) -> None:
    made: Any = Simulation(workload(ROWS), System.pool(10), predictor=name, seed=3).predictor
    assert getattr(made, "predictor", made).seed == 3


class Plodder:
    """Expects 10 s, and twice what a job has run when asked again; hears of starts."""

    name = "plodder"

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.asked: list[tuple[int, int]] = []

    def predict(self, job: Job, now: int) -> float:
        return 10

    def refresh(self, job: Job, elapsed_s: int) -> float:
        self.asked.append((job.id, elapsed_s))
        return 2 * elapsed_s

    def start(self, job: Job, now: int) -> None:
        self.started.append((job.id, now))

    def learn(self, job: Job, runtime_s: int) -> None:
        """There is nothing to learn."""


class Half:
    """Half the requested time, and what it has learned so far."""

    def __init__(self) -> None:
        self.seen = 0

    def predict(self, job: Job, now: int) -> float:
        return job.requested_s / 2

    def learn(self, job: Job, runtime_s: int) -> None:
        self.seen += 1


half = Half()


def test_a_predictor_of_the_users_own_is_named_by_its_module() -> None:
    log = workload(ROWS)
    made, other = (make(f"tests.predict.test_predict:{name}", log) for name in ("Half", "half"))
    assert isinstance(made, Half)
    assert made.name == "tests.predict.test_predict:Half"
    assert isinstance(other, Half)
    assert other is not half


class Tripled(Last2):
    """Thrice what it is derived from says."""

    name = "tripled"

    def predict(self, job: Job, now: int) -> float:
        return 3 * super().predict(job, now)


class HalfWalltime(Walltime):
    """Half the requested time."""

    name = "half-walltime"

    def predict(self, job: Job, now: int) -> float:
        return job.requested_s / 2


LOG = sample()
trained = Last2()
for row in range(len(LOG)):
    trained.learn(LOG.table[row], 7)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", ["Tripled", "HalfWalltime", "trained"])
def test_a_predictor_that_is_derived_or_trained_is_asked_itself(name: str, compiled: bool) -> None:
    system = System.pool(int(LOG.table.units.max()))

    def expected_s(predictor: str) -> list[int]:
        run = simulate(LOG, system, "easy", predictor=predictor, compiled=compiled)
        assert verify.run(run.jobs, system) == []
        return run.jobs["expected_s"].tolist()

    said = expected_s(f"tests.predict.test_predict:{name}")
    if name == "HalfWalltime":
        assert said == (LOG.table.requested_s // 2).tolist()
    else:
        assert said[0] == (7 if name == "trained" else LOG.table.requested_s[0])
        assert said != expected_s("last2")


@dataclass(frozen=True)
class Frozen:
    """Has no name, and takes none."""

    def predict(self, job: Job, now: int) -> float:
        return 1

    def learn(self, job: Job, runtime_s: int) -> None:
        """There is nothing to learn."""


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere:Half", "nowhere cannot be imported"),
        ("tests.predict.test_predict:None_", "has no attribute 'None_'"),
        ("tests.predict.test_predict:pytest", "has no method predict"),
        ("tests.predict.test_predict:Frozen", "it has no name, and cannot be given one"),
    ],
)
def test_what_cannot_be_a_predictor_is_one_clear_error(name: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        make(name, workload(ROWS))


@pytest.mark.parametrize("name", names(PREDICTORS))
def test_a_start_counts_no_more_once_the_job_is_queued_again(name: str) -> None:
    log = sample()
    happens = events(log)
    once, twice, said = make(name, log), make(name, log), []
    for event in happens:
        job = log.table[event.row]
        if event.kind == START and isinstance(twice, Watching) and isinstance(twice, Restarting):
            twice.start(job, event.time)
            twice.restart(job, event.time)
        said += drive(twice, log, [event])
    assert said == drive(once, log, happens)


def test_a_watching_predictor_hears_of_every_start() -> None:
    plodder = Plodder()
    sim, _ = play(ROWS, predictor=plodder)
    assert plodder.started == [(1, 0), (2, 7), (3, 7)]
    assert sim.records.start_s.tolist() == [0, 7, 7]


def test_a_refreshing_predictor_is_asked_again_when_a_job_outlives_what_it_said() -> None:
    # Job 1 runs 80 of the 100 s that it asked for; the others arrive while it runs.
    rows = [(0, 4, 100, 80), (5, 4, 9, 9), (15, 4, 9, 9), (20, 4, 9, 9), (40, 4, 9, 9)]
    rows += [(60, 4, 9, 9), (79, 4, 9, 9)]
    plodder = Plodder()
    _, seen = play(rows, predictor=plodder, correction="refresh")
    ends = {instance.now: instance.running.end_s.tolist() for instance in seen[1:7]}
    assert ends == {5: [10], 15: [30], 20: [30], 40: [80], 60: [80], 79: [80]}
    assert plodder.asked == [(1, 15), (1, 40)]


def test_a_refreshed_duration_is_capped_at_the_requested_time() -> None:
    _, seen = play([(0, 4, 70, 65), (60, 4, 9, 9)], predictor=Plodder(), correction="refresh")
    assert seen[1].running.end_s.tolist() == [70]


def test_the_correction_is_incremental_where_a_refreshed_duration_has_passed() -> None:
    class Stubborn(Plodder):
        def refresh(self, job: Job, elapsed_s: int) -> float:
            return 40

    _, seen = play([(0, 4, 100, 80), (60, 4, 9, 9)], predictor=Stubborn(), correction="refresh")
    assert seen[1].running.end_s.tolist() == [70]


def test_refresh_needs_a_predictor_that_can_be_asked_again() -> None:
    with pytest.raises(UsageError, match="walltime cannot be asked about running jobs"):
        play(ROWS, correction="refresh")
    with pytest.raises(UsageError, match="last2 cannot be asked about running jobs"):
        simulate(workload(ROWS), System.pool(4), predictor="last2", correction="refresh")


@pytest.mark.parametrize(
    ("runtimes", "expected"),
    [([], 100), ([50, 90], 90), ([80, 80, 79], 79), ([80, 80, 80], 100), ([10, 80, 80, 80], 100)],
)
def test_confident_is_the_requested_time_of_users_who_use_it_up(
    runtimes: list[int], expected: int
) -> None:
    predictor = make("confident", workload(ROWS))
    job = replace(workload(ROWS).table[0], user=3)
    for runtime in runtimes:
        predictor.learn(job, runtime)
    assert predictor.predict(job, 0) == expected


@pytest.mark.parametrize("name", names(PREDICTORS))
@pytest.mark.parametrize("user", [-1, 3])
def test_every_predictor_does_with_no_users_one_user_and_runtimes_of_0(
    name: str, user: int
) -> None:
    rows = [(10 * k, 2, 60, 7 * (k % 3)) for k in range(30)]
    block = workload(rows).table.block.copy()
    block[Column.USER] = user
    jobs = replace(workload(rows), table=JobTable(block))
    run = simulate(jobs, System.pool(4), predictor=name, compiled=False)
    assert run.about["notes"] == ({NO_PREFIX: 30} if name in ("profile", "confident") else {})
    assert (run.jobs["end"] >= run.jobs["start"]).all()
    assert (run.jobs["expected_s"].between(1, 60)).all()


@pytest.mark.parametrize("name", ["profile", "confident"])
def test_a_run_tells_that_numbers_of_executables_have_no_prefix(name: str) -> None:
    numbered = workload(ROWS)
    named = replace(
        numbered,
        table=JobTable(numbered.table.block, {"executable": ("sim1", "sim2", "other", "x")}),
    )
    for compiled in (True, False):
        told = simulate(numbered, System.pool(4), predictor=name, compiled=compiled)
        assert told.about["notes"] == {NO_PREFIX: len(numbered)}
        told = simulate(named, System.pool(4), predictor=name, compiled=compiled)
        assert told.about["notes"] == {}
