"""Executions one after the other, and what of them survives a request that fails.

The cluster is only described. Time is what a test says.
"""

import shutil
from pathlib import Path

import pytest

from assignor_core.execution.events import Event
from assignor_core.execution.progress import MISSING_SNAPSHOTS_MIN, UNSHOWN_SNAPSHOTS_MAX
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.throttles import LEADER_RATE, tagged
from streaming.cluster.ports import ControlledCluster
from streaming.control.carrier import Carrier
from streaming.control.cluster_snapshot import ExecutionSnapshot
from streaming.control.executor import Executor
from streaming.control.journal import ExecutionRecord
from streaming.control.replica_moves import ABORT_CONFIRMATIONS
from streaming.control.requests import CANCEL_TRIES_MAX
from streaming.control.run import ENDED_READ_INTERVAL_MS, ControlLoop
from streaming.control.sweeping import READ_INTERVAL_MS, Sweeper
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import ClusterRequestFailed, LeaseLost, TableUnavailable
from streaming.settings import Settings
from tests.control.noted_cluster import (
    NOON_MS,
    SKEW,
    NotedCluster,
    another_cluster,
    approve,
    approve_plan,
    carrier,
    plan,
)
from tests.simulated_cluster import SimulatedCluster

HOUR_MS = 3_600_000


@pytest.fixture
def on_disk(tmp_path: Path) -> Settings:
    return Settings.model_validate({"storage": {"tables": str(tmp_path / "tables")}})


def begun(settings: Settings, cluster: ControlledCluster, partition: int, *, now_ms: int = NOON_MS) -> ExecutionRecord:
    """One whose start was written by a process that was killed right after."""
    journal = journal_of(settings)
    record = approve(journal, partition, now_ms=now_ms)
    assert executor_of(cluster, journal, settings).begin(record, journal.plan(record.execution.plan_id), now_ms=now_ms)
    return record


def events(settings: Settings, record: ExecutionRecord) -> list[str]:
    return [event.event for event in journal_of(settings).execution(record.execution.execution_id).events]


def begun_in_a_window(settings: Settings) -> tuple[NotedCluster, Executor[ExecutionSnapshot], ExecutionRecord, Plan]:
    """One that runs from 12 to 13 and from 14 to 15 only, begun at noon."""
    control = {"maintenance_windows": ["12:00-13:00", "14:00-15:00"]}
    own = Settings.model_validate({**settings.model_dump(), "control": control})
    cluster, journal = NotedCluster(), journal_of(own)
    executor = executor_of(cluster, journal, own)
    approved = plan(journal, 0)
    record = ExecutionRecord(journal.approve(approved, "a test", now_ms=NOON_MS, in_windows_only=True))
    assert executor.begin(record, approved, now_ms=NOON_MS)
    return cluster, executor, record, approved.plan


def tick_while_it_fails(loop: ControlLoop, *, now_ms: int) -> None:
    with pytest.raises(ClusterRequestFailed):
        loop.tick(now_ms=now_ms)


def test_an_abort_is_heard_where_the_throttle_cannot_be_set(settings: Settings) -> None:
    cluster = NotedCluster(throttles_refused=True)
    journal = journal_of(settings)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    record = approve(journal, 0)
    tick_while_it_fails(loop, now_ms=NOON_MS)
    tick_while_it_fails(loop, now_ms=NOON_MS + 1_000)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)  # a start doesn't fail of it either
    tick_while_it_fails(loop, now_ms=NOON_MS + 2_000)
    journal.request_abort(record.execution, "a person", now_ms=NOON_MS)
    assert not loop.tick(now_ms=NOON_MS + 3_000)
    assert events(settings, record) == ["approved", "started", "aborted"]
    assert cluster.changes == ["clear"]


def test_the_deadline_is_kept_where_the_throttle_cannot_be_set(settings: Settings) -> None:
    cluster = NotedCluster(throttles_refused=True)
    record = begun(settings, cluster, 0)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    late_ms = NOON_MS + settings.control.execution_deadline_ms
    tick_while_it_fails(loop, now_ms=late_ms)
    for look in range(ABORT_CONFIRMATIONS):
        loop.tick(now_ms=late_ms + 1_000 + look)
    assert events(settings, record) == ["approved", "started", "progress", "aborted"]
    assert cluster.changes == ["clear"]


def both_partitions(settings: Settings, cluster: NotedCluster) -> tuple[Carrier, ExecutionRecord]:
    """An approved plan for t-0 and t-1, and who carries it out."""
    made = Plan("c", (Movement("t", 0, (1,), (2,), 5.0), Movement("t", 1, (1,), (3,), 5.0)), SKEW, SKEW)
    journal = journal_of(settings)
    record = approve_plan(journal, made)
    return carrier(settings, cluster), record


def test_a_partition_that_a_policy_refuses_does_not_stop_the_rest(settings: Settings) -> None:
    cluster = NotedCluster(moves=True)
    cluster.faults.refused[("t", 0)] = "PolicyViolationError"
    one, record = both_partitions(settings, cluster)
    for look in range(5):
        one.tick(now_ms=NOON_MS + look)
    end = journal_of(settings).execution(record.execution.execution_id).last
    assert (end.event, end.detail) == ("done", "1 movement made, 1 skipped: t-0 (PolicyViolationError)")
    assert cluster.describe().partitions["t", 1].replicas == (3,)
    assert cluster.throttle_rates() == {}
    assert cluster.changes.count("move t-0, t-1") == 1


def test_a_refusal_that_may_pass_is_tried_again(settings: Settings) -> None:
    cluster = NotedCluster(moves=True)
    cluster.faults.refused[("t", 0)] = "UnknownServerError"
    one, record = both_partitions(settings, cluster)
    for look in range(5):
        one.tick(now_ms=NOON_MS + look)
    cluster.faults.refused.clear()
    for look in range(5, 8):
        one.tick(now_ms=NOON_MS + look)
    end = journal_of(settings).execution(record.execution.execution_id).last
    assert (end.event, end.detail) == ("done", "every movement has been made")


def test_a_broker_that_was_away_takes_the_throttle_once_it_is_back(settings: Settings) -> None:
    own = Settings.model_validate({**settings.model_dump(), "control": {"throttle_adaptive": False}})
    cluster = NotedCluster()
    record = begun(own, cluster, 0)
    cluster.cluster.kill_broker(2)
    cluster.cluster.advance(10_000)
    carried = carrier(own, cluster)
    carried.tick(now_ms=NOON_MS)
    assert cluster.throttle_rates().keys() == {1}
    cluster.cluster.restart_broker(2)
    for second in range(1, 4):
        carried.tick(now_ms=NOON_MS + second * 1_000)
    assert cluster.throttle_rates().keys() == {1, 2}
    assert record.execution.throttled_brokers == (1, 2)


def test_an_abort_ends_where_kafka_refuses_the_way_back(settings: Settings) -> None:
    """Broker 2 has caught up and is the only one in sync, 3 never will: the way back to broker 1 would lose records."""
    cluster, journal = NotedCluster(), journal_of(settings)
    cluster.cluster.create_topic("u", {0: (1,)}, size_bytes=1_000_000)
    made = Plan("c", (Movement("u", 0, (1,), (2, 3), 5.0),), SKEW, SKEW)
    record = approve_plan(journal, made)
    executor = executor_of(cluster, journal, settings)
    assert executor.begin(record, journal.plan(made.plan_id), now_ms=NOON_MS)
    assert not executor.tick(record, made, now_ms=NOON_MS)
    for broker in (3, 1):
        cluster.cluster.kill_broker(broker)
        cluster.cluster.advance(60_000)
    assert cluster.describe().partitions["u", 0].isr == (2,)
    journal.request_abort(record.execution, "a person", now_ms=NOON_MS)
    record.execution = journal.execution(record.execution.execution_id)
    for _ in range(CANCEL_TRIES_MAX - 1):
        assert not executor.tick(record, made, now_ms=NOON_MS)
    assert executor.tick(record, made, now_ms=NOON_MS)
    assert record.execution.last_event == "aborted"
    assert record.execution.last.detail == (
        "a person asked to stop; 0 moves in flight cancelled, 1 go on without a throttle, as Kafka refuses to cancel: "
        "u-0 (InvalidReplicationAssignmentError)"
    )
    assert (cluster.throttle_rates(), cluster.throttled_replicas(["u"])) == ({}, {})
    assert record.execution.throttled_brokers == (1, 3)  # to be swept


def without_the_topic() -> SimulatedCluster:
    """What answers at the address has the right id and the right brokers, and not the topic of the plan."""
    return SimulatedCluster.of({1: None, 2: None, 3: None}, cluster_id="c")


def test_nine_looks_at_wrong_metadata_end_nothing(settings: Settings) -> None:
    """Each of them shows all partitions of the plan as gone, and no request by name says that they are hidden."""
    cluster = NotedCluster()
    one, record = both_partitions(settings, cluster)
    one.tick(now_ms=NOON_MS)
    right = cluster.cluster
    cluster.connect(without_the_topic())
    for look in range(1, 10):
        one.tick(now_ms=NOON_MS + 1_000 * look)
        assert not journal_of(settings).execution(record.execution.execution_id).ended, look
    cluster.connect(right)
    right.advance(1_000)
    one.tick(now_ms=NOON_MS + 10_000)
    assert events(settings, record)[-1] == "done"


def test_a_topic_that_may_not_be_described_for_long_is_waited_for(settings: Settings) -> None:
    cluster = NotedCluster()
    one, record = both_partitions(settings, cluster)
    one.tick(now_ms=NOON_MS)
    cluster.faults.hidden_topics.add("t")
    cluster.cluster.advance(1_000)
    for look in range(1, 5 * MISSING_SNAPSHOTS_MIN):
        one.tick(now_ms=NOON_MS + 1_000 * look)
    last = journal_of(settings).execution(record.execution.execution_id).last
    assert last.event == "progress"
    assert last.detail.startswith("2 partitions are not in the cluster's metadata")
    cluster.faults.hidden_topics.clear()
    one.tick(now_ms=NOON_MS + 60_000)
    assert events(settings, record)[-1] == "done"


def test_a_plan_whose_partitions_are_all_gone_is_never_done(settings: Settings) -> None:
    cluster = NotedCluster()
    one, record = both_partitions(settings, cluster)
    one.tick(now_ms=NOON_MS)
    cluster.cluster.delete_topic("t")
    looks = 0
    while not journal_of(settings).execution(record.execution.execution_id).ended:
        looks += 1
        one.tick(now_ms=NOON_MS + looks)
    assert looks == MISSING_SNAPSHOTS_MIN + ABORT_CONFIRMATIONS - 1
    end = journal_of(settings).execution(record.execution.execution_id).last
    assert end.event == "aborted"
    assert end.detail.startswith("0 movements made, 2 partitions are gone")


def on_cluster_c(settings: Settings, cluster: NotedCluster) -> ExecutionRecord:
    """The approval of a plan that names the Kafka cluster it was made on."""
    made, journal = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),), SKEW, SKEW), journal_of(settings)
    return approve_plan(journal, made, live=cluster.describe())


OTHER = "the brokers are Kafka cluster d, the plan is for Kafka cluster c"


def test_another_cluster_behind_the_same_address_takes_no_plan(settings: Settings) -> None:
    cluster = NotedCluster()
    record = on_cluster_c(settings, cluster)
    cluster.connect(another_cluster())
    carrier(settings, cluster).tick(now_ms=NOON_MS)
    end = journal_of(settings).execution(record.execution.execution_id).last
    assert (end.event, end.detail) == ("refused", f"the cluster has changed since the plan was made: {OTHER}")
    assert cluster.changes == []


@pytest.mark.parametrize("restarted", [False, True])
def test_another_cluster_on_the_way_is_left_alone_until_the_right_one_is_back(
    settings: Settings, restarted: bool
) -> None:
    cluster = NotedCluster()
    record, right = on_cluster_c(settings, cluster), cluster.cluster
    one = carrier(settings, cluster)
    one.tick(now_ms=NOON_MS)
    cluster.connect(another_cluster())
    cluster.changes.clear()
    one = carrier(settings, cluster) if restarted else one
    one.tick(now_ms=NOON_MS + 60_000)
    last = journal_of(settings).execution(record.execution.execution_id).last
    assert (last.event, last.detail) == ("progress", f"held: {OTHER}")
    assert cluster.changes == []
    right.advance(1_000)
    cluster.connect(right)
    one.tick(now_ms=NOON_MS + 61_000)
    assert events(settings, record)[-1] == "done"


def test_who_stops_an_execution_on_another_cluster_touches_nothing_there(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    record, one = on_cluster_c(settings, cluster), carrier(settings, cluster)
    one.tick(now_ms=NOON_MS)
    cluster.connect(another_cluster())
    cluster.changes.clear()
    journal.request_abort(record.execution, "a person", now_ms=NOON_MS)
    one.tick(now_ms=NOON_MS + 1_000)
    ended = journal.execution(record.execution.execution_id)
    stays = "what is in flight or throttled on the cluster of the execution stays"
    assert ended.last.detail == f"a person asked to stop; {OTHER}: {stays}"
    assert (ended.last_event, ended.owes, cluster.changes) == ("aborted", False, [])


def test_a_throttle_is_not_swept_from_another_cluster(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    record = on_cluster_c(settings, cluster)
    journal.write_event(record, Event.ABORTED, "broker 2 was down", now_ms=NOON_MS, throttled_brokers=(2,))
    right, other = cluster.cluster, another_cluster()
    other.set_throttle_rate(2, LEADER_RATE, 5)  # somebody's own
    cluster.connect(other)
    sweeper = Sweeper(cluster, journal)
    assert not sweeper.sweep(record, now_ms=NOON_MS)
    assert cluster.throttle_rates() == {2: {LEADER_RATE: 5}}
    cluster.connect(right)
    assert sweeper.sweep(record, now_ms=NOON_MS + READ_INTERVAL_MS)


@pytest.mark.parametrize("later_ms", [READ_INTERVAL_MS, -HOUR_MS], ids=["now and then", "the clock is set back"])
def test_a_broker_that_is_away_is_looked_at_now_and_then_and_swept_once_it_is_back(
    settings: Settings, later_ms: int
) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    record = on_cluster_c(settings, cluster)
    journal.write_event(record, Event.ABORTED, "broker 2 was down", now_ms=NOON_MS, throttled_brokers=(2,))
    cluster.cluster.kill_broker(2)
    cluster.cluster.advance(60_000)
    cluster.changes.clear()
    sweeper = Sweeper(cluster, journal)
    assert not any(sweeper.sweep(record, now_ms=NOON_MS + after_ms) for after_ms in range(0, READ_INTERVAL_MS, 1_000))
    assert cluster.changes == ["clear"], "a look describes the whole cluster"
    cluster.cluster.restart_broker(2)
    cluster.cluster.advance(60_000)
    assert sweeper.sweep(record, now_ms=NOON_MS + later_ms)
    assert (record.execution.last_event, record.execution.owes) == ("swept", False)


def test_a_throttle_that_another_process_has_left_is_swept_by_a_control_that_runs(settings: Settings) -> None:
    """A former holder of the lease has written the end: it changed nothing, so it was not asked for its lease."""
    cluster, journal = NotedCluster(), journal_of(settings)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    record = on_cluster_c(settings, cluster)
    journal.write_event(record, Event.ABORTED, "held on another cluster", now_ms=NOON_MS, throttled_brokers=(2,))
    cluster.cluster.set_throttle_rate(2, LEADER_RATE, tagged(1_000_000))
    assert not loop.tick(now_ms=NOON_MS + 1_000)
    assert cluster.throttle_rates() == {2: {LEADER_RATE: tagged(1_000_000)}}
    loop.tick(now_ms=NOON_MS + ENDED_READ_INTERVAL_MS)
    assert cluster.throttle_rates() == {}
    assert not journal.execution(record.execution.execution_id).owes


def test_a_throttle_is_swept_even_where_its_plan_is_not_kept(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    journal.make_tables()
    made = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),), SKEW, SKEW)
    unknown = KeptPlan(ProposedPlan(made, elapsed_ms=1.0), NOON_MS, NOON_MS)
    record = ExecutionRecord(journal.approve(unknown, "a test", now_ms=NOON_MS))
    journal.write_event(record, Event.ABORTED, "broker 2 was down", now_ms=NOON_MS, throttled_brokers=(2,))
    assert Sweeper(cluster, journal).sweep(record, now_ms=NOON_MS)


def test_nothing_is_submitted_after_a_pause_before_the_throttle_is_set(settings: Settings) -> None:
    cluster, executor, record, made = begun_in_a_window(settings)
    assert not executor.tick(record, made, now_ms=NOON_MS + HOUR_MS)
    assert (record.execution.last_event, cluster.changes) == ("paused", ["clear"])
    cluster.throttles_refused = True
    next_ms = NOON_MS + 2 * HOUR_MS
    assert not executor.tick(record, made, now_ms=next_ms)
    for _ in range(2):
        with pytest.raises(ClusterRequestFailed):
            executor.tick(record, made, now_ms=next_ms)
    cluster.throttles_refused = False
    assert not executor.tick(record, made, now_ms=next_ms)
    assert cluster.changes == ["clear", "throttle", "move t-0"]


@pytest.mark.long
def test_a_pause_that_could_not_be_written_leaves_nothing_unthrottled(on_disk: Settings, tmp_path: Path) -> None:
    cluster, executor, record, made = begun_in_a_window(on_disk)
    assert not executor.tick(record, made, now_ms=NOON_MS)
    cluster.cancel(("t", 0))
    for _ in range(UNSHOWN_SNAPSHOTS_MAX):
        assert not executor.tick(record, made, now_ms=NOON_MS)
    cluster.changes.clear()
    (tmp_path / "tables" / "execution").rename(tmp_path / "away")
    (tmp_path / "tables" / "execution").write_text("in the place of the table")
    with pytest.raises(TableUnavailable):
        executor.tick(record, made, now_ms=NOON_MS + HOUR_MS)
    (tmp_path / "tables" / "execution").unlink()
    (tmp_path / "away").rename(tmp_path / "tables" / "execution")
    assert not executor.tick(record, made, now_ms=NOON_MS + 2 * HOUR_MS)
    assert cluster.changes == ["clear", "throttle", "move t-0"]


def test_an_approval_that_waited_for_longer_than_plans_live_is_refused(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    first, second = approve(journal, 0), approve(journal, 1, now_ms=NOON_MS + 1)
    loop.tick(now_ms=NOON_MS)
    later_ms = NOON_MS + 3 * settings.planner.plan_ttl_ms
    loop.tick(now_ms=later_ms)
    cluster.settle(("t", 0), (2,))
    loop.tick(now_ms=later_ms)
    assert events(settings, first)[-1] == "done"
    loop.tick(now_ms=later_ms)
    assert events(settings, second) == ["approved", "refused"]


def test_who_is_called_off_while_another_is_under_way_ends_at_once(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    first, second = approve(journal, 0), approve(journal, 1, now_ms=NOON_MS + 1)
    assert loop.tick(now_ms=NOON_MS)
    journal.request_abort(second.execution, "a person", now_ms=NOON_MS)
    assert loop.tick(now_ms=NOON_MS)
    assert events(settings, second) == ["approved", "aborted"]
    assert events(settings, first)[-1] == "submitted"


def test_what_has_begun_goes_on_before_an_older_approval_begins(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    older = approve(journal, 0)
    record = begun(settings, cluster, 1, now_ms=NOON_MS + 1)
    one = carrier(settings, cluster)
    one.tick(now_ms=NOON_MS + 2)
    assert cluster.changes == ["throttle", "move t-1"]
    cluster.settle(("t", 1), (2,))
    ended = one.tick(now_ms=NOON_MS + 3)
    assert ended is not None
    assert (ended.execution.execution_id, ended.execution.last_event) == (record.execution.execution_id, "done")
    one.tick(now_ms=NOON_MS + 4)
    assert events(settings, older) == ["approved", "started", "submitted"]


def test_each_execution_is_looked_at_three_times_before_it_is_given_up(settings: Settings) -> None:
    cluster = NotedCluster()
    one = carrier(settings, cluster)
    for partition in (0, 1):
        record = begun(settings, cluster, partition, now_ms=NOON_MS + partition)
        cluster.settle(("t", partition), (3,))
        looks = 1
        while "aborted" not in events(settings, record):
            one.tick(now_ms=NOON_MS + looks)
            looks += 1
        assert looks - 1 == ABORT_CONFIRMATIONS


@pytest.mark.long
@pytest.mark.parametrize("gone", ["tables", "tables/execution"])
def test_an_execution_whose_tables_are_gone_changes_nothing_more(on_disk: Settings, tmp_path: Path, gone: str) -> None:
    cluster = NotedCluster()
    begun(on_disk, cluster, 0)
    one = carrier(on_disk, cluster)
    one.tick(now_ms=NOON_MS)
    cluster.changes.clear()
    shutil.rmtree(tmp_path / gone)
    with pytest.raises(TableUnavailable):
        one.tick(now_ms=NOON_MS + 1)
    assert cluster.changes == []
    assert not (tmp_path / "tables" / "execution").exists()


def test_an_execution_that_somebody_else_has_ended_is_left_alone(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    record = begun(settings, cluster, 0)
    one = carrier(settings, cluster)
    one.tick(now_ms=NOON_MS)
    cluster.changes.clear()
    other = ExecutionRecord(journal.execution(record.execution.execution_id))
    journal.write_event(other, Event.ABORTED, "by another control", now_ms=NOON_MS)
    with pytest.raises(LeaseLost):
        one.tick(now_ms=NOON_MS)
    assert cluster.changes == []


@pytest.mark.parametrize("refused", [False, True])
def test_what_has_not_started_or_has_ended_is_never_carried_out(settings: Settings, refused: bool) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    record = approve(journal, 0)
    if refused:
        journal.write_event(record, Event.REFUSED, "it no longer fits", now_ms=NOON_MS)
    made = journal.plan(record.execution.plan_id).plan
    with pytest.raises(AssertionError, match=f"is {record.execution.phase}"):
        executor_of(cluster, journal, settings).tick(record, made, now_ms=NOON_MS)
    assert cluster.changes == []
