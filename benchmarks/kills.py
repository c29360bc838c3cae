"""Kills simulations at random instants, resumes them, and compares them with undisturbed ones.

    python benchmarks/kills.py --traces DIR --kills 200 --seed 1 --out kills.json

Each trial begins a run in a process group of its own, lets something happen to it, goes on with
`--resume` to the end, and compares the results with those of a run that nothing happened to: the
bytes of jobs.parquet, decisions.parquet without its times, the metrics without times. What happens
is nothing, SIGKILL to the command, to its worker, to the solver or to all of them at once, or
SIGTERM, SIGHUP or SIGINT to the command or to all. At the end one run is killed every 10 s until it
is done, and must have got on each time. After each trial nothing may be left: no process, no
temporary file, no semaphore. Exit code 1 when something differs, is left, or was said wrongly.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec
import script

from cpdispatch.files import write_bytes

LOGS = {"KTH-SP2-1996-2.1-cln": 500, "UniLu-Gaia-2014-1": 1000, "lublin_256": 150}
"""Jobs of each log, which make runs of some seconds; `EASY_JOBS` where a decision takes no time."""

EASY_JOBS, MANY_JOBS = 3000, 6000
"""Jobs of a run under easy, and of the run that is killed every `PERIOD_S`."""

# Data of a user's own keep easy out of compiled code: that takes no time.
OPTIONS = ["--limit", "200ms", "--checkpoint", "500ms", "--data", "told:Told"]
TOLD = """class Told:
    name = "told"

    def value(self, moment):
        return moment.now_s
"""
SIGNALS = {"TERM": signal.SIGTERM, "HUP": signal.SIGHUP, "INT": signal.SIGINT}
KINDS = ("nothing", "command", "worker", "solver", "all", *SIGNALS)
WORKER, SOLVER = b"popen_loky", b"cpdispatch.models.solver"
PERIOD_S, PATIENCE_S = 10.0, 30.0
SEMAPHORES = Path("/dev/shm")
TIMES = ("seconds", "decision_ms_mean", "decision_ms_p99", "decision_ms_max")


@dataclass(frozen=True)
class Case:
    """A run: which log, under which dispatcher."""

    log: str
    dispatcher: str
    jobs: int

    @property
    def name(self) -> str:
        return f"{self.log}, {self.dispatcher}"


@dataclass
class Trial:
    """What came of one trial.

    Attributes
    ----------
    at_s : float
        When it happened, seconds after the command began.
    outcome : str
        What became of the command itself.
    differs : list of str
        What differs from the undisturbed run: jobs, columns of decisions, metrics.
    left : list of str
        What is left over.
    wrong : str
        What should have been otherwise: an exit code, a message.
    """

    case: str
    kind: str
    at_s: float
    outcome: str = ""
    differs: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    wrong: str = ""


# ----------------------------------------------------------------------------------- processes


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: bytes


def of_session(leader: int) -> list[Process]:
    """The processes, zombies aside, of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(Process(int(path.parent.name), int(parent), command))
    return found


class Runner:
    """Begins commands, and knows what they may leave behind."""

    def __init__(self, traces: Path, folder: Path) -> None:
        self.traces, self.folder = traces, folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (self.temporary.parent / "told.py").write_text(TOLD)
        sys.path.append(str(self.temporary.parent))  # checkpoints are read
        self.leaders: list[int] = []

    def begin(self, case: Case, out: Path, *options: str) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "cpdispatch", "simulate", f"{self.traces / case.log}.swf.gz",
            "-d", case.dispatcher, "--jobs", str(case.jobs), "--out", str(out), "--json",
            *OPTIONS, *options,
        ]  # fmt: skip
        running = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)}, start_new_session=True,
            cwd=self.temporary.parent,
        )  # fmt: skip
        self.leaders.append(running.pid)
        return running

    def semaphores(self) -> list[str]:
        """Those of the commands that were begun, and the folders that say so."""
        return [str(path) for n in self.leaders for path in SEMAPHORES.glob(f"*-{n}-*")]

    def left(self, out: Path) -> list[str]:
        """What should not be there any more, once processes had some time to end."""
        ended(self.leaders)
        found = [f"process {p.pid}: {p.command!r}" for n in self.leaders for p in of_session(n)]
        found += [str(path) for path in self.temporary.iterdir()]
        found += self.semaphores()
        found += [str(path) for path in out.rglob("*") if path.name[0] == "."]
        for name in ("checkpoint.pickle", "log.pickle"):
            found += [str(path) for path in out.rglob(name)]
        self.leaders = []
        return found


def ended(leaders: Sequence[int]) -> None:
    """Wait until the processes of these sessions have ended, for some time."""
    until = monotonic() + PATIENCE_S
    while any(map(of_session, leaders)) and monotonic() < until:
        sleep(0.05)


# -------------------------------------------------------------------------------- comparison


def differences(found: Path, wanted: Path) -> list[str]:
    """What differs between two finished runs, times aside."""
    import pyarrow.parquet as pq

    differs = []
    if (found / "jobs.parquet").read_bytes() != (wanted / "jobs.parquet").read_bytes():
        differs.append("jobs")
    one, two = (pq.read_table(folder / "decisions.parquet") for folder in (found, wanted))
    if len(one) != len(two):
        differs.append("decisions: how many")
    else:
        for name in sorted({*one.column_names, *two.column_names}):
            if name == "ms" or name.endswith("_ms"):
                continue
            columns = [
                table[name].to_pandas() for table in (one, two) if name in table.column_names
            ]
            # NaN, where a figure is not known, is like NaN.
            if len(columns) < 2 or not columns[0].equals(columns[1]):
                differs.append(f"decisions: {name}")
    metrics = [
        msgspec.json.decode((folder / "run.json").read_bytes())["metrics"]
        for folder in (found, wanted)
    ]
    names = sorted({*metrics[0], *metrics[1]} - set(TIMES))
    other = [name for name in names if metrics[0].get(name) != metrics[1].get(name)]
    return differs + [f"metrics: {name}" for name in other]


# ------------------------------------------------------------------------------------ trials


def trial(
    runner: Runner, case: Case, kind: str, whole: tuple[Path, float], draw: random.Random
) -> Trial:
    """Let something happen to a run, resume it, compare it; ``whole`` is the undisturbed one."""
    wanted, lasts_s = whole
    at_s = draw.uniform(0.0, lasts_s)
    made = Trial(case.name, kind, round(at_s, 2))
    cores = "2" if kind == "worker" else draw.choice("12")
    to_all = draw.random() < 0.5
    with tempfile.TemporaryDirectory(dir=runner.folder, prefix="run-") as name:
        out = Path(name) / "out"
        running = runner.begin(case, out, "--cores", cores)
        try:
            running.wait(None if kind == "nothing" else at_s)
        except subprocess.TimeoutExpired:
            strike(running, kind, to_all, draw)
        saved = (out / "checkpoint.pickle").exists()
        said = running.communicate()[1]
        ended([running.pid])
        made.outcome, made.wrong = judged(kind, running.returncode, said, saved)
        if not (out / "run.json").exists():
            resumed = runner.begin(case, out, "--cores", cores, "--resume")
            said = resumed.communicate()[1]
            if resumed.returncode:
                made.wrong = f"resumed, exit code {resumed.returncode}: {said[-300:]}"
        if not made.wrong:
            made.differs = differences(out, wanted)
        swept(runner, case, out)
        made.left = runner.left(out)
    return made


def swept(runner: Runner, case: Case, out: Path) -> None:
    """Begin one more command, which removes what killed ones have left for later commands."""
    if any(runner.temporary.iterdir()) or runner.semaphores():
        runner.begin(case, out, "--cores", "1", "--resume").communicate()


def strike(running: subprocess.Popen[str], kind: str, to_all: bool, draw: random.Random) -> None:
    """Let it happen: to a process of the kind as soon as there is one."""
    send: Callable[[int, int], None] = os.killpg if to_all else os.kill
    if kind in SIGNALS:
        send(running.pid, SIGNALS[kind])
    elif kind == "command":
        running.kill()
    elif kind == "all":
        os.killpg(running.pid, signal.SIGKILL)
    else:
        sign = WORKER if kind == "worker" else SOLVER
        while running.poll() is None:
            there = [process.pid for process in of_session(running.pid) if sign in process.command]
            if there:
                os.kill(draw.choice(there), signal.SIGKILL)
                return
            sleep(0.02)


def judged(kind: str, code: int, said: str, saved: bool) -> tuple[str, str]:
    """What became of a command, and what is wrong with that."""
    if kind in SIGNALS:
        number = int(SIGNALS[kind])
        if code == 128 + number and "add --resume" in said:
            return "stopped in order", ""
        if code == 0:
            return "had ended before", ""
        if code in (-number, 128 + number) and not saved:
            return "stopped outside the replay", ""
        return "stopped", f"exit code {code}, a checkpoint: {saved}, said {said[-300:]!r}"
    if kind in ("command", "all") and code == -signal.SIGKILL:
        return "killed", ""
    if code == 0:
        return ("went on" if kind in ("worker", "solver") else "had ended before"), ""
    return "failed", f"exit code {code}, said {said[-300:]!r}"


def again_and_again(runner: Runner, case: Case, whole: Path) -> tuple[Trial, list[float]]:
    """Kill all of a run every `PERIOD_S` until it is done; the seconds saved each time."""
    made, saved_s = Trial(case.name, f"every {PERIOD_S:.0f} s", PERIOD_S), [0.0]
    with tempfile.TemporaryDirectory(dir=runner.folder, prefix="run-") as name:
        out = Path(name) / "out"
        while not (out / "run.json").exists():
            running = runner.begin(case, out, "--cores", "1", "--resume")
            try:
                running.wait(PERIOD_S)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
            said = running.communicate()[1]
            if running.returncode not in (0, -signal.SIGKILL):
                made.wrong = f"exit code {running.returncode}: {said[-300:]}"
                break
            checkpoint = out / "checkpoint.pickle"
            if checkpoint.exists():
                saved_s.append(round(pickle.loads(checkpoint.read_bytes()).seconds, 2))
                if saved_s[-1] <= saved_s[-2]:
                    made.wrong = f"no progress: seconds of the replay that are saved: {saved_s}"
                    break
        made.outcome = f"killed {len(saved_s) - 1} times"
        if not made.wrong:
            made.differs = differences(out, whole)
        swept(runner, case, out)
        made.left = runner.left(out)
    return made, saved_s


# ------------------------------------------------------------------------------------ report


def table(trials: Sequence[Trial]) -> str:
    """A row a kind and dispatcher."""
    heading = ("kind", "dispatcher", "trials", "equal", "differ", "left over", "wrong", "outcomes")
    rows = [heading]
    groups: dict[tuple[str, str], list[Trial]] = {}
    for made in trials:
        groups.setdefault((made.kind, made.case.rpartition(", ")[2]), []).append(made)
    for (kind, dispatcher), group in groups.items():
        outcomes = Counter(made.outcome for made in group)
        counts = (
            len(group),
            sum(not made.differs and not made.wrong for made in group),
            sum(bool(made.differs) for made in group),
            sum(bool(made.left) for made in group),
            sum(bool(made.wrong) for made in group),
        )
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        rows.append((kind, dispatcher, *map(str, counts), told))
    widths = [max(len(row[k]) for row in rows) for k in range(len(heading))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    for made in trials:
        if made.differs or made.left or made.wrong:
            told = "; ".join(
                f"{what}: {found}"
                for what, found in (
                    ("differs", ", ".join(made.differs)),
                    ("left over", ", ".join(made.left)),
                    ("wrong", made.wrong),
                )
                if found
            )
            lines.append(f"{made.case}, {made.kind} at {made.at_s} s ({made.outcome}): {told}")
    return "\n".join(lines)


def dispatchers() -> list[str]:
    learn = importlib.util.find_spec("sklearn") is not None
    return ["easy", "hcp", "pcp:model=boxes", *(["best"] if learn else [])]


def undisturbed(runner: Runner, case: Case, kept: Path) -> tuple[Path, float]:
    """A run that nothing happens to, and how long its command lasts, seconds."""
    began = monotonic()
    running = runner.begin(case, kept, "--cores", "1")
    said = running.communicate()[1]
    if running.returncode:
        raise SystemExit(f"{case.name}: exit code {running.returncode}: {said}")
    return kept, monotonic() - began


def work(runner: Runner, kills: int, draw: random.Random) -> tuple[list[Trial], list[float]]:
    """All trials: every kind with every case, in random order, again and again."""
    cases = [
        Case(log, dispatcher, EASY_JOBS if dispatcher == "easy" else jobs)
        for dispatcher in dispatchers()
        for log, jobs in LOGS.items()
    ]
    pairs = list(product(cases, KINDS))
    draw.shuffle(pairs)
    wholes: dict[str, tuple[Path, float]] = {}
    trials: list[Trial] = []
    for number in range(kills):
        case, kind = pairs[number % len(pairs)]
        if kind == "solver" and case.dispatcher == "easy":
            kind = "command"
        if case.name not in wholes:
            wholes[case.name] = undisturbed(runner, case, runner.folder / f"whole-{len(wholes)}")
        made = trial(runner, case, kind, wholes[case.name], draw)
        trials.append(made)
        print(
            f"{number + 1} of {kills}: {made.case}, {made.kind} at {made.at_s} s: {made.outcome}"
            f"{', DIFFERS' * bool(made.differs)}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    long = Case("KTH-SP2-1996-2.1-cln", "hcp", MANY_JOBS)
    whole, _ = undisturbed(runner, long, runner.folder / "whole-long")
    made, saved_s = again_and_again(runner, long, whole)
    return [*trials, made], saved_s


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=script.folder, required=True, help="folder of the logs")
    parser.add_argument("--kills", type=script.count, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file for the summary, JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        runner = Runner(arguments.traces.absolute(), Path(name))
        trials, saved_s = work(runner, arguments.kills, random.Random(arguments.seed))
    print(table(trials))
    print(f"seconds of the replay that were saved when it was killed every 10 s: {saved_s}")
    summary: dict[str, Any] = {
        "seed": arguments.seed,
        "trials": len(trials),
        "differ": sum(bool(made.differs) for made in trials),
        "left_over": sum(bool(made.left) for made in trials),
        "wrong": sum(bool(made.wrong) for made in trials),
        "saved_s": saved_s,
        "all": [asdict(made) for made in trials],
    }
    if arguments.out is not None:
        write_bytes(arguments.out, msgspec.json.format(msgspec.json.encode(summary), indent=1))
    return int(any(made.differs or made.left or made.wrong for made in trials))


if __name__ == "__main__":
    script.run(__file__)
