"""The tables of the pages, made from the CSV files in docs/data.

    python docs/tables.py            # says which tables of the pages are not those of the CSV files
    python docs/tables.py --write    # writes them into the pages, and draws the pictures anew

A table stands between two comments, ``<!-- table: NAME -->`` and ``<!-- end of table -->``. NAME is
a function of this file, or a CSV file, which then is shown as it is.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from cpdispatch.analyze.difference import NOISE, difference
from cpdispatch.analyze.look import COLOURS, MARKS

DOCS = Path(__file__).resolve().parent
DATA, FIGURES = DOCS / "data", DOCS / "figures"
PICTURE, TESTS_PICTURE = FIGURES / "quality.svg", FIGURES / "test_runs.svg"
CAPS_PICTURE = FIGURES / "energy_caps.svg"
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md")))
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Row = dict[str, str]

LOGS = {
    "KTH-SP2-1996-2": "KTH",
    "CTC-SP2-1996-3.1-cln": "CTC",
    "SDSC-BLUE-2000-4.1-cln": "SDSC-BLUE",
    "CEA-Curie-2011-2.1-cln": "Curie",
    "HPC2N-2002-2.2-cln": "HPC2N",
}
SAF, SPF = "easy-saf-saf:threshold=200000", "easy-spf-spf:threshold=200000"
DISPATCHERS = {
    "easy": "walltime",
    "easy-fcfs-spf": "walltime",
    SAF: "walltime",
    SPF: "walltime",
    "best": "own",
}
"""The dispatchers of the first table, and the predictor of each."""
DRAWS_MIN = 10
"""Differences are claimed of no fewer draws."""


def rows(name: str, **wanted: str) -> list[Row]:
    """The rows of a CSV file, of those with these values."""
    with (DATA / f"{name}.csv").open(newline="") as stream:
        return [
            row
            for row in csv.DictReader(stream)
            if all(row[column] == value for column, value in wanted.items())
        ]


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """A table; its first columns hold texts, the others figures."""
    rule = ["---" if n < texts else "--:" for n in range(len(head))]
    return [f"| {' | '.join(cell or '-' for cell in line)} |" for line in (head, rule, *lines)]


def whole(name: str) -> list[str]:
    """A CSV file as it is; the first columns, up to one of figures only, hold texts."""
    with (DATA / f"{name}.csv").open(newline="") as stream:
        head, *lines = csv.reader(stream)
    texts = 1
    while texts < len(head) and any(line[texts].strip("-")[:1].isalpha() for line in lines):
        texts += 1
    return markdown(head, lines, texts)


# ------------------------------------------------------------------------------------ the figures


def draws(log: str, dispatcher: str) -> tuple[list[float], str]:
    """Mean bounded slowdowns of a whole log, and what they differ in."""
    predictor = DISPATCHERS[dispatcher]
    every = runs(log, dispatcher, predictor)
    found = [float(row["bounded_slowdown"]) for row in every if row["draw"] != "0"]
    if found:
        return found, "shifts"
    return [float(row["bounded_slowdown"]) for row in every], "replay"


def runs(log: str, dispatcher: str, predictor: str, trigger: str = "instant") -> list[Row]:
    """The runs of a whole log without restarts, one for each draw."""
    found = rows(
        "quality_runs",
        log=log, dispatcher=dispatcher, predictor=predictor, trigger=trigger, idempotent="",
    )  # fmt: skip
    most = max((int(row["jobs"]) for row in rows("quality_runs", log=log)), default=0)
    return [row for row in found if int(row["jobs"]) == most]


def one(log: str, dispatcher: str, predictor: str, column: str = "bounded_slowdown") -> str:
    """A figure of the one run of a log as it is; empty if there is none."""
    found = [row for row in runs(log, dispatcher, predictor) if row["draw"] == "0"]
    return found[0][column] if found else ""


def spread(values: Sequence[float], kind: str) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f} (one {kind})"
    several = f"{min(values):.1f} to {max(values):.1f}; {len(values)} {kind}"
    return f"{fmean(values):.1f} ({several})"


def main_table() -> list[str]:
    """Mean bounded slowdowns; how many draws each has stands above, if all have as many."""
    found = {name: [draws(log, name) for log in LOGS] for name in DISPATCHERS}
    numbers = {f"; {len(values)} {kind}" for of in found.values() for values, kind in of}
    above = numbers.pop() if len(numbers) == 1 else ""
    lines = [
        [f"`{name}`", *(spread(*of).replace(f"{above})", ")") for of in every)]
        for name, every in found.items()
    ]
    return markdown([f"mean bounded slowdown{above.replace(';', ',')}", *LOGS.values()], lines)


def waits() -> list[str]:
    """Mean and longest waits of the same runs."""
    lines = []
    for dispatcher, predictor in DISPATCHERS.items():
        cells = []
        for log in LOGS:
            mean, most = (
                one(log, dispatcher, predictor, column)
                for column in ("wait_min_mean", "wait_h_max")
            )
            cells.append(f"{mean} min / {float(most):,.0f} h")
        lines.append([f"`{dispatcher}`", *cells])
    return markdown(["mean / longest wait", *LOGS.values()], lines)


def relative() -> dict[str, list[tuple[float, float, float]]]:
    """By dispatcher, smallest, mean and largest slowdown on each log over EASY's.

    EASY's is the mean over its shifts where the dispatcher has shifts, else that of the log as it
    is.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for dispatcher in DISPATCHERS:
        found[dispatcher] = []
        for log in LOGS:
            values, kind = draws(log, dispatcher)
            easy = (
                fmean(draws(log, "easy")[0])
                if kind == "shifts"
                else float(one(log, "easy", "walltime"))
            )
            found[dispatcher].append((min(values) / easy, fmean(values) / easy, max(values) / easy))
    return found


def shares() -> list[str]:
    """What part of EASY's mean bounded slowdown each dispatcher has, over the five logs."""
    lines = []
    for dispatcher, of in relative().items():
        if dispatcher != "easy":
            means = [100 * mean for _, mean, _ in of]
            wait = [
                float(one(log, dispatcher, DISPATCHERS[dispatcher], "wait_h_max"))
                / float(one(log, "easy", "walltime", "wait_h_max"))
                for log in LOGS
            ]
            lines.append([
                f"`{dispatcher}`", f"{min(means):.0f} to {max(means):.0f} %",
                f"{min(wait):.2f} to {max(wait):.2f}",
            ])  # fmt: skip
    head = ["dispatcher", "mean bounded slowdown, share of EASY's", "longest wait over EASY's"]
    return markdown(head, lines)


def differences() -> list[str]:
    """How each dispatcher's slowdown differs from EASY's, paired over the shifts that both have."""

    def shifts(log: str, dispatcher: str) -> dict[str, float]:
        every = runs(log, dispatcher, DISPATCHERS[dispatcher])
        return {row["draw"]: float(row["bounded_slowdown"]) for row in every if row["draw"] != "0"}

    def cell(log: str, dispatcher: str) -> str:
        found, easy = shifts(log, dispatcher), shifts(log, "easy")
        both = [draw for draw in found if draw in easy]
        if len(both) < DRAWS_MIN:
            return ""
        over = difference([found[draw] for draw in both], [easy[draw] for draw in both])
        noise = f", {NOISE}" if over.says == NOISE else ""
        return f"{over.ratio:.2f} ({over.low:.2f} to {over.high:.2f}{noise})"

    lines = [
        [f"`{dispatcher}`", *(cell(log, dispatcher) for log in LOGS)]
        for dispatcher in DISPATCHERS
        if dispatcher != "easy"
    ]
    return markdown(["share of EASY's mean bounded slowdown", *LOGS.values()], lines)


def predictors() -> list[str]:
    """One order under each predictor, and the same with reservations by requested times."""
    names = ("walltime", "last2", "profile", "confident", "class", "eloss", "forest", "actual")
    lines = []
    for title, dispatcher in (
        ("`limits=expected`", SAF),
        ("`limits=requested`", f"{SAF},limits=requested"),
    ):
        for log, short in LOGS.items():
            cells = [one(log, dispatcher, name) for name in names]
            lines.append([title, short, *cells])
    return markdown(["limits", "log", *names], lines, texts=2)


def part(log: str, dispatcher: str, predictor: str) -> str:
    found = rows("quality_runs", log=log, dispatcher=dispatcher, predictor=predictor, jobs="4000")
    return found[0]["bounded_slowdown"] if found else ""


def models() -> list[str]:
    """CP dispatchers beside rules, on the same 4,000 jobs of each log."""
    lines = [
        [f"`{dispatcher}`", title, *(part(log, dispatcher, predictor) for log in LOGS)]
        for predictor, title in (("walltime", "requested times"), ("forest", "`forest`"))
        for dispatcher in ("easy", SAF, "best", "hcp", "pcp:model=boxes")
        if predictor == "walltime" or dispatcher != "easy"
    ]
    return markdown(["dispatcher", "durations", *LOGS.values()], lines, texts=2)


def published() -> list[str]:
    lines = []
    for row in rows("quality_published"):
        difference = float(row["ours"]) / float(row["published"]) - 1
        lines.append([LOGS[row["log"]], row["method"], row["published"], row["ours"],
                      f"{100 * difference:+.0f} %"])  # fmt: skip
    return markdown(["log", "method", "published", "ours", "difference"], lines, texts=2)


def accuracy() -> list[str]:
    head = ["log", "predictor", "mean absolute error, min", "too short, %", "too long, %",
            "runtime / prediction in 0.75 to 1.25, %"]  # fmt: skip
    lines = [
        [LOGS[row["log"]], f"`{row['predictor']}`", *list(row.values())[2:]]
        for row in rows("quality_accuracy")
    ]
    return markdown(head, lines, texts=2)


def classes() -> list[str]:
    """Mean bounded slowdown by class of jobs."""
    lines = [
        [f"`{row['system']}`", f"`{row['dispatcher']}`", row["class"], f"{int(row['jobs']):,}",
         row["requested"], *(f"{int(row[name]):+d} %" for name in
                             ("profile_percent", "forest_percent", "actual_percent"))]
        for row in rows("quality_classes", mean_of="bounded slowdown")
        if row["dispatcher"] in ("hcp", "best")
    ]  # fmt: skip
    head = ["system", "dispatcher", "class", "jobs", "requested", "`profile`", "`forest`",
            "`actual`"]  # fmt: skip
    return markdown(head, lines, texts=3)


def power() -> list[str]:
    """What generated power profiles of each kind are taken for, in percent."""
    every = rows("power")
    kinds = [row["kind"] for row in every]
    lines = [
        [f"`{row['kind']}`", row["profiles"]]
        + [f"{100 * int(row[kind]) / int(row['profiles']):.1f} %" for kind in kinds]
        for row in every
    ]
    head = ["of the kind", "profiles", *(f"taken for `{kind}`" for kind in kinds)]
    return markdown(head, lines, texts=1)


def parts() -> list[str]:
    """What order, plan and CP-SAT bring on the bundled sample."""
    means = {
        "easy": "backfilling by submission",
        "easy-spf-spf": "the order: shortest expected job first",
        "hcp:cp=off,wait=off": "order and plan: list schedules and searches",
        "hcp:wait=off": "order, plan and CP-SAT",
        "easy-spf-spf:wait=0.8": "the order, waits bounded",
        "hcp": "order, plan and CP-SAT, waits bounded",
    }
    lines = [
        [f"`{row['dispatcher']}`", means[row["dispatcher"]], row["bounded_slowdown"],
         f"{row['wait_min_mean']} min", f"{row['wait_h_max']} h"]
        for row in rows("parts")
    ]  # fmt: skip
    head = ["dispatcher", "what it has", "mean bounded slowdown", "mean wait", "longest wait"]
    return markdown(head, lines, texts=2)


# ------------------------------------------------------------------------------ learned policies


def learning_tune() -> list[str]:
    """What tune picks, on training and test weeks."""
    columns = ("wait_mean", "wait_max", "bounded_slowdown")
    lines = []
    for picked in dict.fromkeys(row["picked"] for row in rows("learning_tune")):
        of_half = rows("learning_tune", picked=picked)
        threshold_s = int(of_half[0]["threshold_s"])
        threshold = "none" if threshold_s < 0 else f"{threshold_s:,} s"
        figures = (" / ".join(row[column] for row in of_half) for column in columns)
        given = "no limit" if picked == "free" else f"`--{picked}`"
        lines.append([given, of_half[0]["orders"], threshold, *figures])
    head = ["picked with", "orders", "threshold", "mean wait", "longest wait", "bounded slowdown"]
    return markdown(head, lines, texts=3)


def learning_whole() -> list[str]:
    """Learned policies on a whole log."""
    means = {
        "easy-fcfs-fcfs": "EASY-FCFS-FCFS",
        "easy-saf-saf": "EASY-SAF-SAF",
        "tuned": "tuned, `--max-wait 1.1`",
        "mixed": "mixed, training half (below)",
        "lin, learned": "Lin learned from `lublin` (below)",
        "lin, published": "Lin published",
    }
    lines = [
        [means[row["policy"]], row["wait_min_mean"], row["wait_h_max"], row["bounded_slowdown"]]
        for row in rows("learning_whole")
    ]
    return markdown(["policy", "mean wait, min", "longest wait, h", "mean bounded slowdown"], lines)


def learning_threshold() -> list[str]:
    """Mean wait of the picked pair with the published threshold, and the published change."""
    lines = []
    for row in rows("learning_threshold"):
        log = next(name for log, name in LOGS.items() if row["log"].startswith(log))
        ours, theirs = (100 * (float(row[column]) - 1) for column in ("wait_mean", "published"))
        lines.append([log, row["orders"], f"{ours:+.0f} %", f"{theirs:+.0f} %"])
    return markdown(["log", "orders", "mean wait", "published"], lines, texts=2)


def learning_mixed() -> list[str]:
    means = {
        "hindsight": "mixed, best of the same week (hindsight)",
        "pure": "best pure order of each week (hindsight)",
        "trained": "mixed, best of the training half",
        "previous": "mixed, best of the week before",
    }
    lines = [
        [means.get(row["policy"], row["policy"].upper()), row["sum"], row["relative"]]
        for row in rows("learning_mixed")
    ]
    return markdown(["policy", "sum", "relative to EASY-FCFS"], lines)


def orderings_whole() -> list[str]:
    """Published mean waits over a whole log, and ours by filter and trigger."""
    lines = []
    for row in rows("orderings_published", measure="wait_s_mean"):
        pair = {key: row[key] for key in ("log", "primary", "backfill", "threshold_s")}
        ours = [
            found[0]["wait_s_mean"] if found else ""
            for filter in ("drop", "strong")
            for trigger in ("instant", "event")
            for found in [rows("orderings_whole", **pair, filter=filter, trigger=trigger)]
        ]
        names = f"{row['primary'].upper()}-{row['backfill'].upper()}"
        lines.append([LOGS[row["log"]], names, row["value"], *ours])
    head = ["log", "orders", "published", "`drop`, `instant`", "`drop`, `event`",
            "`strong`, `instant`", "`strong`, `event`"]  # fmt: skip
    return markdown(head, lines, texts=2)


READINGS = {"left_out": "left out", "not_counted": "not counted", "counted": "counted"}
THRESHOLDS = ("0", "199584", "72000")


def weekly(column: str, log: str, **wanted: str) -> list[float]:
    """Sums of weekly slowdowns by threshold; none where there is no value."""
    found = rows("orderings_weeks", log=log, **wanted)
    by_threshold = {row["threshold_s"]: row[column] for row in found}
    return [float(by_threshold[each]) for each in THRESHOLDS if by_threshold[each]]


def orderings() -> list[str]:
    """Sums of weekly slowdowns beside those published, by log and order of the queue."""
    every = rows("orderings_weeks")
    policies = list(dict.fromkeys(row["primary"] for row in every))
    lines = []
    for log in dict.fromkeys(row["log"] for row in every):
        for primary in policies:
            pair = {"log": log, "filter": "drop", "primary": primary, "backfill": "spf"}
            sums = [
                weekly("published", tau_s="10", **pair),
                weekly("left_out", tau_s="10", **pair),
                weekly("counted", tau_s="60", **pair),
            ]
            cells = [" / ".join(f"{value:.0f}" for value in each) for each in sums]
            lines.append([LOGS[log], primary.upper(), *cells])
    head = ["log", "queue", "published", "left out, tau = 10 s", "counted, tau = 60 s"]
    return markdown(head, lines, texts=2)


def orderings_fit() -> list[str]:
    """How far the sums are from those published, by what the text leaves open."""
    every = [row for row in rows("orderings_weeks") if row["published"]]
    logs = list(dict.fromkeys(row["log"] for row in every))
    lines = []
    for filter, same in ((f, s) for f in ("drop", "strong") for s in (False, True)):
        for tau_s, reading in ((t, r) for t in ("10", "60") for r in READINGS):
            cells = []
            for log in logs:
                ratios = [
                    float(row[reading]) / float(row["published"])
                    for row in every
                    if (row["log"], row["filter"], row["tau_s"]) == (log, filter, tau_s)
                    and row["backfill"] == (row["primary"] if same else "spf")
                ]
                off = fmean(abs(ratio - 1) for ratio in ratios)
                cells.append(f"{fmean(ratios):.2f}; {100 * off:.0f} %")
            second = "as the queue" if same else "SPF"
            lines.append([f"`{filter}`", second, f"{tau_s} s", READINGS[reading], *cells])
    head = ["filter", "backfilling", "tau", "crossing jobs", *(LOGS[log] for log in logs)]
    return markdown(head, lines, texts=4)


def small_first() -> list[str]:
    """Small jobs first: all jobs, small ones and large ones, beside EASY on the same draws."""
    every = rows("quality_small")
    lines = []
    for log in (log for log in LOGS if any(row["log"] == log for row in every)):
        easy = {
            row["draw"]: row for row in every if (row["log"], row["dispatcher"]) == (log, "easy")
        }
        for dispatcher, predictor in dict.fromkeys(
            (row["dispatcher"], row["predictor"]) for row in every if row["log"] == log
        ):
            of = rows("quality_small", log=log, dispatcher=dispatcher, predictor=predictor)
            change = fmean(
                float(row["bounded_slowdown"]) / float(easy[row["draw"]]["bounded_slowdown"]) - 1
                for row in of
            )
            cells = [
                f"{fmean(float(row[column]) for row in of):,.{digits}f}"
                for column, digits in (
                    ("small", 1), ("large", 1), ("wait_min_small", 0), ("wait_min_large", 0),
                    ("wait_h_max", 0), ("restarts", 0),
                )
            ]  # fmt: skip
            slowdowns = [float(row["bounded_slowdown"]) for row in of]
            kind = "shifts" if len(of) > 1 else "shift"
            lines.append([
                LOGS[log], f"`{dispatcher}`", f"`{predictor}`", spread(slowdowns, kind),
                f"{100 * change:+.0f} %", *cells,
            ])  # fmt: skip
        for row in rows("quality_small_published", log=log):
            cells = [f"-{row['improvement_percent']} %", *[""] * 6]
            lines.append([LOGS[log], "published, table 6.6", "", "", *cells])
    head = ["log", "dispatcher", "predictor", "mean bounded slowdown", "to EASY", "of small",
            "of large",
            "wait of small, min", "wait of large, min", "longest wait, h", "restarts"]  # fmt: skip
    return markdown(head, lines, texts=3)


UNTUNED = {
    "easy-spf-spf:wait=0.6": "`easy-spf-spf`", "easy-saf-saf:wait=0.6": "`easy-saf-saf`",
    "easy-f1-f1:wait=0.6": "`easy-f1-f1`", "best": "`best`",
}  # fmt: skip
"""The dispatchers on ten logs and their cuts: the rules have the bound of `best`."""
UNTUNED_MODEL = "hcp:limit=0.05"
TARGET = 0.85
"""How far `best` is to be below the best of the rules there."""


def by_log_and_size(row: Row) -> tuple[bool, str, float]:
    """All logs first, then by name; whole logs after their cuts."""
    size = row["size"]
    jobs = float("inf") if size in ("0", "all") else int(size)
    return row["log"] != "all", row["log"], jobs


def untuned() -> list[str]:
    """Ten logs and their cuts, by size and by log; each relative to EASY."""
    named = UNTUNED
    every = sorted((row for row in rows("untuned") if row["size"] != "all"), key=by_log_and_size)
    lines = []
    for log, size in dict.fromkeys((row["log"], row["size"]) for row in every):
        of = {r["dispatcher"]: r for r in every if (r["log"], r["size"]) == (log, size)}
        jobs = "whole" if size == "0" else f"{int(size):,}"
        counts = {of[name]["cuts"] for name in named if name in of}
        cells = []
        for name in named:
            row = of.get(name)
            if row is None:
                cells.append("")
                continue
            cells.append(f"{around(row)}; {row['wait_max_worst']}")
        lines.append([log, jobs, "/".join(sorted(counts, key=int)), *cells])
    return markdown(["log", "jobs", "cuts", *named.values()], lines, texts=2)


def untuned_model() -> list[str]:
    """The engine beside the nearest rule and `best`, on the cuts that it was replayed on."""
    lines = []
    for row in sorted(rows("untuned", dispatcher=UNTUNED_MODEL), key=by_log_and_size):
        of = {r["dispatcher"]: r for r in rows("untuned", log=row["log"], size=row["size"])}
        beside = [of["easy-saf-saf:wait=0.6"], of["best"], row]
        cells = [f"{around(each)}; {each['wait_max_worst']}" for each in beside]
        lines.append([row["log"], row["cuts"], *cells, row["above"], row["decision_ms"]])
    head = ["log", "cuts", "`easy-saf-saf`", "`best`", "`hcp`, `forest`",
            "longest wait above 1.3 under `hcp`", "ms a decision"]  # fmt: skip
    return markdown(head, lines)


def around(row: Row, column: str = "slowdown") -> str:
    """A mean with its interval, if that is more than the mean."""
    low, high = row[f"{column}_low"], row[f"{column}_high"]
    more = low and row.get("cuts") != "1"
    return f"{row[column]} ({low} to {high})" if more else row[column]


def untuned_all() -> list[str]:
    """Over all cuts: slowdown, longest wait and cost of each dispatcher."""
    of = {row["dispatcher"]: row for row in rows("untuned", log="all", size="all")}
    lines = [
        [title, around(of[name]), f"{of[name]['above']} of {of[name]['cuts']}",
         of[name]["wait_max_worst"], of[name]["decision_ms"]]
        for name, title in UNTUNED.items()
    ]  # fmt: skip
    head = ["dispatcher", "slowdown over EASY's", "longest wait above 1.3 times EASY's",
            "at most", "ms a decision"]  # fmt: skip
    return markdown(head, lines)


def untuned_best() -> list[str]:
    """The slowdown of `best` over that of each rule, by log."""
    every = sorted(rows("untuned_best"), key=lambda row: (row["log"] != "all", row["log"]))
    rules = [name for name in UNTUNED if name != "best"]
    lines = []
    for log in dict.fromkeys(row["log"] for row in every):
        of = {row["rule"]: row for row in every if row["log"] == log}
        lines.append([log, of[rules[0]]["cuts"], *(around(of[rule]) for rule in rules)])
    return markdown(["log", "cuts", *(UNTUNED[rule] for rule in rules)], lines)


def untuned_known() -> list[str]:
    """What `best` makes of requested times and of real runtimes, by log; relative to EASY."""
    every = sorted(rows("untuned_known", size="all"), key=by_log_and_size)
    lines = [
        [row["log"], row["cuts"], around(row, "requested"), around(row, "real"), around(row),
         row["higher"], f"{row['requested_above']} / {row['real_above']}"]
        for row in every
    ]  # fmt: skip
    head = ["log", "cuts", "requested times", "real runtimes", "the second over the first",
            "cuts on which it is higher", "longest wait above 1.3"]  # fmt: skip
    return markdown(head, lines)


def untuned_gap() -> list[str]:
    """What `best` would have to know to be so far below the best of the rules, by size of cut."""
    lines = []
    for row in sorted(rows("untuned_known", log="all"), key=by_log_and_size):
        of = {r["dispatcher"]: r for r in rows("untuned", log="all", size=row["size"])}
        if row["size"] == "all" or of["best"]["cuts"] != row["cuts"]:
            continue
        name, rule = min(
            ((name, float(of[name]["slowdown"])) for name in UNTUNED if name != "best"),
            key=lambda each: each[1],
        )
        jobs = "whole" if row["size"] == "0" else f"{int(row['size']):,}"
        lines.append([
            jobs, row["cuts"], row["requested"], of["best"]["slowdown"], row["real"],
            f"{UNTUNED[name]}: {rule:.3f}", f"{TARGET * rule:.3f}",
        ])  # fmt: skip
    head = ["jobs", "cuts", "`best`, requested times", "`best`", "`best`, real runtimes",
            "the best rule", "15 % below it"]  # fmt: skip
    return markdown(head, lines)


def untuned_conclusions() -> list[str]:
    """What the figures say of `best`, as sentences."""
    every = rows("untuned_best")
    whole = [row for row in every if row["log"] == "all"]
    rival = max(whole, key=lambda row: float(row["slowdown"]))
    name, rule = UNTUNED[rival["rule"]], rival["rule"]
    low, high = float(rival["slowdown_low"]), float(rival["slowdown_high"])
    stands = "more than noise" if high < 1 or low > 1 else "within noise"
    verb = "below" if float(rival["slowdown"]) < 1 else "above"
    off = abs(100 * (float(rival["slowdown"]) - 1))
    of_logs = [row for row in every if row["log"] != "all"]
    of_rival = [row for row in of_logs if row["rule"] == rule]
    better = [row["log"] for row in of_rival if float(row["slowdown_high"]) < 1]
    dearer = [row["log"] for row in of_rival if float(row["slowdown_low"]) > 1]
    by_log = {
        log: max(float(row["slowdown"]) for row in of_logs if row["log"] == log)
        for log in dict.fromkeys(row["log"] for row in of_logs)
    }
    worse = [f"{log} ({value:.2f})" for log, value in by_log.items() if value > 1.05]
    (best,) = rows("untuned", log="all", size="all", dispatcher="best")
    exceeded = [
        f"{row['log']} ({row['above']} of {row['cuts']} with {sized(row['size'])}, at most "
        f"{row['wait_max_worst']}{' when rounded' * (row['wait_max_worst'] == '1.30')})"
        for row in sorted(rows("untuned", dispatcher="best"), key=by_log_and_size)
        if row["log"] != "all" and row["above"] != "0"
    ]
    return [
        f"- Of the rules {name} comes nearest to `best`. Over all {rival['cuts']} cuts, `best` is "
        f"{off:.0f} % {verb} it, {around(rival)}: {stands}. By log it is better by more than "
        f"noise on {listed(better) or 'none'}, worse on {listed(dearer) or 'none'}, and within "
        "noise on the others.",
        f"- On {listed(worse)} another rule is better than `best` by more than 5 %."
        if worse
        else "- On no log is another rule better than `best` by more than 5 %.",
        f"- The longest wait under `best` is above 1.3 times EASY's on {best['above']} of "
        f"{best['cuts']} cuts: {listed(exceeded)}."
        if exceeded
        else "- The longest wait under `best` is nowhere above 1.3 times EASY's.",
    ]


def sized(size: str) -> str:
    return "all jobs" if size == "0" else f"{int(size):,} jobs"


def listed(texts: Sequence[str]) -> str:
    """Things in a sentence."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


# ------------------------------------------------------------------------------------ test runs

TEST_DRAWS_MIN = 3
"""A mean of fewer draws is not shown."""
SHARES, COSTS_S = ("1", "0.5", "0.2"), ("0", "30", "120")
TEST_LENGTHS_S = (30, 60, 120, 300, 600, 1200, 1800)
SHORT_LOGS = tuple(LOGS.values())
LOADS = ("eurora", "gaia", "kit")


PLAIN = {"easy": "easy", "best": "best:test=off"}
"""Dispatchers without test runs."""
BOUNDED = ",tests=first,wait=0.8"


def with_tests(rule: str) -> list[str]:
    """A dispatcher with test runs in each of the ways; `best` always has a bound on waits."""
    test = {"easy": "easy:test=120", "best": "best:test=300"}[rule]
    ways = ["", *(f",tests={way}" for way in ("backfill", "turn", "first"))]
    return [test + way for way in (*ways, *[BOUNDED] * (rule == "easy"))]


def rows_of_tests(draws_min: int = TEST_DRAWS_MIN, **wanted: str) -> list[Row]:
    """The rows of ``test_runs.csv`` with these values and enough draws; own predictors."""
    kept = {"predictor": "own", "restartable": "1", "restart_cost_s": "0"} | wanted
    return [row for row in rows("test_runs", **kept) if int(row["draws"]) >= draws_min]


def some(head: Sequence[str], lines: Sequence[Sequence[str]], texts: int) -> list[str]:
    """A table; a sentence where it has no rows yet."""
    return markdown(head, lines, texts) if lines else ["There are no figures yet."]


def test_runs_whole() -> list[str]:
    """Whole logs: slowdown, who waits longer, kills and lost work."""
    names = [(name, "own") for rule in PLAIN for name in (PLAIN[rule], *with_tests(rule))]
    lines = []
    for log in SHORT_LOGS:
        for name, predictor in (*names, (PLAIN["best"], "actual")):
            for row in rows_of_tests(log=log, size="0", dispatcher=name, predictor=predictor):
                known = ", real runtimes" * (predictor == "actual")
                costs = [f"{float(row[f'{kind}_percent']):.1f} %" for kind in ("kills", "lost")]
                tested = ":test=" in name and name not in PLAIN.values()
                lines.append([
                    log, f"`{name}`{known}", row["draws"], around(row),
                    row["wait_max"], row["wait_long"], row["wait_class"],
                    *(costs if tested else ["", ""]),
                ])  # fmt: skip
    head = ["log", "dispatcher", "draws", "mean bounded slowdown", "longest wait",
            "wait of jobs over 4 h", "wait of the class that loses most", "jobs stopped",
            "work lost"]  # fmt: skip
    return some(head, lines, texts=2)


def by_setting(column: str, settings: Sequence[str], cell: Callable[[Row], str]) -> list[list[str]]:
    """Whole logs and dispatchers with tests, with a cell for each value of a column."""
    lines = []
    for log in SHORT_LOGS:
        for name in (*with_tests("easy"), *with_tests("best")):
            found = [
                rows_of_tests(log=log, size="0", dispatcher=name, **{column: value})
                for value in settings
            ]
            if sum(map(bool, found)) > 1:
                draws = "/".join(dict.fromkeys(row[0]["draws"] for row in found if row))
                cells = [cell(row[0]) if row else "" for row in found]
                lines.append([log, f"`{name}`", draws, *cells])
    return lines


def test_runs_shares() -> list[str]:
    """Slowdown relative to EASY's, by the share of users whose jobs may be restarted."""
    lines = by_setting("restartable", SHARES, lambda row: around(row, "relative"))
    titles = ["all jobs", "half of the users", "a fifth of the users"]
    return some(["log", "dispatcher", "draws", *titles], lines, texts=2)


def test_runs_costs() -> list[str]:
    """Slowdown relative to EASY's, and lost work, by the time that a restart takes."""

    def cell(row: Row) -> str:
        return f"{around(row, 'relative')}; {float(row['lost_percent']):.1f} %"

    lines = by_setting("restart_cost_s", COSTS_S, cell)
    return some(["log", "dispatcher", "draws", "0 s", "30 s", "120 s"], lines, texts=2)


def test_runs_cuts() -> list[str]:
    """Cuts of logs, by size and by log; each relative to EASY."""
    names = ("easy:test=120", f"easy:test=120{BOUNDED}", PLAIN["best"], "best:test=300")
    every = [row for row in rows("test_runs") if row["size"] != "0"]
    groups = dict.fromkeys((row["log"], row["size"]) for row in every)
    lines = []
    for log, size in sorted(groups, key=lambda of: (of[0] != "all cuts", of[0], int(of[1]))):
        found = [
            rows_of_tests(log=log, size=size, dispatcher=name) for name in names
        ]  # fmt: skip
        if any(found):
            cuts = "/".join(dict.fromkeys(row[0]["draws"] for row in found if row))
            cells = [
                f"{around(row[0], 'relative')}; {row[0]['wait_max']}" if row else ""
                for row in found
            ]
            lines.append([log, f"{int(size):,}", cuts, *cells])
    return some(["log", "jobs", "cuts", *(f"`{name}`" for name in names)], lines, texts=2)


def test_runs_loads() -> list[str]:
    """Systems with several resources."""
    lines = []
    for load in ("eurora", "kit", "gaia"):
        names = (
            "easy", *with_tests("easy"), "hcp:limit=0.05", "hcp:test=120,limit=0.05",
            PLAIN["best"], "best:test=300",
        )  # fmt: skip
        for name in names:
            for row in rows_of_tests(log=load, size="0", dispatcher=name):
                tested = ":test=" in name and name not in PLAIN.values()
                costs = [f"{float(row[f'{kind}_percent']):.1f} %" for kind in ("kills", "lost")]
                lines.append([
                    f"`{load}`", f"`{name}`", row["draws"], around(row, "relative"),
                    row["wait_max"], row["wait_class"], *(costs if tested else ["", ""]),
                ])  # fmt: skip
    head = ["load", "dispatcher", "draws", "mean bounded slowdown", "longest wait",
            "wait of the class that loses most", "jobs stopped", "work lost"]  # fmt: skip
    return some(head, lines, texts=2)


def over_draws(row: Row, column: str, digits: int, scale: float = 1.0) -> str:
    """A mean over draws with its standard deviation."""
    mean, deviation = (float(row[f"{column}{end}"]) * scale for end in ("", "_sd"))
    return f"{mean:,.{digits}f} ± {deviation:,.{digits}f}"


def energy_caps() -> list[str]:
    """What a cap on the power costs and saves."""
    lines = []
    for name in ("easy", "easy-saf-saf:wait=0.8"):
        of = sorted(rows("energy_caps", dispatcher=name), key=lambda row: -float(row["value"]))
        for row in of:
            longer_h = (float(row["makespan_s"]) - float(of[0]["makespan_s"])) / 3600
            lines.append([
                f"`{name}`", f"{row['value']} %", row["draws"],
                f"{float(row['power_w_max']) / 1000:.1f}",
                over_draws(row, "bounded_slowdown_mean", 1),
                over_draws(row, "wait_s_mean", 1, 1 / 3600),
                over_draws(row, "wait_s_max", 0, 1 / 3600), over_draws(row, "energy_kwh", 0, 1e-3),
                f"{longer_h:,.0f}",
            ])  # fmt: skip
    head = ["dispatcher", "cap", "draws", "highest power kW", "mean bounded slowdown",
            "mean wait h", "longest wait h", "energy MWh", "longer h"]  # fmt: skip
    return markdown(head, lines, texts=1)


def energy_hours() -> list[str]:
    """The engine, and the one that saves while energy is dear."""
    lines = [
        [f"`{row['dispatcher']}`", row["draws"], over_draws(row, "energy_kwh", 0),
         over_draws(row, "energy_cost", 0), over_draws(row, "wait_s_mean", 0, 1 / 60),
         over_draws(row, "bounded_slowdown_mean", 1)]
        for row in sorted(rows("energy_hours"), key=lambda row: row["dispatcher"], reverse=True)
    ]  # fmt: skip
    head = ["dispatcher", "draws", "energy kWh", "cost", "mean wait min", "mean bounded slowdown"]
    return markdown(head, lines, texts=1)


def energy_off() -> list[str]:
    """What switching idle nodes off brings."""
    lines = [
        ["never" if row["value"] == "0" else f"{row['value']} min", row["draws"],
         over_draws(row, "energy_kwh", 0), over_draws(row, "nodes_off_h", 0),
         over_draws(row, "wait_s_mean", 1, 1 / 60), over_draws(row, "bounded_slowdown_mean", 1)]
        for row in sorted(rows("energy_off"), key=lambda row: float(row["value"]))
    ]  # fmt: skip
    head = ["switched off after", "draws", "energy kWh", "hours off, all nodes", "mean wait min",
            "mean bounded slowdown"]  # fmt: skip
    return markdown(head, lines, texts=1)


def energy_failures() -> list[str]:
    """EASY, and the allocation that knows which nodes failed."""
    lines = [
        [row["value"], f"`{row['dispatcher']}`", row["draws"],
         over_draws(row, "wasted_share", 1, 100), over_draws(row, "requeues", 0),
         over_draws(row, "bounded_slowdown_mean", 1)]
        for row in sorted(rows("energy_failures"), key=lambda r: (r["value"], r["dispatcher"]))
    ]  # fmt: skip
    head = ["shape", "dispatcher", "draws", "work lost %", "jobs queued again",
            "mean bounded slowdown"]  # fmt: skip
    return markdown(head, lines, texts=2)


def failures() -> list[str]:
    """A year of failing nodes."""
    lines = [
        [f"`{row['dispatcher']}`", row["draws"], over_draws(row, "node_failures", 0),
         over_draws(row, "requeues", 0), over_draws(row, "failed", 0),
         over_draws(row, "wasted_share", 1, 100), over_draws(row, "wait_s_mean", 1, 1 / 3600),
         over_draws(row, "bounded_slowdown_mean", 0)]
        for row in rows("failures")
    ]  # fmt: skip
    head = ["dispatcher", "draws", "failures", "jobs queued again", "jobs that failed",
            "work lost %", "mean wait h", "mean bounded slowdown"]  # fmt: skip
    return markdown(head, lines, texts=1)


PLANNING = {
    "easy-spf-spf:wait=0.8": "`easy-spf-spf`",
    "easy-saf-saf:wait=0.8": "`easy-saf-saf`",
    "hcp:limit=0.2": "`hcp`",
    "hcp:limit=0.2,cp=off": "`hcp`, `cp=off`",
}


def planning() -> list[str]:
    """What planning brings on line: slowdowns over EASY's, with the same bound on waits."""
    durations = {"walltime": "requested", "actual": "known"}
    lines = []
    for load in LOADS:
        for predictor, name in durations.items():
            every = rows("planning", load=load, predictor=predictor)
            of = {row["dispatcher"]: row for row in every}
            cells = [around(of[dispatcher]) for dispatcher in PLANNING]
            lines.append([load, name, of["hcp:limit=0.2"]["draws"], *cells])
    return markdown(["load", "durations", "draws", *PLANNING.values()], lines, texts=2)


def planning_bound() -> list[str]:
    """What the bound on waits costs: slowdowns over EASY's, and the longest waits over EASY's."""
    durations = {"walltime": "requested", "actual": "known"}
    columns = {
        "easy-spf-spf": ("easy-spf-spf", "easy-spf-spf:wait=0.8"),
        "easy-saf-saf": ("easy-saf-saf", "easy-saf-saf:wait=0.8"),
        "hcp:cp=off": ("hcp:limit=0.2,cp=off,wait=off", "hcp:limit=0.2,cp=off"),
    }
    lines = []
    for load in LOADS:
        for predictor, name in durations.items():
            every = rows("planning_bound", load=load, predictor=predictor)
            of = {row["dispatcher"]: row for row in every}
            if of:
                cells = [
                    f"{float(of[one]['slowdown']):.2f}, {of[one]['wait_max']}"
                    for pair in columns.values()
                    for one in pair
                ]
                lines.append([load, name, every[0]["draws"], *cells])
    heads = [f"`{name}`{bound}" for name in columns for bound in ("", ", bounded")]
    return markdown(["load", "durations", "draws", *heads], lines, texts=2)


def planning_predicted() -> list[str]:
    """What predictions bring EASY by SAF, by how far they are believed."""
    rule = "easy-saf-saf:wait=0.8"
    columns = {
        ("mixture", f"{rule},limits=requested"): "the order",
        ("mixture", f"{rule},limits=upper"): "the order, queued jobs (`upper`)",
        ("mixture", rule): "the order, queued and running jobs",
        ("actual", rule): "known durations",
    }
    lines = []
    for load in LOADS:
        every = rows("planning_predicted", load=load)
        of = {(row["predictor"], row["dispatcher"]): row for row in every}
        lines.append([load, *(f"{around(of[key])}, {of[key]['draws']}" for key in columns)])
    return markdown(["load", *columns.values()], lines)


def planning_settings() -> list[str]:
    """What other settings of the engine bring, beside its defaults."""
    durations = {"walltime": "requested", "actual": "known"}
    names = dict.fromkeys(row["dispatcher"].rpartition(",")[2] for row in rows("planning_settings"))
    lines = []
    for load in LOADS:
        for predictor, name in durations.items():
            every = rows("planning_settings", load=load, predictor=predictor)
            of = {row["dispatcher"].rpartition(",")[2]: row for row in every}
            cells = [f"{around(of[key])}, {of[key]['draws']}" if key in of else "" for key in names]
            if of:
                lines.append([load, name, *cells])
    return markdown(["load", "durations", *(f"`{name}`" for name in names)], lines, texts=2)


def planning_short() -> list[str]:
    """The same for durations that are requested, to two places."""
    names = list(PLANNING)
    lines = []
    for load in LOADS:
        of = {row["dispatcher"]: row for row in rows("planning", load=load, predictor="walltime")}
        columns = ("slowdown", "slowdown_low", "slowdown_high")
        cells = [
            "{:.2f} ({:.2f} to {:.2f})".format(*(float(of[name][column]) for column in columns))
            for name in names
        ]
        lines.append([load, *cells])
    return markdown(["load", *(PLANNING[name] for name in names)], lines)


def planning_times() -> list[str]:
    """How long a decision of the engine takes in these replays."""
    engine = [name for name in PLANNING if name.startswith("hcp")]
    lines = []
    for load in LOADS:
        of = {row["dispatcher"]: row for row in rows("planning", load=load, predictor="walltime")}
        lines.append([load, *(of[name]["decision_ms"] for name in engine)])
    return markdown(["load", *(f"{PLANNING[name]}, ms" for name in engine)], lines)


def first_decision() -> list[str]:
    """How long each dispatcher compiles, and its longest decisions of all ways to ask it."""
    every = rows("first_decision")
    lines = []
    for name in dict.fromkeys(row["dispatcher"] for row in every):
        asked = [row for row in every if row["dispatcher"] == name]
        made_s, first_ms, longest_ms = (
            max(float(row[column]) for row in asked)
            for column in ("make s", "first ms", "longest ms")
        )
        lines.append([f"`{name}`", f"{made_s:.0f}", f"{first_ms:.1f}", f"{longest_ms:.1f}"])
    return markdown(["dispatcher", "compiling s", "first decision ms", "longest ms"], lines)


def percent(share: str, digits: int = 0) -> str:
    return f"{float(share):.{digits}%}".replace("%", " %")


def dumps(name: str = "dumps") -> list[str]:
    """Plans and proofs of instances of replays, before the search of small parts and now."""
    lines = [
        [f"`{row['dispatcher'].replace('wait=off', '').replace(':,', ':').rstrip(':')}`",
         row["limit_s"], row["better"], row["equal"], row["worse"],
         *(f"{float(row[column]) - 1:.2%}".replace("%", " %")
           for column in ("wait_before", "wait_now")),
         percent(row["proven_before"]), percent(row["proven_now"]),
         percent(row["share_before"], 1), percent(row["share_now"], 1)]
        for row in rows(name)
    ]  # fmt: skip
    head = ["dispatcher", "limit s", "better", "equal", "worse", "wait above the best, before",
            "now", "proven optimal, before", "now", "share of the wait proven, before",
            "now"]  # fmt: skip
    return markdown(head, lines)


def dumps_corpus() -> list[str]:
    """The same of the corpus."""
    return dumps("dumps_corpus")


def dumps_fresh() -> list[str]:
    """The same of instances that were drawn with another seed."""
    return dumps("dumps_fresh")


def optima() -> list[str]:
    """The engine against an exhaustive search on random small instances."""
    lines = [
        [row["extra"], row["instances"], percent(row["optimal_share"], 1), row["false_optimal"],
         row["false_bounds"], percent(row["excess_mean"], 2), percent(row["excess_max"])]
        for row in rows("optima", engine="hcp")
    ]  # fmt: skip
    head = ["instances with", "instances", "proven optimal", "falsely", "bounds above the optimum",
            "mean excess", "worst"]  # fmt: skip
    return markdown(head, lines)


def postponing() -> list[str]:
    """Schedule or postpone, and CP-SAT, on the same small parts."""
    lines = [
        [row["jobs"].replace("-", " to "), row["limit_s"], row["parts"], row["search_better"],
         row["search_proven"], row["cp_posed"], row["cp_better"], row["cp_proven"],
         row["search_wins"], row["cp_wins"]]
        for row in rows("postpone")
    ]  # fmt: skip
    head = ["jobs", "limit s", "parts", "search: better plan", "proven", "CP-SAT: small enough",
            "better plan", "proven", "search has the better plan", "CP-SAT has"]  # fmt: skip
    return markdown(head, lines)


TABLES: dict[str, Callable[[], list[str]]] = {
    "planning": planning,
    "planning_bound": planning_bound,
    "planning_predicted": planning_predicted,
    "planning_settings": planning_settings,
    "planning_short": planning_short,
    "planning_times": planning_times,
    "first_decision": first_decision,
    "dumps": dumps,
    "dumps_corpus": dumps_corpus,
    "dumps_fresh": dumps_fresh,
    "optima": optima,
    "postponing": postponing,
    "quality_main": main_table,
    "quality_waits": waits,
    "quality_shares": shares,
    "quality_differences": differences,
    "quality_predictors": predictors,
    "quality_models": models,
    "quality_published": published,
    "quality_accuracy": accuracy,
    "quality_classes": classes,
    "parts": parts,
    "power": power,
    "learning_tune": learning_tune,
    "learning_whole": learning_whole,
    "learning_threshold": learning_threshold,
    "learning_mixed": learning_mixed,
    "small_first": small_first,
    "untuned": untuned,
    "untuned_all": untuned_all,
    "untuned_best": untuned_best,
    "untuned_conclusions": untuned_conclusions,
    "untuned_gap": untuned_gap,
    "untuned_known": untuned_known,
    "untuned_model": untuned_model,
    "orderings_whole": orderings_whole,
    "orderings": orderings,
    "orderings_fit": orderings_fit,
    "test_runs_whole": test_runs_whole,
    "test_runs_shares": test_runs_shares,
    "test_runs_costs": test_runs_costs,
    "test_runs_cuts": test_runs_cuts,
    "test_runs_loads": test_runs_loads,
    "energy_caps": energy_caps,
    "energy_hours": energy_hours,
    "energy_off": energy_off,
    "energy_failures": energy_failures,
    "failures": failures,
}


def plotted() -> str:
    """The figures of the first picture as text: kept in it, so that a test can compare them."""
    return "; ".join(
        f"{dispatcher}: " + ", ".join("/".join(f"{value:.3f}" for value in each) for each in of)
        for dispatcher, of in relative().items()
    )


def plotting() -> Any:
    """Matplotlib, which then writes the same picture every time."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams |= {
        "svg.hashsalt": "cpdispatch",
        "axes.prop_cycle": pyplot.cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    return pyplot


def draw() -> None:
    """Draw the first table: mean bounded slowdown over EASY's."""
    pyplot = plotting()
    figure, axes = pyplot.subplots(figsize=(7.2, 3.2), layout="constrained")
    for place, (dispatcher, of) in enumerate(relative().items()):
        if dispatcher == "easy":
            continue
        y = [log + 0.17 * (place - 2.5) for log in range(len(LOGS))]
        means = [mean for _, mean, _ in of]
        around = [[mean - low for low, mean, _ in of], [high - mean for _, mean, high in of]]
        mark = MARKS[place % len(MARKS)]
        axes.errorbar(means, y, xerr=around, fmt=mark, ms=5, capsize=2, label=dispatcher)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(LOGS)), LOGS.values())
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1)
    axes.set_xlabel("mean bounded slowdown / that of easy (1: the same; less is better)")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None, "Description": plotted()})
    pyplot.close(figure)


Point = tuple[int, dict[str, float]]
"""Length of a test in seconds, 0 for none, and the figures of a row."""
CURVES = {
    "easy, tests after backfilling": ("easy", ""),
    "easy, tests before backfilling": ("easy", ",tests=backfill"),
    "easy, tests first, waits bounded": ("easy", BOUNDED),
    "best, tests after backfilling": ("best", ""),
}
"""What is drawn: the dispatcher, and the end of its name with test runs."""
ABOVE, BESIDE, BELOW = ((0, 11), "center"), ((8, -3), "left"), ((0, -16), "center")
BELOW_LEFT = (-5, -12), "right"
LABELS = (
    dict.fromkeys((30, 120, 600, 1800), ABOVE),
    {30: BELOW_LEFT, 1800: BESIDE},
    {1800: BESIDE},
    {30: BELOW, 1800: BESIDE},
)
"""Where the labels of each curve are, by the length of the test; others have no room for one."""


def lengths() -> dict[str, dict[str, list[Point]]]:
    """By log and curve, slowdown with its interval and lost work, by the length of a test."""
    columns = ("lost_percent", "slowdown", "slowdown_low", "slowdown_high")
    found: dict[str, dict[str, list[Point]]] = {}
    for log in ("KTH", "CTC"):
        for curve, (rule, way) in CURVES.items():
            names = {0: PLAIN[rule]}
            names |= {test_s: f"{rule}:test={test_s}{way}" for test_s in TEST_LENGTHS_S}
            points = [
                (test_s, {column: float(row[column]) for column in columns})
                for test_s, name in names.items()
                for row in rows_of_tests(log=log, size="0", dispatcher=name)
            ]
            if len(points) > 2 and points[0][0] == 0:
                found.setdefault(log, {})[curve] = points
    return found


def plotted_tests() -> str:
    """The figures of the picture of test runs as text, see `plotted`."""
    return "; ".join(
        f"{log} {curve}: "
        + ", ".join("/".join(map(str, [test_s, *row.values()])) for test_s, row in points)
        for log, curves in lengths().items()
        for curve, points in curves.items()
    )


def draw_tests() -> None:
    """Draw mean bounded slowdown against lost work for tests of several lengths."""
    pyplot = plotting()
    found = lengths()
    figure, every = pyplot.subplots(
        1, max(len(found), 1), figsize=(7.6, 4.0), layout="constrained", squeeze=False
    )
    drawn: dict[str, Any] = {}
    for axes, (log, curves) in zip(every[0], found.items(), strict=False):
        for curve, points in curves.items():
            (_, without), *tests = points
            rule, place = CURVES[curve][0], list(CURVES).index(curve)
            rows = [row for _, row in tests]
            means = [row["slowdown"] for row in rows]
            drawn[curve] = axes.errorbar(
                [row["lost_percent"] for row in rows], means,
                yerr=[
                    [row["slowdown"] - row["slowdown_low"] for row in rows],
                    [row["slowdown_high"] - row["slowdown"] for row in rows],
                ],
                fmt=f"{MARKS[place]}-", ms=4, capsize=2, color=COLOURS[place],
            )  # fmt: skip
            drawn[f"{rule} without tests"] = axes.axhline(
                without["slowdown"], color="black", linestyle="--" if rule == "easy" else ":", lw=1
            )
            for test_s, row in tests:
                if test_s not in LABELS[place]:
                    continue
                text = f"{test_s} s" if test_s < 60 else f"{test_s // 60} min"
                offset, side = LABELS[place][test_s]
                axes.annotate(
                    text, (row["lost_percent"], row["slowdown"]), xytext=offset,
                    textcoords="offset points", fontsize=7.5, ha=side,
                )  # fmt: skip
        axes.set_title(log, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.set_xscale("log")
        axes.set_xlim(0.025, 20)
        axes.set_xticks([0.03, 0.1, 0.3, 1, 3, 10], ["0.03", "0.1", "0.3", "1", "3", "10"])
        axes.minorticks_off()
        axes.set_xlabel("work lost, %")
    every[0][0].set_ylabel("mean bounded slowdown")
    figure.legend(
        drawn.values(), drawn, loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )
    figure.savefig(TESTS_PICTURE, metadata={"Date": None, "Description": plotted_tests()})
    pyplot.close(figure)


def plotted_caps() -> str:
    """The figures of the picture of caps as text, see `plotted`."""
    columns = ("value", "dispatcher", "bounded_slowdown_mean", "energy_kwh", "makespan_s")
    return "; ".join("/".join(row[column] for column in columns) for row in rows("energy_caps"))


def draw_caps() -> None:
    """Draw what users wait and what is drawn, by the cap on the power."""
    pyplot = plotting()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7.2, 3.0), layout="constrained")
    for name, style in (("easy", "o-"), ("easy-saf-saf:wait=0.8", "s--")):
        of = sorted(rows("energy_caps", dispatcher=name), key=lambda row: float(row["value"]))
        caps = [float(row["value"]) for row in of]
        means, deviations = (
            [float(row[f"bounded_slowdown_mean{end}"]) for row in of] for end in ("", "_sd")
        )
        left.errorbar(caps, means, yerr=deviations, fmt=style, ms=4, capsize=2, label=name)
    for column, what in (("energy_kwh", "energy"), ("power_w_max", "highest power")):
        of = sorted(rows("energy_caps", dispatcher="easy"), key=lambda row: float(row["value"]))
        share = [100 * float(row[column]) / float(of[-1][column]) for row in of]
        right.plot([float(row["value"]) for row in of], share, "o-", ms=4, label=f"{what}, easy")
    left.set_yscale("log")
    left.set_yticks([10, 20, 50, 100, 200, 500], ["10", "20", "50", "100", "200", "500"])
    left.minorticks_off()
    left.set_ylabel("mean bounded slowdown")
    right.set_ylabel("% of that at 100 %")
    right.set_ylim(0, 105)
    for axes in (left, right):
        axes.set_xlabel("cap, % of what the system can draw")
        axes.invert_xaxis()
        axes.legend(fontsize=7, frameon=False)
    figure.savefig(CAPS_PICTURE, metadata={"Date": None, "Description": plotted_caps()})
    pyplot.close(figure)


PICTURES = {
    CAPS_PICTURE: (plotted_caps, draw_caps),
    PICTURE: (plotted, draw),
    TESTS_PICTURE: (plotted_tests, draw_tests),
}
"""Each picture with what it holds as text, and what draws it."""


def current(text: str) -> str:
    """The text of a page with the tables of the CSV files."""

    def block(found: re.Match[str]) -> str:
        make = TABLES.get(found[2], lambda: whole(found[2]))
        return f"{found[1]}\n" + "\n".join(make()) + f"\n\n{found[3]}"

    return BLOCK.sub(block, text)


def stale() -> Iterator[Path]:
    """The pages whose tables are not those of the CSV files, and the pictures that are not."""
    for page in PAGES:
        text = page.read_text()
        if current(text) != text:
            yield page
    for picture, (held, _) in PICTURES.items():
        if not picture.exists() or held() not in picture.read_text():
            yield picture


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    given = parser.parse_args()
    found = list(stale())
    for path in found:
        print(f"{path.relative_to(DOCS.parent)}: not as the CSV files say", file=sys.stderr)
        if given.write and path in PICTURES:
            PICTURES[path][1]()
        elif given.write:
            path.write_text(current(path.read_text()))
    return int(bool(found) and not given.write)


if __name__ == "__main__":
    sys.exit(main())
