"""What replays of models call beside the engine: compiled while another process does the rest.

Run as a program (``python -m cpdispatch.experiment.warming``), this module compiles into the cache
the kernels of the bounds, of EASY beside a model, and of the simulator.
"""

from __future__ import annotations

import numpy as np

from cpdispatch.compiled import shadow
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.instance import Instance
from cpdispatch.jobs import Starvation
from cpdispatch.models import warming
from cpdispatch.simulator import simulate
from cpdispatch.system import NAMED
from cpdispatch.workloads.generate import MIXES, generate

HERE = "cpdispatch.experiment.warming"
_LOAD, _JOBS = "eurora", 3


def compile_kernels() -> None:
    """Compile the kernels of replays of models by two processes, where the cache lacks them."""
    warming.compile_kernels(HERE)


def play() -> None:
    """Call the kernels that the other process does not call."""
    warming.play_bounds()
    shadow.warm_up()
    play_simulator()


def play_simulator() -> None:
    """Call the kernels of the simulator, and none of a dispatcher."""
    simulate(generate(MIXES[_LOAD], _JOBS), NAMED[_LOAD], _OneByOne(), compiled=False)


class _OneByOne:
    """Starts the first job as soon as no other runs, one unit on a node.

    Like a model, it says which bound on waits it keeps to.
    """

    name = "one by one"
    certificate = Certificate(name, starvation=Starvation(threshold_s=604_800, bound_s=0))

    def dispatch(self, instance: Instance) -> Decision:
        jobs, places = len(instance.queue), {}
        start_s = np.full(jobs, NO_START)
        reason = np.full(jobs, Reason.WAITS, dtype=np.int8)
        if jobs and not len(instance.running):
            fits = (instance.free >= instance.queue.request[0]).all(axis=1).nonzero()[0].tolist()
            places[0] = dict.fromkeys(fits[: int(instance.queue.units[0])], 1)
            start_s[0], reason[0] = instance.now, Reason.STARTED
        return Decision(start_s, reason, Placements.of(places), self.certificate)


if __name__ == "__main__":
    play()
