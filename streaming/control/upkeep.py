"""Keeps control's tables small: rows beyond their retention go, small files are joined, old files are removed.

Control does this itself, between two ticks, and only while it holds the lease. Each step is one commit, which depends
on what the tables hold and not on the step before: a control that is killed in between begins again at the next run.
"""

import json
from collections.abc import Sequence
from datetime import datetime

import structlog

from assignor_core.deciding.state import TriggerState
from assignor_core.intervals import is_due
from streaming import tables
from streaming.contract import (
    AUDIT,
    BROKER_INTENT,
    BROKER_RESTART,
    DECISION,
    EXECUTION,
    LOAD_MEMORY,
    LOG_DIR,
    MOVEMENT,
    NOTIFICATION,
    PLAN,
    PREDICTION,
    RECURRING_LOAD,
    ROLL,
    Table,
)
from streaming.settings import DAY_MS, ControlSettings
from streaming.views.decisions import newest_decision
from streaming.views.executions import finished_before, plans_carried_out
from streaming.views.intents import outdated_notes
from streaming.views.json_values import WRONG_SHAPE
from streaming.views.plans import plans_made_before
from streaming.views.rolls import rolls_ended_before

log = structlog.get_logger()

TABLES_KEPT = (
    DECISION.name,
    PLAN.name,
    MOVEMENT.name,
    EXECUTION.name,
    BROKER_INTENT.name,
    LOG_DIR.name,
    BROKER_RESTART.name,
    LOAD_MEMORY.name,
    RECURRING_LOAD.name,
    AUDIT.name,
    NOTIFICATION.name,
    PREDICTION.name,
    ROLL.name,
)
DECISIONS_AT_A_TIME = 20_000
"""Decisions deleted at a time, of 8 kB each, at most: this takes some seconds, in which control runs no tick."""
PLANS_AT_A_TIME = 500
EXECUTIONS_AT_A_TIME = 500
NOTES_AT_A_TIME = 100
_TIMES = {
    table.name: table.time_column
    for table in (DECISION, PLAN, EXECUTION, BROKER_INTENT, AUDIT, NOTIFICATION, PREDICTION, ROLL)
}
"""Tables of one cluster's rows that prove which time it is."""


class Upkeep:
    """Runs on the tables below one root, for the rows of one cluster."""

    def __init__(
        self, root: str, kafka_cluster: str, settings: ControlSettings, *, interval_ms: int, now_ms: int
    ) -> None:
        """The first run is due `interval_ms` after `now_ms`."""
        self._root = root
        self._cluster = kafka_cluster
        self._settings = settings
        self._interval_ms = interval_ms
        self._ran_ms = now_ms

    def run_if_due(self, *, now_ms: int) -> None:
        """Raises TableUnavailable; the next run is due no sooner for that."""
        if not is_due(self._ran_ms, self._interval_ms, now_ms):
            return
        self._ran_ms = now_ms
        deleted = expire(self._root, self._cluster, self._settings, now_ms=now_ms)
        if any(deleted.values()):
            log.info("rows_expired", kafka_cluster=self._cluster, **deleted)
        for name in TABLES_KEPT:
            tables.tidy(self._root, name)


def expire(root: str, kafka_cluster: str, settings: ControlSettings, *, now_ms: int) -> dict[str, int]:
    """Delete a bounded number of one cluster's rows beyond their retention, oldest first; returns the number by table.

    These rows stay: the newest decision, whose state control continues; executions that have not ended or that owe the
    removal of a throttle; the newest note on each broker; rolls that have not ended. Plans stay while an execution in
    the tables carries them out, until they expire, and while they wait for a maintenance window. A clock that is ahead
    deletes nothing (see `tables.proven_ms`). Raises TableUnavailable.
    """
    own = tables.of_cluster(kafka_cluster)
    reader = tables.TableReader(root)
    now_ms = tables.proven_ms(reader, _TIMES, after_ms=DAY_MS, now_ms=now_ms, where=own) or 0
    undecided_ms = now_ms - settings.decision_retention_ms
    unfinished_ms = now_ms - settings.execution_retention_ms
    unfinished = _day(unfinished_ms)
    executions = _expire_whole(root, EXECUTION, "execution_id", finished_before(reader, kafka_cluster, unfinished))
    reader.look_again()
    movements, plans = _expire_plans(root, reader, kafka_cluster, _day(undecided_ms), now_ms)
    return {
        EXECUTION.name: executions,
        MOVEMENT.name: movements,
        PLAN.name: plans,
        DECISION.name: _expire_decisions(root, reader, kafka_cluster, _day(undecided_ms)),
        BROKER_INTENT.name: _expire_notes(root, reader, kafka_cluster, unfinished),
        AUDIT.name: _expire_rows(root, reader, AUDIT, kafka_cluster, unfinished),
        NOTIFICATION.name: _expire_rows(root, reader, NOTIFICATION, kafka_cluster, _day(undecided_ms)),
        PREDICTION.name: _expire_rows(root, reader, PREDICTION, kafka_cluster, unfinished),
        ROLL.name: _expire_whole(root, ROLL, "roll_id", rolls_ended_before(reader, kafka_cluster, unfinished)),
    }


def _expire_whole(root: str, table: Table, key: str, ids: Sequence[str]) -> int:
    """Deletes all rows of each id: half of an execution or a roll would make no sense to whoever reads it."""
    first = ids[:EXECUTIONS_AT_A_TIME]
    return tables.delete(root, table.name, tables.one_of(key, first)) if first else 0


def _expire_plans(
    root: str, reader: tables.TableReader, kafka_cluster: str, before: datetime, now_ms: int
) -> tuple[int, int]:
    """Movements and plans. Movements first: a plan that is left without them names them at the next run."""
    made = plans_made_before(reader, kafka_cluster, before, now_ms=now_ms)
    if not made:
        return 0, 0
    needed = plans_carried_out(reader, kafka_cluster) | _waiting_for_hours(reader, kafka_cluster)
    ids = [plan_id for plan_id in made if plan_id not in needed][:PLANS_AT_A_TIME]
    if not ids:
        return 0, 0
    of_plans = tables.one_of("plan_id", ids)
    movements = tables.delete(root, MOVEMENT.name, of_plans & tables.below("created_at", before))
    return movements, tables.delete(root, PLAN.name, tables.of_cluster(kafka_cluster) & of_plans)


def _waiting_for_hours(reader: tables.TableReader, kafka_cluster: str) -> set[str]:
    row = newest_decision(reader, kafka_cluster, columns=("state_json",))
    try:
        waiting = TriggerState.read(json.loads(row["state_json"])).waiting if row else None
    except WRONG_SHAPE:  # control decides as if there were no state, and so does this: no plan waits any more
        return set()
    return set() if waiting is None else {waiting.plan_id}


def _expire_decisions(root: str, reader: tables.TableReader, kafka_cluster: str, before: datetime) -> int:
    own, time = tables.of_cluster(kafka_cluster), "decided_at"
    newest = reader.newest_of_cluster(DECISION.name, time, kafka_cluster)
    if newest is None:
        return 0
    end = min(before, newest)
    times = reader.arrow(DECISION.name, columns=(time,), where=own & tables.below(time, end)).sort_by(time)[time]
    if len(times) > DECISIONS_AT_A_TIME:
        end = times[DECISIONS_AT_A_TIME].as_py()
    return tables.delete(root, DECISION.name, own & tables.below(time, end)) if len(times) else 0


def _expire_notes(root: str, reader: tables.TableReader, kafka_cluster: str, before: datetime) -> int:
    outdated = outdated_notes(reader, kafka_cluster, before)[:NOTES_AT_A_TIME]
    return sum(
        tables.delete(
            root,
            BROKER_INTENT.name,
            tables.of_cluster(kafka_cluster) & tables.equal("broker", broker) & tables.below("event_time", end),
        )
        for broker, end in outdated
    )


def _expire_rows(root: str, reader: tables.TableReader, table: Table, kafka_cluster: str, before: datetime) -> int:
    """Rows that need no other row to be understood."""
    old = tables.of_cluster(kafka_cluster) & tables.below(table.time_column, before)
    if reader.newest(table.name, table.time_column, where=old) is None:
        return 0
    return tables.delete(root, table.name, old)


def _day(time_ms: int) -> datetime:
    """Start of the day (UTC) of this moment. Rows are deleted a day at a time, because each deletion rewrites the files
    that also hold younger rows.
    """
    return tables.utc(max(0, time_ms - time_ms % DAY_MS))
