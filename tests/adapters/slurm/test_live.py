"""Driving a real Slurm whose daemons run on this machine."""

from __future__ import annotations

import functools
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cpdispatch import cli
from cpdispatch.adapters.slurm import guard
from cpdispatch.adapters.slurm.client import Client, RefusedError
from cpdispatch.adapters.slurm.cluster import job_of
from cpdispatch.adapters.slurm.drive import LAST
from cpdispatch.adapters.slurm.record import LEFT_OUT, NO_ROOM
from cpdispatch.simulator import Run
from tests.adapters.slurm.cluster import TELL, Cluster, missing, until
from tests.adapters.slurm.jobs import (
    PARTITIONS,
    accounting,
    ended,
    features,
    mixed,
    quality,
    submit,
    violations,
)

MANY = int(os.environ.get("CPDISPATCH_SLURM_JOBS", "200"))
"""Jobs of the largest test; a third of them are driven while daemons are killed."""
FIGURES = os.environ.get("CPDISPATCH_SLURM_FIGURES")
"""Where that test writes its figures: the second table of docs/slurm.md."""
PATIENCE_S = 240.0

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here")


@dataclass
class Site:
    """A cluster, what drives it, and what the driver has logged."""

    slurm: Cluster
    state: Path
    log: Path
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def client(self) -> Client:
        return Client(self.slurm.socket, 15)

    def command(self, *more: str) -> list[str]:
        return ["slurm", "drive", "--socket", str(self.slurm.socket), "--state", str(self.state),
                *more]  # fmt: skip

    def drive(self, *more: str, every: str = "0.4s") -> subprocess.Popen[str]:
        """Begin to drive, as a user would."""
        code = "from cpdispatch.cli import main; main()"
        given = ["--every", every, "--patience", "3s", "--timeout", "2s", "--log",
                 str(self.log), *more]  # fmt: skip
        driver = subprocess.Popen(
            [sys.executable, "-c", code, *self.command(*given)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | self.slurm.environment,
        )  # fmt: skip
        self.drivers.append(driver)
        return driver

    def stop(self, driver: subprocess.Popen[str]) -> str:
        """End a driver, and return what it said."""
        driver.terminate()
        said, _ = driver.communicate(timeout=PATIENCE_S)
        assert driver.returncode == 0, said
        return said

    def rows(self) -> list[dict[str, Any]]:
        """What was logged, one row a cycle."""
        rows = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [row for row in rows if "released" in row]  # others failed before they decided

    def decided(self) -> dict[str, list[str]]:
        """The nodes that were last decided of each job."""
        found: dict[str, list[str]] = {}
        for row in self.rows():
            found |= row["released"]
        return found

    def states(self) -> list[str]:
        return [row["job_state"] for row in self.client.jobs()]

    def wait(self, true: Callable[[], bool], otherwise: str) -> None:
        until(true, otherwise, PATIENCE_S)

    def wait_for_all(self, jobs: int) -> None:
        """Wait until so many jobs have completed."""

        # What the jobs say: a controller that is started anew forgets jobs that have ended.
        def over() -> bool:
            waiting = {"PENDING", "RUNNING", "COMPLETING"} & set(self.states())
            return not waiting and len(self.slurm.ran()) >= jobs

        try:
            self.wait(over, "not all jobs completed")
        except RuntimeError as error:
            shown = ("job_id", "job_state", "state_reason", "priority", "required_nodes")
            left = [
                {name: row[name] for name in shown}
                for row in self.client.jobs()
                if row["job_state"] != "COMPLETED"
            ]
            silent = set(ended(self.client.jobs())) - set(self.slurm.ran())
            raise AssertionError(
                f"{error} of {jobs}, {len(self.slurm.ran())} ran; ended without: {silent}; {left}"
            ) from error
        ran = self.slurm.ran()
        assert len(ran) == jobs
        assert not [job for job, starts in ran.items() if len(starts) > 1]
        assert set(self.states()) <= {"COMPLETED"}

    def wait_for_cycle(self) -> None:
        """Wait until a cycle is over."""
        before = len(self.rows())
        self.wait(lambda: len(self.rows()) > before, "no cycle")

    def wait_for_rest(self) -> None:
        """Wait until the controller knows of every job that ran, where nobody releases others.

        It saves its state within 5 s, and one that is killed starts again what came later.
        """
        ran = -1
        while ran < len(self.slurm.ran()):
            ran = len(self.slurm.ran())
            self.wait(lambda: not {"RUNNING", "COMPLETING"} & set(self.states()), "jobs run")
            time.sleep(8)

    def alive(self) -> bool:
        return (self.state / guard.ALIVE).exists()


@contextmanager
def site(kind: type[Cluster] = Cluster, **settings: Any) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="cpdispatch-slurm-"))
    folder.chmod(0o755)
    state = folder / "driver"
    state.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()
        settings = {"plugin": guard.plugin(state, user), "features": features,
                    "partition_lines": PARTITIONS} | settings  # fmt: skip
        slurm = stack.enter_context(kind(folder, **settings))
        made = Site(slurm, state, folder / "log.jsonl")
        stack.callback(_end, made.drivers)
        yield made


def _end(drivers: Sequence[subprocess.Popen[str]]) -> None:
    for driver in drivers:
        if driver.poll() is None:
            driver.kill()
        driver.communicate()


def check(
    made: Site, decided: Callable[[str, dict[str, Any]], Sequence[str]], first: int = 0
) -> None:
    """Every job from this number on ran to its end, on the nodes decided, and no node ever held
    too much.
    """
    found = ended([row for row in made.client.jobs() if row["job_id"] >= first])
    assert {row["job_state"] for row, _ in found.values()} == {"COMPLETED"}
    assert all(row["restart_cnt"] == 0 for row, _ in found.values())
    for key, (row, nodes) in found.items():
        if row["licenses"]:
            continue
        given = decided(key, row)
        # A job that does not fix their number may get more nodes than were named.
        assert set(given) <= set(nodes)
        assert len(given) == len(nodes) or not row["max_nodes"]
    assert violations(made.client, first) == []


def nodes_of(log: dict[str, list[str]], key: str, row: dict[str, Any]) -> list[str]:
    """Where a job was sent: a release whose answer came too late is not in the log."""
    return log.get(key) or named(row["required_nodes"])


def test_many_mixed_jobs_run_on_the_nodes_that_were_decided(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = mixed(1, MANY, 4)
    many = sum(job.tasks for job in jobs)
    columns = ("makespan s", "mean wait s", "mean bounded slowdown")
    lines = [",".join(("dispatcher", "jobs", *columns))]
    with site() as made:
        for run, name in enumerate(("slurm", "easy", "best", "hcp"), start=1):
            # Without a driver the jobs are Slurm's own, and its backfilling starts them.
            driver = None if name == "slurm" else made.drive("-d", name)
            if driver is not None:
                made.wait(made.alive, "the driver does not live")
            first = min(submit(made.slurm, jobs))
            made.wait_for_all(run * many)
            limited = [row["array_max_tasks"] for row in made.client.jobs()]
            assert any(limited)
            if driver is None:
                assert violations(made.client) == []
            else:
                said = made.stop(driver)
                check(made, functools.partial(nodes_of, made.decided()), first)
                assert "0 jobs handed back" in said
            found = quality(made.client, first)
            figures = (f"{found['makespan_s']},{found['wait_s']:.1f},{found['slowdown']:.2f}",)
            lines.append(",".join((f"`{name}`", str(many), *figures)))
        assert any("licenses" in why for row in made.rows() for why in row["left"].values())
        recorded_as_a_run(made, first, many)
    with capsys.disabled():
        print("", *lines, sep="\n")
    if FIGURES:
        Path(FIGURES).write_text("\n".join(lines) + "\n")


def recorded_as_a_run(made: Site, first: int, many: int) -> None:
    """The jobs from this number on are a feasible run, on the nodes that they had, and a page."""
    pytest.importorskip("bokeh")
    folder, rows = made.slurm.folder, [r for r in made.client.jobs() if r["job_id"] >= first]
    (folder / "sacct").write_text(accounting(rows))
    shown = [made.slurm.run("scontrol", "show", what) for what in ("node", "partition")]
    (folder / "nodes").write_text("\n".join(shown))
    out, given = folder / "driven", {"history": "sacct", "system": "nodes", "log": made.log.name}
    asked = [f"--{option}={folder / name}" for option, name in given.items()]
    assert cli.run(["slurm", "record", *asked, "--out", str(out)]) == 0
    run = Run.load(out)
    assert run.about["dispatcher"] == "hcp (driven)"
    assert run.verify() == []
    # sacct does not tell how CPUs were split over nodes: evenly split, a job may find no room.
    left = sum(n for what, n in run.about["notes"].items() if what == f"{LEFT_OUT}{NO_ROOM}")
    assert many - 3 <= many - left == len(run.jobs)
    assert run.decisions["started"].sum() >= run.about["notes"]["jobs that the driver released"]
    assert cli.run(["verify", "--run", str(out)]) == 0
    assert cli.run(["report", str(out), "--out", str(folder / "page.html")]) == 0
    assert "hcp (driven) is no simulation" in (folder / "page.html").read_text()


HOSTILE = ("$(touch ../owned)", "`touch ../owned`", "; touch ../owned #", "[/red]x", 'a|b\nc"d')
"""Names of jobs that a shell, markup or a format with separators would stumble over."""


def test_a_driver_that_is_killed_again_and_again_and_a_controller_that_is() -> None:
    rng = random.Random(5)
    with site() as made:
        made.drive("-d", "best")
        made.wait(made.alive, "the driver does not live")
        jobs = mixed(2, MANY // 3, made.slurm.gpus)
        submit(made.slurm, jobs)
        for name in HOSTILE:
            made.slurm.submit("--mem=100", f"--job-name={name}", f"--comment={name}")
        many = sum(job.tasks for job in jobs) + len(HOSTILE)
        for kill in range(5):
            made.wait_for_cycle()
            time.sleep(rng.random())
            made.drivers[-1].kill()
            made.drivers[-1].wait()
            if kill == 2:
                made.wait_for_rest()
                made.slurm.kill("slurmctld")
            made.drive("-d", "best")
            if kill == 2:
                time.sleep(2)
                made.slurm.start_controller()
            if kill == 3:
                # Longer than the driver waits for an answer.
                with made.slurm.frozen("slurmrestd"):
                    time.sleep(4)
                with made.slurm.frozen("slurmctld"):
                    time.sleep(4)
        made.wait_for_all(many)
        # A cycle that was cut short is not in the log: what was decided in it is in Slurm.
        check(made, lambda key, row: named(row["required_nodes"]))
        made.wait_for_cycle()
        made.stop(made.drivers[-1])
        assert {row["name"] for row in made.client.jobs()} >= set(HOSTILE)
        assert not list(made.slurm.folder.rglob("owned"))


def named(text: str) -> list[str]:
    from cpdispatch.workloads.slurm.values import nodes_in

    return nodes_in(text)


def test_stopping_hands_everything_back(capsys: pytest.CaptureFixture[str]) -> None:
    with site() as made:
        driver = made.drive()
        made.wait(made.alive, "the driver does not live")
        submit(made.slurm, [job for job in mixed(3, 40, 0) if job.kind not in ("licence", "names")])
        made.slurm.submit("--array=0-30", "--nodes=1", "--exclusive", "--mem=100")
        made.slurm.submit("--mem=100", "--nodelist=n07", "--begin=now+1hour")
        until(lambda: bool(made.decided()), "nothing was released")
        if os.getuid() == 0:
            users_may_not_release(made)
        commented_job_stays_the_drivers(made)
        word_of_the_plugin_is_nothing_to_write_oneself(made)
        with pytest.raises(AssertionError):
            made.stop(made.drive())  # a second one
        assert cli.run(made.command("--stop")) == 0
        assert "the driver has ended" in capsys.readouterr().out
        said, _ = driver.communicate(timeout=PATIENCE_S)
        assert driver.returncode == 0, said
        assert not made.alive()
        jobs = [job_of(row) for row in made.client.jobs() if row["job_state"] == "PENDING"]
        assert jobs
        assert not [job.key for job in jobs if job.held]
        assert [job.required for job in jobs if job.required] == ["n07"]
        free = made.slurm.submit("--mem=100")
        held = [job_of(row).held for row in made.client.jobs() if row["job_id"] == free]
        assert held == [False]
        # Killed, it leaves held jobs, and a sign of life that fades.
        driver = made.drive(every="100s")
        made.wait(made.alive, "the driver does not live")
        left = made.slurm.submit("--mem=100")
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert cli.run(made.command("--stop", "--json")) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["ended"] is False
        assert str(left) in told["handed_back"]
        assert not made.alive()
        # A sign of life from the future, of before the clock was set back, is none.
        (made.state / guard.ALIVE).write_text(f"{int(time.time()) + 86_400}\n\n")
        free = made.slurm.submit("--mem=100")
        held = [job_of(row).held for row in made.client.jobs() if row["job_id"] == free]
        assert held == [False]


def users_may_not_release(made: Site) -> None:
    """A user's own job stays held, whoever of the users releases it."""
    user = pwd.getpwnam("daemon")
    as_user: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    given = {"env": made.slurm.environment, "capture_output": True, "text": True, "cwd": "/tmp"}
    said = subprocess.run(
        ["sbatch", "--parsable", "--begin=now+1hour", "--wrap", "true"], check=True, **given,
        **as_user,
    )  # fmt: skip
    job = said.stdout.strip()
    assert subprocess.run(["scontrol", "release", job], **given, **as_user).returncode
    nicer = ["scontrol", "update", f"jobid={job}", "nice=10"]
    assert subprocess.run(nicer, **given, **as_user).returncode
    row = next(row for row in made.client.jobs() if str(row["job_id"]) == job)
    assert row["priority"] == 0
    made.slurm.run("scontrol", "hold", job)
    assert subprocess.run(["scontrol", "release", job], **given, **as_user).returncode
    row = next(row for row in made.client.jobs() if str(row["job_id"]) == job)
    assert job_of(row).others_hold
    made.slurm.run("scancel", job)


def word_of_the_plugin_is_nothing_to_write_oneself(made: Site) -> None:
    job = made.slurm.submit("--mem=100", "--begin=now+1hour", "--comment=cpdispatch-kept mine")
    row = next(row for row in made.client.jobs() if row["job_id"] == job)
    assert (row["comment"], job_of(row).marked, job_of(row).others_hold) == ("mine", True, False)
    made.slurm.run("scancel", str(job))


def commented_job_stays_the_drivers(made: Site) -> None:
    """What an administrator writes comes after the mark, and is replaced by the next comment."""
    job = made.slurm.submit("--mem=100", "--nodelist=n05", "--begin=now+1hour")
    for text in ("ticket 7", "see ticket 8"):
        made.slurm.run("scontrol", "update", f"jobid={job}", f"admincomment={text}")
        row = next(row for row in made.client.jobs() if row["job_id"] == job)
        assert row["admin_comment"] == f"cpdispatch n05 {text}"
        assert (job_of(row).marked, job_of(row).wished, row["priority"]) == (True, "n05", 0)
    made.slurm.run("scancel", str(job))


def test_a_test_run_ends_with_the_job_queued_again_and_a_second_start() -> None:
    with site(nodes=4, gpus=0) as made:
        driver = made.drive("-d", "easy-spf-spf:test=4,tests=turn")
        made.wait(made.alive, "the driver does not live")
        # Its first run would be long, and it has to be killed.
        stubborn = f"trap '' TERM; {TELL}; exec sleep $((SLURM_RESTART_COUNT ? 1 : 100))"
        said = made.slurm.run(
            "sbatch", "--parsable", "--nodes=4", "--exclusive", "--mem=100", "--time=30",
            "--output=/dev/null", "--wrap", stubborn,
        )  # fmt: skip
        tested = said.strip()
        made.wait(lambda: "RUNNING" in made.states(), "nothing is tested")
        short = [made.slurm.submit("--exclusive", "--mem=100", "--time=1") for _ in range(4)]
        # Nobody may stop this one, though it lasts longer than a test, and others wait.
        whole = made.slurm.submit(
            "--exclusive", "--mem=100", "--time=10", "--no-requeue", seconds=7
        )  # fmt: skip

        def stopped() -> bool:
            return any(tested in row["stopped"] for row in made.rows())

        made.wait(stopped, "the test did not end")
        made.wait(lambda: made.states().count("COMPLETED") == 6, "not all jobs completed")
        said = made.stop(driver)
        assert f"{tested}: its test run is over, queued again" in said
        ran = made.slurm.ran()
        assert {job: len(starts) for job, starts in ran.items()} == {
            tested: 2, str(whole): 1, **{str(job): 1 for job in short},
        }  # fmt: skip
        tests = [job for row in made.rows() for job in row["tests"]]
        assert tests.count(tested) == 1
        assert str(whole) not in tests
        rows = {row["job_id"]: row for row in made.client.jobs()}
        assert rows[int(tested)]["restart_cnt"] == 1
        assert all(rows[job]["restart_cnt"] == 0 for job in [whole, *short])
        assert violations(made.client) == []


def test_a_node_that_dies_a_job_that_is_cancelled_and_a_partition_alone() -> None:
    with site() as made:
        made.drive("--only-partition", "main")
        made.wait(made.alive, "the driver does not live")
        other = made.slurm.submit("--partition=small", "--mem=100")
        # More than there is room for: the last ones wait.
        ids = [
            made.slurm.submit("--nodes=4", "--exclusive", "--mem=100", "--time=2", seconds=2)
            for _ in range(8)
        ]
        made.slurm.run("scancel", str(ids[-1]))
        made.slurm.kill("n03")
        made.slurm.run("scontrol", "update", "NodeName=n03", "State=DOWN", "Reason=dead")
        made.slurm.run("scontrol", "update", "NodeName=n04", "State=DRAIN", "Reason=fan")

        def over() -> bool:
            return not {"PENDING", "RUNNING", "COMPLETING"} & set(made.states())

        made.wait(over, "not all jobs ended")
        rows = {row["job_id"]: row for row in made.client.jobs()}
        assert rows[ids[-1]]["job_state"] == "CANCELLED"
        assert all(rows[job]["job_state"] == "COMPLETED" for job in [other, *ids[:-1]])
        assert str(other) not in made.decided()
        later = [rows[job] for job in ids[4:-1]]
        assert all({"n03", "n04"}.isdisjoint(named(row["nodes"])) for row in later)
        made.stop(made.drivers[-1])


def test_what_others_hold_stays_held_until_they_release_it() -> None:
    with site(nodes=4, gpus=0) as made:
        # A prolog that fails where the job's name says so: Slurm drains the node.
        prolog = made.slurm.folder / "prolog.sh"
        prolog.write_text(f"#!/bin/sh\ntest ! -e {made.slurm.folder}/bad-$SLURM_JOB_ID\n")
        prolog.chmod(0o755)
        with made.slurm.conf.open("a") as conf:
            conf.write(f"Prolog={prolog}\n")
        made.slurm.run("scontrol", "reconfigure")
        driver = made.drive()
        made.wait(made.alive, "the driver does not live")

        def told(what: str, job: int) -> bool:
            return any(str(job) in row[what] for row in made.rows())

        def now(job: int) -> dict[str, Any]:
            return next(row for row in made.client.jobs() if row["job_id"] == job)

        sent_back = made.slurm.submit("--mem=100", "--time=10", seconds=300)
        made.wait(lambda: now(sent_back)["job_state"] == "RUNNING", "nothing runs")
        made.slurm.run("scontrol", "requeuehold", str(sent_back))
        full = made.slurm.submit("--nodes=4", "--exclusive", "--mem=100", "--time=1", seconds=3)
        waits = made.slurm.submit("--nodes=4", "--exclusive", "--mem=100", "--time=9")
        made.wait(lambda: now(full)["job_state"] == "RUNNING", "nothing else runs")
        made.slurm.run("scontrol", "hold", str(waits))
        array = made.slurm.submit("--array=0-2", "--nodes=1", "--exclusive", "--mem=100")
        made.slurm.run("scontrol", "hold", str(array))
        impossible = made.slurm.submit("--nodes=1", "--mem=64000000", "--time=1")
        for job, what in (
            (sent_back, "kept"), (waits, "kept"), (array, "kept"), (impossible, "left"),
        ):  # fmt: skip
            made.wait(functools.partial(told, what, job), f"{job} is not {what}")
        bad = made.slurm.submit("--mem=100", "--time=1", "--begin=now+8")
        (made.slurm.folder / f"bad-{bad}").touch()
        made.wait(lambda: told("kept", bad), "a job that cannot be launched is not kept")
        for _ in range(10):
            made.wait_for_cycle()
        assert [now(job)["priority"] for job in (sent_back, waits, bad)] == [0, 0, 0]
        assert [now(job)["required_nodes"] for job in (sent_back, waits, bad)] == [""] * 3
        assert sum(str(impossible) in row["left"] for row in made.rows()) == 1
        assert made.slurm.states().count("drain") + made.slurm.states().count("drng") == 1
        made.slurm.run("scontrol", "release", str(sent_back))
        made.wait(lambda: told("retracted", sent_back), "what is released is not driven again")
        made.wait(lambda: now(sent_back)["job_state"] == "RUNNING", "it does not run again")
        # Where there is room, Slurm may start what is released before the driver sees it.
        made.slurm.run("scontrol", "release", str(array))
        tasks = {f"{array}_{task}" for task in range(3)}
        made.wait(lambda: tasks <= set(made.slurm.ran()), "the tasks of an array do not run")
        said = made.stop(driver)
        assert f"{waits}: held by others (JobHeldAdmin): it stays so until they release it" in said
        assert [now(job)["priority"] for job in (waits, bad)] == [0, 0]


def test_holds_by_others_outlive_drivers_and_what_they_know() -> None:
    with site(nodes=4, gpus=0) as made:
        driver = made.drive()
        made.wait(made.alive, "the driver does not live")

        # What is to start immediately or not at all is not held.
        made.slurm.run("salloc", "-I", "--mem=100", "--ntasks=1", "true")

        def run(*command: str, user: str = "") -> None:
            # As root, jobs can be those of somebody else, who may not change the mark.
            as_user: dict[str, Any] = {}
            if user and os.getuid() == 0:
                entry = pwd.getpwnam(user)
                as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            subprocess.run(command, check=True, env=made.slurm.environment, cwd="/tmp", **as_user)

        def by_others(*jobs: str) -> list[bool]:
            rows = {job_of(row).key: job_of(row) for row in made.client.jobs()}
            assert all(rows[job].held for job in jobs if rows[job].others_hold)
            return [rows[job].others_hold for job in jobs]

        full = made.slurm.submit("--nodes=4", "--exclusive", "--mem=100", seconds=300)
        made.wait(lambda: "RUNNING" in made.states(), "nothing runs")
        few = "sbatch", "--mem=100", "--output=/dev/null", "--wrap", "sleep 1"
        for more in ("--licenses=matlab:1 --comment=ab", "--nodelist=n02", "--array=0-1", ""):
            run(*few, *more.split(), user="daemon")
        left, waits, array, other = (str(full + k) for k in (1, 2, 3, 4))
        made.wait(lambda: any(row["left"] for row in made.rows()), "nothing is left to Slurm")
        run("scontrol", "hold", left, user="daemon")
        run("scontrol", "uhold", waits)
        run("scontrol", "uhold", f"{array}_1")
        # As a driver would that has decided before that.
        with pytest.raises(RefusedError):
            made.client.update(waits, {"nodelist": "n02", "hold": False})
        for _ in range(2):
            assert cli.run(made.command("--stop")) == 0
            assert by_others(left, waits, f"{array}_1", other) == [True, True, True, False]
        assert driver.wait(PATIENCE_S) == 0
        run("scontrol", "hold", other, user="daemon")
        driver = made.drive()
        made.wait(made.alive, "the driver does not live")
        (made.state / "journal.json").unlink()
        made.slurm.run("scancel", str(full))
        for _ in range(5):
            made.wait_for_cycle()
        assert by_others(left, waits, f"{array}_1", other) == [True] * 4
        # Slurm must not start them before the driver has seen that they are released.
        made.slurm.submit("--nodes=4", "--exclusive", "--mem=100", seconds=300)
        made.wait(lambda: "RUNNING" in made.states(), "nothing runs")
        for job in (left, waits, f"{array}_1", other):
            assert any(job in row["kept"] for row in made.rows())
            run("scontrol", "release", job, user="daemon")
        # The driver holds what its user has released, and so it is nobody else's any more.
        jobs = {left, waits, f"{array}_1", other}

        def none_by_others() -> bool:
            found = {job.key: job for job in map(job_of, made.client.jobs())}
            return not any(found[job].others_hold for job in jobs)

        made.wait(none_by_others, "a job that was released is taken for held by others")
        comments = {job_of(row).key: row["comment"].strip() for row in made.client.jobs()}
        assert [comments[job] for job in (left, waits)] == ["ab", ""]
        made.stop(driver)


def test_a_job_that_is_left_to_slurm_keeps_no_other_waiting() -> None:
    # Between two rounds of Slurm's backfilling a job without room blocks those of less priority.
    with site(backfill_s=600) as made:
        driver = made.drive()
        made.wait(made.alive, "the driver does not live")
        made.slurm.submit("--exclusive", "--mem=100", seconds=300)
        wide = made.slurm.submit("--nodes=16", "--exclusive", "--mem=100", "--licenses=matlab:1")
        until(lambda: any(row["left"] for row in made.rows()), "nothing was left to Slurm")
        small = [made.slurm.submit("--mem=100", "--time=1") for _ in range(20)]
        made.wait(lambda: made.states().count("COMPLETED") == len(small), "the others wait")
        assert not any(row["retracted"] for row in made.rows())
        made.stop(driver)
        row = next(row for row in made.client.jobs() if row["job_id"] == wide)
        assert row["job_state"] == "PENDING"
        assert row["priority"] > LAST


def test_jobs_that_waited_before_keep_no_driven_job_waiting() -> None:
    with site(backfill_s=600) as made:
        made.slurm.submit("--exclusive", "--mem=100", seconds=300)
        wide = made.slurm.submit("--nodes=16", "--exclusive", "--mem=100")
        driver = made.drive()
        made.wait(made.alive, "the driver does not live")
        small = [made.slurm.submit("--mem=100", "--time=1") for _ in range(20)]
        made.wait(lambda: made.states().count("COMPLETED") == len(small), "the others wait")
        made.stop(driver)
        assert len(made.decided()) == len(small)
        row = next(row for row in made.client.jobs() if row["job_id"] == wide)
        assert row["job_state"] == "PENDING"


def test_jobs_that_their_submitters_hold_are_driven_without_a_plugin() -> None:
    with site(plugin="") as made:
        jobs = [job for job in mixed(4, 12, made.slurm.gpus) if job.kind != "licence"]
        submit(made.slurm, jobs, "--hold")
        free = made.slurm.submit("--mem=100")
        made.drive("--hold-by", "submitters", "-d", "hcp")
        made.wait_for_all(sum(job.tasks for job in jobs) + 1)
        decided = made.decided()
        assert str(free) not in decided
        for key, (_, nodes) in ended(made.client.jobs()).items():
            assert key == str(free) or set(decided[key]) <= set(nodes)
        made.stop(made.drivers[-1])


def test_reservations_licences_and_limits_of_arrays_hold() -> None:
    with site(nodes=4, gpus=0) as made:
        driver = made.drive("-d", "best")
        made.wait(made.alive, "the driver does not live")
        # Every job asks for a minute: on these nodes none may start before it is over.
        made.slurm.run(
            "scontrol", "create", "reservation", "ReservationName=repair", "Nodes=n[01-02]",
            "StartTime=now+10", "EndTime=now+25", "Flags=MAINT", "Users=root",
        )  # fmt: skip
        (repair,) = made.client.reservations()
        begin_s, end_s = repair["start_time"], repair["end_time"]
        few = ("--mem=100", "--time=1", "--nodes=1")
        wide = made.slurm.submit("--nodes=4", "--exclusive", "--mem=100", "--time=1")
        array = made.slurm.submit(*few, "--array=0-7%3")
        for _ in range(6):
            made.slurm.submit(*few, "--licenses=matlab:1")
        alone = [made.slurm.submit(*few, "--exclusive") for _ in range(8)]
        named_one = made.slurm.submit(*few, "--nodelist=n01")
        made.wait(lambda: made.client.now_s() > begin_s + 2, "the repair does not begin")
        during = [made.slurm.submit(*few) for _ in range(4)]
        made.wait_for_all(8 + 6 + len(alone) + len(during) + 2)
        made.stop(driver)
        rows = {row["job_id"]: row for row in made.client.jobs()}
        on_repaired = [row for row in rows.values() if {"n01", "n02"} & set(named(row["nodes"]))]
        assert all(row["end_time"] <= begin_s or row["start_time"] >= end_s for row in on_repaired)
        assert {wide, named_one} <= {row["job_id"] for row in on_repaired}
        assert all(rows[job]["start_time"] < end_s for job in during)
        assert rows[array]["array_max_tasks"] == 3
        assert violations(made.client) == []
        decided = made.decided()
        assert str(wide) in decided
        assert not any(row["retracted"] or row["refused"] for row in made.rows())


def test_watch_and_slurm_agree_on_what_waits(capsys: pytest.CaptureFixture[str]) -> None:
    with site(plugin="", nodes=4, gpus=0) as made:
        made.slurm.run(
            "scontrol", "create", "reservation", "ReservationName=repair", "Nodes=n01",
            "StartTime=now", "Duration=10", "Flags=MAINT", "Users=root",
        )  # fmt: skip
        few = ("--mem=100", "--time=1", "--nodes=1")
        array = made.slurm.submit(*few, "--array=0-4%2", seconds=60)
        licensed = [made.slurm.submit(*few, "--licenses=matlab:1", seconds=60) for _ in range(3)]
        reserved = made.slurm.submit(*few, "--nodelist=n01")
        until(lambda: made.states().count("RUNNING") == 4, "others run")
        time.sleep(2)
        assert made.states().count("RUNNING") == 4
        socket = ["--socket", str(made.slurm.socket)]
        assert cli.run(["slurm", "watch", *socket, "--cycles", "1", "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        # Slurm starts none of these either: two tasks, two licences, a node under repair.
        assert row["left"] == {str(licensed[-1]): "asks for licenses"}
        assert row["not_asked"] == [str(array)]
        ((job, nodes, why),) = [(seen["job"], seen["nodes"], seen["why"]) for seen in row["jobs"]]
        assert (job, nodes) == (str(reserved), [])
        # Slurm marks the node some time after the reservation has begun; then it takes no job.
        assert why.startswith(("reserved, in ", "waits for nodes that it may use"))
        explain = ["slurm", "explain", *socket, "--job"]
        assert cli.run([*explain, f"{array}_2"]) == 0
        assert "2 are started, and its limit is 2 at a time" in capsys.readouterr().out
        assert cli.run([*explain, str(reserved)]) == 0
        assert "A reservation keeps n01 until" in capsys.readouterr().out


def test_watching_a_live_cluster_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with site(plugin="") as made:
        made.slurm.submit("--nodes=16", "--exclusive", "--mem=100", seconds=30)
        hostile = "[/red]$(touch owned)"
        made.slurm.submit("--mem=100", "--nodelist=n02", f"--job-name={hostile}")
        until(lambda: "RUNNING" in made.states(), "nothing runs")
        before = [(row["job_id"], row["job_state"], row["priority"]) for row in made.client.jobs()]
        socket = ["--socket", str(made.slurm.socket)]
        given = ["slurm", "watch", *socket, "--cycles", "1", "--json", "--gain", "--predict",
                 "last2", "--state", str(made.state)]  # fmt: skip
        assert cli.run(given) == 0
        row = json.loads(capsys.readouterr().out)
        (seen,) = row["jobs"]
        assert seen["why"].startswith(("waits for", "reserved"))
        assert row["gain"]["jobs"] == row["durations"]["jobs"] == 0
        assert cli.run(["slurm", "explain", *socket, "--job", seen["job"]]) == 0
        assert "Job 1 is on n02; " in capsys.readouterr().out
        assert cli.run(["slurm", "watch", *socket, "--cycles", "1"]) == 0
        assert "1 wait, 0 would start now" in capsys.readouterr().out
        after = [(row["job_id"], row["job_state"], row["priority"]) for row in made.client.jobs()]
        assert before == after
