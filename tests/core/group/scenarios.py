"""Small scenarios for tests, and random ones for properties."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from assignor_core.assignors import SERVER_ASSIGNORS
from assignor_core.group.consumer_protocol.messages import ConsumerGroupConfig
from assignor_core.group.member import CONSUMER_PROTOCOL, ConsumerConfig
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
    TopicSpec,
)

SESSION_MS = 10_000
STRATEGIES = (
    ("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky",), ("cooperative-sticky", "range"),
)  # fmt: skip


def spec_of(
    name: str, strategies: Sequence[str], *, static: bool = False, topics: tuple[str, ...] = ("t",), poll_ms: int = 0
) -> ProcessSpec:
    """A process with short timeouts."""
    config = ConsumerConfig(tuple(strategies), name if static else None, SESSION_MS, 3_000, 30_000)
    return ProcessSpec(config, topics, poll_interval_ms=poll_ms, metadata_max_age_ms=20_000)


def group_of(
    names: Sequence[str],
    strategy: str,
    events: Sequence[tuple[int, Happening]],
    *,
    static: bool = False,
    partitions: int = 6,
) -> Scenario:
    """All members start at 0 and read one topic; then the events."""
    specs = {name: spec_of(name, (strategy,), static=static) for name in names}
    starts = tuple((0, Start(name)) for name in names)
    return Scenario(strategy, {"t": TopicSpec(partitions, 10.0)}, specs, (*starts, *events))


def by_consumer_protocol(scenario: Scenario, config: ConsumerGroupConfig, assignor: str | None = None) -> Scenario:
    """The same with `group.protocol=consumer`."""
    specs = {
        name: replace(
            spec,
            config=replace(spec.config, strategies=(), group_protocol=CONSUMER_PROTOCOL, server_assignor=assignor),
        )
        for name, spec in scenario.processes.items()
    }
    return replace(scenario, processes=specs, consumer_group=config)


def random_consumer_scenario(seed: int) -> Scenario:
    """Anything that can happen to a group of the consumer protocol, drawn from a seed."""
    draws = random.Random(seed)
    config = ConsumerGroupConfig(draws.choice([4_000, 10_000]), draws.choice([1_000, 3_000]), draws.choice([0, 1_000]))
    return by_consumer_protocol(random_scenario(seed), config, draws.choice([None, *SERVER_ASSIGNORS]))


def random_scenario(seed: int, *, static_may_miss_growth: bool = True) -> Scenario:
    """Anything that can happen to a group, drawn from a seed."""
    draws = random.Random(seed)
    names = [f"c-{number}" for number in range(draws.randint(1, 5))]
    offers = draws.choice(STRATEGIES)
    statics = draws.choice(["none", "all", "some"])
    specs = {
        name: ProcessSpec(
            ConsumerConfig(
                offers,
                name if statics == "all" or (statics == "some" and draws.random() < 0.5) else None,
                draws.choice([4_000, 10_000]),
                draws.choice([1_000, 3_000]),
                draws.choice([5_000, 30_000]),
            ),
            draws.choice([("t",), ("t", "u"), ("*",), ("t", "v*")]),
            poll_interval_ms=draws.choice([0, 0, 500, 4_000]),
            revoke_ms=draws.choice([0, 0, 300]),
            metadata_max_age_ms=draws.choice([1_000, 20_000]),
        )
        for name in names
    }
    may_grow = statics == "none" or static_may_miss_growth
    events: list[tuple[int, Happening]] = [(draws.randint(0, 2_000), Start(name)) for name in names]
    events += [_random_event(draws, names, may_grow=may_grow) for _ in range(draws.randint(0, 25))]
    topics = {"t": TopicSpec(draws.randint(1, 9), 5.0), "u": TopicSpec(draws.randint(0, 4)), "v1": TopicSpec(0)}
    return Scenario(
        f"random {seed}",
        topics,
        specs,
        tuple(_growing(sorted(events, key=lambda event: event[0]), topics)),
        initial_rebalance_delay_ms=draws.choice([0, 3_000]),
        network_ms=draws.choice([1, 20]),
        network_jitter_ms=draws.choice([0, 5, 200]),
        seed=seed,
    )


def _growing(
    events: Iterable[tuple[int, Happening]], topics: Mapping[str, TopicSpec]
) -> Iterator[tuple[int, Happening]]:
    """Events in order of time, without those that would not give their topic more partitions."""
    partitions = {topic: spec.partitions for topic, spec in topics.items()}
    for at_ms, event in events:
        if isinstance(event, GrowTopic):
            if event.partitions <= partitions[event.topic]:
                continue
            partitions[event.topic] = event.partitions
        yield at_ms, event


def _random_event(draws: random.Random, names: Sequence[str], *, may_grow: bool) -> tuple[int, Happening]:
    at_ms, name = draws.randint(0, 120_000), draws.choice(names)
    events: list[Happening] = [
        Start(name), Start(name), Start(name), Stop(name), Crash(name),
        Pause(name, draws.choice([500, 3_000, 15_000])), Stall(name, draws.choice([500, 4_000, 40_000])),
        Subscribe(name, draws.choice([("t",), ("t", "u"), ("u",), ("*",)])),
    ]  # fmt: skip
    if may_grow:
        events += [GrowTopic(draws.choice(["t", "u", "v1"]), draws.randint(1, 12))]
    return at_ms, draws.choice(events)
