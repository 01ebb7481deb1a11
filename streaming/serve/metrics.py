"""Samples -> Prometheus' text, through one custom collector over one snapshot.

Fresh series at each snapshot, so what is gone vanishes; a hard cap on series, and a count of what it cut.
"""

import gzip
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import islice

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, gzip_accepted
from prometheus_client.exposition import generate_latest as as_text
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics
from prometheus_client.registry import Collector

from streaming.serve.compatible import compatible_metrics, with_network_labels
from streaming.serve.families import FAMILIES, Family
from streaming.serve.samples import GroupSamples, Sample, group_samples, samples, tally
from streaming.serve.snapshot import Snapshot
from streaming.settings import Settings

PLAN_SECONDS = (0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)
EXECUTION_SECONDS = (10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0)
PREFIX = "rebalancer_"
NETWORK_LABELS = "network_labels"
"""A value of `serve.compatible_metrics` that is no other exporter."""
GZIP_LEVEL = 3
"""A tenth of the bytes, for half of the time that the usual level takes."""
RENDERED_MAX = 16
"""Answers for several clusters that are kept until the next snapshot: one for each form and set of clusters."""
UNBOUNDED = frozenset({"topic", "consumergroup"})
"""Labels with as many values as users make."""


def registry_of(snapshot: Callable[[], Snapshot], settings: Settings) -> CollectorRegistry:
    """A registry of its own: the snapshot's metrics, and memory, CPU and files of this process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot, settings))
    ProcessCollector(registry=registry)
    return registry


@cache
def _versions() -> tuple[str, str, str]:
    """Returns the versions of the product, of Spark and of deltalake; they stay the same while the process lives."""
    return version("kafka-load-rebalancer"), version("pyspark"), version("deltalake")


ENCODERS: Mapping[str, Callable[[Collector], bytes]] = {CONTENT_TYPE_PLAIN_0_0_4: as_text, OPENMETRICS: as_openmetrics}
"""Encoders by content type. A request may name versions and ways to escape without end, and gets one of these: none of
our names needs to be escaped.
"""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an answer of /metrics, as negotiated with a scraper."""

    content_type: str
    packed: bool
    """Whether the answer is compressed with gzip."""

    @classmethod
    def of(cls, accept: str, accept_encoding: str = "") -> "Form":
        """The form that these headers of a request ask for; text for a version that is none."""
        try:
            content_type = choose_encoder(accept)[1]
        except (TypeError, ValueError):  # it compares the parts of a version as they come
            content_type = CONTENT_TYPE_PLAIN_0_0_4
        is_openmetrics = content_type.startswith("application/openmetrics-text")
        return cls(OPENMETRICS if is_openmetrics else CONTENT_TYPE_PLAIN_0_0_4, gzip_accepted(accept_encoding))


FORMS = tuple(Form(content_type, packed) for content_type in ENCODERS for packed in (False, True))
"""All forms: made before anybody asks."""


class Exposition:
    """What /metrics answers: bytes that lie ready, made when a snapshot comes, in every form that is asked for."""

    def __init__(self, snapshot: Snapshot, settings: Settings, forms: Sequence[Form] = FORMS) -> None:
        """`forms` are made before anybody asks."""
        self.snapshot = snapshot
        self._registry = registry_of(lambda: self.snapshot, settings)
        self._lock = threading.Lock()
        self._forms = forms
        self._asked: frozenset[Form] = frozenset()
        self._rendered = _rendered(self._registry, forms)

    def update(self, snapshot: Snapshot) -> None:
        """Show `snapshot` from now on."""
        with self._lock:
            self.snapshot = snapshot
            self._rendered = _rendered(self._registry, self._asked or self._forms)

    def ready(self, form: Form) -> bytes | None:
        """The body, at once; None where none was made in this form yet."""
        body = self._rendered.get(form)
        if body is not None:
            self._asked |= {form}
        return body

    def answer(self, form: Form) -> bytes:
        """The body; a form that was not asked for yet is made now, and from now on with every snapshot."""
        with self._lock:
            if form not in self._rendered:
                self._rendered = {**self._rendered, **_rendered(self._registry, [form])}
            self._asked |= {form}
            return self._rendered[form]


def _rendered(registry: CollectorRegistry, forms: Iterable[Form]) -> dict[Form, bytes]:
    """The metrics of a registry in these forms, collected once for all of them."""
    wanted = tuple(forms)
    if not wanted:
        return {}
    collected = _Collected(tuple(registry.collect()))
    types = dict.fromkeys(form.content_type for form in wanted)
    plain = {content_type: ENCODERS[content_type](collected) for content_type in types}
    return {
        form: gzip.compress(body, GZIP_LEVEL, mtime=0) if form.packed else body
        for form in wanted
        for body in (plain[form.content_type],)
    }


class ExpositionOfAll:
    """What /metrics answers for several clusters: the series of all of them, made when they are asked for.

    Series of other exporters are left out: most of them have no label for the cluster, so those of two clusters would
    be one. Each cluster's own /metrics has them. Each cluster has `serve.series_max` series of its own, so a large
    cluster cuts no series of another.
    """

    def __init__(self, clusters: Sequence[tuple[Callable[[], Snapshot], Settings]]) -> None:
        self._snapshots = [snapshot for snapshot, _ in clusters]
        self._collectors = {
            settings.kafka.cluster_name: SnapshotCollector(snapshot, _without_exporters(settings))
            for snapshot, settings in clusters
        }
        self._lock = threading.Lock()
        self._shown: list[int] = []
        self._rendered: dict[tuple[frozenset[str], Form], bytes] = {}

    def answer(self, form: Form, may_see: Callable[[str], bool]) -> bytes:
        """The series of the clusters whose names pass `may_see`; those of before, if no cluster was read since."""
        seen = frozenset(name for name in self._collectors if may_see(name))
        with self._lock:
            newest = [snapshot().read_at_ms for snapshot in self._snapshots]
            if newest != self._shown or len(self._rendered) >= RENDERED_MAX:
                self._shown, self._rendered = newest, {}
            if (seen, form) not in self._rendered:
                self._rendered[seen, form] = _rendered(self._registry_of(seen), [form])[form]
            return self._rendered[seen, form]

    def _registry_of(self, seen: Collection[str]) -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Merged([collector for name, collector in self._collectors.items() if name in seen]))
        ProcessCollector(registry=registry)
        return registry


def _without_exporters(settings: Settings) -> Settings:
    own = [name for name in settings.serve.compatible_metrics if name == NETWORK_LABELS]
    return settings.model_copy(update={"serve": settings.serve.model_copy(update={"compatible_metrics": own})})


class _Merged(Collector):
    """Metrics of several collectors: each name once, with the series of all."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for metric in (metric for collector in self._collectors for metric in collector.collect()):
            known = merged.setdefault(metric.name, metric)
            if known is not metric:
                known.samples.extend(metric.samples)
        return merged.values()


@dataclass(frozen=True, slots=True)
class _Collected(Collector):
    """Metrics that were collected before."""

    metrics: tuple[Metric, ...]

    def collect(self) -> tuple[Metric, ...]:
        return self.metrics


class SnapshotCollector(Collector):
    """Yields every family of `FAMILIES`, with the series that the newest snapshot gives it, then those of other
    exporters that are asked for.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], settings: Settings) -> None:
        self._snapshot = snapshot
        self._settings = settings

    def collect(self) -> Iterator[Metric]:
        """All metrics of the newest snapshot."""
        snapshot = self._snapshot()
        cluster = snapshot.kafka_cluster
        exporters = self._settings.serve.compatible_metrics
        own, of_groups = samples(snapshot, self._settings, _versions()), group_samples(snapshot)
        own = with_network_labels(own) if NETWORK_LABELS in exporters else own
        kept, dropped = bounded(own, of_groups, self._settings.serve.series_max)
        left = self._settings.serve.series_max - sum(map(len, kept.values()))
        compatible, cut = compatible_metrics(snapshot, exporters, series_max=left)
        dropped |= cut
        kept["rebalancer_export_dropped_series"] = [
            Sample("export_dropped_series", (name,), count) for name, count in sorted(dropped.items())
        ]
        for family in FAMILIES:
            if family.kind == "histogram":
                yield _histogram(family, snapshot)
            else:
                yield _filled(family, cluster, kept[family.name])
        yield from compatible


def bounded(
    samples: Iterable[Sample], of_groups: GroupSamples, series_max: int
) -> tuple[dict[str, list[Sample]], dict[str, int]]:
    """Samples by full name, at most `series_max` of them; and how many were cut of each family, 0 of those that can
    grow without bound.

    The families that come first in `FAMILIES` are kept whole, those of consumer groups last, group after group as they
    come.
    """
    by_name: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_name[PREFIX + sample.name].append(sample)
    left = series_max
    dropped: Counter[str] = Counter({family.name: 0 for family in FAMILIES if UNBOUNDED & set(family.labels)})
    for family in FAMILIES:
        rows = by_name[family.name]
        if len(rows) > left:
            dropped[family.name] += len(rows) - left
            by_name[family.name] = rows[:left]
        left -= len(by_name[family.name])
    for sample in islice(of_groups.samples, left):
        by_name[PREFIX + sample.name].append(sample)
    for name, count in of_groups.counts.items():
        dropped[PREFIX + name] += count - len(by_name[PREFIX + name])
    return by_name, dict(dropped)


def _filled(family: Family, cluster: str, rows: list[Sample]) -> Metric:
    labels = ["kafka_cluster", *family.labels]
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=labels)
    for sample in rows:
        metric.add_metric([cluster, *sample.labels], sample.value)
    return metric


def _histogram(family: Family, snapshot: Snapshot) -> Metric:
    plans = family.name == "rebalancer_rebalance_plan_duration_seconds"
    values = snapshot.control.planning_seconds if plans else snapshot.control.execution_seconds
    metric = HistogramMetricFamily(family.name, family.help, labels=["kafka_cluster"])
    if values is not None:
        counts = tally(values, PLAN_SECONDS if plans else EXECUTION_SECONDS)
        buckets = [*((str(bound), float(count)) for bound, count in counts.items()), ("+Inf", float(len(values)))]
        metric.add_metric([snapshot.kafka_cluster], buckets, sum(values))
    return metric
