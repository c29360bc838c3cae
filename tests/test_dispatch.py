from __future__ import annotations

import datetime
import re
import sys
import threading
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch.bounded import Bounded
from cpdispatch.decision import Certificate, Decision
from cpdispatch.dispatch import REGISTRY, Settings
from cpdispatch.errors import (
    CpdispatchError,
    DecisionError,
    InputError,
    RenamedWarning,
    UsageError,
)
from cpdispatch.heuristics.backfill import ALL, Backfill
from cpdispatch.heuristics.limits import LIMITS
from cpdispatch.heuristics.policies import NO_THRESHOLD, Order, find
from cpdispatch.instance import Instance
from tests.effort import examples
from tests.strategies import instances, read


def backfill(spec: str) -> Backfill:
    made = dispatch.make(spec)
    assert isinstance(made, Backfill)
    return made


def inner(spec: str) -> Any:
    """A dispatcher without the bound on its waits."""
    made: Any = dispatch.make(spec)
    return getattr(made, "inner", made)


def test_easy_has_two_orders_in_its_name_or_as_parameters() -> None:
    plain, named = backfill("easy"), backfill("easy-saf-spf")
    spelt = backfill("easy:primary=saf,backfill=spf,threshold=200000,allocate=best-fit")
    assert (plain.primary, plain.secondary, plain.depth) == (find("fcfs"), find("fcfs"), 1)
    assert (named.primary, named.secondary) == (find("saf"), find("spf"))
    assert (spelt.primary, spelt.secondary) == (find("saf"), find("spf"))
    assert (spelt.threshold_s, spelt.best_fit) == (200_000, True)
    assert (plain.threshold_s, plain.best_fit) == (NO_THRESHOLD, False)


@pytest.mark.parametrize("name", ["easy", "conservative", "hcp", "hyper"])
@pytest.mark.parametrize("limits", list(LIMITS))
def test_limits_are_a_parameter_of_whatever_plans_ahead(name: str, limits: str) -> None:
    made = inner(f"{name}:limits={limits}")
    assert (made.settings["limits"] if name == "hyper" else made.limits) == limits


@pytest.mark.parametrize(
    ("spec", "primary", "depth"),
    [
        ("fifo", find("fcfs"), 0),
        ("sjf", find("spf"), 0),
        ("ljf", find("lpf"), 0),
        ("easy:depth=3", find("fcfs"), 3),
        ("easy:depth=all", find("fcfs"), ALL),
        ("conservative", find("fcfs"), ALL),
    ],
)
def test_the_family_differs_by_order_and_depth(spec: str, primary: Order, depth: int) -> None:
    made = backfill(spec)
    assert (made.primary, made.secondary, made.depth) == (primary, primary, depth)


def test_a_dispatcher_is_called_what_the_user_called_it(tmp_path: Path) -> None:
    assert dispatch.make("easy-saf-spf").name == "easy-saf-spf"
    assert dispatch.make("prb:allocate=best-fit").name == "prb:allocate=best-fit"


def test_a_toml_file_holds_a_dispatcher_with_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('dispatcher = "easy"\nprimary = "saf"\nbackfill = "spf"\nthreshold = 7200\n')
    made = backfill(str(path))
    assert (made.primary, made.secondary, made.threshold_s) == (find("saf"), find("spf"), 7200)


def test_a_toml_file_without_a_dispatcher_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('primary = "saf"\n')
    with pytest.raises(
        InputError, match=r"mine\.toml: field dispatcher: the name of a dispatcher is missing"
    ):
        dispatch.make(str(path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("threshold = -5", r"mine\.toml: dispatcher easy, threshold=-5: "),
        ('backfil = "spf"', r"mine\.toml: dispatcher easy has no parameter 'backfil'"),
    ],
)
def test_an_error_in_a_toml_file_names_the_file(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'dispatcher = "easy"\n{text}\n')
    with pytest.raises(UsageError, match=says):
        dispatch.make(str(path))


def test_a_time_in_parts_of_its_unit_is_taken_as_whole_seconds() -> None:
    assert [dispatch.make(f"easy:threshold={time}").threshold_s for time in ("1.1h", "2.2h")] == [
        3960, 7920,
    ]  # fmt: skip


def test_a_module_that_changes_the_path_leaves_it_without_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pathed.py").write_text(
        "import sys\nsys.path.insert(0, 'lib')\n"
        "class Own:\n    name = 'own'\n    def dispatch(self, instance): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    dispatch.make("pathed:Own")
    assert sys.path == ["lib", *before]


def test_the_gap_of_a_value_of_0_above_its_bound_is_unknown() -> None:
    assert Certificate("own", value=0.0, bound=-1.0).gap is None
    assert Certificate("own", value=0.0, bound=0.0).gap == 0
    assert Certificate("own", value=4.0, bound=3.0).gap == 0.25


def test_parameters_after_the_name_of_a_file_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"no parameters after its name; write them into a/b\.toml"
    ):
        dispatch.make("a/b.toml:threshold=7200")


class Own:
    name = "own"

    def dispatch(self, instance: Instance) -> object:
        return instance


ready = Own()


def useless() -> int:
    return 3


class Lines(Own):
    name = "a\nb"


class Unnamed(Own):
    @property
    def name(self) -> str:  # type: ignore[override]
        raise RuntimeError("none")


class Numbered(Own):
    name = 3  # type: ignore[assignment]


class Nameless:
    __slots__ = ()

    def dispatch(self, instance: Instance) -> object:
        return instance


class Steady(Own):
    name = property(lambda self: "steady")  # type: ignore[assignment]

    def __init__(self, share: float = 1.0) -> None:
        pass


class Seeded(Own):
    def __init__(self, seed: int) -> None:
        self.seed = seed


def test_what_makes_a_users_own_dispatcher_is_told_the_seed_if_it_takes_one() -> None:
    made: Any = dispatch.make("tests.test_dispatch:Seeded", Settings(seed=5))
    assert made.seed == 5


def test_a_dispatcher_of_the_users_own_is_imported_as_a_class_or_an_object() -> None:
    assert isinstance(dispatch.make("tests.test_dispatch:Own"), Own)
    one, other = (dispatch.make("tests.test_dispatch:ready") for _ in range(2))
    assert isinstance(one, Own)
    assert len({id(one), id(other), id(ready)}) == 3, "runs would share what it remembers"


def test_an_object_that_cannot_be_copied_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "lock", threading.Lock(), raising=False)
    with pytest.raises(UsageError, match=r"ready: it cannot be copied: TypeError.*name its class"):
        dispatch.make("tests.test_dispatch:ready")


def test_a_users_module_is_found_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my_site_policies"
    folder.mkdir()
    (folder / "night.py").write_text("class Night:\n    def dispatch(self, instance): ...\n")
    monkeypatch.chdir(tmp_path)
    assert dispatch.make("my_site_policies.night:Night").name == "my_site_policies.night:Night"


@dataclass
class Tuned:
    """Has parameters, and a name."""

    share: float = 1.0
    kind: str = "plain"
    seed: int = 0
    name: str = "tuned"

    def dispatch(self, instance: Instance) -> Decision:
        raise NotImplementedError


def test_a_dispatcher_of_the_users_own_takes_parameters() -> None:
    plain = dispatch.make("tests.test_dispatch:Tuned", Settings(seed=7))
    assert plain == Tuned(seed=7)
    spec = "tests.test_dispatch:Tuned:share=0.5,kind=of two words"
    assert dispatch.make(spec, Settings(seed=7)) == Tuned(0.5, "of two words", 7, spec)
    spec = "tests.test_dispatch:Tuned:seed=3"
    assert dispatch.make(spec, Settings(seed=7)) == Tuned(seed=3, name=spec)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("esy", "did you mean easy"),
        ("tests.test_dispatch:Tuned:shore=1", "has no parameter 'shore'; did you mean share"),
        ("tests.test_dispatch:Tuned:share", "'share' is not of the form parameter=value"),
        ("tests.test_dispatch:Tuned:seed=1,seed=2", "the parameter seed is given twice, 1 and 2"),
        ("tests.test_dispatch:ready:share=1", "an object takes no parameters; name what makes it"),
        ("tests.test_dispatch:Steady:share=1", "it has the name 'steady' for all parameters"),
        ("easy-sef-spf", "did you mean sexp|unknown policy 'sef'"),
        ("easy:treshold=3", "did you mean threshold"),
        ("easy:threshold=soon", "threshold=soon"),
        ("easy:depth=-1", "0 or more, or all"),
        ("easy:allocate=worst", "first-fit or best-fit"),
        ("easy:primary", "not of the form parameter=value"),
        ("reject:m=3", "it has: none"),
        ("nowhere.at_all:Thing", "cannot be imported"),
        ("tests.test_dispatch:Thing", "has no attribute 'Thing'"),
        ("tests.test_dispatch:useless", "it has no method dispatch"),
        ("tests.test_dispatch:Lines", r"its name is a text of one line, not empty \(found 'a\\nb'"),
        ("tests.test_dispatch:Unnamed", r"its name raised RuntimeError: none \(test_dispatch.py:"),
        ("tests.test_dispatch:Numbered", r"its name is a text of one line, not empty \(found 3\)"),
        ("tests.test_dispatch:Nameless", "it has no name, and cannot be given one"),
        ("tests.test_dispatch.Own", "cannot be imported.*is tests.test_dispatch:Own meant?"),
        ("nowhere.py:Own", "cannot be imported.*is nowhere:Own meant?"),
        ("hcp:limit=0", "a positive number"),
        ("hcp:m=0", "1 or more"),
        ("hcp:objective=beauty", "one of ewt_excess"),
        ("easy:limits=upr", "one of expected, upper, requested is needed"),
        ("hyper:limits=upr", "one of expected, upper, requested is needed"),
        ("thesis-pcp5:limits=upper", "thesis-pcp5 has no parameter 'limits'"),
        ("pcp:model=circles", "one of copies, counts, boxes is needed"),
        ("hcp:model=boxes", "hcp has no parameter 'model'"),
        ("hcp3:engine=of", "parameter engine was removed"),
        ("thesis-pcp9", "did you mean thesis-pcp"),
        ("esy:primary", "esy cannot be imported.*did you mean easy"),
        ("easy-spf", "write easy-P-B, for example easy-spf-spf"),
        ("easy-spf-saf-f1", "write easy-P-B, for example easy-spf-saf"),
        ("fifo-spf-spf", "unknown dispatcher 'fifo-spf-spf'"),
        ("easy-saf-saf:backfill=spf", "says backfill already: leave backfill=spf out"),
        ("easy:threshold=3,threshold=4", "threshold is given twice, 3 and 4"),
        ("easy:threshold=24q", "threshold=24q: a time such as 90min or 24h"),
        ("easy:threshold=0", "threshold=0: a time such as 90min or 24h"),
        ("easy:depth=deep", "depth=deep: a whole number, 0 or more, or all, is needed"),
        ("hcp:limit=soon", "limit=soon: a time such as 500ms"),
        ("hcp:m=1.5", "m=1.5: a whole number, 1 or more, is needed"),
        ("hcp:patience=much", "patience=much: a share of the limit"),
        ("best:width=wide", "width=wide: a number is needed"),
        (
            "best:cp=on",
            "parameter cp was removed: best is backfilling alone; leave cp out, or use",
        ),
    ],
)
def test_what_cannot_be_a_dispatcher_is_one_clear_error(spec: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        dispatch.make(spec)


@pytest.mark.parametrize("limit_s", [float("nan"), float("inf"), -1, 0, "1", None, True])
def test_a_limit_is_a_positive_number_of_seconds(limit_s: Any) -> None:
    with pytest.raises(UsageError, match=r"^limit_s .*: a positive number of seconds is needed$"):
        Settings(limit_s=limit_s)


@pytest.mark.parametrize("seed", ["a", 1.5, None, -5, 2**70, True])
def test_a_seed_is_a_whole_number_that_the_solver_takes(seed: Any) -> None:
    with pytest.raises(UsageError, match=r"^seed .*: a whole number, .* is needed$"):
        Settings(seed=seed)


@pytest.mark.parametrize("spec", [None, 3, Path("easy.toml")])
def test_a_dispatcher_is_named_by_a_text(spec: Any) -> None:
    with pytest.raises(UsageError, match=r"^dispatcher .*: a text is needed, as easy or"):
        dispatch.make(spec)


def test_settings_may_be_numbers_of_numpy() -> None:
    settings: Any = Settings(np.float64(0.5), np.int64(3))
    assert (type(settings.limit_s), type(settings.seed)) == (float, int)


def test_times_of_parameters_may_have_a_unit() -> None:
    assert backfill("easy:threshold=24h").threshold_s == 86_400
    assert backfill("easy:threshold=200000").threshold_s == 200_000
    assert inner("hcp:limit=250ms").limit_s == 0.25
    assert inner("hcp:limit=0.5").limit_s == 0.5


def wrong(part: str) -> str:
    """The source of an answer that no job starts, with one part changed."""
    return (
        "import numpy as np; from dataclasses import replace; "
        "from cpdispatch import Certificate, Decision, Placements; "
        "right = Decision(np.array([-1]), np.array([3], np.int8), Placements.of({}), "
        f"Certificate('own')); return replace(right, {part})"
    )


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("raise KeyError('x')", r"own raised KeyError: 'x' \(mine.py:4\) at time 7 .*queue: 1\)"),
        (
            "import statistics; statistics.mean([])",
            r"own raised StatisticsError: .* \(mine.py:4\) at time 7",
        ),
        ("return None", "own answered with NoneType instead of a Decision at time 7"),
        (
            "from cpdispatch import Certificate, Decision; "
            "return Decision([], [], {0: {0: 1}}, Certificate('own'))",
            "own answered with dict as placements of its Decision at time 7 .*Placements is needed",
        ),
        (
            "from cpdispatch import Decision, Placements; "
            "return Decision([], [], Placements.of({}), None)",
            "own answered with NoneType as certificate of its Decision at time 7",
        ),
        (wrong("start_s=[-1]"), "own answered with list as start_s .* time 7 .*int64 array is nee"),
        (wrong("start_s=None"), "own answered with NoneType as start_s .*int64 array is needed"),
        (
            wrong("start_s=np.array([np.nan])"),
            "with a 1-dimensional float64 array as start_s .* a one-dimensional int64 array is nee",
        ),
        (wrong("start_s=np.array([0.4])"), "float64 array as start_s .*int64 array is needed"),
        (wrong("start_s=np.array(-1)"), "with a 0-dimensional int64 array as start_s .*int64 arr"),
        (wrong("reason=[3]"), "own answered with list as reason .*int8 array is needed"),
        (wrong("bound_s=[0]"), "own answered with list as bound_s .*int64 array is needed"),
        (wrong("bound_s=np.array([1.5])"), "float64 array as bound_s .*int64 array is needed"),
        (wrong("bound_s=np.array([np.nan])"), "float64 array as bound_s .*int64 array is needed"),
        (
            wrong("placements=Placements([0], [0, 1], [0], [1])"),
            r"own answered with list as placements\.position .*int64 array is needed",
        ),
        (
            wrong("placements=replace(Placements.of({0: {0: 1}}), units=np.array([1.0]))"),
            r"float64 array as placements\.units .*int64 array is needed",
        ),
        (
            wrong("certificate=Certificate('m', phases_ms=3)"),
            r"own answered with int as certificate\.phases_ms .*: a mapping is needed",
        ),
        (
            wrong("certificate=Certificate('m', value='12.5')"),
            r"own answered with str as certificate\.value .* time 7 .*: a real number or None is",
        ),
        (
            wrong("certificate=Certificate('m', value=np.float32(1), bound=1j)"),
            r"own answered with complex as certificate\.bound .*: a real number or None is needed",
        ),
        (
            wrong("certificate=Certificate('m', phases_ms={'plan': None})"),
            r"NoneType as certificate\.phases_ms\['plan'\] .*: a real number is needed",
        ),
        (
            wrong("certificate=Certificate('m', phases_ms={1: 2.0})"),
            r"int as a name in certificate\.phases_ms .*: a text of one line is needed",
        ),
        (
            wrong("certificate=Certificate(3)"),
            r"own answered with int as certificate\.model .* time 7 .*: a text of one line is need",
        ),
        (
            wrong("certificate=Certificate('m', status='good\\n')"),
            r"own answered with str as certificate\.status .*: a text of one line is needed",
        ),
        (
            wrong("certificate=Certificate('m', value=10**400)"),
            r"own answered with int as certificate\.value .*: a real number or None is needed",
        ),
        (
            wrong("certificate=Certificate('m', status='foo')"),
            r"own answered with 'foo' as certificate\.status .*: one of optimal, .* is needed",
        ),
        (
            wrong("certificate=Certificate('m', value=np.nan)"),
            r"own answered with nan as certificate\.value .*: a real number or None is needed",
        ),
        (
            wrong("certificate=Certificate('m', value=1.0, bound=-np.inf)"),
            r"own answered with -inf as certificate\.bound .*: a real number or None is needed",
        ),
        (
            wrong("certificate=Certificate('m', limit_hit=None)"),
            r"own answered with NoneType as certificate\.limit_hit .*: True or False is needed",
        ),
        (
            wrong("certificate=Certificate('m', starvation=3)"),
            r"own answered with int as certificate\.starvation .*Starvation or None is needed",
        ),
    ],
)
def test_what_goes_wrong_in_a_users_dispatcher_is_told_with_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, complaint: str
) -> None:
    """A module in the working folder, without a dot in its name."""
    head = "class Own:\n    name = 'own'\n    def dispatch(self, instance):\n        "
    (tmp_path / "mine.py").write_text(head + source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    made = dispatch.make("mine:Own")
    job = {"id": 1, "submit": 0, "duration": 9, "units": 1, "unit": [1]}
    file = {
        "format": "cpdispatch-instance/1", "time": 7, "resources": ["core"], "queue": [job],
        "groups": [{"name": "node", "nodes": 1, "capacity": [2]}],
    }  # fmt: skip
    with pytest.raises(DecisionError, match=complaint):
        dispatch.answer_of(made, read(file))


def test_a_users_module_that_cannot_be_read_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("import does not")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="broken cannot be imported: SyntaxError"):
        dispatch.make("broken:Own")


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("hcp3", "hcp"),
        ("hcp3:limit=0.5", "hcp:limit=0.5"),
        ("hcp1", "hcp:objective=ewt_weighted"),
        ("hcp2:objective=wait", "hcp:objective=wait"),
        ("pcp1:m=7", "pcp:model=copies,objective=ewt_excess,m=7"),
        ("pcp3", "pcp:model=copies"),
        ("pcp4", "pcp:model=counts"),
        ("pcp5:m=7,cp=off", "pcp:model=boxes,m=7,cp=off"),
        ("pcp5:engine=off", "thesis-pcp5"),
        ("hcp:m=9,engine=off", "thesis-hcp:m=9"),
        ("pcp:engine=on,m=9", "pcp:m=9"),
    ],
)
def test_a_name_of_an_earlier_version_is_that_of_today_and_warns(former: str, now: str) -> None:
    name = former.partition(":")[0]
    with pytest.warns(RenamedWarning, match=f"dispatcher {name}.* is now called "):
        made = inner(former)
    assert made.name == now
    with warnings.catch_warnings(action="error"):
        same = inner(now)
    assert (type(made), made.objective, made.m) == (type(same), same.objective, same.m)


@pytest.mark.parametrize(
    "text", ['dispatcher = "hcp"\nm = true', 'dispatcher = "hcp"\nlimit = true',
             'dispatcher = "easy"\nwait = true', 'dispatcher = "easy"\ndepth = true'],
)  # fmt: skip
def test_true_is_no_number(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(CpdispatchError, match="is needed"):
        dispatch.make(str(tmp_path / "mine.toml"))


def test_a_toml_file_may_have_a_name_of_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('dispatcher = "pcp5"\nengine = false\nm = 7\n')
    with pytest.warns(RenamedWarning, match="pcp5:engine=False is now called thesis-pcp5;"):
        made: Any = dispatch.make(str(path))
    assert (made.variant.name, made.m) == ("thesis-pcp5", 7)


@settings(max_examples=examples(60))
@given(instances(predictions=True), st.sampled_from(sorted(REGISTRY)))
def test_every_dispatcher_answers_every_instance_feasibly_and_twice_the_same(
    instance: Instance, name: str
) -> None:
    first = dispatch.make(name, Settings(seed=3)).dispatch(instance)
    second = dispatch.make(name, Settings(seed=3)).dispatch(instance)
    assert verify.decision(instance, first) == []
    assert np.array_equal(first.start_s, second.start_s)
    assert np.array_equal(first.reason, second.reason)
    assert first.placements.as_dict() == second.placements.as_dict()


@pytest.mark.parametrize("name", ["hcp", "pcp", "hyper"])
def test_who_meets_one_instance_alone_bounds_waits_only_where_asked(name: str) -> None:
    alone = Settings(alone=True)
    assert isinstance(dispatch.make(name), Bounded)
    assert not isinstance(dispatch.make(name, alone), Bounded)
    asked = dispatch.make(f"{name}:wait=0.5", alone)
    assert isinstance(asked, Bounded)
    assert asked.bound.in_turn_after == 500


ODD_VALUES = [
    10**400, -(10**400), 1e308, float("nan"), float("inf"), -1, 0, 1.5, True, "", "²", "é",
    "9" * 500, [], ["slowdown"], {}, {"a": 1}, datetime.date(2026, 1, 1), datetime.time(1, 2),
]  # fmt: skip
"""What a TOML file can hold."""


@pytest.mark.parametrize("name", REGISTRY)
def test_whatever_a_file_gives_a_parameter_is_read_or_refused_in_words(name: str) -> None:
    said = []
    for reader, value in product(REGISTRY[name].parameters.values(), ODD_VALUES):
        try:
            reader(value)
        except (ValueError, UsageError) as error:
            said.append(str(error))
    assert not re.search("convert|exceeds|invalid", " ".join(said), re.IGNORECASE)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('objective = ["slowdown"]', "objective=['slowdown']: one of "),
        (f"wait = 1{'0' * 400}", "a share of EASY's longest wait, from 0.001 to 1"),
        ('limits = {upper = true}', "limits={'upper': True}: one of "),
    ],
)  # fmt: skip
def test_a_parameter_of_another_type_is_one_clear_error(
    line: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'dispatcher = "hcp"\n{line}\n')
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        dispatch.make(str(path))
    assert str(caught.value).startswith(f"{path}: dispatcher hcp, ")
