"""Snapshot -> samples: which value each metric of `families` has now. Pure; knows no metrics library.

What is unknown has no sample: an absent series shows more than a zero. Of consumer groups there may be far more samples
than are exported: they are made only as they are asked for, and counted without being made. Groups come worst first:
where there are too many series, they are cut from the end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from assignor_core.deciding.reasons import OWN_PLANS, Reason
from assignor_core.lag import LagStatus
from assignor_core.lag.members import MembersAdvice
from assignor_core.resources import REPORTED, Resource
from streaming.contract.rates import RATES
from streaming.serve.families import broker_rate_name
from streaming.serve.snapshot import PARTS, Snapshot
from streaming.settings import CollectSettings, PlannerSettings, Settings, TriggerSettings
from streaming.views.group_memberships import GroupMembership
from streaming.views.group_ranking import GroupTopic, GroupVerdict
from streaming.views.log_dirs import CORDONED, OFFLINE
from streaming.views.restarts import SHOWN_MAX_MS
from streaming.views.streams import StreamQuery

ACTIVE_MIN_MS = 60_000
ACTIVE_INTERVALS = 3
PLANNING = (Reason.SKEWED, Reason.BROKER_FAILED, *OWN_PLANS)
OTHER_THAN_SKEW = tuple(reason.value for reason in PLANNING if reason is not Reason.SKEWED)
SUPPRESSING = tuple(reason.value for reason in Reason if reason not in (*PLANNING, Reason.BALANCED))
"""Reasons not to plan that are no good news; `balanced` is."""
VERDICTS = tuple(status.label for status in LagStatus)


class Sample(NamedTuple):
    """One series: metric without its prefix `rebalancer_`, label values in the family's order, value."""

    name: str
    labels: tuple[str, ...]
    value: float


def samples(snapshot: Snapshot, settings: Settings, build: tuple[str, str, str]) -> Iterator[Sample]:
    """All samples but those of histograms and of consumer groups; `build`: versions of product, Spark and Delta."""
    yield Sample("build_info", build, 1)
    yield Sample("snapshot_timestamp_seconds", (), snapshot.read_at_ms / 1000)
    yield Sample("snapshot_read_seconds", (), snapshot.read_seconds)
    for part in PARTS:
        yield Sample("snapshot_part_up", (part,), part not in snapshot.failures)
    yield from _streams(snapshot)
    yield from _window(snapshot, settings.collect)
    yield from _skew(snapshot, settings.trigger)
    yield from _decisions(snapshot)
    yield from _execution(snapshot)
    yield from _plan(snapshot)
    yield from _promises(snapshot)
    yield from _brokers(snapshot, settings.planner)
    yield from _log_dirs(snapshot)
    yield from _restarts(snapshot)
    yield from _webhooks(snapshot)
    yield from _tables(snapshot)


def some(name: str, value: float | None, *labels: str, per: float = 1.0) -> Iterator[Sample]:
    """A sample, if there is a value; `per` divides, to make seconds of milliseconds."""
    if value is not None:
        yield Sample(name, labels, value / per)


def _streams(snapshot: Snapshot) -> Iterator[Sample]:
    for query in snapshot.streams.queries:
        yield from _query(query, snapshot.read_at_ms)
    for (source, reason), count in sorted(snapshot.streams.rejected.items()):
        yield Sample("ingest_rejected_records_total", (source, reason), count)
    for source, count in sorted(snapshot.streams.rejected_not_kept.items()):
        yield Sample("ingest_rejected_records_not_kept_total", (source,), count)
    if snapshot.streams.queries:
        yield Sample("upkeep_failing_jobs", (), len(snapshot.streams.upkeep_failing))
    newest_sample = max((broker.last_sample_ms for broker in snapshot.load.brokers), default=None)
    yield from some("ingest_last_event_timestamp_seconds", newest_sample, "byte_rate", per=1000)
    yield from some("ingest_last_event_timestamp_seconds", snapshot.groups.newest_event_ms, "consumer_lag", per=1000)


def _query(query: StreamQuery, now_ms: int) -> Iterator[Sample]:
    name = query.query
    patience_ms = max(ACTIVE_MIN_MS, ACTIVE_INTERVALS * query.trigger_interval_ms)
    yield Sample("stream_active", (name,), now_ms - query.finished_ms < patience_ms)
    yield from some("stream_last_progress_timestamp_seconds", query.finished_ms, name, per=1000)
    yield from some("stream_last_change_timestamp_seconds", query.changed_ms, name, per=1000)
    yield Sample("stream_first_batch", (name,), query.first_batch)
    yield from some("stream_trigger_interval_seconds", query.trigger_interval_ms, name, per=1000)
    yield from some("stream_watermark_timestamp_seconds", query.watermark_ms or None, name, per=1000)
    yield from some("stream_last_batch_duration_seconds", query.duration_ms, name, per=1000)
    for phase, duration_ms in sorted(query.phases_ms.items()):
        if phase != "triggerExecution":  # the whole, which stands beside its parts in no metric
            yield Sample("stream_last_batch_phase_seconds", (name, phase), duration_ms / 1000)
    yield Sample("stream_batches_total", (name,), query.batches_total)
    yield Sample("stream_input_rows_total", (name,), query.input_rows_total)
    yield Sample("stream_rows_dropped_by_watermark_total", (name,), query.late_rows_total)
    yield from some("stream_source_lag_records", query.source_lag_records, name)
    yield from some("stream_state_rows", query.state_rows, name)
    yield from some("stream_state_memory_bytes", query.state_memory_bytes, name)
    if name in ("byte_rate", "consumer_lag"):
        yield Sample("ingest_records_total", (name,), query.input_rows_total)


def _window(snapshot: Snapshot, collect: CollectSettings) -> Iterator[Sample]:
    yield Sample("window_seconds", (), snapshot.window_ms / 1000)
    yield from some("window_end_timestamp_seconds", snapshot.load.window_end_ms, per=1000)
    yield from some("window_completeness_ratio", snapshot.completeness)
    yield from some("brokers_expected", snapshot.brokers_expected)
    yield from some("brokers_reporting", snapshot.load.brokers_reporting)
    yield from some("brokers_log_dirs_unknown", snapshot.load.brokers_log_dirs_unknown)
    yield from some("sample_interval_seconds", snapshot.load.sample_interval_ms, per=1000)
    yield Sample("sample_interval_set_seconds", (), collect.sample_interval_ms / 1000)
    if snapshot.load.window_end_ms is not None:
        yield Sample("brokers_reported_twice", (), len(snapshot.load.brokers_reported_twice))


def _log_dirs(snapshot: Snapshot) -> Iterator[Sample]:
    for row in snapshot.log_dirs:
        labels = (str(row.broker), row.path)
        yield Sample("log_dir_online", labels, row.state != OFFLINE)
        yield Sample("log_dir_cordoned", labels, row.state == CORDONED)
        yield from some("log_dir_used_ratio", row.used_share, *labels)


def _restarts(snapshot: Snapshot) -> Iterator[Sample]:
    """Samples of brokers that control has judged lately: a broker that was safe to restart may not be safe now."""
    for row in snapshot.restarts:
        if snapshot.read_at_ms - row.event_ms <= SHOWN_MAX_MS:
            yield Sample("broker_restart_safe", (str(row.broker),), row.is_safe)
            for effect, count in row.partitions.items():
                yield Sample("broker_restart_partitions", (str(row.broker), effect), count)


def _webhooks(snapshot: Snapshot) -> Iterator[Sample]:
    for row in snapshot.webhooks:
        yield from some("notification_waiting_since_timestamp_seconds", row.waiting_since_ms, row.webhook, per=1000)
        yield from some("notification_given_up_timestamp_seconds", row.given_up_ms, row.webhook, per=1000)


def _skew(snapshot: Snapshot, trigger: TriggerSettings) -> Iterator[Sample]:
    for resource, skew in snapshot.load.skew.items():
        yield Sample("cluster_load_max_per_mean_ratio", (str(resource),), skew.max_over_mean)
        yield Sample("cluster_load_variation_ratio", (str(resource),), skew.coefficient_of_variation)
    decision = snapshot.control.decision
    for resource in snapshot.trigger_resources:
        yield Sample("skew_threshold_ratio", (resource,), trigger.enter_ratio)
        yield Sample("skew_exit_threshold_ratio", (resource,), trigger.exit_ratio)
        breached = decision is not None and bool(decision["breached"]) and decision["resource"] == resource
        if snapshot.control.decisions is not None:
            yield Sample("skew_breached", (resource,), breached)
        if breached and decision is not None:
            yield from some("skew_breach_started_timestamp_seconds", decision["breach_started_ms"], resource, per=1000)


def _decisions(snapshot: Snapshot) -> Iterator[Sample]:
    control = snapshot.control
    yield Sample("rebalance_mode_info", (snapshot.mode,), 1)
    if control.decision is not None:
        yield from some("rebalance_cooldown_end_timestamp_seconds", control.decision["cooldown_end_ms"], per=1000)
        yield from some("rebalance_last_decision_timestamp_seconds", control.decision["decided_ms"], per=1000)
    if control.decisions is not None:
        yield from _evaluations(control.decisions, snapshot.trigger_resources)


def _evaluations(decisions: Mapping[tuple[str, str, str], int], trigger_resources: tuple[str, ...]) -> Iterator[Sample]:
    yield Sample("rebalance_evaluations_total", (), sum(decisions.values()))
    triggers = dict.fromkeys(trigger_resources, 0)
    suppressed = dict.fromkeys(SUPPRESSING, 0)
    for (verdict, reason, resource), count in decisions.items():
        if verdict == "plan":
            # These are reasons of their own, whatever is skewed besides.
            trigger = reason if reason in OTHER_THAN_SKEW else (resource if resource in REPORTED else "none")
            triggers[trigger] = triggers.get(trigger, 0) + count
        elif reason in suppressed:
            suppressed[reason] += count
    for trigger, count in sorted(triggers.items()):
        yield Sample("rebalance_triggers_total", (trigger,), count)
    for reason, count in suppressed.items():
        yield Sample("rebalance_suppressed_total", (reason,), count)


def _execution(snapshot: Snapshot) -> Iterator[Sample]:
    control = snapshot.control
    execution = control.execution
    if control.failures is not None:
        under_way = execution is not None and execution["under_way"]
        yield Sample("rebalance_failures_total", (), control.failures)
        yield Sample("rebalance_in_progress", (), under_way)
        pending = execution["movements_total"] - execution["movements_done"] if execution and under_way else 0
        yield Sample("rebalance_moves_pending", (), pending)
    if control.throttles_left is not None:
        # One that is down keeps it without harm until it is back; one that is gone for good keeps it for ever.
        reporting = snapshot.load.loads.get(Resource.BYTES_IN, {})
        yield Sample("rebalance_throttle_left_brokers", (), len(reporting.keys() & set(control.throttles_left)))
    yield from some("rebalance_last_success_timestamp_seconds", control.last_success_ms, per=1000)
    if execution is not None:
        yield Sample("rebalance_moved_bytes", (), execution["bytes_moved"])
        yield from some("rebalance_started_timestamp_seconds", execution["started_ms"], per=1000)
        measured = execution["bytes_in_max_over_mean_measured"]
        yield from some("rebalance_measured_max_per_mean_ratio", measured, Resource.BYTES_IN.value)


def _plan(snapshot: Snapshot) -> Iterator[Sample]:
    plan = snapshot.control.plan
    if plan is None:
        return
    yield from some("rebalance_plan_created_timestamp_seconds", plan["created_ms"], per=1000)
    yield from some("rebalance_plan_expiry_timestamp_seconds", plan["expires_ms"], per=1000)
    yield Sample("rebalance_plan_moves", ("leader",), plan["leader_movement_count"])
    yield Sample("rebalance_plan_moves", ("replica",), plan["movement_count"] - plan["leader_movement_count"])
    yield Sample("rebalance_plan_move_bytes", (), plan["bytes_to_move"])
    for resource in REPORTED:
        before, after = plan[f"{resource}_max_over_mean_before"], plan[f"{resource}_max_over_mean_after"]
        yield from some("rebalance_plan_max_per_mean_before_ratio", before, resource)
        yield from some("rebalance_plan_predicted_max_per_mean_ratio", after, resource)
        yield from some("rebalance_plan_lower_bound_ratio", plan[f"{resource}_lower_bound"], resource)


def _promises(snapshot: Snapshot) -> Iterator[Sample]:
    accuracy = snapshot.control.accuracy
    errors = (("max_per_mean", accuracy.max_over_mean), ("bytes", accuracy.bytes_copied))
    for figure, error in (*errors, ("duration", accuracy.duration)):
        if error is not None:
            yield Sample("rebalance_promise_error_median_ratio", (figure,), error.off_median)
            yield Sample("rebalance_promise_error_max_ratio", (figure,), error.off_max)
            yield Sample("rebalance_promise_error_plans", (figure,), error.count)


def _brokers(snapshot: Snapshot, planner: PlannerSettings) -> Iterator[Sample]:
    for broker in snapshot.load.brokers:
        name = str(broker.broker)
        for rate in RATES:
            yield from some(broker_rate_name(rate), broker.rates[rate.name], name)
        capacity = planner.capacities.get(broker.broker)
        if capacity is not None:
            yield from some("broker_in_capacity_bytes_per_second", capacity.bytes_in_per_sec, name)
            yield from some("broker_out_capacity_bytes_per_second", capacity.bytes_out_per_sec, name)
        yield from some("broker_log_dir_used_bytes", broker.log_dir_used_bytes, name)
        yield from some("broker_log_dir_usable_bytes", broker.log_dir_usable_bytes, name)
        yield from some("broker_remote_log_bytes", broker.remote_log_bytes, name)
        yield from some("broker_requests_refused", broker.requests_refused, name)
        yield from some("broker_leaders", broker.leaders, name)
        yield from some("broker_replicas", broker.replicas, name)
        yield from some("broker_last_sample_timestamp_seconds", broker.last_sample_ms, name, per=1000)
        yield from some("broker_load_disagreement_ratio", broker.load_disagreement, name)
        yield Sample("broker_info", (name, broker.rack or ""), 1)
    for resource, skew in snapshot.load.skew.items():
        for broker_id, deviation in skew.deviation.items():
            yield Sample("broker_load_deviation_ratio", (str(broker_id), str(resource)), deviation)
    for hot in snapshot.load.hot_partitions:
        labels = (str(hot.broker), hot.topic, str(hot.partition))
        yield Sample("hot_partition_in_bytes_per_second", labels, hot.bytes_in_per_sec)


def _tables(snapshot: Snapshot) -> Iterator[Sample]:
    for table in snapshot.tables:
        yield Sample("delta_table_version", (table.name,), table.version)
        yield Sample("delta_table_files", (table.name,), table.files)
        yield Sample("delta_table_size_bytes", (table.name,), table.size_bytes)


def tally(values: tuple[float, ...], bounds: tuple[float, ...]) -> Mapping[float, int]:
    """Cumulative counts of `values` by upper bound, the form of Prometheus' histograms.

    >>> tally((0.5, 3.0, 99.0), (1.0, 10.0))
    {1.0: 1, 10.0: 2}
    """
    return {bound: sum(value <= bound for value in values) for bound in bounds}


@dataclass(frozen=True, slots=True)
class GroupSamples:
    """First the samples of all groups that alerts rest on, then their details; and how many each metric has in all."""

    samples: Iterator[Sample] = field(default_factory=lambda: iter(()))
    """Samples, to be run through once."""
    counts: Counter[str] = field(default_factory=Counter)


_ALERTED_OF_TOPIC = (
    ("consumergroup_lag_records", "lag_records"),
    ("consumergroup_lag_seconds", "lag_seconds"),
    ("consumergroup_lag_retention_ratio", "retention_ratio"),
    ("consumergroup_beyond_end_records", "beyond_end_records"),
)
_OF_TOPIC = (
    ("consumergroup_lag_max_records", "lag_max_records"),
    ("consumergroup_last_commit_timestamp_seconds", "last_commit_ms"),
)
_OF_MEMBERSHIP = (
    ("consumergroup_members", "members"),
    ("consumergroup_rebalance_duration_seconds", "rebalance_ms"),
)
_OF_NEED = (
    ("consumergroup_members_needed", "needed"),
    ("consumergroup_members_needed_bound", "bound"),
    ("consumergroup_heaviest_partition_ratio", "heaviest_partition_ratio"),
)
"""Metrics and the fields of a row that they show where those are known; a time in ms is shown in seconds."""


class _Group(NamedTuple):
    verdict: GroupVerdict | None
    topics: Sequence[GroupTopic]
    membership: GroupMembership | None
    need: MembersAdvice | None


def group_samples(snapshot: Snapshot) -> GroupSamples:
    """Returns the samples of all groups of the snapshot."""
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
    """Returns each group with what is known of it; last those without a verdict."""
    topics: dict[str, list[GroupTopic]] = defaultdict(list)
    for topic in snapshot.groups.topics:
        topics[topic.group].append(topic)
    memberships, needs = {row.group: row for row in snapshot.memberships}, snapshot.groups.needs
    groups = [
        _Group(verdict, topics.get(verdict.group, ()), memberships.pop(verdict.group, None), needs.get(verdict.group))
        for verdict in snapshot.groups.groups
    ]
    return groups + [_Group(None, (), membership, None) for membership in memberships.values()]


def _alerted(group: _Group) -> Iterator[Sample]:
    for row in group.topics:
        labels = (row.group, row.topic)
        yield from _known(_ALERTED_OF_TOPIC, row, labels)
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
        yield from _known(_OF_TOPIC, row, (row.group, row.topic))
    if group.membership is not None:
        yield from _known(_OF_MEMBERSHIP, group.membership, (group.membership.group,))
    if group.verdict is not None and group.need is not None:
        yield from _known(_OF_NEED, group.need, (group.verdict.group,))


def _known(metrics: Iterable[tuple[str, str]], row: object, labels: tuple[str, ...]) -> Iterator[Sample]:
    for name, column in metrics:
        yield from some(name, getattr(row, column), *labels, per=1000 if column.endswith("_ms") else 1)


def _counts(groups: Sequence[_Group]) -> Counter[str]:
    """How many samples `_alerted` and `_details` make of each metric."""
    topics = [row for group in groups for row in group.topics]
    members = [group.membership for group in groups if group.membership is not None]
    needs = [group.need for group in groups if group.need is not None]
    known = (((*_ALERTED_OF_TOPIC, *_OF_TOPIC), topics), (_OF_MEMBERSHIP, members), (_OF_NEED, needs))
    counts = Counter({
        name: sum(getattr(row, column) is not None for row in rows)
        for metrics, rows in known
        for name, column in metrics
    })  # fmt: skip
    return counts + Counter({
        "consumergroup_status": len(VERDICTS) * sum(group.verdict is not None for group in groups),
        "consumergroup_abandoned": sum(row.is_abandoned for row in members),
        "consumergroup_partitions": sum(len(row.statuses) for row in topics),
        "consumergroup_rebalances_total": len(members),
    })  # fmt: skip
