"""Groups over time: members join, leave, drop topics and lose their membership, round after round.

Members behave as Kafka's clients do. Cooperative ones claim what they have, revoke what they don't get, and join again
if they revoked anything. Eager ones claim what they were given last, even where they no longer read it or have lost
their membership since. Who leads is a function, so that a timeline can be led by Kafka's classes as well.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from typing import Any

from assignor_core.assignors import TopicPartition, assign
from streaming.commands.assign import group_of
from tests.core.assignors.groups import Line, large_line, mixed_line, uniform_line

Leader = Callable[[Line], Mapping[str, Sequence[Sequence[Any]]]]
"""From a line of `rebalancer assign` to each member's partitions."""

ROUNDS_MAX = 12


class NoRest(AssertionError):
    """A group whose partitions move at every rebalance."""


def lead(line: Line) -> Mapping[str, Sequence[Sequence[Any]]]:
    """Ours."""
    strategy, spec = group_of(line)
    return assign(strategy, spec).assignment


@dataclass(frozen=True, slots=True)
class Member:
    """A live member: what it reads and what it has."""

    topics: tuple[str, ...]
    rack_id: str | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation_id: int = -1

    def at_join(self) -> "Member":
        """Before it joins it gives up what it reads no longer."""
        return replace(self, owned=frozenset(tp for tp in self.owned if tp[0] in self.topics))


@dataclass(slots=True)
class Group:
    """A group between rebalances; changed by events and by `settle`."""

    line: Line
    members: dict[str, Member]
    generation_id: int = 0
    names: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    @property
    def cooperative(self) -> bool:
        return bool(self.line["strategy"].startswith("cooperative"))

    @classmethod
    def of(cls, line: Line) -> "Group":
        members = {name: Member(tuple(m["topics"]), m.get("rack_id")) for name, m in line["members"].items()}
        return cls(line, members)

    def copy(self) -> "Group":
        return replace(self, members=dict(self.members), line=dict(self.line))

    def line_at_join(self) -> Line:
        """What the leader is given."""
        joining = {name: member.at_join() if self.cooperative else member for name, member in self.members.items()}
        members = {
            name: {
                "topics": list(member.topics),
                "owned_partitions": [list(tp) for tp in sorted(member.owned)],
                "generation_id": member.generation_id,
                "rack_id": member.rack_id,
            }
            for name, member in joining.items()
        }
        return {**self.line, "members": members}

    def settle(self, leaders: Sequence[Leader]) -> int:
        """Rebalance until nobody loses anything, with the leaders in turn; the number of rounds. Raises NoRest."""
        turns = cycle(leaders)
        for round_ in range(1, ROUNDS_MAX + 1):
            if not self.rebalance(next(turns)):
                return round_
        raise NoRest(f"no rest after {ROUNDS_MAX} rounds: {self.line_at_join()}")

    def rebalance(self, leader: Leader, *, misses: str | None = None) -> bool:
        """One generation; whether somebody lost something. The member that `misses` it stays as it was."""
        line = self.line_at_join()
        given = {name: frozenset((topic, number) for topic, number in own) for name, own in leader(line).items()}
        if self.cooperative:
            self.members = {name: member.at_join() for name, member in self.members.items()}
            holders = {tp: name for name, member in self.members.items() for tp in member.owned}
            early = [(tp, name) for name, own in given.items() for tp in own if holders.get(tp, name) != name]
            assert early == [], line
        self.generation_id += 1
        lost = any(member.at_join().owned - given[name] for name, member in self.members.items())
        self.members = {
            name: member if name == misses else replace(member, owned=given[name], generation_id=self.generation_id)
            for name, member in self.members.items()
        }
        return lost

    def unread(self) -> list[str]:
        """What is wrong at rest: each partition of a topic that somebody reads has one reader, who subscribes to it."""
        counts: Mapping[str, int] = self.line["partitions_per_topic"]
        read = {topic for member in self.members.values() for topic in member.topics}
        wanted = {(topic, number) for topic in read & set(counts) for number in range(counts[topic])}
        readers = Counter(tp for member in self.members.values() for tp in member.owned)
        return [
            *(
                f"{tp} has {readers[tp]} readers"
                for tp in sorted(wanted | set(readers))
                if readers[tp] != (tp in wanted)
            ),
            *(f"{name} has topics it does not read" for name, m in self.members.items() if m.at_join() != m),
        ]

    def change(self, draws: random.Random, leader: Leader = lead) -> None:
        """An event, or several before the group is whole again; `leader` leads where an event is a rebalance."""
        miss = partial(self._miss, leader=leader)
        events: list[Callable[[random.Random], None]] = [
            self._join,
            self._leave,
            self._drop,
            self._take_up,
            self._lose,
            self._lose,
            miss,
            self._grow,
        ]
        for _ in range(draws.choice([1, 1, 2])):
            draws.choice(events)(draws)

    def _join(self, draws: random.Random) -> None:
        alike = self.members[draws.choice(sorted(self.members))]
        name = f"{draws.choice('adx')}{next(self.names)}"
        self.members[name] = Member(alike.topics, draws.choice([alike.rack_id, None, "r1"]) if alike.rack_id else None)

    def _leave(self, draws: random.Random) -> None:
        if len(self.members) > 1:
            del self.members[draws.choice(sorted(self.members))]

    def _drop(self, draws: random.Random) -> None:
        name = draws.choice(sorted(self.members))
        member = self.members[name]
        if len(member.topics) > 1:
            gone = draws.choice(member.topics)
            self.members[name] = replace(member, topics=tuple(topic for topic in member.topics if topic != gone))

    def _take_up(self, draws: random.Random) -> None:
        name = draws.choice(sorted(self.members))
        member = self.members[name]
        topic = draws.choice(sorted(self.line["partitions_per_topic"]))
        self.members[name] = replace(member, topics=tuple(sorted({*member.topics, topic})))

    def _lose(self, draws: random.Random) -> None:
        """A member loses its membership and is back under a new id: with nothing, or eager with its old claims."""
        name = draws.choice(sorted(self.members))
        member = self.members.pop(name)
        self.members[f"{name}'"] = Member(member.topics, member.rack_id) if self.cooperative else member

    def _miss(self, draws: random.Random, leader: Leader) -> None:
        """A rebalance ends before one member has its assignment: that member joins the next one as it was."""
        self.rebalance(leader, misses=draws.choice(sorted(self.members)))

    def _grow(self, draws: random.Random) -> None:
        counts = dict(self.line["partitions_per_topic"])
        counts[draws.choice(sorted(counts))] += draws.randint(1, 3)
        self.line = {**self.line, "partitions_per_topic": counts}


def first_group(draws: random.Random, strategy: str = "cooperative-sticky", *, racks: bool = False) -> Group:
    """A new group, with equal or unequal subscriptions."""
    line = draws.choice([uniform_line, mixed_line, mixed_line])(draws, racks=racks)
    return Group.of({**line, "strategy": strategy})


def large_group(draws: random.Random, strategy: str, *, racks: bool) -> Group:
    """A new group with unequal subscriptions and up to a few hundred partitions."""
    return Group.of({**large_line(draws, racks=racks), "strategy": strategy})
