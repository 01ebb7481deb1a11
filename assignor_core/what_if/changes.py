"""What is assumed to change: brokers come or go, traffic grows, topics get more partitions or are dropped.

`changed` applies it to a history before the replay begins. A name that does not exist raises InputError.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from assignor_core.errors import InputError
from assignor_core.load import Floats
from assignor_core.placement import PlacementBroker, PlacementStart, place_replicas
from assignor_core.replays.history import HistoryBroker, RecordedHistory

BROKERS_ADDED_MAX = 1_000
PARTITIONS_MAX = 50_000
FACTOR_MAX = 1_000.0


@dataclass(frozen=True, slots=True)
class Changes:
    """What is assumed; nothing by default."""

    add_brokers: int = 0
    racks_down: frozenset[str] = frozenset()
    brokers_down: frozenset[int] = frozenset()
    drain: frozenset[int] = frozenset()
    """Brokers that must end empty."""
    traffic: float = 1.0
    """Factor on the rates of all topics."""
    topic_traffic: Mapping[str, float] = field(default_factory=dict)
    """Factors on the rates of single topics, besides."""
    grow: Mapping[str, int] = field(default_factory=dict)
    """Topic: how many partitions it is to have."""
    drop_topics: frozenset[str] = frozenset()


def changed(history: RecordedHistory, changes: Changes) -> tuple[RecordedHistory, frozenset[int]]:
    """The history under `changes`, and the brokers that are away from the start; raises InputError."""
    _check(history, changes)
    away = frozenset(row.broker_id for row in history.brokers if row.rack in changes.racks_down) | changes.brokers_down
    if len(away) == len(history.brokers):
        raise InputError("what-if: no broker would be left, at least one is needed")
    emptied = away | history.drained | changes.drain
    if changes.drain and not changes.add_brokers and emptied.issuperset(row.broker_id for row in history.brokers):
        raise InputError("--drain: no broker would be left that takes replicas, at least one is needed")
    history = _without_topics(history, changes.drop_topics)
    history = _with_traffic(history, changes)
    history = _with_brokers(history, changes.add_brokers, changes.racks_down)
    for topic, count in sorted(changes.grow.items()):
        history = _grown(history, topic, count, away)
    return replace(history, drained=history.drained | changes.drain), away


def _check(history: RecordedHistory, changes: Changes) -> None:
    topics = history.topics
    racks = sorted({row.rack for row in history.brokers if row.rack is not None})
    brokers = [row.broker_id for row in history.brokers]
    _known("--drop-topic", changes.drop_topics, topics)
    _known("--grow", changes.grow, topics)
    _known("--traffic", changes.topic_traffic, topics)
    for topic in sorted(changes.drop_topics & (changes.grow.keys() | changes.topic_traffic.keys())):
        raise InputError(f"--drop-topic {topic}: another option changes it, allowed is one of the two")
    for rack in sorted(changes.racks_down - set(racks)):
        raise InputError(f"--rack-down: there is no rack {rack!r}, allowed are {', '.join(racks) or 'none'}")
    for name, given in (("--broker-down", changes.brokers_down), ("--drain", changes.drain)):
        for broker in sorted(given - set(brokers)):
            raise InputError(f"{name}: there is no broker {broker}, allowed are {_listed(brokers)}")
    if not 0 <= changes.add_brokers <= BROKERS_ADDED_MAX:
        raise InputError(f"--add-brokers: found {changes.add_brokers}, allowed is 0 to {BROKERS_ADDED_MAX}")
    for factor in (changes.traffic, *changes.topic_traffic.values()):
        if not 0 < factor <= FACTOR_MAX:
            raise InputError(f"--traffic: found {factor:g}, allowed is above 0 to {FACTOR_MAX:g}")
    if topics == changes.drop_topics:
        raise InputError("--drop-topic: no topic would be left, at least one is needed")


def _known(option: str, named: Iterable[str], topics: frozenset[str]) -> None:
    for topic in sorted(set(named) - topics):
        close = difflib.get_close_matches(topic, sorted(topics), n=1, cutoff=0.6)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"{option}: there is no topic {topic!r}{meant}")


def _listed(brokers: list[int]) -> str:
    shown = ", ".join(map(str, brokers[:10]))
    return shown if len(brokers) <= 10 else f"{shown}, ... ({len(brokers)} in all)"


def _without_topics(history: RecordedHistory, topics: frozenset[str]) -> RecordedHistory:
    if not topics:
        return history
    rows = [row for row, (topic, _) in enumerate(history.partitions) if topic not in topics]
    return replace(
        history,
        partitions=tuple(history.partitions[row] for row in rows),
        replicas=tuple(history.replicas[row] for row in rows),
        size_bytes=history.size_bytes[rows],
        rates=history.rates[:, rows],
    )


def _with_traffic(history: RecordedHistory, changes: Changes) -> RecordedHistory:
    factors = np.array(
        [changes.traffic * changes.topic_traffic.get(topic, 1.0) for topic, _ in history.partitions], dtype=np.float64
    )
    return history if (factors == 1.0).all() else replace(history, rates=history.rates * factors[None, :, None])


def _with_brokers(history: RecordedHistory, count: int, racks_down: frozenset[str]) -> RecordedHistory:
    """New brokers have the next ids, go to the racks with fewest brokers, and are as large as the middle one.

    None goes to a rack that is down: all of its brokers are away.
    """
    brokers = list(history.brokers)
    sized = sorted(row.total_bytes for row in brokers if row.total_bytes is not None)
    size = sized[len(sized) // 2] if sized else None
    racks = sorted({row.rack for row in brokers if row.rack is not None} - racks_down)
    for _ in range(count):
        held = [row.rack for row in brokers]
        rack = min(racks, key=lambda name: (held.count(name), name)) if racks and None not in held else None
        brokers.append(HistoryBroker(max(row.broker_id for row in brokers) + 1, rack, size, size))
    wander = {
        resource: np.concatenate([factors, np.ones((*factors.shape[:2], count))], axis=2)
        for resource, factors in history.wander.items()
    }
    return replace(history, brokers=tuple(brokers), wander=wander)


def _grown(history: RecordedHistory, topic: str, count: int, away: frozenset[int]) -> RecordedHistory:
    """`topic` with `count` partitions: keys are hashed again, so each takes the same part of the topic's traffic.

    Its new partitions are empty and lie where Kafka puts them; what the others hold stays.
    """
    own = [row for row, key in enumerate(history.partitions) if key[0] == topic]
    if not len(own) < count <= PARTITIONS_MAX:
        raise InputError(f"--grow {topic}: found {count}, allowed is more than its {len(own)} to {PARTITIONS_MAX}")
    first = max(history.partitions[row][1] for row in own) + 1
    alive = [row for row in history.brokers if row.broker_id not in away]
    has_racks = all(row.rack is not None for row in alive)
    brokers = [PlacementBroker(row.broker_id, row.rack if has_racks else None) for row in alive]
    factor = len(history.replicas[own[0]])
    placed = place_replicas(brokers, count - len(own), factor, PlacementStart.fixed(0), first)
    share = history.rates[:, own].sum(axis=1, keepdims=True) / count
    rates: Floats = history.rates.copy()
    rates[:, own] = share
    added = sorted(placed)
    keys = [*history.partitions, *((topic, number) for number in added)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    replicas = [*history.replicas, *(placed[number] for number in added)]
    sizes = np.concatenate([history.size_bytes, np.zeros(len(added))])
    rates = np.concatenate([rates, np.repeat(share, len(added), axis=1)], axis=1)
    return replace(
        history,
        partitions=tuple(keys[row] for row in order),
        replicas=tuple(replicas[row] for row in order),
        size_bytes=sizes[order],
        rates=rates[:, order],
    )
