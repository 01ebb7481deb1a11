"""Accounts: people with passwords and programs with API tokens, as one file of each kind holds them.

Files are read whole, replaced in one step and changed one at a time. They hold hashes alone. An API token is
`rbt_ID_SECRET`: its secret has 256 random bits, so one SHA-256 of it can't be guessed back. A password can be guessed,
so its hash is slow and salted (scrypt, RFC 7914).
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from streaming.errors import UsageProblem

FILE_BYTES_MAX = 1_000_000
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
LOCK_TRIES = 100
LOCK_PAUSE_S = 0.1
TOKENS_FILE, USERS_FILE = "tokens file", "users file"
"""What messages call the two kinds of file."""
FORM = re.compile(r"rbt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
NAME_LENGTH_MAX = 100
TOKENS_MAX = 1_000
USERS_MAX = 1_000
PASSWORD_LENGTH_MIN = 12
PASSWORD_LENGTH_MAX = 1_000
HASH = "scrypt n=16384 r=8 p=5"
"""The one form of hashes so far, one of those that OWASP's Password Storage Cheat Sheet names. Each takes 16 MiB."""
COST = {"n": 16_384, "r": 8, "p": 5}
SALT = re.compile(r"[0-9a-f]{32}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
OTHERS_READ = stat.S_IROTH


def read_private(file: Path, what: str, *, refused_modes: int = OTHERS_WRITE) -> bytes:
    """What the file holds. `what` begins messages, like `tokens file`.

    Raises OSError, UsageProblem for a mode that has any of `refused_modes`, and ValueError for what is too large.
    """
    with file.open("rb") as opened:
        mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
        content = opened.read(FILE_BYTES_MAX + 1)
    if mode & OTHERS_WRITE:
        raise UsageProblem(f"{what} {file}: others than its owner may write it (mode {mode:04o}): chmod go-w")
    if mode & refused_modes:
        raise UsageProblem(f"{what} {file}: everybody may read it (mode {mode:04o}): chmod o-r")
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes")
    return content


def replace_private(file: Path, content: str, what: str) -> None:
    """Write the file; raises UsageProblem. A new one is its owner's alone; one that is there keeps its readers."""
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            _let_read(handle, file)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageProblem(f"{what} {file}: {error.strerror or error}") from None


@contextmanager
def one_change(file: Path, what: str) -> Iterator[Path]:
    """One change at a time: of two that read the same file, one would be lost. Raises UsageProblem."""
    try:
        lock = file.with_name(f".{file.name}.lock").open("w")
    except OSError as error:
        raise UsageProblem(f"{what} {file}: {error.strerror or error}") from None
    with lock:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_S)
        else:
            waited_s = LOCK_TRIES * LOCK_PAUSE_S
            raise UsageProblem(f"{what} {file}: another command has changed it for {waited_s:.0f} s: try again")
        yield file


def _let_read(handle: int, file: Path) -> None:
    """Lets who may read `file` read the file that replaces it, as serve may be another user; none may write it."""
    try:
        there = file.stat()
        os.fchown(handle, there.st_uid, there.st_gid)
    except (FileNotFoundError, PermissionError):
        return
    os.fchmod(handle, stat.S_IMODE(there.st_mode) & ~OTHERS_WRITE)


class Role(StrEnum):
    """What who is signed in may do: each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: "Role") -> bool:
        """Returns whether the role may do what requires `needed`."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token as the file has it; raises ValueError and TypeError for what is none."""

    token_id: str
    name: str
    role: Role
    sha256: str
    created_ms: int
    expires_ms: int

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.token_id) or not SHA256.fullmatch(self.sha256):
            raise ValueError(f"token {self.token_id!r}: id or hash is none")
        if not 1 <= len(self.name) <= NAME_LENGTH_MAX or not self.name.isprintable():
            raise ValueError(f"token {self.token_id}: name must be 1 to {NAME_LENGTH_MAX} printable characters")
        if type(self.created_ms) is not int or type(self.expires_ms) is not int:
            raise ValueError(f"token {self.token_id}: created_ms and expires_ms must be whole numbers")

    def fits(self, token: str, *, now_ms: int) -> bool:
        """Whether this is the text of it, and it has not expired."""
        return hmac.compare_digest(self.sha256, _hash(token)) and now_ms < self.expires_ms


def new_token(name: str, role: Role, *, now_ms: int, expires_ms: int) -> tuple[str, ApiToken]:
    """The text of a new token, which is kept nowhere, and what the file keeps."""
    token_id = secrets.token_hex(6)
    text = f"rbt_{token_id}_{secrets.token_urlsafe(32)}"
    return text, ApiToken(token_id, name, role, _hash(text), now_ms, expires_ms)


def token_id_of(text: str) -> str | None:
    """The id in the text of a token; None of a text that is none."""
    match = FORM.fullmatch(text)
    return match[1] if match else None


def read_tokens(file: Path) -> dict[str, ApiToken]:
    """Tokens by id; raises UsageProblem, also where the file is not there."""
    return {row.token_id: row for row in _read(file, ApiToken, OTHERS_WRITE, "token_id", "token create")}


def write_tokens(file: Path, tokens: Iterable[ApiToken]) -> None:
    """Write the file; raises UsageProblem. A new one is its owner's alone; one that is there keeps its readers."""
    _write(file, list(tokens), TOKENS_FILE, TOKENS_MAX, "revoke")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class User:
    """A person as the file has them; raises ValueError and TypeError for what is none."""

    name: str
    role: Role
    hash: str
    salt: str
    digest: str
    changed_ms: int
    """When role or password were set."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.hash != HASH or not SALT.fullmatch(self.salt) or not DIGEST.fullmatch(self.digest):
            raise ValueError(f"user {self.name!r}: hash, salt or digest is none")
        if type(self.changed_ms) is not int:
            raise ValueError(f"user {self.name!r}: changed_ms must be a whole number")

    @property
    def stamp(self) -> str:
        """Another text after each change of the role or password, and for somebody else who gets the name later."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()


Account = TypeVar("Account", ApiToken, User)


def check_name(name: str) -> None:
    """Raises ValueError for what is no name of a user."""
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable() or name != name.strip():
        raise ValueError(f"user name: must be 1 to {NAME_LENGTH_MAX} printable characters, no space at its ends")


def check_password(password: str) -> None:
    """Raises ValueError for a password that is too short or too long. No rule asks for kinds of characters."""
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        limits = f"{PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX}"
        raise ValueError(f"password: must have {limits} characters, has {len(password)}")


def new_user(name: str, role: Role, password: str, *, now_ms: int) -> User:
    """A user with a salt of their own; takes as long as a sign-in. Raises ValueError."""
    check_name(name)
    check_password(password)
    salt = secrets.token_hex(16)
    return User(name, role, HASH, salt, _digest(password, salt), now_ms)


NOBODY = User("nobody", Role.VIEWER, HASH, secrets.token_hex(16), secrets.token_hex(32), 0)


def user_with(users: Mapping[str, User], name: str, password: str) -> User | None:
    """The user whose name and password these are. An unknown name takes as long as a wrong password.

    Raises ValueError for a password that is no Unicode text.
    """
    known = users.get(name)
    user = known or NOBODY
    fits = hmac.compare_digest(user.digest, _digest(password, user.salt))
    return known if fits else None


def read_users(file: Path) -> dict[str, User]:
    """Users by name; raises UsageProblem, also where the file is not there."""
    return {row.name: row for row in _read(file, User, OTHERS_WRITE | OTHERS_READ, "name", "user add")}


def write_users(file: Path, users: Iterable[User]) -> None:
    """Write the file; raises UsageProblem. A new one is its owner's alone; one that is there keeps its readers."""
    _write(file, list(users), USERS_FILE, USERS_MAX, "remove")


def _read(file: Path, kind: type[Account], refused_modes: int, key: str, made_by: str) -> list[Account]:
    """The accounts of one kind that a file holds, each with another `key`; `made_by` is the command that makes it."""
    what, of = (TOKENS_FILE, "token") if kind is ApiToken else (USERS_FILE, "user")
    try:
        rows = json.loads(read_private(file, what, refused_modes=refused_modes))[f"{of}s"]
        accounts = [kind(**{**row, "role": Role(row["role"])}) for row in rows]
        if len({getattr(row, key) for row in accounts}) < len(accounts):
            raise ValueError(f"two {of}s have the same {key.removeprefix('token_')}")
    except OSError as error:
        raise UsageProblem(f"{what} {file}: {error.strerror or error}; `rebalancer {made_by}` makes it") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageProblem(f"{what} {file}: is not one of `rebalancer {of}`: {error}") from None
    return accounts


def _write(file: Path, accounts: Sequence[Account], what: str, most: int, remedy: str) -> None:
    of = what.partition(" ")[0]
    if len(accounts) > most:
        raise UsageProblem(f"{what} {file}: {len(accounts)} {of}, allowed are {most}: {remedy} some")
    replace_private(file, json.dumps({of: [asdict(row) for row in accounts]}, indent=1), what)


def _digest(password: str, salt: str) -> str:
    # Keyboards write the same character in several ways (RFC 8265, 4.2.2).
    content = unicodedata.normalize("NFC", password).encode()
    return hashlib.scrypt(content, salt=bytes.fromhex(salt), **COST, maxmem=1 << 25, dklen=32).hex()
