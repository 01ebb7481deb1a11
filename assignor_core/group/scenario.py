"""What is simulated: a group, its topics, and what happens to them when. Owns the shapes and their validation.

Knows no file format and no protocol. All times are logical ms from the start.
"""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assignor_core.assignors import SERVER_ASSIGNORS, STRATEGIES
from assignor_core.errors import InputError
from assignor_core.group.consumer_protocol.messages import ConsumerGroupConfig
from assignor_core.group.member import CLASSIC_PROTOCOL, CONSUMER_PROTOCOL, ConsumerConfig

MEMBERS_MAX = 10_000
PARTITIONS_MAX = 1_000_000
EVENTS_MAX = 100_000
TIME_MAX_MS = 30 * 24 * 3_600_000


class InvalidScenario(InputError):
    """Raised for a scenario that can't be simulated."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic; `records_per_sec` are of each partition. With 0 partitions it does not exist yet."""

    partitions: int
    records_per_sec: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A consumer process, as often as it is started.

    `topics` may hold patterns (`orders-*`). `poll_interval_ms`: longest time between two polls, so how long it may
    take to notice. `revoke_ms`: how long it takes to give partitions up (flush, commit). `heartbeat_late_max_ms`: the
    Java client looks every retry.backoff.ms whether a heartbeat is due, so members that were in step drift apart.
    """

    config: ConsumerConfig
    topics: tuple[str, ...]
    poll_interval_ms: int = 0
    revoke_ms: int = 0
    metadata_max_age_ms: int = 300_000
    heartbeat_late_max_ms: int = 100


@dataclass(frozen=True, slots=True)
class Start:
    """A process starts, with what the scenario gives it or with something new; one that runs is left alone."""

    name: str
    spec: ProcessSpec | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """A process closes its consumer and ends: a dynamic member leaves the group, a static one sends nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Crash:
    """A process ends without leaving the group."""

    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """A process pauses as a whole (garbage collection, a frozen machine) and sends no heartbeats either."""

    name: str
    pause_ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A process does not poll for a while, for its records take long; heartbeats go on."""

    name: str
    stall_ms: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A process subscribes to other topics."""

    name: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrowTopic:
    """A topic gets partitions, or comes into being."""

    topic: str
    partitions: int


Happening = Start | Stop | Crash | Pause | Stall | Subscribe | GrowTopic


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. Raises InvalidScenario. `events` are (ms, happening) in order of time.

    A message takes `network_ms` and up to `network_jitter_ms` more; draws come from `seed`.
    """

    title: str
    topics: Mapping[str, TopicSpec]
    processes: Mapping[str, ProcessSpec]
    events: tuple[tuple[int, Happening], ...]
    initial_rebalance_delay_ms: int = 3_000
    network_ms: int = 1
    network_jitter_ms: int = 0
    seed: int = 0
    end_ms: int = field(default=0)
    """Least length of the run, ms; the run continues until nothing more happens."""
    consumer_group: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    """What the brokers set for groups of the consumer protocol."""

    def __post_init__(self) -> None:
        self._validate_sizes()
        for name, spec in self.processes.items():
            _validate_process(name, spec, self.group_protocol)
        before_ms, partitions = 0, {topic: spec.partitions for topic, spec in self.topics.items()}
        for at_ms, event in self.events:
            _within("at_ms of an event", at_ms, before_ms, TIME_MAX_MS)
            before_ms = at_ms
            self._validate_event(event, partitions)

    @property
    def group_protocol(self) -> str:
        """Group protocol of all members."""
        return next(iter(self.processes.values())).config.group_protocol

    def patterns(self) -> set[str]:
        """Topics and patterns that any process reads at any time; other topics are nobody's loss."""
        specs = [*self.processes.values(), *(event.spec for _, event in self.events if isinstance(event, Start))]
        subscribed = {topic for _, event in self.events if isinstance(event, Subscribe) for topic in event.topics}
        return subscribed.union(*(spec.topics for spec in specs if spec is not None))

    def _validate_sizes(self) -> None:
        _within("members", len(self.processes), 1, MEMBERS_MAX)
        _within("events", len(self.events), 1, EVENTS_MAX)
        _within("network_ms", self.network_ms, 1, 60_000)
        _within("network_jitter_ms", self.network_jitter_ms, 0, 60_000)
        _within("initial_rebalance_delay_ms", self.initial_rebalance_delay_ms, 0, 600_000)
        _within("end_ms", self.end_ms, 0, TIME_MAX_MS)
        consumer = self.consumer_group
        _within("consumer_session_timeout_ms", consumer.session_timeout_ms, 1, 1_800_000)
        _within("consumer_heartbeat_interval_ms", consumer.heartbeat_interval_ms, 1, consumer.session_timeout_ms)
        _within("consumer_assignment_interval_ms", consumer.assignment_interval_ms, 0, 600_000)
        for topic, spec in self.topics.items():
            _within(f"partitions of topic {topic!r}", spec.partitions, 0, PARTITIONS_MAX)
            _within(f"records_per_sec of topic {topic!r}", spec.records_per_sec, 0, 1e9)
        grown = {event.topic: event.partitions for _, event in self.events if isinstance(event, GrowTopic)}
        total = sum(max(spec.partitions, grown.get(topic, 0)) for topic, spec in self.topics.items())
        _within("partitions of all topics", total, 1, PARTITIONS_MAX)

    def _validate_event(self, event: Happening, partitions: dict[str, int]) -> None:
        """Brings `partitions`, the number of each topic at the time of the event, up to date."""
        if isinstance(event, GrowTopic):
            if event.topic not in self.topics:
                raise InvalidScenario(f"topic {event.topic!r} of an event is none of {', '.join(self.topics)}")
            _within(f"partitions of topic {event.topic!r}", event.partitions, 1, PARTITIONS_MAX)
            before = partitions[event.topic]
            if event.partitions <= before:
                raise InvalidScenario(
                    f"partitions of topic {event.topic!r} in an event are {event.partitions}, must be more than the "
                    f"{before} that it has by then: Kafka refuses anything else"
                )
            partitions[event.topic] = event.partitions
            return
        if event.name not in self.processes:
            raise InvalidScenario(f"member {event.name!r} of an event is none of {_some(list(self.processes))}")
        if isinstance(event, Pause):
            _within("pause_ms", event.pause_ms, 1, TIME_MAX_MS)
        elif isinstance(event, Stall):
            _within("stall_ms", event.stall_ms, 1, TIME_MAX_MS)
        elif isinstance(event, Start) and event.spec is not None:
            _validate_process(event.name, event.spec, self.group_protocol)


def is_pattern(topic: str) -> bool:
    """Whether a subscription is a pattern and not a name: patterns have a `*`."""
    return "*" in topic


def matches(patterns: Iterable[str], topic: str) -> bool:
    """Whether one of the names is the topic's or one of the patterns matches it.

    >>> matches(("orders-*",), "orders-eu"), matches(("orders",), "orders-eu")
    (True, False)
    """
    return any(fnmatch.fnmatchcase(topic, one) if is_pattern(one) else one == topic for one in patterns)


def _validate_process(name: str, spec: ProcessSpec, protocol: str) -> None:
    """`protocol` is that of all members."""
    config = spec.config
    if config.group_protocol not in (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL):
        known = f"{CLASSIC_PROTOCOL} or {CONSUMER_PROTOCOL}"
        raise InvalidScenario(f"group_protocol of {name!r} is {config.group_protocol!r}, must be {known}")
    if config.server_assignor is not None and config.server_assignor not in SERVER_ASSIGNORS:
        known = ", ".join(SERVER_ASSIGNORS)
        raise InvalidScenario(f"server_assignor of {name!r} is {config.server_assignor!r}, must be one of {known}")
    if not config.strategies and config.group_protocol == CLASSIC_PROTOCOL:
        raise InvalidScenario(f"strategies of {name!r} are none, must be at least one of {', '.join(STRATEGIES)}")
    for strategy in config.strategies:
        if strategy not in STRATEGIES:
            raise InvalidScenario(f"strategy of {name!r} is {strategy!r}, must be one of {', '.join(STRATEGIES)}")
    _within(f"session_timeout_ms of {name!r}", config.session_timeout_ms, 1, 1_800_000)
    _within(f"heartbeat_interval_ms of {name!r}", config.heartbeat_interval_ms, 1, config.session_timeout_ms)
    _within(f"max_poll_interval_ms of {name!r}", config.max_poll_interval_ms, 1, 86_400_000)
    _within(f"poll_interval_ms of {name!r}", spec.poll_interval_ms, 0, config.max_poll_interval_ms)
    _within(f"revoke_ms of {name!r}", spec.revoke_ms, 0, config.max_poll_interval_ms)
    _within(f"heartbeat_late_max_ms of {name!r}", spec.heartbeat_late_max_ms, 0, config.heartbeat_interval_ms)
    _within(f"metadata_max_age_ms of {name!r}", spec.metadata_max_age_ms, 1, 86_400_000)
    if config.group_protocol != protocol:
        raise InvalidScenario(
            f"group_protocol of {name!r} is {config.group_protocol!r}, must be {protocol!r} as for all members: an "
            "upgrade from one protocol to the other is not simulated"
        )


def _within(what: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise InvalidScenario(f"{what} is {value}, must be between {lowest} and {highest}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
