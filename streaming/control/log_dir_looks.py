"""Log dirs of the brokers of one plan of movements within brokers, for one execution.

A broker that copies is asked at each look. The others are asked every `LOOK_INTERVAL_MS`: nothing of the plan changes
there meanwhile, and whoever lets one begin to copy looks at it again right before.
"""

from collections.abc import Collection

from assignor_core.disks import LogDirs
from assignor_core.intervals import is_due
from assignor_core.plan import Plan
from streaming.cluster.ports import ClusterReader
from streaming.control.disk_room import LOOK_INTERVAL_MS


class LogDirLooks:
    """Log dirs as the brokers of a plan have last shown them. Not for two threads: a caller calls `forget` before
    another execution.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        """No answer counts any more."""
        self._shown: LogDirs = {}
        self._all_ms: int | None = None
        """When all brokers of the plan were asked last."""

    def read_all(self, plan: Plan, *, now_ms: int) -> LogDirs:
        """Returns log dirs of all brokers of the plan that answer. Raises ClusterUnreachable, ClusterRequestFailed."""
        self._shown = self._asked(plan, plan.brokers)
        self._all_ms = now_ms
        return self._shown

    def read(self, plan: Plan, copying: Collection[int], alive: Collection[int], *, now_ms: int) -> LogDirs:
        """What the brokers `copying` show now, and what the others have shown last, or show now if that is too long
        ago. A broker that was away, or did not answer, is asked as those are. Raises as `read_all` does.
        """
        if is_due(self._all_ms, LOOK_INTERVAL_MS, now_ms):
            return self.read_all(plan, now_ms=now_ms)
        others = {broker: rows for broker, rows in self._shown.items() if broker in alive and broker not in copying}
        asked = [broker for broker in plan.brokers if broker not in others]
        self._shown = {**others, **self._asked(plan, asked)} if asked else others
        return self._shown

    def is_of_all(self, now_ms: int) -> bool:
        """Whether all brokers were asked at this moment."""
        return self._all_ms == now_ms

    def _asked(self, plan: Plan, brokers: Collection[int]) -> LogDirs:
        return self._cluster.log_dirs(brokers, [row.key for row in plan.log_dir_movements])
