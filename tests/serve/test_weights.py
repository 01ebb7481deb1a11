"""Weights for consumers: from the tables, from the endpoint, and nothing, never an error, where there is neither."""

import math
from pathlib import Path

import pytest

from assignor_core.assignors import GroupSpec, MemberSpec, assign
from streaming.contract.records import PARTITION_MAX
from streaming.runtime.processes import free_port
from streaming.serve.api.pages import as_json
from streaming.serve.snapshot import read_snapshot
from streaming.serve.status import weights_of
from streaming.views.broker_load import LoadPart
from streaming.views.json_values import to_json
from streaming.weights import WeightSource, endpoint_weights, table_weights
from tests.http_environment import UNUSABLE
from tests.serve.served import Served
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for
from tests.serve.test_connections import listening


@pytest.fixture
def tables(tmp_path: Path) -> str:
    """Two windows: partition 1 of "orders" is idle in the first and busy in the second; 2 is only known there."""
    synthetic = Synthetic(str(tmp_path / "tables"))
    with synthetic.together():
        for start_ms, rates in ((NOW_MS, (9e6, 0.0)), (NOW_MS + WINDOW_MS, (9e6, 4e6, 3e6))):
            leaders = [(1, "orders", partition, "leader", rate) for partition, rate in enumerate(rates)]
            synthetic.partition_load(
                start_ms, [*leaders, (2, "orders", 0, "follower", 5e6), (1, "gaps", 2, "leader", 1e6)]
            )
            synthetic.broker_load(start_ms, {1: 1.0e7})
    return str(tmp_path / "tables")


def test_tables_give_the_mean_of_the_newest_windows(tables: str) -> None:
    weights = table_weights(tables, "test")
    assert weights(["orders", "unknown"]) == {"orders": [9e6, 2e6, 3e6]}
    gaps = weights(["gaps"])["gaps"]
    assert gaps[2] == 1e6
    assert all(math.isnan(rate) for rate in gaps[:2])
    assert table_weights(tables, "another cluster")(["orders"]) == {}


def test_newer_windows_of_another_cluster_hide_none(tables: str) -> None:
    other = Synthetic(tables, cluster="other", _commits=10)
    other.partition_load(NOW_MS + 60 * WINDOW_MS, [(1, "orders", 0, "leader", 1.0)])
    assert table_weights(tables, "test")(["orders"]) == {"orders": [9e6, 2e6, 3e6]}
    assert table_weights(tables, "other")(["orders"]) == {"orders": [1.0]}


def test_a_partition_number_that_no_topic_has_is_left_out(tables: str) -> None:
    other = Synthetic(tables, _commits=20)
    other.partition_load(NOW_MS + WINDOW_MS, [(1, "orders", PARTITION_MAX + 1, "leader", 1.0)])
    assert table_weights(tables, "test")(["orders"]) == {"orders": [9e6, 2e6, 3e6]}


@pytest.mark.long
def test_the_endpoint_gives_the_newest_window_of_the_topics_asked_for(tables: str, tmp_path: Path) -> None:
    with listening(Served(tmp_path, tables)) as (host, port):
        weights = endpoint_weights(f"http://{host}:{port}/")
        assert weights(["orders", "unknown"]) == {"orders": [9e6, 4e6, 3e6]}
        gaps = weights(["gaps"])["gaps"]
    assert gaps[2] == 1e6
    assert all(math.isnan(rate) for rate in gaps[:2])


@pytest.mark.parametrize(("variable", "value"), [row[:2] for row in UNUSABLE])
def test_an_environment_that_the_http_client_refuses_leaves_the_group_to_counts(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert endpoint_weights("https://127.0.0.1:1")(["t"]) == {}


@pytest.mark.parametrize(
    "source", [endpoint_weights(f"http://127.0.0.1:{free_port()}"), table_weights("/dev/null", "test")]
)
def test_a_source_that_is_not_there_leaves_the_group_to_counts(source: WeightSource) -> None:
    assert source(["t"]) == {}
    members = {"a": MemberSpec(["t"]), "b": MemberSpec(["t"])}
    spec = GroupSpec({"t": 4}, members, partition_weights=source(["t"]))
    assert assign("load-aware", spec) == assign("sticky", spec)


@pytest.mark.long
def test_of_more_topics_than_fit_the_others_are_counted() -> None:
    rates = {f"topic-{number:03d}": (123_456.789,) * 1_000 for number in range(200)}
    load = LoadPart(window_end_ms=NOW_MS, leader_rates=rates)
    body = weights_of(load, [])
    assert len(as_json(body)) <= 1_000_000
    assert len(body["bytes_in_per_sec"]) + body["left_out"] == 200
    assert body["left_out"] > 0
    named = weights_of(load, ["topic-199", "other"])
    assert (list(named["bytes_in_per_sec"]), named["left_out"]) == (["topic-199"], 0)


def test_a_topic_that_is_asked_for_twice_is_one_topic() -> None:
    body = weights_of(LoadPart(window_end_ms=NOW_MS, leader_rates={"orders": (1.0,)}), ["orders"] * 3)
    assert (body["bytes_in_per_sec"], body["left_out"]) == ({"orders": [1.0]}, 0)


def test_the_rates_of_all_partitions_are_no_part_of_the_status(tables: str, tmp_path: Path) -> None:
    snapshot = read_snapshot(settings_for(tmp_path), NOW_MS)
    assert snapshot.load.leader_rates["orders"] == (9e6, 4e6, 3e6)
    assert "leader_rates" not in to_json(snapshot)["load"]
