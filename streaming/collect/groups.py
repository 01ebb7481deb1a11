"""Reads consumer groups: which there are, who owns what, what they committed. In batches, and no more than needed.

Groups without members aren't described, and once nothing moves in one its offsets are fetched more rarely; a group that
can't be read costs its own figures, not those of the batch it is in.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from kafka import KafkaAdminClient
from kafka.errors import BrokerResponseError, KafkaError
from kafka.structs import TopicPartition

from streaming.collect.observation import GroupView, PartitionKey
from streaming.settings import CollectSettings

log = structlog.get_logger()

BATCH = 200
"""Groups asked about in one call; the client makes one request a coordinator of it."""
IDLE_LOOKS = 6
"""The offsets of a group without members that stood still are fetched at every so-manieth look."""
NOTHING_COMMITTED = -1
NO_GENERATION = -1
EMPTY, DEAD = "Empty", "Dead"
NO_CONSUMERS = frozenset({"connect", "sr", "share"})
"""Protocol and group types of groups that commit no offsets of a topic's reader."""

Answers = dict[str, Mapping[Any, Any]]


@dataclass(slots=True)
class GroupSampler:
    """What it remembers only saves requests: a fresh one reads the same, with more of them. Not for two threads."""

    _idle: dict[str, tuple[int, GroupView]] = field(default_factory=dict)
    """Group without members: looks since its offsets were fetched, and what it was."""
    _seen_empty: dict[str, GroupView] = field(default_factory=dict)
    """Groups without members as they were at the look before."""

    def read(self, admin: KafkaAdminClient, settings: CollectSettings) -> dict[str, GroupView]:
        """Groups that the settings select, at most `groups_max`; which were left out for number is logged."""
        try:
            states = _chosen(admin.list_groups(), settings)
        except KafkaError as error:
            log.warning("groups_unread", error=type(error).__name__)
            return {}
        kept = {name: self._idle[name] for name, state in states.items() if state == EMPTY and name in self._idle}
        known = {name: view for name, (looks, view) in kept.items() if looks + 1 < IDLE_LOOKS}
        asked = [name for name in states if name not in known]
        described = _batched(admin.describe_groups, [name for name in asked if states[name] != EMPTY])
        offsets = _batched(admin.list_group_offsets, asked)
        found = {name: _view(states[name], described.get(name, {}), offsets[name]) for name in asked if name in offsets}
        self._idle = {name: (kept[name][0] + 1, view) for name, view in known.items()}
        # A group is idle once two fetches found the same; a reader that assigns its partitions itself is Empty too.
        before = self._seen_empty
        self._idle |= {
            name: (0, view) for name, view in found.items() if view.state == EMPTY and before.get(name) == view
        }
        self._seen_empty = {name: view for name, view in (known | found).items() if view.state == EMPTY}
        return dict(sorted((known | found).items()))


def _chosen(rows: Sequence[Mapping[str, Any]], settings: CollectSettings) -> dict[str, str | None]:
    """State of each group that is to be read, None where an old broker doesn't tell it."""
    include, exclude = re.compile(settings.groups_include), re.compile(settings.groups_exclude)
    states = {
        str(row["group_id"]): row.get("group_state") or None
        for row in rows
        if not {row.get("protocol_type"), row.get("group_type")} & NO_CONSUMERS and row.get("group_state") != DEAD
    }
    names = sorted(name for name in states if include.search(name) and not exclude.search(name))
    if len(names) > settings.groups_max:
        log.warning("groups_left_out", count=len(names) - settings.groups_max, groups_max=settings.groups_max)
    return {name: states[name] for name in names[: settings.groups_max]}


def _batched(ask: Callable[[list[str]], Answers], names: Sequence[str]) -> Answers:
    """Answers by group; those that could not be had are left out, and logged."""
    found: Answers = {}
    for start in range(0, len(names), BATCH):
        found.update(_asked(ask, names[start : start + BATCH]))
    return found


def _asked(ask: Callable[[list[str]], Answers], names: Sequence[str]) -> Answers:
    """Of one batch; a broker that refuses one group refuses them all, so the batch is halved until it stands alone."""
    try:
        return ask(list(names))
    except BrokerResponseError as error:
        if len(names) > 1:
            half = len(names) // 2
            return _asked(ask, names[:half]) | _asked(ask, names[half:])
        log.warning("group_unread", group=names[0], error=type(error).__name__)
    except KafkaError as error:
        log.warning("groups_unread", count=len(names), error=type(error).__name__)
    return {}


def _view(state: str | None, described: Mapping[str, Any], committed: Mapping[TopicPartition, Any]) -> GroupView:
    owners: dict[PartitionKey, tuple[str, str]] = {}
    for member in described.get("members", ()):
        assignment = member.get("member_assignment")
        topics = assignment.get("assigned_partitions", ()) if isinstance(assignment, dict) else ()
        for topic in topics:
            for partition in topic["partitions"]:
                owners[(topic["topic"], partition)] = (member["member_id"], member["client_id"])
    offsets = {(tp.topic, tp.partition): row.offset for tp, row in committed.items() if row.offset > NOTHING_COMMITTED}
    # The older description calls a group of the newer protocol (KIP-848) Dead: the list knows better.
    told = described.get("group_state") or None
    state = (state if told in (None, DEAD) else told) or "Unknown"
    return GroupView(state, offsets, owners, _generation(described.get("members", ())))


def _generation(members: Sequence[Mapping[str, Any]]) -> int | None:
    """The group's generation, which no answer has; but who was in it before joins with the one before (KIP-792).

    None where nobody was, and where clients don't say: Java's do, plain kafka-python and librdkafka don't.
    """
    joined_with = [member.get("member_metadata") for member in members]
    before = [one.get("generation_id") for one in joined_with if isinstance(one, dict)]
    newest = max((generation for generation in before if generation is not None), default=NO_GENERATION)
    return None if newest == NO_GENERATION else newest + 1
