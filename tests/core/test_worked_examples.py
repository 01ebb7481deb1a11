"""The worked examples in the docstrings of the core hold, and those of what only its tests use."""

import doctest
import linecache
import pkgutil
from importlib import import_module

import pytest

import assignor_core
import tests.simulated_cluster
from assignor_core.resources import Resource
from tests.core.planner.cases import cluster, search_of, state_of

PACKAGES = (assignor_core, tests.simulated_cluster)
BESIDE = (
    "tests.core.assignors.invariants",
    "tests.core.group.consumer_invariants",
    "tests.core.group.invariants",
)
FOUND = (pkgutil.walk_packages(package.__path__, f"{package.__name__}.") for package in PACKAGES)
MODULES = sorted([*(row.name for rows in FOUND for row in rows), *BESIDE])


@pytest.fixture(autouse=True)
def _no_lines_are_remembered() -> None:
    """Doctest has the debugger look, for each docstring, whether any file has changed of which lines are remembered."""
    linecache.clearcache()


@pytest.mark.parametrize("name", MODULES)
def test_worked_examples_hold(name: str) -> None:
    given = {"state_of": state_of, "search_of": search_of, "cluster": cluster, "Resource": Resource}
    assert doctest.testmod(import_module(name), extraglobs=given).failed == 0
