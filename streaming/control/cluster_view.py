"""The cluster as the execution under way knows it: everything at times, in between what may have changed.

Every look brings the brokers that are alive and all reassignments. Besides, a look asks about the topics that the
caller names, about those of reassignments that have ended, and about partitions that were in trouble. Everything is
asked about again when brokers have come or gone, and every `WHOLE_LOOK_INTERVAL_MS` anyway: trouble of a partition that
the plan does not name, with all brokers alive, is seen by then.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from assignor_core.execution.attention import is_troubled
from assignor_core.identity import another_cluster
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, LivePartition, PartitionKey, Reassignment
from streaming.cluster.ports import ClusterReader
from streaming.errors import AnotherCluster

WHOLE_LOOK_INTERVAL_MS = 30_000
"""Time between two looks at the whole cluster while its brokers stay the same, ms."""
UNSETTLED_INTERVAL_MS = 5_000
"""Time between two looks at the whole cluster for half a minute after brokers have come or gone, ms: metadata may be
behind the brokers.
"""
WATCHED_TOPICS_MAX = 50
"""Number of topics with partitions in trouble that each look reads again; a look at the whole cluster
reads all others.
"""

_NONE = LiveCluster("", {}, {})


class ClusterView:
    """Partitions of the cluster as control last saw them; not for two threads. `partitions` are all that are known,
    with their state when they were last asked about.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        """The next look is at the whole cluster."""
        self.partitions: dict[PartitionKey, LivePartition] = {}
        self._numbers: dict[str, list[PartitionKey]] = {}
        """Keys of `partitions` by topic."""
        self._troubled: dict[str, list[PartitionKey]] = {}
        """Keys of partitions in trouble by topic, for topics that have any."""
        self._reassigning: set[PartitionKey] = set()
        """Keys of `partitions` whose partition was being reassigned when the cluster was last asked about it."""
        self._topic_ids: dict[str, str] = {}
        self._hidden: set[str] = set()
        """Topics that may not be described, as this look has asked about them by name."""
        self._newest = _NONE
        """The cluster's newest answer."""
        self._ended: set[PartitionKey] = set()
        """Reassignments that are no longer listed, of topics that were not asked about since."""
        self._asked: frozenset[str] | None = frozenset()
        self._whole_ms: int | None = None
        self._settled: tuple[str, Mapping[int, str | None]] | None = None
        """Cluster id and brokers at the last whole look."""
        self._unsettled_ms: int | None = None
        """When brokers had come or gone last."""

    @property
    def is_whole(self) -> bool:
        """Whether this look was at everything."""
        return self._asked is None

    def unasked(self, keys: Iterable[PartitionKey]) -> frozenset[str]:
        """Topics of these partitions that this look was not at."""
        return frozenset() if self._asked is None else frozenset(_topics(keys)) - self._asked

    def look(self, topics: Collection[str], *, now_ms: int) -> None:
        """A new look, at these topics at least; raises what `describe` raises."""
        self._hidden.clear()
        if self._whole_look_is_due(now_ms):
            self.look_at_all(now_ms=now_ms)
            return
        watched = islice(sorted(self._troubled), WATCHED_TOPICS_MAX)
        self._asked = frozenset()
        self.ask({*topics, *watched, *_topics(self._ended)}, now_ms=now_ms)
        if self._ended and not self.is_whole:
            self.ask(_topics(self._ended), now_ms=now_ms)

    def look_at_all(self, *, now_ms: int) -> None:
        """A new look, at the whole cluster."""
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

    def ask(self, topics: Collection[str], *, now_ms: int) -> None:
        """Look at these topics, too; at everything where brokers have come or gone."""
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
            self._whole_ms = None  # if the next line gets no answer, the next look tries again
            self.look_at_all(now_ms=now_ms)

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

    def _whole_look_is_due(self, now_ms: int) -> bool:
        is_settled = is_due(self._unsettled_ms, WHOLE_LOOK_INTERVAL_MS, now_ms)
        return is_due(self._whole_ms, WHOLE_LOOK_INTERVAL_MS if is_settled else UNSETTLED_INTERVAL_MS, now_ms)

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
