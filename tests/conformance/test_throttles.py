"""Throttles and sizes: entries one by one, those of others kept; the copy follows the rate."""

from assignor_core.disks import replica_sizes
from assignor_core.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.conformance.stages import Stage
from tests.conformance.views import SLOW_BYTES, live, slow_down, speed_up, until_settled


def until_lists(stage: Stage, topic: str, expected: dict[str, set[str]]) -> None:
    """Wait for these entries by setting, in any order."""

    def shown() -> bool:
        lists = stage.client.throttled_replicas([topic])
        return {setting: set(text.split(",")) for (_, setting), text in lists.items()} == expected

    stage.until(f"lists are {expected}", shown)


def test_entries_are_added_and_removed_one_by_one_and_those_of_others_stay(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,), 1: (2,)})
    stage.set_list(topic, LEADER_REPLICAS, "7:7")
    ours, more = {topic: frozenset({(0, 1), (1, 2)})}, {topic: frozenset({(0, 3)})}
    stage.client.set_throttled_replicas(ours, more)
    until_lists(stage, topic, {LEADER_REPLICAS: {"7:7", "0:1", "1:2"}, FOLLOWER_REPLICAS: {"0:3"}})
    stage.client.set_throttled_replicas(ours, {})  # again: nothing stands twice
    assert stage.client.clear_throttle([], {topic: frozenset({(1, 2), (5, 5)})}, {}) == []
    until_lists(stage, topic, {LEADER_REPLICAS: {"7:7", "0:1"}, FOLLOWER_REPLICAS: {"0:3"}})
    stage.client.clear_throttle([], ours, more)
    until_lists(stage, topic, {LEADER_REPLICAS: {"7:7"}})
    stage.client.clear_throttle([], ours, more)  # safe to repeat
    until_lists(stage, topic, {LEADER_REPLICAS: {"7:7"}})
    stage.client.clear_throttle([], {topic: frozenset({(7, 7)})}, {})
    until_lists(stage, topic, {})


def test_a_list_that_names_every_replica_stays(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)})
    stage.set_list(topic, LEADER_REPLICAS, "*")
    until_lists(stage, topic, {LEADER_REPLICAS: {"*"}})
    entries = {topic: frozenset({(0, 1)})}
    stage.client.set_throttled_replicas(entries, entries)
    until_lists(stage, topic, {LEADER_REPLICAS: {"*"}, FOLLOWER_REPLICAS: {"0:1"}})
    stage.client.clear_throttle([], entries, entries)
    until_lists(stage, topic, {LEADER_REPLICAS: {"*"}})


def test_a_topic_that_is_gone_takes_no_entries_and_stops_nothing(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)})
    entries = {"no-such-topic": frozenset({(0, 1)}), topic: frozenset({(0, 1)})}
    stage.client.set_throttled_replicas(entries, {})
    until_lists(stage, topic, {LEADER_REPLICAS: {"0:1"}})
    stage.client.clear_throttle([], entries, {})
    # Each look may ask another broker, and one may be behind.
    stage.until("no list is left", lambda: stage.client.throttled_replicas([topic, "no-such-topic"]) == {})


def test_rates_are_set_changed_and_cleared_by_broker(stage: Stage) -> None:
    stage.client.set_throttle_rates({1: 5_000_000, 3: 7_000_000, 99: 1})
    expected = {broker: {LEADER_RATE: rate, FOLLOWER_RATE: rate} for broker, rate in ((1, 5_000_000), (3, 7_000_000))}
    stage.until("rates are set", lambda: stage.client.throttle_rates() == expected)
    stage.client.set_throttle_rates({1: 6_000_000})
    stage.until("it is changed", lambda: stage.client.throttle_rates()[1][LEADER_RATE] == 6_000_000)
    assert stage.client.clear_throttle([1, 2, 99], {}, {}) == [99]
    stage.until("one is left", lambda: stage.client.throttle_rates() == {3: expected[3]})


def test_sizes_follow_the_copy_and_a_throttle_slows_it(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)}, size_bytes=SLOW_BYTES)
    key = (topic, 0)
    size = replica_sizes(stage.client.log_dirs())[1, key]
    assert SLOW_BYTES <= size <= 1.05 * SLOW_BYTES  # with the heads of batches
    slow_down(stage, topic, leaders=(1,), followers=(2,))
    stage.client.reassign({key: (2,)})
    stage.until("a part is copied", lambda: replica_sizes(stage.client.log_dirs()).get((2, key), 0) > 0)
    assert replica_sizes(stage.client.log_dirs())[2, key] < size
    assert live(stage, key).reassigning
    speed_up(stage, topic)
    until_settled(stage, key, (2,))
    stage.until(
        "only the new copy is left",
        lambda: {row for row in replica_sizes(stage.client.log_dirs()) if row[1] == key} == {(2, key)},
    )
    assert replica_sizes(stage.client.log_dirs())[2, key] == size
