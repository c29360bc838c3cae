"""Files that are kept over restarts: replaced as a whole, and set aside when they are damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import parse_json, sweep, write_bytes

SAVE_EVERY_S = 60
"""Seconds between two versions of a file."""
Struct = TypeVar("Struct")


def load(
    path: Path, type: type[Struct], what: str, format: str
) -> tuple[Struct | None, tuple[str, ...]]:
    """What a file holds, None where there is none; and what is to be told about it.

    A file that cannot be understood is renamed, so that it can be looked at, and nothing is lost.

    Raises
    ------
    UsageError
        When the file cannot be read, or renamed.
    """
    sweep(path.parent, path.name)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None, ()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return parse_json(content, type, what, path, format), ()
    except InputError as error:
        aside = _free_name(path)
        try:
            path.rename(aside)
        except OSError as problem:
            raise UsageError(f"{path}: cannot be renamed: {problem.strerror}") from problem
        return None, (f"{error}; it is now {aside.name}, and a new one is begun",)


def save(path: Path, content: object) -> None:
    """Write a file, whole or not at all."""
    write_bytes(path, msgspec.json.encode(content))


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside
