"""Queries Prometheus' HTTP API, within one limit of time and of bytes for the whole answer.

Knows nothing of what the metrics mean. Secrets are read here and go into the request's header, and nowhere else.
"""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from streaming.cluster.jmx_endpoints import answer_text
from streaming.errors import RebalancerError, UsageProblem
from streaming.runtime.http_errors import HTTP_ERRORS
from streaming.runtime.secrets import first_line, without_user_info
from streaming.settings import CollectSettings

LIMIT_S = 5.0
"""How long one query may take."""
REASON_CHARACTERS_MAX = 200


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
        """Returns the API that the settings name; None where they name none. Raises UsageProblem for an unreadable
        file.
        """
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
        verify = httpx.create_ssl_context() if url.startswith("https:") else False
        async with httpx.AsyncClient(
            timeout=LIMIT_S, transport=self.transport, verify=verify, auth=self._login(), headers=self._headers()
        ) as client:
            # The client's own limit begins anew with each byte that arrives.
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
