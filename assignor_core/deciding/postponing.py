"""Whether a plan for skew is worth its bytes now: what it relieves until the skew ends, or until an hour of less load.

A skew counts as lasting unless earlier ones of this cluster show otherwise. Knows no table and no clock.
"""

import math
from dataclasses import dataclass
from statistics import fmean, median

from assignor_core.deciding.load_memory import LoadMemory
from assignor_core.deciding.load_memory.episodes import LASTING
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.recurring import RecurringLoad
from assignor_core.deciding.recurring.recurrence import RECENT_DAYS
from assignor_core.deciding.recurring.slots import DAY_MS, DAY_SLOTS, SLOT_MS, time_of_day
from assignor_core.errors import InputError

EPISODES_MIN = 5
"""Fewer earlier skews that lasted as long say too little of when this one ends."""
HOUR_SLOTS = 6
HOUR_MS = HOUR_SLOTS * SLOT_MS
SLOTS_MIN = 3
"""With fewer known slots an hour of a day is not known."""
DAYS_MIN = 3
"""An hour's usual load is known from so many of the newest days, or not at all."""
LESS_LOAD_MIN = 0.2
"""An hour is worth waiting for if it has less load by this share of the load of now."""
WAIT_MAX_MS = DAY_MS
"""No skew is left for longer than this, counted from its begin, for the sake of the bytes of its plan."""
GB = 1e9


@dataclass(frozen=True, slots=True)
class PostponingPolicy:
    """When a plan for skew is not carried out at once. By default it always is."""

    relief_min: float = 0.0
    """A plan must relieve the broker of so many bytes for each byte that it copies; 0: any plan is worth it."""
    cheap_hour_wait_max_ms: int = 0
    """A plan waits for an hour with less load until the skew is this old; 0: it does not wait."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.relief_min) and self.relief_min >= 0):
            raise InputError(f"relief_min must be a number of 0 or more, found {self.relief_min}")
        if not 0 <= self.cheap_hour_wait_max_ms <= WAIT_MAX_MS:
            raise InputError(
                f"cheap_hour_wait_max_ms must be from 0 to {WAIT_MAX_MS}, found {self.cheap_hour_wait_max_ms}"
            )

    @property
    def is_off(self) -> bool:
        """Whether each plan is carried out at once."""
        return not self.relief_min and not self.cheap_hour_wait_max_ms


@dataclass(frozen=True, slots=True)
class Effort:
    """What a plan for skew copies, and of how much it relieves the broker."""

    bytes_to_move: float
    relieved_bytes_per_sec: float

    def relieved_bytes(self, left_ms: float) -> float:
        """What it relieves the broker of in this time."""
        return self.relieved_bytes_per_sec * left_ms / 1000


@dataclass(frozen=True, slots=True)
class Postponed:
    """Why a plan is not carried out now."""

    reason: Reason
    detail: str


def windows_left(memory: LoadMemory, resource: str, broker: int) -> float | None:
    """Windows that the broker's skew will go on for, by the median of earlier ones; None: unknown, or it lasts."""
    episodes = memory.episodes.get(resource)
    windows = 0 if episodes is None else episodes.windows_of(broker)
    if episodes is None or not windows:
        return None
    alike = [length for length in episodes.ended if length >= windows]
    if len(alike) < EPISODES_MIN:
        return None
    # Of an even number the higher one of the middle: if half of them last, this one counts as lasting.
    length = sorted(alike)[len(alike) // 2]
    return None if length >= LASTING else max(1.0, float(length - windows))


def not_worth_its_bytes(policy: PostponingPolicy, left_ms: float | None, effort: Effort) -> Postponed | None:
    """Why the copies cost more than they bring until the skew ends by itself, or None.

    >>> policy, costly = PostponingPolicy(relief_min=0.1), Effort(2e12, 10e6)
    >>> not_worth_its_bytes(policy, 600_000, costly).detail
    'not worth 2,000.0 GB to copy: such skews end within 10 min more here, in which it relieves the broker of 6.0 GB'
    >>> not_worth_its_bytes(policy, None, costly), not_worth_its_bytes(policy, 600_000, Effort(1e9, 1e8))
    (None, None)
    """
    if left_ms is None or not policy.relief_min:
        return None
    relieved_bytes = effort.relieved_bytes(left_ms)
    if relieved_bytes >= policy.relief_min * effort.bytes_to_move:
        return None
    detail = (
        f"not worth {effort.bytes_to_move / GB:,.1f} GB to copy: such skews end within {left_ms / 60_000:.0f} min more "
        f"here, in which it relieves the broker of {relieved_bytes / GB:,.1f} GB"
    )
    return Postponed(Reason.NOT_WORTH_IT, detail)


def cheap_hour(
    policy: PostponingPolicy, history: RecurringLoad, resource: str, effort: Effort, *, now_ms: int, since_ms: int
) -> Postponed | None:
    """The hour to wait for: it has much less load than this one, and the skew costs little until then; or None.

    `since_ms` is when the skew began, from which the longest wait counts. A skew costs little if the plan would relieve
    the broker of fewer bytes until that hour than it copies.
    """
    hour, last = now_ms // HOUR_MS, (since_ms + policy.cheap_hour_wait_max_ms) // HOUR_MS
    now = _usual_load(history, resource, hour)
    if not now or not policy.cheap_hour_wait_max_ms:
        return None
    # The same hour of tomorrow is this one.
    loads = {later: _usual_load(history, resource, later) for later in range(hour + 1, min(last, hour + 23) + 1)}
    known = {later: load for later, load in loads.items() if load is not None}
    if not known:
        return None
    cheapest = min(known, key=lambda later: (known[later], later))
    less, wait_ms = 1 - known[cheapest] / now, cheapest * HOUR_MS - now_ms
    relieved_bytes = effort.relieved_bytes(wait_ms)
    if less < LESS_LOAD_MIN or relieved_bytes > effort.bytes_to_move:
        return None
    detail = (
        f"{effort.bytes_to_move / GB:,.1f} GB are copied from {time_of_day(cheapest * HOUR_SLOTS)} UTC, in "
        f"{wait_ms / HOUR_MS:.1f} h, with {less:.0%} less traffic; at once they would relieve the broker of "
        f"{relieved_bytes / GB:,.1f} GB until then"
    )
    return Postponed(Reason.CHEAP_HOUR, detail)


def _usual_load(history: RecurringLoad, resource: str, hour: int) -> float | None:
    """Median of the mean load at this hour (counted from the epoch) over recent days; None where few are known."""
    days = []
    for back in range(1, RECENT_DAYS + 1):
        first = hour * HOUR_SLOTS - back * DAY_SLOTS
        loads = [history.mean_load(resource, slot) for slot in range(first, first + HOUR_SLOTS)]
        known = [load for load in loads if load is not None]
        if len(known) >= SLOTS_MIN:
            days.append(fmean(known))
    return median(days) if len(days) >= DAYS_MIN else None
