"""Logs as another program reads them: one JSON object a line, whoever wrote it, and no secret in it."""

import ast
import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.runtime import secrets

ROOT = Path(__file__).parents[2]

SCRIPT = """
import logging, structlog
from streaming.runtime.logs import configure_logging
from streaming.settings import LogSettings
configure_logging(LogSettings(format={format!r}, level={level!r}))
log = structlog.get_logger()
log.debug("details")
log.info("connecting", servers="a:9092", sasl_password="hunter2")
try:
    raise ValueError("two\\nlines")
except ValueError:
    log.exception("went_wrong")
logging.getLogger("deltalake.x").warning("node %s gone", 3)
logging.getLogger("deltalake.x").info("noise")
"""


def logged(style: str, level: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT.format(format=style, level=level)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stdout
    return done.stderr.splitlines()


def test_json_is_one_object_a_line() -> None:
    connecting, failed, library = (json.loads(line) for line in logged("json", "info"))
    assert connecting["event"] == "connecting"
    assert connecting["level"] == "info"
    assert connecting["timestamp"].endswith("Z")
    assert set(connecting["sasl_password"]) == {"*"}
    assert "two\nlines" in failed["exception"]
    assert (library["event"], library["logger"], library["level"]) == ("node 3 gone", "deltalake.x", "warning")


def test_people_see_the_same_events_and_no_secret() -> None:
    text = "\n".join(logged("console", "info"))
    assert "connecting" in text
    assert "node 3 gone" in text
    assert "hunter2" not in text
    assert "details" not in text


def test_the_level_is_the_least_that_is_shown() -> None:
    assert [json.loads(line)["event"] for line in logged("json", "error")] == ["went_wrong"]
    assert json.loads(logged("json", "debug")[0])["event"] == "details"


LOGIN_SCRIPT = """
import logging, sys
from types import SimpleNamespace
import structlog
from streaming.runtime.logs import configure_logging
from streaming.runtime.secrets import secrets_of
from streaming.settings import CollectSettings, KafkaSettings, LogSettings, Settings
style, level, file = sys.argv[1:]
password = 'hunter2 & "more"\\\\'
url = "http://reader:s3cr3t%40x@broker-1:9404/metrics"
collect = CollectSettings(jmx_endpoints={1: url})
configuration = {"client_id": "c", "sasl_plain_password": password, "metrics": {"url": url}, "list": [password]}
for login in ({"sasl_password": password}, {"sasl_password_file": file}):
    kafka = KafkaSettings(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="u", **login)
    settings = Settings(kafka=kafka, collect=collect, log=LogSettings(format=style, level=level))
    configure_logging(settings.log, secrets_of(settings))
    for log in (structlog.get_logger(), logging.getLogger("kafka.admin.client"), logging.getLogger("other")):
        for method in ("debug", "info", "warning", "error", "critical"):
            write = getattr(log, method)
            write(f"Starting with configuration: {configuration}")
            write(f"login with {password} at {url}, unlike reader:s3cr3t@x")
            try:
                secret_local = password
                raise ValueError(f"refused: {password!r} at {url}")
            except ValueError as error:
                write("failed", exc_info=True)
                structlog.get_logger().error("failed", error=error, configuration=configuration)
    structlog.get_logger().error("end", jaas_config=password, url=url, shown=SimpleNamespace(value=password))
"""


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_no_secret_of_the_settings_is_logged(style: str, level: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text('hunter2 & "more"\\\n')
    command = [sys.executable, "-c", LOGIN_SCRIPT, style, level, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "broker-1:9404" in done.stderr
    assert "Traceback" in done.stderr
    assert not re.findall(r"hunter2|s3cr3t|more", done.stderr)


def test_the_masked_forms_of_a_secret() -> None:
    assert doctest.testmod(secrets).failed == 0
    key = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
    assert "MIIE" not in secrets.Masking().text(f"ssl.keystore.key={key}")


KAFKA_SCRIPT = """
import logging
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from streaming.runtime.logs import configure_logging
from streaming.settings import LogSettings
configure_logging(LogSettings(format="json", level="debug"))
try:
    KafkaAdminClient(
        bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100, request_timeout_ms=100,
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_plain_username="u",
        sasl_plain_password="hunter2",
    )
except (KafkaError, OSError):
    pass
assert not logging.getLogger("kafka.admin.client").isEnabledFor(logging.DEBUG)
"""


def test_the_kafka_client_does_not_log_its_configuration() -> None:
    done = subprocess.run([sys.executable, "-c", KAFKA_SCRIPT], capture_output=True, text=True, check=True)
    assert "hunter2" not in done.stderr


def events_of(path: Path) -> set[tuple[str, str]]:
    """(level, event) of every call `log.<level>("<event>", ...)` in a module."""
    return {
        (node.func.attr, node.args[0].value)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


def test_documented_events_are_logged_at_that_level() -> None:
    logged_events = {event for path in (ROOT / "streaming").rglob("*.py") for event in events_of(path)}
    documented = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs" / "logs.md").read_text(), re.MULTILINE))
    assert documented
    assert {(level, event) for event, level in documented} <= logged_events


TERMINAL = """
import io, sys
class Terminal(io.StringIO):
    def isatty(self): return True
sys.stderr = Terminal()
{script}
print(repr(sys.stderr.getvalue()))
"""


@pytest.mark.parametrize(("wish", "coloured"), [("1", False), ("", True)])
def test_no_color_is_kept_to(wish: str, coloured: bool) -> None:
    script = TERMINAL.format(script=SCRIPT.format(format="console", level="info"))
    environment = {**os.environ, "NO_COLOR": wish}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert "connecting" in done.stdout
    assert ("x1b[" in done.stdout) is coloured
