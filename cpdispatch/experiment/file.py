"""Experiments from a TOML file: logs, dispatchers, predictors, draws; what is missing is run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import msgspec

from cpdispatch import predict
from cpdispatch.analyze import draws
from cpdispatch.analyze.compare.rows import OF_USERS
from cpdispatch.dispatch import SEED_MAX
from cpdispatch.durations import seconds
from cpdispatch.errors import InputError, UsageError
from cpdispatch.experiment import samples
from cpdispatch.experiment.report import report_of, tables
from cpdispatch.experiment.runs import (
    SAME_LOG,
    Experiment,
    Part,
    RunPlan,
    RunSummary,
    check_apart,
    check_dependencies,
    check_told_apart,
    own_predictor,
    safe,
)
from cpdispatch.experiment.samples import LogForm
from cpdispatch.files import csv_of, parse_toml, write_bytes
from cpdispatch.simulator.saved import ABOUT
from cpdispatch.structure import converted
from cpdispatch.workloads.shake import DRAWS_MAX

TABLE, REPORT = "results.csv", "results.json"
_ABOUT = ("workload", "system", "dispatcher", "predictor")
_LEFT_OUT = (
    "seconds", "decision_ms_mean", "decision_ms_p99", "decision_ms_max", "first", "place", "seed",
    "draw",
)  # fmt: skip
"""Figures that the machine's load makes, or none of a schedule."""
_RELATED = ("_first", "_times")
"""How figures end that `compare.related` adds to a row."""


class RulesForm(msgspec.Struct, forbid_unknown_fields=True):
    """By which rules it is replayed, see the options of ``simulate``."""

    trigger: Literal["instant", "event"] = "instant"
    correction: Literal["minimal", "incremental", "requested", "refresh"] = "minimal"
    kill_at_limit: bool = False
    dependencies: bool = False
    idempotent: bool = False


class ExperimentForm(msgspec.Struct, forbid_unknown_fields=True):
    """An experiment as it stands in its file, see docs/experiments.md."""

    logs: list[LogForm]
    dispatchers: list[str]
    predictors: list[str] = []
    draws: int = 1
    seed: int = 0
    limit: str = "1s"
    rules: RulesForm = msgspec.field(default_factory=RulesForm)


def load(path: Path) -> ExperimentForm:
    """Read the file of an experiment.

    Raises
    ------
    InputError
        When it cannot be read, or a key or a value of it is wrong: both are named.
    """
    form = converted(parse_toml(path, "an experiment"), ExperimentForm, "an experiment", path)
    for field, wrong in (("logs", not form.logs), ("dispatchers", not form.dispatchers)):
        if wrong:
            raise InputError("one or more are needed", file=path, field=field)
    for field, value, least, most in (
        ("draws", form.draws, 1, DRAWS_MAX), ("seed", form.seed, 0, SEED_MAX - DRAWS_MAX),
    ):  # fmt: skip
        if not least <= value <= most:
            problem = f"{least} or more is needed, {most} at most"
            raise InputError(problem, file=path, field=field, value=value)
    try:
        seconds(form.limit)
    except UsageError as error:
        raise InputError(str(error), file=path, field="limit") from error
    for number, log in enumerate(form.logs, start=1):
        log.check(path, f"logs, the {number}.")
    return form


def parts(form: ExperimentForm, file: Path, folder: Path) -> list[Part]:
    """The runs of an experiment, each with a folder that depends on nothing but what it is.

    A part has those with one predictor.

    Parameters
    ----------
    file : path
        Its file: those of logs and systems are named from the folder of it.
    folder : path
        For the results.

    Raises
    ------
    InputError
        When a log cannot be read, two have the same name, or a dispatcher or predictor is unknown:
        the key is named.
    """
    groups = samples.of(form.logs, file, form.seed, form.draws)
    names = [log[0].name for of in groups for log in (of.logs[:1] if of.of_seed else of.logs)]
    with samples.named(file, "logs"):
        check_apart("logs", names, f"{SAME_LOG}; put each into an experiment of its own")
    with samples.named(file, "predictors"):
        twice = "the same predictor is named twice: {!r}; leave one of them out"
        check_apart("predictors", form.predictors, twice)
    limit_s, found = seconds(form.limit), []
    for key, given in (("dispatchers", form.dispatchers), ("predictors", form.predictors)):
        for number, name in enumerate(given, start=1):
            with samples.named(file, f"{key}, the {number}."):
                of_name = [name] if key == "dispatchers" else form.dispatchers[:1]
                rules = {"predictor": name if key == "predictors" and name else None}
                Experiment(groups[0].logs[:1], of_name, [form.seed]).check(limit_s, rules)
    with samples.named(file, "predictors"):
        log, names = groups[0].logs[0][0], [name for name in form.predictors if name]
        check_told_apart("predictors", {name: predict.make(name, log).name for name in names})
    if form.rules.dependencies:
        with samples.named(file, "rules.dependencies"):
            check_dependencies([log for of in groups for log in of.logs], "dependencies")
    place = 0
    for predictor, of in product(form.predictors or [""], groups):
        seeds = range(form.seed, form.seed + form.draws) if of.of_seed else [form.seed]
        dispatchers = form.dispatchers
        if predictor and "" in form.predictors:  # the same runs are made with their own already
            dispatchers = [name for name in dispatchers if own_predictor(name) != predictor]
        if not dispatchers:
            continue
        experiment = Experiment(
            of.logs, dispatchers, seeds, of.of_seed, 1 if of.of_seed else form.draws
        )
        rules = msgspec.to_builtins(form.rules) | {"predictor": predictor or None}
        experiment.check(limit_s, rules)
        plans = experiment.plans(RunPlan("", form.seed, limit_s, rules, folder))
        named = [
            (log, replace(
                plan, place=place + plan.place,
                folder=folder.joinpath(
                    safe(of.logs[log][0].name),
                    safe(plan.dispatcher) + (f",{safe(predictor)}" if predictor else ""),
                    f"draw-{log if of.of_seed else plan.draw}",
                ),
            ))
            for log, plan in plans
        ]  # fmt: skip
        place += len(plans)
        found.append(Part(experiment, named, f" with {predictor}" * bool(predictor)))
    return found


def save(summaries: Sequence[RunSummary], folder: Path) -> list[Path]:
    """Write ``results.csv``, a row a log and dispatcher, and ``results.json``; each at once."""
    rows = [row for _, of_log in tables(summaries) for row in of_log]
    figures = list(dict.fromkeys(key for row in rows for key in _figures(row)))
    kinds = ("mean", "spread", "min", "max")
    table: list[list[Any]] = [
        [*_ABOUT, "runs", *(f"{key}_{kind}" for key in figures for kind in kinds)]
    ]
    for row in rows:
        of_row = _figures(row)
        runs = row.get("draws") or row.get("seeds") or 1
        cells = [of_row.get(key, {}).get(kind, "") for key in figures for kind in kinds]
        table.append([*(row[key] for key in _ABOUT), runs, *cells])
    written = {
        TABLE: csv_of(table),
        REPORT: msgspec.json.encode(report_of(summaries)) + b"\n",
    }
    for name, content in written.items():
        write_bytes(folder / name, content)
    return [folder / name for name in written]


def logs_of(folder: Path) -> set[tuple[str, str]]:
    """The names of the logs and systems of the runs in a folder."""
    found = set()
    for path in folder.glob(f"**/{ABOUT}"):
        with suppress(OSError, msgspec.DecodeError, LookupError, TypeError):
            about = msgspec.json.decode(path.read_bytes())
            found.add((str(about["workload"]), str(about["system"]["name"])))
    return found


def _figures(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Mean, spread, least and largest value of each figure of a row; one run has no spread."""
    if "figures" in row:
        return {key: of for key, of in row["figures"].items() if key not in _LEFT_OUT}
    found = {key: value for key, (value,) in draws.figures([row]) if value == value}
    if row["users"] is not None:
        found[OF_USERS] = row["users"]["wait_s_mean"]
    return {
        key: {"mean": value, "min": value, "max": value}
        for key, value in found.items()
        if key not in _LEFT_OUT and not key.endswith(_RELATED)
    }
