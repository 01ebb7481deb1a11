"""What happens to an execution: the names of the events and what each of them records.

This file knows neither tables nor clocks. Which event may follow which is in `life_cycle`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from assignor_core.execution.caution import SkewOutcome
from assignor_core.resources import TRIGGERING, Resource

ABORT_SEQUENCE = 1_000_000
"""Sequence of a request to abort: anybody may write one, so it stands outside the numbering of the other events."""


class Event(StrEnum):
    """What happened; the value is the name in the table `execution`."""

    ENDORSED = "endorsed"
    """A person approved the plan, and more people have to approve it before it is carried out."""
    APPROVED = "approved"
    """Somebody asked for the plan to be carried out; no more approvals are needed."""
    REFUSED = "refused"
    """The plan had expired, no longer fitted the cluster, or was not trusted. Nothing was changed."""
    STARTED = "started"
    """The plan was checked; its throttle is set next."""
    SUBMITTED = "submitted"
    """Reassignments were sent to Kafka."""
    PROGRESS = "progress"
    """Nothing was sent; the detail explains what the execution waits for."""
    ELECTING = "electing"
    """Preferred leaders are elected next."""
    PAUSED = "paused"
    """The maintenance window closed, or somebody cancels our moves. Nothing of the execution is on the cluster."""
    RESUMED = "resumed"
    """The next maintenance window opened."""
    DONE = "done"
    """Every movement has been made."""
    ABORTED = "aborted"
    """Movements in flight were cancelled; finished ones stay."""
    ABORT_REQUESTED = "abort_requested"
    """A person asked to stop. Control acts on it at its next tick."""
    MEASURED = "measured"
    """The skew was measured after the end."""
    SWEPT = "swept"
    """Leftovers were removed after the end: throttles of brokers that were down, requests that came late."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of an execution at an event. None stands for unknown, or for nothing of the kind."""

    movements_total: int
    bytes_total: int
    movements_done: int = 0
    bytes_moved: int = 0
    throttle_bytes_per_sec: int | None = None
    throttled_brokers: tuple[int, ...] | None = None
    """Brokers that carry a throttle of this execution."""
    produce_p99_ms_before: float | None = None
    """p99 of produce requests on the slowest broker when the execution started or resumed."""
    in_windows_only: bool | None = None
    """Whether movements may be submitted in maintenance windows only."""
    begins_ms: int | None = None
    """Time before which the execution must not start, ms since 1970 UTC; None stands for at once."""
    approvals_needed: int | None = None
    """How many people have to approve before it starts; None stands for one."""
    approver: str | None = None
    """Person who approved at this event."""
    kafka_cluster_id: str | None = None
    """Kafka's own id of the cluster that it was started on; None before the start."""
    movements_made: tuple[int, ...] | None = None
    """Movements made since the event before, by their place in the plan; None where nobody looked."""
    movements_undone: tuple[int, ...] | None = None
    """Movements that were made before and no longer are: others have changed the partition."""
    movements_under_way: tuple[int, ...] | None = None
    """Movements that copied at that moment."""
    movements_cancelled: tuple[int, ...] | None = None
    """Movements that somebody else has cancelled since the event before."""
    before: Mapping[Resource, float] = field(default_factory=dict)
    """max/mean over brokers before the plan."""
    predicted: Mapping[Resource, float] = field(default_factory=dict)
    """max/mean that the plan promises."""
    measured: Mapping[Resource, float] = field(default_factory=dict)
    """max/mean after the plan; only the event `measured` has it."""

    @property
    def max_over_mean(self) -> dict[str, Mapping[Resource, float]]:
        """The ratios by when they hold: `before`, `predicted`, `measured`."""
        return {"before": self.before, "predicted": self.predicted, "measured": self.measured}

    def carried(self) -> "Figures":
        """What the next event starts from: all but the measurement, and what was seen at this event alone."""
        return replace(
            self,
            measured={},
            approver=None,
            movements_made=None,
            movements_undone=None,
            movements_under_way=None,
            movements_cancelled=None,
        )

    def outcomes(self) -> dict[str, SkewOutcome]:
        """What was promised and measured of each load, where all three ratios are known.

        Counts are left out: they come true whatever the load does.
        """
        return {
            resource: SkewOutcome(self.before[resource], self.predicted[resource], self.measured[resource])
            for resource in TRIGGERING
            if all(resource in ratios for ratios in (self.before, self.predicted, self.measured))
        }


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event of one execution. `sequence` counts from 0; `at_ms` is ms since 1970 UTC."""

    event: Event
    sequence: int
    at_ms: int
    detail: str
    figures: Figures
