"""Rebalances told from looks at a group, and what they say of membership."""

import uuid
from collections.abc import Mapping

from assignor_core.group.events import Cause, GroupEvent, GroupLook, advice, group_events, identity


def member(name: str, number: int = 0) -> str:
    """A member id as the coordinator makes it."""
    return f"{name}-{uuid.UUID(int=number + 1)}"


def look(
    minute: int, owners: Mapping[int, str | None], *, state: str = "Stable", generation: int | None = None
) -> GroupLook:
    return GroupLook(minute * 60_000, state, {("t", number): owner for number, owner in owners.items()}, generation)


def only(*looks: GroupLook) -> GroupEvent:
    (event,) = group_events(looks)
    return event


A, B, C = member("a"), member("b"), member("c")
PAIR = {0: A, 1: A, 2: B, 3: B}


def test_nothing_is_told_of_a_group_that_stays_as_it_is() -> None:
    assert group_events([look(0, PAIR), look(1, PAIR), look(2, PAIR)]) == ()
    assert group_events([look(0, PAIR)]) == ()


def test_joins_and_leaves() -> None:
    event = only(look(0, PAIR), look(1, {0: A, 1: C, 2: B, 3: B}))
    assert (event.cause, event.members_in, event.partitions_moved, event.stopped_if_eager) == (Cause.JOINED, (C,), 1, 4)
    event = only(look(0, PAIR), look(1, dict.fromkeys(range(4), A)))
    assert (event.cause, event.members_out, event.partitions_moved) == (Cause.LEFT, (B,), 2)
    assert (event.after_ms, event.until_ms) == (0, 60_000)


def test_a_restart_is_a_member_that_is_another_process_and_the_same_name() -> None:
    event = only(look(0, PAIR), look(1, {**PAIR, 2: member("b", 7), 3: member("b", 7)}))
    assert (event.cause, event.restarted, event.partitions_moved) == (Cause.RESTARTED, ("b",), 0)


def test_a_static_restart_is_no_rebalance_if_the_generation_stays() -> None:
    again = {**PAIR, 2: member("b", 7), 3: member("b", 7)}
    assert group_events([look(0, PAIR, generation=5), look(1, again, generation=5)]) == ()
    assert only(look(0, PAIR, generation=5), look(1, again, generation=7)).rebalances == 2


def test_generations_tell_of_rebalances_that_changed_nothing() -> None:
    event = only(look(0, PAIR, generation=5), look(1, PAIR, generation=8))
    assert (event.cause, event.rebalances, event.partitions_moved) == (Cause.REASSIGNED, 3, 0)


def test_a_group_that_was_deleted_and_formed_anew_has_rebalanced_though_its_generation_fell() -> None:
    event = only(look(0, PAIR, generation=9), look(1, dict.fromkeys(range(4), C), generation=1))
    assert (event.cause, event.rebalances, event.members_in) == (Cause.CHANGED, 1, (C,))
    assert group_events([look(0, PAIR, generation=9), look(1, PAIR, generation=9)]) == ()


def test_groups_form_and_empty() -> None:
    nobody = dict.fromkeys(range(4))
    assert only(look(0, nobody, state="Empty"), look(1, PAIR)).cause is Cause.FORMED
    event = only(look(0, PAIR), look(1, nobody, state="Empty"))
    assert (event.cause, event.partitions_unowned) == (Cause.EMPTIED, 4)
    assert only(look(0, PAIR), look(1, nobody, state="PreparingRebalance")).cause is Cause.UNKNOWN


def test_added_partitions() -> None:
    event = only(look(0, PAIR), look(1, {**PAIR, 4: A}))
    assert (event.cause, event.partitions_moved, event.stopped_if_eager) == (Cause.PARTITIONS_ADDED, 0, 4)


def test_flapping_members_are_named_and_restarts_counted() -> None:
    looks = [look(minute, {0: A, 1: A, 2: member("b", minute), 3: member("b", minute)}) for minute in range(4)]
    advised = advice(group_events(looks))
    assert advised.flapping == (("b", 3),)
    assert (advised.rebalances, advised.restarts) == (3, 3)
    assert [hint.split(":")[0] for hint in advised.hints] == [
        "b came or went 3 times",
        "3 of 3 rebalances were members that came back",
        "0 of 12 partitions changed hands",
    ]


def test_a_group_that_rests_gets_no_advice() -> None:
    assert advice(group_events([look(0, PAIR), look(1, PAIR)])).hints == ()
    one = advice(group_events([look(0, PAIR), look(1, {0: A, 1: C, 2: B, 3: B})]))
    assert (one.rebalances, one.hints) == (1, ())


def test_identities() -> None:
    assert identity(member("billing-1")) == "billing-1"
    assert identity("sarama-no-uuid") == "sarama-no-uuid"
