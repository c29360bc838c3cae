"""The named systems, and systems read from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import system as systems
from cpdispatch.errors import InputError, UsageError
from cpdispatch.system import NAMED, NodeGroup, System
from cpdispatch.workloads import from_table, prepare


def total(name: str) -> dict[str, int]:
    system = NAMED[name]
    return dict(zip(system.resources, system.total.tolist(), strict=True))


def test_eurora_has_64_nodes_half_with_gpus_and_half_with_mics() -> None:
    assert NAMED["eurora"].nodes == 64
    assert total("eurora") == {"core": 1024, "gpu": 64, "mic": 64, "mem": 1024}
    assert not (NAMED["eurora"].capacity[:, 1:3] > 0).all(axis=1).any()


def test_gaia_has_151_nodes_and_2004_cores() -> None:
    assert NAMED["gaia"].nodes == 151
    assert total("gaia")["core"] == 2004


def test_gaia_gpu_is_gaia_with_29_gpus_on_17_nodes() -> None:
    system = NAMED["gaia-gpu"]
    assert (system.capacity[:, [0, 2]] == NAMED["gaia"].capacity).all()
    assert system.total[1] == 2 * 2 + 10 * 2 + 5
    assert np.count_nonzero(system.capacity[:, 1]) == 17


def test_ricc_has_1024_nodes_of_8_cores_and_12_gb() -> None:
    assert (NAMED["ricc"].nodes, total("ricc")) == (1024, {"core": 8192, "mem": 1024 * 12 * 1024})


def test_metacentrum_has_zewura_and_zegox() -> None:
    cores, mem_kb = NAMED["metacentrum"].capacity.T
    assert np.unique(cores, return_counts=True)[1].tolist() == [48, 20]
    assert total("metacentrum")["core"] == 2176
    assert (np.unique(mem_kb) // 1024**2).tolist() == [89, 504]


def test_kit_has_1152_nodes_of_20_cores_and_21_of_48() -> None:
    cores = NAMED["kit"].capacity[:, 0]
    assert np.unique(cores, return_counts=True)[1].tolist() == [1152, 21]
    assert np.unique(cores).tolist() == [20, 48]
    assert total("kit")["core"] == 1152 * 20 + 21 * 48


def test_seth_has_480_cores() -> None:
    assert total("seth")["core"] == 480
    assert NAMED["seth"].nodes == 120


def test_nodes_are_numbered_in_the_order_of_the_groups() -> None:
    system = System("s", ("core", "gpu"), (NodeGroup("a", 2, (4, 0)), NodeGroup("b", 1, (8, 1))))
    assert system.capacity.tolist() == [[4, 0], [4, 0], [8, 1]]
    assert system.group_of.tolist() == [0, 0, 1]
    assert system.total.tolist() == [16, 1]
    assert (system.resource("gpu"), system.resource("mic")) == (1, -1)


def test_a_system_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        NAMED["seth"].capacity[0, 0] = 5


# ------------------------------------------------------------------------------- files

OURS: dict[str, Any] = {
    "resources": ["core", "gpu"],
    "groups": [{"name": "gpu", "nodes": 3, "capacity": [8, 2]},
               {"name": "fat", "nodes": 1, "capacity": [64, 0]}],
    "memory_unit_kb": 1024, "expected_wait_s": {"debug": 60},
}  # fmt: skip


def written(folder: Path, content: Any, name: str = "mine.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_json_file_describes_a_system(tmp_path: Path) -> None:
    system = systems.load(written(tmp_path, OURS))
    assert (system.name, system.nodes, system.total.tolist()) == ("mine", 4, [88, 6])
    assert (system.memory_unit_kb, system.expected_wait_s) == (1024, {"debug": 60})


def test_a_toml_file_describes_the_same_system(tmp_path: Path) -> None:
    text = """
        resources = ["core", "gpu"]
        memory_unit_kb = 1024
        [expected_wait_s]
        debug = 60
        [[groups]]
        name = "gpu"
        nodes = 3
        capacity = [8, 2]
        [[groups]]
        name = "fat"
        nodes = 1
        capacity = [64, 0]
    """
    toml = systems.load(written(tmp_path, text, "mine.toml"))
    ours = systems.load(written(tmp_path, OURS))
    assert (toml.name, toml.resources, toml.groups) == (ours.name, ours.resources, ours.groups)
    assert toml.expected_wait_s == ours.expected_wait_s


@pytest.mark.parametrize("wrong", [4.5, 4.0, "4", True])
def test_numbers_of_nodes_and_units_are_whole(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"groups\[0\]\.capacity: must be a whole number"):
        System.pool(wrong)
    with pytest.raises(InputError, match=r"groups\[0\]\.nodes: must be a whole number"):
        System("s", ("core",), (NodeGroup("a", wrong, (4,)),))


def test_accasims_files_load_as_they_are(tmp_path: Path) -> None:
    accasim = {
        "groups": {"g0": {"core": 16, "gpu": 2}, "g1": {"core": 16, "mic": 2}},
        "resources": {"g0": 32, "g1": 32},
        "start_time": 0,
    }
    system = systems.load(written(tmp_path, accasim, "eurora.config"))
    assert system.resources == ("core", "gpu", "mic")
    assert system.groups == (NodeGroup("g0", 32, (16, 2, 0)), NodeGroup("g1", 32, (16, 0, 2)))


def group(**fields: Any) -> dict[str, Any]:
    return {"groups": [OURS["groups"][0] | fields]}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"resources": []}, ["resources", "needs a resource type"]),
        ({"resources": ["core", "core"]}, ["resources", "named twice", "['core', 'core']"]),
        ({"groups": []}, ["groups", "needs a group"]),
        (group(nodes=0), ["groups[0].nodes", "found 0"]),
        (group(nodes=-3), ["groups[0].nodes", "found -3"]),
        (group(nodes=10**12), ["groups[0].nodes", "found 1000000000000"]),
        (group(capacity=[8]), ["groups[0].capacity", "found [8]", "core, gpu"]),
        (group(capacity=[8, -1]), ["groups[0].capacity", "negative capacity", "[8, -1]"]),
        (group(capacity=[8, 2**70]), ["groups[0].capacity", str(2**70)]),
        (group(capacity=[8, 1.5]), ["groups[0].capacity[1]", "found 1.5"]),
        (group(cores=4), ["groups[0].cores", "unknown key (found 4)"]),
        ({"colour": "red"}, ["field colour: ", "found 'red'"]),
        ({"memory_unit_kb": 0}, ["memory_unit_kb", "found 0"]),
        ({"expected_wait_s": {"debug": 0}}, ["expected_wait_s.debug", "found 0"]),
        ({"expected_wait_s": {"debug": -9}}, ["expected_wait_s.debug", "found -9"]),
        ({"groups": {"g": {"core": 4}}, "resources": {"h": 2}}, ["resources", "found 'h'"]),
        ({"groups": {"g": {"core": -4}}, "resources": {"g": 2}}, ["capacity", "found [-4]"]),
        ({"groups": {}, "resources": {}}, ["resources"]),
        ({"groups": [OURS["groups"][0]] * 2}, ["two groups have this name (found 'gpu')", "give"]),
        (group(capacity=[0, 0]), ["groups", "no group has any capacity", "state how much of core"]),
        (group(nodes=600_000) | {"resources": [str(k) for k in range(40)]}, ["groups[0].nodes"]),
        ({"memory_unit_kb": 2**70}, ["memory_unit_kb", f"found {2**70}"]),
        ({"format": "cpdispatch-instance/1"}, ["it is of the format 'cpdispatch-instance/1'"]),
    ],
)
def test_a_wrong_system_is_refused_in_one_line_with_file_field_and_value(
    tmp_path: Path, change: dict[str, Any], parts: list[str]
) -> None:
    path = written(tmp_path, OURS | change)
    with pytest.raises(InputError) as refused:
        systems.load(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("name", ["s.json", "s.toml"])
@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "nonsense", "[1, 2]", "3"])
def test_a_file_that_is_no_system_is_refused(tmp_path: Path, name: str, content: str) -> None:
    path = written(tmp_path, content, name)
    with pytest.raises(InputError) as refused:
        systems.load(path)
    assert str(refused.value).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.json", "resources:\n  - core\n", "it looks like YAML; a system file is JSON"),
        ("s.yaml", "---\nresources: [core]\n", "it looks like YAML; a system file is JSON"),
        ("s.toml", "resources:\n  - core\n", "it looks like YAML; a system file is TOML"),
        ("s.json", '[[groups]]\nname = "a"\n', "it looks like TOML; a system file is JSON"),
        ("s.toml", json.dumps(OURS, indent=1), "it looks like JSON; a system file is TOML"),
        ("s.json", "; Version: 2.2\n", "it looks like a log in SWF; a system file is JSON"),
        ("s.json", "1 " * 18, "it looks like a log in SWF; a system file is JSON"),
        ("s.json", "id,submit\n1,2\n", "it looks like a table (CSV); a system file is JSON"),
        ("s.json", "<html>", "it looks like XML or HTML; a system file is JSON"),
        ("s.json", " \n", "it looks like an empty file; a system file is JSON"),
        ("s.json", '{"resources": ["core"], "resources": ["core"]}', "stands twice in one object"),
        ("s.json", '{"groups": {"a": {"core": 1}, "a": {}}}', "field groups.a: "),
        ("s.json", "\0", "text is needed, this has a zero byte"),
    ],
)
def test_another_kind_of_file_is_called_what_it_looks_like(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = written(tmp_path, content, name)
    with pytest.raises(InputError) as refused:
        systems.load(path)
    assert str(refused.value).startswith(f"{path}:")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_byte_order_mark_hides_no_system(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(OURS).encode())
    assert systems.load(tmp_path / "s.json").nodes == 4


def test_no_group_needs_to_have_any_of_a_resource_type(tmp_path: Path) -> None:
    system = systems.load(written(tmp_path, OURS | group(capacity=[8, 0])))
    assert system.total.tolist() == [24, 0]


def test_groups_that_accasim_does_not_use_have_no_say(tmp_path: Path) -> None:
    accasim = {"groups": {"a": {"core": 4}, "b": {"core": 4, "gpu": 1}}, "resources": {"a": 2}}
    assert systems.load(written(tmp_path, accasim)).resources == ("core",)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for name in ("s.json", "s.toml"):
        (tmp_path / name).write_bytes(b'{"resources": ["\xff"]}')
        with pytest.raises(InputError, match=name):
            systems.load(tmp_path / name)


# --------------------------------------------------------------------- what a user may say


def test_a_number_is_that_many_processors_in_one_pool() -> None:
    system = systems.find("128")
    assert (system.nodes, system.total.tolist()) == (1, [128])


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_name_is_the_system_of_that_name(name: str) -> None:
    assert systems.find(name) is NAMED[name]


def test_a_path_is_the_system_in_that_file(tmp_path: Path) -> None:
    assert systems.find(str(written(tmp_path, OURS))).nodes == 4


def test_a_log_is_prepared_for_a_system_of_which_the_path_is_given(tmp_path: Path) -> None:
    columns = {"id": [1], "submit": [0], "runtime": [9], "units": 1, "core": 1}
    _, found = prepare(from_table(columns), written(tmp_path, OURS))
    assert found.groups == systems.load(written(tmp_path, OURS)).groups


def test_a_misspelt_name_gets_a_hint() -> None:
    with pytest.raises(UsageError, match=r"unknown system 'gaja'; did you mean gaia\?"):
        systems.find("gaja")


@pytest.mark.parametrize("text", ["0", "-5", "--5", "²", "", "9" * 20, "9" * 5000])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    with pytest.raises((UsageError, InputError)):
        systems.find(text)


@pytest.mark.parametrize("text", ["9" * 20, "9" * 5000, "0-" + "9" * 5000, "²", "-1"])
def test_a_node_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="has no such node"):
        systems.find("4").named_nodes(text)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=12))
def test_any_word_is_a_system_or_refused(text: str) -> None:
    try:
        system = systems.find(text)
    except (UsageError, InputError):
        return
    assert system.nodes >= 1
