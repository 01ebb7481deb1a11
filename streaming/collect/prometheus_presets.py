"""Names that exporters of JMX give Kafka's counters in Prometheus, by preset; pure data and no request.

Sources: the example rules of jmx_exporter and Strimzi's `kafka-metrics.yaml` (same names); the default names of
jmx_exporter without rules, which Amazon MSK's open monitoring has; Grafana's kafka-mixin, whose two other sources are
`grafanacloud` and `bitnami` (grafana/jsonnet-libs, kafka-observ-lib/signals/broker.libsonnet).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streaming.contract.rates import RATES

METERS = {rate.meter: rate.stem for rate in RATES}
"""Name that a counter has here, by Kafka's name of the meter."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How one exporter names the counters of BrokerTopicMetrics, and which label names the broker."""

    metric: str
    """Name of the series; `{meter}` stands for the meter in small letters, where it is part of the name."""
    meter_label: str | None = None
    """Label that names the meter, as `BytesInPerSec`, where the name of the series doesn't."""
    broker_label: str = "instance"
    broker_pattern: str | None = None
    """The first group is the broker id; None: the label's value is the id, or the settings map it."""

    def selector(self, matchers: str = "", *, meters: Mapping[str, str] = METERS) -> str:
        """Returns the selector of all counters in one query; `matchers` are more label matchers.

        >>> PRESETS["kafka-mixin"].selector('cluster="a"', meters={"BytesIn": "bytes_in"})
        '{__name__=~"kafka_server_brokertopicmetrics_(bytesin)persec",cluster="a"}'
        >>> PRESETS["msk"].selector(meters={"BytesIn": "bytes_in", "BytesOut": "bytes_out"})
        '{__name__="kafka_server_BrokerTopicMetrics_Count",name=~"(BytesIn|BytesOut)PerSec"}'
        """
        if self.meter_label is None:
            names = "|".join(meter.lower() for meter in meters)
            parts = [f'__name__=~"{self.metric.format(meter=f"({names})")}"']
        else:
            parts = [f'__name__="{self.metric}"', f'{self.meter_label}=~"({"|".join(meters)})PerSec"']
        return "{" + ",".join([*parts, *([matchers] if matchers else [])]) + "}"

    def stem_of(self, labels: Mapping[str, str]) -> str | None:
        """Which of our counters a series is; None for another.

        >>> PRESETS["strimzi"].stem_of({"__name__": "kafka_server_brokertopicmetrics_bytesin_total"})
        'bytes_in'
        >>> PRESETS["msk"].stem_of({"name": "ReplicationBytesInPerSec"})
        'replication_bytes_in'
        """
        if self.meter_label is not None:
            return METERS.get(labels.get(self.meter_label, "").removesuffix("PerSec"))
        name = labels.get("__name__")
        by_name = {self.metric.format(meter=meter.lower()): stem for meter, stem in METERS.items()}
        return None if name is None else by_name.get(name)


PRESETS = {
    "jmx_exporter": Preset("kafka_server_brokertopicmetrics_{meter}_total"),
    "strimzi": Preset(
        "kafka_server_brokertopicmetrics_{meter}_total", broker_label="kubernetes_pod_name", broker_pattern=r"-(\d+)$"
    ),
    "msk": Preset("kafka_server_BrokerTopicMetrics_Count", meter_label="name", broker_pattern=r"^b-(\d+)[.-]"),
    "kafka-mixin": Preset("kafka_server_brokertopicmetrics_{meter}persec"),
    "bitnami": Preset("kafka_server_brokertopicmetrics_{meter}persec_count"),
}


@dataclass(frozen=True, slots=True)
class BrokerNames:
    """Which label of a series names its broker, and how."""

    label: str
    pattern: str | None
    ids: Mapping[str, int]
    """Broker id by the label's value; what stands here goes before the pattern."""

    def broker_of(self, labels: Mapping[str, str]) -> int | None:
        """The broker id; None where nothing names one.

        >>> names = BrokerNames("instance", r"^b-(\\d+)[.-]", {"10.0.0.7:7071": 7})
        >>> [names.broker_of({"instance": text}) for text in ("b-2.kafka:11001", "10.0.0.7:7071", "10.0.0.8:7071")]
        [2, 7, None]
        >>> BrokerNames("broker", None, {}).broker_of({"broker": "3"})
        3
        """
        value = labels.get(self.label, "")
        if value in self.ids:
            return self.ids[value]
        if self.pattern is not None:
            match = re.search(self.pattern, value)
            value = match.group(1) if match else ""
        return int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else None
