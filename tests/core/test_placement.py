"""Kafka's replica placement: worked examples, properties, errors; tests/java compares it with Kafka's class."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core import placement
from assignor_core.errors import InputError, InvalidPartitions, InvalidRackInformation, InvalidReplicationFactor
from assignor_core.placement import PlacementBroker, PlacementStart, place_replicas, rack_alternated
from streaming.commands.json_lines import answer_line
from streaming.commands.place import placement_answer


def brokers(count: int) -> list[PlacementBroker]:
    return [PlacementBroker(broker_id) for broker_id in range(count)]


def racked(racks: str) -> list[PlacementBroker]:
    return [PlacementBroker(broker_id, rack) for broker_id, rack in enumerate(racks)]


def answered(line: str) -> dict[str, object]:
    return dict(answer_line(line.encode(), placement_answer))


def test_the_shift_grows_when_the_partition_id_wraps() -> None:
    placed = place_replicas(brokers(5), 10, 3, PlacementStart.fixed(0))
    assert [placed[partition] for partition in (0, 4, 5, 9)] == [(0, 1, 2), (4, 0, 1), (0, 2, 3), (4, 1, 2)]


def test_fixed_start_gives_start_and_shift() -> None:
    assert place_replicas(brokers(3), 2, 2, PlacementStart.fixed(1)) == {0: (1, 0), 1: (2, 1)}


def test_added_partitions_continue_the_round() -> None:
    whole = place_replicas(brokers(3), 6, 2, PlacementStart.fixed(0))
    added = place_replicas(brokers(3), 2, 2, PlacementStart(0, 1), start_partition_id=4)
    assert added == {4: whole[4], 5: whole[5]}


def test_unracked_brokers_keep_their_given_order() -> None:
    given_order = [PlacementBroker(7), PlacementBroker(3), PlacementBroker(5)]
    assert place_replicas(given_order, 3, 1, PlacementStart.fixed(0)) == {0: (7,), 1: (3,), 2: (5,)}


def test_partitions_that_do_not_divide_evenly_favour_the_first_brokers() -> None:
    """A 5, B 4 and C 1 partitions, all starting on the first broker, as in the founding example."""
    leaders = Counter(
        replicas[0]
        for partitions in (5, 4, 1)
        for replicas in place_replicas(brokers(3), partitions, 1, PlacementStart.fixed(0)).values()
    )
    assert leaders == {0: 5, 1: 3, 2: 2}


def test_the_example_of_kafkas_own_documentation() -> None:
    """AdminUtils: six brokers on three racks; from partition 6 on the followers are shifted."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    placed = place_replicas([PlacementBroker(*row) for row in racks.items()], 7, 3, PlacementStart.fixed(0))
    assert placed == {
        0: (0, 3, 1), 1: (3, 1, 5), 2: (1, 5, 4), 3: (5, 4, 2), 4: (4, 2, 0), 5: (2, 0, 3), 6: (0, 4, 2)
    }  # fmt: skip
    shifted = place_replicas([PlacementBroker(*row) for row in racks.items()], 2, 3, PlacementStart(1, 1), 5)
    assert shifted == {5: (0, 4, 2), 6: (3, 5, 2)}


def test_ids_of_partitions_begin_at_0_or_where_they_are_to() -> None:
    for first, expected in ((-1, [0, 1]), (0, [0, 1]), (1, [1, 2])):
        assert list(place_replicas(brokers(2), 2, 1, PlacementStart.fixed(0), first)) == expected
    assert list(place_replicas(brokers(2), 2, 1, PlacementStart.fixed(0))) == [0, 1]


def test_racks_sort_as_java_sorts_strings() -> None:
    assert rack_alternated({0: "\uffff", 1: "\U00010000"}) == [1, 0]


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "error", "figures"),
    [
        (0, 1, InvalidPartitions, "is 0, must be larger than 0"),
        (-3, 1, InvalidPartitions, "is -3, must be larger than 0"),
        (2**31 - 1, 1, InvalidPartitions, "is 2147483647 with 1 replica, at most 3000000 "),
        (1_000_001, 3, InvalidPartitions, "is 1000001 with 3 replicas, at most 3000000 "),
        (1, 0, InvalidReplicationFactor, "is 0, must be larger than 0"),
        (1, 4, InvalidReplicationFactor, "is 4, larger than the 3 available brokers"),
    ],
)
def test_impossible_counts(partitions: int, replication_factor: int, error: type[Exception], figures: str) -> None:
    with pytest.raises(error, match=figures):
        place_replicas(brokers(3), partitions, replication_factor, PlacementStart.fixed(0))


def test_some_brokers_without_rack() -> None:
    with pytest.raises(InvalidRackInformation, match="1 of 3"):
        place_replicas([*racked("ab"), PlacementBroker(2)], 1, 1, PlacementStart.fixed(0))
    with pytest.raises(InvalidRackInformation, match="2 of 3"):
        place_replicas([*racked("a"), PlacementBroker(1), PlacementBroker(2)], 1, 1, PlacementStart.fixed(0))


def test_a_broker_given_twice() -> None:
    with pytest.raises(InputError, match="twice"):
        place_replicas([*brokers(2), PlacementBroker(1)], 1, 1, PlacementStart.fixed(0))


@given(
    racks=st.text("abc", min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    replication_factor=st.integers(1, 9),
    start=st.builds(PlacementStart, st.integers(0, 20), st.integers(0, 20)),
    first=st.integers(0, 30),
)
def test_every_racked_placement_is_spread(
    racks: str, partitions: int, replication_factor: int, start: PlacementStart, first: int
) -> None:
    replication_factor = min(replication_factor, len(racks))
    placed = place_replicas(racked(racks), partitions, replication_factor, start, first)
    assert list(placed) == list(range(first, first + partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == replication_factor
        assert len({racks[broker_id] for broker_id in replicas}) == min(replication_factor, len(set(racks)))


@given(count=st.integers(1, 9), rounds=st.integers(1, 4), start=st.integers(0, 20), first=st.integers(0, 30))
def test_whole_rounds_lead_evenly(count: int, rounds: int, start: int, first: int) -> None:
    placed = place_replicas(brokers(count), count * rounds, 1, PlacementStart.fixed(start), first)
    assert set(Counter(replicas[0] for replicas in placed.values()).values()) == {rounds}


def test_command_answers_a_line() -> None:
    line = (
        '{"brokers":[{"broker_id":0,"rack":null},{"broker_id":1}],"partitions":2,"replication_factor":2,'
        '"fixed_start_index":0,"start_partition_id":0}'
    )
    assert answered(line) == {"replicas": {"0": [0, 1], "1": [1, 0]}}


def test_a_seed_repeats_a_random_start() -> None:
    def line(seed: int) -> str:
        racks = [{"broker_id": broker_id} for broker_id in range(50)]
        return json.dumps(
            {"brokers": racks, "partitions": 3, "replication_factor": 3, "fixed_start_index": -1, "seed": seed}
        )

    assert answered(line(4)) == answered(line(4))
    assert len({json.dumps(answered(line(seed))) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    ("line", "type_"),
    [
        ("", "InvalidJson"),
        ("[1]", "InvalidJson"),
        ("{" * 100_000, "InvalidJson"),
        ("\x00", "InvalidJson"),
        ('{"partitions":1}', "InvalidField"),
        ('{"brokers":[1],"partitions":1,"replication_factor":1}', "InvalidField"),
        ('{"brokers":[{"broker_id":true}],"partitions":1,"replication_factor":1}', "InvalidField"),
        ('{"brokers":[{"broker_id":1}],"partitions":1.5,"replication_factor":1}', "InvalidField"),
        ('{"brokers":[{"broker_id":1}],"partitions":1e99,"replication_factor":1}', "InvalidField"),
        ('{"brokers":[{"broker_id":1}],"partitions":' + "9" * 4000 + ',"replication_factor":1}', "InvalidField"),
        ('{"brokers":[],"partitions":1,"replication_factor":1}', "InvalidReplicationFactor"),
        (
            '{"brokers":[{"broker_id":1}],"partitions":2,"replication_factor":1,"start_partition_id":2147483647}',
            "InvalidPartitions",
        ),
    ],
)
def test_command_answers_bad_lines(line: str, type_: str) -> None:
    error = answered(line)["error"]
    assert isinstance(error, dict)
    assert error["type"] == type_
    assert "\n" not in error["message"]
    assert len(error["message"]) < 300


def test_as_many_replicas_as_the_limit_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "REPLICAS_MAX", 6)
    assert len(place_replicas(brokers(3), 3, 2, PlacementStart.fixed(0))) == 3
    with pytest.raises(InvalidPartitions, match="at most 6 "):
        place_replicas(brokers(3), 7, 1, PlacementStart.fixed(0))
