"""How a script of this folder is run, and how it ends where what it was given is wrong."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from cpdispatch.errors import CpdispatchError, InputError

BAD_INPUT = 2


def run(file: str) -> NoReturn:
    """Run the ``main`` of a script; a wrong input ends it with one sentence and exit code 2.

    The script is imported by its name: workers have to find its functions, and they do not find
    those of ``__main__``.
    """
    name = Path(file).stem
    try:
        sys.exit(importlib.import_module(name).main())
    except CpdispatchError as error:
        problem = str(error)
    except OSError as error:
        if error.filename is None:
            raise
        problem = f"{error.filename}: {error.strerror}"
    except subprocess.CalledProcessError as error:
        if error.returncode != BAD_INPUT:
            raise
        sys.exit(BAD_INPUT)  # the command has said why
    print(f"{name}: {problem}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def in_a_process(file: str, *words: str, **environment: str) -> Any:
    """What a script, run anew with ``--one`` and these words, prints at last, as JSON."""
    done = subprocess.run(
        [sys.executable, file, "--one", *words], env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def count(text: str) -> int:
    """A number on the command line that is 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: a whole number, 1 or more, is needed")
    return int(text)


def folder(text: str) -> Path:
    """A folder on the command line that is there."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no such folder")
    return Path(text)


def instances(folder: Path, pattern: str = "*.json.gz") -> list[Path]:
    """The files of instances in a folder, by name.

    Raises
    ------
    InputError
        When there is none.
    """
    found = sorted(folder.glob(pattern))
    if not found:
        raise InputError(f"holds no file {pattern}", file=folder, advice="name another folder")
    return found
