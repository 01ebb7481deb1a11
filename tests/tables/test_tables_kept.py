"""Tables on a disk that a thread keeps open to write to: what others do meanwhile is seen at the next write."""

import shutil
from pathlib import Path

import pytest

from streaming import tables
from streaming.tables import store
from streaming.tables.opening import log_entry

NAME = "broker_intent"
START_MS = 1_795_000_000_000


def add(root: Path, version: int, *, transaction: str = "t") -> bool:
    row = {"kafka_cluster": "c", "broker": version, "event_time": tables.utc(START_MS), "intent": "drain", "by": "me"}
    return tables.append(str(root), NAME, [row], transaction_id=transaction, transaction_version=version)


def add_as_another(root: Path, version: int, *, transaction: str = "t") -> bool:
    """The same as a process that has not written before."""
    kept = dict(store._tables_kept())
    store._tables_kept().clear()
    added = add(root, version, transaction=transaction)
    store._tables_kept().clear()
    store._tables_kept().update(kept)
    return added


def brokers(root: Path) -> list[int]:
    return sorted(row["broker"] for row in tables.read(str(root), NAME, columns=["broker"]))


def test_one_who_writes_again_and_again_opens_the_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control writes events all the time: to open the table took as much CPU as to write to it."""
    assert add(tmp_path, 0)
    monkeypatch.setattr(store, "open_table", lambda *_: pytest.fail("the table is opened again"))
    assert [add(tmp_path, version) for version in (1, 2, 2)] == [True, True, False]


def test_transactions_and_rows_of_others_are_seen(tmp_path: Path) -> None:
    assert add(tmp_path, 0)
    assert add_as_another(tmp_path, 1)
    assert not add(tmp_path, 1)
    assert tables.delete(str(tmp_path), NAME, tables.equal("broker", 0)) == 1
    tables.tidy(str(tmp_path), NAME)
    assert add(tmp_path, 2)
    assert brokers(tmp_path) == [1, 2]


def test_a_table_that_is_gone_or_made_anew_is_opened_again(tmp_path: Path) -> None:
    """Its transactions are other ones: what is known of the old table must refuse nothing, and allow nothing."""
    assert [add(tmp_path, version) for version in (0, 1)] == [True, True]
    shutil.rmtree(tmp_path / NAME)
    assert add(tmp_path, 1)
    shutil.rmtree(tmp_path / NAME)
    assert [add_as_another(tmp_path, version, transaction="u") for version in (0, 5)] == [True, True]
    assert not add(tmp_path, 5, transaction="u")
    assert add(tmp_path, 0)
    assert brokers(tmp_path) == [0, 0, 5]


def test_a_log_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    assert [add(tmp_path, version) for version in (0, 1)] == [True, True]
    assert add_as_another(tmp_path, 2)
    table = tables.open_table(str(tmp_path), NAME)
    assert table is not None
    table.create_checkpoint()
    for version in range(table.version()):
        log_entry(tmp_path / NAME, version).unlink()
    assert not add(tmp_path, 2)
    assert add(tmp_path, 3)
    assert brokers(tmp_path) == [0, 1, 2, 3]
