"""Answers of others by HTTP: what a request may fail with, and bodies that may be too long."""

from ssl import SSLContext

import httpx

HTTP_ERRORS = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError)
"""Errors that httpx raises, also when it makes its client. OSError: `SSL_CERT_FILE` is missing or holds no certificate.
ValueError: a proxy has a scheme that is none. ImportError: a proxy has a scheme that needs another package.
TimeoutError is an OSError.
"""


def verification(*urls: str) -> SSLContext | bool:
    """How certificates are verified: they are loaded, 20 ms of CPU, only if one of the URLs needs them."""
    return httpx.create_ssl_context() if any(url.startswith("https:") for url in urls) else False


async def whole_answer(client: httpx.AsyncClient, url: str, *, bytes_max: int) -> bytes | None:
    """The body of the answer to a GET; None where it is longer. Raises httpx.HTTPError."""
    body = bytearray()
    async with client.stream("GET", url) as answer:
        answer.raise_for_status()
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > bytes_max:
                return None
    return bytes(body)
