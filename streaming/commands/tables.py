"""`rebalancer tables`: adds what tables of an earlier release lack, and makes tables known to a catalog.

`register` prints SQL for a catalog, such as a Hive metastore or Unity Catalog, and runs none: a catalog belongs to
whoever runs it. Columns, comments and partitions are those of the table's own log, not of this release. An engine
refuses a statement that differs from the log, and would write a commit for a comment that differs: the product alone
writes its tables.
"""

import json
import re
from pathlib import Path

import click
import pyarrow as pa
from deltalake import DeltaTable

from streaming.commands.console import echo
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.contract import TABLE_FORMAT, TABLES
from streaming.errors import TableUnavailable, UsageProblem
from streaming.runtime.printable import printable
from streaming.tables import open_table
from streaming.tables.definitions import ARROW_TYPES, FORMAT, Differences
from streaming.tables.places import full_place, local_folder
from streaming.tables.store import create_table, lacking


@click.group()
def tables() -> None:
    """The Delta tables: what those of an earlier release lack, and how a catalog learns of them."""


@tables.command()
@settings_options
@click.option("--dry-run", is_flag=True, help="Show what would be added, and write nothing.")
@json_option
def upgrade(config_file: Path | None, assignments: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Add what tables of an earlier release lack.

    These are columns, properties and the format's number. Rows stay as they are. Stop the roles first: a role
    of the earlier release may lose a commit to the change. Roles of this release do the same by themselves,
    each for the tables that it writes.
    """
    root = settings_from(config_file, assignments).storage.tables
    found = {name: lacking(root, name) for name in TABLES}  # all are read before one is written
    there = {name: lacks for name, lacks in found.items() if lacks is not None}
    if not there:
        raise UsageProblem(f"no tables in {full_place(root)}: is storage.tables right?")
    for name, lacks in there.items():
        if lacks and not dry_run:
            create_table(root, name)
            if lacking(root, name):
                raise TableUnavailable(f"table {name}: changed by another writer meanwhile; stop the roles, try again")
    if as_json:
        echo(json.dumps(_as_json(root, there, dry_run), indent=2))
    else:
        for line in _lines(root, there, dry_run):
            echo(line)
    return 0


def _as_json(root: str, there: dict[str, Differences], dry_run: bool) -> dict[str, object]:
    return {
        "tables_dir": root,
        "format": TABLE_FORMAT,
        "dry_run": dry_run,
        "tables": [
            {
                "table": name,
                "format_before": lacks.format_now,
                "columns_added": list(lacks.columns),
                "properties_set": dict(lacks.properties),
            }
            for name, lacks in there.items()
        ],
    }


def _lines(root: str, there: dict[str, Differences], dry_run: bool) -> list[str]:
    """A line for each table that lacks something, and one in the end."""
    changed = {name: lacks for name, lacks in there.items() if lacks}
    lines = [f"{name}: {_what(lacks)}" for name, lacks in changed.items()]
    verb = "would be changed" if dry_run else "changed"
    end = f"{len(changed)} {verb}" if changed else "all as this release needs them"
    count = f"{len(there)} table{'s' if len(there) > 1 else ''}"
    return [*lines, f"{count} in {printable(root)}, format {TABLE_FORMAT}: {end}"]


def _what(lacks: Differences) -> str:
    parts = []
    if lacks.columns:
        parts.append(f"new columns {', '.join(lacks.columns)}")
    if FORMAT in lacks.properties:
        parts.append(f"format {lacks.format_now or 'none'} -> {TABLE_FORMAT}")
    others = sorted(lacks.properties.keys() - {FORMAT})
    if others:
        parts.append(f"properties {', '.join(others)}")
    return "; ".join(parts)


SQL_NAMES = {
    "string": "STRING", "long": "BIGINT", "integer": "INT", "double": "DOUBLE", "boolean": "BOOLEAN",
    "binary": "BINARY", "timestamp": "TIMESTAMP", "array<integer>": "ARRAY<INT>",
}  # fmt: skip
"""Names of the contract's types in Spark's SQL, which Hive and Unity Catalog share."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@tables.command()
@settings_options
@click.option("--schema", default="rebalancer", show_default=True, help="Schema (database) of the catalog.")
@click.option("--catalog", help="Catalog before the schema, such as unity; none: the engine's own.")
@click.option("--location", help="Folder or URI of the tables as the engine reads it, such as s3a://bucket/tables; "
              "default: the settings' storage.tables.")  # fmt: skip
def register(
    config_file: Path | None, assignments: tuple[str, ...], schema: str, catalog: str | None, location: str | None
) -> int:
    """Print SQL that makes the tables known to a catalog.

    \b
    rebalancer tables register --schema kafka > register.sql

    Run the file in Spark SQL, as often as you like: it changes no table, and a table that the catalog knows stays as
    it is. After an upgrade that adds columns, drop the tables in the catalog first; the files stay.
    """
    root = settings_from(config_file, assignments).storage.tables
    there = {name: table for name in TABLES if (table := open_table(root, name)) is not None}
    if not there:
        raise UsageProblem(f"no tables in {full_place(root)}: is storage.tables right?")
    prefix = ".".join(_name(option, part) for option, part in (("catalog", catalog), ("schema", schema)) if part)
    folder = _uri(location or root)
    echo(f"CREATE SCHEMA IF NOT EXISTS {prefix};")
    for name, table in there.items():
        echo(statement(table, f"{prefix}.{name}", f"{folder}/{name}"))
    for name in TABLES:
        if name not in there:
            echo(f"-- {name}: nothing has been written to it yet")
    return 0


def statement(delta: DeltaTable, full_name: str, location: str) -> str:
    """Return the statement that registers one table, as its log describes it."""
    metadata = delta.metadata()
    columns = [_column(field) for field in pa.schema(delta.schema().to_arrow())]
    partitions = ", ".join(metadata.partition_columns)
    return "\n".join(
        [
            f"CREATE TABLE IF NOT EXISTS {full_name} (",
            ",\n".join(f"  {column}" for column in columns),
            ") USING DELTA",
            *([f"PARTITIONED BY ({partitions})"] if partitions else []),
            *([f"COMMENT {_literal(metadata.description)}"] if metadata.description else []),
            f"LOCATION {_literal(location)};",
        ]
    )


def _column(field: pa.Field) -> str:
    comment = (field.metadata or {}).get(b"comment")
    described = f" COMMENT {_literal(comment.decode())}" if comment else ""
    return f"`{field.name}` {_type(field.type)}{'' if field.nullable else ' NOT NULL'}{described}"


def _type(kind: pa.DataType) -> str:
    """Name of an Arrow type in SQL. delta-rs may show lists by another name of their items."""
    if pa.types.is_list(kind):
        kind = pa.list_(kind.value_type)
    return next(SQL_NAMES[str(ours.value)] for ours, arrow in ARROW_TYPES.items() if arrow == kind)


def _uri(place: str) -> str:
    """The place as any engine takes it: a folder on this machine as a URI, with its whole path."""
    folder = local_folder(place)
    return place.rstrip("/") if folder is None else folder.absolute().as_uri()


def _name(option: str, text: str) -> str:
    if not NAME.fullmatch(text):
        raise UsageProblem(f"--{option} {text}: allowed are letters, digits and _, and no digit in front")
    return text


def _literal(text: str) -> str:
    """A text in quotes, as Spark's SQL reads it.

    >>> print(_literal("the broker's id"))
    'the broker\\'s id'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
