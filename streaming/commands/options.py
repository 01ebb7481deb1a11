"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streaming.config import load_settings
from streaming.settings import Settings

Command = Callable[..., Any]

CONFIG_VARIABLE = "REBALANCER_CONFIG"

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    envvar=CONFIG_VARIABLE,
    help=f"Settings file, YAML; also by {CONFIG_VARIABLE}.  [default: built-in settings and REBALANCER_… variables]",
)

set_option = click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override one setting, for instance --set control.mode=observe; wins over file and environment.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")


def settings_options(command: Command) -> Command:
    """Adds --config and --set; the command takes `config_file` and `assignments`."""
    return config_option(set_option(command))


def flags_of(assignments: tuple[str, ...]) -> dict[str, object]:
    """`--set` assignments by dotted key; values are read as YAML, so numbers and lists can be given."""
    import yaml

    flags: dict[str, object] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{assignment!r} is not KEY=VALUE", param_hint="--set")
        try:
            flags[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            flags[key] = value
    return flags


def settings_from(config_file: Path | None, assignments: tuple[str, ...] = ()) -> Settings:
    """Effective settings of a command line; raises UsageProblem in one line."""
    return load_settings(config_file, flags_of(assignments))
