"""What a plan costs, in words: how long it takes, what brings most of it, and how far such promises were off."""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from assignor_core.wording import bytes_text, counted

MOST_OF_IT = 0.8
"""The cheaper plan that is named in one line brings at least this part of the gain."""
NEAR = 0.99
"""Where so much of a plan's bytes is proven to be needed, the figure itself would say nothing more."""
LEAST_SHOWN = 0.01
"""Smaller parts are shown as less than this: "0%" reads as if nothing were copied."""
PROMISED = (("max/mean", "max_over_mean"), ("bytes", "bytes_copied"), ("duration", "duration"))
"""What a plan promises, in words and as `Accuracy` names it."""


def duration_text(duration_ms: float) -> str:
    """A duration in the unit that fits.

    >>> duration_text(4_000), duration_text(150_000), duration_text(9_000_000)
    ('4 s', '2.5 min', '2.5 h')
    """
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.0f} s"
    return f"{duration_ms / 60_000:.1f} min" if duration_ms < 3_600_000 else f"{duration_ms / 3_600_000:.1f} h"


def price_texts(price: Mapping[str, Any], *, whole_bytes: float) -> Iterable[str]:
    """What any plan as good copies, how long this one takes at its throttle, and the cheapest plan that brings most of
    it, where they are known.

    `price` holds `least_bytes`, `duration_ms` and `cheaper`, as in the plan's JSON; `whole_bytes` is what it copies.
    """
    least = price.get("least_bytes")  # plans that were not made to be carried out have none
    if least:
        is_near = least >= NEAR * whole_bytes
        figure = "" if is_near else f" than {bytes_text(least)} ({least / whole_bytes:.0%} of its bytes)"
        yield f"no plan as good copies less{figure}"
    if price["duration_ms"]:
        yield f"about {duration_text(price['duration_ms'])} at its throttle"
    most = next((row for row in price["cheaper"] if row["gain_share"] >= MOST_OF_IT), None)
    if most is not None:
        copied = most["bytes_to_move"] / whole_bytes
        part = f"{copied:.0%}" if copied >= LEAST_SHOWN else f"less than {LEAST_SHOWN:.0%}"
        yield (
            f"a plan with --max-bytes {ceil(most['bytes_to_move'])} copies {part} of the bytes for at least "
            f"{most['gain_share']:.0%} of the gain"
        )


def accuracy_line(accuracy: Mapping[str, Any] | None) -> str | None:
    """How far the promises of earlier plans were off (`accuracy_data`); None where too few were measured.

    >>> row = {"median": -0.02, "off_median": 0.03, "likely": 0.08, "off_max": 0.11, "count": 12}
    >>> accuracy_line({"max_over_mean": row, "bytes_copied": None, "duration": row | {"count": 5}})
    'predictions of the last 12 plans were off: max/mean by 3 % (median), 11 % at most; duration by 3 % (median), \
11 % at most (of 5)'
    """
    known = [(words, accuracy[name]) for words, name in PROMISED if accuracy[name] is not None] if accuracy else []
    if not known:
        return None
    count = max(row["count"] for _, row in known)
    plans = counted(count, "plan", "plans")
    return f"predictions of the last {plans} were off: {'; '.join(_off_text(*row, count) for row in known)}"


def _off_text(words: str, error: Mapping[str, Any], count: int) -> str:
    fewer = f" (of {error['count']})" if error["count"] < count else ""
    return f"{words} by {error['off_median'] * 100:.0f} % (median), {error['off_max'] * 100:.0f} % at most{fewer}"
