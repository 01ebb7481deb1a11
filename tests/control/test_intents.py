"""What people want of brokers, written by machines whose clocks differ."""

import pytest

from streaming import tables
from streaming.control import intents
from streaming.control.intents import TABLE, note_intent, note_own_log_dir, note_restored
from streaming.errors import TableUnavailable
from streaming.tables import Row, TableReader
from streaming.views.intents import (
    Intent,
    cordons_of,
    demotions_of,
    drained_at,
    drained_brokers,
    newest_intents,
)

CLUSTER = "main"
NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def root(tables_in_memory: str) -> str:
    return tables_in_memory


def drained(root: str) -> frozenset[int]:
    return drained_brokers(TableReader(root), CLUSTER)


def times_ms(root: str) -> list[int]:
    return sorted(tables.to_ms(row["event_time"]) for row in tables.read(root, TABLE))


@pytest.mark.parametrize("lag_ms", [0, 1, HOUR_MS])
def test_a_clock_that_is_behind_takes_back_what_another_has_written(root: str, lag_ms: int) -> None:
    note_intent(root, CLUSTER, 4, Intent.DRAIN, "a person", now_ms=NOW_MS)
    note_intent(root, CLUSTER, 4, Intent.USE, "a person", now_ms=NOW_MS - lag_ms)
    assert drained(root) == frozenset()
    note_intent(root, CLUSTER, 4, Intent.DRAIN, "a person", now_ms=NOW_MS - lag_ms)
    assert drained(root) == {4}
    assert times_ms(root) == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_brokers_don_t_wait_for_each_other(root: str) -> None:
    note_intent(root, CLUSTER, 4, Intent.DRAIN, "a person", now_ms=NOW_MS)
    note_intent(root, CLUSTER, 5, Intent.DRAIN, "a person", now_ms=NOW_MS - HOUR_MS)
    assert drained(root) == {4, 5}
    assert times_ms(root) == [NOW_MS - HOUR_MS, NOW_MS]


def test_who_was_drained_is_known_of_each_time(root: str) -> None:
    for broker, intent, at_ms in ((4, Intent.DRAIN, 10), (5, Intent.DRAIN, 20), (4, Intent.USE, 30)):
        note_intent(root, CLUSTER, broker, intent, "a person", now_ms=at_ms)
    at = drained_at(TableReader(root), CLUSTER)
    assert [sorted(at(time_ms)) for time_ms in (9, 10, 20, 29, 30)] == [[], [4], [4, 5], [4, 5], [5]]


def test_who_comes_second_at_the_same_time_writes_after_the_first(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read the same rows before either has written."""
    looks = 0

    def look(reader: TableReader, kafka_cluster: str) -> dict[int, Row]:
        nonlocal looks
        looks += 1
        before = newest_intents(reader, kafka_cluster)
        if looks == 1:
            monkeypatch.setattr(intents, "newest_intents", newest_intents)
            note_intent(root, CLUSTER, 4, Intent.USE, "a person", now_ms=NOW_MS)
            monkeypatch.setattr(intents, "newest_intents", look)
        return before

    monkeypatch.setattr(intents, "newest_intents", look)
    note_intent(root, CLUSTER, 4, Intent.DRAIN, "a person", now_ms=NOW_MS)
    assert drained(root) == {4}
    assert times_ms(root) == [NOW_MS, NOW_MS + 1]


def test_what_is_not_kept_is_not_called_noted(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "append", lambda *_, **__: False)
    with pytest.raises(TableUnavailable, match="broker 4 is not noted for drain"):
        note_intent(root, CLUSTER, 4, Intent.DRAIN, "a person", now_ms=NOW_MS)


def test_what_was_brought_back_is_forgotten_unless_somebody_wants_otherwise_by_then(root: str) -> None:
    """An undemotion takes a while: the broker may be demoted again, or drained, before its order is forgotten."""
    for broker, then in ((1, None), (2, Intent.DEMOTE), (3, Intent.DRAIN)):
        note_intent(root, CLUSTER, broker, Intent.DEMOTE, "a person", now_ms=NOW_MS, demotions=("p",))
        note_intent(root, CLUSTER, broker, Intent.USE, "a person", now_ms=NOW_MS + 1_000, demotions=("p",))
        if then is not None:
            note_intent(
                root, CLUSTER, broker, then, "a person", now_ms=NOW_MS + 2_000, demotions=("q",), cordons=["/d"]
            )
        note_restored(root, CLUSTER, broker, ("p",))
    rows = newest_intents(TableReader(root), CLUSTER)
    assert {broker: (row["intent"], demotions_of(row)) for broker, row in rows.items()} == {
        1: ("use", ()), 2: ("demote", ("q",)), 3: ("drain", ("q",)),
    }  # fmt: skip
    assert cordons_of(rows[3]) == {"/d"}


def test_a_row_that_comes_between_look_and_note_is_looked_at_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    note_intent(root, CLUSTER, 4, Intent.DRAIN, "a person", now_ms=NOW_MS, cordons=["/a", "/b"])
    note_intent(root, CLUSTER, 5, Intent.USE, "a person", now_ms=NOW_MS, demotions=("p",))
    noted = set[int]()

    def look(reader: TableReader, kafka_cluster: str) -> dict[int, Row]:
        before = newest_intents(reader, kafka_cluster)
        monkeypatch.setattr(intents, "newest_intents", newest_intents)
        for broker in (4, 5):
            intent = Intent(before[broker]["intent"])
            if broker not in noted:
                note_intent(root, CLUSTER, broker, intent, "another", now_ms=NOW_MS + 9_000)
        noted.update((4, 5))
        monkeypatch.setattr(intents, "newest_intents", look)
        return before

    monkeypatch.setattr(intents, "newest_intents", look)
    note_own_log_dir(root, CLUSTER, 4, "/a")
    noted.clear()
    note_restored(root, CLUSTER, 5, ("p",))
    rows = newest_intents(TableReader(root), CLUSTER)
    assert (sorted(cordons_of(rows[4])), demotions_of(rows[5])) == (["/b"], ())
