"""Metrics of schedules and comparisons of runs."""
