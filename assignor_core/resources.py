"""What a broker can be loaded with: the one list of resources, with units, capacities and names for people.

Everything that walks over loads, skews, thresholds or columns by resource asks this module; nobody lists them again.
To add a resource, add a member and its facts (ARCHITECTURE.md, "To add a resource").
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Carried:
    """What replicas carry of a partition: fields of `PartitionLoad`, or ONE; None is nothing."""

    leader: str | None = None
    follower: str | None = None
    per_follower: str | None = None
    """What the leader carries once more for each follower."""


ONE = "one"
"""The figure of a count: each replica that carries it counts 1."""


class Resource(StrEnum):
    """A load of a broker; the value is its name in tables, metrics, settings and plans."""

    BYTES_IN = "bytes_in"
    """Bytes/s written to it: by clients to leaders, by replication to followers."""
    BYTES_OUT = "bytes_out"
    """Bytes/s read from it: by consumers and by followers."""
    DISK = "disk"
    """Bytes of replica logs on its disks."""
    LEADER_BYTES_IN = "leader_bytes_in"
    """Bytes/s that clients write to the partitions it leads; planned on, not measured."""
    LEADERS = "leaders"
    """Partitions that a broker leads."""
    REPLICAS = "replicas"
    """Replicas that a broker holds."""

    @property
    def is_count(self) -> bool:
        """Whether the resource is counted from metadata instead of measured."""
        return _FACTS[self].is_count

    @property
    def unit(self) -> str:
        """Unit of one broker's figure: `bytes/s`, `bytes` or `partitions`."""
        return _FACTS[self].unit

    @property
    def figures(self) -> tuple[str, ...]:
        """Figures of a broker's window that add up to it: clients' first, then replication's; none where not measured.

        >>> Resource.BYTES_IN.figures, Resource.LEADERS.figures
        (('bytes_in_per_sec', 'replication_bytes_in_per_sec'), ())
        """
        return _FACTS[self].figures

    @property
    def figure_words(self) -> tuple[str, ...]:
        """What each of its figures is called where they stand beside each other."""
        return _FACTS[self].figure_words

    @property
    def capacity_key(self) -> str:
        """Field of a broker's capacity that it is measured against; counts and leadership go by bytes in."""
        return _FACTS[self].capacity_key

    @property
    def carried(self) -> Carried | None:
        """What leader and followers carry of a partition; None where no plan evens it out."""
        return _FACTS[self].carried

    @property
    def words(self) -> str:
        """Name of the resource in a sentence."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class _Facts:
    unit: str
    figures: tuple[str, ...] = ()
    figure_words: tuple[str, ...] = ()
    capacity_key: str = "bytes_in_per_sec"
    is_count: bool = False
    carried: Carried | None = None
    """What leader and followers carry; None of a resource that no plan evens out."""


_FACTS = {
    Resource.BYTES_IN: _Facts(
        "bytes/s",
        ("bytes_in_per_sec", "replication_bytes_in_per_sec"),
        ("from clients", "replicated"),
        carried=Carried(leader="bytes_in_per_sec", follower="bytes_in_per_sec"),
    ),
    Resource.BYTES_OUT: _Facts(
        "bytes/s",
        ("bytes_out_per_sec", "replication_bytes_out_per_sec"),
        ("to consumers", "to followers"),
        capacity_key="bytes_out_per_sec",
        carried=Carried(leader="bytes_out_per_sec", per_follower="bytes_in_per_sec"),
    ),
    Resource.DISK: _Facts(
        "bytes",
        ("log_dir_used_bytes",),
        ("used",),
        capacity_key="disk_bytes",
        carried=Carried(leader="disk_bytes", follower="disk_bytes"),
    ),
    Resource.LEADER_BYTES_IN: _Facts("bytes/s", carried=Carried(leader="bytes_in_per_sec")),
    Resource.LEADERS: _Facts("partitions", is_count=True, carried=Carried(leader=ONE)),
    Resource.REPLICAS: _Facts("partitions", is_count=True, carried=Carried(leader=ONE, follower=ONE)),
}

COUNTS = tuple(resource for resource in Resource if resource.is_count)
"""Counted, not measured: they come true whatever the load does."""
MEASURED = tuple(resource for resource in Resource if resource.figures)
"""Loads that windows of `broker_load` hold."""
REPORTED = (*MEASURED, *COUNTS)
"""Resources whose skew stands in plans, executions and metrics; leader bytes in serves the planner alone."""
PLANNED = tuple(resource for resource in Resource if resource.carried is not None)
"""Resources that the planner evens out: the columns of its loads."""
LOADS = tuple(resource for resource in PLANNED if not resource.is_count)
"""Planned resources that are no counts: their loads may differ from window to window."""
TRIGGERING = tuple(resource for resource in MEASURED if resource in PLANNED)
"""Resources whose skew may trigger a plan. A plan is judged by them too: counts come true whatever the load does."""
