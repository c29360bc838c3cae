"""On-line job dispatching for HPC clusters: constraint programming, backfilling, simulation.

The names below are what a program needs; each is imported when it is first used.

Examples
--------
>>> import cpdispatch as cpd
>>> columns = {"id": [1, 2], "submit": [0, 5], "runtime": [60, 30], "units": 1, "core": [4, 2]}
>>> workload, system = cpd.prepare(cpd.from_table(columns), "4")
>>> run = cpd.simulate(workload, system, "easy")
>>> run.jobs["start"].tolist()
[0, 60]
>>> cpd.verify.run(run.jobs, run.system)
[]
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # the module typing takes longer to import than this one
if TYPE_CHECKING:
    from cpdispatch import verify
    from cpdispatch.analyze.difference import Difference, difference
    from cpdispatch.data import AdditionalData, Moment
    from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
    from cpdispatch.dispatch import Dispatcher, Settings, make
    from cpdispatch.errors import CpdispatchError
    from cpdispatch.instance import Instance
    from cpdispatch.jobs import Job, Workload
    from cpdispatch.predict import Predictor
    from cpdispatch.simulator import Run, Simulation, Watch, simulate
    from cpdispatch.system import NodeGroup, System
    from cpdispatch.workloads import from_table, prepare, read
    from cpdispatch.workloads.generate import eurora_sample
    from cpdispatch.workloads.shake import shaken

_HOMES = {
    "analyze.difference": ("Difference", "difference"),
    "data": ("AdditionalData", "Moment"),
    "decision": ("NO_START", "Certificate", "Decision", "Placements", "Reason"),
    "dispatch": ("Dispatcher", "Settings", "make"),
    "errors": ("CpdispatchError",),
    "instance": ("Instance",),
    "jobs": ("Job", "Workload"),
    "predict": ("Predictor",),
    "simulator": ("Run", "Simulation", "Watch", "simulate"),
    "system": ("NodeGroup", "System"),
    "workloads": ("from_table", "prepare", "read"),
    "workloads.generate": ("eurora_sample",),
    "workloads.shake": ("shaken",),
}
"""Where each public name is, by module."""

__all__ = [
    "NO_START", "AdditionalData", "Certificate", "CpdispatchError", "Decision", "Difference",
    "Dispatcher", "Instance", "Job", "Moment", "NodeGroup", "Placements", "Predictor", "Reason",
    "Run", "Settings", "Simulation", "System", "Watch", "Workload", "difference", "eurora_sample",
    "from_table", "make", "prepare", "read", "shaken", "simulate", "verify",
]  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        from importlib import import_module

        if name == "verify":
            return import_module("cpdispatch.verify")
        for module, names in _HOMES.items():
            if name in names:
                found = getattr(import_module(f"cpdispatch.{module}"), name)
                globals()[name] = found
                return found
        raise AttributeError(f"module 'cpdispatch' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
