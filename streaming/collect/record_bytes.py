"""How many bytes a record of each partition has, learned from looks between which its log only grew. Pure.

A log that has lost segments since the look before doesn't show what was written, and its mean record may be of another
size than those written now. Compaction leaves gaps in the offsets besides, so the mean is too small there. What a log
grew by, for each offset that was appended, is right in both cases, so it is kept from look to look.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streaming.collect.observation import Observation
from streaming.collect.partition_table import UNKNOWN, Flags, Floats, Ints, PartitionTable, column_at

WEIGHT_KEPT = 0.75
"""What was learned before counts so much less at each look: records written now count most."""
ENOUGH_RECORDS = 100
"""Sizes are read some milliseconds after offsets: over fewer records the bytes of one are no better than the mean."""
LEAST_SHARE = 0.5
"""A log that grew by less than this share of what its records had before may have lost something meanwhile."""
DOUBTED_MAX = 3
"""A log that seems to have lost something at so many looks in a row has lost nothing: its records have become smaller.
"""


@dataclass(frozen=True, eq=False)
class Growth:
    """How the leader's log of each partition of the later of two looks differs from the earlier one."""

    earlier: Ints
    """Row of each partition at the earlier look; UNKNOWN where it was not there, or its topic was re-created."""
    appended: Ints
    """Records appended to each partition; UNKNOWN where the number isn't known."""
    grown_bytes: Ints
    same_log: Flags
    """Whether the log is the same with the same first offset, so that `grown_bytes` is known; 0 elsewhere."""

    @property
    def only_grew(self) -> Flags:
        """Whether nothing is seen to have been deleted."""
        return self.same_log & (self.grown_bytes >= 0)


@dataclass(frozen=True, eq=False)
class RecordBytes:
    """What is learned of the partitions of a look, in their order; `records` is 0 where nothing is."""

    partitions: PartitionTable
    growth: Growth
    """Since the look before."""
    grown_bytes: Floats
    records: Floats
    doubted: Ints
    """Looks in a row whose growth may hide a loss; 0 where the newest one was taken as it is."""
    compacts: Flags
    """Whether the log has become smaller while its first offset stayed: that is compaction."""

    @property
    def grown(self) -> Flags:
        """Whether the growth since the look before is what was written.

        Not of a compacted log, once its records are known: any look may hide a loss. Nor of one that loses segments,
        where the growth is doubtful: offsets are read a moment before sizes.
        """
        begins_later = self.partitions.local_start > 0
        hides = (self.compacts & (self.records > 0)) | (begins_later & (self.doubted > 0))
        return self.growth.only_grew & ~hides


def learned(kept: RecordBytes | None, before: Observation, after: Observation) -> RecordBytes:
    """What `kept` knew of the partitions of `before`, and what the growth until `after` shows."""
    growth, partitions = _growth(before, after), after.partitions
    kept = kept or _nothing(before.partitions, growth)
    row = growth.earlier
    had_bytes, had_records = _at(kept.grown_bytes, row), _at(kept.records, row)
    grew = growth.only_grew & (growth.appended > 0)
    share = _share(growth, had_bytes, had_records)
    fell, rose = grew & (share < LEAST_SHARE), grew & (share > 1 / LEAST_SHARE)
    doubted = _at(kept.doubted, row)
    doubts = np.where(fell, doubted + 1, 0)
    accepted = grew & (~fell | (doubts >= DOUBTED_MAX))
    anew = rose | (fell & accepted)
    weight = np.where(accepted, np.where(anew, 0.0, WEIGHT_KEPT), 1.0)
    return RecordBytes(
        partitions,
        growth,
        had_bytes * weight + np.where(accepted, growth.grown_bytes, 0),
        had_records * weight + np.where(accepted, growth.appended, 0),
        np.where(accepted, 0, doubts).astype(np.int64),
        (_at(kept.compacts, row) > 0) | (growth.same_log & (growth.grown_bytes < 0) & (growth.appended >= 0)),
    )


def record_bytes(known: RecordBytes, before: Observation, after: Observation) -> Floats:
    """Bytes of a record written now, by partition of `after`; NaN where neither growth nor a log shows them."""
    rows = np.arange(len(after.partitions))
    mean_after = mean_record_bytes_of(after, rows)
    mean_before = mean_record_bytes_of(before, before.partitions.rows_of(after.partitions.names))
    mean = np.where(np.isnan(mean_after), mean_before, mean_after)
    return np.where(known.records >= ENOUGH_RECORDS, _learned_bytes(known), _else_learned(known, mean))


def stored_record_bytes(known: RecordBytes, after: Observation) -> Floats:
    """Mean bytes of a record in the leader's log, NaN where unknown; of a compacted one, which has gaps, as written."""
    return _else_learned(known, mean_record_bytes_of(after, np.arange(len(after.partitions))))


def mean_record_bytes_of(observation: Observation, rows: Ints) -> Floats:
    """Mean bytes of a record in the leader's log of these rows of its partitions; NaN for an empty or unknown log.

    Compaction leaves gaps in the offsets, so there the figure is too small.
    """
    partitions = observation.partitions
    if not len(partitions):
        return np.full(len(rows), np.nan)
    known = np.maximum(rows, 0)
    start, end = partitions.local_start[known], partitions.end[known]
    size = observation.sizes.on(partitions, known, partitions.leader[known])
    records = end - start
    is_known = (rows >= 0) & (start >= 0) & (end >= 0) & (size > 0) & (records > 0)
    return np.where(is_known, size / np.where(is_known, records, 1), np.nan)


def _nothing(partitions: PartitionTable, growth: Growth) -> RecordBytes:
    """What is known of these partitions before anything was learned."""
    zeros = np.zeros(len(partitions))
    return RecordBytes(partitions, growth, zeros, zeros, zeros.astype(np.int64), zeros.astype(bool))


def _growth(before: Observation, after: Observation) -> Growth:
    """Returns the growth of each partition of `after`, in the order of its table."""
    earlier, later = before.partitions.rows_of_same_topics(after.partitions), after.partitions
    first_end = column_at(before.partitions.end, earlier)
    known = (first_end >= 0) & (later.end >= first_end)
    first = before.sizes.on(before.partitions, earlier, later.leader)
    last = after.sizes.on(later, np.arange(len(later)), later.leader)
    same_log = (earlier >= 0) & (column_at(before.partitions.leader, earlier) == later.leader)
    same_log &= (later.local_start >= 0) & (column_at(before.partitions.local_start, earlier) == later.local_start)
    same_log &= (first >= 0) & (last >= 0)
    appended = np.where(known, later.end - first_end, UNKNOWN)
    return Growth(earlier, appended, np.where(same_log, last - first, 0), same_log)


def _else_learned(known: RecordBytes, mean: Floats) -> Floats:
    """The mean, but where a log is compacted and something was learned."""
    return np.where(known.compacts & (known.records > 0), _learned_bytes(known), mean)


def _learned_bytes(known: RecordBytes) -> Floats:
    return np.where(known.records > 0, known.grown_bytes / np.where(known.records > 0, known.records, 1), np.nan)


def _share(growth: Growth, had_bytes: Floats, had_records: Floats) -> Floats:
    """Bytes of a record in this growth by those learned before; 1 where either rests on too few records."""
    enough = (growth.appended >= ENOUGH_RECORDS) & (had_records >= ENOUGH_RECORDS) & (had_bytes > 0)
    expected = np.where(enough, had_bytes * growth.appended / np.where(enough, had_records, 1), 1)
    return np.where(enough, growth.grown_bytes / expected, 1.0)


def _at(column: npt.NDArray[np.generic], rows: Ints) -> Floats:
    """The column's value of each row; 0 where there is none."""
    values = column.astype(np.float64)
    return np.where(rows >= 0, values[np.maximum(rows, 0)], 0.0) if len(values) else np.zeros(len(rows))
