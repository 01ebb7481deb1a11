"""Windows that are kept give the verdicts of windows read anew, whatever happens to the table; and cost what is new.

Groups are ranked by columns, and older windows are read only for lags that need them.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import compute as pc

from assignor_core.lag import LagHistory, LagPolicy, LagStatus, Standing, evaluate, lag_seconds, last_commit_ms
from assignor_core.lag.waits import EarlierWaits
from streaming.commands.lag import read_lag
from streaming.contract import TABLES
from streaming.tables import ALL_ROWS, Condition, TableReader, create_table, equal, instant, row_schema, utc
from streaming.views.group_picture import COLUMNS, POPULATED
from streaming.views.group_ranking import REASONS_BLOCK, ranked_groups, verdicts_by_group
from streaming.views.group_store import LagWindows, read_picture
from streaming.views.json_values import to_json
from tests.lag.windows import judge
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

CLUSTER = "test"
SCHEMA = row_schema(TABLES["group_lag"])
FIGURES = (
    "status", "at_once", "left_over", "lag_seconds", "commit_ms", "completeness", "stuck_ms", "rewound_records",
    "committed_offset", "log_end_offset", "lag_records", "member_id", "group_state", "last_event_time_ms",
)  # fmt: skip
BIG = 3_000_000_000
"""More than 32 bits hold."""

Row = dict[str, Any]
Key = tuple[str, str, int]


class CountingReader(TableReader):
    """Counts the rows of `group_lag` that were read."""

    rows_read = 0

    def encoded(self, name: str, *, columns: Sequence[str], where: Condition = ALL_ROWS) -> pa.Table:
        rows = super().encoded(name, columns=columns, where=where)
        self.rows_read += rows.num_rows
        return rows


def kept_windows(reader: TableReader) -> LagWindows:
    return LagWindows(reader, CLUSTER, window_ms=WINDOW_MS)


def shown(windows: LagWindows) -> dict[Key, Row]:
    """Rows of the picture by partition."""
    windows.refresh()
    picture = windows.picture()
    rows = picture.with_figures().to_pylist() if picture else []
    return {(row["group_id"], row["topic"], row["partition"]): row for row in rows}


def expected(rows: list[Row]) -> dict[Key, Row]:
    """The same from all rows at once, each partition alone: the verdict's definition."""
    newest = max(row["window_start"] for row in rows)
    oldest, current = (utc(int(newest.timestamp() * 1000) - count * WINDOW_MS) for count in (30, 2))
    by_partition: dict[Key, list[Row]] = {}
    earlier: dict[Key, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["window_start"]):
        if row["window_start"] < oldest:
            earlier.setdefault((row["group_id"], row["topic"], row["partition"]), []).append(row)
        if row["window_start"] >= oldest:
            by_partition.setdefault((row["group_id"], row["topic"], row["partition"]), []).append(row)
    now_ms = max(one["last_event_time_ms"] for past in by_partition.values() for one in past)
    samples = {key: past[-1] for key, past in by_partition.items() if past[-1]["window_start"] >= current}
    owned = {key: row["member_id"] is not None for key, row in samples.items()}
    judged = {}
    for key, row in samples.items():
        populated = row["group_state"] in POPULATED
        owns_any = any(owned[other] for other in samples if other[0] == key[0])
        owns_topic = any(owned[other] for other in samples if other[:2] == key[:2])
        left_over = populated and owns_any and not owns_topic
        facts = {
            "owned": owned[key], "populated": populated, "left_over": left_over,
            "orphaned": populated and owns_topic and not owned[key],
            "obscure": not owns_any and all(samples[other]["group_state"] is None for other in samples
                                            if other[0] == key[0]),
        }  # fmt: skip
        flags = {name: np.array([flag]) for name, flag in facts.items()}
        standing = Standing(
            flags["owned"], flags["populated"], flags["left_over"], floats([row["log_start_offset"]]),
            flags["orphaned"], flags["obscure"],
        )  # fmt: skip
        history, policy = history_of(by_partition[key]), LagPolicy(window_ms=WINDOW_MS)
        evaluated = evaluate(history, standing, policy, now_ms=now_ms)
        is_waiting = evaluated.at_once[0] > LagStatus.UNKNOWN or (left_over and evaluated.at_once[0] > LagStatus.OK)
        if is_waiting and key in earlier:
            past = history_of(earlier[key])
            waits = EarlierWaits.of_history(past, past.lag <= 0)
            evaluated = evaluate(history, replace(standing, earlier=waits), policy, now_ms=now_ms)
        below_start = (row["log_start_offset"] or 0) > (row["committed_offset"] or 0)
        if row["committed_offset"] is not None and below_start:
            row = row | {"lag_records": max(0, row["log_end_offset"] - row["log_start_offset"])}
        figures = {
            name: getattr(evaluated.figures, name)[0] for name in ("completeness", "stuck_ms", "rewound_records")
        }
        judged[key] = {
            **row, **figures, "status": evaluated.status[0], "at_once": evaluated.at_once[0], "left_over": left_over,
            "lag_seconds": lag_seconds(history)[0], "commit_ms": last_commit_ms(history)[0],
        }  # fmt: skip
    return judged


def history_of(rows: list[Row]) -> LagHistory:
    """The two points of each window."""
    return LagHistory(np.array([0]), *(
        floats([one[name] for one in rows for name in pair])
        for pair in (("first_event_time_ms", "last_event_time_ms"), ("committed_offset_first", "committed_offset"),
                     ("log_end_offset_first", "log_end_offset"), ("log_start_offset", "log_start_offset"))
    ))  # fmt: skip


def floats(values: list[int | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def same(one: Any, other: Any) -> bool:
    missing = [value is None or value != value for value in (one, other)]
    return all(missing) if any(missing) else bool(one == other)


offset = st.none() | st.integers(0, 9) | st.sampled_from([1_000, BIG, BIG * 2])
sample = st.fixed_dictionaries({
    "group_id": st.sampled_from(["a", "b", "ä"]), "topic": st.sampled_from(["t", "u"]), "partition": st.integers(0, 2),
    "committed_offset_first": offset, "committed_offset": offset,
    "log_end_offset_first": st.integers(0, 12) | st.just(BIG), "log_end_offset": st.integers(0, 12) | st.just(BIG),
    "log_start_offset": st.none() | st.integers(0, 5), "lag_records": st.none() | st.integers(0, 9),
    "member_id": st.none() | st.just("m"), "group_state": st.sampled_from(["Stable", "Empty", None]),
    "began_ms": st.integers(0, 20_000), "took_ms": st.integers(0, 30_000),
})  # fmt: skip
"""One partition in one window; offsets go up, down, and are unknown."""
commit = st.tuples(
    st.integers(0, 14),  # windows since the newest: time passes, with gaps
    st.integers(0, 3),  # how many windows before are written anew with it, as those that are open
    st.lists(st.lists(sample, max_size=8), min_size=1, max_size=4),
    st.booleans(),  # files are joined afterwards
)


def written(window: int, samples: list[Row]) -> list[Row]:
    """Rows of one window, one a partition."""
    start_ms = NOW_MS + window * WINDOW_MS
    rows = []
    for one in {(row["group_id"], row["topic"], row["partition"]): row for row in samples}.values():
        began_ms = start_ms + one["began_ms"]
        rows.append({
            **{name: value for name, value in one.items() if name in SCHEMA.names},
            **Synthetic("", CLUSTER).window(start_ms), "first_event_time_ms": began_ms,
            "last_event_time_ms": began_ms + one["took_ms"], "lag_records_max": 0, "is_final": window % 2 == 0,
        })  # fmt: skip
    return rows


def overwrite(root: str, begin: int, end: int, rows: list[Row]) -> None:
    """As the pipeline writes: windows from `begin` to `end` in place of themselves."""
    since, until = (utc(NOW_MS + window * WINDOW_MS) for window in (begin, end))
    met = f"window_start >= {instant(since)} AND window_start <= {instant(until)}"
    fresh = pa.Table.from_pylist(rows, schema=SCHEMA)
    write_deltalake(DeltaTable(f"{root}/group_lag"), fresh, mode="overwrite", predicate=met)


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(commit, min_size=1, max_size=4))
def test_what_is_kept_gives_the_verdicts_of_all_windows(commits: list[tuple[int, int, list[list[Row]], bool]]) -> None:
    with TemporaryDirectory() as root:
        create_table(root, "group_lag")
        reader, rows, newest = TableReader(root), {}, 0
        kept = kept_windows(reader)
        for passed, rewritten, samples, is_joined in commits:
            newest += passed
            begin = max(0, newest - rewritten)
            for window in range(begin, newest + 1):
                rows[window] = written(window, samples[(window - begin) % len(samples)])
            overwrite(root, begin, newest, [row for w in range(begin, newest + 1) for row in rows[w]])
            if is_joined:
                DeltaTable(f"{root}/group_lag").optimize.compact()
            reader.look_again()
            all_rows = [row for window in rows.values() for row in window]
            wanted = expected(all_rows) if all_rows else {}
            for windows in (kept, kept_windows(TableReader(root))):
                seen = shown(windows)
                assert list(seen) == sorted(wanted)
                wrong = [(key, name, row[name], wanted[key][name]) for key, row in seen.items() for name in FIGURES
                         if not same(row[name], wanted[key].get(name))]  # fmt: skip
                assert not wrong


def write_window(synthetic: Synthetic, window: int, partitions: int = 4) -> None:
    start_ms = NOW_MS + window * WINDOW_MS
    synthetic.group_lag(start_ms, [("g", "t", partition, 100, 100 + window) for partition in range(partitions)])


@pytest.mark.long
def test_a_new_window_costs_its_own_rows(tmp_path: Path) -> None:
    """However much the table holds: a start reads the windows of half an hour, after that what is new."""
    synthetic, reader = Synthetic(str(tmp_path), CLUSTER), CountingReader(str(tmp_path))
    with synthetic.together():
        for window in range(60):
            write_window(synthetic, window)
    windows = kept_windows(reader)
    windows.refresh()
    assert reader.rows_read == 31 * 4
    for window in range(60, 63):
        reader.rows_read = 0
        write_window(synthetic, window)
        reader.look_again()
        assert windows.refresh()
        assert reader.rows_read == 4
    picture = windows.picture()
    assert picture is not None
    assert picture.history().counts.tolist() == [2 * 31] * 4


@pytest.mark.long
def test_verdicts_alone_need_the_windows_of_their_look_back(tmp_path: Path) -> None:
    """Of 41 windows 13 are read, and of who waits the earlier ones; verdicts are the same. A lag is shown as old as the
    13 at most."""
    synthetic, reader = Synthetic(str(tmp_path), CLUSTER), CountingReader(str(tmp_path))
    with synthetic.together():
        for window in range(41):
            rows = [("stuck", "t", 0, 100, 100 + window), ("reads", "t", 0, 100 + window, 100 + window)]
            synthetic.group_lag(NOW_MS + window * WINDOW_MS, rows)
    verdicts, whole = (
        read_picture(reader, CLUSTER, window_ms=WINDOW_MS, verdicts_only=alone) for alone in (True, False)
    )
    assert reader.rows_read == 2 * (13 + 31) + (41 - 13) + (41 - 31)
    assert verdicts is not None
    assert whole is not None
    shown_by_all = ["group_id", "status", "at_once", "stuck_ms", "completeness"]
    assert verdicts.with_figures().select(shown_by_all).equals(whole.with_figures().select(shown_by_all))
    assert verdicts.partitions["lag_seconds"].to_pylist() == [0.0, 12 * 60 + 55]


@pytest.mark.long
def test_upkeep_costs_nothing(tmp_path: Path) -> None:
    synthetic, reader = Synthetic(str(tmp_path), CLUSTER), CountingReader(str(tmp_path))
    for window in range(3):
        write_window(synthetic, window)
    windows = kept_windows(reader)
    assert windows.refresh()
    reader.rows_read = 0
    DeltaTable(str(tmp_path / "group_lag")).optimize.compact()
    reader.look_again()
    assert not windows.refresh()
    DeltaTable(str(tmp_path / "group_lag")).delete(f"window_start < {instant(utc(NOW_MS - 90 * WINDOW_MS))}")
    reader.look_again()
    assert not windows.refresh()
    assert reader.rows_read == 0


@pytest.mark.long
def test_a_table_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    synthetic, reader = Synthetic(str(tmp_path), CLUSTER), TableReader(str(tmp_path))
    for window in (5, 6):
        write_window(synthetic, window)
    windows = kept_windows(reader)
    assert len(shown(windows)) == 4
    (tmp_path / "group_lag").rename(tmp_path / "away")
    reader.look_again()
    assert not shown(windows)
    for window in (1, 2, 3):
        write_window(Synthetic(str(tmp_path), CLUSTER), window, partitions=1)
    reader.look_again()
    assert len(shown(windows)) == 1


@pytest.mark.long
def test_names_of_groups_that_are_gone_are_forgotten(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("streaming.views.group_columns.NAMES_SPARE", 4)
    synthetic, reader = Synthetic(str(tmp_path), CLUSTER), TableReader(str(tmp_path))
    windows = kept_windows(reader)
    for window in range(0, 400, 40):
        synthetic.group_lag(NOW_MS + window * WINDOW_MS, [(f"group-{window}", "t", 0, 1, 2)])
        reader.look_again()
        assert list(shown(windows)) == [(f"group-{window}", "t", 0)]
        assert len(windows.names.groups) <= 8


def test_only_rows_that_are_asked_for_are_judged(tmp_path: Path) -> None:
    """A partition number that no topic of Kafka's can have is none."""
    synthetic = Synthetic(str(tmp_path), CLUSTER)
    synthetic.group_lag(NOW_MS, [("g", "t", 0, 1, 2), ("g", "t", 2**31 - 1, 1, 2)])
    Synthetic(str(tmp_path), "other").group_lag(NOW_MS + WINDOW_MS, [("h", "t", 0, 1, 2)])
    picture = read_picture(TableReader(str(tmp_path)), CLUSTER, window_ms=WINDOW_MS)
    assert picture is not None
    assert picture.partitions.select(["group_id", "partition"]).to_pylist() == [{"group_id": "g", "partition": 0}]
    assert pc.all(pc.is_valid(picture.partitions["lag_seconds"])).as_py()


def test_of_most_windows_offsets_are_read_alone_and_verdicts_are_those_of_rows_read_whole(tmp_path: Path) -> None:
    """One group reads all, one stands still, one falls behind; of one a partition is gone, and one has ended."""
    synthetic, reader = Synthetic(str(tmp_path), CLUSTER), TableReader(str(tmp_path))
    assert read_picture(reader, CLUSTER, window_ms=WINDOW_MS) is None, "there is no table"
    with synthetic.together():
        for index in range(12):
            end = 1_000 * (index + 1)
            rows = [("reads", "t", 0, end, end), ("stands", "t", 0, 500, end), ("behind", "t", 0, end // 2, end)]
            rows += [("reads", "t", 1, end, end)] if index < 6 else []
            rows += [("ended", "t", 0, 100, end)] if index < 4 else []
            synthetic.group_lag(NOW_MS + index * WINDOW_MS, rows)
    reader.look_again()
    whole = judge(reader.arrow("group_lag", columns=COLUMNS), window_ms=WINDOW_MS)
    picture = read_picture(reader, CLUSTER, window_ms=WINDOW_MS)
    assert whole is not None
    assert picture is not None
    assert picture.with_figures().to_pylist() == whole.with_figures().to_pylist()
    assert picture.partitions["group_id"].to_pylist() == ["behind", "reads", "stands"]
    assert picture.newest_event_ms == whole.newest_event_ms


@pytest.mark.long
def test_what_is_read_alone_is_judged_as_among_all(tmp_path: Path) -> None:
    """One group, or, as control does, the groups of a topic: verdicts are as of the newest sample of all groups,
    whether the newest windows have the group or not."""
    synthetic, reader = Synthetic(str(tmp_path), CLUSTER), CountingReader(str(tmp_path))
    with synthetic.together():
        for index in range(30):
            rows: list[tuple[str, str, int, int | None, int]] = [("busy", "u", 0, 10 * index, 10 * index + 10)]
            rows += [("late", "t", n, 100, 110 if index > 18 else 100) for n in range(2)] if index < 28 else []
            synthetic.group_lag(NOW_MS + index * WINDOW_MS, rows)
    whole = kept_windows(reader)
    whole.refresh()
    for where, group, rows_of_group in (
        (equal("group_id", "busy"), "busy", 30), (equal("group_id", "late"), "late", 2 * 28),
        (equal("topic", "t"), "late", 2 * 28),
    ):  # fmt: skip
        among_all = whole.picture([group])
        reader.rows_read = 0
        alone = read_picture(reader, CLUSTER, window_ms=WINDOW_MS, where=where)
        assert among_all is not None
        assert alone is not None
        assert alone.newest_event_ms == among_all.newest_event_ms
        rows_alone, rows_among_all = (
            one.with_figures().drop_columns(["row"]).to_pylist() for one in (alone, among_all)
        )
        assert rows_alone == rows_among_all
        assert {row["status"] for row in rows_alone} == {LagStatus.STALL if group == "late" else LagStatus.OK}
        # The newest window once more for its time, and windows again whose partitions newer ones lack.
        assert reader.rows_read <= rows_of_group + 4
    assert read_picture(reader, CLUSTER, window_ms=WINDOW_MS, where=equal("group_id", "nobody")) is None
    picture = whole.picture()
    assert picture is not None
    assert picture.of_topic("t").partitions["status"].to_pylist() == [LagStatus.STALL] * 2


partitions = st.lists(
    st.tuples(st.sampled_from(list(LagStatus)), st.none() | st.integers(0, 3), st.booleans()), min_size=1, max_size=4
)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["a", "b", "ab", "ä", "z", "\U0001f600"]), partitions))
def test_the_worst_comes_first_then_most_lag_then_the_name(
    groups: dict[str, list[tuple[LagStatus, int | None, bool]]],
) -> None:
    rows = [(name, *row) for name in sorted(groups) for row in groups[name]]
    names, statuses, lags, final = zip(*rows, strict=True) if rows else ((), (), (), ())
    ranked = ranked_groups(pa.table({
        "group_id": pa.array(names, pa.string()), "status": pa.array(map(int, statuses), pa.int64()),
        "lag_records": pa.array(lags, pa.int64()),
        "lag_seconds": pa.array(lags, pa.float64()), "lag_seconds_is_final": pa.array(final, pa.bool_()),
    })) if rows else []  # fmt: skip
    worst = {name: max(status for status, _, _ in rows) for name, rows in groups.items()}
    total = {name: sum(lag or 0 for _, lag, _ in rows) for name, rows in groups.items()}
    assert [row.group for row in ranked] == sorted(groups, key=lambda name: (-worst[name], -total[name], name))
    for row in ranked:
        assert row.status == worst[row.group].label
        assert row.lag_seconds_is_final == all(final for _, _, final in groups[row.group])


@pytest.mark.long
@pytest.mark.parametrize(("committed", "windows_read"), [(100, 31 + 28), (None, 13)])
def test_older_windows_are_read_where_a_lag_may_be_older(
    committed: int | None, windows_read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 41 windows a verdict needs 13; a group that keeps up needs no more. Of one that commits nothing those of half
    an hour show how old its lag is, and all of them how often it commits."""
    own = settings_for(tmp_path)
    synthetic = Synthetic(own.storage.tables)
    with synthetic.together():
        for end in range(100, 141):
            reads = end if committed is None else committed
            synthetic.group_lag(NOW_MS + (end - 100) * WINDOW_MS, [("g", "t", 0, reads, end)])
    rows_read = []
    read = TableReader.encoded

    def counted(self: TableReader, name: str, *, columns: Sequence[str], where: Condition = ALL_ROWS) -> pa.Table:
        rows = read(self, name, columns=columns, where=where)
        rows_read.append(rows.num_rows)
        return rows

    monkeypatch.setattr(TableReader, "encoded", counted)
    report = read_lag(own, group_id=None, matches=re.compile(""), groups_max=10)
    assert sum(rows_read) == windows_read
    age_s = report["groups"][0]["lag_seconds"]
    assert age_s == (0.0 if committed is None else pytest.approx(40 * 60 - 10 * 60, abs=120))


@pytest.mark.long
def test_each_group_has_its_own_reason_in_any_order(tables_in_memory: str) -> None:
    """Reasons are put into words when they are asked for, whatever is asked for first."""
    synthetic, groups = Synthetic(tables_in_memory, CLUSTER), REASONS_BLOCK + 2
    rows = [(f"g{number:04}", f"t{number:04}", 0, 0, 5_000 + number) for number in range(groups)]
    with synthetic.together():
        for window in range(2):
            synthetic.group_lag(NOW_MS + window * WINDOW_MS, rows)
    picture = read_picture(TableReader(tables_in_memory), CLUSTER, window_ms=WINDOW_MS)
    assert picture is not None
    verdicts = verdicts_by_group(picture)
    backwards = [to_json(row) for row in reversed(verdicts)]
    assert [to_json(row) for row in verdicts] == backwards[::-1]
    assert [row.group for row in verdicts] == [f"g{number:04}" for number in reversed(range(groups))]
    for row in verdicts:
        assert f"t{row.group[1:]}-0: " in str(row.why)
        assert f"{row.lag_records:,} records wait" in str(row.why)
