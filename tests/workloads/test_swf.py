from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Column, Workload
from cpdispatch.workloads import swf
from cpdispatch.workloads.clean import (
    RENUMBERED,
    REQUEST_COPIED,
    ROUNDED,
    RUNTIME_CUT,
    RUNTIME_EXCEEDS,
    RUNTIME_UNKNOWN,
    RUNTIME_ZERO,
    SIZE_COPIED,
    SIZE_UNKNOWN,
    SUBMIT_UNKNOWN,
    TOO_LARGE,
    UNSORTED,
)
from cpdispatch.workloads.generate import eurora_sample
from cpdispatch.workloads.swf import FURTHER, NODE_MEMORY, SOME_NODES
from tests.workloads.strategies import processor_workloads

# 1 id, 2 submit, 3 wait, 4 run, 5 allocated, 6 cpu, 7 memory, 8 size, 9 requested, 10 memory, ...
FIELDS = [1, 10, 3, 60, 4, 50, 99, 4, 100, 2048, 1, 21, 22, 23, 24, 25, 26, 27]


def job(**changed: object) -> str:
    """A job's line, with fields replaced by number: job(f4=-1)."""
    fields: list[object] = list(FIELDS)
    for name, value in changed.items():
        fields[int(name[1:]) - 1] = value
    return " ".join(map(str, fields)) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str | bytes, name: str = "log.swf") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def same(one: Workload, other: Workload) -> bool:
    return (
        bool(np.array_equal(one.table.block, other.table.block))
        and bool(np.array_equal(one.runtime_s, other.runtime_s))
        and bool(np.array_equal(one.preceding, other.preceding))
        and bool(np.array_equal(one.think_s, other.think_s))
        and one.resources == other.resources
        and one.processors == other.processors
        and one.header == other.header
    )


def test_every_field_of_a_line_arrives_in_its_column(log: Callable[..., Path]) -> None:
    workload = swf.read(log("; MaxProcs: 16\n" + job()))
    one = workload.table[0]
    assert (one.id, one.submit_s, one.units, one.requested_s) == (1, 10, 4, 100)
    assert (one.user, one.group, one.executable) == (21, 22, 23)
    assert (one.queue, one.partition) == (24, 25)
    assert one.expected_s == one.requested_s
    assert workload.resources == ("core", "mem")
    assert one.request == (1, 2048)
    assert workload.runtime_s.tolist() == [60]
    assert (workload.preceding.tolist(), workload.think_s.tolist()) == ([26], [27])
    assert workload.processors == 16
    assert workload.notes == {}
    assert (workload.name, workload.per_processor, workload.memory_unit_kb) == ("log", True, 1)


def test_a_dispatcher_cannot_reach_the_runtime_from_the_table(log: Callable[..., Path]) -> None:
    assert 61 not in swf.read(log(job(f4=61))).table.block


@pytest.mark.parametrize(
    "text",
    [
        b"; note\n  ; indented\n\n" + job().encode() + b"   \t \n; between\n" + job(f1=2).encode(),
        b"; dos\r\n" + (job() + job(f1=2)).replace("\n", "\r\n").encode(),
        (job() + job(f1=2)).rstrip("\n").encode(),
        b"\xef\xbb\xbf; with a mark\n" + (job() + job(f1=2)).encode(),
        ("  " + job() + "\t" + job(f1=2).replace(" ", "\t")).encode(),
        (job(f4="60.0", f6="552.21") + job(f1=2)).encode(),
        (job(f18="27 {1,2} q_1d x=1") + job(f1="2", f18='27 "a" 1:ppn=2;x y z')).encode(),
        b"; caf\xe9\n" + (job() + job(f1=2)).encode(),
    ],
    ids=["comments", "crlf", "no last newline", "bom", "tabs", "floats", "more columns", "latin-1"],
)
def test_harmless_liberties_of_real_logs_are_taken(log: Callable[..., Path], text: bytes) -> None:
    workload = swf.read(log(text))
    assert workload.table.id.tolist() == [1, 2]
    assert workload.notes == ({FURTHER: 2, SOME_NODES: 1} if b"q_1d" in text else {})
    assert np.array_equal(workload.table.block[1:, 0], workload.table.block[1:, 1])
    assert workload.table.column(Column.PARTITION).tolist() == [25, 25]


def test_comment_lines_are_kept_wherever_they_stand(log: Callable[..., Path]) -> None:
    text = "; a \n  ;b\r\n" + job() + "; c\n" + job(f1=2) + ";d"
    assert swf.read(log(text)).header == ("; a", ";b", "; c", ";d")


def test_a_byte_order_mark_hides_no_header(log: Callable[..., Path]) -> None:
    workload = swf.read(log(b"\xef\xbb\xbf; MaxProcs: 16\n" + job().encode()))
    assert (workload.header, workload.processors) == (("; MaxProcs: 16",), 16)


@pytest.mark.parametrize(
    ("header", "processors"),
    [
        ("; MaxNodes: 338 (batch partition; 512 total)\n; MaxProcs: 330\n", 330),
        ("; MaxNodes: 338 (batch partition; 512 total)\n", 338),
        (";MAXPROCS:12 of them\n", 12),
        ("; MaxProcs: -1\n; MaxNodes: 9\n", 9),
        ("; MaxProcs: unknown\n", None),
        ("; MaxProcs: 1,024\n", 1024),
        ("; MaxProcs: 1e3 processors\n", 1000),
        ("; MaxProcs: 1024.0\n", 1024),
        ("; MaxProcs: +1024.\n", 1024),
        ("", None),
    ],
)
def test_the_size_of_the_machine_is_read_from_the_header(
    log: Callable[..., Path], header: str, processors: int | None
) -> None:
    assert swf.read(log(header + job())).processors == processors


@pytest.mark.parametrize("size", ["1 024", "1'024", "1.024", "1,02", "12x", "1e20", "0x10", "1e-3"])
@pytest.mark.parametrize("label", ["MaxProcs", "MaxNodes"])
def test_a_size_of_the_machine_that_is_no_number_is_refused(
    log: Callable[..., Path], label: str, size: str
) -> None:
    path = log(f"; Version: 2.2\n; {label}: {size}\n" + job())
    with pytest.raises(InputError) as refused:
        swf.read(path)
    message = str(refused.value)
    assert message.startswith(f"{path}:2: field {label} of the header: ")
    assert f"found {size!r}" in message
    assert message.endswith("; write it in digits, as 1024, or remove the line")


def test_memory_in_bytes_a_node_becomes_kb_a_processor(log: Callable[..., Path]) -> None:
    one = job(f8=4, f10=4097, f18="27 {7,7,7,7} q 1")
    workload = swf.read(log(one + job(f1=2, f8=4, f10=8192, f18="27 {7,8} q 1")))
    # 4,097 bytes on one node for 4 processors; 8,192 bytes on each of two nodes.
    assert workload.table.request[:, 1].tolist() == [2, 4]
    assert workload.notes == {FURTHER: 2, NODE_MEMORY: 2}


@pytest.mark.parametrize("first", [False, True])
def test_memory_stays_as_it_is_where_some_jobs_name_no_nodes(
    log: Callable[..., Path], first: bool
) -> None:
    named, plain = job(f8=2, f10=4096, f18="27 {7,7}"), job(f1=2, f8=2, f10=4096)
    workload = swf.read(log("; {1}\n" + (named + plain if first else plain + named)))
    assert workload.table.request[:, 1].tolist() == [4096, 4096]
    assert workload.notes[SOME_NODES] == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_may_end_in_any_way_and_keeps_its_number(log: Callable[..., Path], end: str) -> None:
    text = "; a\n; MaxProcs: 4\n" + job() + job(f1=2)
    workload = swf.read(log(text.replace("\n", end)))
    assert (len(workload), workload.header) == (2, ("; a", "; MaxProcs: 4"))
    with pytest.raises(InputError, match=r":5: field 4"):
        swf.read(log((text + job(f4="x")).replace("\n", end)))


def test_a_zero_byte_is_refused_with_its_line(log: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r":2: text is needed, this has a zero byte"):
        swf.read(log(job() + job(f5="\0")))


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"f5": -1, "f8": -1}, SIZE_UNKNOWN),
        ({"f5": 0, "f8": 0}, SIZE_UNKNOWN),
        ({"f4": -1}, RUNTIME_UNKNOWN),
        ({"f2": -5}, SUBMIT_UNKNOWN),
    ],
)
def test_the_filter_all_drops_what_cannot_be_run(
    log: Callable[..., Path], changed: dict[str, int], rule: str
) -> None:
    workload = swf.read(log(job(**changed) + job(f1=2)))
    assert workload.table.id.tolist() == [2]
    assert workload.notes == {rule: 1}


@pytest.mark.parametrize(
    ("changed", "rule", "units", "runtime_s", "requested_s"),
    [
        ({"f8": -1}, SIZE_COPIED, 4, 60, 100),
        ({"f9": -1}, REQUEST_COPIED, 4, 60, 60),
        ({"f4": 0, "f9": 0}, REQUEST_COPIED, 4, 0, 1),
        ({"f4": 60.6}, ROUNDED, 4, 61, 100),
        ({"f4": 0.5}, ROUNDED, 4, 0, 100),
        ({"f1": -1}, RENUMBERED, 4, 60, 100),
    ],
)
def test_the_filter_all_repairs_and_counts(
    log: Callable[..., Path],
    changed: dict[str, float],
    rule: str,
    units: int,
    runtime_s: int,
    requested_s: int,
) -> None:
    workload = swf.read(log(job(**changed)))
    one = workload.table[0]
    assert (one.units, one.requested_s) == (units, requested_s)
    assert workload.runtime_s.tolist() == [runtime_s]
    assert workload.notes == {rule: 1}


def test_the_filter_all_keeps_runtimes_of_zero_and_beyond_the_request(
    log: Callable[..., Path],
) -> None:
    workload = swf.read(log("; MaxProcs: 2\n" + job(f4=0) + job(f1=2, f4=200)))
    assert workload.runtime_s.tolist() == [0, 200]
    assert workload.notes == {}


@pytest.mark.parametrize("filter", ["strong", "drop"])
@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"f5": 17}, TOO_LARGE),
        ({"f8": 17}, TOO_LARGE),
        ({"f8": 2**47}, TOO_LARGE),
        ({"f5": -1, "f8": 0}, SIZE_UNKNOWN),
        ({"f4": 0}, RUNTIME_ZERO),
        ({"f4": -1}, RUNTIME_ZERO),
        ({"f9": -1}, "dropped: requested time unknown"),
        ({"f2": -5}, SUBMIT_UNKNOWN),
    ],
)
def test_the_published_filters_drop_by_the_same_rules(
    log: Callable[..., Path], changed: dict[str, int], rule: str, filter: str
) -> None:
    path = log("; MaxProcs: 16\n" + job(**changed) + job(f1=2))
    workload = swf.read(path, filter)
    assert workload.table.id.tolist() == [2]
    assert workload.notes == {rule: 1}


def test_the_filter_strong_copies_sizes_and_cuts_runtimes(log: Callable[..., Path]) -> None:
    text = "; MaxProcs: 16\n" + job(f8=-1, f5=3) + job(f1=2, f5=-1) + job(f1=3, f4=101)
    workload = swf.read(log(text), "strong")
    assert workload.table.units.tolist() == [3, 4, 4]
    assert workload.runtime_s.tolist() == [60, 60, 100]
    assert workload.notes == {SIZE_COPIED: 2, RUNTIME_CUT: 1}


def test_the_filter_drop_drops_jobs_that_ran_longer_than_requested(
    log: Callable[..., Path],
) -> None:
    text = job(f4=101, f5=-1) + job(f1=2, f4=100) + job(f1=3, f4=99, f5=-1)
    workload = swf.read(log("; MaxProcs: 16\n" + text), "drop")
    assert workload.table.id.tolist() == [2, 3]
    assert workload.runtime_s.tolist() == [100, 99]
    assert workload.notes == {RUNTIME_EXCEEDS: 1, SIZE_COPIED: 1}


def test_the_number_of_processors_given_goes_before_the_header(log: Callable[..., Path]) -> None:
    path = log("; MaxProcs: 3\n" + job())
    assert len(swf.read(path, "strong", processors=4)) == 1
    with pytest.raises(InputError, match=f"no job is left of 1 .*{TOO_LARGE}: 1"):
        swf.read(path, "strong")


@pytest.mark.parametrize("filter", ["strong", "drop"])
def test_a_published_filter_asks_for_the_machine_when_nobody_states_it(
    log: Callable[..., Path], filter: str
) -> None:
    with pytest.raises(InputError, match=rf"log\.swf.*the filter `{filter}`.*give --system"):
        swf.read(log(job()), filter)


def test_an_unknown_filter_is_refused(log: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="unknown filter 'strict': all, strong or drop"):
        swf.read(log(job()), "strict")


def test_jobs_out_of_order_are_sorted_by_submission_then_number(
    log: Callable[..., Path],
) -> None:
    late, early = list(range(300, 100, -1)), list(range(100))
    text = "".join(job(f1=k, f2=20) for k in late) + "".join(job(f1=k, f2=10) for k in early)
    workload = swf.read(log(text))
    assert workload.table.id.tolist() == early + late[::-1]
    assert workload.notes == {UNSORTED: 100}
    tied = swf.read(log("".join(job(f1=k, f2=20) for k in late)))
    assert tied.table.id.tolist() == late[::-1]
    assert not tied.notes


def test_a_job_id_that_is_taken_gets_a_number_of_its_own(log: Callable[..., Path]) -> None:
    workload = swf.read(log(job() + job() + job(f1=4) + job(f1=4)))
    assert workload.table.id.tolist() == [1, 4, 5, 6]
    assert workload.notes == {RENUMBERED: 2}


def test_each_dropped_job_is_counted_once(log: Callable[..., Path]) -> None:
    bad = job(f5=-1, f8=-1, f4=-1, f2=-1)
    assert swf.read(log(bad + job(f1=2))).notes == {SIZE_UNKNOWN: 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (job(f4="long"), r"log\.swf:3: field 4 \(run time\): not a number \(found 'long'\)"),
        (job(f3="x"), r":3: field 3 \(wait time\): not a number \(found 'x'\)"),
        (job(f10="nan"), r":3: field 10 \(requested memory\): not a number \(found 'nan'\)"),
        (job(f9="inf"), r":3: field 9 \(requested time\): not a number \(found 'inf'\)"),
        (job(f8="1_000"), r":3: field 8 .* \(found '1_000'\); correct the line"),
        (job(f18="true"), r":3: field 18 \(think time\)"),
        (job(f2="9" * 20), r":3: field 2 \(submit time\): too large"),
        (job(f2="1e300"), r":3: field 2 \(submit time\): too large"),
        (job(f2="1600000000000"), r":3: field 2 \(submit time\): beyond .* divide milliseconds"),
        (job(f1='"1'), r":3: field 1 \(job number\): not a number"),
        ("1 2 3\n", r":3: a job's line has 18 fields, this one has 3 \(found '1 2 3'\)"),
        (job(f18="; cut"), r":3: a job's line has 18 fields, this one has 17"),
        (job(f5="é"), r":3: field 5 .*found 'é'"),
    ],
)
def test_a_line_that_cannot_be_understood_is_named_with_its_field(
    log: Callable[..., Path], line: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        swf.read(log("; header\n" + job() + line + job(f1=3)))


def test_a_bad_line_far_into_a_large_log_is_named_by_its_number(log: Callable[..., Path]) -> None:
    lines = [job(f1=k) for k in range(1, 70_001)]
    lines[69_000] = job(f5="?")
    with pytest.raises(InputError, match=r":69001: field 5 \(allocated processors\)"):
        swf.read(log("".join(lines)))


@pytest.mark.parametrize("text", ["", "\n\n", "; only a header\n", " ; indented\n"])
def test_a_log_without_a_job_is_one_clear_error(log: Callable[..., Path], text: str) -> None:
    with pytest.raises(InputError, match=r"log\.swf: the log has no job"):
        swf.read(log(text))


def test_a_log_of_which_nothing_is_left_says_by_which_rules(log: Callable[..., Path]) -> None:
    path = log(job(f4=-1) + job(f1=2, f4=-1) + job(f1=3, f5=-1, f8=-1))
    with pytest.raises(InputError, match=f"no job is left of 3 .*{RUNTIME_UNKNOWN}: 2"):
        swf.read(path)


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_packed_log_that_is_cut_short_is_an_input_error(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"log.swf{packing}"
    swf.write(eurora_sample(2000), path)
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match="damaged or cut short"):
        swf.read(path)


# -------------------------------------------------------------------------------- writing


@given(processor_workloads())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_written_is_read_back_the_same(tmp_path: Path, workload: Workload) -> None:
    path = tmp_path / "log.swf"
    swf.write(workload, path)
    assert same(swf.read(path), workload)
    assert swf.read(path).notes == {}


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".zst"])
def test_a_log_is_packed_by_the_extension_and_the_same_each_time(
    tmp_path: Path, log: Callable[..., Path], packing: str
) -> None:
    workload = swf.read(log("; x\n" + job() + job(f1=2)))
    one, other = tmp_path / f"a.swf{packing}", tmp_path / f"b.swf{packing}"
    swf.write(workload, one)
    swf.write(workload, other)
    assert same(swf.read(one), workload)
    assert one.read_bytes() == other.read_bytes()
    assert (b"; x" in one.read_bytes()[:4]) == (packing == "")


def test_a_schedule_is_written_with_its_waits_runtimes_and_states(
    tmp_path: Path, log: Callable[..., Path]
) -> None:
    workload = swf.read(log(job() + job(f1=2)))
    path = tmp_path / "out.swf"
    swf.write(
        workload,
        path,
        wait_s=np.array([5, -1]),
        runtime_s=np.array([60, -1]),
        status=np.array([1, 5]),
    )
    lines = [line.split() for line in path.read_text().splitlines() if line[0] != ";"]
    assert [(line[2], line[3], line[10]) for line in lines] == [("5", "60", "1"), ("-1", "-1", "5")]
    assert all(len(line) == 18 for line in lines)


def test_a_column_of_the_wrong_length_is_refused(tmp_path: Path, log: Callable[..., Path]) -> None:
    workload = swf.read(log(job()))
    with pytest.raises(UsageError, match="wait_s"):
        swf.write(workload, tmp_path / "out.swf", wait_s=np.array([1, 2]))


def test_a_workload_of_nodes_is_written_in_processors_with_their_memory(tmp_path: Path) -> None:
    sample = replace(eurora_sample(50), memory_unit_kb=5)
    path = tmp_path / "sample.swf"
    swf.write(sample, path)
    back = swf.read(path)
    cores, kb = sample.table.request[:, 0], 5 * sample.table.request[:, 3]
    assert np.array_equal(back.table.units, sample.table.units * cores)
    assert np.any(kb % cores)
    assert np.array_equal(back.table.request[:, 1], -(-kb // cores))
    assert "; Note: queue 0 is debug" in back.header
    assert "; Computer: eurora-sample" in back.header


# ------------------------------------------------------------------------------- real logs


@pytest.mark.log
@pytest.mark.parametrize(
    ("name", "processors", "every", "strong", "drop"),
    [
        ("KTH-SP2-1996-2", 100, 28_489, 28_481, 28_006),
        ("KTH-SP2-1996-2.1-cln", 100, 28_475, 28_467, 27_992),
        ("CTC-SP2-1996-3.1-cln", 338, 77_222, 77_199, 70_025),
        ("HPC2N-2002-2.2-cln", 240, 202_871, 202_871, 188_054),
        ("UniLu-Gaia-2014-1", 2_004, 51_860, 51_859, 50_359),
        ("SDSC-BLUE-2000-4.1-cln", 1_152, 232_568, 232_542, 209_108),
    ],
)
def test_a_real_log_keeps_the_known_number_of_jobs(
    trace: Callable[[str], Path], name: str, processors: int, every: int, strong: int, drop: int
) -> None:
    path = trace(name)
    workload = swf.read(path)
    assert (len(workload), workload.processors) == (every, processors)
    assert len(swf.read(path, "strong")) == strong
    assert len(swf.read(path, "drop")) == drop
    assert workload.name == name


@pytest.mark.log
def test_a_log_without_requested_times_counts_the_runtimes_that_stand_in(
    trace: Callable[[str], Path],
) -> None:
    workload = swf.read(trace("NASA-iPSC-1993-3.1-cln"))
    assert workload.notes[REQUEST_COPIED] == len(workload) == 18_239
    assert np.array_equal(workload.table.requested_s, np.maximum(workload.runtime_s, 1))


@pytest.mark.log
def test_a_log_with_more_columns_and_no_header_is_read(trace: Callable[[str], Path]) -> None:
    workload = swf.read(trace("alea-wagap-2013"))
    assert (len(workload), workload.processors, workload.header) == (17_898, None, ())
    assert workload.notes == {FURTHER: 17_900, NODE_MEMORY: 17_900, RUNTIME_UNKNOWN: 2}
    # 64 processors on one node with 64 GB: 1 GB each.
    assert workload.table.request[0].tolist() == [1, 1024 * 1024]


@pytest.mark.log
def test_a_header_without_maxprocs_gives_maxnodes(trace: Callable[[str], Path]) -> None:
    assert swf.read(trace("lublin_256")).processors == 256


@pytest.mark.log
def test_a_real_log_is_written_and_read_back_the_same(
    trace: Callable[[str], Path], tmp_path: Path
) -> None:
    workload = swf.read(trace("KTH-SP2-1996-2"))
    swf.write(workload, tmp_path / "copy.swf.zst")
    assert same(swf.read(tmp_path / "copy.swf.zst"), workload)
