"""What serve listens on, shows, and asks of those who ask it; which issuer of OpenID Connect it believes."""

import ipaddress
import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from streaming.settings.fields import File, HttpUrl, Milliseconds, Port, Section, shown


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


def _host_names(names: list[str]) -> list[str]:
    for name in names:
        if not re.fullmatch(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", name):
            raise ValueError(
                f"{name!r} is no host name; allowed are names without a port, like a.example.org or *.example.org"
            )
    return names


def _networks(texts: list[str]) -> list[str]:
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise ValueError(f"{text!r} is no address or network, like 10.0.0.7 or 10.0.0.0/24") from None
    return texts


class ServeSettings(OidcFields):
    """Metrics, API and page."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="The address that serve listens on; other machines reach only an address that is not loopback.",
    )
    port: Port = Field(9464, description="The port that serve listens on; 0: a free port.")
    allowed_hosts: Annotated[list[str], AfterValidator(_host_names)] = Field(
        [],
        description="Host names that requests may name, besides addresses, localhost and the machine's own; '*': any.",
    )
    refresh_interval_ms: Milliseconds = Field(2_000, description="How often serve reads the tables. Unit: ms.")
    series_max: int = Field(
        20_000, ge=100, description="/metrics has no more series than this, and counts those that are cut."
    )
    hot_partitions: int = Field(
        20, ge=0, le=1_000, description="/metrics has the load of this many partitions, the hottest ones."
    )
    compatible_metrics: list[Literal["kafka_exporter", "kminion", "burrow_exporter", "network_labels"]] = Field(
        [],
        description="/metrics has the metric names of these lag exporters too, a series for each partition; "
        "network_labels: also the resource labels of earlier versions.",
    )
    tokens_file: File | None = Field(
        None, description="The file of API tokens that `rebalancer token` writes; null: no program signs in."
    )
    users_file: File | None = Field(
        None,
        description="The file of people and passwords by `rebalancer user`; null: nobody signs in on the page. "
        "Without tokens_file, users_file and oidc_issuer serve only shows.",
    )
    session_ms: Milliseconds = Field(
        43_200_000, description="A person stays signed in for no longer than this. Unit: ms."
    )
    session_idle_ms: Milliseconds = Field(
        3_600_000,
        description="A person who does nothing for this long is signed out; reads of the page don't count. Unit: ms.",
    )
    reading: Literal["open", "signed_in"] = Field(
        "open",
        description="open: anybody may read; signed_in: API and metrics need a token or a session, health does not.",
    )
    trusted_proxies: Annotated[list[Annotated[str, shown(pattern="^[0-9A-Fa-f]*[.:]")]], AfterValidator(_networks)] = (
        Field([], description="Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto count.")
    )
    tls_certificate_file: File | None = Field(
        None, description="A PEM file with the certificate chain of serve; null: plain HTTP."
    )
    tls_key_file: File | None = Field(
        None, description="A PEM file with the key of tls_certificate_file, without a password."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        ways = (self.tokens_file, self.users_file, self.oidc_issuer)
        if self.reading == "signed_in" and ways == (None, None, None):
            raise ValueError(
                "reading: signed_in needs tokens_file or users_file or oidc_issuer, without which nobody can sign in"
            )
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file: one is set without the other")
        return self
