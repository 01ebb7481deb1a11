"""Metrics by the names of other lag exporters: names, labels and types are theirs, values those of the tables."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from streaming.serve.compatible import COMPATIBLE
from streaming.serve.metrics import Exposition, Form
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

EXPORTERS = ("kafka_exporter", "kminion", "burrow_exporter")
THEIRS = ("kafka_", "kminion_")
Series = dict[tuple[str, ...], float]


def golden(exporter: str) -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "compatible" / f"{exporter}.yaml").read_text()
    theirs: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return theirs


def settings_of(folder: Path, *exporters: str, **serve: Any) -> Settings:
    return settings_for(folder, serve={"compatible_metrics": list(exporters), **serve})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Group slow is behind on both partitions of a; group done on none; a third group has committed nothing on b."""
    folder = tmp_path_factory.mktemp("compatible")
    synthetic = Synthetic(str(folder / "tables"))
    rows = [
        ("done", "a", 0, 1_000, 1_000),
        ("slow", "a", 0, 400, 1_000),
        ("slow", "a", 1, 300, 500),
        ("new", "b", 0, None, 70),
    ]
    with synthetic.together():
        for window in range(6):
            synthetic.group_lag(NOW_MS - (6 - window) * WINDOW_MS, rows, log_start_offset=7)
    return folder


def rendered(settings: Settings, accept: str = "text/plain;version=0.0.4") -> str:
    return Exposition(read_snapshot(settings, NOW_MS), settings).answer(Form.of(accept)).decode()


def series(text: str) -> Series:
    """What is theirs, and the count of what was cut: (name, values of the labels in the order of their names)."""
    return {
        (row.name, *(value for _, value in sorted(row.labels.items()))): row.value
        for family in text_string_to_metric_families(text)
        for row in family.samples
        if row.name.startswith((*THEIRS, "rebalancer_export_dropped_series"))
    }


def test_by_default_there_are_only_our_own_names(folder: Path) -> None:
    assert not any(line.startswith(THEIRS) for line in rendered(settings_of(folder)).splitlines())


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_names_labels_and_types_are_theirs(folder: Path, exporter: str) -> None:
    theirs, ours = golden(exporter), {row.name: row for row in COMPATIBLE if row.exporter == exporter}
    assert ours.keys() <= theirs.keys()
    for family in text_string_to_metric_families(rendered(settings_of(folder, exporter))):
        if family.name.startswith(THEIRS):
            assert family.type == theirs[family.name]["type"]
            assert {row.name for row in family.samples} <= {family.name}
            assert all(row.labels.keys() == set(theirs[family.name]["labels"]) for row in family.samples)
            del ours[family.name]
    assert not ours, "all of them are there, with or without series"


def test_values_are_those_of_the_tables_and_what_is_unknown_is_absent(folder: Path) -> None:
    shown = series(rendered(settings_of(folder, "kafka_exporter")))
    assert shown["kafka_consumergroup_lag_sum", "slow", "a"] == 800
    assert shown["kafka_consumergroup_current_offset_sum", "slow", "a"] == 700
    assert shown["kafka_consumergroup_lag", "slow", "1", "a"] == 200
    assert shown["kafka_consumergroup_current_offset", "slow", "1", "a"] == 300
    assert shown["kafka_consumergroup_lag", "done", "0", "a"] == 0
    assert shown["kafka_consumergroup_members", "slow"] == 1
    assert shown["kafka_topic_partition_current_offset", "0", "a"] == 1_000
    assert shown["kafka_topic_partition_oldest_offset", "0", "b"] == 7
    assert {name for name, *values in shown if "new" in values} == {"kafka_consumergroup_members"}
    assert ("kafka_brokers",) not in shown, "nobody has seen any"


def test_kminion_and_burrow_exporter_show_the_same(folder: Path) -> None:
    shown = series(rendered(settings_of(folder, "kminion", "burrow_exporter")))
    assert shown["kminion_kafka_consumer_group_topic_lag", "slow", "a"] == 800
    assert shown["kminion_kafka_consumer_group_topic_partition_lag", "slow", "0", "a"] == 600
    assert shown["kminion_kafka_topic_partition_high_water_mark", "0", "b"] == 70
    assert shown["kafka_burrow_total_lag", "test", "slow"] == 800
    assert shown["kafka_burrow_partition_lag", "test", "slow", "0", "a"] == 600
    assert shown["kafka_burrow_topic_partition_offset", "test", "1", "a"] == 500
    assert not any(name.startswith("kafka_consumergroup") for name, *_ in shown), "nobody has asked for those"


def test_openmetrics_has_them_too(folder: Path) -> None:
    text = rendered(settings_of(folder, *EXPORTERS), accept="application/openmetrics-text;version=1.0.0")
    names = {family.name for family in parse_openmetrics(text)}
    assert {family.name for family in COMPATIBLE} <= names


@pytest.mark.long
def test_they_share_the_limit_come_after_our_own_and_healthy_groups_are_cut_first(tmp_path: Path) -> None:
    partitions = 300
    rows = [(group, "t", number, 10, 10 if group == "a" else 90) for group in "ab" for number in range(partitions)]
    synthetic = Synthetic(str(tmp_path / "tables"))
    synthetic.group_lag(NOW_MS - WINDOW_MS, rows)
    usual = rendered(settings_of(tmp_path, series_max=450))
    text = rendered(settings_of(tmp_path, "kafka_exporter", series_max=450))
    assert [line for line in text.splitlines() if line.startswith("rebalancer_consumergroup")] == [
        line for line in usual.splitlines() if line.startswith("rebalancer_consumergroup")
    ]
    shown = series(text)
    kept = [group for name, group, *_ in shown if name == "kafka_consumergroup_lag"]
    assert 0 < len(kept) < partitions
    assert set(kept) == {"b"}
    dropped = "rebalancer_export_dropped_series"
    assert shown[dropped, "kafka_consumergroup_lag", "test"] == 2 * partitions - len(kept)
    assert shown[dropped, "kafka_topic_partition_current_offset", "test"] == partitions
    assert shown[dropped, "kafka_consumergroup_lag_sum", "test"] == 0


@pytest.mark.long
def test_resources_have_one_spelling_and_their_earlier_one_besides_on_request(skewed_tables: str) -> None:
    def of_resources(*wanted: str) -> dict[tuple[str, str], float]:
        return {
            (row.name, value): row.value
            for family in text_string_to_metric_families(rendered(settings_of(Path(skewed_tables).parent, *wanted)))
            for row in family.samples
            for label, value in row.labels.items()
            if label in ("resource", "trigger") and not row.labels.get("broker")
        }

    now, both = of_resources(), of_resources("network_labels")
    assert {resource for _, resource in now} >= {"bytes_in", "bytes_out", "disk", "leaders", "replicas"}
    assert not [resource for _, resource in now if "network" in resource]
    earlier = {"bytes_in": "network_in", "bytes_out": "network_out"}
    assert both == now | {(name, earlier[key]): value for (name, key), value in now.items() if key in earlier}
