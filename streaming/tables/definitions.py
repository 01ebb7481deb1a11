"""How a table must be defined, as Arrow and delta-rs take it, and what an earlier release's lacks.

The format is a property of each table. It is raised only where an older release would take rows for something that they
are not; a new column needs none, since older releases pass over it and newer ones read null where it lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, Schema
from pyarrow import compute as pc

from streaming.contract import TABLE_FORMAT, ColumnType, Table
from streaming.errors import TableUnavailable
from streaming.tables.places import local_folder

ARROW_TYPES: dict[ColumnType, pa.DataType] = {
    ColumnType.STRING: pa.string(),
    ColumnType.LONG: pa.int64(),
    ColumnType.INTEGER: pa.int32(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.BINARY: pa.binary(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.INTEGER_LIST: pa.list_(pa.int32()),
}

_WHOLE_MAX = float(2**63 - 1024)
"""Greatest float that 64 bits hold as a whole number."""
FORMAT = "rebalancer.format"
"""The property. delta-rs and Spark keep properties that they don't know."""
CONFIGURATION = {
    # A little longer than replaced files stay: time travel needs both.
    "delta.logRetentionDuration": "interval 50 hours",
    "delta.deletedFileRetentionDuration": "interval 48 hours",
    "delta.checkpointInterval": "50",
    # Upkeep removes old log entries: as a part of each commit it lists the whole log, tens of thousands of files.
    "delta.enableExpiredLogCleanup": "false",
}
ON_OBJECT_STORES = {
    # Rows of one cluster are replaced by reading the log anew, with a request for each entry since its checkpoint.
    "delta.checkpointInterval": "10",
}


def as_floats(numbers: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Whole numbers as floats. Above 2^53 they lose their last digits; Arrow by itself would raise ArrowInvalid."""
    return numbers.cast(pa.float64(), safe=False)


def as_whole(floats: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Floats without a fraction as whole numbers, at most as great as 64 bits hold; null where they are null."""
    return pc.min_element_wise(floats, _WHOLE_MAX, skip_nulls=False).cast(pa.int64())


def arrow_schema(table: Table) -> pa.Schema:
    """Arrow schema with the comments as field metadata, where delta-rs stores them as column comments."""
    return pa.schema(
        [
            pa.field(column.name, ARROW_TYPES[column.type], column.nullable, metadata={"comment": column.comment})
            for column in table.columns
        ]
    )


def row_schema(table: Table) -> pa.Schema:
    """Returns the table's Arrow schema without comments, for rows that are written: if an earlier version has written
    other comments to the table, delta-rs would refuse rows with comments.
    """
    return pa.schema(field.remove_metadata() for field in arrow_schema(table))


@dataclass(frozen=True, slots=True)
class Differences:
    """What a table lacks of its definition in this release; nothing where it is falsy."""

    format_now: int
    """Format of the table; 0 if it has none, from before there were formats."""
    columns: tuple[str, ...]
    """New columns, in the definition's order."""
    properties: Mapping[str, str]
    """Properties that are missing or other, as they must be; the format among them."""

    def __bool__(self) -> bool:
        return bool(self.columns or self.properties)


def configuration(uri: str, table: Table) -> dict[str, str]:
    """All properties of the table at `uri`."""
    of_store = ON_OBJECT_STORES if local_folder(uri) is None else {}
    return {**CONFIGURATION, **of_store, **table.configuration, FORMAT: str(TABLE_FORMAT)}


def check_format(delta: DeltaTable, name: str) -> None:
    """Raises TableUnavailable where a newer release wrote the table in a format that this one does not know."""
    _known_format(delta.metadata().configuration, name)


def differences(delta: DeltaTable, uri: str, table: Table) -> Differences:
    """What the table at `uri` lacks; raises TableUnavailable as `check_format` does."""
    present = delta.metadata().configuration
    properties = {name: value for name, value in configuration(uri, table).items() if present.get(name) != value}
    there = {field.name for field in delta.schema().fields}
    columns = tuple(name for name in table.column_names() if name not in there)
    return Differences(_known_format(present, table.name), columns, properties)


def other_types(delta: DeltaTable, table: Table) -> tuple[str, ...]:
    """Columns whose type is another than this release's: no release of ours made them so, and nothing repairs them."""
    wanted = {field.name: field.type for field in Schema.from_arrow(arrow_schema(table)).fields}
    return tuple(field.name for field in delta.schema().fields if wanted.get(field.name, field.type) != field.type)


def with_columns_of(delta: DeltaTable, rows: pa.Table) -> pa.Table:
    """The rows with null in each column that they lack, one of a newer release: delta-rs takes all or none."""
    lacking = {field.name for field in delta.schema().fields} - set(rows.column_names)
    for field in pa.schema(delta.schema().to_arrow()) if lacking else ():
        if field.name in lacking:
            rows = rows.append_column(field.remove_metadata(), pa.nulls(rows.num_rows, field.type))
    return rows


def bring_up_to_date(delta: DeltaTable, table: Table, lacking: Differences) -> None:
    """Add what is lacking, columns first: if the process ends in between, its next start adds the rest. Comments of a
    table in the store are not updated. Raises DeltaError or OSError.
    """
    if lacking.columns:
        wanted = Schema.from_arrow(arrow_schema(table)).fields
        delta.alter.add_columns([field for field in wanted if field.name in lacking.columns])
    if lacking.properties:
        delta.alter.set_table_properties(dict(lacking.properties), raise_if_not_exists=False)


def _known_format(properties: Mapping[str, str], name: str) -> int:
    """0 where the table has none. What is no number is of nobody we know."""
    written = properties.get(FORMAT, "0")
    if written.isdecimal() and int(written) <= TABLE_FORMAT:
        return int(written)
    raise TableUnavailable(
        f"table {name} has format {written!r}, of a newer release; formats are known up to {TABLE_FORMAT}: "
        "go back to that release, or restore older tables"
    )
