"""Files and distributions of events: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cpdispatch import cli
from cpdispatch.errors import InputError, UsageError
from cpdispatch.events import Checkpoints, Draw, Event, as_csv, load, read
from cpdispatch.system import NodeGroup, System

SYSTEM = System("six", ("core",), (NodeGroup("thin", 4, (1,)), NodeGroup("wide", 2, (8,))))


def written(folder: Path, *lines: str, header: str = "time,kind,nodes") -> str:
    path = folder / "events.csv"
    path.write_text("\n".join((header, *lines, "")))
    return str(path)


def test_nodes_are_numbers_ranges_groups_or_all(tmp_path: Path) -> None:
    path = written(
        tmp_path, "5,fail,1", "6, fail ,2-3 0", "", "7,repair,0 1", "8,repair,2-3", "9,fail,wide",
        "10,repair,wide", "11,fail,all",
    )  # fmt: skip
    found = read(path).trace(SYSTEM)
    assert found == [
        Event(5, "fail", (1,)), Event(6, "fail", (0, 2, 3)), Event(7, "repair", (0, 1)),
        Event(8, "repair", (2, 3)), Event(9, "fail", (4, 5)), Event(10, "repair", (4, 5)),
        Event(11, "fail", (0, 1, 2, 3, 4, 5)),
    ]  # fmt: skip
    (tmp_path / "again.csv").write_bytes(as_csv(found))
    assert load(tmp_path / "again.csv", SYSTEM) == found


def test_distributions_are_read() -> None:
    found = read(["weibull:mtbf=30d,shape=0.7,repair=4h,group=thin",
                  "exponential:mtbf=600s,repair=5min,group=wide"])  # fmt: skip
    weibull = Draw("weibull", 30 * 86400, 0.7, 4 * 3600, "thin")
    exponential = Draw("exponential", 600, 1.0, 300, "wide")
    assert found.draws == (weibull, exponential)
    assert found.drawn(SYSTEM) == dict.fromkeys(range(4), weibull) | dict.fromkeys(
        (4, 5), exponential
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("exponential:mtbf=30,repair=4h", "mtbf=30: '30' would be 30 s: write 30min, 30h or 30d"),
        ("exponential:mtbf=720,repair=4h", "mtbf=720: '720' would be 720 s"),
        ("exponential:mtbf=30d,repair=4", "repair=4: '4' would be 4 s"),
    ],
)
def test_a_number_that_is_hardly_meant_in_seconds_needs_its_unit(given: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(given)
    assert read("exponential:mtbf=3s,repair=2592000").draws[0].mtbf_s == 3


@pytest.mark.parametrize(
    ("line", "field", "value", "says"),
    [
        ("5,fail,9", "nodes", "'9'", "no such node; write numbers from 0 to 5"),
        ("5,fail,3-9", "nodes", "'3-9'", "no such node"),
        ("5,fail,3-1", "nodes", "'3-1'", "ends before it begins"),
        ("5,fail,1 1", "nodes", "'1 1'", "named twice"),
        ("5,fail,1 thin", "nodes", "'1 thin'", "named twice"),
        ("5,fail,thick", "nodes", "'thick'", "no such node or group"),
        ("5,fail,", "nodes", "''", "no node is named"),
        ("-5,fail,1", "time", "'-5'", "negative"),
        ("1.5,fail,1", "time", "'1.5'", "not a whole number"),
        ("soon,fail,1", "time", "'soon'", "whole seconds on the clock of the log"),
        ("9" * 20 + ",fail,1", "time", f"'{'9' * 20}'", "must be 281474976710656 or less"),
        (
            "5,explode,1",
            "kind",
            "'explode'",
            "write fail, repair, drain, undrain, leave, join, maintain or capacity",
        ),
        ("5,fial,1", "kind", "'fial'", "did you mean fail?"),
        ("5,repair,1", "kind", "'repair'", "node 1 is not down; write a row with fail before it"),
        ("5,fail,1,2", None, None, "the row has 4 cells"),
        ("2,fail,1", "time", "2", "before that of the row above, 3"),
        ("5,fail,0", "kind", "'fail'", "node 0 is down since 3; write its repair before"),
        ("5,undrain,0", "kind", "'undrain'", "node 0 is not drained; write a row with drain"),
        ("0,join,1", "time", "0", "before that of the row above, 3"),
        ("3,repair,0", "kind", "'repair'", "has fail and repair in the same second"),
    ],
)
def test_a_wrong_row_is_one_clear_error(
    tmp_path: Path, line: str, field: str | None, value: str | None, says: str
) -> None:
    path = written(tmp_path, "3,fail,0", line)
    with pytest.raises(InputError) as raised:
        read(path).trace(SYSTEM)
    text = str(raised.value)
    assert text.startswith(f"{path}:3: " + (f"field {field}: " if field else ""))
    assert all(part in text for part in says.split("; "))
    assert value is None or f"(found {value})" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("time,kind", "field nodes: the table lacks the column or has it twice"),
        ("time,kind,nodes,time", "field time: the table lacks the column or has it twice"),
        (
            "time;kind;nodes",
            "field time: the table lacks the column or has it twice; separate cells by commas, "
            "and not by ';'",
        ),
        ("time,kind,nodes,why", "unknown column (found 'why'); leave it out"),
        ("", "field time: the table lacks"),
    ],
)
def test_a_wrong_header_is_one_clear_error(tmp_path: Path, header: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        read(written(tmp_path, header=header))
    assert f"events.csv:1: {says}" in str(raised.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["weibull:mtbf=30d,repair=4h"], "shape is missing; write it as weibull:mtbf=30d"),
        ([f"exponential:mtbf={'9' * 400},repair=4h"], "is not 1 or more whole seconds"),
        (["wiebull:mtbf=30d"], "unknown distribution of failures 'wiebull'; did you mean weibull?"),
        (["weibull:mtbf=30d,shape=0,repair=4h"], "shape=0: a number from 0.1 to 10 is needed"),
        (["exponential:mtbf=30d,shape=2,repair=4h"], "has no parameter 'shape'"),
        (["exponential:mtbf=soon,repair=4h"], "'soon'"),
        (["exponential:mtbf=-3d,repair=4h"], "'-3d'"),
        (["exponential:mtbf=3d,repair=4h,group=thick"], "no group of this name"),
        (["exponential:mtbf=3d,repair=4h"] * 2, "drawn twice"),
        (["a.csv", "b.csv"], "two files"),
    ],
)
def test_a_wrong_distribution_is_one_clear_error(given: list[str], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(given).check(SYSTEM)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("cost=2min", "every is missing; write it as every=1h,cost=2min"),
        ("every=soon", "'soon'"),
        ("every=0s", "every"),
        ("often=1h", "has no parameter 'often'"),
    ],
)
def test_wrong_checkpoints_are_one_clear_error(given: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        read("exponential:mtbf=3d,repair=4h", checkpoints=given)
    assert "--checkpoints" in str(raised.value)
    assert says in str(raised.value)


def test_checkpoints_are_made_between_parts_of_the_work() -> None:
    every = Checkpoints(10, 3)
    assert every.with_cost(np.array([0, 1, 10, 11, 20, 21, 100])).tolist() == [
        0, 1, 10, 14, 23, 27, 127,
    ]  # fmt: skip
    assert [every.saved_s(ran_s) for ran_s in (0, 12, 13, 25, 26)] == [0, 0, 13, 13, 26]
    assert read("exponential:mtbf=3d,repair=4h", checkpoints="every=1h").checkpoints == Checkpoints(
        3600
    )


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["5,leave,0 1", "6,leave,0"], "node 0 is out of the system since 5; write its join"),
        (["0,join,0"], "node 0 is not out of the system; write a row with leave before it"),
        (["5,join,0", "6,join,0"], "node 0 is not out of the system"),
        (["5,leave,0", "5,join,0"], "node 0 has leave and join in the same second"),
    ],
)
def test_a_node_leaves_and_joins_in_turn(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(InputError) as raised:
        read(written(tmp_path, *lines)).trace(SYSTEM)
    assert all(part in str(raised.value) for part in says.split("; "))


@pytest.mark.parametrize(
    ("lines", "field", "says"),
    [
        (["5,capacity,0,"], "capacity", "needs what the nodes have from then on; write it as"),
        (["5,capacity,0,core"], "capacity", "write it as gpu=1"),
        (["5,capacity,0,core=-1"], "capacity", "write it as gpu=1"),
        ([f"5,capacity,0,core={'9' * 5000}"], "capacity", "write it as gpu=1"),
        (["5,capacity,0,core=1 core=1"], "capacity", "core is named twice"),
        (["5,capacity,0,cor=1"], "capacity", "no such resource type; did you mean core?"),
        (["5,capacity,0,core=2"], "capacity", "node 0 has 1 core by the system's file"),
        (["5,capacity,wide,core=0"], "capacity", "node 4 has nothing left; write fail or leave"),
        (["5,capacity,4,core=1", "5,capacity,4 5,core=2"], "time", "twice in the same second"),
        (["5,fail,0,core=1"], "capacity", "only changes of capacity have this; write capacity"),
    ],
)
def test_what_a_node_has_is_said_in_a_row(
    tmp_path: Path, lines: list[str], field: str, says: str
) -> None:
    path = written(tmp_path, *lines, header="time,kind,nodes,capacity")
    with pytest.raises(InputError) as raised:
        read(path).trace(SYSTEM)
    text = str(raised.value)
    assert text.startswith(f"{path}:{len(lines) + 1}: field {field}: "), text
    assert all(part in text for part in says.split("; ")), text


def test_changes_of_capacity_are_read_and_written(tmp_path: Path) -> None:
    path = written(
        tmp_path, "5,capacity,4,core=3,,", "6,fail,0,,,", "7,maintain,5,,9,",
        header="time,kind,nodes,capacity,until,known",
    )  # fmt: skip
    found = read(path).trace(SYSTEM)
    assert found[0] == Event(5, "capacity", (4,), capacity=(("core", 3),))
    (tmp_path / "again.csv").write_bytes(as_csv(found))
    assert load(tmp_path / "again.csv", SYSTEM) == found


def test_failures_are_not_drawn_beside_a_file_of_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="failures are drawn, too"):
        read([written(tmp_path, "3,fail,0"), "exponential:mtbf=3d,repair=4h"])


def test_one_node_has_no_drawn_failures() -> None:
    with pytest.raises(UsageError, match="is one node"):
        read("exponential:mtbf=3d,repair=4h").check(System.pool(8))


def test_the_command_line_says_what_is_wrong_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id,submit,runtime,units,core\n1,0,60,1,1\n2,5,60,1,1\n")
    system = tmp_path / "two.json"
    system.write_text(
        '{"resources": ["core"], "groups": [{"name": "n", "nodes": 2, "capacity": [1]}]}'
    )
    base = ["simulate", str(log), "--system", str(system)]
    (tmp_path / "far").mkdir()
    far = written(tmp_path / "far", "1,fail,7")
    events = ["--events", written(tmp_path, "10,fail,0", "30,repair,0")]
    kept = [*events, "--checkpoints", "every=1h"]
    for more, says in (
        (["--requeue", "all"], "--requeue all needs --events"),
        (["--checkpoints", "every=1h"], "--checkpoints needs --events"),
        ([*kept, "--idempotent"], "--checkpoints and --idempotent cannot be combined"),
        (
            [*kept, "--restart-cost", "5s", "--restartable", "all"],
            "--restart-cost cannot be combined",
        ),
        ([*kept, "-d", "easy:test=120", "--restartable", "all"], "where jobs write checkpoints"),
        (["--events", far], "field nodes"),
        (["--events", str(tmp_path / "none.csv")], "no such file"),
    ):
        assert cli.run([*base, *more]) == 2, more
        told = capsys.readouterr().err
        assert says in told, told
        assert "Traceback" not in told
    maintained = tmp_path / "maintained.json"
    window = '{"nodes": "0", "from_s": 2, "length_s": 5}'
    maintained.write_text(system.read_text()[:-1] + f', "maintenance": [{window}]}}')
    asked = ["simulate", str(log), "--system", str(maintained), "-d", "easy"]
    assert cli.run([*asked, "--requeue", "none"]) == 0
    written(tmp_path, "10,fail,0", "30,repair,0")
    out = tmp_path / "out"
    assert cli.run([*base, *events, "-d", "easy", "--out", str(out)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "failures of nodes 1 times a job was queued again 1" in told
    assert "Nodes fail once under easy. Jobs are stopped once: queued again once" in told
    assert cli.run(["verify", "--run", str(out)]) == 0
