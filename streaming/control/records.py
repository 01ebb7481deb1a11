"""Executions as control holds them while it works on them."""

from dataclasses import dataclass

from assignor_core.execution.life_cycle import Execution


@dataclass(slots=True, eq=False)
class ExecutionRecord:
    """What this process knows of one execution. The journal replaces `execution` with every event that it writes.

    Executor, sweep and measurement share one record, so that each continues the numbering of the others.
    """

    execution: Execution
