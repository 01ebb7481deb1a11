"""The table `notification`: what was sent to whom. A row before each try, which one process alone can write."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from streaming import tables
from streaming.contract import NOTIFICATION
from streaming.notify.occurrences import Occurrence
from streaming.views.json_values import stored_object
from streaming.views.notifications import BEGUN, FAILED, GIVEN_UP, OVER, SENT

PAUSE_MIN_MS = 5_000
PAUSE_MAX_MS = 300_000
CLAIM_MS = 60_000
"""Time after which an attempt without an end counts as one of a killed process."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Progress of sending one occurrence to one webhook."""

    occurrence: Occurrence
    attempt: int
    stage: str
    at_ms: int

    @property
    def is_over(self) -> bool:
        """Whether the notification is not sent again."""
        return self.stage in OVER

    def due_ms(self) -> int:
        """Time from which the notification may be tried again, ms."""
        if self.stage == BEGUN:
            return self.at_ms + CLAIM_MS
        return int(self.at_ms + min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** min(self.attempt, 16)))


class Deliveries:
    """Rows of one cluster below one root."""

    def __init__(self, root: str, kafka_cluster: str) -> None:
        self._root = root
        self._cluster = kafka_cluster
        self._reader = tables.TableReader(root)

    def webhooks(self) -> set[str]:
        """Returns the webhooks that were ever sent anything; raises TableUnavailable."""
        self._reader.look_again()
        rows = self._reader.rows(NOTIFICATION.name, columns=("webhook",), where=tables.of_cluster(self._cluster))
        return {row["webhook"] for row in rows}

    def known(self, *, since_ms: int) -> dict[tuple[str, str], Delivery]:
        """Newest stage by webhook and occurrence; raises TableUnavailable."""
        self._reader.look_again()
        where = tables.of_cluster(self._cluster) & tables.at_least("event_time", tables.utc(max(0, since_ms)))
        return _newest(self._reader.rows(NOTIFICATION.name, where=where))

    def newest_of_groups(self) -> dict[str, Occurrence]:
        """Returns by group the newest occurrence that anybody was to be notified of; raises TableUnavailable."""
        self._reader.look_again()
        of_groups = tables.of_cluster(self._cluster) & tables.one_of("kind", ["group_recovered", "group_stopped"])
        rows = self._reader.rows(NOTIFICATION.name, where=of_groups)
        return {row["subject"]: _occurrence(row) for row in sorted(rows, key=lambda row: row["occurred_at"])}

    def begin(self, webhook: str, occurrence: Occurrence, attempt: int, *, now_ms: int) -> bool:
        """Whether this try is ours; raises TableUnavailable."""
        return self._append(webhook, occurrence, attempt, BEGUN, None, "", now_ms)

    def end(
        self, webhook: str, occurrence: Occurrence, attempt: int, stage: str, *, status: int | None, detail: str,
        now_ms: int,
    ) -> None:  # fmt: skip
        """Writes the result of an attempt; raises TableUnavailable."""
        self._append(webhook, occurrence, attempt, stage, status, detail, now_ms)

    def _append(
        self, webhook: str, occurrence: Occurrence, attempt: int, stage: str, status: int | None, detail: str,
        now_ms: int,
    ) -> bool:  # fmt: skip
        row = {
            "webhook": webhook,
            "occurrence_id": occurrence.occurrence_id,
            "attempt": attempt,
            "stage": stage,
            "kafka_cluster": self._cluster,
            "event_time": tables.utc(now_ms),
            "kind": occurrence.kind,
            "subject": occurrence.subject,
            "occurred_at": tables.utc(occurrence.at_ms),
            "title": occurrence.title,
            "detail": occurrence.detail,
            "facts_json": json.dumps(occurrence.facts),
            "status": status,
            "error": detail or None,
        }
        transaction_id = f"notification:{self._cluster}:{webhook}:{occurrence.occurrence_id}:{attempt}:{stage}"
        return tables.append(self._root, NOTIFICATION.name, [row], transaction_id=transaction_id, transaction_version=0)


def _newest(rows: Iterable[tables.Row]) -> dict[tuple[str, str], Delivery]:
    order = {BEGUN: 0, FAILED: 1, SENT: 2, GIVEN_UP: 2}
    newest: dict[tuple[str, str], Delivery] = {}
    for row in sorted(rows, key=lambda row: (row["attempt"], order[row["stage"]])):
        delivery = Delivery(_occurrence(row), row["attempt"], row["stage"], tables.to_ms(row["event_time"]))
        newest[row["webhook"], row["occurrence_id"]] = delivery
    return newest


def _occurrence(row: tables.Row) -> Occurrence:
    return Occurrence(
        row["occurrence_id"],
        row["kind"],
        row["subject"],
        tables.to_ms(row["occurred_at"]),
        row["title"],
        row["detail"],
        stored_object(row["facts_json"]) or {},
    )
