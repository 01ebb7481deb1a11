"""Who is in one group at its newest sample: what its partitions show of members, instance ids, racks and targets.

Columns that verdicts do not need: they are read of one group, and not for every group that is judged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.tables import TableReader, at_least, equal, of_cluster
from streaming.views.group_lag import current_since
from streaming.views.group_looks import known_members

_OF_GROUP = ("group_type", "group_members", "generation_id", "assignor", "topology_epoch", "group_state")
_OF_PARTITION = (
    "group_instance_id",
    "rack_id",
    "target_member_id",
    "subscribed_topic_regex",
    "share_start_offset",
    "client_host",
)
_COLUMNS = ("topic", "partition", "member_id", "last_event_time_ms", *_OF_GROUP, *_OF_PARTITION)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group at its newest sample; None where unknown. `partitions`: the columns of each partition's owner."""

    group_type: str | None
    group_members: int | None
    """All members, or where only partitions were seen those that own some."""
    generation_id: int | None
    assignor: str | None
    topology_epoch: int | None
    partitions: Mapping[tuple[str, int], Mapping[str, Any]]


def read_group_facts(reader: TableReader, kafka_cluster: str, group_id: str, *, window_ms: int) -> GroupFacts | None:
    """Of the newest windows; None where the group is in none of them. Raises TableUnavailable."""
    newest = reader.newest_of_cluster("group_lag", "window_start", kafka_cluster)
    if newest is None:
        return None
    since = current_since(newest, window_ms=window_ms)
    where = of_cluster(kafka_cluster) & equal("group_id", group_id) & at_least("window_start", since)
    rows = sorted(reader.rows("group_lag", columns=_COLUMNS, where=where), key=lambda row: row["last_event_time_ms"])
    if not rows:
        return None
    last = rows[-1]
    owners = {row["member_id"] for row in rows if row["last_event_time_ms"] == last["last_event_time_ms"]} - {None}
    return GroupFacts(
        group_type=last["group_type"],
        group_members=known_members(last["group_state"], last["group_members"], len(owners)),
        generation_id=last["generation_id"],
        assignor=last["assignor"],
        topology_epoch=last["topology_epoch"],
        partitions={(row["topic"], row["partition"]): {name: row[name] for name in _OF_PARTITION} for row in rows},
    )
