from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cpdispatch import workloads
from cpdispatch.errors import InputError
from cpdispatch.workloads import swf, table
from cpdispatch.workloads.generate import eurora_sample


@pytest.mark.parametrize(
    "name", ["a.b-2.1.swf", "a.swf.gz", "a.swf.xz", "a.swf.zst", "a.csv", "a.csv.gz", "a.parquet"]
)
def test_the_extension_chooses_the_reader(tmp_path: Path, name: str) -> None:
    sample = eurora_sample(20)
    (swf if ".swf" in name else table).write(sample, tmp_path / name)
    workload = workloads.read(tmp_path / name)
    assert len(workload) == 20
    assert workload.per_processor == (".swf" in name)
    assert workload.name == name.split(".swf")[0].split(".csv")[0].split(".parquet")[0]


@pytest.mark.parametrize("name", ["log.txt", "log", "log.gz", "log.parquet.gz", "log.swf.bz2"])
def test_an_unknown_extension_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"unknown extension .*\.swf, \.csv, \.parquet"):
        workloads.read(tmp_path / name)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        workloads.read(tmp_path / "log.swf")


def test_filter_and_processors_reach_the_reader(tmp_path: Path) -> None:
    swf.write(eurora_sample(200), tmp_path / "a.swf")
    workload = workloads.read(tmp_path / "a.swf", "strong", processors=16)
    assert workload.notes["dropped: larger than the machine"] > 0
    assert workload.table.units.max() <= 16


def test_importing_the_readers_does_not_import_pandas() -> None:
    code = "import sys, cpdispatch.workloads; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
