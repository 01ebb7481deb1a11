"""The metrics: values, names, the cap, and that the list, the docs and the answer agree."""

import gzip
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from assignor_core.deciding.reasons import Reason
from streaming.commands.acting import JournalActions
from streaming.commands.status import read_status
from streaming.serve import metrics
from streaming.serve.families import FAMILIES, GROUPS, GROUPS_ALERTED
from streaming.serve.metrics import FORMS, Exposition, Form, bounded, registry_of
from streaming.serve.metrics_doc import render
from streaming.serve.samples import VERDICTS, GroupSamples, Sample, group_samples, samples
from streaming.serve.snapshot import PARTS, Snapshot, SnapshotReader, read_snapshot
from streaming.serve.web import build_app
from streaming.settings import Settings
from streaming.views.broker_load import LoadPart
from streaming.views.control import ControlPart
from streaming.views.group_memberships import GroupMembership
from streaming.views.group_ranking import GroupPart, GroupTopic, GroupVerdict
from streaming.views.restarts import SHOWN_MAX_MS, BrokerRestart
from streaming.views.streams import StreamPart
from tests.serve.asking import app_of, ask
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
ROOT = Path(__file__).parents[2]


def series_now(settings: Settings) -> Series:
    return series_in(read_snapshot(settings, NOW_MS), settings)


def series_in(snapshot: Snapshot, settings: Settings) -> Series:
    return series_of(generate_latest(registry_of(lambda: snapshot, settings)).decode())


def series_of(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((f"rebalancer_{name}", frozenset({"kafka_cluster": "test", **labels}.items())))


@pytest.fixture(scope="module")
def skewed(skewed_tables: str) -> Settings:
    """Over tables that nobody changes."""
    return settings_for(Path(skewed_tables).parent, planner={"capacities": {"1": {"bytes_in_per_sec": 1.0e7}}})


@pytest.fixture(scope="module")
def of_skewed(skewed: Settings) -> Snapshot:
    return read_snapshot(skewed, NOW_MS)


@pytest.mark.long
def test_what_the_tables_say_is_what_is_exported(skewed: Settings, of_skewed: Snapshot) -> None:
    series = series_in(of_skewed, skewed)
    assert value(series, "broker_in_bytes_per_second", broker="1") == pytest.approx(4.2e6 * 1.4)
    assert value(series, "broker_replication_in_bytes_per_second", broker="2") == 4.0e5
    assert value(series, "broker_in_capacity_bytes_per_second", broker="1") == 1.0e7
    assert value(series, "broker_in_capacity_bytes_per_second", broker="2") is None
    loads = [4.2e6 * 1.4 + 4.0e5, 2.9e6, 3.5e6]
    ratio = max(loads) / (sum(loads) / 3)
    assert value(series, "cluster_load_max_per_mean_ratio", resource="bytes_in") == pytest.approx(ratio)
    assert value(series, "broker_load_deviation_ratio", broker="1", resource="bytes_in") == pytest.approx(ratio - 1)
    assert value(series, "skew_threshold_ratio", resource="bytes_in") == 1.3
    assert value(series, "skew_breached", resource="bytes_in") == 1
    assert value(series, "skew_breached", resource="bytes_out") == 0
    assert value(series, "skew_breach_started_timestamp_seconds", resource="bytes_in") == NOW_MS / 1000 - 300
    assert value(series, "window_completeness_ratio") == 1
    assert value(series, "rebalance_evaluations_total") == 3
    assert value(series, "rebalance_triggers_total", trigger="bytes_in") == 1
    assert value(series, "rebalance_triggers_total", trigger="bytes_out") == 0
    assert value(series, "rebalance_suppressed_total", reason="in_progress") == 1
    assert value(series, "rebalance_suppressed_total", reason="cooldown") == 0
    assert value(series, "rebalance_in_progress") == 1
    assert value(series, "rebalance_moves_pending") == 2
    assert value(series, "rebalance_plan_moves", kind="replica") == 4
    assert value(series, "rebalance_plan_duration_seconds_bucket", le="0.5") == 1
    assert value(series, "rebalance_plan_duration_seconds_sum") == 0.42
    assert value(series, "stream_active", query="byte_rate") == 1
    assert value(series, "stream_last_batch_phase_seconds", query="byte_rate", phase="addBatch") == 0.9
    assert value(series, "ingest_rejected_records_total", source="byte_rate", reason="future") == 2
    assert value(series, "consumergroup_lag_records", consumergroup="billing", topic="topic-A") == 900 * sum(range(30))
    billing = {"consumergroup": "billing"}
    worst = 29 * 900 / (90_000 + 29 * 900 - 2_000)
    assert value(series, "consumergroup_lag_retention_ratio", topic="topic-A", **billing) == pytest.approx(worst)
    assert value(series, "consumergroup_members", **billing) == 1
    assert value(series, "consumergroup_rebalances_total", **billing) == 1
    assert value(series, "consumergroup_rebalance_duration_seconds", **billing) == 60
    assert value(series, "consumergroup_rebalances_total", consumergroup="audit") == 0
    assert value(series, "consumergroup_rebalance_duration_seconds", consumergroup="audit") is None
    assert value(series, "delta_table_files", table="decision") == 3
    assert value(series, "snapshot_part_up", part="load") == 1


def test_what_a_restart_would_do_is_exported_as_long_as_control_has_seen_it_lately() -> None:
    effects = {"offline": 1, "refusing": 0, "at_edge": 7, "behind": 0, "moving": 0}
    seen = BrokerRestart(1, NOW_MS - SHOWN_MAX_MS, is_safe=False, partitions=effects)
    old = BrokerRestart(2, NOW_MS - SHOWN_MAX_MS - 1, is_safe=True, partitions=effects)
    snapshot = replace(EMPTY, kafka_cluster="test", restarts=(seen, old))
    series = series_in(snapshot, settings_for(Path("none")))
    assert value(series, "broker_restart_safe", broker="1") == 0
    assert {
        effect: value(series, "broker_restart_partitions", broker="1", effect=effect) for effect in effects
    } == effects
    assert value(series, "broker_restart_safe", broker="2") is None
    assert value(series, "broker_restart_partitions", broker="2", effect="offline") is None


def test_figures_of_brokers_are_absent_where_they_are_unknown_and_sums_are_over_the_others(
    settings: Settings, synthetic: Synthetic
) -> None:
    sums = {"groups_left_out": "consumergroups_left_out"}
    sums |= {"group_partitions_left_out": "consumergroup_partitions_left_out"}
    unknown, known = dict.fromkeys((*sums, "requests_refused")), dict.fromkeys(sums, 4)
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, {1: 1.0}, **unknown)
    series = series_now(settings)
    assert [value(series, name) for name in sums.values()] == [None, None]
    start_ms = NOW_MS - WINDOW_MS
    synthetic.broker_load(start_ms, {1: 1.0}, **known, requests_refused=3)
    synthetic.broker_load(start_ms, {2: 1.0}, **known, requests_refused=0)
    synthetic.broker_load(start_ms, {3: 1.0}, **unknown)
    tiered = [(1, "t", 0, "leader", 1.0), (1, "t", 1, "leader", 1.0)]
    synthetic.partition_load(start_ms, tiered, remote_records=10, remote_size_bytes=4_000)
    synthetic.partition_load(start_ms, [(1, "u", 0, "leader", 1.0), (2, "u", 1, "leader", 1.0)])
    series = series_now(settings)
    assert [value(series, name) for name in sums.values()] == [8, 8]
    of_brokers = {
        name: [value(series, name, broker=broker) for broker in ("1", "2", "3")]
        for name in ("broker_requests_refused", "broker_remote_log_bytes")
    }
    assert of_brokers == {"broker_requests_refused": [3, 0, None], "broker_remote_log_bytes": [8_000, None, None]}


def test_a_failed_broker_is_a_trigger_and_every_reason_not_to_plan_is_counted(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.decision(NOW_MS - 60_000, "plan", "broker_failed", plan_id="a" * 64)
    synthetic.decision(NOW_MS - 30_000, "hold", "maintenance_window")
    synthetic.decision(NOW_MS - 20_000, "hold", "balanced")
    series = series_now(settings)
    assert value(series, "rebalance_triggers_total", trigger="broker_failed") == 1
    assert value(series, "rebalance_triggers_total", trigger="bytes_in") == 0
    assert value(series, "rebalance_suppressed_total", reason="maintenance_window") == 1
    reasons = {dict(labels)["reason"] for name, labels in series if name == "rebalancer_rebalance_suppressed_total"}
    asking = {"skewed", "broker_failed", "log_dir_full", "drained_broker"}
    asking |= {"outside_set", "crowded_racks", "empty_broker", "unpreferred_leaders"}
    assert reasons == {reason.value for reason in Reason} - asking - {"balanced"}


SETTINGS = {"sample_interval_set_seconds", "build_info", "window_seconds", "rebalance_mode_info"}
SETTINGS |= {"skew_threshold_ratio", "skew_exit_threshold_ratio"}
ITSELF = {"snapshot_timestamp_seconds", "snapshot_read_seconds", "snapshot_part_up", "export_dropped_series"}
"""What the exporter knows without any table."""


@pytest.mark.long
def test_a_throttle_that_is_left_is_counted_while_its_broker_reports(skewed_folder: Path) -> None:
    settings = settings_for(skewed_folder)
    synthetic = Synthetic(settings.storage.tables, _commits=1_000)
    reader = SnapshotReader(settings)
    shown = []
    three, two, none = [1, 2, 99], [2, 99], list[int]()
    history = (("approved", none), ("started", three), ("done", three), ("swept", two), ("swept", none))
    for sequence, (event, owed) in enumerate(history):
        synthetic.event(NOW_MS + 60_000 + sequence, sequence, event, execution_id="e-9", throttled_brokers=owed)
        snapshot = reader.read(NOW_MS)
        series = series_of(Exposition(snapshot, settings).answer(Form.of("text/plain")).decode())
        of_status = read_status(settings, now_ms=NOW_MS + 90_000)["throttles_left"]
        shown.append((value(series, "rebalance_throttle_left_brokers"), of_status))
    assert shown == [(0, []), (0, []), (2, [1, 2, 99]), (1, [2, 99]), (0, [])], "broker 99 sends no samples"


@pytest.mark.parametrize("mounted", [True, False])
def test_without_tables_the_exporter_says_so_and_nothing_else(tmp_path: Path, mounted: bool) -> None:
    """A counter that began at a false 0 would be taken for a rise, once the tables are there."""
    settings = settings_for(tmp_path)
    if mounted:
        Path(settings.storage.tables).mkdir()
    series = series_now(settings)
    ours = {name.removeprefix("rebalancer_") for name, _ in series if name.startswith("rebalancer_")}
    assert ours == SETTINGS | ITSELF
    assert {value(series, "snapshot_part_up", part=part) for part in PARTS} == {float(mounted)}


def test_before_control_makes_its_tables_it_has_done_nothing(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    Synthetic(settings.storage.tables).batch_row(NOW_MS)
    series = series_now(settings)
    for name in ("rebalance_evaluations_total", "rebalance_failures_total", "rebalance_in_progress"):
        assert value(series, name) == 0, name
    assert value(series, "rebalance_triggers_total", trigger="bytes_in") == 0


@pytest.mark.long
def test_a_part_that_was_never_read_counts_nothing(skewed_folder: Path) -> None:
    settings = settings_for(skewed_folder)
    ruin(settings, "execution")
    series = series_now(settings)
    assert value(series, "snapshot_part_up", part="control") == 0
    rebalances = {name for name, _ in series if name.startswith(("rebalancer_rebalance_", "rebalancer_skew_breach"))}
    assert rebalances == {"rebalancer_rebalance_mode_info"}
    assert value(series, "brokers_reporting") == 3, "other parts are as ever"


def ruin(settings: Settings, table: str) -> None:
    """Make every data file of a table one that can't be read."""
    for file in (Path(settings.storage.tables) / table).rglob("*.parquet"):
        file.write_bytes(b"no parquet")


@pytest.mark.long
def test_a_broken_part_is_0_and_its_figures_stay(skewed: Settings, of_skewed: Snapshot) -> None:
    snapshot = replace(of_skewed, failures={"load": "table broker_load can't be read"})
    series = series_in(snapshot, skewed)
    assert value(series, "snapshot_part_up", part="load") == 0
    assert value(series, "snapshot_part_up", part="control") == 1
    assert value(series, "broker_in_bytes_per_second", broker="2") == 2.5e6


def test_a_broker_that_is_gone_leaves_no_series(settings: Settings, synthetic: Synthetic) -> None:
    start_ms = NOW_MS - 100 * WINDOW_MS
    synthetic.broker_load(start_ms, {1: 10.0, 9: 10.0})
    assert value(series_now(settings), "broker_info", broker="9", rack="r0") == 1
    synthetic.broker_load(start_ms + 90 * WINDOW_MS, {1: 10.0})
    series = series_now(settings)
    assert not [labels for name, labels in series if ("broker", "9") in labels]


def test_every_family_is_exported_and_every_exported_one_is_listed(skewed: Settings, of_skewed: Snapshot) -> None:
    parsed = {
        family.name: family
        for family in text_string_to_metric_families(generate_latest(registry_of(lambda: of_skewed, skewed)).decode())
    }
    ours = {name: family for name, family in parsed.items() if name.startswith("rebalancer_")}
    assert {family.name.removesuffix("_total"): family.kind for family in FAMILIES} == {
        name: family.type for name, family in ours.items()
    }
    for family in FAMILIES:
        for sample in ours[family.name.removesuffix("_total")].samples:
            assert set(sample.labels) - {"le"} == {"kafka_cluster", *family.labels}, family.name


def test_openmetrics_says_the_same(skewed: Settings, of_skewed: Snapshot) -> None:
    registry = registry_of(lambda: of_skewed, skewed)
    text = series_of(generate_latest(registry).decode())
    other = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_openmetrics(openmetrics(registry).decode())
        for sample in family.samples
        if family.name.startswith("rebalancer_")
    }
    assert other == {key: number for key, number in text.items() if key[0].startswith("rebalancer_")}


def test_an_answer_is_that_of_the_newest_snapshot_in_every_form(skewed: Settings, of_skewed: Snapshot) -> None:
    exposition = Exposition(of_skewed, skewed)
    accepted = ("text/plain", "application/openmetrics-text; version=1.0.0")
    forms = [Form.of(accept, encoding) for accept in accepted for encoding in ("", "br;q=1, gzip")]
    for now_ms in (NOW_MS, NOW_MS + 5_000):
        exposition.update(replace(of_skewed, read_at_ms=now_ms))
        for form in forms:
            body = gzip.decompress(exposition.answer(form)) if form.packed else exposition.answer(form)
            stamp = re.search(rb"^rebalancer_snapshot_timestamp_seconds\S* (\S+)$", body, re.MULTILINE)
            assert stamp
            assert float(stamp.group(1)) == now_ms / 1000


def test_every_form_lies_ready_before_anybody_asks_and_later_those_that_somebody_asks_for(
    skewed: Settings, of_skewed: Snapshot
) -> None:
    exposition = Exposition(of_skewed, skewed)
    accepted = ("", "text/plain", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    usual = [Form.of(accept, encoding) for accept in accepted for encoding in ("", "gzip")]
    assert all(exposition.ready(form) for form in usual)
    exposition = Exposition(of_skewed, skewed)
    exposition.ready(usual[0])
    exposition.update(of_skewed)
    assert exposition.ready(usual[0])
    other = usual[-1]
    assert exposition.ready(other) is None
    assert exposition.answer(other) == exposition.ready(other)
    exposition.update(of_skewed)
    assert exposition.ready(other), "from now on with every snapshot"


@pytest.fixture(scope="module")
def app(skewed: Settings, of_skewed: Snapshot) -> Starlette:
    return app_of(of_skewed, skewed, now_ms=NOW_MS)


@pytest.mark.parametrize("version", ["abc", "1.x", "1..", "1e3", "9" * 5_000, "1.1.x", "", "-1"])
@pytest.mark.parametrize("form", ["application/openmetrics-text", "text/plain"])
def test_a_version_that_is_none_is_answered(app: Starlette, form: str, version: str) -> None:
    answer = ask(app, "GET", "/metrics", headers={"Accept": f"{form}; version={version}"})
    assert answer.status_code == 200
    assert "rebalancer_snapshot_timestamp_seconds" in answer.text
    if version == "abc":
        assert answer.headers["content-type"] == FORMS[0].content_type


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=1.0.{number}",
        "application/openmetrics-text;version={number}.2.3;escaping=dots",
        "text/plain;version=1.{number}.0;escaping=allow-utf-8",
        "application/openmetrics-text;version=1.0.0;escaping=e{number}",
        "text/html;q={number},*/*",
        "x{number}",
    ],
)
def test_whoever_names_forms_without_end_makes_no_more_work(
    skewed: Settings, of_skewed: Snapshot, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exposition = Exposition(of_skewed, skewed)
    monkeypatch.setattr(metrics, "_rendered", lambda _registry, forms: pytest.fail(f"{forms} are made"))
    app = build_app(lambda: of_skewed, exposition, skewed, lambda: NOW_MS, JournalActions(skewed))
    for number in range(1, 11):
        answer = ask(app, "GET", "/metrics", headers={"Accept": accept.format(number=number)})
        assert answer.status_code == 200
        assert "rebalancer_snapshot_timestamp_seconds" in answer.text


def test_what_alerts_on_groups_rest_on_is_kept_before_details_of_any(settings: Settings, synthetic: Synthetic) -> None:
    """1,000 groups on three topics each, at the default limit, beside a cluster of 50 brokers."""
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, dict.fromkeys(range(50), 1.0))
    snapshot = replace(read_snapshot(settings, NOW_MS), **crowd(1_000, 3))
    kept, dropped = bounded_of(snapshot, settings)
    assert sum(dropped.values()) > 1_000
    needed = {
        name
        for rule in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
        for name in re.findall(r"rebalancer_consumergroup_\w+", " ".join(row["expr"] for row in rule["rules"]))
    }
    assert len(needed) == 7
    assert {name: dropped[name] for name in needed} == dict.fromkeys(needed, 0)
    stopped = [row for row in kept["rebalancer_consumergroup_partitions"] if row.labels[2] == "stop"]
    assert [(row.labels, row.value) for row in stopped] == [(("group-999", "topic-2", "stop"), 1)]


def crowd(groups: int, topics: int) -> dict[str, Any]:
    """Parts of a snapshot: each topic has two partitions, all are well but one of the very last."""
    verdicts, lags = [], []
    for group in range(groups):
        name = f"group-{group}"
        well = {"ok": 2 * topics} if group < groups - 1 else {"stop": 1, "ok": 2 * topics - 1}
        verdicts.append(GroupVerdict(name, next(iter(well)), "", "Stable", 2 * topics, well, 6_000, 9.0))
        for topic in range(topics):
            statuses = {"ok": 2} if (group, topic) < (groups - 1, topics - 1) else {"stop": 1, "ok": 1}
            lags.append(GroupTopic(name, f"topic-{topic}", "Stable", 2, statuses, 2_000, 1_000, 9.0, 0.1, NOW_MS))
    memberships = tuple(GroupMembership(verdict.group, 2, 3, 60_000) for verdict in verdicts)
    return {"groups": GroupPart(tuple(verdicts), tuple(lags)), "memberships": memberships}


def test_the_cap_cuts_the_least_important_and_counts_it(tables_in_memory: str) -> None:
    settings = settings_for(tables_in_memory, serve={"series_max": 300})
    rows = [(f"group-{index}", "t", 0, 0, 1_000 - index) for index in range(200)]
    Synthetic(settings.storage.tables).group_lag(NOW_MS - 2 * WINDOW_MS, rows, log_start_offset=1)
    series = series_now(settings)
    kept = {dict(labels)["consumergroup"] for name, labels in series if name == "rebalancer_consumergroup_lag_records"}
    assert kept == {f"group-{index}" for index in range(len(kept))}, "those with most lag"
    assert value(series, "export_dropped_series", family="rebalancer_consumergroup_lag_records") == 200 - len(kept)
    assert value(series, "consumergroup_lag_retention_ratio", consumergroup="group-0", topic="t") is not None
    assert (
        value(series, "export_dropped_series", family="rebalancer_consumergroup_last_commit_timestamp_seconds") == 200
    )
    assert value(series, "window_seconds") == 60


@pytest.mark.long
def test_of_too_many_groups_the_worst_are_exported_with_all_that_alerts_rest_on(settings: Settings) -> None:
    """10,000 groups at the default limit; the one that stands still has no more lag than the others."""
    parts = crowd(10_000, 1)
    worst_first = tuple(sorted(parts["groups"].groups, key=lambda row: row.status != "stop"))
    parts["groups"] = replace(parts["groups"], groups=worst_first)
    snapshot = replace(read_snapshot(settings, NOW_MS), **parts)
    kept, dropped = bounded_of(snapshot, settings)
    of_few = {"groups_left_out", "group_partitions_left_out", "group_beyond_end_records", "group_abandoned"}
    for family in GROUPS_ALERTED:
        if family.name.removeprefix("rebalancer_consumer") in of_few:
            continue
        assert "group-9999" in {row.labels[0] for row in kept[family.name]}, family.name
        assert len(kept[family.name]) + dropped[family.name] >= 10_000, family.name
    assert sum(map(len, kept.values())) == settings.serve.series_max


def bounded_of(snapshot: Snapshot, settings: Settings) -> tuple[dict[str, list[Sample]], dict[str, int]]:
    own = samples(snapshot, settings, ("", "", ""))
    return bounded(own, group_samples(snapshot), settings.serve.series_max)


@given(
    st.lists(st.sampled_from(["broker_replicas", "brokers_expected"])),
    st.lists(st.sampled_from(["consumergroup_lag_records", "consumergroup_members"])),
    st.integers(0, 30),
)
def test_nothing_is_lost_uncounted(own: list[str], of_groups: list[str], series_max: int) -> None:
    made = GroupSamples((Sample(name, (), index) for index, name in enumerate(of_groups)), Counter(of_groups))
    kept, dropped = bounded((Sample(name, (), index) for index, name in enumerate(own)), made, series_max)
    total = sum(len(rows) for rows in kept.values())
    assert total == min(len(own) + len(of_groups), series_max)
    assert total + sum(dropped.values()) == len(own) + len(of_groups)


EMPTY = Snapshot(
    kafka_cluster="c",
    mode="observe",
    threshold_enter=1.2,
    threshold_exit=1.1,
    trigger_resources=(),
    window_ms=WINDOW_MS,
    read_at_ms=NOW_MS,
    read_seconds=0.0,
    load=LoadPart(),
    groups=GroupPart(),
    memberships=(),
    control=ControlPart(),
    log_dirs=(),
    restarts=(),
    webhooks=(),
    streams=StreamPart(),
    tables=(),
    failures={},
)
numbers = st.none() | st.integers(0, 9)
topic_rows = st.builds(
    GroupTopic, st.sampled_from("abc"), st.sampled_from("tu"), st.none(), st.just(2),
    st.dictionaries(st.sampled_from(VERDICTS), st.integers(1, 2)), numbers, numbers, numbers, numbers, numbers,
)  # fmt: skip
membership_rows = st.builds(GroupMembership, st.sampled_from("abcd"), numbers, st.integers(0, 9), numbers)


@given(
    st.lists(topic_rows, max_size=4), st.lists(membership_rows, max_size=3, unique_by=lambda row: row.group),
    st.lists(st.sampled_from("abc"), unique=True),
)  # fmt: skip
def test_series_of_groups_are_counted_as_they_would_be_made(
    topics: list[GroupTopic], memberships: list[GroupMembership], groups: list[str]
) -> None:
    """Those that alerts rest on come before the details of any group."""
    verdicts = tuple(GroupVerdict(group, "ok", "", None, 1, {}, None, None) for group in groups)
    snapshot = replace(EMPTY, groups=GroupPart(verdicts, tuple(topics)), memberships=tuple(memberships))
    made = group_samples(snapshot)
    names = [sample.name for sample in made.samples]
    assert Counter(names) == +made.counts
    alerted = {family.name.removeprefix("rebalancer_") for family in GROUPS_ALERTED}
    assert [name in alerted for name in names] == sorted((name in alerted for name in names), reverse=True)
    assert {name.removeprefix("rebalancer_") for name in (family.name for family in GROUPS)} >= set(names)


def test_names_follow_the_rules() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert family.name.startswith("rebalancer_")
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert not set(family.labels) & {"cluster", "env", "type", "kafka_cluster"}
        assert family.help


def test_the_page_of_metrics_is_the_generated_one() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == render()


@pytest.mark.prometheus
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool isn't installed (Debian package prometheus)")
def test_promtool_finds_nothing_to_complain_about(skewed: Settings, of_skewed: Snapshot) -> None:
    text = generate_latest(registry_of(lambda: of_skewed, skewed))
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr.decode()) == (0, "")
