"""Policy files: what was learned, in the form that ``--dispatcher FILE.toml`` takes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cpdispatch.files import write_bytes
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import FEATURES, NO_THRESHOLD, SUMMARIES, TERMS, Order, Policy

_TABLES = {Policy.MIX: ("weights", FEATURES), Policy.POLYNOMIAL: ("coefficients", TERMS)}


def to_toml(dispatcher: Backfill, remarks: Iterable[str] = ()) -> str:
    """The file of a backfilling dispatcher with a reservation for one job.

    Parameters
    ----------
    remarks : iterable of str
        How it was learned: comment lines at the top.
    """
    plain, tables = [f"# {line}".rstrip() for line in remarks], []
    plain.append('dispatcher = "easy"')
    if dispatcher.threshold_s != NO_THRESHOLD:
        plain.append(f"threshold = {dispatcher.threshold_s}")
    for key, order in (("primary", dispatcher.primary), ("backfill", dispatcher.secondary)):
        if order.policy not in _TABLES or order.name in SUMMARIES:
            plain.append(f'{key} = "{order.name}"')
        else:
            tables += _table(key, order)
    return "\n".join([*plain, *tables]) + "\n"


def write(path: Path, dispatcher: Backfill, remarks: Iterable[str] = ()) -> None:
    """Write a policy file, atomically."""
    write_bytes(path, to_toml(dispatcher, remarks).encode())


def _table(key: str, order: Order) -> list[str]:
    field, names = _TABLES[order.policy]
    numbers = [
        f'"{name}" = {weight!r}'
        for name, weight in zip(names, order.weights, strict=True)
        if weight
    ]
    return [
        "",
        f"[{key}]",
        f'policy = "{order.policy.name.lower()}"',
        "",
        f"[{key}.{field}]",
        *numbers,
    ]
