"""Decisions of the past made again, at their times and on their windows: what this version and these settings decide.

Nothing is moved in this world: the recorded loads already show what was really moved. What the planner found then is
taken as it was, since windows hold no partitions.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from assignor_core.deciding.observation import PlanRequest
from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.errors import LoadsDisagree
from assignor_core.live import LiveCluster
from assignor_core.load import Floats
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.replays.recorded_windows import EvenPlans, evened
from assignor_core.replays.replay import PlanMade, Replay, Tick, TickOutcome
from assignor_core.resources import Resource

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
    drained_at: DrainedAt = lambda _at_ms: frozenset(),
) -> list[Decided]:
    """The decisions of `past`, oldest first, as this policy makes them on `windows`, oldest first.

    `changed_ms` are the times, ascending, at which executions that moved anything ended. What was decided for reasons
    that are not `OF_WINDOWS` stays as it was: windows don't show whether it would be decided again.
    """
    known = {name for window in windows for name, loads in window.loads.items() if loads}
    resources = tuple(name for name in policy.resources if name in known)
    world = RecordedDecisions(windows, past, resources, changed_ms, drained_at)
    Replay(world, policy).run()
    return world.again


class PastPlans(EvenPlans):
    """Evidence that gives no plan where the planner of that time found none worth its movements."""

    found: Reason = Reason.SKEWED
    """What was decided at that time."""

    def target(self, loads: Floats, band: float) -> Floats:
        """Loads after a plan: real plans fill an empty broker, too, and the recorded loads show it."""
        return evened(loads, band)

    def propose(self, request: PlanRequest) -> ProposedPlan:
        """A plan, or what was found instead; raises LoadsDisagree and NothingToPlanOn."""
        if self.found is Reason.LOADS_DISAGREE:
            raise LoadsDisagree("brokers and partitions did not report the same load then")
        proposed = super().propose(request)
        if self.found is not Reason.MIN_GAIN:
            return proposed
        return replace(proposed, plan=replace(proposed.plan, movements=()))


class RecordedDecisions:
    """The world of decisions that were made: a tick for each, with the windows that had closed by then."""

    measured: tuple[Resource, ...] = ()

    def __init__(
        self,
        windows: Sequence[ClosedWindow],
        past: Sequence[Decided],
        resources: tuple[Resource, ...],
        changed_ms: Sequence[int],
        drained_at: DrainedAt,
    ) -> None:
        self._windows, self._past, self._changed_ms, self._drained_at = windows, past, changed_ms, drained_at
        self._last_ms = {broker: window.end_ms for window in windows for broker in window.brokers}
        self._first_ms = {broker: window.end_ms for window in reversed(windows) for broker in window.brokers}
        self.evidence = PastPlans(tuple(sorted(self._last_ms)), resources)
        self.again: list[Decided] = []
        """The decisions so far, as they are made now or as they were."""

    def ticks(self) -> Iterator[Tick | PlanMade]:
        """One for each decision that windows explain, and one for each other plan."""
        ends = [window.end_ms for window in self._windows]
        seen = 0
        for then in self._past:
            self.again.append(then)
            until = bisect_right(ends, then.window_end_ms)
            if then.reason in OF_WINDOWS and until >= max(1, seen):
                self.evidence.found = then.reason
                yield self._tick(then, self._windows[seen:until])
                seen = until
            elif then.verdict is Verdict.PLAN:
                yield PlanMade(then.decided_ms)

    def note(self, tick: Tick, outcome: TickOutcome) -> None:
        """The newest decision is what it comes to now."""
        if outcome.decision is not None:
            found, then = outcome.decision.evaluation, self.again[-1]
            self.again[-1] = Decided(tick.now_ms, then.window_end_ms, found.verdict, found.reason, found.detail)

    def _tick(self, then: Decided, closed: Sequence[ClosedWindow]) -> Tick:
        """Brokers are there from their first window to their last: one that is silent in between is not gone."""
        at_ms, end_ms = then.decided_ms, then.window_end_ms
        brokers = (broker for broker, last_ms in self._last_ms.items() if self._first_ms[broker] <= end_ms <= last_ms)
        ended = bisect_right(self._changed_ms, at_ms)
        return Tick(
            at_ms,
            LiveCluster("past", dict.fromkeys(sorted(brokers)), {}),
            tuple(closed),
            drained=self._drained_at(at_ms),
            changed_ms=self._changed_ms[ended - 1] if ended else 0,
        )
