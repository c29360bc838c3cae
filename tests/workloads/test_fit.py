from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from cpdispatch.errors import InputError, UsageError
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.system import NAMED, NodeGroup, System
from cpdispatch.workloads import swf
from cpdispatch.workloads.fit import RULES, fit
from cpdispatch.workloads.generate import eurora_sample
from tests.workloads.strategies import processor_workloads

GB = 1024 * 1024
KIT = NAMED["kit"]


def log(sizes: list[int], memory_kb: int = 0) -> Workload:
    """A log of jobs of these numbers of processors, each with this memory per processor."""
    jobs = len(sizes)
    request = np.tile(np.array([1, memory_kb]), (jobs, 1))
    block = job_block(
        id=np.arange(jobs), submit_s=np.arange(jobs), units=sizes, requested_s=10, request=request
    )
    zeros = np.zeros(jobs, dtype=np.int64)
    return Workload(
        "log", ("core", "mem"), JobTable(block), zeros.copy(), zeros.copy(), zeros.copy(),
        memory_unit_kb=1, per_processor=True,
    )  # fmt: skip


def test_a_log_of_processors_gets_units_of_one_core_by_default() -> None:
    fitted = fit(log([1, 7, 64], memory_kb=3 * GB), KIT)
    assert fitted.resources == ("core", "gpu", "mem")
    assert fitted.table.units.tolist() == [1, 7, 64]
    assert fitted.table.request.tolist() == [[1, 0, 3]] * 3
    assert (fitted.memory_unit_kb, fitted.per_processor) == (GB, False)


@pytest.mark.parametrize(
    ("processors", "units", "cores"),
    [(1, 1, 1), (7, 1, 7), (20, 1, 20), (23, 23, 1), (40, 2, 20), (64, 4, 16), (21, 3, 7)],
)
def test_per_node_makes_units_of_the_largest_divisor_that_fits_a_thin_node(
    processors: int, units: int, cores: int
) -> None:
    fitted = fit(log([processors], memory_kb=GB), KIT, "per-node")
    assert fitted.table.units.tolist() == [units]
    assert fitted.table.request.tolist() == [[cores, 0, cores]]


@given(processor_workloads())
def test_per_node_keeps_every_processor_and_fits_every_node_with_cores(workload: Workload) -> None:
    fitted = fit(workload, KIT, "per-node")
    cores = fitted.table.request[:, 0]
    assert np.array_equal(fitted.table.units * cores, workload.table.units)
    assert cores.max() <= 20
    for size, share in zip(workload.table.units.tolist(), cores.tolist(), strict=True):
        assert not any(size % larger == 0 for larger in range(share + 1, 21))


def test_a_node_is_one_of_the_smallest_group_that_has_cores() -> None:
    groups = (NodeGroup("gpu", 2, (0, 4)), NodeGroup("big", 2, (16, 0)), NodeGroup("s", 2, (6, 0)))
    fitted = fit(log([16]), System("odd", ("core", "gpu"), groups), "per-node")
    assert (fitted.table.units.tolist(), fitted.table.request.tolist()) == ([4], [[4, 0]])


def test_memory_is_rounded_up_to_the_unit_of_the_system_after_it_is_added_up() -> None:
    half = log([4], memory_kb=GB // 2 + 1)
    assert fit(half, KIT).table.request.tolist() == [[1, 0, 1]]
    assert fit(half, KIT, "per-node").table.request.tolist() == [[4, 0, 3]]


def test_memory_that_the_system_does_not_state_is_left_out_and_counted() -> None:
    pool = System.pool(64)
    assert fit(log([2, 3], memory_kb=5), pool).notes == {
        "ignored: memory, the system does not state any": 2
    }
    without = fit(log([2, 3]), pool)
    assert (without.resources, without.notes) == (("core",), {})
    assert without.table.request.tolist() == [[1], [1]]


def test_what_reading_noted_stays() -> None:
    read = replace(log([1], memory_kb=5), notes={"dropped: size unknown": 3})
    ignored = {"ignored: memory, the system does not state any": 1}
    assert fit(read, System.pool(4)).notes == {"dropped: size unknown": 3, **ignored}
    assert read.notes == {"dropped: size unknown": 3}


def test_a_workload_of_resource_types_is_taken_as_it_is_in_the_order_of_the_system() -> None:
    sample = eurora_sample(40)
    turned = System(
        "turned", ("mem", "gpu", "disk", "mic", "core"), (NodeGroup("n", 64, (16, 2, 1, 2, 16)),),
        memory_unit_kb=GB // 2,
    )  # fmt: skip
    fitted = fit(sample, turned)
    core, gpu, mic, mem = sample.table.request.T
    expected = np.stack([2 * mem, gpu, 0 * core, mic, core], axis=1)
    assert np.array_equal(fitted.table.request, expected)
    assert np.array_equal(fitted.table.units, sample.table.units)


def test_memory_in_no_stated_unit_is_in_the_systems_own() -> None:
    sample = replace(eurora_sample(40), memory_unit_kb=None)
    fitted = fit(sample, NAMED["eurora"])
    assert np.array_equal(fitted.table.request, sample.table.request)


def test_fitting_twice_changes_nothing() -> None:
    once = fit(log([40], memory_kb=GB), KIT, "per-node")
    twice = fit(once, KIT)
    assert np.array_equal(once.table.block, twice.table.block)


def test_a_resource_type_that_the_system_lacks_is_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match=r"field gpu: jobs ask for gpu, and the system gaia"):
        fit(eurora_sample(200), NAMED["gaia"])
    with pytest.raises(InputError, match="field core"):
        fit(log([1]), System("odd", ("mem",), (NodeGroup("n", 1, (8,)),)))


def test_a_column_of_zeros_that_the_system_lacks_is_no_error() -> None:
    sample = eurora_sample(200)
    only_cpu = np.flatnonzero(sample.table.request[:, 1:3].sum(axis=1) == 0)
    assert fit(sample.take(only_cpu), NAMED["gaia"]).resources == ("core", "mem")


@pytest.mark.parametrize("rule", ["processors", "per-node"])
def test_the_rules_for_processors_refuse_other_workloads(rule: str) -> None:
    with pytest.raises(UsageError, match=f"the rule {rule} is for logs .* use as-is"):
        fit(eurora_sample(20), NAMED["eurora"], rule)


def test_an_unknown_rule_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=f"unknown rule 'nodes'.* {', '.join(RULES)}"):
        fit(log([1]), KIT, "nodes")


def test_per_node_needs_a_system_with_cores() -> None:
    with pytest.raises(UsageError, match="needs a system with cores"):
        fit(log([1]), System("odd", ("gpu",), (NodeGroup("n", 1, (8,)),)), "per-node")


def test_memory_beyond_counting_is_an_error_and_does_not_wrap_around() -> None:
    with pytest.raises(InputError, match="asks for more mem than can be counted"):
        fit(log([16], memory_kb=2**47), KIT, "per-node")


@pytest.mark.log
def test_the_kit_mapping_on_a_real_log_keeps_its_processors(
    trace: Callable[[str], Path],
) -> None:
    workload = swf.read(trace("HPC2N-2002-2.2-cln"))
    fitted = fit(workload, NAMED["seth"], "per-node")
    cores = fitted.table.request[:, 0]
    assert np.bincount(cores).tolist() == [0, 86_668, 40_210, 4_758, 71_235]
    assert np.array_equal(fitted.table.units * cores, workload.table.units)


@pytest.mark.log
@pytest.mark.parametrize(
    ("name", "system", "jobs"),
    [
        ("alea-wagap-2013", "metacentrum", 17_898),
        ("RICC-2010-2", "ricc", 447_794),
        ("UniLu-Gaia-2014-1", "gaia-gpu", 51_860),
    ],
)
def test_every_job_of_a_log_fits_the_named_system_that_it_comes_from(
    trace: Callable[[str], Path], name: str, system: str, jobs: int
) -> None:
    workload = fit(swf.read(trace(name)), NAMED[system])
    assert len(workload) == jobs
    assert system_fits(NAMED[system], workload.table).all()
