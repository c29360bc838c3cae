"""Published results, to the digits that were published, by the command that a user would run.

Mean bounded slowdowns: Gaussier, Glesser, Reis, Trystram, "Improving backfilling by using machine
learning to predict running times", SC'15, the metrics files of its repository.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpdispatch import cli

Trace = Callable[[str], Path]
KTH, CTC = "KTH-SP2-1996-2", "CTC-SP2-1996-3.1-cln"
HPC2N, BLUE = "HPC2N-2002-2.2-cln", "SDSC-BLUE-2000-4.1-cln"


def simulate(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> dict[str, Any]:
    assert cli.run(["simulate", *arguments, "--json"]) == 0
    (run,) = msgspec.json.decode(capsysbinary.readouterr().out)["runs"]
    figures: dict[str, Any] = run
    return figures


@pytest.mark.log
@pytest.mark.parametrize(
    ("log", "jobs", "dispatcher", "predictor", "slowdown"),
    [
        (KTH, 28_481, "easy", "walltime", 92.5765397336),
        (KTH, 28_481, "easy-fcfs-spf", "walltime", 69.4054005803),
        (KTH, 28_481, "easy", "actual", 71.7223851124),
        (KTH, 28_481, "easy-fcfs-spf", "actual", 49.8477189313),
        (CTC, 77_199, "easy", "walltime", 49.5712902190),
        (CTC, 77_199, "easy-fcfs-spf", "walltime", 30.0410695214),
        (CTC, 77_199, "easy", "actual", 37.1654014852),
        (CTC, 77_199, "easy-fcfs-spf", "actual", 17.5716874376),
    ],
)
def test_the_published_slowdowns_are_reproduced(
    log: str, jobs: int, dispatcher: str, predictor: str, slowdown: float, trace: Trace,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:  # fmt: skip
    figures = simulate(
        capsysbinary, str(trace(log)), "-d", dispatcher, "--predict", predictor,
        "--filter", "strong", "--trigger", "event",
    )  # fmt: skip
    assert figures["jobs"] == jobs
    assert f"{figures['bounded_slowdown_mean']:.10f}" == f"{slowdown:.10f}"


@pytest.mark.log
@pytest.mark.parametrize(
    ("log", "predictor", "slowdown"),
    [
        (KTH, "last2", 63.5006771704),
        (CTC, "last2", 85.8),
        (BLUE, "last2", 21.0),
        (KTH, "eloss", 51.4411305949),
    ],
)
def test_published_predictors_are_as_good_as_published(
    log: str, predictor: str, slowdown: float, trace: Trace,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:  # fmt: skip
    """Or at most 15 % worse, see docs/prediction.md."""
    figures = simulate(
        capsysbinary, str(trace(log)), "-d", "easy-fcfs-spf", "--predict", predictor,
        "--correction", "incremental", "--filter", "strong", "--trigger", "event",
    )  # fmt: skip
    assert figures["bounded_slowdown_mean"] < 1.15 * slowdown


@pytest.mark.log
@pytest.mark.parametrize(("log", "slowdown"), [(KTH, "92.6876537427"), (CTC, "48.8369860230")])
def test_one_dispatch_an_instant_gives_slightly_other_slowdowns(
    log: str, slowdown: str, trace: Trace, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    figures = simulate(capsysbinary, str(trace(log)), "-d", "easy", "--filter", "strong")
    assert f"{figures['bounded_slowdown_mean']:.10f}" == slowdown


@pytest.mark.log
@pytest.mark.parametrize(
    ("dispatcher", "trigger", "published", "wait"),
    [
        ("easy-sqf-sqf", "instant", 2090, "2089.67"),
        ("easy-sqf-sqf", "event", 2090, "2089.68"),
        ("easy-lexp-lexp", "instant", 3074, "3112.65"),
        ("easy-lexp-lexp", "event", 3074, "3020.29"),
    ],
)
def test_without_jobs_that_ran_too_long_the_published_waits_of_orders_come_out(
    dispatcher: str, trigger: str, published: int, wait: str, trace: Trace,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:  # fmt: skip
    """Lelong, Reis, Trystram, JSSPP 2017: to the second, or within 2 %."""
    figures = simulate(
        capsysbinary, str(trace(CTC)), "-d", dispatcher, "--filter", "drop", "--trigger", trigger
    )
    assert f"{figures['wait_s_mean']:.2f}" == wait
    assert abs(figures["wait_s_mean"] / published - 1) < 0.02


@pytest.mark.log
@pytest.mark.parametrize(
    ("log", "processors", "wait"), [(CTC, "512", "6182.60"), (HPC2N, "240", "16189.15")]
)
def test_strict_fifo_gives_the_published_mean_wait(
    log: str, processors: str, wait: str, trace: Trace, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    figures = simulate(capsysbinary, str(trace(log)), "-d", "fifo", "--system", processors)
    assert f"{figures['wait_s_mean']:.2f}" == wait
