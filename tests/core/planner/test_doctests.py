"""The worked examples in the planner's docstrings, and in those of what it builds on, hold."""

import doctest
import pkgutil
from importlib import import_module

import pytest

from assignor_core import planner
from assignor_core.resources import Resource
from tests.core.planner.cases import state_of

MODULES = [
    *("assignor_core.columns", "assignor_core.load", "assignor_core.skew", "assignor_core.plan"),
    *(f"{planner.__name__}.{module.name}" for module in pkgutil.iter_modules(planner.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_worked_examples_hold(name: str) -> None:
    given = {"state_of": state_of, "Resource": Resource}
    assert doctest.testmod(import_module(name), extraglobs=given).failed == 0
