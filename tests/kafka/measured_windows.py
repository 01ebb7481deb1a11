"""Windows of what the collector measures on real brokers, written as the pipeline would, without Spark."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from streaming import tables
from streaming.cluster.broker_reads import BrokerReads
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.reports import RecordMaker
from streaming.contract import BROKER_LOAD, BROKER_LOAD_HOURLY, GROUP_LAG, PARTITION_LOAD
from streaming.runtime.clocks import now_ms
from streaming.settings import HOUR_MS, Settings
from tests.control.windows import window_columns, write_hours_before

Record = Mapping[str, Any]


class MeasuredWindows:
    """Looks at the brokers, one for each window: the window has the rates since the look before.

    Nobody writes or reads during a look, so all its parts are of one moment, however late an answer comes.
    """

    def __init__(
        self, reads: BrokerReads, settings: Settings, *, between_rounds: AbstractContextManager[object] | None = None
    ) -> None:
        """`between_rounds` is entered for each look: who writes to the brokers meanwhile holds it for each round."""
        self._reads = reads
        self._between_rounds = between_rounds or nullcontext()
        self._settings = settings
        self._window_ms = settings.pipeline.window_ms
        self._groups = GroupSampler()
        self._reports = RecordMaker(
            settings.kafka.cluster_name, settings.topics, interval_ms=self._window_ms, window_ms=None
        )
        self._next_ms = 0
        self._lag: list[Record] = []
        self.records: list[list[Record]] = []
        """Of each window, oldest first."""

    def write_if_due(self, now_ms: int) -> bool:
        """One look, if a window has ended since the last one; True where that has made a window."""
        if now_ms < self._next_ms:
            return False
        end_ms = now_ms // self._window_ms * self._window_ms
        self._next_ms = end_ms + self._window_ms
        before = self._reports.partitions_before
        with self._between_rounds:
            after = observe(
                self._reads, self._groups, self._settings.collect, now_ms=now_ms, before=before, monotonic=lambda: 0.0
            )
        topics = self._settings.topics
        read: dict[str, list[Record]] = {topics.byte_rate: [], topics.consumer_lag: []}
        for topic, made in self._reports.of(after):
            read[topic] += [json.loads(value) for _, value in made]
        self._reports.arrived()
        lag_before, self._lag = self._lag, read[topics.consumer_lag]
        if before is None:
            return False
        records = read[topics.byte_rate]
        self.records.append(records)
        self._write_lag(lag_before, end_ms)
        audit = window_columns(self._settings.kafka.cluster_name, end_ms - self._window_ms, self._window_ms)
        for table in (PARTITION_LOAD, BROKER_LOAD):
            own = [row for row in records if (row["topic"] is None) == (table is BROKER_LOAD)]
            columns = [name for name in table.column_names() if name not in audit]
            rows = [{**{name: row.get(name) for name in columns}, **audit} for row in own]
            tables.append(
                self._settings.storage.tables, table.name, rows, transaction_id="test", transaction_version=end_ms
            )
        return True

    def _write_lag(self, before: Iterable[Record], end_ms: int) -> None:
        """Offsets of the look before and of this one, as a window has its first and its newest."""
        first = {_reader(row): row for row in before}
        audit = window_columns(self._settings.kafka.cluster_name, end_ms - self._window_ms, self._window_ms)
        rows = []
        for row in self._lag:
            oldest = first.get(_reader(row), row)
            own = {name: row.get(name) for name in GROUP_LAG.column_names()}
            offsets = {f"{name}_first": oldest[name] for name in ("committed_offset", "log_end_offset")}
            rows.append({**own, **audit, **offsets, "group_id": row["group"]})
        if rows:
            tables.append(
                self._settings.storage.tables, GROUP_LAG.name, rows, transaction_id="lag", transaction_version=end_ms
            )

    def write(self, windows: int) -> None:
        """So many windows from now on, each as it ends."""
        while windows:
            windows -= self.write_if_due(now_ms())
            time.sleep(0.05)

    def write_hour_before(self, now_ms: int, *, windows: int) -> None:
        """The hour before this one, with the mean rates of the newest windows: as if it had gone on like that."""
        records = [row for rows in self.records[-windows:] for row in rows if row["role"] == "leader"]
        rates = _means(records, ("topic", "partition"), ("bytes_in_per_sec",))
        hour = {(topic, number): row["bytes_in_per_sec"] for (topic, number), row in rates.items()}
        write_hours_before(self._settings, now_ms // HOUR_MS * HOUR_MS, {1: hour})

    def write_hour_of_brokers(self, start_ms: int, *, windows: int) -> None:
        """Means of brokers over the newest windows, as an hour that began at `start_ms`."""
        records = [row for rows in self.records[-windows:] for row in rows if row["topic"] is None]
        figures = [
            name
            for name in BROKER_LOAD_HOURLY.column_names()
            if records and isinstance(records[0].get(name), (int, float)) and name != "broker"
        ]
        own = {
            "kafka_cluster": self._settings.kafka.cluster_name, "window_count": windows,
            "covered_ms": windows * self._window_ms, "period_start": tables.utc(start_ms),
            "period_end": tables.utc(start_ms + HOUR_MS), "updated_at": tables.utc(start_ms),
        }  # fmt: skip
        rows = [{**own, "broker": key[0], **row} for key, row in _means(records, ("broker",), figures).items()]
        tables.append(
            self._settings.storage.tables, BROKER_LOAD_HOURLY.name, rows,
            transaction_id="hour", transaction_version=start_ms,
        )  # fmt: skip


def _reader(row: Record) -> tuple[Any, ...]:
    return row["group"], row["topic"], row["partition"]


def _means(
    records: Iterable[Record], keys: Sequence[str], figures: Sequence[str]
) -> dict[tuple[Any, ...], dict[str, float]]:
    """Mean of each figure by key, over the records that know it."""
    grouped: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for row in records:
        grouped[tuple(row[key] for key in keys)].append(row)
    return {
        key: {
            name: sum(known) / len(known)
            for name in figures
            if (known := [row[name] for row in rows if row[name] is not None])
        }
        for key, rows in grouped.items()
    }
