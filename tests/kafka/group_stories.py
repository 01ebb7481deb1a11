"""Stories of real groups of Java consumers and of simulated ones, and what comes of both in the same words."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from assignor_core.group.scenario import Crash, Happening, Start, Stop, Subscribe
from assignor_core.group.simulation import Run
from assignor_core.group.trace import What
from streaming.demo.brokers import EmbeddedCluster
from tests.kafka.real_groups import (
    HEARTBEAT_MS,
    GroupMove,
    JavaMembers,
    MemberEvent,
    group_moves,
    log_lines,
)
from tests.waiting import until

PARTITIONS, OTHER_PARTITIONS = 6, 2
QUIET_S = 2.5 * HEARTBEAT_MS / 1000
SETTLE_MS = 30_000
AWAY_MS = 2_000
HAPPENS: Mapping[str, Callable[[str], Happening]] = {"start": Start, "stop": Stop, "kill": Crash}
WORDS = {
    What.STARTED: "started", What.STOPPED: "ended", What.CRASHED: "ended", What.FAILED: "failed",
    What.ASSIGNED: "assigned", What.REVOKED: "revoked", What.LOST: "lost",
}  # fmt: skip

Step = tuple[str, ...]
Callback = tuple[str, tuple[int, ...]]
JOIN: tuple[Step, ...] = (("start", "a"), ("start", "b"), ("start", "c"))


@dataclass(frozen=True, slots=True)
class Story:
    """What happens to the members a, b, c of a group. A settled group follows after each step but `wait`.

    `revoke_ms`: how long a member takes to give partitions up.
    """

    strategy: str
    steps: tuple[Step, ...]
    static: bool = False
    revoke_ms: int = 0

    @property
    def instances(self) -> dict[str, str]:
        """Group instance id of each member, if the story is one of static members."""
        return {step[1]: step[2] if len(step) > 2 else step[1] for step in self.steps if step[0] == "start"}

    def timed(self) -> tuple[tuple[int, Happening], ...]:
        """The steps as events of a scenario, with time to settle after each."""
        events: list[tuple[int, Happening]] = []
        at_ms = 0
        for number, step in enumerate(self.steps):
            if step[0] == "subscribe":
                events.append((at_ms, Subscribe(step[1], (step[2],))))
            elif step[0] != "wait":
                events.append((at_ms, HAPPENS[step[0]](step[1])))
            followed_by_wait = self.steps[number + 1 : number + 2] == (("wait",),)
            at_ms += AWAY_MS if step[0] == "wait" else 0 if followed_by_wait else SETTLE_MS
        return tuple(events)


@dataclass(slots=True)
class Record:
    """What came of a story, real or simulated, in the same words. Times of callbacks are for idle times only."""

    moves: list[GroupMove] = field(default_factory=list)
    events: list[MemberEvent] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """What brokers logged of a real group: where it goes another way, this shows why."""

    @classmethod
    def of_run(cls, run: Run, moves: list[GroupMove]) -> Self:
        """Of a simulation."""
        return cls(
            moves,
            [
                MemberEvent(
                    entry.at_ms, "", entry.who, WORDS[entry.what], 0, tuple(sorted(n for _, n in entry.partitions))
                )
                for entry in run.trace
                if entry.what in WORDS
            ],
        )

    def callbacks(self) -> dict[str, list[Callback]]:
        """Per member; what a process is told while it ends is nobody's concern, and a refusal is one event."""
        by_member: dict[str, list[Callback]] = defaultdict(list)
        ending: set[str] = set()
        for event in self.events:
            seen = by_member[event.name]
            if event.what in ("started", "ended"):
                (ending.discard if event.what == "started" else ending.add)(event.name)
            elif event.what == "failed" and seen and seen[-1][0] in ("revoked", "lost"):
                seen[-1] = ("failed", seen[-1][1])
            elif event.partitions and event.name not in ending:
                seen.append((event.what, event.partitions))
        return {name: seen for name, seen in by_member.items() if seen}

    def idle_partition_ms(self) -> int:
        """From the last step on: time that partitions spent without a reader."""
        last_step = max(number for number, event in enumerate(self.events) if event.what in ("started", "ended"))
        first_of_last = last_step - (self.events[last_step].what == "started" and self._restarts(last_step))
        owned: dict[str, set[int]] = defaultdict(set)
        since: dict[int, int] = {}
        idle_ms = 0
        for number, event in enumerate(self.events):
            if event.what == "assigned":
                for partition in event.partitions:
                    gone_ms = since.pop(partition, None)
                    idle_ms += event.at_ms - gone_ms if gone_ms is not None and number >= first_of_last else 0
                owned[event.name] |= set(event.partitions)
            elif event.what in ("revoked", "lost", "ended"):
                gone = owned[event.name] if event.what == "ended" else owned[event.name] & set(event.partitions)
                since.update((partition, event.at_ms) for partition in gone)
                owned[event.name] = owned[event.name] - gone
        return idle_ms

    def _restarts(self, started: int) -> int:
        """How many events back the same member ended, if it did."""
        name = self.events[started].name
        ends = [n for n, event in enumerate(self.events[:started]) if event.what == "ended" and event.name == name]
        return started - ends[-1] if ends else 0


class RealGroup:
    """A story that Java members go through; `moves` reads what the group did off the brokers' logs."""

    def __init__(
        self, cluster: EmbeddedCluster, topic: str, story: Story, group: str,
        moves: Callable[[Iterable[str]], list[GroupMove]] = group_moves,
    ) -> None:  # fmt: skip
        self._moves = moves
        self._cluster, self._topic, self._story, self._group = cluster, topic, story, group
        self._admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        self._own_events: list[MemberEvent] = []
        self._jvms: dict[str, JavaMembers] = {}
        self._others: list[str] = []

    def live(self, shared: JavaMembers, shared_events: list[MemberEvent]) -> Record:
        """All steps; members that will be killed get a JVM of their own."""
        try:
            return self._live(shared, shared_events)
        finally:
            self._admin.close()
            for jvm in self._jvms.values():
                jvm.close()

    def _live(self, shared: JavaMembers, shared_events: list[MemberEvent]) -> Record:
        doomed = {step[1] for step in self._story.steps if step[0] == "kill"}
        self._jvms = {name: JavaMembers(self._cluster.bootstrap_servers, self._own_events) for name in doomed}
        running: set[str] = set()
        for number, step in enumerate(self._story.steps):
            if step[0] == "wait":
                time.sleep(AWAY_MS / 1000)  # the length of an absence, as in the simulation
                continue
            kind, name = step[0], step[1]
            jvm = self._jvms.get(name, shared)
            if kind == "start":
                self._note(name, "started")
                instance = step[-1] if self._story.static else None
                settings = [f"revoke.ms={self._story.revoke_ms}"] if self._story.revoke_ms else []
                jvm.start(self._group, name, self._topic, self._story.strategy, instance, *settings)
                running.add(name)
            elif kind == "subscribe":
                jvm.subscribe(self._group, name, f"{self._topic}-{step[2]}")
                self._others.append(step[2])
            else:
                self._note(name, "ended")
                running.discard(name)
                jvm.kill() if kind == "kill" else self._stop(name, shared, shared_events)
            if self._story.steps[number + 1 : number + 2] != (("wait",),):
                self._settle(shared_events, running)
        log = log_lines(self._cluster, self._group)
        return Record(self._moves(log), self._events(shared_events), log)

    def _stop(self, name: str, shared: JavaMembers, shared_events: list[MemberEvent]) -> None:
        """Until it has closed: what follows is measured from there, and on a busy machine closing takes seconds."""
        shared.stop(self._group, name)

        def closed() -> bool:
            return any(
                one.what == "closed" and (one.group, one.name) == (self._group, name) for one in list(shared_events)
            )

        until(f"the end of {name} of {self._group}", closed, pause_s=0.05)

    def _events(self, shared_events: Sequence[MemberEvent]) -> list[MemberEvent]:
        """What members told, and what was done to them, in order of time."""
        mine = [
            one
            for one in list(shared_events) + list(self._own_events)
            if one.group == self._group and one.what != "closed"
        ]
        return sorted(mine, key=lambda one: one.at_ms)

    def _settle(self, shared_events: list[MemberEvent], running: set[str]) -> None:
        """All members are in, every partition has its reader, and nothing happened for more than two heartbeats.

        The coordinator says so too: on a busy machine members are silent for longer in the middle of a rebalance.
        """
        expected = [*range(PARTITIONS), *(number for _ in self._others for number in range(OTHER_PARTITIONS))]

        def settled() -> bool:
            events = self._events(shared_events)
            owned: dict[str, set[int]] = defaultdict(set)
            silent: set[str] = set()
            for event in events:
                (silent.add if event.what == "started" else silent.discard)(event.name)
                if event.what == "assigned":
                    owned[event.name] |= set(event.partitions)
                elif event.what in ("ended", "failed"):
                    owned[event.name] = set()
                else:
                    owned[event.name] -= set(event.partitions)
            read = [partition for name in running for partition in owned[name]]
            quiet = time.time() * 1000 - events[-1].at_ms >= QUIET_S * 1000
            known = quiet and not silent and (not running or sorted(read) == sorted(expected))
            return known and self._state() == ("Stable" if running else "Empty")

        until(f"{self._group} with {sorted(running)}", settled, pause_s=0.05)

    def _state(self) -> str:
        """As the coordinator has it: of a group of the consumer protocol `Stable` once all members are at its epoch.

        Empty while a broker can't tell yet: one that has just become a coordinator loads its groups first.
        """
        try:
            listed = self._admin.list_groups()
        except KafkaError as error:
            if not error.retriable:
                raise
            return ""
        return next((group["group_state"] for group in listed if group["group_id"] == self._group), "")

    def _note(self, name: str, what: str) -> None:
        self._own_events.append(MemberEvent(time.time_ns() // 1_000_000, self._group, name, what, 0, ()))
