"""The command line: parses, calls the package, prints."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter

from cpdispatch import __version__
from cpdispatch.durations import seconds
from cpdispatch.errors import CpdispatchError, InputError, InterruptedRunError, UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from cpdispatch.dispatch import Settings
    from cpdispatch.instance import Instance, Starvation
    from cpdispatch.jobs import Workload
    from cpdispatch.replays import Plan, Told
    from cpdispatch.simulate import Run
    from cpdispatch.solution import Solution
    from cpdispatch.system import System

DONE, FINDINGS, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end a command: Ctrl-C, the wish of a scheduler, a terminal that closes."""

ONCE_S = 1.0
"""Signals that follow the first one within so many seconds are the same wish.

A shell whose terminal closes, and programs such as timeout, send theirs twice.
"""

NOTHING_SAVED = "nothing was saved, because there was no --out"

app = App(
    name="cpdispatch",
    help="On-line job dispatching for HPC clusters: constraint programming, backfilling, replay.",
    version=__version__,
    help_format="plaintext",
)

Json = Annotated[bool, Parameter("--json", negative="")]
Flag = Annotated[bool, Parameter(negative="")]
Trigger = Literal["instant", "event"]
Correction = Literal["minimal", "incremental", "requested", "refresh"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Which log is replayed, on which system.

    Parameters
    ----------
    system
        A number of processors, a named system, or a JSON or TOML file; else what the log says.
    filter
        Which jobs of the log to keep: all that can run, or those that pass the strong filter.
    units
        How a job's processors become units: each by itself, or as many as a node takes.
    jobs
        Only the first so many jobs.
    since
        Only the jobs submitted on this date (UTC) or later.
    until
        Only the jobs submitted before this date.
    """

    system: str | None = None
    filter: Literal["all", "strong"] = "all"
    units: Literal["processors", "per-node", "as-is"] | None = None
    jobs: int | None = None
    since: Annotated[str, Parameter("--from", show_default=False)] = ""
    until: Annotated[str, Parameter("--to", show_default=False)] = ""

    def read(self, trace: str | None, seed: int) -> tuple[Workload, System]:
        """The workload, fitted to the machine, and the machine."""
        from cpdispatch.system import NAMED, System, find
        from cpdispatch.workloads import read
        from cpdispatch.workloads.fit import fit
        from cpdispatch.workloads.generate import eurora_sample
        from cpdispatch.workloads.select import select

        machine = find(self.system) if self.system else None
        if trace is None:
            workload, machine = eurora_sample(seed=seed), machine or NAMED["eurora"]
        else:
            cores = (
                None if machine is None else int(machine.total[max(machine.resource("core"), 0)])
            )
            workload = read(trace, self.filter, cores)
        if machine is None:
            if workload.processors is None:
                raise UsageError(f"{trace} does not say how large its machine is: give --system")
            machine = System.pool(workload.processors)
        return fit(
            select(workload, self.jobs, self.since, self.until), machine, self.units
        ), machine


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By which rules it is replayed.

    Parameters
    ----------
    predict
        Predictor of durations.
    trigger
        Dispatch once an instant, or after each single event.
    correction
        New expected end of a job that outlived its prediction.
    kill_at_limit
        End jobs at their requested time.
    dependencies
        Start no job before its preceding job has ended and its think time has passed.
    starvation
        THRESHOLD,BOUND as 24h,2h: plans start a job that has waited longer than the threshold
        within the bound after that, where it is possible.
    idempotent
        Jobs may be restarted: kill one that outlives what the predictor class took it for.
    limit
        Time limit of each decision, as 500ms or 1s.
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
    limit: str = "1s"
    seed: int = 0

    def of_runs(self) -> dict[str, Any]:
        """The arguments of every run."""
        return {
            "predictor": self.predict, "trigger": self.trigger, "correction": self.correction,
            "kill_at_limit": self.kill_at_limit, "dependencies": self.dependencies,
            "starvation": self.starvation_bound(), "idempotent": self.idempotent,
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
        times = [0.0 if part.strip() == "0" else seconds(part) for part in parts]
        if any(time != int(time) or time > LIMIT for time in times):
            raise UsageError(
                f"--starvation {self.starvation}: whole seconds, {LIMIT} at most, are needed"
            )
        return Starvation(*map(int, times))


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the results go.

    Parameters
    ----------
    out
        Folder for the results; with several runs, a folder each in it.
    resume
        Go on with the interrupted runs in --out.
    overwrite
        Replace the runs in --out.
    checkpoint
        Time between two checkpoints in --out, at least; 2s when it is not said, longer where
        saving takes long.
    dump_instances
        Folder for the instances met on the way.
    dump_every
        Dump one instance in so many; 100 when it is not said.
    """

    out: Path | None = None
    resume: Flag = False
    overwrite: Flag = False
    checkpoint: str | None = None
    dump_instances: Path | None = None
    dump_every: int | None = None

    def plan(self, limit_s: float, rules: dict[str, Any]) -> Plan:
        """What all runs have in common."""
        from cpdispatch.replays import Plan

        if self.out is None and (self.resume or self.overwrite):
            raise UsageError("--resume and --overwrite need --out")
        if self.resume and self.overwrite:
            raise UsageError(
                "--resume and --overwrite exclude each other: give --resume to go on with the runs "
                "in --out, or --overwrite to begin them anew"
            )
        if self.checkpoint is not None and self.out is None:
            raise UsageError("--checkpoint needs --out FOLDER, where checkpoints are kept")
        if self.dump_every is not None and self.dump_instances is None:
            raise UsageError("--dump-every needs --dump-instances FOLDER")
        if self.dump_every is not None and self.dump_every < 1:
            raise UsageError(f"--dump-every {self.dump_every}: 1 or more is needed")
        return Plan(
            "", 0, limit_s, rules, self.out and self.out.absolute(),
            seconds(self.checkpoint or "2s"),
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

    def claim(self, plans: Iterable[Plan]) -> None:
        """Make the folder of each run ready to be written into."""
        from cpdispatch.simulate.replay import claim

        for plan in plans:
            if plan.folder is not None:
                claim(plan.folder, resume=self.resume, overwrite=self.overwrite)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where several runs are made.

    Parameters
    ----------
    cores
        So many runs at a time; 0: one on each core. Side by side they slow each other down: to
        compare decision times, use 1.
    cluster
        Address of a Dask cluster's scheduler (tcp://host:8786), or the file that it wrote.
    """

    cores: int = 0
    cluster: str | None = None


@app.command
def simulate(
    *traces: str,
    dispatcher: Annotated[
        tuple[str, ...], Parameter(("--dispatcher", "-d"), negative="", show_default=False)
    ] = (),
    seeds: int = 1,
    log: Log = Log(),
    rules: Rules = Rules(),
    output: Output = Output(),
    where: Where = Where(),
    json: Json = False,
) -> int:
    """Replay logs through one or more dispatchers and compare them.

    Without TRACES: 5,000 generated jobs on the 64-node CPU/GPU/MIC system, under easy and hcp3.

    Parameters
    ----------
    traces
        Logs: .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    dispatcher
        A name with or without parameters (easy-saf-spf, hcp3:limit=0.5), a TOML file, or
        package.module:attribute; may be given several times: the others are measured against
        the first.
    seeds
        So many runs of each, with the seeds from --seed on.
    json
        Print one JSON object.
    """
    from cpdispatch.campaign import Workers
    from cpdispatch.replays import Campaign

    if seeds < 1:
        raise UsageError(f"--seeds {seeds}: 1 or more is needed")
    workers = Workers(where.cores, where.cluster)
    names = dispatcher or (("easy",) if traces else ("easy", "hcp3"))
    numbers = range(rules.seed, rules.seed + seeds)
    logs = [log.read(trace, rules.seed) for trace in traces]
    campaign = Campaign(logs or [log.read(None, k) for k in numbers], names, numbers, not traces)
    limit_s = seconds(rules.limit)
    plans = campaign.plans(output.plan(limit_s, rules.of_runs()))
    campaign.check(limit_s, rules.predict, rules.idempotent, bool(rules.starvation))
    output.claim(plan for _, plan in plans)
    with _stoppable(output.kept) as stop, _progress() as show:
        advance = show(names[0] if len(plans) == 1 else f"{len(plans)} runs")
        told, failure = campaign.run(plans, workers, lambda done, runs: advance(done / runs), stop)
    if told:
        _print_runs(told, json, {} if failure is None else {"failed": failure.problems})
    if failure is not None:
        raise failure
    return DONE


@app.command
def solve(
    *instances: Path,
    model: Annotated[str, Parameter(("--model", "-m"))] = "hcp3",
    objective: str | None = None,
    limit: str = "1s",
    seed: int = 0,
    out: Path | None = None,
    json: Json = False,
) -> int:
    """Solve dumped instance files; every answer is verified before it is shown or written.

    A file that cannot be read is told of on standard error, and the others are solved.

    Parameters
    ----------
    instances
        Instance files (JSON, plain or packed), or folders of them.
    model
        A dispatcher, as in simulate.
    objective
        Objective of a constraint-programming model.
    limit
        Time limit, as 500ms or 1s.
    seed
        Seed of the search.
    out
        Solution file; with several instances or a folder of them, a folder.
    json
        Print one JSON object.
    """
    from cpdispatch import dispatch, instance, solution

    files = _instance_files(instances)
    targets = _solution_files(files, out, folder=len(files) > 1 or files[0] not in instances)
    if objective is not None:
        model += (",objective=" if ":" in model else ":objective=") + objective
    settings = dispatch.Settings(seconds(limit), seed)
    solved: list[dict[str, Any]] = []
    console, refused = _console(), _Refused()
    kept = NOTHING_SAVED if out is None else f"the solutions so far are in {out}"
    advice = f"{kept}; give the same command again to solve all instances"
    with _stoppable(advice) as stop, _progress() as show:
        advance = show(f"{len(files)} instances")
        for count, (path, target) in enumerate(zip(files, targets, strict=True), start=1):
            if stop():
                raise InterruptedRunError(
                    f"interrupted: {count - 1} of {len(files)} instances are looked at"
                )
            problem = None
            with refused.told(path):
                problem = instance.load(path)
            if problem is None:
                continue
            answer = _solved(problem, path, model, settings)
            if target is not None:
                solution.dump(answer, target)
            solved.append(_solved_row(path, answer))
            if not json:
                console.print(_solved_line(path, answer), soft_wrap=True)
            advance(count / len(files))
    if json:
        _print_json({"solutions": solved, "errors": refused.errors})
    elif problem is not None and len(files) == 1:
        console.print(_solved_table(problem, answer))
    return refused.code(DONE)


def _solved(problem: Instance, path: Path, model: str, settings: Settings) -> Solution:
    """The answer of a model to an instance, verified."""
    from cpdispatch import dispatch, solution, verify

    decision = dispatch.answer_of(dispatch.make(model, settings), problem)
    limit_ms = round(settings.limit_s * 1e3)
    answer = solution.from_decision(problem, decision, limit_ms=limit_ms)
    violations = verify.solution(problem, answer)
    if violations:
        raise CpdispatchError(f"{model} answered {path} wrongly: {violations[0]}")
    return answer


def _instance_files(paths: tuple[Path, ...]) -> list[Path]:
    """The instance files that are named, and those in folders that are."""
    if not paths:
        raise UsageError("solve needs an instance file")
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = [
            file
            for file in sorted(path.rglob("*.json*"))
            if ".solution." not in file.name and file.name != "best_known.json"
        ]
        if not inside:
            raise UsageError(f"{path}: there is no instance file (.json, plain or packed) in it")
        files += inside
    return files


def _solution_files(files: list[Path], out: Path | None, *, folder: bool) -> list[Path | None]:
    """Where each solution goes."""
    if out is None:
        return [None] * len(files)
    if not folder:
        return [out]
    names = [file.name.split(".json")[0] + ".solution.json" for file in files]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--out {out}: two instances would have the solution file {name}")
    return [out / name for name in names]


def _solved_row(path: Path, answer: Solution) -> dict[str, Any]:
    import msgspec

    from cpdispatch.solution import to_json

    return {"file": str(path), **msgspec.json.decode(to_json(answer))}


def _solved_line(path: Path, answer: Solution) -> str:
    value = "" if answer.value is None else f", {answer.objective} {answer.value:,.3f}"
    bound = "" if answer.bound is None else f" (bound {answer.bound:,.3f})"
    return f"{path}: {answer.model}, {answer.status}{value}{bound}, {answer.wall_ms:.1f} ms"


def _solved_table(problem: Instance, answer: Solution) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("job", "start", "nodes"):
        table.add_column(heading, justify="left" if heading == "nodes" else "right")
    order = sorted(answer.jobs, key=lambda job: (job.start is None, job.start or 0, job.id))
    for job in order:
        if job.start is None:
            table.add_row(str(job.id), "-", job.reason)
            continue
        start = "now" if job.start == problem.now else f"+{job.start - problem.now} s"
        nodes = [str(n) if u == 1 else f"{n} x {u}" for n, u in (job.nodes or {}).items()]
        table.add_row(str(job.id), start, ", ".join(nodes) or "(planned)")
    return table


@app.command
def verify(
    instance: Path | None = None,
    solution: Path | None = None,
    *,
    run: Path | None = None,
    json: Json = False,
) -> int:
    """Check a solution against its instance, or a whole simulated schedule against its system.

    Of several runs, one that cannot be read is told of on standard error, and the others checked.

    Parameters
    ----------
    instance
        Instance file.
    solution
        Solution file.
    run
        Folder of a run, or of several.
    json
        Print one JSON object.
    """
    from cpdispatch import instance as instances
    from cpdispatch import solution as solutions
    from cpdispatch import verify as checker

    refused = _Refused()
    if run is not None:
        if instance is not None:
            raise UsageError("verify takes either INSTANCE SOLUTION or --run DIR")
        found = {}
        for folder, r in _load_runs([run], refused):
            with refused.told(folder):
                found[str(folder)] = checker.run(
                    r.jobs,
                    r.system,
                    dependencies=r.about.get("dependencies", False),
                    idempotent=r.about.get("idempotent", False),
                )
    elif instance is None or solution is None:
        raise UsageError("verify needs INSTANCE SOLUTION or --run DIR")
    else:
        problem, answer = instances.load(instance), solutions.load(solution)
        found = {str(solution): checker.solution(problem, answer)}
    if json:
        checked = {name: [str(v) for v in violations] for name, violations in found.items()}
        feasible = not any(checked.values()) and not refused.errors
        _print_json({"feasible": feasible, "violations": checked, "errors": refused.errors})
    else:
        for name, violations in found.items():
            for violation in violations:
                print(violation)
            print(f"{name}: {'NOT feasible' if violations else 'feasible'}")
    return refused.code(FINDINGS if any(found.values()) else DONE)


@app.command
def compare(*runs: Path, json: Json = False) -> int:
    """Compare runs that were saved with simulate --out.

    A run that cannot be read is told of on standard error, and the others are compared.

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold several, which come in the order in which simulate
        was given their dispatchers. The first run is what the others are measured against.
    json
        Print one JSON object.
    """
    if not runs:
        raise UsageError("compare needs the folder of a run")
    from cpdispatch.replays import Told

    refused = _Refused()
    told = [Told.of(run) for _, run in _load_runs(list(runs), refused)]
    _print_runs(told, json, {"errors": refused.errors})
    return refused.code(DONE)


@app.command(name="list")
def list_(
    what: Literal["dispatchers", "models", "policies", "predictors", "systems"] = "dispatchers",
    *,
    explain: Path | None = None,
    record: Path | None = None,
    json: Json = False,
) -> int:
    """List what can be named on the command line.

    Parameters
    ----------
    what
        What to list.
    explain
        With models: an instance, for which to say what hyper would choose, and why.
    record
        What hyper has learned, if not what the package ships with.
    json
        Print one JSON object.
    """
    from cpdispatch.catalogue import catalogue

    if explain is not None or record is not None:
        if what != "models" or explain is None:
            raise UsageError("--explain INSTANCE (and --record FILE) goes with: list models")
        return _explain(explain, record, json)
    entries = catalogue(what)
    if json:
        _print_json({what: entries})
        return DONE
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for name, text in entries.items():
        table.add_row(f"[bold]{name}[/]", text)
    _console().print(table)
    return DONE


def _explain(path: Path, record: Path | None, json: bool) -> int:
    """Say what hyper would choose for an instance."""
    from cpdispatch.instance import load
    from cpdispatch.models.hyper import Hyper, Record

    hyper = Hyper() if record is None else Hyper(record=Record.load(record))
    told = hyper.explain(load(path))
    if json:
        _print_json(told)
        return DONE
    from rich.table import Table

    console = _console()
    features = ", ".join(f"{name} {value:.4g}" for name, value in told["features"].items())
    console.print(f"[bold]{path.name}[/]: {features}")
    console.print(f"Of the kind [bold]{told['kind']}[/], so far:")
    table = Table(box=None, pad_edge=False)
    for column in ("choice", "tries", "mean reward", "score"):
        table.add_column(column, justify="left" if column == "choice" else "right")
    for name, known in sorted(told["choices"].items(), key=lambda item: -item[1]["score"]):
        mark = "[bold]" if name == told["choice"] else ""
        mean = f"{known['reward']:.4f}" if known["tries"] else "-"
        score = f"{known['score']:.4f}" if known["tries"] else "not tried"
        table.add_row(mark + name, f"{known['tries']:g}", mean, score)
    console.print(table)
    console.print(
        f"Choice: [bold]{told['choice']}[/], a model and its share of the time limit. The reward "
        "is the share of\nthe wait that it saved after the first plan, less a price for its time."
    )
    return DONE


# Imported when they are called.
app.command(
    "cpdispatch.commands.workloads:generate",
    help="Make a workload like a log's, or one of the Lublin-Feitelson model.",
)
app.command(
    "cpdispatch.commands.workloads:resample",
    help="Make a workload of random weeks of a log's users.",
)
app.command(
    "cpdispatch.commands.learn:tune",
    help="Find the best two orders and threshold of EASY on one half of a log.",
)
app.command(
    "cpdispatch.commands.learn:app",
    name="learn",
    help="Learn a policy: mixed weights, or a regression.",
)
app.command(
    "cpdispatch.commands.predict:predict",
    help="Compare predictors: how far each is out, and the schedule that it leads to.",
)


# --------------------------------------------------------------------------------- helpers


class _Refused:
    """The files of several that cannot be read: each is told of on standard error at once."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []

    @contextmanager
    def told(self, path: Path) -> Iterator[None]:
        """Read a file in this block, which ends where the file is refused."""
        try:
            yield
        except InputError as error:
            print(f"cpdispatch: {error}", file=sys.stderr)
            self.errors.append({"file": str(path), "error": str(error)})

    def code(self, otherwise: int) -> int:
        """The exit code: that of bad input when there was any."""
        return BAD_INPUT if self.errors else otherwise


def _load_runs(folders: list[Path], refused: _Refused) -> Iterator[tuple[Path, Run]]:
    """The runs of the folders, each once; those inside one in the order that `place` says."""
    from cpdispatch.simulate.run import ABOUT, Run, about_of

    def place(path: Path) -> tuple[float, bool, Path]:
        # Simulate gives each run its place; an earlier version did not, and Run.save does not.
        try:
            about = about_of(path)
        except InputError:  # what is wrong with it is told when it is read
            about = {}
        return about.get("place", float("inf")), about.get("dispatcher") != "easy", path

    seen: set[Path] = set()
    for folder in folders:
        inner = [path.parent for path in folder.glob(f"**/{ABOUT}")]
        alone = (folder / ABOUT).exists() or not inner
        for path in [folder] if alone else sorted(inner, key=place):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            run = None
            with refused.told(path):
                run = Run.load(path)
            if run is not None:
                yield path, run


def _print_runs(told: Sequence[Told], json: bool, beside: Mapping[str, Any] | None = None) -> None:
    """Print the runs that are done; with --json, what is to be told beside them, too."""
    from rich.text import Text

    from cpdispatch import replays
    from cpdispatch.analyze import compare

    if json:
        _print_json(replays.report_of(told) | dict(beside or {}))
        return
    console = _console()
    for title, rows in replays.tables(told):
        if title:
            console.print(f"[bold]{title}[/]\n")
        for number, table in enumerate(compare.tables(rows, console.width)):
            if number:
                console.print()
            console.print(table)
        sentence = compare.verdict(rows)
        warnings = compare.warnings(rows)
        if sentence or warnings:
            console.print()
        if sentence:
            console.print(sentence)
        for warning in warnings:
            console.print(Text(warning["text"], style="yellow"), soft_wrap=True)
        for line in compare.legend(rows):
            console.print(line, style="dim")
        for seeds in sorted({row["seeds"] for row in rows if row.get("seeds", 1) > 1}):
            console.print(f"Each figure is the mean of {seeds} runs, one a seed.", style="dim")
        for line in compare.notes(rows):
            console.print(line, style="dim")
        if title:
            console.print()


def _print_json(data: dict[str, Any]) -> None:
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


@contextmanager
def _progress() -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Bars on standard error, one a dispatcher; nothing when that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True,
    ) as bars:  # fmt: skip

        def show(name: str) -> Callable[[float], None]:
            task = bars.add_task(name, total=1.0)
            return lambda share: bars.update(task, completed=share)

        try:
            yield show
        finally:
            _leave_lost_terminal()


class _SignalledError(BaseException):
    """A signal ends the command.

    Parameters
    ----------
    number : int
        Of the signal.
    said : str
        What is to be said of it.
    """

    def __init__(self, number: int, said: str = "interrupted") -> None:
        super().__init__(said)
        self.code = 128 + number


@contextmanager
def _on_signals(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Have the signals that end a command handled so; only Python's main thread can.

    A hang-up that is ignored, as under nohup, stays so.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in STOPPING:
            ignored = signal.getsignal(number) in (signal.SIG_IGN, None)
            if number == signal.SIGINT or not ignored:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _stoppable(kept: str) -> Iterator[Callable[[], bool]]:
    """Turn a first signal into a wish to stop; a later one ends the command at once.

    Parameters
    ----------
    kept : str
        Where the results are when the command has stopped, and how it goes on.
    """
    wished: list[tuple[int, float]] = []

    def wish(number: int, frame: object) -> None:
        if not wished:
            wished.append((number, monotonic()))
        elif monotonic() - wished[0][1] >= ONCE_S:
            raise _SignalledError(number)

    with _on_signals(wish):
        try:
            yield lambda: bool(wished)
        except InterruptedRunError as error:
            number = wished[0][0] if wished else signal.SIGINT
            raise _SignalledError(number, f"{error}; {kept}") from error


def _end(number: int, frame: object) -> NoReturn:
    raise _SignalledError(number)


def _leave_lost_terminal() -> None:
    """Have nothing written any more to a terminal that is gone, which would be an error."""
    for output in (1, 2):
        try:
            os.write(output, b"")
        except OSError as error:
            if error.errno == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, output)
                os.close(nowhere)


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    code = DONE
    try:
        with _on_signals(_end):
            code = app(
                arguments, exit_on_error=False, print_error=False, result_action="return_value"
            )
    except (CpdispatchError, CycloptsError) as error:
        code = INTERRUPTED if isinstance(error, InterruptedRunError) else BAD_INPUT
        _complain(error)
    except _SignalledError as error:
        code = error.code
        _complain(error)
    except BrokenPipeError:
        sys.stderr.close()
    return code or DONE


def _complain(error: BaseException) -> None:
    _leave_lost_terminal()
    print(f"cpdispatch: {error}", file=sys.stderr, flush=True)


def main() -> NoReturn:
    """Entry point of the command ``cpdispatch``."""
    # Arrow's own allocator keeps some 60 MB of what writing a run took.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    code = run()
    _leave_lost_terminal()
    sys.exit(code)


if __name__ == "__main__":
    main()
