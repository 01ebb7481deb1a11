"""The product's executor on a fleet: a plan is carried out on the wire, from its throttle to its last movement."""

import pytest

from tests.benchmarks.fleet_executing import execute
from tests.fleet.synthetic import FleetSize

pytestmark = pytest.mark.long


def test_a_plan_is_carried_out_on_the_wire_also_while_a_broker_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.fleet_executing.TIMEOUT_MS", 2_000)
    figures = execute(FleetSize(brokers=4, partitions=40, groups=0, partitions_per_topic=10), repeats=1)
    assert figures["movements_made"] == figures["hung_movements_made"] == figures["movements"] == 20
    assert figures["requests_per_tick"] > 0
    assert figures["hung_ticks"] > 0
    assert figures["hung_lost_bytes"] == figures["hung_under_replicated"] == figures["hung_throttles_left"] == 0
