"""Solution files, and the words for why a job waits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch import solution as solutions
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.errors import InputError
from cpdispatch.instance import FORMAT, Instance, digest
from cpdispatch.solution import Solution, SolvedJob
from tests.strategies import Plan, planned_instances, read

FILE: dict[str, Any] = {
    "format": "cpdispatch-solution/1", "instance": "ab" * 32, "model": "hcp",
    "status": "optimal", "objective": "slowdown", "value": 39.775, "bound": 39.775,
    "wall_ms": 11.2, "limit_ms": 1000,
    "jobs": [{"id": 77, "start": 100000, "nodes": {"3": 1, "4": 1}},
             {"id": 78, "start": 100620},
             {"id": 79, "start": None, "reason": "waits for gpu"}],
}  # fmt: skip


def test_the_example_of_the_format_is_read_and_written_back() -> None:
    solution = solutions.loads(json.dumps(FILE))
    assert solution.jobs == (
        SolvedJob(77, 100000, {3: 1, 4: 1}),
        SolvedJob(78, 100620),
        SolvedJob(79, None, None, "waits for gpu"),
    )
    assert solution.limit_ms == 1000
    assert json.loads(solutions.to_json(solution)) == FILE


def test_unknown_value_bound_and_limit_are_written_as_null() -> None:
    file = FILE | {"value": None, "bound": None, "limit_ms": None}
    assert json.loads(solutions.to_json(solutions.loads(json.dumps(file)))) == file


def test_a_reason_is_written_only_for_a_job_without_a_start() -> None:
    jobs = (SolvedJob(1, 5, {0: 1}, "early bird"), SolvedJob(2, None, None, "waits for core"))
    solution = replace(solutions.loads(json.dumps(FILE)), jobs=jobs)
    assert json.loads(solutions.to_json(solution))["jobs"] == [
        {"id": 1, "start": 5, "nodes": {"0": 1}},
        {"id": 2, "start": None, "reason": "waits for core"},
    ]


@pytest.mark.parametrize("name", ["s.json", "s.json.gz", "s.json.xz", "s.json.zst"])
def test_a_solution_survives_a_file(tmp_path: Path, name: str) -> None:
    solution = solutions.loads(json.dumps(FILE))
    solutions.dump(solution, tmp_path / name)
    assert solutions.load(tmp_path / name) == solution


optional = st.none() | st.floats(0, 1e12)
solved = st.builds(
    SolvedJob,
    st.integers(0, 10**9),
    st.integers(0, 2**62 - 1),
    st.none() | st.dictionaries(st.integers(0, 9999), st.integers(1, 99)),
) | st.builds(SolvedJob, st.integers(0, 10**9), st.none(), st.none(), st.text(max_size=20))


@given(
    st.builds(
        Solution,
        st.just("0" * 64),
        st.text(max_size=9),
        st.sampled_from(solutions.STATUSES),
        st.sampled_from(verify.OBJECTIVES),
        optional,
        optional,
        st.floats(0, 1e9),
        st.none() | st.floats(1, 1e9),
        st.lists(solved, max_size=5).map(tuple),
    )
)
def test_any_solution_survives_its_file(solution: Solution) -> None:
    content = solutions.to_json(solution)
    assert solutions.loads(content) == solution
    assert solutions.to_json(solutions.loads(content)) == content


def job(**fields: Any) -> dict[str, Any]:
    return {"jobs": [FILE["jobs"][0] | fields]}


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"format": "cpdispatch-solution/2"}, "format", "cpdispatch-solution/2"),
        ({"instance": "abc"}, "instance", "abc"),
        ({"status": "perfect"}, "status", "perfect"),
        ({"wall_ms": -1}, "wall_ms", "-1"),
        ({"limit_ms": 0}, "limit_ms", "0"),
        ({"value": "high"}, "field value", "high"),
        ({"colour": "red"}, "field colour", "red"),
        (job(colour="red"), "field jobs[0].colour", "red"),
        (job(start=1.5), "field jobs[0].start", "1.5"),
        (job(start=2**70), "jobs[0].start", str(2**70)),
        (job(id=2**70), "jobs[0].id", str(2**70)),
        (job(id=-1), "jobs[0].id", "no such number in an instance (found -1)"),
        ({"co\nlour": "red"}, "field co\\nlour", "red"),
        (job(nodes={"three": 1}), "jobs[0].nodes.three", "three"),
        (job(nodes={"03": 1}), "jobs[0].nodes.03", "03"),
        (job(nodes={"²": 1}), "jobs[0].nodes.²", "²"),
        (job(nodes={"-1": 1}), "jobs[0].nodes.-1", "-1"),
        (job(nodes={"3": 2**70}), "jobs[0].nodes.3", "too many units"),
        (job(reason="waits"), "jobs[0].reason", "waits"),
        (job(start=None), "jobs[0].nodes", "3"),
    ],
)
def test_a_wrong_solution_is_refused_in_one_line_with_file_field_and_value(
    change: dict[str, Any], field: str, value: str
) -> None:
    with pytest.raises(InputError) as refused:
        solutions.loads(json.dumps(FILE | change), "s.json")
    message = str(refused.value)
    assert message.startswith("s.json: ")
    assert field in message
    assert value in message
    assert "\n" not in message


@pytest.mark.parametrize("missing", sorted(FILE))
def test_a_solution_that_lacks_a_key_is_refused_by_its_name(missing: str) -> None:
    file = {key: value for key, value in FILE.items() if key != missing}
    with pytest.raises(InputError, match=f"field {missing}: .*missing required key"):
        solutions.loads(json.dumps(file))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_solution_or_refused(content: bytes) -> None:
    with pytest.raises(InputError):
        solutions.loads(content)


def test_a_solution_file_of_bytes_that_are_no_text_is_refused() -> None:
    broken = json.dumps(FILE).replace("hcp", "\udcff").encode("utf-8", "surrogateescape")
    with pytest.raises(InputError, match="not a solution file"):
        solutions.loads(json.dumps(FILE).encode().replace(b"hcp", b"\xff"), "s.json")
    with pytest.raises(InputError):
        solutions.loads(broken)


# ------------------------------------------------------------------------- from a decision


def decide(
    instance: Instance,
    starts: dict[int, int],
    places: dict[int, dict[int, int]],
    reasons: dict[int, Reason] | None = None,
) -> Decision:
    start_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
    reason = np.full(len(instance.queue), Reason.WAITS, dtype=np.int8)
    for position, start in starts.items():
        start_s[position] = start
    for position, why in (reasons or {}).items():
        reason[position] = why
    certificate = Certificate(
        "pcp", "wait", "feasible", 5.0, 1.0, {"build": 1.5, "solve": 2.0}, False
    )
    return Decision(start_s, reason, Placements.of(places), certificate)


@given(planned_instances())
def test_the_solution_of_a_feasible_decision_is_feasible(case: tuple[dict[str, Any], Plan]) -> None:
    file, plan = case
    instance = read(file)
    decision = decide(
        instance,
        {k: start for k, (start, _) in plan.items()},
        {k: nodes for k, (start, nodes) in plan.items() if start == instance.now},
    )
    solution = solutions.from_decision(instance, decision, 100)
    found = {violation.kind for violation in verify.solution(instance, solution)}
    assert found <= {verify.Kind.VALUE}  # the certificate's value is made up
    assert solution.instance == digest(instance)
    assert (solution.wall_ms, solution.limit_ms) == (3.5, 100)
    for k, job in enumerate(solution.jobs):
        assert (job.start is None) == (k not in plan) == bool(job.reason)
        planned = k in plan and plan[k][0] == instance.now
        assert job.nodes == (plan[k][1] if planned else None)


def waiting(unit: list[int], units: int = 1, **changes: Any) -> Instance:
    """Job 1 (4 cores of node 0) can start; job 2 is the one that is asked about."""
    return read({
        "format": FORMAT, "time": 100, "resources": ["core", "gpu"],
        "groups": [{"name": "gpu", "nodes": 1, "capacity": [4, 2]},
                   {"name": "fat", "nodes": 1, "capacity": [4, 0]}],
        "queue": [{"id": 1, "submit": 0, "duration": 10, "units": 1, "unit": [4, 0]},
                  {"id": 2, "submit": 0, "duration": 50, "units": units, "unit": unit}],
    } | changes)  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "units", "changes", "text"),
    [
        ([1, 0], 5, {}, "waits for core"),
        ([0, 1], 3, {}, "waits for gpu"),
        ([2, 3], 3, {}, "waits for core and gpu"),
        ([1, 1], 1, {}, "waits for a free node combination"),
        ([1, 0], 4, {}, "waits for its turn"),
        (
            [1, 0], 4, {"power": {"cap": 39, "unit": [5, 0]}},
            "waits for power: draws 20 W, 19 W of the cap are left",
        ),
        ([1, 0], 5, {"power": {"cap": 39, "unit": [5, 0]}}, "waits for core and power"),
        (
            [1, 0], 9, {"power": {"cap": 39, "unit": [5, 0]}},
            "does not fit the power cap: draws 45 W, the cap is 39 W",
        ),
        ([1, 0], 4, {"power": {"cap": 40, "unit": [5, 0]}}, "waits for its turn"),
        (
            [1, 0], 4,
            {"reservations": [{"start": 149, "duration": 1, "nodes": [1], "capacity": [1, 0]}]},
            "waits for a reservation to end",
        ),
        (
            [1, 0], 4,
            {"reservations": [{"start": 150, "duration": 1, "nodes": [1], "capacity": [1, 0]}]},
            "waits for its turn",
        ),
        ([1, 0], 4, {"down": [1]}, "waits for core"),
    ],
)  # fmt: skip
def test_a_waiting_job_is_told_what_is_short_after_the_starts(
    unit: list[int], units: int, changes: dict[str, Any], text: str
) -> None:
    instance = waiting(unit, units, **changes)
    decision = decide(instance, {0: 100}, {0: {0: 1}})
    assert solutions.explain(instance, decision, 1) == text


@pytest.mark.parametrize(("end", "text"), [(140, "its turn"), (141, "a reservation to end")])
def test_a_running_job_takes_from_a_coming_reservation_until_its_end(end: int, text: str) -> None:
    running = {"id": 3, "start": 100, "duration": end - 100, "units": 1, "unit": [1, 0],
               "nodes": {"1": 1}}  # fmt: skip
    block = {"start": 140, "duration": 9, "nodes": [1], "capacity": [3, 0]}
    instance = waiting([1, 0], 1, running=[running], reservations=[block])
    decision = decide(instance, {0: 100}, {0: {0: 1}})
    assert solutions.explain(instance, decision, 1) == f"waits for {text}"


@pytest.mark.parametrize(
    ("waits", "text"),
    [
        ({"after": [3, 1]}, "waits for jobs 1, 3"),
        ({"after": [3], "think": 5, "earliest": 150}, "waits for job 3"),
        ({"earliest": 130}, "waits until 130"),
        ({"earliest": 100}, "waits for core"),
    ],
)
def test_a_job_that_depends_on_others_is_told_on_which(waits: dict[str, Any], text: str) -> None:
    running = {"id": 3, "start": 100, "duration": 9, "units": 1, "unit": [1, 0], "nodes": {"1": 1}}
    first = {"id": 1, "submit": 0, "duration": 10, "units": 1, "unit": [4, 0]}
    second = {"id": 2, "submit": 0, "duration": 50, "units": 9, "unit": [1, 0]} | waits
    instance = waiting([1, 0], running=[running], queue=[first, second])
    decision = decide(instance, {0: 100}, {0: {0: 1}})
    assert solutions.explain(instance, decision, 1) == text


def test_a_planned_job_takes_nothing_of_what_is_free_now() -> None:
    instance = waiting([1, 0], 8, power={"cap": 40, "unit": [5, 0]})
    decision = decide(instance, {0: 130}, {0: {0: 1}})
    assert solutions.explain(instance, decision, 1) == "waits for its turn"


def test_a_job_that_never_fits_is_told_what_it_asks_for() -> None:
    instance = waiting([3, 2], 7)
    decision = decide(instance, {}, {}, {1: Reason.NEVER_FITS})
    text = "does not fit the system: asks for 7 x (3 core, 2 gpu)"
    assert solutions.explain(instance, decision, 1) == text
    assert solutions.from_decision(instance, decision).jobs[1].reason == text


def test_a_job_that_fits_neither_the_system_nor_the_cap_is_told_of_the_system() -> None:
    instance = waiting([5, 0], power={"cap": 20, "unit": [5, 0]})
    decision = decide(instance, {}, {}, {1: Reason.NEVER_FITS})
    assert solutions.explain(instance, decision, 1) == (
        "does not fit the system: asks for 1 x (5 core)"
    )


@pytest.mark.parametrize("name", ["easy", "conservative", "prb", "best", "hcp", "thesis-hcp"])
def test_every_dispatcher_has_one_reason_for_a_job_that_exceeds_the_power_cap(name: str) -> None:
    instance = waiting([4, 0], 2, power={"cap": 30, "unit": [5, 0]})
    decision = dispatch.make(name, warm=dispatch.not_at_all).dispatch(instance)
    assert decision.start_s.tolist() == [100, -1]
    assert solutions.explain(instance, decision, 1) == (
        "does not fit the power cap: draws 40 W, the cap is 30 W"
    )


def test_a_refused_job_is_told_so() -> None:
    instance = waiting([1, 0])
    decision = decide(instance, {}, {}, {1: Reason.REJECTED})
    assert solutions.explain(instance, decision, 1) == "refused by the dispatcher"


def test_a_reserved_job_is_told_from_when() -> None:
    instance = waiting([1, 0])
    decision = decide(instance, {1: 130}, {}, {1: Reason.RESERVED})
    assert solutions.explain(instance, decision, 1) == "reserved from 130"


def test_a_job_that_starts_is_not_said_to_wait() -> None:
    instance = waiting([1, 0])
    assert solutions.explain(instance, decide(instance, {0: 100}, {0: {0: 1}}), 0) == "starts now"
