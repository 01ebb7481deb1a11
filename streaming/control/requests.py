"""What an execution asks Kafka to move, elect or cancel, and what Kafka has refused so far.

Kafka refuses single partitions or a whole request; either way each partition is asked for again a bounded number of
times and then skipped, so that one refusal stops nothing else.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from assignor_core.execution.accounting import Refusals
from assignor_core.execution.within_brokers import Hindered
from assignor_core.live import LivePartition, PartitionKey, ReplicaKey
from streaming.cluster.ports import LogDirChanger, PlacementChanger
from streaming.control.cluster_snapshot import SnapshotAge
from streaming.errors import ClusterRequestFailed, LogDirMovesRefused, PartitionsRefused

CANCEL_TRIES_MAX = 60
"""How often control requests a cancellation that Kafka refuses, a second apart. Then the abort ends without it:
replicas of before that are out of sync may never return, and the throttle must not stay with them.
"""


class Requests:
    """Requests of one execution, each based on metadata that was just read (`SnapshotAge`); `forget` starts another
    one.
    """

    def __init__(self, cluster: PlacementChanger, snapshot_age: SnapshotAge) -> None:
        self._cluster = cluster
        self._snapshot_age = snapshot_age
        self.forget()

    def forget(self) -> None:
        self.moves = Refusals()
        self.elections = Refusals()
        self.elections_asked: frozenset[PartitionKey] = frozenset()
        """Partitions whose election has been asked for."""
        self.taken: dict[PartitionKey, tuple[int, ...]] = {}
        """Reassignments that Kafka has taken, and that this execution has not stopped: the newest of each partition."""
        self.cancelled: frozenset[PartitionKey] = frozenset()
        self._cancel_tries = 0

    @property
    def may_cancel(self) -> bool:
        """Whether cancelling what Kafka refuses to cancel is still to be tried again."""
        return self._cancel_tries < CANCEL_TRIES_MAX

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> Mapping[PartitionKey, str]:
        """Ask for reassignments; returns the partitions that Kafka refused, with its error."""
        refused = self._refused(targets, lambda: self._cluster.reassign(dict(targets)))
        self.moves = self.moves.after(targets, refused)
        self.taken |= {key: target for key, target in targets.items() if key not in refused}
        return refused

    def cancelled_by_others(
        self, targets: Mapping[PartitionKey, tuple[int, ...]], partitions: Mapping[PartitionKey, LivePartition]
    ) -> list[PartitionKey]:
        """Partitions of `targets` of which Kafka has taken a move and not made it: somebody else has cancelled it.

        Each cancelled move is named once. Targets are not compared: a cancelled stage leaves the replicas in another
        order, and the next stage follows from that order.
        """
        again = [key for key in targets if key in self.taken and set(partitions[key].replicas) != set(self.taken[key])]
        for key in again:
            del self.taken[key]
        return again

    def elect(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, str]:
        """Ask for elections of preferred leaders; returns the partitions that Kafka refused, with its error."""
        refused = self._refused(partitions, lambda: self._cluster.elect_preferred(partitions))
        self.elections_asked |= frozenset(partitions)
        self.elections = self.elections.after(partitions, refused)
        return refused

    def cancel(self, moving: Collection[PartitionKey]) -> Mapping[PartitionKey, str]:
        """Cancel what is in flight; returns the partitions that Kafka refused, with its error."""
        if not moving:
            return {}
        refused = self._refused(moving, lambda: self._cluster.reassign(dict.fromkeys(moving)))
        self.cancelled |= frozenset(moving) - refused.keys()
        self._cancel_tries += bool(refused)
        return refused

    def stop(self, moving: Collection[PartitionKey]) -> Mapping[PartitionKey, str]:
        """Cancel some while the execution goes on; returns the partitions that Kafka refused, with its error."""
        self.taken = {key: target for key, target in self.taken.items() if key not in moving}
        return self._refused(moving, lambda: self._cluster.reassign(dict.fromkeys(moving)))

    def _refused(self, asked: Iterable[PartitionKey], request: Callable[[], None]) -> Mapping[PartitionKey, str]:
        return _refusals(asked, request, self._snapshot_age)


class LogDirRequests:
    """Requests of one execution within brokers, each based on log dirs just read; `forget` starts another one."""

    def __init__(self, cluster: LogDirChanger, snapshot_age: SnapshotAge) -> None:
        self._cluster = cluster
        self._snapshot_age = snapshot_age
        self.forget()

    def forget(self) -> None:
        self._hindered = Hindered()
        # Apart: there may be room for what its broker refuses, and an answer that shows room must not forget the
        # refusals.
        self._refusals = Hindered()
        self._cancel_tries = 0
        self.cancelled: frozenset[ReplicaKey] = frozenset()
        self.asked_to_stay: frozenset[ReplicaKey] = frozenset()

    @property
    def given_up(self) -> Mapping[ReplicaKey, str]:
        """Movements that are skipped, with the reason."""
        return {**self._hindered.given_up, **self._refusals.given_up}

    def hinder(self, tried: Collection[ReplicaKey], reasons: Mapping[ReplicaKey, str], now_ms: int) -> None:
        """Notes the movements among `tried` that can't be begun now: there is no room, or their broker is at work."""
        self._hindered = self._hindered.after(tried, reasons, now_ms)

    def move(self, targets: Mapping[ReplicaKey, str], now_ms: int) -> Mapping[ReplicaKey, str]:
        """Ask for movements; returns the replicas that brokers refused, with Kafka's error."""
        refused = self._refused(targets)
        self._refusals = self._refusals.after(targets.keys(), refused, now_ms)
        return refused

    def stop(self, places: Mapping[ReplicaKey, str], now_ms: int) -> Mapping[ReplicaKey, str]:
        """Let brokers give up copies while the execution goes on; see `cancel` and `move`."""
        self.asked_to_stay |= frozenset(places)
        return self.move(places, now_ms)

    @property
    def may_cancel(self) -> bool:
        """Whether giving up what brokers don't give up is still to be tried again."""
        return self._cancel_tries < CANCEL_TRIES_MAX

    def cancel(self, places: Mapping[ReplicaKey, str], hidden: Collection[ReplicaKey]) -> Mapping[ReplicaKey, str]:
        """Let brokers give up copies, where `places` are the log dirs that the replicas lie in; returns what goes on,
        with the reason. Of replicas that are `hidden` nobody knows whether they are being copied.
        """
        self.asked_to_stay |= frozenset(places)
        refused = dict(self._refused(places)) | dict.fromkeys(hidden, "not shown by its broker")
        self.cancelled |= frozenset(places) - refused.keys()
        self._cancel_tries += bool(places or hidden)
        return refused

    def _refused(self, targets: Mapping[ReplicaKey, str]) -> Mapping[ReplicaKey, str]:
        if not targets:
            return {}
        return _refusals(targets, lambda: self._cluster.move_to_log_dirs(targets), self._snapshot_age)


Key = TypeVar("Key", PartitionKey, ReplicaKey)


def _refusals(asked: Iterable[Key], request: Callable[[], None], snapshot_age: SnapshotAge) -> Mapping[Key, str]:
    """Kafka's error by partition or replica; a request that is refused as a whole is refused for each of `asked`."""
    try:
        with snapshot_age.limited():
            request()
    except (PartitionsRefused, LogDirMovesRefused) as error:
        refusals: Mapping[Any, str] = error.refusals
        return refusals
    except ClusterRequestFailed as error:
        return dict.fromkeys(asked, error.kafka_error or str(error))
    return {}
