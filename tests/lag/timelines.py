"""Groups as timelines: what each partition's log and commits do, second by second, sampled and kept as windows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from assignor_core.lag import LagStatus
from assignor_core.lag.diagnosis import GroupReading, LagFinding, diagnose
from streaming import tables
from streaming.contract import TABLES
from streaming.views.group_picture import COLUMNS, NO_RULES, LagPicture, LagRules, reason_of
from streaming.views.one_group import readings_of
from tests.lag.windows import judge

SAMPLE_S = 10
WINDOW_S = 60
WINDOW_MS = 1_000 * WINDOW_S
BEGAN_MS = 1_795_236_000_000
SCHEMA = pa.schema([tables.arrow_schema(TABLES["group_lag"]).field(name) for name in COLUMNS])

At = Callable[[int], int | None]
Named = Callable[[int], str | None]


def always(value: Any) -> Callable[[int], Any]:
    """The same at any time."""
    return lambda _second: value


def rate(per_sec: float, until_s: int = 10**9) -> Callable[[int], int]:
    """So many records a second, until a time."""
    return lambda second: int(per_sec * max(0, min(second, until_s)))


MEMBER: Named = always("m0")
NOTHING: At = always(0)
UNKNOWN: At = always(None)
STABLE: Named = always("Stable")


@dataclass(frozen=True, slots=True)
class Log:
    """One partition as a group reads it, as functions of the second; an offset of None is unknown, or not there."""

    end: At
    committed: At
    start: At = NOTHING
    member: Named = MEMBER
    topic: str = "t"
    stable: At = UNKNOWN


@dataclass(frozen=True, slots=True)
class Group:
    """Partitions of one group, numbered by topic, and its state. A partition whose log end is None is not there."""

    logs: Sequence[Log]
    state: Named = STABLE

    def rows(self, first_s: int, last_s: int) -> list[dict[str, Any]]:
        """The window that has its first and its newest sample at these times."""
        numbers: dict[str, int] = {}
        rows = []
        for log in self.logs:
            number = numbers[log.topic] = numbers.get(log.topic, -1) + 1
            if (end := log.end(last_s)) is None:
                continue
            before_s = last_s if log.end(first_s) is None else first_s
            committed, member = log.committed(last_s), log.member(last_s)
            rows.append({
                "window_start": tables.utc(BEGAN_MS + first_s // WINDOW_S * WINDOW_MS), "group_id": "g",
                "topic": log.topic, "partition": number, "committed_offset": committed, "log_end_offset": end,
                "lag_records": None if committed is None else max(0, end - committed),
                "log_start_offset": log.start(last_s),
                "committed_offset_first": log.committed(before_s), "log_end_offset_first": log.end(before_s),
                "first_event_time_ms": BEGAN_MS + before_s * 1000, "last_event_time_ms": BEGAN_MS + last_s * 1000,
                "member_id": member, "client_id": member and f"client-{member}", "group_state": self.state(last_s),
                "last_stable_offset": log.stable(last_s),
            })  # fmt: skip
        return rows


def picture(group: Group, until_s: int, from_s: int = 0, rules: LagRules = NO_RULES) -> LagPicture:
    """What is judged of the samples up to a time: the pipeline keeps the first and the newest of each window."""
    rows = []
    for start_s in range(from_s // WINDOW_S * WINDOW_S, until_s + 1, WINDOW_S):
        last_s = min(start_s + WINDOW_S - SAMPLE_S, until_s // SAMPLE_S * SAMPLE_S)
        rows += group.rows(max(start_s, from_s), last_s)
    judged = judge(pa.Table.from_pylist(rows, schema=SCHEMA), window_ms=WINDOW_MS, rules=rules)
    assert judged is not None
    return judged


@dataclass(frozen=True, slots=True)
class Seen:
    """One partition as it is shown."""

    status: LagStatus
    why: str
    row: Mapping[str, Any]


def seen(group: Group, until_s: int, from_s: int = 0, rules: LagRules = NO_RULES) -> list[Seen]:
    """All partitions of the group, in order."""
    rows = picture(group, until_s, from_s, rules).with_figures().to_pylist()
    return [Seen(LagStatus(row["status"]), reason_of(row), row) for row in rows]


def statuses(group: Group, times: Sequence[int], from_s: int = 0) -> dict[int, str]:
    """The worst verdict at each time."""
    return {until_s: max(one.status for one in seen(group, until_s, from_s)).name for until_s in times}


def causes(group: Group, until_s: int) -> tuple[LagFinding, ...]:
    """What the lag is put down to."""
    rows = picture(group, until_s).with_figures().to_pylist()
    rebalancing_s = max((row["rebalancing_ms"] or 0.0) / 1000 for row in rows)
    return diagnose(GroupReading("g", readings_of(rows, {}), rebalancing_seconds=rebalancing_s))
