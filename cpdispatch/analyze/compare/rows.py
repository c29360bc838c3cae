"""Runs as rows of figures, and how they are called beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isnan
from typing import Any

import msgspec

Row = dict[str, Any]
Restarts = Mapping[str, tuple[float, float]]
"""Of each user: jobs that started, and the share of them that were restarted before."""
Weeks = Mapping[int, tuple[float, float]]
"""Of each week of submission: jobs that started, and their mean bounded slowdown."""
JOBS_MIN = 10
"""The mean wait of fewer jobs says more of these jobs than of the dispatcher."""
LENGTHS = {"short": "(< 1 h)", "medium": "(1-5 h)", "long": "(> 5 h)"}
SHARES = {"narrow": "(<= 1/32)", "middle": "(<= 1/8)", "wide": "(> 1/8)"}
"""The limits of the classes of jobs, by their length and by their share of the system."""
OF_USERS = "users.wait_s_mean"
SLOWDOWN = "bounded_slowdown_mean"
_OF_ONE_RUN = (
    "seed", "draw", "seconds", "workload_sha256", "notes", "python", "metrics", "classes",
    "widths", "predictor_seconds", "predictor_report", "place", "memory_mib_peak", "began_s",
    "restartable",
)  # fmt: skip
"""What a run tells of itself that differs by draw and seed: the jobs do, so how many may restart.
"""
_FILE = "dispatcher_file"
"""What the file of a dispatcher said, where it was given as one."""


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


def counted(jobs: float) -> str:
    """How a number of jobs reads, or a mean of such numbers over draws: 36, 0.4."""
    return "less than 0.1" if 0 < jobs < 0.05 else f"{jobs:,.1f}".removesuffix(".0")


def as_times(many: float) -> str:
    """How a quotient reads."""
    return f"x{many:.2f}" if many < 10 else f"x{many:,.0f}"


def value(run: Row, key: str) -> float | None:
    """A figure of a row; None where there is none, as the mean wait of no jobs."""
    figures, (*within, last) = run, key.split(".")
    for part in within:
        figures = figures[part] or {}
    found: float | None = figures.get(last)
    return None if found is None or isnan(found) else found


def beside(figures: Row, key: str) -> tuple[float | None, float | None]:
    """A figure in what the run has in common with the first one, and that of the first one."""
    now, before, times = (value(figures, f"{key}{end}") for end in ("", "_first", "_times"))
    return (now if before is None or times is None else times * before), before


def times_of(figures: Row, key: str) -> list[float | None]:
    """How many times as large as under the first run a figure is, and the interval's ends."""
    return [value(figures, f"{key}_times{end}") for end in ("", "_low", "_high")]


NOISE_TOLD = "(x2.00): within noise: the 95 % interval over the draws includes x1."
"""What brackets around a quotient mean."""


def within_noise(low: float | None, high: float | None) -> bool:
    """Whether a quotient has an interval over draws that includes 1, and other values."""
    return low is not None and high is not None and low <= 1 <= high and low < high


def quotient(many: float | None, low: float | None = None, high: float | None = None) -> str:
    """How a quotient reads in a table: in brackets if within noise, empty if there is none."""
    if many is None:
        return ""
    return f"({as_times(many)})" if within_noise(low, high) else as_times(many)


def colour(many: float | None, low: float | None = None, high: float | None = None) -> str:
    """What a page's quotient of a figure of which less is better is: better, worse, or neither."""
    if many is None or within_noise(low, high) or as_times(many) == as_times(1):
        return ""
    return "worse" if many > 1 else "better"


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
        "rules": rules_of(about, metrics),
        "dropped": {k: n for k, n in about["notes"].items() if k.startswith("dropped")},
        "repaired": {k: n for k, n in about["notes"].items() if not k.startswith("dropped")},
        "decision_ms_p99": None,
        **metrics,
        "seconds": about["seconds"],
        **{key: about[key] for key in ("memory_mib_peak", _FILE) if key in about},
    }


def _events(told: dict[str, Any] | None) -> str:
    """What happened to the system, as far as runs must have it in common; empty for nothing."""
    if told is None:
        return ""
    return " ".join([told["sha256"], told["requeue"], str(told.get("checkpoints", ""))])


def rules_of(about: Mapping[str, Any], metrics: Mapping[str, float]) -> dict[str, str]:
    """The rules of a run in words, where others may have other ones."""
    keys = ("power_cap", "switch_off_s", "starvation", "limit_s")
    cap, idle_s, bound, limit_s = map(about.get, keys)
    return {
        **_rules_of_events(about.get("events")),
        "kill_at_limit": "killed at limit" if about.get("kill_at_limit") else "not killed at limit",
        "correction": f"correction {about.get('correction', 'minimal')}",
        "trigger": f"trigger {about.get('trigger', 'instant')}",
        "power_cap": _power_cap(cap),
        "switch_off": "no switch-off" if idle_s is None else f"switch-off {duration(idle_s)}",
        "starvation": "no starvation bound" if bound is None else _starvation(bound),
        "restartable": _restartable(about, metrics),
        "limit": "" if limit_s is None else f"limit {limit_s:g} s",
    }


def _power_cap(told: list[list[float]] | None) -> str:
    if not told:
        return "no power cap"
    watts = [watts for _, watts in told]
    if len(told) == 1:
        return f"power cap {watts[0]:,.10g} W"
    return f"power cap {min(watts):,.10g} to {max(watts):,.10g} W, {len(told)} steps"


def _starvation(told: dict[str, int]) -> str:
    wide = f", wide {told['wide']}" if told.get("wide") else ""
    return f"starvation {duration(told['threshold_s'])}, {duration(told['bound_s'])}{wide}"


def _restartable(about: Mapping[str, Any], metrics: Mapping[str, float]) -> str:
    """How many jobs may be restarted."""
    many = about.get("restartable", 0)
    jobs = metrics.get("jobs", 0) + metrics.get("jobs_never_started", 0)
    if not many:
        return "no restarts"
    return "all restartable" if many >= jobs else f"{many:,} jobs restartable"


def _rules_of_events(told: dict[str, Any] | None) -> dict[str, str]:
    if told is None:
        return {"events": "no events", "requeue": "", "checkpoints": "no checkpoints"}
    made, requeue = told.get("checkpoints"), told["requeue"]
    checkpoints = "no checkpoints"
    if made is not None:
        checkpoints = f"checkpoints every {duration(made['every_s'])}"
        checkpoints += f", {duration(made['cost_s'])} each" * bool(made["cost_s"])
    return {
        "events": f"events {told['sha256'][:8]}",
        "requeue": f"requeue {requeue}" * bool(requeue),
        "checkpoints": checkpoints,
    }


def means(rows: Sequence[Row]) -> list[Row]:
    """Mean, spread, min and max of each figure of the rows that were merged, for programs."""
    about = ("workload", "system", "dispatcher", "predictor", "idempotent", "draws", "seeds")
    return [
        {key: run[key] for key in (*about, "figures") if key in run}
        for run in rows
        if "figures" in run
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """What was dropped, repaired or never started, a line each."""
    lines: dict[str, None] = {}
    for run in rows:
        for rule, jobs in {**run["dropped"], **run["repaired"]}.items():
            lines[f"{run['workload']}: {rule}: {jobs:,}"] = None
    for run in rows:
        told = sum(n for rule, n in run["repaired"].items() if rule.startswith("never runs"))
        never = run.get("jobs_never_started", 0) - told
        if never > 0:
            who, one = f"{run['workload']}, {run['dispatcher']}", counted(never) == "1"
            jobs = ("other" if told else "job") + "s" * (not one)
            why = ", or ".join(_why_never(run, never, told, one))
            lines[f"{who}: {counted(never)} {jobs} never started: {why}"] = None
    return list(lines)


def _why_never(run: Row, never: float, told: float, one: bool) -> list[str]:
    """Why jobs never started that no note tells of: those reasons that some of them have."""
    it, ask, them = ("it", "asks", "it") if one else ("they", "ask", "them")
    too_much = f"{it} {ask} for more than the system has, or than a partition allows"
    if "jobs_never_fit" not in run:  # a row that another version wrote
        why = [too_much, f"the dispatcher left {them} out"]
        return why + ["too few nodes were in service"] * bool(run.get("events"))
    misfits, refused = run["jobs_never_fit"] - told, run["jobs_refused"]
    why = [too_much] * (misfits > 0) + [f"the dispatcher refused {them}"] * (refused > 0)
    return why + [f"{it} still waited at the end"] * (never > misfits + refused)


def heading_of(run: Row, rows: Sequence[Row]) -> str:
    """The dispatcher, with whatever else tells this run from the others."""
    lines = [run["dispatcher"], *_said_apart(run, rows)]
    if len({peer["predictor"] for peer in rows}) > 1:
        lines.append(run["predictor"])
    if run.get("idempotent") and not all(peer.get("idempotent") for peer in rows):
        lines.append("idempotent")
    if len({peer.get("restart_cost_s", 0) for peer in rows}) > 1:
        lines.append(f"restart {duration(run.get('restart_cost_s', 0))}")
    if len({setting(peer) for peer in rows}) > 1:
        *where, _ = setting(run)  # the last are the events, of which the rules tell in words
        lines += filter(None, where)
    rules = run.get("rules", {})
    apart = (key for key in rules if _differs(key, run, rows))
    lines += [rules[key] for key in apart if rules[key]]
    return "\n".join(lines)


def _differs(rule: str, run: Row, rows: Sequence[Row]) -> bool:
    """Whether a rule is not the same in all runs; ``idempotent`` says which may be restarted.

    A run that was recorded has no limit of a decision.
    """
    alike = [peer for peer in rows if rule != "limit" or peer.get("rules", {}).get(rule)]
    if rule == "restartable":
        alike = [peer for peer in rows if peer.get("idempotent") == run.get("idempotent")]
    return len({peer.get("rules", {}).get(rule) for peer in alike}) > 1


def _said_apart(run: Row, rows: Sequence[Row]) -> list[str]:
    """What the file of a dispatcher said that others of its name did not, a line each."""
    said = run.get(_FILE, {})
    others = [peer.get(_FILE, {}) for peer in rows if peer["dispatcher"] == run["dispatcher"]]
    keys = {key for other in others for key in {*other, *said} if other.get(key) != said.get(key)}
    return [f"{key}={said.get(key, 'none')}" for key in sorted(keys)]


def name_of(run: Row, rows: Sequence[Row]) -> str:
    """The dispatcher in a sentence, with the rest of the heading if others have the same one."""
    name = run["dispatcher"]
    headings = {heading_of(peer, rows) for peer in rows if peer["dispatcher"] == name}
    _, *more = heading_of(run, rows).split("\n")
    return f"{name} ({', '.join(more)})" if more and len(headings) > 1 else str(name)


def setting(run: Row) -> tuple[str, str, str, str]:
    """What must have the same name for two runs to be compared."""
    dependencies = "dependencies" * run.get("dependencies", False)
    return run["workload"], run["system"], dependencies, run.get("events", "")


def peers_of(run: Row, rows: Sequence[Row]) -> list[Row]:
    """The runs of the same jobs under the same rules: those that may be compared with this one."""
    return [
        peer
        for peer in rows
        if setting(peer) == setting(run) and peer.get("of_log") == run.get("of_log")
    ]


def kind_of(about: Mapping[str, Any]) -> str:
    """A checksum that runs have in common which differ by their draw or seed alone."""
    kept = {key: value for key, value in about.items() if key not in _OF_ONE_RUN}
    return sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()
