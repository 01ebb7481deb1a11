"""The throttle of movements within brokers: one rate per broker, for whatever it copies between its log dirs.

A rate that somebody else has set is respected, and stays. Under pressure the rate falls as that of reassignments does.
"""

from collections.abc import Collection

from assignor_core.execution.life_cycle import Execution
from assignor_core.live import LiveCluster
from assignor_core.plan import Plan
from streaming.cluster.ports import ControlledCluster
from streaming.control.throttle import AdaptiveRates, Clearing, Remains, Throttle
from streaming.control.throttled_brokers import RateReads, ThrottledBrokers


class LogDirThrottle:
    """The rates as this process has set them: nothing is known of them until `keep`, and after `forget`."""

    def __init__(self, cluster: ControlledCluster, rates: AdaptiveRates) -> None:
        self._cluster = cluster
        self._rates = rates
        self._brokers = ThrottledBrokers(self._shown_rates)
        self.forget()

    def forget(self) -> None:
        """Forgets the execution so far: from now on the rates are those of another execution, and are set again."""
        self._brokers.forget()
        self._reads = RateReads()
        self._set = False
        self._clearing = Clearing()
        self._rates.take_lowest()

    def brokers(self, execution: Execution, plan: Plan, live: LiveCluster) -> tuple[int, ...]:
        """Brokers to throttle, to be recorded before `keep`."""
        return self._brokers.all(execution, plan.brokers & live.broker_racks.keys())

    def more_brokers(
        self, execution: Execution, plan: Plan, live: LiveCluster, *, now_ms: int
    ) -> tuple[int, ...] | None:
        """All brokers to throttle, to be recorded before `keep`, if some are to be added since; None otherwise."""
        return self._brokers.with_new(execution, plan.brokers & live.broker_racks.keys(), now_ms=now_ms)

    def keep(self, execution: Execution, *, alive: Collection[int], pressed: bool, now_ms: int) -> None:
        """Set the rates where this process hasn't yet, and adapt them from then on. A broker that was away takes its
        rate once it is `alive`, and one whose rate others have removed takes it again.
        """
        ours = frozenset(execution.throttled_brokers).intersection(alive)
        if not self._set:
            self._send(self._rates.initial(ours, now_ms=now_ms))
            self._set = True
            self._reads.note(now_ms)
            return
        if self._reads.are_due(now_ms):
            self._reads.note(now_ms)
            self._rates.lost(self._reads.lost(ours, self._shown_rates, of_each=1))
        if rates := self._rates.changed(ours, pressed=pressed, now_ms=now_ms):
            self._send(rates)

    def new_lowest(self) -> int | None:
        """The rate of the slowest broker, bytes/s, where rates were sent since this was last asked."""
        return self._rates.take_lowest()

    def clear(self, execution: Execution, *, keeping: Collection[int] = ()) -> Remains:
        """Remove the rates that the journal names as ours; safe to repeat. Brokers that are down keep theirs, and so do
        those of `keeping`, which may go on with a copy.

        Raises ClusterRequestFailed if Kafka refuses, until it has refused too often: then that is what remains.
        """
        self._set = False
        ours, cleared = execution.throttled_brokers, sorted(set(execution.throttled_brokers) - set(keeping))

        def clear() -> list[int]:
            down = self._cluster.clear_log_dir_rates(cleared, untagged=not execution.tags_rates)
            return sorted({*down, *keeping} & {*ours})

        return self._clearing.remains(clear, lambda: ours)

    def _shown_rates(self, brokers: Collection[int]) -> dict[int, Collection[int]]:
        return {broker: (rate,) for broker, rate in self._cluster.log_dir_rates(brokers).items()}

    def _send(self, rates: dict[int, int]) -> None:
        self._cluster.set_log_dir_rates(rates)
        self._rates.sent(rates)


class UnknownThrottle(Throttle):
    """The throttle of an execution whose events alone are known: its brokers may have rates of either kind."""

    def __init__(self, cluster: ControlledCluster, rates: AdaptiveRates) -> None:
        self._within = LogDirThrottle(cluster, rates)
        super().__init__(cluster, rates)

    def forget(self) -> None:
        """Forgets the execution so far: from now on the throttle is that of another execution."""
        super().forget()
        self._within.forget()

    def clear(self, execution: Execution, plan: Plan) -> Remains:
        """Remove both; raises as they do."""
        within, between = self._within.clear(execution), super().clear(execution, plan)
        brokers = tuple(sorted({*within.brokers, *between.brokers}))
        return Remains(brokers, within.refused or between.refused)
