"""Maintenance windows that are known ahead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import cli
from cpdispatch.decision import NO_START
from cpdispatch.dispatch import make
from cpdispatch.errors import InputError
from cpdispatch.events import (
    FAIL,
    MAINTAIN,
    REPAIR,
    Event,
    Events,
    Row,
    WindowRow,
    read,
    with_maintenance,
)
from cpdispatch.instance import Reservation
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, Simulation, Watch, simulate
from cpdispatch.simulator.replay import finished
from cpdispatch.simulator.saved import EVENTS
from cpdispatch.system import Maintenance, NodeGroup, System, find, system_as_dict
from cpdispatch.verify import Kind
from tests.effort import examples
from tests.oracles.plain_events import expected_everywhere, replay
from tests.simulator.cases import Row as JobRow
from tests.simulator.cases import workload
from tests.simulator.test_events import FOUR, RULES, attempts, failures, poked, spoiled, times
from tests.strategies import systems, workloads


def windows(*rows: tuple[int, str, int, int], others: tuple[Row, ...] = ()) -> Events:
    """Events with windows of (begin, nodes, end, known from)."""
    found: list[Row] = [
        WindowRow(2, begin_s, MAINTAIN, nodes, until_s, known_s)
        for begin_s, nodes, until_s, known_s in rows
    ]
    return Events(("case.csv",), tuple(sorted([*found, *others], key=lambda row: row.time_s)))


def run(rows: list[JobRow], events: Events, dispatcher: str = "easy", **how: Any) -> Run:
    made = simulate(workload(rows), FOUR, dispatcher, events=events, **how)
    assert made.verify() == []
    return made


@pytest.mark.parametrize("trigger", ["instant", "event"])
@pytest.mark.parametrize("dispatcher", ["easy", "conservative", "prb", "hcp"])
def test_no_job_is_started_that_would_reach_into_a_window(dispatcher: str, trigger: str) -> None:
    # The first job is done before the window, the second would not be, and waits for its end.
    rows = [(0, 4, 50, 20), (20, 4, 32, 5), (21, 2, 30, 30)]
    made = run(rows, windows((51, "all", 80, 0)), dispatcher, trigger=trigger)
    assert times(made) == [(0, 20), (80, 85), (21, 51)]
    assert attempts(made) == []
    assert made.metrics["node_failures"] == 0


def test_a_job_that_runs_when_maintenance_begins_is_stopped_and_queued_again() -> None:
    # The window becomes known when the job runs already.
    made = run([(0, 1, 100, 90), (5, 4, 20, 20)], windows((50, "0-1", 80, 10)))
    assert attempts(made) == [(1, 0, 50)]
    assert times(made) == [(50, 140), (140, 160)]
    assert made.jobs["nodes"].tolist()[0] == [2]


def test_a_job_that_outlives_its_expected_end_is_stopped_too() -> None:
    made = run([(0, 4, 40, 90)], windows((50, "0", 80, 0)))
    assert attempts(made) == [(1, 0, 50)]
    assert times(made) == [(80, 170)]


def test_a_window_is_shown_from_when_it_is_known_until_it_is_over() -> None:
    system = System("two", ("core",), (NodeGroup("a", 2, (1,)), NodeGroup("b", 1, (8,))))
    others = (Row(3, 30, FAIL, "1"), Row(4, 35, REPAIR, "1"))
    log = workload([(t, 20, 5, 5) for t in (0, 1)] + [(t, 1, 1, 1) for t in range(5, 75, 10)])
    simulation = Simulation(log, system, events=windows((40, "1-2", 60, 20), others=others))
    seen: dict[int, tuple[Reservation, ...]] = {}
    free: dict[int, list[int]] = {}
    easy = make("easy")
    while (asked := simulation.advance()) is not None:
        seen[asked.now], free[asked.now] = asked.reservations, asked.free[:, 0].tolist()
        simulation.apply(easy.dispatch(asked))
    thin, thick = Reservation(40, 20, (1,), (1,)), Reservation(40, 20, (2,), (8,))
    assert {now: seen[now] for now in (15, 25, 35, 45, 65)} == {
        15: (), 25: (thin, thick), 35: (thin, thick), 45: (thin, thick), 65: (),
    }  # fmt: skip
    assert (free[25], free[45], free[65]) == ([1, 1, 8], [1, 0, 0], [1, 1, 8])


def test_a_node_that_is_down_is_no_part_of_what_is_reserved() -> None:
    others = (Row(3, 2, FAIL, "0"), Row(4, 60, REPAIR, "0"))
    seen: list[tuple[Reservation, ...]] = []
    run(
        [(0, 1, 5, 5), (3, 4, 5, 5)], windows((50, "0-1", 70, 0), others=others),
        watch=Watch(seen=lambda asked: seen.append(asked.reservations)),
    )  # fmt: skip
    assert [held[0].nodes if held else () for held in seen][:3] == [(0, 1), (1,), (1,)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System, Events]:
    """Windows, and failures and drains beside them."""
    system = draw(systems())
    rows: list[Row] = []
    for node in range(system.nodes):
        at = sorted(draw(st.sets(st.integers(0, 80), max_size=4)))
        for begin_s, until_s in zip(at[::2], at[1::2], strict=False):
            known_s = draw(st.integers(0, begin_s))
            rows.append(WindowRow(2, begin_s, MAINTAIN, str(node), until_s, known_s))
    if draw(st.booleans()):
        rows += [
            Row(2, event.time_s, event.kind, " ".join(map(str, event.nodes)))
            for event in draw(failures(system.nodes))
        ]
    rows.sort(key=lambda row: row.time_s)
    return draw(workloads(system)), system, Events(("case.csv",), tuple(rows))


@pytest.mark.parametrize("trigger", ["instant", "event"])
@pytest.mark.parametrize("dispatcher", RULES)
@settings(max_examples=examples(8), deadline=None)
@given(cases())
def test_every_schedule_with_maintenance_is_sound(
    dispatcher: str, trigger: str, case: tuple[Workload, System, Events]
) -> None:
    log, system, events = case
    made = simulate(log, system, dispatcher, predictor="walltime", events=events, trigger=trigger)
    assert made.verify() == []


@pytest.mark.parametrize("dispatcher", ["hcp:limit=0.05", "pcp:limit=0.05"])
@settings(max_examples=examples(4), deadline=None)
@given(cases())
def test_models_keep_maintenance(dispatcher: str, case: tuple[Workload, System, Events]) -> None:
    log, system, events = case
    assert simulate(log, system, dispatcher, events=events).verify() == []


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_easy_beside_maintenance_is_its_plain_twin_job_by_job(
    case: tuple[Workload, System, Events],
) -> None:
    log, system, events = case
    made = simulate(log, system, "easy", events=events)
    assert made.verify() == []
    choice = events.requeues(log).tolist()
    twin = replay(log, system, events.trace(system), choice)
    assert made.jobs[["start", "end", "requeued"]].to_numpy().T.tolist() == (
        expected_everywhere(twin).tolist()
    )
    assert attempts(made) == [(job.row, start, end) for job in twin for start, end, _ in job.lost]
    nodes = [
        dict(zip(n, u, strict=True))
        for n, u in zip(made.jobs["nodes"], made.jobs["node_units"], strict=True)
    ]
    assert nodes == [dict(sorted(job.nodes.items())) for job in twin]


@settings(max_examples=examples(50), deadline=None)
@given(cases())
def test_conservative_keeps_its_promises_where_maintenance_was_always_known(
    case: tuple[Workload, System, Events],
) -> None:
    log, system, events = case
    log = replace(log, runtime_s=np.minimum(log.runtime_s, log.table.requested_s))
    known = tuple(replace(row, known_s=0) for row in events.rows if isinstance(row, WindowRow))
    simulation = Simulation(log, system, events=replace(events, rows=known))
    conservative, promised = make("conservative"), dict[int, int]()
    while (asked := simulation.advance()) is not None:
        decision = conservative.dispatch(asked)
        said = zip(asked.queue.id.tolist(), decision.start_s.tolist(), strict=True)
        for id, start_s in said:
            assert NO_START != start_s <= promised.get(id, start_s)
            promised[id] = start_s
        simulation.apply(decision)
    assert not simulation.records.requeued.any()


def test_the_checker_reports_what_is_wrong_with_maintenance() -> None:
    made = run([(0, 1, 100, 90), (5, 1, 20, 20), (81, 4, 5, 5)], windows((50, "0-1", 80, 10)))
    jobs, table, happened = made.job_table, made.attempt_table, made.happened or ()
    assert attempts(made) == [(1, 0, 50)]
    assert jobs.column("nodes").to_pylist()[:2] == [[2], [1]]
    # On a node while it is maintained; stopped though it need not have been.
    spoiled(made, Kind.DOWN, job_table=poked(jobs, "nodes", 0, [1]))
    spoiled(made, Kind.RESTART, happened=(replace(happened[0], time_s=49),))
    spoiled(made, Kind.DOWN, happened=(replace(happened[0], time_s=20, known_s=20),))
    spoiled(made, Kind.RESTART, attempt_table=table.slice(0, 0))  # type: ignore[union-attr]
    # Started, though it was known that it would run into it.
    spoiled(made, Kind.RESERVATION, happened=(replace(happened[0], known_s=0),))
    late = poked(poked(jobs, "start", 1, 29), "end", 1, 49)
    assert {v.kind for v in replace(made, job_table=late).verify()} == {Kind.DECISION}
    spoiled(made, Kind.RESERVATION, job_table=poked(late, "expected_s", 1, 22))


def test_a_run_with_maintenance_is_saved_and_given_to_another(tmp_path: Path) -> None:
    events = windows((50, "0-1", 80, 10), others=(Row(3, 55, FAIL, "3"), Row(4, 60, REPAIR, "3")))
    rows = [(5 * k, 1 + k % 4, 30, 20) for k in range(30)]
    made = run(rows, events, "conservative")
    finished(made, tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.happened == made.happened
    assert loaded.verify() == []
    again = run(rows, read(str(tmp_path / "events.csv")), "conservative")
    assert again.job_table.equals(made.job_table)


HEADER = "time,kind,nodes,until,known"


@pytest.mark.parametrize(
    ("lines", "field", "says"),
    [
        (["5,maintain,0,,"], "until", "a maintenance window needs its end"),
        (["5,maintain,0,5,"], "until", "the window begins at 5"),
        (["5,maintain,0,soon,"], "until", "not a whole number"),
        (["5,maintain,0,9,6"], "known", "the window begins at 5"),
        (["5,maintain,0,9,-1"], "known", "negative"),
        (["5,fail,0,9,"], "until", "only maintenance windows have this"),
        (["5,maintain,0,9,", "8,maintain,all,20,"], "time", "node 0 is maintained until 9"),
    ],
)
def test_a_wrong_window_is_one_clear_error(
    tmp_path: Path, lines: list[str], field: str, says: str
) -> None:
    path = tmp_path / "events.csv"
    path.write_text("\n".join((HEADER, *lines)))
    with pytest.raises(InputError) as raised:
        read(str(path)).trace(FOUR)
    text = str(raised.value)
    assert text.startswith(f"{path}:{1 + len(lines)}: field {field}: ")
    assert says in text


def test_the_command_line_takes_maintenance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, system, events = (tmp_path / name for name in ("log.csv", "two.json", "events.csv"))
    log.write_text("id,submit,runtime,units,core\n1,0,60,1,1\n2,5,60,1,1\n")
    system.write_text(
        '{"resources": ["core"], "groups": [{"name": "n", "nodes": 2, "capacity": [1]}]}'
    )
    events.write_text(f"{HEADER}\n30,maintain,0,100,20\n40,fail,1,,\n50,repair,1,,\n")
    found = read(str(events)).trace(FOUR)
    assert found[0] == Event(30, MAINTAIN, (0,), 100, 20)
    out = tmp_path / "out"
    base = ["simulate", str(log), "--system", str(system), "-d", "easy"]
    assert cli.run([*base, "--events", str(events), "--out", str(out)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "queued again 2" in told
    assert cli.run(["verify", "--run", str(out)]) == 0


# --------------------------------------------------------------------- windows of the system

WEEKLY = replace(FOUR, maintenance=(Maintenance(50, 10, "1-2", every_s=100, known_s=20),))


def test_windows_of_a_system_are_those_of_a_file_of_events() -> None:
    rows = [(0, 2, 30, 30), (40, 4, 30, 30), (120, 3, 40, 40), (149, 2, 30, 30), (240, 1, 9, 9)]
    events = windows((50, "1-2", 60, 30), (150, "1-2", 160, 130))
    own = simulate(workload(rows), WEEKLY, "easy")
    told = simulate(workload(rows), FOUR, "easy", events=events)
    assert times(own) == times(told)
    assert own.verify() == []
    assert own.happened == told.happened
    assert not own.about["compiled"]
    loop = Simulation(workload(rows), WEEKLY)
    while (instance := loop.advance()) is not None:
        loop.apply(make("easy").dispatch(instance))
    assert loop.records.start_s.tolist() == [start for start, _ in times(own)]


def test_windows_that_begin_after_the_last_submission_stop_no_replay() -> None:
    made = simulate(workload([(0, 2, 30, 30), (40, 4, 30, 30)]), WEEKLY, "easy")
    assert times(made) == [(0, 30), (40, 70)]
    assert made.verify() == []


def test_windows_of_a_system_are_beside_other_events_and_only_once() -> None:
    failed = (Row(2, 20, FAIL, "3"), Row(3, 30, REPAIR, "3"))
    both = with_maintenance(Events(("case.csv",), failed), WEEKLY, np.array([0, 160]))
    assert both is not None
    assert [(row.time_s, row.kind) for row in both.rows] == [
        (20, FAIL), (30, REPAIR), (50, MAINTAIN), (150, MAINTAIN),
    ]  # fmt: skip
    assert both.file == "case.csv"
    assert with_maintenance(both, WEEKLY, np.array([0, 160])) is both
    assert with_maintenance(None, WEEKLY, np.array([0, 49])) is None
    once = replace(FOUR, maintenance=(Maintenance(0, 5),))
    found = with_maintenance(None, once, np.array([4, 1000]))
    assert found is not None
    assert found.trace(once) == [Event(0, MAINTAIN, (0, 1, 2, 3), 5, 0)]
    assert found.file == "system four"
    assert with_maintenance(None, once, np.array([5, 1000])) is None


@pytest.mark.parametrize("known_s", [20, None])
def test_windows_that_are_over_before_the_first_submission_are_left_out(
    known_s: int | None,
) -> None:
    # A log that counts seconds since 1970 has the windows of its own days alone.
    system = replace(FOUR, maintenance=(Maintenance(50, 10, every_s=100, known_s=known_s),))
    rows = [(0, 2, 30, 30), (40, 4, 30, 30), (120, 3, 40, 40), (149, 2, 30, 30), (240, 1, 9, 9)]
    usual = simulate(workload(rows), system, "easy")
    begin_s = 100 * 20_000
    late = simulate(workload([(begin_s + row[0], *row[1:]) for row in rows]), system, "easy")
    assert late.verify() == []
    assert times(late) == [(begin_s + start, begin_s + end) for start, end in times(usual)]
    assert [event.time_s - begin_s for event in late.happened or ()] == [50, 150]
    for first_s, expected in ((159, [150, 250]), (160, [250]), (259, [250]), (150, [150, 250])):
        found = with_maintenance(None, system, np.array([first_s, 250]))
        assert found is not None
        assert [row.time_s for row in found.rows] == expected


def test_what_happened_may_happen_again_to_a_system_with_windows(tmp_path: Path) -> None:
    rows = [(0, 2, 30, 30), (40, 4, 30, 30), (120, 3, 40, 40), (149, 2, 30, 30), (240, 1, 9, 9)]
    own = simulate(workload(rows), WEEKLY, "easy")
    own.save(tmp_path)
    again = simulate(workload(rows), WEEKLY, "easy", events=str(tmp_path / EVENTS))
    assert again.happened == own.happened
    assert times(again) == times(own)
    assert again.verify() == []


def test_a_window_of_the_system_that_meets_one_of_the_file_is_named() -> None:
    events = windows((45, "1", 55, 0))
    with pytest.raises(InputError) as error:
        simulate(workload([(0, 1, 9, 9), (60, 1, 9, 9)]), WEEKLY, "easy", events=events)
    assert str(error.value) == (
        "system four: field time: node 1 is maintained until 55 already "
        "(found 50); write one window for both, or a later time"
    )


def test_windows_of_a_system_are_read_and_written_back(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    head = 'resources = ["core"]\ngroups = [{name = "g", nodes = 2, capacity = [4]}]\n'
    file.write_text(head + "[[maintenance]]\nfrom_s = 50\nlength_s = 10\nevery_s = 100\n")
    system = find(str(file))
    assert system.maintenance == (Maintenance(50, 10, every_s=100),)
    assert system_as_dict(system)["maintenance"] == [
        {"from_s": 50, "length_s": 10, "nodes": "all", "every_s": 100}
    ]
    for wrong, words in (
        ("from_s = -1\nlength_s = 10", ("maintenance[0].from_s", "-1", "0 or more")),
        ("from_s = 0\nlength_s = 0", ("maintenance[0].length_s", "1 or more")),
        ("from_s = 0\nlength_s = 10\nevery_s = 10", ("maintenance[0].every_s", "11 or more")),
        ('from_s = 0\nlength_s = 10\nnodes = "h"', ("maintenance[0]", "no such node or group")),
    ):
        file.write_text(f"{head}[[maintenance]]\n{wrong}\n")
        with pytest.raises(InputError) as caught:
            find(str(file))
        for word in (*words, "s.toml"):
            assert word in str(caught.value)
