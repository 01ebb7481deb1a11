"""The same stories told to real groups of Java consumers and to the simulation: do they go the same way?"""

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from assignor_core.group.member import ConsumerConfig
from assignor_core.group.scenario import Crash, Happening, ProcessSpec, Scenario, Start, Stop, TopicSpec
from assignor_core.group.simulation import simulate
from assignor_core.group.trace import What
from streaming.demo.brokers import EmbeddedCluster
from tests.kafka.real_groups import (
    HEARTBEAT_MS,
    SESSION_MS,
    GroupMove,
    JavaMembers,
    MemberEvent,
    coordinators_that_log,
    group_moves,
)
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.java]

PARTITIONS = 6
QUIET_S = 2.5 * HEARTBEAT_MS / 1000
SETTLE_MS = 30_000
SEEDS = range(12)
JITTER_MS = 5
"""Between processes of one machine."""
LATE_MS, LATE_SEEDS = 400, range(400)
"""Between processes of a machine that has more to do than it can."""

Step = tuple[str, ...]
Callback = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Story:
    """What happens to the members a, b, c of a group. A settled group follows after each step but `wait`."""

    strategy: str
    steps: tuple[Step, ...]
    static: bool = False


EAGER, COOPERATIVE = "range", "cooperative-sticky"
AWAY_MS = 2_000
JOIN: tuple[Step, ...] = (("start", "a"), ("start", "b"), ("start", "c"))
STORIES = {
    "eager join": Story(EAGER, JOIN),
    "cooperative join": Story(COOPERATIVE, JOIN),
    "eager leave": Story(EAGER, (*JOIN, ("stop", "c"))),
    "cooperative leave": Story(COOPERATIVE, (*JOIN, ("stop", "c"))),
    "eager crash": Story(EAGER, (*JOIN, ("kill", "c"))),
    "cooperative crash": Story(COOPERATIVE, (*JOIN, ("kill", "c"))),
    "static restart in time": Story(COOPERATIVE, (*JOIN, ("stop", "c"), ("wait",), ("start", "c")), static=True),
    "static restart too late": Story(EAGER, (*JOIN, ("stop", "c"), ("start", "c")), static=True),
    "same instance id twice": Story(COOPERATIVE, (*JOIN, ("start", "twin", "c")), static=True),
    "the last one leaves": Story(EAGER, (("start", "a"), ("stop", "a"))),
}


@dataclass(slots=True)
class Record:
    """What came of a story, real or simulated, in the same words. Times of callbacks are for idle times only."""

    moves: list[GroupMove] = field(default_factory=list)
    events: list[MemberEvent] = field(default_factory=list)

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


def simulated(story: Story, seed: int, jitter_ms: int = JITTER_MS) -> Record:
    """The story as a scenario, with time to settle after each step."""
    names = {step[1]: (step[2] if len(step) > 2 else step[1]) for step in story.steps if len(step) > 1}
    specs = {
        name: ProcessSpec(
            ConsumerConfig((story.strategy,), instance if story.static else None, SESSION_MS, HEARTBEAT_MS),
            ("t",),
            poll_interval_ms=50,
        )
        for name, instance in names.items()
    }
    kinds = {"start": Start, "stop": Stop, "kill": Crash}
    events: list[tuple[int, Happening]] = []
    at_ms = 0
    for number, step in enumerate(story.steps):
        if step[0] != "wait":
            events.append((at_ms, kinds[step[0]](step[1])))
        followed_by_wait = story.steps[number + 1 : number + 2] == (("wait",),)
        at_ms += AWAY_MS if step[0] == "wait" else 0 if followed_by_wait else SETTLE_MS
    run = simulate(
        Scenario(
            "", {"t": TopicSpec(PARTITIONS)}, specs, tuple(events), initial_rebalance_delay_ms=0, network_ms=1,
            network_jitter_ms=jitter_ms, seed=seed,
        )
    )  # fmt: skip
    words = {What.STARTED: "started", What.STOPPED: "ended", What.CRASHED: "ended", What.FAILED: "failed",
             What.ASSIGNED: "assigned", What.REVOKED: "revoked", What.LOST: "lost"}  # fmt: skip
    return Record(
        [(entry.state.value, entry.generation_id) for entry in run.trace if entry.state is not None],
        [
            MemberEvent(entry.at_ms, "", entry.who, words[entry.what], 0, tuple(sorted(n for _, n in entry.partitions)))
            for entry in run.trace
            if entry.what in words
        ],
    )


def simulated_like(real: Record, story: Story) -> Record:
    """The simulated group that went the way of the real one; if none did, the one whose messages are never late.

    On a busy machine a member may send its SyncGroup after another one has joined again. It then joins with what it
    owned before, and the group needs one more round. The simulation does the same where messages are late.
    """
    prompt = simulated(story, 0)
    late = (simulated(story, seed, LATE_MS) for seed in LATE_SEEDS)
    same = (one for one in chain([prompt], late) if (one.moves, one.callbacks()) == (real.moves, real.callbacks()))
    return next(same, prompt)


class RealGroup:
    """A story told to Java members."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, story: Story, group: str) -> None:
        self._cluster, self._topic, self._story, self._group = cluster, topic, story, group
        self._own_events: list[MemberEvent] = []
        self._jvms: dict[str, JavaMembers] = {}

    def live(self, shared: JavaMembers, shared_events: list[MemberEvent]) -> Record:
        """All steps; members that will be killed get a JVM of their own."""
        try:
            return self._live(shared, shared_events)
        finally:
            for jvm in self._jvms.values():
                jvm.close()

    def _live(self, shared: JavaMembers, shared_events: list[MemberEvent]) -> Record:
        doomed = {step[1] for step in self._story.steps if step[0] == "kill"}
        self._jvms = {name: JavaMembers(self._cluster.bootstrap_servers, self._own_events) for name in doomed}
        running: set[str] = set()
        for number, step in enumerate(self._story.steps):
            if step[0] == "wait":
                time.sleep(AWAY_MS / 1000)
                continue
            kind, name = step[0], step[1]
            jvm = self._jvms.get(name, shared)
            if kind == "start":
                self._note(name, "started")
                instance = step[-1] if self._story.static else None
                jvm.start(self._group, name, self._topic, self._story.strategy, instance)
                running.add(name)
            else:
                self._note(name, "ended")
                running.discard(name)
                jvm.kill() if kind == "kill" else jvm.stop(self._group, name)
            if self._story.steps[number + 1 : number + 2] != (("wait",),):
                self._settle(shared_events, running)
        return Record(group_moves(self._cluster, self._group), self._events(shared_events))

    def _events(self, shared_events: Sequence[MemberEvent]) -> list[MemberEvent]:
        """What members told, and what was done to them, in order of time."""
        mine = [
            one
            for one in list(shared_events) + list(self._own_events)
            if one.group == self._group and one.what != "closed"
        ]
        return sorted(mine, key=lambda one: one.at_ms)

    def _settle(self, shared_events: list[MemberEvent], running: set[str]) -> None:
        """All members are in, every partition has its reader, and nothing happened for more than two heartbeats."""

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
            return quiet and not silent and (not running or sorted(read) == list(range(PARTITIONS)))

        until(f"{self._group} with {sorted(running)}", settled, pause_s=0.05)

    def _note(self, name: str, what: str) -> None:
        self._own_events.append(MemberEvent(time.time_ns() // 1_000_000, self._group, name, what, 0, ()))


@pytest.fixture(scope="module")
def real(kafka_cluster: EmbeddedCluster) -> Iterator[dict[str, Record]]:
    """All stories at once, each in a group of its own."""
    run = uuid.uuid4().hex[:8]
    topic = f"groups-{run}"
    admin = KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap_servers)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    admin.close()
    shared_events: list[MemberEvent] = []
    with coordinators_that_log(kafka_cluster), ThreadPoolExecutor(len(STORIES)) as threads:
        shared = JavaMembers(kafka_cluster.bootstrap_servers, shared_events)
        try:
            lives = {
                name: threads.submit(
                    RealGroup(kafka_cluster, topic, story, f"story-{number}-{run}").live, shared, shared_events
                )
                for number, (name, story) in enumerate(STORIES.items())
            }
            yield {name: life.result() for name, life in lives.items()}
        finally:
            shared.close()


@pytest.mark.parametrize("name", STORIES)
def test_states_and_generations_are_the_same(real: dict[str, Record], name: str) -> None:
    assert simulated_like(real[name], STORIES[name]).moves == real[name].moves


@pytest.mark.parametrize("name", STORIES)
def test_every_member_is_told_the_same_in_the_same_order(real: dict[str, Record], name: str) -> None:
    assert simulated_like(real[name], STORIES[name]).callbacks() == real[name].callbacks()


def test_a_member_that_is_late_costs_the_simulated_group_a_round_too() -> None:
    """Seen of real members on a busy machine: `c` gets its two partitions in two rounds."""
    story = STORIES["cooperative leave"]
    late = next(
        one for one in (simulated(story, seed, LATE_MS) for seed in LATE_SEEDS) if len(one.callbacks()["c"]) > 1
    )
    assert late.callbacks()["c"] == [("assigned", (2,)), ("assigned", (5,))]
    assert len(late.moves) == len(simulated(story, 0).moves) + 3
    assert simulated_like(late, story).moves == late.moves


def test_idle_times_have_the_same_order(real: dict[str, Record]) -> None:
    """Wherever the simulation is sure: where the ranges over all seeds are apart."""
    ranges = {name: [simulated(story, seed).idle_partition_ms() for seed in SEEDS] for name, story in STORIES.items()}
    sure = [(less, more) for less in STORIES for more in STORIES if max(ranges[less]) * 1.5 < min(ranges[more])]
    measured = {name: real[name].idle_partition_ms() for name in STORIES}
    assert len(sure) >= 10
    assert [(less, more) for less, more in sure if measured[less] >= measured[more]] == [], measured
