"""What consumers force that read in their racks: their rack's replicas serve them, whoever leads (KIP-392).

Where each rack holds a replica of a partition, what a rack's consumers read of it stays on the rack's brokers. If that
is much, its brokers should lead little, since a leader sends to followers and to all other consumers. Other racks must
lead what they don't, and then carry more of what clients write. The least level that bytes out of the one and leader
bytes in of the others can have at once follows from the best choice: the rack leads what sends least for what is
written, the last partition in part (a fractional knapsack). Racks that read much count together, too.

Invariants: the level bounds the worse of the two loads, not each. Where only reads that stay by rule are counted, it
holds for every placement that spreads racks as evenly as it can. Nothing moves here.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, RackReads, in_rack
from assignor_core.planner.placement import Flags, Placement
from assignor_core.planner.proportions import NOTICEABLE, least_that_suffices
from assignor_core.planner.rack_replicas import replicas_by_rack
from assignor_core.resources import Resource

GROUPS_MAX = 16
"""Most groups of racks that are looked at: those that read most for their brokers."""


class _Group(NamedTuple):
    """Some racks' brokers in one window."""

    brokers: Flags
    """B."""
    reads: float
    """What consumers in these racks read from these brokers, in fractions of all bytes out."""
    share: float
    """Share of bytes out that the brokers of the group should carry."""
    others: float
    """The share of leader bytes in that all other brokers should carry."""


def levels_alone(arrays: ClusterArrays, placement: Placement, share: Floats) -> Floats:
    """B x C level of bytes out, in fair shares, that reads alone force on every placement; else 1."""
    levels = np.ones_like(share)
    if arrays.rack_reads is None:
        return levels
    stays = _stay_by_rule(arrays, arrays.rack_reads)
    for column, groups in _groups_by_window(arrays, arrays.rack_reads, placement, share, stays):
        for group in groups:
            levels[group.brokers, column] = np.maximum(levels[group.brokers, column], group.reads / group.share)
    return levels


def levels_of_reads(
    arrays: ClusterArrays, placement: Placement, share: Floats, *, stay_where_they_are: bool = False
) -> Floats:
    """B x C level, in fair shares, that bytes out and leader bytes in can't both end below; 1 where nothing is forced.

    With `stay_where_they_are` only of placements whose replicas stay in the racks that they are in.
    """
    levels = np.ones_like(share)
    reads, columns = arrays.rack_reads, arrays.columns
    if reads is None or not arrays.alive.any():
        return levels
    stays = _stay_by_rule(arrays, reads)
    if stay_where_they_are:
        stays |= _stay_now(arrays, reads, placement.replicas)
    leader_columns = dict(zip(columns.of(Resource.BYTES_OUT), columns.of(Resource.LEADER_BYTES_IN), strict=True))
    for column, groups in _groups_by_window(arrays, reads, placement, share, stays):
        leader_column = leader_columns[column]
        led = _Led(placement.leading[:, column], placement.leading[:, leader_column])
        for group in groups:
            level = led.least_level(group)
            if level > 1.0 + NOTICEABLE:
                others = arrays.alive & ~group.brokers
                levels[group.brokers, column] = np.maximum(levels[group.brokers, column], level)
                levels[others, leader_column] = np.maximum(levels[others, leader_column], level)
    return levels


def _stay_by_rule(arrays: ClusterArrays, reads: RackReads) -> Flags:
    """N: pairs of a partition and a rack that reads it, whose rack holds a replica in every even spread."""
    spread = replicas_by_rack(arrays)
    place = np.full(len(arrays.rack_names), NO_BROKER)
    place[spread.racks] = np.arange(len(spread.racks))
    at = place[reads.racks]
    lowest = spread.lowest[spread.factor_of[reads.partitions[reads.rows]], at]
    stay: Flags = (at != NO_BROKER) & (lowest > 0)
    return stay


def _stay_now(arrays: ClusterArrays, reads: RackReads, replicas: Ints) -> Flags:
    """N: pairs whose rack holds one of `replicas` (P x R) on a broker that is alive."""
    held = replicas[reads.partitions[reads.rows]]
    here: Flags = np.any(in_rack(held, reads.racks, arrays.racks) & arrays.alive[held], axis=1)
    return here


class _Led:
    """What leaderships of P partitions bring: those that send least for what is written come first."""

    def __init__(self, sent: Floats, written: Floats) -> None:
        given = np.flatnonzero(written > 0)
        order = given[np.argsort(sent[given] / written[given], kind="stable")]
        self._sent, self._written = (np.concatenate(([0.0], np.cumsum(row[order]))) for row in (sent, written))

    def least_level(self, group: _Group) -> float:
        """The least level at which the group leads what the others can't, and sends what it may."""

        def suffices(level: float) -> bool:
            must_lead = max(0.0, self._written[-1] - level * group.others)
            return bool(group.reads + np.interp(must_lead, self._written, self._sent) <= level * group.share)

        return least_that_suffices(suffices, highest=1.0 / group.share)


def _groups_by_window(
    arrays: ClusterArrays, reads: RackReads, placement: Placement, share: Floats, stays: Flags
) -> Iterator[tuple[int, list[_Group]]]:
    """(Column of bytes out, groups of racks) of each window, by the reads in `stays` (N): the rack that reads most for
    its brokers, it and the next, and so on.
    """
    columns = arrays.columns
    out, leading = columns.of(Resource.BYTES_OUT), columns.of(Resource.LEADER_BYTES_IN)
    for window, (column, leader_column) in enumerate(zip(out.tolist(), leading.tolist(), strict=True)):
        rates = np.where(stays, reads.rates[:, window] * placement.scale[column], 0.0)
        by_rack = np.bincount(reads.racks, weights=rates, minlength=len(arrays.rack_names))
        given = np.bincount(arrays.racks, weights=share[:, column], minlength=len(arrays.rack_names))
        racks = np.flatnonzero((by_rack > 0) & (given > 0))
        order = racks[np.argsort(-by_rack[racks] / given[racks], kind="stable")][:GROUPS_MAX]
        groups = []
        for count in range(1, len(order) + 1):
            brokers = arrays.alive & np.isin(arrays.racks, order[:count])
            others = float(share[arrays.alive & ~brokers, leader_column].sum())
            held, part = float(by_rack[order[:count]].sum()), float(given[order[:count]].sum())
            groups.append(_Group(brokers, held, part, others))
        yield column, groups
