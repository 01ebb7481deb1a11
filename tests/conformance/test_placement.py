"""Reassignments and elections as Kafka makes them: on the simulated cluster and on brokers alike."""

import pytest

from assignor_core.live import LivePartition, PartitionKey
from streaming.errors import ElectionsRefused, ReassignmentsRefused
from tests.conformance.stages import Stage
from tests.conformance.views import (
    SLOW_BYTES,
    answered,
    live,
    refused_with,
    slow_down,
    speed_up,
    until_live,
    until_settled,
)
from tests.simulated_cluster.state import STAYING_REPLICAS_MAY_LAG

SMALL_BYTES = 500_000


@pytest.mark.parametrize(
    ("old", "new"),
    [((1,), (2,)), ((1, 2), (3, 2)), ((1,), (1, 2, 3)), ((1, 2, 3), (2,)), ((1, 2), (2, 3))],
    ids=["move", "replace-one-of-two", "more-replicas", "fewer-replicas", "replace-and-turn"],
)
def test_a_reassignment_ends_on_its_target(stage: Stage, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    key = (stage.make_topic({0: old}, size_bytes=SMALL_BYTES), 0)
    stage.client.reassign({key: new})
    settled = until_settled(stage, key, new)
    leader = old[0] if old[0] in new else new[0]
    assert until_live(stage, key, lambda row: row.leader == leader, f"is led by {leader}").replicas == new
    assert (settled.adding_replicas, settled.removing_replicas) == ((), ())


def test_another_order_of_replicas_leaves_the_leader_until_the_election(stage: Stage) -> None:
    key = (stage.make_topic({0: (1, 2, 3)}), 0)
    stage.client.reassign({key: (3, 1, 2)})
    assert until_settled(stage, key, (3, 1, 2)).leader == 1
    stage.client.elect_preferred([key])
    until_live(stage, key, lambda row: row.leader == 3, "is led by 3")
    stage.client.elect_preferred([key])  # not needed, which is no error


def test_under_way_the_target_comes_first_and_then_what_is_removed(stage: Stage) -> None:
    topic = stage.make_topic({0: (3, 1)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=(3,), followers=(2,))
    stage.client.reassign({(topic, 0): (2,)})
    row = live(stage, (topic, 0))
    assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((2, 1, 3), (2,), (1, 3))
    assert stage.client.describe().reassigning() == {(topic, 0)}
    assert row.leader == 3
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (2,))


def test_asked_about_topics_it_shows_those_alone_and_the_reassignments_of_all(stage: Stage) -> None:
    moved, other = stage.make_topic({0: (3, 1)}, size_bytes=SLOW_BYTES), stage.make_topic({0: (1, 2), 1: (2, 1)})
    slow_down(stage, moved, leaders=(3,), followers=(2,))
    stage.client.reassign({(moved, 0): (2,)})
    asked = stage.client.describe([other, "conformance-there-is-no-such-topic"])
    assert asked.partitions.keys() == {(other, 0), (other, 1)}
    assert asked.topic_ids.keys() == {other}
    assert asked.broker_racks.keys() == {1, 2, 3}
    assert asked.listed.keys() == {(moved, 0)}
    assert asked.listed[moved, 0] == live(stage, (moved, 0)).reassignment
    assert stage.client.describe(()).partitions == {}
    speed_up(stage, moved)
    until_settled(stage, (moved, 0), (2,))


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [((1,), (2,), (1,)), ((1, 2), (3, 2), (2, 1)), ((1, 2), (2, 3), (2, 1))],
    ids=["one", "replace-one-of-two", "replace-and-turn"],
)
def test_cancelled_midway_the_new_replicas_go_and_the_order_stays(
    stage: Stage, old: tuple[int, ...], new: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    topic = stage.make_topic({0: old}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=old, followers=tuple(set(new) - set(old)))
    stage.client.reassign({(topic, 0): new})
    assert live(stage, (topic, 0)).reassigning
    stage.client.reassign({(topic, 0): None})
    assert until_settled(stage, (topic, 0), kept).leader == old[0]


def test_cancelled_with_a_new_replica_in_sync_that_one_goes_too(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, followers=(3,))
    stage.client.reassign({(topic, 0): (2, 3)})
    row = until_live(stage, (topic, 0), lambda row: set(row.isr) == {1, 2}, "has 2 in sync")
    assert row.reassigning
    stage.client.reassign({(topic, 0): None})
    assert until_settled(stage, (topic, 0), (1,)).leader == 1


def test_to_cancel_where_nothing_is_under_way_is_no_error(stage: Stage) -> None:
    key = (stage.make_topic({0: (1,)}), 0)
    stage.client.reassign({key: None})
    assert live(stage, key).replicas == (1,)


def test_another_target_midway_keeps_the_copy_that_was_begun_until_the_end(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=(1,), followers=(2, 3))
    stage.client.reassign({(topic, 0): (2,)})
    stage.client.reassign({(topic, 0): (3,)})
    row = live(stage, (topic, 0))
    assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((3, 1, 2), (3,), (1, 2))
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (3,))


def test_cancelled_after_another_target_the_first_copy_stays(stage: Stage) -> None:
    """Kafka knows only what is being added now: an execution must not change targets and rely on the way back."""
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=(1,), followers=(2, 3))
    stage.client.reassign({(topic, 0): (2,)})
    stage.client.reassign({(topic, 0): (3,)})
    stage.client.reassign({(topic, 0): None})
    row = until_live(stage, (topic, 0), lambda row: not row.reassigning and row.replicas == (1, 2), "is on (1, 2)")
    assert row.leader == 1
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (1, 2))


def test_the_old_replicas_as_target_end_a_reassignment_before_kafka_4_3_and_only_cancelling_does_since(
    stage: Stage,
) -> None:
    topic = stage.make_topic({0: (1, 2)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=(1,), followers=(3,))
    stage.client.reassign({(topic, 0): (3, 2)})
    stage.client.reassign({(topic, 0): (1, 2)})
    if stage.release < STAYING_REPLICAS_MAY_LAG:
        until_live(stage, (topic, 0), lambda row: not row.reassigning and row.replicas == (1, 2), "is on 1 and 2")
        speed_up(stage, topic)
        return
    row = live(stage, (topic, 0))
    assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((1, 2, 3), (3,), (3,))
    speed_up(stage, topic)
    row = until_live(stage, (topic, 0), lambda row: set(row.isr) == {1, 2, 3}, "has 3 in sync")
    assert row.reassigning
    stage.client.reassign({(topic, 0): None})
    assert until_settled(stage, (topic, 0), (1, 2)).leader == 1


def test_the_same_target_again_changes_nothing(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=(1,), followers=(2,))
    stage.client.reassign({(topic, 0): (2,)})
    before = live(stage, (topic, 0))
    stage.client.reassign({(topic, 0): (2,)})
    after = live(stage, (topic, 0))
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == ((2, 1), (2,), (1,))
    assert before.target_replicas == after.target_replicas
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (2,))


def test_each_partition_of_a_request_has_its_own_answer(stage: Stage) -> None:
    """All that a controller may refuse of reassignments and cancellations, beside what it takes, in one request."""
    topic = stage.make_topic(dict.fromkeys(range(6), (1,)), size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=(1,), followers=(2,))
    stage.client.reassign({(topic, 0): (2,)})
    targets: dict[PartitionKey, tuple[int, ...] | None] = {
        (topic, 0): None, (topic, 1): (3,), (topic, 2): None, (topic, 3): (99, 1), (topic, 4): (3, 3),
        (topic, 5): (99,), (topic, 6): (2,), ("no-such-topic", 0): None, ("no-such-topic", 1): (2,),
    }  # fmt: skip
    error = refused_with(stage, lambda: stage.client.reassign(targets))
    assert isinstance(error, ReassignmentsRefused)
    # Nothing was under way of partition 2: to cancel that is no error, though Kafka answers with one.
    assert error.refusals == {
        **dict.fromkeys(((topic, number) for number in (3, 4, 5)), "InvalidReplicationAssignmentError"),
        **dict.fromkeys(((topic, 6), ("no-such-topic", 0), ("no-such-topic", 1)), "UnknownTopicOrPartitionError"),
    }
    assert str(error) == f"6 reassignments refused, first {topic}-3: InvalidReplicationAssignmentError"
    for number, replicas in enumerate([(1,), (3,), (1,), (1,), (1,), (1,)]):
        until_settled(stage, (topic, number), replicas)


def test_each_partition_of_an_election_has_its_own_answer(stage: Stage) -> None:
    topic = stage.make_topic({0: (1, 2), 1: (1, 3), 2: (1, 3)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, leaders=(1,), followers=(3,))
    stage.client.reassign({(topic, 0): (3, 1), (topic, 1): (3, 1)})
    until_live(stage, (topic, 1), lambda row: row.replicas == (3, 1), "is turned")
    elected = [(topic, 0), (topic, 1), (topic, 2), (topic, 7), ("no-such-topic", 0)]
    error = refused_with(stage, lambda: stage.client.elect_preferred(elected))
    assert isinstance(error, ElectionsRefused)
    # The leader of partition 2 is the preferred one: Kafka answers with an error, and there is nothing to do.
    assert error.refusals == {
        (topic, 0): "PreferredLeaderNotAvailableError",
        **dict.fromkeys(((topic, 7), ("no-such-topic", 0)), "UnknownTopicOrPartitionError"),
    }
    until_live(stage, (topic, 1), lambda row: row.leader == 3, "is led by 3")
    row = live(stage, (topic, 0))
    assert (row.leader, row.reassigning) == (1, True)
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (3, 1))
    stage.client.elect_preferred([(topic, 0)])
    until_live(stage, (topic, 0), lambda row: row.leader == 3, "is led by 3")


def test_what_is_deleted_leaves_metadata_and_what_is_added_appears(stage: Stage) -> None:
    gone, grown = stage.make_topic({0: (1,)}), stage.make_topic({0: (1, 2)})
    cluster_id = stage.client.describe().cluster_id
    stage.delete_topic(gone)
    stage.grow_topic(grown, (2, 3))
    stage.until("metadata shows it", lambda: (grown, 1) in stage.client.describe().partitions)
    stage.until("metadata is rid of it", lambda: (gone, 0) not in stage.client.describe().partitions)
    assert until_settled(stage, (grown, 1), (2, 3)).leader == 2
    assert stage.client.describe().cluster_id == cluster_id
    answered(stage, lambda: stage.client.reassign({(grown, 1): (3, 2)}))
    until_settled(stage, (grown, 1), (3, 2))


def test_a_topic_keeps_its_id_and_has_another_one_once_it_is_made_again(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)})
    first = stage.client.describe().topic_ids[topic]
    stage.grow_topic(topic, (2,))
    stage.until("it has grown", lambda: (topic, 1) in stage.client.describe().partitions)
    assert stage.client.describe().topic_ids[topic] == first
    stage.delete_topic(topic)
    stage.until("it is gone", lambda: topic not in stage.client.describe().topic_ids)
    stage.make_topic({0: (1,)}, name=topic)
    # Brokers hear of topics one after the other, and any of them may be asked.
    stage.until("it has another id", lambda: stage.client.describe().topic_ids.get(topic, first) != first)


def test_a_look_shows_what_is_or_what_was_and_nothing_else(stage: Stage) -> None:
    """Metadata is a broker's own, the list of reassignments the controller's: control bears each mixture."""
    key = (stage.make_topic({0: (1, 2)}), 0)
    stage.let_metadata_lag()
    orders = [(1, 2), (2, 1)]
    seen: list[LivePartition] = []

    def turned(order: tuple[int, ...]) -> bool:
        seen.append(live(stage, key))
        return seen[-1].replicas == order

    for turn in range(1, 11):
        wanted = orders[turn % 2]
        answered(stage, lambda wanted=wanted: stage.client.reassign({key: wanted}))  # type: ignore[misc]
        stage.until(f"a look shows {wanted}", lambda wanted=wanted: turned(wanted))  # type: ignore[misc]
    assert {row.replicas for row in seen} == set(orders)
    assert {(row.leader, set(row.isr) <= {1, 2}, row.reassigning) for row in seen} <= {
        (leader, True, moving) for leader in (1, 2) for moving in (True, False)
    }
    stage.until("every look is the newest", lambda: all(live(stage, key).replicas == orders[0] for _ in range(5)))
