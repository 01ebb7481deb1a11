"""`rebalancer config`: effective settings and where each came from, secrets masked."""

import json
from pathlib import Path

import click

from streaming.commands.console import echo
from streaming.commands.options import effective_from, json_option, settings_of_clusters, settings_options
from streaming.commands.reloading import SettingsSource
from streaming.config import DEFAULT, flatten
from streaming.runtime.secrets import Masking
from streaming.settings import KafkaSettings


@click.command()
@settings_options
@json_option
@click.option("--changed", is_flag=True, help="Only settings that do not come from the defaults.")
@click.option("--check", is_flag=True, help="Only check the settings of all clusters, before roles read them.")
def config(config_file: Path | None, assignments: tuple[str, ...], as_json: bool, changed: bool, check: bool) -> int:
    """Effective settings and where each came from (default, file, environment, flag), secrets masked."""
    if check:
        clusters = settings_of_clusters(config_file, assignments)
        source = SettingsSource(config_file, assignments)
        source.check(clusters)
        source.meant(clusters)  # raises for an unknown --cluster
        echo(f"the settings are sound: {', '.join(clusters)}")
        return 0
    effective = effective_from(config_file, assignments)
    _warn(effective.settings.kafka)
    masking = Masking()  # secrets are masked by their type; this one is for URLs that carry a login
    rows = [(key, masking.value(value), effective.origin(key)) for key, value in flatten(effective.settings).items()]
    if changed:
        rows = [row for row in rows if row[2] != DEFAULT]
    if as_json:
        click.echo(
            json.dumps([{"key": key, "value": value, "origin": origin} for key, value, origin in rows], indent=2)
        )
        return 0
    from streaming.commands.console import print_whole

    shown = [(key, "" if value is None else str(value), origin) for key, value, origin in rows]
    styles = ["" if origin == DEFAULT else "bold" for _, _, origin in rows]
    print_whole(("setting", "value", "from"), shown, styles)
    return 0


def _warn(kafka: KafkaSettings) -> None:
    """A login that nobody uses would be taken for one that counts."""
    unused = kafka.without_effect()
    if unused:
        echo(f"warning: {unused}", err=True)
