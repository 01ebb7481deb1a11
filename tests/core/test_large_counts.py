"""What is asked for each of many partitions is looked up: searched in a list, ten thousand would cost their square."""

from assignor_core.assignors.contract import GroupSpec, MemberSpec, TopicPartition
from assignor_core.assignors.uniform import even_out
from assignor_core.disks import LogDirDescription
from assignor_core.execution.room import overflowing
from assignor_core.live import LiveCluster, LivePartition


class Listed(list[TopicPartition]):
    """Partitions in a list that nobody may search."""

    def __contains__(self, key: object) -> bool:
        raise AssertionError(f"{key} was searched in a list")


def test_copies_that_no_longer_fit_are_looked_up() -> None:
    moving = LivePartition((2, 1), 1, (1,), adding_replicas=(2,), removing_replicas=(1,))
    live = LiveCluster("c", {1: None, 2: None}, {("t", 0): moving})
    whole, begun = (LogDirDescription("/a", 1_000, 100, {("t", 0): size}) for size in (400, 50))
    assert overflowing(live, {1: (whole,), 2: (begun,)}, Listed([("t", 0)])) == [("t", 0)]


def test_partitions_that_members_owned_before_are_looked_up() -> None:
    owned = Listed([("t", 0), ("t", 1)])
    members = {"a": MemberSpec(["t"], Listed([("t", 1)])), "b": MemberSpec(["t", "u"], owned), "c": MemberSpec(["u"])}
    spec = GroupSpec({"t": 2, "u": 2}, members)
    made = even_out(spec, {"a": [], "b": [("t", 0), ("t", 1)], "c": [("u", 0), ("u", 1)]})
    assert made == {"a": [("t", 1)], "b": [("t", 0)], "c": [("u", 0), ("u", 1)]}
