"""Which broker is over the threshold for long enough, and what speaks against a plan for it all the same."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from assignor_core.deciding.doubt import is_known, is_noise, is_passing
from assignor_core.deciding.load_memory import NOTHING_REMEMBERED, LoadMemory
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.recurring import DAY_MS, NO_HISTORY, Recurrence, RecurringLoad, recurrence_of
from assignor_core.deciding.trigger_policy import Detector, TriggerPolicy
from assignor_core.deciding.windows import SkewWindow


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
    memory: LoadMemory = NOTHING_REMEMBERED
    """What windows up to the newest have shown."""
    recurring: RecurringLoad = NO_HISTORY
    """What the same hours of earlier days have shown."""
    recurring_planned_ms: Mapping[int, int] = field(default_factory=dict)
    """broker: when a plan for its recurring skew was last made."""


NOTHING_ELSE = Surroundings()
RECURRING_PLANNED_EVERY_DAYS = 7
"""A recurring skew that a plan did not mend gets no other one sooner."""


def brokers_over(policy: TriggerPolicy, window: SkewWindow) -> tuple[int, ...]:
    """Brokers over `enter_ratio` in one window, ascending."""
    return tuple(sorted({broker for _, _, broker in _over(policy, window)}))


def entering(
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], around: Surroundings = NOTHING_ELSE
) -> "Over | None":
    """The worst broker that is over `enter_ratio` in the newest of `windows` and in enough of them; None of none.

    The same broker: noise lifts now one, now another, and a plan that follows it moves load to and fro.
    """
    brokers = _over_for_long(policy, windows, around)
    return next((over for over in brokers if _doubt(policy, windows, over, around) is None), None)


def doubted(
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], around: Surroundings = NOTHING_ELSE
) -> tuple["Over", Reason, str] | None:
    """The worst broker that is over for long enough, and why it needs no plan for now; None of none."""
    for over in _over_for_long(policy, windows, around):
        doubt = _doubt(policy, windows, over, around)
        if doubt is not None:
            return (over, *doubt)
    return None


def _over_for_long(policy: TriggerPolicy, windows: tuple[SkewWindow, ...], around: Surroundings) -> "Iterator[Over]":
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
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], over: "Over", around: Surroundings
) -> tuple[Reason, str] | None:
    """Why the broker needs no plan for now although it is over for long enough, or None."""
    # Where groups fall behind meanwhile, waiting for the end has its price.
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


def _expected(policy: TriggerPolicy, windows: tuple[SkewWindow, ...], over: "Over", around: Surroundings) -> str | None:
    """Why a skew that comes back at this time needs no plan now, or None: unknown, higher than usual, or due."""
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
    policy: TriggerPolicy, windows: tuple[SkewWindow, ...], over: "Over", around: Surroundings
) -> Recurrence | None:
    """What is known to bring the broker over the threshold at this time, unless it is higher now than it usually is."""
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


@dataclass(frozen=True, slots=True)
class Over:
    """A broker that has been over the threshold for long enough."""

    resource: str
    broker: int
    since_ms: int
    """End of the oldest window that was needed to decide it."""


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
