"""Replication throttles of a simulated cluster: lists changed entry by entry as Kafka does, and who is throttled.

The controller keeps the lists. Brokers throttle, and show, what they have heard of them. Kafka throttles only copies
that are out of sync. A copy counts on the leader's side if the leader's own replica is in the topic's leader list, on
the follower's side if the follower's is in the follower list.
"""

from assignor_core.simulated_cluster.state import SimulatedTopic
from assignor_core.throttles import EVERY_REPLICA, FOLLOWER_REPLICAS, LEADER_REPLICAS

INVALID_CONFIG = "InvalidConfigurationError"


def append_entries(topic: SimulatedTopic, setting: str, entries: str) -> str | None:
    """Add entries that are not there yet; the name of the error, or None. Beside `*` no entry is allowed."""
    present = _entries(topic, setting)
    if EVERY_REPLICA in present:
        return INVALID_CONFIG
    topic.throttled_replicas[setting] = ",".join(dict.fromkeys([*present, *entries.split(",")]))
    return None


def subtract_entries(topic: SimulatedTopic, setting: str, entries: str) -> None:
    """Remove entries; a list that is empty then is not set any more."""
    removed = set(entries.split(","))
    kept = [entry for entry in _entries(topic, setting) if entry not in removed]
    if kept:
        topic.throttled_replicas[setting] = ",".join(kept)
    else:
        topic.throttled_replicas.pop(setting, None)


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


def _names(topic: SimulatedTopic, setting: str, partition: int, broker: int) -> bool:
    text = topic.heard_replicas.get(setting)
    return text is not None and (text == EVERY_REPLICA or f"{partition}:{broker}" in text.split(","))


def _entries(topic: SimulatedTopic, setting: str) -> list[str]:
    text = topic.throttled_replicas.get(setting, "")
    return text.split(",") if text else []
