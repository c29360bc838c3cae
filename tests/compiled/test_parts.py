"""Parts of compiled replays by themselves."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.compiled.replay import _number
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.simulator import simulate
from cpdispatch.system import NAMED, NodeGroup, System
from cpdispatch.workloads.generate import eurora_sample
from tests.scripts import WITH_TESTS

values = st.sampled_from([0, 1, 2, 5, 1 << 40])


@given(st.lists(st.tuples(values, values, values), max_size=30))
def test_jobs_alike_in_all_columns_have_one_number_in_the_order_of_the_values(rows: list) -> None:
    columns = list(np.array(rows, dtype=np.int64).reshape(-1, 3).T)
    number = np.zeros(len(rows), dtype=np.int64)
    one = _number(columns, number)
    distinct = sorted(set(rows))
    assert [distinct.index(row) for row in rows] == number.tolist()
    assert [rows[job] for job in one] == distinct


@pytest.mark.parametrize("dispatcher", ["easy", "conservative", "reject"])
def test_jobs_looked_at_in_parts_are_replayed_as_at_once(
    monkeypatch: pytest.MonkeyPatch, dispatcher: str
) -> None:
    jobs, system = eurora_sample(150, seed=2), NAMED["eurora"]
    units = jobs.table.units.copy()
    units[[7, 70]] = 1 << 20  # these never fit
    columns = [*jobs.table.columns]
    columns[2] = units
    jobs = Workload(
        "parts", jobs.resources, JobTable(columns, jobs.table.labels),
        jobs.runtime_s, jobs.preceding, jobs.think_s,
    )  # fmt: skip
    whole = simulate(jobs, system, dispatcher)
    monkeypatch.setattr("cpdispatch.compiled.replay._JOBS", 64)
    monkeypatch.setattr("cpdispatch.simulator.records._JOBS", 7)
    parts = simulate(jobs, system, dispatcher)
    assert parts.about["compiled"]
    assert parts.job_table.equals(whole.job_table)
    general = simulate(jobs, system, dispatcher, compiled=False)
    assert general.job_table.equals(parts.job_table)


UNITS = """
import sys
sys.modules["numba"] = None
from cpdispatch.simulator import simulate
from tests.compiled.test_parts import many_units
run = simulate(*many_units(), "easy")
print(run.about["compiled"], run.job_table.column("start").to_pylist())
"""
"""In plain Python: to compile all kernels for other arrays takes as long as a hundred tests."""


def many_units() -> tuple[Workload, System]:
    """More units of a job than four bytes can count, and as many cores."""
    many = 1 << 32
    block = job_block(id=range(3), submit_s=[0, 1, 2], units=[many, many, 1], requested_s=10,
                      request=[[1, 0]] * 3)  # fmt: skip
    none = np.full(3, -1, dtype=np.int64)
    jobs = Workload("many", ("core", "mem"), JobTable(block), none + 11, none, none.copy())
    return jobs, System("wide", ("core", "mem"), (NodeGroup("all", 1, (many + 1, 1)),))


def test_units_beyond_four_bytes_are_counted_right() -> None:
    command = [sys.executable, "-c", WITH_TESTS + UNITS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True [0, 10, 2]\n"
