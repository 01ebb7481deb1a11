"""A broker that fails while a plan waits for it: in mode `apply` the execution ends, so replicas are re-created."""

import pytest

from assignor_core.live import LiveCluster, LivePartition
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Movement, Plan
from streaming.control.absences import GAP_MAX_MS, Absences
from streaming.control.journal import ExecutionRecord
from streaming.control.run import ControlLoop
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster, approve, approve_plan
from tests.simulated_cluster import SimulatedCluster

GRACE_MS = 120_000
SESSION_MS = 10_000
KEY = ("u", 0)


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return Settings.model_validate(
        {
            "storage": {"tables": tables_in_memory},
            "control": {"mode": "apply"},
            "trigger": {"broker_failure_grace_ms": GRACE_MS},
        }
    )


def with_followers() -> NotedCluster:
    """Beside t, which lies on broker 1, a partition on brokers 2 and 3."""
    cluster = NotedCluster()
    cluster.cluster.create_topic("u", {0: (2, 3)})
    return cluster


def ticked(loop: ControlLoop, cluster: SimulatedCluster, start_ms: int, duration_ms: int) -> None:
    """So long, a tick each second."""
    for ms in range(start_ms, start_ms + duration_ms, 1_000):
        loop.tick(now_ms=ms)
        cluster.advance(1_000)


def fail(cluster: NotedCluster, broker: int) -> None:
    cluster.cluster.kill_broker(broker)
    cluster.cluster.advance(SESSION_MS)


def ended(settings: Settings, record: ExecutionRecord) -> str | None:
    execution = journal_of(settings).execution(record.execution.execution_id)
    return execution.last.detail if execution.ended else None


def test_what_waits_for_a_failed_broker_ends_after_the_grace_time(settings: Settings) -> None:
    cluster = with_followers()
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    record = approve(journal_of(settings), 0)
    fail(cluster, 3)
    ticked(loop, cluster.cluster, NOON_MS, GRACE_MS)
    assert ended(settings, record) is None
    ticked(loop, cluster.cluster, NOON_MS + GRACE_MS, 10_000)
    why = ended(settings, record)
    assert why is not None
    assert why.startswith("broker 3 has been offline for 2 min: its replicas are re-created first; 0 moves in flight")
    assert cluster.cluster.contents.partition(("t", 0)) is not None
    assert not cluster.throttle_rates().get(1)


def test_a_move_to_the_failed_broker_is_cancelled_with_it(settings: Settings) -> None:
    """It would never end, and no other plan begins while it is listed."""
    cluster = with_followers()
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    record = approve(journal_of(settings), 0)
    loop.tick(now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + 1_000)
    fail(cluster, 2)
    assert cluster.cluster.contents.topics["t"].partitions[0].adding_replicas == (2,)
    ticked(loop, cluster.cluster, NOON_MS + 2_000, GRACE_MS + 10_000)
    assert "broker 2 has been offline" in (ended(settings, record) or "")
    assert "1 move in flight cancelled" in (ended(settings, record) or "")
    assert not cluster.describe().reassigning()


def test_a_copied_move_that_kafka_keeps_open_for_the_failed_broker_is_cancelled_with_it(settings: Settings) -> None:
    """Kafka before 4.3 ends no reassignment while a replica that stays is out of sync."""
    cluster, journal = NotedCluster(), journal_of(settings)
    cluster.cluster.contents.release = (3, 9)
    cluster.cluster.create_topic("u", {0: (1, 3)}, size_bytes=20 * settings.control.throttle_bytes_per_sec)
    made = Plan("c", (Movement(*KEY, (1, 3), (2, 3), 5.0),), SKEW, SKEW)
    record = approve_plan(journal, made)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + 1_000)
    fail(cluster, 3)
    ticked(loop, cluster.cluster, NOON_MS + 2_000, GRACE_MS)
    assert cluster.describe().partitions[KEY].isr == (1, 2)
    ticked(loop, cluster.cluster, NOON_MS + 2_000 + GRACE_MS, 10_000)
    assert "broker 3 has been offline" in (ended(settings, record) or "")
    assert not cluster.describe().reassigning()


@pytest.mark.parametrize("changed", [{"control": {"mode": "propose"}}, {"trigger": {"relief_max_away_share": 0.1}}])
def test_nothing_ends_where_nobody_would_make_the_replicas_anew(
    settings: Settings, changed: dict[str, dict[str, object]]
) -> None:
    given = settings.model_dump()
    for section, values in changed.items():
        given[section] |= values
    own, cluster = Settings.model_validate(given), with_followers()
    loop, record = ControlLoop(cluster, own, now_ms=NOON_MS), approve(journal_of(own), 0)
    fail(cluster, 3)
    ticked(loop, cluster.cluster, NOON_MS, GRACE_MS + 20_000)
    assert ended(own, record) is None


def test_a_broker_that_restarts_in_time_ends_nothing(settings: Settings) -> None:
    cluster = with_followers()
    loop, record = ControlLoop(cluster, settings, now_ms=NOON_MS), approve(journal_of(settings), 0)
    away_ms = GRACE_MS - 30_000
    for start_ms in (NOON_MS, NOON_MS + away_ms):
        fail(cluster, 3)
        ticked(loop, cluster.cluster, start_ms, away_ms)
        assert ended(settings, record) is None
        cluster.cluster.restart_broker(3)
        loop.tick(now_ms=start_ms + away_ms)
    ticked(loop, cluster.cluster, NOON_MS + 2 * away_ms, 60_000)
    assert ended(settings, record) == "every movement has been made"


def test_movements_within_a_broker_that_fails_end_for_it_too(settings: Settings) -> None:
    cluster, journal = with_followers(), journal_of(settings)
    cluster.cluster.contents.brokers[2].log_dirs *= 2
    moved = LogDirMovement(2, *KEY, "/disk-0", "/disk-1", 5.0)
    made = Plan("c", (), SKEW, SKEW, log_dir_movements=(moved,))
    record = approve_plan(journal, made)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS)
    fail(cluster, 2)
    ticked(loop, cluster.cluster, NOON_MS + 1_000, 2 * GRACE_MS)
    assert "broker 2 has been offline" in (ended(settings, record) or "")


def live(*alive: int, replicas: tuple[int, ...] = (1, 2, 3)) -> LiveCluster:
    partition = LivePartition(replicas, alive[0], tuple(set(alive) & set(replicas)))
    return LiveCluster("c", dict.fromkeys(alive), {KEY: partition})


def test_a_broker_is_away_until_a_look_shows_it() -> None:
    absences = Absences(GRACE_MS, 0.5)
    absences.note(live(1, 2), 1_000)
    # A look that shows other partitions only.
    absences.note(live(1, 2, replicas=(1, 2)), 2_000)
    assert absences.since_ms(2_000) == {3: 1_000}
    absences.note(live(1, 2), 1_000 + GRACE_MS)
    assert (
        absences.in_vain(live(1, 2), [(3,)]) == "broker 3 has been offline for 2 min: its replicas are re-created first"
    )
    assert absences.in_vain(live(1, 2), [(3,), (1, 2)]) is None
    assert absences.in_vain(live(1, 2), [], replaced=(3,)) is None
    assert absences.in_vain(live(1, 2, replicas=(1, 2)), []) is None
    # A closer look shows another one, since now.
    assert absences.in_vain(live(1, 2, replicas=(1, 2, 4)), []) is None
    absences.note(live(1, 2, 3), 2_000 + GRACE_MS)
    absences.note(live(1, 2), 3_000 + GRACE_MS)
    assert absences.since_ms(3_000 + GRACE_MS) == {3: 3_000 + GRACE_MS}
    assert absences.in_vain(live(1, 2), []) is None


def test_after_a_gap_between_looks_the_time_away_starts_anew() -> None:
    assert GAP_MAX_MS == 5 * 60_000
    absences = Absences(GRACE_MS, 0.5)
    absences.note(live(1, 2), 1_000)
    assert absences.since_ms(1_000 + GAP_MAX_MS) == {3: 1_000}
    assert absences.since_ms(1_001 + GAP_MAX_MS) == {}
    absences.note(live(1, 2), 1_001 + GAP_MAX_MS)
    assert absences.in_vain(live(1, 2), []) is None
