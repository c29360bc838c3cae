"""Replays in compiled code, for every dispatcher of the backfilling family."""

from cpdispatch.compiled.replay import Replays

__all__ = ["Replays"]
