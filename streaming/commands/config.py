"""`rebalancer config`: effective settings and where each came from, secrets masked."""

import json
import os
from pathlib import Path

import click

from streaming.commands.options import flags_of, json_option, settings_options
from streaming.config import flatten, load_effective


@click.command()
@settings_options
@json_option
def config(config_file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:
    """Effective settings and where each came from (default, file, environment, flag), secrets masked."""
    effective = load_effective(config_file, flags_of(assignments), os.environ)
    rows = [(key, value, effective.origin(key)) for key, value in flatten(effective.settings).items()]
    if as_json:
        click.echo(
            json.dumps([{"key": key, "value": value, "origin": origin} for key, value, origin in rows], indent=2)
        )
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "value", "from", box=None, pad_edge=False)
    for key, value, origin in rows:
        style = None if origin == "default" else "bold"
        table.add_row(key, "" if value is None else str(value), origin, style=style)
    Console(soft_wrap=True).print(table)
    return 0
