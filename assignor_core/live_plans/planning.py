"""From one look at the cluster and the load of its partitions to a plan.

Placement and sizes come from the cluster itself, so a plan never rests on a placement that is gone. What is not known
is never taken for nothing: a partition without a known rate counts at the mean of its topic and stays where it is, a
broker without a known load gets nothing and gives nothing. Where too much is unknown, or brokers and partitions report
different loads, there is no plan for balance. Brokers that must end empty are emptied all the same.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from assignor_core.disks import LogDirs, all_hide_log_dirs, catching_up, largest_replicas, rooms, silent_brokers
from assignor_core.errors import LoadsDisagree, NothingToPlanOn
from assignor_core.live import (
    NO_LEADER,
    LiveCluster,
    LivePartition,
    PartitionKey,
    offline,
    offline_text,
    partition_name,
)
from assignor_core.live_plans.measured_loads import (
    NO_FOLLOWERS,
    NO_HOURS,
    FollowerLoads,
    HourlyRates,
    LedBytesIn,
    mean_disagreement,
    read_from_followers,
    with_hours,
)
from assignor_core.live_plans.tiered_logs import AskUploads, none_known, with_uploads
from assignor_core.load import cluster_arrays
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.model import (
    LOAD_KEYS,
    RATE_KEYS,
    Broker,
    BrokerState,
    Capacity,
    ClusterState,
    Load,
    Partition,
    PartitionLoad,
    first_window,
)
from assignor_core.plan import TAKE_NONE, Figures, Movement, Plan, Wave, apply_to
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import fair_shares, in_sets
from assignor_core.planner.proposal import figures_of_skew, loads_by_broker, with_drained
from assignor_core.proposed_plan import Observed, ProposedPlan
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays
from assignor_core.wording import first_named, many

UNKNOWN_SHARE_MAX = 0.10
"""With more partitions than this without a known rate a plan for balance would rest on guesses."""

NO_CAPACITY = Capacity()
NAMED_MAX = 5
"""Brokers named in one line."""

Rates = Mapping[PartitionKey, tuple[float | None, ...]]
"""Rates of each partition's leader in the order of RATE_KEYS, bytes in first; None where unknown."""
UNKNOWN: tuple[float | None, ...] = (None,) * len(RATE_KEYS)
_DISK_AT = LOAD_KEYS.index("disk_bytes")
T = TypeVar("T")
AskedPlan = Callable[[ClusterState, PlannerPolicy], Plan]
"""Makes the plan of replica lists that somebody asks for (`assignor_core.planner.asked`)."""


@dataclass(frozen=True, slots=True)
class LeaderLoads:
    """What leaders report of their partitions in the windows that a plan rests on."""

    rates: Rates
    """Means over the windows."""
    led_bytes_in: LedBytesIn
    """Sums by window and broker."""
    hourly: HourlyRates = NO_HOURS
    """Means by the hour of the day, which are planned on too."""
    remote_bytes: Mapping[PartitionKey, float] = field(default_factory=dict)
    """About what remote storage alone holds of each leader's log, where it holds something."""
    followers: FollowerLoads = NO_FOLLOWERS
    """What followers serve to consumers besides."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is planned on: the state, and what of its load is not known or not credible."""

    cluster: ClusterState
    unknown: frozenset[PartitionKey]
    """Partitions whose rate is not known; in `cluster` they have the mean of their topic, else of all."""
    unreported: frozenset[int]
    """Brokers in use that hold replicas and whose load is not known in the newest window."""
    unknown_disks: frozenset[int]
    """Brokers that take no replicas, as nobody knows what is free on their disks."""
    silent: frozenset[int]
    """Brokers in use that did not answer when asked for their log dirs: they take nothing and give nothing."""
    disagreement: Mapping[int, float]
    """Disagreement of each broker over all windows, see `load_disagreement`."""
    disagreement_max: float
    """Limit in mean loads of a broker: where any of `disagreement` is larger there is no plan for balance."""
    span_ms: tuple[int, int]
    """Start and end of the windows that the loads come from."""
    hourly: HourlyRates = NO_HOURS
    """Hours whose loads are further columns of `cluster`, after that of the windows."""
    remote_bytes: Mapping[PartitionKey, float] = field(default_factory=dict)
    """Bytes in remote storage by partition, as measured; no part of the load, as nobody copies them."""
    sizes_hidden: bool = False
    """Whether no broker shows its log dirs: nobody knows what a replica holds or whether it has room anywhere."""

    @property
    def leaving(self) -> frozenset[int]:
        """Brokers that must end empty."""
        return frozenset(row.broker_id for row in self.cluster.brokers if row.state is not BrokerState.ALIVE)


def build_model(
    live: LiveCluster,
    log_dirs: LogDirs,
    measured: LeaderLoads,
    windows: tuple[ClosedWindow, ...],
    *,
    cluster_name: str,
    capacities: Mapping[int, Capacity],
    disk_reserve: float,
    drained: frozenset[int],
    disagreement_max: float,
    now_ms: int,
) -> Model:
    """Model of `live` with the load `measured`; replicas on brokers that are gone make those brokers dead ones.

    `windows` (one or more, oldest first) are those that were measured. Partitions without a leader are left out: there
    is nothing to copy from, and a reassignment of them would hang. `disk_reserve` is the share of each volume that
    stays free. A broker whose log dirs do not show what is free takes nothing, unless `capacities` bound its disks. One
    that did not answer (it is left out of `log_dirs`) takes nothing at all; what only such brokers hold counts with the
    mean size of its topic, and as unknown. Where no broker shows any, none takes replicas, whatever `capacities` say.
    """
    sizes_hidden = all_hide_log_dirs(live, log_dirs)
    silent = silent_brokers(live, log_dirs)
    sizes = largest_replicas(log_dirs)
    room = rooms(live, log_dirs, catching_up(live, live.broker_racks.keys()), reserve=disk_reserve)
    unknown_disks = _unknown_disks(room, silent, {} if sizes_hidden else capacities)
    led = {key: row for key, row in sorted(live.partitions.items()) if row.leader != NO_LEADER}
    unsized = frozenset(key for key in led.keys() - sizes.keys() if silent.intersection(led[key].replicas))
    unknown = unsized | {key for key in led if measured.rates.get(key, UNKNOWN)[0] is None}
    hourly = measured.hourly
    partitions = _loaded(led, measured.rates, sizes, unsized, hourly)
    partitions = read_from_followers(partitions, live, measured.rates, measured.followers)
    hosting = {broker for partition in partitions for broker in partition.replicas}
    brokers = tuple(
        Broker(
            broker,
            live.broker_racks.get(broker),
            _state(broker, live, drained),
            capacities.get(broker, NO_CAPACITY),
            0.0 if broker in unknown_disks | silent else room.get(broker),
        )
        for broker in sorted(hosting | live.hosts_away() | set(live.broker_racks))
    )
    newest = windows[-1]
    return Model(
        cluster=ClusterState(cluster_name, now_ms, brokers, partitions),
        unknown=unknown,
        unreported=frozenset((hosting & live.broker_racks.keys()) - drained - newest.values(Resource.BYTES_IN).keys()),
        unknown_disks=unknown_disks,
        silent=silent - drained,
        disagreement=mean_disagreement(windows, measured.led_bytes_in),
        disagreement_max=disagreement_max,
        span_ms=(windows[0].start_ms, newest.end_ms),
        hourly=hourly,
        remote_bytes=measured.remote_bytes,
        sizes_hidden=sizes_hidden,
    )


def propose_on(
    model: Model,
    live: LiveCluster,
    policy: PlannerPolicy,
    *,
    elapsed_s: Callable[[], float],
    proves_least: bool = False,
    ask_uploads: AskUploads = none_known,
    asked: AskedPlan | None = None,
) -> ProposedPlan:
    """A plan for `model`, which was built of `live`; raises NothingToPlanOn, LoadsDisagree of it.

    A plan that only keeps hard rules, or only empties brokers, is made whatever is known. `elapsed_s` is the
    caller's stopwatch. With `proves_least` the plan's `least_bytes` are known. `ask_uploads` is asked about tiered logs
    of which the plan makes new replicas. Where somebody has asked for replica lists, `asked` makes the plan, whatever
    is known of the load.
    """
    emptied = model.leaving | policy.drain
    keeps_rules_only = policy.rules_only or (policy.only_brokers and policy.only_brokers <= emptied)
    if not keeps_rules_only and asked is None:
        _check_balance_can_be_planned(model)
    if model.sizes_hidden and (emptied or policy.add):
        raise NothingToPlanOn(
            f"replicas of or for broker {min(emptied | policy.add)} would have to be copied, and no broker shows its "
            "log dirs: nobody knows what a replica holds or where there is room"
        )
    unreported, silent = model.unreported - policy.drain, model.silent - policy.drain
    if policy.add & unreported:
        raise NothingToPlanOn(f"the load of broker {min(policy.add & unreported)} is unknown in the newest window")
    if policy.add & silent:
        raise NothingToPlanOn(f"broker {min(policy.add & silent)} did not answer a request for its log dirs")
    excluded = policy.excluded_brokers | unreported | silent
    narrowed = replace(
        policy, pinned_partitions=model.unknown, excluded_brokers=excluded,
        leaders_only=policy.leaders_only or model.sizes_hidden,
    )  # fmt: skip
    began_s = elapsed_s()
    if asked is None:
        plan = propose(model.cluster, narrowed, proves_least=proves_least)
    else:
        plan = asked(model.cluster, narrowed)
        if model.sizes_hidden and any(row.kind == "replica" for row in plan.movements):
            raise NothingToPlanOn(
                "no broker shows its log dirs: nobody knows what a replica holds or where there is room"
            )
    elapsed_ms = (elapsed_s() - began_s) * 1000
    plan, worst_hour = judged(plan, model.cluster, narrowed)
    hidden = ["whether partitions are being reassigned is unknown: the cluster refuses to list reassignments"]
    notes = (
        *_offline_line(live), *_assumptions(model, unreported), *(hidden if live.reassignments_hidden else []),
    )  # fmt: skip
    if asked is not None:
        # The bounds are those of other plans, with as many replicas and unbroken rules. The plan itself names brokers
        # that get replicas although they take none by themselves.
        plan = replace(plan, lower_bound={})
        notes = tuple(line for line in notes if not line.startswith(TAKE_NONE))
    plan = replace(plan, diagnosis=(*plan.diagnosis, *notes))
    dead = frozenset(row.broker_id for row in model.cluster.brokers if row.state is BrokerState.DEAD)
    plan = with_uploads(plan, model.remote_bytes, ask_uploads, policy.throttle_bytes_per_sec, dead)
    if model.sizes_hidden:
        plan = without_disk(plan)
    return ProposedPlan(plan, Observed.of(plan, live), elapsed_ms, model.span_ms, worst_hour)


def without_disk(plan: Plan) -> Plan:
    """`plan` without figures of disk, which nobody knows."""

    def known(figures: Mapping[str, T]) -> dict[str, T]:
        return {name: row for name, row in figures.items() if name != Resource.DISK}

    return replace(
        plan, skew_before=known(plan.skew_before), skew_after=known(plan.skew_after),
        lower_bound=known(plan.lower_bound),
        loads_before=known(plan.loads_before), loads_after=known(plan.loads_after),
    )  # fmt: skip


def propose_elections(
    live: LiveCluster, partitions: Collection[PartitionKey], *, cluster_name: str, span_ms: tuple[int, int]
) -> ProposedPlan:
    """A plan after which the preferred replicas of `partitions` lead them; it moves and copies nothing.

    Figures of load are left out: a model takes preferred leaders for the leaders.
    """
    movements = []
    for key in sorted(partitions):
        row = live.partitions[key]
        reason = f"broker {row.leader} leads it, broker {row.replicas[0]} is its preferred leader"
        movements.append(Movement(*key, row.replicas, row.replicas, 0.0, reason))
    plan = Plan(cluster_name, tuple(movements), waves=(Wave(len(movements), 0.0, 0.0),))
    return ProposedPlan(plan, Observed.of(plan, live), window_span_ms=span_ms)


def _check_balance_can_be_planned(model: Model) -> None:
    share = len(model.unknown) / max(1, len(model.cluster.partitions))
    if share > UNKNOWN_SHARE_MAX:
        raise NothingToPlanOn(
            f"the load of {many(len(model.unknown), 'partition')} ({share:.0%}) is unknown in these windows"
        )
    refusal = _disagreement_line(model)
    if refusal is not None:
        raise LoadsDisagree(refusal)


def _disagreement_line(model: Model) -> str | None:
    """The broker whose figures differ most, in words; None where they agree."""
    worst = max(model.disagreement, key=lambda broker: abs(model.disagreement[broker]), default=None)
    if worst is None or abs(model.disagreement[worst]) <= model.disagreement_max:
        return None
    by = model.disagreement[worst]
    return (
        f"broker {worst} reports {abs(by):.2f} of a broker's mean bytes in {'more' if by > 0 else 'less'} than its "
        f"partitions add up to, {model.disagreement_max} is allowed: their samples disagree"
    )


def _offline_line(live: LiveCluster) -> Iterable[str]:
    """Partitions that `build_model` leaves out, in words."""
    without_leader = offline(live)
    if without_leader:
        yield f"{offline_text(without_leader)}: left out, as there is no replica to copy from"


def _assumptions(model: Model, unreported: frozenset[int]) -> Iterable[str]:
    """What the plan takes for granted, one line each."""
    if model.hourly.hours:
        yield (
            f"planned on the newest windows and on {len(model.hourly.hours)} parts of the day (UTC), means of the last "
            f"{model.hourly.days} days"
        )
    if model.unknown:
        first = partition_name(min(model.unknown))
        yield (
            f"the load of {many(len(model.unknown), 'partition')} (first: {first}) is unknown: each counts at the "
            "mean of its topic, and moves only where a broker must be emptied or racks be spread"
        )
    served = sum(bool(row.reader_racks) for row in model.cluster.partitions)
    if served:
        of = many(served, "partition")
        yield f"followers serve consumers of {of}: for balance their replicas stay in their racks"
    if unreported:
        named = first_named(sorted(unreported), NAMED_MAX)
        yield f"{TAKE_NONE}, as their load in the newest window is unknown: {named}"
    if model.silent:
        named = first_named(sorted(model.silent), NAMED_MAX)
        yield f"{TAKE_NONE}, as they did not answer when asked for their log dirs: {named}"
    if model.sizes_hidden:
        yield f"{TAKE_NONE}, as no broker shows its log dirs: all of them; sizes are unknown, so leaders alone change"
    elif model.unknown_disks:
        yield (
            f"{TAKE_NONE}, as their log dirs do not show what is free: "
            f"{first_named(sorted(model.unknown_disks), NAMED_MAX)}; planner.capacities may give their disk_bytes"
        )
    line = _disagreement_line(model)
    if line is not None:
        yield line


def _with_means(partitions: Iterable[PartitionKey], rates: Rates) -> dict[PartitionKey, tuple[float, ...]]:
    """Rates of each partition: its own, else the mean of its topic, else that of all, else 0.

    Bytes out are unknown where no group commits; they, and any rate but bytes in, count as none unless bytes in are
    unknown too.

    >>> rates = {("a", 0): (4.0, 1.0), ("b", 0): (8.0, None)}
    >>> _with_means([("a", 0), ("a", 1), ("b", 0), ("c", 0)], rates)
    {('a', 0): (4.0, 1.0), ('b', 0): (8.0, 0.0), ('a', 1): (4.0, 1.0), ('c', 0): (6.0, 0.5)}
    """
    sums: dict[str | None, list[float]] = defaultdict(lambda: [0.0] * (len(RATE_KEYS) + 1))
    known: dict[PartitionKey, tuple[float, ...]] = {}
    missing = []
    for key in partitions:
        given = rates.get(key, UNKNOWN)
        if given[0] is None:
            missing.append(key)
            continue
        known[key] = load = tuple([rate or 0.0 for rate in given])
        for total in (sums[key[0]], sums[None]):
            for index, rate in enumerate(load):
                total[index] += rate
            total[-1] += 1
    means = {topic: tuple(rate / count for rate in total) for topic, (*total, count) in sums.items()}
    overall = means.get(None, (0.0,) * len(RATE_KEYS))
    return known | {key: means.get(key[0], overall) for key in missing}


def _unknown_disks(
    room: Mapping[int, float | None], silent: Collection[int], capacities: Mapping[int, Capacity]
) -> frozenset[int]:
    """Brokers that have answered, whose log dirs do not show what is free and whose disks `capacities` do not bound."""
    return frozenset(
        broker
        for broker, left in room.items()
        if left is None and broker not in silent and not capacities.get(broker, NO_CAPACITY).disk_bytes
    )


def _loaded(
    led: Mapping[PartitionKey, LivePartition],
    rates: Rates,
    sizes: Mapping[PartitionKey, int],
    unsized: Collection[PartitionKey],
    hourly: HourlyRates,
) -> tuple[Partition, ...]:
    """Partitions that have a leader, with their load; those `unsized` count with the mean size of their topic."""
    known: Mapping[PartitionKey, Sequence[Load]] = _with_means(led, rates)
    if hourly.hours and led:
        known = _by_hour(known, hourly)
    shown = {key: (float(sizes.get(key, 0)),) for key in led if key not in unsized} if unsized else {}
    means = _with_means(led, shown) if unsized else {}
    partitions = []
    for key, partition in led.items():
        own = known[key]
        disk_bytes = means[key][0] if key in unsized else float(sizes.get(key, 0))
        load = PartitionLoad(*(*own[:_DISK_AT], disk_bytes, *own[_DISK_AT:]))
        target = partition.target_replicas
        in_sync = sum(broker in target for broker in partition.isr)
        partitions.append(Partition(key[0], key[1], target, load, in_sync))
    return tuple(partitions)


def _by_hour(known: Mapping[PartitionKey, Sequence[Load]], hourly: HourlyRates) -> dict[PartitionKey, list[Load]]:
    """Rates of each partition as one figure for the windows and one for each hour."""
    keys = list(known)
    columns = with_hours(keys, np.array([known[key] for key in keys], dtype=np.float64), hourly)
    by_rate = columns.transpose(0, 2, 1).tolist()
    return {key: [tuple(figures) for figures in row] for key, row in zip(keys, by_rate, strict=True)}


def _state(broker: int, live: LiveCluster, drained: frozenset[int]) -> BrokerState:
    if broker not in live.broker_racks:
        return BrokerState.DEAD
    return BrokerState.DRAINING if broker in drained else BrokerState.ALIVE


WorstHour = Mapping[str, Figures]
"""Figures of the most uneven column of each resource, "before" and "after" the plan."""


def judged(plan: Plan, cluster: ClusterState, policy: PlannerPolicy) -> tuple[Plan, WorstHour | None]:
    """`plan`, made for `cluster` by `policy`, with the figures of its first window, and those of the worst one.

    The plan itself and None where `cluster` has a single window.
    """
    if cluster.windows == 1:
        return plan, None
    all_hours = with_drained(cluster, policy)
    now = first_window(all_hours)
    arrays = cluster_arrays(now)
    moved = cluster_arrays(apply_to(now, plan))
    placement, excluded = Placement(arrays), policy.excluded_brokers
    share = fair_shares(arrays, policy, placement)
    arrays, is_broken = in_sets(arrays, policy), bool(plan.problems)
    if arrays.sets is not None:
        is_broken |= bool(arrays.sets.outside(moved.replicas).any())
    bounds = lower_bounds(arrays, placement, share, crowded=is_broken)
    on_now = replace(
        plan,
        skew_before=figures_of_skew(skew_of_arrays(arrays, excluded=excluded)),
        skew_after=figures_of_skew(skew_of_arrays(moved, excluded=excluded)),
        lower_bound=bounds,
        loads_before=loads_by_broker(arrays),
        loads_after=loads_by_broker(moved),
    )
    return on_now, {
        "before": figures_of_skew(skew_of_arrays(cluster_arrays(all_hours), excluded=excluded)),
        "after": figures_of_skew(skew_of_arrays(cluster_arrays(apply_to(all_hours, plan)), excluded=excluded)),
    }
