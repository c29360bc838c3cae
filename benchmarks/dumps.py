"""How good and how sure the engine's plans are on instances of real replays, by its time limit.

    python benchmarks/dumps.py make --traces DIR --dumps DUMPS        # 200 instances a system
    python benchmarks/dumps.py answer --dumps DUMPS --out now.jsonl   # each limit, each dispatcher
    python benchmarks/dumps.py table before.jsonl now.jsonl           # pairs, then docs/data
    python benchmarks/dumps.py overshoot --dumps DUMPS                # how late answers are

Loads of three systems are replayed under EASY by SAF; of the moments at which 2 to 100 jobs are
queued, and not all of them can start, some are drawn; another ``--seed`` draws others. ``answer``
takes the corpus, too, and may be run with an earlier version of the package on the path: ``table``
compares the values and the proofs of two such files. The work of ``answer`` is counted, so that
what else the machine does changes no value.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import corpus
import msgspec
import numpy as np
import script
from results import appending, write

from cpdispatch import dispatch
from cpdispatch.heuristics.allocate import fits_now, start_in_order
from cpdispatch.instance import Instance, dump, load
from cpdispatch.jobs import Workload
from cpdispatch.models import budget, engine
from cpdispatch.simulator import Simulation
from cpdispatch.system import System, find
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import EURORA, KIT, generate

GAIA, GAIA_JOBS = "UniLu-Gaia-2014-1.swf.gz", slice(9_000, 24_000)
COUNT, LEAST, MOST = 200, 2, 100
LIMITS_S = (0.05, 0.2, 1.0)
DISPATCHERS = ("hcp:wait=off", "pcp:wait=off", "hcp:wait=off,patience=1")
"""Earlier versions bound waits of an instance that stands alone, too."""
SEED = 7
UNHURRIED = 20
"""How many times its limit an answer may take on the clock."""


class Budget(budget.Budget):
    """A budget whose counted work is that of the limit, and whose clock goes slower.

    So the answers are those of a machine that does nothing else.
    """

    def __init__(self, limit_s: float, live: bool, work_s: float | None = None) -> None:
        super().__init__(UNHURRIED * limit_s, live, limit_s if work_s is None else work_s)


def loads(traces: Path, seed: int) -> Iterator[tuple[str, Workload, System]]:
    """The loads by system."""
    yield "eurora", generate(EURORA, 6_000, seed), find("eurora")
    gaia = prepare(traces / GAIA, "gaia")[0]
    yield "gaia", gaia.take(np.arange(GAIA_JOBS.start, GAIA_JOBS.stop)), find("gaia")
    yield "kit", generate(KIT, 12_000, seed), find("kit")


def moments(workload: Workload, system: System) -> Iterator[Instance]:
    """The moments of a replay at which there is something to choose."""
    simulation, rule = Simulation(workload, system), dispatch.make("easy-saf-saf")
    while (instance := simulation.advance()) is not None:
        queued = len(instance.queue)
        fits = fits_now(instance)
        if LEAST <= queued <= MOST and fits.any():
            started = start_in_order(instance, np.arange(queued))
            if len(np.unique(started.position)) < queued:
                yield instance
        simulation.apply(rule.dispatch(instance))


def make(traces: Path, folder: Path, seed: int) -> None:
    """Draw the instances, the same ones every time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, workload, system in loads(traces, seed):
        random, kept, seen = np.random.default_rng(seed), list[Instance](), 0
        for instance in moments(workload, system):
            seen += 1
            if len(kept) < COUNT:
                kept.append(instance)
            elif (at := int(random.integers(seen))) < COUNT:
                kept[at] = instance
        for k, instance in enumerate(sorted(kept, key=lambda one: one.now)):
            dump(instance, folder / f"{name}-{k:03}.json.gz")
        sizes = [len(one.queue) for one in kept]
        print(f"{name}: {len(kept)} of {seen} moments, {np.median(sizes):g} jobs in the median")


def answer(folder: Path, out: Path, dispatchers: Sequence[str], limits_s: Sequence[float]) -> None:
    """Have each instance answered; what is in the file is not asked again."""
    engine.Budget = Budget  # type: ignore[misc]
    done = {(a.file, a.model, a.budget_s) for a in read(out)}
    dispatch.make(dispatchers[0])
    with appending(out) as stream:
        for path in script.instances(folder):
            instance = load(path)
            for name in dispatchers:
                for limit_s in limits_s:
                    if (path.name, name, limit_s) not in done:
                        one = corpus.ask(path.name, instance, name, limit_s, 0)
                        stream.write(msgspec.json.encode(one) + b"\n")
                        stream.flush()


def read(path: Path) -> list[corpus.Answer]:
    """The answers of a file."""
    answers = []
    for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        try:
            answers.append(msgspec.json.decode(text, type=corpus.Answer))
        except msgspec.DecodeError as error:  # cut short when the command was interrupted
            print(f"{path}:{number} is left out: {error}", file=sys.stderr)
    return answers


def overshoot(folder: Path, decisions: int, name: str, limit_s: float) -> None:
    """Answer one instance after the other with little time, and say how late the answers are."""
    instances = [load(path) for path in script.instances(folder)]
    dispatcher = dispatch.make(name, dispatch.Settings(limit_s=limit_s, alone=True))
    late_ms = np.empty(decisions)
    for k in range(decisions):
        began = perf_counter()
        dispatcher.dispatch(instances[k % len(instances)])
        late_ms[k] = (perf_counter() - began - limit_s) * 1e3
    used = np.count_nonzero(late_ms > -limit_s * 1e3 / 2)
    quantiles = ", ".join(f"{q:g}: {np.quantile(late_ms, q):.1f}" for q in (0.5, 0.99, 0.999, 1.0))
    print(f"{name}, limit {limit_s:g} s: {decisions} decisions, {used} used half of the limit")
    print(f"ms after the limit by quantile: {quantiles}; more than 20: {np.sum(late_ms > 20)}")


HEAD = (
    "dispatcher", "limit_s", "instances", "better", "equal", "worse", "wait_before", "wait_now",
    "proven_before", "proven_now", "share_before", "share_now",
)  # fmt: skip


def rows(before: Sequence[corpus.Answer], now: Sequence[corpus.Answer]) -> Iterator[list[str]]:
    """Of each dispatcher and limit: values and proofs, before and now, on the same instances.

    Waits are relative to the best plan that is known of the instance; shares are those of the best
    plan's wait part that the bound proves, where there is any.
    """
    best: dict[tuple[str, str], float] = {}
    for one in (*before, *now):
        if one.sound:
            key = one.file, one.jobs
            best[key] = min(best.get(key, np.inf), one.wait)
    by: dict[tuple[str, float], dict[str, list[corpus.Answer]]] = defaultdict(dict)
    for which in (before, now):
        for one in which:
            by[one.model, one.budget_s].setdefault(one.file, []).append(one)
    for (name, limit_s), files in by.items():
        pairs = [
            two for two in files.values()
            if len(two) == 2 and two[0].jobs == two[1].jobs and all(one.sound for one in two)
        ]  # fmt: skip
        if not pairs:
            continue
        better = sum(corpus.less(b.wait, a.wait) for a, b in pairs)
        worse = sum(corpus.less(a.wait, b.wait) for a, b in pairs)
        cells = [name, f"{limit_s:g}", str(len(pairs)), str(better)]
        cells += [str(len(pairs) - better - worse), str(worse)]
        columns = list(zip(*pairs, strict=True))
        cells += [
            f"{corpus.geometric_mean(corpus.ratio(a.wait, best[a.file, a.jobs]) for a in of):.4f}"
            for of in columns
        ]
        cells += [f"{np.mean([a.status == 'optimal' for a in of]):.3f}" for of in columns]
        cells += [f"{np.mean(list(shares(of, best))):.3f}" for of in columns]
        yield cells


def shares(of: Sequence[corpus.Answer], best: dict[tuple[str, str], float]) -> Iterator[float]:
    """How much of the best plan's wait part each bound proves."""
    for one in of:
        least = best[one.file, one.jobs]
        if least > corpus.EPSILON:
            bound = one.value if one.status == "optimal" else one.bound
            proven = 0.0 if bound is None else bound - (one.value - one.wait)
            yield min(max(proven, 0.0) / least, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make")
    making.add_argument("--traces", type=script.folder, required=True)
    making.add_argument("--dumps", type=Path, required=True)
    making.add_argument("--seed", type=script.count, default=SEED)
    answering = verbs.add_parser("answer")
    answering.add_argument("--dumps", type=script.folder, required=True)
    answering.add_argument("--out", type=Path, required=True)
    answering.add_argument("--dispatchers", nargs="+", default=DISPATCHERS)
    answering.add_argument("--limits", nargs="+", type=float, default=LIMITS_S)
    showing = verbs.add_parser("table")
    showing.add_argument("before", type=Path)
    showing.add_argument("now", type=Path)
    showing.add_argument("--name", default="dumps", help="of the CSV file in docs/data")
    late = verbs.add_parser("overshoot")
    late.add_argument("--dumps", type=script.folder, required=True)
    late.add_argument("--decisions", type=script.count, default=10_000)
    late.add_argument("--dispatcher", default="hcp:patience=1,live=on")
    late.add_argument("--limit", type=float, default=0.05)
    given = parser.parse_args()
    if given.verb == "make":
        make(given.traces, given.dumps, given.seed)
    elif given.verb == "overshoot":
        overshoot(given.dumps, given.decisions, given.dispatcher, given.limit)
    elif given.verb == "answer":
        answer(given.dumps, given.out, given.dispatchers, given.limits)
    else:
        write(given.name, [HEAD, *rows(read(given.before), read(given.now))])


if __name__ == "__main__":
    script.run(__file__)
