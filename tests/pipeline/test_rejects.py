"""Rejected records: which ranges need no second reading, what is kept, and that those that are not kept are counted."""

import itertools
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming import tables
from streaming.contract import REJECTED_RECORD
from streaming.pipeline import rejects
from streaming.pipeline.checkpoints import CheckpointFiles, Offsets, newest_planned, planned
from streaming.pipeline.records import SPARK_TYPES
from streaming.pipeline.rejects import (
    EXAMPLES_OF_A_KIND,
    ROW_BYTES,
    Budget,
    ReadRange,
    RejectsWriter,
    Row,
    judge,
    wait_until_read,
    within,
)
from streaming.serve.snapshot import read_snapshot
from streaming.settings import PipelineSettings
from tests.pipeline.test_windows import session
from tests.serve.synthetic import settings_for

__all__ = ["session"]  # the fixture

NOW_MS = 1_795_000_000_000
AT = tables.utc(NOW_MS)


def record(offset: int, reason: str = "not_json", value: bytes | None = b"{", **columns: Any) -> dict[str, Any]:
    return {
        "source_topic": "rebalancer.byte-rate", "source_partition": 0, "source_offset": offset, "record_time": AT,
        "reason": reason, "field": None, "key": None, "value": value, "rejected_at": AT, "records_not_kept": None,
        **columns,
    }  # fmt: skip


def shown(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["source_offset"], row["value"], row["records_not_kept"]) for row in rows]


def test_what_fits_is_kept_as_it_is() -> None:
    records = [record(1), record(0, value=None), record(2, "future", key=b"k")]
    kept, spent = within(records, 1_000)
    assert sorted(kept, key=lambda row: row["source_offset"]) == sorted(records, key=lambda row: row["source_offset"])
    assert spent == 3 * ROW_BYTES + 3


def test_what_does_not_fit_is_counted_by_kind_at_the_place_of_its_first_record() -> None:
    flood = [record(offset, value=b"x" * 50) for offset in range(10)]
    kept, spent = within([*flood, record(10, "future", b"y" * 50), record(11, "future")], 3 * (ROW_BYTES + 50))
    assert shown(kept) == [
        (0, b"x" * 50, None),
        (10, b"y" * 50, None),
        (1, b"x" * 50, None),
        (2, None, 8),
        (11, None, 1),
    ]
    assert spent == 3 * (ROW_BYTES + 50)


def test_the_last_example_is_cut_where_the_budget_ends_and_without_one_all_is_counted() -> None:
    kept, spent = within([record(0, value=b"x" * 500, key=b"k" * 20)], ROW_BYTES + 30)
    assert [(row["key"], row["value"]) for row in kept] == [(b"k" * 20, b"x" * 10)]
    assert spent == ROW_BYTES + 30
    assert shown(within([record(0), record(1)], ROW_BYTES - 1)[0]) == [(0, None, 2)]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 300), st.none() | st.integers(1, 9)), max_size=30),
    st.integers(0, 3_000),
)
def test_every_record_counts_once_and_the_budget_holds(drawn: list[tuple[str, int, int | None]], budget: int) -> None:
    records = [
        record(offset, reason, b"x" * length if several is None else None, records_not_kept=several)
        for offset, (reason, length, several) in enumerate(drawn)
    ]
    kept, spent = within(records, budget)

    def counts(rows: Iterable[Row]) -> dict[str, int]:
        return {reason: sum(row["records_not_kept"] or 1 for row in rows if row["reason"] == reason) for reason in "ab"}

    assert counts(kept) == counts(records)
    examples = [row for row in kept if row["records_not_kept"] is None]
    assert spent == sum(ROW_BYTES + len(row["value"] or b"") for row in examples) <= budget
    assert len(kept) - len(examples) <= 2
    assert len({row["source_offset"] for row in kept}) == len(kept)


def test_the_budget_begins_anew_with_each_window() -> None:
    budget = Budget(bytes_per_window=500, window_ms=1_000)
    assert budget.left(999) == 500
    budget.spend(400)
    assert (budget.left(999), budget.left(1_000), budget.left(1_999)) == (100, 500, 500)


@pytest.mark.spark
@pytest.mark.parametrize("driver_bytes_max", [rejects.DRIVER_BYTES_MAX, 0], ids=["few", "many"])
def test_both_ways_keep_examples_and_count_the_rest_and_a_repeated_batch_writes_nothing(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver_bytes_max: int
) -> None:
    monkeypatch.setattr(rejects, "DRIVER_BYTES_MAX", driver_bytes_max)
    settings = settings_for(tmp_path, pipeline={"rejected_bytes_per_window_max": 20 * ROW_BYTES})
    root, now_ms = settings.storage.tables, NOW_MS - NOW_MS % settings.pipeline.window_ms
    tables.create_table(root, REJECTED_RECORD.name)
    writer = RejectsWriter(root, settings.pipeline, lambda: now_ms)
    flood = 3 * EXAMPLES_OF_A_KIND
    rows = session.range(flood + 2).select(
        *(
            value.cast(SPARK_TYPES[column.type]).alias(column.name)
            for column, value in zip(
                REJECTED_RECORD.columns,
                (
                    f.lit("rebalancer.byte-rate"), f.lit(0), f.col("id"), f.lit(AT),
                    f.when(f.col("id") >= flood, "future").otherwise("not_json"), f.lit(None), f.lit(b"k"),
                    f.col("id").cast("string").cast("binary"), f.lit(AT), f.lit(None),
                ),
                strict=True,
            )
        )
    )  # fmt: skip
    twice = rows.union(rows)  # samples of one record
    for _ in range(2):
        assert writer.write(twice, 0)
    written = tables.read(root, REJECTED_RECORD.name)
    kept = [row for row in written if row["records_not_kept"] is None]
    assert 15 <= len(kept) <= 20
    assert {row["reason"] for row in kept} == {"not_json", "future"}
    assert all(row["value"] == str(row["source_offset"]).encode() and row["key"] == b"k" for row in kept[:-1])
    streams = read_snapshot(settings, now_ms).streams
    assert streams.rejected == {("byte_rate", "not_json"): flood, ("byte_rate", "future"): 2}
    assert streams.rejected_not_kept == {"byte_rate": flood + 2 - len(kept)}
    assert writer.write(rows, 1)
    streams = read_snapshot(settings, now_ms).streams
    assert streams.rejected == {("byte_rate", "not_json"): 2 * flood, ("byte_rate", "future"): 4}
    assert len([row for row in tables.read(root, REJECTED_RECORD.name) if row["records_not_kept"] is None]) <= 20


@pytest.mark.spark
@pytest.mark.parametrize(
    ("key", "value", "count", "by_driver"),
    [
        (b"", b"{}", 10, True), (b"", b"{}" * 2_000, 10, False), (b"k" * 4_000, b"{}", 10, False),
        (None, None, 10, True), (None, b"{}", 40_000, False),
    ],
    ids=["small", "long values", "long keys", "neither", "a host of tiny ones"],
)  # fmt: skip
def test_only_so_many_rejects_come_to_the_driver(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    key: bytes | None, value: bytes | None, count: int, by_driver: bool,
) -> None:  # fmt: skip
    """Each is a kB in Python, however short."""
    if count == 10:
        monkeypatch.setattr(rejects, "DRIVER_BYTES_MAX", 35_000)
    reduced: list[int] = []

    def noted(_rows: DataFrame, *, example_bytes: int) -> list[Row]:
        reduced.append(example_bytes)
        return []

    monkeypatch.setattr(rejects, "examples", noted)
    rows = session.range(count).select(
        f.lit("t").alias("source_topic"), f.lit(0).alias("source_partition"), f.col("id").alias("source_offset"),
        f.lit(AT).alias("record_time"), f.lit("not_json").alias("reason"), f.lit(None).cast("string").alias("field"),
        f.lit(key).cast("binary").alias("key"), f.lit(value).cast("binary").alias("value"),
        f.lit(AT).alias("rejected_at"), f.lit(None).cast("long").alias("records_not_kept"),
    )  # fmt: skip
    assert RejectsWriter(str(tmp_path), PipelineSettings(), lambda: NOW_MS).write(rows, 0)
    assert bool(reduced) is not by_driver
    assert len(tables.read(str(tmp_path), "rejected_record")) == (10 if by_driver else 0)


@pytest.mark.spark
def test_no_rejects_write_nothing(session: SparkSession, tmp_path: Path) -> None:
    columns = ", ".join(
        f"{column.name} {SPARK_TYPES[column.type].simpleString()}" for column in REJECTED_RECORD.columns
    )
    writer = RejectsWriter(str(tmp_path), PipelineSettings(), lambda: NOW_MS)
    assert not writer.write(session.createDataFrame([], columns), 0)
    assert tables.open_table(str(tmp_path), "rejected_record") is None


TOPIC, OTHER = "load", "lag"
BATCHES = itertools.count()


def report(begin: dict[str, int] | None, end: dict[str, int], *, rejected: int | None = 0, topic: str = TOPIC) -> Any:
    observed = {} if rejected is None else {"judged": {"rejected_rows": rejected, "accepted_rows": 1}}
    source = {"startOffset": None if begin is None else {topic: begin}, "endOffset": {topic: end}}
    key = {"timestamp": "2026-12-01T00:00:00.000Z", "batchId": next(BATCHES)}
    return {**key, "durationMs": {"addBatch": 1}, "observedMetrics": observed, "sources": [source]}


def of(**offsets: int) -> Offsets:
    return {(TOPIC, partition[1:]): offset for partition, offset in offsets.items()}


@pytest.mark.parametrize(
    ("reports", "begin", "end", "verdict"),
    [
        pytest.param([], {}, of(p0=5), ReadRange.UNREAD, id="nothing read"),
        pytest.param([], of(p0=5), of(p0=5), ReadRange.SOUND, id="nothing to read"),
        pytest.param([report(None, {"0": 5})], {}, of(p0=5), ReadRange.SOUND, id="from the start"),
        pytest.param([report({"0": 3}, {"0": 5})], of(p0=2), of(p0=5), ReadRange.SUSPECT, id="begun later"),
        pytest.param(
            [report({"0": 0}, {"0": 3}), report({"0": 3}, {"0": 9})],
            of(p0=1), of(p0=8), ReadRange.SOUND, id="two batches",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 3}), report({"0": 4}, {"0": 9})], of(p0=1), of(p0=8), ReadRange.SUSPECT, id="a gap"
        ),
        pytest.param([report({"0": 0}, {"0": 9}, rejected=1)], of(p0=1), of(p0=8), ReadRange.SUSPECT, id="a misfit"),
        pytest.param(
            [report({"0": 0}, {"0": 9}, rejected=None)], of(p0=1), of(p0=8), ReadRange.SUSPECT, id="not counted",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 9}, rejected=1), report({"0": 9}, {"0": 12})],
            of(p0=9), of(p0=12), ReadRange.SOUND, id="behind a misfit",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 9}), report({"0": 9}, {"0": 12, "1": 4})],
            of(p0=3), of(p0=12, p1=4), ReadRange.SOUND, id="a partition more",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 9})], of(p0=3), of(p0=9, p1=4), ReadRange.UNREAD, id="one of two partitions",
        ),
    ],
)  # fmt: skip
def test_one_story(reports: list[Any], begin: Offsets, end: Offsets, verdict: ReadRange) -> None:
    assert judge(reports, begin, end) is verdict


@pytest.mark.parametrize(("begin", "verdict"), [(20, ReadRange.SOUND), (19, ReadRange.SUSPECT), (0, ReadRange.SUSPECT)])
def test_a_checkpoint_that_begins_in_the_middle_has_read_nothing_before(begin: int, verdict: ReadRange) -> None:
    """Spark reports no start of the first batch, wherever that begins."""
    assert judge([report(None, {"0": 50})], of(p0=begin), of(p0=50), of(p0=20)) is verdict
    assert judge([report(None, {"0": 50})], of(p0=begin), of(p0=50), of(p0=-2)) is ReadRange.SOUND


@pytest.mark.parametrize("seed", range(200))
def test_nothing_with_a_misfit_is_ever_called_sound(seed: int) -> None:
    chance = random.Random(seed)
    fits = {topic: [[chance.random() > 0.01 for _ in range(60)] for _ in range(2)] for topic in (TOPIC, OTHER)}
    reports = []
    at = {topic: [chance.randrange(5) for _ in range(2)] for topic in fits}
    first = {topic: list(ends) for topic, ends in at.items()}
    for _ in range(8):
        topic = chance.choice([TOPIC, OTHER])
        begin, end = list(at[topic]), [min(60, stop + chance.randrange(12)) for stop in at[topic]]
        rejected = sum(not fits[topic][p][o] for p in range(2) for o in range(begin[p], end[p]))
        named = [{str(p): offset for p, offset in enumerate(offsets)} for offsets in (begin, end)]
        reports.append(report(named[0], named[1], rejected=rejected, topic=topic))
        at[topic] = end
    for _ in range(30):
        reach = 60 if chance.random() < 0.5 else 12
        pairs = {(topic, p): sorted(chance.sample(range(reach), 2)) for topic in fits for p in range(2)}
        begin_of = {(topic, str(p)): pair[0] for (topic, p), pair in pairs.items()}
        end_of = {(topic, str(p)): pair[1] for (topic, p), pair in pairs.items()}
        verdict = judge(reports, begin_of, end_of)
        misfit = any(not fits[topic][p][offset] for (topic, p), pair in pairs.items() for offset in range(*pair))
        was_read = all(first[topic][p] <= pair[0] and pair[1] <= at[topic][p] for (topic, p), pair in pairs.items())
        assert verdict is not ReadRange.SOUND or (was_read and not misfit)
        unread = any(pair[1] > at[topic][p] or not _read(reports, topic) for (topic, p), pair in pairs.items())
        assert (verdict is ReadRange.UNREAD) == unread


def _read(reports: list[Any], topic: str) -> bool:
    return any(topic in source["endOffset"] for batch in reports for source in batch["sources"])


class Query:
    """A query that gets on by one report each time it is asked."""

    isActive = True  # noqa: N815 (Spark's name)

    def __init__(self, reports: list[Any], *, idle_looks: int = 0, works: bool = False) -> None:
        """`idle_looks`: how often it is asked before the first report."""
        self._coming = reports
        self._idle_looks = idle_looks
        self.status = {"isTriggerActive": works}
        self._reported: list[Any] = []

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        if self._idle_looks:
            self._idle_looks -= 1
        elif self._coming:
            self._reported.append(self._coming.pop(0))
        return self._reported[-1] if self._reported else None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        return self._reported.copy()


@pytest.fixture
def files(tmp_path: Path) -> CheckpointFiles:
    """A checkpoint with two planned batches: up to offset 5, then up to 9."""
    (tmp_path / "offsets").mkdir()
    for batch, end in enumerate((5, 9)):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"{TOPIC}":{{"0":{end}}}}}')
    return CheckpointFiles(str(tmp_path))


STEPS = (report(None, {"0": 4}), report({"0": 4}, {"0": 9}))


def known(query: Any, files: CheckpointFiles, batch_id: int = 1, *, patience_s: float, busy_s: float = 60) -> ReadRange:
    return wait_until_read([query], files, batch_id, patience_s=patience_s, patience_busy_s=busy_s)


def test_waits_for_those_that_are_behind_but_not_for_ever(files: CheckpointFiles) -> None:
    assert planned(files, 0) == {(TOPIC, "0"): 5}
    assert newest_planned(files) == {(TOPIC, "0"): 9}
    assert known(Query(list(STEPS)), files, patience_s=60) is ReadRange.SOUND
    assert known(Query(list(STEPS[:1])), files, patience_s=0) is ReadRange.UNREAD
    assert known(Query(list(STEPS)), files, 7, patience_s=60) is ReadRange.SUSPECT


def test_waits_longer_for_a_query_that_works_on_a_batch(files: CheckpointFiles) -> None:
    assert known(Query(list(STEPS), idle_looks=3, works=True), files, patience_s=0.1) is ReadRange.SOUND
    assert known(Query(list(STEPS), idle_looks=3), files, patience_s=0.1) is ReadRange.UNREAD
    assert known(Query([], works=True), files, patience_s=0.1, busy_s=0.6) is ReadRange.UNREAD
