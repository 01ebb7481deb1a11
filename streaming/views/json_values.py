"""JSON: views as its types, one way for `/api/status` and the commands; and JSON in columns of tables.

Whoever may write a table may write anything into it, so none of its JSON is trusted. Numbers that JSON does not have
(NaN, infinity) are refused too: no answer of serve could hold them.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

LEFT_OUT_OF_STATUS = {"status": False}
"""Metadata of a field that is too large for /api/status."""
SHOWN_AMONG_ITS_FIELDS = {"among": True}
"""Metadata of a mapping whose entries /api/status shows beside the other fields."""
WRONG_SHAPE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""Errors that code raises if an object of JSON has another shape than expected."""


@dataclass(frozen=True, slots=True, eq=False)
class TextOnDemand:
    """A text that is made only when read: of ten thousand texts, few are shown."""

    make: Callable[[], str]

    def __str__(self) -> str:
        return self.make()

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def to_json(value: Any) -> Any:
    """A snapshot or a part of it as JSON's types; a tuple key becomes its parts with a slash between."""
    if isinstance(value, TextOnDemand):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        shown: dict[str, Any] = {}
        for entry in fields(value):
            if entry.metadata.get("status", True):
                json_value = to_json(getattr(value, entry.name))
                shown |= json_value if entry.metadata.get("among") else {entry.name: json_value}
        return shown
    if isinstance(value, Mapping):
        return {_key(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(entry) for entry in value]
    return value


def _key(key: Any) -> str:
    return "/".join(str(part) for part in key) if isinstance(key, tuple) else str(key)


def stored_object(text: str | None) -> dict[str, Any] | None:
    """The object in the text; None where it holds none.

    >>> stored_object('{"a": 1}'), stored_object('[1]'), stored_object('{"a": NaN}'), stored_object('{"a": 1e999}')
    ({'a': 1}, None, None, None)
    """
    found = _stored(text)
    return found if isinstance(found, dict) else None


def stored_texts(text: str | None) -> list[str]:
    """The texts of the list in the text; those that are none are left out.

    >>> stored_texts('["a", 7]'), stored_texts('{'), stored_texts(None)
    (['a'], [], [])
    """
    found = _stored(text)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def stored_rows(text: str | None) -> list[dict[str, Any]]:
    """The objects of the list in the text; members that are none are left out.

    >>> stored_rows('[{"a": 1}, 7]'), stored_rows('{"a": 1}'), stored_rows(None)
    ([{'a': 1}], [], [])
    """
    found = _stored(text)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _stored(text: str | None) -> Any:
    try:
        return json.loads(text or "", parse_constant=_refuse, parse_float=_finite)
    except WRONG_SHAPE:
        return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number
