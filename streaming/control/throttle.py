"""The replication throttle of the execution under way: which replicas and brokers it touches, and how high it is now.

The rate of a broker follows from its measured headroom and from pressure (see `adaptive_rates` in the core); if
`control.throttle_adaptive` is off, it is the setting, unchanged to the end.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from assignor_core.deciding.windows import resource_capacities
from assignor_core.execution.adaptive_rates import (
    ADAPT_INTERVAL_MS,
    RatePolicy,
    RateState,
    adapted,
    differs,
    headroom,
    rates_are_due,
    wanted_rates,
)
from assignor_core.execution.life_cycle import Execution
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.model import Capacity
from assignor_core.plan import Plan
from assignor_core.resources import Resource
from assignor_core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, ThrottledReplicas, missing_entries
from streaming.cluster.ports import ControlledCluster
from streaming.control.throttled_brokers import LOOK_INTERVAL_MS, RATES_AT_A_LOOK_MAX, ThrottledBrokers
from streaming.control.windows import ClosedWindows, WindowTables
from streaming.errors import ClusterRequestFailed, ClusterUnreachable

__all__ = ["ADAPT_INTERVAL_MS", "AdaptiveRates", "Throttle", "ThrottleScope", "throttle_scope"]

log = structlog.get_logger()

RATES_OF_BROKER = 2
"""One for what it sends as a leader, one for what it receives as a follower; control sets both."""
DIRECTIONS = (Resource.BYTES_IN, Resource.BYTES_OUT)
CLEAR_TRIES_MAX = 60
"""So often control tries to remove a throttle that Kafka refuses to remove, a tick apart. Then the execution ends."""


@dataclass(frozen=True, slots=True)
class ThrottleScope:
    """What a plan's throttle touches: brokers that copy, and by topic the (partition, broker) pairs of each side."""

    brokers: frozenset[int]
    leaders: dict[str, ThrottledReplicas]
    followers: dict[str, ThrottledReplicas]


def throttle_scope(plan: Plan) -> ThrottleScope:
    """Old replicas send, new ones receive; partitions that only change their leader copy nothing."""
    leaders: dict[str, set[tuple[int, int]]] = defaultdict(set)
    followers: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for movement in plan.movements:
        receiving = set(movement.new_replicas) - set(movement.old_replicas)
        if receiving:
            leaders[movement.topic] |= {(movement.partition, broker) for broker in movement.old_replicas}
            followers[movement.topic] |= {(movement.partition, broker) for broker in receiving}
    pairs = [pair for side in (leaders, followers) for entries in side.values() for pair in entries]
    return ThrottleScope(
        frozenset(broker for _, broker in pairs),
        {topic: frozenset(entries) for topic, entries in leaders.items()},
        {topic: frozenset(entries) for topic, entries in followers.items()},
    )


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of a throttle that was to be removed."""

    brokers: tuple[int, ...]
    """Those that keep their rate."""
    refused: str | None = None
    """Why Kafka refuses; None if the brokers are only down."""


class Throttle:
    """The throttle as this process has set it: nothing is known of it until `keep`, and after `forget`."""

    def __init__(self, cluster: ControlledCluster, rates: "AdaptiveRates") -> None:
        self._cluster = cluster
        self._rates = rates
        self._brokers = ThrottledBrokers(cluster.throttle_rates)
        self.forget()

    def forget(self) -> None:
        """From now on the throttle is that of another execution: it is set anew."""
        self._brokers.forget()
        self._set = False
        self._looked_ms: int | None = None
        self._next_rates = 0
        """The broker from which on the next look reads rates."""
        self._clear_tries = 0
        self._rates.take_lowest()
        self._scope: tuple[Plan, ThrottleScope] | None = None

    def _scope_of(self, plan: Plan) -> ThrottleScope:
        """Made once for each plan: 34 ms of CPU at 3,000 movements."""
        if self._scope is None or self._scope[0] is not plan:
            self._scope = plan, throttle_scope(plan)
        return self._scope[1]

    def brokers(self, execution: Execution, plan: Plan, live: LiveCluster) -> tuple[int, ...]:
        """Brokers to throttle, to be recorded before `keep`. A broker that is gone takes no rate, and a rate that
        somebody else has set is respected: it is not ours to remove.
        """
        return self._brokers.all(execution, self._scope_of(plan).brokers & live.broker_racks.keys())

    def more_brokers(
        self, execution: Execution, plan: Plan, live: LiveCluster, *, now_ms: int
    ) -> tuple[int, ...] | None:
        """All brokers to throttle, to be recorded before `keep`, if some are to be added since; None otherwise."""
        wanted = self._scope_of(plan).brokers & live.broker_racks.keys()
        return self._brokers.with_new(execution, wanted, now_ms=now_ms)

    def keep(
        self,
        execution: Execution,
        plan: Plan,
        *,
        alive: Collection[int],
        pressed: bool,
        now_ms: int,
        copying: Collection[PartitionKey] = (),
        without: Collection[str] = (),
    ) -> bool:
        """Set the throttle where this process hasn't yet (True), `without` these topics, and adapt it from then on.
        A broker that was away takes its rate once it is `alive`. For partitions that are `copying` it sets again what
        others remove: entries of their topics, and rates of their brokers.
        """
        ours = frozenset(execution.throttled_brokers).intersection(alive)
        if not self._set:
            scope = self._scope_of(plan)
            leaders, followers = (
                {topic: entries for topic, entries in side.items() if topic not in without}
                for side in (scope.leaders, scope.followers)
            )
            self._cluster.set_throttled_replicas(leaders, followers)
            self._send(self._rates.initial(ours, now_ms=now_ms))
            self._set, self._looked_ms = True, now_ms
            return True
        if copying and is_due(self._looked_ms, LOOK_INTERVAL_MS, now_ms):
            self._look_at_rates(ours & _copying_brokers(plan, copying))
            self._keep_lists(plan, {topic for topic, _ in copying} - set(without))
            self._looked_ms = now_ms
        if rates := self._rates.changed(ours, pressed=pressed, now_ms=now_ms):
            self._send(rates)
            log.info("throttle_adapted", plan_id=plan.plan_id[:12], rates=rates)
        return False

    def new_lowest(self) -> int | None:
        """The rate of the slowest broker, bytes/s, where rates were sent since this was last asked."""
        return self._rates.take_lowest()

    def _look_at_rates(self, brokers: frozenset[int]) -> None:
        """Somebody may have removed a rate: it counts as never sent. One that is another than ours stays."""
        asked = sorted(brokers, key=lambda row: (row < self._next_rates, row))[:RATES_AT_A_LOOK_MAX]
        if not asked:
            return
        self._next_rates = asked[-1] + 1
        try:
            shown = self._cluster.throttle_rates(asked)
        except ClusterUnreachable:
            return  # a broker that hangs takes no rate, and the others must not wait for it: the next look asks again
        self._rates.lost({row for row in asked if len(shown.get(row, {})) < RATES_OF_BROKER})

    def _keep_lists(self, plan: Plan, topics: Collection[str]) -> None:
        """Somebody may have replaced a list by `*`, and removed that: our entries are gone with it."""
        scope, shown = self._scope_of(plan), self._cluster.throttled_replicas(topics)
        leaders, followers = (
            {
                topic: missing
                for topic in side.keys() & set(topics)
                if (missing := missing_entries(shown.get((topic, setting)), side[topic]))
            }
            for setting, side in ((LEADER_REPLICAS, scope.leaders), (FOLLOWER_REPLICAS, scope.followers))
        )
        if leaders or followers:
            log.info(
                "throttle_lists_changed", plan_id=plan.plan_id[:12], topics=sorted(leaders.keys() | followers.keys())
            )
            self._cluster.set_throttled_replicas(leaders, followers)

    def clear(self, execution: Execution, plan: Plan) -> Remains:
        """Remove the throttle that the journal names as ours; safe to repeat. Brokers that are down keep their rate.

        Raises ClusterRequestFailed if Kafka refuses, until it has refused too often: then that is what remains.
        """
        self._set = False  # before, so that what fails half-way is set anew where the execution goes on
        ours, scope = execution.throttled_brokers, self._scope_of(plan)
        try:
            down = self._cluster.clear_throttle(ours, scope.leaders, scope.followers)
        except ClusterRequestFailed as error:
            self._clear_tries += 1
            if self._clear_tries < CLEAR_TRIES_MAX:
                raise
            return Remains(self._with_rate(ours), str(error))
        self._clear_tries = 0
        return Remains(tuple(down))

    def _with_rate(self, brokers: Collection[int]) -> tuple[int, ...]:
        """Of these brokers those that still have a rate or are down; all where Kafka does not show their rates."""
        alive = self._cluster.describe(topics=()).broker_racks
        try:
            rates = self._cluster.throttle_rates(brokers)
        except ClusterRequestFailed:
            return tuple(sorted(brokers))
        return tuple(sorted(broker for broker in brokers if broker in rates or broker not in alive))

    def _send(self, rates: dict[int, int]) -> None:
        self._cluster.set_throttle_rates(rates)
        self._rates.sent(rates)


def _copying_brokers(plan: Plan, copying: Collection[PartitionKey]) -> frozenset[int]:
    """Brokers that send or receive in these partitions."""
    moved = [row for row in plan.movements if row.key in copying]
    return frozenset(broker for row in moved for broker in (*row.old_replicas, *row.new_replicas))


class AdaptiveRates:
    """The rates of one execution, adapted every few seconds to pressure and to the newest closed window."""

    def __init__(self, policy: RatePolicy, window_tables: WindowTables, capacities: Mapping[int, Capacity]) -> None:
        self._policy = policy
        self._windows = ClosedWindows(window_tables)
        self._capacities = capacities
        self._state = RateState()
        self._known_headrooms: dict[int, float] = {}
        self._lowest: int | None = None

    def initial(self, brokers: frozenset[int], *, now_ms: int) -> dict[int, int]:
        """Rates to begin with, bytes/s by broker."""
        self._state = replace(self._state, factor=1.0, adapted_ms=now_ms)
        return self._wanted(brokers, now_ms)

    def changed(self, brokers: frozenset[int], *, pressed: bool, now_ms: int) -> dict[int, int] | None:
        """New rates, or None where those that were sent will do. A broker that was not among `brokers` gets its rate
        again: it was away, and may not have taken what was sent.
        """
        self._state = replace(self._state, sent={row: rate for row, rate in self._state.sent.items() if row in brokers})
        if rates_are_due(self._state, self._policy, now_ms=now_ms):
            self._state = adapted(self._state, self._policy, pressed=pressed, now_ms=now_ms)
        elif brokers <= self._state.sent.keys():
            return None
        wanted = self._wanted(brokers, now_ms)
        return wanted if differs(self._state, wanted) else None

    def lost(self, brokers: Collection[int]) -> None:
        """These brokers no longer have what was sent: `changed` gives it again."""
        kept = {broker: rate for broker, rate in self._state.sent.items() if broker not in brokers}
        self._state = replace(self._state, sent=kept)

    def sent(self, rates: dict[int, int]) -> None:
        """Brokers have taken these: what was refused comes again from `changed`."""
        self._state = replace(self._state, sent=rates)
        self._lowest = min(rates.values(), default=None)

    def take_lowest(self) -> int | None:
        """The rate of the slowest broker, where rates were sent since this was last asked; None otherwise."""
        lowest, self._lowest = self._lowest, None
        return lowest

    def _wanted(self, brokers: frozenset[int], now_ms: int) -> dict[int, int]:
        headrooms = self._headrooms(brokers, now_ms) if self._policy.adaptive else {}
        return wanted_rates(self._state, self._policy, brokers, headrooms)

    def _headrooms(self, brokers: frozenset[int], now_ms: int) -> dict[int, float]:
        """The lesser headroom of the two directions, bytes/s, where capacity and load are known.

        A broker that has not reported since keeps the newest that is known: it may be too busy to answer its collector.
        """
        windows = self._windows.newest(now_ms=now_ms)
        capacities = {row: resource_capacities(self._capacities, row, brokers) or {} for row in DIRECTIONS}
        for window in windows:
            left = [headroom(capacities[row], window.values(row)) for row in DIRECTIONS]
            for broker in set().union(*left):
                self._known_headrooms[broker] = min(side[broker] for side in left if broker in side)
        return {broker: self._known_headrooms[broker] for broker in brokers & self._known_headrooms.keys()}
