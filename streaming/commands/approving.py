"""What a person is shown of an approval whose plan does not begin now: its time, and for whom it waits."""

from typing import TYPE_CHECKING

from assignor_core.maintenance import may_act, next_opening
from streaming.commands.acting import who_carries_out
from streaming.commands.console import echo
from streaming.commands.in_words import duration_text
from streaming.commands.options import in_use
from streaming.control.policies import maintenance_windows
from streaming.runtime import clocks
from streaming.settings import ControlSettings, Settings
from streaming.views.approvals import instant_text, waits_for

if TYPE_CHECKING:
    from assignor_core.execution.life_cycle import Execution


def show_time(control: ControlSettings, begins_ms: int | None) -> None:
    """Shows when a plan that is approved now is to begin; None stands for at once."""
    now_ms = clocks.now_ms()
    if begins_ms is not None:
        wait = duration_text(max(0, begins_ms - now_ms))
        echo(f"The plan begins in {wait}, at {instant_text(begins_ms)} or later. If it no longer fits, it is refused.")
    hours, at_ms = maintenance_windows(control), now_ms if begins_ms is None else begins_ms
    if not may_act(hours, at_ms):
        when = "" if begins_ms is None else " at that time"
        echo(f"No maintenance window is open{when}: this plan does not wait for {next_opening(hours, at_ms)}.")


def is_left_to_control(execution: "Execution", settings: Settings) -> bool:
    """Whether the execution must not begin now, as it waits for its time or for approvals; shows that, and what to do.

    The command that has approved it does not wait: control begins it, or a command that works in place of control.
    """
    now_ms = clocks.now_ms()
    waits = None if execution.abort_requested else waits_for(execution, now_ms)
    if waits is None:
        return False
    name = execution.execution_id
    then = who_carries_out(settings, now_ms=now_ms)
    if execution.needs_approval:
        then = f"another person has to approve it: rebalancer apply {execution.plan_id[:12]}{in_use()}"
    echo(f"execution {name} {waits}; {then}; to cancel it: rebalancer abort {name}{in_use()}")
    return True
