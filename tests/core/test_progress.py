"""What belongs to an execution and what to somebody else; what one look can't prove."""

from dataclasses import replace

import pytest

from assignor_core.execution.progress import (
    MISSING_SNAPSHOTS_MIN,
    NO_SNAPSHOTS,
    UNLISTED_SNAPSHOTS_MAX,
    UNSHOWN_SNAPSHOTS_MAX,
    Progress,
    progress_of,
)
from assignor_core.execution.reconcile import Abort, Done, Limits, Submit, Wait, next_step
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.plan import Movement, Plan
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

T0 = ("t", 0)


def plan(old: tuple[int, ...], new: tuple[int, ...]) -> Plan:
    return Plan("c", (Movement("t", 0, old, new, 1.0),))


def at(*replicas: int) -> LiveCluster:
    return LiveCluster("c", dict.fromkeys(range(1, 10)), {T0: LivePartition(replicas, replicas[0], replicas)})


def copying(old: tuple[int, ...], target: tuple[int, ...]) -> LiveCluster:
    """A cluster whose partition is on its way from `old` to `target`, as Kafka shows it."""
    cluster = SimulatedCluster.of(dict.fromkeys(range(1, 6)))
    cluster.create_topic("t", {0: old}, size_bytes=10**12)
    assert cluster.reassign({T0: target}) == {T0: None}
    return SimulatedClient(cluster).describe()


def state(made: Plan, live: LiveCluster, *, staged: bool = False) -> Progress:
    return progress_of(made, live, staged=staged)[T0]


def test_a_reassignment_to_replicas_between_is_ours_only_if_moves_are_staged() -> None:
    made, live = plan((1, 2, 3), (4, 5, 3)), copying((1, 2, 3), (1, 4, 3))
    assert state(made, live) is Progress.FOREIGN
    assert next_step(made, live, Limits(), worked_ms=0) == Abort("t-0 was changed by somebody else", ())
    assert state(made, live, staged=True) is Progress.MOVING
    assert progress_of(made, live) == {T0: Progress.FOREIGN}
    # The whole way is ours in both.
    for staged in (False, True):
        assert state(made, copying((1, 2, 3), (4, 5, 3)), staged=staged) is Progress.MOVING


def test_a_staged_step_exchanges_one_replica() -> None:
    made = plan((1, 2, 3), (4, 5, 3))
    assert state(made, copying((1, 2, 3), (1, 4, 5, 3)), staged=True) is Progress.FOREIGN
    assert state(made, copying((1, 2, 3), (1, 3)), staged=True) is Progress.FOREIGN
    assert state(plan((1, 2, 3, 4), (5, 3, 4, 2)), copying((1, 2, 3, 4), (2, 3, 4, 5)), staged=True) is Progress.FOREIGN


@pytest.mark.parametrize("staged", [False, True])
def test_a_replication_factor_that_somebody_raised_is_no_move_of_ours(staged: bool) -> None:
    made = plan((1, 2), (3, 2))
    assert state(made, at(1, 2, 3), staged=staged) is Progress.FOREIGN
    assert state(made, at(3, 2, 4), staged=staged) is Progress.FOREIGN
    # The target first, then what goes: a moment ago it was copying.
    assert state(made, at(3, 2, 1), staged=staged) is Progress.MOVING


@pytest.mark.parametrize(
    ("old", "new", "target", "staged"),
    [
        ((1, 2), (2, 3), (2, 3), False),
        ((1, 2, 3), (3, 4, 5), (3, 4, 5), False),
        ((1, 2, 3), (4, 5, 3), (4, 2, 3), True),
        ((1, 2, 3), (4, 5, 3), (1, 4, 3), True),
    ],
)
def test_a_move_that_was_cancelled_can_be_begun_again(
    old: tuple[int, ...], new: tuple[int, ...], target: tuple[int, ...], staged: bool
) -> None:
    """Kafka leaves the old replicas in the order of the reassignment: what it kept, then what it would have removed."""
    cluster = SimulatedCluster.of(dict.fromkeys(range(1, 6)))
    cluster.create_topic("t", {0: old}, size_bytes=10**12)
    assert cluster.reassign({T0: target}) == {T0: None}
    assert cluster.reassign({T0: None}) == {T0: None}
    live = SimulatedClient(cluster).describe()
    assert sorted(live.partitions[T0].replicas) == sorted(old)
    assert state(plan(old, new), live, staged=staged) is Progress.PENDING


def test_another_order_of_the_old_replicas_is_somebody_elses() -> None:
    assert state(plan((1, 2, 3), (3, 4, 5)), at(2, 1, 3)) is Progress.FOREIGN


def test_metadata_a_moment_behind_shows_the_target_and_then_what_went() -> None:
    made = plan((1, 2, 3), (4, 5, 3))
    assert state(made, at(4, 5, 3, 1, 2)) is Progress.MOVING
    assert state(made, at(4, 5, 3, 1)) is Progress.FOREIGN
    assert state(made, at(1, 4, 3, 2)) is Progress.FOREIGN
    assert state(made, at(1, 4, 3, 2), staged=True) is Progress.MOVING
    assert NO_SNAPSHOTS.after(made, at(1, 4, 3, 2), staged=True).unlisted == {T0: 1}
    assert NO_SNAPSHOTS.after(made, at(1, 4, 3, 2)) == NO_SNAPSHOTS
    assert state(made, at(4, 5, 3, 1), staged=True) is Progress.MOVING
    assert state(made, at(1, 4, 3, 9), staged=True) is Progress.FOREIGN


def test_nine_looks_that_miss_a_partition_are_too_few_and_ten_are_enough() -> None:
    """The other movement is made: were the missing one taken for gone at once, the plan would end as done."""
    made = Plan("c", (Movement("t", 0, (1,), (2,), 1.0), Movement("u", 0, (1,), (2,), 1.0)))
    live, looks, steps = at(2), NO_SNAPSHOTS, []
    for _ in range(10):
        looks = looks.after(made, live)
        steps.append(next_step(made, live, Limits(), worked_ms=0, past=looks))
    assert [isinstance(step, Wait) for step in steps] == [True] * 9 + [False]
    assert isinstance(steps[0], Wait)
    assert steps[0].reason.startswith("1 partition is not in the cluster's metadata")
    assert steps[-1] == Done()
    # It is seen again: the count begins anew.
    both = LiveCluster("c", live.broker_racks, dict.fromkeys((T0, ("u", 0)), live.partitions[T0]))
    assert looks.after(made, both) == NO_SNAPSHOTS


def test_what_may_not_be_described_is_never_gone() -> None:
    """Asked by name, Kafka says so: the topic may be there, or not."""
    made = plan((1, 2), (3, 2))
    live = LiveCluster("c", {1: None}, {}, hidden_topics=frozenset({"t"}))
    looks = NO_SNAPSHOTS
    for _ in range(3 * MISSING_SNAPSHOTS_MIN):
        looks = looks.after(made, live)
        assert progress_of(made, live, past=looks) == {T0: Progress.MISSING}
    for _ in range(MISSING_SNAPSHOTS_MIN - 1):
        looks = looks.after(made, replace(live, hidden_topics=frozenset()))
    assert progress_of(made, live, past=looks) == {T0: Progress.GONE}


def test_a_wave_does_not_begin_on_one_look_that_misses_the_wave_before() -> None:
    made = Plan("c", (Movement("u", 0, (1,), (2,), 1.0), Movement("t", 0, (1,), (2,), 1.0, wave=1)))
    looks = NO_SNAPSHOTS.after(made, at(1))
    assert isinstance(next_step(made, at(1), Limits(), worked_ms=0, past=looks), Wait)


def test_what_kafka_has_taken_is_not_asked_for_again_before_metadata_has_had_time_to_show_it() -> None:
    made, looks = plan((1, 2), (2, 1)), NO_SNAPSHOTS.taken({T0: (2, 1)})
    for _ in range(UNSHOWN_SNAPSHOTS_MAX):
        looks = looks.after(made, at(1, 2))
        assert progress_of(made, at(1, 2), past=looks) == {T0: Progress.MOVING}
    assert progress_of(made, at(1, 2), past=looks.after(made, at(1, 2))) == {T0: Progress.PENDING}


def test_what_a_reassignment_has_left_is_waited_for_whoever_asked_for_it() -> None:
    """Metadata may show the replicas of before it for a moment: nothing of the plan rests on these."""
    made, foreign = plan((1, 2), (3, 2)), copying((1, 2), (4, 5))
    looks = NO_SNAPSHOTS.after(made, foreign).after(made, at(1, 2))
    assert progress_of(made, at(1, 2), past=looks) == {T0: Progress.MOVING}
    assert progress_of(made, at(4, 5), past=looks.after(made, at(4, 5))) == {T0: Progress.FOREIGN}


def test_what_was_made_counts_anew_once_a_late_request_has_changed_it() -> None:
    """A wave that waits for it does not begin on metadata that still shows it made."""
    made = plan((1, 2), (3, 2))
    looks = NO_SNAPSHOTS.after(made, copying((3, 2), (1, 2))).after(made, at(3, 2))
    assert progress_of(made, at(3, 2), past=looks) == {T0: Progress.MOVING}
    assert progress_of(made, at(1, 2), past=looks.after(made, at(1, 2))) == {T0: Progress.PENDING}


def test_a_staged_move_goes_on_once_metadata_shows_its_step() -> None:
    made = plan((1, 2, 3), (4, 5, 3))
    looks = NO_SNAPSHOTS.after(made, copying((1, 2, 3), (1, 4, 3)), staged=True)
    before, step = at(1, 2, 3), at(1, 4, 3)
    assert progress_of(made, before, staged=True, past=looks.after(made, before)) == {T0: Progress.MOVING}
    assert progress_of(made, step, staged=True, past=looks.after(made, step)) == {T0: Progress.PENDING}


def test_a_moment_behind_does_not_last_for_hours() -> None:
    made, live, looks = plan((1, 2), (3, 2)), at(3, 2, 1), NO_SNAPSHOTS
    for _ in range(UNLISTED_SNAPSHOTS_MAX):
        looks = looks.after(made, live)
        assert isinstance(next_step(made, live, Limits(), worked_ms=0, past=looks), Wait)
    looks = looks.after(made, live)
    assert next_step(made, live, Limits(), worked_ms=0, past=looks) == Abort("t-0 was changed by somebody else", ())
    # One look that shows the move listed, or made, and the count begins anew.
    assert looks.after(made, at(3, 2)) == NO_SNAPSHOTS


def test_what_one_look_misses_still_counts_as_in_flight() -> None:
    cluster = SimulatedCluster.of(dict.fromkeys(range(1, 6)))
    for topic in ("t", "u"):
        cluster.create_topic(topic, {0: (1,)}, size_bytes=10**9)
    client = SimulatedClient(cluster)
    made = Plan("c", tuple(Movement(topic, 0, (1,), (2,), 1.0) for topic in ("t", "u")))
    client.reassign({("t", 0): (2,)})
    client.faults.hidden_topics.add("t")
    live = client.describe()
    looks = NO_SNAPSHOTS.after(made, live)
    assert isinstance(next_step(made, live, Limits(movements_in_flight_max=1), worked_ms=0, past=looks), Wait)
    assert isinstance(next_step(made, live, Limits(movements_per_broker_max=1), worked_ms=0, past=looks), Wait)
    step = next_step(made, live, Limits(), worked_ms=0, past=looks)
    assert step == Submit({("u", 0): (2,)})


def test_what_the_controller_lists_as_moving_is_never_gone() -> None:
    """The right to describe the topic was taken away: metadata leaves it out, and the copy goes on."""
    cluster = SimulatedCluster.of(dict.fromkeys(range(1, 6)))
    cluster.create_topic("t", {0: (1,)}, size_bytes=10**11)
    client = SimulatedClient(cluster)
    made = plan((1,), (2,))
    client.reassign({T0: (2,)})
    client.faults.hidden_topics.add("t")
    looks = NO_SNAPSHOTS
    for _ in range(3 * MISSING_SNAPSHOTS_MIN):
        live = client.describe()
        looks = looks.after(made, live)
        assert progress_of(made, live, past=looks)[T0] is Progress.MISSING
        assert isinstance(next_step(made, live, Limits(), worked_ms=0, past=looks), Wait)
    cluster.advance(2_000_000)
    live = client.describe()
    assert progress_of(made, live, past=looks.after(made, live))[T0] is Progress.GONE


def test_a_new_leader_that_is_away_has_not_been_elected() -> None:
    away = LiveCluster("c", dict.fromkeys((1, 2)), {T0: LivePartition((3, 2), 2, (2,))})
    assert state(plan((1, 2), (3, 2)), away) is Progress.PLACED
    assert state(plan((2, 3), (3, 2)), away) is Progress.PLACED
    # It was the first before, and nobody can elect it.
    assert state(plan((3, 1), (3, 2)), away) is Progress.DONE


def test_what_is_refused_is_skipped_unless_it_is_on_its_way() -> None:
    made = plan((1, 2), (3, 2))
    refused = {T0: "PolicyViolationError", ("other", 0): "PolicyViolationError"}
    for live, expected, not_elected in (
        (at(1, 2), Progress.SKIPPED, Progress.PENDING),
        (copying((1, 2), (3, 2)), Progress.MOVING, Progress.MOVING),
        (LiveCluster("c", {}, {T0: LivePartition((3, 2), 2, (2, 3))}), Progress.PLACED, Progress.NOT_ELECTED),
        (at(3, 2), Progress.DONE, Progress.DONE),
    ):
        assert progress_of(made, live, refused=refused) == {T0: expected}
        assert progress_of(made, live, not_elected=refused) == {T0: not_elected}
