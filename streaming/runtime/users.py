"""People with passwords: who may sign in on serve's page, as a file holds them.

Of a password the file has a hash alone. A password can be guessed, unlike an API token, so its hash is slow and salted
(scrypt, RFC 7914).
"""

import hashlib
import hmac
import json
import re
import secrets
import stat
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streaming.errors import UsageProblem
from streaming.runtime.api_tokens import NAME_LENGTH_MAX, Role
from streaming.runtime.secret_files import OTHERS_WRITE, read_private, replace_private

WHAT = "users file"
USERS_MAX = 1_000
PASSWORD_LENGTH_MIN = 12
PASSWORD_LENGTH_MAX = 1_000
HASH = "scrypt n=16384 r=8 p=5"
"""The one form of hashes so far, one of those that OWASP's Password Storage Cheat Sheet names. Each takes 16 MiB."""
COST = {"n": 16_384, "r": 8, "p": 5}
SALT = re.compile(r"[0-9a-f]{32}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
OTHERS_READ = stat.S_IROTH


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
    try:
        content = read_private(file, WHAT, refused_modes=OTHERS_WRITE | OTHERS_READ)
        return _by_name(json.loads(content)["users"])
    except OSError as error:
        raise UsageProblem(f"{WHAT} {file}: {error.strerror or error}; `rebalancer user add` makes it") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageProblem(f"{WHAT} {file}: is not one of `rebalancer user`: {error}") from None


def write_users(file: Path, users: Iterable[User]) -> None:
    """Write the file; raises UsageProblem. A new one is its owner's alone; one that is there keeps its readers."""
    kept = list(users)
    if len(kept) > USERS_MAX:
        raise UsageProblem(f"{WHAT} {file}: {len(kept)} users, allowed are {USERS_MAX}: remove some")
    replace_private(file, json.dumps({"users": [asdict(user) for user in kept]}, indent=1), WHAT)


def _by_name(rows: list[dict[str, Any]]) -> dict[str, User]:
    users = [User(**{**row, "role": Role(row["role"])}) for row in rows]
    by_name = {user.name: user for user in users}
    if len(by_name) < len(users):
        raise ValueError("two users have the same name")
    return by_name


def _digest(password: str, salt: str) -> str:
    # Keyboards write the same character in several ways (RFC 8265, 4.2.2).
    content = unicodedata.normalize("NFC", password).encode()
    return hashlib.scrypt(content, salt=bytes.fromhex(salt), **COST, maxmem=1 << 25, dklen=32).hex()
