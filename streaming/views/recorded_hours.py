"""What a replay starts from, as the tables hold it: brokers and placement of the newest window, loads by the hour.

Needs no Kafka. The preferred leader is not in the tables: who leads now is taken for it.
"""

from collections import defaultdict

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.errors import NothingToPlanOn
from assignor_core.live import PartitionKey
from assignor_core.load import Floats
from assignor_core.model import RATE_KEYS
from assignor_core.replays.history import HistoryBroker, RecordedHistory, filled, known_sums
from assignor_core.resources import Resource
from streaming import tables
from streaming.contract import BROKER_LOAD, BROKER_LOAD_DAILY, PARTITION_LOAD, PARTITION_LOAD_HOURLY
from streaming.contract.records import SIZE_BYTES
from streaming.errors import UsageProblem
from streaming.settings import DAY_MS, HOUR_MS, Settings
from streaming.tables import TableReader
from streaming.views.broker_load import LoadPart, read_load
from streaming.views.intents import drained_brokers
from streaming.views.spans import of_span, of_window, times_ms

CELLS_MAX = 40_000_000
"""Largest number of hours times partitions that is read: 640 MB."""
LOAD_MIN_BYTES_PER_SEC = 1_000.0
"""A broker with a lower load is not followed within the hour: next to nothing varies by any factor."""
WANDERING = (Resource.BYTES_IN, Resource.BYTES_OUT)
TOPIC_SHIFT = 32
"""Keys as numbers: the topic's place above the partition's number."""


def read_history(reader: TableReader, settings: Settings, *, since_ms: int) -> RecordedHistory:
    """The newest placement, and the load of its partitions in each recorded hour since then.

    Raises NothingToPlanOn where nothing is recorded, UsageProblem where it is too much, TableUnavailable.
    """
    load = read_load(reader, settings)
    if load.window_start_ms is None:
        raise NothingToPlanOn(f"found no closed window in {settings.storage.tables}: is the pipeline running?")
    placement, sizes = _placement(reader, settings.kafka.cluster_name, load.window_start_ms)
    known = {row.broker for row in load.brokers} - set(load.silent_brokers)
    keys = tuple(sorted(key for key, replicas in placement.items() if known.issuperset(replicas)))
    if not keys:
        raise NothingToPlanOn(f"found no partition with a leader in {settings.storage.tables}")
    hours, rates = _hours(reader, settings.kafka.cluster_name, keys, since_ms)
    loads, unknown = filled(rates)
    return RecordedHistory(
        settings.kafka.cluster_name,
        _brokers(load, known),
        keys,
        tuple(placement[key] for key in keys),
        np.array([sizes[key] for key in keys], dtype=np.float64),
        hours,
        loads,
        unknown,
        _wander(reader, settings, hours, tuple(sorted(known))),
        drained=drained_brokers(reader, settings.kafka.cluster_name) & known,
        silent=load.silent_brokers,
    )


def daily_bytes_in(reader: TableReader, kafka_cluster: str) -> list[float]:
    """Bytes/s that clients wrote to all brokers, by day, oldest first, from the first recorded day to the last whole
    one; 0 where a day is missing. Empty where there is no such table.
    """
    if reader.version(BROKER_LOAD_DAILY.name) is None:
        return []
    columns = ("period_start", "bytes_in_per_sec")
    rows = reader.arrow(BROKER_LOAD_DAILY.name, columns=columns, where=tables.of_cluster(kafka_cluster))
    sums: dict[int, float] = defaultdict(float)
    for row in rows.group_by("period_start").aggregate([("bytes_in_per_sec", "sum")]).to_pylist():
        sums[tables.to_ms(row["period_start"]) // DAY_MS] += row["bytes_in_per_sec_sum"] or 0.0
    return [sums.get(day, 0.0) for day in range(min(sums), max(sums) + 1)] if sums else []


def _brokers(load: LoadPart, known: set[int]) -> tuple[HistoryBroker, ...]:
    rows = []
    for row in (row for row in load.brokers if row.broker in known):
        used, usable = row.log_dir_used_bytes, row.log_dir_usable_bytes
        total = None if used is None or usable is None else used + usable
        rows.append(HistoryBroker(row.broker, row.rack, total, None if total is None else usable))
    return tuple(rows)


def _placement(
    reader: TableReader, kafka_cluster: str, window_start_ms: int
) -> tuple[dict[PartitionKey, tuple[int, ...]], dict[PartitionKey, float]]:
    """Replicas of each partition that has a leader in the window, the leader first, and the size of its largest. Where
    a leader has moved, two brokers report it in one window: the later one leads.
    """
    where = of_window(kafka_cluster, window_start_ms)
    names = ("topic", "partition", "broker", "role", SIZE_BYTES.name)
    rows = reader.arrow(PARTITION_LOAD.name, columns=(*names, "last_event_time_ms"), where=where)
    in_order = rows.sort_by([("last_event_time_ms", "ascending"), ("broker", "ascending")])
    leaders: dict[PartitionKey, int] = {}
    followers: dict[PartitionKey, list[int]] = defaultdict(list)
    sizes: dict[PartitionKey, float] = defaultdict(float)
    for topic, partition, broker, role, size in zip(*(in_order[name].to_pylist() for name in names), strict=True):
        key = (topic, partition)
        sizes[key] = max(sizes[key], float(size or 0))
        if role == "leader":
            leaders[key] = broker
        else:
            followers[key].append(broker)
    placed = {key: (leader, *(b for b in sorted(followers[key]) if b != leader)) for key, leader in leaders.items()}
    return placed, sizes


def _hours(
    reader: TableReader, kafka_cluster: str, keys: tuple[PartitionKey, ...], since_ms: int
) -> tuple[tuple[int, ...], Floats]:
    """Start of each recorded hour since then, and H x P x rates; NaN where unknown. Read day by day."""
    newest = reader.newest_of_cluster(PARTITION_LOAD_HOURLY.name, "period_start", kafka_cluster)
    if newest is None or tables.to_ms(newest) < since_ms:
        since = f"{tables.utc(since_ms):%Y-%m-%d %H:%M}"
        raise NothingToPlanOn(
            f"found no hour in the table {PARTITION_LOAD_HOURLY.name} since {since} UTC: hours are written once they "
            "are over"
        )
    first_ms, last_ms = since_ms // HOUR_MS * HOUR_MS, tables.to_ms(newest)
    count = (last_ms - first_ms) // HOUR_MS + 1
    if count * len(keys) > CELLS_MAX:
        raise UsageProblem(
            f"--from: {count} hours of {len(keys)} partitions are too many, at most {CELLS_MAX // len(keys)} hours"
        )
    rates: Floats = np.full((count, len(keys), len(RATE_KEYS)), np.nan)
    codes = _Codes(keys)
    for day_ms in range(first_ms, last_ms + 1, DAY_MS):
        where = of_span(kafka_cluster, "period_start", day_ms, day_ms + DAY_MS)
        rows = reader.arrow(
            PARTITION_LOAD_HOURLY.name, columns=("period_start", "topic", "partition", *RATE_KEYS), where=where
        )
        at = codes.rows_of(rows)
        hour = (times_ms(rows["period_start"]) - first_ms) // HOUR_MS
        for index, rate in enumerate(RATE_KEYS):
            rates[hour[at >= 0], at[at >= 0], index] = rows[rate].to_numpy().astype(np.float64)[at >= 0]
    recorded = np.flatnonzero(~np.isnan(rates).all(axis=(1, 2)))
    if not len(recorded):
        raise NothingToPlanOn("the recorded hours hold none of the partitions that are there now")
    return tuple(first_ms + int(hour) * HOUR_MS for hour in recorded), rates[recorded]


def _wander(
    reader: TableReader, settings: Settings, hours: tuple[int, ...], brokers: tuple[int, ...]
) -> dict[Resource, Floats]:
    """Resource: H x windows of an hour x B, each window of `broker_load` over its broker's mean of the hour; 1 where
    it is unknown. Of what has expired nothing is known.
    """
    window_ms = settings.pipeline.window_ms
    shape = (len(hours), HOUR_MS // window_ms, len(brokers))
    where = of_span(settings.kafka.cluster_name, "window_start", hours[0], hours[-1] + HOUR_MS)
    figures = [figure for resource in WANDERING for figure in resource.figures]
    rows = reader.arrow(BROKER_LOAD.name, columns=("window_start", "broker", *figures), where=where)
    start_ms = times_ms(rows["window_start"])
    broker = rows["broker"].to_numpy()
    hour = np.searchsorted(np.array(hours), start_ms, side="right") - 1
    number = (start_ms - np.array(hours)[hour]) // window_ms if len(hour) else hour
    column = np.searchsorted(np.array(brokers), broker).clip(max=len(brokers) - 1)
    kept = (hour >= 0) & (number < shape[1]) & (np.array(brokers)[column] == broker)
    wander: dict[Resource, Floats] = {}
    for resource in WANDERING:
        loads: Floats = np.full(shape, np.nan)
        clients, *others = (rows[figure].to_numpy().astype(np.float64) for figure in resource.figures)
        sums = sum((_unless_others_know(values, start_ms) for values in others), start=clients)
        loads[hour[kept], number[kept], column[kept]] = sums[kept]
        sums, counts = known_sums(loads, axis=1)
        mean = (sums / np.maximum(counts, 1))[:, None, :]
        is_known = ~np.isnan(loads) & (mean > LOAD_MIN_BYTES_PER_SEC)
        wander[resource] = np.where(is_known, loads / np.maximum(mean, 1.0), 1.0)
    return wander


def _unless_others_know(rates: Floats, start_ms: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Floats:
    """Rates by row, 0 where no broker of the window knows its own; see `broker_windows.loads`, which decisions rest on.

    >>> _unless_others_know(np.array([np.nan, 2.0, np.nan]), np.array([10, 10, 20])).tolist()
    [nan, 2.0, 0.0]
    """
    known_in = np.unique(start_ms[~np.isnan(rates)])
    return np.where(np.isnan(rates) & ~np.isin(start_ms, known_in), 0.0, rates)


class _Codes:
    """Partitions as ascending numbers, so that millions of rows are looked up at once."""

    def __init__(self, keys: tuple[PartitionKey, ...]) -> None:
        self._topics = sorted({topic for topic, _ in keys})
        at = {topic: index for index, topic in enumerate(self._topics)}
        self._codes = np.array([(at[topic] << TOPIC_SHIFT) + number for topic, number in keys], dtype=np.int64)

    def rows_of(self, rows: pa.Table) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The row of each partition; -1 of those that are not there any more."""
        topics = pc.index_in(rows["topic"].cast(pa.string()), value_set=pa.array(self._topics, pa.string()))
        topic = pc.fill_null(topics, -1).to_numpy().astype(np.int64)
        codes = (topic << TOPIC_SHIFT) + rows["partition"].to_numpy().astype(np.int64)
        at = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        return np.where((topic >= 0) & (self._codes[at] == codes), at, -1)
