"""The look that all pictures share.

Colours are told apart by colour-blind people; dashes and marks repeat what they say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cpdispatch.extra import needed
from cpdispatch.files import replacing

COLOURS = (
    "#0067a5", "#c04a00", "#007a5e", "#9a3f86", "#6b5900", "#444444", "#3aa0d8", "#b3001b",
)  # fmt: skip
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)), (0, (8, 3)), (0, (1, 3)),
          (0, (3, 1, 1, 1)), (0, (4, 4)))  # fmt: skip
MARKS = "o^sDvPX*"
INK, GRID, GREY = "#1c2430", "#d9dee5", "#b4bcc8"
FORMATS = (".svg", ".pdf", ".png")

_LOOK = {
    "font.size": 7, "axes.labelsize": 7, "legend.fontsize": 6.5, "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5, "axes.titlesize": 7.5, "axes.titlelocation": "left",
    "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.linewidth": 0.6, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True, "grid.color": GRID,
    "grid.linewidth": 0.5, "lines.linewidth": 1.1, "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "svg.hashsalt": "cpdispatch", "xtick.minor.visible": False,
    "ytick.minor.visible": False, "legend.frameon": False,
    "savefig.dpi": 300, "text.parse_math": False,
}  # fmt: skip


def draw(path: Path, made: Callable[[], Any], title: str = "") -> None:
    """Write the figure that a function makes, see `save`; the same figure is the same bytes."""
    with needed("matplotlib", "plot").rc_context(_LOOK):
        figure = made()
        _plain_ticks(figure)
        save(path, figure, title)


def _plain_ticks(figure: Any) -> None:
    """Have logarithmic axes say numbers: powers of ten would be formulas, which `_LOOK` has not."""
    ticker = needed("matplotlib.ticker", "plot")

    class Plain(ticker.LogFormatter):  # type: ignore[misc, name-defined]
        def __call__(self, value: float, place: int | None = None) -> str:
            return f"{value:,.10g}" if super().__call__(value, place) else ""

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        for found, change in (
            (axis.get_major_formatter(), axis.set_major_formatter),
            (axis.get_minor_formatter(), axis.set_minor_formatter),
        ):
            if isinstance(found, ticker.LogFormatterMathtext):
                change(Plain(labelOnlyBase=found.labelOnlyBase))


def save(path: str | os.PathLike[str], figure: Any, title: str = "") -> None:
    """Write a figure, atomically; its format is what the name ends in."""
    kind = Path(path).suffix[1:]
    no_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, metadata={**no_date, "Title": title})


def figure(width_in: float, height_in: float, dpi: float | None = None) -> Any:
    """An empty figure: pyplot would keep every one and ask for a display."""
    made = needed("matplotlib.figure", "plot").Figure
    return made((width_in, height_in), dpi=dpi, layout="constrained")


def plain(axis: Any, size: float = 9, **ticks: Any) -> None:
    """Take the frame's top and right from a panel; its labels are of this size."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=size, **ticks)


def literal(name: str) -> str:
    """A name as it is: no dollar sign in it begins a formula."""
    return name.replace("$", r"\$")
