"""What all pictures share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cpdispatch.analyze import look

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("scale", "values", "said"),
    [("log", (0.003, 200_000), ["0.01", "100,000"]), ("log", (2, 9), ["2", "3", "6"]),
     ("symlog", (0, 2_000_000), ["0", "1,000,000"])],
)  # fmt: skip
def test_a_logarithmic_axis_says_numbers_and_a_name_is_no_formula(
    tmp_path: Path, scale: str, values: tuple[float, float], said: list[str]
) -> None:
    def made() -> Any:
        figure = look.figure(4, 3)
        axes = figure.add_subplot()
        axes.plot(values, values, label="a$_{x$")
        axes.set(xscale=scale, yscale=scale)
        axes.legend()
        return figure

    look.draw(tmp_path / "it.svg", made)
    text = (tmp_path / "it.svg").read_text()
    assert "mathdefault" not in text
    for name in (*said, "a$_{x$"):
        assert f"<!-- {name} -->" in text
