"""Reads last stable offsets: where an open transaction holds back consumers that read committed records alone.

A broker is asked only about partitions where the answer may matter, with one request more. A group has committed less
than the log holds, and either has committed nothing since the look before, or the topic had an open transaction at an
earlier look. Without the topic of transactions no producer has ever begun one, and no broker is asked. A cluster that
hides its internal topics may have that topic.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import structlog
from kafka.errors import KafkaError

from streaming.cluster.answer_columns import TopicRows
from streaming.cluster.broker_reads import BrokerReads
from streaming.collect.group_table import GroupRows, GroupTable
from streaming.collect.look import Look
from streaming.collect.partition_table import Ints, PartitionKey, PartitionNames, PartitionTable, column_at
from streaming.collect.shards import WHOLE, Shard

log = structlog.get_logger()

CONSUMER_OFFSETS, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"


@dataclass(slots=True)
class StableOffsets:
    """Remembers what groups had committed at the look before, and which topics had open transactions.

    Only partitions that groups of the shard read are asked about. Not for two threads.
    """

    _shard: Shard = WHOLE
    _committed: tuple[GroupRows, Ints] | None = None
    _transactional: set[str] = field(default_factory=set)

    def read(
        self, reads: BrokerReads, look: Look, groups: GroupTable, partitions: PartitionTable
    ) -> dict[PartitionKey, int]:
        """Last stable offset by partition, where it is below the log end of this look."""
        topics = partitions.names.topics
        if TRANSACTION_STATE not in topics and CONSUMER_OFFSETS in topics:
            return {}
        rows = self._rows_asked(groups, partitions)
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        leaders = partitions.leader[rows].tolist()
        for leader, (topic, number) in zip(leaders, partitions.names.keys_of_rows(rows.tolist()), strict=True):
            if leader in look.racks:
                by_leader[leader][topic].append(number)

        def of_broker(broker: int) -> TopicRows | None:
            try:
                return look.ask(broker, partial(reads.last_stable_offsets, broker, by_leader[broker]))
            except KafkaError as error:
                log.warning("last_stable_offsets_unread", broker=broker, error=type(error).__name__)
                return None

        found: dict[PartitionKey, int] = {}
        for answer in look.of_each(by_leader, of_broker).values():
            found |= _below_end(answer, partitions) if answer is not None else {}
        self._transactional = (self._transactional | {topic for topic, _ in found}).intersection(topics)
        return found

    def _rows_asked(self, groups: GroupTable, partitions: PartitionTable) -> Ints:
        """Partitions where an open transaction may explain why a group is behind."""
        rows, committed = groups.committing
        before, self._committed = self._committed, (rows, committed)
        row = partitions.rows_of(rows.names)
        is_behind = (committed >= 0) & (committed < column_at(partitions.end, row))
        if not self._shard.is_whole:
            own = np.array([self._shard.takes_group(name) for name in groups], dtype=bool)
            is_behind &= own[rows.group]
        is_transactional = np.array([name in self._transactional for name in rows.names.topics], dtype=bool)
        may_wait = is_transactional[rows.names.topic] if len(is_transactional) else np.zeros(len(row), dtype=bool)
        if before is not None:
            may_wait |= column_at(before[1], rows.rows_in(before[0])) == committed
        return np.unique(row[is_behind & may_wait])


def _below_end(answer: TopicRows, partitions: PartitionTable) -> dict[PartitionKey, int]:
    """Last stable offsets of an answer. The log may have grown since its end was read: then all before it is stable."""
    names = PartitionNames(answer.topics, answer.topic, answer.column("index"))
    offset = answer.column("offset")
    end = column_at(partitions.end, partitions.rows_of(names))
    held = np.flatnonzero((answer.column("error") == 0) & (offset >= 0) & (offset < end)).tolist()
    return dict(zip(names.keys_of_rows(held), offset[held].tolist(), strict=True))
