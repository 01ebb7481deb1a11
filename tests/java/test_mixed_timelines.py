"""Groups over random timelines, led by Kafka's own classes, by ours, and by both in turn.

Where the lead alternates, a group has to come to rest after no more rounds than with Kafka's classes alone, and then
each partition has to be read by exactly one member that subscribes to its topic.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from assignor_core.assignors import TopicPartition
from streaming.commands.assign import group_of
from tests.core.assignors.groups import Line
from tests.core.assignors.invariants import holders
from tests.core.assignors.recorded_rounds import ROUNDS, Round
from tests.core.assignors.timelines import ROUNDS_MAX, Group, Leader, NoRest, first_group, large_group, lead
from tests.java.oracle import KafkaOracle

pytestmark = pytest.mark.java

EVENTS = 8
OURS_MAX = 5
"""Most rounds of ours alone."""


@pytest.fixture(scope="module")
def kafkas_lead(oracle: KafkaOracle) -> Leader:
    def kafkas(line: Line) -> Mapping[str, Sequence[Sequence[Any]]]:
        assignment: Mapping[str, Sequence[Sequence[Any]]] = oracle.ask(line)["assignment"]
        return assignment

    return kafkas


def rounds(group: Group, leaders: Sequence[Leader]) -> int:
    """Rounds until the group rests; where it does not, one more than we wait for."""
    try:
        return group.settle(leaders)
    except NoRest:
        return ROUNDS_MAX + 1


@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize(("new_group", "timelines"), [(first_group, 60), (large_group, 25)])
def test_groups_led_in_turn_come_to_rest_as_soon_as_kafkas(
    kafkas_lead: Leader, strategy: str, racks: bool, new_group: Callable[..., Group], timelines: int
) -> None:
    """Where Kafka's alone never rest, groups of ours alone do; groups of both may or may not."""
    restless = 0
    for seed in range(timelines):
        draws = random.Random(seed)
        group = new_group(draws, strategy, racks=racks)
        for _ in range(EVENTS):
            kafkas_rounds = rounds(group.copy(), [kafkas_lead])
            restless += kafkas_rounds > ROUNDS_MAX
            ours = group.copy()
            assert rounds(ours, [lead]) <= min(kafkas_rounds, OURS_MAX), (seed, group.line_at_join())
            assert ours.unread() == [], (seed, group.line_at_join())
            for leaders in ([lead, kafkas_lead], [kafkas_lead, lead]):
                mixed = group.copy()
                mixed_rounds = rounds(mixed, leaders)
                assert mixed_rounds <= kafkas_rounds, (seed, group.line_at_join())
                assert mixed_rounds > ROUNDS_MAX or mixed.unread() == [], (seed, group.line_at_join())
            group = ours if mixed_rounds > ROUNDS_MAX else mixed
            group.change(draws, draws.choice([lead, kafkas_lead]))
    # The groups without rest are why ours differ from Kafka's at all: without any here, nothing would be tested.
    assert bool(restless) == (racks and new_group is large_group)


def as_sets(assignment: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, set[TopicPartition]]:
    return {name: {(topic, number) for topic, number in given} for name, given in assignment.items()}


@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_a_round_is_kafkas_or_the_last(kafkas_lead: Leader, strategy: str, racks: bool) -> None:
    """Ours moves what Kafka's moves, to the letter, or takes nothing from anybody. Without racks it is Kafka's."""
    last = 0
    for seed in range(25):
        draws = random.Random(seed)
        group = large_group(draws, strategy, racks=racks)
        for _ in range(EVENTS):
            for _ in range(3):
                line = group.line_at_join()
                ours = as_sets(lead(line))
                if ours != as_sets(kafkas_lead(line)):
                    assert all(tp in ours[name] for tp, name in holders(group_of(line)[1]).items()), line
                    last += 1
                group.rebalance(kafkas_lead)
            group.change(draws, kafkas_lead)
    assert bool(last) == racks


@pytest.mark.parametrize("row", ROUNDS, ids=lambda row: row.name)
def test_recorded_rounds_are_kafkas(kafkas_lead: Leader, row: Round) -> None:
    """The pure tests hold ours to them."""
    assert as_sets(kafkas_lead(row.line)) == as_sets(row.assignment)
