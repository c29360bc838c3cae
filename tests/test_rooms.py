"""The table of folders in CONTRIBUTING.md says what the tree and the import contract say."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def table() -> dict[str, tuple[str, str]]:
    """Layer and permitted layers of each folder and file of the table."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Where a line belongs")[1]
    rows = [line.split("|")[1:-1] for line in text.split("##")[0].splitlines() if "| `" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    return {row[0].strip("`"): (row[1], row[3].split(";")[0]) for row in cells}


def test_the_table_has_a_row_for_every_folder_and_file_at_the_top_of_the_package() -> None:
    inside = (ROOT / "cpdispatch").iterdir()
    folders = {f"{path.name}/" for path in inside if (path / "__init__.py").exists()}
    above = {"__init__.py", "__main__.py"}
    files = {path.name for path in (ROOT / "cpdispatch").glob("*.py")} - above
    assert set(table()) == folders | files


def test_the_layers_of_the_table_are_those_that_lint_imports_checks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    last = len(layers)
    wanted = {}
    for number, layer in enumerate(layers, start=1):
        permitted = {last: "none", last - 1: f"{last}"}.get(number, f"{number + 1} to {last}")
        for name in layer.split(" | "):
            wanted[name] = (str(number), permitted)
    found = {name.removesuffix("/").removesuffix(".py"): row for name, row in table().items()}
    assert found == wanted
