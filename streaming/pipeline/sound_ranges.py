"""Offsets that the window queries have read without a single misfit, so that nobody parses them a second time.

The source is Spark's progress of those queries, which this process keeps: after a restart nothing is known. This module
knows neither what a misfit is nor where it is written.
"""

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from streaming.errors import TableUnavailable
from streaming.pipeline.checkpoint_files import CheckpointFiles
from streaming.pipeline.offsets import Offsets, offsets_of, planned
from streaming.pipeline.records import ACCEPTED_ROWS, REJECTED_ROWS

EARLIEST = 0
"""Stands for the beginning of a partition's first batch, which is the earliest record there was."""
POLL_INTERVAL_S = 0.5


class ReportsProgress(Protocol):
    """The part of a streaming query that is used here."""

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether the query still runs."""

    @property
    def status(self) -> Mapping[str, Any]:
        """What the query does now: `isTriggerActive` while it works on a batch."""

    @property
    def recentProgress(self) -> Sequence[Any]:  # noqa: N802
        """Reports of its newest batches, oldest first."""


class Range(Enum):
    """What is known of a range of offsets."""

    SOUND = "read, every record fitted"
    SUSPECT = "a misfit is in it or near it, or nothing is known"
    UNREAD = "not read to its end yet"


def wait_until_read(
    queries: Sequence[ReportsProgress],
    checkpoint: CheckpointFiles,
    batch_id: int,
    *,
    patience_s: float,
    patience_busy_s: float,
    begin: Offsets | None = None,
) -> Range:
    """What is known of the batch that `checkpoint` has planned; waits until the window queries have read it. `begin`
    has the offsets at which the first batches of the window queries begin, where they don't begin at the earliest.

    It waits `patience_s` for queries that stand still, and `patience_busy_s` as long as one of them works on a batch.
    """
    try:
        end = planned(checkpoint, batch_id)
        start = planned(checkpoint, batch_id - 1) if batch_id else {}
    except (OSError, ValueError, TableUnavailable):  # no longer there, or not to be read now
        return Range.SUSPECT
    began_s = busy_s = time.monotonic()
    while (
        known := judge([report for query in queries for report in query.recentProgress], start, end, begin)
    ) is Range.UNREAD:
        now_s = time.monotonic()
        if any(query.status["isTriggerActive"] for query in queries):
            busy_s = now_s
        has_waited = now_s - busy_s >= patience_s or now_s - began_s >= patience_busy_s
        if has_waited or not all(query.isActive for query in queries):
            break
        time.sleep(POLL_INTERVAL_S)
    return known


def judge(reports: Sequence[Any], begin: Offsets, end: Offsets, first: Offsets | None = None) -> Range:
    """Judge the range from `begin` to `end` by progress reports of queries that read each partition in order, one query
    a topic. `first` has the offsets at which their first batches begin, where they don't begin at the earliest.

    >>> report = {
    ...     "durationMs": {"addBatch": 9}, "observedMetrics": {"judged": {"rejected_rows": 0, "accepted_rows": 50}},
    ...     "sources": [{"startOffset": None, "endOffset": '{"load": {"0": 50}}'}],
    ... }
    >>> judge([report], {}, {("load", "0"): 50}), judge([report], {}, {("load", "0"): 51})
    (<Range.SOUND: 'read, every record fitted'>, <Range.UNREAD: 'not read to its end yet'>)
    """
    sound: dict[tuple[str, str], tuple[int, int]] = {}
    for report in reports:
        if "addBatch" in report["durationMs"]:
            _extend(sound, report, first or {})
    wanted = {key: (begin.get(key, EARLIEST), stop) for key, stop in end.items() if stop > begin.get(key, EARLIEST)}
    if any(key not in sound or sound[key][1] < stop for key, (_, stop) in wanted.items()):
        return Range.UNREAD
    return Range.SOUND if all(sound[key][0] <= start for key, (start, _) in wanted.items()) else Range.SUSPECT


def _extend(sound: dict[tuple[str, str], tuple[int, int]], report: Mapping[str, Any], first: Offsets) -> None:
    """Extends each partition's newest unbroken range; the range is empty at the end of a batch with misfits."""
    observed = dict(report["observedMetrics"]).values()
    # The figures of a batch that nobody evaluated are zero.
    counted = sum(row[ACCEPTED_ROWS] for row in observed)
    all_fitted = counted > 0 and not any(row[REJECTED_ROWS] for row in observed)
    for source in report["sources"]:
        begin, end = offsets_of(source["startOffset"]), offsets_of(source["endOffset"])
        for key, stop in end.items():
            start = begin.get(key, max(EARLIEST, first.get(key, EARLIEST)))
            known = sound.get(key)
            unbroken_since = known[0] if known and known[1] == start else start
            sound[key] = (unbroken_since if all_fitted else stop, stop)
