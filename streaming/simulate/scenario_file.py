"""The shape of a scenario file: what can be set, the defaults, what is allowed. Reads nothing, expands nothing.

Kafka's settings have Kafka's names, in ms; events are timed in seconds. Unknown keys are refused.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from assignor_core.assignors import STRATEGIES
from streaming.settings import Section

Milliseconds = Annotated[int, Field(ge=0, le=86_400_000)]
Seconds = Annotated[float, Field(ge=0, le=30 * 86_400)]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class TopicSection(Section):
    """A topic; with 0 partitions it comes later, by grow_topic."""

    partitions: int = Field(ge=0, le=1_000_000, description="Partitions at the start; 0: it does not exist yet")
    records_per_sec: float = Field(0.0, ge=0, le=1e9, description="Records written to each partition")


class GroupSection(Section):
    """Settings of the brokers."""

    initial_rebalance_delay_ms: Milliseconds = Field(
        3_000, description="group.initial.rebalance.delay.ms of the brokers"
    )
    consumer_session_timeout_ms: Milliseconds = Field(
        45_000, description="group.consumer.session.timeout.ms: sessions of groups of the consumer protocol"
    )
    consumer_heartbeat_interval_ms: Milliseconds = Field(
        5_000, description="group.consumer.heartbeat.interval.ms: heartbeats of groups of the consumer protocol"
    )
    consumer_assignment_interval_ms: Milliseconds = Field(
        1_000, description="group.consumer.assignment.interval.ms (KIP-1263); 0 for brokers before 4.3"
    )


class NetworkSection(Section):
    """Delays of messages."""

    delay_ms: int = Field(1, ge=1, le=60_000, description="Of every message")
    jitter_ms: int = Field(0, ge=0, le=60_000, description="Up to so much more, drawn from the seed")


class MembersSection(Section):
    """The members; those of an event or a variant differ in what they set."""

    names: list[Name] = Field(default=[], max_length=10_000, description="Names, if not numbered")
    count: int = Field(0, ge=0, le=10_000, description="So many members, numbered: c-0, c-1, ...")
    prefix: Name = Field("c", description="What numbered names begin with")
    topics: list[Name] = Field(min_length=1, description="Topics or patterns with *")
    protocol: Literal["classic", "consumer"] = Field("classic", description="group.protocol; consumer is KIP-848")
    remote_assignor: Literal["uniform", "range"] | None = Field(
        None, description="group.remote.assignor of the consumer protocol; without it the brokers take uniform"
    )
    strategies: list[Name] = Field(
        default=["range"], min_length=1, description="partition.assignment.strategy, most wanted first"
    )
    static: bool = Field(False, description="group.instance.id is the member's name")
    session_timeout_ms: Milliseconds = Field(45_000, description="session.timeout.ms")
    heartbeat_interval_ms: Milliseconds = Field(3_000, description="heartbeat.interval.ms")
    max_poll_interval_ms: Milliseconds = Field(300_000, description="max.poll.interval.ms, also the rebalance timeout")
    metadata_max_age_ms: Milliseconds = Field(300_000, description="metadata.max.age.ms")
    poll_interval_ms: Milliseconds = Field(
        0, description="Longest time between two polls: how long the work on a batch takes"
    )
    revoke_ms: Milliseconds = Field(0, description="How long a member takes to give partitions up (flush, commit)")
    start_s: Seconds = Field(0.0, description="When the first member starts")
    start_apart_s: Seconds = Field(0.0, description="Seconds between the starts")

    @field_validator("strategies")
    @classmethod
    def _known(cls, strategies: list[str]) -> list[str]:
        unknown = next((name for name in strategies if name not in STRATEGIES), None)
        if unknown is not None:
            raise ValueError(f"{unknown!r} is none of {', '.join(STRATEGIES)}")
        return strategies

    @model_validator(mode="after")
    def _someone(self) -> Self:
        if bool(self.names) == bool(self.count):
            raise ValueError("members need names or a count, and not both")
        if len(set(self.names)) < len(self.names):
            raise ValueError("members have the same name twice")
        return self


class MemberEvent(Section):
    """An event of one member."""

    member: Name


class StartEvent(MemberEvent):
    """A member starts; `group_instance_id` makes it a second process of another static member."""

    group_instance_id: Name | None = None


class RestartEvent(MemberEvent):
    """A member closes (or crashes), and is back after a while."""

    down_s: Seconds = 5.0
    crash: bool = False


class PauseEvent(MemberEvent):
    """A member does nothing, or does not poll, for `for_s` seconds."""

    for_s: Annotated[float, Field(gt=0, le=86_400)]


class FlapEvent(MemberEvent):
    """A member crashes and comes back, again and again."""

    times: Annotated[int, Field(ge=1, le=10_000)]
    up_s: Seconds = 20.0
    down_s: Seconds = 5.0
    crash: bool = True


class ScaleOutEvent(Section):
    """An event that adds members, numbered on."""

    members: Annotated[int, Field(ge=1, le=10_000)]
    apart_s: Seconds = 0.0


class RollingRestartEvent(Section):
    """All members one after another; `strategies` is what they come back with."""

    down_s: Seconds = 5.0
    apart_s: Seconds = 30.0
    strategies: list[Name] | None = Field(None, min_length=1)


class SubscribeEvent(MemberEvent):
    """A member subscribes to other topics."""

    topics: list[Name] = Field(min_length=1)


class GrowTopicEvent(Section):
    """A topic gets partitions, or comes into being."""

    topic: Name
    partitions: Annotated[int, Field(ge=1, le=1_000_000)]


class EventSection(Section):
    """At a time, one thing happens."""

    at_s: Seconds
    start: StartEvent | None = None
    stop: MemberEvent | None = None
    crash: MemberEvent | None = None
    restart: RestartEvent | None = None
    pause: PauseEvent | None = None
    stall: PauseEvent | None = None
    flap: FlapEvent | None = None
    subscribe: SubscribeEvent | None = None
    scale_out: ScaleOutEvent | None = None
    rolling_restart: RollingRestartEvent | None = None
    grow_topic: GrowTopicEvent | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        given = [name for name in type(self).model_fields if name != "at_s" and getattr(self, name) is not None]
        if len(given) != 1:
            kinds = ", ".join(name for name in type(self).model_fields if name != "at_s")
            raise ValueError(f"an event is one of {kinds}; found {', '.join(given) or 'none'}")
        return self


class ScenarioFile(Section):
    """One scenario, with one set of members."""

    title: str = Field(min_length=1, max_length=200)
    about: str = ""
    seed: int = Field(0, ge=0, le=2**63 - 1, description="What is drawn is drawn from it")
    show_from_s: Seconds = Field(0.0, description="Where the picture begins")
    end_s: Seconds = Field(0.0, description="The run lasts at least until then")
    topics: dict[Name, TopicSection] = Field(min_length=1)
    group: GroupSection = GroupSection()
    network: NetworkSection = NetworkSection()
    members: MembersSection
    events: list[EventSection] = Field(default=[], max_length=100_000)
