"""The Spark forms of the contract's records and tables."""

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streaming.contract import ColumnType
from streaming.contract.records import RecordShape

SPARK_TYPES: dict[ColumnType, DataType] = {
    ColumnType.STRING: StringType(),
    ColumnType.LONG: LongType(),
    ColumnType.INTEGER: IntegerType(),
    ColumnType.DOUBLE: DoubleType(),
    ColumnType.BOOLEAN: BooleanType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.TIMESTAMP: TimestampType(),
}


def record_schema(shape: RecordShape) -> StructType:
    """The fields of a record; all may be null, since the rules judge what is missing."""
    return StructType([StructField(field.name, SPARK_TYPES[field.type]) for field in shape.fields])
