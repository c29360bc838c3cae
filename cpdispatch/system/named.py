"""Systems that are known by name, and the system that a user means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cpdispatch.errors import UsageError, nearest
from cpdispatch.parameters import count_of
from cpdispatch.system.checks import LIMIT
from cpdispatch.system.file import load
from cpdispatch.system.machine import NodeGroup, System

GB_IN_KB = 1024 * 1024

NAMED: Mapping[str, System] = {
    system.name: system
    for system in (
        System(
            "eurora",
            ("core", "gpu", "mic", "mem"),
            (NodeGroup("gpu", 32, (16, 2, 0, 16)), NodeGroup("mic", 32, (16, 0, 2, 16))),
            GB_IN_KB,
        ),
        System(
            "gaia",
            ("core", "mem"),
            (
                NodeGroup("thin", 143, (12, 48)),
                NodeGroup("wide", 6, (16, 64)),
                NodeGroup("smp32", 1, (32, 1024)),
                NodeGroup("smp160", 1, (160, 1024)),
            ),
            GB_IN_KB,
        ),
        System(
            "gaia-gpu",
            ("core", "gpu", "mem"),
            (
                NodeGroup("thin", 131, (12, 0, 48)),
                NodeGroup("fermi", 12, (12, 2, 48)),
                NodeGroup("kepler", 5, (16, 1, 64)),
                NodeGroup("wide", 1, (16, 0, 64)),
                NodeGroup("smp32", 1, (32, 0, 1024)),
                NodeGroup("smp160", 1, (160, 0, 1024)),
            ),
            GB_IN_KB,
        ),
        System(
            "kit",
            ("core", "gpu", "mem"),
            (NodeGroup("thin", 1152, (20, 0, 64)), NodeGroup("fat", 21, (48, 4, 1024))),
            GB_IN_KB,
        ),
        System(
            "metacentrum",
            ("core", "mem"),
            (NodeGroup("zewura", 20, (80, 529_426_432)), NodeGroup("zegox", 48, (12, 94_035_968))),
        ),
        System("ricc", ("core", "mem"), (NodeGroup("ricc", 1024, (8, 12 * 1024)),), 1024),
        System("seth", ("core", "mem"), (NodeGroup("seth", 120, (4, 1024)),), 1024),
    )
}
"""The systems known by name.

References
----------
``gaia``: the groups are ours; their totals, 151 nodes and 2,004 cores, are those of its public log.
The memory of a node is that of the nodes that were added in 2014; the oldest ones had 24 GB.

``gaia-gpu``: the same nodes in the same order, with GPUs. They are a system of their own because
best fit takes an idle GPU for free capacity, and so takes such nodes later, though no job of the
log asks for one. The GPUs are those that the site of the University of Luxembourg HPC named: 2
Tesla M2070 on each of gaia-61 and 62, 2 Tesla M2090 on each of gaia-63 to 72, all of 12 cores
(systems/gaia/accelerators, 2013), and a Tesla K20m on each of gaia-75 to 79, of 16 cores and 64 GB
(news of January 2014). The page of the log says that 20 nodes have GPUs. Which 3 others do is not
known; they have none here.

``metacentrum``: the clusters zewura and zegox of CERIT-SC in 2013. Nodes, cores and KB of memory
are those of the file of machines that comes with the log alea-wagap-2013.

``ricc``: the RIKEN Integrated Cluster of Clusters: 1,024 nodes of 8 cores, as the header of its
public log says, with 12 GB each; ``mem`` is in MB.

``eurora``, ``kit`` and ``seth``: the thesis on dispatching by constraint programming (models.md).
"""


def find(text: str) -> System:
    """The system that a user means: a number of processors, a name in `NAMED`, or a file.

    Raises
    ------
    UsageError, InputError
        When it is none of these, or the file is wrong.
    """
    if text.isascii() and text.removeprefix("-").isdigit():
        processors = count_of(text)
        if processors is None or not 1 <= processors <= LIMIT:
            raise UsageError(
                f"--system {text}: the number of processors must be 1 or more, {LIMIT} at most"
            )
        return System.pool(processors)
    if text in NAMED:
        return NAMED[text]
    path = Path(text)
    if path.suffix in {".json", ".toml", ".config"} or path.name != text or path.exists():
        return load(text)
    raise UsageError(
        f"unknown system {text!r}{nearest(text, NAMED)} (a number of processors, "
        f"one of {', '.join(NAMED)}, or a JSON or TOML file)"
    )
