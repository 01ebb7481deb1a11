"""What a rebalance cost: who stopped, which partitions nobody read and for how long. Owns the counting.

Its calls come in order of time, one for each thing that happens to partitions or the group. It knows no protocol.

A partition is read by a running member that the group counts as its owner, or it is idle. What a process goes on
reading after the group has put it out is counted apart, as overlap: its commits will be refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assignor_core.assignors.contract import TopicPartition


@dataclass(slots=True)
class Rebalance:
    """From the first sign to the moment when all members read what they shall. Durations in ms.

    `revoked` counts every time a partition was given up or lost; `moved` and `kept` compare the readers before and
    after. `idle_partition_ms` sums the pauses that ended in this rebalance, also where they began before it (a crash
    is noticed late); `lag_records` is what was written to those partitions meanwhile.
    """

    cause: str
    started_ms: int
    generation_id_before: int
    ended_ms: int | None = None
    generation_id: int = 0
    rounds: int = 0
    members_stopped: int = 0
    revoked: int = 0
    moved: int = 0
    kept: int = 0
    idle_partition_ms: int = 0
    idle_longest_ms: int = 0
    lag_records: float = 0.0

    @property
    def duration_ms(self) -> int | None:
        """Time to stable; None if the run ended before."""
        return None if self.ended_ms is None else self.ended_ms - self.started_ms


@dataclass(frozen=True, slots=True)
class RunTotals:
    """A whole run, from the time the group was first stable.

    `failed`: consumers that were refused for good; `unsettled`: 1 if a rebalance had not ended at the end.
    """

    rebalances: int
    rounds: int
    members_stopped: int
    revoked: int
    moved: int
    idle_partition_ms: int
    idle_longest_ms: int
    lag_records: float
    overlap_partition_ms: int
    failed: int
    unsettled: int


@dataclass(slots=True)
class _Idle:
    """Pauses of partitions added up."""

    partition_ms: int = 0
    longest_ms: int = 0
    lag_records: float = 0.0

    def add(self, now_ms: int, pauses: Iterable[tuple[int, float]], from_ms: int = 0) -> None:
        """Pauses that end now: since when, and the records/s of the partition; only what is after `from_ms` counts."""
        partition_ms, longest_ms, lag = self.partition_ms, self.longest_ms, self.lag_records
        for since_ms, records_per_sec in pauses:
            idle_ms = now_ms - (since_ms if since_ms > from_ms else from_ms)
            partition_ms += idle_ms
            lag += idle_ms * records_per_sec / 1000
            if idle_ms > longest_ms:
                longest_ms = idle_ms
        self.partition_ms, self.longest_ms, self.lag_records = partition_ms, longest_ms, lag


@dataclass(slots=True)
class Ledger:
    """Who reads what. Readers are processes; the same name after a restart is the same reader."""

    records_per_sec: Mapping[str, float]
    rebalances: list[Rebalance] = field(default_factory=list)
    reader: dict[TopicPartition, str] = field(default_factory=dict)
    failed: int = 0
    _idle_since: dict[TopicPartition, int] = field(default_factory=dict)
    _last_reader: dict[TopicPartition, str] = field(default_factory=dict)
    _readers_before: dict[TopicPartition, str] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    _current: Rebalance | None = None
    _current_idle: _Idle | None = None
    _measured_from_ms: int | None = None
    _idle: _Idle = field(default_factory=_Idle)
    _overlap_since: dict[str, tuple[int, int]] = field(default_factory=dict)
    _overlap_partition_ms: int = 0

    @property
    def rebalancing(self) -> bool:
        """Whether a rebalance is under way."""
        return self._current is not None

    def exists(self, now_ms: int, partitions: Iterable[TopicPartition]) -> None:
        """New partitions: idle until somebody reads them."""
        self._idle_since.update(dict.fromkeys(partitions, now_ms))

    def takes(self, now_ms: int, name: str, partitions: Sequence[TopicPartition]) -> None:
        """A member reads partitions from now on."""
        reader, last, since, rates = self.reader, self._last_reader, self._idle_since, self.records_per_sec
        pauses = []
        for tp in partitions:
            assert tp not in reader, f"{tp} is read by {reader[tp]} and given to {name}"
            reader[tp] = last[tp] = name
            pauses.append((since.pop(tp), rates[tp[0]]))
        from_ms = self._measured_from_ms
        if from_ms is not None:
            self._idle.add(now_ms, pauses, from_ms)
        if self._current_idle is not None:
            self._current_idle.add(now_ms, pauses)

    def stops(self, now_ms: int, partitions: Sequence[TopicPartition]) -> None:
        """A member has stopped reading (paused, ended, put out): nothing was revoked."""
        reader, since = self.reader, self._idle_since
        for tp in partitions:
            if reader.pop(tp, None) is not None:
                since[tp] = now_ms

    def gives_up(self, now_ms: int, name: str, partitions: Sequence[TopicPartition]) -> None:
        """A member's partitions were revoked or lost."""
        reader, since = self.reader, self._idle_since
        for tp in partitions:
            if reader.get(tp) == name:
                del reader[tp]
                since[tp] = now_ms
        if partitions and self._current is not None:
            self._current.revoked += len(partitions)
            self._stopped.add(name)

    def overlap_begins(self, now_ms: int, client: str, partitions: int) -> None:
        """A process goes on reading so many partitions that are not its own any more."""
        if partitions:
            self._overlap_since[client] = (now_ms, partitions)

    def overlap_ends(self, now_ms: int, client: str) -> None:
        """Ends the overlap of `client`: its process has noticed the loss of the partitions, or has ended."""
        since_ms, partitions = self._overlap_since.pop(client, (now_ms, 0))
        self._overlap_partition_ms += (now_ms - since_ms) * partitions

    def rebalance_begins(self, now_ms: int, cause: str, generation_id: int) -> None:
        """The first sign of a rebalance."""
        self._current, self._current_idle = Rebalance(cause, now_ms, generation_id), _Idle()
        self.rebalances.append(self._current)
        self._readers_before = dict(self._last_reader)
        self._stopped = set()

    def round_begins(self) -> None:
        """The group has a new generation."""
        if self._current is not None:
            self._current.rounds += 1

    def rebalance_ends(self, now_ms: int, generation_id: int) -> None:
        """All members read what they shall."""
        current, idle = self._current, self._current_idle
        assert current is not None, "no rebalance is under way"
        assert idle is not None, "it has its pauses"
        before = self._readers_before
        current.ended_ms, current.generation_id = now_ms, generation_id
        current.members_stopped = len(self._stopped)
        current.kept = sum(before.get(tp) == name for tp, name in self.reader.items())
        current.moved = sum(tp in before and before[tp] != name for tp, name in self.reader.items())
        current.idle_partition_ms, current.idle_longest_ms = idle.partition_ms, idle.longest_ms
        current.lag_records = idle.lag_records
        self._current = self._current_idle = None
        if self._measured_from_ms is None:
            self._measured_from_ms = now_ms

    def totals(self, end_ms: int) -> RunTotals:
        """The whole run up to `end_ms`; pauses that have not ended count until then."""
        idle = self._idle
        if self._measured_from_ms is not None:
            rates = self.records_per_sec
            pauses = [(since_ms, rates[topic]) for (topic, _), since_ms in self._idle_since.items()]
            idle.add(end_ms, pauses, self._measured_from_ms)
        for client in list(self._overlap_since):
            self.overlap_ends(end_ms, client)
        measured = self.rebalances[1:]
        return RunTotals(
            rebalances=len(measured),
            rounds=sum(rebalance.rounds for rebalance in measured),
            members_stopped=sum(rebalance.members_stopped for rebalance in measured),
            revoked=sum(rebalance.revoked for rebalance in measured),
            moved=sum(rebalance.moved for rebalance in measured),
            idle_partition_ms=idle.partition_ms,
            idle_longest_ms=idle.longest_ms,
            lag_records=idle.lag_records,
            overlap_partition_ms=self._overlap_partition_ms,
            failed=self.failed,
            unsettled=int(self._current is not None),
        )
