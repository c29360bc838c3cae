"""The command list: what can be named on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cpdispatch.cli.options import Json
from cpdispatch.cli.output import DONE, bold, console_of_stdout, print_json
from cpdispatch.errors import UsageError


def list_(
    what: Literal["dispatchers", "models", "policies", "predictors", "systems"] = "dispatchers",
    *,
    explain: Path | None = None,
    record: Path | None = None,
    json: Json = False,
) -> int:
    """List dispatchers, models, policies, predictors or systems.

    Parameters
    ----------
    what
        What to list.
    explain
        With models: an instance file. Say which model hyper would choose for it, and why.
    record
        With --explain: a record file of hyper. Default: the record of the package.
    json
        Print one JSON object.
    """
    from cpdispatch.catalogue import catalogue

    if explain is not None or record is not None:
        if what != "models" or explain is None:
            raise UsageError("--explain INSTANCE (and --record FILE) is an option of: list models")
        return _explain(explain, record, json)
    entries = catalogue(what)
    if json:
        print_json({what: entries})
        return DONE
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for name, text in entries.items():
        table.add_row(bold(name), text)
    console_of_stdout().print(table)
    return DONE


def _explain(path: Path, record: Path | None, json: bool) -> int:
    """Say what hyper would choose for an instance."""
    from cpdispatch.instance import load
    from cpdispatch.models.hyper import Hyper, Record

    hyper = Hyper() if record is None else Hyper(record=Record.load(record))
    explained = hyper.explain(load(path))
    if json:
        print_json(explained)
        return DONE
    from rich.table import Table

    console = console_of_stdout()
    features = ", ".join(f"{name} {value:.4g}" for name, value in explained["features"].items())
    console.print(bold(path.name, f": {features}"))
    console.print("Of the kind", bold(explained["kind"], ", so far:"))
    table = Table(box=None, pad_edge=False)
    for column in ("choice", "tries", "mean reward", "score"):
        table.add_column(column, justify="left" if column == "choice" else "right")
    for name, known in sorted(explained["choices"].items(), key=lambda item: -item[1]["score"]):
        style = "bold" if name == explained["choice"] else ""
        mean = f"{known['reward']:.4f}" if known["tries"] else "-"
        score = f"{known['score']:.4f}" if known["tries"] else "not tried"
        table.add_row(name, f"{known['tries']:g}", mean, score, style=style)
    console.print(table)
    said = (
        ", a model and its share of the time limit. The reward is the share of\nthe wait that it "
        "saved after the first plan, less a price for its time."
    )
    console.print("Choice:", bold(explained["choice"], said))
    return DONE
