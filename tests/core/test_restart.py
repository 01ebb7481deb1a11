"""Whether a broker may be restarted: against a recount by the rules of Kafka, partition by partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, Reassignment
from assignor_core.restart import RestartCheck, restart_check, restart_checks

BROKERS = {1: "a", 2: "b", 3: "c", 4: None}


@st.composite
def partitions(draw: st.DrawFn) -> LivePartition:
    """Any partition of up to three replicas, some in sync, some of them on the way."""
    replicas = tuple(draw(st.lists(st.sampled_from(sorted(BROKERS)), min_size=1, max_size=3, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    adds, removes = draw(st.tuples(st.booleans(), st.booleans()))
    adding = replicas[:1] if adds and len(replicas) > 1 else ()
    removing = replicas[1:2] if adding and removes else ()
    leader = draw(st.sampled_from(isr)) if isr else NO_LEADER
    return LivePartition(replicas, leader, isr, adding, removing)


def check_of(broker: int, *rows: LivePartition, needed: int = 1, topic: str = "t") -> RestartCheck:
    live = LiveCluster("c", BROKERS, {(topic, number): row for number, row in enumerate(rows)})
    return restart_check(broker, live, {topic: needed})


@pytest.mark.long
@given(st.lists(partitions(), max_size=6), st.sampled_from(sorted(BROKERS)), st.integers(1, 3))
def test_what_a_restart_does_is_what_a_recount_finds(rows: list[LivePartition], broker: int, needed: int) -> None:
    check = check_of(broker, *rows, needed=needed)
    held = {("t", number): row for number, row in enumerate(rows) if broker in row.replicas}
    kept = {key: set(row.isr) - {broker} for key, row in held.items()}
    wanted = {key: min(needed, len(row.replicas)) for key, row in held.items()}
    assert set(check.offline) == {key for key, isr in kept.items() if not isr}
    assert set(check.refusing) == {key for key, isr in kept.items() if 0 < len(isr) < wanted[key]}
    assert set(check.at_edge) == {key for key, isr in kept.items() if isr and len(isr) == wanted[key]}
    assert set(check.single) <= set(check.offline)
    assert (check.replicas, check.leaders) == (len(held), sum(row.leader == broker for row in held.values()))
    is_quiet = not (check.offline or check.refusing or check.behind or check.moving)
    assert (check.stops() == ()) == is_quiet
    live = LiveCluster("c", BROKERS, {("t", number): row for number, row in enumerate(rows)})
    assert restart_checks(live, {"t": needed})[broker] == check


def test_one_replica_out_of_three_may_go_and_of_two_in_sync_not() -> None:
    whole, thin = LivePartition((1, 2, 3), 1, (1, 2, 3)), LivePartition((1, 2, 3), 1, (1, 2))
    assert check_of(1, whole, needed=2).stops() == ()
    assert check_of(1, whole, needed=2).at_edge == (("t", 0),)
    assert check_of(1, thin, needed=2).stops() == (
        "1 partition refusing writes with acks=all: too few replicas stay in sync",
    )
    assert check_of(3, thin, needed=2).stops() == (
        "1 partition behind on this broker: its replica has to catch up first",
    )


def test_partitions_without_a_second_replica_may_be_taken_for_granted() -> None:
    check = check_of(1, LivePartition((1,), 1, (1,)), LivePartition((1, 2), 1, (1,)))
    assert check.single == (("t", 0),)
    assert check.stops()[0] == "2 partitions without a leader: no other replica is in sync"
    assert check.stops(accepts_single=True)[0] == "1 partition without a leader: no other replica is in sync"


def test_kafka_asks_for_no_more_replicas_in_sync_than_there_are() -> None:
    """One of two is left, and a topic that wants three of two replicas in sync accepts two: it refuses then."""
    assert check_of(1, LivePartition((1, 2), 1, (1, 2)), needed=3).refusing == (("t", 0),)
    assert check_of(1, LivePartition((1, 2), 2, (2, 1)), needed=1).at_edge == (("t", 0),)


@pytest.mark.parametrize(("topic", "counts"), [("__consumer_offsets", (2, 0)), ("__transaction_state", (0, 2))])
def test_coordinators_move_with_the_leaders_of_internal_topics(topic: str, counts: tuple[int, int]) -> None:
    row = LivePartition((1, 2, 3), 1, (1, 2, 3))
    check = check_of(1, row, row, LivePartition((2, 1, 3), 2, (1, 2, 3)), topic=topic)
    assert (check.group_coordinators, check.transaction_coordinators) == counts


def test_a_broker_that_takes_part_in_a_reassignment_waits_for_it() -> None:
    moving = LivePartition((4, 1, 2), 1, (1, 2), adding_replicas=(4,), removing_replicas=(1,))
    for broker in (1, 2, 4):
        assert "1 partition being reassigned: wait until that is over" in check_of(broker, moving).stops()
    assert check_of(1, moving).behind == (), "what leaves need not catch up"
    adding = LivePartition((4, 1, 2), 1, (1, 2), adding_replicas=(4,))
    assert check_of(2, adding).moving == (), "nothing that is in sync leaves"


def test_a_replica_in_sync_of_a_broker_that_just_died_saves_nothing() -> None:
    """Broker 9 is in sync in the metadata until it is fenced, and the cluster shows it no more."""
    assert check_of(1, LivePartition((1, 9), 1, (1, 9))).offline == (("t", 0),)


def test_what_is_offline_on_a_broker_that_is_alive_is_never_taken_for_granted() -> None:
    check = check_of(1, LivePartition((1,), NO_LEADER, ()))
    assert check.single == ()
    assert check.stops(accepts_single=True)


def test_a_topic_whose_settings_are_hidden_is_not_safe() -> None:
    """Kafka shows a topic to whoever may describe it, and its settings to whoever may describe configs."""
    check = restart_check(1, LiveCluster("c", BROKERS, {("t", 0): LivePartition((1, 2), 1, (1, 2))}), {"u": 1})
    assert check.unknown == (("t", 0),)
    (line,) = check.stops()
    assert line.startswith("1 partition with min.insync.replicas unknown")


def test_what_is_not_seen_is_not_safe() -> None:
    listed = {("hidden", 0): Reassignment((2, 1), adding_replicas=(2,), removing_replicas=(1,))}
    assert restart_check(1, LiveCluster("c", BROKERS, {}, listed=listed), {}).moving == (("hidden", 0),)
    for live in (
        LiveCluster("c", BROKERS, {}, reassignments_hidden=True),
        LiveCluster("c", BROKERS, {}, hidden_topics=frozenset({"t"})),
    ):
        (line,) = restart_check(1, live, {}).stops()
        assert line.startswith("not all is seen")
