"""One broker with ACLs, one user, level by level: what works is there, the rest is unknown, and `check` names it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition

from assignor_core.disks import all_hide_log_dirs
from streaming.cluster.admin import Cluster, PartlyShownCluster
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.cluster.permissions import RIGHTS, ROLES, Level, RightScope
from streaming.cluster.topics import create_input_topics
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.rates import replica_rates
from streaming.collect.sample import RefusedRequests
from streaming.commands.check import _findings, _rights
from streaming.control.run import run_control
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterRequestFailed, UsageProblem
from streaming.settings import Settings, TopicSettings
from tests.collect.by_row import rates_of
from tests.kafka.secured import make_certificates, secured_cluster
from tests.kafka.test_security import INPUT_TOPICS, acls_of, everything_of, principal, settings_of
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

TOPIC, GROUP, RECORDS = "less-rights", "less-rights-readers", 200
KEY = (TOPIC, 0)
SHOWN = {
    None: "none", Level.LAG: "lag", Level.LOAD: "plan", Level.PLAN: "plan",
    Level.EXECUTE: "execute, the highest of these roles",
}  # fmt: skip
"""The level that one user for all roles reaches: what the collector reads for `load` is all that a plan needs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("less-rights")
    make_certificates(path / "certificates", ["client"])
    return path


@pytest.fixture(scope="module")
def brokers(folder: Path) -> Iterator[EmbeddedCluster]:
    with secured_cluster(folder / "home", folder / "certificates") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def superuser(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    client.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
    create_input_topics(client, TopicSettings(partitions=1))
    wait_until_known(client, [TOPIC, *INPUT_TOPICS])
    group = KafkaConsumer(bootstrap_servers=brokers.bootstrap_servers, group_id=GROUP, enable_auto_commit=False)
    group.assign([TopicPartition(*KEY)])
    group.commit({TopicPartition(*KEY): OffsetAndMetadata(0, "", -1)})
    group.close()
    yield client
    client.close()


def write(brokers: EmbeddedCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap_servers)
    for _ in range(RECORDS):
        producer.send(TOPIC, b"x" * 100)
    producer.flush()
    producer.close()


def grant(superuser: KafkaAdminClient, who: str, *, up_to: Level | None) -> None:
    superuser.delete_acls([everything_of(who)])
    levels = list(Level)
    reached = -1 if up_to is None else levels.index(up_to)
    rows = [acl for right in RIGHTS if levels.index(right.level) <= reached for acl in acls_of(right, who)]
    if rows:
        superuser.create_acls(rows)


def shown_level(admin: Any, settings: Settings) -> str:
    findings = {row.name: row for row in _rights(admin, settings, ROLES)}
    return findings["level of rights"].detail.partition(";")[0]


def test_level_by_level(brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path) -> None:
    settings = settings_of("SSL", brokers, folder, tmp_path)
    settings = settings.model_copy(
        update={
            "topics": settings.topics.model_copy(update={"foreign": {}}),
            "collect": settings.collect.model_copy(update={"groups_include": f"^{GROUP}$"}),
        }
    )
    who, admin = principal(settings), admin_client(settings.kafka)
    try:
        for level in (None, *Level):
            grant(superuser, who, up_to=level)
            expected = SHOWN[level]
            until(f"level {level} is shown", lambda expected=expected: shown_level(admin, settings) == expected,  # type: ignore[misc]
                  state=lambda: shown_level(admin, settings), pause_s=0.2)  # fmt: skip
            checks_out(settings, admin, level)
            collects(admin, settings, brokers, level)
            looks_to_plan(admin, level)
            if level is not Level.EXECUTE:
                refuses_to_execute(settings)
    finally:
        admin.close()


def checks_out(settings: Settings, admin: Any, level: Level | None) -> None:
    """`check --level` fails for no right that its level does not need."""
    if level is not None:
        rights = [row for row in _rights(admin, settings, ROLES, level) if not row.passed]
        others = [
            row for row in _findings(settings, ROLES, level) if row.name in ("no reassignment", "log dirs readable")
        ]
        assert not [row for row in (*rights, *others) if not row.passed]


def collects(admin: Any, settings: Settings, brokers: EmbeddedCluster, level: Level | None) -> None:
    """Two looks with records between them."""
    reads, groups, refusals = BrokerReads(admin), GroupSampler(), RefusedRequests()
    with structlog.testing.capture_logs() as lines:
        looks = []
        for _ in range(2):
            looks.append(
                observe(reads, groups, settings.collect, now_ms=time.time_ns() // 1_000_000, refusals=refusals)
            )
            write(brokers)
        looks.append(observe(reads, groups, settings.collect, now_ms=time.time_ns() // 1_000_000, refusals=refusals))
    before, after = looks[-2:]
    refused = [row["request"] for row in lines if row["event"] == "request_refused"]
    if level is None:
        assert not after.partitions
        assert not after.groups
        return
    rates = rates_of(replica_rates(before, after))[1, KEY]
    assert rates.messages_in is not None
    assert rates.messages_in > 0
    assert after.groups.keys() == {GROUP}
    assert after.groups[GROUP].committed[KEY] == 0
    if level is Level.LAG:
        assert (rates.bytes_in, rates.size_bytes, after.log_dirs) == (None, None, {})
        assert sorted(refused) == ["describe log dirs", "list reassignments"], "once, in three looks"
        assert after.requests_refused == {1: 1}
    else:
        assert rates.bytes_in is not None
        # Records have 100 bytes. Sizes and offsets are read a moment apart: on a busy machine a part of a second.
        assert rates.bytes_in > rates.messages_in * 10
        assert rates.size_bytes is not None
        assert (refused, dict(after.requests_refused)) == ([], {})


def looks_to_plan(admin: Any, level: Level | None) -> None:
    """What control and `plan` rest on; an execution never goes on without the list of reassignments."""
    shown = PartlyShownCluster(admin)
    live = shown.describe()
    has_cluster = level not in (None, Level.LAG)
    assert (KEY in live.partitions) == (level is not None)
    assert live.reassignments_hidden != has_cluster
    assert all_hide_log_dirs(live, shown.log_dirs()) != has_cluster
    if not has_cluster:
        with pytest.raises(ClusterRequestFailed, match="refused to describe the cluster: ClusterAuthorizationFailed"):
            Cluster(admin).describe()


def refuses_to_execute(settings: Settings) -> None:
    applying = settings.model_copy(update={"control": settings.control.model_copy(update={"mode": "apply"})})
    with pytest.raises(UsageProblem, match="may not carry out plans: missing ") as refusal:
        run_control(applying)
    assert "\n" not in str(refusal.value)
    assert f"ALTER on {RightScope.CLUSTER} (reassigns partitions, elects leaders)" in str(refusal.value)


def test_a_group_that_may_not_be_described_is_not_shown_while_load_is(
    brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path
) -> None:
    """Describe on the cluster lists every group; each is then refused."""
    settings = settings_of("SSL", brokers, folder, tmp_path)
    who, admin = principal(settings), admin_client(settings.kafka)
    superuser.delete_acls([everything_of(who)])
    needs = [row for row in RIGHTS if row.level in (Level.LAG, Level.LOAD) and row.scope is not RightScope.GROUPS]
    superuser.create_acls([acl for right in needs for acl in acls_of(right, who)])
    reads = BrokerReads(admin)

    def look() -> Any:
        return observe(reads, GroupSampler(), settings.collect, now_ms=time.time_ns() // 1_000_000)

    try:
        until("the cluster may be described and the group may not",
              lambda: (seen := look()).log_dirs.keys() == {1} and GROUP not in seen.groups
              and seen.requests_refused.get(1, 0) >= 1, state=lambda: json.dumps(str(look())), pause_s=0.2)  # fmt: skip
    finally:
        admin.close()
