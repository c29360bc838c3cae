"""Slurm's REST daemon on its unix socket: what is read of a cluster, and changes to single jobs."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cpdispatch.errors import CpdispatchError

API = "v0.0.38"
"""The version of Slurm's REST interface that is spoken: that of Slurm 22.05."""
TIMEOUT_S = 30.0
"""How long an answer may take: clients of a controller that is down wait 10 s or more."""
_TOKEN, _USER = "SLURM_JWT", "SLURM_USER"
_UNREACHABLE = (
    "Unable to contact", "Socket timed out", "Connection refused", "Zero Bytes",
    "Unexpected message", "Message receive failure",
)  # fmt: skip
"""Signs in what scontrol says that the controller was not reached, or did not answer."""
_UNANSWERED = (range(1000, 2000), range(5000, 6000))
"""Slurm's errors of messages between its daemons: slurmctld may have done what was asked for."""
_ARRAY_UPDATE = "job array update"
_NOT_IN_PARTITION = 2015
"""Slurm's error for a job that a partition of it does not admit, be it one of several."""


class SlurmError(CpdispatchError):
    """Slurm cannot be reached, does not answer in time, or answers with what is no answer."""


class RefusedError(SlurmError):
    """Slurm answered that it does not do what it was asked for.

    Parameters
    ----------
    number : int
        Slurm's number of the error; 0 where it told none.
    """

    def __init__(self, said: str, number: int = 0) -> None:
        super().__init__(said)
        self.number = number


class DeniedError(SlurmError):
    """Slurm does not let this user change the jobs of others."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Client:
    """Requests to slurmrestd.

    Where the environment has ``SLURM_JWT``, and ``SLURM_USER`` if need be, they are sent along;
    else the daemon knows the user by the socket. Neither is shown in any message.

    Parameters
    ----------
    path : Path
        The daemon's unix socket.
    timeout_s : float
        How long one answer may take.
    """

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._same_cluster = False
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token := os.environ.get(_TOKEN):
            self._headers["X-SLURM-USER-TOKEN"] = token
            if user := os.environ.get(_USER):
                self._headers["X-SLURM-USER-NAME"] = user

    def now_s(self) -> int:
        """The controller's time, seconds since 1970."""
        answer = self._asked("diag")
        found = answer.get("statistics")
        time = found.get("req_time") if isinstance(found, dict) else None
        if isinstance(time, bool) or not isinstance(time, int) or time <= 0:
            raise SlurmError(f"{self._path}: diag: no time in the answer (found {time!r})")
        return time

    def jobs(self) -> list[dict[str, Any]]:
        """Every job that the controller knows, as it describes them."""
        return self._list("jobs")

    def nodes(self) -> list[dict[str, Any]]:
        """Every node."""
        return self._list("nodes")

    def partitions(self) -> list[dict[str, Any]]:
        """Every partition."""
        return self._list("partitions")

    def reservations(self) -> list[dict[str, Any]]:
        """Every reservation that is not over."""
        return self._list("reservations")

    def update(self, job: str, changes: Mapping[str, Any]) -> None:
        """Change a job.

        Parameters
        ----------
        job : str
            Its number, or that of an array with a task, as ``12_3``.
        changes : mapping of str to value
            ``nodelist``, ``hold`` and ``priority`` are of use here.

        Raises
        ------
        RefusedError
            When Slurm does not do it. A task of an array that is changed by the array's number is
            the exception: Slurm answers the same whether it was done or not.
        SlurmError
            When there was no answer, of slurmrestd or of slurmctld to it: it may have been done.
        """
        self._asked(f"job/{quote(job, safe='')}", changes)

    def requeue(self, job: str) -> None:
        """Stop a job that runs, and queue it again, held.

        The REST interface cannot: the command ``scontrol`` of the same cluster does it.

        Parameters
        ----------
        job : str
            Its number, or that of an array with a task, as ``12_3``.

        Raises
        ------
        RefusedError
            When Slurm does not do it.
        SlurmError
            When there was no answer: it may have been done.
        """
        if not self._same_cluster:
            self._check_cluster()
        done = self._scontrol("requeuehold", job)
        said = done.stderr.strip() or done.stdout.strip()
        if not done.returncode:
            return
        if any(sign in said for sign in _UNREACHABLE):
            raise SlurmError(f"scontrol requeuehold {job}: {said}")
        raise RefusedError(f"scontrol requeuehold {job}: {said or 'it failed'}")

    def _check_cluster(self) -> None:
        """See whether scontrol reaches the cluster of the socket; raise where it does not."""
        config = self._scontrol("show", "config")
        name = re.search(r"^ClusterName\s*=\s*(\S+)", config.stdout, re.MULTILINE)
        if config.returncode or name is None:
            said = config.stderr.strip() or config.stdout.strip()[:200]
            raise SlurmError(f"scontrol show config: {said}; is SLURM_CONF that of this cluster?")
        others = {str(job["cluster"]) for job in self.jobs() if job.get("cluster")} - {name[1]}
        if others:
            raise SlurmError(
                f"scontrol speaks to the cluster {name[1]}, and {self._path} to {min(others)}: "
                "set SLURM_CONF to the slurm.conf of the latter"
            )
        self._same_cluster = True

    def _scontrol(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["scontrol", *arguments], capture_output=True, text=True, errors="replace",
                check=False, stdin=subprocess.DEVNULL, timeout=self._timeout_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise SlurmError(
                f"scontrol {' '.join(arguments)}: no answer within {self._timeout_s:g} s"
            ) from error
        except OSError as error:
            raise SlurmError(
                f"scontrol: {error.strerror}: test runs need this command of Slurm; install it, "
                "or leave out test="
            ) from error

    def _list(self, what: str) -> list[dict[str, Any]]:
        rows = self._asked(what).get(what)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise SlurmError(f"{self._path}: {what}: the answer has no list of {what}")
        return rows

    def _asked(self, what: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        where = f"{self._path}: {what}"
        connection = _Connection(self._path, self._timeout_s)
        try:
            body = None if changes is None else json.dumps(changes)
            method = "GET" if changes is None else "POST"
            connection.request(method, f"/slurm/{API}/{what}", body, self._headers)
            response = connection.getresponse()
            status, content = response.status, response.read()
        except TimeoutError as error:
            raise SlurmError(f"{where}: no answer within {self._timeout_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SlurmError(
                f"{where}: {reason}; is slurmrestd running, and may this user reach it?"
            ) from error
        finally:
            connection.close()
        if status in (401, 403):
            raise SlurmError(f"{where}: not allowed (HTTP {status}); see {_TOKEN} in docs/slurm.md")
        if status == 404:
            raise SlurmError(
                f"{where}: slurmrestd does not offer {API}: start it with -s openapi/{API}"
            )
        try:
            # Names of jobs and folders are in whatever encoding their users have.
            answer = json.loads(content.decode(errors="replace"))
        except (ValueError, RecursionError) as error:
            raise SlurmError(f"{where}: the answer is not JSON (HTTP {status})") from error
        if not isinstance(answer, dict):
            raise SlurmError(f"{where}: the answer is not a JSON object (HTTP {status})")
        problems = answer.get("errors") or ()
        for problem in problems:
            self._refuse(where, problem, status)
        if status >= 400 and not problems:
            raise SlurmError(f"{where}: HTTP {status}")
        return answer

    def _refuse(self, where: str, problem: Any, status: int) -> None:
        """Raise what Slurm complains of, unless it has made the change all the same.

        So it does with arrays, and where a partition of the job does not admit it.
        """
        told = problem if isinstance(problem, dict) else {}
        number, said = told.get("error_number"), str(told.get("description", problem))
        if status < 400 and not number and said.startswith(_ARRAY_UPDATE):
            return
        text = f"{where}: {told.get('error') or said}"
        number = number if isinstance(number, int) else 0
        if number == _NOT_IN_PARTITION:
            return
        if any(number in errors for errors in _UNANSWERED):
            raise SlurmError(text)
        raise RefusedError(text, number)
