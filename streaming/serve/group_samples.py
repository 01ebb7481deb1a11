"""Snapshot -> samples of consumer groups, of which there may be far more than are exported: made only as they are asked
for, and counted without being made. Pure; knows no metrics library.

Groups come worst first: where there are too many series, they are cut from the end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from assignor_core.lag import LagStatus
from streaming.serve.samples import Sample, some
from streaming.serve.snapshot import Snapshot
from streaming.views.group_memberships import GroupMembership
from streaming.views.group_ranking import GroupTopic, GroupVerdict

VERDICTS = tuple(status.label for status in LagStatus)


@dataclass(frozen=True, slots=True)
class GroupSamples:
    """First the samples of all groups that alerts rest on, then their details; and how many each metric has in all."""

    samples: Iterator[Sample] = field(default_factory=lambda: iter(()))
    """To be run through once."""
    counts: Counter[str] = field(default_factory=Counter)


class _Group(NamedTuple):
    verdict: GroupVerdict | None
    topics: Sequence[GroupTopic]
    membership: GroupMembership | None


def group_samples(snapshot: Snapshot) -> GroupSamples:
    """Those of all groups of the snapshot."""
    groups = _groups(snapshot)
    of_brokers = [
        *some("consumergroups_left_out", _sum(row.groups_left_out for row in snapshot.load.brokers)),
        *some(
            "consumergroup_partitions_left_out", _sum(row.group_partitions_left_out for row in snapshot.load.brokers)
        ),
    ]
    samples = chain(of_brokers, chain.from_iterable(map(_alerted, groups)), chain.from_iterable(map(_details, groups)))
    return GroupSamples(samples, Counter(sample.name for sample in of_brokers) + _counts(groups))


def _sum(counts: Iterable[int | None]) -> int | None:
    """Sum of the counts that are known; None where none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _groups(snapshot: Snapshot) -> list[_Group]:
    """Each with what is known of it; last those without a verdict."""
    topics: dict[str, list[GroupTopic]] = defaultdict(list)
    for topic in snapshot.groups.topics:
        topics[topic.group].append(topic)
    memberships = {row.group: row for row in snapshot.memberships}
    groups = [
        _Group(verdict, topics.get(verdict.group, ()), memberships.pop(verdict.group, None))
        for verdict in snapshot.groups.groups
    ]
    return groups + [_Group(None, (), membership) for membership in memberships.values()]


def _alerted(group: _Group) -> Iterator[Sample]:
    for row in group.topics:
        labels = (row.group, row.topic)
        yield from some("consumergroup_lag_records", row.lag_records, *labels)
        yield from some("consumergroup_lag_seconds", row.lag_seconds, *labels)
        yield from some("consumergroup_lag_retention_ratio", row.retention_ratio, *labels)
        yield from some("consumergroup_beyond_end_records", row.beyond_end_records, *labels)
        for verdict, count in row.statuses.items():
            yield Sample("consumergroup_partitions", (*labels, verdict), count)
    if group.membership is not None:
        labels_of_group = (group.membership.group,)
        yield Sample("consumergroup_rebalances_total", labels_of_group, group.membership.rebalances_total)
        if group.membership.is_abandoned:
            yield Sample("consumergroup_abandoned", labels_of_group, 1)


def _details(group: _Group) -> Iterator[Sample]:
    if group.verdict is not None:
        for status in VERDICTS:
            yield Sample("consumergroup_status", (group.verdict.group, status), group.verdict.status == status)
    for row in group.topics:
        labels = (row.group, row.topic)
        yield from some("consumergroup_lag_max_records", row.lag_max_records, *labels)
        yield from some("consumergroup_last_commit_timestamp_seconds", row.last_commit_ms, *labels, per=1000)
    if group.membership is not None:
        name, rebalance_ms = group.membership.group, group.membership.rebalance_ms
        yield from some("consumergroup_members", group.membership.members, name)
        yield from some("consumergroup_rebalance_duration_seconds", rebalance_ms, name, per=1000)


def _counts(groups: Sequence[_Group]) -> Counter[str]:
    """How many samples `_alerted` and `_details` make of each metric."""
    topics = [row for group in groups for row in group.topics]
    members = [group.membership for group in groups if group.membership is not None]
    return Counter({
        "consumergroup_status": len(VERDICTS) * sum(group.verdict is not None for group in groups),
        "consumergroup_lag_records": sum(row.lag_records is not None for row in topics),
        "consumergroup_lag_max_records": sum(row.lag_max_records is not None for row in topics),
        "consumergroup_lag_seconds": sum(row.lag_seconds is not None for row in topics),
        "consumergroup_last_commit_timestamp_seconds": sum(row.last_commit_ms is not None for row in topics),
        "consumergroup_lag_retention_ratio": sum(row.retention_ratio is not None for row in topics),
        "consumergroup_beyond_end_records": sum(row.beyond_end_records is not None for row in topics),
        "consumergroup_abandoned": sum(row.is_abandoned for row in members),
        "consumergroup_partitions": sum(len(row.statuses) for row in topics),
        "consumergroup_members": sum(row.members is not None for row in members),
        "consumergroup_rebalances_total": len(members),
        "consumergroup_rebalance_duration_seconds": sum(row.rebalance_ms is not None for row in members),
    })  # fmt: skip
