"""Reads which topics are compacted, of those that groups read: offsets of a compacted topic are more than its records.

A policy changes seldom: a topic is asked about once an hour, and when a group first reads it. Without the right to
describe the configs of topics the policy is unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from kafka.errors import KafkaError

from assignor_core.intervals import is_due
from streaming.cluster.broker_reads import BrokerReads

log = structlog.get_logger()

ASKED_AGAIN_MS = 3_600_000
TOPICS_AT_ONCE = 1_000
"""Topics of one request; further ones wait for the next look."""
COMPACT = "compact"


@dataclass(slots=True)
class CleanupPolicies:
    """Remembers policies, and when each topic was asked about. Not for two threads."""

    _policies: dict[str, str] = field(default_factory=dict)
    _asked_ms: dict[str, int] = field(default_factory=dict)

    def read(self, reads: BrokerReads, topics: Iterable[str], *, now_ms: int) -> Mapping[str, str]:
        """Policy of each of the topics that is compacted, as far as the brokers show it."""
        named = set(topics)
        self._asked_ms = {name: asked_ms for name, asked_ms in self._asked_ms.items() if name in named}
        due = sorted(name for name in named if is_due(self._asked_ms.get(name), ASKED_AGAIN_MS, now_ms))
        asked = due[:TOPICS_AT_ONCE]
        shown = self._shown(reads, asked) if asked else {}
        self._asked_ms |= dict.fromkeys(asked, now_ms)
        known = {**self._policies, **shown}
        self._policies = {name: policy for name, policy in known.items() if name in named}
        return {name: policy for name, policy in self._policies.items() if COMPACT in policy.split(",")}

    def _shown(self, reads: BrokerReads, topics: list[str]) -> Mapping[str, str]:
        try:
            shown = reads.cleanup_policies(topics)
        except KafkaError as error:
            log.warning("cleanup_policies_unread", error=type(error).__name__)
            return {}
        if len(shown) < len(topics):
            log.info("cleanup_policies_hidden", topics=len(topics) - len(shown), needs="DESCRIBE_CONFIGS on topics")
        return shown
