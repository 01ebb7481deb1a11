"""What an execution sees of the cluster: where each movement stands, tick after tick, and how old that is.

A tick begins with one snapshot. Before something is submitted, or the execution ends, control reads once more: the
partitions that are concerned, or the whole cluster. All reads of one tick count as one snapshot.

`ClusterSnapshot` holds the partitions as last seen. Every snapshot brings the brokers that are alive and all
reassignments. Besides, a snapshot reads the topics that the caller names, those of reassignments that have ended, and
partitions that were in trouble. Everything is read again when brokers have come or gone, and every
`WHOLE_READ_INTERVAL_MS` anyway: trouble of a partition that the plan does not name, with all brokers alive, is seen by
then.

`SnapshotAge` judges the age of a snapshot right before a request is sent. Kafka takes reassignments and elections
without conditions, so a process that stops between its snapshot and its request would ask for what no longer fits:
others have begun copies, or have made a topic again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from assignor_core.execution.accounting import NAMED_MAX, what_was_made
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import (
    NO_SNAPSHOTS,
    PastSnapshots,
    Progress,
    hidden_in_flight,
    is_settled,
    is_troubled,
    progress_among,
    topics_in_play,
    with_skipped,
)
from assignor_core.identity import another_cluster, topics_made_again, without_topics
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, LivePartition, PartitionKey, Reassignment, partition_name
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.wording import counted
from streaming.cluster.ports import ClusterReader
from streaming.control.journal import ExecutionRecord
from streaming.control.obstacles import replaced_broker_back
from streaming.errors import AnotherCluster, SnapshotTooOld

SNAPSHOT_AGE_MAX_MS = 10_000
"""Several times what a snapshot takes."""


class SnapshotAge:
    """One per process that changes a cluster: its lease asks `check` last before each change. Not for two threads.

    A snapshot ages by the clock that ran further since. One clock goes on while the process is stopped; the other is
    set right after the whole machine was paused. Nothing shows a pause after which neither clock is. Without clocks,
    where no lease asks, no snapshot ages.
    """

    def __init__(self, clock: Callable[[], int] = lambda: 0, wall_clock: Callable[[], int] = lambda: 0) -> None:
        self._clocks = (clock, wall_clock)
        self._began_ms = self._read()
        self._last_age_ms = 0
        self._limited = False

    def begin(self) -> None:
        """The next requests rest on what is asked for from now on. Counted from here, not from the answer: the process
        may stop between an answer and its arrival.
        """
        self._began_ms = self._read()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Changes that are asked for in here rest on the snapshot that began last."""
        self._limited = True
        try:
            yield
        finally:
            self._limited = False

    def check(self) -> None:
        """Raises SnapshotTooOld if a limited request rests on a snapshot that is too old: take a new one, then ask
        again.

        A snapshot may be twice as old as the one before it was. So where each snapshot takes long, because a broker
        hangs, the second one is used: a limit that never grows would let nothing be sent.
        """
        if not self._limited:
            return
        age_ms = max(now_ms - began_ms for now_ms, began_ms in zip(self._read(), self._began_ms, strict=True))
        allowed_ms = max(SNAPSHOT_AGE_MAX_MS, 2 * self._last_age_ms)
        self._last_age_ms = age_ms
        if age_ms > allowed_ms:
            raise SnapshotTooOld(
                f"the snapshot of the cluster is {age_ms / 1000:.0f} s old, at most {allowed_ms / 1000:.0f} s are "
                "allowed: nothing was sent"
            )

    def _read(self) -> tuple[int, int]:
        clock, wall_clock = self._clocks
        return clock(), wall_clock()


WHOLE_READ_INTERVAL_MS = 30_000
"""Time between two snapshots of the whole cluster while its brokers stay the same, ms."""
UNSETTLED_INTERVAL_MS = 5_000
"""Time between two snapshots of the whole cluster for half a minute after brokers have come or gone, ms: metadata may
be behind the brokers.
"""
WATCHED_TOPICS_MAX = 50
"""Number of topics with partitions in trouble that each snapshot reads again; a snapshot of the whole cluster
reads all others.
"""

_NONE = LiveCluster("", {}, {})


class ClusterSnapshot:
    """Partitions of the cluster as control last read them; not for two threads. `partitions` are all that are known,
    with their state when they were last asked about.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        """The next snapshot is of the whole cluster."""
        self.partitions: dict[PartitionKey, LivePartition] = {}
        self._numbers: dict[str, list[PartitionKey]] = {}
        """Keys of `partitions` by topic."""
        self._troubled: dict[str, list[PartitionKey]] = {}
        """Keys of partitions in trouble by topic, for topics that have any."""
        self._reassigning: set[PartitionKey] = set()
        """Keys of `partitions` whose partition was being reassigned when the cluster was last asked about it."""
        self._topic_ids: dict[str, str] = {}
        self._hidden: set[str] = set()
        """Topics that may not be described, as requests of this snapshot have named them."""
        self._newest = _NONE
        """The cluster's newest answer."""
        self._ended: set[PartitionKey] = set()
        """Reassignments that are no longer listed, of topics that were not asked about since."""
        self._asked: frozenset[str] | None = frozenset()
        self._whole_ms: int | None = None
        self._settled: tuple[str, Mapping[int, str | None]] | None = None
        """Cluster id and brokers at the last whole snapshot."""
        self._unsettled_ms: int | None = None
        """When brokers had come or gone last."""

    @property
    def is_whole(self) -> bool:
        """Whether this snapshot is of everything."""
        return self._asked is None

    def unread(self, keys: Iterable[PartitionKey]) -> frozenset[str]:
        """Topics of these partitions that this snapshot did not read."""
        return frozenset() if self._asked is None else frozenset(_topics(keys)) - self._asked

    def read(self, topics: Collection[str], *, now_ms: int) -> None:
        """A new snapshot, of these topics at least; raises what `describe` raises."""
        self._hidden.clear()
        if self._whole_read_is_due(now_ms):
            self.read_all(now_ms=now_ms)
            return
        watched = islice(sorted(self._troubled), WATCHED_TOPICS_MAX)
        self._asked = frozenset()
        self.read_also({*topics, *watched, *_topics(self._ended)}, now_ms=now_ms)
        if self._ended and not self.is_whole:
            self.read_also(_topics(self._ended), now_ms=now_ms)

    def read_all(self, *, now_ms: int) -> None:
        """A new snapshot, of the whole cluster."""
        answer = self._cluster.describe()
        self.partitions, self._numbers, self._troubled = {}, {}, {}
        self._topic_ids, self._reassigning = {}, set()
        by_topic: dict[str, dict[PartitionKey, LivePartition]] = {}
        for key, partition in answer.partitions.items():
            by_topic.setdefault(key[0], {})[key] = partition
        self._take_in(answer, by_topic)
        self._ended.clear()
        self._asked = None
        self._whole_ms = now_ms
        self._settled = (answer.cluster_id, answer.broker_racks)

    def read_also(self, topics: Collection[str], *, now_ms: int) -> None:
        """Reads these topics, too; everything if brokers have come or gone."""
        answer = self._cluster.describe(topics)
        by_topic: dict[str, dict[PartitionKey, LivePartition]] = {topic: {} for topic in topics}
        for key, partition in answer.partitions.items():
            by_topic[key[0]][key] = partition
        self._ended |= self._newest.listed.keys() - answer.listed.keys()
        self._take_in(answer, by_topic)
        self._ended = {key for key in self._ended if key[0] not in by_topic}
        self._asked = None if self._asked is None else self._asked | by_topic.keys()
        if (answer.cluster_id, answer.broker_racks) != self._settled:
            self._unsettled_ms = now_ms
            self._whole_ms = None  # if the next line gets no answer, the next snapshot tries again
            self.read_all(now_ms=now_ms)

    def of(self, keys: Iterable[PartitionKey]) -> LiveCluster:
        """Returns the partitions `keys`, all partitions in trouble and all partitions that are being reassigned. A
        caller that decides on the partitions `keys` decides as if every partition were there.
        """
        newest, known = self._newest, self.partitions
        shown = {key: known[key] for key in keys if key in known}
        shown |= {key: known[key] for row in self._troubled.values() for key in row}
        shown |= {key: known[key] for key in newest.listed if key in known}
        for key in (self._reassigning | newest.listed.keys()) & shown.keys():
            shown[key] = _with_list(shown[key], newest.listed.get(key))
        ids, hidden = dict(self._topic_ids), frozenset(self._hidden)
        return LiveCluster(newest.cluster_id, newest.broker_racks, shown, ids, newest.listed, hidden_topics=hidden)

    def _whole_read_is_due(self, now_ms: int) -> bool:
        is_settled = is_due(self._unsettled_ms, WHOLE_READ_INTERVAL_MS, now_ms)
        return is_due(self._whole_ms, WHOLE_READ_INTERVAL_MS if is_settled else UNSETTLED_INTERVAL_MS, now_ms)

    def _take_in(self, answer: LiveCluster, by_topic: Mapping[str, Mapping[PartitionKey, LivePartition]]) -> None:
        """The answer is the truth about these topics: what it leaves out is gone, or hidden."""
        self._newest = answer
        alive = frozenset(answer.broker_racks)
        for topic, rows in by_topic.items():
            for key in self._numbers.pop(topic, ()):
                del self.partitions[key]
                self._reassigning.discard(key)
            self._troubled.pop(topic, None)
            self._topic_ids.pop(topic, None)
            if rows:
                self.partitions.update(rows)
                self._numbers[topic] = list(rows)
            self._reassigning.update(key for key, row in rows.items() if row.adding_replicas or row.removing_replicas)
            troubled = [key for key, partition in rows.items() if is_troubled(partition, alive)]
            if troubled:
                self._troubled[topic] = troubled
        self._topic_ids.update(answer.topic_ids)
        self._hidden |= answer.hidden_topics


def check_same_cluster(before: LiveCluster, again: LiveCluster) -> None:
    """Raises AnotherCluster if the second answer of a tick came from another cluster than the first."""
    other = another_cluster(before.cluster_id, again)
    if other is not None:
        raise AnotherCluster(other)


def _topics(keys: Iterable[PartitionKey]) -> set[str]:
    return {topic for topic, _ in keys}


def _with_list(partition: LivePartition, listed: Reassignment | None) -> LivePartition:
    """Returns the partition with `listed`, the reassignment that the controller lists now, whatever was listed when the
    cluster was asked about the partition.
    """
    if listed is None and not partition.reassigning:
        return partition
    return partition.with_reassignment(listed)


@dataclass(frozen=True, slots=True)
class ExecutionSnapshot:
    """One execution and the cluster as one tick sees them."""

    record: ExecutionRecord
    plan: Plan
    live: LiveCluster
    """What decides on the next step: see `ClusterSnapshot.of`."""
    now_ms: int
    refused: Mapping[PartitionKey, str]
    """Partitions whose move is skipped: Kafka's error, or why no disk has room."""
    not_elected: Mapping[PartitionKey, str]
    """Partitions whose election is skipped, with Kafka's error."""
    progress: Mapping[PartitionKey, Progress] = field(default_factory=dict)
    past: PastSnapshots = NO_SNAPSHOTS
    hidden_in_flight: tuple[PartitionKey, ...] = ()
    """Partitions that metadata misses though the controller lists their move of the plan."""
    made_again: tuple[str, ...] = ()
    """Topics of the plan that were deleted and made again: `live` leaves them out."""
    obsolete: str | None = None
    """Why the rest of the plan is not to be carried out; None if it is."""

    @property
    def execution(self) -> Execution:
        return self.record.execution

    @property
    def moving(self) -> list[PartitionKey]:
        """Partitions of the plan that metadata shows on their way."""
        return [key for key, state in self.progress.items() if state is Progress.MOVING]

    @property
    def in_flight(self) -> list[PartitionKey]:
        """What must be cancelled before the plan is given up: all that moves, also where metadata misses it."""
        return [*self.moving, *self.hidden_in_flight]

    @property
    def result(self) -> str:
        """What was made of the plan, in words."""
        return what_was_made(self.progress, self.refused, self.not_elected) + self.strangers

    @property
    def strangers(self) -> str:
        """Names the topics that only bear the name of an approved one; empty where there are none."""
        named = ", ".join(self.made_again[:NAMED_MAX])
        return f"; deleted and made again, so no topics of this plan any more: {named}" if named else ""

    @property
    def unknown_moves(self) -> str:
        """What may be left in flight of an execution whose movements nobody knows any more."""
        if self.plan.movements:
            return ""
        moving = sorted(self.live.reassigning())
        named = f", first {partition_name(moving[0])}" if moving else ""
        reassigned = counted(len(moving), "partition is being reassigned", "partitions are being reassigned")
        return f"; its movements are not known: {reassigned}{named}"


class ExecutionSnapshots:
    """Snapshots of the cluster for one execution; a caller calls `forget` before another execution. With `staged` a
    partition moves by one new replica at a time.
    """

    def __init__(self, cluster: ClusterReader, *, staged: bool) -> None:
        self._snapshot = ClusterSnapshot(cluster)
        self._staged = staged
        self.forget(None)

    def forget(self, kept: KeptPlan | None) -> None:
        self._topic_ids = {} if kept is None else kept.topic_ids
        observed = None if kept is None else kept.proposed.observed
        self.replaced: frozenset[int] = frozenset() if observed is None else observed.brokers_missing
        self._snapshot.forget()
        self._in_play: frozenset[str] = frozenset()
        self._before = self._past = NO_SNAPSHOTS
        """Counts before this tick, and with it."""
        self._plan: Plan | None = None
        self._movements: dict[PartitionKey, Movement] = {}
        self._states: dict[PartitionKey, Progress] = {}
        """Progress of the plan's movements at the newest snapshot."""
        self._settled: dict[PartitionKey, LivePartition] = {}
        """Partitions of movements that are settled, as the newest snapshot has shown them."""

    @property
    def partitions(self) -> Mapping[PartitionKey, LivePartition]:
        return self._snapshot.partitions

    def live(self, plan: Plan, *, whole: bool, now_ms: int) -> LiveCluster:
        """A new tick asks: what decides on the next step, or (with `whole`) everything; raises what `describe` does."""
        self._before = self._past
        if whole:
            self._snapshot.read_all(now_ms=now_ms)
        else:
            self._snapshot.read(self._in_play, now_ms=now_ms)
        return self._shown(plan)

    def judged(
        self,
        record: ExecutionRecord,
        plan: Plan,
        live: LiveCluster,
        now_ms: int,
        *,
        refused: Mapping[PartitionKey, str],
        not_elected: Mapping[PartitionKey, str],
    ) -> ExecutionSnapshot:
        """What `live` shows of the plan, judged with the snapshots before it."""
        # By their names these would be the plan's. Seen as gone, nothing of them is submitted, elected or cancelled.
        made_again = topics_made_again(self._topic_ids, live)
        live = without_topics(live, made_again)
        changed = self._unsettled(plan, live)
        self._past = self._before.after(plan, live, staged=self._staged, among=changed)
        self._states |= progress_among(changed, live, staged=self._staged, past=self._past)
        self._settle(changed, live)
        progress = with_skipped(self._states, refused, not_elected)
        self._in_play = topics_in_play({row.key: progress[row.key] for row in changed}, live)
        back = replaced_broker_back(plan, live, progress, self.replaced)
        hidden = tuple(hidden_in_flight(changed, progress, live, staged=self._staged))
        return ExecutionSnapshot(
            record, plan, live, now_ms, refused, not_elected, progress, self._past, hidden, made_again, back
        )

    def _unsettled(self, plan: Plan, live: LiveCluster) -> list[Movement]:
        """Movements that this snapshot may show elsewhere than the one before: a few of a plan of thousands."""
        if self._plan is not plan:
            self._plan, self._movements = plan, {row.key: row for row in plan.movements}
            self._states, self._settled = {}, {}
        shown, settled, before = live.partitions.get, self._settled, self._before
        return [
            row
            for key, row in self._movements.items()
            if key not in settled or settled[key] is not shown(key) or before.counts(key)
        ]

    def _settle(self, changed: Iterable[Movement], live: LiveCluster) -> None:
        for row in changed:
            partition = live.partitions.get(row.key)
            if partition is not None and is_settled(row, partition, self._past):
                self._settled[row.key] = partition
            else:
                self._settled.pop(row.key, None)

    def closer(self, snapshot: ExecutionSnapshot, keys: Iterable[PartitionKey], *, whole: bool) -> LiveCluster | None:
        """Returns the cluster after a request for these partitions, or for everything; None if this tick has already
        read all that it would request.
        """
        unread = self._snapshot.unread(keys)
        if whole and not self._snapshot.is_whole:
            self._snapshot.read_all(now_ms=snapshot.now_ms)
        elif unread:
            self._snapshot.read_also(unread, now_ms=snapshot.now_ms)
        else:
            return None
        return self._shown(snapshot.plan)

    def again(self, snapshot: ExecutionSnapshot, keys: Iterable[PartitionKey]) -> LiveCluster:
        """Returns the cluster after another request for these partitions, whether this tick has already read them or
        not.
        """
        self._snapshot.read_also({topic for topic, _ in keys}, now_ms=snapshot.now_ms)
        return self._shown(snapshot.plan)

    def asked_about(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> dict[PartitionKey, tuple[int, ...]]:
        """Returns those of `targets` whose partitions this tick has read."""
        unread = self._snapshot.unread(targets)
        return {key: target for key, target in targets.items() if key[0] not in unread}

    def submitted(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Kafka has taken these. The next snapshots ask about them: a small copy may have ended before the controller
        lists it.
        """
        self._in_play |= {topic for topic, _ in targets}
        self._past = self._past.taken(targets)

    def _shown(self, plan: Plan) -> LiveCluster:
        keys = self._movements if self._plan is plan else [movement.key for movement in plan.movements]
        return self._snapshot.of(keys)
