"""`rebalancer check`: log dirs that are offline, and brokers that do not show what is free on their disks."""

from pathlib import Path

import pytest

from assignor_core.disks import LogDirDescription
from streaming.commands.check import _log_dirs, _throttles
from streaming.settings import PlannerSettings, Settings
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

BY_HAND = PlannerSettings.model_validate({"capacities": {2: {"disk_bytes": 1e12}}})


def test_log_dirs_that_are_online_and_show_what_is_free_pass() -> None:
    cluster = SimulatedCluster.of({1: None, 2: None})
    cluster.create_topic("t", {0: (1, 2), 1: (1, 2)})
    assert _log_dirs(SimulatedClient(cluster), PlannerSettings()) == (True, "4 replicas have a size")


def test_a_log_dir_that_is_offline_is_named() -> None:
    cluster = SimulatedCluster.of({1: None, 2: None}, log_dir_bytes=(10**9, 10**9))
    cluster.fail_log_dir(2, 1)
    assert _log_dirs(SimulatedClient(cluster), PlannerSettings()) == (
        False,
        "log dirs are offline on broker 2 (/disk-1)",
    )


def test_a_broker_that_does_not_answer_is_named() -> None:
    cluster = SimulatedCluster.of({1: None, 2: None})
    cluster.freeze_broker(2)
    assert _log_dirs(SimulatedClient(cluster), BY_HAND) == (
        False,
        "brokers that do not answer get no replicas: 2",
    )


@pytest.mark.parametrize("rows", [(), (LogDirDescription("/d"),)], ids=["refused", "before Kafka 3.3"])
def test_a_broker_that_does_not_show_what_is_free_is_named(
    rows: tuple[LogDirDescription, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SimulatedClient(SimulatedCluster.of({1: None, 2: None}))
    shown = client.log_dirs() | {2: rows}
    monkeypatch.setattr(client, "log_dirs", lambda: shown)
    named = "brokers that do not show what is free get no replicas: 2"
    assert _log_dirs(client, PlannerSettings()) == (False, named)
    assert _log_dirs(client, BY_HAND)[0]


def test_a_rate_of_movements_within_a_broker_that_is_left_is_named(tmp_path: Path) -> None:
    settings = Settings.model_validate({"storage": {"tables": str(tmp_path / "tables")}})
    client = SimulatedClient(SimulatedCluster.of({1: None, 2: None}))
    assert _throttles(client, settings) == (True, "none")
    client.set_log_dir_rates({2: 1_000})
    left = "brokers [2] and topics [] are throttled, and no execution of ours is under way"
    assert _throttles(client, settings) == (False, left)
