"""Every setting that a decision depends on: thresholds of skew, states of the placement, mode, hours and budgets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from assignor_core.deciding.reasons import PLACEMENT_REASONS, Reason
from assignor_core.errors import InputError
from assignor_core.load_history.load_memory import Watched
from assignor_core.log_dirs.planning import FillPolicy
from assignor_core.maintenance import MaintenanceWindow
from assignor_core.model import Capacity
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.resources import Resource


class Detector(StrEnum):
    """What must hold of the windows in which a broker is over the threshold."""

    NOISE = "noise"
    """Also that the brokers' noise does not explain them, and that such skews don't end by themselves here."""
    WINDOWS = "windows"
    """Only that there are enough of them."""


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """Thresholds are ratios to the mean (1 = even), times ms, load bytes/s per broker."""

    enter_ratio: float = 1.30
    exit_ratio: float = 1.15
    windows_over: int = 3
    windows_considered: int = 5
    detector: Detector = Detector.NOISE
    recurring_load: bool = True
    """Whether a skew that comes at the same time each day or week makes no plan of its own; not without `NOISE`."""
    recurring_plan_min_ms: int = 3_600_000
    """One that lasts for so long each time is planned for all the same, once in a while."""
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
        if self.recurring_plan_min_ms < 0:
            raise InputError(f"recurring_plan_min_ms must be 0 or more, found {self.recurring_plan_min_ms}")

    @property
    def windows_over_urgent(self) -> int:
        """Instead of `windows_over`, where groups that read from the hot broker fall behind: two thirds of them, and at
        least two, as one window may be anything.

        >>> [TriggerPolicy(windows_over=k).windows_over_urgent for k in (1, 2, 3, 5)]
        [1, 2, 2, 4]
        """
        return min(self.windows_over, max(2, math.ceil(2 * self.windows_over / 3)))

    @property
    def watched(self) -> Watched:
        """What the memory of past windows needs to know of it."""
        return Watched(self.enter_ratio, self.exit_ratio, self.windows_over, self.completeness_min)


@dataclass(frozen=True, slots=True)
class LastingPolicy:
    """Which states of the placement ask for a plan, and for how many ms each must last.

    Raises InputError on a value out of range.
    """

    reasons: frozenset[Reason] = frozenset(PLACEMENT_REASONS)
    """Besides, drained brokers that hold replicas get one always: a person wants them empty."""
    empty_broker_share: float = 0.2
    """A broker with less than this share of the mean of replicas, and of each known load, is nearly empty."""
    grace_ms: int = 600_000
    """Ms for which racks must be crowded, or a broker be empty, before a plan is made for that."""
    leaders_grace_ms: int = 1_800_000
    """Ms for which preferred replicas must not lead before a plan elects them. Kafka itself does so every five minutes
    if it is allowed to.
    """

    def __post_init__(self) -> None:
        unknown = sorted(self.reasons - set(PLACEMENT_REASONS))
        if unknown:
            raise InputError(f"reasons: found {unknown[0]}, allowed are {', '.join(PLACEMENT_REASONS)}")
        if not 0.0 <= self.empty_broker_share < 1.0:
            raise InputError(f"empty_broker_share must be 0 to below 1, found {self.empty_broker_share}")

    def needed_ms(self, reason: Reason) -> int:
        """How long it must last. Whoever drains a broker approves the plan for it a moment later: a second evaluation
        must see replicas on it before control plans for them.
        """
        if reason is Reason.DRAINED_BROKER:
            return 1
        return self.leaders_grace_ms if reason is Reason.UNPREFERRED_LEADERS else self.grace_ms


class Mode(StrEnum):
    """What follows from a plan: nothing is made, it waits for a person, or control carries it out."""

    OBSERVE = "observe"
    PROPOSE = "propose"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class DecisionPolicy:
    """Every setting that a decision depends on."""

    trigger: TriggerPolicy = field(default_factory=TriggerPolicy)
    lasting: LastingPolicy = field(default_factory=LastingPolicy)
    fill: FillPolicy | None = field(default_factory=FillPolicy)
    """When a log dir counts as full; None: never."""
    mode: Mode = Mode.PROPOSE
    maintenance: tuple[MaintenanceWindow, ...] = ()
    """Mode `apply` changes the cluster only in these hours; none means always."""
    resources: tuple[Resource, ...] = (Resource.BYTES_IN, Resource.BYTES_OUT)
    """Resources whose skew may make a plan."""
    capacities: Mapping[int, Capacity] = field(default_factory=lambda: MappingProxyType({}))
    planner: PlannerPolicy = field(default_factory=PlannerPolicy)
    planner_windows: int = 5
    """A plan rests on at most so many of the newest windows."""
    bytes_per_day_max: int | None = None
    """Most bytes that mode `apply` copies in 24 hours. What replaces lost replicas or relieves a log dir counts,
    and is not held back.
    """
    gain_min: float = 0.01
    """A plan that improves the worst max/mean by less than this is not worth a movement."""
    gain_over_noise_min: float = 4.0
    """Nor one that improves it by less than so many times the noise of the windows; see `windows.load_noise`."""


@dataclass(frozen=True, slots=True)
class DayBudget:
    """Bytes that automatic plans may copy in 24 hours, and what they have copied in the last 24."""

    bytes_max: int
    copied_bytes: int

    @property
    def left_bytes(self) -> int:
        """What may still be copied now."""
        return max(0, self.bytes_max - self.copied_bytes)

    def limited(self, policy: PlannerPolicy) -> PlannerPolicy:
        """`policy` for a plan within what is left.

        >>> DayBudget(100, 70).limited(PlannerPolicy(bytes_max=50)).bytes_max
        30
        """
        left = self.left_bytes
        return replace(policy, bytes_max=left if policy.bytes_max is None else min(left, policy.bytes_max))

    def binds(self, policy: PlannerPolicy) -> bool:
        """Whether plans by `policy` could copy more if nothing had been copied in the last 24 hours."""
        return self.copied_bytes > 0 and (policy.bytes_max is None or self.left_bytes < policy.bytes_max)

    def in_words(self) -> str:
        """How much is spent.

        >>> DayBudget(2_000_000_000, 1_500_000_000).in_words()
        'automatic plans have copied 1.50 of 2.00 GB in the last 24 h'
        """
        copied, most = self.copied_bytes / 1e9, self.bytes_max / 1e9
        return f"automatic plans have copied {copied:.2f} of {most:.2f} GB in the last 24 h"
