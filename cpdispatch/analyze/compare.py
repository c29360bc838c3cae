"""Comparison of runs: as rows for programs, as a table for people.

Waits are measured against the first run that was named, see `related`: who waits longer is said,
not only who wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, isnan
from typing import Any

from rich.table import Table
from rich.text import Text

from cpdispatch.analyze import draws
from cpdispatch.analyze.difference import NOISE, PAIRS_MIN, SAME, TOO_FEW, Difference
from cpdispatch.analyze.draws import Waits

Row = dict[str, Any]
Restarts = Mapping[str, tuple[float, float]]
"""Of each user: jobs that started, and the share of them that were restarted before."""
Weeks = Mapping[int, tuple[float, float]]
"""Of each week of submission: jobs that started, and their mean bounded slowdown."""

GROWTH = 1.1
"""A wait has grown when it is more than so many times the wait under the first run."""
GROWTH_S = 60
"""Growth by fewer seconds means nothing to those who wait."""
JOBS_MIN = 10
"""The mean wait of fewer jobs says more of these jobs than of the dispatcher."""
LOSERS = 10
"""One user in so many, of those who lose most."""
OFTEN = 2
"""A user is stopped often when so many times as large a share of the jobs is as of all jobs."""
RARE = 0.2
"""Up to this share of the jobs it reads better to say that it is one job in so many."""
USERS_SHOWN = 10
"""So many users at most have lines of their own."""


LENGTHS = {"short": "(< 1 h)", "medium": "(1-5 h)", "long": "(> 5 h)"}
SHARES = {"narrow": "(<= 1/32)", "middle": "(<= 1/8)", "wide": "(> 1/8)"}
"""The limits of the classes of jobs, by their length and by their share of the system."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """One line: which figure, its heading, how it reads, and whether less or more is better.

    The key of a figure in a dictionary of the row has that one's keys before it, each with a dot.
    """

    key: str
    heading: str
    show: Callable[[float], str]
    better: int = 0


def duration(seconds: float) -> str:
    """Seconds as people read them: 42 s, 12 min, 3 h 20, 5 d 4 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d}"
    return f"{hours // 24} d {hours % 24} h"


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


_FIGURES = (
    _Figure("jobs", "jobs", lambda v: f"{v:,.0f}"),
    _Figure("wait_s_mean", "mean wait", duration, -1),
    *(
        _Figure(f"classes.{name}.wait_s_mean", f"  {name} jobs {limits}", duration, -1)
        for name, limits in LENGTHS.items()
    ),
    _Figure("users.wait_s_mean", "  users that lose most", duration),
    _Figure("wait_s_max", "longest wait", duration, -1),
    _Figure("bounded_slowdown_mean", "mean bounded slowdown", lambda v: f"{v:,.2f}", -1),
    _Figure("bounded_slowdown_p95", "  95th percentile", lambda v: f"{v:,.1f}", -1),
    _Figure("utilisation", "utilisation", lambda v: f"{v:.1%}", 1),
    _Figure("backfilled", "jobs backfilled", lambda v: f"{v:,.0f}"),
    _Figure("tests", "jobs tested", lambda v: f"{v:,.0f}"),
    _Figure("tests_ended", "  ended in their test", lambda v: f"{v:,.0f}"),
    _Figure("tests_went_on", "  went on right then", lambda v: f"{v:,.0f}"),
    _Figure("node_failures", "failures of nodes", lambda v: f"{v:,.0f}"),
    _Figure("requeues", "  jobs stopped and queued again", lambda v: f"{v:,.0f}"),
    _Figure("failed", "  jobs ended as failed", lambda v: f"{v:,.0f}"),
    _Figure("restarts", "jobs restarted", lambda v: f"{v:,.0f}"),
    _Figure("wasted_processor_s", "  processor hours lost", lambda v: f"{v / 3600:,.0f}"),
    _Figure("wasted_share", "  share of the work", lambda v: f"{v:.2%}"),
    _Figure("energy_kwh", "energy, kWh", lambda v: f"{v:,.0f}"),
    _Figure("energy_idle_kwh", "  of idle nodes", lambda v: f"{v:,.0f}"),
    _Figure("nodes_off_h", "  hours that nodes were off", lambda v: f"{v:,.0f}"),
    _Figure("energy_cost", "  cost", lambda v: f"{v:,.2f}"),
    _Figure("power_w_max", "highest power, kW", lambda v: f"{v / 1000:,.1f}"),
    _Figure("near_power_cap_s", "  within 5% of the cap", duration),
    _Figure("decisions", "decisions", lambda v: f"{v:,.0f}"),
    _Figure("decision_ms_mean", "ms a decision", _ms),
    _Figure("decision_ms_p99", "  99th percentile", _ms),
    _Figure("seconds", "seconds in all", lambda v: f"{v:,.1f}"),
)
_IF_ANY = (
    "tests", "tests_ended", "tests_went_on", "node_failures", "requeues", "failed", "restarts",
    "wasted_processor_s", "wasted_share", "energy_kwh", "energy_idle_kwh", "energy_cost",
    "nodes_off_h", "power_w_max", "near_power_cap_s",
)  # fmt: skip
"""Figures that are shown only when there are any."""
_OF_USERS = "users.wait_s_mean"
_SLOWDOWN = "bounded_slowdown_mean"
_OF_RUNS = ("waits_of_users", "restarts_of_users", "weeks", "runs")
"""What a row has for the comparison alone."""


def row(about: dict[str, Any], metrics: dict[str, float]) -> Row:
    """One run as a flat row of figures."""
    return {
        "dispatcher": about["dispatcher"],
        "predictor": about["predictor"],
        "workload": about["workload"],
        "system": about["system"]["name"],
        "dependencies": about.get("dependencies", False),
        "idempotent": about.get("idempotent", False),
        "restart_cost_s": about.get("restart_cost_s", 0),
        "test_s": about.get("test_s", 0),
        "events": _events(about.get("events")),
        "dropped": {k: n for k, n in about["notes"].items() if k.startswith("dropped")},
        "repaired": {k: n for k, n in about["notes"].items() if not k.startswith("dropped")},
        "decision_ms_p99": None,
        **metrics,
        "seconds": about["seconds"],
        **{key: about[key] for key in ("memory_mib_peak",) if key in about},
    }


# ------------------------------------------------------------------------ against the first run


def related(rows: Sequence[Row]) -> list[Row]:
    """The rows with their waits measured against those under the first run that was named.

    The first run is that of the same jobs, system and rules that stands first in ``rows`` and
    started any job; of runs that differ from it by their draw or seed alone, the one of the same
    submissions and the same seed. Merged runs are measured in the draws that both have.

    Parameters
    ----------
    rows : sequence of dict
        Of `row`, with ``seed``, ``draw``, ``submissions`` (their checksum), ``of_log`` (the same
        for runs whose jobs may be compared), ``classes`` and ``widths`` (of
        `cpdispatch.analyze.metrics.by_class` and ``by_width``), ``waits_of_users`` (`Waits`),
        ``restarts_of_users`` (`Restarts`) and ``weeks`` (`Weeks`); or of
        `cpdispatch.analyze.draws.merged`.

    Returns
    -------
    list of dict
        Each row with ``first``, the name of the first run, None in its own row, and with
        ``users``, of `losers`, instead of ``waits_of_users``. Where there is a first run,
        ``difference``, of `cpdispatch.analyze.draws.slowdown_difference`, and ``paired``: how many
        draws it has of its ``own``, the ``first`` run has, and they have in ``common``. Beside
        ``wait_s_mean`` and ``wait_s_max``, also those of each class: the same with
        ``_first``, seconds under the first run, and with ``_times``, the quotient of the two, left
        out if that is by 0; with ``_times_low`` and ``_times_high``, its 95 % interval, if both
        have `PAIRS_MIN` draws or more. ``restarted_often`` is of `restarted_often`. For a run with
        test runs beside one without them, ``without_tests``, else None: that one's ``dispatcher``
        and ``bounded_slowdown_mean``; the ``difference`` from it; and ``longer``: which waits have
        grown, each with ``who`` and ``times``, which is None where nobody waited.
    """
    found = []
    for run in rows:
        first, without = _first(run, rows), _without_tests(run, rows)
        new = {key: value for key, value in run.items() if key not in _OF_RUNS}
        new |= {"first": None, "users": None, "difference": None}
        new["restarted_often"] = restarted_often(run["restarts_of_users"])
        new["without_tests"] = None if without is None else _beside_untested(run, without, rows)
        if first is not None and first is not run:
            new["first"] = name_of(first, rows)
            new |= _measured(run, first)
        found.append(new)
    return found


def _measured(run: Row, first: Row) -> Row:
    """What is said of a run beside the first one."""
    matched = draws.pairs(run, first)
    now, before = draws.of_pairs(matched) if matched else (run, first)
    apart = [(one["waits_of_users"], other["waits_of_users"]) for one, other in matched]
    users = losers(now["waits_of_users"], before["waits_of_users"], apart)
    own, of_first = (
        len({each["submissions"] for each in draws.runs_of(of)}) for of in (run, first)
    )
    found: Row = {
        "users": users,
        "paired": {"common": len(matched), "own": own, "first": of_first},
        "difference": draws.slowdown_difference(matched),
    }
    found |= _waits_beside(now, before, matched)
    for kind in draws.OF_CLASSES:
        found[kind] = {}
        for name, of_class in run[kind].items():
            of = [(one[kind][name], other[kind][name]) for one, other in matched]
            beside = _waits_beside(now[kind][name], before[kind][name], of)
            found[kind][name] = {**of_class, **beside}
    if "figures" in run and users is not None:
        _, worst = _worst(now["waits_of_users"], before["waits_of_users"])
        each = [_mean_wait(worst, one["waits_of_users"]) for one in draws.runs_of(run)]
        spread = draws.spread([of["wait_s_mean"] for of in each if of])
        found["figures"] = run["figures"] | {_OF_USERS: spread}
    return found


def _beside_untested(run: Row, without: Row, rows: Sequence[Row]) -> Row:
    """What is said of a run with test runs beside the one without them, see `related`."""
    beside = run | _measured(run, without)
    return {
        "dispatcher": name_of(without, rows),
        _SLOWDOWN: without[_SLOWDOWN],
        "difference": beside["difference"],
        "longer": [{"who": of.who, "times": of.times} for of in _growths(beside, without)],
    }


def restarted_often(restarts: Restarts) -> Row | None:
    """The user who pays most by restarts, if there is one whose jobs are restarted often.

    That is the user with the most jobs that were restarted, of those with `JOBS_MIN` such jobs
    or more and of whose jobs `OFTEN` times as large a share was restarted as of all users' jobs,
    or more; of equal ones the first by name.

    Parameters
    ----------
    restarts : Restarts

    Returns
    -------
    dict or None
        ``user``, ``jobs``, ``restarts`` (how many of them), ``share``, and ``share_of_all``.
    """
    of_all = sum(jobs for jobs, _ in restarts.values())
    share_of_all = sum(jobs * share for jobs, share in restarts.values()) / max(of_all, 1)
    often = [
        (-jobs * share, user)
        for user, (jobs, share) in restarts.items()
        if jobs * share >= JOBS_MIN and share >= OFTEN * share_of_all
    ]
    if not often:
        return None
    less, user = min(often)
    jobs, share = restarts[user]
    found = {"user": user, "jobs": jobs, "restarts": -less, "share": share}
    return found | {"share_of_all": share_of_all}


def losers(
    waits: Waits, waits_first: Waits, apart: Sequence[tuple[Waits, Waits]] = ()
) -> Row | None:
    """How long those users wait who lose most by a dispatcher that is not the first one.

    With v(u) and w(u) the mean waits of the jobs of user u under the first dispatcher and under
    this one: of the n users with `JOBS_MIN` jobs or more that start under both, the n / `LOSERS`,
    rounded up, with the largest w(u) - v(u) lose most; ties by name. Each of them counts once.

    Parameters
    ----------
    waits, waits_first : Waits
        Over all draws.
    apart : sequence of (Waits, Waits)
        The same in each draw.

    Returns
    -------
    dict or None
        ``counted``: n; ``losing``: how many lose most; ``wait_s_mean`` and ``wait_s_mean_first``:
        the means of w(u) and of v(u) over these, seconds; ``wait_s_mean_times``: their quotient,
        left out if that is by 0, with its interval as in `related`; ``each``: of each of these,
        who loses most first, ``user``, ``jobs``, ``wait_s_mean``, ``wait_s_max`` and what `related`
        puts beside waits. None if n is 0.
    """
    counted, worst = _worst(waits, waits_first)
    if not counted:
        return None
    now, before = (_mean_wait(worst, of) for of in (waits, waits_first))
    each = [(_mean_wait(worst, of), _mean_wait(worst, of_first)) for of, of_first in apart]
    return {
        "counted": counted,
        "losing": len(worst),
        **now,
        **_beside("wait_s_mean", now, before, each),
        "each": [
            {
                "user": user,
                **_of_user(waits[user]),
                **_waits_beside(
                    _of_user(waits[user]),
                    _of_user(waits_first[user]),
                    [
                        (_of_user(of[user]), _of_user(of_first[user]))
                        for of, of_first in apart
                        if user in of and user in of_first
                    ],
                ),
            }
            for user in worst
        ],
    }


def _worst(waits: Waits, waits_first: Waits) -> tuple[int, list[str]]:
    """How many users count, see `losers`, and which of them lose most."""
    counted = sorted(
        (waits_first[user][1] - wait_s, user)
        for user, (jobs, wait_s, _) in waits.items()
        if user in waits_first and min(jobs, waits_first[user][0]) >= JOBS_MIN
    )
    return len(counted), [user for _, user in counted[: -(-len(counted) // LOSERS)]]


def _of_user(waits: tuple[float, float, float]) -> Row:
    return dict(zip(("jobs", "wait_s_mean", "wait_s_max"), waits, strict=True))


def _mean_wait(users: Sequence[str], waits: Waits) -> Row:
    """The mean of the users' mean waits, of those who have one."""
    waited = [waits[user][1] for user in users if user in waits]
    return {"wait_s_mean": sum(waited) / len(waited)} if waited else {}


def _first(run: Row, rows: Sequence[Row]) -> Row | None:
    """The run that this one is measured against."""
    peers = [peer for peer in _peers(run, rows) if peer["jobs"]]
    if not peers:
        return None
    alike = (peer for peer in peers if _kind(peer) == _kind(peers[0]))
    same = ("submissions", "seed")
    return max(alike, key=lambda peer: [peer[key] == run[key] for key in same])


def _beside(key: str, figures: Row, first: Row, matched: draws.Pairs = ()) -> Row:
    """A figure of the first run, and how many times as large this run's is."""
    if key not in figures or key not in first:
        return {}
    relation = {f"{key}_first": first[key]}
    if first[key]:
        relation[f"{key}_times"] = figures[key] / first[key]
        over = draws.figure_difference(key, matched)
        if over is not None:
            relation |= {f"{key}_times_low": over.low, f"{key}_times_high": over.high}
    return relation


def _waits_beside(figures: Row, first: Row, matched: draws.Pairs) -> Row:
    found: Row = {}
    for key in ("wait_s_mean", "wait_s_max"):
        found |= _beside(key, figures, first, matched)
    return found


def means(rows: Sequence[Row]) -> list[Row]:
    """Mean, spread, min and max of each figure of the rows that were merged, for programs."""
    about = ("workload", "system", "dispatcher", "predictor", "idempotent", "draws", "seeds")
    return [
        {key: run[key] for key in (*about, "figures") if key in run}
        for run in rows
        if "figures" in run
    ]


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
            "figure": _SLOWDOWN,
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


def advice(rows: Sequence[Row]) -> list[str]:
    """What it takes to tell differences from noise where these runs are too few, a line each."""
    few = {
        over.counted: None
        for run in rows
        if (over := run["difference"]) is not None and over.says == TOO_FEW
    }
    return [
        f"{counted} cannot tell a difference from noise: that takes {PAIRS_MIN} weeks, or draws "
        "(simulate --shake 10)."
        for counted in few
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
        first = _first(run, rows)
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


@dataclass(frozen=True, slots=True)
class _Growth:
    """A wait that has grown: whose, in seconds now and before, with the interval of the quotient.

    ``interval`` is empty where there are too few draws; ``limits`` are those of a class of jobs.
    """

    who: str
    verb: str
    now_s: float
    before_s: float
    interval: tuple[float, ...]
    limits: str = ""

    @property
    def times(self) -> float | None:
        """How many times as long it is; None if it was 0."""
        return self.now_s / self.before_s if self.before_s else None

    def text(self, first: str) -> str:
        """The same as a sentence without its full stop."""
        much = "longer than" if self.times is None else f"{_rounded(self.times)} times as long as"
        surely = ""
        if self.interval:
            surely = f"; {_times(self.interval[0])} {_up_to(self.interval[1])}"
        instead = f"({duration(self.now_s)} instead of {duration(self.before_s)}{surely})"
        return f"{self.who}{self.limits} {self.verb} {much} under {first} {instead}"


def _growths(run: Row, first: Row) -> Iterator[_Growth]:
    """The waits that have grown beside those under another run that it was measured against."""

    def grown(who: str, verb: str, key: str, figures: Row, limits: str = "") -> Iterator[_Growth]:
        before, times = figures.get(f"{key}_first"), figures.get(f"{key}_times")
        if before is None:
            return
        now = figures[key] if times is None else times * before
        ends = (f"{key}_times_low", f"{key}_times_high")
        interval = tuple(figures[end] for end in ends if end in figures)
        if _grown(now, before) and not (interval and interval[0] <= 1):
            yield _Growth(who, verb, now, before, interval, limits)

    for kind in draws.OF_CLASSES:
        for name, of_class in run[kind].items():
            if min(of_class["jobs"], first[kind][name]["jobs"]) >= JOBS_MIN:
                limits = SHARES.get(name, "").replace(")", " of the system)")
                who = _jobs_of(name)
                yield from grown(who, "wait", "wait_s_mean", of_class, f" {limits}" * bool(limits))
    if run["users"] is not None:
        many = run["users"]["losing"]
        if many == 1:
            yield from grown("the user that loses most", "waits", "wait_s_mean", run["users"])
        else:
            who = f"the {many} users that lose most"
            yield from grown(who, "wait", "wait_s_mean", run["users"])
    yield from grown("the longest wait", "is", "wait_s_max", run)


def _jobs_of(of_class: str) -> str:
    return "jobs of middle width" if of_class == "middle" else f"{of_class} jobs"


def _payers(run: Row, first: Row) -> list[tuple[str, str]]:
    """Who pays for what is better under a run than under the first one, each with a sentence."""
    found = [(growth.who, growth.text(run["first"])) for growth in _growths(run, first)]
    never, before = (peer.get("jobs_never_started", 0) for peer in (run, first))
    if never > before:
        more = f"{never:,.0f} jobs never start, {before:,.0f} under {run['first']}"
        found.append(("jobs that never start", more))
    return found


def test_runs(rows: Sequence[Row]) -> list[Row]:
    """What test runs bring and cost, for each run that has one without them; see `related`.

    The two differ by the parameters ``test`` and ``tests`` of the dispatcher alone.

    Returns
    -------
    list of dict
        ``workload``, ``dispatcher``, ``without`` (the other one's name), ``test_s`` (the length of
        a test), ``bounded_slowdown_mean`` and the same with ``_without``, ``killed_share`` (of the
        jobs, in their tests), ``wasted_share`` (of the work), ``longer`` and ``restarted_often`` as
        in `related`, and ``text``.
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
            "test_s": run["test_s"],
            _SLOWDOWN: run[_SLOWDOWN],
            f"{_SLOWDOWN}_without": without[_SLOWDOWN],
            "killed_share": run["tests_killed"] / run["jobs"],
            "wasted_share": run["wasted_share"],
            "longer": without["longer"],
            "restarted_often": run["restarted_often"],
        }
        found.append(told | {"text": _tests_text(told, without["difference"])})
    return found


def _tests_text(told: Row, over: Difference | None) -> str:
    """What test runs bring and cost, in a few sentences for those who decide."""
    now, before = (f"{told[key]:,.1f}" for key in (_SLOWDOWN, f"{_SLOWDOWN}_without"))
    lower = told[_SLOWDOWN] < told[f"{_SLOWDOWN}_without"]
    moves = f"{'falls' if lower else 'rises'} from {before} to {now}"
    if over is not None and over.says == NOISE:
        moves += ", which is within noise"
    said = [
        f"With test runs of {duration(told['test_s'])} ({told['dispatcher']}) the mean bounded "
        f"slowdown {f'stays at {now}' if now == before else moves}."
    ]
    share, lost = told["killed_share"], told["wasted_share"]
    if share:
        jobs = f"1 job in {1 / share:,.0f} is" if share <= RARE else f"{share:.0%} of the jobs are"
        said.append(f"{jobs} stopped once, in the test run, and started again later.")
        said.append(f"{f'{lost:.1%}' if lost >= 0.0005 else 'Less than 0.1%'} of the work is lost.")
    else:
        said.append("No job is stopped in its test run.")
    classes = {_jobs_of(name) for name in LENGTHS}
    of_classes = any(of["who"] in classes for of in told["longer"])
    if not of_classes:
        said.append(f"No class of jobs by length waits more than {GROWTH - 1:.0%} longer.")
    if told["longer"]:
        longer = ", ".join(f"{of['who']} ({_factor(of['times'])})" for of in told["longer"])
        more = f"by more than {GROWTH - 1:.0%}" if of_classes else "by more"
        said.append(f"These waits grow {more}: {longer}.")
    often = told["restarted_often"]
    if often is not None:
        said.append(
            f"User {often['user']} is stopped more often than others: {often['restarts']:,.0f} of "
            f"{often['jobs']:,.0f} jobs ({often['share']:.0%}; of all jobs "
            f"{often['share_of_all']:.0%})."
        )
    return " ".join(said)


def failures(rows: Sequence[Row]) -> list[Row]:
    """What failures of nodes cost, for each run in which a node failed.

    Returns
    -------
    list of dict
        ``workload``, ``dispatcher``, ``node_failures``, ``requeues`` (attempts that were lost),
        ``failed`` (jobs that ended so), ``wasted_processor_s``, ``wasted_share`` and ``text``.
    """
    figures = ("node_failures", "requeues", "failed", "wasted_processor_s", "wasted_share")
    found = []
    for run in rows:
        if run.get("node_failures"):
            told = {"workload": run["workload"], "dispatcher": name_of(run, rows)}
            told |= {name: run[name] for name in figures}
            found.append(told | {"text": _failures_text(told)})
    return found


def _times_text(count: float) -> str:
    """How often something happens, in words; a mean over draws has a fraction."""
    return "once" if count == 1 else f"{count:,.0f} times"


def _failures_text(told: Row) -> str:
    """What failures of nodes cost, in a few sentences for those who decide."""
    fails, again, ended = told["node_failures"], told["requeues"], told["failed"]
    said = f"Nodes fail {_times_text(fails)} under {told['dispatcher']}."
    if not again and not ended:
        return f"{said} No job runs on one of them then."
    said += f" Jobs are stopped {_times_text(again + ended)}: queued again {_times_text(again)}, "
    said += f"ended as failed {_times_text(ended)}."
    hours, share = told["wasted_processor_s"] / 3600, told["wasted_share"]
    work = f"{share:.1%}" if share >= 0.0005 else "less than 0.1%"
    return f"{said} {hours:,.0f} processor hours are lost, {work} of the work."


def _factor(times: float | None) -> str:
    return "from 0" if times is None else _times(times)


def _without_tests(run: Row, rows: Sequence[Row]) -> Row | None:
    """The run that differs by its test runs alone; of several, that of the same submissions."""
    if not run.get("tests") or _SLOWDOWN not in run:
        return None
    alike = [
        peer for peer in _peers(run, rows)
        if _SLOWDOWN in peer and not peer["test_s"] and _plain(peer) == _plain(run)
    ]  # fmt: skip
    same = ("submissions", "seed", "restart_cost_s")
    return max(alike, key=lambda peer: [peer[key] == run[key] for key in same], default=None)


def _plain(run: Row) -> tuple[object, ...]:
    """What kind of run it is, test runs apart."""
    dispatcher, *rest = _kind(run)
    name, _, given = dispatcher.partition(":")
    kept = [p for p in given.split(",") if p and p.partition("=")[0] not in ("test", "tests")]
    return name, kept, *rest


def _grown(now: float, before: float) -> bool:
    """Whether a wait has grown by more than a tenth, and by more than means nothing."""
    return now > max(GROWTH * before, before + GROWTH_S)


def _up_to(times: float) -> str:
    """The end of an interval of quotients; some draws may have no wait to divide by."""
    return f"to {_times(times)}" if isfinite(times) else "or more"


def _rounded(times: float) -> str:
    return f"{times:.1f}" if times < 10 else f"{times:,.0f}"


def verdict(rows: Sequence[Row]) -> str:
    """Who wins and who pays, in a sentence; empty when there is nothing to compare.

    The winner, with the lowest mean bounded slowdown, is measured against the first run, see
    `related`; the first run, if it wins, against the next. A difference within noise is said to
    be that.
    """
    key = _SLOWDOWN
    ranked = sorted((run for run in rows if key in run), key=lambda run: run[key])
    if len(ranked) < 2 or len({setting(run) for run in rows}) > 1:
        return ""
    best, first = ranked[0], next(run for run in rows if run["first"] is None and key in run)
    other = ranked[1] if best is first else first
    name, against = name_of(best, rows), name_of(other, rows)
    less = 1 - best[key] / other[key]
    if less < 0.0005:
        return f"{name} and {against} have the same mean bounded slowdown."
    wins = f"{name} has the lowest mean bounded slowdown"
    over: Difference | None = (other if best is first else best)["difference"]
    noise = ", which is within noise" if over is not None and over.says == NOISE else ""
    if best is first:
        return f"{wins}; {against}'s, the next, is {other[key] / best[key] - 1:,.1%} higher{noise}."
    pay = ", ".join(who for who, _ in _payers(best, first))
    but = f"{';' if noise else ', but'} others pay: {pay}" if pay else ""
    return f"{wins}, {less:.1%} below {against}'s{noise}{but}."


# -------------------------------------------------------------------------------------- tables


def tables(rows: Sequence[Row], width: int) -> list[Table]:
    """The runs side by side, one a column; as wide as allowed.

    Waits have beside them how many times as long they are as under the first run, see `related`,
    in brackets where that is within noise. The best figure of single runs is in bold. Means have
    their standard deviation over the draws or seeds beside them.
    """
    figures = [f for f in _FIGURES if _is_shown(f.key, rows)]
    columns = [_column(run, figures, rows) for run in rows]
    corner = _corner(rows)
    names = max(map(len, [*(figure.heading for figure in figures), *corner.split("\n")]))
    groups: list[list[_Column]] = []
    left = 0
    for column in columns:
        if not groups or left < column.width:
            groups.append([])
            left = width - names
        groups[-1].append(column)
        left -= column.width
    return [_table(corner, figures, group) for group in groups]


def waits_tables(rows: Sequence[Row]) -> list[Table]:
    """How long who waits under each run, and how long under the first one, a table each.

    Its lines: all jobs, the classes by length and by width, and the users that lose most, at most
    `USERS_SHOWN`.
    """
    return [_waits_table(run, rows) for run in rows if run["first"] is not None]


def _waits_table(run: Row, rows: Sequence[Row]) -> Table:
    each = run["users"]["each"][:USERS_SHOWN] if run["users"] else []
    of = [
        ("all jobs", run),
        *((f"{name} {limits}", run["classes"][name]) for name, limits in LENGTHS.items()),
        *((f"{name} {limits}", run["widths"][name]) for name, limits in SHARES.items()),
        *((f"user {figures['user']}", figures) for figures in each),
    ]
    shown = Table(
        title=f"Waits under {name_of(run, rows)} instead of {run['first']}", title_justify="left",
        title_style="bold", box=None, pad_edge=False, padding=(0, 0, 0, 2), header_style="bold",
    )  # fmt: skip
    shown.add_column("")
    heads = ("jobs", "mean\nwait", "instead\nof", "", "longest\nwait", "instead\nof", "")
    for head in heads:
        shown.add_column(head, justify="right" if head else "left", vertical="bottom", no_wrap=True)
    for heading, figures in of:
        cells = [
            cell
            for key in ("wait_s_mean", "wait_s_max")
            for cell in (
                _duration(_value(figures, key)),
                _duration(_value(figures, f"{key}_first")),
                _quotient(figures, key),
            )
        ]
        shown.add_row(Text(heading, style="dim"), f"{figures['jobs']:,.0f}", *cells)
    return shown


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def legend(rows: Sequence[Row]) -> list[str]:
    """What the tables' figures beside the waits are, a line each."""
    firsts = {run["first"] for run in rows} - {None}
    if not firsts:
        return []
    first = firsts.pop() if len(firsts) == 1 else "the first run of the same log, system and rules"
    lines = [f"x2.00: twice as long as under {first}."]
    if any("wait_s_mean_times_low" in run for run in rows):
        lines.append("(x2.00): within noise: the 95 % interval over the draws includes x1.")
    for run in rows:
        paired = run.get("paired")
        if paired is not None and 0 < paired["common"] < max(paired["own"], paired["first"]):
            lines.append(
                f"{name_of(run, rows)} has {paired['own']} draws, "
                f"{run['first']} {paired['first']}: they are compared in the {paired['common']} "
                "that both have."
            )
    if any(run["users"] for run in rows):
        lines.append(
            f"Users that lose most: of those with {JOBS_MIN} jobs or more, the tenth whose mean "
            "wait grows most."
        )
    return lines


@dataclass(frozen=True, slots=True)
class _Column:
    """A run in a table: its heading, its figures, and its waits as multiples."""

    head: str
    cells: list[Text]
    times: list[str]

    @property
    def width(self) -> int:
        """Characters, with the space before each part."""
        lines = [*self.head.split("\n"), *map(str, self.cells)]
        times = max(map(len, self.times))
        return max(map(len, lines)) + 2 + (times + 2 if times else 0)


def _is_shown(key: str, rows: Sequence[Row]) -> bool:
    if key == _OF_USERS:
        return any(run["first"] is not None for run in rows)
    return key not in _IF_ANY or any(run.get(key) for run in rows)


def _column(run: Row, figures: Sequence[_Figure], rows: Sequence[Row]) -> _Column:
    return _Column(
        "\n".join([_heading(run, rows), *_count(run, rows)]),
        [_cell(figure, run, rows) for figure in figures],
        [_quotient(run, figure.key) for figure in figures],
    )


def _quotient(run: Row, key: str) -> str:
    """How many times as large a figure is as under the first run; in brackets if within noise."""
    many, low, high = (_value(run, f"{key}_times{end}") for end in ("", "_low", "_high"))
    if many is None:
        return ""
    noise = low is not None and high is not None and low <= 1 <= high
    return f"({_times(many)})" if noise else _times(many)


def _times(many: float) -> str:
    return f"x{many:.2f}" if many < 10 else f"x{many:,.0f}"


def _runs(run: Row) -> int:
    """Of how many runs a row is the mean."""
    return int(run.get("draws") or run.get("seeds") or 1)


def _corner(rows: Sequence[Row]) -> str:
    """What stands above the names of the figures: of what they are the mean."""
    kinds = {kind for run in rows for kind in ("draws", "seeds") if kind in run}
    if not kinds:
        return ""
    counts = {_runs(run) for run in rows}
    many = f"{counts.pop()} " if len(counts) == 1 else ""
    return f"mean ± st. deviation\nof {many}{' or '.join(sorted(kinds))}"


def _count(run: Row, rows: Sequence[Row]) -> list[str]:
    """Of how many runs a column is the mean, where that differs."""
    if len({_runs(peer) for peer in rows}) == 1:
        return []
    kind = "draws" if "draws" in run else "seeds"
    return [f"{_runs(run)} {kind}" if _runs(run) > 1 else "one run"]


def _table(corner: str, figures: Sequence[_Figure], columns: Sequence[_Column]) -> Table:
    shown = Table(box=None, pad_edge=False, padding=(0, 0, 0, 2), header_style="bold")
    shown.add_column(Text(corner, style="dim"), vertical="bottom", no_wrap=True)
    lines: list[list[str | Text]] = [[Text(figure.heading, style="dim")] for figure in figures]
    for column in columns:
        shown.add_column(column.head, justify="right", vertical="bottom", no_wrap=True)
        for line, cell in zip(lines, column.cells, strict=True):
            line.append(cell)
        if any(column.times):
            shown.add_column(no_wrap=True)
            for line, times in zip(lines, column.times, strict=True):
                line.append(times)
    for line in lines:
        shown.add_row(*line)
    return shown


def _heading(run: Row, rows: Sequence[Row]) -> str:
    """The dispatcher, with whatever else tells this run from the others."""
    lines = [run["dispatcher"]]
    if len({peer["predictor"] for peer in rows}) > 1:
        lines.append(run["predictor"])
    if run.get("idempotent") and not all(peer.get("idempotent") for peer in rows):
        lines.append("idempotent")
    if len({peer.get("restart_cost_s", 0) for peer in rows}) > 1:
        lines.append(f"restart {duration(run.get('restart_cost_s', 0))}")
    if len({setting(peer) for peer in rows}) > 1:
        lines += filter(None, setting(run))
    return "\n".join(lines)


def name_of(run: Row, rows: Sequence[Row]) -> str:
    """The dispatcher in a sentence, with the rest of the heading if others have the same one."""
    name = run["dispatcher"]
    headings = {_heading(peer, rows) for peer in rows if peer["dispatcher"] == name}
    _, *more = _heading(run, rows).split("\n")
    return f"{name} ({', '.join(more)})" if more and len(headings) > 1 else str(name)


def setting(run: Row) -> tuple[str, str, str, str]:
    """What must have the same name for two runs to be compared."""
    dependencies = "dependencies" * run.get("dependencies", False)
    return run["workload"], run["system"], dependencies, run.get("events", "")


def _events(told: dict[str, Any] | None) -> str:
    """What happened to the system, as far as runs must have it in common; empty for nothing."""
    if told is None:
        return ""
    return " ".join([told["sha256"], told["requeue"], str(told.get("checkpoints", ""))])


def _peers(run: Row, rows: Sequence[Row]) -> list[Row]:
    """The runs of the same jobs under the same rules: those that may be compared with this one."""
    return [
        peer
        for peer in rows
        if setting(peer) == setting(run) and peer.get("of_log") == run.get("of_log")
    ]


def _kind(run: Row) -> tuple[str, str, bool]:
    """What is the same for two runs that differ by their seed."""
    return run["dispatcher"], run["predictor"], run["idempotent"]


def _value(run: Row, key: str) -> float | None:
    """A figure of a row; None where there is none, as the mean wait of no jobs."""
    figures, (*within, last) = run, key.split(".")
    for part in within:
        figures = figures[part] or {}
    value: float | None = figures.get(last)
    return None if value is None or isnan(value) else value


def _cell(figure: _Figure, run: Row, rows: Sequence[Row]) -> Text:
    if figure.key == _OF_USERS and run["first"] is None:
        return Text()
    value = _value(run, figure.key)
    if value is None:
        return Text("-", style="dim")
    text = figure.show(value)
    peers = _peers(run, rows)
    deviation = run["figures"].get(figure.key, {}).get("spread", 0) if "figures" in run else 0
    around = f" ± {figure.show(deviation)}" if deviation else ""
    if not figure.better or len(peers) < 2:
        return Text(text + around)
    values = [v for peer in peers if (v := _value(peer, figure.key)) is not None]
    best = max(values) if figure.better > 0 else min(values)
    # The least of several means may be the least by chance.
    style = "bold green" if text == figure.show(best) and "figures" not in run else ""
    return Text.assemble((text, style), around)


def notes(rows: Sequence[Row]) -> list[str]:
    """What was dropped, repaired or never started, a line each."""
    lines: dict[str, None] = {}
    for run in rows:
        for rule, jobs in {**run["dropped"], **run["repaired"]}.items():
            lines[f"{run['workload']}: {rule}: {jobs:,}"] = None
    for run in rows:
        never = run.get("jobs_never_started", 0)
        if never:
            who = f"{run['workload']}, {run['dispatcher']}"
            why = "they ask for more than the system has, or the dispatcher left them out"
            lines[f"{who}: {never:,} jobs never started: {why}"] = None
    return list(lines)
