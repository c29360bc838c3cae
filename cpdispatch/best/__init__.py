"""The dispatcher `best`: EASY backfilling by predictions, with weekly off-line evaluation."""

from cpdispatch.best.dispatcher import Best

__all__ = ["Best"]
