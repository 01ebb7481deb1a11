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
        description="Address to listen on; other machines reach serve only if it is not loopback",
    )
    port: Port = Field(9464, description="Port; 0 takes a free one")
    allowed_hosts: Annotated[list[str], AfterValidator(_host_names)] = Field(
        [],
        description="Names by which it may be asked, besides addresses, localhost and the machine's own; '*' for all",
    )
    refresh_interval_ms: Milliseconds = Field(2_000, description="Time between two snapshots of the tables")
    series_max: int = Field(20_000, ge=100, description="Most series exported; what is cut is counted")
    hot_partitions: int = Field(20, ge=0, le=1_000, description="Hottest partitions exported")
    compatible_metrics: list[Literal["kafka_exporter", "kminion", "burrow_exporter", "network_labels"]] = Field(
        [],
        description="Lag exporters whose metric names /metrics has besides, a series for each partition; "
        "network_labels: the resource labels of earlier versions besides",
    )
    tokens_file: File | None = Field(
        None, description="API tokens, as `rebalancer token` writes them; null: no program signs in"
    )
    users_file: File | None = Field(
        None,
        description="People and their passwords, as `rebalancer user` writes them; null: nobody signs in on the page. "
        "Without these files and oidc_issuer nothing acts",
    )
    session_ms: Milliseconds = Field(43_200_000, description="How long a person stays signed in at most")
    session_idle_ms: Milliseconds = Field(
        3_600_000, description="A person who does nothing for so long is signed out; what the page reads does not count"
    )
    reading: Literal["open", "signed_in"] = Field(
        "open", description="signed_in: API and metrics want a token or session of any role; health does not"
    )
    trusted_proxies: Annotated[list[Annotated[str, shown(pattern="^[0-9A-Fa-f]*[.:]")]], AfterValidator(_networks)] = (
        Field([], description="Addresses or networks whose X-Forwarded-For and X-Forwarded-Proto are believed")
    )
    tls_certificate_file: File | None = Field(None, description="Certificate chain, PEM; null: plain HTTP")
    tls_key_file: File | None = Field(None, description="Its key, PEM, without a password")

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
