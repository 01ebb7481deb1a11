"""What a decision may ask for besides its observation, read from the tables and the cluster when it asks.

Reads `group_lag`, `partition_load` and log dirs only where they decide something: at each evaluation they would cost
more than all the rest of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from assignor_core.deciding.observation import GivenUp, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.lag.catching_up import catch_up_bytes_per_sec
from assignor_core.live import LiveCluster
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from streaming import tables
from streaming.cluster.ports import ClusterReader
from streaming.control.journal import Journal
from streaming.control.lag_spans import read_fallen_lags
from streaming.control.planning import propose_for
from streaming.control.urgency import groups_behind
from streaming.control.windows import WindowTables
from streaming.settings import DAY_MS, PlannerSettings


@dataclass(frozen=True, slots=True)
class TableEvidence:
    """Evidence for one decision by `policy` on `live`, the look at `cluster` that its observation holds."""

    cluster: ClusterReader
    live: LiveCluster
    journal: Journal
    window_tables: WindowTables
    policy: DecisionPolicy
    planner: PlannerSettings
    now_ms: int

    def groups_behind(self, brokers: frozenset[int]) -> Mapping[int, str]:
        """Returns the brokers among `brokers` with groups that fall behind on them, with the groups in words."""
        stale_after_ms = self.policy.trigger.stale_after_ms
        return groups_behind(self.window_tables, self.live, brokers, now_ms=self.now_ms, stale_after_ms=stale_after_ms)

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
        where = self._within(windows) & tables.equal("role", "leader")
        rows = reader.encoded("partition_load", columns=columns, where=where)
        sums: pa.Table = rows.drop_null().group_by("topic").aggregate([(name, "sum") for name in columns[1:]])
        return {
            row["topic"]: row["bytes_in_per_sec_sum"] / row["messages_in_per_sec_sum"]
            for row in sums.to_pylist()
            if row["messages_in_per_sec_sum"] > 0
        }

    def _within(self, windows: tuple[ClosedWindow, ...]) -> tables.Condition:
        first, last = tables.utc(windows[0].start_ms), tables.utc(windows[-1].start_ms)
        return (
            tables.of_cluster(self.window_tables.kafka_cluster)
            & tables.at_least("window_start", first)
            & tables.at_most("window_start", last)
        )
