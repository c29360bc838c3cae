"""Record slurm_watch.svg and slurm_drive.svg on a Slurm of its own: `python docs/figures/slurm.py`.

It needs Slurm, as the live tests do: see benchmarks/slurm.py. It starts a cluster on this machine,
runs the commands that the pictures show, and draws what they print.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.adapters.slurm.cluster import missing, until
from tests.adapters.slurm.test_live import Site, site

FIGURES = Path(__file__).resolve().parent
WIDTH = 100


def printed(made: Site, *command: str) -> str:
    """What a command of the project prints."""
    done = subprocess.run(
        [sys.executable, "-c", "from cpdispatch.cli import main; main()", *command],
        env=os.environ | made.slurm.environment | {"COLUMNS": str(WIDTH)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def drawn(name: str, title: str, parts: list[tuple[str, str]]) -> None:
    """A picture of a terminal in which these commands were given."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for command, said in parts:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text(said.rstrip()), soft_wrap=False)
    text = console.export_svg(title=title, theme=DEFAULT_TERMINAL_THEME, unique_id=name)
    # No font from elsewhere: what the reader has of that kind is shown.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    text = text.replace("Fira Code, monospace", "monospace")
    lines = [line.rstrip() for line in text.splitlines()]
    (FIGURES / f"{name}.svg").write_text("\n".join(lines) + "\n")


def work(made: Site, longest_s: int) -> None:
    """Jobs that fill eight nodes, and more that have to wait."""
    submit = made.slurm.submit
    for _ in range(3):
        submit("--nodes=2", "--exclusive", "--mem=1000", "--time=3", seconds=longest_s)
    submit("--nodes=8", "--exclusive", "--mem=1000", "--time=5", seconds=2)
    submit("--array=0-5%2", "--nodes=1", "--mem=4000", "--time=2", seconds=6)
    submit("--nodes=1", "--gres=gpu:4", "--mem=1000", "--time=2", seconds=3)
    submit("--nodes=1", "--mem=1000", "--time=60", "--exclusive", seconds=3)
    submit("--nodes=1", "--mem=1000", "--time=2", "--licenses=matlab:2", seconds=3)


def main() -> None:
    if missing():
        raise SystemExit(missing())
    with site(nodes=8, plugin="", backfill_s=600) as made:
        rest = ("--socket", str(made.slurm.socket))
        work(made, 60)
        until(lambda: made.states().count("RUNNING") >= 3, "nothing runs")
        said = printed(made, "slurm", "watch", *rest, "-d", "easy", "--cycles", "1")
        why = printed(made, "slurm", "explain", *rest, "--job", "4", "-d", "easy")
    drawn(
        "slurm_watch", "A cluster that is watched",
        [("cpdispatch slurm watch -d easy --cycles 1", said),
         ("cpdispatch slurm explain --job 4 -d easy", why)],
    )  # fmt: skip
    with site(nodes=8) as made:
        state = str(made.state)
        given = ("slurm", "drive", "--socket", str(made.slurm.socket), "--state", state)
        driver = made.drive("-d", "easy", every="2s")
        made.wait(made.alive, "the driver does not live")
        work(made, 9)
        made.wait(lambda: made.states().count("COMPLETED") >= 5, "nothing ends")
        stop = printed(made, *given, "--stop")
        said, _ = driver.communicate(timeout=60)
    lines = [line for line in said.splitlines() if not line.startswith("cpdispatch: compiling")]
    folder = "/var/lib/cpdispatch"
    drawn(
        "slurm_drive", "A cluster that is driven",
        [(f"cpdispatch slurm drive -d easy --every 2s --state {folder}", "\n".join(lines)),
         (f"cpdispatch slurm drive --stop --state {folder}", stop)],
    )  # fmt: skip


if __name__ == "__main__":
    main()
