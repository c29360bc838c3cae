"""The bound on waits goes on after a restart of the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpdispatch import dispatch
from cpdispatch.adapters.slurm.drive import Driver
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.adapters.slurm.waits import NAME, OLD_S, Waits
from cpdispatch.bounded import EasyShadow
from tests.adapters.slurm.recorded import Recorded

NAMED = "easy-spf-spf:wait=0.8"


def load(slurm: Recorded) -> None:
    """More than the cluster has room for: jobs wait, here and under EASY."""
    row = slurm.row(14)
    for number in range(300, 400):
        new = {"job_id": number, "time_limit": 1 + number % 7, "seconds": 20 + number % 9 * 10}
        slurm.data["jobs"].append(row | new)


def driver(slurm: Recorded, folder: Path) -> Driver:
    return Driver(slurm, dispatch.make(NAMED), folder, Rules())


def shadow_of(made: Driver) -> EasyShadow:
    found = made._dispatcher.shadow  # type: ignore[attr-defined]
    assert isinstance(found, EasyShadow)
    return found


def follow(folder: Path, again: int) -> tuple[list[dict[str, list[str]]], list[int]]:
    """What 40 cycles release, and the longest wait, with a new driver after so many cycles each."""
    slurm = Recorded.load()
    load(slurm)
    released, longest_s = [], []
    made = driver(slurm, folder)
    for cycle in range(40):
        if cycle and again and cycle % again == 0:
            made = driver(slurm, folder)
        released.append(made.cycle().released)
        longest_s.append(shadow_of(made).longest_s)
        assert made.waits.told == ()
        slurm.step(5)
    return released, longest_s


def test_a_driver_that_is_started_again_decides_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = follow(tmp_path / "whole", 0)
    assert whole[1][-1] > 60
    assert follow(tmp_path / "again", 3) == whole


def test_what_is_kept_is_the_same_after_it_was_read(tmp_path: Path) -> None:
    slurm = Recorded.load()
    load(slurm)
    made = driver(slurm, tmp_path)
    for _ in range(6):
        made.cycle()
        slurm.step(5)
    kept = shadow_of(made).keep()
    other = EasyShadow()
    other.restore(msgspec.json.decode(msgspec.json.encode(kept), type=type(kept)))
    assert other.keep() == kept
    assert not other.fresh


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace(b'"longest_s":', b'"longest_s":9'), "it is damaged"),
        (lambda text: text[: len(text) // 2], "is now waits.json.damaged-1"),
        (lambda text: b"", "is now waits.json.damaged-1"),
    ],
)
def test_a_broken_file_is_told_of_and_the_bound_begins_anew(
    tmp_path: Path, change: Any, said: str
) -> None:
    slurm = Recorded.load()
    driver(slurm, tmp_path).cycle()
    path = tmp_path / NAME
    path.write_bytes(change(path.read_bytes()))
    made = driver(slurm, tmp_path)
    made.cycle()
    assert said in made.waits.told[0]
    assert len(made.waits.told) == 1
    again = driver(slurm, tmp_path)
    again.cycle()
    assert again.waits.told == ()


def test_a_file_that_is_old_or_of_another_cluster_or_time_is_not_used(tmp_path: Path) -> None:
    def told(slurm: Recorded) -> str:
        driver(Recorded.load(), tmp_path).cycle()
        made = driver(slurm, tmp_path)
        made.cycle()
        (text,) = made.waits.told
        return text

    slurm = Recorded.load()
    slurm.data["now_s"] += OLD_S + 86_400
    assert "it is 31 days old: the bound on waits begins anew" in told(slurm)
    slurm = Recorded.load()
    slurm.data["now_s"] -= 60
    assert "from later than now" in told(slurm)
    slurm = Recorded.load()
    del slurm.data["nodes"][3]
    assert "had 256 processors then, and has 240 now" in told(slurm)


def test_nothing_is_kept_without_a_bound_and_nothing_written_in_a_dry_run(tmp_path: Path) -> None:
    Driver(Recorded.load(), dispatch.make("easy"), tmp_path, Rules()).cycle()
    Driver(Recorded.load(), dispatch.make(NAMED), tmp_path, Rules(dry=True)).cycle()
    assert not (tmp_path / NAME).exists()
    assert Waits(dispatch.make("easy"), tmp_path).told == ()


def test_a_shadow_of_another_shape_is_refused() -> None:
    from cpdispatch.compiled import shadow

    arrays = shadow.used(shadow.fresh(8))
    assert shadow.used(shadow.restored(arrays)) == arrays
    with pytest.raises(ValueError, match="zip"):
        shadow.restored(arrays[:-1])
    arrays[0][0] = arrays[0][0][:-1]
    with pytest.raises(ValueError, match="zip"):
        shadow.restored(arrays)
