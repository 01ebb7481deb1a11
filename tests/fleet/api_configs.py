"""Settings of topics and brokers, and client quotas: described with all defaults of Kafka 4.4, changed entry by entry.

The throttles are those of the simulated cluster, in force; other settings are kept and do nothing.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kafka import errors
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from assignor_core.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.fleet.api import NOT_AUTHORIZED, OK, UNKNOWN_PARTITION, Api
from tests.fleet.fleet import Fleet
from tests.simulated_cluster.throttling import is_too_long

TOPIC, BROKER = 2, 4
DEFAULTS = Path(__file__).with_name("kafka_configs.json")
"""Of each kind of resource the rows [name, value, read only, source, sensitive, type] of a broker without settings."""
SOURCE_TOPIC, SOURCE_BROKER = 1, 2
TYPE_STRING = 2
SET, DELETE, APPEND, SUBTRACT = range(4)
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
RATES = (LEADER_RATE, FOLLOWER_RATE)
INVALID_REQUEST: int = errors.InvalidRequestError.errno
CLIENT_ID = "client-id"


@cache
def defaults(kind: int) -> Mapping[str, list[Any]]:
    """Rows by name of the setting."""
    rows = json.loads(DEFAULTS.read_text(encoding="utf-8"))["topic" if kind == TOPIC else "broker"]
    return {row[0]: row for row in rows}


def _described(fleet: Fleet, broker: int, request: Any) -> Any:
    results = []
    for row in request.resources:
        error_code = _problem(fleet, broker, row)
        settings = [] if error_code else list(_settings(fleet, row))
        results.append((error_code, None, row.resource_type, row.resource_name, settings))
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _describe_refused(_fleet: Fleet, _broker: int, request: Any) -> Any:
    results: list[Any] = [
        (NOT_AUTHORIZED, "refused", row.resource_type, row.resource_name, []) for row in request.resources
    ]
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _problem(fleet: Fleet, broker: int, row: Any) -> int:
    """The code of the error if the resource is unknown here: a broker answers for itself only."""
    if row.resource_type == TOPIC:
        return OK if row.resource_name in fleet.contents.topics else UNKNOWN_PARTITION
    return OK if row.resource_type == BROKER and row.resource_name == str(broker) else INVALID_REQUEST


def _settings(fleet: Fleet, row: Any) -> Iterator[Any]:
    changed = _changed(fleet, row.resource_type, row.resource_name)
    source = SOURCE_TOPIC if row.resource_type == TOPIC else SOURCE_BROKER
    known = defaults(row.resource_type)
    names = known.keys() | changed.keys()
    for name in sorted(names if row.configuration_keys is None else names & set(row.configuration_keys)):
        _, value, read_only, default_source, is_sensitive, kind = known.get(
            name, [name, None, False, source, False, TYPE_STRING]
        )
        is_changed = name in changed
        yield (
            name,
            changed.get(name, value),
            read_only,
            source if is_changed else default_source,
            is_sensitive,
            [],
            kind,
            None,
        )


def _changed(fleet: Fleet, kind: int, name: str) -> dict[str, str]:
    """Settings of this resource that differ from the default."""
    kept = fleet.settings.get((kind, name), {})
    if kind == TOPIC:
        return kept | fleet.contents.topics[name].throttled_replicas
    return kept | {key: str(rate) for key, rate in fleet.contents.throttle_rates.get(int(name), {}).items()}


def _altered(fleet: Fleet, broker: int, request: Any) -> Any:
    responses = []
    for row in request.resources:
        error_code, message = _problem(fleet, broker, row), None
        before = _lists(fleet, row)
        for change in () if error_code or request.validate_only else row.configs:
            error = _change(fleet, row.resource_type, row.resource_name, change)
            if error is not None:
                # Kafka makes all changes of one resource or none.
                _restore_lists(fleet, row.resource_name, before)
                error_code, message = getattr(errors, error).errno, error
                break
        responses.append((error_code, message, row.resource_type, row.resource_name))
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _alter_refused(_fleet: Fleet, _broker: int, request: Any) -> Any:
    responses = [(NOT_AUTHORIZED, "refused", row.resource_type, row.resource_name) for row in request.resources]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _change(fleet: Fleet, kind: int, resource: str, change: Any) -> str | None:
    """Make one change; the name of the error, or None."""
    name, operation, value = change.name, change.config_operation, change.value
    if kind == BROKER and name in RATES:
        fleet.cluster.set_throttle_rate(int(resource), name, int(value) if operation == SET else None)
    elif kind == TOPIC and name in LISTS:
        return _change_list(fleet, resource, name, operation, value)
    elif operation == SET:
        fleet.settings.setdefault((kind, resource), {})[name] = value
    elif operation == DELETE:
        fleet.settings.get((kind, resource), {}).pop(name, None)
    return None


def _lists(fleet: Fleet, row: Any) -> dict[str, str]:
    """The lists of throttled replicas of a topic as they are; empty for any other resource."""
    topic = fleet.contents.topics.get(row.resource_name) if row.resource_type == TOPIC else None
    return {} if topic is None else dict(topic.throttled_replicas)


def _restore_lists(fleet: Fleet, topic: str, before: Mapping[str, str]) -> None:
    for setting in LISTS:
        if setting in before:
            fleet.cluster.set_throttled_replicas(topic, setting, before[setting])
        else:
            fleet.cluster.remove_throttled_replicas(topic, setting)


def _change_list(fleet: Fleet, topic: str, setting: str, operation: int, value: str) -> str | None:
    """Make one change; raises LookupError for a text on which a broker closes the connection."""
    if operation != DELETE and is_too_long(value):
        raise LookupError(f"{setting}: {len(value)} bytes")
    if operation == APPEND:
        return fleet.cluster.append_throttled_replicas(topic, setting, value)
    if operation == SUBTRACT:
        return fleet.cluster.subtract_throttled_replicas(topic, setting, value)
    if operation == SET:
        fleet.cluster.set_throttled_replicas(topic, setting, value)
    else:
        fleet.cluster.remove_throttled_replicas(topic, setting)
    return None


def _quotas(fleet: Fleet, _broker: int, _request: Any) -> Any:
    """All quotas of client ids, whatever is asked for."""
    entries = [([(CLIENT_ID, name)], sorted(quotas.items())) for name, quotas in sorted(fleet.quotas.items())]
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=OK, error_message=None, entries=entries)


def _quotas_refused(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=NOT_AUTHORIZED, error_message="refused", entries=None
    )


def _quotas_altered(fleet: Fleet, _broker: int, request: Any) -> Any:
    answers = []
    for row in request.entries:
        (entity,) = row.entity
        quotas = fleet.quotas.setdefault(entity.entity_name, {})
        for change in row.ops:
            if change.remove:
                quotas.pop(change.key, None)
            else:
                quotas[change.key] = change.value
        if not quotas:
            del fleet.quotas[entity.entity_name]
        answers.append((OK, None, [(entity.entity_type, entity.entity_name)]))
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=answers)


def _quotas_not_altered(_fleet: Fleet, _broker: int, request: Any) -> Any:
    rows = [[(part.entity_type, part.entity_name) for part in row.entity] for row in request.entries]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=[(NOT_AUTHORIZED, "refused", row) for row in rows])


APIS = (
    Api(DescribeConfigsRequest, (4, 4), _described, _describe_refused),
    Api(IncrementalAlterConfigsRequest, (0, 1), _altered, _alter_refused),
    Api(DescribeClientQuotasRequest, (0, 1), _quotas, _quotas_refused),
    Api(AlterClientQuotasRequest, (0, 1), _quotas_altered, _quotas_not_altered),
)
