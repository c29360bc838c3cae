"""The logs of an experiment: read as they are, or made anew for each draw."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from cpdispatch.errors import InputError, UsageError

if TYPE_CHECKING:
    from cpdispatch.jobs import Workload
    from cpdispatch.system import System

Log = tuple["Workload", "System"]

_EURORA_LOAD = 0.8


class LogForm(msgspec.Struct, forbid_unknown_fields=True):
    """A log of an experiment: a file, beside the experiment's own, a name in the archive, a model.

    The draws of a file are the log with shifted submissions, random weeks of its users, or jobs
    that are generated like its own.
    """

    file: str = ""
    archive: str = ""
    model: Literal["", "lublin", "eurora"] = ""
    draws_by: Literal["shake", "resample", "generate"] = "shake"
    weeks: int | None = None
    load: float | None = None
    system: str | None = None
    filter: Literal["all", "strong", "drop"] = "all"
    units: Literal["processors", "per-node", "as-is"] | None = None
    jobs: int | None = None
    since: str = msgspec.field(default="", name="from")
    until: str = msgspec.field(default="", name="to")
    restartable: str | None = None

    @property
    def of_seed(self) -> bool:
        """Whether each draw has jobs of its own."""
        return bool(self.model) or self.draws_by != "shake"

    def check(self, file: Path, field: str) -> None:
        """Raise where its keys do not go together."""
        given = [name for name in (self.file, self.archive, self.model) if name]
        if len(given) != 1:
            raise InputError(
                "a log has either a file or the name of one in the archive, or is of a model",
                file=file, field=field, value=given[0] if given else "",
                advice='write file = "LOG.swf.gz", archive = "kth" or model = "lublin"',
            )  # fmt: skip
        for key, count in (("jobs", self.jobs), ("weeks", self.weeks)):
            if count is not None and count < 1:
                raise InputError(
                    "1 or more are needed", file=file, field=f"{field}: {key}", value=count
                )
        generated = bool(self.model) or self.draws_by == "generate"
        resampled = not self.model and self.draws_by == "resample"
        kind = f"model {self.model}" if self.model else f"draws_by {self.draws_by}"
        for key, wrong, needed in (
            ("draws_by", bool(self.model) and self.draws_by != "shake", False),
            ("filter", bool(self.model) and self.filter != "all", False),
            ("from", bool(self.model and self.since), False),
            ("to", bool(self.model and self.until), False),
            ("weeks", self.weeks is not None and not resampled, resampled and not self.weeks),
            ("jobs", self.jobs is not None and resampled, generated and not self.jobs),
            ("load", self.load is not None and not generated, False),
        ):
            if wrong:
                raise InputError(
                    f"{key} means nothing with {kind}", file=file, field=field,
                    advice=f"leave {key} out",
                )  # fmt: skip
            if needed:
                raise InputError(
                    f"with {kind}, {key} says how many are made", file=file, field=field,
                    advice=f"write {key} = {10 if key == 'weeks' else 5000}",
                )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Samples:
    """Logs that run in one experiment: several as they are, or one with a sample for each seed."""

    logs: list[Log]
    of_seed: bool


def of(forms: list[LogForm], file: Path, seed: int, draws: int) -> list[Samples]:
    """Read or make the logs; those that are shaken are together, in their order.

    Parameters
    ----------
    file : path
        That of the experiment: other files are named from its folder.
    seed, draws : int
        A log of samples has one for each of so many seeds, from ``seed`` on.

    Raises
    ------
    InputError
        When a log cannot be read or made; the error names its place in the file.
    """
    beside = file.absolute().parent
    shaken, made = [], []
    for number, form in enumerate(forms, start=1):
        with named(file, f"logs, the {number}."):
            if form.of_seed:
                make = _maker(form, beside)
                made.append(Samples([make(seed + draw) for draw in range(draws)], True))
            else:
                shaken.append(_prepared(form, _source(form, beside), beside, seed))
    return ([Samples(shaken, False)] if shaken else []) + made


@contextmanager
def named(file: Path, field: str) -> Iterator[None]:
    """Say of what is wrong where it stands in the file of an experiment."""
    try:
        yield
    except (InputError, UsageError) as error:
        raise InputError(str(error), file=file, field=field) from error


def _maker(form: LogForm, beside: Path) -> Callable[[int], Log]:
    """What makes the sample of a seed."""
    from cpdispatch.system import System, find
    from cpdispatch.workloads import generate, lublin, prepare, resample, select, slots
    from cpdispatch.workloads import read as read_log

    named = _system(beside, form.system)

    def fitted(made: Workload, machine: System | str | None, seed: int) -> Log:
        restartable = form.restartable
        return prepare(made, machine, units=form.units, restartable=restartable, seed=seed)

    if form.model:
        jobs = form.jobs or 0
        machine = find(named or ("eurora" if form.model == "eurora" else str(lublin.PROCESSORS)))
        if form.model == "eurora":
            load = _EURORA_LOAD if form.load is None else form.load
            return lambda seed: fitted(
                generate.generate(generate.EURORA, jobs, seed, load), machine, seed
            )
        processors = machine.processors
        return lambda seed: fitted(
            lublin.generate(jobs, seed, processors=processors, load=form.load), machine, seed
        )
    log = read_log(_source(form, beside), form.filter)
    source = select.select(log, None, form.since, form.until)
    if form.draws_by == "resample":
        return lambda seed: fitted(resample.resample(source, form.weeks or 0, seed), named, seed)
    if named is None and source.processors is None:
        raise InputError(
            "the log does not say how large its machine is", file=_source(form, beside),
            advice='add system = "..." to it',
        )  # fmt: skip
    target = System.pool(source.processors or 0) if named is None else find(named)
    learned = slots.fit(source)
    return lambda seed: fitted(
        slots.generate(learned, target, form.jobs or 0, seed, load=form.load), target, seed
    )


def _prepared(form: LogForm, source: str, beside: Path, seed: int) -> Log:
    from cpdispatch.workloads import prepare

    return prepare(
        source, _system(beside, form.system), filter=form.filter, units=form.units, jobs=form.jobs,
        since=form.since, until=form.until, restartable=form.restartable, seed=seed,
    )  # fmt: skip


def _source(form: LogForm, beside: Path) -> str:
    from cpdispatch.workloads import archive

    return str(archive.get(form.archive)) if form.archive else _beside(beside, form.file)


def _system(beside: Path, named: str | None) -> str | None:
    """A system as it is named; a file is beside the experiment's."""
    is_file = named is not None and Path(named).suffix in (".json", ".toml")
    return _beside(beside, str(named)) if is_file else named or None


def _beside(folder: Path, file: str) -> str:
    return file if os.path.isabs(file) else str(folder / file)  # noqa: PTH117
