"""Decisions of the past made again, at their times and on their windows: what this version and these settings decide.

Nothing is moved in thought, as `replay` does it: the recorded loads already show what was really moved. What the
planner found then is taken as it was, since windows hold no partitions.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from assignor_core.deciding.observation import Observation, PlanRequest, brokers_counted
from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.skewed import PLAN_WINDOWS_MAX
from assignor_core.deciding.state import TriggerState, after_plan
from assignor_core.deciding.step import step
from assignor_core.errors import LoadsDisagree
from assignor_core.live import LiveCluster
from assignor_core.load import Floats
from assignor_core.load_history.load_memory import LoadMemory
from assignor_core.load_history.recurring import RecurringLoad
from assignor_core.load_history.windows import ClosedWindow, skew_window
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.replays.window_replay import EvenPlans, evened

OF_WINDOWS = frozenset(
    {
        Reason.SKEWED,
        Reason.BALANCED,
        Reason.NOT_ENOUGH_WINDOWS,
        Reason.NOISE,
        Reason.PASSING,
        Reason.RECURRING,
        Reason.STALE_DATA,
        Reason.LOW_LOAD,
        Reason.COOLDOWN,
        Reason.MAINTENANCE_WINDOW,
        Reason.LOADS_DISAGREE,
        Reason.MIN_GAIN,
        Reason.DRY_RUN,
    }
)
"""Reasons that closed windows and the moves between them explain; the others rest on what windows don't show."""


DrainedAt = Callable[[int], frozenset[int]]
"""Brokers that were being drained at a time, ms."""


def _none_drained(_at_ms: int) -> frozenset[int]:
    return frozenset()


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision: when, on windows up to which end, and what it came to."""

    decided_ms: int
    window_end_ms: int
    verdict: Verdict
    reason: Reason
    detail: str = ""


def decided_again(
    windows: Sequence[ClosedWindow],
    past: Sequence[Decided],
    policy: DecisionPolicy,
    *,
    changed_ms: Sequence[int],
    drained_at: DrainedAt = _none_drained,
) -> list[Decided]:
    """The decisions of `past`, oldest first, as this policy makes them on `windows`, oldest first.

    `changed_ms` are the times, ascending, at which executions that moved anything ended. What was decided for reasons
    that are not `OF_WINDOWS` stays as it was: windows don't show whether it would be decided again.
    """
    return list(_Past(windows, past, policy, changed_ms, drained_at).decisions())


class _PastPlans(EvenPlans):
    """Evidence that gives no plan where the planner of that time found none worth its movements."""

    found: Reason = Reason.SKEWED

    def target(self, loads: Floats, band: float) -> Floats:
        """Real plans fill an empty broker, too, and the recorded loads show it."""
        return evened(loads, band)

    def propose(self, request: PlanRequest) -> ProposedPlan:
        """A plan, or what was found instead."""
        if self.found is Reason.LOADS_DISAGREE:
            raise LoadsDisagree("brokers and partitions did not report the same load then")
        proposed = super().propose(request)
        if self.found is not Reason.MIN_GAIN:
            return proposed
        return replace(proposed, plan=replace(proposed.plan, movements=()))


class _Past:
    """One pass over past decisions; holds what control would remember."""

    def __init__(
        self,
        windows: Sequence[ClosedWindow],
        past: Sequence[Decided],
        policy: DecisionPolicy,
        changed_ms: Sequence[int],
        drained_at: DrainedAt,
    ) -> None:
        self._windows, self._past, self._policy, self._changed_ms = windows, past, policy, changed_ms
        self._drained_at = drained_at
        self._ends = [window.end_ms for window in windows]
        self._kept = max(policy.trigger.windows_considered, policy.planner_windows, PLAN_WINDOWS_MAX)
        self._state = TriggerState()
        self._memory, self._recurring = LoadMemory(), RecurringLoad()
        self._seen = 0
        """Windows that the memories hold."""
        brokers = sorted({broker for window in windows for broker in window.brokers})
        known = {name for window in windows for name, loads in window.loads.items() if loads}
        self._plans = _PastPlans(tuple(brokers), tuple(name for name in policy.resources if name in known))
        self._first_ms: dict[int, int] = {}
        self._last_ms: dict[int, int] = {}
        for window in windows:
            for broker in window.brokers:
                self._first_ms.setdefault(broker, window.end_ms)
                self._last_ms[broker] = window.end_ms

    def decisions(self) -> Iterator[Decided]:
        """One for each of the past."""
        for then in self._past:
            until = bisect_right(self._ends, then.window_end_ms)
            if then.reason in OF_WINDOWS and until:
                yield self._again(then, until)
                continue
            if then.verdict is Verdict.PLAN:
                self._state = after_plan(self._policy.trigger, self._state, then.decided_ms)
            yield then

    def _again(self, then: Decided, until: int) -> Decided:
        live = self._live(then.window_end_ms)
        ended = bisect_right(self._changed_ms, then.decided_ms)
        changed_ms = self._changed_ms[ended - 1] if ended else 0
        drained = self._drained_at(then.decided_ms)
        self._remember(brokers_counted(live, drained), until, max(changed_ms, self._state.changed_ms))
        observation = Observation.of(
            live,
            tuple(self._windows[max(0, until - self._kept) : until]),
            self._policy,
            drained=drained,
            changed_ms=changed_ms,
            now_ms=then.decided_ms,
            memory=self._memory,
            recurring=self._recurring,
        )
        self._plans.found = then.reason
        self._state, decision = step(self._state, observation, self._policy, self._plans)
        found = decision.evaluation
        return Decided(then.decided_ms, then.window_end_ms, found.verdict, found.reason, found.detail)

    def _live(self, end_ms: int) -> LiveCluster:
        """The brokers from their first window to their last; a broker that is silent in between is not gone."""
        brokers = (broker for broker, first_ms in self._first_ms.items() if first_ms <= end_ms <= self._last_ms[broker])
        return LiveCluster("past", dict.fromkeys(sorted(brokers)), {})

    def _remember(self, counted: frozenset[int], until: int, changed_ms: int) -> None:
        """What control remembers of the windows since its last decision, of the brokers that count."""
        trigger = self._policy.trigger
        skews = tuple(
            skew_window(window, self._policy.resources, self._policy.capacities, counted)
            for window in self._windows[self._seen : until]
        )
        self._seen = max(self._seen, until)
        self._memory = self._memory.after(skews, trigger.watched, changed_ms=changed_ms)
        if trigger.recurring_load:
            self._recurring = self._recurring.after(skews, trigger.watched, changed_ms=changed_ms)
