"""Metrics by other names, on request: boards and alerts for other lag exporters or earlier versions still work.

Names, labels and types are theirs, so these series bear no label `kafka_cluster`. Only what the tables hold is
exported: partitions that no group reads, addresses and coordinators are in no table, so their metrics are left out.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from streaming.serve.families import EARLIER_RESOURCE_NAMES, FAMILIES
from streaming.serve.samples import Sample
from streaming.serve.snapshot import Snapshot
from streaming.views.group_ranking import BY_PARTITION, BY_TOPIC, OF_LOG

CLUSTER, GROUP = "cluster", "group"
KINDS = (CLUSTER, GROUP, BY_TOPIC, BY_PARTITION, OF_LOG)
"""What a row is about, most important first: what is beyond the limit is cut from the end."""


@dataclass(frozen=True, slots=True)
class CompatibleFamily:
    """One metric of another exporter, a gauge as all of theirs are."""

    exporter: str
    name: str
    kind: str
    labels: Mapping[str, str]
    """Their label: our column."""
    value: str
    """Our column with the value of the family."""
    help: str


def _families(exporter: str, *rows: tuple[str, str, str, str, str]) -> tuple[CompatibleFamily, ...]:
    """Rows: name, kind, labels as `label=column` (or `label` where both are the same), column of the value, meaning."""
    return tuple(
        CompatibleFamily(exporter, name, kind, dict(_label(text) for text in labels.split()), value, meaning)
        for name, kind, labels, value, meaning in rows
    )


def _label(text: str) -> tuple[str, str]:
    name, _, column = text.partition("=")
    return name, column or name


_MEMBERS, _LAG, _LAG_SUM = "Members at the newest sample", "Records behind", "Records behind, all partitions"
_OFFSET, _OFFSET_SUM = "Committed offset", "Committed offsets, all partitions"
_END, _START = "Log end offset, where a group reads the partition", "Log start offset, where a group reads it"

_COMMITTED, _LAGS = "committed_offset", "lag_records"


_OF_GROUP, _OF_GROUP_PARTITION = "consumergroup=group topic", "consumergroup=group topic partition"
_MINION_TOPIC, _MINION_LOG = "group_id=group topic_name=topic", "topic_name=topic partition_id=partition"
_BURROW = "cluster group topic partition"
COMPATIBLE = (
    *_families(
        "kafka_exporter",
        ("kafka_brokers", CLUSTER, "", "brokers", "Brokers alive, as control saw them last"),
        ("kafka_consumergroup_members", GROUP, "consumergroup=group", "members", _MEMBERS),
        ("kafka_consumergroup_lag_sum", BY_TOPIC, _OF_GROUP, _LAGS, _LAG_SUM),
        ("kafka_consumergroup_current_offset_sum", BY_TOPIC, _OF_GROUP, _COMMITTED, _OFFSET_SUM),
        ("kafka_consumergroup_lag", BY_PARTITION, _OF_GROUP_PARTITION, _LAGS, _LAG),
        ("kafka_consumergroup_current_offset", BY_PARTITION, _OF_GROUP_PARTITION, _COMMITTED, _OFFSET),
        ("kafka_topic_partition_current_offset", OF_LOG, "topic partition", "log_end_offset", _END),
        ("kafka_topic_partition_oldest_offset", OF_LOG, "topic partition", "log_start_offset", _START),
    ),
    *_families(
        "kminion",
        ("kminion_kafka_consumer_group_members", GROUP, "group_id=group", "members", _MEMBERS),
        ("kminion_kafka_consumer_group_topic_lag", BY_TOPIC, _MINION_TOPIC, _LAGS, _LAG_SUM),
        ("kminion_kafka_consumer_group_topic_offset_sum", BY_TOPIC, _MINION_TOPIC, _COMMITTED, _OFFSET_SUM),
        (
            "kminion_kafka_consumer_group_topic_partition_lag",
            BY_PARTITION,
            f"group_id=group {_MINION_LOG}",
            _LAGS,
            _LAG,
        ),
        ("kminion_kafka_topic_partition_high_water_mark", OF_LOG, _MINION_LOG, "log_end_offset", _END),
        ("kminion_kafka_topic_partition_low_water_mark", OF_LOG, _MINION_LOG, "log_start_offset", _START),
    ),
    *_families(
        "burrow_exporter",
        ("kafka_burrow_total_lag", GROUP, "cluster group", _LAGS, _LAG_SUM),
        ("kafka_burrow_partition_lag", BY_PARTITION, _BURROW, _LAGS, _LAG),
        ("kafka_burrow_partition_current_offset", BY_PARTITION, _BURROW, _COMMITTED, _OFFSET),
        ("kafka_burrow_topic_partition_offset", OF_LOG, "cluster topic partition", "log_end_offset", _END),
    ),
)


def compatible_metrics(
    snapshot: Snapshot, exporters: Collection[str], *, series_max: int
) -> tuple[list[Metric], dict[str, int]]:
    """The metrics of these exporters with at most `series_max` series, and how many were cut of each of them.

    Row after row with all metrics of it, so that what is kept of a group is whole.
    """
    families = [family for family in COMPATIBLE if family.exporter in exporters]
    metrics = {row.name: GaugeMetricFamily(row.name, row.help, labels=tuple(row.labels)) for row in families}
    dropped = Counter({family.name: 0 for family in families if family.labels})
    left = series_max
    for kind in KINDS:
        of_kind = [family for family in families if family.kind == kind]
        for row in _rows(snapshot, kind) if of_kind else ():
            for family in of_kind:
                value = row[family.value]
                if value is None:
                    continue
                if left > 0:
                    labels = [str(row[column]) for column in family.labels.values()]
                    metrics[family.name].add_metric(labels, value)
                    left -= 1
                else:
                    dropped[family.name] += 1
        if kind in snapshot.groups.offsets:
            left_out = snapshot.groups.offsets[kind].left_out
            dropped.update({family.name: left_out[family.value] for family in of_kind})
    return list(metrics.values()), dict(dropped)


def with_network_labels(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Our own samples, and each that has a resource by its earlier name once more: `network_in` beside `bytes_in`."""
    families = {family.name.removeprefix("rebalancer_"): family for family in FAMILIES}
    for sample in samples:
        yield sample
        labels = tuple(
            EARLIER_RESOURCE_NAMES.get(value, value) if name in ("resource", "trigger") else value
            for name, value in zip(families[sample.name].labels, sample.labels, strict=True)
        )
        if labels != sample.labels:
            yield sample._replace(labels=labels)


def _rows(snapshot: Snapshot, kind: str) -> Iterable[Mapping[str, Any]]:
    """Rows with the columns that families of this kind name; worst groups first."""
    name = snapshot.kafka_cluster
    if kind == CLUSTER:
        return [{"brokers": snapshot.brokers_expected}]
    if kind == GROUP:
        members = {row.group: row.members for row in snapshot.memberships}
        return (
            {"cluster": name, "group": row.group, "lag_records": row.lag_records, "members": members.get(row.group)}
            for row in snapshot.groups.groups
        )
    return ({**row, "cluster": name} for row in snapshot.groups.offsets.get(kind, ()))
