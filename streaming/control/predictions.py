"""Keeps a prediction of `rebalancer what-if` in the table `prediction`: its figures, and all that it rests on."""

import json
from typing import Any

from assignor_core.replays.placed_cluster import SHOWN
from assignor_core.what_if.predictions import predicted_outlook
from streaming import tables
from streaming.contract import PREDICTION
from streaming.control.what_if import Prediction
from streaming.settings import HOUR_MS, Settings

SECTIONS = {"trigger", "planner", "control"}
"""Settings that a prediction rests on."""


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
