"""Slurm watched: what a dispatcher would start now, and why the other jobs wait."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cpdispatch.access import said
from cpdispatch.adapters.decided import decided
from cpdispatch.adapters.slurm.cluster import WHOLE, Job, Source, read
from cpdispatch.adapters.slurm.durations import Durations
from cpdispatch.adapters.slurm.gain import Gain
from cpdispatch.adapters.slurm.picture import Picture, Tests, take
from cpdispatch.adapters.slurm.rules import Rules, waits
from cpdispatch.decision import Decision, Reason
from cpdispatch.dispatch import Dispatcher
from cpdispatch.instance import Instance
from cpdispatch.solution.reasons import explain_waiting, left_free


@dataclass(frozen=True, slots=True)
class Seen:
    """A waiting job, and what would become of it.

    Attributes
    ----------
    job, user, partition : str
    waited_s, units : int
        Since its submission; nodes that it asks for.
    nodes : tuple of str
        Where it would start now; empty if it would not.
    why : str
    """

    job: str
    user: str
    partition: str
    waited_s: int
    units: int
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class View:
    """A cluster at a time as a dispatcher sees it.

    Attributes
    ----------
    now_s, running : int
        Slurm's time; jobs that run.
    jobs : tuple of Seen
        The queue.
    left : dict
        Why each job would be left to Slurm's own scheduler.
    not_asked : tuple of str
        Other jobs that wait: for a dependency, a partition, or other tasks of their array.
    unread : tuple of str
        What of Slurm's answers could not be understood.
    instance : Instance
    """

    now_s: int
    running: int
    jobs: tuple[Seen, ...]
    left: dict[str, str]
    not_asked: tuple[str, ...]
    unread: tuple[str, ...]
    instance: Instance


def watch(
    source: Source,
    dispatcher: Dispatcher,
    rules: Rules,
    durations: Durations | None = None,
    gain: Gain | None = None,
    budget_s: float = 1e9,
) -> View:
    """Read a cluster and ask a dispatcher what it would start now. Nothing is changed.

    Parameters
    ----------
    source : Source
    dispatcher : Dispatcher
    rules : Rules
    durations : Durations, optional
        Predicts how long jobs last, and learns from what is read. Default: requested times.
    gain : Gain, optional
        A shadow simulation that goes on with what is read, for about ``budget_s`` seconds.

    Raises
    ------
    SlurmError
        When Slurm cannot be read.
    DecisionError
        When the dispatcher fails.
    """
    cluster = read(source, rules.whole_cores)
    rules.check(cluster)
    if durations is not None:
        durations.see(cluster)
    if gain is not None:
        gain.see(cluster, budget_s)
    picture = take(
        cluster, lambda job: waits(job, rules), memory=rules.memory,
        durations=None if durations is None else durations.of,
        tests=Tests(lambda job: rules.tests and job.restartable and not job.restarts, {}),
    )  # fmt: skip
    decision = decided(dispatcher, picture.instance)
    left = {job.key: why for job, why in picture.left}
    asked = {job.own for job in picture.jobs}
    return View(
        cluster.now_s,
        sum(job.running for job in cluster.jobs),
        tuple(seen_of(picture, decision)),
        left,
        tuple(
            job.key for job in cluster.jobs
            if waits(job, rules) and job.own not in asked and job.key not in left
        ),
        cluster.unread,
        picture.instance,
    )  # fmt: skip


def seen_of(picture: Picture, decision: Decision) -> list[Seen]:
    """What becomes of each job of the queue, in its order."""
    instance = picture.instance
    keys = {job.number: job.key for job in picture.jobs}
    tests = picture.tests(decision)
    nodes_of = {job.key: nodes for job, nodes in picture.starts(decision)}
    left = left_free(instance, decision)
    seen = []
    for position, job in enumerate(picture.jobs):
        nodes = nodes_of.get(job.key, ())
        if nodes:
            backfilled = decision.reason[position] == Reason.BACKFILLED
            why = "ahead of a job that waits" if backfilled else "in its turn"
            if job.key in tests:
                why = f"for a test run of {tests[job.key]} s"
        else:
            why = explain_waiting(instance, decision, position, left)
            why = _in_words(why, job, instance, keys)
        waited_s = max(instance.now - job.submit_s, 0)
        units = int(instance.queue.units[position])
        seen.append(Seen(job.key, job.user, job.partition, waited_s, units, nodes, why))
    return seen


def _in_words(why: str, job: Job, instance: Instance, keys: dict[int, str]) -> str:
    """A reason without the instance's own resource types, job numbers and times."""
    if found := re.fullmatch(r"(reserved from|waits until) (\d+)", why):
        words = "reserved" if found[1] == "reserved from" else "waits for its earliest start"
        return f"{words}, in {int(found[2]) - instance.now} s"
    if found := re.fullmatch(r"waits for (jobs?) ([\d, ]+)", why):
        numbers = (int(number) for number in found[2].split(", "))
        return f"waits for {found[1]} " + ", ".join(keys.get(n, str(n)) for n in numbers)
    if why.startswith("waits for "):
        kinds = [_kind(kind, job) for kind in why.removeprefix("waits for ").split(" and ")]
        return "waits for " + " and ".join(dict.fromkeys(kinds))
    return why


def _kind(kind: str, job: Job) -> str:
    """What is short, in words of the site, given how reasons call it; see `access.said`."""
    if kind.startswith(said("core@set")):
        return "nodes that it may use"
    if kind.startswith("apart"):
        return "different nodes"
    if kind == said("core@whole"):
        return "whole nodes" if job.exclusive else "core"
    if kind == said("mem@whole"):
        return "all memory of a node" if job.memory_mb == WHOLE else "mem"
    return kind
