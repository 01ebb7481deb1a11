"""Rates of logs that lose what is old (local retention of tiered storage, compaction) or are made again: what looks add
up to is what was written.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.collect.group_table import GroupTable
from streaming.collect.rates import RecordBytes, learned, replica_rates
from streaming.collect.sample import ClusterSample
from tests.collect.by_row import PartitionView, ReplicaRates, partition_table, rates_of, size_table

KEY = ("t", 0)
LOOK_MS = 10_000
Batch = tuple[int, int]
"""(Records, bytes of each)."""


@dataclass
class Log:
    """The log of one partition on broker 1; `local` are its segments on disk: (first offset, records, bytes)."""

    topic_id: str = "id"
    start: int = 0
    end: int = 0
    local: list[tuple[int, int, int]] = field(default_factory=list)
    written_bytes: int = 0

    def write(self, records: int, record_bytes: int) -> None:
        """One segment more."""
        self.local.append((self.end, records, records * record_bytes))
        self.end += records
        self.written_bytes += records * record_bytes

    def drop_local(self, segments: int) -> None:
        """Local retention: the log start stays, as remote storage has what is gone here."""
        self.local = self.local[segments:]

    def drop_everywhere(self, segments: int) -> None:
        """Retention, as without tiered storage."""
        self.drop_local(segments)
        self.start = self.local_start

    def compact(self) -> None:
        """All segments but the newest shrink to a tenth; their offsets stay."""
        self.local = [(first, records, size // 10) for first, records, size in self.local[:-1]] + self.local[-1:]

    @property
    def local_start(self) -> int:
        return self.local[0][0] if self.local else self.end

    def look(self, time_ms: int) -> ClusterSample:
        view = PartitionView(self.topic_id, 1, (1,), frozenset(), self.start, self.end, self.local_start)
        size = sum(size for _, _, size in self.local)
        return ClusterSample(
            time_ms, {1: None}, partition_table({KEY: view}), size_table({(1, KEY): size}), {}, {}, GroupTable({})
        )


@dataclass
class Watch:
    """What a collector makes of looks at a log."""

    log: Log
    before: ClusterSample = field(init=False)
    known: RecordBytes | None = None
    measured_bytes: float = 0.0
    unknown: int = 0

    def __post_init__(self) -> None:
        self.before = self.log.look(0)

    def look(self) -> ReplicaRates:
        after = self.log.look(self.before.time_ms + LOOK_MS)
        self.known = learned(self.known, self.before, after)
        rates = rates_of(replica_rates(self.before, after, known=self.known))[(1, KEY)]
        self.before = after
        self.measured_bytes += (rates.bytes_in or 0.0) * LOOK_MS / 1000
        self.unknown += rates.bytes_in is None
        return rates


def test_what_remote_storage_holds_does_not_make_records_smaller() -> None:
    log = Log()
    for _ in range(10):
        log.write(1_000, 100)
    log.drop_local(8)
    watch = Watch(log)
    log.write(1_000, 100)
    log.drop_local(2)
    assert watch.look().bytes_in == pytest.approx(10_000.0)


def test_records_that_are_written_now_count_and_not_the_mean_of_the_log() -> None:
    log = Log()
    for _ in range(5):
        log.write(1_000, 1_000)
    watch = Watch(log)
    log.write(1_000, 100)
    watch.look()  # only grew: records have 100 bytes by now
    log.write(1_000, 100)
    log.drop_everywhere(1)
    assert watch.look().bytes_in == pytest.approx(10_000.0)


def test_a_log_that_was_compacted_is_judged_by_offsets_and_by_what_records_had() -> None:
    log = Log()
    watch = Watch(log)
    for _ in range(3):
        log.write(1_000, 100)
        watch.look()
    log.compact()
    log.write(1_000, 100)
    assert watch.look().bytes_in == pytest.approx(10_000.0)
    # From now on it is known to be compacted, so that a look is right whose growth hides a compaction.
    log.local[-1] = (*log.local[-1][:2], log.local[-1][2] - 60_000)
    log.write(1_000, 100)
    assert watch.look().bytes_in == pytest.approx(10_000.0)


def test_a_log_with_gaps_that_is_new_to_the_collector_is_judged_by_growth() -> None:
    log = Log()
    for _ in range(5):
        log.write(1_000, 100)
    log.compact()
    watch = Watch(log)
    log.write(1_000, 100)
    assert watch.look().bytes_in == pytest.approx(10_000.0)


def test_records_of_a_compacted_log_may_become_smaller_and_larger() -> None:
    log = Log()
    watch = Watch(log)
    for _ in range(2):
        log.write(1_000, 100)
        watch.look()
    log.compact()
    watch.look()
    for size in (40, 400):
        for _ in range(4):
            log.write(1_000, size)
            rates = watch.look()
        assert rates.bytes_in == pytest.approx(size * 100.0)


def test_a_segment_that_goes_between_the_reading_of_offsets_and_of_sizes_is_no_slower_producer() -> None:
    log = Log()
    watch = Watch(log)
    for _ in range(4):
        log.write(1_000, 100)
        watch.look()
    log.drop_local(1)
    watch.look()
    log.local[0] = (log.local[0][0], 1_000, 40_000)  # the size misses some of what is still there by its offsets
    log.write(1_000, 100)
    assert watch.look().bytes_in == pytest.approx(10_000.0)
    log.drop_local(1)
    log.write(1_000, 100)
    assert watch.look().bytes_in == pytest.approx(10_000.0)


def test_a_topic_made_again_is_unknown_once_and_knows_nothing_of_the_old_one() -> None:
    log = Log()
    watch = Watch(log)
    for _ in range(3):
        log.write(1_000, 1_000)
        watch.look()
    watch.log = log = Log("other")
    log.write(1_000, 100)
    assert watch.look().bytes_in is None
    log.write(1_000, 100)
    log.drop_local(1)
    assert watch.look().bytes_in == pytest.approx(10_000.0)
    assert watch.unknown == 1


def test_remote_storage_is_shown_apart_from_the_disk_and_only_where_it_holds_something() -> None:
    log = Log()
    for _ in range(4):
        log.write(1_000, 100)
    watch = Watch(log)
    rates = watch.look()
    assert (rates.size_bytes, rates.remote_records, rates.remote_size_bytes) == (400_000, None, None)
    log.drop_local(3)
    rates = watch.look()
    assert (rates.size_bytes, rates.remote_records, rates.remote_size_bytes) == (100_000, 3_000, 300_000)
    log.drop_local(1)  # nothing local is left to know the size of a record by
    assert (watch.look().remote_records, watch.look().remote_size_bytes) == (4_000, None)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),  # segments written
        st.sampled_from(["nothing", "nothing", "local", "everywhere", "made again"]),
        st.integers(1, 3),
    ),
    min_size=2,
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(1, 2_000))
def test_of_records_of_one_size_all_that_was_written_is_measured(
    steps: list[tuple[int, str, int]], record_bytes: int
) -> None:
    log = Log()
    log.write(500, record_bytes)
    watch, expected = Watch(log), 0
    for written, what, segments in steps:
        if what == "made again":
            watch.log = log = Log(f"{log.topic_id}+")
        for _ in range(written):
            log.write(500, record_bytes)
        expected += 0 if what == "made again" else written * 500 * record_bytes
        kept = len(log.local) - 1  # Kafka keeps the active segment
        if what == "local":
            log.drop_local(min(segments, max(0, kept)))
        if what == "everywhere":
            log.drop_everywhere(min(segments, max(0, kept)))
        rates = watch.look()
        assert (rates.bytes_in is None) == (what == "made again")
        tiered = log.start < log.local_start
        assert rates.remote_records == (log.local_start - log.start if tiered else None)
    assert watch.measured_bytes == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=3, max_size=30), st.integers(10, 2_000))
def test_of_a_compacted_log_all_that_was_written_is_measured(steps: list[tuple[int, bool]], record_bytes: int) -> None:
    """As the cleaner does: it never runs in a look before it has been seen to make the log smaller."""
    log = Log()
    watch = Watch(log)
    log.write(500, record_bytes)
    watch.look()
    for written, compacted in steps:
        if compacted:
            log.compact()
            watch.look()
        for _ in range(written):
            log.write(500, record_bytes)
        watch.look()
    assert watch.measured_bytes == pytest.approx(log.written_bytes)
