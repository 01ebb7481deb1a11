"""Identity by OpenID Connect: which issuer serve believes, and what its tokens allow."""

import ipaddress
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from streaming.settings.fields import File, HttpUrl, Section


def is_safe(url: str) -> bool:
    """Whether nobody between can read or change what this URL is asked: https, or this machine itself."""
    parts = urlsplit(url)
    return parts.scheme == "https" or _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _issuer(url: str) -> str:
    parts = urlsplit(url)
    if not is_safe(url):
        raise ValueError("must begin with https://, unless it is on loopback")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must have no user, query or fragment")
    return url


RoleName = Literal["viewer", "operator", "admin"]


class OidcFields(Section):
    """Fields of `serve` that name the issuer."""

    oidc_issuer: Annotated[HttpUrl, AfterValidator(_issuer)] | None = Field(
        None,
        description="The URL of your OpenID Connect issuer, as its tokens have it in `iss`; null: no issuer counts.",
    )
    oidc_audience: str | None = Field(
        None,
        min_length=1,
        description="What a program's token must have in `aud`; null: serve accepts no token of the issuer.",
    )
    oidc_client_id: str | None = Field(
        None,
        min_length=1,
        description="The client by which people sign in on the page; null: nobody signs in through the issuer.",
    )
    oidc_client_secret_file: File | None = Field(
        None, description="A file whose first line is the secret of oidc_client_id; null: a public client."
    )
    oidc_role_claim: str = Field(
        "roles", min_length=1, description="The claim whose values give the role; `a.b` may also be b within a."
    )
    oidc_roles: dict[str, RoleName | Annotated[dict[str, RoleName], Field(min_length=1)]] = Field(
        {},
        max_length=1_000,
        description="claim value: role on all clusters, or claim value: {cluster: role}. If a person has several roles "
        "on a cluster, the role that may do most counts.",
    )

    @model_validator(mode="after")
    def _complete_oidc(self) -> Self:
        if self.oidc_issuer is None:
            if self.oidc_audience is not None or self.oidc_client_id is not None or self.oidc_roles:
                raise ValueError("oidc_audience, oidc_client_id and oidc_roles need oidc_issuer")
            return self
        if not self.oidc_roles:
            raise ValueError("oidc_issuer needs oidc_roles, without which nobody of it may do anything")
        if self.oidc_audience is None and self.oidc_client_id is None:
            raise ValueError("oidc_issuer needs oidc_audience for programs, or oidc_client_id for people")
        if self.oidc_client_secret_file is not None and self.oidc_client_id is None:
            raise ValueError("oidc_client_secret_file needs oidc_client_id")
        return self
