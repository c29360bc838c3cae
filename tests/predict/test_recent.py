from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.predict.recent import Recent


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_the_keys_that_were_set_last_are_kept(keys: list[int], most: int) -> None:
    recent: Recent[int, int] = Recent(most)
    for position, key in enumerate(keys):
        recent.get(0)
        recent.set(key, position)
    by_age = list(dict.fromkeys(reversed(keys)))
    assert len(recent) == min(most, len(by_age))
    last = {key: position for position, key in enumerate(keys)}
    for age, key in enumerate(by_age):
        assert recent.get(key) == (last[key] if age < most else None)
