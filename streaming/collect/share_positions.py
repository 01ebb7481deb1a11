"""How far share groups are, as one offset a partition: log end less lag. Knows no request.

The start offset of a share-partition stays behind what is done (brokers move it in steps), so it is no measure of
progress. Log end and lag are read one after the other: records written in between would look like a step back.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from streaming.cluster.described_groups import ShareOffsets
from streaming.collect.group_table import GroupView
from streaming.collect.partition_table import PartitionKey, PartitionTable


@dataclass(slots=True)
class SharePositions:
    """Remembers start offset and position of each share group's partitions that were read last. Not for two threads.

    Without a lag from the broker (before 4.2) the position is the start offset; with one that it does not know there
    is none.
    """

    _seen: dict[str, dict[PartitionKey, tuple[int, int]]] = field(default_factory=dict)

    def placed(self, group: str, view: GroupView, partitions: PartitionTable) -> GroupView:
        """The view of a share group with its positions; that of another group as it is.

        A position goes back only if its start offset does, as when the group is reset, or if the log now ends before
        it: the topic was deleted and made again.
        """
        return replace(view, committed=self._of(group, view.share, partitions)) if view.share else view

    def _of(self, group: str, offsets: ShareOffsets, partitions: PartitionTable) -> dict[PartitionKey, int]:
        before = self._seen.get(group, {})
        seen: dict[PartitionKey, tuple[int, int]] = {}
        for key, start in offsets.starts.items():
            log_end = partitions.log_end_of(key)
            position = _position(start, offsets.lags.get(key), log_end) if offsets.lags else start
            if position is None:
                continue
            start_before, position_before = before.get(key, (start, position))
            is_same_log = start >= start_before and (log_end is None or position_before <= log_end)
            seen[key] = (start, max(position, position_before) if is_same_log else position)
        self._seen[group] = seen
        return {key: position for key, (_, position) in seen.items()}

    def forget_others(self, groups: Collection[str]) -> None:
        """Only these groups are there."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in groups}


def _position(start: int, lag: int | None, log_end: int | None) -> int | None:
    if lag is None or log_end is None:
        return None
    return max(start, log_end - lag)
