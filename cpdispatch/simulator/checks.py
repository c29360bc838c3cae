"""Checks of the arguments of a replay: which are possible, and which exclude each other.

What is wrong is a `UsageError`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.bounded import Bounded
from cpdispatch.compiled.correction import CORRECTIONS
from cpdispatch.dispatch import SEED_MAX, Dispatcher
from cpdispatch.energy import Steps, check_cap
from cpdispatch.errors import UsageError, unknown
from cpdispatch.events import Events
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.jobs import Starvation, Workload
from cpdispatch.parameters import whole
from cpdispatch.system import LIMIT, System
from cpdispatch.terms import begins_later, gated

TRIGGERS = ("instant", "event")


def cost_s_of(given: Any) -> int:
    """The cost of a restart, seconds."""
    return whole("restart_cost_s", given, 0, LIMIT, of="seconds")


def idle_s_of(given: Any) -> int:
    """How long a node is idle before it is switched off, seconds."""
    return whole("switch_off_s", given, 1, LIMIT, of="seconds")


def seed_of(given: Any) -> int:
    """The seed of what is drawn at random."""
    return whole("seed", given, 0, SEED_MAX)


def check_rules(
    trigger: str, correction: str, restart_cost_s: int, starvation: Starvation | None = None
) -> None:
    """Raise when there is no such trigger, correction, cost or starvation bound."""
    if trigger not in TRIGGERS:
        raise unknown("trigger", trigger, TRIGGERS)
    if correction not in [*CORRECTIONS]:
        raise unknown("correction", correction, CORRECTIONS)
    cost_s_of(restart_cost_s)
    if starvation is not None and not isinstance(starvation, Starvation):
        raise UsageError(f"starvation {starvation!r}: cpdispatch.instance.Starvation is needed")
    if starvation is not None:
        for name, most in (("threshold_s", LIMIT), ("bound_s", LIMIT), ("wide", 1000)):
            whole(f"starvation.{name}", getattr(starvation, name), most=most)


def check_kind(name: str, given: object, kind: type, advice: str = "") -> None:
    """Raise when an argument is not of the type that is needed."""
    if not isinstance(given, kind):
        advice = advice and f"; {advice}"
        found = type(given).__name__
        raise UsageError(f"{name} of type {found}: a {kind.__name__} is needed{advice}")


def check_switches(**given: object) -> None:
    """Raise when a rule that is on or off is something else."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise UsageError(f"{name} {value!r}: True or False is needed")


def check_case(workload: Workload, system: System) -> None:
    """Raise when these are no workload and its system."""
    advice = "cpdispatch.prepare gives workload and system"
    check_kind("workload", workload, Workload, advice)
    check_kind("system", system, System, advice)
    if workload.resources != system.resources:
        raise UsageError(
            f"workload {workload.name} asks for {', '.join(workload.resources)}, system "
            f"{system.name} has {', '.join(system.resources)}: fit it to the system first"
        )


def check_power_cap(cap: Steps, workload: Workload, system: System, kill_at_limit: bool) -> None:
    """Raise when a cap cannot be kept for sure."""
    check_cap(cap, system)
    longer = int(np.count_nonzero(workload.runtime_s > workload.table.requested_s))
    if len(cap.values) > 1 and longer and not kill_at_limit:
        raise UsageError(
            f"{longer} jobs of {workload.name} run longer than they request, so that a power cap "
            "which changes could not be kept for sure: add --kill-at-limit, or drop them with "
            "--filter"
        )


def check_switching(system: System, idle_s: int) -> None:
    """Raise when no node of a system can be switched off."""
    idle_s_of(idle_s)
    if not system.wake_s:
        raise UsageError(
            f"system {system.name} does not say how long its nodes take to be back when they were "
            f"switched off: add wake_s to its file, as wake_s = {{{system.groups[0].site_name} = "
            "120}"
        )


def check_restarts(
    workload: Workload,
    system: System,
    events: Events | None,
    power_cap: Steps | None,
    switch_off_s: int | None,
) -> None:
    """Raise when no job may be restarted for a misjudgement, or at a cost, beside these."""
    if power_cap is not None:
        raise UsageError(
            "a power cap excludes idempotent and restart_cost_s: leave them out, or the cap"
        )
    if events is not None and events.checkpoints is not None:
        raise UsageError(
            "checkpoints exclude idempotent and restart_cost_s: a job that is killed for a "
            "restart runs anew in full; leave one of them out"
        )
    if switch_off_s is not None:
        raise UsageError(
            "switch_off_s excludes idempotent and restart_cost_s: leave them out, or that"
        )
    check_gated(workload, system)


def check_gated(workload: Workload, system: System) -> None:
    """Raise when jobs wait behind the gate of limits, or for their time."""
    if gates := gates_of(workload, system):
        raise UsageError(
            f"{gates}, which exclude dependencies, idempotent and restart_cost_s: leave these out"
        )


def gates_of(workload: Workload, system: System) -> str:
    """What jobs wait for beside free nodes, in words; empty where there is nothing."""
    whose = f"jobs of {workload.name} have"
    for there, what in (
        (bool(system.limits), f"system {system.name} has limits"),
        (any(terms.licences for terms in workload.terms), f"{whose} licences"),
        (gated(workload, system), f"{whose} limits of arrays"),
        (begins_later(workload), f"{whose} begin times"),
    ):
        if there:
            return what
    return ""


def check_fresh(dispatcher: Dispatcher) -> None:
    """Raise when a dispatcher of the package has met instances, which it remembers.

    One of the user's own may keep what it knows from one simulation to the next.
    """
    if isinstance(dispatcher, Backfill | Bounded) and not dispatcher.fresh:
        raise UsageError(
            f"dispatcher {dispatcher.name} was used already, and remembers it: make another one "
            "for this simulation"
        )


def check_tests(
    dispatcher: Dispatcher,
    events: Events | None,
    power_cap: Steps | None,
    switch_off_s: int | None,
) -> None:
    """Raise when a dispatcher is to make test runs where there are none."""
    if not getattr(dispatcher, "test_s", None):
        return
    for there, where, what in (
        (events and events.checkpoints, "where jobs write checkpoints", "these"),
        (power_cap, "under a power cap", "the cap"),
        (switch_off_s, "where nodes are switched off", "that"),
    ):
        if there is not None:
            raise UsageError(
                f"dispatcher {dispatcher.name} makes test runs, which there are not {where}: "
                f"leave test out, or {what}"
            )
