"""What brokers log of a group whose coordinator moves: lines of a run in which one moved from broker 1 to 2."""

from tests.kafka.real_groups import group_moves

SETTLED = [
    "[GroupCoordinator id=1] Stabilized group story-7 generation 4 with 2 members.",
    "[GroupCoordinator id=1] Assignment received from leader a for group story-7 for generation 4.",
]
BEGUN = "[GroupCoordinator id=1] Preparing to rebalance group story-7 in state PreparingRebalance with old generation 4"
JOINED = "[GroupCoordinator id=1] Stabilized group story-7 generation 5 with 3 members."
MOVED = [
    "[GroupCoordinator id=1] [GroupId=story-7] Unloading group metadata for generation 4.",
    "[GroupCoordinator id=2] Loaded classic group story-7 with 2 members.",
]
AGAIN = [
    "[GroupCoordinator id=2] Preparing to rebalance group story-7 in state PreparingRebalance with old generation 4",
    "[GroupCoordinator id=2] Stabilized group story-7 generation 5 with 3 members.",
    "[GroupCoordinator id=2] Assignment received from leader a for group story-7 for generation 5.",
]
MOVES = [
    ("CompletingRebalance", 4), ("Stable", 4), ("PreparingRebalance", 4), ("CompletingRebalance", 5), ("Stable", 5),
]  # fmt: skip


def test_a_rebalance_that_the_new_coordinator_does_not_know_is_begun_again() -> None:
    assert group_moves([*SETTLED, BEGUN, *MOVED, *AGAIN]) == MOVES


def test_members_that_have_joined_join_again_where_no_assignment_came() -> None:
    assert group_moves([*SETTLED, BEGUN, JOINED, *MOVED, *AGAIN]) == MOVES


def test_a_settled_group_is_what_it_was() -> None:
    assert group_moves([*SETTLED, *MOVED, *AGAIN]) == MOVES
