"""Copies within brokers that nobody can give up now, and that may go on by themselves later.

A broker gives up no copy whose replica lies in a log dir that is offline: it answers KAFKA_STORAGE_ERROR whatever log
dir is asked for. It forgets a copy in a log dir that goes offline, but leaves its files there. Once it has started with
the log dir online again, it goes on with both (Kafka's `ReplicaManager.alterReplicaLogDirs`, `handleLogDirFailure` and
`maybeAddLogDirFetchers`).
"""

from collections.abc import Mapping, Sequence

from assignor_core.disks import LogDirDescription, LogDirs
from assignor_core.execution.accounting import NAMED_MAX
from assignor_core.live import ReplicaKey, replica_name
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Plan
from assignor_core.wording import first_named

SILENT = "its broker does not answer"
SOURCE_OFFLINE = "the log dir of the replica is offline"
TARGET_OFFLINE = "the log dir that it is copied to is offline"


def may_go_on(plan: Plan, log_dirs: LogDirs) -> dict[ReplicaKey, str]:
    """Movements of which a copy may be left that `log_dirs` do not show, or that no request can give up, with why.

    One that was never begun is among them, if its log dir is offline: nobody can see that there is no copy.

    >>> plan = Plan("c", (), log_dir_movements=(LogDirMovement(1, "t", 0, "/a", "/b", 9.0),))
    >>> may_go_on(plan, {1: (LogDirDescription("/a", is_offline=True), LogDirDescription("/b", is_offline=True))})
    {(1, ('t', 0)): 'the log dir that it is copied to is offline'}
    >>> may_go_on(plan, {1: (LogDirDescription("/a", replica_bytes={("t", 0): 9}), LogDirDescription("/b"))})
    {}
    """
    reasons = {row.replica: _reason(row, log_dirs.get(row.broker, ())) for row in plan.log_dir_movements}
    return {replica: reason for replica, reason in reasons.items() if reason is not None}


def _reason(movement: LogDirMovement, rows: Sequence[LogDirDescription]) -> str | None:
    if not rows:
        return SILENT
    place = next((row.path for row in rows if movement.key in row.replica_bytes), None)
    if place not in (None, movement.old_log_dir):
        return None
    target = next((row for row in rows if row.path == movement.new_log_dir), None)
    if target is not None and target.is_offline:
        return TARGET_OFFLINE
    is_copied = target is not None and movement.key in target.future_replicas
    return SOURCE_OFFLINE if place is None and is_copied else None


def may_go_on_text(reasons: Mapping[ReplicaKey, str]) -> str:
    """What an event says of copies that may go on; empty where there are none."""
    if not reasons:
        return ""
    named = first_named(sorted(reasons), NAMED_MAX, lambda replica: f"{replica_name(replica)} ({reasons[replica]})")
    return f"{len(reasons)} may go on, and their brokers keep their rates: {named}"
