"""The replication throttle of the execution under way: which replicas and brokers it touches, and how high it is now.

The rate of a broker follows from its measured headroom and from pressure (see `adaptive_rates` in the core); if
`control.throttle_adaptive` is off, it is the setting, unchanged to the end.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from assignor_core.execution.adaptive_rates import (
    RatePolicy,
    RateState,
    adapted,
    differs,
    headroom,
    rates_are_due,
    wanted_rates,
)
from assignor_core.execution.life_cycle import Execution
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.load_history.windows import resource_capacities
from assignor_core.model import Capacity
from assignor_core.plan import Plan
from assignor_core.resources import Resource
from assignor_core.throttles import is_tagged, tagged
from streaming.cluster.ports import ControlledCluster
from streaming.control.throttled_brokers import RateReads, ThrottledBrokers
from streaming.control.throttled_lists import ThrottledLists, ThrottleScope, throttle_scope
from streaming.control.windows import ClosedWindows, WindowTables
from streaming.errors import ClusterRequestFailed

CLEAR_TRIES_MAX = 60
"""Most tries, a tick apart, to remove a throttle that Kafka refuses to remove; then the execution ends without it."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of a throttle that was to be removed."""

    brokers: tuple[int, ...]
    """Brokers that keep their rate."""
    refused: str | None = None
    """Why Kafka refuses; None if the brokers are only down."""


class Clearing:
    """Counts the tries that Kafka has refused, one after the other, of one execution."""

    def __init__(self) -> None:
        self._refused = 0

    def remains(self, clear: Callable[[], Iterable[int]], left: Callable[[], Iterable[int]]) -> Remains:
        """What is left after `clear`, which removes the throttle and returns the brokers that keep their rate.

        Raises ClusterRequestFailed if Kafka refuses, until it has refused too often: then brokers `left` are what
        remains.
        """
        try:
            brokers = clear()
        except ClusterRequestFailed as error:
            self._refused += 1
            if self._refused < CLEAR_TRIES_MAX:
                raise
            return Remains(tuple(left()), str(error))
        self._refused = 0
        return Remains(tuple(brokers))


log = structlog.get_logger()


RATES_OF_BROKER = 2
"""One for what it sends as a leader, one for what it receives as a follower; control sets both."""
DIRECTIONS = (Resource.BYTES_IN, Resource.BYTES_OUT)


class Throttle:
    """The throttle as this process has set it: nothing is known of it until `keep`, and after `forget`."""

    def __init__(self, cluster: ControlledCluster, rates: "AdaptiveRates") -> None:
        self._cluster = cluster
        self._rates = rates
        self._brokers = ThrottledBrokers(self._shown_rates)
        self._lists = ThrottledLists(cluster)
        self.forget()

    def forget(self) -> None:
        """Forgets the execution so far: from now on the throttle is that of another execution, and is set again."""
        self._brokers.forget()
        self._lists.forget()
        self._set = False
        self._reads = RateReads()
        self._clearing = Clearing()
        self._rates.take_lowest()
        self._scope: tuple[Plan, ThrottleScope] | None = None

    def _scope_of(self, plan: Plan) -> ThrottleScope:
        """Returns the scope of the plan's throttle, made once for each plan: 34 ms of CPU at 3,000 movements."""
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
        copying: Sequence[PartitionKey] = (),
        submitted: Sequence[PartitionKey] = (),
        made: Collection[PartitionKey] = (),
        without: Collection[str] = (),
    ) -> bool:
        """Set the throttle where this process hasn't yet, `without` these topics, and adapt it from then on. Lists name
        what copies and what is to be `submitted`, as far as it fits, before what follows; what is `made` comes last.
        True if something that is to be submitted was named just now.

        A broker that was away takes its rate once it is `alive`. For partitions that are `copying` it sets again what
        others remove: entries of their topics, and rates of their brokers.
        """
        ours = frozenset(execution.throttled_brokers).intersection(alive)
        first = [key for key in (*copying, *submitted) if key[0] not in without]
        if not self._set:
            self._lists.name(plan, set(plan.topics) - set(without), first, made)
            self._send(self._rates.initial(ours, now_ms=now_ms))
            self._set = True
            self._reads.note(now_ms)
            return True
        if copying and self._reads.are_due(now_ms):
            asked = ours & _copying_brokers(plan, copying)
            self._rates.lost(self._reads.lost(asked, self._shown_rates, of_each=RATES_OF_BROKER))
            self._lists.restore(plan, first, made)
            self._reads.note(now_ms)
        unnamed = self._lists.unnamed(plan, submitted)
        if unnamed:
            self._lists.name(plan, {topic for topic, _ in unnamed}, first, made)
        if rates := self._rates.changed(ours, pressed=pressed, now_ms=now_ms):
            self._send(rates)
            log.info("throttle_adapted", plan_id=plan.plan_id[:12], rates=rates)
        return len(self._lists.unnamed(plan, unnamed)) < len(unnamed)

    def unnamed(self, plan: Plan, keys: Collection[PartitionKey]) -> list[PartitionKey]:
        """Returns the partitions among `keys` that must not be submitted, as the lists have no room to name their
        replicas.
        """
        return self._lists.unnamed(plan, keys)

    def new_lowest(self) -> int | None:
        """The rate of the slowest broker, bytes/s, where rates were sent since this was last asked."""
        return self._rates.take_lowest()

    def clear(self, execution: Execution, plan: Plan) -> Remains:
        """Remove the throttle that the journal names as ours; safe to repeat. Brokers that are down keep their rate. A
        rate that somebody else has set since stays.

        Raises ClusterRequestFailed if Kafka refuses, until it has refused too often: then that is what remains.
        """
        self._set = False  # before, so that what fails half-way is set anew where the execution goes on
        ours, scope, untagged = execution.throttled_brokers, self._scope_of(plan), not execution.tags_rates
        return self._clearing.remains(
            lambda: self._cluster.clear_throttle(ours, scope.leaders, scope.followers, untagged=untagged),
            lambda: self._with_rate(ours, untagged=untagged),
        )

    def _with_rate(self, brokers: Collection[int], *, untagged: bool) -> tuple[int, ...]:
        """The brokers that still have a rate of ours or are down; all of them where Kafka does not show rates."""
        alive = self._cluster.describe(topics=()).broker_racks
        try:
            shown = self._shown_rates(brokers)
        except ClusterRequestFailed:
            return tuple(sorted(brokers))
        with_rate = {row for row, rates in shown.items() if untagged or any(map(is_tagged, rates))}
        return tuple(sorted(row for row in brokers if row in with_rate or row not in alive))

    def _shown_rates(self, brokers: Collection[int]) -> dict[int, Collection[int]]:
        return {broker: rates.values() for broker, rates in self._cluster.throttle_rates(brokers).items()}

    def _send(self, rates: dict[int, int]) -> None:
        self._cluster.set_throttle_rates(rates)
        self._rates.sent(rates)


def _copying_brokers(plan: Plan, copying: Collection[PartitionKey]) -> frozenset[int]:
    """Brokers that send or receive in these partitions."""
    keys = frozenset(copying)
    moved = [row for row in plan.movements if row.key in keys]
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
        """Notes that these brokers no longer have the rates that were sent: `changed` returns the rates again."""
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
        wanted = wanted_rates(self._state, self._policy, brokers, headrooms)
        return {broker: tagged(rate) for broker, rate in wanted.items()}

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
