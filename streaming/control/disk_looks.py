"""Log dirs of brokers as they were shown lately, for one execution: who asks again within seconds gets the same answer.

An answer counts until it is too old. What was on its way to a broker when it answered, or has begun since, still takes
its room, ended or not. What others write meanwhile is not seen: whoever needs to know asks anew (`max_age_ms` 0). A
broker that did not answer is not asked again for a while: each question costs `kafka.request_timeout_ms`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assignor_core.disks import LogDirDescription, catching_up
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, PartitionKey
from streaming.cluster.ports import ClusterReader

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


class DiskLooks:
    """Answers of brokers about their log dirs. Not for two threads: a caller calls `forget` before
    another execution.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        """No answer counts any more."""
        self._answers: dict[int, _Answer] = {}
        self._silent_since_ms: dict[int, int] = {}

    def note(self, live: LiveCluster) -> None:
        """Notes what one more look at the cluster shows: what copies, and which brokers are alive. A broker that is
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
