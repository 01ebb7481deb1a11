"""The load part of a snapshot: brokers, skew and hot partitions of the newest closed window, and the skew before it.

`broker_windows` knows which windows are closed and what a broker's load is, `assignor_core.skew` what skew is: so page,
metrics and trigger show one figure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from assignor_core.live_plans.measured_loads import load_disagreement
from assignor_core.model import Capacity
from assignor_core.resources import MEASURED, Resource
from assignor_core.skew import Skew, skew_of
from streaming import tables
from streaming.contract.rates import RATE_NAMES
from streaming.contract.records import (
    ADDRESS,
    GROUP_PARTITIONS_LEFT_OUT,
    GROUPS_LEFT_OUT,
    LOG_DIR_USABLE_BYTES,
    LOG_DIR_USED_BYTES,
    REQUESTS_REFUSED,
)
from streaming.settings import PlannerSettings, Settings
from streaming.tables import TableReader, at_least, equal, of_cluster, one_of
from streaming.views.broker_windows import COLUMNS, Row, capacities, capacities_of, closed, loads, reads_unknown
from streaming.views.json_values import LEFT_OUT_OF_STATUS, SHOWN_AMONG_ITS_FIELDS
from streaming.views.partition_loads import HotPartition, PartitionLoadReader, PartitionLoads, TopicLoad
from streaming.views.spans import of_window

HISTORY_WINDOWS = 60
FIRST_SAMPLE_INTERVALS = 1.5
NO_BOUNDS = (None, None)
_STATES = (
    LOG_DIR_USED_BYTES.name,
    LOG_DIR_USABLE_BYTES.name,
    GROUPS_LEFT_OUT.name,
    REQUESTS_REFUSED.name,
    GROUP_PARTITIONS_LEFT_OUT.name,
)
"""Columns that `BrokerLoad` has by the same names."""
_COLUMNS = tuple(dict.fromkeys((*COLUMNS, "rack", *RATE_NAMES, *_STATES, ADDRESS.name, "covered_ms", "sample_count")))


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """One broker; rates are None where they are unknown in the newest closed window, or where it sent no sample."""

    broker: int
    rack: str | None
    address: str | None
    """Host and port, as last known."""
    rates: Mapping[str, float | None] = field(metadata=SHOWN_AMONG_ITS_FIELDS)
    """Rates by the names of `contract.rates`."""
    log_dir_used_bytes: int | None
    log_dir_usable_bytes: int | None
    remote_log_bytes: int | None
    """Estimate of what remote storage alone holds of the logs that it leads; None where none is known to."""
    groups_left_out: int | None
    """Consumer groups that it coordinates and that the collector did not sample."""
    group_partitions_left_out: int | None
    """Partitions that the groups it coordinates name and that the collector did not report."""
    requests_refused: int | None
    """Requests of the collector that it refused for want of a right, in the newest sample."""
    leaders: int | None
    replicas: int | None
    last_sample_ms: int
    load_disagreement: float | None
    """Bytes in that it reports less those of the partitions that it leads, in mean loads; None where unknown or low."""
    ceilings: Mapping[str, float] = field(default_factory=dict)
    """Load above which no plan loads the broker, by resource, bytes/s or bytes; where its capacity or its disks are
    known.
    """
    bytes_out_at_least_per_sec: float | None = None
    """What consumers read from it at least, where nobody knows all of it; None where all is known."""
    bytes_out_at_most_per_sec: float | None = None
    """What consumers read from it at most, if no more than `trigger.readers_without_commits_max` commit nothing."""


@dataclass(frozen=True, slots=True)
class WindowSkew:
    """max/mean of bytes_in in one closed window."""

    window_end_ms: int
    max_over_mean: float


@dataclass(frozen=True, slots=True)
class LoadPart:
    """The newest closed window; everything is empty before there is one."""

    window_start_ms: int | None = None
    window_end_ms: int | None = None
    brokers: tuple[BrokerLoad, ...] = ()
    brokers_reporting: int | None = None
    skew: Mapping[str, Skew] = field(default_factory=dict)
    loads: Mapping[Resource, Mapping[int, float]] = field(default_factory=dict, metadata=LEFT_OUT_OF_STATUS)
    """Load by broker that clients and replication add up to, where it is known: `skew` is of these loads."""
    hot_partitions: tuple[HotPartition, ...] = ()
    history: tuple[WindowSkew, ...] = ()
    leader_rates: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict, metadata=LEFT_OUT_OF_STATUS)
    """Bytes written per second to each partition of a topic, in partition order; None where it is unknown."""
    topics: Mapping[str, TopicLoad] = field(default_factory=dict, metadata=LEFT_OUT_OF_STATUS)
    unread: Mapping[str, int] = field(default_factory=dict, metadata=LEFT_OUT_OF_STATUS)
    """Number of led partitions by topic of which nobody knows what consumers read; topics without one are left out."""

    sample_interval_ms: float | None = field(default=None, metadata=LEFT_OUT_OF_STATUS)
    """Time that one sample of the window covers, on average, of the broker where that is longest."""
    brokers_reported_twice: tuple[int, ...] = field(default=(), metadata=LEFT_OUT_OF_STATUS)
    """Brokers whose samples cover more than the window: more than one collector reports them."""

    @property
    def silent_brokers(self) -> tuple[int, ...]:
        """Brokers that were seen lately and have no sample in the window."""
        start_ms = self.window_start_ms
        if start_ms is None:
            return ()
        return tuple(row.broker for row in self.brokers if row.last_sample_ms < start_ms)

    @property
    def brokers_log_dirs_unknown(self) -> int | None:
        """Brokers with samples in the window of which nobody knows what is free on their disks."""
        start_ms = self.window_start_ms
        if start_ms is None:
            return None
        return sum(row.last_sample_ms >= start_ms and row.log_dir_usable_bytes is None for row in self.brokers)


class LoadReader:
    """Reads the load part again and again. Not for two threads."""

    def __init__(self, reader: TableReader, settings: Settings) -> None:
        self._reader = reader
        self._settings = settings
        self._partitions = PartitionLoadReader(
            reader,
            settings.kafka.cluster_name,
            hottest_max=settings.serve.hot_partitions,
            readers_max=settings.trigger.readers_without_commits_max,
        )

    def read(self) -> LoadPart:
        """The load part; at most `HISTORY_WINDOWS` windows before the newest are read, however old that one is. Raises
        TableUnavailable."""
        settings = self._settings
        own = of_cluster(settings.kafka.cluster_name)
        newest = self._reader.newest_of_cluster("broker_load", "window_start", settings.kafka.cluster_name)
        if newest is None:
            return LoadPart()
        since = newest - timedelta(milliseconds=HISTORY_WINDOWS * settings.pipeline.window_ms)
        rows = self._reader.rows("broker_load", columns=_COLUMNS, where=own & at_least("window_start", since))
        windows = closed(rows, watermark_ms=settings.pipeline.watermark_ms)
        if not windows:
            return LoadPart()
        start_ms = max(windows)
        return _load_part(rows, windows, start_ms, self._partitions.read(start_ms), settings.planner)


def read_load(reader: TableReader, settings: Settings) -> LoadPart:
    """The load part, for one sample. Raises TableUnavailable."""
    return LoadReader(reader, settings).read()


def _load_part(
    rows: Sequence[Row],
    windows: Mapping[int, Sequence[Row]],
    start_ms: int,
    partitions: PartitionLoads,
    planner: PlannerSettings,
) -> LoadPart:
    window, counts = windows[start_ms], partitions.counts
    by_resource = {resource: loads(window, resource) for resource in MEASURED}
    by_resource[Resource.LEADERS] = {broker: float(leaders) for broker, (leaders, _) in counts.items()}
    by_resource[Resource.REPLICAS] = {broker: float(replicas) for broker, (_, replicas) in counts.items()}
    return LoadPart(
        window_start_ms=start_ms,
        window_end_ms=tables.to_ms(window[0]["window_end"]),
        brokers=_brokers(
            rows,
            window,
            _disagreement(window, partitions.bytes_in_per_sec),
            partitions,
            planner,
        ),
        brokers_reporting=len(by_resource[Resource.BYTES_IN]),
        skew={resource: _skew(known, resource, planner) for resource, known in by_resource.items() if known},
        loads=by_resource,
        hot_partitions=partitions.hottest,
        history=tuple(_history(windows.values(), planner)),
        leader_rates=partitions.leader_rates,
        topics=partitions.topics,
        unread=partitions.unread,
        sample_interval_ms=max((_sample_interval_ms(row) for row in window if row["covered_ms"]), default=None),
        brokers_reported_twice=tuple(row["broker"] for row in window if _is_reported_twice(row)),
    )


def read_leaders(
    reader: TableReader, kafka_cluster: str, load: LoadPart, topics: Sequence[str]
) -> dict[tuple[str, int], int]:
    """Who led each (topic, partition) of these topics in the window of `load`, of two the later; none without one."""
    if load.window_start_ms is None:
        return {}
    where = of_window(kafka_cluster, load.window_start_ms) & equal("role", "leader") & one_of("topic", topics)
    rows = reader.rows("partition_load", columns=("broker", "topic", "partition", "last_event_time_ms"), where=where)
    rows.sort(key=lambda row: (row["last_event_time_ms"], row["broker"]))
    return {(row["topic"], row["partition"]): row["broker"] for row in rows}


def _is_reported_twice(row: Row) -> bool:
    """The first sample of a window covers time before it, too: at most its own interval, unless it came late."""
    window_ms = tables.to_ms(row["window_end"]) - tables.to_ms(row["window_start"])
    return bool(row["covered_ms"] > window_ms + FIRST_SAMPLE_INTERVALS * _sample_interval_ms(row))


def _sample_interval_ms(row: Row) -> float:
    """Time that one sample of the row covers, on average."""
    return float(row["covered_ms"] / row["sample_count"])


def _brokers(
    rows: Sequence[Row],
    window: Sequence[Row],
    disagreement: Mapping[int, float],
    partitions: PartitionLoads,
    planner: PlannerSettings,
) -> tuple[BrokerLoad, ...]:
    """Every broker seen lately; one that is silent in the newest window has no figures but its last sample's time."""
    last_sample: dict[int, int] = defaultdict(int)
    rack: dict[int, str | None] = {}
    address: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: int(row["last_event_time_ms"])):
        last_sample[row["broker"]] = row["last_event_time_ms"]
        rack[row["broker"]] = row["rack"]
        if row[ADDRESS.name] is not None:
            address[row["broker"]] = row[ADDRESS.name]
    current = {row["broker"]: row for row in window}
    silent = dict.fromkeys((*RATE_NAMES, *_STATES))
    known, counts = capacities_of(planner), partitions.counts
    bounds = {broker: partitions.bytes_out_bounds.get(broker, NO_BOUNDS) for broker in reads_unknown(window)}
    return tuple(
        BrokerLoad(
            broker=broker,
            rack=rack[broker],
            address=address.get(broker),
            rates={name: current.get(broker, silent)[name] for name in RATE_NAMES},
            **{name: current.get(broker, silent)[name] for name in _STATES},
            remote_log_bytes=partitions.remote_bytes.get(broker),
            leaders=counts[broker][0] if broker in counts else None,
            replicas=counts[broker][1] if broker in counts else None,
            last_sample_ms=last_sample[broker],
            load_disagreement=disagreement.get(broker),
            ceilings=_ceilings(known.get(broker, Capacity()), current.get(broker, silent), planner),
            bytes_out_at_least_per_sec=bounds.get(broker, NO_BOUNDS)[0],
            bytes_out_at_most_per_sec=bounds.get(broker, NO_BOUNDS)[1],
        )
        for broker in sorted(last_sample)
    )


def _ceilings(capacity: Capacity, row: Row, planner: PlannerSettings) -> dict[str, float]:
    """Returns the highest allowed load of a broker by resource. If no capacity of its disks is set, that of the volumes
    of its log dirs holds.
    """
    limits = {
        Resource.BYTES_IN: capacity.bytes_in_per_sec,
        Resource.BYTES_OUT: capacity.bytes_out_per_sec,
        Resource.DISK: capacity.disk_bytes,
    }
    ceilings = {str(name): limit * (1 - planner.headroom) for name, limit in limits.items() if limit is not None}
    used, usable = row[LOG_DIR_USED_BYTES.name], row[LOG_DIR_USABLE_BYTES.name]
    if capacity.disk_bytes is None and used is not None and usable is not None:
        ceilings[str(Resource.DISK)] = (used + usable) * (1 - planner.disk_reserve)
    return ceilings


def _disagreement(window: Sequence[Row], of_partitions: Mapping[int, float]) -> dict[int, float]:
    """What control compares before it plans, of one window; see `assignor_core.live_plans.measured_loads`."""
    reported = {row["broker"]: row["bytes_in_per_sec"] for row in window if row["bytes_in_per_sec"] is not None}
    return load_disagreement(reported, of_partitions)


def _history(windows: Iterable[Sequence[Row]], planner: PlannerSettings) -> Iterator[WindowSkew]:
    for window in windows:
        known = loads(window, Resource.BYTES_IN)
        if known:
            skew = _skew(known, Resource.BYTES_IN, planner)
            yield WindowSkew(tables.to_ms(window[0]["window_end"]), skew.max_over_mean)


def _skew(known: Mapping[int, float], resource: Resource, planner: PlannerSettings) -> Skew:
    return skew_of(known, capacities(planner, resource, known))
