"""Rows of `prediction`: what `what-if --keep` has kept, and what came since, by the hours and executions recorded."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from assignor_core.replays.placed_cluster import SHOWN
from assignor_core.resources import MEASURED, Resource
from assignor_core.what_if.predictions import Compared, HourLoads, Outlook, compare, outlook_that_came
from streaming.contract import BROKER_LOAD_HOURLY, PREDICTION
from streaming.settings import DAY_MS, HOUR_MS, Settings
from streaming.tables import Row, TableReader, at_least, of_cluster, to_ms
from streaming.views.broker_load import read_load
from streaming.views.broker_windows import capacities_of, loads
from streaming.views.executions import begun_between
from streaming.views.intents import drained_brokers
from streaming.views.spans import of_span

PREDICTIONS_MAX = 5
"""Most predictions that are compared; the newest are compared."""
DAYS_BACK = 90


@dataclass(frozen=True, slots=True)
class KeptPrediction:
    """One prediction, and what came within as many hours after it as it rests on; rows that are unknown stay so."""

    prediction_id: str
    predicted_ms: int
    changes: Mapping[str, Any]
    hours: int
    rows: tuple[Compared, ...]


def compared_predictions(reader: TableReader, settings: Settings) -> list[KeptPrediction]:
    """The newest predictions, newest first; raises TableUnavailable."""
    own = of_cluster(settings.kafka.cluster_name)
    newest = reader.newest(PREDICTION.name, "predicted_at", where=own)
    if newest is None:
        return []
    lately = own & at_least("predicted_at", newest - timedelta(days=DAYS_BACK))
    times = reader.arrow(PREDICTION.name, columns=("predicted_at",), where=lately)["predicted_at"].to_pylist()
    first = sorted(times, reverse=True)[:PREDICTIONS_MAX][-1]
    rows = reader.rows(PREDICTION.name, where=own & at_least("predicted_at", first))
    by_age = sorted(rows, key=lambda row: (row["predicted_at"], row["prediction_id"]), reverse=True)
    capacities = _capacities(reader, settings)
    return [_compared(reader, settings, row, capacities) for row in by_age[:PREDICTIONS_MAX]]


def _compared(
    reader: TableReader, settings: Settings, row: Row, capacities: Mapping[Resource, Mapping[int, float]]
) -> KeptPrediction:
    kafka_cluster = settings.kafka.cluster_name
    predicted_ms = to_ms(row["predicted_at"])
    until_ms = predicted_ms + row["hours"] * HOUR_MS
    executions = begun_between(reader, kafka_cluster, predicted_ms, until_ms)
    came = outlook_that_came(
        _hours_since(reader, kafka_cluster, predicted_ms, until_ms),
        capacities,
        executions,
        given=capacities_of(settings.planner),
        drained=drained_brokers(reader, kafka_cluster),
    )
    return KeptPrediction(
        row["prediction_id"],
        predicted_ms,
        json.loads(row["changes_json"]),
        row["hours"],
        compare(_predicted(row), came),
    )


def _predicted(row: Row) -> Outlook:
    ratios, left = (
        {resource.value: row[f"{resource}_{name}"] for resource in SHOWN if row[f"{resource}_{name}"] is not None}
        for name in ("max_over_mean", "headroom_left_ratio")
    )
    return Outlook(ratios, left, row["bytes_copied"], row["duration_ms"])


def _hours_since(reader: TableReader, kafka_cluster: str, since_ms: int, until_ms: int) -> list[HourLoads]:
    """Hours that began since then, of the last day that is recorded of them, oldest first."""
    where = of_span(kafka_cluster, "period_start", since_ms, until_ms)
    newest = reader.newest(BROKER_LOAD_HOURLY.name, "period_start", where=where)
    if newest is None:
        return []
    columns = ("period_start", "broker", *(figure for resource in MEASURED for figure in resource.figures))
    lately = where & at_least("period_start", newest - timedelta(milliseconds=DAY_MS - HOUR_MS))
    by_hour: dict[int, list[Row]] = defaultdict(list)
    for row in reader.rows(BROKER_LOAD_HOURLY.name, columns=columns, where=lately):
        by_hour[to_ms(row["period_start"])].append(row)
    return [{resource: loads(rows, resource) for resource in MEASURED} for _, rows in sorted(by_hour.items())]


def _capacities(reader: TableReader, settings: Settings) -> dict[Resource, dict[int, float]]:
    """Capacities by resource and broker, as the settings give them; of disks otherwise what brokers show."""
    given = capacities_of(settings.planner)
    known = {
        resource: {
            broker: value
            for broker, row in given.items()
            if (value := getattr(row, resource.capacity_key or "", None)) is not None
        }
        for resource in SHOWN
    }
    for row in read_load(reader, settings).brokers:
        if row.log_dir_used_bytes is not None and row.log_dir_usable_bytes is not None:
            known[Resource.DISK].setdefault(row.broker, float(row.log_dir_used_bytes + row.log_dir_usable_bytes))
    return known
