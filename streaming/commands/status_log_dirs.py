"""How `rebalancer status` names log dirs that call for attention: offline, cordoned, above their fill level."""

from collections.abc import Iterator, Mapping
from typing import Any

from streaming.views.log_dirs import ONLINE

NAMED_MAX = 10


def log_dir_lines(status: Mapping[str, Any]) -> list[str]:
    """One line for each such log dir; of many the first.

    >>> row = {"broker": 2, "path": "/d1", "state": "online", "used_ratio": 0.9}
    >>> log_dir_lines({"log_dirs": [row], "log_dir_fill_max": 0.85})
    ['log dir /d1 of broker 2 is 90% full']
    """
    lines = list(_lines(status))
    return lines[:NAMED_MAX] + ([f"... and {len(lines) - NAMED_MAX} log dirs more"] if len(lines) > NAMED_MAX else [])


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    fill_max = status["log_dir_fill_max"]
    for row in status["log_dirs"]:
        used = row["used_ratio"]
        full = used is not None and fill_max is not None and used > fill_max
        words = [*([row["state"]] if row["state"] != ONLINE else []), *([f"{used:.0%} full"] if full else [])]
        if words:
            yield f"log dir {row['path']} of broker {row['broker']} is {', '.join(words)}"
