"""The commands slurm watch, explain, drive, record and plugin: a live Slurm."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from cpdispatch.cli.options import Flag, Json, Seed, Whole
from cpdispatch.cli.output import (
    DONE,
    FINDINGS,
    command_line,
    console_of_stdout,
    print_json,
    print_sentence,
    status,
    table_of,
)
from cpdispatch.cli.signals import stoppable
from cpdispatch.durations import seconds, whole_seconds
from cpdispatch.errors import CpdispatchError, UsageError
from cpdispatch.words import clock, counted, listed

if TYPE_CHECKING:
    from cpdispatch.adapters.slurm.drive import Driver
    from cpdispatch.adapters.slurm.durations import Durations
    from cpdispatch.adapters.slurm.gain import Gain
    from cpdispatch.adapters.slurm.metrics import Metrics
    from cpdispatch.adapters.slurm.rules import Rules
    from cpdispatch.adapters.slurm.watch import View
    from cpdispatch.dispatch import Dispatcher

SOCKET = Path("/run/slurmrestd.socket")
EVERY_MOST_S = 120
USER_MOST = 2**32 - 2
"""The largest number of a user."""
_STEP_S = 0.1

app = App(name="slurm", help="Watch a live Slurm, or let a dispatcher drive it.")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """How Slurm is reached, which jobs are in the queue, and who decides.

    Parameters
    ----------
    socket
        The unix socket of slurmrestd.
    timeout
        Longest time that Slurm may take for an answer, for example 30s.
    dispatcher
        A dispatcher, as in simulate.
    limit
        Time limit of each decision, for example 500ms or 1s.
    seed
        Seed of dispatchers that draw numbers.
    hold_by
        Who holds new jobs. plugin: the job_submit.lua that slurm plugin prints; submitters: users,
        with `sbatch --hold`.
    only_partition
        Only jobs of this partition. Default: of all.
    ignore_memory
        Ignore memory. For a Slurm whose SelectTypeParameters does not name memory.
    whole_cores
        Round the CPUs of jobs up to whole cores. For a Slurm whose SelectTypeParameters names
        CR_Core, on nodes with several threads a core.
    """

    socket: Path = SOCKET
    timeout: str = "30s"
    dispatcher: Annotated[str, Parameter(("--dispatcher", "-d"))] = "easy"
    limit: str = "1s"
    seed: Seed = 0
    hold_by: Literal["plugin", "submitters"] = "plugin"
    only_partition: Annotated[str, Parameter(show_default=False)] = ""
    ignore_memory: Flag = False
    whole_cores: Flag = False

    def client(self) -> Any:
        """What talks to Slurm."""
        from cpdispatch.adapters.slurm.client import Client

        return Client(self.socket, seconds(self.timeout, "--timeout"))

    def made(self) -> Dispatcher:
        """The dispatcher, ready to decide."""
        from cpdispatch import dispatch

        return dispatch.make(
            self.dispatcher,
            dispatch.Settings(seconds(self.limit, "--limit"), self.seed),
            warm=dispatch.but_stopped,
        )

    def rules(
        self, patience_s: int = 30, *, dry: bool = False, dispatcher: Dispatcher | None = None
    ) -> Rules:
        """How the cluster is driven; with test runs if the dispatcher was given a length of one."""
        from cpdispatch.adapters.slurm.rules import Rules

        tests = bool(getattr(dispatcher, "test_s", 0))
        return Rules(
            self.hold_by, self.only_partition, patience_s, not self.ignore_memory, dry, tests,
            self.whole_cores,
        )  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOptions:
    """How often Slurm is looked at, and how long its jobs are expected to last.

    Parameters
    ----------
    every
        Time from the beginning of a cycle to that of the next, for example 10s.
    cycles
        End after N cycles.
    predict
        A predictor of durations, as in simulate. Default: the requested times.
    history
        Files with the output of `sacct -P` or `sacct --json`, from which the predictor learns. The
        word sacct calls the command sacct.
    zone
        Time zone of the times in these files, for example Europe/Berlin. Default: UTC.
    """

    every: str = "10s"
    cycles: Whole | None = None
    predict: Annotated[str, Parameter(show_default=False)] = ""
    history: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None
    zone: str | None = None

    def every_s(self) -> float:
        """Seconds between the beginnings of two cycles."""
        found = seconds(self.every, "--every")
        if not 0 < found <= EVERY_MOST_S:
            raise UsageError(f"--every {self.every}: at most {EVERY_MOST_S}s, and more than 0s")
        if self.cycles is not None and self.cycles < 1:
            raise UsageError(f"--cycles {self.cycles}: a number of cycles, 1 or more, is needed")
        return found

    def durations(self, seed: int, folder: Path) -> Durations | None:
        """What predicts durations, if it was asked for; it keeps what it has seen in a folder."""
        from cpdispatch.adapters.slurm import accounting, durations

        if self.zone is not None and not self.history:
            raise UsageError(
                f"--zone {self.zone} is that of --history: name files, or leave it out"
            )
        if self.predict:
            records = accounting.history(self.history or (), self.zone or "UTC").records
            return durations.Durations(self.predict, seed, folder, records)
        if self.history:
            raise UsageError("--history needs --predict: name a predictor")
        return None

    def gain(self, options: SlurmOptions, folder: Path, durations: Durations | None) -> Gain:
        """A shadow simulation, with a dispatcher of its own; its state is kept in a folder."""
        from cpdispatch.adapters.slurm.gain import Gain

        made_with = options.dispatcher + (f" with {self.predict}" if self.predict else "")
        return Gain(
            options.made(), options.rules(), folder, max(round(self.every_s()), 1), made_with,
            None if durations is None else durations.of,
        )  # fmt: skip


@app.command
def watch(
    *,
    options: SlurmOptions = SlurmOptions(),
    cycles: CycleOptions = CycleOptions(),
    state: Path | None = None,
    gain: Flag = False,
    save_instances: Path | None = None,
    top: Whole = 20,
    json: Json = False,
) -> int:
    """Show what a dispatcher would start now, and why the other jobs wait. Changes nothing.

    Parameters
    ----------
    state
        Folder for the data of --predict and --gain. Use one for each cluster, not a driver's.
        Default: cpdispatch-slurm-watch in XDG_STATE_HOME or ~/.local/state.
    gain
        Simulate beside Slurm what the dispatcher would have led to so far, and compare the waits.
    save_instances
        Write the instance of each cycle to this folder.
    top
        Number of jobs that are shown in each cycle.
    json
        Print one JSON object a cycle.
    """
    from cpdispatch import instance
    from cpdispatch.adapters.slurm import guard
    from cpdispatch.adapters.slurm.watch import watch as look

    if top < 0:
        raise UsageError(f"--top {top}: a number of jobs, 0 or more, is needed")
    every_s, client, dispatcher = cycles.every_s(), options.client(), options.made()
    rules = options.rules(dispatcher=dispatcher)
    if state is not None and not (cycles.predict or gain):
        raise UsageError(f"--state {state} keeps the data of --predict and --gain: add one of them")
    folder = _state(state, "cpdispatch-slurm-watch")
    durations = cycles.durations(options.seed, folder)
    shadow = cycles.gain(options, folder, durations) if gain else None

    def cycle(stop: Callable[[], bool]) -> None:
        view = look(client, dispatcher, rules, durations, shadow, every_s / 2)
        if save_instances is not None:
            instance.dump(view.instance, save_instances / f"{view.now_s}.json")
        row = _view_row(view) | _durations_row(durations) | _gain_row(shadow)
        if json:
            print_json(row)
        else:
            _show(view, top)
            _show_durations(row.get("durations"))
            _show_gain(row.get("gain"))

    keeps = durations is not None or shadow is not None
    with ExitStack() as stack:
        if keeps:
            stack.enter_context(guard.locked(folder, driver=False))
        stop = stack.enter_context(stoppable("nothing was changed"))
        code = _repeat(cycle, every_s, cycles.cycles, stop, patient=False)
        for each in (durations, shadow):
            if each is not None:
                each.save()
        return code


@app.command
def explain(*, job: str, options: SlurmOptions = SlurmOptions(), json: Json = False) -> int:
    """Say why a job waits, and which jobs are on its nodes. Changes nothing.

    Parameters
    ----------
    job
        The number of the job, or of a task of an array, for example 12_3.
    json
        Print one JSON object.
    """
    from cpdispatch.adapters.slurm.explain import explain as say

    told = say(options.client(), options.made(), options.rules(), job)
    if json:
        print_json({"job": job, "why": list(told)})
    else:
        print(*told, sep="\n")
    return DONE


@app.command
def drive(
    *,
    state: Path | None = None,
    options: SlurmOptions = SlurmOptions(),
    cycles: CycleOptions = CycleOptions(),
    patience: str = "30s",
    dry_run: Flag = False,
    stop: Flag = False,
    log: Path | None = None,
    metrics: Path | None = None,
    json: Json = False,
) -> int:
    """Let a dispatcher decide: release each held job to the nodes that it is given.

    The driver ends with SIGTERM, SIGINT (Ctrl-C), or --stop. Then it hands every waiting job back
    to Slurm's own scheduler.

    Parameters
    ----------
    state
        Folder of the journal and the lock. Use one for each cluster. job_submit.lua reads it.
        Default: cpdispatch-slurm in XDG_STATE_HOME or ~/.local/state.
    patience
        A released job that does not start within this time is held again.
    dry_run
        Say which of all waiting jobs would be released, and release none.
    stop
        End the driver that runs, and hand back the jobs that a killed driver has left held.
    log
        Add a line of JSON for each cycle to this file.
    metrics
        Write metrics for Prometheus to this file after each cycle.
    json
        Print one JSON object a cycle.
    """
    from cpdispatch.adapters.slurm import guard
    from cpdispatch.adapters.slurm.client import DeniedError
    from cpdispatch.adapters.slurm.drive import Driver
    from cpdispatch.adapters.slurm.metrics import Metrics

    folder = _state(state)
    every_s = cycles.every_s()
    if stop:
        if dry_run:
            raise UsageError("--stop changes jobs, and --dry-run changes none: leave one out")
        return _stop_driver(options, folder, json)
    dispatcher, durations = options.made(), cycles.durations(options.seed, folder)
    rules = options.rules(whole_seconds(patience, "--patience"), dry=dry_run, dispatcher=dispatcher)
    if rules.tests and not dry_run and shutil.which("scontrol") is None:
        raise UsageError(
            f"-d {options.dispatcher}: test runs need scontrol, which is not installed: "
            "install it, or leave out test="
        )
    with guard.locked(folder), stoppable("") as wished:
        write = _lines(log)
        driver = Driver(options.client(), dispatcher, folder, rules, durations)
        counted = None if metrics is None else Metrics(metrics)
        driven = False

        def cycle(stop: Callable[[], bool]) -> None:
            nonlocal driven
            row = _cycle(driver, stop, write, counted, durations)
            driven = True
            if json:
                print_json(row)
            else:
                _tell(row, dry_run)

        try:
            code = _repeat(cycle, every_s, cycles.cycles, wished)
        except DeniedError:
            raise
        except (CpdispatchError, OSError) as error:
            # An option that is wrong is told before anything is driven by it.
            driven |= driver.done is not None or not isinstance(error, UsageError)
            if driven and not dry_run:
                _hand_back(driver, json)
            raise
        if not dry_run:
            _hand_back(driver, json)
        if durations is not None:
            durations.save()
        return code


def _cycle(
    driver: Driver,
    stop: Callable[[], bool],
    write: Callable[[dict[str, Any]], None],
    counted: Metrics | None,
    durations: Durations | None,
) -> dict[str, Any]:
    """What a cycle did; one that fails is written and counted with what it did before."""
    begin = time.monotonic()
    try:
        done = driver.cycle(stop)
    except CpdispatchError as error:
        write(({} if driver.done is None else asdict(driver.done)) | {"failed": str(error)})
        if counted is not None:
            counted.cycle(driver.done, time.monotonic() - begin, failed=True)
        raise
    took_s = time.monotonic() - begin
    row = asdict(done) | _durations_row(durations)
    write(row)
    if counted is not None:
        counted.cycle(done, took_s)
    for text in driver.waits.told:
        _complain(text)
    driver.waits.told = ()
    return row


@app.command
def record(
    *,
    out: Path,
    history: Annotated[
        tuple[str, ...], Parameter(negative="", consume_multiple=True, show_default=False)
    ] = ("sacct",),
    system: Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)] = (),
    log: Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)] = (),
    days: Whole | None = None,
    zone: str = "UTC",
    format: Literal["csv", "parquet"] = "csv",
    overwrite: Flag = False,
    json: Json = False,
) -> int:
    """Save what Slurm did as a run: for report, compare, explain, status and verify.

    The folder gets the jobs as a workload and the nodes as a system, too: simulate shows what
    another dispatcher would have done with them.

    Parameters
    ----------
    out
        Folder for the run, its workload and its system.
    history
        Files with the output of `sacct -P` or `sacct --json`. The word sacct, which is the default,
        calls the command sacct.
    system
        A file with the output of `scontrol show node`, `scontrol show partition` or `sinfo --json`;
        may be given several times. Default: what scontrol shows now.
    log
        A file that `slurm drive --log` wrote; may be given several times. Without it, all jobs
        count as started by Slurm itself.
    days
        Call sacct for the last N days. Default: 30.
    zone
        Time zone of the times in the files of --history, for example Europe/Berlin.
    format
        Format of the tables.
    overwrite
        Replace a run in the folder.
    json
        Print one JSON object.
    """
    from cpdispatch.adapters.slurm import accounting
    from cpdispatch.adapters.slurm import log as logs
    from cpdispatch.adapters.slurm.record import LEFT_OUT, recorded, run_of
    from cpdispatch.cli.importing import print_import
    from cpdispatch.simulator.replay import finished, forget
    from cpdispatch.workloads import imported

    if days is not None and (days < 1 or accounting.SACCT not in history):
        raise UsageError(f"--days {days}: a number of days, 1 or more, for --history sacct")
    imported.claim(out, overwrite=overwrite)
    with status("reading"):
        decisions = logs.read(log)
        records = accounting.history(
            history, zone, accounting.EVERYTHING, accounting.DAYS if days is None else days
        )
        found = recorded(
            records, accounting.cluster(system), history[0],
            str(system[0]) if system else accounting.SCONTROL, decisions,
        )  # fmt: skip
    with status(f"writing {out}"):
        forget(out)
        files = imported.write(found, out, format)
        run = run_of(out, files, found, decisions)
        finished(run, out)
    if json:
        print_json({
            "out": str(out), **found.summary(), "notes": run.about["notes"], "files": files,
            "dispatcher": run.about["dispatcher"], "metrics": run.metrics,
        })  # fmt: skip
        return DONE
    notes = run.about["notes"].items()
    console = print_import(found, {what: n for what, n in notes if not what.startswith(LEFT_OUT)})
    for line in _next_commands(out, files, run.about["dispatcher"]):
        console.print(line, soft_wrap=True)
    return DONE


def _next_commands(out: Path, files: Mapping[str, str], decided_by: str) -> Iterator[str]:
    """Who decided in a recorded run, and what can be done with it, line by line."""
    simulated = out.with_name(f"{out.name}-simulated")
    log = (out / files["workload"], "--system", out / files["system"])
    yield f"decided by: {decided_by}"
    yield f"next: {command_line('verify', '--run', out)}"
    yield f"      {command_line('simulate', *log, '-d', 'easy', '-d', 'best', '--out', simulated)}"
    yield f"      {command_line('report', out, simulated)}"


@app.command
def plugin(*, state: Path | None = None, user: Whole | None = None) -> int:
    """Print the job_submit.lua that holds new jobs while a driver runs.

    Parameters
    ----------
    state
        Folder of the driver, as in drive.
    user
        Number of the user as whom the driver reaches Slurm. Default: your own.
    """
    from cpdispatch.adapters.slurm import guard

    if user is not None and not 0 <= user <= USER_MOST:
        raise UsageError(f"--user {user}: a number of a user, from 0 to {USER_MOST}, is needed")
    print(guard.plugin(_state(state), os.getuid() if user is None else user), end="")
    return DONE


def _state(given: Path | None, name: str = "cpdispatch-slurm") -> Path:
    if given is not None:
        return given
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / name


def _durations_row(durations: Durations | None) -> dict[str, Any]:
    """How good a predictor has been, what is to be told of its file once, and its faults."""
    if durations is None:
        return {}
    for text in durations.told:
        _complain(text)
    durations.told = ()
    found: dict[str, Any] = {"predictor": durations.name, **durations.quality.as_dict()}
    return {"durations": found | {"faults": dict(durations.faults)}}


def _gain_row(gain: Gain | None) -> dict[str, Any]:
    """What a dispatcher would have gained; what is to be told of the file once."""
    if gain is None:
        return {}
    for text in gain.told:
        _complain(text)
    gain.told = ()
    return {"gain": gain.as_dict()}


def _show_gain(row: dict[str, Any] | None) -> None:
    from cpdispatch.adapters.slurm.gain import FEW
    from cpdispatch.analyze.compare import GROWTH, GROWTH_S, LENGTHS

    if row is None:
        return
    name, jobs = row["dispatcher"], row["jobs"]
    since = f"{row['jobs_open']:,} have not ended in both yet"
    if row["jobs_as_slurm"]:
        since += f", {row['jobs_as_slurm']:,} more are as under Slurm"
    if not jobs:
        print(f"gain of {name}: no job has ended yet, under Slurm and in the simulation; {since}")
        return
    wait_s, shadow_s = row["wait_s_mean"], row["shadow_wait_s_mean"]
    print(
        f"gain of {name} since {clock(row['since_s'])}, simulated until "
        f"{clock(row['simulated_until_s'])}: of {counted(jobs, 'job')} that ended in both, mean "
        f"wait {wait_s:,.0f} s under Slurm, {shadow_s:,.0f} s under {name}; mean bounded slowdown "
        f"{row['slowdown_mean']:,.2f} and {row['shadow_slowdown_mean']:,.2f}; {since}"
    )
    classes = ", ".join(
        f"{of['jobs']:,} {length} {LENGTHS[length]} {of['wait_s_mean']:,.0f} s and "
        f"{of['shadow_wait_s_mean']:,.0f} s"
        for length, of in row["by_length"].items()
    )
    print(
        f"longest wait so far {row['wait_s_max']:,} s under Slurm, {row['shadow_wait_s_max']:,} s "
        f"under {name}; mean wait by length: {classes}"
    )
    if jobs < FEW:
        print(f"{counted(jobs, 'job')} {'is' if jobs == 1 else 'are'} too few to tell.", flush=True)
    elif round(wait_s) == round(shadow_s):
        print(f"With {name} these jobs would have waited as long.", flush=True)
    elif not wait_s:
        print(f"With {name} these jobs would have waited longer.", flush=True)
    else:
        share, word = abs(1 - shadow_s / wait_s), "less" if shadow_s < wait_s else "more"
        print(
            f"With {name} these jobs would have waited {share:.1%} {word}: once, so that this may "
            "be chance. A record, replayed with simulate --shake, tells what is not.",
            flush=True,
        )
    longest_s, shadow_longest_s = row["wait_s_max"], row["shadow_wait_s_max"]
    more_s = shadow_longest_s - longest_s
    if jobs >= FEW and longest_s and more_s >= GROWTH_S and shadow_longest_s > GROWTH * longest_s:
        longer = more_s / longest_s
        print(f"But the longest wait would have been {longer:.0%} longer.", flush=True)


def _show_durations(row: dict[str, Any] | None) -> None:
    if row is None:
        return
    if not row["jobs"]:
        print(f"durations by {row['predictor']}: no job has ended yet", flush=True)
        return
    print(
        f"durations by {row['predictor']}: {counted(row['jobs'], 'job')} ended; mean absolute "
        f"error {row['error_s_mean']:,.0f} s, {row['under_share']:.1%} of the jobs ran longer; "
        f"requested times: {row['requested_error_s_mean']:,.0f} s, "
        f"{row['requested_under_share']:.1%}",
        flush=True,
    )
    for fault, calls in row["faults"].items():
        print(f"{fault}: {calls:,} times", flush=True)


def _repeat(
    cycle: Callable[[Callable[[], bool]], None],
    every_s: float,
    cycles: int | None,
    stop: Callable[[], bool],
    patient: bool = True,
) -> int:
    """Cycle until enough were made or the user wishes to stop; a cycle that fails is told of.

    An error of the first cycle ends it all unless it is ``patient``: then Slurm may come up later.
    A user without rights ends it in any case, and so does a wrong argument that the first cycle
    finds.
    """
    from cpdispatch.adapters.slurm.client import DeniedError

    done, failed = 0, 0
    while not stop() and (cycles is None or done < cycles):
        begin = time.monotonic()
        try:
            cycle(stop)
            failed = 0
        except CpdispatchError as error:
            if not (done or patient) or isinstance(error, DeniedError):
                raise
            if not done and isinstance(error, UsageError):
                raise
            failed += 1
            _complain(f"cycle {done + 1}: {error}")
        done += 1
        while not stop() and time.monotonic() - begin < every_s and done != cycles:
            time.sleep(_STEP_S)
    return FINDINGS if failed else DONE


def _stop_driver(options: SlurmOptions, folder: Path, json: bool) -> int:
    """Ask the driver of a folder to end, and hand back the jobs that a killed one has left held."""
    from cpdispatch import dispatch
    from cpdispatch.adapters.slurm import guard
    from cpdispatch.adapters.slurm.drive import Driver

    if not (folder / guard.LOCK).exists():
        raise UsageError(
            f"--state {folder}: no driver has used this folder; name the one that drive was given, "
            "or, if that is lost, drive for one cycle (--cycles 1)"
        )
    ended = guard.ask_to_stop(folder, _complain)
    with guard.locked(folder):
        unasked = dispatch.make("easy", warm=dispatch.not_at_all)
        driver = Driver(options.client(), unasked, folder, options.rules())
        _told(driver.hand_back(), json, ended, by_driver=False)
    return DONE


def _hand_back(driver: Driver, json: bool) -> None:
    try:
        handed = driver.hand_back()
    except CpdispatchError as error:
        raise CpdispatchError(
            f"not all jobs are handed back: {error}; when Slurm answers again, "
            "cpdispatch slurm drive --stop hands back the rest"
        ) from error
    _told(handed, json, True)


def _told(handed: list[str], json: bool, ended: bool, *, by_driver: bool = True) -> None:
    if json:
        print_json({"handed_back": handed, "ended": ended})
        return
    what = "the driver has ended" if ended else "no driver was running"
    more = "" if by_driver or not ended else " and handed back its jobs itself"
    count = counted(len(handed), "more job" if more else "job")
    print(f"{what}{more}; {count} handed back to Slurm", flush=True)


def _lines(path: Path | None) -> Callable[[dict[str, Any]], None]:
    """What adds lines of JSON to a file; one that cannot be written is told of at once."""
    if path is None:
        return lambda row: None
    import msgspec

    def add(line: bytes) -> None:
        try:
            with path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise UsageError(f"--log {path}: cannot be written: {error.strerror}") from error

    add(b"")
    return lambda row: add(msgspec.json.encode(row) + b"\n")


def _complain(text: str) -> None:
    import sys

    print(f"cpdispatch: {text}", file=sys.stderr, flush=True)


def _tell(row: dict[str, Any], dry: bool) -> None:
    """Say what a cycle did in a line, and in one more for each job that something happened to."""
    verb = "would be released" if dry else "released"
    print(
        f"{clock(row['now_s'])}  {row['running']} run, {row['waiting']} wait, "
        f"{len(row['released'])} {verb}, {len(row['started'])} seen to start",
        flush=True,
    )
    for job, nodes in row["released"].items():
        test_s = row["tests"].get(job)
        test = f" for a test run of {test_s} s" if test_s else ""
        print(f"  {job}: {verb} to {','.join(nodes)}{test}")
    for job, nodes in row["elsewhere"].items():
        print(f"  {job}: runs on {','.join(row['started'][job])}, not on {','.join(nodes)}")
    for job in row["retracted"]:
        why = "did not start" if job in row["in_vain"] else "queued again, or released by others"
        print(f"  {job}: {why}, held again")
    for job in row["stopped"]:
        print(f"  {job}: its test run is over, queued again")
    for job in row["went_on"]:
        print(f"  {job}: its test run is over, goes on")
    for job, why in row["left"].items():
        print(f"  {job}: left to Slurm: {why}")
    for job, said in row["kept"].items():
        print(f"  {job}: held by others ({said}): it stays so until they release it")
    for job, said in row["refused"].items():
        print(f"  {job}: refused: {said}")
    for what in row["unread"]:
        print(f"  not understood: {what}")


def _view_row(view: View) -> dict[str, Any]:
    return {
        "now_s": view.now_s, "running": view.running, "jobs": list(view.jobs), "left": view.left,
        "not_asked": list(view.not_asked), "unread": list(view.unread),
    }  # fmt: skip


def _show(view: View, top: int) -> None:
    console = console_of_stdout()
    starts = sum(bool(seen.nodes) for seen in view.jobs)
    console.print(
        f"{clock(view.now_s)}: {view.running} jobs run, {len(view.jobs)} wait, "
        f"{starts} would start now",
        soft_wrap=True,
    )
    table = table_of("", ("job", "user", "partition", "nodes", "why"), ("waited s",))
    order = sorted(view.jobs, key=lambda seen: not seen.nodes)
    for seen in order[:top]:
        nodes = ",".join(seen.nodes) or f"({seen.units})"
        table.add_row(seen.job, seen.user, seen.partition, nodes, seen.why, f"{seen.waited_s:,}")
    if order and top:
        console.print(table)
    if len(order) > top:
        console.print(f"and {len(order) - top} more", soft_wrap=True)
    if view.not_asked:
        print_sentence(
            console,
            f"not asked about: {listed(view.not_asked, top)}; "
            "cpdispatch slurm explain --job says why of each",
        )
    for job, why in view.left.items():
        print_sentence(console, f"{job}: left to Slurm: {why}")
    for what in view.unread:
        print_sentence(console, f"not understood: {what}")
