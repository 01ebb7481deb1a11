"""Reads consumer groups: which there are, who owns what, what they committed. In batches, and no more than needed.

Groups without members aren't described, and once nothing moves in one its offsets are fetched more rarely. A group that
can't be read costs its own figures, not those of its batch; a broker, those of the groups that it coordinates.

If there are more than `collect.groups_max` groups, most places go to the groups that matter: in turns the group with
most lag and the group that has committed most recently. A tenth of the places goes round among all others, for some
samples each, those first that were never read. So a new group, or one whose lag has grown, is seen within a bounded
number of samples. A group that has a place keeps it unless another is clearly ahead.

Two more things are read of what groups read. Last stable offsets show where an open transaction holds back consumers
that read committed records alone: a broker is asked only about partitions where the answer may matter. A group has
committed less than the log holds there, and either has committed nothing since the sample before, or the topic had an
open transaction in an earlier sample. Without the topic of transactions no producer has ever begun one. Cleanup
policies show which topics are compacted: offsets of a compacted topic are more than its records.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from typing import Any, TypeVar

import numpy as np
import structlog
from kafka.errors import KafkaError

from assignor_core.intervals import is_due
from assignor_core.live import PartitionKey
from streaming.cluster.answer_columns import TopicRows
from streaming.cluster.answers import is_unanswered
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.described_groups import (
    CLASSIC,
    DEAD,
    SHARE,
    TEXT_MAX,
    DescribedGroup,
    ShareOffsets,
    describe,
    share_offsets,
)
from streaming.collect.group_table import (
    EMPTY,
    GroupRows,
    GroupTable,
    GroupView,
    Owners,
    Reported,
    SharePositions,
    view_of,
)
from streaming.collect.partition_table import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    Ints,
    PartitionNames,
    PartitionTable,
    column_at,
)
from streaming.collect.sample import Request, SampleState, is_refused
from streaming.collect.shards import WHOLE, Shard
from streaming.settings import CollectSettings

log = structlog.get_logger()

ASKED_AGAIN_MS = 3_600_000
TOPICS_AT_ONCE = 1_000
"""Topics of one request; further ones wait for the next sample."""
COMPACT = "compact"
ROUND_SHARE = 10
"""One place in so many goes round."""
TURN_SAMPLES = 6
"""Samples that each turn lasts: commits show from the second sample on, and a window needs some samples."""
AHEAD_FACTOR = 1.5
"""A group with a place loses it to a group with this many times its lag."""
AHEAD_SAMPLES = 30
"""A group with a place loses it to a group that has committed so many samples later."""
FORGOTTEN_SAMPLES = 30
"""A group that was not listed for so many samples is gone."""
BATCH = 200
"""Groups asked about in one call, all of one coordinator."""
NAMED_MAX = 20
"""Groups that are named in the log of one sample."""
IDLE_SAMPLES = 6
"""If a group has no members and its offsets stood still, they are fetched once in this many samples."""
NO_CONSUMERS = frozenset({"connect", "sr"})
"""Protocol types of groups that commit no offsets of a topic's reader."""
A = TypeVar("A")
Listed = Mapping[int, Sequence[Mapping[str, Any]]]
"""Rows of groups by the broker that coordinates them."""


@dataclass(slots=True)
class CleanupPolicies:
    """Remembers policies, and when each topic was asked about. Not for two threads."""

    _policies: dict[str, str] = field(default_factory=dict)
    _asked_ms: dict[str, int] = field(default_factory=dict)

    def read(self, reads: BrokerReads, topics: Iterable[str], *, now_ms: int) -> Mapping[str, str]:
        """Policy of each of the topics that is compacted, as far as the brokers show it."""
        named = set(topics)
        self._asked_ms = {name: asked_ms for name, asked_ms in self._asked_ms.items() if name in named}
        due = sorted(name for name in named if is_due(self._asked_ms.get(name), ASKED_AGAIN_MS, now_ms))
        asked = due[:TOPICS_AT_ONCE]
        shown = self._shown(reads, asked) if asked else {}
        self._asked_ms |= dict.fromkeys(asked, now_ms)
        known = {**self._policies, **shown}
        self._policies = {name: policy for name, policy in known.items() if name in named}
        return {name: policy for name, policy in self._policies.items() if COMPACT in policy.split(",")}

    def _shown(self, reads: BrokerReads, topics: list[str]) -> Mapping[str, str]:
        try:
            shown = reads.cleanup_policies(topics)
        except KafkaError as error:
            log.warning("cleanup_policies_unread", error=type(error).__name__)
            return {}
        if len(shown) < len(topics):
            log.info("cleanup_policies_hidden", topics=len(topics) - len(shown), needs="DESCRIBE_CONFIGS on topics")
        return shown


@dataclass(slots=True)
class StableOffsets:
    """Remembers what groups had committed at the sample before, and which topics had open transactions.

    Only partitions that groups of the shard read are asked about. Not for two threads.
    """

    _shard: Shard = WHOLE
    _committed: tuple[GroupRows, Ints] | None = None
    _transactional: set[str] = field(default_factory=set)

    def read(
        self, reads: BrokerReads, sample: SampleState, groups: GroupTable, partitions: PartitionTable
    ) -> dict[PartitionKey, int]:
        """Last stable offset by partition, where it is below the log end of this sample."""
        topics = partitions.names.topics
        if TRANSACTION_STATE not in topics and CONSUMER_OFFSETS in topics:
            return {}
        rows = self._rows_asked(groups, partitions)
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        leaders = partitions.leader[rows].tolist()
        for leader, (topic, number) in zip(leaders, partitions.names.keys_of_rows(rows.tolist()), strict=True):
            if leader in sample.racks:
                by_leader[leader][topic].append(number)

        def of_broker(broker: int) -> TopicRows | None:
            try:
                return sample.ask(broker, partial(reads.last_stable_offsets, broker, by_leader[broker]))
            except KafkaError as error:
                log.warning("last_stable_offsets_unread", broker=broker, error=type(error).__name__)
                return None

        found: dict[PartitionKey, int] = {}
        for answer in sample.of_each(by_leader, of_broker).values():
            found |= _below_end(answer, partitions) if answer is not None else {}
        self._transactional = (self._transactional | {topic for topic, _ in found}).intersection(topics)
        return found

    def _rows_asked(self, groups: GroupTable, partitions: PartitionTable) -> Ints:
        """Partitions where an open transaction may explain why a group is behind."""
        rows, committed = groups.committing
        before, self._committed = self._committed, (rows, committed)
        row = partitions.rows_of(rows.names)
        is_behind = (committed >= 0) & (committed < column_at(partitions.end, row))
        if not self._shard.is_whole:
            own = np.array([self._shard.takes_group(name) for name in groups], dtype=bool)
            is_behind &= own[rows.group]
        is_transactional = np.array([name in self._transactional for name in rows.names.topics], dtype=bool)
        may_wait = is_transactional[rows.names.topic] if len(is_transactional) else np.zeros(len(row), dtype=bool)
        if before is not None:
            may_wait |= column_at(before[1], rows.rows_in(before[0])) == committed
        return np.unique(row[is_behind & may_wait])


def _below_end(answer: TopicRows, partitions: PartitionTable) -> dict[PartitionKey, int]:
    """Last stable offsets of an answer. The log may have grown since its end was read: then all before it is stable."""
    names = PartitionNames(answer.topics, answer.topic, answer.column("index"))
    offset = answer.column("offset")
    end = column_at(partitions.end, partitions.rows_of(names))
    held = np.flatnonzero((answer.column("error") == 0) & (offset >= 0) & (offset < end)).tolist()
    return dict(zip(names.keys_of_rows(held), offset[held].tolist(), strict=True))


@dataclass(slots=True)
class _KnownGroup:
    """A group as it was when it was last read."""

    read_at: int
    """Number of the sample."""
    listed_at: int
    lag_records: int = 0
    committed: int | None = None
    """Sum of its committed offsets."""
    moved_at: int = 0
    """Number of the sample that saw a commit last; 0 where none did."""


@dataclass(slots=True)
class GroupChoice:
    """Remembers each listed group by a few numbers. A fresh one begins with any groups, those with members first."""

    _number: int = 0
    _known: dict[str, _KnownGroup] = field(default_factory=dict)
    _kept: frozenset[str] = frozenset()
    _turn: frozenset[str] = frozenset()
    _turn_began: int = 0

    def choose(self, names: Collection[str], with_members: Collection[str], places: int) -> frozenset[str]:
        """At most `places` of `names` for the next sample; all of them where they are no more."""
        self._number += 1
        self._forget(names)
        if len(names) <= places:
            self._kept, self._turn = frozenset(names), frozenset()
            return self._kept
        self._kept = frozenset(self._foremost(names, places - max(1, places // ROUND_SHARE)))
        others = set(names) - self._kept
        if self._number - self._turn_began >= TURN_SAMPLES:
            self._turn_began, self._turn = self._number, frozenset()
        # Who has the turn stays; places that have become free meanwhile are given away.
        in_line = sorted(others, key=lambda name: (name not in self._turn, *self._place_in_line(name, with_members)))
        self._turn = frozenset(in_line[: places - len(self._kept)])
        return self._kept | self._turn

    def note(self, name: str, *, lag_records: int, committed: int | None) -> None:
        """What the sample showed of a group: its lag, and its committed offsets added up, None if it has none."""
        known = self._known.get(name)
        moved = known is not None and committed != known.committed
        moved_at = self._number if moved else known.moved_at if known else 0
        self._known[name] = _KnownGroup(self._number, self._number, lag_records, committed, moved_at)

    def note_unread(self, names: Iterable[str]) -> None:
        """Groups that were asked for and gave no answer: their turn is over all the same."""
        for name in names:
            self._known.setdefault(name, _KnownGroup(self._number, self._number)).read_at = self._number

    def _forget(self, names: Collection[str]) -> None:
        """Forgets groups that have not been listed for long: their broker may just have been silent for a moment."""
        for name in names:
            if name in self._known:
                self._known[name].listed_at = self._number
        oldest = self._number - FORGOTTEN_SAMPLES
        self._known = {name: known for name, known in self._known.items() if known.listed_at >= oldest}

    def _foremost(self, names: Collection[str], count: int) -> list[str]:
        """Returns the groups with most lag and those that committed last, in turns; of equals the first by name."""
        known = {name: self._known[name] for name in names if name in self._known}
        live = [name for name, group in known.items() if group.lag_records or group.moved_at]
        by_lag = sorted(live, key=lambda name: (-self._lag(name), name))
        by_time = sorted(live, key=lambda name: (-self._moved_at(name), name))
        in_turns = (name for name in chain(*zip_longest(by_lag, by_time)) if name is not None)
        return list(dict.fromkeys(in_turns))[:count]

    def _lag(self, name: str) -> float:
        return self._known[name].lag_records * (AHEAD_FACTOR if name in self._kept else 1.0)

    def _moved_at(self, name: str) -> int:
        moved_at = self._known[name].moved_at
        return moved_at + (AHEAD_SAMPLES if name in self._kept and moved_at else 0)

    def _place_in_line(self, name: str, with_members: Collection[str]) -> tuple[int, bool, str]:
        """Sorts groups that were read longest ago first; of groups never read, the ones with members."""
        known = self._known.get(name)
        return known.read_at if known else 0, name not in with_members, name


@dataclass(frozen=True, slots=True)
class GroupsRead:
    """What one sample read of groups, and how many it left out by the broker that coordinates them.

    A broker that did not list its groups is in neither count of what is left out.
    """

    views: GroupTable
    left_out: dict[int, int]
    partitions_left_out: dict[int, int] = field(default_factory=dict)
    """Partitions that groups name and that are not reported, by the broker that coordinates them."""
    last_stable: dict[PartitionKey, int] = field(default_factory=dict)
    """Last stable offset by partition, where open transactions hold readers back."""
    cleanup_policies: Mapping[str, str] = field(default_factory=dict)
    """Cleanup policies of compacted topics that groups read, by topic."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some groups of one coordinator: their states, and the types of these and of other groups."""

    broker: int
    states: Mapping[str, str | None]
    kinds: Mapping[str, str]

    def described(self, shard: Shard) -> dict[str, list[str]]:
        """Groups of the shard that have members, by type: one request describes groups of one type."""
        names: dict[str, list[str]] = defaultdict(list)
        for name, state in self.states.items():
            if state != EMPTY and shard.takes_group(name):
                names[self.kinds.get(name, CLASSIC)].append(name)
        return names


@dataclass(slots=True)
class GroupSampler:
    """Reads groups. Its memory saves requests, and keeps positions of share groups from going back. For one thread.

    Of groups of other shards it reads no members, but what they have committed: bytes that are read of a partition are
    those of all groups.
    """

    _shard: Shard = WHOLE
    _idle: dict[str, tuple[int, GroupView]] = field(default_factory=dict)
    """Group without members: samples since its offsets were fetched, and what it was."""
    _seen_empty: dict[str, GroupView] = field(default_factory=dict)
    """Groups without members as they were at the sample before."""
    _choice: GroupChoice = field(default_factory=GroupChoice)
    _positions: SharePositions = field(default_factory=SharePositions)
    _owners: Owners = field(default_factory=Owners)
    _stable: StableOffsets = field(init=False)
    _policies: CleanupPolicies = field(default_factory=CleanupPolicies)
    _existing: dict[str, int] = field(default_factory=dict)
    """How many partitions each topic has; the same object while they are the same."""
    _told: frozenset[str] = frozenset()
    """Groups of which partitions were left out at the sample before."""

    def __post_init__(self) -> None:
        self._stable = StableOffsets(self._shard)

    def read(
        self,
        reads: BrokerReads,
        settings: CollectSettings,
        sample: SampleState,
        listed: Listed,
        partitions: PartitionTable,
    ) -> GroupsRead:
        """Groups that the settings select, at most `groups_max`: those with most lag and those that commit come first.

        `sample` is the sample that this is a part of, `listed` the groups that each broker coordinates (see
        `listed_groups`). `partitions` show lag.
        """
        eligible = _eligible([row for rows in listed.values() for row in rows], settings)
        # Another name is cut where it is long; ids of groups would be mixed.
        readable = {name: state for name, state in eligible.items() if len(name) <= TEXT_MAX}
        with_members = [name for name, state in readable.items() if state != EMPTY]
        chosen = self._choice.choose(readable.keys(), with_members, settings.groups_max)
        states = {name: state for name, state in eligible.items() if name in chosen}
        if self._existing != partitions.count_by_topic:
            self._existing = partitions.count_by_topic
        reported = Reported(self._existing, settings.group_partitions_max)
        views = GroupTable(self._views(reads, sample, listed, states, partitions, reported))
        some_wait = len(readable) > len(chosen)
        for name, (lag_records, committed) in zip(views, views.totals(partitions), strict=True):
            # Only where there are too many groups do those of other shards count.
            if some_wait or self._shard.takes_group(name):
                self._choice.note(name, lag_records=lag_records, committed=committed)
        self._choice.note_unread(chosen - views.keys())
        left_out = _left_out(listed, eligible.keys() - chosen, settings)
        partitions_left_out = self._partitions_left_out(listed, views)
        stable = self._stable.read(reads, sample, views, partitions)
        policies = self._policies.read(reads, views.names.topics, now_ms=sample.began_ms)
        return GroupsRead(views, left_out, partitions_left_out, stable, policies)

    def _partitions_left_out(self, listed: Listed, views: GroupTable) -> dict[int, int]:
        """How many partitions each coordinator's groups name that are not reported; logs the groups that are new."""
        counts = {name: view.left_out for name, view in views.items() if view.left_out}
        for name in sorted(counts.keys() - self._told)[:NAMED_MAX]:
            log.warning("group_partitions_left_out", group=name, count=counts[name])
        self._told = frozenset(counts)
        coordinators = _coordinators(listed) if counts else {}
        by_broker = Counter(dict.fromkeys(listed, 0))
        for name, count in counts.items():
            by_broker[coordinators[name]] += count
        return dict(by_broker)

    def _views(
        self,
        reads: BrokerReads,
        sample: SampleState,
        listed: Listed,
        states: Mapping[str, str | None],
        partitions: PartitionTable,
        reported: Reported,
    ) -> dict[str, GroupView]:
        """Views of these groups, by name; idle ones as they were last fetched."""
        kept = {name: self._idle[name] for name, state in states.items() if state == EMPTY and name in self._idle}
        known = {name: view for name, (samples, view) in kept.items() if samples + 1 < IDLE_SAMPLES}
        fetched: dict[str, GroupView] = {}
        # Brokers list types of groups from 4.0 on, and from 3.7 on with the new coordinator.
        rows = [row for of_broker in listed.values() for row in of_broker]
        kinds = {str(row["group_id"]): row["group_type"] for row in rows if row.get("group_type")}
        batches: dict[int, list[Batch]] = defaultdict(list)
        for broker, names in _batches(listed, [name for name in states if name not in known]):
            batches[broker].append(Batch(broker, {name: states[name] for name in names}, kinds))

        def of_broker(broker: int) -> dict[str, GroupView]:
            views: dict[str, GroupView] = {}
            for batch in batches[broker]:
                views |= _views(reads, sample, batch, reported, self._shard, self._owners)
            return views

        for views in sample.of_each(batches, of_broker).values():
            fetched |= views
        fetched = {name: self._positions.placed(name, view, partitions) for name, view in fetched.items()}
        self._positions.forget_others(states.keys())
        self._owners.forget_others(states.keys())
        self._idle = {name: (kept[name][0] + 1, view) for name, view in known.items()}
        # A group is idle once two fetches returned the same; a reader that assigns its partitions itself is Empty too.
        before = self._seen_empty
        self._idle |= {
            name: (0, view) for name, view in fetched.items() if view.state == EMPTY and before.get(name) == view
        }
        self._seen_empty = {name: view for name, view in (known | fetched).items() if view.state == EMPTY}
        return dict(sorted((known | fetched).items()))


def listed_groups(reads: BrokerReads, sample: SampleState, broker: int) -> Sequence[Mapping[str, Any]] | None:
    """Rows of the groups that a broker coordinates; None if it can't be asked, or still loads them, which is logged."""
    try:
        return sample.ask(broker, partial(reads.list_groups, broker))
    except KafkaError as error:
        if is_refused(error):
            sample.refusals.note(Request.GROUPS, broker, type(error).__name__)
            return None
        log.warning("groups_unread", broker=broker, error=type(error).__name__)
        return None


def _eligible(rows: Sequence[Mapping[str, Any]], settings: CollectSettings) -> dict[str, str | None]:
    """State of each group that the settings select, by name; None if an old broker doesn't list it."""
    include, exclude = re.compile(settings.groups_include), re.compile(settings.groups_exclude)
    states = {
        str(row["group_id"]): row.get("group_state") or None
        for row in rows
        if not {row.get("protocol_type"), row.get("group_type")} & NO_CONSUMERS and row.get("group_state") != DEAD
    }
    names = sorted(name for name in states if include.search(name) and not exclude.search(name))
    return {name: states[name] for name in names}


def _left_out(listed: Listed, names: Collection[str], settings: CollectSettings) -> dict[int, int]:
    """How many of these groups each broker that listed its groups coordinates."""
    if names:
        log.warning("groups_left_out", count=len(names), groups_max=settings.groups_max)
    coordinators = _coordinators(listed)
    counts = Counter(coordinators[name] for name in names)
    return {broker: counts[broker] for broker in listed}


def _coordinators(listed: Listed) -> dict[str, int]:
    """The broker of each group; of a group that two list, as it moved meanwhile, one of them."""
    return {str(row["group_id"]): broker for broker, rows in listed.items() for row in rows}


def _batches(listed: Listed, names: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """(Coordinator, some of its groups); a group that two brokers list, as it moved meanwhile, is in one batch."""
    coordinators = _coordinators(listed)
    by_broker: dict[int, list[str]] = defaultdict(list)
    for name in names:
        by_broker[coordinators[name]].append(name)
    for broker, own in sorted(by_broker.items()):
        for start in range(0, len(own), BATCH):
            yield broker, own[start : start + BATCH]


def _views(
    reads: BrokerReads, sample: SampleState, batch: Batch, reported: Reported, shard: Shard, owners: Owners
) -> dict[str, GroupView]:
    """Returns the views of one batch of groups; groups whose offsets can't be had are left out, and logged."""
    described: dict[str, DescribedGroup] = {}
    for kind, names in batch.described(shard).items():
        described |= _asked(sample, batch.broker, partial(describe, reads, batch.broker, kind), names)
    offsets = _offsets(reads, sample, batch)
    now_ms = sample.now_ms()
    return {
        name: view_of(
            name,
            batch.kinds.get(name),
            state,
            described.get(name),
            offsets[name],
            reported=reported,
            read_ms=now_ms,
            known=owners,
        )
        for name, state in batch.states.items()
        if name in offsets
    }


def _offsets(reads: BrokerReads, sample: SampleState, batch: Batch) -> dict[str, ShareOffsets]:
    """What each group of a batch has committed; of share groups, how far they have read."""
    sharing = [name for name in batch.states if batch.kinds.get(name) == SHARE]
    committing = [name for name in batch.states if batch.kinds.get(name) != SHARE]
    committed = _asked(sample, batch.broker, partial(_committed, reads, sample, batch.broker), committing)
    shared = _asked(sample, batch.broker, partial(share_offsets, reads, batch.broker), sharing)
    return committed | shared


def _committed(reads: BrokerReads, sample: SampleState, broker: int, names: list[str]) -> dict[str, ShareOffsets]:
    """Returns the offsets of the groups that the coordinator doesn't refuse; the others are logged."""
    offsets, refused = reads.committed_offsets(broker, names)
    if offsets:
        sample.refusals.note_answer(Request.GROUPS)
    for error in sorted(set(refused.values())):
        of_error = [name for name in names if refused.get(name) == error]
        if is_refused(error):
            sample.refusals.note(Request.GROUPS, broker, error, count=len(of_error))
            continue
        log.warning("group_unread", group=of_error[0], count=len(of_error), error=error)
    return {name: ShareOffsets(rows) for name, rows in offsets.items()}


def _asked(
    sample: SampleState, broker: int, ask: Callable[[list[str]], dict[str, A]], names: list[str]
) -> dict[str, A]:
    """Requests a batch of groups. A broker that refuses one refuses all: the batch is halved until the one is alone."""
    if not names:
        return {}
    try:
        return sample.ask(broker, partial(ask, names))
    except KafkaError as error:
        if is_unanswered(error):  # a smaller batch would wait as long
            log.warning("groups_unread", broker=broker, count=len(names), error=type(error).__name__)
            return {}
        if len(names) > 1:
            half = len(names) // 2
            return _asked(sample, broker, ask, names[:half]) | _asked(sample, broker, ask, names[half:])
        if is_refused(error):
            sample.refusals.note(Request.GROUPS, broker, type(error).__name__)
        else:
            log.warning("group_unread", group=names[0], error=type(error).__name__)
        return {}
