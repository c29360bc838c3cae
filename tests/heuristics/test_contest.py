"""The way to decide is chosen by what it would have made of the jobs that ended last."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch.decision import Decision
from cpdispatch.dispatch import Settings
from cpdispatch.errors import UsageError
from cpdispatch.heuristics import contest
from cpdispatch.heuristics.best import CP, Best
from cpdispatch.heuristics.contest import Contest
from cpdispatch.heuristics.ended import Ended
from cpdispatch.heuristics.trial import Contender
from cpdispatch.instance import Instance
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import NodeGroup, System
from tests.heuristics.test_best import Guess, cases, moment
from tests.heuristics.test_hindsight import NOBODY, jobs
from tests.heuristics.test_hindsight import moment as at
from tests.strategies import EMPTY

LATE, SOON = dispatch.make("easy-lpf-lpf"), dispatch.make("easy-spf-spf")
"""The longest job first, which brings a high slowdown, and the shortest."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few jobs are enough, and one trial."""
    monkeypatch.setattr(contest, "ENOUGH", 1)
    monkeypatch.setattr(contest, "FEWEST", 3)
    monkeypatch.setattr(contest, "JOBS", 40)


def lived(count: int) -> Ended:
    """Knows jobs that were submitted at once, half of which take four processors, and long."""
    ended = Ended()
    for id in range(count):
        long = id % 2 == 0
        queue = jobs([id], units=4, expected_s=90 if long else 11)
        start_s = 200 * id
        ended.started(at(start_s, queue, NOBODY), np.array([0]))
        ended.look(at(start_s + 100, jobs([]), NOBODY))
    assert len(ended) == count
    return ended


def tried(found: Contest, ended: Ended, now: int, **ways: Contender) -> int:
    """Let it look until it has judged; how often it had to."""
    looks = 0
    while not looks or found._trials:
        found.look(at(now + looks, jobs([]), NOBODY), ended, ways)
        looks += 1
        if looks == 1 and not found._trials:
            return 0
    return looks


@pytest.mark.usefixtures("few")
def test_the_way_that_served_better_is_taken() -> None:
    found = Contest("late")
    assert tried(found, lived(20), 9_999, late=LATE, soon=SOON) == 1 + 21 // contest.STEPS + 1
    assert found.chosen == "soon"


@pytest.mark.usefixtures("few")
def test_the_way_in_use_stays_unless_another_one_is_clearly_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contest, "BETTER", 0.01)
    found = Contest("late")
    assert tried(found, lived(20), 9_999, late=LATE, soon=SOON)
    assert found.chosen == "late"


@pytest.mark.usefixtures("few")
def test_one_trial_is_one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "ENOUGH", 3)
    found, ended = Contest("late"), lived(20)
    for number in range(3):
        assert found.chosen == "late"
        assert tried(found, ended, 10**8 * (number + 1), late=LATE, soon=SOON)
    assert found.chosen == "soon"


@pytest.mark.usefixtures("few")
def test_the_last_trials_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "KEPT", 4)
    found, ended = Contest("a"), lived(20)
    for number in range(6):
        two = (SOON, LATE) if number < 3 else (LATE, SOON)
        assert tried(found, ended, 10**8 * (number + 1), a=two[0], b=two[1])
        assert found.chosen == ("b" if number > 4 else "a")


@pytest.mark.usefixtures("few")
def test_trials_come_when_the_jobs_have_doubled_and_every_four_weeks() -> None:
    found = Contest("late")
    ways = {"late": LATE, "soon": SOON}
    assert not tried(found, lived(2), 9_999, **ways)
    assert tried(found, lived(3), 9_999, **ways)
    assert not tried(found, lived(5), 10_099, **ways)
    assert tried(found, lived(6), 10_199, **ways)
    assert not tried(found, lived(7), 10_199 + contest.EVERY_S - 1, **ways)
    assert tried(found, lived(7), 10_199 + contest.EVERY_S, **ways)


class Noted:
    """Answers like EASY, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def dispatch(self, instance: Instance) -> Decision:
        self.asked += 1
        return dispatch.make("easy").dispatch(instance)


def test_cp_decides_when_it_is_chosen_and_nobody_is_late() -> None:
    engine = Noted()
    best = Best(threshold_s=100, engine=engine)
    now = moment(4, [(10**6 - 50, 2, 9, 9, 9)])
    assert verify.decision(now, best.dispatch(now)) == []
    assert engine.asked == 0
    best._contest.chosen = CP
    assert verify.decision(now, best.dispatch(now)) == []
    assert engine.asked == 1
    best.dispatch(moment(4, [(10**6 - 150, 2, 9, 9, 9)]))
    assert engine.asked == 1


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("nodes", [1, 2])
def test_cp_is_tried_on_several_nodes_only(nodes: int) -> None:
    engine = Noted()
    best = Best(engine=engine)
    system = System("some", ("core",), (NodeGroup("all", nodes, (4,)),))
    best._ended = lived(3)
    for now in (9_999, 10_000):
        best.dispatch(replace(EMPTY, now=now, system=system, free=system.capacity))
    assert bool(engine.asked) == (nodes > 1)


@given(cases(), st.integers(1, 20))
def test_every_schedule_is_feasible_and_the_same_again(
    case: tuple[Workload, System], threshold_s: int
) -> None:
    def run() -> object:
        engine = dispatch.make("easy-saf-saf")
        best = Best(threshold_s=threshold_s, strict_s=threshold_s + 5, long_s=4, engine=engine)
        return simulate(*case, best, predictor=Guess())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contest, "FEWEST", 2)
        patched.setattr(contest, "ENOUGH", 1)
        patched.setattr(contest, "EVERY_S", 9)
        one, two = run(), run()
    assert verify.run(one.jobs, case[1]) == []
    assert one.job_table.equals(two.job_table)


@pytest.mark.usefixtures("few")
def test_a_contest_is_kept_in_checkpoints() -> None:
    found, ended = Contest("late"), lived(20)
    found.look(at(9_999, jobs([]), NOBODY), ended, {"late": LATE, "soon": SOON})
    found.look(at(9_999, jobs([]), NOBODY), ended, {})
    again = pickle.loads(pickle.dumps(found))
    for one in (found, again):
        while one._trials:
            one.look(at(9_999, jobs([]), NOBODY), ended, {})
    assert again.chosen == found.chosen == "soon"


def test_what_a_user_may_say() -> None:
    assert dispatch.make("best").engine is not None
    assert dispatch.make("best:cp=off").engine is None
    assert dispatch.make("best:adapt=off").engine is None
    with pytest.raises(UsageError, match="cp=on needs adapt=on"):
        dispatch.make("best:cp=on,adapt=off")


def test_the_engine_leaves_time_for_its_own_trial() -> None:
    assert dispatch.make("best", Settings(limit_s=0.4)).engine.limit_s == 0.1
