"""Tables read by a column map: units, filters, what is counted out, what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cpdispatch import cli, simulator, verify
from cpdispatch.cli.importing import table as command
from cpdispatch.errors import InputError, UsageError
from cpdispatch.workloads import column_map, prepare

ROOT = Path(__file__).resolve().parents[2]
MAP = """
told = ["Colours are not heeded."]
keep = [{column = "kind", among = ["batch", "night"]}]
[columns]
id = "number"
submit = "queued"
start = "begun"
end = "ended"
requested = "limit"
units = "hosts"
user = "who"
[time]
submit = "text"
zone = "Europe/Berlin"
requested = "min"
[resources]
core = {column = "cores", each = "job"}
gpu = {column = "cards", times = 2}
mem = {column = "memory", unit = "gb"}
"""
JOBS = """number,queued,begun,ended,limit,hosts,who,cores,cards,memory,kind,colour
7,2026-07-01 08:00:00,2026-07-01 09:00:00,2026-07-01 09:10:00,30,2,ann,7,1,0.5,batch,red
8,2026-07-01 08:00:01,,,30,1,bob,1,0,1,night,
9,2026-07-01 08:00:02,2026-07-01 09:00:00,2026-07-01 09:10:00,30,1,bob,1,0,1,day,
x,2026-07-01 10:00:00+00:00,2026-07-01 10:00:00Z,2026-07-01 10:00:05Z,,1,bob,1,0,1,night,blue
10,2026-07-01 08:00:02,2026-07-01 09:00:00,2026-07-01 08:00:00,30,1,bob,1,0,1,night,
11,2026-07-01 08:00:02,2026-07-01 09:00:00,2026-07-01 09:00:00,30,,bob,1,0,1,night,
12,,2026-07-01 09:00:00,2026-07-01 09:00:00,30,1,bob,1,0,1,night,
13,2026-07-01 08:00:02,2026-07-01 09:00:00,2026-07-01 09:00:00,30,1,bob,0,0,0,night,
"""


def test_priorities_that_a_workload_cannot_have_are_counted(tmp_path: Path) -> None:
    jobs, form = tmp_path / "jobs.csv", tmp_path / "map.toml"
    jobs.write_text("t,r,p,c\n" + "".join(f"0,60,{p},1\n" for p in ("7", "-5", "")))
    form.write_text(
        '[columns]\nsubmit = "t"\nruntime = "r"\npriority = "p"\n'
        '[resources]\ncore = {column = "c"}\n'
    )
    found = column_map.read(jobs, str(form))
    assert found.workload.table.priority.tolist() == [7, 0, 0]
    assert found.notes["priority unknown or below 0: it counts as 0"] == 2


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [("restartable", "2", "neither 0 nor 1"), ("priority", "4294967296", "larger than 4294967295")],
)
def test_a_restart_or_a_priority_out_of_range_is_named_by_its_line(
    name: str, value: str, problem: str, tmp_path: Path
) -> None:
    jobs, form = tmp_path / "jobs.csv", tmp_path / "map.toml"
    jobs.write_text(f"t,r,own,c\n9,60,1,1\n5,60,0,1\n,60,{value},1\n0,60,{value},1\n")
    form.write_text(
        f'[columns]\nsubmit = "t"\nruntime = "r"\n{name} = "own"\n'
        '[resources]\ncore = {column = "c"}\n'
    )
    with pytest.raises(InputError, match=rf"jobs\.csv:5: field own: {problem} \(found '{value}'"):
        column_map.read(jobs, str(form))


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path]:
    jobs, form = tmp_path / "jobs.csv", tmp_path / "map.toml"
    jobs.write_text(JOBS)
    form.write_text(MAP)
    return jobs, form


def test_columns_are_read_in_their_units_and_each_job_is_accounted_for(
    written: tuple[Path, Path],
) -> None:
    found = column_map.read(written[0], str(written[1]))
    workload = found.workload
    assert found.left_out == {
        "kind is not batch or night": 1, "never started": 1, "ends before it starts": 1,
        "number of units unknown or 0": 1, "submit time unknown": 1, "asks for no resource": 1,
    }  # fmt: skip
    assert (found.read, len(workload)) == (8, 2)
    assert workload.table.submit_s.tolist() == [
        int(pd.Timestamp(time).timestamp()) for time in ("2026-07-01T06:00Z", "2026-07-01T10:00Z")
    ]
    assert workload.table.id.tolist() == [7, 8]
    assert workload.runtime_s.tolist() == [600, 5]
    assert workload.table.requested_s.tolist() == [1800, 5]
    assert workload.table.units.tolist() == [2, 1]
    assert workload.resources == ("core", "gpu", "mem")
    assert workload.table.request.tolist() == [[4, 2, 512], [1, 0, 1024]]
    assert [workload.table.label("user", k) for k in (0, 1)] == ["ann", "bob"]
    assert found.extra["colour"].tolist() == ["red", "blue"]
    assert found.extra["number"].tolist() == ["7", "x"]
    assert found.told[-1] == "Colours are not heeded."
    assert found.notes["no requested time: the runtime stands in"] == 1


def test_a_job_of_the_hour_that_comes_twice_ends_after_its_start(
    written: tuple[Path, Path],
) -> None:
    header = JOBS.partition("\n")[0]
    times = ",".join(f"2026-10-25 {time}" for time in ("02:50:00", "02:59:00", "02:05:00"))
    written[0].write_text(f"{header}\n7,{times},30,2,ann,7,1,0.5,batch,red\n")
    assert column_map.read(written[0], str(written[1])).workload.runtime_s.tolist() == [360]


PLAIN = """[columns]
id = "n"
submit = "t"
start = "s"
end = "e"
requested = "w"
[table]
empty = ["-", "n/a"]
[time]
submit = "text"
format = "%d.%m.%Y %H:%M"
zone = "Europe/Berlin"
requested = "text"
[resources]
core = {column = "c"}
[nodes]
name = "host"
resources = {core = {column = "cores"}}
"""
ROWS = (
    "1,23.03.2026 00:10,23.03.2026 00:12,23.03.2026 00:20,00:30:00,4\n",
    "2,23.03.2026 00:10,23.03.2026 00:09,23.03.2026 00:20,1-00:00:00,1\n",
    "3,23.03.2026 00:10,-,n/a,00:30:00,1\n", "4,23.03.2026 00:10,23.03.2026 00:12,"
    "23.03.2026 02:12,00:30:00,1\n",
)  # fmt: skip


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Path, str, Path]:
    jobs, form, nodes = (tmp_path / name for name in ("jobs.csv", "map.toml", "nodes.csv"))
    jobs.write_text("n,t,s,e,w,c\n" + "".join((*ROWS, ROWS[0])))
    form.write_text(PLAIN)
    nodes.write_text("host,cores\na,8\nb,\n")
    return jobs, str(form), nodes


def test_dates_of_a_format_durations_as_text_and_words_for_empty_cells_are_read(
    plain: tuple[Path, str, Path],
) -> None:
    found = column_map.read(*plain)
    assert found.workload.table.id.tolist() == [1, 2, 4]
    assert found.workload.table.submit_s.tolist() == [1774221000] * 3
    assert found.workload.table.requested_s.tolist() == [1800, 86400, 1800]
    assert found.workload.runtime_s.tolist() == [480, 660, 7200]
    assert found.left_out == {"stands twice": 1, "never started": 1}
    assert found.notes == {
        "start before they are submitted": 1, "run longer than they request": 1,
        "nodes of which core is unknown: they have none": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("which", "before", "after", "message"),
    [
        (0, "23.03.2026 00:12", "2026-03-23 00:12", "of the format %d.%m.%Y %H:%M from 1970 on"),
        (0, "1-00:00:00", "1 day", "jobs.csv:3: field w: no duration as 1-12:30:00: not a dur"),
        (1, 'submit = "text"\nformat', 'submit = "s"\nformat', "field time.zone: says how to read"),
        (1, 'core = {column = "c"}\n[n', 'core = {column = "c"}\nmem = {column = "c"}\n[n',
         "field resources.mem.unit: memory needs a unit; write one of b, kb, mb, gb"),
        (1, "%Y %H:%M", "%Y %H:%M %d", "field time.format: not a format of strptime: a part of"),
        (1, "%Y %H:%M", "%Y %Q", "'Q' is a bad directive in format '%d.%m.%Y %Q'"),
        (1, 'core = {column = "c"}\n[n', 'gpu = {column = "c"}\n[n',
         "jobs ask for gpu, of which "),
        (2, "b,", "a,8", "nodes.csv:3: field host: a node stands twice (found 'a')"),
        (2, "b,", ",8", "nodes.csv:3: field host: a node needs a name"),
    ],
)  # fmt: skip
def test_a_map_or_a_table_of_nodes_that_says_something_odd_is_refused(
    which: int, before: str, after: str, message: str, plain: tuple[Path, str, Path]
) -> None:
    path = Path(plain[which])
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises((InputError, UsageError)) as error:
        column_map.read(*plain)
    assert message in str(error.value)


def test_parquet_comes_to_the_same_as_csv(written: tuple[Path, Path], tmp_path: Path) -> None:
    frame = pd.read_csv(written[0], dtype={"number": str})
    frame.to_parquet(tmp_path / "jobs.parquet")
    one = column_map.read(written[0], str(written[1]))
    other = column_map.read(tmp_path / "jobs.parquet", str(written[1]))
    assert np.array_equal(one.workload.table.block, other.workload.table.block)
    assert one.left_out == other.left_out


PUBLISHED = {
    # documentation/job_features.md of PM100-data
    "pm100": "cores_per_task eligible_time end_time group_id job_id job_state nodes num_cores_req "
    "num_cores_alloc num_gpus_req num_gpus_alloc num_nodes_req num_nodes_alloc mem_req mem_alloc "
    "num_tasks partition priority qos req_nodes run_time shared start_time submit_time time_limit "
    "user_id power_consumption",
    # docs/feature_list.csv of F-DATA
    "fdata": "jid usr jnam cnumr cnumat cnumut nnumr adt qdt schedsdt deldt ec elpl sdt edt nnuma "
    "nnumu mszl pri econ avgpcon msza jobenv_req freq_req freq_alloc duration",
    # Lassen-Supercomputer-Job-Dataset/README.md of LAST
    "lassen": "allocation_id primary_job_id launch_node_name isolated_cores user_flags "
    "system_flags ssd_min ssd_max num_nodes num_processors num_gpus projected_memory type job_type "
    "hashed_user_id hashed_user_group_id begin_time end_time exit_status job_submit_time queue "
    "requeue time_limit smt_mode core_blink",
}
"""Names of columns as they were published with the data."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_bundled_map_names_columns_that_were_published(name: str) -> None:
    form = column_map.load(name)
    amounts = {a.column for a in form.resources.values() if a.column}
    assert {*form.columns.values(), *amounts} <= {*PUBLISHED[name].split()}


@pytest.mark.parametrize("name", column_map.bundled())
def test_a_bundled_map_reads_a_table_with_its_columns(name: str, tmp_path: Path) -> None:
    form = column_map.load(name)
    assert form.source
    cells: dict[str, Any] = dict.fromkeys(form.table.names, "1")
    moment = "2026-11-20 08:00:00" if form.time.submit == "text" else "100"
    cells |= dict.fromkeys(form.columns.values(), "4")
    cells |= {
        form.columns[key]: moment for key in ("submit", "start", "end") if key in form.columns
    }
    for amount in form.resources.values():
        cells |= dict.fromkeys(
            (c for c in (amount.column, amount.times) if isinstance(c, str)), "4"
        )
    cells.pop("", None)
    path = tmp_path / "jobs.csv"
    lines = [",".join(cells), ",".join(cells.values())]
    path.write_text(" ".join(cells.values()) if form.table.blanks else "\n".join(lines))
    found = column_map.read(path, name)
    assert len(found.workload) == 1
    run = simulator.simulate(*prepare(found.workload, found.system), "easy")
    assert not run.verify()


def test_the_help_names_the_bundled_maps() -> None:
    assert f"{', '.join(column_map.bundled())}, or a TOML file" in (command.__doc__ or "")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (",7,1,0.5,", ",x,1,0.5,", "jobs.csv:2: field cores: not a number in range"),
        (",30,2,", ",1e99,2,", "jobs.csv:2: field limit: not a number in range"),
        ("2026-07-01 09:00:00,2026", "1969-07-01,2026", "no date and time of ISO 8601 from"),
        ("2026-07-01 09:00:00,2026", "yesterday,2026", "jobs.csv:2: field begun: no date and time"),
        ("colour", "shade", "field kind"),
        ("batch,red", "batch,red,8", "jobs.csv:2: 13 cells in a table of 12 columns"),
        ("batch,red", "batch", "jobs.csv:2: 11 cells in a table of 12 columns"),
        (",7,1,0.5,batch,red", ",7,1,0.5,batch,red\n\n,x", "jobs.csv:4: 2 cells"),
        ("hosts", "nodes", "field hosts: the column is missing"),
    ],
)  # fmt: skip
def test_a_wrong_cell_is_named(
    before: str, after: str, message: str, written: tuple[Path, Path]
) -> None:
    text = JOBS.replace("kind", "sort") if message == "field kind" else JOBS
    written[0].write_text(text.replace(before, after, 1))
    with pytest.raises(InputError) as error:
        column_map.read(written[0], str(written[1]))
    assert message in str(error.value)


def test_amounts_that_are_unknown_or_rounded_are_counted(written: tuple[Path, Path]) -> None:
    written[0].write_text(
        JOBS.replace(",ann,7,", ",ann,,").replace(
            ",1,bob,1,0,1,night,\n9", ",1,bob,-3,0,1,night,\n9", 1
        )
    )
    unknown = "core unknown or below 0: none is asked for"
    assert column_map.read(written[0], str(written[1])).notes[unknown] == 1
    written[0].write_text(JOBS)
    notes = column_map.read(written[0], str(written[1])).notes
    assert notes["core rounded up to the same for each unit"] == 1  # 7 on 2 hosts
    assert unknown not in notes
    assert not any("fraction" in note for note in notes)
    written[0].write_text(JOBS.replace(",30,2,ann,7,1,0.5,", ",30,1.5,ann,7.5,0.5,0.5,"))
    found = column_map.read(written[0], str(written[1]))
    rounded = {note: many for note, many in found.notes.items() if "fraction" in note}
    # Half a card is one: cards are counted twice.
    assert rounded == {f"{name} with a fraction: rounded up": 1 for name in ("units", "core")}
    assert found.workload.table.request[0].tolist() == [4, 1, 512]


def test_eight_digits_are_a_date(written: tuple[Path, Path]) -> None:
    plain = column_map.read(*map(str, written)).workload
    times = "2026-07-01 08:00:00,2026-07-01 09:00:00,2026-07-01 09:10:00"
    written[0].write_text(JOBS.replace(times, "20260701,20260702,20260703"))
    found = column_map.read(*map(str, written)).workload
    assert found.runtime_s[0] == 86_400
    assert plain.table.submit_s[0] - found.table.submit_s[0] == 8 * 3600


def test_a_product_of_two_columns_is_unknown_where_one_is(written: tuple[Path, Path]) -> None:
    written[1].write_text(MAP.replace("times = 2", 'times = "memory"'))
    written[0].write_text(JOBS.replace(",7,1,0.5,", ",7,-1,-1,"))
    found = column_map.read(written[0], str(written[1]))
    assert "gpu" not in found.workload.resources  # no job asks for any
    assert found.notes["gpu unknown or below 0: none is asked for"] == 1
    written[0].write_text(JOBS.replace(",7,1,0.5,", f",7,{10**14},{10**14},"))
    with pytest.raises(InputError, match=":2: field cards: times memory it is more than"):
        column_map.read(written[0], str(written[1]))


@pytest.mark.parametrize(
    ("column", "row"), [("cpu_milli", "n1,-8,100,2,T4"), ("gpu", "n1,8,1,-2,T4")]
)
def test_a_node_with_less_than_nothing_is_refused(column: str, row: str, tmp_path: Path) -> None:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,"
        "scheduled_time\na,1000,10,1,1000,T4,LS,0,50,0\n"
    )
    nodes.write_text(f"sn,cpu_milli,memory_mib,gpu,model\nn0,8000,100,0,\n{row}\n")
    with pytest.raises(InputError, match=f":3: field {column}: a node cannot have less than 0"):
        column_map.read(pods, "openb", nodes)


def made(map: str, folder: Path, **columns: Any) -> column_map.Imported:
    """What a map makes of a Parquet table that was written without pandas."""
    (folder / "own.toml").write_text(map)
    pq.write_table(pa.table(columns), folder / "jobs.parquet")
    return column_map.read(folder / "jobs.parquet", str(folder / "own.toml"))


OWN = """
[columns]
id = "id"
submit = "at"
runtime = "run"
user = "who"
[resources]
core = {core}
"""


def own(core: str = '{column = "c"}', more: str = "") -> str:
    return OWN.format(core=core) + more


def test_an_empty_cell_of_a_parquet_file_makes_no_other_numbers_and_names(tmp_path: Path) -> None:
    found = made(
        own(), tmp_path, id=[11, 12, None, 14], at=[0, 1, 2, 3], run=[5] * 4, c=[1] * 4,
        who=[1000, 1001, None, 1002], raw=[b"ab", b"\xff", b"", None],
    )  # fmt: skip
    table = found.workload.table
    assert {11, 12, 14} <= set(table.id.tolist())
    assert [table.label("user", k) for k in (0, 1)] == ["1000", "1001"]


def test_durations_of_a_parquet_file_are_seconds_and_times_are_no_numbers(tmp_path: Path) -> None:
    run = pa.array([60_000_000, 90_000_000], type=pa.duration("us"))
    found = made(own(), tmp_path, id=[1, 2], at=[0, 1], run=run, c=[1, 1], who=["a", "b"])
    assert found.workload.runtime_s.tolist() == [60, 90]
    at = pa.array([1, 2], type=pa.timestamp("s"))
    with pytest.raises(InputError, match=r'field at: dates and times.*submit = "text"'):
        made(own(), tmp_path, id=[1, 2], at=at, run=run, c=[1, 1], who=["a", "b"])


def test_an_index_of_pandas_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(own())
    jobs = pd.DataFrame({"id": [7, 8], "at": [0, 1], "run": 5, "c": 1, "who": "a"}).set_index("id")
    jobs.to_parquet(tmp_path / "jobs.parquet")
    found = column_map.read(tmp_path / "jobs.parquet", str(tmp_path / "own.toml"))
    assert found.workload.table.id.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("core", "amount"),
    [
        ('{column = "c", times = "k"}', 2), ("{times = 8}", 8),
        ('{times = 8, each = "job"}', 2), ('{column = "k", each = "job"}', 1),
    ],
)  # fmt: skip
def test_an_amount_is_rounded_once_and_shared_by_the_units(
    core: str, amount: int, tmp_path: Path
) -> None:
    form = own(core).replace('who"\n', 'who"\nunits = "k"\n')
    found = made(form, tmp_path, id=[1], at=[0], run=[5], c=[0.5], k=[4], who=["a"])
    assert found.workload.table.request.tolist() == [[amount]]


def test_an_amount_of_each_node_is_shared_by_the_units_on_all(tmp_path: Path) -> None:
    path = tmp_path / "alea.txt"
    path.write_text("".join(
        f"{k} 0 0 60 {units} 1 1 {units} 90 {2**30} 1 6 1 1 -1 1 1 1 {nodes} q_1d 1:ppn=1\n"
        for k, (units, nodes) in enumerate(((4, "{7,7,9,9}"), (4, "{7,7,7,7}"), (2, "-1")))
    ))  # fmt: skip
    workload = column_map.read(path, "alea").workload
    assert workload.table.units.tolist() == [4, 4, 2]
    assert workload.table.request[:, 1].tolist() == [512, 256, 512]


def test_a_constant_amount_of_memory_has_its_unit(tmp_path: Path) -> None:
    form = own(more='mem = {times = 8, unit = "gb"}\n')
    found = made(form, tmp_path, id=[1], at=[0], run=[5], c=[1], who=["a"])
    assert found.workload.table.request.tolist() == [[1, 8192]]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ('mem_gb = {column = "c", unit = "gb"}\n', "resources.mem_gb: a workload has a column"),
        ('begin = {column = "c"}\n', "resources.begin: a workload has a column of this name"),
        ('node_mem = {column = "c"}\n', "resources.node_mem: a workload has a column"),
        ('gpu = {times = "c"}\n', "resources.gpu: times another column, but which"),
        ('gpu = {column = "c", each = "node"}\n', "resources.gpu.nodes: what each node has needs"),
        ('gpu = {column = "c", nodes = "c"}\n', "resources.gpu.nodes: what each node has needs"),
        ('gpu = {column = "c", times = 0}\n', "resources.gpu.times: 1 or more is needed"),
        (f'gpu = {{times = 1{"0" * 400}}}\n', "resources.gpu.times: 1 or more is needed, 2814"),
        ('[nodes]\nname = "n"\nresources.mem_mb = {column = "c"}\n', "nodes.resources.mem_mb: "),
    ],
)  # fmt: skip
def test_a_resource_that_would_be_something_else_is_refused(
    more: str, field: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        made(own(more=more), tmp_path, id=[1], at=[0], run=[5], c=[1], who=["a"])
    assert f"field {field}" in str(error.value)


def test_a_column_of_names_that_the_table_of_nodes_does_not_have_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.toml").write_text(
        own(more='[nodes]\nname = "hots"\nresources.core = {column = "c"}\n')
    )
    (tmp_path / "jobs.csv").write_text("id,at,run,who,c\n1,0,5,a,1\n")
    (tmp_path / "nodes.csv").write_text("host,c\nn1,4\n")
    with pytest.raises(InputError, match=r"nodes\.csv: field hots: the column is missing"):
        column_map.read(tmp_path / "jobs.csv", str(tmp_path / "own.toml"), tmp_path / "nodes.csv")


def test_a_table_of_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(own())
    (tmp_path / "jobs.csv").write_text("id,at,run,who,c,c\n1,0,5,a,1,2\n")
    with pytest.raises(InputError, match=r"jobs.csv:1: field c: a column is named twice"):
        column_map.read(tmp_path / "jobs.csv", str(tmp_path / "own.toml"))


@pytest.mark.parametrize("apart", [", ", " ,", "\t,\t"])
def test_blanks_around_names_and_cells_are_left_out(apart: str, written: tuple[Path, Path]) -> None:
    plain = column_map.read(*map(str, written))
    written[0].write_text(JOBS.replace(",", apart))
    found = column_map.read(*map(str, written))
    assert found.workload.table.block.tolist() == plain.workload.table.block.tolist()
    assert found.workload.table.label("user", 0) == "ann"
    assert found.extra.equals(plain.extra)
    assert found.left_out == plain.left_out


def test_a_cell_of_blanks_is_empty_and_a_name_with_blanks_stands_twice(tmp_path: Path) -> None:
    jobs, form = tmp_path / "jobs.csv", tmp_path / "own.toml"
    form.write_text('[table]\nempty = ["-"]\n' + own())
    jobs.write_text("id,at,run,who,c\n1,0,5, - ,1\n2,0,  ,a,1\n , , , , \n")
    found = column_map.read(jobs, str(form))
    assert found.left_out == {"runtime unknown": 1}
    assert found.workload.table.label("user", 0) == ""
    jobs.write_text("id,at,run,who,c, c\n1,0,5,a,1,2\n")
    with pytest.raises(InputError, match=r"jobs.csv:1: field c: a column .* twice; rename one"):
        column_map.read(jobs, str(form))


def test_a_cell_that_is_no_number_leads_to_the_list_of_those_that_say_nothing(
    written: tuple[Path, Path],
) -> None:
    written[0].write_text(JOBS.replace(",7,1,0.5,", ",?,1,0.5,"))
    wrong = r"jobs\.csv:2: field cores: .* \(found '\?'\); .* to empty under \[table\]"
    with pytest.raises(InputError, match=wrong):
        column_map.read(*map(str, written))
    written[1].write_text(MAP.replace("[columns]", '[table]\nempty = ["?"]\n[columns]'))
    assert len(column_map.read(*map(str, written)).workload) == 2


@pytest.mark.parametrize("content", ["", "\n", " \n\n"])
def test_a_file_without_a_table_is_said_to_be_empty(
    content: str, written: tuple[Path, Path]
) -> None:
    written[0].write_text(content)
    with pytest.raises(InputError, match=r"jobs\.csv: the file is empty; name a table"):
        column_map.read(*map(str, written))


def test_the_names_of_nodes_and_jobs_are_kept_whatever_they_are_called(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        own(more='[nodes]\nname = "node"\nresources.core = {column = "k"}\n')
    )
    (tmp_path / "jobs.csv").write_text("id,id_,at,run,who,c\nx7,kept,0,5,a,1\n")
    (tmp_path / "nodes.csv").write_text("node,k,group\nn01,4,a\nn02,8,b\n")
    found = column_map.read(
        tmp_path / "jobs.csv", str(tmp_path / "own.toml"), tmp_path / "nodes.csv"
    )
    assert found.nodes is not None
    assert found.nodes["node_"].tolist() == ["n01", "n02"]
    assert found.nodes["group_"].tolist() == ["a", "b"]
    assert found.extra["id_"].tolist() == ["kept"]
    assert found.extra["id_of_the_table"].tolist() == ["x7"]


def test_names_that_are_not_utf_8_stay_different(written: tuple[Path, Path]) -> None:
    text = JOBS.encode().replace(b",ann,", b",m\xfcller,").replace(b",bob,", b",m\xf6ller,")
    written[0].write_bytes(text)
    found = column_map.read(written[0], str(written[1])).workload
    users = {found.table.label("user", row) for row in range(len(found))}
    assert users == {r"m\xfcller", r"m\xf6ller"}


@pytest.mark.parametrize("amount", ["0.5", "0,5"])
def test_other_marks_than_commas_are_named(amount: str, written: tuple[Path, Path]) -> None:
    """Also where decimals have commas, as spreadsheets write both."""
    written[0].write_text(JOBS.replace(",", ";").replace(";0.5;", f";{amount};"))
    with pytest.raises(InputError, match=r"jobs\.csv:1: .* by commas, and not by ';'"):
        column_map.read(written[0], str(written[1]))


def test_lines_may_end_as_on_any_system(written: tuple[Path, Path]) -> None:
    plain = column_map.read(*map(str, written)).workload
    for end in ("\r\n", "\r"):
        written[0].write_bytes(JOBS.replace("\n", end).encode())
        found = column_map.read(*map(str, written)).workload
        assert found.table.block.tolist() == plain.table.block.tolist()


def test_a_time_in_a_wrong_unit_is_named_by_its_line(tmp_path: Path) -> None:
    jobs, form = tmp_path / "jobs.csv", tmp_path / "map.toml"
    jobs.write_text(
        "t,s,e,c\n0,5,9,1\n,,,1\n1760306574000,1760306575000,1760306576000,1\n7,8,9,1\n"
    )
    form.write_text(
        '[columns]\nsubmit = "t"\nstart = "s"\nend = "e"\n[resources]\ncore = {column = "c"}\n'
    )
    wrong = r"jobs\.csv:4: field t: beyond the year 9999 \(found '1760306574000'\); .*\"ms\""
    with pytest.raises(InputError, match=wrong):
        column_map.read(jobs, str(form))
    form.write_text(f'[time]\nsubmit = "ms"\n{form.read_text()}')
    assert column_map.read(jobs, str(form)).workload.table.submit_s[-1] == 1_760_306_574


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('user = "who"', 'usr = "who"', "did you mean user"),
        ('submit = "queued"', "", "needs submit"),
        ('each = "job"', 'each = "rack"', "not a column map"),
        (
            'zone = "Europe/Berlin"',
            'zone = "Nowhere"',
            r"field time\.zone: no such time zone \(found 'Nowhere'\); write one as Europe/Berlin",
        ),
    ],
)
def test_a_wrong_map_is_refused(
    before: str, after: str, message: str, written: tuple[Path, Path]
) -> None:
    written[1].write_text(MAP.replace(before, after, 1))
    with pytest.raises((InputError, UsageError), match=message):
        column_map.read(written[0], str(written[1]))


def test_an_unknown_map_is_refused_with_the_nearest(written: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="did you mean openb"):
        column_map.load("openbb")
    with pytest.raises(UsageError, match="says nothing of nodes"):
        column_map.read(written[0], str(written[1]), written[0])


@pytest.mark.log
def test_pods_and_nodes_of_openb_are_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(os.environ.get("CPDISPATCH_TRACES", ROOT.parent / "shared" / "traces"))
    pods, nodes = folder / "openb_pod_list_default.csv.gz", "openb_node_list_all_node.csv.gz"
    if not pods.exists():
        pytest.skip(f"no log {pods}: set CPDISPATCH_TRACES to the folder that holds the logs")
    asked = ["import", "table", str(pods), "--map", "openb", "--nodes", str(folder / nodes)]
    assert cli.run([*asked, "--out", str(tmp_path / "o"), "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["read"] == 8152 == told["kept"] + sum(told["left_out"].values())
    assert told["left_out"] == {"never started": 897}
    machine = column_map.read(pods, "openb", folder / nodes).system
    assert (machine.nodes, int(machine.total[1])) == (1523, 6212 * 1000)


def test_pods_keep_to_the_types_of_gpus_that_they_may_use(tmp_path: Path) -> None:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,"
        "scheduled_time\n"
        "a,1000,10,1,1000,T4,LS,0,50,0\nb,1000,10,1,500,V100M16|V100M32,LS,1,60,1\n"
        "c,1000,10,0,0,,BE,2,9,2\nd,1000,10,1,1000,H800,LS,3,9,3\n"
    )
    nodes.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,100,0,\nn1,8000,100,2,V100M32\n"
        "n2,8000,100,2,T4\nn3,8000,100,2,V100M32\n"
    )
    found = column_map.read(pods, "openb", nodes)
    groups = [(group.nodes, group.features) for group in found.system.groups]
    assert groups == [(1, ()), (2, ("V100M32",)), (1, ("T4",))]
    codes, texts = found.workload.asked("features")
    # No node has a V100M16 or an H800: the job that may use nothing else runs anywhere, counted.
    assert [texts[k] for k in codes] == ["T4", "V100M32", "", ""]
    run = simulator.simulate(*prepare(found.workload, found.system), "easy")
    assert verify.run(run.jobs, run.system) == []
    assert run.jobs["nodes"][:2].tolist() == [[3], [1]]
    alone = column_map.read(pods, "openb")
    assert alone.workload.asked("features")[1] == ("",)
