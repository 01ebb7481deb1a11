"""Options that several commands share."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from streaming.config import load_settings
from streaming.runtime.files import restrict_new_files
from streaming.runtime.secrets import Masking
from streaming.settings import Settings
from streaming.settings.secret_names import SECRET_NAME, may_hold_secret

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
    help="Override one setting, for instance --set control.mode=observe; wins over file and environment. "
    "Lists as a,b; null or nothing unsets what may be without a value.",
)

force_option = click.option(
    "--force", "on_old_windows", is_flag=True, help="Plan on windows that are older than the trigger accepts, too."
)

json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")


def settings_options(command: Command) -> Command:
    """Adds --config and --set; the command takes `config_file` and `assignments`."""
    return config_option(set_option(command))


def flags_of(assignments: tuple[str, ...]) -> dict[str, object]:
    """`--set` assignments by dotted key, values as they were typed."""
    flags: dict[str, object] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            shown = "what was given" if SECRET_NAME.search(assignment) else repr(assignment)
            raise click.BadParameter(f"{shown} is not KEY=VALUE", param_hint="--set")
        flags[key] = value
    return flags


def settings_from(config_file: Path | None, assignments: tuple[str, ...] = ()) -> Settings:
    """Effective settings of a command line; raises UsageProblem in one line. From now on new files
    are as they ask, and tables on an object store are reached as they ask."""
    settings = load_settings(config_file, flags_of(assignments))
    restrict_new_files(settings.storage.readable_by)
    if any(":" in place for place in (settings.storage.tables, settings.storage.checkpoints)):  # no plain folder
        from streaming.tables.object_stores import use_object_store  # its library takes half a second to load

        use_object_store(settings.storage)
    return settings


def _may_be_shown(assignment: str) -> bool:
    """Whether no secret stands in it: one by its name, one in a whole section, a login in a URL."""
    key, _, value = assignment.partition("=")
    if may_hold_secret(key) and not key.endswith("_file"):
        return False
    is_section = value[:1] in ("{", "[")
    return not (is_section and SECRET_NAME.search(value)) and Masking().text(value) == value


def in_use() -> str:
    """Settings that this command was given, as options for the command it names next: " --config FILE", or nothing."""
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    file, assignments = context.params.get("config_file"), context.params.get("assignments") or ()
    given = file is not None and context.get_parameter_source("config_file") is not ParameterSource.ENVIRONMENT
    shown = (one for one in assignments if _may_be_shown(one))
    options = [*(("--config", str(file)) if given else ()), *(part for one in shown for part in ("--set", one))]
    return f" {shlex.join(options)}" if options else ""
