"""Jobs that are kept to some nodes: what they ask for, what they get, and who checks it."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import access, cli, verify
from cpdispatch.dispatch import REGISTRY
from cpdispatch.errors import InputError
from cpdispatch.jobs import ANYWHERE, Access, Column, JobTable, Workload, largest_share, on_pool
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import NodeGroup, Partition, System, load, ranges_of, system_as_dict
from cpdispatch.workloads import from_table, prepare, read, table
from tests import strategies
from tests.effort import examples

SIX = System(
    "six",
    ("core", "gpu"),
    (NodeGroup("thin", 4, (4, 0), ("ib",)), NodeGroup("fat", 2, (8, 2), ("ib", "a100"))),
    partitions=(
        Partition("batch", (0, 1, 2, 3)),
        Partition("gpu", (3, 4, 5), 100),
        Partition("debug", (0,), 10, exclusive=True),
    ),
)
FEATURES = ("ib", "ssd", "a100")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "name",
    ["easy:allocate=best-fit", "conservative:allocate=best-fit", "best:allocate=best-fit",
     "prb:allocate=best-fit", "hcp:limit=0.2,cp=off", "thesis-hcp3:limit=0.2"],
)  # fmt: skip
def test_how_full_a_node_is_does_not_depend_on_what_later_jobs_ask_for(
    name: str, compiled: bool
) -> None:
    """The node with the feature is half full, and idle in what stands for the feature."""
    groups = (NodeGroup("a", 1, (8,), ("ib",)), NodeGroup("b", 1, (4,)))
    found = []
    for features in ("", "ib"):
        log = from_table(
            {"id": [1, 2, 3, 4], "submit": [0, 1, 2, 500], "runtime": [100, 50, 10, 1],
             "requested": [100, 50, 10, 1], "units": 1, "core": [5, 1, 4, 1],
             "features": ["", "", "", features]}
        )  # fmt: skip
        case = prepare(log, System("s", ("core",), groups))
        run = simulate(*case, name, predictor="walltime", compiled=compiled)
        assert run.verify() == []
        found.append([run.jobs[name].tolist() for name in ("start", "nodes")])
    assert found[0] == found[1]
    assert found[0][0][:3] == [0, 1, 2]


def jobs(**columns: Any) -> Workload:
    """Jobs of one core and 5 s, submitted at once, with these columns too."""
    count = len(next(iter(columns.values())))
    needed = {"submit": 0, "runtime": 5, "requested": 5, "units": 1, "core": 1, "gpu": 0}
    return from_table({"id": range(1, count + 1)} | needed | columns)


def nodes_of(workload: Workload, system: System = SIX) -> list[str]:
    """Where each job runs when it may spread as it likes: a unit for each node it may use."""
    kept, lowered = prepare(workload, system)
    request = np.stack(kept.table.columns[Column.REQUEST :], axis=1)
    fits = (request[:, None, :] <= lowered.capacity).all(axis=2)
    return [ranges_of(np.flatnonzero(row).tolist()) for row in fits]


def test_a_partition_a_feature_or_a_list_keeps_a_job_to_nodes() -> None:
    found = nodes_of(jobs(partition=["batch", "gpu", "batch,gpu", None, "debug"]))
    assert found == ["0-3", "3-5", "0-5", "0-5", "0"]
    assert nodes_of(jobs(features=["ib", "a100", "ib&a100", "a100|ib", ""])) == [
        "0-5", "4-5", "4-5", "0-5", "0-5",
    ]  # fmt: skip
    assert nodes_of(jobs(nodelist=["1 3", "thin", "4-5,0"], exclude=["3", "0-1", ""])) == [
        "1", "2-3", "0 4-5",
    ]  # fmt: skip


def test_fewest_nodes_count_for_nothing_where_jobs_ask_for_no_type_in_common() -> None:
    """They are asked for in negative amounts, beside a type that is the sum of the others."""
    workload = jobs(
        units=[3, 2], core=[1, 0], gpu=[0, 1], partition=["gpu", "gpu"], nodes_min=[3, 0]
    )
    run = simulate(*prepare(workload, SIX), "fifo")
    assert run.jobs["nodes"].map(list).tolist() == [[3, 4, 5], [4]]
    assert run.verify() == []


def test_a_partition_may_have_the_number_0() -> None:
    parts = (Partition("0", (0, 1, 2, 3), tier=2), Partition("1", (4, 5)))
    run = simulate(*prepare(jobs(partition=[0, 1]), replace(SIX, partitions=parts)), "easy")
    assert run.jobs["tier"].tolist() == [2, 1]
    assert run.verify() == []


def test_a_job_longer_than_the_limit_of_a_partition_uses_others_of_its_own_or_none() -> None:
    workload = jobs(partition=["gpu", "gpu", "gpu,batch"], requested=[100, 101, 101])
    assert nodes_of(workload) == ["3-5", "", "0-3"]
    kept, system = prepare(workload, SIX)
    assert kept.notes[access.NO_NODE] == 1
    run = simulate(kept, system, "easy")
    assert run.jobs["reason"].tolist() == ["started", "never_fits", "started"]
    assert verify.run(run.jobs, run.system) == []


def test_nothing_changes_where_nothing_is_asked_for() -> None:
    plain = jobs(user=["a", "b"])
    kept, system = prepare(plain, SIX)
    assert system is SIX
    assert kept.resources == SIX.resources
    everywhere = jobs(features=["ib", ""], nodelist=["all", ""])
    assert prepare(everywhere, SIX)[1] is SIX
    without = replace(SIX, partitions=())
    assert prepare(jobs(partition=["nobody", "knows"]), without)[1] is without


def test_whole_nodes_are_shared_with_nobody() -> None:
    workload = jobs(exclusive=[0, 1, 0, 1, 0, 0], units=[1, 2, 3, 3, 2, 1], core=[1, 2, 1, 1, 3, 4])
    kept, system = prepare(workload, SIX)
    for name in ("easy", "conservative", "fifo"):
        run = simulate(kept, system, name)
        assert verify.run(run.jobs, run.system) == []
        assert run.jobs["start"].min() >= 0
        held = run.jobs["nodes"][1]
        assert len(held) == 2
        assert run.jobs["node_units"][1] == [1, 1]


# ------------------------------------------------------------------------------ every kind of wish


@st.composite
def sites(draw: st.DrawFn) -> System:
    """A system whose groups have features, with overlapping partitions."""
    system = draw(strategies.systems())
    groups = [
        replace(group, features=tuple(draw(st.lists(st.sampled_from(FEATURES), unique=True))))
        for group in system.groups
    ]
    groups[0] = replace(groups[0], features=FEATURES)
    every = st.integers(0, system.nodes - 1)
    partitions = [
        Partition(
            f"p{k}",
            tuple(sorted(draw(st.sets(every, min_size=1)))),
            draw(st.none() | st.integers(1, 12)),
            draw(st.integers(0, 3)) == 0,
        )
        for k in range(draw(st.integers(0, 3)))
    ]
    return replace(system, groups=tuple(groups), partitions=tuple(partitions))


@st.composite
def wishes(draw: st.DrawFn, system: System) -> Access:
    """What a job may ask for of these nodes."""
    every = st.lists(st.integers(0, system.nodes - 1), unique=True, max_size=3)
    all_of = st.lists(st.sampled_from(FEATURES), min_size=1, max_size=2).map("&".join)
    one_of = st.lists(all_of, min_size=1, max_size=2).map("|".join)
    return Access(
        draw(st.just("") | one_of),
        draw(st.just("") | every.map(lambda some: ranges_of(sorted(some)))),
        draw(st.just("") | every.map(lambda some: ",".join(map(str, some)))),
        draw(st.integers(0, 3)) == 0,
    )


@st.composite
def cases(draw: st.DrawFn, max_jobs: int = 14) -> tuple[Workload, System]:
    system = draw(sites())
    workload = draw(strategies.workloads(system, max_jobs))
    access = (ANYWHERE, *(draw(wishes(system)) for _ in range(draw(st.integers(0, 4)))))
    count = len(workload)
    of = np.array(draw(st.lists(st.integers(0, len(access) - 1), min_size=count, max_size=count)))
    names = [partition.name for partition in system.partitions]
    labels = tuple(dict.fromkeys((*names, ",".join(names)))) if names else ("nowhere",)
    columns = list(workload.table.columns)
    columns[Column.PARTITION] = np.array(
        draw(st.lists(st.integers(-1, len(labels) - 1), min_size=count, max_size=count))
    )
    made = JobTable(columns, {"partition": labels})
    return replace(workload, table=made, access=access, access_of=of), system


def plain_nodes(workload: Workload, system: System, job: int) -> set[int]:
    """The nodes that a job may use, one at a time, from what the words say."""
    wish = workload.access[int(workload.access_of[job])]  # type: ignore[index]
    partition = workload.table.label("partition", job) if system.partitions else ""
    requested_s = int(workload.table.requested_s[job])
    found = set()
    for node in range(system.nodes):
        features = system.groups[system.group_of[node]].features
        if partition and not any(
            node in p.nodes and (p.limit_s is None or requested_s <= p.limit_s)
            for p in system.partitions
            if p.name in partition.split(",")
        ):
            continue
        if wish.features and not any(
            all(name in features for name in some.split("&")) for some in wish.features.split("|")
        ):
            continue
        if wish.nodelist and node not in system.named_nodes(wish.nodelist):
            continue
        if wish.exclude and node in system.named_nodes(wish.exclude):
            continue
        found.add(node)
    return found


@settings(max_examples=examples(300))
@given(cases())
def test_a_unit_fits_the_empty_nodes_that_the_words_allow(case: tuple[Workload, System]) -> None:
    workload, system = case
    kept, lowered = access.keep(workload, system)
    base = len(system.resources)
    assert lowered.nodes == system.nodes
    assert (lowered.capacity[:, :base] == system.capacity).all()
    before, after = workload.table.request, kept.table.request
    assert (after[:, :base] == before).all()
    for job in range(len(workload)):
        alone = (before[job] <= system.capacity).all(axis=1)
        wanted = plain_nodes(workload, system, job) & set(np.flatnonzero(alone).tolist())
        got = np.flatnonzero((after[job] <= lowered.capacity).all(axis=1)).tolist()
        assert set(got) == wanted


@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=examples(150))
@given(cases(), st.sampled_from(["easy", "easy-saf-saf", "best"]))
def test_replays_keep_every_job_to_its_nodes(
    compiled: bool, case: tuple[Workload, System], name: str
) -> None:
    kept, system = access.keep(*case)
    run = simulate(kept, system, name, predictor="walltime", compiled=compiled)
    assert verify.run(run.jobs, run.system) == []


@settings(max_examples=examples(40))
@given(cases(max_jobs=8), st.sampled_from(sorted(REGISTRY)))
def test_every_dispatcher_keeps_every_job_to_its_nodes(
    case: tuple[Workload, System], name: str
) -> None:
    kept, system = access.keep(*case)
    run = simulate(kept, system, name, predictor="walltime")
    assert verify.run(run.jobs, run.system) == []


@settings(max_examples=examples(100))
@given(cases())
def test_a_job_that_is_kept_to_some_nodes_has_the_share_of_one_that_is_not(
    case: tuple[Workload, System],
) -> None:
    workload, system = case
    kept, lowered = access.keep(*case)
    some = [k for k, name in enumerate(lowered.resources) if not access.is_whole(name)]
    columns = [*range(Column.REQUEST), *(Column.REQUEST + k for k in some)]
    table = JobTable([kept.table.columns[k] for k in columns])
    for share in (largest_share, on_pool):
        found = share(table, access.total(lowered)[some])
        assert found.tolist() == share(workload.table, system.total).tolist()


@pytest.mark.parametrize("compiled", [True, False])
def test_partitions_in_which_nobody_waits_let_nobody_wait_under_easy(compiled: bool) -> None:
    half = System(
        "halves", ("core",), (NodeGroup("n", 100, (1,)),),
        partitions=(Partition("a", tuple(range(50))), Partition("b", tuple(range(50, 100)))),
    )  # fmt: skip
    count = 20
    log = from_table({
        "id": range(count), "submit": [50 * k for k in range(count)], "runtime": 100,
        "requested": 100, "units": [50, 50, 3, 3] * (count // 4), "core": 1,
        "partition": ["a", "b"] * (count // 2),
    })  # fmt: skip
    run = simulate(*prepare(log, half), "easy:wait=0.6", compiled=compiled)
    assert run.verify() == []
    assert run.jobs["start"].tolist() == run.jobs["submit"].tolist()
    assert run.decisions["easy_wait"].max() == 0
    widths = {name: row["jobs"] for name, row in run.by_width().items()}
    assert widths == {"narrow": count / 2, "middle": 0, "wide": count / 2}


# ------------------------------------------------------------------------------- what is not true


def ran(workload: Workload, system: System = SIX) -> Run:
    run = simulate(*prepare(workload, system), "easy")
    assert verify.run(run.jobs, run.system) == []
    return run


def moved(run: Run, job: int, node: int) -> list[str]:
    """What verify says when a job of one unit had run on this node."""
    frame = run.jobs.copy()
    frame["nodes"] = [[node] if k == job else at for k, at in enumerate(frame["nodes"])]
    plain = replace(run.system, resources=SIX.resources, groups=SIX.groups)
    return [f"{v.kind}: {v.text}" for v in verify.run(frame, plain)]


@pytest.mark.parametrize(
    ("columns", "node", "says"),
    [
        ({"partition": ["batch"]}, 4, "partition batch"),
        ({"partition": ["gpu,batch"], "requested": [101]}, 5, "partition gpu,batch"),
        ({"features": ["a100"]}, 0, "features a100"),
        ({"nodelist": ["1-2 5"]}, 3, "nodelist 1-2 5"),
        ({"exclude": ["thin"]}, 0, "exclude thin"),
    ],
)
def test_a_job_on_a_node_that_it_may_not_use_is_found(
    columns: dict[str, list[Any]], node: int, says: str
) -> None:
    found = moved(ran(jobs(**columns)), 0, node)
    assert found == [f"access: job 1 is on node {node} at 0 and asks for {says}"]


@pytest.mark.parametrize("columns", [{"exclusive": [1, 0]}, {"partition": ["debug", None]}])
def test_a_whole_node_that_is_shared_is_found(columns: dict[str, list[Any]]) -> None:
    run = ran(jobs(**columns))
    own = int(run.jobs["nodes"][0][0])
    assert own != int(run.jobs["nodes"][1][0])
    assert moved(run, 1, own) == [
        f"access: node {own} at 0: 2 units of the jobs 1, 2, one takes it whole"
    ]


def test_the_table_that_says_less_is_checked_for_what_it_says() -> None:
    run = ran(jobs(partition=["batch", "batch"], features=["ib", ""]))
    assert moved(run, 1, 4)
    frame = run.jobs.drop(columns=["partition"])
    frame["nodes"] = [[0], [4]]
    plain = replace(run.system, resources=SIX.resources, groups=SIX.groups)
    assert verify.run(frame, plain) == []


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"partition": ["bath"]}, "no such partition; did you mean batch? (it has: batch, gpu, "),
        ({"features": ["a10"]}, "no such feature; did you mean a100? (it has: a100, ib)"),
        ({"features": ["ib&"]}, "no such feature (it has: a100, ib)"),
        ({"nodelist": ["0-9"]}, "no such node"),
        ({"nodelist": ["slim"]}, "no such node or group (found 'slim'); write numbers from 0 to 5"),
        ({"exclude": ["1 1"]}, "named twice"),
    ],
)
def test_a_wish_for_what_there_is_not_names_the_job(
    columns: dict[str, list[str]], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        prepare(jobs(**columns), SIX)
    (field, (value,)) = next(iter(columns.items()))
    text = str(caught.value)
    assert "job 1: " in text
    assert says in text
    assert f"field {field}" in text
    assert value in text


# ------------------------------------------------------------------------------------ files


def test_wishes_stand_in_tables(tmp_path: Path) -> None:
    workload = jobs(
        partition=["batch", None, "gpu"], features=["ib", "", "a100|ib"], exclude=["", "0", ""],
        nodelist=["0-2", "", ""], exclusive=[0, 1, 0],
    )  # fmt: skip
    for name in ("log.csv", "log.parquet"):
        table.write(workload, tmp_path / name)
        again = read(tmp_path / name)
        for what in ("features", "nodelist", "exclude"):
            codes, texts = workload.asked(what)
            codes_again, texts_again = again.asked(what)
            assert [texts[k] for k in codes] == [texts_again[k] for k in codes_again]
        assert again.exclusive().tolist() == [0, 1, 0]
        assert nodes_of(again) == nodes_of(workload)


def test_wishes_go_where_their_jobs_go() -> None:
    workload = jobs(features=["ib", "", "a100"], exclusive=[0, 1, 0])
    for same in (workload.take(np.array([1, 2])), pickle.loads(pickle.dumps(workload))):
        codes, texts = same.asked("features")
        assert [texts[k] for k in codes][-2:] == ["", "a100"]
        assert same.exclusive().tolist()[-2:] == [1, 0]


SITE = """
resources = ["core", "gpu"]
groups = [
    {name = "thin", nodes = 4, capacity = [4, 0], features = ["ib"]},
    {name = "fat", nodes = 2, capacity = [8, 2], features = ["ib", "a100"]},
]
partitions = [
    {name = "batch", nodes = "thin"},
    {name = "gpu", nodes = "3 fat", limit_s = 100},
    {name = "debug", nodes = "0", limit_s = 10, exclusive = true},
]
"""


def test_partitions_and_features_stand_in_system_files(tmp_path: Path) -> None:
    path = tmp_path / "six.toml"
    path.write_text(SITE)
    found = load(path)
    assert found.partitions == SIX.partitions
    assert found.groups == SIX.groups
    again = tmp_path / "six.json"
    again.write_text(json.dumps(system_as_dict(found)))
    assert load(again).partitions == SIX.partitions


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"gpu", nodes = "3 fat"', '"gpu", nodes = "9"', "partitions[1]: "),
        ('"gpu", nodes', '"batch", nodes', "two partitions have this name"),
        ('"gpu", nodes', '"", nodes', "it has no name"),
        ("limit_s = 100", "limit_s = 0", "partitions[1].limit_s"),
    ],
)
def test_a_wrong_partition_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "six.toml"
    path.write_text(SITE.replace(old, new))
    with pytest.raises(InputError) as caught:
        load(path)
    assert says in str(caught.value)
    assert "six.toml" in str(caught.value)


def test_a_site_from_files_to_a_checked_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "six.toml").write_text(SITE)
    log = tmp_path / "log.csv"
    log.write_text(
        "id,submit,runtime,requested,units,core,gpu,partition,features,exclusive\n"
        "1,0,50,60,2,2,0,batch,,1\n2,0,50,60,4,1,1,gpu,a100,\n3,1,5,9,1,1,0,debug,,\n"
        "4,2,5,9,3,4,0,batch,ib,\n"
    )
    out = tmp_path / "out"
    command = f"simulate {log} --system {tmp_path}/six.toml -d easy -d hcp --filter all --out {out}"
    assert cli.run(command.split()) == 0
    for name in ("easy", "hcp"):
        capsys.readouterr()
        assert cli.run(["verify", "--run", str(out / name)]) == 0
        assert "feasible" in capsys.readouterr().out
    path = out / "easy" / "jobs.parquet"
    frame = pd.read_parquet(path)
    assert frame["features"].tolist() == ["", "a100", "", "ib"]
    frame["features"] = ["", "a100", "", "a100"]
    frame.to_parquet(path)
    assert cli.run(["verify", "--run", str(out / "easy")]) == 1
    assert "job 4 is on node 1 at 50 and asks for" in capsys.readouterr().out


def test_what_a_user_is_told_has_no_resource_type_that_stands_for_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, log = tmp_path / "four.toml", tmp_path / "log.csv"
    site.write_text(
        'resources = ["core"]\ngroups = [{name = "n", nodes = 4, capacity = [4]}]\n'
        'partitions = [{name = "node1", nodes = "0-1"}, {name = "all"}]\n'
    )
    log.write_text(
        "id,submit,runtime,requested,units,core,partition\n"
        "1,0,600,900,3,2,node1\n2,60,1200,1800,4,2,node1\n3,70,100,200,1,2,all\n"
    )
    out = str(tmp_path / "out")
    command = ["simulate", str(log), "--system", str(site), "-d", "easy", "--out", out]
    assert cli.run(command) == 0
    capsys.readouterr()
    assert cli.run(["explain", out, "--job", "2"]) == 0
    told = capsys.readouterr().out
    assert "4 units of 2 core each, on nodes of node1, for 30 min" in told
    assert "too little core on nodes of node1: room for 0 to 1" in told
    assert "@" not in told
    assert cli.run(["status", out, "--at", "100"]) == 0
    told = capsys.readouterr().out
    assert "core on nodes of node1: room for 0 of 4 units" in told
    assert "@" not in told


def test_only_a_job_that_asks_for_whole_nodes_lacks_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "id,submit,runtime,requested,units,core,exclusive\n"
        "1,0,600,900,1,1,1\n2,10,600,900,1,3,0\n3,20,60,60,1,1,1\n4,30,60,60,1,2,0\n"
    )
    site = tmp_path / "two.toml"
    site.write_text('resources = ["core"]\ngroups = [{name = "n", nodes = 2, capacity = [4]}]\n')
    out = str(tmp_path / "out")
    command = ["simulate", str(log), "--system", str(site), "-d", "easy", "--out", out]
    assert cli.run(command) == 0
    capsys.readouterr()
    for job, lacking in (("3", "core of whole nodes"), ("4", "core")):
        assert cli.run(["explain", out, "--job", job]) == 0
        told = capsys.readouterr().out
        assert f"too little {lacking}: room for 0 of its 1 unit" in told
        assert ("needs its nodes whole" in told) == (job == "3")
    assert cli.run(["status", out, "--at", "40"]) == 0
    told = capsys.readouterr().out
    assert "core of whole nodes: room for 0 of 1 units" in told
    assert " core: room for 0 of 1 units" in told


SHARED = """resources = ["core"]
groups = [{name = "n", nodes = 4, capacity = [4]}]
partitions = [
    {name = "few", nodes = "0-1", exclusive = true}, {name = "two", nodes = "0-1"}, {name = "all"},
]
"""


@pytest.mark.parametrize(("partition", "lacks"), [
    ("few", "core of whole nodes: room for 0"), ("two", "core on nodes of two: room for 2"),
])  # fmt: skip
def test_nodes_that_others_use_are_told_as_what_is_lacking(
    partition: str, lacks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of the nodes 0 and 1 has a job on 3 of its 4 cores; all of 2 and 3 is free."""
    site, log, out = tmp_path / "site.toml", tmp_path / "log.csv", str(tmp_path / "out")
    site.write_text(SHARED)
    units = {"few": "1,1", "two": "3,1"}[partition]
    log.write_text(
        "id,submit,runtime,requested,units,core,partition,user\n"
        f"1,0,600,900,2,3,all,a\n2,60,100,200,{units},{partition},b\n"
    )
    assert cli.run(["simulate", str(log), "--system", str(site), "-d", "easy", "--out", out]) == 0
    capsys.readouterr()
    assert cli.run(["explain", out, "--job", "2"]) == 0
    told = capsys.readouterr().out
    assert f"too little {lacks}" in told
    assert "1 job ran on it, 1 of them ended" in " ".join(told.split())
    assert ("It needs its nodes whole" in told) == (partition == "few")
    assert cli.run(["status", out, "--at", "100"]) == 0
    assert lacks in capsys.readouterr().out
