"""Which tables a SELECT reads, by DuckDB's own parser. Opens none, and knows nothing of what lies in them."""

import json
from collections.abc import Iterator, Set
from typing import Any

import duckdb

READ_NO_TABLE = frozenset({"generate_series", "range", "unnest"})
"""Table functions that read their arguments alone. Others may read the catalog, or a table named by a text."""


def tables_named(query: str, known: Set[str], connection: duckdb.DuckDBPyConnection) -> Set[str] | None:
    """Those of the tables `known`, lower-case names, that one SELECT may read.

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
