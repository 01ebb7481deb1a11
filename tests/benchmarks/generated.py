"""A cluster and tables of any size for benchmarks of control and serve: no broker, no Spark.

The cluster answers at once and counts what it was asked, with the CPU that its own answers took, so that this can be
left out. Rows go into the tables as Arrow columns, as the pipeline would have written them.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from assignor_core.disks import NO_UPLOADS, LogDirDescription, Uploads
from assignor_core.live import LiveCluster, LivePartition, PartitionKey, ReplicaKey
from assignor_core.marker import Marker
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import EVERY_REPLICA, FOLLOWER_REPLICAS, LEADER_REPLICAS, ThrottledReplicas
from streaming.contract import TABLES
from streaming.tables.definitions import row_schema
from streaming.tables.store import create_table
from tests.benchmarks.generated_lag import lag_columns, rates_of

PARTITIONS_PER_TOPIC = 50
REPLICATION_FACTOR = 3
RACKS = 5
"""Every fifth broker: three brokers in a row are in three racks."""
REPLICA_BYTES = 1_000_000_000
LOG_DIR_BYTES = 10**14
COPY_TICKS = 10
"""So many ticks a copy takes."""
MOVEMENTS_PER_WAVE = 500
WINDOW_MS = 60_000
HOT_EVERY = 25
"""On a tenth of the brokers each n-th partition takes as much as all others together."""
NOW_MS = 1_795_238_220_000
WINDOWS_MAX = 60
"""No window is older, counted from NOW_MS."""
CLUSTER = "generated"
EVENT_WINDOWS = 360
REBALANCES_EVERY = 200
"""Of so many groups one rebalances in each window, in turns."""

COLUMNS = np.ndarray | list | pa.Array

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster is; each group reads one topic."""

    brokers: int
    partitions: int
    groups: int

    @property
    def hot_brokers(self) -> int:
        """So many, the first ones, take about twice as much as the others."""
        return max(1, self.brokers // 10)

    @property
    def topics(self) -> list[str]:
        """Names of the topics."""
        return [f"topic-{number:05d}" for number in range(self.partitions // PARTITIONS_PER_TOPIC)]


def _asked(
    method: Callable[Concatenate["GeneratedCluster", Parameters], Answer],
) -> Callable[Concatenate["GeneratedCluster", Parameters], Answer]:
    """Count a request and its own CPU."""

    def counted(self: "GeneratedCluster", /, *arguments: Parameters.args, **named: Parameters.kwargs) -> Answer:
        began_s = time.process_time()
        try:
            return method(self, *arguments, **named)
        finally:
            self.requests[method.__name__] += 1
            self.own_cpu_s += time.process_time() - began_s

    return counted


class GeneratedCluster:
    """The ports of control over partitions in memory; time passes when `advance` is called."""

    def __init__(self, size: Size) -> None:
        racks = [f"rack-{broker % RACKS}" for broker in range(size.brokers)]
        self.racks: dict[int, str | None] = dict(enumerate(racks))
        self.partitions: dict[PartitionKey, LivePartition] = {}
        self.by_topic: dict[str, list[PartitionKey]] = {}
        for number, topic in enumerate(size.topics):
            self.by_topic[topic] = [(topic, partition) for partition in range(PARTITIONS_PER_TOPIC)]
            for topic_partition in self.by_topic[topic]:
                first = number + topic_partition[1]
                replicas = tuple((first + step) % size.brokers for step in range(REPLICATION_FACTOR))
                self.partitions[topic_partition] = LivePartition(replicas, replicas[0], replicas)
        self.ids = {topic: f"id-of-{topic}" for topic in size.topics}
        self.moving: dict[PartitionKey, tuple[int, tuple[int, ...]]] = {}
        """By partition: ticks left, and the replicas before."""
        self.requests: Counter[str] = Counter()
        self.partitions_described = 0
        self.brokers_asked_for_log_dirs = 0
        self.replicas_shown = 0
        self.own_cpu_s = 0.0

    def advance(self) -> None:
        """One tick: copies go on, and end."""
        for key, (left, before) in list(self.moving.items()):
            if left > 1:
                self.moving[key] = left - 1, before
                continue
            del self.moving[key]
            row = self.partitions[key]
            target = row.target_replicas
            self.partitions[key] = LivePartition(target, row.leader if row.leader in target else target[0], target)

    @_asked
    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        """These topics, or everything."""
        asked = self.partitions if topics is None else [key for topic in topics for key in self.by_topic[topic]]
        self.partitions_described += len(asked)
        listed = {key: moving for key in self.moving if (moving := self.partitions[key].reassignment)}
        return LiveCluster("generated", self.racks, {key: self.partitions[key] for key in asked}, self.ids, listed)

    @_asked
    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """One log dir a broker."""
        held: dict[int, dict[PartitionKey, int]] = {b: {} for b in self.racks if brokers is None or b in brokers}
        for key in self.partitions if partitions is None else partitions:
            for broker in self.partitions[key].replicas:
                if broker in held:
                    held[broker][key] = self._held(key, broker)
        self.brokers_asked_for_log_dirs += len(held)
        self.replicas_shown += sum(map(len, held.values()))
        return {b: (LogDirDescription("/d", LOG_DIR_BYTES, LOG_DIR_BYTES // 2, sizes),) for b, sizes in held.items()}

    @_asked
    def uploads(self, _leaders: Mapping[PartitionKey, int]) -> Uploads:
        """There is no remote storage."""
        return NO_UPLOADS

    @_asked
    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        """Each takes COPY_TICKS; nothing is refused, nothing cancelled."""
        for key, target in targets.items():
            row = self.partitions[key]
            assert target is not None
            adding, removing = (tuple(b for b in one if b not in two) for one, two in
                                ((target, row.replicas), (row.replicas, target)))  # fmt: skip
            self.moving[key] = (COPY_TICKS if adding else 1), row.replicas
            self.partitions[key] = replace(
                row, replicas=(*target, *removing), adding_replicas=adding, removing_replicas=removing
            )

    @_asked
    def elect_preferred(self, partitions: Iterable[PartitionKey]) -> None:
        """The first replica leads."""
        for key in partitions:
            self.partitions[key] = replace(self.partitions[key], leader=self.partitions[key].replicas[0])

    @_asked
    def throttle_rates(self, _brokers: Collection[int] | None = None) -> dict[int, dict[str, int]]:
        """Nobody else throttles anything."""
        return {}

    @_asked
    def throttled_replicas(self, topics: Iterable[str]) -> dict[tuple[str, str], str]:
        """Every replica of every topic is named: there is nothing to add."""
        return {(topic, setting): EVERY_REPLICA for topic in topics for setting in (LEADER_REPLICAS, FOLLOWER_REPLICAS)}

    @_asked
    def set_throttled_replicas(
        self, _leaders: Mapping[str, ThrottledReplicas], _followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        """Copies take COPY_TICKS all the same."""

    @_asked
    def set_throttle_rates(self, _rates_bytes_per_sec: Mapping[int, int]) -> None:
        """The same."""

    @_asked
    def clear_throttle(
        self,
        _brokers: Collection[int],
        _leaders: Mapping[str, ThrottledReplicas],
        _followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,  # noqa: ARG002 - no rate is set
    ) -> list[int]:
        """No broker is down."""
        return []

    @_asked
    def markers(self) -> tuple[Marker, ...]:
        """Of nobody."""
        return ()

    @_asked
    def write_marker(self, marker: Marker, replaced: Collection[Marker] = ()) -> None:
        """Nobody reads it."""

    def move_to_log_dirs(self, targets: Mapping[ReplicaKey, str]) -> None:
        """Each broker has one log dir."""
        raise NotImplementedError

    @_asked
    def log_dir_rates(self, brokers: Collection[int] | None = None) -> dict[int, int]:
        """None is set."""
        return {broker: 0 for broker in brokers or () if broker not in self.racks}

    def set_log_dir_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        """Nothing moves within a broker."""
        raise NotImplementedError

    @_asked
    def clear_log_dir_rates(
        self,
        brokers: Collection[int],
        *,
        untagged: bool = False,  # noqa: ARG002 - no rate is set
    ) -> list[int]:
        """None is set."""
        return sorted(set(brokers) - self.racks.keys())

    def cordon_log_dirs(self, broker_id: int, paths: Collection[str], *, cordoned: bool) -> None:
        """Each broker has one log dir."""
        raise NotImplementedError

    def _held(self, key: PartitionKey, broker: int) -> int:
        return REPLICA_BYTES // 2 if broker in self.partitions[key].adding_replicas else REPLICA_BYTES


def plan_of(cluster: GeneratedCluster, movements: int) -> Plan:
    """One replica of every n-th partition goes to the broker that is nearest and has none of it.

    Where each broker has a replica of everything, the next replica leads.
    """
    keys = list(cluster.partitions)
    step = max(1, len(keys) // movements)
    made = []
    for number, key in enumerate(keys[::step][:movements]):
        old = cluster.partitions[key].replicas
        if len(old) == len(cluster.racks):
            new = (*old[1:], old[0])
        else:
            new = (*old[:-1], (old[-1] + 1) % len(cluster.racks))
            new = new if number % 3 else (new[-1], *new[:-1])  # every third changes its leader, too
        made.append(Movement(*key, old, new, float(REPLICA_BYTES), wave=number // MOVEMENTS_PER_WAVE))
    skew: dict[str, Any] = {
        "bytes_in": {"max_over_mean": 2.0}, "bytes_out": {}, "disk": {}, "leaders": {}, "replicas": {},
    }  # fmt: skip
    return Plan(CLUSTER, tuple(made), skew, skew)


def write_windows(root: str, size: Size, cluster: GeneratedCluster, *, load_windows: int, lag_windows: int) -> None:
    """Closed windows up to NOW_MS: of load so many, of lag so many."""
    for index in range(max(load_windows, lag_windows), 0, -1):
        start_ms = NOW_MS - index * WINDOW_MS
        append_rows(root, "broker_load", _broker_load(size, start_ms))
        if index <= load_windows:
            append_rows(root, "partition_load", _partition_load(size, cluster, start_ms))
        if index <= lag_windows:
            append_rows(root, "group_lag", _group_lag(size, start_ms))
    append_rows(root, "group_event", _group_events(size))


def open_window(size: Size, cluster: GeneratedCluster, start_ms: int, samples: int) -> dict[str, pa.Table]:
    """Rows by table of a window that still gets samples, as one batch of the pipeline has them."""
    columns = {
        "broker_load": _broker_load(size, start_ms),
        "partition_load": _partition_load(size, cluster, start_ms),
        "group_lag": _group_lag(size, start_ms),
    }
    is_open = {"sample_count": samples, "is_final": False}
    return {name: _rows(name, {**made, **is_open}) for name, made in columns.items()}


def append_rows(root: str, name: str, columns: Mapping[str, Any]) -> None:
    """One commit."""
    write_deltalake(create_table(root, name), _rows(name, columns), mode="append")


def _rows(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Columns that are not given are null, one value stands for all rows."""
    schema = row_schema(TABLES[name])
    rows = max(len(values) for values in columns.values() if isinstance(values, COLUMNS))
    arrays = []
    for column in schema:
        values = columns.get(column.name)
        if not isinstance(values, COLUMNS):
            arrays.append(pa.repeat(pa.scalar(values, column.type), rows))
        else:
            array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
            arrays.append(array.cast(column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def window_columns(start_ms: int) -> dict[str, Any]:
    return {
        "kafka_cluster": CLUSTER, "window_start": start_ms * 1000, "window_end": (start_ms + WINDOW_MS) * 1000,
        "covered_ms": WINDOW_MS, "sample_count": 6, "first_event_time_ms": start_ms,
        "last_event_time_ms": start_ms + 50_000, "is_final": True, "updated_at": start_ms * 1000, "batch_id": 0,
        "query_id": "q",
    }  # fmt: skip


def _broker_load(size: Size, start_ms: int) -> dict[str, Any]:
    """The trigger sees skew."""
    brokers = np.arange(size.brokers)
    hot = np.where(brokers < size.hot_brokers, 2.0, 1.0)
    led = size.partitions // size.brokers
    return {
        **window_columns(start_ms), "broker": brokers,
        "rack": [f"rack-{broker % RACKS}" for broker in range(size.brokers)],
        "bytes_in_per_sec": hot * led * 1e4, "bytes_out_per_sec": hot * led * 2e4,
        "replication_bytes_in_per_sec": 2 * led * 1e4 * np.ones(size.brokers),
        "log_dir_used_bytes": np.full(size.brokers, 10**12), "log_dir_usable_bytes": np.full(size.brokers, 10**13),
    }  # fmt: skip


def _partition_load(size: Size, cluster: GeneratedCluster, start_ms: int) -> dict[str, Any]:
    rows = [(broker, *key, broker == row.leader) for key, row in cluster.partitions.items() for broker in row.replicas]
    brokers, topics, partitions, leads = zip(*rows, strict=True)
    broker, leader = np.array(brokers), np.array(leads)
    hot = (broker < size.hot_brokers) & (np.array(partitions) % HOT_EVERY == 0)
    rate = np.where(hot, (HOT_EVERY + 1) * 1e4, 1e4)
    factors = rates_of(len(broker), (start_ms - NOW_MS) // WINDOW_MS + WINDOWS_MAX)
    return {
        **window_columns(start_ms), "broker": broker, "topic": list(topics), "partition": np.array(partitions),
        "role": np.where(leader, "leader", "follower").tolist(), "bytes_in_per_sec": factors["bytes_in"] * rate,
        "bytes_out_per_sec": np.where(leader, factors["bytes_out"] * 2 * rate, np.nan),
        "messages_in_per_sec": factors["messages_in"] * rate / 1_000,
        "size_bytes": np.full(len(broker), REPLICA_BYTES),
    }  # fmt: skip


def _group_lag(size: Size, start_ms: int) -> dict[str, Any]:
    window = (start_ms - NOW_MS) // WINDOW_MS + WINDOWS_MAX
    return {
        **window_columns(start_ms), **lag_columns(size.groups, size.topics, window, start_ms), "generation_id": 1,
    }  # fmt: skip


def _group_events(size: Size) -> dict[str, Any]:
    """Members that came back, six hours of them."""
    each = max(1, size.groups // REBALANCES_EVERY)
    window = np.repeat(np.arange(EVENT_WINDOWS), each)
    start_ms = NOW_MS - (EVENT_WINDOWS - window) * WINDOW_MS
    group = np.arange(len(window)) % size.groups
    return {
        "kafka_cluster": CLUSTER, "window_start": start_ms * 1000, "group_id": [f"group-{one:05d}" for one in group],
        "after_ms": start_ms - 10_000, "until_ms": start_ms + 50_000, "cause": "members restarted",
        "group_state": "Stable", "generation_id": window, "rebalances": 1, "members": 5,
        "members_in_json": [f'["consumer-{one}-0-{number}"]' for number, one in enumerate(group)],
        "members_out_json": [f'["consumer-{one}-0-{number}-"]' for number, one in enumerate(group)],
        "restarts": 1, "partitions_moved": 0, "partitions_unowned": 0, "partitions_owned": 50,
        "names_in_json": [f'["consumer-{one}-0"]' for one in group],
        "names_out_json": [f'["consumer-{one}-0"]' for one in group],
    }  # fmt: skip


def write_next_window(root: str, size: Size, number: int = 0) -> None:
    """A window after those, of all but partitions' load; 0 is the next one."""
    start_ms = NOW_MS + number * WINDOW_MS
    append_rows(root, "broker_load", _broker_load(size, start_ms))
    append_rows(root, "group_lag", _group_lag(size, start_ms))
