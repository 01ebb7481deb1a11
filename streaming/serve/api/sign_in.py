"""Who asks: bearer tokens of `serve.tokens_file`, and a limit on wrong ones."""

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.requests import Request

from streaming.errors import UsageProblem
from streaming.runtime.api_tokens import ApiToken, Role, read_tokens, token_id_of
from streaming.serve.api.problems import Problem

log = structlog.get_logger()

WRONG_MAX = 10
"""Wrong tokens of one address in `WRONG_SPAN_MS`; after that its wrong ones get 429. A right one is never refused: an
address may be that of many people, and a secret of 256 bits can't be guessed at any rate."""
WRONG_SPAN_MS = 60_000
ADDRESSES_MAX = 10_000
ADDRESS_LENGTH_MAX = 64
"""A proxy may pass any text on."""

HOW_TO_TURN_ON = (
    "acting is off, as nobody can sign in: set serve.tokens_file, make a token with "
    "`rebalancer token create NAME --role operator`, and send it as `Authorization: Bearer TOKEN`"
)


@dataclass(frozen=True, slots=True)
class Person:
    """Who is signed in, and how: a person or a program."""

    name: str
    role: Role
    signed_in_by: str
    """For the audit: `token ID`."""
    remote_address: str


class SignIn:
    """Looks tokens up, in the file as it is now. For many threads. `file` None: nobody signs in."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: dict[str, ApiToken] = {}
        self._wrong: OrderedDict[str, deque[int]] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether anybody can sign in."""
        return self._file is not None

    def person(self, request: Request, *, now_ms: int) -> Person:
        """Who asks; raises Problem 401 without a token that holds, 429 after many, 503 where tokens can't be read."""
        address = request.client.host[:ADDRESS_LENGTH_MAX] if request.client else "unknown"
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if not text:
            raise _unauthorized("no token: send `Authorization: Bearer TOKEN`")
        with self._lock:
            known = self._known().get(token_id_of(text.strip()) or "") if scheme.lower() == "bearer" else None
            if known is not None and known.fits(text.strip(), now_ms=now_ms):
                return Person(known.name, known.role, f"token {known.token_id}", address)
            raise self._refused(address, now_ms)

    def _known(self) -> dict[str, ApiToken]:
        if self._file is None:
            return {}
        try:
            there = self._file.stat()
            stamp = there.st_mtime_ns, there.st_size, there.st_ino
            if stamp != self._stamp:
                self._tokens, self._stamp = read_tokens(self._file), stamp
        except (OSError, UsageProblem) as error:
            self._stamp = None
            log.warning("tokens_unreadable", error=str(error))
            raise Problem(503, "serve.tokens_file can't be read: see the log of serve") from None
        return self._tokens

    def _refused(self, address: str, now_ms: int) -> Problem:
        times = self._wrong.setdefault(address, deque(maxlen=WRONG_MAX + 1))
        self._wrong.move_to_end(address)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)
        while times and times[0] <= now_ms - WRONG_SPAN_MS:
            times.popleft()
        times.append(now_ms)
        if len(times) <= WRONG_MAX:
            log.warning("token_refused", remote_address=address)
            return _unauthorized("the token is unknown, revoked or expired")
        return Problem(429, "too many wrong tokens", headers={"Retry-After": str(WRONG_SPAN_MS // 1000)})


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
