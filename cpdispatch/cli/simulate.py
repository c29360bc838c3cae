"""The command simulate: replays logs through dispatchers and compares them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

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
)
from cpdispatch.cli.output import DONE, STARTING, progress_bars, status
from cpdispatch.cli.runs import check_pictures, draw, first_of_each, print_pictures, print_runs
from cpdispatch.cli.signals import stoppable
from cpdispatch.cli.watch import watched
from cpdispatch.cli.windows import by_windows
from cpdispatch.durations import seconds
from cpdispatch.errors import UsageError

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

    Without TRACES, 1,500 jobs are generated for the 64-node system with CPUs, GPUs and MICs.
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
        if seeds != 1 or shake != 1 or watch or plot is not None:
            raise UsageError(
                "--window makes one replay: leave --seeds, --shake, --watch and --plot out"
            )
        names, groups = dispatcher or ("easy",), (log, rules, output, restarts, happens, where)
        return by_windows(traces, names, window, json, *groups)
    with status(STARTING):
        from cpdispatch.campaign import Workers
        from cpdispatch.experiment import Experiment

    if seeds < 1:
        raise UsageError(f"--seeds {seeds}: 1 or more is needed")
    if shake < 1:
        raise UsageError(f"--shake {shake}: 1 or more draws are needed")
    if seeds > 1 and shake > 1:
        raise UsageError(
            f"--seeds {seeds} and --shake {shake} cannot be combined: each draw of --shake has "
            "a seed of its own; leave --seeds out"
        )
    if plot is not None:
        check_pictures(plot, max(len(dispatcher), 1))
    workers = Workers(where.cores, where.cluster)
    names = dispatcher or (("easy",) if traces else SAMPLE_DISPATCHERS)
    numbers = range(rules.seed, rules.seed + seeds)
    logs = [log.read(trace, rules.seed, restarts.restartable) for trace in traces]
    made = logs or [log.read(None, k, restarts.restartable) for k in numbers]
    experiment = Experiment(made, names, numbers, of_seed=not traces, draws=shake)
    limit_s, cost_s, events = seconds(rules.limit), restarts.cost_s(), happens.read()
    may_restart = rules.idempotent or any(log.table.restartable.any() for log, _ in made)
    steps = happens.steps()
    if cost_s and not may_restart:
        raise UsageError(
            f"--restart-cost {restarts.restart_cost}: no job may be restarted; say which may, as "
            "--restartable all"
        )
    if events is not None and events.checkpoints is not None and (cost_s or rules.idempotent):
        option = "--idempotent" if rules.idempotent else "--restart-cost"
        raise UsageError(
            f"--checkpoints and {option} cannot be combined: a job that is killed for a restart "
            "runs anew in full; leave one of them out"
        )
    if steps["power_cap"] is not None and (cost_s or rules.idempotent):
        option = "--idempotent" if rules.idempotent else "--restart-cost"
        raise UsageError(f"--power-cap and {option} cannot be combined: leave one of them out")
    idle_s = happens.idle_s()
    if idle_s is not None and (cost_s or rules.idempotent):
        option = "--idempotent" if rules.idempotent else "--restart-cost"
        raise UsageError(f"--switch-off and {option} cannot be combined: leave one of them out")
    of_runs = rules.of_runs() | {"restart_cost_s": cost_s, "events": events} | steps
    of_runs |= {"switch_off_s": idle_s}
    looked_at = watch_folder(output.out, where.cluster) if watch else None
    plan = replace(output.plan(limit_s, of_runs), watch_folder=looked_at)
    if plot is not None and plan.folder is None:
        kept_in = looked_at or removed_folder("--plot", where.cluster, "how they went")
        plan = replace(plan, folder=kept_in)
    plans = experiment.plans(plan)
    with status("checking names"):
        experiment.check(
            limit_s, rules.predict, rules.idempotent, bool(rules.starvation), events, rules.data,
            steps["power_cap"], rules.kill_at_limit, idle_s,
        )  # fmt: skip
    output.claim(plan for _, plan in plans)
    shown = progress_bars() if looked_at is None else watched(looked_at)
    with stoppable(output.kept) as stop, shown as show:
        advance = show(experiment.dispatchers[0] if len(plans) == 1 else f"{len(plans)} runs")
        summaries, failure = experiment.run(
            plans, workers, lambda done, runs: advance(done / runs), stop
        )
    if summaries:
        beside = {} if failure is None else {"failed": failure.problems}
        if plot is None:
            print_runs(summaries, json, beside)
        else:
            written, lacking = draw(plot, summaries, first_of_each(plan for _, plan in plans))
            print_runs(summaries, json, beside | {"pictures": [str(path) for path in written]})
            if not json:
                print_pictures(plot, written, lacking)
    if failure is not None:
        raise failure
    return DONE


def watch_folder(out: Path | None, cluster: str | None) -> Path:
    """Where the runs say what they are at: with the results, or in a folder that is removed."""
    if out is not None:
        return out.absolute()
    return removed_folder("--watch", cluster, "what they are at")


def removed_folder(option: str, cluster: str | None, what: str) -> Path:
    """A folder that is removed when the command ends."""
    if cluster is not None:
        raise UsageError(f"{option} with --cluster needs --out FOLDER, where the runs say {what}")
    folder = Path(tempfile.mkdtemp(prefix="cpdispatch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
