"""Views as JSON's types, one way for `/api/status` and the commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

LEFT_OUT_OF_STATUS = {"status": False}
"""Metadata of a field that is too large for /api/status."""

SHOWN_AMONG_ITS_FIELDS = {"among": True}
"""Metadata of a mapping whose entries /api/status shows beside the other fields."""


@dataclass(frozen=True, slots=True, eq=False)
class TextOnDemand:
    """A text that is made when it is asked for: of ten thousand, a few are shown."""

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
