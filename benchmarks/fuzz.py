"""Fuzzes the readers: whatever a file holds, it is read, or refused with a CpdispatchError.

    pip install atheris        # libFuzzer for Python, no dependency of the package; Linux, macOS
    python benchmarks/fuzz.py instance --minutes 60 --corpus corpora/instance

What was read must also hold: it survives being written and read again, and what it is for (a replay
for a log, a dispatch for an instance, ...) works. An input may take `SLOWEST_S` seconds and
`MEMORY_MB` MB.

Minutes and seconds are of processor time. ``docs/data/fuzzing.csv`` adds up the minutes of each
reader, and the inputs that were tried. A new process comes every `PIECE` minutes.

The targets are those of `TARGETS`. ``--corpus`` keeps the inputs that reach new code, so that a
later session goes on from there. An input that breaks the property is kept in
``<corpus>.found/<error>-<digest>``, the smallest one of each error, with the traceback in
``<corpus>.found/<error>.txt``; the session goes on. What ends the whole process (memory, a hang, a
crash of compiled code) is kept by libFuzzer in ``<corpus>.found/crash-...``.

    python benchmarks/fuzz.py instance --check FILE...     # the property on single inputs
    python benchmarks/fuzz.py instance --shrink FILE...    # what breaks it, in fewer bytes

Inputs that once broke the property are in ``tests/corpus/<target>/``, and checked by
``tests/test_fuzzed.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import gc
import hashlib
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, time
from pathlib import Path
from time import process_time
from types import FunctionType
from typing import Any

import numpy as np
import script
from results import rows_of, write

ROOT = Path(__file__).resolve().parent.parent
SLOWEST_S = 5.0
MEMORY_MB = 4096
PIECE = 8.0
"""Minutes of one process. What instrumented code compares is never freed, 10 kB of a table."""
FROZEN = 1000
"""Inputs after which what is never freed is left out of garbage collection.

Late in a piece a collection that looks at all of it takes more than `SLOWEST_S`.
"""
LONGEST = 6000
"""Bytes of an input."""
INSTRUMENTED = (
    "arrays", "errors", "files", "jobs", "instance.file", "instance.snapshot",
    "system.checks", "system.file", "system.machine", "system.named",
    "instance.wishes", "access",
    "solution.answer", "solution.file", "solution.reasons", "dispatch", "readers",
    "workloads.swf", "workloads.table", "workloads.clean", "workloads.clock", "workloads.fit",
    "workloads.slots", "workloads.select", "workloads.imported", "workloads.column_map",
    "workloads.slurm", "workloads.slurm.jobs", "workloads.slurm.nodes",
    "workloads.slurm.replayable", "workloads.slurm.values",
    "simulator.run", "simulator.saved", "simulator.arrow", "models.hyper",
    "events", "energy", "analyze.power", "experiment.file", "experiment.samples",
    "adapters.slurm.cluster", "adapters.slurm.log", "adapters.slurm.picture", "structure",
    "verify.dependencies", "verify.levels", "verify.objectives", "verify.placement", "verify.plan",
    "verify.solutions", "verify.starvation",
)  # fmt: skip
"""Modules whose new lines are looked for; compiled kernels cannot be instrumented."""


class BrokenError(AssertionError):
    """What was read does not hold."""


def hold(good: bool, what: str) -> None:
    """Raise `BrokenError` unless it is so."""
    if not good:
        raise BrokenError(what)


# ------------------------------------------------------------------------------- the properties


def _same_workload(one: Any, other: Any) -> bool:
    columns = [0, 1, 2, 3]
    return all(
        np.array_equal(one.table.column(k), other.table.column(k)) for k in columns
    ) and np.array_equal(one.runtime_s, other.runtime_s)


def _log(workload: Any, folder: Path) -> None:
    """What is done with a log: clocks, dates, a replay of a few jobs, writing as SWF."""
    from cpdispatch.errors import CpdispatchError
    from cpdispatch.system import NAMED, System
    from cpdispatch.workloads import clock, swf
    from cpdispatch.workloads.fit import fit

    clock.wall_s(workload)
    machine = System.pool(workload.processors or 64)
    for system in (machine, NAMED["eurora"]):
        try:
            fit(workload, system)
        except CpdispatchError:
            continue
    swf.write(workload, folder / "again.swf")
    hold(
        _same_workload(workload, swf.read(folder / "again.swf")) or not workload.per_processor,
        "the log is another one when it is written and read again",
    )


def swf_log(data: bytes, folder: Path) -> None:
    """A log in SWF."""
    from cpdispatch.errors import CpdispatchError
    from cpdispatch.workloads import swf

    path = folder / "log.swf"
    path.write_bytes(data)
    with contextlib.suppress(CpdispatchError):
        swf.read(path, "strong")
    _log(swf.read(path), folder)


def _table(path: Path, folder: Path) -> None:
    from cpdispatch.workloads import table

    workload = table.read(path)
    for name in ("again.csv", "again.parquet"):
        table.write(workload, folder / name)
        again = table.read(folder / name)
        hold(again.resources == workload.resources, f"{name} has other resource types")
        hold(_same_workload(workload, again), f"{name} has other jobs")
    _log(workload, folder)


def csv_table(data: bytes, folder: Path) -> None:
    """A table of jobs, CSV."""
    path = folder / "log.csv"
    path.write_bytes(data)
    _table(path, folder)


def parquet_table(data: bytes, folder: Path) -> None:
    """A table of jobs, Parquet."""
    path = folder / "log.parquet"
    path.write_bytes(data)
    _table(path, folder)


def _imported(found: Any, folder: Path) -> None:
    from cpdispatch.system import load
    from cpdispatch.workloads import imported, prepare, table

    files = imported.write(found, folder / "imported")
    again = table.read(folder / "imported" / files["workload"])
    hold(_same_workload(found.workload, again), "the workload is another one when it is read")
    prepare(again, load(folder / "imported" / files["system"]))


def sacct_text(data: bytes, folder: Path) -> None:
    """Records of jobs by sacct, as text or JSON."""
    from cpdispatch.workloads import slurm

    path = folder / "sacct"
    path.write_bytes(data)
    _imported(slurm.read([path]), folder)


def slurm_nodes(data: bytes, folder: Path) -> None:
    """Nodes by sinfo or scontrol, as text or JSON."""
    from cpdispatch.workloads import slurm

    path, jobs = folder / "nodes", folder / "sacct"
    path.write_bytes(data)
    jobs.write_bytes(next(_sacct_seeds()))
    _imported(slurm.read([jobs], [path]), folder)


def mapped_table(data: bytes, folder: Path) -> None:
    """A table of pods by the column map openb."""
    from cpdispatch.workloads import column_map

    path = folder / "pods.csv"
    path.write_bytes(data)
    _imported(column_map.read(path, "openb"), folder)


_WORDS = b"""told = ["note"]
[columns]
id = "JOB"
submit = "SUBMITTED"
start = "BEGAN"
end = "ENDED"
requested = "LIMIT"
units = "TASKS"
user = "OWNER"
queue = "QUEUE"
[resources]
core = {column = "CPUS", each = "job"}
mem = {column = "MEM", unit = "mb", each = "node", nodes = "HOSTS"}
[table]
empty = ["-", "NULL"]
[time]
submit = "text"
format = "%d/%m/%Y %H:%M:%S"
zone = "Europe/Berlin"
requested = "text"
[[keep]]
column = "STATE"
among = ["DONE", "KILLED"]
[nodes]
name = "HOST"
features = "TAGS"
[nodes.resources]
core = {column = "CORES"}
mem = {column = "RAM", unit = "gb"}
"""
"""A column map with all that one may say."""
_JOBS_IN_WORDS = (
    b"JOB,SUBMITTED,BEGAN,ENDED,LIMIT,TASKS,OWNER,QUEUE,CPUS,MEM,HOSTS,STATE,note\n"
    b"7,01/02/2026 10:00:00,01/02/2026 10:05:00,01/02/2026 11:00:00,1-02:30:00,2,ann,long,16,"
    b"8000,n1 n2,DONE,a\n"
    b"8,25/10/2026 02:30:00,-,25/10/2026 03:30:00,NULL,1,bob,short,4,1000,n1,KILLED,\n"
    b"9,01/02/2026 10:00:01,01/02/2026 10:05:00,01/02/2026 10:05:09,45:00,1,,-,1,1,n2,OPEN,b\n"
)
_NODES_IN_WORDS = b"HOST,CORES,RAM,TAGS\nn1,16,64,ib fast\nn2,32,128,\nn3,16,64.5,ib\n"


def _by_words(folder: Path, **changed: bytes) -> None:
    """Read a table of jobs and one of nodes by a column map; one of the three is changed."""
    from cpdispatch.workloads import column_map

    files = {"map.toml": _WORDS, "jobs.csv": _JOBS_IN_WORDS, "nodes.csv": _NODES_IN_WORDS}
    for name, content in (
        files | {f"{k.replace('_', '.')}": v for k, v in changed.items()}
    ).items():
        (folder / name).write_bytes(content)
    found = column_map.read(
        folder / "jobs.csv", str(folder / "map.toml"), nodes=folder / "nodes.csv"
    )
    _imported(found, folder)


def column_map_file(data: bytes, folder: Path) -> None:
    """A column map."""
    _by_words(folder, map_toml=data)


def words_table(data: bytes, folder: Path) -> None:
    """A table of jobs by a column map with dates of a format, words for durations and for none."""
    _by_words(folder, jobs_csv=data)


def nodes_table(data: bytes, folder: Path) -> None:
    """A table of nodes by a column map."""
    _by_words(folder, nodes_csv=data)


@functools.cache
def _few() -> Any:
    """A few jobs, and a small system that draws power."""
    from cpdispatch.system import GroupFile, SystemFile, from_file
    from cpdispatch.workloads import lublin

    groups = [GroupFile("thin", 6, [8, 64]), GroupFile("fat", 2, [8, 512])]
    read = SystemFile(["core", "mem"], groups, "small", watts={"core": 10, "mem": 1})
    system = from_file(read)
    return lublin.generate(12, 1, processors=64), system


def _replayed(**given: Any) -> None:
    """Replay the few jobs, and check the run."""
    import cpdispatch
    from cpdispatch.workloads.fit import fit

    workload, system = _few()
    run = cpdispatch.simulate(fit(workload, system), system, "easy", **given)
    wrong = run.verify()
    hold(not wrong, f"{wrong[:1]}")


def events_file(data: bytes, folder: Path) -> None:
    """Events of a system."""
    from cpdispatch import events

    path = folder / "events.csv"
    path.write_bytes(data)
    found = events.read(str(path))
    found.check(_few()[1])
    if len(found.rows) <= 50:
        _replayed(events=found)


def steps_file(data: bytes, folder: Path) -> None:
    """Steps of a power cap, or of a price."""
    from cpdispatch import energy

    path = folder / "steps.csv"
    path.write_bytes(data)
    if data.startswith(b"time,price"):
        _replayed(energy_price=energy.energy_price(str(path)))
    else:
        cap = energy.power_cap(str(path))
        energy.check_cap(cap, _few()[1])
        _replayed(power_cap=cap)


def power_table(data: bytes, folder: Path) -> None:
    """Samples of the power of jobs."""
    from cpdispatch.analyze import power

    path = folder / "power.csv"
    path.write_bytes(data)
    profiles = power.read(path)
    if sum(map(len, profiles.values())) < 100_000:
        list(power.table(power.judge_all(profiles)[0]))


def experiment_file(data: bytes, folder: Path) -> None:
    """An experiment."""
    from cpdispatch.experiment import file

    # It may name a module of the user's, or a log that is fetched.
    if b":" in data or b"archive" in data:
        return
    path = folder / "experiment.toml"
    path.write_bytes(data)
    form = file.load(path)
    if form.draws <= 3 and all((log.jobs or 9999) <= 200 for log in form.logs):
        file.parts(form, path, folder / "out")


class _Answers:
    """What Slurm answers."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def now_s(self) -> int:
        return 1_795_458_692

    def rows(self, what: str) -> list[dict[str, Any]]:
        rows = self.data.get(what, [])
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def jobs(self) -> list[dict[str, Any]]:
        return self.rows("jobs")

    def nodes(self) -> list[dict[str, Any]]:
        return self.rows("nodes")

    def partitions(self) -> list[dict[str, Any]]:
        return self.rows("partitions")

    def reservations(self) -> list[dict[str, Any]]:
        return self.rows("reservations")


def slurm_answers(data: bytes, folder: Path) -> None:
    """What slurmrestd answers: jobs, nodes, partitions and reservations."""
    from cpdispatch import dispatch, verify
    from cpdispatch.adapters.slurm import cluster, picture

    try:
        found = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    for whole in (False, True):
        taken = picture.take(cluster.read(_Answers(found), whole), lambda job: job.pending)
        instance = taken.instance
        if instance.system.capacity.size <= 10_000:
            decision = dispatch.make("easy").dispatch(instance)
            wrong = verify.decision(instance, decision)
            hold(not wrong, f"easy: {wrong[:1]}")
            taken.starts(decision)


def slurm_log(data: bytes, folder: Path) -> None:
    """What a driver has logged."""
    from cpdispatch.adapters.slurm import log

    path = folder / "drive.jsonl"
    path.write_bytes(data)
    found = log.read([path])
    _ = found.dispatchers, found.predictor, found.between(0, 10**9)


def instance_file(data: bytes, folder: Path) -> None:
    """An instance."""
    from cpdispatch import dispatch, instance, solution, verify

    path = folder / "instance.json"
    path.write_bytes(data)
    problem = instance.load(path)
    content = instance.to_json(problem)
    hold(instance.to_json(instance.loads(content)) == content, "it changes when it is written")
    small = problem.system.capacity.size <= 10_000 and len(problem.queue) <= 200
    if small and int(problem.queue.units.sum()) <= 10_000:
        for name in ("easy", "conservative"):
            decision = dispatch.answer_of(dispatch.make(name), problem)
            wrong = verify.decision(problem, decision)
            hold(not wrong, f"{name}: {wrong[:1]}")
            wrong = verify.solution(problem, solution.from_decision(problem, decision))
            hold(not wrong, f"{name}: {wrong[:1]}")


@functools.cache
def _problem() -> Any:
    from cpdispatch import instance

    return instance.loads(_example_instance())


def solution_file(data: bytes, folder: Path) -> None:
    """A solution."""
    from cpdispatch import solution, verify

    path = folder / "solution.json"
    path.write_bytes(data)
    answer = solution.load(path)
    hold(solution.loads(solution.to_json(answer)) == answer, "it changes when it is written")
    verify.solution(_problem(), answer)


def _system(path: Path, folder: Path) -> None:
    from cpdispatch.system import load, system_as_dict

    system = load(path)
    again = folder / "again.json"
    again.write_text(json.dumps(system_as_dict(system)))
    hold(np.array_equal(load(again).capacity, system.capacity), "it changes when it is written")


def json_system(data: bytes, folder: Path) -> None:
    """A system in JSON, ours or AccaSim's."""
    path = folder / "system.json"
    path.write_bytes(data)
    _system(path, folder)


def toml_system(data: bytes, folder: Path) -> None:
    """A system in TOML."""
    path = folder / "system.toml"
    path.write_bytes(data)
    _system(path, folder)


def policy_file(data: bytes, folder: Path) -> None:
    """A dispatcher in TOML."""
    from cpdispatch import dispatch

    # It may name a module of the user's, which is imported: nobody's code is to be run here.
    if b":" in data:
        return
    path = folder / "policy.toml"
    path.write_bytes(data)
    dispatch.make(str(path))


def hyper_record(data: bytes, folder: Path) -> None:
    """A record of hyper."""
    from cpdispatch.models.hyper import Record

    path = folder / "record.json"
    path.write_bytes(data)
    record = Record.load(path)
    for kind in record.kinds:
        record.best(kind)
    record.save(folder / "again.json")
    hold(Record.load(folder / "again.json") == record, "it changes when it is written")


def slots_model(data: bytes, folder: Path) -> None:
    """What `generate` has learned of a log."""
    from cpdispatch.system import System
    from cpdispatch.workloads import slots

    path = folder / "model.json"
    path.write_bytes(data)
    model = slots.load(path)
    slots.save(model, folder / "again.json")
    hold(slots.load(folder / "again.json") == model, "it changes when it is written")
    slots.generate(model, System.pool(64), 5)


@functools.cache
def _run_folder() -> dict[str, bytes]:
    """The files of a small run."""
    from cpdispatch.simulator import simulate
    from cpdispatch.system import NAMED
    from cpdispatch.workloads.generate import eurora_sample

    run = simulate(eurora_sample(12), NAMED["eurora"], "easy")
    with tempfile.TemporaryDirectory() as folder:
        run.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _run(changed: str, data: bytes, folder: Path) -> None:
    from cpdispatch import experiment
    from cpdispatch.analyze import compare
    from cpdispatch.simulator.run import Run

    for name, content in (_run_folder() | {changed: data}).items():
        (folder / name).write_bytes(content)
    run = Run.load(folder)
    told = [experiment.RunSummary.of(run)]
    for _, rows in experiment.tables(told):
        compare.tables(rows, 80)
        compare.verdict(rows)
        compare.notes(rows)
    run.by_class()
    run.by_width()
    run.verify()


def run_about(data: bytes, folder: Path) -> None:
    """The run.json of a run's folder."""
    _run("run.json", data, folder)


def run_jobs(data: bytes, folder: Path) -> None:
    """The jobs.parquet of a run's folder."""
    _run("jobs.parquet", data, folder)


# ------------------------------------------------------------------------------------- the seeds


def _pieces(name: str, lines: int) -> Iterator[bytes]:
    """The header and a few jobs of a public log, if it is there."""
    import gzip

    folder = Path(os.environ.get("CPDISPATCH_TRACES", ROOT.parent / "shared" / "traces"))
    path = folder / f"{name}.swf.gz"
    if path.exists():
        text = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        header = [line for line in text if line.startswith(b";")]
        jobs = [line for line in text if not line.startswith(b";")]
        yield b"".join(header[:25] + jobs[:lines])


def _swf_seeds() -> Iterator[bytes]:
    for name in ("KTH-SP2-1996-2", "UniLu-Gaia-2014-1", "NASA-iPSC-1993-3.1-cln"):
        yield from _pieces(name, 4)
    yield from _pieces("alea-wagap-2013", 2)
    yield b"; Version: 2.2\n; MaxProcs: 8\n1 0 0 60 2 -1 -1 2 100 9 1 1 1 1 1 1 -1 -1\n"


def _sample(name: str) -> bytes:
    from cpdispatch.workloads import table
    from cpdispatch.workloads.generate import eurora_sample

    with tempfile.TemporaryDirectory() as folder:
        table.write(eurora_sample(4), Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _csv_seeds() -> Iterator[bytes]:
    yield _sample("a.csv")
    yield b"# id,submit,runtime,units,core,mem_gb\n1,0,60,2,1,8\n2,5,6.5,1,4,16\n"
    yield b'id,submit,runtime,units,core,user,queue\n1,0,60,2,1,"ann, b",q1\n2,,60,1,2,,\n'


def _parquet_seeds() -> Iterator[bytes]:
    yield _sample("a.parquet")


def _example_instance() -> bytes:
    from cpdispatch.files import read_bytes

    paths = sorted((ROOT / "instances").glob("*-0010-*.json.gz"))
    return min(map(read_bytes, paths), key=len)


INSTANCE = (
    b'{"format": "cpdispatch-instance/1", "time": 100000, "resources": ["core", "gpu"],\n'
    b' "groups": [{"name": "gpu", "nodes": 32, "capacity": [16, 2]}],\n "down": [17],\n'
    b' "running": [{"id": 12, "start": 99000, "duration": 3600, "units": 3, "unit": [4, 1],'
    b' "nodes": {"0": 2, "5": 1}}],\n'
    b' "queue": [{"id": 77, "submit": 98000, "duration": 1200, "units": 2, "unit": [4, 1],'
    b' "queue": "debug", "ewt": 600, "requested": 1500, "upper": 1300},\n'
    b' {"id": 78, "submit": 98500, "duration": 600, "units": 1, "unit": [1, 0],'
    b' "after": [12, 77], "think": 60}],\n'
    b' "reservations": [{"start": 120000, "duration": 7200, "nodes": [0, 1],'
    b' "capacity": [16, 2]}],\n'
    b' "power": {"cap": 90000, "unit": [35, 120]},\n'
    b' "starvation": {"threshold": 86400, "bound": 7200}}\n'
)


def _instance_seeds() -> Iterator[bytes]:
    yield INSTANCE
    yield _example_instance()
    once = json.loads(INSTANCE) | {"format": "cpdispatch-instance/2"}
    once["queue"][0]["first"] = [2, 1]
    once["running"][0] |= {"first": [1, 0], "first_node": 5}
    yield json.dumps(once).encode()


def _sacct_seeds() -> Iterator[bytes]:
    yield (
        b"JobID|Submit|Start|End|ElapsedRaw|State|Timelimit|AllocTRES|ReqMem|Partition\n"
        b"7|2026-11-20T08:00:00|2026-11-20T09:00:00|2026-11-20T10:00:00|3600|COMPLETED|1-02:00:00|"
        b"cpu=8,mem=8G,node=2,gres/gpu:a100=2|4Gn|main\n"
        b"7.batch|2026-11-20T08:00:00|2026-11-20T09:00:00|2026-11-20T10:00:00|3600|COMPLETED||||\n"
        b"8_[1-5%2]|2026-11-20T08:00:00|Unknown|Unknown|0|PENDING|UNLIMITED||2000Mc|main\n"
    )
    yield (
        b'{"jobs": [{"job_id": 7, "state": {"current": ["COMPLETED"]}, "nodes": "n01",'
        b' "time": {"submission": 100, "start": 200, "end": 300, "elapsed": 100, "limit":'
        b' {"set": true, "number": 60}}, "array": {"job_id": 6, "task_id": 1}, "user": "ann",'
        b' "tres": {"allocated": [{"type": "cpu", "name": "", "count": 4},'
        b' {"type": "gres", "name": "gpu:a100", "count": 1}]}, "steps": []}]}'
    )


def _nodes_seeds() -> Iterator[bytes]:
    yield (
        b"NodeName=n01 CPUTot=16 RealMemory=64000 Gres=gpu:a100:4(S:0-1) State=IDLE\n\n"
        b"NodeName=n02 CPUEfctv=30 RealMemory=64000 State=DOWN* Partitions=main\n\n"
        b"PartitionName=main MaxTime=2-00:00:00 Nodes=n[01-02]\n"
    )
    yield (
        b'{"nodes": [{"name": "n01", "cpus": 16, "real_memory": 64000, "gres": "gpu:a100:4",'
        b' "state": "idle", "features": "ib", "partitions": ["main"]}], "sinfo": [{"nodes":'
        b' {"nodes": ["n[02-03]"]}, "cpus": {"maximum": 16}, "memory": {"maximum": 64000},'
        b' "partition": {"name": "main", "maximums": {"time": {"set": true, "number": 60}}}}]}'
    )


def _pods_seeds() -> Iterator[bytes]:
    yield (
        b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        b"deletion_time,scheduled_time\np0,12000,16384,1,1000,,LS,Running,0,900,0\n"
        b"p1,6000,12288,1,460,V100M16|V100M32,LS,Pending,40,100,\n"
        b"p2,6000,12288,0,0,,BE,Failed,40.5,100,50\n"
    )


def _events_seeds() -> Iterator[bytes]:
    yield (b"time,kind,nodes\n50,join,7\n100,fail,1\n300,drain,2-4\n2000,repair,1\n"
           b"9000,undrain,2-4\n90000,leave,0\n")  # fmt: skip
    yield b"time,kind,nodes,until,known\n3600,maintain,thin,7200,100\n8000,maintain,0-7,9000,\n"
    yield b"time,kind,nodes,capacity\n500,capacity,0 2,core=4\n900,capacity,fat,core=2 mem=100\n"


def _steps_seeds() -> Iterator[bytes]:
    yield b"time,watts\n0,5000\n3600,900\n7200,2000\n"
    yield b"time,price\n100,0.3\n3600,0.05\n7200,1e3\n"


def _power_seeds() -> Iterator[bytes]:
    rows = b"".join(b"a,%d,%d\n" % (60 * k, 200 + 50 * (k % 4)) for k in range(40))
    yield b"job,time,watts\n" + rows
    dates = b"".join(b"b,2026-01-01 10:%02d:00,15%d.5\n" % (k, k % 3) for k in range(20))
    yield b"job,time,watts\n" + dates


def _experiment_seeds() -> Iterator[bytes]:
    yield (b'dispatchers = ["easy", "fifo"]\npredictors = ["walltime", "last2"]\ndraws = 2\n'
           b'seed = 3\nlimit = "500ms"\n[[logs]]\nmodel = "lublin"\njobs = 50\nload = 0.8\n'
           b'[[logs]]\nmodel = "eurora"\njobs = 20\nunits = "as-is"\n'
           b'[rules]\ntrigger = "event"\n')  # fmt: skip
    yield b'dispatchers = ["fifo"]\n[[logs]]\nfile = "log.swf"\nfrom = "1d"\nto = "8d"\n'


def _answers_seeds() -> Iterator[bytes]:
    import gzip

    path = ROOT / "tests" / "adapters" / "slurm" / "data" / "cluster.json.gz"
    data = json.loads(gzip.decompress(path.read_bytes()))
    for first in range(0, len(data["jobs"]), 3):
        few = {
            "jobs": [_short(row) for row in data["jobs"][first : first + 3]],
            "nodes": [_short(row) for row in data["nodes"][first : first + 2]],
            "partitions": data["partitions"][:2],
            "reservations": data["reservations"],
        }
        yield json.dumps(few).encode()


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what says nothing."""
    return {key: value for key, value in row.items() if value not in ("", None, [], 0)}


def _log_seeds() -> Iterator[bytes]:
    yield (b'{"now_s": 100, "running": 1, "waiting": 2, "released": {"7": ["n1"]}, '
           b'"dispatcher": "easy", "decision": {"ms": 1.5, "model": "easy"}, '
           b'"reasons": {"8": "waits"}, "expected_s": {"7": 60}, "entered": ["7", "8"]}\n'
           b'{"now_s": 200, "started": {"7": ["n1"]}, "tests": {"8": 120}, "left": {"9": "held"}, '
           b'"promised": {"8": 500}, "durations": {"predictor": "forest"}}\n'
           b'{"failed": "no answer"}\n')  # fmt: skip


def _solution_seeds() -> Iterator[bytes]:
    from cpdispatch import dispatch, solution

    decision = dispatch.make("easy").dispatch(_problem())
    answer = solution.from_decision(_problem(), decision, 100.0)
    yield solution.to_json(answer)
    yield solution.to_json(replace(answer, jobs=answer.jobs[:2], objective="wait", value=7.0))


def _system_seeds() -> Iterator[bytes]:
    yield (
        b'{"resources": ["core", "gpu"], "groups": [{"name": "g", "nodes": 3,'
        b' "capacity": [8, 2]}], "memory_unit_kb": 1024, "expected_wait_s": {"debug": 60}}'
    )
    yield b'{"groups": {"g0": {"core": 16, "gpu": 2}}, "resources": {"g0": 32}, "start_time": 0}'


def _toml_seeds() -> Iterator[bytes]:
    yield (b'resources = ["core", "gpu"]\nmemory_unit_kb = 1024\n[expected_wait_s]\ndebug = 60\n'
           b'[[groups]]\nname = "g"\nnodes = 3\ncapacity = [8, 2]\n')  # fmt: skip
    yield b"[groups.g0]\ncore = 16\n[resources]\ng0 = 32\n"


def _policy_seeds() -> Iterator[bytes]:
    yield (b'dispatcher = "easy"\nthreshold = 72000\nbackfill = "spf"\n[primary]\npolicy = "mix"\n'
           b"weights = {area = 0.6, wait = -0.3}\n")  # fmt: skip
    yield (b'dispatcher = "easy"\ndepth = 3\n[primary]\npolicy = "polynomial"\n'
           b'coefficients = {p = 1e-7, "pq" = 2e-9}\n')  # fmt: skip
    for text in ("best", "hcp", "conservative", "prb", "fifo"):
        yield f'dispatcher = "{text}"\n'.encode()
    yield b'dispatcher = "pcp"\nlimit = 0.5\nm = 10\nreserve = "all"\nlive = true\n'
    yield (b'dispatcher = "hcp"\nobjective = "slowdown"\nlimits = "upper"\nwait = 0.8\ncp = "on"\n'
           b'patience = 0.5\ntest = "2min"\ntests = "left"\n')  # fmt: skip
    yield (b'dispatcher = "easy"\nallocate = "best-fit"\nlimits = "upper"\nwait = "off"\n'
           b'primary = "saf"\nbackfill = "spf"\ntest = 120\ntests = "backfill"\n')  # fmt: skip


def _record_seeds() -> Iterator[bytes]:
    yield (b'{"format": "cpdispatch-hyper/1", "kinds": {"4 jobs at most, few nodes, mixed, short": '
           b'{"hcp@0.1": [3, 0.25], "search@1": [2.0, 1]}}}')  # fmt: skip


def _slots_seeds() -> Iterator[bytes]:
    import msgspec

    from cpdispatch.workloads import lublin, slots

    model = slots.fit(lublin.generate(3000, request_factor=2.5), {"core": 10.0})
    rows = tuple(row[:3] for row in model.requested_s)
    yield msgspec.json.encode(replace_struct(model, requested_s=rows, classes=model.classes[:1]))


def replace_struct(struct: Any, **changed: Any) -> Any:
    """The struct with other values."""
    import msgspec

    return msgspec.structs.replace(struct, **changed)


def _about_seeds() -> Iterator[bytes]:
    yield _run_folder()["run.json"]


def _jobs_seeds() -> Iterator[bytes]:
    yield _run_folder()["jobs.parquet"]


@dataclass(frozen=True)
class Target:
    """A reader: what is checked of an input, small real inputs, and how inputs are changed."""

    check: Callable[[bytes, Path], None]
    seeds: Callable[[], Iterator[bytes]]
    form: str = ""
    """``json`` or ``toml`` where single values of such files are changed, too."""
    longest: int = LONGEST


TARGETS = {
    "swf": Target(swf_log, _swf_seeds),
    "table-csv": Target(csv_table, _csv_seeds),
    "table-parquet": Target(parquet_table, _parquet_seeds, longest=20_000),
    "sacct": Target(sacct_text, _sacct_seeds),
    "slurm-nodes": Target(slurm_nodes, _nodes_seeds),
    "table-mapped": Target(mapped_table, _pods_seeds),
    "instance": Target(instance_file, _instance_seeds, form="json"),
    "solution": Target(solution_file, _solution_seeds, form="json"),
    "system": Target(json_system, _system_seeds, form="json"),
    "system-toml": Target(toml_system, _toml_seeds, form="toml"),
    "policy": Target(policy_file, _policy_seeds, form="toml"),
    "hyper": Target(hyper_record, _record_seeds, form="json"),
    "slots": Target(slots_model, _slots_seeds, form="json", longest=20_000),
    "run-json": Target(run_about, _about_seeds, form="json"),
    "run-jobs": Target(run_jobs, _jobs_seeds, longest=30_000),
    "column-map": Target(column_map_file, lambda: iter((_WORDS,)), form="toml"),
    "table-words": Target(words_table, lambda: iter((_JOBS_IN_WORDS,))),
    "nodes-mapped": Target(nodes_table, lambda: iter((_NODES_IN_WORDS,))),
    "events": Target(events_file, _events_seeds),
    "steps": Target(steps_file, _steps_seeds),
    "power": Target(power_table, _power_seeds),
    "experiment": Target(experiment_file, _experiment_seeds, form="toml"),
    "slurm-answers": Target(slurm_answers, _answers_seeds, form="json", longest=20_000),
    "slurm-log": Target(slurm_log, _log_seeds),
}
"""The readers by name."""


def check(target: str, data: bytes, folder: Path) -> None:
    """Check the property on one input.

    Parameters
    ----------
    target : str
        A name in `TARGETS`.
    data : bytes
        What the file holds.
    folder : Path
        Where files may be written.

    Raises
    ------
    Exception
        Whatever the reader raises beside a `CpdispatchError`; `BrokenError` when what was read does
        not hold.
    """
    from cpdispatch.errors import CpdispatchError

    try:
        TARGETS[target].check(data, folder)
    except CpdispatchError as error:
        hold("\n" not in str(error), f"the error has several lines: {error}")


# ------------------------------------------------------------- inputs that are JSON or TOML

_VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 2**31, 2**48, 2**48 + 1, 2**63, 2**64, 10**30, -(2**63), 10**400, 0.5, 1e308, None,
    True, "", "core", "0", "-1", "\u00b2", "a" * 50, [], {}, [0], [[]], {"0": 1}, ["upper"],
    "cpdispatch-instance/1",
)  # fmt: skip


def _toml(value: Any) -> str:
    """A value as TOML has it in a line; it knows no null."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(of)}' for key, of in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if value is None:
        return "1979-05-27"
    if isinstance(value, date | time):  # a date with its time is a date, too
        return value.isoformat()
    return json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")


def _toml_file(tree: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {_toml(of)}\n" for key, of in tree.items())


_FORMS: dict[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "json": (json.loads, json.dumps), "toml": (tomllib.loads, _toml_file),
}  # fmt: skip
"""How a file is read as values, and written."""


def mutated(data: bytes, form: str, seed: int) -> bytes | None:
    """The same file with one or a few of its values changed; None when it is none of its form."""
    read, written = _FORMS[form]
    try:
        tree = read(data.decode())
        places = list(_places(tree))
    except (ValueError, RecursionError):
        return None
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(tree))
        if not places:
            break
        holder, key = rng.choice(places)
        _change(holder, key, rng, places)
    text = written(tree)
    if rng.random() < 0.05:  # a key twice
        text = text.replace(", ", ', "time": 1, ', 1)
    return text.encode("utf-8", "replace")


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value: what holds it, and its key or index there."""
    if isinstance(tree, dict | list):
        for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
            yield tree, key
            yield from _places(value)


def _change(holder: Any, key: Any, rng: random.Random, places: list[tuple[Any, Any]]) -> None:
    how, value = rng.randrange(7), holder[key]
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**64
    if how == 0:
        del holder[key]
    elif how == 1:
        other, at = rng.choice(places)
        holder[key] = copy.deepcopy(other[at])
    elif how == 2 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    elif how == 3 and isinstance(holder, dict):
        holder[rng.choice(("x", "0", "7", key + " ", "time", "mem"))] = holder.pop(key)
    elif how in (4, 5) and number:
        holder[key] = value + rng.choice((-1, 1, 10, 1000, -value, value, 0.5))
    else:
        holder[key] = copy.deepcopy(rng.choice(_VALUES))


# ------------------------------------------------------------------------------- the command


def smaller(data: bytes, broken: Callable[[bytes], bool], tries: int = 3000) -> bytes:
    """Take parts away from an input while it stays broken: half of it at first, then less."""
    size = max(len(data) // 2, 1)
    while size and tries:
        at = 0
        while at < len(data) and tries:
            shorter, tries = data[:at] + data[at + size :], tries - 1
            if broken(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def error_name(error: BaseException) -> str:
    """What errors of one cause have in common: their kind, and the last line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "cpdispatch" in frame.filename] or frames
    return f"{type(error).__name__}-{Path(ours[-1].filename).stem}-{ours[-1].lineno}"


class Findings:
    """The inputs that broke the property, the smallest one of each error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: dict[str, int] = {}

    def add(self, data: bytes, error: BaseException) -> None:
        """Keep an input unless a smaller one has ended the same way."""
        name = error_name(error)
        if len(data) >= self.sizes.get(name, sys.maxsize):
            return
        if name not in self.sizes:
            print(f"found: {name}: {str(error)[:300]}", flush=True)
        self.sizes[name] = len(data)
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob(f"{name}-*"):
            old.unlink()
        digest = hashlib.sha256(data).hexdigest()[:12]
        (self.folder / f"{name}-{digest}").write_bytes(data)
        text = "".join(traceback.format_exception(error))
        (self.folder / f"{name}.txt").write_text(text, errors="replace")


def _functions() -> Iterator[FunctionType]:
    """The functions and methods of the instrumented modules."""
    for name in INSTRUMENTED:
        module = importlib.import_module(f"cpdispatch.{name}")
        own = [
            it for it in vars(module).values() if getattr(it, "__module__", "") == module.__name__
        ]
        methods = [it for kind in own if isinstance(kind, type) for it in vars(kind).values()]
        for it in (*own, *methods):
            plain = getattr(it, "fget", None) or getattr(it, "__func__", it)
            if isinstance(plain, FunctionType):
                yield plain


def fuzz(target: str, minutes: float, corpus: Path) -> None:
    """Fuzz a reader for so many minutes."""
    try:
        import atheris
    except ImportError:
        sys.exit("benchmarks/fuzz.py needs atheris: pip install atheris")
    for function in _functions():
        atheris.instrument_func(function)
    chosen = TARGETS[target]
    with tempfile.TemporaryDirectory() as name:
        for data in chosen.seeds():  # compiles what it needs
            check(target, data, Path(name))
    found = Findings(corpus.with_name(corpus.name + ".found"))
    corpus.mkdir(parents=True, exist_ok=True)
    found.folder.mkdir(parents=True, exist_ok=True)
    kept = [path.read_bytes() for path in sorted((ROOT / "tests" / "corpus" / target).glob("*"))]
    for data in (*chosen.seeds(), *kept):
        (corpus / hashlib.sha256(data).hexdigest()[:20]).write_bytes(data)
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{target}-"))
    tried, first_s = 0, process_time()

    def one(data: bytes) -> None:
        nonlocal tried
        began_s = process_time()
        try:
            check(target, data, folder)
            took_s = process_time() - began_s
            hold(took_s < SLOWEST_S, f"took {took_s:.1f} s")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            found.add(data, error)
        tried += 1
        if tried % FROZEN == 0:
            gc.collect()
            gc.freeze()
        if process_time() - first_s >= 60 * minutes:
            shutil.rmtree(folder)
            add_up(target, minutes, tried)
            os._exit(0)  # libFuzzer would take an exception for a finding

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        changed = mutated(data, chosen.form, seed) if seed % 4 else None
        if changed is None or len(changed) > longest:
            return bytes(atheris.Mutate(data, longest))
        return changed

    options = {"custom_mutator": mutate} if chosen.form else {}
    arguments = [
        sys.argv[0], str(corpus), "-timeout=600", f"-max_len={chosen.longest}",
        f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={found.folder}/",
    ]  # fmt: skip
    atheris.Setup(arguments, one, **options)
    atheris.Fuzz()


def add_up(target: str, minutes: float, tried: int) -> None:
    """Add minutes and inputs to what the table has of a reader."""
    head = ("reader", "minutes", "inputs")
    before = {row[0]: row[1:] for row in rows_of("fuzzing")}
    spent, inputs = before.get(target, ("0", "0"))
    before[target] = f"{float(spent) + minutes:g}", f"{int(inputs) + tried}"
    write("fuzzing", [head, *((name, *before[name]) for name in TARGETS if name in before)])


def shrink(target: str, path: Path) -> None:
    """Replace an input that breaks the property by a smaller one that ends in the same error."""

    def ends_in(data: bytes) -> str:
        try:
            check(target, data, Path(folder))
        except Exception as error:
            return error_name(error)
        return ""

    with tempfile.TemporaryDirectory() as folder:
        data = path.read_bytes()
        name = ends_in(data)
        if not name:
            sys.exit(f"{path} does not break the property")
        path.write_bytes(smaller(data, lambda shorter: ends_in(shorter) == name))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz a reader.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--check", type=Path, nargs="+", help="check these inputs, and fuzz not")
    parser.add_argument("--shrink", type=Path, nargs="+", help="make these broken inputs smaller")
    given = parser.parse_args()
    if given.check:
        with tempfile.TemporaryDirectory() as folder:
            for path in given.check:
                check(given.target, path.read_bytes(), Path(folder))
        return
    if given.shrink:
        for path in given.shrink:
            shrink(given.target, path)
        return
    corpus = given.corpus or Path("corpora") / given.target
    if given.minutes <= PIECE:
        fuzz(given.target, given.minutes, corpus)
        return
    left = given.minutes
    while left > 0:
        piece = [given.target, "--minutes", f"{min(left, PIECE):g}", "--corpus", str(corpus)]
        code = subprocess.run([sys.executable, __file__, *piece], check=False).returncode
        if code:
            sys.exit(code)
        left -= PIECE


if __name__ == "__main__":
    script.run(__file__)
