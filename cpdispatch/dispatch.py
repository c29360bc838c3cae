"""Dispatchers by name: the protocol, the registry, and the one place that puts one together."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cpdispatch import own, readers, toys
from cpdispatch.decision import Decision, wrong_type
from cpdispatch.errors import (
    CpdispatchError,
    DecisionError,
    InputError,
    RenamedWarning,
    UsageError,
    nearest,
    unknown,
)
from cpdispatch.files import parse_toml
from cpdispatch.garbage import settle
from cpdispatch.instance import Instance
from cpdispatch.parameters import known, pairs, switch, whole


class Dispatcher(Protocol):
    """What the simulator needs of a dispatcher; a user's own is as good as any."""

    @property
    def name(self) -> str:
        """Name in tables."""

    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where."""


@runtime_checkable
class Warming(Protocol):
    """A dispatcher that compiles what its decisions call by a way of its own."""

    def warm_up(self, instances: Sequence[Instance]) -> None:
        """Compile all that decisions on such instances call, or load it from the cache."""


@runtime_checkable
class Renaming(Protocol):
    """A dispatcher that is called what another one in it is called."""

    def renamed(self, name: str) -> Dispatcher:
        """The same under another name."""


def predictor_of(dispatcher: Dispatcher) -> str:
    """The predictor that a simulation takes for a dispatcher when none is named."""
    return str(getattr(dispatcher, "predictor", "walltime"))


def answer_of(dispatcher: Dispatcher, instance: Instance) -> Decision:
    """The decision of a dispatcher, which may be a user's own.

    If jobs take something once, on their first nodes, a dispatcher without ``takes_first`` is asked
    by `cpdispatch.first_node`.

    Raises
    ------
    DecisionError
        When it raises an error or answers with something else; the message says at what time.
    """
    if instance.system.once and not getattr(dispatcher, "takes_first", False):
        from cpdispatch import first_node

        ask, ours = partial(_answer_of, dispatcher), own.is_ours(dispatcher)
        return first_node.answered(ask, instance, dispatcher.name, stated=ours)
    return _answer_of(dispatcher, instance)


def _answer_of(dispatcher: Dispatcher, instance: Instance) -> Decision:
    """The decision of a dispatcher about an instance whose jobs ask for units alone."""
    try:
        decision = dispatcher.dispatch(instance)
    except CpdispatchError:
        raise
    except own.FAILS as error:
        what = own.raised(f"dispatcher {dispatcher.name}", error)
        raise DecisionError(f"{what} {_at(instance)}") from error
    if not isinstance(decision, Decision):
        raise DecisionError(
            f"dispatcher {dispatcher.name} answered with {type(decision).__name__} instead of a "
            f"Decision {_at(instance)}: its method dispatch must return one"
        )
    if (wrong := wrong_type(decision)) is not None:
        part, found, needed = wrong
        raise DecisionError(
            f"dispatcher {dispatcher.name} answered with {found} as {part} of its Decision "
            f"{_at(instance)}: {needed} is needed"
        )
    return decision


def _at(instance: Instance) -> str:
    return f"at time {instance.now} (jobs in the queue: {len(instance.queue)})"


def check_keeps_bound(dispatcher: Dispatcher, bound: str) -> None:
    """Raise where a starvation bound, which the user calls so, would not be kept."""
    if keeps_starvation_bound(dispatcher) is False:
        raise UsageError(
            f"dispatcher {dispatcher.name} knows no starvation bound: leave {bound} out, or use "
            "hcp or pcp, which keep it"
        )


def keeps_starvation_bound(dispatcher: Dispatcher) -> bool | None:
    """Whether a dispatcher's plans keep to the starvation bound of an instance.

    Returns
    -------
    bool or None
        None for one that makes no plans with an objective, such as a rule: it is not bound.
    """
    kept: bool | None = getattr(dispatcher, "keeps_starvation_bound", None)
    return kept


def goes_by_priority(dispatcher: Dispatcher) -> bool:
    """Whether a dispatcher orders or weighs jobs by the site's priority."""
    from cpdispatch.heuristics.policies import Policy

    inner = getattr(dispatcher, "inner", dispatcher)
    orders = (getattr(inner, name, None) for name in ("primary", "secondary"))
    by_order = any(getattr(order, "policy", None) == Policy.PRIORITY for order in orders)
    return by_order or str(getattr(inner, "objective", "")).startswith("priority_")


def rule_of(dispatcher: Dispatcher, tiers: bool) -> dict[str, dict[str, bool | str]]:
    """What a run tells of a queue rule that starts jobs in an order: nothing of any other.

    ``first_come``: whether the turn of jobs is by submission. ``keeps_promises``: whether a start
    that a job is promised is kept in later decisions. ``strict``: whether no job is backfilled.
    ``order``: where it is strict, and goes by expected durations alone, ``shortest`` or ``longest``
    first. ``tiers`` is whether some jobs come first because of their tier.
    """
    from cpdispatch.bounded import Bounded
    from cpdispatch.heuristics.backfill import Backfill
    from cpdispatch.heuristics.policies import NO_THRESHOLD, Policy
    from cpdispatch.heuristics.priority_rule import PriorityRule

    rule = dispatcher.inner if type(dispatcher) is Bounded else dispatcher
    if type(rule) is PriorityRule:
        return {"rule": {"first_come": False, "keeps_promises": False, "strict": False}}
    if type(rule) is not Backfill:
        return {}
    first_come = rule.primary.policy == Policy.FCFS and not tiers
    kept, strict = rule.depth > 1, rule.depth == 0
    found = {"first_come": first_come, "keeps_promises": kept, "strict": strict}
    named = {Policy.SPF: "shortest", Policy.LPF: "longest"}.get(rule.primary.policy)
    if named and strict and not tiers and rule.threshold_s == NO_THRESHOLD:
        return {"rule": {**found, "order": named}}
    return {"rule": {**found}}


def faults_of(dispatcher: Dispatcher) -> dict[str, int]:
    """What went wrong inside a dispatcher so far, and how often; empty where it does not say."""
    return {
        f"dispatcher {dispatcher.name}, {fault}": count
        for fault, count in getattr(dispatcher, "faults", {}).items()
    }


SEED_MAX = 2**31 - 1
"""The largest seed that CP-SAT takes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run gives to every dispatcher that it puts together.

    Attributes
    ----------
    limit_s : float
        Time limit of each decision, seconds.
    seed : int
        From 0 to `SEED_MAX`.
    alone : bool
        Whether each instance is the only one that a dispatcher meets. What EASY would have led to
        before is not known then: waits are bounded where that is asked for.

    Raises
    ------
    UsageError
        When the limit or the seed is of no use.
    """

    limit_s: float = 1.0
    seed: int = 0
    alone: bool = False

    def __post_init__(self) -> None:
        try:
            limit_s = readers.limit_s(self.limit_s)
        except ValueError as error:
            raise UsageError(f"limit_s {self.limit_s!r}: {error}") from error
        object.__setattr__(self, "limit_s", limit_s)
        object.__setattr__(self, "seed", whole("seed", self.seed, 0, SEED_MAX))

    def wait(self, usual: float) -> float:
        """The share of EASY's longest wait after which jobs come first, if nothing is asked for."""
        return 0.0 if self.alone else usual


Make = Callable[[Settings, dict[str, Any]], Dispatcher]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the registry."""

    summary: str
    """What the dispatcher does, in a sentence."""
    parameters: Mapping[str, Callable[[Any], Any]]
    """Name -> what turns a user's value into the one meant; raises ValueError."""
    make: Make
    """Puts the dispatcher together. It imports what it needs, so that a name costs nothing."""


# ------------------------------------------------------------------------- the registry


def _bounded(dispatcher: Any, in_turn_after: float) -> Dispatcher:
    """A dispatcher, with its waits bounded unless that is switched off."""
    from cpdispatch.bounded import Bounded
    from cpdispatch.heuristics.wait_bound import WaitBound

    if not in_turn_after:
        return dispatcher  # type: ignore[no-any-return]
    return Bounded(dispatcher, WaitBound(round(1000 * in_turn_after)))


def _backfill(**fixed: Any) -> Make:
    renamed = {
        "backfill": "secondary", "threshold": "threshold_s", "allocate": "best_fit",
        "test": "test_s",
    }  # fmt: skip

    def make(settings: Settings, given: dict[str, Any]) -> Dispatcher:
        from cpdispatch.heuristics.backfill import Backfill
        from cpdispatch.heuristics.policies import find

        wait = given.pop("wait", 0.0)
        if wait and "threshold" in given:
            raise UsageError("threshold plays no part beside wait: leave one of them out")
        chosen = {renamed.get(key, key): value for key, value in given.items()}
        policies = {
            key: find(value) for key, value in fixed.items() if key in ("primary", "secondary")
        }
        return _bounded(Backfill(**{**fixed, **policies, **chosen}, bounded=wait > 0), wait)

    return make


def _priority_rule(settings: Settings, given: dict[str, Any]) -> Dispatcher:
    from cpdispatch.heuristics.priority_rule import PriorityRule

    return PriorityRule(given.get("allocate", False))


def _best(settings: Settings, given: dict[str, Any]) -> Dispatcher:
    from cpdispatch.best import Best

    wait = given.pop("wait", settings.wait(WAIT))
    renamed = {"long": "long_s", "allocate": "best_fit", "test": "test_s"}
    return _bounded(Best(**{renamed.get(key, key): value for key, value in given.items()}), wait)


def _reject(settings: Settings, given: dict[str, Any]) -> Dispatcher:
    from cpdispatch.heuristics.priority_rule import Reject

    return Reject()


def _engine(settings: Settings, given: dict[str, Any], model: str = "") -> Dispatcher:
    """An engine around a model; around one that it chooses itself where none is named."""
    make: Callable[..., Any]
    if model:
        from cpdispatch.models.engine import Engine

        make = partial(Engine, model)
    else:
        from cpdispatch.models.hyper import make_hyper

        make = make_hyper
    limit_s = given.pop("limit", settings.limit_s)
    wait = given.pop("wait", settings.wait(WAIT_PLANNED))
    given.pop("tests", None)  # they come after all starts in any case
    if "test" in given:
        given["test_s"] = given.pop("test")
    return _bounded(make(limit_s=limit_s, seed=settings.seed, **given), wait)


def _pcp(settings: Settings, given: dict[str, Any]) -> Dispatcher:
    return _engine(settings, given, f"pcp:model={given.pop('model', 'copies')}")


def _thesis(variant: str) -> Make:
    def make(settings: Settings, given: dict[str, Any]) -> Dispatcher:
        from cpdispatch.models.thesis import VARIANTS, Thesis

        limit_s = given.pop("limit", settings.limit_s)
        return Thesis(VARIANTS[variant], limit_s=limit_s, seed=settings.seed, **given)

    return make


_ORDERS = {
    "primary": readers.policy, "backfill": readers.policy, "threshold": readers.seconds_of,
    "allocate": readers.allocation, "limits": readers.limits, "wait": readers.wait,
}  # fmt: skip
_TESTS = {"test": readers.test, "tests": readers.tests}
_STRICT = {"allocate": readers.allocation, "threshold": readers.seconds_of}
_CP = {"limit": readers.limit, "m": readers.count, "objective": readers.objective}
_ENGINE = {
    **_CP, "reserve": readers.depth, "patience": readers.share, "live": switch, "cp": switch,
    "release": switch, "limits": readers.limits, "wait": readers.wait, "test": readers.test,
    "tests": readers.left,
}  # fmt: skip
_HYPER = {key: read for key, read in _ENGINE.items() if key not in ("cp", "release")}

_THESIS = {
    "thesis-hcp": "the dissertation's HCP: all jobs, CP-SAT on the pool, best-fit allocation",
    "thesis-hcp1": "thesis-hcp with 100 jobs at most, which fit now; 3 fruitless searches at most",
    "thesis-hcp2": "thesis-hcp1; expects overdue running jobs to run 1 s more",
    "thesis-hcp3": "thesis-hcp2; minimises slowdown, and takes jobs in the order of slowdown",
    "thesis-pcp": "the dissertation's PCP: all jobs, CP-SAT places each unit as optional copies",
    "thesis-pcp1": "thesis-pcp with 100 jobs at most, which fit now; 3 fruitless searches at most",
    "thesis-pcp2": "thesis-pcp1; expects overdue running jobs to run 1 s more",
    "thesis-pcp3": "thesis-pcp2; minimises slowdown, and takes jobs in the order of slowdown",
    "thesis-pcp4": "thesis-pcp3 with counts of units on each node, and a relaxation of the pool",
    "thesis-pcp5": "thesis-pcp3 with units as boxes on one axis for each resource (no-overlap 2D)",
}
"""The dissertation's variants: what each does."""

REGISTRY: Mapping[str, Entry] = {
    "easy": Entry(
        "EASY backfilling by submission; easy-P-B: queue in order P, backfilling in order B",
        {**_ORDERS, "depth": readers.depth, **_TESTS},
        _backfill(),
    ),
    "conservative": Entry(
        "backfilling that promises every waiting job a start, and delays none",
        {**_ORDERS, **_TESTS},
        _backfill(depth=sys.maxsize),
    ),
    "fifo": Entry("first in, first out; stops at the first job that does not fit", _STRICT,
                  _backfill(depth=0)),
    "sjf": Entry("shortest expected job first; stops at the first job that does not fit", _STRICT,
                 _backfill(depth=0, primary="spf", secondary="spf")),
    "ljf": Entry("longest expected job first; stops at the first job that does not fit", _STRICT,
                 _backfill(depth=0, primary="lpf", secondary="lpf")),
    "best": Entry("EASY backfilling for predicted durations; waits bounded by EASY's longest",
                  {"long": readers.seconds_of, "keep": readers.part, "width": readers.real,
                   "allocate": readers.allocation, "wait": readers.wait, **_TESTS}, _best),
    "prb": Entry("jobs by wait over their queue's expected wait; skips jobs that do not fit",
                 {"allocate": readers.allocation}, _priority_rule),
    "reject": Entry("refuses every job; for measuring the simulator", {}, _reject),
    "hcp": Entry(
        "plans the queue by list schedules, local search, and CP-SAT on the pooled capacity",
        _ENGINE, partial(_engine, model="hcp"),
    ),
    "pcp": Entry(
        "as hcp, and CP-SAT also on the nodes; model=copies (default), counts or boxes",
        {**_ENGINE, "model": readers.formulation}, _pcp,
    ),
    "hyper": Entry(
        "an experiment, no better than hcp: chooses hcp or pcp for each instance, and learns",
        {**_HYPER, "record": readers.text}, _engine,
    ),
    **{name: Entry(summary, _CP, _thesis(name)) for name, summary in _THESIS.items()},
}  # fmt: skip
"""Every dispatcher by name."""

_BOUNDS = "best bounds waits by the longest wait under EASY: leave it out, or use wait"
_REMOVED: Mapping[str, str] = {
    "cp": "best is backfilling alone; leave cp out, or use -d hcp for constraint programming",
    "threshold": _BOUNDS,
    "strict": _BOUNDS,
    "adapt": "best chooses no settings while it runs; leave adapt out",
}
"""What to do instead of the parameters that `best` has no more."""


WAIT, WAIT_PLANNED = 0.6, 0.8
"""After which share of EASY's longest wait so far a job comes first, where nothing is said; and
under models, which plan such a job before all others."""

_FORMER: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "hcp1": ("hcp", {"objective": "ewt_weighted"}),
    "hcp2": ("hcp", {"objective": "ewt_weighted"}),
    "hcp3": ("hcp", {}),
    "pcp1": ("pcp", {"model": "copies", "objective": "ewt_excess"}),
    "pcp2": ("pcp", {"model": "copies", "objective": "ewt_excess"}),
    "pcp3": ("pcp", {"model": "copies"}),
    "pcp4": ("pcp", {"model": "counts"}),
    "pcp5": ("pcp", {"model": "boxes"}),
}
"""Names of earlier versions: what such a dispatcher is called now, and its parameters."""
_NONE: Mapping[str, str] = {}

DEFAULTS = Settings()

Warm = Callable[[Dispatcher], Sequence[Instance]]
"""Gives the instances on which a dispatcher that has just been made is warmed up."""


def fully(dispatcher: Dispatcher) -> Sequence[Instance]:
    """Instances of every kind: no later decision compiles."""
    return toys.every_kind() + toys.restartable()


def but_stopped(dispatcher: Dispatcher) -> Sequence[Instance]:
    """Instances of every kind but those with stopped jobs, which only a test run leads to."""
    return toys.every_kind() + (toys.restartable() if test_s(dispatcher) else ())


def test_s(dispatcher: Dispatcher) -> int:
    """How long the test runs of a dispatcher last where jobs may be restarted; 0 for none."""
    inner = getattr(dispatcher, "inner", dispatcher)
    return int(getattr(getattr(inner, "backfill", inner), "test_s", 0))


def limit_s_of(dispatcher: Dispatcher) -> float | None:
    """The time limit of each decision, seconds; None where a dispatcher of the package has none.

    One of the user's own does not say it.
    """
    if not own.is_ours(dispatcher):
        return None
    limit_s: float | None = getattr(getattr(dispatcher, "inner", dispatcher), "limit_s", None)
    return limit_s


def not_at_all(dispatcher: Dispatcher) -> Sequence[Instance]:
    """No instance: for a dispatcher that makes no decision."""
    return ()


def make(spec: str, settings: Settings = DEFAULTS, *, warm: Warm = fully) -> Dispatcher:
    """Put together the dispatcher that a user means.

    A dispatcher is made for one simulation or one loop: it remembers its promises, and what EASY
    would have done.

    Parameters
    ----------
    spec : str
        ``name``, ``name:parameter=value,...``, ``easy-P-B`` for two policies, a TOML file with
        ``dispatcher`` and its parameters, or ``package.module:attribute`` for a dispatcher of the
        user's own, or what makes one when called, see `cpdispatch.own.made`.
    settings : Settings
    warm : callable
        Gives the instances on which throw-away dispatchers like this one decide first, so that all
        that decisions on such instances call is compiled now, or loaded from the cache. It is not
        asked about a dispatcher of the user's own. Python's searches for cyclic garbage leave out
        from then on what is alive now (``gc.freeze``): they would hold decisions up.

    Raises
    ------
    UsageError
        When there is no such dispatcher or parameter, or a value is of no use.
    """
    if not isinstance(spec, str):
        raise UsageError(f"dispatcher {spec!r}: a text is needed, as easy or hcp:limit=0.5")
    if not isinstance(settings, Settings):
        raise UsageError(f"settings of type {type(settings).__name__}: a Settings is needed")
    if _is_file(spec):
        return _named(*_current(*_from_toml(Path(spec))), settings, spec, warm)
    spec = current(spec)
    name, _, rest = spec.partition(":")
    if _is_file(name):
        raise UsageError(
            f"dispatcher {spec}: a file takes no parameters after its name; write them into {name}"
        )
    if "." in name or (own.is_name(rest) and name not in REGISTRY and not name.startswith("easy-")):
        return _imported(spec, settings.seed)
    return _named(name, pairs(f"dispatcher {spec}", rest), settings, spec, warm)


def current(spec: str) -> str:
    """A dispatcher as it is called now; warns of a name that an earlier version had.

    Raises
    ------
    UsageError
        When such a name has parameters that are of no use.
    """
    name, _, rest = spec.partition(":")
    if name not in _FORMER and not (f"thesis-{name}" in REGISTRY and "engine" in rest):
        return spec
    name, given = _current(name, pairs(f"dispatcher {spec}", rest))
    parameters = ",".join(f"{key}={value}" for key, value in given.items())
    return f"{name}:{parameters}" if parameters else name


def _current(name: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and parameters as they are called now; warns of those of an earlier version."""
    if f"thesis-{name}" not in REGISTRY or (name not in _FORMER and "engine" not in given):
        return name, given
    engine = given.get("engine", "on")
    if engine not in ("on", "off", True, False):
        raise UsageError(
            f"dispatcher {name}, engine={engine}: parameter engine was removed: leave it out, or "
            f"write thesis-{name} for the model with the dissertation's search control"
        )
    rest = {key: value for key, value in given.items() if key != "engine"}
    former = f"{name}:engine={engine}" if "engine" in given else name
    if engine in ("off", False):
        found, more = f"thesis-{name}", _NONE
    else:
        found, more = _FORMER.get(name, (name, _NONE))
    now = ",".join(f"{key}={value}" for key, value in more.items() if key not in rest)
    warnings.warn(
        f"dispatcher {former} is now called {found}{':' if now else ''}{now}; "
        "the old name will go with the next release",
        RenamedWarning,
        stacklevel=4,
    )
    return found, {**more, **rest}


def _named(
    name: str,
    given: dict[str, Any],
    settings: Settings,
    spec: str,
    warm: Warm,
) -> Dispatcher:
    name, *orders = name.split("-") if name not in REGISTRY else [name]
    if orders:
        given = _with_orders(name, orders, given, spec)
    if name not in REGISTRY:
        raise unknown("dispatcher", name, REGISTRY)
    entry = REGISTRY[name]
    what = f"{spec}: dispatcher {name}" if _is_file(spec) else f"dispatcher {name}"
    values = {}
    for key, value in given.items():
        if name == "best" and key in _REMOVED:
            raise UsageError(f"dispatcher {spec}: parameter {key} was removed: {_REMOVED[key]}")
        known(what, key, entry.parameters)
        try:
            values[key] = entry.parameters[key](value)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{what}, {key}={value}: {error}") from error
        except UsageError as error:
            raise UsageError(f"dispatcher {spec}, {key}: {error}") from error
    dispatcher = entry.make(settings, dict(values))
    # A user's order that fails on a toy fails on a real job, too, and is reported then.
    with suppress(CpdispatchError):
        played = warm(dispatcher)
        if played and isinstance(dispatcher, Warming):
            dispatcher.warm_up(played)
        else:
            toys.play(lambda: entry.make(settings, dict(values)), played)
        if played:
            settle(name)
    return _relabelled(dispatcher, spec)


def is_model(spec: str) -> bool:
    """Whether a name is that of a dispatcher that solves a model at each decision."""
    entry = REGISTRY.get(spec.partition(":")[0])
    return entry is not None and "objective" in entry.parameters


def has_engine(spec: str) -> bool:
    """Whether a name is that of a dispatcher with the engine around its model."""
    entry = REGISTRY.get(spec.partition(":")[0])
    return entry is not None and "patience" in entry.parameters


def _with_orders(name: str, orders: list[str], given: dict[str, Any], spec: str) -> dict[str, Any]:
    """The parameters of easy-P-B: P is the order of the queue, B that of backfilling."""
    if name != "easy":
        raise unknown("dispatcher", "-".join([name, *orders]), REGISTRY)
    if len(orders) != 2:
        both = "-".join((orders * 2)[:2])
        raise UsageError(
            f"dispatcher {spec}: easy has two orders, of the queue and of backfilling: write "
            f"easy-P-B, for example easy-{both}"
        )
    told = dict(zip(("primary", "backfill"), orders, strict=True))
    for key in told.keys() & given.keys():
        raise UsageError(
            f"dispatcher {spec}: easy-{orders[0]}-{orders[1]} says {key} already: leave "
            f"{key}={given[key]} out, or write easy:primary=...,backfill=..."
        )
    return {**told, **given}


def _relabelled(dispatcher: Dispatcher, name: str) -> Dispatcher:
    """Call a dispatcher what the user called it: results of two settings are told apart by it."""
    from dataclasses import replace

    if isinstance(dispatcher, Renaming):
        return dispatcher.renamed(name)
    return dispatcher if dispatcher.name == name else replace(dispatcher, name=name)  # type: ignore[type-var]


def _is_file(spec: str) -> bool:
    return spec.endswith(".toml")


def said_in_file(dispatcher: str | Dispatcher) -> dict[str, Any]:
    """What the file of a dispatcher says, as ``{"dispatcher_file": ...}``; empty without a file.

    Results depend on it beside the name.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    if not isinstance(dispatcher, str) or not _is_file(dispatcher):
        return {}
    return {"dispatcher_file": parse_toml(Path(dispatcher), "a dispatcher file")}


def _from_toml(path: Path) -> tuple[str, dict[str, Any]]:
    data = parse_toml(path, "a dispatcher file")
    name = data.pop("dispatcher", None)
    if not isinstance(name, str):
        raise InputError(
            "the name of a dispatcher is missing", file=path, field="dispatcher", value=name
        )
    return name, data


def _imported(spec: str, seed: int) -> Dispatcher:
    try:
        dispatcher: Dispatcher = own.made(spec, "dispatch", f"dispatcher {spec}", seed, spec)
    except UsageError as error:
        no_module = isinstance(error.__cause__, ImportError)
        hint = nearest(spec.partition(":")[0], REGISTRY) if no_module else ""
        raise UsageError(f"{error}{hint}") from error
    return dispatcher
