"""The rates that are measured, each once: its name, its unit, Kafka's meter, and what it is called in each table.

Fields of records, columns of windows, hours and days, the collector's figures and the series of each broker follow from
this list. Its order is the order of columns and part of the checkpoints: a new rate comes last.
"""

from dataclasses import dataclass
from enum import StrEnum

WHOLE_LOG_MS = 3_600_000
"""Whoever reads a log again, or from its beginning, counts as reading all of it in this time at the fastest."""


class Traffic(StrEnum):
    """Whose traffic a rate is. Clients' and replication's are load; what a reassignment copies never is."""

    CLIENTS = "clients"
    REPLICATION = "replication"
    REASSIGNMENT = "reassignment"


@dataclass(frozen=True, slots=True)
class ReplicaComments:
    """Comments of the columns of a rate that is known of each replica, not only of each broker."""

    window: str
    day: str


@dataclass(frozen=True, slots=True)
class Rate:
    """One rate, per second; `meaning` completes "mean of ..." for a broker."""

    name: str
    unit: str
    meter: str
    """Kafka's name in BrokerTopicMetrics, without PerSec."""
    meaning: str
    traffic: Traffic = Traffic.CLIENTS
    of_replica: ReplicaComments | None = None
    has_sample_max: bool = False
    """Whether a broker's window keeps the highest single sample too."""
    has_period_max: bool = False
    """Whether hours and days keep the highest too."""
    meter_includes: str | None = None
    """Rate that Kafka counts in this meter as well; ours keeps it apart."""

    @property
    def stem(self) -> str:
        """Name of the rate without its unit, as adapters and the collector use it."""
        return self.name.removesuffix("_per_sec")

    @property
    def counter(self) -> str:
        """Field of the counter that the rate is the growth of."""
        return f"{self.stem}_total"

    @property
    def counter_unit(self) -> str:
        """Unit of the rate's counter."""
        return self.unit.removesuffix("/s")

    @property
    def maximum(self) -> str:
        """Column of the rate's highest value."""
        return f"{self.name}_max"

    @property
    def window_comment(self) -> str:
        """Comment of a broker's column in a window."""
        return _WINDOW_COMMENTS[self.traffic].format(
            meaning=self.meaning, unit=self.unit, Meaning=self.meaning.capitalize()
        )

    @property
    def period_comment(self) -> str:
        """Comment of a broker's column in an hour or a day."""
        return _PERIOD_COMMENTS[self.traffic].format(meaning=self.meaning, unit=self.unit)


_WINDOW_COMMENTS = {
    Traffic.CLIENTS: "Time-weighted mean of {meaning}, {unit}",
    Traffic.REPLICATION: "{Meaning}, {unit}, reassignment excluded",
    Traffic.REASSIGNMENT: "{Meaning}, {unit}; never load",
}
_PERIOD_COMMENTS = {
    Traffic.CLIENTS: "Mean over the windows of {meaning}, {unit}",
    Traffic.REPLICATION: "Mean of {meaning}, {unit}",
    Traffic.REASSIGNMENT: "Mean of {meaning}, {unit}; never load",
}

BYTES_IN = Rate(
    "bytes_in_per_sec", "bytes/s", "BytesIn", "bytes that clients write to the broker",
    of_replica=ReplicaComments(
        "Time-weighted mean write rate, bytes/s; null where no interval was known",
        "Mean write rate over the windows, bytes/s; null where never known",
    ),
    has_sample_max=True, has_period_max=True,
)  # fmt: skip
"""The rate that must be known for a window to count as covered."""
BYTES_OUT = Rate(
    "bytes_out_per_sec", "bytes/s", "BytesOut", "bytes that consumers read from the broker",
    of_replica=ReplicaComments(
        "Time-weighted mean consumer read rate, bytes/s; null where unknown",
        "Mean consumer read rate over the windows, bytes/s; null where never known",
    ),
    has_period_max=True,
)  # fmt: skip
MESSAGES_IN = Rate(
    "messages_in_per_sec", "records/s", "MessagesIn", "records that clients write to the broker",
    of_replica=ReplicaComments(
        "Time-weighted mean of records appended, records/s; null where unknown",
        "Mean of records appended, records/s; null where never known",
    ),
)  # fmt: skip
REASSIGNMENT_BYTES_IN = Rate(
    "reassignment_bytes_in_per_sec", "bytes/s", "ReassignmentBytesIn", "bytes that reassignments copy to the broker",
    Traffic.REASSIGNMENT,
)  # fmt: skip
REASSIGNMENT_BYTES_OUT = Rate(
    "reassignment_bytes_out_per_sec", "bytes/s", "ReassignmentBytesOut",
    "bytes that reassignments copy from the broker", Traffic.REASSIGNMENT,
)  # fmt: skip
REPLICATION_BYTES_IN = Rate(
    "replication_bytes_in_per_sec", "bytes/s", "ReplicationBytesIn", "bytes that the broker replicates as a follower",
    Traffic.REPLICATION, meter_includes=REASSIGNMENT_BYTES_IN.name,
)  # fmt: skip
REPLICATION_BYTES_OUT = Rate(
    "replication_bytes_out_per_sec", "bytes/s", "ReplicationBytesOut", "bytes that followers fetch from the broker",
    Traffic.REPLICATION, meter_includes=REASSIGNMENT_BYTES_OUT.name,
)  # fmt: skip

RATES = (
    BYTES_IN, BYTES_OUT, MESSAGES_IN, REPLICATION_BYTES_IN, REPLICATION_BYTES_OUT, REASSIGNMENT_BYTES_IN,
    REASSIGNMENT_BYTES_OUT,
)  # fmt: skip
RATE_NAMES = tuple(rate.name for rate in RATES)
REPLICA_RATES = tuple(rate for rate in RATES if rate.of_replica is not None)
"""Rates that are known of each replica too."""
SAMPLE_MAXIMA = tuple(rate.name for rate in RATES if rate.has_sample_max)
"""Rates of which a broker's window keeps the highest single sample."""
