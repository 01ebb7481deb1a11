"""Cluster models: sound ones read back equal, each kind of bad one has its own one-line error."""

import json
import math
from typing import Any

import pytest

from assignor_core.errors import InputError
from assignor_core.model import BrokerState, cluster_from_json, cluster_to_json
from assignor_core.planner import PlannerPolicy, propose

LOAD = {"bytes_in_per_sec": 1.0, "bytes_out_per_sec": 2.0, "disk_bytes": 3.0}


def model(**changes: Any) -> dict[str, Any]:
    sound = {
        "cluster_id": "main",
        "observed_at_ms": 5,
        "brokers": [{"broker_id": 1, "rack": "a"}, {"broker_id": 2, "state": "draining"}],
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "load": LOAD}],
    }
    return {**sound, **changes}


def partition(**changes: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "replicas": [1], "load": LOAD, **changes}


def test_a_model_reads_back_equal() -> None:
    cluster = cluster_from_json(model())
    assert cluster.brokers[1].state is BrokerState.DRAINING
    assert cluster_from_json(json.loads(json.dumps(cluster_to_json(cluster)))) == cluster


def test_a_partition_whose_load_is_null_has_an_unknown_load() -> None:
    cluster = cluster_from_json(model(partitions=[partition(load=None), partition(partition=1)]))
    assert [row.is_load_known for row in cluster.partitions] == [False, True]
    assert cluster_to_json(cluster)["partitions"][0]["load"] is None
    assert cluster_from_json(json.loads(json.dumps(cluster_to_json(cluster)))) == cluster


def test_loads_by_window_read_back_equal_and_may_stand_beside_single_figures() -> None:
    load = {**LOAD, "bytes_in_per_sec": [1, 2.5]}
    cluster = cluster_from_json(model(partitions=[partition(load=load)]))
    assert cluster.windows == 2
    assert cluster_from_json(cluster_to_json(cluster)) == cluster


BY_REPLICA, BY_RACK = "bytes_out_per_sec_by_replica", "reader_racks"
RACKED = [{"broker_id": 1, "rack": "a"}, {"broker_id": 2, "rack": "b"}, {"broker_id": 3, "rack": "b"}]


def test_bytes_out_by_replica_add_up_and_stay_in_their_racks() -> None:
    given = partition(replicas=[1, 2, 3], **{BY_REPLICA: [2.0, 5, 1.0]})
    cluster = cluster_from_json(model(brokers=RACKED, partitions=[given]))
    (row,) = cluster.partitions
    assert (row.load.bytes_out_per_sec, row.reader_racks) == (8.0, (("b", 0.75),))
    assert cluster_from_json(json.loads(json.dumps(cluster_to_json(cluster)))) == cluster


def test_bytes_out_by_replica_raise_those_of_each_window_alike() -> None:
    given = partition(replicas=[1, 2], load={**LOAD, "bytes_out_per_sec": [2.0, 6.0]}, **{BY_REPLICA: [4.0, 2.0]})
    (row,) = cluster_from_json(model(brokers=RACKED, partitions=[given])).partitions
    assert row.load.bytes_out_per_sec == (3.0, 9.0)
    assert dict(row.reader_racks) == {"b": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {BY_REPLICA: [1.0]},
            r"found \[1.0\], allowed is a list with a number from 0 to 1e\+30 for each of 2 replicas",
        ),
        ({BY_REPLICA: [1.0, -1.0]}, "allowed is a list with a number from 0"),
        ({BY_REPLICA: [1.0, True]}, "allowed is a list with a number from 0"),
        ({BY_REPLICA: [1.0, math.inf]}, "allowed is a list with a number from 0"),
        ({BY_REPLICA: [1.0, 10**400]}, r"found \[1.0, 10*\.\.\., allowed is a list with a number from 0"),
        ({BY_REPLICA: [1e308, 1e308]}, "bytes_out_per_sec_by_replica: found"),
        ({BY_RACK: {"a": 10**400}}, r"reader_racks: found {'a': 10*\.\.\., allowed is an object of parts"),
        ({BY_REPLICA: 7}, "found 7, allowed is a list with a number from 0"),
        ({BY_REPLICA: [1.0, 1.0], BY_RACK: {"a": 0.5}}, "found both reader_racks and bytes_out_per_sec_by_replica"),
        ({BY_REPLICA: [0.0, 1.0], "load": {**LOAD, "bytes_out_per_sec": [1.0]}}, "found 0 of the leader"),
        ({BY_RACK: {"a": 0.75, "b": 0.5}}, "allowed is an object of parts above 0 that add up to 1 at most"),
        ({BY_RACK: {"a": -0.5}}, "allowed is an object of parts above 0"),
        ({BY_RACK: {"a": math.nan}}, "allowed is an object of parts above 0"),
        ({BY_RACK: ["a"]}, "allowed is an object of parts above 0 by rack"),
        ({BY_RACK: {"a": "0.5"}}, "allowed is an object of parts above 0 by rack"),
    ],
)
def test_what_followers_serve_is_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"partition t-0: .*{message}"):
        cluster_from_json(model(brokers=RACKED, partitions=[partition(replicas=[1, 2], **fields)]))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], r"cluster model: found \[\], allowed is an object"),
        (model(brokers=[]), "brokers: found none"),
        (model(brokers=None), "brokers: found None, allowed is a list"),
        (model(brokers=[{"broker_id": -1}]), r"broker_id: found -1, allowed is an integer from 0"),
        (model(brokers=[{"broker_id": 10**30}]), "allowed is an integer from 0"),
        (model(brokers=[{"broker_id": 1}] * 2), "broker 1: found twice"),
        (model(brokers=[{"broker_id": 1, "state": "idle"}]), "broker 1: state: found 'idle'"),
        (model(brokers=[{"broker_id": 1, "rack": 7}]), "broker 1: rack: found 7"),
        (model(brokers=[{"broker_id": 1, "capacity": {"disk_bytes": 0}}]), "broker 1: capacity.disk_bytes: found 0"),
        (model(partitions={}), "partitions: found {}, allowed is a list"),
        (model(partitions=[partition(replicas=[9])]), "partition t-0: found replica on unknown broker 9"),
        (model(partitions=[partition(replicas=[1, 1])]), "partition t-0: found a broker twice"),
        (model(partitions=[partition(replicas=[])]), "partition t-0: found no replicas"),
        (model(partitions=[partition(replicas=[1, 2, 3])]), "found replication factor 3, allowed is at most 2"),
        (model(partitions=[partition(replicas="1")]), "partition t-0: replicas: found '1'"),
        (model(partitions=[partition(), partition()]), "partition t-0: found twice"),
        (model(partitions=[partition(partition=-1)]), "partition number in topic t: found -1"),
        (model(partitions=[partition(topic="")]), r"partitions\[0\].topic: found ''"),
        (model(partitions=[partition(load=7)]), "partition t-0: load: found 7"),
        (model(partitions=[{"topic": "t", "partition": 0, "replicas": [1]}]), "partition t-0: found no load"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": -1})]), "partition t-0: load.disk_bytes: found -1.0"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": math.nan})]), "load.disk_bytes: found nan"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": math.inf})]), "load.disk_bytes: found inf"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": 1e308})]), r"load.disk_bytes: found 1e\+308, allowed"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": None})]), "load.disk_bytes: found None"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": 10**400})]), "load.disk_bytes: found inf"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": True})]), "load.disk_bytes: found True"),
        (model(partitions=[partition(load={**LOAD, "disk_bytes": [1.0, -2.0]})]), "load.disk_bytes: found -2.0"),
        (model(partitions=[partition(), 7]), r"partitions\[1\]: found 7, allowed is an object"),
        (model(brokers=[{"broker_id": 1, "disk_room_bytes": 5, "log_dirs": 7}]), "broker 1: log_dirs: found 7"),
        (
            model(partitions=[partition(load={**LOAD, "disk_bytes": [1.0], "bytes_in_per_sec": [1.0, 2.0]})]),
            "partition t-0: load.disk_bytes: found 1 window, allowed is 2",
        ),
    ],
    ids=range(31),
)
def test_a_bad_model_has_one_clear_error(bad: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        cluster_from_json(bad)
    assert "\n" not in str(raised.value)


def log_dir(path: str, usable: float | None = 500, **changed: Any) -> dict[str, Any]:
    return {"path": path, "total_bytes": 1_000, "usable_bytes": usable, **changed}


def with_log_dirs(*rows: dict[str, Any]) -> dict[str, Any]:
    """Broker 1 holds all of ten partitions of 100 bytes; broker 2 has these log dirs."""
    load = {"bytes_in_per_sec": 1e6, "bytes_out_per_sec": 1e6, "disk_bytes": 100}
    return {
        "brokers": [{"broker_id": 1}, {"broker_id": 2, "log_dirs": list(rows)}],
        "partitions": [
            {"topic": "t", "partition": number, "replicas": [1], "log_dirs": ["/a"], "load": load}
            for number in range(10)
        ],
    }


@pytest.mark.parametrize(
    ("rows", "room"),
    [
        ([log_dir("/a"), log_dir("/b", 250)], 150.0),
        ([log_dir("/a"), log_dir("/b", 250, state="cordoned")], 400.0),
        ([log_dir("/a"), {"path": "/b", "state": "offline"}], 400.0),
        ([log_dir("/a", state="cordoned")], 0.0),
        ([log_dir("/a", 50)], 0.0),
        ([log_dir("/a"), log_dir("/b", None)], None),
    ],
)
def test_the_fullest_log_dir_that_takes_replicas_counts(rows: list[dict[str, Any]], room: float | None) -> None:
    cluster = cluster_from_json(with_log_dirs(*rows))
    assert cluster.brokers[1].disk_room_bytes == room
    assert cluster_from_json(cluster_to_json(cluster)) == cluster


@pytest.mark.long
def test_no_plan_copies_more_than_the_log_dirs_have_room_for() -> None:
    plans = [
        propose(cluster_from_json(with_log_dirs(*rows)), PlannerPolicy())
        for rows in ([log_dir("/a"), log_dir("/b", 350)], [log_dir("/a", 1_000), log_dir("/b", 1_000)])
    ]
    assert [plan.bytes_to_move for plan in plans] == [200.0, 500.0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"broker 2: log_dirs: found \[\], allowed is a list with at least one log dir"),
        (["/a"], r"broker 2: log_dirs\[0\]: found '/a', allowed is an object"),
        ([{}], r"broker 2: log_dirs\[0\]: path: found None"),
        ([log_dir("/a", state="full")], r"state: found 'full', allowed is online, cordoned or offline"),
        ([log_dir("/a", -1)], r"usable_bytes: found -1, allowed is a number from 0"),
        ([log_dir("/a", True)], r"usable_bytes: found True"),
        ([log_dir("/a", 1_001)], r"usable_bytes: found 1001, allowed is at most total_bytes, 1000"),
        ([log_dir("/a"), log_dir("/a")], r"log_dirs: found \['/a', '/a'\], allowed is each path once"),
    ],
)
def test_a_log_dir_that_does_not_fit_is_named(rows: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster_from_json(with_log_dirs(*rows))
