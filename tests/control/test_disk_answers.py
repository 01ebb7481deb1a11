"""Log dirs that were shown lately: who is asked again, what copies that ended have taken, and who is silent."""

from collections.abc import Collection
from typing import Any

import pytest

from assignor_core.disks import LogDirDescription
from assignor_core.execution.progress import Progress
from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Movement, Plan
from streaming.commands.status import log_dir_lines, read_status
from streaming.control.disk_room import (
    AMPLE,
    ANSWER_AGE_MAX_MS,
    READ_INTERVAL_MS,
    SILENCE_MS,
    DiskAnswers,
    DiskRoom,
    LogDirAnswers,
)
from streaming.control.wiring import decider_of, journal_of
from streaming.serve.samples import samples as all_samples
from streaming.serve.snapshot import read_snapshot
from streaming.settings import PlannerSettings, Settings
from streaming.tables import TableReader
from streaming.views.log_dirs import read_log_dirs
from tests.control.carried import ERRORS, MB, TICK_MS
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.control.test_movements_within_brokers import (
    KEYS,
    MOVES,
    A,
    B,
    MovedWithin,
    cluster,
    cluster_of_two_log_dirs,
    settings,
)
from tests.control.windows import write_windows
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

__all__ = ["cluster", "settings"]  # fixtures


T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
LEADER, RECEIVER, OTHER = 1, 2, 3


class AskedCluster(SimulatedClient):
    """Notes which brokers were asked for log dirs, question by question."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster)
        self.asked: list[set[int]] = []

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        self.asked.append(set(brokers or ()))
        return super().log_dirs(brokers, partitions)


@pytest.fixture
def client() -> AskedCluster:
    """Three brokers with disks of 1,000 MB; partitions of 50 MB on broker 1."""
    cluster = SimulatedCluster.of(dict.fromkeys((LEADER, RECEIVER, OTHER)), log_dir_bytes=(1_000 * MB,))
    cluster.create_topic("t", {0: (LEADER,), 1: (LEADER,)}, size_bytes=50 * MB)
    cluster.create_topic("u", {0: (LEADER,)}, size_bytes=50 * MB)
    return AskedCluster(cluster)


def test_an_answer_counts_for_seconds_and_for_what_was_asked_about(client: AskedCluster) -> None:
    looks = DiskAnswers(client)
    assert looks.read({LEADER: {T0}, RECEIVER: ()}, {T0, T1}, now_ms=0).keys() == {LEADER, RECEIVER}
    looks.read({LEADER: {T1}, RECEIVER: ()}, {T1}, now_ms=ANSWER_AGE_MAX_MS)
    assert client.asked == [{LEADER, RECEIVER}]
    shown = looks.read({LEADER: {U0}, RECEIVER: ()}, {U0}, now_ms=ANSWER_AGE_MAX_MS)
    assert client.asked[1:] == [{LEADER}], "nobody had asked about this partition"
    assert shown[LEADER][0].replica_bytes == {U0: 50 * MB}
    looks.read({RECEIVER: ()}, {T0}, now_ms=ANSWER_AGE_MAX_MS + 1)
    looks.read({RECEIVER: ()}, {T0}, now_ms=ANSWER_AGE_MAX_MS + 2, max_age_ms=0)
    assert client.asked[2:] == [{RECEIVER}, {RECEIVER}]


def test_a_broker_that_does_not_answer_is_not_asked_again_for_a_while(client: AskedCluster) -> None:
    looks = DiskAnswers(client)
    client.cluster.freeze_broker(RECEIVER)
    wanted: dict[int, set[PartitionKey]] = {LEADER: {T0}, RECEIVER: set()}
    for now_ms in (0, 1_000, SILENCE_MS - 1):
        assert looks.read(wanted, {T0}, now_ms=now_ms, max_age_ms=0).keys() == {LEADER}
    assert client.asked == [{LEADER, RECEIVER}, {LEADER}, {LEADER}]
    client.cluster.resume_broker(RECEIVER)
    assert looks.read(wanted, {T0}, now_ms=SILENCE_MS).keys() == {LEADER, RECEIVER}


def test_a_broker_that_was_away_is_asked_again(client: AskedCluster) -> None:
    looks = DiskAnswers(client)
    looks.read({RECEIVER: ()}, {T0}, now_ms=0)
    looks.note(LiveCluster("c", {LEADER: None}, {}))
    looks.read({RECEIVER: ()}, {T0}, now_ms=1)
    assert client.asked == [{RECEIVER}, {RECEIVER}]


def _all_fit(
    room: DiskRoom, live: LiveCluster, now_ms: int, *, bytes_each: float = 50e6, key: PartitionKey = T0
) -> bool:
    """Whether this partition fits on broker 2; t-1 is another movement of its wave."""
    old = {row: live.partitions[row].replicas for row in (key, T1)}
    plan = Plan("c", tuple(Movement(*row, old[row], (RECEIVER,), bytes_each) for row in old), SKEW, SKEW)
    return room.all_fit(plan, live, {key: (RECEIVER,)}, dict.fromkeys(old, Progress.PENDING), now_ms)


def test_a_submit_asks_ahead_for_the_wave_and_again_only_after_a_while(client: AskedCluster) -> None:
    room, live = DiskRoom(DiskAnswers(client), PlannerSettings()), client.describe()
    for now_ms in (0, 1_000, READ_INTERVAL_MS):
        assert _all_fit(room, live, now_ms)
    assert client.asked == [{LEADER, RECEIVER}]
    assert _all_fit(room, live, READ_INTERVAL_MS + 1)
    assert len(client.asked) == 2


def test_where_room_is_scarce_each_submit_asks_the_broker_that_receives(client: AskedCluster) -> None:
    needed = 600e6
    assert AMPLE * needed > 900e6
    room, live = DiskRoom(DiskAnswers(client), PlannerSettings()), client.describe()
    assert _all_fit(room, live, 0, bytes_each=needed)
    assert _all_fit(room, live, 1_000, bytes_each=needed)
    assert client.asked == [{LEADER, RECEIVER}, {RECEIVER}]


def test_what_copies_brought_since_an_answer_takes_its_room(client: AskedCluster) -> None:
    """A disk has shown 900 MB of room; then a copy of 400 MB has come."""
    large = ("w", 0)
    client.cluster.create_topic("w", {0: (OTHER,)}, size_bytes=400 * MB)
    room, live = DiskRoom(DiskAnswers(client), PlannerSettings()), client.describe()
    assert _all_fit(room, live, 0, key=large)
    room.submitted(live, {large: (RECEIVER,)})
    assert room.overflowing(live, [], 1_000) == []  # it has ended: nobody catches up
    assert _all_fit(room, live, 2_000, bytes_each=300e6, key=T1)
    assert client.asked == [{OTHER, RECEIVER}, {LEADER}, {RECEIVER}], "of 500 MB 300 MB are not few"


@pytest.mark.parametrize("begun", ["before the answer", "after it"])
def test_a_copy_of_others_that_has_ended_makes_its_broker_be_asked_again(client: AskedCluster, begun: str) -> None:
    """Nobody has shown how large it is."""
    looks = DiskAnswers(client)
    room, live = DiskRoom(looks, PlannerSettings()), client.describe()
    behind = LivePartition((OTHER, RECEIVER), OTHER, (OTHER,), adding_replicas=(RECEIVER,))
    copying = LiveCluster("c", live.broker_racks, {**live.partitions, ("v", 0): behind})
    if begun == "before the answer":
        room.overflowing(copying, [("v", 0)], 0)
    else:
        assert _all_fit(room, live, 0)
        looks.note(copying)
    asked = len(client.asked)
    assert _all_fit(room, live, 1_000)
    assert RECEIVER in set().union(*client.asked[asked:])


PLAN = Plan(
    "main", (), log_dir_movements=(LogDirMovement(1, *KEYS[0], A, B, 1.0), LogDirMovement(2, "u0", 0, A, B, 1.0))
)


class Noted(SimulatedClient):
    """With the brokers that were asked about the replicas of a plan, and about all that they hold."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[int] = []
        self.asked_for_all: list[set[int]] = []

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        if partitions:
            self.asked += sorted(brokers or ())
        else:
            self.asked_for_all.append(set(brokers or ()))
        return super().log_dirs(brokers, partitions)


def noted_client(*sizes_bytes: int) -> Noted:
    """Broker 2 has replicas in the first of its log dirs, too: topics `u0`, `u1`... of these sizes."""
    made = cluster_of_two_log_dirs()
    for number, size in enumerate(sizes_bytes):
        made.create_topic(f"u{number}", {0: (2,)}, size_bytes=size)
        partition = made.contents.partition((f"u{number}", 0))
        assert partition is not None
        partition.copies[2].log_dir = 0
    return Noted(made, errors=ERRORS)


def with_caps(settings: Settings, **control: int) -> Settings:
    return settings.model_copy(update={"control": settings.control.model_copy(update=control)})


def test_brokers_that_do_not_copy_are_asked_every_ten_seconds() -> None:
    client = noted_client(MB)
    looks = LogDirAnswers(client)

    def asked(copying: set[int], now_ms: int, alive: frozenset[int] = frozenset({1, 2})) -> list[int]:
        client.asked.clear()
        assert looks.read(PLAN, copying, alive, now_ms=now_ms).keys() == alive
        return client.asked

    assert asked(set(), 0) == [1, 2]
    assert asked({1}, 1_000) == [1]
    assert asked(set(), 2_000) == []
    assert asked(set(), READ_INTERVAL_MS) == [1, 2]
    assert asked(set(), READ_INTERVAL_MS - 1) == [1, 2], "the clock was set back"


def test_what_a_broker_that_was_away_has_shown_counts_no_more() -> None:
    client = noted_client(MB)
    looks = LogDirAnswers(client)
    looks.read_all(PLAN, now_ms=0)
    client.cluster.kill_broker(2)
    assert looks.read(PLAN, (), {1}, now_ms=1).keys() == {1}
    client.cluster.restart_broker(2)
    client.asked.clear()
    assert looks.read(PLAN, (), {1, 2}, now_ms=2).keys() == {1, 2}
    assert client.asked == [2]


def test_a_broker_whose_movements_are_made_is_asked_less_and_once_more_at_the_end(settings: Settings) -> None:
    client = noted_client(MB)
    moves = (*MOVES, LogDirMovement(2, "u0", 0, A, B, 1.0 * MB))
    carried = MovedWithin(settings, client.cluster, client=client, moves=moves)
    assert carried.begin()
    per_tick = []
    ended = False
    while not ended:
        client.asked.clear()
        ended = carried.tick()
        per_tick.append(set(client.asked))
    done = next(place for place, asked in enumerate(per_tick) if asked == {1})
    assert 2 in per_tick[-1]
    both = sum(2 in asked for asked in per_tick[done:])
    assert both <= 1 + (len(per_tick) - done) * TICK_MS / READ_INTERVAL_MS + 1 < (len(per_tick) - done) / 2


def test_room_is_looked_for_on_the_brokers_that_come_next(settings: Settings) -> None:
    client = noted_client(20 * MB, MB)
    moves = (*MOVES, *(LogDirMovement(2, topic, 0, A, B, 1.0) for topic in ("u0", "u1")))
    carried = MovedWithin(with_caps(settings, movements_per_broker_max=1), client.cluster, client=client, moves=moves)
    assert carried.begin()
    client.asked_for_all.clear()
    assert carried.end() == "every movement has been made"
    assert [{1, 2}, {1}, {1}, {2}] == client.asked_for_all[:4]


@pytest.mark.long
def test_where_the_next_broker_has_no_room_the_others_go_on(settings: Settings) -> None:
    client = noted_client(MB)
    client.cluster.contents.brokers[1].log_dirs[1].other_bytes = 95 * MB
    moves = (MOVES[0], LogDirMovement(2, "u0", 0, A, B, 1.0))
    carried = MovedWithin(with_caps(settings, movements_in_flight_max=1), client.cluster, client=client, moves=moves)
    assert carried.begin()
    client.asked_for_all.clear()
    carried.tick()
    assert client.asked_for_all[:2] == [{1}, {1, 2}]
    carried.end()
    assert ("u0", 0) in client.log_dirs([2])[2][1].replica_bytes


def test_log_dirs_are_kept_as_they_were_shown_last(tables_in_memory: str) -> None:
    """Without a plan, too: metrics, `status` and alerts rest on these rows."""
    settings = Settings.model_validate({"storage": {"tables": tables_in_memory}})
    cluster = SimulatedCluster.of({1: None, 2: None}, log_dir_bytes=(1_000_000, 2_000_000))
    cluster.create_topic("t", {0: (1, 2)}, size_bytes=250_000)
    client = SimulatedClient(cluster)
    decider = decider_of(client, journal_of(settings), settings)
    for minute in (0, 1):
        now_ms = NOON_MS + minute * settings.pipeline.window_ms
        write_windows(settings, client.describe(), end_ms=now_ms)
        decider.tick(now_ms=now_ms)
        cluster.fail_log_dir(2, 1)
        cluster.contents.brokers[1].log_dirs[1].cordoned = True
    rows = read_log_dirs(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    assert [(row.broker, row.path, row.state, row.used_share) for row in rows] == [
        (1, "/disk-0", "online", 0.25),
        (1, "/disk-1", "cordoned", 0.0),
        (2, "/disk-0", "online", 0.25),
        (2, "/disk-1", "offline", None),
    ]
    assert {row.event_ms for row in rows} == {now_ms}
    status = read_status(settings, now_ms=now_ms)
    assert log_dir_lines(status) == [
        "log dir /disk-1 of broker 1 is cordoned",
        "log dir /disk-1 of broker 2 is offline",
    ]
    samples = {
        (row.name, row.labels): row.value
        for row in all_samples(read_snapshot(settings, now_ms), settings, ("", "", ""))
    }
    assert samples["log_dir_online", ("2", "/disk-1")] == 0
    assert samples["log_dir_online", ("1", "/disk-1")] == samples["log_dir_cordoned", ("1", "/disk-1")] == 1
    assert samples["log_dir_used_ratio", ("1", "/disk-0")] == 0.25
    assert ("log_dir_used_ratio", ("2", "/disk-1")) not in samples
