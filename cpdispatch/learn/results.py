"""Files of results: tables as CSV, the rest as JSON, each written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cpdispatch.files import write_bytes

if TYPE_CHECKING:
    import pandas as pd


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV, floats with all their digits."""
    write_bytes(path, table.to_csv(index=False).encode())


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON object."""
    write_bytes(path, msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
