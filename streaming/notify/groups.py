"""Groups that have stopped and those that go on again, as the alert RebalancerConsumerGroupStopped judges them."""

from collections.abc import Callable, Iterable, Mapping

from streaming.notify.occurrences import Occurrence
from streaming.views.group_ranking import GroupTopic

STOPPED = frozenset({"stop", "stall"})
LAG_MIN_RECORDS = 1_000
LASTS_MS = 600_000
GROUPS_AT_A_TIME = 100
"""Number of groups that one look names, at most; the next look names the others."""


class StoppedGroups:
    """Follows the verdicts of groups from look to look.

    `newest_of_groups` reads what was notified last of each group, by whichever process: a group is named once.
    """

    def __init__(self, newest_of_groups: Callable[[], Mapping[str, Occurrence]]) -> None:
        self._newest_of_groups = newest_of_groups
        self._since_ms: dict[str, int] = {}
        self._named: set[str] | None = None
        self._even_since_ms: dict[str, int] = {}

    def look(self, topics: Iterable[GroupTopic], *, now_ms: int) -> list[Occurrence]:
        """Returns the occurrences to notify of now; raises TableUnavailable."""
        waiting = _waiting(topics)
        self._since_ms = {group: self._since_ms.get(group, now_ms) for group in waiting}
        named = self._names() if self._named is None else self._named
        well = named - waiting.keys()
        self._even_since_ms = {group: self._even_since_ms.get(group, now_ms) for group in well}
        stopped = [group for group in _lasting(self._since_ms, now_ms) if group not in named]
        recovered = _lasting(self._even_since_ms, now_ms)
        if not stopped and not recovered:
            self._named = named
            return []
        newest = self._newest_of_groups()
        found = [
            *(_stopped(group, waiting[group], newest.get(group), now_ms) for group in stopped[:GROUPS_AT_A_TIME]),
            *(_recovered(group, newest.get(group), now_ms) for group in recovered[:GROUPS_AT_A_TIME]),
        ]
        self._named = (named | set(stopped[:GROUPS_AT_A_TIME])) - set(recovered[:GROUPS_AT_A_TIME])
        return [one for one in found if one is not None]

    def _names(self) -> set[str]:
        return {group for group, one in self._newest_of_groups().items() if one.kind == "group_stopped"}


def _lasting(since_ms: Mapping[str, int], now_ms: int) -> list[str]:
    return sorted(group for group, begin_ms in since_ms.items() if now_ms >= begin_ms + LASTS_MS)


def _waiting(topics: Iterable[GroupTopic]) -> dict[str, GroupTopic]:
    """Returns by group its topic with the most records that wait and on which nothing is committed."""
    worst: dict[str, GroupTopic] = {}
    for topic in topics:
        lag = topic.lag_records or 0
        if lag > LAG_MIN_RECORDS and any(topic.statuses.get(status) for status in STOPPED):
            known = worst.get(topic.group)
            if known is None or lag > (known.lag_records or 0):
                worst[topic.group] = topic
    return worst


def _stopped(group: str, topic: GroupTopic, newest: Occurrence | None, now_ms: int) -> Occurrence | None:
    if newest is not None and newest.kind == "group_stopped":
        return None  # another process was first
    partitions = sum(topic.statuses.get(status, 0) for status in STOPPED)
    return Occurrence(
        _next_id(group, newest),
        "group_stopped",
        group,
        now_ms,
        f"Consumer group {group} has stopped",
        f"Group {group} has committed nothing for {LASTS_MS // 60_000} min on {partitions} partitions of topic "
        f"{topic.topic}; {topic.lag_records or 0:,} {topic.lag_unit} of the topic wait. `rebalancer lag` shows why",
        {"group": group, "topic": topic.topic, "partitions": partitions, "lag_records": topic.lag_records},
    )


def _recovered(group: str, newest: Occurrence | None, now_ms: int) -> Occurrence | None:
    if newest is None or newest.kind == "group_recovered":
        return None
    title = f"Consumer group {group} has recovered"
    detail = (
        f"For {LASTS_MS // 60_000} min group {group} has had no topic on which it commits nothing while more than "
        f"{LAG_MIN_RECORDS:,} records wait"
    )
    return Occurrence(_next_id(group, newest), "group_recovered", group, now_ms, title, detail, {"group": group})


def _next_id(group: str, newest: Occurrence | None) -> str:
    """Returns a numbered id, so that only one of two processes that see an occurrence sends it."""
    number = 0 if newest is None else int(newest.occurrence_id.rpartition(":")[2])
    return f"group:{group}:{number + 1}"
