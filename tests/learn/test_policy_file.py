from __future__ import annotations

import re
from pathlib import Path

import pytest

from cpdispatch import dispatch
from cpdispatch.errors import CpdispatchError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import find, mix, polynomial
from cpdispatch.learn.policy_file import to_toml, write

LEARNED = {
    "names": Backfill(find("saf"), find("spf"), 72_000),
    "mix": Backfill(mix({"wait": -0.25, "area": 1e-7}), mix({"wait": -0.25, "area": 1e-7})),
    "mix over spf": Backfill(mix({"ratio": 1.0}), find("spf")),
    "polynomial": Backfill(polynomial({"1": 0.03, "p^2 q": 1e-13, "r": -1.5e-7}), find("lin")),
    "small first": Backfill(find("small+spf"), find("saf")),
}


@pytest.mark.parametrize("name", LEARNED)
def test_a_policy_file_gives_the_dispatcher_that_it_was_written_from(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    write(path, LEARNED[name], ["How it was learned", "in two lines"])
    made = dispatch.make(str(path))
    assert isinstance(made, Backfill)
    for field in ("primary", "secondary", "threshold_s"):
        assert getattr(made, field) == getattr(LEARNED[name], field)
    assert path.read_text().startswith("# How it was learned\n# in two lines\n")


MIX = 'dispatcher = "easy"\n[primary]\npolicy = "mix"\nweights = {%s}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MIX % "wiat = 1.0", "unknown feature 'wiat'; did you mean wait"),
        (MIX % "wait = 0.0, area = 0", "every weight is 0"),
        (MIX % 'wait = "much"', "weight of wait: 'much' is not a number"),
        (MIX % "wait = nan", "weight of wait: nan is no number from -1e+100 to 1e+100"),
        (to_toml(LEARNED["polynomial"]).replace("p^2 q", "p^9"), "unknown term 'p^9'"),
    ],
)
def test_a_policy_file_that_means_nothing_is_one_clear_error(
    content: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(content)
    with pytest.raises(CpdispatchError, match=re.escape(message)) as caught:
        dispatch.make(str(path))
    assert str(path) in str(caught.value)
