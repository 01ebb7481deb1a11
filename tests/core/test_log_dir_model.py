"""Log dirs in the JSON cluster model: how much room they leave, and what is refused."""

from typing import Any

import pytest

from assignor_core.errors import InputError
from assignor_core.log_dir_model import room_of_log_dirs
from assignor_core.model import cluster_from_json, cluster_to_json
from assignor_core.planner import PlannerPolicy, propose


def log_dir(path: str, usable: float | None = 500, **changed: Any) -> dict[str, Any]:
    return {"path": path, "total_bytes": 1_000, "usable_bytes": usable, **changed}


def model(*rows: dict[str, Any]) -> dict[str, Any]:
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
    assert room_of_log_dirs(rows, "broker 2") == room
    assert cluster_from_json(model(*rows)).brokers[1].disk_room_bytes == room


def test_no_plan_copies_more_than_the_log_dirs_have_room_for() -> None:
    plans = [
        propose(cluster_from_json(model(*rows)), PlannerPolicy())
        for rows in ([log_dir("/a"), log_dir("/b", 350)], [log_dir("/a", 1_000), log_dir("/b", 1_000)])
    ]
    assert [plan.bytes_to_move for plan in plans] == [200.0, 500.0]


def test_the_room_outlives_the_json_form() -> None:
    cluster = cluster_from_json(model(log_dir("/a")))
    assert cluster_from_json(cluster_to_json(cluster)) == cluster


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
def test_what_does_not_fit_is_named(rows: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster_from_json(model(*rows))
