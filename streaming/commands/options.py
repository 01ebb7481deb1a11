"""Options that several commands share, and what they lead to: settings, tables that are there, the live cluster."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from streaming.config import Effective, chosen, load_clusters
from streaming.errors import UsageProblem
from streaming.runtime.own_process import restrict_new_files
from streaming.runtime.secrets import Masking
from streaming.settings import Settings
from streaming.settings.secret_names import SECRET_NAME, may_hold_secret

if TYPE_CHECKING:
    from streaming.cluster.ports import ControlledCluster

Command = Callable[..., Any]
CONFIG_VARIABLE = "REBALANCER_CONFIG"
CLUSTER = "streaming.cluster"
"""Key of click's context under which the value of --cluster is noted: commands need not pass it on."""
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


def _note_cluster(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    context.meta[CLUSTER] = name


cluster_option = click.option(
    "--cluster",
    metavar="NAME",
    expose_value=False,
    callback=_note_cluster,
    help="The cluster that is meant, by its name below `clusters` in the settings, if they name several.",
)
force_option = click.option(
    "--force",
    "on_old_windows",
    is_flag=True,
    help="Plan even if the newest windows are older than the trigger accepts.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")


def settings_options(command: Command) -> Command:
    """Adds --config, --set and --cluster; the command takes `config_file` and `assignments`, and `settings_from` knows
    the cluster.
    """
    return shared_settings_options(cluster_option(command))


def shared_settings_options(command: Command) -> Command:
    """Adds --config and --set to a command that concerns all clusters alike."""
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


def effective_from(config_file: Path | None, assignments: tuple[str, ...] = ()) -> Effective:
    """Effective settings of the cluster that the command line means, with their origins; raises UsageProblem."""
    clusters = load_clusters(config_file, flags_of(assignments), os.environ)
    return chosen(clusters, cluster_named())


def cluster_named() -> str | None:
    """The value of --cluster; None if the command line has none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(CLUSTER)


def settings_from(config_file: Path | None, assignments: tuple[str, ...] = ()) -> Settings:
    """Effective settings of the cluster that the command line means; raises UsageProblem in one line. From now on new
    files are as they ask, and tables on an object store are reached as they ask.
    """
    settings = effective_from(config_file, assignments).settings
    _use_storage([settings])
    return settings


def settings_of_clusters(config_file: Path | None, assignments: tuple[str, ...] = ()) -> dict[str, Settings]:
    """Effective settings of all clusters by name, for a command that serves all of them; raises UsageProblem. New files
    and tables on an object store are then as `settings_from` says.
    """
    clusters = load_clusters(config_file, flags_of(assignments), os.environ)
    settings = {name: effective.settings for name, effective in clusters.items()}
    _use_storage([*settings.values()])
    return settings


def _use_storage(settings: Sequence[Settings]) -> None:
    restrict_new_files(settings[0].storage.readable_by)
    storages = [each.storage for each in settings]
    if any(":" in place for storage in storages for place in (storage.tables, storage.checkpoints)):  # no plain folder
        from streaming.tables.object_stores import use_object_store  # its library takes half a second to load

        use_object_store(*storages)


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
    cluster = context.meta.get(CLUSTER)
    options = [
        *(("--config", str(file)) if given else ()),
        *(("--cluster", cluster) if cluster is not None else ()),
        *(part for one in shown for part in ("--set", one)),
    ]
    return f" {shlex.join(options)}" if options else ""


@contextmanager
def live_cluster(settings: Settings) -> "Iterator[ControlledCluster]":
    """The cluster of the settings; raises ClusterUnreachable, AnotherCluster."""
    from streaming.cluster.clients import admin_client
    from streaming.control.identity import cluster_of

    with closing(admin_client(settings.kafka)) as admin:
        yield cluster_of(admin, settings)


def check_tables(settings: Settings) -> None:
    """Raises UsageProblem where no table is below storage.tables, or where all rows are of other clusters;
    TableUnavailable.

    Tables without any row pass: that is a set-up before its first window. Asked table by table until one has a row of
    this cluster, by the logs' statistics as a rule; the other clusters' names are read for the message only.
    """
    from streaming.contract import TABLES
    from streaming.tables import TableReader
    from streaming.tables.places import full_place

    root, cluster = settings.storage.tables, settings.kafka.cluster_name
    reader, there = TableReader(root), []
    for table in reversed([table for table in TABLES.values() if "kafka_cluster" in table.column_names()]):
        if reader.version(table.name) is None:
            continue
        if reader.newest_of_cluster(table.name, table.time_column, cluster) is not None:
            return
        there.append(table.name)
    if not there:
        raise UsageProblem(
            f"no tables in {full_place(root)} (for cluster {cluster!r}): is storage.tables right? "
            "`rebalancer run` makes them with its first window"
        )
    others: set[str] = set()
    for name in there:
        others |= set(reader.arrow(name, columns=["kafka_cluster"])["kafka_cluster"].unique().to_pylist())
    if others:
        listed = ", ".join(sorted(others))
        raise UsageProblem(
            f"the tables in {root} hold nothing of cluster {cluster!r}, only of {listed}: is kafka.cluster_name right?"
        )
