"""What a restart of a broker would do, as JSON for `restart-check --json` and the API."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from assignor_core.restart import RestartCheck

LISTED_MAX = 1_000
"""Partitions of each kind that are listed; `count` counts them all."""


def restart_content(check: RestartCheck, stops: Collection[str]) -> dict[str, Any]:
    """The check with at most `LISTED_MAX` partitions of each kind, and how many there are.

    >>> from assignor_core.live import LiveCluster, LivePartition
    >>> from assignor_core.restart import restart_check
    >>> live = LiveCluster("c", {1: None}, {("t", 0): LivePartition((1,), 1, (1,))})
    >>> restart_content(restart_check(1, live, {}), ["why"])["offline"]
    {'count': 1, 'partitions': [['t', 0]]}
    """
    content: dict[str, Any] = {"broker": check.broker, "is_safe": not stops, "stops": list(stops)}
    for name, value in asdict(check).items():
        if isinstance(value, tuple):
            content[name] = {"count": len(value), "partitions": [list(key) for key in value[:LISTED_MAX]]}
        else:
            content[name] = value
    return content
