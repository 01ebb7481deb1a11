"""Examples in docstrings of the shell show what the code does; `tests/core/test_worked_examples.py` has the core."""

import doctest
import importlib
import linecache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in (ROOT / "streaming").rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def _no_lines_are_remembered() -> None:
    """Doctest has the debugger look, for each docstring, whether any file has changed of which lines are remembered."""
    linecache.clearcache()


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_come_true(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert (failed, tried > 0) == (0, True)
