"""A budget of bytes a day over all plans that control carries out unasked."""

from dataclasses import dataclass, replace

from assignor_core.planner.policy import PlannerPolicy


@dataclass(frozen=True, slots=True)
class DayBudget:
    """Bytes that automatic plans may copy in 24 hours, and what they have copied in the last 24."""

    bytes_max: int
    copied_bytes: int

    @property
    def left_bytes(self) -> int:
        """What may still be copied now."""
        return max(0, self.bytes_max - self.copied_bytes)

    def limited(self, policy: PlannerPolicy) -> PlannerPolicy:
        """`policy` for a plan within what is left.

        >>> DayBudget(100, 70).limited(PlannerPolicy(bytes_max=50)).bytes_max
        30
        """
        left = self.left_bytes
        return replace(policy, bytes_max=left if policy.bytes_max is None else min(left, policy.bytes_max))

    def binds(self, policy: PlannerPolicy) -> bool:
        """Whether plans by `policy` could copy more if nothing had been copied in the last 24 hours."""
        return self.copied_bytes > 0 and (policy.bytes_max is None or self.left_bytes < policy.bytes_max)

    def in_words(self) -> str:
        """How much is spent.

        >>> DayBudget(2_000_000_000, 1_500_000_000).in_words()
        'automatic plans have copied 1.50 of 2.00 GB in the last 24 h'
        """
        copied, most = self.copied_bytes / 1e9, self.bytes_max / 1e9
        return f"automatic plans have copied {copied:.2f} of {most:.2f} GB in the last 24 h"
