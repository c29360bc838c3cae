"""The same answer whatever the machine does: replays alone, beside busy loops, with a slow solver.

    python benchmarks/sameness.py --traces DIR --out sameness.json

Each dispatcher replays the first 3,000 jobs of CTC and the generated sample three times: alone;
beside four busy loops; with 20 ms of sleep before every answer of the solver's process. Digests of
the jobs' table and of the decisions (without their times) are compared. What is in the file is not
run again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import numpy as np
import script

CTC = "CTC-SP2-1996-3.1-cln.swf.gz"
DISPATCHERS = ("hcp", "pcp", "pcp:model=boxes", "hyper", "best")
CONDITIONS = ("alone", "busy", "slow solver")
LOOPS = 4

SLOW = """
import time
from cpdispatch.models import solver

answer = solver._Desk.answer

def slowly(desk, number, model, parameters):
    time.sleep(0.02)
    return answer(desk, number, model, parameters)

solver._Desk.answer = slowly
solver._serve()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=script.folder, required=True)
    parser.add_argument("--out", type=Path, default=Path("sameness.json"))
    parser.add_argument("--dispatchers", default=",".join(DISPATCHERS))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.one:
        print(json.dumps(replayed(given.traces, *given.one)))
        return
    known = json.loads(given.out.read_text()) if given.out.exists() else {}
    for condition in CONDITIONS:
        for dispatcher in given.dispatchers.split(","):
            for log in ("ctc", "sample"):
                key = f"{log} {dispatcher} {condition}"
                if key not in known:
                    with loops(LOOPS if condition == "busy" else 0):
                        known[key] = child(given.traces, log, dispatcher, condition)
                    given.out.write_text(json.dumps(known, indent=1))
                first = known.get(f"{log} {dispatcher} alone")
                same = first and known[key]["digest"] == first["digest"]
                print(f"{key:28} {'same' if same else 'DIFFERS'} {known[key]}", flush=True)


def child(traces: Path, log: str, dispatcher: str, condition: str) -> dict[str, object]:
    """What one replay in a process of its own says."""
    command = [sys.executable, __file__, "--traces", str(traces)]
    done = subprocess.run(
        [*command, "--one", log, dispatcher, condition],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return told


def replayed(traces: Path, log: str, dispatcher: str, condition: str) -> dict[str, object]:
    """Replay a log; digests and figures."""
    import pyarrow as pa

    from cpdispatch.models import solver
    from cpdispatch.simulator import simulate
    from cpdispatch.workloads import prepare
    from cpdispatch.workloads.generate import eurora_sample

    if condition == "slow solver":
        path = Path(tempfile.mkstemp(suffix=".py")[1])
        path.write_text(SLOW)
        solver.COMMAND = (sys.executable, str(path))
    if log == "ctc":
        workload, system = prepare(traces / CTC, jobs=3000)
    else:
        workload, system = prepare(eurora_sample(), "eurora")
    began = perf_counter()
    run = simulate(workload, system, dispatcher)
    seconds = perf_counter() - began
    names = run.decision_table.column_names
    untimed = run.decision_table.drop_columns([name for name in names if name.endswith("ms")])
    digest = hashlib.sha256()
    for table in (run.job_table, untimed):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        digest.update(sink.getvalue())
    if condition == "slow solver":
        path.unlink()
    decisions = run.decisions
    return {
        "digest": digest.hexdigest()[:16],
        "slowdown": round(run.metrics["bounded_slowdown_mean"], 4),
        "asked CP-SAT": int(decisions["solve_ms"].notna().sum()) if "solve_ms" in names else 0,
        "limit_hit": int(decisions["limit_hit"].sum()),
        "ms_max": round(float(np.nan_to_num(decisions["ms"].max()))),  # 0: in compiled code
        "seconds": round(seconds, 1),
        "notes": {k: n for k, n in run.about["notes"].items() if k.startswith("dispatcher")},
    }


@contextmanager
def loops(count: int):
    """So many busy loops beside."""
    source = "while True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", source]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    script.run(__file__)
