"""Caps on what a system draws, the price of energy, and what is told of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import cli, energy, verify
from cpdispatch.dispatch import make, not_at_all
from cpdispatch.energy import ENERGY_PRICE, POWER_CAP, Steps
from cpdispatch.errors import CpdispatchError, InputError, UsageError
from cpdispatch.events import Events
from cpdispatch.events import Row as EventRow
from cpdispatch.instance import Instance
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, simulate
from cpdispatch.simulator.simulation import OVER_CAP, Simulation
from cpdispatch.system import Limit, NodeGroup, System, SystemFile, find, from_file, system_as_dict
from cpdispatch.verify import Kind
from cpdispatch.workloads import prepare
from cpdispatch.workloads.table import from_table
from tests.effort import examples
from tests.simulator.cases import Row, on_nodes, two_nodes, workload
from tests.strategies import systems, workloads

FOUR = System(
    "four", ("core",), (NodeGroup("node", 4, (1,)),), watts={"core": 10}, idle_watts={"node": 5}
)
IDLE = 20


def cap(*steps: tuple[int, float]) -> Steps:
    times, values = zip(*steps, strict=True)
    return Steps(POWER_CAP, times, values)


def price(*steps: tuple[int, float]) -> Steps:
    times, values = zip(*steps, strict=True)
    return Steps(ENERGY_PRICE, times, values)


def starts(run: Run) -> list[int]:
    return list(run.jobs["start"])


def drawn_at(run: Run, second: int) -> int:
    """What jobs and idle nodes draw at a second, counted one by one."""
    system, total = run.system, 0
    for job in run.jobs.to_dict("records"):
        if job["start"] >= 0 and job["start"] <= second < job["end"]:
            for node, units in zip(job["nodes"], job["node_units"], strict=True):
                here = system.group_watts.get(system.groups[system.group_of[node]].site_name, {})
                for name in system.resources:
                    watts = here.get(name, system.watts.get(name, 0))
                    total += units * job[f"request_{name}"] * watts
    return total + sum(g.nodes * system.idle_watts.get(g.name, 0) for g in system.groups)


# ----------------------------------------------------------------------------- keeping a cap


ONE_HOUR_EACH: list[Row] = [(0, 1, 100, 100), (0, 1, 100, 100), (0, 1, 100, 100)]


def test_a_cap_holds_back_what_would_fit_the_nodes() -> None:
    free = simulate(workload(ONE_HOUR_EACH), FOUR, "easy")
    assert starts(free) == [0, 0, 0]
    run = simulate(workload(ONE_HOUR_EACH), FOUR, "easy", power_cap=IDLE + 20)
    assert starts(run) == [0, 0, 100]
    assert run.verify() == []
    assert run.about[POWER_CAP] == [[0, IDLE + 20]]
    assert not run.about["compiled"]


@pytest.mark.parametrize("name", ["easy", "conservative", "sjf", "fifo", "hcp:cp=off"])
def test_no_job_starts_that_could_live_to_see_a_cap_too_low_for_it(name: str) -> None:
    rows = [(0, 2, 60, 60), (0, 2, 40, 40)]
    given = cap((0, IDLE + 40), (50, IDLE + 20), (200, IDLE + 40))
    run = simulate(workload(rows), FOUR, name, power_cap=given)
    # The first may run until 60, and the least cap until then leaves room for one of the two.
    assert max(drawn_at(run, second) for second in range(50, 200)) == IDLE + 20
    assert sorted(starts(run)) in ([0, 40], [0, 60])
    assert run.verify() == []


def test_jobs_start_when_the_cap_rises_though_nothing_else_happens() -> None:
    run = simulate(
        workload([(0, 4, 30, 30)]), FOUR, "easy", power_cap=cap((0, IDLE + 10), (500, IDLE + 40))
    )
    assert starts(run) == [500]
    assert run.verify() == []


def test_a_job_that_draws_more_than_any_cap_never_runs_and_is_counted() -> None:
    run = simulate(workload([(0, 4, 9, 9), (0, 1, 9, 9)]), FOUR, "easy", power_cap=IDLE + 30)
    assert starts(run) == [-1, 0]
    assert run.about["notes"][OVER_CAP] == 1
    assert run.verify() == []


def test_a_job_for_which_the_cap_stays_too_low_to_the_end_is_left_waiting() -> None:
    given = cap((0, IDLE + 40), (10, IDLE + 20))
    run = simulate(workload([(20, 4, 9, 9), (20, 1, 9, 9)]), FOUR, "sjf", power_cap=given)
    assert starts(run) == [-1, 20]
    assert run.verify() == []


@st.composite
def powered(draw: st.DrawFn) -> tuple[System, Workload, Steps]:
    """A system that says what it draws, jobs that crowd it, and a cap that changes."""
    system = draw(systems())
    watts = {name: draw(st.integers(0, 4)) for name in system.resources} | {
        system.resources[0]: draw(st.integers(1, 4))
    }
    idle = {group.name: draw(st.integers(0, 3)) for group in system.groups}
    here = {
        group.name: {
            name: draw(st.integers(0, 6)) for name in system.resources if draw(st.booleans())
        }
        for group in system.groups
        if draw(st.booleans())
    }
    system = replace(system, watts=watts, idle_watts=idle, group_watts=here)
    most = int(system.total @ np.array(system.unit_watts))
    times = sorted({0, *draw(st.lists(st.integers(1, 60), max_size=4))})
    values = [system.idle_total + draw(st.integers(most // 4, most)) for _ in times]
    return system, draw(workloads(system, max_jobs=12)), cap(*zip(times, values, strict=True))


@settings(max_examples=examples(100))
@given(
    powered(),
    st.sampled_from(["easy", "easy-saf-spf", "conservative", "sjf", "fifo", "prb", "hcp:cp=off"]),
    st.sampled_from(["instant", "event"]),
)
def test_no_dispatcher_exceeds_a_cap_at_any_second(
    case: tuple[System, Workload, Steps], name: str, trigger: str
) -> None:
    system, jobs, given = case
    made = make(name, warm=not_at_all)
    run = simulate(jobs, system, made, trigger=trigger, kill_at_limit=True, power_cap=given)
    for second in range(int(run.jobs["end"].max()) + 1):
        assert drawn_at(run, second) <= given.at(second)
    assert run.verify() == []


KINDS = System(
    "kinds", ("core", "gpu"), (NodeGroup("old", 2, (4, 1)), NodeGroup("new", 2, (4, 1))),
    watts={"core": 1, "gpu": 10}, idle_watts={"old": 2, "new": 3}, group_watts={"new": {"gpu": 40}},
)  # fmt: skip


def test_the_last_cap_says_who_could_have_run() -> None:
    jobs, system = on_nodes(two_nodes(watts={"core": 10}), submit=[0, 20], runtime=5, units=[1, 8])
    run = simulate(jobs, system, "easy", power_cap=cap((0, 15), (40, 500)), kill_at_limit=True)
    assert starts(run) == [0, 40]
    assert run.verify() == []
    left_out = run.jobs.assign(
        start=[0, -1], end=[5, -1], nodes=[[0], []], node_units=[[1], []],
        reason=["started", "never_fits"],
    )  # fmt: skip
    (found,) = verify.run(left_out, system, power_cap=run.about[POWER_CAP])
    assert found.kind == Kind.NEVER_STARTED


def test_a_job_that_waits_for_a_node_keeps_others_back_under_a_cap_that_rises() -> None:
    jobs, system = on_nodes(
        two_nodes(watts={"core": 10}), submit=[0, 20, 30], runtime=5, units=[1, 8, 1]
    )
    gone = Events(("test",), (EventRow(2, 10, "fail", "0"),))
    steps = cap((0, 15), (40, 500))
    run = simulate(jobs, system, "fifo", events=gone, kill_at_limit=True, power_cap=steps)
    assert starts(run) == [0, -1, -1]
    assert run.verify() == []


def test_explain_where_no_job_ran_under_a_cap() -> None:
    jobs, system = on_nodes(two_nodes(watts={"core": 10}), submit=[0], runtime=5, units=[1])
    found = simulate(jobs, system, "reject", power_cap=500).explain(1)
    assert found.reason == "rejected"


def test_a_gpu_draws_what_its_group_says() -> None:
    assert KINDS.unit_watts == (1, 40)
    columns = {"id": [1, 2, 3], "submit": [0, 0, 0], "runtime": [10, 10, 10], "units": [1, 1, 2]}
    columns |= {"core": [1, 1, 4], "gpu": [1, 1, 1]}
    jobs, _ = prepare(from_table({name: np.array(of) for name, of in columns.items()}), KINDS)
    run = simulate(jobs, KINDS, "easy")
    # The first two hold the old GPUs, the third the new ones.
    assert run.jobs["energy_j"].tolist() == [110, 110, 10 * 2 * (4 + 40)]
    assert run.metrics["power_w_max"] == 10 + 22 + 88
    assert run.verify() == []
    # A job that has not started counts as if it were on new nodes, one that runs as it is.
    capped = simulate(jobs, KINDS, "easy", power_cap=10 + 88)
    assert starts(capped) == [0, 0, 10]
    assert capped.verify() == []
    tight = simulate(jobs, KINDS, "easy", power_cap=10 + 87)
    assert starts(tight) == [0, 0, -1]
    assert tight.verify() == []
    (found,) = verify.run(run.jobs, KINDS, power_cap=[[0, 10 + 109]])
    assert found.text.startswith("120 W are drawn at 0, 119 W are allowed")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"group_watts": {"fat": {"core": 1}}}, "group_watts.fat: no such group"),
        ({"group_watts": {"old": {"cor": 1}}}, "group_watts.old.cor: no such resource type"),
        ({"group_watts": {"old": {"core": -1}}}, "group_watts.old.core: must be 0 or more"),
        ({"watts": {}}, "group_watts: it is not stated what a unit draws elsewhere"),
        ({"off_watts": {"old": 3}}, "off_watts.old: more than the 2 W of an idle node"),
        ({"wake_s": {"old": 0}}, "wake_s.old: must be 1 or more"),
    ],
)
def test_wrong_watts_of_groups_are_one_clear_error(what: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        replace(KINDS, **what)  # type: ignore[arg-type]


def test_watts_of_groups_are_kept_in_a_file() -> None:
    whole = replace(KINDS, off_watts={"old": 1}, wake_s={"new": 60})
    assert system_as_dict(from_file(msgspec.convert(system_as_dict(whole), SystemFile))) == (
        system_as_dict(whole)
    )


def test_another_energy_than_what_a_job_drew_is_told() -> None:
    run = simulate(workload(ONE_HOUR_EACH), FOUR, "easy")
    assert verify.run(run.jobs, FOUR) == []
    drew_j = run.jobs["energy_j"].to_numpy()
    (found,) = verify.run(run.jobs.assign(energy_j=[*drew_j[:-1], drew_j[-1] + 1]), FOUR)
    assert found.kind == Kind.ENERGY
    assert found.text == f"job 3 drew {drew_j[-1]} J, {drew_j[-1] + 1} J are stated"


def test_a_schedule_above_the_cap_is_told_with_its_jobs() -> None:
    run = simulate(workload(ONE_HOUR_EACH), FOUR, "easy", power_cap=IDLE + 20)
    jobs = run.jobs.assign(start=[0, 0, 50], end=[100, 100, 150], nodes=[[0], [1], [2]])
    (found,) = verify.run(jobs, FOUR, power_cap=[[0, IDLE + 20]])
    assert found.kind == Kind.POWER
    assert found.text == "50 W are drawn at 50, 40 W are allowed: jobs 1, 2, 3"
    (later,) = verify.run(run.jobs, FOUR, power_cap=[[0, IDLE + 20], [60, IDLE + 10]])
    assert "40 W are drawn at 60, 30 W are allowed" in later.text
    left_out = run.jobs.assign(
        start=[0, 0, -1], end=[100, 100, -1], nodes=[[0], [1], []], node_units=[[1], [1], []]
    )
    (waits,) = verify.run(left_out, FOUR, power_cap=[[0, IDLE + 20]])
    assert waits.kind == Kind.NEVER_STARTED


# ------------------------------------------------------------------------- what dispatchers see


class Greedy:
    """EASY that remembers the instances."""

    name = "greedy"

    def __init__(self) -> None:
        self.inner, self.seen = make("easy", warm=not_at_all), list[Instance]()

    def dispatch(self, instance: Instance):  # type: ignore[no-untyped-def]
        self.seen.append(instance)
        return self.inner.dispatch(instance)


def test_instances_tell_what_jobs_may_draw_and_the_cap_and_the_price_of_now() -> None:
    given = cap((0, IDLE + 40), (50, IDLE + 20), (70, IDLE + 30))
    own = Greedy()
    rows = [(0, 1, 40, 40), (5, 1, 60, 60)]
    simulate(workload(rows), FOUR, own, power_cap=given, energy_price=price((0, 0.5), (60, 0.25)))
    first, second = own.seen[:2]
    assert first.power is not None
    assert second.power is not None
    assert (first.power.cap, first.power.unit) == (40, (10,))  # it ends at 40 at the latest
    assert second.power.cap == 20  # until 65 the least is that from 50 on
    assert first.data == {POWER_CAP: IDLE + 40, ENERGY_PRICE: 0.5}


def test_a_price_changes_no_schedule_and_keeps_a_replay_compiled() -> None:
    free = simulate(workload(ONE_HOUR_EACH), FOUR, "easy")
    run = simulate(workload(ONE_HOUR_EACH), FOUR, "easy", energy_price=0.2)
    assert run.about["compiled"]
    assert starts(run) == starts(free)
    assert run.metrics["energy_cost"] == pytest.approx(run.metrics["energy_kwh"] * 0.2)


def test_a_price_that_changes_is_a_decision_for_a_dispatcher_of_ones_own_alone() -> None:
    case = workload([(0, 3, 100, 100), (1, 1, 200, 200), (3, 4, 10, 10)]), FOUR
    rule, steps = "easy-spf-spf:threshold=10", price((0, 0.1), (20, 0.2))
    free = simulate(*case, rule)
    for compiled in (True, False):
        run = simulate(*case, rule, energy_price=steps, compiled=compiled)
        assert run.verify() == []
        assert run.jobs["start"].tolist() == free.jobs["start"].tolist()
        assert run.decisions["time"].tolist() == free.decisions["time"].tolist()
    own = Greedy()
    simulate(*case, own, energy_price=steps)
    assert {seen.now: seen.data[ENERGY_PRICE] for seen in own.seen}[20] == 0.2


# ------------------------------------------------------------------------------------- figures


def test_energy_and_its_cost_are_watts_times_seconds() -> None:
    rows = [(0, 2, 100, 100), (0, 1, 50, 50), (200, 1, 100, 100)]
    run = simulate(
        workload(rows), FOUR, "easy", power_cap=cap((0, 60), (120, 50)),
        energy_price=price((0, 3600.0), (250, 7200.0)),
    )  # fmt: skip
    assert starts(run) == [0, 0, 200]
    assert list(run.jobs["energy_j"]) == [2_000, 500, 1_000]
    found = run.metrics
    idle_j, jobs_j = IDLE * 300, 3_500
    assert found["energy_jobs_kwh"] == pytest.approx(jobs_j / 3.6e6)
    assert found["energy_idle_kwh"] == pytest.approx(idle_j / 3.6e6)
    assert found["energy_kwh"] == pytest.approx((idle_j + jobs_j) / 3.6e6)
    assert found["power_w_max"] == IDLE + 30
    assert found["power_w_mean"] == pytest.approx((idle_j + jobs_j) / 300)
    assert found["near_power_cap_s"] == 0  # 50 of 60 W, later 30 of 50 W
    early_j, late_j = IDLE * 250 + 3_000, IDLE * 50 + 500
    assert found["energy_cost"] == pytest.approx((early_j + 2 * late_j) / 1000)
    assert run.verify() == []


def test_seconds_near_the_cap_are_counted() -> None:
    run = simulate(workload(ONE_HOUR_EACH), FOUR, "easy", power_cap=IDLE + 21)
    assert run.metrics["near_power_cap_s"] == 100  # 40 of 41 W; then 30


def test_attempts_that_were_lost_count(tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    events.write_text("time,kind,nodes\n30,fail,0\n40,repair,0\n")
    run = simulate(workload([(0, 4, 100, 100)]), FOUR, "easy", events=str(events))
    assert starts(run) == [40]
    assert list(run.jobs["energy_j"]) == [40 * 130]
    assert run.metrics["energy_jobs_kwh"] == pytest.approx(40 * 130 / 3.6e6)


def test_a_system_that_does_not_say_what_it_draws_has_no_energy() -> None:
    run = simulate(workload(ONE_HOUR_EACH), System.pool(4), "easy")
    assert not any("energy" in name or "power" in name for name in run.metrics)
    assert "energy_j" not in run.jobs.columns


def test_a_run_tells_its_cap_again_when_it_is_loaded(tmp_path: Path) -> None:
    given = cap((0, IDLE + 20), (70, IDLE + 30))
    run = simulate(
        workload(ONE_HOUR_EACH), FOUR, "easy", power_cap=given, energy_price=price((0, 1.5))
    )
    run.save(tmp_path)
    again = Run.load(tmp_path)
    assert again.metrics == run.metrics
    assert again.verify() == []
    assert energy.of_told(POWER_CAP, again.about[POWER_CAP]) == given


# -------------------------------------------------------------------------------------- inputs


def test_steps_hold_from_their_times_on() -> None:
    steps = cap((10, 3), (20, 1), (30, 2))
    assert [steps.at(now) for now in (0, 10, 19, 20, 30, 99)] == [3, 3, 3, 1, 2, 2]
    assert [steps.least(0, until) for until in (20, 21)] == [3, 1]
    assert [steps.least(now, 99) for now in (20, 29, 30)] == [1, 1, 2]
    assert [steps.next_s(now) for now in (0, 10, 20, 30)] == [20, 20, 30, None]


@pytest.mark.parametrize(
    ("content", "line", "field", "said"),
    [
        ("when,watts\n0,5\n", 1, None, "not the columns"),
        ("time,watts\n0,5\nx,7\n", 3, "time", "not a whole number"),
        ("time,watts\n0,5.5\n", 2, "watts", "not a whole number"),
        ("time,watts\n0,-5\n", 2, "watts", "0 or more"),
        ("time,watts\n0,5\n0,6\n", 3, "time", "not after"),
        ("time,watts\n0,5,6\n", 2, None, "3 cells"),
        ("time,watts\n", None, None, "no row"),
        ('time,watts\n0,"5\n', 2, None, "not CSV"),
    ],
)
def test_a_file_of_caps_is_read_or_told_where_it_is_wrong(
    tmp_path: Path, content: str, line: int | None, field: str | None, said: str
) -> None:
    path = tmp_path / "cap.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        energy.power_cap(str(path))
    assert (caught.value.line, caught.value.field) == (line, field)


def test_steps_that_change_nothing_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "price.csv"
    path.write_text("time,price\n0,0.25\n\n60,0.25\n90,0.5\n")
    assert energy.energy_price(str(path)) == price((0, 0.25), (90, 0.5))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"power_cap": "lots"}, "--power-cap lots: not a whole number"),
        ({"power_cap": -1}, "0 or more"),
        ({"energy_price": "nan"}, "0 or more"),
        ({"energy_price": ""}, "--energy-price : not a number; write a number, or name"),
        ({"power_cap": IDLE - 1}, "less than the 20 W that the idle nodes"),
        ({"power_cap": 50, "restart_cost_s": 5}, "excludes idempotent and restart_cost_s"),
    ],
)
def test_what_cannot_be_kept_is_refused(given: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        simulate(workload(ONE_HOUR_EACH), FOUR, "easy", **given)  # type: ignore[arg-type]


def test_a_cap_needs_a_system_that_says_what_it_draws() -> None:
    with pytest.raises(UsageError, match=r"add watts to its file, as watts = \{core = 10\}"):
        simulate(workload(ONE_HOUR_EACH), System.pool(4), "easy", power_cap=100)


def test_a_price_needs_a_system_that_draws_something() -> None:
    with pytest.raises(UsageError, match=r"add watts to its file, as watts = \{core = 10\}"):
        simulate(workload(ONE_HOUR_EACH), System.pool(4), "easy", energy_price=0.2)


@pytest.mark.parametrize("read", [energy.power_cap, energy.energy_price])
def test_a_file_that_is_not_there_is_called_that(read: Callable[[str], Steps]) -> None:
    with pytest.raises(InputError, match=r"^none\.csv: no such file$"):
        read("none.csv")


def test_a_changing_cap_needs_jobs_that_end_at_their_limit() -> None:
    rows, steps = [(0, 1, 10, 20)], cap((0, 60), (15, 30))
    with pytest.raises(UsageError, match="1 jobs of case run longer than they request"):
        Simulation(workload(rows), FOUR, power_cap=steps)
    assert Simulation(workload(rows), FOUR, power_cap=steps, kill_at_limit=True).advance()
    assert Simulation(workload(rows), FOUR, power_cap=cap((0, 60))).advance()


def test_no_job_is_tested_under_a_cap() -> None:
    with pytest.raises(UsageError, match="there are not under a power cap"):
        simulate(workload(ONE_HOUR_EACH), FOUR, "easy:test=5", power_cap=60)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"watts": {"cor": 1}}, "no such resource type"),
        ({"watts": {"core": -1}}, "0 or more"),
        ({"idle_watts": {"nod": 1}}, "no such group"),
    ],
)
def test_a_system_says_what_it_has(change: dict[str, dict[str, int]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(FOUR, **change)  # type: ignore[arg-type]


def test_a_system_file_keeps_what_it_draws(tmp_path: Path) -> None:
    import msgspec

    from cpdispatch.system import SystemFile

    told = system_as_dict(FOUR)
    assert (told["watts"], told["idle_watts"]) == ({"core": 10}, {"node": 5})
    path = tmp_path / "four.json"
    path.write_bytes(msgspec.json.encode(told))
    read = find(str(path))
    assert (read.unit_watts, read.idle_total) == ((10,), IDLE)
    assert from_file(msgspec.convert(told, SystemFile)).idle_total == IDLE


def test_the_command_tells_energy_and_keeps_the_cap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system, jobs = tmp_path / "four.toml", tmp_path / "jobs.csv"
    system.write_text(
        'resources = ["core"]\ngroups = [{name = "node", nodes = 4, capacity = [1]}]\n'
        "watts = {core = 10}\nidle_watts = {node = 5}\n"
    )
    rows = "".join(f"{k},0,3600,3600,1,1\n" for k in range(1, 4))
    jobs.write_text("id,submit,runtime,requested,units,core\n" + rows)
    out = tmp_path / "out"
    arguments = ["simulate", str(jobs), "--system", str(system), "--out", str(out)]
    assert cli.run([*arguments, "--power-cap", "40", "--energy-price", "1000"]) == 0
    shown = capsys.readouterr().out
    assert "highest power, kW" in shown
    assert "within 5% of the cap" in shown
    assert cli.run(["verify", "--run", str(out)]) == 0
    capsys.readouterr()
    assert cli.run(["explain", str(out), "--job", "3"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the power cap: less was left than the 10 W that it draws" in told
    with pytest.raises(CpdispatchError, match="another run"):
        simulate_again(jobs, system, out)


def test_a_job_behind_a_limit_waits_for_the_limit_and_only_then_for_power() -> None:
    # Jobs 1 and 2 fill the limit until 50. From then on there is power for one job until 100.
    log = workload([(0, 1, 100, 100), (0, 1, 50, 50), (0, 2, 10, 10)])
    run = simulate(log, replace(FOUR, limits=(Limit(2),)), "easy", power_cap=IDLE + 20)
    assert starts(run) == [0, 0, 100]
    why = ("at most 2 jobs", "the power cap: less was left than the 20 W that it draws")
    told = [(s.from_s, s.until_s, s.lacking) for s in run.explain(3).stretches]
    assert told == [(0, 50, why[:1]), (50, 100, why[1:])]
    for at_s, lacking in ((20, why[:1]), (70, why[1:])):
        assert [each.lacking for each in run.moment(at_s).waiting] == [lacking]


def test_a_wait_for_power_is_told_as_one() -> None:
    # Power for two jobs at a time until 150, and for one from then on, which job 2 would live to
    # see if it started when job 3 ends.
    rows = [(0, 1, 100, 100), (0, 1, 120, 120), (0, 1, 60, 60), (0, 4, 9, 9)]
    given = cap((0, IDLE + 20), (150, IDLE + 10))
    run = simulate(workload(rows), FOUR, "sjf", power_cap=given)
    assert starts(run) == [0, 100, 0, -1]
    (stretch,) = run.explain(2).stretches
    assert (stretch.cause, stretch.from_s, stretch.until_s) == ("limit", 0, 100)
    assert stretch.lacking == ("the power cap: less was left than the 10 W that it draws",)
    assert run.explain(3).stretches == ()
    waiting = {each.job: (each.cause, each.lacking) for each in run.moment(70).waiting}
    assert waiting[2] == ("limit", stretch.lacking)
    free = simulate(workload(rows[:2]), FOUR, "sjf", power_cap=IDLE + 40)
    assert free.explain(1).stretches == ()


def test_a_cap_to_come_that_a_longer_request_would_live_to_see_held_a_job_back() -> None:
    # Power for two jobs until 150, and for one from then on. Job 3 would have ended long before,
    # but as long as job 2 is queued, what starts must leave room until 300.
    rows = [(0, 1, 100, 100), (0, 1, 300, 300), (1, 1, 20, 20)]
    given = cap((0, IDLE + 20), (150, IDLE + 10))
    run = simulate(workload(rows), FOUR, "easy", power_cap=given)
    assert starts(run) == [0, 100, 400]
    told = [(s.from_s, s.until_s, s.cause, s.lacking) for s in run.explain(3).stretches]
    left = "less was left than the 10 W that it draws"
    assert told == [
        (1, 131, "limit", (f"the power cap to come: {left}",)),
        (131, 400, "limit", (f"the power cap: {left}",)),
    ]


def simulate_again(jobs: Path, system: Path, out: Path) -> None:
    """Go on with a run in a folder, under another cap."""
    from cpdispatch.simulator import Watch
    from cpdispatch.workloads import prepare

    fitted, machine = prepare(jobs, find(str(system)))
    watch = Watch(folder=out, resume=True)
    simulate(fitted, machine, "easy", power_cap=50, energy_price=1000, watch=watch)
