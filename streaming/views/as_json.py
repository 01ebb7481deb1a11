"""Views as JSON's types, one way for `/api/status` and the commands."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

LEFT_OUT_OF_STATUS = {"status": False}
"""Metadata of a field that is too large for /api/status."""

SHOWN_AMONG_ITS_FIELDS = {"among": True}
"""Metadata of a mapping whose entries /api/status shows beside the other fields."""


def to_json(value: Any) -> Any:
    """A snapshot or a part of it as JSON's types; a tuple key becomes its parts with a slash between."""
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
