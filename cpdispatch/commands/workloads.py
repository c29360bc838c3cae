"""The commands that make workloads: generate and resample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from cpdispatch.cli import DONE, Json, _console, _print_json
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.analyze.plots import Profile
    from cpdispatch.jobs import Workload
    from cpdispatch.system import System
    from cpdispatch.workloads.slots import Limits, SlotModel

LUBLIN = "lublin"
LUBLIN_PROCESSORS = 256
SWF_RESOURCES = ("core", "mem")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the jobs may ask for on the system.

    Parameters
    ----------
    system
        A number of processors, a named system, or a JSON or TOML file; else that of the log.
    load
        Offered load; else as many jobs are submitted a day as in the log.
    limits
        Least and most that each unit of a job asks for, as core=1..16,mem=1..14; 1 core when left
        out.
    accelerators
        Shares of the jobs that use an accelerator, as gpu=0.3,mic=0.1; needs its performance.
    performance
        GFLOPS of a unit of each resource type, as core=10,gpu=500: a job's runtime is its work
        over that of all that it asks for.
    log_performance
        GFLOPS of the log's machine, when its units are slower or faster.
    """

    system: str | None = None
    load: float | None = None
    limits: Annotated[str, Parameter(show_default=False)] = ""
    accelerators: Annotated[str, Parameter(show_default=False)] = ""
    performance: Annotated[str, Parameter(show_default=False)] = ""
    log_performance: Annotated[str, Parameter(show_default=False)] = ""

    def request_limits(self) -> Limits:
        """The limits of the requests."""
        from cpdispatch.workloads.slots import Limits

        return Limits(
            _ranges("--limits", self.limits),
            _numbers("--accelerators", self.accelerators),
            _numbers("--performance", self.performance),
        )

    def given(self) -> list[str]:
        """The options that say something about requests."""
        names = ("limits", "accelerators", "performance", "log_performance")
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Lublin:
    """With lublin as TRACE.

    Parameters
    ----------
    kind
        Jobs of all kinds by one set of parameters, of one kind, or a stream of each.
    request_factor
        The model has no requested times: they are the runtimes times this.
    """

    kind: Literal["all", "batch", "interactive", "both"] = "all"
    request_factor: float = 1.0


def generate(
    trace: str,
    *,
    jobs: int,
    out: Path,
    target: Target = Target(),
    lublin: Lublin = Lublin(),
    filter: Literal["all", "strong"] = "all",
    seed: int = 0,
    save_model: Path | None = None,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Make a workload like a log's, or one of the Lublin-Feitelson model.

    Parameters
    ----------
    trace
        A log to learn from, a model saved with --save-model (.json), or lublin.
    jobs
        How many jobs to make.
    out
        .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    filter
        Which jobs of the log to learn from.
    seed
        The same seed makes the same jobs.
    save_model
        Write what was learned from the log.
    plot
        Draw the submissions and the work of the new jobs, beside those of the log (.png, .svg,
        .pdf).
    json
        Print one JSON object.
    """
    _check(out, plot)
    source = None
    if trace == LUBLIN:
        if target.given() or save_model is not None:
            option = (target.given() or ["--save-model"])[0]
            raise UsageError(f"{option} is for jobs like a log's, not for the model {LUBLIN}")
        made, system = _lublin(jobs, target, lublin, seed)
    else:
        from cpdispatch.workloads import slots

        if lublin != Lublin():
            raise UsageError(f"--kind and --request-factor are for {LUBLIN}, not for {trace}")
        model, source = _learned(trace, target, filter)
        system = _system(trace, target, source)
        limits = target.request_limits()
        made = slots.generate(model, system, jobs, seed, limits=limits, load=target.load)
        if save_model is not None:
            slots.save(model, save_model)
    return _done(made, system, source, out, plot, {"trace": trace, "seed": seed}, json)


def resample(
    trace: str,
    *,
    weeks: int,
    out: Path,
    presence: Literal["log", "always"] = "log",
    filter: Literal["all", "strong"] = "all",
    seed: int = 0,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Make a workload of random weeks of a log's users.

    Parameters
    ----------
    trace
        A log.
    weeks
        How many weeks to make.
    out
        .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    presence
        Users are active as often as in the log, or always.
    filter
        Which jobs of the log to keep.
    seed
        The same seed draws the same weeks.
    plot
        Draw the submissions and the work beside those of the log (.png, .svg, .pdf).
    json
        Print one JSON object.
    """
    from cpdispatch.system import System
    from cpdispatch.workloads import read
    from cpdispatch.workloads.resample import resample

    _check(out, plot)
    source = read(trace, filter)
    made = resample(source, weeks, seed, presence)
    system = None if source.processors is None else System.pool(source.processors)
    told = {"trace": trace, "weeks": weeks, "seed": seed}
    return _done(made, system, source, out, plot, told, json)


# --------------------------------------------------------------------------------- helpers


def _check(out: Path, plot: Path | None) -> None:
    """Refuse a file that cannot be written before there is any work to lose."""
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


def _lublin(jobs: int, target: Target, lublin: Lublin, seed: int) -> tuple[Workload, System]:
    from cpdispatch.system import System, find
    from cpdispatch.workloads.lublin import generate

    machine = System.pool(LUBLIN_PROCESSORS) if target.system is None else find(target.system)
    processors = _processors(machine)
    made = generate(
        jobs, seed, processors=processors, kind=lublin.kind, load=target.load,
        request_factor=lublin.request_factor,
    )  # fmt: skip
    return made, System.pool(processors)


def _processors(system: System) -> int:
    return int(system.total[max(system.resource("core"), 0)])


def _learned(
    trace: str, target: Target, filter: Literal["all", "strong"]
) -> tuple[SlotModel, Workload | None]:
    """The model, and the log that it was learned from if it was not loaded."""
    from cpdispatch.workloads import read, slots

    if trace.endswith((".json", ".json.gz", ".json.xz", ".json.zst")):
        if target.log_performance:
            raise UsageError("--log-performance goes with a log, a saved model has its own")
        return slots.load(trace), None
    source = read(trace, filter)
    rates = _numbers("--log-performance", target.log_performance) or {
        name: rate
        for name, rate in _numbers("--performance", target.performance).items()
        if name in source.resources
    }
    return slots.fit(source, rates or None), source


def _system(trace: str, target: Target, source: Workload | None) -> System:
    from cpdispatch.system import System, find

    if target.system is not None:
        return find(target.system)
    if source is None or source.processors is None:
        raise UsageError(f"{trace} does not say how large its machine is: give --system")
    return System.pool(source.processors)


def _pairs(option: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name or not equals or name in pairs:
            raise UsageError(f"{option} {text}: write NAME=VALUE,NAME=VALUE, each name once")
        pairs[name] = value
    return pairs


def _numbers(option: str, text: str) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in _pairs(option, text).items()}
    except ValueError:
        raise UsageError(f"{option} {text}: write NAME=NUMBER,NAME=NUMBER") from None


def _ranges(option: str, text: str) -> dict[str, tuple[int, int]]:
    try:
        found = {name: value.partition("..") for name, value in _pairs(option, text).items()}
        return {name: (int(low), int(high or low)) for name, (low, _, high) in found.items()}
    except ValueError:
        raise UsageError(f"{option} {text}: write NAME=LEAST..MOST,NAME=LEAST..MOST") from None


def _write(made: Workload, out: Path) -> None:
    from cpdispatch.workloads import swf, table

    if _format(out) != ".swf":
        table.write(made, out)
        return
    lost = [
        name
        for name, column in zip(made.resources, made.table.request.T, strict=True)
        if name not in SWF_RESOURCES and column.any()
    ]
    if lost:
        raise UsageError(
            f"--out {out}: SWF has no field for {', '.join(lost)}, which jobs ask for: write .csv "
            "or .parquet"
        )
    swf.write(made, out)


def _done(
    made: Workload, system: System | None, source: Workload | None, out: Path, plot: Path | None,
    told: dict[str, Any], json: bool,
) -> int:  # fmt: skip
    """Write, draw and tell."""
    _write(made, out)
    if plot is not None:
        from cpdispatch.analyze import plots

        plots.workloads(
            plot, [_profile(w) for w in ((made,) if source is None else (source, made))]
        )
    told = {"out": str(out), "jobs": len(made), **told, **_figures(made, system)}
    told["notes"] = made.notes if source is None else source.notes | made.notes
    if plot is not None:
        told["plot"] = str(plot)
    if json:
        _print_json(told)
        return DONE
    console = _console()
    load = "" if told["load"] is None else f", load {told['load']:.3f}"
    console.print(
        f"[bold]{out}[/]: {len(made):,} jobs in {told['days']:.1f} days{load}, "
        f"{told['serial']:.1%} serial",
        soft_wrap=True,
    )
    for rule, count in told["notes"].items():
        console.print(f"{rule}: {count:,} jobs", style="dim")
    return DONE


def _figures(made: Workload, system: System | None) -> dict[str, Any]:
    """Figures of a workload: its span, offered load, serial jobs, what jobs ask for."""
    import numpy as np

    table = made.table
    span_s = max(int(np.ptp(table.submit_s)), 1)
    asked = (table.units * made.runtime_s) @ table.request
    load = None
    if system is not None:
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
        "serial": float(np.mean(_cores(made) == 1)),
        "work_core_s_mean": float(np.mean(_cores(made) * made.runtime_s)),
        "asking": {
            name: float(np.mean(column > 0))
            for name, column in zip(made.resources, table.request.T, strict=True)
        },
    }


def _cores(workload: Workload) -> Any:
    """Processors of every job, shape (jobs,)."""
    import numpy as np

    names = workload.resources
    cores = workload.table.request[:, names.index("core")] if "core" in names else 1
    return workload.table.units * np.maximum(cores, 1)


def _profile(workload: Workload) -> Profile:
    """What is drawn of a workload."""
    import numpy as np

    from cpdispatch.analyze.plots import Profile
    from cpdispatch.workloads import clock

    wall = clock.wall_s(workload)
    hours = np.bincount(clock.slot_of(wall) // 2, minlength=24) / len(wall)
    work = (_cores(workload) * workload.runtime_s).astype(np.float64)
    return Profile(
        workload.name,
        hours,
        clock.by_day(wall, clock.weekday_of, 7),
        clock.by_day(wall, clock.month_of, 12),
        work,
    )
