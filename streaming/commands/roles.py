"""`collect`, `pipeline`, `control`, `serve`: one role as a process; `run`: all of them, each a process of its own."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import click
import structlog

from streaming.commands.options import cluster_named, settings_of, settings_of_clusters, settings_options
from streaming.contract import BROKER_LOAD, LEASE
from streaming.errors import RebalancerError, RefusedForSafety
from streaming.runtime import clocks
from streaming.settings import KafkaSettings, Settings
from streaming.settings.clusters import one_spelling, own_place

log = structlog.get_logger()

REACHED_AT_ONCE_MAX = 16
"""Clusters that are asked at a time whether they answer, before the roles start."""
ConfigFile = Path | None
Assignments = tuple[str, ...]


def _role(
    role: str,
    run_one: Callable[[Settings], int],
    run_several: Callable[[Mapping[str, Settings]], int],
    config_file: ConfigFile,
    assignments: Assignments,
) -> int:
    """Runs the role of the cluster that --cluster names, or of the only one; else of those that share a process. Raises
    UsageProblem if no cluster is named and none shares one.
    """
    clusters = settings_of_clusters(config_file, assignments)
    shared = {} if cluster_named() is not None else sharing(role, clusters)
    if shared:
        _prepare(clusters, [*shared.values()], has_jvm=False, has_roles=False)
        return run_several(shared)
    settings = settings_of(clusters)
    _prepare(clusters, [settings], has_jvm=False, has_roles=False)
    return run_one(settings)


def sharing(role: str, clusters: Mapping[str, Settings]) -> dict[str, Settings]:
    """Returns those of several clusters whose work of this role (`collect`, `control`) one process does together."""
    own = {
        name: settings.collect.own_process if role == "collect" else settings.control.own_process
        for name, settings in clusters.items()
    }
    return {name: settings for name, settings in clusters.items() if len(clusters) > 1 and not own[name]}


def _role_of_clusters(
    run: Callable[[Mapping[str, Settings]], int],
    config_file: ConfigFile,
    assignments: Assignments,
    *,
    has_jvm: bool = False,
    has_roles: bool = False,
) -> int:
    """Runs the role of all clusters, or of the one that --cluster names.

    `has_roles`: its child processes log by themselves, and must not wait for this one.
    """
    clusters = settings_of_clusters(config_file, assignments)
    name = cluster_named()
    meant = clusters if name is None else {name: settings_of(clusters)}
    _prepare(clusters, [*meant.values()], has_jvm=has_jvm, has_roles=has_roles)
    return run(meant)


def _prepare(clusters: Mapping[str, Settings], meant: Sequence[Settings], *, has_jvm: bool, has_roles: bool) -> None:
    """Set up the log of a role that works for the clusters `meant`. Raises RefusedForSafety as `check_places` does."""
    from streaming.runtime.logs import configure_logging, pass_standard_error_through
    from streaming.runtime.secrets import secrets_of

    check_places(clusters)
    log = meant[0].log
    secrets = frozenset(secret for settings in meant for secret in secrets_of(settings))
    is_one_of_several = len(clusters) > len(meant) == 1
    configure_logging(log, secrets, meant[0].kafka.cluster_name if is_one_of_several else None)
    if has_jvm or (log.format == "json" and not has_roles):
        pass_standard_error_through(log, secrets, now_ms=clocks.now_ms)


def check_places(clusters: Mapping[str, Settings]) -> None:
    """Raises RefusedForSafety if the folder that clusters share is itself that of one cluster's tables, and no cluster
    is named as their owner: a deployment of one cluster would begin anew beside its old plans and leases.
    """
    from streaming import tables

    places = {name: one_spelling(settings.storage.tables) for name, settings in clusters.items()}
    shared = {
        place.removesuffix(own_place("", name)) for name, place in places.items() if place.endswith(own_place("", name))
    }
    for root in shared - {*places.values()}:
        if any(tables.open_table(root, name) is not None for name in (LEASE.name, BROKER_LOAD.name)):
            raise RefusedForSafety(
                f"storage.tables: {root} holds tables of one cluster: name this cluster by "
                f"clusters.NAME.storage.tables: {root}, and its checkpoints in the same way (docs/clusters.md)"
            )


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

    def run_for(clusters: Mapping[str, Settings]) -> int:
        (settings, *others) = clusters.values()
        return run_pipelines(clusters, lease_on) if others else run_pipeline(settings, lease_on)

    return _role_of_clusters(run_for, config_file, assignments, has_jvm=True)


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

    return _role_of_clusters(lambda clusters: run_serve(clusters, JournalActions), config_file, assignments)


@click.command()
@settings_options
def run(config_file: ConfigFile, assignments: Assignments) -> int:
    """All four roles on one machine, each a process; one that ends is started again, until stopped.

    Of several clusters each has a collect and a control of its own, unless settings let it share one; pipeline and
    serve work for all of them.
    """
    from streaming.runtime.locks import exclusive, holder
    from streaming.runtime.supervisor import OF_ONE_CLUSTER, run_all

    arguments = [*(("--config", str(config_file)) if config_file else ())]
    cluster = cluster_named()
    arguments += ["--cluster", cluster] if cluster is not None else []
    for assignment in assignments:
        arguments += ["--set", assignment]

    def run_roles(clusters: Mapping[str, Settings]) -> int:
        with ExitStack() as held:

            def check() -> None:
                _check_reachable(clusters)
                for settings in clusters.values():
                    root = settings.storage.tables
                    if not held.enter_context(exclusive(root, "run")):
                        raise RefusedForSafety(
                            f"rebalancer run uses the tables in {root} already: {holder(root, 'run')}"
                        )

            shared = {role: frozenset(sharing(role, clusters)) for role in OF_ONE_CLUSTER}
            return run_all(arguments, check, [*clusters] if len(clusters) > 1 else (), shared)

    return _role_of_clusters(run_roles, config_file, assignments, has_roles=True)


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
    with ThreadPoolExecutor(min(len(clusters), REACHED_AT_ONCE_MAX)) as pool:
        problems = dict(zip(clusters, pool.map(problem_of, connections), strict=True))
    found = {name: problem for name, problem in problems.items() if problem is not None}
    if len(found) == len(clusters):
        raise next(iter(found.values()))
    for name, problem in found.items():
        log.warning("cluster_not_reached", kafka_cluster=name, error=str(problem))
