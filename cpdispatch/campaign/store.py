"""A folder in which a campaign keeps its results, so that an interrupted one goes on."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cpdispatch.campaign.tasks import Done
from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import parse_json, read_bytes, read_text, sweep, write_bytes

MANIFEST = "campaign.json"
FORMAT = "cpdispatch-campaign/1"
_NAME_MAX = 80


class Store:
    """The folder of one campaign: its manifest, and a file a result.

    Parameters
    ----------
    folder : Path
        New, empty, or of the same campaign.
    about : mapping of str to JSON values
        What the campaign is: all that results depend on beside a task's key.

    Raises
    ------
    UsageError
        When the folder is of another campaign, or holds something else.
    InputError
        When its manifest is damaged.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._folder = folder
        wanted = msgspec.json.decode(msgspec.json.encode({"format": FORMAT, **about}))
        path = folder / MANIFEST
        sweep(folder, MANIFEST)
        if path.exists():
            _check(parse_json(read_text(path), dict[str, Any], "a campaign", path), wanted, folder)
            sweep(folder, "*.pickle")
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} holds something else than a campaign: choose another one")
        else:
            write_bytes(path, msgspec.json.format(msgspec.json.encode(wanted), indent=1))

    def _path(self, key: str) -> Path:
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "_" for c in key)
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        return self._folder / f"{safe[:_NAME_MAX]}-{digest}.pickle"

    def find(self, key: str) -> Done | None:
        """The result of a task that was done before."""
        path = self._path(key)
        if not path.exists():
            return None
        content = read_bytes(path)
        try:
            pickle.loads(content)
        except Exception as error:
            raise InputError(
                f"is damaged: {error}", file=path, advice="delete it, and the task is done again"
            ) from error
        return Done(content)

    def keep(self, key: str, done: Done) -> None:
        """Write a result, atomically."""
        write_bytes(self._path(key), done.packed)


def _check(found: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Raise when a folder's campaign differs from the wanted one."""
    before, now = _each(found), _each(wanted)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise UsageError(
                f"{folder} belongs to another campaign: its "
                f"{_differs(key, before.get(key), now.get(key))}; use the same arguments or "
                "another folder"
            )


def _each(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a campaign is, each of its settings by itself."""
    settings: Mapping[str, Any] = about.get(_SETTINGS, {})
    return {**{key: of for key, of in about.items() if key != _SETTINGS}, **settings}


def _differs(key: str, before: Any, now: Any) -> str:
    """How one of the arguments differs, in words."""
    name = key.removesuffix("_s").replace("_", " ")
    if key == "log":
        return "log is another one, or another part of it"
    if isinstance(before, dict) or isinstance(now, dict):
        return f"{name} is another one"
    verb = "are" if isinstance(now, (list, tuple)) else "is"
    return f"{name} {verb} {_text(before)}, not {_text(now)}"


def _text(value: Any) -> str:
    """A value as users write it."""
    if isinstance(value, list):
        return ",".join(map(_text, value)) or "none"
    return "none" if value in (None, _ENDLESS_S) else str(value)


_SETTINGS = "settings"
_ENDLESS_S = 2**63 - 1
"""A time that is never reached."""
