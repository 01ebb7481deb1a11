"""Throttle rates as an execution goes on: which rates to send next, given pressure, headroom and what was sent.

The state is a value: the same state and inputs give the same rates. What a pressure is, and how a rate gets to a
broker, is the caller's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assignor_core.execution.caution import next_throttle_factor, throttle_rates
from assignor_core.intervals import is_due
from assignor_core.policies import knob

ADAPT_INTERVAL_MS = 10_000
RATE_MAX = 10**15
"""Highest throttle, bytes/s: Kafka stores rates as whole numbers of 64 bits, and refuses a higher one."""
CHANGE_MIN = 0.05
"""Rates that would change by less than this share stay as they are."""


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """Bounds of a broker's throttle, bytes/s; if it is not adaptive, the upper bound holds to the end."""

    rate_max: int = knob(50_000_000, "Highest replication throttle of a broker.", unit="bytes/s", ge=1_000, le=RATE_MAX)
    rate_min: int = knob(
        1_000_000, "An adapted throttle of a broker is no lower than this.", unit="bytes/s", ge=1_000, le=RATE_MAX
    )
    adaptive: bool = knob(
        True,
        "true: control lowers a throttle where planner.capacities leave less headroom, and while consumer groups fall "
        "behind.",
    )

    @property
    def factor_min(self) -> float:
        """The least share of the full throttle."""
        return min(1.0, self.rate_min / self.rate_max)


@dataclass(frozen=True, slots=True)
class RateState:
    """What the next rates depend on. `sent` is what the brokers took last, bytes/s by broker."""

    factor: float = 1.0
    adapted_ms: int = 0
    sent: Mapping[int, int] = field(default_factory=dict)


def rates_are_due(state: RateState, policy: RatePolicy, *, now_ms: int) -> bool:
    """Whether rates are read again now."""
    return policy.adaptive and is_due(state.adapted_ms, ADAPT_INTERVAL_MS, now_ms)


def adapted(state: RateState, policy: RatePolicy, *, pressed: bool, now_ms: int) -> RateState:
    """The state after a snapshot: less of the throttle under pressure, more without."""
    factor = next_throttle_factor(state.factor, pressed=pressed, factor_min=policy.factor_min)
    return replace(state, factor=factor, adapted_ms=now_ms)


def wanted_rates(
    state: RateState, policy: RatePolicy, brokers: frozenset[int], headrooms: Mapping[int, float]
) -> dict[int, int]:
    """Throttle by broker, bytes/s; `headrooms` (bytes/s by broker) counts where it is known.

    >>> wanted_rates(RateState(factor=0.5), RatePolicy(1_000, 100, adaptive=True), frozenset({1, 2}), {2: 50.0})
    {1: 500, 2: 100}
    """
    if not policy.adaptive:
        return dict.fromkeys(sorted(brokers), policy.rate_max)
    rate_min = min(policy.rate_min, policy.rate_max)
    return throttle_rates(brokers, headrooms, rate_max=policy.rate_max, rate_min=rate_min, factor=state.factor)


def differs(state: RateState, rates: Mapping[int, int]) -> bool:
    """Whether some broker's rate would change enough to send it; what a broker refused differs until it takes it.

    >>> differs(RateState(sent={1: 100}), {1: 104}), differs(RateState(sent={1: 100}), {1: 104, 2: 50})
    (False, True)
    """
    return any(abs(rate - state.sent.get(broker, 0)) > CHANGE_MIN * rate for broker, rate in rates.items())


def headroom(capacities: Mapping[int, float], loads: Mapping[int, float]) -> dict[int, float]:
    """What each broker has left below its capacity, bytes/s, at least 0; brokers with either unknown are absent.

    >>> headroom({1: 10.0, 2: 5.0, 3: 5.0}, {1: 4.0, 2: 6.0})
    {1: 6.0, 2: 0.0}
    """
    return {broker: max(0.0, capacities[broker] - loads[broker]) for broker in sorted(capacities.keys() & loads.keys())}
