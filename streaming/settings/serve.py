"""What serve listens on, shows, and asks of those who ask it."""

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from streaming.settings.fields import File, Milliseconds, Port, shown
from streaming.settings.oidc import OidcFields


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
