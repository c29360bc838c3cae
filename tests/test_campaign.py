from __future__ import annotations

import errno
import fcntl
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import campaign, cli
from cpdispatch import compile as compiling_of
from cpdispatch.arrays import IntArray
from cpdispatch.campaign import (
    CampaignError,
    Failed,
    Shared,
    Task,
    Workers,
    cluster,
    completed,
    local,
    run,
)
from cpdispatch.campaign.tasks import packed
from cpdispatch.errors import CpdispatchError, InputError, InterruptedRunError, UsageError
from cpdispatch.experiment import runs
from cpdispatch.simulator import Run
from tests.scripts import WITH_TESTS

HERE, TWO = Workers(cores=1), Workers(cores=2)
LOG = """; MaxProcs: 4
1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 -1 1 -1 -1 -1
2 3 -1 10 4 -1 -1 4 20 -1 1 2 1 -1 1 -1 -1 -1
3 5 -1 4 1 -1 -1 1 5 -1 1 2 1 -1 1 -1 -1 -1
"""
ADVICE = "it may have run out of memory; use fewer cores"


# ------------------------------------------------------------------------------------- tasks


def scaled(columns: dict[str, IntArray], factor: int) -> int:
    return int(columns["ones"].sum()) * factor


def about_columns(columns: dict[str, IntArray]) -> tuple[str, bool, bool]:
    ones = columns["ones"]
    return type(ones).__name__, ones.flags.writeable, ones.flags.owndata


def killed_once(marker: str, value: int) -> int:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def killed_always(number: int) -> int:
    if number == 1:
        os._exit(137)
    return number


def noted(folder: str, number: int) -> int:
    """Leaves a file for each time it runs."""
    (Path(folder) / f"{number}-{time.monotonic_ns()}").touch()
    return number**2


def threads_of(number: int) -> int:
    return campaign.threads()


def failing(number: int) -> float:
    return 1 / number


def refused(number: int) -> int:
    raise InputError("is wrong", file="some.swf", line=number)


def unpicklable() -> Any:
    return lambda: None


def patient(folder: str, number: int) -> int:
    """Goes on until it is told to stop, and then says so in a file."""
    if number == 0:
        return 0
    (Path(folder) / f"began-{number}").touch()
    for _ in range(600):
        if campaign.asked_to_stop():
            (Path(folder) / f"stopped-{number}").touch()
            raise InterruptedRunError("told to stop")
        time.sleep(0.05)
    return number


def telling(number: int) -> int:
    campaign.report(0.25)
    time.sleep(1.0)
    return number


def grown(number: int) -> int:
    """Makes loky think that this process has grown too much, so that another takes its place."""
    from joblib.externals.loky import process_executor  # type: ignore[import-untyped]

    if number == 2:  # loky looks from the second task of a process on
        process_executor._MEMORY_LEAK_CHECK_DELAY = -1.0
        process_executor._MAX_MEMORY_LEAK_SIZE = -(10**12)
    return number


def threads() -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def gathered(into: dict[str, Any], count: int, function: Any, workers: Workers) -> None:
    """Do numbered tasks; the results that come before an exception are seen."""
    into.update(completed(numbers(count), function, workers=workers))


def numbers(count: int) -> list[Task]:
    return [Task(f"number {n}", (n,)) for n in range(count)]


# ---------------------------------------------------------------------------------- one machine


@pytest.fixture
def columns() -> dict[str, IntArray]:
    return {"ones": np.ones(100_000, dtype=np.int64), "none": np.zeros(0, dtype=np.int64)}


@pytest.mark.parametrize("workers", [HERE, TWO])
def test_results_come_in_the_order_of_the_tasks(
    workers: Workers, columns: dict[str, IntArray]
) -> None:
    tasks = [Task(f"times {n}", (Shared("columns"), n)) for n in (3, 1, 2)]
    found = run(tasks, scaled, shared={"columns": columns}, workers=workers)
    assert list(found.items()) == [("times 3", 300_000), ("times 1", 100_000), ("times 2", 200_000)]


def test_workers_have_one_read_only_copy_of_the_columns(columns: dict[str, IntArray]) -> None:
    tasks = [Task("a", (Shared("columns"),)), Task("b", (Shared("columns"),))]
    found = run(tasks, about_columns, shared={"columns": columns}, workers=TWO)
    assert found == {"a": ("ndarray", False, False), "b": ("ndarray", False, False)}


def test_a_worker_computes_with_one_thread() -> None:
    assert run([Task("a"), Task("b")], threads, workers=TWO) == {"a": "1", "b": "1"}


def test_a_task_whose_worker_is_killed_is_done_again(tmp_path: Path) -> None:
    tasks = [Task(str(n), (str(tmp_path / str(n % 2)), n)) for n in range(6)]
    assert run(tasks, killed_once, workers=TWO) == {str(n): n for n in range(6)}


def test_a_worker_that_has_grown_is_replaced_without_a_word() -> None:
    with warnings.catch_warnings(record=True) as warned:
        found = run(numbers(5), grown, workers=TWO)
    assert list(found.values()) == list(range(5))
    assert warned == []


def test_a_task_that_kills_every_worker_is_named_and_the_others_are_done() -> None:
    found: dict[str, Any] = {}
    with pytest.raises(CampaignError) as caught:
        gathered(found, 5, killed_always, TWO)
    assert found == {f"number {n}": n for n in (0, 2, 3, 4)}
    assert str(caught.value) == (
        f"1 of 5 tasks failed: number 1: its worker was killed 3 times: {ADVICE}"
    )


def test_each_reason_is_told_once() -> None:
    few = {"b": "it is odd", "a": "it is even", "c": "it is odd"}
    assert str(CampaignError({key: Failed(why) for key, why in few.items()}, 4)) == (
        "3 of 4 tasks failed: b and c: it is odd; a: it is even"
    )
    many = {str(n): "no room" for n in range(6)} | {f"n{n}": f"why {n}" for n in range(5)}
    assert str(CampaignError({key: Failed(why) for key, why in many.items()}, 20, 9)) == (
        "11 of 20 tasks failed: 0, 1, 2 and 3 more: no room; n0: why 0; n1: why 1; and 3 more; "
        "so many failed that 9 were not begun"
    )


@pytest.mark.parametrize("workers", [HERE, TWO])
def test_an_exception_names_its_task_and_holds_up_no_other(workers: Workers) -> None:
    found: dict[str, Any] = {}
    with pytest.raises(
        CampaignError, match=r"1 of 3 .*number 0: ZeroDivisionError: .*\(test_campaign.py:\d+\)"
    ) as caught:
        gathered(found, 3, failing, workers)
    assert found == {"number 1": 1.0, "number 2": 0.5}
    assert "in failing" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("workers", [HERE, TWO])
def test_when_all_fail_only_some_are_tried(workers: Workers) -> None:
    with pytest.raises(CampaignError) as caught:
        run(numbers(100), refused, workers=workers)
    assert campaign.FAILURES_MAX <= len(caught.value.failed) <= campaign.FAILURES_MAX + 2
    assert "number 0: some.swf:0: is wrong (found" not in str(caught.value)
    assert "number 0: some.swf:0: is wrong; number 1:" in str(caught.value)
    left = 100 - len(caught.value.failed)
    assert str(caught.value).endswith(f"more; so many failed that {left} were not begun")


def test_the_error_of_a_single_task_in_this_process_is_raised_as_it_is() -> None:
    with pytest.raises(InputError, match=r"^some.swf:0: is wrong$"):
        run(numbers(1), refused, workers=HERE)
    with pytest.raises(ZeroDivisionError):
        run(numbers(1), failing)


@pytest.mark.parametrize("workers", [HERE, TWO])
def test_a_result_that_cannot_be_pickled_is_that_tasks_failure(workers: Workers) -> None:
    with pytest.raises(CampaignError, match="a and b: its result cannot be pickled"):
        run([Task("a"), Task("b")], unpicklable, workers=workers)


def test_a_function_that_cannot_be_sent_is_one_clear_error() -> None:
    with pytest.raises(CampaignError, match="it cannot be sent to a worker"):
        run(numbers(2), lambda number: number, workers=TWO)


def test_two_tasks_of_one_key_are_refused() -> None:
    with pytest.raises(ValueError, match="same key"):
        run([Task("a"), Task("a")], threads)


def test_less_than_no_cores_are_refused() -> None:
    with pytest.raises(UsageError, match="--cores -1"):
        Workers(cores=-1)


def test_cores_of_this_machine_are_refused_beside_a_cluster() -> None:
    with pytest.raises(UsageError, match="--cores 4 excludes --cluster tcp://host:8786: its own"):
        Workers(cores=4, cluster="tcp://host:8786")


def compiling(number: int) -> int:
    compiling_of.announce()
    return number


def test_that_workers_compile_is_said_once_by_the_process_that_has_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling_of, "_announced", False)
    with redirect_stderr(StringIO()) as said:
        run(numbers(4), compiling, workers=TWO)
    assert said.getvalue().startswith("cpdispatch: compiling kernels")
    assert said.getvalue().count("compiling") == 1
    assert "compiling" not in capfd.readouterr().err


@pytest.mark.parametrize("workers", [HERE, TWO])
def test_progress_is_told_to_the_end_and_of_parts(workers: Workers) -> None:
    told: list[tuple[float, int]] = []
    run(numbers(2), telling, workers=workers, progress=lambda *now: told.append(now))
    assert told[0] == (0.0, 2)
    assert told[-1] == (2.0, 2)
    assert any(done % 1 > 0 for done, _ in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


# ------------------------------------------------------------------------- interrupted and resumed


def wish(folder: Path, began: int) -> Callable[[], bool]:
    """Wish to stop once so many tasks are under way."""
    return lambda: len(list(folder.glob("began-*"))) >= began


@pytest.mark.parametrize(("workers", "under_way"), [(HERE, 1), (TWO, 2)])
def test_tasks_are_told_to_stop_and_what_is_done_is_kept(
    workers: Workers, under_way: int, tmp_path: Path
) -> None:
    tasks = [Task(str(n), (str(tmp_path), n)) for n in range(4)]
    kept = tmp_path / "kept"
    with pytest.raises(InterruptedRunError, match="interrupted: 1 of 4 tasks are done"):
        run(tasks, patient, workers=workers, folder=kept, about={}, stop=wish(tmp_path, under_way))
    assert len(list(tmp_path.glob("stopped-*"))) == under_way
    assert len(list(kept.glob("*.pickle"))) == 1


@pytest.mark.parametrize("workers", [HERE, TWO])
def test_an_interrupted_campaign_does_only_what_is_missing(
    workers: Workers, tmp_path: Path
) -> None:
    notes, folder = tmp_path / "notes", tmp_path / "folder"
    notes.mkdir()
    tasks = [Task(f"a/b {n}", (str(notes), n)) for n in range(8)]
    whole = {f"a/b {n}": n**2 for n in range(8)}
    some = run(tasks[2:5], noted, workers=workers, folder=folder, about={"limit": 1})
    told: list[tuple[float, int]] = []
    found = run(
        tasks, noted, workers=workers, folder=folder, about={"limit": 1},
        progress=lambda *now: told.append(now),
    )  # fmt: skip
    assert found == {**whole, **some}
    assert list(found) == list(whole)
    assert sorted(path.name.split("-")[0] for path in notes.iterdir()) == [str(n) for n in range(8)]
    assert (told[0], told[-1]) == ((3.0, 8), (8.0, 8))


def test_a_folder_of_another_campaign_is_refused(tmp_path: Path) -> None:
    run(numbers(2), failing_not, workers=HERE, folder=tmp_path / "one", about={"limit": 1})
    with pytest.raises(UsageError, match="another campaign: its limit is 1, not 2"):
        run(numbers(2), failing_not, workers=HERE, folder=tmp_path / "one", about={"limit": 2})
    with pytest.raises(UsageError, match="another campaign: its function is"):
        run(numbers(2), telling, workers=HERE, folder=tmp_path / "one", about={"limit": 1})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UsageError, match="holds something else"):
        run(numbers(2), failing_not, workers=HERE, folder=tmp_path / "other", about={})
    with pytest.raises(ValueError, match="what it is about"):
        run(numbers(2), failing_not, workers=HERE, folder=tmp_path / "one")


def failing_not(number: int) -> int:
    return number


def test_a_damaged_result_is_one_clear_error(tmp_path: Path) -> None:
    run(numbers(2), failing_not, workers=HERE, folder=tmp_path, about={})
    path = next(tmp_path.glob("number_1-*.pickle"))
    path.write_bytes(path.read_bytes()[:3])
    with pytest.raises(InputError, match=r"number_1-\w+\.pickle: is damaged.*delete it"):
        run(numbers(2), failing_not, workers=HERE, folder=tmp_path, about={})


CAMPAIGN = """
import signal, sys
from pathlib import Path
from cpdispatch.campaign import Task, Workers, run
from cpdispatch.errors import InterruptedRunError
from tests.test_campaign import patient
wished = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: wished.append(1))
folder = sys.argv[1]
try:
    run([Task(str(n), (folder, n)) for n in range(4)], patient, workers=Workers(cores=2),
        folder=Path(folder) / "kept", about={}, stop=lambda: bool(wished))
except InterruptedRunError as error:
    sys.exit(130)
"""


def begun(folder: Path, temporary: Path) -> subprocess.Popen[bytes]:
    """A campaign in a process group of its own, with two tasks under way."""
    temporary.mkdir(exist_ok=True)
    running = subprocess.Popen(
        [sys.executable, "-c", WITH_TESTS + CAMPAIGN, str(folder)],
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    while len(list(folder.glob("began-*"))) < 2:
        assert running.poll() is None
        time.sleep(0.05)
    return running


UNREACHED = """
import signal
from joblib.externals.loky.backend.spawn import get_preparation_data
from cpdispatch.campaign import local

def held_back():
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())

with local._unreached():
    get_preparation_data("worker")  # the last that loky does before it starts one
    assert held_back() >= set(local._STOPPING), held_back()
assert not held_back(), held_back()
"""


def test_the_first_worker_starts_with_the_signals_held_back_that_end_a_command() -> None:
    subprocess.run([sys.executable, "-c", UNREACHED], check=True)


def semaphores(process: int) -> list[Path]:
    """Those of a campaign, and the folder that says so."""
    return list(Path("/dev/shm").glob(f"*-{process}-*"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_stopped_campaign_leaves_no_process_and_no_temporary_file(
    how: signal.Signals, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    running = begun(tmp_path, temporary)
    if how is signal.SIGKILL:
        running.kill()
        running.wait()
    else:
        os.killpg(running.pid, how)
        assert running.wait() == 130
    until = time.monotonic() + 10
    while time.monotonic() < until and (
        of_session(running.pid) or any(temporary.iterdir()) or semaphores(running.pid)
    ):
        time.sleep(0.05)
    assert of_session(running.pid) == []
    assert list(temporary.iterdir()) == []
    assert semaphores(running.pid) == []
    assert len(list(tmp_path.glob("stopped-*"))) == 2


def test_what_a_campaign_left_that_was_killed_with_all_its_processes_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    running = begun(tmp_path, temporary)
    others = [temporary / "cpdispatch-notes", temporary / f"other-{running.pid}-x"]
    for other in others:
        other.mkdir()
    found = sorted(path.name for path in temporary.rglob("*"))
    local.sweep()
    assert sorted(path.name for path in temporary.rglob("*")) == found
    assert semaphores(running.pid)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    until = time.monotonic() + 10
    while of_session(running.pid) and time.monotonic() < until:
        time.sleep(0.05)
    # Semaphores may be gone by now: any other campaign of this machine sweeps them, too.
    assert sorted(path.name for path in temporary.rglob("*")) == found
    assert run(numbers(2), failing_not, workers=HERE) == {"number 0": 0, "number 1": 1}
    assert sorted(temporary.iterdir()) == others
    assert semaphores(running.pid) == []


def test_semaphores_are_swept_without_the_folder_for_temporary_files(tmp_path: Path) -> None:
    running = begun(tmp_path, tmp_path / "temporary")
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    local.sweep()
    assert semaphores(running.pid) == []


def test_a_full_folder_for_temporary_files_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(shared: Any, desk: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(local, "_lay_out", full)
    with (
        pytest.raises(
            UsageError, match=r"cannot be written: No space left.*; set TMPDIR to"
        ) as why,
        local._desk({}, 1),
    ):
        pass
    assert str(why.value).startswith(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_desk_of_a_living_campaign_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another container too, where its process has a number that means nothing here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process in (dead.pid, os.getpid()):
        desk = tmp_path / f"cpdispatch-{process}-abcdefgh"
        desk.mkdir()
        with (desk / "owner").open("wb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            local.sweep()
            assert desk.exists()
        local.sweep()
        assert not desk.exists()
    nobody_yet = tmp_path / f"cpdispatch-{os.getppid()}-abcdefgh"
    nobody_yet.mkdir()
    (nobody_yet / "owner").touch()
    local.sweep()
    assert nobody_yet.exists()


def test_what_a_killed_campaign_was_writing_is_no_campaign(tmp_path: Path) -> None:
    (tmp_path / ".campaign.json.abcdefgh").touch()
    (tmp_path / ".number_0.pickle.abcdefgh").touch()
    with pytest.raises(UsageError, match="holds something else"):
        run(numbers(2), failing_not, workers=HERE, folder=tmp_path, about={})
    (tmp_path / ".number_0.pickle.abcdefgh").unlink()
    run(numbers(2), failing_not, workers=HERE, folder=tmp_path, about={})
    (tmp_path / ".number_0.pickle.abcdefgh").touch()
    run(numbers(2), failing_not, workers=HERE, folder=tmp_path, about={})
    assert sorted(path.name[:9] for path in tmp_path.iterdir()) == [
        "campaign.", "number_0-", "number_1-",
    ]  # fmt: skip


def of_session(leader: int) -> list[str]:
    """The processes, zombies aside, of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(path.parent.name)
    return found


# --------------------------------------------------------------------------------------- a cluster


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    distributed = pytest.importorskip(
        "distributed", reason="the cluster needs Dask: pip install '.[cluster]'"
    )
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as found:
        yield found


@pytest.fixture
def there(dask: Any) -> Workers:
    return Workers(cluster=dask.scheduler_address)


def slow(columns: dict[str, IntArray], folder: str, number: int) -> int:
    (Path(folder) / f"began-{number}-{os.getpid()}").touch()
    time.sleep(0.3)
    return int(columns["ones"].sum()) + number


def test_a_cluster_gives_the_same_results(there: Workers, columns: dict[str, IntArray]) -> None:
    tasks = [Task(f"times {n}", (Shared("columns"), n)) for n in (3, 1, 2)]
    found = run(tasks, scaled, shared={"columns": columns}, workers=there)
    assert found == run(tasks, scaled, shared={"columns": columns}, workers=TWO)
    assert list(found) == [task.key for task in tasks]


def test_a_cluster_that_loses_a_worker_half_way_gives_every_result_once(
    there: Workers, columns: dict[str, IntArray], tmp_path: Path
) -> None:
    tasks = [Task(str(n), (Shared("columns"), str(tmp_path), n)) for n in range(12)]
    met, killed = [], None
    for key, value in completed(tasks, slow, shared={"columns": columns}, workers=there):
        met.append((key, value))
        if len(met) == 6:
            killed = int(max(tmp_path.iterdir(), key=os.path.getmtime).name.split("-")[2])
            os.kill(killed, signal.SIGKILL)
    assert killed is not None
    assert sorted(met) == sorted((str(n), 100_000 + n) for n in range(12))
    assert len({path.name.split("-")[2] for path in tmp_path.iterdir()}) >= 2


def test_a_cluster_that_loses_all_workers_goes_on_with_new_ones(
    there: Workers, columns: dict[str, IntArray], tmp_path: Path
) -> None:
    tasks = [Task(str(n), (Shared("columns"), str(tmp_path), n)) for n in range(6)]
    met = []
    for key, value in completed(tasks, slow, shared={"columns": columns}, workers=there):
        met.append((key, value))
        if len(met) == 2:
            for process in {int(path.name.split("-")[2]) for path in tmp_path.iterdir()}:
                os.kill(process, signal.SIGKILL)
    assert sorted(met) == sorted((str(n), 100_000 + n) for n in range(6))


def test_on_a_cluster_too_an_exception_names_its_task(there: Workers) -> None:
    with pytest.raises(CampaignError, match=r"1 of 3 .*number 0: ZeroDivisionError"):
        run(numbers(3), failing, workers=there)


def test_on_a_cluster_too_tasks_are_told_to_stop(there: Workers, tmp_path: Path) -> None:
    tasks = [Task(str(n), (str(tmp_path), n)) for n in range(4)]
    with pytest.raises(InterruptedRunError, match=r"interrupted: [01] of 4 tasks are done"):
        run(tasks, patient, workers=there, folder=tmp_path / "kept", about={},
            stop=wish(tmp_path, 2))  # fmt: skip
    until = time.monotonic() + 10
    while len(list(tmp_path.glob("stopped-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(list(tmp_path.glob("stopped-*"))) == 2


def half_done(number: int) -> int:
    campaign.report(0.5)
    time.sleep(0.5)
    return number


def test_a_cluster_hears_how_far_a_task_is(there: Workers) -> None:
    heard: list[float] = []
    found = completed(
        [Task("one", (1,))], half_done, workers=there,
        progress=lambda done, tasks: heard.append(done / tasks),
    )  # fmt: skip
    assert list(found) == [("one", 1)]
    assert heard == sorted(heard)
    assert set(heard) == {0.0, 0.5, 1.0}


BLIND = """
import sys

class Blind:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "cpdispatch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blind())
"""
"""What keeps a worker from having the package."""


@pytest.mark.usefixtures("dask")
def test_a_worker_without_the_package_is_one_clear_error(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    (tmp_path / "sitecustomize.py").write_text(BLIND)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as empty:
        address = empty.scheduler_address
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as worker:
            try:
                with pytest.raises(UsageError, match=r"cannot import what it needs .*: inst"):
                    run(numbers(2), failing_not, workers=Workers(cluster=address))
            finally:
                worker.kill()


def test_workers_of_another_version_are_refused(
    there: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "__version__", "99.0")
    with pytest.raises(UsageError, match=r"has cpdispatch \S+, the campaign 99.0: install"):
        run(numbers(2), failing_not, workers=there)


def test_a_file_that_is_not_there_is_no_address(dask: Any) -> None:
    with pytest.raises(UsageError, match=r"nofile\.json: there is no such file, and it is no addr"):
        run(numbers(2), failing_not, workers=Workers(cluster="nofile.json"))


@pytest.mark.parametrize("content", ['{"x":1}', '{"address": 3}', "[1]", "tcp://host:8786", ""])
def test_a_file_that_no_scheduler_wrote_is_refused_at_once(
    content: str, dask: Any, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text(content)
    workers = Workers(cluster=str(tmp_path / "bad.json"))
    with pytest.raises(
        InputError, match=r"bad\.json:.*not a file that dask scheduler --scheduler-file wrote: "
    ):
        run(numbers(2), failing_not, workers=workers)


def test_an_address_of_another_scheme_is_refused_at_once(dask: Any) -> None:
    with pytest.raises(UsageError, match="http://x:1: the scheme http is none of tcp, tls, ucx, w"):
        run(numbers(2), failing_not, workers=Workers(cluster="http://x:1"))


class Fetched:
    """A future that is done, and whose result went with its worker a few times."""

    status = "finished"

    def __init__(self, times: int) -> None:
        self.times = times

    def result(self, timeout: float) -> Any:
        if self.times:
            self.times -= 1
            raise TimeoutError
        return packed(7)


def test_a_result_that_goes_with_its_worker_is_waited_for_without_end_of_looking() -> None:
    of = cluster._Campaign(None, "there", [Task("one", ())], int, {})
    future = Fetched(times=2)
    of._running[future] = 0
    assert not list(of._harvest(lambda *_: None))
    assert not list(of._harvest(lambda *_: None))
    assert of._running == {future: 0}
    assert list(of._harvest(lambda *_: None)) == [(Task("one", ()), packed(7))]
    assert not of._running


def test_an_address_that_does_not_answer_is_one_clear_error(
    dask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_S", 1.0)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        for address in (f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:9"):
            began = time.monotonic()
            with pytest.raises(UsageError, match=f"no cluster answers at {address} .*: check"):
                run(numbers(2), failing_not, workers=Workers(cluster=address))
            assert time.monotonic() - began < 10


@pytest.mark.parametrize("seen", [True, False])
def test_a_log_is_simulated_on_a_cluster_that_sees_the_folder_or_not(
    seen: bool, there: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not seen:

        @contextmanager
        def elsewhere(plans: object) -> Iterator[Path]:
            yield tmp_path / "not there"

        monkeypatch.setattr(runs, "_sign", elsewhere)
    log = tmp_path / "small.swf"
    log.write_text(LOG)
    out = tmp_path / "out"
    names = ["-d", "easy", "-d", "hcp"]
    assert cli.run(
        ["simulate", str(log), *names, "--cluster", str(there.cluster), "--out", str(out)]
    ) == 0  # fmt: skip
    assert (
        cli.run(["simulate", str(log), *names, "--cores", "1", "--out", str(tmp_path / "a")]) == 0
    )
    for name in ("easy", "hcp"):
        there_too, alone = out / name, tmp_path / "a" / name
        assert {path.name for path in there_too.iterdir()} == {
            path.name for path in alone.iterdir()
        }
        here = Run.load(alone)
        assert Run.load(out / name).job_table.equals(here.job_table)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(CpdispatchError, match=r"pip install 'cpdispatch\[cluster\]'"):
        run(numbers(2), failing_not, workers=Workers(cluster="tcp://127.0.0.1:1"))


def nanny_is_done(dask_worker: Any) -> bool:
    """Whether a nanny has seen the worker start that it minds now."""
    process = dask_worker.process
    return str(process and process.status) == "Status.running"


def killed_when_minded(number: int) -> int:
    """Die once the nanny minds this worker: one that dies before is not always replaced."""
    from distributed import get_worker
    from distributed.utils import sync

    worker, about = get_worker(), pickle.dumps(nanny_is_done)

    async def asked() -> bool:
        return (await worker.rpc(worker.nanny).run(function=about))["result"] is True

    until = time.monotonic() + 60
    while not sync(worker.loop, asked) and time.monotonic() < until:
        time.sleep(0.05)
    return killed_always(number)


@contextmanager
def replaced(cluster: Any) -> Iterator[None]:
    """Start workers anew once there have been none for some time: a nanny may give up."""
    over, none_since = threading.Event(), time.monotonic()

    def mind() -> None:
        nonlocal none_since
        while not over.wait(1):
            if cluster.scheduler_info["workers"]:
                none_since = time.monotonic()
            elif time.monotonic() - none_since > 15:
                cluster.scale(0)
                cluster.scale(2)
                none_since = time.monotonic()

    minder = threading.Thread(target=mind)
    minder.start()
    try:
        yield
    finally:
        over.set()
        minder.join()


def test_on_a_cluster_too_a_task_that_kills_every_worker_is_named(
    dask: Any, there: Workers
) -> None:
    """The last of those with this cluster, which may have no workers for some time then."""
    found: dict[str, Any] = {}
    with replaced(dask), pytest.raises(
        CampaignError, match=r"1 of 4 .*number 1: its worker was killed 4 times.*"
        "more memory, or fewer processes"):  # fmt: skip
        gathered(found, 4, killed_when_minded, there)
    assert found == {f"number {n}": n for n in (0, 2, 3)}


@pytest.mark.parametrize(
    ("cores", "tasks", "threads"), [(1, 1, 1), (1, 3, 1), (2, 2, 1), (4, 1, 4), (5, 2, 2)]
)
def test_tasks_share_the_threads_of_all_cores(cores: int, tasks: int, threads: int) -> None:
    of = [Task(str(number), (number,)) for number in range(tasks)]
    assert set(run(of, threads_of, workers=Workers(cores)).values()) == {threads}
    assert campaign.threads() == 1
