"""What a person looks at before a plan is approved, from its own JSON: loads of brokers, bytes, time, diagnosis."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streaming.views.plans import price_of
from streaming.views.stored_json import WRONG_SHAPE

BROKERS_MAX = 1_000
"""Brokers of an answer; those that copy most come first."""
LINES_MAX = 50
"""Lines of a diagnosis: the planner writes far fewer."""
LINE_LENGTH_MAX = 1_000
CHEAPER_MAX = 20

Content = Mapping[str, Any]


def plan_details(content: Content | None) -> dict[str, Any]:
    """Members beside those of the row. What is unknown is null or empty, as in plans of an earlier version.

    `brokers` has for each broker `received_bytes`, `sent_bytes`, and its load `before` and `after` by resource.
    `is_readable` is false where the row holds no plan: somebody else has written it, or it was cut.
    """
    try:
        if content is not None:
            return {"is_readable": True, **_details(content)}
    except WRONG_SHAPE:
        pass
    return {"is_readable": False, **_details({})}


def _details(content: Content) -> dict[str, Any]:
    price, brokers = price_of(content), _brokers(content)
    return {
        "least_bytes": price["least_bytes"],
        "duration_ms": price["duration_ms"],
        "throttle_bytes_per_sec": _throttle(content),
        "cheaper": price["cheaper"][:CHEAPER_MAX],
        "diagnosis": _lines(content.get("diagnosis", ())),
        "problems": _lines(content.get("problems", ())),
        "brokers": sorted(brokers[:BROKERS_MAX], key=lambda row: int(row["broker"])),
        "brokers_left_out": max(0, len(brokers) - BROKERS_MAX),
    }


def _lines(texts: Iterable[str]) -> list[str]:
    return [text[:LINE_LENGTH_MAX] for text in list(texts)[:LINES_MAX]]


def _brokers(content: Content) -> list[dict[str, Any]]:
    """Those that copy most come first."""
    received: defaultdict[int, float] = defaultdict(float)
    sent: defaultdict[int, float] = defaultdict(float)
    for row in _copies(content):
        received[int(row["broker"])] += row["received_bytes"]
        sent[int(row["broker"])] += row["sent_bytes"]
    before, after = (_by_broker(content.get(name, {})) for name in ("loads_before", "loads_after"))
    rows = [
        {
            "broker": broker,
            "received_bytes": received[broker],
            "sent_bytes": sent[broker],
            "before": before.get(broker, {}),
            "after": after.get(broker, {}),
        }
        for broker in before.keys() | after.keys() | received.keys()
    ]
    return sorted(rows, key=lambda row: (-max(row["received_bytes"], row["sent_bytes"]), row["broker"]))


def _by_broker(loads: Mapping[str, Mapping[str, float]]) -> dict[int, dict[str, float]]:
    turned: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for resource, row in loads.items():
        for broker, load in row.items():
            turned[int(broker)][resource] = float(load)
    return dict(turned)


def _copies(content: Content) -> Iterator[Mapping[str, Any]]:
    for wave in content.get("schedule", ()):
        yield from wave["brokers"]


def _throttle(content: Content) -> float | None:
    """Of each broker: a wave takes as long as the broker that receives or sends most."""
    for wave in content.get("schedule", ()):
        most: float = max((max(row["received_bytes"], row["sent_bytes"]) for row in wave["brokers"]), default=0.0)
        if wave["duration_ms"] and most:
            return float(f"{most / wave['duration_ms'] * 1000:.6g}")
    return None
