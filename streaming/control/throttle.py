"""The throttles of the execution under way: which brokers and replicas they touch, and how high they are now.

A plan takes the throttle on brokers that are alive and have no rate of somebody else's; a rate that bears control's tag
(see `assignor_core.throttles`) is ours, whoever of us has set it. While a plan is carried out a broker that was away
may come back, and others may take away a rate of theirs: then it takes ours, too. The journal names the brokers before
they get a rate, so that whatever happens it can be removed.

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
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.load_history.windows import resource_capacities
from assignor_core.model import Capacity
from assignor_core.plan import Plan
from assignor_core.resources import Resource
from assignor_core.throttles import is_foreign, is_tagged, tagged
from streaming.cluster.ports import ControlledCluster
from streaming.control.throttled_lists import ThrottledLists, ThrottleScope, throttle_scope
from streaming.control.windows import ClosedWindows, WindowTables
from streaming.errors import ClusterRequestFailed, ClusterUnreachable

log = structlog.get_logger()

RATE_READ_INTERVAL_MS = 5_000
"""Time between two reads of the rates of what copies: others may change them."""
RATES_AT_A_TIME_MAX = 20
"""Number of brokers whose rates are read at a time, each by a request of its own; the others follow at the next reads.
"""
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


RatesOf = Callable[[Collection[int]], Mapping[int, Collection[int]]]
"""Reads the rates of brokers that have any."""


class RateReads:
    """When the rates of brokers are read, and of which: a few at a time, the others at the next reads."""

    def __init__(self) -> None:
        self._newest_ms: int | None = None
        self._next = 0
        """The broker at which the next read begins."""

    def are_due(self, now_ms: int) -> bool:
        """Whether the newest read is old."""
        return is_due(self._newest_ms, RATE_READ_INTERVAL_MS, now_ms)

    def note(self, now_ms: int) -> None:
        """Rates are read now."""
        self._newest_ms = now_ms

    def some(self, brokers: Collection[int]) -> list[int]:
        """The brokers whose rates are read now.

        >>> reads = RateReads()
        >>> reads.some(range(30))[-1], reads.some([]), reads.some(range(30))[0], reads.some(range(30))[0]
        (19, [], 20, 10)
        """
        asked = sorted(brokers, key=lambda row: (row < self._next, row))[:RATES_AT_A_TIME_MAX]
        if asked:
            self._next = asked[-1] + 1
        return asked

    def lost(self, brokers: Collection[int], rates_of: RatesOf, *, of_each: int) -> set[int]:
        """Brokers, of those whose turn it is, that show fewer than `of_each` rates: somebody has removed one. A rate
        that others have changed is theirs, and counts.
        """
        asked = self.some(brokers)
        if not asked:
            return set()
        try:
            shown = rates_of(asked)
        except ClusterUnreachable:
            return set()  # a broker that hangs takes no rate, and the others must not wait for it: the next read asks
        return {row for row in asked if len(shown.get(row, ())) < of_each}


class RateThrottle:
    """The rates of one execution as this process has set them: nothing is known of them before they are sent, and after
    `forget`, which a caller calls before another execution.
    """

    def __init__(self, cluster: ControlledCluster, rates: "AdaptiveRates") -> None:
        self._cluster = cluster
        self._rates = rates
        self.forget()

    def forget(self) -> None:
        self._foreign: frozenset[int] = frozenset()
        """Brokers of the plan that had a rate of somebody else's when they were last asked."""
        self._foreign_reads = RateReads()
        self._reads = RateReads()
        self._set = False
        self._clearing = Clearing()
        self._rates.take_lowest()

    def brokers(self, execution: Execution, plan: Plan, live: LiveCluster) -> tuple[int, ...]:
        """Brokers to throttle, to be recorded before `keep`. A broker that is gone takes no rate, and a rate that
        somebody else has set is respected: it is not ours to remove.
        """
        return self._without_foreign(execution, self._brokers_of(plan) & live.broker_racks.keys())

    def more_brokers(
        self, execution: Execution, plan: Plan, live: LiveCluster, *, now_ms: int
    ) -> tuple[int, ...] | None:
        """All brokers to throttle, to be recorded before `keep`, if some are to be added since; None otherwise. Raises
        ClusterUnreachable where one that has just come back does not answer: nothing is asked of it before.
        """
        others = (self._brokers_of(plan) & live.broker_racks.keys()) - frozenset(execution.throttled_brokers)
        self._foreign &= others
        asked = others - self._foreign
        if not asked:
            if not others or not self._foreign_reads.are_due(now_ms):
                return None
            asked = frozenset(self._foreign_reads.some(others))
        self._foreign_reads.note(now_ms)
        try:
            brokers = self._without_foreign(execution, asked)
        except ClusterUnreachable:
            if not asked <= self._foreign:
                raise
            return None
        self._foreign |= asked.difference(brokers)
        return brokers if len(brokers) > len(execution.throttled_brokers) else None

    def new_lowest(self) -> int | None:
        """The rate of the slowest broker, bytes/s, where rates were sent since this was last asked."""
        return self._rates.take_lowest()

    def _without_foreign(self, execution: Execution, wanted: Collection[int]) -> tuple[int, ...]:
        """Returns the brokers that have our throttle and those of `wanted` that have no rate of others."""
        ours = frozenset(execution.throttled_brokers)
        foreign = {broker for broker, rates in self._shown_rates(wanted).items() if any(map(is_foreign, rates))} - ours
        return tuple(sorted(ours | (frozenset(wanted) - foreign)))

    def _send(self, rates: dict[int, int]) -> None:
        self._send_rates(rates)
        self._rates.sent(rates)

    def _brokers_of(self, plan: Plan) -> frozenset[int]:
        """Brokers that copy in this plan."""
        raise NotImplementedError

    def _shown_rates(self, brokers: Collection[int]) -> Mapping[int, Collection[int]]:
        """Reads the rates of brokers that have any."""
        raise NotImplementedError

    def _send_rates(self, rates: dict[int, int]) -> None:
        raise NotImplementedError


RATES_OF_BROKER = 2
"""One for what it sends as a leader, one for what it receives as a follower; control sets both."""
DIRECTIONS = (Resource.BYTES_IN, Resource.BYTES_OUT)


class Throttle(RateThrottle):
    """The replication throttle: both rates of brokers, and the lists of throttled replicas."""

    def __init__(self, cluster: ControlledCluster, rates: "AdaptiveRates") -> None:
        self._lists = ThrottledLists(cluster)
        super().__init__(cluster, rates)

    def forget(self) -> None:
        super().forget()
        self._lists.forget()
        self._scope: tuple[Plan, ThrottleScope] | None = None

    def _scope_of(self, plan: Plan) -> ThrottleScope:
        """Returns the scope of the plan's throttle, made once for each plan: 34 ms of CPU at 3,000 movements."""
        if self._scope is None or self._scope[0] is not plan:
            self._scope = plan, throttle_scope(plan)
        return self._scope[1]

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

    def _brokers_of(self, plan: Plan) -> frozenset[int]:
        return self._scope_of(plan).brokers

    def _shown_rates(self, brokers: Collection[int]) -> Mapping[int, Collection[int]]:
        return {broker: rates.values() for broker, rates in self._cluster.throttle_rates(brokers).items()}

    def _send_rates(self, rates: dict[int, int]) -> None:
        self._cluster.set_throttle_rates(rates)


def _copying_brokers(plan: Plan, copying: Collection[PartitionKey]) -> frozenset[int]:
    """Brokers that send or receive in these partitions."""
    keys = frozenset(copying)
    moved = [row for row in plan.movements if row.key in keys]
    return frozenset(broker for row in moved for broker in (*row.old_replicas, *row.new_replicas))


class LogDirThrottle(RateThrottle):
    """The throttle of movements within brokers: one rate per broker, for whatever it copies between its log dirs."""

    def keep(self, execution: Execution, *, alive: Collection[int], pressed: bool, now_ms: int) -> None:
        """Set the rates where this process hasn't yet, and adapt them from then on. A broker that was away takes its
        rate once it is `alive`, and one whose rate others have removed takes it again.
        """
        ours = frozenset(execution.throttled_brokers).intersection(alive)
        if not self._set:
            self._send(self._rates.initial(ours, now_ms=now_ms))
            self._set = True
            self._reads.note(now_ms)
            return
        if self._reads.are_due(now_ms):
            self._reads.note(now_ms)
            self._rates.lost(self._reads.lost(ours, self._shown_rates, of_each=1))
        if rates := self._rates.changed(ours, pressed=pressed, now_ms=now_ms):
            self._send(rates)

    def clear(self, execution: Execution, *, keeping: Collection[int] = ()) -> Remains:
        """Remove the rates that the journal names as ours; safe to repeat. Brokers that are down keep theirs, and so do
        those of `keeping`, which may go on with a copy.

        Raises ClusterRequestFailed if Kafka refuses, until it has refused too often: then that is what remains.
        """
        self._set = False
        ours, cleared = execution.throttled_brokers, sorted(set(execution.throttled_brokers) - set(keeping))

        def clear() -> list[int]:
            down = self._cluster.clear_log_dir_rates(cleared, untagged=not execution.tags_rates)
            return sorted({*down, *keeping} & {*ours})

        return self._clearing.remains(clear, lambda: ours)

    def _brokers_of(self, plan: Plan) -> frozenset[int]:
        return plan.brokers

    def _shown_rates(self, brokers: Collection[int]) -> Mapping[int, Collection[int]]:
        return {broker: (rate,) for broker, rate in self._cluster.log_dir_rates(brokers).items()}

    def _send_rates(self, rates: dict[int, int]) -> None:
        self._cluster.set_log_dir_rates(rates)


class UnknownThrottle(Throttle):
    """The throttle of an execution whose events alone are known: its brokers may have rates of either kind."""

    def __init__(self, cluster: ControlledCluster, rates: "AdaptiveRates") -> None:
        self._within = LogDirThrottle(cluster, rates)
        super().__init__(cluster, rates)

    def forget(self) -> None:
        super().forget()
        self._within.forget()

    def clear(self, execution: Execution, plan: Plan) -> Remains:
        """Remove both; raises as they do."""
        within, between = self._within.clear(execution), super().clear(execution, plan)
        brokers = tuple(sorted({*within.brokers, *between.brokers}))
        return Remains(brokers, within.refused or between.refused)


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
