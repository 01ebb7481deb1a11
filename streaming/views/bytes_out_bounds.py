"""Bounds of the bytes out of brokers that lead partitions of which nobody knows what consumers read.

At least, consumers read what groups commit. No request shows a consumer that commits nothing, so Kafka itself has no
upper bound. One follows from an assumption, `trigger.readers_without_commits_max`: at most so many consumers read a
partition that no group commits for, and each reads what is written, and the whole log again in `WHOLE_LOG_MS` at the
fastest. That is what a group may count as reading, too (`streaming/collect/bytes_out.py`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignor_core.resources import Resource
from streaming.contract.rates import BYTES_IN, BYTES_OUT, WHOLE_LOG_MS
from streaming.contract.records import REMOTE_RECORDS, REMOTE_SIZE_BYTES, SIZE_BYTES
from streaming.views.broker_windows import Row

COLUMNS = (
    "broker", BYTES_IN.name, BYTES_OUT.name, SIZE_BYTES.name, REMOTE_RECORDS.name, REMOTE_SIZE_BYTES.name,
)  # fmt: skip
"""What `bounds_of` looks at in rows of `partition_load`."""
Bounds = Mapping[int, tuple[float, float | None]]
"""By broker."""


def reads_unknown(window: Sequence[Row]) -> frozenset[int]:
    """Brokers that report what clients write, and of which nobody knows all that consumers read.

    None where some broker of the window knows its replication traffic: the sums of the others lack it, and bounds of
    what consumers read do not compare with the first.
    """
    clients, replication = Resource.BYTES_OUT.figures
    if any(row[replication] is not None for row in window):
        return frozenset()
    return frozenset(row["broker"] for row in window if row[clients] is None and row[BYTES_IN.name] is not None)


def bounds_of(led: pa.Table, readers_max: int | None) -> Bounds:
    """(Least, most) bytes/s that consumers read from each broker, of the rows that leaders have in one window.

    The most is None if what is written to an unread partition, or the size of its log, is unknown, and of all brokers
    if nothing is assumed of readers (`readers_max` is None).
    """
    if not led.num_rows:
        return {}
    written, read, size, remote_records, remote_size = (_floats(led, name) for name in COLUMNS[1:])
    remote = np.where(np.isnan(remote_records), 0.0, remote_size)
    by_readers = (np.nan if readers_max is None else readers_max) * (written + (size + remote) * 1000 / WHOLE_LOG_MS)
    if readers_max == 0:
        by_readers = np.zeros(len(read))
    brokers, place = np.unique(led["broker"].to_numpy(), return_inverse=True)
    least = np.bincount(place, np.nan_to_num(read, nan=0.0), len(brokers))
    most = np.bincount(place, np.where(np.isnan(read), by_readers, read), len(brokers))
    found = zip(brokers.tolist(), least.tolist(), most.tolist(), strict=True)
    return {broker: (low, None if np.isnan(high) else high) for broker, low, high in found}


def _floats(rows: pa.Table, name: str) -> npt.NDArray[np.float64]:
    """NaN where it is unknown."""
    return np.asarray(rows[name].cast(pa.float64()).to_numpy(), dtype=np.float64)
