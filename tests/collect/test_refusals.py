"""A look with less than all rights: what brokers refuse is unknown, all else is there, and one line is logged."""

import json
from collections.abc import Mapping
from typing import cast

import httpx
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, RequestTimedOutError

from streaming.cluster.broker_reads import BrokerReads
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.rates import broker_rates, replica_rates
from streaming.collect.sample import ClusterSample, RefusedRequests
from streaming.settings import CollectSettings
from tests.collect.by_row import rates_of
from tests.collect.sample_records import byte_rate_records
from tests.collect.test_observe import Cluster

REFUSAL = ClusterAuthorizationFailedError()
NOTHING_OF_THE_CLUSTER: Mapping[tuple[str, int], KafkaError] = {
    ("reassignments", 0): REFUSAL, **{("log dirs", broker): REFUSAL for broker in (1, 2, 3)},
}  # fmt: skip
"""What a user without DESCRIBE on the cluster gets."""
ENDPOINTS = {broker: f"http://b{broker}:7071/metrics" for broker in (1, 2, 3)}


def look(cluster: Cluster, refusals: RefusedRequests, *, jmx: bool = False) -> ClusterSample:
    given_settings = CollectSettings(jmx_endpoints=ENDPOINTS if jmx else {})
    return observe(
        cast(BrokerReads, cluster), GroupSampler(), given_settings, now_ms=round(cluster.now_s * 1000),
        monotonic=cluster.monotonic, transport=httpx.MockTransport(cluster.scrape), brokers_at_a_time=1,
        refusals=refusals,
    )  # fmt: skip


def two_looks(cluster: Cluster, *, jmx: bool = False) -> tuple[ClusterSample, ClusterSample]:
    refusals = RefusedRequests()
    before = look(cluster, refusals, jmx=jmx)
    cluster.now_s += 10
    return before, look(cluster, refusals, jmx=jmx)


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
    seen = look(Cluster(groups_hidden={"g2"}), RefusedRequests())
    assert seen.groups.keys() == {"g1", "g3"}
    assert dict(seen.requests_refused) == {2: 1}


def test_what_is_refused_is_logged_once_and_again_when_it_ends() -> None:
    cluster, refusals = Cluster(failing=dict(NOTHING_OF_THE_CLUSTER), groups_hidden={"g2"}), RefusedRequests()
    with structlog.testing.capture_logs() as lines:
        look(cluster, refusals)
        look(cluster, refusals)
    assert sorted(row["request"] for row in lines) == ["describe log dirs", "list reassignments", "read groups"]
    assert {row["event"] for row in lines} == {"request_refused"}
    cluster.failing.clear()
    with structlog.testing.capture_logs() as lines:
        look(cluster, refusals)
        look(cluster, refusals)
    # One group is still hidden from us: that has not ended.
    assert sorted(row["request"] for row in lines) == ["describe log dirs", "list reassignments"]
    assert {row["event"] for row in lines} == {"request_allowed"}


def test_a_broker_that_gives_no_answer_has_not_granted_anything() -> None:
    cluster, refusals = Cluster(failing=dict(NOTHING_OF_THE_CLUSTER)), RefusedRequests()
    look(cluster, refusals)
    cluster.failing |= {("log dirs", broker): RequestTimedOutError() for broker in (1, 2, 3)}
    with structlog.testing.capture_logs() as lines:
        look(cluster, refusals)
    assert "request_allowed" not in {row["event"] for row in lines}


def test_a_list_of_reassignments_that_is_not_had_for_another_reason_fails_the_look() -> None:
    with pytest.raises(RequestTimedOutError):
        look(Cluster(failing={("reassignments", 0): RequestTimedOutError()}), RefusedRequests())


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
