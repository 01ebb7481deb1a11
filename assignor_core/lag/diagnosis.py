"""Why a group lags: each cause with the figure that shows it, and what helps. Pure; acts on nothing.

Where the lag sits shows the cause: with one broker's partitions, with one partition, with one member, or everywhere.
What a hot partition's member reads shows nothing else, nor does a partition that is hardly written.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from assignor_core.lag.verdicts import LagStatus

K = TypeVar("K", int, str)

EXPLAINED_MIN = 0.8
"""A broker or member explains a lag that sits with its partitions to this share, and has this share of them behind."""
EVERYWHERE_MIN = 0.8
HOT_PARTITION_MIN = 2.0
"""Times the median of the group's partitions of the topic."""
HARDLY_WRITTEN_MAX = 0.05
"""Of what is written to those that lag, on average: a partition below it that keeps up shows nothing."""
STORM_PER_HOUR = 6.0


class Cause(StrEnum):
    """What makes a group lag."""

    REBALANCE_STORM = "rebalance storm"
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
    """Its leader."""
    consumed_per_sec: float | None
    produced_per_sec: float | None

    @property
    def lags(self) -> bool:
        """Is being read too slowly, or not at all by a member that should."""
        return self.status in (LagStatus.WARN, LagStatus.STALL)


@dataclass(frozen=True, slots=True)
class GroupReading:
    """All partitions of one group, and what surrounds it."""

    group: str
    partitions: Sequence[Reading]
    broker_load_ratio: Mapping[int, float] = field(default_factory=dict)
    """Broker: load over the mean of all."""
    rebalances_per_hour: float = 0.0
    shared_by: int | None = None
    """Members of a share group (KIP-932), which have all partitions together; None of other groups."""

    @property
    def lagging(self) -> tuple[Reading, ...]:
        """Its partitions that lag."""
        return tuple(row for row in self.partitions if row.lags)

    @property
    def members(self) -> tuple[str, ...]:
        """Members that own a partition."""
        return tuple(sorted({row.member_id for row in self.partitions if row.member_id is not None}))


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause: what it is about, the figure that shows it, the command that helps."""

    cause: Cause
    subject: str
    figure: str
    helps: str


def diagnose(group: GroupReading) -> tuple[Finding, ...]:
    """Causes in the order in which to look at them; none for a group that does not lag, or where nothing stands out.

    >>> row = lambda p, status, broker: Reading("t", p, status, f"m{p}", f"c{p}", broker, 5.0, 10.0)
    >>> rows = [row(p, LagStatus.WARN if p < 2 else LagStatus.OK, 1 if p < 2 else 2) for p in range(6)]
    >>> [(finding.cause.value, finding.subject) for finding in diagnose(GroupReading("g", rows, {1: 1.5, 2: 0.5}))]
    [('hot broker', 'broker 1')]
    """
    if not group.lagging:
        return ()
    findings = (find(group) for find in CAUSES)
    return tuple(finding for finding in findings if finding is not None)


def find_rebalance_storm(group: GroupReading) -> Finding | None:
    """More rebalances than a group gets from deployments; each stops its members."""
    if group.rebalances_per_hour < STORM_PER_HOUR:
        return None
    figure = f"{group.rebalances_per_hour:.0f} rebalances an hour"
    helps = "static membership (group.instance.id), longer max.poll.interval.ms; try it with: rebalancer simulate"
    return Finding(Cause.REBALANCE_STORM, group.group, figure, helps)


def find_hot_partition(group: GroupReading) -> Finding | None:
    """One partition that lags is written far more than its siblings."""
    hot = _hot_partitions(group)
    if not hot:
        return None
    row = hot[0]
    total, rate = _written([one for one in group.partitions if one.topic == row.topic]), _written([row])
    figure = f"takes {rate / total:.0%} of the records of {row.topic}, {rate:,.0f}/s"
    helps = f"a key that spreads, or: kafka-topics.sh --alter --topic {row.topic} --partitions N"
    return Finding(Cause.HOT_PARTITION, f"{row.topic}-{row.partition}", figure, helps)


def find_hot_broker(group: GroupReading) -> Finding | None:
    """The lag sits with the partitions that one broker leads, which is loaded above the mean."""
    hot = {broker for broker, ratio in group.broker_load_ratio.items() if ratio > 1.0}
    rest = _telling(group)
    explained = _explains(rest, lambda row: row.broker if row.broker in hot else None)
    if explained is None:
        return None
    broker, behind, led = explained
    figure = f"{behind} of {len(rest.lagging)} partitions behind are led by it, {led} of {len(rest.partitions)} in all"
    ratio = group.broker_load_ratio[int(broker)]
    return Finding(Cause.HOT_BROKER, f"broker {broker}", f"{figure}; load {ratio:.2f} x mean", "rebalancer plan")


def find_slow_member(group: GroupReading) -> Finding | None:
    """The lag sits with the partitions that one of several members owns, and another reads more than it does."""
    explained = _explains(_telling(group), lambda row: row.member_id)
    if explained is None:
        return None
    member, behind, owned = explained
    read = {name: _read([row for row in group.partitions if row.member_id == name]) for name in group.members}
    # One that reads as much as any other is not slow: it was given more.
    if read[member] >= max((rate for name, rate in read.items() if name != member), default=0.0):
        return None
    client = next((row.client_id for row in group.partitions if row.member_id == member), None) or member
    written = _written([row for row in group.partitions if row.member_id == member])
    figure = (
        f"{behind} of its {owned} partitions behind, it reads {read[member]:,.0f}/s of {written:,.0f}/s; others keep up"
    )
    return Finding(
        Cause.SLOW_MEMBER, f"{client} ({member})", figure, "look at that member's CPU, garbage and downstream"
    )


def find_too_few_partitions(group: GroupReading) -> Finding | None:
    """Everything lags, and more members would have nothing to do."""
    members, partitions = len(group.members), len(group.partitions)
    if not _everywhere(group) or not members or members < partitions:
        return None
    topic = max(group.lagging, key=lambda row: (row.produced_per_sec or 0.0, row.topic)).topic
    figure = f"{members} members read {partitions} partitions; {_flow(group)}"
    helps = f"kafka-topics.sh --alter --topic {topic} --partitions N, then more members"
    return Finding(Cause.TOO_FEW_PARTITIONS, group.group, figure, helps)


def find_too_few_members(group: GroupReading) -> Finding | None:
    """Everything lags, and more members would have something to do. Partitions do not limit those of a share group."""
    if group.shared_by and _everywhere(group):
        figure = f"{group.shared_by} members share {len(group.partitions)} partitions; {_flow(group)}"
        return Finding(Cause.TOO_FEW_MEMBERS, group.group, figure, "more members: any number may share a partition")
    members, partitions = len(group.members), len(group.partitions)
    if not _everywhere(group) or not members or members >= partitions:
        return None
    figure = f"{members} members for {partitions} partitions; {_flow(group)}"
    helps = f"more members; how many: rebalancer lag --group {group.group}"
    return Finding(Cause.TOO_FEW_MEMBERS, group.group, figure, helps)


CAUSES: tuple[Callable[[GroupReading], Finding | None], ...] = (
    find_rebalance_storm, find_hot_partition, find_hot_broker, find_slow_member, find_too_few_partitions,
    find_too_few_members,
)  # fmt: skip


def _hot_partitions(group: GroupReading) -> tuple[Reading, ...]:
    """Those that lag and are written far more than their siblings, hottest first; a trifle to the group is not hot.

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
    return sum(row.consumed_per_sec or 0.0 for row in rows)


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


def _everywhere(group: GroupReading) -> bool:
    rest = _telling(group)
    return bool(rest.lagging) and len(rest.lagging) >= EVERYWHERE_MIN * len(rest.partitions)


def _flow(group: GroupReading) -> str:
    read, written = _read(group.partitions), _written(group.partitions)
    return f"{len(group.lagging)} of them behind, {read:,.0f}/s read of {written:,.0f}/s written"
