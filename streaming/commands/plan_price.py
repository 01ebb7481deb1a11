"""What a plan costs, in words: how long it takes, and what brings most of it."""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

MOST_OF_IT = 0.8
"""The cheaper plan that is named in one line brings at least this part of the gain."""


def duration_text(duration_ms: float) -> str:
    """A duration in the unit that fits.

    >>> duration_text(4_000), duration_text(150_000), duration_text(9_000_000)
    ('4 s', '2.5 min', '2.5 h')
    """
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.0f} s"
    return f"{duration_ms / 60_000:.1f} min" if duration_ms < 3_600_000 else f"{duration_ms / 3_600_000:.1f} h"


def price_texts(price: Mapping[str, Any], *, whole_bytes: float) -> Iterable[str]:
    """The time that a plan takes at its throttle, and the cheapest plan that brings most of it, where they are known.

    `price` holds `duration_ms` and `cheaper`, as in the plan's JSON; `whole_bytes` is what the whole plan copies.
    """
    if price["duration_ms"]:
        yield f"about {duration_text(price['duration_ms'])} at its throttle"
    most = next((row for row in price["cheaper"] if row["gain_share"] >= MOST_OF_IT), None)
    if most is not None:
        yield (
            f"at least {most['gain_share']:.0%} of the gain for {most['bytes_to_move'] / whole_bytes:.0%} of the bytes "
            f"with --max-bytes {ceil(most['bytes_to_move'])}"
        )
