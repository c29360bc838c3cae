"""The files of a run's folder: their names, what run.json and the tables hold, and their checks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import numpy as np

from cpdispatch.errors import InputError
from cpdispatch.files import parse_json, read_parquet, read_text
from cpdispatch.simulator import arrow
from cpdispatch.system import LIMIT, SystemFile, from_file

if TYPE_CHECKING:
    import pyarrow as pa

JOBS, DECISIONS, ABOUT, SCHEDULE = "jobs.parquet", "decisions.parquet", "run.json", "schedule.swf"
ATTEMPTS, EVENTS, PROMISES = "attempts.parquet", "events.csv", "promises.parquet"
SWITCHED = "switched.parquet"
FILES = (JOBS, DECISIONS, ABOUT, SCHEDULE, ATTEMPTS, EVENTS, PROMISES, SWITCHED)
CHECKPOINT = "checkpoint.pickle"
"""The state of a replay that is under way."""


class _Wait(msgspec.Struct):
    """By what waits were bounded, see `cpdispatch.bounded.Bounded.rules`."""

    in_turn_after: int
    wide: int
    first_after: int | None


class _Rule(msgspec.Struct):
    """What is certain of a queue rule, see `cpdispatch.dispatch.rule_of`."""

    first_come: bool
    keeps_promises: bool
    strict: bool = False
    order: str = ""


class _Checkpoints(msgspec.Struct):
    """Checkpoints that jobs wrote, see `cpdispatch.events.Checkpoints`."""

    every_s: int
    cost_s: int


class _Events(msgspec.Struct):
    """What happened to the system, see `cpdispatch.events.Events.told`."""

    sha256: str
    requeue: str
    checkpoints: _Checkpoints | None = None


class _Bound(msgspec.Struct):
    """The starvation bound of every decision, see `cpdispatch.instance.Starvation`."""

    threshold_s: int
    bound_s: int
    wide: int = 0


_Told = Annotated[list[tuple[int, float]], msgspec.Meta(min_length=1)]
"""The times and values of a quantity, see `energy.Steps.told`."""


class About(msgspec.Struct):
    """What others read of run.json; what else it tells is theirs who look at it."""

    workload: str
    dispatcher: str
    predictor: str
    system: SystemFile
    notes: dict[str, int]
    seconds: float
    kill_at_limit: bool | None = None
    dependencies: bool = False
    idempotent: bool = False
    restartable: int = 0
    restarts: bool | None = None
    restart_cost_s: int = 0
    test_s: int = 0
    compiled: bool = False
    workload_sha256: str | None = None
    began_s: int | None = None
    seed: int = 0
    draw: int = 0
    place: int | None = None
    wait: _Wait | None = None
    events: _Events | None = None
    promises: bool = False
    rule: _Rule | None = None
    starvation: _Bound | None = None
    switch_off_s: int | None = None
    power_cap: _Told | None = None
    energy_price: _Told | None = None
    memory_mib_peak: float | None = None
    limit_s: float | None = None
    predictor_seconds: float = 0.0


SWITCHES = ("node", "off", "wake", "on")
"""The columns of the table of nodes that were switched off."""
ATTEMPT_COLUMNS = dict.fromkeys(("id", "start", "end"), "whole number") | dict.fromkeys(
    ("nodes", "node_units"), "list of whole numbers"
)


PROMISE_COLUMNS = dict.fromkeys(("id", "at", "start"), "whole number")


DECISION_COLUMNS = dict.fromkeys(("time", "queue", "running", "started"), "whole number") | {
    "ms": "number"
}


def read_beside(path: Path, columns: dict[str, str], jobs: pa.Table) -> pa.Table:
    """A table of a run that names jobs of the table of jobs."""
    found = read_table(path, columns)
    if not np.isin(arrow.array(found.column("id")), arrow.array(jobs.column("id"))).all():
        problem = "the table of jobs lacks a job that is named here"
        advice = "make the run again with --overwrite"
        raise InputError(problem, file=path, field="id", advice=advice)
    return found


def with_restarts(restarts: bool | None, restartable: int, idempotent: bool, events: bool) -> bool:
    """Whether a run's jobs could be restarted.

    Earlier versions did not say it: where events happened, no job could be. The first ones said
    ``idempotent`` alone.
    """
    return not events and (restartable > 0 or idempotent) if restarts is None else restarts


def job_columns(about: About) -> dict[str, str]:
    """The columns that a table of jobs needs, and what each holds."""
    numbers = ["id", "submit", "start", "end", "units", "requested_s", "runtime_s", "expected_s"]
    numbers += [f"request_{name}" for name in about.system.resources]
    numbers += ["preceding", "think_s"] * about.dependencies
    events = about.events is not None
    restarts = with_restarts(about.restarts, about.restartable, about.idempotent, events)
    numbers += ["lost_start", "lost_end"] * restarts
    numbers += ["requeued"] * (about.events is not None)
    lists = ["nodes", "node_units", *["lost_nodes", "lost_node_units"] * restarts]
    kinds = dict.fromkeys(numbers, "whole number") | dict.fromkeys(lists, "list of whole numbers")
    flags = dict.fromkeys(["killed", *["failed"] * (about.events is not None)], "truth value")
    return {**kinds, **flags, "reason": "text", "user": "name or number"}


def read_table(path: Path, columns: dict[str, str]) -> pa.Table:
    """A table of a run, each of whose columns holds what it has to, on every row."""
    again = "make the run again with --overwrite"
    table = read_parquet(path).replace_schema_metadata(None)
    for name, kind in columns.items():
        if table.column_names.count(name) != 1:
            problem = "the table lacks the column or has it twice"
            raise InputError(problem, file=path, field=name, advice=again)
        column = table.column(name)
        if not _holds(column, kind):
            problem = f"the column needs a {kind} on each row"
            raise InputError(problem, file=path, field=name, advice=again)
        nodes = name.removesuffix("node_units") + "nodes"
        if name.endswith("node_units") and not _as_long(column, table.column(nodes)):
            problem = f"the lists of some rows are not as long as those of {nodes}"
            raise InputError(problem, file=path, field=name, advice=again)
    return table


def _as_long(one: pa.ChunkedArray[Any], other: pa.ChunkedArray[Any]) -> bool:
    """Whether the lists of two columns have the same lengths."""
    (first, _), (second, _) = arrow.flat(one), arrow.flat(other)
    return np.array_equal(first, second)


def _holds(column: pa.ChunkedArray[Any], kind: str) -> bool:
    """Whether a column is of a kind, and its numbers are some that can be counted with.

    A name or a number may be unknown; all else is stated on every row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    held = column.type
    if kind == "name or number":
        held = held.value_type if pa.types.is_dictionary(held) else held
        return pa.types.is_string(held) or pa.types.is_integer(held)
    if column.null_count:
        return False
    if kind == "truth value":
        return pa.types.is_boolean(held)
    if kind == "text":
        held = held.value_type if pa.types.is_dictionary(held) else held
        return pa.types.is_string(held) or pa.types.is_large_string(held)
    if kind == "number":
        return pa.types.is_floating(held)
    if kind == "list of whole numbers":
        if not (pa.types.is_list(held) or pa.types.is_large_list(held)):
            return False
        return _holds(cast("pa.ChunkedArray[Any]", pc.list_flatten(column)), "whole number")
    if not pa.types.is_integer(held):
        return False
    least, most = pc.min(column).as_py(), pc.max(column).as_py()
    return least is None or bool(least >= -LIMIT and most <= LIMIT)


def about_of(folder: Path) -> dict[str, Any]:
    """The content of run.json in the folder of a run, see `Run`.

    Raises
    ------
    InputError
        When the folder holds no finished run or what it says is damaged.
    """
    return read_about(folder)[1]


def begun_in(folder: Path) -> set[Path]:
    """The folders in a folder, and itself, with a run that is not over.

    They hold a checkpoint or a table of decisions, and no run.json: a run that could not write all
    its files, because the disk was full, may have tables alone. (A table of jobs may be a log.)
    """
    found = {path.parent for name in (CHECKPOINT, DECISIONS) for path in folder.glob(f"**/{name}")}
    return {each for each in found if not (each / ABOUT).exists()}


def read_about(folder: Path) -> tuple[About, dict[str, Any]]:
    """The checked fields of run.json, and its whole content."""
    path = folder / ABOUT
    if not path.exists():
        advice = "name the folder that simulate was given as --out"
        if begun_in(folder):
            advice = "the run in it is not over: if it was stopped, go on with it by --resume"
        raise InputError(
            f"holds no finished run ({ABOUT} is missing)" if folder.exists() else "no such folder",
            file=folder, advice=advice,
        )  # fmt: skip
    content = read_text(path)
    known = parse_json(content, About, f"the {ABOUT} of a run", path)
    try:
        from_file(known.system)
    except InputError as error:
        raise InputError(str(error), file=path) from error
    about: dict[str, Any] = msgspec.json.decode(content)
    about["system"].setdefault("name", known.system.name)
    return known, about
