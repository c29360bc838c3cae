"""The Gymnasium environment: its interface, and that rules in it are the dispatchers."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cpdispatch as cpd
from cpdispatch.errors import UsageError
from cpdispatch.jobs import Workload
from cpdispatch.predict.last import Last2
from cpdispatch.system import Limit, Maintenance, NodeGroup, System
from tests.effort import examples
from tests.strategies import systems, workloads

gymnasium = pytest.importorskip("gymnasium", reason="the environment needs Gymnasium: extra rl")
rl = pytest.importorskip("cpdispatch.rl")

SAMPLE = cpd.eurora_sample(300)


def shortest(info: dict[str, Any]) -> int:
    return int(np.argmin(np.where(info["action_mask"], info["expected_s"], 2**62)))


def played(
    env: Any, choose: Callable[[dict[str, Any]], int], **options: Any
) -> tuple[float, dict[str, Any]]:
    """The sum of the rewards of an episode, and what is known at its end."""
    _, info = env.reset(seed=1, options=options)
    total, over = 0.0, False
    while not over:
        _, reward, over, cut, info = env.step(choose(info))
        total += reward
        assert not cut
    return total, info


def test_gymnasiums_own_checker_finds_nothing() -> None:
    from gymnasium.utils.env_checker import check_env

    made = gymnasium.make(rl.ID, log=SAMPLE, system="eurora", jobs=40, render_mode="ansi")
    check_env(made.unwrapped)


@pytest.mark.parametrize("backfill", ["fcfs", "saf", None])
def test_shortest_first_is_the_dispatcher_to_the_digit(backfill: str | None) -> None:
    env = rl.Dispatch(SAMPLE, "eurora", jobs=0, window=300, backfill=backfill)
    total, info = played(env, shortest)
    workload, system = cpd.prepare(SAMPLE, "eurora")
    name = f"easy-spf-{backfill}" if backfill else "easy-spf-fcfs:depth=0"
    run = cpd.simulate(workload, system, name)
    for figure in ("bounded_slowdown_mean", "wait_s_mean", "makespan_s", "backfilled"):
        assert info["metrics"][figure] == run.metrics[figure], figure
    assert total == pytest.approx(-run.metrics["bounded_slowdown_mean"], rel=1e-12)


@pytest.mark.log
def test_so_it_is_on_a_real_log(trace: Callable[[str], Path]) -> None:
    log = trace("KTH-SP2-1996-2.1-cln")
    env = gymnasium.make(rl.ID, log=log, system="100", jobs=1000, window=500)
    _, info = played(env, shortest, first=0)
    run = cpd.simulate(*cpd.prepare(log, "100", jobs=1000), "easy-spf-fcfs")
    assert info["metrics"]["bounded_slowdown_mean"] == run.metrics["bounded_slowdown_mean"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System]:
    system = draw(systems())
    return draw(workloads(system)), system


@settings(max_examples=examples(60))
@given(cases(), st.integers(0, 2**20))
def test_whatever_is_chosen_the_schedule_is_feasible_and_rewards_add_up(
    case: tuple[Workload, System], seed: int
) -> None:
    draws = np.random.default_rng(seed)
    workload, system = case
    try:
        env = rl.Dispatch(workload, system, jobs=0, window=3, metric="wait_s_mean")
    except UsageError:
        return  # no job fits
    observed, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        assert env.observation_space.contains(observed)
        assert (observed["mask"] == info["action_mask"]).all()
        observed, reward, over, _, info = env.step(int(draws.integers(0, 3)))
        total += reward
    assert info["metrics"]["jobs_never_started"] == 0
    assert info["metrics"]["decisions"] > 0
    assert total == pytest.approx(-info["metrics"]["wait_s_mean"], rel=1e-9, abs=1e-9)


def test_a_limit_of_units_on_a_node_is_not_shown() -> None:
    columns = {"id": [1, 2, 3], "submit": 0, "runtime": 60, "units": [2, 2, 1], "core": 1}
    log = cpd.from_table(columns | {"units_per_node_max": [1, 0, 0]})
    nodes = System("two", ("core",), (NodeGroup("n", 2, (2,)),))
    env = rl.Dispatch(log, nodes, jobs=0, window=3, render_mode="ansi")
    observed, _ = env.reset(seed=1)
    over = False
    assert observed["jobs"][:, 4:].tolist() == [[0.5], [0.5], [0.25]]
    assert env.render().splitlines()[0] == "time 0 s, queue 3, free: core 100%"
    while not over:
        assert env.observation_space.contains(observed)
        observed, _, over, _, _ = env.step(0)


def test_a_job_that_a_limit_forbids_for_ever_is_left_out() -> None:
    columns = {"id": [1, 2, 3], "submit": 0, "runtime": 60, "units": [2, 4, 2], "core": 1}
    system = replace(System.pool(4), limits=(Limit(3, "core"),))
    env = rl.Dispatch(cpd.from_table(columns), system, jobs=0, metric="wait_s_mean")
    total, info = played(env, lambda info: 0)
    assert info["metrics"]["jobs_never_started"] == 0
    assert total == -info["metrics"]["wait_s_mean"] == -30


def test_a_job_that_starts_twice_is_paid_for_once() -> None:
    closed = Maintenance(100, 50)
    node = replace(System.pool(1), maintenance=(closed,))
    columns = {"id": [1, 2, 3], "submit": [0, 1, 500], "runtime": [20, 150, 20], "units": 1}
    log = cpd.from_table(columns | {"core": 1, "requested": [20, 60, 20]})
    env = rl.Dispatch(log, node, jobs=0, metric="wait_s_mean")
    total, info = played(env, lambda info: 0)
    assert total == pytest.approx(-info["metrics"]["wait_s_mean"])


@pytest.mark.parametrize("metric", ["bounded_slowdown_p95", "makespan_s", "utilisation"])
def test_a_metric_that_is_known_at_the_end_is_the_last_reward(metric: str) -> None:
    env = rl.Dispatch(SAMPLE, "eurora", jobs=50, metric=metric)
    total, info = played(env, shortest, first=10)
    assert total == info["metrics"][metric] * (1 if metric in rl.MORE_IS_BETTER else -1)


def test_episodes_are_drawn_by_seed_and_named_by_their_first_job() -> None:
    env = rl.Dispatch(SAMPLE, "eurora", jobs=20)
    first = [env.reset(seed=seed)[1]["submit_s"][0] for seed in (3, 3, 4, 5, 6)]
    assert first[0] == first[1]
    assert len(set(first)) > 2
    assert env.reset(options={"first": 280})[1]["submit_s"][0] == SAMPLE.table.submit_s[280]


def test_a_predictor_of_ones_own_begins_each_episode_anew() -> None:
    env = rl.Dispatch(SAMPLE, "eurora", jobs=50, predictor=Last2())
    before = env.reset(options={"first": 10})[0]["jobs"]
    played(env, shortest, first=10)
    assert np.array_equal(env.reset(options={"first": 10})[0]["jobs"], before)


def test_many_environments_step_at_once() -> None:
    made = gymnasium.make_vec(
        rl.ID, num_envs=3, vectorization_mode="sync", log=SAMPLE, system="eurora", jobs=20
    )
    observed, info = made.reset(seed=0)
    assert observed["jobs"].shape == (3, rl.WINDOW, 8)
    _, reward, over, _, info = made.step(np.zeros(3, dtype=np.int64))
    assert reward.shape == over.shape == (3,)
    assert info["action_mask"].shape == (3, rl.WINDOW)


def test_it_is_shown_as_text() -> None:
    env = rl.Dispatch(SAMPLE, "eurora", jobs=20, render_mode="ansi")
    env.reset(seed=0)
    lines = env.render().splitlines()
    assert lines[0].startswith("time ")
    assert "free: core " in lines[0]
    assert lines[1].startswith("  job ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 0}, "window 0: a whole number of jobs, 1 or more, is needed"),
        ({"window": 1.5}, "window 1.5: a whole number of jobs"),
        ({"jobs": 1.5}, "jobs 1.5: a whole number, 0 or more, is needed"),
        ({"jobs": float("nan")}, "jobs nan: a whole number"),
        ({"metric": None}, "unknown metric None"),
        ({"metric": "fun"}, "unknown metric 'fun'"),
        ({"backfill": "spff"}, "spff"),
        ({"render_mode": "human"}, "unknown render mode 'human'"),
        ({"log": "nowhere.swf", "system": "100"}, "no such file"),
    ],
)
def test_wrong_arguments_are_told(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(cpd.CpdispatchError, match=message):
        rl.Dispatch(**({"log": SAMPLE, "system": "eurora"} | arguments))


def test_a_step_without_a_moment_is_told() -> None:
    env = rl.Dispatch(SAMPLE, "eurora", jobs=20)
    with pytest.raises(UsageError, match=r"before reset\(\)"):
        env.step(0)
    with pytest.raises(UsageError, match="first 281"):
        env.reset(options={"first": 281})


@pytest.mark.parametrize("action", [1.5, "a", None, [1], True])
def test_an_action_is_a_whole_number(action: Any) -> None:
    env = rl.Dispatch(SAMPLE, "eurora", jobs=20)
    env.reset(seed=1)
    with pytest.raises(UsageError, match="the number of a place in the window is needed"):
        env.step(action)


@pytest.mark.parametrize("action", [-1, 64, np.int64(10**6)])
def test_a_place_without_a_job_stands_for_the_first_job(action: Any) -> None:
    found = []
    for each in (0, action):
        env = rl.Dispatch(SAMPLE, "eurora", jobs=20)
        _, info = env.reset(seed=1)
        over, total = False, 0.0
        while not over:
            _, reward, over, _, info = env.step(each)
            total += reward
        found.append((total, info["metrics"]))
    assert found[0][0] == found[1][0]


def test_an_unknown_option_of_an_episode_is_told() -> None:
    with pytest.raises(UsageError, match=r"unknown option .frist.; did you mean first\?"):
        rl.Dispatch(SAMPLE, "eurora", jobs=20).reset(seed=1, options={"frist": 3})


def test_the_example_learns_something_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / "examples" / "learn_to_dispatch.py"
    example = runpy.run_path(str(path))
    example["main"](1, 4)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "by submission mean bounded slowdown 23.6"
    assert second.startswith("learned       mean bounded slowdown ")
