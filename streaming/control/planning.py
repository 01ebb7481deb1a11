"""Plans for the live cluster: made from its placement and the tables' load. For control and the commands.

The one place where a plan is made: what a person approves, what control carries out and what `apply` checks all come
from here.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.deciding.needs import full_log_dirs
from assignor_core.deciding.observation import PlanRequest
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.live_plans.measured_loads import (
    DAY_HOURS,
    NO_FOLLOWERS,
    NO_HOURS,
    FollowerLoads,
    HourlyRates,
    merged,
)
from assignor_core.live_plans.planning import (
    AskedPlan,
    LeaderLoads,
    Model,
    build_model,
    propose_elections,
    propose_on,
)
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.log_dirs.planning import propose_within, relieve
from assignor_core.model import RATE_KEYS, ClusterState
from assignor_core.planner import PlannerPolicy
from assignor_core.proposed_plan import ProposedPlan
from streaming import tables
from streaming.cluster.ports import ClusterReader
from streaming.contract import PARTITION_LOAD_HOURLY
from streaming.contract.rates import BYTES_IN, BYTES_OUT, MESSAGES_IN
from streaming.contract.records import REMOTE_SIZE_BYTES
from streaming.control.policies import planner_policy
from streaming.control.windows import WindowTables, windows_to_plan_on, within
from streaming.settings import DAY_MS, PlannerSettings
from streaming.views.broker_windows import capacities_of
from streaming.views.intents import Intent, brokers_by_intent


def propose_for(
    request: PlanRequest,
    live: LiveCluster,
    cluster: ClusterReader,
    window_tables: WindowTables,
    planner: PlannerSettings,
    *,
    now_ms: int,
    asked: AskedPlan | None = None,
) -> ProposedPlan:
    """The plan that `request` asks for on `live`, which `cluster` showed; raises NothingToPlanOn."""
    if not request.windows:
        raise NothingToPlanOn("no closed window in the tables yet: is the pipeline running?")
    if request.elections:
        span_ms = request.windows[0].start_ms, request.windows[-1].end_ms
        name = window_tables.kafka_cluster
        return propose_elections(live, request.elections, cluster_name=name, span_ms=span_ms)
    if request.fill is not None:
        log_dirs = cluster.log_dirs()
        brokers = {broker for broker, _ in full_log_dirs(log_dirs, request.fill.fill_max)}
        make, excluded_topics = partial(relieve, policy=request.fill), request.policy.excluded_topics
        return propose_within(
            live, log_dirs, brokers, make, cluster_name=window_tables.kafka_cluster, excluded_topics=excluded_topics
        )
    model = model_for(request, live, cluster, window_tables, planner, now_ms=now_ms)
    return propose_on(
        model, live, request.policy, elapsed_s=time.perf_counter, proves_least=True, asked=asked,
        ask_uploads=lambda keys: cluster.uploads({key: live.partitions[key].leader for key in keys}),
    )  # fmt: skip


def propose_asked(
    cluster: ClusterReader,
    window_tables: WindowTables,
    planner: PlannerSettings,
    *,
    policy_for: Callable[[LiveCluster], PlannerPolicy],
    asked_for: Callable[[LiveCluster], AskedPlan],
    now_ms: int,
) -> ProposedPlan:
    """The plan of replica lists that somebody asks for, on the cluster as it is now; raises NothingToPlanOn and
    InputError.

    Loads are of the newest closed windows, however old they are: they say what the plan brings, and the lists are asked
    for whatever that is. Sizes and the placement are of this moment.
    """
    live = cluster.describe()
    by_intent = brokers_by_intent(tables.TableReader(window_tables.root), window_tables.kafka_cluster)
    request = PlanRequest(
        untouched(policy_for(live), by_intent[Intent.DEMOTE], live),
        windows_to_plan_on(window_tables, now_ms=now_ms, forced=True)[-planner.windows :],
        by_intent[Intent.DRAIN],
    )
    return propose_for(request, live, cluster, window_tables, planner, now_ms=now_ms, asked=asked_for(live))


def model_for(
    request: PlanRequest,
    live: LiveCluster,
    cluster: ClusterReader,
    window_tables: WindowTables,
    planner: PlannerSettings,
    *,
    now_ms: int,
) -> Model:
    """What the plan that `request` asks for rests on."""
    return build_model(
        live,
        cluster.log_dirs(),
        _loads(window_tables, request.windows, live, days=planner.days, now_ms=now_ms),
        request.windows,
        cluster_name=window_tables.kafka_cluster,
        capacities=capacities_of(planner),
        disk_reserve=planner.disk_reserve,
        drained=request.drained,
        disagreement_max=planner.load_disagreement_max,
        now_ms=now_ms,
    )


def model_of(
    cluster: ClusterReader, window_tables: WindowTables, planner: PlannerSettings, *, now_ms: int, on_old_windows: bool
) -> ClusterState:
    """The live cluster with its measured load, as a plan for balance would rest on; raises NothingToPlanOn.

    Partitions whose load is not known have none in it, and brokers that are drained are draining.
    """
    live = cluster.describe()
    windows = windows_to_plan_on(window_tables, now_ms=now_ms, forced=on_old_windows)[-planner.windows :]
    by_intent = brokers_by_intent(tables.TableReader(window_tables.root), window_tables.kafka_cluster)
    request = PlanRequest(PlannerPolicy(), windows, by_intent[Intent.DRAIN])
    model = model_for(request, live, cluster, window_tables, planner, now_ms=now_ms)
    rows = model.cluster.partitions
    known = (replace(row, is_load_known=(row.topic, row.partition) not in model.unknown) for row in rows)
    return replace(model.cluster, partitions=tuple(known))


def propose_live(
    cluster: ClusterReader,
    live: LiveCluster,
    window_tables: WindowTables,
    planner: PlannerSettings,
    *,
    now_ms: int,
    policy: PlannerPolicy | None = None,
    drained: frozenset[int] | None = None,
    on_old_windows: bool = False,
) -> ProposedPlan:
    """A plan from the newest closed windows; raises NothingToPlanOn, of old windows unless they are asked for.

    `policy` and `drained` stand in for settings and tables where a person asks for something special.
    """
    by_intent = brokers_by_intent(tables.TableReader(window_tables.root), window_tables.kafka_cluster)
    policy = policy or planner_policy(planner, {topic for topic, _ in live.partitions})
    request = PlanRequest(
        untouched(policy, by_intent[Intent.DEMOTE], live),
        windows_to_plan_on(window_tables, now_ms=now_ms, forced=on_old_windows)[-planner.windows :],
        by_intent[Intent.DRAIN] if drained is None else drained,
    )
    return propose_for(request, live, cluster, window_tables, planner, now_ms=now_ms)


def untouched(policy: PlannerPolicy, demoted: frozenset[int], live: LiveCluster) -> PlannerPolicy:
    """The policy of a plan that neither lets a demoted broker lead nor moves what it holds, unless the plan is about
    that broker. One that is away is not among them: its replicas may have to be re-created.
    """
    named = policy.drain | policy.add | policy.only_brokers
    kept = (demoted & live.broker_racks.keys()) - named
    return replace(policy, excluded_brokers=policy.excluded_brokers | kept)


def _loads(
    window_tables: WindowTables, windows: tuple[ClosedWindow, ...], live: LiveCluster, *, days: int, now_ms: int
) -> LeaderLoads:
    """Loads in the newest windows, and by the hour of the last `days`."""
    root, kafka_cluster = window_tables.root, window_tables.kafka_cluster
    hourly = hourly_rates(root, kafka_cluster, live.partitions.keys(), days=days, now_ms=now_ms)
    loads = partition_loads(window_tables, windows, {topic for topic, _ in live.partitions})
    return replace(loads, hourly=hourly, followers=follower_loads(window_tables, windows))


def partition_loads(
    window_tables: WindowTables, windows: tuple[ClosedWindow, ...], topics: Collection[str]
) -> LeaderLoads:
    """Mean rates of each partition over `windows`, what bytes in add up to, and what remote storage holds by the newest
    of them, from the rows of leaders.

    Sums are over the partitions of `topics`, which a plan knows: what brokers report besides makes them disagree.
    """
    where = within(window_tables, windows) & tables.equal("role", "leader")
    columns = ["window_start", "broker", "topic", "partition", *RATE_KEYS, REMOTE_SIZE_BYTES.name]
    rows = tables.read_arrow(window_tables.root, "partition_load", columns=columns, where=where)
    is_known = pc.is_in(rows["topic"], value_set=pa.array(sorted(topics), pa.string()))
    rows = rows.append_column("is_known", is_known)
    # Names as numbers: of millions of rows they are more than Arrow sorts in one piece (2 GiB).
    rows = rows.set_column(rows.column_names.index("topic"), "topic", rows["topic"].dictionary_encode())
    # Rows come in any order: a sum that hung on it would give one load two plans.
    in_order = rows.sort_by([("window_start", "ascending"), ("broker", "ascending")])
    aggregates = [*((key, "mean") for key in RATE_KEYS), (REMOTE_SIZE_BYTES.name, "last")]
    means = in_order.group_by(["topic", "partition"], use_threads=False).aggregate(aggregates)
    keys = list(zip(means["topic"].to_pylist(), means["partition"].to_pylist(), strict=True))
    remote = zip(keys, means[f"{REMOTE_SIZE_BYTES.name}_last"].to_pylist(), strict=True)
    rates = zip(*(means[f"{key}_mean"].to_pylist() for key in RATE_KEYS), strict=True)
    known = in_order.filter(in_order["is_known"])
    sums = known.group_by(["window_start", "broker"], use_threads=False).aggregate([(BYTES_IN.name, "sum")])
    led: dict[int, dict[int, float]] = defaultdict(dict)
    for row in sums.to_pylist():
        led[tables.to_ms(row["window_start"])][row["broker"]] = row[f"{BYTES_IN.name}_sum"] or 0.0
    return LeaderLoads(
        dict(zip(keys, rates, strict=True)), led, remote_bytes={key: float(size) for key, size in remote if size}
    )


COMMITTED = ("committed_offset_first", "committed_offset")
LOG_END = ("log_end_offset_first", "log_end_offset")
"""Columns with the log end offset of a window's first sample and of its newest sample."""
TOPICS_MAX = 200
"""Topics that a condition names; of more the rows of all topics are read."""


def follower_loads(window_tables: WindowTables, windows: tuple[ClosedWindow, ...]) -> FollowerLoads:
    """Means over `windows` of what followers serve, and what groups have read of those partitions by rack.

    The row of a replica that led within a window and follows at its end holds bytes that it sent as the leader. Only
    leaders have a rate of records: a row of a follower with such a rate is left out.
    """
    root, out = window_tables.root, BYTES_OUT.name
    of_followers = tables.equal("role", "follower")
    only_followed = pc.is_null(pc.field(MESSAGES_IN.name))
    columns = ["window_start", "broker", "topic", "partition", out, MESSAGES_IN.name]
    newest = within(window_tables, windows[-1:]) & of_followers & tables.above(out, 0)
    serving = tables.read_arrow(root, "partition_load", columns=columns, where=newest).filter(only_followed)
    if not serving.num_rows:
        return NO_FOLLOWERS
    topics = sorted(set(serving["topic"].to_pylist()))
    span = within(window_tables, windows)
    if len(topics) <= TOPICS_MAX:
        span &= tables.one_of("topic", topics)
    keys = set(_keys(serving))
    where = of_followers & span & tables.at_least(out, 0)
    rows = tables.read_arrow(root, "partition_load", columns=columns, where=where).filter(only_followed)
    in_order = rows.sort_by([("window_start", "ascending")])
    means = in_order.group_by(["topic", "partition", "broker"], use_threads=False).aggregate([(out, "mean")])
    served: dict[PartitionKey, dict[int, float]] = defaultdict(dict)
    for key, broker, rate in zip(
        _keys(means), means["broker"].to_pylist(), means[f"{out}_mean"].to_pylist(), strict=True
    ):
        if key in keys:
            served[key][broker] = rate
    return FollowerLoads(dict(served), _read_by_rack(window_tables, span, keys))


def _read_by_rack(
    window_tables: WindowTables, span: tables.Condition, keys: set[PartitionKey]
) -> dict[PartitionKey, Mapping[str | None, float]]:
    """Records that groups committed within the windows, by the rack of the member that owned the partition."""
    if not tables.table_exists(window_tables.root, "group_lag"):
        return {}
    columns = ["window_start", "topic", "partition", "rack_id", *COMMITTED, *LOG_END]
    rows = tables.read_arrow(window_tables.root, "group_lag", columns=columns, where=span)
    records_read = _records_read(rows)
    rows = rows.append_column("records_read", records_read).filter(pc.greater(records_read, 0))
    sums = rows.group_by(["topic", "partition", "rack_id"], use_threads=False).aggregate([("records_read", "sum")])
    read: dict[PartitionKey, dict[str | None, float]] = defaultdict(dict)
    for key, rack, records in zip(
        _keys(sums), sums["rack_id"].to_pylist(), sums["records_read_sum"].to_pylist(), strict=True
    ):
        if key in keys:
            read[key][rack] = float(records)
    return dict(read)


def _records_read(rows: pa.Table) -> pa.ChunkedArray:
    """Returns the records that each group has read, by the progress of its commits. Commits are cut to the ends of the
    log where both are known: any client may commit an offset that the log will never reach.
    """
    first, last = (rows[name] for name in COMMITTED)
    end_first, end_last = (rows[name] for name in LOG_END)
    known = pc.and_(pc.is_valid(end_first), pc.is_valid(end_last))
    within = (
        pc.if_else(known, pc.min_element_wise(offset, end), offset)
        for offset, end in ((last, end_last), (first, end_first))
    )
    return pc.if_else(pc.equal(first, last), 0, pc.subtract(*within))


def _keys(rows: pa.Table) -> list[PartitionKey]:
    return list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))


HOURLY_ROWS_MAX = 10_000_000
"""Most rows read for one plan; of a larger cluster fewer days are read."""


def hourly_rates(
    root: str, kafka_cluster: str, partitions: Collection[PartitionKey], *, days: int, now_ms: int
) -> HourlyRates:
    """Mean rates of `partitions` by hour of the day over the last `days`; none where the table has none."""
    days = min(days, HOURLY_ROWS_MAX // (DAY_HOURS * max(1, len(partitions))))
    reader = tables.TableReader(root)
    if days < 1 or reader.version(PARTITION_LOAD_HOURLY.name) is None:
        return NO_HOURS
    rows_of = {key: row for row, key in enumerate(sorted(partitions))}
    sums = np.zeros((len(rows_of), DAY_HOURS, len(RATE_KEYS)))
    counts = np.zeros(sums.shape, dtype=np.int64)
    for day in range(days, 0, -1):
        since = tables.utc(now_ms - day * DAY_MS)
        where = (
            tables.of_cluster(kafka_cluster)
            & tables.at_least("period_start", since)
            & tables.below("period_start", tables.utc(now_ms - (day - 1) * DAY_MS))
        )
        columns = ("period_start", "topic", "partition", *RATE_KEYS)
        _add_day(reader.arrow(PARTITION_LOAD_HOURLY.name, columns=columns, where=where), rows_of, sums, counts)
    hours = np.flatnonzero(counts.any(axis=(0, 2)))
    rates = sums[:, hours] / np.where(counts[:, hours] > 0, counts[:, hours], np.nan)
    return merged(HourlyRates(tuple(hours.tolist()), rows_of, rates, days), len(rows_of))


def _add_day(
    rows: pa.Table,
    rows_of: dict[PartitionKey, int],
    sums: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> None:
    """Adds one day to the sums and counts of what is known; partitions that are gone are left out."""
    at = np.array([rows_of.get(key, -1) for key in _keys(rows)], dtype=np.int64)
    hour = pc.hour(rows["period_start"]).to_numpy().astype(np.int64)
    for index, rate in enumerate(RATE_KEYS):
        values = rows[rate].to_numpy().astype(np.float64)
        known = (at >= 0) & ~np.isnan(values)
        np.add.at(sums, (at[known], hour[known], index), values[known])
        np.add.at(counts, (at[known], hour[known], index), 1)
