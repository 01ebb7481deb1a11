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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from streaming.errors import UsageProblem
from streaming.settings import ServeSettings

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

    @property
    def rank(self) -> int:
        """Returns the place of the role in the order of rights, 0 for the role with the fewest."""
        return list(Role).index(self)

    def may(self, needed: "Role") -> bool:
        """Returns whether the role may do what requires `needed`."""
        return self.rank >= needed.rank


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of one account on each cluster.

    >>> some = Roles.parsed(["viewer", "east=operator"])
    >>> some.on("east"), some.on("west"), str(some)
    (<Role.OPERATOR: 'operator'>, <Role.VIEWER: 'viewer'>, 'viewer, east=operator')
    >>> Roles.parsed(["east=viewer"]).on("west") is None
    True
    """

    elsewhere: Role | None
    """The role on every cluster that `by_cluster` does not name; None for no role there."""
    by_cluster: Mapping[str, Role] = field(default_factory=dict)

    @classmethod
    def parsed(cls, texts: Sequence[str]) -> "Roles":
        """Returns the roles of texts like `viewer` and `east=operator`; raises ValueError."""
        given: dict[str | None, Role] = {}
        for text in texts:
            name, equals, role = text.rpartition("=")
            cluster = name if equals else None
            if role not in list(Role) or (equals and not name):
                raise ValueError(f"{text!r} is no role; allowed are {', '.join(Role)} and CLUSTER=ROLE")
            if cluster in given:
                raise ValueError(f"{text!r} is the second role for {cluster or 'all clusters'}; one is allowed")
            given[cluster] = Role(role)
        return cls(given.pop(None, None), {name: role for name, role in given.items() if name is not None})

    @classmethod
    def highest(cls, given: Iterable["Roles"]) -> "Roles":
        """Returns for each cluster the role with most rights that any of `given` has there.

        >>> str(Roles.highest([Roles(Role.VIEWER), Roles(None, {"east": Role.ADMIN}), Roles(None)]))
        'viewer, east=admin'
        """
        every = list(given)
        named = {cluster for roles in every for cluster in roles.by_cluster}
        found = {cluster: _highest(roles.on(cluster) for roles in every) for cluster in sorted(named)}
        by_cluster = {cluster: role for cluster, role in found.items() if role is not None}
        return cls(_highest(roles.elsewhere for roles in every), by_cluster)

    def on(self, cluster: str) -> Role | None:
        """Returns the role on this cluster; None for no role there."""
        return self.by_cluster.get(cluster, self.elsewhere)

    def __bool__(self) -> bool:
        return self.elsewhere is not None or bool(self.by_cluster)

    def __str__(self) -> str:
        own = [] if self.elsewhere is None else [self.elsewhere.value]
        return ", ".join([*own, *(f"{cluster}={role}" for cluster, role in self.by_cluster.items())])


def _highest(given: Iterable[Role | None]) -> Role | None:
    return max((role for role in given if role is not None), key=lambda role: role.rank, default=None)


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token as the file has it; raises ValueError and TypeError for what is none."""

    token_id: str
    name: str
    roles: Roles
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


def new_token(name: str, role: Role | Roles, *, now_ms: int, expires_ms: int) -> tuple[str, ApiToken]:
    """The text of a new token, which is kept nowhere, and what the file keeps."""
    token_id = secrets.token_hex(6)
    text = f"rbt_{token_id}_{secrets.token_urlsafe(32)}"
    return text, ApiToken(token_id, name, _as_roles(role), _hash(text), now_ms, expires_ms)


def _as_roles(role: Role | Roles) -> Roles:
    return role if isinstance(role, Roles) else Roles(role)


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
    roles: Roles
    hash: str
    salt: str
    digest: str
    changed_ms: int
    """When roles or password were set."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.hash != HASH or not SALT.fullmatch(self.salt) or not DIGEST.fullmatch(self.digest):
            raise ValueError(f"user {self.name!r}: hash, salt or digest is none")
        if type(self.changed_ms) is not int:
            raise ValueError(f"user {self.name!r}: changed_ms must be a whole number")

    @property
    def stamp(self) -> str:
        """Another text after each change of the roles or password, and for somebody else who gets the name later."""
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


def new_user(name: str, role: Role | Roles, password: str, *, now_ms: int) -> User:
    """A user with a salt of their own; takes as long as a sign-in. Raises ValueError."""
    check_name(name)
    check_password(password)
    salt = secrets.token_hex(16)
    return User(name, _as_roles(role), HASH, salt, _digest(password, salt), now_ms)


NOBODY = User("nobody", Roles(None), HASH, secrets.token_hex(16), secrets.token_hex(32), 0)


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


def roles_of_claim(settings: ServeSettings, value: str) -> Roles:
    """Returns the roles that `serve.oidc_roles` gives to a value of the claim; raises KeyError."""
    given = settings.oidc_roles[value]
    if isinstance(given, str):
        return Roles(Role(given))
    return Roles(None, {cluster: Role(role) for cluster, role in given.items()})


def check_clusters_of_roles(settings: ServeSettings, known: Collection[str]) -> None:
    """Raises UsageProblem if a role is on a cluster that is not among `known`: a name with a slip would give no rights,
    and nobody would see why. A file that can't be read is left to the requests, which say so.
    """
    given = [(f"serve.oidc_roles: {value!r}", roles_of_claim(settings, value), "") for value in settings.oidc_roles]
    with suppress(UsageProblem):
        tokens = read_tokens(settings.tokens_file) if settings.tokens_file else {}
        given += [(f"serve.tokens_file: token {row.token_id}", row.roles,
                   f"; or `rebalancer token revoke {row.token_id}`") for row in tokens.values()]  # fmt: skip
    with suppress(UsageProblem):
        users = read_users(settings.users_file) if settings.users_file else {}
        given += [(f"serve.users_file: user {row.name!r}", row.roles,
                   "; `rebalancer user role` gives others") for row in users.values()]  # fmt: skip
    for what, roles, remedy in given:
        for cluster in roles.by_cluster:
            if cluster not in known:
                raise UsageProblem(
                    f"{what} has a role on cluster {cluster!r}, which the settings do not name; known are "
                    f"{', '.join(known)}{remedy}"
                )


def _read(file: Path, kind: type[Account], refused_modes: int, key: str, made_by: str) -> list[Account]:
    """The accounts of one kind that a file holds, each with another `key`; `made_by` is the command that makes it."""
    what, of = (TOKENS_FILE, "token") if kind is ApiToken else (USERS_FILE, "user")
    try:
        rows = json.loads(read_private(file, what, refused_modes=refused_modes))[f"{of}s"]
        accounts = [kind(**_with_roles(row)) for row in rows]
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
    replace_private(file, json.dumps({of: [_as_stored(row) for row in accounts]}, indent=1), what)


def _with_roles(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of an account whose row has `role`, for all clusters, or `roles` by cluster, or both. Raises
    ValueError and TypeError.
    """
    rest = {name: value for name, value in row.items() if name not in ("role", "roles")}
    by_cluster = row.get("roles", {})
    if not isinstance(by_cluster, dict):
        raise TypeError("roles: must be an object of cluster: role")
    given = Roles(
        Role(row["role"]) if "role" in row else None,
        {cluster: Role(role) for cluster, role in by_cluster.items()},
    )
    if not given:
        raise ValueError("an account has neither role nor roles")
    return {**rest, "roles": given}


def _as_stored(account: ApiToken | User) -> dict[str, Any]:
    """Returns the row of the file: `role` as earlier releases have it, and `roles` only where the account has them."""
    row, roles = asdict(account), account.roles
    del row["roles"]
    return {
        **row,
        **({} if roles.elsewhere is None else {"role": roles.elsewhere}),
        **({"roles": dict(roles.by_cluster)} if roles.by_cluster else {}),
    }


def _digest(password: str, salt: str) -> str:
    # Keyboards write the same character in several ways (RFC 8265, 4.2.2).
    content = unicodedata.normalize("NFC", password).encode()
    return hashlib.scrypt(content, salt=bytes.fromhex(salt), **COST, maxmem=1 << 25, dklen=32).hex()
