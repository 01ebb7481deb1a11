"""Weights for the load-aware assignors of a consumer group, as the product knows them: from its tables or its endpoint.

A group must go on without the monitor: a source that can't be reached gives nothing, which the assignors take as equal
weights, and logs it.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from math import nan
from threading import Thread
from typing import TypeVar
from urllib.parse import urlencode

import httpx
import structlog

from streaming.contract.records import PARTITION_MAX, RATE_MAX
from streaming.errors import TableUnavailable
from streaming.runtime.http_answers import HTTP_ERRORS, whole_answer
from streaming.runtime.secrets import without_user_info
from streaming.tables import TableReader, above, at_most, equal, is_known, of_cluster, one_of

log = structlog.get_logger()

WeightSource = Callable[[Sequence[str]], Mapping[str, Sequence[float]]]
"""Topics to the weights of their partitions, in partition order; what is unknown is NaN or left out."""

LOOK_BACK = timedelta(minutes=10)
MEASURE = "bytes_in_per_sec"
QUERY_CHARACTERS_MAX = 30_000
"""Most characters that name topics in one request; HTTP servers refuse longer ones, from 64 kB on."""
ANSWER_BYTES_MAX = 1 << 25
"""Most bytes of an answer."""
_UNANSWERED = (
    *HTTP_ERRORS,
    LookupError, TypeError, AttributeError,  # another answer
    RuntimeError,  # RecursionError of an answer, and a thread that can't start
)  # fmt: skip

Answer = TypeVar("Answer")


def endpoint_weights(url: str, *, timeout_s: float = 3.0, token: str | None = None) -> WeightSource:
    """Bytes written per second in the newest closed window, from `/api/weights` of a serve process at `url`.

    `timeout_s` is for all answers of one rebalance together. `token` is for a serve with `reading: signed_in`.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def weights(topics: Sequence[str]) -> Mapping[str, Sequence[float]]:
        try:
            return _within(timeout_s, lambda: asyncio.run(_newest_rates(url, topics, headers, timeout_s)))
        except httpx.HTTPStatusError as error:
            problem = f"HTTP {error.response.status_code}"
        except _UNANSWERED as error:
            problem = type(error).__name__  # its message may show the login of the URL
        log.warning("weights_unavailable", source=without_user_info(url), error=problem)
        return {}

    return weights


def _within(limit_s: float, work: Callable[[], Answer]) -> Answer:
    """What `work` returns, or raises. Raises TimeoutError after the limit, and leaves the work to end by itself.

    In a thread: nothing stops a name that is looked up, and the caller may have an event loop that runs.
    """
    done = Future[Answer]()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    Thread(target=run, name="weights", daemon=True).start()
    return done.result(limit_s)


async def _newest_rates(
    url: str, topics: Sequence[str], headers: Mapping[str, str], limit_s: float
) -> dict[str, list[float]]:
    """Raises what is in `_UNANSWERED`."""
    rates: dict[str, list[float]] = {}
    # The client's own limit starts again with each byte that arrives.
    async with asyncio.timeout(limit_s), httpx.AsyncClient(timeout=limit_s, headers=headers) as client:
        for query in _queries(topics):
            asked = f"{url.rstrip('/')}/api/weights?{query}"
            body = await whole_answer(client, asked, bytes_max=ANSWER_BYTES_MAX)
            if body is None:
                raise ValueError("answer too long")
            for topic, listed in json.loads(body)[MEASURE].items():
                rates[topic] = [_rate(value) for value in listed]
    return rates


def _queries(topics: Sequence[str]) -> Iterator[str]:
    """Queries that name all topics, each short enough for a server."""
    query = ""
    for topic in topics:
        named = urlencode({"topic": topic})
        if query and len(query) + len(named) >= QUERY_CHARACTERS_MAX:
            yield query
            query = ""
        query = f"{query}&{named}" if query else named
    if query:
        yield query


def _rate(value: object) -> float:
    """NaN, which is unknown, for all that is no rate."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return nan
    return float(value) if 0 <= value <= RATE_MAX else nan


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
