from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from cpdispatch.errors import UsageError
from cpdispatch.jobs import Job, Workload
from cpdispatch.predict import PREDICTORS, Predictor, make
from cpdispatch.predict.actual import Actual
from cpdispatch.predict.conformance import RULES, ConformanceError, check
from tests.predict.cases import names

CLAIRVOYANT = "actual"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", names(set(PREDICTORS) - {CLAIRVOYANT}))
def test_every_predictor_conforms(name: str, rule: str) -> None:
    check(lambda workload: make(name, workload), rule)


OPTIONS = ("class:votes=0.1", "class:window=50", "class:window=all", "class:calendar=on")


@pytest.mark.parametrize(
    ("name", "rule"),
    # This one takes long, and a window of all that ended alone could keep more than there is.
    [pair for pair in product(OPTIONS, RULES) if pair[1] != "bounded" or "=all" in pair[0]],
)
def test_every_option_conforms(name: str, rule: str) -> None:
    pytest.importorskip("sklearn")
    check(lambda workload: make(name, workload), rule)


@pytest.mark.parametrize("rule", sorted(set(RULES) - {"labels"}))
@pytest.mark.parametrize("name", [CLAIRVOYANT, "class:clairvoyant=on"])
def test_a_clairvoyant_bound_conforms_but_for_labels(name: str, rule: str) -> None:
    check(lambda workload: make(name, workload), rule)


@pytest.mark.parametrize("name", [CLAIRVOYANT, "class:clairvoyant=on"])
def test_a_clairvoyant_bound_sees_labels(name: str) -> None:
    with pytest.raises(ConformanceError, match="rule labels: "):
        check(lambda workload: make(name, workload), "labels")


class Wrong:
    """Predicts the last runtime of all; each of its children breaks one rule."""

    name = "wrong"

    def __init__(self, workload: Workload) -> None:
        self.last: float = 60

    def predict(self, job: Job, now: int) -> float:
        return self.last

    def learn(self, job: Job, runtime_s: int) -> None:
        self.last = runtime_s


class Peeks(Actual):
    """Knows every runtime from the beginning."""


class Counts(Wrong):
    def predict(self, job: Job, now: int) -> float:
        self.last += 1
        return self.last


class Remembers(Wrong):
    def predict(self, job: Job, now: int) -> float:
        before, self.last = self.last, job.requested_s
        return before


class StartsWithNothing(Wrong):
    def __init__(self, workload: Workload) -> None:
        self.last = float("nan")


class NeedsUsers(Wrong):
    def predict(self, job: Job, now: int) -> float:
        return [self.last][0 if job.user >= 0 else 1]


class Shares(Wrong):
    seen: list[int] = []  # noqa: RUF012

    def __init__(self, workload: Workload) -> None:
        self.seen = []

    def predict(self, job: Job, now: int) -> float:
        return len(self.seen)

    def learn(self, job: Job, runtime_s: int) -> None:
        self.seen.append(runtime_s)

    def __deepcopy__(self, memo: Any) -> Shares:
        return self


class CannotBePickled(Wrong):
    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.rule = lambda: self.last


class Hoards(Wrong):
    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.by_user: dict[int, int] = {}

    def learn(self, job: Job, runtime_s: int) -> None:
        self.by_user[job.user] = runtime_s


class WaitsForEnds(Wrong):
    """Keeps what it was asked about until the end, which some jobs never reach."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.asked: dict[int, int] = {}

    def predict(self, job: Job, now: int) -> float:
        self.asked[job.id] = now
        return 60

    def learn(self, job: Job, runtime_s: int) -> None:
        self.asked.pop(job.id, None)


class Unseeded(Wrong):
    made = 0

    def __init__(self, workload: Workload) -> None:
        type(self).made += 1
        self.last = type(self).made

    def learn(self, job: Job, runtime_s: int) -> None:
        """There is nothing to learn."""


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (Peeks.of, "labels"),
        (Counts, "pure"),
        (Remembers, "pure"),
        (StartsWithNothing, "cold"),
        (NeedsUsers, "unknown"),
        (Shares, "copies"),
        (CannotBePickled, "copies"),
        (Hoards, "bounded"),
        (WaitsForEnds, "bounded"),
        (Unseeded, "seeded"),
    ],
)
def test_a_wrong_predictor_is_caught_by_its_rule(
    make: Callable[[Workload], Predictor], rule: str
) -> None:
    with pytest.raises(ConformanceError, match=f"rule {rule}: "):
        check(make, rule)


@pytest.mark.parametrize("rule", RULES)
def test_a_right_predictor_is_not_caught(rule: str) -> None:
    check(Wrong, rule)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean pure"):
        check(Wrong, "pur")
