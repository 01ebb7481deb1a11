"""Clusters and topics by their ids: what only bears the address or the name of what is meant is left alone."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from assignor_core.execution.progress import MISSING_SNAPSHOTS_MIN
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import LEADER_REPLICAS
from streaming import tables
from streaming.control.cluster_marker import ANNOUNCED_BEFORE_MS
from streaming.control.identity import cluster_of, lease_of
from streaming.control.journal import ExecutionRecord
from streaming.control.late_requests import CHECKS_AFTER_MS
from streaming.control.lease import Lease
from streaming.control.run import ControlTurns
from streaming.control.wiring import journal_of
from streaming.errors import AnotherCluster
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster, another_cluster, approve, approve_plan, carrier


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    control = {"movements_in_flight_max": 1}
    return Settings.model_validate({"storage": {"tables": tables_in_memory}, "control": control})


def approved(settings: Settings, cluster: NotedCluster) -> ExecutionRecord:
    """A plan made on the live cluster: t-0 and u-0 go from broker 1 to 2."""
    cluster.cluster.create_topic("u", {0: (1,)})
    made = Plan("c", tuple(Movement(topic, 0, (1,), (2,), 5.0) for topic in ("t", "u")), SKEW, SKEW)
    journal = journal_of(settings)
    return approve_plan(journal, made, live=cluster.describe())


def make_again(cluster: NotedCluster, topic: str) -> None:
    """Same name, same replicas, another id."""
    cluster.cluster.delete_topic(topic)
    cluster.cluster.create_topic(topic, dict.fromkeys(range(3), (1,)))


def test_a_plan_keeps_the_ids_of_its_topics(settings: Settings) -> None:
    cluster = NotedCluster()
    record = approved(settings, cluster)
    ids = cluster.describe().topic_ids
    assert ids["t"] != ids["u"]
    assert journal_of(settings).plan(record.execution.plan_id).topic_ids == {"t": ids["t"], "u": ids["u"]}


def test_a_topic_that_was_made_again_before_the_start_has_the_plan_refused(settings: Settings) -> None:
    cluster = NotedCluster()
    record = approved(settings, cluster)
    before = cluster.describe().topic_ids["t"]
    make_again(cluster, "t")
    carrier(settings, cluster).tick(now_ms=NOON_MS)
    end = journal_of(settings).execution(record.execution.execution_id).last
    after = cluster.describe().topic_ids["t"]
    assert end.event == "refused"
    assert end.detail.endswith(f"t was deleted and made again: its id is {after}, was {before}")
    assert cluster.changes == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_is_made_again_on_the_way_is_left_alone_and_the_rest_goes_on(
    settings: Settings, restarted: bool
) -> None:
    cluster = NotedCluster(moves=True)
    record = approved(settings, cluster)
    one = carrier(settings, cluster)
    one.tick(now_ms=NOON_MS)  # t-0 is moved; one at a time
    make_again(cluster, "t")
    cluster.cancel(("u", 0))
    cluster.changes.clear()
    one = carrier(settings, cluster) if restarted else one
    for look in range(1, MISSING_SNAPSHOTS_MIN + 3):
        one.tick(now_ms=NOON_MS + look)
    end = journal_of(settings).execution(record.execution.execution_id).last
    assert (end.event, end.detail) == (
        "done",
        "1 movement made, 1 partition is gone; deleted and made again, so no topics of this plan any more: t",
    )
    assert "move u-0" in cluster.changes
    assert not any("t-0" in change for change in cluster.changes)
    assert cluster.describe().partitions["t", 0].replicas == (1,)


class MadeAgainWhileThrottled(NotedCluster):
    """The topic t is deleted and made again while the first throttle is set."""

    def set_throttle_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        if "throttle" not in self.changes:
            make_again(self, "t")
        super().set_throttle_rates(rates_bytes_per_sec)


def test_a_topic_that_is_made_again_while_the_throttle_is_set_is_left_alone(settings: Settings) -> None:
    cluster = MadeAgainWhileThrottled(moves=True)
    record = approved(settings, cluster)
    one = carrier(settings, cluster)
    for look in range(MISSING_SNAPSHOTS_MIN + 3):
        one.tick(now_ms=NOON_MS + look)
    assert journal_of(settings).execution(record.execution.execution_id).last.event == "done"
    assert "move u-0" in cluster.changes
    assert not any("t-0" in change for change in cluster.changes)
    assert cluster.describe().partitions["t", 0].replicas == (1,)


def test_a_topic_that_is_made_again_while_a_start_sets_the_throttle_has_no_leader_elected(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is moved when control is killed; the next one sets the throttle before it asks for elections."""
    cluster, journal = MadeAgainWhileThrottled(moves=True), journal_of(settings)
    made = Plan("c", (Movement("t", 0, (1,), (2, 1), 5.0),), SKEW, SKEW)
    approve_plan(journal, made, live=cluster.describe())
    cluster.changes.append("throttle")  # nothing is made again while the first one sets it
    carrier(settings, cluster).tick(now_ms=NOON_MS)
    assert cluster.describe().partitions["t", 0].replicas == (2, 1)
    cluster.changes.clear()
    elected: list[PartitionKey] = []
    monkeypatch.setattr(cluster, "elect_preferred", elected.extend)
    one = carrier(settings, cluster)
    for look in range(1, MISSING_SNAPSHOTS_MIN + 3):
        one.tick(now_ms=NOON_MS + look)
    assert "throttle" in cluster.changes
    assert elected == []


def test_a_topic_that_is_made_again_gets_no_throttle_of_the_plan(settings: Settings) -> None:
    cluster = NotedCluster()
    approved(settings, cluster)
    carrier(settings, cluster).tick(now_ms=NOON_MS)
    assert cluster.throttled_replicas(["t"])["t", LEADER_REPLICAS] == "0:1"
    make_again(cluster, "t")
    carrier(settings, cluster).tick(now_ms=NOON_MS + 1)  # a start sets the throttle anew
    assert cluster.throttled_replicas(["t"]) == {}
    assert cluster.throttled_replicas(["u"])["u", LEADER_REPLICAS] == "0:1"


def turns(settings: Settings, cluster: NotedCluster, lease: Lease | None = None) -> ControlTurns:
    instants = itertools.count(0, ANNOUNCED_BEFORE_MS)  # each look at the clock is so much later
    own = lease or Lease(
        settings.storage.tables, settings.kafka.cluster_name, 10**9, lambda: next(instants), kafka_cluster_id="c"
    )
    one = ControlTurns(cluster, own, settings)
    one.take(now_ms=NOON_MS)  # takes the lease
    return one


HELD = "the brokers are Kafka cluster d, expected is Kafka cluster c"


def test_an_execution_knows_the_cluster_that_it_was_started_on_where_its_plan_does_not(settings: Settings) -> None:
    cluster = NotedCluster()
    record, journal = approve(journal_of(settings), 0), journal_of(settings)
    carrier(settings, cluster).tick(now_ms=NOON_MS)
    assert journal.plan(record.execution.plan_id).kafka_cluster_id is None  # made on no live cluster
    assert journal.execution(record.execution.execution_id).figures.kafka_cluster_id == "c"
    cluster.connect(another_cluster())
    cluster.changes.clear()
    carrier(settings, cluster).tick(now_ms=NOON_MS + 60_000)  # a process that starts
    assert journal.execution(record.execution.execution_id).last.detail.startswith(
        "held: the brokers are Kafka cluster d"
    )
    assert cluster.changes == []


def test_nothing_is_started_on_another_cluster_and_what_waits_starts_on_the_right_one(settings: Settings) -> None:
    cluster = NotedCluster(moves=True, kafka_cluster_id="c")
    right = cluster.cluster
    record, one = approve(journal_of(settings), 0), turns(settings, cluster)
    cluster.connect(another_cluster())
    one.take(now_ms=NOON_MS + 1)
    assert journal_of(settings).execution(record.execution.execution_id).waiting
    assert cluster.changes == []
    cluster.connect(right)
    for look in range(2, 5):
        one.take(now_ms=NOON_MS + look)
    assert journal_of(settings).execution(record.execution.execution_id).last_event == "done"


def test_what_is_under_way_is_held_on_another_cluster_and_goes_on_on_the_right_one(settings: Settings) -> None:
    cluster = NotedCluster(kafka_cluster_id="c")
    right = cluster.cluster
    record, one = approve(journal_of(settings), 0), turns(settings, cluster)
    for _ in range(2):  # the marker is announced first
        one.take(now_ms=NOON_MS + 1)
    cluster.connect(another_cluster())
    cluster.changes.clear()
    one.take(now_ms=NOON_MS + 60_000)
    last = journal_of(settings).execution(record.execution.execution_id).last
    assert (last.event, last.detail) == ("progress", f"held: {HELD}")
    assert cluster.changes == []
    right.advance(1_000)
    cluster.connect(right)
    one.take(now_ms=NOON_MS + 61_000)
    assert journal_of(settings).execution(record.execution.execution_id).last_event == "done"


class Admin:
    """Answers with the id of its cluster, and no other question."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id

    def describe_cluster(self) -> dict[str, Any]:
        return {"cluster_id": self._cluster_id, "brokers": []}

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was called")


def test_who_starts_against_another_cluster_than_the_tables_know_is_refused(settings: Settings) -> None:
    lease = lease_of(Admin("c"), settings)
    assert lease.try_acquire()
    lease.release()
    row = tables.read(settings.storage.tables, "lease")[0]
    assert (row["kafka_cluster_id"], row["lease_id"]) == ("c", lease.lease_id)
    for connect in (lease_of, cluster_of):
        with pytest.raises(AnotherCluster) as refused:
            connect(Admin("d"), settings)
        assert str(refused.value) == (
            "the brokers at 127.0.0.1:9092 are Kafka cluster d, "
            f"the tables in {settings.storage.tables} know 'main' as Kafka cluster c: "
            "is kafka.bootstrap_servers right? If the cluster was built again, set kafka.cluster_id to d"
        )
        connect(Admin("c"), settings)


def test_before_the_first_lease_the_newest_plan_names_the_cluster(settings: Settings) -> None:
    """Else a first start while another cluster answers would bind the tables to that one."""
    approved(settings, NotedCluster())
    known = NotedCluster().cluster.contents.cluster_id
    with pytest.raises(AnotherCluster, match=f"as Kafka cluster {known}"):
        lease_of(Admin("another"), settings)
    assert lease_of(Admin(known), settings).try_acquire()


def test_the_setting_refuses_every_other_cluster_and_takes_the_tables_over(settings: Settings) -> None:
    first = lease_of(Admin("c"), settings)
    assert first.try_acquire()
    first.release()
    wants_d = Settings.model_validate({**settings.model_dump(), "kafka": {"cluster_id": "d"}})
    with pytest.raises(AnotherCluster, match=r"are Kafka cluster c, kafka\.cluster_id is d"):
        lease_of(Admin("c"), wants_d)
    assert lease_of(Admin("d"), wants_d).try_acquire()
    with pytest.raises(AnotherCluster, match="know 'main' as Kafka cluster d"):
        cluster_of(Admin("c"), settings)
    cluster_of(Admin("d"), settings)


def test_a_client_that_was_made_for_one_cluster_refuses_to_look_at_another(settings: Settings) -> None:
    admin = Admin("c")
    cluster = cluster_of(admin, settings)
    admin._cluster_id = "d"
    with pytest.raises(AnotherCluster, match="are Kafka cluster d, expected is Kafka cluster c"):
        cluster.describe()


def test_what_was_given_up_on_another_cluster_is_cleared_once_the_right_one_answers(settings: Settings) -> None:
    cluster = NotedCluster(kafka_cluster_id="c")
    right, journal = cluster.cluster, journal_of(settings)
    record, one = approve(journal, 0), turns(settings, cluster)
    for _ in range(2):
        one.take(now_ms=NOON_MS + 1)
    cluster.connect(another_cluster())
    journal.request_abort(record.execution, "a person", now_ms=NOON_MS)
    one.take(now_ms=NOON_MS + 2)
    ended = journal.execution(record.execution.execution_id)
    assert (ended.last_event, ended.throttled_brokers) == ("aborted", (1, 2))
    one.take(now_ms=NOON_MS + 2 + CHECKS_AFTER_MS[-1])  # a look that is due waits for the right cluster
    cluster.connect(right)
    one.take(now_ms=NOON_MS + 3 + CHECKS_AFTER_MS[-1])
    assert not cluster.describe().partitions["t", 0].reassigning
    assert (cluster.throttle_rates(), cluster.throttled_replicas(["t"])) == ({}, {})
    assert not journal.execution(record.execution.execution_id).owes
