"""The public names of the package, of which none is imported before it is used."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import cpdispatch


def test_every_public_name_is_that_of_its_module() -> None:
    for module, names in cpdispatch._HOMES.items():
        home = importlib.import_module(f"cpdispatch.{module}")
        for name in names:
            assert getattr(cpdispatch, name) is getattr(home, name)
    assert cpdispatch.verify is importlib.import_module("cpdispatch.verify")
    homes = {name for names in cpdispatch._HOMES.values() for name in names}
    assert {*cpdispatch.__all__} == {*homes, "verify"}
    assert {*cpdispatch.__all__} <= {*dir(cpdispatch)}


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(cpdispatch.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (statement.module, alias.name)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    homes = {(f"cpdispatch.{module}", n) for module, ns in cpdispatch._HOMES.items() for n in ns}
    assert seen == homes | {("cpdispatch", "verify")}


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'cpdispatch' has no attribute 'simulat'"):
        cpdispatch.simulat  # noqa: B018


def test_importing_the_package_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys, cpdispatch\n"
        "slow = {'numpy', 'numba', 'ortools', 'pandas', 'pyarrow', 'msgspec', 'dataclasses'}\n"
        "assert not slow & set(sys.modules)\n"
        "from cpdispatch import CpdispatchError\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name", ["cpdispatch", "cpdispatch.workloads", "cpdispatch.workloads.table"]
)
def test_the_examples_of_docstrings_hold(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed


FORMER_MODULE = """
import cpdispatch as cpd
from cpdispatch import simulate as before
from cpdispatch.simulate import Simulation, simulate
from cpdispatch import simulate as after
assert before is simulate
case = cpd.prepare(cpd.eurora_sample(20), "eurora")
print(simulate(*case).jobs.equals(cpd.simulate(*case).jobs), after(*case).jobs.shape[0])
"""


def test_the_simulators_former_module_works_with_a_warning_and_hides_no_function() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORMER_MODULE], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True 20\n"
    assert "cpdispatch.simulate is now called cpdispatch.simulator" in done.stderr
