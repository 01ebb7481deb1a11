"""Tables of an earlier release get what they lack; those of a newer format are refused by all who read or write."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from streaming import tables
from streaming.cli import run
from streaming.contract import TABLE_FORMAT, TABLES
from streaming.errors import TableUnavailable
from streaming.tables.definitions import CONFIGURATION, FORMAT
from tests.serve.synthetic import NOW_MS, Synthetic

NAME = "execution"
NEW = ["in_windows_only", "kafka_cluster_id"]
"""Columns that the earlier release of these tests did not know."""


@pytest.fixture
def writer(tmp_path: Path) -> Synthetic:
    return Synthetic(str(tmp_path))


def of_an_earlier_release(root: Path) -> None:
    """A table without a format and without some of today's columns."""
    fields = [field for field in tables.arrow_schema(TABLES[NAME]) if field.name not in NEW]
    DeltaTable.create(str(root / NAME), Schema.from_arrow(pa.schema(fields)), configuration=CONFIGURATION)


def set_format(root: Path, written: str) -> None:
    DeltaTable(str(root / NAME)).alter.set_table_properties({FORMAT: written}, raise_if_not_exists=False)


def upgrade(root: Path, *options: str) -> int:
    return run(["tables", "upgrade", "--set", f"storage.tables={root}", *options])


def version(root: Path) -> int:
    return DeltaTable(str(root / NAME)).version()


def test_a_new_table_has_the_format_and_lacks_nothing(
    tmp_path: Path, writer: Synthetic, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.event(NOW_MS, 0, "started")
    assert DeltaTable(str(tmp_path / NAME)).metadata().configuration[FORMAT] == str(TABLE_FORMAT)
    before = version(tmp_path)
    assert upgrade(tmp_path) == 0
    line = f"1 table in {tmp_path}, format {TABLE_FORMAT}: all as this release needs them\n"
    assert capsys.readouterr() == (line, "")
    assert version(tmp_path) == before


def test_a_dry_run_names_what_is_lacking_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_an_earlier_release(tmp_path)
    before = version(tmp_path)
    assert upgrade(tmp_path, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{NAME}: new columns {', '.join(NEW)}; format none -> {TABLE_FORMAT}",
        f"1 table in {tmp_path}, format {TABLE_FORMAT}: 1 would be changed",
    ]
    assert version(tmp_path) == before


def test_what_is_lacking_is_added_and_rows_stay(
    tmp_path: Path, writer: Synthetic, capsys: pytest.CaptureFixture[str]
) -> None:
    of_an_earlier_release(tmp_path)
    assert upgrade(tmp_path, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    change = {"format_before": 0, "columns_added": NEW, "properties_set": {FORMAT: str(TABLE_FORMAT)}}
    assert content["tables"] == [{"table": NAME, **change}]
    writer.event(NOW_MS, 0, "started")
    assert [row[NEW[0]] for row in tables.read(str(tmp_path), NAME)] == [None]
    assert upgrade(tmp_path) == 0
    assert "all as this release needs them" in capsys.readouterr().out


def test_who_writes_to_a_table_of_an_earlier_release_brings_it_up_to_date(tmp_path: Path, writer: Synthetic) -> None:
    of_an_earlier_release(tmp_path)
    writer.event(NOW_MS, 0, "started")
    table = DeltaTable(str(tmp_path / NAME))
    assert table.metadata().configuration[FORMAT] == str(TABLE_FORMAT)
    assert {field.name for field in table.schema().fields} == set(TABLES[NAME].column_names())


@pytest.mark.parametrize("written", [str(TABLE_FORMAT + 1), "two"])
def test_a_newer_format_is_refused_by_all_and_stays_as_it_is(
    tmp_path: Path, writer: Synthetic, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    writer.event(NOW_MS, 0, "started")  # this thread has the table open from now on
    writer.broker_load(NOW_MS, {1: 1.0})
    set_format(tmp_path, written)
    before = version(tmp_path)
    message = f"table {NAME} has format {written!r}, of a newer release"
    with pytest.raises(TableUnavailable, match=message):
        writer.event(NOW_MS, 1, "done")
    with pytest.raises(TableUnavailable, match=message):
        tables.read(str(tmp_path), NAME)
    for command in (["tables", "upgrade"], ["sql", "SELECT * FROM execution"], ["status"]):
        assert run([*command, "--set", f"storage.tables={tmp_path}", "--set", "kafka.cluster_name=test"]) == 1
        assert message in capsys.readouterr().err
    assert version(tmp_path) == before


def test_a_reader_that_stays_open_sees_that_the_format_was_raised(tmp_path: Path, writer: Synthetic) -> None:
    """A page that runs on while the newer release begins to write must not show rows that it misreads."""
    writer.event(NOW_MS, 0, "started")
    reader = tables.TableReader(str(tmp_path))
    assert len(reader.rows(NAME)) == 1
    set_format(tmp_path, str(TABLE_FORMAT + 1))
    for _ in range(2):
        reader.look_again()
        with pytest.raises(TableUnavailable, match="of a newer release"):
            reader.rows(NAME)


def test_the_release_before_writes_to_tables_with_columns_that_it_does_not_know(tmp_path: Path) -> None:
    """It can be installed again while the format is the same: its lease and its journal are then written to these."""
    root = str(tmp_path)

    def lease(cluster: str, sequence: int) -> dict[str, object]:
        return {
            "kafka_cluster": cluster, "sequence": sequence, "owner": "host:1", "renewed_at": tables.utc(NOW_MS),
            "ttl_ms": 1, "released": False,
        }  # fmt: skip

    tables.append(root, "lease", [lease("a", 0)], transaction_id="before", transaction_version=0)
    newer = [Field("of_tomorrow", PrimitiveType("string")), Field("seen_at", PrimitiveType("timestamp"))]
    DeltaTable(f"{root}/lease").alter.add_columns(newer)
    other = {**lease("b", 7), "of_tomorrow": "kept", "seen_at": tables.utc(NOW_MS)}
    write_deltalake(f"{root}/lease", pa.Table.from_pylist([other], pa.schema(newest_types(root))), mode="append")
    tables.append(root, "lease", [lease("c", 1)], transaction_id="append", transaction_version=1)
    tables.replace(root, "lease", [lease("a", 1)], kafka_cluster="a", transaction_id="a", transaction_version=1)
    rows = pa.table(DeltaTable(f"{root}/lease").to_pyarrow_table()).sort_by("kafka_cluster").to_pylist()
    assert [(row["kafka_cluster"], row["sequence"], row["of_tomorrow"]) for row in rows] == [
        ("a", 1, None), ("b", 7, "kept"), ("c", 1, None),
    ]  # fmt: skip
    assert [row["seen_at"] for row in rows] == [None, tables.utc(NOW_MS), None]


def newest_types(root: str) -> list[pa.Field]:
    """Fields of the table as it is."""
    return [field.remove_metadata() for field in pa.schema(DeltaTable(f"{root}/lease").schema().to_arrow())]


def test_a_column_of_another_type_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = [
        field.with_type(pa.string()) if field.name == "sequence" else field
        for field in tables.arrow_schema(TABLES[NAME])
    ]
    DeltaTable.create(str(tmp_path / NAME), Schema.from_arrow(pa.schema(fields)))
    assert upgrade(tmp_path) == 1
    error = f"error: table {NAME}: columns of another type than this release's: sequence\n"
    assert capsys.readouterr() == ("", error)


def test_a_place_without_tables_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert upgrade(tmp_path) == 2
    assert capsys.readouterr() == ("", f"error: no tables in {tmp_path}: is storage.tables right?\n")
