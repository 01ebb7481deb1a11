"""A cluster as recorded, on a placement that plans change: real decisions and plans, simulated movements.

Partitions have the load that was recorded, and a broker carries what is placed on it by then. Each plan is made by the
real planner and carried out at the throttle, as mode `apply` would do it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from assignor_core.deciding.observation import GivenUp, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, Mode
from assignor_core.deciding.step import Decision
from assignor_core.disks import LogDirDescription
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey
from assignor_core.live_plans.measured_loads import DAY_HOURS, NO_HOURS, HourlyRates, merged
from assignor_core.live_plans.planning import LeaderLoads, build_model, propose_elections, propose_on
from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.maintenance import may_act
from assignor_core.plan import Movement
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.replays.copying import Copying, Pace
from assignor_core.replays.history import BYTES_IN_AT, BYTES_OUT_AT, HOUR_MS, RecordedHistory
from assignor_core.replays.replay import Replay, Tick, TickOutcome, WorldEvidence
from assignor_core.resources import Resource

SHOWN = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.DISK)
"""Resources that a window holds and whose skew is followed, whether or not it may make a plan."""
CELLS_MAX = 100_000
"""Most partitions times columns of one plan: of 20,000 partitions the day has four parts. Control plans on more."""
DAY_MS = 24 * HOUR_MS
ENOUGH_BYTES = 10**18
"""Size of a broker's volume where nobody knows it."""
LOG_DIR = "/replayed"


@dataclass(frozen=True, slots=True)
class Planning:
    """What plans depend on besides the policy of the decision."""

    disk_reserve: float = 0.1
    disagreement_max: float = 0.2
    days: int = 7
    """0: plans rest on the newest windows alone."""
    plan_ttl_ms: int = DAY_MS


@dataclass(frozen=True, slots=True)
class ReplayedPlan:
    """One plan of a replay, and how it was carried out. Times are those of the history."""

    plan_id: str
    begun_ms: int
    reason: str
    detail: str
    movements: int
    bytes_to_move: float
    max_over_mean: dict[str, tuple[float, float]]
    """Resource: before, and as the plan promises."""
    ended_ms: int | None = None
    """When the plan's execution ended; None where the history ended first."""
    copied_bytes: float = 0.0
    given_up: bool = False
    duration_ms: int | None = None
    """How long it took without its pauses and hours that nobody recorded, as executions are measured; None where it had
    not ended.
    """


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedHours:
    """What came of a replay. H hours, B brokers in the order of their ids; brokers that are away have NaN."""

    hour_start_ms: tuple[int, ...]
    broker_ids: tuple[int, ...]
    max_over_mean: dict[str, Floats]
    """Resource: H means over the windows of each hour, of the brokers that count."""
    broker_load: dict[str, Floats]
    """Resource: H x B, as at the end of each hour."""
    plans: tuple[ReplayedPlan, ...]
    holds: dict[str, int]
    """Reason: windows in which the decision was to hold for it."""
    windows: int
    windows_in_skew: int
    """Windows in which a resource that may make a plan was above `enter_ratio`."""
    even_after_ms: int | None
    """From the start to the end of the last such window; 0 where there was none, None where the last one was one."""
    offline_count: int
    """Partitions without a leader."""
    final_replicas: tuple[tuple[int, ...], ...]
    """Broker ids by partition of the history, at the end."""

    @property
    def copied_bytes(self) -> float:
        """Bytes that movements have copied which ended."""
        return sum(plan.copied_bytes for plan in self.plans)


def replay(
    history: RecordedHistory,
    policy: DecisionPolicy,
    *,
    pace: Pace,
    planning: Planning | None = None,
    window_ms: int = 60_000,
    away: frozenset[int] = frozenset(),
) -> ReplayedHours:
    """Replays `history` under `policy`; `window_ms` must divide an hour. Brokers `away` are down throughout."""
    throttled = replace(policy.planner, throttle_bytes_per_sec=pace.throttle_bytes_per_sec)
    policy = replace(policy, mode=Mode.APPLY, fill=None, planner=throttled)
    cluster = PlacedCluster(history, away)
    world = PlacedHours(cluster, policy, RealPlans(cluster, policy, planning or Planning()), pace, window_ms)
    Replay(world, policy).run()
    return world.result()


class PlacedHours:
    """The world of recorded hours on a placement: windows close, movements copy, and what comes of it is counted."""

    measured = SHOWN

    def __init__(
        self, cluster: "PlacedCluster", policy: DecisionPolicy, plans: "RealPlans", pace: Pace, window_ms: int
    ) -> None:
        self.evidence: RealPlans = plans
        self._cluster, self._policy, self._pace, self._window_ms = cluster, policy, pace, window_ms
        self._history = cluster.history
        self._hour, self._changed_ms = 0, 0
        self._copying: Copying | None = None
        self._plans: list[ReplayedPlan] = []
        self._holds: Counter[str] = Counter()
        self._windows, self._windows_in_skew, self._skewed_until_ms = 0, 0, 0
        hours = len(self._history.hour_start_ms)
        self._ratios: dict[str, Floats] = {resource.value: np.zeros(hours) for resource in SHOWN}
        self._loads = {resource.value: np.full((hours, len(cluster.broker_ids)), np.nan) for resource in SHOWN}

    def ticks(self) -> Iterator[Tick]:
        """One for each window of each hour."""
        cluster, numbers = self._cluster, range(HOUR_MS // self._window_ms)
        for hour, start_ms in enumerate(self._history.hour_start_ms):
            self._hour = hour
            for number in numbers:
                begun_ms = start_ms + number * self._window_ms
                now_ms = self.evidence.now_ms = begun_ms + self._window_ms
                yield Tick(
                    now_ms,
                    cluster.live,
                    (cluster.window(hour, number, begun_ms, now_ms),),
                    drained=self._history.drained,
                    changed_ms=self._changed_ms,
                    is_executing=self._copying is not None,
                )
            for name, ratios in self._ratios.items():
                ratios[hour] /= len(numbers)
                self._loads[name][hour] = np.where(cluster.alive, cluster.loads(hour)[name], np.nan)

    def note(self, tick: Tick, outcome: TickOutcome) -> None:
        """Count the window; what is under way goes on for a window, or a plan begins."""
        skew = outcome.skew
        for name, ratios in self._ratios.items():
            ratios[self._hour] += skew.max_over_mean(name)
        trigger = self._policy.trigger
        self._windows += 1
        if any(
            skew.mean_load.get(name, 0.0) >= trigger.load_min_bytes_per_sec
            and skew.max_over_mean(name) > trigger.enter_ratio
            for name in self._policy.resources
        ):
            self._windows_in_skew += 1
            self._skewed_until_ms = tick.now_ms
        if self._copying is not None:
            self._carry_on(self._copying, tick.now_ms)
        elif outcome.decision is not None and outcome.acted_on is not None:
            self._begin(outcome.decision, outcome.acted_on, tick.now_ms)
        elif outcome.decision is not None:
            self._holds[outcome.decision.evaluation.reason.value] += 1

    def result(self) -> ReplayedHours:
        """What came of it."""
        starts = self._history.hour_start_ms
        until_ms = self._skewed_until_ms
        return ReplayedHours(
            hour_start_ms=starts,
            broker_ids=self._cluster.broker_ids,
            max_over_mean=self._ratios,
            broker_load=self._loads,
            plans=tuple(self._plans),
            holds=dict(sorted(self._holds.items())),
            windows=self._windows,
            windows_in_skew=self._windows_in_skew,
            even_after_ms=None if until_ms == starts[-1] + HOUR_MS else until_ms and until_ms - starts[0],
            offline_count=sum(row.leader == NO_LEADER for row in self._cluster.live.partitions.values()),
            final_replicas=self._cluster.replicas,
        )

    def _begin(self, decision: Decision, proposed: ProposedPlan, now_ms: int) -> None:
        plan, cluster, hour = proposed.plan, self._cluster, self._hour
        live = cluster.live
        self._plans.append(
            ReplayedPlan(
                plan_id=plan.plan_id,
                begun_ms=now_ms,
                reason=decision.evaluation.reason.value,
                detail=decision.evaluation.detail,
                movements=plan.movement_count,
                bytes_to_move=plan.bytes_to_move,
                max_over_mean={
                    name: (before["max_over_mean"], plan.skew_after[name]["max_over_mean"])
                    for name, before in plan.skew_before.items()
                },
            )
        )
        self._copying = Copying(
            plan,
            self._pace,
            leader_of=lambda key: live.partitions[key].leader,
            bytes_of=cluster.size_bytes,
            produced_of=lambda key: cluster.bytes_in_per_sec(key, hour),
        )

    def _carry_on(self, copying: Copying, now_ms: int) -> None:
        """Movements copy for a window; those that have ended are in force."""
        before_ms = copying.elapsed_ms
        ended = copying.advance(self._window_ms, may_begin=may_act(self._policy.maintenance, now_ms))
        if ended:
            self._cluster.move(ended)
        if not copying.is_over:
            return
        self._changed_ms = now_ms - self._window_ms + round(copying.elapsed_ms - before_ms)
        self._plans[-1] = replace(
            self._plans[-1],
            ended_ms=self._changed_ms,
            copied_bytes=copying.copied_bytes,
            given_up=copying.given_up,
            duration_ms=round(copying.worked_ms),
        )
        self.evidence.note_end(copying.copied_bytes, given_up=copying.given_up)
        self._copying = None


class RealPlans(WorldEvidence):
    """Plans by the real planner, for the placement and the loads of now."""

    def __init__(self, cluster: "PlacedCluster", policy: DecisionPolicy, planning: Planning) -> None:
        super().__init__()
        self.now_ms = 0
        self._cluster, self._policy, self._planning = cluster, policy, planning
        self._history = cluster.history
        self._hours = {start_ms: hour for hour, start_ms in enumerate(self._history.hour_start_ms)}
        self._hourly = _hours_of_day(self._history, planning.days)
        self._copied: list[tuple[int, float]] = []
        self._given_up = GivenUp()

    def copied_bytes_of_day(self) -> int:
        """Bytes that executions of the last 24 hours have copied."""
        return round(sum(copied for ended_ms, copied in self._copied if ended_ms > self.now_ms - DAY_MS))

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
        live, name = self._cluster.live, self._history.cluster_name
        if request.elections:
            proposed = propose_elections(live, request.elections, cluster_name=name, span_ms=span_ms)
        else:
            proposed = self._balanced(request)
        self.keep(proposed, self.now_ms, ttl_ms=self._planning.plan_ttl_ms)
        return proposed

    def _balanced(self, request: PlanRequest) -> ProposedPlan:
        rates = map(tuple, self._mean_rates(request.windows).tolist())
        model = build_model(
            self._cluster.live,
            self._cluster.log_dirs(),
            LeaderLoads(
                dict(zip(self._history.partitions, rates, strict=True)),
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
            start_ms = window.start_ms // HOUR_MS * HOUR_MS
            hour, number = self._hours[start_ms], (window.start_ms - start_ms) // (window.end_ms - window.start_ms)
            rates = self._history.rates[hour].copy()
            factors = self._cluster.factors(Resource.BYTES_IN, hour, number)
            rates[led, BYTES_IN_AT] *= factors[leaders[led]]
            total += rates
        return total / len(windows)


def _hours_of_day(history: RecordedHistory, days: int) -> HourlyRates:
    """Means by the hour of the day over the whole history, in so few parts that plans stay quick; none for 0 days."""
    if days < 1:
        return NO_HOURS
    hour_of_day = np.array([start_ms // HOUR_MS % DAY_HOURS for start_ms in history.hour_start_ms])
    hours = np.unique(hour_of_day)
    rates = np.stack([history.rates[hour_of_day == hour].mean(axis=0) for hour in hours], axis=1)
    rows = {key: row for row, key in enumerate(history.partitions)}
    span_days = max(1, -(-len(history.hour_start_ms) // DAY_HOURS))
    return merged(HourlyRates(tuple(hours.tolist()), rows, rates, span_days), len(rows), CELLS_MAX)


class PlacedCluster:
    """Current brokers of replicas and what each broker carries, as arrays; brokers `away` are down throughout.

    The partitions as objects, which decisions need, are built again only where a movement has ended.
    """

    def __init__(self, history: RecordedHistory, away: frozenset[int]) -> None:
        self.history = history
        self.broker_ids = tuple(row.broker_id for row in history.brokers)
        self._index = {broker: index for index, broker in enumerate(self.broker_ids)}
        self._rows = {key: row for row, key in enumerate(history.partitions)}
        self.alive = np.array([broker not in away for broker in self.broker_ids], dtype=np.bool_)
        width = max(len(replicas) for replicas in history.replicas)
        self._replicas: Ints = np.full((len(history.partitions), width), NO_BROKER, dtype=np.int32)
        for row, replicas in enumerate(history.replicas):
            self._replicas[row, : len(replicas)] = [self._index[broker] for broker in replicas]
        self._held_at_start = self._held_bytes()
        racks = {row.broker_id: row.rack for row in history.brokers if row.broker_id not in away}
        partitions = {key: self._partition(row) for key, row in self._rows.items()}
        self.live = LiveCluster(history.cluster_name, racks, partitions)
        self._loads: dict[int, dict[str, Floats]] = {}

    @property
    def replicas(self) -> tuple[tuple[int, ...], ...]:
        """Broker ids by partition, preferred leader first."""
        return tuple(self.live.partitions[key].replicas for key in self.history.partitions)

    def size_bytes(self, key: PartitionKey) -> float:
        """Bytes of one replica."""
        return float(self.history.size_bytes[self._rows[key]])

    def bytes_in_per_sec(self, key: PartitionKey, hour: int) -> float:
        """What clients write to it in that hour of the history."""
        return float(self.history.rates[hour, self._rows[key], BYTES_IN_AT])

    def move(self, movements: Iterable[Movement]) -> None:
        """Movements that have ended: from now on their new replicas hold."""
        partitions = dict(self.live.partitions)
        for movement in movements:
            row = self._rows[movement.key]
            self._replicas[row] = NO_BROKER
            self._replicas[row, : len(movement.new_replicas)] = [self._index[b] for b in movement.new_replicas]
            partitions[movement.key] = self._partition(row)
        self.live = LiveCluster(self.live.cluster_id, self.live.broker_racks, partitions)
        self._loads.clear()

    def loads(self, hour: int) -> dict[str, Floats]:
        """By resource, and `client_bytes_in`: B figures, of the brokers that are alive; the others carry nothing."""
        if hour not in self._loads:
            self._loads = {hour: self._loads_of(hour)}
        return self._loads[hour]

    def window(self, hour: int, number: int, start_ms: int, end_ms: int) -> ClosedWindow:
        """The window with this number of an hour: its loads, times what brokers wandered by in it."""
        loads = self.loads(hour)
        figures = {row.value: self._wandered(loads[row], row, hour, number) for row in SHOWN}
        client = self._wandered(loads["client_bytes_in"], Resource.BYTES_IN, hour, number)
        return ClosedWindow(start_ms, end_ms, frozenset(self.live.broker_racks), figures, client)

    def factors(self, resource: Resource, hour: int, number: int) -> Floats:
        """B: what brokers wandered by in a window."""
        wander = self.history.wander.get(resource)
        ones: Floats = np.ones(len(self.broker_ids))
        return ones if wander is None else wander[hour, number]

    def leader_rows(self) -> NDArray[np.int64]:
        """P: index of the leading broker; NO_BROKER where none is alive."""
        held = (self._replicas != NO_BROKER) & self.alive[self._replicas]
        first = held.argmax(axis=1)
        leaders = self._replicas[np.arange(len(first)), first]
        return np.where(held.any(axis=1), leaders, NO_BROKER).astype(np.int64)

    def log_dirs(self) -> dict[int, tuple[LogDirDescription, ...]]:
        """One log dir for each broker that is alive, with its replicas."""
        held: dict[int, dict[PartitionKey, int]] = {broker: {} for broker in self.live.broker_racks}
        sizes = self.history.size_bytes.astype(np.int64).tolist()
        for key, partition in self.live.partitions.items():
            for broker in partition.isr:
                held[broker][key] = sizes[self._rows[key]]
        now = self._held_bytes()
        described: dict[int, tuple[LogDirDescription, ...]] = {}
        for index, row in enumerate(self.history.brokers):
            if row.broker_id in held:
                taken = int(now[index] - self._held_at_start[index])
                total = ENOUGH_BYTES if row.total_bytes is None else row.total_bytes
                usable = ENOUGH_BYTES if row.usable_bytes is None else row.usable_bytes
                left = max(0, usable - taken)
                described[row.broker_id] = (LogDirDescription(LOG_DIR, total, left, held[row.broker_id]),)
        return described

    def _partition(self, row: int) -> LivePartition:
        placed = [index for index in self._replicas[row].tolist() if index != NO_BROKER]
        replicas = tuple(self.broker_ids[index] for index in placed)
        isr = tuple(self.broker_ids[index] for index in placed if self.alive[index])
        return LivePartition(replicas, isr[0] if isr else NO_LEADER, isr)

    def _wandered(self, loads: Floats, resource: Resource, hour: int, number: int) -> dict[int, float]:
        values = (loads * self.factors(resource, hour, number)).tolist()
        alive = self.alive.tolist()
        return {broker: value for broker, value, up in zip(self.broker_ids, values, alive, strict=True) if up}

    def _held_bytes(self) -> Floats:
        """B: bytes of the replicas that each broker holds."""
        held: Floats = np.zeros(len(self.broker_ids))
        for slot in range(self._replicas.shape[1]):
            there = self._replicas[:, slot] != NO_BROKER
            weights = self.history.size_bytes[there]
            held += np.bincount(self._replicas[there, slot], weights=weights, minlength=len(held))
        return held

    def _loads_of(self, hour: int) -> dict[str, Floats]:
        rates, leaders = self.history.rates[hour], self.leader_rows()
        count, led = len(self.broker_ids), leaders != NO_BROKER
        received: Floats = np.zeros(count)
        in_sync = np.zeros(len(leaders))
        for slot in range(self._replicas.shape[1]):
            there = led & (self._replicas[:, slot] != NO_BROKER) & self.alive[self._replicas[:, slot]]
            received += np.bincount(self._replicas[there, slot], rates[there, BYTES_IN_AT], count)
            in_sync += there
        sent = rates[:, BYTES_OUT_AT] + rates[:, BYTES_IN_AT] * np.maximum(in_sync - 1, 0)
        return {
            Resource.BYTES_IN: received,
            Resource.BYTES_OUT: np.bincount(leaders[led], sent[led], count),
            Resource.DISK: np.where(self.alive, self._held_bytes(), 0.0),
            "client_bytes_in": np.bincount(leaders[led], rates[led, BYTES_IN_AT], count),
        }
