"""Programs that sign in with a token of the organisation's issuer: which tokens hold, and what each attack gets."""

import asyncio
import base64
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc.jwk import RSAKey
from structlog.testing import capture_logs

from streaming.runtime.accounts import Role
from streaming.serve.access import issuer as issuer_module
from streaming.serve.access.issuer import ASKED_AGAIN_MS, KEYS_FRESH_MS, KEYS_KEPT_MS, KEYS_MAX, IssuerTokens
from streaming.serve.access.sign_in import TokenRefused
from streaming.settings import ServeSettings
from tests.http_environment import UNUSABLE
from tests.issuer import AUDIENCE, LocalIssuer, make_key
from tests.kafka.secured import make_certificates
from tests.serve.asking import ask
from tests.serve.believing import NOW_S, ROLES, Believing
from tests.serve.served import refusal
from tests.serve.synthetic import NOW_MS
from tests.tokens import make_key as token_key
from tests.tokens import token_server
from tests.waiting import DEADLINE_S


@pytest.fixture
def believing(tmp_path: Path, root: str, issuer: LocalIssuer, monkeypatch: pytest.MonkeyPatch) -> Believing:
    monkeypatch.setattr(issuer_module, "LIMIT_S", DEADLINE_S)  # a busy machine is no dead issuer
    return Believing(tmp_path, root, issuer)


@pytest.fixture(scope="module")
def rsa() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})


def test_a_program_with_a_token_of_the_issuer_acts_and_the_audit_says_how(
    believing: Believing, issuer: LocalIssuer
) -> None:
    shown = believing.shows(issuer.token()).json()
    assert (shown["signed_in"], shown["name"], shown["role"]) == (True, "deploy-bot", "operator")
    assert believing.acts(issuer.token()).status_code == 200
    assert {(row["actor"], row["signed_in_by"]) for row in believing.acts()} == {("deploy-bot", "oidc s-1")}
    assert believing.acts(issuer.token()).headers["idempotency-replayed"] == "true", "keys are those of the subject"
    assert believing.post("brokers/3/undrain", role=Role.OPERATOR).status_code == 200, "our own tokens hold too"
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize("alg", ["RS256", "PS512"])
def test_rsa_keys_verify(believing: Believing, issuer: LocalIssuer, rsa: RSAKey, alg: str) -> None:
    issuer.keys = [rsa]
    assert believing.acts(issuer.token(header={"alg": alg})).status_code == 200


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "wrong audience": ({"aud": "another"}, "aud"),
    "no audience": ({"aud": None}, "aud"),
    "wrong audiences": ({"aud": ["another", AUDIENCE.upper()]}, "aud"),
    "wrong issuer": ({"iss": "https://evil.example"}, "iss"),
    "no issuer": ({"iss": None}, "iss"),
    "issuers": ({"iss": ["https://evil.example"]}, "iss"),
    "expired": ({"exp": NOW_S - 60}, "expired"),
    "without an end": ({"exp": None}, "exp"),
    "an end that is none": ({"exp": "never"}, "exp"),
    "not yet valid": ({"nbf": NOW_S + 61}, "nbf"),
    "of the future": ({"iat": NOW_S + 61}, "iat"),
    "of nobody": ({"sub": None}, "sub"),
    "of an empty name": ({"sub": " "}, "sub"),
    "of a name with a line": ({"sub": "a\nb"}, "sub"),
    "of a long name": ({"sub": "a" * 256}, "sub"),
}


@pytest.mark.parametrize(("claims", "why"), REFUSED.values(), ids=REFUSED)
def test_a_token_that_does_not_fit_is_refused(
    believing: Believing, issuer: LocalIssuer, claims: dict[str, Any], why: str
) -> None:
    status, detail = refusal(believing.acts(issuer.token(**claims)))
    assert (status, why in detail) == (401, True), detail
    assert believing.acts() == []


@pytest.mark.parametrize("claims", [{"exp": NOW_S - 59}, {"nbf": NOW_S + 60}, {"aud": ["another", AUDIENCE]}], ids=str)
def test_clocks_may_differ_by_a_minute_and_audiences_be_several(
    believing: Believing, issuer: LocalIssuer, claims: dict[str, Any]
) -> None:
    assert believing.acts(issuer.token(**claims)).status_code == 200


def unsigned(claims: dict[str, Any], **header: Any) -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "none", **header}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def with_secret(claims: dict[str, Any], secret: bytes, **header: Any) -> str:
    """By hand, as joserfc does not sign with a public key as the secret."""
    signed = unsigned(claims, alg="HS256", **header)
    digest = hmac.digest(secret, signed[:-1].encode(), "sha256")
    return signed + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def test_nothing_but_the_issuers_private_key_signs(believing: Believing, issuer: LocalIssuer, rsa: RSAKey) -> None:
    issuer.keys = [make_key("second"), rsa]
    by_public_key = [
        with_secret(issuer.claims(), secret, kid="rsa")
        for secret in (rsa.as_pem(private=False), json.dumps(rsa.as_dict(private=False)).encode())
    ]
    wrong = [
        unsigned(issuer.claims()), unsigned(issuer.claims(), kid="rsa"), unsigned(issuer.claims(), alg="None"),
        unsigned(issuer.claims(), alg="RS256", kid="rsa"), *by_public_key,
        issuer.token(key=make_key("second")),  # its id, another key
        issuer.token(key=issuer.keys[0], header={"kid": "rsa"}),
        issuer.token(key=issuer.keys[0], header={"crit": ["x-own"], "x-own": "1"}),
    ]  # fmt: skip
    assert [believing.acts(token).status_code for token in wrong] == [401] * len(wrong)
    assert believing.acts(issuer.token(key=issuer.keys[0])).status_code == 200
    assert believing.acts(issuer.token(key=issuer.keys[0], header={"typ": "at+jwt", "x-own": "1"})).status_code == 200


def test_a_header_may_carry_a_certificate(believing: Believing, issuer: LocalIssuer) -> None:
    assert believing.acts(issuer.token(header={"x-own": "a" * 2_000})).status_code == 200
    assert believing.acts(issuer.token(header={"x-own": "a" * 20_000})).status_code == 401


def test_a_key_signs_as_the_issuer_says_alone(believing: Believing, issuer: LocalIssuer, rsa: RSAKey) -> None:
    issuer.keys = [RSAKey.import_key({**rsa.as_dict(private=True), "alg": "RS256"})]
    assert believing.acts(issuer.token(header={"alg": "RS256"})).status_code == 200
    assert believing.acts(issuer.token(key=rsa, header={"alg": "PS256", "kid": "rsa"})).status_code == 401


@pytest.mark.parametrize(("typ", "status"), [("JWT", 200), ("at+jwt", 200), ("logout+jwt", 401), ("dpop+jwt", 401)])
def test_a_token_for_something_else_signs_nobody_in(
    believing: Believing, issuer: LocalIssuer, typ: str, status: int
) -> None:
    assert believing.acts(issuer.token(header={"typ": typ})).status_code == status


def test_a_token_without_a_key_id_is_that_of_the_only_key(believing: Believing, issuer: LocalIssuer) -> None:
    assert believing.acts(issuer.token(header={"kid": None})).status_code == 200
    issuer.keys.append(make_key("second"))
    believing.clock_ms += KEYS_FRESH_MS // 5
    assert believing.acts(issuer.token(header={"kid": None})).status_code == 401


def test_the_role_is_the_highest_that_the_claim_gives(believing: Believing, issuer: LocalIssuer) -> None:
    def role(**claims: Any) -> str:
        shown: str = believing.shows(issuer.token(**claims)).json()["role"]
        return shown

    assert role(roles=["else", "kafka-viewers", "kafka-admins", "kafka-operators"]) == "admin"
    assert role(roles="kafka-viewers") == "viewer"
    assert refusal(believing.acts(issuer.token(roles="kafka-viewers")))[0] == 403


@pytest.mark.parametrize("roles", [None, [], ["else"], "", 7, {"kafka-admins": True}, [["kafka-admins"]], ["admin"]])
def test_somebody_without_a_role_is_told_so(believing: Believing, issuer: LocalIssuer, roles: Any) -> None:
    assert believing.acts(issuer.token()).status_code == 200
    rows = len(believing.acts())
    for answer in (believing.acts(issuer.token(roles=roles)), believing.shows(issuer.token(roles=roles))):
        status, detail = refusal(answer)
        assert status == 403
        assert "deploy-bot (oidc s-1) has no role here: claim roles" in detail
    assert len(believing.acts()) == rows


def test_a_role_claim_may_lie_within_another(tmp_path: Path, root: str, issuer: LocalIssuer) -> None:
    believing = Believing(tmp_path, root, issuer, oidc_role_claim="realm_access.roles", reading="signed_in")
    within, beside = issuer.token(roles=None, realm_access={"roles": ["kafka-viewers"]}), issuer.token()
    for token, status in ((within, 200), (beside, 403)):
        headers = {"Authorization": f"Bearer {token}"}
        for path in ("/metrics", "/api/status"):
            assert ask(believing.app, "GET", path, headers=headers).status_code == status


def test_a_key_that_the_issuer_changes_is_fetched_once_a_minute_at_most(
    believing: Believing, issuer: LocalIssuer
) -> None:
    old = issuer.keys[0]
    assert believing.acts(issuer.token()).status_code == 200
    issuer.keys = [make_key("second")]
    assert believing.acts(issuer.token()).status_code == 401, "the issuer was asked a moment ago"
    asked = len(issuer.asked)
    believing.clock_ms += ASKED_AGAIN_MS
    assert believing.acts(issuer.token()).status_code == 200
    for number in range(5):
        assert believing.acts(issuer.token(key=make_key(f"unknown-{number}"))).status_code in (401, 429)
    assert len(issuer.asked) == asked + 2
    assert believing.acts(issuer.token(key=old)).status_code in (401, 429), "a key that was taken away"
    used = issuer.token(key=issuer.keys[0], exp=NOW_S + 3_600)
    issuer.keys = [make_key("third")]
    believing.clock_ms += KEYS_FRESH_MS
    assert believing.acts(used).status_code == 401, "a key that was taken away, though nobody uses another"


def test_a_dead_issuer_costs_one_line_and_known_keys_hold_for_a_day(believing: Believing, issuer: LocalIssuer) -> None:
    issuer.statuses["/keys"] = 500
    with capture_logs() as logs:
        for _ in range(3):
            status, detail = refusal(believing.acts(issuer.token()))
            assert (status, "serve has no keys of serve.oidc_issuer" in detail) == (503, True)
            believing.clock_ms += ASKED_AGAIN_MS
    assert [row["event"] for row in logs] == ["issuer_unreachable"]
    assert logs[0]["error"] == f"{issuer.url}/keys: answers 500"
    assert believing.post("brokers/3/undrain").status_code == 200, "our own tokens need no issuer"
    issuer.statuses.clear()
    long = issuer.token(exp=NOW_S + 3 * 86_400)
    assert believing.acts(long).status_code == 200
    issuer.bodies["/keys"] = b"no JSON"
    believing.clock_ms += KEYS_KEPT_MS
    with capture_logs() as logs:
        assert believing.acts(long).status_code == 200
        assert believing.acts(issuer.token(key=make_key("second"))).status_code == 503, "it may be a new key"
        believing.clock_ms += 1
        assert believing.acts(long).status_code == 503
    assert [row["event"] for row in logs if row["event"].startswith("issuer")] == ["issuer_unreachable"]


KEYS_THAT_ARE_NONE = b"""{"keys": [7, {}, {"kty": "RSA"}, {"kty": "RSA", "n": 7, "e": "AQAB"}, {"kty": ["EC"]},
{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {"kty": "oct", "k": "AQAB"}, {"kty": "EC", "crv": "none"},
{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}]}"""
WRONG_ANSWERS: dict[str, tuple[str, bytes]] = {
    "no JSON": ("/keys", b"<html>"),
    "a list": ("/keys", b"[]"),
    "deep": ("/keys", b"[" * 100_000),
    "no keys": ("/keys", b'{"keys": []}'),
    "keys that are none": ("/keys", KEYS_THAT_ARE_NONE),
    "large": ("/keys", b'{"keys": [], "x": "' + b"x" * issuer_module.ANSWER_BYTES_MAX + b'"}'),
    "another issuer": ("/.well-known/openid-configuration", b'{"issuer": "https://evil.example", "jwks_uri": "x"}'),
    "no description": ("/.well-known/openid-configuration", b"{}"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "body"), WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_an_issuer_that_answers_wrong_is_named(
    believing: Believing, issuer: LocalIssuer, path: str, body: bytes
) -> None:
    issuer.bodies[path] = body
    with capture_logs() as logs:
        assert refusal(believing.acts(issuer.token()))[0] == 503
    (row,) = logs
    assert row["event"] == "issuer_unreachable"
    assert row["error"].startswith(issuer.url)
    assert len(row["error"]) < 400


@pytest.mark.parametrize("url", ["http://evil.example/keys", "file:///etc/passwd", "/keys", 7, None, "http://[", ""])
def test_keys_come_from_nowhere_unsafe(believing: Believing, issuer: LocalIssuer, url: Any) -> None:
    issuer.described["jwks_uri"] = url
    with capture_logs() as logs:
        assert refusal(believing.acts(issuer.token()))[0] == 503
    assert "jwks_uri is no https:// URL" in logs[0]["error"]


def test_a_redirect_is_not_followed(believing: Believing, issuer: LocalIssuer) -> None:
    issuer.statuses["/.well-known/openid-configuration"] = 302
    assert refusal(believing.acts(issuer.token()))[0] == 503
    assert "/keys" not in issuer.asked


def test_an_answer_that_never_ends_is_left(
    believing: Believing, issuer: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_module, "LIMIT_S", 0.3)
    issuer.endless = True
    with capture_logs() as logs:
        assert refusal(believing.acts(issuer.token()))[0] == 503
    assert logs[0]["error"].endswith("TimeoutError")


@pytest.mark.parametrize(("variable", "value", "problem"), UNUSABLE)
def test_an_environment_that_the_http_client_refuses_is_an_issuer_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(issuer_module.IssuerUnreachable, match=problem):
        asyncio.run(issuer_module.Issuer("https://127.0.0.1:1").ask("GET", "https://127.0.0.1:1/keys"))


def test_many_who_come_at_once_ask_the_issuer_once(issuer: LocalIssuer) -> None:
    tokens, text = IssuerTokens(issuer.url), issuer.token()

    async def together() -> None:
        await asyncio.gather(*(tokens.fetch_keys_for(text, lambda: NOW_MS) for _ in range(50)))

    asyncio.run(together())
    assert len(issuer.asked) == 2
    assert tokens.verified(text, AUDIENCE, now_ms=NOW_MS)["sub"] == "s-1"


def test_so_many_keys_are_kept_and_no_more(issuer: LocalIssuer) -> None:
    key = make_key("x")
    public = [{**key.as_dict(private=False), "kid": f"{number}"} for number in range(KEYS_MAX + 1)]
    issuer.bodies["/keys"] = json.dumps({"keys": public}).encode()
    tokens = IssuerTokens(issuer.url)
    asyncio.run(tokens.fetch_keys_for(issuer.token(), lambda: NOW_MS))
    last, beyond = (issuer.token(key=key, header={"kid": f"{number}"}) for number in (KEYS_MAX - 1, KEYS_MAX))
    assert tokens.verified(last, AUDIENCE, now_ms=NOW_MS)["sub"] == "s-1"
    with pytest.raises(TokenRefused):
        tokens.verified(beyond, AUDIENCE, now_ms=NOW_MS)


def test_many_wrong_tokens_are_slowed_and_a_right_one_still_holds(believing: Believing, issuer: LocalIssuer) -> None:
    assert believing.acts(issuer.token()).status_code == 200
    wrong = issuer.token(aud="another")
    assert [believing.acts(wrong).status_code for _ in range(12)] == [401] * 10 + [429] * 2
    assert believing.acts(issuer.token()).status_code == 200


PART = st.one_of(st.binary(max_size=40).map(lambda part: base64.urlsafe_b64encode(part).decode()), st.text(max_size=20))
HEADER = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "jwk", "x5c", "b64"]),
    st.one_of(
        st.sampled_from(["ES256", "RS256", "none", "first", "JWT"]), st.integers(), st.lists(st.text()), st.none()
    ),
)


@pytest.fixture
def tokens(issuer: LocalIssuer) -> IssuerTokens:
    """Tokens of the issuer, whose keys are known."""
    known = IssuerTokens(issuer.url)
    asyncio.run(known.fetch_keys_for(issuer.token(), lambda: NOW_MS))
    return known


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.lists(PART, max_size=6), st.tuples(HEADER.map(json.dumps), PART, PART)))
def test_no_text_is_a_token_by_chance_nor_an_error_of_ours(tokens: IssuerTokens, parts: Any) -> None:
    first = [base64.urlsafe_b64encode(parts[0].encode()).decode().rstrip("="), *parts[1:]] if len(parts) == 3 else parts
    text = ".".join(first)
    with pytest.raises(TokenRefused):
        tokens.verified(text, AUDIENCE, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ({"oidc_issuer": "http://login.example.org"}, "must begin with https://"),
        ({"oidc_issuer": "https://login.example.org?x=1"}, "no user, query or fragment"),
        ({"oidc_issuer": "https://me:secret@login.example.org"}, "no user, query or fragment"),
        ({"oidc_issuer": "https://login.example.org", "oidc_audience": "a"}, "needs oidc_roles"),
        ({"oidc_issuer": "https://login.example.org", "oidc_roles": ROLES}, "needs oidc_audience"),
        ({"oidc_client_id": "a"}, "need oidc_issuer"),
        (
            {
                "oidc_issuer": "https://login.example.org",
                "oidc_roles": ROLES,
                "oidc_audience": "a",
                "oidc_client_secret_file": "f",
            },
            "needs oidc_client_id",
        ),
        ({"oidc_roles": ROLES}, "need oidc_issuer"),
        ({"oidc_roles": {"a": "root"}}, "viewer"),
    ],
)
def test_settings_that_do_not_fit_are_refused(serve: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServeSettings.model_validate(serve)
    own = {"oidc_audience": "a", "oidc_roles": ROLES, "reading": "signed_in"}
    for url in (
        "https://login.example.org/realms/main",
        "http://127.0.0.1:8080",
        "http://localhost:8080",
        "http://[::1]",
    ):
        assert ServeSettings.model_validate({"oidc_issuer": url, **own}).oidc_issuer == url


@pytest.mark.long
def test_an_authority_that_is_added_while_serve_runs_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("first", "second"):
        make_certificates(tmp_path / folder, [])
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes((tmp_path / "first" / "ca.pem").read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    asked = issuer_module.Issuer("https://127.0.0.1:1")
    key = token_key(tmp_path / "key.pem")
    with token_server(key, tmp_path / "first") as before, token_server(key, tmp_path / "second") as after:
        assert "keys" in asyncio.run(asked.ask("GET", before.url))
        with pytest.raises(issuer_module.IssuerUnreachable, match="ConnectError"):
            asyncio.run(asked.ask("GET", after.url))
        trusted.write_bytes((tmp_path / "second" / "ca.pem").read_bytes())
        assert "keys" in asyncio.run(asked.ask("GET", after.url))
