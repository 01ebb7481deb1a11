"""Why a group lags: each cause with the figure that shows it, and what helps. Pure; acts on nothing.

Where the lag sits shows the cause: with one broker's partitions, with one partition, with one member, or everywhere.
What a hot partition's member reads shows nothing else, nor does a partition that is hardly written.

Partitions and members are what a group has too few of only if each member reads all it can: where a member reads
nothing, or keeps up, more of them would change nothing, and partitions that were added stay.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from assignor_core.lag.reasons import duration
from assignor_core.lag.verdicts import LagStatus
from assignor_core.wording import counted, first_named, many

K = TypeVar("K", int, str)

NAMED_MAX = 3
"""Most members and topics that a figure names; further ones are counted."""
EXPLAINED_MIN = 0.8
"""A broker or member explains a lag that sits with its partitions to this share, and has this share of them behind."""
EVERYWHERE_MIN = 0.8
HOT_PARTITION_MIN = 2.0
"""A partition is hot if its write rate is at least this many times the median of the group's partitions of the topic.
"""
HARDLY_WRITTEN_MAX = 0.05
"""A partition that keeps up shows nothing if it is written less than this share of the mean of those that lag."""
STORM_PER_HOUR = 6.0
REBALANCING_MIN_S = 120.0
"""Duration of a rebalance, s, above which the rebalance explains why nothing is read."""


class LagCause(StrEnum):
    """Causes of a group's lag."""

    REBALANCING = "rebalancing"
    REBALANCE_STORM = "rebalance storm"
    OPEN_TRANSACTION = "open transaction"
    MEMBERS_HANG = "members hang"
    HOT_PARTITION = "hot partition"
    HOT_BROKER = "hot broker"
    SLOW_MEMBER = "slow member"
    TOO_FEW_PARTITIONS = "too few partitions"
    TOO_FEW_MEMBERS = "too few members"


@dataclass(frozen=True, slots=True)
class Reading:
    """One partition as its group reads it; None where unknown."""

    topic: str
    partition: int
    status: LagStatus
    member_id: str | None
    client_id: str | None
    broker: int | None
    """Broker that leads the partition."""
    consumed_per_sec: float | None
    produced_per_sec: float | None
    held_back_records: int = 0
    """Records that wait for an open transaction to end."""

    @property
    def lags(self) -> bool:
        """Whether the partition is read too slowly, or is not read although a member owns it."""
        return self.status in (LagStatus.WARN, LagStatus.STALL)

    @property
    def is_read(self) -> bool:
        """A member reads from it, as far as is known: what is behind and commits is read, at an unknown rate too."""
        if self.status is LagStatus.STALL:
            return False
        unknown = self.status is LagStatus.WARN
        return unknown if self.consumed_per_sec is None else self.consumed_per_sec > 0


@dataclass(frozen=True, slots=True)
class GroupReading:
    """All partitions of one group, with the state of the group, its members and its brokers."""

    group: str
    partitions: Sequence[Reading]
    broker_load_ratio: Mapping[int, float] = field(default_factory=dict)
    """Load of each broker per mean load of all brokers, by broker."""
    rebalances_per_hour: float = 0.0
    rebalancing_seconds: float = 0.0
    """For how long the group has been in the middle of a rebalance."""
    shared_by: int | None = None
    """Number of members of a share group (KIP-932), who read all partitions together; None for other groups."""

    @property
    def lagging(self) -> tuple[Reading, ...]:
        """Partitions of the group that lag."""
        return tuple(row for row in self.partitions if row.lags)

    @property
    def members(self) -> tuple[str, ...]:
        """Members that own a partition."""
        return tuple(sorted({row.member_id for row in self.partitions if row.member_id is not None}))


@dataclass(frozen=True, slots=True)
class LagFinding:
    """One cause of lag: its subject, the figure that shows the cause, and the command that helps."""

    cause: LagCause
    subject: str
    figure: str
    helps: str


def diagnose(group: GroupReading) -> tuple[LagFinding, ...]:
    """Causes in the order of `CAUSES`; none for a group that does not lag, or where nothing stands out.

    >>> row = lambda p, status, broker: Reading("t", p, status, f"m{p}", f"c{p}", broker, 5.0, 10.0)
    >>> rows = [row(p, LagStatus.WARN if p < 2 else LagStatus.OK, 1 if p < 2 else 2) for p in range(6)]
    >>> [(finding.cause.value, finding.subject) for finding in diagnose(GroupReading("g", rows, {1: 1.5, 2: 0.5}))]
    [('hot broker', 'broker 1')]
    """
    if not group.lagging:
        return ()
    findings = (find(group) for find in CAUSES)
    return tuple(finding for finding in findings if finding is not None)


def find_rebalancing(group: GroupReading) -> LagFinding | None:
    """A rebalance does not end: nobody reads before each member has joined."""
    if group.rebalancing_seconds < REBALANCING_MIN_S:
        return None
    figure = f"rebalancing for {duration(group.rebalancing_seconds)}"
    helps = "find the member that does not join again (max.poll.interval.ms), or that joins again and again: its log"
    return LagFinding(LagCause.REBALANCING, group.group, figure, helps)


def find_rebalance_storm(group: GroupReading) -> LagFinding | None:
    """More rebalances than a group gets from deployments; each stops its members."""
    if group.rebalances_per_hour < STORM_PER_HOUR:
        return None
    figure = f"{group.rebalances_per_hour:.0f} rebalances an hour"
    helps = "static membership (group.instance.id), longer max.poll.interval.ms; try it with: rebalancer simulate"
    return LagFinding(LagCause.REBALANCE_STORM, group.group, figure, helps)


def find_open_transaction(group: GroupReading) -> LagFinding | None:
    """Readers of committed records wait for a producer that neither commits nor aborts."""
    held = [row for row in group.lagging if row.held_back_records > 0 and not row.is_read]
    if not held:
        return None
    most = max(held, key=lambda row: (row.held_back_records, row.topic, -row.partition))
    records = sum(row.held_back_records for row in held)
    figure = f"holds {many(records, 'record')} of {_partitions(held)} back from who reads committed records"
    helps = f"kafka-transactions.sh find-hanging --broker-id ID, or look at who writes to {most.topic}"
    return LagFinding(LagCause.OPEN_TRANSACTION, f"{most.topic}-{most.partition}", figure, helps)


def find_hanging_members(group: GroupReading) -> LagFinding | None:
    """Members own partitions whose records wait, and read from none of theirs."""
    if group.rebalancing_seconds >= REBALANCING_MIN_S:
        return None
    stuck = [row for row in group.partitions if row.status is LagStatus.STALL and not row.held_back_records]
    if group.shared_by and stuck and not any(row.is_read for row in group.partitions):
        return _hanging(group, stuck, f"none of {many(group.shared_by, 'member')} acknowledges anything")
    owners = {row.member_id for row in stuck if row.member_id is not None}
    hanging = owners - {row.member_id for row in group.partitions if row.is_read}
    if not hanging:
        return None
    stuck = [row for row in stuck if row.member_id in hanging]
    if hanging == set(group.members):
        what = "no member reads anything" if len(hanging) > 1 else "its only member reads nothing"
        return _hanging(group, stuck, what)
    names = sorted({row.client_id or str(row.member_id) for row in stuck})
    what = f"{len(hanging)} of {many(len(group.members), 'member')} read nothing: {first_named(names, NAMED_MAX)}"
    return _hanging(group, stuck, what)


def _hanging(group: GroupReading, stuck: Sequence[Reading], what: str) -> LagFinding:
    topics = first_named(sorted({row.topic for row in stuck}), NAMED_MAX)
    figure = f"{what}; records of {_partitions(stuck)} of {topics} wait"
    helps = "look at the members' logs and threads, and at what they write to: it may be down"
    return LagFinding(LagCause.MEMBERS_HANG, group.group, figure, helps)


def find_hot_partition(group: GroupReading) -> LagFinding | None:
    """One partition that lags is written far more than its siblings."""
    hot = _hot_partitions(group)
    if not hot:
        return None
    row = hot[0]
    total, rate = _written([one for one in group.partitions if one.topic == row.topic]), _written([row])
    figure = f"takes {rate / total:.0%} of the records of {row.topic}, {rate:,.0f}/s"
    helps = "a key that spreads its records: they stay together however many partitions the topic has"
    return LagFinding(LagCause.HOT_PARTITION, f"{row.topic}-{row.partition}", figure, helps)


def find_hot_broker(group: GroupReading) -> LagFinding | None:
    """The lag sits with the partitions that one broker leads, which is loaded above the mean."""
    hot = {broker for broker, ratio in group.broker_load_ratio.items() if ratio > 1.0}
    rest = _telling(group)
    explained = _explains(rest, lambda row: row.broker if row.broker in hot else None)
    if explained is None:
        return None
    broker, behind, led = explained
    of_all = counted(len(rest.lagging), "partition behind is led by it", "partitions behind are led by it")
    figure = f"{behind} of {of_all}, {led} of {len(rest.partitions)} in all"
    ratio = group.broker_load_ratio[int(broker)]
    return LagFinding(LagCause.HOT_BROKER, f"broker {broker}", f"{figure}; load {ratio:.2f} x mean", "rebalancer plan")


def find_slow_member(group: GroupReading) -> LagFinding | None:
    """The lag sits with the partitions that one of several members owns, and another reads more than it does."""
    explained = _explains(_telling(group), lambda row: row.member_id)
    if explained is None:
        return None
    member, behind, owned = explained
    read = {name: _read([row for row in group.partitions if row.member_id == name]) for name in group.members}
    # One that reads as much as any other is not slow: it was given more. One that reads nothing hangs.
    if not read[member] or read[member] >= max((rate for name, rate in read.items() if name != member), default=0.0):
        return None
    client = next((row.client_id for row in group.partitions if row.member_id == member), None) or member
    written = _written([row for row in group.partitions if row.member_id == member])
    figure = (
        f"{behind} of its {owned} partitions behind, it reads {read[member]:,.0f}/s of {written:,.0f}/s; others keep up"
    )
    return LagFinding(
        LagCause.SLOW_MEMBER, f"{client} ({member})", figure, "look at that member's CPU, garbage and downstream"
    )


def find_too_few_partitions(group: GroupReading) -> LagFinding | None:
    """The whole group lags, and has a member for each partition already: more members would be idle."""
    members, partitions = len(group.members), len(group.partitions)
    if not _at_capacity(group) or not members or members < partitions:
        return None
    topic = max(group.lagging, key=lambda row: (row.produced_per_sec or 0.0, row.topic)).topic
    figure = f"{counted(members, 'member reads', 'members read')} {many(partitions, 'partition')}; {_flow(group)}"
    helps = f"kafka-topics.sh --alter --topic {topic} --partitions N, then more members"
    return LagFinding(LagCause.TOO_FEW_PARTITIONS, group.group, figure, helps)


def find_too_few_members(group: GroupReading) -> LagFinding | None:
    """Everything lags, and more members would have something to do. Partitions do not limit those of a share group."""
    if not _at_capacity(group):
        return None
    if group.shared_by:
        share = counted(group.shared_by, "member reads", "members share")
        figure = f"{share} {many(len(group.partitions), 'partition')}; {_flow(group)}"
        return LagFinding(
            LagCause.TOO_FEW_MEMBERS, group.group, figure, "more members: any number may share a partition"
        )
    members, partitions = len(group.members), len(group.partitions)
    if not members or members >= partitions:
        return None
    figure = f"{many(members, 'member')} for {many(partitions, 'partition')}; {_flow(group)}"
    helps = f"more members; how many: rebalancer lag --group {group.group}"
    return LagFinding(LagCause.TOO_FEW_MEMBERS, group.group, figure, helps)


CAUSES: tuple[Callable[[GroupReading], LagFinding | None], ...] = (
    find_rebalancing, find_rebalance_storm, find_open_transaction, find_hanging_members, find_hot_partition,
    find_hot_broker, find_slow_member, find_too_few_partitions, find_too_few_members,
)  # fmt: skip
"""First why nothing is read, then where the lag sits, then what the group has too few of. docs/lag.md has the table."""


def _hot_partitions(group: GroupReading) -> tuple[Reading, ...]:
    """Partitions that lag and are written far more than their siblings, hottest first; trifles to the group aren't hot.

    Siblings of which the rate is unknown, as after a change of leader, are no idle ones.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    for row in group.partitions:
        if row.produced_per_sec is not None:
            rates[row.topic].append(row.produced_per_sec)
    medians = {topic: sorted(written)[(len(written) - 1) // 2] for topic, written in rates.items() if len(written) > 1}
    mean = _mean_written(group.lagging)
    hot = [
        (rate, row)
        for row in group.lagging
        if (rate := row.produced_per_sec)
        and row.is_read
        and row.topic in medians
        and rate >= max(HOT_PARTITION_MIN * medians[row.topic], mean)
    ]
    return tuple(row for rate, row in sorted(hot, key=lambda pair: (-pair[0], pair[1].topic, pair[1].partition)))


def _telling(group: GroupReading) -> GroupReading:
    """The group without what hot partitions keep their members from, and what keeps up as it is hardly written."""
    hot = set(_hot_partitions(group))
    burdened = {row.member_id for row in hot if row.member_id is not None}
    rest = [row for row in group.partitions if row not in hot and row.member_id not in burdened]
    least = HARDLY_WRITTEN_MAX * _mean_written([row for row in rest if row.lags])
    return replace(group, partitions=[row for row in rest if row.lags or (row.produced_per_sec or 0.0) >= least])


def _mean_written(rows: Sequence[Reading]) -> float:
    known = [row.produced_per_sec for row in rows if row.produced_per_sec is not None]
    return sum(known) / len(known) if known else 0.0


def _written(rows: Iterable[Reading]) -> float:
    return sum(row.produced_per_sec or 0.0 for row in rows)


def _read(rows: Iterable[Reading]) -> float:
    """Records/s that are read now: 0 for a stalled partition, whose rate of the look-back is of the past."""
    return sum(row.consumed_per_sec or 0.0 for row in rows if row.status is not LagStatus.STALL)


def _explains(group: GroupReading, key: Callable[[Reading], K | None]) -> tuple[K, int, int] | None:
    """The key whose partitions nearly all lag while nearly all others do not: (key, those that lag, all of them)."""
    behind, owned = _counts(group.lagging, key), _counts(group.partitions, key)
    for one in sorted(behind, key=lambda name: (-behind[name], name)):
        its_own = behind[one] >= EXPLAINED_MIN * owned[one]
        of_all = behind[one] >= EXPLAINED_MIN * len(group.lagging)
        if its_own and of_all and owned[one] < len(group.partitions):
            return one, behind[one], owned[one]
    return None


def _counts(rows: Iterable[Reading], key: Callable[[Reading], K | None]) -> dict[K, int]:
    counts: dict[K, int] = defaultdict(int)
    for row in rows:
        name = key(row)
        if name is not None:
            counts[name] += 1
    return counts


def _at_capacity(group: GroupReading) -> bool:
    """Nearly all partitions lag, each is read, each member is behind, and all together read less than is written."""
    rest = _telling(group)
    if not rest.lagging or len(rest.lagging) < EVERYWHERE_MIN * len(rest.partitions):
        return False
    if group.rebalancing_seconds >= REBALANCING_MIN_S or not all(row.is_read for row in group.lagging):
        return False
    behind = {row.member_id for row in group.lagging}
    known = [row for row in group.partitions if None not in (row.consumed_per_sec, row.produced_per_sec)]
    reads_less = not known or _read(known) < _written(known)
    return reads_less and behind.issuperset(group.members)


def _partitions(rows: Sequence[Reading]) -> str:
    return many(len(rows), "partition")


def _flow(group: GroupReading) -> str:
    read, written = _read(group.partitions), _written(group.partitions)
    return f"{len(group.lagging)} of them behind, {read:,.0f}/s read of {written:,.0f}/s written"
