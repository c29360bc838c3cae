"""Kernels of the simulated cluster beside a plain one, and what they take for sound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance import Instance
from cpdispatch.jobs import Job, Workload
from cpdispatch.predict import Predictor
from cpdispatch.simulator.kernels import is_sound
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import System
from tests.oracles.plain_cluster import PlainCluster, as_seen
from tests.strategies import instances, systems, workloads


@st.composite
def answered(draw: st.DrawFn) -> tuple[Instance, Decision]:
    """A plain instance and an answer to it, right or with a few numbers of it changed."""
    instance: Instance = draw(instances(down=False, reservations=False, power=False))
    found = Backfill().dispatch(instance)
    places = found.placements
    arrays = [
        found.start_s.copy(), places.position.copy(), places.offset.copy(), places.node.copy(),
        places.units.copy(),
    ]  # fmt: skip
    for _ in range(draw(st.integers(0, 2))):
        changed = arrays[draw(st.integers(0, 4))]
        if len(changed):
            at = draw(st.integers(0, len(changed) - 1))
            near = [instance.now, NO_START, instance.now - 1]
            by = st.integers(int(changed[at]) - 2, int(changed[at]) + 2)
            changed[at] = draw(st.sampled_from(near) | by)
    start_s, *placed = arrays
    return instance, Decision(start_s, found.reason, Placements(*placed), Certificate("easy"))


def sound(instance: Instance, decision: Decision) -> bool:
    places = decision.placements
    return bool(
        is_sound(
            instance.now, instance.queue.block, instance.free, decision.start_s,
            decision.reason.astype(np.int64), places.position, places.offset, places.node,
            places.units,
        )
    )  # fmt: skip


@given(answered())
def test_what_is_sound_is_right_and_a_plain_answer_that_is_right_is_sound(
    case: tuple[Instance, Decision],
) -> None:
    instance, decision = case
    position = decision.placements.position
    right = not verify.decision(instance, decision)
    plain = not right or bool((decision.start_s[position] == instance.now).all())
    assert sound(instance, decision) == (right and plain)


@given(answered())
def test_a_refusal_is_not_plain(case: tuple[Instance, Decision]) -> None:
    instance, decision = case
    reason = np.full(len(decision.start_s), Reason.REJECTED, dtype=np.int8)
    assert not len(reason) or not sound(instance, replace(decision, reason=reason))


@dataclass
class Soon:
    """A predictor that takes jobs to end within a third of what they request, or sooner."""

    name: str = "soon"

    def predict(self, job: Job, now: int) -> float:
        return max(job.requested_s // (3 + job.id % 4), 1)

    def learn(self, job: Job, runtime_s: int) -> None: ...


@given(systems(max_nodes=4).flatmap(lambda s: st.tuples(st.just(s), workloads(s))), st.data())
def test_a_dispatcher_sees_what_the_plain_cluster_is(
    case: tuple[System, Workload], data: st.DataObject
) -> None:
    system, log = case
    runtime_s = log.runtime_s * data.draw(st.sampled_from((1, 40, 700)))
    log = replace(log, runtime_s=runtime_s)
    predictor: str | Predictor = data.draw(st.sampled_from(("walltime", Soon())))
    correction = data.draw(st.sampled_from(("minimal", "incremental", "requested")))
    expected = [
        job.requested_s if predictor == "walltime" else int(Soon().predict(job, 0))
        for job in log.table
    ]
    plain = PlainCluster(log, system, correction, expected)
    simulation = Simulation(log, system, predictor=predictor, correction=correction)
    rule = Backfill()
    while (instance := simulation.advance()) is not None:
        assert plain.go_on()
        assert as_seen(instance) == plain.seen()
        decision = rule.dispatch(instance)
        simulation.apply(decision)
        plain.apply(decision)
    assert not plain.go_on()
