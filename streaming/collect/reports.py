"""Which records are made of a look: of the brokers and groups of one shard, and of these what is due.

It remembers the look before. Pure: it neither reads nor sends.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from streaming.collect.due import DueGroups, DueRates, HeldGroups, HeldRates, all_of, due_groups, due_rates
from streaming.collect.group_table import GroupTable
from streaming.collect.observation import Observation
from streaming.collect.partition_table import PartitionTable
from streaming.collect.rates import Floats, ReplicaRateTable, broker_rates, replica_rates
from streaming.collect.record_bytes import RecordBytes, learned
from streaming.collect.records import broker_records, consumer_lag_records, replica_records
from streaming.collect.shards import WHOLE, Shard
from streaming.settings import TopicSettings

Records = Iterable[tuple[bytes, bytes]]
"""(Key, value) of each."""


class Reports:
    """Makes the records of one look after the other. Not for two threads.

    With `window_ms`, the length of the pipeline's windows, what doesn't change is reported less often (see `due`);
    `interval_ms` is the time from one look to the next as it is set.
    """

    def __init__(
        self, cluster: str, topics: TopicSettings, *, interval_ms: int, window_ms: int | None, shard: Shard = WHOLE
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._interval_ms = interval_ms
        self._window_ms = window_ms
        self._shard = shard
        self._before: Observation | None = None
        self._held: HeldRates | None = None
        self._held_groups: HeldGroups | None = None
        self._record_bytes: RecordBytes | None = None
        self._followers_serve = False
        self._unread: Floats | None = None
        self._made: (
            tuple[Observation, HeldRates | None, HeldGroups | None, RecordBytes | None, bool, Floats | None] | None
        ) = None

    @property
    def partitions_before(self) -> PartitionTable | None:
        """Partitions of the look that the next look is compared with; None before the first."""
        return None if self._before is None else self._before.partitions

    def of(self, after: Observation) -> Iterator[tuple[str, Records]]:
        """Records of a look by topic; the first look has no rates, as these need two.

        Until `arrived` is called, the next look is compared with the one before.
        """
        before, held, known = self._before, None, None
        followers_serve, unread = self._followers_serve, self._unread
        groups, held_groups = self._due_groups(after)
        for due in groups:
            yield self._topics.consumer_lag, consumer_lag_records(self._cluster, due.seen, due.names)
        if before is not None:
            known = learned(self._record_bytes, before, after)
            replicas = replica_rates(
                before, after, self._shard, known=known, followers_known=followers_serve, unread=unread,
                own_topics=(self._topics.byte_rate, self._topics.consumer_lag),
            )  # fmt: skip
            followers_serve, unread = replicas.followers_serve, replicas.unread
            brokers = broker_rates(before, after, replicas, self._shard)
            due_now, held = self._due_rates(replicas, after.time_ms, after.time_ms - before.time_ms)
            for rates in due_now:
                yield self._topics.byte_rate, replica_records(self._cluster, rates)
            yield self._topics.byte_rate, broker_records(self._cluster, before, after, brokers)
        self._made = after, held, held_groups, known, followers_serve, unread

    def arrived(self) -> None:
        """The records made last have been sent: the next look is compared with theirs."""
        if self._made is not None:
            (
                self._before, self._held, self._held_groups, self._record_bytes, self._followers_serve, self._unread
            ) = self._made  # fmt: skip

    def _due_groups(self, after: Observation) -> tuple[list[DueGroups], HeldGroups | None]:
        """What is reported of groups now, and what is held back."""
        own = after if self._shard.is_whole else replace(after, groups=self._groups_of_shard(after))
        if self._window_ms is None:
            return [DueGroups(own, own.groups)], None
        passed_ms = after.time_ms - self._before.time_ms if self._before else 0
        next_ms = after.time_ms + max(passed_ms, self._interval_ms)
        return due_groups(self._held_groups, own, window_ms=self._window_ms, next_ms=next_ms)

    def _groups_of_shard(self, after: Observation) -> GroupTable:
        return GroupTable({name: view for name, view in after.groups.items() if self._shard.takes_group(name)})

    def _due_rates(
        self, replicas: ReplicaRateTable, time_ms: int, interval_ms: int
    ) -> tuple[list[DueRates], HeldRates | None]:
        """What is reported of the replicas now, and what is held back."""
        if self._window_ms is None:
            return [all_of(replicas, time_ms, interval_ms)], None
        next_ms = time_ms + max(interval_ms, self._interval_ms)
        return due_rates(self._held, replicas, time_ms, interval_ms, window_ms=self._window_ms, next_ms=next_ms)
