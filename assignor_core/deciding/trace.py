"""What a decision considered, need by need: whether the cluster has it, the gates it passed, and the one that held it.

The row of the decision keeps this as JSON, bounded in size: as many entries as there are needs and one for the plan
that waited, each text cut to `TEXT_MAX` characters. It alone answers why control did not act at a certain minute.
"""

from dataclasses import dataclass
from typing import Any

TEXT_MAX = 300
"""Most characters of one text."""
WAITING_PLAN = "waiting_plan"
"""Name of the need of a plan that was made at an earlier decision."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One need as the decision found it; needs that come after a plan are not considered."""

    need: str
    """The reason of the need as a decision names it (`Reason`), or `WAITING_PLAN`."""
    is_found: bool
    """Whether the cluster has the need."""
    text: str = ""
    """Description of the need, with its figures."""
    passed: tuple[str, ...] = ()
    """Names of the gates that let the need pass, in order."""
    held_by: str | None = None
    """Name of the gate that holds the need; None where none does."""
    why: str = ""
    """Why the need is held back, or why the cluster does not have the need, with figures."""

    def to_json(self) -> dict[str, Any]:
        """Returns the trace as JSON's types, for the row of the decision.

        >>> Traced("skewed", is_found=False, why="worst is 1.1").to_json()["why"]
        'worst is 1.1'
        """
        return {
            "need": self.need,
            "is_found": self.is_found,
            "text": _cut(self.text),
            "passed": list(self.passed),
            "held_by": self.held_by,
            "why": _cut(self.why),
        }


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 3]}..."
