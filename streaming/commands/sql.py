"""`rebalancer sql`: one SELECT over the Delta tables with DuckDB; no JVM, nothing is ever written."""

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileType, PyFileSystem

from streaming import tables
from streaming.commands.console import echo
from streaming.commands.options import cluster_named, settings_of_clusters, settings_options
from streaming.config import chosen
from streaming.contract import TABLES, Column, ColumnType, Table
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.runtime.printable import printable_lines
from streaming.settings.deciding import CapacitySettings
from streaming.tables.object_stores import use_object_store
from streaming.tables.places import full_place, local_folder

ROWS_SHOWN_MAX = 1_000
ERROR_CHARACTERS_MAX = 500
PLACES_SHOWN_MAX = 3
CAPACITIES = "broker_capacity"
"""View of the capacities that the settings give to brokers: no table holds them."""
OF_CAPACITIES = pa.schema([
    ("kafka_cluster", pa.string()), ("broker", pa.int32()),
    *((name, pa.float64()) for name in CapacitySettings.model_fields),
])  # fmt: skip
VIEWS = TABLES.keys() | {CAPACITIES}
"""Names that a query may read."""
READ_NO_TABLE = frozenset({"generate_series", "range", "unnest"})
"""Table functions that read their arguments alone. Others may read the catalog, or a table named by a text."""


class QueryCommand(click.Command):
    """Takes a query that begins with a comment, as a file's does, for a query and not for an option."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """No option holds a line break, or a space after its dashes."""
        queries = [row for row in arguments if row.startswith("--") and ("\n" in row or row.startswith("-- "))]
        others = [row for row in arguments if row not in queries]
        return super().parse_args(context, [*others, "--", *queries] if queries else others)


@click.command(cls=QueryCommand)
@click.argument("query", required=False)
@settings_options
@click.option("--tables-dir", type=str, help="Folder (or URI) of the tables; default: the settings' storage.tables.")
@click.option("--format", "output_format", type=click.Choice(["table", "csv", "json"]), default="table",
              show_default=True)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, like --format json.")
@click.option("--at", "at_text", metavar="TIME", help="Read the tables as they were at this time (ISO 8601, UTC).")
@click.option("--tables", "list_tables", is_flag=True, help="List tables and columns instead.")
def sql(
    query: str | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    tables_dir: str | None,
    output_format: str,
    as_json: bool,
    at_text: str | None,
    list_tables: bool,
) -> int:
    """One SELECT over the tables; --tables lists them and their columns. Without --cluster over those of all clusters.

    Every table has a column kafka_cluster, also those in which --tables shows none. broker_capacity has the capacities
    of the settings by kafka_cluster and broker: bytes_in_per_sec, bytes_out_per_sec, disk_bytes.

    \b
    rebalancer sql "SELECT broker, max(bytes_in_per_sec) FROM broker_load
                    GROUP BY broker"

    Bytes (rejected_record.value) are shown as UTF-8, what is none as U+FFFD; SELECT to_base64(value) has them whole.
    In JSON a number that is none (NaN, infinite) is null, and the second column of a name gets _1 behind it.
    """
    shape = "json" if as_json else output_format
    if list_tables:
        return _list_tables(shape)
    if not query:
        raise UsageProblem("sql: no query given; try `rebalancer sql --tables`")
    columns, rows = query_clusters(query, _sources(tables_dir, config_file, assignments), _moment(at_text))
    _print(columns, [tuple(map(_readable, row)) for row in rows], shape)
    return 0


@dataclass(frozen=True, slots=True)
class Source:
    """The folder or URL below which the tables of one cluster are, with what its settings add to the tables."""

    root: str
    kafka_cluster: str | None = None
    """None: not known, for a folder that was named instead of settings."""
    capacities: Mapping[int, CapacitySettings] = field(default_factory=dict)


def _sources(tables_dir: str | None, config_file: Path | None, assignments: tuple[str, ...]) -> list[Source]:
    """Returns where the tables are: those of the cluster that is named, else those of all. A named folder needs no
    settings; an object store may need them.
    """
    if tables_dir and local_folder(tables_dir) is not None:
        return [Source(tables_dir)]
    clusters = settings_of_clusters(config_file, assignments)
    name = cluster_named()
    meant = [*clusters.values()] if name is None else [chosen(clusters, name)]
    if tables_dir:
        use_object_store(meant[0].storage.model_copy(update={"tables": tables_dir}))
        return [Source(tables_dir)]
    return [
        Source(settings.storage.tables, settings.kafka.cluster_name, settings.planner.capacities) for settings in meant
    ]


def run_query(query: str, root: str, at: datetime | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one SELECT over the tables below `root`; raises UsageProblem."""
    return query_clusters(query, [Source(root)], at)


def query_clusters(
    query: str, sources: Sequence[Source], at: datetime | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one SELECT over tables that have the rows of all `sources`; raises UsageProblem."""
    connection = duckdb.connect(config={"enable_external_access": False})
    # Which UTC time a zoned one is cast to, and which a text in the query is taken for, goes by this setting.
    connection.execute("SET TimeZone = 'UTC'")
    try:
        statements = duckdb.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UsageProblem("sql: exactly one SELECT (or WITH ... SELECT) is allowed")
        connection.register(CAPACITIES, _capacities(sources))
        named = tables_named(query, VIEWS, connection)
        first = (named or TABLES.keys()) & TABLES.keys()
        there = _register(connection, sources, first, at)
        for name in sorted(there.keys() & (named or set())):
            if lacking := [str(row.kafka_cluster) for row in sources if row.kafka_cluster not in there[name]]:
                echo(f"sql: {name} has no rows of {', '.join(lacking)}: nothing has been written there yet", err=True)
        if there.keys() != first:
            # The error that DuckDB then raises names tables like the one that isn't there.
            there |= _register(connection, sources, TABLES.keys() - first, at)
        if first and not there:
            raise UsageProblem(f"sql: no tables in {_places(sources)}: is storage.tables right?")
        try:
            result = connection.execute(query)
            return [column[0] for column in result.description or ()], result.fetchall()
        except duckdb.Error as error:
            _check_made(error, _places(sources), TABLES.keys() - there.keys())
            if at is not None:
                _check_files_are_kept(there)
            raise
    except (duckdb.Error, DeltaError, OSError) as error:
        raise UsageProblem(f"sql: {_one_line(error)}") from None
    finally:
        connection.close()


def _one_line(error: Exception) -> str:
    """What DuckDB says in several lines: names that are like the one it misses, and the place in the query."""
    if not isinstance(error, duckdb.Error):
        return tables.first_line(error)
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line.strip("^ "))[:ERROR_CHARACTERS_MAX]


def _places(sources: Sequence[Source]) -> str:
    return " or ".join(full_place(source.root) for source in sources[:PLACES_SHOWN_MAX])


def _check_made(error: duckdb.Error, places: str, missing: Set[str]) -> None:
    """Raises UsageProblem where DuckDB misses a table that the product has not made yet: it would name one of its own
    that is spelled alike.
    """
    for name in missing:
        if f"Table with name {name} does not exist".lower() in str(error).lower():
            raise UsageProblem(
                f"sql: Table with name {name} does not exist in {places}: nothing has been written to it yet"
            ) from None


def _check_files_are_kept(there: Mapping[str, Mapping[str | None, DeltaTable]]) -> None:
    """Raises UsageProblem where the version that is open has lost a data file: upkeep removes those that were replaced
    more than two days ago, and entries of the log stay for longer.
    """
    for name, table in ((name, table) for name, by_cluster in there.items() for table in by_cluster.values()):
        files = PyFileSystem(DeltaStorageHandler.from_table(table._table))
        paths = pa.table(table.get_add_actions())["path"].to_pylist()
        if any(file.type is FileType.NotFound for file in files.get_file_info([unquote(path) for path in paths])):
            raise UsageProblem(
                f"--at: data files of table {name} at that time are removed: versions stay for two days"
            ) from None


def _capacities(sources: Sequence[Source]) -> pa.Table:
    rows = [
        {"kafka_cluster": source.kafka_cluster, "broker": broker, **given.model_dump()}
        for source in sources
        for broker, given in sorted(source.capacities.items())
    ]
    return pa.Table.from_pylist(rows, OF_CAPACITIES)


def _register(
    connection: duckdb.DuckDBPyConnection, sources: Sequence[Source], names: Set[str], at: datetime | None
) -> dict[str, dict[str | None, DeltaTable]]:
    """Make the views of those of these tables that are there; return the tables of each by cluster. Raises
    TableUnavailable.
    """
    there = {}
    for name in names:
        opened = [(tables.open_table(source.root, name), source.kafka_cluster) for source in sources]
        found = [(table, cluster) for table, cluster in opened if table is not None]
        if not found:
            continue
        selects = []
        for number, (table, cluster) in enumerate(found):
            # Registered as a lazy dataset: only the columns and files that the query needs are read.
            kept_since = None if at is None else _go_back(table, at)
            connection.register(f"_{name}_{number}", table.to_pyarrow_dataset())
            schema = pa.schema(table.schema().to_arrow())
            selects.append(_select(name, f"_{name}_{number}", schema, cluster, kept_since))
        connection.execute(f"CREATE VIEW {name} AS {' UNION ALL BY NAME '.join(selects)}")
        there[name] = {cluster: table for table, cluster in found}
    return there


def _select(name: str, source: str, there: pa.Schema, cluster: str | None, kept_since: datetime | None) -> str:
    """Times as UTC without a zone: DuckDB's functions on zoned times need an extension that it would download. A column
    that an earlier release did not write is null, as for all who read tables. A table whose rows don't name their
    cluster gets the name of the cluster to which its folder belongs; null if that is not known.

    With `kept_since` it is a query that fails: only who asks this very table must see that it doesn't reach so far.
    """
    casts = ", ".join(f'"{row.name}"::TIMESTAMP AS "{row.name}"' for row in there if pa.types.is_timestamp(row.type))
    lacking = [column for column in TABLES[name].columns if column.name not in there.names]
    added = "".join(f", NULL::{_type_of(column)} AS {column.name}" for column in lacking)
    if "kafka_cluster" not in TABLES[name].column_names():
        literal = "NULL" if cluster is None else "'" + cluster.replace("'", "''") + "'"
        added += f", {literal}::VARCHAR AS kafka_cluster"
    select = f"SELECT * REPLACE ({casts}){added} FROM {source}"  # noqa: S608 - names of our own
    if kept_since is None:
        return select
    oldest = kept_since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{select} WHERE error('--at: the oldest version of table {name} that is kept is of {oldest}')"


def _type_of(column: Column) -> str:
    """DuckDB has the contract's names of types, but for lists."""
    return "INTEGER[]" if column.type is ColumnType.INTEGER_LIST else column.type.value


def _go_back(table: DeltaTable, at: datetime) -> datetime | None:
    """Open the version of that time. Where none is kept that is so old: the time of the oldest that is.

    delta-rs then opens the oldest, which is what is asked only where the table was made later, empty.
    """
    table.load_as_version(at)
    noted_at = _noted_at(table)
    made_later = table.version() == 0 and not table.file_uris()
    return None if noted_at <= at or made_later else noted_at


def _noted_at(table: DeltaTable) -> datetime:
    """When the open version was written, as delta-rs judges it: the time of the log's file."""
    files = PyFileSystem(DeltaStorageHandler.from_table(table._table))
    noted: datetime = files.get_file_info(f"_delta_log/{table.version():020d}.json").mtime
    return noted


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageProblem(f"--at: {text!r} is no ISO 8601 time, like 2026-11-21T14:05:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment > tables.utc(clocks.now_ms()):
        raise UsageProblem(f"--at {text}: allowed is a time in the past")
    return moment


def _print(columns: list[str], rows: list[tuple[Any, ...]], output_format: str) -> None:
    if output_format == "json":
        names = _each_once(columns)
        numbers = [dict(zip(names, map(_json_number, row), strict=True)) for row in rows]
        click.echo(json.dumps(numbers, default=str, allow_nan=False))
        return
    if output_format == "csv":
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(rows)
        # A program gets the values as they are; a terminal gets none that it would act on.
        to_terminal = sys.stdout.isatty()
        click.echo(printable_lines(text.getvalue().replace("\r\n", "\n")) if to_terminal else text.getvalue(), nl=False)
        return
    from streaming.commands.console import print_whole

    print_whole(columns, [[_shown(value) for value in row] for row in rows[:ROWS_SHOWN_MAX]])
    if len(rows) > ROWS_SHOWN_MAX:
        click.echo(f"... {len(rows) - ROWS_SHOWN_MAX} more rows; --format csv shows all")


def _each_once(columns: list[str]) -> list[str]:
    """Names of an object's keys: a join may have two columns of one name, of which an object would keep the last.

    >>> _each_once(["plan_id", "created_at", "plan_id", "created_at", "plan_id_1"])
    ['plan_id', 'created_at', 'plan_id_2', 'created_at_1', 'plan_id_1']
    """
    names: list[str] = []
    for column in columns:
        others = (f"{column}_{number}" for number in count(1))
        is_new = column not in names
        names.append(column if is_new else next(name for name in others if name not in {*names, *columns}))
    return names


def _readable(value: Any) -> Any:
    """Bytes as text, in lists and structs too."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items()}
    return [_readable(inner) for inner in value] if isinstance(value, list | tuple) else value


def _json_number(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_number(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_json_number(inner) for inner in value]
    if isinstance(value, Decimal):  # as DuckDB takes 0.9 for one
        return float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


def _list_tables(output_format: str) -> int:
    if output_format == "json":
        click.echo(json.dumps([_described(table) for table in TABLES.values()]))
    elif output_format == "csv":
        of_all = [(table.name, row) for table in TABLES.values() for row in table.columns]
        rows = [(name, column.name, str(column.type), column.comment) for name, column in of_all]
        _print(["table", "column", "type", "comment"], rows, output_format)
    else:
        for table in TABLES.values():
            click.echo(f"{table.name}: {table.comment}")
            for column in table.columns:
                click.echo(f"    {column.name:<34} {column.type:<15} {column.comment}")
    return 0


def _described(table: Table) -> dict[str, Any]:
    columns = [{"name": row.name, "type": str(row.type), "comment": row.comment} for row in table.columns]
    return {"name": table.name, "comment": table.comment, "columns": columns}


def tables_named(query: str, known: Set[str], connection: duckdb.DuckDBPyConnection) -> Set[str] | None:
    """Returns those of the tables `known`, lower-case names, that one SELECT may read.

    None where it may read more than it names: SHOW, query_table(), duckdb_views(), information_schema and the like, a
    name that is neither known nor defined by its WITH, or what the parser can't describe. Raises no error of the query:
    running it does. `connection.get_table_names` would bind the query with columns that it makes up, and fails on
    JOIN ... USING.

    >>> known = {"plan", "movement", "decision"}
    >>> query = "WITH a AS (FROM plan) SELECT * FROM a JOIN Main.Movement USING (id)"
    >>> sorted(tables_named(query, known, duckdb.connect()))
    ['movement', 'plan']
    >>> tables_named("FROM plan, query_table('movement')", known, duckdb.connect())
    """
    try:
        [(answer,)] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    except duckdb.Error:
        return None
    parsed = json.loads(answer)
    if parsed["error"]:
        return None
    named: set[str] = set()
    defined: set[str] = set()
    for part in _parts(parsed):
        kind = part.get("type")
        if kind == "SHOW_REF" or (kind == "TABLE_FUNCTION" and _function(part) not in READ_NO_TABLE):
            return None
        if kind == "BASE_TABLE":
            named.add(part["table_name"].lower())
        if "cte_map" in part:
            defined.update(entry["key"].lower() for entry in part["cte_map"]["map"])
    # A name of WITH may be a table's, too: elsewhere in the query it is the table.
    return named & known if named <= known | defined else None


def _function(part: dict[str, Any]) -> str:
    return str(part["function"].get("function_name")).lower()


def _parts(parsed: Any) -> Iterator[dict[str, Any]]:
    """Every object of the parsed query, those within others too."""
    waiting = [parsed]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
