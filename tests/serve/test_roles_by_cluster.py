"""Roles by cluster: whoever has a role on one cluster alone neither reads nor changes another, on any path."""

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from starlette.routing import Route

from streaming.cli import run
from streaming.commands.reloading import RunSettings, SettingsSource
from streaming.runtime.accounts import Role, Roles, new_token, new_user, read_tokens, read_users, write_tokens
from streaming.runtime.accounts import write_users as write_users_file
from streaming.serve.access.sign_in import identity_of
from streaming.serve.snapshot import read_snapshot
from streaming.serve.web import ClusterRouter
from streaming.settings import ServeSettings, Settings
from streaming.tables import read
from tests.serve.asking import BASE_URL
from tests.serve.synthetic import NOW_MS, settings_for
from tests.serve.test_several_clusters import app_of_all, named

CLUSTERS = ("east", "west")
ROLES = {
    "viewer": ["viewer"],
    "operator": ["operator"],
    "of-both": ["east=operator", "west=viewer"],
    "of-one": ["east=admin"],
    "raised": ["viewer", "west=operator"],
    "of-none": ["north=admin"],
}
"""Name of an account: its roles, as the option --role takes them."""
OPEN = ("/healthz", "/readyz", "/api/v1/session", "/oidc/")
OF_PATH = {"plan_id": "a" * 64, "execution_id": "e-1", "broker": "1"}
PASSWORD = "three words that rhyme"  # noqa: S105


@dataclass(frozen=True)
class Deployment:
    """A serve for two clusters, and a token for each of `ROLES`."""

    app: ClusterRouter
    settings: Settings
    tokens: Mapping[str, str]

    async def ask(self, client: httpx.AsyncClient, method: str, path: str, who: str | None) -> httpx.Response:
        headers = {"Idempotency-Key": f"{who}-{len(path)}-{hash(path)}"}
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens[who]}"
        return await client.request(method, path, headers=headers)

    def get(self, path: str, who: str | None) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with self.client() as client:
                return await self.ask(client, "GET", path, who)

        return asyncio.run(asked())

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE_URL)


def deployed(folder: Path, root: str, reading: str) -> Deployment:
    made = {
        name: new_token(name, Roles.parsed(roles), now_ms=NOW_MS, expires_ms=NOW_MS + 10**9)
        for name, roles in ROLES.items()
    }
    write_tokens(folder / "tokens.json", [kept for _, kept in made.values()])
    serve = {"reading": reading, "tokens_file": folder / "tokens.json"}
    settings = settings_for(root, serve=serve)
    snapshots = [read_snapshot(named(settings, name), NOW_MS) for name in CLUSTERS]
    return Deployment(app_of_all(snapshots, settings), settings, {name: text for name, (text, _) in made.items()})


@pytest.fixture
def closed(tmp_path: Path, root: str) -> Deployment:
    return deployed(tmp_path, root, "signed_in")


def paths_of(deployment: Deployment, cluster: str) -> Iterator[tuple[str, str]]:
    """Yields method and path of every route of a cluster that has figures or acts."""
    for route in deployment.app.clusters[cluster].routes:
        assert isinstance(route, Route)
        is_of_cluster = route.path.startswith(("/api/", "/metrics")) and not route.path.startswith(OPEN)
        for method in sorted(route.methods or ()) if is_of_cluster else ():
            yield method, f"/clusters/{cluster}{route.path.format(**OF_PATH)}"


@pytest.mark.long
def test_each_route_of_a_cluster_goes_by_the_role_on_this_cluster(closed: Deployment) -> None:
    async def seen() -> dict[tuple[str, str, str, str | None], int]:
        answers = {}
        async with closed.client() as client:
            for cluster in CLUSTERS:
                for method, path in paths_of(closed, cluster):
                    for who in (*ROLES, None):
                        may_read = who is not None and Roles.parsed(ROLES[who]).on(cluster) is not None
                        if method == "GET" and path.endswith("/events") and may_read:
                            continue  # a stream that does not end; HEAD asks the same route
                        answer = await closed.ask(client, method, path, who)
                        answers[cluster, method, path, who] = answer.status_code
        return answers

    answers = asyncio.run(seen())
    assert {method for _, method, _, _ in answers} == {"GET", "HEAD", "POST"}
    assert len({path for _, _, path, _ in answers}) > 2 * 25
    for (cluster, method, path, who), status in answers.items():
        role = None if who is None else Roles.parsed(ROLES[who]).on(cluster)
        needed = Role.OPERATOR if method == "POST" else Role.VIEWER
        if who is None:
            assert status == 401, (method, path)
        elif role is None or not role.may(needed):
            assert status == 403, (who, method, path)
        else:
            assert status in (200, 400, 404), (who, method, path, status)
    acted = {(row["kafka_cluster"], row["actor"], row["role"]) for row in read(closed.settings.storage.tables, "audit")}
    assert acted == {
        ("east", "operator", "operator"), ("east", "of-both", "operator"), ("east", "of-one", "admin"),
        ("west", "operator", "operator"), ("west", "raised", "operator"),
    }  # fmt: skip


def test_without_a_sign_in_everybody_reads_and_only_who_may_acts(tmp_path: Path, root: str) -> None:
    opened = deployed(tmp_path, root, "open")

    async def acted() -> list[int]:
        path = "/clusters/west/api/v1/brokers/1/drain"
        async with opened.client() as client:
            return [(await opened.ask(client, "POST", path, who)).status_code for who in ROLES]

    assert dict(zip(ROLES, asyncio.run(acted()), strict=True)) == {
        "viewer": 403, "operator": 200, "of-both": 403, "of-one": 403, "raised": 200, "of-none": 403,
    }  # fmt: skip
    for who in (None, "of-one"):
        assert len(opened.get("/api/v1/clusters", who).json()["items"]) == 2
        assert opened.get("/clusters/west/api/status", who).status_code == 200


@pytest.mark.parametrize(("who", "seen"), [("viewer", {"east", "west"}), ("of-one", {"east"}), ("of-none", set())])
def test_what_is_of_all_clusters_has_those_that_one_may_see(closed: Deployment, who: str, seen: set[str]) -> None:
    for path in ("/api/v1/clusters", *(f"/clusters/{cluster}/api/v1/clusters" for cluster in seen)):
        assert {row["kafka_cluster"] for row in closed.get(path, who).json()["items"]} == seen
    metrics = closed.get("/metrics", who)
    assert {name for name in CLUSTERS if f'kafka_cluster="{name}"' in metrics.text} == seen
    assert metrics.status_code == 200
    assert "process_cpu_seconds_total" in metrics.text
    assert {closed.get(path, None).status_code for path in ("/api/v1/clusters", "/metrics")} == {401}
    assert closed.get("/", None).status_code == 200, "the page has no figures"


def test_answers_for_one_reader_are_not_given_to_another(closed: Deployment) -> None:
    first = closed.get("/metrics", "viewer").text
    for path in ("/metrics", "/clusters/east/metrics", "/api/v1/clusters", "/clusters/east/api/status"):
        assert "private" in closed.get(path, "viewer").headers["cache-control"], path
    assert 'kafka_cluster="west"' not in closed.get("/metrics", "of-one").text
    assert 'kafka_cluster="west"' in closed.get("/metrics", "viewer").text
    assert first.count("rebalancer_build_info{") == 2


def test_a_session_names_the_role_on_the_cluster_at_whose_address_it_is_asked(closed: Deployment) -> None:
    def session(path: str, who: str) -> tuple[Any, ...]:
        shown = closed.get(f"{path}api/v1/session", who).json()
        return shown["name"], shown["role"], shown["roles"], shown["detail"]

    assert session("/", "of-both") == ("of-both", None, {"east": "operator", "west": "viewer"}, "signed in")
    assert session("/clusters/east/", "of-both")[1] == "operator"
    assert session("/clusters/west/", "raised")[1:3] == ("operator", {})
    assert session("/clusters/west/", "of-one")[1:] == (None, {}, "signed in, without a role on cluster west")
    answer = closed.get("/clusters/west/api/status", "of-one")
    assert (answer.status_code, answer.json()["detail"]) == (403, "of-one has no role on cluster west, only east=admin")


def test_claims_of_an_issuer_give_the_highest_role_on_each_cluster() -> None:
    serve = ServeSettings.model_validate({
        "oidc_issuer": "https://issuer.example", "oidc_audience": "us",
        "oidc_roles": {
            "all": "viewer", "east-ops": {"east": "operator"}, "west-lead": {"west": "admin", "east": "viewer"},
        },
    })  # fmt: skip

    def roles(*values: str) -> str:
        return str(identity_of({"sub": "s", "roles": list(values)}, serve).roles)

    assert roles("all", "east-ops", "west-lead") == "viewer, east=operator, west=admin"
    assert roles("east-ops") == "east=operator"
    assert roles("unknown") == ""
    assert not identity_of({"sub": "s"}, serve).roles


def test_files_of_before_and_those_with_roles_by_cluster_are_read_back_as_written(tmp_path: Path) -> None:
    tokens, users = tmp_path / "tokens.json", tmp_path / "users.json"
    kept = [new_token(name, Roles.parsed(roles), now_ms=1, expires_ms=2)[1] for name, roles in ROLES.items()]
    write_tokens(tokens, kept)
    assert [*read_tokens(tokens).values()] == kept
    ada = new_user("ada", Role.OPERATOR, PASSWORD, now_ms=NOW_MS)
    eve = new_user("eve", Roles.parsed(["east=viewer"]), PASSWORD, now_ms=NOW_MS)
    write_users_file(users, [ada, eve])
    assert [*read_users(users).values()] == [ada, eve]
    stored = json.loads(users.read_text())["users"]
    assert (stored[0]["role"], "roles" in stored[0]) == ("operator", False), "earlier releases read it"
    assert ("role" in stored[1], stored[1]["roles"]) == (False, {"east": "viewer"})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"role": None}, "None is not a valid Role"),
        ({"roles": {"east": "king"}}, "'king' is not a valid Role"),
        ({"roles": ["east"]}, "roles: must be an object of cluster: role"),
        ({"role": ..., "roles": {}}, "an account has neither role nor roles"),
    ],
)
def test_a_file_with_roles_that_are_none_lets_nobody_in(
    tmp_path: Path, changed: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users.json"
    write_users_file(file, [new_user("ada", Role.OPERATOR, PASSWORD, now_ms=NOW_MS)])
    content = json.loads(file.read_text())
    row = content["users"][0] | changed
    content["users"] = [{key: value for key, value in row.items() if value is not ...}]
    file.write_text(json.dumps(content))
    assert run(["user", "list", "--set", f"serve.users_file={file}"]) == 2
    assert why in capsys.readouterr().err


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "rebalancer.yaml"
    file.write_text(
        f"storage: {{ tables: {tmp_path}/tables }}\n"
        f"serve: {{ port: 0, tokens_file: {tmp_path}/tokens, users_file: {tmp_path}/users }}\n"
        "clusters:\n"
        "  east: { kafka: { bootstrap_servers: [east:9092] } }\n"
        "  west: { kafka: { bootstrap_servers: [west:9092] } }\n"
    )
    return file


def test_commands_give_roles_by_cluster_and_know_the_clusters(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    options = ["--config", str(config)]
    both = ["--role", "viewer", "--role", "east=operator"]
    assert run(["user", "add", "ada", *both, "--password-file", str(tmp_path / "password"), *options]) == 0
    assert run(["token", "create", "bot", "--role", "west=admin", *options]) == 0
    assert run(["user", "list", *options]) == 0
    assert "viewer, east=operator" in capsys.readouterr().out
    assert run(["user", "role", "ada", "--role", "west=viewer", *options]) == 0
    assert str(read_users(tmp_path / "users")["ada"].roles) == "west=viewer"
    (token,) = read_tokens(tmp_path / "tokens").values()
    assert str(token.roles) == "west=admin"
    capsys.readouterr()
    for role, why in [
        ("north=viewer", "'north' is no cluster of the settings; known are east, west"),
        ("king", "'king' is no role; allowed are viewer, operator, admin and CLUSTER=ROLE"),
        ("=viewer", "'=viewer' is no role"),
    ]:
        assert run(["user", "role", "ada", "--role", role, *options]) == 2
        assert why in capsys.readouterr().err
    assert run(["user", "role", "ada", "--role", "viewer", "--role", "admin", *options]) == 2
    assert "is the second role for all clusters" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["tokens", "users", "oidc"])
def test_serve_refuses_to_start_with_a_role_on_an_unknown_cluster(
    tmp_path: Path, config: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    roles = Roles.parsed(["nroth=viewer"])
    if where == "tokens":
        write_tokens(tmp_path / "tokens", [new_token("bot", roles, now_ms=1, expires_ms=2)[1]])
    elif where == "users":
        write_users_file(tmp_path / "users", [new_user("ada", roles, PASSWORD, now_ms=1)])
    else:
        issuer = (
            '  oidc_issuer: https://issuer.example\n  oidc_audience: us\n  oidc_roles: {"ops": {"nroth": viewer}}\n'
        )
        config.write_text(config.read_text().replace("serve: { port: 0", f"serve:\n  port: 0\n{issuer}#"))
    assert run(["serve", "--config", str(config)]) == 2
    message = capsys.readouterr().err
    assert "has a role on cluster 'nroth', which the settings do not name; known are east, west" in message
    assert {"tokens": "token revoke", "users": "user role", "oidc": "serve.oidc_roles"}[where] in message


def test_serve_of_one_cluster_knows_the_clusters_of_the_others(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tokens(tmp_path / "tokens", [new_token("bot", Roles.parsed(["west=viewer"]), now_ms=1, expires_ms=2)[1]])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"serve.port={taken.getsockname()[1]}"
        assert run(["serve", "--cluster", "east", "--config", str(config), "--set", port]) == 1
    assert "can't listen on serve.host" in capsys.readouterr().err


def test_run_refuses_settings_without_a_cluster_on_which_somebody_has_a_role(tmp_path: Path, config: Path) -> None:
    """Else the next start of `run` would end with all of its roles, as serve would refuse to start."""
    write_tokens(tmp_path / "tokens", [new_token("bot", Roles.parsed(["west=viewer"]), now_ms=1, expires_ms=2)[1]])
    settled, both = RunSettings(SettingsSource(config, ())), config.read_text()
    with settled.locked(SettingsSource(config, ()).read()[1]), structlog.testing.capture_logs() as logged:
        config.write_text(both.replace("west", "north"))
        assert settled.reload(asked=True) is None
        assert [*settled.clusters] == ["east", "west"]
        assert run(["config", "--check", "--config", str(config)]) == 2
        config.write_text(f"{both}  north: {{ kafka: {{ bootstrap_servers: [north:9092] }} }}\n")
        assert settled.reload(asked=True)
    (refused,) = (row for row in logged if row["event"] == "settings_refused")
    assert "has a role on cluster 'west', which the settings do not name" in refused["error"]
