"""An application that acts, over tables in memory, and those who ask it."""

import uuid
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from streaming.commands.acting import JournalActions
from streaming.control.journal import Journal
from streaming.control.wiring import journal_of
from streaming.runtime.accounts import Role, new_token, write_tokens
from streaming.serve.api.audit import Actions
from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import read_snapshot
from streaming.serve.web import build_app
from streaming.settings import Settings
from streaming.tables import read
from tests.serve.asking import ask
from tests.serve.synthetic import NOW_MS, settings_for

YEAR_MS = 365 * 86_400_000
ACT_PATHS = (
    "plans",
    f"plans/{'a' * 64}/approve",
    "executions/e-1/abort",
    "brokers/3/drain",
    "brokers/3/add",
    "brokers/3/demote",
    "brokers/3/undemote",
    "brokers/3/undrain",
)


class Served:
    """An application over tables in memory, with a token for each role; `clock_ms` may be set."""

    def __init__(self, folder: Path, root: str, **serve: Any) -> None:
        self.file = folder / "tokens.json"
        made = {role: new_token(f"{role}-1", role, now_ms=NOW_MS, expires_ms=NOW_MS + YEAR_MS) for role in Role}
        write_tokens(self.file, [kept for _, kept in made.values()])
        self.tokens = {role: text for role, (text, _) in made.items()}
        serve = {"tokens_file": str(self.file), **serve}
        self.settings = Settings.model_validate(
            settings_for(folder, serve=serve).model_dump() | {"storage": {"tables": root}}
        )
        self.clock_ms = NOW_MS
        self.app = self.application()

    def application(self, actions: Actions | None = None) -> Starlette:
        """The application that is asked; made once, as that takes longer than most requests."""
        snapshot, acts = read_snapshot(self.settings, NOW_MS), actions or JournalActions(self.settings)
        exposition = Exposition(snapshot, self.settings)
        return build_app(lambda: snapshot, exposition, self.settings, lambda: self.clock_ms, acts)

    @property
    def journal(self) -> Journal:
        return journal_of(self.settings)

    def post(self, path: str, *, role: Role = Role.OPERATOR, key: str | None = None, **how: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}", "Idempotency-Key": key or uuid.uuid4().hex}
        headers |= how.pop("headers", {})
        return ask(self.app, "POST", f"/api/v1/{path}", headers=headers, **how)

    def get(self, path: str, role: Role | None = Role.VIEWER) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return ask(self.app, "GET", path, headers=headers)

    def acts(self) -> list[dict[str, Any]]:
        return read(self.settings.storage.tables, "audit")


def state(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["state"]


def refusal(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    return response.status_code, response.json()["detail"]
