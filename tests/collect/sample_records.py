"""All byte-rate records of a look at once. The collector makes them in parts, of what is due."""

from collections.abc import Iterator, Mapping

from streaming.collect.rates import BrokerRates, ReplicaRateTable
from streaming.collect.reports import all_of, broker_records, replica_records
from streaming.collect.sample import ClusterSample


def byte_rate_records(
    cluster: str,
    before: ClusterSample,
    after: ClusterSample,
    replicas: ReplicaRateTable,
    brokers: Mapping[int, BrokerRates],
) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of one record per replica and one per broker; the key is the broker id."""
    yield from replica_records(cluster, all_of(replicas, after.time_ms, after.time_ms - before.time_ms))
    yield from broker_records(cluster, before, after, brokers)
