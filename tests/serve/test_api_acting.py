"""Requests that act: who may, what each attack gets, that a key acts once, and how every act ends."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from assignor_core.errors import NothingToPlanOn
from streaming.cli import run
from streaming.commands.acting import JournalActions
from streaming.control.wiring import journal_of
from streaming.errors import ClusterUnreachable
from streaming.runtime.accounts import Role, new_token, read_tokens, write_tokens
from streaming.serve.access import sign_in
from streaming.settings import Settings
from streaming.tables import append, replace, utc
from streaming.views.approvals import instant_text
from tests.control.noted_cluster import plan
from tests.serve.asking import ask
from tests.serve.served import ACT_PATHS, Served, refusal, state
from tests.serve.synthetic import NOW_MS


def test_without_authentication_acting_is_off_and_says_how_to_turn_it_on(tmp_path: Path, root: str) -> None:
    served = Served(tmp_path, root, tokens_file=None)
    for path in ACT_PATHS:
        status, detail = refusal(served.post(path))
        assert status == 403
        assert "set serve.tokens_file" in detail
        assert "rebalancer token create" in detail
    assert refusal(served.get("/api/v1/audit"))[0] == 403
    assert served.acts() == []


def test_an_approval_is_in_the_journal_and_the_audit_names_who_gave_it(served: Served) -> None:
    kept = plan(served.journal, 0, now_ms=NOW_MS)
    answer = served.post(f"plans/{kept.plan.plan_id}/approve", key="approve-1")
    assert state(answer) == (200, "accepted")
    assert "no control holds the lease: it waits until one runs" in answer.json()["detail"]
    execution = served.journal.open_executions(now_ms=NOW_MS)[0]
    assert execution.execution_id == answer.json()["execution_id"]
    assert "approved by operator-1 (token " in execution.last.detail
    begun, ended = sorted(served.acts(), key=lambda row: row["stage"])
    assert (begun["status"], ended["status"], ended["state"]) == (None, 200, "accepted")
    for row in (begun, ended):
        assert (row["actor"], row["role"], row["action"]) == ("operator-1", "operator", "approve")
        assert (row["target"], row["remote_address"]) == (kept.plan.plan_id, "127.0.0.1")
    shown = served.get("/api/v1/audit").json()["items"]
    assert [(row["actor"], row["state"]) for row in shown] == [("operator-1", "accepted")]
    assert refusal(served.get("/api/v1/audit", role=None))[0] == 401


def test_an_act_that_has_not_ended_is_in_the_list_of_acts(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """serve was killed while it acted, say: who looks for what was done must see that it was begun."""
    served.post("brokers/3/undrain", key="ended-first")
    with monkeypatch.context() as patch:
        patch.setattr(JournalActions, "undrain", killed)
        with pytest.raises(KeyboardInterrupt):
            served.post("brokers/4/undrain", key="begun-then")
    shown = served.get("/api/v1/audit").json()["items"]
    stages = {row["target"]: (row["stage"], row["state"], row["ended_ms"]) for row in shown}
    assert stages == {"3": ("ended", "not_drained", NOW_MS), "4": ("begun", None, None)}
    pages: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    for _ in shown:
        answer = served.get("/api/v1/audit?" + urlencode({"limit": 1, **cursor})).json()
        pages += answer["items"]
        cursor = {"cursor": answer["next_cursor"]}
    assert pages == shown


def killed(_self: JournalActions, _broker: int, _by: str, *, now_ms: int) -> None:
    raise KeyboardInterrupt


def test_a_plan_is_approved_once(served: Served) -> None:
    kept = plan(served.journal, 0, now_ms=NOW_MS)
    path = f"plans/{kept.plan.plan_id}/approve"
    first, second = served.post(path), served.post(path)
    assert [state(first), state(second)] == [(200, "accepted"), (200, "already_approved")]
    assert first.json()["execution_id"] == second.json()["execution_id"]
    assert len(served.journal.executions(now_ms=NOW_MS)) == 1


def test_a_plan_that_was_refused_or_carried_out_is_not_begun_again(served: Served) -> None:
    kept = plan(served.journal, 0, now_ms=NOW_MS)
    served.journal.refuse(kept, "it no longer fits", now_ms=NOW_MS)
    answer = served.post(f"plans/{kept.plan.plan_id}/approve")
    assert state(answer) == (409, "already_ended")
    assert "make a new plan" in refusal(answer)[1]


def test_an_old_plan_is_refused_and_an_unknown_or_shortened_id_too(served: Served) -> None:
    kept = plan(served.journal, 0, now_ms=NOW_MS - 30 * 86_400_000)
    assert state(served.post(f"plans/{kept.plan.plan_id}/approve")) == (409, "expired")
    assert state(served.post(f"plans/{'0' * 64}/approve")) == (404, "unknown")
    assert refusal(served.post(f"plans/{kept.plan.plan_id[:12]}/approve"))[0] == 400
    assert served.journal.executions(now_ms=NOW_MS) == []


def test_while_another_control_takes_over_the_approval_waits_in_the_journal(served: Served) -> None:
    """It is a row: whoever holds the lease next reads it. The answer names who holds it now."""
    tables_root, kept = served.settings.storage.tables, plan(served.journal, 0, now_ms=NOW_MS)
    row = {"kafka_cluster": "test", "sequence": 1, "owner": "host-a/1", "renewed_at": utc(NOW_MS), "ttl_ms": 15_000}
    append(tables_root, "lease", [{**row, "released": False}], transaction_id="lease:test", transaction_version=1)
    answer = served.post(f"plans/{kept.plan.plan_id}/approve")
    assert "host-a/1 carries it out" in answer.json()["detail"]
    replace(tables_root, "lease", [{**row, "sequence": 2, "owner": "host-b/1", "released": False}],
            kafka_cluster="test", transaction_id="lease:test", transaction_version=2)  # fmt: skip
    taken = journal_of(served.settings).open_executions(now_ms=NOW_MS)
    assert [one.execution_id for one in taken] == [answer.json()["execution_id"]]
    again = served.post(f"plans/{kept.plan.plan_id}/approve")
    assert state(again) == (200, "already_approved")


def test_an_approval_with_a_time_names_it_and_the_plan_shows_it(served: Served) -> None:
    kept, begins_ms = plan(served.journal, 0, now_ms=NOW_MS), NOW_MS + 3_600_000
    path = f"plans/{kept.plan.plan_id}"
    for wrong in (True, "tomorrow", -1, 1.5, None):
        assert refusal(served.post(f"{path}/approve", json={"begins_ms": wrong}))[0] == 400
    status, detail = refusal(served.post(f"{path}/approve", json={"begins_ms": NOW_MS - 3_600_000}))
    assert (status, "has passed; it is " in detail) == (400, True)
    status, detail = refusal(served.post(f"{path}/approve", json={"begins_ms": NOW_MS + 15 * 86_400_000}))
    assert (status, "is more than 14 days ahead" in detail) == (400, True)
    answer = served.post(f"{path}/approve", json={"begins_ms": begins_ms})
    assert state(answer) == (200, "accepted")
    assert answer.json()["begins_ms"] == begins_ms
    assert f"and begins at {instant_text(begins_ms)} or later" in answer.json()["detail"]
    again = served.post(f"{path}/approve")
    assert (state(again), again.json()["begins_ms"]) == ((200, "already_approved"), begins_ms)
    shown = served.get(f"/api/v1/{path}").json()
    assert (shown["waits"], shown["waits_for"]) == (False, f"begins at {instant_text(begins_ms)} or later")
    (execution,) = served.get("/api/v1/executions").json()["items"]
    assert (execution["phase"], execution["begins_ms"], execution["approver"]) == ("waiting", begins_ms, "operator-1")


def test_two_people_who_are_signed_in_approve_a_plan(tmp_path: Path, root: str) -> None:
    served = Served(tmp_path, root)
    served.settings = Settings.model_validate(served.settings.model_dump() | {"control": {"approvals": 2}})
    served.app = served.application()
    kept = plan(served.journal, 0, now_ms=NOW_MS)
    path = f"plans/{kept.plan.plan_id}"
    first = served.post(f"{path}/approve")
    assert (state(first), first.json()["phase"]) == ((200, "needs_approval"), "pending")
    assert "has 1 of 2 approvals, by operator-1: another person has to approve it" in first.json()["detail"]
    shown = served.get(f"/api/v1/{path}").json()
    assert (shown["waits"], shown["waits_for"]) == (True, "has 1 of 2 approvals, by operator-1")
    again = served.post(f"{path}/approve")
    assert (state(again), "another person has to approve it" in refusal(again)[1]) == ((409, "declined"), True)
    assert refusal(served.post(f"{path}/approve", role=Role.VIEWER))[0] == 403
    second = served.post(f"{path}/approve", role=Role.ADMIN)
    assert (state(second), second.json()["phase"]) == ((200, "accepted"), "waiting")
    (execution,) = served.journal.open_executions(now_ms=NOW_MS)
    assert execution.approvers == ("operator-1", "admin-1")


def test_an_abort_is_asked_once_and_leaves_what_has_ended(served: Served) -> None:
    kept = plan(served.journal, 0, now_ms=NOW_MS)
    execution = served.journal.approve(kept, "a test", now_ms=NOW_MS)
    path = f"executions/{execution.execution_id}/abort"
    assert state(served.post(path)) == (200, "abort_asked")
    asked = served.journal.execution(execution.execution_id)
    assert asked.abort_requested
    assert state(served.post(path)) == (200, "already_requested")
    ended = served.journal.refuse(plan(served.journal, 1, now_ms=NOW_MS), "no", now_ms=NOW_MS)
    assert state(served.post(f"executions/{ended.execution_id}/abort")) == (409, "already_ended")
    assert state(served.post("executions/e-9/abort")) == (404, "unknown")


@pytest.mark.parametrize(
    ("error", "status"), [(NothingToPlanOn("no closed window"), 409), (ClusterUnreachable("no broker answers"), 503)]
)
def test_what_goes_wrong_is_an_answer_and_a_row(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(_self: JournalActions, *, now_ms: int) -> None:
        raise error

    monkeypatch.setattr(JournalActions, "make_plan", fail)
    assert refusal(served.post("plans")) == (status, str(error))
    assert [row["status"] for row in served.acts() if row["stage"] == "ended"] == [status]


def test_a_request_with_its_key_acts_once_and_gets_its_answer_again(served: Served) -> None:
    kept = plan(served.journal, 0, now_ms=NOW_MS)
    path = f"plans/{kept.plan.plan_id}/approve"
    first, again = served.post(path, key="once-only"), served.post(path, key="once-only")
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert len(served.acts()) == 2
    for other in (served.post("executions/e-9/abort", key="once-only"), served.post(path, key="once-only", json={})):
        assert refusal(other)[0] == 422, "another path, or another body"
    of_another = served.post(path, key="once-only", role=Role.ADMIN)
    assert state(of_another) == (200, "already_approved"), "keys of two people are two keys"
    assert refusal(served.post(path, headers={"Idempotency-Key": ""}))[0] == 400


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9464.evil.example"},
     {"Origin": "http://127.0.0.1:9465"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
    ids=str,
)  # fmt: skip
def test_requests_of_other_sites_are_refused(served: Served, headers: dict[str, str]) -> None:
    assert refusal(served.post("brokers/3/undrain", headers=headers))[0] == 403
    own = {"Origin": "http://127.0.0.1:9464", "Sec-Fetch-Site": "same-origin"}
    assert served.post("brokers/3/undrain", headers=own).status_code == 200


def test_a_form_of_another_site_is_refused(served: Served) -> None:
    """A page may send these types without asking first; it could not send JSON."""
    for media_type in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
        answer = served.post("brokers/3/drain", content=b'{"carry_out": true}', headers={"Content-Type": media_type})
        assert refusal(answer)[0] == 415


def test_a_host_that_was_pointed_here_is_refused(served: Served) -> None:
    assert served.post("brokers/3/undrain", headers={"Host": "rebound.example"}).status_code == 421
    assert served.acts() == []


def test_many_wrong_tokens_are_slowed_and_a_right_one_still_holds(served: Served) -> None:
    wrong = f"rbt_{'0' * 12}_{'x' * 43}"
    answers = [served.post("brokers/3/undrain", headers={"Authorization": f"Bearer {wrong}"}) for _ in range(30)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 20
    assert answers[0].headers["www-authenticate"] == "Bearer"
    assert answers[-1].headers["retry-after"] == "60"
    assert served.post("brokers/3/undrain").status_code == 200
    assert len({row["act_id"] for row in served.acts()}) == 1


def test_so_many_addresses_are_remembered_and_no_more(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "ADDRESSES_MAX", 3)

    def wrong(address: str) -> int:
        headers = {"Authorization": "Bearer x"}
        return ask(served.app, "POST", "/api/v1/brokers/3/undrain", headers=headers, client=(address, 1)).status_code

    assert [wrong("10.0.0.1") for _ in range(sign_in.WRONG_MAX + 1)] == [401] * sign_in.WRONG_MAX + [429]
    assert [wrong(f"10.0.0.{number}") for number in (2, 3)] == [401, 401]
    assert wrong("10.0.0.1") == 429
    assert [wrong(f"10.0.0.{number}") for number in (4, 5, 6)] == [401, 401, 401]
    assert wrong("10.0.0.1") == 401, "it was forgotten"


def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    headers = {"Content-Type": "application/json"}
    assert refusal(served.post("brokers/3/drain", content=b" " * 10_000_000, headers=headers))[0] == 413
    assert served.acts() == []


@pytest.mark.parametrize(
    "body",
    [b'{"carry_out": NaN}', b'{"carry_out": 1e999}', b'{"carry_out": ' + b"9" * 10_000 + b"}", b'{"carry_out": "true"}',
     b'{"\\ud800": true}', b'{"carry_out": "\\udfff"}', b"\xff\xfe{", b'{"carry_out": true', b"null", b"\x00",
     b'{"a":' * 2_000 + b"1" + b"}" * 2_000, b'{"carry_out": true, "carry_out": true}', b'{"carry_out": null}',
     b"[]", b"{", b"[" * 10_000, b'{"carry_out": 1}', b'{"<script>": true}'],
    ids=lambda body: ascii(body[:24]),
)  # fmt: skip
def test_a_body_that_is_no_object_or_odd_json_is_refused_and_leaves_no_row(served: Served, body: bytes) -> None:
    answer = served.post("brokers/3/drain", content=body, headers={"Content-Type": "application/json"})
    assert refusal(answer)[0] == 400
    assert served.acts() == []


@pytest.mark.parametrize("path", ["brokers/-1/drain", "brokers/x/drain", "brokers/99999999999/drain",
                                  f"plans/{'a' * 65}/approve", f"plans/%00{'a' * 63}/approve"])  # fmt: skip
def test_targets_that_can_not_be_are_refused(served: Served, path: str) -> None:
    assert refusal(served.post(path))[0] in (400, 404)


def test_script_in_the_name_of_a_token_stays_text(served: Served) -> None:
    name = "<script>alert(1)</script>"
    text, made = new_token(name, Role.OPERATOR, now_ms=NOW_MS, expires_ms=NOW_MS + 1_000)
    write_tokens(served.file, [*read_tokens(served.file).values(), made])
    served.post("brokers/3/undrain", headers={"Authorization": f"Bearer {text}"})
    shown = served.get("/api/v1/audit")
    assert shown.json()["items"][0]["actor"] == name
    assert shown.headers["content-type"] == "application/json"


def test_tokens_are_made_listed_and_taken_away(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", f"serve.tokens_file={served.file}"]
    assert run(["token", "create", "billing-bot", "--role", "operator", "--days", "3650", *options]) == 0
    text = capsys.readouterr().out.strip()
    assert text not in served.file.read_text(), "the file has a hash alone"
    assert served.file.stat().st_mode & 0o077 == 0
    token_id = text.split("_")[1]
    headers = {"Authorization": f"Bearer {text}"}
    assert served.post("brokers/3/undrain", key="of-the-bot", headers=headers).status_code == 200
    assert run(["token", "list", *options]) == 0
    assert f"{token_id}  operator" in capsys.readouterr().out
    assert run(["token", "revoke", token_id, *options]) == 0
    again = served.post("brokers/3/undrain", key="of-the-bot", headers=headers)
    assert again.status_code == 401, "nor does it get the answer of before"
    assert run(["token", "revoke", token_id, *options]) == 2
    assert run(["token", "list", "--set", "serve.tokens_file=null"]) == 2


def test_an_expired_token_and_a_spoilt_file_let_nobody_in(served: Served) -> None:
    text, made = new_token("old", Role.ADMIN, now_ms=NOW_MS - 2, expires_ms=NOW_MS)
    write_tokens(served.file, [made])
    assert served.post("brokers/3/undrain", headers={"Authorization": f"Bearer {text}"}).status_code == 401
    for content in ("", "{}", '{"tokens": [{}]}', json.dumps({"tokens": [{"role": "root"}]})):
        served.file.write_text(content)
        assert refusal(served.post("brokers/3/undrain"))[0] == 503
    served.file.unlink()
    assert refusal(served.post("brokers/3/undrain"))[0] == 503


def test_the_document_names_every_act(served: Served) -> None:
    paths = served.get("/api/openapi.json").json()["paths"]
    acts = {path for path, methods in paths.items() if "post" in methods}
    assert acts == {
        "/api/v1/plans",
        "/api/v1/plans/{plan_id}/approve",
        "/api/v1/executions/{execution_id}/abort",
        "/api/v1/brokers/{broker}/add",
        "/api/v1/brokers/{broker}/demote",
        "/api/v1/brokers/{broker}/drain",
        "/api/v1/brokers/{broker}/undemote",
        "/api/v1/brokers/{broker}/undrain",
        "/api/v1/session",
    }
    assert set(paths.pop("/api/v1/session")) == {"get", "post", "delete"}
    assert all({"get", "post"} >= set(methods) for methods in paths.values())


def test_the_document_says_what_a_key_is_and_where_a_token_is_needed(served: Served) -> None:
    paths = served.get("/api/openapi.json").json()["paths"]
    acts = [methods["post"] for path, methods in paths.items() if "post" in methods and path != "/api/v1/session"]
    for act in acts:
        key = next(parameter["schema"] for parameter in act["parameters"] if parameter["name"] == "Idempotency-Key")
        fits = [
            bool(re.search(key["pattern"], text))
            for text in ("a-key-123", "~" * 128, "short", "a key 123", "\u00e9" * 9)
        ]
        assert fits == [True, True, False, False, False]
    assert paths["/api/v1/audit"]["get"]["security"] == [{"token": []}, {"session": []}]
    assert acts[0]["security"] == [{"token": []}, {"session": [], "csrf": []}]
    assert "403" in paths["/api/v1/audit"]["get"]["responses"]
    reading = [methods["get"]["responses"] for methods in paths.values() if "get" in methods]
    assert all({"401", "429"} <= set(responses) for responses in reading), "serve.reading may be signed_in"
