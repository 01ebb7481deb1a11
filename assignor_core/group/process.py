"""A consumer process as the simulation sees it: its member, and when it can hear, poll and beat.

Owns the arithmetic of its schedules; does nothing by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.member import ConsumerConfig
from assignor_core.group.scenario import ProcessSpec, is_pattern, matches


class AnyMember(Protocol):
    """What a process needs to know of its member, whatever the protocol."""

    topics: tuple[str, ...]
    owned: Sequence[TopicPartition]
    leads: bool


M = TypeVar("M", bound=AnyMember)


class Process(Generic[M]):
    """One incarnation: from a start to an end. `member_of` makes its member of client, configuration and topics."""

    def __init__(
        self,
        name: str,
        number: int,
        spec: ProcessSpec,
        known_partitions: dict[str, int],
        now_ms: int,
        member_of: Callable[[str, ConsumerConfig, Sequence[str]], M],
    ) -> None:
        self.name = name
        self.number = number
        self.client = f"{name}#{number}"
        self.spec = spec
        self.known_partitions = known_partitions
        self.patterns = spec.topics
        self.started_ms = self._beats_from_ms = now_ms
        self._beat_interval_ms = spec.config.heartbeat_interval_ms
        self.alive = True
        self.silent = False
        self.paused_until_ms = 0
        self.busy_until_ms = 0
        self.beat_planned = False
        self.rejoin_planned = False
        self.join_reason = ""
        self.rejoin_reason = ""
        self.is_put_out = False
        self._group_topics: frozenset[str] = frozenset()
        self._assigned_with: Mapping[str, int] = {}
        self.member: M = member_of(self.client, spec.config, self._topics_read())

    def polls_at_ms(self, now_ms: int) -> int:
        """The next time that the consumer can poll."""
        return max(now_ms, self.paused_until_ms, self.busy_until_ms)

    def hears_at_ms(self, now_ms: int, *, polling: bool) -> int:
        """Returns when the process takes what arrives now: heartbeats have a thread of their own, all else waits for
        polls.
        """
        return self.polls_at_ms(now_ms) if polling else max(now_ms, self.paused_until_ms)

    def heartbeats_from(self, now_ms: int, late_ms: int, interval_ms: int | None = None) -> None:
        """Heartbeats start now; each comes `late_ms` after it is due, by the consumer's interval or the brokers'."""
        interval_ms = interval_ms or self.spec.config.heartbeat_interval_ms
        self._beats_from_ms, self._beat_interval_ms = now_ms, interval_ms + late_ms

    def next_beat_ms(self, now_ms: int) -> int:
        """The first heartbeat after now, or after the pause it is in."""
        return _next_tick(self._beats_from_ms, self._beat_interval_ms, max(now_ms, self.paused_until_ms))

    def last_beat_ms(self, now_ms: int) -> int:
        """The last heartbeat up to now."""
        return self.next_beat_ms(now_ms) - self._beat_interval_ms

    def next_refresh_ms(self, now_ms: int) -> int:
        """The first look at the metadata after now."""
        return _next_tick(self.started_ms, self.spec.metadata_max_age_ms, now_ms)

    def reads(self, topic: str) -> bool:
        """Whether the topic's name is listed or matches a pattern."""
        return matches(self.patterns, topic)

    def leads_with(self, topics: Iterable[str], partitions: Mapping[str, int]) -> None:
        """The leader notes the group's topics, looks up those that it does not know, and remembers what it assigns."""
        self._group_topics = frozenset(topics)
        for topic in self._group_topics & partitions.keys():
            self.known_partitions.setdefault(topic, partitions[topic])
        self._assigned_with = self._known_of_group()

    def see(self, partitions: Mapping[str, int]) -> str:
        """Look at what exists now; why that asks for a rebalance, or nothing."""
        self.known_partitions = dict(partitions)
        topics = self._topics_read()
        if topics != self.member.topics:
            self.member.topics = topics
            return "a topic that its pattern matches has come"
        grown = self.member.leads and self._assigned_with != self._known_of_group()
        return "partitions were added" if grown else ""

    def subscribe(self, patterns: tuple[str, ...]) -> bool:
        """Subscribe to other topics or patterns; True if that changes anything."""
        self.patterns = patterns
        topics = self._topics_read()
        changed, self.member.topics = topics != self.member.topics, topics
        return changed

    def _topics_read(self) -> tuple[str, ...]:
        """Names as they are listed, whether they exist or not, and what the patterns match of what is known."""
        listed = {pattern for pattern in self.patterns if not is_pattern(pattern)}
        return tuple(sorted(listed | {topic for topic in self.known_partitions if self.reads(topic)}))

    def _known_of_group(self) -> Mapping[str, int]:
        return {topic: self.known_partitions.get(topic, 0) for topic in self._group_topics}


def _next_tick(origin_ms: int, interval_ms: int, now_ms: int) -> int:
    """The first of origin, origin + interval, ... that is later than now."""
    return origin_ms + ((now_ms - origin_ms) // interval_ms + 1) * interval_ms
