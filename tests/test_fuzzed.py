"""Inputs that once broke a reader, as `benchmarks/fuzz.py` checks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import script

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus"
INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


FUZZ = script("benchmarks/fuzz.py")


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_what_once_broke_a_reader_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    FUZZ.check(path.parent.name, path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", FUZZ.TARGETS)
def test_the_seeds_of_a_target_are_read(name: str, tmp_path: Path) -> None:
    target = FUZZ.TARGETS[name]
    for seed in target.seeds():
        target.check(seed, tmp_path)


def test_what_a_reader_must_not_raise_is_found(tmp_path: Path) -> None:
    def broken(data: bytes, folder: Path) -> None:
        raise KeyError(len(data))

    FUZZ.TARGETS["broken"] = FUZZ.Target(broken, lambda: iter(()))
    try:
        with pytest.raises(KeyError):
            FUZZ.check("broken", b"", tmp_path)
    finally:
        del FUZZ.TARGETS["broken"]


def test_a_broken_input_is_made_as_small_as_it_can_be() -> None:
    assert FUZZ.smaller(b"a" * 300 + b"xy" + b"b" * 500, lambda data: b"x" in data) == b"x"
