"""One collect and one control for several clusters on the wire: a cluster that is away stops no other cluster."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming import tables
from streaming.cli import run
from streaming.runtime import processes
from tests.fleet import process
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.long

SIZE = FleetSize(brokers=3, partitions=30, groups=2, partitions_per_topic=10)
INTERVAL_MS = 200


@pytest.fixture(scope="module")
def fleets() -> Iterator[dict[str, FleetProcess]]:
    """Three clusters with the same brokers, topics, groups and id: only their addresses differ."""
    with ExitStack() as stack:
        fleet_of = partial(FleetProcess, partial(synthetic_fleet, SIZE))
        yield {name: stack.enter_context(fleet_of()) for name in ("east", "north", "west")}


@pytest.fixture
def settings_file(fleets: dict[str, FleetProcess], tmp_path: Path) -> Path:
    settings: dict[str, Any] = {
        "log": {"format": "json"},
        "storage": {"tables": str(tmp_path / "tables"), "checkpoints": str(tmp_path / "checkpoints")},
        "kafka": {"request_timeout_ms": 2_000},
        "collect": {"sample_interval_ms": INTERVAL_MS, "own_process": False},
        "control": {"tick_interval_ms": INTERVAL_MS, "lease_ms": 1_000, "own_process": False},
        "clusters": {
            name: {
                "kafka": {"bootstrap_servers": fleet.bootstrap_servers},
                "collect": {"jmx_endpoints": fleet.jmx_endpoints},
            }
            for name, fleet in fleets.items()
        },
    }
    file = tmp_path / "rebalancer.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


@contextmanager
def role(name: str, file: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The process of a role without --cluster, and its log; ends with 0 when it is asked to."""
    log = file.parent / f"{name}.log"
    running = processes.start([sys.executable, "-m", "streaming", name, "--config", str(file)], log=log)
    try:
        yield running, log
        running.send_signal(signal.SIGTERM)
        assert running.wait(DEADLINE_S) == 0, log.read_text()
    finally:
        running.kill()
        running.wait()


def events(log: Path, event: str) -> set[str | None]:
    """The clusters that lines of this event name."""
    rows = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return {row.get("kafka_cluster") for row in rows if row["event"] == event}


def produced(fleet: Fleet) -> int:
    return sum(fleet.produced.values())


def kill_all(fleet: Fleet) -> None:
    for broker in fleet.contents.brokers:
        process.kill_broker(fleet, broker)


def test_one_collect_samples_all_clusters_while_one_is_away(
    fleets: dict[str, FleetProcess], settings_file: Path
) -> None:
    with role("collect", settings_file) as (running, log):

        def more(name: str, than: int) -> bool:
            assert running.poll() is None, log.read_text()
            return fleets[name].run(produced) > than

        for name in fleets:
            until(f"records of {name} arrive", partial(more, name, 0))
        fleets["north"].run(kill_all)
        until("the sample of north fails", lambda: "north" in events(log, "sample_failed"))
        for name in ("east", "west"):
            until(f"records of {name} still arrive", partial(more, name, fleets[name].run(produced)))
        fleets["north"].run(process.restart_brokers)
        until("records of north arrive again", partial(more, "north", fleets["north"].run(produced)))
    assert events(log, "sample_failed") == {"north"}
    assert events(log, "collect_started") == {"east", "north", "west"}


def test_one_control_holds_the_lease_of_each_cluster_in_its_own_table(
    fleets: dict[str, FleetProcess], settings_file: Path, tmp_path: Path
) -> None:
    def leases(name: str) -> list[dict[str, Any]]:
        return tables.read(str(tmp_path / "tables" / "clusters" / name), "lease")

    with role("control", settings_file) as (running, log):

        def renewed(name: str, than: int) -> bool:
            assert running.poll() is None, log.read_text()
            return any(row["sequence"] > than for row in leases(name))

        for name in fleets:
            until(f"{name} has a lease", partial(renewed, name, 0))
        assert {row["owner"].rpartition("/")[2] for name in fleets for row in leases(name)} == {str(running.pid)}
        assert len({row["lease_id"] for name in fleets for row in leases(name)}) == len(fleets)
        kept = tmp_path / "tables" / "clusters"
        (kept / "north").rename(kept / "away")  # as if a folder was not mounted any more
        until("the keeper of north says so", lambda: "north" in events(log, "lease_not_renewed"))
        for name in ("east", "west"):
            (row,) = leases(name)
            until(f"the lease of {name} is renewed", partial(renewed, name, row["sequence"]))
    assert events(log, "lease_not_renewed") == {"north"}
    for name in ("east", "west"):
        (row,) = leases(name)
        assert row["kafka_cluster"] == name
        assert row["released"]


def test_without_a_shared_process_a_cluster_must_be_named(
    settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["collect", "--config", str(settings_file), "--set", "collect.own_process=true"]) == 2
    assert "choose one by --cluster; known are east, north, west" in capsys.readouterr().err
