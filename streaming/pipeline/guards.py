"""What must hold for a checkpoint to be gone on with: the same windows, the same topics, one pipeline at a time.

Beside the checkpoints lies one file with what they were made with. Spark itself notices none of these changes (window
length, a topic deleted and made again with more records than were read), it goes on and is wrong. This module knows
checkpoints, topic ids and how long the tables' windows are, not what the queries compute.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc

from streaming import tables
from streaming.contract import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD
from streaming.errors import RefusedForSafety, TableUnavailable, UsageProblem
from streaming.pipeline.offsets import Offsets, newest_planned
from streaming.runtime.locks import exclusive
from streaming.settings import Settings
from streaming.tables.places import local_folder

FINGERPRINT = "fingerprint.json"
WINDOWS_VERSION = 2
"""To be raised with any change of keys, aggregates or sources that an older checkpoint's state can't be read with."""

TWO_WAYS_OUT = (
    "set it back, or name a new folder in storage.checkpoints: it reads the topics from their start, and a window that "
    "is fuller in the tables stays as it is"
)
WAYS_OUT_OF_WINDOWS = (
    "set it back, or name new folders in storage.checkpoints and storage.tables both: windows of two lengths in one "
    "table would count everything twice"
)
TABLES_OF_QUERIES = {"consumer_lag": (GROUP_LAG,), "byte_rate": (PARTITION_LOAD, BROKER_LOAD)}


class DescribesTopics(Protocol):
    """What is used of an admin client."""

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        """Metadata of the topics, with their ids."""


@contextmanager
def only_pipeline(settings: Settings) -> Iterator[None]:
    """While this holds no other pipeline can use these checkpoints; raises RefusedForSafety where one does."""
    with exclusive(settings.storage.checkpoints, "pipeline") as ours:
        if not ours:
            raise RefusedForSafety(f"another pipeline is running on the checkpoints in {settings.storage.checkpoints}")
        yield


def check_fingerprint(settings: Settings, topic_ids: Mapping[str, str]) -> None:
    """Compare with what the checkpoints were made with, or note it at the first start; raises RefusedForSafety."""
    file = _fingerprint_file(settings)
    if file is None:
        return  # no file of ours there; Spark's own checks remain
    wanted = fingerprint(settings)
    if not file.exists():
        _write(file, {"made_with": wanted, "topic_ids": dict(topic_ids)})
        return
    noted = _read(file)
    for key in sorted({*wanted, *noted["made_with"]}):
        value, found = wanted.get(key), noted["made_with"].get(key)
        if found != value:
            raise RefusedForSafety(
                f"{key} is {value!r}, the checkpoints in {settings.storage.checkpoints} were made with {found!r}: "
                + (WAYS_OUT_OF_WINDOWS if key == "pipeline.window_ms" else TWO_WAYS_OUT)
            )
    check_topic_ids(settings, topic_ids)
    if topic_ids.keys() - noted["topic_ids"].keys():  # not known at an earlier version's start
        _write(file, noted | {"topic_ids": {**topic_ids, **noted["topic_ids"]}})


def check_topic_ids(settings: Settings, topic_ids: Mapping[str, str], last_good: Offsets | None = None) -> None:
    """Raises RefusedForSafety where a topic was deleted and made again, and says what may be lost. `last_good`: what
    had been read when the ids were last right; what came after may be of either topic.
    """
    file = _fingerprint_file(settings)
    if file is None or not file.exists():
        return
    noted = _read(file)["topic_ids"]
    for topic in topics_read(settings):
        if topic in noted and topic in topic_ids and noted[topic] != topic_ids[topic]:
            raise RefusedForSafety(
                f"topic {topic} was deleted and made again (id {noted[topic]}, now {topic_ids[topic]}). Read of the "
                f"old one: {_read_up_to(settings, topic, last_good)}; what it held after that is lost. To read "
                "the new one from its start name a new folder in storage.checkpoints"
            )


def check_window_lengths(settings: Settings) -> None:
    """Raises RefusedForSafety where the newest window of a table is of another length than `pipeline.window_ms`.

    A new checkpoint reads the topics again. Of the same length its windows would meet those that are there; of another
    they would stand beside them, as the key has only their start.
    """
    for table in chain.from_iterable(TABLES_OF_QUERIES.values()):
        delta = tables.open_table(settings.storage.tables, table.name)
        length = None if delta is None else _newest_length(delta)
        if length is not None and length != timedelta(milliseconds=settings.pipeline.window_ms):
            raise RefusedForSafety(
                f"pipeline.window_ms is {settings.pipeline.window_ms}, the newest window of table {table.name} in "
                f"{settings.storage.tables} is {length // timedelta(milliseconds=1)} ms long: {WAYS_OUT_OF_WINDOWS}"
            )


def check_tables_are_there(settings: Settings) -> None:
    """Raises RefusedForSafety where checkpoints have read what isn't in any table: tables are made before anything is
    read, so these are on a disk that isn't mounted, or gone, and new ones would begin in the middle.
    """
    read = [query for query, offsets in offsets_by_query(settings).items() if offsets]
    for table in chain.from_iterable(TABLES_OF_QUERIES[query] for query in read):
        if tables.open_table(settings.storage.tables, table.name) is None:
            raise RefusedForSafety(
                f"table {table.name} is not in {settings.storage.tables}, and the checkpoints in "
                f"{settings.storage.checkpoints} have read for it: is its volume mounted, is storage.tables right? To "
                "make it anew, from the start of the topics, name a new folder in storage.checkpoints"
            )


def fingerprint(settings: Settings) -> dict[str, object]:
    """What a checkpoint's state depends on. The watermark may change: Spark takes the new delay from then on."""
    found: dict[str, object] = {
        "windows_version": WINDOWS_VERSION,
        "pipeline.window_ms": settings.pipeline.window_ms,
        "pipeline.shuffle_partitions": settings.pipeline.shuffle_partitions,
        "topics.byte_rate": settings.topics.byte_rate,
        "topics.consumer_lag": settings.topics.consumer_lag,
    }
    if settings.topics.foreign:
        found["topics.foreign"] = dict(settings.topics.foreign)  # another source, and other windows
    return found


def topic_ids(admin: DescribesTopics, settings: Settings) -> dict[str, str]:
    """Kafka's id of each topic that exists: a topic made again under its name has another."""
    wanted = set(topics_read(settings))
    return {
        str(topic["name"]): str(topic["topic_id"])
        for topic in admin.describe_topics(sorted(wanted))
        if topic["name"] in wanted and not topic["error_code"]
    }


def topics_read(settings: Settings) -> tuple[str, ...]:
    """All topics that the pipeline reads; each must be there before it starts."""
    return settings.topics.byte_rate, settings.topics.consumer_lag, *sorted(settings.topics.foreign)


def offsets_read(settings: Settings) -> Offsets:
    """Next offsets of the newest batches that Spark planned; what can't be read, as on an object store, is left out."""
    found: Offsets = {}
    for offsets in offsets_by_query(settings).values():  # of a foreign topic, which both read, the latter tells
        found |= offsets
    return found


def offsets_by_query(settings: Settings) -> dict[str, Offsets]:
    """The same of each query that has window tables."""
    found: dict[str, Offsets] = {query: {} for query in TABLES_OF_QUERIES}
    folder = local_folder(settings.storage.checkpoints)
    if folder is None:
        return found
    for query in found:
        with suppress(OSError, ValueError):
            found[query] = newest_planned(folder / query)
    return found


def _newest_length(delta: DeltaTable) -> timedelta | None:
    """Of the newest window, from the newest file by the statistics; None of an empty table."""
    try:
        since = pc.max(tables.file_statistics(delta, "window_start")["greatest"]).as_py()
        if since is None:
            return None
        windows = delta.to_pyarrow_dataset(file_pruning_predicate=f"window_start >= {tables.instant(since)}")
        where = pc.field("window_start") >= since
        rows = windows.scanner(columns=["window_start", "window_end"], filter=where).head(1).to_pylist()
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise TableUnavailable(f"table {delta.table_uri} can't be read: {tables.first_line(error)}") from None
    return rows[0]["window_end"] - rows[0]["window_start"] if rows else None


def _fingerprint_file(settings: Settings) -> Path | None:
    folder = local_folder(settings.storage.checkpoints)
    return None if folder is None else folder / FINGERPRINT


def _read_up_to(settings: Settings, topic: str, last_good: Offsets | None) -> str:
    """Partition and next offset, for the message."""
    found = []
    for (name, partition), offset in sorted(offsets_read(settings).items()):
        if name == topic:
            sure = offset if last_good is None else last_good.get((name, partition), 0)
            since = f" (up to {offset} since, perhaps of the new one)" if sure < offset else ""
            found.append(f"partition {partition} up to offset {sure}{since}")
    return ", ".join(found) or "nothing"


def _read(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {"made_with": dict(content["made_with"]), "topic_ids": dict(content["topic_ids"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageProblem(f"checkpoint file {file} can't be read ({type(error).__name__}): {TWO_WAYS_OUT}") from None


def _write(file: Path, content: Mapping[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(fresh, file)
