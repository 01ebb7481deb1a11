"""Log starts: on the leader's disk, and in remote storage, which holds what is older (KIP-405). Pure.

Each look asks for the first offset on the leader's disk. The log start is never above it, and neither goes back. So if
both were the same at the look before and the first local offset has not moved, both are the same still. Only about the
other partitions brokers are asked again: about those that remote storage holds a part of, and those that have lost
their oldest segment since. The configuration of topics is not needed.
"""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from streaming.cluster.answer_columns import TopicRows
from streaming.cluster.offset_requests import Led
from streaming.collect.partition_table import UNKNOWN, Ints, PartitionNames, PartitionTable, column_at


def settled_starts(
    before: PartitionTable | None, topic_ids: Mapping[str, str], broker: int, led: Led, local: TopicRows | None
) -> tuple[TopicRows | None, Led]:
    """(Rows of `local` that are log starts, too; what the broker is still to be asked about).

    `local` are the first offsets on the disk of `broker`, which leads `led`; None where it has not answered.
    """
    if before is None or local is None:
        return None, led
    names = PartitionNames(local.topics, local.topic, local.column("index"))
    row = before.rows_with_ids(names, map(topic_ids.get, local.topics))
    offset = local.column("offset")
    settled = (row >= 0) & (local.rows["error"] == 0) & (column_at(before.leader, row) == broker)
    settled &= (column_at(before.local_start, row) == offset) & (column_at(before.start, row) == offset)
    left: dict[str, list[int]] = defaultdict(list)
    for topic, number in zip(local.topic[~settled].tolist(), local.rows["index"][~settled].tolist(), strict=True):
        left[local.topics[topic]].append(number)
    return TopicRows(local.topics, local.topic[settled], local.rows[settled]), left


def local_starts(before: PartitionTable | None, after: PartitionTable, local: Ints) -> Ints:
    """`local` in the order of `after`; where a broker doesn't answer that question, the log start.

    A part of a log that is known to lie in remote storage is not taken back so: there it stays unknown.
    """
    if before is None:
        return np.where(local == UNKNOWN, after.start, local)
    row = before.rows_of_same_topics(after)
    was_tiered = column_at(before.start, row) < column_at(before.local_start, row)
    return np.where((local == UNKNOWN) & ~was_tiered, after.start, local)
