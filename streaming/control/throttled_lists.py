"""The lists of throttled replicas of the execution under way: which replicas of its plan they name.

A list is the value of a topic's setting, and Kafka bounds its bytes. So the lists of a topic name as many movements of
the plan as fit: those that copy, then those that are submitted next, then those that follow. What is not named is not
submitted. Entries of others stay as they are; where these fill a list, the movements of that topic wait.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import (
    EVERY_REPLICA,
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    ThrottledMove,
    ThrottledReplicas,
    fitting,
    missing_entries,
    named_entries,
    room_left,
)
from streaming.cluster.ports import ControlledCluster

log = structlog.get_logger()

LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
UNBOUNDED = 10**9
Changes = tuple[dict[str, ThrottledReplicas], dict[str, ThrottledReplicas]]
"""Replicas by topic, for each of the two lists."""


@dataclass(frozen=True, slots=True)
class ThrottleScope:
    """What a plan's throttle touches: brokers that copy, and by topic the (partition, broker) pairs of each side."""

    brokers: frozenset[int]
    leaders: dict[str, ThrottledReplicas]
    followers: dict[str, ThrottledReplicas]


def throttled_move(movement: Movement) -> ThrottledMove | None:
    """Old replicas send, new ones receive; None of a movement that only changes the leader, as that copies nothing."""
    receiving = set(movement.new_replicas) - set(movement.old_replicas)
    if not receiving:
        return None
    leaders, followers = (
        frozenset((movement.partition, broker) for broker in side) for side in (movement.old_replicas, receiving)
    )
    return ThrottledMove(movement.key, (leaders, followers))


def throttle_scope(plan: Plan) -> ThrottleScope:
    """All that the throttle of a plan may touch."""
    moves = _moves_by_topic(plan)
    leaders, followers = ({topic: _replicas(rows, side) for topic, rows in moves.items()} for side in range(len(LISTS)))
    brokers = (broker for side in (leaders, followers) for entries in side.values() for _, broker in entries)
    return ThrottleScope(frozenset(brokers), leaders, followers)


class ThrottledLists:
    """The lists as this process has set them: nothing is known of them until `name`, and after `forget`."""

    def __init__(self, cluster: ControlledCluster) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        self._plan: tuple[Plan, dict[str, list[ThrottledMove]]] | None = None
        self._named: dict[str, list[ThrottledMove]] = {}

    def unnamed(self, plan: Plan, keys: Collection[PartitionKey]) -> list[PartitionKey]:
        """Returns the partitions among `keys` that copy and that no list names."""
        moves, topics = self._moves_of(plan), {topic for topic, _ in keys}
        copying = {move.key for topic in topics for move in moves.get(topic, ())}
        named = {move.key for topic in topics for move in self._named.get(topic, ())}
        return [key for key in keys if key in copying - named]

    def name(
        self, plan: Plan, topics: Collection[str], first: Sequence[PartitionKey], made: Collection[PartitionKey]
    ) -> None:
        """Name in the lists of these topics the movements that fit: `first` ones first, `made` ones last. Entries of
        movements that no longer fit are removed before others are added.
        """
        moves = self._moves_of(plan)
        topics = sorted(moves.keys() & set(topics))
        shown = self._cluster.throttled_replicas(topics)
        ranks = {key: rank for rank, key in enumerate(first)}
        surplus: Changes = ({}, {})
        added: Changes = ({}, {})
        named: dict[str, list[ThrottledMove]] = {}
        for topic in topics:
            texts = [shown.get((topic, setting)) for setting in LISTS]
            ordered = sorted(moves[topic], key=lambda row: (ranks.get(row.key, len(ranks)), row.key in made))
            named[topic] = fitting(ordered, *(_room(ordered, side, text) for side, text in enumerate(texts)))
            for side, text in enumerate(texts):
                whole, wanted = _replicas(ordered, side), _replicas(named[topic], side)
                if extra := named_entries(text, whole - wanted):
                    surplus[side][topic] = extra
                if missing := missing_entries(text, wanted):
                    added[side][topic] = missing
        for topic in topics:
            self._named.pop(topic, None)  # whatever remains undone below is named again before it is submitted
        if any(surplus):
            self._cluster.clear_throttle([], *surplus)
        if any(added):
            self._cluster.set_throttled_replicas(*added)
        self._named |= named

    def restore(self, plan: Plan, first: Sequence[PartitionKey], made: Collection[PartitionKey]) -> None:
        """Somebody may have replaced a list by `*`, and removed that: our entries are gone with it."""
        topics = self._moves_of(plan).keys() & {topic for topic, _ in first}
        shown = self._cluster.throttled_replicas(topics)
        changed = {
            topic
            for topic in topics
            for side, setting in enumerate(LISTS)
            if topic not in self._named
            or missing_entries(shown.get((topic, setting)), _replicas(self._named[topic], side))
        }
        if changed:
            log.info("throttle_lists_changed", plan_id=plan.plan_id[:12], topics=sorted(changed))
            self.name(plan, changed, first, made)

    def _moves_of(self, plan: Plan) -> dict[str, list[ThrottledMove]]:
        """Returns the throttled moves of the plan by topic, in the order of waves; made once for each plan."""
        if self._plan is None or self._plan[0] is not plan:
            self._plan = plan, _moves_by_topic(plan)
        return self._plan[1]


def _moves_by_topic(plan: Plan) -> dict[str, list[ThrottledMove]]:
    moves: dict[str, list[ThrottledMove]] = defaultdict(list)
    for movement in sorted(plan.movements, key=lambda row: row.wave):
        if move := throttled_move(movement):
            moves[movement.topic].append(move)
    return dict(moves)


def _replicas(moves: Collection[ThrottledMove], side: int) -> ThrottledReplicas:
    """All that the list of this side names for these moves."""
    return frozenset[tuple[int, int]]().union(*(move.sides[side] for move in moves))


def _room(moves: Collection[ThrottledMove], side: int, text: str | None) -> int:
    """Bytes for these moves in a list; a list that is `*` names them all already."""
    return UNBOUNDED if text == EVERY_REPLICA else room_left(text, _replicas(moves, side))
