"""What the cluster may need, found by one function each, and what is known when a decision searches them.

A finder takes the `Context` of one decision. It returns a `Need`; a `Hold` if it searched and the cluster does not need
a plan yet, with the reason; or None. `gates.NEEDS` lists the finders, the most urgent first.

States of the placement are needs although no load is skewed: crowded racks are spread, an empty broker is filled,
preferred leaders are elected. Each has a small plan of its own that does no more than repair that state. Each such plan
makes its state smaller or is not made, so none follows itself without end.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from assignor_core.deciding.observation import Evidence, Observation, Surroundings
from assignor_core.deciding.policy import DayBudget, DecisionPolicy, LastingPolicy, TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.skewed import Judged, doubted, in_words, recurrence, why_even, why_unsettled, worst_of
from assignor_core.deciding.state import LASTING, TriggerState, brokers_failed, offline_since_ms
from assignor_core.disks import LogDirDescription, LogDirs
from assignor_core.errors import CoreError
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey, partition_name
from assignor_core.load_history.windows import ClosedWindow, SkewWindow
from assignor_core.log_dirs.planning import FillPolicy, is_over
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.racks import RackSpread
from assignor_core.wording import counted, first_named

NAMED_MAX = 5
Subjects = tuple[int, ...] | tuple[PartitionKey, ...]
"""Brokers or partitions that a need is about."""


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that the cluster needs a plan for."""

    reason: Reason
    text: str
    """Description of the need, with its figures."""
    subjects: Subjects = ()
    resource: str | None = None
    """The resource that is skewed."""
    max_over_mean: float | None = None
    """Max/mean of that resource in the newest window."""
    since_ms: int | None = None
    """Time at which the need was first seen, ms; None if no decision noted the time."""
    recurring_broker: int | None = None
    """The broker that the plan is for, where its skew comes back at this time."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why control makes no plan now: the reason in one word, and a sentence."""

    reason: Reason
    why: str
    detail: str = ""
    """The sentence of the decision's row, where it is more than `why`."""
    resource: str | None = None
    max_over_mean: float | None = None

    @property
    def sentence(self) -> str:
        """Detail in the decision's row."""
        return self.detail or self.why


@dataclass(frozen=True, slots=True)
class NeedContext:
    """Everything that needs and gates of one decision may read."""

    state: TriggerState
    """State of earlier decisions, with what this decision observed."""
    observation: Observation
    policy: DecisionPolicy
    evidence: Evidence
    around: Surroundings
    placement: "PlacementStates"
    judged: Judged | None = None
    """What the windows show of load; None where the data are not sound."""
    proposed: ProposedPlan | None = None
    """The plan that was made; None before, and if no plan could be made."""
    refusal: CoreError | None = None
    """Why the planner could make no plan."""
    budget: DayBudget | None = None
    """Bytes that plans may still copy today; None if there is no limit, or none applies."""
    gain_of_noise: float = 0.0
    """The gain in max/mean that the plan could promise for noise alone."""

    @property
    def now_ms(self) -> int:
        """Returns the time of the decision, ms."""
        return self.observation.now_ms

    @property
    def trigger(self) -> TriggerPolicy:
        """Returns the thresholds of skew."""
        return self.policy.trigger

    @property
    def skews(self) -> tuple[SkewWindow, ...]:
        """The newest windows that count, oldest first."""
        return self.observation.skews[-self.trigger.windows_considered :]


def broker_failed(context: NeedContext) -> Need | None:
    """Brokers are offline for longer than the grace time: their replicas are to be created again elsewhere."""
    state, policy = context.state, context.trigger
    failed = brokers_failed(policy, state, context.now_ms)
    if not failed:
        return None
    since = offline_since_ms(state)
    names = ", ".join(f"{broker} ({(context.now_ms - since[broker]) / 60_000:.0f} min)" for broker in failed)
    text = f"away for longer than {policy.broker_failure_grace_ms / 60_000:.0f} min: broker {names}"
    return Need(Reason.BROKER_FAILED, text, failed, since_ms=min(since[broker] for broker in failed))


def log_dir_full(context: NeedContext) -> Need | None:
    """Log dirs are above the fill level: replicas are to move to other log dirs of their broker."""
    text = full_in_words(context.observation.log_dirs, context.policy.fill)
    if text is None or context.policy.fill is None:
        return None
    full = full_log_dirs(context.observation.log_dirs, context.policy.fill.fill_max)
    return Need(Reason.LOG_DIR_FULL, text, tuple(sorted({broker for broker, _ in full})))


def skewed(context: NeedContext) -> Need | Hold:
    """One broker is over the threshold for long enough, and nothing explains that it needs no plan.

    If the data are not sound nobody knows: the need counts, and the gate of sound data holds it.
    """
    judged, policy, state, around = context.judged, context.trigger, context.state, context.around
    if judged is None:
        return Need(Reason.SKEWED, "whether load is skewed is not known")
    settled, over = judged.settled, judged.over
    resource, broker, ratio = worst_of(judged.complete[-1])
    if not settled:
        return _no_skew(Reason.NOT_ENOUGH_WINDOWS, why_unsettled(state, judged.complete[-1]), resource, ratio)
    if over is None:
        doubt = doubted(policy, settled, around)
        if doubt is not None:
            why = f"{in_words(policy, settled, doubt[0], around)}; {doubt[2]}"
            return _no_skew(doubt[1], why, doubt[0].resource, settled[-1].max_over_mean(doubt[0].resource))
        reason = Reason.BALANCED if ratio <= policy.enter_ratio else Reason.NOT_ENOUGH_WINDOWS
        return _no_skew(reason, why_even(policy, state, settled, (resource, broker, ratio)), resource, ratio)
    text, ratio = in_words(policy, settled, over, around), settled[-1].max_over_mean(over.resource)
    known = recurrence(policy, settled, over, around)
    if known is None:
        return Need(Reason.SKEWED, text, (over.broker,), over.resource, ratio, over.since_ms)
    text = f"{text}; {known.in_words()}"
    return Need(Reason.SKEWED, text, (over.broker,), over.resource, ratio, over.since_ms, over.broker)


def _no_skew(reason: Reason, why: str, resource: str, ratio: float) -> Hold:
    return Hold(reason, why, resource=resource, max_over_mean=ratio)


def drained_broker(context: NeedContext) -> Need | None:
    """Brokers that are being drained hold replicas: new topics have come, or an execution left something behind."""
    return _lasting(Reason.DRAINED_BROKER, context)


def outside_set(context: NeedContext) -> Need | None:
    """Replicas are on brokers that may not hold their topic (`planner.broker_sets`)."""
    return _lasting(Reason.OUTSIDE_SET, context)


def crowded_racks(context: NeedContext) -> Need | None:
    """Partitions have more replicas in one rack than they need."""
    return _lasting(Reason.CROWDED_RACKS, context)


def empty_broker(context: NeedContext) -> Need | None:
    """Brokers are new or nearly empty."""
    return _lasting(Reason.EMPTY_BROKER, context)


def unpreferred_leaders(context: NeedContext) -> Need | None:
    """Preferred replicas could lead and do not."""
    return _lasting(Reason.UNPREFERRED_LEADERS, context)


def _lasting(reason: Reason, context: NeedContext) -> Need | None:
    """The state of the placement, once it has lasted for long enough."""
    since_ms = context.state.timers.of(LASTING).get((reason.value,))
    if since_ms is None or context.now_ms - since_ms < context.policy.lasting.needed_ms(reason):
        return None
    text = context.placement.in_words(reason, context.now_ms - since_ms)
    return Need(reason, text, context.placement.subjects(reason), since_ms=since_ms)


@dataclass(frozen=True, slots=True)
class PlacementStates:
    """States of the placement that a plan could fix now, however long they have lasted."""

    misplaced: tuple[PartitionKey, ...] = ()
    """Partitions with replicas on brokers outside the set of their topic."""
    crowded: tuple[PartitionKey, ...] = ()
    """Partitions with more replicas in one rack than the brokers in use need."""
    empty: tuple[int, ...] = ()
    """Brokers in use that are nearly empty."""
    unpreferred: tuple[PartitionKey, ...] = ()
    """Partitions that another than their preferred replica leads, though that one is alive and in sync."""
    drained: tuple[int, ...] = ()
    """Brokers that are alive, must end empty and hold replicas."""

    def holds(self, reason: Reason) -> bool:
        """Whether any broker or partition is in the state of this reason."""
        return bool(self.subjects(reason))

    def subjects(self, reason: Reason) -> Subjects:
        """Returns the brokers or partitions that are in the state of this reason."""
        by_reason: Mapping[Reason, Subjects] = {
            Reason.DRAINED_BROKER: self.drained,
            Reason.OUTSIDE_SET: self.misplaced,
            Reason.CROWDED_RACKS: self.crowded,
            Reason.EMPTY_BROKER: self.empty,
            Reason.UNPREFERRED_LEADERS: self.unpreferred,
        }
        return by_reason[reason]

    def in_words(self, reason: Reason, lasted_ms: int) -> str:
        """Returns the state of placement behind `reason` in words, with its extent and how long it has lasted.

        >>> PlacementStates(empty=(5,)).in_words(Reason.EMPTY_BROKER, 720_000)
        'brokers that are empty or nearly so, for 12 min: 5'
        """
        lasted = f"for {lasted_ms / 60_000:.0f} min"
        if reason is Reason.DRAINED_BROKER:
            return f"drained brokers that hold replicas, {lasted}: {first_named(self.drained, NAMED_MAX)}"
        if reason is Reason.EMPTY_BROKER:
            return f"brokers that are empty or nearly so, {lasted}: {first_named(self.empty, NAMED_MAX)}"
        if reason is Reason.OUTSIDE_SET:
            one, more = "is on a broker outside the set of its topic", "are on brokers outside the set of their topic"
            keys = self.misplaced
        elif reason is Reason.CROWDED_RACKS:
            one, more = "has more replicas in one rack than it needs", "have more replicas in one rack than they need"
            keys = self.crowded
        else:
            one, more = "is not led by its preferred replica", "are not led by their preferred replica"
            keys = self.unpreferred
        what = counted(len(keys), f"partition {one}", f"partitions {more}")
        return f"{what}, {lasted}: {first_named(keys, NAMED_MAX, partition_name)}"


def placement_states(
    live: LiveCluster,
    window: ClosedWindow | None,
    policy: LastingPolicy,
    *,
    counted: frozenset[int],
    planner: PlannerPolicy,
    drained: frozenset[int] = frozenset(),
) -> PlacementStates:
    """What could be fixed over the brokers that count, in topics that `planner` may move, which also has their sets of
    brokers; sorted. Brokers that are `drained` must hold no topic at all.
    """
    misplaced, crowded, unpreferred = live.once(
        ("placement", policy.placement_reasons, counted, planner.excluded_topics, planner.broker_sets),
        lambda: _to_be_fixed(live, policy.placement_reasons, counted, planner),
    )
    empty: tuple[int, ...] = ()
    if Reason.EMPTY_BROKER in policy.placement_reasons and window is not None:
        empty = _empty_brokers(live, window, policy.empty_broker_share, counted)
        if empty and planner.broker_sets:
            able = _may_hold_something(live, planner)
            empty = tuple(broker for broker in empty if broker in able)
    held = live.replica_counts() if drained else {}
    holding = tuple(broker for broker in sorted(drained & live.broker_racks.keys()) if held.get(broker))
    return PlacementStates(misplaced, crowded, empty, unpreferred, holding)


def _to_be_fixed(
    live: LiveCluster, reasons: Collection[Reason], counted: frozenset[int], planner: PlannerPolicy
) -> tuple[tuple[PartitionKey, ...], tuple[PartitionKey, ...], tuple[PartitionKey, ...]]:
    """Partitions outside the set of brokers of their topic, partitions in crowded racks, and those that their preferred
    replica could lead and does not.
    """
    rows = [(key, row) for key, row in live.partitions.items() if key[0] not in planner.excluded_topics]
    members = _members_by_topic(live, planner)
    misplaced: list[PartitionKey] = []
    if Reason.OUTSIDE_SET in reasons and members:
        of_sets = ((key, row) for key, row in rows if key[0] in members and not row.reassigning)
        outside = ((key, row.replicas) for key, row in of_sets if not members[key[0]].issuperset(row.replicas))
        misplaced = sorted(key for key, held in outside if counted.issuperset(held))
    crowded: list[PartitionKey] = []
    among = {some: RackSpread(live.broker_racks, counted & some) for some in {counted, *members.values()}}
    if Reason.CROWDED_RACKS in reasons and any(spread.shares_racks for spread in among.values()):
        spreads = ((key, row.replicas, among[members.get(key[0], counted)]) for key, row in rows if not row.reassigning)
        tight = ((key, held) for key, held, spread in spreads if spread.is_crowded(held))
        crowded = sorted(key for key, held in tight if counted.issuperset(held))
    unpreferred: list[PartitionKey] = []
    if Reason.UNPREFERRED_LEADERS in reasons:
        unpreferred = sorted(key for key, row in rows if _could_lead(row, counted))
    return tuple(misplaced), tuple(crowded), tuple(unpreferred)


def _members_by_topic(live: LiveCluster, planner: PlannerPolicy) -> dict[str, frozenset[int]]:
    """The brokers that alone may hold a topic, of topics that have a set."""
    found: dict[str, frozenset[int]] = {}
    for one in planner.broker_sets:
        members = frozenset(broker for broker, rack in live.broker_racks.items() if one.admits(broker, rack))
        found |= dict.fromkeys(one.topics - found.keys(), members)
    return found


def _may_hold_something(live: LiveCluster, planner: PlannerPolicy) -> frozenset[int]:
    """Brokers that may hold some topic that may be moved."""
    members, every = _members_by_topic(live, planner), frozenset(live.broker_racks)
    topics = {topic for topic, _ in live.partitions} - planner.excluded_topics
    return frozenset().union(*(members.get(topic, every) for topic in topics))


def _could_lead(row: LivePartition, counted: frozenset[int]) -> bool:
    """Whether the preferred replica does not lead, and could."""
    preferred = row.replicas[0]
    return (
        row.leader not in (preferred, NO_LEADER) and not row.reassigning and preferred in counted.intersection(row.isr)
    )


def _empty_brokers(live: LiveCluster, window: ClosedWindow, share: float, counted: frozenset[int]) -> tuple[int, ...]:
    """Brokers of `counted` below `share` of the mean of replicas and of every load that is known."""
    replicas = live.replica_counts()
    if not replicas:
        return ()
    figures = [{broker: float(replicas.get(broker, 0)) for broker in counted}]
    figures += [{broker: values.get(broker, 0.0) for broker in counted} for values in window.loads.values() if values]
    measured = [(row, sum(row.values()) / len(counted)) for row in figures if any(row.values())]
    return tuple(
        broker for broker in sorted(counted) if measured and all(row[broker] < share * mean for row, mean in measured)
    )


def full_log_dirs(log_dirs: LogDirs, fill_max: float) -> list[tuple[int, LogDirDescription]]:
    """(broker, log dir) above the fill level, the fullest first; brokers with one log dir are left out."""
    over = [
        (broker, row)
        for broker, rows in sorted(log_dirs.items())
        if len(rows) > 1
        for row in rows
        if is_over(row, fill_max)
    ]
    return sorted(over, key=lambda item: (-(item[1].used_share or 0.0), item[0], item[1].path))


def full_in_words(log_dirs: LogDirs, policy: FillPolicy | None) -> str | None:
    """Log dirs above the fill level, for people; None where there are none, or nobody wants to know.

    >>> rows = [LogDirDescription("/a", 1000, 50), LogDirDescription("/b", 1000, 900)]
    >>> full_in_words({2: rows}, FillPolicy())
    'log dirs above 85%: /a of broker 2 (95%)'
    """
    over = full_log_dirs(log_dirs, policy.fill_max) if policy is not None else []
    if policy is None or not over:
        return None
    named = first_named(over, NAMED_MAX, lambda item: f"{item[1].path} of broker {item[0]} ({item[1].used_share:.0%})")
    return f"log dirs above {policy.fill_max:.0%}: {named}"
