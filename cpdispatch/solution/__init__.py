"""The answer to an instance as a file, and in words why a job waits."""

from cpdispatch.decision import STATUSES
from cpdispatch.solution.answer import Solution, SolvedJob, from_decision
from cpdispatch.solution.file import FORMAT, dump, load, loads, to_json
from cpdispatch.solution.reasons import explain

__all__ = [
    "FORMAT", "STATUSES", "Solution", "SolvedJob", "dump", "explain", "from_decision", "load",
    "loads", "to_json",
]  # fmt: skip
