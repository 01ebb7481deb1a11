"""Stories of groups of the consumer protocol (KIP-848), on brokers with Java consumers and simulated: do they go alike?

Compared are the epochs of the group, every assignment that the coordinator gives every member (epoch, state, number of
partitions), what every member has to revoke and read, and the end as Kafka's own tool describes it.
"""

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from assignor_core.group.consumer_protocol.messages import ConsumerGroupConfig, ConsumerGroupState
from assignor_core.group.member import CONSUMER_PROTOCOL, ConsumerConfig
from assignor_core.group.scenario import ProcessSpec, Scenario, TopicSpec
from assignor_core.group.simulation import Run, simulate
from assignor_core.group.trace import What
from streaming.demo.brokers import EmbeddedCluster
from tests.kafka.group_stories import JOIN, OTHER_PARTITIONS, PARTITIONS, Callback, RealGroup, Record, Story
from tests.kafka.newer_groups import GroupTools, broker_settings
from tests.kafka.real_groups import (
    HEARTBEAT_MS,
    SESSION_MS,
    GroupMove,
    JavaMembers,
    MemberEvent,
    coordinators_that_log,
)
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.java]

COORDINATOR = "org.apache.kafka.coordinator.group.GroupMetadataManager"
"""Its logger exists once the brokers have a group."""
SEEDS = range(400)
JITTER_MS, LATE_MS = 5, 400
"""Between processes of one machine, and of a machine that has more to do than it can."""
STORIES = {
    "join": Story(CONSUMER_PROTOCOL, JOIN),
    "leave": Story(CONSUMER_PROTOCOL, (*JOIN, ("stop", "c"))),
    "crash": Story(CONSUMER_PROTOCOL, (*JOIN, ("kill", "c"))),
    "static restart in time": Story(CONSUMER_PROTOCOL, (*JOIN, ("stop", "c"), ("wait",), ("start", "c")), static=True),
    "static restart too late": Story(CONSUMER_PROTOCOL, (*JOIN, ("stop", "c"), ("start", "c")), static=True),
    "same instance id twice": Story(CONSUMER_PROTOCOL, (*JOIN, ("start", "twin", "c")), static=True),
    "slow revoke": Story(CONSUMER_PROTOCOL, JOIN, revoke_ms=2_000),
    "another subscription": Story(CONSUMER_PROTOCOL, (*JOIN, ("subscribe", "c", "u"))),
    "the last one leaves": Story(CONSUMER_PROTOCOL, (("start", "a"), ("stop", "a"))),
}

Reconciled = tuple[int, str, int]
"""Member epoch, state of the assignment, number of partitions."""
Numbers = tuple[tuple[str, int], ...]
End = tuple[str, int, int]
"""State, group epoch, epoch of the target assignment."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What came of a story, without what depends on the order of hash maps: which of two alike members gets which."""

    moves: list[GroupMove]
    reconciled: list[tuple[Reconciled, ...]]
    callbacks: Mapping[str, Numbers]
    end: End


def simulated(story: Story, seed: int, jitter_ms: int = JITTER_MS) -> Trace:
    """The story as a scenario."""
    specs = {
        name: ProcessSpec(
            ConsumerConfig((), instance if story.static else None, group_protocol=story.strategy),
            ("t",),
            poll_interval_ms=50,
            revoke_ms=story.revoke_ms,
        )
        for name, instance in story.instances.items()
    }
    topics = {"t": TopicSpec(PARTITIONS), "u": TopicSpec(OTHER_PARTITIONS)}
    config = ConsumerGroupConfig(SESSION_MS, HEARTBEAT_MS)
    run = simulate(
        Scenario(
            "", topics, specs, story.timed(), network_ms=1, network_jitter_ms=jitter_ms, seed=seed,
            consumer_group=config,
        )
    )  # fmt: skip
    last = [entry for entry in run.trace if entry.state is not None][-1]
    assert last.state is not None
    moves = list(_moves_of_run(run))
    assigned = run.generation_id
    if last.state is ConsumerGroupState.ASSIGNING:
        assigned = max(epoch for what, epoch in moves if what == "target")
    end = (last.state.value, run.generation_id, assigned)
    return Trace(moves, sorted(_reconciled_of_run(run)), _sizes(Record.of_run(run, []).callbacks()), end)


def _moves_of_run(run: Run) -> Iterator[GroupMove]:
    before = 0
    for entry in run.trace:
        if entry.what is What.GROUP and entry.generation_id > before:
            before = entry.generation_id
            yield "epoch", before
        elif entry.what is What.GROUP and entry.detail.startswith("the assignor"):
            yield "target", entry.generation_id


def _reconciled_of_run(run: Run) -> Iterator[tuple[Reconciled, ...]]:
    """Of each process."""
    number: dict[str, int] = defaultdict(int)
    steps: dict[tuple[str, int], list[Reconciled]] = defaultdict(list)
    for entry in run.trace:
        if entry.what is What.STARTED:
            number[entry.who] += 1
        elif entry.what is What.EPOCH:
            state = entry.detail.rsplit(", ", 1)[1]
            steps[entry.who, number[entry.who]].append((entry.generation_id, state, len(entry.partitions)))
    yield from (tuple(listed) for listed in steps.values())


def _sizes(callbacks: Mapping[str, list[Callback]]) -> Mapping[str, Numbers]:
    return {name: tuple((what, len(partitions)) for what, partitions in listed) for name, listed in callbacks.items()}


def simulated_like(real: Trace, story: Story) -> Trace:
    """The simulated group that went the way of the real one: members beat at other times in every run."""
    first = simulated(story, 0)
    others = (simulated(story, seed, jitter_ms) for jitter_ms in (JITTER_MS, LATE_MS) for seed in SEEDS)
    return next((one for one in chain([first], others) if one == real), first)


def real_moves(log: Iterable[str]) -> list[GroupMove]:
    """Epochs and target assignments, in order, from what brokers logged."""
    words = {"Bumped group epoch to": "epoch", "Computed a new target assignment for epoch": "target"}
    found = (re.search(f"({'|'.join(words)}) ([0-9]+)", line) for line in log)
    return [(words[match[1]], int(match[2])) for match in found if match]


def real_reconciled(log: Iterable[str]) -> list[tuple[Reconciled, ...]]:
    """Of each member, from what brokers logged."""
    pattern = r"Member (\S+) new assignment state: epoch=(\d+), .*state=(\w+), assignedPartitions=(.*) and revoked"
    steps: dict[str, list[Reconciled]] = defaultdict(list)
    for line in log:
        match = re.search(pattern, line)
        if match:
            steps[match[1]].append((int(match[2]), match[3], len(re.findall(r"-\d+@", match[4]))))
    return sorted(tuple(listed) for listed in steps.values())


def described(tools: GroupTools, group: str) -> End:
    """As `kafka-consumer-groups --describe --state --verbose` shows the group."""
    (row,) = tools.describe("consumer", group, "--state", "--verbose")
    return row["STATE"], int(row["GROUP-EPOCH"]), int(row["TARGET-ASSIGNMENT-EPOCH"])


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trace]]:
    """All stories at once, each in a group of its own."""
    run = uuid.uuid4().hex[:8]
    topic = f"groups-{run}"
    events: list[MemberEvent] = []
    folder = tmp_path_factory.mktemp("consumer-protocol")
    with EmbeddedCluster(folder, 1, broker_settings=broker_settings()) as cluster, GroupTools(cluster) as tools:
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1), NewTopic(f"{topic}-u", OTHER_PARTITIONS, 1)])
        admin.close()
        shared = JavaMembers(cluster.bootstrap_servers, events)
        try:
            shared.start(f"first-{run}", "first", topic, CONSUMER_PROTOCOL, None)
            until("the first group", lambda: any(event.what == "assigned" for event in events))
            with coordinators_that_log(cluster, COORDINATOR, "DEBUG"), ThreadPoolExecutor(len(STORIES)) as threads:
                lives = {
                    name: threads.submit(_live, cluster, topic, story, f"story-{number}-{run}", shared, events)
                    for number, (name, story) in enumerate(STORIES.items())
                }
                records = {name: life.result() for name, life in lives.items()}
                yield {
                    name: Trace(
                        record.moves,
                        real_reconciled(record.log),
                        _sizes(record.callbacks()),
                        described(tools, f"story-{number}-{run}"),
                    )
                    for number, (name, record) in enumerate(records.items())
                }
        finally:
            shared.close()


def _live(
    cluster: EmbeddedCluster, topic: str, story: Story, group: str, shared: JavaMembers, events: list[MemberEvent]
) -> Record:
    return RealGroup(cluster, topic, story, group, real_moves).live(shared, events)


@pytest.mark.parametrize("name", STORIES)
def test_a_simulated_group_goes_the_way_of_the_real_one(real: dict[str, Trace], name: str) -> None:
    assert simulated_like(real[name], STORIES[name]) == real[name]
