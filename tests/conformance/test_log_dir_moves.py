"""Movements of replicas between the log dirs of one broker (KIP-113): simulated and on brokers alike.

Broker 2 has two log dirs, each on a volume of its own. What control leans on when it moves replicas within a broker
stands here.
"""

import pytest

from assignor_core.disks import LogDirDescription
from assignor_core.live import PartitionKey
from assignor_core.throttles import LOG_DIR_RATE, tagged
from streaming.errors import LogDirMovesRefused
from tests.conformance.disks import SMALL_BYTES, VOLUME, Disks, index_of, shown
from tests.conformance.views import answered, until_alive, until_settled

LARGE_BYTES = 12_000_000
"""More than the first fetches carry before a throttle holds them back (1 MB each)."""
SLOW_BYTES_PER_SEC = tagged(1_000)


def slowed(disks: Disks) -> None:
    answered(disks, lambda: disks.client.set_log_dir_rates({2: SLOW_BYTES_PER_SEC}))
    disks.until("the rate is set", lambda: disks.client.log_dir_rates([2]) == {2: SLOW_BYTES_PER_SEC})


def released(disks: Disks) -> None:
    answered(disks, lambda: disks.client.clear_log_dir_rates([2]))
    disks.until("no rate is left", lambda: disks.client.log_dir_rates() == {})


def on_broker_2(disks: Disks, size_bytes: int = LARGE_BYTES) -> PartitionKey:
    """A partition with one replica, on broker 2."""
    key = (disks.make_topic({0: (2,)}, size_bytes=size_bytes), 0)
    disks.until("it is shown", lambda: any(row.replica_bytes.get(key, 0) >= size_bytes for row in shown(disks)))
    return key


def ask(disks: Disks, key: PartitionKey, index: int) -> None:
    """Ask for the log dir with this index."""
    path = shown(disks)[index].path
    answered(disks, lambda: disks.client.move_to_log_dirs({(2, key): path}))


def until_copying(disks: Disks, key: PartitionKey) -> LogDirDescription:
    """The log dir in which the copy of a partition is shown."""
    rows: list[LogDirDescription] = []

    def copying() -> bool:
        rows.extend(row for row in shown(disks) if key in row.future_replicas)
        return bool(rows)

    disks.until("its copy is shown", copying)
    return rows[-1]


def until_at_rest(disks: Disks, key: PartitionKey, index: int) -> None:
    """Until the replica lies in this log dir, and nothing is being copied."""
    disks.until(
        f"it lies in log dir {index}",
        lambda: key in shown(disks)[index].replica_bytes and not any(row.future_replicas for row in shown(disks)),
        lambda: str(shown(disks)),
    )


def refusal(disks: Disks, key: PartitionKey, path: str) -> str:
    """The name of Kafka's error."""
    with pytest.raises(LogDirMovesRefused) as refused:
        answered(disks, lambda: disks.client.move_to_log_dirs({(2, key): path}))
    return refused.value.refusals[2, key]


def test_a_replica_is_copied_beside_itself_and_then_its_copy_takes_its_place(disks: Disks) -> None:
    key = on_broker_2(disks)
    before = index_of(disks, key)
    slowed(disks)
    ask(disks, key, 1 - before)
    copy = until_copying(disks, key)
    assert copy.path == shown(disks)[1 - before].path
    assert copy.future_replicas[key].lag_offsets > 0
    assert copy.future_replicas[key].size_bytes < LARGE_BYTES
    assert index_of(disks, key) == before
    assert disks.client.describe().partitions[key].reassignment is None  # no controller knows of it

    # Asked for where it lies, the broker gives the copy up and its bytes back.
    ask(disks, key, before)
    until_at_rest(disks, key, before)
    disks.until("its bytes are free", lambda: (shown(disks)[1 - before].usable_bytes or 0) > VOLUME - SMALL_BYTES)

    # Asked for twice, it moves once.
    ask(disks, key, 1 - before)
    ask(disks, key, 1 - before)
    until_copying(disks, key)
    released(disks)
    until_at_rest(disks, key, 1 - before)
    assert shown(disks)[1 - before].replica_bytes[key] >= LARGE_BYTES
    assert disks.client.describe().partitions[key].isr == (2,)
    ask(disks, key, 1 - before)  # where it lies: nothing to do
    until_at_rest(disks, key, 1 - before)


def test_brokers_refuse_log_dirs_that_they_do_not_have_or_that_are_cordoned(disks: Disks) -> None:
    key = on_broker_2(disks, SMALL_BYTES)
    before = index_of(disks, key)
    elsewhere = (disks.make_topic({0: (1,)}, size_bytes=SMALL_BYTES), 0)
    until_settled(disks, elsewhere, (1,))
    assert refusal(disks, key, "/nowhere") == "LogDirNotFoundError"
    assert refusal(disks, elsewhere, shown(disks)[0].path) == "ReplicaNotAvailableError"
    path = shown(disks)[1 - before].path
    answered(disks, lambda: disks.client.cordon_log_dirs(2, [path], cordoned=True))
    disks.until("it is shown as cordoned", lambda: shown(disks)[1 - before].is_cordoned is True)
    assert refusal(disks, key, path) == "InvalidReplicationAssignmentError"
    answered(disks, lambda: disks.client.cordon_log_dirs(2, [path], cordoned=False))
    disks.until("it is not cordoned", lambda: not any(row.is_cordoned for row in shown(disks)))
    # A cordon keeps nothing from leaving.
    answered(disks, lambda: disks.client.cordon_log_dirs(2, [shown(disks)[before].path], cordoned=True))
    disks.until("it is shown as cordoned", lambda: shown(disks)[before].is_cordoned is True)
    ask(disks, key, 1 - before)
    until_at_rest(disks, key, 1 - before)


def test_a_movement_goes_on_after_the_broker_was_killed(disks: Disks) -> None:
    key = on_broker_2(disks)
    before = index_of(disks, key)
    slowed(disks)
    ask(disks, key, 1 - before)
    until_copying(disks, key)
    disks.kill_broker(2)
    until_alive(disks, 1, 3)
    disks.restart_broker(2)
    until_alive(disks, 1, 2, 3)
    assert until_copying(disks, key).path == shown(disks)[1 - before].path
    assert disks.client.log_dir_rates([2]) == {2: SLOW_BYTES_PER_SEC}
    released(disks)
    until_at_rest(disks, key, 1 - before)


def test_a_copy_in_a_log_dir_that_goes_offline_is_given_up(disks: Disks) -> None:
    key = on_broker_2(disks)
    before = index_of(disks, key)
    slowed(disks)
    ask(disks, key, 1 - before)
    until_copying(disks, key)
    disks.fill(1 - before, usable_bytes=0)
    answered(disks, lambda: disks.client.set_log_dir_rates({2: tagged(LARGE_BYTES // 10)}))
    disks.until("it is offline", lambda: shown(disks)[1 - before].is_offline)
    until_at_rest(disks, key, before)
    assert disks.client.describe().partitions[key].leader == 2


def test_a_rate_of_somebody_else_within_a_broker_is_neither_changed_nor_removed(disks: Disks) -> None:
    disks.set_rate(2, LOG_DIR_RATE, 200_000)
    answered(disks, lambda: disks.client.set_log_dir_rates({1: tagged(1_000_000), 2: tagged(1_000_000)}))
    both = {1: tagged(1_000_000), 2: 200_000}
    disks.until("what is free is set", lambda: disks.client.log_dir_rates() == both)
    answered(disks, lambda: disks.client.clear_log_dir_rates([1, 2]))
    disks.until("only theirs is left", lambda: disks.client.log_dir_rates() == {2: 200_000})
    answered(disks, lambda: disks.client.clear_log_dir_rates([2], untagged=True))
    disks.until("no rate is left", lambda: disks.client.log_dir_rates() == {})
