"""One HTML page about runs of one log: who wins, who pays, when and where each job ran."""

from cpdispatch.report.page import Shown, page_of

__all__ = ["Shown", "page_of"]
