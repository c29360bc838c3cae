"""Why a job of a live Slurm waits: what the dispatcher says, and who is on its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cpdispatch.adapters.decided import decided
from cpdispatch.adapters.slurm.cluster import HELD_BY_ADMIN, WHOLE, Cluster, Job, Source, read
from cpdispatch.adapters.slurm.drive import LAST, VAIN_MOST
from cpdispatch.adapters.slurm.picture import Picture, take, tasks_busy
from cpdispatch.adapters.slurm.rules import Rules, waits
from cpdispatch.adapters.slurm.watch import Seen, seen_of
from cpdispatch.decision import Decision
from cpdispatch.dispatch import Dispatcher
from cpdispatch.errors import UsageError
from cpdispatch.solution.reasons import left_free
from cpdispatch.words import clock, listed
from cpdispatch.workloads.slurm.values import task_ranges

MOST = 10
"""So many jobs are named; of the others it is said how many they are."""


def explain(source: Source, dispatcher: Dispatcher, rules: Rules, key: str) -> tuple[str, ...]:
    """Sentences about a job: why it waits, or that it does not. Nothing is changed.

    Parameters
    ----------
    key : str
        The job's number, or that of a task of an array, as ``12_3``. The number of an array stands
        for the first of its tasks that wait.

    Raises
    ------
    UsageError
        When Slurm shows no such job.
    SlurmError
        When Slurm cannot be read.
    DecisionError
        When the dispatcher fails.
    """
    cluster = read(source, rules.whole_cores)
    rules.check(cluster)
    picture = take(cluster, lambda job: waits(job, rules), memory=rules.memory)
    position = next((k for k, job in enumerate(picture.jobs) if _is(job, key)), None)
    if position is None:
        return tuple(_not_in_queue(cluster, picture, rules, key))
    decision = decided(dispatcher, picture.instance)
    seen = seen_of(picture, decision)[position]
    return tuple(_in_queue(cluster, picture, decision, position, seen, dispatcher.name))


def _is(job: Job, key: str) -> bool:
    return job.key == key or (job.array > 0 and str(job.array) == key)


def _not_in_queue(cluster: Cluster, picture: Picture, rules: Rules, key: str) -> Iterator[str]:
    """About a job that a dispatcher is not asked about."""
    # Of an array, a task that waits rather than one that runs or has ended.
    found = sorted(
        (job for job in cluster.jobs if _is(job, key)),
        key=lambda job: (job.key != key, not job.pending, not job.running),
    )
    array, _, task = key.partition("_")
    found += [
        job for job in cluster.jobs
        if job.tasks and str(job.array) == array and task.isdecimal()
        and any(int(task) in tasks for tasks in task_ranges(job.tasks))
    ]  # fmt: skip
    if not found:
        raise UsageError(
            f"--job {key}: Slurm shows no such job; it may have ended a while ago, or a task of a "
            "long array may not be among those that are looked at yet"
        )
    job = found[0]
    who = f"Job {key if job.tasks else job.key} of {job.user}"
    left = {each.key: why for each, why in picture.left}
    if job.running:
        nodes = ", ".join(sorted(share.node for share in job.shares))
        yield f"{who} runs since {clock(job.start_s)} on {nodes}."
    elif job.ended:
        yield f"{who} has ended: {job.state.lower()}."
    elif not job.pending:
        yield f"{who} is about to end or to be queued again: {job.state.lower()}."
    elif not rules.covers(job):
        yield f"{who} is in the partition {job.partition}, which is not asked about."
    elif job.key in left:
        yield f"{who} would be left to Slurm: {left[job.key]}."
    elif job.held and (job.others_hold or not rules.ours(job)):
        yield f"{who} is held by its user, or by an operator ({job.reason})."
    elif job.tasks_most and tasks_busy(cluster.jobs, job.array) >= job.tasks_most:
        yield (
            f"{who} waits for others of its array: {tasks_busy(cluster.jobs, job.array)} are "
            f"started, and its limit is {job.tasks_most} at a time."
        )
    elif job.dependency:
        yield f"{who} waits for its dependency to be met: {job.dependency}."
    else:
        yield f"{who} waits, and is not in the queue: its partition {job.partition} may be down."
    if job.pending and job.reason not in ("", "None"):
        yield f"Slurm's own reason is {job.reason}."


def _in_queue(
    cluster: Cluster,
    picture: Picture,
    decision: Decision,
    position: int,
    seen: Seen,
    name: str,
) -> Iterator[str]:
    instance, job = picture.instance, picture.jobs[position]
    yield f"Job {job.key} of {job.user} has waited {seen.waited_s:,} s in {job.partition}."
    if job.marked and job.reason == HELD_BY_ADMIN:
        yield "The driver has held it again, as it did not start, and releases it later."
    if job.marked and job.priority == LAST:
        yield (
            "The driver has left it to Slurm: it could not be driven, or Slurm did not start it "
            f"on nodes that it was given {VAIN_MOST} times. Slurm's own reason is {job.reason}."
        )
    each = "" if seen.units == 1 else "each "
    memory_mb = job.memory_mb_of(seen.units)
    memory = "all memory" if memory_mb == WHOLE else f"{memory_mb:,} MB"
    gpus = "".join(f", {many} {kind}" for kind, many in sorted(job.gpus_of(seen.units).items()))
    cpus = job.cpus_of(seen.units)
    size = "all CPUs" if job.exclusive else f"{cpus} CPU{'s' * (cpus > 1)}"
    plural = "s" if seen.units > 1 else ""
    yield f"It asks for {seen.units} node{plural}, {each}with {size}{gpus} and {memory}."
    if seen.nodes:
        yield f"{name} would start it now on {', '.join(seen.nodes)}: {seen.why}."
        return
    yield f"{name} does not start it now: {seen.why}."
    ahead = [each.key for each in picture.jobs[:position]]
    starts = {each.key: set(nodes) for each, nodes in picture.starts(decision)}
    if ahead:
        yield f"Before it in the order of submission: {listed(ahead, MOST)}."
    request = instance.queue.request[position]
    able = (instance.system.capacity >= request).all(axis=1)
    down = np.zeros(len(able), dtype=np.bool_)
    down[instance.down] = True
    free = (instance.free >= request).all(axis=1) & able & ~down
    left = (left_free(instance, decision) >= request).all(axis=1)
    names = np.array(picture.names)
    told = f"Nodes that are large enough and allowed: {int(able.sum())}"
    if (able & down).any():
        told += f"; {listed(names[able & down].tolist(), MOST)} cannot be used now"
    yield f"{told}; with room now: {int(free.sum())}."
    if (free & ~left).any():
        taken = set(names[free & ~left].tolist())
        by = [key for key, nodes in starts.items() if nodes & taken]
        room = f"Room on {listed(sorted(taken), MOST)} goes to jobs that would start now"
        yield f"{room}: {listed(by, MOST)}."
    yield from _holders(cluster, picture, set(names[able & ~down & ~free].tolist()))
    yield from _reserved(cluster, picture, set(names[able].tolist()))


def _holders(cluster: Cluster, picture: Picture, busy: set[str]) -> Iterator[str]:
    """Who runs on the nodes that have no room, by when it is expected to end."""
    running = picture.instance.running
    ends = dict(zip(running.jobs.id.tolist(), running.end_s.tolist(), strict=True))
    rows = []
    for job in cluster.jobs:
        on = sorted(busy & {share.node for share in job.shares}) if job.running else []
        if on and job.number in ends:
            rows.append((ends[job.number], job.key, on))
    rows.sort()
    for end_s, name, on in rows[:MOST]:
        yield f"Job {name} is on {listed(on, MOST)}; it is expected to end at {clock(end_s)}."
    if len(rows) > MOST:
        yield f"Jobs beside these that are on such nodes: {len(rows) - MOST}."


def _reserved(cluster: Cluster, picture: Picture, able: set[str]) -> Iterator[str]:
    """Which of the nodes that could take the job are reserved now, and until when."""
    for blocked in picture.instance.reservations:
        kept = sorted(able & {picture.names[node] for node in blocked.nodes})
        if kept and blocked.start_s <= cluster.now_s:
            yield f"A reservation keeps {listed(kept, MOST)} until {clock(blocked.end_s)}."
