"""Runs dispatchers with several time limits over a folder of instances, and compares their plans.

    python benchmarks/corpus.py instances --models hcp pcp --budgets 0.05 0.2 1 --out table.md

Plans are judged by their wait part, the sum over the planned jobs of (start - now) / duration:
the rest of the slowdown objective is the same for all plans of the same jobs. Plans of different
sets of jobs are never compared, nor plans whose later starts have no nodes.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import exp, log
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np
import script

from cpdispatch import dispatch, verify
from cpdispatch.decision import NO_START, Decision
from cpdispatch.dispatch import Settings
from cpdispatch.files import read_bytes, write_bytes
from cpdispatch.instance import Instance, digest, load
from cpdispatch.solution import from_decision

EPSILON = 0.01
"""Added to both wait parts of a ratio, which may be 0: a job that waits 1 % of its duration."""

SAME = 1e-9
"""Relative difference up to which two values are one: what float sums may differ by."""

BEST_KNOWN = "best_known.json"

ALONE = {"alone": True} if "alone" in Settings.__dataclass_fields__ else {}
"""Earlier versions do not tell an instance that stands alone from one of a replay."""

# ------------------------------------------------------------------------------------- an answer


class Answer(msgspec.Struct, frozen=True):
    """What came of one model, one budget and one instance.

    Attributes
    ----------
    error : str
        Why there is no decision; empty when there is one.
    planned : int
        Jobs with a start.
    jobs : str
        Which jobs these are, of which instance: a digest. Only plans of like ``jobs`` compare.
    placed : bool
        Whether every planned job has nodes; a plan on the pooled capacity is no plan of the nodes.
    wait, value : float
        Wait part, and the whole slowdown objective, of the planned jobs.
    bound : float or None
        Proven lower bound of the whole objective, by the certificate.
    violations : list of str
        What the checker found wrong with the decision and the plan.
    """

    file: str
    model: str
    budget_s: float
    error: str = ""
    planned: int = 0
    jobs: str = ""
    placed: bool = False
    wait: float = 0.0
    value: float = 0.0
    bound: float | None = None
    status: str = ""
    wall_ms: float = 0.0
    phases_ms: dict[str, float] = {}
    violations: list[str] = []

    @property
    def answered(self) -> bool:
        return not self.error and self.planned > 0

    @property
    def sound(self) -> bool:
        """Whether its wait part may be compared with others of the same jobs."""
        return self.answered and self.placed and not self.violations


def ask(file: str, problem: Instance, model: str, budget_s: float, seed: int) -> Answer:
    """Have an instance answered by a dispatcher of its own, and the answer checked."""
    dispatcher = dispatch.make(model, Settings(limit_s=budget_s, seed=seed, **ALONE))
    began = perf_counter()
    try:
        decision = dispatcher.dispatch(problem)
    except Exception as error:  # a benchmark counts failures, whatever they are
        return Answer(file, model, budget_s, error=f"{type(error).__name__}: {error}")
    wall_ms = (perf_counter() - began) * 1e3
    certificate = decision.certificate
    violations = verify.decision(problem, decision)
    if not violations:
        violations = verify.solution(problem, from_decision(problem, decision))
    planned = np.flatnonzero(decision.start_s != NO_START)
    wait = wait_part(problem, decision)
    return Answer(
        file, model, budget_s,
        planned=len(planned),
        jobs=jobs_digest(problem, decision),
        placed=bool(np.isin(planned, decision.placements.position).all()),
        wait=float(wait),
        value=float(wait + constant(problem, decision)),
        bound=certificate.bound if certificate.objective == "slowdown" else None,
        status=certificate.status,
        wall_ms=wall_ms,
        phases_ms=dict(certificate.phases_ms),
        violations=[str(violation) for violation in violations],
    )  # fmt: skip


def wait_part(problem: Instance, decision: Decision) -> Fraction:
    """Exact sum of (start - now) / duration over the planned jobs."""
    planned = decision.start_s != NO_START
    late_s = (decision.start_s[planned] - problem.now).tolist()
    return quotients(late_s, problem.queue.expected_s[planned].tolist())


def constant(problem: Instance, decision: Decision) -> Fraction:
    """Exact sum of (now - submission + duration) / duration: what no plan can change."""
    planned = decision.start_s != NO_START
    duration_s = problem.queue.expected_s[planned]
    least_s = problem.now - problem.queue.submit_s[planned] + duration_s
    return quotients(least_s.tolist(), duration_s.tolist())


def quotients(above: Iterable[int], below: Iterable[int]) -> Fraction:
    """Exact sum of quotients: those of one denominator are added as integers."""
    sums: Counter[int] = Counter()
    for up, down in zip(above, below, strict=True):
        sums[down] += up
    return sum((Fraction(up, down) for down, up in sums.items()), start=Fraction(0))


def jobs_digest(problem: Instance, decision: Decision) -> str:
    """What the planned jobs, and the instance that they are in, are known by."""
    ids = sorted(problem.queue.id[decision.start_s != NO_START].tolist())
    return hashlib.sha256(f"{digest(problem)} {ids}".encode()).hexdigest()[:16]


# -------------------------------------------------------------------------------- the best known


class Finder(msgspec.Struct, frozen=True):
    """Who found something."""

    model: str
    budget_s: float


class Best(msgspec.Struct):
    """The best known of some jobs of an instance; bound and value are of the whole objective."""

    planned: int
    wait: float
    value: float
    found_by: Finder
    bound: float | None = None
    proven_by: Finder | None = None


class BestFile(msgspec.Struct, forbid_unknown_fields=True):
    """By file name, then by which jobs are planned, see `jobs_digest`."""

    format: str = "cpdispatch-best-known/1"
    instances: dict[str, dict[str, Best]] = {}


def read_best(path: Path) -> BestFile:
    """What is known so far; nothing where there is no file."""
    return msgspec.json.decode(read_bytes(path), type=BestFile) if path.exists() else BestFile()


def write_best(path: Path, answers: Iterable[Answer]) -> None:
    """Take what is better than the file's content into it, atomically."""
    known = read_best(path)
    before = msgspec.json.encode(known)
    for answer in answers:
        improve(known, answer)
    if msgspec.json.encode(known) != before:
        lines = msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=1)
        write_bytes(path, lines + b"\n")


def improve(known: BestFile, answer: Answer) -> None:
    """Take a sound answer's value and bound where they are better.

    A bound above a value that was found is false, whoever stated it; it is never kept.
    """
    if not answer.sound:
        return
    who = Finder(answer.model, answer.budget_s)
    of_file = known.instances.setdefault(answer.file, {})
    best = of_file.get(answer.jobs)
    if best is None:
        best = Best(answer.planned, answer.wait, answer.value, who)
        of_file[answer.jobs] = best
    elif less(answer.wait, best.wait):
        best.wait, best.value, best.found_by = answer.wait, answer.value, who
    if answer.bound is not None and (best.bound is None or less(best.bound, answer.bound)):
        best.bound, best.proven_by = answer.bound, who
    if best.bound is not None and less(best.value, best.bound):
        print(f"{answer.file}: false bound {best.bound} by {best.proven_by}", file=sys.stderr)
        best.bound = best.proven_by = None
    elif best.bound is not None:
        best.bound = min(best.bound, best.value)


def less(a: float, b: float) -> bool:
    """Whether a number is less than another by more than rounding."""
    return a < b - SAME * max(1.0, abs(a), abs(b))


# ---------------------------------------------------------------------------------- comparisons


class Results:
    """All answers, and which of them compare.

    Of each instance the plans of one set of jobs are compared: the set that most of its answers
    planned, the first of them if several sets are as frequent.

    Parameters
    ----------
    answers : sequence of Answer
    known : BestFile
        What was known of the instances before.
    """

    def __init__(self, answers: Sequence[Answer], known: BestFile) -> None:
        self.answers = answers
        self._by = {(a.file, a.model, a.budget_s): a for a in answers}
        self.settings = list(dict.fromkeys((a.model, a.budget_s) for a in answers))
        self.budgets = list(dict.fromkeys(a.budget_s for a in answers))
        self.files = list(dict.fromkeys(a.file for a in answers))
        sets: dict[str, Counter[str]] = defaultdict(Counter)
        for answer in answers:
            if answer.sound:
                sets[answer.file][answer.jobs] += 1
        self.set_of = {file: count.most_common(1)[0][0] for file, count in sets.items()}
        self.best: dict[str, float] = {}
        for file, jobs in self.set_of.items():
            waits = [a.wait for a in answers if a.file == file and a.sound and a.jobs == jobs]
            before = known.instances.get(file, {}).get(jobs)
            self.best[file] = min(waits + ([] if before is None else [before.wait]))

    def of(self, model: str, budget_s: float) -> list[Answer]:
        """The answers of a model with a budget."""
        return [a for a in self.answers if a.model == model and a.budget_s == budget_s]

    def compares(self, answer: Answer | None) -> bool:
        """Whether an answer is sound and plans the jobs by which its instance is compared."""
        if answer is None or not answer.sound:
            return False
        return self.set_of.get(answer.file) == answer.jobs

    def false_bound(self, answer: Answer) -> bool:
        """Whether an answer states a bound that is above the best known value."""
        if answer.bound is None or not self.compares(answer):
            return False
        return less(self.best[answer.file] + answer.value - answer.wait, answer.bound)

    def gaps(self, model: str, budget_s: float, only: str = "") -> dict[str, float]:
        """By file, the wait part over the best known, less 1; of the files with ``only``."""
        return {
            a.file: ratio(a.wait, self.best[a.file]) - 1
            for a in self.of(model, budget_s)
            if self.compares(a) and only in a.file
        }

    def pairs(self, budget_s: float, a: str, b: str, only: str) -> list[tuple[Answer, Answer]]:
        """Answers of two models with a budget to the same instances, where both compare."""
        found = []
        for file in self.files:
            first = self._by.get((file, a, budget_s))
            second = self._by.get((file, b, budget_s))
            if only in file and first and second and self._pair_compares(first, second):
                found.append((first, second))
        return found

    def _pair_compares(self, first: Answer, second: Answer) -> bool:
        return first.sound and second.sound and first.jobs == second.jobs


def ratio(wait: float, best: float) -> float:
    """How many times as long as the best known: 1 when both are 0, finite when only that is.

    `EPSILON` belongs to both; a gap of a best known wait part of 1 is understated by 1 % of itself.
    """
    return (wait + EPSILON) / (best + EPSILON)


def geometric_mean(ratios: Iterable[float]) -> float:
    """Their geometric mean; not a number when there are none."""
    logs = [log(one) for one in ratios]
    return exp(statistics.fmean(logs)) if logs else float("nan")


# --------------------------------------------------------------------------------------- tables


LOADED = "-loaded-"
"""What the names of the loaded instances hold."""


def quality_table(results: Results, baseline: str) -> list[str]:
    """How good the answers of each model with each budget are."""
    rows = [
        ["model", "budget s", "instances", "answered", "verified", "comparable", "proven optimal",
         "mean gap", "worst gap", "worst on", "mean gap, loaded", "of baseline, loaded"],
    ]  # fmt: skip
    for model, budget_s in results.settings:
        answers = results.of(model, budget_s)
        count, gaps = len(answers), results.gaps(model, budget_s)
        worst = max(gaps, key=gaps.__getitem__, default="")
        pairs = results.pairs(budget_s, model, baseline, LOADED)
        rows.append(
            [
                model, f"{budget_s:g}", str(count),
                share(sum(a.answered for a in answers), count),
                share(sum(a.answered and not a.violations for a in answers), count),
                share(len(gaps), count),
                share(sum(a.sound and a.status == "optimal" for a in answers), count),
                percent(geometric_mean(1 + gap for gap in gaps.values()) - 1),
                percent(gaps.get(worst, float("nan"))),
                worst.removesuffix(".json.gz") if gaps.get(worst) else "-",
                percent(mean_gap(results.gaps(model, budget_s, LOADED))),
                percent(geometric_mean(ratio(a.wait, b.wait) for a, b in pairs)),
            ]
        )  # fmt: skip
    return markdown(rows, left=(0, 9))


def mean_gap(gaps: dict[str, float]) -> float:
    return geometric_mean(1 + gap for gap in gaps.values()) - 1


def time_table(results: Results) -> list[str]:
    """How well the answers of each model keep to each budget, and what they spend it on."""
    rows = [
        ["model", "budget s", "median ms", "overshoot ms: median", "99 %", "99.9 %", "most",
         "over 20 ms or 2 %", "mean ms by phase"],
    ]  # fmt: skip
    for model, budget_s in results.settings:
        answers = [a for a in results.of(model, budget_s) if not a.error]
        if not answers:
            continue
        wall_ms = np.array([a.wall_ms for a in answers])
        over_ms = wall_ms - budget_s * 1e3
        allowed_ms = max(20.0, 0.02 * budget_s * 1e3)
        quantiles = np.percentile(over_ms, [50, 99, 99.9, 100], method="higher")
        rows.append(
            [
                model, f"{budget_s:g}", f"{np.median(wall_ms):,.1f}",
                *(f"{quantile:,.1f}" for quantile in quantiles),
                str(int((over_ms > allowed_ms).sum())), phases(answers),
            ]
        )  # fmt: skip
    return markdown(rows, left=(0, 8))


def phases(answers: Sequence[Answer]) -> str:
    """Mean time by phase, in the order in which phases are first met."""
    total: dict[str, float] = defaultdict(float)
    for answer in answers:
        for phase, ms in answer.phases_ms.items():
            total[phase] += ms
    return ", ".join(f"{phase} {ms / len(answers):.1f}" for phase, ms in total.items())


def compare_table(results: Results, a: str, b: str) -> list[str]:
    """On how many loaded instances one model's plan is better than another's, by budget."""
    rows = [["budget s", "loaded instances", f"{a} better", "equal", f"{b} better", f"{a} / {b}"]]
    for budget_s in results.budgets:
        pairs = results.pairs(budget_s, a, b, LOADED)
        better = sum(less(first.wait, second.wait) for first, second in pairs)
        worse = sum(less(second.wait, first.wait) for first, second in pairs)
        mean = geometric_mean(ratio(first.wait, second.wait) for first, second in pairs)
        counts = (len(pairs), better, len(pairs) - better - worse, worse)
        rows.append([f"{budget_s:g}", *map(str, counts), percent(mean)])
    return markdown(rows, left=())


def remarks(results: Results) -> list[str]:
    """What the tables leave out, and why."""
    lines = [
        f"Gaps are of the wait part, over the best known; {EPSILON} is added to both. Means are "
        "geometric.",
    ]
    for model in dict.fromkeys(model for model, _ in results.settings):
        own = [a for a in results.answers if a.model == model and not results.compares(a)]
        reasons = Counter(why_not(a) for a in own)
        lines += [f"{model}: {many} not comparable, {why}." for why, many in reasons.items()]
        false = sum(a.model == model and results.false_bound(a) for a in results.answers)
        if false:
            lines.append(f"{model}: {false} FALSE BOUNDS, above the value of a plan that is known.")
    return [f"- {line}" for line in lines]


def why_not(answer: Answer) -> str:
    """Why an answer is not compared."""
    if answer.error:
        return f"failed ({answer.error})"
    if not answer.planned:
        return "nothing was planned"
    if answer.violations:
        return f"wrong ({answer.violations[0].split(':')[0]})"
    return "planned without nodes" if not answer.placed else "planned another set of jobs"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.2f} %"


def markdown(rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    """A table whose columns are aligned to the right, but for some."""
    rule = ["---" if column in left else "--:" for column in range(len(rows[0]))]
    return ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]]


def report(results: Results, compared: Sequence[str], baseline: str) -> str:
    """All tables."""
    parts = [quality_table(results, baseline), time_table(results)]
    if compared:
        parts.append(compare_table(results, *compared))
    return "\n\n".join("\n".join(part) for part in [*parts, remarks(results)]) + "\n"


# ------------------------------------------------------------------------------------------ main


def corpus(folder: Path, sample: int | None, seed: int) -> list[Path]:
    """The instance files of a folder, or so many of them drawn at random."""
    files = [path for path in script.instances(folder, "*.json*") if path.name != BEST_KNOWN]
    if sample is None or sample >= len(files):
        return files
    return sorted(random.Random(seed).sample(files, sample))


def warm(model: str, files: Sequence[Path], seed: int) -> None:
    """Load all that a model needs: an instance of each load and of each extra is solved."""
    kinds: dict[str, Path] = {}
    for path in files:
        words = path.name.split(".")[0].split("-")
        kinds.setdefault(" ".join(word for word in words[1:] if not word.isdigit()), path)
    for path in kinds.values():
        ask(path.name, load(path), model, 0.5, seed)


def run(
    files: Sequence[Path],
    settings: Sequence[tuple[str, float]],
    seed: int,
    done: Sequence[Answer],
    save: Callable[[Sequence[Answer], Sequence[Answer]], None],
) -> list[Answer]:
    """Every model with every budget on every instance, but what is done; Ctrl-C ends it early.

    ``save`` is called after each instance, with all answers and those that are new.
    """
    answers, saved = list(done), 0
    there = {(a.file, a.model, a.budget_s) for a in done}
    try:
        for model in dict.fromkeys(model for model, _ in settings):
            warm(model, files, seed)
        for number, path in enumerate(files, start=1):
            problem = load(path)
            print(f"{number}/{len(files)} {path.name}", file=sys.stderr)
            for model, budget_s in settings:
                if (path.name, model, budget_s) not in there:
                    answers.append(ask(path.name, problem, model, budget_s, seed))
            save(answers, answers[saved:])
            saved = len(answers)
    except KeyboardInterrupt:
        print("interrupted: what follows is of the answers so far", file=sys.stderr)
        save(answers, answers[saved:])
    return answers


def arguments_of(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=script.folder, help="folder of instances")
    parser.add_argument("--models", nargs="+", default=[], metavar="MODEL", help="dispatchers")
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.05, 0.2, 1.0, 5.0],
                        metavar="S", help="time limits in seconds")  # fmt: skip
    parser.add_argument("--compare", nargs=2, default=[], metavar=("A", "B"),
                        help="count the loaded instances on which A is better than B")  # fmt: skip
    parser.add_argument("--baseline", default="", metavar="MODEL",
                        help="dispatcher that the wait parts are related to")  # fmt: skip
    parser.add_argument(
        "--sample", type=script.count, metavar="N", help="only so many instances, at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample and the dispatchers")
    parser.add_argument("--best", type=Path, metavar="FILE",
                        help="best known values and bounds; better ones are added")  # fmt: skip
    parser.add_argument("--out", type=Path, nargs="+", default=[], metavar="FILE",
                        help="tables (.md), all answers (.json)")  # fmt: skip
    parser.add_argument("--resume", action="store_true",
                        help="take the answers that the .json of --out has")  # fmt: skip
    arguments = parser.parse_args(given)
    if not (arguments.models or arguments.compare):
        parser.error("name --models, or two to --compare")
    if wrong := [path for path in arguments.out if path.suffix not in (".md", ".json")]:
        parser.error(f"--out {wrong[0]}: .md or .json is needed")
    return arguments


def main(given: Sequence[str] | None = None) -> None:
    """Run, and print the tables."""
    arguments = arguments_of(given)
    models = [*arguments.models, *arguments.compare, arguments.baseline]
    models = list(dict.fromkeys(filter(None, models)))
    files = corpus(arguments.folder, arguments.sample, arguments.seed)
    settings = [(model, budget_s) for model in models for budget_s in arguments.budgets]
    as_json = [path for path in arguments.out if path.suffix == ".json"]
    done: list[Answer] = []
    if arguments.resume and as_json and as_json[0].exists():
        done = msgspec.json.decode(read_bytes(as_json[0]), type=list[Answer])

    def save(answers: Sequence[Answer], new: Sequence[Answer]) -> None:
        for path in as_json:
            write_bytes(path, msgspec.json.encode(answers) + b"\n")
        if arguments.best is not None:
            write_best(arguments.best, new)

    answers = run(files, settings, arguments.seed, done, save)
    known = BestFile() if arguments.best is None else read_best(arguments.best)
    text = report(Results(answers, known), arguments.compare, arguments.baseline)
    for path in arguments.out:
        if path.suffix == ".md":
            write_bytes(path, text.encode())
    print(text)


if __name__ == "__main__":
    script.run(__file__)
