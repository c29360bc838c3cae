"""A dispatcher called from a loop of one's own, step by step over a simulated cluster."""

from __future__ import annotations

import argparse

import cpdispatch as cpd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dispatcher", default="easy")
    parser.add_argument("--jobs", type=int, default=50)
    arguments = parser.parse_args()

    simulation = cpd.Simulation(*cpd.prepare(cpd.eurora_sample(arguments.jobs), "eurora"))
    dispatcher = cpd.make(arguments.dispatcher)
    while (instance := simulation.advance()) is not None:
        decision = dispatcher.dispatch(instance)
        for position, nodes in decision.placements.as_dict().items():
            if decision.start_s[position] == instance.now:
                job = instance.queue[position]
                why = cpd.Reason(decision.reason[position]).name.lower()
                print(f"{instance.now:>8} s  job {job.id:>4}  {why:<10}  nodes {nodes}")
        simulation.apply(decision)


if __name__ == "__main__":
    main()
