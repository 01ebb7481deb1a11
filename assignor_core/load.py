"""Placement x load -> load of each broker, as arrays.

Owns the load model: a leader takes what clients write, sends it to each follower and serves consumers; a follower takes
and stores what the leader does, and serves the consumers of its rack where brokers let it. `Columns` names what
each column of a load matrix holds. The module knows no balance: what is even is `skew`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from assignor_core.broker_sets import SetArrays
from assignor_core.follower_reads import RackReads
from assignor_core.model import CAPACITY_KEYS, LOAD_KEYS, BrokerState, ClusterState, Partition
from assignor_core.resources import ONE, PLANNED, Resource

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

NO_BROKER = -1

NEGLIGIBLE = 1e-30
"""A total below is no load: rates of meters that decay never reach 0, and dividing by the smallest floats overflows."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The C columns of a load matrix over `windows` windows, so that nobody counts columns.

    A measured load may change over time and has one column per window. A count does not, and has a single column that
    stands for every window. The columns of a resource lie side by side, in the order of `PLANNED` and then of windows.

    >>> columns = Columns(windows=2)
    >>> columns.of(Resource.DISK).tolist(), columns.of(Resource.LEADERS).tolist()
    ([4, 5], [8])
    >>> columns.of(Resource.DISK, Resource.LEADERS).tolist()
    [4, 5, 8]
    >>> columns.resources[5].words
    'disk'
    """

    windows: int
    resources: tuple[Resource, ...] = field(init=False)
    """Resource of each column."""
    counts: NDArray[np.bool_] = field(init=False)
    """C: the column counts leaders or replicas and measures no load."""

    def __post_init__(self) -> None:
        resources = tuple(r for r in PLANNED for _ in range(1 if r.is_count else self.windows))
        object.__setattr__(self, "resources", resources)
        object.__setattr__(self, "counts", np.array([resource.is_count for resource in resources]))

    def __len__(self) -> int:
        return len(self.resources)

    def of(self, *resources: Resource) -> NDArray[np.int64]:
        """Indices of the columns of these resources, ascending."""
        return np.flatnonzero([resource in resources for resource in self.resources])


@dataclass(frozen=True, slots=True, eq=False)
class ClusterArrays:
    """A ClusterState in columns: B brokers by id, P partitions by (topic, partition), R = largest RF, C columns."""

    broker_ids: tuple[int, ...]
    racks: Ints
    """Rack index of each broker; a broker without a rack has one of its own."""
    rack_names: tuple[str, ...]
    """By rack index."""
    alive: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    capacity: Floats
    """B x 3 in the order of CAPACITY_KEYS; NaN where not given."""
    disk_room_bytes: Floats
    """B: most bytes that may be copied to each broker; infinite where nothing bounds that."""
    partitions: tuple[Partition, ...]
    in_sync: Ints
    """P: replicas in sync; where the model does not know, those on brokers that are not dead."""
    replicas: Ints
    """P x R broker indices, preferred leader first, NO_BROKER behind the last."""
    leader_load: Floats
    """P x C load on the broker that leads, without `rack_reads`."""
    follower_load: Floats
    """P x C load on each broker that follows."""
    columns: Columns
    """What each of the C columns holds."""
    rack_reads: RackReads | None = None
    """Part of bytes out that stays in a rack, whoever leads; None where followers serve nobody."""
    sets: SetArrays | None = None
    """The brokers that may hold each partition; None if every broker may hold every partition."""

    def capacity_for(self, resource: Resource) -> Floats:
        """B capacities that `resource` is measured against; NaN where not given."""
        capacity: Floats = self.capacity[:, CAPACITY_KEYS.index(resource.capacity_key)]
        return capacity


def cluster_arrays(cluster: ClusterState) -> ClusterArrays:
    """The columns of `cluster`, in an order that does not depend on the order in the model."""
    brokers = sorted(cluster.brokers, key=lambda broker: broker.broker_id)
    partitions = tuple(sorted(cluster.partitions, key=lambda partition: (partition.topic, partition.partition)))
    rack_names = tuple(f"broker {b.broker_id}" if b.rack is None else f"rack {b.rack}" for b in brokers)
    names = tuple(dict.fromkeys(rack_names))
    rack_index = {name: index for index, name in enumerate(names)}
    capacity = [[getattr(broker.capacity, key) for key in CAPACITY_KEYS] for broker in brokers]
    broker_ids = tuple(broker.broker_id for broker in brokers)
    replicas, replication = _replicas(partitions, broker_ids)
    leader_load, follower_load = _loads(partitions, replication, cluster.windows)
    columns = Columns(cluster.windows)
    rack_reads = _rack_reads(partitions, rack_index, cluster.windows)
    if rack_reads is not None:
        kept = np.zeros((len(partitions), cluster.windows))
        np.add.at(kept, rack_reads.partitions[rack_reads.rows], rack_reads.rates)
        out = columns.of(Resource.BYTES_OUT)
        leader_load[:, out] = np.maximum(leader_load[:, out] - kept, 0.0)
    dead = np.array([broker.state is BrokerState.DEAD for broker in brokers])
    return ClusterArrays(
        broker_ids=broker_ids,
        racks=np.array([rack_index[name] for name in rack_names], dtype=np.int32),
        rack_names=names,
        alive=np.array([broker.state is BrokerState.ALIVE for broker in brokers]),
        dead=dead,
        capacity=np.array(capacity, dtype=np.float64),
        disk_room_bytes=np.array([np.inf if b.disk_room_bytes is None else b.disk_room_bytes for b in brokers]),
        partitions=partitions,
        in_sync=_in_sync(partitions, replicas, dead),
        replicas=replicas,
        leader_load=leader_load,
        follower_load=follower_load,
        columns=columns,
        rack_reads=rack_reads,
    )


def broker_loads(arrays: ClusterArrays, replicas: Ints | None = None) -> Floats:
    """B x C load of each broker under `replicas` (the arrays' own where None).

    >>> from assignor_core.model import Broker, PartitionLoad
    >>> partition = Partition("t", 0, (1, 2), PartitionLoad(10.0, 20.0, 5.0))
    >>> arrays = cluster_arrays(ClusterState("c", 0, (Broker(1), Broker(2)), (partition,)))
    >>> broker_loads(arrays).tolist()  # bytes in, bytes out (20 read + 10 to the follower), disk, leader bytes in, ...
    [[10.0, 30.0, 5.0, 10.0, 1.0, 1.0], [10.0, 0.0, 5.0, 0.0, 0.0, 1.0]]
    """
    placed = arrays.replicas if replicas is None else replicas
    loads = np.zeros((len(arrays.broker_ids), arrays.leader_load.shape[1]))
    for slot in range(placed.shape[1]):
        held = placed[:, slot] != NO_BROKER
        brokers = placed[held, slot]
        source = arrays.leader_load if slot == 0 else arrays.follower_load
        for column in range(loads.shape[1]):
            loads[:, column] += np.bincount(brokers, weights=source[held, column], minlength=len(loads))
    if arrays.rack_reads is not None:
        rows = placed[arrays.rack_reads.partitions]
        add_reads(loads, arrays, rows, arrays.rack_reads.by_slot(rows, arrays.racks))
    return loads


def add_reads(loads: Floats, arrays: ClusterArrays, replicas: Ints, served: Floats) -> None:
    """Adds to `loads` (B x C) what `replicas` (M x R) serve to the consumers of their racks (`served`, M x R x W)."""
    for slot in range(replicas.shape[1]):
        held = replicas[:, slot] != NO_BROKER
        for window, column in enumerate(arrays.columns.of(Resource.BYTES_OUT)):
            rates = served[held, slot, window]
            loads[:, column] += np.bincount(replicas[held, slot], weights=rates, minlength=len(loads))


def has_source(arrays: ClusterArrays) -> NDArray[np.bool_]:
    """P; a partition without a source has no leader, so Kafka could neither copy it nor elect another leader."""
    alive = (arrays.replicas != NO_BROKER) & ~arrays.dead[arrays.replicas]
    found: NDArray[np.bool_] = alive.any(axis=1) & (arrays.in_sync > 0)
    return found


def shares(arrays: ClusterArrays) -> Floats:
    """B x C part of the whole that each broker should carry: by capacity where all alive brokers have one, else equal.

    Brokers that must end empty have 0; a column sums to 1 while any broker is alive.
    """
    columns = [_share(arrays, resource) for resource in arrays.columns.resources]
    return np.stack(columns, axis=1)


def _share(arrays: ClusterArrays, resource: Resource) -> Floats:
    given = arrays.capacity_for(resource)
    known = bool(np.isfinite(given[arrays.alive]).all())
    weights = np.where(arrays.alive, given if known else 1.0, 0.0)
    total = weights.sum()
    share: Floats = weights / total if total > 0 else weights
    return share


def _replicas(partitions: tuple[Partition, ...], broker_ids: tuple[int, ...]) -> tuple[Ints, NDArray[np.int64]]:
    counts = np.fromiter((len(partition.replicas) for partition in partitions), dtype=np.int64, count=len(partitions))
    width = int(counts.max(initial=1))
    ids = np.fromiter(chain.from_iterable(partition.replicas for partition in partitions), dtype=np.int64)
    replicas = np.full((len(partitions), width), NO_BROKER, dtype=np.int32)
    replicas[np.arange(width) < counts[:, None]] = np.searchsorted(np.array(broker_ids), ids)
    return replicas, counts


def _in_sync(partitions: tuple[Partition, ...], replicas: Ints, dead: NDArray[np.bool_]) -> Ints:
    given = (NO_BROKER if partition.in_sync is None else partition.in_sync for partition in partitions)
    known = np.fromiter(given, dtype=np.int32, count=len(partitions))
    living: Ints = ((replicas != NO_BROKER) & ~dead[replicas]).sum(axis=1, dtype=np.int32)
    return np.where(known == NO_BROKER, living, known)


def _loads(partitions: tuple[Partition, ...], replication: NDArray[np.int64], windows: int) -> tuple[Floats, Floats]:
    figures = {key: _figures(partitions, key, windows) for key in LOAD_KEYS}
    figures[ONE] = np.ones((len(partitions), 1))
    leader, follower = [], []
    for resource in PLANNED:
        carried = resource.carried
        assert carried is not None, f"{resource} is planned"
        none = np.zeros((len(partitions), 1 if resource.is_count else windows))
        led = figures[carried.leader] if carried.leader else none
        if carried.per_follower:
            led = led + figures[carried.per_follower] * (replication - 1)[:, None]
        leader.append(led)
        follower.append(figures[carried.follower] if carried.follower else none)
    return np.hstack(leader), np.hstack(follower)


def _rack_reads(partitions: tuple[Partition, ...], rack_index: Mapping[str, int], windows: int) -> RackReads | None:
    """Returns the reads by rack, of partitions with followers and of racks with a broker; None without any."""
    rows, begin, racks, parts = [], [0], [], []
    for row, partition in enumerate(partitions):
        if not partition.reader_racks or len(partition.replicas) < 2:
            continue
        known = [
            (rack_index[f"rack {name}"], part) for name, part in partition.reader_racks if f"rack {name}" in rack_index
        ]
        if known:
            rows.append(row)
            begin.append(begin[-1] + len(known))
            racks += [rack for rack, _ in known]
            parts += [part for _, part in known]
    if not rows:
        return None
    counts = np.diff(np.array(begin))
    read = _figures(tuple(partitions[row] for row in rows), "bytes_out_per_sec", windows)
    rates = np.repeat(read, counts, axis=0) * np.array(parts)[:, None]
    return RackReads(np.array(rows), np.array(begin), np.array(racks, dtype=np.int32), rates)


def _figures(partitions: tuple[Partition, ...], key: str, windows: int) -> Floats:
    """P x W; a single figure stands for every window."""
    if windows == 1:
        values = (getattr(partition.load, key) for partition in partitions)
        flat = (value[0] if isinstance(value, tuple) else value for value in values)
        return np.fromiter(flat, dtype=np.float64, count=len(partitions))[:, None]
    figures = np.empty((len(partitions), windows))
    for index, partition in enumerate(partitions):
        figures[index] = getattr(partition.load, key)
    return figures
