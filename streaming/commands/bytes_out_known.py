"""What nobody knows of the bytes out of brokers, and how to know it: for `status` and `check`.

Without counters of the brokers, the bytes out of a broker are the sum over what it leads. One partition that consumers
may read without a commit of a group makes that sum unknown. Bounds of it are what the trigger judges then.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from assignor_core.resources import Resource
from assignor_core.wording import bytes_text, counted
from streaming.commands.broker_names import broker_names
from streaming.views.broker_load import LoadPart

TOPICS_NAMED = 5
BROKERS_NAMED = 3
HOW_TO_KNOW = "to know it, set collect.jmx_endpoints or collect.prometheus_url, or let the readers commit"


def bytes_out_unknown(load: LoadPart) -> dict[str, Any]:
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


def bytes_out_finding(load: LoadPart) -> tuple[bool, str]:
    """For `check`: it passes, as bytes in, disk and counts are judged without bytes out."""
    if load.window_start_ms is None:
        return True, "no window of load has closed yet"
    return True, bytes_out_text(bytes_out_unknown(load)) or "known of each broker with samples"
