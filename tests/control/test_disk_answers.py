"""Log dirs that were shown lately: who is asked again, what copies that ended have taken, and who is silent."""

from collections.abc import Collection

import pytest

from assignor_core.disks import LogDirDescription
from assignor_core.execution.progress import Progress
from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.control.disk_room import AMPLE, ANSWER_AGE_MAX_MS, READ_INTERVAL_MS, SILENCE_MS, DiskAnswers, DiskRoom
from streaming.control.throttle import RATES_AT_A_TIME_MAX, RateReads
from streaming.settings import PlannerSettings
from tests.control.noted_cluster import SKEW
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

MB = 1_000_000
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


def test_rates_of_many_brokers_are_read_some_at_a_time() -> None:
    brokers = frozenset(range(2 * RATES_AT_A_TIME_MAX + 5))
    looks = RateReads()
    asked = [looks.some(brokers) for _ in range(6)]
    assert max(map(len, asked)) == RATES_AT_A_TIME_MAX
    for turn in (asked[:3], asked[3:]):
        assert {broker for row in turn for broker in row} == brokers
