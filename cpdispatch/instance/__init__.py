"""One dispatch problem: the snapshot that a dispatcher answers, and the files it travels in."""

from cpdispatch.instance.file import FORMAT, digest, dump, is_number, load, loads, to_json
from cpdispatch.instance.snapshot import (
    NO_LATEST_S,
    NO_NODES,
    Dependencies,
    Instance,
    Power,
    Reservation,
    Running,
    free_capacity,
)
from cpdispatch.jobs import Starvation

__all__ = [
    "FORMAT", "NO_LATEST_S", "NO_NODES", "Dependencies", "Instance", "Power", "Reservation",
    "Running", "Starvation", "digest", "dump", "free_capacity", "is_number", "load", "loads",
    "to_json",
]  # fmt: skip
