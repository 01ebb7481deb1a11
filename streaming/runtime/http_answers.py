"""Answers of others by HTTP, read as far as they may be long."""

import httpx


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
