"""Cordons of drained brokers: ordered by a row, set and removed by whoever looks next; those of others stay."""

from collections.abc import Collection
from typing import Any

import pytest

from streaming import tables
from streaming.control import cordons
from streaming.control.cordons import (
    READ_INTERVAL_MS,
    SETTLED_INTERVAL_MS,
    STILL_CORDONED,
    Cordons,
    Uncordoned,
    settle,
    to_cordon,
)
from streaming.control.intents import TABLE, note_intent, note_uncordoned
from streaming.control.run import ControlLoop
from streaming.errors import ClusterRequestFailed, TableUnavailable
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.intents import Intent, cordons_of, drained_brokers, newest_intents
from tests.control.carried import ERRORS, MB
from tests.simulated_cluster import LogDir, SimulatedBroker, SimulatedClient, SimulatedCluster

CLUSTER = "main"
NOW_MS = 1_000_000_000
BOTH = ("/disk-0", "/disk-1")


@pytest.fixture
def cluster() -> SimulatedCluster:
    """Three brokers with two log dirs each."""
    rows = (1, 2, 3)
    brokers = [SimulatedBroker(row, None, [LogDir(100 * MB), LogDir(100 * MB)], 100 * MB, 100 * MB) for row in rows]
    return SimulatedCluster("simulated", brokers)


@pytest.fixture
def client(cluster: SimulatedCluster) -> SimulatedClient:
    return SimulatedClient(cluster, errors=ERRORS)


@pytest.fixture
def root(tables_in_memory: str) -> str:
    return tables_in_memory


def cordoned(cluster: SimulatedCluster, broker: int) -> list[bool]:
    return [row.cordoned for row in cluster.contents.brokers[broker].log_dirs]


def note(root: str, intent: Intent, *, broker: int = 1, cordons: Collection[str] = (), at_ms: int = NOW_MS) -> None:
    note_intent(root, CLUSTER, broker, intent, "a person", now_ms=at_ms, cordons=cordons)


def ours(root: str, broker: int = 1) -> list[str]:
    return sorted(cordons_of(newest_intents(TableReader(root), CLUSTER).get(broker)))


def test_a_drain_cordons_what_nobody_has_cordoned(cluster: SimulatedCluster, client: SimulatedClient) -> None:
    cluster.contents.brokers[2].log_dirs[0].cordoned = True
    cluster.contents.brokers[3].log_dirs[1].offline = True
    assert to_cordon(client, {}, [1, 2, 3, 9]) == {1: BOTH, 2: ("/disk-1",), 3: ("/disk-0",), 9: ()}
    cluster.contents.release = (4, 2)
    assert to_cordon(client, {}, [1]) == {1: ()}, "it knows no cordon"


def test_an_order_is_carried_out_and_its_end_too(cluster: SimulatedCluster, client: SimulatedClient, root: str) -> None:
    assert settle(client, TableReader(root), CLUSTER) == {}, "no table, no order"
    note(root, Intent.DRAIN, cordons=BOTH)
    assert settle(client, TableReader(root), CLUSTER, [2]) == {}
    assert cordoned(cluster, 1) == [False, False], "nobody asked about this broker"
    assert settle(client, TableReader(root), CLUSTER) == {}
    assert (cordoned(cluster, 1), cordoned(cluster, 2)) == ([True, True], [False, False])
    note(root, Intent.USE)
    assert ours(root) == list(BOTH), "still to be uncordoned"
    assert settle(client, TableReader(root), CLUSTER) == {}
    assert (cordoned(cluster, 1), ours(root)) == ([False, False], [])
    # From now on it is no matter of ours.
    cluster.contents.brokers[1].log_dirs[0].cordoned = True
    assert settle(client, TableReader(root), CLUSTER) == {}
    assert cordoned(cluster, 1) == [True, False]


def test_what_others_had_cordoned_stays_so(cluster: SimulatedCluster, client: SimulatedClient, root: str) -> None:
    cluster.contents.brokers[1].log_dirs[0].cordoned = True
    note(root, Intent.DRAIN, cordons=to_cordon(client, {}, [1])[1])
    settle(client, TableReader(root), CLUSTER)
    assert cordoned(cluster, 1) == [True, True]
    note(root, Intent.USE)
    settle(client, TableReader(root), CLUSTER)
    assert cordoned(cluster, 1) == [True, False]


def test_whoever_drains_again_keeps_what_is_ours(cluster: SimulatedCluster, client: SimulatedClient, root: str) -> None:
    """The second drain finds log dirs cordoned: by the first one, or by an end that nobody has carried out yet."""
    note(root, Intent.DRAIN, cordons=BOTH)
    settle(client, TableReader(root), CLUSTER)
    note(root, Intent.USE)
    note(root, Intent.DRAIN, cordons=to_cordon(client, {}, [1])[1])
    assert ours(root) == list(BOTH)
    note(root, Intent.DRAIN, cordons=to_cordon(client, {}, [1])[1])
    note(root, Intent.USE)
    settle(client, TableReader(root), CLUSTER)
    assert cordoned(cluster, 1) == [False, False]


def drain(client: SimulatedClient, root: str, *, at_ms: int) -> None:
    """What the command does."""
    found = to_cordon(client, newest_intents(TableReader(root), CLUSTER), [1])
    note(root, Intent.DRAIN, cordons=found[1], at_ms=at_ms)
    settle(client, TableReader(root), CLUSTER, [1])


def test_a_drain_right_behind_an_end_finds_the_cordons_that_are_just_removed(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process removes the cordons between the look of the second drain and its row."""
    drain(client, root, at_ms=NOW_MS)
    note(root, Intent.USE, at_ms=NOW_MS + 1_000)
    shown = client.log_dirs

    def settled_behind_the_look(*asked: Any) -> Any:
        monkeypatch.undo()
        found = shown(*asked)
        settle(client, TableReader(root), CLUSTER)
        return found

    monkeypatch.setattr(client, "log_dirs", settled_behind_the_look)
    drain(client, root, at_ms=NOW_MS + 2_000)
    assert (cordoned(cluster, 1), ours(root)) == ([True, True], list(BOTH))
    note(root, Intent.USE, at_ms=NOW_MS + 3_000)
    settle(client, TableReader(root), CLUSTER)
    assert (cordoned(cluster, 1), ours(root)) == ([False, False], [])


@pytest.mark.parametrize("late_looks", range(1, 5))
def test_a_drain_right_behind_an_end_cordons_though_the_broker_shows_what_was_before(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, monkeypatch: pytest.MonkeyPatch, late_looks: int
) -> None:
    """A broker hears of a change some time after the controller has made it."""
    drain(client, root, at_ms=NOW_MS)
    old, shown, left = client.log_dirs([1], ()), client.log_dirs, [late_looks]

    def late(*asked: Any) -> Any:
        left[0] -= 1
        return shown(*asked) if left[0] < 0 else old

    monkeypatch.setattr(client, "log_dirs", late)
    note(root, Intent.USE, at_ms=NOW_MS + 1_000)
    problems = settle(client, TableReader(root), CLUSTER, [1])
    assert problems == ({1: STILL_CORDONED} if late_looks > 1 else {})
    drain(client, root, at_ms=NOW_MS + 2_000)
    assert (cordoned(cluster, 1), ours(root)) == ([True, True], list(BOTH))


def test_who_removes_a_cordon_late_sets_it_again_for_the_drain_that_has_come_meanwhile(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain(client, root, at_ms=NOW_MS)
    note(root, Intent.USE, at_ms=NOW_MS + 1_000)
    sound = client.cordon_log_dirs

    def slow(*asked: Any, **how: Any) -> None:
        monkeypatch.undo()
        drain(client, root, at_ms=NOW_MS + 2_000)
        sound(*asked, **how)

    monkeypatch.setattr(client, "cordon_log_dirs", slow)
    settle(client, TableReader(root), CLUSTER)
    assert (cordoned(cluster, 1), ours(root)) == ([True, True], list(BOTH))


def test_the_end_of_an_order_is_older_than_the_next_one(root: str) -> None:
    """The row of a settled order is written right behind the order, not at the time of the clock."""
    note(root, Intent.DRAIN, cordons=BOTH)
    note(root, Intent.USE, at_ms=NOW_MS + 10)
    old = newest_intents(TableReader(root), CLUSTER)[1]
    note(root, Intent.DRAIN, at_ms=NOW_MS + 20)
    note_uncordoned(root, CLUSTER, old)
    assert drained_brokers(TableReader(root), CLUSTER) == {1}
    assert ours(root) == list(BOTH)
    assert [tables.to_ms(row["event_time"]) - NOW_MS for row in tables.read(root, TABLE)].count(11) == 0


def test_log_dirs_that_a_file_of_the_broker_cordons_are_named_beside_ours(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's list takes the place of the one in the file."""
    asked: list[tuple[int, list[str], bool]] = []
    cluster.contents.brokers[1].log_dirs[0].cordoned = True
    monkeypatch.setattr(
        client, "cordon_log_dirs", lambda broker, paths, *, cordoned: asked.append((broker, sorted(paths), cordoned))
    )
    note(root, Intent.DRAIN, cordons=["/disk-1"])
    settle(client, TableReader(root), CLUSTER)
    note(root, Intent.USE)
    settle(client, TableReader(root), CLUSTER)
    assert asked == [(1, list(BOTH), True), (1, ["/disk-1"], False)]


def test_a_broker_that_is_away_or_refuses_is_asked_again_and_holds_up_no_other(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker in (1, 2, 3):
        note(root, Intent.DRAIN, broker=broker, cordons=BOTH)
    cluster.kill_broker(1)
    cluster.advance(60_000)
    sound = client.cordon_log_dirs

    def refusing(broker: int, paths: Collection[str], *, cordoned: bool) -> None:
        if broker == 2:
            raise ClusterRequestFailed("not allowed")
        sound(broker, paths, cordoned=cordoned)

    monkeypatch.setattr(client, "cordon_log_dirs", refusing)
    assert settle(client, TableReader(root), CLUSTER) == {1: "the broker does not answer", 2: "not allowed"}
    assert cordoned(cluster, 3) == [True, True]
    cluster.restart_broker(1)
    cluster.advance(60_000)
    monkeypatch.undo()
    assert settle(client, TableReader(root), CLUSTER) == {}
    assert [cordoned(cluster, broker) for broker in (1, 2)] == [[True, True]] * 2


def test_the_loop_looks_at_each_tick_and_less_often_while_it_carries_out(
    cluster: SimulatedCluster, client: SimulatedClient, root: str
) -> None:
    loop = Cordons(client, root, CLUSTER)
    loop.settle(now_ms=NOW_MS, executing=True)
    note(root, Intent.DRAIN, cordons=BOTH)
    loop.settle(now_ms=NOW_MS + 1_000, executing=True)
    assert cordoned(cluster, 1) == [False, False]
    loop.settle(now_ms=NOW_MS + READ_INTERVAL_MS, executing=True)
    assert cordoned(cluster, 1) == [True, True]
    note(root, Intent.USE)
    loop.settle(now_ms=NOW_MS + READ_INTERVAL_MS + 1, executing=False)
    assert cordoned(cluster, 1) == [False, False]


@pytest.fixture
def asked(client: SimulatedClient, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The brokers of each question about log dirs."""
    found: list[list[int]] = []
    sound = client.log_dirs

    def counting(brokers: Collection[int], *rest: Any) -> Any:
        found.append(sorted(brokers))
        return sound(brokers, *rest)

    monkeypatch.setattr(client, "log_dirs", counting)
    return found


def test_drained_brokers_are_asked_together_and_not_at_each_tick(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, asked: list[list[int]]
) -> None:
    loop = Cordons(client, root, CLUSTER)
    for tick in range(5):
        loop.settle(now_ms=NOW_MS + tick, executing=False)
    assert asked == [], "no order, no question"
    for broker in (1, 2, 3):
        note(root, Intent.DRAIN, broker=broker, cordons=BOTH)
    for tick in range(SETTLED_INTERVAL_MS // 1_000):
        loop.settle(now_ms=NOW_MS + 1_000 * tick, executing=False)
    assert asked == [[1, 2, 3]]
    cluster.contents.brokers[2].log_dirs[0].cordoned = False
    loop.settle(now_ms=NOW_MS + SETTLED_INTERVAL_MS, executing=False)
    assert (asked, cordoned(cluster, 2)) == ([[1, 2, 3]] * 2, [True, True])
    note(root, Intent.USE, broker=3)
    loop.settle(now_ms=NOW_MS + SETTLED_INTERVAL_MS + 1, executing=False)
    assert (len(asked), cordoned(cluster, 3)) == (4, [False, False]), "and whether broker 3 shows the end"


def test_an_order_that_is_not_carried_out_is_tried_at_each_tick(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, asked: list[list[int]]
) -> None:
    cluster.kill_broker(1)
    cluster.advance(60_000)
    for broker in (1, 2):
        note(root, Intent.DRAIN, broker=broker, cordons=BOTH)
    loop = Cordons(client, root, CLUSTER)
    for tick in range(3):
        loop.settle(now_ms=NOW_MS + tick, executing=False)
    assert (asked, cordoned(cluster, 2)) == ([[1, 2]] * 3, [True, True])
    cluster.restart_broker(1)
    cluster.advance(60_000)
    loop.settle(now_ms=NOW_MS + 3, executing=False)
    assert cordoned(cluster, 1) == [True, True]


def test_a_table_that_can_t_be_read_stops_nothing_else(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(root, Intent.DRAIN, cordons=BOTH)

    def unreadable(*_: object) -> None:
        raise TableUnavailable("table broker_intent can't be read")

    loop = Cordons(client, root, CLUSTER)
    with monkeypatch.context() as broken:
        broken.setattr(cordons, "newest_intents", unreadable)
        loop.settle(now_ms=NOW_MS, executing=False)
    assert cordoned(cluster, 1) == [False, False]
    loop.settle(now_ms=NOW_MS + 1, executing=False)
    assert cordoned(cluster, 1) == [True, True]


@pytest.mark.parametrize("mode", ["observe", "propose", "apply"])
def test_control_finishes_in_each_mode_what_a_person_ordered_and_cordons_nothing_else(
    cluster: SimulatedCluster, client: SimulatedClient, root: str, mode: str
) -> None:
    settings = Settings.model_validate(
        {"kafka": {"cluster_name": CLUSTER}, "storage": {"tables": root}, "control": {"mode": mode}}
    )
    note(root, Intent.DRAIN, broker=2)  # as earlier versions did: no log dir is ours
    note(root, Intent.DRAIN, broker=3, cordons=BOTH)  # the command was killed right behind its row
    ControlLoop(client, settings, now_ms=NOW_MS).tick(now_ms=NOW_MS)
    assert [cordoned(cluster, broker) for broker in (1, 2, 3)] == [[False, False], [False, False], [True, True]]


def test_for_a_plan_that_fills_a_broker_our_cordons_are_none(
    cluster: SimulatedCluster, client: SimulatedClient, root: str
) -> None:
    cluster.contents.brokers[1].log_dirs[0].cordoned = True
    note(root, Intent.DRAIN, cordons=["/disk-1"])
    settle(client, TableReader(root), CLUSTER)
    shown = Uncordoned(client, newest_intents(TableReader(root), CLUSTER)).log_dirs([1, 2], ())
    assert {broker: [row.is_cordoned for row in rows] for broker, rows in shown.items()} == {
        1: [True, False], 2: [False, False],
    }  # fmt: skip
