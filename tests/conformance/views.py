"""What tests of both stages ask and wait for, in one place."""

from collections.abc import Callable

from assignor_core.live import NO_LEADER, LivePartition, PartitionKey
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from tests.conformance.stages import Stage

SLOW_BYTES = 6_000_000
"""More than the first fetches carry before a throttle holds them back (1 MB each)."""
SLOW_BYTES_PER_SEC = 1_000


def live(stage: Stage, key: PartitionKey) -> LivePartition:
    return stage.client.describe().partitions[key]


def until_live(stage: Stage, key: PartitionKey, condition: Callable[[LivePartition], bool], what: str) -> LivePartition:
    """The first look at a partition that meets the condition."""
    looks: list[LivePartition] = []

    def met() -> bool:
        row = stage.client.describe().partitions.get(key)
        if row is None:  # brokers hear of a new partition one after the other, and any of them may be asked
            return False
        looks.append(row)
        return condition(row)

    stage.until(f"{key[0]}-{key[1]} {what}", met, lambda: f"the last look: {looks[-1:]}")
    return looks[-1]


def until_settled(stage: Stage, key: PartitionKey, replicas: tuple[int, ...]) -> LivePartition:
    """The partition once it has a leader and these replicas, all of them in sync, and no reassignment.

    Before Kafka 4.1 a lone replica counts as in sync while its broker is away.
    """

    def is_settled(row: LivePartition) -> bool:
        in_sync = row.replicas == replicas and set(row.isr) == set(replicas)
        return in_sync and row.leader != NO_LEADER and not row.reassigning

    return until_live(stage, key, is_settled, f"is settled on {replicas}")


def until_alive(stage: Stage, *brokers: int) -> None:
    stage.until(f"brokers {brokers} are alive", lambda: stage.client.describe().broker_racks.keys() == set(brokers))


def answered(stage: Stage, request: Callable[[], object]) -> None:
    """A request that is repeated while the cluster doesn't answer, or has no controller just now."""

    def done() -> bool:
        try:
            request()
        except ClusterRequestFailed as error:
            if "NotController" in str(error):
                return False
            raise
        return True

    stage.until("the request is answered", done)


def refusal(stage: Stage, request: Callable[[], object]) -> str:
    """The message of the refusal of a request."""
    return str(refused_with(stage, request))


def refused_with(stage: Stage, request: Callable[[], object]) -> ClusterRequestFailed:
    """The refusal of a request."""
    errors: list[ClusterRequestFailed] = []

    def refused() -> bool:
        try:
            request()
        except ClusterRequestFailed as error:
            errors.append(error)
        except ClusterUnreachable:
            return False
        return bool(errors) and "NotController" not in str(errors[-1])

    stage.until("the request is refused", refused)
    return errors[-1]


def slow_down(stage: Stage, topic: str, *, leaders: tuple[int, ...] = (), followers: tuple[int, ...] = ()) -> None:
    """Throttle copies of partition 0 from these leaders and to these followers, until `speed_up`."""
    sides = [{topic: frozenset((0, broker) for broker in side)} for side in (leaders, followers)]
    brokers = {*leaders, *followers}
    answered(stage, lambda: stage.client.set_throttled_replicas(*sides))
    answered(stage, lambda: stage.client.set_throttle_rates(dict.fromkeys(brokers, SLOW_BYTES_PER_SEC)))
    stage.until("rates are set", lambda: stage.client.throttle_rates().keys() == brokers)
    lists = sum(bool(side) for side in (leaders, followers))
    stage.until("lists are set", lambda: len(stage.client.throttled_replicas([topic])) == lists)


def speed_up(stage: Stage, topic: str) -> None:
    """Remove every throttle that `slow_down` may have set."""
    brokers = (1, 2, 3)
    every = {topic: frozenset((0, broker) for broker in brokers)}
    answered(stage, lambda: stage.client.clear_throttle(brokers, every, every, untagged=True))
