"""A server of tokens for tests: signed JWTs for one client by client credentials, and the keys that verify them (JWKS).

The key is made, and tokens are signed, by openssl.
"""

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tests.waiting import DEADLINE_S

CLIENT = "rebalancer"
SECRET = 'client s3cret \\ "quoted"'  # noqa: S105 - of a server that lives for a test
AUDIENCE = "kafka"
ISSUER = "https://tokens.example"
KEY_ID = "test-key"


@dataclass
class TokenServer:
    """Answers POST with tokens of `life_s` and GET with the keys. Change its fields while it runs."""

    key: Path
    life_s: float = 3600.0
    status: int = 200
    """200 gives tokens; any other is what the server answers instead."""
    url: str = ""
    handed_out: list[str] = field(default_factory=list)
    """What the clients that got a token call themselves (`User-Agent`)."""
    refused: int = 0

    def token(self, *, life_s: float | None = None, key: Path | None = None, subject: str = CLIENT) -> str:
        """A JWT (RS256), signed by `key` or by the server's own."""
        now_s = time.time()
        claims = {
            "iss": ISSUER, "sub": subject, "aud": AUDIENCE, "scope": "kafka", "iat": int(now_s),
            "exp": int(now_s + (self.life_s if life_s is None else life_s)), "jti": str(now_s),
        }  # fmt: skip
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
        command = ["openssl", "dgst", "-sha256", "-sign", str(key or self.key)]
        answer = subprocess.run(command, input=signed.encode(), capture_output=True, check=True, timeout=DEADLINE_S)
        return f"{signed}.{_base64(answer.stdout)}"

    def keys(self) -> bytes:
        """The JWKS that verifies these tokens (RFC 7517)."""
        command = ["openssl", "rsa", "-in", str(self.key), "-noout", "-modulus"]
        answer = subprocess.run(command, capture_output=True, check=True, text=True, timeout=DEADLINE_S)
        modulus = bytes.fromhex(answer.stdout.strip().partition("=")[2])
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID, "n": _base64(modulus), "e": "AQAB"}
        return json.dumps({"keys": [key]}).encode()

    def answer(self, headers: Mapping[str, str], form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """(Status, body) of a request for a token."""
        expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if self.status != 200:
            return self.status, {"error": "temporarily_unavailable"}
        authorization = headers.get("Authorization", "")
        if authorization != expected or form.get("grant_type") != ["client_credentials"]:
            self.refused += 1
            return 401, {"error": "invalid_client", "error_description": f"got {authorization}"}
        self.handed_out.append(headers.get("User-Agent", ""))
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.life_s}


def make_key(path: Path) -> Path:
    """An RSA key, PEM."""
    command = ["openssl", "genrsa", "-out", str(path), "2048"]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    return path


@contextmanager
def token_server(key: Path, certificates: Path | None = None) -> Iterator[TokenServer]:
    """A server on loopback; over HTTPS with the broker's certificate of `certificates` (see `tests.kafka.secured`)."""
    state = TokenServer(key)
    keys = state.keys()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, keys)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, body = state.answer(dict(self.headers), form)
            self._send(status, json.dumps(body).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificates is not None:
        scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "broker.pem", certificates / "broker.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    state.url = f"{scheme}://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
