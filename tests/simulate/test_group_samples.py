"""Rebalances by column are those that comparing row by row shows, on windows made at random."""

import random
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from assignor_core.group.events import GroupEvent, GroupSample, group_events
from streaming import tables
from streaming.contract import GROUP_LAG
from streaming.tables.definitions import row_schema
from streaming.tables.reader import with_texts_once
from streaming.views.group_history import SAMPLE_COLUMNS, NewestGroupSamples, sample_of
from tests.simulate.group_windows import START_MS, WINDOW_MS, member

GROUPS = ("a", "b", "c", "d-é", "E", "f")
LOOK_BACK_MS = 3 * WINDOW_MS
STATES = ("Stable",) * 6 + (
    "Empty",
    "Dead",
    "PreparingRebalance",
    "CompletingRebalance",
    "Reconciling",
    "Unknown",
    None,
)
Row = dict[str, Any]


def encoded(rows: list[Row]) -> pa.Table:
    """As `TableReader.encoded` has them."""
    schema = row_schema(GROUP_LAG)
    plain = pa.schema([schema.field(name) for name in SAMPLE_COLUMNS])
    return pa.Table.from_pylist(rows, schema=plain).cast(with_texts_once(plain)).unify_dictionaries().combine_chunks()


def row_by_row(looks: dict[str, GroupSample], rows: list[Row], start_ms: int) -> list[tuple[str, GroupEvent]]:
    """Events of one window; `looks` becomes what was seen in it."""
    for group in [group for group, look in looks.items() if look.at_ms < start_ms - LOOK_BACK_MS]:
        del looks[group]
    events = []
    for group, listed in groupby(sorted(rows, key=lambda row: row["group_id"]), key=lambda row: row["group_id"]):
        look = sample_of(list(listed))
        if not look.is_blind:
            before, looks[group] = looks.get(group), look
            events += [(group, event) for event in (group_events([before, look]) if before else ())]
    return events


class Fleet:
    """Groups that change at random from window to window, or do not."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._owners: dict[str, dict[tuple[str, int], str | None]] = {group: {} for group in GROUPS}
        self._said: dict[str, Row] = {}

    def window(self, number: int) -> list[Row]:
        """Rows in any order; of some partitions the newest sample is older."""
        rows = [row for group in GROUPS if self._random.random() < 0.8 for row in self._rows(group, number)]
        self._random.shuffle(rows)
        return rows

    def _rows(self, group: str, number: int) -> list[Row]:
        if self._random.random() < 0.5 or group not in self._said:
            self._change(group)
        start_ms, older = START_MS + number * WINDOW_MS, self._random.random() < 0.3
        newest_ms = start_ms + self._random.choice((30_000, 40_000))
        return [
            {
                "group_id": group, "topic": topic, "partition": partition, "member_id": owner,
                "client_id": owner and owner[:1],
                "group_instance_id": f"i-{owner[:1]}" if owner and group < "c" else None,
                **self._said[group], "window_start": tables.utc(start_ms),
                "last_event_time_ms": newest_ms - (10_000 if older and self._random.random() < 0.3 else 0),
            }
            for (topic, partition), owner in self._owners[group].items()
        ]  # fmt: skip

    def _change(self, group: str) -> None:
        chance = self._random
        owners = self._owners[group]
        for _ in range(chance.choice((0, 1, 1, 3))):
            owner = chance.choice((None, *(member(name, chance.randrange(2)) for name in "xyz")))
            owners[chance.choice("tu"), chance.randrange(3)] = owner
        if owners and chance.random() < 0.2:
            del owners[chance.choice(list(owners))]
        if chance.random() < 0.2:
            owners |= dict.fromkeys(owners, None)
        known = self._said.get(group, {}).get("generation_id")
        self._said[group] = {
            "group_state": chance.choice(STATES),
            "generation_id": chance.choice((None, 0, known, known, (known or 0) + 1)),
            "group_type": chance.choice((None, "classic", "consumer")),
            "group_members": chance.choice((None, None, 0, 2)),
        }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_events_are_those_of_a_comparison_row_by_row(seed: int) -> None:
    fleet, looks, seen, found = Fleet(seed), dict[str, GroupSample](), NewestGroupSamples.empty(), 0
    for number in range(15):
        rows, start_ms = fleet.window(number), START_MS + number * WINDOW_MS
        expected = row_by_row(looks, rows, start_ms)
        samples, before = NewestGroupSamples.of(encoded(rows)), seen.seen_since(start_ms - LOOK_BACK_MS)
        events = [(group, event) for group, *pair in samples.changed_since(before) for event in group_events(pair)]
        seen = samples.and_unseen(before)
        assert events == expected, number
        kept = dict(zip(seen.groups.to_pylist(), seen.samples(np.arange(len(seen.groups))), strict=True))
        assert kept == looks, number
        found += len(events)
    assert found > 5


def test_of_groups_that_stay_as_they_are_no_look_is_made() -> None:
    fleet = Fleet(1)
    rows = [row for row in fleet.window(0) if row["generation_id"] is not None or row["group_state"] == "Stable"]
    calm = [{**row, "group_state": "Stable"} for row in rows]
    samples = NewestGroupSamples.of(encoded(calm))
    assert len(samples.groups) > 1
    assert list(NewestGroupSamples.of(encoded(calm[::-1])).changed_since(samples)) == []


def test_names_of_groups_that_are_gone_are_not_kept_in_dictionaries() -> None:
    def window(number: int, *groups: str) -> NewestGroupSamples:
        rows = [
            {"group_id": group, "topic": "t", "partition": 0, "member_id": member(group, number),
             "group_state": "Stable", "window_start": tables.utc(START_MS),
             "last_event_time_ms": START_MS + number * WINDOW_MS}
            for group in groups
        ]  # fmt: skip
        return NewestGroupSamples.of(encoded(rows))

    seen = window(0, "gone", "stays")
    for number in range(1, 6):
        seen = window(number, f"only-{number}", "stays").and_unseen(
            seen.seen_since(START_MS + (number - 1) * WINDOW_MS)
        )
    dictionary = seen.rows["member_id"].combine_chunks().dictionary.to_pylist()
    assert sorted(seen.groups.to_pylist()) == ["only-4", "only-5", "stays"]
    assert len(dictionary) <= 4
