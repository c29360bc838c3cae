"""A shadow simulation beside a recorded Slurm: what a dispatcher would have led to."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from cpdispatch import cli, dispatch
from cpdispatch.adapters.slurm.cluster import read
from cpdispatch.adapters.slurm.gain import NAME, Gain
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.errors import UsageError
from tests.adapters.slurm.recorded import Recorded
from tests.adapters.slurm.test_recorded import of_recording, served

NODES = 4


class Site(Recorded):
    """A cluster of few nodes whose Slurm starts jobs late: each must wait for ``lag_s`` first."""

    lag_s = 0
    coming: list[dict[str, Any]]

    @classmethod
    def of(cls, seed: int, jobs: int, lag_s: int = 0) -> Site:
        site = cls(Recorded.load().data)
        site.lag_s = lag_s
        site.data["nodes"] = site.data["nodes"][4 : 4 + NODES]
        for node in site.data["nodes"]:
            node.update(alloc_cpus=0, alloc_memory=0, gres_used="gpu:0")
        site.data["reservations"] = []
        template = site.row(5)
        rng, time_s, site.coming = random.Random(seed), site.now_s(), []
        for number in range(1000, 1000 + jobs):
            time_s += rng.randrange(4)
            nodes, each = rng.randint(1, NODES), rng.choice((4, 8, 16))
            site.coming.append(template | {
                "job_id": number, "submit_time": time_s, "eligible_time": time_s,
                "admin_comment": "", "priority": 1, "state_reason": "Priority", "start_time": 0,
                "end_time": 0, "seconds": rng.randint(1, 30), "time_limit": rng.randint(1, 3),
                "tres_req_str": f"cpu={nodes * each},node={nodes}", "tasks_per_node": 0,
                "tasks": nodes * each, "minimum_cpus_per_node": 1, "max_nodes": nodes,
            })  # fmt: skip
        site.data["jobs"] = []
        return site

    def step(self, seconds: int = 1) -> None:
        super().step(seconds)
        while self.coming and self.coming[0]["submit_time"] <= self.now_s():
            self.data["jobs"].append(self.coming.pop(0))

    def _try(self, row: dict[str, Any]) -> None:
        if self.now_s() >= row["submit_time"] + self.lag_s:
            super()._try(row)

    def over(self) -> bool:
        states = {row["job_state"] for row in self.data["jobs"]}
        return not self.coming and not states & {"PENDING", "RUNNING"}


class Listening(Gain):
    """Keeps what becomes of each job in the shadow."""

    def _decide(self, cluster: Any, instant_s: int) -> None:
        over = dict(self._jobs)
        super()._decide(cluster, instant_s)
        for key, entry in over.items():
            if key not in self._jobs:
                FATES[key] = (entry.shadow_s, sorted(entry.nodes), entry.over_s())


FATES: dict[str, tuple[int, list[str], int]] = {}


def gain(folder: Path, name: str = "easy", every_s: int = 1, **rules: Any) -> Gain:
    return Listening(dispatch.make(name), Rules(**rules), folder, every_s, name)


def follow(site: Site, folder: Path, looks: int = 1, restarts: int = 0) -> Gain:
    """Look once in so many seconds, and when all is over; begin anew now and then."""
    FATES.clear()
    made = gain(folder)
    made.see(read(site))
    second = 0
    while not site.over():
        site.step()
        second += 1
        if second % looks == 0:
            made.see(read(site))
        if restarts and second % restarts == 0:
            made.save()
            made = gain(folder)
    for _ in range(3):
        site.step(1000)
        made.see(read(site))
    return made


@pytest.mark.parametrize("back_s", [30, 33], ids=["as planned", "early"])
@pytest.mark.parametrize("kept_by", ["a reservation", "a drain"])
def test_the_shadow_looks_again_when_nodes_come_back(
    tmp_path: Path, kept_by: str, back_s: int
) -> None:
    """Nothing else happens: the one job waits in the shadow for its nodes."""
    site = Site.of(1, 1, lag_s=60)
    begin_s, nodes = site.now_s(), site.data["nodes"]
    site.coming[0].update(submit_time=begin_s + 1, eligible_time=begin_s + 1)
    if kept_by == "a drain":
        for node in nodes:
            node["state_flags"] = ["DRAIN"]
    else:
        names = ",".join(node["name"] for node in nodes)
        site.data["reservations"] = [
            {"name": "up", "start_time": begin_s, "end_time": begin_s + 33, "node_list": names}
        ]
    FATES.clear()
    made = gain(tmp_path)
    for _ in range(100):
        made.see(read(site))
        site.step()
        if site.now_s() == begin_s + back_s:
            site.data["reservations"] = []
            for node in nodes:
                node["state_flags"] = []
    assert [shadow_s for shadow_s, *_ in FATES.values()] == [begin_s + back_s]


@pytest.mark.parametrize("lag_s", [0, 25])
def test_the_shadow_is_that_of_a_simulation_which_knows_all(tmp_path: Path, lag_s: int) -> None:
    whole = follow(Site.of(1, 20, lag_s), tmp_path / "late", looks=100_000)
    fates = dict(FATES)
    assert len(fates) == whole.totals.jobs == 20
    for name, looks, restarts in (("each", 1, 0), ("seldom", 7, 0), ("anew", 3, 11)):
        made = follow(Site.of(1, 20, lag_s), tmp_path / name, looks, restarts)
        assert fates == FATES
        assert made.totals == whole.totals


@pytest.mark.parametrize("seed", range(2))
def test_no_node_of_the_shadow_holds_more_than_it_has(tmp_path: Path, seed: int) -> None:
    site = Site.of(seed, 20, lag_s=10)
    rows = {str(row["job_id"]): row for row in site.coming}
    made = follow(site, tmp_path)
    assert made.totals.jobs == len(FATES) == 20
    cpus = {}
    for key, (start_s, nodes, end_s) in FATES.items():
        asked = dict(part.split("=") for part in rows[key]["tres_req_str"].split(","))
        assert len(set(nodes)) == int(asked["node"])
        assert start_s >= rows[key]["submit_time"]
        assert end_s - start_s == rows[key]["seconds"]
        cpus[key] = int(asked["cpu"]) // len(nodes)
    for moment_s in {start_s for start_s, _, _ in FATES.values()}:
        held: dict[str, int] = {}
        for key, (start_s, nodes, end_s) in FATES.items():
            if start_s <= moment_s < end_s:
                for node in nodes:
                    held[node] = held.get(node, 0) + cpus[key]
        assert max(held.values()) <= 16


def test_a_slurm_that_starts_late_is_seen_to_lose(tmp_path: Path) -> None:
    made = follow(Site.of(2, 12, lag_s=60), tmp_path)
    told = made.as_dict()
    assert told["jobs"] == 12
    assert told["jobs_open"] == 0
    assert told["wait_s_mean"] >= 60 > told["shadow_wait_s_mean"] >= 0
    assert told["slowdown_mean"] > told["shadow_slowdown_mean"] >= 1
    assert told["wait_s_max"] > told["shadow_wait_s_max"] >= told["shadow_wait_s_mean"]
    same = ("jobs", "wait_s_mean", "shadow_wait_s_mean")
    assert told["by_length"] == {"short": {name: told[name] for name in same}}


def test_the_longest_waits_are_of_jobs_that_wait_too(tmp_path: Path) -> None:
    """Until the instant that the shadow has come to, under Slurm and in the shadow."""
    site = Site.of(2, 40, lag_s=60)
    made, waits = gain(tmp_path), []
    for _ in range(90):
        site.step()
        made.see(read(site))
        told = made.as_dict()
        until_s = told["simulated_until_s"]
        counted = [each for each in made._jobs.values() if each.counted and not each.fixed]
        open_s = [(each.shadow_s or until_s) - each.since_s for each in counted]
        assert told["shadow_wait_s_max"] == max([made.totals.shadow_longest_s, *open_s])
        waits.append((told["wait_s_max"], told["shadow_wait_s_max"]))
        assert all(wait_s >= 0 for wait_s in waits[-1])
    assert max(waits)[0] >= 60


def test_the_clock_of_the_shadow_waits_for_what_is_not_known(tmp_path: Path) -> None:
    site = Site.of(3, 1, lag_s=50)
    site.coming[0].update(submit_time=site.now_s() + 1, eligible_time=site.now_s() + 1,
                          seconds=20)  # fmt: skip
    begin_s = site.coming[0]["submit_time"]
    made = gain(tmp_path)
    until = []
    for _ in range(80):
        site.step()
        made.see(read(site))
        until.append((site.now_s() - begin_s, made.as_dict()["simulated_until_s"] - begin_s))
    known = dict(until)
    # The shadow starts it at once, and cannot know how long it will last.
    assert known[30] == known[49] == 1
    assert known[60] == 10
    assert known[75] == 75  # it has ended
    assert not made._jobs


def test_a_job_that_is_cancelled_while_it_waits_is_not_counted(tmp_path: Path) -> None:
    site = Site.of(4, 6, lag_s=40)
    made = gain(tmp_path)
    for second in range(200):
        site.step()
        if second == 30:
            now_s = site.now_s()
            site.data["jobs"][0].update(job_state="CANCELLED", start_time=now_s, end_time=now_s)
        made.see(read(site))
    assert made.totals.jobs == 5
    assert not made._jobs


def test_what_is_not_driven_does_what_it_does_under_slurm(tmp_path: Path) -> None:
    site = Site.of(5, 8)
    site.coming[0].update(partition="small", tres_req_str=f"cpu={16 * NODES},node={NODES}",
                          seconds=100)  # fmt: skip
    other = str(site.coming[0]["job_id"])
    for row in site.coming[1:]:
        row.update(submit_time=row["submit_time"] + 5, eligible_time=row["submit_time"] + 5)
    FATES.clear()
    made = gain(tmp_path, partition="main")
    made.see(read(site))
    for _ in range(180):
        site.step()
        made.see(read(site))
    ended_s = next(row for row in site.data["jobs"] if str(row["job_id"]) == other)["end_time"]
    assert made.totals.jobs == 7
    assert all(start_s >= ended_s for key, (start_s, _, _) in FATES.items() if key != other)


def test_held_jobs_enter_when_they_are_let_go_and_old_ones_are_not_counted(tmp_path: Path) -> None:
    site = Site.of(6, 2, lag_s=25)
    first, second = site.coming
    first.update(submit_time=site.now_s(), priority=0, state_reason="JobHeldUser",
                 eligible_time=0)  # fmt: skip
    second.update(submit_time=site.now_s(), eligible_time=site.now_s() + 20)
    site.step()
    made = gain(tmp_path)
    for cycle in range(120):
        made.see(read(site))
        site.step()
        if cycle == 40:
            first.update(priority=1, state_reason="None", eligible_time=site.now_s())
    assert made.totals.jobs == 0
    assert not made._jobs
    assert FATES[str(first["job_id"])][0] > first["submit_time"] + 40
    assert FATES[str(second["job_id"])][0] >= second["submit_time"] + 20


@pytest.mark.parametrize("restarts", [False, True])
def test_a_dependency_that_slurm_has_met_and_forgotten_holds_in_the_shadow(
    tmp_path: Path, restarts: bool
) -> None:
    site = Site.of(6, 3)
    for row in site.coming:
        row.update(submit_time=site.now_s(), seconds=9)
    first, second, waits = site.coming
    waits.update(state_reason="Dependency", eligible_time=0,
                 dependency="afterok:1000(unfulfilled),afterany:1001(unfulfilled)")  # fmt: skip
    made = gain(tmp_path)
    made.see(read(site))
    site.step()
    made.see(read(site))
    first.update(job_state="COMPLETED", end_time=site.now_s())
    waits["dependency"] = "afterany:1001(unfulfilled)"
    made.see(read(site))
    if restarts:
        made.save()
        made = gain(tmp_path)
    second.update(job_state="COMPLETED", end_time=site.now_s())
    waits.update(dependency="", state_reason="None", eligible_time=site.now_s())
    made.see(read(site))
    told = "afterany:1000(unfulfilled),afterany:1001(unfulfilled)"
    assert made._jobs["1002"].job.dependency == told


def test_a_dependency_that_is_taken_away_holds_no_more_in_the_shadow(tmp_path: Path) -> None:
    site = Site.of(6, 3)
    for row in site.coming:
        row.update(submit_time=site.now_s(), seconds=90)
    waits = site.coming[2]
    waits.update(state_reason="Dependency", eligible_time=0,
                 dependency="afterok:1000(unfulfilled),afterany:1001_*(unfulfilled)")  # fmt: skip
    made = gain(tmp_path)
    made.see(read(site))
    site.step()
    made.see(read(site))
    waits.update(dependency="afterany:1001_*(unfulfilled)")
    made.see(read(site))
    assert made._kept_back["1002"] == waits["dependency"]
    waits.update(dependency="", state_reason="None", eligible_time=site.now_s())
    made.see(read(site))
    assert made._jobs["1002"].job.dependency == ""  # 1000 and 1001 run


def test_a_job_that_would_be_left_to_slurm_is_in_the_shadow_as_it_is_there(tmp_path: Path) -> None:
    """Only with the nodes it is seen that no instance can express it."""
    site = Site.of(6, 1)
    site.coming[0].update(submit_time=site.now_s(), seconds=5, required_nodes="n05",
                          tres_req_str="cpu=8,node=2")  # fmt: skip
    made = gain(tmp_path)
    made.see(read(site))
    site.step()
    row, began_s = site.data["jobs"][0], site.now_s()
    row["required_nodes"] = "n05"
    row.update(job_state="PENDING", start_time=0, job_resources={}, gres_detail=[])
    for _ in range(3):
        made.see(read(site))
        site.data["now_s"] += 1
    row.update(job_state="COMPLETED", start_time=began_s, end_time=began_s + 2)
    for _ in range(3):
        site.data["now_s"] += 100
        made.see(read(site))
    assert not made._jobs
    assert made.totals.jobs == 0


def test_jobs_that_had_ended_before_the_first_look_are_in_no_shadow(tmp_path: Path) -> None:
    site = Site.of(6, 2)
    site.coming[0].update(seconds=5, submit_time=site.now_s())
    while not any(row["job_state"] == "COMPLETED" for row in site.data["jobs"]):
        site.step()
    made = gain(tmp_path)
    for _ in range(3):
        made.see(read(site))
        assert "1000" not in made._jobs
        site.step()
    made.save()
    made = gain(tmp_path)
    made.see(read(site))
    assert "1000" not in made._jobs


def test_the_state_belongs_to_a_dispatcher_and_a_damaged_one_is_set_aside(tmp_path: Path) -> None:
    site = Site.of(7, 3)
    made = gain(tmp_path)
    made.see(read(site))
    with pytest.raises(UsageError, match=r"gain\.json: is of easy, not of best"):
        gain(tmp_path, "best").see(read(site))
    (tmp_path / NAME).write_text("{")
    made = gain(tmp_path)
    made.see(read(site))
    assert "gain.json.damaged-1" in made.told[0]


def test_watch_tells_of_the_gain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["slurm", "watch", "--socket", str(tmp_path / "s"), "--cycles", "1", "--gain",
             "--state", str(tmp_path / "state")]  # fmt: skip
    with served(tmp_path / "s", of_recording):
        assert cli.run(given) == 0
        text = capsys.readouterr().out
        state = tmp_path / "state" / NAME
        kept = json.loads(state.read_text())
        kept["totals"] = {"jobs": 200, "wait_s": 20_000, "shadow_wait_s": 15_000,
                          "slowdown": 500.0, "shadow_slowdown": 600.0,
                          "longest_s": 900, "shadow_longest_s": 1170, "by_length": {
                              "long": {"jobs": 2, "wait_s": 1_200, "shadow_wait_s": 800},
                              "short": {"jobs": 198, "wait_s": 17_820, "shadow_wait_s": 13_860},
                          }}  # fmt: skip
        state.write_text(json.dumps(kept))
        assert cli.run(given) == 0
        later = capsys.readouterr().out
        assert cli.run([*given, "--json"]) == 0
    assert "longest wait so far 900 s under Slurm, 1,170 s under easy; mean wait by l" in later
    assert "\nBut the longest wait would have been 30% longer.\n" in later
    assert "198 short (< 1 h) 90 s and 70 s, 2 long (> 5 h) 600 s and 400 s" in later
    assert "gain of easy: no job has ended yet, under Slurm and in the simulation" in text
    assert "mean wait 100 s under Slurm, 75 s under easy; " in later
    assert "mean bounded slowdown 2.50 and 3.00" in later
    assert (
        "With easy these jobs would have waited 25.0% less: once, so that this may be chance."
        in later
    )
    assert json.loads(capsys.readouterr().out)["gain"]["jobs"] == 200
