"""Every setting that a decision depends on: thresholds of skew, states of the placement, mode, hours and budgets."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from assignor_core.deciding.reasons import PLACEMENT_REASONS, Reason
from assignor_core.errors import InputError
from assignor_core.live import RELIEF_MAX_AWAY_SHARE
from assignor_core.log_dirs.planning import FillPolicy
from assignor_core.maintenance import MaintenanceWindow
from assignor_core.model import Capacity
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.policies import WAIT_MAX_MS, check_limits, knob
from assignor_core.resources import Resource

PLAN_WINDOWS_MAX = 30
"""A plan rests on no more of the newest windows than these, however noisy the load of a broker is."""

if TYPE_CHECKING:
    from assignor_core.load_history.load_memory import SkewLimits


class Detector(StrEnum):
    """Rules for the windows in which a broker is over the threshold."""

    NOISE = "noise"
    """Also requires that noise does not explain the skew, and that skews here do not mostly end on their own."""
    WINDOWS = "windows"
    """Requires only enough windows over the threshold."""


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """Thresholds are ratios to the mean (1 = even), times ms, load bytes/s per broker."""

    enter_ratio: float = knob(
        1.30,
        "A broker is skewed if its load is above the mean load of all brokers by this factor, in enough windows.",
        ge=1,
    )
    exit_ratio: float = knob(
        1.15,
        "A skew ends once the highest load is below the mean load by this factor; the factor is less than enter_ratio.",
        ge=1,
    )
    windows_over: int = knob(
        3, "A skew counts if a broker is above enter_ratio in at least this many of the newest windows.", ge=1, le=1000
    )
    windows_considered: int = knob(
        5, "The trigger considers this many of the newest windows; windows_over can't be more.", ge=1, le=1000
    )
    detector: Detector = knob(
        Detector.NOISE,
        "noise: a skewed broker must also be above the mean by more than its own noise; windows: enough windows do.",
    )
    recurring_load: bool = knob(
        True,
        "true: a skew that comes back at the same time each day or week makes no plan of its own, if the detector is "
        "noise; false: it is a skew like others.",
    )
    recurring_plan_min_ms: int = knob(
        3_600_000,
        "A skew that comes back gets one plan all the same if it lasts at least this long each time.",
        unit="ms",
        ge=0,
        le=WAIT_MAX_MS,
    )
    cooldown_ms: int = knob(
        600_000, "After a plan, control makes no new plan for this long. 0: no pause.", unit="ms", ge=0
    )
    completeness_min: float = knob(
        0.95, "A window counts if at least this share of the brokers reported in it.", ge=0, le=1
    )
    load_min_bytes_per_sec: float = knob(
        100_000.0, "Control ignores skew while the mean load of a broker is below this rate.", unit="bytes/s", ge=0
    )
    stale_after_ms: int = 360_000
    broker_failure_grace_ms: int = knob(
        1_800_000,
        "A broker that is offline for longer has failed, and control plans its replicas elsewhere; a restart or an "
        "upgrade takes less.",
        unit="ms",
        ge=0,
        le=WAIT_MAX_MS,
    )
    relief_max_away_share: float = knob(
        RELIEF_MAX_AWAY_SHARE,
        "Control does not re-create replicas of failed brokers while more than this share of the brokers is offline.",
        ge=0,
        le=1,
    )

    def __post_init__(self) -> None:
        check_limits(self, "trigger policy")
        if self.exit_ratio >= self.enter_ratio:
            raise InputError(f"exit_ratio {self.exit_ratio} must be below enter_ratio {self.enter_ratio}")
        if self.windows_over > self.windows_considered:
            raise InputError(f"windows_over {self.windows_over} exceeds windows_considered {self.windows_considered}")

    @property
    def windows_over_urgent(self) -> int:
        """Instead of `windows_over`, where groups that read from the hot broker fall behind: two thirds of them, and at
        least two, as one window may be anything.

        >>> [TriggerPolicy(windows_over=k).windows_over_urgent for k in (1, 2, 3, 5)]
        [1, 2, 2, 4]
        """
        return min(self.windows_over, max(2, math.ceil(2 * self.windows_over / 3)))

    @property
    def watched(self) -> "SkewLimits":
        """Thresholds that the memory of past windows needs."""
        from assignor_core.load_history.load_memory import SkewLimits  # numpy: who only reads settings needs none

        return SkewLimits(self.enter_ratio, self.exit_ratio, self.windows_over, self.completeness_min)


@dataclass(frozen=True, slots=True)
class LastingPolicy:
    """Which states of the placement ask for a plan, and for how many ms each must last.

    Raises InputError on a value out of range.
    """

    placement_reasons: Collection[Reason] = knob(
        PLACEMENT_REASONS, "States of the placement that get a small plan of their own if they last; []: none of them."
    )
    """Besides, drained brokers that hold replicas get one always: a person wants them empty."""
    empty_broker_share: float = knob(
        0.2,
        "A broker is nearly empty if it has less than this share of the mean of replicas, and of each known load.",
        ge=0,
        lt=1,
    )
    placement_grace_ms: int = knob(
        600_000,
        "How long racks must be crowded, a broker nearly empty, or replicas outside the set of brokers of their topic, "
        "before control makes a plan for that. 0: at once.",
        unit="ms",
        ge=0,
        le=WAIT_MAX_MS,
    )
    leaders_grace_ms: int = knob(
        1_800_000,
        "How long a replica that is not the preferred one may lead a partition before control elects the preferred "
        "one. 0: at once.",
        unit="ms",
        ge=0,
        le=WAIT_MAX_MS,
    )
    """Kafka itself elects every five minutes if it is allowed to."""

    def __post_init__(self) -> None:
        check_limits(self, "trigger policy")
        unknown = sorted(set(self.placement_reasons) - set(PLACEMENT_REASONS))
        if unknown:
            raise InputError(f"placement_reasons: found {unknown[0]}, allowed are {', '.join(PLACEMENT_REASONS)}")

    def needed_ms(self, reason: Reason) -> int:
        """How long it must last. Whoever drains a broker approves the plan for it a moment later: a second evaluation
        must see replicas on it before control plans for them.
        """
        if reason is Reason.DRAINED_BROKER:
            return 1
        return self.leaders_grace_ms if reason is Reason.UNPREFERRED_LEADERS else self.placement_grace_ms


class Mode(StrEnum):
    """Modes: control makes no plan, a plan waits for a person, or control carries a plan out."""

    OBSERVE = "observe"
    PROPOSE = "propose"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class DecisionPolicy:
    """Every setting that a decision depends on."""

    trigger: TriggerPolicy = field(default_factory=TriggerPolicy)
    lasting: LastingPolicy = field(default_factory=LastingPolicy)
    fill: FillPolicy | None = field(default_factory=FillPolicy)
    """Used share from which a log dir counts as full; None: never."""
    mode: Mode = knob(
        Mode.PROPOSE, "observe: control decides only; propose: it makes plans; apply: it carries them out."
    )
    maintenance: tuple[MaintenanceWindow, ...] = knob(
        (), "Mode apply changes the cluster only in these hours, UTC, like 'Mon-Fri 01:00-05:00'; []: at any time."
    )
    resources: tuple[Resource, ...] = knob(
        (Resource.BYTES_IN, Resource.BYTES_OUT), "Resources whose skew makes a plan."
    )
    capacities: Mapping[int, Capacity] = field(default_factory=lambda: MappingProxyType({}))
    planner: PlannerPolicy = field(default_factory=PlannerPolicy)
    planner_windows: int = knob(
        5, "A plan is made for the mean load of this many newest closed windows.", ge=1, le=1000
    )
    bytes_per_day_max: int | None = knob(
        None,
        "Plans of mode apply copy no more than this in 24 hours; copies that re-create lost replicas or relieve a log "
        "dir count, and are not held back. null: no limit.",
        unit="bytes",
        ge=0,
    )
    gain_min: float = 0.01
    """A plan that improves the worst max/mean by less than this is not worth a movement."""
    gain_over_noise_min: float = 4.0
    """A plan must improve the worst max/mean by this many times the noise of the windows; see `windows.load_noise`."""

    @property
    def lookback_windows(self) -> int:
        """How many of the newest closed windows a decision or its plan may rest on.

        >>> DecisionPolicy().lookback_windows, DecisionPolicy(planner_windows=60).lookback_windows
        (30, 60)
        """
        return max(self.trigger.windows_considered, self.planner_windows, PLAN_WINDOWS_MAX)


@dataclass(frozen=True, slots=True)
class DayBudget:
    """Bytes that automatic plans may copy in 24 hours, and what they have copied in the last 24."""

    bytes_max: int
    copied_bytes: int

    @property
    def left_bytes(self) -> int:
        """Bytes that automatic plans may still copy now."""
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
        """Returns text on the bytes of the day that are spent.

        >>> DayBudget(2_000_000_000, 1_500_000_000).in_words()
        'automatic plans have copied 1.50 of 2.00 GB in the last 24 h'
        """
        copied, most = self.copied_bytes / 1e9, self.bytes_max / 1e9
        return f"automatic plans have copied {copied:.2f} of {most:.2f} GB in the last 24 h"
