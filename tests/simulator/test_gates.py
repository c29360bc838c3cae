"""Limits: what may run at once, in replays by either loop, and what `verify` says of it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import cli, verify
from cpdispatch.compiled.gates import Claims, come, gate_of, give_back, let_pass
from cpdispatch.compiled.replay import Replays
from cpdispatch.errors import InputError, UsageError
from cpdispatch.events import FAIL, REPAIR, Events, Row
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.jobs import Workload
from cpdispatch.learn.measure import Meter
from cpdispatch.predict import make
from cpdispatch.simulator.compiled import CompiledSimulation
from cpdispatch.simulator.gates import BEYOND, TOO_MANY_LICENCES
from cpdispatch.simulator.replay import Watch, simulate
from cpdispatch.system import Limit, NodeGroup, System, find, system_as_dict
from cpdispatch.verify.violation import Kind
from cpdispatch.workloads import prepare
from cpdispatch.workloads.table import from_table
from tests.compiled.test_replays import Noisy, backfillings, same
from tests.effort import examples
from tests.oracles.plain_gates import PlainGate, PlainJob, starts
from tests.simulator.cases import on_nodes, two_nodes
from tests.test_bounded import easy_waits

CORES = 8


@st.composite
def jobs(draw: st.DrawFn) -> list[PlainJob]:
    one = st.builds(
        PlainJob,
        submit_s=st.integers(0, 30),
        runtime_s=st.integers(1, 20),
        cores=st.integers(1, CORES),
        user=st.sampled_from(["", "ann", "bob"]),
        queue=st.sampled_from(["short", "long"]),
        partition=st.sampled_from(["", "p", "q", "p,q"]),
    )
    return sorted(draw(st.lists(one, min_size=1, max_size=12)), key=lambda job: job.submit_s)


@st.composite
def some_limits(draw: st.DrawFn) -> tuple[Limit, ...]:
    names = {"user": ["", "ann"], "queue": ["", "long"], "partition": ["", "p"], "": [""]}
    made = []
    for _ in range(draw(st.integers(1, 3))):
        per = draw(st.sampled_from(sorted(names)))
        of = draw(st.sampled_from(["jobs", "core"]))
        most = draw(st.integers(0, 3) if of == "jobs" else st.integers(0, CORES))
        made.append(Limit(most, of, per, draw(st.sampled_from(names[per]))))
    return tuple(made)


def workload_of(jobs: list[PlainJob]) -> Workload:
    frame = pd.DataFrame(
        {
            "id": range(1, len(jobs) + 1),
            "submit": [job.submit_s for job in jobs],
            "runtime": [job.runtime_s for job in jobs],
            "requested": [job.runtime_s + 3 for job in jobs],
            "units": [job.cores for job in jobs],
            "core": 1,
            "user": [job.user for job in jobs],
            "queue": [job.queue for job in jobs],
            "partition": [job.partition for job in jobs],
            "licences": [job.licences for job in jobs],
            "array": [job.array for job in jobs],
            "array_limit": [job.array_limit for job in jobs],
        }
    )
    return from_table(frame)


def limited(*limits: Limit) -> System:
    return replace(System.pool(CORES), limits=limits)


@settings(max_examples=examples(60), deadline=None)
@given(jobs(), some_limits())
def test_starts_are_those_of_the_plain_rule(jobs: list[PlainJob], limits: tuple[Limit, ...]):
    run = simulate(workload_of(jobs), limited(*limits), "fifo")
    assert run.jobs["start"].tolist() == starts(limits, jobs, CORES)
    assert verify.run(run.jobs, run.system) == []


@settings(max_examples=examples(15), deadline=None)
@given(jobs(), some_limits(), st.sampled_from(["easy", "conservative", "sjf", "best"]))
def test_every_dispatcher_keeps_limits(jobs: list[PlainJob], limits: tuple[Limit, ...], name: str):
    for trigger in ("instant",) if name == "best" else ("instant", "event"):
        run = simulate(
            workload_of(jobs), limited(*limits), name, predictor="walltime", trigger=trigger
        )
        assert verify.run(run.jobs, run.system) == []


@settings(max_examples=examples(15), deadline=None)
@given(jobs())
def test_limits_that_never_bind_change_nothing(jobs: list[PlainJob]):
    wide = [Limit(1000, of, per) for of in ("jobs", "core") for per in ("", "user", "queue")]
    free = simulate(workload_of(jobs), System.pool(CORES), "easy")
    kept = simulate(workload_of(jobs), limited(*wide), "easy")
    assert kept.jobs["start"].tolist() == free.jobs["start"].tolist()


TWO = [PlainJob(0, 10, 2, "ann", "short"), PlainJob(0, 10, 2, "ann", "long")]


@pytest.mark.parametrize(
    ("limit", "second"),
    [
        (Limit(1, per="user"), 10),
        (Limit(1, per="user", name="ann"), 10),
        (Limit(1, per="user", name="bob"), 0),
        (Limit(1, per="queue"), 0),
        (Limit(1), 10),
        (Limit(2), 0),
        (Limit(3, "core"), 10),
        (Limit(4, "core"), 0),
    ],
)
def test_limit_holds_a_job_back_or_not(limit: Limit, second: int):
    run = simulate(workload_of(TWO), limited(limit), "easy")
    assert run.jobs["start"].tolist() == [0, second]


def test_smaller_job_passes_one_that_finds_no_room():
    three = [*TWO[:1], PlainJob(1, 10, 3, "ann", ""), PlainJob(2, 10, 1, "ann", "")]
    run = simulate(workload_of(three), limited(Limit(4, "core", "user")), "easy")
    assert run.jobs["start"].tolist() == [0, 10, 2]


def test_job_beyond_a_limit_never_runs_and_is_told():
    run = simulate(workload_of(TWO), limited(Limit(1, "core", "queue", "long")), "easy")
    assert run.jobs["start"].tolist() == [0, -1]
    assert run.jobs["reason"].tolist()[1] == "never_fits"
    assert run.about["notes"][BEYOND] == 1
    assert verify.run(run.jobs, run.system) == []
    # The claim is checked: without the limit the job could have run.
    assert [v.kind for v in verify.run(run.jobs, System.pool(CORES))] == [Kind.NEVER_STARTED]


@pytest.mark.parametrize(
    "limit",
    [Limit(1), Limit(1, per="user"), Limit(1, per="user", name="ann"), Limit(3, "core", "user")],
)
def test_verify_names_what_ran_beyond_a_limit(limit: Limit):
    run = simulate(workload_of(TWO), System.pool(CORES), "easy")
    assert run.jobs["start"].tolist() == [0, 0]
    found = verify.run(run.jobs, limited(limit))
    assert [v.kind for v in found] == [Kind.LIMIT]
    assert "jobs 1, 2" in found[0].text
    assert str(limit) in found[0].text


def test_limits_are_read_from_a_system_file_and_written_back(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(
        'resources = ["core"]\ngroups = [{name = "g", nodes = 2, capacity = [4]}]\n'
        'limits = [{most = 3, of = "core", per = "user"}, {most = 9}]\n'
    )
    system = find(str(file))
    assert system.limits == (Limit(3, "core", "user"), Limit(9))
    assert system_as_dict(system)["limits"] == [
        {"most": 3, "of": "core", "per": "user"},
        {"most": 9, "of": "jobs"},
    ]


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ('{most = 3, of = "gpu"}', ("limits[0].of", "gpu", "core")),
        ('{most = 3, per = "usr"}', ("limits[0].per", "usr", "user")),
        ("{most = -1}", ("limits[0].most", "-1", "0 or more")),
        ('{most = 1, name = "ann"}', ("limits[0].name", "ann", "per")),
        ('{of = "core"}', ("most",)),
    ],
)
def test_wrong_limit_is_named(tmp_path, limit: str, words: tuple[str, ...]):
    file = tmp_path / "s.toml"
    file.write_text(
        'resources = ["core"]\ngroups = [{name = "g", nodes = 2, capacity = [4]}]\n'
        f"limits = [{limit}]\n"
    )
    with pytest.raises(InputError) as error:
        find(str(file))
    for word in (*words, str(file)):
        assert word in str(error.value)


def test_explain_knows_limits_and_replays_that_are_not_told_what_they_mean_refuse_them():
    run = simulate(workload_of(TWO), limited(Limit(1)), "easy")
    assert [stretch.cause for stretch in run.explain(2).stretches] == ["limit"]
    with pytest.raises(UsageError, match="has limits"):
        Replays(workload_of(TWO), limited(Limit(1)))


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_gate_lets_pass_what_a_scan_of_all_jobs_would(data: st.DataObject):
    kinds = data.draw(
        st.lists(
            st.dictionaries(st.integers(0, 2), st.integers(0, 4), max_size=3),
            min_size=1, max_size=4,
        )
    )  # fmt: skip
    kind = data.draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=15))
    capacity = data.draw(st.lists(st.integers(4, 6), min_size=3, max_size=3))
    plain = PlainGate([kinds[k] for k in kind], list(capacity))
    flat = [claim for claims in kinds for claim in claims.items()]
    counter, amount = np.array(flat, dtype=np.int64).reshape(-1, 2).T.copy()
    offset = np.cumsum([0, *map(len, kinds)], dtype=np.int64)
    gate = gate_of(Claims(np.array(kind), offset, counter, amount, np.array(capacity)))
    outside, inside = set(range(len(kind))), set[int]()
    for _ in range(data.draw(st.integers(1, 20))):
        if outside and data.draw(st.booleans()):
            # A job that comes again may stand before others in line.
            for job in data.draw(st.sets(st.sampled_from(sorted(outside)), min_size=1)):
                outside.remove(job)
                plain.come(job)
                come(gate, job)
        elif inside:
            for job in data.draw(st.sets(st.sampled_from(sorted(inside)), min_size=1)):
                inside.remove(job)
                outside.add(job)
                plain.give_back(job)
                give_back(gate, job)
        passed = plain.let_pass()
        assert gate.passed[: let_pass(gate)].tolist() == passed
        assert gate.left.tolist() == plain.left
        assert gate.state.behind == len(plain.behind)
        inside.update(passed)


def assert_same(jobs: list[PlainJob], system: System, make: Callable[[], Any], **rules: Any):
    workload = workload_of(jobs)
    compiled = simulate(workload, system, make(), **rules)
    general = simulate(workload, system, make(), compiled=False, **rules)
    assert compiled.about["compiled"]
    assert same(compiled, general)
    assert easy_waits(compiled) == easy_waits(general)
    assert compiled.about["notes"] == general.about["notes"]
    assert verify.run(compiled.jobs, system) == []


rules = st.fixed_dictionaries(
    {
        "trigger": st.sampled_from(["instant", "event"]),
        "correction": st.sampled_from(["minimal", "incremental"]),
        "predictor": st.sampled_from(["walltime", "actual", "last2"]),
    }
)


@settings(max_examples=examples(40), deadline=None)
@given(jobs(), some_limits(), backfillings((0, 1)), rules)
def test_compiled_on_a_pool(
    jobs: list[PlainJob], limits: tuple[Limit, ...], dispatcher: Backfill, rules: dict[str, Any]
):
    assert_same(jobs, limited(*limits), lambda: replace(dispatcher), **rules)


@settings(max_examples=examples(40), deadline=None)
@given(jobs(), some_limits(), backfillings((0, 1)), rules)
def test_compiled_on_nodes(
    jobs: list[PlainJob], limits: tuple[Limit, ...], dispatcher: Backfill, rules: dict[str, Any]
):
    assert_same(jobs, replace(TWO_NODES, limits=limits), lambda: replace(dispatcher), **rules)


TWO_NODES = System("two", ("core",), (NodeGroup("n", 2, (CORES // 2,)),))


def test_job_that_became_late_behind_the_gate_comes_first():
    four = [
        PlainJob(0, 20, CORES, "ann", ""), PlainJob(1, 10, CORES, "ann", ""),
        PlainJob(2, 1, CORES, "", ""), PlainJob(10, 2, CORES, "", ""),
    ]  # fmt: skip
    system = limited(Limit(1, per="user"))
    assert_same(four, system, lambda: "easy-spf-spf:threshold=5")
    run = simulate(workload_of(four), system, "easy-spf-spf:threshold=5")
    assert run.jobs["start"].tolist() == [0, 20, 30, 31]


def test_job_behind_the_gate_is_not_backfilled_on_nodes():
    three = [
        PlainJob(0, 20, 4, "ann", ""), PlainJob(1, 10, 8, "", ""), PlainJob(2, 2, 1, "ann", "")
    ]  # fmt: skip
    system = replace(TWO_NODES, limits=(Limit(1, per="user"),))
    assert_same(three, system, lambda: "easy")
    assert simulate(workload_of(three), system, "easy").jobs["start"].tolist() == [0, 20, 30]


@settings(max_examples=examples(20), deadline=None)
@given(jobs(), some_limits(), rules)
def test_compiled_with_promises(
    jobs: list[PlainJob], limits: tuple[Limit, ...], rules: dict[str, Any]
):
    assert_same(jobs, limited(*limits), lambda: "conservative", **rules)


@settings(max_examples=examples(20), deadline=None)
@given(jobs(), some_limits())
def test_compiled_with_bounded_waits(jobs: list[PlainJob], limits: tuple[Limit, ...]):
    assert_same(jobs, limited(*limits), lambda: "best", predictor="last2")
    assert_same(jobs, limited(*limits), lambda: "easy-saf-saf:wait=0.5")


@settings(max_examples=examples(10), deadline=None)
@given(jobs(), some_limits())
def test_compiled_with_a_predictor_that_is_asked(jobs: list[PlainJob], limits: tuple[Limit, ...]):
    workload, system = workload_of(jobs), limited(*limits)
    asked, told = Noisy(), Noisy()
    compiled = simulate(workload, system, "easy", predictor=asked)
    general = simulate(workload, system, "easy", predictor=told, compiled=False)
    assert compiled.about["compiled"]
    assert same(compiled, general)


@pytest.mark.log
@pytest.mark.parametrize("name", ["easy-saf-saf:threshold=20000", "best"])
def test_compiled_on_a_log_with_limits_per_user(name: str, trace: Callable[[str], Path]):
    workload, system = prepare(trace("KTH-SP2-1996-2.1-cln"), "100", jobs=1500)
    system = replace(system, limits=(Limit(4, per="user"), Limit(100, "core", "user")))
    compiled = simulate(workload, system, name, predictor="walltime")
    assert compiled.about["compiled"]
    assert same(compiled, simulate(workload, system, name, predictor="walltime", compiled=False))
    assert verify.run(compiled.jobs, system) == []


def test_replays_that_learn_measure_by_keep_limits():
    meter = Meter(workload_of(TWO), limited(Limit(1)))
    assert meter.starts(Backfill()).tolist() == [0, 10]


def test_compiled_replay_goes_on_from_a_checkpoint_with_jobs_behind_the_gate():
    many = [PlainJob(k, 10, 2, "ann", "") for k in range(9)]

    def begun() -> CompiledSimulation:
        known = make("walltime", workload_of(many))
        system = limited(Limit(2, per="user"))
        return CompiledSimulation(
            workload_of(many), system, Backfill(), known, trigger="instant", correction="minimal",
            kill_at_limit=False,
        )  # fmt: skip

    first, second = begun(), begun()
    assert not first.go(7)
    assert first.at_present.queue == 5
    second.go_on_from(pickle.loads(pickle.dumps(first)))
    assert second.go(1000)
    assert second.records.start_s.tolist() == [0, 1, 10, 11, 20, 21, 30, 31, 40]


def test_replay_by_windows_refuses_limits(tmp_path, capsys):
    log, file = tmp_path / "a.swf", tmp_path / "s.json"
    log.write_text("; MaxProcs: 2\n1 0 -1 5 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n")
    groups = [{"name": "g", "nodes": 1, "capacity": [2]}]
    file.write_text(json.dumps({"resources": ["core"], "groups": groups, "limits": [{"most": 1}]}))
    command = ["simulate", str(log), "--system", str(file), "--window", "4"]
    assert cli.run([*command, "--out", str(tmp_path / "out")]) == 2
    assert "leave --window out" in capsys.readouterr().err.replace("\n", " ")


def test_dispatcher_that_refuses_all_is_left_to_the_general_loop():
    run = simulate(workload_of(TWO), limited(Limit(1)), Reject())
    assert not run.about["compiled"]
    assert run.jobs["reason"].tolist() == ["rejected", "rejected"]


def test_job_that_a_failed_node_stops_is_behind_the_gate_again():
    two_nodes = System("two", ("core",), (NodeGroup("n", 2, (4,)),), limits=(Limit(1, per="user"),))
    failed = (Row(2, 4, FAIL, "0 1"), Row(3, 6, REPAIR, "0 1"))
    events = Events(("case.csv",), failed, requeue="all")
    run = simulate(workload_of(TWO), two_nodes, "easy", events=events)
    assert run.jobs["requeued"].tolist() == [1, 0]
    assert run.jobs["start"].tolist() == [6, 16]
    assert run.verify() == []


@pytest.mark.parametrize("rule", [{"dependencies": True}, {"idempotent": True}])
def test_limits_exclude_what_they_are_not_kept_with(rule: dict[str, bool]):
    with pytest.raises(UsageError, match="limits"):
        simulate(workload_of(TWO), limited(Limit(1)), "easy", **rule)


# --------------------------------------------------------------------- licences and arrays

LICENCES = {"matlab": 3, "ansys": 1}
ARRAYS = {"": 0, "a": 2, "b": 1, "c": 0}


@st.composite
def on_terms(draw: st.DrawFn) -> list[PlainJob]:
    """Jobs that ask for licences, and tasks of arrays of which some have a limit."""
    asked = st.sampled_from(["", "", "matlab", "matlab:2 ansys", "ansys", "matlab:4"])
    arrays = st.sampled_from(sorted(ARRAYS))
    return [
        replace(job, licences=draw(asked), array=(array := draw(arrays)), array_limit=ARRAYS[array])
        for job in draw(jobs())
    ]


def licensed(*limits: Limit) -> System:
    return replace(System.pool(CORES), limits=limits, licences=LICENCES)


@settings(max_examples=examples(40), deadline=None)
@given(on_terms(), some_limits())
def test_licences_and_arrays_are_kept_as_the_plain_rule_has_them(
    jobs: list[PlainJob], limits: tuple[Limit, ...]
):
    for compiled in (False, True):
        run = simulate(workload_of(jobs), licensed(*limits), "fifo", compiled=compiled)
        assert run.jobs["start"].tolist() == starts(limits, jobs, CORES, LICENCES)
        assert run.about["compiled"] == compiled
        assert verify.run(run.jobs, run.system) == []


@settings(max_examples=examples(10), deadline=None)
@given(on_terms(), st.sampled_from(["easy", "conservative", "hcp:cp=off", "best"]))
def test_every_dispatcher_keeps_licences_and_arrays(jobs: list[PlainJob], name: str):
    run = simulate(workload_of(jobs), licensed(), name, predictor="walltime")
    assert verify.run(run.jobs, run.system) == []


FOUR_TASKS = [replace(TWO[0], array="a", array_limit=2)] * 4


def test_of_an_array_no_more_tasks_run_than_it_allows():
    run = simulate(workload_of(FOUR_TASKS), System.pool(CORES), "easy")
    assert run.jobs["start"].tolist() == [0, 0, 10, 10]
    free = simulate(
        workload_of([replace(j, array_limit=0) for j in FOUR_TASKS]), System.pool(8), "easy"
    )
    assert free.jobs["start"].tolist() == [0, 0, 0, 0]
    (found,) = verify.run(run.jobs.assign(start=0, end=10), run.system)
    assert found.kind == Kind.LIMIT
    assert found.text == "4 tasks of an array run, 2 may, at 0: jobs 1, 2, 3, 4"


def test_licences_in_use_are_told_when_there_are_not_so_many():
    two = [replace(job, licences="matlab:2") for job in TWO]
    run = simulate(workload_of(two), licensed(), "easy")
    assert run.jobs["start"].tolist() == [0, 10]
    assert verify.run(run.jobs, run.system) == []
    (found,) = verify.run(run.jobs.assign(start=0, end=10), run.system)
    assert found.text == "4 of 3 licences matlab are in use at 0: jobs 1, 2"
    over = simulate(
        workload_of([replace(TWO[0], licences="ansys:2"), *TWO[1:]]), licensed(), "easy"
    )
    assert over.jobs["start"].tolist() == [-1, 0]
    assert over.about["notes"] == {TOO_MANY_LICENCES: 1}
    assert over.verify() == []
    narrow = replace(licensed(), limits=(Limit(1, "core", "queue", "long"),))
    both = simulate(workload_of([replace(TWO[0], licences="ansys:2"), *TWO[1:]]), narrow, "easy")
    assert both.about["notes"] == {BEYOND: 1, TOO_MANY_LICENCES: 1}
    assert (both.metrics["jobs_never_started"], both.metrics["jobs_never_fit"]) == (2, 2)


@pytest.mark.parametrize(
    ("licences", "words"),
    [
        ("matlap", ("job 1", "matlap", "did you mean matlab", "matlab, ansys")),
        ("matlab:x", ("matlab:x", "is no licence")),
        ("matlab:0", ("matlab:0", "is no licence")),
        (":2", (":2", "is no licence")),
    ],
)
def test_a_licence_that_there_is_not_is_named(licences: str, words: tuple[str, ...]):
    with pytest.raises(InputError) as error:
        simulate(workload_of([replace(TWO[0], licences=licences)]), licensed(), "easy")
    for word in words:
        assert word in str(error.value)


def test_a_limit_of_no_array_is_named():
    with pytest.raises(InputError, match="job 1 has a limit of its array, and no array"):
        simulate(workload_of([replace(TWO[0], array_limit=2)]), System.pool(8), "easy")


def test_terms_are_read_from_tables_and_written_back(tmp_path):
    from cpdispatch.workloads import table

    log = workload_of([replace(TWO[0], licences="ansys matlab:2", array="x", array_limit=3), *TWO])
    for name in ("jobs.csv", "jobs.parquet"):
        table.write(log, tmp_path / name)
        again = table.read(tmp_path / name)
        for what in ("licences", "array"):
            number, names = again.asked(what)
            wanted, of = log.asked(what)
            assert [names[k] for k in number] == [of[k] for k in wanted]
        assert again.array_limit().tolist() == [3, 0, 0]
        assert again.take(again.runtime_s.nonzero()[0][:1]).array_limit().tolist() == [3]


def test_licences_of_a_system_are_read_and_written_back(tmp_path):
    file = tmp_path / "s.toml"
    head = 'resources = ["core"]\ngroups = [{name = "g", nodes = 2, capacity = [4]}]\n'
    file.write_text(head + 'licences = {matlab = 3}\nlimits = [{most = 2, per = "account"}]\n')
    system = find(str(file))
    assert system_as_dict(system)["licences"] == {"matlab": 3}
    assert system.limits == (Limit(2, per="group"),)
    for wrong, word in (("{matlab = -1}", "0 or more"), ('{"a b" = 1}', "not a name of a licence")):
        file.write_text(f"{head}licences = {wrong}\n")
        with pytest.raises(InputError, match=word):
            find(str(file))


def test_explain_knows_which_licence_a_job_waited_for():
    run = simulate(workload_of([replace(TWO[0], licences="ansys")] * 2), licensed(), "easy")
    (stretch,) = run.explain(2).stretches
    assert stretch.cause == "limit"
    assert "licences ansys" in stretch.lacking[0]


NODE_OUT = Events(("test",), (Row(2, 10, FAIL, "0"), Row(3, 20, REPAIR, "0")))


def test_explain_leaves_out_jobs_that_never_came_to_the_gate():
    submit, units = [0, 1, 2, 3, 4, 20], [500, 1, 8, 1, 1, 1]
    licences = ["mat:2", "mat", "", "mat", "mat", "mat"]
    jobs, system = on_nodes(
        two_nodes(licences={"mat": 2}), submit=submit, runtime=[10, 50, 100, 10, 10, 50],
        units=units, licences=licences,
    )  # fmt: skip
    run = simulate(jobs, system, "easy", events=NODE_OUT)
    assert run.verify() == []
    causes = {id: [s.cause for s in run.explain(id).stretches] for id in range(2, 7)}
    assert causes[2] == []
    assert causes[3] == ["capacity"]
    assert causes[5] == ["limit"]


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_explain_lets_a_job_that_a_node_stopped_come_to_the_gate_again(trigger: str):
    jobs, system = on_nodes(
        two_nodes(licences={"mat": 2}), submit=[0, 115, 120], runtime=[100, 85, 50],
        units=[1, 8, 8], licences=["mat", "", "mat:2"],
    )  # fmt: skip
    run = simulate(jobs, system, "easy", trigger=trigger, events=NODE_OUT)
    assert run.jobs["requeued"].tolist() == [1, 0, 0]
    (stretch,) = run.explain(3).stretches
    assert (stretch.from_s, stretch.until_s, stretch.cause) == (120, 200, "capacity")


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_job_that_is_queued_again_comes_before_those_submitted_in_that_second(trigger: str):
    jobs, system = on_nodes(
        two_nodes(limits=[{"of": "jobs", "most": 1}]), submit=[0, 10], runtime=100, units=1
    )
    run = simulate(jobs, system, "easy", trigger=trigger, events=NODE_OUT)
    assert run.jobs["start"].tolist() == [10, 110]
    (stretch,) = run.explain(2).stretches
    assert (stretch.from_s, stretch.until_s, stretch.cause) == (10, 110, "limit")


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_job_of_no_time_is_through_its_limit_at_once(trigger: str):
    jobs, system = on_nodes(
        two_nodes(limits=[{"of": "jobs", "most": 1, "per": "user"}]), submit=[0, 5, 6],
        runtime=[0, 10, 10], requested=10, units=[1, 8, 8], user=["ann", "bob", "ann"],
    )  # fmt: skip
    (stretch,) = simulate(jobs, system, "easy", trigger=trigger).explain(3).stretches
    assert (stretch.from_s, stretch.until_s, stretch.cause) == (6, 15, "capacity")


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_jobs_of_no_time_are_through_their_limit_one_after_the_other(trigger: str):
    jobs, system = on_nodes(
        two_nodes(limits=[{"of": "jobs", "most": 1, "per": "user"}]), submit=[0, 0, 0, 0, 1],
        runtime=[0, 0, 0, 5, 5], requested=10, units=1, user="ann",
    )  # fmt: skip
    run = simulate(jobs, system, "easy", trigger=trigger)
    assert run.jobs["start"].tolist() == [0, 0, 0, 0, 5]
    assert [(each.job, each.cause) for each in run.moment(4).waiting] == [(5, "limit")]
    assert run.moment(5).waiting == ()


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(["instant", "event"]), st.integers(1, 3), st.booleans())
def test_whoever_was_shown_to_the_dispatcher_waited_for_no_limit(
    data: st.DataObject, trigger: str, most: int, fails: bool
):
    times = st.sampled_from([0, 5, 10, 20])
    users, later = st.integers(0, 2), st.sampled_from([-1, -1, 5, 10])
    job = st.tuples(times, times, st.integers(1, 6), users, later)
    drawn = data.draw(st.lists(job, min_size=2, max_size=8))
    submit, runtime, units, user, delay = zip(*drawn, strict=True)
    begin = [-1 if d < 0 else s + d for s, d in zip(submit, delay, strict=True)]
    system = replace(two_nodes(), limits=(Limit(most), Limit(1, per="user")))
    jobs, system = on_nodes(
        system, submit=submit, runtime=runtime, requested=20, units=units, user=user, begin=begin
    )
    seen: dict[int, set[int]] = {}
    run = simulate(
        jobs, system, "easy", trigger=trigger, events=NODE_OUT if fails else None, compiled=False,
        watch=Watch(seen=lambda instance: seen.update({instance.now: {*instance.queue.id}})),
    )  # fmt: skip
    for at_s, queue in seen.items():
        for waits in run.moment(at_s).waiting:
            assert waits.job not in queue or waits.cause != "limit"
            assert trigger == "event" or waits.job in queue or waits.cause == "limit"


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_explain_leaves_a_job_whose_test_was_over_in_the_queue(trigger: str):
    """Job 3 is killed at 10, and job 4 is behind the gate until job 1 has ended."""
    jobs, system = on_nodes(
        replace(System.pool(4), limits=(Limit(3),)), submit=[0, 1, 2, 3], units=[3, 4, 1, 1],
        runtime=[100, 50, 400, 10], requested=[100, 50, 500, 10], restartable=[0, 0, 1, 0],
    )  # fmt: skip
    run = simulate(jobs, system, "easy:test=8", trigger=trigger)
    assert run.jobs["lost_end"].tolist() == [-1, -1, 10, -1]
    assert "limit" not in {stretch.cause for stretch in run.explain(3).stretches}
    first = run.explain(4).stretches[0]
    assert (first.from_s, first.until_s, first.cause) == (3, 100, "limit")


def test_explain_of_limits_needs_no_watts():
    system = two_nodes(licences={"mat": 1}, watts={"core": 10}, group_watts={"thin": {"core": 12}})
    jobs, system = on_nodes(system, submit=[0, 0], runtime=5, units=1, licences=["mat", "mat"])
    (stretch,) = simulate(jobs, system, "easy").explain(2).stretches
    assert stretch.cause == "limit"


# -------------------------------------------------------------------------------- begin times


def beginning(jobs: list[PlainJob], begin: list[int]) -> Workload:
    return replace(workload_of(jobs), begin_s=np.array(begin, dtype=np.int64))


@settings(max_examples=examples(40), deadline=None)
@given(jobs(), some_limits(), st.data())
def test_a_job_before_its_time_is_as_if_it_were_submitted_then(
    jobs: list[PlainJob], limits: tuple[Limit, ...], data: st.DataObject
):
    delay = data.draw(st.lists(st.integers(0, 20), min_size=len(jobs), max_size=len(jobs)))
    begin = [job.submit_s + more for job, more in zip(jobs, delay, strict=True)]
    run = simulate(beginning(jobs, begin), limited(*limits), "fifo")
    order = sorted(range(len(jobs)), key=lambda k: (begin[k], k))
    later = [replace(jobs[k], submit_s=begin[k]) for k in order]
    # The queue stays in the order of submission: that is the only difference.
    if order == list(range(len(jobs))):
        assert run.jobs["start"].tolist() == starts(limits, later, CORES)
    assert run.verify() == []
    assert all(s < 0 or s >= b for s, b in zip(run.jobs["start"], begin, strict=True))


def test_a_submission_is_an_event_also_of_a_job_whose_time_comes_later():
    three = [PlainJob(submit, 100, CORES, "ann", "short") for submit in (0, 1, 5)]
    run = simulate(beginning(three, [-1, -1, 50]), System.pool(CORES), "easy")
    assert run.decisions["time"].tolist()[:3] == [0, 1, 5]
    assert run.verify() == []


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_job_starts_when_its_time_comes_though_nothing_else_happens(trigger: str):
    run = simulate(beginning(TWO, [-1, 500]), System.pool(CORES), "easy", trigger=trigger)
    assert run.jobs["start"].tolist() == [0, 500]
    assert run.metrics["wait_s_max"] == 500
    assert run.verify() == []
    (found,) = verify.run(run.jobs.assign(start=[0, 490], end=[10, 500]), run.system)
    assert (found.kind, found.text) == (
        Kind.EARLY_START, "job 2 starts at 490, it may from 500 on",
    )  # fmt: skip
    (stretch,) = run.explain(2).stretches
    assert (stretch.until_s, stretch.cause, stretch.lacking) == (500, "limit", ("its begin time",))


def test_begin_times_that_have_passed_change_nothing_and_stay_compiled():
    run = simulate(beginning(TWO, [-1, 0]), System.pool(CORES), "easy")
    assert run.about["compiled"]
    assert run.jobs["start"].tolist() == [0, 0]


def test_begin_times_are_read_from_tables_and_written_back(tmp_path):
    from cpdispatch.workloads import table

    log = beginning(TWO, [-1, 500])
    for name in ("jobs.csv", "jobs.parquet"):
        table.write(log, tmp_path / name)
        again = table.read(tmp_path / name)
        assert again.begin_s is not None
        assert again.begin_s.tolist() == [-1, 500]


@pytest.mark.parametrize(
    ("columns", "limits", "says"),
    [
        ("", "limits = [{most = 2}]", "system s has limits, which exclude {}: leave it out"),
        ("licences", "", "jobs of log have licences, which exclude {}"),
        ("array_limit", "", "jobs of log have limits of arrays, which exclude {}"),
        ("begin", "", "jobs of log have begin times, which exclude {}"),
    ],
)
def test_options_that_gates_exclude_are_named_once(
    columns: str, limits: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text(
        'name = "s"\nresources = ["core"]\nlicences = {x = 3}\n' + limits
        + '\ngroups = [{name = "n", nodes = 1, capacity = [4]}]\n'
    )  # fmt: skip
    of = {"licences": "x", "array_limit": "1", "begin": "50"}.get(columns, "")
    array = "a" if columns == "array_limit" else ""
    (tmp_path / "log.csv").write_text(
        f"id,submit,runtime,units,core,array,{columns or 'queue'}\n"
        f"1,0,60,1,1,{array},{of}\n2,5,60,1,1,{array},{of}\n"
    )
    base = ["simulate", str(tmp_path / "log.csv"), "--system", str(tmp_path / "s.toml")]
    for option in (["--idempotent"], ["--dependencies"], ["--restart-cost", "5s"]):
        assert cli.run([*base, "-d", "easy", "-d", "sjf", "--restartable", "all", *option]) == 2
        assert says.format(option[0]) in capsys.readouterr().err
