"""One suite for both kinds of tables: what control relies on holds of Delta's and of those in memory alike."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming import tables
from streaming.errors import TableUnavailable
from streaming.tables import TableReader, store
from streaming.tables.opening import log_entry
from tests.tables_in_memory import forget, in_memory

START_MS = 1_795_000_000_000


@pytest.fixture(params=["delta", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    name = str(tmp_path) if request.param == "delta" else in_memory()
    yield name
    forget(name)


def intent(broker: int, at_ms: int, *, cluster: str = "c", by: str = "it's me") -> dict[str, Any]:
    return {
        "kafka_cluster": cluster, "broker": broker, "event_time": tables.utc(at_ms), "intent": "drain", "by": by,
        "cordons_json": None, "demotions_json": None,
    }  # fmt: skip


def add(root: str, version: int | tables.AtTime, *rows: dict[str, Any], transaction: str = "t") -> bool:
    return tables.append(root, "broker_intent", rows, transaction_id=transaction, transaction_version=version)


def brokers(root: str, where: tables.Condition = tables.ALL_ROWS) -> list[int]:
    return sorted(row["broker"] for row in tables.read(root, "broker_intent", columns=["broker"], where=where))


def test_what_is_not_there_has_no_rows_and_no_version(root: str) -> None:
    reader = TableReader(root)
    assert not tables.table_exists(root, "broker_intent")
    assert reader.version("broker_intent") is None
    assert reader.newest("broker_intent", "event_time") is None
    assert reader.newest_row("broker_intent", "event_time") is None
    assert reader.rows("broker_intent") == []
    assert reader.arrow("broker_intent", columns=["broker"]).num_rows == 0


def test_a_table_is_made_once_and_empty(root: str) -> None:
    for _ in range(2):
        tables.ensure_table(root, "broker_intent")
    assert tables.table_exists(root, "broker_intent")
    assert tables.read(root, "broker_intent") == []


def test_a_transaction_is_written_once_and_older_ones_never(root: str) -> None:
    assert add(root, 3, intent(1, START_MS))
    assert not add(root, 3, intent(2, START_MS))
    assert not add(root, 2, intent(3, START_MS))
    assert add(root, 4, intent(4, START_MS))
    assert add(root, 0, intent(5, START_MS), transaction="another")
    assert brokers(root) == [1, 4, 5]


def test_after_a_clock_was_ahead_rows_are_written_at_once_and_each_time_once(root: str) -> None:
    """Else none would be before real time catches up, whoever writes."""
    for broker, at_ms in enumerate((START_MS + 86_400_000, START_MS, START_MS + 5, START_MS + 6)):
        add(root, tables.AtTime(at_ms), intent(broker, at_ms))
    assert brokers(root) == [0, 1, 2, 3]


def test_a_write_of_the_same_time_is_the_same_write(root: str) -> None:
    assert add(root, tables.AtTime(START_MS), intent(1, START_MS))
    assert not add(root, tables.AtTime(START_MS), intent(2, START_MS))
    assert add(root, tables.AtTime(START_MS + 1), intent(3, START_MS))
    assert brokers(root) == [1, 3]


def test_replacing_takes_the_rows_of_one_cluster_once(root: str) -> None:
    add(root, 0, intent(1, START_MS), intent(2, START_MS, cluster="o'ther"))
    for _ in range(2):
        tables.replace(
            root, "broker_intent", [intent(7, START_MS, cluster="o'ther")], kafka_cluster="o'ther",
            transaction_id="r", transaction_version=0,
        )  # fmt: skip
        assert brokers(root) == [1, 7]


def test_rows_come_back_as_they_were_written_with_all_columns(root: str) -> None:
    row = intent(1, START_MS)
    add(root, 0, {name: row[name] for name in row if name != "by"} | {"by": "someone"})
    assert tables.read(root, "broker_intent") == [row | {"by": "someone"}]
    assert tables.read_arrow(root, "broker_intent").to_pylist() == [row | {"by": "someone"}]


def test_columns_that_are_not_given_are_null(root: str) -> None:
    window = {
        "kafka_cluster": "c", "window_start": tables.utc(START_MS), "window_end": tables.utc(START_MS + 60_000),
        "broker": 1, "covered_ms": 1, "sample_count": 1, "first_event_time_ms": 1, "last_event_time_ms": 1,
        "is_final": True, "updated_at": tables.utc(START_MS), "batch_id": 0, "query_id": "q",
    }  # fmt: skip
    tables.append(root, "broker_load", [window], transaction_id="t", transaction_version=0)
    assert tables.read(root, "broker_load", columns=["broker", "bytes_in_per_sec"]) == [
        {"broker": 1, "bytes_in_per_sec": None}
    ]
    assert tables.read(root, "broker_load", where=tables.at_least("bytes_in_per_sec", 0)) == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (tables.equal("broker", 2), [2]),
        (tables.at_least("broker", 2), [2, 3]),
        (tables.above("broker", 2), [3]),
        (tables.at_most("broker", 2), [1, 2]),
        (tables.below("broker", 2), [1]),
        (tables.one_of("broker", [1, 3]), [1, 3]),
        (tables.one_of("broker", iter([1, 3])), [1, 3]),
        (tables.equal("by", "it's me"), [1, 2]),
        (tables.starts_with("by", "it's"), [1, 2]),
        (tables.is_known("by"), [1, 2, 3]),
        (tables.at_least("event_time", tables.utc(START_MS + 1)), [2, 3]),
        (tables.at_least("broker", 2) & tables.equal("by", "it's me"), [2]),
    ],
    ids=str,
)
def test_conditions_choose_the_same_rows(root: str, where: tables.Condition, expected: list[int]) -> None:
    add(root, 0, intent(1, START_MS), intent(2, START_MS + 1), intent(3, START_MS + 2, by="you"))
    assert brokers(root, where) == expected
    rows = tables.read(root, "broker_intent")
    assert sorted(row["broker"] for row in rows if where.kept([row])) == expected, "asked of one row, as for a deletion"


def test_a_reader_keeps_to_one_version_until_it_looks_again(root: str) -> None:
    add(root, 0, intent(1, START_MS))
    reader = TableReader(root)
    before = reader.version("broker_intent")
    add(root, 1, intent(2, START_MS + 5))
    assert reader.version("broker_intent") == before
    assert len(reader.rows("broker_intent")) == 1
    reader.look_again()
    assert reader.version("broker_intent") == (before or 0) + 1
    assert reader.newest("broker_intent", "event_time") == tables.utc(START_MS + 5)
    newest = reader.newest_row("broker_intent", "event_time", columns=["broker"])
    assert newest == {"broker": 2}


def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(root: str) -> None:
    tables.ensure_table(root, "broker_intent")
    with pytest.raises(TableUnavailable, match="can't be written"):
        add(root, 0, intent(1, START_MS) | {"broker": "no number"})
    assert brokers(root) == []
    assert add(root, 0, intent(1, START_MS))


def test_upkeep_keeps_all_rows(root: str) -> None:
    for version in range(3):
        add(root, version, intent(version, START_MS))
    tables.tidy(root, "broker_intent")
    assert brokers(root) == [0, 1, 2]


def test_rows_that_fulfil_a_condition_are_deleted_and_nothing_else_changes(root: str) -> None:
    assert tables.delete(root, "broker_intent", tables.ALL_ROWS) == 0
    assert not tables.table_exists(root, "broker_intent")
    for number in range(3):
        add(root, number, intent(number, START_MS + number), intent(number + 10, START_MS + number, cluster="other"))
    version = TableReader(root).version("broker_intent")
    old = tables.of_cluster("c") & tables.below("event_time", tables.utc(START_MS + 2))
    assert tables.delete(root, "broker_intent", old) == 2
    assert brokers(root) == [2, 10, 11, 12]
    assert TableReader(root).version("broker_intent") == (version or 0) + 1
    assert tables.delete(root, "broker_intent", old) == 0
    assert TableReader(root).version("broker_intent") == (version or 0) + 1
    assert not add(root, 2, intent(7, START_MS)), "transactions are remembered without their rows"
    assert add(root, 3, intent(7, START_MS + 9, by="some'one"))
    assert tables.read(root, "broker_intent", where=tables.equal("broker", 7)) == [
        intent(7, START_MS + 9, by="some'one")
    ]


def test_a_reader_keeps_rows_that_are_deleted_meanwhile_until_it_looks_again(root: str) -> None:
    add(root, 0, intent(1, START_MS), intent(2, START_MS + 1))
    reader = TableReader(root)
    assert len(reader.rows("broker_intent")) == 2
    tables.delete(root, "broker_intent", tables.equal("broker", 1))
    assert len(reader.rows("broker_intent")) == 2
    reader.look_again()
    assert len(reader.rows("broker_intent")) == 1


def test_an_append_is_repeated_where_rows_are_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path)
    for number in range(3):
        add(root, number, intent(number, START_MS + number))
    deleted: list[int] = []

    def with_a_delete_in_between(*arguments: Any, **options: Any) -> None:
        if not deleted:
            deleted.append(tables.delete(root, "broker_intent", tables.equal("broker", 1)))
        write_deltalake(*arguments, **options)

    monkeypatch.setattr(store, "write_deltalake", with_a_delete_in_between)
    assert add(root, 3, intent(3, START_MS))
    assert deleted == [1]
    assert brokers(root) == [0, 2, 3]
    assert not add(root, 3, intent(3, START_MS))


@pytest.mark.parametrize("at_ms", [START_MS, START_MS + 86_400_000])
def test_all_tries_of_a_write_are_one_write_at_whatever_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_ms: int
) -> None:
    """A commit may take place and yet be shown as failed."""
    root, tries = str(tmp_path), list[int]()
    add(root, tables.AtTime(START_MS + 3_600_000), intent(0, START_MS))

    def written_and_failed(*arguments: Any, **options: Any) -> None:
        tries.append(at_ms)
        write_deltalake(*arguments, **options)
        raise CommitFailedError("another writer was first")

    monkeypatch.setattr(store, "write_deltalake", written_and_failed)
    assert not add(root, tables.AtTime(at_ms), intent(1, at_ms))
    assert tries == [at_ms]
    assert brokers(root) == [0, 1]


def test_a_look_shows_the_greatest_version_of_a_transaction_though_its_rows_are_gone(root: str) -> None:
    reader = TableReader(root)
    assert reader.transaction_version("broker_intent", "t") is None
    add(root, 3, intent(1, START_MS))
    reader.look_again()
    assert reader.transaction_version("broker_intent", "t") == 3
    assert reader.transaction_version("broker_intent", "another") is None
    add(root, 4, intent(2, START_MS))
    assert reader.transaction_version("broker_intent", "t") == 3  # of the version that the look shows
    tables.delete(root, "broker_intent", tables.ALL_ROWS)
    reader.look_again()
    assert (reader.transaction_version("broker_intent", "t"), reader.rows("broker_intent")) == (4, [])


def add_again(root: Path, version: int, *, transaction: str = "t") -> bool:
    return add(str(root), version, intent(version, START_MS), transaction=transaction)


def add_as_another(root: Path, version: int, *, transaction: str = "t") -> bool:
    """The same as a process that has not written before."""
    kept = dict(store._tables_kept())
    store._tables_kept().clear()
    added = add_again(root, version, transaction=transaction)
    store._tables_kept().clear()
    store._tables_kept().update(kept)
    return added


def test_one_who_writes_again_and_again_opens_the_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control writes events all the time: to open the table took as much CPU as to write to it."""
    assert add_again(tmp_path, 0)
    monkeypatch.setattr(store, "open_table", lambda *_: pytest.fail("the table is opened again"))
    assert [add_again(tmp_path, version) for version in (1, 2, 2)] == [True, True, False]


def test_transactions_and_rows_of_others_are_seen(tmp_path: Path) -> None:
    assert add_again(tmp_path, 0)
    assert add_as_another(tmp_path, 1)
    assert not add_again(tmp_path, 1)
    assert tables.delete(str(tmp_path), "broker_intent", tables.equal("broker", 0)) == 1
    tables.tidy(str(tmp_path), "broker_intent")
    assert add_again(tmp_path, 2)
    assert brokers(str(tmp_path)) == [1, 2]


def test_a_table_that_is_gone_or_made_anew_is_opened_again(tmp_path: Path) -> None:
    """Its transactions are other ones: what is known of the old table must refuse nothing, and allow nothing."""
    assert [add_again(tmp_path, version) for version in (0, 1)] == [True, True]
    shutil.rmtree(tmp_path / "broker_intent")
    assert add_again(tmp_path, 1)
    shutil.rmtree(tmp_path / "broker_intent")
    assert [add_as_another(tmp_path, version, transaction="u") for version in (0, 5)] == [True, True]
    assert not add_again(tmp_path, 5, transaction="u")
    assert add_again(tmp_path, 0)
    assert brokers(str(tmp_path)) == [0, 0, 5]


def test_a_log_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    assert [add_again(tmp_path, version) for version in (0, 1)] == [True, True]
    assert add_as_another(tmp_path, 2)
    table = tables.open_table(str(tmp_path), "broker_intent")
    assert table is not None
    table.create_checkpoint()
    for version in range(table.version()):
        log_entry(tmp_path / "broker_intent", version).unlink()
    assert not add_again(tmp_path, 2)
    assert add_again(tmp_path, 3)
    assert brokers(str(tmp_path)) == [0, 1, 2, 3]


def test_a_table_that_is_kept_open_is_the_newest_one(tmp_path: Path) -> None:
    """Also after others have written it, and after it was removed and made again in its place."""
    root = str(tmp_path)
    assert tables.current_table(root, "broker_intent") is None
    add(root, 0, intent(0, START_MS))
    kept = tables.current_table(root, "broker_intent")
    assert kept is not None
    assert kept.version() == tables.opened(tables.table_uri(root, "broker_intent")).version()
    add_as_another(tmp_path, 1)
    again = tables.current_table(root, "broker_intent")
    assert again is not None
    assert again.version() == tables.opened(tables.table_uri(root, "broker_intent")).version()
    shutil.rmtree(Path(root) / "broker_intent")
    assert tables.current_table(root, "broker_intent") is None
    tables.create_table(root, "broker_intent")
    anew = tables.current_table(root, "broker_intent")
    assert anew is not None
    assert anew.file_uris() == []
