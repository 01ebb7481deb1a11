"""The cluster as the planner sees it: brokers, partitions, placement and load, validated once.

A `ClusterState` that exists is sound: every replica is on a broker of the model, no partition occurs twice, no load is
negative or unknown. The module knows no planner, no skew and no wire format but the JSON cluster model, in which log
dirs stand for the room that they leave (`disks`), and bytes/s by replica for the racks that read from followers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any

from assignor_core.disks import LogDirDescription, least_room
from assignor_core.errors import InputError
from assignor_core.live import partition_name
from assignor_core.policies import knob
from assignor_core.wording import many

Load = float | tuple[float, ...]
"""One figure, or one per window."""
Rack = str | None
ReaderRacks = tuple[tuple[str, float], ...]
"""Racks of consumers, in order of their names, each with its part of a partition's bytes out (KIP-392). The rest of
them name no rack. Empty where followers serve nobody.
"""

FIGURE_MAX = 1e30
"""Largest load and capacity: beyond any cluster's, and small enough that sums and products stay finite."""
SHOWN_MAX = 80
"""Characters of a value that an error shows."""
BY_RACK, BY_REPLICA = "reader_racks", "bytes_out_per_sec_by_replica"
"""Optional keys of a partition. With the second `load` has the leader's bytes out, else those of all replicas."""
LOG_DIR_STATES = ("online", "cordoned", "offline")
DISK_RESERVE = 0.10
"""Share of each volume that plans for a model leave free: the default of `planner.disk_reserve`."""
ROUNDING = 1e-9
INT32_MAX = 2**31 - 1
"""Kafka's largest broker id and partition number."""
INT64_MAX = 2**63 - 1


class BrokerState(StrEnum):
    """Draining must end empty; dead too, and its data can't be copied from."""

    ALIVE = "alive"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a broker can carry; None where nobody said."""

    bytes_in_per_sec: float | None = knob(None, "What a broker can receive; null: no limit.", unit="bytes/s", gt=0)
    bytes_out_per_sec: float | None = knob(None, "What a broker can send; null: no limit.", unit="bytes/s", gt=0)
    disk_bytes: float | None = knob(None, "What a broker can store; null: no limit.", unit="bytes", gt=0)


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker; `rack` None stands for a rack of its own, as does an empty name in a model."""

    broker_id: int
    rack: str | None = None
    state: BrokerState = BrokerState.ALIVE
    capacity: Capacity = Capacity()
    disk_room_bytes: float | None = None
    """Most bytes that a plan may copy to it, whatever leaves it; None where nothing bounds that."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """Bytes/s that clients write, bytes/s that consumers read from all replicas, bytes of the leader's log."""

    bytes_in_per_sec: Load
    bytes_out_per_sec: Load
    disk_bytes: Load


NO_LOAD = PartitionLoad(0.0, 0.0, 0.0)
LOAD_KEYS = tuple(field.name for field in fields(PartitionLoad))
"""Names of a `PartitionLoad`'s figures. Later additions have a default, so that older models are read as before."""
RATE_KEYS = tuple(key for key in LOAD_KEYS if key != "disk_bytes")
"""Figures that a leader reports, per second; bytes on disk come from log dirs."""
CAPACITY_KEYS = tuple(field.name for field in fields(Capacity))
_DEFAULTS = {field.name: field.default for field in fields(PartitionLoad) if field.default is not MISSING}

figures_of = attrgetter(*LOAD_KEYS)
"""The figures of a `PartitionLoad` as a tuple, in the order of LOAD_KEYS."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; the preferred leader is the first of `replicas`."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    load: PartitionLoad
    in_sync: int | None = None
    """Replicas in sync; None where not known. The fewer it has, the sooner a lost replica is re-created."""
    is_load_known: bool = True
    """Whether the partition's load is known. Without a known load it is never moved for load; `load` is zero then."""
    reader_racks: ReaderRacks = ()
    """Parts of its bytes out that consumers read in their own rack, from a follower too; the rest is the leader's."""

    @property
    def key(self) -> tuple[str, int]:
        """(topic, partition)."""
        return (self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Placement and load of one cluster at one moment; raises InputError unless it is sound."""

    cluster_id: str
    observed_at_ms: int
    brokers: tuple[Broker, ...]
    partitions: tuple[Partition, ...]

    def __post_init__(self) -> None:
        _check_brokers(self.brokers)
        _check_placement(self.partitions, frozenset(broker.broker_id for broker in self.brokers))
        _check_loads(self.partitions)

    @property
    def windows(self) -> int:
        """How many windows the loads span; 1 where every load is a single figure."""
        return _windows_of(self.partitions)


def cluster_from_json(obj: object) -> ClusterState:
    """The model of the JSON contract "Cluster model"; raises InputError that names what does not fit.

    >>> cluster_from_json({"brokers": [{"broker_id": 1}], "partitions": []}).brokers[0].state.value
    'alive'
    """
    model = _mapping(obj, "cluster model")
    cluster_id = model.get("cluster_id", "")
    if not isinstance(cluster_id, str):
        raise misfit("cluster_id", cluster_id, "a string")
    observed_at_ms = _integer(model.get("observed_at_ms", 0), "observed_at_ms", most=INT64_MAX)
    brokers = tuple(_broker(item, index) for index, item in enumerate(_list(model.get("brokers"), "brokers")))
    racks = {broker.broker_id: broker.rack for broker in brokers}
    partitions = tuple(
        _partition(item, index, racks) for index, item in enumerate(_list(model.get("partitions"), "partitions"))
    )
    return ClusterState(cluster_id, observed_at_ms, brokers, partitions)


def cluster_to_json(cluster: ClusterState) -> dict[str, Any]:
    """The JSON form; `cluster_from_json` reads it back to an equal state."""
    return {
        "cluster_id": cluster.cluster_id,
        "observed_at_ms": cluster.observed_at_ms,
        "brokers": [
            {
                "broker_id": broker.broker_id,
                "rack": broker.rack,
                "state": broker.state.value,
                "capacity": {key: getattr(broker.capacity, key) for key in CAPACITY_KEYS},
                **({} if broker.disk_room_bytes is None else {"disk_room_bytes": broker.disk_room_bytes}),
            }
            for broker in cluster.brokers
        ],
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(partition.replicas),
                "load": _loads_to_json(partition),
                **({} if partition.in_sync is None else {"in_sync": partition.in_sync}),
                **({BY_RACK: dict(partition.reader_racks)} if partition.reader_racks else {}),
            }
            for partition in cluster.partitions
        ],
    }


def _loads_to_json(partition: Partition) -> dict[str, float | list[float]] | None:
    if not partition.is_load_known:
        return None
    return {key: _load_to_json(getattr(partition.load, key)) for key in LOAD_KEYS}


def _load_to_json(load: Load) -> float | list[float]:
    return list(load) if isinstance(load, tuple) else load


def _broker(item: object, index: int) -> Broker:
    name = f"brokers[{index}]"
    fields = _mapping(item, name)
    broker_id = _integer(fields.get("broker_id"), f"{name}.broker_id", most=INT32_MAX)
    name = f"broker {broker_id}"
    rack = fields.get("rack")
    if rack is not None and not isinstance(rack, str):
        raise misfit(f"{name}: rack", rack, "a string or null")
    state = fields.get("state", "alive")
    if state not in tuple(BrokerState):
        raise misfit(f"{name}: state", state, "alive, draining or dead")
    given = fields.get("capacity")
    capacity = _mapping(given if given is not None else {}, f"{name}: capacity")
    figures = (_capacity(capacity.get(key), f"{name}: capacity.{key}") for key in CAPACITY_KEYS)
    room, log_dirs = fields.get("disk_room_bytes"), fields.get("log_dirs")
    if room is not None and (isinstance(room, bool) or not isinstance(room, int | float)):
        raise misfit(f"{name}: disk_room_bytes", room, "a number from 0, or null")
    room_bytes = None if log_dirs is None else room_of_log_dirs(log_dirs, name)
    if room is not None:
        room_bytes = _as_float(room)
    return Broker(broker_id, rack or None, BrokerState(state), Capacity(*figures), room_bytes)


def _capacity(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise misfit(name, value, "a number above 0, or null")
    return _as_float(value)


def _partition(item: object, index: int, racks: Mapping[int, str | None]) -> Partition:
    fields = _mapping(item, f"partitions[{index}]")
    topic, number = fields.get("topic"), fields.get("partition")
    if not isinstance(topic, str) or not topic:
        raise misfit(f"partitions[{index}].topic", topic, "a string that is not empty")
    number = _integer(number, f"partition number in topic {topic}", most=INT32_MAX)
    replicas = fields.get("replicas")
    if not isinstance(replicas, list) or any(type(broker) is not int for broker in replicas):
        raise misfit(f"partition {topic}-{number}: replicas", replicas, "a list of broker ids")
    load = fields.get("load")
    if "load" not in fields:
        raise InputError(f"partition {topic}-{number}: found no load, allowed is an object, or null where unknown")
    if load is not None and not isinstance(load, Mapping):
        raise misfit(f"partition {topic}-{number}: load", load, "an object, or null where unknown")
    loads = NO_LOAD if load is None else _loads(load, topic, number)
    given = fields.get("in_sync")
    in_sync = None if given is None else _integer(given, f"partition {topic}-{number}: in_sync", most=len(replicas))
    by_rack, by_replica = fields.get(BY_RACK), fields.get(BY_REPLICA)
    readers: ReaderRacks = ()
    if replicas and (by_rack is not None or by_replica is not None):
        own = [racks.get(broker) for broker in replicas]
        out, name = loads.bytes_out_per_sec, f"partition {topic}-{number}"
        out, readers = read_by_racks(by_rack, by_replica, out, own, name)
        loads = replace(loads, bytes_out_per_sec=out)
    return Partition(topic, number, tuple(replicas), loads, in_sync, load is not None, readers)


def _loads(load: Mapping[str, object], topic: str, number: int) -> PartitionLoad:
    return PartitionLoad(*(_load(load.get(key, _DEFAULTS.get(key)), topic, number, key) for key in LOAD_KEYS))


def _load(value: object, topic: str, number: int, key: str) -> Load:
    if type(value) is float:
        return value
    if type(value) is int:
        return _as_float(value)
    if isinstance(value, list) and all(type(figure) in (int, float) for figure in value):
        return tuple(_as_float(figure) for figure in value)
    raise misfit(f"partition {topic}-{number}: load.{key}", value, "a number, or a list of numbers by window")


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _check_brokers(brokers: tuple[Broker, ...]) -> None:
    if not brokers:
        raise InputError("brokers: found none, at least one is needed")
    seen: set[int] = set()
    for broker in brokers:
        if broker.broker_id in seen:
            raise InputError(f"broker {broker.broker_id}: found twice in brokers, allowed once")
        seen.add(broker.broker_id)
        room_bytes = broker.disk_room_bytes
        if room_bytes is not None and not 0 <= room_bytes <= FIGURE_MAX:
            name = f"broker {broker.broker_id}: disk_room_bytes"
            raise misfit(name, room_bytes, f"a number from 0 to {FIGURE_MAX:g}")
        for key in CAPACITY_KEYS:
            value = getattr(broker.capacity, key)
            if value is not None and not 0 < value <= FIGURE_MAX:
                name = f"broker {broker.broker_id}: capacity.{key}"
                raise misfit(name, value, f"a number above 0 and up to {FIGURE_MAX:g}")


def _check_placement(partitions: Iterable[Partition], broker_ids: frozenset[int]) -> None:
    seen: set[tuple[str, int]] = set()
    for partition in partitions:
        key = partition.key
        if key in seen:
            raise InputError(f"partition {partition_name(partition.key)}: found twice in partitions, allowed once")
        seen.add(key)
        replicas = set(partition.replicas)
        sound = replicas <= broker_ids and len(replicas) == len(partition.replicas) > 0 and partition.partition >= 0
        if not sound:
            raise InputError(f"partition {partition_name(partition.key)}: {_misplacement(partition, broker_ids)}")


def _misplacement(partition: Partition, broker_ids: frozenset[int]) -> str:
    """What is wrong with a partition that is not sound."""
    replicas = partition.replicas
    if partition.partition < 0:
        return f"found number {partition.partition}, allowed is 0 or more"
    if not replicas:
        return "found no replicas, at least one is needed"
    if len(replicas) > len(broker_ids):
        return f"found replication factor {len(replicas)}, allowed is at most {len(broker_ids)}, the number of brokers"
    unknown = [broker for broker in replicas if broker not in broker_ids]
    if unknown:
        return f"found replica on unknown broker {unknown[0]}, allowed are the ids in brokers"
    return f"found a broker twice in replicas {list(replicas)}, allowed once"


def _check_loads(partitions: tuple[Partition, ...]) -> None:
    windows = _windows_of(partitions)
    for partition in partitions:
        if partition.reader_racks:
            checked_parts(partition.reader_racks, f"partition {partition_name(partition.key)}")
        for key, figure in zip(LOAD_KEYS, figures_of(partition.load), strict=True):
            if type(figure) is float and 0.0 <= figure <= FIGURE_MAX:
                continue
            _check_figure(partition, key, figure, windows)


def _check_figure(partition: Partition, key: str, figure: Load, windows: int) -> None:
    figures, name = (
        figure if isinstance(figure, tuple) else (figure,),
        f"partition {partition_name(partition.key)}: load.{key}",
    )
    if isinstance(figure, tuple) and len(figures) != windows:
        raise InputError(f"{name}: found {many(len(figures), 'window')}, allowed is {windows} as in other loads")
    for value in figures:
        if not 0.0 <= value <= FIGURE_MAX:
            raise misfit(name, value, f"a number from 0 to {FIGURE_MAX:g}")


def first_window(cluster: ClusterState) -> ClusterState:
    """Returns `cluster` with only the loads of the first window.

    >>> partition = Partition("t", 0, (1,), PartitionLoad((1.0, 3.0), (2.0, 4.0), 5.0))
    >>> first_window(ClusterState("c", 0, (Broker(1),), (partition,))).partitions[0].load
    PartitionLoad(bytes_in_per_sec=1.0, bytes_out_per_sec=2.0, disk_bytes=5.0)
    """

    def first(load: PartitionLoad) -> PartitionLoad:
        return PartitionLoad(*(figure[0] if isinstance(figure, tuple) else figure for figure in figures_of(load)))

    return replace(cluster, partitions=tuple(replace(row, load=first(row.load)) for row in cluster.partitions))


def reader_racks(
    leader: tuple[Rack, float], followers: Iterable[tuple[Rack, float]], read: Mapping[Rack, float]
) -> ReaderRacks:
    """Parts by rack, of what a leader and its followers were seen to serve: each the rack of its broker, and bytes/s.

    What a follower serves is read in its rack. `read` is what groups read by rack, None for those that name none, in
    any unit: it divides what the leader serves among its own rack, racks without a replica, and all others. Without
    it nobody knows who reads from the leader: it all goes with the leadership.

    >>> reader_racks(("a", 60.0), [("b", 30.0), ("c", 10.0)], {"a": 2.0, None: 4.0, "b": 3.0})
    (('a', 0.2), ('b', 0.3), ('c', 0.1))
    """
    rack, rate = leader
    amounts: dict[str, float] = {}
    total, others = rate, {rack}
    for name, of_follower in followers:
        total += of_follower
        others.add(name)
        if name is not None and of_follower > 0:
            amounts[name] = amounts.get(name, 0.0) + of_follower
    if not amounts or total <= 0:
        return ()
    at_leader = {name: amount for name, amount in read.items() if name == rack or name not in others or name is None}
    whole = sum(at_leader.values())
    for name, amount in at_leader.items():
        if name is not None and amount > 0:
            amounts[name] = amounts.get(name, 0.0) + rate * amount / whole
    return tuple((name, min(1.0, amount / total)) for name, amount in sorted(amounts.items()) if amount > 0)


def read_by_racks(
    by_rack: object, by_replica: object, bytes_out: Load, racks: Sequence[str | None], name: str
) -> tuple[Load, ReaderRacks]:
    """(Bytes/s that consumers read from all replicas, who reads them) of a partition; raises InputError.

    `by_rack` or `by_replica` is given, `bytes_out` is its load's, `racks` are those of its replicas.

    >>> read_by_racks(None, [6.0, 2.0], 6.0, ["a", "b"], "partition t-0")
    (8.0, (('b', 0.25),))
    """
    if by_rack is not None and by_replica is not None:
        raise InputError(f"{name}: found both {BY_RACK} and {BY_REPLICA}, allowed is one of them")
    if by_replica is not None:
        return _by_replica(by_replica, bytes_out, racks, name)
    return bytes_out, _by_rack(by_rack, name)


def checked_parts(parts: ReaderRacks, name: str) -> None:
    """Raises InputError unless each part is above 0 and all are no more than the whole."""
    if any(not 0.0 < part <= 1.0 for _, part in parts) or sum(part for _, part in parts) > 1.0 + ROUNDING:
        raise misfit(f"{name}: {BY_RACK}", dict(parts), "an object of parts above 0 that add up to 1 at most")


def _by_rack(given: object, name: str) -> ReaderRacks:
    if not isinstance(given, Mapping) or not all(
        isinstance(rack, str) and is_figure(part) for rack, part in given.items()
    ):
        raise misfit(f"{name}: {BY_RACK}", given, "an object of parts above 0 by rack")
    parts = tuple((rack, float(part)) for rack, part in sorted(given.items()))
    checked_parts(parts, name)
    return parts


def _by_replica(given: object, bytes_out: Load, racks: Sequence[str | None], name: str) -> tuple[Load, ReaderRacks]:
    if not isinstance(given, list) or len(given) != len(racks) or not all(map(is_figure, given)):
        allowed = f"a list with a number from 0 to {FIGURE_MAX:g} for each of {many(len(racks), 'replica')}"
        raise misfit(f"{name}: {BY_REPLICA}", given, allowed)
    leader, *followers = map(float, given)
    total = leader + sum(followers)
    readers = reader_racks((racks[0], leader), zip(racks[1:], followers, strict=True), {})
    if not isinstance(bytes_out, tuple):
        return total, readers
    if leader == 0 < total:
        raise InputError(f"{name}: {BY_REPLICA}: found 0 of the leader beside a load by window, allowed is more than 0")
    return tuple(rate * total / leader if leader else rate for rate in bytes_out), readers


def room_of_log_dirs(rows: object, name: str) -> float | None:
    """Bytes that may be copied to the broker `name`; None where its log dirs do not show what is free.

    Raises InputError that names what does not fit.

    >>> rows = [{"path": "/a", "total_bytes": 1000, "usable_bytes": 300}, {"path": "/b", "state": "offline"}]
    >>> room_of_log_dirs(rows, "broker 1")
    200.0
    """
    if not isinstance(rows, list) or not rows:
        raise misfit(f"{name}: log_dirs", rows, "a list with at least one log dir")
    described = [_log_dir(row, f"{name}: log_dirs[{index}]") for index, row in enumerate(rows)]
    paths = [row.path for row in described]
    if len(set(paths)) < len(paths):
        raise misfit(f"{name}: log_dirs", paths, "each path once")
    return least_room(described, {}, DISK_RESERVE)


def _log_dir(row: object, name: str) -> LogDirDescription:
    if not isinstance(row, Mapping):
        raise misfit(name, row, "an object")
    path, state = row.get("path"), row.get("state", "online")
    if not isinstance(path, str) or not path:
        raise misfit(f"{name}: path", path, "a string that is not empty")
    if state not in LOG_DIR_STATES:
        raise misfit(f"{name}: state", state, "online, cordoned or offline")
    total, usable = (_bytes(row, key, name) for key in ("total_bytes", "usable_bytes"))
    if total is not None and usable is not None and usable > total:
        raise misfit(f"{name}: usable_bytes", usable, f"at most total_bytes, {total}")
    return LogDirDescription(path, total, usable, is_offline=state == "offline", is_cordoned=state == "cordoned")


def _bytes(row: Mapping[str, Any], key: str, name: str) -> int | None:
    value = row.get(key)
    if value is None:
        return None
    if not is_figure(value):
        raise misfit(f"{name}: {key}", value, f"a number from 0 to {FIGURE_MAX:g}, or null")
    return int(value)


def _windows_of(partitions: Iterable[Partition]) -> int:
    for partition in partitions:
        for figure in figures_of(partition.load):
            if isinstance(figure, tuple):
                return max(1, len(figure))
    return 1


def _mapping(obj: object, name: str) -> Mapping[str, Any]:
    if not isinstance(obj, Mapping):
        raise misfit(name, obj, "an object")
    return obj


def _list(obj: object, name: str) -> list[Any]:
    if not isinstance(obj, list):
        raise misfit(name, obj, "a list")
    return obj


def _integer(obj: object, name: str, *, most: int) -> int:
    if type(obj) is not int or not 0 <= obj <= most:
        raise misfit(name, obj, f"an integer from 0 to {most}")
    return obj


def misfit(name: str, value: object, allowed: str) -> InputError:
    """The error that names a field, the start of the value found, and the values allowed.

    >>> str(misfit("broker 1: rack", 7, "a string or null"))
    'broker 1: rack: found 7, allowed is a string or null'
    """
    shown = repr(value)
    return InputError(
        f"{name}: found {shown if len(shown) <= SHOWN_MAX else shown[: SHOWN_MAX - 3] + '...'}, allowed is {allowed}"
    )


def is_figure(value: object) -> bool:
    """Whether a JSON value is a number that a load may have.

    >>> [is_figure(value) for value in (0, 2.5, True, -1, float("nan"), 10**400, "1")]
    [True, True, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= FIGURE_MAX
