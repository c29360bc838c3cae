"""Orders of the queue: each formula, mixes, polynomials, a user's own, and what is none."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import dispatch
from cpdispatch.arrays import IntArray
from cpdispatch.errors import UsageError
from cpdispatch.heuristics import policies
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import FEATURES, SUMMARIES, TERMS, find
from cpdispatch.jobs import Column, job_block
from tests.oracles import plain

Job = tuple[int, int, int]
"""Submission, expected duration, processors."""

jobs = st.lists(
    st.tuples(st.integers(0, 10**7), st.integers(1, 10**6), st.integers(1, 5000)), max_size=12
).map(sorted)
weights = st.floats(-1e3, 1e3, allow_nan=False)


def block_of(queue: list[Job]) -> IntArray:
    submit, expected, units = zip(*queue, strict=True) if queue else ((), (), ())
    return job_block(
        id=range(len(queue)), submit_s=submit, units=units, requested_s=expected,
        request=[[1]] * len(queue) if queue else np.empty((0, 1), dtype=np.int64),
    )  # fmt: skip


def in_order(keys: list[float]) -> bool:
    """Ascending, up to what the last bits of two ways to compute them may differ by."""
    return all(
        a <= b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
        for a, b in itertools.pairwise(keys)
    )


@pytest.mark.parametrize("policy", sorted(plain.KEYS))
@given(queue=jobs, later=st.integers(0, 10**6))
def test_every_policy_orders_a_queue_as_its_formula_says(
    policy: str, queue: list[Job], later: int
) -> None:
    now = max((s for s, _, _ in queue), default=0) + later
    order = find(policy).rank(now, block_of(queue)).tolist()
    assert sorted(order) == list(range(len(queue)))
    assert in_order([plain.KEYS[policy](s, p, q, now - s) for s, p, q in (queue[j] for j in order)])


@given(jobs, st.data())
def test_small_puts_what_is_expected_to_end_before_its_requested_time_first(
    queue: list[Job], data: st.DataObject
) -> None:
    block = block_of(queue)
    spare = st.lists(st.integers(0, 2), min_size=len(queue), max_size=len(queue))
    block[Column.REQUESTED] += np.array(data.draw(spare), dtype=np.int64)
    small = (block[Column.EXPECTED] < block[Column.REQUESTED]).tolist()
    order = find("small").rank(10**7, block).tolist()
    assert order == sorted(range(len(queue)), key=lambda j: (not small[j], j))


@pytest.mark.parametrize("within", sorted(set(plain.KEYS) - {"lin"}))
@given(jobs, st.data(), st.integers(0, 10**6))
def test_small_with_another_policy_orders_each_class_by_it_with_requested_times(
    within: str, queue: list[Job], data: st.DataObject, later: int
) -> None:
    now = max((s for s, _, _ in queue), default=0) + later
    block = block_of(queue)
    spare = st.lists(st.integers(0, 2) | st.just(10**6), min_size=len(queue), max_size=len(queue))
    block[Column.REQUESTED] += np.array(data.draw(spare), dtype=np.int64)
    small = block[Column.EXPECTED] < block[Column.REQUESTED]
    order = find(f"small+{within}").rank(now, block)
    assert sorted(order.tolist()) == list(range(len(queue)))
    assert (np.diff(small[order].astype(int)) <= 0).all()
    for of_class in (order[small[order]], order[~small[order]]):
        keys = [
            plain.KEYS[within](s, int(block[Column.REQUESTED, j]), q, now - s)
            for j in of_class.tolist()
            for s, _, q in [queue[j]]
        ]
        assert in_order(keys)
        for a, b in itertools.pairwise(of_class.tolist()):
            if block[[Column.SUBMIT, Column.REQUESTED, Column.UNITS], a].tolist() == (
                block[[Column.SUBMIT, Column.REQUESTED, Column.UNITS], b].tolist()
            ):
                assert a < b


@pytest.mark.parametrize("within", ["spf", "wfp3", "unicef", "lexp", "f3"])
def test_the_classes_stay_apart_whatever_the_jobs_are_like(within: str) -> None:
    """The largest small job before the smallest large one, and the other way round."""
    queue = [(0, 2**50, 2**61), (0, 1, 1), (10, 2**50, 2**61), (10, 1, 1)]
    for small in ({0, 2}, {1, 3}):
        block = block_of(queue)
        block[Column.REQUESTED, sorted(small)] += 1
        order = find(f"small+{within}").rank(2**62, block).tolist()
        assert set(order[:2]) == small


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("small+sfp", r"unknown policy after small\+ 'sfp'; did you mean"),
        ("small+", r"unknown policy after small\+ ''"),
        ("small+small", "one of fcfs, .*, f4"),
        ("small+lin", "one of fcfs, .*, f4"),
        ("spf+saf", "policy spf\\+saf: only small has another policy in each class"),
    ],
)
def test_what_small_cannot_be_followed_by_is_one_clear_error(name: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        find(name)


@given(jobs, st.fixed_dictionaries(dict.fromkeys(FEATURES, weights)))
def test_a_mix_is_the_weighted_sum_of_its_features(queue: list[Job], w: dict[str, float]) -> None:
    if not any(w.values()):
        w["area"] = 1.0
    now = 10**7

    def key(s: int, p: int, q: int) -> float:
        wait = now - s
        values = (q, p, wait, p / q, (wait + p) / p, p * q)
        return sum(w[name] * value for name, value in zip(FEATURES, values, strict=True))

    order = policies.mix(w).rank(now, block_of(queue)).tolist()
    found = [key(*queue[j]) for j in order]
    scale = max(map(abs, found), default=0.0)
    assert all(a <= b + 1e-9 * scale for a, b in itertools.pairwise(found))


@given(jobs, st.sampled_from(TERMS[1:]))
def test_a_polynomial_of_one_term_is_that_term(queue: list[Job], term: str) -> None:
    powers = dict.fromkeys("pqr", 0)
    for part in term.replace("pq", "p q").split():
        powers[part[0]] += int(part[2:] or 1)

    def key(s: int, p: int, q: int) -> float:
        return float(p ** powers["p"] * q ** powers["q"] * s ** powers["r"])

    order = policies.polynomial({term: 1.0}).rank(10**7, block_of(queue)).tolist()
    assert in_order([key(*queue[j]) for j in order])


def test_the_published_polynomials_have_the_published_terms() -> None:
    counts = {"lin": 4, "qdr": 8, "cub": 13, "qua": 19}
    for name, count in counts.items():
        assert [w != 0 for w in find(name).weights] == [True] * count + [False] * (19 - count)
    assert find("qua").weights[TERMS.index("p q^3")] == 1.55e-13
    assert find("cub").weights[TERMS.index("p q^2")] == 9.52e-12


def test_every_policy_has_a_summary_and_those_that_change_with_time_say_so() -> None:
    assert {find(name).name for name in SUMMARIES} == set(SUMMARIES)
    changing = {"lexp", "sexp", "wfp3", "unicef"}
    assert {name for name in SUMMARIES if find(name).changes} == changing
    within = {name: find(f"small+{name}").changes for name in set(plain.KEYS) - {"lin"}}
    assert {name for name, changes in within.items() if changes} == changing


def shortest(p: float, q: float, submit: float, now: float) -> float:
    return p


def nothing(p: float, q: float, submit: float, now: float) -> float:
    return math.nan if q > 1 else 0.0


def broken(p: float, q: float, submit: float, now: float) -> float:
    return 1 / (q - 2)


def test_a_users_own_function_orders_the_queue() -> None:
    made = dispatch.make("easy:primary=tests.heuristics.test_policies:shortest")
    assert isinstance(made, Backfill)
    assert made.primary.rank(9, block_of([(0, 9, 1), (1, 5, 1), (2, 7, 1)])).tolist() == [1, 2, 0]
    late = made.primary.rank(9, block_of([(0, 9, 1), (1, 5, 1), (8, 7, 1)]), threshold_s=7)
    assert late.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("function", "complaint"),
    [("nothing", "returned nan for job 1"), ("broken", "raised ZeroDivisionError.* for job 1")],
)
def test_a_function_that_gives_no_number_names_itself_and_the_job(
    function: str, complaint: str
) -> None:
    made = dispatch.make(f"easy:primary=tests.heuristics.test_policies:{function}")
    assert isinstance(made, Backfill)
    with pytest.raises(UsageError, match=rf"test_policies:{function} {complaint}"):
        made.primary.rank(9, block_of([(0, 9, 1), (1, 5, 2)]))


def test_a_policy_file_says_weights_and_coefficients(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'dispatcher = "easy"\nthreshold = 72000\n'
        '[primary]\npolicy = "mix"\nweights = {area = 0.5, wait = -0.5}\n'
        '[backfill]\npolicy = "polynomial"\ncoefficients = {p = 1, "pq" = 2e-3}\n'
    )
    made = dispatch.make(str(path))
    assert isinstance(made, Backfill)
    assert made.primary == policies.mix({"area": 0.5, "wait": -0.5})
    assert made.secondary == policies.polynomial({"p": 1.0, "pq": 2e-3})
    assert (made.threshold_s, made.name) == (72000, str(path))


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('policy = "mix"\nweights = {aera = 1}', "unknown feature 'aera'; did you mean area"),
        ('policy = "mix"\nweights = {area = 0}', "every weight is 0"),
        ('policy = "mix"\nweights = {area = "big"}', "weight of area: 'big' is not a number"),
        ('policy = "mix"\nweights = {area = true}', "weight of area: True is not a number"),
        ('policy = "mix"\nweights = {area = inf}', "weight of area: inf is no number from"),
        (f'policy = "mix"\nweights = {{area = 1{"0" * 400}}}', "0 is no number from -1e\\+100 to"),
        ('policy = "mix"', "weights = None"),
        ('policy = "mix"\nweights = {area = 1}\nscale = 3', "not 'scale'"),
        ('policy = "polynomial"\ncoefficients = {"p^5" = 1}', "unknown term 'p\\^5'"),
        ('policy = "polynomial"\ncoefficients = {p = nan}', "coefficient of p: nan is no number"),
        ('policy = "polynomial"\ncoefficients = {p = -2e100}', r"p: -2e\+100 is no number from"),
        ('policy = "blend"', "unknown policy 'blend'"),
        ("weights = {area = 1}", "unknown policy 'None'"),
    ],
)
def test_a_policy_file_that_is_wrong_is_one_clear_error(
    tmp_path: Path, table: str, complaint: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'dispatcher = "easy"\n[primary]\n{table}\n')
    with pytest.raises(UsageError, match=complaint) as caught:
        dispatch.make(str(path))
    assert str(path) in str(caught.value)
    assert "primary" in str(caught.value)
