"""One simulation by AccaSim itself, in a process of its own: it can run only one.

Case and answer are JSON files: a system in AccaSim's form, the jobs and a dispatcher; and what
AccaSim says that became of each job.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from cpdispatch.adapters import accasim
from cpdispatch.dispatch import Settings


def reader(jobs: list[dict[str, Any]], job_factory: Any) -> Any:
    """AccaSim's kind of reader, over a list; its own does SWF only, and no GPUs."""
    base = accasim.imported("utils.reader_class").Reader
    left = iter(jobs)

    def read(self: Any, current_time: int) -> dict[str, Any] | None:
        job = next(left, None)
        if job is None:
            self.stop_submission()
        return job

    return type("Jobs", (base,), {"_read": read})(job_factory)


def diary(into: list[Any]) -> Any:
    """AccaSim's class of additional data that is shown each job as it ends."""
    base = accasim.imported("base.additional_data").AdditionalData

    def ignore(self: Any, *arguments: Any) -> None:
        pass

    def ended(self: Any, jobs: list[Any]) -> None:
        for job in jobs:
            nodes = Counter(int(name.removeprefix("node_")) - 1 for name in job.assigned_nodes)
            into.append([int(job.id), job.start_time, job.end_time, sorted(nodes.items())])

    hooks = dict.fromkeys(base.__abstractmethods__, ignore)
    return type("Diary", (base,), {**hooks, "exec_after_completion": ended})


def play(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Let AccaSim simulate a case."""
    system = folder / "system.json"
    system.write_text(json.dumps(case["system"]))
    resources = accasim.imported("base.resource_manager_class")
    events = accasim.imported("base.event_class")
    manager = resources.ResourceManager(resources.Resources(**case["system"]))
    factory = events.JobFactory(
        manager,
        job_attrs=[
            events.AttributeType("expected_duration", int),
            events.AttributeType("queue", str),
        ],
    )
    ended: list[Any] = []
    settings = Settings(limit_s=case["limit_s"])
    simulator = accasim.imported("base.simulator_class").Simulator(
        "jobs",
        str(system),
        accasim.scheduler(case["dispatcher"], settings),
        resource_manager=manager,
        reader=reader(case["jobs"], factory),
        job_factory=factory,
        additional_data=[diary(ended)],
        scheduling_output=False,
        statistics_output=False,
        RESULTS_FOLDER_PATH=str(folder),
    )
    simulator.start_simulation()
    return {"ended": sorted(ended), "rejected": simulator.rejected_jobs}


def main(case: str, answer: str) -> None:
    """Play the case of a file, and write the answer into another."""
    target = Path(answer)
    target.write_text(json.dumps(play(json.loads(Path(case).read_text()), target.parent)))
