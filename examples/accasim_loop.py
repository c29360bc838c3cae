"""A dispatcher inside AccaSim's own loop, on a generated log; AccaSim prints its statistics."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cpdispatch.adapters import accasim
from cpdispatch.workloads import swf
from cpdispatch.workloads.generate import eurora_sample

SYSTEM = {"groups": {"thin": {"core": 16}}, "resources": {"thin": 64}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dispatcher", default="easy")
    parser.add_argument("--jobs", type=int, default=200)
    arguments = parser.parse_args()

    simulator = accasim.imported("base.simulator_class").Simulator
    with TemporaryDirectory() as folder:
        log, system = Path(folder, "log.swf"), Path(folder, "system.json")
        # AccaSim takes its log in processors, and without memory unless the system has some.
        swf.write(replace(eurora_sample(arguments.jobs), memory_unit_kb=None), log)
        system.write_text(json.dumps(SYSTEM))
        simulator(
            str(log),
            str(system),
            accasim.scheduler(arguments.dispatcher),
            scheduling_output=False,
            RESULTS_FOLDER_PATH=folder,
        ).start_simulation()


if __name__ == "__main__":
    main()
