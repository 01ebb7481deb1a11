"""Counters of topics that a broker keeps, split among the partitions of the topic that it leads. Pure."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from streaming.collect.observation import BrokerCounters, Observation
from streaming.collect.partition_table import Ints

Floats = npt.NDArray[np.float64]
TopicCounter = Callable[[BrokerCounters], Mapping[str, float]]
"""Bytes by topic."""


def places_of(after: Observation) -> tuple[Ints, Ints]:
    """(Places, the number of its place by partition): partitions of one topic on one leader share a place.

    A place is broker x topics + topic.
    """
    partitions = after.partitions
    topics = max(1, len(partitions.names.topics))
    places, place = np.unique(partitions.leader * topics + partitions.names.topic, return_inverse=True)
    return places, place


def counted_by_place(before: Observation, after: Observation, places: Ints, counter: TopicCounter) -> Floats:
    """Bytes/s of each place by the leader's counter of the topic; NaN where it can't tell. `places` are in order.

    A broker has no counter of a topic until that is used, and none after a restart.
    """
    totals = np.full(len(places), np.nan)
    names = after.partitions.names.topics
    topics = max(1, len(names))
    for broker in sorted(after.counters.keys() | after.counter_pairs.keys()):
        pair = after.counters_since(before, broker)
        if pair is None:
            continue
        own = slice(*np.searchsorted(places, (broker * topics, (broker + 1) * topics)))
        own_names = [names[topic] for topic in (places[own] % topics).tolist()]
        first, last = counter(pair.earlier), counter(pair.later)
        grown = np.array([last.get(name, 0.0) - first.get(name, 0.0) for name in own_names], dtype=np.float64)
        totals[own] = np.where(grown >= 0, grown * 1000 / pair.passed_ms, np.nan)
    return totals


def bytes_in_per_sec(before: Observation, after: Observation, messages: Floats) -> Floats:
    """Bytes/s that clients wrote to each partition of `after`, by the leader's counter of its topic, in proportion to
    the records/s of the partition; NaN where either is unknown.

    An estimate: records of the partitions of one topic count as equally large.
    """
    places, place = places_of(after)
    # A broker that counts no topics would pass for one whose topics are not written.
    totals = counted_by_place(before, after, places, lambda counters: counters.topic_bytes_in)
    sums = np.bincount(place, messages, len(places))  # NaN where one of them is
    share = sums[place]
    is_known = ~np.isnan(share) & (share > 0) & (totals[place] > 0)
    return np.where(is_known, totals[place] * messages / np.where(is_known, share, 1), np.nan)
