from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpdispatch import instance
from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]
MOMENT = ROOT / "instances" / "eurora-0010-jobs.json.gz"


bench = script("benchmarks/corpus.py")


def answer(file: str = "a-loaded-0010-01.json.gz", model: str = "one", **fields: Any) -> Any:
    """A sound answer whose jobs cost 10 beside their waits."""
    given = {"planned": 3, "jobs": "j", "placed": True, "wait": 1.0, "bound": None, **fields}
    return bench.Answer(file, model, 1.0, value=10.0 + given["wait"], **given)


def results(*answers: Any) -> Any:
    return bench.Results(answers, bench.BestFile())


def test_the_wait_part_and_the_constant_make_the_value_of_the_certificate() -> None:
    problem = instance.load(MOMENT)
    decision = bench.dispatch.make("pcp").dispatch(problem)
    parts = bench.wait_part(problem, decision) + bench.constant(problem, decision)
    assert float(parts) == decision.certificate.value


def test_a_gap_is_0_where_both_wait_parts_are_0_and_finite_where_one_is() -> None:
    assert bench.ratio(0.0, 0.0) == 1.0
    assert bench.ratio(1.0, 0.0) == pytest.approx(101.0)


def test_plans_of_other_jobs_without_nodes_or_with_violations_are_not_compared() -> None:
    found = results(
        answer(model="one"),
        answer(model="two", wait=2.0),
        answer(model="other", jobs="k", wait=0.1),
        answer(model="pooled", placed=False, wait=0.1),
        answer(model="wrong", violations=["capacity: too much"], wait=0.1),
    )
    gaps = {model: list(found.gaps(model, 1.0).values()) for model, _ in found.settings}
    assert gaps == {
        "one": [0.0], "two": [pytest.approx(2.01 / 1.01 - 1)], "other": [], "pooled": [],
        "wrong": [],
    }  # fmt: skip


def test_a_comparison_counts_loaded_instances_only() -> None:
    files = ["a-loaded-0010-01", "b-loaded-0010-01", "c-easy-0010-01", "d-overloaded-0010-01"]
    one = [answer(file, "one", wait=1.0) for file in files]
    two = [answer(file, "two", wait=2.0) for file in files]
    table = bench.compare_table(results(*one, *two), "one", "two")
    assert table[-1].split(" | ")[1:5] == ["2", "2", "0", "0"]


def test_best_known_values_only_improve(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    bench.write_best(path, [answer(wait=2.0, bound=10.5, model="early")])
    bench.write_best(path, [answer(wait=3.0, bound=10.1), answer(wait=1.0, jobs="k")])
    bench.write_best(path, [answer(wait=0.1, placed=False), answer(wait=0.1, violations=["x"])])
    best = bench.read_best(path).instances["a-loaded-0010-01.json.gz"]
    assert (best["j"].wait, best["j"].bound, best["j"].found_by.model) == (2.0, 10.5, "early")
    assert best["k"].wait == 1.0


def test_a_bound_above_a_known_value_is_told_and_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, liar = tmp_path / "best.json", answer(wait=3.0, bound=12.5, model="liar")
    bench.write_best(path, [answer(wait=2.0), liar])
    (best,) = bench.read_best(path).instances["a-loaded-0010-01.json.gz"].values()
    assert best.bound is None
    assert "false bound 12.5" in capsys.readouterr().err
    assert results(answer(wait=2.0), liar).false_bound(liar)


def test_a_failing_dispatcher_is_counted() -> None:
    problem = instance.load(MOMENT)
    failed = bench.ask("x", problem, "tests.benchmarks.failing:Failing", 1.0, 0)
    assert failed.error == "RuntimeError: no answer"
    assert not failed.answered


def test_a_run_writes_tables_answers_and_best_known_and_can_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "eurora-loaded-0010-01.json.gz").write_bytes(MOMENT.read_bytes())
    out, best = [tmp_path / "t.md", tmp_path / "t.json"], tmp_path / "best_known.json"
    arguments = [
        str(tmp_path / "in"), "--budgets", "0.05", "--compare", "pcp", "hcp",
        "--best", str(best), "--out", *map(str, out), "--resume",
    ]  # fmt: skip
    bench.main(arguments)
    assert out[0].read_text().strip() == capsys.readouterr().out.strip()
    first = msgspec.json.decode(out[1].read_bytes())
    assert [row["model"] for row in first] == ["pcp", "hcp"]
    assert list(bench.read_best(best).instances) == ["eurora-loaded-0010-01.json.gz"]
    bench.main(arguments)
    assert msgspec.json.decode(out[1].read_bytes()) == first
