"""What an execution writes down while it goes on: its events, each with the progress that one snapshot shows."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import structlog

from assignor_core.execution.accounting import remaining
from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster
from assignor_core.plan import Plan
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.throttle import Remains

log = structlog.get_logger()

PROGRESS_INTERVAL_MS = 10_000


class TickSnapshot(Protocol):
    """One execution and the cluster as one tick sees them."""

    @property
    def record(self) -> ExecutionRecord:
        """The execution, as this process knows it."""

    @property
    def execution(self) -> Execution:
        """The execution with the events so far."""

    @property
    def plan(self) -> Plan:
        """What is carried out."""

    @property
    def live(self) -> LiveCluster:
        """The cluster, as far as it decides on the next step."""

    @property
    def obsolete(self) -> str | None:
        """Why the rest of the plan is not to be carried out; None if it is."""

    @property
    def now_ms(self) -> int:
        """When the tick began."""


SnapshotT = TypeVar("SnapshotT", bound=TickSnapshot)


class Reports(Generic[SnapshotT]):
    """The events of one execution; `forget` before those of another."""

    def __init__(self, journal: Journal, progress_figures: Callable[[SnapshotT], Mapping[str, Any]]) -> None:
        """`progress_figures` are the figures of an event that show how far the execution is."""
        self._journal = journal
        self._progress_figures = progress_figures
        self.forget()

    def forget(self) -> None:
        self._last_progress_ms: int | None = None

    def write(self, snapshot: SnapshotT, event: Event, detail: str, **figures: Any) -> None:
        """One event with the progress that this snapshot shows; `figures` go before it."""
        shown = {**self._progress_figures(snapshot), **figures}
        self._last_progress_ms = snapshot.now_ms
        self._journal.write_event(snapshot.record, event, detail, now_ms=snapshot.now_ms, **shown)
        log.info(
            "execution",
            execution_id=snapshot.execution.execution_id,
            plan_id=snapshot.plan.plan_id[:12],
            event_name=event.value,
            detail=detail,
        )

    def write_cleared(self, snapshot: SnapshotT, event: Event, detail: str, remains: Remains) -> None:
        """Writes the event after the removal of the throttle, with Kafka's error if Kafka refuses the removal."""
        if remains.refused is not None:
            detail += f"; Kafka refuses to remove the throttle: {remains.refused}"
        self.write(snapshot, event, detail, throttled_brokers=remains.brokers, movements_under_way=())

    def throttle(self, snapshot: SnapshotT, lowest: int | None, pressure: str | None) -> None:
        """Writes that the throttle has changed, and why. `lowest` is the rate of the slowest broker that was sent a
        rate, bytes/s, None if none was; `pressure` is why clients suffer.
        """
        before = snapshot.execution.figures.throttle_bytes_per_sec
        if lowest is None or before is None or lowest == before:
            return
        falls = pressure or "less of a broker's capacity is left"
        why = falls if lowest < before else "clients and brokers have room again"
        detail = f"the throttle of the slowest broker is {lowest:,} bytes/s instead of {before:,}: {why}"
        self.write(snapshot, Event.PROGRESS, detail, throttle_bytes_per_sec=lowest)

    def more_throttled(self, snapshot: SnapshotT, brokers: tuple[int, ...] | None) -> None:
        """Writes which further brokers take the throttle, before they take it; writes nothing if `brokers` is None, as
        there are none.
        """
        if brokers is None:
            return
        new = sorted(set(brokers) - set(snapshot.execution.throttled_brokers))
        detail = f"brokers {new} take the throttle now: they were offline, or had a rate of somebody else's"
        self.write(snapshot, Event.PROGRESS, detail, throttled_brokers=brokers)

    def waits(self, snapshot: SnapshotT, reason: str) -> None:
        """Writes an event, every few seconds at most, with what the execution waits for."""
        if self._is_due(snapshot.now_ms):
            parts = (reason, remaining(snapshot.execution))
            self.write(snapshot, Event.PROGRESS, "; ".join(part for part in parts if part))

    def held(self, record: ExecutionRecord, reason: str, *, now_ms: int) -> None:
        """Writes an event, every few seconds at most, with the reason why the execution is held."""
        if not record.execution.paused and self._is_due(now_ms):
            self._last_progress_ms = now_ms
            self._journal.write_event(record, Event.PROGRESS, f"held: {reason}", now_ms=now_ms)

    def _is_due(self, now_ms: int) -> bool:
        return is_due(self._last_progress_ms, PROGRESS_INTERVAL_MS, now_ms)
