"""Plans for the live cluster: made from its placement and the tables' load, and kept. For control and the commands.

The one place where a plan is made and the one where it is kept: what a person approves, what control carries out and
what `apply` checks all come from here.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from math import fsum

from assignor_core.deciding.observation import PlanRequest
from assignor_core.deciding.planning import Rates, build_model, propose_on
from assignor_core.deciding.windows import ClosedWindow
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.planner import PlannerPolicy
from assignor_core.proposed_plan import ProposedPlan
from streaming import tables
from streaming.cluster.ports import ClusterReader
from streaming.contract.rates import BYTES_IN, BYTES_OUT
from streaming.control.journal import Journal
from streaming.control.policies import planner_policy
from streaming.control.windows import WindowTables, closed_windows
from streaming.settings import PlannerSettings
from streaming.views.broker_windows import capacities_of
from streaming.views.intents import drained_brokers


def propose_for(
    request: PlanRequest,
    live: LiveCluster,
    cluster: ClusterReader,
    window_tables: WindowTables,
    planner: PlannerSettings,
    *,
    now_ms: int,
) -> ProposedPlan:
    """The plan that `request` asks for on `live`, which `cluster` showed; raises NothingToPlanOn."""
    if not request.windows:
        raise NothingToPlanOn("no closed window in the tables yet: is the pipeline running?")
    model = build_model(
        live,
        cluster.log_dirs(),
        leader_rates(window_tables, request.windows),
        cluster_name=window_tables.kafka_cluster,
        capacities=capacities_of(planner),
        disk_reserve=planner.disk_reserve,
        drained=request.drained,
        now_ms=now_ms,
    )
    span_ms = (request.windows[0].start_ms, request.windows[-1].end_ms)
    return propose_on(model, live, request.policy, elapsed_s=time.perf_counter, span_ms=span_ms)


def propose_live(
    cluster: ClusterReader,
    live: LiveCluster,
    window_tables: WindowTables,
    planner: PlannerSettings,
    *,
    now_ms: int,
    policy: PlannerPolicy | None = None,
    drained: frozenset[int] | None = None,
) -> ProposedPlan:
    """A plan from the newest closed windows; raises NothingToPlanOn.

    `policy` and `drained` stand in for settings and tables where a person asks for something special.
    """
    request = PlanRequest(
        policy or planner_policy(planner, {topic for topic, _ in live.partitions}),
        closed_windows(window_tables, now_ms=now_ms)[-planner.windows :],
        drained_brokers(tables.TableReader(window_tables.root), window_tables.kafka_cluster)
        if drained is None
        else drained,
    )
    return propose_for(request, live, cluster, window_tables, planner, now_ms=now_ms)


def propose_and_keep(
    cluster: ClusterReader,
    journal: Journal,
    window_tables: WindowTables,
    planner: PlannerSettings,
    *,
    now_ms: int,
    policy_for: Callable[[LiveCluster], PlannerPolicy] | None = None,
    drained: frozenset[int] | None = None,
) -> ProposedPlan:
    """The same for the cluster as it is now; a plan that moves anything is kept in the journal, under its id."""
    live = cluster.describe()
    policy = policy_for(live) if policy_for else None
    proposed = propose_live(cluster, live, window_tables, planner, now_ms=now_ms, policy=policy, drained=drained)
    if proposed.plan.movements:
        journal.write_plan(proposed, decision=None, now_ms=now_ms)
    return proposed


def leader_rates(window_tables: WindowTables, windows: tuple[ClosedWindow, ...]) -> Rates:
    """Mean bytes/s in and out of each partition over `windows`, from the rows of its leaders."""
    first, last = tables.utc(windows[0].start_ms), tables.utc(windows[-1].start_ms)
    where = (
        tables.of_cluster(window_tables.kafka_cluster)
        & tables.at_least("window_start", first)
        & tables.at_most("window_start", last)
        & tables.equal("role", "leader")
    )
    columns = ["topic", "partition", BYTES_IN.name, BYTES_OUT.name]
    rates: dict[PartitionKey, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in tables.read(window_tables.root, "partition_load", columns=columns, where=where):
        for values, column in zip(rates[(row["topic"], row["partition"])], columns[2:], strict=True):
            if row[column] is not None:
                values.append(row[column])
    return {key: (_mean(incoming), _mean(outgoing)) for key, (incoming, outgoing) in rates.items()}


def _mean(values: list[float]) -> float | None:
    # Rows come in any order: a sum that hung on it would give one load two plans.
    return fsum(values) / len(values) if values else None
