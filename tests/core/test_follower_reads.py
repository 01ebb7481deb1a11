"""Which replica serves which consumers: what is seen is what is predicted for the same replicas, and parts add up."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.live import LiveCluster, LivePartition
from assignor_core.live_plans.measured_loads import FollowerLoads, read_from_followers
from assignor_core.model import Load, Partition, PartitionLoad, ReaderRacks, reader_racks
from tests.core.serving_rule import served_parts

RACK = st.sampled_from(("a", "b", "c", None))
RATE = st.integers(0, 9).map(float)
BY_RACK = st.dictionaries(st.sampled_from(("a", "b", "c", "d", None)), RATE)


def test_the_rule_of_these_tests_by_hand() -> None:
    assert served_parts(("a", "b", "c"), (("a", 0.25), ("b", 0.25))) == (0.75, 0.25, 0.0)
    assert served_parts(("b", "c", "c"), (("b", 0.25), ("c", 0.5), ("d", 0.25))) == (0.5, 0.25, 0.25)


@given(st.lists(RACK, min_size=1, max_size=4), BY_RACK)
def test_parts_of_replicas_add_up_and_stay_in_their_racks(
    racks: list[str | None], read: dict[str | None, float]
) -> None:
    total = sum(read.values())
    readers = tuple((rack, rate / total) for rack, rate in sorted(read.items(), key=str) if rack and rate)
    parts = served_parts(racks, readers)
    assert sum(parts) == pytest.approx(1.0)
    assert min(parts) >= 0
    leader, *followers = racks
    for rack, part in readers:
        own = sum(part for other, part in zip(followers, parts[1:], strict=True) if other == rack)
        assert own == pytest.approx(part if rack in followers and rack != leader else 0.0)
    assert not any(part for rack, part in zip(followers, parts[1:], strict=True) if rack in (None, leader))


@given(st.permutations(("a", "b", "c")), st.tuples(RATE, RATE, RATE), BY_RACK)
def test_what_was_seen_is_what_the_same_replicas_are_predicted_to_serve(
    racks: list[str], served: tuple[float, float, float], read: dict[str | None, float]
) -> None:
    readers = reader_racks((racks[0], served[0]), zip(racks[1:], served[1:], strict=True), read)
    if not any(served[1:]):
        assert readers == ()
        return
    assert [sum(served) * part for part in served_parts(racks, readers)] == pytest.approx(served)


@given(st.permutations(("a", "b", "c")), st.dictionaries(st.sampled_from(("a", "b", "c", "d")), RATE), RATE)
def test_what_groups_read_predicts_each_leader(racks: list[str], read: dict[str, float], elsewhere: float) -> None:
    """Seen with one leader, predicted for each other one: racks go on reading from their own replica."""
    total = sum(read.values()) + elsewhere
    true: ReaderRacks = tuple((rack, rate / total) for rack, rate in sorted(read.items()) if rate)
    seen = served_parts(racks, true)
    readers = reader_racks(
        (racks[0], seen[0]), zip(racks[1:], seen[1:], strict=True), dict([*read.items(), (None, elsewhere)])
    )
    if readers:
        for order in permutations(racks):
            assert served_parts(order, readers) == pytest.approx(served_parts(order, true))


@pytest.mark.parametrize(
    ("of_leader", "load", "total"),
    [
        (60.0, 60.0, 100.0),
        (60.0, (60.0, 30.0, 0.0), (100.0, 50.0, 0.0)),
        (0.0, (0.0, 30.0), (40.0, 70.0)),
        (None, 0.0, 40.0),
    ],
)
def test_hours_are_raised_as_the_windows_are(of_leader: float | None, load: Load, total: Load) -> None:
    """The followers serve 40 B/s; of hours the leader's part alone is known. What it served itself as a follower is
    over."""
    live = LiveCluster("c", {1: "a", 2: "b", 3: "b"}, {("t", 0): LivePartition((1, 2, 3), 1, (1, 2, 3))})
    partition = Partition("t", 0, (1, 2, 3), PartitionLoad(1.0, load, 1.0))
    (made,) = read_from_followers(
        (partition,), live, {("t", 0): (1.0, of_leader)}, FollowerLoads({("t", 0): {1: 9.0, 2: 30.0, 3: 10.0}})
    )
    assert made.load.bytes_out_per_sec == pytest.approx(total)
    assert dict(made.reader_racks) == {"b": pytest.approx(40 / (40 + (of_leader or 0)))}
