"""Checkpoints that were damaged or lost: repeated without a trace, or refused in clear words; never wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import TopicPartition
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import RefusedForSafety
from streaming.pipeline.guards import check_fingerprint, check_tables_fit_checkpoints, fingerprint
from streaming.settings import Settings
from tests.pipeline.test_windows import (
    Record,
    drain,
    encode,
    load_record,
    make_topics,
    own,
    own_settings,
    read_byte_rates,
    recount,
    send,
    session,
    start_byte_rate,
    stop,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own", "session"]  # the fixtures

FIRST: list[Record] = [load_record(1, partition, offset_ms) for partition in (0, 1) for offset_ms in (1_000, 9_000)]
SECOND: list[Record] = [load_record(1, 0, 9_500), load_record(1, 0, 12_000)]
THIRD: list[Record] = [load_record(1, 1, 9_700)]
FOURTH: list[Record] = [load_record(1, 0, 12_500)]


def newest(folder: Path, pattern: str = "[0-9]*") -> Path:
    return max(folder.glob(pattern), key=lambda path: int(path.name.partition(".")[0]))


def lose_checksum(file: Path) -> None:
    """What Hadoop would find the damage by."""
    (file.parent / f".{file.name}.crc").unlink()


def lose(file: Path) -> None:
    file.unlink()
    lose_checksum(file)


def lose_last_commit(checkpoint: Path) -> None:
    """As after a crash between the table's commit and Spark's: the batch comes twice."""
    lose(newest(checkpoint / "commits"))


def lose_everything(checkpoint: Path) -> None:
    """A new checkpoint over tables that are kept."""
    shutil.rmtree(checkpoint)


def lose_state(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state")


def lose_metadata(checkpoint: Path) -> None:
    (checkpoint / "metadata").unlink()


def cut_offsets(checkpoint: Path) -> None:
    """The newest plan of a batch cut short, as on a disk that was full."""
    file = newest(checkpoint / "offsets")
    file.write_text(file.read_text()[:20])
    lose_checksum(file)


def cut_changelogs(checkpoint: Path) -> None:
    """Every change of the state cut in half, and nothing of it left in memory."""
    state = SparkSession.active()._jvm.org.apache.spark.sql.execution.streaming.state  # type: ignore[union-attr]
    state.StateStore.stop()
    for file in (checkpoint / "state" / "0").glob("[0-9]*/*.changelog"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        lose_checksum(file)


def lose_newest_plan(checkpoint: Path) -> None:
    """Commits are ahead of plans."""
    lose(newest(checkpoint / "offsets"))


def lose_plan_in_the_middle(checkpoint: Path) -> None:
    """A gap before the newest plan."""
    number = int(newest(checkpoint / "offsets").name) - 1
    lose(checkpoint / "offsets" / str(number))


def run(session: SparkSession, settings: Settings, records: list[Record]) -> None:
    """Start, read everything, stop."""
    send(settings, settings.topics.byte_rate, encode(records))
    read_byte_rates(session, settings)


def run_twice(session: SparkSession, settings: Settings) -> None:
    """Start, read `FIRST` in one batch and `SECOND` in the next, stop."""
    send(settings, settings.topics.byte_rate, encode(FIRST))
    queries = start_byte_rate(session, settings)
    try:
        drain(queries)
        send(settings, settings.topics.byte_rate, encode(SECOND))
        drain(queries)
    finally:
        stop(queries)


@pytest.fixture(scope="module")
def read_twice(
    session: SparkSession, one_broker: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Settings, list[Record]]:
    """Settings of a pipeline that has read `FIRST` and `SECOND`, and the records that its topic has."""
    kafka = {"cluster_name": "test", "bootstrap_servers": one_broker.bootstrap_servers}
    settings = own_settings(Settings.model_validate({"kafka": kafka}), tmp_path_factory.mktemp("twice"))
    make_topics(settings)
    run_twice(session, settings)
    return settings, FIRST + SECOND


def copy_of(read: tuple[Settings, list[Record]], folder: Path) -> tuple[Settings, list[Record]]:
    """The same with tables and checkpoints in another folder. The topic stays: other tests write to it, too."""
    settings, in_topic = read
    storage = {name: str(folder / name) for name in ("tables", "checkpoints")}
    for name, copied in storage.items():
        shutil.copytree(getattr(settings.storage, name), copied)
    return settings.model_copy(update={"storage": settings.storage.model_copy(update=storage)}), in_topic


def check(settings: Settings, records: list[Record]) -> None:
    """The table equals a recount of these records."""
    rows = tables.read(settings.storage.tables, "partition_load")
    stored = {
        (tables.to_ms(row["window_start"]), row["broker"], row["partition"]): (
            row["bytes_in_per_sec"], row["covered_ms"], row["sample_count"], row["size_bytes"],
        )
        for row in rows
    }  # fmt: skip
    assert len(rows) == len(stored)
    assert stored == recount(records)


@pytest.mark.parametrize("damage", [lose_last_commit, lose_everything])
def test_what_is_read_again_changes_nothing(
    session: SparkSession, own: Settings, damage: Callable[[Path], None]
) -> None:
    make_topics(own)
    run_twice(session, own)
    before = tables.open_table(own.storage.tables, "partition_load")
    damage(Path(own.storage.checkpoints) / "byte_rate")
    run(session, own, [])
    check(own, FIRST + SECOND)
    after = tables.open_table(own.storage.tables, "partition_load")
    assert before is not None
    assert after is not None
    if damage is lose_last_commit:
        assert after.version() == before.version()  # known by its transaction: not even written
    run(session, own, THIRD)
    check(own, FIRST + SECOND + THIRD)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lose_state, "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"),
        (lose_metadata, "STREAMING_CHECKPOINT_MISSING_METADATA_FILE"),
        (cut_offsets, "STREAM_FAILED"),
        (cut_changelogs, "STREAM_FAILED"),
        (lose_newest_plan, "CONCURRENT_STREAM_LOG_UPDATE"),
        (lose_plan_in_the_middle, "batch 0 doesn't exist"),
    ],
)
def test_what_cannot_be_gone_on_with_ends_the_query_and_a_new_checkpoint_goes_on(
    session: SparkSession,
    read_twice: tuple[Settings, list[Record]],
    tmp_path: Path,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    own, in_topic = copy_of(read_twice, tmp_path)
    damage(Path(own.storage.checkpoints) / "byte_rate")
    in_topic += THIRD
    with pytest.raises(PySparkException, match=message):
        run(session, own, THIRD)
    check(own, FIRST + SECOND)
    storage = own.storage.model_copy(update={"checkpoints": own.storage.checkpoints + "-new"})
    in_topic += FOURTH
    run(session, own.model_copy(update={"storage": storage}), FOURTH)
    check(own, in_topic)


def test_a_copy_of_the_checkpoint_beside_newer_tables_is_refused_and_so_are_older_tables(
    session: SparkSession, read_twice: tuple[Settings, list[Record]], tmp_path: Path
) -> None:
    """A batch of the copy would have the id of one that the tables hold, and its windows would be skipped."""
    settings, in_topic = read_twice
    storage = settings.storage
    older, _ = copy_of(read_twice, tmp_path / "older")
    newer, _ = copy_of(read_twice, tmp_path / "newer")
    made_with = fingerprint(settings.topics, settings.pipeline)
    for each in (older, newer):
        check_fingerprint(each.storage.checkpoints, made_with, {})
        check_tables_fit_checkpoints(each.storage)
    in_topic += THIRD
    run(session, newer, THIRD)
    check_tables_fit_checkpoints(newer.storage)
    copied = storage.model_copy(update={"checkpoints": older.storage.checkpoints, "tables": newer.storage.tables})
    with pytest.raises(RefusedForSafety, match="the checkpoint is older"):
        check_tables_fit_checkpoints(copied)
    rolled_back = storage.model_copy(update={"checkpoints": newer.storage.checkpoints, "tables": older.storage.tables})
    with pytest.raises(RefusedForSafety, match="the table is older"):
        check_tables_fit_checkpoints(rolled_back)


def test_records_deleted_before_they_were_read_are_told_and_not_passed_over(
    session: SparkSession, own: Settings
) -> None:
    """What Kafka's retention does to a pipeline that was away for too long."""
    make_topics(own)
    run(session, own, FIRST)
    send(own, own.topics.byte_rate, encode(SECOND + SECOND))
    admin = admin_client(own.kafka)
    partitions = [TopicPartition(own.topics.byte_rate, partition) for partition in (0, 1)]
    admin.delete_records(dict.fromkeys(partitions, -1))  # -1: all that there is
    admin.close()
    with pytest.raises(StreamingQueryException, match=r"data loss|DATA_LOSS|data may have been lost"):
        run(session, own, THIRD)
    check(own, FIRST)
