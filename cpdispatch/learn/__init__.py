"""Policies learned from simulation: tuned pairs, mixed policies, regressions."""
