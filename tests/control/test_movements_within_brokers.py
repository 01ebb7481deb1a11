"""Movements within brokers to their ends on a simulated cluster: kills, aborts, full and failing log dirs, others."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
import structlog

from assignor_core.deciding.gates import DELETED_AFTER_MS
from assignor_core.execution.events import Event
from assignor_core.live import PartitionKey, ReplicaKey
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Plan
from assignor_core.throttles import RATE_TAG, tagged
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.cluster_snapshot import SnapshotAge
from streaming.control.executor import Executor
from streaming.control.late_requests import CHECKS_AFTER_MS, LateRequests
from streaming.control.run import ControlLoop
from streaming.control.sweeping import COPY_READ_INTERVAL_MS, READ_INTERVAL_MS, Sweeper
from streaming.control.throttle import RATE_READ_INTERVAL_MS
from streaming.control.wiring import log_dir_executor_of
from streaming.errors import ClusterRequestFailed, LogDirMovesRefused
from streaming.settings import DAY_MS, Settings
from streaming.tables import ALL_ROWS, delete
from tests.control.carried import ERRORS, MB, TICK_MS, TICKS_MAX, Carried
from tests.control.noted_cluster import NOON_MS
from tests.simulated_cluster import (
    Fate,
    LogDir,
    PlannedFault,
    RequestKind,
    SimulatedBroker,
    SimulatedClient,
    SimulatedCluster,
)

RATE = MB + RATE_TAG
SIZE = 5 * MB
KEYS: list[PartitionKey] = [("t", 0), ("t", 1), ("t", 2)]
A, B = "/disk-0", "/disk-1"
MOVES = tuple(LogDirMovement(1, *key, A, B, float(SIZE)) for key in KEYS)


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    control = {"log_dir_throttle_bytes_per_sec": RATE, "throttle_min_bytes_per_sec": RATE}
    return Settings.model_validate({"storage": {"tables": tables_in_memory}, "control": control})


@pytest.fixture
def cluster() -> SimulatedCluster:
    return cluster_of_two_log_dirs()


def cluster_of_two_log_dirs() -> SimulatedCluster:
    """Broker 1 with three replicas of 5 MB in the first of its two log dirs."""
    brokers = [SimulatedBroker(row, None, [LogDir(100 * MB), LogDir(100 * MB)], 100 * MB, 100 * MB) for row in (1, 2)]
    made = SimulatedCluster("simulated", brokers)
    made.create_topic("t", {0: (1,), 1: (1,), 2: (1,)}, size_bytes=SIZE)
    for key in KEYS:
        partition = made.contents.partition(key)
        assert partition is not None
        partition.copies[1].log_dir = 0
    return made


class MovedWithin(Carried):
    """An execution that moves three replicas of broker 1 from one log dir to the other, and its process."""

    def __init__(
        self, settings: Settings, cluster: SimulatedCluster, *, in_windows_only: bool = False,
        client: SimulatedClient | None = None, moves: tuple[LogDirMovement, ...] = MOVES,
    ) -> None:  # fmt: skip
        plan = Plan("main", (), log_dir_movements=moves)
        super().__init__(settings, cluster, plan, in_windows_only=in_windows_only, client=client)

    def new_executor(self) -> Executor[Any]:
        return log_dir_executor_of(self.client, self.journal, self.settings)

    def tick(self) -> bool:
        with suppress(*RETRIED_ERRORS):
            return super().tick()
        return False

    def end(self) -> str:
        """Tick until it has ended; returns the detail of the last event."""
        self.to_the_end()
        return self.last_detail

    def lie_in(self, path: str) -> list[int]:
        """Partitions whose replica lies in a log dir of broker 1."""
        rows = {row.path: row for row in self.client.log_dirs([1])[1]}
        return sorted(number for _, number in rows[path].replica_bytes)

    def at_rest(self) -> bool:
        """Whether nothing of it is on the cluster: no copy, no rate."""
        copies = [row.future_replicas for rows in self.client.log_dirs().values() for row in rows]
        return not any(copies) and self.client.log_dir_rates() == {}


@pytest.fixture
def carried(settings: Settings, cluster: SimulatedCluster) -> MovedWithin:
    made = MovedWithin(settings, cluster)
    assert made.begin()
    return made


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_broker_that_was_away_takes_its_rate_before_it_copies(
    settings: Settings, cluster: SimulatedCluster, adaptive: bool
) -> None:
    given = settings.model_dump()
    given["control"]["throttle_adaptive"] = adaptive
    own = Settings.model_validate(given)
    carried = MovedWithin(own, cluster)
    assert carried.begin()
    cluster.kill_broker(1)
    cluster.advance(10_000)
    carried.tick()
    assert carried.client.log_dir_rates() == {}
    cluster.restart_broker(1)
    while not any(copy.future for _, row in cluster.contents.partitions() for copy in row.copies.values()):
        carried.tick()
    assert carried.client.log_dir_rates().keys() == {1}
    assert carried.end() == "every movement has been made"
    assert carried.at_rest()


def test_movements_are_made_at_their_rate_and_leave_no_throttle(carried: MovedWithin) -> None:
    assert not carried.tick()
    assert carried.client.log_dir_rates() == {1: RATE}
    assert carried.record.execution.throttled_brokers == (1,)
    assert carried.end() == "every movement has been made"
    events = [row.event for row in carried.record.execution.events]
    assert (events[:3], events[-1]) == ([Event.APPROVED, Event.STARTED, Event.SUBMITTED], Event.DONE)
    figures = carried.record.execution.figures
    assert (figures.movements_done, figures.bytes_moved) == (3, 3 * SIZE)
    assert carried.lie_in(B) == [0, 1, 2]
    assert carried.cluster.now_ms >= 3 * SIZE // MB * 1000, "the rate was kept"
    assert carried.at_rest()
    progress = [row.figures.bytes_moved for row in carried.record.execution.events if row.event is Event.PROGRESS]
    assert progress
    assert 0 < progress[0] < 3 * SIZE


def test_a_process_that_is_killed_at_every_tick_is_followed_by_the_next(carried: MovedWithin) -> None:
    for _ in range(TICKS_MAX):
        carried.be_killed()
        if carried.tick():
            break
    assert carried.record.execution.last_event is Event.DONE
    assert carried.lie_in(B) == [0, 1, 2]
    assert carried.at_rest()


@pytest.mark.parametrize("ticks", [0, 1, 3, 9, 14])
def test_an_abort_gives_up_what_is_in_flight_and_keeps_what_is_done(carried: MovedWithin, ticks: int) -> None:
    for _ in range(ticks):
        assert not carried.tick()
    carried.request_abort()
    assert carried.end().startswith("a person asked to stop; ")
    assert carried.record.execution.last_event is Event.ABORTED
    assert len(carried.lie_in(B)) == carried.record.execution.figures.movements_done
    assert carried.at_rest()


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.ANSWER_LOST])
@pytest.mark.parametrize("request_kind", [RequestKind.MOVE_WITHIN_BROKERS, RequestKind.CHANGE_THROTTLES])
def test_a_request_without_an_answer_is_repeated(carried: MovedWithin, fate: Fate, request_kind: RequestKind) -> None:
    carried.client.faults.planned.append(PlannedFault(fate, request_kind))
    carried.end()
    assert carried.lie_in(B) == [0, 1, 2]
    assert carried.at_rest()


def test_a_copy_that_ends_while_control_stands_still_before_it_gives_up_is_not_copied_back(
    carried: MovedWithin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To stay where a replica lay is a copy back, once it lies elsewhere; and the end removes the rate."""
    assert not any(carried.tick() for _ in range(3))
    really_move = carried.client.move_to_log_dirs

    def move_late(targets: Mapping[ReplicaKey, str]) -> None:
        monkeypatch.undo()
        carried.cluster.advance(20 * TICK_MS)
        really_move(targets)

    monkeypatch.setattr(carried.client, "move_to_log_dirs", move_late)
    carried.request_abort()
    carried.end()
    made = carried.lie_in(B)
    assert made
    assert carried.at_rest()
    carried.cluster.advance(100 * TICK_MS)
    assert carried.lie_in(B) == made


def test_a_broker_that_dies_in_the_middle_goes_on_when_it_is_back(carried: MovedWithin) -> None:
    for _ in range(3):
        carried.tick()
    carried.cluster.kill_broker(1)
    for _ in range(30):
        assert not carried.tick()
    assert "not shown by their brokers" in carried.last_detail
    carried.cluster.restart_broker(1)
    assert "every movement has been made" in carried.end()
    assert carried.at_rest()


@pytest.mark.long
def test_what_has_no_room_waits_and_is_skipped_in_the_end(carried: MovedWithin) -> None:
    log_dir = carried.cluster.contents.brokers[1].log_dirs[1]
    log_dir.other_bytes = 90 * MB - SIZE  # room for one above the reserve
    detail = carried.end()
    assert detail.startswith("1 movement made, 2 skipped: t-1 on broker 1 (needs 5,000,000 bytes in /disk-1 of ")
    assert carried.record.execution.last_event is Event.DONE
    assert (carried.lie_in(A), carried.lie_in(B)) == ([1, 2], [0])
    assert carried.now_ms - NOON_MS >= 600_000


@pytest.mark.long
def test_what_its_broker_refuses_for_long_is_skipped_by_name(
    carried: MovedWithin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for it at each look, so only the refusals count."""
    move = carried.client.move_to_log_dirs

    def refuse_one(targets: Mapping[ReplicaKey, str]) -> None:
        move({replica: path for replica, path in targets.items() if replica != (1, KEYS[2])})
        if (1, KEYS[2]) in targets:
            raise LogDirMovesRefused({(1, KEYS[2]): "KafkaStorageError"})

    monkeypatch.setattr(carried.client, "move_to_log_dirs", refuse_one)
    assert carried.end() == "2 movements made, 1 skipped: t-2 on broker 1 (KafkaStorageError)"
    assert carried.lie_in(B) == [0, 1]
    assert carried.at_rest()


@pytest.mark.parametrize("set_back_ms", [0, 3_600_000])
def test_room_that_comes_back_is_used_though_the_clock_is_set_back(carried: MovedWithin, set_back_ms: int) -> None:
    log_dir = carried.cluster.contents.brokers[1].log_dirs[1]
    log_dir.other_bytes = 95 * MB
    for _ in range(30):
        assert not carried.tick()
    assert "needs 5,000,000 bytes in /disk-1" in carried.last_detail
    carried.set_back_ms = set_back_ms
    log_dir.other_bytes = 0
    assert any(carried.tick() for _ in range(120))
    assert carried.last_detail.startswith("every movement")
    assert carried.record.execution.last_event is Event.DONE
    assert carried.lie_in(B) == [0, 1, 2]


def test_a_log_dir_that_others_fill_gets_no_more_until_there_is_room(carried: MovedWithin) -> None:
    log_dir = carried.cluster.contents.brokers[1].log_dirs[1]
    carried.ticks(2)
    assert not carried.at_rest()
    log_dir.other_bytes = 99 * MB
    carried.ticks(5)
    copies = [row.future_replicas for row in carried.client.log_dirs([1])[1]]
    assert not any(copies), "a full log dir goes offline, with all that lies in it"
    log_dir.other_bytes = 0
    assert carried.end().startswith("every movement")
    assert carried.lie_in(B) == [0, 1, 2]
    assert carried.at_rest()


@pytest.mark.long
def test_a_target_that_goes_offline_ends_what_was_copied_there(carried: MovedWithin) -> None:
    for _ in range(2):
        carried.tick()
    carried.cluster.fail_log_dir(1, 1)
    detail = carried.end()
    assert carried.record.execution.last_event is Event.ABORTED
    assert detail.startswith("0 movements made, 3 skipped: t-0 on broker 1 (")
    assert carried.client.log_dir_rates() == {1: RATE}
    carried.cluster.repair_log_dir(1, 1)
    carried.cluster.advance(1_000)
    assert not carried.at_rest(), "the broker goes on with what it had copied"
    assert Sweeper(carried.client, carried.journal).sweep(carried.record, now_ms=carried.now_ms)
    assert carried.lie_in(A) == [0, 1, 2]
    assert carried.at_rest()


def test_a_copy_that_can_not_be_given_up_keeps_its_rate_until_it_is(carried: MovedWithin) -> None:
    """Its replica lies in a log dir that went offline: the broker refuses whatever is asked for."""
    carried.tick()
    carried.journal.request_abort(carried.record.execution, "a person", now_ms=carried.now_ms)
    carried.cluster.fail_log_dir(1, 0)
    carried.be_killed()
    assert "3 may go on, and their brokers keep their rates: t-0 on broker 1 (the log dir" in carried.end()
    assert carried.record.execution.throttled_brokers == (1,)
    sweeper = Sweeper(carried.client, carried.journal)
    assert not sweeper.sweep(carried.record, now_ms=carried.now_ms)
    carried.cluster.repair_log_dir(1, 0)
    assert not sweeper.sweep(carried.record, now_ms=carried.now_ms), "no log dirs are asked about all the time"
    carried.cluster.advance(COPY_READ_INTERVAL_MS)
    assert carried.client.log_dir_rates() == {1: RATE}
    assert carried.lie_in(B) == []
    assert sweeper.sweep(carried.record, now_ms=carried.now_ms)
    assert "3 movements given up: t-0 on broker 1" in carried.last_detail
    assert carried.at_rest()
    assert carried.lie_in(A) == [0, 1, 2]


def test_a_pause_keeps_the_rate_of_what_may_go_on(settings: Settings, cluster: SimulatedCluster) -> None:
    """It is Monday, 12:00:54: the log dir fails, and the hours end."""
    hours = {"maintenance_windows": ["Mon 11:00-12:01", "Mon 12:10-13:00"], "movements_per_broker_max": 1}
    cluster.advance(54_000)
    own = settings.model_copy(update={"control": settings.control.model_copy(update=hours)})
    carried = MovedWithin(own, cluster, in_windows_only=True)
    assert carried.begin()
    carried.tick()
    cluster.fail_log_dir(1, 1)
    while not carried.record.execution.paused:
        assert not carried.tick()
    assert "3 may go on" in carried.last_detail
    assert carried.client.log_dir_rates() == {1: RATE}
    cluster.repair_log_dir(1, 1)
    assert carried.end().startswith("every movement has been made")
    assert carried.at_rest()


def test_a_source_that_goes_offline_is_named(carried: MovedWithin) -> None:
    carried.cluster.fail_log_dir(1, 0)
    detail = carried.end()
    assert detail.startswith("0 movements made, 3 gone, or in a log dir that is offline: t-0 on broker 1")
    assert carried.record.execution.last_event is Event.ABORTED


def test_what_somebody_else_moves_is_left_alone(settings: Settings, cluster: SimulatedCluster) -> None:
    cluster.contents.brokers[1].log_dirs.append(LogDir(100 * MB))
    carried = MovedWithin(settings, cluster)
    assert carried.begin()
    other = SimulatedClient(cluster, errors=ERRORS)
    other.set_log_dir_rates({1: MB})
    other.move_to_log_dirs({(1, ("t", 0)): "/disk-2"})
    carried.tick()
    detail = carried.end()
    assert detail.startswith("2 movements made, 1 changed by somebody else: t-0 on broker 1")
    rows = {row.path: row for row in carried.client.log_dirs([1])[1]}
    assert ("t", 0) in {**rows["/disk-2"].future_replicas, **rows["/disk-2"].replica_bytes}


def test_a_rate_of_somebody_else_is_respected_and_stays(settings: Settings, cluster: SimulatedCluster) -> None:
    SimulatedClient(cluster, errors=ERRORS).set_log_dir_rates({1: 2 * MB})
    carried = MovedWithin(settings, cluster)
    assert carried.begin()
    carried.end()
    assert carried.record.execution.figures.throttled_brokers in (None, ())
    assert carried.client.log_dir_rates() == {1: 2 * MB}


def test_a_rate_of_ours_that_others_replace_and_remove_is_set_again(carried: MovedWithin) -> None:
    carried.cluster.contents.brokers[1].disk_bytes_per_sec = MB // 4
    carried.tick()
    carried.cluster.set_log_dir_rate(1, MB // 2)
    carried.tick()
    assert carried.client.log_dir_rates() == {1: MB // 2}, "what somebody else has set is theirs"
    carried.cluster.set_log_dir_rate(1, None)
    for _ in range(RATE_READ_INTERVAL_MS // TICK_MS + 1):
        carried.tick()
    assert carried.client.log_dir_rates() == {1: RATE}
    assert carried.end() == "every movement has been made"
    assert carried.at_rest()


def test_nothing_is_copied_within_a_broker_that_catches_up(carried: MovedWithin) -> None:
    carried.cluster.create_topic("u", {0: (2,)}, size_bytes=20 * MB)
    carried.cluster.contents.brokers[1].network_bytes_per_sec = MB
    carried.cluster.reassign({("u", 0): (1,)})
    for _ in range(12):
        assert not carried.tick()
    assert "broker 1 catches up with 1 partition" in carried.last_detail
    assert carried.end().startswith("every movement")


def test_a_topic_that_is_made_again_is_not_touched(carried: MovedWithin) -> None:
    carried.cluster.delete_topic("t")
    carried.cluster.create_topic("t", dict.fromkeys(range(3), (1,)), size_bytes=SIZE)
    lie = (carried.lie_in(A), carried.lie_in(B))
    assert carried.end().startswith("0 movements made, 3 gone")
    assert (carried.lie_in(A), carried.lie_in(B)) == lie


def make_again(cluster: SimulatedCluster) -> None:
    """Same name, same replicas in the same log dirs, another id."""
    cluster.delete_topic("t")
    cluster.create_topic("t", dict.fromkeys(range(3), (1,)), size_bytes=SIZE)
    for key in KEYS:
        partition = cluster.contents.partition(key)
        assert partition is not None
        partition.copies[1].log_dir = 0


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("request_name", ["set_log_dir_rates", "log_dirs"])
def test_a_topic_that_is_made_again_between_the_look_and_the_request_is_not_touched(
    carried: MovedWithin, monkeypatch: pytest.MonkeyPatch, request_name: str, restarted: bool
) -> None:
    """While the throttle is set, or while the brokers are asked for what lies in their log dirs."""
    if restarted:
        carried.be_killed()
    really = getattr(carried.client, request_name)

    def made_again_first(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        make_again(carried.cluster)
        return really(*given, **named)

    monkeypatch.setattr(carried.client, request_name, made_again_first)
    assert carried.end().startswith("0 movements made, 3 gone")
    assert carried.lie_in(A) == [0, 1, 2]
    assert carried.at_rest()


def test_what_somebody_else_moves_while_the_throttle_is_set_is_left_alone(
    settings: Settings, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.contents.brokers[1].log_dirs.append(LogDir(100 * MB))
    carried = MovedWithin(settings, cluster)
    assert carried.begin()
    really_set = carried.client.set_log_dir_rates

    def moved_first(rates: Mapping[int, int]) -> None:
        monkeypatch.undo()
        SimulatedClient(cluster, errors=ERRORS).move_to_log_dirs({(1, KEYS[0]): "/disk-2"})
        really_set(rates)

    monkeypatch.setattr(carried.client, "set_log_dir_rates", moved_first)
    assert carried.end().startswith("2 movements made, 1 changed by somebody else: t-0 on broker 1")
    assert (carried.lie_in(B), carried.lie_in("/disk-2")) == ([1, 2], [0])


@pytest.mark.parametrize("ended", ["is swept", "is looked at again"])
def test_what_others_move_of_a_topic_that_was_made_again_after_the_end_is_left_alone(
    carried: MovedWithin, ended: str
) -> None:
    """The copy has the log dirs of the plan: by its name it would be one of an execution that has ended."""
    carried.tick()
    if ended == "is swept":
        carried.cluster.kill_broker(1)
    carried.request_abort()
    carried.end()
    if ended == "is swept":
        carried.cluster.restart_broker(1)
    make_again(carried.cluster)
    SimulatedClient(carried.cluster, errors=ERRORS).move_to_log_dirs({(1, KEYS[0]): B})
    late = LateRequests(carried.client, carried.journal, SnapshotAge(), staged=False)
    late.watch(carried.record, now_ms=carried.now_ms)
    if ended == "is swept":
        assert Sweeper(carried.client, carried.journal).sweep(carried.record, now_ms=carried.now_ms)
    else:
        late.check_if_due(now_ms=carried.now_ms + CHECKS_AFTER_MS[-1])
    carried.cluster.advance(60 * TICK_MS)
    assert carried.lie_in(B) == [0]
    assert carried.at_rest()


@pytest.mark.parametrize("misfit", ["moved", "offline", "cordoned", "away", "another cluster"])
def test_a_plan_that_does_not_fit_any_more_is_refused(
    settings: Settings, cluster: SimulatedCluster, misfit: str
) -> None:
    carried = MovedWithin(settings, cluster)
    partition = cluster.contents.partition(KEYS[1])
    assert partition is not None
    match misfit:
        case "moved":
            cluster.contents.brokers[1].log_dirs.append(LogDir(100 * MB))
            partition.copies[1].log_dir = 2
            problem = "t-1 on broker 1 is in /disk-2, planned from /disk-0"
        case "offline":
            cluster.fail_log_dir(1, 1)
            problem = "t-0 on broker 1 would go to /disk-1, which is offline"
        case "cordoned":
            cluster.contents.brokers[1].log_dirs[1].cordoned = True
            problem = "t-0 on broker 1 would go to /disk-1, which is cordoned"
        case "away":
            cluster.kill_broker(1)
            cluster.advance(20_000)
            problem = "t-0 on broker 1: the broker is not alive"
        case _:
            carried.client.connect(SimulatedCluster.of({1: None}, cluster_id="another"))
            problem = "another"
    assert not carried.begin()
    assert carried.record.execution.last_event is Event.REFUSED
    assert problem in carried.last_detail
    assert carried.at_rest()


def test_it_pauses_outside_its_hours_and_goes_on(settings: Settings, cluster: SimulatedCluster) -> None:
    """One copy at a time of 5 s; it is Monday, 12:00:54."""
    hours = {"maintenance_windows": ["Mon 11:00-12:01", "Mon 12:10-13:00"], "movements_per_broker_max": 1}
    own = settings.model_copy(update={"control": settings.control.model_copy(update=hours)})
    cluster.advance(54_000)
    carried = MovedWithin(own, cluster, in_windows_only=True)
    assert carried.begin()
    while not carried.record.execution.paused:
        assert not carried.tick()
    assert "no maintenance window is open" in carried.last_detail
    assert carried.lie_in(B) == [0, 1], "what copies is brought to its end"
    assert carried.at_rest()
    carried.be_killed()
    assert not carried.tick()
    assert carried.record.execution.paused
    assert carried.end().startswith("every movement has been made")
    assert Event.RESUMED in [row.event for row in carried.record.execution.events]
    assert carried.at_rest()


def test_what_comes_late_is_given_up(carried: MovedWithin) -> None:
    """The request to move was on its way when the execution was aborted."""
    carried.client.faults.planned.append(PlannedFault(Fate.LATE, RequestKind.MOVE_WITHIN_BROKERS, 30_000))
    carried.tick()
    carried.request_abort()
    carried.end()
    late = LateRequests(carried.client, carried.journal, SnapshotAge(), staged=False)
    late.watch(carried.record, now_ms=carried.now_ms)
    carried.cluster.contents.log_dir_rates[1] = tagged(10_000)  # and so was a rate
    carried.cluster.advance(61_000)
    late.check_if_due(now_ms=carried.now_ms)
    assert "3 movements given up: t-0 on broker 1" in carried.last_detail
    for _ in range(2):
        carried.cluster.advance(600_000)
        late.check_if_due(now_ms=carried.now_ms)
    assert carried.lie_in(A) == [0, 1, 2]
    assert carried.at_rest()


def test_what_came_late_and_arrived_before_it_was_given_up_is_not_copied_back(
    carried: MovedWithin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To stay where a replica lay is a copy back, once it lies elsewhere."""
    carried.client.faults.planned.append(PlannedFault(Fate.LATE, RequestKind.MOVE_WITHIN_BROKERS, 30_000))
    carried.tick()
    carried.request_abort()
    carried.end()
    late = LateRequests(carried.client, carried.journal, SnapshotAge(), staged=False)
    late.watch(carried.record, now_ms=carried.now_ms)
    carried.cluster.contents.log_dir_rates[1] = tagged(MB // 10)
    really_move = carried.client.move_to_log_dirs

    def move_late(targets: Mapping[ReplicaKey, str]) -> None:
        monkeypatch.undo()
        carried.cluster.advance(200_000)
        really_move(targets)

    monkeypatch.setattr(carried.client, "move_to_log_dirs", move_late)
    carried.cluster.advance(61_000)
    for _ in range(3):
        late.check_if_due(now_ms=carried.now_ms)
        carried.cluster.advance(600_000)
    assert carried.lie_in(B) == [0, 1, 2]
    assert carried.at_rest()


def test_a_broker_that_was_down_at_the_end_loses_its_rate_later(carried: MovedWithin) -> None:
    carried.tick()
    carried.cluster.kill_broker(1)
    carried.request_abort()
    assert "3 may go on, and their brokers keep their rates: t-0 on broker 1 (not shown by" in carried.end()
    assert carried.record.execution.throttled_brokers == (1,)
    carried.cluster.restart_broker(1)
    assert Sweeper(carried.client, carried.journal).sweep(carried.record, now_ms=carried.now_ms)
    assert carried.at_rest()
    assert carried.lie_in(A) == [0, 1, 2]


@pytest.mark.parametrize("lost", [("plan",), ("plan", "movement")])
@pytest.mark.parametrize("is_down", [False, True])
def test_where_the_plan_is_gone_no_rate_stays(carried: MovedWithin, lost: tuple[str, ...], is_down: bool) -> None:
    """Without the movements nobody knows whether it was a plan within brokers."""
    for _ in range(3):
        assert not carried.tick()
    assert carried.client.log_dir_rates() == {1: RATE}
    for name in lost:
        delete(carried.settings.storage.tables, name, ALL_ROWS)
    if is_down:
        carried.cluster.kill_broker(1)
        carried.cluster.advance(60_000)
    loop = ControlLoop(carried.client, carried.settings, now_ms=carried.now_ms)
    execution_id = carried.record.execution.execution_id
    for _ in range(TICKS_MAX):
        loop.tick(now_ms=carried.now_ms)
        carried.cluster.advance(TICK_MS)
        if carried.journal.execution(execution_id).ended:
            break
    ended = carried.journal.execution(execution_id)
    assert (ended.last_event, ended.owes) == (Event.ABORTED, is_down)
    if is_down:
        carried.cluster.restart_broker(1)
        for _ in range(READ_INTERVAL_MS // TICK_MS + 1):
            loop.tick(now_ms=carried.now_ms)
            carried.cluster.advance(TICK_MS)
    assert not carried.journal.execution(execution_id).owes
    assert carried.client.log_dir_rates() == {}


def test_the_result_is_measured_once_kafka_has_deleted_what_left(carried: MovedWithin) -> None:
    carried.end()
    loop = ControlLoop(carried.client, carried.settings, now_ms=carried.now_ms)
    ended_ms = carried.record.execution.ended_ms
    assert ended_ms is not None
    loop.tick(now_ms=ended_ms + DELETED_AFTER_MS - 1)
    assert carried.journal.execution(carried.record.execution.execution_id).to_be_measured
    loop.tick(now_ms=ended_ms + DELETED_AFTER_MS)
    measured = carried.journal.execution(carried.record.execution.execution_id).measured
    assert measured is not None
    assert measured.detail == "log dirs: broker 1: /disk-0 0%, /disk-1 15%"


@pytest.mark.parametrize("is_late", [False, True])
def test_where_no_result_can_be_measured_decisions_go_on(
    carried: MovedWithin, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Brokers refuse to show their log dirs; or control starts so late that others have filled them since."""
    carried.end()
    loop = ControlLoop(carried.client, carried.settings, now_ms=carried.now_ms)
    ended_ms = carried.record.execution.ended_ms
    assert ended_ms is not None

    def refuse(*_: object, **__: object) -> None:
        raise ClusterRequestFailed("read log dirs: ClusterAuthorizationFailedError")

    if not is_late:
        monkeypatch.setattr(carried.client, "log_dirs", refuse)
    with structlog.testing.capture_logs() as logs:
        loop.tick(now_ms=ended_ms + (20 * DAY_MS if is_late else DELETED_AFTER_MS))
    assert [row["event"] for row in logs].count("result_not_measured") == 1
    assert carried.journal.execution(carried.record.execution.execution_id).measured is None
