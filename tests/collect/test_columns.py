"""Rates by columns mix no partitions, and records are the text that JSON makes of them."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

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
from tests.collect.by_row import (
    PartitionView,
    ReplicaRates,
    partition_table,
    partition_views,
    rates_of,
    size_table,
    sizes_of,
)
from tests.collect.sample_records import byte_rate_records

A = TypeVar("A")
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


def alone(seen: ClusterSample, topic: str) -> ClusterSample:
    """What a cluster would have shown that has this topic only."""

    def kept(rows: Mapping[PartitionKey, A]) -> dict[PartitionKey, A]:
        return {key: row for key, row in rows.items() if key[0] == topic}

    groups = {
        name: replace(view, committed=kept(view.committed), owners=kept(view.owners), targets={}, share=None)
        for name, view in seen.groups.items()
    }
    sizes = {key: size for key, size in sizes_of(seen.sizes).items() if key[1][0] == topic}
    partitions = partition_table(kept(partition_views(seen.partitions)))
    return replace(seen, partitions=partitions, sizes=size_table(sizes), groups=GroupTable(groups))


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(observations(0), st.sampled_from((0, 2, 10_000)).flatmap(observations))
def test_rates_of_a_topic_are_those_that_it_has_alone(before: ClusterSample, after: ClusterSample) -> None:
    """Columns of all partitions mix no rows; `test_rates.py` has what the rates of one partition must be."""
    made = replica_rates(before, after)
    totals = broker_rates(before, after, made)
    of_topics = []
    for topic in sorted({topic for topic, _ in (*KEYS, ("stray", 0))}):
        seen = alone(before, topic), alone(after, topic)
        own = replica_rates(*seen)
        whole = {key: row for key, row in rates_of(made).items() if key[1][0] == topic}
        assert rates_of(own).keys() == whole.keys()
        for key, row in rates_of(own).items():
            for name in ReplicaRates.__slots__:
                if name != "bytes_out" or not (made.followers_serve or own.followers_serve):
                    assert is_same(getattr(whole[key], name), getattr(row, name)), (key, name)
        of_topics.append(broker_rates(*seen, own))
    for broker, total in totals.items():
        for name, rate in total.items():
            parts = [rates[broker][name] for rates in of_topics]
            known = [part for part in parts if part is not None]
            if after.counters_since(before, broker):
                assert set(parts) == {rate}
            elif len(known) == len(parts) and name != BYTES_OUT.name:
                assert is_same(rate, sum(known)), (broker, name)


def is_same(value: Any, expected: Any) -> bool:
    if not (isinstance(value, float) and isinstance(expected, float)):
        return bool(value == expected)
    return math.isclose(value, expected, rel_tol=1e-12)


@pytest.mark.long
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


@pytest.mark.long
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
