from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import pytest

from cpdispatch import dispatch, toys
from cpdispatch.dispatch import Settings
from cpdispatch.garbage import no_collection, settle


@pytest.mark.parametrize(
    "spec", ["best", "easy-saf-saf:wait=0.8", "hcp", "pcp", "hyper", "thesis-hcp", "thesis-pcp"]
)
def test_no_search_for_garbage_holds_a_decision_up(spec: str) -> None:
    made = dispatch.make(spec, Settings(0.05))
    searching: list[str] = []
    called = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal called
        code = frame.f_code
        if event == "call" and "cpdispatch" in code.co_filename and code.co_name != "no_collection":
            called += 1
            if gc.isenabled():
                searching.append(code.co_qualname)

    for instance in toys.every_kind():
        sys.setprofile(note)
        try:
            made.dispatch(instance)
        finally:
            sys.setprofile(None)
    assert called > 100
    assert not searching
    assert gc.isenabled()


def test_whoever_has_switched_the_search_off_finds_it_off() -> None:
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with no_collection(), no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_a_dispatcher_needs_is_left_out_of_later_searches() -> None:
    settle.cache_clear()
    before = gc.get_freeze_count()
    dispatch.make("easy")
    settled = gc.get_freeze_count()
    assert settled > max(before, 10_000)
    dispatch.make("easy")
    assert gc.get_freeze_count() <= settled, "once is enough"
