"""Whether followers serve consumers, and which replica serves whom (KIP-392). Pure.

No broker shows whom it serves, and only its settings name its replica selector, which a collector need not be allowed
to read. So the counters show it: a broker that leads nothing of a topic and sends bytes of it serves as a follower.
Where every broker leads something, what brokers should send if followers serve the racks of groups' members is
compared with what they should send if leaders serve all.

What members read in their own rack goes to the leader if that stands there, else to all replicas there alike. Members
that name no rack, and racks without a replica, read from the leader.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from streaming.collect.observation import Observation
from streaming.collect.partition_table import UNKNOWN, Ints, PartitionKey, PartitionTable, positions

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SEEN = 0.01
"""A broker that leads nothing of a topic serves as a follower if it sends this part of the topic's bytes."""
DIFFERENT = 0.1
"""The two guesses must be so far apart, as a part of a topic's bytes, before its counters decide between them."""


@dataclass(frozen=True, eq=False)
class Readers:
    """What groups read: bytes/s of partitions by the rack of the member, a row for each group and partition."""

    row: Ints
    """The partition's, in the table of the later look."""
    rack: Ints
    """Place of the rack in `racks`; UNKNOWN where the member names none."""
    rate: Floats
    racks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Replicas:
    """All replicas of a look, in the order of its table: which place, broker and topic, each is at."""

    partitions: PartitionTable
    rack_of: dict[int, str | None]

    @cached_property
    def row(self) -> Ints:
        """Row of each replica's partition."""
        return self.partitions.replica_row

    @cached_property
    def broker(self) -> Ints:
        """Broker that holds each replica."""
        return self.partitions.replica_broker

    @cached_property
    def leads(self) -> Flags:
        """Whether each replica is the leader."""
        leads: Flags = self.partitions.leader[self.row] == self.broker
        return leads

    @cached_property
    def is_whole(self) -> Flags:
        """Whether each replica may serve consumers: one that a reassignment is adding does not yet."""
        return ~self.partitions.is_adding(self.row, self.broker)

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """(Places, the number of its place by replica); a place is broker x topics + topic."""
        names = self.partitions.names
        key = self.broker * max(1, len(names.topics)) + names.topic[self.row]
        places, place = np.unique(key, return_inverse=True)
        return places, place

    def racks(self, names: tuple[str, ...]) -> Ints:
        """Place of each replica's rack in `names`, or UNKNOWN."""
        place = {name: index for index, name in enumerate(names)}
        brokers, at = np.unique(self.broker, return_inverse=True)
        racks = [place.get(self.rack_of.get(broker) or "", UNKNOWN) for broker in brokers.tolist()]
        return np.array(racks, dtype=np.int64)[at]

    def served(self, readers: Readers) -> Floats:
        """Bytes/s that each replica serves if consumers read in their racks."""
        count = max(1, len(readers.racks))
        racked = readers.rack != UNKNOWN
        keys, at = np.unique(readers.row[racked] * count + readers.rack[racked], return_inverse=True)
        wanted = np.bincount(at, readers.rate[racked], len(keys))
        rack = self.racks(readers.racks)
        own = np.where((rack != UNKNOWN) & self.is_whole, positions(keys, self.row * count + rack), UNKNOWN)
        here = own != UNKNOWN
        holders = np.bincount(own[here], minlength=len(keys))
        by_leader = np.bincount(own[here & self.leads], minlength=len(keys)) > 0
        rates = np.zeros(len(self.row))
        at_leader = by_leader[own[here]]
        rates[here] = wanted[own[here]] * np.where(at_leader, self.leads[here], 1 / np.maximum(holders[own[here]], 1))
        # Nobody in their rack: the leader serves them.
        absent = holders == 0
        row = np.concatenate([readers.row[~racked], keys[absent] // count])
        rate = np.concatenate([readers.rate[~racked], wanted[absent]])
        return rates + self.led(summed(row, rate, len(self.partitions)))

    def led(self, by_partition: Floats) -> Floats:
        """Returns the rate at each replica if leaders serve all: each partition's rate at its leader."""
        return np.where(self.leads, by_partition[self.row], 0.0)


def readers_of(
    after: Observation, row: Ints, group: Ints, keys_of_rows: Callable[[], list[PartitionKey]], rate: Floats
) -> Readers:
    """Rows that groups read, with the racks of the members that own them; `group` is a place in groups.

    `keys_of_rows` is called only if some member names its rack.
    """
    racks: dict[str, int] = {}
    rack = np.full(len(row), UNKNOWN)
    begins = np.searchsorted(group, np.arange(len(after.groups) + 1)).tolist()
    with_racks = [
        (place, view)
        for place, view in enumerate(after.groups.values())
        if any(owner.rack_id for owner in view.owners.values())
    ]
    keys = keys_of_rows() if with_racks else []
    for place, view in with_racks:
        for index in range(begins[place], begins[place + 1]):
            owner = view.owners.get(keys[index])
            if owner is not None and owner.rack_id:
                rack[index] = racks.setdefault(owner.rack_id, len(racks))
    return Readers(row, rack, rate, tuple(racks))


def followers_serve(
    known: bool, before: PartitionTable, replicas: Replicas, readers: Readers, by_place: Floats
) -> bool:
    """Whether followers serve consumers; `known` is what the look before has shown, and holds where this shows nothing.

    `by_place` are bytes/s by the counters of each place of `replicas`, NaN where they can't tell.
    """
    places, place = replicas.places
    counted = np.nan_to_num(by_place, nan=0.0)
    if _sent_without_leading(before, replicas, counted):
        return True
    if not (readers.rack != UNKNOWN).any():
        return known
    by_partition = summed(readers.row, readers.rate, len(replicas.partitions))
    topic = places % max(1, len(replicas.partitions.names.topics))
    sent = summed(topic, counted)
    guesses = []
    for rates in (replicas.led(by_partition), replicas.served(readers)):
        guess = np.where(np.isnan(by_place), 0.0, np.bincount(place, rates, len(places)))
        # Guesses are of what is committed: as much as the counters have, topic by topic.
        guesses.append(guess * _ratio(sent, summed(topic, guess))[topic])
    by_leaders, in_racks = guesses
    tells = (np.bincount(topic, np.abs(in_racks - by_leaders)) > DIFFERENT * sent)[topic]
    apart = (in_racks - by_leaders)[tells]
    if not apart.any():
        return known
    # Least squares: 0 where the counters are as leaders alone would send, 1 where they are as racks ask for.
    return float(((counted - by_leaders)[tells] * apart).sum() / (apart * apart).sum()) > 0.5


def _sent_without_leading(before: PartitionTable, replicas: Replicas, counted: Floats) -> bool:
    """Whether a broker sent much of a topic of which it led nothing, at this look and at the one before."""
    places, place = replicas.places
    partitions = replicas.partitions
    led = np.bincount(place, replicas.leads, len(places)) > 0
    topics = max(1, len(partitions.names.topics))
    earlier = partitions.rows_of(before.names)
    known = earlier != UNKNOWN
    led_before = before.leader[known] * topics + partitions.names.topic[earlier[known]]
    led |= np.isin(places, led_before)
    topic = places % topics
    totals = np.bincount(topic, counted, topics)
    return bool((~led & (counted > 0) & (counted > SEEN * totals[topic])).any())


def summed(places: Ints, values: Floats, count: int = 0) -> Floats:
    """Sum of the values beside each place, for `count` places at least."""
    return np.bincount(places, values, count).astype(np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0)
