"""Plans and executions as control holds them while it works on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.reconcile import changes_since, differences
from assignor_core.live import LiveCluster
from assignor_core.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan as the tables keep it."""

    plan: Plan
    json: Mapping[str, Any]
    created_ms: int
    expires_ms: int

    def misfits(self, live: LiveCluster) -> tuple[str, ...]:
        """How the cluster has changed since the plan was made; empty when the plan can be started as approved."""
        seen = self.json.get("observed")  # plans from a model or another tool have none
        return (*differences(self.plan, live), *(changes_since(seen, self.plan, live) if seen else ()))


@dataclass(slots=True, eq=False)
class ExecutionRecord:
    """What this process knows of one execution. The journal replaces `execution` with every event that it writes.

    Executor, sweep and measurement share one record, so that each continues the numbering of the others.
    """

    execution: Execution
