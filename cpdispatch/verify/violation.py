"""A violation: which rule is broken, and in words by which job, where and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cpdispatch.system import System

_NAMED = 5
"""Jobs that a sentence names at most."""


class Kind(StrEnum):
    """Which rule a violation breaks."""

    SHAPE = "shape"
    """The arrays of a decision do not belong together."""
    DIGEST = "digest"
    """A solution is of another instance."""
    UNKNOWN_JOB = "unknown job"
    """A job is named that the instance does not have."""
    RUNNING_JOB = "running job"
    """A running job is planned again."""
    REPEATED_JOB = "repeated job"
    """A job is named, or placed, twice."""
    MISSING_JOB = "missing job"
    """A queued job is not named."""
    EARLY_START = "early start"
    """A job starts before the instance's time, or before it was submitted."""
    REASON = "reason"
    """The reason of a job says the contrary of whether it starts now, or of why it can have."""
    PLACEMENT = "placement"
    """A job that starts has no nodes, or one that does not start has some."""
    UNITS = "units"
    """The units on the nodes are not the job's units, a count is not positive, or a job asks for
    nothing.
    """
    NODE = "node"
    """A node does not exist, or a job names it twice."""
    DOWN = "down"
    """A node that is out of service is used."""
    CAPACITY = "capacity"
    """A node holds more of a resource than it has."""
    POOL = "pool"
    """Jobs planned without nodes need more than the whole system has left."""
    RESERVATION = "reservation"
    """Reserved capacity is used."""
    ACCESS = "access"
    """A job uses a node that it may not use, or shares one that it takes whole."""
    LIMIT = "limit"
    """More runs at once than a limit of the system allows."""
    POWER = "power"
    """The power cap is exceeded."""
    ENERGY = "energy"
    """The stated energy of a job is not what it drew."""
    DEPENDENCY = "dependency"
    """A job starts before the jobs that it comes after have ended, or before its earliest start."""
    STARVATION = "starvation"
    """A starved job is planned later than its bound though it could start earlier."""
    LATE = "late"
    """A job that had waited too long was passed over, or the measure of that fell."""
    OBJECTIVE = "objective"
    """The objective is unknown, or there is none for a value."""
    VALUE = "value"
    """The stated value is not the objective of the plan."""
    BOUND = "bound"
    """The stated lower bound lies above the value."""
    STATUS = "status"
    """The status is unknown, or says more than the plan, its value and its bound."""
    DURATION = "duration"
    """A job did not run for its runtime, or was not cut at its limit."""
    RESTART = "restart"
    """A job is stopped or killed that may not be restarted, or the bound of a start is none."""
    SPREAD = "spread"
    """A job has more or fewer units on a node, or nodes, than it asks for."""
    DECISION = "decision"
    """The table of decisions has other times or numbers than the table of jobs leads to."""
    PROMISE = "promise"
    """A promised start is none that could be promised, or was not kept where promises are."""
    TEST = "test"
    """The result of a test run is not what became of the job."""
    NEVER_STARTED = "never started"
    """A job was left out though it could have been started."""
    MORE = "more"
    """How many violations are not listed."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: which, and in words the job, node, resource, time, found and allowed."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def place_text(system: System, node: int, resource: int, time: int) -> str:
    """A resource of a node at an instant, in words."""
    group = system.groups[system.group_of[node]].name
    return f"node {node} ({group}), {system.resources[resource]} at {time}"


def jobs_text(ids: Iterable[int]) -> str:
    """Jobs by their identifiers, in words: the first few of them, and how many more."""
    listed = sorted(set(ids))
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"job{'s' * (len(listed) > 1)} " + ", ".join(map(str, listed[:_NAMED])) + more


def too_soon_text(name: str, before: int, end_s: int, think_s: int) -> str:
    """When a job may start that comes after another one, in words."""
    thinks = f", think time {think_s} s" if think_s else ""
    return f"{name}, allowed from {end_s + think_s} on: job {before} ends at {end_s}{thinks}"
