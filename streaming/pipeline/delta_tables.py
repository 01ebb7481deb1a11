"""The pipeline's Delta tables: made from `streaming.schemas`, written by MERGE so that a replay changes nothing.

A window row is an absolute aggregate. It replaces the row that is there only if it rests on at least as many samples:
after a lost checkpoint a fresh, partial window never overwrites a full one.
"""

from collections.abc import Sequence

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from streaming.schemas import ColumnType, Table
from streaming.tables import CONFIGURATION, table_uri

SPARK_TYPES: dict[ColumnType, DataType] = {
    ColumnType.STRING: StringType(),
    ColumnType.LONG: LongType(),
    ColumnType.INTEGER: IntegerType(),
    ColumnType.DOUBLE: DoubleType(),
    ColumnType.BOOLEAN: BooleanType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.TIMESTAMP: TimestampType(),
}


def ensure_table(session: SparkSession, root: str, table: Table) -> str:
    """Make the table where it isn't there yet; returns its location."""
    location = table_uri(root, table.name)
    builder = DeltaTable.createIfNotExists(session).location(location).comment(table.comment)
    for column in table.columns:
        builder = builder.addColumn(
            column.name, SPARK_TYPES[column.type], nullable=column.nullable, comment=column.comment
        )
    for key, value in CONFIGURATION.items():
        builder = builder.property(key, value)
    builder.execute()
    return location


def shaped(rows: DataFrame, table: Table) -> DataFrame:
    """Exactly the table's columns, in its types and order."""
    return rows.select(*(f.col(column.name).cast(SPARK_TYPES[column.type]) for column in table.columns))


def merge_windows(rows: DataFrame, location: str, table: Table, transaction: tuple[str, int]) -> None:
    """Upsert window rows by the table's key; the literal time bound lets Delta skip all older files.

    `transaction` is (application id, version): Delta remembers it, and a batch that is delivered again writes nothing.
    """
    session = rows.sparkSession
    oldest = rows.agg(f.min("window_start")).first()
    if oldest is None or oldest[0] is None:
        return
    bound = oldest[0].strftime("%Y-%m-%d %H:%M:%S.%f")
    keys = " AND ".join(f"t.{name} = s.{name}" for name in table.key)
    session.conf.set("spark.databricks.delta.write.txnAppId", transaction[0])
    session.conf.set("spark.databricks.delta.write.txnVersion", str(transaction[1]))
    (
        DeltaTable.forPath(session, location)
        .alias("t")
        .merge(rows.alias("s"), f"t.window_start >= TIMESTAMP '{bound}' AND {keys}")
        .whenMatchedUpdateAll(condition="s.sample_count >= t.sample_count")
        .whenNotMatchedInsertAll()
        .execute()
    )


def finalize(session: SparkSession, locations: Sequence[str], watermark: str) -> None:
    """Mark windows that the watermark has passed; their rows will not change again."""
    for location in locations:
        DeltaTable.forPath(session, location).update(
            f"window_end <= TIMESTAMP '{watermark}' AND NOT is_final", {"is_final": "true"}
        )
