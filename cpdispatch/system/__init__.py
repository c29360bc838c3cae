"""Systems: resource types, groups of like nodes, partitions; built in, or read from files."""

from cpdispatch.system.checks import CELLS_MAX, FIRST, JOBS, LIMIT, TIER_MAX, USUAL_TIER
from cpdispatch.system.file import (
    GroupFile,
    PartitionFile,
    SystemFile,
    from_file,
    load,
    system_as_dict,
)
from cpdispatch.system.machine import (
    Limit,
    Maintenance,
    NodeGroup,
    Partition,
    System,
    is_own,
    ranges_of,
    room_beside_once,
    room_in,
    with_capacity,
)
from cpdispatch.system.named import GB_IN_KB, NAMED, find

__all__ = [
    "CELLS_MAX", "FIRST", "GB_IN_KB", "JOBS", "LIMIT", "NAMED", "TIER_MAX", "USUAL_TIER",
    "GroupFile", "Limit", "Maintenance", "NodeGroup", "Partition", "PartitionFile", "System",
    "SystemFile", "find", "from_file", "is_own", "load", "ranges_of", "room_beside_once", "room_in",
    "system_as_dict", "with_capacity",
]  # fmt: skip
