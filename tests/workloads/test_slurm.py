"""A Slurm cluster's records: what of them becomes jobs, what is counted out, what is refused."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import cli, simulator, system, verify
from cpdispatch.errors import InputError, UsageError
from cpdispatch.system import Partition
from cpdispatch.workloads import prepare, slurm
from cpdispatch.workloads import read as read_workload
from cpdispatch.workloads.imported import STUCK
from cpdispatch.workloads.slurm import access, jobs, nodes, replayable, terms, values
from tests.adapters.slurm.jobs import duration_text

ROOT = Path(__file__).resolve().parents[2]
HEADER = (
    "JobID|JobIDRaw|JobName|User|Account|QOS|Partition|Submit|Eligible|Start|End|ElapsedRaw|State|"
    "Timelimit|AllocTRES|ReqTRES|ReqMem|NNodes|NCPUS|NodeList|Constraints|Restarts|SubmitLine"
)
NAMES = HEADER.split("|")


def record(**given: object) -> dict[str, str]:
    """A job of one node that ran for an hour."""
    values = {
        "JobID": "7", "JobIDRaw": "7", "JobName": "fit", "User": "ann", "Account": "phys",
        "QOS": "normal", "Partition": "main", "Submit": "2026-11-20T08:00:00",
        "Eligible": "2026-11-20T08:00:00", "Start": "2026-11-20T09:00:00",
        "End": "2026-11-20T10:00:00", "ElapsedRaw": "3600", "State": "COMPLETED",
        "Timelimit": "02:00:00", "AllocTRES": "billing=4,cpu=4,mem=8G,node=1",
        "ReqTRES": "billing=4,cpu=4,mem=8G,node=1", "ReqMem": "8G", "NNodes": "1", "NCPUS": "4",
        "NodeList": "n01", "Constraints": "", "Restarts": "0", "SubmitLine": "sbatch a.sh",
    }  # fmt: skip
    return values | {key: str(value) for key, value in given.items()}


def dump(path: Path, *records: dict[str, str], names: list[str] = NAMES, mark: str = "|") -> Path:
    lines = [mark.join(names), *(mark.join(row[name] for name in names) for row in records)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Any]:
    """What a dump of these records comes to."""

    def make(*records: dict[str, str], zone: str = "UTC", system: tuple[Path, ...] = ()) -> Any:
        return slurm.read([dump(tmp_path / "sacct.psv", *records)], system, zone)

    return make


# ------------------------------------------------------------------------------------- values


@given(st.integers(0, 10**9))
def test_a_duration_survives_being_written_and_read(seconds: int) -> None:
    assert values.duration_s(duration_text(seconds)) == seconds


@given(st.integers(0, 2**40), st.sampled_from("KMGT"), st.sampled_from(["", "n", "c"]))
def test_an_amount_of_memory_is_read_in_mb_rounded_up(amount: int, unit: str, each: str) -> None:
    kb = amount * {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}[unit]
    if kb > 1024 * 2**48:
        with pytest.raises(ValueError, match="can be counted"):
            values.size_mb(f"{amount}{unit}{each}")
    else:
        assert values.size_mb(f"{amount}{unit}{each}") == ((kb + 1023) // 1024, each)


@given(
    st.dictionaries(
        st.from_regex(r"(cpu|node|mem|gres/gpu(:[a-z0-9]+)?|license/[a-z]+)", fullmatch=True),
        st.integers(0, 10**6).map(str),
    )
)
def test_a_tres_string_survives_being_written_and_read(parts: dict[str, str]) -> None:
    assert values.tres(",".join(f"{name}={many}" for name, many in parts.items())) == parts


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(1, 9)), min_size=1))
def test_the_tasks_of_an_array_are_counted(pieces: list[tuple[int, int, int]]) -> None:
    text, wanted = [], 0
    for first, more, step in pieces:
        text.append(f"{first}-{first + more}:{step}")
        wanted += len(range(first, first + more + 1, step))
    assert values.tasks_of(f"12_[{','.join(text)}%4]") == wanted


def test_types_of_gpus_may_begin_with_a_digit() -> None:
    assert values.gpus_of_gres("gpu:4K,gpu:1g") == {"gpu": 4097, "gpu_1g": 1}
    for wrong in ("gpu:1234567890", "gpu:007:2", "gpu::4"):
        with pytest.raises(ValueError, match="not a list of generic resources"):
            values.gpus_of_gres(wrong)


@given(st.text(max_size=30))
def test_any_other_text_is_read_or_refused_as_a_value(text: str) -> None:
    for parse in (
        values.duration_s, values.size_mb, values.tres, values.count, values.gpus_of_gres,
        values.tasks_of, values.tasks_in, values.nodes_in,
    ):  # fmt: skip
        try:
            found = parse(text)
        except ValueError:
            continue
        assert isinstance(found, int | tuple | dict | list)
        assert found >= 0 if isinstance(found, int) else parse(text) == found


@pytest.mark.parametrize("digits", [19, 25, 5000])
def test_numbers_of_too_many_digits_are_refused_as_values(digits: int) -> None:
    many = "9" * digits
    for parse, text in (
        (values.nodes_in, f"n[1-{many}]"), (values.nodes_in, f"n[{many}]"),
        (values.tasks_of, f"7_[1-{many}]"), (values.tasks_of, f"7_[{many}]"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="not a list of"):
            parse(text)
    assert terms.licences_of(f"matlab:{many},ansys") == {"ansys": 1}


@given(st.integers(0, 2**31), st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Tokyo"]))
def test_a_local_time_is_the_instant_that_it_was_or_the_same_hour_of_the_clock(
    seconds: int, name: str
) -> None:
    from datetime import datetime

    zone = ZoneInfo(name)
    clock = datetime.fromtimestamp(seconds, zone).replace(tzinfo=None).isoformat()
    assert values.time_s(clock, zone) in (seconds, seconds - 3600)


def test_summer_time_is_heeded() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    winter = values.time_s("2026-03-29T01:59:59", berlin)
    assert values.time_s("2026-03-29T03:00:00", berlin) - winter == 1


@pytest.mark.parametrize(
    ("submit", "start", "end", "wait_s", "runtime_s"),
    [
        ("02:59:00", "02:05:00", "03:30:00", 360, 5100),
        ("01:00:00", "02:59:00", "02:05:00", 7140, 360),
        ("02:05:00", "02:59:00", "03:30:00", 3240, 5460),
    ],
)
def test_of_an_hour_that_comes_twice_the_one_is_taken_that_a_job_can_have(
    submit: str, start: str, end: str, wait_s: int, runtime_s: int, read: Callable[..., Any]
) -> None:
    times = {"Submit": submit, "Eligible": submit, "Start": start, "End": end}
    row = record(**{name: f"2026-10-25T{time}" for name, time in times.items()}, ElapsedRaw="")
    found = read(row, zone="Europe/Berlin")
    assert found.extra["start"].tolist() == (found.workload.table.submit_s + wait_s).tolist()
    assert found.workload.runtime_s.tolist() == [runtime_s]


# ------------------------------------------------------------------------ terms of the records

FOUR_NODES = "".join(
    f"NodeName=n{k} CPUTot=8 RealMemory=16000 Partitions=main State=IDLE\n" for k in range(4)
)


@pytest.fixture
def there(tmp_path: Path) -> Callable[..., tuple[Path, ...]]:
    """Dumps of four nodes and of other things that scontrol shows."""

    def write(*others: str) -> tuple[Path, ...]:
        paths = [tmp_path / f"dump{k}.txt" for k in range(len(others) + 1)]
        for path, text in zip(paths, (FOUR_NODES, *others), strict=True):
            path.write_text(text)
        return tuple(paths)

    return write


def test_priorities_arrays_and_begin_times_of_the_records_are_heeded(tmp_path: Path) -> None:
    names = [*NAMES, "Priority"]
    rows = [
        record(JobID="20_1", JobIDRaw="21", SubmitLine="sbatch --array=1-9%2 a.sh") | {
            "Priority": "500"},
        record(JobID="20_2", JobIDRaw="22", SubmitLine="sbatch -a 1-9%2 a.sh") | {"Priority": ""},
        record(JobID="30_[1-5%3]", JobIDRaw="30", State="PENDING", Start="Unknown") | {
            "Priority": "7"},
        record(JobID="30_6", JobIDRaw="36", Eligible="2026-11-20T08:30:00") | {
            "Priority": "9999999999"},
    ]  # fmt: skip
    found = slurm.read([dump(tmp_path / "sacct.psv", *rows, names=names)])
    workload = found.workload
    assert workload.table.priority.tolist() == [500, 0, 2**32 - 1]
    of, arrays = workload.asked("array")
    assert [arrays[k] for k in of] == ["20", "20", "30"]
    assert workload.array_limit().tolist() == [2, 2, 3]
    assert workload.begin_s is not None
    assert (workload.begin_s - workload.table.submit_s).tolist()[2] == 1800
    assert (workload.begin_s[:2] == -1).all()
    assert any(text.startswith("1 job was held") for text in found.told)


def test_licences_of_the_records_are_those_of_the_cluster_or_the_largest_use(
    read: Callable[..., Any], there: Callable[..., tuple[Path, ...]]
) -> None:
    rows = [
        record(JobID="1", JobIDRaw="1", AllocTRES="cpu=1,node=1,license/matlab=2"),
        record(JobID="2", JobIDRaw="2", SubmitLine="sbatch -L matlab:3,ansys a.sh"),
    ]
    assert read(*rows, system=there()).system.licences == {"ansys": 1, "matlab": 5}
    told = there("LicenseName=matlab\n    Total=10 Used=0 Free=10 Remote=no\n")
    found = read(*rows, system=told)
    assert found.system.licences == {"ansys": 1, "matlab": 10}
    of, texts = found.workload.asked("licences")
    assert [texts[k] for k in of] == ["matlab:2", "matlab:3 ansys:1"]
    config = "Configuration data as of 2026-11-20T17:00:00\nLicenses = matlab:2,idl:4\n"
    small = read(*rows, system=there(config))
    assert small.system.licences == {"ansys": 1, "idl": 4, "matlab": 3}
    assert any("more of a licence than the dump says" in note for note in small.notes)
    texts = (f"matlab:{'9' * 30}", "idl:two,ansys", ":3", "ansys:0")
    odd = [
        record(JobID=f"{k}", JobIDRaw=f"{k}", SubmitLine=f"sbatch -L {text} a.sh")
        for k, text in enumerate(texts, start=1)
    ]
    found = read(*odd, system=there())
    assert found.system.licences == {"ansys": 1}
    assert found.notes[terms.ODD] == 3


def test_the_configuration_says_whether_jobs_have_whole_nodes_and_memory(
    read: Callable[..., Any], there: Callable[..., tuple[Path, ...]]
) -> None:
    config = (
        "Configuration data as of 2026-11-20T17:00:00\nLicenses                = (null)\n"
        "SelectType              = select/{}\nSelectTypeParameters    = {}\n"
    )
    shared = read(record(), system=there(config.format("cons_tres", "CR_CORE_MEMORY")))
    assert not shared.system.partitions[0].exclusive
    assert shared.workload.resources == ("core", "mem")
    whole = read(record(), system=there(config.format("linear", "NONE")))
    assert whole.system.partitions[0].exclusive
    assert whole.workload.resources == ("core",)
    assert any("Memory is not given to jobs" in text for text in whole.told)


@pytest.mark.parametrize(
    ("line", "nodes", "column", "value"),
    [
        ("sbatch -N2 --ntasks-per-node=4 a.sh", 2, "units_per_node", 1),
        ("sbatch --nodes=2 a.sh", 2, "nodes_min", 2),
        ("sbatch -N 1-3 a.sh", 2, "nodes_min", 1),
        ("sbatch --parsable -J x -N 2 a.sh", 2, "nodes_min", 2),
        ("sbatch -J x a.sh -N 2", 2, "nodes_min", 0),
        ("sbatch --wrap hostname -N 2", 2, "nodes_min", 0),
        ("sbatch -H -N2 a.sh", 2, "nodes_min", 2),
        ("salloc --nice --x11 -K --no-shell -N 2", 2, "nodes_min", 2),
        ("sbatch --wait-all-nodes 1 -N 2 a.sh", 2, "nodes_min", 2),
        ("/usr/bin/srun -W 60 -N 2 a.sh", 2, "nodes_min", 2),
        ("srun -I60 -K0 -HN 2 a.sh", 2, "nodes_min", 2),
        ("sbatch -WvN2 a.sh", 2, "nodes_min", 2),
        ("sbatch -W a.sh -N 2", 2, "nodes_min", 0),
    ],
)
def test_the_command_line_says_how_units_are_spread(
    read: Callable[..., Any], there: Callable[..., tuple[Path, ...]],
    line: str, nodes: int, column: str, value: int,
) -> None:  # fmt: skip
    one = record(SubmitLine=line, AllocTRES=f"cpu=8,mem=8G,node={nodes}", NNodes=nodes)
    workload = read(one, system=there()).workload
    assert workload.table.units.tolist() == [nodes]
    assert workload.spreads(column).tolist() == [value]
    run = simulator.simulate(*prepare(workload, read(one, system=there()).system), "easy")
    assert verify.run(run.jobs, run.system) == []
    assert len(run.jobs["nodes"][0]) >= max(value, 1)


def test_a_job_of_whole_nodes_that_are_not_alike_has_as_many_as_it_had(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.write_text(
        "NodeName=n1 CPUTot=16 RealMemory=64000 Gres=gpu:4 Partitions=main,whole\n"
        "NodeName=n2 CPUTot=33 RealMemory=99000 Partitions=main,whole\n"
        "PartitionName=whole OverSubscribe=EXCLUSIVE MaxTime=UNLIMITED\n"
    )
    has = {"AllocTRES": "cpu=49,gres/gpu=4,mem=99000M,node=2", "NNodes": 2, "NodeList": "n[1-2]"}
    lines = [{"Partition": "whole"}, {"SubmitLine": "sbatch --exclusive a.sh"}, {}]
    rows = [record(JobID=k, JobIDRaw=k, **has, **line) for k, line in enumerate(lines, start=1)]
    found = slurm.read([dump(tmp_path / "sacct.psv", *rows)], [site])
    assert found.workload.table.units.tolist() == [2, 2, 2]
    assert found.workload.table.request.tolist() == [[16, 49_500]] * 3
    assert not found.left_out
    assert found.notes[replayable.UNLIKE] == 1
    run = simulator.simulate(*prepare(found.workload, found.system), "easy")
    assert verify.run(run.jobs, run.system) == []
    assert [sorted(nodes) for nodes in run.jobs["nodes"]] == [[0, 1]] * 3


@pytest.mark.parametrize(
    ("tres", "units", "core", "more"),
    [
        ("cpu=48,mem=48000M,node=2", 3, 16, ""),  # 24 fit on one of its nodes alone
        ("cpu=32,mem=48000M,node=2", 2, 16, ""),
        ("cpu=47,mem=48000M,node=2", 2, 24, "NodeName=n3 CPUTot=33 RealMemory=99000\n"),
    ],
)
def test_shares_of_nodes_that_are_not_alike_fit_on_them(
    tres: str, units: int, core: int, more: str, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.write_text(
        f"NodeName=n1 CPUTot=16 RealMemory=64000\nNodeName=n2 CPUTot=33 RealMemory=99000\n{more}"
    )
    row = record(AllocTRES=tres, NNodes=2, NodeList="n[1-2]")
    found = slurm.read([dump(tmp_path / "sacct.psv", row)], [site])
    assert found.workload.table.units.tolist() == [units]
    assert found.workload.table.request[0, 0] == core
    assert replayable.UNLIKE not in found.notes
    assert prepare(found.workload, found.system)


@pytest.mark.parametrize("order", [1, -1])
def test_a_dump_that_knows_of_a_cancellation_wins_over_one_that_does_not(
    order: int, tmp_path: Path
) -> None:
    never = {"Start": "Unknown", "End": "Unknown", "ElapsedRaw": "0", "NodeList": "None assigned"}
    dumps = [
        dump(tmp_path / "1.psv", record(JobID=1, JobIDRaw=1), record(State="PENDING", **never)),
        dump(
            tmp_path / "2.psv",
            record(State="CANCELLED by 7", **never | {"End": "2026-11-20T10:00:00"}),
        ),
    ]
    found = slurm.read(dumps[::order])
    assert found.left_out == {replayable.CANCELLED: 1, replayable.TWICE: 1}


def test_the_command_line_names_nodes_and_asks_for_whole_ones(
    read: Callable[..., Any], there: Callable[..., tuple[Path, ...]]
) -> None:
    lines = [
        "sbatch -w n[2-3] a.sh", "sbatch --exclude=n0,n1 a.sh", "sbatch -w n9 a.sh",
        "sbatch --exclusive a.sh", "sbatch --exclusive=user a.sh",
    ]  # fmt: skip
    rows = [record(JobID=k, JobIDRaw=k, SubmitLine=line) for k, line in enumerate(lines, start=1)]
    two = record(JobID=6, JobIDRaw=6, SubmitLine="sbatch -w n1 a.sh", AllocTRES="cpu=8,node=2")
    odd = record(JobID=7, JobIDRaw=7, SubmitLine="sbatch -w n[1-2] a.sh", AllocTRES="cpu=9,node=2")
    found = read(*rows, two, odd, system=there())
    workload = found.workload
    assert workload.table.units.tolist()[-2:] == [2, 3]
    for name, wanted in (
        ("nodelist", ["2-3", *[""] * 5, "1-2"]), ("exclude", ["", "0-1", *[""] * 5]),
    ):  # fmt: skip
        of, texts = workload.asked(name)
        assert [texts[k] for k in of] == wanted
    assert workload.exclusive().tolist() == [0, 0, 0, 1, 0, 0, 0]
    run = simulator.simulate(*prepare(workload, found.system), "easy")
    assert verify.run(run.jobs, run.system) == []
    assert found.notes["lists of nodes with names that the dump does not have: not heeded"] == 1
    assert any("fewer nodes than the job has" in note for note in found.notes)


# --------------------------------------------------------------------------------- text of sacct


def test_a_job_becomes_units_of_what_it_has_on_each_node(read: Callable[..., Any]) -> None:
    found = read(
        record(AllocTRES="billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=2", NNodes=2)
    )
    workload = found.workload
    assert workload.resources == ("core", "gpu", "gpu_a100", "mem")
    assert workload.table.units.tolist() == [2]
    assert workload.table.request.tolist() == [[4, 1, 1, 4096]]
    assert workload.runtime_s.tolist() == [3600]
    assert workload.table.requested_s.tolist() == [7200]
    assert workload.table.submit_s.tolist() == [
        values.time_s("2026-11-20T08:00:00", ZoneInfo("UTC"))
    ]
    labels = {"user": "ann", "group": "phys", "queue": "normal", "executable": "fit"}
    assert {name: workload.table.label(name, 0) for name in labels} == labels
    assert workload.table.label("partition", 0) == "main"


def test_types_of_gpus_alone_count_as_gpus_too(read: Callable[..., Any]) -> None:
    found = read(record(AllocTRES="cpu=4,gres/gpu:A100=1,gres/gpu:v100=2,node=1"))
    asked = dict(
        zip(found.workload.resources, found.workload.table.request[0].tolist(), strict=True)
    )
    assert asked == {"core": 4, "gpu": 3, "gpu_a100": 1, "gpu_v100": 2, "mem": 8192}


@pytest.mark.parametrize(
    ("tres", "nodes", "units", "core", "uneven"),
    [("cpu=10,node=3", 3, 5, 2, 0), ("cpu=7,node=2", 2, 7, 1, 0),
     ("cpu=127,node=7", 7, 7, 19, 1), ("cpu=12,node=3", 3, 3, 4, 0)],
)  # fmt: skip
def test_cores_that_nodes_do_not_divide_are_split_otherwise_or_rounded_up(
    read: Callable[..., Any], tres: str, nodes: int, units: int, core: int, uneven: int
) -> None:
    found = read(record(AllocTRES=tres, NNodes=nodes))
    assert found.workload.table.units.tolist() == [units]
    assert found.workload.table.request[0, 0] == core
    assert found.notes.get(replayable.UNEVEN, 0) == uneven


@pytest.mark.parametrize(
    ("text", "mb"), [("4Gn", 4096), ("2000Mc", 4000), ("4G", 2048), ("0", 0), ("", 0)]
)
def test_memory_for_each_cpu_or_node_is_that_of_a_unit(
    read: Callable[..., Any], text: str, mb: int
) -> None:
    found = read(record(AllocTRES="cpu=4,node=2", ReqMem=text, NNodes=2))
    asked = dict(
        zip(found.workload.resources, found.workload.table.request[0].tolist(), strict=True)
    )
    assert found.workload.table.units.tolist() == [2]
    assert asked.get("mem", 0) == mb


def test_columns_may_come_in_any_order_and_lines_may_end_in_a_bar(tmp_path: Path) -> None:
    one = slurm.read([dump(tmp_path / "a.psv", record(), record(JobID=8, JobIDRaw=8))])
    path = dump(tmp_path / "b.psv", record(), record(JobID=8, JobIDRaw=8), names=NAMES[::-1])
    path.write_bytes(path.read_bytes().replace(b"\n", b"|\r\n"))
    (tmp_path / "b.psv.gz").write_bytes(gzip.compress(path.read_bytes()))
    for other in (path, tmp_path / "b.psv.gz"):
        again = slurm.read([other])
        assert np.array_equal(again.workload.table.block, one.workload.table.block)


def test_a_command_over_several_lines_is_one_record(read: Callable[..., Any]) -> None:
    wrapped = record(SubmitLine="sbatch --requeue --wrap a\n./b.sh\n\nc")
    found = read(wrapped, record(JobID=8, JobIDRaw=8, JobName="a\nb\nc"), wrapped | {"JobID": "9"})
    assert (found.read, found.notes[jobs.STEPS]) == (3, 0)
    assert found.extra["job_id"].tolist() == ["7", "8", "9"]
    assert found.workload.table.restartable.tolist() == [1, 0, 1]


def test_a_list_of_tasks_that_was_cut_is_no_step(read: Callable[..., Any]) -> None:
    waits = record(JobID="8_[1,3,5-7,...]", State="PENDING", Start="Unknown", End="Unknown")
    found = read(record(), waits, record(JobID="9_1.batch"), record(JobID="10+1.0"))
    assert found.left_out == {replayable.PENDING: 5}
    assert found.notes == {jobs.STEPS: 2, replayable.CUT: 1}


def test_names_that_are_not_utf_8_stay_different(tmp_path: Path) -> None:
    path = dump(tmp_path / "sacct.psv", record(User="mXller"), record(JobID=8, User="mYller"))
    path.write_bytes(path.read_bytes().replace(b"X", b"\xfc").replace(b"Y", b"\xf6"))
    workload = slurm.read([path]).workload
    users = {workload.table.label("user", row) for row in range(len(workload))}
    assert users == {r"m\xfcller", r"m\xf6ller"}


def test_the_queue_of_the_moment_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "squeue.json"
    path.write_text(json.dumps({"jobs": [{"job_id": 7, "job_state": ["RUNNING"]}]}))
    with pytest.raises(InputError, match=r"squeue --json.*; give what `sacct --json` prints"):
        slurm.read([path])


def test_every_job_is_kept_or_counted_out_by_its_reason(read: Callable[..., Any]) -> None:
    found = read(
        record(),
        record(JobID="7.batch", JobIDRaw="7.batch"),
        record(JobID="7.extern", JobIDRaw="7.extern"),
        record(JobID="7.0", JobIDRaw="7.0"),
        record(JobID="8_[1-5%2]", JobIDRaw=8, State="PENDING", Start="Unknown", End="Unknown"),
        record(JobID="8_6", JobIDRaw=9),
        record(JobID=10, JobIDRaw=10, State="RUNNING", End="Unknown"),
        record(JobID=11, JobIDRaw=11, State="CANCELLED by 12", Start="None", ElapsedRaw=0),
        record(JobID=12, JobIDRaw=12, State="CANCELLED by 0", NodeList="None assigned"),
        record(JobID=13, JobIDRaw=13, State="CANCELLED by 0"),
        record(JobID=14, JobIDRaw=14, State="FAILED", Start="Unknown"),
        record(JobID=15, JobIDRaw=15, Submit="Unknown"),
        record(JobID=16, JobIDRaw=16, End="Unknown", ElapsedRaw=""),
        record(JobID=17, JobIDRaw=17, AllocTRES="", ReqTRES="", NCPUS=0),
        record(JobID=18, JobIDRaw=18, State="COMPLETING", End="Unknown"),
        record(JobID=19, JobIDRaw=19, State="EXPLODED"),
        record(JobID=7, JobIDRaw=7),
        record(JobID=20, JobIDRaw=20, State="NODE_FAIL"),
        record(JobID=20, JobIDRaw=20, State="PENDING", Start="Unknown", End="Unknown") | {
            "Submit": "2026-11-20T10:00:00"
        },
        record(JobID=21, JobIDRaw=21, State="RESIZING"),
    )  # fmt: skip
    assert found.left_out == {
        replayable.ATTEMPT: 1, replayable.RESIZED: 1, replayable.TWICE: 1,
        replayable.PENDING: 6, replayable.RUNNING: 2,
        replayable.CANCELLED: 2, replayable.NOT_STARTED: 1, replayable.NO_STATE: 1,
        replayable.NO_SUBMIT: 1, replayable.NO_RUNTIME: 1, replayable.NO_SIZE: 1,
    }  # fmt: skip
    assert found.notes == {jobs.STEPS: 3}
    assert found.workload.table.id.tolist() == [7, 9, 13]
    assert found.extra["job_id"].tolist() == ["7", "8_6", "13"]
    assert found.read == 21


@pytest.mark.parametrize("absent", ["NodeList", "AllocTRES"])
def test_jobs_that_never_started_are_known_by_their_nodes_or_by_what_they_got(
    absent: str, tmp_path: Path
) -> None:
    # sacct gives them the time of their end as that of their start.
    end = "2026-11-20T10:00:00"
    never = {
        "Start": end, "End": end, "ElapsedRaw": 0, "State": "CANCELLED by 0", "AllocTRES": "",
        "NodeList": "None assigned",
    }  # fmt: skip
    rows = [record(), record(JobID=8, JobIDRaw=8, **never), record(JobID="9_[1-5]", **never)]
    path = dump(tmp_path / "sacct.psv", *rows, names=[n for n in NAMES if n != absent])
    found = slurm.read([path])
    assert found.left_out == {replayable.CANCELLED: 6}
    assert found.workload.runtime_s.tolist() == [3600]


def test_tasks_that_have_no_record_of_their_own_never_started(tmp_path: Path) -> None:
    names = [name for name in NAMES if name not in ("NodeList", "AllocTRES")]
    rows = record(), record(JobID="9_[1-5]", JobIDRaw=9, State="CANCELLED")
    found = slurm.read([dump(tmp_path / "sacct.psv", *rows, names=names)])
    assert found.left_out == {replayable.CANCELLED: 5}


def test_a_job_that_was_queued_again_is_its_last_attempt_submitted_with_the_first(
    read: Callable[..., Any],
) -> None:
    found = read(
        record(State="NODE_FAIL", ElapsedRaw=60),
        record(State="REQUEUED", Submit="2026-11-20T10:00:00", Start="2026-11-20T11:00:00"),
        record(
            Submit="2026-11-20T12:00:00", Start="2026-11-20T13:00:00", ElapsedRaw=777,
            SubmitLine="sbatch a.sh",
        ),
        record(JobID=8, JobIDRaw=8, SubmitLine="sbatch --no-requeue a.sh"),
    )  # fmt: skip
    assert found.left_out == {replayable.ATTEMPT: 2}
    assert found.workload.runtime_s.tolist() == [777, 3600]
    assert len(set(found.workload.table.submit_s.tolist())) == 1
    assert found.workload.table.restartable.tolist() == [1, 0]


def test_a_number_that_was_used_again_is_another_job(read: Callable[..., Any]) -> None:
    later = {"Submit": "2027-11-20T08:00:00", "Start": "2027-11-20T08:00:01"}
    found = read(record(), record(**later))
    assert len(found.workload) == 2
    assert found.workload.table.id.tolist() == [7, 8]


def test_of_dumps_that_overlap_the_record_that_knows_the_end_is_kept(tmp_path: Path) -> None:
    first = dump(tmp_path / "a.psv", record(State="RUNNING", End="Unknown", ElapsedRaw=5))
    waiting = record(State="PENDING", Start="Unknown", End="Unknown")
    before = dump(tmp_path / "0.psv", waiting)
    second = dump(tmp_path / "b.psv", record())
    for order in ([before, first, second], [second, first, before]):
        found = slurm.read(order)
        assert found.workload.runtime_s.tolist() == [3600]
        assert found.left_out == {replayable.TWICE: 2}


def test_of_dumps_that_overlap_each_task_of_an_array_is_counted_once(tmp_path: Path) -> None:
    waits = {"State": "PENDING", "Start": "Unknown", "End": "Unknown"}
    again = record(JobID="8_[1-9]", **waits) | {"Submit": "2027-11-20T08:00:00"}
    first = dump(tmp_path / "a.psv", record(JobID="8_[1-9%2]", **waits), again)
    gone = record(JobID="8_[4-9%2]", State="CANCELLED by 1", Start="Unknown")
    tasks = [record(JobID=f"8_{k}", JobIDRaw=8 + k) for k in (1, 2)]
    second = dump(tmp_path / "b.psv", gone, *tasks, record(JobID="8_[3-9%2]", **waits))
    for order in ([first, second], [second, first], [first, second, first]):
        found = slurm.read(order)
        assert found.left_out[replayable.CANCELLED] == 6
        # Task 3, and an array of the same number a year later.
        assert found.left_out[replayable.PENDING] == 1 + 9
        assert found.left_out[replayable.TWICE] == 15 + 18 * (len(order) == 3)
        assert len(found.workload) == 2


@pytest.mark.parametrize("text", ["UNLIMITED", "Partition_Limit", ""])
def test_a_job_without_a_limit_has_that_of_its_partition_or_the_longest(
    text: str, read: Callable[..., Any], tmp_path: Path
) -> None:
    rows = record(Timelimit="2-03:00:00"), record(JobID=8, JobIDRaw=8, Timelimit=text)
    found = read(*rows)
    assert found.workload.table.requested_s.tolist() == [183_600, 183_600]
    assert found.notes == {replayable.LIMITLESS: 1}
    path = tmp_path / "partitions"
    path.write_text("PartitionName=main\n   AllowGroups=ALL MaxNodes=4 MaxTime=1-00:00:00\n")
    found = read(*rows, system=(path,))
    assert found.workload.table.requested_s.tolist() == [183_600, 86_400]
    assert not found.notes


@pytest.mark.parametrize("wanted", ["gpu=2", "gpu=2,gres/gpu:a100=2", "gpu:a100=2"])
def test_a_job_that_asked_for_any_gpu_is_kept_to_no_type(
    wanted: str, read: Callable[..., Any], tmp_path: Path
) -> None:
    asked = f"billing=4,cpu=4,gres/{wanted},mem=8G,node=1"
    found = read(record(AllocTRES="cpu=4,gres/gpu:a100=2,gres/gpu=2,node=1", ReqTRES=asked))
    assert found.workload.resources == ("core", "gpu", *["gpu_a100"] * ("a100" in wanted), "mem")
    assert found.workload.table.request[0, 1] == 2
    path = tmp_path / "sacct.json"
    part = {"type": "gres", "name": "gpu", "count": 2}
    typed = part | {"name": "gpu:a100"}
    tres = {
        "allocated": [{"type": "cpu", "name": "", "count": 4}, part, typed],
        "requested": [part, typed] if "a100" in wanted else [part],
    }
    path.write_text(json.dumps({"jobs": [as_json(wrapped=False) | {"tres": tres}]}))
    others = slurm.read([path]).workload.resources
    assert ("gpu_a100" in others, "gpu" in others) == ("a100" in wanted, True)


def test_a_part_of_no_length_before_a_job_was_resized_is_no_record_twice(
    read: Callable[..., Any],
) -> None:
    at = "2026-11-20T09:00:00"
    part = record(State="RESIZING", Start=at, End=at, ElapsedRaw=0)
    for rows in ((part, record()), (record(), part), (part, record(), part, record())):
        found = read(*rows)
        twice = {replayable.TWICE: 2} if len(rows) > 2 else {}
        assert found.left_out == {replayable.RESIZED: 1} | twice
        assert found.workload.runtime_s.tolist() == [3600]


def test_a_job_that_ran_in_an_earlier_dump_and_was_resized_in_a_later_one_stands_twice(
    read: Callable[..., Any],
) -> None:
    at = "2026-11-20T{}:00:00".format
    ran = record(State="RUNNING", Start=at("09"), End="Unknown", ElapsedRaw=60)
    part = record(State="RESIZING", Start=at("09"), End=at("10"), ElapsedRaw=3600)
    rest = record(Start=at("10"), End=at("11"), ElapsedRaw=3600)
    for rows in ((ran, part, rest), (part, rest, ran)):
        assert read(*rows).left_out == {replayable.RESIZED: 1, replayable.TWICE: 1}


def test_without_nodes_the_system_is_the_largest_use_at_one_time(read: Callable[..., Any]) -> None:
    at = "2026-11-20T{}:00:00".format
    found = read(
        record(Start=at("09"), ElapsedRaw=3600, AllocTRES="cpu=4,mem=1G,node=1"),
        record(JobID=8, JobIDRaw=8, Start=at("10"), ElapsedRaw=7200, AllocTRES="cpu=6,mem=1G"),
        record(JobID=9, JobIDRaw=9, Start=at("11"), ElapsedRaw=3600, AllocTRES="cpu=3,mem=8G"),
    )
    assert found.system.resources == ("core", "mem")
    assert found.system.total.tolist() == [9, 9 * 1024]
    assert found.nodes is None
    assert "one pool" in found.told[0]


def test_without_nodes_it_is_said_what_is_asked_of_them(
    read: Callable[..., Any], there: Callable[..., tuple[Path, ...]]
) -> None:
    lines = [
        "sbatch -L matlab:2 a.sh", "sbatch -w n1 a.sh", "sbatch -x n1 --exclusive a.sh",
        "sbatch -N 2 a.sh", "sbatch a.sh",
    ]  # fmt: skip
    licence = {"AllocTRES": "cpu=8,node=2,license/idl=1", "NNodes": 2, "Constraints": "ib"}
    rows = [
        record(JobID=k, JobIDRaw=k, SubmitLine=line, **licence if k >= 4 else {})
        for k, line in enumerate(lines, start=1)
    ]
    found = read(*rows)
    assert found.workload.name == found.system.name == "sacct"
    assert [text for text in found.told if "not heeded" in text] == [
        "Features are not heeded: 2 jobs ask for some.",
        "Licences are not heeded: 3 jobs ask for some.",
        "Lists of nodes are not heeded: 2 jobs ask for some.",
        "Whole nodes are not heeded: 1 job asks for some.",
        "Numbers of nodes, and of tasks on a node are not heeded: 1 job asks for some.",
    ]
    assert not any("heeded" in text for text in read(*rows, system=there()).told)


NODES = """NodeName=n01 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=15 CPUTot=16 CPULoad=0.01
   AvailableFeatures=ib,fast
   Gres=gpu:a100:4(S:0-1),shard:8
   OS=Linux 6.1.0 #1 SMP x86_64 GNU/Linux
   RealMemory=64000 AllocMem=0 FreeMem=100 MemSpecLimit=1000 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=1 Partitions=main,gpu

NodeName=n02 CPUTot=32 RealMemory=128000 Gres=(null) State=DOWN* Partitions=main
NodeName=n03 CPUTot=32 RealMemory=128000 Gres=(null) State=MIXED Partitions=main
NodeName=n04 CPUTot=99 RealMemory=128000 Gres=(null) State=FUTURE Partitions=main

PartitionName=main
   AllowGroups=ALL MaxTime=UNLIMITED Nodes=n[01-03]
"""


def test_nodes_are_grouped_by_what_they_have(read: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    path.write_text(NODES)
    found = read(
        record(), record(JobID=8, JobIDRaw=8, AllocTRES="cpu=64,node=2", NNodes=2),
        record(JobID=9, JobIDRaw=9, AllocTRES="cpu=33,node=1"),
        record(JobID=10, JobIDRaw=10, AllocTRES="cpu=1,gres/gpu:v100=1,node=1"),
        system=(path,),
    )  # fmt: skip
    assert found.system.resources == ("core", "gpu", "gpu_a100", "mem")
    groups = [(group.nodes, group.capacity) for group in found.system.groups]
    assert groups == [(1, (15, 4, 4, 63_000)), (2, (32, 0, 0, 128_000))]
    assert found.nodes["name"].tolist() == ["n01", "n02", "n03"]
    assert found.nodes["features"].tolist() == ["ib,fast", "", ""]
    assert found.left_out == {"asks for more than the system has": 2}
    assert found.workload.table.id.tolist() == [7, 8]


def test_groups_have_names_of_their_own(read: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    kinds = [("64", "a"), ("64", "a,b"), ("64", "a-b"), ("0", "64mb-a"), ("0", "")]
    path.write_text("".join(
        f"NodeName=n{k} CPUTot=16 RealMemory={memory} AvailableFeatures={features}\n"
        for k, (memory, features) in enumerate(kinds)
    ))  # fmt: skip
    found = read(record(AllocTRES="cpu=1,node=1", ReqMem=""), system=(path,))
    names = [group.name for group in found.system.groups]
    assert names == [
        "16core-64mb-a", "16core-64mb-a-b", "16core-64mb-a-b-2", "16core-64mb-a-2", "16core",
    ]  # fmt: skip
    assert found.nodes["group"].tolist() == names


SITE = """
NodeName=n01 CPUTot=16 RealMemory=64000 State=IDLE Partitions=main,gpu AvailableFeatures=ib,a100
NodeName=n02 CPUTot=16 RealMemory=64000 State=IDLE Partitions=main AvailableFeatures=ib
NodeName=n03 CPUTot=16 RealMemory=64000 State=IDLE Partitions=main,debug
NodeName=n04 CPUTot=16 RealMemory=64000 State=IDLE Partitions=main AvailableFeatures=ib
PartitionName=main
   MaxTime=UNLIMITED
PartitionName=gpu
   MaxTime=01:00:00
PartitionName=debug
   PriorityJobFactor=1 PriorityTier=40 RootOnly=NO OverSubscribe=EXCLUSIVE MaxTime=00:30:00
"""


def test_jobs_that_no_nodes_can_hold_that_they_may_use_are_counted(
    read: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "site"
    path.write_text(SITE)
    rows = [
        record(JobID=k, JobIDRaw=k) | what
        for k, what in enumerate((
            {}, {"Partition": "gpu", "AllocTRES": "cpu=32,node=2", "NNodes": "2"},
            {"SubmitLine": "sbatch --exclusive -N5 a.sh", "AllocTRES": "cpu=5,node=5"},
            {"SubmitLine": "sbatch -w n01 -x n01 a.sh"}, {"Constraints": "a100"},
        ), start=1)
    ]  # fmt: skip
    found = read(*rows, system=(path,))
    assert (len(found.workload), found.left_out) == (5, {})
    assert found.notes[STUCK] == 3
    run = simulator.simulate(*prepare(found.workload, found.system), "easy")
    assert (run.jobs["start"] < 0).tolist() == [False, True, True, True, False]
    assert STUCK not in read(rows[0], system=(path,)).notes


def test_features_that_no_node_has_together_are_ignored(
    read: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "site"
    path.write_text(SITE.replace("AvailableFeatures=ib,a100", "AvailableFeatures=a100"))
    one = read(record(Constraints="a100&ib"), system=(path,))
    assert one.notes == {access.NO_NODE: 1}
    either = dump(tmp_path / "either.psv", record(Constraints="a100&ib|ib"), mark="@@")
    found = slurm.read([either], [path])
    assert found.workload.access[0].features == "ib"
    assert not found.notes


def test_where_no_job_is_left_that_is_said_beside_a_dump_with_partitions(tmp_path: Path) -> None:
    (tmp_path / "site").write_text(SITE)
    path = dump(tmp_path / "sacct.psv")
    with pytest.raises(InputError, match="no job is left of 0"):
        slurm.read([path], [tmp_path / "site"])


def test_partitions_and_features_of_the_dump_keep_jobs_to_nodes(tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    path.write_text(SITE)
    records = tmp_path / "sacct.psv"
    asked = [
        {}, {"Partition": "gpu"}, {"Constraints": "ib"}, {"Constraints": "ib|a100&ib"},
        {"Constraints": "[ib*2]"}, {"Constraints": "knl"}, {"Partition": "old"},
        {"Partition": "debug", "Timelimit": "02:00:00"}, {"Partition": "gpu,main"},
    ]  # fmt: skip
    jobs = (
        record(JobID=k, JobIDRaw=k, AllocTRES="cpu=1,node=1", Timelimit="00:10:00") | what
        for k, what in enumerate(asked, start=1)
    )
    found = slurm.read([dump(records, *jobs, mark="@@")], (path,))
    groups = [(group.name, group.nodes, group.features) for group in found.system.groups]
    assert groups == [
        ("16core-64000mb-a100-ib", 1, ("a100", "ib")), ("16core-64000mb-ib", 2, ("ib",)),
        ("16core-64000mb", 1, ()),
    ]  # fmt: skip
    assert found.nodes["name"].tolist() == ["n01", "n02", "n04", "n03"]
    assert found.system.partitions == (
        Partition("main", (0, 1, 2, 3)), Partition("gpu", (0,), 3600),
        Partition("debug", (3,), 7200, exclusive=True, tier=40), Partition("old", (0, 1, 2, 3)),
    )  # fmt: skip
    codes, texts = found.workload.asked("features")
    assert [texts[k] for k in codes] == ["", "", "ib", "ib|a100&ib", *[""] * 5]
    for what in (access.UNREAD, access.NO_NODE, access.NO_PARTITION, access.LONGER):
        assert found.notes[what] == 1
    run = simulator.simulate(*prepare(found.workload, found.system), "easy")
    assert verify.run(run.jobs, run.system) == []
    assert run.jobs["start"].min() >= 0
    assert run.jobs["nodes"][1] == [0]


def test_with_select_linear_jobs_of_every_partition_take_whole_nodes(
    read: Callable[..., Any], there: Callable[..., tuple[Path, ...]]
) -> None:
    config = "Configuration data as of 2026-11-20T17:00:00\nSelectType = select/linear\n"
    rows = [
        record(JobID=k, JobIDRaw=k, AllocTRES="cpu=3,node=1", Partition=partition)
        for k, partition in enumerate(["main", "old", ""], start=1)
    ]
    found = read(*rows, system=there(config))
    run = simulator.simulate(*prepare(found.workload, found.system), "easy")
    assert verify.run(run.jobs, run.system) == []
    assert len({nodes[0] for nodes in run.jobs["nodes"]}) == 3
    assert [partition.exclusive for partition in found.system.partitions] == [True, True]


def test_what_is_said_of_a_partition_without_nodes_is_heeded(
    read: Callable[..., Any], there: Callable[..., tuple[Path, ...]]
) -> None:
    told = "PartitionName=old\n PriorityTier=7 OverSubscribe=EXCLUSIVE MaxTime=03:00:00\n"
    found = read(record(), record(JobID=8, JobIDRaw=8, Partition="old"), system=there(told))
    assert found.system.partitions == (
        Partition("main", (0, 1, 2, 3)),
        Partition("old", (0, 1, 2, 3), 10_800, exclusive=True, tier=7),
    )
    assert found.notes[access.NO_PARTITION] == 1
    run = simulator.simulate(*prepare(found.workload, found.system), "easy")
    assert verify.run(run.jobs, run.system) == []


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("", ""), ("ib", "ib"), ("a&b", "a&b"), ("a|b", "a|b"), ("a&b|c", "a&b|c"),
        ("a|b&c", "a&c|b&c"), ("a|b&c|d", "a&c|b&c|d"), ("[a|b]", None), ("a*2", None),
        ("a&", None), ("(a|b)&c", None), ("a&a", "a"), ("&a", None),
    ],
)  # fmt: skip
def test_features_are_read_from_left_to_right(text: str, means: str | None) -> None:
    assert access.features_of(text) == means


def test_partitions_whose_jobs_share_cpus_are_told(tmp_path: Path) -> None:
    site, parts = tmp_path / "site", tmp_path / "parts.json"
    nodes_of = "NodeName=n1 CPUTot=16 RealMemory=64000 Partitions=main,a,b,c\n"
    site.write_text(
        f"{nodes_of}PartitionName=a OverSubscribe=FORCE:4\nPartitionName=b OverSubscribe=FORCE:1\n"
        "PartitionName=c OverSubscribe=YES:4\n"
    )
    rows = [record(JobID=k, JobIDRaw=k, Partition=name) for k, name in enumerate("abc", start=1)]
    path = dump(tmp_path / "sacct.psv", *rows)
    says = "share some (OverSubscribe=FORCE): a."
    assert any(text.endswith(says) for text in slurm.read([path], [site]).told)
    sharing = [("a", 4, ["force"]), ("b", 1, ["force"]), ("c", 4, [])]
    partitions = [
        {"name": name, "maximums": {"oversubscribe": {"jobs": jobs, "flags": flags}}}
        for name, jobs, flags in sharing
    ]
    parts.write_text(json.dumps({"partitions": partitions}))
    site.write_text(nodes_of)
    assert any(text.endswith(says) for text in slurm.read([path], [site, parts]).told)


def test_sinfo_in_json_of_later_releases_is_read(tmp_path: Path) -> None:
    row = {
        "nodes": {"nodes": ["n01", "n02"]}, "cpus": {"maximum": 16}, "memory": {"maximum": 64000},
        "gres": {"total": "gpu:a100:4"}, "features": {"total": "ib"},
        "partition": {"name": "main", "maximums": {"time": {"set": True, "number": 60}}},
        "node": {"state": ["IDLE"]},
    }  # fmt: skip
    other = row | {
        "partition": {
            "name": "gpu", "maximums": {"time": {"infinite": True}},
            "priority": {"job_factor": 1, "tier": 5},
        }
    }  # fmt: skip
    row["partition"]["maximums"]["oversubscribe"] = {"jobs": 1, "flags": []}
    other["partition"]["maximums"]["oversubscribe"] = {"jobs": 0, "flags": []}
    path = tmp_path / "sinfo.json"
    path.write_text(json.dumps({"sinfo": [row, other]}))
    cluster = nodes.read([path])
    assert cluster.limits_s == {"main": 3600, "gpu": -1}
    assert cluster.tiers == {"gpu": 5}
    partitions = nodes.system_of(cluster, "s", path)[0].partitions
    assert [(p.tier, p.exclusive) for p in partitions] == [(1, False), (5, True)]
    other["partition"]["priority"]["tier"] = 65_534
    path.write_text(json.dumps({"sinfo": [other]}))
    with pytest.raises(InputError, match="a priority tier of 65534, beyond 0 to 65533"):
        nodes.read([path])
    path.write_text("PartitionName=main\n   PriorityTier=much\n")
    with pytest.raises(
        InputError, match=r"sinfo\.json:1: field PriorityTier: not a number from 0 to 65533"
    ):
        nodes.read([path])
    assert cluster.nodes["n02"] == nodes.Node(
        "n02", 16, 64000, {"gpu": 4, "gpu_a100": 4}, "ib", ("main", "gpu"), "IDLE"
    )


def as_json(wrapped: bool) -> dict[str, Any]:
    """The job of `record` as sacct's JSON has it, in its earlier or its later form."""

    def number(value: int) -> Any:
        return {"set": True, "infinite": False, "number": value} if wrapped else value

    return {
        "job_id": 7, "name": "fit", "user": "ann", "account": "phys", "qos": "normal",
        "partition": "main", "nodes": "n01", "constraints": "",
        "array": {"job_id": 0, "task": None, "task_id": None},
        "state": {"current": ["COMPLETED"] if wrapped else "COMPLETED"},
        "time": {
            "submission": 1_795_161_600, "eligible": 1_795_161_600, "start": 1_795_165_200,
            "end": 1_795_168_800, "elapsed": 3600, "limit": number(120),
        },
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "count": 4}, {"type": "mem", "name": "", "count": 8192},
                {"type": "node", "name": "", "count": 1},
            ],
            "requested": [],
        },
        "steps": [{}, {}],
    }  # fmt: skip


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("waiting", ["1-3%2", "0xE", "0x2a"])
def test_json_and_text_of_the_same_job_come_to_the_same(
    wrapped: bool, waiting: str, read: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "sacct.json"
    tasks = as_json(wrapped) | {"array": {"job_id": 7, "task": waiting, "task_id": None}}
    tasks |= {"state": {"current": "PENDING"}, "job_id": 9, "steps": []}
    ran = as_json(wrapped)
    # So Slurm writes energy that was not measured.
    ran["tres"]["allocated"].append({"type": "energy", "name": "", "count": 2**64 - 2})
    path.write_text(json.dumps({"jobs": [ran, tasks]}))
    found, text = slurm.read([path]), read(record())
    assert np.array_equal(found.workload.table.block, text.workload.table.block)
    assert found.workload.table.labels == text.workload.table.labels
    assert np.array_equal(found.workload.runtime_s, text.workload.runtime_s)
    assert found.left_out == {replayable.PENDING: 3}
    assert found.notes == {jobs.STEPS: 2}


@pytest.mark.parametrize(
    ("line", "again"),
    [
        ("sbatch --requeue job.sh", 1), ("sbatch job.sh --requeue", 0),
        ("sbatch --requeue job.sh --no-requeue", 1), ("sbatch --no-requeue job.sh", 0),
    ],
)  # fmt: skip
def test_what_comes_after_the_script_does_not_say_whether_a_job_is_queued_again(
    line: str, again: int, read: Callable[..., Any], tmp_path: Path
) -> None:
    assert read(record(SubmitLine=line)).workload.table.restartable.tolist() == [again]
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": [as_json(wrapped=False) | {"submit_line": line}]}))
    assert slurm.read([path]).workload.table.restartable.tolist() == [again]


def test_parts_of_a_heterogeneous_job_are_the_same_in_json_and_text(tmp_path: Path) -> None:
    path = tmp_path / "sacct.json"
    parts = [
        as_json(wrapped) | {"job_id": 7 + k, "het": {"job_id": of, "job_offset": {"number": k}}}
        for k, (wrapped, of) in enumerate([(False, 7), (False, {"set": True, "number": 7})])
    ]
    path.write_text(json.dumps({"jobs": parts}))
    rows = [record(JobID=f"7+{k}", JobIDRaw=7 + k) for k in range(2)]
    found = slurm.read([path, dump(tmp_path / "sacct.psv", *rows)])
    assert found.extra["job_id"].tolist() == ["7+0", "7+1"]
    assert "Parts of heterogeneous jobs are jobs of their own: 2 such parts." in found.told


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tres": {"allocated": [{"type": "cpu", "count": 1.5}]}}, r"not a whole .*found 1\.5"),
        ({"tres": {"allocated": [{"type": "gres", "name": "gpu", "count": -1}]}},
         r"tres\.allocated, gres/gpu: not a whole number from 0 on .found -1"),
        ({"tres": {"allocated": [{"type": "gres", "name": "gpu", "count": "x"}]}}, "found 'x'"),
        ({"tres": {"allocated": [{"type": "cpu", "count": None}]}}, "found None"),
        ({"time": {"limit": 1.5}}, r"not a whole number .found 1\.5"),
        ({"priority": -1}, "priority: not a whole number from 0 on .found -1"),
        ({"priority": "x"}, "priority: .* .found 'x'"),
        ({"job_id": 2**62}, r"a number out of range .found \d+"),
    ],
)  # fmt: skip
def test_a_bad_number_of_a_json_record_is_an_error_and_no_other_job(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": [as_json(wrapped=False) | changed]}))
    with pytest.raises(InputError, match=rf"sacct\.json: field jobs\[0\]: .*{says}"):
        slurm.read([path])


# ----------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"Submit": "yesterday"}, ["psv:2", "field Submit", "as 2026-01-31T12", "'yesterday'"]),
        ({"Start": "2026-13-20T17:06:08"}, ["sacct.psv:2", "field Start", "as 2026-01-31T12"]),
        ({"ElapsedRaw": "-3"}, ["sacct.psv:2", "field ElapsedRaw", "'-3'"]),
        ({"Timelimit": "1h"}, ["sacct.psv:2", "field Timelimit", "'1h'"]),
        ({"AllocTRES": "cpu:4"}, ["sacct.psv:2", "field AllocTRES", "'cpu:4'"]),
        ({"AllocTRES": "cpu=x"}, ["sacct.psv:2", "field AllocTRES", "cpu"]),
        ({"AllocTRES": "cpu=1,mem=x"}, ["sacct.psv:2", "field AllocTRES", "mem"]),
        ({"AllocTRES": "cpu=1", "ReqMem": "4 GB"}, ["sacct.psv:2", "field ReqMem", "'4 GB'"]),
        ({"JobID": "8_[5-1]"}, ["sacct.psv:2", "field JobID", "array"]),
        ({"JobID": "8_[a%b]"}, ["sacct.psv:2", "field JobID", "array"]),
        ({"JobID": "error: no database."}, ["sacct.psv:2", "field JobID", "number of a job"]),
        ({"JobName": "a|b"}, ["sacct.psv:2", "24 cells", "23 columns"]),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_file_line_and_field(
    given: dict[str, str], wanted: list[str], read: Callable[..., Any]
) -> None:
    with pytest.raises(InputError) as error:
        read(record(**given))
    assert all(part in str(error.value) for part in wanted), error.value


def test_a_dump_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = dump(tmp_path / "sacct.psv", record(), record(JobID=8))
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(InputError, match=r"sacct.psv:3: the file ends within a record"):
        slurm.read([path])


@pytest.mark.parametrize(
    ("content", "message"),
    [("id,submit\n1,2\n", "does not name"), ("", "does not name"), ('{"a": 1}', "no list of jobs"),
     ('{"jobs": [{"tres": {"allocated": ["x"]}}]}', r"jobs\[0\]: not a JSON object"),
     ('{"jobs": [3]}', r"jobs\[0\]: not a JSON object"), (HEADER + "\n", "no job is left"),
     (HEADER + "|JobID\n", "named twice")],
)  # fmt: skip
def test_a_file_that_is_no_dump_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sacct"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        slurm.read([path])


def test_a_file_that_describes_no_system_is_refused(
    read: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "nodes"
    for content, message in (
        ("hello", "describes no node"), ("{}", "no list of nodes"),
        ("NodeName=a CPUTot=4 State=IDLE\nNodeName=b CPUTot=4",
         r"2: field NodeName: the record is cut short: it has no State \(found 'b'\)"),
        ("NodeName=a CPUTot=x", "field CPUTot"), ("NodeName=a Gres=gpu:-", "field Gres"),
        ("PartitionName=a MaxTime=x", "field MaxTime"),
        ("NodeName=n[1-4] CPUs=16", r"nodes:1: .*no CPUTot .*a slurm.conf is not read"),
    ):  # fmt: skip
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read(record(), system=(path,))


def test_slurm_may_say_that_it_has_no_licences(read: Callable[..., Any], tmp_path: Path) -> None:
    said = tmp_path / "licences"
    said.write_text("No licenses configured in Slurm.\n")
    nodes = tmp_path / "nodes"
    nodes.write_text(FOUR_NODES)
    assert read(record(), system=(nodes, said)).system.nodes == 4


def test_jobs_of_nodes_that_are_not_listed_are_counted(
    read: Callable[..., Any], tmp_path: Path
) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text(FOUR_NODES)
    rows = record(NodeList="n0"), record(JobID=8, JobIDRaw=8, NodeList="n[3-4]")
    found = read(*rows, system=(nodes,))
    assert found.notes["ran on a node that the list of nodes does not have"] == 1


def test_a_zone_that_does_not_exist_is_refused(read: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="no such time zone"):
        read(record(), zone="Europe/Nowhere")


# --------------------------------------------------------------------------------- the command


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_what_is_imported_is_simulated_and_feasible(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [
        record(
            JobID=k, JobIDRaw=k, AllocTRES=f"cpu={k % 5 + 1},mem=1G,node=1", Timelimit="02:00:00"
        )
        for k in range(1, 40)
    ]
    path = dump(tmp_path / "sacct.psv", *many, record(JobID=50, State="PENDING", JobIDRaw=50))
    (tmp_path / "nodes").write_text(NODES)
    out = tmp_path / "site"
    asked = "import", "slurm", path, "--system", tmp_path / "nodes", "--out", out
    code, text, err = said(capsys, *asked, "--format", format)
    assert (code, err) == (0, "")
    assert "left out: still pending" in " ".join(text.split())
    workload = read_workload(out / f"workload.{format}")
    machine = system.load(out / "system.json")
    run = simulator.simulate(*_fitted(workload, machine), "easy")
    assert not run.verify()
    told = json.loads((out / "import.json").read_text())
    assert (told["read"], told["kept"]) == (40, 39)
    assert set(told["files"].values()) == {path.name for path in out.iterdir()}
    code, _, err = said(capsys, *asked)
    assert (code, "--overwrite" in err) == (2, True)
    assert said(capsys, *asked, "--overwrite")[0] == 0
    assert {path.name for path in out.iterdir()} == {
        "workload.csv", "extra.csv", "nodes.csv", "system.json", "import.json",
    }  # fmt: skip


def _fitted(workload: Any, machine: Any) -> tuple[Any, Any]:
    from cpdispatch.workloads import prepare

    return prepare(workload, machine)


def test_bad_input_gets_one_sentence_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dump(tmp_path / "sacct.psv", record(Submit="x"))
    code, out, err = said(capsys, "import", "slurm", path, "--out", tmp_path / "site")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "site").exists()


# -------------------------------------------------------------------------- records of a cluster


@pytest.fixture
def sample() -> Callable[[str], Path]:
    """A record of a real cluster by name; the test is skipped without it."""
    traces = Path(os.environ.get("CPDISPATCH_TRACES", ROOT.parent / "shared" / "traces"))

    def find(name: str) -> Path:
        path = traces.parent / "slurm" / "samples" / name
        if not path.exists():
            pytest.skip(f"no records {path}: set CPDISPATCH_TRACES to the traces beside slurm/")
        return path

    return find


@pytest.mark.log
def test_records_of_a_real_cluster_are_all_accounted_for(sample: Callable[[str], Path]) -> None:
    text = slurm.read([sample("sacct_ALL.psv.gz")], [sample("sinfo.json.gz")])
    assert (text.read, len(text.workload)) == (40, 40)
    lines = gzip.decompress(sample("sacct_ALL.psv.gz").read_bytes()).decode().splitlines()
    rows = list(csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE))
    cores = text.workload.table.units * text.workload.table.request[:, 0]
    assert cores.sum() == sum(int(row["AllocCPUS"]) for row in rows)
    assert text.workload.runtime_s.sum() == sum(int(row["ElapsedRaw"]) for row in rows)
    assert text.system.total.tolist() == [256, 64, 1_024_000]
    found = slurm.read([sample("sacct.json.gz")])
    assert (found.read, len(found.workload)) == (12, 12)
    shared = np.isin(text.workload.table.id, found.workload.table.id)
    assert np.array_equal(text.workload.table.block[:7, shared], found.workload.table.block[:7])
    for imported in (text, found):
        run = simulator.simulate(*_fitted(imported.workload, imported.system), "easy")
        assert not run.verify()
