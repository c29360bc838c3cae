"""Jobs that outlive what they were taken for: killed once, queued again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.analyze import compare
from cpdispatch.decision import Decision, Reason
from cpdispatch.errors import InputError, InterruptedRunError, UsageError
from cpdispatch.experiment import Experiment, RunSummary, tables
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.instance import Instance
from cpdispatch.jobs import Job
from cpdispatch.simulator import Run, Watch, simulate
from cpdispatch.simulator.replay import finished
from cpdispatch.system import System
from tests.simulator.cases import Row, workload

POOL = System.pool(4)


@dataclass
class Judge:
    """Takes every job for one of so many seconds; those that ask for no more are not bounded."""

    bound_s: int = 10
    name: str = "judge"
    heard: list[tuple[int, int]] = field(default_factory=list)

    def predict(self, job: Job, now: int) -> float:
        return min(self.bound_s, job.requested_s)

    def learn(self, job: Job, runtime_s: int) -> None:
        self.heard.append((job.id, runtime_s))

    def bound(self, job: Job) -> int | None:
        return self.bound_s if self.bound_s < job.requested_s else None


def restarted(rows: list[Row], **how: Any) -> Run:
    how = {"dispatcher": "easy", "predictor": Judge(), "idempotent": True, **how}
    return simulate(workload(rows), POOL, **how)


def test_a_killed_job_is_back_before_another_event_of_the_second_in_which_its_nodes_are_clear():
    """Job 1 is killed at 10, and its nodes are clear at 40: before job 3 is submitted."""
    log = workload([(0, 2, 100, 50), (5, 1, 5, 5), (40, 1, 5, 5)], {2: (1, 0)})
    met: dict[int, list[list[int]]] = {}

    def look(instance: Instance) -> None:
        met.setdefault(instance.now, []).append(instance.queue.id.tolist())

    run = simulate(
        log, POOL, "easy", predictor=Judge(), trigger="event", dependencies=True, idempotent=True,
        restart_cost_s=30, watch=Watch(seen=look),
    )  # fmt: skip
    assert run.verify() == []
    assert met[40] == [[1, 2], [2, 3]]
    assert run.jobs["start"].tolist() == [40, 120, 40]


@pytest.mark.parametrize("correction", ["minimal", "incremental", "requested"])
def test_a_misjudged_job_is_killed_before_another_event_of_the_second(correction: str) -> None:
    """Job 2 is killed at 10, when job 1 ends and job 3 is submitted."""
    met: dict[int, list[list[int]]] = {}

    def look(instance: Instance) -> None:
        met.setdefault(instance.now, []).append(instance.running.end_s.tolist())

    run = restarted(
        [(0, 1, 10, 10), (0, 2, 100, 50), (10, 4, 10, 10)], trigger="event", correction=correction,
        watch=Watch(seen=look),
    )  # fmt: skip
    assert run.verify() == []
    assert met[10] == [[], [110]]  # job 2 is in the queue; then job 3
    assert run.jobs["start"].tolist() == [0, 10, 60]


def sound(run: Run) -> bool:
    return verify.run(run.jobs, run.system, restarts=True) == []


def test_a_job_that_outlives_its_bound_is_killed_and_runs_in_full_later() -> None:
    judge = Judge()
    run = restarted([(0, 3, 100, 50), (0, 4, 100, 9), (20, 1, 5, 5)], predictor=judge)
    jobs = run.jobs
    # Job 1 is killed at 10 s, and is first in the queue again: 10 to 60 s, before job 2.
    assert jobs["lost_start"].tolist() == [0, -1, -1]
    assert jobs["lost_end"].tolist() == [10, -1, -1]
    assert [list(nodes) for nodes in jobs["lost_nodes"]] == [[0], [], []]
    assert [list(units) for units in jobs["lost_node_units"]] == [[3], [], []]
    assert jobs["start"].tolist() == [10, 60, 20]
    assert jobs["end"].tolist() == [60, 69, 25]
    assert jobs["expected_s"].tolist() == [10, 10, 5]
    assert judge.heard == [(3, 5), (1, 50), (2, 9)]
    assert run.metrics["restarts"] == 1
    assert run.metrics["wasted_processor_s"] == 30
    assert run.metrics["wait_s_max"] == 60
    assert sound(run)


def test_a_job_is_killed_once_and_its_requested_time_expected_from_then_on() -> None:
    seen: list[tuple[int, list[int], list[int]]] = []

    def note(instance: Instance) -> None:
        running = instance.running.jobs
        seen.append((instance.now, instance.queue.expected_s.tolist(), running.id.tolist()))

    run = restarted([(0, 4, 100, 500)], watch=Watch(seen=note))
    assert seen == [(0, [10], []), (10, [100], [])]
    assert run.jobs["end"].tolist() == [510]


def test_a_job_that_ends_at_its_bound_is_not_killed() -> None:
    run = restarted([(0, 4, 100, 10), (0, 4, 100, 11)])
    assert run.jobs["lost_end"].tolist() == [-1, 20]
    assert sound(run)


def test_without_the_flag_nobody_is_killed() -> None:
    run = restarted([(0, 3, 100, 50)], idempotent=False)
    assert run.jobs["end"].tolist() == [50]
    assert "lost_start" not in run.jobs
    assert "restarts" not in run.metrics


def test_a_limit_on_runtimes_holds_for_the_second_attempt() -> None:
    run = restarted([(0, 4, 40, 500)], kill_at_limit=True)
    assert run.jobs["end"].tolist() == [50]
    assert run.jobs["killed"].tolist() == [True]
    assert sound(run)


def test_a_job_queued_again_is_where_its_submission_puts_it() -> None:
    queues = []

    def note(instance: Instance) -> None:
        queues.append(instance.queue.id.tolist())

    run = restarted([(0, 1, 9, 9), (0, 4, 50, 50), (5, 4, 50, 5)], watch=Watch(seen=note))
    assert queues[-2:] == [[2, 3], [3]]
    assert run.jobs["start"].tolist() == [0, 19, 69]


def test_a_job_whose_successor_waits_for_its_real_end() -> None:
    log = workload([(0, 4, 100, 30), (10, 1, 5, 5)], after={2: (1, 0)})
    for trigger in ("instant", "event"):
        run = simulate(log, POOL, "easy", predictor=Judge(), trigger=trigger, dependencies=True,
                       idempotent=True)  # fmt: skip
        assert run.jobs["start"].tolist() == [10, 40], trigger
        assert verify.run(run.jobs, POOL, dependencies=True, restarts=True) == []


def test_a_job_that_the_dispatcher_refuses_the_second_time_was_lost_all_the_same() -> None:
    class Once:
        name = "once"

        def dispatch(self, instance: Instance) -> Decision:
            rule = Backfill() if instance.now == 0 else Reject()
            return rule.dispatch(instance)

    run = restarted([(0, 2, 100, 50)], dispatcher=Once())
    assert run.jobs["start"].tolist() == [-1]
    assert run.jobs["reason"].tolist() == [Reason.REJECTED.name.lower()]
    assert run.metrics["wasted_processor_s"] == 20
    assert sound(run)


rows = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 5), st.integers(1, 40), st.integers(0, 60)),
    min_size=1, max_size=25,
).map(sorted)  # fmt: skip


@settings(deadline=None)
@given(
    rows,
    st.integers(1, 30),
    st.sampled_from(
        ["easy", "easy-small-small", "easy-spf-saf:threshold=20", "conservative", "prb"]
    ),
    st.sampled_from(["instant", "event"]),
    st.booleans(),
)
def test_every_schedule_with_restarts_is_sound(
    jobs: list[Row], bound_s: int, dispatcher: str, trigger: str, kill_at_limit: bool
) -> None:
    run = restarted(
        jobs, predictor=Judge(bound_s), dispatcher=dispatcher, trigger=trigger,
        kill_at_limit=kill_at_limit,
    )  # fmt: skip
    assert verify.run(run.jobs, POOL, restarts=True) == []
    table = run.jobs[run.jobs["start"] >= 0]
    runs_s = np.minimum(table["runtime_s"], table["requested_s"] if kill_at_limit else 2**62)
    lost = (table["requested_s"] > bound_s) & (runs_s > bound_s)
    assert (table["lost_start"] >= 0).tolist() == lost.tolist()
    assert (table["lost_end"] - table["lost_start"])[lost].unique().tolist() in ([], [bound_s])


SOUND = [(0, 3, 100, 50), (0, 1, 100, 9), (3, 2, 5, 5)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lost_start": -2, "lost_end": -1}, "was never restarted, and its first attempt has"),
        ({"lost_end": 11}, "starts again at 10, killed at 11"),
        ({"submit": 2}, "job 1 starts at 0, submitted at 2"),
        ({"runtime_s": 10, "end": 20}, "killed for a restart: 10 s, it ends by itself after 10 s"),
        ({"lost_node_units": [2]}, "job 1 has 2 units on its nodes, it asks for 3"),
        ({"lost_nodes": [7]}, "job 1 ran on node 7"),
        ({"lost_start": -1, "lost_end": -1, "lost_nodes": [], "lost_node_units": []}, ""),
    ],
)
def test_an_attempt_that_cannot_have_been_is_found(change: dict[str, Any], complaint: str) -> None:
    jobs = restarted(SOUND).jobs.astype({"lost_nodes": object, "lost_node_units": object})
    for name, value in change.items():
        jobs.at[0, name] = value
    found = [str(violation) for violation in verify.run(jobs, POOL, restarts=True)]
    assert any(complaint in line for line in found) if complaint else found == []


def test_the_nodes_of_an_attempt_are_counted() -> None:
    jobs = restarted(SOUND).jobs
    jobs.loc[2, ["start", "end"]] = 5, 10
    assert any("4 allowed" in str(v) for v in verify.run(jobs, POOL, restarts=True))
    assert verify.run(jobs, POOL) == []
    with pytest.raises(InputError, match="lacks this column"):
        verify.run(jobs.drop(columns="lost_nodes"), POOL, restarts=True)


def test_a_run_with_restarts_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    jobs = [
        (int(t), int(q), 100, int(r))
        for t, q, r in zip(range(80), rng.integers(1, 5, 80), rng.integers(1, 60, 80), strict=True)
    ]
    whole, asked = restarted(jobs), 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 60

    with pytest.raises(InterruptedRunError):
        restarted(jobs, watch=Watch(folder=tmp_path, stop=stop))
    with pytest.raises(UsageError, match="its idempotent is True, not False"):
        restarted(jobs, watch=Watch(folder=tmp_path, resume=True), idempotent=False)
    resumed = restarted(jobs, watch=Watch(folder=tmp_path, resume=True))
    assert whole.job_table.equals(resumed.job_table)
    finished(resumed, tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.metrics["restarts"] == whole.metrics["restarts"] > 20
    assert sound(loaded)
    pd.testing.assert_frame_equal(loaded.jobs, whole.jobs)


def test_restarts_are_shown_where_there_are_any() -> None:
    def shown(*runs: Run) -> list[str]:
        ((_, rows),) = tables([RunSummary.of(run) for run in runs])
        (table,) = compare.tables(rows, 200)
        return [str(cell) for column in table.columns for cell in (column.header, *column.cells)]

    some, none = restarted(SOUND), restarted(SOUND, idempotent=False)
    assert {"jobs restarted", "  processor hours lost", "easy\nidempotent"} <= set(
        shown(none, some)
    )
    assert "jobs restarted" not in shown(none, none)
    assert "easy" in shown(some)


def test_a_predictor_that_bounds_no_job_is_refused() -> None:
    log = workload(SOUND)
    for refused in (
        lambda: simulate(log, POOL, "easy", idempotent=True),
        lambda: Experiment([(log, POOL)], ["easy"], [0]).check(
            1.0, {"predictor": "last2", "idempotent": True}
        ),
    ):
        with pytest.raises(UsageError, match="bounds no job, so that none would be restarted"):
            refused()
