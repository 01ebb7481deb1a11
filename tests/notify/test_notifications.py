"""Notifications: each occurrence reaches each webhook once, signed, whoever sends and whatever fails meanwhile."""

import hashlib
import hmac
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest

from assignor_core.deciding.reasons import Reason
from streaming import tables
from streaming.errors import TableUnavailable
from streaming.notify.deliveries import CLAIM_MS, Deliveries
from streaming.notify.occurrences import LASTS_MS, Occurrence
from streaming.notify.sender import (
    BODY_BYTES_MAX,
    ID_HEADER,
    SENT_AT_A_TIME,
    SIGNATURE_HEADER,
    TEXT_LENGTH_MAX,
    TIMEOUT_S,
    Notifier,
    body_of,
)
from streaming.runtime.jars import PROJECT_ROOT
from streaming.runtime.secrets import secrets_of
from streaming.serve.samples import Sample, samples
from streaming.serve.snapshot import SnapshotReader
from streaming.settings import Settings
from streaming.settings.notify import WEBHOOKS_MAX, NotificationKind, NotifySettings, WebhookSettings
from streaming.views.group_ranking import GroupTopic
from streaming.views.notifications import WebhookState
from tests.serve.synthetic import NOW_MS, Synthetic
from tests.tables_in_memory import in_memory
from tests.waiting import until

KEY = "a key of the receiver"
HOUR_MS = 3_600_000


@dataclass
class Receiver:
    """An HTTP server on loopback that answers with `status` and keeps what it got."""

    status: int = 200
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def titles(self) -> list[str]:
        return [json.loads(body).get("title") or json.loads(body)["text"] for _, body in self.requests]


@dataclass
class Clock:
    now_ms: int = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append((dict(self.headers), body))
            self.send_response(received.status)
            self.send_header("Location", received.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}/hook"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield received
        server.shutdown()


@pytest.fixture
def root() -> str:
    return in_memory()


@pytest.fixture
def synthetic(root: str) -> Synthetic:
    return Synthetic(root)


def settings_of(root: str, *, mode: str = "propose", interval_ms: int = 5_000, **webhooks: dict[str, Any]) -> Settings:
    notify = {"webhooks": webhooks, "interval_ms": interval_ms}
    settings = Settings.model_validate({"kafka": {"cluster_name": "test"}, "control": {"mode": mode}, "notify": notify})
    return settings.model_copy(update={"storage": settings.storage.model_copy(update={"tables": root})})


def begin(synthetic: Synthetic) -> None:
    """An execution has started."""
    synthetic.event(NOW_MS, 0, "approved")
    synthetic.event(NOW_MS, 1, "started")


def pass_minutes(count: int, clock: Clock, *notifiers: Notifier) -> None:
    for _ in range(count):
        clock.now_ms += 60_000
        for notifier in notifiers:
            notifier.send_due()


def test_events_of_an_execution_are_sent_once_and_in_their_order(
    receiver: Receiver, root: str, synthetic: Synthetic
) -> None:
    clock = Clock()
    settings = settings_of(root, ops={"url": receiver.url})
    notifiers = [Notifier(settings, list, clock) for _ in range(2)]
    for number, event in enumerate(("approved", "started", "submitted", "done", "measured")):
        synthetic.event(NOW_MS + number, number, event)
    for notifier in notifiers * 2:
        notifier.send_due()
    assert receiver.titles() == [
        "Execution of plan aaaaaaaaaaaa has started",
        "Plan aaaaaaaaaaaa is carried out",
        "Load after plan aaaaaaaaaaaa is measured",
    ]
    started = json.loads(receiver.requests[0][1])
    assert (started["kafka_cluster"], started["kind"]) == ("test", "execution_started")
    assert started["facts"]["bytes_total"] == 123_000_000
    clock.now_ms += 10 * HOUR_MS
    Notifier(settings, list, clock).send_due()
    assert len(receiver.requests) == 3


def test_who_is_new_gets_nothing_of_the_past_and_who_was_away_gets_it(
    receiver: Receiver, root: str, synthetic: Synthetic
) -> None:
    clock = Clock()
    settings = settings_of(root, ops={"url": receiver.url})
    synthetic.event(NOW_MS - 60_000, 0, "approved")
    synthetic.event(NOW_MS - 59_000, 1, "started")
    Notifier(settings, list, clock).send_due()
    assert receiver.titles() == []
    synthetic.event(NOW_MS + 1, 2, "done")
    clock.now_ms += 1_000
    notifier = Notifier(settings, list, Clock(NOW_MS))
    notifier.send_due()
    assert receiver.titles() == ["Plan aaaaaaaaaaaa is carried out"]
    synthetic.event(NOW_MS + 2 * HOUR_MS, 3, "measured")  # while no serve runs
    Notifier(settings, list, Clock(NOW_MS + 2 * HOUR_MS + 60_000)).send_due()
    assert receiver.titles()[1:] == ["Load after plan aaaaaaaaaaaa is measured"]


def test_the_signature_covers_time_and_body(
    receiver: Receiver, root: str, synthetic: Synthetic, tmp_path: Path
) -> None:
    key_file, url_file = tmp_path / "key", tmp_path / "url"
    key_file.write_text(f"{KEY}\n")
    url_file.write_text(f"{receiver.url}?secret=of-the-url\n")
    settings = settings_of(root, ops={"url_file": str(url_file), "secret_file": str(key_file)})
    notifier = Notifier(settings, list, Clock())
    begin(synthetic)
    notifier.send_due()
    ((headers, body),) = receiver.requests
    signed_at, _, given = headers["X-Rebalancer-Signature"].removeprefix("t=").partition(",v1=")
    assert int(signed_at) == NOW_MS // 1000
    assert given == hmac.new(KEY.encode(), f"{signed_at}.".encode() + body, hashlib.sha256).hexdigest()
    assert secrets_of(settings) >= {KEY, f"{receiver.url}?secret=of-the-url"}


@pytest.mark.long
def test_what_fails_is_sent_again_later_and_given_up_in_the_end(
    receiver: Receiver, root: str, synthetic: Synthetic
) -> None:
    clock = Clock()
    settings = settings_of(root, ops={"url": receiver.url})
    notifier = Notifier(settings, list, clock)
    begin(synthetic)
    receiver.status = 503
    for _ in range(3):
        notifier.send_due()
    assert len(receiver.requests) == 1  # not again at once
    for _ in range(40):
        clock.now_ms += 150_000
        notifier.send_due()
    rows = tables.read(root, "notification")
    assert {row["occurrence_id"]: row["status"] for row in rows if row["stage"] == "given_up"} == {
        "execution:e-1:1": 503
    }
    assert 6 < len(receiver.requests) < 30
    assert len(rows) == 2 * len(receiver.requests)
    receiver.status, sent = 302, len(receiver.requests)
    synthetic.event(clock.now_ms, 2, "done")
    notifier.send_due()
    assert len(receiver.requests) == sent + 1  # a redirect is not followed
    receiver.status = 204
    clock.now_ms += 60_000
    notifier.send_due()
    assert tables.read(root, "notification")[-1]["stage"] == "sent"


def test_a_try_that_was_cut_off_by_a_kill_is_made_again(receiver: Receiver, root: str, synthetic: Synthetic) -> None:
    clock = Clock()
    settings = settings_of(root, ops={"url": receiver.url})
    killed = Notifier(settings, list, clock)
    begin(synthetic)
    (one,) = killed._happened(0, NOW_MS)  # what stands in the tables when a kill comes before the request
    assert Deliveries(root, "test").begin("ops", one, 0, now_ms=NOW_MS)
    follower = Notifier(settings, list, clock)
    follower.send_due()
    assert receiver.titles() == []
    clock.now_ms += CLAIM_MS
    follower.send_due()
    assert receiver.titles() == ["Execution of plan aaaaaaaaaaaa has started"]


def test_a_webhook_that_cannot_be_reached_holds_up_no_other(
    receiver: Receiver, root: str, synthetic: Synthetic, tmp_path: Path
) -> None:
    settings = settings_of(
        root,
        absent={"url_file": str(tmp_path / "absent")},
        closed={"url": "http://127.0.0.1:1/"},
        slack={"url": receiver.url, "format": "slack", "kinds": ["execution_started"]},
    )
    notifier = Notifier(settings, list, Clock())
    begin(synthetic)
    synthetic.event(NOW_MS, 2, "done")
    notifier.send_due()
    assert receiver.titles() == [
        "*Execution of plan aaaaaaaaaaaa has started* (cluster test)\nplan aaaaaaaaaaaa with 6 movements"
    ]
    failed = [row for row in tables.read(root, "notification") if row["stage"] == "failed"]
    assert sorted({row["webhook"] for row in failed}) == ["absent", "closed"]
    assert all(row["error"] for row in failed)


@pytest.fixture
def running() -> Iterator[Callable[[Notifier], None]]:
    """Starts the thread of a notifier and ends it after the test."""
    with ExitStack() as stack:

        def run(notifier: Notifier) -> None:
            notifier.start()
            stack.callback(notifier.stop)

        yield run


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "value"), [("SSL_CERT_FILE", "/nowhere/ca.pem"), ("ALL_PROXY", "socks5://127.0.0.1:1080")]
)
def test_an_environment_that_cannot_be_used_fails_tries_and_does_not_end_the_thread(
    receiver: Receiver,
    root: str,
    synthetic: Synthetic,
    running: Callable[[Notifier], None],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
) -> None:
    """A file of certificates may be away for a moment, while it is renewed."""
    clock = Clock()
    settings = settings_of(root, interval_ms=20, chat={"url": receiver.url}, ops={"url": receiver.url})
    begin(synthetic)
    with monkeypatch.context() as patched:
        patched.setenv(variable, value)
        running(Notifier(settings, list, clock))
        until("tries fail", lambda: stages(root, "failed") == ["chat", "ops"])
    clock.now_ms += 60_000
    until("both are sent", lambda: stages(root, "sent") == ["chat", "ops"])
    assert len(receiver.requests) == 2


def test_a_bug_does_not_end_the_thread(
    receiver: Receiver, root: str, synthetic: Synthetic, running: Callable[[Notifier], None]
) -> None:
    looks = iter(range(100_000))

    def topics() -> list[GroupTopic]:
        if next(looks) == 0:
            raise KeyError("a bug")
        return []

    begin(synthetic)
    running(Notifier(settings_of(root, interval_ms=20, ops={"url": receiver.url}), topics, Clock()))
    until("it is sent", lambda: stages(root, "sent") == ["ops"])


def stages(root: str, stage: str) -> list[str]:
    """Webhooks of the tries that ended so."""
    return sorted(row["webhook"] for row in tables.read(root, "notification") if row["stage"] == stage)


def test_metrics_show_webhooks_that_wait_and_what_was_given_up(
    receiver: Receiver, root: str, synthetic: Synthetic
) -> None:
    settings = settings_of(root, ops={"url": receiver.url}, closed={"url": "http://127.0.0.1:1/"})
    clock = Clock()
    notifier = Notifier(settings, list, clock)
    snapshots = SnapshotReader(settings)
    assert snapshots.read(NOW_MS).webhooks == ()
    begin(synthetic)
    notifier.send_due()
    waiting = [WebhookState("closed", NOW_MS, None), WebhookState("ops", None, None)]
    assert list(snapshots.read(clock.now_ms).webhooks) == waiting
    clock.now_ms += settings.notify.give_up_ms
    notifier.send_due()
    snapshot = snapshots.read(clock.now_ms)
    assert list(snapshot.webhooks) == [WebhookState("closed", None, clock.now_ms), WebhookState("ops", None, None)]
    exported = [sample for sample in samples(snapshot, settings, ("1", "2", "3")) if "notification" in sample.name]
    assert exported == [Sample("notification_given_up_timestamp_seconds", ("closed",), clock.now_ms / 1000)]


def test_what_serve_was_away_for_too_long_to_send_counts_as_given_up(root: str, synthetic: Synthetic) -> None:
    """Else it would wait until its rows expire: nobody tries it again."""
    settings = settings_of(root, closed={"url": "http://127.0.0.1:1/"})
    give_up_ms, clock = settings.notify.give_up_ms, Clock()
    begin(synthetic)
    Notifier(settings, list, clock).send_due()
    snapshots = SnapshotReader(settings)
    last_known_ms = NOW_MS + 2 * give_up_ms
    assert list(snapshots.read(last_known_ms).webhooks) == [WebhookState("closed", NOW_MS, None)]
    rows = len(tables.read(root, "notification"))
    clock.now_ms = last_known_ms + 60_000
    Notifier(settings, list, clock).send_due()  # of another serve
    assert len(tables.read(root, "notification")) == rows
    given_up = [WebhookState("closed", None, last_known_ms)]
    assert list(snapshots.read(clock.now_ms).webhooks) == given_up  # with no new row
    assert list(SnapshotReader(settings).read(clock.now_ms).webhooks) == given_up


def test_a_notification_waits_as_long_as_serve_would_send_it(root: str, synthetic: Synthetic) -> None:
    """Serve knows it for some time after its newest row, not after what occurred."""
    settings = settings_of(root, closed={"url": "http://127.0.0.1:1/"})
    give_up_ms, clock = settings.notify.give_up_ms, Clock()
    begin(synthetic)
    notifier = Notifier(settings, list, clock)
    notifier.send_due()
    clock.now_ms += give_up_ms // 2
    notifier.send_due()
    clock.now_ms += 2 * give_up_ms
    assert list(SnapshotReader(settings).read(clock.now_ms).webhooks) == [WebhookState("closed", NOW_MS, None)]
    Notifier(settings, list, clock).send_due()
    assert stages(root, "given_up") == ["closed"]
    assert list(SnapshotReader(settings).read(clock.now_ms).webhooks) == [WebhookState("closed", None, clock.now_ms)]


def test_nothing_waits_for_a_webhook_that_the_settings_no_longer_have(root: str, synthetic: Synthetic) -> None:
    closed = {"url": "http://127.0.0.1:1/"}
    begin(synthetic)
    Notifier(settings_of(root, closed=closed, other=closed), list, Clock()).send_due()

    def shown(settings: Settings) -> list[WebhookState]:
        return list(SnapshotReader(settings).read(NOW_MS).webhooks)

    assert shown(settings_of(root, closed=closed)) == [WebhookState("closed", NOW_MS, None)]
    assert shown(settings_of(root, closed=closed | {"kinds": ["plan_waits"]})) == []
    assert shown(settings_of(root)) == []


@pytest.mark.parametrize(
    ("mode", "decision_id", "age_ms", "told"),
    [("propose", "d", 0, 1), ("propose", None, 0, 0), ("apply", "d", 0, 0), ("apply", "d", 60_000, 1)],
)
def test_a_plan_that_control_made_waits(
    receiver: Receiver, root: str, synthetic: Synthetic, mode: str, decision_id: str | None, age_ms: int, told: int
) -> None:
    notifier = Notifier(settings_of(root, mode=mode, ops={"url": receiver.url}), list, Clock(NOW_MS))
    synthetic.decision(NOW_MS, "plan", Reason.SKEWED.value, plan_id="a" * 64)
    synthetic.plan(NOW_MS, mode=mode, decision_id=decision_id)
    notifier._clock = Clock(NOW_MS + age_ms)
    notifier.send_due()
    notifier.send_due()
    assert len(receiver.requests) == told
    if told:
        content = json.loads(receiver.requests[0][1])
        assert content["title"].startswith("Plan aaaaaaaaaaaa waits for ")
        assert content["detail"].startswith("6 movements copy 123.0 MB; the plan expires at ")


def topic(group: str, *, stopped: int, lag: int) -> GroupTopic:
    return GroupTopic(group, "orders", "Empty", 3, {"stop": stopped, "ok": 3 - stopped}, lag, lag, 60.0, None, None)


@pytest.mark.parametrize(
    ("lag", "unit", "told"),
    [(1, "records", "1 record of the topic waits"), (2, "offsets", "2 offsets of the topic wait")],
)
def test_one_record_that_waits_is_told_in_the_singular(
    receiver: Receiver, root: str, lag: int, unit: str, told: str
) -> None:
    """A commit beyond the log end is told of, however little waits."""
    clock = Clock()
    stopped = replace(topic("billing", stopped=1, lag=lag), lag_unit=unit, beyond_end_records=1)
    notifier = Notifier(settings_of(root, ops={"url": receiver.url}), lambda: [stopped], clock)
    pass_minutes(2 * LASTS_MS // 60_000 + 1, clock, notifier)
    detail = json.loads(receiver.requests[0][1])["detail"]
    assert f"on 1 partition of topic orders; {told}, and a commit is 1 record beyond the log end" in detail


@pytest.mark.long
def test_a_group_that_stops_is_named_once_and_again_when_it_goes_on(receiver: Receiver, root: str) -> None:
    clock = Clock()
    topics: list[GroupTopic] = []
    settings = settings_of(root, ops={"url": receiver.url})
    notifiers = [Notifier(settings, lambda: topics, clock) for _ in range(2)]

    def pass_(ms: int) -> None:
        pass_minutes(ms // 60_000, clock, *notifiers)

    topics[:] = [
        topic("billing", stopped=2, lag=5_000),
        topic("small", stopped=2, lag=10),
        topic("fine", stopped=0, lag=10**6),
    ]
    pass_(LASTS_MS)
    assert receiver.titles() == []
    pass_(LASTS_MS)
    assert receiver.titles() == ["Consumer group billing has stopped"]
    notifiers.append(Notifier(settings, lambda: topics, clock))  # another serve starts
    pass_(2 * LASTS_MS)
    assert len(receiver.requests) == 1
    topics[:] = [topic("billing", stopped=0, lag=10)]
    pass_(2 * LASTS_MS)
    topics[:] = [topic("billing", stopped=2, lag=9_000)]
    pass_(2 * LASTS_MS)
    assert receiver.titles() == [
        "Consumer group billing has stopped",
        "Consumer group billing has recovered",
        "Consumer group billing has stopped",
    ]
    ids = [json.loads(body)["notification_id"].rpartition(":") for _, body in receiver.requests]
    assert {name for name, _, _ in ids} == {"group:billing"}
    assert [int(number) - int(ids[0][2]) for _, _, number in ids] == [0, 1, 2]


@pytest.mark.long
def test_a_group_that_stops_again_after_its_rows_have_expired_is_named_again(receiver: Receiver, root: str) -> None:
    """A transaction is known for ever, so that an id which comes again would be taken for one of another process."""
    clock = Clock()
    topics: list[GroupTopic] = []
    notifier = Notifier(settings_of(root, ops={"url": receiver.url}), lambda: topics, clock)

    def pass_(rows: list[GroupTopic]) -> None:
        topics[:] = rows
        pass_minutes(2 * LASTS_MS // 60_000, clock, notifier)

    told = ["Consumer group billing has stopped", "Consumer group billing has recovered"]
    for month in range(2):
        pass_([topic("billing", stopped=2, lag=5_000)])
        pass_([topic("billing", stopped=0, lag=0)])
        assert receiver.titles() == told * (month + 1)
        clock.now_ms += 31 * 24 * HOUR_MS
        tables.delete(root, "notification", tables.of_cluster("test"))


def test_groups_are_named_as_the_alert_has_it(receiver: Receiver, root: str) -> None:
    """A commit beyond the log end counts, with nothing that waits; a group that nobody uses any more does not."""
    clock = Clock()
    topics = [
        replace(topic("beyond", stopped=1, lag=0), beyond_end_records=70),
        topic("abandoned", stopped=2, lag=9_000),
    ]
    settings = settings_of(root, ops={"url": receiver.url})
    notifier = Notifier(settings, lambda: topics, clock, lambda: {"abandoned"})
    pass_minutes(12, clock, notifier)
    assert receiver.titles() == ["Consumer group beyond has stopped"]
    assert "a commit is 70 records beyond the log end" in json.loads(receiver.requests[0][1])["detail"]


def test_tables_that_cannot_be_written_send_nothing(
    receiver: Receiver, root: str, synthetic: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be sent again at each look."""
    notifier = Notifier(settings_of(root, ops={"url": receiver.url}), list, Clock())
    begin(synthetic)

    def full(*_: object, **__: object) -> bool:
        raise TableUnavailable("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(tables, "append", full)
        with pytest.raises(TableUnavailable, match="no space"):
            notifier.send_due()
    assert receiver.titles() == []
    notifier.send_due()
    assert len(receiver.requests) == 1


def test_names_of_any_characters_reach_the_receiver(receiver: Receiver, root: str) -> None:
    clock, name = Clock(), "a\r\nX-Evil: 1 <b>&é\x1b"
    notifier = Notifier(
        settings_of(root, ops={"url": receiver.url}, slack={"url": receiver.url, "format": "slack"}),
        lambda: [topic(name, stopped=1, lag=5_000)],
        clock,
    )
    pass_minutes(12, clock, notifier)
    (headers, body), (_, slack) = receiver.requests
    assert "X-Evil" not in headers
    assert json.loads(body)["subject"] == name
    assert "<b>" not in json.loads(slack)["text"]
    assert headers["X-Rebalancer-Notification-Id"].startswith("group:a\\r\\nX-Evil")


@pytest.mark.parametrize(
    ("webhook", "problem"),
    [
        ({}, "set either url or url_file"),
        ({"url": "http://h/", "url_file": "/f"}, "set either url or url_file"),
        ({"url": "ftp://h/"}, "must be like http"),
        ({"url": "http://h/", "kinds": []}, "at least 1 item"),
    ],
)
def test_settings_that_make_no_sense_are_refused(webhook: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        settings_of(in_memory("x"), ops=webhook)


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
