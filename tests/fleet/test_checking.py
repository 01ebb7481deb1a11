"""`rebalancer check` on a fleet: all of its checks rest on one look at the cluster."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from streaming.cluster.permissions import ROLES
from streaming.commands.check import _findings
from streaming.settings import Settings
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet

pytestmark = pytest.mark.long


def requests(fleet: Fleet) -> Counter[str]:
    return fleet.requests


def test_the_cluster_is_described_once(tmp_path: Path) -> None:
    with FleetProcess(partial(synthetic_fleet, FleetSize(3, 6, 0), ())) as fleet:
        settings = Settings.model_validate(
            {"kafka": {"bootstrap_servers": fleet.bootstrap_servers}, "storage": {"tables": str(tmp_path / "tables")}}
        )
        rows = {row.name: row for row in _findings(settings, ROLES)}
        assert fleet.run(requests)["ListPartitionReassignments"] == 1
    assert rows["cluster reached"].detail == "3 brokers, 3 racks, 14 partitions"
    passed = ("cluster id", "partitions healthy", "input topics", "no reassignment", "log dirs readable")
    assert [name for name in passed if not rows[name].passed] == []
