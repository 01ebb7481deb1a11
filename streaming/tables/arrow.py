"""The Arrow forms of the contract's tables, and of whole numbers that neither a float nor 64 bits hold exactly."""

import pyarrow as pa
from pyarrow import compute as pc

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

_WHOLE_MAX = float(2**63 - 1024)
"""Greatest float that fits into 64 bits as a whole number."""


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
