"""What control knows of brokers' disks: room for what is copied, copies so far, log dirs of a plan within brokers.

Before each submit `DiskRoom` reads the log dirs of the brokers that would receive or that lead what is copied there,
and only for those partitions. An answer of the last seconds does where the copies take at most half of the room that is
left; otherwise the broker is read right before the submit. Where nothing fits, the next read comes `READ_INTERVAL_MS`
later. `DiskAnswers` keeps the answers: what was on its way to a broker when it answered, or has begun since, still
takes its room, ended or not. What others write meanwhile is not seen, so whoever needs to know reads anew (`max_age_ms`
0). A broker that did not answer is left alone for a while, since each request costs `kafka.request_timeout_ms`.

`copied_bytes` shows how much of the movements under way is copied. `LogDirAnswers` serves a plan of movements within
brokers: a broker that copies is read at each tick, the others every `READ_INTERVAL_MS`, because nothing of the plan
changes there meanwhile.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assignor_core.disks import (
    LogDirDescription,
    LogDirs,
    catching_up,
    largest_replicas,
    replica_sizes,
    rooms,
    silent_brokers,
)
from assignor_core.execution.progress import Progress
from assignor_core.execution.reconcile import Limits, wave_pending, without_room
from assignor_core.execution.room import RoomLeft, WaitsForRoom, overflowing, waiting_text
from assignor_core.intervals import is_due
from assignor_core.live import NO_LEADER, LiveCluster, PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.cluster.ports import ClusterReader
from streaming.settings import PlannerSettings
from streaming.views.broker_windows import capacities_of

ANSWER_AGE_MAX_MS = 10_000
SILENCE_MS = 60_000
"""How long a broker that did not answer counts as silent and is not asked again, ms."""


@dataclass(slots=True)
class _Answer:
    """What one broker has shown."""

    read_ms: int
    partitions: frozenset[PartitionKey]
    """The broker was asked about these."""
    rows: Sequence[LogDirDescription]
    arriving: set[PartitionKey] = field(default_factory=set)
    """Partitions with a replica that was on its way to this broker at the answer or since."""


class DiskAnswers:
    """Answers of brokers about their log dirs. Not for two threads: a caller calls `forget` before
    another execution.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        self._answers: dict[int, _Answer] = {}
        self._silent_since_ms: dict[int, int] = {}

    def note(self, live: LiveCluster) -> None:
        """Notes what one more snapshot of the cluster shows: what copies, and which brokers are alive. A broker that is
        back may show something else.
        """
        for known in (self._answers, self._silent_since_ms):
            for broker in known.keys() - live.broker_racks.keys():
                del known[broker]
        for broker, keys in catching_up(live, self._answers.keys()).items():
            self._answers[broker].arriving.update(keys)

    def submitted(self, key: PartitionKey, brokers: Iterable[int]) -> None:
        """A replica of the partition is to be copied to these brokers."""
        for broker in brokers:
            if broker in self._answers:
                self._answers[broker].arriving.add(key)

    def arriving(self, broker: int) -> Collection[PartitionKey]:
        """What was on its way to the broker when it answered last, or has been since."""
        return self._answers[broker].arriving if broker in self._answers else ()

    def is_older(self, broker: int, now_ms: int) -> bool:
        """Whether the broker's answer was read before this moment."""
        return broker in self._answers and self._answers[broker].read_ms != now_ms

    def read(
        self,
        wanted: Mapping[int, Collection[PartitionKey]],
        partitions: Collection[PartitionKey],
        *,
        now_ms: int,
        max_age_ms: int = ANSWER_AGE_MAX_MS,
    ) -> dict[int, Sequence[LogDirDescription]]:
        """Log dirs of the brokers `wanted`, with those of the partitions named there. A broker whose answer is too old,
        or not about its partitions, is asked about all `partitions`. Brokers that don't answer are left out. Raises
        ClusterUnreachable, ClusterRequestFailed.
        """
        asked = {
            broker
            for broker, keys in wanted.items()
            if not self._is_silent(broker, now_ms) and not self._answers_this(broker, keys, now_ms, max_age_ms)
        }
        if asked:
            shown = self._cluster.log_dirs(asked, partitions)
            about = frozenset(partitions)
            for broker in asked:
                self._answers.pop(broker, None)
                if broker in shown:
                    self._answers[broker] = _Answer(now_ms, about, shown[broker])
                else:
                    self._silent_since_ms[broker] = now_ms
        return {
            broker: self._answers[broker].rows
            for broker in wanted
            if broker in self._answers and not self._is_silent(broker, now_ms)
        }

    def _is_silent(self, broker: int, now_ms: int) -> bool:
        since_ms = self._silent_since_ms.get(broker)
        if since_ms is not None and is_due(since_ms, SILENCE_MS, now_ms):
            del self._silent_since_ms[broker]
            return False
        return since_ms is not None

    def _answers_this(self, broker: int, keys: Collection[PartitionKey], now_ms: int, max_age_ms: int) -> bool:
        answer = self._answers.get(broker)
        if answer is None or not 0 <= now_ms - answer.read_ms <= max_age_ms:
            return False
        return answer.partitions.issuperset(keys)


ReplicaBytes = Mapping[tuple[int, PartitionKey], int]
"""Size of replicas by (broker, partition)."""


def copied_bytes(
    answers: DiskAnswers, plan: Plan, live: LiveCluster, progress: Mapping[PartitionKey, Progress], *, now_ms: int
) -> ReplicaBytes:
    """Replicas that movements under way have added so far; raises ClusterUnreachable, ClusterRequestFailed."""
    wanted: dict[int, set[PartitionKey]] = {}
    for row in plan.movements:
        if _may_hold_copies(row, live, progress[row.key]):
            for broker in set(row.new_replicas) - set(row.old_replicas):
                wanted.setdefault(broker, set()).add(row.key)
    if not wanted:
        return {}
    return replica_sizes(answers.read(wanted, set().union(*wanted.values()), now_ms=now_ms))


def _may_hold_copies(movement: Movement, live: LiveCluster, state: Progress) -> bool:
    """Returns whether the movement is on its way: moving, or between two steps of a staged move."""
    if state is not Progress.PENDING:
        return state is Progress.MOVING
    return live.partitions[movement.key].replicas != movement.old_replicas


class LogDirAnswers:
    """Log dirs as the brokers of a plan have last shown them. Not for two threads: a caller calls `forget` before
    another execution.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        self._shown: LogDirs = {}
        self._all_ms: int | None = None
        """When all brokers of the plan were asked last."""

    def read_all(self, plan: Plan, *, now_ms: int) -> LogDirs:
        """Returns log dirs of all brokers of the plan that answer. Raises ClusterUnreachable, ClusterRequestFailed."""
        self._shown = self._asked(plan, plan.brokers)
        self._all_ms = now_ms
        return self._shown

    def read(self, plan: Plan, copying: Collection[int], alive: Collection[int], *, now_ms: int) -> LogDirs:
        """What the brokers `copying` show now, and what the others have shown last, or show now if that is too long
        ago. A broker that was away, or did not answer, is asked as those are. Raises as `read_all` does.
        """
        if is_due(self._all_ms, READ_INTERVAL_MS, now_ms):
            return self.read_all(plan, now_ms=now_ms)
        others = {broker: rows for broker, rows in self._shown.items() if broker in alive and broker not in copying}
        asked = [broker for broker in plan.brokers if broker not in others]
        self._shown = {**others, **self._asked(plan, asked)} if asked else others
        return self._shown

    def is_of_all(self, now_ms: int) -> bool:
        """Whether all brokers were asked at this moment."""
        return self._all_ms == now_ms

    def _asked(self, plan: Plan, brokers: Collection[int]) -> LogDirs:
        return self._cluster.log_dirs(brokers, [row.key for row in plan.log_dir_movements])


READ_INTERVAL_MS = 10_000
AMPLE = 2.0
"""An answer of before does where so many times what is copied would fit."""
UNKNOWN_BYTES = 1 << 62
"""More bytes than any disk has: the broker is asked again."""
ASKED_AHEAD_MAX = 1_000
"""Number of movements of the wave that one request covers, at most: the movements that come next need no request of
their own.
"""


class DiskRoom:
    """What the executor knows of disks: the newest answers, and movements that wait for room or were given up. A caller
    calls `forget` before another execution.
    """

    def __init__(self, answers: DiskAnswers, planner: PlannerSettings) -> None:
        self._answers = answers
        self._reserve = planner.disk_reserve
        self._bounded_by_hand = {broker for broker, row in capacities_of(planner).items() if row.disk_bytes}
        self.forget()

    def forget(self) -> None:
        self._waits = WaitsForRoom()
        self._lacking: Mapping[PartitionKey, str] = {}
        self._waits_since_ms: int | None = None
        """When a read has left nothing to submit; None if none has since the last that found something."""
        self._fill_read_ms: int | None = None
        self._full_bytes: dict[PartitionKey, int] = {}
        """What new replicas of partitions will hold, as far as this process has learned."""
        self._ahead: list[PartitionKey] = []
        """What the wave under way may submit next, as of the newest submit."""
        self._answers.forget()

    @property
    def given_up(self) -> Mapping[PartitionKey, str]:
        """Movements that have not fitted for too long, with the reason."""
        return self._waits.given_up

    def held_back(self, now_ms: int) -> str | None:
        """Why nothing is submitted before the next read, or None."""
        is_next = is_due(self._waits_since_ms, READ_INTERVAL_MS, now_ms)
        return None if is_next or not self._lacking else waiting_text(self._lacking)

    def all_fit(
        self,
        plan: Plan,
        live: LiveCluster,
        targets: Mapping[PartitionKey, tuple[int, ...]],
        progress: Mapping[PartitionKey, Progress],
        now_ms: int,
    ) -> bool:
        """Whether these fit together on the disks: asks only the brokers that copy them. If not, `read` shows what else
        of the wave may go instead. Raises as `read` does.
        """
        receiving = {key: set(target) - set(live.partitions[key].replicas) for key, target in targets.items()}
        pending = wave_pending(plan, progress)
        copying = [row for row in pending if receiving.get(row.key)]
        if not copying:
            return True
        self._ahead = [row.key for row in pending[:ASKED_AHEAD_MAX]]
        room = self._room_for(copying, receiving, live, now_ms)
        taken: Counter[int] = Counter()
        for key, row in receiving.items():
            if room.lacking(key, row, taken, leader=live.partitions[key].leader) is not None:
                return False
            taken.update(dict.fromkeys(row, room.replica_bytes.get(key, 0)))
        self._waits = self._waits.without(targets)
        return True

    def read(
        self, plan: Plan, live: LiveCluster, progress: Mapping[PartitionKey, Progress], limits: Limits, now_ms: int
    ) -> RoomLeft:
        """Ask the brokers that the wave under way would copy to; raises ClusterUnreachable, ClusterRequestFailed."""
        pending = wave_pending(plan, progress)
        receiving = {row.key: set(row.new_replicas) - set(row.old_replicas) for row in pending}
        room = self._room_for(pending, receiving, live, now_ms)
        self._lacking = without_room(plan, live, progress, limits, room)
        self._waits = self._waits.after(self._lacking, now_ms)
        self._waits_since_ms = None
        return room

    def submitted(self, live: LiveCluster, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Kafka was asked for these: they take their room from now on, whatever brokers have shown before."""
        for key, target in targets.items():
            self._answers.submitted(key, set(target) - set(live.partitions[key].replicas))

    def overflowing(self, live: LiveCluster, moving: Collection[PartitionKey], now_ms: int) -> list[PartitionKey]:
        """Returns the reassignments among `moving` that no longer fit on a log dir. Every `READ_INTERVAL_MS` the
        function reads the log dirs of brokers that receive and of brokers that lead what is copied there. Raises as
        `read` does.
        """
        self._answers.note(live)
        receiving = {broker for key in moving for broker in live.partitions[key].adding_replicas}
        if not receiving or not is_due(self._fill_read_ms, READ_INTERVAL_MS, now_ms):
            return []
        self._fill_read_ms = now_ms
        partitions = {*moving, *(key for keys in catching_up(live, receiving).values() for key in keys)}
        wanted = _wanted(live, receiving, partitions)
        log_dirs = self._answers.read(wanted, partitions.union(self._ahead), now_ms=now_ms, max_age_ms=0)
        self._answers.note(live)
        return overflowing(live, log_dirs, moving)

    def _room_for(
        self,
        copying: Sequence[Movement],
        receiving: Mapping[PartitionKey, Collection[int]],
        live: LiveCluster,
        now_ms: int,
    ) -> RoomLeft:
        """What is known of disks; brokers are asked now where these copies would take more than a part of the room."""
        brokers = {broker for row in receiving.values() for broker in row}
        room = self._room(copying, brokers, live, now_ms)
        needed: Counter[int] = Counter()
        for key, row in receiving.items():
            needed.update(dict.fromkeys(row, room.replica_bytes.get(key, 0)))
        scarce = {row for row, size in needed.items() if AMPLE * size > (room.broker_bytes.get(row) or 0.0)}
        if any(self._answers.is_older(broker, now_ms) for broker in scarce):
            room = self._room(copying, brokers, live, now_ms, anew=scarce)
        return room

    def _room(
        self,
        pending: Iterable[Movement],
        receiving: Collection[int],
        live: LiveCluster,
        now_ms: int,
        *,
        anew: Collection[int] = (),
    ) -> RoomLeft:
        """What is known of the brokers that receive, and of those that lead what is copied there. Brokers `anew` must
        have answered in this tick.
        """
        self._answers.note(live)
        behind = catching_up(live, receiving)
        partitions = {row.key for row in pending} | {key for keys in behind.values() for key in keys}
        wanted = _wanted(live, receiving, partitions)
        asked_about = partitions.union(self._ahead)
        fresh = {broker: keys for broker, keys in wanted.items() if broker in anew}
        self._answers.read(fresh, asked_about, now_ms=now_ms, max_age_ms=0)
        log_dirs = self._answers.read(wanted, asked_about, now_ms=now_ms)
        self._answers.note(live)  # of the new answers, too
        largest = largest_replicas(log_dirs)
        for row in pending:
            # A leader that does not show its log: what the plan rests on is the best there is.
            added = len(set(row.new_replicas) - set(row.old_replicas))
            largest[row.key] = max(largest.get(row.key, 0), round(row.bytes_to_move / max(1, added)))
        self._full_bytes.update(largest)
        by_broker = rooms(live, log_dirs, behind, reserve=self._reserve)
        ended = self._ended_bytes(log_dirs, behind)
        left = {row: room if room is None else room - ended[row] for row, room in by_broker.items()}
        unbounded = {row for row in self._bounded_by_hand if left.get(row, 0.0) is None}
        silent = silent_brokers(live, log_dirs) & wanted.keys()
        return RoomLeft(left | dict.fromkeys(unbounded, float("inf")), largest, silent)

    def _ended_bytes(self, log_dirs: LogDirs, behind: Mapping[int, Collection[PartitionKey]]) -> Counter[int]:
        """Returns by broker the bytes of copies that have ended since the broker's answer."""
        ended: Counter[int] = Counter()
        for broker in behind.keys() & log_dirs.keys():
            held = replica_sizes({broker: log_dirs[broker]})
            for key in set(self._answers.arriving(broker)).difference(behind[broker]):
                # A copy of somebody else's that was short may have ended before anybody asked how large it is.
                ended[broker] += max(0, self._full_bytes.get(key, UNKNOWN_BYTES) - held.get((broker, key), 0))
        return ended

    def wait(self, now_ms: int) -> None:
        """The read has left nothing to submit."""
        self._waits_since_ms = now_ms


def _wanted(
    live: LiveCluster, receiving: Iterable[int], partitions: Iterable[PartitionKey]
) -> dict[int, set[PartitionKey]]:
    """Brokers to ask: those that receive, and those that lead with what they lead of `partitions`."""
    wanted: dict[int, set[PartitionKey]] = {broker: set() for broker in receiving}
    for key in partitions:
        if (leader := live.partitions[key].leader) != NO_LEADER:
            wanted.setdefault(leader, set()).add(key)
    return wanted
