"""Asks the ASGI application as a client would, without a socket."""

import asyncio
from typing import Any

import httpx
from starlette.applications import Starlette

from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import Snapshot
from streaming.serve.web import build_app
from streaming.settings import Settings

BASE_URL = "http://127.0.0.1:9464"


def app_of(snapshot: Snapshot, settings: Settings, *, now_ms: int) -> Starlette:
    """The application over one snapshot, at one time."""
    return build_app(lambda: snapshot, Exposition(snapshot, settings), settings, lambda: now_ms)


def ask(app: Starlette, method: str, path: str, **how: Any) -> httpx.Response:
    """One answer; an exception of the application is raised here."""

    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE_URL) as client:
            return await client.request(method, path, **how)

    return asyncio.run(asked())


def get(app: Starlette, path: str, **query: Any) -> httpx.Response:
    """The answer to a GET with this query."""
    return ask(app, "GET", path, params=query)
