"""The Arrow forms of the contract's tables."""

import pyarrow as pa

from streaming.contract import ColumnType, Table

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


def arrow_schema(table: Table) -> pa.Schema:
    """Arrow schema with the comments as field metadata, where delta-rs stores them as column comments."""
    return pa.schema(
        [
            pa.field(column.name, ARROW_TYPES[column.type], column.nullable, metadata={"comment": column.comment})
            for column in table.columns
        ]
    )


def row_schema(table: Table) -> pa.Schema:
    """The same without comments, for rows that are written: where those of the table are others, of an earlier version,
    delta-rs would refuse the rows.
    """
    return pa.schema(field.remove_metadata() for field in arrow_schema(table))
