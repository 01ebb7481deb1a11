"""When skew is worth a plan: one pure step per closed window.

The trigger looks at `SkewWindow`s (figures of one closed window) and remembers nothing but `TriggerState`, which the
caller keeps. A plan needs the same broker over `enter_ratio` in k of the newest n windows, the newest one included, and
all of them from after the last change of the placement: windows from before a move show what the move has mended. The
breach, which alerts show, ends only below `exit_ratio`; it starts no plan by itself. A cooldown, a floor of absolute
load, a floor of completeness and a running reassignment keep the trigger from acting at the wrong time; consumers that
fall behind on the hot broker make it sooner; a broker that is gone for too long comes first. Every step gives its
reason. It knows no planner, no table and no clock: `now_ms` is an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from assignor_core.errors import InputError
from assignor_core.live import too_many_away


class Verdict(StrEnum):
    """What should follow from an evaluation."""

    PLAN = "plan"
    HOLD = "hold"


class Reason(StrEnum):
    """Why; one word for tables and metrics."""

    SKEWED = "skewed"
    BROKER_FAILED = "broker_failed"
    LOG_DIR_FULL = "log_dir_full"
    CROWDED_RACKS = "crowded_racks"
    EMPTY_BROKER = "empty_broker"
    UNPREFERRED_LEADERS = "unpreferred_leaders"
    BALANCED = "balanced"
    NOT_ENOUGH_WINDOWS = "not_enough_windows"
    INCOMPLETE = "incomplete"
    STALE_DATA = "stale_data"
    LOW_LOAD = "low_load"
    IN_PROGRESS = "in_progress"
    COOLDOWN = "cooldown"
    GIVEN_UP = "given_up"
    MAINTENANCE_WINDOW = "maintenance_window"
    CATCHING_UP = "catching_up"
    LOADS_DISAGREE = "loads_disagree"
    MIN_GAIN = "min_gain"
    TOO_MANY_AWAY = "too_many_away"
    NO_ROOM = "no_room"
    UNHEALTHY = "unhealthy"
    DAY_BUDGET = "day_budget"
    DRY_RUN = "dry_run"


LASTING_REASONS = (Reason.CROWDED_RACKS, Reason.EMPTY_BROKER, Reason.UNPREFERRED_LEADERS)
"""States of the placement that get a plan if they last, in the order in which they do; see `deciding.lasting`."""
OWN_PLANS = (Reason.LOG_DIR_FULL, *LASTING_REASONS)
"""Reasons whose small plans are judged by what they mend, not by skew."""


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """Thresholds are ratios to the mean (1 = even), times ms, load bytes/s per broker."""

    enter_ratio: float = 1.30
    exit_ratio: float = 1.15
    windows_over: int = 3
    windows_considered: int = 5
    windows_over_urgent: int = 2
    """Instead of `windows_over`, where groups that read from the hot broker fall behind."""
    cooldown_ms: int = 600_000
    completeness_min: float = 0.95
    load_min_bytes_per_sec: float = 100_000.0
    stale_after_ms: int = 360_000
    broker_failure_grace_ms: int = 1_800_000
    """A broker that is away for longer has failed; a restart or an upgrade takes less."""
    relief_max_away_share: float = 0.40
    """With a larger share of the brokers away their replicas are not made anew: that is an outage, and its end brings
    them back; the rest can't carry them all. Cruise Control's `fixable.failed.broker.percentage.threshold`."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.relief_max_away_share <= 1.0:
            raise InputError(f"relief_max_away_share must be 0 to 1, found {self.relief_max_away_share}")
        if not 1.0 <= self.exit_ratio < self.enter_ratio:
            raise InputError(f"thresholds must be 1 <= exit < enter, found {self.exit_ratio} and {self.enter_ratio}")
        if not 1 <= self.windows_over <= self.windows_considered:
            raise InputError(f"windows must be 1 <= k <= n, found {self.windows_over} and {self.windows_considered}")
        if self.windows_over_urgent < 1:
            raise InputError(f"windows_over_urgent must be 1 or more, found {self.windows_over_urgent}")


@dataclass(frozen=True, slots=True)
class SkewWindow:
    """One closed window: each broker's load over the mean and the mean itself, by resource; how many reported."""

    window_end_ms: int
    ratios: Mapping[str, Mapping[int, float]]
    """resource: broker: load over mean load; utilisation where capacities are known."""
    mean_load: Mapping[str, float]
    brokers_expected: int
    brokers_reporting: int
    length_ms: int = 0

    @property
    def window_start_ms(self) -> int:
        """Start of the window, inclusive."""
        return self.window_end_ms - self.length_ms

    @property
    def completeness(self) -> float:
        """Share of the expected brokers that reported, 0 to 1."""
        return min(1.0, self.brokers_reporting / self.brokers_expected) if self.brokers_expected else 0.0

    def max_over_mean(self, resource: str) -> float:
        """The one figure of a resource; 1 where nothing is known."""
        return max(self.ratios.get(resource, {}).values(), default=1.0)


@dataclass(frozen=True, slots=True)
class TriggerState:
    """What must be remembered between evaluations; `breached_since_ms` is None while the load counts as even."""

    breached_since_ms: int | None = None
    """End of the first of the windows that made the breach."""
    breached_resource: str | None = None
    breached_broker: int | None = None
    cooldown_end_ms: int = 0
    missing_since_ms: tuple[tuple[int, int], ...] = ()
    """(broker, when it was first seen to be gone while it hosts replicas), by broker."""
    waiting_plan_id: str | None = None
    """Plan that waits for a maintenance window; the caller's to set and clear."""
    waiting_load: float = 0.0
    """Mean load it was made at: a plan made at a higher one takes its place."""
    waiting_failed: tuple[int, ...] = ()
    """Brokers whose replicas it makes anew since they have failed; none where it is for skew."""
    waiting_reason: str = ""
    """Why it was made, where that is one of `deciding.lasting`."""
    lasting_since_ms: tuple[tuple[str, int], ...] = ()
    """(reason, when it was first seen), by reason; see `deciding.lasting`."""
    lagging_since_ms: tuple[tuple[str, int, int], ...] = ()
    """(topic, partition, when it was first seen to be under-replicated), by partition; see `deciding.health`."""
    changed_ms: int = 0
    """When replicas or leaders were last moved: no plan for skew rests on windows that began before."""
    evaluated_ms: int = 0
    """Time of the newest step; 0 before the first."""

    def __post_init__(self) -> None:
        # JSON, in which the state is kept, knows lists only.
        pairs = tuple((int(broker), int(since_ms)) for broker, since_ms in self.missing_since_ms)
        object.__setattr__(self, "missing_since_ms", pairs)
        object.__setattr__(self, "waiting_failed", tuple(self.waiting_failed))
        lasting = tuple((str(reason), int(since_ms)) for reason, since_ms in self.lasting_since_ms)
        object.__setattr__(self, "lasting_since_ms", lasting)
        object.__setattr__(self, "lagging_since_ms", tuple(tuple(row) for row in self.lagging_since_ms))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one step: what follows, why in one word, why in a sentence, and which resource decided."""

    verdict: Verdict
    reason: Reason
    detail: str
    resource: str | None
    max_over_mean: float | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is known of the cluster when a step is taken."""

    reassigning_count: int = 0
    """Partitions that are being reassigned, by anybody."""
    changed_ms: int = 0
    """End of the newest execution that changed the cluster; 0 where there was none."""
    missing_brokers: frozenset[int] = frozenset()
    """Brokers that host replicas which could be made anew elsewhere, and are not alive."""
    alive_count: int = 0
    """Brokers that are alive."""
    behind: Mapping[int, str] = field(default_factory=dict)
    """broker: the groups that read from it and fall behind, in words."""
    away_since_ms: Mapping[int, int] = field(default_factory=dict)
    """Since when brokers have been away without a break, where an execution has watched them: no step is taken then."""


NOTHING_ELSE = Surroundings()


def step(
    policy: TriggerPolicy,
    state: TriggerState,
    windows: tuple[SkewWindow, ...],
    around: Surroundings = NOTHING_ELSE,
    *,
    now_ms: int,
) -> tuple[TriggerState, Evaluation]:
    """Evaluate the newest windows (oldest first); returns the new state and what follows.

    >>> windows = tuple(SkewWindow(t, {"bytes_in": {1: 1.5, 2: 0.5}}, {"bytes_in": 1e6}, 2, 2) for t in (10, 20, 30))
    >>> policy = TriggerPolicy(windows_over=2, windows_considered=3)
    >>> state, found = step(policy, TriggerState(), windows, now_ms=40)
    >>> found.verdict, found.reason, state.breached_since_ms, state.breached_broker
    (<Verdict.PLAN: 'plan'>, <Reason.SKEWED: 'skewed'>, 20, 1)
    """
    state = _with_surroundings(policy, state, around, now_ms)
    considered = windows[-policy.windows_considered :]
    unusable = _unusable(policy, considered, now_ms)
    failed = brokers_failed(policy, state, now_ms)
    if unusable is not None:
        # Brokers that send nothing hold back what evens out load, not what replaces lost replicas.
        if failed and unusable.reason is Reason.INCOMPLETE:
            return state, _for_failed(policy, state, failed, around, now_ms)
        return state, unusable
    complete = tuple(window for window in considered if window.completeness >= policy.completeness_min)
    # While replicas move nothing is planned anyway: the windows only show whether the reason is that.
    settled = complete if around.reassigning_count else settled_windows(state, complete)
    over = entering(policy, settled, around)
    state = _after_hysteresis(policy, state, settled, over)
    if failed:
        return state, _for_failed(policy, state, failed, around, now_ms)
    resource, broker, ratio = _worst(complete[-1])
    if not settled:
        return state, _hold(Reason.NOT_ENOUGH_WINDOWS, _unsettled(state, complete[-1]), resource, ratio)
    if over is None:
        reason = Reason.BALANCED if ratio <= policy.enter_ratio else Reason.NOT_ENOUGH_WINDOWS
        return state, _hold(reason, _even(policy, state, settled, (resource, broker, ratio)), resource, ratio)
    return state, _when_entering(policy, state, settled, over, around, now_ms)


def after_plan(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> TriggerState:
    """State once a plan was made: the cooldown runs from now."""
    return replace(state, cooldown_end_ms=now_ms + policy.cooldown_ms)


def is_continuous(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> bool:
    """Whether the newest step is so recent that what was seen then and is seen now has lasted in between."""
    return now_ms - state.evaluated_ms <= policy.stale_after_ms


def brokers_failed(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> tuple[int, ...]:
    """Brokers that have been away for longer than the grace time, ascending."""
    grace_ms = policy.broker_failure_grace_ms
    return tuple(broker for broker, since_ms in state.missing_since_ms if now_ms - since_ms >= grace_ms)


def brokers_over(policy: TriggerPolicy, window: SkewWindow) -> tuple[int, ...]:
    """Brokers over `enter_ratio` in one window, ascending."""
    return tuple(sorted({broker for _, _, broker in _over(policy, window)}))


def settled_windows(state: TriggerState, windows: tuple[SkewWindow, ...]) -> tuple[SkewWindow, ...]:
    """Windows that began after the last change of the placement."""
    return tuple(window for window in windows if window.window_start_ms >= state.changed_ms)


def entering(
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], around: Surroundings = NOTHING_ELSE
) -> "Over | None":
    """The worst broker that is over `enter_ratio` in the newest of `windows` and in enough of them; None of none.

    The same broker: noise lifts now one, now another, and a plan that follows it moves load to and fro.
    """
    for _, resource, broker in _over(policy, windows[-1]) if windows else ():
        over = _windows_over(policy, windows, resource, broker)
        needed = _windows_needed(policy, broker, around)
        if len(over) >= needed:
            return Over(resource, broker, over[-needed])
    return None


@dataclass(frozen=True, slots=True)
class Over:
    """A broker that has been over the threshold for long enough."""

    resource: str
    broker: int
    since_ms: int
    """End of the oldest window that was needed to decide it."""


def _with_surroundings(policy: TriggerPolicy, state: TriggerState, around: Surroundings, now_ms: int) -> TriggerState:
    """Notes brokers that are newly gone, forgets those that are back, and notes changes of the placement.

    After a gap without evaluations nobody knows whether a broker was away all the time: its time starts again.
    """
    since = dict(around.away_since_ms)
    if is_continuous(policy, state, now_ms):
        since |= dict(state.missing_since_ms)
    missing = tuple((broker, since.get(broker, now_ms)) for broker in sorted(around.missing_brokers))
    changed_ms = now_ms if around.reassigning_count else max(state.changed_ms, around.changed_ms)
    return replace(state, missing_since_ms=missing, changed_ms=changed_ms, evaluated_ms=now_ms)


def _unusable(policy: TriggerPolicy, windows: tuple[SkewWindow, ...], now_ms: int) -> Evaluation | None:
    """Why the data can't be judged, if so; the breach then stays as it was."""
    if not windows:
        return _hold(Reason.NOT_ENOUGH_WINDOWS, "no closed window yet")
    newest = windows[-1]
    age_ms = now_ms - newest.window_end_ms
    if age_ms > policy.stale_after_ms:
        return _hold(Reason.STALE_DATA, f"the newest closed window ended {age_ms / 1000:.0f} s ago")
    if newest.completeness < policy.completeness_min:
        detail = f"{newest.brokers_reporting} of {newest.brokers_expected} brokers reported in the newest window"
        return _hold(Reason.INCOMPLETE, detail)
    return None


def _after_hysteresis(
    policy: TriggerPolicy, state: TriggerState, settled: tuple[SkewWindow, ...], over: Over | None
) -> TriggerState:
    """The breach begins with the entering rule, and ends once no broker is over `exit_ratio` in the newest window."""
    if over is not None:
        since_ms = over.since_ms if state.breached_since_ms is None else state.breached_since_ms
        return replace(state, breached_since_ms=since_ms, breached_resource=over.resource, breached_broker=over.broker)
    if state.breached_since_ms is None or not settled:
        return state
    newest = settled[-1]
    if all(newest.max_over_mean(resource) < policy.exit_ratio for resource in newest.ratios):
        return replace(state, breached_since_ms=None, breached_resource=None, breached_broker=None)
    return state


def _over(policy: TriggerPolicy, window: SkewWindow) -> list[tuple[float, str, int]]:
    """(ratio, resource, broker) over the threshold, the worst first."""
    rows = [
        (ratio, resource, broker)
        for resource, ratios in window.ratios.items()
        for broker, ratio in ratios.items()
        if ratio > policy.enter_ratio
    ]
    return sorted(rows, key=lambda row: (-row[0], row[1], row[2]))


def _windows_over(
    policy: TriggerPolicy, complete: tuple[SkewWindow, ...], resource: str, broker: int
) -> tuple[int, ...]:
    """Ends of the windows in which this broker is over the threshold, oldest first."""
    return tuple(
        window.window_end_ms
        for window in complete
        if window.ratios.get(resource, {}).get(broker, 1.0) > policy.enter_ratio
    )


def _windows_needed(policy: TriggerPolicy, broker: int, around: Surroundings) -> int:
    return min(policy.windows_over, policy.windows_over_urgent) if broker in around.behind else policy.windows_over


def _for_failed(
    policy: TriggerPolicy, state: TriggerState, failed: tuple[int, ...], around: Surroundings, now_ms: int
) -> Evaluation:
    """Replicas of brokers that have failed are to be made anew, unless something speaks against it now."""
    held = _held_back(state, around, now_ms, None, None)
    if held is not None:
        return held
    outage = too_many_away(len(around.missing_brokers), around.alive_count, policy.relief_max_away_share)
    if outage is not None:
        return _hold(Reason.TOO_MANY_AWAY, outage)
    since = dict(state.missing_since_ms)
    names = ", ".join(f"{broker} ({(now_ms - since[broker]) / 60_000:.0f} min)" for broker in failed)
    detail = f"away for longer than {policy.broker_failure_grace_ms / 60_000:.0f} min: broker {names}"
    return Evaluation(Verdict.PLAN, Reason.BROKER_FAILED, detail, None, None)


def _when_entering(
    policy: TriggerPolicy,
    state: TriggerState,
    settled: tuple[SkewWindow, ...],
    over: Over,
    around: Surroundings,
    now_ms: int,
) -> Evaluation:
    """A broker is over the threshold for long enough: plan, unless something speaks against it now."""
    newest, resource = settled[-1], over.resource
    ratio = newest.max_over_mean(resource)
    load = newest.mean_load.get(resource, 0.0)
    if load < policy.load_min_bytes_per_sec:
        detail = f"mean {resource} {load:.0f} B/s per broker is below the floor {policy.load_min_bytes_per_sec:.0f} B/s"
        return _hold(Reason.LOW_LOAD, detail, resource, ratio)
    held = _held_back(state, around, now_ms, resource, ratio)
    if held is not None:
        return held
    if state.missing_since_ms:
        # Any plan would make its replicas anew, and it may only be restarting.
        broker, since_ms = state.missing_since_ms[0]
        detail = f"broker {broker} has been away for {(now_ms - since_ms) / 1000:.0f} s: it may come back"
        return _hold(Reason.INCOMPLETE, detail, resource, ratio)
    return Evaluation(Verdict.PLAN, Reason.SKEWED, _skewed(policy, settled, over, around), resource, ratio)


def _held_back(
    state: TriggerState, around: Surroundings, now_ms: int, resource: str | None, ratio: float | None
) -> Evaluation | None:
    """What forbids any plan now, or None."""
    if around.reassigning_count:
        return _hold(Reason.IN_PROGRESS, f"{around.reassigning_count} partitions are being reassigned", resource, ratio)
    if now_ms < state.cooldown_end_ms:
        left_s = (state.cooldown_end_ms - now_ms) / 1000
        return _hold(Reason.COOLDOWN, f"cooldown after the last plan runs for {left_s:.0f} s more", resource, ratio)
    return None


def _skewed(policy: TriggerPolicy, settled: tuple[SkewWindow, ...], over: Over, around: Surroundings) -> str:
    windows_over = len(_windows_over(policy, settled, over.resource, over.broker))
    detail = (
        f"{over.resource} max/mean {settled[-1].max_over_mean(over.resource):.3f}; broker {over.broker} over "
        f"{policy.enter_ratio} in {windows_over} of the last {len(settled)} windows"
    )
    if over.broker not in around.behind:
        return detail
    needed = _windows_needed(policy, over.broker, around)
    groups = around.behind[over.broker]
    return f"{detail}; urgent, {needed} windows are enough: groups that read from it fall behind ({groups})"


def _even(
    policy: TriggerPolicy, state: TriggerState, settled: tuple[SkewWindow, ...], worst: tuple[str, int, float]
) -> str:
    """Why no broker makes a plan, not even the hottest of the newest window."""
    resource, broker, ratio = worst
    if ratio > policy.enter_ratio:
        over = len(_windows_over(policy, settled, resource, broker))
        return (
            f"{resource} max/mean {ratio:.3f}; broker {broker} is over {policy.enter_ratio} in {over} windows, "
            f"{policy.windows_over} needed"
        )
    detail = f"worst is {resource} max/mean {ratio:.3f}, at most {policy.enter_ratio} allowed"
    if state.breached_since_ms is None:
        return detail
    return f"{detail}; it counts as skewed until it is below {policy.exit_ratio}"


def _unsettled(state: TriggerState, newest: SkewWindow) -> str:
    since_s = (newest.window_end_ms - state.changed_ms) / 1000
    return f"no window has begun since replicas were moved, {max(0.0, since_s):.0f} s before the newest window ended"


def _worst(window: SkewWindow) -> tuple[str, int, float]:
    """(resource, broker, ratio) of the hottest broker."""
    rows = (
        (-ratio, resource, broker) for resource, ratios in window.ratios.items() for broker, ratio in ratios.items()
    )
    minus_ratio, resource, broker = min(rows, default=(-1.0, "bytes_in", -1))
    return resource, broker, -minus_ratio


def _hold(reason: Reason, detail: str, resource: str | None = None, ratio: float | None = None) -> Evaluation:
    return Evaluation(Verdict.HOLD, reason, detail, resource, ratio)
