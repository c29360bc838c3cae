"""Makes the corpus of dispatch instances in the folder ``instances``: the same files every time.

Run with the folder of public logs: ``python benchmarks/make_corpus.py --traces ../shared/traces``
(default: what CPDISPATCH_TRACES names). Workloads are played under EASY; every few hours the
dispatcher pauses, as at a restart: jobs arrive and end, and nothing starts. Instances are taken
from the pauses, where there is something to decide. See instances/README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import script

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.dispatch import make
from cpdispatch.heuristics.allocate import fits_now, start_in_order
from cpdispatch.instance import (
    Instance,
    Power,
    Reservation,
    dump,
    free_capacity,
    loads,
    to_json,
)
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator import Simulation
from cpdispatch.system import GB_IN_KB, NAMED, NodeGroup, System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import EURORA, HOUR_S, KIT, JobClass, Mix, Shape, generate

# ------------------------------------------------------------------------- systems and workloads

LARGE = System(
    "large",
    ("core", "gpu", "mem"),
    (
        NodeGroup("thin", 4000, (32, 0, 128)),
        NodeGroup("fat", 200, (64, 0, 1024)),
        NodeGroup("gpu", 400, (32, 4, 256)),
    ),
    GB_IN_KB,
)

CURIE = System("curie", ("core",), (NodeGroup("thin", 5040, (16,)),))

LARGE_MIX = Mix(
    "large",
    (
        JobClass(
            "cpu", 0.74, 100 * 60, 0.4, 4.0,
            ((1, 0.4), (2, 0.1), (4, 0.15), (8, 0.1), (16, 0.1), (32, 0.06), (64, 0.05),
             (128, 0.03), (512, 0.01)),
            (
                Shape(0.7, {"core": 32, "mem": 100}),
                Shape(0.2, {"core": 16, "mem": 60}),
                Shape(0.1, {"core": 8, "mem": 30}),
            ),
        ),
        JobClass(
            "fat", 0.06, 80 * 60, 0.3, 2.0,
            ((1, 0.6), (2, 0.25), (4, 0.1), (16, 0.05)),
            (Shape(0.6, {"core": 64, "mem": 900}), Shape(0.4, {"core": 32, "mem": 500})),
        ),
        JobClass(
            "gpu", 0.2, 60 * 60, 0.25, 4.0,
            ((1, 0.4), (2, 0.2), (4, 0.15), (8, 0.1), (16, 0.1), (64, 0.05)),
            (
                Shape(0.6, {"core": 8, "gpu": 1, "mem": 60}),
                Shape(0.4, {"core": 32, "gpu": 4, "mem": 240}),
            ),
        ),
    ),
    (("short", HOUR_S), ("normal", 8 * HOUR_S), ("long", 24 * HOUR_S)),
    users=300,
    runtime_s_max=20 * HOUR_S,
    tail=1.1,
    gap_s_mean=20.0,
)  # fmt: skip

Traces = Path
Source = Callable[[Traces], Workload]


def generated(mix: Mix, system: System, load: float, seed: int, jobs: int = 10_000) -> Source:
    """Jobs of the package's generator."""
    return lambda traces: generate(mix, jobs, seed, load, system)


def logged(
    name: str, system: System, rule: str, *, jobs: int | None = None, denser: float = 1.0
) -> Source:
    """A public log, or its first jobs, with submissions so many times as dense as they were."""

    def make_it(traces: Traces) -> Workload:
        workload, _ = prepare(traces / f"{name}.swf.gz", system, units=rule, jobs=jobs)
        if denser == 1.0:
            return workload
        block = workload.table.block.copy()
        block[Column.SUBMIT] = np.rint(block[Column.SUBMIT] / denser)
        return replace(workload, table=JobTable(block, workload.table.labels))

    return make_it


# ------------------------------------------------------------------------------ what is wanted


@dataclass(frozen=True, slots=True)
class Family:
    """The instances of one system.

    Attributes
    ----------
    system : System
    every_s : int
        Time from the end of a pause to the next one, seconds.
    sources : tuple of callable
        What is played.
    wanted : mapping of load to mapping of queued jobs to int
        How many instances.
    """

    system: System
    every_s: int
    sources: tuple[Source, ...]
    wanted: Mapping[str, Mapping[int, int]]


GAIA, SETH = NAMED["gaia"], NAMED["seth"]
FAMILIES = (
    Family(
        NAMED["eurora"],
        2 * HOUR_S,
        tuple(
            generated(EURORA, NAMED["eurora"], load, seed)
            for seed, load in enumerate(4 * (0.7, 0.8, 0.9) + (1.2, 1.2), start=1)
        ),
        {
            "easy": {10: 3, 30: 2},
            "loaded": {10: 4, 30: 8, 100: 8, 1000: 2},
            "overloaded": {30: 4, 100: 6, 1000: 2},
        },
    ),
    Family(
        GAIA,
        2 * HOUR_S,
        tuple(
            logged("UniLu-Gaia-2014-1", GAIA, "per-node", denser=denser)
            for denser in (1.0, 1.5, 2.0)
        ),
        {
            "easy": {10: 2, 30: 2, 100: 2},
            "loaded": {10: 3, 30: 5, 100: 6, 1000: 1},
            "overloaded": {30: 2, 100: 4, 1000: 1},
        },
    ),
    Family(
        NAMED["kit"],
        2 * HOUR_S,
        tuple(
            generated(KIT, NAMED["kit"], load, seed)
            for seed, load in enumerate(3 * (0.7, 0.8, 0.9) + (1.2,), start=1)
        ),
        {
            "easy": {10: 2, 30: 2, 100: 2},
            "loaded": {10: 3, 30: 6, 100: 6, 1000: 2},
            "overloaded": {30: 4, 100: 5, 1000: 2},
        },
    ),
    Family(
        LARGE,
        HOUR_S,
        tuple(
            generated(LARGE_MIX, LARGE, load, seed)
            for seed, load in enumerate(2 * (0.8, 0.9, 1.0) + (1.1,), start=1)
        ),
        {
            "easy": {10: 2, 30: 2, 100: 2},
            "loaded": {10: 2, 30: 4, 100: 5, 1000: 2},
            "overloaded": {30: 2, 100: 2, 1000: 1},
        },
    ),
    Family(
        CURIE,
        12 * HOUR_S,
        (logged("CEA-Curie-2011-2.1-cln", CURIE, "per-node", jobs=40_000),),
        {
            "easy": {10: 1, 30: 2, 100: 1},
            "loaded": {10: 2, 30: 3, 100: 4},
            "overloaded": {30: 2, 100: 3},
        },
    ),
    Family(
        SETH,
        12 * HOUR_S,
        tuple(
            logged("HPC2N-2002-2.2-cln", SETH, "processors", jobs=100_000, denser=denser)
            for denser in (1.0, 1.25)
        ),
        {
            "easy": {10: 2, 30: 2, 100: 2},
            "loaded": {10: 3, 30: 6, 100: 6, 1000: 1},
            "overloaded": {30: 3, 100: 4},
        },
    ),
)

DELAYS_S = (0, 60, 300, 1800, HOUR_S)
"""How long a pause has lasted before an instance is taken from it, in turn."""
PAUSE_S = 2 * HOUR_S
WARM_UP_S = 6 * HOUR_S
"""Before this the systems fill."""
DEPTH = 5
"""The first n of up to so many times n queued jobs are taken: schedulers look only so deep."""
FITTING_MIN = {"easy": 2, "loaded": 5, "overloaded": 4}
KINDS_MIN = {10: 3, 30: 4, 100: 6, 1000: 10}
"""How many of the jobs that fit are to differ, by queued jobs: among like jobs nothing is decided.

In an overloaded instance, in which few fit, three are enough.
"""

# ------------------------------------------------------------------------------ what there is


@dataclass(frozen=True, slots=True)
class Features:
    """What an instance is classified by.

    Attributes
    ----------
    fitting : int
        Queued jobs that fit now, each by itself.
    kinds : int
        How many of them differ in size, request or duration.
    load : str
        ``easy``, ``loaded`` or ``overloaded``, see `features`; empty when it is none of them.
    """

    fitting: int
    kinds: int
    load: str


def features(instance: Instance) -> Features:
    """Classify an instance.

    ``easy``: all jobs that fit now can start together. Otherwise these jobs ask for more of some
    resource, or of power, than is free: ``loaded`` when they are half of the queue or more,
    ``overloaded`` when they are less.
    """
    fitting = np.flatnonzero(fits_now(instance))
    jobs = instance.queue.take(fitting)
    asked = (jobs.request * jobs.units[:, None]).sum(axis=0)
    short = bool((asked > instance.free.sum(axis=0)).any())
    if instance.power is not None:
        short = short or int(instance.job_power(jobs).sum()) > instance.power_free()
    if short:
        load = "loaded" if 2 * len(fitting) >= len(instance.queue) else "overloaded"
    else:
        largest_first = np.argsort(-(jobs.units * jobs.request[:, 0]), kind="stable")
        started = start_in_order(instance, fitting[largest_first])
        load = "easy" if len(started) == len(fitting) else ""
    differing = np.vstack((jobs.units, jobs.expected_s, jobs.request.T))
    return Features(len(fitting), np.unique(differing, axis=1).shape[1], load)


def worth_it(instance: Instance, found: Features) -> bool:
    """Whether an instance of this class has something to decide."""
    if found.load == "":
        return False
    if found.fitting < FITTING_MIN[found.load]:
        return False
    kinds = {"easy": 1, "loaded": KINDS_MIN[len(instance.queue)], "overloaded": 3}
    return found.kinds >= kinds[found.load]


# -------------------------------------------------------------------------- playing and pausing


def paused(workload: Workload, system: System, every_s: int) -> Iterator[tuple[int, Instance]]:
    """Play a workload under EASY; the number of each pause, and the instances met in it."""
    simulation, easy = Simulation(workload, system), make("easy")
    number, begin_s, next_s = 0, -1, WARM_UP_S
    while (instance := simulation.advance()) is not None:
        if begin_s < 0 and instance.now >= next_s:
            number, begin_s = number + 1, instance.now
        if begin_s < 0:
            simulation.apply(easy.dispatch(instance))
            continue
        if instance.now >= begin_s + DELAYS_S[number % len(DELAYS_S)]:
            yield number, instance
        if instance.now >= begin_s + PAUSE_S:
            begin_s, next_s = -1, instance.now + every_s
            simulation.apply(easy.dispatch(instance))
        else:
            simulation.apply(nothing_starts(instance))


def nothing_starts(instance: Instance) -> Decision:
    """The answer of a dispatcher that is away."""
    jobs = len(instance.queue)
    start_s = np.full(jobs, NO_START, dtype=np.int64)
    reason = np.full(jobs, Reason.WAITS, dtype=np.int8)
    return Decision(start_s, reason, Placements.of({}), Certificate("paused"))


Key = tuple[str, int]
"""Load, and number of queued jobs."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """An instance that may go into the corpus.

    Attributes
    ----------
    pause : tuple of int, int
        Number of the source, and of the pause in it.
    about : Features
    instance : Instance
    """

    pause: tuple[int, int]
    about: Features
    instance: Instance


def candidates(family: Family, traces: Traces) -> dict[Key, list[Candidate]]:
    """The first worthwhile instance of each load and size in each pause."""
    found: dict[Key, list[Candidate]] = defaultdict(list)
    sizes = sorted({size for sizes in family.wanted.values() for size in sizes})
    for index, source in enumerate(family.sources):
        for number, instance in paused(source(traces), family.system, family.every_s):
            for size in sizes:
                if not size <= len(instance.queue) <= DEPTH * size:
                    continue
                head = replace(instance, queue=instance.queue.take(np.arange(size)))
                about = features(head)
                here = found[about.load, size]
                met = bool(here) and here[-1].pause == (index, number)
                if not met and worth_it(head, about):
                    here.append(Candidate((index, number), about, head))
    return found


def chosen(family: Family, found: Mapping[Key, list[Candidate]]) -> dict[Key, list[Instance]]:
    """So many candidates as are wanted, no two from one pause, from few to many jobs that fit."""
    wanted = {(load, n): many for load, by in family.wanted.items() for n, many in by.items()}
    used: set[tuple[int, int]] = set()
    taken: dict[Key, list[Instance]] = {}
    for key in sorted(wanted, key=lambda key: (len(found.get(key, ())) - wanted[key], key)):
        left = [candidate for candidate in found.get(key, []) if candidate.pause not in used]
        picked = spread(left, wanted[key])
        used.update(candidate.pause for candidate in picked)
        taken[key] = [candidate.instance for candidate in picked]
        if len(picked) < wanted[key]:
            print(f"{family.system.name} {key}: {len(picked)} of {wanted[key]}", file=sys.stderr)
    return taken


def spread(found: list[Candidate], many: int) -> list[Candidate]:
    """So many of these, spread evenly over the numbers of jobs that fit.

    Of those with the same number the first is the one whose jobs differ most.
    """
    picked: list[Candidate] = []
    left = sorted(found, key=lambda c: (c.about.fitting, -c.about.kinds, c.pause))
    while left and len(picked) < many:
        firsts = list({c.about.fitting: c for c in reversed(left)}.values())[::-1]
        count = min(many - len(picked), len(firsts))
        now = [firsts[(2 * k + 1) * len(firsts) // (2 * count)] for k in range(count)]
        picked += now
        left = [candidate for candidate in left if candidate not in now]
    return sorted(picked, key=lambda c: (c.about.fitting, c.pause))


# ------------------------------------------------------------------------------------- extras

WATTS = {"core": 12, "gpu": 225, "mic": 245, "mem": 1}


def with_down(instance: Instance) -> Instance:
    """A tenth of the nodes, idle ones in a row where possible, out of service."""
    idle = idle_nodes(instance, until_s=instance.now)
    return changed(instance, down=sealed(idle[: max(instance.system.nodes // 10, 1)]))


def with_window(instance: Instance) -> Instance:
    """A maintenance window of 4 h in 2 h, on a quarter of the largest group's nodes."""
    return changed(instance, reservations=(window(instance, 2 * HOUR_S, 4 * HOUR_S, 4),))


def with_cap(instance: Instance) -> Instance:
    """A power cap: running jobs and half of what is free may draw power together."""
    unit = tuple(WATTS[name] for name in instance.system.resources)
    held = instance.system.capacity - instance.free
    cap = int((held @ np.array(unit)).sum()) + int((instance.free @ np.array(unit)).sum()) // 2
    return changed(instance, power=Power(cap, unit))


def with_all(instance: Instance) -> Instance:
    """Nodes down, a power cap, a window, and a longer one later."""
    first = with_cap(with_down(with_window(instance)))
    later = window(first, 12 * HOUR_S, 8 * HOUR_S, 2)
    return changed(first, reservations=(*first.reservations, later))


def window(instance: Instance, in_s: int, duration_s: int, part: int) -> Reservation:
    """A part of the largest group, in a row where possible; its running jobs are to end before."""
    groups = instance.system.groups
    largest = max(range(len(groups)), key=lambda k: groups[k].nodes)
    idle = idle_nodes(instance, until_s=instance.now + in_s)
    idle = idle[instance.system.group_of[idle] == largest]
    nodes = tuple(idle[: groups[largest].nodes // part].tolist())
    return Reservation(instance.now + in_s, duration_s, nodes, groups[largest].capacity)


def idle_nodes(instance: Instance, until_s: int) -> IntArray:
    """Nodes in service on which no job is expected to run after an instant."""
    running = instance.running
    owner = np.repeat(np.arange(len(running)), np.diff(running.offset))
    busy = running.node[running.end_s[owner] > until_s]
    return np.setdiff1d(np.arange(instance.system.nodes), np.concatenate((busy, instance.down)))


def changed(instance: Instance, **fields: object) -> Instance:
    """The instance with other nodes down, reservations or power, and what is then free."""
    new = replace(instance, **fields)  # type: ignore[arg-type]
    return replace(
        new, free=free_capacity(new.system, new.running, new.down, new.reservations, new.now)
    )


EXTRAS: tuple[tuple[str, int, str, Callable[[Instance], Instance]], ...] = (
    ("eurora", 30, "down", with_down),
    ("eurora", 30, "window", with_window),
    ("eurora", 30, "cap", with_cap),
    ("eurora", 30, "all", with_all),
    ("eurora", 100, "window", with_window),
    ("eurora", 100, "cap", with_cap),
    ("gaia", 30, "down", with_down),
    ("gaia", 100, "window", with_window),
    ("kit", 30, "window", with_window),
    ("kit", 100, "cap", with_cap),
    ("kit", 100, "all", with_all),
    ("large", 100, "window", with_window),
    ("seth", 30, "window", with_window),
)
"""System, queued jobs, name, and what is done to an instance of its own."""


def extras(
    system: str, found: Mapping[Key, list[Candidate]], taken: Mapping[Key, list[Instance]]
) -> Iterator[tuple[str, Instance]]:
    """Name and instance of a system's extras, made of loaded candidates that were not taken."""
    used = {instance.now for instances in taken.values() for instance in instances}
    for name, size, extra, change in EXTRAS:
        if name != system:
            continue
        for candidate in found["loaded", size]:
            if candidate.instance.now in used:
                continue
            instance = change(candidate.instance)
            about = features(instance)
            if about.load != "easy" and worth_it(instance, about):
                used.add(instance.now)
                yield f"{system}-{about.load}-{size:04}-{extra}.json.gz", instance
                break
        else:
            print(f"{system} {size} {extra}: no candidate", file=sys.stderr)


# --------------------------------------------------------------------------------------- main


def made(family: Family, traces: Traces) -> Iterator[tuple[str, Instance]]:
    """File name and instance of a whole family."""
    found = candidates(family, traces)
    taken = chosen(family, found)
    for (load, size), instances in sorted(taken.items()):
        for k, instance in enumerate(instances, start=1):
            yield f"{family.system.name}-{load}-{size:04}-{k:02}.json.gz", instance
    yield from extras(family.system.name, found, taken)


HEADING = (
    "| system, load, queued | instances | fit now: least, median, most | kinds, median "
    "| running, median | nodes |\n|---|---|---|---|---|---|"
)


def row(name: str, instances: list[Instance]) -> str:
    """A row of the README's table."""
    about = [features(instance) for instance in instances]
    fitting = [one.fitting for one in about]
    spread = f"{min(fitting)}, {np.median(fitting):.0f}, {max(fitting)}"
    kinds = f"{np.median([one.kinds for one in about]):.0f}"
    running = f"{np.median([len(instance.running) for instance in instances]):.0f}"
    nodes = instances[0].system.nodes
    return f"| {name} | {len(instances)} | {spread} | {kinds} | {running} | {nodes:,} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    root = Path(__file__).resolve().parent.parent
    default = os.environ.get("CPDISPATCH_TRACES", root.parent / "shared" / "traces")
    parser.add_argument(
        "--traces", type=script.folder, default=Path(default), help="folder of public logs"
    )
    parser.add_argument("--out", type=Path, default=root / "instances")
    arguments = parser.parse_args()
    table, names = [HEADING], set()
    for family in FAMILIES:
        print(f"{family.system.name} ...", file=sys.stderr)
        rows: dict[str, list[Instance]] = defaultdict(list)
        for name, instance in made(family, arguments.traces):
            # As read again: the simulator does not sort running jobs of one start by id.
            dump(loads(to_json(instance)), arguments.out / name)
            names.add(name)
            system, load, queued, k = name.removesuffix(".json.gz").split("-")
            extra = "" if k.isdigit() else f", {k}"
            rows[f"{system}, {load}, {int(queued)}{extra}"].append(instance)
        table += [row(name, instances) for name, instances in rows.items()]
    print("\n".join(table))
    print(f"{len(names)} instances", file=sys.stderr)
    for path in sorted(arguments.out.glob("*-*-*-*.json.gz")):
        if path.name not in names:
            print(f"{path} is not of this corpus: remove it", file=sys.stderr)


if __name__ == "__main__":
    script.run(__file__)
