"""`collect`, `pipeline`, `control`, `serve`: one role as a process; `run`: all of them, each a process of its own."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from streaming.commands.options import settings_from, settings_options
from streaming.errors import RefusedForSafety
from streaming.runtime import clocks
from streaming.settings import Settings

ConfigFile = Path | None
Assignments = tuple[str, ...]


def _role(
    run: Callable[[Settings], int],
    config_file: ConfigFile,
    assignments: Assignments,
    *,
    has_jvm: bool = False,
    has_roles: bool = False,
) -> int:
    """`has_roles`: its child processes log by themselves, and must not wait for this one."""
    from streaming.runtime.logs import configure_logging, pass_standard_error_through
    from streaming.runtime.secrets import secrets_of

    settings = settings_from(config_file, assignments)
    secrets = secrets_of(settings)
    configure_logging(settings.log, secrets)
    if has_jvm or (settings.log.format == "json" and not has_roles):
        pass_standard_error_through(settings.log, secrets, now_ms=clocks.now_ms)
    return run(settings)


@click.command()
@settings_options
def collect(config_file: ConfigFile, assignments: Assignments) -> int:
    """Sample brokers and consumer groups into the byte-rate and consumer-lag topics, until stopped."""
    from streaming.collect.run import run_collect

    return _role(run_collect, config_file, assignments)


@click.command()
@settings_options
def pipeline(config_file: ConfigFile, assignments: Assignments) -> int:
    """Turn the two topics into windowed Delta tables with Spark, until stopped."""
    from streaming.control.lease import Lease
    from streaming.pipeline.guards import LEASE_MS
    from streaming.pipeline.run import run_pipeline

    def lease_on(checkpoints: str) -> Lease:
        # In a folder of its own: tables may lie beside checkpoints, and control's lease among them.
        return Lease(f"{checkpoints.rstrip('/')}/one-pipeline", "pipeline", LEASE_MS)

    return _role(lambda settings: run_pipeline(settings, lease_on), config_file, assignments, has_jvm=True)


@click.command()
@settings_options
def control(config_file: ConfigFile, assignments: Assignments) -> int:
    """Decide at each closed window, plan when skew crosses the threshold, act in mode `apply`, until stopped."""
    from streaming.runtime.own_process import give_memory_back

    give_memory_back()
    from streaming.control.run import run_control

    return _role(run_control, config_file, assignments)


@click.command()
@settings_options
def serve(config_file: ConfigFile, assignments: Assignments) -> int:
    """Serve metrics, the API and the page from the tables, until stopped."""
    from streaming.commands.acting import JournalActions
    from streaming.serve.run import run_serve

    return _role(lambda settings: run_serve(settings, JournalActions(settings)), config_file, assignments)


@click.command()
@settings_options
def run(config_file: ConfigFile, assignments: Assignments) -> int:
    """All four roles on one machine, each a process; one that ends is started again, until stopped."""
    from streaming.cluster.clients import admin_client
    from streaming.runtime.locks import exclusive, holder
    from streaming.runtime.supervisor import run_all

    arguments = [*(("--config", str(config_file)) if config_file else ())]
    for assignment in assignments:
        arguments += ["--set", assignment]

    def run_roles(settings: Settings) -> int:
        def check() -> None:
            admin_client(settings.kafka).close()
            root = settings.storage.tables
            if not held.enter_context(exclusive(root, "run")):
                raise RefusedForSafety(f"rebalancer run uses the tables in {root} already: {holder(root, 'run')}")

        with ExitStack() as held:
            return run_all(arguments, check)

    return _role(run_roles, config_file, assignments, has_roles=True)
