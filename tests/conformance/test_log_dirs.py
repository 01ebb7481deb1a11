"""Log dirs as brokers show them, where new replicas go, and what a full one does: simulated and on brokers alike.

Broker 2 has two log dirs, each on a volume of its own. What control leans on for its ceilings stands here.
"""

from functools import partial

import pytest

from assignor_core.live import NO_LEADER
from tests.conformance.disks import SMALL_BYTES, VOLUME, Disks, SimulatedDisks, index_of, shown
from tests.conformance.views import live, refusal, until_live, until_settled
from tests.kafka.volumes import MIB
from tests.simulated_cluster import Release


def test_a_new_replica_goes_to_the_log_dir_with_the_fewest_however_full_that_is(disks: Disks) -> None:
    held = [(disks.make_topic({0: (2,)}, size_bytes=SMALL_BYTES), 0) for _ in range(3)]
    disks.until("three replicas are there", lambda: sum(len(row.replica_bytes) for row in shown(disks)) == 3)
    assert [row.total_bytes for row in shown(disks)] == [VOLUME, VOLUME]
    assert sorted(len(row.replica_bytes) for row in shown(disks)) == [1, 2]
    assert all(size >= SMALL_BYTES for row in shown(disks) for size in row.replica_bytes.values())
    fewest = min((0, 1), key=lambda index: len(shown(disks)[index].replica_bytes))
    disks.fill(fewest, usable_bytes=5 * MIB)
    assert shown(disks)[fewest].usable_bytes == pytest.approx(5 * MIB, abs=MIB)
    wanted = (disks.make_topic({0: (1,)}, size_bytes=SMALL_BYTES), 0)
    disks.client.reassign({wanted: (2,)})
    until_settled(disks, wanted, (2,))
    assert index_of(disks, wanted) == fewest
    # Asked for some partitions a broker shows these alone, and what is free all the same.
    only = disks.client.log_dirs([2], [held[0]])[2]
    assert [key for row in only for key in row.replica_bytes] == [held[0]]
    assert min(row.usable_bytes or 0 for row in only) < 6 * MIB


def test_a_cordoned_log_dir_is_shown_and_gets_no_new_replica(disks: Disks) -> None:
    disks.cordon(0)
    disks.until("it is shown as cordoned", lambda: [row.is_cordoned for row in shown(disks)] == [True, False])
    for _ in range(2):
        wanted = (disks.make_topic({0: (1,)}, size_bytes=SMALL_BYTES), 0)
        disks.client.reassign({wanted: (2,)})
        until_settled(disks, wanted, (2,))
        assert index_of(disks, wanted) == 1
    assert shown(disks)[0].total_bytes == VOLUME


def test_a_broker_whose_log_dirs_are_all_cordoned_is_refused_as_a_target_even_where_it_holds_the_replica(
    disks: Disks,
) -> None:
    """Kafka 4.4 and newer. Replicas may leave the broker: it is no part of the target then."""
    wanted, held, leaving = (disks.make_topic({0: row}, size_bytes=SMALL_BYTES) for row in ((1,), (1, 2), (2, 3)))
    disks.cordon(0, 1)
    disks.until("they are shown as cordoned", lambda: [row.is_cordoned for row in shown(disks)] == [True, True])
    for topic, target in ((wanted, (2,)), (held, (3, 2)), (held, (2, 1))):
        message = refusal(disks, partial(disks.client.reassign, {(topic, 0): target}))
        assert message == f"1 reassignment refused, first {topic}-0: InvalidReplicationAssignmentError"
    disks.client.reassign({(leaving, 0): (1, 3)})
    until_settled(disks, (leaving, 0), (1, 3))
    assert [live(disks, (topic, 0)).replicas for topic in (wanted, held)] == [(1,), (1, 2)]


def test_log_dirs_are_cordoned_together_and_only_those_that_are_named_are_uncordoned(disks: Disks) -> None:
    """Whoever drains a broker cordons all, and leaves what others had cordoned."""
    paths = [row.path for row in shown(disks)]
    disks.client.cordon_log_dirs(2, paths, cordoned=True)
    disks.until("both are cordoned", lambda: [row.is_cordoned for row in shown(disks)] == [True, True])
    disks.client.cordon_log_dirs(2, paths, cordoned=True)  # what is cordoned already is no mistake
    for _ in range(2):
        disks.client.cordon_log_dirs(2, paths[:1], cordoned=False)
    disks.until("the other one still is", lambda: [row.is_cordoned for row in shown(disks)] == [False, True])
    assert refusal(disks, partial(disks.client.cordon_log_dirs, 2, [paths[0], "/nowhere"], cordoned=True))
    assert [row.is_cordoned for row in shown(disks)] == [False, True], "it is refused as a whole"
    disks.client.cordon_log_dirs(2, [paths[1], "/nowhere"], cordoned=False)  # as of a log dir that was taken away
    disks.until("none is cordoned", lambda: [row.is_cordoned for row in shown(disks)] == [False, False])


@pytest.mark.parametrize("release", [(3, 9), (4, 3)])
def test_before_kafka_4_4_a_broker_whose_log_dirs_are_all_cordoned_takes_a_reassignment(release: Release) -> None:
    """Seen on brokers of Kafka 4.3.1. Nothing but control's own snapshot kept replicas away."""
    disks = SimulatedDisks()
    disks.cluster.contents.release = release
    disks.cordon(0, 1)
    wanted = (disks.make_topic({0: (1,)}, size_bytes=SMALL_BYTES), 0)
    disks.client.reassign({wanted: (2,)})
    until_settled(disks, wanted, (2,))


def test_a_full_log_dir_goes_offline_and_is_shown_without_its_replicas(disks: Disks) -> None:
    """This is what the reserve is for. The broker goes on with the other log dir."""
    first, second = ((disks.make_topic({0: (1, 2)}, size_bytes=SMALL_BYTES), 0) for _ in range(2))
    for key in (first, second):
        until_settled(disks, key, (1, 2))
    full = index_of(disks, first)
    assert index_of(disks, second) != full
    disks.fill(full, usable_bytes=0)
    disks.write(first[0])
    until_live(disks, first, lambda row: row.isr == (1,), "has lost the replica on the full log dir")
    disks.until("it is shown as offline", lambda: shown(disks)[full].is_offline)
    row = shown(disks)[full]
    assert (row.total_bytes, row.usable_bytes, row.replica_bytes) == (None, None, {})
    other = shown(disks)[1 - full]
    assert (other.is_offline, set(other.replica_bytes)) == (False, {second})
    assert disks.client.describe().broker_racks.keys() == {1, 2, 3}


def test_what_lies_on_a_failed_log_dir_alone_has_its_leader_again_after_the_repair(disks: Disks) -> None:
    """The broker has gone on with its other log dir, and nobody else holds the partition."""
    written = (disks.make_topic({0: (1, 2)}, size_bytes=SMALL_BYTES), 0)
    until_settled(disks, written, (1, 2))
    full = index_of(disks, written)
    both = [(disks.make_topic({0: (2,)}, size_bytes=SMALL_BYTES), 0) for _ in range(3)]
    for key in both:
        until_settled(disks, key, (2,))
    alone = next(key for key in both if index_of(disks, key) == full)
    disks.fill(full, usable_bytes=0)
    disks.write(written[0])
    until_live(disks, alone, lambda row: row.leader == NO_LEADER, "has no leader")
    disks.repair(full)
    until_live(disks, alone, lambda row: row.leader == 2 and row.isr == (2,), "is led from the repaired log dir")
    until_live(disks, written, lambda row: set(row.isr) == {1, 2}, "is in sync again")
