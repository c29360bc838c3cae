"""The command generate: makes a workload like a log's, or one of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from cpdispatch.cli.lublin import LUBLIN
from cpdispatch.cli.made import Performance, check_out, save_and_print
from cpdispatch.cli.options import Filter, Json, Seed, Whole, check_spared
from cpdispatch.cli.output import status
from cpdispatch.errors import UsageError, nearest, unknown
from cpdispatch.parameters import pairs

if TYPE_CHECKING:
    from cpdispatch.jobs import Workload
    from cpdispatch.system import System
    from cpdispatch.workloads.slots import Limits, SlotModel


_MODELS = (".json", ".json.gz", ".json.xz", ".json.zst")
"""How the names of saved models end."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """What the jobs may ask for on the system.

    Parameters
    ----------
    system
        A number of processors, a named system, or a JSON or TOML file. Default: the log's system.
    load
        Offered load. Default: as many jobs a day as in the log.
    request_limits
        Least and most that each unit of a job asks for, for example core=1..16,mem=1..14. Default:
        1 core.
    accelerators
        Shares of the jobs that use an accelerator, for example gpu=0.3,mic=0.1. --performance has
        to name the accelerator, too.
    performance
        GFLOPS of a unit of each resource type, for example core=10,gpu=500. A job's runtime is its
        work divided by the GFLOPS of all that it asks for.
    log_performance
        GFLOPS of a unit of the log's machine, if its units are slower or faster.
    """

    system: str | None = None
    load: float | None = None
    request_limits: Annotated[str, Parameter(show_default=False)] = ""
    accelerators: Annotated[str, Parameter(show_default=False)] = ""
    performance: Annotated[str, Parameter(show_default=False)] = ""
    log_performance: Annotated[str, Parameter(show_default=False)] = ""

    def limits(self) -> Limits:
        """The limits of the requests."""
        from cpdispatch.workloads.slots import Limits

        return Limits(
            _ranges("--request-limits", self.request_limits),
            _numbers("--accelerators", self.accelerators),
            _numbers("--performance", self.performance),
        )

    def given(self) -> list[str]:
        """The options that say something about requests."""
        names = ("request_limits", "accelerators", "performance", "log_performance")
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class LublinOptions:
    """Options of the Lublin-Feitelson model (TRACE is lublin).

    Parameters
    ----------
    kind
        Of lublin. all: one set of parameters for all jobs; batch or interactive: jobs of one kind;
        both: a stream of each kind.
    request_factor
        Of lublin, which has no requested times: they are the runtimes times this number, 1
        to 1000.
    """

    kind: Literal["all", "batch", "interactive", "both"] = "all"
    request_factor: float = 1.0


def generate(
    trace: str,
    *,
    jobs: Whole,
    out: Path,
    target: TargetOptions = TargetOptions(),
    lublin: LublinOptions = LublinOptions(),
    filter: Filter = "all",
    seed: Seed = 0,
    save_model: Path | None = None,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Generate jobs like those of a log, or jobs of the Lublin-Feitelson model.

    Parameters
    ----------
    trace
        A log to learn from, a model saved with --save-model (.json), or lublin.
    jobs
        How many jobs to make.
    out
        File for the jobs: .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    filter
        Which jobs of the log to learn from.
    seed
        The same seed makes the same jobs.
    save_model
        Write what was learned from the log to this .json file, which can replace TRACE later.
    plot
        Draw the submissions and the work of the new jobs, beside those of the log (.png, .svg,
        .pdf).
    json
        Print one JSON object.
    """
    check_out(trace, out, plot)
    check_spared("--save-model", save_model, trace)
    if save_model is not None and not save_model.name.endswith(_MODELS):
        raise UsageError(f"--save-model {save_model}: unknown extension; models are .json")
    performance = None
    with status(f"generating {jobs:,} jobs"):
        if trace == LUBLIN:
            options = target.given() + ["--save-model"] * (save_model is not None)
            options += ["--filter"] * (filter != "all")
            if options:
                raise UsageError(
                    f"{options[0]} is for jobs like a log's, not for the model {LUBLIN}"
                )
            source = None
            made, system = _lublin(jobs, target, lublin, seed)
        else:
            from cpdispatch.workloads import slots

            if lublin != LublinOptions():
                raise UsageError(f"--kind and --request-factor are for {LUBLIN}, not for {trace}")
            model, source = _learned(trace, target, filter)
            system = _system(trace, target, source)
            limits = target.limits()
            made = slots.generate(model, system, jobs, seed, limits=limits, load=target.load)
            performance = Performance(slots.rates_of(model, limits), model.performance)
            if save_model is not None:
                slots.save(model, save_model)
    summary = {"trace": trace, "seed": seed}
    return save_and_print(made, system, source, out, plot, summary, json, performance)


def _lublin(
    jobs: Whole, target: TargetOptions, lublin: LublinOptions, seed: int
) -> tuple[Workload, System]:
    from cpdispatch.system import System, find
    from cpdispatch.workloads.lublin import PROCESSORS, generate

    machine = System.pool(PROCESSORS) if target.system is None else find(target.system)
    processors = machine.processors
    made = generate(
        jobs, seed, processors=processors, kind=lublin.kind, load=target.load,
        request_factor=lublin.request_factor,
    )  # fmt: skip
    return made, System.pool(processors)


def _learned(
    trace: str, target: TargetOptions, filter: Filter
) -> tuple[SlotModel, Workload | None]:
    """The model, and the log that it was learned from if it was not loaded."""
    from cpdispatch.workloads import read, slots

    if trace.endswith(_MODELS):
        if target.log_performance:
            raise UsageError(
                "--log-performance is for a log; a saved model has its own performance"
            )
        if filter != "all":
            raise UsageError("--filter is for a log; a saved model was learned from a filtered one")
        return slots.load(trace), None
    if not Path(trace).suffix and nearest(trace, [LUBLIN]):
        raise unknown("model", trace, [LUBLIN])
    source = read(trace, filter)
    rates = _numbers("--log-performance", target.log_performance) or {
        name: rate
        for name, rate in _numbers("--performance", target.performance).items()
        if name in source.resources
    }
    return slots.fit(source, rates or None), source


def _system(trace: str, target: TargetOptions, source: Workload | None) -> System:
    from cpdispatch.system import System, find

    if target.system is not None:
        return find(target.system)
    if source is None or source.processors is None:
        raise UsageError(f"{trace} does not say how large its machine is: give --system")
    return System.pool(source.processors)


def _numbers(option: str, text: str) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in pairs(option, text).items()}
    except ValueError:
        raise UsageError(f"{option} {text}: write NAME=NUMBER,NAME=NUMBER") from None


def _ranges(option: str, text: str) -> dict[str, tuple[int, int]]:
    try:
        found = {name: value.partition("..") for name, value in pairs(option, text).items()}
        return {name: (int(low), int(high or low)) for name, (low, _, high) in found.items()}
    except ValueError:
        raise UsageError(f"{option} {text}: write NAME=LEAST..MOST,NAME=LEAST..MOST") from None
