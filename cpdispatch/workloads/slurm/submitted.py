"""What the command line says with which a job was submitted to Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SHORT = {
    "N": "nodes", "w": "nodelist", "x": "exclude", "a": "array", "L": "licenses", "H": "hold",
}  # fmt: skip
_WITHOUT_VALUE = frozenset((
    "bell", "contiguous", "disable-status", "exact", "exclusive", "get-user-env", "hold",
    "ignore-pbs", "immediate", "kill-command", "kill-on-bad-exit", "label", "multi-prog", "nice",
    "no-allocate", "no-bell", "no-kill", "no-requeue", "no-shell", "overcommit", "overlap",
    "oversubscribe", "parsable", "preserve-env", "propagate", "pty", "quiet", "reboot", "requeue",
    "resv-ports", "spread-job", "stepmgr", "test-only", "unbuffered", "use-min-nodes", "verbose",
    "wait", "whole", "x11",
))  # fmt: skip
_LETTERS_WITHOUT_VALUE = "EHhIKklOQsuVvWXZ"
_VALUE_BEHIND = "IKk"
"""Letters with a value right behind them, or none."""
_NODES = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Submitted:
    """What is heeded of a command line; 0 and empty texts where it says nothing."""

    nodes_min: int = 0
    nodes_max: int = 0
    per_node: int = 0
    """Tasks on each node."""
    exclusive: bool = False
    nodelist: str = ""
    exclude: str = ""
    """Nodes by name."""
    licences: str = ""
    array_limit: int = 0
    """So many tasks of its array may run at once."""
    requeue: bool | None = None
    """Whether it may be queued again; None where the line does not say."""


def read(line: str) -> Submitted:
    """Read the options of a command such as ``sbatch -N 2-4 --ntasks-per-node=8 job.sh``.

    What comes after the name of the script is not Slurm's. What cannot be understood is left out.

    Examples
    --------
    >>> read("sbatch -N2-4 --array=1-9%3 job.sh -N 7").nodes_max
    4
    """
    said = dict(_options(line.split()))
    again = [name == "requeue" for name in said if name in ("requeue", "no-requeue")]
    nodes = _NODES.fullmatch(said.get("nodes", ""))
    least = int(nodes[1]) if nodes else 0
    return Submitted(
        nodes_min=least,
        nodes_max=int(nodes[2] or nodes[1]) if nodes else 0,
        per_node=_number(said.get("ntasks-per-node", "")),
        exclusive=said.get("exclusive") == "",
        nodelist=said.get("nodelist", ""),
        exclude=said.get("exclude", ""),
        licences=said.get("licenses", ""),
        array_limit=_number(said.get("array", "").partition("%")[2]),
        requeue=again[-1] if again else None,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """The options before the name of the script and their values, long names only."""
    # Of sbatch it means to wait, of srun how long.
    srun = bool(words) and words[0].endswith("srun")
    single = _LETTERS_WITHOUT_VALUE.replace("W", "") if srun else _LETTERS_WITHOUT_VALUE
    k = 1
    while k < len(words) and words[k].startswith("-") and words[k] not in ("-", "--"):
        word, k = words[k], k + 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name == "wrap":
                return
        else:
            letters = word[1:]
            # Several letters may be one word, as -HN 4.
            while letters[1:] and letters[0] in single and letters[0] not in _VALUE_BEHIND:
                yield _SHORT.get(letters[0], letters[0]), ""
                letters = letters[1:]
            value = letters[1:].removeprefix("=")
            name, equals = _SHORT.get(letters[0], letters[0]), value
        alone = name in _WITHOUT_VALUE or name in single
        if not equals and not alone and k < len(words):
            value, k = words[k], k + 1
        yield name, value
