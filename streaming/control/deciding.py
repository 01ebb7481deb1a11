"""The shell of a decision: observes, asks the core, writes the rows that show why.

Evaluated once per closed window. In mode `observe` no plan is made, in `propose` it waits for `rebalancer apply`, in
`apply` the control loop carries it out, inside the maintenance windows if there are any. What is decided, and how, is
`assignor_core.deciding.step`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from assignor_core.deciding.observation import Observation, brokers_counted
from assignor_core.deciding.policy import DecisionPolicy, TriggerPolicy
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import Decision, step
from assignor_core.disks import LogDirs
from assignor_core.live import LiveCluster
from assignor_core.load_history.windows import ClosedWindow, skew_figures
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource
from streaming import tables
from streaming.cluster.ports import ClusterReader
from streaming.control.absences import Absences
from streaming.control.evidence import TableEvidence
from streaming.control.journal import Journal, decision_id
from streaming.control.load_memory import KeptMemory, KeptRecurringLoad
from streaming.control.planning import untouched
from streaming.control.windows import ClosedWindows, WindowTables
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import PlannerSettings
from streaming.tables import TableReader, to_ms
from streaming.views.broker_windows import BOUNDED_BY, Bounds, bounds_of
from streaming.views.intents import Intent, brokers_by_intent


class Decider:
    """Evaluates each closed window once; what it must remember across restarts it reads from the journal."""

    def __init__(
        self,
        cluster: ClusterReader,
        journal: Journal,
        window_tables: WindowTables,
        planner: PlannerSettings,
        policy_for: Callable[[frozenset[str]], DecisionPolicy],
        absences: Absences,
    ) -> None:
        """`policy_for` gives the policy for a cluster with these topics."""
        self._absences = absences
        self._cluster = cluster
        self._journal = journal
        self._tables = window_tables
        self._planner = planner
        self._policy_for = policy_for
        # A plan that gained too little is tried again at once: people restart with other settings, to have another one.
        self._state = replace(journal.trigger_state(), futile=())
        self._windows = ClosedWindows(window_tables)
        self._bounds = BytesOutBounds(window_tables)
        self._memory = KeptMemory(window_tables)
        self._recurring = KeptRecurringLoad(window_tables)
        self._evaluated_ms: int | None = None
        self.live: LiveCluster | None = None
        """The cluster that the newest tick has read; None if it decided nothing."""

    def tick(self, *, now_ms: int) -> ProposedPlan | None:
        """Evaluate if a window has closed since the last tick; returns a plan that may be carried out now."""
        self.live = None
        if self._evaluated_ms is None:
            self._evaluated_ms = self._evaluated_before(now_ms)
        windows = self._windows.newest(now_ms=now_ms)
        if not windows or windows[-1].end_ms <= self._evaluated_ms:
            return None
        live = self.live = self._cluster.describe()
        self._absences.note(live, now_ms)
        policy = self._policy_for(frozenset(topic for topic, _ in live.partitions))
        considered = policy.trigger.windows_considered
        windows = (*windows[:-considered], *self._bounds.added(windows[-considered:]))
        by_intent = brokers_by_intent(TableReader(self._tables.root), self._tables.kafka_cluster)
        drained, demoted = by_intent[Intent.DRAIN], by_intent[Intent.DEMOTE]
        policy = replace(policy, planner=untouched(policy.planner, demoted, live))
        changed_ms = self._journal.changed_ms(now_ms=now_ms)
        counted = brokers_counted(live, drained | demoted)
        moved_ms = max(changed_ms, self._state.changed_ms)
        observation = Observation.of(
            live,
            windows,
            policy,
            drained=drained,
            changed_ms=changed_ms,
            now_ms=now_ms,
            log_dirs=self._log_dirs(now_ms),
            away_since_ms=self._absences.since_ms(now_ms),
            memory=self._memory.after(windows, policy, counted, changed_ms=moved_ms),
            recurring=self._recurring.after(windows, policy, counted, changed_ms=moved_ms),
            demoted=demoted,
        )
        evidence = TableEvidence(self._cluster, live, self._journal, self._tables, policy, self._planner, now_ms)
        state, decision = step(self._state, observation, policy, evidence)
        skew = skew_figures(windows[-1], policy.capacities, observation.counted)
        self._write(decision, state, skew, policy.trigger, now_ms)
        # Not before all is written: what the store refuses is decided again at the next tick, as if for the first time.
        self._state = state
        self._evaluated_ms = windows[-1].end_ms
        return decision.proposed if decision.may_act else None

    def _evaluated_before(self, now_ms: int) -> int:
        """End of the newest window that has its row: judged again, the second decision would have none."""
        row = self._journal.last_decision()
        end_ms = to_ms(row["window_end"]) if row else 0
        return end_ms if end_ms <= now_ms else 0  # a window of the future would end all decisions until then

    def _log_dirs(self, now_ms: int) -> LogDirs:
        """How full log dirs are, without what lies in them: a short answer of each broker, kept for who shows it."""
        try:
            log_dirs = self._cluster.log_dirs(partitions=())
        except (ClusterRequestFailed, ClusterUnreachable) as error:
            log.warning("log_dirs_unread", error=str(error))
            return {}
        self._journal.write_log_dirs(log_dirs, now_ms=now_ms)
        return log_dirs

    def _write(
        self, decision: Decision, state: TriggerState, skew: Mapping[str, Any], trigger: TriggerPolicy, now_ms: int
    ) -> None:
        """The plan first, so that a decision never names a plan that is not there."""
        for dropped in decision.dropped:
            log.info("waiting_plan_dropped", plan_id=dropped.plan_id[:12], reason=dropped.reason)
        evaluation, proposed = decision.evaluation, decision.proposed
        plan_id = proposed.plan.plan_id if proposed else None
        if proposed is not None:
            decided = decision_id(self._tables.kafka_cluster, decision.window.window_end_ms)
            self._journal.write_plan(proposed, decision=decided, now_ms=now_ms)
        self._journal.write_decision(decision, state, skew, trigger, now_ms=now_ms)
        log.info(
            "decision", verdict=evaluation.verdict.value, reason=evaluation.reason.value, detail=evaluation.detail,
            plan_id=plan_id[:12] if plan_id else None,
        )  # fmt: skip


class BytesOutBounds:
    """Reads the partitions of a window once, and only of windows with brokers that need it. Not for two threads."""

    def __init__(self, window_tables: WindowTables) -> None:
        self._tables = window_tables
        self._known: dict[int, Bounds] = {}

    def added(self, windows: Sequence[ClosedWindow]) -> tuple[ClosedWindow, ...]:
        """The windows with the bounds of brokers whose bytes out are unknown. Raises TableUnavailable."""
        if self._tables.readers_max is None:
            return tuple(windows)
        reader = TableReader(self._tables.root)
        known = {row.start_ms: self._known.get(row.start_ms) for row in windows if row.reads_unknown}
        self._known = {
            start_ms: self._read(reader, start_ms) if row is None else row for start_ms, row in known.items()
        }
        return tuple(self._with_bounds(window) if window.reads_unknown else window for window in windows)

    def _with_bounds(self, window: ClosedWindow) -> ClosedWindow:
        known = self._known[window.start_ms]
        bounds = {
            row: (low, high) for row, (low, high) in known.items() if row in window.reads_unknown and high is not None
        }
        return replace(window, bounds={Resource.BYTES_OUT: bounds})

    def _read(self, reader: TableReader, start_ms: int) -> Bounds:
        where = (
            tables.of_cluster(self._tables.kafka_cluster)
            & tables.equal("window_start", tables.utc(start_ms))
            & tables.equal("role", "leader")
        )
        return bounds_of(reader.encoded("partition_load", columns=BOUNDED_BY, where=where), self._tables.readers_max)


log = structlog.get_logger()
