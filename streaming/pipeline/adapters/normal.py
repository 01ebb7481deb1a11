"""What all formats are turned into, and what they share: broker ids, times, names of Kafka's meters."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from streaming.contract import RECORD_VERSION
from streaming.contract.rates import RATES

Record = dict[str, Any]

METERS = {rate.meter.lower(): rate.stem for rate in RATES}
"""Meters of Kafka's BrokerTopicMetrics, lower case without PerSec: the stem of our field."""

_BROKER_LABELS = (
    "broker", "broker_id", "kafka_broker_id", "kafka.broker.id", "instance", "host", "host.name", "service.instance.id",
    "jolokia_agent_url", "agent_host",
)  # fmt: skip

_CLUSTER_LABELS = ("kafka_cluster", "kafka.cluster.alias", "strimzi_io_cluster", "cluster")
"""Labels that name a cluster: ours, that of OpenTelemetry's kafkametrics receiver, Strimzi's, and Burrow's."""


class Misfit(Exception):
    """A record, or a part of it, that can't be read: `reason` is one word of a fixed list, `field` what is at fault."""

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(reason, field)
        self.reason = reason
        self.field = field


@contextmanager
def reading() -> Iterator[None]:
    """What a sample lacks, or has in another type than expected, as Misfit."""
    try:
        yield
    except KeyError as error:
        raise Misfit("missing_field", str(error.args[0])) from None
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise Misfit("wrong_type") from None


@dataclass(frozen=True, slots=True)
class Context:
    """What a sample lacks: its cluster, and the broker of a host or of an agent's address."""

    kafka_cluster: str
    broker_ids: Mapping[str, int]
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Our name of each cluster that samples name in words of their own."""

    def of(self, labels: Mapping[str, str]) -> Self:
        """The context of a sample with these labels. Raises Misfit where they name a cluster that nobody knows: its
        groups and brokers would mix with those of the same names here.

        >>> Context("main", {}, {"west": "dr"}).of({"cluster": "west"}).kafka_cluster
        'dr'
        """
        name = next((name for name in _CLUSTER_LABELS if name in labels), None)
        if name is None or labels[name] == self.kafka_cluster:
            return self
        if labels[name] not in self.clusters:
            raise Misfit("unknown_cluster", name)
        return replace(self, kafka_cluster=self.clusters[labels[name]])


Parser = Callable[[bytes, Context], list[Record | Misfit]]
"""Raises Misfit where nothing can be read; one in the list stands for a part that can't."""


def rate_record(context: Context, broker: int, time_ms: int, interval_ms: int, rates: Mapping[str, float]) -> Record:
    """Rates of one broker as they are, over the `interval_ms` before `time_ms`; keys are stems, like `bytes_in`."""
    record = _broker_record(context, broker, time_ms)
    return record | {"interval_ms": interval_ms} | {f"{stem}_per_sec": value for stem, value in rates.items()}


def counter_record(context: Context, broker: int, time_ms: int, counters: Mapping[str, float]) -> Record:
    """Counters of one broker since it started; the windows make rates of them."""
    record = _broker_record(context, broker, time_ms)
    return record | {"interval_ms": 0} | {f"{stem}_total": value for stem, value in counters.items()}


def lag_record(
    context: Context, group: str, topic: str, partition: int, time_ms: int, fields: Mapping[str, int | str | None]
) -> Record:
    """Offsets of one group and partition; exporters write a negative offset or lag if none is known."""
    known = {name: None if isinstance(value, int) and value < 0 else value for name, value in fields.items()}
    return {
        "v": RECORD_VERSION, "kafka_cluster": context.kafka_cluster, "group": group, "topic": topic,
        "partition": partition, "event_time_ms": time_ms, **known,
    }  # fmt: skip


def broker_of(labels: Mapping[str, str], context: Context) -> int:
    """The broker that a sample is of: a label that is its id, or one that the settings' `broker_ids` knows.

    >>> broker_of({"instance": "kafka-1:7071"}, Context("main", {"kafka-1:7071": 1}))
    1
    """
    for name in _BROKER_LABELS:
        value = labels.get(name)
        if value is None:
            continue
        if value in context.broker_ids:
            return context.broker_ids[value]
        if value.isascii() and value.isdigit():
            return int(value)
    raise Misfit("unknown_broker", next((name for name in _BROKER_LABELS if name in labels), None))


def to_ms(timestamp: float) -> int:
    """Milliseconds, from a time in s, ms, us or ns: for a century to come no two of them can be confused.

    >>> to_ms(1700000000), to_ms(1700000000000), to_ms(1700000000000000), to_ms(1700000000000000000)
    (1700000000000, 1700000000000, 1700000000000, 1700000000000)
    """
    for limit, factor in ((1e11, 1000), (1e14, 1)):
        if timestamp < limit:
            return int(timestamp * factor)
    return int(timestamp // (1_000 if timestamp < 1e17 else 1_000_000))


def json_object(value: bytes) -> dict[str, Any]:
    """The object that the bytes spell; raises Misfit."""
    try:
        parsed = json.loads(value)
    except UnicodeDecodeError:
        raise Misfit("not_utf8") from None
    except (ValueError, RecursionError):
        raise Misfit("not_json") from None
    if not isinstance(parsed, dict):
        raise Misfit("not_json")
    return parsed


def _broker_record(context: Context, broker: int, time_ms: int) -> Record:
    return {
        "v": RECORD_VERSION, "kafka_cluster": context.kafka_cluster, "broker": broker, "topic": None,
        "partition": None, "event_time_ms": time_ms,
    }  # fmt: skip
