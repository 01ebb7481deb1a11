"""How old the load is that a command shows, in words: old figures would pass for what is so now."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assignor_core.lag.reasons import duration

if TYPE_CHECKING:
    from assignor_core.proposed_plan import ProposedPlan

OLD_FIGURES = "OLD FIGURES"
"""Stands above figures that are too old to act on."""


def is_old(age_ms: float, window_ms: int) -> bool:
    """Whether the trigger would not accept a newest window of this age."""
    from streaming.control.windows import stale_after_ms

    return age_ms > stale_after_ms(window_ms)


def loads_lines(proposed: "ProposedPlan", window_ms: int, *, now_ms: int) -> Iterator[str]:
    """Until when the windows reach that a plan rests on; nothing for one that rests on none."""
    from streaming.tables import utc

    if proposed.window_span_ms is None:
        return
    end_ms = proposed.window_span_ms[1]
    old = f"{OLD_FIGURES}: rests" if is_old(now_ms - end_ms, window_ms) else "Rests"
    yield f"{old} on loads until {utc(end_ms):%H:%M:%S} UTC, {duration(max(0, now_ms - end_ms) / 1000)} ago"
