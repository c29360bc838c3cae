"""What every model with units on nodes does, whatever its variables are."""

from __future__ import annotations

import pytest

from tests.models.cases import RESERVED, WATTS, Form, job, queued, running
from tests.models.test_copies import FORM as COPIES
from tests.models.test_copies import PAIR
from tests.models.test_counts import FORM as COUNTS

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
