"""Weights for the load-aware assignors of a consumer group, as the product knows them: from its tables or its endpoint.

A group must go on without the monitor: a source that can't be reached gives nothing, which the assignors take as equal
weights, and logs it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import nan

import httpx
import structlog

from streaming.contract.records import PARTITION_MAX
from streaming.errors import TableUnavailable
from streaming.tables import TableReader, above, at_most, equal, is_known, of_cluster, one_of

log = structlog.get_logger()

WeightSource = Callable[[Sequence[str]], Mapping[str, Sequence[float]]]
"""Topics to the weights of their partitions, in partition order; what is unknown is NaN or left out."""

LOOK_BACK = timedelta(minutes=10)
MEASURE = "bytes_in_per_sec"
_UNANSWERED = (
    httpx.HTTPError, httpx.InvalidURL,
    OSError, ValueError, ImportError,  # of httpx, for certificates and proxies in the environment that can't be used
    LookupError, TypeError, AttributeError,  # another answer
)  # fmt: skip


def endpoint_weights(url: str, *, timeout_s: float = 3.0) -> WeightSource:
    """Bytes written per second in the newest closed window, from `/api/weights` of a serve process at `url`."""

    def weights(topics: Sequence[str]) -> Mapping[str, Sequence[float]]:
        try:
            answer = httpx.get(f"{url.rstrip('/')}/api/weights", params={"topic": list(topics)}, timeout=timeout_s)
            rates_by_topic = answer.raise_for_status().json()[MEASURE]
            return {topic: [nan if rate is None else rate for rate in rates] for topic, rates in rates_by_topic.items()}
        except _UNANSWERED as error:
            log.warning("weights_unavailable", source=url, error=f"{type(error).__name__}: {error}")
            return {}

    return weights


def table_weights(tables: str, kafka_cluster: str) -> WeightSource:
    """Mean bytes written per second over the newest ten minutes of `partition_load` below `tables`, folder or URI."""

    def weights(topics: Sequence[str]) -> Mapping[str, Sequence[float]]:
        try:
            return _mean_rates(TableReader(tables), kafka_cluster, topics)
        except TableUnavailable as error:
            log.warning("weights_unavailable", source=tables, error=str(error))
            return {}

    return weights


def _mean_rates(reader: TableReader, kafka_cluster: str, topics: Sequence[str]) -> dict[str, list[float]]:
    newest = reader.newest_of_cluster("partition_load", "window_start", kafka_cluster)
    if newest is None or not topics:
        return {}
    where = (
        of_cluster(kafka_cluster)
        & above("window_start", newest - LOOK_BACK)
        & equal("role", "leader")
        & is_known(MEASURE)
        & at_most("partition", PARTITION_MAX)
        & one_of("topic", topics)
    )
    rows = reader.arrow("partition_load", columns=("topic", "partition", MEASURE), where=where)
    means: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows.group_by(["topic", "partition"]).aggregate([(MEASURE, "mean")]).to_pylist():
        means[row["topic"]][row["partition"]] = row[f"{MEASURE}_mean"]
    return {topic: [known.get(p, nan) for p in range(max(known) + 1)] for topic, known in means.items()}
