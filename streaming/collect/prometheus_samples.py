"""Counters of brokers made of raw samples that Prometheus has scraped: pure.

Every rate is of two scrapes of one target, by their own times, whenever they were asked for. A series with a stale
marker after its last sample, or whose target is gone, is not there: its broker is unknown, never 0.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming.collect.observation import BrokerCounters, CounterPair
from streaming.collect.prometheus_presets import BrokerNames, Preset
from streaming.contract.rates import BYTES_IN, BYTES_OUT, RATES

Series = tuple[Mapping[str, str], Sequence[tuple[float, float]]]
"""Labels, and (time in s, value) of each sample, oldest first."""
AGE_SCRAPES_MAX = 3
"""A broker whose newest scrape is older than so many of its scrape intervals is not scraped any more."""


@dataclass(frozen=True, slots=True)
class Found:
    """Counters by broker, and what was wrong with the rest, one line each."""

    pairs: Mapping[int, CounterPair]
    problems: Sequence[str]


def counter_pairs(
    series: Sequence[Series], alive: Sequence[Mapping[str, str]], preset: Preset, names: BrokerNames, *,
    now_s: float, interval_s: float,
) -> Found:  # fmt: skip
    """The newest scrape of each broker and one at least `interval_s` before it, or else the oldest that is there.

    `alive` are labels of series that are not stale now. A broker of two targets is left out: their counters differ.
    """
    live = {broker for labels in alive if (broker := names.broker_of(labels)) is not None}
    by_broker: dict[int, list[Series]] = defaultdict(list)
    unnamed: set[str] = set()
    for labels, samples in series:
        broker = names.broker_of(labels)
        if broker is None:
            unnamed.add(labels.get(names.label, ""))
        else:
            by_broker[broker].append((labels, samples))
    problems = []
    if unnamed:
        problems.append(
            f"label {names.label} names no broker: {_first_of(unnamed)} (collect.prometheus_broker_pattern, "
            "collect.prometheus_broker_ids)"
        )
    twice = {broker for broker, rows in by_broker.items() if _is_of_two_targets(rows, preset)}
    if twice:
        problems.append(f"brokers of more than one target: {_first_of({str(row) for row in twice})}")
    pairs = {}
    for broker, rows in sorted(by_broker.items()):
        if broker in live and broker not in twice:
            pair = _pair(rows, preset, now_s, interval_s)
            if pair is not None:
                pairs[broker] = pair
    return Found(pairs, problems)


def _pair(rows: Sequence[Series], preset: Preset, now_s: float, interval_s: float) -> CounterPair | None:
    """Returns two scrapes of a broker; None without two that show bytes in, or where the newest is too old."""
    scrapes: dict[float, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for labels, samples in rows:
        for time_s, value in samples:
            scrapes[time_s].append((labels, value))
    whole = {time_s: counters for time_s in sorted(scrapes) if (counters := _counters(scrapes[time_s], preset))}
    times = sorted(whole)
    if len(times) < 2 or now_s - times[-1] > AGE_SCRAPES_MAX * (times[-1] - times[-2]):
        return None
    last = times[-1]
    # A tenth of an interval is the jitter of scrapes.
    first = max((row for row in times if row <= last - 0.9 * interval_s), default=times[0])
    return CounterPair(whole[first], whole[last], round(first * 1000), round(last * 1000))


def _counters(samples: Sequence[tuple[Mapping[str, str], float]], preset: Preset) -> BrokerCounters | None:
    """What one scrape shows; None without the broker's bytes in, or with a value that is no number."""
    totals: dict[str, float] = {}
    by_topic: dict[str, dict[str, float]] = {BYTES_IN.stem: {}, BYTES_OUT.stem: {}}
    for labels, value in samples:
        stem = preset.stem_of(labels)
        if stem is None:
            continue
        if not math.isfinite(value):
            return None
        topic = labels.get("topic")
        if not topic:
            totals[stem] = value
        elif stem in by_topic:
            by_topic[stem][topic] = value
    if BYTES_IN.stem not in totals:
        return None
    # Brokers without any follower or reassignment never made those meters: their count is zero.
    complete = {rate.stem: totals.get(rate.stem, 0.0) for rate in RATES}
    return BrokerCounters(complete, by_topic[BYTES_OUT.stem], by_topic[BYTES_IN.stem])


def _is_of_two_targets(rows: Sequence[Series], preset: Preset) -> bool:
    """Whether two series count the same."""
    counted = [(preset.stem_of(labels), labels.get("topic") or "") for labels, _ in rows]
    return len(set(counted)) < len(counted)


def _first_of(values: set[str]) -> str:
    first = min(values)
    return f"{first!r}" if len(values) == 1 else f"{first!r} and {len(values) - 1} more"


def series_of(answer: Mapping[str, Any]) -> list[Series]:
    """Series of an answer of Prometheus' /api/v1/query; raises ValueError where it is none.

    >>> series_of({"status": "success", "data": {"resultType": "matrix", "result": [
    ...     {"metric": {"a": "b"}, "values": [[1.5, "2"]]}]}})
    [({'a': 'b'}, [(1.5, 2.0)])]
    """
    if answer.get("status") != "success":
        raise ValueError(str(answer.get("error", "no answer of Prometheus")))
    try:
        rows = answer["data"]["result"]
        return [
            (dict(row["metric"]), [(float(time_s), float(value)) for time_s, value in _values(row)]) for row in rows
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answer of Prometheus: {type(error).__name__}") from None


def _values(row: Mapping[str, Any]) -> Sequence[tuple[Any, Any]]:
    values: Sequence[tuple[Any, Any]] = row["values"] if "values" in row else [row["value"]]
    return values
