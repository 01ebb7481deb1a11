"""One window of a group as a look at it: the newest sample, of all partitions that it had."""

from collections.abc import Mapping, Sequence
from typing import Any

from assignor_core.group.events import GroupLook
from assignor_core.group.states import GroupState

STATE_UNKNOWN = "Unknown"
NO_MEMBERS = (GroupState.EMPTY.value, GroupState.DEAD.value)
LOOK_COLUMNS = (
    "group_id", "topic", "partition", "member_id", "client_id", "group_instance_id", "group_state", "generation_id",
    "group_type", "group_members", "window_start", "last_event_time_ms",
)  # fmt: skip
"""Columns of `group_lag` that a look is made of."""


def look_of(rows: Sequence[Mapping[str, Any]]) -> GroupLook:
    """The look of one group's rows of one window, which have `LOOK_COLUMNS`."""
    at_ms = max(row["last_event_time_ms"] for row in rows)
    sample = [row for row in rows if row["last_event_time_ms"] == at_ms]
    newest = sample[0]
    names = {row["member_id"]: row["group_instance_id"] or row["client_id"] for row in sample}
    return GroupLook(
        at_ms,
        newest["group_state"],
        {(row["topic"], row["partition"]): row["member_id"] for row in sample},
        newest["generation_id"],
        newest["group_type"],
        {member_id: name for member_id, name in names.items() if member_id is not None and name},
        newest["group_members"],
    )


def known_members(state: str | None, member_count: int | None, owners: int) -> int | None:
    """Members of a group of which so many own partitions; `member_count` is what its coordinator reported, if it did.

    None where nothing shows them: a group that is not empty has some, though none was seen.
    """
    if member_count is not None:
        return member_count
    if state in (None, STATE_UNKNOWN):
        return None
    return owners if owners or state in NO_MEMBERS else None
