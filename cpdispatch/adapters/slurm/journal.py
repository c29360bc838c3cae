"""What was decided about jobs of a live Slurm, kept in a file that is replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from cpdispatch.files import parse_json, sweep, write_bytes

FORMAT = "cpdispatch-slurm-journal/1"
NAME = "journal.json"


class Entry(msgspec.Struct, omit_defaults=True):
    """What was decided about a job."""

    state: Literal["released", "started", "stopped", "left", "queued", "retracted", "kept"]
    """``released``: to these nodes, or about to be; ``started``: Slurm was seen to run it;
    ``stopped``: its test run is over, and it is queued again, or about to be; ``left``: released to
    Slurm's own scheduler; ``queued``: back in the queue; ``retracted``: held again, or about to be,
    and then queued; ``kept``: held by somebody else until that one releases it.
    """
    nodes: list[str] = []
    """Of the last decision."""
    required: str = ""
    """The nodes that the job asked for itself."""
    decided_s: int = 0
    """When, by Slurm's clock."""
    tries: int = 0
    """How often it was released and did not start."""
    not_before_s: int = 0
    """When it may be released again."""
    avoid: list[str] = []
    """Partitions in which Slurm did not start it, of several that the job names."""
    vain: int = 0
    """How often Slurm did not start it though its nodes had room, since it was started or held."""
    limited: bool = False
    """Whether a limit of its user, account or QoS kept it from starting when it was released."""
    test_s: int = 0
    """How long it may run before the dispatcher is asked whether it goes on; 0 until it ends."""
    outlived_s: int = 0
    """The length of the test run that it has outlived; 0 where it had none. It has one at most."""
    admin: bool = False
    """Whether the driver has held it: to Slurm that is a hold by an administrator."""
    submit_s: int = 0
    """When it was submitted, where it was queued again after a test run: Slurm then says another
    time.
    """
    let_go: bool = False
    """Of one that is left: whether it is seen, or Slurm has said, that it was released."""
    shown_s: int = 0
    """When it was submitted, as Slurm says: a new job may get its number."""


class _File(msgspec.Struct):
    format: str
    jobs: dict[str, Entry]
    holds: bool = False
    """Whether the entries tell of the driver's own holds: those of an earlier version do not."""
    lost: bool = False
    unread: list[str] = []


class Journal:
    """The entries by the keys of their jobs, as the file has them after each `save`.

    Attributes
    ----------
    jobs : dict
        The entries by the keys of their jobs.
    lost : bool
        Whether there was no file, and no whole cycle since: jobs may have been released and held
        that it knows nothing of. The file keeps this over restarts.
    unread : list of str
        The jobs that could not be read since then, as `Cluster.unread` names them: it is lost for
        these until they are read.

    Raises
    ------
    InputError
        When the file is there and is no journal.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._kept = b""
        self.jobs: dict[str, Entry] = {}
        self.unread: list[str] = []
        self.lost = not self._path.exists()
        if not self.lost:
            content = self._path.read_bytes()
            found = parse_json(content, _File, "a journal", self._path, FORMAT)
            self.jobs, self.lost, self.unread = found.jobs, found.lost, found.unread
            for entry in self.jobs.values():
                entry.admin |= not found.holds and entry.tries > 0
        sweep(folder, NAME)

    def save(self) -> None:
        """Write the entries, whole or not at all, unless the file has them."""
        file = _File(FORMAT, self.jobs, holds=True, lost=self.lost, unread=self.unread)
        content = msgspec.json.encode(file)
        if content != self._kept:
            write_bytes(self._path, content)
            self._kept = content

    def seen(self, unread: list[str]) -> None:
        """Note that all jobs were looked at, but for those that could not be read."""
        self.unread = [each for each in unread if self.lost or each in self.unread]
        self.lost = False

    def of(self, *states: str) -> Iterator[tuple[str, Entry]]:
        """The entries in one of these states."""
        return ((key, entry) for key, entry in self.jobs.items() if entry.state in states)
