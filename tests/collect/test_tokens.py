"""Tokens for logins: when they are fetched, kept and read anew, and what is shown where there is none."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from streaming.cluster import tokens
from streaming.cluster.clients import admin_client, librdkafka_options, spark_options
from streaming.cluster.record_sender import RecordSender
from streaming.cluster.tokens import FileTokens, KeptTokens, Token, TokenEndpoint, token_of
from streaming.errors import ClusterUnreachable, UsageProblem
from streaming.settings import KafkaSettings
from tests.http_environment import UNUSABLE
from tests.kafka.secured import make_certificates
from tests.tokens import CLIENT, make_key, token_server
from tests.tokens import SECRET as CLIENT_SECRET

URL = "http://127.0.0.1:1/token"
SECRET = 'hunter2 \\ "more"'  # noqa: S105 - nobody's
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": URL, "sasl_oauthbearer_client_id": "rebalancer",
    "sasl_oauthbearer_client_secret": SECRET, "sasl_oauthbearer_scope": "kafka write",
}  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def settings_of(**changes: Any) -> KafkaSettings:
    given = {name: value for name, value in {**LOGIN, **changes}.items() if value is not None}
    return KafkaSettings.model_validate(given)


def with_file(path: Path) -> KafkaSettings:
    fields = ("token_endpoint_url", "client_id", "client_secret", "scope")
    return settings_of(sasl_oauthbearer_token_file=path, **{f"sasl_oauthbearer_{name}": None for name in fields})


def jwt(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{body}.c2ln"


def endpoint(answer: Callable[[httpx.Request], httpx.Response], clock: Clock | None = None) -> TokenEndpoint:
    return TokenEndpoint(settings_of(), clock or Clock(), httpx.MockTransport(answer))


def test_a_token_is_asked_for_as_kafkas_own_clients_ask() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"access_token": "abc", "expires_in": 60})

    clock = Clock()
    assert endpoint(answer, clock).fetch() == Token("abc", clock.ms, clock.ms + 60_000)
    (request,) = asked
    assert request.method == "POST"
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(f"rebalancer:{SECRET}".encode()).decode()
    assert request.content == b"grant_type=client_credentials&scope=kafka+write"


@pytest.mark.parametrize(
    ("status", "body", "attempts", "message"),
    [
        (401, {"error": "invalid_client", "error_description": SECRET}, 1,
         f"no token from {URL}: it answers 401 (invalid_client): are client id rebalancer, its secret and the scope "),
        (400, {"error": f"x {SECRET}"}, 1, f"no token from {URL}: it answers 400: are client id rebalancer, "),
        (302, {}, 1, f"no token from {URL}: it answers 302: "),
        (503, {"error": "busy"}, tokens.ATTEMPTS_MAX, f"no token from {URL}: it answers 503 (busy)"),
        (429, [], tokens.ATTEMPTS_MAX, f"no token from {URL}: it answers 429"),
        (200, [], 1, f"the answer of {URL} has no access_token"),
        (200, {"access_token": "a\x01auth=b"}, 1, f"{URL} gives what is no token: "),
        (200, {"access_token": ""}, 1, f"{URL} gives what is no token: "),
        (200, {"access_token": 7}, 1, f"{URL} gives what is no token: "),
    ],
)  # fmt: skip
def test_each_answer_without_a_token_gives_one_line_without_the_secret(
    status: int, body: object, attempts: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "ATTEMPT_PAUSE_S", 0)
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json=body)

    with pytest.raises(ClusterUnreachable) as caught:
        endpoint(answer).fetch()
    assert str(caught.value).startswith(message)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(asked) == attempts


def test_an_endpoint_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ATTEMPT_PAUSE_S", 0)
    failures: list[Exception] = [httpx.ConnectError("refused"), httpx.ReadTimeout("late")]

    def answer(_request: httpx.Request) -> httpx.Response:
        if failures:
            raise failures.pop()
        return httpx.Response(200, json={"access_token": "a"})

    assert endpoint(answer).fetch().value == "a"


@pytest.mark.parametrize(("variable", "value", "problem"), UNUSABLE)
def test_an_environment_that_the_http_client_refuses_gives_no_token(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(tokens, "ATTEMPT_PAUSE_S", 0)
    login = {"sasl_oauthbearer_client_id": CLIENT, "sasl_oauthbearer_client_secret": CLIENT_SECRET}
    url = "https://127.0.0.1:1/token"
    with pytest.raises(ClusterUnreachable, match=f"^no token from {url}: {problem}$"):
        TokenEndpoint(settings_of(sasl_oauthbearer_token_endpoint_url=url, **login)).fetch()


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ATTEMPT_PAUSE_S", 0)
    monkeypatch.setattr(tokens, "ANSWER_BYTES_MAX", 1_000)
    with pytest.raises(ClusterUnreachable, match="DecodingError"):
        endpoint(lambda _request: httpx.Response(200, content=b" " * 2_000)).fetch()


@pytest.mark.long
def test_the_endpoints_certificate_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ATTEMPT_PAUSE_S", 0)
    make_certificates(tmp_path / "certificates", [])
    make_certificates(tmp_path / "others", [])
    with token_server(make_key(tmp_path / "key.pem"), tmp_path / "certificates") as server:
        login = {
            "sasl_oauthbearer_token_endpoint_url": server.url, "sasl_oauthbearer_client_id": CLIENT,
            "sasl_oauthbearer_client_secret": CLIENT_SECRET, "request_timeout_ms": 180_000,
        }  # fmt: skip

        def fetched(ca_file: Path) -> Token:
            return TokenEndpoint(settings_of(**login, sasl_oauthbearer_ca_file=ca_file)).fetch()

        assert fetched(tmp_path / "certificates" / "ca.pem").value.count(".") == 2
        with pytest.raises(ClusterUnreachable, match=f"^no token from {server.url}: ConnectError$"):
            fetched(tmp_path / "others" / "ca.pem")
        with pytest.raises(UsageProblem, match=r"kafka\.sasl_oauthbearer_ca_file: .*key\.pem can't be read"):
            fetched(tmp_path / "key.pem")


def test_a_token_ends_with_its_claim_or_its_life_whichever_is_earlier() -> None:
    def end(value: str, life_ms: int | None) -> int:
        return token_of(value, life_ms, now_ms=1_000, origin="o").expires_ms

    assert end(jwt(exp=60), None) == 60_000
    assert end(jwt(exp=60), 5_000) == 6_000
    assert end(jwt(exp=2), 5_000) == 2_000
    for opaque in ("opaque", jwt(), jwt(exp="soon"), jwt(exp=None), jwt(exp=1e999), "a.b.c", "a.bm8.c"):
        assert end(opaque, None) == 1_000 + tokens.LIFE_ASSUMED_MS
        assert end(opaque, 7) == 1_007


class Fetch:
    """Hands out a token with a life of 100 s, or fails."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked, self.fails = clock, 0, False

    def __call__(self) -> Token:
        self.asked += 1
        if self.fails:
            raise ClusterUnreachable(f"failure {self.asked}")
        return Token(f"token-{self.asked}", self.clock.ms, self.clock.ms + 100_000)


def test_a_token_is_kept_until_shortly_before_its_end() -> None:
    clock = Clock()
    fetch = Fetch(clock)
    source = KeptTokens(fetch, clock)
    begun_ms = clock.ms
    for elapsed_ms, expected in ((0, "token-1"), (79_999, "token-1"), (80_000, "token-2"), (159_999, "token-2")):
        clock.ms = begun_ms + elapsed_ms
        assert source.token().value == expected
    assert fetch.asked == 2


def test_after_the_clock_was_set_back_a_token_is_renewed_and_not_kept_until_its_old_time() -> None:
    clock = Clock()
    fetch = Fetch(clock)
    source = KeptTokens(fetch, clock)
    clock.ms += 86_400_000
    assert source.token().value == "token-1"
    clock.ms -= 86_400_000
    assert source.token().value == source.token().value == "token-2"


def test_while_renewal_fails_the_old_token_serves_and_then_the_failure_is_shown() -> None:
    clock = Clock()
    fetch = Fetch(clock)
    source = KeptTokens(fetch, clock)
    source.token()
    fetch.fails = True
    clock.ms += 80_000
    assert source.token().value == source.token().value == "token-1"
    assert fetch.asked == 2, "a failure isn't repeated at once"
    clock.ms += 20_000
    with pytest.raises(ClusterUnreachable, match="failure 3"):
        source.token()
    with pytest.raises(ClusterUnreachable, match="failure 3"):
        source.token()
    fetch.fails = False
    clock.ms += tokens.PAUSE_AFTER_FAILURE_MS
    assert source.token().value == "token-4"


def test_while_the_clients_secret_can_not_be_read_the_old_token_serves(tmp_path: Path) -> None:
    file, clock = tmp_path / "secret", Clock()
    login = settings_of(sasl_oauthbearer_client_secret=None, sasl_oauthbearer_client_secret_file=file)
    answers = httpx.MockTransport(lambda _: httpx.Response(200, json={"access_token": "opaque", "expires_in": 100}))
    source = KeptTokens(TokenEndpoint(login, clock, answers).fetch, clock)
    with pytest.raises(UsageProblem, match=r"kafka\.sasl_oauthbearer_client_secret_file: .* can't be read"):
        source.token()
    file.write_text(CLIENT_SECRET)
    source.token()
    file.unlink()
    clock.ms += 80_000
    with capture_logs() as logged:
        assert source.token().value == "opaque"
    assert [row["event"] for row in logged] == ["token_not_renewed"]
    clock.ms += 20_000
    with pytest.raises(ClusterUnreachable, match=r"kafka\.sasl_oauthbearer_client_secret_file: "):
        source.token()


def test_a_file_is_read_anew_whenever_a_token_is_needed(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    source = FileTokens(with_file(file), clock)
    with pytest.raises(UsageProblem, match=r"kafka\.sasl_oauthbearer_token_file: .* can't be read"):
        source.token()
    file.write_text("")
    with pytest.raises(UsageProblem, match="it is empty"):
        source.token()
    for value in (jwt(exp=2_000), "opaque"):
        file.write_text(value + "\n")
        assert source.token().value == value
    file.write_text(jwt(exp=940))
    with pytest.raises(ClusterUnreachable, match=r"expired 60 s ago: write a new one to the file"):
        source.token()


def test_where_no_token_is_to_be_had_no_broker_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ATTEMPT_PAUSE_S", 0)
    with pytest.raises(ClusterUnreachable, match=f"^no token from {URL}: ConnectError$"):
        admin_client(settings_of())
    with pytest.raises(ClusterUnreachable, match=f"^no token from {URL}: ConnectError$"):
        RecordSender(settings_of())
    file = tmp_path / "token"
    file.write_text(jwt(exp=1))
    with pytest.raises(ClusterUnreachable, match=r"write a new one to the file$"):
        admin_client(with_file(file))


def test_a_failure_of_a_run_is_logged_and_not_for_each_connection(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    source = FileTokens(with_file(file), clock)
    file.write_text("opaque")
    source.token()
    file.unlink()
    with capture_logs() as logged:
        for elapsed_ms in (0, 1, tokens.LOG_PAUSE_MS, 1):
            clock.ms += elapsed_ms
            with pytest.raises(UsageProblem):
                source.token()
    assert [row["event"] for row in logged] == ["token_not_renewed"] * 2


def test_librdkafka_asks_the_same_source(tmp_path: Path) -> None:
    file = tmp_path / "token"
    value = jwt(exp=4_000_000_000)
    file.write_text(value)
    options = librdkafka_options(with_file(file))
    callback = options.pop("oauth_cb")
    assert callable(callback)
    assert callback("") == (value, 4_000_000_000)
    assert options == {
        "client.id": "kafka-load-rebalancer", "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
    }  # fmt: skip


def test_java_clients_get_the_endpoint_or_the_file(tmp_path: Path) -> None:
    options = spark_options(settings_of(sasl_oauthbearer_ca_file=tmp_path / "ca.pem"))
    assert options["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="rebalancer" clientSecret="hunter2 \\\\ \\"more\\"" scope="kafka write"'
        f' ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path}/ca.pem";'
    )
    assert options["sasl.oauthbearer.token.endpoint.url"] == URL
    options = spark_options(with_file(tmp_path / "token"))
    assert options["sasl.jaas.config"].endswith(".OAuthBearerLoginModule required;")
    assert options["sasl.oauthbearer.token.endpoint.url"] == f"file://{tmp_path}/token"
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert options["sasl.login.callback.handler.class"] == handler


def test_a_missing_secret_is_named() -> None:
    with pytest.raises(
        UsageProblem, match=r"kafka\.sasl_oauthbearer_client_secret: missing; set it in the environment"
    ):
        admin_client(settings_of(sasl_oauthbearer_client_secret=None))
