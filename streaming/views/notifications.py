"""Rows of `notification`: which webhooks wait for something, and which have missed something. Serve writes them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from streaming.contract import NOTIFICATION
from streaming.tables import Row, TableReader, of_cluster, to_ms

BEGUN, SENT, FAILED, GIVEN_UP = "begun", "sent", "failed", "given_up"
"""Stages of a try."""
OVER = (SENT, GIVEN_UP)
"""After these nothing is sent again."""


@dataclass(frozen=True, slots=True)
class WebhookState:
    """How one webhook has been served; times are ms UTC."""

    webhook: str
    waiting_since_ms: int | None
    """When the oldest of what has not been delivered yet occurred; None where nothing waits."""
    given_up_ms: int | None
    """When a notification was given up last; None where none was."""


def read_webhooks(reader: TableReader, kafka_cluster: str) -> tuple[WebhookState, ...]:
    """By name: each webhook that was ever sent anything, and is in the table still. Raises TableUnavailable."""
    columns = ("webhook", "occurrence_id", "stage", "event_time", "occurred_at")
    by_webhook = itemgetter("webhook")
    rows = sorted(reader.rows(NOTIFICATION.name, columns=columns, where=of_cluster(kafka_cluster)), key=by_webhook)
    return tuple(_state(webhook, own) for webhook, own in groupby(rows, key=by_webhook))


def _state(webhook: str, rows: Iterable[Row]) -> WebhookState:
    occurred_ms: dict[str, int] = {}
    over: set[str] = set()
    given_up_ms: list[int] = []
    for row in rows:
        occurred_ms[row["occurrence_id"]] = to_ms(row["occurred_at"])
        if row["stage"] in OVER:
            over.add(row["occurrence_id"])
        if row["stage"] == GIVEN_UP:
            given_up_ms.append(to_ms(row["event_time"]))
    waiting_ms = (at_ms for occurrence_id, at_ms in occurred_ms.items() if occurrence_id not in over)
    return WebhookState(webhook, min(waiting_ms, default=None), max(given_up_ms, default=None))
