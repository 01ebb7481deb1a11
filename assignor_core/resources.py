"""What a broker can be loaded with: the one list of resources, with units, capacities and names for people.

Everything that walks over loads, skews, thresholds or columns by resource asks this module; nobody lists them again.
"""

from enum import StrEnum


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
    """Partitions it leads."""
    REPLICAS = "replicas"
    """Replicas it holds."""

    @property
    def is_count(self) -> bool:
        """Whether it is counted from metadata instead of measured."""
        return self in COUNTS

    @property
    def unit(self) -> str:
        """Unit of one broker's figure: `bytes/s`, `bytes` or `partitions`."""
        if self is Resource.DISK:
            return "bytes"
        return "partitions" if self.is_count else "bytes/s"

    @property
    def capacity_key(self) -> str:
        """Field of a broker's capacity that it is measured against; counts and leadership go by bytes in."""
        return _CAPACITY_KEY.get(self, "bytes_in_per_sec")

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return self.value.replace("_", " ")


COUNTS = (Resource.LEADERS, Resource.REPLICAS)
"""Counted, not measured: they come true whatever the load does."""
MEASURED = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.DISK)
"""Loads that windows of `broker_load` hold and that may trigger."""
LOADS = (*MEASURED, Resource.LEADER_BYTES_IN)
"""All that is no count: what may differ from window to window."""
REPORTED = (*MEASURED, *COUNTS)
"""Resources whose skew stands in plans, executions and metrics; leader bytes in serves the planner alone."""
_CAPACITY_KEY = {Resource.BYTES_OUT: "bytes_out_per_sec", Resource.DISK: "disk_bytes"}
