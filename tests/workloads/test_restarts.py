"""Which jobs may be restarted: a column of a table, or a share of the users."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Workload
from cpdispatch.simulator.replay import fingerprint
from cpdispatch.workloads import from_table, prepare, read, restarts, table

JOBS = 60


def of_users(user: list[int | None]) -> Workload:
    jobs = len(user)
    columns = {
        "id": range(jobs), "submit": range(jobs), "runtime": 5, "units": 1, "core": 1,
        "user": user,
    }  # fmt: skip
    return from_table(columns)


LOG = of_users([k % 10 for k in range(JOBS)])


def marked(share: float, seed: int = 0, log: Workload = LOG) -> list[int]:
    return restarts.mark(log, share, seed).table.restartable.tolist()


def test_a_share_is_drawn_by_user_with_the_seed() -> None:
    for share in (0.0, 0.2, 0.5, 1.0):
        found = np.array(marked(share)).reshape(-1, 10)
        assert (found == found[0]).all()
        assert found[0].sum() == 10 * share
    assert marked(0.5) == marked(0.5)
    assert len({tuple(marked(0.5, seed)) for seed in range(8)}) > 4


def test_a_larger_share_has_the_users_of_a_smaller_one() -> None:
    assert (np.array(marked(0.3)) <= np.array(marked(0.6))).all()


def test_jobs_of_unknown_users_are_drawn_one_by_one() -> None:
    log = of_users([None] * (JOBS - 2) + [1, 1])
    found = marked(0.5, log=log)
    assert 0 < sum(found[:-2]) < JOBS - 2
    assert found[-1] == found[-2]
    nobody = of_users([None] * JOBS)
    assert sum(marked(0.5, log=nobody)) == JOBS // 2


def test_the_draw_does_not_depend_on_which_part_of_the_log_is_replayed() -> None:
    whole = prepare(LOG, "4", restartable="0.5", seed=3)[0]
    part = prepare(LOG, "4", restartable="0.5", seed=3, jobs=13)[0]
    assert part.table.restartable.tolist() == whole.table.restartable[:13].tolist()


TABLE = "id,submit,runtime,units,core,restartable,requeue\n"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_says_which_jobs_and_keeps_it(tmp_path: Path, suffix: str) -> None:
    log = restarts.mark(LOG, 0.5, 1)
    path = tmp_path / f"log{suffix}"
    table.write(log, path)
    again = prepare(path, "4")[0]
    assert again.table.restartable.tolist() == log.table.restartable.tolist()
    assert sum(prepare(path, "4", restartable="none")[0].table.restartable) == 0
    assert sum(prepare(path, "4", restartable="all")[0].table.restartable) == JOBS
    table.write(LOG, path)
    assert sum(read(path).table.restartable) == 0


def test_a_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("id,submit,runtime,units,core,requeue\n1,0,5,1,1,1\n2,0,5,1,1,0\n3,0,5,1,1,\n")
    log, _ = prepare(path, "4", restartable="requeue")
    assert log.table.restartable.tolist() == [1, 0, 0]
    assert log.resources == ("core",)
    with pytest.raises(InputError, match="requeued: the column is missing"):
        prepare(path, "4", restartable="requeued")


@pytest.mark.parametrize(
    ("cell", "problem"), [("2", "csv:2: field restartable: neither 0 nor 1"), ("x", "not a whole")]
)
def test_a_cell_that_is_neither_is_named(tmp_path: Path, cell: str, problem: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"id,submit,runtime,units,core,restartable\n1,0,5,1,1,{cell}\n")
    with pytest.raises(InputError, match=problem):
        read(path)


def test_what_is_neither_a_share_nor_a_column_is_refused(tmp_path: Path) -> None:
    swf = tmp_path / "log.swf"
    swf.write_text("1 0 -1 5 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1\n")
    for log, which, problem in (
        (LOG, "1.5", "a share from 0 to 1"),
        (LOG, "nan", "a share from 0 to 1"),
        (LOG, "requeue", "a column is for a file"),
        (swf, "requeue", "is not a table and has no column of that name"),
    ):
        with pytest.raises(UsageError, match=problem):
            prepare(log, "4", restartable=which)


def test_a_log_without_restartable_jobs_has_the_checksum_of_earlier_versions() -> None:
    assert fingerprint(restarts.mark(LOG, 0.0)) == fingerprint(LOG)
    assert fingerprint(restarts.mark(LOG, 1.0)) != fingerprint(LOG)
