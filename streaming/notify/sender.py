"""The thread that sends notifications, and what it sends: a body, and headers that sign it. The thread reads tables and
writes `notification`; control never waits for it.
"""

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Literal

import httpx
import structlog

from streaming.errors import RebalancerError
from streaming.notify.deliveries import Deliveries, Delivery
from streaming.notify.occurrences import Occurrence, StoppedGroups, read_occurrences
from streaming.runtime.http_answers import HTTP_ERRORS
from streaming.runtime.secrets import webhook_key, webhook_url
from streaming.settings import Settings
from streaming.settings.notify import WebhookSettings
from streaming.tables import TableReader
from streaming.views.group_ranking import GroupTopic
from streaming.views.notifications import FAILED, GIVEN_UP, KNOWN_FOR, SENT

log = structlog.get_logger()

TIMEOUT_S = 10.0
SENT_AT_A_TIME = 20
"""Notifications that one webhook gets in a round, at most; the others follow in the next round."""
OF_GROUPS_MAX = 1_000
"""Occurrences of groups that are kept until they are sent, at most."""


class Notifier:
    """Reads the tables again and again and sends what is new. `clock` gives ms since 1970.

    A webhook that was never sent anything gets nothing of the past.
    """

    def __init__(
        self,
        settings: Settings,
        group_topics: Callable[[], Iterable[GroupTopic]],
        clock: Callable[[], int],
        abandoned_groups: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._settings = settings
        self._group_topics = group_topics
        self._abandoned_groups = abandoned_groups
        self._clock = clock
        self._began_ms = clock()
        self._reader = TableReader(settings.storage.tables)
        self._deliveries = Deliveries(settings.storage.tables, settings.kafka.cluster_name)
        self._groups = StoppedGroups(self._deliveries.newest_of_groups)
        self._of_groups: list[Occurrence] = []
        self._begun_before: set[str] = set()
        self._knows_past = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=copy_context().run, args=(self._loop,), name="notify", daemon=True)
        self._failure = ""

    def start(self) -> None:
        """Starts the thread if there is any webhook."""
        if self._settings.notify.webhooks:
            self._thread.start()

    def end_soon(self) -> None:
        """Asks the thread to end."""
        self._stopping.set()

    def stop(self) -> None:
        """End the thread and wait for it: for a request under way at most."""
        self.end_soon()
        if self._thread.is_alive():
            self._thread.join(TIMEOUT_S + 1)

    def send_due(self) -> None:
        """Send what is due now; raises RebalancerError where a table can't be read or written."""
        now_ms, give_up_ms = self._clock(), self._settings.notify.give_up_ms
        self._begun_before |= set() if self._knows_past else self._deliveries.webhooks()
        self._knows_past = True
        known = self._deliveries.known(since_ms=now_ms - KNOWN_FOR * give_up_ms)
        happened = self._happened(now_ms - give_up_ms, now_ms)
        for webhook, target in self._settings.notify.webhooks.items():
            own = {one_id: delivery for (name, one_id), delivery in known.items() if name == webhook}
            since_ms = 0 if webhook in self._begun_before else self._began_ms
            self._send_due(webhook, target, [one for one in happened if one.at_ms >= since_ms], own)

    def _happened(self, since_ms: int, now_ms: int) -> list[Occurrence]:
        topics, abandoned = self._group_topics(), self._abandoned_groups()
        kept = [*self._of_groups, *self._groups.occurrences(topics, now_ms=now_ms, abandoned=abandoned)]
        self._of_groups = [one for one in kept if one.at_ms >= since_ms][-OF_GROUPS_MAX:]
        self._reader.look_again()
        rows = read_occurrences(self._reader, self._settings.kafka.cluster_name, since_ms=since_ms, now_ms=now_ms)
        return [*self._of_groups, *rows]

    def _send_due(
        self, webhook: str, target: WebhookSettings, occurrences: Iterable[Occurrence], own: Mapping[str, Delivery]
    ) -> None:
        unfinished = (delivery.occurrence for delivery in own.values() if not delivery.is_over)
        due = [
            one
            for one in {one.occurrence_id: one for one in (*unfinished, *occurrences)}.values()
            if one.kind in target.kinds and _is_due(own.get(one.occurrence_id), self._clock())
        ]
        for one in sorted(due, key=lambda one: one.at_ms)[:SENT_AT_A_TIME]:
            if self._stopping.is_set():
                return
            earlier = own.get(one.occurrence_id)
            self._send(webhook, target, one, 0 if earlier is None else earlier.attempt + 1)

    def _send(self, webhook: str, target: WebhookSettings, one: Occurrence, attempt: int) -> None:
        if not self._deliveries.begin(webhook, one, attempt, now_ms=self._clock()):
            return  # another process has it
        status, problem = self._post(webhook, target, one)
        stage = SENT if not problem else FAILED
        if problem and self._clock() >= one.at_ms + self._settings.notify.give_up_ms:
            stage = GIVEN_UP
        self._deliveries.end(webhook, one, attempt, stage, status=status, detail=problem, now_ms=self._clock())
        report = log.info if stage == SENT else log.warning
        report("notification", webhook=webhook, kind=one.kind, stage=stage, attempt=attempt, problem=problem or None)

    def _post(self, webhook: str, target: WebhookSettings, one: Occurrence) -> tuple[int | None, str]:
        """Returns the status and the error; the error is empty after a success."""
        try:
            url, key = webhook_url(target, webhook), webhook_key(target, webhook)
            body = body_of(one, self._settings.kafka.cluster_name, target.format)
            headers = headers_of(one, body, key, now_ms=self._clock())
            # What a receiver answers with is not read: it could be without end.
            with httpx.stream("POST", url, content=body, headers=headers, timeout=TIMEOUT_S) as answer:
                status, is_success = answer.status_code, answer.is_success
        except (*HTTP_ERRORS, RebalancerError) as error:
            return None, f"{type(error).__name__}: {error}"[:500]
        return status, "" if is_success else f"HTTP status {status}"

    def _loop(self) -> None:
        while not self._stopping.wait(self._settings.notify.interval_ms / 1000):
            failure = ""
            try:
                self.send_due()
            except RebalancerError as error:
                failure = str(error)
            except Exception as error:  # noqa: BLE001 - a thread that ends would send nothing more, and nobody would see
                failure = repr(error)
            if failure != self._failure:
                log.warning("notifications_wait", reason=failure) if failure else log.info("notifications_go_on")
            self._failure = failure


def _is_due(delivery: Delivery | None, now_ms: int) -> bool:
    return delivery is None or (not delivery.is_over and now_ms >= delivery.due_ms())


BODY_BYTES_MAX = 64_000
TEXT_LENGTH_MAX = 2_000
SIGNATURE_HEADER = "X-Rebalancer-Signature"
ID_HEADER = "X-Rebalancer-Notification-Id"


def body_of(occurrence: Occurrence, kafka_cluster: str, form: Literal["json", "slack"]) -> bytes:
    """The body, UTF-8; titles and details are cut at 2,000 characters.

    >>> stopped = Occurrence("group:a<b:1", "group_stopped", "a<b", 0, "Group a<b has stopped", "7 records wait")
    >>> body_of(stopped, "main", "slack")
    b'{"text": "*Group a&lt;b has stopped* (cluster main)\\\\n7 records wait"}'
    """
    title, detail = occurrence.title[:TEXT_LENGTH_MAX], occurrence.detail[:TEXT_LENGTH_MAX]
    if form == "slack":
        text = f"*{_slack(title)}* (cluster {_slack(kafka_cluster)})\n{_slack(detail)}"
        return json.dumps({"text": text}).encode()
    content = {
        "notification_id": occurrence.occurrence_id,
        "kind": occurrence.kind,
        "kafka_cluster": kafka_cluster,
        "subject": occurrence.subject,
        "occurred_at": datetime.fromtimestamp(occurrence.at_ms / 1000, UTC).isoformat(),
        "title": title,
        "detail": detail,
        "facts": occurrence.facts,
    }
    body = json.dumps(content).encode()
    return body if len(body) <= BODY_BYTES_MAX else json.dumps({**content, "facts": {}}).encode()


def headers_of(occurrence: Occurrence, body: bytes, key: str | None, *, now_ms: int) -> dict[str, str]:
    """Headers of the request. The signature covers time and body, so that a receiver can refuse what is old."""
    headers = {"Content-Type": "application/json", ID_HEADER: _header_text(occurrence.occurrence_id)}
    if key is not None:
        headers[SIGNATURE_HEADER] = f"t={now_ms // 1000},v1={signature(key, now_ms // 1000, body)}"
    return headers


def signature(key: str, time_s: int, body: bytes) -> str:
    """HMAC-SHA256 over "TIME.BODY", in hexadecimal (RFC 2104)."""
    return hmac.new(key.encode(), f"{time_s}.".encode() + body, hashlib.sha256).hexdigest()


def _slack(text: str) -> str:
    """Slack reads these three characters as its own: docs.slack.dev, "Formatting message text"."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _header_text(text: str) -> str:
    """Names of groups may hold anything; a header only ASCII."""
    return json.dumps(text)[1:-1].replace("\x7f", "?")
