"""Which rights a driver of Slurm needs: users with rights of each kind drive a real Slurm.

    python benchmarks/slurm_operator.py --python /usr/bin/python3

`--python` is an interpreter of the same version that every user may run. It needs root, and the
Debian packages slurmdbd, mariadb-server-core and mariadb-client-core beside those of the tests. It
starts a cluster with slurmdbd, whose daemons run as the user nobody, but for slurmd. Then one
ordinary user after the other has a slurmrestd of its own and drives jobs of another user: one
without rights, one who coordinates the account of the jobs, one with AdminLevel=Operator. A line
says what each could do: jobs released, stopped and queued again after a test run, refused, held
again, and what `drive --stop` said. Before it stands what the driver itself said.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import subprocess
import sys
import time
from pathlib import Path

import script

sys.path.append(str(Path(__file__).resolve().parent.parent))

from cpdispatch.adapters.slurm import guard
from tests.adapters.slurm.cluster import Cluster, free_ports, missing, until
from tests.adapters.slurm.test_live import site

OWNER = "daemon"
"""Who submits the jobs."""
LONG_S = 60
DRIVERS = {"games": "no rights", "news": "coordinator of the account", "mail": "Operator"}


class AccountedCluster(Cluster):
    """A cluster with slurmdbd and a database, both of the user of Slurm.

    Each slurmd runs as root: that of an ordinary user can start no job of another one.
    """

    def _configure(self) -> None:
        super()._configure()
        self.conf.write_text(re.sub("SlurmdUser=.*", "SlurmdUser=root", self.conf.read_text()))

    def _identity(self, program: str = "") -> dict[str, object]:
        return {} if program == "slurmd" else super()._identity(program)

    def start_controller(self, flag: str = "-R") -> None:
        if "slurmdbd" not in self._daemons:
            self._start_database()
        super().start_controller(flag)

    def _start_database(self) -> None:
        folder, data = self.folder, self.folder / "db"
        data.mkdir()
        self._give_away(data)
        port = free_ports(1)
        text = self.conf.read_text()
        accounting = (
            f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={port}\nAccountingStoragePass={folder}/munge/socket\n"
            "AccountingStorageTRES=gres/gpu"
        )
        self.conf.write_text(re.sub("AccountingStorageType=.*", accounting, text))
        own = folder / "etc" / "slurmdbd.conf"
        own.write_text(
            f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={self.user}
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""
        )
        own.chmod(0o600)
        self._give_away(own)
        self.run("mariadb-install-db", "--no-defaults", f"--datadir={data}",
                 "--auth-root-authentication-method=normal", "--skip-test-db")  # fmt: skip
        listening = folder / "run" / "mysql.sock"
        self.environment["MYSQL_UNIX_PORT"] = str(listening)
        self._daemon(
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={listening}",
            "--skip-networking", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
        )  # fmt: skip
        until(listening.exists, "mariadbd has no socket")
        self._daemon("slurmdbd", "-D")
        until(lambda: "Cluster" in self.run("sacctmgr", "show", "cluster", good=False),
              "slurmdbd does not answer")  # fmt: skip

    def stop(self) -> None:
        super().stop()
        for name in ("slurmdbd", "mariadbd"):
            if name in self._daemons:
                daemon = self._daemons.pop(name)
                daemon.terminate()
                daemon.wait()

    def as_user(self, name: str, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command as an ordinary user."""
        entry = pwd.getpwnam(name)
        return subprocess.run(
            command, user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], cwd="/tmp",
            env=self.environment | more, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip


def accounts(slurm: Cluster) -> None:
    """The account of the jobs, their owner, and those who are to drive."""
    do = "sacctmgr", "-i"
    slurm.run(*do, "add", "cluster", "test", good=False)
    slurm.run(*do, "add", "account", "science", "cluster=test")
    for name in (OWNER, *DRIVERS):
        slurm.run(*do, "add", "user", name, "account=science")
    slurm.run(*do, "add", "coordinator", "account=science", "names=news")
    slurm.run(*do, "modify", "user", "mail", "set", "adminlevel=operator")
    print(slurm.run("sacctmgr", "-n", "-P", "show", "user", "format=user,adminlevel", "withcoord"))


def tried(slurm: AccountedCluster, name: str, interpreter: str) -> str:
    """What somebody could do as a driver."""
    state = slurm.folder / f"state-{name}"
    entry = pwd.getpwnam(name)
    folder = slurm.folder / f"of-{name}"
    for path in (state, folder):
        path.mkdir()
        os.chown(path, entry.pw_uid, entry.pw_gid)
    (slurm.folder / "etc" / "job_submit.lua").write_text(guard.plugin(state, entry.pw_uid))
    slurm.run("scontrol", "reconfigure")
    sock = folder / "rest.sock"
    rest = subprocess.Popen(
        ["slurmrestd", "-f", str(slurm.conf), "-a", "rest_auth/local", "-s", "openapi/v0.0.38",
         f"unix:{sock}"],
        user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], cwd="/tmp",
        env=slurm.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    driver = None
    # What was compiled already is beside the sources, or is kept in the user's folder.
    own = {"HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    python = [interpreter, "-c", "from cpdispatch.cli import main; main()", "slurm", "drive"]
    python += ["--socket", str(sock), "--state", str(state)]
    try:
        until(sock.exists, "slurmrestd has no socket")
        log = folder / "log.jsonl"
        driver = subprocess.Popen(
            [*python, "-d", "easy-spf-spf:test=3,tests=turn", "--every", "0.5s", "--patience", "3s",
             "--log", str(log)],
            user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], cwd="/tmp",
            env=slurm.environment | own,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        until((state / guard.ALIVE).exists, "the driver does not live", 90)
        submit = "sbatch", "--parsable", "--account=science", "--mem=100", "--output=/dev/null"
        for options, seconds in (
            (("--nodes=16", "--exclusive", "--time=30"), LONG_S), (("--time=1",), 1),
            (("--nodes=16", "--exclusive", "--time=1"), 1), (("--time=1", "--begin=now+1hour"), 1),
        ):  # fmt: skip
            done = slurm.as_user(OWNER, *submit, *options, "--wrap", f"sleep {seconds}")
            assert done.returncode == 0, done.stderr
            if seconds == LONG_S:
                # The others come while it is tested: it has to make room for them.
                until(
                    lambda: (
                        driver.poll() is not None
                        or "RUNNING" in slurm.run("squeue", "-h", "-o", "%T")
                    ),
                    "nothing runs",
                )
        end = time.monotonic() + 15
        while time.monotonic() < end and driver.poll() is None:
            time.sleep(0.2)
        stopped = slurm.as_user(name, *python, "--stop", **own)
        said, _ = driver.communicate(timeout=60)
        count = {word: len(re.findall(word, said)) for word in
                 ("released to", "queued again", "refused", "held again")}  # fmt: skip
        print(said)
        return (
            f"driver ended with {driver.returncode}; {count}; "
            f"--stop {stopped.returncode}: {(stopped.stdout + stopped.stderr).strip()}"
        )
    finally:
        if driver is not None and driver.poll() is None:
            driver.kill()
            driver.communicate()
        rest.terminate()
        rest.wait()
        slurm.run("scancel", "--user", OWNER, good=False)
        until(lambda: not slurm.run("squeue", "-h").strip(), "jobs do not end", 60)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    if missing() or os.getuid():
        raise SystemExit(missing() or "root is needed, to be other users")
    with site(kind=AccountedCluster) as made:
        slurm = made.slurm
        assert isinstance(slurm, AccountedCluster)
        accounts(slurm)
        for name, level in DRIVERS.items():
            print(f"{level}: {tried(slurm, name, given.python)}", flush=True)


if __name__ == "__main__":
    script.run(__file__)
