"""Runs measured against the first one: who waits longer is said, not only who wins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from cpdispatch.analyze import draws
from cpdispatch.analyze.compare.rows import (
    JOBS_MIN,
    OF_USERS,
    SHARES,
    SLOWDOWN,
    Restarts,
    Row,
    as_times,
    beside,
    duration,
    name_of,
    peers_of,
)
from cpdispatch.analyze.draws import Waits

GROWTH = 1.1
"""A wait has grown when it is more than so many times the wait under the first run."""
GROWTH_S = 60
"""Growth by fewer seconds means nothing to those who wait."""
LOSERS = 10
"""One user in so many, of those who lose most."""
OFTEN = 2
"""A user is stopped often when so many times as large a share of the jobs is as of all jobs."""
_OF_RUNS = ("waits_of_users", "restarts_of_users", "weeks", "runs")
"""What a row has for the comparison alone."""


def related(rows: Sequence[Row]) -> list[Row]:
    """The rows with their waits measured against those under the first run that was named.

    The first run is that of the same jobs, system and rules that stands first in ``rows`` and
    started any job; of runs that differ from it by their draw or seed alone, the one of the same
    submissions and the same seed. Merged runs are measured in the draws that both have.

    Parameters
    ----------
    rows : sequence of dict
        Of `row`, with ``kind`` (of `kind_of`), ``seed``, ``draw``, ``submissions`` (their
        checksum), ``of_log`` (the same for runs whose jobs may be compared), ``classes`` and
        ``widths`` (of `cpdispatch.analyze.metrics.by_class` and ``by_width``), ``waits_of_users``
        (`Waits`), ``restarts_of_users`` (`Restarts`) and ``weeks`` (`Weeks`); or of
        `cpdispatch.analyze.draws.merged`.

    Returns
    -------
    list of dict
        Each row with ``first``, the name of the first run, None in its own row, and with
        ``users``, of `losers`, instead of ``waits_of_users``. Where there is a first run,
        ``difference``, of `cpdispatch.analyze.draws.slowdown_difference`,
        ``bounded_slowdown_mean_first``, that of the first run in the draws that both have, and
        ``paired``: how many draws it has of its ``own``, the ``first`` run has, and they have in
        ``common``. Beside
        ``wait_s_mean`` and ``wait_s_max``, also those of each class: the same with
        ``_first``, seconds under the first run, and with ``_times``, the quotient of the two, left
        out if that is by 0; with ``_times_low`` and ``_times_high``, its 95 % interval, if both
        have `PAIRS_MIN` draws or more. ``restarted_often`` is of `restarted_often`. For a run with
        test runs beside one without them, ``without_tests``, else None: that one's ``dispatcher``
        and ``bounded_slowdown_mean``, and with ``_with`` this one's in the same draws; ``more``,
        the parameters that the run has and that one has not, tests apart; its ``wasted_share``, 0
        where nothing was lost; the ``difference`` from it; and ``longer``: which waits have grown,
        each with ``who`` and ``times``, which is None where nobody waited.
    """
    found = []
    for run in rows:
        first, without = first_of(run, rows), _without_tests(run, rows)
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
    now, before = draws.in_common(run, first)
    apart = [(one["waits_of_users"], other["waits_of_users"]) for one, other in matched]
    users = losers(now["waits_of_users"], before["waits_of_users"], apart)
    own, of_first = (
        len({each["submissions"] for each in draws.runs_of(of)}) for of in (run, first)
    )
    found: Row = {
        "users": users,
        "paired": {"common": len(matched), "own": own, "first": of_first},
        "difference": draws.slowdown_difference(matched),
        f"{SLOWDOWN}_first": before.get(SLOWDOWN),
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
        found["figures"] = run["figures"] | {OF_USERS: spread}
    return found


def _beside_untested(run: Row, without: Row, rows: Sequence[Row]) -> Row:
    """What is said of a run with test runs beside the one without them, see `related`."""
    beside = run | _measured(run, without)
    now, before = draws.in_common(run, without)
    return {
        "dispatcher": name_of(without, rows),
        "more": _beyond(run, without),
        SLOWDOWN: before[SLOWDOWN],
        f"{SLOWDOWN}_with": now[SLOWDOWN],
        "wasted_share": before.get("wasted_share", 0.0),
        "difference": beside["difference"],
        "longer": [{"who": of.who, "times": of.times} for of in growths(beside, without)],
    }


def restarted_often(restarts: Restarts) -> Row | None:
    """The user who pays most by restarts, if there is one whose jobs are restarted often.

    That is the user with the most jobs that were restarted, of those with `JOBS_MIN` such jobs
    or more and of whose jobs `OFTEN` times as large a share was restarted as of all users' jobs,
    or more; of equal ones the first by name.

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
        left out if that is by 0, with an interval as in `related`: in each draw of the users that
        lose most in the others, because those of the same draw lose by chance, too; ``each``: of
        each of these, who loses most first, ``user``, ``jobs``, ``wait_s_mean``, ``wait_s_max`` and
        what `related` puts beside waits. None if n is 0.
    """
    counted, worst = _worst(waits, waits_first)
    if not counted:
        return None
    now, before = (_mean_wait(worst, of) for of in (waits, waits_first))
    each = []
    for k, (of, of_first) in enumerate(apart):
        others = [*apart[:k], *apart[k + 1 :]]
        _, those = _worst(
            draws.waits_of_users([one for one, _ in others]),
            draws.waits_of_users([other for _, other in others]),
        )
        each.append((_mean_wait(those, of), _mean_wait(those, of_first)))
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
                    _pairs_of_user(user, apart),
                ),
            }
            for user in worst
        ],
    }


def users_beside(run: Row, first: Row) -> list[Row]:
    """How long all users wait who have jobs that started under both, in the draws that both have.

    Parameters
    ----------
    run, first : dict
        As for `related`, which is not yet done.

    Returns
    -------
    list of dict
        As ``each`` of `losers`, but nothing stands beside ``wait_s_max``; those first that lose
        most by all of their jobs, ties by name. The first run beside itself has no intervals.
    """
    now, before = (of["waits_of_users"] for of in draws.in_common(run, first))
    matched = [] if run is first else draws.pairs(run, first)
    apart = [(one["waits_of_users"], other["waits_of_users"]) for one, other in matched]

    def gained_s(user: str) -> tuple[float, str]:
        return now[user][0] * (before[user][1] - now[user][1]), user

    found = []
    for user in sorted((user for user in now if user in before), key=gained_s):
        waits, waits_first = _of_user(now[user]), _of_user(before[user])
        relation = _beside("wait_s_mean", waits, waits_first, _pairs_of_user(user, apart))
        found.append({"user": user, **waits, **relation})
    return found


def _pairs_of_user(user: str, apart: Sequence[tuple[Waits, Waits]]) -> draws.Pairs:
    """The waits of a user in each draw in which jobs of the user start under both."""
    return [
        (_of_user(of[user]), _of_user(of_first[user]))
        for of, of_first in apart
        if user in of and user in of_first
    ]


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


def first_of(run: Row, rows: Sequence[Row]) -> Row | None:
    """The run that this one is measured against."""
    peers = [peer for peer in peers_of(run, rows) if peer["jobs"]]
    if not peers:
        return None
    alike = (peer for peer in peers if peer["kind"] == peers[0]["kind"])
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
        if over is not None and over.low is not None:
            relation |= {f"{key}_times_low": over.low, f"{key}_times_high": over.high}
    return relation


def _waits_beside(figures: Row, first: Row, matched: draws.Pairs) -> Row:
    found: Row = {}
    for key in ("wait_s_mean", "wait_s_max"):
        found |= _beside(key, figures, first, matched)
    return found


@dataclass(frozen=True, slots=True)
class Growth:
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
            surely = f"; {as_times(self.interval[0])} {_up_to(self.interval[1])}"
        instead = f"({duration(self.now_s)} instead of {duration(self.before_s)}{surely})"
        return f"{self.who}{self.limits} {self.verb} {much} under {first} {instead}"


def growths(run: Row, first: Row) -> Iterator[Growth]:
    """The waits that have grown beside those under another run that it was measured against."""

    def grown(who: str, verb: str, key: str, figures: Row, limits: str = "") -> Iterator[Growth]:
        now, before = beside(figures, key)
        if now is None or before is None:
            return
        ends = (f"{key}_times_low", f"{key}_times_high")
        interval = tuple(figures[end] for end in ends if end in figures)
        if _grown(now, before) and not (interval and interval[0] <= 1):
            yield Growth(who, verb, now, before, interval, limits)

    for kind in draws.OF_CLASSES:
        for name, of_class in run[kind].items():
            if min(of_class["jobs"], first[kind][name]["jobs"]) >= JOBS_MIN:
                limits = SHARES.get(name, "").replace(")", " of the system)")
                who = jobs_of(name)
                yield from grown(who, "wait", "wait_s_mean", of_class, f" {limits}" * bool(limits))
    if run["users"] is not None:
        many = run["users"]["losing"]
        if many == 1:
            yield from grown("the user that loses most", "waits", "wait_s_mean", run["users"])
        else:
            who = f"the {many} users that lose most"
            yield from grown(who, "wait", "wait_s_mean", run["users"])
    yield from grown("the longest wait", "is", "wait_s_max", run)


def jobs_of(of_class: str) -> str:
    """What the jobs of a class are called."""
    return "jobs of middle width" if of_class == "middle" else f"{of_class} jobs"


def _without_tests(run: Row, rows: Sequence[Row]) -> Row | None:
    """The run without test runs that it is to be measured against, None if there is none.

    The one that differs by them alone; else one that also lacks parameters of this run, as few as
    there are. Of several, that of the same submissions.
    """
    if not run.get("tests") or SLOWDOWN not in run:
        return None
    found = [
        peer for peer in peers_of(run, rows)
        if SLOWDOWN in peer and not peer["test_s"] and _beyond(run, peer) is not None
    ]  # fmt: skip

    def nearness(peer: Row) -> list[int]:
        same = ("submissions", "seed", "restart_cost_s")
        return [len(_plain(peer)[1]), *(peer[key] == run[key] for key in same)]

    return max(found, key=nearness, default=None)


def _beyond(run: Row, peer: Row) -> list[str] | None:
    """The parameters that a run has and a peer has not, tests apart; None for another kind."""
    (kind, parameters), (other, fewer) = _plain(run), _plain(peer)
    left = [one for one in parameters if one not in fewer]
    return left if kind == other and len(left) + len(fewer) == len(parameters) else None


def _plain(run: Row) -> tuple[tuple[object, ...], list[str]]:
    """What kind of run it is, and the dispatcher's parameters, test runs apart."""
    name, _, given = run["dispatcher"].partition(":")
    kept = [p for p in given.split(",") if p and p.partition("=")[0] not in ("test", "tests")]
    rules = [rule for name, rule in run["rules"].items() if name != "restartable"]
    return (name, run["predictor"], run["idempotent"], *rules), kept


def _grown(now: float, before: float) -> bool:
    """Whether a wait has grown by more than a tenth, and by more than means nothing."""
    return now > max(GROWTH * before, before + GROWTH_S)


def _up_to(times: float) -> str:
    """The end of an interval of quotients; some draws may have no wait to divide by."""
    return f"to {as_times(times)}" if isfinite(times) else "or more"


def _rounded(times: float) -> str:
    return f"{times:.1f}" if times < 10 else f"{times:,.0f}"
