"""Which brokers an execution of movements within brokers asks for their log dirs."""

from collections.abc import Collection
from typing import Any

from assignor_core.disks import LogDirDescription
from assignor_core.live import PartitionKey
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Plan
from streaming.control.disk_room import READ_INTERVAL_MS, LogDirAnswers
from streaming.settings import Settings
from tests.control.test_movements_within_brokers import (
    ERRORS,
    KEYS,
    MB,
    MOVES,
    TICK_MS,
    A,
    B,
    Carried,
    cluster,
    cluster_of_two_log_dirs,
    settings,
)
from tests.simulated_cluster import SimulatedClient

__all__ = ["cluster", "settings"]  # the fixtures
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


def noted(*sizes_bytes: int) -> Noted:
    """Broker 2 has replicas in the first of its log dirs, too: topics `u0`, `u1`... of these sizes."""
    made = cluster_of_two_log_dirs()
    for number, size in enumerate(sizes_bytes):
        made.create_topic(f"u{number}", {0: (2,)}, size_bytes=size)
        partition = made.contents.partition((f"u{number}", 0))
        assert partition is not None
        partition.copies[2].log_dir = 0
    return Noted(made, errors=ERRORS)


def with_control(settings: Settings, **control: int) -> Settings:
    return settings.model_copy(update={"control": settings.control.model_copy(update=control)})


def test_brokers_that_do_not_copy_are_asked_every_ten_seconds() -> None:
    client = noted(MB)
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
    client = noted(MB)
    looks = LogDirAnswers(client)
    looks.read_all(PLAN, now_ms=0)
    client.cluster.kill_broker(2)
    assert looks.read(PLAN, (), {1}, now_ms=1).keys() == {1}
    client.cluster.restart_broker(2)
    client.asked.clear()
    assert looks.read(PLAN, (), {1, 2}, now_ms=2).keys() == {1, 2}
    assert client.asked == [2]


def test_a_broker_whose_movements_are_made_is_asked_less_and_once_more_at_the_end(settings: Settings) -> None:
    client = noted(MB)
    moves = (*MOVES, LogDirMovement(2, "u0", 0, A, B, 1.0 * MB))
    carried = Carried(settings, client.cluster, client=client, moves=moves)
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
    client = noted(20 * MB, MB)
    moves = (*MOVES, *(LogDirMovement(2, topic, 0, A, B, 1.0) for topic in ("u0", "u1")))
    carried = Carried(with_control(settings, movements_per_broker_max=1), client.cluster, client=client, moves=moves)
    assert carried.begin()
    client.asked_for_all.clear()
    assert carried.to_the_end() == "every movement has been made"
    assert [{1, 2}, {1}, {1}, {2}] == client.asked_for_all[:4]


def test_where_the_next_broker_has_no_room_the_others_go_on(settings: Settings) -> None:
    client = noted(MB)
    client.cluster.contents.brokers[1].log_dirs[1].other_bytes = 95 * MB
    moves = (MOVES[0], LogDirMovement(2, "u0", 0, A, B, 1.0))
    carried = Carried(with_control(settings, movements_in_flight_max=1), client.cluster, client=client, moves=moves)
    assert carried.begin()
    client.asked_for_all.clear()
    carried.tick()
    assert client.asked_for_all[:2] == [{1}, {1, 2}]
    carried.to_the_end()
    assert ("u0", 0) in client.log_dirs([2])[2][1].replica_bytes
