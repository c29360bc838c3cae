"""The command solve: solves dumped instance files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cpdispatch.cli.options import NOTHING_SAVED, Json, Seed, check_spared
from cpdispatch.cli.output import (
    DONE,
    RefusedFiles,
    console_of_stdout,
    print_json,
    progress_bars,
)
from cpdispatch.cli.signals import stoppable
from cpdispatch.durations import seconds
from cpdispatch.errors import CpdispatchError, InputError, InterruptedRunError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cpdispatch.dispatch import Settings
    from cpdispatch.instance import Instance
    from cpdispatch.solution import Solution


def solve(
    *instances: Path,
    dispatcher: Annotated[str, Parameter(("--dispatcher", "-d", "--model", "-m"))] = "hcp",
    objective: str | None = None,
    limit: str = "1s",
    seed: Seed = 0,
    out: Path | None = None,
    json: Json = False,
) -> int:
    """Solve instance files. Every answer is verified before it is shown or written.

    A file that cannot be read is reported on standard error. The others are solved.

    Parameters
    ----------
    instances
        Instance files (JSON, plain or packed), or folders of them.
    dispatcher
        As in simulate.
    objective
        Objective of a constraint-programming model.
    limit
        Time limit, for example 500ms or 1s.
    seed
        Seed of the search.
    out
        File for the solution; with several instances, a folder for the solutions.
    json
        Print one JSON object.
    """
    from cpdispatch import dispatch, solution

    files = _instance_files(instances)
    targets = _solution_files(files, out, folder=len(files) > 1 or files[0] not in instances)
    for path, target in zip(files, targets, strict=True):
        check_spared("--out", target, path)
    if objective is not None:
        dispatcher += (",objective=" if ":" in dispatcher else ":objective=") + objective
    settings = dispatch.Settings(seconds(limit, "--limit"), seed, alone=True)
    made = dispatch.make(dispatcher, settings, warm=dispatch.but_stopped)
    keeps_bound = dispatch.keeps_starvation_bound(made) is not False
    solved: list[dict[str, Any]] = []
    console, refused = console_of_stdout(), RefusedFiles()
    kept = NOTHING_SAVED if out is None else f"the solutions so far are in {out}"
    advice = f"{kept}; give the same command again to solve all instances"
    with stoppable(advice) as stop, progress_bars() as show:
        advance = show("1 instance" if len(files) == 1 else f"{len(files)} instances")
        for count, (path, target) in enumerate(zip(files, targets, strict=True), start=1):
            if stop():
                raise InterruptedRunError(
                    f"interrupted: {count - 1} of {len(files)} instances are looked at"
                )
            problem = None
            with refused.reading(path):
                problem = _loaded(path, dispatcher, keeps_bound=keeps_bound)
            if problem is None:
                continue
            answer = _solved(problem, path, dispatcher, settings)
            if target is not None:
                solution.dump(answer, target)
            solved.append(_solved_row(path, answer))
            if not json:
                console.print(_solved_line(path, answer), soft_wrap=True)
            advance(count / len(files))
    if json:
        print_json({"solutions": solved, "errors": refused.errors})
    elif problem is not None and len(files) == 1:
        console.print(_solved_table(problem, answer))
    return refused.code(DONE)


def _loaded(path: Path, dispatcher: str, *, keeps_bound: bool) -> Instance:
    """The instance of a file, if the dispatcher keeps what it asks for."""
    from cpdispatch import instance

    problem = instance.load(path)
    if problem.starvation is not None and not keeps_bound:
        raise InputError(
            f"{dispatcher} knows no starvation bound", file=path, field="starvation",
            advice="use hcp or pcp, which keep it, or leave the bound out",
        )  # fmt: skip
    return problem


def _solved(problem: Instance, path: Path, dispatcher: str, settings: Settings) -> Solution:
    """The answer of a dispatcher to an instance, verified."""
    from cpdispatch import dispatch, solution, verify
    from cpdispatch.adapters.decided import decided

    warm = dispatch.but_stopped if problem.stopped is None else dispatch.fully
    made = dispatch.make(dispatcher, settings, warm=warm)
    limit_s = dispatch.limit_s_of(made)
    limit_ms = None if limit_s is None else limit_s * 1e3
    answer = solution.from_decision(problem, decided(made, problem), limit_ms=limit_ms)
    violations = verify.solution(problem, answer)
    if violations:
        raise CpdispatchError(f"{dispatcher} answered {path} wrongly: {violations[0]}")
    return answer


def _instance_files(paths: tuple[Path, ...]) -> list[Path]:
    """The instance files that are named, and those in folders that are."""
    if not paths:
        raise UsageError("solve needs an instance file")
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = [
            file
            for file in sorted(path.rglob("*.json*"))
            if ".solution." not in file.name and file.name != "best_known.json"
        ]
        if not inside:
            raise UsageError(f"{path}: there is no instance file (.json, plain or packed) in it")
        files += inside
    return files


def _solution_files(files: list[Path], out: Path | None, *, folder: bool) -> list[Path | None]:
    """Where each solution goes."""
    if out is None:
        return [None] * len(files)
    if not folder:
        return [out]
    names = [file.name.split(".json")[0] + ".solution.json" for file in files]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--out {out}: two instances would have the solution file {name}")
    return [out / name for name in names]


def _solved_row(path: Path, answer: Solution) -> dict[str, Any]:
    import msgspec

    from cpdispatch.solution import to_json

    return {"file": str(path), **msgspec.json.decode(to_json(answer))}


def _solved_line(path: Path, answer: Solution) -> str:
    value = "" if answer.value is None else f", {answer.objective} {answer.value:,.3f}"
    bound = "" if answer.bound is None else f" (bound {answer.bound:,.3f})"
    return f"{path}: {answer.model}, {answer.status}{value}{bound}, {answer.wall_ms:.1f} ms"


def _solved_table(problem: Instance, answer: Solution) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("job", "start", "nodes"):
        table.add_column(heading, justify="left" if heading == "nodes" else "right")
    order = sorted(answer.jobs, key=lambda job: (job.start is None, job.start or 0, job.id))
    for job in order:
        if job.start is None:
            table.add_row(str(job.id), "-", job.reason)
            continue
        start = "now" if job.start == problem.now else f"+{job.start - problem.now} s"
        nodes = [str(n) if u == 1 else f"{n} x {u}" for n, u in (job.nodes or {}).items()]
        table.add_row(str(job.id), start, ", ".join(nodes) or "(planned)")
    return table
