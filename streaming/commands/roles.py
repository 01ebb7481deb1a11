"""`collect`, `pipeline`, `control`, `serve`: one role as a process; `run`: all of them, each a process of its own."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import structlog

from streaming.commands.options import cluster_named, settings_of_clusters, settings_options
from streaming.commands.reloading import Reloading, RunSettings, SettingsSource
from streaming.errors import BEGIN_ANEW, RebalancerError
from streaming.runtime import clocks
from streaming.runtime.own_process import stopped_by_signals
from streaming.settings import KafkaSettings, Settings
from streaming.settings.changes import AdjustBy, active, are_several, sharing
from streaming.settings.clusters import is_paused

log = structlog.get_logger()

REACHED_AT_ONCE_MAX = 16
"""Clusters that are asked at a time whether they answer, before the roles start."""
ConfigFile = Path | None
Assignments = tuple[str, ...]


def _role(
    role: str,
    run_one: Callable[[Settings], int],
    run_several: Callable[[Mapping[str, Settings], AdjustBy], int],
    config_file: ConfigFile,
    assignments: Assignments,
) -> int:
    """Runs the role of the cluster that --cluster names, or of the only one; else of those that share a process. Raises
    UsageProblem if no cluster is named and none shares one.
    """

    def run(clusters: Mapping[str, Settings], reloading: Reloading) -> int:
        if are_several(clusters):
            return run_several(active(sharing(role, clusters)), reloading.adjust_by)
        ((name, settings),) = clusters.items()
        return _wait_while_paused(name) if is_paused(settings) else run_one(settings)

    return _role_of_clusters(role, run, config_file, assignments)


def _role_of_clusters(
    role: str,
    run: Callable[[Mapping[str, Settings], Reloading], int],
    config_file: ConfigFile,
    assignments: Assignments,
    *,
    has_jvm: bool = False,
) -> int:
    """Runs the role of all clusters, or of the one that --cluster names. The role begins anew where settings change
    that it can't follow.
    """
    reloading = Reloading(role)  # before settings are read: no change between reading and following is missed
    source = SettingsSource(config_file, assignments, role)
    clusters = settings_of_clusters(config_file, assignments)
    source.check(clusters)
    meant = source.meant(clusters)
    _prepare(clusters, [*meant.values()], has_jvm=has_jvm, has_roles=False)
    reloading.follow(source, meant)
    code = run(meant, reloading)
    return BEGIN_ANEW if code == 0 and reloading.will_begin_anew() else code


def _wait_while_paused(name: str) -> int:
    """Does nothing until SIGTERM or SIGINT; returns the exit code."""
    stopping = stopped_by_signals()
    log.info("cluster_paused", kafka_cluster=name)
    stopping.wait()
    return 0


def _prepare(clusters: Mapping[str, Settings], meant: Sequence[Settings], *, has_jvm: bool, has_roles: bool) -> None:
    """Set up the log of a role that works for the clusters `meant`.

    `has_roles`: its child processes log by themselves, and must not wait for this one.
    """
    from streaming.runtime.logs import configure_logging, pass_standard_error_through
    from streaming.runtime.secrets import secrets_of_all

    log = meant[0].log
    secrets = secrets_of_all(meant)
    is_one_of_several = len(clusters) > len(meant) == 1
    configure_logging(log, secrets, meant[0].kafka.cluster_name if is_one_of_several else None)
    if has_jvm or (log.format == "json" and not has_roles):
        pass_standard_error_through(log, secrets, now_ms=clocks.now_ms)


@click.command()
@settings_options
def collect(config_file: ConfigFile, assignments: Assignments) -> int:
    """Sample brokers and consumer groups into the byte-rate and consumer-lag topics, until stopped."""
    from streaming.collect.run import run_collect, run_collects

    return _role("collect", run_collect, run_collects, config_file, assignments)


@click.command()
@settings_options
def pipeline(config_file: ConfigFile, assignments: Assignments) -> int:
    """Turn the two topics into windowed Delta tables with Spark, until stopped."""
    from streaming.control.lease import Lease
    from streaming.pipeline.guards import LEASE_MS
    from streaming.pipeline.run import run_pipeline, run_pipelines

    def lease_on(checkpoints: str) -> Lease:
        # In a folder of its own: tables may lie beside checkpoints, and control's lease among them.
        return Lease(f"{checkpoints.rstrip('/')}/one-pipeline", "pipeline", LEASE_MS)

    def run_for(clusters: Mapping[str, Settings], reloading: Reloading) -> int:
        if are_several(clusters):
            return run_pipelines(clusters, lease_on, reloading.adjust_by)
        ((name, settings),) = clusters.items()
        return _wait_while_paused(name) if is_paused(settings) else run_pipeline(settings, lease_on)

    return _role_of_clusters("pipeline", run_for, config_file, assignments, has_jvm=True)


@click.command()
@settings_options
def control(config_file: ConfigFile, assignments: Assignments) -> int:
    """Decide at each closed window, plan when skew crosses the threshold, act in mode `apply`, until stopped."""
    from streaming.runtime.own_process import give_memory_back

    give_memory_back()
    from streaming.control.run import run_control, run_controls

    return _role("control", run_control, run_controls, config_file, assignments)


@click.command()
@settings_options
def serve(config_file: ConfigFile, assignments: Assignments) -> int:
    """Serve metrics, the API and the page from the tables, until stopped."""
    from streaming.commands.acting import JournalActions
    from streaming.serve.run import run_serve

    def run_for(clusters: Mapping[str, Settings], reloading: Reloading) -> int:
        return run_serve(clusters, JournalActions, reloading.adjust_by)

    return _role_of_clusters("serve", run_for, config_file, assignments)


@click.command()
@settings_options
def run(config_file: ConfigFile, assignments: Assignments) -> int:
    """All four roles on one machine, each a process; one that ends is started again, until stopped.

    Of several clusters each has a collect and a control of its own, unless settings let it share one; pipeline and
    serve work for all of them.
    """
    from streaming.runtime.supervisor import run_all

    source = SettingsSource(config_file, assignments)
    arguments = [*(("--config", str(config_file)) if config_file else ())]
    cluster = cluster_named()
    arguments += ["--cluster", cluster] if cluster is not None else []
    for assignment in assignments:
        arguments += ["--set", assignment]
    settled = RunSettings(source)

    def check() -> None:
        _check_reachable(active(settled.clusters))
        settled.lock()

    clusters = settings_of_clusters(config_file, assignments)
    source.check(clusters)
    meant = source.meant(clusters)
    _prepare(clusters, [*meant.values()], has_jvm=False, has_roles=True)
    with settled.locked(meant):
        return run_all(arguments, check, settled)


def _check_reachable(clusters: Mapping[str, Settings]) -> None:
    """Raises ClusterUnreachable or UsageProblem if no cluster can be reached; logs those that can't, if others can."""
    from streaming.cluster.clients import admin_client

    def problem_of(kafka: KafkaSettings) -> RebalancerError | None:
        try:
            admin_client(kafka).close()
        except RebalancerError as error:
            return error
        return None

    connections = [settings.kafka for settings in clusters.values()]
    with ThreadPoolExecutor(max(1, min(len(clusters), REACHED_AT_ONCE_MAX))) as pool:
        problems = dict(zip(clusters, pool.map(problem_of, connections), strict=True))
    found = {name: problem for name, problem in problems.items() if problem is not None}
    if found and len(found) == len(clusters):
        raise next(iter(found.values()))
    for name, problem in found.items():
        log.warning("cluster_not_reached", kafka_cluster=name, error=str(problem))
