from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpdispatch import predict, toys
from cpdispatch.campaign import Workers, local
from cpdispatch.events import read
from cpdispatch.experiment import Experiment, RunPlan, RunSummary, report_of, tables, warming
from cpdispatch.experiment import runs as making
from cpdispatch.simulator import Watch, simulate
from cpdispatch.system import NAMED
from cpdispatch.workloads.generate import eurora_sample


def told(
    dispatcher: str, seed: int, long: tuple[float, float], users: dict[str, tuple[float, float]]
) -> RunSummary:
    """A run of (jobs, mean wait) of long jobs, and of each user; the longest is twice as long."""
    about = {
        "dispatcher": dispatcher, "predictor": "walltime", "workload": "KTH", "notes": {},
        "system": {"name": "100"}, "seed": seed, "seconds": 1.0, "place": 4 + seed,
    }  # fmt: skip
    nan = math.nan
    none = {"jobs": 0, "wait_s_mean": nan, "wait_s_max": nan, "bounded_slowdown_mean": nan}
    jobs, wait_s = long
    some = {**none, "jobs": jobs, "wait_s_mean": wait_s, "wait_s_max": 2 * wait_s}
    classes = {"short": none, "medium": none, "long": some}
    figures = {"jobs": jobs, "wait_s_mean": wait_s, "wait_s_max": wait_s + seed}
    widths = {"narrow": none, "middle": none, "wide": {**some, "jobs": 9}}
    waits = {user: (jobs, wait_s, 2 * wait_s) for user, (jobs, wait_s) in users.items()}
    return RunSummary(about, figures, classes, widths, waits, {})


EASY = [
    told("easy", 0, (20, 100.0), {"ann": (10, 100.0), "bob": (15, 9.0)}),
    told("easy", 1, (20, 200.0), {"ann": (30, 300.0), "cyd": (25, 8.0)}),
]
HCP = [
    told("hcp", 0, (20, 200.0), {"ann": (10, 1000.0), "bob": (15, 9e9)}),
    told("hcp", 1, (20, 700.0), {"ann": (30, 600.0), "cyd": (25, 8.0)}),
]


def test_multiples_over_seeds_are_those_of_the_means() -> None:
    ((title, (easy, hcp)),) = tables([*EASY, *HCP])
    assert (title, easy["seeds"], hcp["first"]) == ("", 2, "easy")
    long = hcp["classes"]["long"]
    assert (easy["classes"]["long"]["wait_s_mean"], long["wait_s_mean"]) == (150, 450)
    assert (long["jobs"], long["wait_s_mean_times"]) == (20, 3)
    assert hcp["wait_s_max_times"] == 450.5 / 150.5
    # ann waits (10 x 100 + 30 x 300) / 40 = 250 s under easy, and 700 s under hcp; bob has 15
    # jobs in one run of two, 7.5 in the mean: too few; cyd has 12.5 and waits as before.
    # ann's longest waits are 2,000 and 1,200 s, under easy 200 and 600 s.
    waits = {"wait_s_mean": 700, "wait_s_mean_first": 250, "wait_s_mean_times": 2.8}
    longest = {"wait_s_max": 1600, "wait_s_max_first": 400, "wait_s_max_times": 4}
    assert hcp["users"] == {
        "counted": 2, "losing": 1, **waits,
        "each": [{"user": "ann", "jobs": 20, **waits, **longest}],
    }  # fmt: skip
    wide = hcp["widths"]["wide"]
    assert (wide["wait_s_mean_times"], wide["wait_s_max"], wide["wait_s_max_first"]) == (
        3,
        900,
        300,
    )


def test_draws_whose_jobs_differ_are_merged_with_as_many_restartable_jobs_as_each_has() -> None:
    draws = [
        replace(run, about=run.about | {"restarts": True, "restartable": 5 + run.about["seed"]})
        for run in EASY
    ]
    ((_, (row,)),) = tables(draws)
    assert row["seeds"] == 2


def test_a_class_that_has_no_jobs_in_one_run_has_the_mean_of_the_others() -> None:
    rare = told("easy", 0, (0, math.nan), {}), told("easy", 1, (4, 60.0), {})
    for runs in (rare, rare[::-1]):
        ((_, (row,)),) = tables(runs)
        assert row["classes"]["long"]["wait_s_mean"] == 60
        assert row["classes"]["long"]["jobs"] == 2
        assert math.isnan(row["classes"]["short"]["wait_s_mean"])


def test_programs_are_told_each_run_beside_that_of_its_seed_and_the_warnings_of_the_table() -> None:
    report = report_of([*EASY, *HCP])
    easy, _, *hcp = report["runs"]
    assert [run["classes"]["long"].get("wait_s_mean_times") for run in hcp] == [2, 3.5]
    assert [run["users"]["losing"] for run in hcp] == [1, 1]
    assert [run["users"]["wait_s_mean_times"] for run in hcp] == [1e9, 2]
    assert (easy["first"], easy["users"]) == (None, None)
    assert all("waits_of_users" not in run for run in report["runs"])
    assert [warning["text"] for warning in report["warnings"]] == [
        "hcp: long jobs wait 3.0 times as long as under easy (8 min instead of 2 min).",
        "hcp: the user that loses most waits 2.8 times as long as under easy "
        "(12 min instead of 4 min).",
        "hcp: the longest wait is 3.0 times as long as under easy (8 min instead of 3 min).",
    ]


@pytest.mark.parametrize("first", ["easy", "hcp"])
def test_the_run_that_is_named_first_is_what_the_others_are_measured_against(first: str) -> None:
    named: list[Any] = [*EASY, *HCP] if first == "easy" else [*HCP, *EASY]
    ((_, rows),) = tables(named)
    assert [row["first"] for row in rows] == [None, first]


def of_jobs(run: RunSummary, checksum: str) -> RunSummary:
    return replace(run, about={**run.about, "workload_sha256": checksum})


def test_runs_of_other_jobs_under_one_name_have_tables_of_their_own() -> None:
    users: dict[str, tuple[float, float]] = {}
    easy, fifo, hcp = (
        told(name, 0, (20, wait_s), users)
        for name, wait_s in (("easy", 100.0), ("fifo", 300.0), ("hcp", 200.0))
    )
    runs = [of_jobs(easy, "a" * 64), of_jobs(fifo, "b" * 64), of_jobs(hcp, "a" * 64)]
    (title, (one, two)), (other, (alone,)) = tables(runs)
    assert (title, other) == ("KTH on 100, jobs aaaaaaaa", "KTH on 100, jobs bbbbbbbb")
    assert (one["dispatcher"], two["dispatcher"], two["first"]) == ("easy", "hcp", "easy")
    assert (alone["dispatcher"], alone["first"]) == ("fifo", None)
    report = report_of(runs)
    assert [row["first"] for row in report["runs"]] == [None, None, "easy"]
    assert {warning["dispatcher"] for warning in report["warnings"]} == {"hcp"}


def test_each_seed_may_have_jobs_of_its_own() -> None:
    runs = [of_jobs(run, f"{seed}" * 64) for of in (EASY, HCP) for seed, run in enumerate(of)]
    for some in (runs, runs[:-1], runs[1:]):  # also where the run of a seed has failed
        ((title, (easy, hcp)),) = tables(some)
        assert (title, easy["first"], hcp["first"]) == ("", None, "easy")
    assert [row["first"] for row in report_of(runs)["runs"]] == [None, None, "easy", "easy"]


@pytest.mark.parametrize(
    ("dispatchers", "workers", "compiled"),
    [
        (("easy", "hcp"), Workers(cores=2), True),
        (("easy", "thesis-hcp3"), Workers(cores=2), False),
        (("hcp",), Workers(cluster="tcp://somewhere:8786"), False),
    ],
)
def test_kernels_of_the_engine_are_compiled_before_workers_of_this_machine_begin(
    dispatchers: tuple[str, ...],
    workers: Workers,
    compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    what: list[str] = []

    def begun(*given: Any, **more: Any) -> list[Any]:
        what.append("workers")
        return []

    monkeypatch.setattr(warming, "compile_kernels", lambda: what.append("kernels"))
    monkeypatch.setattr(making, "completed", begun)
    log = eurora_sample(20), NAMED["eurora"]
    experiment = Experiment([log], dispatchers, [0])
    plans = experiment.plans(RunPlan(dispatchers[0]))
    experiment.run(plans, workers, lambda done, tasks: None, lambda: False)
    assert what == (["kernels"] if compiled else []) + ["workers"]


def test_a_run_that_was_made_elsewhere_is_saved_as_one_that_was_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = eurora_sample(20), NAMED["eurora"]
    events = read("weibull:mtbf=30d,shape=0.7,repair=4h", checkpoints="every=1min,cost=20s")
    make, saved, far = making.make_run, [], tmp_path / "not there"
    for name in ("here", "there"):
        experiment = Experiment([log], ["easy"], [0])
        plans = experiment.plans(RunPlan("", rules={"events": events}, folder=tmp_path / name))
        experiment.run(plans, Workers(cores=1), lambda done, tasks: None, lambda: False)
        (file,) = (tmp_path / name).rglob("schedule.swf")
        saved.append(file.read_bytes())
        monkeypatch.setattr(making, "make_run", lambda *given: make(*given[:2], far))
    assert saved[0] == saved[1]
    again = simulate(*log, "easy", events=events, watch=Watch(folder=file.parent, resume=True))
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "schedule.swf").read_bytes() == saved[0]


def test_finished_runs_are_read_here_and_nothing_is_compiled_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = eurora_sample(20), NAMED["eurora"]
    experiment = Experiment([log], ["easy", "prb"], [0], draws=2)
    plans = experiment.plans(RunPlan("", folder=tmp_path))
    for _, plan in plans:
        making.make_run(log, plan, None)
    for module, name in ((toys, "simulated"), (predict, "warm_up"), (local, "in_workers")):
        monkeypatch.setattr(module, name, lambda *given: pytest.fail("nothing is to be run"))
    found, failure = experiment.run(plans, Workers(), lambda done, tasks: None, lambda: False)
    assert failure is None
    assert [(of.about["dispatcher"], of.about["draw"]) for of in found] == [
        (plan.dispatcher, plan.draw) for _, plan in plans
    ]
