"""The next step of movements within brokers: caps, room that is shared, what ends one."""

from dataclasses import replace

from assignor_core.disks import FutureReplica, LogDirDescription
from assignor_core.execution.progress import MISSING_SNAPSHOTS_MIN, Progress
from assignor_core.execution.reconcile import Abort, Done, Limits, Wait
from assignor_core.execution.room import PATIENCE_MS
from assignor_core.execution.within_brokers import (
    Hindered,
    Missed,
    MoveWithin,
    RoomWithin,
    cancellations,
    differences_within,
    made_within,
    moving_within,
    next_step_within,
    overflowing,
    standing_of,
)
from assignor_core.live import LiveCluster, ReplicaKey
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Plan

PLAN = Plan(
    "c",
    (),
    log_dir_movements=tuple(
        LogDirMovement(broker, "t", number, "/a", "/b", 10.0) for broker in (1, 2) for number in (0, 1, 2)
    ),
)
LIVE = LiveCluster("c", {1: None, 2: None}, {})


def rows(*moved: int, usable: int = 1_000, copying: tuple[int, ...] = ()) -> list[LogDirDescription]:
    """Log dirs of one broker with three replicas, of which some have moved."""
    left = {("t", number): 10 for number in (0, 1, 2) if number not in moved}
    futures = {("t", number): FutureReplica(4) for number in copying}
    there = LogDirDescription("/b", 1_000, usable, {("t", number): 10 for number in moved}, future_replicas=futures)
    return [LogDirDescription("/a", 1_000, 500, left), there]


def step(
    log_dirs: dict[int, list[LogDirDescription]], limits: Limits, *, look: bool = True, worked_ms: int = 0
) -> object:
    room = RoomWithin.of(LIVE, log_dirs, (1, 2), reserve=0.1) if look else None
    standing = standing_of(PLAN, log_dirs, Missed())
    return next_step_within(PLAN, standing, limits, worked_ms=worked_ms, skipped={}, room=room)


def begun(made: object) -> list[ReplicaKey]:
    assert isinstance(made, MoveWithin)
    return sorted(made.targets)


def test_movements_are_begun_below_the_caps() -> None:
    idle = {1: rows(), 2: rows()}
    assert len(begun(step(idle, Limits()))) == 6
    assert begun(step(idle, Limits(movements_per_broker_max=1))) == [(1, ("t", 0)), (2, ("t", 0))]
    assert begun(step(idle, Limits(movements_in_flight_max=1))) == [(1, ("t", 0))]
    busy = {1: rows(copying=(0,)), 2: rows()}
    assert begun(step(busy, Limits(movements_per_broker_max=1))) == [(2, ("t", 0))]
    assert begun(step(busy, Limits(movements_in_flight_max=2))) == [(1, ("t", 1))]


def test_movements_of_one_request_share_the_room() -> None:
    narrow = {1: rows(usable=125), 2: rows(usable=100)}
    assert begun(step(narrow, Limits())) == [(1, ("t", 0)), (1, ("t", 1))]
    copying = {1: rows(usable=125, copying=(0,)), 2: rows(usable=100)}  # six bytes of it still arrive
    assert begun(step(copying, Limits())) == [(1, ("t", 1))]
    waits = step({1: rows(usable=105), 2: rows(usable=100)}, Limits())
    assert isinstance(waits, Wait)
    assert waits.reason == (
        "6 movements wait, first t-0 on broker 1: needs 10 bytes in /b of broker 1, which has room for 5"
    )


def test_what_is_waited_for_and_left_out_is_named() -> None:
    busy = {1: rows(copying=(0, 1)), 2: rows(0, 1, 2)}
    assert step(busy, Limits(movements_in_flight_max=2)) == Wait("2 replicas are being copied to another log dir")
    elsewhere = RoomWithin.of(LIVE, {1: rows()[:1]}, (1,), reserve=0.1)
    assert elsewhere.lacking(PLAN.log_dir_movements[0], {}) == "broker 1 shows no log dir /b"
    skipped = {(1, ("t", 0)): Progress.SKIPPED}
    assert made_within(skipped, {}) == "0 movements made, 1 skipped: t-0 on broker 1 (refused)"
    silent = differences_within(PLAN, LIVE, {1: rows()})
    assert silent[0] == "t-0 on broker 2: the broker does not show its log dirs"


def test_work_until_the_very_deadline_is_allowed() -> None:
    idle, limits = {1: rows(), 2: rows()}, Limits(deadline_ms=1_000)
    assert isinstance(step(idle, limits, worked_ms=1_000), MoveWithin)
    assert isinstance(step(idle, limits, worked_ms=1_001), Abort)


def test_the_end_is_done_or_aborted() -> None:
    made = {1: rows(0, 1, 2), 2: rows(0, 1, 2)}
    assert isinstance(step(made, Limits()), Done)
    late = step({1: rows(copying=(0,)), 2: rows()}, Limits(deadline_ms=1), worked_ms=2)
    assert isinstance(late, Abort)
    standing = standing_of(PLAN, made, Missed())
    gone = dict.fromkeys(standing, Progress.GONE)
    assert isinstance(next_step_within(PLAN, gone, Limits(), worked_ms=0, skipped={}), Abort)


def test_a_broker_that_does_not_answer_is_waited_for() -> None:
    waits = step({1: rows(0, 1, 2)}, Limits())
    assert isinstance(waits, Wait)
    assert "3 replicas are not shown by their brokers" in waits.reason


def test_a_replica_is_gone_after_some_looks_that_do_not_show_it() -> None:
    log_dirs = {1: rows(0, 1, 2), 2: [LogDirDescription("/a", is_offline=True), LogDirDescription("/b", 1_000, 900)]}
    missed = Missed()
    for _ in range(MISSING_SNAPSHOTS_MIN - 1):
        missed = missed.after(PLAN, log_dirs)
    assert standing_of(PLAN, log_dirs, missed)[2, ("t", 0)] is Progress.MISSING
    missed = missed.after(PLAN, log_dirs)
    assert standing_of(PLAN, log_dirs, missed)[2, ("t", 0)] is Progress.GONE
    assert missed.after(PLAN, {1: rows(), 2: rows()}) == Missed()


def test_what_is_given_up_goes_back_to_where_it_lies() -> None:
    log_dirs = {1: rows(0, copying=(1,)), 2: rows()}
    copies = moving_within(standing_of(PLAN, log_dirs, Missed()))
    assert cancellations(PLAN, copies, log_dirs) == {(1, ("t", 1)): "/a"}


def test_copies_that_would_fill_their_log_dir_are_stopped_until_the_others_fit() -> None:
    """Others have written there since: each copy lacks six bytes."""

    def stopped(usable: int) -> list[ReplicaKey]:
        log_dirs = {1: rows(copying=(0, 1), usable=usable), 2: rows(copying=(2,))}
        return overflowing(PLAN, standing_of(PLAN, log_dirs, Missed()), log_dirs)

    assert stopped(12) == []
    assert stopped(11) == [(1, ("t", 0))]
    assert stopped(5) == [(1, ("t", 0)), (1, ("t", 1))]
    unknown = {1: [replace(row, usable_bytes=None) for row in rows(copying=(0, 1))]}
    assert overflowing(PLAN, standing_of(PLAN, unknown, Missed()), unknown) == []


def test_a_copy_of_another_tool_is_not_stopped() -> None:
    log_dirs = {1: rows(copying=(0, 1), usable=0)}
    plan = replace(PLAN, log_dir_movements=PLAN.log_dir_movements[1:])
    assert overflowing(plan, standing_of(plan, log_dirs, Missed()), log_dirs) == [(1, ("t", 1))]


def test_what_is_refused_for_good_is_given_up_at_once() -> None:
    replica: ReplicaKey = (1, ("t", 0))
    refused = Hindered().after([replica], {replica: "LogDirNotFoundError"}, 0)
    assert refused.given_up == {replica: "LogDirNotFoundError"}
    passing = Hindered().after([replica], {replica: "KafkaStorageError"}, 0)
    assert passing.after([replica], {}, 1) == Hindered()
    assert passing.after([replica], {}, 2 * PATIENCE_MS).given_up == {}, "nobody tried while it was held back"
    again = passing.after([replica], {replica: "KafkaStorageError"}, 2 * PATIENCE_MS)
    assert again.given_up == {}, "time in which nobody tried does not count"
    for attempt_ms in range(10_000, PATIENCE_MS + 1, 10_000):
        again = again.after([replica], {replica: "KafkaStorageError"}, 2 * PATIENCE_MS + attempt_ms)
    assert again.given_up == {replica: "KafkaStorageError"}
