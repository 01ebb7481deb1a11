"""The worked examples in the docstrings of the core hold."""

import doctest
import linecache
import pkgutil
from importlib import import_module

import pytest

import assignor_core
from assignor_core.resources import Resource
from tests.core.planner.cases import state_of

MODULES = sorted(module.name for module in pkgutil.walk_packages(assignor_core.__path__, "assignor_core."))


@pytest.fixture(autouse=True)
def _no_lines_are_remembered() -> None:
    """Doctest has the debugger look, for each docstring, whether any file has changed of which lines are remembered."""
    linecache.clearcache()


@pytest.mark.parametrize("name", MODULES)
def test_worked_examples_hold(name: str) -> None:
    given = {"state_of": state_of, "Resource": Resource}
    assert doctest.testmod(import_module(name), extraglobs=given).failed == 0
