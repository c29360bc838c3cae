"""hyper: the choice of a model by what has served on such instances."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cpdispatch import verify
from cpdispatch.bounded import Bounded
from cpdispatch.cli import run
from cpdispatch.dispatch import Settings, make
from cpdispatch.errors import InputError, UsageError
from cpdispatch.instance import Instance, dump, load
from cpdispatch.models.hyper import (
    CHOICES,
    FORMAT,
    Choice,
    Features,
    Hyper,
    Record,
    gain,
    make_hyper,
    prior,
)
from tests.models.cases import job, queued, running

KNOWN = '{"format": "cpdispatch-hyper/1", "kinds": '
CORPUS = Path(__file__).parents[2] / "instances"


def crowded(number: int = 2) -> Instance:
    """An instance where the order of the jobs matters."""
    return load(CORPUS / f"eurora-loaded-0030-0{number}.json.gz")


def features(instance: Instance) -> Features:
    hyper = Hyper()
    return Features.of(instance, hyper.engine(CHOICES[0]).select(instance))


def test_the_features_count_what_is_planned_on_what_there_is() -> None:
    instance = queued(
        job(1, 9, 2, 1, 0), job(2, 9, 1, 4, 1), running=[running(9, 9, [2, 0], 0)],
        groups=[{"name": "a", "nodes": 1, "capacity": [4, 0]},
                {"name": "b", "nodes": 1, "capacity": [4, 1]}],
    )  # fmt: skip
    seen = features(instance)
    assert (seen.jobs, seen.units, seen.nodes, seen.groups) == (2, 3, 2, 2)
    assert seen.load == pytest.approx(2 / 8)
    assert seen.mix == 0.5
    assert seen.slack == pytest.approx(1.0)  # 6 cores free for 6, 1 GPU for 1


def test_kinds_tell_small_from_large_and_ample_from_scarce() -> None:
    ample = Features(3, 3, 64, 1, 0.5, 0.0, 2.0)
    assert ample.kind == "4 jobs at most, few nodes, uniform, ample"
    assert Features(41, 3, 500, 2, 0.5, 0.1, 0.1).kind == "over 40 jobs, many nodes, mixed, scarce"
    assert len({Features(jobs, 3, 64, 1, 0.5, 0.0, 2.0).kind for jobs in (4, 5, 13, 41)}) == 4


def test_a_record_keeps_the_mean_of_what_a_choice_brought() -> None:
    record = Record()
    for reward in (1.0, 0.0, 0.5):
        record.learn("kind", CHOICES[2], reward)
    assert record.kinds["kind"][CHOICES[2].name] == pytest.approx((3, 0.5))


def test_what_was_never_tried_is_tried_first_in_a_fixed_order() -> None:
    record = Record()
    for choice in CHOICES:
        assert record.best("kind") == choice
        record.learn("kind", choice, 0.0)


def test_a_bandit_settles_on_the_choice_that_serves_best() -> None:
    record, best, taken = Record(), CHOICES[4], []
    for _ in range(400):
        choice = record.best("kind")
        taken.append(choice)
        record.learn("kind", choice, 0.3 if choice == best else 0.1)
    assert taken[-100:].count(best) > 90
    assert set(taken) == set(CHOICES)


def test_what_is_learned_for_a_kind_says_nothing_of_another() -> None:
    record = Record()
    for choice in CHOICES:
        record.learn("kind", choice, 1.0)
    assert record.score("other", CHOICES[0]) == math.inf


def test_hyper_answers_feasibly_and_learns_from_it() -> None:
    hyper = make_hyper(limit_s=1.0)
    hyper.record.kinds.clear()
    instance = crowded()
    for tried in range(1, 4):
        decision = hyper.dispatch(instance)
        assert verify.decision(instance, decision) == []
        (choices,) = hyper.record.kinds.values()
        assert sum(tries for tries, _ in choices.values()) == tried


def test_an_instance_without_a_question_teaches_nothing() -> None:
    hyper = make_hyper()
    hyper.record.kinds.clear()
    hyper.dispatch(queued(job(1, 9, 1, 1, 0)))
    assert hyper.record.kinds == {}


def test_the_same_history_gives_the_same_answers() -> None:
    def answers() -> list[bytes]:
        hyper = make_hyper(limit_s=1.0)
        return [hyper.dispatch(crowded(n)).start_s.tobytes() for n in (2, 3, 2)]

    assert answers() == answers()


def test_what_was_learned_is_saved_and_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    hyper = make_hyper(record=str(path))
    hyper.record.kinds.clear()
    hyper.record.learn("kind", CHOICES[0], 0.25)
    hyper.save()
    assert make_hyper(record=str(path)).record.kinds == {"kind": {CHOICES[0].name: (1, 0.25)}}
    assert json.loads(path.read_bytes())["format"] == FORMAT


def test_what_a_decision_teaches_is_saved_at_once(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    hyper = make_hyper(limit_s=1.0, record=str(path))
    before = Record.load(path)
    assert before.kinds == prior().kinds
    for _ in range(2):  # the first may load what is compiled, and have no time left
        hyper.dispatch(crowded())
    assert Record.load(path).kinds == hyper.record.kinds != before.kinds


def test_a_record_that_cannot_be_saved_is_told_when_the_dispatcher_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"record\.json: cannot be written"):
        make_hyper(record=str(tmp_path / "file" / "record.json"))


def test_a_part_that_there_was_no_time_to_plan_is_no_loss() -> None:
    whole: Any = SimpleNamespace(first=120.0, last=100.0, bound=90.0, complete=True)
    cut: Any = SimpleNamespace(first=0.0, last=5000.0, bound=0.0, complete=False)
    assert gain([whole, cut]) == gain([whole]) == pytest.approx(2 / 3)
    assert gain([cut]) == 0


def test_a_record_travels_with_a_pickled_dispatcher() -> None:
    hyper = make_hyper()
    hyper.record.learn("kind", CHOICES[1], 0.5)
    assert pickle.loads(pickle.dumps(hyper)).record.kinds == hyper.record.kinds


def test_the_shipped_record_knows_every_choice_and_can_be_unlearned() -> None:
    record = prior()
    assert record.kinds
    for choices in record.kinds.values():
        assert set(choices) <= {choice.name for choice in CHOICES}
        assert all(0 < tries <= 5 for tries, _ in choices.values())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "record.json"),
        ('{"format": "other/1", "kinds": {}}', "format"),
        (KNOWN + '{"k": {"pcp9@1": [1, 0]}}}', "pcp9@1"),
        (KNOWN + '{"k": {"hcp@1": [-1, 0]}}}', "hcp@1"),
        (KNOWN + '{"k": {"hcp@1": [1, "x"]}}}', "kinds"),
    ],
)
def test_a_bad_record_is_refused_with_its_file_and_field(
    tmp_path: Path, content: str, told: str
) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"record\.json") as error:
        Record.load(path)
    assert told in str(error.value)


def test_the_choice_is_explained_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "instance.json"
    dump(crowded(), path)
    assert run(["list", "models", "--explain", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == features(crowded()).kind
    assert told["choice"] in told["choices"]
    assert run(["list", "models", "--explain", str(path)]) == 0
    assert told["choice"] in capsys.readouterr().out
    assert run(["list", "systems", "--explain", str(path)]) == 2


def test_the_registry_passes_settings_on() -> None:
    hyper = make("hyper:limit=0.3,objective=wait,reserve=0", Settings(seed=7))
    assert isinstance(hyper, Bounded)
    assert isinstance(hyper.inner, Hyper)
    engine = hyper.inner.engine(Choice("pcp:model=counts", 0.1))
    assert (engine.limit_s, engine.seed, engine.objective, engine.reserve) == (
        pytest.approx(0.05), 7, "wait", 0,
    )  # fmt: skip
