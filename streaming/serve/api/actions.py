"""What the acting API asks of control's journal and the cluster. serve knows neither: the command hands it both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an act: `state` is one word, `detail` a sentence; `status` is that of HTTP."""

    state: str
    detail: str
    status: int = 200
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What else the answer names: `plan_id`, `execution_id`, ..."""


class Actions(Protocol):
    """Acts of one cluster. Each may raise RebalancerError and CoreError; `by` is who asked, for the journal."""

    def make_plan(self, *, now_ms: int) -> Outcome:
        """Make and keep the plan that control would make now."""
        ...

    def approve(self, plan_id: str, by: str, *, now_ms: int) -> Outcome:
        """Ask for exactly this plan to be carried out."""
        ...

    def abort(self, execution_id: str, by: str, *, now_ms: int) -> Outcome:
        """Ask for this execution to stop."""
        ...

    def drain(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> Outcome:
        """Make and keep a plan that empties the broker; `carry_out` notes the drain and approves the plan too."""
        ...

    def add(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> Outcome:
        """Make and keep a plan that gives the broker its share; `carry_out` ends a drain and approves the plan too."""
        ...

    def undrain(self, broker: int, by: str, *, now_ms: int) -> Outcome:
        """End the drain of the broker; moves nothing."""
        ...
