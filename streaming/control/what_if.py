"""Recorded hours replayed under the settings, and predictions kept in the table `prediction` with what they rest on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.execution.accuracy import Accuracy
from assignor_core.model import CAPACITY_KEYS, Capacity
from assignor_core.replays.copying import Pace
from assignor_core.replays.history import RecordedHistory
from assignor_core.replays.placed_cluster import SHOWN, Planning, ReplayedHours, replay
from assignor_core.what_if.changes import Changes, changed
from assignor_core.what_if.outlook import (
    Bound,
    BrokersNeeded,
    Growth,
    Headroom,
    bounds,
    brokers_needed,
    growth_of,
    headroom,
    times_more,
)
from assignor_core.what_if.predictions import predicted_outlook
from streaming import tables
from streaming.contract import PREDICTION
from streaming.control.policies import EXECUTING_INTERVAL_MS, decision_policy, limits
from streaming.errors import UsageProblem
from streaming.settings import HOUR_MS, Settings

SECTIONS = {"trigger", "planner", "control"}
"""Settings that a prediction rests on."""


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """A replay under changes, and what follows from it."""

    changes: Changes
    history: RecordedHistory
    """History with the changes applied."""
    away: frozenset[int]
    replay: ReplayedHours
    headroom: tuple[Headroom, ...]
    bounds: tuple[Bound, ...]
    growth: Growth | None
    """Growth of the load; None if too few days are recorded."""
    brokers_needed: tuple[BrokersNeeded, ...]
    accuracy: Accuracy
    """How far plans here came out differently from what they promised."""


def predict(
    history: RecordedHistory, changes: Changes, settings: Settings, daily_bytes_in: list[float], accuracy: Accuracy
) -> Prediction:
    """What would happen in the recorded hours under `changes`; raises InputError, UsageProblem."""
    assumed, away = changed(history, changes)
    added = frozenset(row.broker_id for row in assumed.brokers[len(history.brokers) :])
    result, policy = replayed(assumed, settings, away, added)
    disks = {row.broker_id: row.total_bytes for row in assumed.brokers}
    growth = growth_of(daily_bytes_in)
    needed: tuple[BrokersNeeded, ...] = ()
    if growth is not None:
        more = times_more(history, assumed, away)
        needed = brokers_needed(result, growth, policy.capacities, disks, more)
    return Prediction(
        changes,
        assumed,
        away,
        result,
        headroom(result, policy.capacities, disks),
        bounds(assumed, result, away, policy.capacities),
        growth,
        needed,
        accuracy,
    )


def replayed(
    history: RecordedHistory,
    settings: Settings,
    away: frozenset[int] = frozenset(),
    added: frozenset[int] = frozenset(),
) -> tuple[ReplayedHours, DecisionPolicy]:
    """The replay of a history under the settings, and the policy of its decisions; brokers `added` are assumed."""
    window_ms = settings.pipeline.window_ms
    if HOUR_MS % window_ms:
        raise UsageProblem(f"pipeline.window_ms {window_ms}: replays need windows that divide an hour")
    policy = decision_policy(settings, history.topics)
    policy = replace(policy, capacities=with_new_brokers(policy.capacities, history, added))
    planner = settings.planner
    planning = Planning(planner.disk_reserve, planner.load_disagreement_max, planner.days, planner.plan_ttl_ms)
    pace = Pace(settings.control.throttle_bytes_per_sec, EXECUTING_INTERVAL_MS, limits(settings.control))
    return replay(history, policy, pace=pace, planning=planning, window_ms=window_ms, away=away), policy


def keep_prediction(
    prediction: Prediction, changes: dict[str, Any], settings: Settings, prediction_id: str, *, now_ms: int
) -> None:
    """One row; raises TableUnavailable. `changes` as plain data."""
    replayed = prediction.replay
    outlook = predicted_outlook(replayed, prediction.headroom)
    row = {
        "prediction_id": prediction_id,
        "kafka_cluster": settings.kafka.cluster_name,
        "predicted_at": tables.utc(now_ms),
        "changes_json": json.dumps(changes, sort_keys=True),
        "settings_json": json.dumps(settings.model_dump(mode="json", include=SECTIONS), sort_keys=True),
        "hours_start": tables.utc(replayed.hour_start_ms[0]),
        "hours_end": tables.utc(replayed.hour_start_ms[-1] + HOUR_MS),
        "hours": len(replayed.hour_start_ms),
        "brokers": len(prediction.history.brokers) - len(prediction.away),
        "plans": len(replayed.plans),
        "bytes_copied": outlook.bytes_copied,
        "duration_ms": outlook.duration_ms,
        **{f"{resource}_max_over_mean": outlook.max_over_mean.get(resource) for resource in SHOWN},
        **{f"{resource}_headroom_left_ratio": outlook.headroom_left.get(resource) for resource in SHOWN},
    }
    transaction = f"prediction:{prediction_id}"
    tables.append(settings.storage.tables, PREDICTION.name, [row], transaction_id=transaction, transaction_version=0)


def with_new_brokers(
    capacities: Mapping[int, Capacity], history: RecordedHistory, added: frozenset[int]
) -> dict[int, Capacity]:
    """`capacities`, and for brokers that are `added` the middle of those that are there.

    One that is there and has none stays without: control then compares plain loads.
    """
    known = [capacities[row.broker_id] for row in history.brokers if row.broker_id in capacities]
    if not known:
        return dict(capacities)
    middle = Capacity(*(_middle([getattr(row, key) for row in known]) for key in CAPACITY_KEYS))
    return {**dict.fromkeys(sorted(added), middle), **capacities}


def _middle(values: list[float | None]) -> float | None:
    given = sorted(value for value in values if value is not None)
    return given[len(given) // 2] if given else None
