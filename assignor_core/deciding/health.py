"""Offline partitions, and those that stay under-replicated: while there are any, mode `apply` starts no plan.

An execution would submit nothing, keep its throttle until its deadline and abort, and the next one would follow. An
offline partition counts at once. One that is under-replicated counts once the evaluation before has seen it so, too: a
replica that falls behind for a moment holds nothing back.
"""

from dataclasses import replace

from assignor_core.deciding.trigger import TriggerState, is_continuous
from assignor_core.deciding.trigger_policy import TriggerPolicy
from assignor_core.live import LiveCluster, lagging, lagging_text, offline, offline_text

LAGGING_KEPT_MAX = 100
"""The state is part of each row of `decision`. Of more partitions than this those are kept that are behind longest."""


def with_lagging(policy: TriggerPolicy, state: TriggerState, live: LiveCluster, now_ms: int) -> TriggerState:
    """Notes partitions that are newly under-replicated and forgets those that are in sync again.

    What is missing on brokers that are away is not noted: the trigger waits for those, or they are replaced. To be
    called before the trigger's own step, which notes the time.
    """
    known = {row[:2]: row[2] for row in state.lagging_since_ms} if is_continuous(policy, state, now_ms) else {}
    behind = live.once("lagging", lambda: lagging(live, live.hosts_away()))
    since = ((known.get(key, now_ms), key) for key in behind)
    kept = sorted((key, since_ms) for since_ms, key in sorted(since)[:LAGGING_KEPT_MAX])
    rows = tuple((*key, since_ms) for key, since_ms in kept)
    return state if rows == state.lagging_since_ms else replace(state, lagging_since_ms=rows)


def obstacle(state: TriggerState, live: LiveCluster, now_ms: int, *, relieves: bool) -> str | None:
    """Why an execution would have to wait now, in words; None if it would not, or for a moment only.

    `relieves` for a plan that replaces brokers that are away: what they held is no obstacle, since it is the cure.

    >>> from assignor_core.live import LivePartition
    >>> live = LiveCluster("c", {1: None, 2: None}, {("t", 0): LivePartition((1, 2), 1, (1,))})
    >>> obstacle(TriggerState(lagging_since_ms=(("t", 0, 60_000),)), live, 240_000, relieves=False)
    '1 partition is under-replicated, first t-0, for 3.0 min'
    """
    without_leader = offline(live, live.hosts_away() if relieves else ())
    if without_leader:
        return offline_text(without_leader)
    lasting = [row for row in state.lagging_since_ms if row[2] < now_ms]
    if not lasting:
        return None
    topic, partition, since_ms = min(lasting, key=lambda row: row[2])
    return f"{lagging_text(len(lasting), (topic, partition))}, for {(now_ms - since_ms) / 60_000:.1f} min"
