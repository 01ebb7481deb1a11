"""When skew is worth a plan: one pure step per closed window.

The trigger looks at `SkewWindow`s (figures of one closed window) and remembers nothing but `TriggerState`, which the
caller keeps. A plan needs the same broker over `enter_ratio` in k of the newest n windows, the newest one included, and
all of them from after the last change of the placement: windows from before a move show what the move has mended. The
breach, which alerts show, ends only below `exit_ratio`; it starts no plan by itself. A cooldown, a floor of absolute
load, a floor of completeness and a running reassignment keep the trigger from acting at the wrong time; consumers that
fall behind on the hot broker make it sooner; a broker that is gone for too long comes first. Every step gives its
reason. It knows no planner, no table and no clock: `now_ms` is an argument.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from assignor_core.deciding.entering import (
    NOTHING_ELSE,
    RECURRING_PLANNED_EVERY_DAYS,
    Over,
    Surroundings,
    brokers_over,
    doubted,
    ends_over,
    entering,
    is_even,
    recurrence,
    windows_needed,
)
from assignor_core.deciding.futile import Futile
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.recurring import DAY_MS
from assignor_core.deciding.trigger_policy import TriggerPolicy
from assignor_core.deciding.windows import SkewWindow
from assignor_core.live import too_many_away
from assignor_core.wording import counted


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
    recurring_planned_ms: tuple[tuple[int, int], ...] = ()
    """(broker, when a plan for its recurring skew was last made), by broker."""
    futile: tuple[Futile, ...] = ()
    """Plans that gained too little, one for each reason; see `deciding.futile`."""
    changed_ms: int = 0
    """When replicas or leaders were last moved: no plan for skew rests on windows that began before."""
    evaluated_ms: int = 0
    """Time of the newest step; 0 before the first."""
    broker_since_ms: int | None = None
    """End of the first of the windows that brought `breached_broker` over; None where nobody noted it."""

    def __post_init__(self) -> None:
        # JSON, in which the state is kept, knows lists only.
        pairs = tuple((int(broker), int(since_ms)) for broker, since_ms in self.missing_since_ms)
        object.__setattr__(self, "missing_since_ms", pairs)
        recurring = tuple((int(broker), int(planned_ms)) for broker, planned_ms in self.recurring_planned_ms)
        object.__setattr__(self, "recurring_planned_ms", recurring)
        object.__setattr__(self, "waiting_failed", tuple(self.waiting_failed))
        lasting = tuple((str(reason), int(since_ms)) for reason, since_ms in self.lasting_since_ms)
        object.__setattr__(self, "lasting_since_ms", lasting)
        object.__setattr__(self, "lagging_since_ms", tuple(tuple(row) for row in self.lagging_since_ms))
        futile = tuple(Futile(**row) if isinstance(row, dict) else row for row in self.futile)
        object.__setattr__(self, "futile", futile)

    @property
    def skewed_since_ms(self) -> int | None:
        """Since when the broker that a plan would be for has been over: another one may have begun the breach."""
        return self.breached_since_ms if self.broker_since_ms is None else self.broker_since_ms


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one step: what follows, why in one word, why in a sentence, and which resource decided."""

    verdict: Verdict
    reason: Reason
    detail: str
    resource: str | None
    max_over_mean: float | None
    recurring_broker: int | None = None
    """The broker that the plan is for, where its skew comes back at this time."""


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
    state = without_times_ahead(policy, state, now_ms)
    changed_ms = _last_change_ms(state, around.changed_ms, now_ms)
    if changed_ms != around.changed_ms:
        around = replace(around, changed_ms=changed_ms)
    state = _with_surroundings(policy, state, around, now_ms)
    considered = windows[-policy.windows_considered :]
    unusable = _unusable(policy, considered, now_ms)
    failed = brokers_failed(policy, state, now_ms)
    if unusable is not None:
        # Brokers that send nothing hold back what evens out load, not what replaces lost replicas.
        if failed and unusable.reason is Reason.INCOMPLETE:
            return state, _for_failed(policy, state, failed, around, now_ms)
        return state, unusable
    complete = complete_windows(policy, considered)
    # While replicas move nothing is planned anyway: the windows only show whether the reason is that.
    settled = complete if around.reassigning_count else settled_windows(state, complete)
    over = entering(policy, settled, around)
    state = _after_hysteresis(policy, state, settled, over, around)
    if failed:
        return state, _for_failed(policy, state, failed, around, now_ms)
    resource, broker, ratio = _worst(complete[-1])
    if not settled:
        return state, _hold(Reason.NOT_ENOUGH_WINDOWS, _unsettled(state, complete[-1]), resource, ratio)
    if over is None:
        doubt = doubted(policy, settled, around)
        if doubt is not None:
            ratio = settled[-1].max_over_mean(doubt[0].resource)
            detail = f"{_skewed(policy, settled, doubt[0], around)}; {doubt[2]}"
            return state, _hold(doubt[1], detail, doubt[0].resource, ratio)
        reason = Reason.BALANCED if ratio <= policy.enter_ratio else Reason.NOT_ENOUGH_WINDOWS
        return state, _hold(reason, _even(policy, state, settled, (resource, broker, ratio)), resource, ratio)
    return state, _when_entering(policy, state, settled, over, around, now_ms)


def after_plan(
    policy: TriggerPolicy, state: TriggerState, now_ms: int, recurring_broker: int | None = None
) -> TriggerState:
    """State once a plan was made: the cooldown runs from now."""
    planned = dict(state.recurring_planned_ms)
    if recurring_broker is not None:
        planned[recurring_broker] = now_ms
    recent = tuple(sorted(row for row in planned.items() if now_ms - row[1] < RECURRING_PLANNED_EVERY_DAYS * DAY_MS))
    return replace(state, cooldown_end_ms=now_ms + policy.cooldown_ms, recurring_planned_ms=recent)


def is_continuous(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> bool:
    """Whether the newest step is so recent that what was seen then and is seen now has lasted in between."""
    return 0 <= now_ms - state.evaluated_ms <= policy.stale_after_ms


def without_times_ahead(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> TriggerState:
    """`state` without times that are still to come: a clock that was ahead has written them, and they would hold back
    plans until real time is there. `evaluated_ms` stays, as it shows that this was so.
    """
    seen: dict[str, tuple[tuple[Any, ...], ...]] = {
        "missing_since_ms": state.missing_since_ms,
        "lasting_since_ms": state.lasting_since_ms,
        "lagging_since_ms": state.lagging_since_ms,
        "recurring_planned_ms": state.recurring_planned_ms,
    }
    ahead = {name: rows for name, rows in seen.items() if any(row[-1] > now_ms for row in rows)}
    cooldown_end_ms = min(state.cooldown_end_ms, now_ms + policy.cooldown_ms)
    if not ahead and cooldown_end_ms == state.cooldown_end_ms and state.changed_ms <= now_ms:
        return state
    past: dict[str, Any] = {
        name: tuple((*row[:-1], min(row[-1], now_ms)) for row in rows) for name, rows in ahead.items()
    }
    return replace(state, cooldown_end_ms=cooldown_end_ms, changed_ms=min(state.changed_ms, now_ms), **past)


def brokers_failed(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> tuple[int, ...]:
    """Brokers that have been away for longer than the grace time, ascending."""
    grace_ms = policy.broker_failure_grace_ms
    return tuple(broker for broker, since_ms in state.missing_since_ms if now_ms - since_ms >= grace_ms)


def complete_windows(policy: TriggerPolicy, windows: Iterable[SkewWindow]) -> tuple[SkewWindow, ...]:
    """Windows that enough brokers reported in."""
    return tuple(window for window in windows if window.completeness >= policy.completeness_min)


def settled_windows(state: TriggerState, windows: tuple[SkewWindow, ...]) -> tuple[SkewWindow, ...]:
    """Windows that began after the last change of the placement."""
    return tuple(window for window in windows if window.window_start_ms >= state.changed_ms)


def may_be_urgent(
    policy: TriggerPolicy, state: TriggerState, windows: tuple[SkewWindow, ...], around: Surroundings
) -> frozenset[int]:
    """Brokers over the threshold, if groups that fall behind on one of them can decide something: not while a skew
    that counts already goes on without them. `around` is all else that is known.
    """
    hot = frozenset(brokers_over(policy, windows[-1]))
    if not hot or state.breached_since_ms is None:
        return hot
    since = replace(state, changed_ms=max(state.changed_ms, around.changed_ms))
    settled = settled_windows(since, complete_windows(policy, windows[-policy.windows_considered :]))
    return hot if entering(policy, settled, around) is None else frozenset()


def _last_change_ms(state: TriggerState, changed_ms: int, now_ms: int) -> int:
    """When replicas or leaders were last moved, if an execution is noted to have ended at `changed_ms`.

    An end that a clock has dated ahead lies in the past. It counts as of the first step that sees it, and not anew at
    each one: no window would ever begin after it.
    """
    if changed_ms <= now_ms:
        return changed_ms
    return state.changed_ms if 0 < state.evaluated_ms <= now_ms else now_ms


def _with_surroundings(policy: TriggerPolicy, state: TriggerState, around: Surroundings, now_ms: int) -> TriggerState:
    """Notes brokers that are newly gone, forgets those that are back, and notes changes of the placement.

    After a gap without evaluations nobody knows whether a broker was away all the time: its time starts again.
    """
    since = {broker: min(since_ms, now_ms) for broker, since_ms in around.away_since_ms.items()}
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
    policy: TriggerPolicy,
    state: TriggerState,
    settled: tuple[SkewWindow, ...],
    over: Over | None,
    around: Surroundings,
) -> TriggerState:
    """The breach begins with the entering rule, and ends once no broker is over `exit_ratio`."""
    if over is not None:
        since_ms, broker_since_ms = state.breached_since_ms, state.broker_since_ms
        if since_ms is None or state.breached_broker not in (None, over.broker):
            broker_since_ms = over.since_ms
        return replace(
            state,
            breached_since_ms=over.since_ms if since_ms is None else since_ms,
            breached_resource=over.resource,
            breached_broker=over.broker,
            broker_since_ms=broker_since_ms,
        )
    if state.breached_since_ms is None or not settled:
        return state
    if is_even(policy, settled, around):
        return replace(
            state, breached_since_ms=None, breached_resource=None, breached_broker=None, broker_since_ms=None
        )
    return state


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
    detail = _skewed(policy, settled, over, around)
    known = recurrence(policy, settled, over, around)
    if known is None:
        return Evaluation(Verdict.PLAN, Reason.SKEWED, detail, resource, ratio)
    return Evaluation(Verdict.PLAN, Reason.SKEWED, f"{detail}; {known.in_words()}", resource, ratio, over.broker)


def _held_back(
    state: TriggerState, around: Surroundings, now_ms: int, resource: str | None, ratio: float | None
) -> Evaluation | None:
    """What forbids any plan now, or None."""
    if around.reassigning_count:
        return _hold(
            Reason.IN_PROGRESS,
            counted(around.reassigning_count, "partition is being reassigned", "partitions are being reassigned"),
            resource,
            ratio,
        )
    if now_ms < state.cooldown_end_ms:
        left_s = (state.cooldown_end_ms - now_ms) / 1000
        return _hold(Reason.COOLDOWN, f"cooldown after the last plan runs for {left_s:.0f} s more", resource, ratio)
    return None


def _skewed(policy: TriggerPolicy, settled: tuple[SkewWindow, ...], over: Over, around: Surroundings) -> str:
    windows_over = len(ends_over(policy, settled, over.resource, over.broker))
    newest = settled[-1]
    detail = (
        f"{over.resource} {newest.figure_name(over.resource)} {newest.max_over_mean(over.resource):.3f}; "
        f"broker {over.broker} over "
        f"{policy.enter_ratio} in {windows_over} of the last {len(settled)} windows"
    )
    if over.broker not in around.behind:
        return detail
    needed = windows_needed(policy, over.broker, around)
    groups = around.behind[over.broker]
    return f"{detail}; urgent, {needed} windows are enough: groups that read from it fall behind ({groups})"


def _even(
    policy: TriggerPolicy, state: TriggerState, settled: tuple[SkewWindow, ...], worst: tuple[str, int, float]
) -> str:
    """Why no broker makes a plan, not even the hottest of the newest window."""
    detail, unknown = _judged(policy, state, settled, worst), _may_be_over(policy, settled[-1])
    return detail if unknown is None else f"{detail}; {unknown}"


def _may_be_over(policy: TriggerPolicy, newest: SkewWindow) -> str | None:
    """The broker that may be furthest over the threshold, where loads have bounds alone; None if none may be.

    >>> window = SkewWindow(10, {"bytes_out": {1: 1.0}}, {}, 2, 2, ratios_at_most={"bytes_out": {1: 1.5}})
    >>> _may_be_over(TriggerPolicy(), window)
    'unknown if bytes_out is skewed: broker 1 has 1.000 to 1.500 of the mean'
    """
    rows = (
        (-ratio, resource, broker)
        for resource, ratios in newest.ratios_at_most.items()
        for broker, ratio in ratios.items()
        if ratio > policy.enter_ratio >= newest.ratios[resource][broker]
    )
    minus_ratio, resource, broker = min(rows, default=(0.0, "", 0))
    if not resource:
        return None
    least = newest.ratios[resource][broker]
    return f"unknown if {resource} is skewed: broker {broker} has {least:.3f} to {-minus_ratio:.3f} of the mean"


def _judged(
    policy: TriggerPolicy, state: TriggerState, settled: tuple[SkewWindow, ...], worst: tuple[str, int, float]
) -> str:
    resource, broker, ratio = worst
    figure = f"{resource} {settled[-1].figure_name(resource)} {ratio:.3f}"
    if ratio > policy.enter_ratio:
        over = len(ends_over(policy, settled, resource, broker))
        return f"{figure}; broker {broker} is over {policy.enter_ratio} in {over} windows, {policy.windows_over} needed"
    detail = f"worst is {figure}, at most {policy.enter_ratio} allowed"
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
    return resource, broker, max(1.0, -minus_ratio)


def _hold(reason: Reason, detail: str, resource: str | None = None, ratio: float | None = None) -> Evaluation:
    return Evaluation(Verdict.HOLD, reason, detail, resource, ratio)
