"""How far groups were behind at the first and at the last sample of some windows, read one window at a time.

Owns which sample is which; what is read to catch up the core says. A window of a large cluster has half a million rows:
of all of them together a few numbers a partition are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from assignor_core.lag.catching_up import LagSpan
from assignor_core.lag.history import Floats, Ints
from streaming import tables
from streaming.contract.records import PARTITION_MAX
from streaming.control.windows import WindowTables
from streaming.views.group_columns import OFFSETS, LagWindow, PartitionKeys, windows_of

TABLE, TIME = "group_lag", "window_start"


@tables.unfit_as_unavailable(TABLE)
def read_fallen_lags(
    reader: tables.TableReader, window_tables: WindowTables, first_ms: int, last_ms: int
) -> list[LagSpan]:
    """Partitions of groups whose lag has fallen in the windows that began from `first_ms` to `last_ms`, both included.

    From the first to the last sample whose lag is known. Raises TableUnavailable.
    """
    names, lags = PartitionKeys.empty(), _Lags.of(np.zeros(0, dtype=np.int64))
    for rows in _windows(reader, window_tables, first_ms, last_ms):
        for window, _ in windows_of(rows, names, [lags.keys]):
            lags = lags.after(window)
    pa.default_memory_pool().release_unused()
    # Of 500,000 partitions most do not catch up: no object for each of those.
    return lags.fallen(names)


def _windows(
    reader: tables.TableReader, window_tables: WindowTables, first_ms: int, last_ms: int
) -> Iterator[pa.Table]:
    """The rows of one window after the other, oldest first; of several where `pipeline.window_ms` was shorter."""
    own = tables.of_cluster(window_tables.kafka_cluster) & tables.at_most("partition", PARTITION_MAX)
    for begin_ms in range(first_ms, last_ms + 1, window_tables.window_ms):
        end_ms = min(begin_ms + window_tables.window_ms, last_ms + 1)
        within = tables.at_least(TIME, tables.utc(begin_ms)) & tables.below(TIME, tables.utc(end_ms))
        yield reader.encoded(TABLE, columns=OFFSETS, where=own & within)


@dataclass(frozen=True, slots=True)
class _Lags:
    """Lag in records and time of two samples of each partition; NaN where no lag is known yet."""

    keys: Ints
    """Keys of the partitions, sorted."""
    first_records: Floats
    first_ms: Floats
    last_records: Floats
    last_ms: Floats

    @classmethod
    def of(cls, keys: Ints) -> "_Lags":
        """Returns the lags of partitions of which nothing is known."""
        return cls(keys, *(np.full(len(keys), np.nan) for _ in fields(cls)[1:]))

    def after(self, window: LagWindow) -> "_Lags":
        """Returns the lags with the samples of the next window."""
        lags = self if window.keys is self.keys else self._with_keys(window.keys)
        places = np.arange(len(lags.keys)) if window.keys is lags.keys else np.searchsorted(lags.keys, window.keys)
        # Commit, log end and time are always those of one sample: a sample may lack the commit that the next one has.
        for time_ms, committed, log_end in zip(*window.points(slice(None)), strict=True):
            lags._take(places, np.maximum(log_end - committed, 0.0), time_ms)
        return lags

    def fallen(self, names: PartitionKeys) -> list[LagSpan]:
        """Returns the spans of the partitions whose lag has fallen."""
        fallen = np.flatnonzero(self.first_records > self.last_records)
        _, topics, partitions = names.texts(self.keys[fallen])
        columns = (self.first_records, self.last_records, self.last_ms - self.first_ms)
        values = (column[fallen].tolist() for column in columns)
        return [LagSpan(*row) for row in zip(topics.to_pylist(), partitions.to_pylist(), *values, strict=True)]

    def _with_keys(self, keys: Ints) -> "_Lags":
        """Itself if it has all of them."""
        union = np.union1d(self.keys, keys) if len(self.keys) else keys
        if len(union) == len(self.keys):
            return self
        wider, places = _Lags.of(union), np.searchsorted(union, self.keys)
        for field in fields(self)[1:]:
            getattr(wider, field.name)[places] = getattr(self, field.name)
        return wider

    def _take(self, places: Ints, records: Floats, time_ms: Floats) -> None:
        """A later sample of the partitions at these places."""
        known = ~np.isnan(records)
        places, records, time_ms = places[known], records[known], time_ms[known]
        self.last_records[places], self.last_ms[places] = records, time_ms
        new = np.isnan(self.first_records[places])
        self.first_records[places[new]], self.first_ms[places[new]] = records[new], time_ms[new]
