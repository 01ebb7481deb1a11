"""Committed offsets in columns are the mapping that they stand for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.cluster.answer_columns import OffsetRows, TopicRows
from streaming.collect.group_table import GroupTable, GroupView

TOPICS = ("a", "b", "c")
DTYPE = np.dtype([("index", ">i4"), ("offset", ">i8")])
COMMITTED = st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 5)), st.integers(-1, 9))
Committed = dict[tuple[str, int], int]


def rows_of(committed: Committed) -> OffsetRows:
    topic = np.array([TOPICS.index(key[0]) for key in committed], dtype=np.int64)
    rows = np.array([(key[1], offset) for key, offset in committed.items()], dtype=DTYPE)
    return OffsetRows(TopicRows(TOPICS, topic, rows))


@given(COMMITTED, COMMITTED)
def test_it_is_the_mapping_of_partitions_that_have_an_offset(one: Committed, two: Committed) -> None:
    known, other = ({key: value for key, value in rows.items() if value >= 0} for rows in (one, two))
    rows = rows_of(one)
    assert dict(rows) == known
    assert len(rows) == len(known)
    assert rows == known
    assert (rows == rows_of(two)) == (known == other)
    assert (rows == other) == (known == other)


@given(st.dictionaries(st.sampled_from("xyz"), COMMITTED))
def test_a_table_has_the_same_rows_of_columns_as_of_dictionaries(groups: dict[str, Committed]) -> None:
    made = [
        GroupTable({name: GroupView("Stable", make(rows), {}) for name, rows in groups.items()})
        for make in (rows_of, lambda rows: {key: value for key, value in rows.items() if value >= 0})
    ]
    seen = []
    for table in made:
        rows, offsets = table.committing
        names = [rows.groups[group] for group in rows.group.tolist()]
        seen.append(set(zip(names, rows.names.keys_of_rows(), offsets.tolist(), strict=True)))
    assert seen[0] == seen[1]
    assert len(seen[0]) == sum(value >= 0 for rows in groups.values() for value in rows.values())
