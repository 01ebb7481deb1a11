"""Which brokers' readers fall behind: what makes skew on a broker urgent. Knows verdicts and leaders, nothing else."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assignor_core.lag.verdicts import LagStatus
from assignor_core.wording import first_named, many

TopicPartition = tuple[str, int]

NAMED_MAX = 3
"""Most groups that a sentence names; further groups are counted."""


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """Verdict on one group's partition, and how many records it is behind; None where that is unknown."""

    group: str
    topic: str
    partition: int
    status: LagStatus
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class BehindOnBroker:
    """Groups that read from a broker and fall behind there, most lag first."""

    groups_behind: tuple[str, ...]
    groups_reading: int
    lag_records: int
    """Records of lag of `groups_behind`, summed over this broker's partitions that fall behind."""

    @property
    def share(self) -> float:
        """Share, 0 to 1, of the groups reading from the broker that fall behind there."""
        return len(self.groups_behind) / self.groups_reading

    def __str__(self) -> str:
        """Returns the text that the trigger's reasons quote."""
        named = first_named(self.groups_behind, NAMED_MAX)
        reading = many(self.groups_reading, "group")
        return f"{named}: {many(self.lag_records, 'record')}, {len(self.groups_behind)} of {reading}"


def brokers_falling_behind(
    verdicts: Iterable[PartitionVerdict], leaders: Mapping[TopicPartition, int]
) -> dict[int, BehindOnBroker]:
    """Brokers with at least one group that reads from them and falls behind on a partition they lead, by broker.

    Falling behind is WARN: a group that has stopped, hangs or was set back is not helped by a cooler broker.
    Partitions without a known leader count nowhere.

    >>> row = lambda group, p, status, lag: PartitionVerdict(group, "t", p, status, lag)
    >>> verdicts = [row("a", 0, LagStatus.WARN, 900), row("a", 1, LagStatus.OK, 0), row("b", 0, LagStatus.STOP, 5)]
    >>> behind_by_broker = brokers_falling_behind(verdicts, {("t", 0): 1, ("t", 1): 2})
    >>> {broker: str(behind) for broker, behind in behind_by_broker.items()}, behind_by_broker[1].share
    ({1: 'a: 900 records, 1 of 2 groups'}, 0.5)
    """
    reading: dict[int, set[str]] = defaultdict(set)
    lags: dict[int, dict[str, int]] = defaultdict(dict)
    for row in verdicts:
        broker = leaders.get((row.topic, row.partition))
        if broker is None:
            continue
        reading[broker].add(row.group)
        if row.status is LagStatus.WARN:
            lags[broker][row.group] = lags[broker].get(row.group, 0) + (row.lag_records or 0)
    return {
        broker: BehindOnBroker(
            groups_behind=tuple(sorted(groups, key=lambda group: (-groups[group], group))),
            groups_reading=len(reading[broker]),
            lag_records=sum(groups.values()),
        )
        for broker, groups in sorted(lags.items())
    }
