"""Windows of `group_lag` of any size, as a busy cluster has them: offsets differ by partition, rows are in no order."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PARTITIONS_PER_GROUP = 50
MEMBERS_PER_GROUP = 5
KEEPS_UP, FALLS_BEHIND, HANGS, HAS_ENDED = range(4)
KINDS = (KEEPS_UP,) * 7 + (FALLS_BEHIND, HANGS, HAS_ENDED)
"""Of ten groups in a row."""
SHARE_READ = 0.8
"""What a group that falls behind reads of what is written."""
RETAINED_S = 7 * 86_400
WINDOW_S = 60.0
FIRST_SAMPLE_S, LAST_SAMPLE_S = 3.217, 53.217
SEED = 20_261_122

Ints = NDArray[np.int64]


def lag_columns(groups: int, topics: list[str], window: int, start_ms: int) -> dict[str, Any]:
    """Columns of one window that depend on group and partition; `window` counts from the oldest, which is 0.

    Each group reads one topic of 50 partitions. Groups fall behind, hang and end from the oldest window on.
    """
    fleet = _fleet(groups, len(topics))
    order = np.random.default_rng([SEED, window]).permutation(groups * PARTITIONS_PER_GROUP)
    group, partition = order // PARTITIONS_PER_GROUP, order % PARTITIONS_PER_GROUP
    first, last = (fleet.offsets(order, window * WINDOW_S + at_s) for at_s in (FIRST_SAMPLE_S, LAST_SAMPLE_S))
    member = group * MEMBERS_PER_GROUP + partition % MEMBERS_PER_GROUP
    gone = pa.array(np.array(KINDS)[group % len(KINDS)] == HAS_ENDED)
    names = pa.array(f"group-{number:05d}" for number in range(groups))
    return {
        "group_id": names.take(pa.array(group)), "topic": pa.array(topics).take(pa.array(group % len(topics))),
        "partition": partition,
        "committed_offset": last[0], "committed_offset_first": first[0],
        "log_end_offset": last[1], "log_end_offset_first": first[1],
        "log_start_offset": np.maximum(0, last[1] - (fleet.rate_per_s[order] * RETAINED_S).astype(np.int64)),
        "lag_records": last[1] - last[0], "lag_records_max": np.maximum(last[1] - last[0], first[1] - first[0]),
        "group_state": pa.array(["Stable", "Empty"]).take(gone.cast(pa.int32())),
        "member_id": _but(gone, fleet.members.take(pa.array(member))),
        "client_id": _but(gone, fleet.clients.take(pa.array(member))),
        "first_event_time_ms": start_ms + round(FIRST_SAMPLE_S * 1_000),
        "last_event_time_ms": start_ms + round(LAST_SAMPLE_S * 1_000),
    }  # fmt: skip


def _but(gone: pa.Array, values: pa.Array) -> pa.Array:
    return pa.compute.if_else(gone, pa.scalar(None, values.type), values)


class _Fleet:
    """What stays the same from window to window."""

    def __init__(self, groups: int, topics: int) -> None:
        random = np.random.default_rng(SEED)
        rates = random.lognormal(3.0, 1.2, size=(topics, PARTITIONS_PER_GROUP))
        ends = random.integers(10**6, 10**9, size=(topics, PARTITIONS_PER_GROUP))
        read = np.arange(groups) % topics
        self.rate_per_s = rates[read].ravel()
        self._end = ends[read].ravel()
        self._waits_s = random.uniform(0.0, 4.0, size=groups * PARTITIONS_PER_GROUP)
        self._kind = np.repeat(np.resize(KINDS, groups), PARTITIONS_PER_GROUP)
        numbers = [divmod(number, MEMBERS_PER_GROUP) for number in range(groups * MEMBERS_PER_GROUP)]
        suffixes = random.bytes(16 * len(numbers)).hex()
        self.clients = pa.array(f"consumer-{group}-{member}" for group, member in numbers)
        self.members = pa.array(
            f"consumer-{group}-{member}-{suffixes[32 * place : 32 * place + 32]}"
            for place, (group, member) in enumerate(numbers)
        )

    def offsets(self, rows: Ints, at_s: float) -> tuple[Ints, Ints]:
        """Committed offsets and log ends of these rows, seconds after the oldest window's start."""
        rate, kind, waits_s = self.rate_per_s[rows], self._kind[rows], self._waits_s[rows]
        read_until_s = np.select(
            [kind == KEEPS_UP, kind == FALLS_BEHIND], [at_s - waits_s, SHARE_READ * at_s - waits_s], -waits_s
        )
        committed = self._end[rows] + (rate * read_until_s).astype(np.int64)
        return committed, self._end[rows] + (rate * at_s).astype(np.int64)


@cache
def _fleet(groups: int, topics: int) -> _Fleet:
    return _Fleet(groups, topics)


def rates_of(partitions: int, window: int) -> Mapping[str, NDArray[np.float64]]:
    """Factors of one window on the rates of so many partitions, near 1: no two samples of a real load are equal."""
    random = np.random.default_rng([SEED, window, 1])
    return {name: random.uniform(0.95, 1.05, size=partitions) for name in ("bytes_in", "bytes_out", "messages_in")}
