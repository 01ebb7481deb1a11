"""A run as bars: who read which partition from when to when, and when nobody did.

Reads the trace; draws nothing. A pause stands in the row of the member that read the partition last, so the hatched
time of a picture is the idle time of the figures.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.consumer_protocol.messages import ConsumerGroupState
from assignor_core.group.simulation import Run
from assignor_core.group.states import GroupState
from assignor_core.group.trace import Entry, What

AT_REST = (GroupState.STABLE, GroupState.EMPTY, ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)


@dataclass(frozen=True, slots=True)
class Bar:
    """A partition in a member's row. `slot`: its place within the row. Idle bars are pauses."""

    member: str
    slot: int
    partition: TopicPartition
    start_ms: int
    end_ms: int
    idle: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """`first_reader` colours partitions: the member that read each first. `rebalancing`: when the group wasn't stable.

    `down`: member, from, to; `failed`: member, when, Kafka's error.
    """

    members: tuple[str, ...]
    bars: tuple[Bar, ...]
    first_reader: dict[TopicPartition, str]
    rebalancing: tuple[tuple[int, int], ...]
    down: tuple[tuple[str, int, int], ...]
    failed: tuple[tuple[str, int, str], ...]

    @property
    def slots(self) -> int:
        """Largest number of partitions that any row shows at a time."""
        return 1 + max((bar.slot for bar in self.bars), default=0)


def timeline_of(run: Run, end_ms: int, from_ms: int = 0) -> Timeline:
    """The bars of a run from `from_ms` on, from its trace; what is open at its end goes on until `end_ms`."""
    rows = _Rows()
    shown = bisect_left(run.trace, from_ms, key=lambda entry: entry.at_ms)
    for entry in run.trace[:shown]:
        rows.take(entry)
    rows.begin_anew(from_ms)
    for entry in run.trace[shown:]:
        rows.take(entry)
    rows.end(end_ms)
    return Timeline(
        members=tuple(rows.members),
        bars=tuple(sorted(rows.bars, key=lambda bar: (bar.start_ms, bar.member, bar.slot))),
        first_reader=rows.first_reader,
        rebalancing=tuple(_rebalancing(run.trace, end_ms)),
        down=tuple(rows.down),
        failed=tuple((entry.who, entry.at_ms, entry.detail) for entry in run.trace if entry.what is What.FAILED),
    )


@dataclass(slots=True)
class _Rows:
    """Bars under way and bars done."""

    members: dict[str, None] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    first_reader: dict[TopicPartition, str] = field(default_factory=dict)
    down: list[tuple[str, int, int]] = field(default_factory=list)
    _open: dict[TopicPartition, tuple[str, int, int, bool]] = field(default_factory=dict)
    _owned: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    _used: dict[str, set[int]] = field(default_factory=dict)
    _down_since: dict[str, int] = field(default_factory=dict)
    _out: set[str] = field(default_factory=set)

    def take(self, entry: Entry) -> None:
        """Let one entry of the trace change the bars."""
        name, now_ms = entry.who, entry.at_ms
        if entry.what is What.STARTED:
            self.members.setdefault(name)
            self._up(name, now_ms)
        elif entry.what is What.JOINS:
            self._out.discard(name)
        elif entry.what is What.ASSIGNED and name not in self._out:
            self._owned[name] = (*self._owned.get(name, ()), *entry.partitions)
            self._read(name, now_ms, entry.partitions)
        elif entry.what in (What.REVOKED, What.LOST):
            self._owned[name] = tuple(tp for tp in self._owned.get(name, ()) if tp not in entry.partitions)
            self._idle(name, now_ms, entry.partitions)
        elif entry.what is What.RESUMED:
            self._read(name, now_ms, () if name in self._out else self._owned.get(name, ()))
        elif entry.what in (What.PAUSED, What.PUT_OUT, What.FAILED):
            self._idle(name, now_ms, self._owned.get(name, ()))
            if entry.what is not What.PAUSED:
                self._out.add(name)
        elif entry.what in (What.STOPPED, What.CRASHED):
            self._idle(name, now_ms, self._owned.pop(name, ()))
            self._down_since[name] = now_ms

    def begin_anew(self, now_ms: int) -> None:
        """What was before is not shown: rows need no place for it, and colours are those of the readers of now."""
        self.bars.clear()
        self.first_reader.clear()
        self._used.clear()
        for tp, (name, _, start_ms, idle) in sorted(self._open.items()):
            used = self._used.setdefault(name, set())
            self._open[tp] = (name, len(used), max(start_ms, now_ms), idle)
            used.add(len(used))
            self.first_reader[tp] = name

    def end(self, now_ms: int) -> None:
        """Ends the timeline: nothing more happens."""
        for tp in list(self._open):
            self._close(tp, now_ms)
        for name in list(self._down_since):
            self._up(name, now_ms)

    def _up(self, name: str, now_ms: int) -> None:
        if name in self._down_since:
            self.down.append((name, self._down_since.pop(name), now_ms))

    def _read(self, name: str, now_ms: int, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self._close(tp, now_ms)
        used = self._used.setdefault(name, set())
        for tp in partitions:
            slot = next(number for number in range(len(used) + 1) if number not in used)
            used.add(slot)
            self._open[tp] = (name, slot, now_ms, False)
            self.first_reader.setdefault(tp, name)

    def _idle(self, name: str, now_ms: int, partitions: Sequence[TopicPartition]) -> None:
        """The bar goes on as a pause, in its place."""
        for tp in partitions:
            reader, slot, start_ms, idle = self._open.get(tp, ("", 0, 0, True))
            if reader == name and not idle:
                self.bars.append(Bar(name, slot, tp, start_ms, now_ms, idle=False))
                self._open[tp] = (name, slot, now_ms, True)

    def _close(self, tp: TopicPartition, now_ms: int) -> None:
        if tp in self._open:
            name, slot, start_ms, idle = self._open.pop(tp)
            self._used[name].discard(slot)
            if now_ms > start_ms:
                self.bars.append(Bar(name, slot, tp, start_ms, now_ms, idle))


def _rebalancing(trace: Sequence[Entry], end_ms: int) -> Iterator[tuple[int, int]]:
    since_ms: int | None = None
    for entry in trace:
        if entry.state is None:
            continue
        at_rest = entry.state in AT_REST
        if not at_rest and since_ms is None:
            since_ms = entry.at_ms
        elif at_rest and since_ms is not None:
            yield since_ms, entry.at_ms
            since_ms = None
    if since_ms is not None:
        yield since_ms, end_ms
