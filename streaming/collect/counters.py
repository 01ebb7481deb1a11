"""Byte counters of brokers, from their jmx_exporter endpoints or from a Prometheus that scrapes them.

Endpoints have the names of `deploy/jmx/kafka-broker.yaml`. A Prometheus has the names of one preset. Sources of the
presets: the example rules of jmx_exporter and Strimzi's `kafka-metrics.yaml` (equal names); the default names of
jmx_exporter without rules, which Amazon MSK's open monitoring has; Grafana's kafka-mixin, whose two other sources are
`grafanacloud` and `bitnami` (grafana/jsonnet-libs, kafka-observ-lib/signals/broker.libsonnet).

Every rate out of Prometheus is one of two scrapes of one target, by their own times, whenever they were asked for. A
series with a stale marker after its last sample, or whose target is gone, is not there: its broker is unknown, never 0.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import structlog
from prometheus_client.parser import text_string_to_metric_families

from assignor_core.wording import many
from streaming.cluster.metric_reads import PrometheusApi, QueryFailed, scrape
from streaming.collect.sample import BrokerCounters, CounterPair, SampleState
from streaming.contract.rates import BYTES_IN, RATES
from streaming.runtime.secrets import without_user_info
from streaming.settings import CollectSettings

log = structlog.get_logger()

PREFIX = "kafka_server_brokertopicmetrics_"
LIMIT_S = 3.0
"""How long one endpoint may take for its whole answer."""
PLAIN_LINE = re.compile(
    rf'^{PREFIX}(\w+)(?:{{topic="([\w.-]+)",?}})? (\d[\d.]*(?:[eE][+-]?\d+)?)$', re.MULTILINE | re.ASCII
)
"""Meter, topic and value of a line as jmx_exporter writes it, without further labels and timestamp."""
FIELDS = {f"{rate.meter.lower()}_total": rate.stem for rate in RATES}
METERS = {rate.meter: rate.stem for rate in RATES}
"""Name that a counter has here, by Kafka's name of the meter."""
BYTES_IN_ONLY = {BYTES_IN.meter: BYTES_IN.stem}
LOOK_BACK_MIN_S = 200
"""Long enough for three scrapes a minute apart."""
LOOK_BACK_INTERVALS = 3
AGE_SCRAPES_MAX = 3
"""A broker whose newest scrape is older than so many of its scrape intervals is not scraped any more."""
Series = tuple[Mapping[str, str], Sequence[tuple[float, float]]]
"""Labels, and (time in s, value) of each sample of a Prometheus, oldest first."""


def read_counters(
    endpoints: Mapping[int, str], sample: SampleState, *, transport: httpx.AsyncBaseTransport | None = None
) -> dict[int, BrokerCounters]:
    """Counters by broker; an endpoint that doesn't answer, or lacks one, costs its broker's, which is logged."""

    def note(broker: int) -> None:
        sample.note("counters", broker)

    scrapes = scrape(endpoints, limit_s=LIMIT_S, on_answer=note, transport=transport)
    for broker, problem in scrapes.problems.items():
        log.warning("jmx_unreachable", broker=broker, url=without_user_info(endpoints[broker]), error=problem)
    by_broker = {broker: parse_counters(text) for broker, text in sorted(scrapes.answers.items())}
    for broker, counters in by_broker.items():
        if counters is None:
            url = without_user_info(endpoints[broker])
            log.warning("jmx_incomplete", broker=broker, url=url, hint="use the rules of deploy/jmx/kafka-broker.yaml")
    return {broker: counters for broker, counters in by_broker.items() if counters is not None}


def parse_counters(exposition: str) -> BrokerCounters | None:
    """Counters in a scrape, see `BrokerCounters.of`; None also if the scrape is torn off or a line can't be read."""
    if not exposition.endswith("\n"):  # the format asks for it: this is another format, or torn off
        return None
    try:
        series = _series(exposition)
        return BrokerCounters.of((FIELDS[meter], topic, value) for meter, topic, value in series if meter in FIELDS)
    except (ValueError, LookupError, ArithmeticError):  # the parser raises all three for lines that are none
        return None


def _series(exposition: str) -> Iterator[tuple[str, str | None, float]]:
    """Series of the lines that concern us: what else the endpoint exports need not be sound.

    A large broker has thousands of lines, all alike; where one is not, prometheus_client reads them, in 17 us each.
    """
    plain = PLAIN_LINE.findall(exposition)
    if len(plain) == exposition.count("\n" + PREFIX) + exposition.startswith(PREFIX):
        return ((meter, topic or None, float(value)) for meter, topic, value in plain)
    return _series_of_any_form(exposition)


def _series_of_any_form(exposition: str) -> Iterator[tuple[str, str | None, float]]:
    for line in exposition.split("\n"):
        if line.startswith(PREFIX):
            for family in text_string_to_metric_families(line):
                for sample in family.samples:
                    yield sample.name.removeprefix(PREFIX), sample.labels.get("topic"), sample.value


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
        """Returns the counter of the product that a series is; None if the series is no such counter.

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
    """The label by which a series names its broker, and how the id is read from it."""

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


@dataclass(frozen=True, slots=True)
class Found:
    """Counters by broker, and what was wrong with the rest, one line each."""

    pairs: Mapping[int, CounterPair]
    problems: Sequence[str]

    def problems_with(self, brokers: Collection[int]) -> list[str]:
        """All that was wrong, one line for those of `brokers` of which there are no counters."""
        unknown = ", ".join(map(str, sorted(set(brokers) - self.pairs.keys())))
        return [*self.problems, *([f"no fresh counters of brokers {unknown}"] if unknown else [])]


def counter_pairs(
    series: Sequence[Series], alive: Sequence[Mapping[str, str]], preset: Preset, names: BrokerNames, *,
    now_s: float, interval_s: float,
) -> Found:  # fmt: skip
    """The newest scrape of each broker and one at least `interval_s` before it, or else the oldest that is there.

    `alive` are labels of series that are not stale now. A broker of two targets is left out: their counters differ.
    """
    live = {broker for labels in alive if (broker := names.broker_of(labels)) is not None}
    by_broker: dict[int, list[Series]] = defaultdict(list)
    unnamed: set[str] = set()
    for labels, samples in series:
        broker = names.broker_of(labels)
        if broker is None:
            unnamed.add(labels.get(names.label, ""))
        else:
            by_broker[broker].append((labels, samples))
    problems = []
    if unnamed:
        problems.append(
            f"label {names.label} names no broker: {_first_of(unnamed)} (collect.prometheus_broker_pattern, "
            "collect.prometheus_broker_ids)"
        )
    twice = {broker for broker, rows in by_broker.items() if _is_of_two_targets(rows, preset)}
    if twice:
        problems.append(f"brokers of more than one target: {_first_of({str(row) for row in twice})}")
    pairs = {}
    for broker, rows in sorted(by_broker.items()):
        if broker in live and broker not in twice:
            pair = _pair(rows, preset, now_s, interval_s)
            if pair is not None:
                pairs[broker] = pair
    return Found(pairs, problems)


def _pair(rows: Sequence[Series], preset: Preset, now_s: float, interval_s: float) -> CounterPair | None:
    """Returns two scrapes of a broker; None without two that show bytes in, or where the newest is too old."""
    scrapes: dict[float, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for labels, samples in rows:
        for time_s, value in samples:
            scrapes[time_s].append((labels, value))
    whole: dict[float, BrokerCounters] = {}
    for time_s, samples_then in scrapes.items():
        named = ((preset.stem_of(labels), labels.get("topic"), value) for labels, value in samples_then)
        counters = BrokerCounters.of((stem, topic, value) for stem, topic, value in named if stem is not None)
        if counters is not None:
            whole[time_s] = counters
    times = sorted(whole)
    if len(times) < 2 or now_s - times[-1] > AGE_SCRAPES_MAX * (times[-1] - times[-2]):
        return None
    last = times[-1]
    # A tenth of an interval is the jitter of scrapes.
    first = max((row for row in times if row <= last - 0.9 * interval_s), default=times[0])
    return CounterPair(whole[first], whole[last], round(first * 1000), round(last * 1000))


def _is_of_two_targets(rows: Sequence[Series], preset: Preset) -> bool:
    """Whether two series count the same."""
    counted = [(preset.stem_of(labels), labels.get("topic") or "") for labels, _ in rows]
    return len(set(counted)) < len(counted)


def _first_of(values: set[str]) -> str:
    first = min(values)
    return f"{first!r}" if len(values) == 1 else f"{first!r} and {len(values) - 1} more"


def series_of(answer: Mapping[str, Any]) -> list[Series]:
    """Series of an answer of Prometheus' /api/v1/query; raises ValueError where it is none.

    >>> series_of({"status": "success", "data": {"resultType": "matrix", "result": [
    ...     {"metric": {"a": "b"}, "values": [[1.5, "2"]]}]}})
    [({'a': 'b'}, [(1.5, 2.0)])]
    """
    if answer.get("status") != "success":
        raise ValueError(str(answer.get("error", "no answer of Prometheus")))
    try:
        rows = [
            (row["metric"], row["values"] if "values" in row else [row["value"]]) for row in answer["data"]["result"]
        ]
        return [(dict(labels), [(float(time_s), float(value)) for time_s, value in values]) for labels, values in rows]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answer of Prometheus: {type(error).__name__}") from None


@dataclass(slots=True)
class PrometheusSource:
    """Reads counters sample after sample; a problem is logged when it begins, not at each sample."""

    api: PrometheusApi
    settings: CollectSettings
    _problems: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, settings: CollectSettings) -> "PrometheusSource | None":
        """Returns the source that the settings name; None where they name none. Raises UsageProblem."""
        api = PrometheusApi.of(settings)
        return None if api is None else cls(api, settings)

    def read(self, brokers: Collection[int], *, now_ms: int) -> Mapping[int, CounterPair]:
        """Two scrapes of each of `brokers` that is known, a sample's interval apart or more if there are."""
        try:
            found = self.found(now_s=now_ms / 1000)
        except QueryFailed as error:
            self._note([str(error)])
            return {}
        self._note(found.problems_with(brokers))
        return {broker: pair for broker, pair in found.pairs.items() if broker in brokers}

    def found(self, *, now_s: float) -> Found:
        """Returns what Prometheus shows of all brokers; raises QueryFailed."""
        preset, names = PRESETS[self.settings.prometheus_preset], self._names()
        interval_s = self.settings.sample_interval_ms / 1000
        span_s = max(LOOK_BACK_MIN_S, round(LOOK_BACK_INTERVALS * interval_s))
        matchers = self.settings.prometheus_matchers
        # Raw samples of a range don't show that a series has ended; an instant query leaves out what is stale.
        alive = self._series(preset.selector(matchers, meters=BYTES_IN_ONLY), now_s)
        series = self._series(f"{preset.selector(matchers, meters=METERS)}[{span_s}s]", now_s)
        labels = [row for row, _ in alive if not row.get("topic")]
        return counter_pairs(series, labels, preset, names, now_s=now_s, interval_s=interval_s)

    def _series(self, expression: str, now_s: float) -> Sequence[Series]:
        try:
            return series_of(self.api.query(expression, time_s=now_s))
        except ValueError as error:
            raise QueryFailed(str(error)) from None

    def _names(self) -> BrokerNames:
        preset, settings = PRESETS[self.settings.prometheus_preset], self.settings
        return BrokerNames(
            settings.prometheus_broker_label or preset.broker_label,
            settings.prometheus_broker_pattern or preset.broker_pattern,
            settings.prometheus_broker_ids,
        )

    def _note(self, problems: Sequence[str]) -> None:
        for problem in sorted(set(problems) - self._problems):
            log.warning("prometheus_incomplete", problem=problem)
        self._problems = frozenset(problems)


def finding(source: PrometheusSource, brokers: Collection[int], *, now_s: float) -> tuple[bool, str]:
    """The line of `rebalancer check`: whether there are counters of each of `brokers`, or what is wrong."""
    preset = source.settings.prometheus_preset
    try:
        found = source.found(now_s=now_s)
    except QueryFailed as error:
        return False, str(error)
    if not found.pairs and not found.problems:
        selector = PRESETS[preset].selector(source.settings.prometheus_matchers, meters=BYTES_IN_ONLY)
        return False, f"preset {preset}: no fresh series {selector}"
    problems = found.problems_with(brokers)
    if problems:
        return False, f"preset {preset}: {'; '.join(problems)}"
    return True, f"preset {preset}: counters of {many(len(found.pairs), 'broker')}"
