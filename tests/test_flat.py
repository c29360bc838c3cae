"""Instances and decisions as one array: the same as those made of many."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import decision as decisions
from cpdispatch.decision import Certificate, Decision, Placements, Reason
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.limits import planned
from cpdispatch.instance import Instance, snapshot
from cpdispatch.jobs import Column, JobTable
from cpdispatch.simulator import Simulation
from cpdispatch.system import System
from tests.simulator.cases import workload
from tests.strategies import instances

WITHOUT = ("free", "queue", "running")


def again(instance: Instance) -> Instance:
    """The instance of the flat array of another one."""
    rest = [each.name for each in fields(Instance) if each.name not in WITHOUT]
    known = {name: getattr(instance, name) for name in rest}
    return snapshot.of_flat(flat=instance.flat, labels=instance.labels, **known)


def arrays(of: Any) -> Iterator[tuple[str, Any]]:
    """Names and arrays of an instance or a decision, and of what it is made of."""
    for name in (each.name for each in fields(of)):
        value = getattr(of, name)
        if isinstance(value, np.ndarray):
            yield name, value
        elif name == "queue" or name == "jobs":
            yield name, value.block
        elif name in ("running", "placements"):
            yield from arrays(value)


def same(one: Any, other: Any) -> bool:
    pairs = zip(arrays(one), arrays(other), strict=True)
    return all(a == b and (x == y).all() and x.dtype == y.dtype for (a, x), (b, y) in pairs)


@given(instances())
def test_a_flat_instance_is_the_one_that_it_was_made_of(instance: Instance) -> None:
    made = again(instance)
    assert same(made, instance)
    assert same(pickle.loads(pickle.dumps(again(instance))), instance)
    assert same(deepcopy(again(instance)), instance)
    if (instance.running.start_s < instance.now).all():
        before = replace(again(instance), now=instance.now - 1)
        assert before.flat[snapshot.NOW] == instance.now - 1
    assert all(not array.flags.writeable for _, array in arrays(made))


@given(instances())
def test_planned_durations_are_in_the_flat_array(instance: Instance) -> None:
    of = planned(instance, "upper")
    flat, queued, running = of.flat, len(of.queue), len(of.running)
    at, ends = flat[snapshot.PLANNED], flat[snapshot.ENDS]
    assert (flat[at : at + queued] == of.queue.planned_s).all()
    assert (flat[ends : ends + running] == of.running.planned_end_s()).all()


@given(
    instances(down=False, reservations=False),
    st.sampled_from(("expected", "upper", "requested")),
    st.booleans(),
)
def test_a_kernel_plans_with_the_same_durations(
    instance: Instance, limits: str, bounded: bool
) -> None:
    if bounded and len(instance.running) > 1:
        running = instance.running
        bound_s, block = np.arange(len(running)) % 2, running.jobs.block.copy()
        block[Column.REQUESTED] += 50
        jobs = JobTable(block, running.jobs.labels)
        instance = replace(instance, running=replace(running, jobs=jobs, bound_s=bound_s))
    rule = replace(Backfill(), limits=limits)
    assert same(rule.dispatch(instance), Backfill().dispatch(planned(instance, limits)))


@given(instances())
def test_a_flat_decision_is_the_one_that_it_was_made_of(instance: Instance) -> None:
    found = Backfill().dispatch(instance)
    values = [getattr(found, each.name) for each in fields(Decision)]
    made = Decision(*values)
    assert made.flat is not None
    assert same(decisions.of_flat(made.flat, made.certificate, made.bound_s), made)
    assert found.flat is None or (found.flat == made.flat).all()


def test_a_decision_whose_arrays_do_not_belong_together_has_no_flat_array() -> None:
    two, one = np.full(2, -1), np.full(1, Reason.WAITS, dtype=np.int8)
    of = Certificate("own")
    assert Decision(two, one, Placements.of({}), of).flat is None
    assert Decision(two * 1.0, np.repeat(one, 2), Placements.of({}), of).flat is None
    assert Decision(two[None], np.repeat(one, 2), Placements.of({}), of).flat is None


def test_other_names_are_no_attributes() -> None:
    instance = Simulation(workload([(0, 1, 5, 5)]), System.pool(4)).advance()
    assert instance is not None
    decision = Backfill().dispatch(instance)
    for made in (instance, decision):
        with pytest.raises(AttributeError, match=f"{type(made).__name__}.* 'fre'"):
            made.fre  # type: ignore[attr-defined]  # noqa: B018


def test_an_instance_that_is_kept_stays_what_it_was() -> None:
    rows = [(at, 1 + at % 3, 7 + at % 5, 9) for at in range(0, 60, 2)]
    seen, kept = [], []
    for keep in (False, True):
        simulation, rule = Simulation(workload(rows), System.pool(4)), Backfill()
        while (instance := simulation.advance()) is not None:
            if keep:
                kept.append(instance)
            else:
                seen.append([array.tolist() for _, array in arrays(instance)])
            simulation.apply(rule.dispatch(instance))
    assert [[array.tolist() for _, array in arrays(instance)] for instance in kept] == seen
