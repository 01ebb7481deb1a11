"""Movements of replicas between the log dirs of one broker, as Kafka's ReplicaManager makes them (KIP-113).

The broker copies the replica into a future replica in the other log dir. Once that holds all, it takes the replica's
place. Asked for the log dir that the replica lies in, the broker gives up the copy. While the other log dir is offline
it knows nothing of the copy, but the files stay: it goes on with it afterwards. While any log dir is offline it begins
no copy. Errors are names as clients show them.
"""

from assignor_core.live import PartitionKey
from tests.simulated_cluster.state import ClusterContents, FutureCopy

NOT_FOUND = "LogDirNotFoundError"
STORAGE_ERROR = "KafkaStorageError"
NOT_HERE = "ReplicaNotAvailableError"
CORDONED = "InvalidReplicationAssignmentError"


def move_to_log_dir(contents: ClusterContents, broker_id: int, key: PartitionKey, index: int | None) -> str | None:
    """Start, change or cancel one movement; `index` is None where the broker has no such log dir."""
    broker, partition = contents.brokers[broker_id], contents.partition(key)
    if index is None:
        return NOT_FOUND
    copy = None if partition is None else partition.copies.get(broker_id)
    if broker.log_dirs[index].offline:
        return STORAGE_ERROR
    if copy is None:
        return NOT_HERE
    if broker.log_dirs[copy.log_dir].offline:
        return STORAGE_ERROR
    if copy.log_dir == index:
        if copy.future is not None and not broker.log_dirs[copy.future.log_dir].offline:
            copy.future = None
        return None
    if broker.log_dirs[index].cordoned:
        return CORDONED
    if copy.future is None or copy.future.log_dir != index:
        if any(row.offline for row in broker.log_dirs):
            return STORAGE_ERROR
        assert partition is not None
        copy.future = FutureCopy(index, partition.start_bytes)
        contents.moving_within.add((broker_id, key))
    return None


def copy_within_brokers(contents: ClusterContents, step_ms: int) -> None:
    """Let future copies grow: those of one broker share its throttle and its disks evenly."""
    growing: dict[int, list[PartitionKey]] = {}
    for broker_id, key in sorted(contents.moving_within):
        if _future_of(contents, broker_id, key) is None:
            contents.moving_within.discard((broker_id, key))
        elif contents.brokers[broker_id].running:
            growing.setdefault(broker_id, []).append(key)
    for broker_id, keys in growing.items():
        broker = contents.brokers[broker_id]
        rate = min(broker.disk_bytes_per_sec, contents.log_dir_rates.get(broker_id, broker.disk_bytes_per_sec))
        for key in keys:
            _grow(contents, broker_id, key, rate // len(keys) * step_ms // 1000)


def _future_of(contents: ClusterContents, broker_id: int, key: PartitionKey) -> FutureCopy | None:
    """What is being copied of a replica; None where it went, or its movement ended."""
    partition = contents.partition(key)
    copy = None if partition is None else partition.copies.get(broker_id)
    return None if copy is None else copy.future


def _grow(contents: ClusterContents, broker_id: int, key: PartitionKey, growth_bytes: int) -> None:
    partition = contents.topics[key[0]].partitions[key[1]]
    copy, future = partition.copies[broker_id], _future_of(contents, broker_id, key)
    log_dirs = contents.brokers[broker_id].log_dirs
    if future is None or log_dirs[copy.log_dir].offline or log_dirs[future.log_dir].offline:
        return
    future.end_bytes = max(future.end_bytes, partition.start_bytes)
    future.end_bytes = min(copy.end_bytes, future.end_bytes + growth_bytes)
    if future.end_bytes >= copy.end_bytes:
        copy.log_dir, copy.future = future.log_dir, None
        contents.changes += 1
