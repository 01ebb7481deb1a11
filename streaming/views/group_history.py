"""Rebalances and membership of groups: of one from its own windows of `group_lag`, of all from `group_event`.

Owns which rows are read and how samples are compared by column; telling rebalances from samples is the core's. Windows
of all groups over hours would be millions of rows, and the pipeline has compared them as they closed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.group.events import (
    REBALANCING,
    Cause,
    GroupAdvice,
    GroupEvent,
    GroupSample,
    advice,
    group_events,
    identity,
)
from assignor_core.lag.history import Flags, Ints
from streaming.settings import Settings
from streaming.tables import TableReader, at_least, equal, of_cluster
from streaming.views.group_columns import ranks, starts_of
from streaming.views.group_memberships import GroupStanding, known_members, read_group_standings
from streaming.views.json_values import stored_texts

LOOK_BACK_MS = 6 * 3_600_000
WINDOWS_MAX = 720
"""Most windows that are read, however short the windows are."""
ROWS_MAX = 50_000
"""Most rows of one group that are read: a row takes a kilobyte."""
EVENTS_MAX = 100_000
"""Most rebalances of all groups that are shown; the newest are shown."""
_EVENT = (
    "group_id", "window_start", "after_ms", "until_ms", "cause", "group_state", "rebalances", "members",
    "members_in_json", "members_out_json", "partitions_moved", "partitions_unowned", "partitions_owned",
    "names_in_json", "names_out_json",
)  # fmt: skip
_CAUSES = {cause.value: cause for cause in Cause}
OWNERS = ("topic", "partition", "member_id")
"""Columns of a sample that each partition has."""
GROUPS_AT_A_TIME = 500
"""Most groups whose rows are made objects at a time; a group takes some kilobytes."""
_NONE = np.zeros(0, dtype=np.int64)
_NO_NUMBER = np.iinfo(np.int64).min
SAMPLE_COLUMNS = (
    "group_id", "topic", "partition", "member_id", "client_id", "group_instance_id", "group_state", "generation_id",
    "group_type", "group_members", "window_start", "last_event_time_ms",
)  # fmt: skip
"""Columns of `group_lag` that a sample is made of."""


@dataclass(frozen=True, slots=True)
class GroupPast:
    """One group over the windows read: its events, oldest first, what to do about them, and its newest sample."""

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
    rows = reader.rows("group_lag", columns=SAMPLE_COLUMNS, where=own & at_least("window_start", since))
    rows.sort(key=lambda row: row["window_start"])
    return _past(group_id, list(_samples(iter(rows)))) if rows else None


def _group_of(row: Mapping[str, Any]) -> str:
    return str(row["group_id"])


def _kept_past(standing: GroupStanding, rows: Sequence[Mapping[str, Any]]) -> GroupPast:
    """Returns what one group's rows of `group_event` show of its past; `rows` are oldest first."""
    events = tuple(map(_event, rows))
    advised = advice(events, standing.group_type)
    return GroupPast(standing.group, standing.state, standing.group_type, standing.members, advised, events)


def _last_seen(row: Mapping[str, Any]) -> GroupStanding:
    """A group that no newer window has, as its newest event left it."""
    state = row["group_state"]
    return GroupStanding(_group_of(row), state, None, known_members(state, None, row["members"]))


def _event(row: Mapping[str, Any]) -> GroupEvent:
    """A row of an earlier release has no names, which come from member ids then, and no count of owned partitions:
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


def _past(group: str, samples: list[GroupSample]) -> GroupPast:
    events, newest = group_events(samples), samples[-1]
    return GroupPast(
        group,
        newest.state,
        newest.group_type,
        known_members(newest.state, newest.member_count, len(newest.members)),
        advice(events, newest.group_type),
        tuple(events),
    )


def _samples(rows: Iterator[Mapping[str, Any]]) -> Iterator[GroupSample]:
    """Returns one sample of the group for each window."""
    for _, window in groupby(rows, key=lambda row: row["window_start"]):
        yield sample_of(list(window))


@dataclass(frozen=True, slots=True)
class NewestGroupSamples:
    """Newest sample of each group. `rows` have `SAMPLE_COLUMNS`, texts as dictionaries, group after group."""

    rows: pa.Table
    groups: pa.Array
    """Names of the groups, each once."""
    starts: Ints
    """Place of the first row of each group; the others follow it, by topic and partition."""
    counts: Ints
    heads: Ints
    """Place of the row of each group that was read first: it has what is said of the group."""

    @classmethod
    def empty(cls) -> "NewestGroupSamples":
        """Returns the samples of no group."""
        return cls(pa.table({}), pa.array([], pa.string()), _NONE, _NONE, _NONE)

    @classmethod
    def of(cls, rows: pa.Table) -> "NewestGroupSamples":
        """The groups of one window that show members or have none, by name: those of `GroupSample.is_blind` are left
        out.

        `rows` have `SAMPLE_COLUMNS` in any order, as `TableReader.encoded` reads them.
        """
        if not rows.num_rows:
            return cls.empty()
        group, at_ms = _ranks(_array(rows, "group_id")), _array(rows, "last_event_time_ms").to_numpy()
        order = np.lexsort((_array(rows, "partition").to_numpy(), _ranks(_array(rows, "topic")), group))
        starts = starts_of(group[order])
        newest_ms = np.repeat(np.maximum.reduceat(at_ms[order], starts), _counts(starts, len(order)))
        order = order[at_ms[order] == newest_ms]
        starts = starts_of(group[order])
        counts = _counts(starts, len(order))
        heads = np.flatnonzero(order == np.repeat(np.minimum.reduceat(order, starts), counts))
        sampled = rows.select(SAMPLE_COLUMNS).take(pa.array(order)).combine_chunks()
        names = _array(sampled, "group_id").take(pa.array(starts)).cast(pa.string())
        samples = cls(sampled, names, starts, counts, heads)
        return samples._only(~samples._are_blind())

    def changed_since(self, before: "NewestGroupSamples") -> Iterator[tuple[str, GroupSample, GroupSample]]:
        """Name, sample before and sample of each group of both that may have rebalanced; no other one has."""
        found = pc.index_in(self.groups, value_set=before.groups)
        here = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        there = found.drop_null().to_numpy()
        changed = self._is_said_otherwise(here, before, there)
        alike = np.flatnonzero(self.counts[here] == before.counts[there])
        changed[np.setdiff1d(np.arange(len(here)), alike, assume_unique=True)] = True
        changed[alike] |= self._is_owned_otherwise(here[alike], before, there[alike])
        here, there = here[changed], there[changed]
        for start in range(0, len(here), GROUPS_AT_A_TIME):
            some = slice(start, start + GROUPS_AT_A_TIME)
            names = self.groups.take(pa.array(here[some])).to_pylist()
            yield from zip(names, before.samples(there[some]), self.samples(here[some]), strict=True)

    def and_unseen(self, before: "NewestGroupSamples") -> "NewestGroupSamples":
        """Returns these samples with the samples of those groups of `before` that are not here."""
        is_gone = pc.is_null(pc.index_in(before.groups, value_set=self.groups)).to_numpy(zero_copy_only=False)
        unseen = before._only(is_gone)
        if not len(unseen.groups):
            return self
        # Texts without the old dictionary: names come and go, and a dictionary would keep them for good.
        rows = unseen.rows.take(pa.array(unseen._places(np.arange(len(unseen.groups)))))
        carried = pa.table({name: _texts_anew(rows[name]) for name in rows.column_names})
        starts = np.cumsum(unseen.counts) - unseen.counts
        moved = replace(unseen, rows=carried, starts=starts, heads=starts + unseen.heads - unseen.starts)
        if not len(self.groups):
            return moved
        offset = self.rows.num_rows
        return NewestGroupSamples(
            pa.concat_tables([self.rows, carried.cast(self.rows.schema)]).unify_dictionaries().combine_chunks(),
            pa.concat_arrays([self.groups, moved.groups]),
            np.append(self.starts, moved.starts + offset),
            np.append(self.counts, moved.counts),
            np.append(self.heads, moved.heads + offset),
        )

    def seen_since(self, oldest_ms: int) -> "NewestGroupSamples":
        """Returns these samples without groups whose newest sample is older than `oldest_ms`."""
        if not len(self.groups):
            return self
        return self._only(self._said("last_event_time_ms", np.arange(len(self.groups))).to_numpy() >= oldest_ms)

    def samples(self, groups: Ints) -> Iterator[GroupSample]:
        """The groups at these places, in that order."""
        if not len(groups):
            return
        taken = self.rows.take(pa.array(self._places(groups)))
        # A dictionary would look up each text of each row by itself.
        texts = {name: pa.string() for name in taken.column_names if pa.types.is_dictionary(taken[name].type)}
        columns = {name: taken[name].cast(texts.get(name, taken[name].type)) for name in taken.column_names}
        rows = iter(pa.table(columns).to_pylist())
        for count, head in zip(self.counts[groups], self.heads[groups] - self.starts[groups], strict=True):
            of_group = list(islice(rows, count))
            yield sample_of([of_group.pop(head), *of_group])

    def _only(self, wanted: Flags) -> "NewestGroupSamples":
        if wanted.all():
            return self
        groups = self.groups.filter(pa.array(wanted))
        return NewestGroupSamples(self.rows, groups, self.starts[wanted], self.counts[wanted], self.heads[wanted])

    def _are_blind(self) -> Flags:
        """Only of those groups that own nothing a sample is made, without its partitions."""
        is_owned = _array(self.rows, "member_id").is_valid().to_numpy(zero_copy_only=False)
        blind = ~np.logical_or.reduceat(is_owned, self.starts)
        idle = np.flatnonzero(blind)
        states, members = (self._said(name, idle).to_pylist() for name in ("group_state", "group_members"))
        samples = (GroupSample(0, state, {}, member_count=count) for state, count in zip(states, members, strict=True))
        blind[idle] = [sample.is_blind for sample in samples]
        return blind

    def _is_said_otherwise(self, here: Ints, before: "NewestGroupSamples", there: Ints) -> Flags:
        """Which of the groups at these places have another generation, or are in the middle of a rebalance."""
        if not len(here):
            return np.zeros(0, dtype=bool)
        generations = (samples._said("generation_id", places) for samples, places in ((self, here), (before, there)))
        now, then = (pc.fill_null(column.cast(pa.int64()), _NO_NUMBER).to_numpy() for column in generations)
        states = self._said("group_state", here).cast(pa.string())
        rebalancing = pc.is_in(states, value_set=pa.array(REBALANCING)).to_numpy(zero_copy_only=False)
        either: Flags = (now != then) | rebalancing
        return either

    def _is_owned_otherwise(self, here: Ints, before: "NewestGroupSamples", there: Ints) -> Flags:
        """Which of the groups, with as many partitions at either time, have others or other owners."""
        if not len(here):
            return np.zeros(0, dtype=bool)
        rows, rows_before = self._places(here), before._places(there)
        differ = np.zeros(len(rows), dtype=bool)
        for name in OWNERS:
            now, then = _comparable(_array(self.rows, name), _array(before.rows, name))
            differ |= now[rows] != then[rows_before]
        counts = self.counts[here]
        flags: Flags = np.logical_or.reduceat(differ, np.cumsum(counts) - counts)
        return flags

    def _said(self, name: str, places: Ints) -> pa.Array:
        """A column that all rows of a sample have in common, of the groups at these places."""
        return _array(self.rows, name).take(pa.array(self.heads[places]))

    def _places(self, groups: Ints) -> Ints:
        """Places of all rows of these groups, one group after the other."""
        counts = self.counts[groups]
        ends = np.cumsum(counts)
        places: Ints = np.arange(ends[-1]) + np.repeat(self.starts[groups] - (ends - counts), counts)
        return places


def _array(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _counts(starts: Ints, rows: int) -> Ints:
    return np.diff(starts, append=rows)


def _ranks(names: pa.DictionaryArray) -> Ints:
    """The place of each row's name in the order of names."""
    of_rows: Ints = ranks(names.dictionary)[names.indices.to_numpy()]
    return of_rows


def _comparable(one: pa.Array, other: pa.Array) -> tuple[Ints, Ints]:
    """Numbers that are equal where the values are, or both are null."""
    if not pa.types.is_dictionary(one.type):
        return one.to_numpy(), other.to_numpy()
    # A name that the other window alone has is none of ours: -2.
    known = pc.fill_null(pc.index_in(other.dictionary, value_set=one.dictionary), -2).to_numpy()
    places = pc.fill_null(other.indices, -1).to_numpy()
    return pc.fill_null(one.indices, -1).to_numpy(), np.append(known, -1)[places]


def _texts_anew(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(column.type) else column


def sample_of(rows: Sequence[Mapping[str, Any]]) -> GroupSample:
    """The sample of one group's rows of one window, which have `SAMPLE_COLUMNS`."""
    at_ms = max(row["last_event_time_ms"] for row in rows)
    sample = [row for row in rows if row["last_event_time_ms"] == at_ms]
    newest = sample[0]
    names = {row["member_id"]: row["group_instance_id"] or row["client_id"] for row in sample}
    return GroupSample(
        at_ms,
        newest["group_state"],
        {(row["topic"], row["partition"]): row["member_id"] for row in sample},
        newest["generation_id"],
        newest["group_type"],
        {member_id: name for member_id, name in names.items() if member_id is not None and name},
        newest["group_members"],
    )
