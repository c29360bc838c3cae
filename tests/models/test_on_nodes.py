"""What every model with units on nodes does, whatever its variables are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ortools.sat.python import cp_model

from cpdispatch.models import pooled
from tests.models.cases import (
    RESERVED,
    WATTS,
    Form,
    job,
    problem_of,
    queued,
    running,
    solver,
)
from tests.models.test_boxes import FORM as BOXES
from tests.models.test_copies import FORM as COPIES
from tests.models.test_copies import PAIR
from tests.models.test_counts import FORM as COUNTS

every = pytest.mark.parametrize("form", [COPIES, COUNTS, BOXES], ids=["copies", "counts", "boxes"])
forms = pytest.mark.parametrize("form", [COPIES, COUNTS], ids=["copies", "counts"])


@forms
def test_a_node_that_is_never_short_constrains_nothing(form: Form) -> None:
    assert form.only("_within_node", PAIR, (100, {0: 1}), (100, {1: 1}))


@forms
def test_a_node_that_is_exceeded_is_refused(form: Form) -> None:
    assert not form.only("_within_node", PAIR, (100, {0: 1}), (104, {0: 1}))
    units = queued(job(1, 5, 3, 1, 0), job(2, 5, 1, 2, 0))
    assert not form.only("_within_node", units, (100, {0: 3}), (104, {0: 1}))


@forms
def test_a_node_that_is_just_enough_is_accepted(form: Form) -> None:
    assert form.only("_within_node", PAIR, (100, {0: 1}), (105, {0: 1}))
    units = queued(job(1, 5, 3, 1, 0), job(2, 5, 1, 2, 0))
    assert form.only("_within_node", units, (100, {0: 2, 1: 1}), (104, {0: 1}))


@forms
def test_nodes_are_shared_with_running_jobs_until_their_end(form: Form) -> None:
    held = queued(job(1, 5, 1, 4, 0), running=[running(9, 10, [1, 0], 0)])
    assert form.allowed(held, (100, {1: 1}))
    assert not form.allowed(held, (104, {0: 1}))
    assert form.allowed(held, (105, {0: 1}))


@forms
def test_nodes_are_left_to_their_reservations(form: Form) -> None:
    reserved = queued(job(1, 9, 1, 4, 0), job(2, 2, 1, 1, 0), reservations=RESERVED)
    assert form.allowed(reserved, (105, {1: 1}))
    assert not form.allowed(reserved, (102, {0: 1}))
    assert form.allowed(reserved, (101, {0: 1}))


@forms
def test_the_power_cap_is_kept(form: Form) -> None:
    two = queued(job(1, 5, 1, 2, 1), job(2, 5, 1, 1, 0), power=WATTS)
    assert form.allowed(two, None, None)
    assert not form.allowed(two, (100, {0: 1}), (104, {1: 1}))
    assert form.allowed(two, (100, {0: 1}), (105, {1: 1}))


# ---------------------------------------------------------------------------- what is taken once

WIDE = job(1, 5, 3, 1, 0, first=[2, 0])
"""A job of three units of a core that takes two more cores once."""


@every
def test_a_first_node_that_has_room_for_what_is_taken_there_is_accepted(form: Form) -> None:
    assert form.allowed(queued(WIDE), (100, {0: 2, 1: 1}))
    assert form.allowed(queued(WIDE), (100, {1: 1, 0: 2}))
    other = job(2, 5, 1, 3, 0)
    assert form.allowed(queued(WIDE, other), (100, {0: 2, 1: 1}), (100, {1: 1}))


@every
def test_a_first_node_without_room_for_what_is_taken_there_is_refused(form: Form) -> None:
    assert not form.allowed(queued(WIDE), (100, {0: 3}))
    other = job(2, 5, 1, 3, 0)
    assert not form.allowed(queued(WIDE, other), (100, {1: 1, 0: 2}), (104, {1: 1}))
    assert form.allowed(queued(WIDE, other), (100, {1: 1, 0: 2}), (105, {1: 1}))
    held = [running(9, 10, [2, 0], 0)]
    assert not form.allowed(queued(WIDE, running=held), (104, {0: 2, 1: 1}))
    assert form.allowed(queued(WIDE, running=held), (104, {1: 2, 0: 1}))


@every
def test_of_two_jobs_each_may_take_what_the_other_one_leaves_of_a_node(form: Form) -> None:
    gpu = queued(job(1, 5, 2, 1, 0, first=[0, 1]), job(2, 5, 2, 1, 0, first=[0, 1]))
    assert form.allowed(gpu, (100, {0: 1, 1: 1}), (100, {1: 1, 0: 1}))
    assert not form.allowed(gpu, (100, {0: 1, 1: 1}), (104, {0: 1, 1: 1}))
    assert form.allowed(gpu, (100, {0: 1, 1: 1}), (105, {0: 1, 1: 1}))


@every
def test_nothing_taken_once_constrains_nothing(form: Form) -> None:
    nothing = WIDE | {"first": [0, 0]}
    assert form.allowed(queued(nothing), (100, {0: 3}))
    assert not form.model(problem_of(queued(nothing))).problem.with_first.size


@every
def test_a_plan_says_on_which_node_something_is_taken_once(form: Form) -> None:
    held = [running(9, 10, [2, 0], 0)]
    model, one = form.model(problem_of(queued(WIDE, running=held))), solver()
    model.model.add(model.timing.starts[0] == 0)
    assert one.solve(model.model) == cp_model.OPTIMAL
    plan = model.read(one)
    assert plan.head.tolist() == [1]
    assert plan.check(model.problem) == ""
    assert replace(plan, head=np.array([0])).check(model.problem) != ""
    assert replace(plan, head=None).check(model.problem) == "a job has no unit on its first node"


def test_the_pool_has_room_for_what_is_taken_once() -> None:
    instance = queued(WIDE, job(2, 5, 2, 1, 0))
    assert pooled.demand(instance, instance.queue)[:, :2].tolist() == [[5, 0], [2, 0]]
