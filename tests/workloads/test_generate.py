from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from cpdispatch.errors import UsageError
from cpdispatch.jobs import Column, Workload
from cpdispatch.system import NAMED, NodeGroup, System
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.generate import EURORA, KIT, MIXES, Mix, eurora_sample, generate

SEEDS = range(6)
GOLDEN = "2946ea7791419f0ac430e54463d66ac50186e9b3739f0449140f7f09d072de8c"


def classes(workload: Workload) -> dict[str, np.typing.NDArray[np.bool_]]:
    gpu, mic = (workload.table.request[:, k] > 0 for k in (1, 2))
    return {"cpu": ~gpu & ~mic, "gpu": gpu, "mic": mic}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "share", "minutes"), [("cpu", 0.246, 49), ("gpu", 0.747, 7.4), ("mic", 0.007, 56)]
)
def test_the_published_mix_of_eurora_holds(
    seed: int, name: str, share: float, minutes: float
) -> None:
    sample = eurora_sample(seed=seed)
    of_class = classes(sample)[name]
    assert of_class.mean() == pytest.approx(share, abs=1 / len(sample))
    assert sample.runtime_s[of_class].mean() / 60 == pytest.approx(minutes, rel=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_92_percent_of_the_jobs_end_within_an_hour(seed: int) -> None:
    assert np.mean(eurora_sample(seed=seed).runtime_s < 3600) == pytest.approx(0.92, abs=0.005)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("mix", "load"), [(EURORA, 0.8), (EURORA, 0.4), (KIT, 0.9)])
def test_the_offered_load_is_what_was_asked_for(mix: Mix, load: float, seed: int) -> None:
    workload = generate(mix, 3000, seed, load)
    work = (workload.table.units * workload.runtime_s) @ workload.table.request
    span_s = np.ptp(workload.table.submit_s)
    assert np.max(work / NAMED[mix.name].total / span_s) == pytest.approx(load, rel=0.001)


def test_runtimes_are_heavy_tailed_and_requests_overestimate_them() -> None:
    sample = eurora_sample()
    runtime_s, requested_s = sample.runtime_s, sample.table.requested_s
    longest = np.sort(runtime_s)[-len(sample) // 20 :]
    assert longest.sum() > 0.4 * runtime_s.sum()
    assert np.all(runtime_s <= requested_s)
    assert 0.005 < np.mean(runtime_s == requested_s) < 0.03
    assert np.median(runtime_s / requested_s) < 0.25
    assert np.all(
        np.isin(requested_s, [60 * m for m in (5, 10, 15, 30, 60, 120, 240, 360, 480, 720, 1440)])
    )


def test_requests_stay_within_the_limit_of_their_queue() -> None:
    sample = eurora_sample()
    limits = np.array([limit for _, limit in EURORA.queues])
    queue = sample.table.column(Column.QUEUE)
    assert np.all(sample.table.requested_s <= limits[queue])
    assert set(sample.table.labels["queue"]) == {"debug", "parallel", "longpar"}
    assert np.mean(sample.table.requested_s == limits[queue]) > 0.3


def test_users_submit_bursts_of_like_jobs_by_day() -> None:
    sample = eurora_sample()
    table = sample.table
    program = table.column(Column.EXECUTABLE)
    near = np.diff(table.submit_s) < 60
    assert np.mean(near) > 0.5
    hour = table.submit_s // 3600 % 24
    day, night = np.mean((hour >= 9) & (hour < 18)), np.mean((hour < 7) | (hour >= 22))
    assert day > 1.5 * night
    logs = np.log(sample.runtime_s)
    within = sum(np.var(logs[program == p]) * np.sum(program == p) for p in np.unique(program))
    assert within / len(sample) < 0.7 * np.var(logs)


def test_users_are_active_by_zipf_and_each_program_is_one_users() -> None:
    table = eurora_sample(20_000).table
    user = table.column(Column.USER)
    activity = np.sort(np.bincount(user, minlength=60))[::-1]
    assert (activity > 0).sum() == 60
    assert activity[:6].sum() > 3 * activity[-30:].sum()
    for position in range(0, len(table), 97):
        assert table.label("executable", position).startswith(table.label("user", position))


def test_a_week_end_is_quieter_than_the_days_before() -> None:
    submit_s = generate(EURORA, 40_000, load=0.8).table.submit_s
    weekday = (submit_s // 86_400 + EURORA.first_day) % 7
    weeks = submit_s < submit_s[-1] // (7 * 86_400) * 7 * 86_400
    jobs = np.bincount(weekday[weeks], minlength=7)
    assert jobs[5:].mean() < 0.75 * jobs[:5].mean()


def test_every_job_fits_its_system() -> None:
    for name, mix in MIXES.items():
        system = NAMED[name]
        workload = generate(mix, 500)
        assert fit(workload, system).resources == system.resources
        for row, units in {(tuple(r), u) for r, u in zip(
            workload.table.request.tolist(), workload.table.units.tolist(), strict=True
        )}:  # fmt: skip
            asked = np.array(row)
            room = (system.capacity[:, asked > 0] // asked[asked > 0]).min(axis=1).sum()
            assert room >= units


def test_the_sample_is_the_same_everywhere() -> None:
    """The bundled sample's figures are quoted in the documentation: it must never drift."""
    sample = eurora_sample()
    assert len(sample) == 5000
    assert not sample.table.restartable.any()
    assert not sample.table.priority.any()
    block = np.delete(
        sample.table.block, [Column.RESTARTABLE, Column.PRIORITY, Column.TIER], axis=0
    )
    content = block.tobytes() + sample.runtime_s.tobytes()
    content += repr(sorted(sample.table.labels.items())).encode()
    assert hashlib.sha256(content).hexdigest() == GOLDEN


def test_seeds_give_different_jobs_and_the_same_seed_the_same() -> None:
    one, again, other = (eurora_sample(100, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.table.block, again.table.block)
    assert np.array_equal(one.runtime_s, again.runtime_s)
    assert not np.array_equal(one.table.submit_s, other.table.submit_s)


@pytest.mark.parametrize("jobs", [2, 3, 10, 57, 1000])
def test_any_number_of_jobs_can_be_made(jobs: int) -> None:
    for mix in MIXES.values():
        workload = generate(mix, jobs)
        assert len(workload) == jobs
        assert workload.runtime_s.min() >= 1
        assert workload.table.id.tolist() == list(range(1, jobs + 1))


def test_twenty_thousand_jobs_on_kit_have_the_shares_of_its_mix() -> None:
    workload = generate(KIT, 20_000)
    gpu = workload.table.request[:, 1] > 0
    assert gpu.sum() == 1200
    for kind, of_class in zip(KIT.classes, (~gpu, gpu), strict=True):
        runtime_s = workload.runtime_s[of_class]
        assert runtime_s.mean() == pytest.approx(kind.runtime_s_mean, rel=0.02)
        assert np.mean(runtime_s >= 3600) == pytest.approx(kind.long_share, abs=0.01)


@pytest.mark.parametrize(("jobs", "seed", "load"), [(1, 0, 0.8), (10, -1, 0.8), (10, 0, 0.0)])
def test_numbers_out_of_range_are_refused(jobs: int, seed: int, load: float) -> None:
    with pytest.raises(UsageError, match=r"^(jobs|seed|load) \S+: .* needed"):
        generate(EURORA, jobs, seed, load)


def test_a_system_that_cannot_run_the_mix_is_refused() -> None:
    with pytest.raises(UsageError, match="asks for gpu, which gaia has not"):
        generate(EURORA, 10, system=NAMED["gaia"])
    small = System("small", ("core", "gpu", "mic", "mem"), (NodeGroup("n", 8, (16, 2, 2, 16)),))
    with pytest.raises(UsageError, match="small has room for 8 units"):
        generate(EURORA, 10, system=small)


def test_a_mix_whose_means_contradict_each_other_is_refused() -> None:
    kind = replace(KIT.classes[0], runtime_s_mean=600.0, share=1.0)
    with pytest.raises(UsageError, match="the cpu jobs of the mix kit cannot run 600"):
        generate(replace(KIT, classes=(kind,)), 10)


def test_a_mix_can_be_varied() -> None:
    kind = replace(KIT.classes[0], share=1.0, runtime_s_mean=600.0, long_share=0.0)
    workload = generate(replace(KIT, classes=(kind,)), 400)
    assert workload.runtime_s.mean() == pytest.approx(600, rel=0.02)
    assert workload.runtime_s.max() < 3600


def test_a_load_that_takes_too_many_days_is_refused() -> None:
    with pytest.raises(UsageError, match="would take longer than 400,000 days"):
        generate(EURORA, 100, load=1e-13)
