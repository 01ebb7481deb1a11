"""Makes the view of one group of what its coordinator answered. Asks nobody."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from streaming.cluster.described_groups import SHARE, DescribedGroup, DescribedMember, ShareOffsets, bounded
from streaming.cluster.offset_rows import OffsetRows
from streaming.collect.group_table import GroupView, Owner
from streaming.collect.partition_table import PartitionKey

EMPTY = "Empty"
UNKNOWN_STATE = "Unknown"


A = TypeVar("A")
Owned = tuple[Mapping[PartitionKey, Owner], Mapping[PartitionKey, str], int]
"""Owners of partitions, the member ids of who shall own them, and how many partitions are left out."""
Unowned = tuple[PartitionKey, ...]
"""Partitions that nobody owns, of topics of which members own others."""


@dataclass(frozen=True, slots=True)
class Reported:
    """The partitions of a group that are reported: partitions that exist, and few without a commit.

    Brokers check what a client commits, but not what the members of a group say that they own.
    """

    partitions: Mapping[str, int]
    """How many partitions each topic has."""
    uncommitted_max: int
    """Most partitions of a group without a commit of the group: of those that members own, of those that members shall
    own, and of both together with those that nobody has noticed. Members share them alike.
    """

    def exists(self, key: PartitionKey) -> bool:
        """Whether there is such a partition."""
        return 0 <= key[1] < self.partitions.get(key[0], 0)


@dataclass(slots=True)
class Owners:
    """Who owns what of each group: built again only if another description of it has come. For many threads."""

    _known: dict[str, tuple[DescribedGroup, Mapping[str, int], tuple[Owned, Unowned]]] = field(default_factory=dict)

    def of(self, name: str, described: DescribedGroup, reported: Reported) -> tuple[Owned, Unowned]:
        """Owners and unowned partitions of the group that is described so, of the partitions that exist."""
        known = self._known.get(name)
        if known is None or known[0] is not described or known[1] is not reported.partitions:
            owned = _owned(described, reported)
            known = self._known[name] = described, reported.partitions, (owned, _unowned(owned, reported))
        return known[2]

    def forget_others(self, names: Collection[str]) -> None:
        """Keep these groups alone."""
        self._known = {name: row for name, row in self._known.items() if name in names}


def _owned(described: DescribedGroup, reported: Reported) -> Owned:
    owners: dict[PartitionKey, Owner] = {}
    targets: dict[PartitionKey, str] = {}
    left_out = 0
    for member in described.members:
        owner = _owner_of(member)
        owned = [key for key in member.owned if reported.exists(key)]
        wanted = [key for key in member.target or () if reported.exists(key)]
        owners.update(dict.fromkeys(owned, owner))
        targets.update(dict.fromkeys(wanted, owner.member_id))
        left_out += len(member.owned) - len(owned) + len(member.target or ()) - len(wanted) + member.unread
    return owners, targets, left_out


def _unowned(owned: Owned, reported: Reported) -> Unowned:
    """At most `uncommitted_max` of them; a group that names none is not looked through."""
    owners, targets, _ = owned
    named = owners.keys() | targets.keys()
    counts = Counter(topic for topic, _ in named)
    missing = (
        (topic, number)
        for topic in sorted({topic for topic, _ in owners})
        if counts[topic] < reported.partitions[topic]
        for number in range(reported.partitions[topic])
        if (topic, number) not in named
    )
    return tuple(islice(missing, reported.uncommitted_max))


def _owner_of(member: DescribedMember) -> Owner:
    """The member with names of bounded length: each of its partitions repeats them."""
    texts = (member.group_instance_id, member.rack_id, member.subscribed_topic_regex, member.client_host)
    return Owner(
        bounded(member.member_id), bounded(member.client_id), *(bounded(text) if text else None for text in texts)
    )


def view_of(
    name: str,
    kind: str | None,
    state: str | None,
    described: DescribedGroup | None,
    offsets: ShareOffsets,
    *,
    reported: Reported,
    read_ms: int,
    known: Owners,
) -> GroupView:
    """The view of one group, of a share group without `committed`: that needs log ends.

    `state` and `kind` are as the list has them, None where an old broker doesn't list them. `known` are the owners of
    the look before.
    """
    described_state = described.state if described else None
    existing = _existing(offsets, reported)
    view = GroupView(
        described_state or state or UNKNOWN_STATE, {} if kind == SHARE else existing.starts, {}, group_type=kind,
        share=existing if kind == SHARE else None, read_ms=read_ms,
        left_out=len(offsets.starts) + len(offsets.unread) - len(existing.starts) - len(existing.unread),
    )  # fmt: skip
    if described is None:
        return replace(view, members=0 if state == EMPTY else None)
    nothing: tuple[Owned, Unowned] = ({}, {}, 0), ()
    (owners, targets, unknown), unowned = nothing if kind == SHARE else known.of(name, described, reported)
    members = len(described.members)
    owners, targets, over = _within(owners, targets, view.committed, reported.uncommitted_max, members)
    unnoticed = _unnoticed(unowned, owners, targets, view.committed, reported.uncommitted_max)
    return replace(
        view, owners=owners, targets=targets, unnoticed=unnoticed, generation_id=described.generation_id,
        members=members, assignor=bounded(described.assignor) if described.assignor else None,
        topology_epoch=described.topology_epoch, left_out=view.left_out + unknown + over,
    )  # fmt: skip


def _existing(offsets: ShareOffsets, reported: Reported) -> ShareOffsets:
    """Returns the offsets without partitions that do not exist."""
    if isinstance(offsets.starts, OffsetRows):
        starts = offsets.starts.among(reported.partitions)
        return offsets if starts is offsets.starts else replace(offsets, starts=starts)
    return replace(
        offsets,
        starts={key: offset for key, offset in offsets.starts.items() if reported.exists(key)},
        unread=tuple(filter(reported.exists, offsets.unread)),
    )


def _unnoticed(
    unowned: Unowned,
    owners: Mapping[PartitionKey, Owner],
    targets: Mapping[PartitionKey, str],
    committed: Collection[PartitionKey],
    uncommitted_max: int,
) -> Unowned:
    """Partitions that nobody owns or has committed, as many as there is room for beside what members own."""
    uncommitted = [key for key in unowned if key not in committed]
    if not uncommitted:
        return ()
    taken = sum(key not in committed for key in owners.keys() | targets.keys())
    return tuple(uncommitted[: max(0, uncommitted_max - taken)])


def _within(
    owners: Mapping[PartitionKey, Owner],
    targets: Mapping[PartitionKey, str],
    committed: Collection[PartitionKey],
    uncommitted_max: int,
    members: int,
) -> Owned:
    """Owners and targets with at most so many partitions without a commit, and how many are left out."""
    if max(len(owners), len(targets)) <= uncommitted_max:
        return owners, targets, 0
    of_member = max(1, uncommitted_max // max(1, members))
    kept_owners = _shared_alike(owners, {key: owner.member_id for key, owner in owners.items()}, committed, of_member)
    kept_targets = _shared_alike(targets, targets, committed, of_member)
    return kept_owners, kept_targets, len(owners) - len(kept_owners) + len(targets) - len(kept_targets)


def _shared_alike(
    rows: Mapping[PartitionKey, A],
    member_of: Mapping[PartitionKey, str],
    committed: Collection[PartitionKey],
    most: int,
) -> dict[PartitionKey, A]:
    """Rows of partitions that the group has committed for, and of at most so many others of each member."""
    taken: Counter[str] = Counter()
    kept: dict[PartitionKey, A] = {}
    for key, row in rows.items():
        if key not in committed:
            taken[member_of[key]] += 1
            if taken[member_of[key]] > most:
                continue
        kept[key] = row
    return kept
