"""A page of another site must not read serve through a browser: which `Host` is answered."""

import socket
from pathlib import Path

import pytest
import structlog
from starlette.applications import Starlette

from streaming.config import load_settings
from streaming.errors import UsageProblem
from streaming.serve.web import NAMED_MAX
from tests.serve.asking import app_over, ask
from tests.serve.synthetic import settings_for

PATHS = ("/", "/metrics", "/api/status", "/api/weights", "/healthz")
EVIL = "attacker.example"


def serving(folder: Path, *allowed: str, host: str = "127.0.0.1") -> Starlette:
    return app_over(settings_for(folder, serve={"allowed_hosts": list(allowed), "host": host}))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Starlette:
    """With no setting for hosts."""
    return serving(tmp_path_factory.mktemp("hosts"))


def status_of(app: Starlette, host: str, path: str = "/api/status") -> int:
    return ask(app, "GET", path, headers={"Host": host}).status_code


@pytest.mark.parametrize("path", PATHS)
def test_no_path_answers_a_name_of_others(path: str, usual: Starlette) -> None:
    assert status_of(usual, EVIL, path) == 421
    assert status_of(usual, "127.0.0.1:9464", path) == 200


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:9464", "127.0.0.1", "10.1.2.3:9464", "[::1]:9464", "[fe80::1]", socket.gethostname(), ""],
)
def test_operators_and_prometheus_need_no_setting(host: str, usual: Starlette) -> None:
    assert status_of(usual, host) == 200


@pytest.mark.parametrize(
    "host",
    [EVIL, f"{EVIL}:9464", "127.0.0.1.attacker.example", "localhost.attacker.example", "1.2.3", "[attacker.example]:1"],
)
def test_what_only_looks_like_an_address_is_a_name(host: str, usual: Starlette) -> None:
    assert status_of(usual, host) == 421


def test_names_of_the_settings(tmp_path: Path) -> None:
    app = serving(tmp_path, "Rebalancer", "*.example.org", host="serve.internal")
    allowed = ("rebalancer:9464", "a.example.org", "a.b.EXAMPLE.org.", "serve.internal")
    assert [status_of(app, host) for host in allowed] == [200] * 4
    assert [status_of(app, host) for host in ("example.org", "badexample.org", "rebalancer2", EVIL)] == [421] * 4
    assert status_of(serving(tmp_path, "*"), EVIL) == 200


def test_refused_names_are_logged_a_few_times(tmp_path: Path) -> None:
    app = serving(tmp_path)
    with structlog.testing.capture_logs() as logs:
        for number in range(NAMED_MAX + 5):
            for _ in range(2):
                status_of(app, f"{number}.{EVIL}")
    assert [row["event"] for row in logs] == ["host_refused"] * NAMED_MAX


@pytest.mark.parametrize("name", ["http://rebalancer", "rebalancer:9464", "a.*.org", ""])
def test_what_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"serve: {{allowed_hosts: ['{name}']}}")
    with pytest.raises(UsageProblem, match="is no host name"):
        load_settings(file)
