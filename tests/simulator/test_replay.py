from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cpdispatch import dispatch, toys, verify
from cpdispatch.compiled import shadow
from cpdispatch.decision import Decision
from cpdispatch.dispatch import Settings
from cpdispatch.errors import DecisionError, InputError, InterruptedRunError, UsageError
from cpdispatch.instance import Instance, Starvation
from cpdispatch.jobs import UNKNOWN, Column, JobTable, Workload
from cpdispatch.simulator import Run, Watch, simulate
from cpdispatch.simulator.replay import LOG, _Replay, claim, finished
from cpdispatch.simulator.saved import CHECKPOINT
from cpdispatch.system import NAMED, System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import eurora_sample
from cpdispatch.workloads.restarts import mark

EURORA = NAMED["eurora"]


@pytest.fixture(scope="module")
def sample() -> Workload:
    return eurora_sample(400, seed=1)


def same(one: Run, two: Run) -> bool:
    told = ["time", "queue", "running", "started", "model", "status"]
    return one.job_table.equals(two.job_table) and one.decision_table.select(told).equals(
        two.decision_table.select(told)
    )


def stop_after(decisions: int) -> Callable[[], bool]:
    count = 0

    def stop() -> bool:
        nonlocal count
        count += 1
        return count == decisions

    return stop


@pytest.mark.parametrize("dispatcher", ["easy", "conservative", "prb"])
@pytest.mark.parametrize("decisions", [1, 77, 300])
def test_a_run_that_was_stopped_and_resumed_is_the_run_that_was_not(
    sample: Workload, tmp_path: Path, dispatcher: str, decisions: int
) -> None:
    whole = simulate(sample, EURORA, dispatcher)
    interrupted = Watch(folder=tmp_path, stop=stop_after(decisions))
    with pytest.raises(InterruptedRunError, match="interrupted at"):
        simulate(sample, EURORA, dispatcher, watch=interrupted, compiled=False)
    assert (tmp_path / CHECKPOINT).exists()
    resumed = simulate(sample, EURORA, dispatcher, watch=Watch(folder=tmp_path, resume=True))
    assert same(whole, resumed)
    finished(resumed, tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()
    again = simulate(sample, EURORA, dispatcher, watch=Watch(folder=tmp_path, resume=True))
    assert same(whole, again)


def test_rules_may_be_truth_values_of_numpy(tmp_path: Path) -> None:
    log, off = mark(eurora_sample(20), 0.0), np.bool_(False)
    run = simulate(
        log, EURORA, "easy", kill_at_limit=off, dependencies=off, idempotent=off, compiled=off
    )
    run.save(tmp_path)
    assert Run.load(tmp_path).about["kill_at_limit"] is False


@pytest.mark.parametrize("compiled", [False, True])
def test_the_log_beside_a_checkpoint_is_that_of_the_replay(
    tmp_path: Path, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Replay, "_some_compiled", lambda self, simulation: simulation.go(11))
    for jobs in (30, 20):
        watch = Watch(folder=tmp_path, stop=stop_after(1))
        with pytest.raises(InterruptedRunError):
            simulate(eurora_sample(jobs), EURORA, "easy", watch=watch, compiled=compiled)
        assert len(pickle.loads((tmp_path / LOG).read_bytes())) == jobs


def test_what_goes_on_beside_a_replay_can_be_sent_to_another_process(tmp_path: Path) -> None:
    watch = Watch(folder=tmp_path)
    assert pickle.loads(pickle.dumps(watch)) == watch
    assert not watch.stop()


@pytest.mark.parametrize("decisions", [20, 200])
def test_a_run_that_honours_dependencies_is_resumed_to_the_same_result(
    sample: Workload, tmp_path: Path, decisions: int
) -> None:
    ids = sample.table.id
    chained = replace(
        sample,
        preceding=np.concatenate(([-1] * 20, ids[:-20])),
        think_s=np.arange(len(ids), dtype=np.int64) % 3 * 600,
    )

    def chain(workload: Workload = chained, dependencies: bool = True, **how: Any) -> Run:
        return simulate(workload, EURORA, "easy", dependencies=dependencies, watch=Watch(**how))

    whole = chain()
    assert not same(whole, chain(dependencies=False))
    with pytest.raises(InterruptedRunError):
        chain(folder=tmp_path, stop=stop_after(decisions))
    with pytest.raises(UsageError, match=r"its (jobs are others|dependencies is)"):
        chain(sample, folder=tmp_path, resume=True)
    with pytest.raises(UsageError, match=r"its (jobs are others|dependencies is)"):
        chain(dependencies=False, folder=tmp_path, resume=True)
    resumed = chain(folder=tmp_path, resume=True)
    assert same(whole, resumed)
    assert verify.run(resumed.jobs, EURORA, dependencies=True) == []


def test_a_run_of_another_starvation_bound_is_not_gone_on_with(
    sample: Workload, tmp_path: Path
) -> None:
    bound = Starvation(3600, 60)
    with pytest.raises(InterruptedRunError):
        simulate(sample, EURORA, "easy", starvation=bound,
                 watch=Watch(folder=tmp_path, stop=stop_after(5)))  # fmt: skip
    resume = Watch(folder=tmp_path, resume=True)
    with pytest.raises(UsageError, match="its starvation"):
        simulate(sample, EURORA, "easy", starvation=Starvation(3600, 61), watch=resume)
    with pytest.raises(UsageError, match="its starvation"):
        simulate(sample, EURORA, "easy", watch=resume)
    finished(simulate(sample, EURORA, "easy", starvation=bound, watch=resume), tmp_path)
    again = simulate(sample, EURORA, "easy", starvation=bound, watch=resume)
    assert again.about["starvation"] == {"threshold_s": 3600, "bound_s": 60, "wide": 0}
    assert same(again, simulate(sample, EURORA, "easy"))


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(
    ("dispatcher", "pool", "predictors"),
    [("easy", False, ("walltime", "eloss")), ("easy-lexp-saf", True, ("last2", "confident")),
     ("easy:allocate=best-fit,depth=3", False, ("last2", "confident")),
     ("conservative", True, ("walltime", "eloss")),
     ("best:keep=0.2", False, ("confident", "eloss")),
     ("best:width=0", True, ("walltime", "last2")),
     ("easy-saf-wfp3:wait=0.4", True, ("confident", "last2")),
     ("easy:test=60,tests=backfill", False, ("walltime", "last2")),
     ("easy-spf-saf:test=60,tests=first", True, ("last2", "confident"))],
)  # fmt: skip
def test_a_compiled_replay_that_was_stopped_and_resumed_is_the_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    dispatcher: str, pool: bool, predictors: tuple[str, str], second: bool,
) -> None:  # fmt: skip
    predictor, moments = predictors[second], 40 if second else 1
    monkeypatch.setattr("cpdispatch.simulator.replay._EVERY", 11)
    monkeypatch.setattr("cpdispatch.simulator.replay._MOMENT_S", 1e9)
    monkeypatch.setattr(_Replay, "_some_compiled", lambda self, simulation: simulation.go(11))
    monkeypatch.setattr(shadow, "FIRST_ROOM", 20)
    machine, jobs = EURORA, eurora_sample(400, seed=1)
    if pool:
        machine = System.pool(1024)
        cores = JobTable(jobs.table.block[: Column.REQUEST + 1].copy(), jobs.table.labels)
        jobs = replace(jobs, resources=("core",), table=cores)
    if "test=" in dispatcher:
        jobs = mark(jobs, 1.0, 0)

    def run(**how: Any) -> Run:
        return simulate(jobs, machine, dispatcher, predictor=predictor, watch=Watch(**how))

    whole = run()
    assert whole.about["compiled"]
    with pytest.raises(InterruptedRunError, match="interrupted at"):
        run(folder=tmp_path, stop=stop_after(moments))
    resumed = run(folder=tmp_path, resume=True)
    assert same(whole, resumed)
    assert same(resumed, simulate(jobs, machine, dispatcher, predictor=predictor, compiled=False))


KILLED = """
import os, signal, sys
from pathlib import Path
from cpdispatch.simulator import Watch, simulate
from cpdispatch.system import NAMED, System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import eurora_sample
folder = Path(sys.argv[1])
def seen(instance):
    seen.met += 1
    if seen.met == 600:
        os.kill(os.getpid(), signal.SIGKILL)
seen.met = 0
simulate(eurora_sample(400, seed=1), NAMED["eurora"], "easy",
         watch=Watch(folder=folder, checkpoint_s=1e-9, seen=seen))
"""


def test_a_run_that_was_killed_resumes_to_the_same_result(sample: Workload, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT, LOG]
    steps = []
    resumed = simulate(
        sample, EURORA, "easy", watch=Watch(folder=tmp_path, resume=True, seen=steps.append)
    )
    whole = simulate(sample, EURORA, "easy")
    assert same(whole, resumed)
    assert 0 < len(steps) < len(whole.decision_table)


@pytest.mark.parametrize(
    ("decision_s", "saving_s", "least_s", "expected"),
    [
        (0.25, 0.0, 2.0, [1.0, 3.0, 5.0, 7.0]),
        (0.25, 0.25, 2.0, [1.0, 6.25, 11.5, 16.75]),
        (3.0, 0.0, 2.0, [3.0, 6.0, 9.0, 12.0]),
        (0.25, 0.0, 0.5, [0.5, 1.0, 1.5, 2.0]),
        (0.25, 0.0, 30.0, [1.0, 31.0, 61.0, 91.0]),
    ],
)
def test_checkpoints_keep_to_their_time_and_take_a_twentieth_of_it_at_most(
    sample: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    decision_s: float, saving_s: float, least_s: float, expected: list[float],
) -> None:  # fmt: skip
    now = 0.0
    saved: list[float] = []

    def take(seconds: float) -> None:
        nonlocal now
        now += seconds

    def save(replay: _Replay, folder: Path) -> None:
        saved.append(now)
        take(saving_s)

    monkeypatch.setattr("cpdispatch.simulator.replay.perf_counter", lambda: now)
    monkeypatch.setattr(_Replay, "save", save)
    watch = Watch(
        folder=tmp_path, checkpoint_s=least_s, seen=lambda instance: take(decision_s)
    )  # fmt: skip
    run = simulate(sample, EURORA, "easy", watch=watch)
    assert saved[:4] == expected
    assert run.about["seconds"] == pytest.approx(len(run.decision_table) * decision_s)


def test_what_a_killed_write_left_is_removed_and_nothing_else(
    sample: Workload, tmp_path: Path
) -> None:
    left = [f".{name}.k3_9abcd" for name in (CHECKPOINT, "jobs.parquet", "run.json")]
    kept = [".other.pickle.k3_9abcd", ".run.json.swp", "notes"]
    for name in left + kept:
        (tmp_path / name).touch()
    simulate(sample, EURORA, "easy", watch=Watch(folder=tmp_path))
    assert len(list(tmp_path.iterdir())) == 6
    run = simulate(sample, EURORA, "easy", watch=Watch(folder=tmp_path, resume=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    assert verify.run(run.jobs, EURORA) == []


def test_a_checkpoint_of_other_arguments_is_refused(sample: Workload, tmp_path: Path) -> None:
    with pytest.raises(InterruptedRunError):
        simulate(
            sample, EURORA, "easy", watch=Watch(folder=tmp_path, stop=stop_after(5)), compiled=False
        )
    resume = Watch(folder=tmp_path, resume=True)
    with pytest.raises(UsageError, match="its dispatcher is 'easy', not 'fifo'"):
        simulate(sample, EURORA, "fifo", watch=resume)
    with pytest.raises(UsageError, match="its seed is 0, not 1"):
        simulate(sample, EURORA, "easy", settings=Settings(seed=1), watch=resume)
    larger = replace(EURORA, groups=(*EURORA.groups, replace(EURORA.groups[0], name="more")))
    with pytest.raises(UsageError, match="its system differs"):
        simulate(sample, larger, "easy", watch=resume)
    with pytest.raises(UsageError, match=r"its (jobs are others|dependencies is)"):
        simulate(eurora_sample(400, seed=2), EURORA, "easy", watch=resume)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x80\x05nonsense", "is damaged"),
        (b"", "is damaged"),
        (b"\x80\x04X\x01\x00\x00\x00\xff.", "is damaged"),
        (b"cbuiltins\nint\n(Vx\ntR.", "is damaged"),
        (b"cbuiltins\nint\n)R.", "holds no replay"),
    ],
)
def test_a_damaged_checkpoint_is_one_clear_error(
    sample: Workload, tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / CHECKPOINT).write_bytes(content)
    with pytest.raises(InputError, match=rf"checkpoint\.pickle: {problem}.*--overwrite"):
        simulate(sample, EURORA, "easy", watch=Watch(folder=tmp_path, resume=True))


def test_a_folder_in_use_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    claim([tmp_path], resume=False, overwrite=False)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="holds another run: add --resume"):
        claim([tmp_path], resume=False, overwrite=False)
    claim([tmp_path], resume=True, overwrite=False)
    claim([tmp_path], resume=False, overwrite=True)
    assert not any(tmp_path.iterdir())
    for folder in (Path(__file__), Path(__file__) / "easy"):
        with pytest.raises(UsageError, match="is a file"):
            claim([folder], resume=False, overwrite=False)
    claim([tmp_path / "new" / "easy"], resume=False, overwrite=False)
    assert not (tmp_path / "new").exists()


def test_a_run_is_not_resumed_with_another_file_of_the_same_name(
    sample: Workload, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"

    def replay(primary: str, folder: str, stop: Callable[[], bool] = lambda: False) -> Run:
        path.write_text(f'dispatcher = "easy"\nprimary = "{primary}"\n')
        watch = Watch(folder=tmp_path / folder, resume=True, stop=stop)
        run = simulate(sample, EURORA, str(path), watch=watch, compiled=False)
        finished(run, tmp_path / folder)
        return run

    first = replay("spf", "over")
    assert first.about["dispatcher_file"] == {"dispatcher": "easy", "primary": "spf"}
    assert replay("spf", "over").metrics == first.metrics
    with pytest.raises(InterruptedRunError):
        replay("spf", "under way", stop_after(3))
    for folder in ("over", "under way"):
        with pytest.raises(UsageError, match="belongs to another run: its dispatcher file differs"):
            replay("laf", folder)


def test_a_dispatcher_that_cannot_be_saved_is_one_clear_error(
    sample: Workload, tmp_path: Path
) -> None:
    from cpdispatch.heuristics.backfill import Backfill

    class Local(Backfill):
        pass

    with pytest.raises(UsageError, match="cannot be saved in a checkpoint"):
        simulate(sample, EURORA, Local(), watch=Watch(folder=tmp_path, stop=stop_after(3)))
    assert not any(tmp_path.iterdir())


def test_a_wrong_decision_is_that_of_the_dispatcher_who_passes_it_on(sample: Workload) -> None:
    class Outer:
        name, inner = "outer", dispatch.make("easy")

        def dispatch(self, instance: Instance) -> Decision:
            wider = replace(instance, free=instance.system.capacity)
            return self.inner.dispatch(wider)

    says = r"^outer answered with an infeasible decision made by easy at time \d+: capacity"
    with pytest.raises(DecisionError, match=says):
        simulate(sample, EURORA, Outer())


def test_a_saved_run_is_read_back_as_it_was(sample: Workload, tmp_path: Path) -> None:
    run = simulate(sample, EURORA, "easy")
    run.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "decisions.parquet",
        "jobs.parquet",
        "run.json",
        "schedule.swf",
    ]
    loaded = Run.load(tmp_path)
    assert same(run, loaded)
    assert loaded.metrics == run.metrics
    assert loaded.system.capacity.tolist() == EURORA.capacity.tolist()


def test_a_folder_whose_name_is_no_utf_8_holds_a_run(sample: Workload, tmp_path: Path) -> None:
    run = simulate(sample, EURORA, "easy")
    folder = tmp_path / os.fsdecode(b"b\xe4d")
    run.save(folder)
    assert same(run, Run.load(folder))


@pytest.mark.parametrize("name", ["jobs.parquet", "decisions.parquet"])
def test_a_wrong_bit_in_a_page_of_a_table_is_found(
    name: str, sample: Workload, tmp_path: Path
) -> None:
    run = simulate(sample, EURORA, "easy")
    run.save(tmp_path)
    content = (tmp_path / name).read_bytes()
    found = 0
    for share in range(5, 50):  # the pages come first, and what says where they are last
        wrong = bytearray(content)
        wrong[len(content) * share // 100] ^= 1
        (tmp_path / name).write_bytes(wrong)
        try:
            loaded = Run.load(tmp_path)
        except InputError as error:
            found += f"{name}: the Parquet table is damaged" in str(error)
        else:  # it is in the header of a page, where nothing depends on it
            assert same(run, loaded)
    assert found > 30


def test_a_run_whose_tables_another_program_rewrote_is_read_as_well(
    sample: Workload, tmp_path: Path
) -> None:
    run = simulate(sample, EURORA, "easy")
    run.save(tmp_path)
    frame = pd.read_parquet(tmp_path / "jobs.parquet")
    frame.assign(reason=frame["reason"].astype(str)).to_parquet(tmp_path / "jobs.parquet")
    assert Run.load(tmp_path).metrics == run.metrics


def test_figures_by_class_width_and_user_cover_every_job(sample: Workload) -> None:
    run = simulate(sample, EURORA, "easy")
    assert set(run.by_class()) == {"short", "medium", "long"}
    assert set(run.by_width()) == {"narrow", "middle", "wide"}
    for rows in (run.by_class(), run.by_width(), run.by_user()):
        assert sum(row["jobs"] for row in rows.values()) == 400
        assert max(row["wait_s_max"] for row in rows.values()) == run.metrics["wait_s_max"]
    mean = sum(row["jobs"] * row["wait_s_mean"] for row in run.by_user().values()) / 400
    assert mean == pytest.approx(run.metrics["wait_s_mean"])


def test_figures_by_user_are_the_same_from_the_folder_and_none_without_users(
    sample: Workload, tmp_path: Path
) -> None:
    run = simulate(sample, EURORA, "easy")
    run.save(tmp_path)
    of_users = run.jobs.assign(wait=run.jobs["start"] - run.jobs["submit"]).groupby(
        run.jobs["user"].astype(str)
    )["wait"]
    found = {user: row["wait_s_mean"] for user, row in run.by_user().items()}
    assert found == pytest.approx(of_users.mean().to_dict())
    assert Run.load(tmp_path).by_user() == run.by_user()
    assert verify.run(run.jobs, EURORA) == []
    columns = np.array(sample.table.block)
    columns[Column.USER] = UNKNOWN
    nobody = replace(sample, table=JobTable(columns, sample.table.labels))
    run = simulate(nobody, EURORA, "easy")
    assert verify.run(run.jobs, EURORA) == []
    assert run.by_user() == {}


def test_the_schedule_as_swf_holds_waits_and_runtimes(sample: Workload, tmp_path: Path) -> None:
    run = simulate(sample, EURORA, "easy")
    run.save(tmp_path)
    lines = [
        line.split()
        for line in (tmp_path / "schedule.swf").read_text().splitlines()
        if not line.startswith(";")
    ]
    assert [int(line[2]) for line in lines] == (run.jobs["start"] - run.jobs["submit"]).tolist()
    assert [int(line[3]) for line in lines] == (run.jobs["end"] - run.jobs["start"]).tolist()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("system", None, r"run\.json: field system"),
        ("system", {"name": "x", "resources": [], "groups": []}, "needs a resource type"),
        ("dispatcher", 5, r"run\.json: field dispatcher: .*found 5"),
        ("notes", 5, r"run\.json: field notes"),
        ("notes", {"dropped": "many"}, "field notes"),
        ("seconds", "long", r"run\.json: field seconds: .*found 'long'"),
        ("dependencies", True, r"jobs\.parquet: field preceding: the table lacks the column"),
        ("restarts", True, r"jobs\.parquet: field lost_start: the table lacks the column"),
    ],
)
def test_a_run_json_that_is_none_is_one_clear_error(
    sample: Workload, tmp_path: Path, key: str, value: object, message: str
) -> None:
    simulate(sample, EURORA, "easy").save(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=message):
        Run.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("start", None),
        ("start", ["1"] * 3),
        ("start", [1, None, 3]),
        ("start", [2**60, 1, 2]),
        ("units", [1.5, 1.0, 2.0]),
        ("nodes", [1, 2, 3]),
        ("nodes", [[1], [None], [2]]),
        ("nodes", [["a"], ["b"], []]),
        ("node_units", [[1], [], [1, 1, 1, 1]]),
        ("killed", [0, 1, 1]),
        ("reason", [1, 2, 3]),
    ],
)
def test_a_column_of_a_run_that_is_none_is_one_clear_error(
    sample: Workload, tmp_path: Path, name: str, column: list[object] | None
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    simulate(sample.take(np.arange(3)), EURORA, "easy").save(tmp_path)
    path = tmp_path / "jobs.parquet"
    jobs = pq.read_table(path)
    at = jobs.column_names.index(name)
    jobs = jobs.remove_column(at)
    if column is not None:
        jobs = jobs.add_column(at, name, pa.array(column))
    pq.write_table(jobs, path)
    with pytest.raises(InputError, match=rf"jobs\.parquet: field {name}: the "):
        Run.load(tmp_path)


@pytest.mark.parametrize("name", ["time", "queue", "running", "started", "ms"])
def test_a_table_of_decisions_without_a_column_is_one_clear_error(
    sample: Workload, tmp_path: Path, name: str
) -> None:
    import pyarrow.parquet as pq

    simulate(sample.take(np.arange(3)), EURORA, "easy").save(tmp_path)
    path = tmp_path / "decisions.parquet"
    pq.write_table(pq.read_table(path).drop_columns([name]), path)
    with pytest.raises(InputError, match=rf"decisions\.parquet: field {name}: the table lacks"):
        Run.load(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_run_folder_is_one_clear_error(
    sample: Workload, tmp_path: Path, damage: str
) -> None:
    simulate(sample, EURORA, "easy").save(tmp_path)
    if damage == "missing":
        (tmp_path / "run.json").unlink()
    else:
        jobs = tmp_path / "jobs.parquet"
        jobs.write_bytes(jobs.read_bytes()[:1000])
    with pytest.raises(InputError, match=str(tmp_path)):
        Run.load(tmp_path)


def test_a_named_dispatcher_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, made = dispatch.REGISTRY["easy"], []

    def make(settings: Settings, given: dict[str, Any]) -> dispatch.Dispatcher:
        made.append(entry.make(settings, given))
        return made[-1]

    monkeypatch.setattr(
        dispatch, "REGISTRY", {**dispatch.REGISTRY, "easy": replace(entry, make=make)}
    )
    monkeypatch.setattr(toys, "simulated", lambda: [])  # throw-away dispatchers decide on these
    for compiled in (True, False):
        made.clear()
        simulate(eurora_sample(20), EURORA, "easy", compiled=compiled)
        assert len(made) == 1


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("name", "goes_by"),
    [
        ("easy-priority-spf", True), ("easy:backfill=priority", True), ("easy-spf-spf", False),
        ("hcp:objective=priority_wait,cp=off", True),
    ],
)  # fmt: skip
def test_a_priority_that_no_job_has_is_told(name: str, goes_by: bool, compiled: bool) -> None:
    jobs = eurora_sample(20)
    told = f"dispatcher {name}, jobs without the priority that it goes by"
    run = simulate(jobs, EURORA, name, compiled=compiled)
    assert run.about["notes"].get(told) == (20 if goes_by else None)
    columns = list(jobs.table.columns)
    columns[Column.PRIORITY] = np.arange(20)
    given = replace(jobs, table=JobTable(columns, jobs.table.labels))
    assert told not in simulate(given, EURORA, name, compiled=compiled).about["notes"]


@pytest.mark.parametrize("name", ["easy:wait=0.5", "conservative"])
def test_a_dispatcher_that_remembers_another_run_is_refused(
    sample: Workload, tmp_path: Path, name: str
) -> None:
    made = dispatch.make(name)
    stopped = Watch(folder=tmp_path, stop=stop_after(200))
    with pytest.raises(InterruptedRunError):
        simulate(sample, EURORA, made, watch=stopped, compiled=False)
    for compiled in (False, True):
        with pytest.raises(UsageError, match=f"^dispatcher {name} was used already.*make another"):
            simulate(sample, EURORA, made, compiled=compiled)
    resumed = simulate(
        sample, EURORA, made, watch=Watch(folder=tmp_path, resume=True), compiled=False
    )
    assert same(resumed, simulate(sample, EURORA, dispatch.make(name), compiled=False))


def test_a_bound_that_a_model_does_not_keep_is_refused_before_the_replay() -> None:
    with pytest.raises(UsageError, match="thesis-hcp knows no starvation bound: leave it out, or"):
        simulate(eurora_sample(20), NAMED["eurora"], "thesis-hcp", starvation=Starvation(600, 60))


def test_a_schedule_says_on_which_machine_it_was_made(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text(
        "; Version: 2.2\n; MaxJobs: 900\n; MaxProcs: 2\n; UnixStartTime: 7\n"
        "1 0 -1 50 4 -1 -1 4 60 -1 1 1 1 1 1 1 -1 -1\n"
    )
    simulate(*prepare(log, 8), "easy").save(tmp_path / "run")
    schedule = tmp_path / "run" / "schedule.swf"
    assert schedule.read_text().splitlines()[:5] == [
        "; Version: 2.2", "; MaxNodes: 1", "; MaxProcs: 8", "; UnixStartTime: 7",
        "1 0 0 50 4 -1 -1 4 60 -1 1 1 1 1 1 1 -1 -1",
    ]  # fmt: skip
    assert prepare(schedule)[1].total.tolist() == [8]
    simulate(eurora_sample(3), NAMED["eurora"], "easy").save(tmp_path / "sample")
    text = (tmp_path / "sample" / "schedule.swf").read_text()
    assert "; MaxNodes: 64\n; MaxProcs: 1024\n; Note: SWF has no field for gpu and mic\n" in text


def test_a_folder_of_finished_runs_is_no_run_that_is_not_over(tmp_path: Path) -> None:
    simulate(eurora_sample(20), EURORA, "easy").save(tmp_path / "easy")
    with pytest.raises(InputError, match="name the folder that simulate was given as --out"):
        Run.load(tmp_path)
    (tmp_path / "easy" / "run.json").unlink()
    with pytest.raises(InputError, match="the run in it is not over"):
        Run.load(tmp_path)
