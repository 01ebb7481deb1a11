"""`rebalancer check`: named checks of cluster, topics, tables and leftovers; each passed, or why not."""

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from assignor_core.disks import all_hide_log_dirs
from assignor_core.live import NO_LEADER, LiveCluster, lagging_text, offline, offline_text
from assignor_core.racks import some_without_rack
from assignor_core.wording import counted
from streaming import tables
from streaming.cluster.admin import PartlyShownCluster
from streaming.cluster.clients import admin_client
from streaming.cluster.permissions import ALTERING, ROLES, Level, Missing, level_reached, levels_of, missing_permissions
from streaming.cluster.ports import ClusterReader, MarkerReader, ReadableCluster
from streaming.cluster.releases import broker_releases, missing_features, release_finding
from streaming.cluster.topics import BROKERS_TIME, TIMESTAMP_TYPE, stamped_by_producers
from streaming.collect.counters import PrometheusSource
from streaming.collect.counters import finding as prometheus_finding
from streaming.collect.shards import Shard
from streaming.commands.console import echo
from streaming.commands.in_words import broker_names, bytes_out_finding
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.contract import TABLES
from streaming.errors import RebalancerError
from streaming.pipeline.guards import topics_read
from streaming.runtime import clocks
from streaming.runtime.jars import check_extra_jars, class_path, jar_paths, java_command
from streaming.runtime.printable import printable
from streaming.settings import CollectSettings, PlannerSettings, Settings, StorageSettings
from streaming.tables import TableReader
from streaming.tables.conditional_puts import try_conditional_put
from streaming.tables.object_stores import S3_SCHEMES
from streaming.tables.places import local_folder, scheme_of
from streaming.views.broker_load import LoadPart, read_load
from streaming.views.identity import check_cluster_id, expected_cluster_id, known_holder

DETAIL_CHARACTERS_MAX = 300
"""Kafka's refusals repeat the whole request."""
OLD_WINDOWS = 5
"""A window that ended longer ago shows how it was: no collector or pipeline runs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `passed` None means that it could not be made."""

    name: str
    passed: bool | None
    detail: str


class DescribedOnce(PartlyShownCluster):
    """All checks judge one snapshot of the whole cluster; the cluster is read again only after a failure."""

    _live: LiveCluster | None = None

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        """Returns the cluster; a description of the whole cluster is kept and returned again."""
        if topics is not None:
            return super().describe(topics)
        self._live = self._live or super().describe()
        return self._live


@click.command()
@settings_options
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="Only what this role needs; repeatable.")
@click.option(
    "--level", type=click.Choice([level.value for level in Level]), default=Level.EXECUTE.value,
    help="Only what this level of rights needs and allows (docs/security.md); default: execute, everything.",
)  # fmt: skip
@json_option
def check(
    config_file: Path | None, assignments: tuple[str, ...], roles: tuple[str, ...], level: str, as_json: bool
) -> int:
    """Cluster, topics, tables, permissions, set-up and leftovers: named checks, each passed or why not.

    Changes nothing. Roles that connect as users of their own are checked with their own settings and --role.
    """
    settings = settings_from(config_file, assignments)
    findings = []
    for row in _findings(settings, roles or ROLES, Level(level)):
        findings.append(row)
        if not as_json:  # each as soon as it is known: one may take as long as a request
            mark = {True: "ok  ", False: "FAIL", None: "?   "}[row.passed]
            echo(f"{mark}  {row.name:<22} {printable(row.detail)}")
    if as_json:
        click.echo(json.dumps([{"name": row.name, "passed": row.passed, "detail": row.detail} for row in findings]))
    return 0 if all(row.passed for row in findings) else 1


def _findings(settings: Settings, roles: tuple[str, ...], level: Level = Level.EXECUTE) -> Iterator[Finding]:
    yield _guarded("java", lambda: (True, java_command()))
    yield _guarded("jars", lambda: _jars(settings))
    yield _guarded("tables writable", lambda: _writable(settings.storage.tables))
    yield _guarded("tables readable", lambda: _readable(settings.storage))
    if "pipeline" in roles:
        yield from _pipelines_storage(settings)
    try:
        admin = admin_client(settings.kafka)
    except RebalancerError as error:
        yield Finding("cluster reached", False, str(error))
        return
    with closing(admin):
        cluster = DescribedOnce(admin)
        yield from _rights(admin, settings, roles, level)
        if roles == ("pipeline",):
            return  # it reads two topics, and may not ask for more
        yield _guarded("cluster reached", lambda: reached(cluster.describe()))
        yield from _release(admin)
        yield _guarded("cluster id", lambda: _cluster_id(cluster, settings))
        yield _guarded("brokers alive", lambda: brokers_alive(cluster.describe()))
        yield _guarded("partitions healthy", lambda: partitions_healthy(cluster.describe()))
        yield _guarded("input topics", lambda: input_topics(_topics(cluster), settings))
        if level.includes(Level.LOAD):
            yield _guarded("no reassignment", lambda: _reassignments(cluster.describe()))
            yield _guarded("log dirs readable", lambda: _log_dirs(cluster, settings.planner))
        yield _guarded(
            "brokers reported", lambda: reports(cluster.describe().broker_racks, settings, now_ms=clocks.now_ms())
        )
        if level.includes(Level.LOAD):
            yield _guarded("bytes out", lambda: bytes_out_finding(_load(settings)))
        if settings.collect.prometheus_url is not None:
            yield _guarded("Prometheus", lambda: _prometheus(cluster, settings.collect))
        if "control" in roles and level.includes(Level.EXECUTE):
            yield _guarded("no throttle left", lambda: _throttles(cluster, settings))
            yield _guarded("broker's time", lambda: _brokers_time(admin, cluster, settings))
            yield _guarded("no other tables", lambda: markers_finding(cluster, settings, now_ms=clocks.now_ms()))


def _rights(admin: Any, settings: Settings, roles: tuple[str, ...], wanted: Level = Level.EXECUTE) -> Iterator[Finding]:
    """What each role lacks up to the level that is wanted, and the level that all of them reach together."""
    lacking: list[Missing] = []
    own, foreign = (settings.topics.byte_rate, settings.topics.consumer_lag), tuple(settings.topics.foreign)
    for role in roles:
        try:
            missing = missing_permissions(admin, role, input_topics=own, foreign_topics=foreign, observes_only=False)
        except RebalancerError as error:
            yield Finding(f"permissions: {role}", False, str(error)[:DETAIL_CHARACTERS_MAX])
            return
        lacking += missing
        observes = role == "control" and settings.control.mode == "observe"
        needed = [row for row in missing if wanted.includes(row.right.level)]
        yield permissions_finding(role, [row for row in needed if not (observes and row.right.operation in ALTERING)])
    yield level_finding(lacking, roles, mode=settings.control.mode, wanted=wanted)


def permissions_finding(role: str, missing: Sequence[Missing]) -> Finding:
    """Whether a role has all the rights that it needs."""
    if not missing:
        return Finding(f"permissions: {role}", True, "all that is needed")
    named = "; ".join(map(str, missing))
    return Finding(f"permissions: {role}", False, f"missing: {named} (deploy/acls/grant.sh {role} grants them)")


def level_finding(
    missing: Sequence[Missing], roles: Sequence[str], *, mode: str, wanted: Level = Level.EXECUTE
) -> Finding:
    """The level of rights that the roles reach, and what brings the next. Fails where nothing works, where mode `apply`
    can't move anything, or below the level that is wanted, if it is not the last one.
    """
    reached = level_reached(missing, roles)
    levels = levels_of(roles)
    lowest = max((level for level in levels if wanted.includes(level)), key=list(Level).index, default=Level.LAG)
    if wanted is Level.EXECUTE and not (mode == "apply" and Level.EXECUTE in levels):
        lowest = Level.LAG  # the findings of the roles name what is missing
    return Finding("level of rights", reached.level is not None and reached.level.includes(lowest), str(reached))


def _guarded(name: str, run: Callable[[], tuple[bool | None, str]]) -> Finding:
    try:
        passed, detail = run()
    except (RebalancerError, OSError) as error:  # a folder that may not be searched, a program that can't be started
        return Finding(name, False, str(error)[:DETAIL_CHARACTERS_MAX])
    return Finding(name, passed, detail)


def _jars(settings: Settings) -> tuple[bool, str]:
    check_extra_jars(settings.pipeline.extra_jars)
    if settings.kafka.mechanism == "AWS_MSK_IAM" and not settings.pipeline.extra_jars:
        return False, "Spark logs in by AWS_MSK_IAM with AWS's aws-msk-iam-auth jar: name it in pipeline.extra_jars"
    return bool(class_path("spark")), "Spark's jars are there"


def _writable(root: str) -> tuple[bool | None, str]:
    folder = local_folder(root)
    if folder is None:
        return try_conditional_put(root)
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    probe = existing / f".rebalancer-check-{uuid.uuid4().hex}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        return False, f"{existing}: {error.strerror}"
    return True, str(folder)


def _pipelines_storage(settings: Settings) -> Iterator[Finding]:
    """Whether Spark can write where checkpoints lie; nothing where they and the tables are folders.

    Tables on an object store are written without Spark.
    """
    storage = settings.storage
    if all(local_folder(place) is not None for place in (storage.tables, storage.checkpoints)):
        return
    if local_folder(storage.checkpoints) is not None:
        yield Finding("pipeline's storage", True, f"tables without Spark, checkpoints in {storage.checkpoints}")
    elif scheme_of(storage.checkpoints) in S3_SCHEMES:
        yield _guarded("pipeline's storage", lambda: _s3_checkpoints(storage.checkpoints))
    elif not settings.pipeline.extra_jars:
        yield Finding(
            "pipeline's storage", False,
            f"Spark can't write to {storage.checkpoints}: no file system for it is among its jars "
            "(docs/object-store.md)",
        )  # fmt: skip


def _s3_checkpoints(checkpoints: str) -> tuple[bool | None, str]:
    count = len(jar_paths("s3"))
    passed, detail = try_conditional_put(checkpoints)
    return passed, f"{counted(count, 'jar', 'jars')} for S3 found; checkpoints at {detail}" if passed else detail


def _readable(storage: StorageSettings) -> tuple[bool, str]:
    readable = [name for name in TABLES if tables.open_table(storage.tables, name) is not None]
    if not readable:
        return True, "no table is there yet: `rebalancer run` makes them"
    missing = sorted(set(TABLES) - set(readable))
    return True, counted(len(readable), "table", "tables") + (
        f", not there yet: {', '.join(missing)}" if missing else ""
    )


def _release(admin: Any) -> Iterator[Finding]:
    """The release of Kafka that brokers run, and what they can't show for it; a feature that is missing is no fault."""
    try:
        releases = broker_releases(admin)
    except RebalancerError as error:
        yield Finding("Kafka release", False, str(error)[:DETAIL_CHARACTERS_MAX])
        return
    yield Finding("Kafka release", *release_finding(releases))
    missing = [f"{feature.name} (Kafka {feature.since})" for feature in missing_features(releases.values())]
    yield Finding("Kafka features", True, f"not shown: {', '.join(missing)}" if missing else "all are there")


def _log_dirs(cluster: ClusterReader, planner: PlannerSettings) -> tuple[bool, str]:
    """Whether each broker shows its log dirs, none is offline, and room for copies is known."""
    log_dirs = cluster.log_dirs()
    if all_hide_log_dirs(cluster.describe(), log_dirs):
        return False, "every broker refuses to show them, which needs DESCRIBE on cluster: plans change leaders only"
    offline = [f"{broker} ({row.path})" for broker, rows in sorted(log_dirs.items()) for row in rows if row.is_offline]
    if offline:
        return False, f"log dirs are offline on broker {', '.join(offline)}"
    silent = sorted(cluster.describe().broker_racks.keys() - log_dirs.keys())
    if silent:
        return False, f"brokers that do not answer get no replicas: {', '.join(map(str, silent))}"
    by_hand = {broker for broker, row in planner.capacities.items() if row.disk_bytes}
    unknown = [row for row, dirs in sorted(log_dirs.items()) if not dirs or None in {r.usable_bytes for r in dirs}]
    unbounded = [str(broker) for broker in unknown if broker not in by_hand]
    if unbounded:
        return False, f"brokers that do not show what is free get no replicas: {', '.join(unbounded)}"
    sized = sum(len(row.replica_bytes) for rows in log_dirs.values() for row in rows)
    return True, f"{counted(sized, 'replica has', 'replicas have')} a size"


def _brokers_time(admin: Any, cluster: ClusterReader, settings: Settings) -> tuple[bool, str]:
    """Whether brokers stamp the records of the input topics: no clock that is ahead can be judged by itself."""
    kafka, names = settings.kafka, topics_read(settings.topics)
    wrong = stamped_by_producers(admin, _topics(cluster).intersection(names))
    if not wrong:
        return True, "brokers stamp the records of every input topic"
    login = "" if kafka.security_protocol == "PLAINTEXT" else " --command-config admin.properties"
    commands = (
        f"kafka-configs.sh --bootstrap-server {','.join(kafka.bootstrap_servers)}{login} --alter --entity-type topics "
        f"--entity-name {name} --add-config {TIMESTAMP_TYPE}={BROKERS_TIME}"
        for name in wrong
    )
    return False, f"producers stamp the records of {', '.join(wrong)}; to fix it: {'; '.join(commands)}"


def _reassignments(live: LiveCluster) -> tuple[bool | None, str]:
    if live.reassignments_hidden:
        return None, "the cluster refuses to list them: that needs DESCRIBE on cluster"
    moving = live.reassigning()
    count = counted(len(moving), "partition is", "partitions are")
    return not moving, f"{count} being reassigned" if moving else "none runs"


def _topics(cluster: ClusterReader) -> frozenset[str]:
    return frozenset(topic for topic, _ in cluster.describe().partitions)


def _load(settings: Settings) -> LoadPart:
    return read_load(TableReader(settings.storage.tables), settings)


def _prometheus(cluster: ClusterReader, collect: CollectSettings) -> tuple[bool, str]:
    source = PrometheusSource.of(collect)
    assert source is not None
    brokers = cluster.describe().broker_racks.keys() - collect.jmx_endpoints.keys()
    return prometheus_finding(source, brokers, now_s=clocks.now_ms() / 1000)


def _cluster_id(cluster: ClusterReader, settings: Settings) -> tuple[bool, str]:
    """Whether the cluster that answers is the one that settings or tables know."""
    actual = check_cluster_id(settings.kafka, settings.storage.tables, cluster.describe().cluster_id)
    expected = expected_cluster_id(settings.kafka, settings.storage.tables)
    return True, actual if expected else f"{actual}, which the tables don't know yet"


def markers_finding(cluster: MarkerReader, settings: Settings, *, now_ms: int) -> tuple[bool, str]:
    """Whether a control with other tables changes the cluster; names who has changed it last."""
    markers = cluster.markers()
    own, holder_id = known_holder(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    for marker in markers:
        renewed = f"it renewed its marker {(now_ms - marker.renewed_ms) / 1000:,.0f} s ago"
        if marker.is_released or marker.identity == (own, holder_id or ""):
            continue
        if marker.lease_id != own:
            return False, f"{marker} changes this cluster with other tables; {renewed}"
        return False, f"{marker} changes this cluster with a copy of these tables, or has just ended; {renewed}"
    if not markers:
        return True, "no rebalancer has changed this cluster"
    last = max(markers, key=lambda marker: marker.renewed_ms)
    tables_named = "these tables" if last.lease_id == own else "other tables"
    return True, f"{last}, of {tables_named}, was the last to change this cluster"


def _throttles(cluster: ReadableCluster, settings: Settings) -> tuple[bool, str]:
    """Throttles found, and whether an execution of ours that is under way accounts for them."""
    from streaming.control.sweeping import tagged_brokers
    from streaming.control.wiring import journal_of

    between, within = cluster.throttle_rates(), cluster.log_dir_rates()
    rates = between.keys() | within.keys()
    replicas = cluster.throttled_replicas(_topics(cluster))
    if not rates and not replicas:
        return True, "none"
    running = [row for row in journal_of(settings).executions(now_ms=clocks.now_ms()) if not row.ended]
    ours = {broker for row in running for broker in row.throttled_brokers}
    left = sorted(set(rates) - ours)
    if running and not left:
        return True, f"set by execution {running[-1].execution_id}, which is under way"
    topics = sorted({topic for topic, _ in replicas})
    detail = f"brokers {left} and topics {topics} are throttled, and no execution of ours is under way"
    strays = sorted(frozenset().union(*tagged_brokers(between, within)) - ours)
    if strays:
        detail += f". A rebalancer has set the rates of brokers {strays}, {_stray_text(cluster, settings)}"
    return False, detail


def _stray_text(cluster: MarkerReader, settings: Settings) -> str:
    """Who removes throttle rates that a rebalancer has set, in words."""
    own, _ = known_holder(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    if any(marker.lease_id == own for marker in cluster.markers()):
        return "and control removes them within 10 minutes once nothing copies"
    return "and not from these tables: remove them with kafka-configs.sh once no rebalancer is at work"


def reached(live: LiveCluster) -> tuple[bool, str]:
    """How large the cluster is that answered; names brokers without a rack beside others that have one."""
    racks = {rack for rack in live.broker_racks.values() if rack}
    sizes = ((live.broker_racks, "broker"), (racks, "rack"), (live.partitions, "partition"))
    without = [f"broker {broker}" for broker, rack in sorted(live.broker_racks.items()) if not rack]
    mixed = some_without_rack(without, len(racks) + len(without))
    detail = ", ".join(counted(len(rows), one, f"{one}s") for rows, one in sizes)
    return True, detail if mixed is None else f"{detail}; {mixed}"


def brokers_alive(live: LiveCluster) -> tuple[bool, str]:
    """Whether every broker that holds replicas is alive."""
    away = live.hosts_away()
    if not away:
        return True, f"all that hold replicas, {counted(len(live.broker_racks), 'broker', 'brokers')}"
    held = sum(bool(away.intersection(row.replicas)) for row in live.partitions.values())
    verb = "is" if len(away) == 1 else "are"
    return False, f"{broker_names(away)} {verb} down, with replicas of {counted(held, 'partition', 'partitions')}"


def partitions_healthy(live: LiveCluster) -> tuple[bool, str]:
    """Whether every partition has a leader, and every replica of the others is in sync."""
    without_leader = offline(live)
    short = [
        key for key, row in live.partitions.items() if row.leader != NO_LEADER and len(row.isr) < len(row.replicas)
    ]
    problems = [offline_text(without_leader)] if without_leader else []
    problems += [lagging_text(len(short), short[0])] if short else []
    return not problems, "; ".join(problems) or "every replica is in sync"


def input_topics(existing: Collection[str], settings: Settings) -> tuple[bool, str]:
    """Whether the topics that the pipeline reads are among the `existing` ones.

    Our own may be missing until a first window has closed: the collector makes them at its start.
    """
    own = [name for name in (settings.topics.byte_rate, settings.topics.consumer_lag) if name not in existing]
    foreign = [f"{name} (of topics.foreign)" for name in sorted(settings.topics.foreign) if name not in existing]
    if own and not foreign and _load(settings).window_end_ms is None:
        return True, f"not there yet: {', '.join(own)} (`rebalancer collect` makes them)"
    missing = [*(f"{name} (`rebalancer collect` makes it)" for name in own), *foreign]
    return not missing, f"missing: {', '.join(missing)}" if missing else "all there"


def reports(brokers: Collection[int], settings: Settings, *, now_ms: int) -> tuple[bool, str]:
    """Whether the newest closed window has each of the brokers that are alive, and each from one collector."""
    load = _load(settings)
    if load.window_start_ms is None or load.window_end_ms is None:
        return True, "no window of load has closed yet"
    age_ms = now_ms - load.window_end_ms
    if age_ms > OLD_WINDOWS * settings.pipeline.window_ms + settings.pipeline.watermark_ms:
        return True, f"nothing to compare: the newest window ended {age_ms / 1000:,.0f} s ago"
    twice = load.brokers_reported_twice
    if twice:
        return False, f"more than one collector reports {broker_names(twice)}: collect.shard must differ"
    silent = sorted(set(brokers) - {row.broker for row in load.brokers if row.last_sample_ms >= load.window_start_ms})
    if silent:
        not_taken = _shards_not_taken(brokers, silent, settings.collect)
        return False, f"no collector reports {broker_names(silent)}{not_taken}"
    return True, f"one collector reports each of {counted(len(brokers), 'broker', 'brokers')}"


def _shards_not_taken(brokers: Collection[int], silent: Collection[int], collect: CollectSettings) -> str:
    """Shards all of whose brokers are silent, in words; nothing where one collector is to report all."""
    count = Shard.of(collect.shard).count
    shards = [Shard(number, count) for number in range(1, count + 1)]
    members = {shard: {broker for broker in brokers if shard.takes_broker(broker)} for shard in shards}
    idle = [str(shard) for shard, own in members.items() if own and own <= set(silent)]
    return f": does a collector run with collect.shard {' and '.join(idle)}?" if count > 1 and idle else ""
