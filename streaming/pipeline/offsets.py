"""Offsets as Spark notes them, in checkpoints and in progress: topic, partition, next offset. Knows no query."""

import json
from collections.abc import Mapping

from streaming.pipeline.checkpoint_files import CheckpointFiles

Offsets = dict[tuple[str, str], int]
"""Next offset to be read, by topic and partition (both as Spark writes them)."""

_LINES_BEFORE_SOURCES = 2
"""A version and the batch's settings."""


def offsets_of(noted: str | Mapping[str, Mapping[str, int]] | None) -> Offsets:
    """Returns the offsets of one source; empty if there are none, as before the first batch.

    >>> offsets_of('{"load": {"0": 7}}')
    {('load', '0'): 7}
    """
    by_topic = json.loads(noted) if isinstance(noted, str) else noted
    return {
        (topic, partition): offset for topic, rows in (by_topic or {}).items() for partition, offset in rows.items()
    }


def by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the offsets in the form that Spark writes and reads.

    >>> by_topic({("load", "0"): 7, ("load", "1"): 9})
    {'load': {'0': 7, '1': 9}}
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[partition] = offset
    return topics


def planned(checkpoint: CheckpointFiles, batch_id: int) -> Offsets:
    """Returns the offsets where the batch ends, over all sources. Raises OSError if these aren't noted,
    TableUnavailable if an object store doesn't answer.
    """
    lines = checkpoint.read(f"offsets/{batch_id}").splitlines()
    return {key: end for line in lines[_LINES_BEFORE_SOURCES:] for key, end in offsets_of(json.loads(line)).items()}


def records_planned(checkpoint: CheckpointFiles, batch_id: int) -> int:
    """Returns how many records are in the batch at most; offsets that Kafka skips, and in the first batch those before
    the earliest record, are counted too. Raises as `planned` does.
    """
    before = planned(checkpoint, batch_id - 1) if batch_id else {}
    return sum(end - before.get(key, 0) for key, end in planned(checkpoint, batch_id).items())


def newest_planned(checkpoint: CheckpointFiles) -> Offsets:
    """Returns the offsets where the newest batch ends; empty if there has been none. Raises as `planned` does."""
    batches = checkpoint.numbers("offsets")
    return planned(checkpoint, max(batches)) if batches else {}


def watermark_ms(checkpoint: CheckpointFiles, batch_id: int) -> int:
    """Return the watermark with which the batch is planned, 0 before there is one. Raises as `planned` does, and
    ValueError or KeyError where Spark's file has another form.
    """
    settings = json.loads(checkpoint.read(f"offsets/{batch_id}").splitlines()[1])
    return int(settings["batchWatermarkMs"])
