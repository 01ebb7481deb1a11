"""Reads metrics from the brokers' JMX endpoints, all at the same time, each within one limit for the whole answer.

Knows nothing of what the metrics mean: `streaming.collect.counters` and `streaming.control.latency` do.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ssl import SSLContext

import httpx

from streaming.runtime.http_answers import whole_answer
from streaming.runtime.http_errors import HTTP_ERRORS

REQUESTS_AT_A_TIME = 32
SCRAPE_BYTES_MAX = 64_000_000
"""A broker with 10,000 topics answers with some 5 MB."""


@dataclass(frozen=True, slots=True)
class Scrapes:
    """What the endpoints answered, by broker id; each broker is in one of both."""

    answers: dict[int, str] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    """Name of the error."""


def scrape(
    urls: Mapping[int, str],
    *,
    limit_s: float,
    on_answer: Callable[[int], None] = lambda _broker: None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Scrapes:
    """Ask each of `urls`, by broker id, once. `limit_s` bounds an answer from the first packet to the last byte.

    `on_answer` is called with the broker's id at the moment its answer is complete. `transport` None: the network.
    """
    return asyncio.run(_scrape(urls, limit_s, on_answer, transport)) if urls else Scrapes()


def sample_value(line: str) -> float | None:
    """Value of a line of Prometheus' text format, its timestamp apart; None where it is no finite number.

    >>> sample_value('p99{request="Produce"} 12.5 1700000000000'), sample_value("p99 NaN"), sample_value("p99")
    (12.5, None, None)
    """
    numbers = line.rpartition("}")[2] if "{" in line else line.partition(" ")[2]
    try:
        value = float(numbers.split()[0])
    except (ValueError, IndexError):  # torn off, or no scrape
        return None
    return value if math.isfinite(value) else None


async def _scrape(
    urls: Mapping[int, str],
    limit_s: float,
    on_answer: Callable[[int], None],
    transport: httpx.AsyncBaseTransport | None,
) -> Scrapes:
    scrapes = Scrapes()
    free = asyncio.Semaphore(REQUESTS_AT_A_TIME)

    async def ask(client: httpx.AsyncClient, broker: int, url: str) -> None:
        try:
            # The client's own limit begins anew with each byte that arrives.
            async with free, asyncio.timeout(limit_s):
                text = await answer_text(client, url)
        except HTTP_ERRORS as error:
            scrapes.problems[broker] = type(error).__name__
            return
        if text is None:
            scrapes.problems[broker] = "AnswerTooLarge"
            return
        on_answer(broker)
        scrapes.answers[broker] = text

    try:
        made = httpx.AsyncClient(timeout=limit_s, transport=transport, verify=_verification(urls))
    except HTTP_ERRORS as error:
        return Scrapes(problems=dict.fromkeys(sorted(urls), type(error).__name__))
    async with made as client:
        await asyncio.gather(*(ask(client, broker, url) for broker, url in sorted(urls.items())))
    return scrapes


async def answer_text(client: httpx.AsyncClient, url: str) -> str | None:
    """The whole answer; None where it is longer than any broker's. Raises httpx.HTTPError."""
    body = await whole_answer(client, url, bytes_max=SCRAPE_BYTES_MAX)
    return None if body is None else body.decode(errors="replace")


def _verification(urls: Mapping[int, str]) -> SSLContext | bool:
    """Certificates are loaded, 20 ms of CPU, only where one of the URLs needs them."""
    return httpx.create_ssl_context() if any(url.startswith("https:") for url in urls.values()) else False
