"""The command simulate with --window: logs that are replayed with a part of them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.cli.options import (
    EventOptions,
    LogOptions,
    OutputOptions,
    ReplayOptions,
    RestartOptions,
    WorkerOptions,
)
from cpdispatch.cli.output import DONE, progress_bars, status
from cpdispatch.cli.runs import print_runs
from cpdispatch.cli.signals import stoppable
from cpdispatch.durations import seconds
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.jobs import Workload
    from cpdispatch.system import System

_TAKEN = {
    LogOptions: ("system", "filter", "units"),
    ReplayOptions: ("predict", "trigger", "correction", "kill_at_limit", "limit", "seed"),
    OutputOptions: ("out", "overwrite"),
    RestartOptions: (),
    EventOptions: (),
    WorkerOptions: ("cores",),
}
"""The options that such a replay has, of each group."""


def by_windows(
    traces: Sequence[str], dispatchers: Sequence[str], window: int, json: bool,
    log: LogOptions, rules: ReplayOptions, output: OutputOptions, *others: Any,
) -> int:  # fmt: skip
    """Replay a log by windows under each dispatcher, one after the other."""
    out = _check(traces, window, log, rules, output, *others)
    with status("loading"):
        from cpdispatch.dispatch import Settings, current
        from cpdispatch.experiment import RunSummary
        from cpdispatch.experiment.memory import PeakMemory
        from cpdispatch.experiment.runs import SAME_DISPATCHER, check_apart, safe
        from cpdispatch.simulator import windows
        from cpdispatch.simulator.replay import claim

    names = [current(name) for name in dispatchers]
    check_apart("dispatchers", names, SAME_DISPATCHER)
    folders = [out / safe(name) if len(names) > 1 else out for name in names]
    settings = Settings(seconds(rules.limit, "--limit"), rules.seed)
    given = {key: getattr(rules, key) for key in ("trigger", "correction", "kill_at_limit")}
    begin = list(islice(_parts(traces[0], log, window, lambda share: None), 1))
    for name in names:
        windows.check(begin, name, rules.predict, given, settings)
    output.check_depth(folders)
    claim(folders, resume=False, overwrite=output.overwrite, resumable=False)
    summaries = []
    kept = "what is not finished was not saved: a replay by windows begins anew"
    with stoppable(kept) as stop, progress_bars() as show:
        for place, (name, folder) in enumerate(zip(names, folders, strict=True)):
            memory = PeakMemory()
            run = windows.simulate(
                _parts(traces[0], log, window, show(name)), folder, name,
                predictor=rules.predict, settings=settings, place=place, stop=stop, **given,
            )  # fmt: skip
            if (peak_mib := memory.mib()) is not None:
                run = replace(run, about=run.about | {"memory_mib_peak": peak_mib})
                run.save_about(folder)
            summaries.append(RunSummary.of(run))
    print_runs(summaries, json)
    return DONE


def _parts(
    trace: str, log: LogOptions, window: int, advance: Any
) -> Iterator[tuple[Workload, System]]:
    """The parts of a log, each fitted to the machine."""
    from cpdispatch.system import find
    from cpdispatch.workloads import prepare, swf

    machine = find(log.system) if log.system else None
    processors = None if machine is None else machine.processors
    for part in swf.parts(trace, window, log.filter, processors, advance):
        yield prepare(part, machine, units=log.units)


def _check(
    traces: Sequence[str], window: int, log: LogOptions, rules: ReplayOptions,
    output: OutputOptions, *others: Any,
) -> Path:  # fmt: skip
    """Raise where something is asked for that needs the whole log; the folder for the results."""
    if window < 1:
        raise UsageError(f"--window {window}: 1 or more jobs are needed")
    if len(traces) != 1 or ".swf" not in Path(traces[0]).suffixes:
        found = ", ".join(traces) or "none"
        raise UsageError(f"--window is for one log in SWF, plain or packed (found {found})")
    for group in (log, rules, output, *others):
        for field in fields(group):
            given = getattr(group, field.name)
            if field.name not in _TAKEN[type(group)] and given != field.default:
                option = {"since": "from", "until": "to"}.get(field.name, field.name)
                raise UsageError(
                    f"--{option.replace('_', '-')} and --window cannot be combined: only a window "
                    "of the log is in memory at a time; leave one of them out"
                )
    if output.out is None:
        raise UsageError("--window needs --out FOLDER, where the results are written as they come")
    return output.out.absolute()
