"""JSON lines in, JSON lines out: one answer for each line, whatever the line holds.

Owns reading, decoding, error answers and the checks of JSON types; knows nothing of what the lines ask for.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import click

from assignor_core.errors import InputError

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class InvalidJson(InputError):
    """The line is not one JSON object in UTF-8."""


class InvalidField(InputError):
    """A field is missing or not of its type."""


def answer_lines(answer: Answer) -> None:
    """Answer every line of standard input on standard output, flushed line by line; blank lines are passed over."""
    for line in sys.stdin.buffer:
        if line.strip():
            click.echo(json.dumps(answer_line(line, answer), separators=(",", ":")))


def answer_line(line: bytes, answer: Answer) -> Mapping[str, Any]:
    """The answer to one line, or `{"error": {"type", "message"}}`."""
    try:
        return answer(_decode(line))
    except InputError as error:
        return {"error": {"type": type(error).__name__, "message": str(error)}}
    except MemoryError:
        return {"error": {"type": "InputTooLarge", "message": "the line asks for more than the memory holds"}}


def required(fields: Mapping[str, Any], name: str) -> Any:
    """The value of a field that must be there."""
    if name not in fields:
        raise InvalidField(f"{name} is missing")
    return fields[name]


def an_int(value: object, name: str, *, minimum: int = -(2**31), maximum: int = 2**31 - 1) -> int:
    """`value` if it is a whole JSON number that fits; Kafka's integers have 32 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidField(f"{name} is {shown(value)}, must be an integer")
    if not minimum <= value <= maximum:
        raise InvalidField(f"{name} is {shown(value)}, must be between {minimum} and {maximum}")
    return value


def a_string(value: object, name: str) -> str:
    """`value` if it is a string."""
    if not isinstance(value, str):
        raise InvalidField(f"{name} is {shown(value)}, must be a string")
    return value


def optional_string(value: object, name: str) -> str | None:
    """`value` if it is a string or null."""
    return None if value is None else a_string(value, name)


def a_list(value: object, name: str) -> list[Any]:
    """`value` if it is an array."""
    if not isinstance(value, list):
        raise InvalidField(f"{name} is {shown(value)}, must be an array")
    return value


def an_object(value: object, name: str) -> Mapping[str, Any]:
    """`value` if it is an object."""
    if not isinstance(value, dict):
        raise InvalidField(f"{name} is {shown(value)}, must be an object")
    return value


def shown(value: object) -> str:
    """A value for a message: short, as JSON."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "an integer of more than 30 digits"
    text = json.dumps(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of `pairs`, for `json.loads`; raises InvalidJson for a key that occurs twice, since the first value
    would be dropped in silence.
    """
    decoded = dict(pairs)
    if len(decoded) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidJson(f"{shown(twice)} occurs twice in one object, each key must be unique")
    return decoded


def _decode(line: bytes) -> Mapping[str, Any]:
    try:
        decoded = json.loads(line, object_pairs_hook=each_key_once)
    except (ValueError, RecursionError) as error:
        # UnicodeDecodeError and the limit on digits are ValueErrors too.
        raise InvalidJson(f"not JSON: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(decoded, dict):
        raise InvalidJson(f"the line is {shown(decoded)}, must be a JSON object")
    return decoded
