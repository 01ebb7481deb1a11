"""Which brokers of a plan take our throttle: those that are alive, and have no rate of somebody else's.

While a plan is carried out a broker that was away may come back, and others may take away a rate of theirs: then it
takes ours, too. The journal names the brokers before they get a rate, so that whatever happens it can be removed.
"""

from collections.abc import Callable, Collection, Mapping

from assignor_core.execution.life_cycle import Execution
from assignor_core.intervals import is_due
from streaming.errors import ClusterUnreachable

LOOK_INTERVAL_MS = 5_000
"""Time between two looks at the rates of what copies: others may change them."""
RATES_AT_A_LOOK_MAX = 20
"""Rates of so many brokers are read at a look, each by a request of its own; those of the others at the next ones."""


class ThrottledBrokers:
    """Those of one execution; `forget` before those of another. `rates_of` reads the rates of brokers that have any."""

    def __init__(self, rates_of: Callable[[Collection[int]], Mapping[int, object]]) -> None:
        self._rates_of = rates_of
        self.forget()

    def forget(self) -> None:
        """From now on they are of another execution."""
        self._foreign: frozenset[int] = frozenset()
        """Brokers of the plan that had a rate of somebody else's when they were last asked."""
        self._looked_ms: int | None = None
        self._next = 0
        """The broker from which on the next look reads rates."""

    def all(self, execution: Execution, wanted: Collection[int]) -> tuple[int, ...]:
        """Ours and those of `wanted` that have no rate; raises what `rates_of` raises."""
        ours = frozenset(execution.throttled_brokers)
        foreign = self._rates_of(wanted).keys() - ours
        return tuple(sorted(ours | (frozenset(wanted) - foreign)))

    def with_new(self, execution: Execution, wanted: frozenset[int], *, now_ms: int) -> tuple[int, ...] | None:
        """All of ours, if some brokers of `wanted` are to be added; None otherwise. Raises ClusterUnreachable where one
        that has just come back does not answer: nothing is asked of it before.
        """
        others = wanted - frozenset(execution.throttled_brokers)
        self._foreign &= others
        asked = others - self._foreign
        if not asked:
            if not others or not is_due(self._looked_ms, LOOK_INTERVAL_MS, now_ms):
                return None
            asked = self._due(others)
        self._looked_ms = now_ms
        try:
            brokers = self.all(execution, asked)
        except ClusterUnreachable:
            if not asked <= self._foreign:
                raise
            return None
        self._foreign |= asked.difference(brokers)
        return brokers if len(brokers) > len(execution.throttled_brokers) else None

    def _due(self, brokers: frozenset[int]) -> frozenset[int]:
        """Some of them, the others at the next looks."""
        asked = sorted(brokers, key=lambda row: (row < self._next, row))[:RATES_AT_A_LOOK_MAX]
        self._next = asked[-1] + 1
        return frozenset(asked)
