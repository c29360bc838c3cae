"""Draw one_job.svg, the way of one job through the package: `python docs/figures/one_job.py`."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, BOX, HEIGHT, GAP = 940, 270, 74, 34
# column, row, title, lines below it
BOXES = {
    "log": (0, 0, "log file", ["SWF, CSV, Parquet"]),
    "workload": (0, 1, "Workload", ["workloads.prepare: read, select;", "jobs cut into units"]),
    "predictor": (1, 1, "Predictor", ["says expected durations;", "learns when jobs end"]),
    "advance": (
        0,
        2,
        "Simulation.advance",
        ["simulator: goes on to the next", "submission or completion"],
    ),
    "instance": (1, 2, "Instance", ["immutable snapshot: queue,", "running jobs, free capacity"]),
    "dispatcher": (2, 2, "Dispatcher", ["heuristics or models,", "put together by dispatch"]),
    "decision": (2, 3, "Decision", ["starts, reasons, nodes,", "certificate"]),
    "verify": (1, 3, "verify", ["independent check", "of the decision"]),
    "apply": (
        0,
        3,
        "Simulation.apply",
        ["starts jobs; simulator.records", "writes down what happens"],
    ),
    "run": (0, 4, "Run", ["tables of jobs and decisions;", "analyze: metrics, comparison"]),
}
ARROWS = [
    ("log", "workload", ""),
    ("workload", "advance", "submissions"),
    ("advance", "predictor", ""),
    ("advance", "instance", ""),
    ("instance", "dispatcher", ""),
    ("dispatcher", "decision", ""),
    ("decision", "verify", ""),
    ("verify", "apply", ""),
    ("apply", "advance", "until all jobs have ended"),
    ("apply", "run", "then"),
]


def place(name: str) -> tuple[float, float]:
    column, row, _, _ = BOXES[name]
    step = (WIDTH - BOX - 20) / 2
    return 10 + column * step, 10 + row * (HEIGHT + GAP)


def box(name: str) -> list[str]:
    (x, y), (_, _, title, lines) = place(name), BOXES[name]
    found = [
        f'<rect x="{x}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="8" class="box"/>',
        f'<text x="{x + BOX / 2}" y="{y + 24}" class="title">{escape(title)}</text>',
    ]
    return found + [
        f'<text x="{x + BOX / 2}" y="{y + 44 + 17 * k}" class="line">{escape(line)}</text>'
        for k, line in enumerate(lines)
    ]


def arrow(begin: str, end: str, label: str) -> list[str]:
    """A line from box to box: to the side, up or down, or from corner to corner."""
    (x0, y0), (x1, y1) = place(begin), place(end)
    side, down = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    xs = [x + BOX / 2 * (1 + sign * side) for x, sign in ((x0, 1), (x1, -1))]
    ys = [y + HEIGHT / 2 * (1 + sign * down) for y, sign in ((y0, 1), (y1, -1))]
    xs[1] -= 7 * side
    ys[1] -= 7 * down
    found = [f'<line x1="{xs[0]}" y1="{ys[0]}" x2="{xs[1]}" y2="{ys[1]}" class="arrow"/>']
    if label:
        found.append(f'<text x="{xs[0] + 9}" y="{sum(ys) / 2 + 5}" class="label">{label}</text>')
    return found


def main() -> None:
    height = 20 + 5 * HEIGHT + 4 * GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Helvetica, Arial, sans-serif">',
        "<style>.box{fill:#eef3fa;stroke:#3b6ea5;stroke-width:1.5}"
        ".title{font-size:17px;font-weight:bold;text-anchor:middle;fill:#1b2b3a}"
        ".line{font-size:13px;text-anchor:middle;fill:#1b2b3a}"
        ".label{font-size:12.5px;fill:#555}"
        ".arrow{stroke:#3b6ea5;stroke-width:1.8;fill:none;marker-end:url(#head)}"
        "</style>",
        '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="4" refY="4" '
        'orient="auto"><path d="M0,0 L9,4 L0,8 z" fill="#3b6ea5"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for name in BOXES:
        lines += box(name)
    for each in ARROWS:
        lines += arrow(*each)
    lines += ["</svg>", ""]
    Path(__file__).with_suffix(".svg").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
