"""Texts within code: what errors, logs and commands are handed as strings, and docstrings."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tests.docs.prose import ROOT

CALLS = {"echo", "print", "print_text"}


def files() -> list[Path]:
    return sorted(file for folder in ("assignor_core", "streaming") for file in (ROOT / folder).rglob("*.py"))


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string within `raise ...` or a call that prints; a value in braces is one word.

    >>> list(messages('raise E(f"{name}: is " "unknown")'))
    [(1, 'Value: is unknown')]
    """
    for node in ast.walk(_parsed(source)):
        is_raised = isinstance(node, ast.Raise) and node.exc is not None
        if is_raised or (isinstance(node, ast.Call) and _name(node.func) in CALLS):
            yield from _texts(node)


@lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module:
    """The tree of a module, which is read for messages and then for docstrings."""
    return ast.parse(source)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "Value" for part in node.values]
        yield node.lineno, "".join(parts)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring: of modules, classes and functions, and of what is assigned right above it.

    >>> list(docstrings("X = 1\\n'Most of it.'\\ndef f():\\n    'Returns it.'"))
    [(2, 'Most of it.'), (4, 'Returns it.')]
    """
    for node in ast.walk(_parsed(source)):
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
