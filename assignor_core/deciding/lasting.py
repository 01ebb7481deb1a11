"""States of the placement that ask for a small plan if they last, skewed or not.

Each has a plan of its own that does no more than mend it: crowded racks are spread, an empty broker is filled,
preferred leaders are elected. Each such plan makes its
state smaller or is not made, so none follows itself without end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assignor_core.deciding.reasons import LASTING_REASONS, Reason
from assignor_core.deciding.trigger import TriggerState, is_continuous
from assignor_core.deciding.trigger_policy import TriggerPolicy
from assignor_core.deciding.windows import ClosedWindow
from assignor_core.errors import InputError
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey, partition_name
from assignor_core.plan import TAKE_NONE, Plan
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.racks import RackSpread
from assignor_core.wording import counted, first_named

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class LastingPolicy:
    """Which states ask for a plan, and how long each must last; raises InputError on a value out of range."""

    reasons: frozenset[Reason] = frozenset(LASTING_REASONS)
    empty_broker_share: float = 0.2
    """A broker with less than this share of the mean of replicas, and of each known load, is nearly empty."""
    grace_ms: int = 600_000
    """So long racks must be crowded or a broker be empty."""
    leaders_grace_ms: int = 1_800_000
    """So long preferred replicas must not lead: Kafka elects those by itself every five minutes where it may."""

    def __post_init__(self) -> None:
        unknown = sorted(self.reasons - set(LASTING_REASONS))
        if unknown:
            raise InputError(f"reasons: found {unknown[0]}, allowed are {', '.join(LASTING_REASONS)}")
        if not 0.0 <= self.empty_broker_share < 1.0:
            raise InputError(f"empty_broker_share must be 0 to below 1, found {self.empty_broker_share}")

    def needed_ms(self, reason: Reason) -> int:
        """How long it must last."""
        return self.leaders_grace_ms if reason is Reason.UNPREFERRED_LEADERS else self.grace_ms


@dataclass(frozen=True, slots=True)
class PlacementStates:
    """What of the placement could be mended now, whether or not it lasts."""

    crowded: tuple[PartitionKey, ...] = ()
    """Partitions with more replicas in one rack than the brokers in use need."""
    empty: tuple[int, ...] = ()
    """Brokers in use that hold next to nothing."""
    unpreferred: tuple[PartitionKey, ...] = ()
    """Partitions that another than their preferred replica leads, though that one is alive and in sync."""

    def holds(self, reason: Reason) -> bool:
        """Whether there is anything of it."""
        return bool(self.subjects(reason))

    def subjects(self, reason: Reason) -> tuple[int, ...] | tuple[PartitionKey, ...]:
        """Brokers or partitions that it is about."""
        by_reason: Mapping[Reason, tuple[int, ...] | tuple[PartitionKey, ...]] = {
            Reason.CROWDED_RACKS: self.crowded,
            Reason.EMPTY_BROKER: self.empty,
            Reason.UNPREFERRED_LEADERS: self.unpreferred,
        }
        return by_reason[reason]

    def in_words(self, reason: Reason, lasted_ms: int) -> str:
        """What it is, with how much of it there is and how long it has lasted.

        >>> PlacementStates(empty=(5,)).in_words(Reason.EMPTY_BROKER, 720_000)
        'brokers that are empty or nearly so, for 12 min: 5'
        """
        lasted = f"for {lasted_ms / 60_000:.0f} min"
        if reason is Reason.EMPTY_BROKER:
            return f"brokers that are empty or nearly so, {lasted}: {first_named(self.empty, NAMED_MAX)}"
        if reason is Reason.CROWDED_RACKS:
            one, more = "has more replicas in one rack than it needs", "have more replicas in one rack than they need"
            keys = self.crowded
        else:
            one, more = "is not led by its preferred replica", "are not led by their preferred replica"
            keys = self.unpreferred
        what = counted(len(keys), f"partition {one}", f"partitions {more}")
        return f"{what}, {lasted}: {first_named(keys, NAMED_MAX, partition_name)}"


def placement_states(
    live: LiveCluster,
    window: ClosedWindow,
    policy: LastingPolicy,
    *,
    counted: frozenset[int],
    excluded_topics: frozenset[str],
) -> PlacementStates:
    """What could be mended over the brokers that count, in topics that may be moved; sorted."""
    crowded, unpreferred = live.once(
        ("placement", policy.reasons, counted, excluded_topics),
        lambda: _misplaced(live, policy.reasons, counted, excluded_topics),
    )
    empty: tuple[int, ...] = ()
    if Reason.EMPTY_BROKER in policy.reasons:
        empty = _empty_brokers(live, window, policy.empty_broker_share, counted)
    return PlacementStates(crowded, empty, unpreferred)


def _misplaced(
    live: LiveCluster, reasons: frozenset[Reason], counted: frozenset[int], excluded_topics: frozenset[str]
) -> tuple[tuple[PartitionKey, ...], tuple[PartitionKey, ...]]:
    """Partitions in crowded racks, and those that their preferred replica could lead and does not."""
    rows = [(key, row) for key, row in live.partitions.items() if key[0] not in excluded_topics]
    crowded: list[PartitionKey] = []
    spread = RackSpread(live.broker_racks, counted)
    if Reason.CROWDED_RACKS in reasons and spread.shares_racks:
        resting = ((key, row.replicas) for key, row in rows if not row.reassigning)
        crowded = sorted(key for key, held in resting if spread.is_crowded(held) and counted.issuperset(held))
    unpreferred: list[PartitionKey] = []
    if Reason.UNPREFERRED_LEADERS in reasons:
        unpreferred = sorted(key for key, row in rows if _could_lead(row, counted))
    return tuple(crowded), tuple(unpreferred)


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


def with_lasting(trigger: TriggerPolicy, state: TriggerState, states: PlacementStates, now_ms: int) -> TriggerState:
    """Notes what is newly seen and forgets what is over. To be called before the trigger's step, which notes the time.

    After a gap without evaluations nobody knows what was in between: the time starts again.
    """
    known = dict(state.lasting_since_ms) if is_continuous(trigger, state, now_ms) else {}
    seen = tuple((reason.value, known.get(reason, now_ms)) for reason in LASTING_REASONS if states.holds(reason))
    return state if seen == state.lasting_since_ms else replace(state, lasting_since_ms=seen)


def lasting_reasons(policy: LastingPolicy, state: TriggerState, now_ms: int) -> tuple[tuple[Reason, int], ...]:
    """(reason, how long it has lasted in ms) of what has lasted for long enough, in the order of their plans."""
    lasted = ((Reason(reason), now_ms - since_ms) for reason, since_ms in state.lasting_since_ms)
    return tuple((reason, ms) for reason, ms in lasted if ms >= policy.needed_ms(reason))


def small_policy(reason: Reason, states: PlacementStates, base: PlannerPolicy, brokers: int) -> PlannerPolicy:
    """The policy of a plan that mends `reason` and nothing else; `brokers` is how many are in use."""
    if reason is Reason.CROWDED_RACKS:
        return replace(base, rules_only=True)
    return base.to_fill(frozenset(states.empty), brokers)


def not_mended(reason: Reason, states: PlacementStates, plan: Plan) -> str | None:
    """Why `plan` mends nothing of `reason`, in words; None if it does."""
    if plan.within_brokers:
        return None
    moved = {movement.key for movement in plan.movements}
    taking = {
        broker for movement in plan.movements for broker in set(movement.new_replicas) - set(movement.old_replicas)
    }
    if moved.intersection(states.crowded if reason is Reason.CROWDED_RACKS else states.unpreferred):
        return None
    if reason is Reason.EMPTY_BROKER and taking.intersection(states.empty):
        return None
    causes = [*plan.problems, *(line for line in plan.diagnosis if line.startswith(TAKE_NONE))]
    return "; ".join(("no plan changes that", *causes))
