"""Makes the view of one group of what its coordinator answered. Asks nobody."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from streaming.cluster.described_groups import SHARE, STREAMS, DescribedGroup, ShareOffsets
from streaming.collect.group_table import GroupView, Owner
from streaming.collect.partition_table import PartitionKey

EMPTY = "Empty"
UNKNOWN_STATE = "Unknown"


Owned = tuple[Mapping[PartitionKey, Owner], Mapping[PartitionKey, str]]
"""Owners of partitions, and the member ids of who shall own them."""


@dataclass(slots=True)
class Owners:
    """Who owns what of each group: made anew only if another description of it has come. For many threads."""

    _known: dict[str, tuple[DescribedGroup, Owned]] = field(default_factory=dict)

    def of(self, name: str, described: DescribedGroup) -> Owned:
        """Of the group that is described so."""
        known = self._known.get(name)
        if known is None or known[0] is not described:
            known = self._known[name] = described, _owned(described)
        return known[1]

    def forget_others(self, names: Collection[str]) -> None:
        """Keep these groups alone."""
        self._known = {name: row for name, row in self._known.items() if name in names}


def _owned(described: DescribedGroup) -> Owned:
    owners: dict[PartitionKey, Owner] = {}
    targets: dict[PartitionKey, str] = {}
    for member in described.members:
        owner = Owner(
            member.member_id, member.client_id, member.group_instance_id, member.rack_id, member.subscribed_topic_regex
        )
        owners.update(dict.fromkeys(member.owned, owner))
        targets.update(dict.fromkeys(member.target or (), member.member_id))
    return owners, targets


def view_of(
    name: str,
    kind: str | None,
    state: str | None,
    described: DescribedGroup | None,
    offsets: ShareOffsets,
    *,
    partitions: Collection[PartitionKey],
    read_ms: int,
    known: Owners,
) -> GroupView:
    """The view of one group, of a share group without `committed`: that needs log ends.

    `state` and `kind` are as the list has them, None where an old broker doesn't list them. `partitions` are those that
    exist: a task of a streams group reads only these. Empty where they are not known. `known` are the owners of the
    look before.
    """
    described_state = described.state if described else None
    view = GroupView(
        described_state or state or UNKNOWN_STATE, {} if kind == SHARE else offsets.starts, {}, group_type=kind,
        share=offsets if kind == SHARE else None, read_ms=read_ms,
    )  # fmt: skip
    if described is None:
        return replace(view, members=0 if state == EMPTY else None)
    owners, targets = ({}, {}) if kind == SHARE else known.of(name, described)
    if kind == STREAMS and partitions:
        owners = {key: owner for key, owner in owners.items() if key in partitions}
        targets = {key: owner for key, owner in targets.items() if key in partitions}
    return replace(
        view, owners=owners, targets=targets, generation_id=described.generation_id, members=len(described.members),
        assignor=described.assignor, topology_epoch=described.topology_epoch,
    )  # fmt: skip
