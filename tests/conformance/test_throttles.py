"""Throttles and sizes: entries one by one, those of others kept; the copy follows the rate."""

import pytest

from assignor_core.disks import replica_sizes
from assignor_core.throttles import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    VALUE_BYTES_MAX,
    tagged,
)
from streaming.errors import ClusterUnreachable
from tests.conformance.stages import Stage
from tests.conformance.views import SLOW_BYTES, answered, live, refusal, slow_down, speed_up, until_settled
from tests.simulated_cluster.state import LONG_LISTS_REFUSED


def until_lists(stage: Stage, topic: str, expected: dict[str, set[str]]) -> None:
    """Wait for these entries by setting, in any order."""

    def shown() -> bool:
        lists = stage.client.throttled_replicas([topic])
        return {setting: set(text.split(",")) for (_, setting), text in lists.items()} == expected

    stage.until(f"lists are {expected}", shown)


def refuses_a_list_that_would_be_too_long(stage: Stage, entries: dict[str, frozenset[tuple[int, int]]]) -> bool:
    """Whether entries are refused as this release does; an older controller steps down at that."""
    error = "InvalidConfiguration" if stage.release >= LONG_LISTS_REFUSED else "UnknownError"
    return error in refusal(stage, lambda: stage.client.set_throttled_replicas(entries, {}))


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
    assert "InvalidConfiguration" in refusal(stage, lambda: stage.client.set_throttled_replicas(entries, entries))
    until_lists(stage, topic, {LEADER_REPLICAS: {"*"}})
    stage.client.set_throttled_replicas({}, entries)
    until_lists(stage, topic, {LEADER_REPLICAS: {"*"}, FOLLOWER_REPLICAS: {"0:1"}})
    stage.client.clear_throttle([], entries, entries)
    until_lists(stage, topic, {LEADER_REPLICAS: {"*"}})


def test_a_list_takes_so_many_bytes_and_is_cleared_entry_by_entry_however_many_there_are(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)})
    foreign = "7:".ljust(VALUE_BYTES_MAX - len(",0:1") - 1, "0") + "7"
    stage.set_list(topic, LEADER_REPLICAS, foreign)
    stage.client.set_throttled_replicas({topic: frozenset({(0, 1)})}, {})
    until_lists(stage, topic, {LEADER_REPLICAS: {foreign, "0:1"}})
    one_more = {topic: frozenset({(0, 2)})}
    assert refuses_a_list_that_would_be_too_long(stage, one_more)
    until_lists(stage, topic, {LEADER_REPLICAS: {foreign, "0:1"}})
    more_than_a_request_takes = {topic: frozenset((partition, 1) for partition in range(9_000))}
    answered(stage, lambda: stage.client.clear_throttle([], more_than_a_request_takes, more_than_a_request_takes))
    until_lists(stage, topic, {LEADER_REPLICAS: {foreign}})


def test_more_bytes_than_a_value_may_have_get_no_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker closes the connection on such a text; nothing changes, and the client goes on."""
    topic = stage.make_topic({0: (1,)})
    too_many = {topic: frozenset((partition, 1) for partition in range(5_000))}
    for client in ("streaming.cluster.admin", "tests.simulated_cluster.client"):
        monkeypatch.setattr(f"{client}.pieces", lambda *sides: [sides])
    with pytest.raises(ClusterUnreachable):
        stage.client.set_throttled_replicas(too_many, {})
    with pytest.raises(ClusterUnreachable):
        stage.client.clear_throttle([], {}, too_many)
    monkeypatch.undo()
    assert refuses_a_list_that_would_be_too_long(stage, too_many)
    answered(stage, lambda: stage.client.clear_throttle([], too_many, too_many))
    until_lists(stage, topic, {})


def test_a_topic_that_is_gone_takes_no_entries_and_stops_nothing(stage: Stage) -> None:
    topic = stage.make_topic({0: (1,)})
    entries = {"no-such-topic": frozenset({(0, 1)}), topic: frozenset({(0, 1)})}
    stage.client.set_throttled_replicas(entries, {})
    until_lists(stage, topic, {LEADER_REPLICAS: {"0:1"}})
    stage.client.clear_throttle([], entries, {})
    # Each look may ask another broker, and one may be behind.
    stage.until("no list is left", lambda: stage.client.throttled_replicas([topic, "no-such-topic"]) == {})


def test_rates_are_set_changed_and_cleared_by_broker(stage: Stage) -> None:
    rates = {1: tagged(5_000_000), 3: tagged(7_000_000)}
    stage.client.set_throttle_rates({**rates, 99: tagged(1)})
    expected = {broker: {LEADER_RATE: rate, FOLLOWER_RATE: rate} for broker, rate in rates.items()}
    stage.until("rates are set", lambda: stage.client.throttle_rates() == expected)
    stage.client.set_throttle_rates({1: tagged(6_000_000)})
    stage.until("it is changed", lambda: stage.client.throttle_rates()[1][LEADER_RATE] == tagged(6_000_000))
    assert stage.client.clear_throttle([1, 2, 99], {}, {}) == [99]
    stage.until("one is left", lambda: stage.client.throttle_rates() == {3: expected[3]})


def test_rates_of_others_are_neither_changed_nor_removed_each_for_itself(stage: Stage) -> None:
    ours = tagged(5_000_000)
    stage.set_rate(1, LEADER_RATE, 200_000)
    stage.set_rate(2, FOLLOWER_RATE, 300_000)
    stage.client.set_throttle_rates({1: ours, 2: ours, 3: ours})
    stage.until(
        "what is free is set",
        lambda: (
            stage.client.throttle_rates()
            == {
                1: {LEADER_RATE: 200_000, FOLLOWER_RATE: ours},
                2: {LEADER_RATE: ours, FOLLOWER_RATE: 300_000},
                3: {LEADER_RATE: ours, FOLLOWER_RATE: ours},
            }
        ),
    )
    stage.set_rate(3, LEADER_RATE, 400_000)  # somebody changes a rate of ours: from now on it is theirs
    stage.client.set_throttle_rates({3: tagged(6_000_000)})
    stage.until("ours is changed", lambda: stage.client.throttle_rates()[3][FOLLOWER_RATE] == tagged(6_000_000))
    assert stage.client.clear_throttle([1, 2, 3], {}, {}) == []
    others = {1: {LEADER_RATE: 200_000}, 2: {FOLLOWER_RATE: 300_000}, 3: {LEADER_RATE: 400_000}}
    stage.until("only theirs are left", lambda: stage.client.throttle_rates() == others)
    assert stage.client.clear_throttle([1, 2, 3], {}, {}, untagged=True) == []
    stage.until("no rate is left", lambda: stage.client.throttle_rates() == {})


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
