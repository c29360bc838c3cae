"""A Slurm cluster on this machine: daemons that an ordinary user runs in a folder of their own."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmrestd", "sbatch", "scontrol", "squeue")
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
LICENCES = {"matlab": 2}
_PATIENCE_S = 30.0
CREDENTIALS_S = 20
"""How long a job's launch may take. Slurm starts a job that it has queued again later than that:
by default 2 min.
"""
_VALUES = "JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID", "JOB_NODELIST"
TELL = f'echo "{"|".join(f"$SLURM_{name}" for name in _VALUES)}" >> ran'
"""What a job runs first, so that `Cluster.ran` knows of its start."""


def missing() -> str:
    """Why no cluster can be started here; empty if one can."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if lacking:
        return f"no {', '.join(lacking)}: install Slurm (docs/slurm.md says how)"
    for name in ("slurmctld", "slurmd"):
        found = shutil.which(name, path=_PATH)
        if found is not None and os.path.realpath(found).endswith("-emulator"):
            return f"{name} is the emulator: remove the package slurm-wlm-emulator"
    return ""


@dataclass
class Cluster:
    """Daemons of Slurm; the settings are those of every node.

    As root the daemons, and whatever is run here, belong to the user nobody.
    """

    folder: Path
    nodes: int = 16
    cpus: int = 16
    memory_mb: int = 64_000
    gpus: int = 4
    backfill_s: int = 1
    """Seconds between two rounds of Slurm's backfilling."""
    plugin: str = ""
    """The text of a job_submit.lua; none for a cluster whose jobs are not held."""
    features: Callable[[int], str] = lambda number: ""
    """The features of each node by its number, from 0."""
    partition_lines: Sequence[str] = (
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=01:00:00 State=UP",
    )
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.user = "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        self.width = max(2, len(str(self.nodes)))
        self.names = [f"n{number:0{self.width}}" for number in range(1, self.nodes + 1)]
        self.conf = self.folder / "etc" / "slurm.conf"
        self.socket = self.folder / "run" / "rest.sock"
        self.environment = {"PATH": _PATH, "SLURM_CONF": str(self.conf), "HOME": str(self.folder)}

    # ------------------------------------------------------------------------------- daemons

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        for name in ("etc", "state", "spool", "log", "run", "munge", "dev", "jobs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge" / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        self._configure()
        self._give_away()
        munge = self.folder / "munge"
        self._daemon(
            "munged",
            "--foreground",
            f"--key-file={key}",
            f"--socket={munge / 'socket'}",
            f"--pid-file={munge / 'pid'}",
            f"--log-file={munge / 'log'}",
            f"--seed-file={munge / 'seed'}",
        )
        until(lambda: (munge / "socket").exists(), "munged has no socket")
        self.start_controller("-c")
        for name in self.names:
            (self.folder / "spool" / name).mkdir()
            self._give_away(self.folder / "spool" / name)
            self.start_node(name)
        until(lambda: self.states().count("idle") == self.nodes, "not all nodes are idle")
        self.start_rest()

    def start_controller(self, flag: str = "-R") -> None:
        self._daemon("slurmctld", "-D", flag, "-f", str(self.conf))
        until(lambda: "is UP" in self.run("scontrol", "ping", good=False), "slurmctld is not up")

    def start_node(self, name: str) -> None:
        self._daemon("slurmd", "-D", "-N", name, "-f", str(self.conf), called=name)

    def start_rest(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._daemon(
            "slurmrestd",
            "-f",
            str(self.conf),
            "-a",
            "rest_auth/local",
            "-s",
            "openapi/v0.0.38",
            f"unix:{self.socket}",
        )
        until(self.socket.exists, "slurmrestd has no socket")

    def kill(self, name: str) -> None:
        """Kill a daemon: slurmctld, slurmrestd, or the slurmd of a node."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Have a daemon do nothing in this block, and go on afterwards."""
        self._daemons[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._daemons[name].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End what was started, and nothing else."""
        if "slurmctld" in self._daemons and self._daemons["slurmctld"].poll() is None:
            with suppress(subprocess.SubprocessError, RuntimeError):
                self.run("scancel", "--user", self.user, "--quiet", good=False)
                until(lambda: not self.run("squeue", "-h", good=False).strip(), "", 5.0)
        for names in (("slurmrestd", *self.names), ("slurmctld",), ("munged",)):
            daemons = [self._daemons.pop(name) for name in names if name in self._daemons]
            for daemon in daemons:
                daemon.terminate()
            for daemon in daemons:
                try:
                    daemon.wait(_PATIENCE_S)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()

    def _daemon(self, program: str, *arguments: str, called: str = "") -> None:
        called = called or program
        log = (self.folder / "log" / f"{called}.out").open("ab")
        # slurmrestd refuses to run as the user of slurmctld unless it is told to.
        extra = {"SLURMRESTD_SECURITY": "disable_user_check"} if program == "slurmrestd" else {}
        found = shutil.which(program, path=_PATH)
        assert found is not None
        with log:
            self._daemons[called] = subprocess.Popen(
                [found, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment | extra,
                cwd=self.folder,
                start_new_session=True,
                **self._identity(program),
            )

    def _identity(self, program: str = "") -> dict[str, object]:
        if os.getuid() != 0:
            return {}
        entry = pwd.getpwnam(self.user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def _give_away(self, folder: Path | None = None) -> None:
        if os.getuid() == 0:
            entry = pwd.getpwnam(self.user)
            for path in [folder or self.folder, *(folder or self.folder).rglob("*")]:
                os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)

    def _configure(self) -> None:
        base, folder = free_ports(self.nodes + 2), self.folder
        given = f"n[{self.names[0][1:]}-{self.names[-1][1:]}]"
        gres = f" Gres=gpu:{self.gpus}" if self.gpus else ""
        # Only their numbers are looked at, and an ordinary user can make no device.
        devices = f"NodeName={given} Name=gpu File=/dev/tty[0-{self.gpus - 1}]\n"
        (folder / "etc" / "gres.conf").write_text(devices if self.gpus else "")
        if self.plugin:
            (folder / "etc" / "job_submit.lua").write_text(self.plugin)
        host = f"NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1"
        by_node = "\n".join(
            f"NodeName={name} {host} Port={base + 2 + k}{gres}"
            + (f" Features={self.features(k)}" if self.features(k) else "")
            for k, name in enumerate(self.names)
        )
        self.conf.write_text(
            f"""\
ClusterName=test
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmUser={self.user}
SlurmdUser={self.user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire={CREDENTIALS_S}
SlurmctldPort={base}
SlurmdPort={base + 1}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=error
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobs.txt
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval={self.backfill_s},bf_resolution=1,sched_min_interval=100000
PriorityType=priority/basic
{"JobSubmitPlugins=lua" if self.plugin else ""}
SlurmdParameters=config_overrides
ReturnToService=2
TreeWidth=65533
SlurmdTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
MaxJobCount=50000
GresTypes=gpu
Licenses={",".join(f"{name}:{many}" for name, many in LICENCES.items())}
NodeName=DEFAULT CPUs={self.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={self.cpus} \
ThreadsPerCore=1 RealMemory={self.memory_mb} State=UNKNOWN
{by_node}
{chr(10).join(self.partition_lines)}
"""
        )

    # ------------------------------------------------------------------------------- commands

    def run(self, *command: str, good: bool = True, cwd: Path | None = None) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=cwd or self.folder / "jobs",
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
            **self._identity(),
        )
        if good and done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise RuntimeError(f"{command} ended with {done.returncode}: {said}")
        return done.stdout

    def submit(self, *arguments: str, seconds: float = 1) -> int:
        """Submit a job that sleeps, and return its number."""
        said = self.run(
            "sbatch",
            "--parsable",
            *arguments,
            "--output=/dev/null",
            "--wrap",
            f"{TELL}; exec sleep {seconds}",
        )
        return int(said.split(";")[0])

    def ran(self) -> dict[str, list[str]]:
        """The list of nodes at each start of each job, as the jobs have written it down."""
        found: dict[str, list[str]] = {}
        path = self.folder / "jobs" / "ran"
        for line in path.read_text().splitlines() if path.exists() else ():
            job, array, task, nodes = line.split("|")
            found.setdefault(f"{array}_{task}" if array else job, []).append(nodes)
        return found

    def states(self) -> list[str]:
        """The state of each node."""
        lines = set(self.run("sinfo", "-h", "-N", "-o", "%N %t", good=False).splitlines())
        return [line.split()[1] for line in sorted(lines)]


def free_ports(many: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    while True:
        base = 20_000 + secrets.randbelow(12_000)
        try:
            for port in range(base, base + many):
                with closing(socket.socket()) as tried:
                    tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base


def until(true: Callable[[], bool], otherwise: str, patience_s: float = _PATIENCE_S) -> None:
    """Wait until something is so, or raise."""
    end = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"{otherwise or 'waited'} after {patience_s} s")
        time.sleep(0.05)
