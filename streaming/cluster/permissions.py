"""Which of the operations that a role needs of Kafka (see `levels`) the client's user may not do.

Brokers list the operations that they authorize, so no right to read ACLs is needed. This module changes nothing, and
knows no role's code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    for_code,
)

from streaming.cluster.answers import translated
from streaming.cluster.levels import NEEDS, Level, Missing, Need, Resource
from streaming.errors import UsageProblem

NAMED_MAX = 3
PROBE = "rebalancer-permission-probe"
"""No topic and no group has this name."""
OFFSETS_TOPIC = "__consumer_offsets"

UNKNOWN_TOPIC = 3
"""Kafka's error code of a topic that does not exist, or that the user may not know of."""
ALTERING = frozenset({"ALTER", "ALTER_CONFIGS"})


def missing_permissions(
    admin: KafkaAdminClient,
    role: str,
    *,
    input_topics: Sequence[str],
    foreign_topics: Sequence[str] = (),
    observes_only: bool,
) -> tuple[Missing, ...]:
    """Operations that `role` needs and the client's user may not do.

    Raises ClusterUnreachable without an answer, ClusterRequestFailed if the brokers refuse, or don't know a request.
    If control `observes_only`, it changes nothing and needs no operation that alters.
    """
    needs = [
        need
        for need in NEEDS
        if need.role == role and not (role == "control" and observes_only and need.operation in ALTERING)
    ]
    with translated("list permissions", role=role):
        granted = _Granted(admin, input_topics, foreign_topics)
        return tuple(missing for need in needs for missing in granted.lacking(need))


def check_may_execute(admin: KafkaAdminClient) -> None:
    """Raise UsageProblem, in one line, if the user lacks a right on the cluster without which no plan is carried out.

    Raises ClusterUnreachable without an answer. Rights on topics are left out: a plan waits while one of its topics
    may not be changed, with Kafka's answer in its events.
    """
    with translated("list permissions", role="control"):
        granted = frozenset(admin.describe_cluster()["authorized_operations"])
    needs = [need for need in NEEDS if (need.role, need.resource) == ("control", Resource.CLUSTER)]
    missing = [Missing(need, Resource.CLUSTER) for need in needs if need.operation not in granted]
    if missing:
        raise UsageProblem(
            f"this user may not carry out plans: missing {'; '.join(map(str, missing))}; deploy/acls/grant.sh control "
            f"grants level {Level.EXECUTE}, control.mode: propose makes plans without it"
        )


class _Granted:
    """Operations that the brokers authorize; without DESCRIBE on the cluster they list none of the cluster."""

    def __init__(self, admin: KafkaAdminClient, input_topics: Sequence[str], foreign_topics: Sequence[str]) -> None:
        self._admin = admin
        self._cluster = frozenset(admin.describe_cluster()["authorized_operations"])
        rows = admin.describe_topics()
        self._topics = {row["name"]: frozenset(row["authorized_operations"]) for row in rows}
        self._input_topics = {row["name"]: row for row in admin.describe_topics(list(input_topics))}
        # Asked for none, the client would describe all.
        foreign = admin.describe_topics(list(foreign_topics)) if foreign_topics else []
        self._foreign_topics = {row["name"]: row for row in foreign}

    def lacking(self, need: Need) -> Iterator[Missing]:
        """`need` once for each thing it is not granted on; names only some of many."""
        ways: Mapping[Resource, Callable[[str], Iterable[str]]] = {
            Resource.CLUSTER: self._cluster_lacks,
            Resource.TOPICS: self._topics_lack,
            Resource.INPUT_TOPICS: self._input_topics_lack,
            Resource.FOREIGN_TOPICS: self._foreign_topics_lack,
            Resource.GROUPS: self._groups_lack,
        }
        where = list(ways[need.resource](need.operation))
        if len(where) > NAMED_MAX:
            where = [f"{len(where)} of them, first {where[0]}"]
        return (Missing(need, f"{need.resource}: {name}" if name else need.resource.value) for name in where)

    def _cluster_lacks(self, operation: str) -> Iterator[str]:
        if operation not in self._cluster:
            yield ""

    def _topics_lack(self, operation: str) -> Iterator[str]:
        """Kafka does not list topics that may not be described; of a named one it answers why it is missing."""
        if operation == "DESCRIBE":
            if self._admin.describe_topics([PROBE])[0]["error_code"] != UNKNOWN_TOPIC:
                yield ""
        else:
            yield from sorted(name for name, operations in self._topics.items() if operation not in operations)

    def _input_topics_lack(self, operation: str) -> Iterator[str]:
        """CREATE matters only if a topic is missing."""
        for name, row in sorted(self._input_topics.items()):
            if row["error_code"] == UNKNOWN_TOPIC:
                if operation == "CREATE" and not self._may_create(name):
                    yield f"{name}, which is missing"
            elif operation != "CREATE" and operation not in _operations(row):
                yield name

    def _may_create(self, name: str) -> bool:
        """Brokers list no operations of a topic that does not exist, so the request itself is sent, to be validated and
        not carried out. An answer other than a refused right comes from behind the check of rights.
        """
        if "CREATE" in self._cluster:
            return True
        answer = self._admin.create_topics([name], validate_only=True, raise_errors=False)["topics"][0]
        return for_code(answer["error_code"]) not in (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)

    def _foreign_topics_lack(self, operation: str) -> Iterator[str]:
        """Yields foreign topics that do not allow `operation`. A missing topic is skipped: its writer creates it."""
        for name, row in sorted(self._foreign_topics.items()):
            if row["error_code"] != UNKNOWN_TOPIC and operation not in _operations(row):
                yield name

    def _groups_lack(self, _operation: str) -> Iterator[str]:
        """Describes a group that doesn't exist; does nothing while groups have no topic, as Kafka would create it."""
        if OFFSETS_TOPIC not in self._topics:
            return
        try:
            error = self._admin.describe_groups([PROBE])[PROBE]["error"] or ""
        except GroupAuthorizationFailedError as refusal:
            error = str(refusal)
        if GroupAuthorizationFailedError.__name__ in error:
            yield ""


def _operations(row: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(row.get("authorized_operations") or ())
