"""What control writes down of restarts: how often it asks the cluster, and what it leaves out."""

from collections.abc import Collection
from pathlib import Path

import pytest
import structlog

from assignor_core.live import LiveCluster, LivePartition
from streaming.control.restarts import (
    ASKED_AGAIN_MS,
    READ_INTERVAL_MS,
    TOPICS_PER_READ,
    InSyncMins,
    RestartReports,
)
from streaming.control.run import ControlLoop
from streaming.errors import ClusterRequestFailed
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.restarts import SHOWN_MAX_MS, read_restarts
from tests.control.carried import ERRORS, MB
from tests.simulated_cluster import Fate, PlannedFault, RequestKind, SimulatedClient, SimulatedCluster

CLUSTER = "c"
NOW_MS = 1_000_000_000
BROKERS = {1: "a", 2: "b", 3: "c"}


class Topics:
    """`min.insync.replicas` of each topic is 2, but of those that are hidden; notes who asked for what."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.hidden: set[str] = set()
        self.fails = False

    def __call__(self, topics: Collection[str]) -> dict[str, int]:
        self.asked.append(sorted(topics))
        if self.fails:
            raise ClusterRequestFailed("refused")
        return {topic: 2 for topic in topics if topic not in self.hidden}


def live(*rows: tuple[str, LivePartition], ids: str = "0") -> LiveCluster:
    names = {topic: f"{topic}-{ids}" for topic, _ in rows}
    return LiveCluster(CLUSTER, BROKERS, {(topic, 0): row for topic, row in rows}, topic_ids=names)


WHOLE, THIN = LivePartition((1, 2, 3), 1, (1, 2, 3)), LivePartition((1, 2), 1, (1, 2))


def test_settings_are_read_once_in_a_while_and_again_for_a_topic_that_was_made_again() -> None:
    read = Topics()
    mins = InSyncMins(read)
    assert mins.of(live(("t", WHOLE), ("u", WHOLE)), now_ms=NOW_MS) == {"t": 2, "u": 2}
    for later_ms in (1, ASKED_AGAIN_MS - 1):
        mins.of(live(("t", WHOLE), ("u", WHOLE)), now_ms=NOW_MS + later_ms)
    assert read.asked == [["t", "u"]]
    mins.of(live(("t", WHOLE), ("u", WHOLE), ids="1"), now_ms=NOW_MS + 2)
    mins.of(live(("v", WHOLE), ids="1"), now_ms=NOW_MS + 3)
    assert read.asked[1:] == [["t", "u"], ["v"]]
    assert mins.of(live(("v", WHOLE), ids="1"), now_ms=NOW_MS + 3 + ASKED_AGAIN_MS) == {"v": 2}
    assert read.asked[3:] == [["v"]]


def test_the_topics_of_a_large_cluster_are_asked_some_at_a_time_the_oldest_first() -> None:
    read = Topics()
    mins = InSyncMins(read)
    many = live(*((f"t{number:05}", WHOLE) for number in range(10_000)))
    known = [len(mins.of(many, now_ms=NOW_MS + look)) for look in range(6)]
    assert known == [2_000, 4_000, 6_000, 8_000, 10_000, 10_000]
    assert [len(topics) for topics in read.asked] == [TOPICS_PER_READ] * 5
    mins.of(many, now_ms=NOW_MS + ASKED_AGAIN_MS + 4)
    assert read.asked[5] == read.asked[0]


def test_a_refusal_leaves_what_was_known_and_is_tried_again() -> None:
    read = Topics()
    mins = InSyncMins(read)
    mins.of(live(("t", WHOLE)), now_ms=NOW_MS)
    read.fails = True
    both = live(("t", WHOLE), ("u", WHOLE))
    assert mins.of(both, now_ms=NOW_MS + 1) == {"t": 2}
    read.fails = False
    assert mins.of(both, now_ms=NOW_MS + 2) == {"t": 2, "u": 2}


def test_a_topic_that_a_broker_has_not_heard_of_yet_is_asked_for_again_at_the_next_look() -> None:
    """A topic that stays hidden is then asked for as rarely as the others."""
    read = Topics()
    read.hidden |= {"new", "hidden"}
    mins = InSyncMins(read)
    both = live(("new", WHOLE), ("hidden", WHOLE))
    assert mins.of(both, now_ms=NOW_MS) == {}
    read.hidden.remove("new")
    for look in (1, 2, ASKED_AGAIN_MS):
        assert mins.of(both, now_ms=NOW_MS + look) == {"new": 2}
    assert read.asked == [["hidden", "new"]] * 2
    read.hidden.add("new")
    for look in (1, 2, 3):
        mins.of(both, now_ms=NOW_MS + ASKED_AGAIN_MS + look)
    assert read.asked[2:] == [["hidden", "new"], ["new"]], "also one that was shown before"


def test_brokers_with_hidden_settings_have_no_row_and_the_others_have_one(tables_in_memory: str) -> None:
    read = Topics()
    read.hidden.add("hidden")
    reports = RestartReports(read, tables_in_memory, CLUSTER)
    reports.note(live(("t", WHOLE), ("u", THIN), ("hidden", LivePartition((3,), 3, (3,)))), now_ms=NOW_MS)
    rows = read_restarts(TableReader(tables_in_memory), CLUSTER)
    assert [(row.broker, row.is_safe, row.partitions["refusing"], row.partitions["at_edge"]) for row in rows] == [
        (1, False, 1, 1), (2, False, 1, 1),
    ]  # fmt: skip
    read.hidden.clear()
    reports.note(live(("t", WHOLE)), now_ms=NOW_MS + ASKED_AGAIN_MS)
    rows = read_restarts(TableReader(tables_in_memory), CLUSTER)
    assert [(row.broker, row.is_safe) for row in rows] == [(1, True), (2, True), (3, True)]


def test_a_cluster_or_a_table_that_is_away_stops_nothing(tables_in_memory: str, tmp_path: Path) -> None:
    cluster = SimulatedCluster.of(BROKERS)
    cluster.create_topic("t", {0: (1, 2, 3)}, size_bytes=MB)
    client = SimulatedClient(cluster, errors=ERRORS)
    client.faults.planned.append(PlannedFault(Fate.LOST, RequestKind.DESCRIBE))
    reports, read = RestartReports(Topics(), tables_in_memory, CLUSTER), TableReader(tables_in_memory)
    reports.read_if_due(client, now_ms=NOW_MS)
    assert read_restarts(read, CLUSTER) == ()
    reports.read_if_due(client, now_ms=NOW_MS + READ_INTERVAL_MS)
    assert len(read_restarts(read, CLUSTER)) == 3
    (tmp_path / "full").write_text("no folder")
    with structlog.testing.capture_logs() as logs:
        RestartReports(Topics(), str(tmp_path / "full"), CLUSTER).note(live(("t", WHOLE)), now_ms=NOW_MS)
    assert [row["event"] for row in logs] == ["restarts_not_written"]


def test_the_cluster_is_looked_at_for_this_alone_only_if_nothing_else_did(
    tables_in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No window closes here, so control decides nothing."""
    cluster = SimulatedCluster.of(BROKERS)
    cluster.create_topic("t", {0: (1, 2, 3)}, size_bytes=MB)
    client, looks = SimulatedClient(cluster, errors=ERRORS), 0
    sound = client.describe

    def counting(topics: Collection[str] | None = None) -> LiveCluster:
        nonlocal looks
        looks += topics is None
        return sound(topics)

    monkeypatch.setattr(client, "describe", counting)
    settings = Settings.model_validate({"kafka": {"cluster_name": CLUSTER}, "storage": {"tables": tables_in_memory}})
    loop = ControlLoop(client, settings, now_ms=NOW_MS, in_sync_min=Topics())
    for tick in range(READ_INTERVAL_MS // 1_000):
        loop.tick(now_ms=NOW_MS + 1_000 * tick)
    assert looks == 1
    loop.tick(now_ms=NOW_MS + READ_INTERVAL_MS)
    assert looks == 2
    assert [row.is_safe for row in read_restarts(TableReader(tables_in_memory), CLUSTER)] == [True] * 3


@pytest.mark.parametrize(
    ("phrase", "limit", "value"),
    [
        ("of at most 2,000 topics at a time", TOPICS_PER_READ, 2_000),
        ("of each topic every ten minutes", ASKED_AGAIN_MS, 600_000),
        ("if control has not read the cluster for five minutes", SHOWN_MAX_MS, 300_000),
    ],
)
def test_limits_are_as_documented(phrase: str, limit: int, value: int) -> None:
    page = Path(__file__).parents[2] / "docs/drain-and-add.md"
    assert phrase in " ".join(page.read_text().split())
    assert limit == value


def test_a_decision_gives_its_look(tables_in_memory: str) -> None:
    reports, read = RestartReports(Topics(), tables_in_memory, CLUSTER), TableReader(tables_in_memory)
    reports.note(live(("t", WHOLE)), now_ms=NOW_MS)
    reports.read_if_due(None, now_ms=NOW_MS + READ_INTERVAL_MS - 1)  # type: ignore[arg-type]
    assert {row.event_ms for row in read_restarts(read, CLUSTER)} == {NOW_MS}
