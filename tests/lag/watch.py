"""The collector's own looks at a cluster, kept as the pipeline would: judged in memory, or written as tables."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming import tables
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.rates import broker_rates, replica_rates
from streaming.collect.reports import consumer_lag_records
from streaming.collect.sample import ClusterSample
from streaming.contract import TABLES
from streaming.settings import Settings
from streaming.views.group_picture import COLUMNS
from tests.collect.sample_records import byte_rate_records
from tests.lag.windows import LoadWindows, Windows, judge
from tests.serve.synthetic import Synthetic

CLUSTER = "test"


class Watch:
    """Samples the groups whose names match a regular expression, in windows as short as a test needs."""

    def __init__(self, settings: Settings, groups: str, *, window_ms: int) -> None:
        only = settings.collect.model_copy(update={"groups_include": groups, "jmx_endpoints": {}})
        windows = settings.pipeline.model_copy(update={"window_ms": window_ms})
        self.settings = settings.model_copy(update={"collect": only, "pipeline": windows})
        self._admin = admin_client(settings.kafka)
        self._reads = BrokerReads(self._admin)
        self._groups = GroupSampler()
        self._before: ClusterSample | None = None
        self._kept = threading.Lock()
        self._lag, self._load = Windows(CLUSTER, window_ms), LoadWindows(window_ms)
        schema = tables.arrow_schema(TABLES["group_lag"])
        self._schema = pa.schema([schema.field(name) for name in COLUMNS])

    def sample(self) -> None:
        """Look once and keep what was seen."""
        seen = observe(self._reads, self._groups, self.settings.collect, now_ms=time.time_ns() // 1_000_000)
        with self._kept:
            self._lag.add(value for _, value in consumer_lag_records(CLUSTER, seen))
            if self._before is not None:
                replicas = replica_rates(self._before, seen)
                brokers = broker_rates(self._before, seen, replicas)
                self._load.add(value for _, value in byte_rate_records(CLUSTER, self._before, seen, replicas, brokers))
            self._before = seen

    @contextmanager
    def sampling(self, interval_s: float) -> Iterator[None]:
        """Samples in a thread of its own: on a busy machine judging takes longer than a window, which must be seen."""
        ending = threading.Event()

        def keep_sampling() -> None:
            while not ending.wait(interval_s):
                self.sample()

        with ThreadPoolExecutor(1) as pool:
            sampled = pool.submit(keep_sampling)
            try:
                yield
            finally:
                ending.set()
            sampled.result()

    def look(self) -> dict[str, list[dict[str, Any]]]:
        """Partitions by group, judged now."""
        self.sample()
        picture = judge(
            pa.Table.from_pylist(self._lag.rows(), schema=self._schema), window_ms=self.settings.pipeline.window_ms
        )
        picture_by_group: dict[str, list[dict[str, Any]]] = {}
        for row in picture.with_figures().to_pylist() if picture else []:
            picture_by_group.setdefault(row["group_id"], []).append(row)
        return picture_by_group

    def write(self, root: Path) -> Settings:
        """Everything seen so far as new tables below `root`; settings of whoever reads them."""
        synthetic = Synthetic(str(root), CLUSTER)
        with self._kept:
            rows_by_table = (
                ("group_lag", self._lag.rows()),
                ("partition_load", self._load.partition_rows()),
                ("broker_load", self._load.broker_rows()),
            )
        for name, rows in rows_by_table:
            synthetic.append(name, [{**synthetic.window(tables.to_ms(row["window_start"])), **row} for row in rows])
        return self.settings.model_copy(
            update={"storage": self.settings.storage.model_copy(update={"tables": str(root)})}
        )

    def close(self) -> None:
        """Closes the clients."""
        self._admin.close()
