"""JSON in columns of tables: whoever may write a table may write anything into it, so none of it is trusted.

Numbers that JSON does not have (NaN, infinity) are refused too: no answer of serve could hold them.
"""

import json
import math
from typing import Any

WRONG_SHAPE = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""What comes of code that takes the shape of an object for granted, where it has another one."""


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
