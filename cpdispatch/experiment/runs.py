"""An experiment: each log is replayed under each dispatcher, with each seed or in each draw."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.campaign import (
    CampaignError,
    Shared,
    Task,
    Workers,
    asked_to_stop,
    completed,
    report,
)
from cpdispatch.errors import UsageError
from cpdispatch.experiment.memory import PeakMemory

if TYPE_CHECKING:
    from cpdispatch.analyze.compare import Restarts, Weeks
    from cpdispatch.analyze.draws import Waits
    from cpdispatch.instance import Instance
    from cpdispatch.jobs import Workload
    from cpdispatch.simulator import Run
    from cpdispatch.system import System

    _Log = tuple[Workload, System]


SAME_DISPATCHER = "the same dispatcher is named twice: {}; leave one of them"
SAME_LOG = "two logs are named {}: their results would have the same name"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How a run is made, and where it is kept."""

    dispatcher: str
    """As on the command line."""
    seed: int = 0
    limit_s: float = 1.0
    """Of each decision."""
    rules: Mapping[str, Any] | None = None
    """Further arguments of `cpdispatch.simulator.simulate`."""
    folder: Path | None = None
    """Where the run and its checkpoints are kept; emptied for it, or of the same run."""
    checkpoint_s: float = 2.0
    dump_folder: Path | None = None
    """Where one instance in ``dump_every`` is dumped."""
    dump_every: int = 100
    draw: int = 0
    """Of the log, see `cpdispatch.workloads.shake.shaken`."""
    place: int = 0
    """Which of the experiment's runs it is, in the order in which they were named, from 0 on."""
    watch_folder: Path | None = None
    """Where a run that has no folder says what it is at."""

    @property
    def status(self) -> Path | None:
        """The file in which the run says what it is at, see `cpdispatch.simulator.live`."""
        from cpdispatch.simulator.live import STATUS

        if self.folder is None and self.watch_folder is not None:
            return self.watch_folder / f"run-{self.place}" / STATUS
        return None if self.folder is None else self.folder / STATUS


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The figures of a run; the run itself where its maker could not save it."""

    about: dict[str, Any]
    """See `cpdispatch.simulator.Run`."""
    metrics: dict[str, float]
    """Of `cpdispatch.analyze.metrics.summary`."""
    classes: dict[str, dict[str, float]]
    """Of `cpdispatch.analyze.metrics.by_class`."""
    widths: dict[str, dict[str, float]]
    """Of `cpdispatch.analyze.metrics.by_width`."""
    waits_of_users: Waits
    """Of each user: jobs that started, their mean and their longest wait in seconds."""
    weeks: Weeks
    """Of each week of submission: jobs that started, and their mean bounded slowdown."""
    restarts_of_users: Restarts = field(default_factory=dict)
    """Of each user: jobs that started, and the share of them that were restarted before.

    Empty where no job could be restarted.
    """
    jobs_started: str = ""
    """A checksum of the numbers of the jobs that started, see `Run.jobs_started`."""
    run: Run | None = None

    @property
    def kind(self) -> str:
        """See `cpdispatch.analyze.compare.kind_of`."""
        from cpdispatch.analyze import compare

        return compare.kind_of(self.about)

    @classmethod
    def of(cls, run: Run, *, whole: bool = False) -> RunSummary:
        """The figures of a run, with the ``whole`` of it if that is wanted."""
        users = run.by_user()
        waits = {
            user: (of["jobs"], of["wait_s_mean"], of["wait_s_max"]) for user, of in users.items()
        }
        restarts = {
            user: (of["jobs"], of["restarts"] / of["jobs"])
            for user, of in users.items()
            if "restarts" in of
        }
        weeks = {
            week: (of["jobs"], of["bounded_slowdown_mean"]) for week, of in run.by_week().items()
        }
        return cls(
            run.about,
            run.metrics,
            run.by_class(),
            run.by_width(),
            waits,
            weeks,
            restarts,
            run.jobs_started(),
            replace(run, workload=None) if whole else None,
        )


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs that differ by log, dispatcher, seed and draw."""

    logs: Sequence[tuple[Workload, System]]
    """Each log, fitted to its machine; with ``of_seed``, one for each seed."""
    dispatchers: Sequence[str]
    """As on the command line; a name of an earlier version becomes today's."""
    seeds: Sequence[int]
    of_seed: bool = False
    """Whether the logs are the samples of the seeds."""
    draws: int = 1
    """How often each of these is run: first as it is; in draw k with shifted submissions and the
    seed plus k.
    """

    def __post_init__(self) -> None:
        from cpdispatch.dispatch import current

        object.__setattr__(self, "dispatchers", tuple(current(name) for name in self.dispatchers))

    def check(self, limit_s: float, rules: Mapping[str, Any]) -> None:
        """Raise now what would be wrong with every run: a name, or two logs of one name.

        Parameters
        ----------
        limit_s : float
            Of each decision.
        rules : mapping
            Further arguments of `cpdispatch.simulator.simulate`.
        """
        from cpdispatch import dispatch, energy, own, predict
        from cpdispatch.data import made as additional
        from cpdispatch.simulator.checks import (
            check_gated,
            check_power_cap,
            check_switching,
            check_tests,
        )

        events, power_cap = rules.get("events"), rules.get(energy.POWER_CAP)
        switch_off_s = rules.get("switch_off_s")
        check_apart("dispatchers", self.dispatchers, SAME_DISPATCHER)
        logs = [] if self.of_seed else [workload.name for workload, _ in self.logs]
        check_apart("logs", logs, SAME_LOG)
        kept, called, kills = {}, {}, bool(rules.get("idempotent"))
        for dispatcher in self.dispatchers:
            made = dispatch.make(dispatcher, dispatch.Settings(limit_s), warm=dispatch.not_at_all)
            called[dispatcher] = made.name
            kept[dispatcher] = dispatch.keeps_starvation_bound(made)
            if rules.get("starvation"):
                dispatch.check_keeps_bound(made, "--starvation")
            known = predict.make(
                rules.get("predictor") or dispatch.predictor_of(made), self.logs[0][0]
            )
            if rules.get("idempotent"):
                predict.bounding(known)
            if rules.get("correction") == "refresh":
                predict.refreshing(known)
            check_tests(made, events, power_cap, switch_off_s)
            if getattr(made, "test_s", 0):  # best, which states none, makes tests where it can
                self._check_restartable(dispatcher)
            kills |= dispatch.test_s(made) > 0 or not own.is_ours(made)
        check_told_apart("dispatchers", called)
        if rules.get("starvation"):
            _check_starvation(kept)
        if rules.get("restart_cost_s") and not kills:
            raise UsageError(
                f"restarts have a cost, and {', '.join(kept)} kills no job: leave --restart-cost "
                "out, or let a dispatcher make test runs, for example easy:test=10min"
            )
        additional(rules.get("data", ()))
        for workload, system in self.logs:
            if events is not None:
                events.check(system)
            if any(map(rules.get, ("dependencies", "idempotent", "restart_cost_s"))):
                check_gated(workload, system)
            if rules.get(energy.ENERGY_PRICE) is not None:
                energy.check_drawn(system)
            if power_cap is not None:
                check_power_cap(power_cap, workload, system, rules.get("kill_at_limit", False))
            if switch_off_s is not None:
                check_switching(system, switch_off_s)

    def _check_restartable(self, dispatcher: str) -> None:
        """Raise where test runs are wanted and no job may be restarted."""
        for workload, _ in self.logs:
            if not workload.table.restartable.any():
                raise UsageError(
                    f"dispatcher {dispatcher} makes test runs, and no job of {workload.name} may "
                    "be restarted: say which may, for example --restartable all"
                )

    def plans(self, plan: RunPlan) -> list[tuple[int, RunPlan]]:
        """The log and the plan of each run; each has a folder in that of the given one."""
        logs = [0] if self.of_seed else range(len(self.logs))
        found: list[tuple[int, RunPlan]] = []
        for log, dispatcher, (number, seed), draw in product(
            logs, self.dispatchers, enumerate(self.seeds), range(self.draws)
        ):
            within = [safe(self.logs[log][0].name)] * (len(logs) > 1)
            apart = [f"seed-{seed}"] * (len(self.seeds) > 1) + [f"draw-{draw}"] * (self.draws > 1)
            named = [safe(dispatcher)] * (len(self.dispatchers) > 1)
            made = replace(
                plan,
                dispatcher=dispatcher,
                seed=seed + draw,
                draw=draw,
                place=len(found),
                folder=plan.folder and plan.folder.joinpath(*within, *named, *apart),
                dump_folder=plan.dump_folder and plan.dump_folder.joinpath(*within, *apart),
            )
            found.append((number if self.of_seed else log, made))
        return found

    def run(
        self,
        plans: Sequence[tuple[int, RunPlan]],
        workers: Workers,
        progress: Callable[[float, int], None],
        stop: Callable[[], bool],
    ) -> tuple[list[RunSummary], CampaignError | None]:
        """Make the runs as the only part, see `run`."""
        (summaries,), failure = run([Part(self, plans)], workers, progress, stop)
        return summaries, failure


@dataclass(frozen=True, slots=True)
class Part:
    """Runs of an experiment that are made beside those of others."""

    experiment: Experiment
    plans: Sequence[tuple[int, RunPlan]]
    apart: str = ""
    """What tells its runs from others of the same log and dispatcher, as `` on 128``."""

    def key(self, log: int, plan: RunPlan) -> str:
        """What a run is called in errors; no other has this name."""
        seed = f", seed {plan.seed}" if len(self.experiment.seeds) > 1 else ""
        draw = f", draw {plan.draw}" if self.experiment.draws > 1 else ""
        return f"{self.experiment.logs[log][0].name}, {plan.dispatcher}{self.apart}{seed}{draw}"


def run(
    parts: Sequence[Part],
    workers: Workers,
    progress: Callable[[float, int], None],
    stop: Callable[[], bool],
) -> tuple[list[list[RunSummary]], CampaignError | None]:
    """Make the runs of all parts, and save those that are to be.

    Returns
    -------
    summaries : list of list of RunSummary
        Of each part, the runs that are done, in the order of the plans.
    failure : CampaignError or None
        Which of several runs failed, and why.

    Raises
    ------
    InterruptedRunError
        When ``stop`` said so; a later experiment in the same folders goes on from there.
    """
    from cpdispatch.dispatch import has_engine, is_model
    from cpdispatch.simulator.replay import finished
    from cpdispatch.simulator.saved import ABOUT
    from cpdispatch.workloads.shake import shaken

    of_key = {
        part.key(log, plan): (part.experiment.logs[log], plan)
        for part in parts
        for log, plan in part.plans
    }
    plans = [plan for _, plan in of_key.values()]
    shared = {str(id(log)): log for log, _ in of_key.values()}
    summaries: dict[str, RunSummary] = {}
    failure = None
    if all(plan.folder is not None and (plan.folder / ABOUT).exists() for plan in plans):
        workers = Workers(cores=1)  # reading them takes less time than workers to begin
    elif not workers.cluster and any(has_engine(plan.dispatcher) for plan in plans):
        from cpdispatch.experiment.warming import compile_kernels

        compile_kernels()  # now, on all cores: else each worker compiles them
    with _sign(plans if workers.cluster else []) as sign:
        tasks = [
            Task(key, (Shared(str(id(log))), plan, sign))
            for key, (log, plan) in _in_turn(of_key, is_model)
        ]
        outcomes = completed(
            tasks, make_run, shared=shared, workers=workers, progress=progress, stop=stop
        )
        try:
            for key, found in outcomes:
                (workload, _), plan = of_key[key]
                if found.run is not None and plan.folder is not None:
                    workload = shaken(workload, plan.draw)
                    if (events := (plan.rules or {}).get("events")) is not None:
                        workload = events.within(workload)
                    finished(replace(found.run, workload=workload), plan.folder)
                summaries[key] = replace(found, run=None)
        except CampaignError as error:
            failure = error
    keys = [[part.key(log, plan) for log, plan in part.plans] for part in parts]
    return [[summaries[key] for key in of_part if key in summaries] for of_part in keys], failure


def _in_turn(
    of_key: Mapping[str, tuple[_Log, RunPlan]], is_model: Callable[[str], bool]
) -> list[tuple[str, tuple[_Log, RunPlan]]]:
    """The runs in the order in which they begin.

    The first draw of everything comes first, so that a dispatcher that fails in each draw is not
    taken for something that is wrong with all. Within that, what takes longest begins first: other
    workers make all the others meanwhile.
    """
    before: Counter[tuple[str, str]] = Counter()
    ranked = []
    for key, (log, plan) in of_key.items():
        of = log[0].name, plan.dispatcher
        ranked.append((before[of], not is_model(plan.dispatcher), key, (log, plan)))
        before[of] += 1
    ranked.sort(key=lambda run: run[:2])
    return [run[2:] for run in ranked]


def _check_starvation(kept: Mapping[str, bool | None]) -> None:
    """Raise where a starvation bound would bind nobody."""
    if not any(kept.values()):
        raise UsageError(
            f"--starvation binds the plans of models, and {', '.join(kept)} is none: leave it out, "
            "or give the rule a threshold, for example easy:threshold=24h"
        )


def make_run(log: tuple[Workload, System], plan: RunPlan, sign: Path | None) -> RunSummary:
    """Make one run.

    Parameters
    ----------
    sign : Path or None
        A file that exists if the plan's folder is the same here as where the experiment runs.
    """
    from cpdispatch.dispatch import Settings
    from cpdispatch.simulator.replay import Watch, finished, simulate
    from cpdispatch.simulator.saved import ABOUT
    from cpdispatch.workloads.shake import shaken

    workload, system = shaken(log[0], plan.draw), log[1]
    folder = plan.folder if sign is None or sign.exists() else None
    saved = folder is not None and (folder / ABOUT).exists()
    here = folder is not None or plan.folder is None
    watch = Watch(
        report, dumper(plan), folder, plan.checkpoint_s, folder is not None,
        plan.status if here else None, asked_to_stop,
    )  # fmt: skip
    memory = PeakMemory()
    with _gone_at_last(watch.status):
        run = simulate(
            workload, system, plan.dispatcher, settings=Settings(plan.limit_s, plan.seed),
            watch=watch, **(plan.rules or {}),
        )  # fmt: skip
        of_plan = {"draw": plan.draw, "place": plan.place}
        moved = any(run.about.get(key) != value for key, value in of_plan.items())
        peak_mib = None if saved else memory.mib()
        of_run = {} if peak_mib is None else {"memory_mib_peak": peak_mib}
        run = replace(run, about=run.about | of_plan | of_run)
        if folder is not None and not saved:
            finished(run, folder)
        elif folder is not None and moved:
            run.save_about(folder)
    return RunSummary.of(run, whole=plan.folder is not None and folder is None)


@contextmanager
def _gone_at_last(status: Path | None) -> Iterator[None]:
    """Remove what a run says of itself when it is over, saved, or has failed."""
    try:
        yield
    finally:
        if status is not None:
            status.unlink(missing_ok=True)


@contextmanager
def _sign(plans: Sequence[RunPlan]) -> Iterator[Path | None]:
    """A file by which workers elsewhere recognise the folders of the runs."""
    folders = [plan.folder for plan in plans if plan.folder is not None]
    if not folders:
        yield None
        return
    sign = folders[0].absolute() / f".cpdispatch-{uuid.uuid4().hex}"
    sign.parent.mkdir(parents=True, exist_ok=True)
    sign.touch()
    try:
        yield sign
    finally:
        sign.unlink(missing_ok=True)


def dumper(plan: RunPlan) -> Callable[[Instance], None] | None:
    """What dumps one instance in so many."""
    from cpdispatch.instance import dump

    folder, met = plan.dump_folder, 0
    if folder is None:
        return None

    def seen(instance: Instance) -> None:
        nonlocal met
        met += 1
        if met % plan.dump_every == 0:
            name = f"{safe(plan.dispatcher)}-{met:08d}-at-{instance.now}.json.gz"
            dump(instance, folder / name)

    return seen


def own_predictor(dispatcher: str) -> str:
    """The predictor that a dispatcher of this name brings along."""
    from cpdispatch import dispatch

    return dispatch.predictor_of(dispatch.make(dispatcher, warm=dispatch.not_at_all))


def check_dependencies(logs: Sequence[tuple[Workload, System]], asked: str) -> None:
    """Raise where dependencies are ``asked`` for, by an option or a key, and no job has one."""
    if not any((log.preceding >= 0).any() for log, _ in logs):
        names = ", ".join(dict.fromkeys(log.name for log, _ in logs))
        raise UsageError(f"no job of {names} comes after another one: leave {asked} out")


def check_apart(kind: str, names: Sequence[str], same: str) -> None:
    """Raise where two names are the same, which ``same`` tells, or would have the same folder."""
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(same.format(name))
        for other in names[:number]:
            if safe(other) == safe(name):
                raise UsageError(
                    f"the results of the {kind} {other} and {name} would have the same folder, "
                    f"{safe(name)}: rename one of the two"
                )


def check_told_apart(kind: str, called: Mapping[str, str]) -> None:
    """Raise where results have one name; ``called`` says what each one that was given calls itself.

    A user's own one chooses its name.
    """
    first: dict[str, str] = {}
    for given, name in called.items():
        if name in first:
            raise UsageError(
                f"the {kind} {first[name]} and {given} both have the name {name!r}, so that their "
                "results could not be told apart: give one of the two another name"
            )
        first[name] = given


def safe(name: str) -> str:
    """A name as a file's."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name).lstrip(".") or "_"
