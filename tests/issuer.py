"""An OpenID Connect issuer for tests: on loopback, with keys of its own, and whatever it is told to do wrong."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlsplit

from joserfc import jws, jwt
from joserfc.jwk import ECKey
from joserfc.registry import HeaderParameter

AUDIENCE = "rebalancer-api"
CLIENT = "rebalancer page"
SECRET = "client s3cret: +"  # noqa: S105 - of an issuer that lives for a test


def make_key(key_id: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": key_id, "use": "sig"})


@dataclass
class LocalIssuer:
    """Change its fields while it runs."""

    now_s: int
    """The time at which it signs."""
    url: str = ""
    keys: list[Any] = field(default_factory=lambda: [make_key("first")])
    """Published; the last one signs."""
    described: dict[str, Any] = field(default_factory=dict)
    """Members of its description in place of the right ones."""
    bodies: dict[str, bytes] = field(default_factory=dict)
    """Answers by path in place of the right ones."""
    statuses: dict[str, int] = field(default_factory=dict)
    endless: bool = False
    """It sends a byte at a time and never ends an answer."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    """What was asked for by code; each code is good once."""
    answered: dict[str, Any] = field(default_factory=dict)
    """Claims of ID tokens in place of the right ones."""
    basic: bool = True
    """Whether the client shows its secret in a header, or in the form."""
    forms: list[dict[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def claims(self, **claims: Any) -> dict[str, Any]:
        """Those of a program that may act; a claim None is left out."""
        own = {
            "iss": self.url, "aud": AUDIENCE, "sub": "s-1", "preferred_username": "deploy-bot",
            "roles": ["kafka-operators"], "iat": self.now_s, "nbf": self.now_s, "exp": self.now_s + 300,
        }  # fmt: skip
        return {name: value for name, value in (own | claims).items() if value is not None}

    def token(self, *, key: Any = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A JWT, signed by `key` or by the last of its own."""
        key = key or self.keys[-1]
        head = {"alg": "ES256", "kid": key.kid, **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        registry = jws.JWSRegistry({"x-own": HeaderParameter("", "str")}, [head["alg"]])
        return jwt.encode(head, self.claims(**claims), key, registry=registry, default_type=None)

    def _description(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize?realm=main",
            "token_endpoint": f"{self.url}/token",
            "token_endpoint_auth_methods_supported": ["client_secret_basic" if self.basic else "client_secret_post"],
        }

    def approve(self, location: str) -> dict[str, str]:
        """Somebody has signed in at `location`: the query with which their browser is sent back."""
        assert location.startswith(f"{self.url}/authorize?realm=main&"), location
        given = dict(parse_qsl(urlsplit(location).query))
        assert (given["response_type"], given["code_challenge_method"]) == ("code", "S256")
        assert "openid" in given["scope"].split()
        code = f"code-{len(self.codes) + len(self.forms)}"
        self.codes[code] = given
        return {"code": code, "state": given["state"], "iss": self.url}

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        """(Status, body) of a POST for the tokens of a code (RFC 6749, 4.1.3; RFC 7636, 4.6)."""
        self.forms.append(form)
        basic = base64.b64encode(f"{quote_plus(CLIENT)}:{quote_plus(SECRET)}".encode()).decode()
        if self.basic and authorization != f"Basic {basic}":
            return 401, b'{"error": "invalid_client"}'
        if not self.basic and (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET):
            return 401, b'{"error": "invalid_client"}'
        given = self.codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if given is None or given["code_challenge"] != challenge or given["redirect_uri"] != form["redirect_uri"]:
            return 400, b'{"error": "invalid_grant"}'
        person = {"aud": CLIENT, "sub": "p-1", "preferred_username": "ada", "nonce": given["nonce"]}
        id_token = self.token(**(person | self.answered))
        return 200, json.dumps({"access_token": "x", "token_type": "Bearer", "id_token": id_token}).encode()

    def answer(self, path: str) -> tuple[int, bytes]:
        """(Status, body) of a GET."""
        self.asked.append(path)
        right: dict[str, Any] = {
            "/.well-known/openid-configuration": self._description() | self.described,
            "/keys": {"keys": [key.as_dict(private=False) for key in self.keys]},
        }
        if path not in right:
            return 404, b"{}"
        return self.statuses.get(path, 200), self.bodies.get(path, json.dumps(right[path]).encode())


@contextmanager
def local_issuer(now_s: int) -> Iterator[LocalIssuer]:
    """An issuer whose clock shows `now_s`."""
    state = LocalIssuer(now_s)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*state.answer(self.path))

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            status, body = state.exchange(form, self.headers.get("Authorization", ""))
            self._send(state.statuses.get(self.path, status), state.bodies.get(self.path, body))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == 302:
                self.send_header("Location", f"{state.url}/keys")
            self.send_header("Content-Length", str(10_000_000 if state.endless else len(body)))
            self.end_headers()
            try:
                while state.endless and not state.ended.wait(0.02):
                    self.wfile.write(b" ")
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
