"""The world that controls live in: one clock, one cluster, one store, and what happens when.

Controls are killed, frozen or made to wait at a call out, before or after it took effect. Each acts on stacks of its
own (see `stack`), so whoever is frozen in the middle of a turn stays there while the others act, freeze and go on: two
controls interleave at the call outs of both.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from heapq import heappop, heappush
from random import Random

from assignor_core.live import LiveCluster
from streaming.errors import (
    AnotherCluster,
    ClusterRequestFailed,
    ClusterUnreachable,
    ElectionsRefused,
    LogDirMovesRefused,
    ReassignmentsRefused,
)
from streaming.settings import Settings
from tests.control.windows import write_windows
from tests.simulated_cluster import (
    NEWEST_RELEASE,
    ClientErrors,
    ClientFaults,
    Release,
    SimulatedClient,
    SimulatedCluster,
)
from tests.simulated_cluster.state import STAYING_REPLICAS_MAY_LAG
from tests.tables_in_memory import MemoryStore, forget, memory_store

EPOCH_MS = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()) * 1000
"""A Monday at noon: logical time 0 of every story."""
RELEASES: tuple[Release, ...] = ((3, 9), NEWEST_RELEASE)
"""Releases of Kafka whose rules differ; those of each story are drawn."""
HOT_BYTES_PER_SEC = 1e6
ERRORS = ClientErrors(
    ClusterRequestFailed,
    ClusterUnreachable,
    ReassignmentsRefused,
    ElectionsRefused,
    AnotherCluster,
    LogDirMovesRefused,
)


CLUSTER = "simulated"
WINDOW_MS = 60_000


def settings_of(root: str, **sections: Mapping[str, object]) -> Settings:
    """Settings of a story whose tables are below `root`, with windows of a minute."""
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": CLUSTER},
            "storage": {"tables": root},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            **sections,
        }
    )


class Killed(BaseException):
    """A control was killed at a call out. Nothing of control catches it, as nothing catches a signal 9."""


class Blow(Enum):
    """What may strike a control at a call out."""

    KILL_BEFORE = "control is killed before a call"
    KILL_AFTER = "control is killed after a call"
    FREEZE_BEFORE = "control is frozen before a call"
    FREEZE_AFTER = "control is frozen after a call"
    WAIT_BEFORE = "control waits before a call"
    """Its lease is renewed meanwhile, as a thread of its own does it."""
    WAIT_AFTER = "control waits after a call"

    @property
    def kills(self) -> bool:
        """Whether the process ends."""
        return self in (Blow.KILL_BEFORE, Blow.KILL_AFTER)

    @property
    def freezes(self) -> bool:
        """Whether the whole process stops for a while."""
        return self in (Blow.FREEZE_BEFORE, Blow.FREEZE_AFTER)


@dataclass(frozen=True, slots=True)
class Interruption:
    """One blow; `duration_ms` is how long a freeze or a wait lasts, or how long after a kill the next one starts."""

    blow: Blow
    duration_ms: int
    clock_stops: bool = False
    """Of a freeze: the whole machine is paused, so the clock of control stands still with it."""


class Actor:
    """Somebody who acts in the world; while `away` its events wait, once `ended` they are dropped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.away = False
        self.ended = False
        self.restart_ms = 0
        """Where it was killed: how long after that the next one starts."""
        self.stood_still_ms = 0
        """How far its own clock is behind, as its machine was paused."""

    def paused(self, duration_ms: int, *, frozen: bool) -> None:
        """Stop here for so long; `frozen` where nothing else of it goes on meanwhile."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave whatever it waits in."""


@dataclass(slots=True)
class World:
    """Everything outside of control."""

    cluster: SimulatedCluster
    settings: Settings
    interruptions: dict[int, Interruption] = field(default_factory=dict)
    """By the number of the call out, all controls counted together."""
    trace: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    """What has struck, by kind."""
    client_faults: ClientFaults = field(default_factory=ClientFaults)
    lists_changed: bool = False
    """Whether others, or a request that came late, have changed lists of throttled replicas."""
    hot_broker: int | None = None
    """If set, the load stays with this broker: partitions that it leads take HOT_BYTES_PER_SEC, all others little."""
    running: Actor | None = None
    """The control that acts now."""
    actors: list[Actor] = field(default_factory=list)
    """Those that have to be ended with the story."""
    observer: Callable[[Actor | None], None] = lambda _who: None
    """Called after whatever may have changed the cluster, with who did it: None where only time has passed."""
    others_act: Callable[[], None] = lambda: None
    """Called before each event and at each call out: clusters of the same process may act there (see `clusters`)."""
    other_cluster: SimulatedCluster | None = None
    """What the address leads to while it doesn't lead to `cluster`."""
    led_away_ms: int = 0
    """Since when; a change that was checked before is one that nobody could prevent."""
    calls: int = 0
    """Call outs so far."""
    _planned: int = 0
    _ids: int = 0
    _events: list[tuple[int, int, Actor, Callable[[], object]]] = field(default_factory=list)
    _waiting: list[tuple[int, int, Actor, Callable[[], object]]] = field(default_factory=list)
    """Of those who are away."""

    def new_id(self) -> str:
        """As if drawn at random, but the same in each run of a story."""
        self._ids += 1
        return hashlib.sha256(f"id {self._ids}".encode()).hexdigest()[:32]

    def draw_release(self, seed: int) -> None:
        """Let the cluster run a release of Kafka; it is drawn apart, so that the rest of the story stays the same."""
        release = Random(f"release of {seed}").choice(RELEASES)
        self.cluster.contents.release = release
        if release < STAYING_REPLICAS_MAY_LAG:
            self.faults["Kafka's old rule: reassignments wait for replicas that stay"] += 1

    @property
    def addressed(self) -> SimulatedCluster:
        """The cluster that answers at the address of the settings."""
        return self.other_cluster or self.cluster

    @property
    def may_pause(self) -> bool:
        """Whether some call out from now on may stop a control in the middle of a turn."""
        return any(number > self.calls and not row.blow.kills for number, row in self.interruptions.items())

    @property
    def store(self) -> MemoryStore:
        """The tables."""
        store = memory_store(self.settings.storage.tables)
        assert store is not None, "a story keeps its tables in memory"
        return store

    @property
    def now_ms(self) -> int:
        """Logical time as control is handed it, ms UTC."""
        return EPOCH_MS + self.cluster.now_ms

    def end(self) -> None:
        """End whoever waits in the middle of a turn, and give the tables' memory back."""
        for actor in self.actors:
            actor.end()
        forget(self.settings.storage.tables)

    def note(self, who: str, what: str) -> None:
        """One line of the trace."""
        self.trace.append(f"{self.cluster.now_ms / 1000:>10.3f} s  {who:<10} {what}")

    def plan(self, delay_ms: int, actor: Actor, action: Callable[[], object]) -> None:
        """Let `actor` do something later."""
        self._planned += 1
        heappush(self._events, (self.cluster.now_ms + delay_ms, self._planned, actor, action))

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, and happen what is planned for it."""
        end_ms = self.cluster.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            at_ms, number, actor, action = heappop(self._events)
            if actor.away:
                self._waiting.append((at_ms, number, actor, action))
            elif not actor.ended:
                self._advance_to(at_ms)
                self.others_act()
                action()
        self._advance_to(end_ms)

    def wake(self, actor: Actor) -> None:
        """Somebody is back: what waited for that is due now."""
        actor.away = False
        for event in self._waiting:
            heappush(self._events, event)
        self._waiting.clear()

    def called(self, when: str) -> None:
        """A control calls out; `when` is before or after. It may be struck here."""
        self.others_act()
        control = self.running
        if control is None:
            return
        if control.ended:
            raise Killed
        self.calls += 1
        strike = self.interruptions.get(self.calls)
        if strike is None:
            return
        self.faults[strike.blow.value] += 1
        self.note(control.name, f"{strike.blow.name.lower()}, {when} ({strike.duration_ms} ms)")
        if strike.blow.kills:
            control.ended, control.restart_ms = True, strike.duration_ms
            raise Killed
        if strike.clock_stops:
            self.faults["the machine of control is paused"] += 1
            control.stood_still_ms += strike.duration_ms
        # The keeper of the lease waits for a turn that is writing it.
        control.paused(strike.duration_ms, frozen=strike.blow.freezes or when.endswith("of lease"))
        if control.ended:
            raise Killed

    def look(self) -> LiveCluster:
        """The cluster as it is."""
        return SimulatedClient(self.cluster, errors=ERRORS).describe()

    def write_window(self, windows: int = 1) -> None:
        """The pipeline's rows of the newest windows that have ended now."""
        contents = self.cluster.contents
        if any(broker.running for broker in contents.brokers.values()):
            rates = {key: float(row.bytes_in_per_sec) for key, row in contents.partitions()}
            if self.hot_broker is not None:
                rates = {
                    key: HOT_BYTES_PER_SEC if row.leader == self.hot_broker else HOT_BYTES_PER_SEC / 50
                    for key, row in contents.partitions()
                }
            write_windows(self.settings, self.look(), end_ms=self.now_ms, rates=rates, windows=windows)

    def _advance_to(self, at_ms: int) -> None:
        # What waited for somebody who was away is due since then.
        if at_ms > self.cluster.now_ms:
            self.cluster.advance(at_ms - self.cluster.now_ms)
            self.observer(None)
