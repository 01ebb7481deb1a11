"""Statistics of a data file as Delta's log has them, out of the footer of the Parquet file.

Two writers need them: the upkeep in this process (`data_files.py`), and tasks on Spark's executors, which get the code
of this module with the job (`pipeline/part_commits.py`). Therefore it imports no other module of ours.
"""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyarrow import parquet

TEXT_STATISTIC_MAX = 256
"""Longest text in the log's statistics, characters: names of topics have up to 249. JSON texts are of no use there."""


def statistics_of(metadata: parquet.FileMetaData, schema: pa.Schema) -> str:
    """Return the statistics in JSON: the number of rows, least and greatest values of plain columns among `schema`, and
    the numbers of nulls. A value that one row group does not know is left out.
    """
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    unknown: set[str] = set()
    columns = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)
               for index in range(metadata.num_columns)]  # fmt: skip
    for column in columns:
        name, found = column.path_in_schema, column.statistics
        if name not in schema.names or found is None or not found.has_null_count:
            unknown.add(name)
            continue
        nulls[name] = nulls.get(name, 0) + found.null_count
        if found.has_min_max:
            least[name] = min(least.get(name, found.min), found.min)
            greatest[name] = max(greatest.get(name, found.max), found.max)
        elif found.num_values:
            unknown.add(name)
    shown = {name for name in least if name not in unknown and _is_shown(least[name]) and _is_shown(greatest[name])}
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: _as_json(least[name]) for name in least if name in shown},
            "maxValues": {name: _as_json(greatest[name]) for name in greatest if name in shown},
            "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
        }
    )


def _is_shown(value: object) -> bool:
    """Whether the log can hold the value: an entry with an infinite number is no JSON, and nobody could read it."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return len(value) <= TEXT_STATISTIC_MAX
    return isinstance(value, int | datetime)


def _as_json(value: Any) -> Any:
    """A value of a statistic; of times whole ms, cut off, as Delta's writers do."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
