"""The command verify: checks a solution, or a whole simulated schedule."""

from __future__ import annotations

from pathlib import Path

from cpdispatch.cli.options import Json
from cpdispatch.cli.output import DONE, FINDINGS, RefusedFiles, print_json, status
from cpdispatch.cli.runs import load_runs
from cpdispatch.errors import UsageError


def verify(
    instance: Path | None = None,
    solution: Path | None = None,
    *,
    run: Path | None = None,
    json: Json = False,
) -> int:
    """Check a solution against its instance, or a whole simulated schedule against its system.

    A run that cannot be read is reported on standard error. The others are checked.

    Parameters
    ----------
    instance
        Instance file.
    solution
        Solution file.
    run
        Folder of a run, or of several runs.
    json
        Print one JSON object.
    """
    from cpdispatch import instance as instances
    from cpdispatch import solution as solutions
    from cpdispatch import verify as checker

    refused = RefusedFiles()
    if run is not None:
        if instance is not None:
            raise UsageError("verify takes either INSTANCE SOLUTION or --run DIR")
        found = {}
        for folder, r in load_runs([run], refused):
            with refused.reading(folder), status(f"checking {folder}"):
                found[str(folder)] = r.verify()
    elif instance is None or solution is None:
        raise UsageError("verify needs INSTANCE SOLUTION or --run DIR")
    else:
        problem, answer = instances.load(instance), solutions.load(solution)
        found = {str(solution): checker.solution(problem, answer)}
    if json:
        checked = {name: [str(v) for v in violations] for name, violations in found.items()}
        feasible = not any(checked.values()) and not refused.errors
        print_json({"feasible": feasible, "violations": checked, "errors": refused.errors})
    else:
        for name, violations in found.items():
            for violation in violations:
                print(violation)
            print(f"{name}: {'NOT feasible' if violations else 'feasible'}")
    return refused.code(FINDINGS if any(found.values()) else DONE)
