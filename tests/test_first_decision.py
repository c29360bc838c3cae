"""Whatever a decision calls is compiled before: also the first one of a loop of the user's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.scripts import WITH_TESTS

SCRIPT = """
import gc, sys
from dataclasses import replace

import hypothesis
from hypothesis import HealthCheck, Phase, given
from numba.core.dispatcher import Dispatcher

from cpdispatch import dispatch
from cpdispatch.dispatch import Settings
from cpdispatch.simulator import Simulation
from cpdispatch.system import NAMED
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.generate import EURORA, generate
from tests.strategies import instances

spec = sys.argv[1]
is_bare = spec.startswith("thesis")  # it uses its limit up at each decision
make = lambda: dispatch.make(spec, Settings(0.05))
make()
gc.unfreeze()  # else they would not be among the objects
kernels = [
    one for one in gc.get_objects()
    if isinstance(one, Dispatcher) and one.py_func.__module__.startswith("cpdispatch")
]
assert kernels

def decide(dispatcher, instance):
    before = [len(kernel.overloads) for kernel in kernels]
    decision = dispatcher.dispatch(instance)
    for kernel, count in zip(kernels, before):
        for signature in list(kernel.overloads)[count:]:
            print(kernel.py_func.__name__, signature)
    return decision

@hypothesis.settings(
    max_examples=10, database=None, deadline=None, derandomize=True,
    phases=[Phase.generate], suppress_health_check=list(HealthCheck),
)
@given(instances(), instances(restarts=True).filter(lambda found: found.stopped is not None))
def meets(instance, stopped):
    decide(make(), instance)
    ends = replace(instance.running, end_s=instance.running.end_s.copy())
    decide(make(), replace(instance, free=instance.free.copy(), running=ends))  # arrays of his own
    decide(make(), stopped)

meets()
workload = fit(generate(EURORA, 20 if is_bare else 40, 1, 4.0), NAMED["eurora"])
event, corrected = {"trigger": "event"}, {"correction": "incremental"}
for more in [event | corrected] if is_bare else [{}, event, corrected]:
    simulation, dispatcher = Simulation(workload, NAMED["eurora"], **more), make()
    while (instance := simulation.advance()) is not None:
        simulation.apply(decide(dispatcher, instance))
for one in gc.get_objects():
    if isinstance(one, Dispatcher) and one not in kernels and one.overloads:
        if one.py_func.__module__.startswith(("cpdispatch.heuristics", "cpdispatch.models")):
            print(one.py_func.__name__, "was loaded late")
"""

SPECS = [
    "easy", "easy-saf-spf:threshold=100,limits=upper,allocate=best-fit", "conservative", "best",
    "prb", "hcp", "pcp:model=boxes", "hyper", "thesis-hcp", "thesis-pcp5", "fifo",
]  # fmt: skip
"""The formulations of an engine call the same kernels: one whose parts are not pooled is enough."""


@pytest.mark.parametrize("spec", SPECS)
def test_nothing_is_compiled_once_a_dispatcher_is_made(spec: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITH_TESTS + SCRIPT, spec],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


RESUMED = """
import gc, pickle, sys

from numba.core.dispatcher import Dispatcher

from cpdispatch import dispatch
from cpdispatch.dispatch import Settings
from cpdispatch.simulator import Simulation
from cpdispatch.system import NAMED
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.generate import EURORA, generate

workload = fit(generate(EURORA, 40, 1, 4.0), NAMED["eurora"])
for spec in sys.argv[1:]:
    run = Simulation(workload, NAMED["eurora"]), dispatch.make(spec, Settings(0.05))
    while (instance := run[0].advance()) is not None and run[0].progress < 0.5:
        run[0].apply(run[1].dispatch(instance))
    run[0].apply(run[1].dispatch(instance))
    gc.unfreeze()  # else they would not be among the objects
    kernels = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    before = [len(kernel.overloads) for kernel in kernels]
    simulation, dispatcher = pickle.loads(pickle.dumps(run))
    while (instance := simulation.advance()) is not None:
        simulation.apply(dispatcher.dispatch(instance))
    for kernel, count in zip(kernels, before):
        for signature in list(kernel.overloads)[count:]:
            print(spec, kernel.py_func.__name__, signature)
"""


def test_a_run_that_goes_on_from_a_pickle_compiles_nothing_again() -> None:
    specs = ["easy", "easy-wfp3-spf", "conservative", "best", "hcp"]
    done = subprocess.run(
        [sys.executable, "-c", RESUMED, *specs],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


REPLAY_OF_BEST = """
import gc

from numba.core.dispatcher import Dispatcher

from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.predict import make
from cpdispatch.simulator.compiled import CompiledSimulation
from cpdispatch.system import System
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.lublin import generate

system = System.pool(64)
workload = fit(generate(5_000, 0, processors=64), system)
rules = {"trigger": "instant", "correction": "minimal", "kill_at_limit": False}
simulation = CompiledSimulation(
    workload, system, Bounded(Best()), make("walltime", workload), **rules
)
kernels = [
    one for one in gc.get_objects()
    if isinstance(one, Dispatcher) and one.py_func.__module__.startswith("cpdispatch")
]
before = [list(kernel.overloads) for kernel in kernels]
while not simulation.go(1 << 20):
    pass
for kernel, known in zip(kernels, before):
    for signature in list(kernel.overloads)[len(known):]:
        print(kernel.py_func.__name__, signature)
"""


def test_nothing_is_compiled_once_a_compiled_replay_of_best_has_begun() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPLAY_OF_BEST],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
