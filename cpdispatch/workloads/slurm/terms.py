"""On what terms the jobs of a Slurm cluster ran: licences, lists of nodes, how units are spread."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cpdispatch.access.spread import grouped
from cpdispatch.errors import InputError
from cpdispatch.jobs import SPREADS, Spread
from cpdispatch.parameters import count_of
from cpdispatch.system import LIMIT, System, ranges_of
from cpdispatch.workloads.imported import Columns
from cpdispatch.workloads.slurm.values import nodes_in

MORE = "more of a licence than the dump says that there are: the system has as many as they take"
ODD = "licences without a name or a number: not heeded"
NO_SPREAD = "numbers of nodes or of tasks on a node that its equal units cannot keep: not heeded"
NO_NODE = "lists of nodes with names that the dump does not have: not heeded"
FEWER = "lists of fewer nodes than the job has, which may use others, too: not heeded"


def licences_of(text: str) -> dict[str, int]:
    """What a text as ``matlab:2,ansys`` says of licences, or ``matlab=2`` of Slurm's TRES.

    Examples
    --------
    >>> licences_of("matlab:2,ansys")
    {'matlab': 2, 'ansys': 1}
    """
    found: dict[str, int] = {}
    for name, many in _parts(text):
        if name and many and many <= LIMIT:
            found[name] = found.get(name, 0) + many
    return found


def has_odd_licences(text: str) -> bool:
    """Whether some part of it is no licence with a number, so that `licences_of` leaves it out."""
    return any(not name or many is None or many > LIMIT for name, many in _parts(text))


def _parts(text: str) -> Iterator[tuple[str, int | None]]:
    """Each name, and its number; None for what is none."""
    for part in filter(None, re.split(r"[\s,|]+", text)):
        name, _, many = part.replace("=", ":").partition(":")
        yield name, count_of(many or "1")


def with_licences(
    columns: Columns, system: System, known: Mapping[str, int], notes: Counter[str]
) -> System:
    """The system with the licences of a dump; of others, as many as were in use at one time.

    Parameters
    ----------
    columns : Columns
        Its column ``licences`` says what jobs take.
    known : mapping of str to int
        What the dump says.
    notes : Counter
        Gets how many jobs take more than that.
    """
    taken = [licences_of(text or "") for text in columns.labels.get("licences", ())]
    names = sorted({name for one in taken for name in one} | set(known))
    total: dict[str, int] = {}
    for name in names:
        most = max((one.get(name, 0) for one in taken), default=0)
        if name in known:
            notes[MORE] += sum(one.get(name, 0) > known[name] for one in taken)
            total[name] = max(known[name], most)
        else:
            total[name] = _most_at_once(columns, [one.get(name, 0) for one in taken])
    return replace(system, licences=total) if total else system


def _most_at_once(columns: Columns, taken: Sequence[int]) -> int:
    """The largest use at one time, by the jobs as they ran."""
    amount = np.array(taken, dtype=np.int64)
    begin_s = np.array(columns.start_s, dtype=np.int64)
    # A job of 0 s has its place all the same; what ends makes room for what starts then.
    end_s = begin_s + np.maximum(np.array(columns.runtime_s, dtype=np.int64), 1)
    order = np.argsort(np.concatenate([end_s, begin_s]), kind="stable")
    return int(np.cumsum(np.concatenate([-amount, amount])[order]).max())


def spread(columns: Columns, notes: Counter[str]) -> None:
    """Leave out what the units of a job cannot keep of its numbers of nodes and tasks."""
    asked = [columns.labels.get(name) for name in SPREADS]
    for k, units in enumerate(columns.units):
        said = {
            name: int(of[k] or 0) for name, of in zip(SPREADS, asked, strict=True) if of is not None
        }
        if not any(said.values()):
            continue
        try:
            grouped(units, Spread(**said))
        except InputError:
            notes[NO_SPREAD] += 1
            for of in asked:
                if of is not None:
                    of[k] = 0


def listed(columns: Columns, names: Sequence[str], notes: Counter[str]) -> None:
    """Turn the nodes that jobs name into their numbers.

    Parameters
    ----------
    columns : Columns
        Gets ``nodelist`` and ``exclude`` by number in place of names.
    names : sequence of str
        Of the system's nodes, in their order.
    notes : Counter
        Gets how many lists are not heeded.
    """
    number = {name: k for k, name in enumerate(names)}
    for what in ("nodelist", "exclude"):
        for k, text in enumerate(columns.labels.get(what, ())):
            if not text:
                continue
            try:
                found = sorted({number[name] for name in nodes_in(text)})
            except (ValueError, KeyError):
                notes[NO_NODE] += 1
                found = []
            if what == "nodelist" and 0 < len(found) < columns.nodes[k]:
                notes[FEWER] += 1
                found = []
            columns.labels[what][k] = ranges_of(found) or None
