"""Foreign formats, from bytes to our records: golden vectors, what is left out, what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.pipeline.adapters import PARSERS, Context, Metric, Misfit, decode

CONTEXT = Context(
    "main", {"http://kafka-2:8778/jolokia": 2, "kafka-3:7071": 3, "kafka-4": 4}, {"c": "main", "west": "dr"}
)
TIME_MS = 1_700_000_000_000
BROKER = {"v": 1, "kafka_cluster": "main", "topic": None, "partition": None, "event_time_ms": TIME_MS}

# As Cruise Control's own classes write them: 1234.5 of broker 3 at TIME_MS.
ALL_TOPIC_BYTES_IN = bytes.fromhex("0000000000018bcfe568000000000340934a0000000000")
TOPIC_BYTES_IN = bytes.fromhex("0100020000018bcfe5680000000003000000066f726465727340934a0000000000")
PARTITION_SIZE = bytes.fromhex("0200040000018bcfe5680000000003000000066f72646572730000000740934a0000000000")


def read(name: str, value: Any) -> list[Any]:
    return PARSERS[name](value if isinstance(value, bytes) else json.dumps(value).encode(), CONTEXT)


def test_cruise_control_bytes_are_decoded() -> None:
    assert decode(ALL_TOPIC_BYTES_IN) == Metric(0, TIME_MS, 3, None, None, 1234.5)
    assert decode(TOPIC_BYTES_IN) == Metric(2, TIME_MS, 3, "orders", None, 1234.5)
    assert decode(PARTITION_SIZE) == Metric(4, TIME_MS, 3, "orders", 7, 1234.5)


def test_cruise_control_gives_a_brokers_rate_and_leaves_out_the_rest() -> None:
    rate = {**BROKER, "broker": 3, "interval_ms": 60_000, "bytes_in_per_sec": 1234.5}
    assert read("cruise-control", ALL_TOPIC_BYTES_IN) == [rate]
    assert read("cruise-control", TOPIC_BYTES_IN) == []
    assert read("cruise-control", PARTITION_SIZE) == []
    cpu = ALL_TOPIC_BYTES_IN[:2] + b"\x05" + ALL_TOPIC_BYTES_IN[3:]
    assert read("cruise-control", cpu) == []


@pytest.mark.parametrize("data", [ALL_TOPIC_BYTES_IN, TOPIC_BYTES_IN, PARTITION_SIZE])
def test_cruise_control_bytes_cut_short_are_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(Misfit, match="truncated"):
            decode(data[:length])


TELEGRAF = {
    "name": "kafka_topics",
    "tags": {"host": "box", "jolokia_agent_url": "http://kafka-2:8778/jolokia"},
    "fields": {"BytesInPerSec.Count": 5000, "BytesInPerSec.OneMinuteRate": 7.5, "ReplicationBytesInPerSec.Count": 90.0,
               "FailedFetchRequestsPerSec.Count": 1},
    "timestamp": TIME_MS // 1000,
}  # fmt: skip
TELEGRAF_RECORD = {
    **BROKER, "broker": 2, "interval_ms": 0, "bytes_in_total": 5000.0, "replication_bytes_in_total": 90.0,
}  # fmt: skip
BURROW = {
    "name": "burrow_partition",
    "tags": {"cluster": "c", "group": "billing", "topic": "t", "partition": "4", "client_id": "app-1"},
    "fields": {"offset": 100, "lag": 50, "status": "OK", "status_code": 1, "timestamp": TIME_MS},
    "timestamp": TIME_MS // 1000,
}
BURROW_RECORD = {
    "v": 1, "kafka_cluster": "main", "group": "billing", "topic": "t", "partition": 4, "event_time_ms": TIME_MS,
    "committed_offset": 100, "lag_records": 50, "log_end_offset": 150, "client_id": "app-1",
}  # fmt: skip


@pytest.mark.parametrize("factor", [1, 1_000, 1_000_000, 1_000_000_000])
def test_telegraf_in_any_unit_of_time(factor: int) -> None:
    metric = {**TELEGRAF, "timestamp": TIME_MS // 1000 * factor}
    assert read("telegraf-json", metric) == [TELEGRAF_RECORD]


def test_telegraf_batches_and_lag_and_what_is_left_out() -> None:
    of_a_topic = {**TELEGRAF, "name": "kafka_topic", "tags": {**TELEGRAF["tags"], "topic": "t"}}  # type: ignore[dict-item]
    cpu = {"name": "cpu", "tags": {}, "fields": {"usage_idle": 3}, "timestamp": 1}
    assert read("telegraf-json", {"metrics": [TELEGRAF, of_a_topic, cpu, BURROW]}) == [TELEGRAF_RECORD, BURROW_RECORD]


def test_a_partition_that_burrow_knows_no_commit_of_is_not_read_to_its_start() -> None:
    """Burrow's `end` is null then, and Telegraf writes zeros."""
    unknown = {**BURROW, "fields": {**BURROW["fields"], "offset": 0, "lag": 0, "timestamp": 0}}  # type: ignore[dict-item]
    offsets = dict.fromkeys(("committed_offset", "lag_records", "log_end_offset"))
    assert read("telegraf-json", unknown) == [{**BURROW_RECORD, **offsets}]


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"intValue" if value.isdigit() else "stringValue": value}}


def otlp(name: str, kind: str, *points: dict[str, Any], **settings: Any) -> dict[str, Any]:
    resource = {"attributes": [attribute("host.name", "kafka-4")]}
    metrics = [{"name": name, kind: {"dataPoints": list(points), **settings}}]
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}


def point(value: int, **labels: str) -> dict[str, Any]:
    return {
        "attributes": [attribute(key, label) for key, label in labels.items()],
        "timeUnixNano": str(TIME_MS * 1_000_000), "startTimeUnixNano": str((TIME_MS - 10_000) * 1_000_000),
        "asInt": str(value),
    }  # fmt: skip


@pytest.mark.parametrize("label", ["state", "direction"])
def test_otlp_sums_that_accumulate_are_counters(label: str) -> None:
    payload = otlp(
        "kafka.network.io", "sum", point(700, **{label: "in"}), point(9, **{label: "in", "topic": "t"}),
        aggregationTemporality=2, isMonotonic=True,
    )  # fmt: skip
    assert read("otlp-json", payload) == [{**BROKER, "broker": 4, "interval_ms": 0, "bytes_in_total": 700.0}]


@pytest.mark.parametrize("temporality", [1, "AGGREGATION_TEMPORALITY_DELTA"])
def test_otlp_deltas_are_rates_over_their_own_interval(temporality: int | str) -> None:
    payload = otlp("kafka.message.count", "sum", point(700), aggregationTemporality=temporality)
    assert read("otlp-json", payload) == [{**BROKER, "broker": 4, "interval_ms": 10_000, "messages_in_per_sec": 70.0}]


def test_otlp_joins_a_groups_offsets_with_its_partitions() -> None:
    where = {"topic": "t", "partition": "4"}
    metrics = [
        ("kafka.partition.current_offset", point(150, **where)),
        ("kafka.partition.oldest_offset", point(7, **where)),
        ("kafka.consumer_group.lag", point(50, group="billing", **where)),
        ("kafka.consumer_group.offset", point(100, group="billing", **where)),
        ("kafka.brokers", point(3)),
    ]
    payloads = [otlp(name, "gauge", row)["resourceMetrics"][0] for name, row in metrics]
    (record,) = read("otlp-json", {"resourceMetrics": payloads})
    assert record == {
        "v": 1, "kafka_cluster": "main", "group": "billing", "topic": "t", "partition": 4, "event_time_ms": TIME_MS,
        "committed_offset": 100, "lag_records": 50, "log_end_offset": 150, "log_start_offset": 7,
    }  # fmt: skip


def test_otlp_joins_offsets_of_the_same_time_where_a_payload_has_several_samples() -> None:
    """Scrapers of topics and of groups have their own times; the second sample is a minute after the first."""
    where = {"topic": "t", "partition": "4"}

    def at(ms: int, value: int, **labels: str) -> dict[str, Any]:
        return {**point(value, **labels), "timeUnixNano": str((TIME_MS + ms) * 1_000_000)}

    payloads = [
        otlp("kafka.partition.current_offset", "gauge", at(60_020, 250, **where), at(20, 150, **where)),
        otlp(
            "kafka.consumer_group.offset", "gauge", at(0, 100, group="g", **where), at(60_000, 240, group="g", **where)
        ),
        otlp("kafka.consumer_group.lag", "gauge", at(0, 50, group="g", **where), at(60_000, 10, group="g", **where)),
    ]
    records = read("otlp-json", {"resourceMetrics": [one["resourceMetrics"][0] for one in payloads]})
    assert [
        (row["event_time_ms"] - TIME_MS, row["committed_offset"], row["log_end_offset"], row["lag_records"])
        for row in records
    ] == [(0, 100, 150, 50), (60_000, 240, 250, 10)]


def test_otlp_lag_and_offset_show_the_log_end_where_no_point_of_the_log_is_there() -> None:
    """The receiver may scrape groups alone, and a batch may hold the points of logs in another record."""
    where = {"topic": "t", "partition": "4", "group": "billing"}
    payloads = [otlp(f"kafka.consumer_group.{name}", "gauge", point(value, **where))["resourceMetrics"][0]
                for name, value in (("lag", 50), ("offset", 100))]  # fmt: skip
    (record,) = read("otlp-json", {"resourceMetrics": payloads})
    assert (record["committed_offset"], record["lag_records"], record["log_end_offset"]) == (100, 50, 150)


def sample(name: str, value: str, **labels: str) -> dict[str, Any]:
    return {"timestamp": "2023-11-14T22:13:20Z", "value": value, "name": name, "labels": {"__name__": name, **labels}}


@pytest.mark.parametrize(
    "name",
    ["kafka_server_brokertopicmetrics_bytesin_total", "kafka_server_brokertopicmetrics_bytesinpersec_count"],
)
def test_prometheus_samples_under_the_names_of_jmx_exporter(name: str) -> None:
    assert read("prometheus-json", sample(name, "1.5e3", instance="kafka-3:7071")) == [
        {**BROKER, "broker": 3, "interval_ms": 0, "bytes_in_total": 1500.0}
    ]
    assert read("prometheus-json", sample(name, "1", instance="kafka-3:7071", topic="t")) == []
    assert read("prometheus-json", sample("up", "1", instance="kafka-3:7071")) == []


def test_prometheus_samples_of_kafka_exporter_are_lag_and_minus_one_is_unknown() -> None:
    labels = {"consumergroup": "billing", "topic": "t", "partition": "4"}
    (record,) = read("prometheus-json", sample("kafka_consumergroup_lag", "50", **labels))
    assert (record["group"], record["partition"], record["lag_records"]) == ("billing", 4, 50)
    (record,) = read("prometheus-json", sample("kafka_consumergroup_current_offset", "-1", **labels))
    assert record["committed_offset"] is None


@pytest.mark.parametrize("timestamp", [str(TIME_MS // 1000), str(TIME_MS), "2023-11-14T22:13:20Z", TIME_MS * 1_000_000])
def test_a_time_may_be_a_text_of_either_kind(timestamp: Any) -> None:
    """Telegraf's `json_timestamp_format` writes ISO 8601; other bridges write numbers as texts."""
    assert read("telegraf-json", {**TELEGRAF, "timestamp": timestamp}) == [TELEGRAF_RECORD]
    labels = {"consumergroup": "billing", "topic": "t", "partition": "4"}
    (record,) = read("prometheus-json", {**sample("kafka_consumergroup_lag", "50", **labels), "timestamp": timestamp})
    assert record["event_time_ms"] == TIME_MS


def test_a_sample_that_says_that_its_series_has_ended_is_none() -> None:
    """Prometheus marks the end of a series by NaN."""
    labels = {"consumergroup": "billing", "topic": "t", "partition": "4", "broker": "1"}
    for name in ("kafka_consumergroup_lag", "kafka_server_brokertopicmetrics_bytesin_total"):
        assert read("prometheus-json", sample(name, "NaN", **labels)) == []


def test_a_label_without_a_value_is_no_label() -> None:
    counter = sample("kafka_server_brokertopicmetrics_bytesin_total", "1500", broker="3", topic="", cluster="")
    assert read("prometheus-json", counter) == [{**BROKER, "broker": 3, "interval_ms": 0, "bytes_in_total": 1500.0}]
    tags = {"broker": 2, "topic": None, "cluster": None, "kafka_cluster": ""}
    assert read("telegraf-json", {**TELEGRAF, "tags": tags}) == [TELEGRAF_RECORD]


def test_kafka_lag_exporter_names_group_and_cluster_by_labels_of_its_own() -> None:
    labels = {"cluster_name": "west", "group": "billing", "topic": "t", "partition": "4", "member_host": "10.0.0.7"}
    (lag,) = read("prometheus-json", sample("kafka_consumergroup_group_lag", "50.0", **labels))
    assert (lag["kafka_cluster"], lag["group"], lag["lag_records"]) == ("dr", "billing", 50)
    (offset,) = read("prometheus-json", sample("kafka_consumergroup_group_offset", "1e3", **labels))
    assert offset["committed_offset"] == 1_000
    assert read("prometheus-json", sample("kafka_consumergroup_group_lag_seconds", "7.5", **labels)) == []


def test_a_counter_that_is_not_known_takes_no_other_with_it() -> None:
    fields = {**TELEGRAF["fields"], "BytesOutPerSec.Count": None}  # type: ignore[dict-item]
    assert read("telegraf-json", {**TELEGRAF, "fields": fields}) == [TELEGRAF_RECORD]


def test_nulls_of_otlp_stand_for_nothing_and_offsets_are_exact() -> None:
    """Protobuf's JSON takes null for the default of any field; an offset may have more digits than a float."""
    offset = 2**60 + 1
    point_of = {**point(offset, topic="t", partition="4", group="billing"), "flags": None}
    payload = otlp("kafka.consumer_group.offset", "gauge", point_of)
    payload["resourceMetrics"][0]["resource"] = None
    payload["resourceMetrics"] += [{"resource": {"attributes": None}, "scopeMetrics": None},
                                   {"scopeMetrics": [{"metrics": None}]}]  # fmt: skip
    (record,) = read("otlp-json", payload)
    assert (record["kafka_cluster"], record["committed_offset"]) == ("main", offset)


def test_figures_of_any_size_are_read_or_refused() -> None:
    late = {**point(0), "asInt": 1.5, "timeUnixNano": "9" * 400}
    sizes = otlp("kafka.message.count", "sum", {**point(0), "asInt": 10**400}, late, aggregationTemporality=1)
    assert [misfit.reason for misfit in read("otlp-json", sizes)] == ["wrong_type", "wrong_type"]


MISFITS: list[tuple[str, Any, str, str | None]] = [
    ("cruise-control", b"\x00\x07" + ALL_TOPIC_BYTES_IN[2:], "unknown_version", None),
    ("cruise-control", b"\x09" + ALL_TOPIC_BYTES_IN[1:], "wrong_type", "class"),
    ("cruise-control", TOPIC_BYTES_IN.replace(b"orders", b"orde\xff\xfe"), "not_utf8", None),
    ("telegraf-json", b"{", "not_json", None),
    ("telegraf-json", b"[]", "not_json", None),
    ("telegraf-json", b'{"name": "\xff"}', "not_utf8", None),
    ("telegraf-json", {"name": "x"}, "missing_field", "fields"),
    ("telegraf-json", {**TELEGRAF, "tags": {"host": "stranger"}}, "unknown_broker", "host"),
    ("telegraf-json", {**TELEGRAF, "fields": {"BytesInPerSec.Count": "many"}}, "wrong_type", None),
    ("telegraf-json", {"metrics": 3}, "wrong_type", "metrics"),
    ("telegraf-json", {**TELEGRAF, "fields": {"BytesInPerSec.Count": True}}, "wrong_type", None),
    ("telegraf-json", {**TELEGRAF, "timestamp": True}, "wrong_type", None),
    ("telegraf-json", {**BURROW, "fields": {**BURROW["fields"], "lag": None}}, "wrong_type", None),  # type: ignore[dict-item]
    ("telegraf-json", {**BURROW, "tags": {**BURROW["tags"], "cluster": "east"}}, "unknown_cluster", "cluster"),  # type: ignore[dict-item]
    (
        "telegraf-json",
        {**TELEGRAF, "tags": {"kafka_cluster": "east", "broker": "1"}},
        "unknown_cluster",
        "kafka_cluster",
    ),
    ("otlp-json", {"resourceLogs": []}, "missing_field", "resourceMetrics"),
    ("otlp-json", {"resourceMetrics": 3}, "wrong_type", None),
    ("prometheus-json", sample("x", "many"), "wrong_type", None),
    (
        "prometheus-json",
        sample("kafka_consumergroup_group_lag", "1", cluster_name="east", group="g", topic="t", partition="0"),
        "unknown_cluster",
        "cluster_name",
    ),
    ("prometheus-json", {"name": "x", "value": "1", "timestamp": 1}, "missing_field", "labels"),
    ("prometheus-json", sample("kafka_server_brokertopicmetrics_bytesin_total", "1"), "unknown_broker", None),
    (
        "prometheus-json",
        sample("kafka_consumergroup_lag", "1", cluster="east", consumergroup="g", topic="t", partition="0"),
        "unknown_cluster",
        "cluster",
    ),
    (
        "prometheus-json",
        sample("kafka_server_brokertopicmetrics_bytesin_total", "1", strimzi_io_cluster="east", broker="1"),
        "unknown_cluster",
        "strimzi_io_cluster",
    ),
    (
        "otlp-json",
        otlp("kafka.message.count", "sum", point(7, **{"kafka.cluster.alias": "east"})),
        "unknown_cluster",
        "kafka.cluster.alias",
    ),
]


@pytest.mark.parametrize(("name", "value", "reason", "field"), MISFITS)
def test_misfits_say_why(name: str, value: Any, reason: str, field: str | None) -> None:
    try:
        (misfit,) = read(name, value)
    except Misfit as raised:
        misfit = raised
    assert isinstance(misfit, Misfit)
    assert (misfit.reason, misfit.field) == (reason, field)


def test_one_part_that_cannot_be_read_takes_no_other_with_it() -> None:
    stranger = {**TELEGRAF, "tags": {"host": "stranger"}}
    misfit, record, lag = read("telegraf-json", {"metrics": [stranger, TELEGRAF, BURROW]})
    assert (misfit.reason, record, lag) == ("unknown_broker", TELEGRAF_RECORD, BURROW_RECORD)


def test_groups_of_one_name_on_two_clusters_do_not_mix() -> None:
    elsewhere = {**BURROW, "tags": {**BURROW["tags"], "cluster": "west"}}  # type: ignore[dict-item]
    other = {**BURROW_RECORD, "kafka_cluster": "dr"}
    assert read("telegraf-json", {"metrics": [BURROW, elsewhere]}) == [BURROW_RECORD, other]
    rates = [{**TELEGRAF, "tags": {"cluster": name, "broker": "2"}} for name in ("main", "west")]
    assert read("telegraf-json", {"metrics": rates}) == [TELEGRAF_RECORD, {**TELEGRAF_RECORD, "kafka_cluster": "dr"}]
    labels = {"consumergroup": "billing", "topic": "t", "partition": "4"}
    (lag,) = read("prometheus-json", sample("kafka_consumergroup_lag", "50", cluster="west", **labels))
    assert lag["kafka_cluster"] == "dr"
    metrics = [
        otlp(name, "gauge", point(value, **{"kafka.cluster.alias": alias}, topic="t", partition="4", **group))
        for alias, end in (("main", 150), ("west", 950))
        for name, value, group in (
            ("kafka.partition.current_offset", end, {}), ("kafka.consumer_group.offset", 100, {"group": "billing"}),
        )
    ]  # fmt: skip
    payload = {"resourceMetrics": [metric["resourceMetrics"][0] for metric in metrics]}
    ends = [(record["kafka_cluster"], record["log_end_offset"]) for record in read("otlp-json", payload)]
    assert ends == [("main", 150), ("dr", 950)]


def test_an_otlp_point_that_cannot_be_read_takes_no_other_with_it() -> None:
    sound = point(700)
    broken = [{**sound, "asInt": "many"}, {key: sound[key] for key in ("attributes", "timeUnixNano")}]
    unrecorded = {**broken[1], "flags": 1}
    payload = otlp("kafka.message.count", "sum", *broken, unrecorded, sound, aggregationTemporality=2)
    payload["resourceMetrics"] += otlp("jvm.memory", "gauge", unrecorded, {"attributes": 3})["resourceMetrics"]
    *misfits, record = read("otlp-json", payload)
    assert [(row.reason, row.field) for row in misfits] == [("wrong_type", None), ("missing_field", "asDouble")]
    assert record == {**BROKER, "broker": 4, "interval_ms": 0, "messages_in_total": 700.0}
    groups = otlp("kafka.consumer_group.lag", "gauge", point(5, topic="t", partition="4"), point(5, topic="t"))
    assert [row.field for row in read("otlp-json", groups)] == ["partition", "group"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metrics", "name", "tags", "fields", "timestamp", "value", "labels", "resourceMetrics", "resource",
                 "scopeMetrics", "sum", "dataPoints", "attributes", "key", "timeUnixNano", "asInt", "topic"]
            ),
            inner, max_size=5,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(sorted(PARSERS)), st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_read_or_refused(name: str, value: bytes) -> None:
    try:
        items = read(name, value)
    except Misfit:
        return
    for item in items:
        assert isinstance(item, Misfit) or {"broker", "group"} & item.keys()
