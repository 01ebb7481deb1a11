"""Brokers that die and return: leaders, in-sync replicas, throttles, and reassignments that need them."""

from assignor_core.disks import replica_sizes
from assignor_core.live import NO_LEADER
from assignor_core.throttles import LEADER_RATE, tagged
from tests.conformance.stages import Stage
from tests.conformance.views import (
    SLOW_BYTES,
    answered,
    live,
    refusal,
    slow_down,
    speed_up,
    until_alive,
    until_live,
    until_settled,
)
from tests.simulated_cluster.state import LAST_IN_SYNC_MAY_LEAVE, STAYING_REPLICAS_MAY_LAG


def test_a_dead_brokers_partitions_are_led_by_others_and_it_comes_back_in_sync(stage: Stage) -> None:
    led, lone, followed = (
        (stage.make_topic({0: replicas}, size_bytes=500_000), 0) for replicas in ((3, 1), (3,), (2, 3))
    )
    stage.kill_broker(3)
    until_alive(stage, 1, 2)
    until_live(stage, led, lambda row: (row.leader, row.isr) == (1, (1,)), "is led by 1")
    until_live(stage, followed, lambda row: (row.leader, row.isr) == (2, (2,)), "is led by 2")
    offline = until_live(stage, lone, lambda row: row.leader == NO_LEADER, "is offline")
    assert (offline.replicas, offline.isr) == ((3,), (3,) if stage.release < LAST_IN_SYNC_MAY_LEAVE else ())
    assert live(stage, led).replicas == (3, 1)
    assert {broker for broker, _ in replica_sizes(stage.client.log_dirs())} == {1, 2}
    stage.restart_broker(3)
    until_alive(stage, 1, 2, 3)
    assert until_settled(stage, led, (3, 1)).leader == 1
    assert until_settled(stage, lone, (3,)).leader == 3
    until_settled(stage, followed, (2, 3))


def test_rates_of_a_broker_that_is_down_stay_with_it(stage: Stage) -> None:
    rate = tagged(5_000_000)
    stage.client.set_throttle_rates({1: rate, 3: rate})
    stage.until("rates are set", lambda: stage.client.throttle_rates().keys() == {1, 3})
    stage.kill_broker(3)
    until_alive(stage, 1, 2)
    stage.until("only the living are read", lambda: stage.client.throttle_rates().keys() == {1})
    answered(stage, lambda: stage.client.set_throttle_rates({2: tagged(6_000_000), 3: tagged(6_000_000)}))
    left: list[int] = []
    answered(stage, lambda: left.extend(stage.client.clear_throttle([1, 2, 3], {}, {})))
    assert left == [3]
    stage.until("no living one has a rate", lambda: stage.client.throttle_rates() == {})
    stage.restart_broker(3)
    until_alive(stage, 1, 2, 3)
    stage.until("it has kept its rate", lambda: stage.client.throttle_rates().get(3, {}).get(LEADER_RATE) == rate)
    assert stage.client.clear_throttle([3], {}, {}) == []
    stage.until("no rate is left", lambda: stage.client.throttle_rates() == {})


def test_whether_a_reassignment_ends_without_a_replica_that_stays_and_is_away(stage: Stage) -> None:
    """As many are added as removed: Kafka 4.3 and newer need only those that are added, older ones the whole target
    (KAFKA-19975)."""
    key = (stage.make_topic({0: (1, 2)}, size_bytes=500_000), 0)
    stage.kill_broker(2)
    until_alive(stage, 1, 3)
    until_live(stage, key, lambda row: row.isr == (1,), "has 1 alone in sync")
    answered(stage, lambda: stage.client.reassign({key: (3, 2)}))
    if stage.release < STAYING_REPLICAS_MAY_LAG:
        row = until_live(stage, key, lambda row: set(row.isr) == {1, 3}, "has 1 and 3 in sync")
        assert (row.replicas, row.leader, row.reassigning) == ((3, 2, 1), 1, True)
    else:
        row = until_live(stage, key, lambda row: not row.reassigning and row.replicas == (3, 2), "is on 3 and 2")
        assert (row.leader, row.isr) == (3, (3,))
    stage.restart_broker(2)
    until_settled(stage, key, (3, 2))


def test_a_reassignment_that_removes_more_than_it_adds_waits_for_all_of_its_target(stage: Stage) -> None:
    key = (stage.make_topic({0: (1, 2)}, size_bytes=500_000), 0)
    stage.kill_broker(2)
    until_alive(stage, 1, 3)
    until_live(stage, key, lambda row: row.isr == (1,), "has 1 alone in sync")
    answered(stage, lambda: stage.client.reassign({key: (2,)}))
    row = until_live(stage, key, lambda row: row.reassigning, "is being reassigned")
    assert (row.replicas, row.removing_replicas, row.leader) == ((2, 1), (1,), 1)
    stage.restart_broker(2)
    assert until_settled(stage, key, (2,)).leader == 2


def test_a_reassignment_to_a_dead_broker_is_taken_and_can_be_cancelled(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)}, size_bytes=500_000)
    stage.kill_broker(2)
    until_alive(stage, 1, 3)
    answered(stage, lambda: stage.client.reassign({(topic, 0): (2,)}))
    row = until_live(stage, (topic, 0), lambda row: row.reassigning, "is being reassigned")
    assert (row.replicas, row.leader, row.isr) == ((2, 1), 1, (1,))
    answered(stage, lambda: stage.client.reassign({(topic, 0): None}))
    assert until_settled(stage, (topic, 0), (1,)).leader == 1


def test_the_way_back_is_refused_while_no_old_replica_is_in_sync(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    slow_down(stage, topic, followers=(3,))
    stage.client.reassign({(topic, 0): (2, 3)})
    until_live(stage, (topic, 0), lambda row: set(row.isr) == {1, 2}, "has 2 in sync")
    stage.kill_broker(1)
    until_alive(stage, 2, 3)
    until_live(stage, (topic, 0), lambda row: (row.leader, row.isr) == (2, (2,)), "is led by 2")
    message = refusal(stage, lambda: stage.client.reassign({(topic, 0): None}))
    assert message == f"1 reassignment refused, first {topic}-0: InvalidReplicationAssignmentError"
    assert live(stage, (topic, 0)).adding_replicas == (2, 3)
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (2, 3))


def test_a_frozen_broker_loses_its_leaders_and_comes_back_in_sync(stage: Stage) -> None:
    led, followed = ((stage.make_topic({0: replicas}, size_bytes=500_000), 0) for replicas in ((3, 1), (2, 3)))
    stage.freeze_broker(3)
    until_alive(stage, 1, 2)
    until_live(stage, led, lambda row: (row.leader, row.isr) == (1, (1,)), "is led by 1")
    until_live(stage, followed, lambda row: (row.leader, row.isr) == (2, (2,)), "is led by 2")
    stage.resume_broker(3)
    until_alive(stage, 1, 2, 3)
    assert until_settled(stage, led, (3, 1)).leader == 1
    until_settled(stage, followed, (2, 3))


def test_writes_are_refused_while_too_few_are_in_sync_and_a_reassignment_brings_them_back(stage: Stage) -> None:
    topic = stage.make_topic({0: (1, 2)}, size_bytes=500_000)
    stage.set_min_insync_replicas(topic, 2)
    stage.until("it takes writes", lambda: stage.takes_writes(topic))
    stage.kill_broker(2)
    until_alive(stage, 1, 3)
    row = until_live(stage, (topic, 0), lambda row: row.isr == (1,), "has 1 alone in sync")
    assert row.leader == 1, "reads go on"
    stage.until("writes are refused", lambda: not stage.takes_writes(topic))
    answered(stage, lambda: stage.client.reassign({(topic, 0): (1, 3)}))
    until_settled(stage, (topic, 0), (1, 3))
    stage.until("it takes writes again", lambda: stage.takes_writes(topic))


def test_a_replica_that_is_being_added_counts_for_writes_once_it_is_in_sync(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    stage.set_min_insync_replicas(topic, 2)
    slow_down(stage, topic, followers=(3,))
    stage.client.reassign({(topic, 0): (2, 3)})
    until_live(stage, (topic, 0), lambda row: set(row.isr) == {1, 2}, "has 2 in sync")
    stage.until("it takes writes", lambda: stage.takes_writes(topic))
    assert live(stage, (topic, 0)).reassigning
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (2, 3))


def test_a_move_ends_writes_for_a_while_where_more_must_be_in_sync_than_there_are_replicas(stage: Stage) -> None:
    """Kafka asks for as many as there are replicas at most, and a replica that is being added is one of them."""
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    stage.set_min_insync_replicas(topic, 2)
    stage.until("it takes writes", lambda: stage.takes_writes(topic))
    slow_down(stage, topic, followers=(2,))
    stage.client.reassign({(topic, 0): (2,)})
    stage.until("writes are refused", lambda: not stage.takes_writes(topic))
    assert live(stage, (topic, 0)).isr == (1,)
    speed_up(stage, topic)
    until_settled(stage, (topic, 0), (2,))
    stage.until("it takes writes again", lambda: stage.takes_writes(topic))


def test_a_request_that_the_client_gave_up_is_carried_out_once_brokers_go_on(stage: Stage) -> None:
    key = (stage.make_topic({0: (1,)}, size_bytes=500_000), 0)
    stage.carried_out_late({key: (2,)})
    until_settled(stage, key, (2,))
    until_alive(stage, 1, 2, 3)
