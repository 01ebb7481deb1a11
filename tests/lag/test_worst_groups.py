"""Groups are ranked by columns as their verdicts are sorted; older windows are read only for lags that need them."""

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.lag import LagStatus
from streaming.commands.lag import read_lag
from streaming.tables import ALL_ROWS, Condition, TableReader
from streaming.views.group_ranking import ranked_groups
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

partitions = st.lists(
    st.tuples(st.sampled_from(list(LagStatus)), st.none() | st.integers(0, 3), st.booleans()), min_size=1, max_size=4
)


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


@pytest.mark.parametrize(("committed", "windows_read"), [(100, 31 + 28), (None, 13)])
def test_older_windows_are_read_where_a_lag_may_be_older(
    committed: int | None, windows_read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 41 windows a verdict needs 13; a group that keeps up needs no more. Of one that commits nothing those of half
    an hour show how old its lag is, and all of them how often it commits."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for window in range(41):
            end = 100 + window
            synthetic.group_lag(
                NOW_MS + window * WINDOW_MS, [("g", "t", 0, end if committed is None else committed, end)]
            )
    rows_read = 0
    read = TableReader.encoded

    def counted(self: TableReader, name: str, *, columns: Sequence[str], where: Condition = ALL_ROWS) -> pa.Table:
        nonlocal rows_read
        rows = read(self, name, columns=columns, where=where)
        rows_read += rows.num_rows
        return rows

    monkeypatch.setattr(TableReader, "encoded", counted)
    report = read_lag(settings, group_id=None, matches=re.compile(""), groups_max=10)
    assert rows_read == windows_read
    age_s = report["groups"][0]["lag_seconds"]
    assert age_s == (0.0 if committed is None else pytest.approx(40 * 60 - 10 * 60, abs=120))
