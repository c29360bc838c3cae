"""Predictors of job durations."""
