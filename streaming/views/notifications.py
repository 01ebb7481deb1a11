"""Rows of `notification`: which webhooks wait for something, and which have missed something. Serve writes them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from streaming.contract import NOTIFICATION
from streaming.settings.notify import NotifySettings
from streaming.tables import Row, TableReader, of_cluster, to_ms

BEGUN, SENT, FAILED, GIVEN_UP = "begun", "sent", "failed", "given_up"
"""Stages of an attempt to send a notification."""
OVER = (SENT, GIVEN_UP)
"""Stages after which a notification is not sent again."""


KNOWN_FOR = 2
"""How many `notify.give_up_ms` after its last row serve still knows a notification. A notification that had no end by
then, as serve was offline for longer, is not tried again.
"""


@dataclass(frozen=True, slots=True)
class WebhookState:
    """State of one webhook's notifications; times are ms UTC."""

    webhook: str
    waiting_since_ms: int | None
    """Time of the oldest notification that is not delivered yet; None if none waits."""
    given_up_ms: int | None
    """When a notification was given up last; None where none was."""


@dataclass(frozen=True, slots=True)
class WebhookRows:
    """What the table has of one webhook. How long it is ago changes what that means, also where no row is added."""

    webhook: str
    unfinished_ms: tuple[tuple[int, int], ...]
    """Two times of each notification that was neither sent nor given up: when it occurred, and the time of its newest
    row.
    """
    given_up_ms: int | None
    """When a notification was last given up by a row with the stage `given_up`; None if there is no such row."""

    def state(self, give_up_ms: int, *, now_ms: int) -> WebhookState:
        """State at `now_ms`: notifications that wait, and those given up by a row or after too long a time."""
        known_ms = KNOWN_FOR * give_up_ms
        waiting = [occurred_ms for occurred_ms, row_ms in self.unfinished_ms if row_ms + known_ms >= now_ms]
        forgotten = [row_ms + known_ms for _, row_ms in self.unfinished_ms if row_ms + known_ms < now_ms]
        given_up = forgotten if self.given_up_ms is None else [*forgotten, self.given_up_ms]
        return WebhookState(self.webhook, min(waiting, default=None), max(given_up, default=None))


def read_webhooks(reader: TableReader, kafka_cluster: str, notify: NotifySettings) -> tuple[WebhookRows, ...]:
    """Returns the rows of each webhook of the settings, by name, that was ever sent anything and is in the table still.

    Of kinds that it does not want any more nothing waits for it. Raises TableUnavailable.
    """
    columns = ("webhook", "occurrence_id", "kind", "stage", "event_time", "occurred_at")
    by_webhook = itemgetter("webhook")
    rows = [
        row
        for row in reader.rows(NOTIFICATION.name, columns=columns, where=of_cluster(kafka_cluster))
        if row["webhook"] in notify.webhooks and row["kind"] in notify.webhooks[row["webhook"]].kinds
    ]
    return tuple(_of_webhook(webhook, own) for webhook, own in groupby(sorted(rows, key=by_webhook), key=by_webhook))


def _of_webhook(webhook: str, rows: Iterable[Row]) -> WebhookRows:
    newest_ms: dict[tuple[str, int], int] = {}
    over: set[str] = set()
    given_up_ms: list[int] = []
    for row in rows:
        one, row_ms = (row["occurrence_id"], to_ms(row["occurred_at"])), to_ms(row["event_time"])
        newest_ms[one] = max(row_ms, newest_ms.get(one, row_ms))
        if row["stage"] in OVER:
            over.add(row["occurrence_id"])
        if row["stage"] == GIVEN_UP:
            given_up_ms.append(row_ms)
    unfinished_ms = ((at_ms, row_ms) for (one_id, at_ms), row_ms in newest_ms.items() if one_id not in over)
    return WebhookRows(webhook, tuple(unfinished_ms), max(given_up_ms, default=None))
