"""What a decision may ask for besides its observation, read from the tables and the cluster when it asks.

Reads `group_lag`, `partition_load` and log dirs only where they decide something: at each evaluation they would cost
more than all the rest of it. Lags at the first and at the last sample of some windows are read one window at a time: a
window of a large cluster has half a million rows, and a few numbers a partition are kept of all of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from assignor_core.deciding.observation import GivenUp, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.lag import LagStatus, PartitionVerdict, brokers_falling_behind
from assignor_core.lag.catching_up import LagSpan, catch_up_bytes_per_sec
from assignor_core.lag.history import Floats, Ints
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from streaming import tables
from streaming.cluster.ports import ClusterReader
from streaming.contract.records import PARTITION_MAX
from streaming.control.journal import Journal
from streaming.control.planning import propose_for
from streaming.control.windows import WindowTables, within
from streaming.settings import DAY_MS, PlannerSettings
from streaming.views.group_columns import OFFSETS, LagWindow, PartitionKeys, windows_of
from streaming.views.group_store import read_picture

TABLE, TIME = "group_lag", "window_start"


@dataclass(frozen=True, slots=True)
class TableEvidence:
    """Evidence for one decision by `policy` on `live`, the snapshot of `cluster` that its observation holds."""

    cluster: ClusterReader
    live: LiveCluster
    journal: Journal
    window_tables: WindowTables
    policy: DecisionPolicy
    planner: PlannerSettings
    now_ms: int

    def groups_behind(self, brokers: frozenset[int]) -> Mapping[int, str]:
        """Returns the brokers among `brokers` with groups that fall behind on them, with the groups in words."""
        leaders = {key: row.leader for key, row in self.live.partitions.items() if row.leader in brokers}
        if not leaders:
            return {}
        picture = read_picture(
            tables.TableReader(self.window_tables.root),
            self.window_tables.kafka_cluster,
            window_ms=self.window_tables.window_ms,
            where=tables.one_of("topic", sorted({topic for topic, _ in leaders})),
            verdicts_only=True,
            rules=self.window_tables.rules,
        )
        if picture is None or self.now_ms - picture.newest_event_ms > self.policy.trigger.stale_after_ms:
            return {}
        rows = _led(picture.partitions, leaders)
        return {broker: str(behind) for broker, behind in brokers_falling_behind(_verdicts(rows), leaders).items()}

    def catch_up_bytes_per_sec(self, windows: tuple[ClosedWindow, ...]) -> Mapping[int, float]:
        """Bytes/s that consumers read from each broker to catch up, mean over `windows`."""
        leaders = {key: partition.leader for key, partition in self.live.partitions.items()}
        reader = tables.TableReader(self.window_tables.root)
        lags = read_fallen_lags(reader, self.window_tables, windows[0].start_ms, windows[-1].start_ms)
        return catch_up_bytes_per_sec(lags, self._record_bytes(reader, windows), leaders)

    def copied_bytes_of_day(self) -> int:
        """Bytes that plans carried out by mode `apply` have copied in the last 24 hours."""
        return self.journal.automatic_bytes(since_ms=self.now_ms - DAY_MS, now_ms=self.now_ms)

    def kept_plan(self, plan_id: str) -> KeptPlan | None:
        """The plan with this id; None where the tables hold none, or one that can't be read as a plan."""
        return self.journal.readable_plan(plan_id)

    def given_up(self) -> GivenUp:
        """Executions of mode `apply` that were given up since one was done."""
        return self.journal.given_up(now_ms=self.now_ms)

    def propose(self, request: PlanRequest) -> ProposedPlan:
        """A plan for the cluster that was observed; raises NothingToPlanOn."""
        return propose_for(request, self.live, self.cluster, self.window_tables, self.planner, now_ms=self.now_ms)

    def _record_bytes(self, reader: tables.TableReader, windows: tuple[ClosedWindow, ...]) -> dict[str, float]:
        """Mean bytes of a record by topic, where bytes and records are known."""
        columns = ["topic", "bytes_in_per_sec", "messages_in_per_sec"]
        where = within(self.window_tables, windows) & tables.equal("role", "leader")
        rows = reader.encoded("partition_load", columns=columns, where=where)
        sums: pa.Table = rows.drop_null().group_by("topic").aggregate([(name, "sum") for name in columns[1:]])
        return {
            row["topic"]: row["bytes_in_per_sec_sum"] / row["messages_in_per_sec_sum"]
            for row in sums.to_pylist()
            if row["messages_in_per_sec_sum"] > 0
        }


@tables.unfit_as_unavailable(TABLE)
def read_fallen_lags(
    reader: tables.TableReader, window_tables: WindowTables, first_ms: int, last_ms: int
) -> list[LagSpan]:
    """Partitions of groups whose lag has fallen in the windows that began from `first_ms` to `last_ms`, both included.

    From the first to the last sample whose lag is known. Raises TableUnavailable.
    """
    names, lags = PartitionKeys.empty(), _Lags.of(np.zeros(0, dtype=np.int64))
    for rows in _windows(reader, window_tables, first_ms, last_ms):
        for window, _ in windows_of(rows, names, [lags.keys]):
            lags = lags.after(window)
    pa.default_memory_pool().release_unused()
    # Most of 500,000 partitions do not catch up: only those that do become objects.
    return lags.fallen(names)


def _windows(
    reader: tables.TableReader, window_tables: WindowTables, first_ms: int, last_ms: int
) -> Iterator[pa.Table]:
    """The rows of one window after the other, oldest first; of several where `pipeline.window_ms` was shorter."""
    own = tables.of_cluster(window_tables.kafka_cluster) & tables.at_most("partition", PARTITION_MAX)
    for begin_ms in range(first_ms, last_ms + 1, window_tables.window_ms):
        end_ms = min(begin_ms + window_tables.window_ms, last_ms + 1)
        within = tables.at_least(TIME, tables.utc(begin_ms)) & tables.below(TIME, tables.utc(end_ms))
        yield reader.encoded(TABLE, columns=OFFSETS, where=own & within)


@dataclass(frozen=True, slots=True)
class _Lags:
    """Lag in records and time of two samples of each partition; NaN where no lag is known yet."""

    keys: Ints
    """Keys of the partitions, sorted."""
    first_records: Floats
    first_ms: Floats
    last_records: Floats
    last_ms: Floats

    @classmethod
    def of(cls, keys: Ints) -> "_Lags":
        """Returns the lags of partitions of which nothing is known."""
        return cls(keys, *(np.full(len(keys), np.nan) for _ in fields(cls)[1:]))

    def after(self, window: LagWindow) -> "_Lags":
        """Returns the lags with the samples of the next window."""
        lags = self if window.keys is self.keys else self._with_keys(window.keys)
        places = np.arange(len(lags.keys)) if window.keys is lags.keys else np.searchsorted(lags.keys, window.keys)
        # Commit, log end and time are always those of one sample: a sample may lack the commit that the next one has.
        for time_ms, committed, log_end in zip(*window.points(slice(None)), strict=True):
            lags._take(places, np.maximum(log_end - committed, 0.0), time_ms)
        return lags

    def fallen(self, names: PartitionKeys) -> list[LagSpan]:
        """Returns the spans of the partitions whose lag has fallen."""
        fallen = np.flatnonzero(self.first_records > self.last_records)
        _, topics, partitions = names.texts(self.keys[fallen])
        columns = (self.first_records, self.last_records, self.last_ms - self.first_ms)
        values = (column[fallen].tolist() for column in columns)
        return [LagSpan(*row) for row in zip(topics.to_pylist(), partitions.to_pylist(), *values, strict=True)]

    def _with_keys(self, keys: Ints) -> "_Lags":
        """Itself if it has all of them."""
        union = np.union1d(self.keys, keys) if len(self.keys) else keys
        if len(union) == len(self.keys):
            return self
        wider, places = _Lags.of(union), np.searchsorted(union, self.keys)
        for field in fields(self)[1:]:
            getattr(wider, field.name)[places] = getattr(self, field.name)
        return wider

    def _take(self, places: Ints, records: Floats, time_ms: Floats) -> None:
        """A later sample of the partitions at these places."""
        known = ~np.isnan(records)
        places, records, time_ms = places[known], records[known], time_ms[known]
        self.last_records[places], self.last_ms[places] = records, time_ms
        new = np.isnan(self.first_records[places])
        self.first_records[places[new]], self.first_ms[places[new]] = records[new], time_ms[new]


COLUMNS = ["group_id", "topic", "partition", "status", "lag_records"]
BATCH_ROWS = 10_000


def _led(partitions: pa.Table, leaders: Mapping[PartitionKey, int]) -> pa.Table:
    """Rows of partitions that have a leader among `leaders`: of a topic these may be few."""
    topics, numbers = zip(*leaders, strict=True)
    led = pa.table({"topic": pa.array(topics, pa.string()), "partition": pa.array(numbers, pa.int32())})
    rows = partitions.select(COLUMNS)
    rows = rows.set_column(COLUMNS.index("topic"), "topic", rows["topic"].cast(pa.string()))
    return rows.join(led, ["topic", "partition"], join_type="left semi").combine_chunks()


def _verdicts(rows: pa.Table) -> Iterator[PartitionVerdict]:
    """One after the other: thousands of groups may read from a broker."""
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        for group, topic, partition, status, lag in zip(*(column.to_pylist() for column in batch), strict=True):
            yield PartitionVerdict(group, topic, partition, LagStatus(status), lag)
