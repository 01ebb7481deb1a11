"""The newest samples of all groups in a window, as columns, and which of the groups may have rebalanced since.

Owns the comparing by column; what is a rebalance the core says. Of ten thousand groups few change in a minute: looks,
which have an object for each partition, are made of those alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.group.events import REBALANCING, GroupLook
from assignor_core.lag.history import Flags, Ints
from streaming.views.group_looks import LOOK_COLUMNS, look_of
from streaming.views.lag_columns import starts_of

OWNERS = ("topic", "partition", "member_id")
"""What a look shows of each partition."""
LOOKS_AT_A_TIME = 500
"""Groups whose rows are objects together, each of some kilobytes."""
_NONE = np.zeros(0, dtype=np.int64)
_NO_NUMBER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class GroupSamples:
    """Groups as they were last seen. `rows` have `LOOK_COLUMNS`, texts as dictionaries, those of a group together."""

    rows: pa.Table
    groups: pa.Array
    """Names, each once."""
    starts: Ints
    """Place of the first row of each group; the others follow it, by topic and partition."""
    counts: Ints
    heads: Ints
    """Place of the row of each group that was read first: it has what is said of the group."""

    @classmethod
    def empty(cls) -> "GroupSamples":
        """Of no group."""
        return cls(pa.table({}), pa.array([], pa.string()), _NONE, _NONE, _NONE)

    @classmethod
    def of(cls, rows: pa.Table) -> "GroupSamples":
        """The groups of one window that show members or have none, by name: those of `GroupLook.is_blind` are left out.

        `rows` have `LOOK_COLUMNS` in any order, as `TableReader.encoded` reads them.
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
        sampled = rows.select(LOOK_COLUMNS).take(pa.array(order)).combine_chunks()
        names = _array(sampled, "group_id").take(pa.array(starts)).cast(pa.string())
        samples = cls(sampled, names, starts, counts, heads)
        return samples._only(~samples._are_blind())

    def changed_since(self, before: "GroupSamples") -> Iterator[tuple[str, GroupLook, GroupLook]]:
        """Name, look before and look of each group of both that may have rebalanced; no other one has."""
        found = pc.index_in(self.groups, value_set=before.groups)
        here = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        there = found.drop_null().to_numpy()
        changed = self._is_said_otherwise(here, before, there)
        alike = np.flatnonzero(self.counts[here] == before.counts[there])
        changed[np.setdiff1d(np.arange(len(here)), alike, assume_unique=True)] = True
        changed[alike] |= self._is_owned_otherwise(here[alike], before, there[alike])
        here, there = here[changed], there[changed]
        for start in range(0, len(here), LOOKS_AT_A_TIME):
            some = slice(start, start + LOOKS_AT_A_TIME)
            names = self.groups.take(pa.array(here[some])).to_pylist()
            yield from zip(names, before.looks(there[some]), self.looks(here[some]), strict=True)

    def and_unseen(self, before: "GroupSamples") -> "GroupSamples":
        """With those groups of `before` that are not here."""
        is_gone = pc.is_null(pc.index_in(before.groups, value_set=self.groups)).to_numpy(zero_copy_only=False)
        unseen = before._only(is_gone)
        if not len(unseen.groups):
            return self
        # Texts anew: names come and go, and a dictionary would keep them for good.
        rows = unseen.rows.take(pa.array(unseen._places(np.arange(len(unseen.groups)))))
        carried = pa.table({name: _texts_anew(rows[name]) for name in rows.column_names})
        starts = np.cumsum(unseen.counts) - unseen.counts
        moved = replace(unseen, rows=carried, starts=starts, heads=starts + unseen.heads - unseen.starts)
        if not len(self.groups):
            return moved
        offset = self.rows.num_rows
        return GroupSamples(
            pa.concat_tables([self.rows, carried.cast(self.rows.schema)]).unify_dictionaries().combine_chunks(),
            pa.concat_arrays([self.groups, moved.groups]),
            np.append(self.starts, moved.starts + offset),
            np.append(self.counts, moved.counts),
            np.append(self.heads, moved.heads + offset),
        )

    def seen_since(self, oldest_ms: int) -> "GroupSamples":
        """Without the groups whose newest sample is older."""
        if not len(self.groups):
            return self
        return self._only(self._said("last_event_time_ms", np.arange(len(self.groups))).to_numpy() >= oldest_ms)

    def looks(self, groups: Ints) -> Iterator[GroupLook]:
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
            yield look_of([of_group.pop(head), *of_group])

    def _only(self, wanted: Flags) -> "GroupSamples":
        if wanted.all():
            return self
        groups = self.groups.filter(pa.array(wanted))
        return GroupSamples(self.rows, groups, self.starts[wanted], self.counts[wanted], self.heads[wanted])

    def _are_blind(self) -> Flags:
        """Only of those groups that own nothing a look is made, without its partitions."""
        is_owned = _array(self.rows, "member_id").is_valid().to_numpy(zero_copy_only=False)
        blind = ~np.logical_or.reduceat(is_owned, self.starts)
        idle = np.flatnonzero(blind)
        states, members = (self._said(name, idle).to_pylist() for name in ("group_state", "group_members"))
        looks = (GroupLook(0, state, {}, member_count=count) for state, count in zip(states, members, strict=True))
        blind[idle] = [look.is_blind for look in looks]
        return blind

    def _is_said_otherwise(self, here: Ints, before: "GroupSamples", there: Ints) -> Flags:
        """Which of the groups at these places have another generation, or are in the middle of a rebalance."""
        if not len(here):
            return np.zeros(0, dtype=bool)
        generations = (samples._said("generation_id", places) for samples, places in ((self, here), (before, there)))
        now, then = (pc.fill_null(column.cast(pa.int64()), _NO_NUMBER).to_numpy() for column in generations)
        states = self._said("group_state", here).cast(pa.string())
        rebalancing = pc.is_in(states, value_set=pa.array(REBALANCING)).to_numpy(zero_copy_only=False)
        either: Flags = (now != then) | rebalancing
        return either

    def _is_owned_otherwise(self, here: Ints, before: "GroupSamples", there: Ints) -> Flags:
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
    """The place of each name in the order of names."""
    ranks = np.empty(len(names.dictionary), dtype=np.int64)
    ranks[pc.array_sort_indices(names.dictionary).to_numpy()] = np.arange(len(ranks))
    of_rows: Ints = ranks[names.indices.to_numpy()]
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
