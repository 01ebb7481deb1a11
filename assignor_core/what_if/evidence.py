"""What the replayed decisions ask for: plans by the real planner, for the placement and the loads of the replay."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assignor_core.deciding.observation import GivenUp, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.errors import NothingToPlanOn
from assignor_core.live_plans.measured_loads import DAY_HOURS, NO_HOURS, HourlyRates, merged
from assignor_core.live_plans.planning import PartitionLoads, build_model, propose_elections, propose_on
from assignor_core.load import NO_BROKER, Floats
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.resources import Resource
from assignor_core.what_if.history import BYTES_IN_AT, HOUR_MS, History
from assignor_core.what_if.placed import PlacedCluster

CELLS_MAX = 100_000
"""Most partitions times columns of one plan: of 20,000 partitions the day has four parts. Control plans on more."""
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Planning:
    """What plans depend on besides the policy of the decision."""

    disk_reserve: float = 0.1
    disagreement_max: float = 0.2
    days: int = 7
    """0: plans rest on the newest windows alone."""
    plan_ttl_ms: int = DAY_MS


class ReplayEvidence:
    """Evidence of one replay. Consumer groups are not part of it: none falls behind or catches up."""

    def __init__(self, history: History, cluster: PlacedCluster, policy: DecisionPolicy, planning: Planning) -> None:
        self._history, self._cluster, self._policy, self._planning = history, cluster, policy, planning
        self._hours = {start_ms: hour for hour, start_ms in enumerate(history.hour_start_ms)}
        self._hourly = _hours_of_day(history, planning.days)
        self._kept: dict[str, KeptPlan] = {}
        self._copied: list[tuple[int, float]] = []
        self._given_up = GivenUp()
        self.now_ms = 0

    def groups_behind(self, _brokers: frozenset[int]) -> Mapping[int, str]:
        """None are known."""
        return {}

    def catch_up_bytes_per_sec(self, _windows: tuple[ClosedWindow, ...]) -> Mapping[int, float]:
        """None are known."""
        return {}

    def copied_bytes_of_day(self) -> int:
        """Bytes that executions of the last 24 hours have copied."""
        return round(sum(copied for ended_ms, copied in self._copied if ended_ms > self.now_ms - DAY_MS))

    def kept_plan(self, plan_id: str) -> KeptPlan | None:
        """A plan of this replay."""
        return self._kept.get(plan_id)

    def forget_all_but(self, plan_id: str | None) -> None:
        """Nobody asks for another plan than the one that waits, and a long replay makes thousands."""
        self._kept = {kept: plan for kept, plan in self._kept.items() if kept == plan_id}

    def given_up(self) -> GivenUp:
        """Executions that their deadline ended, since one was done."""
        return self._given_up

    def note_end(self, copied_bytes: float, *, given_up: bool) -> None:
        """An execution has ended now."""
        self._copied.append((self.now_ms, copied_bytes))
        self._given_up = GivenUp(self._given_up.count + 1, self.now_ms) if given_up else GivenUp()

    def propose(self, request: PlanRequest) -> ProposedPlan:
        """A plan for the cluster of now; raises NothingToPlanOn."""
        if not request.windows or request.fill is not None:
            raise NothingToPlanOn("no closed window since the last change")
        span_ms = request.windows[0].start_ms, request.windows[-1].end_ms
        name = self._history.cluster_name
        if request.elections:
            live = self._cluster.live
            proposed = propose_elections(live, request.elections, cluster_name=name, span_ms=span_ms)
        else:
            proposed = self._balanced(request)
        expires_ms = self.now_ms + self._planning.plan_ttl_ms
        self._kept[proposed.plan.plan_id] = KeptPlan(proposed, self.now_ms, expires_ms)
        return proposed

    def _balanced(self, request: PlanRequest) -> ProposedPlan:
        model = build_model(
            self._cluster.live,
            self._cluster.log_dirs(),
            PartitionLoads(
                dict(
                    zip(self._history.partitions, map(tuple, self._mean_rates(request.windows).tolist()), strict=True)
                ),
                {window.start_ms: window.client_bytes_in for window in request.windows},
                self._hourly,
            ),
            request.windows,
            cluster_name=self._history.cluster_name,
            capacities=self._policy.capacities,
            disk_reserve=self._planning.disk_reserve,
            drained=request.drained,
            disagreement_max=self._planning.disagreement_max,
            now_ms=self.now_ms,
        )
        return propose_on(model, self._cluster.live, request.policy, elapsed_s=lambda: 0.0)

    def _mean_rates(self, windows: tuple[ClosedWindow, ...]) -> Floats:
        """P x rates: means over the windows. What a broker wandered by is part of what its leaders report."""
        leaders = self._cluster.leader_rows()
        led = leaders != NO_BROKER
        total: Floats = np.zeros(self._history.rates.shape[1:])
        for window in windows:
            hour, number = self._place_of(window)
            rates = self._history.rates[hour].copy()
            factors = self._cluster.factors(Resource.BYTES_IN, hour, number)
            rates[led, BYTES_IN_AT] *= factors[leaders[led]]
            total += rates
        return total / len(windows)

    def _place_of(self, window: ClosedWindow) -> tuple[int, int]:
        """The hour of a window, and its number in it."""
        start_ms = window.start_ms // HOUR_MS * HOUR_MS
        return self._hours[start_ms], (window.start_ms - start_ms) // (window.end_ms - window.start_ms)


def _hours_of_day(history: History, days: int) -> HourlyRates:
    """Means by the hour of the day over the whole history, in so few parts that plans stay quick; none for 0 days."""
    if days < 1:
        return NO_HOURS
    hour_of_day = np.array([start_ms // HOUR_MS % DAY_HOURS for start_ms in history.hour_start_ms])
    hours = np.unique(hour_of_day)
    rates = np.stack([history.rates[hour_of_day == hour].mean(axis=0) for hour in hours], axis=1)
    rows = {key: row for row, key in enumerate(history.partitions)}
    span_days = max(1, -(-len(history.hour_start_ms) // DAY_HOURS))
    return merged(HourlyRates(tuple(hours.tolist()), rows, rates, span_days), len(rows), CELLS_MAX)
