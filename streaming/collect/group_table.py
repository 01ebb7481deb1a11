"""Consumer groups of a sample: the view of each, made of what its coordinator answered, and all of them as columns.

A row of the columns is a partition that a group has committed, owns, wants or has not noticed yet. Asks nobody.

The position of a share group is log end less lag. The start offset of a share-partition stays behind what is done
(brokers move it in steps), so it is no measure of progress. Log end and lag are read one after the other: records
written in between would seem a step back.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar

import numpy as np

from assignor_core.live import PartitionKey
from streaming.cluster.answer_columns import OffsetRows
from streaming.cluster.described_groups import SHARE, DescribedGroup, DescribedMember, ShareOffsets, bounded
from streaming.collect.partition_table import UNKNOWN, Ints, PartitionNames, PartitionTable, column_at, ints, positions

NUMBER_BITS = 22
"""Bits of the partition's number in a row's key: groups x topics x 4 million partitions of a topic."""
EMPTY = "Empty"
UNKNOWN_STATE = "Unknown"
A = TypeVar("A")
Unowned = tuple[PartitionKey, ...]
"""Partitions that nobody owns, of topics of which members own others."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The member that owns a partition."""

    member_id: str
    client_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_regex: str | None = None
    client_host: str | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of any kind: state, owners and committed offsets by partition.

    Of a share group `committed` is log end less lag, and nobody owns a partition alone.
    """

    state: str
    committed: Mapping[PartitionKey, int]
    owners: Mapping[PartitionKey, Owner]
    generation_id: int | None = None
    group_type: str | None = None
    members: int | None = None
    """How many members the group has, with those that own nothing; None where the group was not described."""
    targets: Mapping[PartitionKey, str] = field(default_factory=dict)
    """Id of the member that shall own a partition, by partition."""
    assignor: str | None = None
    topology_epoch: int | None = None
    unnoticed: tuple[PartitionKey, ...] = ()
    """Partitions without a commit and an owner, of topics of which members own others: added lately, or withheld."""
    left_out: int = 0
    """Partitions that it names and that are not reported: they do not exist, or its members name too many."""
    share: ShareOffsets | None = None
    """What the coordinator sent of a share group's offsets."""
    read_ms: int | None = field(default=None, compare=False)
    """When the offsets were fetched: of an idle group, some samples ago."""


class GroupTable(Mapping[str, GroupView]):
    """All groups of a sample in order of their names. Rows of group i are `begin[i]` to `begin[i + 1]`, in order."""

    def __init__(self, views: Mapping[str, GroupView]) -> None:
        self._views = dict(sorted(views.items()))

    @cached_property
    def keys_by_group(self) -> list[list[PartitionKey]]:
        """The partitions of each group's rows."""
        return [
            sorted(
                {
                    *view.committed,
                    *view.owners,
                    *view.targets,
                    *view.unnoticed,
                    *(view.share.partitions if view.share else ()),
                }
            )
            for view in self._views.values()
        ]

    @cached_property
    def begin(self) -> Ints:
        """Index at which the rows of each group begin, and the end of all rows."""
        return np.cumsum([0, *map(len, self.keys_by_group)], dtype=np.int64)

    @cached_property
    def group(self) -> Ints:
        """The place of each row's group."""
        return np.repeat(np.arange(len(self)), np.diff(self.begin))

    @cached_property
    def names(self) -> PartitionNames:
        """The partition of each row."""
        place: dict[str, int] = {}
        for keys in self.keys_by_group:
            for key in keys:
                place.setdefault(key[0], len(place))
        topic = ints(place[key[0]] for keys in self.keys_by_group for key in keys)
        return PartitionNames(tuple(place), topic, ints(key[1] for keys in self.keys_by_group for key in keys))

    @cached_property
    def committed(self) -> Ints:
        """Committed offset of each row, or UNKNOWN."""
        groups = zip(self._views.values(), self.keys_by_group, strict=True)
        return ints(view.committed.get(key, UNKNOWN) for view, keys in groups for key in keys)

    @cached_property
    def read_ms(self) -> list[int | None]:
        """When the offsets of each group were fetched."""
        return [view.read_ms for view in self._views.values()]

    @cached_property
    def rows(self) -> "GroupRows":
        """All rows."""
        return GroupRows(tuple(self), self.group, self.names)

    @cached_property
    def committing(self) -> tuple["GroupRows", Ints]:
        """(Rows of partitions that have a committed offset, these offsets): of each group in any order."""
        place: dict[str, int] = {}
        topics, numbers, offsets, counts = [ints(())], [ints(())], [ints(())], []
        for view in self._views.values():
            topic, number, offset = _committed_columns(view.committed, place)
            topics.append(topic)
            numbers.append(number)
            offsets.append(offset)
            counts.append(len(offset))
        names = PartitionNames(tuple(place), np.concatenate(topics), np.concatenate(numbers))
        return GroupRows(tuple(self), np.repeat(np.arange(len(self)), ints(counts)), names), np.concatenate(offsets)

    def totals(self, partitions: PartitionTable) -> list[tuple[int, int | None]]:
        """(Lag, committed offsets) of each group, added up over its partitions; lag where the log end is known.

        A group that has committed nothing has None.
        """
        rows, committed = self.committing
        end = column_at(partitions.end, partitions.rows_of(rows.names))
        lag = np.where(end == UNKNOWN, 0, np.maximum(0, end - committed))
        begin = np.searchsorted(rows.group, np.arange(len(self) + 1))
        sums = (np.diff(np.concatenate(([0], np.cumsum(column)))[begin]).tolist() for column in (lag, committed))
        counts = np.diff(begin).tolist()
        return [(behind, total if count else None) for behind, total, count in zip(*sums, counts, strict=True)]

    def __getitem__(self, name: str) -> GroupView:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


@dataclass(frozen=True, eq=False)
class GroupRows:
    """Partitions of groups; `group` is the place of each row's group in `groups`."""

    groups: tuple[str, ...]
    group: Ints
    names: PartitionNames

    def rows_in(self, other: "GroupRows") -> Ints:
        """For each row the row of the same group and partition in another sample, or UNKNOWN."""
        is_same = other.groups == self.groups and other.names.topics == self.names.topics
        if is_same and np.array_equal(self._keys, other._keys):
            return np.arange(len(self.group))
        group_places = {name: index for index, name in enumerate(other.groups)}
        topic_places = {name: index for index, name in enumerate(other.names.topics)}
        group = ints(group_places.get(name, UNKNOWN) for name in self.groups)[self.group]
        topic = ints(topic_places.get(name, UNKNOWN) for name in self.names.topics)[self.names.topic]
        order = np.argsort(other._keys, kind="stable")
        place = positions(other._keys[order], _key(group, topic, self.names.number, len(topic_places)))
        return column_at(order, np.where((group >= 0) & (topic >= 0), place, UNKNOWN))

    @cached_property
    def _keys(self) -> Ints:
        return _key(self.group, self.names.topic, self.names.number, len(self.names.topics))


def _committed_columns(committed: Mapping[PartitionKey, int], place: dict[str, int]) -> tuple[Ints, Ints, Ints]:
    """(Place of the topic, number, offset) of each; adds topics that are new to `place`."""
    if isinstance(committed, OffsetRows):
        own = ints(place.setdefault(topic, len(place)) for topic in committed.topics)
        return own[committed.topic] if len(own) else ints(()), committed.number, committed.offset
    topics = ints(place.setdefault(topic, len(place)) for topic, _ in committed)
    return topics, ints(number for _, number in committed), ints(committed.values())


def _key(group: Ints, topic: Ints, number: Ints, topics: int) -> Ints:
    """One number for each row."""
    return (group * max(1, topics) + topic) << NUMBER_BITS | number


Owned = tuple[Mapping[PartitionKey, Owner], Mapping[PartitionKey, str], int]
"""Owners of partitions, the member ids of who shall own them, and how many partitions are left out."""


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
    """At most `uncommitted_max` of them; a group that names none is not read."""
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
    the sample before.
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


@dataclass(slots=True)
class SharePositions:
    """Remembers start offset and position of each share group's partitions that were read last. Not for two threads.

    Without a lag from the broker (before 4.2) the position is the start offset; with one that it does not know there
    is none.
    """

    _seen: dict[str, dict[PartitionKey, tuple[int, int]]] = field(default_factory=dict)

    def placed(self, group: str, view: GroupView, partitions: PartitionTable) -> GroupView:
        """The view of a share group with its positions; that of another group as it is.

        A position goes back only if its start offset does, as when the group is reset, or if the log now ends before
        it: the topic was deleted and made again.
        """
        return replace(view, committed=self._of(group, view.share, partitions)) if view.share else view

    def _of(self, group: str, offsets: ShareOffsets, partitions: PartitionTable) -> dict[PartitionKey, int]:
        before = self._seen.get(group, {})
        seen: dict[PartitionKey, tuple[int, int]] = {}
        for key, start in offsets.starts.items():
            log_end = partitions.log_end_of(key)
            position = _position(start, offsets.lags.get(key), log_end) if offsets.lags else start
            if position is None:
                continue
            start_before, position_before = before.get(key, (start, position))
            is_same_log = start >= start_before and (log_end is None or position_before <= log_end)
            seen[key] = (start, max(position, position_before) if is_same_log else position)
        self._seen[group] = seen
        return {key: position for key, (_, position) in seen.items()}

    def forget_others(self, groups: Collection[str]) -> None:
        """Only these groups are there."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in groups}


def _position(start: int, lag: int | None, log_end: int | None) -> int | None:
    if lag is None or log_end is None:
        return None
    return max(start, log_end - lag)
