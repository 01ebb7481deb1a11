"""Bounds of the bytes out of brokers in the windows that the trigger looks at, where they are not known."""

from collections.abc import Sequence
from dataclasses import replace

from assignor_core.load_history.windows import ClosedWindow
from assignor_core.resources import Resource
from streaming import tables
from streaming.control.windows import WindowTables
from streaming.tables import TableReader
from streaming.views.broker_windows import BOUNDED_BY, Bounds, bounds_of


class BytesOutBounds:
    """Reads the partitions of a window once, and only of windows with brokers that need it. Not for two threads."""

    def __init__(self, window_tables: WindowTables) -> None:
        self._tables = window_tables
        self._known: dict[int, Bounds] = {}

    def added(self, windows: Sequence[ClosedWindow]) -> tuple[ClosedWindow, ...]:
        """The windows with the bounds of brokers whose bytes out are unknown. Raises TableUnavailable."""
        if self._tables.readers_max is None:
            return tuple(windows)
        reader = TableReader(self._tables.root)
        known = {row.start_ms: self._known.get(row.start_ms) for row in windows if row.reads_unknown}
        self._known = {
            start_ms: self._read(reader, start_ms) if row is None else row for start_ms, row in known.items()
        }
        return tuple(self._with_bounds(window) if window.reads_unknown else window for window in windows)

    def _with_bounds(self, window: ClosedWindow) -> ClosedWindow:
        known = self._known[window.start_ms]
        bounds = {
            row: (low, high) for row, (low, high) in known.items() if row in window.reads_unknown and high is not None
        }
        return replace(window, bounds={Resource.BYTES_OUT: bounds})

    def _read(self, reader: TableReader, start_ms: int) -> Bounds:
        where = (
            tables.of_cluster(self._tables.kafka_cluster)
            & tables.equal("window_start", tables.utc(start_ms))
            & tables.equal("role", "leader")
        )
        return bounds_of(reader.encoded("partition_load", columns=BOUNDED_BY, where=where), self._tables.readers_max)
