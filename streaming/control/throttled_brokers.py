"""Which brokers of a plan take our throttle: those that are alive, and have no rate of somebody else's.

A rate that bears control's tag (see `assignor_core.throttles`) is ours, whoever of us has set it.

While a plan is carried out a broker that was away may come back, and others may take away a rate of theirs: then it
takes ours, too. The journal names the brokers before they get a rate, so that whatever happens it can be removed.
"""

from collections.abc import Callable, Collection, Mapping

from assignor_core.execution.life_cycle import Execution
from assignor_core.intervals import is_due
from assignor_core.throttles import is_foreign
from streaming.errors import ClusterUnreachable

RATE_READ_INTERVAL_MS = 5_000
"""Time between two reads of the rates of what copies: others may change them."""
RATES_AT_A_TIME_MAX = 20
"""Number of brokers whose rates are read at a time, each by a request of its own; the others follow at the next reads.
"""

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
        >>> reads.some(range(30))[-1], reads.some([]), reads.some(range(30))[0]
        (19, [], 20)
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


class ThrottledBrokers:
    """Brokers that one execution throttles; a caller calls `forget` before another execution. `rates_of` reads the
    rates of brokers that have any.
    """

    def __init__(self, rates_of: RatesOf) -> None:
        self._rates_of = rates_of
        self.forget()

    def forget(self) -> None:
        """Forgets the execution so far: from now on the brokers are those of another execution."""
        self._foreign: frozenset[int] = frozenset()
        """Brokers of the plan that had a rate of somebody else's when they were last asked."""
        self._reads = RateReads()

    def all(self, execution: Execution, wanted: Collection[int]) -> tuple[int, ...]:
        """Returns the brokers that have our throttle and those of `wanted` that have no rate of others; raises what
        `rates_of` raises.
        """
        ours = frozenset(execution.throttled_brokers)
        foreign = {broker for broker, rates in self._rates_of(wanted).items() if any(map(is_foreign, rates))} - ours
        return tuple(sorted(ours | (frozenset(wanted) - foreign)))

    def with_new(self, execution: Execution, wanted: frozenset[int], *, now_ms: int) -> tuple[int, ...] | None:
        """All of ours, if some brokers of `wanted` are to be added; None otherwise. Raises ClusterUnreachable where one
        that has just come back does not answer: nothing is asked of it before.
        """
        others = wanted - frozenset(execution.throttled_brokers)
        self._foreign &= others
        asked = others - self._foreign
        if not asked:
            if not others or not self._reads.are_due(now_ms):
                return None
            asked = frozenset(self._reads.some(others))
        self._reads.note(now_ms)
        try:
            brokers = self.all(execution, asked)
        except ClusterUnreachable:
            if not asked <= self._foreign:
                raise
            return None
        self._foreign |= asked.difference(brokers)
        return brokers if len(brokers) > len(execution.throttled_brokers) else None
