"""What the comparison of runs says in sentences: who wins, who pays, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from cpdispatch.analyze.compare.related import GROWTH, first_of, growths
from cpdispatch.analyze.compare.rows import (
    SLOWDOWN,
    Row,
    as_times,
    counted,
    duration,
    name_of,
    setting,
)
from cpdispatch.analyze.difference import NOISE, PAIRS_MIN, SAME, TOO_FEW, Difference

RARE = 0.2
"""Up to this share of the jobs it reads better to say that it is one job in so many."""


def differences(rows: Sequence[Row]) -> list[Row]:
    """Which differences of the mean bounded slowdown from the first run stand; see `related`.

    Returns
    -------
    list of dict
        ``workload``, ``dispatcher`` and ``first`` (with what tells them from the others),
        ``figure``, the attributes of `cpdispatch.analyze.difference.Difference`, and ``text``.
    """
    return [
        {
            "workload": run["workload"],
            "dispatcher": name_of(run, rows),
            "first": run["first"],
            "figure": SLOWDOWN,
            **asdict(run["difference"]),
            "text": f"{name_of(run, rows)}: mean bounded slowdown {_told(run)}.",
        }
        for run in rows
        if run["difference"] is not None
    ]


def _told(run: Row) -> str:
    """The difference of a run from the first one, as a sentence's end."""
    over: Difference = run["difference"]
    if over.says == SAME:
        return f"the same as {run['first']}'s in {over.counted}"
    ratio, rest = str(over).split(" ", 1)
    return f"{ratio} of {run['first']}'s {rest}"


def advice(rows: Sequence[Row], asked: str = "simulate --shake 10") -> list[str]:
    """What it takes to tell differences from noise where these runs are too few, a line each.

    ``asked`` says how draws are asked for.
    """
    few = {
        over.counted: over.over
        for run in rows
        if (over := run["difference"]) is not None and over.says == TOO_FEW
    }
    needed = {"weeks": f"weeks, or draws ({asked})", "draws": "draws"}
    return [
        f"{counted} cannot tell a difference from noise: that takes {PAIRS_MIN} {needed[over]}."
        for counted, over in few.items()
    ]


def warnings(rows: Sequence[Row]) -> list[Row]:
    """Who waits longer than under the first run by more than a tenth; see `related`.

    For each run: the short, medium and long jobs, the narrow, middle and wide jobs, by their mean
    wait (of `JOBS_MIN` jobs at least, and of as many under the first run); the users that lose
    most; the longest wait; growth by less than `GROWTH_S` is left out. Also, jobs that never start
    though they, or as many others, do under the first run: no mean has them. Over draws, growth
    within noise is left out.

    Returns
    -------
    list of dict
        ``workload``, ``dispatcher`` (with what tells it from the others), ``who``, ``text``.
    """
    found = []
    for run in rows:
        first = first_of(run, rows)
        if run["first"] is None or first is None:
            continue
        named = name_of(run, rows)
        for who, text in _payers(run, first):
            found.append(
                {
                    "workload": run["workload"],
                    "dispatcher": named,
                    "who": who,
                    "text": f"{named}: {text}.",
                }
            )
    return found


def _payers(run: Row, first: Row) -> list[tuple[str, str]]:
    """Who pays for what is better under a run than under the first one, each with a sentence."""
    found = [(growth.who, growth.text(run["first"])) for growth in growths(run, first)]
    if more := left_out(run, first, run["first"]):
        found.append(("jobs that never start", more))
    return found


def left_out(run: Row, other: Row, name: str) -> str:
    """How many jobs never start under a run, if more than under another one, of this name."""
    never, before = (peer.get("jobs_never_started", 0) for peer in (run, other))
    if never <= before:
        return ""
    many = counted(never)
    jobs = "job never starts" if many == "1" else "jobs never start"
    return f"{many} {jobs}, {counted(before)} under {name}"


def test_runs(rows: Sequence[Row]) -> list[Row]:
    """What test runs bring and cost, for each run that has one without them; see `related`.

    The two differ by the parameters ``test`` and ``tests`` of the dispatcher, and by those that
    ``more`` names, which the sentence then says.

    Returns
    -------
    list of dict
        ``workload``, ``dispatcher``, ``without`` (the other one's name), ``more`` (the parameters
        that the other one has not), ``test_s`` (the length of a test), ``bounded_slowdown_mean``
        and the same with ``_without``, ``killed_share`` (of the jobs, in their tests),
        ``wasted_share`` (of the work, by whatever stopped jobs, such as nodes that failed) and the
        same with ``_without``, ``longer`` and ``restarted_often`` as in `related`, and ``text``.
    """
    found = []
    for run in rows:
        without = run["without_tests"]
        if without is None:
            continue
        told = {
            "workload": run["workload"],
            "dispatcher": name_of(run, rows),
            "without": without["dispatcher"],
            "more": without["more"],
            "test_s": run["test_s"],
            SLOWDOWN: without[f"{SLOWDOWN}_with"],
            f"{SLOWDOWN}_without": without[SLOWDOWN],
            "killed_share": run["tests_killed"] / run["jobs"],
            "wasted_share": run["wasted_share"],
            "wasted_share_without": without["wasted_share"],
            "longer": without["longer"],
            "restarted_often": run["restarted_often"],
        }
        found.append(told | {"text": _tests_text(told, without["difference"])})
    return found


def _tests_text(told: Row, over: Difference | None) -> str:
    """What test runs bring and cost, in a few sentences for those who decide."""
    now, before = (f"{told[key]:,.1f}" for key in (SLOWDOWN, f"{SLOWDOWN}_without"))
    lower = told[SLOWDOWN] < told[f"{SLOWDOWN}_without"]
    moves = f"{'falls' if lower else 'rises'} from {before} to {now}"
    if over is not None and over.says == NOISE:
        moves += ", which is within noise"
    more = f" and {', '.join(told['more'])}" if told["more"] else ""
    said = [
        f"With test runs of {duration(told['test_s'])}{more} ({told['dispatcher']}) the mean "
        f"bounded slowdown {f'stays at {now}' if now == before else moves}."
    ]
    share, lost_before = told["killed_share"], told["wasted_share_without"]
    if share:
        jobs = f"1 job in {1 / share:,.0f} is" if share <= RARE else f"{share:.0%} of the jobs are"
        said.append(f"{jobs} stopped once, in the test run, and started again later.")
        lost = _share_text(told["wasted_share"])
        other = f", {_share_text(lost_before)} without test runs" if lost_before else ""
        said.append(f"{lost.capitalize()} of the work is lost{other}.")
    else:
        said.append("No job is stopped in its test run.")
    if told["longer"]:
        longer = ", ".join(f"{of['who']} ({_factor(of['times'])})" for of in told["longer"])
        said.append(f"These waits grow by more than {GROWTH - 1:.0%}: {longer}.")
    often = told["restarted_often"]
    if often is not None:
        said.append(
            f"User {often['user']} is stopped more often than others: {often['restarts']:,.0f} of "
            f"{often['jobs']:,.0f} jobs ({often['share']:.0%}; of all jobs "
            f"{often['share_of_all']:.0%})."
        )
    return " ".join(said)


def _share_text(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else "less than 0.1%"


def _factor(times: float | None) -> str:
    return "from 0" if times is None else as_times(times)


def failures(rows: Sequence[Row]) -> list[Row]:
    """What failures of nodes cost, for each run in which a node failed.

    Returns
    -------
    list of dict
        ``workload``, ``dispatcher``, ``node_failures``, ``requeues`` (attempts that were lost),
        ``failed`` (jobs that ended so), ``tests_killed`` (jobs that were stopped in their test
        runs), ``wasted_processor_s`` and ``wasted_share`` (of both), and ``text``.
    """
    figures = ("node_failures", "requeues", "failed", "wasted_processor_s", "wasted_share")
    found = []
    for run in rows:
        if run.get("node_failures"):
            told = {"workload": run["workload"], "dispatcher": name_of(run, rows)}
            told |= {name: run[name] for name in figures}
            told["tests_killed"] = run.get("tests_killed", 0)
            found.append(told | {"text": _failures_text(told)})
    return found


def _times_text(count: float) -> str:
    """How often something happens, in words; a mean over draws has a fraction."""
    many = round(count)
    if count and not many:
        return "less than once"
    return "once" if many == 1 else f"{many:,} times"


def _failures_text(told: Row) -> str:
    """What failures of nodes cost, in a few sentences for those who decide."""
    lost = told["requeues"] + told["failed"]
    ended = round(told["failed"])
    again = round(lost) - ended  # so that what is told adds up, also of means
    said = f"Nodes fail {_times_text(told['node_failures'])} under {told['dispatcher']}."
    if not lost:
        return f"{said} No job runs on one of them then."
    said += f" Jobs are stopped {_times_text(lost)}: queued again {_times_text(again)}, "
    said += f"ended as failed {_times_text(ended)}."
    hours, work = told["wasted_processor_s"] / 3600, _share_text(told["wasted_share"])
    tested = ", those of test runs among them" if told["tests_killed"] else ""
    return f"{said} {hours:,.0f} processor hours are lost, {work} of the work{tested}."


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The runs in which jobs started, that with the lowest mean bounded slowdown first.

    Where draws are missing, they are ranked by how they do in those that the first run has, too.
    """
    counted = [run for run in rows if SLOWDOWN in run]
    first = next((run for run in counted if run["first"] is None), None)
    return [] if first is None else sorted(counted, key=lambda run: times_first(run, first))


def times_first(run: Row, first: Row) -> float:
    """How many times as large as under the first run the mean bounded slowdown is."""
    apart: Difference | None = run["difference"]
    return float(run[SLOWDOWN] / first[SLOWDOWN] if apart is None else apart.ratio)


def verdict(rows: Sequence[Row]) -> str:
    """Who wins and who pays, in a sentence; empty when there is nothing to compare.

    The winner, with the lowest mean bounded slowdown, is measured against the first run, see
    `related`; the first run, if it wins, against the next, see `ranked`. A difference within noise
    is said to be that.
    """
    counted = ranked(rows)
    if len(counted) < 2 or len({setting(run) for run in rows}) > 1:
        return ""
    first = next(run for run in counted if run["first"] is None)
    best, following, *_ = counted
    other = following if best is first else first
    name, against = name_of(best, rows), name_of(other, rows)
    less = 1 - times_first(best, first) / times_first(other, first)
    if less < 0.0005:
        return f"{name} and {against} have the same mean bounded slowdown."
    wins = f"{name} has the lowest mean bounded slowdown"
    over: Difference | None = (other if best is first else best)["difference"]
    noise = ", which is within noise" if over is not None and over.says == NOISE else ""
    if best is first:
        more = times_first(other, first) - 1
        out = left_out(best, other, against)
        but = f". But under {name} {out}: its mean is of other jobs" * bool(out)
        return f"{wins}; {against}'s, the next, is {more:,.1%} higher{noise}{but}."
    pay = ", ".join(who for who, _ in _payers(best, first))
    but = f"{';' if noise else ', but'} others pay: {pay}" if pay else ""
    return f"{wins}, {less:.1%} below {against}'s{noise}{but}."
