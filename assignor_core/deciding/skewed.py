"""The need of load: which broker is over the threshold for long enough, and why it may need no plan all the same.

A broker needs relief if it is over `enter_ratio` in k of the newest n windows, the newest one included. It must be the
same broker each time: noise lifts now one, now another, and a plan that follows it moves load to and fro. All of the
windows must have begun after the last change of the placement, as earlier windows show what the change has removed.

Three things speak against a plan for such a broker. Its noise may explain the windows (`NOISE`, by the CUSUM of
`load_memory`). Skews here may mostly end by themselves (`PASSING`, by the episodes of `load_memory`). The skew may come
at this time each day or week (`RECURRING`, by `recurring`). If consumer groups that read from the broker fall behind,
fewer windows are enough, and the last two do not count.

The breach, which alerts show, begins with this rule and ends only below `exit_ratio`. It starts no plan by itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean

from assignor_core.deciding.observation import NOTHING_ELSE, Surroundings
from assignor_core.deciding.policy import PLAN_WINDOWS_MAX, Detector, TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.state import RECURRING_PLANNED_EVERY_DAYS, TriggerState
from assignor_core.load_history.load_memory import HORIZON_WINDOWS, LASTING_SIGMAS, LoadMemory
from assignor_core.load_history.recurring import DAY_MS, Recurrence, recurrence_of
from assignor_core.load_history.windows import SkewWindow
from assignor_core.wording import counted, many

PLAN_NOISE_MAX = 0.03
"""A plan rests on so many windows that noise is at most this part of a broker's mean load over them; see also
`PLAN_WINDOWS_MAX`.
"""


GROWN_SIGMAS = 4.0
"""Replaces `LASTING_SIGMAS` if the broker's level has grown, because growth is evidence as well."""


BURST_SIGMAS = 2.0
"""Distance of a broker from its level, in units of its noise, above which the broker has a burst."""


GAIN_SIGMAS = 2.0
"""Gain of a plan, in units of the noise of its windows, from which the gain is no noise."""


@dataclass(frozen=True, slots=True)
class Over:
    """A broker that has been over the threshold for long enough."""

    resource: str
    broker: int
    since_ms: int
    """End of the oldest window that shows the broker over the threshold for long enough."""


def entering(
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], around: Surroundings = NOTHING_ELSE
) -> Over | None:
    """The worst broker that is over `enter_ratio` in the newest of `windows` and in enough of them; None of none.

    The same broker: noise lifts now one, now another, and a plan that follows it moves load to and fro.
    """
    brokers = _over_for_long(policy, windows, around)
    return next((over for over in brokers if _doubt(policy, windows, over, around) is None), None)


def doubted(
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], around: Surroundings = NOTHING_ELSE
) -> tuple[Over, Reason, str] | None:
    """The worst broker that is over for long enough, and why it needs no plan now; None if there is no such broker."""
    for over in _over_for_long(policy, windows, around):
        doubt = _doubt(policy, windows, over, around)
        if doubt is not None:
            return (over, *doubt)
    return None


def _over_for_long(policy: TriggerPolicy, windows: tuple[SkewWindow, ...], around: Surroundings) -> Iterator[Over]:
    """Brokers that are over `enter_ratio` in the newest of `windows` and in enough of them, the worst first."""
    for _, resource, broker in _over(policy, windows[-1]) if windows else ():
        over = ends_over(policy, windows, resource, broker)
        needed = windows_needed(policy, broker, around)
        if len(over) >= needed:
            since_ms = over[-needed]
            if _uses_memory(policy, resource, broker, around):
                risen_ms = around.memory.levels[resource].risen_since_ms(broker)
                since_ms = min(since_ms, risen_ms) if risen_ms else since_ms
            yield Over(resource, broker, since_ms)


def _doubt(
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], over: Over, around: Surroundings
) -> tuple[Reason, str] | None:
    """Why a broker that is over for long enough needs no plan now; None if it needs one."""
    # A group that falls behind on the hot broker must not wait until the skew ends by itself.
    expected = None if over.broker in around.behind else _expected(policy, windows, over, around)
    if expected is not None:
        return Reason.RECURRING, expected
    if not _uses_memory(policy, over.resource, over.broker, around):
        return None
    noise = is_noise(around.memory, over.resource, over.broker)
    if noise is not None:
        return Reason.NOISE, noise
    passing = None if over.broker in around.behind else is_passing(around.memory, over.resource, over.broker)
    return None if passing is None else (Reason.PASSING, passing)


def _expected(policy: TriggerPolicy, windows: tuple[SkewWindow, ...], over: Over, around: Surroundings) -> str | None:
    """Why a skew that comes back at this time needs no plan now; None if it is unknown, higher than usual, or due."""
    known = recurrence(policy, windows, over, around)
    if known is None:
        return None
    if known.lasts_ms < policy.recurring_plan_min_ms:
        return known.in_words()
    planned_ms = around.recurring_planned_ms.get(over.broker)
    if planned_ms is None or around.changed_ms <= planned_ms:
        return None  # no plan for it has been carried out
    days = (windows[-1].window_end_ms - planned_ms) / DAY_MS
    if days >= RECURRING_PLANNED_EVERY_DAYS:
        return None
    return f"{known.in_words()}; a plan for it was carried out {days:.1f} days ago"


def recurrence(
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], over: Over, around: Surroundings
) -> Recurrence | None:
    """The recurring skew of the broker at this time; None if unknown, or if the broker's load is higher than usual."""
    if policy.detector is not Detector.NOISE or not policy.recurring_load:
        return None
    middle_ms = (windows[-1].window_start_ms + windows[-1].window_end_ms) // 2
    known = recurrence_of(around.recurring, over.resource, over.broker, at_ms=middle_ms, above=policy.enter_ratio)
    if known is None:
        return None
    shares = (window.ratios.get(over.resource, {}).get(over.broker, 1.0) for window in windows)
    return known if fmean(share for share in shares if share > policy.enter_ratio) <= known.height else None


def _uses_memory(policy: TriggerPolicy, resource: str, broker: int, around: Surroundings) -> bool:
    return policy.detector is Detector.NOISE and is_known(around.memory, resource, broker)


def is_even(policy: TriggerPolicy, settled: tuple[SkewWindow, ...], around: Surroundings) -> bool:
    """Whether every broker is below `exit_ratio`: in the newest window, or in the mean of some where it is noisy."""
    considered = settled[-policy.windows_considered :]

    def level(resource: str, broker: int, newest: float) -> float:
        if not _uses_memory(policy, resource, broker, around):
            return newest
        return fmean(window.ratios.get(resource, {}).get(broker, newest) for window in considered)

    return all(
        level(resource, broker, ratio) < policy.exit_ratio
        for resource, ratios in settled[-1].ratios.items()
        for broker, ratio in ratios.items()
    )


def brokers_over(policy: TriggerPolicy, window: SkewWindow) -> tuple[int, ...]:
    """Brokers over `enter_ratio` in one window, ascending."""
    return tuple(sorted({broker for _, _, broker in _over(policy, window)}))


def _over(policy: TriggerPolicy, window: SkewWindow) -> list[tuple[float, str, int]]:
    """(ratio, resource, broker) over the threshold, the worst first."""
    rows = [
        (ratio, resource, broker)
        for resource, ratios in window.ratios.items()
        for broker, ratio in ratios.items()
        if ratio > policy.enter_ratio
    ]
    return sorted(rows, key=lambda row: (-row[0], row[1], row[2]))


def ends_over(policy: TriggerPolicy, complete: tuple[SkewWindow, ...], resource: str, broker: int) -> tuple[int, ...]:
    """Ends of the windows in which this broker is over the threshold, oldest first."""
    return tuple(
        window.window_end_ms
        for window in complete
        if window.ratios.get(resource, {}).get(broker, 1.0) > policy.enter_ratio
    )


def windows_needed(policy: TriggerPolicy, broker: int, around: Surroundings) -> int:
    return policy.windows_over_urgent if broker in around.behind else policy.windows_over


@dataclass(frozen=True, slots=True)
class Judged:
    """Load in the newest windows, judged from sound data."""

    complete: tuple[SkewWindow, ...]
    """Windows that enough brokers reported in, oldest first."""
    settled: tuple[SkewWindow, ...]
    """Windows that began after the last change of the placement, oldest first."""
    over: Over | None
    """The broker that the plan relieves."""


def judged(
    policy: TriggerPolicy, state: TriggerState, windows: tuple[SkewWindow, ...], around: Surroundings, now_ms: int
) -> Judged | None:
    """Judges the load in the newest `windows`, oldest first; None if the data are not sound."""
    if unsound(policy, windows, now_ms) is not None:
        return None
    complete = complete_windows(policy, windows)
    # While replicas move nothing is planned anyway: the windows only show whether the reason is that.
    settled = complete if around.reassigning_count else settled_windows(state, complete)
    return Judged(complete, settled, entering(policy, settled, around))


def unsound(policy: TriggerPolicy, windows: tuple[SkewWindow, ...], now_ms: int) -> tuple[Reason, str] | None:
    """Why the data can't be judged, so that the breach stays as it was; None if they can."""
    if not windows:
        return Reason.NOT_ENOUGH_WINDOWS, "no closed window yet"
    newest = windows[-1]
    age_ms = now_ms - newest.window_end_ms
    if age_ms > policy.stale_after_ms:
        return Reason.STALE_DATA, f"the newest closed window ended {age_ms / 1000:.0f} s ago"
    if newest.completeness < policy.completeness_min:
        reported = f"{newest.brokers_reporting} of {newest.brokers_expected} brokers reported in the newest window"
        return Reason.INCOMPLETE, reported
    return None


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


def with_breach(policy: TriggerPolicy, state: TriggerState, judged: Judged, around: Surroundings) -> TriggerState:
    """The breach begins with the entering rule, and ends once no broker is over `exit_ratio`."""
    settled, over = judged.settled, judged.over
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


def is_noise(memory: LoadMemory, resource: str, broker: int) -> str | None:
    """Why noise alone explains the broker's load, or None. The broker must be known."""
    levels = memory.levels[resource]
    if levels.has_risen(broker, GROWN_SIGMAS if _grown_to(memory, resource, broker) else LASTING_SIGMAS):
        return None
    return f"the load of broker {broker} changes by {levels.noise(broker):.0%} from window to window: this may be noise"


def is_passing(memory: LoadMemory, resource: str, broker: int) -> str | None:
    """Why the skew is likely to end by itself soon, or None. The broker must be known."""
    episodes = memory.episodes[resource]
    windows = episodes.windows_of(broker)
    if not windows or episodes.lasts(windows) or _comes_of_growth(memory, resource, broker):
        return None
    alike = [length for length in episodes.ended if length >= windows]
    soon = sum(length < windows + HORIZON_WINDOWS for length in alike)
    return (
        f"of {len(alike)} earlier skews that lasted for {windows} windows or more, {soon} ended by themselves within "
        f"{HORIZON_WINDOWS} windows more"
    )


def _comes_of_growth(memory: LoadMemory, resource: str, broker: int) -> bool:
    """Whether the broker had grown before, and noise alone takes it from there to its shares above the threshold.

    Noise ends such a skew now and then, but not for long.
    """
    level = _grown_to(memory, resource, broker)
    rise = memory.episodes[resource].mean_over(broker) - level
    return level > 0 and rise < BURST_SIGMAS * memory.levels[resource].noise(broker)


def _grown_to(memory: LoadMemory, resource: str, broker: int) -> float:
    """The level that the broker had grown to before its skew, as a logarithm; 0 where it had not grown."""
    episodes = memory.episodes.get(resource)
    return 0.0 if episodes is None else episodes.grown_to(broker)


def is_known(memory: LoadMemory, resource: str, broker: int) -> bool:
    """Whether enough windows were seen to know the broker's noise."""
    levels = memory.levels.get(resource)
    return levels is not None and levels.is_known(broker)


def plan_windows(memory: LoadMemory, resource: str, broker: int, windows_min: int) -> int:
    """Newest windows that a plan for this broker rests on: more than `windows_min` where its load is noisy."""
    if not is_known(memory, resource, broker):
        return windows_min
    levels = memory.levels[resource]
    enough = (n for n in range(windows_min, PLAN_WINDOWS_MAX) if levels.mean_noise(broker, n) <= PLAN_NOISE_MAX)
    return next(enough, max(windows_min, PLAN_WINDOWS_MAX))


def remembered_noise(memory: LoadMemory, resource: str, windows: int) -> float | None:
    """The gain in max/mean that a plan on so many windows could promise for noise alone; None if no noise is known."""
    levels = memory.levels.get(resource)
    noise = None if levels is None else levels.typical_mean_noise(windows)
    return None if noise is None else GAIN_SIGMAS * noise


def in_words(policy: TriggerPolicy, settled: tuple[SkewWindow, ...], over: Over, around: Surroundings) -> str:
    windows_over = len(ends_over(policy, settled, over.resource, over.broker))
    newest = settled[-1]
    detail = (
        f"{over.resource} {newest.figure_name(over.resource)} {newest.max_over_mean(over.resource):.3f}; "
        f"broker {over.broker} over "
        f"{policy.enter_ratio} in {windows_over} of the last {many(len(settled), 'window')}"
    )
    if over.broker not in around.behind:
        return detail
    needed = windows_needed(policy, over.broker, around)
    urgent = f"urgent, {counted(needed, 'window is', 'windows are')} enough"
    return f"{detail}; {urgent}: groups that read from it fall behind ({around.behind[over.broker]})"


def why_even(
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
        windows = f"{many(over, 'window')}, {policy.windows_over} needed"
        return f"{figure}; broker {broker} is over {policy.enter_ratio} in {windows}"
    detail = f"worst is {figure}, at most {policy.enter_ratio} allowed"
    if state.breached_since_ms is None:
        return detail
    return f"{detail}; it counts as skewed until it is below {policy.exit_ratio}"


def why_unsettled(state: TriggerState, newest: SkewWindow) -> str:
    since_s = (newest.window_end_ms - state.changed_ms) / 1000
    return f"no window has begun since replicas were moved, {max(0.0, since_s):.0f} s before the newest window ended"


def worst_of(window: SkewWindow) -> tuple[str, int, float]:
    """(resource, broker, ratio) of the hottest broker."""
    rows = (
        (-ratio, resource, broker) for resource, ratios in window.ratios.items() for broker, ratio in ratios.items()
    )
    minus_ratio, resource, broker = min(rows, default=(-1.0, "bytes_in", -1))
    return resource, broker, max(1.0, -minus_ratio)
