"""One dispatch problem: the snapshot that a dispatcher answers, and the files it travels in."""

from cpdispatch.instance.file import (
    FORMAT,
    FORMAT_OF_RESTARTS,
    digest,
    dump,
    is_number,
    load,
    loads,
    to_json,
)
from cpdispatch.instance.snapshot import (
    NO_LATEST_S,
    NO_NODES,
    Dependencies,
    Instance,
    LeftOut,
    Power,
    Reservation,
    Running,
    Stopped,
    free_capacity,
)
from cpdispatch.jobs import Starvation

__all__ = [
    "FORMAT", "FORMAT_OF_RESTARTS", "NO_LATEST_S", "NO_NODES", "Dependencies", "Instance",
    "LeftOut", "Power", "Reservation", "Running", "Starvation", "Stopped", "digest",
    "dump", "free_capacity", "is_number", "load", "loads", "to_json",
]  # fmt: skip
