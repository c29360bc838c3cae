"""The figures of docs/learning.md: what tuning, mixed weights and regression find.

    python benchmarks/learning.py ../shared/traces docs/data

It makes what these commands make, and writes it into CSV files, for docs/tables.py:

    cpdispatch tune KTH --filter strong --policies 12 --weeks 50 [--max-wait 1.1]
    cpdispatch tune LOG --filter strong --policies 12 --thresholds 20h --weeks 50
    cpdispatch learn mixed KTH --filter strong
    cpdispatch learn regress lublin
    cpdispatch learn regress KTH --filter strong --tests 24
    cpdispatch learn regress lublin_256.swf.gz --pairs 800 --tests 1 [--published-shuffle]

Everything is of the seed 0. It takes about five minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import script

from cpdispatch.cli.learn import LUBLIN_TEST_JOBS
from cpdispatch.cli.lublin import LUBLIN, LUBLIN_JOBS, lublin_jobs
from cpdispatch.files import csv_of, write_bytes
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import find
from cpdispatch.jobs import Workload
from cpdispatch.learn.fit import FORMS
from cpdispatch.learn.mixed import learn
from cpdispatch.learn.regress import Regressed, Regression, regress
from cpdispatch.learn.tune import TWELVE, Tuned, Tuning, tune
from cpdispatch.learn.weeks import TEST, TRAIN, consecutive, halves
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.lublin import PROCESSORS

KTH, CTC, BLUE = "KTH-SP2-1996-2.1-cln", "CTC-SP2-1996-3.1-cln", "SDSC-BLUE-2000-4.1-cln"
DRAWN = "lublin_256"
THRESHOLD_S = 72_000
PUBLISHED = {CTC: 0.64, KTH: 0.71, BLUE: 0.79}
"""Mean wait with this threshold over EASY's: Lelong, Reis, Trystram, JSSPP 2017."""
MAX_WAIT = 1.1
TERMS = ("1", "p", "q", "r", "p^2", "q^2", "r^2", "pq")

Prepared = tuple[Workload, System]


def tuned_rows(free: Tuned, bounded: Tuned) -> list[list[Any]]:
    """What is picked, relative to EASY-FCFS-FCFS; a threshold of -1: none."""
    keys = [f"{name}_relative" for name in ("wait_s_mean", "wait_s_max", "bounded_slowdown_mean")]
    return [
        [how, _orders(found), found.summary["threshold_s"], half,
         *(f"{found.summary[half][key]:.3f}" for key in keys)]
        for how, found in (("free", free), (f"max-wait {MAX_WAIT}", bounded))
        for half in (TRAIN, TEST)
    ]  # fmt: skip


def _orders(found: Tuned) -> str:
    return f"{found.picked.primary.upper()}-{found.picked.backfill.upper()}"


def whole_rows(log: Prepared, policies: dict[str, Backfill]) -> Iterable[list[Any]]:
    """The whole log in one piece."""
    for name, policy in policies.items():
        found = simulate(*log, replace(policy, name=name)).metrics
        yield [
            name, f"{found['wait_s_mean'] / 60:.0f}", f"{found['wait_s_max'] / 3600:.0f}",
            f"{found['bounded_slowdown_mean']:.1f}",
        ]  # fmt: skip


def form_rows(lublin: Regressed, kth: Regressed) -> list[list[Any]]:
    """Mean ratios to FCFS under EASY backfilling."""
    found = [
        {row["policy"]: row["relative"] for row in each.means.to_dict("records")
         if row["backfill"] == "easy"}
        for each in (lublin, kth)
    ]  # fmt: skip
    return [
        [policy, *(f"{of[policy]:.3f}" for of in found)] for policy in found[0] if policy != "fcfs"
    ]


def coefficient_rows(sampled: dict[str, Regressed]) -> Iterable[list[Any]]:
    """The coefficients of the two smallest forms, by how the orders are drawn."""
    for form in ("lin", "qdr"):
        published = dict(zip(TERMS, find(form).weights[: len(FORMS[form])], strict=False))
        yield [form, "published", *(_scientific(published.get(term)) for term in TERMS), ""]
        for name, found in sampled.items():
            fit = found.fits[form]
            of = fit.coefficients
            error = _scientific(fit.absolute_error_mean)
            yield [form, name, *(_scientific(of.get(term)) for term in TERMS), error]


def _scientific(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def write(folder: Path, name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    path = folder / f"learning_{name}.csv"
    write_bytes(path, csv_of([head, *rows]))
    print(path, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=script.folder, help="folder of public logs (.swf.gz)")
    parser.add_argument("out", type=Path, help="folder of the CSV files")
    given = parser.parse_args()

    def log(name: str, filter: str = "strong") -> Prepared:
        return prepare(given.traces / f"{name}.swf.gz", filter=filter)

    kth = log(KTH)
    free = tune(*kth, Tuning(policies=TWELVE))
    bounded = tune(*kth, Tuning(policies=TWELVE, max_wait=MAX_WAIT))
    write(
        given.out, "tune",
        ("picked", "orders", "threshold_s", "half", "wait_mean", "wait_max", "bounded_slowdown"),
        tuned_rows(free, bounded),
    )  # fmt: skip
    picked = {
        name: tune(*log(name), Tuning(policies=TWELVE, thresholds_s=(THRESHOLD_S,)))
        for name in PUBLISHED
    }
    write(
        given.out, "threshold", ("log", "orders", "wait_mean", "published"),
        ([name, _orders(found), f"{found.summary[TEST]['wait_s_mean_relative']:.3f}",
          PUBLISHED[name]]
         for name, found in picked.items()),
    )  # fmt: skip
    mixed = learn(*kth)
    sums = mixed.summary["sum"]
    shown = ("hindsight", "pure", "trained", "saf", "previous", "spf", "lexp", "fcfs")
    write(
        given.out, "mixed", ("policy", "sum", "relative"),
        ([name, f"{sums[name]:.1f}", f"{sums[name] / sums['fcfs']:.3f}"]
         for name in sorted(shown, key=sums.__getitem__)),
    )  # fmt: skip
    machine = System.pool(PROCESSORS)
    tests = [lublin_jobs(machine, LUBLIN_TEST_JOBS, 1 + seed) for seed in range(10)]
    of_lublin = regress(lublin_jobs(machine, LUBLIN_JOBS, 0), machine, tests)
    parts = halves(kth[0])
    of_kth = regress(parts[TRAIN], kth[1], consecutive(parts[TEST])[:24])
    write(given.out, "forms", ("policy", LUBLIN, "KTH"), form_rows(of_lublin, of_kth))
    policies = {
        "easy-fcfs-fcfs": Backfill(),
        "easy-saf-saf": Backfill(find("saf"), find("saf")),
        "tuned": bounded.picked.dispatcher,
        "mixed": mixed.policy,
        "lin, learned": Backfill(of_lublin.fits["lin"].order, of_lublin.fits["lin"].order),
        "lin, published": Backfill(find("lin"), find("lin")),
    }
    head = ("policy", "wait_min_mean", "wait_h_max", "bounded_slowdown")
    write(given.out, "whole", head, whole_rows(kth, policies))
    drawn = log(DRAWN, "all")
    test = consecutive(halves(drawn[0])[TEST])[:1]
    sampled = {
        name: regress(
            halves(drawn[0])[TRAIN], drawn[1], test, Regression(800, published_shuffle=shuffle)
        )
        for name, shuffle in (("published shuffle", True), ("uniform orders", False))
    }
    head = ("form", "orders", *TERMS, "mean absolute error")
    write(given.out, "coefficients", head, coefficient_rows(sampled))


if __name__ == "__main__":
    script.run(__file__)
