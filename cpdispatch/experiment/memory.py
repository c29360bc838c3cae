"""The most memory that a piece of work holds in this process."""

from __future__ import annotations

from pathlib import Path

_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_PEAK = "5"
"""What tells Linux to forget the peak so far, see proc_pid_clear_refs(5)."""


class PeakMemory:
    """The peak resident memory of this process from now on.

    A worker makes one run after the other, so the peak since it began says nothing of a single
    run. Linux can forget that peak; elsewhere there is no figure.
    """

    def __init__(self) -> None:
        try:
            _RESET.write_text(_PEAK)
            self._known = True
        except OSError:
            self._known = False

    def mib(self) -> float | None:
        """MiB, with what the process held before; None where the peak is unknown."""
        if not self._known:
            return None
        lines = _STATUS.read_text().splitlines()
        peak = next((line for line in lines if line.startswith("VmHWM:")), None)
        return None if peak is None else round(int(peak.split()[1]) / 1024, 1)
