"""What to do next, told from small clusters that a reader can check by head."""

from assignor_core.execution.progress import NO_SNAPSHOTS, Progress, progress_of
from assignor_core.execution.reconcile import (
    Abort,
    Done,
    ElectLeaders,
    Limits,
    Step,
    Submit,
    Wait,
    differences,
    next_step,
)
from assignor_core.execution.room import RoomLeft
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, changes_since

LIMITS = Limits(movements_in_flight_max=2, movements_per_broker_max=1, deadline_ms=1000)


def cluster(*partitions: LivePartition, brokers: tuple[int, ...] = (1, 2, 3)) -> LiveCluster:
    return LiveCluster("c", dict.fromkeys(brokers), {("t", index): row for index, row in enumerate(partitions)})


def plan(*moves: tuple[tuple[int, ...], tuple[int, ...]]) -> Plan:
    return Plan("c", tuple(Movement("t", index, old, new, 1.0) for index, (old, new) in enumerate(moves)))


def at(*replicas: int, leader: int | None = None) -> LivePartition:
    return LivePartition(replicas, replicas[0] if leader is None else leader, replicas)


def moving(old: int, new: int) -> LivePartition:
    return LivePartition((new, old), old, (old,), adding_replicas=(new,), removing_replicas=(old,))


def step(a_plan: Plan, live: LiveCluster, worked_ms: int = 0, held_back: str | None = None) -> Step:
    return next_step(a_plan, live, LIMITS, worked_ms=worked_ms, held_back=held_back)


def test_pending_movements_are_submitted_up_to_the_caps() -> None:
    wanted = plan(((1,), (2,)), ((1,), (3,)), ((3,), (2,)))
    # Broker 1 may copy for one movement at a time, and so may broker 2.
    assert step(wanted, cluster(at(1), at(1), at(3))) == Submit({("t", 0): (2,)})
    assert step(plan(((1,), (2,)), ((3,), (4,))), cluster(at(1), at(3), brokers=(1, 2, 3, 4))) == Submit(
        {("t", 0): (2,), ("t", 1): (4,)}
    )


def test_what_copies_already_counts_for_the_cap_of_all() -> None:
    wanted = plan(((1,), (4,)), ((2,), (5,)), ((3,), (6,)))
    live = cluster(moving(1, 4), at(2), at(3), brokers=tuple(range(1, 7)))
    assert step(wanted, live) == Submit({("t", 1): (5,)})


def test_a_staged_movement_keeps_no_replica_that_is_away_and_is_to_go() -> None:
    """Kafka before 4.3 ends no reassignment while a replica that it keeps is out of sync."""
    lost = at(1, 2, 3, leader=3)
    wanted, staged = plan(((1, 2, 3), (4, 5, 3))), Limits(staged=True)
    asked = next_step(wanted, cluster(lost, brokers=(3, 4, 5)), staged, worked_ms=0)
    assert asked == Submit({("t", 0): (4, 5, 3)})
    # One that is away, and that the plan leaves where it is, is no reason to copy both at once.
    asked = next_step(plan(((1, 2, 3), (1, 4, 5))), cluster(lost, brokers=(2, 3, 4, 5)), staged, worked_ms=0)
    assert isinstance(asked, Submit)
    assert [len(set(target) - {1, 2, 3}) for target in asked.reassignments.values()] == [1]


def test_a_staged_movement_off_drained_brokers_takes_one_step() -> None:
    """Kafka 4.4 refuses a list that names a broker whose log dirs are all cordoned."""
    wanted, live = plan(((1, 2, 3), (4, 5, 3))), cluster(at(1, 2, 3), brokers=(1, 2, 3, 4, 5))
    asked = next_step(wanted, live, Limits(staged=True, drained=frozenset({1, 2})), worked_ms=0)
    assert asked == Submit({("t", 0): (4, 5, 3)})
    asked = next_step(wanted, live, Limits(staged=True, drained=frozenset({4})), worked_ms=0)
    assert asked == Submit({("t", 0): (1, 4, 3)})


def test_a_change_of_leader_that_copies_counts_for_what_it_copies() -> None:
    """Somebody had moved t-0 to brokers 4 and 5, and a request of ours that came late moves it back."""
    wanted = plan(((1, 2), (2, 1)), ((3,), (1,)))
    back = LivePartition((2, 1, 4, 5), 4, (4, 5), adding_replicas=(2, 1), removing_replicas=(4, 5))
    live = cluster(back, at(3), brokers=(1, 2, 3, 4, 5))
    assert isinstance(step(wanted, live), Wait)
    live = cluster(at(2, 1, leader=1), at(3), brokers=(1, 2, 3, 4, 5))
    assert step(wanted, live) == Submit({("t", 1): (1,)})


def test_the_cap_of_a_topic_leaves_room_for_others() -> None:
    live = LiveCluster(
        "c", dict.fromkeys(range(1, 7)), {("t", 0): at(1), ("t", 1): at(2), ("u", 0): at(3), ("t", 2): at(4, 5)}
    )
    moves = (("t", 0, 1), ("t", 1, 2), ("u", 0, 3))
    copying = tuple(Movement(topic, number, (old,), (old + 3,), 1.0) for topic, number, old in moves)
    wanted = Plan("c", (*copying, Movement("t", 2, (4, 5), (5, 4), 0.0)))
    capped = Limits(movements_in_flight_max=9, movements_per_topic_max=1, movements_per_broker_max=1)
    # The last one copies nothing.
    next_one = next_step(wanted, live, capped, worked_ms=0)
    assert next_one == Submit({("t", 0): (4,), ("u", 0): (6,), ("t", 2): (5, 4)})
    under_way = LiveCluster("c", live.broker_racks, {**live.partitions, ("t", 0): moving(1, 4)})
    next_one = next_step(wanted, under_way, capped, worked_ms=0)
    assert next_one == Submit({("u", 0): (6,), ("t", 2): (5, 4)})


def test_a_staged_movement_takes_one_replica_at_a_time_from_wherever_it_is() -> None:
    wanted = plan(((1, 2), (3, 4)))
    staged = Limits(staged=True)
    brokers = (1, 2, 3, 4)
    assert next_step(wanted, cluster(at(1, 2), brokers=brokers), staged, worked_ms=0) == Submit({("t", 0): (1, 3)})
    copying = LivePartition((1, 3, 2), 1, (1, 2), adding_replicas=(3,), removing_replicas=(2,))
    assert isinstance(next_step(wanted, cluster(copying, brokers=brokers), staged, worked_ms=0), Wait)
    assert next_step(wanted, cluster(at(1, 3), brokers=brokers), staged, worked_ms=0) == Submit({("t", 0): (3, 4)})
    # One that is half made is no stranger, whether or not the rest is staged.
    assert step(wanted, cluster(at(1, 3), brokers=brokers)) == Submit({("t", 0): (3, 4)})
    assert differences(wanted, cluster(at(1, 3), brokers=brokers)) == ()
    assert isinstance(step(wanted, cluster(at(1, 5), brokers=(1, 2, 3, 4, 5))), Abort)


def test_a_wave_begins_once_every_movement_of_the_one_before_is_finished() -> None:
    moves = (((1, 9), (2, 9), 0), ((1, 9), (9, 1), 1), ((3, 9), (4, 9), 1), ((5, 9), (6, 9), 2))
    wanted = Plan("c", tuple(Movement("t", i, old, new, 1.0, wave=wave) for i, (old, new, wave) in enumerate(moves)))
    roomy = Limits()

    def following(*partitions: LivePartition, gone: bool = False) -> Step:
        live = cluster(*partitions, brokers=tuple(range(1, 10)))
        rest = {key: row for key, row in live.partitions.items() if not gone or key != ("t", 0)}
        return next_step(wanted, LiveCluster("c", live.broker_racks, rest), roomy, worked_ms=0)

    second = Submit({("t", 1): (9, 1), ("t", 2): (4, 9)})
    copying = LivePartition((2, 9, 1), 1, (1, 9), adding_replicas=(2,), removing_replicas=(1,))
    assert following(at(1, 9), at(1, 9), at(3, 9), at(5, 9)) == Submit({("t", 0): (2, 9)})
    assert isinstance(following(copying, at(1, 9), at(3, 9), at(5, 9)), Wait)
    assert following(at(2, 9, leader=9), at(1, 9), at(3, 9), at(5, 9)) == ElectLeaders((("t", 0),))
    assert following(at(2, 9), at(1, 9), at(3, 9), at(5, 9)) == second
    assert following(at(2, 9), at(1, 9), at(3, 9), at(5, 9), gone=True) == second
    assert following(at(2, 9), at(9, 1), at(4, 9), at(5, 9)) == Submit({("t", 3): (6, 9)})


def test_a_staged_movement_keeps_its_wave_open_between_its_steps() -> None:
    moves = (((1, 2), (3, 4), 0), ((5,), (6,), 1))
    wanted = Plan("c", tuple(Movement("t", i, old, new, 1.0, wave=wave) for i, (old, new, wave) in enumerate(moves)))
    live = cluster(at(1, 3), at(5), brokers=(1, 2, 3, 4, 5, 6))
    assert next_step(wanted, live, Limits(staged=True), worked_ms=0) == Submit({("t", 0): (3, 4)})


def test_a_change_of_leader_is_submitted_then_elected() -> None:
    wanted = plan(((1, 2), (2, 1)))
    assert step(wanted, cluster(at(1, 2))) == Submit({("t", 0): (2, 1)})
    assert step(wanted, cluster(at(2, 1, leader=1))) == ElectLeaders((("t", 0),))
    assert step(wanted, cluster(at(2, 1))) == Done()


def test_leaders_change_a_few_at_a_time() -> None:
    wanted = plan(*[((1, 2), (2, 1))] * 5, ((1,), (3,)))
    few = Limits(elections_at_once_max=2)
    waiting, made, before = at(2, 1, leader=1), at(2, 1), at(1, 2)

    def following(*partitions: LivePartition) -> Step:
        return next_step(wanted, cluster(*partitions), few, worked_ms=0)

    assert following(*[before] * 5, at(1)) == Submit({("t", 0): (2, 1), ("t", 1): (2, 1), ("t", 5): (3,)})
    # Those that wait for their election count: a broker may elect them all by itself at any moment.
    assert following(waiting, made, *[before] * 3, at(3)) == Submit({("t", 2): (2, 1)})
    assert following(waiting, waiting, *[before] * 3, at(3)) == ElectLeaders((("t", 0), ("t", 1)))
    # More may wait after a setting was lowered.
    assert following(*[waiting] * 5, at(3)) == ElectLeaders((("t", 0), ("t", 1)))


def test_leaders_change_a_few_at_a_time_while_metadata_does_not_show_the_new_order() -> None:
    wanted = plan(*[((1, 2), (2, 1))] * 5, ((1,), (3,)), ((1,), (3,)))
    few = Limits(elections_at_once_max=2, movements_in_flight_max=1, movements_per_topic_max=1)
    stale = cluster(*[at(1, 2)] * 5, at(1), at(1))
    begun = {("t", 0): (2, 1), ("t", 1): (2, 1), ("t", 5): (3,)}
    assert next_step(wanted, stale, few, worked_ms=0) == Submit(begun)
    looks = NO_SNAPSHOTS.after(wanted, stale).taken({("t", 0): (2, 1), ("t", 1): (2, 1)}).after(wanted, stale)
    # Two wait for their order and leave no room for others; no cap on copies counts them.
    assert next_step(wanted, stale, few, worked_ms=0, past=looks) == Submit({("t", 5): (3,)})


def test_somebody_elses_change_ends_it_and_only_ours_is_cancelled() -> None:
    wanted = plan(((1,), (2,)), ((2,), (1,)))
    next_one = step(wanted, cluster(moving(1, 2), moving(2, 3)))
    assert next_one == Abort("t-1 was changed by somebody else", (("t", 0),))
    both = step(plan(((1,), (2,)), ((2,), (1,)), ((2,), (1,))), cluster(at(1), moving(2, 3), moving(2, 3)))
    assert both == Abort("t-1 was changed by somebody else", ())


def test_nothing_more_is_put_on_an_unhealthy_cluster() -> None:
    wanted = plan(((1,), (2,)))
    lagging = LivePartition((1, 2), 1, (1,))
    assert step(wanted, cluster(at(1), lagging)) == Wait("1 partition is under-replicated, first t-1")
    offline = LivePartition((3,), -1, ())
    assert step(wanted, cluster(at(1), offline)) == Wait("1 partition is offline, first t-1")


def test_what_copies_anyway_is_no_sign_of_an_unhealthy_cluster() -> None:
    wanted, other = plan(((1,), (2,)), ((1,), (3,))), LivePartition((1, 3, 2), 1, (1, 2), adding_replicas=(3,))
    # One that others move, and one of ours that the controller has just ended and metadata still shows under way.
    roomy = Limits(movements_per_broker_max=2)
    assert next_step(wanted, cluster(at(2), at(1), other), roomy, worked_ms=0) == Submit({("t", 1): (3,)})
    just_ended = LivePartition((2, 1), 1, (1,))
    assert next_step(wanted, cluster(just_ended, at(1)), roomy, worked_ms=0) == Submit({("t", 1): (3,)})


def test_what_others_copy_counts_towards_the_cap_of_a_broker_unless_it_only_waits_for_one_that_is_away() -> None:
    wanted = plan(((1,), (3,)))
    other = LivePartition((2, 1), 1, (1,), adding_replicas=(2,), removing_replicas=(1,))
    assert isinstance(step(wanted, cluster(at(1), other)), Wait)
    waiting = LivePartition((3, 9), -1, (), adding_replicas=(3,), removing_replicas=(9,))
    relief = plan(((1, 9), (1, 3)))
    lost = LivePartition((1, 9), 1, (1,))
    assert step(relief, cluster(lost, waiting)) == Submit({("t", 0): (1, 3)})


def test_a_leader_is_elected_once_it_is_in_sync() -> None:
    behind = LivePartition((2, 1), 1, (1,))
    next_one = step(plan(((1, 2), (2, 1))), cluster(behind))
    assert next_one == Wait("0 partitions are copying, 1 waits for its leader to be in sync")


def test_a_copied_partition_names_the_brokers_whose_replicas_stay_and_hold_it_up() -> None:
    """Before Kafka 4.3 a reassignment waits for them (KAFKA-19975)."""
    held_up = LivePartition((3, 2, 1), 1, (1, 3), adding_replicas=(3,), removing_replicas=(1,))
    waits = "0 partitions are copying, 0 wait for their leader to be in sync"
    held = "1 partition is copied and waits until Kafka has replicas that stay in sync, on"
    wanted = plan(((1, 2), (3, 2)))
    assert step(wanted, cluster(held_up, brokers=(1, 3))) == Wait(f"{waits}; {held} broker 2 (offline): first t-0")
    assert step(wanted, cluster(held_up)) == Wait(f"{waits}; {held} broker 2: first t-0")
    copying = LivePartition((3, 2, 1), 1, (1,), adding_replicas=(3,), removing_replicas=(1,))
    assert step(wanted, cluster(copying)) == Wait("1 partition is copying, 0 wait for their leader to be in sync")


def test_a_refused_election_ends_the_movement_and_counts_only_with_a_copy() -> None:
    refused = {("t", 0): "PreferredLeaderNotAvailableError"}

    def following(wanted: Plan, live: LiveCluster) -> Step:
        return next_step(wanted, live, LIMITS, worked_ms=0, not_elected=refused)

    copied, led_by_old = plan(((1, 2), (3, 2))), cluster(at(3, 2, leader=2))
    assert following(copied, led_by_old) == Done()
    reordered = plan(((1, 2), (2, 1)))
    assert following(reordered, cluster(at(2, 1, leader=1))) == Abort(
        "1 movement made, 1 keeps its leader, as Kafka refuses the election: t-0 (PreferredLeaderNotAvailableError)",
        (),
    )
    # With another movement that is made, the plan is done; what has not begun can still be done.
    two = plan(((1, 2), (2, 1)), ((1,), (3,)))
    assert following(two, cluster(at(2, 1, leader=1), at(3))) == Done()
    assert following(two, cluster(at(2, 1, leader=1), at(1))) == Submit({("t", 1): (3,)})


def test_what_has_begun_is_brought_to_its_end_while_nothing_new_may_begin() -> None:
    wanted = plan(((1,), (2,)), ((1, 2), (2, 1)), ((1,), (3,)))
    next_one = step(wanted, cluster(moving(1, 2), at(2, 1, leader=1), at(1)), held_back="not now")
    assert next_one == ElectLeaders((("t", 1),))
    next_one = step(wanted, cluster(moving(1, 2), at(2, 1), at(1)), held_back="not now")
    assert next_one == Wait("not now; 1 partition is copying, 0 wait for their leader to be in sync")
    assert step(wanted, cluster(at(2), at(2, 1), at(1)), held_back="not now") == Wait("not now")
    assert step(wanted, cluster(at(2), at(2, 1), at(3)), held_back="not now") == Done()


def test_a_plan_is_not_done_while_a_broker_it_needs_is_away() -> None:
    next_one = step(plan(((1,), (2,)), ((1,), (3,))), cluster(at(2), at(1), brokers=(1, 2)))
    assert next_one == Wait("broker 3 is down")


def test_after_the_deadline_what_is_in_flight_is_cancelled() -> None:
    wanted, live = plan(((1,), (2,))), cluster(moving(1, 2))
    assert isinstance(step(wanted, live, worked_ms=1000), Wait)
    assert step(wanted, live, worked_ms=1001) == Abort("not finished after 0.0 h of work", (("t", 0),))
    late = next_step(wanted, live, Limits(deadline_ms=180_000), worked_ms=180_001)
    assert late == Abort("not finished after 0.1 h of work", (("t", 0),))


def test_a_topic_that_is_gone_does_not_stop_the_rest() -> None:
    assert step(plan(((1,), (2,)), ((1,), (2,))), cluster(at(2))) == Done()


def test_what_differs_from_the_approved_plan_is_named() -> None:
    wanted = plan(((1,), (2,)), ((2,), (4,)), ((1,), (3,)))
    assert differences(wanted, cluster(at(3), at(2))) == (
        "t-0 has replicas [3], planned for [1]",
        "t-1 would go to broker 4, which is not alive",
        "t-2 is gone",
    )
    assert differences(plan(((1,), (2,))), cluster(at(1))) == ()


def test_what_a_plan_rests_on_besides_its_replicas_is_compared_too() -> None:
    wanted = plan(((1, 2), (3, 2)), ((2, 1), (3, 1)))
    seen = Observed.of(wanted, cluster(at(1, 2), at(2, 1)))
    assert changes_since(seen, wanted, cluster(at(1, 2), at(2, 1))) == ()
    assert changes_since(seen, wanted, cluster(at(1, 2, leader=2), at(2, 1), at(1))) == (
        "t-0 is led by broker 2, by broker 1 when planned",
        "t has 3 partitions, 2 when planned",
    )
    # What was moved by the plan itself is led by another broker as planned, and a topic that is gone is told elsewhere.
    assert changes_since(seen, wanted, cluster(at(3, 2), at(2, 1))) == ()
    assert changes_since(seen, wanted, cluster()) == ()


def test_a_plan_to_replace_a_broker_no_longer_fits_once_that_is_back() -> None:
    replacing = plan(((1, 4), (1, 2)), ((2, 4), (4, 2)))
    away, back = (cluster(at(1, 4), at(2, 4), brokers=brokers) for brokers in ((1, 2, 3), (1, 2, 3, 4)))
    seen = Observed.of(replacing, away)
    assert seen.brokers_missing == {4}
    assert changes_since(seen, replacing, away) == ()
    assert changes_since(seen, replacing, back) == ("broker 4 is alive, was away when planned",)
    assert Observed.of(replacing, back).brokers_missing == frozenset()
    written = seen.to_json()
    assert Observed.from_json(written) == seen
    del written["brokers_missing"]  # as an earlier version has written it
    assert changes_since(Observed.from_json(written), replacing, back) == ()
    reordered = plan(((2, 4), (4, 2)))
    assert Observed.of(reordered, away).brokers_missing == frozenset()  # takes nothing from it


def test_a_plan_that_only_replaces_lost_replicas_does_not_wait_for_them() -> None:
    lost = LivePartition((1, 4), 1, (1,))
    only_there = LivePartition((4,), -1, ())
    replacing = plan(((1, 4), (1, 2)))
    assert step(replacing, cluster(lost, only_there)) == Submit({("t", 0): (1, 2)})
    # Another broker's replica is missing as well: that is another matter.
    assert isinstance(step(replacing, cluster(lost, LivePartition((1, 3), 1, (1,)))), Wait)
    # A plan that does more than replace waits, as any other.
    assert isinstance(step(plan(((1, 4), (1, 2)), ((1,), (3,))), cluster(lost, at(1))), Wait)
    # So does one whose broker is back, and catching up.
    assert isinstance(step(replacing, cluster(lost, at(1), brokers=(1, 2, 3, 4))), Wait)


def test_relief_goes_on_whatever_else_the_lost_brokers_held_unless_too_many_are_away() -> None:
    """Disks may have no room for what broker 5 held, so that the plan takes nothing from it."""
    replacing, lost, other = plan(((1, 4), (1, 2))), LivePartition((1, 4), 1, (1,)), LivePartition((1, 5), 1, (1,))
    assert step(replacing, cluster(lost, other)) == Submit({("t", 0): (1, 2)})
    several = [LivePartition((1, broker), 1, (1,)) for broker in (5, 6, 7)]
    next_one = step(replacing, cluster(lost, *several))
    assert next_one == Wait("4 of 7 brokers are away, replicas are re-created while at most 40% are")


def test_a_replica_that_stays_on_a_broker_that_is_away_holds_nothing_up() -> None:
    """A disk has room for one of two lost replicas: the other one stays in the list, even as preferred leader."""
    partial = plan(((4, 1, 5), (4, 1, 2)))
    before, after = LivePartition((4, 1, 5), 1, (1,)), LivePartition((4, 1, 2), 1, (1, 2))
    assert differences(partial, cluster(before)) == ()
    assert step(partial, cluster(before)) == Submit({("t", 0): (4, 1, 2)})
    assert step(partial, cluster(after)) == Done()
    # Once it is back its leadership is a matter of elections again.
    assert progress_of(partial, cluster(after, brokers=(1, 2, 3, 4))) == {("t", 0): Progress.PLACED}


def test_only_what_fits_on_the_disks_is_submitted_and_the_rest_waits_by_name() -> None:
    wanted = plan(((1,), (2,)), ((1,), (2,)), ((1,), (3,)))
    live = cluster(at(1), at(1), at(1))
    sizes = {("t", number): 60 for number in range(3)}

    def submitted(room: RoomLeft) -> Step:
        return next_step(wanted, live, Limits(), worked_ms=0, room=room)

    assert submitted(RoomLeft({2: 100.0, 3: 60.0}, sizes)) == Submit({("t", 0): (2,), ("t", 2): (3,)})
    assert submitted(RoomLeft({2: 120.0, 3: 59.0}, sizes)) == Submit({("t", 0): (2,), ("t", 1): (2,)})
    assert submitted(RoomLeft({2: 0.0, 3: None}, {})) == Wait(
        "3 movements wait for room on disks, first t-0: needs 0 bytes on broker 2, whose disks have room for 0"
    )
    # A size that is not known counts for nothing, on a disk that takes anything at all.
    assert submitted(RoomLeft({2: 1.0, 3: 0.0}, {})) == Submit({("t", 0): (2,), ("t", 1): (2,)})
    silent = RoomLeft({2: 120.0, 3: 60.0}, sizes, frozenset({3}))
    assert submitted(silent) == Submit({("t", 0): (2,), ("t", 1): (2,)})
    assert submitted(RoomLeft({2: 120.0, 3: 60.0}, sizes, frozenset({1}))) == Wait(
        "3 movements wait for room on disks, first t-0: broker 1 did not answer a request for its log dirs"
    )
    few = Limits(movements_in_flight_max=1)
    room = RoomLeft({2: 10.0, 3: 60.0}, sizes)
    assert next_step(wanted, live, few, worked_ms=0, room=room) == Submit({("t", 2): (3,)})


def test_what_an_earlier_process_skipped_waits_until_no_later_wave_copies() -> None:
    """Kafka refused t-0, and the process that knew of it is gone."""
    waves = Plan("c", (Movement("t", 0, (1,), (2,), 1.0, wave=0), Movement("t", 1, (1,), (3,), 1.0, wave=1)))
    roomy = Limits(movements_in_flight_max=9, movements_per_broker_max=9)
    assert next_step(waves, cluster(at(1), moving(1, 3)), roomy, worked_ms=0) == Wait(
        "1 partition is copying, 0 wait for their leader to be in sync"
    )
    assert next_step(waves, cluster(at(1), at(3)), roomy, worked_ms=0) == Submit({("t", 0): (2,)})
