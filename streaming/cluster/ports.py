"""What the roles need of a cluster, as Protocols of their users: look, change placement, look at throttles, set them.

`streaming.cluster.admin.Cluster` implements all of them on Kafka, `tests.simulated_cluster` without brokers;
`tests/conformance` runs the same behaviours on both. A request that the cluster refuses raises ClusterRequestFailed; a
request without an answer raises ClusterUnreachable, and it may have been carried out all the same.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from assignor_core.disks import LogDirDescription, Uploads
from assignor_core.live import LiveCluster, PartitionKey, ReplicaKey
from assignor_core.marker import Marker
from assignor_core.throttles import ThrottledReplicas


class ClusterReader(Protocol):
    """The cluster as one broker's metadata and the controller's list of reassignments show it."""

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        """Brokers that are alive, every partition of these topics (of all where None) with its reassignment, and all
        reassignments; raises AnotherCluster where the brokers are not those of the cluster that this client was made
        for. Topics that are not there are left out. So are those that this client may not describe: asked about by
        name, `hidden_topics` names them.
        """

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Log dirs of these brokers, as far as they are alive (of all where None), with the replicas of these
        partitions (of all where None). A broker that refuses to show them has none. A broker that doesn't answer is
        left out; if all are asked and none answers, this raises ClusterUnreachable.
        """

    def uploads(self, leaders: Mapping[PartitionKey, int]) -> Uploads:
        """How far remote storage has got with the logs of these partitions, by leader, as far as brokers answer."""


class PlacementChanger(Protocol):
    """Reassignments and elections: the requests that move partitions."""

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        """Start reassignments; None cancels one. Partitions that are not refused are reassigned even if others are;
        then it raises ReassignmentsRefused with the errors by partition.
        """

    def elect_preferred(self, partitions: Iterable[PartitionKey]) -> None:
        """Make the first replica the leader where it is in sync. Partitions that are not refused are elected even if
        others are; then it raises ElectionsRefused with the errors by partition.
        """


class ThrottleReader(Protocol):
    """Throttles that are set, by anybody."""

    def throttle_rates(self, brokers: Collection[int] | None = None) -> dict[int, dict[str, int]]:
        """Rates in bytes/s by broker and setting, of live brokers; raises ClusterUnreachable if one doesn't answer."""

    def throttled_replicas(self, topics: Iterable[str]) -> dict[tuple[str, str], str]:
        """Lists of throttled replicas by (topic, setting)."""


class ThrottleChanger(Protocol):
    """Throttles of an execution; entries of others stay."""

    def set_throttled_replicas(
        self, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        """Add entries to the lists of topics that exist; refused beside `*`, and where a list would be too long."""

    def set_throttle_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        """Set both rates of brokers that are alive, bytes/s; a rate that somebody else has set stays."""

    def clear_throttle(
        self,
        brokers: Collection[int],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,
    ) -> list[int]:
        """Remove entries and rates. Rates of others, which bear no tag (see `assignor_core.throttles`), stay; with
        `untagged` they go, too, for what an earlier version has set. Returns the brokers that are down and therefore
        keep their rates.
        """


class LogDirRateReader(Protocol):
    """Rates of movements within brokers that are set, by anybody."""

    def log_dir_rates(self, brokers: Collection[int] | None = None) -> dict[int, int]:
        """Rates of movements within live brokers, bytes/s; raises ClusterUnreachable if one doesn't answer."""


class LogDirChanger(LogDirRateReader, Protocol):
    """Movements between the log dirs of one broker (KIP-113), their rate, and cordons (KIP-1066)."""

    def move_to_log_dirs(self, targets: Mapping[ReplicaKey, str]) -> None:
        """Ask brokers to move replicas that they hold to log dirs of theirs, by path. Asked for the log dir that a
        replica lies in, a broker gives up the movement under way. Replicas that are not refused move even if others
        are; then it raises LogDirMovesRefused with the errors by replica. Where a broker doesn't answer, the others
        are asked all the same, and it raises ClusterUnreachable.
        """

    def set_log_dir_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        """Set the rate of all movements within a broker, bytes/s; a rate that somebody else has set stays."""

    def clear_log_dir_rates(self, brokers: Collection[int], *, untagged: bool = False) -> list[int]:
        """Remove rates, those of others only if `untagged`; returns the brokers that are down and keep theirs."""

    def cordon_log_dirs(self, broker_id: int, paths: Collection[str], *, cordoned: bool) -> None:
        """Let log dirs of a broker take no new replicas, or take them again; cordons of its other log dirs stay. Raises
        ClusterRequestFailed if the broker refuses: it has no such log dir, or the cluster's `metadata.version` is
        before 4.3. An older broker must not be asked: it would store a setting that it doesn't know.
        """


class MarkerReader(Protocol):
    """Markers of rebalancers on the cluster itself, whatever tables they have."""

    def markers(self) -> tuple[Marker, ...]:
        """All that are there, held or released; raises AnotherCluster as `describe` does."""


class MarkerWriter(MarkerReader, Protocol):
    """Who is about to change the cluster says so on it."""

    def write_marker(self, marker: Marker, replaced: Collection[Marker] = ()) -> None:
        """Write it; markers that are `replaced` go."""


class ReadableCluster(ClusterReader, ThrottleReader, LogDirRateReader, MarkerReader, Protocol):
    """All that can be asked."""


class ControlledCluster(ReadableCluster, PlacementChanger, ThrottleChanger, LogDirChanger, MarkerWriter, Protocol):
    """All that an execution needs."""
