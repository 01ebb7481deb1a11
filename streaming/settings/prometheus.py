"""Settings of Prometheus as a source of brokers' counters; they stand in the section `collect`."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from streaming.settings.fields import File, HttpUrl, RegularExpression, Section, shown

_MATCHER = r'[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"'

_MATCHERS = rf"{_MATCHER}(?:\s*,\s*{_MATCHER})*"


def _matchers(text: str) -> str:
    if text and not re.fullmatch(_MATCHERS, text, re.ASCII):
        raise ValueError(f'{text!r} is no list of label matchers like cluster="main",job=~"kafka.*"')
    return text


class PrometheusFields(Section):
    """The Prometheus that scrapes the brokers, and the names of their counters there."""

    prometheus_url: HttpUrl | None = Field(
        None,
        description="The URL of a Prometheus that scrapes the brokers, for brokers that are not in jmx_endpoints.",
    )
    prometheus_preset: Literal["jmx_exporter", "strimzi", "msk", "kafka-mixin", "bitnami"] = Field(
        "jmx_exporter", description="What that Prometheus calls the metrics; see docs/prometheus-source.md."
    )
    prometheus_matchers: Annotated[str, AfterValidator(_matchers), shown(pattern=f"^({_MATCHERS})?$")] = Field(
        "",
        description='More label matchers, such as strimzi_io_cluster="main", if Prometheus scrapes several clusters.',
    )
    prometheus_broker_label: str | None = Field(
        None,
        pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$",
        description="The label that names the broker; null: the label of the preset.",
    )
    prometheus_broker_pattern: RegularExpression | None = Field(
        None,
        description="A regular expression whose first group is the broker id in that label; null: the preset's.",
    )
    prometheus_broker_ids: dict[str, int] = Field(
        default={}, description="label value: broker id, if no pattern shows the id in the label."
    )
    prometheus_username: str | None = Field(None, description="The user at that Prometheus, for basic authentication.")
    prometheus_password: SecretStr | None = Field(
        None, description="The password at that Prometheus; better through the environment or prometheus_password_file."
    )
    prometheus_password_file: File | None = Field(
        None, description="A file whose first line is the password; the collector reads the file at each sample."
    )
    prometheus_bearer_token: SecretStr | None = Field(
        None,
        description="The token for that Prometheus; better through the environment or prometheus_bearer_token_file.",
    )
    prometheus_bearer_token_file: File | None = Field(
        None,
        description="A file whose first line is the token; the collector reads the file at each sample.",
    )

    @model_validator(mode="after")
    def _prometheus_is_whole(self) -> Self:
        pattern = self.prometheus_broker_pattern
        if pattern is not None and not re.compile(pattern).groups:
            raise ValueError(f"prometheus_broker_pattern {pattern!r} has no group, which is to be the broker id")
        has_token = self.prometheus_bearer_token is not None or self.prometheus_bearer_token_file is not None
        if has_token and self.prometheus_username is not None:
            raise ValueError("prometheus_username and a prometheus_bearer_token exclude each other")
        return self
