"""What is sent for one occurrence: a body, and headers that sign it."""

import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Literal

from streaming.notify.occurrences import Occurrence

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
