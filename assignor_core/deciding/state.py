"""What control remembers between decisions, and how each decision carries it on.

`TriggerState` is stored as JSON in each row of `decision` and read back after a restart. Three rules hold for all times
in it. A time begins when its condition is first seen, and ends when the condition is over. After a gap without
evaluations nobody knows what was in between, so the time starts again. No time lies ahead of the clock: a clock that
was ahead has written such a time, and it would hold back plans until real time is there.

Plans that gained too little are remembered too. If moving can't help, as where one partition takes more than a broker's
fair share, the skew stays, and each window would ask for a plan again. On large clusters one takes minutes. So the
first tries follow at once, as a step becomes clear within some windows. Then each pause is twice as long as the last
one, up to an hour. It ends early once brokers, partitions or the placement change, or the skew is half as large again.
Needs that can't wait are never paused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.recurring import DAY_MS
from assignor_core.live import LiveCluster, lagging

RECURRING_PLANNED_EVERY_DAYS = 7
"""A recurring skew that a plan did not mend gets no other one sooner."""


LAGGING_KEPT_MAX = 100
"""The state is part of each row of `decision`. Of more partitions than this those are kept that are behind longest."""


TRIES_AT_ONCE = 4
"""So many tries follow one another without a pause."""


TRIES_PAUSE_MAX_MS = 3_600_000


RISE = 1.5
"""Times what was above the mean then."""


REMEMBERED_MAX = 8
"""So many are remembered of one reason: brokers may take turns as the worst, since noise decides between them."""


class Wanted(NamedTuple):
    """What a plan is wanted for, and the cluster that it would be for."""

    reason: str
    resource: str
    """Empty where no resource decided."""
    broker: int
    """The one above the threshold; -1 where none is."""
    brokers: int
    """How many may hold replicas."""
    partitions: int
    """How many there are."""
    changed_ms: int
    """When replicas or leaders were last moved."""


class Attempt(NamedTuple):
    """A plan that is about to be made."""

    wanted: Wanted
    excess: float
    """Max over mean less 1; 0 where no resource decided."""
    window_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Futile:
    """The newest plan for one reason gained too little."""

    wanted: Wanted
    excess: float
    tries: int
    planned_ms: int
    pause_ms: int
    detail: str
    """Why it gained too little."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", Wanted(*self.wanted))  # JSON, in which the state is kept, knows lists only

    def is_about(self, attempt: Attempt) -> bool:
        """Whether nothing has changed since that would promise more."""
        return self.wanted == attempt.wanted and attempt.excess <= self.excess * RISE

    def left_ms(self, now_ms: int) -> int:
        """How long the pause goes on."""
        return self.planned_ms + self.pause_ms - now_ms


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
    """Why it was made, where that is one of `needs.PlacementStates`."""
    lasting_since_ms: tuple[tuple[str, int], ...] = ()
    """(reason, when it was first seen), by reason; see `needs.PlacementStates`."""
    lagging_since_ms: tuple[tuple[str, int, int], ...] = ()
    """(topic, partition, when it was first seen to be under-replicated), by partition; see `with_lagging`."""
    recurring_planned_ms: tuple[tuple[int, int], ...] = ()
    """(broker, when a plan for its recurring skew was last made), by broker."""
    futile: tuple[Futile, ...] = ()
    """Plans that gained too little, one for each reason; see `Futile`."""
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


def is_continuous(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> bool:
    """Whether the newest step is so recent that what was seen then and is seen now has lasted in between."""
    return 0 <= now_ms - state.evaluated_ms <= policy.stale_after_ms


def with_lagging(policy: TriggerPolicy, state: TriggerState, live: LiveCluster, now_ms: int) -> TriggerState:
    """Notes partitions that are newly under-replicated and forgets those that are in sync again.

    What is missing on brokers that are away is not noted: the trigger waits for those, or they are replaced. To be
    called before the trigger's own step, which notes the time.
    """
    known = {row[:2]: row[2] for row in state.lagging_since_ms} if is_continuous(policy, state, now_ms) else {}
    behind = live.once("lagging", lambda: lagging(live, live.hosts_away()))
    since = ((known.get(key, now_ms), key) for key in behind)
    kept = sorted((key, since_ms) for since_ms, key in sorted(since)[:LAGGING_KEPT_MAX])
    rows = tuple((*key, since_ms) for key, since_ms in kept)
    return state if rows == state.lagging_since_ms else replace(state, lagging_since_ms=rows)


def with_lasting(trigger: TriggerPolicy, state: TriggerState, seen: Iterable[Reason], now_ms: int) -> TriggerState:
    """Notes what is newly seen and forgets what is over. To be called before the trigger's step, which notes the time.

    After a gap without evaluations nobody knows what was in between: the time starts again.
    """
    known = dict(state.lasting_since_ms) if is_continuous(trigger, state, now_ms) else {}
    rows = tuple((reason.value, known.get(reason, now_ms)) for reason in seen)
    return state if rows == state.lasting_since_ms else replace(state, lasting_since_ms=rows)


def with_surroundings(policy: TriggerPolicy, state: TriggerState, around: Surroundings, now_ms: int) -> TriggerState:
    """Notes brokers that are newly gone, forgets those that are back, and notes changes of the placement.

    After a gap without evaluations nobody knows whether a broker was away all the time: its time starts again.
    """
    since = {broker: min(since_ms, now_ms) for broker, since_ms in around.away_since_ms.items()}
    if is_continuous(policy, state, now_ms):
        since |= dict(state.missing_since_ms)
    missing = tuple((broker, since.get(broker, now_ms)) for broker in sorted(around.missing_brokers))
    changed_ms = now_ms if around.reassigning_count else max(state.changed_ms, around.changed_ms)
    return replace(state, missing_since_ms=missing, changed_ms=changed_ms, evaluated_ms=now_ms)


def last_change_ms(state: TriggerState, changed_ms: int, now_ms: int) -> int:
    """When replicas or leaders were last moved, if an execution is noted to have ended at `changed_ms`.

    An end that a clock has dated ahead lies in the past. It counts as of the first step that sees it, and not anew at
    each one: no window would ever begin after it.
    """
    if changed_ms <= now_ms:
        return changed_ms
    return state.changed_ms if 0 < state.evaluated_ms <= now_ms else now_ms


def after_plan(
    policy: TriggerPolicy, state: TriggerState, now_ms: int, recurring_broker: int | None = None
) -> TriggerState:
    """State once a plan was made: the cooldown runs from now."""
    planned = dict(state.recurring_planned_ms)
    if recurring_broker is not None:
        planned[recurring_broker] = now_ms
    recent = tuple(sorted(row for row in planned.items() if now_ms - row[1] < RECURRING_PLANNED_EVERY_DAYS * DAY_MS))
    return replace(state, cooldown_end_ms=now_ms + policy.cooldown_ms, recurring_planned_ms=recent)


def waiting_for_nothing(state: TriggerState) -> TriggerState:
    """`state` without a plan that waits."""
    return replace(state, waiting_plan_id=None, waiting_load=0.0, waiting_failed=(), waiting_reason="")


def brokers_failed(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> tuple[int, ...]:
    """Brokers that have been away for longer than the grace time, ascending."""
    grace_ms = policy.broker_failure_grace_ms
    return tuple(broker for broker, since_ms in state.missing_since_ms if now_ms - since_ms >= grace_ms)


def paused(futile: Iterable[Futile], attempt: Attempt) -> str | None:
    """Why the plan need not be tried yet, in words; None where it is to be tried.

    >>> wanted = Wanted("skewed", "bytes_in", 1, 3, 12, 0)
    >>> paused([Futile(wanted, 0.4, 12, 0, 240_000, "no plan helps")], Attempt(wanted, 0.5, 60_000, now_ms=60_000))
    'no plan helps; the next try is in 3 min, or once the cluster changes'
    """
    for row in futile:
        left_ms = row.left_ms(attempt.now_ms)
        if row.is_about(attempt) and 0 < left_ms <= row.pause_ms:
            return f"{row.detail}; the next try is in {-(-left_ms // 60_000)} min, or once the cluster changes"
    return None


def noted(futile: Iterable[Futile], attempt: Attempt, detail: str) -> tuple[Futile, ...]:
    """With one more try, which gained too little. What was wanted for another placement of the same reason is gone.

    >>> rows, wanted = (), Wanted("skewed", "bytes_in", 1, 3, 12, 0)
    >>> for window in range(6):
    ...     rows = noted(rows, Attempt(wanted, 0.4, 60_000, now_ms=window * 60_000), "")
    >>> [(row.tries, row.pause_ms) for row in rows]
    [(6, 240000)]
    """
    rows = tuple(futile)
    before = next((row for row in rows if row.is_about(attempt)), None)
    tries = 1 if before is None else before.tries + 1
    doublings = max(0, tries - TRIES_AT_ONCE)
    pause_ms = min(TRIES_PAUSE_MAX_MS, attempt.window_ms * 2**doublings) if doublings else 0
    newest = Futile(attempt.wanted, attempt.excess, tries, attempt.now_ms, pause_ms, detail)
    beside = [row for row in rows if _is_beside(row.wanted, attempt.wanted)]
    return (*without(rows, attempt), *beside[1 - REMEMBERED_MAX :], newest)


def _is_beside(wanted: Wanted, other: Wanted) -> bool:
    """Whether both are about the same placement, and about different brokers or resources of it."""
    return wanted != other and other == wanted._replace(resource=other.resource, broker=other.broker)


def without(futile: Iterable[Futile], attempt: Attempt) -> tuple[Futile, ...]:
    """Once a plan for the same reason was worth it."""
    return tuple(row for row in futile if row.wanted.reason != attempt.wanted.reason)
