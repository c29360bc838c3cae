"""Every decision of engine dispatchers on real logs is verified: how many, and how many fail.

    python benchmarks/verified.py --traces DIR --decisions 1000000 --out verified.json

The simulator verifies each decision before it applies it. The logs are replayed by parts of 5,000
jobs, each under the next dispatcher in turn; what is in the file is not replayed again.
"""

from __future__ import annotations

import argparse
import json
from itertools import count
from pathlib import Path

import numpy as np
import script

from cpdispatch import dispatch, verify
from cpdispatch.dispatch import Settings
from cpdispatch.errors import DecisionError
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from cpdispatch.workloads import prepare

LOGS = (
    "KTH-SP2-1996-2.1-cln.swf.gz", "CTC-SP2-1996-3.1-cln.swf.gz", "SDSC-BLUE-2000-4.1-cln.swf.gz",
    "HPC2N-2002-2.2-cln.swf.gz", "CEA-Curie-2011-2.1-cln.swf.gz", "UniLu-Gaia-2014-1.swf.gz",
    "RICC-2010-2.swf.gz", "NASA-iPSC-1993-3.1-cln.swf.gz", "lublin_256.swf.gz",
    "alea-wagap-2013.swf.gz",
)  # fmt: skip
SYSTEMS = {
    "HPC2N": "seth", "UniLu": "gaia", "RICC": "ricc", "alea": "metacentrum",
}  # fmt: skip
"""Where nodes are known; the others are pools."""
DISPATCHERS = (
    "hcp",
    "pcp",
    "pcp:model=boxes",
    "hyper",
    "hcp:objective=ewt_weighted",
    "pcp:model=counts",
)
PART = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=script.folder, required=True)
    parser.add_argument("--decisions", type=script.count, default=1_000_000)
    parser.add_argument("--limit", type=float, default=0.05, help="of a decision, seconds")
    parser.add_argument("--out", type=Path, default=Path("verified.json"))
    given = parser.parse_args()
    known = json.loads(given.out.read_text()) if given.out.exists() else {}
    logs = {name: log_of(given.traces / name) for name in LOGS}
    for part in count():
        parts = {name: log for name, log in logs.items() if part * PART < len(log[0])}
        if not parts:
            return
        for k, (name, log) in enumerate(parts.items()):
            dispatcher = DISPATCHERS[(part + k) % len(DISPATCHERS)]
            key = f"{name} {part} {dispatcher}"
            if key not in known:
                known[key] = replayed(*log, part, dispatcher, given.limit)
                given.out.write_text(json.dumps(known, indent=1))
            decisions, wrong = (sum(row[field] for row in known.values()) for field in (
                "decisions", "infeasible",
            ))  # fmt: skip
            print(f"{key}: {known[key]}; {decisions:,} in all, {wrong} infeasible", flush=True)
            if decisions >= given.decisions:
                return


def log_of(path: Path) -> tuple[Workload, System]:
    """A log on its machine."""
    named = next((system for name, system in SYSTEMS.items() if path.name.startswith(name)), None)
    return prepare(path, named)


def replayed(
    workload: Workload, system: System, part: int, dispatcher: str, limit_s: float
) -> dict[str, int]:
    """Decisions of a part of a log, those that are infeasible, and whether the run is."""
    some = workload.take(np.arange(part * PART, min((part + 1) * PART, len(workload))))
    made = dispatch.make(dispatcher, Settings(limit_s))
    try:
        run = simulate(some, system, made, predictor="profile")
    except DecisionError as error:
        print(error)
        return {"decisions": 0, "infeasible": 1, "violations": 0}
    violations = verify.run(run.jobs, run.system)
    return {"decisions": len(run.decisions), "infeasible": 0, "violations": len(violations)}


if __name__ == "__main__":
    script.run(__file__)
