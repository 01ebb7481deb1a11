"""Skew of one closed window: what the trigger looks at. Knows no threshold."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SkewWindow:
    """One closed window: each broker's load over the mean and the mean itself, by resource; how many reported."""

    window_end_ms: int
    ratios: Mapping[str, Mapping[int, float]]
    """resource: broker: load over mean load; utilisation where capacities are known."""
    mean_load: Mapping[str, float]
    brokers_expected: int
    brokers_reporting: int
    length_ms: int = 0

    @property
    def window_start_ms(self) -> int:
        """Start of the window, inclusive."""
        return self.window_end_ms - self.length_ms

    @property
    def completeness(self) -> float:
        """Share of the expected brokers that reported, 0 to 1."""
        return min(1.0, self.brokers_reporting / self.brokers_expected) if self.brokers_expected else 0.0

    def max_over_mean(self, resource: str) -> float:
        """The one figure of a resource; 1 where nothing is known."""
        return max(self.ratios.get(resource, {}).values(), default=1.0)
