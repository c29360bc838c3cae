"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token

from cpdispatch.cli.output import (
    DONE,
    bold,
    console_of_stdout,
    print_json,
    print_sentence,
    progress_bars,
    status,
)
from cpdispatch.cli.signals import stoppable
from cpdispatch.durations import LIMIT_S, plain_seconds, seconds
from cpdispatch.errors import UsageError
from cpdispatch.parameters import DIGITS, count_of, whole

if TYPE_CHECKING:
    from rich.table import Table

    from cpdispatch.events import Events
    from cpdispatch.experiment import RunPlan
    from cpdispatch.instance import Starvation
    from cpdispatch.jobs import Workload
    from cpdispatch.learn.mixed import Mixed
    from cpdispatch.learn.place import Place
    from cpdispatch.learn.regress import Regressed
    from cpdispatch.learn.tune import Tuned
    from cpdispatch.system import System

SAMPLE_JOBS = 1_000
"""Jobs of the generated sample that are replayed where there is no log and no ``--jobs``."""
GENERATED = 5_000
"""Jobs of that sample at least: fewer are its first ones, so that they are the same jobs."""

SEED_MAX = 2_000_000_000
"""CP-SAT takes seeds below 2**31, also that of the last of some draws."""

NOTHING_SAVED = "nothing was saved, because there was no --out"


def check_spared(option: str, out: Path | None, *inputs: str | Path) -> None:
    """Raise where a file to be written is one that is read."""
    for path in map(Path, inputs):
        if out is not None and out.exists() and path.exists() and out.samefile(path):
            raise UsageError(f"{option} {out}: this would replace its own input; name another file")


def kept_in(out: Path | None) -> str:
    """What an interruption leaves where the same command goes on with what is there."""
    if out is None:
        return NOTHING_SAVED
    return f"what was done is saved in {out}: the same command goes on from there"


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """A whole number as it is written; the usual conversion rounds 1.5 to 2."""
    text = tokens[0].value
    found = count_of(text.removeprefix("-"))
    if found is None:
        digits = f" of {DIGITS} digits at most" if text.removeprefix("-").isdigit() else ""
        raise ValueError(f"a whole number{digits} is needed (found {text!r})")
    return -found if text.startswith("-") else found


def check_draws(option: str, draws: int) -> None:
    """Raise where there would be no replay, or more than anybody means."""
    from cpdispatch.workloads.shake import DRAWS_MAX

    whole(option, draws, 1, DRAWS_MAX, of="draws")


def _seed(kind: type, tokens: Sequence[Token]) -> int:
    if not 0 <= (seed := _whole(kind, tokens)) <= SEED_MAX:
        raise ValueError(f"a whole number from 0 to {SEED_MAX} is needed (found {seed})")
    return seed


Whole = Annotated[int, Parameter(converter=_whole)]
Seed = Annotated[int, Parameter(converter=_seed)]
Json = Annotated[bool, Parameter("--json", negative="", show_default=False)]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Filter = Literal["all", "strong", "drop"]
Trigger = Literal["instant", "event"]
Correction = Literal["minimal", "incremental", "requested", "refresh"]
Objective = Literal["wait", "slowdown"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The log that is replayed, and the system.

    Parameters
    ----------
    system
        A number of processors, a named system, or a JSON or TOML file. Default: the log's system.
    filter
        Which jobs of the log to keep. all: every job that can run; strong: as in published results,
        with runtimes cut at the requested time; drop: as strong, without the jobs that ran longer.
    units
        How a job's processors become units. processors: each is a unit; per-node: a unit has as
        many as a node takes; as-is: the units of the log. Tables (CSV, Parquet) have as-is alone.
    jobs
        Use only the first N jobs. Where jobs are generated, make N.
    since
        Use only jobs submitted on this date (UTC) or later.
    until
        Use only jobs submitted before this date (UTC).
    """

    system: str | None = None
    filter: Filter = "all"
    units: Literal["processors", "per-node", "as-is"] | None = None
    jobs: Whole | None = None
    since: Annotated[str, Parameter("--from", show_default=False)] = ""
    until: Annotated[str, Parameter("--to", show_default=False)] = ""

    def read(
        self, trace: str | None, seed: int, restartable: str | None = None
    ) -> tuple[Workload, System]:
        """The workload, fitted to the machine, and the machine."""
        part: dict[str, Any] = {
            "units": self.units, "jobs": self.jobs, "since": self.since, "until": self.until,
            "restartable": restartable, "seed": seed,
        }  # fmt: skip
        if trace is None and self.filter != "all":
            raise UsageError(
                f"--filter {self.filter} is for logs, not for the generated jobs: name a log, "
                "or leave it out"
            )
        with status("generating jobs" if trace is None else f"reading {trace}"):
            from cpdispatch.workloads import prepare
            from cpdispatch.workloads.generate import eurora_sample

            if trace is None:
                part["jobs"] = jobs = SAMPLE_JOBS if self.jobs is None else self.jobs
                sample = eurora_sample(max(jobs, GENERATED), seed)
                return prepare(sample, self.system or "eurora", **part)
            return prepare(trace, self.system or None, filter=self.filter, **part)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RestartOptions:
    """Which jobs may be killed and queued again, and what that costs.

    Parameters
    ----------
    restartable
        Which jobs may be killed once and queued again: all, none, the jobs of a share of the
        users (0.2; --seed draws them), or a column of a table that holds 1 for such jobs and 0
        for others. Default: what the log says; none if it says nothing.
    restart_cost
        Time that a restart takes, for example 30s: the nodes of a killed job stay busy for this
        time, and its next run takes this time longer.
    """

    restartable: Annotated[str | None, Parameter(show_default=False)] = None
    restart_cost: Annotated[str, Parameter(show_default=False)] = ""

    def cost_s(self) -> int:
        """How long the nodes of a killed job stay busy, seconds."""
        cost = self.restart_cost.strip()
        if cost in ("", "0", "0s"):
            return 0
        found = seconds(cost, "--restart-cost", whole=True)
        if found > LIMIT_S:
            raise UsageError(f"--restart-cost {cost}: too long: {LIMIT_S} s at most")
        return int(found)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EventOptions:
    """What happens to the system during the replay.

    Parameters
    ----------
    events
        A CSV file (time,kind,nodes, and until,known,capacity where needed) of what happens to
        nodes: they fail, are repaired, drained or maintained, leave or join, or lose a resource.
        Or random failures, for example weibull:mtbf=30d,shape=0.7,repair=4h or
        exponential:mtbf=30d,repair=4h, of one group of nodes with group=NAME. May be given several
        times.
    requeue
        Which jobs are queued again when a node fails under them. The others end as failed. Default:
        those that may be restarted, or all jobs if none may.
    checkpoints
        Jobs write checkpoints, and go on from them when they are queued again. every=1h,cost=2min:
        one after each hour of work, each takes two minutes. Default: no checkpoints.
    power_cap
        Watts that the whole system may draw, or a CSV file (time,watts) if the cap changes. The
        system's file has to say what nodes and resources draw.
    energy_price
        Price of a kilowatt hour, or a CSV file (time,price), for the cost of the energy.
    switch_off
        Switch off nodes that have been idle for this time, for example 30min, and switch them on
        again when jobs wait. The system's file has to say how long that takes (wake_s).
    """

    events: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    requeue: Annotated[
        Literal["all", "restartable", "none"] | None, Parameter(show_default=False)
    ] = None
    checkpoints: Annotated[str | None, Parameter(show_default=False)] = None
    power_cap: Annotated[str | None, Parameter(show_default=False)] = None
    energy_price: Annotated[str | None, Parameter(show_default=False)] = None
    switch_off: Annotated[str | None, Parameter(show_default=False)] = None

    def of_runs(self) -> dict[str, Any]:
        """The arguments of every run."""
        from cpdispatch import energy

        cap, price, idle = self.power_cap, self.energy_price, self.switch_off
        return {
            "events": self._events(),
            energy.POWER_CAP: None if cap is None else energy.power_cap(cap),
            energy.ENERGY_PRICE: None if price is None else energy.energy_price(price),
            "switch_off_s": None if idle is None else plain_seconds(idle, option="--switch-off"),
        }

    def _events(self) -> Events | None:
        """The events, before it is known to which system they happen."""
        from cpdispatch.events import read

        if not any((self.events, self.requeue, self.checkpoints)):
            return None
        return read(self.events or (), self.requeue or "", self.checkpoints)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The rules of the replay.

    Parameters
    ----------
    predict
        Predictor of durations. Default: the dispatcher's own; for most, the requested time.
    trigger
        Call the dispatcher once an instant, or (event) after each completion, and after each
        submission of a job that would fit alone.
    correction
        Rule for the new expected end of a job that outlives its prediction.
    kill_at_limit
        End jobs at their requested time.
    dependencies
        Start no job before its preceding job has ended and its think time has passed.
    starvation
        THRESHOLD,BOUND, for example 24h,2h: a plan starts a job that has waited longer than the
        threshold within the bound after that, if this is possible.
    idempotent
        Kill and restart a job that outlives the bound of the predictor class. All jobs may be
        restarted, unless the log or --restartable says which.
    data
        Additional data that dispatchers see: failures, or package.module:attribute of your own;
        may be given several times.
    limit
        Time limit of each decision, for example 500ms or 1s.
    seed
        Seed of dispatchers and predictors that draw numbers, and of the generated sample.
    """

    predict: str | None = None
    trigger: Trigger = "instant"
    correction: Correction = "minimal"
    kill_at_limit: Flag = False
    dependencies: Flag = False
    starvation: Annotated[str, Parameter(show_default=False)] = ""
    idempotent: Flag = False
    data: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    limit: str = "1s"
    seed: Seed = 0

    def of_runs(self) -> dict[str, Any]:
        """The arguments of every run."""
        return {
            "predictor": self.predict, "trigger": self.trigger, "correction": self.correction,
            "kill_at_limit": self.kill_at_limit, "dependencies": self.dependencies,
            "starvation": self.starvation_bound(), "idempotent": self.idempotent,
            "data": self.data,
        }  # fmt: skip

    def starvation_bound(self) -> Starvation | None:
        """The starvation bound that every instance carries."""
        from cpdispatch.instance import Starvation
        from cpdispatch.system import LIMIT

        if not self.starvation:
            return None
        parts = self.starvation.split(",")
        if len(parts) != 2:
            raise UsageError(
                f"--starvation {self.starvation}: write it as THRESHOLD,BOUND, for example 24h,2h"
            )
        times = [0.0 if part.strip() == "0" else seconds(part, "--starvation") for part in parts]
        if any(time != int(time) or time > LIMIT for time in times):
            raise UsageError(
                f"--starvation {self.starvation}: whole seconds, {LIMIT} at most, are needed"
            )
        return Starvation(*map(int, times))


def of_all_runs(
    rules: ReplayOptions, restarts: RestartOptions, happens: EventOptions,
    logs: Sequence[tuple[Workload, System]],
) -> dict[str, Any]:  # fmt: skip
    """The arguments of every run on these logs.

    Raises
    ------
    UsageError
        When options exclude each other, or the logs lack what they are about.
    """
    from cpdispatch.experiment.runs import check_dependencies

    found = rules.of_runs() | happens.of_runs() | {"restart_cost_s": restarts.cost_s()}
    _check_restart_options(found, restarts, logs)
    _check_gates(found, logs)
    if found["dependencies"]:
        check_dependencies(logs, "--dependencies")
    return found


def _check_restart_options(
    of_runs: Mapping[str, Any], said: RestartOptions, logs: Sequence[tuple[Workload, System]]
) -> None:
    """Raise where restarts are asked for, and no job may be restarted or another option forbids it.

    ``said`` is what was written on the command line.
    """
    idempotent, costs = of_runs["idempotent"], of_runs["restart_cost_s"] > 0
    if not any(log.table.restartable.any() for log, _ in logs):
        which = "no job may be restarted; say which may, as --restartable all"
        if idempotent and said.restartable is not None:
            raise UsageError(f"--idempotent and --restartable {said.restartable}: {which}")
        if costs and not idempotent:
            raise UsageError(f"--restart-cost {said.restart_cost}: {which}")
        if of_runs["events"] is not None and of_runs["events"].requeue == "restartable":
            raise UsageError(f"--requeue restartable: {which}")
    if not (costs or idempotent):
        return
    option = "--idempotent" if idempotent else "--restart-cost"
    events = of_runs["events"]
    anew = "a job that is killed for a restart runs anew in full; "
    for excluded, given, why in (
        ("--checkpoints", events is not None and events.checkpoints is not None, anew),
        ("--power-cap", of_runs["power_cap"] is not None, ""),
        ("--switch-off", of_runs["switch_off_s"] is not None, ""),
    ):
        if given:
            raise UsageError(
                f"{excluded} and {option} cannot be combined: {why}leave one of them out"
            )


def _check_gates(of_runs: Mapping[str, Any], logs: Sequence[tuple[Workload, System]]) -> None:
    """Raise where jobs wait for more than free nodes, and an option excludes that."""
    from cpdispatch.simulator.checks import gates_of

    for option, given in (
        ("--dependencies", of_runs["dependencies"]),
        ("--idempotent", of_runs["idempotent"]),
        ("--restart-cost", of_runs["restart_cost_s"]),
    ):
        gates = next(filter(None, (gates_of(*log) for log in logs)), "") if given else ""
        if gates:
            raise UsageError(f"{gates}, which exclude {option}: leave it out")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where the results go.

    Parameters
    ----------
    out
        Folder for the results. Several runs have a folder each in it.
    resume
        Continue the interrupted runs in --out.
    overwrite
        Replace the runs in --out.
    checkpoint
        Least time between two checkpoints in --out. Default: 2s, or more if saving takes long.
    dump_instances
        Folder for instances that the dispatcher answers.
    dump_every
        Dump one instance in N. Default: 100.
    """

    out: Path | None = None
    resume: Flag = False
    overwrite: Flag = False
    checkpoint: str | None = None
    dump_instances: Path | None = None
    dump_every: Whole | None = None

    def plan(self, limit_s: float, rules: dict[str, Any]) -> RunPlan:
        """What all runs have in common."""
        from cpdispatch.experiment import RunPlan

        if self.out is None and (self.resume or self.overwrite):
            raise UsageError("--resume and --overwrite need --out")
        if self.resume and self.overwrite:
            raise UsageError(
                "--resume and --overwrite cannot be combined: give --resume to go on with the runs "
                "in --out, or --overwrite to begin them anew"
            )
        if self.checkpoint is not None and self.out is None:
            raise UsageError("--checkpoint needs --out FOLDER, where checkpoints are kept")
        if self.dump_every is not None and self.dump_instances is None:
            raise UsageError("--dump-every needs --dump-instances FOLDER")
        if self.dump_every is not None and self.dump_every < 1:
            raise UsageError(f"--dump-every {self.dump_every}: 1 or more is needed")
        return RunPlan(
            "", 0, limit_s, rules, self.out and self.out.absolute(),
            seconds(self.checkpoint or "2s", "--checkpoint"),
            self.dump_instances and self.dump_instances.absolute(), self.dump_every or 100,
        )  # fmt: skip

    @property
    def kept(self) -> str:
        """What is to be said of the results when the command is interrupted."""
        if self.out is None:
            return NOTHING_SAVED
        return (
            f"what was done is saved in {self.out}: add --resume to the same command to go on "
            "from there"
        )

    def claim(self, plans: Iterable[RunPlan]) -> None:
        """Make the folder of each run ready to be written into."""
        from cpdispatch.simulator.replay import claim

        folders = [plan.folder for plan in plans if plan.folder is not None]
        self.check_depth(folders)
        claim(folders, resume=self.resume, overwrite=self.overwrite)

    def check_depth(self, folders: Sequence[Path]) -> None:
        """Raise where the folder has runs of other levels: `compare` would take both for runs.

        Folders have a level for logs, dispatchers, and seeds or draws of which there are several.
        """
        from cpdispatch.simulator.saved import ABOUT, CHECKPOINT

        if self.out is None or not folders:
            return
        out = self.out.absolute()
        depth = len(folders[0].absolute().parts)
        for name in (ABOUT, CHECKPOINT):
            for found in sorted(out.glob(f"**/{name}")):
                if len(found.parent.parts) != depth:
                    there, planned = (
                        self.out / path.absolute().relative_to(out)
                        for path in (found.parent, folders[0])
                    )
                    raise UsageError(
                        f"there is a run in {there}, and this command would make one in {planned}: "
                        "together they would be taken for one experiment; choose another folder, "
                        f"or remove {there}"
                    )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Where several runs are made.

    Parameters
    ----------
    cores
        Number of runs at a time; 0: one on each core. Runs side by side slow each other down: use
        1 to compare the times of decisions.
    cluster
        Address of a Dask cluster's scheduler (tcp://host:8786), or the file that it wrote.
    """

    cores: Whole = 0
    cluster: str | None = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """Where it is done, and where the results go.

    Parameters
    ----------
    cores
        Number of processes on this machine; 0: one on each core.
    cluster
        Address of a Dask scheduler, or the file that it wrote.
    out
        Folder for tables and pictures, and for the policy file where one is learned. After an
        interruption, the same command goes on there.
    """

    cores: Whole = 0
    cluster: str | None = None
    out: Path | None = None

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Where tasks are done."""
        from cpdispatch.campaign import CampaignError, Workers
        from cpdispatch.extra import needed
        from cpdispatch.files import sweep
        from cpdispatch.learn.place import Place

        if self.out is not None:
            needed("matplotlib", "plot")
            sweep(self.out, "*.csv", "*.json", "*.svg", "*.toml")
        workers = Workers(self.cores, self.cluster)
        folder = None if self.out is None else self.out / "tasks"
        try:
            with stoppable(kept_in(self.out)) as stop, progress_bars() as show:
                yield Place(workers, folder, show, stop)
        except CampaignError as error:
            error.args = (f"{error}; {kept_in(self.out)}",)
            raise

    def save_and_print(
        self,
        found: Tuned | Mixed | Regressed,
        tables: list[Table],
        json: bool,
        verdict: str = "",
        notes: Iterable[str] = (),
    ) -> int:
        """Save what was found, and print it; notes and the verdict after the tables."""
        if self.out is not None:
            from cpdispatch.learn.results import save

            save(found, self.out)
        if json:
            print_json(found.summary | ({} if self.out is None else {"out": str(self.out)}))
            return DONE
        console = console_of_stdout()
        for table in tables:
            console.print(table)
        for note in notes:
            console.print(note, style="dim", soft_wrap=True)
        if verdict:
            print_sentence(console, verdict)
        if self.out is not None:
            console.print("Tables, pictures and policy file:", bold(str(self.out)), soft_wrap=True)
        return DONE


def items_of(text: str) -> list[str]:
    """The parts of a list that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def check_once(option: str, given: Sequence[str], values: Sequence[object] | None = None) -> None:
    """Raise when an option names something twice; ``values`` are what the texts mean."""
    known = given if values is None else values
    for k, value in enumerate(known):
        if value in known[:k]:
            raise UsageError(f"{option} names {given[k]} twice: leave one of them out")


def threshold_s_of(text: str) -> int:
    """A threshold in whole seconds."""
    from cpdispatch.heuristics.policies import NO_THRESHOLD

    if text == "none":
        return NO_THRESHOLD
    return int(seconds(text, "threshold", whole=True))
