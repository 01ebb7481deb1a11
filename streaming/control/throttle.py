"""The replication throttle of one execution: which replicas and brokers it touches, and how high it is right now.

The rate of a broker follows from its measured headroom and from pressure (see `assignor_core.execution.caution`); with
`control.throttle_adaptive` off it is the setting, unchanged to the end.
"""

from collections import defaultdict
from dataclasses import dataclass

from assignor_core.execution.caution import next_throttle_factor, throttle_rates
from assignor_core.plan import Plan
from assignor_core.resources import Resource
from assignor_core.throttles import ThrottledReplicas
from streaming.control.windows import closed_windows
from streaming.settings import Settings
from streaming.views.broker_windows import capacities

ADAPT_INTERVAL_MS = 10_000
CHANGE_MIN = 0.05
"""Rates that would change by less than this share stay as they are."""


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


class AdaptiveRates:
    """The rates of one execution, looked at again every few seconds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._factor = 1.0
        self._looked_ms = 0
        self._sent: dict[int, int] = {}

    def initial(self, brokers: frozenset[int], *, now_ms: int) -> dict[int, int]:
        """Rates to begin with, bytes/s by broker."""
        self._factor, self._looked_ms = 1.0, now_ms
        return self._wanted(brokers, now_ms)

    def changed(self, brokers: frozenset[int], *, pressed: bool, now_ms: int) -> dict[int, int] | None:
        """New rates, or None where those that were sent will do."""
        if not self._settings.control.throttle_adaptive or now_ms - self._looked_ms < ADAPT_INTERVAL_MS:
            return None
        self._looked_ms = now_ms
        control = self._settings.control
        factor_min = min(1.0, control.throttle_min_bytes_per_sec / control.throttle_bytes_per_sec)
        self._factor = next_throttle_factor(self._factor, pressed=pressed, factor_min=factor_min)
        wanted = self._wanted(brokers, now_ms)
        if all(abs(rate - self._sent.get(broker, 0)) <= CHANGE_MIN * rate for broker, rate in wanted.items()):
            return None
        return wanted

    def sent(self, rates: dict[int, int]) -> None:
        """Brokers have taken these: what was refused is told again by `changed`."""
        self._sent = rates

    def _wanted(self, brokers: frozenset[int], now_ms: int) -> dict[int, int]:
        control = self._settings.control
        if not control.throttle_adaptive:
            return dict.fromkeys(sorted(brokers), control.throttle_bytes_per_sec)
        return throttle_rates(
            brokers,
            self._headrooms(brokers, now_ms),
            rate_max=control.throttle_bytes_per_sec,
            rate_min=min(control.throttle_min_bytes_per_sec, control.throttle_bytes_per_sec),
            factor=self._factor,
        )

    def _headrooms(self, brokers: frozenset[int], now_ms: int) -> dict[int, float]:
        """Capacity less load in bytes/s, the lesser of the two directions, where both are known."""
        windows = closed_windows(self._settings, now_ms=now_ms)
        found: dict[int, float] = {}
        for resource in (Resource.BYTES_IN, Resource.BYTES_OUT):
            limits = capacities(self._settings, resource, brokers) or {}
            loads = windows[-1].values(resource) if windows else {}
            for broker in sorted(limits.keys() & loads.keys()):
                left = max(0.0, limits[broker] - loads[broker])
                found[broker] = min(left, found.get(broker, left))
        return found
