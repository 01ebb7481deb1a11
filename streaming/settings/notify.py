"""Who is notified of plans, executions and groups, and how."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from streaming.settings.fields import File, HttpUrl, Milliseconds, Section

WEBHOOKS_MAX = 10
NotificationKind = Literal[
    "plan_waits", "execution_started", "execution_paused", "execution_resumed", "execution_ended",
    "execution_measured", "group_stopped", "group_recovered",
]  # fmt: skip
ALL_KINDS: list[NotificationKind] = [
    "plan_waits", "execution_started", "execution_paused", "execution_resumed", "execution_ended",
    "execution_measured", "group_stopped", "group_recovered",
]  # fmt: skip


class WebhookSettings(Section):
    """One address that is sent a POST for each notification."""

    url: HttpUrl | None = Field(None, description="The address of the webhook, http or https.")
    url_file: File | None = Field(None, description="A file whose first line is the url, if the url is a secret.")
    format: Literal["json", "slack"] = Field(
        "json", description="json: an object; slack: a text alone, as Slack accepts it."
    )
    secret_file: File | None = Field(None, description="A file whose first line is the key that signs; null: unsigned.")
    kinds: list[NotificationKind] = Field(
        ALL_KINDS, min_length=1, description="Kinds of notifications that the webhook gets."
    )

    @model_validator(mode="after")
    def _one_url(self) -> Self:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("set either url or url_file")
        return self


def _webhooks(webhooks: dict[str, WebhookSettings]) -> dict[str, WebhookSettings]:
    if len(webhooks) > WEBHOOKS_MAX:
        raise ValueError(f"{len(webhooks)} webhooks, at most {WEBHOOKS_MAX} are allowed")
    return webhooks


class NotifySettings(Section):
    """Notifications, sent by serve."""

    webhooks: Annotated[dict[str, WebhookSettings], AfterValidator(_webhooks)] = Field(
        default={}, description="name: {url, url_file, format, secret_file, kinds}; see docs/notifications.md."
    )
    interval_ms: Milliseconds = Field(
        5_000, description="How often serve reads the tables for notifications. Unit: ms."
    )
    give_up_ms: Milliseconds = Field(
        3_600_000, description="Serve retries a notification that fails for this long. Unit: ms."
    )
