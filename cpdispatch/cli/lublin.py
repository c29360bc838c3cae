"""The Lublin-Feitelson model in the place of a log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cpdispatch.cli.options import LogOptions
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.jobs import Workload
    from cpdispatch.system import System

LUBLIN = "lublin"
LUBLIN_JOBS = 10_000


def log_or_lublin(trace: str, log: LogOptions, seed: int) -> tuple[Workload, System]:
    """A log, or a workload of the Lublin-Feitelson model, and its machine."""
    from cpdispatch.system import System, find
    from cpdispatch.workloads.lublin import PROCESSORS

    if trace != LUBLIN:
        return log.read(trace, seed)
    if replace(log, system=None, jobs=None) != LogOptions():
        raise UsageError(f"--filter, --units, --from and --to are for logs, not for {LUBLIN}")
    machine = System.pool(PROCESSORS) if log.system is None else find(log.system)
    return lublin_jobs(machine, LUBLIN_JOBS if log.jobs is None else log.jobs, seed), machine


def lublin_jobs(machine: System, jobs: int, seed: int) -> Workload:
    """Jobs of the model, fitted to a machine."""
    from cpdispatch.workloads.fit import fit
    from cpdispatch.workloads.lublin import generate

    return fit(generate(jobs, seed, processors=machine.processors), machine)
