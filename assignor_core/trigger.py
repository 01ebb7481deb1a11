"""When skew is worth a plan: one pure step per closed window.

The trigger looks at `SkewWindow`s (figures of one closed window) and remembers nothing but `TriggerState`, which the
caller keeps. Two thresholds (enter > exit) and "k of the newest n windows" keep it from flapping; a cooldown, a floor
of absolute load, a floor of completeness and a running reassignment keep it from acting at the wrong time. Every step
says why. It knows no planner, no table and no clock: `now_ms` is an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from assignor_core.errors import InputError


class Verdict(StrEnum):
    """What should follow from an evaluation."""

    PLAN = "plan"
    HOLD = "hold"


class Reason(StrEnum):
    """Why; one word for tables and metrics."""

    SKEWED = "skewed"
    BALANCED = "balanced"
    NOT_ENOUGH_WINDOWS = "not_enough_windows"
    INCOMPLETE = "incomplete"
    STALE_DATA = "stale_data"
    LOW_LOAD = "low_load"
    IN_PROGRESS = "in_progress"
    COOLDOWN = "cooldown"
    MIN_GAIN = "min_gain"
    DRY_RUN = "dry_run"


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """Thresholds are max/mean ratios (1 = even), times ms, load bytes/s per broker."""

    enter_ratio: float = 1.30
    exit_ratio: float = 1.15
    windows_over: int = 3
    windows_considered: int = 5
    cooldown_ms: int = 600_000
    completeness_min: float = 0.95
    load_min_bytes_per_sec: float = 100_000.0
    stale_after_ms: int = 300_000

    def __post_init__(self) -> None:
        if not 1.0 <= self.exit_ratio < self.enter_ratio:
            raise InputError(f"thresholds must be 1 <= exit < enter, found {self.exit_ratio} and {self.enter_ratio}")
        if not 1 <= self.windows_over <= self.windows_considered:
            raise InputError(f"windows must be 1 <= k <= n, found {self.windows_over} and {self.windows_considered}")


@dataclass(frozen=True, slots=True)
class SkewWindow:
    """One closed window: skew (max/mean) and mean load by resource, and how many brokers reported."""

    window_end_ms: int
    max_over_mean: Mapping[str, float]
    mean_load: Mapping[str, float]
    brokers_expected: int
    brokers_reporting: int

    @property
    def completeness(self) -> float:
        """Share of the expected brokers that reported, 0 to 1."""
        return min(1.0, self.brokers_reporting / self.brokers_expected) if self.brokers_expected else 0.0


@dataclass(frozen=True, slots=True)
class TriggerState:
    """What must be remembered between evaluations; `breached_since_ms` is None while the load counts as even."""

    breached_since_ms: int | None = None
    breached_resource: str | None = None
    cooldown_end_ms: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome of one step: what follows, why in one word, why in a sentence, and which resource decided."""

    verdict: Verdict
    reason: Reason
    detail: str
    resource: str | None
    max_over_mean: float | None


def step(
    policy: TriggerPolicy,
    state: TriggerState,
    windows: tuple[SkewWindow, ...],
    *,
    reassigning_count: int,
    now_ms: int,
) -> tuple[TriggerState, Evaluation]:
    """Evaluate the newest windows (oldest first); returns the new state and what follows.

    >>> windows = tuple(SkewWindow(t, {"bytes_in": 1.5}, {"bytes_in": 1e6}, 3, 3) for t in (10, 20, 30))
    >>> policy = TriggerPolicy(windows_over=2, windows_considered=3)
    >>> state, found = step(policy, TriggerState(), windows, reassigning_count=0, now_ms=40)
    >>> found.verdict, found.reason, state.breached_since_ms
    (<Verdict.PLAN: 'plan'>, <Reason.SKEWED: 'skewed'>, 20)
    """
    considered = windows[-policy.windows_considered :]
    unusable = _unusable(policy, considered, now_ms)
    if unusable is not None:
        return state, unusable
    complete = tuple(window for window in considered if window.completeness >= policy.completeness_min)
    state = _after_hysteresis(policy, state, complete)
    resource, ratio = _worst(complete[-1])
    if state.breached_since_ms is None:
        reason = Reason.NOT_ENOUGH_WINDOWS if _over_in_newest(policy, complete) else Reason.BALANCED
        return state, Evaluation(Verdict.HOLD, reason, _even(policy, complete), resource, ratio)
    return state, _when_breached(policy, state, complete[-1], reassigning_count, now_ms)


def after_plan(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> TriggerState:
    """State once a plan was made: the cooldown runs from now."""
    return replace(state, cooldown_end_ms=now_ms + policy.cooldown_ms)


def _unusable(policy: TriggerPolicy, windows: tuple[SkewWindow, ...], now_ms: int) -> Evaluation | None:
    """Why the data can't be judged, if so; the state then stays as it was."""
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


def _after_hysteresis(policy: TriggerPolicy, state: TriggerState, complete: tuple[SkewWindow, ...]) -> TriggerState:
    """Enter when k windows of one resource are over `enter_ratio`; leave when the newest is below `exit_ratio`."""
    if state.breached_since_ms is not None:
        if all(ratio < policy.exit_ratio for ratio in complete[-1].max_over_mean.values()):
            return replace(state, breached_since_ms=None, breached_resource=None)
        return state
    for resource in sorted(complete[-1].max_over_mean):
        over = [
            window.window_end_ms for window in complete if window.max_over_mean.get(resource, 1.0) > policy.enter_ratio
        ]
        if len(over) >= policy.windows_over and complete[-1].window_end_ms == over[-1]:
            return replace(state, breached_since_ms=over[-policy.windows_over], breached_resource=resource)
    return state


def _when_breached(
    policy: TriggerPolicy, state: TriggerState, newest: SkewWindow, reassigning_count: int, now_ms: int
) -> Evaluation:
    """The cluster counts as skewed: plan, unless something speaks against it now."""
    resource = state.breached_resource or _worst(newest)[0]
    ratio = newest.max_over_mean.get(resource, 1.0)
    load = newest.mean_load.get(resource, 0.0)
    if reassigning_count:
        return _hold(Reason.IN_PROGRESS, f"{reassigning_count} partitions are being reassigned", resource, ratio)
    if load < policy.load_min_bytes_per_sec:
        detail = f"mean {resource} {load:.0f} B/s per broker is below the floor {policy.load_min_bytes_per_sec:.0f} B/s"
        return _hold(Reason.LOW_LOAD, detail, resource, ratio)
    if now_ms < state.cooldown_end_ms:
        left_s = (state.cooldown_end_ms - now_ms) / 1000
        return _hold(Reason.COOLDOWN, f"cooldown after the last plan runs for {left_s:.0f} s more", resource, ratio)
    detail = (
        f"{resource} max/mean {ratio:.3f}; over {policy.enter_ratio} in at least "
        f"{policy.windows_over} of {policy.windows_considered} windows"
    )
    return Evaluation(Verdict.PLAN, Reason.SKEWED, detail, resource, ratio)


def _over_in_newest(policy: TriggerPolicy, complete: tuple[SkewWindow, ...]) -> bool:
    return any(ratio > policy.enter_ratio for ratio in complete[-1].max_over_mean.values())


def _even(policy: TriggerPolicy, complete: tuple[SkewWindow, ...]) -> str:
    resource, ratio = _worst(complete[-1])
    if ratio <= policy.enter_ratio:
        return f"worst is {resource} max/mean {ratio:.3f}, at most {policy.enter_ratio} allowed"
    over = sum(window.max_over_mean.get(resource, 1.0) > policy.enter_ratio for window in complete)
    return (
        f"{resource} max/mean {ratio:.3f} is over {policy.enter_ratio} in {over} windows, {policy.windows_over} needed"
    )


def _worst(window: SkewWindow) -> tuple[str, float]:
    return max(sorted(window.max_over_mean.items()), key=lambda item: item[1], default=("bytes_in", 1.0))


def _hold(reason: Reason, detail: str, resource: str | None = None, ratio: float | None = None) -> Evaluation:
    return Evaluation(Verdict.HOLD, reason, detail, resource, ratio)
