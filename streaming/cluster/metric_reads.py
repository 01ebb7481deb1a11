"""Reads metrics by HTTP: from all brokers' JMX endpoints at the same time, or from a Prometheus that scrapes them.

Each answer has one limit of time and one of bytes. Knows nothing of what the metrics mean: `streaming.collect.counters`
and `streaming.control.latency` do. Secrets go into the header of a request, and nowhere else.
"""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from streaming.errors import RebalancerError, UsageProblem
from streaming.runtime.http_answers import HTTP_ERRORS, verification, whole_answer
from streaming.runtime.secrets import first_line, without_user_info
from streaming.settings import CollectSettings

REQUESTS_AT_A_TIME = 32
SCRAPE_BYTES_MAX = 64_000_000
"""A broker with 10,000 topics answers with some 5 MB."""
LIMIT_S = 5.0
"""How long one query may take."""
REASON_CHARACTERS_MAX = 200


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
            # The client's own limit starts again with each byte that arrives.
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
        made = httpx.AsyncClient(timeout=limit_s, transport=transport, verify=verification(*urls.values()))
    except HTTP_ERRORS as error:
        return Scrapes(problems=dict.fromkeys(sorted(urls), type(error).__name__))
    async with made as client:
        await asyncio.gather(*(ask(client, broker, url) for broker, url in sorted(urls.items())))
    return scrapes


async def answer_text(client: httpx.AsyncClient, url: str) -> str | None:
    """The whole answer; None where it is longer than any broker's. Raises httpx.HTTPError."""
    body = await whole_answer(client, url, bytes_max=SCRAPE_BYTES_MAX)
    return None if body is None else body.decode(errors="replace")


class QueryFailed(RebalancerError):
    """Prometheus gave no answer, or another one than was asked for; the message is one line without secrets."""


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """One Prometheus; `transport` None is the network. It holds secrets and does not show them."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: CollectSettings, transport: httpx.AsyncBaseTransport | None = None) -> "PrometheusApi | None":
        """The API that the settings name, None without one; raises UsageProblem for an unreadable file."""
        if settings.prometheus_url is None:
            return None
        password, token = settings.prometheus_password, settings.prometheus_bearer_token
        api = cls(
            settings.prometheus_url.rstrip("/"), settings.prometheus_username,
            password.get_secret_value() if password else None, settings.prometheus_password_file,
            token.get_secret_value() if token else None, settings.prometheus_bearer_token_file, transport,
        )  # fmt: skip
        # A secret's file that can't be read is a mistake at the start, and later a failed query.
        api._login()
        api._headers()
        return api

    def query(self, expression: str, *, time_s: float) -> dict[str, Any]:
        """The answer to an instant query; raises QueryFailed."""
        parameters = urlencode({"query": expression, "time": f"{time_s:.3f}"})
        try:
            return asyncio.run(self._query(f"{self.url}/api/v1/query?{parameters}"))
        except httpx.HTTPStatusError as error:
            reason = " ".join(error.response.reason_phrase.split())
            problem = f"HTTP {error.response.status_code} {reason}"
        except UsageProblem as error:
            problem = str(error)
        except HTTP_ERRORS as error:
            problem = type(error).__name__
        raise QueryFailed(f"{without_user_info(self.url)}: {problem[:REASON_CHARACTERS_MAX]}") from None

    async def _query(self, url: str) -> dict[str, Any]:
        async with httpx.AsyncClient(
            timeout=LIMIT_S,
            transport=self.transport,
            verify=verification(url),
            auth=self._login(),
            headers=self._headers(),
        ) as client:
            # The client's own limit starts again with each byte that arrives.
            async with asyncio.timeout(LIMIT_S):
                text = await answer_text(client, url)
        if text is None:
            raise QueryFailed(f"{without_user_info(self.url)}: AnswerTooLarge")
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ValueError("no object")
        return answer

    def _login(self) -> httpx.BasicAuth | None:
        if self.username is None:
            return None
        password = self.password
        if self.password_file is not None:
            password = first_line(self.password_file, "collect.prometheus_password_file")
        return httpx.BasicAuth(self.username, password or "")

    def _headers(self) -> dict[str, str]:
        token = self.token
        if self.token_file is not None:
            token = first_line(self.token_file, "collect.prometheus_bearer_token_file")
        return {} if token is None else {"Authorization": f"Bearer {token}"}
