"""Runs a scenario: its events happen to processes and topics at their times, and the run holds what came of it.

Owns the order of events. What consumers and coordinator make of it is theirs; the counting is the ledger's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assignor_core.group.accounts import Accounts, AnyProcess
from assignor_core.group.consumer_protocol.delivery import ConsumerProtocolConsumers
from assignor_core.group.consumers import Consumers
from assignor_core.group.event_queue import EventQueue
from assignor_core.group.figures import Ledger, Rebalance, RunTotals
from assignor_core.group.member import CONSUMER_PROTOCOL
from assignor_core.group.scenario import (
    Crash,
    GrowTopic,
    Happening,
    Pause,
    ProcessSpec,
    Scenario,
    Stall,
    Start,
    Stop,
    Subscribe,
    matches,
)
from assignor_core.group.trace import Entry, What

SETTLE_MAX_MS = 48 * 3_600_000
"""A run that has not come to rest so long after its last event is ended and marked as unsettled."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a scenario led to. `settled` is False if it was ended before it came to rest.

    `generation_id` is the group epoch in the consumer protocol.
    """

    scenario: Scenario
    trace: Sequence[Entry]
    rebalances: Sequence[Rebalance]
    totals: RunTotals
    end_ms: int
    generation_id: int
    settled: bool


class ProtocolSide(Protocol):
    """What the scenario's events do to the consumers of a protocol; processes come from `start`."""

    @property
    def generation_id(self) -> int: ...
    def start(self, name: str, number: int, spec: ProcessSpec) -> AnyProcess: ...
    def leave(self, process: Any, reason: str) -> bool: ...
    def poll_too_late(self, process: Any) -> None: ...
    def rejoin(self, process: Any, reason: str) -> None: ...
    def end(self, process: Any) -> None: ...
    def beat_if_it_matters(self, process: Any) -> None: ...
    def fall_silent(self, process: Any) -> None: ...
    def topics_changed(self) -> None: ...


def simulate(scenario: Scenario) -> Run:
    """Let a scenario happen. The same scenario gives the same Run, to the byte.

    >>> from assignor_core.group.member import ConsumerConfig
    >>> from assignor_core.group.scenario import ProcessSpec, TopicSpec
    >>> specs = {name: ProcessSpec(ConsumerConfig(("cooperative-sticky",)), ("t",)) for name in ("a", "b")}
    >>> run = simulate(Scenario("b joins", {"t": TopicSpec(4)}, specs, ((0, Start("a")), (60_000, Start("b")))))
    >>> [(rebalance.rounds, rebalance.revoked, rebalance.moved) for rebalance in run.rebalances]
    [(1, 0, 0), (2, 2, 2)]
    """
    return _Simulation(scenario).run()


class _Simulation:
    """Processes, coordinator, queue and ledger of one run."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._queue = EventQueue()
        self._specs = dict(scenario.processes)
        self._partitions = {topic: spec.partitions for topic, spec in scenario.topics.items() if spec.partitions}
        self._by_name: dict[str, AnyProcess] = {}
        self._accounts = Accounts(Ledger({topic: spec.records_per_sec for topic, spec in scenario.topics.items()}))
        side = ConsumerProtocolConsumers if scenario.group_protocol == CONSUMER_PROTOCOL else Consumers
        self._consumers: ProtocolSide = side(scenario, self._queue, self._accounts, self._partitions)
        self._happens: dict[type, Callable[..., None]] = {
            Start: self._start, Stop: self._stop, Crash: self._crash, Pause: self._pause, Stall: self._stall,
            Subscribe: self._subscribe, GrowTopic: self._grow_topic,
        }  # fmt: skip

    def run(self) -> Run:
        scenario = self._scenario
        for topic, partitions in self._partitions.items():
            self._exist(topic, 0, partitions)
        for at_ms, event in scenario.events:
            self._queue.add(at_ms, self._happen, event)
        last_ms = max(scenario.events[-1][0], scenario.end_ms)
        settled = self._queue.run_until(last_ms + SETTLE_MAX_MS)
        ledger = self._accounts.ledger
        # A member that gets nothing leaves no entry, and may be the one that a rebalance ends with.
        ends = [rebalance.ended_ms for rebalance in ledger.rebalances if rebalance.ended_ms is not None]
        end_ms = max([scenario.end_ms, *ends[-1:], *(entry.at_ms for entry in self._accounts.trace[-1:])])
        totals = ledger.totals(end_ms)
        return Run(
            scenario,
            self._accounts.trace,
            ledger.rebalances,
            totals,
            end_ms,
            self._consumers.generation_id,
            settled,
        )

    # What the scenario's events do

    def _happen(self, event: Happening) -> None:
        self._happens[type(event)](event)

    def _start(self, event: Start) -> None:
        old = self._by_name.get(event.name)
        if old is not None and old.alive:
            return
        if event.spec is not None:
            self._specs[event.name] = event.spec
        number = old.number + 1 if old else 1
        self._note(What.STARTED, event.name)
        self._by_name[event.name] = self._consumers.start(event.name, number, self._specs[event.name])

    def _stop(self, event: Stop) -> None:
        process = self._running(event.name)
        if process is None:
            return
        self._note(What.STOPPED, event.name)
        self._consumers.leave(process, "leaves")
        self._consumers.end(process)

    def _crash(self, event: Crash) -> None:
        process = self._running(event.name)
        if process is not None:
            self._note(What.CRASHED, event.name)
            self._consumers.end(process)

    def _pause(self, event: Pause) -> None:
        process = self._running(event.name)
        until_ms = self._queue.now_ms + event.pause_ms
        if process is None or until_ms <= process.paused_until_ms:
            return
        self._note(What.PAUSED, event.name)
        self._consumers.fall_silent(process)
        process.paused_until_ms = until_ms
        self._accounts.reads_no_more(self._queue.now_ms, process)
        self._queue.add(process.paused_until_ms, self._resume, process)

    def _resume(self, process: AnyProcess) -> None:
        if not process.alive or process.paused_until_ms > self._queue.now_ms:
            return
        self._note(What.RESUMED, process.name)
        self._accounts.resumes(self._queue.now_ms, process)
        self._consumers.beat_if_it_matters(process)

    def _stall(self, event: Stall) -> None:
        """Past max.poll.interval.ms the member leaves, or falls silent, by itself."""
        process = self._running(event.name)
        if process is None:
            return
        process.busy_until_ms = max(process.busy_until_ms, self._queue.now_ms + event.stall_ms)
        limit_ms = process.spec.config.max_poll_interval_ms
        if event.stall_ms > limit_ms:
            self._queue.add(self._queue.now_ms + limit_ms, self._poll_too_late, process)
            self._queue.add(process.busy_until_ms, self._poll_again, process)

    def _poll_too_late(self, process: AnyProcess) -> None:
        if process.alive and process.busy_until_ms > self._queue.now_ms:
            self._consumers.poll_too_late(process)

    def _poll_again(self, process: AnyProcess) -> None:
        if process.alive and process.busy_until_ms <= self._queue.now_ms:
            process.silent = False
            self._consumers.beat_if_it_matters(process)

    def _subscribe(self, event: Subscribe) -> None:
        process = self._running(event.name)
        if process is not None and process.subscribe(event.topics):
            self._consumers.rejoin(process, "subscribes to other topics")

    def _grow_topic(self, event: GrowTopic) -> None:
        before = self._partitions.get(event.topic, 0)
        self._partitions[event.topic] = event.partitions
        self._note(What.TOPIC, event.topic, f"{before} to {event.partitions} partitions")
        self._exist(event.topic, before, event.partitions)
        self._consumers.topics_changed()
        for process in self._by_name.values():
            if process.alive:
                self._queue.add(process.next_refresh_ms(self._queue.now_ms), self._refresh, process)

    def _refresh(self, process: AnyProcess) -> None:
        """A consumer looks at its metadata; it may have to ask for a rebalance."""
        if process.alive and process.paused_until_ms > self._queue.now_ms:
            self._queue.add(process.next_refresh_ms(process.paused_until_ms), self._refresh, process)
        elif process.alive:
            reason = process.see(self._partitions)
            if reason:
                self._consumers.rejoin(process, reason)

    def _exist(self, topic: str, before: int, partitions: int) -> None:
        if matches(self._scenario.patterns(), topic):
            self._accounts.ledger.exists(self._queue.now_ms, [(topic, number) for number in range(before, partitions)])

    def _running(self, name: str) -> AnyProcess | None:
        process = self._by_name.get(name)
        return process if process is not None and process.alive else None

    def _note(self, what: What, who: str, detail: str = "") -> None:
        self._accounts.note(self._queue.now_ms, what, who, detail)
