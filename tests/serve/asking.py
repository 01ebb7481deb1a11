"""Asks the ASGI application as a client would, without a socket."""

import asyncio
from typing import Any

import httpx
from starlette.applications import Starlette

from assignor_core.live import LiveCluster
from assignor_core.restart import RestartCheck, restart_check
from streaming.commands.acting import JournalActions
from streaming.serve.api.audit import Actions, ActOutcome
from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import Snapshot, read_snapshot
from streaming.serve.web import build_app
from streaming.settings import Settings
from tests.serve.synthetic import NOW_MS

BASE_URL = "http://127.0.0.1:9464"


class Acted:
    """Stands in for journal and cluster: what was asked for."""

    def make_plan(self, *, now_ms: int) -> ActOutcome:  # noqa: ARG002
        return ActOutcome("planned", "a plan was made")

    def approve(
        self,
        plan_id: str,
        by: str,
        *,
        now_ms: int,  # noqa: ARG002
        begins_ms: int | None = None,  # noqa: ARG002
    ) -> ActOutcome:
        return ActOutcome("approved", f"{plan_id} is approved by {by}")

    def abort(self, execution_id: str, by: str, *, now_ms: int) -> ActOutcome:  # noqa: ARG002
        return ActOutcome("abort_asked", f"{execution_id} is asked to stop by {by}")

    def drain(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:  # noqa: ARG002
        return ActOutcome("approved" if carry_out else "planned", f"broker {broker} by {by}")

    def add(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:  # noqa: ARG002
        return ActOutcome("approved" if carry_out else "planned", f"broker {broker} by {by}")

    def demote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:  # noqa: ARG002
        return ActOutcome("planned", f"broker {broker}")

    def undemote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:  # noqa: ARG002
        return ActOutcome("planned", f"broker {broker}")

    def undrain(self, broker: int, by: str, *, now_ms: int) -> ActOutcome:  # noqa: ARG002
        return ActOutcome("undrained", f"broker {broker}")

    def restart_check(self, broker: int) -> RestartCheck:
        return restart_check(broker, LiveCluster("c", {broker: None}, {}), {})


def app_over(settings: Settings) -> Starlette:
    """The application over what the tables hold now."""
    return app_of(read_snapshot(settings, NOW_MS), settings, now_ms=NOW_MS)


def app_of(snapshot: Snapshot, settings: Settings, *, now_ms: int, actions: Actions | None = None) -> Starlette:
    """The application over one snapshot, at one time; by default its acts go into the journal."""
    acts = actions or JournalActions(settings)
    return build_app(lambda: snapshot, Exposition(snapshot, settings), settings, lambda: now_ms, acts)


def ask(
    app: Any, method: str, path: str, *, client: tuple[str, int] = ("127.0.0.1", 123), **how: Any
) -> httpx.Response:
    """One answer, to a request of the address `client`; an exception of the application is raised here."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=client)
        async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as asking:
            return await asking.request(method, path, **how)

    return asyncio.run(asked())


def get(app: Any, path: str, **query: Any) -> httpx.Response:
    """The answer to a GET with this query."""
    return ask(app, "GET", path, params=query)
