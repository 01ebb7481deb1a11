"""How many partitions the state of the window queries has, and how that number changes without losing a window.

Spark freezes the number of state partitions (`spark.sql.shuffle.partitions`) into a checkpoint. To change the number,
the queries begin new checkpoints beside the old ones. A new checkpoint has no state, so it reads again what the open
windows are made of:

- The newest batch that the old checkpoint has planned names a watermark. Spark drops every record of a window that ends
  at or before it, so only the window that holds the watermark and later ones can still change.
- Kafka's timestamp of an accepted record is at most `PipelineSettings.skew_max_ms` earlier than its event time. So the
  first offset at or after the start of that window, less this bound, comes before all records of open windows.
- Two windows and one `watermark_ms` more are read: rates of counters need the samples of the window before, and the
  watermark or the bound may have been set to other values since.
- No record that the old checkpoint has not finished is skipped: reading begins no later than the newest finished batch.

Nothing is counted twice. The rows of windows are absolute: a row is replaced only by one of at least as many samples,
and a final row stays. The new query has an id of its own, so tables take its batches for new ones. The offsets are
noted in the same file, in the same write, as the change itself. After a kill the next start uses them again.
"""

import shutil
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from streaming.errors import RefusedForSafety
from streaming.pipeline.checkpoints import (
    BEGIN,
    GENERATION,
    MADE_WITH,
    NOTED_SINCE,
    STATE_PARTITIONS,
    TWO_WAYS_OUT,
    WINDOW_QUERIES,
    CheckpointFiles,
    Offsets,
    begin_of,
    by_topic,
    folder_name,
    generation_of,
    note,
    noted,
    planned,
    query_files,
    watermark_ms,
)
from streaming.settings import PipelineSettings
from streaming.tables.places import local_folder

log = structlog.get_logger()

LEAST, MOST = 2, 200
"""Bounds of a number that is derived from cores: each partition has files of its own, in every batch."""
WINDOWS_BEFORE = 2
EARLIEST = -2
"""Kafka's and Spark's number for the first record that there is."""

FirstOffsets = Callable[[Collection[tuple[str, str]], int], Mapping[tuple[str, str], int]]
"""The first offset at or after a time, ms, of each of these partitions that has one."""


def settle_state_partitions(
    checkpoints: str, settings: PipelineSettings, *, cores: int, first_offsets: FirstOffsets
) -> int:
    """Return the number of state partitions to start the window queries with; begins new checkpoints if it changes.

    A number that is set wins, then that of the checkpoints, then one for each of the executors' `cores`. Call it after
    `guards.check_fingerprint`. Raises RefusedForSafety where the old checkpoints can't be read, else as `first_offsets`
    does; then nothing has changed.
    """
    content = noted(checkpoints)
    assert content is not None, "check_fingerprint has noted what the checkpoints are made with"
    before = content[MADE_WITH].get(STATE_PARTITIONS)
    number: int = settings.shuffle_partitions or before or max(LEAST, min(cores, MOST))
    if number != before:
        made_with = {MADE_WITH: {**content[MADE_WITH], STATE_PARTITIONS: number}}
        began = {} if before is None else _new_generation(checkpoints, content, settings, first_offsets)
        note(checkpoints, {**content, **made_with, **began})
        if began:
            log.info("state_partitions_changed", before=before, now=number, reads_from=began[BEGIN])
    _remove_older(checkpoints, generation_of(checkpoints))
    return number


def begins_of(checkpoints: str, partitions_now: Callable[[], Mapping[str, Collection[int]]]) -> dict[str, Offsets]:
    """Return where each window query begins to read, if its checkpoint has no batch yet and it does not begin at the
    start of its topics: every partition of these topics, those that the checkpoint before did not know from their
    start. `partitions_now` returns the partitions of each topic, and is called only if needed.
    """
    found = {query: begin_of(checkpoints, query) for query in WINDOW_QUERIES}
    fresh = {
        query: offsets
        for query, offsets in found.items()
        if offsets and not query_files(checkpoints, query).numbers("offsets")
    }
    now = partitions_now() if fresh else {}
    return {
        query: {
            (topic, str(partition)): offsets.get((topic, str(partition)), EARLIEST)
            for topic in {topic for topic, _ in offsets}
            for partition in now.get(topic, ())
        }
        for query, offsets in fresh.items()
    }


def _new_generation(
    checkpoints: str, content: Mapping[str, Any], settings: PipelineSettings, first_offsets: FirstOffsets
) -> dict[str, Any]:
    begin = {query: by_topic(_begin(checkpoints, query, settings, first_offsets)) for query in WINDOW_QUERIES}
    return {
        GENERATION: int(content.get(GENERATION, 0)) + 1,
        BEGIN: begin,
        NOTED_SINCE: dict.fromkeys(WINDOW_QUERIES, 0),
    }


def _begin(checkpoints: str, query: str, settings: PipelineSettings, first_offsets: FirstOffsets) -> Offsets:
    """Offsets before all records of open windows and before all records that the query has not finished."""
    files = query_files(checkpoints, query)
    try:
        newest = max(files.numbers("offsets"), default=None)
        watermark = None if newest is None else watermark_ms(files, newest)
        if newest is None or not watermark:  # no window has been closed
            return begin_of(checkpoints, query)
        finished = newest if newest in files.numbers("commits") else newest - 1
        ends = planned(files, finished)
    except (OSError, ValueError, KeyError) as error:
        raise RefusedForSafety(
            f"{STATE_PARTITIONS} has changed, and the checkpoint {files.place} can't be read ({type(error).__name__}): "
            + TWO_WAYS_OUT
        ) from None
    oldest_open_ms = watermark - watermark % settings.window_ms
    margin_ms = WINDOWS_BEFORE * settings.window_ms + settings.watermark_ms + settings.skew_max_ms
    found = first_offsets(ends.keys(), max(0, oldest_open_ms - margin_ms))
    return {key: min(end, found.get(key, end)) for key, end in ends.items()}


def _remove_older(checkpoints: str, in_use: int) -> None:
    """Remove checkpoints of generations before the one in use from a folder, once that one has finished a batch."""
    folder = local_folder(checkpoints)
    if folder is None:
        return
    for query in WINDOW_QUERIES:
        if CheckpointFiles(checkpoints).below(folder_name(query, in_use)).numbers("commits"):
            for generation in range(in_use):
                shutil.rmtree(folder / folder_name(query, generation), ignore_errors=True)
