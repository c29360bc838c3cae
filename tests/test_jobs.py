"""Tables of jobs whose columns are one block, or apart."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.arrays import compact, is_compact
from cpdispatch.jobs import Column, JobTable, Workload, on_pool
from cpdispatch.simulator import simulate
from cpdispatch.simulator.replay import fingerprint
from cpdispatch.system import System
from cpdispatch.workloads import from_table
from tests.simulator.cases import workload
from tests.strategies import systems, workloads


def apart(jobs: Workload) -> Workload:
    """The same jobs, each column by itself and compact where it can be."""
    columns = [compact(column) for column in jobs.table.block]
    columns[Column.EXPECTED] = columns[Column.UPPER] = columns[Column.REQUESTED]
    return replace(
        jobs,
        table=JobTable(columns, jobs.table.labels),
        runtime_s=compact(jobs.runtime_s),
        preceding=compact(jobs.preceding),
        think_s=compact(jobs.think_s),
    )


JOBS = workload([(0, 1, 5, 5), (1, 2, 9, 9), (3, 1, 9, 7), (3, 4, 2, 2)])


def test_a_column_of_one_value_is_compact() -> None:
    columns = apart(JOBS).table.columns
    found = {which.name for which in Column if is_compact(columns[which])}
    assert found == set(Column.__members__) - {
        "ID",
        "SUBMIT",
        "UNITS",
        "REQUESTED",
        "EXPECTED",
        "UPPER",
    }


@given(systems(max_nodes=3).flatmap(workloads))
def test_columns_apart_say_what_a_block_says(jobs: Workload) -> None:
    other = apart(jobs)
    assert len(other.table) == len(jobs.table)
    assert list(other.table) == list(jobs.table)
    assert np.array_equal(other.table.block, jobs.table.block)
    assert np.array_equal(other.table.request, jobs.table.request)
    some = np.arange(len(jobs))[::-2]
    assert list(other.table.take(some)) == list(jobs.table.take(some))
    assert fingerprint(other, dependencies=True) == fingerprint(jobs, dependencies=True)


def test_jobs_of_other_names_or_terms_have_another_fingerprint() -> None:
    plain: dict[str, object] = {"id": [1, 2], "submit": 0, "runtime": 5, "units": 1, "core": 1}
    others = [
        {}, {"user": ["a", "b"]}, {"user": ["a", "c"]}, {"begin": [-1, 9]}, {"begin": [9, -1]},
        {"licences": ["x:1", ""]}, {"licences": ["x:2", ""]}, {"array": ["x", "x"]},
        {"array": ["x", "x"], "array_limit": 1},
    ]  # fmt: skip
    found = [fingerprint(from_table(plain | more)) for more in others]
    assert len(set(found)) == len(others)
    assert fingerprint(from_table(plain | {"begin": [-1, -1], "licences": ""})) == found[0]


@given(st.lists(st.integers(0, 2), min_size=2, max_size=5))
def test_pickled_columns_stay_compact_and_shared(gaps: list[int]) -> None:
    jobs = apart(workload([(int(at), 1, 9 + k, 3) for k, at in enumerate(np.cumsum(gaps))]))
    again = pickle.loads(pickle.dumps(jobs, protocol=5))
    assert list(again.table) == list(jobs.table)
    table = again.table.columns
    assert table[Column.EXPECTED] is table[Column.REQUESTED]
    for name in ("runtime_s", "preceding", "think_s"):
        assert np.array_equal(getattr(again, name), getattr(jobs, name))
        assert is_compact(getattr(again, name))
        assert not getattr(again, name).flags.writeable


def test_columns_apart_are_replayed_as_a_block_is() -> None:
    for compiled in (True, False):
        one, other = (
            simulate(jobs, System.pool(4), "easy", compiled=compiled)
            for jobs in (JOBS, apart(JOBS))
        )
        assert one.job_table.equals(other.job_table)


def test_processors_on_a_pool_are_the_same_in_whichever_unit_memory_is_counted() -> None:
    nodes, cores = 1000, 64
    for bytes_a_node in (256, 256 << 20, 256 << 30):
        total = nodes * np.array([cores, bytes_a_node])
        wide = workload([(0, units, 5, 5) for units in (1, 500, 700, 1000)]).table.columns
        request = np.broadcast_to(np.array([[0], [bytes_a_node]]), (2, 4))
        jobs = JobTable([*wide[: Column.REQUEST], *request])
        assert on_pool(jobs, total).tolist() == [cores * units for units in (1, 500, 700, 1000)]
