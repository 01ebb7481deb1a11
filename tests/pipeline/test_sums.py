"""Records summed in Arrow against Spark's own parser and rules, and against a recount in plain Python."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from streaming.contract.columns import ColumnType
from streaming.contract.records import RecordShape
from streaming.pipeline import sums
from streaming.pipeline.records import judged
from streaming.pipeline.sources import BYTE_RATES, LAGS, Side, summing
from streaming.settings import Settings
from tests.pipeline.test_records import KAFKA_SCHEMA, KAFKA_TIME, LOADS, SKEW_MS, value
from tests.pipeline.test_records import LAGS as LAG_CASES
from tests.pipeline.test_windows import BASE_MS, WINDOW_MS, Record, lag_record, load_record, recount, session

__all__ = ["session"]  # the fixture

PIPELINE = Settings.model_validate({"pipeline": {"window_ms": WINDOW_MS, "clock_skew_max_ms": SKEW_MS}}).pipeline
ODD = (
    "NaN", "-Infinity", "Inf", "1e400", "-0", "-0.0", "1e3", "1.0", "01", "9223372036854775807", "9223372036854775808",
    "2147483648", "1E15", "1.0000000000000001e15", "0.1000000000000000055511151231257827", "4.9e-324", "null", "true",
    '"1"', '""', '"NaN"', "[]", "[1]", "{}", '{"a":{"b":[null]}}', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\u0000"',
    '"\\x"', '"a\tb"', "'x'", "tru", "+1", ".5", "1.", "0x1", "\u00e9", '"\u00e9"',
    '"' + "x" * 900 + '"', "[" * 300 + "]" * 300,
)  # fmt: skip


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    times = pa.array([BASE_MS * 1_000] * len(values), pa.timestamp("us", "UTC"))
    return pa.record_batch({"timestamp": times, "value": pa.array(values, pa.binary())})


def run(values: list[bytes | None], side: Side = BYTE_RATES) -> tuple[list[Record], list[bytes | None]]:
    """Rows of sums, and what was handed back."""
    rows = [row for one in summing(PIPELINE, side)(iter([batch(values)])) for row in one.to_pylist()]
    summed = [row for row in rows if row["sample_count"] is not None]
    return summed, [row["value"] for row in rows if row["sample_count"] is None]


def odd_words(plain: Record, name: str) -> Iterator[bytes]:
    """Records with an odd word as the value of one field."""
    rest = {key: kept for key, kept in plain.items() if key != name}
    for word in ODD:
        text = json.dumps(rest)[:-1] + f', "{name}": {word}}}'
        yield text.encode("utf-8", "surrogatepass")


def odd_bytes(plain: Record, chance: random.Random) -> Iterator[bytes]:
    """Records with odd bytes or ends, or twice the same field."""
    whole = json.dumps(plain).encode()
    for _ in range(600):
        cut = chance.randrange(len(whole))
        yield (
            whole[:cut]
            + chance.choice([b"", b"\n", b"\0", b"\xff", b"}", b"{", b'"', b",", b" ", b"/", b"\\"])
            + (whole[cut + chance.randrange(3) :])
        )
    yield whole[:-1] + b', "v": 1}'
    yield whole[:-1] + b', "broker": 9}' if "broker" in plain else whole[:-1] + b', "group": "h"}'
    yield from (
        whole + end
        for end in (
            b"\n",
            b" ",
            b"\r\n",
            b"}",
            b"{}",
            b"\n" + whole,
            b"//",
            b"/**/",
            b"\0",
            b',"x":2',
            b',"x":{}',
            b',"r":{}',
        )
    )
    yield from (begin + whole for begin in (b"\n", b" ", b"\xef\xbb\xbf", b"{}", b"[", b'{"r":', b"null", b",", b"\0"))
    yield from (b"null", b"[]", b"{}", b'"x"', b" ", b"\n", b'{"a":1}}\n{"r":{"a":1}', b'1}{"r":1')


SURE_SHARES = {"number": 1.0, "text": 0.21, "other": 0.86}
"""Of the records that fit in Spark, so many at least are sure, by the kind of field that has an odd word: numbers all;
of text those that are strings, as Spark reads numbers and objects as text, too, and this parser hands them back. More
fields of a kind leave its share as it is.
"""


def odd_values(shape: RecordShape, plain: Record) -> Iterator[tuple[str, bytes]]:
    """(Kind of field, or other; record)."""
    for field in shape.fields:
        kind = "text" if field.type is ColumnType.STRING else "number"
        yield from ((kind, one) for one in odd_words(plain, field.name))
    yield from (("other", one) for one in odd_words(plain, "added_later"))
    yield from (("other", one) for one in odd_bytes(plain, random.Random(5)))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("side", "cases", "plain"),
    [(BYTE_RATES, LOADS, load_record(1, 0, 0, rack="r")), (LAGS, LAG_CASES, lag_record(0, 0, 1, 7))],
    ids=["loads", "lags"],
)
def test_what_is_sure_fits_in_spark_too_and_reads_the_same(
    session: SparkSession, side: Side, cases: list[Any], plain: Record
) -> None:
    """And is most of what fits, or the records would be parsed in the JVM again."""
    kinds, values = zip(*(("other", case[0]) for case in cases), *odd_values(side.shape, plain), strict=True)
    rows = [("in", 0, offset, KAFKA_TIME, b"k", one) for offset, one in enumerate(values)]
    judged_rows = judged(session.createDataFrame(rows, KAFKA_SCHEMA), side.shape, clock_skew_max_ms=SKEW_MS)
    answers = judged_rows.select("kafka.offset", "reason", f.struct("record.*").alias("record")).collect()
    by_spark = {row["offset"]: row for row in answers}
    fitting = summing(PIPELINE, side).keywords["fitting"]
    sure: Counter[str] = Counter()
    for offset, one in enumerate(values):
        samples, doubtful = sums.parse_fitting(pa.array([one], pa.binary()), pa.array([BASE_MS]), fitting)
        assert samples.num_rows + len(doubtful) == 1
        for sample in samples.to_pylist():
            sure[kinds[offset]] += 1
            assert by_spark[offset]["reason"] is None, one
            assert sample == {field.name: by_spark[offset]["record"][field.name] for field in side.shape.fields}, one
    fits = Counter(kinds[offset] for offset, row in by_spark.items() if row["reason"] is None)
    for kind, share in SURE_SHARES.items():
        assert fits[kind] * share <= sure[kind] <= fits[kind], (kind, sure, fits)


samples = st.builds(
    load_record,
    st.integers(1, 3),
    st.sampled_from([None, 0, 1]),
    st.integers(0, 45_000),
    bytes_in_per_sec=st.none() | st.floats(0, 1e9),
    interval_ms=st.integers(0, 60_000),
    rack=st.none() | st.text(max_size=4),
)


@pytest.mark.long
@given(st.lists(samples, max_size=60))
def test_sums_equal_a_recount(records: list[Record]) -> None:
    rows, back = run([json.dumps(record).encode() for record in records])
    assert back == []
    summed = {
        (row["last_event_time_ms"] // WINDOW_MS * WINDOW_MS, row["broker"], row["partition"]): row for row in rows
    }
    wanted = recount(records)
    assert summed.keys() == wanted.keys()
    assert len(summed) == len(rows)
    for key, (mean, covered_ms, count, _) in wanted.items():
        row = summed[key]
        known_ms = row["bytes_in_per_sec_known_ms"] or 0
        assert (known_ms, row["sample_count"]) == (covered_ms, count)
        assert (row["bytes_in_per_sec_weighted"] / known_ms if known_ms else None) == (mean and pytest.approx(mean))
        of_key = [one for one in records if (one["broker"], one["partition"]) == key[1:]]
        of_key = [one for one in of_key if one["event_time_ms"] // WINDOW_MS * WINDOW_MS == key[0]]
        last = max(one["event_time_ms"] for one in of_key)
        assert row["first_event_time_ms"] == min(one["event_time_ms"] for one in of_key)
        assert row["last_event_time_ms"] == last
        # Of samples of one instant any is the newest.
        assert row["rack"] in [one["rack"] for one in of_key if one["event_time_ms"] == last]
        rates = [one["bytes_in_per_sec"] for one in of_key if one["bytes_in_per_sec"] is not None]
        assert row["bytes_in_per_sec_max"] == max(rates, default=None)


@pytest.mark.parametrize(("at_once", "rows_wanted"), [(1_000, 2), (7, 2), (6, 3)])
def test_samples_of_several_batches_are_summed_together(
    monkeypatch: pytest.MonkeyPatch, at_once: int, rows_wanted: int
) -> None:
    monkeypatch.setattr(sums, "SAMPLES_AT_ONCE", at_once)
    monkeypatch.setattr(sums, "ROWS_OUT", 1)
    records = [load_record(broker, 0, second * 1_000) for second in (5, 1, 3) for broker in (1, 2)]
    batches = [batch([json.dumps(record).encode(), b"{"]) for record in records]
    batches.append(batch([json.dumps(load_record(1, 0, 2_000, size_bytes=9)).encode()]))
    given = list(summing(PIPELINE, BYTE_RATES)(iter(batches)))
    rows = [row for one in given for row in one.to_pylist()]
    summed = [row for row in rows if row["sample_count"] is not None]
    assert [row["value"] for row in rows if row["sample_count"] is None] == [b"{"] * 6
    assert len(summed) == rows_wanted
    assert max(len(one) for one in given) == 1
    for broker, count in ((1, 4), (2, 3)):
        of_broker = [row for row in summed if row["broker"] == broker]
        assert sum(row["sample_count"] for row in of_broker) == count
        assert min(row["first_event_time_ms"] for row in of_broker) == BASE_MS + 1_000
        assert max(row["last_event_time_ms"] for row in of_broker) == BASE_MS + 5_000
        newest = max(of_broker, key=lambda row: row["last_event_time_ms"])
        assert newest["size_bytes"] == load_record(broker, 0, 5_000)["size_bytes"]


def test_a_sample_weighs_by_two_windows_at_most() -> None:
    honest = [load_record(1, None, second * 1_000, interval_ms=10_000, bytes_in_per_sec=1e6) for second in range(6)]
    forged = load_record(1, None, 6_000, interval_ms=30 * 86_400_000, bytes_in_per_sec=5e6)
    (row,), back = run([json.dumps(record).encode() for record in (*honest, forged)])
    assert back == []
    known_ms = row["bytes_in_per_sec_known_ms"]
    assert (row["bytes_in_per_sec_weighted"] / known_ms, known_ms) == (2e6, 60_000 + 2 * WINDOW_MS)


def test_lag_sums_hold_first_newest_and_worst() -> None:
    records = [lag_record(0, 5_000, 80, 100), lag_record(0, 1_000, None, 50), lag_record(0, 3_000, 20, 90)]
    (row,), back = run([json.dumps(record).encode() for record in records], LAGS)
    assert back == []
    assert (row["committed_offset_first"], row["log_end_offset_first"]) == (None, 50)
    assert (row["committed_offset"], row["log_end_offset"], row["lag_records"]) == (80, 100, 20)
    assert (row["lag_records_max"], row["sample_count"], row["group"]) == (70, 3, "g")


@pytest.mark.parametrize("misfit", [None, b"", b"{", b" ", value(broker=-1), value(note="x" * 2_000), value(v=2)])
@pytest.mark.parametrize("position", [0, 57, 99])
def test_a_misfit_is_handed_back_and_most_of_the_others_are_summed(misfit: bytes | None, position: int) -> None:
    values: list[bytes | None] = [value(event_time_ms=BASE_MS + number) for number in range(100)]
    values[position] = misfit
    rows, back = run(values)
    assert misfit in back
    assert sum(row["sample_count"] for row in rows) + len(back) == 100
    assert len(back) <= 100 // sums.PORTIONS + 1
    assert {one for one in back if one != misfit} <= set(values)


def test_batches_without_a_sound_record_and_without_any() -> None:
    assert run([b"{", None]) == ([], [b"{", None])
    assert list(summing(PIPELINE, BYTE_RATES)(iter([batch([])]))) == []


@pytest.mark.long
def test_executors_need_nothing_of_this_package() -> None:
    code = (
        "import pickle, sys; sys.modules['streaming'] = None; import pyarrow as pa\n"
        "work, batches = pickle.load(sys.stdin.buffer)\n"
        "print(sum(len(rows) for rows in work(iter(batches))))"
    )
    sent = cloudpickle.dumps((summing(PIPELINE, LAGS), [batch([value(), b"{"])]))  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=False)
    assert done.stdout.split() == [b"2"], done.stderr.decode()


def test_groups_left_out_are_those_of_the_newest_sample_and_older_collectors_do_not_send_them() -> None:
    def total(offset_ms: int, **columns: Any) -> bytes:
        return json.dumps(load_record(1, None, offset_ms, **columns)).encode()

    [row], doubtful = run([total(1, groups_left_out=9), total(2, groups_left_out=7)])
    assert (row["groups_left_out"], doubtful) == (7, [])
    [row], doubtful = run([total(1)])
    assert (row["groups_left_out"], doubtful) == (None, [])
    negative = total(1, groups_left_out=-1)
    assert run([negative]) == ([], [negative])
