"""What EASY would have led to so far, kept over restarts of the driver: the bound on waits."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from cpdispatch.adapters.slurm import kept
from cpdispatch.bounded import EasyShadow, Kept
from cpdispatch.dispatch import Dispatcher
from cpdispatch.instance import Instance

FORMAT = "cpdispatch-slurm-waits/1"
NAME = "waits.json"
OLD_S = 30 * 86_400
"""What was followed longer ago says nothing any more."""


class _File(msgspec.Struct):
    format: str
    digest: str
    content: msgspec.Raw


class Waits:
    """The `EasyShadow` of a dispatcher, in a file that is replaced as a whole.

    Parameters
    ----------
    dispatcher : Dispatcher
        Nothing is kept of one whose waits are not bounded.
    """

    def __init__(self, dispatcher: Dispatcher, folder: Path) -> None:
        shadow = getattr(dispatcher, "shadow", None)
        self._shadow = shadow if isinstance(shadow, EasyShadow) else None
        self._path = folder / NAME
        self._begun = False
        self.told: tuple[str, ...] = ()
        """What is to be said of the file, once."""

    def begin(self, instance: Instance) -> None:
        """Go on from the file, before the first decision; begin anew where it is of no use.

        Raises
        ------
        UsageError
            When the file cannot be read, or renamed.
        """
        if self._begun or self._shadow is None:
            return
        self._begun = True
        if not self._shadow.fresh:
            return
        found, self.told = kept.load(self._path, _File, "waits under EASY", FORMAT)
        if found is None:
            return
        why = self._restored(found, instance)
        if why:
            self.told = (f"{self._path}: {why}: the bound on waits begins anew",)

    def _restored(self, found: _File, instance: Instance) -> str:
        """Take over what the file says; why not, if that is of no use."""
        assert self._shadow is not None
        if hashlib.sha256(bytes(found.content)).hexdigest() != found.digest:
            return "it is damaged"
        try:
            content = msgspec.json.decode(bytes(found.content), type=Kept)
        except msgspec.DecodeError:
            return "it is of another version"
        total = int(instance.system.total[0])
        if content.processors != total:
            return f"the cluster had {content.processors:,} processors then, and has {total:,} now"
        if content.time_s > instance.now:
            return "it is from later than now by Slurm's clock"
        if instance.now - content.time_s > OLD_S:
            return f"it is {(instance.now - content.time_s) // 86_400} days old"
        try:
            self._shadow.restore(content)
        except (ValueError, IndexError):
            return "it is of another version"
        return ""

    def save(self) -> None:
        """Write what is known, whole or not at all."""
        content = None if self._shadow is None else self._shadow.keep()
        if content is not None:
            raw = msgspec.json.encode(content)
            kept.save(
                self._path, _File(FORMAT, hashlib.sha256(raw).hexdigest(), msgspec.Raw(raw))
            )  # fmt: skip
