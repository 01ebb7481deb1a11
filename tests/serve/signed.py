"""An application that people sign in to with a password, and their browsers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from streaming.runtime.accounts import Role, new_user, write_users
from tests.serve.asking import BASE_URL, ask
from tests.serve.served import Served
from tests.serve.synthetic import NOW_MS

PASSWORD = "three words that rhyme"  # noqa: S105
PATH = "/api/v1/session"


class Signed(Served):
    """Users ada (operator) and vic (viewer), both with `PASSWORD`."""

    def __init__(self, folder: Path, root: str, **serve: Any) -> None:
        self.users = folder / "users.json"
        roles = {"ada": Role.OPERATOR, "vic": Role.VIEWER}
        write_users(self.users, [new_user(name, role, PASSWORD, now_ms=NOW_MS) for name, role in roles.items()])
        super().__init__(folder, root, **{"users_file": str(self.users), **serve})

    def sign_in(self, name: str = "ada", password: str = PASSWORD, **how: Any) -> httpx.Response:
        how = {"site": BASE_URL, "headers": {}, "client": ("10.0.0.1", 1), **how}
        site = how.pop("site")
        headers = {"Origin": site, **how.pop("headers")}
        return ask(self.app, "POST", site + PATH, json={"name": name, "password": password}, headers=headers, **how)


class Browser:
    """A browser in which somebody has signed in: it sends the cookie and its origin by itself, the page its token."""

    def __init__(self, signed: Signed, name: str = "ada", site: str = BASE_URL, **how: Any) -> None:
        answer = signed.sign_in(name, site=site, **how)
        assert answer.status_code == 200, answer.text
        self.signed, self.site = signed, site
        self.set_cookie = answer.headers["set-cookie"]
        self.cookie = self.set_cookie.partition(";")[0]
        self.csrf_token = answer.json()["csrf_token"]

    def asks(self, method: str, path: str, headers: Mapping[str, str | bytes | None] | None = None) -> httpx.Response:
        """An answer; a header None is not sent."""
        own: dict[str, str | bytes | None] = {
            "Cookie": self.cookie,
            "Origin": self.site,
            "X-CSRF-Token": self.csrf_token,
        }
        own |= {"Idempotency-Key": f"a-key-{method}", **(headers or {})}
        sent = {name: value for name, value in own.items() if value is not None}
        return ask(self.signed.app, method, self.site + path, headers=sent)

    def acts(self, **headers: str | bytes | None) -> httpx.Response:
        """The answer to an act."""
        return self.asks("POST", "/api/v1/brokers/3/undrain", {k.replace("_", "-"): v for k, v in headers.items()})

    def is_signed_in(self) -> bool:
        signed_in: bool = self.asks("GET", PATH).json()["signed_in"]
        return signed_in
