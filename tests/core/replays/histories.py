"""Small recorded histories whose figures can be checked by head."""

from collections.abc import Sequence

import numpy as np

from assignor_core.model import RATE_KEYS
from assignor_core.replays.history import BYTES_IN_AT, HOUR_MS, HistoryBroker, RecordedHistory

START_MS = 494_000 * HOUR_MS
MB = 1e6
SIZE_BYTES = 6e9


def history(
    placed: Sequence[tuple[int, ...]],
    *,
    hours: int = 6,
    bytes_in: Sequence[float] | None = None,
    racks: str | None = None,
    brokers: int = 0,
    size_bytes: float = SIZE_BYTES,
) -> RecordedHistory:
    """Topic t with these replicas; each partition takes 1 MB/s or its own rate in all hours. `racks`: a letter each."""
    count = brokers or max(broker for replicas in placed for broker in replicas)
    rates = np.zeros((hours, len(placed), len(RATE_KEYS)))
    rates[:, :, BYTES_IN_AT] = np.array(bytes_in or [1.0] * len(placed)) * MB
    return RecordedHistory(
        "c",
        tuple(HistoryBroker(number, racks[number - 1] if racks else None) for number in range(1, count + 1)),
        tuple(("t", number) for number in range(len(placed))),
        tuple(placed),
        np.full(len(placed), size_bytes),
        tuple(START_MS + hour * HOUR_MS for hour in range(hours)),
        rates,
    )


def skewed() -> RecordedHistory:
    """Of twelve partitions broker 1 leads six, each of the other two three: 1.5 times the mean."""
    return history([(1,)] * 6 + [(2,)] * 3 + [(3,)] * 3)
