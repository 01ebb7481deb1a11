"""Rates and records by columns are those of one object for each partition, as `rates_by_object` makes them."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.live import NO_LEADER, PartitionKey, ReplicaKey
from streaming.cluster.described_groups import ShareOffsets
from streaming.collect.group_table import GroupTable, GroupView, Owner
from streaming.collect.rates import broker_rates, replica_rates
from streaming.collect.reports import consumer_lag_records
from streaming.collect.sample import BrokerCounters, ClusterSample, LogDirs
from streaming.contract.rates import BYTES_OUT, RATES
from tests.collect import rates_by_object
from tests.collect.by_row import PartitionView, partition_table, partition_views, rates_of, size_table
from tests.collect.sample_records import byte_rate_records

BROKERS = (1, 2, 7)
KEYS: tuple[PartitionKey, ...] = (("a", 0), ("a", 1), ("a", 10), ('b"ö', 0), ("c", 3))
NEAR = st.integers(0, 5)
"""Small, so that looks agree in some figures and not in others."""
OFFSET = st.one_of(st.none(), NEAR)


@st.composite
def drawn_views(draw: st.DrawFn, topic: str) -> PartitionView:
    replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)))
    return PartitionView(
        f"{topic}-{draw(st.integers(0, 1) if topic == 'c' else st.just(0))}",
        draw(st.sampled_from((*replicas, NO_LEADER))),
        replicas,
        frozenset(draw(st.sets(st.sampled_from(replicas), max_size=1))),
        draw(OFFSET),
        draw(OFFSET),
        draw(OFFSET),
        draw(st.integers(0, 2)),
    )


@st.composite
def share_offsets(draw: st.DrawFn) -> ShareOffsets:
    starts = draw(st.dictionaries(st.sampled_from(KEYS), NEAR))
    return ShareOffsets(starts, {}, tuple(key for key in KEYS if key not in starts)[:1])


@st.composite
def group_views(draw: st.DrawFn) -> GroupView:
    members = [Owner("m-0", "cliënt"), Owner("m-1", "cliënt", "i", 'r"', "t.*", "10.0.0.1")]
    return GroupView(
        draw(st.sampled_from(("Stable", "Empty"))),
        draw(st.dictionaries(st.sampled_from((*KEYS, ("unknown", 1))), NEAR)),
        draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(members))),
        draw(st.one_of(st.none(), NEAR)),
        draw(st.sampled_from((None, "classic", "consumer"))),
        draw(st.one_of(st.none(), NEAR)),
        draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(("m-0", "m-1")), max_size=2)),
        draw(st.sampled_from((None, "uniform"))),
        draw(st.one_of(st.none(), NEAR)),
        share=draw(st.one_of(st.none(), share_offsets())),
        read_ms=draw(st.one_of(st.none(), st.integers(1, 20_000))),
    )


@st.composite
def counters(draw: st.DrawFn) -> BrokerCounters:
    totals = {rate.stem: float(draw(NEAR)) for rate in RATES}
    return BrokerCounters(totals, draw(st.dictionaries(st.sampled_from(("a", "c")), NEAR.map(float))))


@st.composite
def observations(draw: st.DrawFn, time_ms: int) -> ClusterSample:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    replicas: list[ReplicaKey] = [(broker, key) for broker in BROKERS for key in (*KEYS, ("stray", 0))]
    ids = {key[0]: draw(drawn_views(key[0])).topic_id for key in keys}
    views = {key: draw(drawn_views(key[0])) for key in keys}
    views = {key: PartitionView(ids[key[0]], *values(view)[1:]) for key, view in views.items()}
    parts = [(part, broker) for part in ("offsets", "sizes", "counters") for broker in BROKERS]
    return ClusterSample(
        time_ms,
        draw(st.dictionaries(st.sampled_from(BROKERS), st.sampled_from((None, "r")))),
        partition_table(views),
        size_table(draw(st.dictionaries(st.sampled_from(replicas), NEAR))),
        draw(st.dictionaries(st.sampled_from(BROKERS), st.builds(LogDirs, NEAR, OFFSET))),
        draw(st.dictionaries(st.sampled_from(BROKERS), counters())),
        GroupTable(draw(st.dictionaries(st.sampled_from(("g", "h\\")), group_views()))),
        draw(st.dictionaries(st.sampled_from(BROKERS), NEAR)),
        draw(st.dictionaries(st.sampled_from(parts), st.integers(time_ms, time_ms + 3))),
        last_stable=draw(st.dictionaries(st.sampled_from(KEYS), NEAR)),
        cleanup_policies=draw(
            st.dictionaries(st.sampled_from(("a", 'b"ö')), st.sampled_from(("compact", "compact,delete")))
        ),
    )


def values(view: PartitionView) -> tuple[Any, ...]:
    return (
        view.topic_id, view.leader, view.replicas, view.adding_replicas, view.log_start_offset, view.log_end_offset,
        view.local_log_start_offset,
    )  # fmt: skip


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(observations(0), st.sampled_from((0, 2, 10_000)).flatmap(observations))
def test_rates_are_those_of_one_object_a_partition(before: ClusterSample, after: ClusterSample) -> None:
    made, expected = replica_rates(before, after), rates_by_object.replica_rates(before, after)
    assert rates_of(made).keys() == expected.keys()
    for key, rates in expected.items():
        assert rates_of(made)[key].role == rates.role
        for name in ("size_bytes", "remote_records", "remote_size_bytes", "out_of_sync"):
            assert getattr(rates_of(made)[key], name) == getattr(rates, name), (key, name)
        for name in ("bytes_in", "messages_in"):
            assert is_same(getattr(rates_of(made)[key], name), getattr(rates, name)), (key, name)
        if not made.followers_serve:  # else test_follower_reads.py has what replicas serve
            assert is_same(rates_of(made)[key].bytes_out, rates.bytes_out), key
    totals, expected_totals = broker_rates(before, after, made), rates_by_object.broker_rates(before, after, expected)
    assert totals.keys() == expected_totals.keys()
    for broker, row in expected_totals.items():
        assert totals[broker].keys() == row.keys()
        known = [name for name in row if not (made.followers_serve and name == BYTES_OUT.name)]
        assert all(is_same(totals[broker][name], row[name]) for name in known), broker


def is_same(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, rel_tol=1e-12)


@settings(max_examples=12, deadline=None)
@given(observations(0), st.sampled_from((0, 2)).flatmap(observations))
def test_records_are_the_text_that_json_makes_of_them(before: ClusterSample, after: ClusterSample) -> None:
    rates = replica_rates(before, after)
    records = list(byte_rate_records('clü"ster', before, after, rates, broker_rates(before, after, rates)))
    rows = [json.loads(value) for _, value in records]
    assert [value for _, value in records] == [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    assert [key for key, _ in records] == [str(row["broker"]).encode() for row in rows]
    shown = {(row["broker"], (row["topic"], row["partition"])): row for row in rows if row["topic"] is not None}
    assert shown.keys() == rates_of(rates).keys()
    for key, rate in rates_of(rates).items():
        assert (shown[key]["role"], shown[key]["size_bytes"]) == (rate.role, rate.size_bytes)
        assert [shown[key].get(name) for name in ("remote_records", "remote_size_bytes", "out_of_sync_replicas")] == [
            rate.remote_records, rate.remote_size_bytes, rate.out_of_sync
        ]  # fmt: skip
        assert (shown[key]["bytes_in_per_sec"], shown[key]["bytes_out_per_sec"]) == (rate.bytes_in, rate.bytes_out)


def keys_of(view: GroupView) -> set[PartitionKey]:
    return {*view.committed, *view.owners, *view.targets, *(view.share.partitions if view.share else ())}


@settings(max_examples=12, deadline=None)
@given(observations(10))
def test_records_of_groups_have_what_was_read(seen: ClusterSample) -> None:
    records = list(consumer_lag_records("c", seen))
    rows = [json.loads(value) for _, value in records]
    assert [value for _, value in records] == [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    assert [key for key, _ in records] == [row["group"].encode() for row in rows]
    keys = [(row["group"], row["topic"], row["partition"]) for row in rows]
    assert sorted(keys) == sorted((name, *key) for name, view in seen.groups.items() for key in keys_of(view))
    for row in rows:
        key, view = (row["topic"], row["partition"]), seen.groups[row["group"]]
        assert row["committed_offset"] == view.committed.get(key)
        owner = view.owners.get(key)
        assert (row["member_id"], row["client_id"]) == ((owner.member_id, owner.client_id) if owner else (None, None))
        assert (row["group_state"], row["generation_id"]) == (view.state, view.generation_id)
        optional = {
            "group_type": view.group_type, "group_members": view.members, "assignor": view.assignor,
            "topology_epoch": view.topology_epoch, "target_member_id": view.targets.get(key),
            "group_instance_id": owner and owner.group_instance_id, "rack_id": owner and owner.rack_id,
            "subscribed_topic_regex": owner and owner.subscribed_topic_regex,
            "client_host": owner and owner.client_host, "last_stable_offset": seen.last_stable.get(key),
            "cleanup_policy": seen.cleanup_policies.get(key[0]),
        }  # fmt: skip
        assert {name: row[name] for name in optional.keys() & row.keys()} == {
            name: value for name, value in optional.items() if value is not None
        }
        partition = partition_views(seen.partitions).get(key)
        assert row["log_end_offset"] == (partition.log_end_offset if partition else None)
        if view.share:
            assert row.get("share_start_offset") == view.share.starts.get(key)
        assert row["log_start_offset"] == (partition.log_start_offset if partition else None)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from(KEYS), NEAR)),
    st.dictionaries(st.sampled_from(KEYS), OFFSET),
)
def test_totals_of_groups(committed: dict[str, dict[PartitionKey, int]], ends: dict[PartitionKey, int | None]) -> None:
    groups = GroupTable({name: GroupView("Stable", rows, {}) for name, rows in committed.items()})
    partitions = partition_table({key: PartitionView("id", 1, (1,), log_end_offset=end) for key, end in ends.items()})
    expected = []
    for _, rows in sorted(committed.items()):
        lags = [max(0, end - offset) for key, offset in rows.items() if (end := ends.get(key)) is not None]
        expected.append((sum(lags), sum(rows.values()) if rows else None))
    assert groups.totals(partitions) == expected
