"""The simulator: replays a workload through a dispatcher."""

from cpdispatch.simulator.replay import Watch, simulate
from cpdispatch.simulator.run import Run
from cpdispatch.simulator.simulation import Simulation

__all__ = ["Run", "Simulation", "Watch", "simulate"]
