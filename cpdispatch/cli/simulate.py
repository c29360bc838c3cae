"""The command simulate: replays logs through dispatchers and compares them."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cpdispatch.cli.options import (
    EventOptions,
    Flag,
    Json,
    LogOptions,
    OutputOptions,
    ReplayOptions,
    RestartOptions,
    Whole,
    WorkerOptions,
    check_draws,
    of_all_runs,
)
from cpdispatch.cli.output import DONE, STARTING, progress_bars, status
from cpdispatch.cli.runs import check_pictures, first_of_each, print_and_draw
from cpdispatch.cli.signals import stoppable
from cpdispatch.cli.watch import watched
from cpdispatch.cli.windows import by_windows
from cpdispatch.durations import seconds
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.campaign import CampaignError, Workers
    from cpdispatch.experiment import Experiment, RunPlan, RunSummary

SAMPLE_DISPATCHERS = "easy", "easy-spf-spf", "hcp"
"""What the generated sample is replayed under where nothing is named: order, plan and CP-SAT."""


def simulate(
    *traces: str,
    dispatcher: Annotated[
        tuple[str, ...], Parameter(("--dispatcher", "-d"), negative="", show_default=False)
    ] = (),
    seeds: Whole = 1,
    shake: Whole = 1,
    log: LogOptions = LogOptions(),
    rules: ReplayOptions = ReplayOptions(),
    restarts: RestartOptions = RestartOptions(),
    happens: EventOptions = EventOptions(),
    output: OutputOptions = OutputOptions(),
    where: WorkerOptions = WorkerOptions(),
    watch: Flag = False,
    window: Annotated[Whole | None, Parameter(show_default=False)] = None,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Replay logs under one or more dispatchers, and compare them.

    Without TRACES, 1,000 jobs are generated for the 64-node system with CPUs, GPUs and MICs.
    Without a dispatcher, a log is replayed under easy, and generated jobs under easy, easy-spf-spf
    and hcp.

    Parameters
    ----------
    traces
        Logs: .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    dispatcher
        A name with or without parameters (easy-saf-spf, hcp:limit=0.5), a TOML file, or
        package.module:attribute. May be given several times: the first one is the reference.
    seeds
        Number of runs of each dispatcher, with the seeds from --seed on.
    shake
        Number of draws of each run: the log as it is, then with each submission up to a minute
        later and another seed. Figures are means, and the report says which differences are more
        than noise.
    watch
        Show the progress on standard error: simulated time, speed, queue, what is in use, the last
        decisions. In another terminal, cpdispatch watch shows the same for a run with --out.
    window
        Keep only N jobs of the log in memory at a time, for example 100000, and write the results
        to --out as they come. For rules of the backfilling family whose predictor does not learn.
    plot
        Folder for pictures of the runs (SVG, extra plot). With a name such as runs.pdf or runs.png,
        the pictures are runs-queue.pdf and so on, see docs/plots.md.
    json
        Print one JSON object.
    """
    if window is not None:
        _check_window(seeds, shake, watch, plot)
        names, groups = dispatcher or ("easy",), (log, rules, output, restarts, happens, where)
        return by_windows(traces, names, window, json, *groups)
    with status(STARTING):
        from cpdispatch.campaign import Workers
        from cpdispatch.experiment import Experiment
        from cpdispatch.simulator.saved import ABOUT

    _check_draws(seeds, shake)
    if plot is not None:
        check_pictures(plot, max(len(dispatcher), 1))
    workers = Workers(where.cores, where.cluster)
    numbers = range(rules.seed, rules.seed + seeds)
    logs = [log.read(trace, rules.seed, restarts.restartable) for trace in traces]
    logs = logs or [log.read(None, seed, restarts.restartable) for seed in numbers]
    names = dispatcher or (("easy",) if traces else SAMPLE_DISPATCHERS)
    experiment = Experiment(logs, names, numbers, of_seed=not traces, draws=shake)
    of_runs = of_all_runs(rules, restarts, happens, logs)
    limit_s = seconds(rules.limit, "--limit")
    plan = _with_folders(output.plan(limit_s, of_runs), watch, plot, where.cluster)
    with status("checking names"):
        experiment.check(plan.limit_s, of_runs)
    plans = experiment.plans(plan)
    output.claim(plan for _, plan in plans)
    done = [of.dispatcher for _, of in plans if of.folder and (of.folder / ABOUT).exists()]
    summaries, failure = _replayed(experiment, plans, workers, output.kept, plan.watch_folder)
    if summaries:
        folders = [of.folder for _, of in plans if of.folder is not None]
        beside = {} if failure is None else {"failed": failure.problems}
        print_and_draw(summaries, lambda: first_of_each(folders, summaries), plot, json, beside)
        _say_undumped(plan, summaries, done)
    if failure is not None:
        raise failure
    return DONE


def _check_window(seeds: int, shake: int, watch: bool, plot: Path | None) -> None:
    """Refuse what a replay by windows cannot do."""
    if seeds != 1 or shake != 1 or watch or plot is not None:
        raise UsageError(
            "--window makes one replay: leave --seeds, --shake, --watch and --plot out"
        )


def _with_folders(plan: RunPlan, watch: bool, plot: Path | None, cluster: str | None) -> RunPlan:
    """The plan with the folders that watching and pictures need, which are removed at the end."""
    if watch:
        plan = replace(plan, watch_folder=_watch_folder(plan.folder, cluster))
    if plot is not None and plan.folder is None:
        folder = plan.watch_folder or _removed_folder("--plot", cluster, "how they went")
        plan = replace(plan, folder=folder)
    return plan


def _replayed(
    experiment: Experiment,
    plans: Sequence[tuple[int, RunPlan]],
    workers: Workers,
    kept: str,
    watch_folder: Path | None,
) -> tuple[list[RunSummary], CampaignError | None]:
    """The runs that are done, and which failed; ``kept`` says what an interruption leaves."""
    shown = progress_bars() if watch_folder is None else watched(watch_folder)
    with stoppable(kept) as stop, shown as show:
        advance = show(experiment.dispatchers[0] if len(plans) == 1 else f"{len(plans)} runs")
        return experiment.run(plans, workers, lambda done, runs: advance(done / runs), stop)


def _check_draws(seeds: int, shake: int) -> None:
    """Raise where there would be no run, or seeds beside draws with seeds of their own."""
    check_draws("--seeds", seeds)
    check_draws("--shake", shake)
    if seeds > 1 and shake > 1:
        raise UsageError(
            f"--seeds {seeds} and --shake {shake} cannot be combined: each draw of --shake has "
            "a seed of its own; leave --seeds out"
        )


def _say_undumped(plan: RunPlan, summaries: Sequence[RunSummary], done: Sequence[str]) -> None:
    """Say which runs were too short for an instance to be dumped, or were done before."""
    if plan.dump_folder is None:
        return
    for name in dict.fromkeys(done):
        print(
            f"no instance of a run of {name} was dumped that was finished before: give --overwrite "
            "instead of --resume to make it again",
            file=sys.stderr,
        )
    for of_run in summaries:
        if (made := of_run.metrics["decisions"]) < plan.dump_every:
            print(
                f"no instance of {of_run.about['dispatcher']} was dumped: it made {made:,} "
                f"decisions, and one in {plan.dump_every:,} is dumped; give a lower --dump-every",
                file=sys.stderr,
            )


def _watch_folder(out: Path | None, cluster: str | None) -> Path:
    """Where the runs say what they are at: with the results, or in a folder that is removed."""
    if out is not None:
        return out
    return _removed_folder("--watch", cluster, "what they are at")


def _removed_folder(option: str, cluster: str | None, what: str) -> Path:
    """A folder that is removed when the command ends."""
    if cluster is not None:
        raise UsageError(f"{option} with --cluster needs --out FOLDER, where the runs say {what}")
    from cpdispatch.campaign.local import owned

    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    folder = until_the_end.enter_context(owned()) / "runs"
    folder.mkdir()
    return folder
