"""What a person meant by a value of the wrong kind: a size with its unit, or one text in the place of a list."""

import json
import re

NUMBER_TYPES = ("int_parsing", "float_parsing")
"""pydantic's names of the error that a text is no number."""
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)(?:/s|ps)?")
BYTES = {
    "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
MILLISECONDS = {
    "ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


GONE = {
    "trigger.relief_min": "a plan that is worth it is not held back for its bytes",
    "trigger.cheap_hour_wait_max_ms": "control.maintenance_windows name the hours in which plans are carried out",
    "trigger.windows_over_urgent": "it is two thirds of trigger.windows_over, and at least 2",
    "planner.finish_movements_max": "the search has no closing phase any more; planner.movements_max limits a plan",
    "planner.statistic": "every window is planned on, the worst one counts",
}
"""Settings of before that are no more, and what holds instead."""


def value_hint(key: str, error_type: str, given: object) -> str:
    """The value to write instead, after a semicolon; nothing where it can't be known.

    >>> value_hint("control.throttle_bytes_per_sec", "int_parsing", "50MB")
    '; write 50000000'
    >>> value_hint("kafka.request_timeout_ms", "int_parsing", "15s")
    '; write 15000'
    >>> value_hint("kafka.bootstrap_servers", "list_type", "a:1, b:2")
    '; write ["a:1", "b:2"]'
    >>> value_hint("kafka.cluster_name", "string_type", 12)
    '; write "12"'
    """
    if error_type == "string_type" and isinstance(given, int | float):
        return f'; write "{given}"'
    if not isinstance(given, str):
        return ""
    if error_type == "list_type":
        return f"; write {json.dumps([part.strip() for part in given.split(',')], ensure_ascii=False)}"
    size = SIZE.fullmatch(given.strip()) if error_type in NUMBER_TYPES else None
    name = key.rpartition(".")[2]
    factors = BYTES if "bytes" in name else MILLISECONDS if name.endswith("_ms") else {}
    factor = factors.get(size[2].lower()) if size else None
    return f"; write {round(float(size[1]) * factor)}" if size and factor else ""
