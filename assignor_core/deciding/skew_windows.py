"""Skew of one closed window: what the trigger looks at. Knows no threshold."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    ratios_at_most: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """resource: broker: highest possible ratio, of resources whose loads have bounds; `ratios` has the lowest."""

    @property
    def window_start_ms(self) -> int:
        """Start of the window, inclusive."""
        return self.window_end_ms - self.length_ms

    @property
    def completeness(self) -> float:
        """Share of the expected brokers that reported, 0 to 1."""
        return min(1.0, self.brokers_reporting / self.brokers_expected) if self.brokers_expected else 0.0

    def max_over_mean(self, resource: str) -> float:
        """The one figure of a resource, at least where loads have bounds alone; 1 where nothing is known."""
        return max(1.0, max(self.ratios.get(resource, {}).values(), default=1.0))

    def figure_name(self, resource: str) -> str:
        """What `max_over_mean` is called in a sentence."""
        return "max/mean at least" if resource in self.ratios_at_most else "max/mean"
