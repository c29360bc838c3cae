from __future__ import annotations

from pathlib import Path

import pytest

from cpdispatch import dispatch, instance, solution, verify
from cpdispatch.dispatch import REGISTRY, Settings
from cpdispatch.files import read_bytes

FOLDER = Path(__file__).resolve().parent.parent / "instances"
STRICT = ("fifo", "sjf", "ljf")
FILES = sorted(FOLDER.glob("*.json.gz"))


def test_the_corpus_is_there() -> None:
    assert len(FILES) >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_the_corpus_is_canonical(path: Path) -> None:
    assert instance.to_json(instance.load(path)) == read_bytes(path)


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - {"reject"}))
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_dispatcher_solves_the_corpus_feasibly(path: Path, name: str) -> None:
    problem = instance.load(path)
    decision = dispatch.make(name, Settings(limit_s=0.2)).dispatch(problem)
    answer = solution.from_decision(problem, decision)
    assert verify.decision(problem, decision) == []
    assert verify.solution(problem, answer) == []
    assert len(decision.placements) > 0 or name in STRICT
