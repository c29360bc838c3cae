"""A dispatcher called from a loop of one's own, step by step over a simulated cluster."""

from __future__ import annotations

import argparse

from cpdispatch.decision import Reason
from cpdispatch.dispatch import make
from cpdispatch.simulator import Simulation
from cpdispatch.system import NAMED
from cpdispatch.workloads.generate import eurora_sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dispatcher", default="easy")
    parser.add_argument("--jobs", type=int, default=50)
    arguments = parser.parse_args()

    simulation = Simulation(eurora_sample(arguments.jobs, seed=0), NAMED["eurora"])
    dispatcher = make(arguments.dispatcher)
    while (instance := simulation.advance()) is not None:
        decision = dispatcher.dispatch(instance)
        for position, nodes in decision.placements.as_dict().items():
            if decision.start_s[position] == instance.now:
                job = instance.queue[position]
                why = Reason(decision.reason[position]).name.lower()
                print(f"{instance.now:>8} s  job {job.id:>4}  {why:<10}  nodes {nodes}")
        simulation.apply(decision)


if __name__ == "__main__":
    main()
