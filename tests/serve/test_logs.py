"""Logs as another program reads them: one JSON object a line, whoever wrote it, and no secret in it."""

import ast
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import structlog
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.errors import UsageProblem
from streaming.runtime import secrets
from streaming.runtime.logs import configure_logging
from streaming.runtime.secrets import secrets_of
from streaming.settings import CollectSettings, KafkaSettings, LogSettings, Settings, WebhookSettings

ROOT = Path(__file__).parents[2]
PASSWORD = 'hunter2 & "more"\\'  # noqa: S105 - nobody's

Style = Literal["json", "console"]
Level = Literal["debug", "info", "warning", "error"]


@pytest.fixture(autouse=True)
def _logging_of_the_test_run_comes_back() -> Iterator[None]:
    root, of_kafka = logging.getLogger(), logging.getLogger("kafka")
    before = structlog.get_config(), root.handlers, root.level, of_kafka.level
    yield
    structlog.configure(**before[0])
    root.handlers = before[1]
    root.setLevel(before[2])
    of_kafka.setLevel(before[3])


def log_something(style: Style, level: Level) -> None:
    configure_logging(LogSettings(format=style, level=level))
    log = structlog.get_logger()
    log.debug("details")
    log.info("connecting", servers="a:9092", sasl_password=PASSWORD)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("went_wrong")
    logging.getLogger("deltalake.x").warning("node %s gone", 3)
    logging.getLogger("deltalake.x").info("noise")


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Callable[[Style, Level], list[str]]:
    """Lines that `log_something` writes."""

    def lines(style: Style, level: Level) -> list[str]:
        log_something(style, level)
        printed = capsys.readouterr()
        assert not printed.out
        return printed.err.splitlines()

    return lines


def test_json_is_one_object_a_line(logged: Callable[[Style, Level], list[str]]) -> None:
    connecting, failed, library = (json.loads(line) for line in logged("json", "info"))
    assert connecting["event"] == "connecting"
    assert connecting["level"] == "info"
    assert connecting["timestamp"].endswith("Z")
    assert set(connecting["sasl_password"]) == {"*"}
    assert "two\nlines" in failed["exception"]
    assert (library["event"], library["logger"], library["level"]) == ("node 3 gone", "deltalake.x", "warning")


def test_people_see_the_same_events_and_no_secret(logged: Callable[[Style, Level], list[str]]) -> None:
    text = "\n".join(logged("console", "info"))
    assert "connecting" in text
    assert "node 3 gone" in text
    assert "hunter2" not in text
    assert "details" not in text


def test_the_level_is_the_least_that_is_shown(logged: Callable[[Style, Level], list[str]]) -> None:
    assert [json.loads(line)["event"] for line in logged("json", "error")] == ["went_wrong"]
    assert json.loads(logged("json", "debug")[0])["event"] == "details"


CLIENT_SECRET = 'cl13nt & "s3cond"\\'  # noqa: S105 - nobody's
FILE_TOKEN = "0paque-t0ken-of-a-file"  # noqa: S105
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
URL = "http://reader:s3cr3t%40x@broker-1:9404/metrics"


def log_everywhere(settings: Settings) -> None:
    """Log secrets of the settings by every logger, method and form there is."""
    configuration = {"client_id": "c", "sasl_plain_password": PASSWORD, "metrics": {"url": URL}, "list": [PASSWORD]}
    logins = f"{CLIENT_SECRET} {FILE_TOKEN} {JWT} auth=Bearer 0paque.0ther"
    jaas = (
        'OAuthBearerLoginModule required clientSecret="'
        + CLIENT_SECRET.replace("\\", "\\\\").replace('"', '\\"')
        + '";'
    )
    configure_logging(settings.log, secrets_of(settings))
    for log in (structlog.get_logger(), logging.getLogger("kafka.admin.client"), logging.getLogger("other")):
        for method in ("debug", "info", "warning", "error", "critical"):
            write = getattr(log, method)
            write(f"Starting with configuration: {configuration}")
            write(f"login with {PASSWORD} at {URL}, unlike reader:s3cr3t@x")
            write(f"tokens {logins}, options {jaas}")
            try:
                secret_local = PASSWORD
                raise ValueError(f"refused: {secret_local!r} at {URL}")
            except ValueError as error:
                write("failed", exc_info=True)
                structlog.get_logger().error("failed", error=error, configuration=configuration)
    structlog.get_logger().error("end", jaas_config=PASSWORD, url=URL, shown=SimpleNamespace(value=PASSWORD))


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_no_secret_of_the_settings_is_logged(
    style: Style, level: Level, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    secret_file, token_file = tmp_path / "secret", tmp_path / "token"
    secret_file.write_text(CLIENT_SECRET)
    token_file.write_text(FILE_TOKEN)
    client = {"sasl_oauthbearer_client_id": "c", "sasl_oauthbearer_token_file": str(token_file)}
    for login in (
        {"sasl_password": PASSWORD, "sasl_oauthbearer_client_secret": CLIENT_SECRET},
        {"sasl_password_file": str(file), "sasl_oauthbearer_client_secret_file": str(secret_file)},
    ):
        kafka = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u", **client, **login}
        log_everywhere(
            Settings(
                kafka=KafkaSettings.model_validate(kafka),
                collect=CollectSettings(jmx_endpoints={1: URL}),
                log=LogSettings(format=style, level=level),
            )
        )
    logged = capsys.readouterr().err
    assert "broker-1:9404" in logged
    assert "Traceback" in logged
    assert not re.findall(r"hunter2|s3cr3t|more|cl13nt|s3cond|0paque|0ther|eyJ|c2ln", logged)


def test_the_masked_forms_of_a_secret() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
    assert "MIIE" not in secrets.Masking().text(f"ssl.keystore.key={key}")


def test_the_kafka_client_does_not_log_its_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(format="json", level="debug"))
    with pytest.raises((KafkaError, OSError)):
        KafkaAdminClient(
            bootstrap_servers="127.0.0.1:1",
            bootstrap_timeout_ms=100,
            request_timeout_ms=100,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="u",
            sasl_plain_password=PASSWORD,
        )
    assert not logging.getLogger("kafka.admin.client").isEnabledFor(logging.DEBUG)
    assert "hunter2" not in capsys.readouterr().err


def events_of(path: Path) -> set[tuple[str, str]]:
    """(level, event) of every call `log.<level>("<event>", ...)` in a module."""
    text = path.read_text()
    if "log." not in text:
        return set()
    return {
        (node.func.attr, node.args[0].value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


@pytest.mark.long
def test_documented_events_are_logged_at_that_level() -> None:
    logged_events = {event for path in (ROOT / "streaming").rglob("*.py") for event in events_of(path)}
    documented = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs" / "logs.md").read_text(), re.MULTILINE))
    assert documented
    assert {(level, event) for event, level in documented} <= logged_events


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("wish", "coloured"), [("1", False), ("", True)])
def test_no_color_is_kept_to(wish: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("NO_COLOR", wish)
    log_something("console", "info")
    assert "connecting" in terminal.getvalue()
    assert ("\x1b[" in terminal.getvalue()) is coloured


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("style", ["json", "console"])
def test_a_log_that_can_t_be_written_ends_nothing(style: Style, monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115 - closed below, where it must be
    monkeypatch.setattr("sys.stderr", full)
    log_something(style, "info")
    with suppress(OSError):
        full.close()
    structlog.get_logger().info("into a file that is closed")
    logging.getLogger("deltalake.x").warning("the same of a library")


@pytest.mark.parametrize("content", ["", "\n", "   \nhunter2\n"])
def test_a_file_whose_first_line_is_empty_holds_no_secret(tmp_path: Path, content: str) -> None:
    """With an empty key anybody could sign."""
    file = tmp_path / "secret"
    file.write_text(content)
    webhook = WebhookSettings(url="https://a.example.org", secret_file=file)
    with pytest.raises(UsageProblem, match=r"^notify\.webhooks\.ops\.secret_file: \S+ can't be read: it is empty, or "):
        secrets.webhook_key(webhook, "ops")
    with pytest.raises(UsageProblem, match=r"^kafka\.sasl_password_file: \S+ can't be read: it is empty, or "):
        secrets.sasl_password(KafkaSettings(sasl_password_file=file))


def test_a_byte_order_mark_is_no_part_of_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes("hunter2\r\n".encode("utf-8-sig"))
    assert secrets.sasl_password(KafkaSettings(sasl_password_file=file)) == "hunter2"
