"""Rebalances told from looks at a group, and what they say of membership."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from assignor_core.group.events import Cause, GroupEvent, GroupSample, advice, group_events, identity


def member(name: str, number: int = 0) -> str:
    """A member id as the coordinator makes it."""
    return f"{name}-{uuid.UUID(int=number + 1)}"


def look(
    minute: int, owners: Mapping[int, str | None], *, state: str = "Stable", generation: int | None = None
) -> GroupSample:
    return GroupSample(minute * 60_000, state, {("t", number): owner for number, owner in owners.items()}, generation)


def only(*looks: GroupSample) -> GroupEvent:
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
    left = replace(look(1, nobody, state="PreparingRebalance"), member_count=0)
    assert only(look(0, PAIR), left).cause is Cause.UNKNOWN


REBALANCING_STATES = ("PreparingRebalance", "CompletingRebalance")


@pytest.mark.parametrize("state", REBALANCING_STATES)
@pytest.mark.parametrize("count", [2, None])
def test_a_look_in_the_middle_of_a_rebalance_that_shows_no_owners_changes_no_count(
    state: str, count: int | None
) -> None:
    """Brokers 3.9 describe members of a group that is not stable without what they joined with and were assigned."""
    middle = [replace(look(at, dict.fromkeys(range(4)), state=state), member_count=count) for at in (1, 2)]
    event = only(look(0, PAIR, generation=5), *middle, look(3, PAIR, generation=6))
    assert (event.rebalances, event.names_in, event.names_out) == (1, (), ())
    assert (event.after_ms, event.until_ms) == (0, 180_000)
    restarted = {**PAIR, 2: member("b", 7), 3: member("b", 7)}
    event = only(look(0, PAIR, generation=5), *middle, look(3, restarted, generation=7))
    assert (event.cause, event.rebalances) == (Cause.RESTARTED, 2)


@pytest.mark.parametrize("state", REBALANCING_STATES)
def test_a_rebalance_of_unknown_generation_counts_once_however_many_looks_meet_it(state: str) -> None:
    """Brokers 4 show what members of a group that is not stable were assigned, and no generation."""
    middle = [look(at, PAIR, state=state) for at in (1, 2)]
    for generations in ((None, None), (5, 6)):
        looks = [look(0, PAIR, generation=generations[0]), *middle, look(3, {0: A, 1: C}, generation=generations[1])]
        events = group_events(looks)
        assert [event.rebalances for event in events] == [1, 0, 0]
        assert events[-1].cause is Cause.CHANGED


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


# Members of the newer protocols: ids are random alone, and the epoch rises before members follow.
NAMES = {"m1": "a", "m2": "b", "m3": "c", "m4": "b"}


def epoch_look(
    minute: int, owners: Mapping[int, str | None], epoch: int, state: str = "Stable", count: int | None = 2
) -> GroupSample:
    listed = {("t", number): owner for number, owner in owners.items()}
    return GroupSample(minute * 60_000, state, listed, epoch, "consumer", NAMES, count)


def test_members_with_random_ids_are_known_by_client_or_instance_id() -> None:
    event = only(epoch_look(0, {0: "m1", 1: "m2"}, 5), epoch_look(1, {0: "m1", 1: "m4"}, 7))
    assert (event.cause, event.restarted, event.rebalances, event.partitions_moved) == (Cause.RESTARTED, ("b",), 2, 0)


def test_a_reconciliation_over_several_looks_is_one_rebalance_and_counts_every_move() -> None:
    looks = [
        epoch_look(0, {0: "m1", 1: "m1", 2: "m2", 3: "m2"}, 5),
        epoch_look(1, {0: "m1", 1: None, 2: "m2", 3: "m2"}, 6, "Reconciling", 3),
        epoch_look(2, {0: "m1", 1: "m3", 2: "m2", 3: "m2"}, 6, "Reconciling", 3),
        epoch_look(3, {0: "m1", 1: "m3", 2: "m2", 3: "m2"}, 6, "Stable", 3),
        epoch_look(4, {0: "m1", 1: "m3", 2: "m2", 3: "m2"}, 6, "Stable", 3),
    ]
    events = group_events(looks)
    assert [event.rebalances for event in events] == [1, 0]
    assert [event.cause for event in events] == [Cause.JOINED, Cause.JOINED]
    assert events[-1].until_ms == 120_000, "until nothing changed any more"


def test_a_static_member_that_is_away_for_some_looks_makes_no_rebalance() -> None:
    pair = {0: "m1", 1: "m2"}
    looks = [
        epoch_look(0, pair, 5),
        epoch_look(1, pair, 5, "Reconciling"),
        epoch_look(2, pair, 5, "Reconciling"),
        epoch_look(3, {0: "m1", 1: "m4"}, 5),
    ]
    assert group_events(looks) == ()


def test_a_member_that_owns_nothing_joins_too() -> None:
    pair = {0: "m1", 1: "m2"}
    assert only(epoch_look(0, pair, 5, count=2), epoch_look(1, pair, 6, count=3)).cause is Cause.JOINED
    assert only(epoch_look(0, pair, 5, count=3), epoch_look(1, pair, 6, count=2)).cause is Cause.LEFT


def test_members_of_share_groups_come_and_go_though_nobody_owns_a_partition() -> None:
    def shared(minute: int, count: int, state: str = "Stable") -> GroupSample:
        return GroupSample(minute * 60_000, state, {("t", 0): None}, minute, "share", {}, count)

    looks = [shared(0, 0, "Empty"), shared(1, 2), shared(2, 3), shared(3, 1), shared(4, 0, "Empty")]
    assert [event.cause for event in group_events(looks)] == [Cause.FORMED, Cause.JOINED, Cause.LEFT, Cause.EMPTIED]


def test_a_look_that_could_not_see_members_shows_no_rebalance() -> None:
    unseen = GroupSample(60_000, "Stable", dict.fromkeys([("t", number) for number in range(4)]))
    assert group_events([look(0, PAIR), unseen, look(2, PAIR)]) == ()
    assert only(look(0, PAIR), unseen, look(2, {**PAIR, 1: C})).after_ms == 0


def test_partitions_move_between_members_that_share_a_name_if_both_stay() -> None:
    one, two, three = member("c", 1), member("c", 2), member("c", 3)
    event = only(look(0, {0: one, 1: one, 2: two}), look(1, {0: one, 1: two, 2: two}))
    assert event.partitions_moved == 1
    event = only(look(0, {0: one, 1: one, 2: two}), look(1, {0: one, 1: three, 2: two}))
    assert event.partitions_moved == 1, "of one that stayed"


def test_a_group_that_changes_its_protocol_keeps_its_history() -> None:
    """The group epoch goes on from the classic generation; members are restarted one by one with other ids."""
    looks = [
        GroupSample(0, "Stable", {("t", 0): A, ("t", 1): B}, 5, "classic", {A: "a", B: "b"}, 2),
        GroupSample(60_000, "Stable", {("t", 0): "m1", ("t", 1): B}, 7, "consumer", {"m1": "a", B: "b"}, 2),
        GroupSample(120_000, "Stable", {("t", 0): "m1", ("t", 1): "m2"}, 9, "consumer", NAMES, 2),
        GroupSample(180_000, "Stable", {("t", 0): A, ("t", 1): B}, 12, "classic", {A: "a", B: "b"}, 2),
    ]
    events = group_events(looks)
    assert [event.cause for event in events] == [Cause.RESTARTED] * 3
    assert [event.rebalances for event in events] == [2, 2, 3]
    assert [event.partitions_moved for event in events] == [0, 0, 0]


def test_advice_fits_the_protocol() -> None:
    looks = [epoch_look(minute, {0: "m1", 1: "m2" if minute % 2 else "m4"}, 5 + minute) for minute in range(4)]
    hints = advice(group_events(looks), "consumer").hints
    assert len(hints) == 2
    assert "group.consumer.session.timeout.ms" in hints[1]
    assert "session.timeout.ms longer" in advice(group_events(looks), "classic").hints[1]
    assert len(advice(group_events(looks), "share").hints) == 1
