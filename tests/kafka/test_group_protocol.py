"""The same stories told to real groups of Java consumers and to the simulation: do they go the same way?"""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from assignor_core.group.member import ConsumerConfig
from assignor_core.group.scenario import ProcessSpec, Scenario, TopicSpec
from assignor_core.group.simulation import simulate
from streaming.demo.brokers import EmbeddedCluster
from tests.kafka.group_stories import JOIN, PARTITIONS, RealGroup, Record, Story
from tests.kafka.real_groups import (
    HEARTBEAT_MS,
    SESSION_MS,
    JavaMembers,
    MemberEvent,
    coordinators_that_log,
    group_moves,
    lead_as_preferred,
)

pytestmark = [pytest.mark.kafka, pytest.mark.java]

SEEDS = range(12)
JITTER_MS = 5
"""Between processes of one machine."""
LATE_MS, LATE_SEEDS = 400, range(400)
"""Between processes of a machine that has more to do than it can."""

EAGER, COOPERATIVE = "range", "cooperative-sticky"
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


SETTLED = [
    "[GroupCoordinator id=1] Stabilized group story-7 generation 4 with 2 members.",
    "[GroupCoordinator id=1] Assignment received from leader a for group story-7 for generation 4.",
]
BEGUN = "[GroupCoordinator id=1] Preparing to rebalance group story-7 in state PreparingRebalance with old generation 4"
JOINED = "[GroupCoordinator id=1] Stabilized group story-7 generation 5 with 3 members."
MOVED = [
    "[GroupCoordinator id=1] [GroupId=story-7] Unloading group metadata for generation 4.",
    "[GroupCoordinator id=2] Loaded classic group story-7 with 2 members.",
]
AGAIN = [
    "[GroupCoordinator id=2] Preparing to rebalance group story-7 in state PreparingRebalance with old generation 4",
    "[GroupCoordinator id=2] Stabilized group story-7 generation 5 with 3 members.",
    "[GroupCoordinator id=2] Assignment received from leader a for group story-7 for generation 5.",
]
MOVES = [
    ("CompletingRebalance", 4), ("Stable", 4), ("PreparingRebalance", 4), ("CompletingRebalance", 5), ("Stable", 5),
]  # fmt: skip
"""What brokers log of a group whose coordinator moves: lines of a run in which one moved from broker 1 to 2."""


def simulated(story: Story, seed: int, jitter_ms: int = JITTER_MS) -> Record:
    """The story as a scenario, with time to settle after each step."""
    specs = {
        name: ProcessSpec(
            ConsumerConfig((story.strategy,), instance if story.static else None, SESSION_MS, HEARTBEAT_MS),
            ("t",),
            poll_interval_ms=50,
        )
        for name, instance in story.instances.items()
    }
    run = simulate(
        Scenario(
            "", {"t": TopicSpec(PARTITIONS)}, specs, story.timed(), initial_rebalance_delay_ms=0, network_ms=1,
            network_jitter_ms=jitter_ms, seed=seed,
        )
    )  # fmt: skip
    moves = [(entry.state.value, entry.generation_id) for entry in run.trace if entry.state is not None]
    return Record.of_run(run, moves)


def simulated_like(real: Record, story: Story) -> Record:
    """The simulated group that went the way of the real one; if none did, the one whose messages are never late.

    On a busy machine a member may send its SyncGroup after another one has joined again. It then joins with what it
    owned before, and the group needs one more round. The simulation does the same where messages are late.
    """
    prompt = simulated(story, 0)
    late = (simulated(story, seed, LATE_MS) for seed in LATE_SEEDS)
    same = (one for one in chain([prompt], late) if (one.moves, one.callbacks()) == (real.moves, real.callbacks()))
    return next(same, prompt)


@pytest.fixture(scope="module")
def real(kafka_cluster: EmbeddedCluster) -> Iterator[dict[str, Record]]:
    """All stories at once, each in a group of its own."""
    run = uuid.uuid4().hex[:8]
    topic = f"groups-{run}"
    admin = KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap_servers)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    lead_as_preferred(admin)
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
def test_a_simulated_group_goes_the_way_of_the_real_one(real: dict[str, Record], name: str) -> None:
    """Through the same states and generations; every member is told the same in the same order."""
    simulated_one = simulated_like(real[name], STORIES[name])
    assert simulated_one.moves == real[name].moves, "\n".join(real[name].log)
    assert simulated_one.callbacks() == real[name].callbacks()


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


@pytest.mark.parametrize(
    "before", [(*SETTLED, BEGUN), (*SETTLED, BEGUN, JOINED), SETTLED], ids=["rebalance begun", "joined", "settled"]
)
def test_a_rebalance_that_the_new_coordinator_does_not_know_is_begun_again(before: Sequence[str]) -> None:
    """Members that have joined join again where no assignment came; a settled group is what it was."""
    assert group_moves([*before, *MOVED, *AGAIN]) == MOVES
