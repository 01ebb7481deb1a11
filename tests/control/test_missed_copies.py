"""A copy that metadata misses and the controller lists: a broker's metadata may be incomplete, or a right revoked."""

import pytest

from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.late_requests import CHECKS_AFTER_MS
from streaming.control.run import ControlLoop
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, NotedCluster, plan
from tests.control.test_late_requests import approve, let_it_copy_for_long

HOUR_MS = 3_600_000
KEY = ("t", 0)


def under_way(settings: Settings, cluster: NotedCluster) -> ControlLoop:
    """After three ticks the controller lists t-0, and from now on no metadata shows it."""
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    for second in range(3):
        loop.tick(now_ms=NOON_MS + 1_000 * second)
    assert KEY in cluster.describe().listed
    cluster.faults.hidden_topics.add("t")
    return loop


def last_event(journal: Journal, record: ExecutionRecord) -> str:
    return journal.execution(record.execution.execution_id).last.event.value


@pytest.mark.parametrize("by_deadline", [False, True])
def test_what_ends_cancels_it(settings: Settings, by_deadline: bool) -> None:
    cluster = NotedCluster()
    record = approve(settings, cluster)
    loop, journal = under_way(settings, cluster), journal_of(settings)
    now_ms = NOON_MS + 5_000
    if by_deadline:
        now_ms = NOON_MS + settings.control.execution_deadline_ms + 1
    else:
        journal.request_abort(record.execution, "a person", now_ms=now_ms)
    for second in range(15):
        loop.tick(now_ms=now_ms + 1_000 * second)
    assert last_event(journal, record) == "aborted"
    assert "1 move in flight cancelled" in journal.execution(record.execution.execution_id).last.detail
    assert cluster.describe().listed == {}


def test_it_does_not_pause_while_it_copies(settings: Settings) -> None:
    """A pause removes the throttle: the rest of the copy would take all that the network has."""
    settings = Settings.model_validate({**settings.model_dump(), "control": {"maintenance_windows": ["12:00-13:00"]}})
    cluster, journal = NotedCluster(), journal_of(settings)
    let_it_copy_for_long(cluster)
    record = ExecutionRecord(journal.approve(plan(journal, 0), "a test", now_ms=NOON_MS, in_windows_only=True))
    loop = under_way(settings, cluster)
    loop.tick(now_ms=NOON_MS + HOUR_MS + 1_000)
    assert last_event(journal, record) != "paused"
    assert cluster.throttle_rates() != {}
    cluster.cluster.reassign({KEY: None})
    cluster.faults.hidden_topics.clear()
    loop.tick(now_ms=NOON_MS + HOUR_MS + 2_000)
    assert last_event(journal, record) == "paused"
    assert cluster.throttle_rates() == {}


def test_a_late_look_cancels_it(settings: Settings) -> None:
    cluster = NotedCluster()
    record, loop = approve(settings, cluster), ControlLoop(cluster, settings, now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS)
    journal_of(settings).request_abort(record.execution, "a person", now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + 1_000)
    cluster.cluster.reassign({KEY: (2,)})  # a request that a broker held back
    cluster.faults.hidden_topics.add("t")
    loop.tick(now_ms=NOON_MS + 1_000 + CHECKS_AFTER_MS[0])
    assert last_event(journal_of(settings), record) == "swept"
    assert cluster.describe().listed == {}
