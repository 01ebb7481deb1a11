"""The simulated cluster where real brokers can't judge it: time, disks, and the faults of a client."""

from random import Random

import pytest

from assignor_core.disks import replica_sizes
from assignor_core.errors import InputError
from assignor_core.live import NO_LEADER
from assignor_core.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.simulated_cluster import (
    Fate,
    PlannedFault,
    RequestKind,
    SimulatedClient,
    SimulatedCluster,
    SimulatedRefusal,
    SimulatedSilence,
    plan_faults,
    random_cluster,
    random_faults,
)
from tests.simulated_cluster.replication import SESSION_TIMEOUT_MS

T0 = ("t", 0)
MB = 1_000_000


def cluster(replicas: tuple[int, ...] = (1,), *, size_bytes: int = MB, **options: int) -> SimulatedCluster:
    made = SimulatedCluster.of({1: "a", 2: "b", 3: "c"}, network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    made.create_topic("t", {0: replicas}, size_bytes=size_bytes, **options)
    return made


def moving(target: tuple[int, ...] = (2,)) -> SimulatedCluster:
    made = cluster()
    assert made.reassign({T0: target}) == {T0: None}
    return made


def fail(client: SimulatedClient, fate: Fate, request: RequestKind = RequestKind.REASSIGN, delay_ms: int = 0) -> None:
    client.faults.planned.append(PlannedFault(fate, request, delay_ms))


@pytest.mark.parametrize(
    ("setting", "broker", "listed"), [(LEADER_RATE, 1, LEADER_REPLICAS), (FOLLOWER_RATE, 2, FOLLOWER_REPLICAS)]
)
@pytest.mark.parametrize(("entry", "done_ms"), [("0", 10_000), ("1", 1_000), ("*", 10_000)])
def test_a_throttle_slows_the_copies_that_its_list_names(
    setting: str, broker: int, listed: str, entry: str, done_ms: int
) -> None:
    made = cluster()
    made.set_throttle_rate(broker, setting, 100_000)
    made.set_throttled_replicas("t", listed, entry if entry == "*" else f"{entry}:{broker}")
    made.reassign({T0: (2,)})
    made.advance(done_ms - 250)
    assert made.live_partition(T0).reassigning
    made.advance(250)
    assert made.live_partition(T0).replicas == (2,)


def test_kafka_takes_no_entry_beside_every_replica() -> None:
    made = cluster()
    made.set_throttled_replicas("t", LEADER_REPLICAS, "*")
    assert made.append_throttled_replicas("t", LEADER_REPLICAS, "0:1") == "InvalidConfigurationError"
    with pytest.raises(SimulatedRefusal, match="InvalidConfigurationError"):
        SimulatedClient(made).set_throttled_replicas({"t": frozenset({(0, 1)})}, {})
    assert SimulatedClient(made).throttled_replicas(["t"]) == {("t", LEADER_REPLICAS): "*"}


def test_copies_share_the_limit_they_press_on() -> None:
    made = cluster()
    made.create_topic("u", {0: (1,)}, size_bytes=MB)
    made.reassign({T0: (2,), ("u", 0): (3,)})
    made.advance(1_750)
    assert made.live_partition(T0).reassigning
    made.advance(250)
    assert [made.live_partition(key).replicas for key in (T0, ("u", 0))] == [(2,), (3,)]


@pytest.mark.parametrize(("shortest_step_ms", "done_ms"), [(1, 1_250), (1_000, 1_500)])
def test_with_longer_steps_the_room_of_a_copy_that_has_ended_is_free_a_step_later(
    shortest_step_ms: int, done_ms: int
) -> None:
    made = cluster()
    made.contents.shortest_step_ms = shortest_step_ms
    made.create_topic("u", {0: (1,)}, size_bytes=MB // 4)
    made.reassign({T0: (2,), ("u", 0): (3,)})
    made.advance(1_000)
    assert made.live_partition(("u", 0)).replicas == (3,)
    made.advance(done_ms - 1_001)
    assert made.live_partition(T0).reassigning
    made.advance(1)
    assert made.live_partition(T0).replicas == (2,)


def test_a_partition_that_grows_faster_than_it_is_copied_never_gets_there() -> None:
    made = cluster(bytes_in_per_sec=MB)
    made.reassign({T0: (2,)})
    made.advance(60_000)
    assert made.live_partition(T0).reassigning


def test_retention_bounds_what_is_held_and_copied() -> None:
    made = cluster(size_bytes=0, bytes_in_per_sec=100_000, retention_bytes=500_000)
    made.advance(60_000)
    assert replica_sizes(SimulatedClient(made).log_dirs()) == {(1, T0): 500_000}
    made.reassign({T0: (2,)})
    made.advance(2_000)
    assert made.live_partition(T0).replicas == (2,)


def test_a_full_log_dir_goes_offline_and_takes_its_replicas_along() -> None:
    made = SimulatedCluster.of({1: None, 2: None}, log_dir_bytes=(3 * MB, 3 * MB))
    made.create_topic("t", {0: (1, 2)}, size_bytes=MB, bytes_in_per_sec=100_000)
    made.contents.brokers[1].log_dirs[0].other_bytes = MB
    made.advance(9_750)
    assert made.live_partition(T0).leader == 1
    made.advance(250)
    assert (made.live_partition(T0).leader, made.live_partition(T0).isr) == (2, (2,))
    assert not made.contents.brokers[1].fenced
    assert made.contents.topics["t"].partitions[0].lost_bytes == 0


def test_a_broker_without_a_log_dir_is_gone_until_it_is_repaired() -> None:
    made = cluster((1, 2))
    made.fail_log_dir(1, 0)
    client = SimulatedClient(made)
    assert client.describe().broker_racks.keys() == {2, 3}
    with pytest.raises(InputError, match="has no log dir that is online"):
        made.restart_broker(1)
    made.repair_log_dir(1, 0)
    made.restart_broker(1)
    made.advance(1_000)
    assert set(made.live_partition(T0).isr) == {1, 2}


def test_a_frozen_broker_is_fenced_after_its_session_and_catches_up_after_it() -> None:
    made = cluster((1, 2), bytes_in_per_sec=10_000)
    made.freeze_broker(1)
    made.advance(SESSION_TIMEOUT_MS - 250)
    assert made.live_partition(T0).leader == 1
    made.advance(250)
    assert (made.live_partition(T0).leader, made.live_partition(T0).isr) == (2, (2,))
    made.advance(10_000)
    made.resume_broker(1)
    made.advance(1_000)
    assert set(made.live_partition(T0).isr) == {1, 2}
    assert made.contents.topics["t"].partitions[0].lost_bytes == 0


def test_the_last_in_sync_replica_is_waited_for_and_nothing_is_lost() -> None:
    made = cluster((1, 2), bytes_in_per_sec=10_000)
    made.kill_broker(2)
    made.advance(20_000)
    made.kill_broker(1)
    made.advance(20_000)
    made.restart_broker(2)
    made.advance(20_000)
    assert made.live_partition(T0).leader == NO_LEADER
    made.restart_broker(1)
    made.advance(1_000)
    assert made.live_partition(T0).leader == 1
    assert made.contents.topics["t"].partitions[0].lost_bytes == 0


def test_a_topic_made_again_has_another_id_and_no_throttle() -> None:
    made = moving()
    made.append_throttled_replicas("t", LEADER_REPLICAS, "0:1")
    before = made.contents.topics["t"].topic_id
    made.delete_topic("t")
    made.create_topic("t", {0: (3,)})
    assert made.contents.topics["t"].topic_id != before
    assert SimulatedClient(made).throttled_replicas(["t"]) == {}
    made.grow_topic("t", {1: (2,)})
    assert SimulatedClient(made).describe().partitions["t", 1].replicas == (2,)
    with pytest.raises(InputError, match="t-2: 2 replicas, the topic's first partition has 1"):
        made.grow_topic("t", {2: (2, 3)})


@pytest.mark.parametrize(
    ("fate", "at_once", "later"), [(Fate.LOST, False, False), (Fate.ANSWER_LOST, True, True), (Fate.LATE, False, True)]
)
def test_a_request_without_an_answer_may_have_been_carried_out(fate: Fate, at_once: bool, later: bool) -> None:
    client = SimulatedClient(cluster(size_bytes=1_000 * MB))
    fail(client, fate, delay_ms=60_000)
    with pytest.raises(SimulatedSilence):
        client.reassign({T0: (2,)})
    assert client.describe().partitions[T0].reassigning == at_once
    client.cluster.advance(60_000)
    assert client.describe().partitions[T0].reassigning == later


def test_a_planned_fault_waits_for_its_kind_of_request() -> None:
    client = SimulatedClient(cluster())
    fail(client, Fate.LOST, RequestKind.ELECT)
    client.reassign({T0: (2,)})
    with pytest.raises(SimulatedSilence):
        client.elect_preferred([T0])


def test_one_refused_partition_does_not_stop_the_others() -> None:
    made = cluster()
    made.grow_topic("t", {1: (1,)})
    client = SimulatedClient(made)
    client.faults.refused["t", 0] = "PolicyViolationError"
    with pytest.raises(SimulatedRefusal, match="1 reassignment refused, first t-0: PolicyViolationError"):
        client.reassign({T0: (2,), ("t", 1): (3,)})
    assert made.live_partition(("t", 1)).reassigning


def test_metadata_lags_while_the_list_of_reassignments_is_current() -> None:
    client = SimulatedClient(cluster())
    client.faults.metadata_lag_ms = 5_000
    assert client.describe().partitions[T0].replicas == (1,)
    client.reassign({T0: (2,)})
    assert client.describe().partitions[T0].replicas == (2, 1)
    client.cluster.advance(2_000)
    assert client.describe().partitions[T0].replicas == (1,)  # it has ended, but the broker doesn't know yet
    client.cluster.advance(5_000)
    assert client.describe().partitions[T0].replicas == (2,)


def test_topics_are_left_out_without_the_right_to_describe_and_another_cluster_answers() -> None:
    client = SimulatedClient(cluster())
    client.faults.hidden_topics.add("t")
    assert client.describe().partitions == {}
    client.connect(SimulatedCluster.of({7: None}, cluster_id="another"))
    assert (client.describe().cluster_id, client.describe().broker_racks) == ("another", {7: None})


def test_nothing_is_changed_by_who_may_not_act() -> None:
    class NotAllowedError(Exception):
        pass

    def refuse() -> None:
        raise NotAllowedError

    client = SimulatedClient(cluster(), may_act=refuse)
    for change in (
        lambda: client.reassign({T0: (2,)}),
        lambda: client.elect_preferred([T0]),
        lambda: client.set_throttle_rates({1: 5}),
        lambda: client.set_throttled_replicas({"t": frozenset({(0, 1)})}, {}),
        lambda: client.clear_throttle([1], {}, {}),
    ):
        with pytest.raises(NotAllowedError):
            change()
    assert not client.describe().reassigning()


STORY_MS = 120_000


def played(seed: int) -> SimulatedCluster:
    """A story of faults, checked every five seconds; the cluster at its end."""
    made = _with_faults(seed)
    for _ in range(0, STORY_MS, 5_000):
        made.advance(5_000)
        check_sound(made)
    return made


def check_sound(made: SimulatedCluster) -> None:
    for key, row in made.contents.partitions():
        assert len(set(row.replicas)) == len(row.replicas) > 0, key
        assert row.copies.keys() == set(row.replicas), key
        assert set(row.isr) | set(row.adding_replicas) | set(row.removing_replicas) <= set(row.replicas), key
        assert row.leader == NO_LEADER or row.leader in row.isr, key
        assert not set(row.isr) & set(row.eligible_leaders), key
        assert all(copy.end_bytes <= row.end_bytes for copy in row.copies.values()), key
        assert row.acknowledged_bytes <= row.end_bytes, key
        assert row.lost_bytes == 0, key


@pytest.mark.long
def test_whatever_a_watcher_judges_changes_only_where_the_cluster_counts_a_change() -> None:
    for seed in range(20):
        random = Random(seed)
        made = random_cluster(random)
        plan_faults(made, random_faults(random, made, duration_ms=STORY_MS))
        keys = sorted(dict(made.contents.partitions()))
        before: tuple[int, object] = (-1, None)
        for _ in range(0, STORY_MS, 500):
            if random.random() < 0.02:
                made.reassign({random.choice(keys): tuple(random.sample(sorted(made.contents.brokers), 2))})
            if random.random() < 0.02:
                made.elect_preferred([random.choice(keys)])
            made.advance(500)
            seen = (made.contents.changes, watched(made))
            assert seen[0] != before[0] or seen[1] == before[1], f"seed {seed} at {made.now_ms} ms"
            before = seen


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 40, 20))
def test_a_look_shows_the_bytes_of_now_and_changes_nothing(first: int) -> None:
    """Bytes at rest are moved when somebody looks: whoever looks at every step sees what one who looks once sees."""
    for seed in range(first, first + 20):
        watched_cluster, left_alone = (_with_faults(seed) for _ in range(2))
        for _ in range(0, STORY_MS, 700):
            watched_cluster.advance(700)
            assert watched_cluster.contents.bytes_ms == watched_cluster.now_ms
            left_alone.advance(700)
        assert left_alone.contents == watched_cluster.contents, f"seed {seed}"


def _with_faults(seed: int) -> SimulatedCluster:
    random = Random(seed)
    made = random_cluster(random)
    plan_faults(made, random_faults(random, made, duration_ms=STORY_MS))
    return made


def watched(made: SimulatedCluster) -> object:
    """What metadata shows, and what disks and records suffer."""
    return (
        {key: (row.live(), row.lost_bytes, frozenset(row.copies)) for key, row in made.contents.partitions()},
        {row.broker_id: (row.fenced, [one.offline for one in row.log_dirs]) for row in made.contents.brokers.values()},
    )


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_stories_keep_the_cluster_sound_and_lose_nothing_that_was_acknowledged(first: int) -> None:
    for seed in range(first, first + 20):
        made = played(seed)
        made.advance(60_000)
        for broker_id, broker in made.contents.brokers.items():
            full = all(log_dir.offline for log_dir in broker.log_dirs)
            assert broker.running or full, f"seed {seed}: broker {broker_id} is {broker.status}"


def test_a_seed_tells_the_same_story_twice() -> None:
    assert played(7).contents == played(7).contents
    assert played(7).contents != played(8).contents


def test_a_reassignment_that_an_added_replica_leads_is_not_cancelled_and_ends_by_another_target() -> None:
    """The other added replica and all old ones have failed: relief waits until an operator asks for brokers that live
    (docs/execution.md, "A reassignment that an added replica leads").
    """
    made = SimulatedCluster.of(dict.fromkeys(range(1, 6)), network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    made.create_topic("t", {0: (1, 2)}, size_bytes=MB)
    made.reassign({T0: (3, 4)})
    made.kill_broker(4)
    made.advance(60_000)
    for broker in (1, 2):
        made.kill_broker(broker)
    made.advance(2 * SESSION_TIMEOUT_MS)
    client = SimulatedClient(made)
    before = client.describe().partitions[T0]
    assert (before.leader, before.isr, before.adding_replicas, before.removing_replicas) == (3, (3,), (3, 4), (1, 2))
    assert client.describe().reassigning() - client.describe().waiting_for_brokers() == {T0}
    assert made.reassign({T0: None}) == {T0: "InvalidReplicationAssignmentError"}
    assert made.reassign({T0: (3, 5)}) == {T0: None}
    made.advance(60_000)
    after = client.describe().partitions[T0]
    assert (after.replicas, after.reassigning, sorted(after.isr)) == ((3, 5), False, [3, 5])
