"""People who sign in with a password: who gets in, what each attack gets, and when a session ends."""

import asyncio
import fcntl
import hashlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from streaming.cli import run
from streaming.runtime import accounts
from streaming.runtime.accounts import Role, Roles, new_user, read_users, user_with, write_users
from streaming.serve.access import signing
from streaming.serve.access.sessions import OF_USER_MAX
from streaming.serve.access.signing import Attempts
from streaming.serve.web import page_files
from streaming.settings import ServeSettings
from tests.serve.asking import BASE_URL, ask
from tests.serve.served import refusal
from tests.serve.signed import PASSWORD, PATH, Browser, Signed
from tests.serve.synthetic import NOW_MS

HTTPS = BASE_URL.replace("http://", "https://")
IDLE_MS, SESSION_MS = ServeSettings().session_idle_ms, ServeSettings().session_ms


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Salts of passwords that were hashed."""
    salts: list[str] = []
    own = accounts._digest

    def digest(password: str, salt: str) -> str:
        salts.append(salt)
        return own(password, salt)

    monkeypatch.setattr(accounts, "_digest", digest)
    return salts


@pytest.fixture
def signed(tmp_path: Path, root: str, hashed: list[str]) -> Signed:
    made = Signed(tmp_path, root)
    hashed.clear()
    return made


def test_who_signs_in_acts_as_the_role_allows_and_the_audit_says_how(signed: Signed) -> None:
    browser = Browser(signed)
    shown = browser.asks("GET", PATH).json()
    assert (shown["signed_in"], shown["name"], shown["role"]) == (True, "ada", "operator")
    assert (shown["csrf_token"], shown["ends_in_ms"]) == (browser.csrf_token, IDLE_MS)
    assert browser.acts().status_code == 200
    assert {row["actor"] for row in signed.acts()} == {"ada"}
    assert {row["signed_in_by"] for row in signed.acts()} == {shown["signed_in_by"]}
    assert shown["signed_in_by"].startswith("session ")
    assert shown["signed_in_by"].removeprefix("session ") not in browser.cookie
    assert browser.asks("GET", "/api/v1/audit").json()["items"][0]["actor"] == "ada"
    viewer, acts = Browser(signed, "vic"), signed.acts()
    assert viewer.asks("GET", "/api/v1/audit").status_code == 200
    assert refusal(viewer.acts())[0] == 403
    assert signed.acts() == acts


def test_no_script_reads_the_cookie_and_no_other_site_makes_browsers_send_it(signed: Signed) -> None:
    plain, over_tls = Browser(signed), Browser(signed, site=HTTPS)
    assert plain.set_cookie.split("; ")[1:] == ["HttpOnly", "Path=/", "SameSite=strict"]
    assert over_tls.set_cookie.split("; ")[1:] == ["HttpOnly", "Path=/", "SameSite=strict", "Secure"]
    assert over_tls.cookie.startswith("__Host-rebalancer_session=")
    assert len(plain.cookie.partition("=")[2]) == 43, "256 bits"
    assert over_tls.acts().status_code == 200


@pytest.mark.parametrize("csrf_token", [None, "", "wrong", "\u00e9", "x" * 43])
def test_an_act_without_the_csrf_token_of_its_session_is_refused(signed: Signed, csrf_token: str | None) -> None:
    browser, other = Browser(signed), Browser(signed, "vic")
    given = None if csrf_token is None else csrf_token.encode()
    for answer in (browser.acts(X_CSRF_Token=given), browser.acts(X_CSRF_Token=other.csrf_token)):
        assert refusal(answer)[0] == 403
        assert "X-CSRF-Token" in answer.text
    assert refusal(browser.asks("DELETE", PATH, {"X-CSRF-Token": given}))[0] == 403
    assert signed.acts() == []
    assert browser.is_signed_in()


@pytest.mark.parametrize("origin", [None, "null", "", "http://evil.example", "http://127.0.0.1:9465"])
def test_an_act_of_another_origin_or_of_none_is_refused(signed: Signed, origin: str | None) -> None:
    browser = Browser(signed)
    assert refusal(browser.acts(Origin=origin))[0] == 403
    assert refusal(browser.asks("DELETE", PATH, {"Origin": origin}))[0] == 403
    assert refusal(signed.sign_in(headers={"Origin": "http://evil.example"}))[0] == 403
    assert signed.acts() == []
    assert browser.is_signed_in()


def test_a_cookie_and_a_page_without_tls_do_not_hold_over_tls(signed: Signed) -> None:
    """Whoever answers for the name without TLS may set cookies of any name but those with the prefix."""
    cookie = Browser(signed).cookie
    assert not ask(signed.app, "GET", HTTPS + PATH, headers={"Cookie": cookie}).json()["signed_in"]
    assert refusal(Browser(signed, site=HTTPS).acts(Origin=BASE_URL))[0] == 403, "another origin, too"
    assert signed.acts() == []


def test_a_token_needs_neither_origin_nor_csrf_token_and_goes_before_a_cookie(signed: Signed) -> None:
    assert signed.post("brokers/3/undrain").status_code == 200
    viewer = Browser(signed, "vic")
    assert signed.post("brokers/3/undrain", headers={"Cookie": viewer.cookie}).status_code == 200
    assert all(row["signed_in_by"].startswith("token ") for row in signed.acts())
    operator = Browser(signed)
    assert operator.acts(Authorization="Bearer wrong").status_code == 401, "a wrong token is not made up for"
    shown = signed.get(PATH, Role.VIEWER).json()
    assert (shown["signed_in"], shown["name"], shown["csrf_token"]) == (True, "viewer-1", None)


def test_an_id_that_somebody_else_chose_or_knew_is_worth_nothing(signed: Signed) -> None:
    chosen = f"rebalancer_session={'a' * 43}"
    assert Browser(signed, headers={"Cookie": chosen}).cookie != chosen
    assert not ask(signed.app, "GET", PATH, headers={"Cookie": chosen}).json()["signed_in"]
    before = Browser(signed, "vic")
    after = Browser(signed, headers={"Cookie": before.cookie})
    assert after.cookie != before.cookie
    assert not before.is_signed_in()
    assert after.is_signed_in()


@pytest.mark.parametrize("value", ["", "x", "a" * 5_000, "a" * 42 + "\u00e9", "=" * 43])
def test_a_cookie_that_is_none_is_nobody(signed: Signed, value: str) -> None:
    cookie = f"rebalancer_session={value}".encode()
    assert ask(signed.app, "GET", PATH, headers={b"Cookie": cookie}).json()["signed_in"] is False


def test_a_cookie_that_was_stolen_does_not_hold_after_the_sign_out(signed: Signed) -> None:
    browser = Browser(signed)
    ended = browser.asks("DELETE", PATH)
    assert ended.json()["signed_in"] is False
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert not browser.is_signed_in()
    assert refusal(browser.acts())[0] == 401
    assert browser.asks("DELETE", PATH).status_code == 200, "once more is no error"
    assert signed.acts() == []


def change(signed: Signed, *command: str) -> None:
    assert run(["user", *command, "--set", f"serve.users_file={signed.users}"]) == 0


@pytest.mark.parametrize("command", [("remove", "ada"), ("role", "ada", "--role", "viewer"), ("password", "ada")])
def test_a_user_who_is_removed_or_changed_is_signed_out(
    signed: Signed, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "password").write_text("another one that rhymes\n")
    browser, other = Browser(signed), Browser(signed, "vic")
    change(signed, *command, *(["--password-file", str(tmp_path / "password")] if command[0] == "password" else []))
    assert refusal(browser.acts())[0] == 401
    assert not browser.is_signed_in()
    assert other.is_signed_in()
    assert signed.acts() == []


def test_who_gets_the_name_of_a_removed_user_does_not_get_their_session(signed: Signed) -> None:
    """Nobody asks in between: else the session would have ended with the user."""
    browser = Browser(signed)
    others = [user for user in read_users(signed.users).values() if user.name != "ada"]
    write_users(signed.users, [*others, new_user("ada", Role.OPERATOR, PASSWORD, now_ms=NOW_MS)])
    assert not browser.is_signed_in()


def test_a_session_that_is_not_used_ends_and_what_is_read_is_no_use(signed: Signed) -> None:
    browser = Browser(signed)
    signed.clock_ms += IDLE_MS - 1
    assert browser.asks("GET", "/api/v1/audit").status_code == 200
    assert browser.is_signed_in()
    signed.clock_ms += IDLE_MS - 1
    assert browser.asks("GET", "/api/v1/audit").status_code == 200
    assert refusal(browser.acts(X_CSRF_Token=None))[0] == 403
    signed.clock_ms += 1
    assert refusal(browser.asks("GET", "/api/v1/audit"))[0] == 401
    assert not browser.is_signed_in()


def test_a_session_that_is_used_ends_too(signed: Signed) -> None:
    browser = Browser(signed)
    for _ in range(SESSION_MS // IDLE_MS * 2 - 1):
        signed.clock_ms += IDLE_MS // 2
        assert browser.is_signed_in()
    assert browser.asks("GET", PATH).json()["ends_in_ms"] == IDLE_MS // 2
    signed.clock_ms += IDLE_MS // 2
    assert not browser.is_signed_in()


def test_a_user_has_so_many_sessions_and_others_keep_theirs(signed: Signed) -> None:
    other, browsers = Browser(signed, "vic"), []
    for _ in range(OF_USER_MAX + 1):
        signed.clock_ms += 1
        browsers.append(Browser(signed))
    assert [browser.is_signed_in() for browser in browsers] == [False] + [True] * OF_USER_MAX
    assert other.is_signed_in()


def test_an_unknown_user_costs_as_much_as_a_wrong_password(signed: Signed, hashed: list[str]) -> None:
    wrong, unknown = signed.sign_in("ada", "wrong"), signed.sign_in("bob", "wrong")
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json() == unknown.json()
    assert len(hashed) == 2
    assert "set-cookie" not in wrong.headers


async def many_wrong(signed: Signed, count: int) -> list[int]:
    """Statuses of so many wrong passwords for ada, each from an address of its own."""
    statuses: list[int] = []
    content = json.dumps({"name": "ada", "password": "wrong"}).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    for number in range(count):
        scope = {
            "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b"",
            "root_path": "", "scheme": "http", "client": (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1),
            "server": ("127.0.0.1", 1), "http_version": "1.1", "headers": headers,
        }  # fmt: skip
        await signed.app(scope, receive, send)
    return statuses


@pytest.mark.long
def test_of_ten_thousand_wrong_passwords_few_are_looked_at(signed: Signed, hashed: list[str]) -> None:
    browser = Browser(signed)
    hashed.clear()
    statuses = asyncio.run(many_wrong(signed, 10_000))
    assert statuses == [401] * signing.OF_USER_MAX + [429] * (10_000 - signing.OF_USER_MAX)
    assert len(hashed) == signing.OF_USER_MAX
    refused = signed.sign_in()
    assert refusal(refused)[0] == 429, "nor is the right one, or a guess would show"
    assert refused.headers["retry-after"] == "300"
    assert browser.is_signed_in()
    assert Browser(signed, "vic").is_signed_in()
    signed.clock_ms += signing.SPAN_MS
    assert Browser(signed).is_signed_in()


def test_an_address_that_tries_many_users_is_slowed_and_so_is_its_network(signed: Signed) -> None:
    def status(number: int, network: str) -> int:
        return signed.sign_in(f"user-{number}", "wrong", client=(f"{network}::{number:x}", 1)).status_code

    tries = signing.OF_ADDRESS_MAX + 1
    assert [status(number, "2001:db8:0:1") for number in range(1, tries + 1)] == [401] * (tries - 1) + [429]
    assert status(1, "2001:db8:0:2") == 401
    mapped = signed.sign_in("ada", client=("::ffff:10.0.0.1", 1))
    assert mapped.status_code == 200


def test_one_password_does_not_help_to_guess_another(signed: Signed) -> None:
    for _ in range(signing.OF_USER_MAX):
        assert signed.sign_in("vic").status_code == 200
        assert signed.sign_in("ada", "wrong").status_code == 401
    assert signed.sign_in("ada").status_code == 429
    assert signed.sign_in("vic").status_code == 200


def test_so_many_names_and_addresses_are_remembered_and_no_more() -> None:
    made = Attempts(1)
    for number in range(signing.KEYS_MAX + 50):
        assert made.take(f"{number}", now_ms=NOW_MS)
    assert made.take("0", now_ms=NOW_MS), "it was forgotten"
    assert not made.take(f"{signing.KEYS_MAX}", now_ms=NOW_MS)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"name": "ada"}', b'{"name": "ada", "password": 7}', b'{"name": ["ada"], "password": "x"}',
     b'{"name": "a\\nb", "password": "x"}', b'{"name": "", "password": "x"}', b'{"name": "ada", "password": ""}',
     b'{"name": "ada", "password": "\\ud800"}', b'{"name": "\\ud800", "password": "x"}',
     b'{"name": "ada", "password": "x", "role": "admin"}', b'{"name": "ada", "name": "vic", "password": "x"}',
     json.dumps({"name": "a" * 101, "password": "x"}).encode(),
     json.dumps({"name": "ada", "password": "x" * 1_001}).encode()],
)  # fmt: skip
def test_a_body_that_is_no_login_is_refused(signed: Signed, content: bytes) -> None:
    answer = ask(signed.app, "POST", PATH, content=content, headers={"Content-Type": "application/json"})
    assert refusal(answer)[0] == 400


def test_a_form_of_another_site_signs_nobody_in(signed: Signed) -> None:
    content = json.dumps({"name": "ada", "password": PASSWORD})
    for media_type in ("text/plain", "application/x-www-form-urlencoded"):
        assert refusal(ask(signed.app, "POST", PATH, content=content, headers={"Content-Type": media_type}))[0] == 415


def test_script_in_a_name_stays_text(signed: Signed) -> None:
    name = "<script>alert(1)</script>"
    write_users(signed.users, [new_user(name, Role.OPERATOR, PASSWORD, now_ms=NOW_MS)])
    browser = Browser(signed, name)
    shown = browser.asks("GET", PATH)
    assert shown.json()["name"] == name
    assert shown.headers["content-type"] == "application/json"
    assert (shown.headers["x-content-type-options"], shown.headers["cache-control"]) == ("nosniff", "no-store")
    assert browser.acts().status_code == 200
    assert browser.asks("GET", "/api/v1/audit").json()["items"][0]["actor"] == name


def test_the_page_runs_its_own_scripts_alone_and_sends_no_form_by_itself(signed: Signed) -> None:
    page = ask(signed.app, "GET", "/")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["script-src"] == "'self'"
    assert not re.search("https?://", page.text.replace("http://www.w3.org/2000/svg", "")), "nothing from elsewhere"
    assert (policy["default-src"], policy["form-action"], policy["connect-src"]) == ("'none'", "'none'", "'self'")
    assert '<form id="sign-in" method="post"' in page.text, "without a script no password gets into an address"
    assert re.findall(r"<script.*?</script>", page.text, re.DOTALL) == ['<script type="module" src="main.js"></script>']
    scripts = [ask(signed.app, "GET", f"/{name}") for name in page_files() if name.endswith(".js")]
    for script in scripts:
        assert script.headers["content-type"].startswith("text/javascript")
        assert (script.headers["x-content-type-options"], script.headers["cache-control"]) == ("nosniff", "no-cache")
    # The library of templates makes markup of what stands in scripts, and text of all else.
    own = [script.text for script in scripts if not script.url.path.startswith("/lit-html/")]
    sources = page.text + "".join(own)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|javascript:", sources)
    assert not re.search(r"<[^>]+ on\w+=", page.text)
    assert '<form id="plan-search" method="post"' in page.text


def test_where_reading_is_signed_in_a_session_reads(tmp_path: Path, root: str, hashed: list[str]) -> None:
    signed = Signed(tmp_path, root, reading="signed_in", tokens_file=None)
    assert hashed
    nobody = ask(signed.app, "GET", PATH)
    assert (nobody.status_code, nobody.json()["signed_in"], nobody.json()["by_password"]) == (200, False, True)
    browser = Browser(signed, "vic")
    assert {browser.asks("GET", path).status_code for path in ("/api/status", "/metrics", "/api/openapi.json")} == {200}
    browser.asks("DELETE", PATH)
    assert {browser.asks("GET", path).status_code for path in ("/api/status", "/metrics", f"{PATH}/")} == {401}


def test_without_users_nobody_signs_in_and_the_answer_says_how_to_turn_it_on(
    tmp_path: Path, root: str, hashed: list[str]
) -> None:
    signed = Signed(tmp_path, root, users_file=None, tokens_file=None)
    hashed.clear()
    status, detail = refusal(signed.sign_in())
    assert status == 403
    assert "set serve.users_file" in detail
    assert "rebalancer user add" in detail
    assert "rebalancer user add" in ask(signed.app, "GET", PATH).json()["detail"]
    assert not hashed
    with pytest.raises(ValueError, match="tokens_file or users_file"):
        ServeSettings(reading="signed_in")


SPOILT: dict[str, dict[str, Any]] = {
    "a digest that is none": {"digest": None},
    "a hash of another form": {"hash": "scrypt n=2 r=1 p=1"},
    "a time that is a text": {"changed_ms": "now"},
    "a name with a control character": {"name": "a\nb"},
    "a role that nobody knows": {"role": "root"},
    "a member that nobody knows": {"admin": True},
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_row_lets_nobody_in(signed: Signed, change: dict[str, Any]) -> None:
    browser, token = Browser(signed), signed.post("brokers/3/undrain", key="by-a-token")
    content = json.loads(signed.users.read_text())
    content["users"] = [{**row, **change} for row in content["users"]]
    signed.users.write_text(json.dumps(content))
    assert {answer.status_code for answer in (browser.acts(), browser.asks("GET", PATH), signed.sign_in())} == {503}
    assert token.status_code == signed.post("brokers/3/undrain").status_code == 200


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o644])
def test_a_file_that_others_may_write_or_all_may_read_lets_nobody_in(signed: Signed, mode: int) -> None:
    browser = Browser(signed)
    signed.users.chmod(mode)
    assert refusal(browser.acts())[0] == 503
    assert run(["user", "list", "--set", f"serve.users_file={signed.users}"]) == 2
    signed.users.chmod(0o640)
    assert browser.acts().status_code == 200


def test_users_are_added_listed_changed_and_removed(
    tmp_path: Path, hashed: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, own = tmp_path / "users.json", tmp_path / "password"
    own.write_text(f"{PASSWORD}\r\nnot this line")
    options = ["--set", f"serve.users_file={file}"]
    assert run(["user", "add", "ada", "--role", "operator", "--password-file", str(own), *options]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PASSWORD.encode())))
    assert run(["user", "add", "vic", "--password-file", "-", *options]) == 0
    ada, vic = read_users(file).values()
    assert (ada.roles, vic.roles) == (Roles(Role.OPERATOR), Roles(Role.VIEWER))
    assert (ada.salt, ada.digest) != (vic.salt, vic.digest), "the same password is not seen to be the same"
    assert user_with(read_users(file), "ada", PASSWORD) == ada
    assert run(["user", "list", *options]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-2:]] == ["operator", "viewer"]
    assert run(["user", "add", "ada", "--password-file", str(own), *options]) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["user", "role", "ada", "--role", "admin", *options]) == 0
    assert user_with(read_users(file), "ada", PASSWORD) is not None, "another role, the same password"
    assert run(["user", "remove", "ada", *options]) == 0
    assert [run(["user", *command, *options]) for command in (["remove", "ada"], ["role", "ada"])] == [2, 2]
    assert list(read_users(file)) == ["vic"]
    assert PASSWORD not in file.read_text() + "".join(capsys.readouterr())
    assert hashed


@pytest.mark.parametrize(
    ("content", "message"),
    [("short\n", "password: must have 12 to 1000 characters, has 5"), ("", "has 0"), ("x" * 1_001, "has 1001")],
)
def test_a_password_that_is_too_short_or_long_is_refused_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    file, own = tmp_path / "users.json", tmp_path / "password"
    own.write_text(content)
    assert run(["user", "add", "ada", "--password-file", str(own), "--set", f"serve.users_file={file}"]) == 2
    shown = "".join(capsys.readouterr())
    assert message in shown
    assert not content.strip() or content.strip() not in shown
    assert not file.exists()


def test_without_a_terminal_a_setting_or_a_name_the_command_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(PASSWORD))
    options = ["--set", f"serve.users_file={tmp_path / 'users.json'}"]
    assert run(["user", "add", "ada", *options]) == 2
    assert "use --password-file" in capsys.readouterr().err
    assert run(["user", "list"]) == 2
    assert "serve.users_file: is not set" in capsys.readouterr().err
    assert run(["user", "list", *options]) == 2
    assert "`rebalancer user add` makes it" in capsys.readouterr().err
    (tmp_path / "password").write_text(PASSWORD)
    assert run(["user", "add", " ada", "--password-file", str(tmp_path / "password"), *options]) == 2


def test_a_command_waits_for_another_so_long_and_no_longer(
    signed: Signed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "LOCK_TRIES", 2)
    monkeypatch.setattr(accounts, "LOCK_PAUSE_S", 0.001)
    with (signed.users.parent / ".users.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(["user", "remove", "ada", "--set", f"serve.users_file={signed.users}"]) == 2
    assert "another command has changed it" in capsys.readouterr().err
    assert "ada" in read_users(signed.users)


@pytest.mark.long
def test_the_hash_is_the_one_that_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In full, once: other tests make it cheap. The same character typed in two ways is the same password."""
    monkeypatch.setitem(accounts.COST, "n", 16_384)
    made = new_user("ada", Role.VIEWER, "caf\u00e9 caf\u00e9 caf\u00e9", now_ms=NOW_MS)
    content, salt = "caf\u00e9 caf\u00e9 caf\u00e9".encode(), bytes.fromhex(made.salt)
    assert made.hash == "scrypt n=16384 r=8 p=5"
    assert made.digest == hashlib.scrypt(content, salt=salt, n=16_384, r=8, p=5, maxmem=1 << 25, dklen=32).hex()
    assert user_with({"ada": made}, "ada", "cafe\u0301 cafe\u0301 cafe\u0301") == made


def test_no_log_has_a_password_or_an_id_that_signs_in(signed: Signed, capsys: pytest.CaptureFixture[str]) -> None:
    browser = Browser(signed)
    signed.sign_in("ada", "wrong password 1")
    browser.asks("DELETE", PATH)
    logged = "".join(capsys.readouterr())
    assert all(event in logged for event in ("signed_in", "sign_in_refused", "signed_out"))
    secrets = (PASSWORD, "wrong password 1", browser.cookie.partition("=")[2], browser.csrf_token)
    assert not [secret for secret in secrets if secret in logged]
