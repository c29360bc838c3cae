from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cpdispatch import dispatch, instance, solution, verify
from cpdispatch.dispatch import REGISTRY, Settings
from cpdispatch.files import read_bytes
from cpdispatch.heuristics.allocate import fits_now
from cpdispatch.instance import Instance

FOLDER = Path(__file__).resolve().parent.parent / "instances"
FILES = sorted(FOLDER.glob("*.json.gz"))
BEST_KNOWN = FOLDER / "best_known.json"
NAME = re.compile(
    r"(?P<system>[a-z]+)-(?P<load>easy|loaded|overloaded)-(?P<queued>\d{4})-"
    r"(?:\d\d|(?P<extra>down|window|cap|all))\.json\.gz|eurora-(?P<moment>\d{4})-jobs\.json\.gz"
)
NODES = {"eurora": 64, "gaia": 151, "kit": 1173, "large": 4600, "curie": 5040, "seth": 120}
STRICT = ("fifo", "sjf", "ljf")
SOLVED = ("eurora-0030-jobs.json.gz", "eurora-loaded-0030-all.json.gz")


def fitting(problem: Instance) -> tuple[int, bool]:
    """How many jobs fit now, and whether together they ask for more than is free."""
    jobs = problem.queue.take(np.flatnonzero(fits_now(problem)))
    asked = (jobs.request * jobs.units[:, None]).sum(axis=0)
    short = bool((asked > problem.free.sum(axis=0)).any())
    return len(jobs), short or int(problem.job_power(jobs).sum()) > problem.power_free()


def test_the_corpus_is_there_and_small() -> None:
    assert len(FILES) >= 150
    assert sum(path.stat().st_size for path in FILES) < 12e6


def test_two_thirds_of_the_corpus_are_loaded_or_overloaded() -> None:
    assert sum("loaded-" in path.name for path in FILES) >= 2 / 3 * len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_the_corpus_is_canonical_and_what_its_name_says(path: Path) -> None:
    content = read_bytes(path)
    problem = instance.loads(content, path)
    assert instance.to_json(problem) == content
    name = NAME.fullmatch(path.name)
    assert name is not None
    assert len(problem.queue) == int(name["queued"] or name["moment"])
    assert problem.system.nodes == NODES[name["system"] or "eurora"]
    fit, short = fitting(problem)
    assert fit >= 2
    if name["load"] is None:
        return
    assert short == (name["load"] != "easy")
    if name["load"] == "loaded":
        assert fit >= max(5, len(problem.queue) / 2)
    if name["load"] == "overloaded":
        assert 4 <= fit < len(problem.queue) / 2
    extra = name["extra"]
    assert (len(problem.down) > 0) == (extra in ("down", "all"))
    assert (len(problem.reservations) > 0) == (extra in ("window", "all"))
    assert (problem.power is not None) == (extra in ("cap", "all"))


@pytest.mark.skipif(not BEST_KNOWN.exists(), reason="no best known values yet")
def test_best_known_values_are_of_the_corpus_and_not_below_their_bounds() -> None:
    known = msgspec.json.decode(BEST_KNOWN.read_bytes())["instances"]
    assert set(known) <= {path.name for path in FILES}
    for entries in known.values():
        for best in entries.values():
            assert 0 <= best["wait"] <= best["value"]
            assert best["bound"] is None or best["bound"] <= best["value"]


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - {"reject"}))
@pytest.mark.parametrize("file", SOLVED)
def test_every_dispatcher_solves_the_corpus_feasibly(file: str, name: str) -> None:
    problem = instance.load(FOLDER / file)
    decision = dispatch.make(name, Settings(limit_s=0.1)).dispatch(problem)
    answer = solution.from_decision(problem, decision)
    assert verify.decision(problem, decision) == []
    assert verify.solution(problem, answer) == []
    assert len(decision.placements) > 0 or name in STRICT
