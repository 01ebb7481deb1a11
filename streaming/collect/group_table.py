"""Consumer groups, and as columns what each has of partitions: a row for each that is committed, owned, wanted or not
noticed yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from streaming.cluster.described_groups import ShareOffsets
from streaming.cluster.offset_rows import OffsetRows
from streaming.collect.partition_table import (
    UNKNOWN,
    Ints,
    PartitionKey,
    PartitionNames,
    PartitionTable,
    column_at,
    ints,
    positions,
)

NUMBER_BITS = 22
"""Bits of the partition's number in a row's key: groups x topics x 4 million partitions of a topic."""


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
    """When the offsets were fetched: of an idle group, some looks ago."""


class GroupTable(Mapping[str, GroupView]):
    """All groups of a look in order of their names. Rows of group i are `begin[i]` to `begin[i + 1]`, in order, too."""

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
        """For each row the row of the same group and partition in another look, or UNKNOWN."""
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
