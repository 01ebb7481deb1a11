"""Delta tables without a JVM: what control, serve, the commands and small batches of the pipeline use.

`reader` answers questions, put as `conditions`; `store` creates and writes; `definitions` say how a table must be and
what those of an earlier release lack; `upkeep` joins small files, removes rows and files and bounds what may expire;
`opening` reads logs, `log_statistics` makes what a log notes of a file, `data_files` replaces files; `places` tells
folders from object stores, `object_stores` says how these are reached, and `conditional_puts` tries what commits there
rest on; `times` are points in time and versions of transactions; `stand_ins` is where simulations put tables of their
own in the place of Delta's.
Knows no role and no Spark.
"""

from streaming.tables.conditions import (
    ALL_ROWS,
    Condition,
    above,
    at_least,
    at_most,
    below,
    equal,
    is_known,
    of_cluster,
    one_of,
    starts_with,
)
from streaming.tables.definitions import arrow_schema, as_floats, as_whole, row_schema, with_columns_of
from streaming.tables.opening import file_statistics, first_line, open_table, opened, table_uri, unfit_as_unavailable
from streaming.tables.reader import Row, TableReader, TableState, check_plain, newest, read, read_arrow
from streaming.tables.store import append, create_table, current_table, delete, ensure_table, replace, table_exists
from streaming.tables.times import AtTime, instant, to_ms, utc
from streaming.tables.upkeep import expire_rows, join_next, join_small_files, proven_ms, remove_old_files, tidy

__all__ = [
    "ALL_ROWS", "AtTime", "Condition", "Row", "TableReader", "TableState", "above", "append", "arrow_schema",
    "as_floats", "as_whole", "at_least", "at_most", "below", "check_plain", "create_table", "current_table",
    "delete", "ensure_table", "equal", "expire_rows", "file_statistics", "first_line", "instant", "is_known",
    "join_next", "join_small_files", "newest", "of_cluster", "one_of", "open_table", "opened", "proven_ms", "read",
    "read_arrow", "remove_old_files", "replace", "row_schema", "starts_with", "table_exists", "table_uri", "tidy",
    "to_ms", "unfit_as_unavailable", "utc", "with_columns_of",
]  # fmt: skip
