"""A look at a cluster in which a broker hangs, or refuses: what it does not show is unknown, and all else is there."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx
import numpy as np
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    KafkaError,
    RequestTimedOutError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)

from assignor_core.live import PartitionKey
from streaming.cluster.answer_columns import LogDirRows, TopicRows
from streaming.cluster.broker_reads import EARLIEST, EARLIEST_LOCAL, BrokerReads, Reads
from streaming.cluster.described_groups import DescribedGroup
from streaming.cluster.metadata import ClusterMetadata
from streaming.collect.counters import FIELDS, PREFIX
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.rates import broker_rates, replica_rates
from streaming.collect.sample import ClusterSample, RefusedRequests
from streaming.errors import AnotherCluster
from streaming.settings import CollectSettings
from tests.collect.by_row import partition_views, rates_of, sizes_of
from tests.collect.sample_records import byte_rate_records
from tests.waiting import DEADLINE_S

TIMEOUT_S = 15.0
RECORD_BYTES = 100
RECORDS_PER_SECOND = 10


@dataclass
class Cluster:
    """Brokers 1 to 3, each with topic `t<id>` of one partition and group `g<id>` that reads it, as they are asked.

    Each topic is written, and read, at 1,000 bytes/s by the clock `now_s`, which stands still but while a broker hangs.
    """

    now_s: float = 1_000.0
    hung: set[int] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    failing: dict[tuple[str, int], KafkaError] = field(default_factory=dict)
    """What a broker says to a request by name, instead of an answer."""
    starts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Log start and first offset on the disk, by topic, where these are not 0."""
    losing: dict[str, int] = field(default_factory=dict)
    """What a log is to begin at, by topic, from the moment at which the size of its broker's logs is asked for."""
    topic_ids: tuple[str, str, str] = ("a", "b", "c")
    offsets_asked: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Timestamp and topics of each request for offsets."""
    knows_local: bool = True
    """Whether brokers answer which offset is the first on the disk."""
    silent: dict[int, KafkaError] = field(default_factory=dict)
    """Brokers that gave no answer when they were asked for metadata."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    groups_hidden: set[str] = field(default_factory=set)
    """Groups that may not be described."""

    def monotonic(self) -> float:
        return self.now_s

    @property
    def records(self) -> int:
        return round(self.now_s * RECORDS_PER_SECOND)

    def silent_brokers(self) -> dict[int, KafkaError]:
        return dict(self.silent)

    def metadata(self) -> ClusterMetadata:
        ids = np.array([1, 2, 3])
        names = tuple(f"t{broker}" for broker in ids)
        begins = np.arange(4)
        return ClusterMetadata(
            dict.fromkeys((1, 2, 3), "r"), {broker: f"b{broker}:9092" for broker in (1, 2, 3)}, "c", names,
            self.topic_ids, ids - 1, ids * 0, ids, begins, ids, {},
        )  # fmt: skip

    def replicas_added(self) -> dict[PartitionKey, frozenset[int]]:
        self._reach("reassignments", 0)
        return {}

    def leader_offsets(self, broker: int, led: Mapping[str, Sequence[int]], timestamp: int) -> TopicRows:
        self._reach("offsets", broker)
        self.offsets_asked.append((timestamp, tuple(sorted(led))))
        place = {EARLIEST: 0, EARLIEST_LOCAL: 1}
        offsets = [self.starts.get(topic, (0, 0))[place[timestamp]] if timestamp in place else self.records
                   for topic in led]  # fmt: skip
        refused = UnsupportedVersionError.errno if timestamp == EARLIEST_LOCAL and not self.knows_local else 0
        errors = [UnknownTopicOrPartitionError.errno if topic in self.deleted else refused for topic in led]
        rows = [(0, error, offset) for error, offset in zip(errors, offsets, strict=True)]
        return rows_of(tuple(led), rows, ["index", "error", "offset"])

    def log_dirs(self, broker: int) -> list[LogDirRows]:
        self._reach("log dirs", broker)
        topic = f"t{broker}"
        if topic in self.losing:
            self.starts[topic] = (self.losing[topic],) * 2
        size = (self.records - self.starts.get(topic, (0, 0))[1]) * RECORD_BYTES
        replicas = rows_of((topic,), [(0, size, 0)], ["index", "size", "is_future"])
        return [LogDirRows(0, "/d", replicas, 1, 1)]

    def list_groups(self, broker: int) -> list[dict[str, Any]]:
        self._reach("groups", broker)
        return [{"group_id": f"g{broker}", "protocol_type": "consumer", "group_state": "Stable"}]

    def describe_classic(self, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
        self._reach("members", broker)
        return {name: DescribedGroup("Stable") for name in names}

    def cleanup_policies(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "delete")

    def committed_offsets(self, broker: int, names: Sequence[str]) -> Reads:
        self._reach("commits", broker)
        refused = {name: GroupAuthorizationFailedError.__name__ for name in names if name in self.groups_hidden}
        return {name: {(f"t{name[1:]}", 0): self.records} for name in names if name not in refused}, refused

    def scrape(self, request: httpx.Request) -> httpx.Response:
        """The JMX endpoint of broker `b<id>`: every counter has counted all bytes."""
        count = self.records * RECORD_BYTES
        topic = request.url.host.replace("b", "t")
        series = [*FIELDS, *(f'{name}_total{{topic="{topic}"}}' for name in ("bytesin", "bytesout"))]
        return httpx.Response(200, text="".join(f"{PREFIX}{name} {count}\n" for name in series))

    def _reach(self, what: str, broker: int) -> None:
        self.asked.append((what, broker))
        if broker in self.hung:
            self.now_s += TIMEOUT_S
            raise RequestTimedOutError("Request timed out after 15000 ms")
        if (what, broker) in self.failing:
            raise self.failing[(what, broker)]


def rows_of(topics: tuple[str, ...], rows: Sequence[tuple[int, ...]], names: list[str]) -> TopicRows:
    return TopicRows(topics, np.arange(len(topics)), np.array(rows, dtype=[(name, "i8") for name in names]))


def look(
    cluster: Cluster, *, jmx: bool = False, before: ClusterSample | None = None, refusals: RefusedRequests | None = None
) -> ClusterSample:
    endpoints = {broker: f"http://b{broker}:7071/metrics" for broker in (1, 2, 3)}
    settings = CollectSettings(jmx_endpoints=endpoints if jmx else {})
    reads, transport = cast(BrokerReads, cluster), httpx.MockTransport(cluster.scrape)
    now_ms = round(cluster.now_s * 1000)
    # One after the other: a broker that hangs makes those after it late.
    return observe(
        reads, GroupSampler(), settings, now_ms=now_ms, monotonic=cluster.monotonic, transport=transport,
        brokers_at_a_time=1, before=before.partitions if before else None, refusals=refusals,
    )  # fmt: skip


def ends_known(seen: ClusterSample) -> set[str]:
    return {topic for (topic, _), view in partition_views(seen.partitions).items() if view.log_end_offset is not None}


def test_a_broker_that_hangs_costs_what_it_knows_and_one_timeout() -> None:
    cluster = Cluster(hung={2})
    began_s = cluster.now_s
    seen = look(cluster)
    assert ends_known(seen) == {"t1", "t3"}
    assert {broker for broker, _ in sizes_of(seen.sizes)} == seen.log_dirs.keys() == {1, 3}
    assert seen.groups.keys() == {"g1", "g3"}
    assert seen.racks.keys() == {1, 2, 3}
    assert [what for what, broker in cluster.asked if broker == 2] == ["offsets"]
    assert cluster.now_s - began_s == TIMEOUT_S


def test_a_broker_that_gave_no_metadata_is_not_waited_for_again() -> None:
    cluster = Cluster(hung={2}, silent={2: RequestTimedOutError()})
    began_s = cluster.now_s
    assert ends_known(look(cluster)) == {"t1", "t3"}
    assert [what for what, broker in cluster.asked if broker == 2] == []
    assert cluster.now_s == began_s


def test_it_is_asked_again_at_the_next_look() -> None:
    cluster = Cluster(hung={2})
    look(cluster)
    cluster.hung.clear()
    assert ends_known(look(cluster)) == {"t1", "t2", "t3"}


def test_a_broker_the_client_does_not_know_yet_costs_only_what_it_knows() -> None:
    seen = look(Cluster(failing={("offsets", 1): UnknownBrokerIdError(1)}))
    assert ends_known(seen) == seen.log_dirs.keys() ^ {2, 3} ^ {"t2", "t3"}
    assert seen.groups.keys() == {"g2", "g3"}


def test_a_topic_deleted_meanwhile_costs_its_own_offsets() -> None:
    seen = look(Cluster(deleted={"t3"}))
    assert ends_known(seen) == {"t1", "t2"}
    assert seen.log_dirs.keys() == {1, 2, 3}


@pytest.mark.parametrize("what", ["log dirs", "groups", "commits"])
def test_a_request_that_is_refused_costs_its_own_answer(what: str) -> None:
    error = ClusterAuthorizationFailedError() if what == "log dirs" else CoordinatorLoadInProgressError()
    seen = look(Cluster(failing={(what, 1): error}))
    assert ends_known(seen) == {"t1", "t2", "t3"}
    assert seen.log_dirs.keys() == ({2, 3} if what == "log dirs" else {1, 2, 3})
    assert seen.groups.keys() == ({"g1", "g2", "g3"} if what == "log dirs" else {"g2", "g3"})


def test_log_dirs_that_an_old_broker_refuses_as_none_are_unknown_and_not_empty() -> None:
    class Refusing(Cluster):
        def log_dirs(self, broker: int) -> list[LogDirRows]:
            return super().log_dirs(broker)[:0]

    assert look(Refusing()).log_dirs == {}


def test_replicas_that_a_reassignment_adds_are_not_called_out_of_sync() -> None:
    class Moving(Cluster):
        def metadata(self) -> ClusterMetadata:
            return replace(super().metadata(), out_of_sync={0: (1, 2), 1: (2,)})

        def replicas_added(self) -> dict[PartitionKey, frozenset[int]]:
            return {("t1", 0): frozenset({2, 3}), ("t2", 0): frozenset({2})}

    seen = look(Moving())
    views = partition_views(seen.partitions)
    assert {topic: view.out_of_sync for (topic, _), view in views.items()} == {
        "t1": 1,
        "t2": 0,
        "t3": 0,
    }
    assert seen.addresses == {broker: f"b{broker}:9092" for broker in (1, 2, 3)}


def test_all_brokers_are_asked_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=DEADLINE_S)

    class Meeting(Cluster):
        def log_dirs(self, broker: int) -> list[LogDirRows]:
            meeting.wait()  # until the other two are asked, too
            return super().log_dirs(broker)

    reads = cast(BrokerReads, Meeting())
    assert observe(reads, GroupSampler(), CollectSettings(), now_ms=0).log_dirs.keys() == {1, 2, 3}


def test_another_cluster_is_an_error() -> None:
    with pytest.raises(AnotherCluster):
        observe(cast(BrokerReads, Cluster()), GroupSampler(), CollectSettings(), now_ms=0, kafka_cluster_id="other")


@pytest.mark.parametrize("jmx", [False, True])
def test_a_broker_that_hangs_makes_no_other_look_busier(jmx: bool) -> None:
    cluster = Cluster()
    before = look(cluster, jmx=jmx)
    cluster.now_s += 10
    cluster.hung = {1}  # asked first, so that 2 and 3 are read after 25 s
    after = look(cluster, jmx=jmx)
    replicas = replica_rates(before, after)
    rates = rates_of(replicas)[(2, ("t2", 0))]
    assert (rates.bytes_in, rates.bytes_out, rates.messages_in) == (1_000.0, 1_000.0, 10.0)
    totals = broker_rates(before, after, replicas)
    assert totals[1]["bytes_in_per_sec"] == (1_000.0 if jmx else None)  # its endpoint still answers
    assert totals[2]["bytes_in_per_sec"] == totals[2]["bytes_out_per_sec"] == 1_000.0
    assert (after.time_ms - before.time_ms) == 10_000  # the record bears the time at which the look began


def test_offsets_and_sizes_are_each_judged_by_their_own_time() -> None:
    cluster = Cluster()
    before = look(cluster)
    cluster.now_s += 10
    cluster.failing[("log dirs", 2)] = ClusterAuthorizationFailedError()
    between = look(cluster)
    cluster.now_s += 10
    del cluster.failing[("log dirs", 2)]
    cluster.hung = {1}
    after = look(cluster)
    shown = {
        topic: row.size_bytes is not None for (_, (topic, _)), row in rates_of(replica_rates(before, between)).items()
    }
    assert shown == {"t1": True, "t2": False, "t3": True}
    # Without a size before, by offsets: 25 s lie between the two, not the 10 s between the looks.
    assert rates_of(replica_rates(between, after))[(2, ("t2", 0))].bytes_in == pytest.approx(1_000.0)


def test_a_log_that_loses_its_first_segment_while_its_broker_is_asked_was_written_to_as_before() -> None:
    cluster = Cluster()
    before = look(cluster)
    cluster.now_s += 10
    cluster.losing["t1"] = 60  # of the 100 records that are written meanwhile
    during = look(cluster)
    del cluster.losing["t1"]
    cluster.now_s += 10
    after = look(cluster)
    for earlier, later in ((before, during), (during, after)):
        assert rates_of(replica_rates(earlier, later))[(1, ("t1", 0))].bytes_in == pytest.approx(1_000.0)


def starts_of(seen: ClusterSample) -> dict[str, tuple[int | None, int | None]]:
    """Log start and first offset on the disk, by topic."""
    views = {topic: view for (topic, _), view in partition_views(seen.partitions).items()}
    return {topic: (view.log_start_offset, view.local_log_start_offset) for topic, view in views.items()}


def log_starts_asked(cluster: Cluster) -> set[str]:
    """Topics whose log start was asked for since the call before."""
    asked = {topic for timestamp, topics in cluster.offsets_asked if timestamp == EARLIEST for topic in topics}
    cluster.offsets_asked.clear()
    return asked


def test_a_log_that_begins_in_remote_storage_has_two_starts() -> None:
    cluster = Cluster(starts={"t2": (100, 700), "t3": (300, 300)})
    assert starts_of(look(cluster)) == {"t1": (0, 0), "t2": (100, 700), "t3": (300, 300)}


def test_log_starts_are_asked_for_only_where_they_may_differ() -> None:
    cluster = Cluster(starts={"t2": (100, 700)})
    first = look(cluster)
    assert log_starts_asked(cluster) == {"t1", "t2", "t3"}
    second = look(cluster, before=first)
    assert (log_starts_asked(cluster), starts_of(second)) == ({"t2"}, starts_of(first))
    cluster.starts["t3"] = (0, 900)  # its oldest segment is in remote storage alone from now on
    third = look(cluster, before=second)
    assert log_starts_asked(cluster) == {"t2", "t3"}
    assert starts_of(third) == {"t1": (0, 0), "t2": (100, 700), "t3": (0, 900)}
    cluster.starts |= {"t2": (700, 700), "t3": (950, 950)}  # all of remote storage has expired
    assert starts_of(look(cluster, before=third)) == {"t1": (0, 0), "t2": (700, 700), "t3": (950, 950)}


def test_a_topic_made_again_is_asked_about_anew() -> None:
    cluster = Cluster(starts={"t1": (100, 100)})
    before = look(cluster)
    cluster.starts["t1"], cluster.topic_ids = (0, 100), ("new", "b", "c")
    assert starts_of(look(cluster, before=before))["t1"] == (0, 100)


def test_brokers_that_do_not_know_the_first_local_offset_have_the_log_start() -> None:
    cluster = Cluster(starts={"t1": (100, 700)}, knows_local=False)
    first = look(cluster)
    assert starts_of(first)["t1"] == (100, 100)
    assert starts_of(look(cluster, before=first))["t1"] == (100, 100)


def test_a_log_known_to_be_tiered_does_not_become_local_where_the_broker_refuses() -> None:
    cluster = Cluster(starts={"t1": (100, 700)})
    before = look(cluster)
    cluster.knows_local = False
    assert starts_of(look(cluster, before=before)) == {"t1": (100, None), "t2": (0, 0), "t3": (0, 0)}


REFUSAL = ClusterAuthorizationFailedError()
NOTHING_OF_THE_CLUSTER: Mapping[tuple[str, int], KafkaError] = {
    ("reassignments", 0): REFUSAL, **{("log dirs", broker): REFUSAL for broker in (1, 2, 3)},
}  # fmt: skip
"""What a user without DESCRIBE on the cluster gets."""


def two_looks(cluster: Cluster, *, jmx: bool = False) -> tuple[ClusterSample, ClusterSample]:
    refusals = RefusedRequests()
    before = look(cluster, jmx=jmx, refusals=refusals)
    cluster.now_s += 10
    return before, look(cluster, jmx=jmx, refusals=refusals)


def test_without_rights_on_the_cluster_lag_and_records_are_known_and_bytes_are_not() -> None:
    before, after = two_looks(Cluster(failing=dict(NOTHING_OF_THE_CLUSTER)))
    assert after.groups.keys() == {"g1", "g2", "g3"}
    rates = replica_rates(before, after)
    assert rates_of(rates).keys() == {(broker, (f"t{broker}", 0)) for broker in (1, 2, 3)}
    for row in rates_of(rates).values():
        assert (row.messages_in, row.bytes_in, row.bytes_out, row.size_bytes) == (10.0, None, None, None)
    totals = broker_rates(before, after, rates)
    assert {broker: row["messages_in_per_sec"] for broker, row in totals.items()} == dict.fromkeys((1, 2, 3), 10.0)
    assert {row["bytes_in_per_sec"] for row in totals.values()} == {None}
    records = [json.loads(value) for _, value in byte_rate_records("c", before, after, rates, totals)]
    replicas, brokers = records[:3], records[3:]
    assert {row["size_bytes"] for row in records} == {None}
    assert {row["bytes_in_per_sec"] for row in replicas} == {None}
    assert [row["requests_refused"] for row in brokers] == [1, 1, 1]


def test_counters_of_topics_take_the_place_of_log_sizes() -> None:
    before, after = two_looks(Cluster(failing=dict(NOTHING_OF_THE_CLUSTER)), jmx=True)
    for row in rates_of(replica_rates(before, after)).values():
        assert row.size_bytes is None
        assert row.bytes_in == pytest.approx(1_000.0)
        assert row.bytes_out == pytest.approx(1_000.0)


def test_a_group_that_may_not_be_described_is_left_out_and_counted() -> None:
    seen = look(Cluster(groups_hidden={"g2"}), refusals=RefusedRequests())
    assert seen.groups.keys() == {"g1", "g3"}
    assert dict(seen.requests_refused) == {2: 1}


def test_what_is_refused_is_logged_once_and_again_when_it_ends() -> None:
    cluster, refusals = Cluster(failing=dict(NOTHING_OF_THE_CLUSTER), groups_hidden={"g2"}), RefusedRequests()
    with structlog.testing.capture_logs() as lines:
        look(cluster, refusals=refusals)
        look(cluster, refusals=refusals)
    assert sorted(row["request"] for row in lines) == ["describe log dirs", "list reassignments", "read groups"]
    assert {row["event"] for row in lines} == {"request_refused"}
    cluster.failing.clear()
    with structlog.testing.capture_logs() as lines:
        look(cluster, refusals=refusals)
        look(cluster, refusals=refusals)
    # One group is still hidden from us: that has not ended.
    assert sorted(row["request"] for row in lines) == ["describe log dirs", "list reassignments"]
    assert {row["event"] for row in lines} == {"request_allowed"}


def test_a_broker_that_gives_no_answer_has_not_granted_anything() -> None:
    cluster, refusals = Cluster(failing=dict(NOTHING_OF_THE_CLUSTER)), RefusedRequests()
    look(cluster, refusals=refusals)
    cluster.failing |= {("log dirs", broker): RequestTimedOutError() for broker in (1, 2, 3)}
    with structlog.testing.capture_logs() as lines:
        look(cluster, refusals=refusals)
    assert "request_allowed" not in {row["event"] for row in lines}


def test_a_list_of_reassignments_that_is_not_had_for_another_reason_fails_the_look() -> None:
    with pytest.raises(RequestTimedOutError):
        look(Cluster(failing={("reassignments", 0): RequestTimedOutError()}), refusals=RefusedRequests())


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(sorted(NOTHING_OF_THE_CLUSTER))), st.sets(st.sampled_from(["g1", "g2", "g3"])),
    st.booleans(),
)  # fmt: skip
def test_a_figure_is_unknown_or_as_it_is_with_all_rights(
    refused: set[tuple[str, int]], hidden: set[str], jmx: bool
) -> None:
    whole_before, whole_after = two_looks(Cluster(), jmx=jmx)
    whole = replica_rates(whole_before, whole_after)
    before, after = two_looks(Cluster(failing=dict.fromkeys(refused, REFUSAL), groups_hidden=hidden), jmx=jmx)
    part = replica_rates(before, after)
    assert rates_of(part).keys() == rates_of(whole).keys()
    for key, row in rates_of(part).items():
        for name in ("bytes_in", "bytes_out", "messages_in", "size_bytes"):
            figure, true = getattr(row, name), getattr(rates_of(whole)[key], name)
            assert figure is None or figure == pytest.approx(true)
        assert row.messages_in is not None
    of_whole, of_part = broker_rates(whole_before, whole_after, whole), broker_rates(before, after, part)
    for broker, totals in of_part.items():
        assert all(rate is None or rate == pytest.approx(of_whole[broker][name]) for name, rate in totals.items())
    assert after.groups.keys() == whole_after.groups.keys() - hidden
    expected = len({broker for what, broker in refused if what == "log dirs"}) + len(hidden)
    assert sum(after.requests_refused.values()) == expected
