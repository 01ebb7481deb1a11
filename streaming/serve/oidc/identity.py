"""Which requests have a token of the issuer, whom its claims name, and which role they give.

Pure: knows neither keys nor the issuer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.errors import RebalancerError
from streaming.runtime.api_tokens import NAME_LENGTH_MAX, Role
from streaming.settings import ServeSettings

SUBJECT_LENGTH_MAX = 255
"""OpenID Connect Core 1.0, 2."""


class TokenRefused(RebalancerError):
    """A token that does not hold; the message says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is named: `subject` never changes at the issuer; `name` is for people to read, and anybody may have it."""

    subject: str
    name: str
    role: Role | None
    """None: the claims give none."""

    @property
    def signed_in_by(self) -> str:
        """For the audit."""
        return f"oidc {self.subject}"


def bearer_jwt(authorization: str) -> str | None:
    """The JWT of an `Authorization` header; None if it has none. Our own API tokens have no dot."""
    scheme, _, text = authorization.partition(" ")
    text = text.strip()
    return text if scheme.lower() == "bearer" and "." in text else None


def identity_of(claims: Mapping[str, Any], settings: ServeSettings) -> Identity:
    """Whom verified claims name; raises TokenRefused where they name nobody."""
    subject = claims.get("sub")
    if not _is_text(subject, SUBJECT_LENGTH_MAX):
        raise TokenRefused(f"its sub is not 1 to {SUBJECT_LENGTH_MAX} printable characters")
    name = claims.get("preferred_username")
    shown = str(name if _is_text(name, NAME_LENGTH_MAX) else subject)[:NAME_LENGTH_MAX]
    given = {Role(settings.oidc_roles[value]) for value in claim_values(claims, settings.oidc_role_claim)
             if value in settings.oidc_roles}  # fmt: skip
    return Identity(str(subject), shown, max(given, key=list(Role).index, default=None))


def why_no_role(identity: Identity, settings: ServeSettings) -> str:
    """What to tell somebody whom the issuer knows and who may do nothing."""
    return (
        f"{identity.name} ({identity.signed_in_by}) has no role here: "
        f"claim {settings.oidc_role_claim} has no value that serve.oidc_roles lists"
    )


def claim_values(claims: Mapping[str, Any], name: str) -> list[str]:
    """Texts of a claim, which is one text or a list of them.

    >>> claim_values({"roles": ["a", 7, "b"]}, "roles"), claim_values({"role": "a"}, "role")
    (['a', 'b'], ['a'])
    >>> claim_values({"realm_access": {"roles": ["a"]}}, "realm_access.roles"), claim_values({"a.b": "c"}, "a.b")
    (['a'], ['c'])
    >>> claim_values({"roles": {"a": True}}, "roles"), claim_values({}, "a.b")
    ([], [])
    """
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def _is_text(value: object, length_max: int) -> bool:
    if not isinstance(value, str) or not 1 <= len(value) <= length_max:
        return False
    return value.isprintable() and value == value.strip()
