"""A log is read, a part of it selected, and that fitted to a system, in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Workload
from cpdispatch.system import System, find
from cpdispatch.workloads import from_table, prepare, read
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.select import select

JOBS = """; MaxProcs: 8
; UnixStartTime: 0
1 0 -1 60 2 -1 -1 2 90 -1 1 1 1 1 1 1 -1 -1
2 5 -1 30 4 -1 -1 4 90 -1 1 1 1 1 1 1 -1 -1
3 90000 -1 30 1 -1 -1 1 90 -1 1 1 1 1 1 1 -1 -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "three.swf"
    path.write_text(JOBS)
    return path


def assert_same(one: Workload, other: Workload) -> None:
    assert (one.name, one.resources) == (other.name, other.resources)
    assert one.table.block.tolist() == other.table.block.tolist()
    assert one.runtime_s.tolist() == other.runtime_s.tolist()


def test_a_log_without_a_system_runs_on_a_pool_of_its_machine_s_size(log: Path) -> None:
    workload, system = prepare(log)
    assert_same(workload, fit(read(log), System.pool(8)))
    assert system.processors == 8


def test_the_three_steps_are_those_by_hand(log: Path) -> None:
    seth = find("seth")
    for part in ({"jobs": 2}, {"since": "1970-01-01T00:00:02"}, {"until": "1970-01-02"}):
        workload, system = prepare(log, "seth", units="per-node", **part)  # type: ignore[arg-type]
        by_hand = fit(select(read(log), **part), seth, "per-node")  # type: ignore[arg-type]
        assert_same(workload, by_hand)
        assert system is seth


def test_a_system_may_be_a_number_of_processors(log: Path) -> None:
    assert prepare(log, 3)[1].processors == 3
    with pytest.raises(UsageError, match="must be 1 or more"):
        prepare(log, 0)


def test_numbers_may_be_those_of_numpy(log: Path) -> None:
    workload, system = prepare(log, np.int64(3), jobs=np.int64(2))  # type: ignore[arg-type]
    assert (len(workload), system.processors) == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"system": 4.0}, "system 4.0: a System, its name, its file, or a whole number of proc"),
        ({"system": [4]}, r"system \[4\]: a System"),
        ({"log": {"id": [1]}}, "log of type dict: name a file, or make .* cpdispatch.from_table"),
        ({"log": None}, "log of type NoneType: name a file"),
        ({"jobs": 1.5}, "--jobs 1.5: a whole number, 1 or more, is needed"),
        ({"jobs": "2"}, "--jobs '2': a whole number, 1 or more, is needed"),
        ({"since": 3}, "date 3: write it as 2026-01-31"),
        ({"restartable": "0.5", "seed": -1}, "seed -1: a whole number, 0 or more, is needed"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(
    log: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        prepare(**{"log": log, "system": 4} | arguments)


def test_the_strong_filter_knows_the_size_of_the_system(log: Path) -> None:
    assert prepare(log, System.pool(3), filter="strong")[0].table.id.tolist() == [1, 3]


def test_a_workload_is_prepared_as_a_file_is_and_cannot_be_filtered_again(log: Path) -> None:
    assert_same(prepare(read(log), jobs=1)[0], prepare(log, jobs=1)[0])
    with pytest.raises(UsageError, match="filter 'strong' is for a file"):
        prepare(read(log), filter="strong")


def test_a_log_of_an_unknown_machine_needs_a_system() -> None:
    columns = {"id": [1], "submit": [0], "runtime": [60], "units": 1, "core": 1}
    with pytest.raises(UsageError, match=r"^mine does not say how large its machine is"):
        prepare(from_table(columns, "mine"))


def test_what_was_dropped_from_the_whole_log_is_not_told_of_a_part_of_it(log: Path) -> None:
    log.write_text(JOBS + "4 90001 -1 30 -1 -1 -1 -1 90 -1 1 1 1 1 1 1 -1 -1\n")
    assert prepare(log)[0].notes == {"dropped: size unknown": 1}
    assert prepare(log, jobs=2)[0].notes == {"dropped: size unknown, in the whole log": 1}


def test_dates_without_jobs_are_refused_with_those_of_the_log(log: Path) -> None:
    with pytest.raises(InputError, match="the log has jobs from 1970-01-01 to 1970-01-02"):
        prepare(log, since="1999-10-01")


def test_dates_in_the_wrong_order_are_refused(log: Path) -> None:
    with pytest.raises(UsageError, match="--from 1970-01-02 is not before --to 1970-01-01"):
        prepare(log, since="1970-01-02", until="1970-01-01")


def test_dates_are_known_where_submissions_count_seconds_since_1970() -> None:
    noon_s = 1_767_268_800  # of 1 January 2026
    columns = {"id": [1, 2, 3], "runtime": [60] * 3, "units": 1, "core": 1}
    known = from_table({**columns, "submit": [noon_s, noon_s + 86_400, noon_s + 172_800]}, "known")
    part, _ = prepare(known, System.pool(3), since="2026-01-02", until="2026-01-03")
    assert part.table.id.tolist() == [2]
    unknown = from_table({**columns, "submit": [0, 86_400, 172_800]}, "unknown")
    with pytest.raises(InputError, match=r"^unknown: the log does not say when it began"):
        prepare(unknown, System.pool(3), since="2026-01-02")
