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
from streaming.control.windows import closed_windows
from streaming.settings import Settings
from streaming.views.broker_windows import capacities_of
from streaming.views.intents import drained_brokers


def propose_for(
    request: PlanRequest, live: LiveCluster, cluster: ClusterReader, settings: Settings, *, now_ms: int
) -> ProposedPlan:
    """The plan that `request` asks for on `live`, which `cluster` showed; raises NothingToPlanOn."""
    if not request.windows:
        raise NothingToPlanOn("no closed window in the tables yet: is the pipeline running?")
    model = build_model(
        live,
        cluster.log_dirs(),
        leader_rates(request.windows, settings),
        cluster_name=settings.kafka.cluster_name,
        capacities=capacities_of(settings),
        disk_reserve=settings.planner.disk_reserve,
        drained=request.drained,
        now_ms=now_ms,
    )
    span_ms = (request.windows[0].start_ms, request.windows[-1].end_ms)
    return propose_on(model, live, request.policy, elapsed_s=time.perf_counter, span_ms=span_ms)


def propose_live(
    cluster: ClusterReader,
    live: LiveCluster,
    settings: Settings,
    *,
    now_ms: int,
    policy: PlannerPolicy | None = None,
    drained: frozenset[int] | None = None,
) -> ProposedPlan:
    """A plan from the newest closed windows; raises NothingToPlanOn.

    `policy` and `drained` stand in for settings and tables where a person asks for something special.
    """
    request = PlanRequest(
        policy or planner_policy(settings, {topic for topic, _ in live.partitions}),
        closed_windows(settings, now_ms=now_ms)[-settings.planner.windows :],
        drained_brokers(settings) if drained is None else drained,
    )
    return propose_for(request, live, cluster, settings, now_ms=now_ms)


def propose_and_keep(
    cluster: ClusterReader,
    settings: Settings,
    *,
    now_ms: int,
    policy_for: Callable[[LiveCluster], PlannerPolicy] | None = None,
    drained: frozenset[int] | None = None,
) -> ProposedPlan:
    """The same for the cluster as it is now; a plan that moves anything is kept in the tables, under its id."""
    live = cluster.describe()
    policy = policy_for(live) if policy_for else None
    proposed = propose_live(cluster, live, settings, now_ms=now_ms, policy=policy, drained=drained)
    if proposed.plan.movements:
        Journal(settings).write_plan(proposed, decision=None, now_ms=now_ms)
    return proposed


def leader_rates(windows: tuple[ClosedWindow, ...], settings: Settings) -> Rates:
    """Mean bytes/s in and out of each partition over `windows`, from the rows of its leaders."""
    first, last = tables.utc(windows[0].start_ms), tables.utc(windows[-1].start_ms)
    where = (
        tables.of_cluster(settings.kafka.cluster_name)
        & tables.at_least("window_start", first)
        & tables.at_most("window_start", last)
        & tables.equal("role", "leader")
    )
    columns = ["topic", "partition", BYTES_IN.name, BYTES_OUT.name]
    rates: dict[PartitionKey, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in tables.read(settings.storage.tables, "partition_load", columns=columns, where=where):
        for values, column in zip(rates[(row["topic"], row["partition"])], columns[2:], strict=True):
            if row[column] is not None:
                values.append(row[column])
    return {key: (_mean(incoming), _mean(outgoing)) for key, (incoming, outgoing) in rates.items()}


def _mean(values: list[float]) -> float | None:
    # Rows come in any order: a sum that hung on it would give one load two plans.
    return fsum(values) / len(values) if values else None
