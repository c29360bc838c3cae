"""Workloads that were made: written, drawn, and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.cli.options import check_spared
from cpdispatch.cli.output import DONE, bold, console_of_stdout, print_json
from cpdispatch.errors import UsageError
from cpdispatch.words import counted

if TYPE_CHECKING:
    from cpdispatch.analyze.plots import PlottedWorkload
    from cpdispatch.arrays import FloatArray
    from cpdispatch.jobs import Workload
    from cpdispatch.system import System


def check_out(trace: str, out: Path, plot: Path | None) -> None:
    """Refuse a file that cannot be written before there is any work to lose."""
    check_spared("--out", out, trace)
    if _format(out) is None:
        raise UsageError(
            f"--out {out}: unknown extension; workloads are .swf and .csv, also with .gz, .xz or "
            ".zst, and .parquet"
        )
    if plot is not None:
        from cpdispatch.analyze import plots

        plots.check(plot)


def _format(out: Path) -> str | None:
    packed = out.suffix in {".gz", ".xz", ".zst"}
    suffix = Path(out.stem).suffix if packed else out.suffix
    known = {".swf", ".csv"} if packed else {".swf", ".csv", ".parquet"}
    return suffix if suffix in known else None


def _write(made: Workload, out: Path) -> None:
    from cpdispatch.workloads import swf, table

    if _format(out) != ".swf":
        table.write(made, out)
        return
    lost = [
        name if name != "mem" else "mem without a unit"
        for name, column in table.columns_of(made).items()
        if name not in swf.COLUMNS and (name in table.RESERVED or column.any())
    ]
    if lost:
        raise UsageError(
            f"--out {out}: SWF has no field for {', '.join(lost)}, which jobs ask for: write .csv "
            "or .parquet"
        )
    swf.write(made, out)


@dataclass(frozen=True, slots=True)
class Performance:
    """GFLOPS of a unit of each resource type: of the system, and of the log's machine."""

    system: Mapping[str, float]
    log: Mapping[str, float]


def save_and_print(
    made: Workload, system: System | None, source: Workload | None, out: Path, plot: Path | None,
    summary: dict[str, Any], json: bool, performance: Performance | None = None,
) -> int:  # fmt: skip
    """Write and draw a workload, and print its figures."""
    _write(made, out)
    work_core_s = _work_core_s(made, performance, of_log=False)
    if plot is not None:
        from cpdispatch.analyze import plots

        drawn = [_plotted(made, work_core_s)]
        if source is not None:
            drawn.insert(0, _plotted(source, _work_core_s(source, performance, of_log=True)))
        plots.workloads(plot, drawn)
    summary = {"out": str(out), "jobs": len(made), **summary}
    summary |= _figures(made, system, float(work_core_s.mean()))
    summary["notes"] = made.notes if source is None else source.notes | made.notes
    if plot is not None:
        summary["plot"] = str(plot)
    if json:
        print_json(summary)
        return DONE
    console = console_of_stdout()
    load = "" if summary["load"] is None else f", load {summary['load']:.3f}"
    days, serial = f"{summary['days']:.1f} days", f"{summary['serial']:.1%} serial"
    what = f"{counted(len(made), 'job')} in {days}{load}, {serial}"
    console.print(bold(str(out), f": {what}"), soft_wrap=True)
    for rule, count in summary["notes"].items():
        console.print(f"{rule}: {counted(count, 'job')}", style="dim")
    return DONE


def _figures(made: Workload, system: System | None, work_core_s_mean: float) -> dict[str, Any]:
    """Figures of a workload: its span, offered load, serial jobs, what jobs ask for."""
    import numpy as np

    from cpdispatch.workloads.slots import processors_of

    table = made.table
    span_s = int(np.ptp(table.submit_s))
    asked = (table.units * made.runtime_s) @ table.request
    load = None
    if system is not None and span_s:  # jobs that come at once offer no load
        total = np.array([
            system.total[k] if (k := system.resource(name)) >= 0 else 0 for name in made.resources
        ])  # fmt: skip
        # Memory is in no unit that the log and the machine share.
        has = (total > 0) & np.array(
            [name != "mem" or not made.per_processor for name in made.resources]
        )
        load = float(np.max(asked[has] / total[has]) / span_s) if has.any() else None
    return {
        "days": span_s / 86_400,
        "load": load,
        "serial": float(np.mean(processors_of(made) == 1)),
        "work_core_s_mean": work_core_s_mean,
        "asking": {
            name: float(np.mean(column > 0))
            for name, column in zip(made.resources, table.request.T, strict=True)
        },
    }


def _work_core_s(
    workload: Workload, performance: Performance | None, *, of_log: bool
) -> FloatArray:
    """Work of every job, in seconds of a core of the system, shape (jobs,).

    Without any performance, processors work as cores do and nothing else works.
    """
    from cpdispatch.workloads.slots import power_of, processors_of

    if performance is None:
        return (processors_of(workload) * workload.runtime_s).astype(float)
    power = power_of(workload, performance.log if of_log else performance.system)
    return power * workload.runtime_s / performance.system["core"]


def _plotted(workload: Workload, work_core_s: FloatArray) -> PlottedWorkload:
    """What is drawn of a workload."""
    import numpy as np

    from cpdispatch.analyze.plots import PlottedWorkload
    from cpdispatch.workloads import clock

    wall = clock.wall_s(workload)
    hours = np.bincount(clock.slot_of(wall) // 2, minlength=24) / len(wall)
    return PlottedWorkload(
        workload.name,
        hours,
        clock.by_day(wall, clock.weekday_of, 7),
        clock.by_day(wall, clock.month_of, 12),
        work_core_s,
    )
