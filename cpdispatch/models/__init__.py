"""Constraint-programming dispatchers on OR-Tools CP-SAT, one file a model."""
