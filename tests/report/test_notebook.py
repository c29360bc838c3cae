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


def outputs(notebook: Any) -> list[list[Any]]:
    """What each cell of code printed, or the types of what it showed."""
    return [
        [
            out["text"] if "text" in out else sorted(out["data"])
            for out in cell.outputs
            if out.get("name") != "stderr"  # where kernels are compiled, that is said
        ]
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
    assert [["image/png", "text/plain"]] in stored
    assert "0 violations" in stored[1][0]
