"""Topics, brokers and partitions with their replicas, and what a search finds, by HTTP."""

from typing import Any

import pytest

from streaming.control.intents import note_intent
from streaming.settings import Settings
from streaming.tables import utc
from streaming.views.intents import Intent
from tests.serve.asking import app_over, get
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

START_MS = NOW_MS - NOW_MS % WINDOW_MS - 3 * WINDOW_MS


@pytest.fixture
def settings(root: str) -> Settings:
    """Partition orders/1 has a replica less than the other; nobody leads returns/0 in the window."""
    synthetic = Synthetic(root)
    synthetic.broker_load(START_MS, {1: 3e6, 2: 1e6, 3: 1e6}, rack="a")
    rows = [
        (1, "Orders", 0, "leader", 3e6), (2, "Orders", 0, "follower", 3e6), (3, "Orders", 0, "follower", 3e6),
        (2, "Orders", 1, "leader", 1e6), (1, "Orders", 1, "follower", 1e6),
        (2, "returns", 0, "follower", 1e6),
    ]  # fmt: skip
    synthetic.partition_load(START_MS, rows)
    synthetic.partition_load(START_MS, [(3, "payments", 0, "leader", 0.0)], bytes_in_per_sec=None)
    synthetic.group_lag(START_MS, [("Orders-readers", "Orders", 0, 5, 9), ("audit", "payments", 0, 9, 9)])
    return settings_for(root)


def read(settings: Settings, path: str, **query: Any) -> Any:
    answer = get(app_over(settings), f"/api/v1/{path}", **query)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def test_a_topic_has_its_replicas_and_what_its_leaders_add_up_to(settings: Settings) -> None:
    rows = {row.pop("topic"): row for row in read(settings, "topics")}
    orders = rows["Orders"]
    assert (orders["partitions"], orders["replicas"], orders["replication_factor"]) == (2, 5, 3)
    assert orders["partitions_with_fewer"] == 1, "a broker that is away reports no replica"
    assert orders["bytes_in_per_sec"] == 4e6
    assert rows["payments"]["bytes_in_per_sec"] is None, "unknown is never 0"
    assert (rows["returns"]["replicas"], rows["returns"]["size_bytes"]) == (1, None)


def test_what_is_not_in_sync_is_counted_and_what_nobody_shows_is_unknown(settings: Settings) -> None:
    """A partition without a leader is known by its followers; of a leader that has gone the newest row counts."""
    synthetic = Synthetic(settings.storage.tables, _commits=100)
    later = START_MS + WINDOW_MS
    synthetic.broker_load(later, {1: 3e6, 2: 1e6, 3: 1e6}, address="b:9092")
    for rows, lacking in (
        ([(1, "Orders", 0, "leader", 3e6), (2, "Orders", 2, "leader", 3e6)], 0),
        ([(2, "Orders", 1, "leader", 1e6)], 1),
        ([(1, "Orders", 3, "follower", 0.0), (2, "Orders", 3, "follower", 0.0)], 2),
        ([(2, "Orders", 0, "follower", 3e6), (3, "payments", 0, "leader", 0.0)], None),
    ):
        synthetic.partition_load(later, rows, out_of_sync_replicas=lacking)
    synthetic.partition_load(
        later, [(3, "Orders", 2, "leader", 3e6)], out_of_sync_replicas=2, last_event_time_ms=later + 1
    )
    topics = {row["topic"]: row["partitions_under_replicated"] for row in read(settings, "topics")}
    assert topics == {"Orders": 2, "payments": None}
    partitions = {(row["topic"], row["partition"]): row["out_of_sync_replicas"] for row in read(settings, "partitions")}
    assert partitions == {("Orders", 0): 0, ("Orders", 1): 1, ("Orders", 2): 0, ("payments", 0): None}


def test_a_broker_has_the_address_that_was_seen_last(settings: Settings) -> None:
    assert {row["address"] for row in read(settings, "brokers")} == {None}, "rows of earlier releases have none"
    synthetic = Synthetic(settings.storage.tables, _commits=100)
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 3e6, 2: 1e6, 3: 1e6}, address="b:9092")
    synthetic.broker_load(START_MS + 2 * WINDOW_MS, {1: 3e6})
    assert {row["broker"]: row["address"] for row in read(settings, "brokers")} == dict.fromkeys((1, 2, 3), "b:9092")


def test_topics_come_by_name_or_the_highest_first(settings: Settings) -> None:
    assert [row["topic"] for row in read(settings, "topics")] == ["Orders", "payments", "returns"]
    assert [row["topic"] for row in read(settings, "topics", order="bytes_in")] == ["Orders", "payments", "returns"]


@pytest.mark.parametrize(
    ("path", "search", "found"),
    [
        ("topics", "ORD", ["Orders"]), ("topics", "r", ["Orders", "returns"]), ("topics", "none", []),
        ("groups", "orders", ["Orders-readers"]), ("groups", "d", ["Orders-readers", "audit"]),
    ],
)  # fmt: skip
def test_a_search_finds_parts_of_names_in_any_case(
    settings: Settings, path: str, search: str, found: list[str]
) -> None:
    assert sorted(row[path.removesuffix("s")] for row in read(settings, path, search=search)) == found


def test_a_partition_has_the_brokers_of_its_replicas_the_leader_first(settings: Settings) -> None:
    expected = {("Orders", 0): [1, 2, 3], ("Orders", 1): [2, 1], ("payments", 0): [3]}
    for query in ({}, {"order": "bytes_in"}):
        rows = read(settings, "partitions", **query)
        assert {(row["topic"], row["partition"]): row["replicas"] for row in rows} == expected


def test_a_broker_has_its_log_dirs_and_its_drain(settings: Settings, synthetic: Synthetic) -> None:
    for broker, intent in ((2, Intent.DRAIN), (3, Intent.DRAIN), (3, Intent.USE)):
        note_intent(settings.storage.tables, "test", broker, intent, "a person", now_ms=START_MS)
    log_dir = {
        "kafka_cluster": settings.kafka.cluster_name, "broker": 1, "path": "/data/1", "event_time": utc(START_MS),
        "state": "online", "total_bytes": 100, "usable_bytes": 25,
    }  # fmt: skip
    synthetic.append("log_dir", [log_dir])
    rows = {row["broker"]: row for row in read(settings, "brokers")}
    assert {broker: row["drained_ms"] for broker, row in rows.items()} == {1: None, 2: START_MS, 3: None}
    assert [(row["path"], row["used_share"]) for row in rows[1]["log_dirs"]] == [("/data/1", 0.75)]
    assert rows[2]["log_dirs"] == []
