"""Makes the view of one group of what its coordinator answered. Asks nobody."""

from collections.abc import Collection
from dataclasses import replace

from streaming.cluster.described_groups import SHARE, STREAMS, DescribedGroup, ShareOffsets
from streaming.collect.group_table import GroupView, Owner
from streaming.collect.partition_table import PartitionKey

EMPTY = "Empty"
UNKNOWN_STATE = "Unknown"


def view_of(
    kind: str | None,
    state: str | None,
    described: DescribedGroup | None,
    offsets: ShareOffsets,
    *,
    partitions: Collection[PartitionKey],
    read_ms: int,
) -> GroupView:
    """The view of one group, of a share group without `committed`: that needs log ends.

    `state` and `kind` are as the list has them, None where an old broker doesn't list them. `partitions` are those that
    exist: a task of a streams group reads only these. Empty where they are not known.
    """
    described_state = described.state if described else None
    view = GroupView(
        described_state or state or UNKNOWN_STATE, {} if kind == SHARE else offsets.starts, {}, group_type=kind,
        share=offsets if kind == SHARE else None, read_ms=read_ms,
    )  # fmt: skip
    if described is None:
        return replace(view, members=0 if state == EMPTY else None)
    owners: dict[PartitionKey, Owner] = {}
    targets: dict[PartitionKey, str] = {}
    for member in described.members if kind != SHARE else ():
        owner = Owner(
            member.member_id, member.client_id, member.group_instance_id, member.rack_id, member.subscribed_topic_regex
        )
        owners.update(dict.fromkeys(member.owned, owner))
        targets.update(dict.fromkeys(member.target or (), member.member_id))
    if kind == STREAMS and partitions:
        owners = {key: owner for key, owner in owners.items() if key in partitions}
        targets = {key: owner for key, owner in targets.items() if key in partitions}
    return replace(
        view, owners=owners, targets=targets, generation_id=described.generation_id, members=len(described.members),
        assignor=described.assignor, topology_epoch=described.topology_epoch,
    )  # fmt: skip
