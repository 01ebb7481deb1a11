"""An OpenID Connect issuer for tests: on loopback, with keys of its own, and whatever it is told to do wrong."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jws, jwt
from joserfc.jwk import ECKey
from joserfc.registry import HeaderParameter

AUDIENCE = "rebalancer-api"


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

    def answer(self, path: str) -> tuple[int, bytes]:
        """(Status, body) of a GET."""
        self.asked.append(path)
        right: dict[str, Any] = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.described},
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
            status, body = state.answer(self.path)
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
