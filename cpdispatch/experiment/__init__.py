"""Experiments: logs replayed under several dispatchers with several seeds, and their report."""

from cpdispatch.experiment.report import report_of, tables
from cpdispatch.experiment.runs import Experiment, RunPlan, RunSummary

__all__ = ["Experiment", "RunPlan", "RunSummary", "report_of", "tables"]
