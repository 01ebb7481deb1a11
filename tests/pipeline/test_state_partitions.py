"""Another number of state partitions: where the new checkpoints begin, and that no window is lost or counted twice."""

import json
import random
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming import tables
from streaming.errors import RefusedForSafety
from streaming.pipeline import run
from streaming.pipeline.checkpoints import (
    BEGIN,
    GENERATION,
    NOTED_SINCE,
    STATE_PARTITIONS,
    noted,
    query_files,
)
from streaming.pipeline.guards import (
    WINDOWS_VERSION,
    check_fingerprint,
    check_tables_are_there,
    check_tables_fit_checkpoints,
    fingerprint,
    offsets_by_query,
)
from streaming.pipeline.queries import Queries
from streaming.pipeline.session import SHUFFLE_PARTITIONS, configured_cores
from streaming.pipeline.sources import InputTopics
from streaming.pipeline.state_partitions import EARLIEST, begins_of, settle_state_partitions
from streaming.runtime.clocks import now_ms
from streaming.settings import Settings
from tests.pipeline.test_windows import (
    BASE_MS,
    WINDOW_MS,
    Record,
    drain_and_stop,
    lag_record,
    load_record,
    make_topics,
    own,
    recount,
    session,
)

__all__ = ["own", "session"]  # the fixtures

Key = tuple[str, str]
SKEW_MS, WATERMARK_MS = 1_000, 15_000
T0, T1 = ("t", "0"), ("t", "1")


def of_folder(folder: Path, number: int | None = None) -> Settings:
    return Settings.model_validate(
        {
            "storage": {"checkpoints": str(folder / "checkpoints"), "tables": str(folder / "tables")},
            "pipeline": {
                "window_ms": WINDOW_MS, "watermark_ms": WATERMARK_MS, "clock_skew_max_ms": SKEW_MS,
                "shuffle_partitions": number,
            },
        }
    )  # fmt: skip


class Lookups:
    """Stands for the brokers: where records of a time begin, and what was looked up."""

    def __init__(self, **found: int) -> None:
        self._found = {("t", name[1:]): offset for name, offset in found.items()}
        self.times: list[int] = []

    def __call__(self, partitions: Collection[Key], since_ms: int) -> Mapping[Key, int]:
        self.times.append(since_ms)
        return {key: offset for key, offset in self._found.items() if key in partitions}


def settle(settings: Settings, lookups: Lookups | None = None, *, cores: int = 2) -> int:
    checkpoints = settings.storage.checkpoints
    check_fingerprint(checkpoints, fingerprint(settings.topics, settings.pipeline), {})
    return settle_state_partitions(
        checkpoints, settings.pipeline, cores=cores, first_offsets=Lookups() if lookups is None else lookups
    )


def batch(settings: Settings, number: int, watermark: int, *, finished: bool = True, **ends: int) -> None:
    """Plan a batch of the query of byte rates, as Spark notes it."""
    folder = Path(query_files(settings.storage.checkpoints, "byte_rate").place)
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    offsets = {"t": {name[1:]: end for name, end in ends.items()}}
    text = f"v1\n{json.dumps({'batchWatermarkMs': watermark})}\n{json.dumps(offsets)}"
    (folder / "offsets" / str(number)).write_text(text)
    if finished:
        (folder / "commits" / str(number)).write_text("v1\n{}")


def begun(settings: Settings) -> Any:
    content = noted(settings.storage.checkpoints)
    assert content is not None
    return content[BEGIN]["byte_rate"]


@pytest.mark.parametrize(("cores", "number"), [(1, 2), (16, 16), (1_000, 200)])
def test_a_number_that_is_not_set_follows_the_cores_at_the_first_start_alone(
    tmp_path: Path, cores: int, number: int
) -> None:
    settings = of_folder(tmp_path)
    assert settle(settings, cores=cores) == number
    assert settle(settings, cores=7) == number
    assert query_files(settings.storage.checkpoints, "byte_rate").place.endswith("/byte_rate")


def test_new_checkpoints_begin_before_all_records_of_open_windows(tmp_path: Path) -> None:
    assert settle(of_folder(tmp_path, 2)) == 2
    batch(of_folder(tmp_path), 4, 0, p0=10, p1=10)
    batch(of_folder(tmp_path), 5, BASE_MS + 7_000, p0=90, p1=95)
    lookups = Lookups(p0=40)
    settings = of_folder(tmp_path, 3)
    assert settle(settings, lookups) == 3
    assert lookups.times == [BASE_MS - 2 * WINDOW_MS - WATERMARK_MS - SKEW_MS]
    assert begun(settings) == {"t": {"0": 40, "1": 95}}, "no record of partition 1 is so new: from what was read"
    assert query_files(settings.storage.checkpoints, "byte_rate").place.endswith("/byte_rate-1")
    assert offsets_by_query(settings.storage.checkpoints)["byte_rate"] == {T0: 40, T1: 95}
    with pytest.raises(RefusedForSafety, match="mounted"):
        check_tables_are_there(settings.storage)
    assert settle(of_folder(tmp_path, 3), lookups) == 3, "the next start begins nothing again"
    assert len(lookups.times) == 1


def test_what_a_killed_batch_has_read_is_read_again(tmp_path: Path) -> None:
    settle(of_folder(tmp_path, 2))
    batch(of_folder(tmp_path), 5, BASE_MS, p0=50)
    batch(of_folder(tmp_path), 6, BASE_MS + 60_000, finished=False, p0=90, p1=3)
    settle(of_folder(tmp_path, 3), Lookups(p0=70, p1=1))
    assert begun(of_folder(tmp_path)) == {"t": {"0": 50}}
    found = begins_of(of_folder(tmp_path).storage.checkpoints, lambda: {"t": (0, 1)})
    assert found == {"byte_rate": {T0: 50, T1: EARLIEST}}, "a partition that no finished batch knows"


def test_a_checkpoint_that_has_closed_no_window_begins_again_where_it_began(tmp_path: Path) -> None:
    settle(of_folder(tmp_path, 2))
    batch(of_folder(tmp_path), 0, 0, p0=50)
    settle(of_folder(tmp_path, 3))
    assert begun(of_folder(tmp_path)) == {}
    batch(of_folder(tmp_path), 0, BASE_MS, p0=50)
    settle(of_folder(tmp_path, 4), Lookups(p0=20))
    settle(of_folder(tmp_path, 5))  # without a batch in between
    assert begun(of_folder(tmp_path)) == {"t": {"0": 20}}
    batch(of_folder(tmp_path), 0, 0, p0=60)
    settle(of_folder(tmp_path, 6))
    assert begun(of_folder(tmp_path)) == {"t": {"0": 20}}


def test_partitions_are_looked_up_only_for_a_checkpoint_without_a_batch(tmp_path: Path) -> None:
    settings = of_folder(tmp_path)
    settle(settings)
    batch(settings, 0, BASE_MS, p0=5)

    def refused() -> dict[str, tuple[int, ...]]:
        raise AssertionError("looked up")

    assert begins_of(settings.storage.checkpoints, refused) == {}
    settle(of_folder(tmp_path, 3))
    assert begins_of(settings.storage.checkpoints, lambda: {"t": (0,)}) == {"byte_rate": {T0: 5}}
    batch(settings, 0, 0, p0=9)
    assert begins_of(settings.storage.checkpoints, refused) == {}


def test_old_checkpoints_stay_until_the_new_ones_have_finished_a_batch(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    settle(of_folder(tmp_path, 2))
    batch(of_folder(tmp_path), 0, BASE_MS, p0=5)
    settle(of_folder(tmp_path, 3))
    batch(of_folder(tmp_path), 0, BASE_MS, finished=False, p0=9)
    settle(of_folder(tmp_path, 3))
    assert (folder / "byte_rate").exists()
    batch(of_folder(tmp_path), 0, BASE_MS, p0=9)
    settle(of_folder(tmp_path, 3))
    assert not (folder / "byte_rate").exists()
    assert (folder / "byte_rate-1").exists()


def test_a_checkpoint_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    settle(of_folder(tmp_path, 2))
    batch(of_folder(tmp_path), 0, BASE_MS, p0=5)
    (tmp_path / "checkpoints" / "byte_rate" / "offsets" / "0").write_text("v1\n{")
    with pytest.raises(RefusedForSafety, match=r"pipeline\.shuffle_partitions.*JSONDecodeError.*storage\.checkpoints"):
        settle(of_folder(tmp_path, 3))
    content = noted(of_folder(tmp_path).storage.checkpoints)
    assert content is not None
    assert content["made_with"][STATE_PARTITIONS] == 2
    assert GENERATION not in content


def test_tables_are_held_against_the_checkpoints_in_use(tmp_path: Path) -> None:
    settle(of_folder(tmp_path, 2))
    batch(of_folder(tmp_path), 0, BASE_MS, p0=5)
    settle(of_folder(tmp_path, 3))
    check_tables_fit_checkpoints(of_folder(tmp_path).storage)
    content = noted(of_folder(tmp_path).storage.checkpoints)
    assert content is not None
    assert content[NOTED_SINCE] == {"byte_rate": 0, "consumer_lag": 0}


@pytest.mark.parametrize(
    ("master", "options", "cores"),
    [
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ("k8s://https://host", {"spark.executor.instances": "3"}, 3),
        ("yarn", {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "9"}, 9),
        ("yarn", {}, None),
        ("spark://host:7077", {"spark.cores.max": "20"}, 20),
        ("spark://host:7077", {}, None),
        ("local-cluster[2, 3, 1024]", {}, 6),
        ("local[8]", {}, None),
    ],
)
def test_cores_that_are_set_are_known_before_executors_are_there(
    master: str, options: dict[str, str], cores: int | None
) -> None:
    assert configured_cores(master, options) == cores


@pytest.fixture
def settled(session: SparkSession) -> Iterator[SparkSession]:
    """The session that all tests share, with its number of partitions as before at the end."""
    yield session
    session.conf.set("spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)


def with_number(settings: Settings, number: int) -> Settings:
    changes = {"watermark_ms": WATERMARK_MS, "clock_skew_max_ms": SKEW_MS, "shuffle_partitions": number}
    return settings.model_copy(update={"pipeline": settings.pipeline.model_copy(update=changes)})


def start(session: SparkSession, settings: Settings) -> tuple[list[StreamingQuery], list[dict[Key, int]]]:
    """Start all queries as a pipeline does; where each window query begins, if its checkpoint is new."""
    checkpoints = settings.storage.checkpoints
    check_fingerprint(checkpoints, fingerprint(settings.topics, settings.pipeline), {})
    check_tables_fit_checkpoints(settings.storage)
    source, begins = run._settled(session, settings)
    queries = Queries(source, settings.storage, WINDOWS_VERSION, now_ms=now_ms, begins=begins).start()
    return queries, list(begins.values())


def read(session: SparkSession, settings: Settings) -> list[dict[Key, int]]:
    """Start all queries, read everything, stop; where each window query began, if its checkpoint was new."""
    queries, began = start(session, settings)
    drain_and_stop(queries)
    return began


def send_stamped(settings: Settings, topic: str, records: list[Record]) -> None:
    """With event times as Kafka's timestamps, half of the records in each partition."""
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all")
    for index, record in enumerate(records):
        value = json.dumps(record).encode()
        producer.send(topic, value=value, partition=index % 2, timestamp_ms=record.get("event_time_ms"))
    producer.flush()
    producer.close()


@pytest.mark.spark
@pytest.mark.kafka
def test_another_number_between_two_runs_equals_a_recount(settled: SparkSession, own: Settings) -> None:
    """Windows are closed, open in the middle, and yet to come when the number changes from two to three."""
    chance = random.Random(3)
    since_ms = (now_ms() - 600_000) // WINDOW_MS * WINDOW_MS - BASE_MS  # Kafka deletes records with old timestamps
    records = [
        load_record(broker, partition, since_ms + offset_ms, bytes_in_per_sec=chance.uniform(0, 1e6))
        for offset_ms in range(0, 360_000, 2_600) for broker in (1, 2) for partition in (None, 0, 1)
    ]  # fmt: skip
    lags = [lag_record(0, since_ms + offset_ms, offset_ms, 2 * offset_ms) for offset_ms in range(0, 360_000, 5_000)]
    make_topics(own)
    before, middle = len(records) * 3 // 5, len(lags) * 3 // 5
    for number, rates, of_groups in (
        (2, records[: before // 2], lags[: middle // 2]),
        (2, [*records[before // 2 : before], {"v": 1}], lags[middle // 2 : middle]),
        (3, records[before:], lags[middle:]),
    ):
        send_stamped(own, own.topics.byte_rate, rates)
        send_stamped(own, own.topics.consumer_lag, of_groups)
        began = read(settled, with_number(own, number))
        assert len(began) == (2 if number == 3 else 0)
    assert all(0 < offset < before for offsets in began for offset in offsets.values()), "it begins in the middle"
    state = Path(own.storage.checkpoints) / "byte_rate-1" / "state" / "0"
    assert {path.name for path in state.glob("[0-9]*")} == {"0", "1", "2"}

    wanted = recount(records)
    rows = [row for name in ("partition_load", "broker_load") for row in tables.read(own.storage.tables, name)]
    stored = {(tables.to_ms(row["window_start"]), row["broker"], row.get("partition")): row for row in rows}
    assert len(stored) == len(rows)
    assert stored.keys() == wanted.keys()
    for key, (bytes_in, covered_ms, samples, _) in wanted.items():
        assert stored[key]["bytes_in_per_sec"] == pytest.approx(bytes_in)
        assert (stored[key]["covered_ms"], stored[key]["sample_count"]) == (covered_ms, samples)
    groups = tables.read(own.storage.tables, "group_lag")
    assert sum(row["sample_count"] for row in groups) == len(lags)
    assert len({row["window_start"] for row in groups}) == len(groups) == 360_000 // WINDOW_MS
    assert len(tables.read(own.storage.tables, "rejected_record")) == 1
    read(settled, with_number(own, 3))
    assert not (Path(own.storage.checkpoints) / "byte_rate").exists()


@pytest.mark.spark
@pytest.mark.kafka
def test_a_topic_of_few_partitions_is_read_by_as_many_tasks_as_there_are_cores(
    session: SparkSession, own: Settings
) -> None:
    make_topics(own)
    send_stamped(own, own.topics.byte_rate, [load_record(1, 0, offset_ms) for offset_ms in range(100)])
    source = InputTopics(session, own.kafka, own.topics, own.pipeline, read_tasks=7)
    tasks: list[int] = []
    rows = source.raw_rows(own.topics.byte_rate)
    place = f"{own.storage.checkpoints}/tasks"
    writer = rows.writeStream.option("checkpointLocation", place)
    drain_and_stop([writer.foreachBatch(lambda batch, _: tasks.append(batch.rdd.getNumPartitions())).start()])
    assert len(tasks) == 1
    assert tasks[0] >= 7
    drain_and_stop([Queries(source, own.storage, WINDOWS_VERSION, now_ms=now_ms).start_byte_rate()])
    assert sum(row["sample_count"] for row in tables.read(own.storage.tables, "partition_load")) == 100
