"""Which replicas and groups are reported at a look: those whose figures have changed, and all as windows end. Pure.

A replica that shows the same figures as at the look before is held back. Its next record covers the whole time, so each
window has the same rates, the same time covered and the same newest figures as if every look had been reported
(`tests/collect/test_due.py` compares them). What was held back is reported before figures change and before a window
ends, at the time of the look that showed it.

Of groups a window keeps the first and the last look, so these two are reported of all; in between a group of which
nothing has changed, neither in itself nor in the logs that it reads, is held back whole.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streaming.collect.observation import Observation
from streaming.collect.partition_table import UNKNOWN, Ints, column_at
from streaming.collect.rates import ReplicaRateTable


@dataclass(frozen=True, slots=True)
class DueRates:
    """Rows of a table that are reported: their places, and the time before `time_ms` that each covers."""

    rates: ReplicaRateTable
    places: Ints
    time_ms: int
    interval_ms: Ints


@dataclass(frozen=True, slots=True)
class HeldRates:
    """Rates of a look, and how much time of each row is not reported yet; 0 where all is."""

    rates: ReplicaRateTable
    time_ms: int
    held_ms: Ints


@dataclass(frozen=True, slots=True)
class DueGroups:
    """Groups that are reported as a look has seen them."""

    seen: Observation
    names: Collection[str]


@dataclass(frozen=True, slots=True)
class HeldGroups:
    """A look, and the groups of it that are not reported."""

    seen: Observation
    names: frozenset[str]


def all_of(rates: ReplicaRateTable, time_ms: int, interval_ms: int) -> DueRates:
    """Every row of a look."""
    return DueRates(rates, np.arange(len(rates)), time_ms, np.full(len(rates), interval_ms))


def due_rates(
    held: HeldRates | None, rates: ReplicaRateTable, time_ms: int, interval_ms: int, *, window_ms: int, next_ms: int
) -> tuple[list[DueRates], HeldRates]:
    """(What is reported at the look at `time_ms`, in this order; what is held back after it).

    `interval_ms` is the time since the look of `held`; `next_ms` is when the next look is expected.
    """
    if held is None:
        return [all_of(rates, time_ms, interval_ms)], HeldRates(rates, time_ms, np.zeros(len(rates), np.int64))
    before = _places_before(held.rates, rates)
    same = _same_figures(held.rates, rates, before)
    if held.time_ms // window_ms != time_ms // window_ms:
        late = held.held_ms > 0  # the look came later than expected
        carried = np.zeros(len(rates), np.int64)
    else:
        late = held.held_ms > 0
        late[before[same]] = False
        carried = np.where(same, held.held_ms[np.maximum(before, 0)] if len(held.held_ms) else 0, 0)
    covered_ms = carried + interval_ms
    # A record weighs by two windows at most: a look that alone covers more than one is not added to others.
    is_last = time_ms // window_ms != next_ms // window_ms or interval_ms > window_ms
    reported = np.flatnonzero(~same | is_last)
    due = [DueRates(rates, reported, time_ms, covered_ms[reported])]
    if late.any():
        rows = np.flatnonzero(late)
        due.insert(0, DueRates(held.rates, rows, held.time_ms, held.held_ms[rows]))
    left = covered_ms.copy()
    left[reported] = 0
    return due, HeldRates(rates, time_ms, left)


def due_groups(
    held: HeldGroups | None, seen: Observation, *, window_ms: int, next_ms: int
) -> tuple[list[DueGroups], HeldGroups]:
    """(What is reported of groups at this look, in this order; what is held back after it)."""
    everything = DueGroups(seen, seen.groups)
    if held is None:
        return [everything], HeldGroups(seen, frozenset())
    is_first = held.seen.time_ms // window_ms != seen.time_ms // window_ms
    is_last = seen.time_ms // window_ms != next_ms // window_ms
    still = _unchanged_groups(held.seen, seen)
    # The last look that showed what a group no longer has; at the first of a window, as the last came late.
    late = set(held.names) if is_first else held.names - still
    due = [DueGroups(held.seen, late)] if late else []
    if is_first or is_last:
        return [*due, everything], HeldGroups(seen, frozenset())
    return [*due, DueGroups(seen, seen.groups.keys() - still)], HeldGroups(seen, still)


def _unchanged_groups(before: Observation, after: Observation) -> frozenset[str]:
    """Groups whose records would be the same but for the time."""
    groups = after.groups
    earlier = groups.rows.rows_in(before.groups.rows)
    row, row_before = after.partitions.rows_of(groups.names), before.partitions.rows_of(groups.names)
    changed = earlier < 0
    for name in ("start", "end"):
        changed |= column_at(getattr(after.partitions, name), row) != column_at(
            getattr(before.partitions, name), row_before
        )
    held_back = before.last_stable.items() ^ after.last_stable.items()
    if held_back:
        keys = {key for key, _ in held_back}
        changed |= np.fromiter((key in keys for key in groups.names.keys_of_rows()), bool, len(changed))
    policies = before.cleanup_policies.items() ^ after.cleanup_policies.items()
    if policies:
        is_of_them = np.isin(np.array(groups.names.topics), [topic for topic, _ in policies])
        changed |= is_of_them[groups.names.topic]
    moved = set(groups.group[changed].tolist())
    return frozenset(
        name
        for place, (name, view) in enumerate(groups.items())
        if place not in moved and before.groups.get(name) == view
    )


def _places_before(held: ReplicaRateTable, rates: ReplicaRateTable) -> Ints:
    """Returns the place of each replica in the rates of the look before; UNKNOWN where the replica is new."""
    rows = held.partitions.rows_of(rates.partitions.names)[rates.row] if len(rates) else rates.row
    return np.where(rows >= 0, held.place_of(np.maximum(rows, 0), rates.broker), UNKNOWN)


def _same_figures(
    held: ReplicaRateTable, rates: ReplicaRateTable, before: Ints
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether a record of each replica would have the same figures as at the look before."""
    if not len(held):
        return np.zeros(len(rates), bool)
    was = np.maximum(before, 0)
    same: npt.NDArray[np.bool_] = (before >= 0) & (held.leads[was] == rates.leads)
    for name in ("size_bytes", "remote_records", "remote_size_bytes", "out_of_sync"):
        same &= getattr(held, name)[was] == getattr(rates, name)
    for name in ("bytes_in", "bytes_out", "messages_in"):
        first, last = getattr(held, name)[was], getattr(rates, name)
        same &= (first == last) | (np.isnan(first) & np.isnan(last))
    return same
