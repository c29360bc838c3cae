from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Workload
from cpdispatch.system import NAMED, NodeGroup, System
from cpdispatch.workloads import generate as mixes
from cpdispatch.workloads import lublin, read
from cpdispatch.workloads.clock import by_day, month_of, slot_of, wall_s, weekday_of
from cpdispatch.workloads.slots import Limits, SlotModel, _Progress, fit, generate, load, save
from tests.effort import examples
from tests.workloads.cases import DAY_S, HOUR_S, STOCKHOLM, log

EURORA = NAMED["eurora"]
GPUS = Limits({"core": (1, 8), "mem": (0, 4)}, {"gpu": 0.5, "mic": 0.1}, {"gpu": 50, "mic": 30})


@cache
def model() -> SlotModel:
    """Of jobs of the Lublin model, a month of them."""
    return fit(lublin.generate(3000, request_factor=2.5))


def room(system: System, request: Any) -> int:
    asked = request > 0
    return int((system.capacity[:, asked] // request[asked]).min(axis=1).sum())


def fits(workload: Workload, system: System) -> bool:
    shapes = {
        (tuple(row), units)
        for row, units in zip(
            workload.table.request.tolist(), workload.table.units.tolist(), strict=True
        )
    }
    return all(room(system, np.array(row)) >= units for row, units in shapes)


def offered(workload: Workload, system: System) -> float:
    work = (workload.table.units * workload.runtime_s) @ workload.table.request
    has = system.total > 0
    return float(np.max(work[has] / system.total[has]) / np.ptp(workload.table.submit_s))


# ---------------------------------------------------------------------------------- generating


@st.composite
def targets(draw: st.DrawFn) -> tuple[System, Limits]:
    """Systems of one or two groups, and limits that a node of the first group can meet."""
    cores, gpus, mem = draw(st.integers(1, 32)), draw(st.integers(0, 4)), draw(st.integers(1, 64))
    groups = [NodeGroup("a", draw(st.integers(1, 20)), (cores, gpus, mem))]
    if draw(st.booleans()):
        groups.append(NodeGroup("b", draw(st.integers(1, 20)), (draw(st.integers(0, 8)), 0, 8)))
    most = draw(st.integers(1, cores))
    request = {"core": (draw(st.integers(1, most)), most), "mem": (0, draw(st.integers(0, mem)))}
    share = draw(st.floats(0, 1)) if gpus else 0.0
    accelerators = {"gpu": share} if gpus else {}
    if gpus:
        request["gpu"] = (1, draw(st.integers(1, gpus)))
    # A type that nobody has is none of a system's.
    names, has = ("core", *(("gpu",) if gpus else ()), "mem"), [True, gpus > 0, True]
    groups = [replace(g, capacity=tuple(compress(g.capacity, has))) for g in groups]
    return (
        System("drawn", names, tuple(groups)),
        Limits(request, accelerators, {"gpu": 10.0} if gpus else {}),
    )


@settings(max_examples=examples(60))
@given(targets(), st.integers(1, 200), st.integers(0, 9), st.sampled_from([None, 0.5, 2.0]))
def test_every_job_fits_the_system_and_the_limits(
    target: tuple[System, Limits], jobs: int, seed: int, load: float | None
) -> None:
    system, limits = target
    made = generate(model(), system, jobs, seed, limits=limits, load=load)
    assert len(made) == jobs
    assert fits(made, system)
    for name, (least, most) in limits.request.items():
        asked = made.table.request[:, system.resources.index(name)]
        assert asked.max() <= most
        # Jobs smaller than the least number of cores, and those without a GPU, ask for less.
        assert asked.min() >= (least if name == "mem" else name == "core")
    assert made.runtime_s.min() >= 1
    assert np.all(made.table.requested_s >= made.runtime_s)
    assert made.table.submit_s.min() >= 0


@given(st.integers(0, 5))
def test_the_same_seed_makes_the_same_jobs(seed: int) -> None:
    one, again = (generate(model(), EURORA, 100, seed, limits=GPUS) for _ in range(2))
    assert np.array_equal(one.table.block, again.table.block)
    assert np.array_equal(one.runtime_s, again.runtime_s)
    assert one.header == again.header


def test_another_seed_makes_other_jobs() -> None:
    one, other = (generate(model(), EURORA, 50, seed) for seed in (0, 1))
    assert not np.array_equal(one.table.submit_s, other.table.submit_s)


def test_the_asked_for_shares_of_the_jobs_use_an_accelerator_and_never_two() -> None:
    made = generate(model(), EURORA, 20_000, limits=GPUS)
    gpu, mic = made.table.request[:, 1], made.table.request[:, 2]
    assert np.mean(gpu > 0) == pytest.approx(0.5, abs=0.02)
    assert np.mean(mic > 0) == pytest.approx(0.1, abs=0.02)
    assert not np.any((gpu > 0) & (mic > 0))


def test_jobs_on_faster_units_take_less_time() -> None:
    slow = generate(model(), System.pool(256), 2000)
    fast = generate(model(), System.pool(256), 2000, limits=Limits(performance={"core": 4.0}))
    assert np.array_equal(slow.table.units, fast.table.units)
    long = slow.runtime_s > 100
    ratio = slow.runtime_s[long] / fast.runtime_s[long]
    assert ratio == pytest.approx(4.0, rel=0.02)


def test_jobs_with_a_gpu_take_less_time_than_those_without() -> None:
    limits = Limits(accelerators={"gpu": 0.5}, performance={"gpu": 9.0})
    system = System("gpus", ("core", "gpu"), (NodeGroup("a", 256, (1, 1)),))
    plain = generate(model(), system, 2000)
    some = generate(model(), system, 2000, limits=limits)
    assert np.array_equal(plain.table.units, some.table.units)
    uses = some.table.request[:, 1] > 0
    sure = plain.runtime_s > 100
    assert np.array_equal(plain.runtime_s[~uses], some.runtime_s[~uses])
    ratio = plain.runtime_s[uses & sure] / some.runtime_s[uses & sure]
    assert ratio == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("load", [0.2, 0.8, 1.2])
@pytest.mark.parametrize("jobs", [50, 200, 5000])
def test_the_offered_load_is_what_was_asked_for(load: float, jobs: int) -> None:
    for system, limits in ((System.pool(256), Limits()), (EURORA, GPUS)):
        made = generate(model(), system, jobs, load=load, limits=limits)
        assert offered(made, system) == pytest.approx(load, rel=0.06)


def test_requested_times_are_those_of_jobs_of_like_runtime() -> None:
    source = lublin.generate(3000, request_factor=2.5)
    made = generate(fit(source), System.pool(256), 3000)
    longer = made.table.requested_s > made.runtime_s
    assert set(made.table.requested_s[longer].tolist()) <= set(source.table.requested_s.tolist())
    factor = made.table.requested_s / made.runtime_s
    assert np.median(factor) == pytest.approx(2.5, rel=0.1)


def test_on_slow_units_jobs_ask_for_no_less_than_they_run() -> None:
    slow = generate(model(), System.pool(256), 2000, limits=Limits(performance={"core": 0.05}))
    assert slow.runtime_s.max() > max(max(row) for row in model().requested_s)
    assert np.all(slow.table.requested_s >= slow.runtime_s)


def test_sizes_that_a_small_system_has_no_room_for_are_not_drawn() -> None:
    units = generate(model(), System.pool(31), 5000).table.units
    small = {
        size: jobs
        for size, jobs in zip(model().sizes, model().size_jobs, strict=True)
        if size <= 31
    }
    assert set(units.tolist()) <= set(small)
    assert np.mean(units == 1) == pytest.approx(small[1] / sum(small.values()), abs=0.03)


def test_a_log_without_requested_times_makes_none_up() -> None:
    made = generate(fit(lublin.generate(3000)), System.pool(256), 100)
    assert np.array_equal(made.table.requested_s, made.runtime_s)


def test_the_made_jobs_begin_on_the_day_of_the_log() -> None:
    submit = np.sort(np.random.default_rng(0).integers(0, 40 * DAY_S, 400))
    submit[0] = 0
    source = log(submit.tolist(), 1, range(1, 401), STOCKHOLM)
    made = generate(fit(source), System.pool(100), 400)
    assert wall_s(made)[0] // DAY_S == wall_s(source)[0] // DAY_S
    assert len(set(month_of(wall_s(made)).tolist())) <= 3
    assert "; MaxProcs: 100" in made.header


def test_hours_without_jobs_in_the_log_get_none() -> None:
    random = np.random.default_rng(0)
    submit = np.sort(random.integers(0, 21, 600) * DAY_S + random.integers(9, 17, 600) * HOUR_S)
    made = generate(fit(log(submit.tolist(), 1, range(1, 601))), System.pool(100), 600)
    hours = made.table.submit_s % DAY_S // HOUR_S
    assert set(hours.tolist()) == set(range(9, 17))


def test_progress_speeds_up_what_is_behind_its_share_and_slows_down_what_is_ahead() -> None:
    progress = _Progress()
    assert progress.correction((9, 0, 0)) == 1
    progress.count((9, 0, 0), wanted=10.0, made=5)
    assert 1 < progress.correction((9, 3, 3)) < progress.correction((9, 0, 0)) <= 3
    progress.count((10, 1, 1), wanted=10.0, made=20)
    assert progress.correction((10, 3, 3)) < 1
    progress.count((11, 2, 2), wanted=10.0, made=10**6)
    assert progress.correction((11, 2, 2)) == pytest.approx(1 / 3)
    assert progress.correction((12, 4, 4)) == 1


def test_a_few_jobs_that_all_come_at_once_are_made_all_the_same() -> None:
    burst = msgspec.structs.replace(model(), gaps=(*[0.0] * 127, 128.0))
    made = generate(burst, System.pool(256), 5)
    assert np.ptp(made.table.submit_s) < HOUR_S


def test_a_log_of_accelerators_is_learned_by_the_performance_of_all_its_units() -> None:
    sample = mixes.generate(mixes.EURORA, 12_000)
    learned = fit(sample, {"core": 1.0, "gpu": 100.0})
    power = sample.table.units * (sample.table.request @ [1.0, 100.0, 0.0, 0.0])
    cores = sample.table.units * sample.table.request[:, 0]
    work = sample.runtime_s * power / cores
    made = [quantile for part in learned.classes for quantile in part.work]
    assert max(made) == pytest.approx(work.max())
    assert min(made) == pytest.approx(work.min())


# --------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits({"fpga": (1, 1)}), "fpga is not a resource type of the system eurora"),
        (Limits({"core": (4, 2)}), "request limits of core: 4 to 2"),
        (Limits({"core": (0, 2)}), "from 1 or more for core"),
        (Limits({"mem": (-1, 2)}), "request limits of mem: -1 to 2"),
        (
            Limits({"core": (1, 17)}),
            "of core: 1 to 17; a node of the system eurora has 16 at most: lower the limit",
        ),
        (Limits({"gpu": (1, 1), "mic": (1, 1)}), "no node of the system eurora has"),
        (Limits({"gpu": (0, 1), "mic": (0, 1)}), "no node .* has 1 core, 1 gpu, 1 mic for a unit"),
        (Limits(accelerators={"gpu": 0.5}), "say how fast gpu is.*core=1,gpu=50"),
        (Limits(accelerators={"core": 0.5}), "say how fast core is"),
        (Limits(accelerators={"gpu": 0.7, "mic": 0.7}), "must add up to 1 at most"),
        (Limits(accelerators={"gpu": float("nan")}), "must add up to 1"),
        (Limits(performance={"core": 1e-30}), "jobs would run"),
        (Limits(performance={"core": 0.0}), "numbers above 0 are needed"),
        (Limits(performance={"gpu": float("inf")}), "numbers above 0 are needed"),
    ],
)  # fmt: skip
def test_limits_that_cannot_be_met_are_refused(limits: Limits, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(model(), EURORA, 50, limits=limits)


@pytest.mark.parametrize(
    ("jobs", "seed", "load"), [(0, 0, None), (1, -1, None), (1, 0, 0.0), (1, 0, float("nan"))]
)
def test_numbers_out_of_range_are_refused(jobs: int, seed: int, load: float | None) -> None:
    with pytest.raises(UsageError, match=r"^(jobs|seed|load) \S+: .* needed"):
        generate(model(), EURORA, jobs, seed, load=load)


def test_a_system_without_cores_is_refused() -> None:
    system = System("odd", ("slot",), (NodeGroup("a", 1, (4,)),))
    with pytest.raises(UsageError, match="jobs are made of cores: odd has none"):
        generate(model(), system, 10)


def test_a_model_whose_weights_never_let_the_jobs_in_is_refused() -> None:
    quiet = msgspec.structs.replace(model(), weekdays=(1e-12,) * 7)
    with pytest.raises(UsageError, match="the weights of the model let in"):
        generate(quiet, EURORA, 10)


def test_a_rate_that_takes_for_ever_is_refused() -> None:
    with pytest.raises(UsageError, match="would take longer than 400,000 days"):
        generate(msgspec.structs.replace(model(), jobs_per_day=1e-9), EURORA, 10)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (log(range(0, 700_000, 10_000)), "small: 70 jobs are too few to learn from"),
        (log(range(200)), "small: the log spans 1 days, too few"),
        (log(range(0, 10**6, 1000), runtime_s=0), "small: field runtime: no job has a runtime"),
    ],
)
def test_a_log_that_says_too_little_is_refused(source: Workload, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(source)


def test_performance_of_nothing_that_the_jobs_ask_for_is_refused() -> None:
    with pytest.raises(UsageError, match="performance of gpu: the jobs of lublin-256 ask for core"):
        fit(lublin.generate(3000), {"gpu": 3.0})
    with pytest.raises(InputError, match="asks for nothing of mic"):
        fit(mixes.generate(mixes.EURORA, 12_000), {"mic": 3.0})


# --------------------------------------------------------------------------- saved and loaded


@pytest.mark.parametrize("name", ["model.json", "model.json.gz"])
def test_a_saved_model_is_loaded_as_it_was(tmp_path: Path, name: str) -> None:
    save(model(), tmp_path / name)
    assert load(tmp_path / name) == model()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "cpdispatch-slots/9", r"field format.*\(found 'cpdispatch-slots/9'\)"),
        ("slots", [1.0] * 47, "slots needs 48 weights"),
        ("weekdays", [0.0] * 7, "weekdays needs 7 weights from 0 to 1,000,000, not all 0"),
        ("months", [1.0] * 11 + [-1.0], "months needs 12"),
        ("jobs_per_day", 0.0, "jobs_per_day and performance must be above 0"),
        ("sizes", [4, 2], "sizes must ascend from 1 or more"),
        ("sizes", [], "sizes must ascend from 1 or more"),
        ("size_jobs", [1], "size_jobs needs a number"),
        ("classes", [], "classes must ascend"),
        ("gaps", [1.0], "a distribution needs"),
        ("start_s", 5, "start_s must be a midnight"),
        ("runtimes_s", [1], "requested_s needs a row"),
        ("runtimes_s", [5] * 20, "runtimes_s must ascend"),
        ("requested_s", [[0]] * 20, "requested_s must be 1 or more"),
        ("seed", 1, "unknown key"),
    ],
)
def test_a_model_that_was_edited_wrongly_is_refused(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    data = msgspec.json.decode(msgspec.json.encode(model()))
    path = tmp_path / "model.json"
    path.write_bytes(msgspec.json.encode(data | {key: value}))
    with pytest.raises(InputError, match=message) as raised:
        load(path)
    assert str(raised.value).startswith(str(path))


# --------------------------------------------------------------------------------- a real log


def apart(one: Any, other: Any) -> float:
    """Largest difference of the two distributions (Kolmogorov and Smirnov's)."""
    values = np.union1d(one, other)
    shares = [
        np.searchsorted(np.sort(column), values, "right") / len(column) for column in (one, other)
    ]
    return float(np.abs(shares[0] - shares[1]).max())


@pytest.mark.log
@pytest.mark.parametrize("seed", [0, 1])
def test_a_real_log_is_reproduced(trace: Callable[[str], Path], seed: int) -> None:
    real = read(trace("KTH-SP2-1996-2"))
    made = generate(fit(real), System.pool(100), len(real), seed)
    both = (real, made)
    hours = [np.bincount(slot_of(wall_s(w)) // 2, minlength=24) / len(w) for w in both]
    assert np.abs(hours[1] - hours[0]).max() < 0.006
    for kind, count, most in ((weekday_of, 7, 0.08), (month_of, 12, 0.12)):
        days = [by_day(wall_s(w), kind, count) for w in both]
        assert np.abs(days[1] - days[0]).max() < most
    for column, most in (
        (lambda w: w.table.units * w.runtime_s, 0.03),
        (lambda w: w.runtime_s, 0.03),
        (lambda w: w.table.units, 0.01),
        (lambda w: w.table.requested_s, 0.03),
        (lambda w: np.diff(w.table.submit_s), 0.05),
    ):
        assert apart(column(real), column(made)) < most
    shares = [np.mean(w.table.units == 1) for w in both]
    assert shares[1] == pytest.approx(shares[0], abs=0.01)
    assert offered(made, System.pool(100)) == pytest.approx(
        float(real.table.units @ real.runtime_s) / 100 / np.ptp(real.table.submit_s), rel=0.1
    )
