"""The pages: their examples print what the pages show."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from cpdispatch import cli
from cpdispatch.adapters.slurm.drive import Cycle
from cpdispatch.analyze.power import Shape
from cpdispatch.analyze.predictions import Predictions, accuracy
from cpdispatch.experiment.whatif import FIGURES
from cpdispatch.simulator import saved
from tests.scripts import script

ROOT = Path(__file__).resolve().parents[1]


pages, tables = script("docs/pages.py"), script("docs/tables.py")
NAMES = [str(path.relative_to(ROOT)) for path in pages.PAGES]


@pytest.mark.parametrize(
    "name", [name for name in NAMES if pages.examples((ROOT / name).read_text())]
)
def test_examples_print_what_their_page_shows(name: str, tmp_path: Path) -> None:
    page = ROOT / name
    found = pages.examples(page.read_text())
    try:
        for example, printed in pages.outputs(page, found, tmp_path):
            if example.span != (0, 0):
                shown = pages.masked(example.shown)
                assert pages.masked(printed) == shown, f"{name}:{example.line}"
            else:
                assert not printed, f"{name}:{example.line} prints, and the page shows no output"
    except pages.LogMissingError as error:
        pytest.skip(str(error))


def test_a_block_that_is_not_run_says_why() -> None:
    for name in NAMES:
        for example in pages.examples((ROOT / name).read_text()):
            assert not example.not_run or len(example.not_run) > 10, f"{name}:{example.line}"


def test_the_output_of_an_example_is_what_is_compared() -> None:
    text = (
        "```python\nprint(1)\n```\n\n```text\n2\n```\n\n"
        "```console\n$ cpdispatch --version\n3\n```\n"
    )
    first, second = pages.examples(text)
    assert (first.shown, second.shown) == ("2\n", "$ cpdispatch --version\n3\n")
    assert [text[slice(*example.span)] for example in (first, second)] == [
        first.shown, second.shown,
    ]  # fmt: skip


def test_only_times_of_the_machine_are_masked() -> None:
    table = (
        "jobs  500  500\nms a decision  0.01  8.94\n  99th percentile  -  42\n  95th percentile  3"
    )
    other = table.replace("8.94", "7.1").replace("42", "9")
    assert pages.masked(table) == pages.masked(other)
    assert pages.masked(table) != pages.masked(table.replace("500", "501", 1))
    assert pages.masked(table) != pages.masked(
        table.replace("95th percentile  3", "95th percentile  4")
    )
    assert pages.masked("in 12 ms") == pages.masked("in 1,301.5 ms")
    table = "     slowdown  seconds  µs a job\nlast2    84.2     0.02         -\n\nlast"
    assert pages.masked(table) == pages.masked(table.replace("0.02", "1.3"))
    assert pages.masked(table) != pages.masked(table.replace("84.2", "84.3"))
    assert pages.masked(table) != pages.masked(table.replace("last", "first"))
    assert pages.masked("mean wait  12 min") != pages.masked("mean wait  13 min")


def test_a_file_of_an_example_is_there_for_the_next_one(tmp_path: Path) -> None:
    text = (
        "```python\n# mine.py\nx = 3\n```\n"
        "```python\nimport mine\n\nprint(mine.x)\n```\n```text\n3\n```\n"
    )
    ((example, printed),) = pages.outputs(tmp_path / "page.md", pages.examples(text), tmp_path)
    assert printed == example.shown == "3\n"
    assert "mine" not in sys.modules


def test_a_command_that_fails_fails_its_page(tmp_path: Path) -> None:
    text = "```console\n$ cpdispatch verify --run nowhere\n```\n"
    with pytest.raises(AssertionError, match="ended with 2"):
        list(pages.outputs(tmp_path / "page.md", pages.examples(text), tmp_path))


def test_tables_and_picture_are_those_of_the_csv_files() -> None:
    assert list(tables.stale()) == []


def test_a_table_of_another_figure_is_stale() -> None:
    text = (ROOT / "docs" / "quality.md").read_text()
    assert tables.current(text) == text
    assert tables.current(text.replace("| 49.6 | 49.6 |", "| 49.6 | 49.7 |")) == text
    assert "| 49.6 | 49.6 |" in text


def test_rows_of_test_runs_appear_when_they_have_their_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [name for name in tables.TABLES if name.startswith("test_runs_")]
    assert len(made) == 5
    kept = (tables.DATA / "test_runs.csv").read_text().splitlines()
    monkeypatch.setattr(tables, "DATA", tmp_path)
    (tmp_path / "test_runs.csv").write_text(kept[0] + "\n")
    for name in made:
        assert tables.TABLES[name]() == ["There are no figures yet."]
    assert tables.lengths() == {}
    figures = "9.0,8.0,10.0,0.500,0.400,0.600,1.00,1.10,1.20,12.30,0.40"
    rows = [
        f"KTH,0,easy,own,1,0,10,{figures}",
        f"KTH,0,easy:test=120,own,1,0,3,{figures}",
        f"KTH,0,easy:test=120,own,0.5,0,3,{figures}",
        f"KTH,0,easy:test=120,own,1,30,2,{figures}",
        f"KTH,0,best:test=off,own,1,0,2,{figures}",
        f"KTH,0,best:test=off,actual,1,0,4,{figures}",
        f"eurora,0,easy:test=120,own,1,0,3,{figures}",
        f"all cuts,1024,best:test=off,own,1,0,20,{figures}",
    ]
    (tmp_path / "test_runs.csv").write_text("\n".join([kept[0], *rows]) + "\n")
    waits = "1.00 | 1.10 | 1.20"
    assert tables.TABLES["test_runs_whole"]()[2:] == [
        f"| KTH | `easy` | 10 | 9.0 (8.0 to 10.0) | {waits} | - | - |",
        f"| KTH | `easy:test=120` | 3 | 9.0 (8.0 to 10.0) | {waits} | 12.3 % | 0.4 % |",
        f"| KTH | `best:test=off`, real runtimes | 4 | 9.0 (8.0 to 10.0) | {waits} | - | - |",
    ]
    within = "0.500 (0.400 to 0.600)"
    assert tables.TABLES["test_runs_shares"]()[2:] == [
        f"| KTH | `easy:test=120` | 3 | {within} | {within} | - |"
    ]
    assert tables.TABLES["test_runs_costs"]() == ["There are no figures yet."]
    assert tables.TABLES["test_runs_cuts"]()[2:] == [
        f"| all cuts | 1,024 | 20 | - | - | {within}; 1.00 | - |"
    ]
    assert tables.TABLES["test_runs_loads"]()[2:] == [
        f"| `eurora` | `easy:test=120` | 3 | {within} | 1.00 | 1.20 | 12.3 % | 0.4 % |"
    ]


def test_the_second_example_of_the_readme_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setenv("COLUMNS", pages.COLUMNS)
    text = (ROOT / "README.md").read_text()
    found = re.search(
        r"\n    cpdispatch (simulate [^`]*--restartable all)\n\n"
        r"<!-- printed .*-->\n```\n([^`]*)```\n",
        text,
    )
    assert found is not None
    assert cli.run([*found[1].replace("\\\n", "").split(), "--cores", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for line in found[2].splitlines():
        assert " ".join(line.split()) in printed


def test_the_commands_of_the_readme_on_a_log_run(
    trace: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    text = (ROOT / "README.md").read_text()
    commands = [
        line.split("#")[0].split() for line in text.splitlines() if "    cpdispatch " in line
    ]
    logs, at = (
        tmp_path / "logs",
        commands.index(["cpdispatch", "archive", "get", "kth", "--to", "logs"]),
    )
    logs.mkdir()
    (logs / "KTH-SP2-1996-2.1-cln.swf.gz").symlink_to(trace("KTH-SP2-1996-2.1-cln"))
    monkeypatch.chdir(tmp_path)
    for _, command, *rest in commands[at + 1 : at + 7]:
        some = ["--jobs", "500", "--cores", "1"] if command == "simulate" else []
        assert cli.run([command, *rest, *some]) == 0, command
    assert (tmp_path / "kth.html").exists()


def test_links_between_pages_lead_somewhere() -> None:
    for name in NAMES:
        page = ROOT / name
        for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{name}: {target}"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("formats", saved.FILES),
        ("formats", saved.SWITCHES),
        ("formats", saved.About.__struct_fields__),
        ("formats", accuracy(Predictions(np.array([1]), np.array([1])))),
        ("formats", [field.name for field in fields(Shape)]),
        ("formats", FIGURES),
        ("slurm", [field.name for field in fields(Cycle)]),
    ],
)
def test_a_page_names_what_files_hold(page: str, names: Iterable[str]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert [name for name in names if f"`{name}`" not in text] == []


ROOMS = sorted(path.name for path in (ROOT / "cpdispatch").iterdir() if path.is_dir())
IN_CODE = re.compile(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)`")


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/glossary.md"])
def test_what_a_page_says_is_in_the_code_is_there(name: str) -> None:
    for told in IN_CODE.findall((ROOT / name).read_text()):
        assert pkgutil.resolve_name(f"cpdispatch.{told}"), told
