"""docs/notifications.md has every kind of notification, every field of one, and the limits as they are."""

import json
import re
from typing import get_args

from streaming.notify.occurrences import Occurrence
from streaming.notify.sender import (
    BODY_BYTES_MAX,
    ID_HEADER,
    SENT_AT_A_TIME,
    SIGNATURE_HEADER,
    TEXT_LENGTH_MAX,
    TIMEOUT_S,
    body_of,
)
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings.notify import WEBHOOKS_MAX, NotificationKind, NotifySettings, WebhookSettings

PAGE = (PROJECT_ROOT / "docs" / "notifications.md").read_text(encoding="utf-8")


def example() -> str:
    """The JSON that the page shows."""
    start = PAGE.index('    {"notification_id"')
    return PAGE[start : PAGE.index("\n\n", start)]


def test_each_kind_stands_there_once() -> None:
    named = [kind for line in PAGE.splitlines() if line.startswith("| `") for kind in re.findall(r"`(\w+)`", line[:80])]
    kinds = get_args(NotificationKind)
    assert [kind for kind in named if kind in kinds] == list(kinds)


def test_the_example_has_the_fields_that_are_sent() -> None:
    occurrence = Occurrence("execution:e-1:3", "execution_ended", "e-1", 0, "title", "detail")
    assert json.loads(example()).keys() == json.loads(body_of(occurrence, "main", "json")).keys()
    assert json.loads(body_of(occurrence, "main", "slack")).keys() == {"text"}


def test_each_setting_of_a_webhook_stands_there() -> None:
    assert [name for name in WebhookSettings.model_fields if not re.search(rf"\b{name}\b", PAGE)] == []


def test_limits_are_those_of_the_code() -> None:
    bounds = (
        f"{WEBHOOKS_MAX} webhooks, {SENT_AT_A_TIME} requests to each in a round, {BODY_BYTES_MAX // 1000} kB a body"
    )
    for stated in (
        f"**Bounds**: {bounds}, texts of {TEXT_LENGTH_MAX:,} characters.",
        f"for `notify.give_up_ms` ({NotifySettings().give_up_ms // 3_600_000} h)",
        f"a limit of {TIMEOUT_S:.0f} s for each step",
        f"`{SIGNATURE_HEADER}: t=SECONDS,v1=HEX`",
        f"`{ID_HEADER}`",
    ):
        assert stated in PAGE
