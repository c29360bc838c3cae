"""Nodes that are switched off when nothing runs, and on when jobs wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.energy import POWER_CAP, Steps
from cpdispatch.errors import InterruptedRunError, UsageError
from cpdispatch.events import Events, Row, WindowRow
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, Watch, simulate
from cpdispatch.simulator.replay import finished
from cpdispatch.system import Limit, NodeGroup, System
from cpdispatch.verify import Kind
from tests.effort import examples
from tests.simulator.cases import on_nodes, two_nodes, workload
from tests.strategies import systems, workloads

FOUR = System(
    "four", ("core",), (NodeGroup("node", 4, (1,)),), watts={"core": 10}, idle_watts={"node": 6},
    off_watts={"node": 1}, wake_s={"node": 30},
)  # fmt: skip


def run(rows: list[tuple[int, int, int, int]], dispatcher: str = "easy", **how: Any) -> Run:
    made = simulate(workload(rows), FOUR, dispatcher, switch_off_s=100, **how)
    assert made.verify() == []
    return made


def spells(made: Run) -> list[tuple[int, ...]]:
    assert made.switched_table is not None
    return [tuple(row.values()) for row in made.switched_table.to_pylist()]


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_idle_nodes_go_off_and_come_back_for_the_job_that_waits(trigger: str) -> None:
    made = run([(0, 1, 200, 200), (500, 2, 50, 50)], trigger=trigger)
    # The nodes 1 to 3 are idle from the first second on, node 0 from 200 on.
    assert spells(made) == [
        (1, 100, 500, 530),
        (2, 100, -1, -1),
        (3, 100, -1, -1),
        (0, 300, 500, 530),
    ]
    assert made.jobs["start"].tolist() == [0, 530]
    idle_j = 4 * 6 * 580 - 5 * (400 + 480 + 480 + 200)
    assert made.metrics["energy_idle_kwh"] * 3_600_000 == pytest.approx(idle_j)
    assert made.metrics["energy_jobs_kwh"] * 3_600_000 == pytest.approx(10 * (200 + 100))
    assert made.metrics["nodes_off_h"] * 3600 == pytest.approx(400 + 480 + 480 + 200)
    assert made.metrics["power_w_max"] == 24 + 10


def test_nodes_are_idle_from_the_first_submission_on_also_where_one_was_repaired_before() -> None:
    rows = [(1000, 1, 10, 10), (5000, 2, 10, 10)]
    before = Events(("case.csv",), (Row(2, 0, "fail", "0"), Row(3, 100, "repair", "0")))
    made, quiet = run(rows, events=before), run(rows)
    assert spells(made) == spells(quiet)
    assert spells(made)[0] == (1, 1100, 5000, 5030)
    assert made.metrics["energy_idle_kwh"] == quiet.metrics["energy_idle_kwh"] > 0


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_job_that_comes_as_nodes_are_back_keeps_no_other_waiting(trigger: str) -> None:
    made = run([(0, 1, 200, 200), (500, 2, 50, 50), (530, 4, 50, 50)], trigger=trigger)
    assert made.jobs["start"].tolist()[:2] == [0, 530]
    assert made.jobs["start"].tolist()[2] > 530


def test_no_node_goes_off_while_a_job_waits() -> None:
    made = run([(0, 1, 300, 300), (10, 4, 50, 50)])
    assert spells(made) == []
    assert made.jobs["start"].tolist() == [0, 300]


def test_nodes_go_off_when_the_last_job_that_waits_is_given_up() -> None:
    """At 50 the cap falls below what job 1 draws, which kept nodes on and job 2 behind a limit."""
    system = replace(FOUR, idle_watts={}, off_watts={}, wake_s={"node": 5}, limits=(Limit(most=1),))
    cap = Steps(POWER_CAP, (0, 50), (1000, 15))
    case = workload([(0, 4, 100, 100), (40, 1, 20, 20)]), replace(system, watts={"core": 11})
    for trigger in ("instant", "event"):
        made = simulate(*case, "easy", power_cap=cap, switch_off_s=10, trigger=trigger)
        assert made.verify() == []
        assert made.decisions["time"].is_monotonic_increasing
        assert made.jobs["start"].tolist()[0] == -1
        assert made.jobs["start"].tolist()[1] >= 50


def test_a_wide_job_is_not_overtaken_because_nodes_are_off() -> None:
    rows = [(0, 2, 400, 400), (200, 4, 50, 50), (210, 2, 400, 400)]
    for dispatcher in ("easy", "conservative", "fifo", "hcp:limit=0.05"):
        made = run(rows, dispatcher)
        assert spells(made)[0][2] == 200
        assert made.jobs["start"].tolist()[1] == 400, dispatcher


AWAKE = two_nodes(watts={"core": 10}, idle_watts={"thin": 50}, wake_s={"thin": 60})


def test_nodes_are_woken_for_a_job_whose_units_are_spread() -> None:
    jobs, system = on_nodes(
        AWAKE, submit=[0, 1000], runtime=[10, 50], units=[1, 2], units_per_node_max=[0, 1]
    )
    made = simulate(jobs, system, "easy", switch_off_s=100)
    assert made.jobs["start"].tolist() == [0, 1060]
    assert made.verify() == []


def test_a_node_is_woken_for_a_job_that_a_window_to_come_keeps_off_the_free_one() -> None:
    jobs, system = on_nodes(
        AWAKE, submit=[0, 1000], runtime=[3000, 5000], requested=[3000, 5000], units=[1, 2]
    )
    window = WindowRow(2, 4000, "maintain", "0", until_s=100_000, known_s=0)
    made = simulate(jobs, system, "easy", switch_off_s=100, events=Events(("test",), (window,)))
    assert made.jobs["start"].tolist() == [0, 1060]
    assert made.verify() == []


def test_what_is_known_of_a_run_is_kept_and_checked(tmp_path: Path) -> None:
    made = run([(0, 1, 200, 200), (500, 2, 50, 50)])
    finished(made, tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.verify() == []
    assert spells(loaded) == spells(made)
    assert loaded.metrics["nodes_off_h"] == made.metrics["nodes_off_h"]
    table = made.switched_table
    assert table is not None
    for column, value in (("off", 90), ("wake", 510), ("on", 531), ("wake", 90), ("node", 9)):
        column_of = table.column(column).to_pylist()
        column_of[0] = value
        poked = table.set_column(table.column_names.index(column), column, pa.array(column_of))
        found = replace(made, switched_table=poked).verify()
        assert found, column
        assert {violation.kind for violation in found} <= {Kind.DOWN, Kind.NODE}
    about = made.about | {"system": made.about["system"] | {"wake_s": {}}}
    assert replace(made, about=about).verify()
    assert replace(made, about=made.about | {"switch_off_s": 101}).verify()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System]:
    system = draw(systems())
    names = [group.name for group in system.groups]
    wake_s = {name: draw(st.integers(1, 12)) for name in names if draw(st.booleans())}
    system = replace(
        system, watts={system.resources[0]: 3}, idle_watts=dict.fromkeys(names, 2),
        wake_s=wake_s or {names[0]: draw(st.integers(1, 12))},
    )  # fmt: skip
    return draw(workloads(system)), system


@settings(max_examples=examples(100), deadline=None)
@given(
    cases(),
    st.sampled_from(["easy", "easy-spf-saf", "conservative", "sjf", "prb", "best", "hcp:cp=off"]),
    st.sampled_from(["instant", "event"]),
    st.integers(1, 20),
    st.data(),
)
def test_every_job_that_fits_runs_and_no_node_is_used_while_it_is_off(
    case: tuple[Workload, System], name: str, trigger: str, idle_s: int, data: st.DataObject
) -> None:
    log, system = case
    events, cap = None, None
    if data.draw(st.booleans()):
        rows = [(10, "fail"), (25, "repair"), (30, "drain"), (45, "undrain")]
        node = str(data.draw(st.integers(0, system.nodes - 1)))
        events = Events(
            ("case.csv",), tuple(Row(k, at, kind, node) for k, (at, kind) in enumerate(rows))
        )
    if data.draw(st.booleans()):
        cap = system.idle_total + int(system.total[0]) * 3
    made = simulate(
        log, system, name, predictor="walltime", trigger=trigger, switch_off_s=idle_s,
        events=events, power_cap=cap, kill_at_limit=True,
    )  # fmt: skip
    assert made.verify() == []
    left = made.jobs[made.jobs["end"] < 0]
    assert (left["reason"] == "never_fits").all()


@pytest.mark.parametrize("decisions", [2, 12, 30])
def test_a_run_is_resumed_to_the_same_bytes(tmp_path: Path, decisions: int) -> None:
    log = workload([(150 * k, 1 + k % 4, 100, 20 + 31 * k % 90) for k in range(40)])
    whole = simulate(log, FOUR, "easy", switch_off_s=60)
    finished(whole, tmp_path / "whole")
    count = iter(range(decisions))
    folder = tmp_path / "parts"
    stopped = Watch(folder=folder, stop=lambda: next(count, None) is None)
    with pytest.raises(InterruptedRunError):
        simulate(log, FOUR, "easy", switch_off_s=60, watch=stopped)
    again = Watch(folder=folder, resume=True)
    with pytest.raises(UsageError, match="its switch off is 60, not 61"):
        simulate(log, FOUR, "easy", switch_off_s=61, watch=again)
    finished(simulate(log, FOUR, "easy", switch_off_s=60, watch=again), folder)
    assert len(spells(whole)) > 20
    for name in ("jobs.parquet", "switched.parquet"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_what_cannot_be_is_refused() -> None:
    log = workload([(0, 1, 10, 10)])
    with pytest.raises(UsageError, match="add wake_s to its file"):
        simulate(log, replace(FOUR, wake_s={}), switch_off_s=60)
    for idle_s in (-1, 0, 1.5, float("nan"), "5", True):
        with pytest.raises(UsageError, match=r"^switch_off_s .*: a whole number of seconds, 1 or"):
            simulate(log, FOUR, switch_off_s=idle_s)  # type: ignore[arg-type]
    for how in ({"idempotent": True}, {"restart_cost_s": 5}):
        with pytest.raises(UsageError, match="switch_off_s excludes"):
            simulate(log, FOUR, switch_off_s=60, **how)
    with pytest.raises(UsageError, match="makes test runs"):
        simulate(log, FOUR, "easy:test=120", switch_off_s=60)
