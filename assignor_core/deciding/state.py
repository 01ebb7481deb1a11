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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.live import LiveCluster, lagging
from assignor_core.load_history.recurring import DAY_MS

RECURRING_PLANNED_EVERY_DAYS = 7
"""Least number of days between two plans for one recurring skew."""


LAGGING_KEPT_MAX = 100
"""The state is part of each row of `decision`. Of more partitions than this those are kept that are behind longest."""


TRIES_AT_ONCE = 4
"""Tries at a plan for one need that may follow one another without a pause, although each gained too little."""


TRIES_PAUSE_MAX_MS = 3_600_000


RISE = 1.5
"""Factor by which the excess over the mean must have grown since the earlier plan."""


REMEMBERED_MAX = 8
"""Plans without gain that are remembered for one reason. Brokers may take turns as the worst, as noise decides."""


class Wanted(NamedTuple):
    """The need of a plan, with the state of the cluster that the plan would be made for."""

    reason: str
    resource: str
    """Skewed resource; empty if no resource decided."""
    broker: int
    """Broker above the threshold; -1 if no broker is."""
    brokers: int
    """Number of brokers that may hold replicas."""
    partitions: int
    """Number of partitions."""
    changed_ms: int
    """Time of the last movement of replicas or leaders, ms."""


class Attempt(NamedTuple):
    """A plan that is about to be made."""

    wanted: Wanted
    excess: float
    """Excess of the highest load over the mean: max/mean less 1; 0 if no resource decided."""
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
    """Why the plan gained too little, in words."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", Wanted(*self.wanted))  # JSON, in which the state is kept, knows lists only

    def is_about(self, attempt: Attempt) -> bool:
        """Whether nothing has changed since the plan from which another plan would gain more."""
        return self.wanted == attempt.wanted and attempt.excess <= self.excess * RISE

    def left_ms(self, now_ms: int) -> int:
        """Milliseconds until the pause ends."""
        return self.planned_ms + self.pause_ms - now_ms


Subject = tuple[str | int, ...]
"""Subject of a condition: (broker,), (topic, partition) or (reason,)."""
OFFLINE, LAGGING, LASTING = "offline", "lagging", "lasting"
"""Conditions: brokers with replicas that are offline, partitions under-replicated, states of the placement."""


@dataclass(frozen=True, slots=True)
class Timers:
    """Times since which conditions last, in ms: rows of condition, subject and time, in order."""

    rows: tuple[tuple[str, Subject, int], ...] = ()

    def of(self, condition: str) -> dict[Subject, int]:
        """Returns when each subject of the condition was first seen, by subject in order."""
        return {subject: since_ms for name, subject, since_ms in self.rows if name == condition}

    def at_most(self, now_ms: int) -> "Timers":
        """Returns the timers with no time later than `now_ms`."""
        return Timers(tuple((name, subject, min(since_ms, now_ms)) for name, subject, since_ms in self.rows))

    def folded(
        self, condition: str, seen: Mapping[Subject, int], *, continuous: bool, most: int | None = None
    ) -> "Timers":
        """Carried on to now: starts what is newly `seen` at its time, keeps what lasts, forgets what is over.

        After a gap without evaluations (not `continuous`) nobody knows what was in between: each time starts again. Of
        more than `most` subjects those are kept that have lasted longest.

        >>> timers = Timers().folded("offline", {(4,): 10}, continuous=True)
        >>> timers = timers.folded("offline", {(4,): 20, (5,): 20}, continuous=True)
        >>> timers.of("offline"), timers.folded("offline", {(4,): 90}, continuous=False).of("offline")
        ({(4,): 10, (5,): 20}, {(4,): 90})
        """
        known = self.of(condition) if continuous else {}
        since = sorted((known.get(subject, start_ms), subject) for subject, start_ms in seen.items())[:most]
        others = (row for row in self.rows if row[0] != condition)
        return Timers(tuple(sorted((*others, *((condition, subject, since_ms) for since_ms, subject in since)))))


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A plan that waits for its maintenance window."""

    plan_id: str
    load: float = 0.0
    """Mean load for which the plan was made: a plan for a higher load replaces it."""
    failed: tuple[int, ...] = ()
    """Brokers whose replicas it creates again since they have failed; none where it is for another need."""
    reason: str = ""
    """The need that the waiting plan is for, if that is one of `reasons.OWN_PLANS`; else empty."""


@dataclass(frozen=True, slots=True)
class TriggerState:
    """What must be remembered between evaluations; `breached_since_ms` is None while the load counts as even."""

    breached_since_ms: int | None = None
    """End of the first of the windows that made the breach."""
    breached_resource: str | None = None
    breached_broker: int | None = None
    broker_since_ms: int | None = None
    """End of the first of the windows that brought `breached_broker` over; None where nobody noted it."""
    cooldown_end_ms: int = 0
    timers: Timers = Timers()
    waiting: WaitingPlan | None = None
    recurring_planned_ms: tuple[tuple[int, int], ...] = ()
    """(broker, when a plan for its recurring skew was last made), by broker."""
    futile: tuple[Futile, ...] = ()
    """Plans that gained too little, one for each reason; see `Futile`."""
    changed_ms: int = 0
    """When replicas or leaders were last moved: no plan for skew rests on windows that began before."""
    evaluated_ms: int = 0
    """Time of the newest decision, ms; 0 before the first."""

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "TriggerState":
        """The state that JSON of `asdict` holds, or that of an earlier version; what a newer one has added is left out.

        Raises the errors of a wrong shape: AttributeError, KeyError, TypeError, ValueError.

        >>> TriggerState.read({"waiting_plan_id": "p", "waiting_load": 2.0, "missing_since_ms": [[4, 7]]}).waiting
        WaitingPlan(plan_id='p', load=2.0, failed=(), reason='')
        """
        known = {row.name: content[row.name] for row in fields(cls) if row.name in content}
        names = {row.name for row in fields(Futile)}
        futile = (Futile(**{name: row[name] for name in row if name in names}) for row in content.get("futile", ()))
        recurring = tuple((int(broker), int(ms)) for broker, ms in content.get("recurring_planned_ms", ()))
        read = {"timers": _timers(content), "waiting": _waiting(content), "futile": tuple(futile)}
        return cls(**{**known, **read, "recurring_planned_ms": recurring})

    @property
    def skewed_since_ms(self) -> int | None:
        """Time since which the broker that a plan would be for is over: another broker may have begun the breach."""
        return self.breached_since_ms if self.broker_since_ms is None else self.broker_since_ms


def _timers(content: Mapping[str, Any]) -> Timers:
    """Earlier versions kept a list for each condition, whose rows end with the time."""
    if "timers" in content:
        rows = [(name, subject, since_ms) for name, subject, since_ms in content["timers"]["rows"]]
    else:
        lists = {OFFLINE: "missing_since_ms", LAGGING: "lagging_since_ms", LASTING: "lasting_since_ms"}
        rows = [(name, row[:-1], row[-1]) for name, key in lists.items() for row in content.get(key, ())]
    return Timers(tuple(sorted((str(name), tuple(subject), int(since_ms)) for name, subject, since_ms in rows)))


def _waiting(content: Mapping[str, Any]) -> WaitingPlan | None:
    """Earlier versions kept a field for each part of it."""
    names = ("plan_id", "load", "failed", "reason")
    given = content.get("waiting") or {name: content.get(f"waiting_{name}") for name in names}
    if not given["plan_id"]:
        return None
    return WaitingPlan(
        str(given["plan_id"]), float(given["load"] or 0.0), tuple(given["failed"] or ()), str(given["reason"] or "")
    )


def without_times_ahead(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> TriggerState:
    """`state` without times that are still to come: a clock that was ahead has written them, and they would hold back
    plans until real time is there. `evaluated_ms` stays, as it shows that this was so.
    """
    return replace(
        state,
        timers=state.timers.at_most(now_ms),
        recurring_planned_ms=tuple(
            (broker, min(planned_ms, now_ms)) for broker, planned_ms in state.recurring_planned_ms
        ),
        cooldown_end_ms=min(state.cooldown_end_ms, now_ms + policy.cooldown_ms),
        changed_ms=min(state.changed_ms, now_ms),
    )


def is_continuous(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> bool:
    """Whether the newest step is so recent that what was seen then and is seen now has lasted in between."""
    return 0 <= now_ms - state.evaluated_ms <= policy.stale_after_ms


def with_lagging(policy: TriggerPolicy, state: TriggerState, live: LiveCluster, now_ms: int) -> TriggerState:
    """With partitions that are under-replicated now; to be called before `with_surroundings`, which notes the time.

    What is missing on brokers that are offline is not noted: control waits for those brokers, or replaces them.
    """
    behind: dict[Subject, int] = dict.fromkeys(live.once("lagging", lambda: lagging(live, live.hosts_away())), now_ms)
    continuous = is_continuous(policy, state, now_ms)
    return replace(state, timers=state.timers.folded(LAGGING, behind, continuous=continuous, most=LAGGING_KEPT_MAX))


def with_lasting(policy: TriggerPolicy, state: TriggerState, seen: Iterable[Reason], now_ms: int) -> TriggerState:
    """With states of the placement that are seen now; to be called before `with_surroundings`, which notes the time."""
    subjects: dict[Subject, int] = {(reason.value,): now_ms for reason in seen}
    continuous = is_continuous(policy, state, now_ms)
    return replace(state, timers=state.timers.folded(LASTING, subjects, continuous=continuous))


def with_surroundings(policy: TriggerPolicy, state: TriggerState, around: Surroundings, now_ms: int) -> TriggerState:
    """With brokers that are offline now, changes of the placement, and the time of this step."""
    offline: dict[Subject, int] = {
        (broker,): min(around.away_since_ms.get(broker, now_ms), now_ms) for broker in around.missing_brokers
    }
    timers = state.timers.folded(OFFLINE, offline, continuous=is_continuous(policy, state, now_ms))
    changed_ms = now_ms if around.reassigning_count else max(state.changed_ms, around.changed_ms)
    return replace(state, timers=timers, changed_ms=changed_ms, evaluated_ms=now_ms)


def last_change_ms(state: TriggerState, changed_ms: int, now_ms: int) -> int:
    """When replicas or leaders were last moved, if an execution is noted to have ended at `changed_ms`.

    An end that a clock has dated ahead lies in the past. It counts as of the first step that sees it, and not again at
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


def offline_since_ms(state: TriggerState) -> dict[int, int]:
    """Returns when each broker that is offline while it holds replicas was first seen offline, by broker, ascending."""
    return {int(subject[0]): since_ms for subject, since_ms in state.timers.of(OFFLINE).items()}


def brokers_failed(policy: TriggerPolicy, state: TriggerState, now_ms: int) -> tuple[int, ...]:
    """Brokers that have been away for longer than the grace time, ascending."""
    grace_ms = policy.broker_failure_grace_ms
    return tuple(broker for broker, since_ms in offline_since_ms(state).items() if now_ms - since_ms >= grace_ms)


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
    """Returns the tries with one more, which gained too little; tries for another placement of its reason are gone.

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
    """Returns the tries after a plan for this reason was worth its movements."""
    return tuple(row for row in futile if row.wanted.reason != attempt.wanted.reason)
