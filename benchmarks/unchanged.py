"""Whether schedules are what they were: digests of 50 replays, before a change and after it.

    python benchmarks/unchanged.py --traces DIR --out before.json      # before
    python benchmarks/unchanged.py --traces DIR --against before.json  # after

Five logs under ten rules: compiled replays and the general loop, both triggers, predictors,
dependencies, restarts, models. A digest is that of the jobs' table: starts, ends, nodes, reasons.
Exit code 1 when one differs. ``--only`` takes a part of the cases, by a word of their names.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import script

LOGS = {
    "KTH-SP2-1996-2": 100, "CTC-SP2-1996-3.1-cln": 338, "SDSC-BLUE-2000-4.1-cln": 1152,
    "HPC2N-2002-2.2-cln": "seth", "UniLu-Gaia-2014-1": "gaia",
}  # fmt: skip
"""Log -> processors of a pool, or a named system."""


@dataclass(frozen=True)
class Rule:
    """How a log is replayed; ``jobs`` are its first ones, all without a number.

    Where it makes test runs, all jobs may be restarted.
    """

    name: str
    dispatcher: str
    predictor: str
    jobs: int | None = None
    options: tuple[tuple[str, Any], ...] = ()


EVENT = ("trigger", "event")
RULES = (
    Rule("easy", "easy", "walltime"),
    Rule("easy by event", "easy-saf-saf:threshold=200000", "profile", None, (EVENT,)),
    Rule("easy corrected", "easy-spf-wfp3", "last2", None, (("correction", "incremental"),)),
    Rule("conservative", "conservative:allocate=best-fit", "last2", 3_000),
    Rule("restarts", "easy-small-spf", "class", 3_000,
         (("dependencies", True), ("idempotent", True), ("compiled", False))),
    Rule("general loop", "easy-spf-spf:limits=upper", "confident", 3_000, (("compiled", False),)),
    Rule("best", "best", "forest", 3_000),
    Rule("test runs", "easy-saf-saf:test=120,tests=backfill,limits=upper", "confident", 20_000),
    Rule("hcp3", "hcp", "walltime", 400),
    Rule("pcp5", "pcp:model=boxes", "last2", 200, (EVENT, ("correction", "requested"))),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=script.folder, required=True)
    parser.add_argument("--out", type=Path, help="where digests are written")
    parser.add_argument("--against", type=Path, help="digests to compare with")
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    given = parser.parse_args()
    before = json.loads(given.against.read_text()) if given.against else {}
    digests, differ = {}, 0
    for log, machine in LOGS.items():
        for rule in RULES:
            case = f"{log}, {rule.name}"
            if given.only in case:
                began = perf_counter()
                digests[case] = digest_of(given.traces / f"{log}.swf.gz", machine, rule)
                same = before.get(case, digests[case]) == digests[case]
                differ += not same
                seconds = perf_counter() - began
                print(f"{case:42} {digests[case]} {seconds:5.1f} s {'' if same else 'DIFFERS'}",
                      flush=True)  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(digests, indent=1))
    print(f"{len(digests)} replays, {differ} differ")
    sys.exit(bool(differ))


def digest_of(path: Path, machine: int | str, rule: Rule) -> str:
    """The digest of what became of the jobs."""
    from cpdispatch.simulator import simulate
    from cpdispatch.workloads import prepare
    from cpdispatch.workloads.restarts import mark

    workload, system = prepare(path, str(machine), filter="strong", jobs=rule.jobs)
    if "test=" in rule.dispatcher:
        workload = mark(workload, 1.0, 0)
    run = simulate(
        workload, system, rule.dispatcher, predictor=rule.predictor, **dict(rule.options)
    )
    # Of the values: how a column is stored, such as names that no row has, may change.
    found = hashlib.sha256()
    for name, column in zip(run.job_table.column_names, run.job_table.columns, strict=True):
        found.update(repr((name, column.to_pylist())).encode())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    script.run(__file__)
