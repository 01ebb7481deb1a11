"""Log dirs of a broker in the JSON cluster model: how much they leave room for.

Kafka puts a new replica into the log dir with the fewest partitions, whatever is free there. So a broker has no more
room than the fullest of those that take replicas (see `disks`).
"""

from collections.abc import Mapping
from typing import Any

from assignor_core.disks import LogDirDescription, log_dir_rooms
from assignor_core.model_values import FIGURE_MAX, is_figure, misfit

STATES = ("online", "cordoned", "offline")
DISK_RESERVE = 0.10
"""Share of each volume that plans for a model leave free: the default of `planner.disk_reserve`."""


def room_of_log_dirs(rows: object, name: str) -> float | None:
    """Bytes that may be copied to the broker `name`; None where its log dirs do not show what is free.

    Raises InputError that names what does not fit.

    >>> rows = [{"path": "/a", "total_bytes": 1000, "usable_bytes": 300}, {"path": "/b", "state": "offline"}]
    >>> room_of_log_dirs(rows, "broker 1")
    200.0
    """
    if not isinstance(rows, list) or not rows:
        raise misfit(f"{name}: log_dirs", rows, "a list with at least one log dir")
    described = [_log_dir(row, f"{name}: log_dirs[{index}]") for index, row in enumerate(rows)]
    paths = [row.path for row in described]
    if len(set(paths)) < len(paths):
        raise misfit(f"{name}: log_dirs", paths, "each path once")
    rooms = log_dir_rooms(described, {}, reserve=DISK_RESERVE)
    open_ones = [rooms[row.path] for row in described if row.takes_replicas]
    return None if None in open_ones else min((room for room in open_ones if room is not None), default=0.0)


def _log_dir(row: object, name: str) -> LogDirDescription:
    if not isinstance(row, Mapping):
        raise misfit(name, row, "an object")
    path, state = row.get("path"), row.get("state", "online")
    if not isinstance(path, str) or not path:
        raise misfit(f"{name}: path", path, "a string that is not empty")
    if state not in STATES:
        raise misfit(f"{name}: state", state, "online, cordoned or offline")
    total, usable = (_bytes(row, key, name) for key in ("total_bytes", "usable_bytes"))
    if total is not None and usable is not None and usable > total:
        raise misfit(f"{name}: usable_bytes", usable, f"at most total_bytes, {total}")
    return LogDirDescription(path, total, usable, is_offline=state == "offline", is_cordoned=state == "cordoned")


def _bytes(row: Mapping[str, Any], key: str, name: str) -> int | None:
    value = row.get(key)
    if value is None:
        return None
    if not is_figure(value):
        raise misfit(f"{name}: {key}", value, f"a number from 0 to {FIGURE_MAX:g}, or null")
    return int(value)
