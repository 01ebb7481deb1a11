"""An application that believes an issuer."""

from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from streaming.serve.api.audit import Actions
from tests.issuer import AUDIENCE, LocalIssuer
from tests.serve.asking import Acted, ask
from tests.serve.served import Served
from tests.serve.synthetic import NOW_MS

NOW_S = NOW_MS // 1000
ROLES = {"kafka-viewers": "viewer", "kafka-operators": "operator", "kafka-admins": "admin"}
ACT = "/api/v1/brokers/3/undrain"


class Believing(Served):
    """An application that believes an issuer."""

    def __init__(self, folder: Path, root: str, issuer: LocalIssuer, **serve: Any) -> None:
        own = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "oidc_roles": ROLES}
        super().__init__(folder, root, **(own | serve))

    def application(self, actions: Actions | None = None) -> Starlette:
        return super().application(actions or Acted())

    def shows(self, token: str) -> httpx.Response:
        """Who serve says that this is."""
        return ask(self.app, "GET", "/api/v1/session", headers={"Authorization": f"Bearer {token}"})

    def acts(self, token: str | None = None) -> Any:
        """The answer to an act, or the rows of the audit."""
        if token is None:
            return super().acts()
        return ask(self.app, "POST", ACT, headers={"Authorization": f"Bearer {token}", "Idempotency-Key": "a-key-123"})
