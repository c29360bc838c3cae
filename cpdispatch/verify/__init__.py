"""The independent checker: what is wrong with a decision, a plan, or a whole simulated schedule.

It is written from the rules alone and shares no code with what it checks: it imports the data
types and NumPy, no solver, kernel, model, heuristic or simulator. Every function returns a list of
`Violation`; an empty list is the statement that there is none.
"""

from cpdispatch.verify.decisions import decision
from cpdispatch.verify.dispatches import Told
from cpdispatch.verify.objectives import OBJECTIVES, TAU_S, objective_value
from cpdispatch.verify.runs import run
from cpdispatch.verify.schedules import schedule
from cpdispatch.verify.service import Service
from cpdispatch.verify.solutions import solution
from cpdispatch.verify.tables import Attempts, Schedule
from cpdispatch.verify.violation import Kind, Violation

__all__ = [
    "OBJECTIVES", "TAU_S", "Attempts", "Kind", "Schedule", "Service", "Told", "Violation",
    "decision", "objective_value", "run", "schedule", "solution",
]  # fmt: skip
