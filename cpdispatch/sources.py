"""What compiled functions of a module are made of: its file, and those that it imports.

A kernel has the kernels and constants in it that its module imports. So it has to be compiled anew
when any of them has changed, though its own file has not: after an edit or a new version of the
package. numba looks at the kernel's own file alone.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_IMPORT = re.compile(r"^(?:from +([\w.]+) +import +(\([^)]*\)|[^\n]*)|import +([\w., ]+))", re.M)
"""An import of a module, not of a function: kernels know nothing else."""


@cache
def stamp(path: str) -> bytes:
    """A digest of what a module's file and the `files` that it imports say."""
    digests = sorted(_looked_at(file)[0] for file in files(path))
    return hashlib.sha256(b"".join(digests)).digest()


def files(path: str) -> set[Path]:
    """A module's file, and those that it imports, and what these import, and so on.

    Those of its own package and of cpdispatch, but of no other.
    """
    seen: set[Path] = set()
    left = [Path(path).resolve()]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            left += _looked_at(file)[1]
    return seen


@cache
def _looked_at(file: Path) -> tuple[bytes, tuple[Path, ...]]:
    """The digest of a file, and the files of its package and of cpdispatch that it imports.

    One that cannot be read, as in a notebook, says nothing.
    """
    try:
        content = file.read_bytes()
    except OSError:
        content = b""
    folder = file.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    found: list[Path] = []
    for source, names, plain in _IMPORT.findall(content.decode(errors="replace")):
        for module in re.findall(r"[\w.]+", plain) or [source]:
            name = module.lstrip(".")
            up = len(module) - len(name)
            for root in [file.parents[up - 1]] if up else {folder, _ROOT}:
                found += _files(root / name.replace(".", "/"), re.findall(r"\w+", names))
    return hashlib.sha256(content).digest(), tuple(dict.fromkeys(found))


def _files(place: Path, names: list[str]) -> list[Path]:
    """The files of a module at a place; of a package also those of its modules of these names."""
    if (file := place.with_suffix(".py")).is_file():
        return [file]
    if not (file := place / "__init__.py").is_file():
        return []
    return [file, *(each for name in names for each in _files(place / name, []))]
