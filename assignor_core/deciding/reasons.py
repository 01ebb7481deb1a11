"""Results and reasons of decisions, in the words that tables and metrics use."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Results of an evaluation."""

    PLAN = "plan"
    HOLD = "hold"


class Reason(StrEnum):
    """Reasons of decisions, one word each, for tables and metrics."""

    SKEWED = "skewed"
    BROKER_FAILED = "broker_failed"
    LOG_DIR_FULL = "log_dir_full"
    DRAINED_BROKER = "drained_broker"
    OUTSIDE_SET = "outside_set"
    CROWDED_RACKS = "crowded_racks"
    EMPTY_BROKER = "empty_broker"
    UNPREFERRED_LEADERS = "unpreferred_leaders"
    BALANCED = "balanced"
    NOT_ENOUGH_WINDOWS = "not_enough_windows"
    NOISE = "noise"
    PASSING = "passing"
    RECURRING = "recurring"
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
    NOT_WORTH_IT = "not_worth_it"
    """Only in rows of earlier versions: a plan waited until its gain was worth its bytes."""
    CHEAP_HOUR = "cheap_hour"
    """Only in rows of earlier versions: a plan waited for an hour with less load."""
    TOO_MANY_AWAY = "too_many_away"
    NO_ROOM = "no_room"
    UNHEALTHY = "unhealthy"
    DAY_BUDGET = "day_budget"
    DRY_RUN = "dry_run"


PLACEMENT_REASONS = (Reason.OUTSIDE_SET, Reason.CROWDED_RACKS, Reason.EMPTY_BROKER, Reason.UNPREFERRED_LEADERS)
"""States of the placement for which the settings can forbid plans."""


LASTING_REASONS = (Reason.DRAINED_BROKER, *PLACEMENT_REASONS)
"""States of the placement that get a plan if they last, in the order in which they do; see `needs`."""


OWN_PLANS = (Reason.LOG_DIR_FULL, *LASTING_REASONS)
"""Reasons whose small plans are judged by what they fix, not by skew."""

LEAVES_PLACEMENT = (
    Reason.BALANCED,
    Reason.NOISE,
    Reason.PASSING,
    Reason.RECURRING,
    Reason.LOW_LOAD,
    Reason.CATCHING_UP,
    Reason.MIN_GAIN,
    Reason.DAY_BUDGET,
)
"""Decisions to hold after which a plan for the placement may follow: data are sound, and there is no plan for load."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one step: what follows, why in one word, why in a sentence, and which resource decided."""

    verdict: Verdict
    reason: Reason
    detail: str
    resource: str | None
    max_over_mean: float | None
