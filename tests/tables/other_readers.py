"""Reads every table below a folder with engines that the product doesn't install, and compares the numbers of rows.

Run it by hand, in a virtual environment of its own, when a new release of an engine is out:

    python -m venv readers && readers/bin/pip install deltalake pandas polars duckdb duckdb-extension-delta
    readers/bin/python tests/tables/other_readers.py data/tables

DuckDB reads the Delta log itself (`delta_scan`) if its extension of the same release is there, else through Arrow.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def counts(folder: Path) -> Iterator[tuple[str, int]]:
    """The engine with its release, and how many rows it reads of the table in `folder`."""
    import duckdb
    import polars  # type: ignore[import-not-found,unused-ignore]

    delta = DeltaTable(folder)
    yield f"deltalake {version('deltalake')}", delta.count()
    yield f"pandas {version('pandas')}", len(delta.to_pandas())
    yield f"polars {version('polars')}", polars.scan_delta(str(folder)).collect().height
    connection = duckdb.connect()
    connection.register("rows", delta.to_pyarrow_dataset())
    yield f"duckdb {version('duckdb')} over Arrow", _counted(connection, "rows")
    for extension in _delta_extensions():
        connection.execute(f"LOAD '{extension}'")
        yield f"duckdb {version('duckdb')} delta_scan", _counted(connection, f"delta_scan('{folder}')")


def _delta_extensions() -> list[Path]:
    """DuckDB's extension for Delta, as the package `duckdb-extension-delta` of DuckDB's own release brings it."""
    package = find_spec("duckdb_extension_delta")
    places = package.submodule_search_locations if package else None
    return [file for place in places or () for file in Path(place).rglob(f"v{version('duckdb')}/*.duckdb_extension")]


def _counted(connection: "DuckDBPyConnection", place: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {place}").fetchone()  # noqa: S608 - names of our own
    return int(row[0]) if row else 0


def main(root: Path) -> int:
    """Prints a line for each engine and table; returns how many tables two engines read differently."""
    differ = 0
    for folder in sorted(path.parent for path in root.glob("*/_delta_log")):
        found = dict(counts(folder))
        differ += len(set(found.values())) > 1
        print(folder.name, *(f"{engine}: {rows}" for engine, rows in found.items()), sep="  ")
    return differ


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
