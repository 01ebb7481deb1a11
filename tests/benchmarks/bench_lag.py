"""2,000 groups of 50 partitions: one evaluation from the table on, and the sampler's looks at a real broker.

make bench-lag
make bench-lag ARGS="--groups 500 --no-broker"
"""

import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from kafka import KafkaAdminClient
from kafka.errors import BrokerResponseError
from kafka.protocol.consumer.group import JoinGroupRequest, SyncGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import OffsetAndMetadata, TopicPartition

from streaming import tables
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.groups import BATCH, GroupSampler
from streaming.collect.observe import observe
from streaming.collect.run import Collector
from streaming.contract import TABLES
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.group_picture import COLUMNS
from streaming.views.group_ranking import verdicts_by_group
from tests.lag.windows import judge
from tests.serve.synthetic import NOW_MS, WINDOW_MS, settings_for
from tests.topics import wait_until_known

SEED = 1
TOPIC = "orders"
READY_S = 60
SESSION_MS = 1_800_000
"""The longest that brokers allow: members that never send a heartbeat live that long."""


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Prints seconds by the clock and of CPU, the process's peak memory so far and how busy the machine is."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    click.echo(f"{what:46} {wall:6.2f} s, CPU {cpu:6.2f} s, peak {peak_mb:,.0f} MB, load {os.getloadavg()[0]:.1f}")


def windows_of(groups: int, partitions: int, windows: int) -> pa.Table:
    """Rows of `group_lag`, one window after another, each in any order as tables have them.

    A third of the groups keeps up, a third falls behind, a third is stuck.
    """
    keys = groups * partitions
    random = np.random.default_rng(SEED)
    window = np.repeat(np.arange(windows), keys)
    place = np.concatenate([random.permutation(keys) for _ in range(windows)])
    group, partition = place // partitions, place % partitions
    end = 1_000 * (window + 1)
    committed = np.select([group % 3 == 0, group % 3 == 1], [end, end // 2], 500)
    start_ms = NOW_MS + window * WINDOW_MS
    client = np.char.add("consumer-", partition.astype(str))
    texts = {"kafka_cluster": "test", "topic": TOPIC, "group_state": "Stable", "group_type": "classic", "query_id": "q"}
    columns = {
        "group_id": np.char.add("group-", group.astype(str)), "partition": partition,
        "member_id": np.char.add(client, "-5f0c9a9e-6a3c-4c5b-9f55-0f6c8a1c2d3e"), "client_id": client,
        "committed_offset": committed, "committed_offset_first": committed - np.where(committed == 500, 0, 400),
        "log_end_offset": end, "log_end_offset_first": end - 800, "lag_records": end - committed,
        "lag_records_max": end - committed, "log_start_offset": np.zeros(len(end)), "generation_id": np.ones(len(end)),
        "window_start": start_ms * 1000, "window_end": (start_ms + WINDOW_MS) * 1000,
        "first_event_time_ms": start_ms, "last_event_time_ms": start_ms + 50_000, "sample_count": np.full(len(end), 6),
        "is_final": np.ones(len(end), dtype=bool), "updated_at": start_ms * 1000, "batch_id": window,
        **{name: np.full(len(end), value) for name, value in texts.items()},
    }  # fmt: skip
    schema = tables.arrow_schema(TABLES["group_lag"])
    # What this benchmark has no figures of is null, as in rows of an earlier release.
    nulls = [None] * len(end)
    return pa.table([pa.array(columns.get(field.name, nulls)).cast(field.type) for field in schema], schema=schema)


def write_windows(root: str, groups: int, partitions: int, windows: int) -> None:
    """The table, a commit a window."""
    table = tables.create_table(root, "group_lag")
    rows = windows_of(groups, partitions, windows)
    for window in range(windows):
        write_deltalake(table, rows.slice(window * groups * partitions, groups * partitions), mode="append")


def evaluate(groups: int, partitions: int, windows: int, home: Path) -> None:
    """From the table to verdicts and reasons, as serve and the command do it."""
    settings = settings_for(home)
    # In a process of its own: what it takes to make the rows is not what it takes to judge them.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(write_windows, settings.storage.tables, groups, partitions, windows).result()
    click.echo(f"{groups:,} groups x {partitions} partitions x {windows} windows")
    reader = TableReader(settings.storage.tables)
    for _ in range(2):
        with timed("read the table"):
            rows = reader.arrow("group_lag", columns=COLUMNS)
        with timed("judge every partition"):
            picture = judge(rows, window_ms=settings.pipeline.window_ms)
        assert picture is not None
        with timed("groups and reasons"):
            verdicts = verdicts_by_group(picture)
        del rows, picture
    click.echo(f"verdicts: {dict(Counter(row.status for row in verdicts))}")


def sample(groups: int, partitions: int, home: Path) -> None:
    """What the collector does at one look: first with groups that nobody is in, then with a member in each."""
    names = [f"group-{number}" for number in range(groups)]
    with EmbeddedCluster(home, broker_count=1) as cluster:
        settings = Settings.model_validate({
            "kafka": {"cluster_name": "test", "bootstrap_servers": cluster.bootstrap_servers},
            "collect": {"jmx_endpoints": cluster.jmx_endpoints, "groups_max": groups},
        })  # fmt: skip
        admin = admin_client(settings.kafka)
        admin.create_topics({TOPIC: {"num_partitions": partitions, "replication_factor": 1}})
        wait_until_known(admin, [TOPIC])
        offsets = {TopicPartition(TOPIC, partition): OffsetAndMetadata(0, "", -1) for partition in range(partitions)}
        with timed(f"set up: {groups:,} groups commit"):
            _wait_for_coordinators(admin, names)
            for name in names:
                admin.alter_group_offsets(name, offsets)
        _look(admin, settings, "groups without members")
        with timed("set up: a member joins each"):
            admin._manager.run(_join, admin, names, partitions)
        _look(admin, settings, "groups with a member")
        admin.close()
        with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
            for number in range(1, 4):
                with timed(f"collector, all it does at look {number}"):
                    written = collector.sample(now_ms=time.time_ns() // 1_000_000)
                click.echo(f"  {written:,} records")


def _wait_for_coordinators(admin: KafkaAdminClient, names: list[str]) -> None:
    """The first group that is asked for makes the brokers make the topic of offsets."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            admin.list_group_offsets(names[:BATCH])
            return
        except BrokerResponseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _look(admin: KafkaAdminClient, settings: Settings, what: str) -> None:
    reads, sampler = BrokerReads(admin), GroupSampler()
    for number in range(1, 4):
        with timed(f"{what}, look {number}"):
            sample = observe(reads, sampler, settings.collect, now_ms=0).groups
        owned, committed = (sum(len(part) for part in parts) for parts in zip(
            *((view.owners, view.committed) for view in sample.values()), strict=True
        ))  # fmt: skip
        click.echo(f"  {len(sample):,} groups, {committed:,} offsets, {owned:,} owners")


async def _join(admin: KafkaAdminClient, names: list[str], partitions: int) -> None:
    """One member in each group, without a consumer behind it: the session outlives the benchmark."""
    assignment = ConsumerProtocolAssignment(1, [(TOPIC, list(range(partitions)))], b"").encode()
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=ConsumerProtocolSubscription(version=1, topics=[TOPIC], user_data=b"").encode()
    )
    for name in names:
        coordinator = await admin._find_coordinator_id(name)
        # Up to version 3 a member is taken in at once.
        joined = await admin._manager.send(
            JoinGroupRequest(
                group_id=name, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id="",
                group_instance_id=None, protocol_type="consumer", protocols=[protocol], max_version=3,
            ),
            node_id=coordinator,
        )  # fmt: skip
        share = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
        await admin._manager.send(
            SyncGroupRequest(
                group_id=name, generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id=None,
                assignments=[share], max_version=2,
            ),
            node_id=coordinator,
        )  # fmt: skip


@click.command()
@click.option("--groups", default=2_000)
@click.option("--partitions", default=50)
@click.option("--windows", default=30, help="History read: 30 windows of a minute in production.")
@click.option("--broker/--no-broker", default=True, help="Sample a real broker, too.")
def main(groups: int, partitions: int, windows: int, *, broker: bool) -> None:
    """Print seconds and megabytes."""
    with tempfile.TemporaryDirectory() as home:
        evaluate(groups, partitions, windows, Path(home))
        if broker:
            sample(groups, partitions, Path(home) / "kafka")


if __name__ == "__main__":
    main()
