"""Cheapest brokers for the replicas of each partition, if a copy and each unit of load have a price.

In machine code, as `least_bytes` asks hundreds of times. At given prices no partition depends on another one, so each
is looked at alone. Mostly nothing is cheaper than to stay, which one look at the partition's own brokers shows.

Invariant: no way to place a partition costs less, with whole replicas on brokers of their own, in racks of their own
where it must be spread, and in its set of brokers where it has one (tests/core/planner/test_least_bytes.py).
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.compiled import compiled
from assignor_core.planner.placement import Flags, Indices


class Rows(NamedTuple):
    """P partitions with up to R replicas, on B brokers, with K loads."""

    original: Ints
    """P x R brokers that hold them, leader first."""
    counts: Indices
    """P replicas of each."""
    following: Floats
    """P x K load on each broker that holds one."""
    leading: Floats
    """P x K what the leader carries besides."""
    copied: Floats
    """P price of a copy."""
    may_change: Flags
    """P."""
    is_spread: Flags
    """P: each replica must be in a rack of its own."""
    may_stay_whole: Flags
    """P: no rule forbids that all stay where they are."""
    racks: Ints
    """B rack of each, from 0 on."""
    rack_count: Ints
    """One figure."""
    may_keep: Flags
    """B: what is there may stay."""
    may_take: Flags
    """B."""
    set_of: Indices
    """P: the row of `members` that holds for the partition."""
    members: Flags
    """K x B brokers that may hold partitions."""


class Room(NamedTuple):
    """Scratch paper, with a place for each rack or broker."""

    prices: Floats
    """2 x B price of a replica on each broker: of a follower, of a leader."""
    cheapest: Floats
    """2 x B the least price in each place."""
    brokers: Indices
    """2 x B who has it."""
    chosen: Indices
    """R places with the cheapest followers."""

    @classmethod
    def of(cls, brokers: int, replicas: int) -> "Room":
        """Room for so many brokers, and so many replicas of a partition."""
        both = (2, brokers)
        return cls(np.empty(both), np.empty(both), np.empty(both, dtype=np.int64), np.empty(replicas, dtype=np.int64))


@compiled
def cheapest_rows(rows: Rows, prices: Floats, room: Room, loads: Floats) -> float:
    """The least price of all partitions, copies and loads together; writes the loads that go with it (B x K).

    `prices` (K x B) are those of a unit of load. A partition without a place for all its replicas costs nothing.
    """
    total = 0.0
    for broker in range(len(loads)):
        for column in range(loads.shape[1]):
            loads[broker, column] = 0.0
    for row in range(len(rows.original)):
        leader, held, dearest, extra = _as_it_is(rows, row, prices)
        if not rows.may_change[row]:
            leader = rows.original[row, 0]
            total += held + _price(rows.leading, row, prices, leader)
        elif rows.may_stay_whole[row] and dearest + extra <= rows.copied[row]:
            total += held + extra
        else:
            total += _elsewhere(rows, row, prices, room, loads)
            continue
        for slot in range(rows.counts[row]):
            _add(rows.following, row, loads, rows.original[row, slot])
        _add(rows.leading, row, loads, leader)
    return total


@compiled
def _as_it_is(rows: Rows, row: int, prices: Floats) -> tuple[int, float, float, float]:
    """If all replicas stay: the broker that leads cheapest, what all followers cost and the dearest of them, and what
    it costs to lead.
    """
    leader, extra, held, dearest = rows.original[row, 0], np.inf, 0.0, 0.0
    for slot in range(rows.counts[row]):
        broker = rows.original[row, slot]
        price = _price(rows.following, row, prices, broker)
        held += price
        dearest = max(dearest, price)
        price = _price(rows.leading, row, prices, broker)
        if price < extra:
            leader, extra = broker, price
    return leader, held, dearest, extra


@compiled
def _elsewhere(rows: Rows, row: int, prices: Floats, room: Room, loads: Floats) -> float:
    """The least price of one partition on any brokers; adds its loads."""
    places = _write_cheapest(rows, row, prices, room)
    count = rows.counts[row]
    if _choose(room, places, count) < count:
        return 0.0
    held = 0.0
    for at in range(count):
        held += room.cheapest[0, room.chosen[at]]
    dearest = room.cheapest[0, room.chosen[count - 1]]
    least, leads = np.inf, -1
    for place in range(places):
        # The leader is in one of the chosen places, or in place of the dearest of these.
        price = held - dearest + room.cheapest[1, place]
        if price < least and _is_chosen(room, count, place):
            price += dearest - room.cheapest[0, place]
        if price < least:
            least, leads = price, place
    last = count if _is_chosen(room, count, leads) else count - 1
    for at in range(last):
        if room.chosen[at] != leads:
            _add(rows.following, row, loads, room.brokers[0, room.chosen[at]])
    _add(rows.following, row, loads, room.brokers[1, leads])
    _add(rows.leading, row, loads, room.brokers[1, leads])
    return least


@compiled
def _write_cheapest(rows: Rows, row: int, prices: Floats, room: Room) -> int:
    """Write the cheapest broker of each place, as a follower and as a leader; returns how many places there are."""
    is_spread, brokers = rows.is_spread[row], len(rows.racks)
    _write_prices(rows, row, prices, room)
    places = rows.rack_count[0] if is_spread else brokers
    for place in range(places):
        for role in range(2):
            room.cheapest[role, place], room.brokers[role, place] = np.inf, NO_BROKER
    for broker in range(brokers):
        place = rows.racks[broker] if is_spread else broker
        for role in range(2):
            if room.prices[role, broker] < room.cheapest[role, place]:
                room.cheapest[role, place], room.brokers[role, place] = room.prices[role, broker], broker
    return places


@compiled
def _write_prices(rows: Rows, row: int, prices: Floats, room: Room) -> None:
    """Write what a replica costs on each broker, as a follower and as a leader. Loops over brokers come innermost: a
    processor takes four or eight at once.
    """
    brokers, copied, members = len(rows.racks), rows.copied[row], rows.set_of[row]
    for broker in range(brokers):
        room.prices[0, broker] = copied if rows.may_take[broker] and rows.members[members, broker] else np.inf
    for slot in range(rows.counts[row]):
        broker = rows.original[row, slot]
        room.prices[0, broker] = 0.0 if rows.may_keep[broker] and rows.members[members, broker] else np.inf
    for column in range(prices.shape[0]):
        load = rows.following[row, column]
        if load > 0.0:
            for broker in range(brokers):
                room.prices[0, broker] += load * prices[column, broker]
    for broker in range(brokers):
        room.prices[1, broker] = room.prices[0, broker]
    for column in range(prices.shape[0]):
        load = rows.leading[row, column]
        if load > 0.0:
            for broker in range(brokers):
                room.prices[1, broker] += load * prices[column, broker]


@compiled
def _choose(room: Room, places: int, count: int) -> int:
    """Write the `count` places with the cheapest followers, cheapest first; returns how many there are."""
    chosen = 0
    for place in range(places):
        price = room.cheapest[0, place]
        if room.brokers[0, place] == NO_BROKER:
            continue
        at = chosen
        while at > 0 and room.cheapest[0, room.chosen[at - 1]] > price:
            if at < count:
                room.chosen[at] = room.chosen[at - 1]
            at -= 1
        if at < count:
            room.chosen[at] = place
            chosen = min(chosen + 1, count)
    return chosen


@compiled
def _is_chosen(room: Room, count: int, place: int) -> bool:
    is_chosen = False
    for at in range(count):
        is_chosen |= room.chosen[at] == place
    return is_chosen


@compiled
def _price(loads: Floats, row: int, prices: Floats, broker: int) -> float:
    price = 0.0
    for column in range(loads.shape[1]):
        price += loads[row, column] * prices[column, broker]
    return price


@compiled
def _add(added: Floats, row: int, loads: Floats, broker: int) -> None:
    for column in range(added.shape[1]):
        loads[broker, column] += added[row, column]
