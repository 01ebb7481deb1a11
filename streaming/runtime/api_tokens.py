"""API tokens: who may ask serve, as a file holds them. Of a token the file has a hash alone.

A token is `rbt_ID_SECRET`. The secret has 256 random bits, so one SHA-256 of it can't be guessed back, and no salt or
slow hash is needed as it is for passwords.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from streaming.errors import UsageProblem
from streaming.runtime.secret_files import read_private, replace_private

FORM = re.compile(r"rbt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
NAME_LENGTH_MAX = 100
TOKENS_MAX = 1_000
WHAT = "tokens file"


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
    try:
        return _by_id(json.loads(read_private(file, WHAT))["tokens"])
    except OSError as error:
        raise UsageProblem(
            f"tokens file {file}: {error.strerror or error}; `rebalancer token create` makes it"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageProblem(f"tokens file {file}: is not one of `rebalancer token`: {error}") from None


def _by_id(rows: list[dict[str, Any]]) -> dict[str, ApiToken]:
    tokens = [ApiToken(**{**row, "role": Role(row["role"])}) for row in rows]
    by_id = {token.token_id: token for token in tokens}
    if len(by_id) < len(tokens):
        raise ValueError("two tokens have the same id")
    return by_id


def write_tokens(file: Path, tokens: Iterable[ApiToken]) -> None:
    """Write the file; raises UsageProblem. A new one is its owner's alone; one that is there keeps its readers."""
    kept = list(tokens)
    if len(kept) > TOKENS_MAX:
        raise UsageProblem(f"tokens file {file}: {len(kept)} tokens, allowed are {TOKENS_MAX}: revoke some")
    replace_private(file, json.dumps({"tokens": [asdict(token) for token in kept]}, indent=1), WHAT)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
