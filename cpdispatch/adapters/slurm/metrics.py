"""What a driver did, as metrics in Prometheus's text format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cpdispatch.adapters.slurm.drive import Cycle
from cpdispatch.files import replacing

_COUNTED = {
    "released": "Jobs that were released with nodes.",
    "started": "Released jobs that were seen to start.",
    "elsewhere": "Of these, those that Slurm started on other nodes.",
    "retracted": "Jobs that were held again.",
    "in_vain": "Of these, released jobs that did not start.",
    "tests": "Of the released jobs, those that were released for a test run.",
    "stopped": "Jobs that were stopped when their test run was over, and queued again.",
    "went_on": "Jobs whose test run was over, and that run until they end.",
    "left": "Jobs that were left to Slurm's own scheduler.",
    "kept": "Jobs that others than the driver hold until they release them.",
    "refused": "Changes that Slurm refused.",
}
_PREFIX = "cpdispatch_slurm"


class Metrics:
    """Totals since the driver began, written anew after each cycle.

    Parameters
    ----------
    path : Path
        As the textfile collector of Prometheus's node exporter reads it: ``NAME.prom``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._total: Counter[str] = Counter()
        self._gauges: dict[str, tuple[float, str]] = {}

    def cycle(self, done: Cycle | None, seconds: float, *, failed: bool = False) -> None:
        """Count a cycle, None for one that failed before it read Slurm, and write the file.

        Raises
        ------
        UsageError
            When the file cannot be written.
        """
        self._total["cycles"] += 1
        self._total["failed"] += failed
        self._gauges["cycle_seconds"] = (seconds, "How long the last cycle took.")
        if done is not None:
            self._total.update({name: len(getattr(done, name)) for name in _COUNTED})
            self._gauges["running_jobs"] = (done.running, "Jobs that ran when Slurm was read last.")
            self._gauges["waiting_jobs"] = (done.waiting, "Jobs that the last decision let wait.")
            self._gauges["read_timestamp_seconds"] = (
                done.now_s, "When Slurm was read last, by its clock.",
            )  # fmt: skip
        with replacing(self._path) as temporary:
            temporary.write_text(self.text())

    def text(self) -> str:
        """All metrics."""
        counted = {"cycles": "Cycles.", "failed": "Cycles that failed.", **_COUNTED}
        lines: list[str] = []
        for name, help in counted.items():
            called = f"{_PREFIX}_{name}_total"
            lines += [f"# HELP {called} {help}", f"# TYPE {called} counter"]
            lines.append(f"{called} {self._total[name]}")
        for name, (value, help) in self._gauges.items():
            called = f"{_PREFIX}_{name}"
            lines += [f"# HELP {called} {help}", f"# TYPE {called} gauge", f"{called} {value:.17g}"]
        return "\n".join(lines) + "\n"
