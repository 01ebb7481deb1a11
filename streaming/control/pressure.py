"""What speaks against more copying right now: consumer groups that fall behind, and brokers that answer slowly.

`LagPressure` reads `group_lag`: once what was before the execution, then at each later read the newest windows alone.
Where nothing is known of a group, nothing is held back for it: the pipeline may be down, and the cluster's own health
is read besides. `LatencyPressure` reads the brokers' JMX endpoints (`collect.jmx_endpoints`) for Kafka's own p99 of
produce requests, waiting for followers included: what a producer with acks=all sees, less its network. A broker whose
endpoint is not given, or does not answer, holds nothing back. The core decides which lag is too much, and how slow is
too slow.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from assignor_core.execution.caution import LagBound, LatencyBound, brokers_too_slow, groups_falling_behind
from assignor_core.intervals import is_due
from assignor_core.live import LivePartition, PartitionKey
from assignor_core.wording import counted
from streaming import tables
from streaming.cluster.metric_reads import sample_value, scrape
from streaming.control.windows import WindowTables
from streaming.errors import UsageProblem
from streaming.views.group_columns import KEY
from streaming.views.group_picture import CURRENT_WINDOWS, POPULATED
from streaming.views.spans import stale_after_ms

READ_INTERVAL_MS = 5_000
LIMIT_S = 2.0
"""How long one endpoint may take for its whole answer: the execution waits for all of them."""
SERIES = 'kafka_network_requestmetrics_totaltimems_p99{request="Produce"'
"""Name and first label of the series with the p99 latency of produce requests, as `deploy/jmx/kafka-broker.yaml` names
it.
"""


class LatencyPressure:
    """Reads again at most every few seconds."""

    def __init__(self, endpoints: Mapping[int, str], bound: LatencyBound) -> None:
        """`endpoints`: URL of `/metrics` by broker id."""
        self._endpoints = endpoints
        self._bound = bound
        self._read_ms: int | None = None
        self._before_ms: float | None = None
        self._reason: str | None = None

    def highest_ms(self) -> float | None:
        """The p99 of the slowest broker, ms; None where no broker shows it."""
        return max(self._latencies().values(), default=None)

    def reason(self, before_ms: float | None, *, now_ms: int) -> str | None:
        """Why to hold back, naming the slowest broker; None if nothing does. `before_ms` is `highest_ms` then."""
        if before_ms is None:
            return None
        if before_ms != self._before_ms or is_due(self._read_ms, READ_INTERVAL_MS, now_ms):
            self._read_ms, self._before_ms = now_ms, before_ms
            slow = brokers_too_slow(before_ms, self._latencies(), self._bound)
            self._reason = _slowest_text(slow[0], before_ms) if slow else None
        return self._reason

    def _latencies(self) -> dict[int, float]:
        # The collector logs an endpoint that does not answer, at every sample.
        answers = scrape(self._endpoints, limit_s=LIMIT_S).answers
        latencies = {broker: _produce_p99_ms(answer) for broker, answer in sorted(answers.items())}
        return {broker: latency for broker, latency in latencies.items() if latency is not None}


def _slowest_text(slowest: tuple[int, float], before_ms: float) -> str:
    broker, latency_ms = slowest
    return f"broker {broker} answers producers in {latency_ms:,.0f} ms (p99), {before_ms:,.0f} ms at the start"


def _produce_p99_ms(exposition: str) -> float | None:
    line = next((line for line in exposition.splitlines() if line.startswith(SERIES)), None)
    return None if line is None else sample_value(line)


BASELINE_WINDOWS = 3
"""A group's lag at the start is its newest within so many windows before it."""
_COLUMNS = (*KEY, "lag_records", "committed_offset", "group_state", "window_start", "last_event_time_ms")


Partitions = Mapping[PartitionKey, LivePartition]
"""All that are known: a group may read any."""


@dataclass(frozen=True, slots=True)
class _GroupLag:
    """A group at its newest samples: lag and commits summed over its partitions."""

    lag_records: int
    committed: int | None
    populated: bool


class LagPressure:
    """Reads again at most every few seconds."""

    def __init__(self, window_tables: WindowTables, bound: LagBound, groups: str) -> None:
        """`groups` is the regular expression of those that count; raises UsageProblem."""
        self._tables = window_tables
        self._reader = tables.TableReader(window_tables.root)
        self._bound = bound
        try:
            self._groups = re.compile(groups)
        except re.error as error:
            raise UsageProblem(f"control.lag_groups: {groups!r} is no pattern: {error}") from None
        self._read_ms: int | None = None
        self._reason: str | None = None
        self._newest_of: tuple[int | None, int, int] | None = None
        self._newest: pa.Table | None = None
        self._baseline_of_ms: int | None = None
        self._baseline: Mapping[str, _GroupLag] = {}

    def reason(self, brokers: Collection[int], partitions: Partitions, *, started_ms: int, now_ms: int) -> str | None:
        """Why to hold back, naming the group that fell furthest behind since `started_ms`; None if nothing does.

        Counts groups that read from one of these brokers, have members, and have committed something since.
        """
        if started_ms != self._baseline_of_ms or is_due(self._read_ms, READ_INTERVAL_MS, now_ms):
            self._read_ms = now_ms
            self._reader.look_again()
            self._reason = self._read(brokers, partitions, started_ms, now_ms)
        return self._reason

    def _read(self, brokers: Collection[int], partitions: Partitions, started_ms: int, now_ms: int) -> str | None:
        if self._reader.version("group_lag") is None:
            return None
        before = self._lag_before(started_ms)
        newest = self._newest_after(started_ms, now_ms) if before else None
        if newest is None:
            return None
        now = {name: group for name, group in _by_group(newest).items() if not _has_stopped(before.get(name), group)}
        behind = groups_falling_behind(_lags(before), _lags(now), self._bound)
        readers = _readers(newest, [name for name, _, _ in behind], brokers, partitions)
        behind = tuple(row for row in behind if row[0] in readers)
        return _reason_text(behind) if behind else None

    def _lag_before(self, started_ms: int) -> Mapping[str, _GroupLag]:
        """Groups before `started_ms`: read once, or until there is something to be read."""
        if self._baseline_of_ms != started_ms or not self._baseline:
            since_ms = max(0, started_ms - BASELINE_WINDOWS * self._tables.window_ms)
            rows = self._rows(since_ms, tables.at_most("last_event_time_ms", started_ms))
            self._baseline_of_ms, self._baseline = started_ms, _by_group(rows)
        return self._baseline

    def _newest_after(self, started_ms: int, now_ms: int) -> pa.Table | None:
        """Returns each partition's newest sample of the newest windows after `started_ms`; None without any, and if the
        newest window is old.
        """
        newest = self._reader.newest_of_cluster("group_lag", "window_start", self._tables.kafka_cluster)
        if newest is None or now_ms - tables.to_ms(newest) > stale_after_ms(self._tables.window_ms):
            return None
        # A sampler's clock may be ahead.
        newest_ms = min(tables.to_ms(newest), now_ms)
        since_ms = max(0, newest_ms - CURRENT_WINDOWS * self._tables.window_ms)
        shown = (self._reader.version("group_lag"), since_ms, started_ms)
        if self._newest is None or shown != self._newest_of:
            self._newest = self._rows(since_ms, tables.above("last_event_time_ms", started_ms))
            self._newest_of = shown
        return self._newest

    def _rows(self, since_ms: int, where: tables.Condition) -> pa.Table:
        """The newest row of each partition whose lag is known, of groups that count, in windows from `since_ms` on."""
        where = (
            tables.of_cluster(self._tables.kafka_cluster)
            & tables.at_least("window_start", tables.utc(since_ms))
            & tables.is_known("lag_records")
            & where
        )
        rows = self._reader.arrow("group_lag", columns=_COLUMNS, where=where)
        counting = [name for name in pc.unique(rows["group_id"]).to_pylist() if self._groups.search(name)]
        rows = rows.filter(pc.is_in(rows["group_id"], pa.array(counting, pa.string()))).sort_by("window_start")
        # Nulls too: a state or a commit of another sample than the lag's would be taken for what is so now.
        of_newest = pc.ScalarAggregateOptions(skip_nulls=False)
        figures = [(name, "last", of_newest) for name in ("lag_records", "committed_offset", "group_state")]
        newest = rows.group_by(list(KEY), use_threads=False).aggregate(figures)  # the last needs an order: one thread
        return newest.rename_columns([name.removesuffix("_last") for name in newest.column_names])


def _by_group(newest: pa.Table) -> dict[str, _GroupLag]:
    """Groups from the newest row of each of their partitions; a state that isn't known counts as one with members."""
    populated = pc.or_kleene(pc.is_null(newest["group_state"]), pc.is_in(newest["group_state"], pa.array(POPULATED)))
    lags = tables.as_floats(newest["lag_records"])  # some may add up to more than 64 bits hold
    totals = (
        newest.set_column(newest.column_names.index("lag_records"), "lag_records", lags)
        .append_column("populated", populated)
        .group_by("group_id")
        .aggregate([("lag_records", "sum"), ("committed_offset", "sum"), ("populated", "any")])
    )
    return {
        row["group_id"]: _GroupLag(int(row["lag_records_sum"]), row["committed_offset_sum"], row["populated_any"])
        for row in totals.sort_by("group_id").to_pylist()
    }


def _has_stopped(before: _GroupLag | None, now: _GroupLag) -> bool:
    """Returns whether a group has stopped: nobody is there to read, or nothing was committed since. Such a lag grows
    whether anything is copied or not.
    """
    idle = before is not None and now.committed is not None and now.committed == before.committed
    return idle or not now.populated


def _readers(newest: pa.Table, groups: list[str], brokers: Collection[int], partitions: Partitions) -> set[str]:
    """Returns the groups among `groups` that read a partition which one of `brokers` leads."""
    rows = newest.filter(pc.is_in(newest["group_id"], pa.array(groups, pa.string()))).select(list(KEY))
    read = ((row["group_id"], partitions.get((row["topic"], row["partition"]))) for row in rows.to_pylist())
    return {group for group, partition in read if partition is not None and partition.leader in brokers}


def _lags(groups: Mapping[str, _GroupLag]) -> dict[str, int]:
    return {name: group.lag_records for name, group in groups.items()}


def _reason_text(behind: tuple[tuple[str, int, int], ...]) -> str:
    group, before, now = behind[0]
    groups = counted(len(behind), "consumer group falls", "consumer groups fall")
    return f"{groups} behind, first {group}: {now:,} records, {before:,} at the start"
