"""People who sign in by the organisation's issuer: who gets in, and what each attack gets."""

import base64
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from structlog.testing import capture_logs

from streaming.config import load_effective
from streaming.runtime.secrets import secrets_of
from streaming.serve.access import issuer as issuer_module
from streaming.serve.access import sessions
from streaming.serve.access.issuer import ASKED_AGAIN_MS, KEYS_FRESH_MS
from streaming.serve.access.signing import OF_ADDRESS_MAX
from streaming.settings import ServeSettings
from tests.issuer import CLIENT, SECRET, LocalIssuer, make_key
from tests.serve.asking import BASE_URL, ask
from tests.serve.believing import ACT, NOW_S, Believing
from tests.serve.served import refusal
from tests.waiting import DEADLINE_S

START, CALLBACK, SIGN_OUT, SESSION = "/oidc/sign-in", "/oidc/callback", "/oidc/sign-out", "/api/v1/session"
HTTPS = BASE_URL.replace("http://", "https://")
SESSION_MS = ServeSettings().session_ms


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "client-secret"
    file.write_text(f"{SECRET}\n")
    return file


@pytest.fixture
def believing(
    tmp_path: Path, root: str, issuer: LocalIssuer, secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Believing:
    monkeypatch.setattr(issuer_module, "LIMIT_S", DEADLINE_S)  # a busy machine is no dead issuer
    return Believing(tmp_path, root, issuer, oidc_client_id=CLIENT, oidc_client_secret_file=str(secret_file))


class Person:
    """Somebody with a browser, which keeps cookies and follows what the page does."""

    def __init__(self, believing: Believing, site: str = BASE_URL) -> None:
        self.believing, self.site = believing, site
        self.cookies: dict[str, str] = {}
        self.csrf_token = ""

    def asks(self, method: str, path: str, **how: Any) -> httpx.Response:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        headers |= how.pop("headers", {})
        answer = ask(self.believing.app, method, self.site + path, headers=headers, **how)
        for text in answer.headers.get_list("set-cookie"):
            name, _, value = text.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if "Max-Age=0" in text:
                del self.cookies[name]
        return answer

    def begins(self, query: str = "") -> str:
        """Where the browser is sent."""
        answer = self.asks("GET", START + query)
        assert answer.status_code == 303, answer.text
        location: str = answer.headers["location"]
        return location

    def signs_in(self, issuer: LocalIssuer, query: str = "") -> httpx.Response:
        return self.asks("GET", CALLBACK, params=issuer.approve(self.begins(query)))

    def session(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.asks("GET", SESSION).json()
        self.csrf_token = shown["csrf_token"]
        return shown

    def acts(self) -> httpx.Response:
        headers = {"Origin": self.site, "X-CSRF-Token": self.csrf_token, "Idempotency-Key": "a-key-123"}
        return self.asks("POST", ACT, headers=headers)

    @property
    def has_session(self) -> bool:
        return any("session" in name for name in self.cookies)


def test_who_signs_in_by_the_issuer_acts_and_the_audit_says_how(believing: Believing, issuer: LocalIssuer) -> None:
    person = Person(believing)
    assert person.session()["by_issuer"] is True
    answer = person.signs_in(issuer)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert set(person.cookies) == {"rebalancer_session"}, "the cookie of the sign-in has gone"
    shown = person.session()
    assert (shown["signed_in"], shown["name"], shown["role"]) == (True, "ada", "operator")
    assert person.acts().status_code == 200
    assert {(row["actor"], row["signed_in_by"]) for row in believing.acts()} == {("ada", "oidc p-1")}
    assert person.asks("DELETE", SESSION, headers={"Origin": BASE_URL, "X-CSRF-Token": person.csrf_token}).json() == {
        **shown, "signed_in": False, "name": None, "role": None, "signed_in_by": None, "csrf_token": None,
        "ends_in_ms": None, "detail": "not signed in",
    }  # fmt: skip
    assert not person.has_session


def test_the_cookies_are_for_this_browser_and_short(believing: Believing, issuer: LocalIssuer) -> None:
    for site, prefix, secure in ((BASE_URL, "", []), (HTTPS, "__Host-", ["Secure"])):
        person = Person(believing, site)
        begun = person.asks("GET", START)
        cookie = begun.headers["set-cookie"].split("; ")
        assert cookie[0].startswith(f"{prefix}rebalancer_oidc=")
        assert cookie[1:] == ["HttpOnly", "Max-Age=600", "Path=/", "SameSite=lax", *secure]
        location = begun.headers["location"]
        assert person.cookies[f"{prefix}rebalancer_oidc"].partition(".")[0] not in location
        assert dict(parse_qsl(urlsplit(location).query))["redirect_uri"] == site + CALLBACK
        done = person.asks("GET", CALLBACK, params=issuer.approve(location))
        session, over = done.headers.get_list("set-cookie")
        assert session.split("; ")[1:] == ["HttpOnly", "Path=/", "SameSite=strict", *secure]
        assert over.startswith(f"{prefix}rebalancer_oidc=")
        assert (begun.headers["cache-control"], done.headers["referrer-policy"]) == ("no-store", "no-referrer")


@pytest.mark.parametrize("path", ["/", "/?group=billing&x=a%20b", "/runbooks/a.html"])
def test_afterwards_the_browser_goes_to_a_path_of_serve(believing: Believing, issuer: LocalIssuer, path: str) -> None:
    answer = Person(believing).signs_in(issuer, "?return_to=" + path.replace("%", "%25").replace("&", "%26"))
    assert answer.headers["location"] == path


@pytest.mark.parametrize(
    "path",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "", "evil",
     "javascript:alert(1)", "/\t/evil.example", "/a\r\nSet-Cookie: x=y", "/\u00e9", "/" + "a" * 400, " /", "/a b"],
)  # fmt: skip
def test_and_to_no_other_site(believing: Believing, issuer: LocalIssuer, path: str) -> None:
    person = Person(believing)
    assert refusal(person.asks("GET", START, params={"return_to": path}))[0] == 400
    location = person.begins()
    secret = person.cookies["rebalancer_oidc"].partition(".")[0]
    person.cookies["rebalancer_oidc"] = f"{secret}.{base64.urlsafe_b64encode(path.encode()).decode().rstrip('=')}"
    assert refusal(person.asks("GET", CALLBACK, params=issuer.approve(location)))[0] == 403


def test_a_sign_in_of_another_browser_is_refused(believing: Believing, issuer: LocalIssuer) -> None:
    """Else whoever sends somebody a link to the callback signs them in as himself (RFC 6749, 10.12)."""
    attacker, victim = Person(believing), Person(believing)
    link = issuer.approve(attacker.begins())
    assert refusal(victim.asks("GET", CALLBACK, params=link)) == (
        403, "no sign-in began in this browser within 10 minutes: go back to the page and begin again",
    )  # fmt: skip
    own = victim.begins()
    for state in (link["state"], "", "x", "\u00e9"):
        status, detail = refusal(victim.asks("GET", CALLBACK, params={**link, "state": state}))
        assert (status, "did not begin in this browser" in detail) == (403, True)
    assert not victim.has_session
    assert issuer.forms == [], "the issuer was not asked"
    assert victim.asks("GET", CALLBACK, params=issuer.approve(own)).status_code == 303, "one's own still holds"


@pytest.mark.parametrize("cookie", ["", "x", "a" * 43, "a" * 43 + ".!", "a" * 42 + "\u00e9.Lw", "." * 5_000])
def test_a_cookie_that_is_none_begins_nothing(believing: Believing, cookie: str) -> None:
    headers = {b"Cookie": f"rebalancer_oidc={cookie}".encode()}
    assert refusal(ask(believing.app, "GET", CALLBACK, params={"code": "x", "state": "x"}, headers=headers))[0] == 403


def test_a_code_signs_in_once_and_where_its_sign_in_began(believing: Believing, issuer: LocalIssuer) -> None:
    person = Person(believing)
    given = issuer.approve(person.begins())
    before = dict(person.cookies)
    assert person.asks("GET", CALLBACK, params=given).status_code == 303
    replay = Person(believing)
    replay.cookies = dict(before)
    assert refusal(replay.asks("GET", CALLBACK, params=given)) == (
        403, "this sign-in has ended already: go back to the page and begin again",
    )  # fmt: skip
    assert not replay.has_session
    other = Person(believing)
    other.begins()
    location = other.begins()
    stolen = {**issuer.approve(location), "code": given["code"]}
    status, detail = refusal(other.asks("GET", CALLBACK, params=stolen))
    assert (status, "does not take the code" in detail) == (403, True)
    # PKCE: a code of somebody else that was not used yet does not fit the verifier of one's own cookie.
    code = issuer.approve(Person(believing).begins())["code"]
    own = issuer.approve(other.begins())
    assert refusal(other.asks("GET", CALLBACK, params={**own, "code": code}))[0] == 403
    assert not other.has_session


WRONG: dict[str, dict[str, Any]] = {
    "nonce of another sign-in": {"nonce": "x"},
    "no nonce": {"nonce": None},
    "a nonce that is none": {"nonce": 7},
    "made for another client": {"azp": "another"},
    "audience": {"aud": "another"},
    "issuer": {"iss": "https://evil.example"},
    "expired": {"exp": NOW_S - 60},
    "not yet valid": {"nbf": NOW_S + 61},
    "nobody": {"sub": None},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_an_id_token_that_does_not_fit_signs_nobody_in(
    believing: Believing, issuer: LocalIssuer, claims: dict[str, Any]
) -> None:
    person = Person(believing)
    issuer.answered = claims
    answer = person.signs_in(issuer)
    assert refusal(answer)[0] == 401
    assert person.cookies == {}
    assert answer.headers["cache-control"] == "no-store"


def test_a_key_that_changed_is_fetched_at_the_sign_in(believing: Believing, issuer: LocalIssuer) -> None:
    assert Person(believing).signs_in(issuer).status_code == 303
    issuer.keys = [make_key("second")]
    believing.clock_ms += ASKED_AGAIN_MS
    assert Person(believing).signs_in(issuer).status_code == 303
    issuer.keys = [make_key("third")]
    issuer.described["token_endpoint"] = f"{issuer.url}/token"
    assert Person(believing).signs_in(issuer).status_code == 401


def test_who_loses_the_role_is_told_so_and_signed_out_at_the_next_sign_in(
    believing: Believing, issuer: LocalIssuer
) -> None:
    first, again = Person(believing), Person(believing)
    first.signs_in(issuer)
    assert first.session()["signed_in"]
    issuer.answered = {"roles": ["else"]}
    status, detail = refusal(again.signs_in(issuer))
    assert (status, "ada (oidc p-1) has no role here: claim roles" in detail) == (403, True)
    assert not again.has_session
    assert not first.session()["signed_in"]


def test_an_id_before_the_sign_in_is_worth_nothing_after_it(believing: Believing, issuer: LocalIssuer) -> None:
    person, other = Person(believing), Person(believing)
    person.signs_in(issuer)
    other.cookies = dict(person.cookies)
    person.signs_in(issuer)
    assert not other.session()["signed_in"]
    assert person.session()["signed_in"]


def test_a_session_ends_and_there_are_so_many(
    believing: Believing, issuer: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    people = [Person(believing) for _ in range(3)]
    for number, person in enumerate(people):
        believing.clock_ms += 1
        issuer.answered = {"sub": f"p-{number}"}
        assert person.signs_in(issuer).status_code == 303
    assert [person.session()["signed_in"] for person in people] == [False, True, True]
    believing.clock_ms += SESSION_MS
    assert not people[2].session()["signed_in"]


@pytest.mark.long
def test_many_sign_ins_that_fail_are_slowed(believing: Believing, issuer: LocalIssuer) -> None:
    person = Person(believing)
    statuses = []
    for _ in range(OF_ADDRESS_MAX + 2):
        given = issuer.approve(person.begins())
        statuses.append(person.asks("GET", CALLBACK, params={**given, "code": "guessed"}).status_code)
    assert statuses == [403] * OF_ADDRESS_MAX + [429] * 2
    assert len(issuer.forms) == OF_ADDRESS_MAX


def test_what_the_issuer_refuses_is_told_without_its_words(believing: Believing, issuer: LocalIssuer) -> None:
    for given, shown in (("access_denied", "access_denied"), ("<script>", "with an error that is none")):
        person = Person(believing)
        state = issuer.approve(person.begins())["state"]
        query = {"state": state, "error": given, "error_description": "evil words"}
        assert refusal(person.asks("GET", CALLBACK, params=query)) == (403, f"the issuer refuses the sign-in: {shown}")


def test_an_answer_of_another_issuer_is_refused(believing: Believing, issuer: LocalIssuer) -> None:
    person = Person(believing)
    given = issuer.approve(person.begins()) | {"iss": "https://evil.example"}
    assert refusal(person.asks("GET", CALLBACK, params=given))[0] == 403
    assert issuer.forms == []


@pytest.mark.parametrize("code", ["", "a b", "a\n", "x" * 5_000])
def test_a_code_that_is_none_is_refused(believing: Believing, issuer: LocalIssuer, code: str) -> None:
    person = Person(believing)
    given = issuer.approve(person.begins()) | {"code": code}
    assert refusal(person.asks("GET", CALLBACK, params=given))[0] == 400
    assert issuer.forms == []


def test_a_client_may_show_its_secret_in_the_form_or_have_none(
    tmp_path: Path, root: str, issuer: LocalIssuer, believing: Believing, secret_file: Path
) -> None:
    issuer.basic = False
    assert Person(believing).signs_in(issuer).status_code == 303
    assert issuer.forms[-1]["client_secret"] == SECRET
    public = Believing(tmp_path, root, issuer, oidc_client_id=CLIENT)
    assert refusal(Person(public).signs_in(issuer))[0] == 403
    assert (issuer.forms[-1]["client_id"], "client_secret" in issuer.forms[-1]) == (CLIENT, False)
    secret_file.unlink()
    with capture_logs() as logs:
        assert refusal(Person(believing).signs_in(issuer))[0] == 503
    assert "serve.oidc_client_secret_file" in logs[-1]["error"]


def test_the_secret_is_masked_in_logs(secret_file: Path) -> None:
    settings = load_effective(
        None,
        {
            "serve.oidc_issuer": "https://login.example.org", "serve.oidc_roles": '{"a": "viewer"}',
            "serve.oidc_client_id": CLIENT, "serve.oidc_client_secret_file": str(secret_file),
        },
        {},
    ).settings  # fmt: skip
    assert SECRET in secrets_of(settings)


def test_a_dead_issuer_gets_503_and_one_line(believing: Believing, issuer: LocalIssuer) -> None:
    issuer.statuses["/.well-known/openid-configuration"] = 500
    with capture_logs() as logs:
        for _ in range(3):
            assert refusal(Person(believing).asks("GET", START))[0] == 503
            believing.clock_ms += ASKED_AGAIN_MS
    assert [row["event"] for row in logs] == ["issuer_unreachable"]
    issuer.statuses = {"/token": 500}
    with capture_logs() as logs:
        for _ in range(3):
            assert refusal(Person(believing).signs_in(issuer))[0] == 503
    assert [row["event"] for row in logs if row["event"] == "issuer_unreachable"] == ["issuer_unreachable"]
    issuer.statuses = {}
    issuer.bodies["/token"] = b'{"id_token": 7}'
    assert refusal(Person(believing).signs_in(issuer))[0] == 401


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_the_issuer_can_not_send_people_or_codes_to_where_others_listen(
    believing: Believing, issuer: LocalIssuer, name: str
) -> None:
    issuer.described[name] = "http://login.example.org/x"
    person = Person(believing)
    begun = person.asks("GET", START)
    if name == "token_endpoint":
        begun = person.asks("GET", CALLBACK, params=issuer.approve(begun.headers["location"]))
    assert refusal(begun)[0] == 503


def test_without_a_client_nobody_signs_in_on_the_page(tmp_path: Path, root: str, issuer: LocalIssuer) -> None:
    person = Person(Believing(tmp_path, root, issuer))
    assert {person.asks("GET", path).status_code for path in (START, CALLBACK)} == {404}
    assert person.session()["by_issuer"] is False


def test_a_client_of_people_takes_no_tokens_of_programs(
    tmp_path: Path, root: str, issuer: LocalIssuer, secret_file: Path
) -> None:
    believing = Believing(tmp_path, root, issuer, oidc_client_id=CLIENT, oidc_audience=None,
                          oidc_client_secret_file=str(secret_file), reading="signed_in")  # fmt: skip
    status, detail = refusal(believing.shows(issuer.token(aud=CLIENT)))
    assert (status, "serve.oidc_audience is not set" in detail) == (401, True)
    person = Person(believing)
    person.signs_in(issuer)
    assert person.asks("GET", "/metrics").status_code == 200


AS_BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_a_person_sees_a_page_where_the_sign_in_fails(believing: Believing, issuer: LocalIssuer) -> None:
    person = Person(believing)
    person.begins()
    answer = person.asks("GET", CALLBACK, params={"state": "<script>x</script>", "code": "x"}, headers=AS_BROWSER)
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none';")
    assert "This sign-in did not begin in this browser: go back to the page and begin again." in answer.text
    assert "<script" not in answer.text
    assert '<a href="/">' in answer.text
    state = dict(parse_qsl(urlsplit(person.begins()).query))["state"]
    refused = {"state": state, "error": "<img src=x>"}
    answer = person.asks("GET", CALLBACK, params=refused, headers=AS_BROWSER)
    assert (answer.status_code, "<img" in answer.text) == (403, False)
    assert person.cookies == {}, "the cookie of the sign-in has gone with the page, too"
    issuer.answered = {"sub": "<b>x", "preferred_username": "<b>ada", "roles": []}
    answer = person.asks("GET", CALLBACK, params=issuer.approve(person.begins()), headers=AS_BROWSER)
    assert (answer.status_code, "<b>" in answer.text) == (403, False)
    assert "&lt;b&gt;ada" in answer.text, "what the issuer names is text"


def test_who_signs_out_goes_to_the_issuer_and_comes_back(believing: Believing, issuer: LocalIssuer) -> None:
    answer = Person(believing).asks("GET", SIGN_OUT)
    assert (answer.status_code, answer.headers["location"]) == (303, "/"), "an issuer without a page for it"
    issuer.described["end_session_endpoint"] = f"{issuer.url}/logout?realm=main"
    believing.clock_ms += KEYS_FRESH_MS
    for site in (BASE_URL, HTTPS):
        answer = Person(believing, site).asks("GET", SIGN_OUT)
        assert answer.status_code == 303
        address, _, query = answer.headers["location"].partition("?")
        assert address == f"{issuer.url}/logout"
        assert dict(parse_qsl(query)) == {
            "realm": "main", "client_id": CLIENT, "post_logout_redirect_uri": f"{site}/",
        }  # fmt: skip


@pytest.mark.parametrize("endpoint", ["http://login.example.org/x", "javascript:alert(1)", 7, ""])
def test_signing_out_leads_to_no_unsafe_address(believing: Believing, issuer: LocalIssuer, endpoint: object) -> None:
    issuer.described["end_session_endpoint"] = endpoint
    answer = Person(believing).asks("GET", SIGN_OUT, headers=AS_BROWSER)
    assert (answer.status_code, "location" in answer.headers) == (503, False)
    assert "You are signed out here" in answer.text


def test_where_the_issuer_is_away_who_signs_out_learns_what_is_so(believing: Believing, issuer: LocalIssuer) -> None:
    issuer.statuses["/.well-known/openid-configuration"] = 500
    status, detail = refusal(Person(believing).asks("GET", SIGN_OUT))
    assert (status, detail) == (
        503, "you are signed out here; serve can't reach the issuer now, so you may still be signed in there",
    )  # fmt: skip


def test_the_page_has_a_link_and_its_script_goes_there_for_people_of_the_issuer_alone(believing: Believing) -> None:
    page, script = (ask(believing.app, "GET", path).text for path in ("/", "/sign_in.js"))
    assert '<a id="sign-in-issuer" href="oidc/sign-in" hidden>Sign in with your organisation</a>' in page
    assert 'own("sign-in-issuer").hidden = session.signed_in || !session.by_issuer;' in script
    assert 'if (wasOfIssuer) location.assign("oidc/sign-out");' in script
    assert 'isOfIssuer = session.by_issuer && (session.signed_in_by || "").startsWith("oidc ");' in script
