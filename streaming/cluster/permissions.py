"""The rights that each role needs of Kafka, by levels of what works with a part of them, and which of them are missing.

Levels build on each other. `rebalancer check` shows the one that is reached, `deploy/acls/grant.sh` grants up to one
(LEVEL), and docs/security.md has the same table; tests compare. Brokers list the operations that they authorize, so no
right to read ACLs is needed. This module changes nothing, and knows no role's code.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    for_code,
)

from streaming.cluster.answers import translated
from streaming.errors import UsageProblem

ROLES = ("collect", "pipeline", "control")
NAMED_MAX = 3
PROBE = "rebalancer-permission-probe"
"""No topic and no group has this name."""
OFFSETS_TOPIC = "__consumer_offsets"
UNKNOWN_TOPIC = 3
"""Kafka's error code of a topic that does not exist, or that the user may not know of."""
ALTERING = frozenset({"ALTER", "ALTER_CONFIGS"})


class Level(StrEnum):
    """How much of the product works, least first."""

    LAG = "lag"
    LOAD = "load"
    PLAN = "plan"
    EXECUTE = "execute"

    def includes(self, other: "Level") -> bool:
        """Whether `other` is this level or one below it.

        >>> Level.LOAD.includes(Level.LAG), Level.LOAD.includes(Level.PLAN)
        (True, False)
        """
        return list(Level).index(other) <= list(Level).index(self)


class RightScope(StrEnum):
    """What an operation is allowed on."""

    CLUSTER = "cluster"
    TOPICS = "every topic"
    INPUT_TOPICS = "the input topics"
    FOREIGN_TOPICS = "the topics of other collectors"
    GROUPS = "every group"


@dataclass(frozen=True, slots=True)
class Right:
    """One operation that a role needs, for what, and the lowest level that does."""

    role: str
    scope: RightScope
    operation: str
    reason: str
    level: Level


RIGHTS = (
    Right("collect", RightScope.CLUSTER, "DESCRIBE", "log dirs, reassignments under way, names of groups", Level.LOAD),
    Right("collect", RightScope.TOPICS, "DESCRIBE", "placement, leaders, offsets", Level.LAG),
    Right("collect", RightScope.GROUPS, "DESCRIBE", "members and committed offsets", Level.LAG),
    Right("collect", RightScope.INPUT_TOPICS, "CREATE", "makes them where they are missing", Level.LAG),
    Right("collect", RightScope.INPUT_TOPICS, "WRITE", "samples", Level.LAG),
    Right("pipeline", RightScope.INPUT_TOPICS, "READ", "samples", Level.LAG),
    Right("pipeline", RightScope.FOREIGN_TOPICS, "READ", "samples in other formats (topics.foreign)", Level.LOAD),
    Right("control", RightScope.CLUSTER, "DESCRIBE", "log dirs, reassignments under way", Level.PLAN),
    Right(
        "control", RightScope.CLUSTER, "DESCRIBE_CONFIGS", "throttles that others have set on brokers", Level.EXECUTE
    ),
    Right("control", RightScope.CLUSTER, "ALTER", "reassigns partitions, elects leaders", Level.EXECUTE),
    Right(
        "control", RightScope.CLUSTER, "ALTER_CONFIGS", "throttle rates of brokers, cordons of log dirs", Level.EXECUTE
    ),
    Right("control", RightScope.TOPICS, "DESCRIBE", "placement and leaders", Level.PLAN),
    Right(
        "control", RightScope.TOPICS, "DESCRIBE_CONFIGS", "throttles set by others, min.insync.replicas", Level.EXECUTE
    ),
    Right("control", RightScope.TOPICS, "ALTER_CONFIGS", "throttled replicas of topics", Level.EXECUTE),
)
"""The least rights of each role; in mode observe control needs none that alters."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A right that is missing, and on what."""

    right: Right
    where: str

    def __str__(self) -> str:
        return f"{self.right.operation} on {self.where} ({self.right.reason})"


@dataclass(frozen=True, slots=True)
class Reached:
    """The highest level all of whose rights, and of those below it, are granted; and what is missing for the next."""

    level: Level | None
    next_level: Level | None
    missing: tuple[Missing, ...]

    def __str__(self) -> str:
        """The line of `rebalancer check`.

        >>> right = Right("collect", RightScope.CLUSTER, "DESCRIBE", "log dirs", Level.LOAD)
        >>> str(level_reached([Missing(right, "cluster")], ["collect"]))
        'lag; load needs DESCRIBE on cluster (log dirs)'
        >>> str(level_reached([], ["collect", "pipeline"]))
        'load, the highest of these roles'
        """
        reached = self.level.value if self.level else "none"
        if self.next_level is None:
            return f"{reached}, the highest of these roles"
        lines = list(dict.fromkeys(map(str, self.missing)))
        return f"{reached}; {self.next_level} needs {'; '.join(lines)}"


def level_reached(missing: Iterable[Missing], roles: Collection[str]) -> Reached:
    """What these roles reach while so much is missing."""
    lacking, reached = list(missing), None
    for level in levels_of(roles):
        rows = tuple(row for row in lacking if row.right.level is level)
        if rows:
            return Reached(reached, level, rows)
        reached = level
    return Reached(reached, None, ())


def levels_of(roles: Collection[str]) -> tuple[Level, ...]:
    """Levels that any right of these roles brings, least first.

    >>> [level.value for level in levels_of(["collect"])]
    ['lag', 'load']
    """
    named = {right.level for right in RIGHTS if right.role in roles}
    return tuple(level for level in Level if level in named)


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
    rights = [
        right
        for right in RIGHTS
        if right.role == role and not (role == "control" and observes_only and right.operation in ALTERING)
    ]
    with translated("list permissions", role=role):
        granted = _Granted(admin, input_topics, foreign_topics)
        return tuple(missing for right in rights for missing in granted.lacking(right))


def check_may_execute(admin: KafkaAdminClient) -> None:
    """Raise UsageProblem, in one line, if the user lacks a right on the cluster without which no plan is carried out.

    Raises ClusterUnreachable without an answer. Rights on topics are left out: a plan waits while one of its topics
    may not be changed, with Kafka's answer in its events.
    """
    with translated("list permissions", role="control"):
        granted = frozenset(admin.describe_cluster()["authorized_operations"])
    rights = [right for right in RIGHTS if (right.role, right.scope) == ("control", RightScope.CLUSTER)]
    missing = [Missing(right, RightScope.CLUSTER) for right in rights if right.operation not in granted]
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

    def lacking(self, right: Right) -> Iterator[Missing]:
        """`right` once for each thing it is not granted on; names only some of many."""
        ways: Mapping[RightScope, Callable[[str], Iterable[str]]] = {
            RightScope.CLUSTER: lambda operation: () if operation in self._cluster else ("",),
            RightScope.TOPICS: self._topics_lack,
            RightScope.INPUT_TOPICS: partial(self._named_topics_lack, self._input_topics),
            RightScope.FOREIGN_TOPICS: partial(self._named_topics_lack, self._foreign_topics),
            RightScope.GROUPS: self._groups_lack,
        }
        where = list(ways[right.scope](right.operation))
        if len(where) > NAMED_MAX:
            where = [f"{len(where)} of them, first {where[0]}"]
        return (Missing(right, f"{right.scope}: {name}" if name else right.scope.value) for name in where)

    def _topics_lack(self, operation: str) -> Iterator[str]:
        """Kafka does not list topics that may not be described; of a named one it answers why it is missing."""
        if operation == "DESCRIBE":
            if self._admin.describe_topics([PROBE])[0]["error_code"] != UNKNOWN_TOPIC:
                yield ""
        else:
            yield from sorted(name for name, operations in self._topics.items() if operation not in operations)

    def _named_topics_lack(self, topics: Mapping[str, Mapping[str, Any]], operation: str) -> Iterator[str]:
        """Yields topics that do not allow `operation`. CREATE matters only if a topic is missing, and nothing else."""
        for name, row in sorted(topics.items()):
            if row["error_code"] == UNKNOWN_TOPIC:
                if operation == "CREATE" and not self._may_create(name):
                    yield f"{name}, which is missing"
            elif operation != "CREATE" and operation not in (row.get("authorized_operations") or ()):
                yield name

    def _may_create(self, name: str) -> bool:
        """Brokers list no operations of a topic that does not exist, so the request itself is sent, to be validated and
        not carried out. An answer other than a refused right comes from behind the check of rights.
        """
        if "CREATE" in self._cluster:
            return True
        answer = self._admin.create_topics([name], validate_only=True, raise_errors=False)["topics"][0]
        return for_code(answer["error_code"]) not in (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)

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
