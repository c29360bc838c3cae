"""Constraint-programming dispatchers on OR-Tools CP-SAT: an engine, formulations, variants."""
