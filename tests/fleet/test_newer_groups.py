"""Groups of the newer protocols on the wire: what the fleet's coordinators describe is what a look has of them."""

from collections.abc import Iterator
from functools import partial

import pytest

from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.group_table import GroupView, Owner
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from tests.fleet.fleet import Fleet
from tests.fleet.groups import STABLE, FleetGroup, FleetMember
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.fleet.test_collecting import settings_of
from tests.fleet.wire import UNSERVED

pytestmark = pytest.mark.long

SIZE = FleetSize(brokers=3, partitions=20, groups=2, partitions_per_topic=10)


def with_newer_groups() -> Fleet:
    """A group of each of two kinds, each at a coordinator of its own, on one topic."""
    fleet = synthetic_fleet(SIZE, ())
    topic = sorted(fleet.contents.topics)[0]
    keys = tuple((topic, number) for number in range(4))
    both = [FleetMember(name, f"client-{name}", owned={topic: owned}) for name, owned in (("m", [0, 1]), ("n", [2, 3]))]
    idle = FleetMember("idle", "client-idle", group_instance_id="static")
    fleet.groups["new"] = FleetGroup(
        "new", 1, STABLE, "consumer", protocol="uniform", members=(*both, idle), reads=keys, epoch=7
    )
    fleet.groups["queue"] = FleetGroup(
        "queue", 2, STABLE, "share", "share", "simple", tuple(both), reads=keys, read_share=0.5, epoch=3
    )
    return fleet


@pytest.fixture(scope="module")
def fleet() -> Iterator[FleetProcess]:
    with FleetProcess(partial(with_newer_groups)) as running:
        yield running


@pytest.fixture(scope="module")
def groups(fleet: FleetProcess) -> dict[str, GroupView]:
    settings = settings_of(fleet)
    admin = admin_client(settings.kafka)
    try:
        return dict(observe(BrokerReads(admin), GroupSampler(), settings.collect, now_ms=0).groups)
    finally:
        admin.close()


def unserved(fleet: Fleet) -> int:
    return fleet.requests[UNSERVED]


def test_a_consumer_group_has_its_owners_epoch_and_all_members(
    fleet: FleetProcess, groups: dict[str, GroupView]
) -> None:
    group = groups["new"]
    assert (group.state, group.group_type, group.generation_id, group.assignor) == (STABLE, "consumer", 7, "uniform")
    assert group.members == 3, "one owns nothing"
    topic = min(group.committed)[0]
    first, second = (Owner(name, f"client-{name}", client_host="127.0.0.1") for name in ("m", "n"))
    assert group.owners == {(topic, 0): first, (topic, 1): first, (topic, 2): second, (topic, 3): second}
    assert group.targets == {key: owner.member_id for key, owner in group.owners.items()}
    assert fleet.run(unserved) == 0


def test_a_share_group_has_members_and_positions(groups: dict[str, GroupView]) -> None:
    group = groups["queue"]
    assert (group.state, group.group_type, group.generation_id, group.members) == (STABLE, "share", 3, 2)
    assert group.owners == {}
    assert group.share is not None
    assert len(group.share.starts) == 4
    assert group.committed == {key: start + 1 for key, start in group.share.starts.items()}, (
        "one record is done already"
    )


def test_the_other_groups_are_classic(groups: dict[str, GroupView]) -> None:
    others = {name: view for name, view in groups.items() if name not in ("new", "queue")}
    assert len(others) == SIZE.groups
    assert {view.group_type for view in others.values()} == {"classic"}
    assert all(view.members for view in others.values())
