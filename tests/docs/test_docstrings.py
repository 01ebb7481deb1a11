"""Docstrings of the product stand alone: whoever sees one on hover, or in `help`, needs none of its neighbours."""

import ast
from collections.abc import Iterator

import pytest

from tests.docs.messages import files
from tests.docs.prose import ROOT

FRAGMENTS = ("The same", "Those ", "Of ", "As ", "Its ", "So long", "Where ")
"""Beginnings that go on from a sentence which the reader does not see."""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring: of modules, classes and functions, and of what is assigned right above it.

    >>> list(docstrings("X = 1\\n'Most of it.'\\ndef f():\\n    'Returns it.'"))
    [(2, 'Most of it.'), (4, 'Returns it.')]
    """
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        is_documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for place, statement in enumerate(body):
            above = body[place - 1] if place else None
            follows = isinstance(above, ast.Assign | ast.AnnAssign) or (place == 0 and is_documented)
            if follows and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield statement.lineno, text.strip()


def test_no_docstring_goes_on_from_another() -> None:
    found = {
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in files()
        for line, text in docstrings(file.read_text(encoding="utf-8"))
        if text.startswith(FRAGMENTS)
    }
    assert found == set()


@pytest.mark.parametrize("text", ["The same as columns.", "Its leader.", "Of these, most."])
def test_a_fragment_is_noticed(text: str) -> None:
    ((_, shown),) = docstrings(f'def f():\n    """{text}"""')
    assert shown.startswith(FRAGMENTS)
