"""The lists a partition goes through when its replicas come one at a time: what holds for any move, from anywhere."""

import random

from hypothesis import given
from hypothesis import strategies as st

from assignor_core.execution.progress import is_between, next_replicas, rack_count

BROKERS = tuple(range(1, 9))
RACKS = st.fixed_dictionaries({broker: st.sampled_from(("a", "b", "c", None)) for broker in BROKERS})


@st.composite
def moves(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Old and new replicas, leader first, any overlap."""
    count = draw(st.integers(1, 4))
    old, goal = (draw(st.permutations(BROKERS))[:count] for _ in range(2))
    return tuple(old), tuple(goal)


@given(moves(), RACKS)
def test_every_list_keeps_the_replication_factor_and_the_racks(
    move: tuple[tuple[int, ...], tuple[int, ...]], racks: dict[int, str | None]
) -> None:
    old, goal = move
    least = min(rack_count(old, racks), rack_count(goal, racks))
    current = old
    for _ in range(len(goal) + 1):
        following = next_replicas(current, goal, racks)
        assert len(set(following)) == len(goal)
        # While it copies, the partition has the brokers of both lists.
        assert len({*current, *following}) <= len(goal) + 1
        assert rack_count(following, racks) >= least
        assert following == goal or is_between(following, old, goal)
        current = following
    assert current == goal
    assert next_replicas(goal, goal, racks) == goal


@given(moves(), RACKS, st.randoms(use_true_random=False))
def test_it_goes_on_from_any_list_in_between(
    move: tuple[tuple[int, ...], tuple[int, ...]], racks: dict[int, str | None], chance: random.Random
) -> None:
    old, goal = move
    pool = sorted({*old, *goal})
    chance.shuffle(pool)
    current = tuple(pool[: len(goal)])
    if not is_between(current, old, goal):
        return
    least = min(rack_count(current, racks), rack_count(goal, racks))
    steps = 0
    while current != goal:
        current = next_replicas(current, goal, racks)
        assert rack_count(current, racks) >= least
        assert current == goal or is_between(current, old, goal)
        steps += 1
    assert steps <= len(goal)


def test_the_leader_stays_until_the_last_step_where_the_racks_allow_it() -> None:
    assert next_replicas((1, 2, 3), (4, 5, 6), {}) == (1, 4, 3)
    # Any exchange of broker 2 would leave one rack.
    assert next_replicas((1, 2), (4, 3), {1: "a", 2: "b", 3: "a", 4: "a"}) == (4, 2)


def test_a_change_of_the_replication_factor_has_no_steps() -> None:
    assert next_replicas((1,), (2, 3), {}) == (2, 3)
