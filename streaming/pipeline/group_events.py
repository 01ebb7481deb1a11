"""Keeps `group_event`: rebalances between each closed window of `group_lag` and the one before. Without Spark.

A job of the pipeline's upkeep. What is written carries the newest window compared, so comparing the same windows again
writes nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pyarrow import compute as pc

from assignor_core.group.events import GroupEvent, GroupSample, group_events
from streaming import tables
from streaming.contract import GROUP_EVENT, GROUP_LAG
from streaming.settings import PipelineSettings
from streaming.views.group_history import SAMPLE_COLUMNS, NewestGroupSamples

LOOK_BACK_WINDOWS = 60
"""Most windows that a call reads, and how far back a start reads; a group unseen for longer begins as a new one."""

_COLUMNS = [*SAMPLE_COLUMNS, "is_final"]

Row = Mapping[str, Any]


class GroupEventKeeper:
    """Appends what is new."""

    def __init__(self, root: str, cluster_name: str, settings: PipelineSettings) -> None:
        self._root = root
        self._cluster = cluster_name
        self._window_ms = settings.window_ms
        self._compared: datetime | None = None
        self._samples = NewestGroupSamples.empty()
        self._reader = tables.TableReader(root)

    def keep(self) -> int:
        """Compare windows that have closed since the last call that succeeded; returns the number of new events."""
        self._reader.look_again()
        span = self._span()
        if span is None:
            return 0
        oldest, newest = span
        window = timedelta(milliseconds=self._window_ms)
        start = max(oldest, newest - LOOK_BACK_WINDOWS * window)
        if self._compared is not None:
            # Also after a long silence, or its events would be lost for good: so many windows at each call.
            start = max(oldest, self._compared + window)
            newest = min(newest, start + LOOK_BACK_WINDOWS * window)
        known, events, compared = self._samples, list[Row](), self._compared
        while start <= newest:
            # One at a time: a window of a large cluster is all that is ever in memory.
            where = tables.of_cluster(self._cluster) & tables.equal("window_start", start)
            rows = self._reader.encoded(GROUP_LAG.name, columns=_COLUMNS, where=where)
            if not pc.all(pc.fill_null(rows["is_final"], False), min_count=0).as_py():
                break
            # Without groups last seen too long before: names come and go, and would be kept for good.
            oldest_ms = tables.to_ms(start) - LOOK_BACK_WINDOWS * self._window_ms
            samples, before = NewestGroupSamples.of(rows), known.seen_since(oldest_ms)
            events += self._events(start, samples, before)
            known = samples.and_unseen(before)
            compared, start = start, start + window
        fresh = events if self._compared else self._not_kept(events)
        if fresh and compared is not None:
            tables.append(
                self._root, GROUP_EVENT.name, fresh, transaction_id=f"group_event:{self._cluster}",
                transaction_version=tables.to_ms(compared),
            )  # fmt: skip
        self._samples, self._compared = known, compared
        return len(fresh)

    def _events(self, start: datetime, samples: NewestGroupSamples, before: NewestGroupSamples) -> Iterator[Row]:
        """Events of one window, by group."""
        for group, sample_before, sample in samples.changed_since(before):
            for event in group_events([sample_before, sample]):
                yield {
                    "kafka_cluster": self._cluster,
                    "window_start": start,
                    "group_id": group,
                    **_columns(event, sample),
                }

    def _span(self) -> tuple[datetime, datetime] | None:
        """Oldest window of any cluster and newest of this one; None where there is none yet.

        Another cluster may be ahead: windows that this one has not yet written would count as compared.
        """
        delta = tables.current_table(self._root, GROUP_LAG.name)
        if delta is None:
            return None
        oldest = pc.min(tables.file_statistics(delta, "window_start")["least"]).as_py()
        newest = self._reader.newest_of_cluster(GROUP_LAG.name, "window_start", self._cluster)
        return None if oldest is None or newest is None else (oldest, newest)

    def _not_kept(self, events: Sequence[Row]) -> Sequence[Row]:
        """After a start: events of windows later than the newest that has any."""
        if not events:
            return events
        where = tables.of_cluster(self._cluster) & tables.at_least("window_start", events[0]["window_start"])
        kept = tables.read(self._root, GROUP_EVENT.name, columns=["window_start"], where=where)
        newest = max((row["window_start"] for row in kept), default=None)
        return [event for event in events if newest is None or event["window_start"] > newest]


def _columns(event: GroupEvent, sample: GroupSample) -> Row:
    return {
        "after_ms": event.after_ms,
        "until_ms": event.until_ms,
        "cause": event.cause.value,
        "group_state": sample.state,
        "generation_id": sample.generation_id,
        "rebalances": event.rebalances,
        "members": len(sample.members),
        "members_in_json": json.dumps(event.members_in),
        "members_out_json": json.dumps(event.members_out),
        "restarts": len(event.restarted),
        "partitions_moved": event.partitions_moved,
        "partitions_unowned": event.partitions_unowned,
        "partitions_owned": event.stopped_if_eager,
        "names_in_json": json.dumps(event.names_in),
        "names_out_json": json.dumps(event.names_out),
    }
