"""The texts that code gives to people at run time: what errors, logs and commands are handed as strings."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.prose import ROOT, Line, avoided_words, sentences, words

WORDS_MAX = 30
CALLS = {"echo", "print", "print_text"}


def files() -> list[Path]:
    return sorted(file for folder in ("assignor_core", "streaming") for file in (ROOT / folder).rglob("*.py"))


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string within `raise ...` or a call that prints; a value in braces is one word.

    >>> list(messages('raise E(f"{name}: is " "unknown")'))
    [(1, 'Value: is unknown')]
    """
    for node in ast.walk(ast.parse(source)):
        is_raised = isinstance(node, ast.Raise) and node.exc is not None
        if is_raised or (isinstance(node, ast.Call) and _name(node.func) in CALLS):
            yield from _texts(node)


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


def faults_of(text: str) -> list[str]:
    block = [Line(1, line) for line in text.splitlines()]
    long = [f"{words(one)} words: {one[:70]}" for one in sentences(block) if words(one) > WORDS_MAX]
    return long + list(avoided_words(block))
