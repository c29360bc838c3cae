"""The simulator: replays a workload through a dispatcher."""

from cpdispatch.simulate.replay import Watch, simulate
from cpdispatch.simulate.run import Run
from cpdispatch.simulate.simulation import Simulation

__all__ = ["Run", "Simulation", "Watch", "simulate"]
