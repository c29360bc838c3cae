"""Additional data: when it is asked, what it sees, what becomes of its values and its errors."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import cli, data, instance
from cpdispatch.data import Moment
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.dispatch import make
from cpdispatch.errors import CpdispatchError, DataError, InterruptedRunError, UsageError
from cpdispatch.events import Events, Row, read
from cpdispatch.instance import Instance, LeftOut
from cpdispatch.simulator import Simulation, Watch, simulate
from cpdispatch.system import NodeGroup, System
from tests.simulator.cases import workload

FOUR = System("four", ("core",), (NodeGroup("node", 4, (1,)),))
JOBS = [(0, 2, 50, 40), (10, 4, 20, 20), (15, 1, 5, 5)]
FAILS = Events(("case.csv",), (Row(2, 5, "fail", "3"), Row(3, 30, "repair", "3")))


class Load:
    """What was held on how many units for how long so far."""

    name = "load"

    def __init__(self) -> None:
        self.unit_s = 0
        self.moments: list[tuple[int, int, int, int, list[int]]] = []

    def value(self, moment: Moment) -> int:
        self.unit_s += int(moment.held.sum()) * (moment.now_s - moment.since_s)
        assert not moment.held.flags.writeable
        self.moments.append(
            (moment.now_s, len(moment.running), len(moment.queue), len(moment.happened),
             moment.down.tolist())
        )  # fmt: skip
        return self.unit_s


class Clock:
    """A value that changes by itself every 7 seconds."""

    name = "clock"

    def value(self, moment: Moment) -> int:
        return moment.now_s

    def next_s(self, now_s: int) -> int:
        return now_s + 7 - now_s % 7


class Patient:
    """EASY from a time on; nothing before."""

    name = "patient"

    def __init__(self, from_s: int) -> None:
        self.from_s, self.easy = from_s, make("easy")

    def dispatch(self, seen: Instance) -> Decision:
        assert seen.data["clock"] == seen.now
        if seen.now >= self.from_s:
            return self.easy.dispatch(seen)
        waits = np.full(len(seen.queue), Reason.WAITS, dtype=np.int8)
        start_s = np.full(len(seen.queue), NO_START, dtype=np.int64)
        return Decision(start_s, waits, Placements.of({}), Certificate(self.name))


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_data_are_asked_after_each_event_and_see_what_jobs_held_before_it(trigger: str) -> None:
    load = Load()
    run = simulate(workload(JOBS), FOUR, "easy", data=[load], events=FAILS, trigger=trigger)
    assert run.verify() == []
    jobs = run.jobs
    assert load.unit_s == int((jobs["units"] * (jobs["end"] - jobs["start"])).sum())
    assert run.jobs["start"].tolist() == [0, 40, 15] or trigger == "event"
    if trigger == "instant":
        assert load.moments == [
            (0, 0, 1, 0, []), (5, 1, 0, 1, [3]), (10, 1, 1, 0, [3]), (15, 1, 2, 0, [3]),
            (20, 1, 1, 0, [3]), (30, 1, 1, 1, []), (40, 0, 1, 0, []), (60, 0, 0, 0, []),
        ]  # fmt: skip


def test_a_value_that_changes_by_itself_brings_a_dispatch() -> None:
    run = simulate(workload(JOBS), FOUR, Patient(20), data=[Clock()])
    assert run.verify() == []
    assert run.jobs["start"].tolist()[0] == 21
    assert run.about["data"] == ["clock"]
    assert not run.about["compiled"]


def test_data_change_no_schedule_of_those_who_do_not_ask() -> None:
    log = workload([(7 * k, 1 + k % 3, 5, 9 + 13 * (k % 5)) for k in range(30)])
    for correction in ("minimal", "incremental"):
        asked = simulate(log, FOUR, "easy", correction=correction, data=[Load()])
        alone = simulate(log, FOUR, "easy", correction=correction)
        assert asked.verify() == []
        assert asked.jobs["start"].tolist() == alone.jobs["start"].tolist()


def test_failures_tell_when_each_node_failed() -> None:
    seen: list[object] = []
    simulation = Simulation(workload(JOBS), FOUR, events=FAILS, data=["failures"])
    easy = make("easy")
    while (asked := simulation.advance()) is not None:
        seen.append(asked.data["failures"])
        simulation.apply(easy.dispatch(asked))
    assert seen[0] == ((), (), (), ())
    assert set(seen[1:]) == {((), (), (), (5,))}


def test_drawn_failures_are_told_as_they_happened() -> None:
    seen: dict[int, Any] = {}
    events = read("exponential:mtbf=60s,repair=10s")
    log = workload([(20 * k, 2, 30, 25) for k in range(12)])
    run = simulate(
        log, FOUR, "easy", events=events, data=["failures"],
        watch=Watch(seen=lambda asked: seen.update({asked.now: asked.data["failures"]})),
    )  # fmt: skip
    assert run.verify() == []
    assert run.happened is not None
    assert any(any(times) for times in seen.values())
    for now, told in seen.items():
        for node, times in enumerate(told):
            happened = [
                event.time_s
                for event in run.happened
                if event.kind == "fail" and node in event.nodes and event.time_s <= now
            ]
            assert list(times) == happened


class Raises:
    name = "raises"

    def value(self, moment: Moment) -> object:
        raise ValueError("no sensor")


class Backwards:
    name = "backwards"

    def value(self, moment: Moment) -> object:
        return 1

    def next_s(self, now_s: int) -> Any:
        return now_s


class Later(Backwards):
    def next_s(self, now_s: int) -> Any:
        return "later"


class Nameless:
    def value(self, moment: Moment) -> object:
        return 1


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ([Raises()], DataError, "additional data raises raised ValueError: no sensor (test_data"),
        ([Backwards()], DataError, "next_s(0): it must return None, or a later time in whole"),
        ([Later()], DataError, "changes next at 'later'"),
        ([Nameless()], UsageError, "it needs a name"),
        ([Load(), Load()], UsageError, "two additional data are named 'load'"),
        (["failure"], UsageError, "did you mean failures?"),
        (["tests.simulator.test_data:FOUR"], UsageError, "it has no method value"),
        (["tests.simulator.test_data:Low"], UsageError, "has no attribute 'Low'"),
        ([7], UsageError, "it has no method value"),
    ],
)
def test_an_error_of_the_users_is_one_clear_error(
    given: list[Any], error: type[CpdispatchError], says: str
) -> None:
    with pytest.raises(error) as raised:
        simulate(workload(JOBS), FOUR, "easy", data=given)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_run_that_is_resumed_has_the_data_of_before(tmp_path: Path) -> None:
    given = {"data": ["tests.simulator.test_data:Load", "failures"], "events": FAILS}
    whole: list[object] = []
    simulate(
        workload(JOBS), FOUR, "easy", **given,
        watch=Watch(seen=lambda asked: whole.append(dict(asked.data))),
    )  # fmt: skip
    parts: list[object] = []

    def seen(asked: Instance) -> None:
        parts.append(dict(asked.data))

    for _ in range(len(whole) + 1):
        try:
            watch = Watch(seen=seen, folder=tmp_path, resume=True, stop=lambda: True)
            simulate(workload(JOBS), FOUR, "easy", **given, watch=watch)
            break
        except InterruptedRunError:
            continue
    assert parts == whole
    other = given | {"data": ["failures"]}
    with pytest.raises(UsageError, match="its data is"):
        simulate(workload(JOBS), FOUR, "easy", **other, watch=Watch(folder=tmp_path, resume=True))


def test_an_instance_file_holds_the_values_that_json_can_hold() -> None:
    simulation = Simulation(workload(JOBS), FOUR)
    asked = simulation.advance()
    assert asked is not None
    values = {
        "array": np.array([1.5, math.nan]), "number": np.int64(7), "words": ("a", {"b": [None]}),
        "thing": object(), "huge": 2**70, "deep": [np.array([object()])], "bytes": b"ab",
        "set": {1, 2}, "time": timedelta(seconds=5), "numbers": {1: 2}, "exact": [Decimal("1.5")],
    }  # fmt: skip
    content = instance.to_json(replace(asked, data=values))
    read_again = instance.loads(content)
    assert dict(read_again.data) == {
        "array": [1.5, None], "number": 7, "words": ["a", {"b": [None]}],
        "thing": LeftOut("object"), "huge": 2**70, "deep": LeftOut("list"),
        "bytes": LeftOut("bytes"), "set": LeftOut("set"), "time": LeftOut("timedelta"),
        "numbers": LeftOut("dict"), "exact": LeftOut("list"),
    }  # fmt: skip
    assert instance.to_json(read_again) == content
    assert b"data" not in instance.to_json(asked)


def test_the_command_line_takes_data_and_dumps_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id,submit,runtime,units,core\n1,0,60,1,1\n2,5,60,1,1\n")
    base = ["simulate", str(log), "--system", "2", "-d", "easy"]
    own = ["--data", "tests.simulator.test_data:Load"]
    dumps = ["--dump-instances", str(tmp_path / "dumps"), "--dump-every", "1"]
    assert cli.run([*base, *own, "--data", "failures", *dumps]) == 0
    capsys.readouterr()
    told = [instance.load(file).data for file in sorted((tmp_path / "dumps").iterdir())]
    assert told == [{"load": 0, "failures": [[]]}, {"load": 5, "failures": [[]]}]
    for given, says in (
        ("failure", "did you mean failures?"),
        ("tests.simulator.test_data:Raises", "raised ValueError: no sensor"),
    ):
        assert cli.run([*base, "--data", given]) != 0
        error = capsys.readouterr().err
        assert says in error
        assert "Traceback" not in error


def test_every_bundled_datum_has_its_name() -> None:
    assert [data.make(name).name for name in data.DATA] == list(data.DATA)
