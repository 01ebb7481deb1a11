"""deploy/compose.yml can't be run by a test; so its shape is checked, and every command and file in it is one that runs
elsewhere: the product's own command line, the committed configuration, Kafka's own check of the brokers' settings."""

import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from streaming.cli import run
from streaming.config import load_clusters, load_settings
from streaming.runtime import jars, processes
from tests.waiting import DEADLINE_S

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE, TWO_CLUSTERS = DEPLOY / "compose.yml", DEPLOY / "compose" / "two-clusters.yml"
PORT = re.compile(r"127\.0\.0\.1:\d+:\d+")
DEFAULTS = re.compile(r"\$\{(\w+):-([^}]*)\}")
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+")


class Strict(BaseModel):
    """A part of the Compose Specification as far as we use it: what it doesn't know is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Build(Strict):
    context: str
    dockerfile: str
    args: dict[str, str]


class Dependency(Strict):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Healthcheck(Strict):
    test: list[str]
    interval: str = Field(pattern=r"^\d+s$")
    timeout: str = Field(pattern=r"^\d+s$")
    retries: int


class Service(Strict):
    image: str
    build: Build | None = None
    command: list[str] = []
    entrypoint: list[str] | None = None
    environment: dict[str, str | int] = {}
    ports: list[str] = []
    secrets: list[str] = []
    volumes: list[str] = []
    depends_on: dict[str, Dependency] = {}
    healthcheck: Healthcheck | None = None
    restart: Literal["unless-stopped"] | None = None
    stop_grace_period: str | None = None


class Secret(Strict):
    file: str


class Compose(Strict):
    name: str
    secrets: dict[str, Secret]
    services: dict[str, Service]
    volumes: dict[str, None]


def loaded(file: Path) -> dict[str, Any]:
    """A text of a Compose file with the values that Compose fills in if no variable is set in the environment."""
    content = yaml.safe_load(DEFAULTS.sub(r"\2", file.read_text()))
    return {key: value for key, value in content.items() if not key.startswith("x-")}


@pytest.fixture(scope="module")
def compose() -> Compose:
    return Compose.model_validate(loaded(COMPOSE))


@pytest.fixture(scope="module")
def two_clusters() -> Compose:
    """Both files, merged as the Compose Specification has it: lists are added up, what is mounted last counts."""
    both = loaded(COMPOSE)
    more = loaded(TWO_CLUSTERS)
    both["volumes"] |= more["volumes"]
    for name, service in more["services"].items():
        merged = both["services"].setdefault(name, {})
        for key, value in service.items():
            if isinstance(value, list):
                merged[key] = [*merged.get(key, []), *value]
            else:
                merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return Compose.model_validate(both)


def brokers(compose: Compose) -> dict[str, Service]:
    return {name: service for name, service in compose.services.items() if name.startswith("kafka-")}


def mounts(service: Service) -> dict[PurePosixPath, str]:
    """Path inside -> what is mounted there."""
    parts = [volume.split(":") for volume in service.volumes]
    return {PurePosixPath(part[1]): part[0] for part in parts}


def test_everything_that_is_named_is_there(compose: Compose) -> None:
    assert set(brokers(compose)) == {"kafka-1", "kafka-2", "kafka-3"}
    assert {"rebalancer", "prometheus", "alertmanager", "grafana"} <= compose.services.keys()
    used = set()
    for name, service in compose.services.items():
        assert service.depends_on.keys() <= compose.services.keys(), name
        for dependency, how in service.depends_on.items():
            if how.condition == "service_healthy":
                assert compose.services[dependency].healthcheck, f"{name} waits for the health of {dependency}"
        for source in mounts(service).values():
            if source.startswith("."):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
            else:
                used.add(source)
    assert used == compose.volumes.keys()


def test_images_are_pinned_and_no_port_is_open_to_the_world(compose: Compose) -> None:
    for name, service in compose.services.items():
        assert PINNED.fullmatch(service.image), f"{name}: {service.image}"
        assert all(PORT.fullmatch(port) for port in service.ports), f"{name}: {service.ports}"
    published = [port.split(":")[1] for service in compose.services.values() for port in service.ports]
    assert len(published) == len(set(published))
    dockerfile = (DEPLOY / "compose" / "Dockerfile").read_text()
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)\n\nFROM \$\{PYTHON_IMAGE\} AS java$", dockerfile, re.MULTILINE)
    assert PINNED.match(base)
    assert [service.build.args for service in compose.services.values() if service.build] == [
        {"PYTHON_IMAGE": base}
    ] * 2


def test_every_image_of_others_can_be_held_by_its_digest(compose: Compose) -> None:
    names = dict(DEFAULTS.findall(COMPOSE.read_text()))
    images = {service.image for service in compose.services.values() if not service.build}
    assert {names[f"{name}_IMAGE"] for name in ("KAFKA", "PROMETHEUS", "ALERTMANAGER", "GRAFANA")} == images


def test_grafana_has_no_password_that_others_know_and_visitors_only_look(compose: Compose) -> None:
    grafana = compose.services["grafana"]
    (secret,) = grafana.secrets
    assert grafana.environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] == f"/run/secrets/{secret}"
    assert "GF_SECURITY_ADMIN_PASSWORD" not in grafana.environment
    assert compose.secrets[secret].file.startswith("${GRAFANA_ADMIN_PASSWORD_FILE:?"), "without it nothing starts"
    assert grafana.environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert grafana.ports == ["127.0.0.1:3000:3000"], "else visitors must log in"


def test_nothing_is_built_with_tools_that_have_no_hash() -> None:
    script = (DEPLOY / "bootstrap.sh").read_text()
    installs = [line for line in script.splitlines() if " pip install " in line]
    assert ["--require-hashes" in line or "--no-index" in line for line in installs] == [True] * len(installs) != []
    assert "--no-build-isolation" in next(line for line in installs if "--no-index" in line)
    extras = [line for line in installs if "deploy/extras" in line]
    assert all("--only-binary :all:" in line or "--no-build-isolation" in line for line in extras)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (pinned,) = project["project"]["optional-dependencies"]["build"]
    lock = (ROOT / "requirements.lock").read_text()
    assert re.search(rf"^{re.escape(pinned)} \\\n    --hash=sha256:", lock, re.MULTILINE)
    (wanted,) = project["build-system"]["requires"]
    name, _, least = wanted.partition(">=")
    assert pinned.startswith(f"{name}==")
    assert int(pinned.partition("==")[2].partition(".")[0]) >= int(least)


def test_versions_are_those_that_are_tested(compose: Compose) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    manifest = (ROOT / "conf" / "ivy.xml").read_text()
    kafka = re.search(r'name="kafka_2.13" rev="([^"]+)"', manifest)
    boards = re.search(r"grafana-foundation-sdk==\d+!([\d.]+)", str(project["optional-dependencies"]["dev"]))
    assert kafka
    assert boards
    assert {service.image for service in brokers(compose).values()} == {f"apache/kafka:{kafka.group(1)}"}
    assert compose.services["grafana"].image == f"grafana/grafana:{boards.group(1)}"
    assert compose.services["rebalancer"].image == f"{project['name']}:{project['version']}"


def test_the_product_is_started_as_everywhere_with_settings_that_are_valid(
    compose: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    product = compose.services["rebalancer"]
    role, option, file = product.command
    assert run([role, "--help"]) == 0
    assert option in capsys.readouterr().out
    inside = mounts(product)
    settings = load_settings(DEPLOY / inside[PurePosixPath(file)])
    assert [address.partition(":")[0] for address in settings.kafka.bootstrap_servers] == list(brokers(compose))
    assert {f"http://kafka-{broker}:7071/metrics" for broker in settings.collect.jmx_endpoints} == set(
        settings.collect.jmx_endpoints.values()
    )
    # What must outlive the container lies in a volume.
    for folder in (settings.storage.tables, settings.storage.checkpoints):
        assert inside[PurePosixPath(folder).parent] in compose.volumes
    assert product.ports == [f"127.0.0.1:{settings.serve.port}:{settings.serve.port}"]
    dockerfile = (DEPLOY / "compose" / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["rebalancer"]' in dockerfile


def test_one_rebalancer_works_for_two_clusters_if_the_second_file_is_given(
    compose: Compose, two_clusters: Compose
) -> None:
    added = two_clusters.services.keys() - compose.services.keys()
    assert added == {"west-1"}
    west, kafka_1 = two_clusters.services["west-1"], two_clusters.services["kafka-1"]
    assert west.environment["CLUSTER_ID"] != kafka_1.environment["CLUSTER_ID"]
    assert (west.image, west.healthcheck) == (kafka_1.image, kafka_1.healthcheck)
    assert agent_and_rules(west) == agent_and_rules(kafka_1)
    published = [port.split(":")[1] for service in two_clusters.services.values() for port in service.ports]
    assert len(published) == len(set(published))
    assert all(PORT.fullmatch(port) for port in west.ports)
    product = two_clusters.services["rebalancer"]
    assert product.command == compose.services["rebalancer"].command
    for source in mounts(west).values():
        assert source in two_clusters.volumes or (DEPLOY / source).exists()
    settings_file = DEPLOY / mounts(product)[PurePosixPath(product.command[-1])]
    assert settings_file.name == "two-clusters.yaml"
    alone = load_settings(DEPLOY / "compose" / "rebalancer.yaml")
    clusters = {name: effective.settings for name, effective in load_clusters(settings_file, None, {}).items()}
    assert clusters.keys() == {alone.kafka.cluster_name, "west"}
    own = clusters[alone.kafka.cluster_name]
    assert (own.storage, own.serve, own.collect) == (alone.storage, alone.serve, alone.collect), "it goes on as it was"
    for settings in clusters.values():
        hosts = {address.partition(":")[0] for address in settings.kafka.bootstrap_servers}
        assert hosts <= two_clusters.services.keys() & product.depends_on.keys()
        assert {str(url).split("/")[2].partition(":")[0] for url in settings.collect.jmx_endpoints.values()} == hosts


def agent_and_rules(service: Service) -> tuple[Any, ...]:
    return service.environment["KAFKA_OPTS"], {
        path: source for path, source in mounts(service).items() if "jmx" in source
    }


def test_the_image_holds_all_that_its_set_up_reads() -> None:
    lines = (DEPLOY / "compose" / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in allowed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert {*packages, "conf", "deploy", "pyproject.toml", project["project"]["readme"]} <= allowed


def test_prometheus_is_configured_as_elsewhere_but_for_addresses(compose: Compose) -> None:
    def without_addresses(file: str) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load((DEPLOY / file).read_text())
        for scrape in loaded["scrape_configs"]:
            assert scrape["static_configs"][0].pop("targets")
        assert loaded["alerting"]["alertmanagers"][0]["static_configs"][0].pop("targets")
        return loaded

    assert without_addresses("compose/prometheus.yml") == without_addresses("prometheus/prometheus.yml")
    inside = {path.name: source for path, source in mounts(compose.services["prometheus"]).items()}
    for file in without_addresses("compose/prometheus.yml")["rule_files"]:
        assert inside[file] == f"./prometheus/{file}"
    text = (DEPLOY / "compose" / "prometheus.yml").read_text()
    allowed = load_settings(DEPLOY / "compose" / "rebalancer.yaml").serve.allowed_hosts
    assert [host for host in allowed if f'"{host}:9464"' in text] == allowed != []
    for host, port in re.findall(r'"([\w-]+):(\d+)"', text):
        assert any(address.endswith(f":{port}") for address in compose.services[host].ports)


def test_grafana_finds_datasource_and_boards_where_they_are_mounted(compose: Compose) -> None:
    inside = mounts(compose.services["grafana"])
    provisioning = PurePosixPath("/etc/grafana/provisioning")
    sources = DEPLOY / inside[provisioning / "datasources"] / "prometheus.yml"
    (source,) = yaml.safe_load(sources.read_text())["datasources"]
    host, port = re.fullmatch(r"http://([\w-]+):(\d+)", source["url"]).groups()  # type: ignore[union-attr]
    assert any(address.endswith(f":{port}") for address in compose.services[host].ports)
    providers = DEPLOY / inside[provisioning / "dashboards"] / "rebalancer.yml"
    (provider,) = yaml.safe_load(providers.read_text())["providers"]
    boards = DEPLOY / inside[PurePosixPath(provider["options"]["path"])]
    assert len(list(boards.glob("*.json"))) == 5


def test_grafana_judges_alerts_only_where_its_line_is_made_one(compose: Compose) -> None:
    """Prometheus and Grafana both judging would tell everything twice."""
    alerting = "./grafana/provisioning/alerting:/etc/grafana/provisioning/alerting:ro"
    assert alerting not in compose.services["grafana"].volumes
    text = COMPOSE.read_text()
    assert text.count(f"      # - {alerting}\n") == 1
    changed = yaml.safe_load(text.replace(f"# - {alerting}", f"- {alerting}"))
    assert alerting in changed["services"]["grafana"]["volumes"]
    assert (DEPLOY / alerting.partition(":")[0] / "rebalancer.yml").is_file()


def properties_of(service: Service) -> dict[str, str]:
    """server.properties as Kafka's image makes it of KAFKA_ variables."""
    not_settings = {"KAFKA_OPTS", "KAFKA_HEAP_OPTS"}
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in service.environment.items()
        if name.startswith("KAFKA_") and name not in not_settings
    }


@pytest.mark.java
@pytest.mark.kafka
@pytest.mark.apart
def test_kafka_accepts_the_brokers_settings_with_the_agent_beside_it(compose: Compose, tmp_path: Path) -> None:
    """Formatting the log folder is what the image does first, with the agent in the same JVM: it must end."""
    for name, service in brokers(compose).items():
        properties = {**properties_of(service), "log.dirs": str(tmp_path / name)}
        file = tmp_path / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [
            jars.java_command(), agent_of(service), "-XX:TieredStopAtLevel=1", "-cp", jars.class_path("broker"),
            "kafka.tools.StorageTool", "format", "--cluster-id", str(service.environment["CLUSTER_ID"]),
            "--config", str(file),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / name / "meta.properties").is_file()


def agent_of(service: Service) -> str:
    """The broker's agent option, with files and port of this machine in place of those inside the container."""
    match = re.fullmatch(r"-javaagent:(\S+)=0\.0\.0\.0:7071:(\S+)", str(service.environment["KAFKA_OPTS"]))
    assert match
    jar, rules = (PurePosixPath(path) for path in match.groups())
    inside = mounts(service)
    assert inside[jar.parent] == "jmx-agent"
    (agent,) = [path for path in jars.jar_paths("agent") if path.name == jar.name]
    return f"-javaagent:{agent}=127.0.0.1:{processes.free_port()}:{DEPLOY / inside[rules]}"
