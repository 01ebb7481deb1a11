"""Rebalances and membership of groups: of one from its own windows of `group_lag`, of all from `group_event`.

Owns which rows are read; telling rebalances from looks is the core's. Windows of all groups over hours would be
millions of rows, and the pipeline has compared them as they closed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

from assignor_core.group.events import Cause, GroupAdvice, GroupEvent, GroupLook, advice, group_events, identity
from streaming.settings import Settings
from streaming.tables import TableReader, at_least, equal, of_cluster
from streaming.views.group_looks import LOOK_COLUMNS, known_members, look_of
from streaming.views.group_standings import GroupStanding, read_group_standings
from streaming.views.stored_json import stored_texts

LOOK_BACK_MS = 6 * 3_600_000
WINDOWS_MAX = 720
"""Bounds what is read, however short the windows are."""
ROWS_MAX = 50_000
"""Rows that are read of one group: each takes a kilobyte."""
EVENTS_MAX = 100_000
"""Rebalances that are shown of all groups, the newest."""
_EVENT = (
    "group_id", "window_start", "after_ms", "until_ms", "cause", "group_state", "rebalances", "members",
    "members_in_json", "members_out_json", "partitions_moved", "partitions_unowned", "partitions_owned",
    "names_in_json", "names_out_json",
)  # fmt: skip
_CAUSES = {cause.value: cause for cause in Cause}


@dataclass(frozen=True, slots=True)
class GroupPast:
    """One group over the windows read: its events, oldest first, what to do about them, and its newest look."""

    group: str
    state: str | None
    group_type: str | None
    members: int | None
    """All members, or where only partitions were seen those that own some; None where they are unknown."""
    advice: GroupAdvice
    events: tuple[GroupEvent, ...]


def look_back_ms(window_ms: int) -> int:
    """Span before the newest window that is read."""
    return min(LOOK_BACK_MS, WINDOWS_MAX * window_ms)


def read_group_pasts(reader: TableReader, settings: Settings) -> list[GroupPast]:
    """Groups of the newest windows and those that have rebalanced since, most rebalances first; nothing where no
    window is. Events are those of windows that have closed. Raises TableUnavailable.
    """
    cluster, window_ms = settings.kafka.cluster_name, settings.pipeline.window_ms
    newest = reader.newest_of_cluster("group_lag", "window_start", cluster)
    if newest is None:
        return []
    standings = read_group_standings(reader, cluster, window_ms=window_ms)
    since = newest - timedelta(milliseconds=look_back_ms(settings.pipeline.window_ms))
    found = reader.arrow("group_event", columns=_EVENT, where=of_cluster(cluster) & at_least("window_start", since))
    newest_first = found.sort_by([("window_start", "descending")]).slice(0, EVENTS_MAX)
    rows = newest_first.sort_by([("group_id", "ascending"), ("window_start", "ascending")]).to_pylist()
    events = {group: list(listed) for group, listed in groupby(rows, key=_group_of)}
    pasts = [_kept_past(standing, events.pop(group, [])) for group, standing in standings.items()]
    pasts += [_kept_past(_last_seen(listed[-1]), listed) for listed in events.values()]
    return sorted(pasts, key=lambda past: (-past.advice.rebalances, past.group))


def read_group_past(reader: TableReader, settings: Settings, group_id: str, *, partitions: int) -> GroupPast | None:
    """One group, which has so many partitions; None where it is in no window. Raises TableUnavailable.

    Of a large group fewer windows are read: `ROWS_MAX` rows or so.
    """
    windows = max(2, ROWS_MAX // max(1, partitions))
    span_ms = min(look_back_ms(settings.pipeline.window_ms), windows * settings.pipeline.window_ms)
    own = of_cluster(settings.kafka.cluster_name) & equal("group_id", group_id)
    newest = reader.newest_of_cluster("group_lag", "window_start", settings.kafka.cluster_name)
    if newest is None:
        return None
    since = newest - timedelta(milliseconds=span_ms)
    rows = reader.rows("group_lag", columns=LOOK_COLUMNS, where=own & at_least("window_start", since))
    rows.sort(key=lambda row: row["window_start"])
    return _past(group_id, list(_looks(iter(rows)))) if rows else None


def _group_of(row: Mapping[str, Any]) -> str:
    return str(row["group_id"])


def _kept_past(standing: GroupStanding, rows: Sequence[Mapping[str, Any]]) -> GroupPast:
    """Of one group's rows of `group_event`, oldest first."""
    events = tuple(map(_event, rows))
    advised = advice(events, standing.group_type)
    return GroupPast(standing.group, standing.state, standing.group_type, standing.members, advised, events)


def _last_seen(row: Mapping[str, Any]) -> GroupStanding:
    """A group that no newer window has, as its newest event left it."""
    state = row["group_state"]
    return GroupStanding(_group_of(row), state, None, known_members(state, None, row["members"]))


def _event(row: Mapping[str, Any]) -> GroupEvent:
    """A row of an earlier release has no names, which are told from member ids then, and no count of owned partitions:
    with 0 in its place nothing is said about eager groups.
    """
    came, went = (tuple(stored_texts(row[f"members_{side}_json"])) for side in ("in", "out"))
    names_in, names_out = (
        tuple(sorted(set(map(identity, ids)))) if row[name] is None else tuple(stored_texts(row[name]))
        for ids, name in ((came, "names_in_json"), (went, "names_out_json"))
    )
    return GroupEvent(
        after_ms=row["after_ms"],
        until_ms=row["until_ms"],
        cause=_CAUSES.get(row["cause"], Cause.UNKNOWN),
        rebalances=row["rebalances"],
        members_in=came,
        members_out=went,
        names_in=names_in,
        names_out=names_out,
        restarted=tuple(sorted({*names_in} & {*names_out})),
        partitions_moved=row["partitions_moved"],
        partitions_unowned=row["partitions_unowned"],
        stopped_if_eager=row["partitions_owned"] or 0,
    )


def _past(group: str, looks: list[GroupLook]) -> GroupPast:
    events, newest = group_events(looks), looks[-1]
    return GroupPast(
        group,
        newest.state,
        newest.group_type,
        known_members(newest.state, newest.member_count, len(newest.members)),
        advice(events, newest.group_type),
        tuple(events),
    )


def _looks(rows: Iterator[Mapping[str, Any]]) -> Iterator[GroupLook]:
    """One look a window."""
    for _, window in groupby(rows, key=lambda row: row["window_start"]):
        yield look_of(list(window))
