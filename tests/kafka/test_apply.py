"""`rebalancer apply` and `abort` as processes on real brokers, with no control beside them, interrupted and killed."""

import json
import re
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from assignor_core.execution.life_cycle import Execution
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.control.journal import Journal
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests import commands
from tests.commands import Process, finish
from tests.control.noted_cluster import SKEW
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = pytest.mark.kafka

RECORDS = 1_500
VALUE = b"x" * 2_000
"""3 MB a topic: Kafka's first fetch, of up to 1 MB, is not slowed by any throttle."""
Start = Callable[..., Process]

SLOWLY = 20_000
"""Bytes/s at which the rest takes longer than a test."""


def make_topic(admin: KafkaAdminClient, settings: Settings) -> str:
    """One partition on broker 1, with records."""
    topic = f"apply-{uuid.uuid4().hex[:8]}"
    admin.create_topics({topic: {"assignments": {0: [1]}}})
    wait_until_known(admin, [topic])
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all")
    for _ in range(RECORDS):
        producer.send(topic, VALUE)
    producer.flush()
    producer.close()
    return topic


def write_plan(journal: Journal, *topics: str) -> str:
    """To move these topics from broker 1 to 2."""
    plan = Plan("test", tuple(Movement(topic, 0, (1,), (2,), len(VALUE) * RECORDS) for topic in topics), SKEW, SKEW)
    journal.write_plan(ProposedPlan(plan, elapsed_ms=1.0), decision=None, now_ms=now_ms())
    return plan.plan_id


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Start:
    def started(*arguments: str, throttle: int = 50_000_000) -> Process:
        throttled = f"control.throttle_bytes_per_sec={throttle}"
        return commands.start(settings, tmp_path, *arguments, "--set", throttled)

    return started


def begun(journal: Journal, start: Start, *topics: str, throttle: int = SLOWLY) -> tuple[Process, Execution]:
    """An `apply` that copies slowly."""
    process = start("apply", write_plan(journal, *topics), "--yes", throttle=throttle)

    def executions() -> list[Execution]:
        return [row for row in journal.open_executions(now_ms=now_ms()) if row.last_event in ("submitted", "progress")]

    until("under way", executions)
    return process, executions()[0]


def assert_left_nothing(cluster: Cluster, *topics: str) -> None:
    until("no throttle", lambda: cluster.throttle_rates() == {} and cluster.throttled_replicas(topics) == {})
    assert not cluster.describe().reassigning()


def replicas(cluster: Cluster, topic: str) -> tuple[int, ...]:
    return cluster.describe().partitions[(topic, 0)].replicas


def test_a_killed_apply_is_gone_on_with_by_the_next(settings: Settings, admin: KafkaAdminClient, start: Start) -> None:
    topic, cluster, journal = make_topic(admin, settings), Cluster(admin), journal_of(settings)
    first, record = begun(journal, start, topic)
    first.kill()
    first.communicate()
    until("throttled", lambda: cluster.throttle_rates().keys() == {1, 2})
    code, out, _ = finish(start("apply", record.plan_id, "--yes"))
    assert (code, f"Execution {record.execution_id} is open (submitted:" in out) == (0, True)
    assert [row.execution_id for row in journal.executions(now_ms=now_ms())] == [record.execution_id]
    until("moved", lambda: replicas(cluster, topic) == (2,))
    assert_left_nothing(cluster, topic)


def test_a_second_ctrl_c_leaves_and_says_what_stays(
    settings: Settings, admin: KafkaAdminClient, start: Start, tmp_path: Path
) -> None:
    topic, cluster, journal = make_topic(admin, settings), Cluster(admin), journal_of(settings)
    process, record = begun(journal, start, topic)
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    code, _, err = finish(process)
    assert code == 128 + signal.SIGINT
    # A busy machine makes a second look, which notes progress, or reads the request to abort before it leaves.
    file = tmp_path / "settings.json"
    message = rf"execution {record.execution_id} stays open \(\w+\); to stop it: rebalancer abort --config {file} "
    assert re.search(message, err), err
    assert err.endswith("error: interrupted\n")
    code, out, _ = finish(start("abort"))
    assert (code, f"{record.execution_id}: aborted: a person asked to stop; 1 move in flight" in out) == (0, True)
    until("moved", lambda: replicas(cluster, topic) == (1,))
    assert_left_nothing(cluster, topic)


def test_with_json_standard_output_has_the_end_alone_also_of_one_that_is_aborted(
    settings: Settings, admin: KafkaAdminClient, start: Start
) -> None:
    topic, other = make_topic(admin, settings), make_topic(admin, settings)
    cluster, journal = Cluster(admin), journal_of(settings)
    code, out, err = finish(start("apply", write_plan(journal, topic), "--yes", "--json"))
    end = json.loads(out)
    (execution,) = [row for row in journal.executions(now_ms=now_ms()) if row.execution_id == end["execution_id"]]
    assert (code, end["event"], end["movements_done"], end["movements_total"]) == (0, "done", 1, 1)
    assert (end["plan_id"], end["detail"]) == (execution.plan_id, execution.last.detail)
    assert end["bytes_moved"] >= end["bytes_total"] > 0
    assert "1 of 1 movement, 100 %" in err
    process = start("apply", write_plan(journal, other), "--yes", "--json", throttle=SLOWLY)
    until("under way", lambda: [row for row in journal.open_executions(now_ms=now_ms()) if row.started_ms])
    process.send_signal(signal.SIGHUP)
    code, out, err = finish(process)
    end = json.loads(out)
    assert (code, end["event"], end["movements_done"]) == (1, "aborted", 0)
    assert "asked to stop: moves in flight are cancelled, and throttles removed" in err
    assert replicas(cluster, topic) == (2,)
    until("the other topic is where it was", lambda: replicas(cluster, other) == (1,))
    assert_left_nothing(cluster, topic, other)


def test_abort_ends_what_has_begun_and_what_waits_though_a_topic_is_gone(
    settings: Settings, admin: KafkaAdminClient, start: Start
) -> None:
    topic, gone, other = (make_topic(admin, settings) for _ in range(3))
    cluster, journal = Cluster(admin), journal_of(settings)
    process, record = begun(journal, start, topic, gone)
    process.kill()
    process.communicate()
    admin.delete_topics([gone])
    waiting = journal.approve(journal.plan(write_plan(journal, other)), "a test", now_ms=now_ms())
    code, out, _ = finish(start("abort"))
    assert code == 0
    ends = dict(
        line.split(": ", 1) for line in out.splitlines() if line.startswith((record.plan_id[:12], waiting.plan_id[:12]))
    )
    assert ends[record.execution_id].startswith("aborted: a person asked to stop; ")
    assert ends[waiting.execution_id] == "aborted: a person asked to stop before the execution began"
    until("moved", lambda: replicas(cluster, topic) == (1,))
    assert_left_nothing(cluster, topic, other)


def test_tables_that_are_away_for_a_while_end_nothing(
    settings: Settings, admin: KafkaAdminClient, start: Start
) -> None:
    topic, cluster, journal = make_topic(admin, settings), Cluster(admin), journal_of(settings)
    process, _ = begun(journal, start, topic, throttle=10 * SLOWLY)
    folder = Path(settings.storage.tables)
    away = folder.rename(folder.with_name("away"))
    folder.write_text("in the place of the folder")
    time.sleep(3.0)
    folder.unlink()
    away.rename(folder)
    code, out, err = finish(process)
    assert (code, "tick_failed" in err) == (0, True)
    assert out.endswith("done: every movement has been made\n")
    assert_left_nothing(cluster, topic)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
