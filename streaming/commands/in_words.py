"""Figures in words for people: brokers, durations, prices of plans, ages of loads, what nobody knows of bytes out."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any

from assignor_core.resources import Resource
from assignor_core.wording import bytes_text, counted, first_named

if TYPE_CHECKING:
    from assignor_core.proposed_plan import ProposedPlan
    from streaming.views.broker_load import LoadPart

MOST_OF_IT = 0.8
"""The cheaper plan that is named in one line brings at least this part of the gain."""
NEAR = 0.99
"""The least bytes are not shown beside a plan's bytes if they are at least this share of them."""
LEAST_SHOWN = 0.01
"""Smaller parts are shown as less than this: "0%" reads as if nothing were copied."""
PROMISED = (("max/mean", "max_over_mean"), ("bytes", "bytes_copied"), ("duration", "duration"))
"""What a plan promises, in words and as `Accuracy` names it."""
BROKERS_SHOWN = 20
OLD_FIGURES = "OLD FIGURES"
"""Stands above figures that are too old to act on."""
TOPICS_NAMED = 5
BROKERS_NAMED = 3
HOW_TO_KNOW = "to know it, set collect.jmx_endpoints or collect.prometheus_url, or let the readers commit"


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
    """How far the promises of earlier plans were off (`Accuracy` as data); None where too few were measured.

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


def broker_names(brokers: Collection[int]) -> str:
    """One broker or several, of many the first.

    >>> broker_names([3]), broker_names([4, 3])
    ('broker 3', 'brokers 3, 4')
    """
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {first_named(sorted(brokers), BROKERS_SHOWN)}"


def is_old(age_ms: float, window_ms: int) -> bool:
    """Whether the trigger would not accept a newest window of this age."""
    from streaming.views.spans import stale_after_ms

    return age_ms > stale_after_ms(window_ms)


def loads_lines(proposed: "ProposedPlan", window_ms: int, *, now_ms: int) -> Iterator[str]:
    """Yields the end of the windows that a plan rests on; nothing for a plan that rests on none."""
    from assignor_core.lag.reasons import duration
    from streaming.tables import utc

    if proposed.window_span_ms is None:
        return
    end_ms = proposed.window_span_ms[1]
    old = f"{OLD_FIGURES}: rests" if is_old(now_ms - end_ms, window_ms) else "Rests"
    yield f"{old} on loads until {utc(end_ms):%H:%M:%S} UTC, {duration(max(0, now_ms - end_ms) / 1000)} ago"


def bytes_out_unknown(load: "LoadPart") -> dict[str, Any]:
    """Brokers with samples in the newest window whose bytes out are unknown, and why.

    `partitions` counts led partitions that no group commits for, `topics` has the topics with most of these, and
    `bounds` the least and most bytes/s of each broker.
    """
    start_ms = load.window_start_ms
    reporting = [row.broker for row in load.brokers if start_ms is not None and row.last_sample_ms >= start_ms]
    brokers = [broker for broker in reporting if broker not in load.loads.get(Resource.BYTES_OUT, {})]
    unread = load.unread if brokers else {}
    topics = sorted(unread, key=lambda topic: (-unread[topic], topic))
    bounds = {
        str(row.broker): [row.bytes_out_at_least_per_sec, row.bytes_out_at_most_per_sec]
        for row in load.brokers
        if row.bytes_out_at_least_per_sec is not None
    }
    return {
        "brokers": brokers,
        "partitions": sum(unread.values()),
        "topics": topics[:TOPICS_NAMED],
        "bounds": bounds,
    }


def bytes_out_text(unknown: Mapping[str, Any]) -> str:
    """The sentence about brokers whose bytes out are unknown; empty if there are none."""
    if not unknown["brokers"]:
        return ""
    text = f"bytes out of {broker_names(unknown['brokers'])}: unknown"
    if unknown["partitions"]:
        partitions = counted(unknown["partitions"], "partition", "partitions")
        text += f", as no group commits what is read of {partitions} ({', '.join(unknown['topics'])})"
    return "; ".join([text, *_bounds_text(unknown["bounds"]), HOW_TO_KNOW])


def _bounds_text(bounds: Mapping[str, Sequence[float | None]]) -> Iterator[str]:
    """The bounds of the first brokers.

    >>> list(_bounds_text({"1": [1e6, 1.5e6], "2": [2e6, None]}))
    ['broker 1 sends at least 1.0 MB/s and at most 1.5 MB/s, broker 2 at least 2.0 MB/s']
    """
    named = [
        f"broker {broker} {'sends ' if place == 0 else ''}at least {bytes_text(least or 0.0)}/s"
        + ("" if most is None else f" and at most {bytes_text(most)}/s")
        for place, (broker, (least, most)) in enumerate(islice(bounds.items(), BROKERS_NAMED))
    ]
    more = len(bounds) - len(named)
    if named:
        yield ", ".join([*named, *([f"and {more} more"] if more else [])])


def bytes_out_finding(load: "LoadPart") -> tuple[bool, str]:
    """For `check`: it passes, as bytes in, disk and counts are judged without bytes out."""
    if load.window_start_ms is None:
        return True, "no window of load has closed yet"
    return True, bytes_out_text(bytes_out_unknown(load)) or "known of each broker with samples"
