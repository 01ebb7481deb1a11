"""Bytes that consumers read from each partition: an estimate, as no broker counts it. Pure."""

import numpy as np
import numpy.typing as npt

from streaming.collect.observation import Observation
from streaming.collect.partition_table import Ints
from streaming.collect.topic_counters import counted_by_place, places_of

Floats = npt.NDArray[np.float64]


def bytes_out_per_sec(before: Observation, after: Observation, written: Floats, record_bytes: Floats) -> Floats:
    """Bytes/s by partition of `after`, NaN for unknown; `written` is what clients write to each, `record_bytes` the
    mean bytes of a record in its log.

    Progress of committed offsets x mean record size; scaled to the topic's own byte counter of the leader's broker
    where there is one. A topic that is read without commits is split in proportion to what is written.
    """
    consumed = _consumed(before, after, record_bytes)
    places, place = places_of(after)
    totals = counted_by_place(before, after, places, lambda counters: counters.topic_bytes_out)
    weights = np.nan_to_num(consumed, nan=0.0)
    shared = np.bincount(place, weights, len(places))
    # Where nobody commits, by what is written.
    by_writes = np.nan_to_num(written, nan=0.0)
    weights = np.where(shared[place] != 0, weights, by_writes)
    shared = np.where(shared != 0, shared, np.bincount(place, by_writes, len(places)))
    count = np.bincount(place, minlength=len(places))
    share = shared[place]
    split = np.where(share != 0, totals[place] * weights / np.where(share != 0, share, 1), totals[place] / count[place])
    return np.where(np.isnan(totals[place]), consumed, split)


def _consumed(before: Observation, after: Observation, record_bytes: Floats) -> Floats:
    """Bytes/s by the progress of committed offsets, summed over groups; NaN for partitions without any commit."""
    partitions = after.partitions
    (rows_before, committed_before), (rows, committed) = before.groups.committing, after.groups.committing
    earlier = rows.rows_in(rows_before)
    row = partitions.rows_of(rows.names)
    chosen = np.flatnonzero((earlier >= 0) & (row >= 0) & (committed >= 0))
    first, last = committed_before[earlier[chosen]], committed[chosen]
    size = record_bytes[row[chosen]]
    began_ms = _read_ms(before)[rows_before.group[earlier[chosen]]]
    ended_ms = _read_ms(after)[rows.group[chosen]]
    passed_ms = np.where(ended_ms > began_ms, ended_ms - began_ms, np.nan)
    # An idle group's offsets may be the same fetch in both looks.
    rates = np.where(last == first, 0.0, (last - first) * size * 1000 / passed_ms)
    counts = (first >= 0) & (last >= first) & ~np.isnan(size) & ~np.isnan(rates)
    of_row = row[chosen][counts]
    sums = np.bincount(of_row, rates[counts], len(partitions))
    return np.where(np.bincount(of_row, minlength=len(partitions)) > 0, sums, np.nan)


def _read_ms(observation: Observation) -> Ints:
    """When the offsets of each group were fetched; when the sample began, where that isn't known."""
    return np.array([read_ms or observation.time_ms for read_ms in observation.groups.read_ms], dtype=np.int64)
