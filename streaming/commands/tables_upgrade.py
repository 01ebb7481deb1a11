"""`rebalancer tables upgrade`: what the tables of an earlier release lack, shown and added ahead of the roles."""

import json
from pathlib import Path

import click

from streaming.commands.console import echo
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.commands.tables_register import register
from streaming.contract import TABLE_FORMAT, TABLES
from streaming.errors import TableUnavailable, UsageProblem
from streaming.runtime.printable import printable
from streaming.tables.definitions import FORMAT, Differences
from streaming.tables.places import full_place
from streaming.tables.store import create_table, lacking


@click.group()
def tables() -> None:
    """The Delta tables: what those of an earlier release lack, and how a catalog learns of them."""


tables.add_command(register)


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
