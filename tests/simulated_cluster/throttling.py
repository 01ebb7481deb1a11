"""Replication throttles of a simulated cluster: lists changed entry by entry as Kafka does, and who is throttled.

The controller keeps the lists. Brokers throttle, and show, what they have heard of them. Kafka throttles only copies
that are out of sync. A copy counts on the leader's side if the leader's own replica is in the topic's leader list, on
the follower's side if the follower's is in the follower list.
"""

from functools import lru_cache

from assignor_core import throttles
from assignor_core.throttles import EVERY_REPLICA, FOLLOWER_REPLICAS, LEADER_REPLICAS
from tests.simulated_cluster.state import LONG_LISTS_REFUSED, Release, SimulatedTopic

INVALID_CONFIG = "InvalidConfigurationError"
UNKNOWN = "UnknownError"
CONNECTION_CLOSED = "KafkaConnectionError"
"""No answer: a broker closes the connection on a text of more bytes than a value may have."""


def append_entries(topic: SimulatedTopic, setting: str, entries: str, release: Release) -> str | None:
    """Add entries that are not there yet, or nothing; returns what `append_error` does."""
    error = append_error(topic, setting, entries, release)
    if error is None:
        topic.throttled_replicas[setting] = _appended(topic, setting, entries)
    return error


def append_error(topic: SimulatedTopic, setting: str, entries: str, release: Release) -> str | None:
    """The name of the error if Kafka does not add these entries: beside `*`, or to a list that would be too long."""
    if is_too_long(entries):
        return CONNECTION_CLOSED
    if EVERY_REPLICA in _entries(topic, setting):
        return INVALID_CONFIG
    if is_too_long(_appended(topic, setting, entries)):
        return INVALID_CONFIG if release >= LONG_LISTS_REFUSED else UNKNOWN
    return None


def subtract_entries(topic: SimulatedTopic, setting: str, entries: str) -> str | None:
    """Remove entries; the name of the error, or None. A list that is empty then is not set any more."""
    if is_too_long(entries):
        return CONNECTION_CLOSED
    removed = set(entries.split(","))
    kept = [entry for entry in _entries(topic, setting) if entry not in removed]
    if kept:
        topic.throttled_replicas[setting] = ",".join(kept)
    else:
        topic.throttled_replicas.pop(setting, None)
    return None


def is_too_long(text: str) -> bool:
    """Whether Kafka takes no such value of a setting."""
    return len(text) > throttles.VALUE_BYTES_MAX


def throttled_on_leader(topic: SimulatedTopic, partition: int, leader: int) -> bool:
    """Whether what this leader sends to replicas that are out of sync is throttled."""
    return _names(topic, LEADER_REPLICAS, partition, leader)


def throttled_on_follower(topic: SimulatedTopic, partition: int, follower: int) -> bool:
    """Whether what this follower receives while it is out of sync is throttled."""
    return _names(topic, FOLLOWER_REPLICAS, partition, follower)


def spread(topic: SimulatedTopic, now_ms: int, delay_ms: int) -> None:
    """Brokers hear of the lists as they are now after `delay_ms`, and in the order of their changes."""
    heard_ms = max(now_ms + delay_ms, topic.unheard[-1][0] if topic.unheard else now_ms)
    topic.unheard.append((heard_ms, dict(topic.throttled_replicas)))
    hear(topic, now_ms)


def hear(topic: SimulatedTopic, now_ms: int) -> None:
    """Let brokers know what they have heard until now."""
    while topic.unheard and topic.unheard[0][0] <= now_ms:
        _, topic.heard_replicas = topic.unheard.pop(0)


def _appended(topic: SimulatedTopic, setting: str, entries: str) -> str:
    return ",".join(dict.fromkeys([*_entries(topic, setting), *entries.split(",")]))


def _names(topic: SimulatedTopic, setting: str, partition: int, broker: int) -> bool:
    text = topic.heard_replicas.get(setting)
    return text is not None and (text == EVERY_REPLICA or f"{partition}:{broker}" in _named(text))


@lru_cache(maxsize=256)
def _named(text: str) -> frozenset[str]:
    """Entries of a list: each copy looks for its own, again and again."""
    return frozenset(text.split(","))


def _entries(topic: SimulatedTopic, setting: str) -> list[str]:
    text = topic.throttled_replicas.get(setting, "")
    return text.split(",") if text else []
