from __future__ import annotations

from math import cos, log, pi, sin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.arrays import FloatArray
from cpdispatch.jobs import Job
from cpdispatch.predict.eloss import FEATURES, PENALTY, RATE, TERMS, ELoss, step, value
from tests.effort import examples

JOB = {
    "id": 1, "submit_s": 0, "units": 4, "request": (2,), "requested_s": 1000, "expected_s": 1000,
    "upper_s": 1000, "ewt_s": 1, "user": 7, "group": -1, "queue": -1, "executable": -1,
    "partition": -1,
}  # fmt: skip


def job(**values: int) -> Job:
    return Job(**{**JOB, **values})  # type: ignore[arg-type]


class Twin:
    """The regression written from the rules, term by term."""

    def __init__(self) -> None:
        self.terms = [()] + [(i,) for i in range(FEATURES)]
        self.terms += [(i, j) for i in range(FEATURES) for j in range(i, FEATURES)]
        self.weight = dict.fromkeys(self.terms, 0.0)
        self.scale = dict.fromkeys(self.terms, 0.0)
        self.squares = dict.fromkeys(self.terms, 0.0)
        self.seen = 0.0
        self.jobs = 0

    def value(self, features: FloatArray) -> float:
        return sum(self.weight[t] * float(np.prod([features[i] for i in t])) for t in self.terms)

    def step(self, features: FloatArray, runtime_s: float, weight: float) -> None:
        x = {t: float(np.prod([features[i] for i in t])) for t in self.terms}
        for t in self.terms:
            if abs(x[t]) > self.scale[t]:
                self.weight[t] *= self.scale[t] / abs(x[t])
                self.scale[t] = abs(x[t])
            self.seen += (x[t] / self.scale[t]) ** 2 if self.scale[t] else 0
        self.jobs += 1
        error = self.value(features) - runtime_s
        slope = 2 * error if error > 0 else -1 if error < 0 else 0
        for t in self.terms:
            gradient = weight * slope * x[t] + PENALTY * self.weight[t]
            self.squares[t] += gradient**2
            if self.squares[t]:
                size = self.scale[t] * (self.seen / self.jobs * self.squares[t]) ** 0.5
                self.weight[t] -= RATE * gradient / size


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-1000, 1000), min_size=FEATURES, max_size=FEATURES),
            st.integers(0, 1000),
            st.floats(1, 20),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=examples(40))
def test_the_kernel_takes_the_steps_of_its_twin(
    jobs: list[tuple[list[int], int, float]],
) -> None:
    model, total, twin = np.zeros((3, TERMS)), np.zeros(2), Twin()
    for features, runtime_s, weight in jobs:
        x = np.array(features, dtype=np.float64)
        assert value(model, x) == pytest.approx(twin.value(x), rel=1e-6, abs=1e-6)
        step(model, total, x, float(runtime_s), weight)
        twin.step(x, runtime_s, weight)
    np.testing.assert_allclose(model[0], list(twin.weight.values()), rtol=1e-6, atol=1e-12)


def test_the_features_of_a_first_job_are_those_of_its_request() -> None:
    features = ELoss()._features(job(), 0)
    assert features.tolist() == [1000.0] * 6 + [0.0] * 7 + [1.0, 0.0, 1.0, 0.0, 8.0]


def test_the_features_speak_of_ended_and_running_jobs_of_the_user() -> None:
    predictor = ELoss()
    ended = [(2, 100, 50), (3, 200, 60), (4, 300, 1700), (5, 400, 40)]
    for id, start_s, runtime_s in ended:
        predictor.start(job(id=id, units=2), start_s)
        predictor.learn(job(id=id, units=2), runtime_s)
    predictor.start(job(id=6), 500)
    predictor.start(job(id=7, units=1), 800)
    predictor.start(job(id=8, user=9), 800)
    now = 86_400 // 4
    features = predictor._features(job(id=9, submit_s=now), now)
    elapsed = [now - 500, now - 800]
    assert features.tolist() == pytest.approx(
        [40, 1000, 60, 1000, 520, 1100 / 3, 1850 / 4, now - 440, 8 / 4, 10, sum(elapsed), 2,
         max(elapsed), cos(pi / 2), sin(pi / 2), cos(pi / 14), sin(pi / 14), 8]
    )  # fmt: skip


def test_a_job_is_learned_with_the_features_that_it_was_asked_with() -> None:
    predictor, model, total = ELoss(), np.zeros((3, TERMS)), np.zeros(2)
    first = job()
    predictor.predict(first, 0)
    asked = predictor._features(first, 0)
    predictor.learn(job(id=2), 33)
    predictor.predict(first, 9)
    predictor.learn(first, 300)
    step(model, total, asked, 300.0, 1 + log(8 * 300))
    assert predictor.predict(job(id=3), 0) == abs(value(model, predictor._features(job(id=3), 0)))
