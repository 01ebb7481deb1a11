"""Room on the disks of the brokers that receive, looked at right before each submit.

The look asks only the brokers that would receive or that lead what is copied there, and only about those partitions.
Where nothing fits, the next look comes `LOOK_INTERVAL_MS` later.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from assignor_core.disks import catching_up, largest_replicas, rooms, silent_brokers
from assignor_core.execution.progress import Progress
from assignor_core.execution.reconcile import Limits, wave_pending, without_room
from assignor_core.execution.room import Room, WaitsForRoom, overflowing, waiting_text
from assignor_core.live import NO_LEADER, LiveCluster, PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.cluster.ports import ClusterReader
from streaming.settings import PlannerSettings
from streaming.views.broker_windows import capacities_of

LOOK_INTERVAL_MS = 10_000


class DiskRoom:
    """What the executor knows of disks: the newest look, and movements that wait for room or were given up."""

    def __init__(self, cluster: ClusterReader, planner: PlannerSettings) -> None:
        self._cluster = cluster
        self._reserve = planner.disk_reserve
        self._bounded_by_hand = {broker for broker, row in capacities_of(planner).items() if row.disk_bytes}
        self.forget()

    def forget(self) -> None:
        """From now on it is about another execution."""
        self._waits = WaitsForRoom()
        self._lacking: Mapping[PartitionKey, str] = {}
        self._next_look_ms = 0
        self._next_fill_look_ms = 0

    @property
    def given_up(self) -> Mapping[PartitionKey, str]:
        """Movements that have not fitted for too long, with the reason."""
        return self._waits.given_up

    def held_back(self, now_ms: int) -> str | None:
        """Why nothing is submitted before the next look, or None."""
        return waiting_text(self._lacking) if self._lacking and now_ms < self._next_look_ms else None

    def all_fit(self, plan: Plan, live: LiveCluster, targets: Mapping[PartitionKey, tuple[int, ...]]) -> bool:
        """Whether these fit together on the disks: asks only the brokers that copy them. If not, `look` shows what else
        of the wave may go instead. Raises as `look` does.
        """
        receiving = {key: set(target) - set(live.partitions[key].replicas) for key, target in targets.items()}
        copying = [row for row in plan.movements if receiving.get(row.key)]
        if not copying:
            return True
        room = self._room(copying, {broker for brokers in receiving.values() for broker in brokers}, live)
        taken: Counter[int] = Counter()
        for key, brokers in receiving.items():
            if room.lacking(key, brokers, taken, leader=live.partitions[key].leader) is not None:
                return False
            taken.update(dict.fromkeys(brokers, room.replica_bytes.get(key, 0)))
        self._waits = self._waits.without(targets)
        return True

    def look(
        self, plan: Plan, live: LiveCluster, progress: Mapping[PartitionKey, Progress], limits: Limits, now_ms: int
    ) -> Room:
        """Ask the brokers that the wave under way would copy to; raises ClusterUnreachable, ClusterRequestFailed."""
        pending = wave_pending(plan, progress)
        receiving = {broker for row in pending for broker in set(row.new_replicas) - set(row.old_replicas)}
        room = self._room(pending, receiving, live)
        self._lacking = without_room(plan, live, progress, limits, room)
        self._waits = self._waits.after(self._lacking, now_ms)
        self._next_look_ms = 0
        return room

    def overflowing(self, live: LiveCluster, moving: Collection[PartitionKey], now_ms: int) -> list[PartitionKey]:
        """Of the reassignments `moving` those that no longer fit on a log dir; looks every `LOOK_INTERVAL_MS`, at the
        brokers that receive and those that lead what is copied there. Raises as `look` does.
        """
        receiving = {broker for key in moving for broker in live.partitions[key].adding_replicas}
        if not receiving or now_ms < self._next_fill_look_ms:
            return []
        self._next_fill_look_ms = now_ms + LOOK_INTERVAL_MS
        partitions = {*moving, *(key for keys in catching_up(live, receiving).values() for key in keys)}
        leaders = {live.partitions[key].leader for key in partitions} - {NO_LEADER}
        return overflowing(live, self._cluster.log_dirs(receiving | leaders, partitions), moving)

    def _room(self, pending: Iterable[Movement], receiving: Collection[int], live: LiveCluster) -> Room:
        """Ask the brokers that receive, and those that lead what is copied there."""
        behind = catching_up(live, receiving)
        partitions = {row.key for row in pending} | {key for keys in behind.values() for key in keys}
        leaders = {live.partitions[key].leader for key in partitions} - {NO_LEADER}
        asked = {*receiving, *leaders}
        log_dirs = self._cluster.log_dirs(asked, partitions)
        silent = silent_brokers(live, log_dirs) & asked
        largest = largest_replicas(log_dirs)
        for row in pending:
            # A leader that does not show its log: what the plan rests on is the best there is.
            added = len(set(row.new_replicas) - set(row.old_replicas))
            largest[row.key] = max(largest.get(row.key, 0), round(row.bytes_to_move / max(1, added)))
        by_broker = rooms(live, log_dirs, behind, reserve=self._reserve)
        unbounded = {row for row in self._bounded_by_hand if by_broker.get(row, 0.0) is None}
        return Room(by_broker | dict.fromkeys(unbounded, float("inf")), largest, silent)

    def wait(self, now_ms: int) -> None:
        """The look has left nothing to submit."""
        self._next_look_ms = now_ms + LOOK_INTERVAL_MS
