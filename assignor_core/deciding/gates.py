"""When control acts and what holds it back: the tuple of needs, and the table of gates that may speak against each.

A decision takes the needs in the order of `NEEDS`. A need that is found passes the gates of `GATES` that name it, in
their order. The first gate that holds gives the reason of the decision. Between the gates before a plan and those after
it the evidence makes the plan. A need that passes all gates is a plan. docs/trigger.md prints this table.

To add a need, write its finder in `needs` and list it here. To add a gate, write `(need, context) -> Hold | None` and
add its row.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from assignor_core.deciding.needs import (
    Hold,
    Need,
    NeedContext,
    broker_failed,
    crowded_racks,
    drained_broker,
    empty_broker,
    log_dir_full,
    outside_set,
    skewed,
    unpreferred_leaders,
)
from assignor_core.deciding.observation import Evidence
from assignor_core.deciding.plan_requests import attempt_of, not_mended, not_worth_it
from assignor_core.deciding.policy import DayBudget, DecisionPolicy, Mode
from assignor_core.deciding.reasons import LASTING_REASONS, OWN_PLANS, Reason
from assignor_core.deciding.skewed import complete_windows, entering, settled_windows, unsound
from assignor_core.deciding.state import LAGGING, TriggerState, offline_since_ms, paused
from assignor_core.errors import LoadsDisagree
from assignor_core.live import LiveCluster, lagging_text, offline, offline_text, too_many_away
from assignor_core.load_history.windows import skew_window, without_catch_up
from assignor_core.maintenance import may_act, next_opening
from assignor_core.resources import Resource
from assignor_core.wording import counted

DELETED_AFTER_MS = 120_000
"""Bytes that have left a log dir may fill it for so long: Kafka's `log.segment.delete.delay.ms` is a minute."""

FAILED, LOG_DIRS, SKEW = (frozenset({row}) for row in (Reason.BROKER_FAILED, Reason.LOG_DIR_FULL, Reason.SKEWED))
PLACEMENT = frozenset(LASTING_REASONS)
ALL = FAILED | LOG_DIRS | SKEW | PLACEMENT


@dataclass(frozen=True, slots=True)
class NeedKind:
    """One row of the needs."""

    reason: Reason
    find: Callable[[NeedContext], Need | Hold | None]


NEEDS = (
    NeedKind(Reason.BROKER_FAILED, broker_failed),
    NeedKind(Reason.LOG_DIR_FULL, log_dir_full),
    NeedKind(Reason.SKEWED, skewed),
    NeedKind(Reason.DRAINED_BROKER, drained_broker),
    NeedKind(Reason.OUTSIDE_SET, outside_set),
    NeedKind(Reason.CROWDED_RACKS, crowded_racks),
    NeedKind(Reason.EMPTY_BROKER, empty_broker),
    NeedKind(Reason.UNPREFERRED_LEADERS, unpreferred_leaders),
)
"""The most urgent first."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One row of the table."""

    name: str
    needs: frozenset[Reason]
    reasons: tuple[Reason, ...]
    """What the decision says then."""
    judge: Callable[[Need, NeedContext], Hold | None]
    after_plan: bool = False
    """Whether the gate judges the finished plan."""
    is_silent: bool = False
    """Whether the decision says nothing of it, and goes on to the next need."""
    only_noted: bool = False
    """Whether mode `propose` makes the plan all the same, with a note."""
    delays: bool = False
    """Whether the plan is kept and waits, where others drop it."""

    @property
    def holds_if(self) -> str:
        """When it holds a need, for people: the first line of its function."""
        return (self.judge.__doc__ or "").partition("\n")[0].removeprefix("Holds if ").rstrip(".")


def sound_data(need: Need, context: NeedContext) -> Hold | None:
    """Holds if no window is closed, the newest is old, or too few brokers reported (no obstacle for failed brokers).

    Brokers that send nothing hold back what evens out load, not what creates lost replicas again.
    """
    problem = unsound(context.trigger, context.skews, context.now_ms)
    if problem is None or (need.reason is Reason.BROKER_FAILED and problem[0] is Reason.INCOMPLETE):
        return None
    return Hold(*problem)


def log_dirs_at_rest(_need: Need, context: NeedContext) -> Hold | None:
    """Holds if partitions are being reassigned, replicas were moved less than 2 min ago, or the cooldown runs.

    How full log dirs are shows only once moved replicas are deleted where they were.
    """
    moving = _moving(context)
    if moving is not None:
        return moving
    if 0 <= context.now_ms - context.observation.changed_ms < DELETED_AFTER_MS:
        return Hold(Reason.IN_PROGRESS, "replicas were moved a moment ago, and their old files may still be there")
    return _cooldown(context)


def placement_at_rest(_need: Need, context: NeedContext) -> Hold | None:
    """Holds if a broker with replicas is offline, or partitions are being reassigned.

    While brokers are offline any plan would create their replicas again, and movements change the placement.
    """
    if context.around.missing_brokers:
        return Hold(Reason.INCOMPLETE, "brokers are offline")
    return _moving(context)


def _moving(context: NeedContext) -> Hold | None:
    if context.around.reassigning_count:
        return Hold(Reason.IN_PROGRESS, "partitions are being reassigned")
    return None


def low_load(need: Need, context: NeedContext) -> Hold | None:
    """Holds if the mean load of a broker is below `trigger.load_min_bytes_per_sec`.

    An idle cluster is uneven by nature.
    """
    load, floor = mean_load(need, context), context.trigger.load_min_bytes_per_sec
    if load >= floor:
        return None
    return Hold(Reason.LOW_LOAD, f"mean {need.resource} {load:.0f} B/s per broker is below the floor {floor:.0f} B/s")


def in_progress(_need: Need, context: NeedContext) -> Hold | None:
    """Holds if partitions are being reassigned, by anybody.

    The load is about to change.
    """
    count = context.around.reassigning_count
    words = counted(count, "partition is being reassigned", "partitions are being reassigned")
    return Hold(Reason.IN_PROGRESS, words) if count else None


def cooldown(need: Need, context: NeedContext) -> Hold | None:
    """Holds if the newest plan was made less than `trigger.cooldown_ms` ago.

    The windows must first show what the last plan has done.
    """
    hold = _cooldown(context)
    if hold is None or need.reason not in PLACEMENT:
        return hold
    return replace(hold, detail=f"{hold.why}; {need.text}")


def _cooldown(context: NeedContext) -> Hold | None:
    left_ms = context.state.cooldown_end_ms - context.now_ms
    words = f"cooldown after the last plan runs for {left_ms / 1000:.0f} s more"
    return Hold(Reason.COOLDOWN, words) if left_ms > 0 else None


def outage(_need: Need, context: NeedContext) -> Hold | None:
    """Holds if more than `trigger.relief_max_away_share` of the brokers are offline.

    The end of an outage brings the replicas back, and the other brokers can't carry them all.
    """
    words = too_many(context)
    return None if words is None else Hold(Reason.TOO_MANY_AWAY, words)


def too_many(context: NeedContext) -> str | None:
    """The sentence that says that too many brokers are offline; None if not too many are."""
    share_max = context.trigger.relief_max_away_share
    return too_many_away(len(context.around.missing_brokers), context.around.alive_count, share_max)


def brokers_offline(_need: Need, context: NeedContext) -> Hold | None:
    """Holds if a broker with replicas is offline: it may come back.

    Any plan would create the replicas of an offline broker again, and it may only be restarting.
    """
    offline_ms = offline_since_ms(context.state)
    if not offline_ms:
        return None
    broker, since_ms = next(iter(offline_ms.items()))
    away_s = (context.now_ms - since_ms) / 1000
    return Hold(Reason.INCOMPLETE, f"broker {broker} has been offline for {away_s:.0f} s: it may come back")


def catching_up(need: Need, context: NeedContext) -> Hold | None:
    """Holds if bytes out are skewed only by what consumers read to catch up.

    Consumers that catch up are no lasting load: a skew of bytes out must exist without what they read.
    """
    if need.resource != Resource.BYTES_OUT:
        return None
    considered = context.observation.windows[-context.trigger.windows_considered :]
    catch_up = context.evidence.catch_up_bytes_per_sec(considered)
    if not catch_up:
        return None
    policy, counts = context.policy, context.observation.counted
    lasting = (
        skew_window(without_catch_up(window, catch_up), policy.resources, policy.capacities, counts)
        for window in considered
    )
    settled = settled_windows(context.state, complete_windows(policy.trigger, lasting))
    if entering(policy.trigger, settled, context.around) is not None:
        return None
    broker = context.state.breached_broker
    read = 0.0 if broker is None else catch_up.get(broker, 0.0)
    why = f"{read / 1e6:,.1f} MB/s of that is read by consumers that catch up"
    return Hold(Reason.CATCHING_UP, why, f"{need.text}; {why}")


def observe(need: Need, context: NeedContext) -> Hold | None:
    """Holds if `control.mode` is `observe`."""
    return _beside(Reason.DRY_RUN, "mode is observe", need) if context.policy.mode is Mode.OBSERVE else None


def given_up(need: Need, context: NeedContext) -> Hold | None:
    """Holds if mode `apply` gave up its newest execution a short time ago.

    What kept an execution from its end mostly keeps the next one, too: each would copy all over again.
    """
    if context.policy.mode is not Mode.APPLY:
        return None
    pause = context.evidence.given_up().reason(context.now_ms)
    return None if pause is None else _beside(Reason.GIVEN_UP, pause, need)


def unhealthy(need: Need, context: NeedContext) -> Hold | None:
    """Holds if partitions are offline, or under-replicated since the evaluation before.

    An execution would submit nothing, keep its throttle until its deadline and abort.

    A plan that is to wait for its hours is made all the same.
    """
    relieves = need.reason is Reason.BROKER_FAILED
    problem = obstacle(context.state, context.observation.live, context.now_ms, relieves=relieves)
    if problem is None or (context.policy.mode is Mode.APPLY and not hours_are_open(context)):
        return None
    return _beside(Reason.UNHEALTHY, problem, need)


def obstacle(state: TriggerState, live: LiveCluster, now_ms: int, *, relieves: bool) -> str | None:
    """Why an execution would have to wait now, in words; None if it would not, or for a moment only.

    An offline partition counts at once. One that is under-replicated counts once the evaluation before has seen it so,
    too: a replica that falls behind for a moment holds nothing back. `relieves` is for a plan that replaces failed
    brokers: replicas lost on those brokers do not block the plan, as the plan restores them.

    >>> from assignor_core.deciding.state import Timers
    >>> from assignor_core.live import LivePartition
    >>> live = LiveCluster("c", {1: None, 2: None}, {("t", 0): LivePartition((1, 2), 1, (1,))})
    >>> state = TriggerState(timers=Timers((("lagging", ("t", 0), 60_000),)))
    >>> obstacle(state, live, 240_000, relieves=False)
    '1 partition is under-replicated, first t-0, for 3.0 min'
    """
    without_leader = offline(live, live.hosts_away() if relieves else ())
    if without_leader:
        return offline_text(without_leader)
    lasting = [(since_ms, key) for key, since_ms in state.timers.of(LAGGING).items() if since_ms < now_ms]
    if not lasting:
        return None
    since_ms, (topic, partition) = min(lasting)
    return f"{lagging_text(len(lasting), (str(topic), int(partition)))}, for {(now_ms - since_ms) / 60_000:.1f} min"


def other_plan_waits(need: Need, context: NeedContext) -> Hold | None:
    """Holds if another plan waits for its maintenance window, and this one may not replace it.

    Of the plans made before a maintenance window the one made at the highest load waits: nights are not days.

    One for the placement waits only while no other does, and gives way to one for skew.
    """
    plan = context.state.waiting
    if plan is None or hours_are_open(context):
        return None
    waiting, opening = plan.plan_id[:12], next_opening(context.policy.maintenance, context.now_ms)
    if need.reason in OWN_PLANS:
        return _beside(Reason.MAINTENANCE_WINDOW, f"plan {waiting} waits for {opening}", need)
    if plan.reason or mean_load(need, context) > plan.load:
        return None
    return _beside(Reason.MAINTENANCE_WINDOW, f"plan {waiting}, made at a higher load, waits for {opening}", need)


def known_useless(need: Need, context: NeedContext) -> Hold | None:
    """Holds if the newest plans for this need gained too little, and nothing has changed."""
    pause = paused(context.state.futile, attempt_of(need, context.state, context.observation))
    return None if pause is None else Hold(Reason.MIN_GAIN, pause)


def measurements_agree(_need: Need, context: NeedContext) -> Hold | None:
    """Holds if too many loads are unknown, or brokers and partitions report different loads.

    A plan that rests on guesses, or on figures that contradict each other, is not made.
    """
    if context.refusal is None:
        return None
    disagree = isinstance(context.refusal, LoadsDisagree)
    return Hold(Reason.LOADS_DISAGREE if disagree else Reason.INCOMPLETE, str(context.refusal))


def budget_spent(need: Need, context: NeedContext) -> Hold | None:
    """Holds if no plan within the rest of `control.bytes_per_day_max` gains enough."""
    useless, budget = _useless(need, context), context.budget
    if useless is None or budget is None or not budget.binds(context.policy.planner):
        return None
    return Hold(Reason.DAY_BUDGET, f"{budget.in_words()}; {useless}")


def no_room(need: Need, context: NeedContext) -> Hold | None:
    """Holds if nothing fits on any disk."""
    useless = _useless(need, context)
    problems = context.proposed is not None and context.proposed.plan.problems
    return Hold(Reason.NO_ROOM, useless) if useless is not None and problems else None


def gain(need: Need, context: NeedContext) -> Hold | None:
    """Holds if the plan gains less than 0.01 of max/mean, or no more than noise, or repairs nothing of its state.

    What a plan gains must be more than a floor, and more than noise could promise.
    """
    useless = _useless(need, context)
    return None if useless is None else Hold(Reason.MIN_GAIN, useless)


def hours(need: Need, context: NeedContext) -> Hold | None:
    """Holds if mode `apply` is outside `control.maintenance_windows`.

    Mode `apply` changes the cluster only in the maintenance windows.
    """
    if context.policy.mode is not Mode.APPLY or hours_are_open(context):
        return None
    why = f"the plan waits for {next_opening(context.policy.maintenance, context.now_ms)}"
    return Hold(Reason.MAINTENANCE_WINDOW, why, f"{need.text}; {why}")


def hours_are_open(context: NeedContext) -> bool:
    """Whether the cluster may be changed now."""
    return may_act(context.policy.maintenance, context.now_ms)


def day_budget(policy: DecisionPolicy, evidence: Evidence) -> DayBudget | None:
    """What plans may copy that nobody is asked about; None where that has no limit."""
    if policy.bytes_per_day_max is None or policy.mode is not Mode.APPLY:
        return None
    return DayBudget(policy.bytes_per_day_max, evidence.copied_bytes_of_day())


def _useless(need: Need, context: NeedContext) -> str | None:
    """Why the plan is not worth carrying out, in words; None if it is."""
    if context.proposed is None:
        return None
    if need.reason not in OWN_PLANS:
        return not_worth_it(context.proposed, need, context.policy.gain_min, context.gain_of_noise)
    useless = not_mended(need.reason, context.placement, context.proposed.plan)
    return None if useless is None else f"{need.text}; {useless}"


def mean_load(need: Need, context: NeedContext) -> float:
    """Mean load of the resource that is skewed; of bytes in where none is."""
    return context.observation.skews[-1].mean_load.get(need.resource or Resource.BYTES_IN, 0.0)


def _beside(reason: Reason, why: str, need: Need) -> Hold:
    return Hold(reason, why, f"{why}; {need.text}")


GATES = (
    Gate("sound data", FAILED | SKEW, (Reason.NOT_ENOUGH_WINDOWS, Reason.STALE_DATA, Reason.INCOMPLETE), sound_data),
    Gate("log dirs at rest", LOG_DIRS, (Reason.IN_PROGRESS, Reason.COOLDOWN), log_dirs_at_rest, is_silent=True),
    Gate("placement at rest", PLACEMENT, (Reason.INCOMPLETE, Reason.IN_PROGRESS), placement_at_rest, is_silent=True),
    Gate("low load", SKEW, (Reason.LOW_LOAD,), low_load),
    Gate("in progress", FAILED | SKEW, (Reason.IN_PROGRESS,), in_progress),
    Gate("cooldown", FAILED | SKEW | PLACEMENT, (Reason.COOLDOWN,), cooldown),
    Gate("outage", FAILED, (Reason.TOO_MANY_AWAY,), outage),
    Gate("brokers offline", SKEW, (Reason.INCOMPLETE,), brokers_offline),
    Gate("catching up", SKEW, (Reason.CATCHING_UP,), catching_up),
    Gate("observe", ALL, (Reason.DRY_RUN,), observe),
    Gate("gave up lately", ALL - FAILED, (Reason.GIVEN_UP,), given_up),
    Gate("unhealthy", ALL - LOG_DIRS, (Reason.UNHEALTHY,), unhealthy, only_noted=True),
    Gate("other plan waits", ALL - FAILED, (Reason.MAINTENANCE_WINDOW,), other_plan_waits),
    Gate("known useless", SKEW | PLACEMENT, (Reason.MIN_GAIN,), known_useless),
    Gate("measurements agree", ALL, (Reason.LOADS_DISAGREE, Reason.INCOMPLETE), measurements_agree, after_plan=True),
    Gate("day budget", SKEW | PLACEMENT, (Reason.DAY_BUDGET,), budget_spent, after_plan=True),
    Gate("room", FAILED | LOG_DIRS, (Reason.NO_ROOM,), no_room, after_plan=True),
    Gate("gain", ALL, (Reason.MIN_GAIN,), gain, after_plan=True),
    Gate("maintenance window", ALL, (Reason.MAINTENANCE_WINDOW,), hours, after_plan=True, delays=True),
)
"""Gates in the order in which a decision calls them; see `Gate`."""
