"""Writing the window tables: upserts by key that a replay repeats without changing anything.

A window row is an absolute aggregate. It replaces the row that is there only if it rests on at least as many samples:
after a lost checkpoint a fresh, partial window never overwrites a full one. Two ways of the same effect: a batch that
fits the driver is written through delta-rs, which commits in tens of milliseconds where Spark's MERGE plans and starts
jobs for seconds on two cores; a larger one is merged by Spark itself, on all executors.
"""

from datetime import UTC, datetime

import pyarrow as pa
from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import DataFrame
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
from streaming.tables import arrow_schema

TRANSACTION_ID = "spark.databricks.delta.write.txnAppId"
TRANSACTION_VERSION = "spark.databricks.delta.write.txnVersion"
KEEPS_FULLER = "s.sample_count >= t.sample_count"

SPARK_TYPES: dict[ColumnType, DataType] = {
    ColumnType.STRING: StringType(),
    ColumnType.LONG: LongType(),
    ColumnType.INTEGER: IntegerType(),
    ColumnType.DOUBLE: DoubleType(),
    ColumnType.BOOLEAN: BooleanType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.TIMESTAMP: TimestampType(),
}


def shaped(rows: DataFrame, table: Table) -> DataFrame:
    """Exactly the table's columns, in its types and order."""
    return rows.select(*(f.col(column.name).cast(SPARK_TYPES[column.type]) for column in table.columns))


def upsert_arrow(rows: pa.Table, location: str, table: Table, transaction: tuple[str, int]) -> bool:
    """Upsert by the table's key from the driver; False where this (application id, version) had been written."""
    delta = DeltaTable(location)
    written = delta.transaction_version(transaction[0])
    if written is not None and written >= transaction[1]:
        return False
    if rows.num_rows == 0:
        return True
    oldest = pa.compute.min(rows["window_start"]).as_py()
    (
        delta.merge(
            rows.cast(arrow_schema(table)),
            predicate=_matching(table, _arrow_literal(oldest)),
            source_alias="s",
            target_alias="t",
            commit_properties=CommitProperties(app_transactions=[Transaction(*transaction)]),
        )
        .when_matched_update_all(predicate=KEEPS_FULLER)
        .when_not_matched_insert_all()
        .execute()
    )
    return True


def upsert_spark(rows: DataFrame, location: str, table: Table, transaction: tuple[str, int], oldest: datetime) -> None:
    """The same on the executors; `oldest` is the first window start in `rows`."""
    session = rows.sparkSession
    session.conf.set(TRANSACTION_ID, transaction[0])
    session.conf.set(TRANSACTION_VERSION, str(transaction[1]))
    try:
        (
            SparkDeltaTable.forPath(session, location)
            .alias("t")
            .merge(rows.alias("s"), _matching(table, _spark_literal(oldest)))
            .whenMatchedUpdateAll(condition=KEEPS_FULLER)
            .whenNotMatchedInsertAll()
            .execute()
        )
    finally:
        # Left set, they would make Delta skip the next write to the same table, silently.
        session.conf.unset(TRANSACTION_ID)
        session.conf.unset(TRANSACTION_VERSION)


def finalize(location: str, watermark: datetime) -> None:
    """Mark windows that the watermark has passed: their rows will not change again. Safe to repeat."""
    passed = f"window_end <= {_arrow_literal(watermark)} AND NOT is_final"
    DeltaTable(location).update(predicate=passed, updates={"is_final": "true"})


def _matching(table: Table, oldest: str) -> str:
    """Same key; the literal bound lets Delta leave out every file of older windows."""
    keys = " AND ".join(f"t.{name} = s.{name}" for name in table.key)
    return f"t.window_start >= {oldest} AND {keys}"


def _spark_literal(time: datetime) -> str:
    return f"TIMESTAMP '{time.astimezone(UTC).isoformat()}'"


def _arrow_literal(time: datetime) -> str:
    """delta-rs compares timestamps only with literals of exactly the column's type."""
    return f"""arrow_cast('{time.astimezone(UTC).isoformat()}', 'Timestamp(Microsecond, Some("UTC"))')"""
