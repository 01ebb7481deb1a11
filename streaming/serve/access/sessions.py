"""Sessions of people who signed in. In memory, of this process: a restart of serve ends them all.

Of the random id in a cookie only a hash is kept.
"""

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import structlog
from starlette.requests import Request
from starlette.responses import Response

from streaming.errors import UsageProblem
from streaming.runtime.accounts import Roles, User, read_users, user_with
from streaming.serve.api.problems import ApiProblem
from streaming.settings import ServeSettings

log = structlog.get_logger()
Row = TypeVar("Row")
OF_USER_MAX = 10
"""Beyond, the session of the user that was used longest ago ends."""
SESSIONS_MAX = 10_000
"""Beyond, the one that was used longest ago ends: an issuer may know any number of people."""
COOKIE = "rebalancer_session"
FORM = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


class Watched(Generic[Row]):
    """Rows by name or id, read again after each change of the file. `name` is `tokens` or `users`. For one thread."""

    def __init__(self, file: Path | None, read: Callable[[Path], dict[str, Row]], name: str) -> None:
        self._file = file
        self._read = read
        self._name = name
        self._stamp: tuple[int, ...] | None = None
        self._rows: Mapping[str, Row] = {}

    @property
    def is_set(self) -> bool:
        """Whether there is such a file in the settings."""
        return self._file is not None

    def now(self) -> Mapping[str, Row]:
        """The rows; raises ApiProblem 503 where they can't be read, as then nobody can be known."""
        if self._file is None:
            return {}
        try:
            there = self._file.stat()
            stamp = there.st_mtime_ns, there.st_size, there.st_ino, there.st_mode
            if stamp != self._stamp:
                self._rows, self._stamp = self._read(self._file), stamp
        except (OSError, UsageProblem) as error:
            self._stamp = None
            log.warning(f"{self._name}_unreadable", error=str(error))
            raise ApiProblem(
                503, f"serve.{self._name}_file can't be read, so nobody in it can sign in: see the log of serve"
            ) from None
        return self._rows


@dataclass(frozen=True, slots=True)
class Session:
    """One session. `session_id` is its name for the audit and logs: nobody can sign in with it."""

    session_id: str
    name: str
    roles: Roles
    user_stamp: str | None
    """Stamp of a user of the users file, as it was at the sign-in; None for somebody whom the issuer knows."""
    subject: str | None
    """The issuer's id of somebody."""
    csrf_token: str
    started_ms: int
    used_ms: int

    @property
    def signed_in_by(self) -> str:
        """The session's name for the audit."""
        return f"session {self.session_id}" if self.subject is None else f"oidc {self.subject}"

    @property
    def owner(self) -> tuple[str | None, str]:
        """Whose it is: names of the issuer are not those of the users file, and may change."""
        return self.subject, self.name if self.subject is None else ""


def cookie_name(request: Request) -> str:
    """Over TLS a name that browsers let no other host and no page without TLS set (RFC 6265bis, 4.1.3.2)."""
    return f"__Host-{COOKIE}" if is_secure(request) else COOKIE


def is_secure(request: Request) -> bool:
    """Whether the browser asked over TLS: of serve itself, or of a trusted proxy that says so."""
    return request.url.scheme == "https"


class Sessions:
    """Begins, finds and ends sessions, by the users file as it is now. For many threads."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._users = Watched(settings.users_file, read_users, "users")
        self._lock = threading.Lock()
        self._by_hash: dict[str, Session] = {}

    @property
    def is_on(self) -> bool:
        """Whether anybody can sign in with a password."""
        return self._users.is_set

    def user(self, name: str, password: str) -> User | None:
        """The user whose name and password these are; an unknown name takes as long as a wrong password.

        Raises ApiProblem 503 and ValueError.
        """
        with self._lock:
            users = self._users.now()
        return user_with(users, name, password)

    def begin(self, user: User, *, now_ms: int) -> tuple[str, Session]:
        """A new session of a user of the file, and the id for its cookie."""
        return self._begin(user.name, user.roles, user.stamp, None, now_ms)

    def begin_of_subject(self, subject: str, name: str, roles: Roles, *, now_ms: int) -> tuple[str, Session]:
        """Returns a new session of somebody whom the issuer knows, and the id for its cookie. Their roles are those of
        now, to the end of the session.
        """
        return self._begin(name, roles, None, subject, now_ms)

    def end_of_subject(self, subject: str) -> None:
        """End all sessions of somebody whom the issuer knows."""
        with self._lock:
            self._by_hash = {key: one for key, one in self._by_hash.items() if one.subject != subject}

    def _begin(
        self, name: str, roles: Roles, stamp: str | None, subject: str | None, now_ms: int
    ) -> tuple[str, Session]:
        secret, number = secrets.token_urlsafe(32), secrets.token_hex(6)
        session = Session(number, name, roles, stamp, subject, secrets.token_urlsafe(32), now_ms, now_ms)
        with self._lock:
            self._by_hash = {key: one for key, one in self._by_hash.items() if self.ends_in_ms(one, now_ms=now_ms) > 0}
            own = [key for key, one in self._by_hash.items() if one.owner == session.owner]
            for keys, most in ((own, OF_USER_MAX), (list(self._by_hash), SESSIONS_MAX)):
                if len(keys) >= most:
                    self._by_hash.pop(min(keys, key=lambda key: self._by_hash[key].used_ms))
                    break
            self._by_hash[_hash(secret)] = session
        return secret, session

    def find(self, request: Request, *, now_ms: int, is_used: bool = False) -> Session | None:
        """The session of the cookie, if it holds; `is_used` begins its idle time anew. Raises ApiProblem 503."""
        key = self._key(request)
        with self._lock:
            session = self._by_hash.get(key)
            if session is None:
                return None
            if not self._is_same_user(session) or self.ends_in_ms(session, now_ms=now_ms) <= 0:
                del self._by_hash[key]
                return None
            if is_used:
                session = self._by_hash[key] = replace(session, used_ms=max(now_ms, session.used_ms))
            return session

    def end(self, request: Request) -> None:
        """End the session of the cookie, if there is one."""
        with self._lock:
            self._by_hash.pop(self._key(request), None)

    def ends_in_ms(self, session: Session, *, now_ms: int) -> int:
        """When it ends unless it is used, ms from now."""
        own = self._settings
        return min(session.started_ms + own.session_ms, session.used_ms + own.session_idle_ms) - now_ms

    def _is_same_user(self, session: Session) -> bool:
        if session.user_stamp is None:
            return True
        user = self._users.now().get(session.name)
        return user is not None and user.stamp == session.user_stamp

    def _key(self, request: Request) -> str:
        secret = request.cookies.get(cookie_name(request), "")
        return _hash(secret) if FORM.fullmatch(secret) else ""


def set_session_cookie(request: Request, answer: Response, secret: str) -> None:
    """No script reads it, and no other site makes browsers send it."""
    answer.set_cookie(
        cookie_name(request), secret, path="/", secure=is_secure(request), httponly=True, samesite="strict"
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
