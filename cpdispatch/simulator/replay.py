"""Replays a whole workload through one dispatcher: the one place where a run is wired together."""

from __future__ import annotations

import hashlib
import pickle
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, TypeGuard, TypeVar

import msgspec
import numpy as np

from cpdispatch import __version__, dispatch, energy, own, predict, toys
from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.data import AdditionalData
from cpdispatch.data import made as additional
from cpdispatch.dispatch import DEFAULTS, Dispatcher, Settings
from cpdispatch.energy import ENERGY_PRICE, POWER_CAP, Steps
from cpdispatch.errors import InputError, InterruptedRunError, UsageError, in_a_line
from cpdispatch.events import Events, with_maintenance
from cpdispatch.events import read as read_events
from cpdispatch.files import is_empty, read_bytes, sweep, writing
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.instance import Instance, Starvation
from cpdispatch.jobs import TERMS, Column, Workload
from cpdispatch.predict import Predictor
from cpdispatch.predict.confident import Confident
from cpdispatch.predict.profile import SameProfile
from cpdispatch.simulator.checks import (
    check_case,
    check_fresh,
    check_kind,
    check_rules,
    check_switches,
    check_tests,
    cost_s_of,
    idle_s_of,
)
from cpdispatch.simulator.compiled import (
    CompiledSimulation,
    records_so_far,
    replayable,
    tests_replayable,
)
from cpdispatch.simulator.live import STATUS, Telling
from cpdispatch.simulator.records import NOT_STARTED
from cpdispatch.simulator.run import Run, run_of
from cpdispatch.simulator.saved import ABOUT, CHECKPOINT, FILES
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import USUAL_TIER, System, SystemFile, from_file, system_as_dict
from cpdispatch.terms import begins_later, gated
from cpdispatch.workloads.clock import dated_from_s

LOG = "log.pickle"
"""The jobs of a replay that is under way, which are written once, beside its state."""
SWITCH_OFF = "switch_off_s"
FIRST_CHECKPOINT_S = 1.0
"""Seconds until the first checkpoint: with it, a run that is often killed still makes progress."""

CHECKPOINT_S = 2.0
"""Seconds between two checkpoints, at least."""

CHECKPOINT_SHARE = 1 / 20
"""The share of the time that saving takes, at most: checkpoints that take long are made rarely."""

_EVERY = 256
_MOMENT_S = 0.1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Watch:
    """What goes on beside a replay.

    Attributes
    ----------
    progress : callable or None
        Called now and then with the share of the jobs submitted so far, 0 to 1.
    seen : callable or None
        Called with each instance before it is dispatched.
    folder : Path or None
        Where checkpoints are kept; none are made without it.
    checkpoint_s : float
        Seconds between two checkpoints, at least. The first one comes after `FIRST_CHECKPOINT_S`
        at the latest; where saving takes long, the time between two is longer.
    resume : bool
        Go on from the folder's checkpoint, if there is one. The folder must be this run's alone:
        temporary files that a killed run left there are removed.
    status : Path or None
        A small file that says what the replay is at, replaced about once a second, see
        `cpdispatch.simulator.live`.
    stop : callable
        Asked after each decision; when true, a checkpoint is made and `InterruptedRunError` raised.
    """

    progress: Callable[[float], None] | None = None
    seen: Callable[[Instance], None] | None = None
    folder: Path | None = None
    checkpoint_s: float = CHECKPOINT_S
    resume: bool = False
    status: Path | None = None
    stop: Callable[[], bool] = bool  # never; unlike a lambda, it can be pickled


UNWATCHED = Watch()


def simulate(
    workload: Workload,
    system: System,
    dispatcher: str | Dispatcher = "easy",
    *,
    predictor: str | Predictor | None = None,
    trigger: str = "instant",
    correction: str = "minimal",
    kill_at_limit: bool = False,
    dependencies: bool = False,
    starvation: Starvation | None = None,
    idempotent: bool = False,
    restart_cost_s: int = 0,
    events: Events | str | Sequence[str] | None = None,
    data: Sequence[AdditionalData | str] = (),
    power_cap: Steps | float | str | None = None,
    energy_price: Steps | float | str | None = None,
    switch_off_s: int | None = None,
    settings: Settings = DEFAULTS,
    watch: Watch = UNWATCHED,
    compiled: bool = True,
) -> Run:
    """Replay a workload on a system through a dispatcher.

    Parameters
    ----------
    workload : Workload
        Fitted to the system, see `cpdispatch.workloads.prepare`.
    system : System
    dispatcher : str or Dispatcher
        A name as on the command line, or an object with ``name`` and ``dispatch(instance)``.
    predictor, trigger, correction, kill_at_limit, dependencies, starvation, idempotent, \
    restart_cost_s
        See `Simulation`; without a predictor, the dispatcher's own, or else ``walltime``.
    events : Events, str or several, optional
        What happens to the system, or what `cpdispatch.events.read` takes.
    data : sequence of AdditionalData or str
        What every instance tells beside jobs and nodes: objects, or names as on the command line.
    power_cap : Steps, number or str, optional
        Watts that the whole system may draw, or a file, see `cpdispatch.energy.power_cap`.
    energy_price : Steps, number or str, optional
        Price of a kilowatt hour, or a file, see `cpdispatch.energy.energy_price`.
    switch_off_s : int, optional
        How long a node is idle before it is switched off, see `Simulation`.
    settings : Settings
        Time limit of a dispatcher that is given by name, and seed of it and of a predictor that is
        given by name.
    watch : Watch
        Progress, checkpoints, resumption.
    compiled : bool
        Let compiled code go through the events where that gives the same schedule: dispatchers of
        the backfilling family and ``best``. It does not know how long each dispatch takes.

    Returns
    -------
    Run

    Raises
    ------
    UsageError
        On an unknown name, a checkpoint that belongs to another run, or a dispatcher of the
        package that was used already.
        A dispatcher that knows no starvation bound where there is one.
    DecisionError
        When the dispatcher raises an error, or answers with no decision or an infeasible one.
    DataError
        When additional data raise an error.
    InputError
        When a file of events or of steps is malformed.
    """
    check_case(workload, system)
    check_rules(trigger, correction, restart_cost_s, starvation)
    check_switches(
        kill_at_limit=kill_at_limit, dependencies=dependencies, idempotent=idempotent,
        compiled=compiled,
    )  # fmt: skip
    check_kind("settings", settings, Settings)
    check_kind("watch", watch, Watch)
    rules = {
        "trigger": str(trigger), "correction": str(correction), "kill_at_limit": bool(kill_at_limit)
    }  # fmt: skip
    happening = events if events is None or isinstance(events, Events) else read_events(events)
    general = {
        "dependencies": bool(dependencies),
        "starvation": starvation,
        "idempotent": bool(idempotent),
        "restart_cost_s": cost_s_of(restart_cost_s),
        "events": with_maintenance(happening, system, workload.table.submit_s),
        "data": additional(data, settings.seed),
        POWER_CAP: None if power_cap is None else energy.power_cap(power_cap),
        ENERGY_PRICE: None if energy_price is None else energy.energy_price(energy_price),
        SWITCH_OFF: None if switch_off_s is None else idle_s_of(switch_off_s),
    }
    if energy_price is not None:
        energy.check_drawn(system)
    kernels_have = ("restart_cost_s", ENERGY_PRICE)
    loop_only = any(value for rule, value in general.items() if rule not in kernels_have)
    loop_only = loop_only or bool(system.maintenance) or begins_later(workload)
    compiled = compiled and watch.seen is None and not loop_only
    done = watch.resume and watch.folder is not None and (watch.folder / ABOUT).exists()
    begun, known = _begun(
        workload, system, dispatcher, predictor, rules, general, settings, compiled, warm=not done
    )  # fmt: skip
    replay, about = begun, begun.about
    if watch.resume and watch.folder is not None:
        found = _resumed(watch.folder, replay)
        if isinstance(found, Run):
            return replace(found, workload=begun.simulation.workload)
        replay = found
    if replay is begun:  # that of a checkpoint goes on with what its dispatcher remembers
        check_fresh(begun.dispatcher)
    if isinstance(replay.simulation, CompiledSimulation):  # a `Simulation` has done so
        predict.warm_up(known)
    replay.go(watch)
    return _run(replay, about, known)


def _begun(
    workload: Workload,
    system: System,
    dispatcher: str | Dispatcher,
    predictor: str | Predictor | None,
    rules: dict[str, Any],
    general: dict[str, Any],
    settings: Settings,
    compiled: bool,
    *,
    warm: bool = True,
) -> tuple[_Replay, Predictor]:
    """A replay before its first event, and its predictor.

    ``general`` are the rules that only the general loop has, ``restart_cost_s`` apart. It is
    ``compiled`` where that is allowed and gives the same schedule. Without ``warm``, no kernel of
    its dispatcher is compiled: no decision will be made.
    """
    limits = gated(workload, system)

    def by_kernels(made: Dispatcher) -> TypeGuard[Backfill | Reject | Best | Bounded]:
        """Whether the replay is a compiled one."""
        return (
            compiled
            and isinstance(made, Backfill | Reject | Best | Bounded)
            and replayable(made, rules["trigger"], limits)
            and rules["correction"] != "refresh"
            and not (limits and general["restart_cost_s"])  # which is refused
            and tests_replayable(made, rules["trigger"], workload)
        )

    def toy_instances(made: Dispatcher) -> Sequence[Instance]:
        special = ("events", POWER_CAP, SWITCH_OFF)
        plain = all(general[rule] is None for rule in special) and not system.once
        tests = dispatch.test_s(made) and workload.table.restartable.any()
        kinds = toys.simulated() if plain else toys.every_kind()
        kinds += toys.taking_once() if system.once else ()
        return (*kinds, *toys.restartable()) if tests else kinds

    made = (
        dispatch.make(
            dispatcher,
            settings,
            warm=lambda made: toy_instances(made) if warm and not by_kernels(made) else (),
        )
        if isinstance(dispatcher, str)
        else own.checked(dispatcher, "dispatcher", "dispatch")
    )
    if general["starvation"] is not None:
        dispatch.check_keeps_bound(made, "it")
    chosen = dispatch.predictor_of(made) if predictor is None else predictor
    known = predict.made(chosen, workload, settings.seed)
    # A predictor of the user's may have learned something already.
    learned = not (isinstance(chosen, str) and predict.is_ours(chosen))
    simulation: Simulation | CompiledSimulation
    if by_kernels(made):
        simulation = CompiledSimulation(
            workload, system, made, known, learned=learned,
            restart_cost_s=general["restart_cost_s"], **rules,
        )  # fmt: skip
    else:
        check_tests(made, general["events"], general[POWER_CAP], general[SWITCH_OFF])
        price: Steps | None = general[ENERGY_PRICE]
        if price is not None and own.is_ours(made):
            # It does not look at the price: no decision when that changes, as in compiled replays.
            general = general | {ENERGY_PRICE: replace(price, wakes=False)}
        simulation = Simulation(
            workload, system, predictor=known, seed=settings.seed, **general, **rules
        )
    names: dict[str, Any] = {"dispatcher": made.name, "predictor": known.name}
    if isinstance(made, Bounded):
        names["wait"] = made.rules
    names |= dispatch.said_in_file(dispatcher)
    about = about_run(workload, system, names | rules | general, settings)
    about["restartable"] = int(simulation.workload.table.restartable.sum())
    about["restarts"] = about["restartable"] > 0
    happening: Events | None = general["events"]
    may_test = all(general[rule] is None for rule in (POWER_CAP, SWITCH_OFF))
    may_test &= happening is None or happening.checkpoints is None
    if about["restartable"] and dispatch.test_s(made) and may_test:
        about["test_s"] = dispatch.test_s(made)
    return _Replay(about, simulation, made), known


def about_run(
    workload: Workload, system: System, rules: dict[str, Any], settings: Settings
) -> dict[str, Any]:
    """What a run's results depend on, and the versions that made it."""
    bound: Starvation | None = rules["starvation"]
    events: Events | None = rules["events"]
    return {
        "version": __version__,
        "python": platform.python_version(),
        "workload": workload.name,
        "workload_sha256": fingerprint(workload, rules["dependencies"]),
        "notes": workload.notes,
        "began_s": dated_from_s(workload),
        "system": system_as_dict(system),
        **rules,
        "starvation": None if bound is None else {k: int(n) for k, n in asdict(bound).items()},
        "events": None if events is None else events.told(),
        "data": [one.name for one in rules["data"]] or None,
        "limit_s": settings.limit_s,
        "seed": settings.seed,
        **{
            name: None if (steps := rules.get(name)) is None else steps.told()
            for name in (POWER_CAP, ENERGY_PRICE)
        },
    }


def _resumed(folder: Path, fresh: _Replay) -> Run | _Replay:
    """The finished run of a folder, or the replay of its checkpoint, or else the fresh one."""
    sweep(folder, *FILES, CHECKPOINT, LOG, STATUS)
    if (folder / ABOUT).exists():
        done = Run.load(folder)
        check_same_run(done.about, fresh.about, folder)
        return done
    if (folder / CHECKPOINT).exists():
        return _restored(folder / CHECKPOINT, fresh)
    return fresh


def _run(replay: _Replay, about: dict[str, Any], predictor: Predictor) -> Run:
    """The run of a replay that is over, with the notes of all that took part in it."""
    simulation, dispatcher = replay.simulation, replay.dispatcher
    of_predictor = simulation.of_predictor  # before the notes: a report that fails is a fault
    said = predictor.notes if isinstance(predictor, SameProfile | Confident) else {}
    notes = {**about["notes"], **said, **simulation.notes, **dispatch.faults_of(dispatcher)}
    if about["starvation"] is not None and dispatch.keeps_starvation_bound(dispatcher) is None:
        unbound = f"dispatcher {dispatcher.name}, decisions that no starvation bound binds"
        notes[unbound] = len(simulation.records)
    table = simulation.workload.table
    if not table.priority.any():
        notes |= without_priority(dispatcher, len(table))
    by_kernel = isinstance(simulation, CompiledSimulation)
    told = {"notes": notes, "compiled": by_kernel, "seconds": replay.seconds}
    told |= dispatch.rule_of(dispatcher, bool((table.tier != USUAL_TIER).any()))
    about = about | of_predictor | told
    return run_of(simulation, about)


def without_priority(dispatcher: Dispatcher, jobs: int) -> dict[str, int]:
    """The note of a log of so many jobs, of which none has a priority, for whom it matters."""
    if not dispatch.goes_by_priority(dispatcher):
        return {}
    return {f"dispatcher {dispatcher.name}, jobs without the priority that it goes by": jobs}


class _Replay:
    """A replay under way: all that a checkpoint holds."""

    log_is_saved = False
    """Whether the jobs beside its checkpoint are written, and are those of this replay."""

    def __init__(
        self,
        about: dict[str, Any],
        simulation: Simulation | CompiledSimulation,
        dispatcher: Dispatcher,
    ) -> None:
        self.about = about
        self.simulation = simulation
        self.dispatcher = dispatcher
        self.seconds = 0.0
        self._events = _EVERY

    def go(self, watch: Watch) -> None:
        """Replay to the end, or until asked to stop."""
        began = perf_counter()
        checkpoints = _Checkpoints(began, inf if watch.folder is None else watch.checkpoint_s)
        before, over = self.seconds, False
        telling = Telling(
            watch.status, self.about, self.simulation.system, len(self.simulation.workload)
        )
        present = self.simulation.at_present
        while not over:
            over, stop = self._some(watch, min(perf_counter() + _MOMENT_S, checkpoints.due))
            now = perf_counter()
            self.seconds = before + now - began
            if over or telling.due:
                present = self.simulation.at_present or present
                if present is not None:
                    telling.tell(present, self.simulation.progress, self.seconds, over)
            if watch.progress is not None:
                watch.progress(1.0 if over else self.simulation.progress)
            due = stop or (not over and now >= checkpoints.due)
            if watch.folder is not None and due:
                self.save(watch.folder)
                if not self.log_is_saved:  # what another replay left there is replaced
                    with writing(watch.folder / LOG) as stream:
                        pickle.dump(self.simulation.workload, stream, pickle.HIGHEST_PROTOCOL)
                    self.log_is_saved = True
                saved = perf_counter()
                checkpoints.made(now, saved)
                began += saved - now
            if stop:
                raise InterruptedRunError(
                    f"interrupted at {self.simulation.progress:.0%} of the log"
                )

    def _some(self, watch: Watch, until: float) -> tuple[bool, bool]:
        """Replay a moment's worth of decisions; whether the replay is over, and is to stop.

        ``until``, on the clock of ``time.perf_counter``, is when the moment is over.
        """
        simulation, ours = self.simulation, own.is_ours(self.dispatcher)
        if isinstance(simulation, CompiledSimulation):
            over = self._some_compiled(simulation)
            return over, not over and watch.stop()
        while True:
            instance = simulation.advance()
            if instance is None:
                return True, False
            if watch.seen is not None:
                watch.seen(instance)
            answer = dispatch.answer_of(self.dispatcher, instance)
            simulation.apply(answer, self.dispatcher.name, stated=ours)
            if watch.stop():
                return False, True
            if perf_counter() >= until:
                return False, False

    def _some_compiled(self, simulation: CompiledSimulation) -> bool:
        """As many events as took less than `_MOMENT_S` so far, at least one."""
        began = perf_counter()
        over = simulation.go(self._events)
        took = perf_counter() - began
        if took < _MOMENT_S:
            self._events *= 2
        elif took > 2 * _MOMENT_S:
            self._events = max(self._events // 2, 1)
        return over

    def save(self, folder: Path) -> None:
        """Write the checkpoint, atomically."""
        if isinstance(self.simulation, Simulation):
            self.simulation.log_is_apart = True
        try:
            with writing(folder / CHECKPOINT) as stream:
                pickle.dump(self, stream, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"dispatcher {self.dispatcher.name}, the predictor or additional data cannot be "
                f"saved in a checkpoint: {error}; make it picklable, or run without --out"
            ) from error


class _Checkpoints:
    """When the next checkpoint is due.

    Parameters
    ----------
    began : float
        When the replay began, on the clock of ``time.perf_counter``, seconds.
    least_s : float
        Seconds between two, at least; infinite where there are none.
    """

    def __init__(self, began: float, least_s: float) -> None:
        self._least_s = least_s
        self.due = began + (min(FIRST_CHECKPOINT_S, least_s) if least_s < inf else inf)

    def made(self, began: float, ended: float) -> None:
        """Take note of one that was made."""
        self.due = ended + max(self._least_s, (ended - began) / CHECKPOINT_SHARE)


def _restored(path: Path, fresh: _Replay) -> _Replay:
    """The replay of a checkpoint, which must be of the same run as the fresh one."""
    replay = _unpickled(path, _Replay)
    check_same_run(replay.about, fresh.about, path)
    if isinstance(replay.simulation, CompiledSimulation):
        if not isinstance(fresh.simulation, CompiledSimulation):
            raise UsageError(f"{path} belongs to a compiled replay, which meets no instances")
        fresh.simulation.go_on_from(replay.simulation)
        fresh.seconds, fresh.log_is_saved = replay.seconds, replay.log_is_saved
        return fresh
    replay.simulation.workload = fresh.simulation.workload
    return replay


def _unpickled(path: Path, kind: type[_T]) -> _T:
    content = read_bytes(path)
    try:
        found = pickle.loads(content)
    except Exception as error:  # whatever a damaged pickle leads to
        problem = f"is damaged: {in_a_line(error)}"
        raise InputError(problem, file=path, advice="use --overwrite") from error
    if not isinstance(found, kind):
        raise InputError("holds no replay", file=path, advice="use --overwrite")
    return found


def so_far(folder: Path) -> tuple[Run, int]:
    """A run that is under way or was stopped, up to its last checkpoint.

    Parameters
    ----------
    folder : Path
        The run's own.

    Returns
    -------
    Run
        Its table of jobs has those that were submitted by then. Those that still run have no end
        yet: -1.
    int
        The clock of the checkpoint, seconds.

    Raises
    ------
    InputError
        When the folder has no checkpoint, or a damaged one.
    """
    replay = _unpickled(folder / CHECKPOINT, _Replay)
    workload = _unpickled(folder / LOG, Workload)
    simulation = replay.simulation
    simulation.workload = workload
    if isinstance(simulation, CompiledSimulation):
        simulation.system = from_file(msgspec.convert(replay.about["system"], SystemFile))
        simulation.records, now = records_so_far(simulation, workload, simulation.system)
    else:
        now = simulation.now
    end_s = simulation.records.end_s
    end_s[end_s > now] = NOT_STARTED
    run = run_of(
        simulation, replay.about | {"compiled": isinstance(simulation, CompiledSimulation)}
    )
    submitted = int(np.searchsorted(workload.table.submit_s, now, side="right"))
    return replace(run, job_table=run.job_table.slice(0, submitted)), now


def check_same_run(found: dict[str, Any], wanted: dict[str, Any], where: Path) -> None:
    """Raise when a folder's run differs from the wanted one in anything that matters."""
    # Other arguments change the jobs, too: they are told first.
    for key, value in sorted(wanted.items(), key=lambda item: item[0] == "workload_sha256"):
        if key not in ("python", "notes", "workload", "began_s") and found.get(key) != value:
            if key == "workload_sha256":
                differs = "its jobs are others (another log, or another part of it)"
            elif isinstance(value, dict):
                differs = f"its {_option(key)} differs"
            else:
                differs = f"its {_option(key)} is {found.get(key)!r}, not {value!r}"
            raise UsageError(
                f"{where} belongs to another run: {differs}; use the same arguments, --overwrite, "
                "or another folder"
            )


def _option(key: str) -> str:
    """What users call an argument of a run."""
    return key.removesuffix("_s").replace("_", " ")


def claim(
    folders: Sequence[Path], *, resume: bool, overwrite: bool, resumable: bool = True
) -> None:
    """Make sure that runs may be written into folders; with ``overwrite``, empty these of others.

    Where ``resumable`` is false, the message does not advise to go on with what is there.

    Raises
    ------
    UsageError
        When one of them holds something and neither ``resume`` nor ``overwrite`` is meant. Nothing
        is removed then.
    """
    for folder in folders:
        _check_free(folder, taken=resume or overwrite, resumable=resumable)
    if overwrite:
        for folder in folders:
            forget(folder)
        _forget_other_draws(folders)


def _check_free(folder: Path, *, taken: bool, resumable: bool) -> None:
    """Raise where no run may be written into a folder; one that holds something may be taken."""
    if not is_empty(folder) and not taken:
        go_on = "--resume to go on with it, " * resumable
        raise UsageError(
            f"{folder} holds another run: add {go_on}--overwrite to replace it, or choose another "
            "folder"
        )


def _forget_other_draws(folders: Iterable[Path]) -> None:
    """Remove the draws that an earlier command made beside these runs, which replace its runs.

    Taken together with these, they would be draws of one experiment.

    Parameters
    ----------
    folders : iterable of path
        Of the runs to be made. Those of draws and seeds are named ``draw-3`` and ``seed-3``.
    """
    kept = {folder.absolute() for folder in folders}
    for parent in {folder.parent for folder in kept if DRAW.fullmatch(folder.name)}:
        for other in parent.iterdir() if parent.is_dir() else ():
            if DRAW.fullmatch(other.name) and other not in kept and other.is_dir():
                forget(other)
                if not any(other.iterdir()):
                    other.rmdir()


DRAW = re.compile(r"(draw|seed)-\d+")
"""What the folder of a draw, or of a seed, is called."""


def forget(folder: Path) -> None:
    """Remove a run from its folder; what else is there stays."""
    for name in (ABOUT, *FILES, CHECKPOINT, LOG, STATUS):  # first what makes a run of the others
        (folder / name).unlink(missing_ok=True)


def finished(run: Run, folder: Path) -> None:
    """Save a run, and remove its checkpoint and its status file."""
    run.save(folder)
    for name in (CHECKPOINT, LOG, STATUS):
        (folder / name).unlink(missing_ok=True)


class Fingerprint:
    """SHA-256 of the jobs of a workload, and of their dependencies if the replay honours them.

    A workload may be added in several parts.

    Each column has a digest of its own, and the fingerprint is the digest of these, and of names,
    begin times, licences and arrays where there are some.
    """

    def __init__(self, workload: Workload, dependencies: bool = False) -> None:
        self._resources = repr(workload.resources).encode()
        self._dependencies = dependencies
        self._digests = [
            hashlib.sha256() for _ in range(len(workload.table.columns) + 1 + 2 * dependencies)
        ]
        self._restartable = self._priority = self._tier = False
        self._terms: list[bytes] = []

    def add(self, workload: Workload) -> None:
        """Take in the jobs of a workload, or of its next part."""
        columns = [*workload.table.columns, workload.runtime_s]
        if self._dependencies:
            columns += [workload.preceding, workload.think_s]
        for digest, column in zip(self._digests, columns, strict=True):
            digest.update(np.ascontiguousarray(column).data)
        self._terms += _terms(workload)
        self._restartable |= bool(workload.table.restartable.any())
        self._priority |= bool(workload.table.priority.any())
        self._tier |= bool((workload.table.tier != USUAL_TIER).any())

    def __str__(self) -> str:
        digests = list(self._digests)
        if not self._tier:
            del digests[Column.TIER]  # as without the column
        if not self._priority:
            del digests[Column.PRIORITY]  # as without the column
        if not self._restartable:
            del digests[Column.RESTARTABLE]  # a log says nothing, or that none may be
        whole = hashlib.sha256(self._resources)
        for digest in digests:
            whole.update(digest.digest())
        for part in self._terms:
            whole.update(part)
        return whole.hexdigest()


def _terms(workload: Workload) -> Iterator[bytes]:
    """What else tells jobs from others, each with its name; nothing where there is none of it."""
    for name, labels in sorted(workload.table.labels.items()):
        yield repr((name, labels)).encode()
    columns = {"array_limit": workload.array_limit()}
    for name in TERMS:
        columns[name], texts = workload.asked(name)
        if any(texts):
            yield repr((name, texts)).encode()
    if workload.begin_s is not None:
        columns["begin"] = workload.begin_s + 1
    for name, column in columns.items():
        if column.any():
            yield name.encode() + hashlib.sha256(np.ascontiguousarray(column).data).digest()


def fingerprint(workload: Workload, dependencies: bool = False) -> str:
    """The `Fingerprint` of a whole workload."""
    found = Fingerprint(workload, dependencies)
    found.add(workload)
    return str(found)
