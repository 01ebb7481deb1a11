"""The product's executor on a fleet: a plan is carried out on the wire, from its throttle to its last movement."""

import pytest

from tests.benchmarks.fleet_executing import execute
from tests.fleet.synthetic import FleetSize

pytestmark = pytest.mark.long


def test_a_plan_is_carried_out_on_the_wire() -> None:
    figures = execute(FleetSize(brokers=4, partitions=40, groups=0, partitions_per_topic=10), repeats=2)
    assert figures["movements_made"] == figures["movements"] == 20
    assert figures["requests_per_tick"] > 0
