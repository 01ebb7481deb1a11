"""Scenario files, YAML or TOML: what can be set in them, and their reading into scenarios of the core, one a variant.

Kafka's settings have Kafka's names, in ms; events are timed in seconds. Unknown keys are refused. Reading merges
variants and spells events out (a rolling restart is many stops and starts). An error is one line with file, place,
value and what is allowed.
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from assignor_core.assignors import STRATEGIES
from assignor_core.errors import InputError
from assignor_core.group.consumer_protocol.messages import ConsumerGroupConfig
from assignor_core.group.member import ConsumerConfig
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
from streaming.config import _StrictLoader
from streaming.errors import UsageProblem
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


VARIANTS_MAX = 12
TimedEvents = Iterator[tuple[int, Happening]]


@dataclass(frozen=True, slots=True)
class Variant:
    """One run of a file: a name ("" if the file has no variants), its description, and the scenario."""

    name: str
    title: str
    about: str
    show_from_ms: int
    scenario: Scenario


def load_scenarios(file: Path) -> tuple[Variant, ...]:
    """All variants of a file, in its order. Raises UsageProblem."""
    return scenarios_from(_read(file), f"scenario {file}")


def scenarios_from(content: Mapping[str, Any], where: str) -> tuple[Variant, ...]:
    """All variants of a file's content; `where` begins the messages. Raises UsageProblem."""
    content = dict(content)
    variants = content.pop("variants", {"": {}})
    if not isinstance(variants, dict) or not 1 <= len(variants) <= VARIANTS_MAX:
        raise UsageProblem(f"{where}: variants: must be 1 to {VARIANTS_MAX} names with what differs in each")
    return tuple(_variant(where, str(name), content, changes) for name, changes in variants.items())


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text) if file.suffix == ".toml" else yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise UsageProblem(f"scenario {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"scenario {file}: is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageProblem(f"scenario {file}{where}: {getattr(error, 'problem', None) or error}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageProblem(f"scenario {file}: {error}") from None
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise UsageProblem(f"scenario {file}: holds {kind}, must hold title, topics, members, events")
    return content


def _variant(place: str, name: str, content: Mapping[str, Any], changes: object) -> Variant:
    where = place + (f", variant {name!r}" if name else "")
    if not isinstance(changes, dict):
        raise UsageProblem(f"{where}: must hold what differs from the rest of the file, found {changes!r}")
    try:
        variant_file = ScenarioFile.model_validate(_merged(content, changes))
    except ValidationError as error:
        raise UsageProblem(f"{where}: {_message(error)}") from None
    try:
        scenario = _scenario(variant_file, name)
    except InputError as error:
        raise UsageProblem(f"{where}: {error}") from None
    return Variant(name, variant_file.title, variant_file.about, round(variant_file.show_from_s * 1000), scenario)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sections are merged key by key; anything else is replaced."""
    both = dict(base)
    for key, value in changes.items():
        old = both.get(key)
        both[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def _message(error: ValidationError) -> str:
    details = error.errors(include_url=False)
    first = details[0]
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key{more}"
    reason = first["msg"].removeprefix("Value error, ")
    value = "" if isinstance(first["input"], dict | BaseModel) else f", found {first['input']!r}"
    return f"{key}: {reason[:1].lower()}{reason[1:]}{value}{more}"


def _scenario(file: ScenarioFile, variant: str) -> Scenario:
    members = file.members
    names = list(members.names) or [_numbered(members, number) for number in range(members.count)]
    specs = {name: _spec(members, name) for name in names}
    events: list[tuple[int, Happening]] = [
        (_ms(members.start_s + number * members.start_apart_s), Start(name)) for number, name in enumerate(names)
    ]
    # A rolling restart is of those whom earlier events have added, wherever they stand in the file.
    for event in sorted(file.events, key=lambda event: event.at_s):
        events += _spelled_out(event, members, names, specs)
    return Scenario(
        title=f"{file.title}: {variant}" if variant else file.title,
        topics={topic: TopicSpec(spec.partitions, spec.records_per_sec) for topic, spec in file.topics.items()},
        processes=specs,
        events=tuple(sorted(events, key=lambda event: event[0])),
        initial_rebalance_delay_ms=file.group.initial_rebalance_delay_ms,
        network_ms=file.network.delay_ms,
        network_jitter_ms=file.network.jitter_ms,
        seed=file.seed,
        end_ms=_ms(file.end_s),
        consumer_group=ConsumerGroupConfig(
            file.group.consumer_session_timeout_ms,
            file.group.consumer_heartbeat_interval_ms,
            file.group.consumer_assignment_interval_ms,
        ),
    )


def _numbered(members: MembersSection, number: int) -> str:
    """Numbers of one width, so that names sort as they count."""
    return f"{members.prefix}-{number:0{len(str(max(members.count - 1, 1)))}d}"


def _spec(members: MembersSection, name: str) -> ProcessSpec:
    return ProcessSpec(
        ConsumerConfig(
            tuple(members.strategies),
            name if members.static else None,
            members.session_timeout_ms,
            members.heartbeat_interval_ms,
            members.max_poll_interval_ms,
            members.protocol,
            members.remote_assignor,
        ),
        tuple(members.topics),
        poll_interval_ms=members.poll_interval_ms,
        revoke_ms=members.revoke_ms,
        metadata_max_age_ms=members.metadata_max_age_ms,
        heartbeat_late_max_ms=min(100, members.heartbeat_interval_ms),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _spelled_out(
    event: EventSection, members: MembersSection, names: list[str], specs: dict[str, ProcessSpec]
) -> TimedEvents:
    """What an event of the file means; members that scale_out adds are added to `names` and `specs`."""
    at_ms = _ms(event.at_s)
    happening = next(value for key, value in event if key != "at_s" and value is not None)
    match happening:
        case StartEvent():
            yield from _start(at_ms, happening, members, specs)
        case RestartEvent():
            yield from _restart(at_ms, happening.member, happening.down_s, crash=happening.crash)
        case FlapEvent():
            for number in range(happening.times):
                start_ms = at_ms + number * _ms(happening.up_s + happening.down_s)
                yield from _restart(start_ms, happening.member, happening.down_s, crash=happening.crash)
        case PauseEvent():
            kind = Pause if event.pause is happening else Stall
            yield at_ms, kind(happening.member, max(1, _ms(happening.for_s)))
        case ScaleOutEvent():
            yield from _scale_out(at_ms, happening, members, names, specs)
        case RollingRestartEvent():
            yield from _rolling_restart(at_ms, happening, names, specs)
        case SubscribeEvent():
            yield at_ms, Subscribe(happening.member, tuple(happening.topics))
        case GrowTopicEvent():
            yield at_ms, GrowTopic(happening.topic, happening.partitions)
        case MemberEvent():
            yield at_ms, Crash(happening.member) if event.crash is happening else Stop(happening.member)


def _start(at_ms: int, event: StartEvent, members: MembersSection, specs: dict[str, ProcessSpec]) -> TimedEvents:
    spec = specs.setdefault(event.member, _spec(members, event.member))
    if event.group_instance_id is not None:
        spec = dataclasses.replace(
            spec, config=dataclasses.replace(spec.config, group_instance_id=event.group_instance_id)
        )
    yield at_ms, Start(event.member, spec)


def _restart(
    at_ms: int, member: str, down_s: float, *, crash: bool = False, spec: ProcessSpec | None = None
) -> TimedEvents:
    yield at_ms, Crash(member) if crash else Stop(member)
    yield at_ms + _ms(down_s), Start(member, spec)


def _scale_out(
    at_ms: int, event: ScaleOutEvent, members: MembersSection, names: list[str], specs: dict[str, ProcessSpec]
) -> TimedEvents:
    numbered = (_numbered(members, number) for number in count(len(names)))
    free = (name for name in numbered if name not in specs)
    for number, name in enumerate(islice(free, event.members)):
        names.append(name)
        specs[name] = _spec(members, name)
        yield at_ms + _ms(number * event.apart_s), Start(name)


def _rolling_restart(
    at_ms: int, event: RollingRestartEvent, names: list[str], specs: Mapping[str, ProcessSpec]
) -> TimedEvents:
    for number, name in enumerate(names):
        spec = None
        if event.strategies is not None:
            config = dataclasses.replace(specs[name].config, strategies=tuple(event.strategies))
            spec = dataclasses.replace(specs[name], config=config)
        yield from _restart(at_ms + _ms(number * event.apart_s), name, event.down_s, spec=spec)
