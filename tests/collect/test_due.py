"""Replicas and groups that stay the same are reported less often, and the windows are as if each look had been."""

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.collect.group_table import GroupTable, GroupView, Owner
from streaming.collect.partition_table import UNKNOWN, PartitionTable, ints
from streaming.collect.rates import ReplicaRateTable
from streaming.collect.reports import (
    DueRates,
    HeldRates,
    SomeGroups,
    all_of,
    consumer_lag_records,
    due_groups,
    due_rates,
    replica_records,
)
from streaming.collect.sample import ClusterSample
from streaming.pipeline.sums import WEIGHT_WINDOWS, Sums, windows
from tests.collect.by_row import PartitionView, partition_table, size_table

WINDOW_MS, LOOK_MS = 60, 10
RATES = ("bytes_in_per_sec", "bytes_out_per_sec", "messages_in_per_sec")
SUMS = Sums(
    keys=("kafka_cluster", "broker", "topic", "partition"), weighted=RATES, maxima=RATES[:1],
    newest=("role", "size_bytes", "remote_records", "remote_size_bytes", "out_of_sync_replicas"), oldest=(),
)  # fmt: skip
SCHEMA = pa.schema(
    [("event_time_ms", pa.int64()), ("interval_ms", pa.int64()), ("kafka_cluster", pa.string())]
    + [("broker", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()), ("role", pa.string())]
    + [(name, pa.float64()) for name in RATES]
    + [(name, pa.int64()) for name in ("size_bytes", "remote_records", "remote_size_bytes", "out_of_sync_replicas")]
)
Figures = tuple[bool, float | None, int]
"""(Leads, rate, size) of one replica; of size 8 a part is in remote storage, and a replica is out of sync."""


def table(figures: dict[int, Figures]) -> ReplicaRateTable:
    """One replica of a partition each, on broker 1 or 2 in turn, by the number of the partition."""
    view = {("t", number): PartitionView("id", 1, (1 + number % 2,)) for number in figures}
    rows = sorted((1 + number % 2, place, *figures[number]) for place, number in enumerate(sorted(figures)))
    remote = ints(40 if row[4] == 8 else UNKNOWN for row in rows)
    rate = np.array([np.nan if row[3] is None else row[3] for row in rows], dtype=np.float64)
    return ReplicaRateTable(
        partition_table(view), ints(row[0] for row in rows), ints(row[1] for row in rows),
        np.array([row[2] for row in rows], dtype=bool), rate, rate, rate, ints(row[4] for row in rows), remote,
        remote, ints(row[4] - 7 for row in rows),
    )  # fmt: skip


def values(due: Sequence[DueRates]) -> list[bytes]:
    return [value for one in due for _, value in replica_records("c", one)]


def rows_of_windows(records: list[bytes]) -> list[dict[str, object]]:
    """What the pipeline makes of them, without what tells how many samples there were."""
    samples = pa.Table.from_pylist([json.loads(record) for record in records], schema=SCHEMA)
    rows = windows(samples, SUMS, WINDOW_MS).drop_columns(["sample_count", "first_event_time_ms"]).to_pylist()
    return sorted(rows, key=lambda row: (row["last_event_time_ms"], row["partition"], row["broker"]))


FIGURES = st.tuples(st.booleans(), st.sampled_from([None, 0.0, 0.0, 0.0, 5.0]), st.sampled_from([7, 7, 7, 8]))
LOOKS = st.lists(
    st.tuples(
        # Mostly on time, at times so late that a window, or two, passed meanwhile.
        st.sampled_from([LOOK_MS] * 6 + [LOOK_MS - 1, LOOK_MS + 3, 45, 130]),
        st.dictionaries(st.integers(0, 2), FIGURES),
    ),
    max_size=25,
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(LOOKS)
def test_windows_are_those_of_reporting_every_look(looks: list[tuple[int, dict[int, Figures]]]) -> None:
    held: HeldRates | None = None
    everything, reported = list[bytes](), list[bytes]()
    time_ms = 1_000
    steady: dict[int, Figures] = {}
    for passed_ms, figures in looks:
        steady = steady | figures  # those that are not drawn stay as they were
        time_ms += passed_ms
        rates = table(steady)
        everything += values([all_of(rates, time_ms, passed_ms)])
        due, held = due_rates(held, rates, time_ms, passed_ms, window_ms=WINDOW_MS, next_ms=time_ms + LOOK_MS)
        reported += values(due)
        assert all((one.interval_ms <= max(WEIGHT_WINDOWS * WINDOW_MS, passed_ms)).all() for one in due)
    if held is not None:  # what a collector that goes on would report next
        time_ms += 10 * WINDOW_MS
        rates = table({number: (leads, 99.0, size) for number, (leads, _, size) in steady.items()})
        everything += values([all_of(rates, time_ms, LOOK_MS)])
        reported += values(due_rates(held, rates, time_ms, LOOK_MS, window_ms=WINDOW_MS, next_ms=time_ms)[0])
    assert rows_of_windows(reported) == rows_of_windows(everything)
    assert len(reported) <= len(everything)


def test_an_idle_replica_is_reported_once_a_window_and_one_that_changes_at_each_look() -> None:
    held: HeldRates | None = None
    sent = []
    for look in range(18):
        time_ms = look * LOOK_MS
        rates = table({0: (True, 0.0, 7), 1: (True, float(look), 7)})
        due, held = due_rates(held, rates, time_ms, LOOK_MS, window_ms=WINDOW_MS, next_ms=time_ms + LOOK_MS)
        sent += [(json.loads(value)["partition"], time_ms, json.loads(value)["interval_ms"]) for value in values(due)]
    assert [row[1:] for row in sent if row[0] == 0] == [(0, 10), (50, 50), (110, 60), (170, 60)]
    assert len([row for row in sent if row[0] == 1]) == 18


def test_a_replica_that_goes_leaves_what_was_held_back() -> None:
    _, held = due_rates(None, table({0: (True, 0.0, 7)}), 0, 10, window_ms=60, next_ms=10)
    _, held = due_rates(held, table({0: (True, 0.0, 7)}), 10, 10, window_ms=60, next_ms=20)
    due, _ = due_rates(held, table({}), 20, 10, window_ms=60, next_ms=30)
    assert [(json.loads(value)["event_time_ms"], json.loads(value)["interval_ms"]) for value in values(due)] == [
        (10, 10)
    ]


LAG_SUMS = Sums(
    keys=("kafka_cluster", "group", "topic", "partition"), weighted=(), maxima=("lag_records",),
    newest=("committed_offset", "log_end_offset", "log_start_offset", "member_id", "group_state"),
    oldest=("committed_offset", "log_end_offset"),
)  # fmt: skip
LAG_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("event_time_ms", "committed_offset", "log_end_offset", "log_start_offset")]
    + [("lag_records", pa.int64()), ("partition", pa.int32())]
    + [(name, pa.string()) for name in ("kafka_cluster", "group", "topic", "member_id", "group_state")]
)
SMALL = st.integers(0, 1)


@st.composite
def seen_groups(draw: st.DrawFn) -> tuple[PartitionTable, GroupTable]:
    """Two partitions that two groups read, in few states, so that looks often show the same."""
    views = {
        ("t", number): PartitionView("id", 1, (1,), frozenset(), 0, 10 + draw(SMALL))
        for number in range(1, 1 + draw(st.integers(1, 2)))
    }
    owner = Owner(f"m{draw(SMALL)}", "c")
    groups = {
        name: GroupView(
            draw(st.sampled_from(("Stable", "Stable", "Empty"))), {("t", 1): draw(SMALL)},
            {("t", 2): owner} if draw(st.booleans()) else {},
        )
        for name in draw(st.sets(st.sampled_from(("g", "h")), min_size=1))
    }  # fmt: skip
    return partition_table(views), GroupTable(groups)


def rows_of_lag_windows(records: list[bytes]) -> list[dict[str, object]]:
    """What the pipeline makes of them, the times of the first and the last sample too."""
    samples = pa.Table.from_pylist([json.loads(record) for record in records], schema=LAG_SCHEMA)
    rows = windows(samples, LAG_SUMS, WINDOW_MS).drop_columns(["sample_count"]).to_pylist()
    return sorted(rows, key=lambda row: (row["last_event_time_ms"], row["group"], row["partition"]))


PASSED = st.sampled_from([LOOK_MS] * 6 + [LOOK_MS - 1, LOOK_MS + 3, 45, 130])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PASSED, st.none() | seen_groups()), max_size=20))
def test_windows_of_groups_are_those_of_reporting_every_look(
    looks: list[tuple[int, tuple[PartitionTable, GroupTable] | None]],
) -> None:
    held: SomeGroups | None = None
    everything, reported = list[bytes](), list[bytes]()
    time_ms, steady = 1_000, (partition_table({}), GroupTable({}))
    for passed_ms, drawn in [*looks, (10 * WINDOW_MS, None)]:
        steady, time_ms = drawn or steady, time_ms + passed_ms
        seen = ClusterSample(time_ms, {}, steady[0], size_table({}), {}, {}, steady[1])
        everything += [value for _, value in consumer_lag_records("c", seen)]
        due, held = due_groups(held, seen, window_ms=WINDOW_MS, next_ms=time_ms + LOOK_MS)
        reported += [value for one in due for _, value in consumer_lag_records("c", one.seen, one.names)]
    assert rows_of_lag_windows(reported) == rows_of_lag_windows(everything)


def test_an_idle_group_is_reported_at_the_first_and_the_last_look_of_a_window() -> None:
    partitions = partition_table({("t", 0): PartitionView("id", 1, (1,), frozenset(), 0, 10)})
    held: SomeGroups | None = None
    sent = []
    for look in range(12):
        views = {
            "idle": GroupView("Empty", {("t", 0): 5}, {}, read_ms=look),
            "busy": GroupView("Stable", {("t", 0): look}, {}),
        }
        seen = ClusterSample(look * LOOK_MS, {}, partitions, size_table({}), {}, {}, GroupTable(views))
        due, held = due_groups(held, seen, window_ms=WINDOW_MS, next_ms=(look + 1) * LOOK_MS)
        sent += [(name, look) for one in due for name in sorted(one.names)]
    assert [look for name, look in sent if name == "idle"] == [0, 5, 6, 11]
    assert [look for name, look in sent if name == "busy"] == list(range(12))
