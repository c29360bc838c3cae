"""The notebook runs, and prints what is stored in it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples" / "comparison.ipynb"


def outputs(notebook: Any) -> list[tuple[str, list[list[str]]]]:
    """What each cell of code printed, and the types of what it showed.

    A kernel may send one cell's text in several parts, by how long the cell takes.
    """
    return [
        (
            # where kernels are compiled, that is said on the other stream
            "".join(out["text"] for out in cell.outputs if out.get("name") == "stdout"),
            [sorted(out["data"]) for out in cell.outputs if "data" in out],
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_prints_what_is_stored(tmp_path: Path) -> None:
    shutil.copy(FILE.with_name("experiment.csv"), tmp_path)
    notebook = nbformat.read(FILE, as_version=4)
    stored = outputs(notebook)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=place).execute()
    assert outputs(notebook) == stored
    assert ("", [["image/png", "text/plain"]]) in stored
    assert "0 violations" in stored[1][0]
