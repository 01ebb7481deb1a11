"""What must hold before the pipeline continues a checkpoint: windows, topics and tables fit, no other pipeline runs.

One file beside the checkpoints notes what they were made with. Spark notices none of these changes (window length, a
topic deleted and made again with more records than were read): it continues and is wrong. This module knows
checkpoints, topic ids and how long the tables' windows are, not what the queries compute.

One pipeline at a time works on the same checkpoints, and on the same tables: by a lock in a folder. On an object store
checkpoints have a lease; tables have nothing. Nothing on an object store ends with a process. So a pipeline that was
killed there keeps its lease until that has run out, and the next one waits for it; if the lease is renewed meanwhile,
the other one lives.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc

from streaming import tables
from streaming.contract import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, REJECTED_RECORD, Table
from streaming.errors import RefusedForSafety, TableUnavailable
from streaming.pipeline.checkpoints import (
    MADE_WITH,
    NOTED_SINCE,
    STATE_PARTITIONS,
    TOPIC_IDS,
    TWO_WAYS_OUT,
    CheckpointFiles,
    Offsets,
    note,
    noted,
    query_files,
    read_up_to,
)
from streaming.runtime.locks import exclusive
from streaming.settings import PipelineSettings, StorageSettings, TopicSettings
from streaming.tables.conditional_puts import check_conditional_put
from streaming.tables.places import local_folder

WINDOWS_VERSION = 6
"""Version of the windows, to be raised with any change of keys, aggregates or sources that an older checkpoint's state
can't be read with.
"""
STILL_MADE = frozenset({3, 4, 5})
"""Earlier versions that checkpoints go on with: the queries still make their state (`windows.py`)."""

WAYS_OUT_OF_WINDOWS = (
    "set it back, or name new folders in storage.checkpoints and storage.tables both: windows of two lengths in one "
    "table would count everything twice"
)
TABLES_OF_QUERIES = {"consumer_lag": (GROUP_LAG,), "byte_rate": (PARTITION_LOAD, BROKER_LOAD)}
WAYS_OUT_OF_TIME = (
    "Restore both from copies of the same time, or name a new folder in storage.checkpoints: it reads the topics from "
    "their start, and a window that is fuller in the tables stays as it is"
)
POLL_S = 1.0
LEASE_MS = 30_000
PATIENCE_S = 60.0
"""Time to wait for the right, seconds: longer than a lease lasts after its holder was killed, by the margins and
requests of who waits for it.
"""
StillOurs = Callable[[], None]
"""Function to be called again and again: keeps the right, and raises RefusedForSafety once another pipeline has it."""


class DescribesTopics(Protocol):
    """The part of an admin client that is used here."""

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        """Metadata of the topics, with their ids."""


def check_fingerprint(checkpoints: str, wanted: Mapping[str, object], topic_ids: Mapping[str, str]) -> int:
    """Compare with what the checkpoints were made with, or note it at the first start; raises RefusedForSafety.

    Returns the version of the windows to go on with. `wanted` comes from `fingerprint`, `topic_ids` from the function
    of this name.
    """
    content = noted(checkpoints)
    if content is None:
        note(checkpoints, {MADE_WITH: dict(wanted), TOPIC_IDS: dict(topic_ids)})
        return WINDOWS_VERSION
    before_version = content[MADE_WITH].get("windows_version")
    version: int = before_version if before_version in STILL_MADE else WINDOWS_VERSION
    wanted = {**wanted, "windows_version": version}
    for key in sorted({*wanted, *content[MADE_WITH]} - {STATE_PARTITIONS}):
        value, before = wanted.get(key), content[MADE_WITH].get(key)
        if before != value:
            raise RefusedForSafety(
                f"{key} is {value!r}, the checkpoints in {checkpoints} were made with {before!r}: "
                + (WAYS_OUT_OF_WINDOWS if key == "pipeline.window_ms" else TWO_WAYS_OUT)
            )
    check_topic_ids(checkpoints, topic_ids)
    if topic_ids.keys() - content[TOPIC_IDS].keys():  # not known at an earlier version's start
        note(checkpoints, content | {TOPIC_IDS: {**topic_ids, **content[TOPIC_IDS]}})
    return version


def check_topic_ids(checkpoints: str, topic_ids: Mapping[str, str], last_good: Offsets | None = None) -> None:
    """Raises RefusedForSafety where a topic was deleted and made again; the message names what may be lost.

    `last_good` are the offsets read when the ids were last right. Later records may be of either topic.
    """
    content = noted(checkpoints)
    if content is None:
        return
    before = content[TOPIC_IDS]
    for topic, topic_id in topic_ids.items():
        if topic in before and before[topic] != topic_id:
            raise RefusedForSafety(
                f"topic {topic} was deleted and made again (id {before[topic]}, now {topic_id}). Read of the "
                f"old one: {_read_up_to(checkpoints, topic, last_good)}; what it held after that is lost. To read "
                "the new topic from its start, set storage.checkpoints to a new folder"
            )


def check_window_lengths(root: str, *, window_ms: int) -> None:
    """Raises RefusedForSafety where the newest window of a table is of another length than `pipeline.window_ms`.

    A new checkpoint reads the topics again. Of the same length its windows would meet those that are there; of another
    they would stand beside them, as the key has only their start.
    """
    for table in chain.from_iterable(TABLES_OF_QUERIES.values()):
        delta = tables.open_table(root, table.name)
        length = None if delta is None else _newest_length(delta)
        if length is not None and length != timedelta(milliseconds=window_ms):
            raise RefusedForSafety(
                f"pipeline.window_ms is {window_ms}, the newest window of table {table.name} in "
                f"{root} is {length // timedelta(milliseconds=1)} ms long: {WAYS_OUT_OF_WINDOWS}"
            )


def check_tables_are_there(storage: StorageSettings) -> None:
    """Raises RefusedForSafety where checkpoints have read records, and the table for them is missing.

    Tables are made before anything is read. A missing one is on a disk that isn't mounted, or gone; a new one would
    begin in the middle.
    """
    read = [query for query, offsets in offsets_by_query(storage.checkpoints).items() if offsets]
    for table in chain.from_iterable(TABLES_OF_QUERIES[query] for query in read):
        if tables.open_table(storage.tables, table.name) is None:
            raise RefusedForSafety(
                f"table {table.name} is not in {storage.tables}, and the checkpoints in "
                f"{storage.checkpoints} have read for it: is its volume mounted, is storage.tables right? To "
                "begin again at the start of the topics, name a new folder in storage.checkpoints"
            )


def check_tables_fit_checkpoints(storage: StorageSettings) -> None:
    """Raises RefusedForSafety where a table and the checkpoint that writes it are not of one time.

    A table holds the id of the last batch that was written to it. If the checkpoint has not planned that batch, the
    checkpoint was restored from a copy: its next batches have ids that the table takes for written, so their windows
    would be skipped. If the checkpoint has finished later batches, the table was rolled back, and nothing would write
    their windows again. Call it after `check_fingerprint`.
    """
    noted_since = _noted_since(storage.checkpoints)
    for query, query_tables in {**TABLES_OF_QUERIES, "rejects": (REJECTED_RECORD,)}.items():
        files = query_files(storage.checkpoints, query)
        query_id = _query_id(files)
        if query_id is None:
            continue
        planned, finished = _newest(files, "offsets"), _newest(files, "commits")
        for table in query_tables:
            delta = tables.open_table(storage.tables, table.name)
            if delta is None:
                continue
            written = delta.transaction_version(transaction_id(query_id, table))
            written = -1 if written is None else written
            if written > planned:
                found = f"holds batch {written}, the checkpoint knows batches up to {planned}: the checkpoint is older"
            elif query in noted_since and max(written + 1, noted_since[query]) <= finished:
                found = f"holds batches up to {written}, the checkpoint has finished {finished}: the table is older"
            else:
                continue
            raise RefusedForSafety(
                f"table {table.name} in {storage.tables} and the checkpoint {query} in {storage.checkpoints} are not "
                f"of one time: the table {found}, and windows between the two would be lost. {WAYS_OUT_OF_TIME}"
            )


def transaction_id(query_id: str, table: Table) -> str:
    """Return the application id under which a query notes its batches in a table."""
    return f"{query_id}:{table.name}"


def fingerprint(topics: TopicSettings, settings: PipelineSettings) -> dict[str, object]:
    """What a checkpoint's state depends on. The watermark may change: Spark takes the new delay from then on. The
    number of state partitions may change, too (`state_partitions.py`).
    """
    values: dict[str, object] = {
        "windows_version": WINDOWS_VERSION,
        "pipeline.window_ms": settings.window_ms,
        "topics.byte_rate": topics.byte_rate,
        "topics.consumer_lag": topics.consumer_lag,
    }
    if topics.foreign:
        values["topics.foreign"] = dict(topics.foreign)  # another source, and other windows
    return values


def topic_ids(admin: DescribesTopics, names: Sequence[str]) -> dict[str, str]:
    """Kafka's id of each of the topics that exists, in their order: a topic made again under its name has another."""
    ids = {
        str(topic["name"]): str(topic["topic_id"])
        for topic in admin.describe_topics(sorted(names))
        if not topic["error_code"]
    }
    return {name: ids[name] for name in names if name in ids}


def topics_read(topics: TopicSettings) -> tuple[str, ...]:
    """All topics that the pipeline reads; each must be there before it starts."""
    return topics.byte_rate, topics.consumer_lag, *sorted(topics.foreign)


def offsets_read(checkpoints: str) -> Offsets:
    """Next offsets of the newest batches that Spark planned, as far as folders can be read; raises TableUnavailable."""
    ends: Offsets = {}
    for offsets in offsets_by_query(checkpoints).values():  # both queries read a foreign topic: the last one counts
        ends |= offsets
    return ends


def offsets_by_query(checkpoints: str) -> dict[str, Offsets]:
    """Returns the next offsets of the newest batch that Spark planned, by query that has window tables; a query whose
    folder can't be read has no offsets. Raises TableUnavailable if an object store doesn't answer.
    """
    ends: dict[str, Offsets] = {query: {} for query in TABLES_OF_QUERIES}
    for query in ends:
        with suppress(OSError, ValueError):
            ends[query] = read_up_to(checkpoints, query)
    return ends


def _newest_length(delta: DeltaTable) -> timedelta | None:
    """Returns the length of the newest window, from the newest file by the statistics; None for an empty table."""
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


def _read_up_to(checkpoints: str, topic: str, last_good: Offsets | None) -> str:
    """Partition and next offset, for the message."""
    parts = []
    for (name, partition), offset in sorted(offsets_read(checkpoints).items()):
        if name == topic:
            of_old = offset if last_good is None else last_good.get((name, partition), 0)
            since = f" (up to {offset} since, perhaps of the new one)" if of_old < offset else ""
            parts.append(f"partition {partition} up to offset {of_old}{since}")
    return ", ".join(parts) or "nothing"


def _noted_since(checkpoints: str) -> dict[str, int]:
    """Return `NOTED_SINCE` of each query; a checkpoint of an earlier version notes its batches from the next one on."""
    content = noted(checkpoints)
    if content is None:
        return {}
    if NOTED_SINCE not in content:
        newest = {query: _newest(query_files(checkpoints, query), "commits") for query in TABLES_OF_QUERIES}
        content = {**content, NOTED_SINCE: {query: batch + 1 for query, batch in newest.items()}}
        note(checkpoints, content)
    since: dict[str, int] = content[NOTED_SINCE]
    return since


def _newest(checkpoint: CheckpointFiles, log_name: str) -> int:
    """Return the newest batch in a log of the checkpoint, -1 where there is none."""
    return max(checkpoint.numbers(log_name), default=-1)


def _query_id(checkpoint: CheckpointFiles) -> str | None:
    """Return the id that Spark has given to the query of this checkpoint; None before its first start."""
    try:
        return str(json.loads(checkpoint.read("metadata"))["id"])
    except (OSError, ValueError, KeyError, TypeError):  # Spark says what is wrong with the file
        return None


class OneHolder(Protocol):
    """The part of a lease that is used here."""

    @property
    def held(self) -> bool:
        """Whether this process holds the right; False once another process has taken it over."""

    def try_acquire(self) -> bool:
        """Take it if it is free or has run out; to be called again and again. Raises TableUnavailable."""

    def progress(self) -> None:
        """The process works: without this it loses the lease in time."""

    def kept(self) -> AbstractContextManager[None]:
        """Renew it in the background, give it back at the end."""


LeaseOn = Callable[[str], OneHolder]
"""The lease on the checkpoints at a URI."""


@contextmanager
def only_pipeline(
    checkpoints: str, lease_on: LeaseOn | None = None, stopping: threading.Event | None = None
) -> Iterator[StillOurs]:
    """Keeps other pipelines from these checkpoints, by lock or `lease_on`; raises RefusedForSafety if one has them."""
    if local_folder(checkpoints) is None and lease_on is not None:
        check_conditional_put(checkpoints)
        lease = lease_on(checkpoints)
        _acquire(lease, checkpoints, stopping or threading.Event())
        with lease.kept():
            yield lambda: _check(lease, checkpoints)
        return
    with exclusive(checkpoints, "pipeline") as is_ours:
        if not is_ours:
            raise _another(checkpoints)
        yield lambda: None


@contextmanager
def only_writer(root: str) -> Iterator[None]:
    """While this holds no pipeline with other checkpoints can write the tables in this folder; raises RefusedForSafety
    where one does, and on a store that would lose one of two commits: batches and upkeep write from two threads.

    Each closes what its own watermark has passed, and makes hours of it. A second one that is minutes behind, as that
    of another cluster, would lose its samples of these windows without a word.
    """
    check_conditional_put(root)
    with exclusive(root, "tables") as is_ours:
        if not is_ours:
            raise RefusedForSafety(
                f"another pipeline is writing the tables in {root}: give each its own storage.tables"
            )
        yield


def _acquire(lease: OneHolder, checkpoints: str, stopping: threading.Event) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not lease.try_acquire():
        if time.monotonic() > deadline or stopping.wait(POLL_S):
            raise _another(checkpoints)


def _check(lease: OneHolder, checkpoints: str) -> None:
    lease.progress()
    if not lease.held:
        raise RefusedForSafety(f"another pipeline has taken over the checkpoints in {checkpoints}")


def _another(checkpoints: str) -> RefusedForSafety:
    return RefusedForSafety(f"another pipeline is running on the checkpoints in {checkpoints}")
