"""Mutations are those that they are said to be, and the list of equivalent ones is one of today's code."""

import ast
import doctest
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants import mutations as module
from tests.mutants.__main__ import EQUIVALENT
from tests.mutants.modules import TESTS
from tests.mutants.mutations import mutated, mutations
from tests.mutants.runs import exchange_code

SOURCE = '''
"""A module."""
LIMIT: int = 3

class Room:
    """Has a name."""

    @property
    def left(self) -> int:
        return LIMIT - 1

def named(key, *, most=2):
    """Doubt."""
    if key and not LIMIT < most:
        return f"first of them: {key} of {LIMIT:.1f}"
    return min(key, default="none")
'''


def test_figures_and_names_are_changed_and_wording_is_not() -> None:
    assert [(row.function, row.after) for row in mutations(SOURCE)] == [
        ("", "LIMIT: int = 4"),
        ("Room.left", "return None"),
        ("Room.left", "return LIMIT + 1"),
        ("Room.left", "return LIMIT - 2"),
        ("named", "def named(key, *, most=3):"),
        ("named", "if key or not LIMIT < most:"),
        ("named", "if key and LIMIT < most:"),
        ("named", "if key and not LIMIT <= most:"),
        ("named", "if key and not LIMIT >= most:"),
        ("named", "return None"),
        ("named", "return f'first of them: ? of {LIMIT:.1f}'"),
        ("named", "return f'first of them: {key} of ?'"),
        ("named", "return None"),
        ("named", "return max(key, default='none')"),
        ("named", "return min(key, default='XXnoneXX')"),
    ]


def test_the_examples_are_true() -> None:
    assert doctest.testmod(module).failed == 0


def test_a_mutation_reaches_all_who_have_the_function_already() -> None:
    built = ModuleType("built")
    exec(compile(SOURCE, "built.py", "exec"), built.__dict__)  # noqa: S102
    room, named = built.Room(), built.named
    numbers = {row.after: row.number for row in mutations(SOURCE)}
    code = compile(mutated(SOURCE, numbers["return LIMIT + 1"]), "built.py", "exec")
    exchange_code(built, code, "Room.left")
    assert (room.left, named("a")) == (4, "first of them: a of 3.0")
    code = compile(mutated(SOURCE, numbers["def named(key, *, most=3):"]), "built.py", "exec")
    exchange_code(built, code, "named")
    assert (named("a", most=5), named.__kwdefaults__) == ("a", {"most": 3})


def test_a_mutation_reaches_what_a_decorator_wraps() -> None:
    source = "from contextlib import contextmanager\n\n@contextmanager\ndef limit():\n    yield 3\n"
    built = ModuleType("built")
    exec(compile(source, "built.py", "exec"), built.__dict__)  # noqa: S102
    known = built.limit
    exchange_code(built, compile(source.replace("3", "4"), "built.py", "exec"), "limit")
    with known() as limit:
        assert limit == 4


def test_mutated_modules_differ_and_compile() -> None:
    path = min(TESTS, key=lambda path: Path(path).stat().st_size)
    source = Path(path).read_text()
    for row in mutations(source):
        tree = mutated(source, row.number)
        compile(tree, path, "exec")
        assert ast.unparse(tree) != ast.unparse(ast.parse(source))


def test_tests_and_modules_that_are_listed_exist() -> None:
    assert [path for path in (file for files in TESTS.values() for file in files) if not Path(path).is_file()] == []


@pytest.mark.long
def test_each_equivalent_mutation_is_one_of_the_code_as_it_is() -> None:
    rows = tomllib.loads(EQUIVALENT.read_text()).get("mutation", [])
    paths = {row["path"] for row in rows}
    present = {(path, row.before, row.after) for path in paths for row in mutations(Path(path).read_text())}
    assert [row for row in rows if (row["path"], row["before"], row["after"]) not in present] == []
    assert all(row["why"] for row in rows)
