from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import LABELLED, Column, Workload
from cpdispatch.workloads import table
from cpdispatch.workloads.clean import (
    NOTHING_ASKED,
    RENUMBERED,
    REQUEST_COPIED,
    ROUNDED,
    RUNTIME_UNKNOWN,
    SIZE_UNKNOWN,
    TOO_LARGE,
)
from tests.workloads.strategies import resource_workloads

HEADER = "id,submit,runtime,requested,units,core,gpu,user\n"
FORMATS = (".csv", ".csv.gz", ".csv.xz", ".csv.zst", ".parquet")


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "jobs.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def assert_same(one: Workload, other: Workload) -> None:
    assert one.resources == other.resources
    assert one.memory_unit_kb == other.memory_unit_kb
    for column in Column:
        if column.name.lower() not in LABELLED:
            assert np.array_equal(one.table.block[column], other.table.block[column]), column
    assert np.array_equal(one.table.request, other.table.request)
    for name in LABELLED:
        labels = [[w.table.label(name, k) for k in range(len(w))] for w in (one, other)]
        assert labels[0] == labels[1]
    for name in ("runtime_s", "preceding", "think_s"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_every_column_arrives(log: Callable[..., Path]) -> None:
    text = (
        "id,submit,runtime,requested,units,core,gpu,mem_gb,user,group,queue,executable,partition,"
        "preceding,think\n"
        "7,10,60,100,3,4,1,2,ann,5,debug,a.out,9,6,30\n"
    )
    workload = table.read(log(text))
    one = workload.table[0]
    assert (one.id, one.submit_s, one.units, one.requested_s) == (7, 10, 3, 100)
    assert workload.resources == ("core", "gpu", "mem")
    assert one.request == (4, 1, 2)
    assert workload.memory_unit_kb == 1024 * 1024
    assert [workload.table.label(name, 0) for name in LABELLED] == [
        "ann",
        "5",
        "debug",
        "a.out",
        "9",
    ]
    assert (one.group, one.partition) == (5, 9)
    assert workload.runtime_s.tolist() == [60]
    assert (workload.preceding.tolist(), workload.think_s.tolist()) == ([6], [30])
    assert (workload.name, workload.per_processor, workload.notes) == ("jobs", False, {})


@pytest.mark.parametrize(
    "text",
    [
        "#id,submit,runtime,units,core\n1,0,5,1,1\n",
        "# id, submit , runtime,units,core\r\n1,0,5,1,1\r\n",
        "\ufeffid,submit,runtime,units,core\n\n1,0,5,1,1",
        '"id","submit","runtime","units","core"\n"1","0","5","1","1"\n',
        "core,units,runtime,submit,id\n1, 1,5.0,0,1\n",
    ],
    ids=["hash", "spaces and crlf", "bom and blank line", "quotes", "another order"],
)
def test_harmless_liberties_are_taken(log: Callable[..., Path], text: str) -> None:
    workload = table.read(log(text))
    assert workload.table[0].request == (1,)
    assert workload.runtime_s.tolist() == [5]
    assert workload.notes == {REQUEST_COPIED: 1}


def test_names_become_labels_and_numbers_stay(log: Callable[..., Path]) -> None:
    rows = ["1,0,5,5,1,1,0,zoe", "2,0,5,5,1,1,0,", "3,0,5,5,1,1,0,12", "4,0,5,5,1,1,0,NA"]
    mixed = table.read(log(HEADER + "\n".join(rows)))
    assert [mixed.table.label("user", k) for k in range(4)] == ["zoe", "", "12", "NA"]
    assert mixed.table.labels == {"user": ("12", "NA", "zoe")}
    numbers = table.read(log(HEADER + "1,0,5,5,1,1,0,12\n2,0,5,5,1,1,0,\n3,0,5,5,1,1,0,-1\n"))
    assert numbers.table.column(Column.USER).tolist() == [12, -1, -1]
    assert numbers.table.labels == {}


def test_numbers_that_pandas_wrote_with_a_fraction_of_none_are_numbers(
    log: Callable[..., Path],
) -> None:
    # As to_csv writes a column of integers of which one is missing.
    numbers = table.read(log(HEADER + "1,0,5,5,1,1,0,3.0\n2,0,5,5,1,1,0,\n3,0,5,5,1,1,0,-1.0\n"))
    assert numbers.table.column(Column.USER).tolist() == [3, -1, -1]
    assert numbers.table.labels == {}
    assert numbers.notes == {"repaired: user such as 3.0 beside an empty cell, read without .0": 2}
    names = table.read(log(HEADER + "1,0,5,5,1,1,0,3.0\n2,0,5,5,1,1,0,3.1\n"))
    assert names.table.labels == {"user": ("3.0", "3.1")}
    # Where no cell is empty these are names, as of a partition; so they are beside others.
    for users in (("1.0", "2.0"), ("2", "2.0")):
        rows = [f"{k},0,5,5,1,1,0,{user}\n" for k, user in enumerate(users)]
        assert table.read(log(HEADER + "".join(rows))).table.labels == {"user": users}


@given(st.lists(st.from_regex(r"-?[0-9]{1,4}", fullmatch=True), min_size=1, max_size=6))
def test_names_of_digits_stay_as_they_are_written(names: list[str]) -> None:
    many = list(range(len(names)))
    made = table.from_table(
        {"id": many, "submit": many, "runtime": 5, "units": 1, "core": 1, "user": names}
    )
    numbers = all(name == str(int(name)) for name in names)
    wanted = ["" if numbers and name.startswith("-") else name for name in names]
    assert [made.table.label("user", k) for k in many] == wanted


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("1,0,,5,1,1,0,ann", RUNTIME_UNKNOWN),
        ("1,0,-1,5,1,1,0,ann", RUNTIME_UNKNOWN),
        ("1,0,5,5,,1,0,ann", SIZE_UNKNOWN),
        ("1,0,5,5,0,1,0,ann", SIZE_UNKNOWN),
        ("1,0,5,5,1,0,0,ann", NOTHING_ASKED),
    ],
)
def test_what_cannot_be_run_is_dropped_and_counted(
    log: Callable[..., Path], row: str, rule: str
) -> None:
    workload = table.read(log(f"{HEADER}{row}\n2,0,5,5,1,1,0,ann\n"))
    assert workload.table.id.tolist() == [2]
    assert workload.notes == {rule: 1}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("1,0,5,,1,1,0,ann", REQUEST_COPIED),
        ("1,0,4.6,5,1,1,0,ann", ROUNDED),
        (",0,5,5,1,1,0,ann", RENUMBERED),
    ],
)
def test_what_can_be_repaired_is_counted(log: Callable[..., Path], row: str, rule: str) -> None:
    workload = table.read(log(HEADER + row))
    assert workload.runtime_s.tolist() == workload.table.requested_s.tolist() == [5]
    assert workload.notes == {rule: 1}


def test_the_filter_strong_counts_the_cores_of_all_units(log: Callable[..., Path]) -> None:
    path = log(HEADER + "1,0,5,5,4,4,0,ann\n2,0,5,5,5,4,0,ann\n")
    assert table.read(path, "strong", 16).notes == {TOO_LARGE: 1}
    with pytest.raises(InputError, match="give --system"):
        table.read(path, "strong")


def test_an_absurd_size_does_not_wrap_around_into_a_small_one(log: Callable[..., Path]) -> None:
    path = log(HEADER + f"1,0,5,5,{2**40},{2**40},0,ann\n2,0,5,5,1,1,0,ann\n")
    assert table.read(path, "strong", 16).notes == {TOO_LARGE: 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"jobs\.csv:1: field id: the column is missing; the file has no column"),
        (
            f"id,submit,runtime,units,core\n1,0,5,1,1\n2,0,{'9' * 400},1,1\n",
            r":3: field runtime: not a whole number in range \(found '9{99}\.\.\.9{49}'\)",
        ),
        ("id,submit,runtime,units,core\n1,0,5\n2,0,5,1,1,1,1\n", r":2: 3 cells in a table of 5"),
        ("id,submit,runtime,units,core\r1,0,5,1,1\r2,0,x,1,1\r", r":3: field runtime: not a whole"),
        ("id;submit;runtime;units;core\n1;0;5;1;1\n", r":1: .* by commas, and not by ';'"),
        ("Job,submit,runtime,units,core\n", r":1: field id: .*; `cpdispatch import table` reads"),
        (HEADER + "1,2026-01-31 12:00:00,5,5,1,1,0,a\n", r":2: .*12:00:00'\); times are whole sec"),
        (HEADER + "1,0,00:10:00,5,1,1,0,a\n", r":2: .*'00:10:00'\); times are whole seconds"),
        (
            HEADER + "1,1,5,5,1,1,0,a\n2,1767225600000,5,5,1,1,0,a\n",
            r":3: field submit: .*9999",
        ),
        ('id,submit,runtime,units,"co\n', r":1: cannot be parsed as CSV"),
        ("; Version: 2.2\n1 0\n", r"csv: not a table of jobs; it looks like a log in SWF"),
        ("id,runtime,units,core\n", r":1: field submit: the column is missing; the columns are id"),
        ("id,submit,runtime,units\n1,0,5,1\n", r":1: no resource type"),
        ("id,id,submit,runtime,units,core\n", r":1: field id: a column is named twice"),
        ("id,,submit,runtime,units,core\n", r":1: a column has no name"),
        ("id,submit,runtime,units,mem,mem_kb\n", r":1: memory is stated twice, in mem and mem_kb"),
        (HEADER, r"jobs\.csv: the log has no job"),
        (HEADER + "1,0,5,5,1,1,0,a\n\n2,x,5,5,1,1,0,a\n", r":4: field submit: .*\(found 'x'\)"),
        (HEADER + "1,0,5,5,1,1,0,a\n2,0,5,5,1,,0,a\n", r":3: field core: .*write 0 for nothing"),
        (HEADER + "1,0,5,5,1,1.5,0,a\n", r":2: field core: .*\(found '1\.5'\)"),
        (HEADER + "1,0,5,5,1,-1,0,a\n", r":2: field core: .*\(found '-1'\)"),
        (HEADER + "1,0,5,5,1.5,1,0,a\n", r":2: field units: .*\(found '1\.5'\)"),
        (HEADER + "1,0,5,5,1,yes,0,a\n", r":2: field core: .*\(found 'yes'\)"),
        (HEADER + "1,0,5,5,1,True,0,a\n", r":2: field core: .*\(found 'True'\)"),
        (HEADER + "1,0,inf,5,1,1,0,a\n", r":2: field runtime: .*\(found 'inf'\)"),
        (HEADER + "1,0,nan,5,1,1,0,a\n", r":2: field runtime: .*\(found 'nan'\)"),
        (HEADER + "1,9e30,5,5,1,1,0,a\n", r":2: field submit: .*\(found '9e30'\)"),
        (HEADER + f"{'9' * 30},0,5,5,1,1,0,a\n", r":2: field id: .*found '999"),
        (HEADER + "1,0,5,5,1,1,0,a\n2,0,5,5,1,1,0\n", r":3: 7 cells in a table of 8 columns"),
        (HEADER + "1,0,5,5,1,1,0,a\n2,0,5,5,1,1,0,a,b\n", r":3: 9 cells in a table of 8 columns"),
        (HEADER + '1,0,5,5,1,1,0,"a\nb"\n2,0,5,5,1,1,0\n', r":4: 7 cells in a table of 8 columns"),
        (HEADER + '1,0,5,5,1,1,0,"a,b"\n2,0,5,5,1,1,0\n', r":3: 7 cells in a table of 8"),
        (HEADER + '1,0,5,5,1,1,0,"a\n2,0,5,5,1,1,0,b\n', r"jobs\.csv: cannot be parsed as CSV"),
    ],
)
def test_what_cannot_be_understood_is_named_with_its_place(
    log: Callable[..., Path], text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        table.read(log(text))


def test_an_unknown_column_of_text_is_named(log: Callable[..., Path]) -> None:
    text = "id,submit,runtime,units,core,colour\n1,0,5,1,1,red\n"
    with pytest.raises(InputError, match=r":2: field colour: .*'red'.*taken for a resource type"):
        table.read(log(text))


@pytest.mark.parametrize(
    ("column", "said"),
    [("node_mem_gb", "a job asks of a node"), ("first_mem_gb", "a job takes once")],
)
def test_an_empty_amount_is_said_to_be_of_what_it_is(
    column: str, said: str, log: Callable[..., Path]
) -> None:
    text = f"id,submit,runtime,units,core,{column}\n1,0,5,1,1,\n"
    with pytest.raises(InputError, match=rf":2: field {column}: .*what {said}: write 0 for"):
        table.read(log(text))


def test_submissions_in_milliseconds_are_refused(log: Callable[..., Path]) -> None:
    late = "beyond the year 9999: times are seconds; divide milliseconds by 1000"
    with pytest.raises(InputError, match=rf"jobs.csv:3: field submit: {late}"):
        table.read(log(HEADER + "1,0,5,5,1,1,0,ann\n2,1600000000000,5,5,1,1,0,ann\n"))
    with pytest.raises(InputError, match=f"field submit of row 1: {late}"):
        table.from_table(
            {"id": [1], "submit": [1600000000000], "runtime": 1, "units": 1, "core": 1}
        )


def test_priorities_below_0_are_counted(log: Callable[..., Path]) -> None:
    """PBS has some from -1024 on."""
    rows = (f"{k},0,5,1,1,{own}\n" for k, own in enumerate(("-1024", "", "7", "0", "-1")))
    found = table.read(log("id,submit,runtime,units,core,priority\n" + "".join(rows)))
    assert found.table.priority.tolist() == [0, 0, 7, 0, 0]
    assert found.notes["repaired: priority below 0, it counts as 0"] == 2


def test_memory_beyond_counting_is_refused_in_every_unit(log: Callable[..., Path]) -> None:
    text = "id,submit,runtime,units,mem_gb\n1,0,5,1,1000000000\n"
    with pytest.raises(InputError, match=r":2: field mem_gb"):
        table.read(log(text))


# -------------------------------------------------------------------------------- parquet


def frame(**changed: object) -> pd.DataFrame:
    columns: dict[str, object] = {
        "id": [1, 2], "submit": [0, 3], "runtime": [5, 6], "units": [1, 1], "core": [1, 2],
    }  # fmt: skip
    return pd.DataFrame({**columns, **changed})


def test_whole_numbers_may_be_objects() -> None:
    columns = frame(submit=np.array([0, np.int64(5)], dtype=object))
    assert table.from_table(columns).table.submit_s.tolist() == [0, 5]
    for wrong in (["0", "5"], [0, True], [0, "5"]):
        with pytest.raises(InputError, match="field submit of row"):
            table.from_table(frame(submit=np.array(wrong, dtype=object)))
    with pytest.raises(UsageError, match="a dict of columns or a DataFrame is needed"):
        table.from_table(None)  # type: ignore[arg-type]
    for wrong in ({4, 2}, (x for x in [4, 2])):
        with pytest.raises(InputError, match=r"column core of type .*: a list or an array is"):
            table.from_table({**COLUMNS, "core": wrong})
    with pytest.raises(UsageError, match="name None: a text is needed"):
        table.from_table(COLUMNS, name=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="processors '4': a whole number"):
        table.from_table(COLUMNS, filter="strong", processors="4")  # type: ignore[arg-type]


def test_parquet_may_hold_missing_values_categories_and_an_index(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    made = frame(requested=pd.array([9, None], "Int64"), user=pd.Categorical(["b", "a"]))
    made.set_index("id").to_parquet(path)
    workload = table.read(path)
    assert workload.table.id.tolist() == [1, 2]
    assert workload.table.requested_s.tolist() == [9, 6]
    assert [workload.table.label("user", k) for k in range(2)] == ["b", "a"]


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pd.Categorical(["ib", None, "ib"]), ["ib", "", "ib"]), ([12, None, 12], ["12", "", "12"]),
        (["", "bob", ""], ["", "bob", ""]), ([b"m\xfc", None, b"x"], [r"m\xfc", "", "x"]),
    ],
)  # fmt: skip
def test_an_empty_cell_is_unknown_and_a_number_with_one_beside_it_is_whole(
    given: object, wanted: list[str], is_file: bool, tmp_path: Path
) -> None:
    columns = pd.DataFrame({
        "id": [1, 2, 3], "submit": [0, 1, 2], "runtime": 5, "units": 1, "core": 1, "user": given,
        "features": given, "array": given,
    })  # fmt: skip
    columns.to_parquet(path := tmp_path / "jobs.parquet")
    made = table.read(path) if is_file else table.from_table(columns)
    assert [made.table.label("user", k) for k in range(3)] == wanted
    for of, texts in (made.asked("features"), made.asked("array")):
        assert [texts[k] for k in of] == wanted


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("submit", ["0", "soon"], r"field submit of row 2: .*\(found 'soon'\)"),
        ("submit", ["0", "3"], r"field submit of row 1: .*\(found '0'\)"),
        ("core", [1.0, 1.5], r"field core of row 2: .*\(found '1\.5'\)"),
        ("core", [True, False], r"field core of row 1"),
        ("submit", pd.to_datetime(["2020-01-01", "2020-01-02"]), r"field submit of row 1"),
        ("core", [1, -1], r"field core of row 2: .*\(found '-1'\)"),
    ],
)
def test_a_bad_cell_of_parquet_is_named_with_its_row(
    tmp_path: Path, column: str, values: object, message: str
) -> None:
    path = tmp_path / "jobs.parquet"
    frame(**{column: values}).to_parquet(path)
    with pytest.raises(InputError, match=message):
        table.read(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PAR1 but not", "the Parquet table is cut short: its end is missing; copy the file"),
        (b"but not PAR1", "the Parquet table is cut short: its start is missing; copy the file"),
        (b"PAR1 but not reallyPAR1", "the Parquet table is damaged; copy the file again, or write"),
        (
            b"id,submit,core\n",
            "no Parquet table; it looks like a table (CSV); a table (CSV) has the extension .csv",
        ),
        (b"", "no Parquet table; it looks like an empty file; copy the file again, or write it"),
    ],
)
def test_a_file_that_is_no_parquet_is_an_input_error(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "jobs.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        table.read(path)
    assert str(refused.value).startswith(f"{path}: {problem}")


# -------------------------------------------------------------------------------- writing


@given(workload=resource_workloads(), extension=st.sampled_from([".csv", ".csv.zst", ".parquet"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_written_is_read_back_the_same(
    tmp_path: Path, workload: Workload, extension: str
) -> None:
    path = tmp_path / f"jobs{extension}"
    table.write(workload, path)
    back = table.read(path)
    assert_same(back, workload)
    assert back.notes == {}


@pytest.mark.parametrize("extension", FORMATS)
def test_every_format_is_written_and_read(
    tmp_path: Path, log: Callable[..., Path], extension: str
) -> None:
    workload = table.read(log(HEADER + "1,0,5,9,1,1,0,ann\n2,1,5,9,1,1,2,bob\n"))
    path = tmp_path / f"copy{extension}"
    table.write(workload, path)
    assert_same(table.read(path), workload)


@pytest.mark.parametrize("extension", FORMATS)
def test_a_file_whose_name_is_no_utf_8_is_written_and_read(
    tmp_path: Path, log: Callable[..., Path], extension: str
) -> None:
    workload = table.read(log(HEADER + "1,0,5,9,1,1,0,ann\n"))
    path = tmp_path / os.fsdecode(b"b\xe4d" + extension.encode())
    table.write(workload, path)
    assert_same(table.read(path), workload)


def test_columns_of_which_nothing_is_known_are_left_out(
    tmp_path: Path, log: Callable[..., Path]
) -> None:
    path = tmp_path / "copy.csv"
    table.write(table.read(log(HEADER + "1,0,5,9,1,1,0,ann\n")), path)
    assert path.read_text() == HEADER + "1,0,5,9,1,1,0,ann\n"


def test_memory_in_an_odd_unit_is_written_in_kb(tmp_path: Path, log: Callable[..., Path]) -> None:
    workload = table.read(log("id,submit,runtime,units,mem_mb\n1,0,5,1,3\n"))
    path = tmp_path / "copy.csv"
    table.write(replace(workload, memory_unit_kb=10), path)
    assert table.read(path).table.request.tolist() == [[30]]
    assert table.read(path).memory_unit_kb == 1


def test_tables_of_unknown_formats_and_impossible_columns_are_refused(
    tmp_path: Path, log: Callable[..., Path]
) -> None:
    workload = table.read(log(HEADER + "1,0,5,9,1,1,0,ann\n"))
    with pytest.raises(UsageError, match=r"jobs\.xlsx: unknown extension"):
        table.write(workload, tmp_path / "jobs.xlsx")
    with pytest.raises(UsageError, match="a resource type named user"):
        table.write(replace(workload, resources=("core", "user")), tmp_path / "jobs.csv")


COLUMNS = {
    "id": [1, 2, 3], "submit": [5, 0, 9], "runtime": np.array([60, 30, 20]), "requested": 90,
    "units": pd.Series([1, 2, 3], index=[7, 8, 9]), "core": 4, "user": ["ann", "bob", "ann"],
}  # fmt: skip


def test_columns_in_memory_are_what_a_file_of_them_is(tmp_path: Path) -> None:
    text = "id,submit,runtime,requested,units,core,user\n"
    text += "1,5,60,90,1,4,ann\n2,0,30,90,2,4,bob\n3,9,20,90,3,4,ann\n"
    (tmp_path / "jobs.csv").write_text(text)
    read = table.read(tmp_path / "jobs.csv")
    assert_same(table.from_table(COLUMNS), read)
    frame = pd.read_csv(tmp_path / "jobs.csv", index_col=None).set_axis([4, 5, 6])
    made = table.from_table(frame, "v1.2")
    assert_same(made, read)
    assert made.name == "v1.2"
    assert made.table.id.tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("runtime", [60, "x", 20], "field runtime of row 2: .*found 'x'"),
        ("core", [4, 4, -1], "field core of row 3: .*found '-1'"),
        ("core", [4.5, 4, 4], "field core of row 1: .*found '4.5'"),
        ("user", [[1], [2], [3]], "field user: the column holds lists"),
        ("runtime", [60, 30], "differ in length: .*runtime has 2,"),
        ("core", np.zeros((3, 2)), r"cannot be read as a table: .* shape \(3, 2\)"),
    ],
)
def test_what_is_wrong_in_columns_is_named_by_row_and_column(
    name: str, column: object, said: str
) -> None:
    with pytest.raises(InputError, match=f"^mine: .*{said}"):
        table.from_table(COLUMNS | {name: column}, "mine")


def test_columns_in_memory_need_those_that_a_file_needs() -> None:
    rest = {name: column for name, column in COLUMNS.items() if name != "units"}
    with pytest.raises(InputError, match=r"^mine: field units: the column is missing; the columns"):
        table.from_table(rest, "mine")
    twice = pd.DataFrame(COLUMNS | {"gpu": 1}).rename(columns={"gpu": "core"})
    with pytest.raises(InputError, match=r"^mine: field core: a column is named twice"):
        table.from_table(twice, "mine")
