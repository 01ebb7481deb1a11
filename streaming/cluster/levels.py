"""What each role may ask of Kafka, and what the product can do with a part of it: one table for all who show it.

Levels build on each other. `rebalancer check` shows the one that is reached, `deploy/acls/grant.sh` grants up to one
(LEVEL), and docs/security.md has the same table; tests compare. Pure data.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class LevelFacts:
    """What a level brings, and what remains without it."""

    level: Level
    brings: str
    without: str


LEVELS = (
    LevelFacts(
        Level.LAG,
        "lag, members and verdicts of consumer groups; records/s of each partition and broker, from offsets",
        "nothing of what may not be described is shown: neither topics nor groups",
    ),
    LevelFacts(
        Level.LOAD,
        "log sizes, bytes/s from the growth of logs, room on disks, reassignments under way",
        "bytes/s are known only where brokers' own counters by topic are read (JMX, Prometheus); sizes are not",
    ),
    LevelFacts(
        Level.PLAN,
        "plans that move replicas, each priced in bytes",
        "plans change leaders only, which copies nothing: nobody knows the size of a log, or room for it",
    ),
    LevelFacts(
        Level.EXECUTE,
        "plans are carried out, throttled, by `rebalancer apply` or in mode `apply`",
        "plans are made and shown; mode `apply` refuses to start",
    ),
)
"""Least first."""


class Resource(StrEnum):
    """What an operation is allowed on."""

    CLUSTER = "cluster"
    TOPICS = "every topic"
    INPUT_TOPICS = "the input topics"
    FOREIGN_TOPICS = "the topics of other collectors"
    GROUPS = "every group"


@dataclass(frozen=True, slots=True)
class Need:
    """One operation that a role needs, for what, and the lowest level that does."""

    role: str
    resource: Resource
    operation: str
    reason: str
    level: Level


NEEDS = (
    Need("collect", Resource.CLUSTER, "DESCRIBE", "log dirs, reassignments under way, names of groups", Level.LOAD),
    Need("collect", Resource.TOPICS, "DESCRIBE", "placement, leaders, offsets", Level.LAG),
    Need("collect", Resource.GROUPS, "DESCRIBE", "members and committed offsets", Level.LAG),
    Need("collect", Resource.INPUT_TOPICS, "CREATE", "makes them where they are missing", Level.LAG),
    Need("collect", Resource.INPUT_TOPICS, "WRITE", "samples", Level.LAG),
    Need("pipeline", Resource.INPUT_TOPICS, "READ", "samples", Level.LAG),
    Need("pipeline", Resource.FOREIGN_TOPICS, "READ", "samples in other formats (topics.foreign)", Level.LOAD),
    Need("control", Resource.CLUSTER, "DESCRIBE", "log dirs, reassignments under way", Level.PLAN),
    Need("control", Resource.CLUSTER, "DESCRIBE_CONFIGS", "throttles that others have set on brokers", Level.EXECUTE),
    Need("control", Resource.CLUSTER, "ALTER", "reassigns partitions, elects leaders", Level.EXECUTE),
    Need("control", Resource.CLUSTER, "ALTER_CONFIGS", "throttle rates of brokers, cordons of log dirs", Level.EXECUTE),
    Need("control", Resource.TOPICS, "DESCRIBE", "placement and leaders", Level.PLAN),
    Need("control", Resource.TOPICS, "DESCRIBE_CONFIGS", "throttles that others have set on topics", Level.EXECUTE),
    Need("control", Resource.TOPICS, "ALTER_CONFIGS", "throttled replicas of topics", Level.EXECUTE),
)
"""The least rights of each role; in mode `observe`, control needs no right to alter anything."""

ROLES = ("collect", "pipeline", "control")


@dataclass(frozen=True, slots=True)
class Missing:
    """A need that is not met, and on what."""

    need: Need
    where: str

    def __str__(self) -> str:
        return f"{self.need.operation} on {self.where} ({self.need.reason})"


@dataclass(frozen=True, slots=True)
class Reached:
    """The highest level all of whose needs, and of those below it, are met; and what is missing for the next."""

    level: Level | None
    next_level: Level | None
    missing: tuple[Missing, ...]

    def __str__(self) -> str:
        """The line of `rebalancer check`.

        >>> need = Need("collect", Resource.CLUSTER, "DESCRIBE", "log dirs", Level.LOAD)
        >>> str(level_reached([Missing(need, "cluster")], ["collect"]))
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
        rows = tuple(row for row in lacking if row.need.level is level)
        if rows:
            return Reached(reached, level, rows)
        reached = level
    return Reached(reached, None, ())


def levels_of(roles: Collection[str]) -> tuple[Level, ...]:
    """Levels that any need of these roles brings, least first.

    >>> [level.value for level in levels_of(["collect"])]
    ['lag', 'load']
    """
    named = {need.level for need in NEEDS if need.role in roles}
    return tuple(level for level in Level if level in named)
