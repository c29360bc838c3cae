from __future__ import annotations

import numpy as np
import pytest

from cpdispatch.compiled.memory import expect, remember, take
from cpdispatch.predict import PREDICTORS, Remembering, make
from cpdispatch.predict.conformance import END, SUBMIT, events, sample
from tests.predict.cases import NEEDING_SCIKIT_LEARN

REMEMBERING = [
    name
    for name in sorted(set(PREDICTORS) - NEEDING_SCIKIT_LEARN)
    if isinstance(make(name, sample()), Remembering)
]


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("seed", range(3))
def test_the_kernels_predict_and_learn_as_the_predictor_does(name: str, seed: int) -> None:
    whole = sample(seed=seed)
    rows = np.flatnonzero(np.arange(len(whole)) % 7)
    workload = whole.take(rows)
    predictor = make(name, workload)
    assert isinstance(predictor, Remembering)
    memory = take(predictor.memory(whole), rows)
    said, expected = [], []
    for _, kind, row, seconds in events(workload):
        job = workload.table[row]
        if kind == SUBMIT:
            said.append(max(1, min(int(predictor.predict(job, seconds)), job.requested_s)))
            expected.append(expect(memory, row, job.requested_s))
        elif kind == END:
            predictor.learn(job, seconds)
            remember(memory, row, seconds)
    assert said == expected
    assert len(set(said)) >= 4
