from __future__ import annotations

import pytest

from cpdispatch.errors import UsageError
from cpdispatch.jobs import Job
from cpdispatch.predict import PREDICTORS, make
from tests.simulate.cases import play, workload

ROWS = [(0, 4, 100, 7), (1, 2, 50, 80), (2, 1, 30, 30)]


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_every_predictor_carries_its_registry_name(name: str) -> None:
    if name == "class":
        pytest.importorskip("sklearn")
    assert make(name, workload(ROWS)).name == name


def test_walltime_is_the_requested_time() -> None:
    sim, _ = play(ROWS, predictor="walltime")
    assert sim.records.expected_s.tolist() == [100, 50, 30]


def test_actual_is_the_real_runtime_capped_at_the_requested_time() -> None:
    sim, _ = play(ROWS, predictor="actual")
    assert sim.records.expected_s.tolist() == [7, 50, 30]


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
