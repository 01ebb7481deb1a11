"""Delta tables without a JVM: what control, serve, the commands and small batches of the pipeline use.

`store` creates and writes, `reader` reads, `upkeep` joins and removes files, `places` tells folders from object stores.
Knows no role and no Spark.
"""

from streaming.tables.arrow import arrow_schema, row_schema
from streaming.tables.reader import (
    Row,
    file_statistics,
    first_line,
    newest,
    open_table,
    read,
    read_arrow,
    table_uri,
)
from streaming.tables.store import append, create_table, replace
from streaming.tables.times import instant, to_ms, utc
from streaming.tables.upkeep import join_small_files, remove_old_files, tidy

__all__ = [
    "Row",
    "append",
    "arrow_schema",
    "create_table",
    "file_statistics",
    "first_line",
    "instant",
    "join_small_files",
    "newest",
    "open_table",
    "read",
    "read_arrow",
    "remove_old_files",
    "replace",
    "row_schema",
    "table_uri",
    "tidy",
    "to_ms",
    "utc",
]
