"""The image: its Dockerfile, its locks, and the list of what it holds; `image_steps` runs its steps in a clean root."""

import re
import runpy
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from typing import Any

import pytest

from streaming.runtime.jars import CHECKSUMS, PROJECT_ROOT
from tests.deploy.image_steps import DOCKERFILE, instructions, is_sent

STEPS = list(instructions(DOCKERFILE.read_text(encoding="utf-8")))
IGNORED = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()


def pins(file: str) -> Mapping[str, str]:
    """Hashes by pinned package, `name==version ; marker`."""
    text = (PROJECT_ROOT / file).read_text(encoding="utf-8").strip()
    parts = (part.partition(" \\\n") for part in re.split(r"\n(?=\S)", text))
    return {pinned: hashes.strip() for pinned, _, hashes in parts}


def test_the_image_gets_the_versions_that_are_tested_and_no_tool_of_the_tests() -> None:
    whole, image = pins("requirements.lock"), pins("deploy/extras/image.lock")
    assert image.items() <= whole.items()
    names = {pinned.partition("==")[0] for pinned in image}
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {re.split(r"[<>=]", row)[0] for row in project["dependencies"]}
    assert named <= names
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "setuptools"}
    (build,) = project["optional-dependencies"]["build"]
    assert list(pins("deploy/extras/image-build.lock")) == [build]


def test_each_package_has_a_hash_and_is_installed_by_it() -> None:
    installs = [
        part for _, rest in STEPS for part in rest.split("&&") if " pip install " in part or "/pip install" in part
    ]
    assert len(installs) == 3
    assert all("--require-hashes" in part or "--no-index" in part for part in installs)
    assert all("--only-binary :all:" in part or "--no-build-isolation" in part for part in installs)
    for file in ("image.lock", "image-build.lock"):
        assert all("--hash=sha256:" in hashes for hashes in pins(f"deploy/extras/{file}").values())


def test_what_builds_stays_behind() -> None:
    """Of the last stage only folders are copied that an earlier one has filled, and its user is not root."""
    begins = [index for index, (name, _) in enumerate(STEPS) if name == "FROM"]
    labels: set[str] = {"${PYTHON_IMAGE}"}
    for index in begins:
        source, _, label = STEPS[index][1].partition(" AS ")
        assert source in labels
        labels.add(label)
    last = STEPS[begins[-1] :]
    copies = [rest for name, rest in last if name == "COPY"]
    assert copies == [f"--from=build {folder} {folder}" for folder in ("/opt/rebalancer", "/opt/jars")]
    assert not any("pip" in rest for name, rest in last if name == "RUN")
    users = [rest for name, rest in last if name == "USER"]
    assert users == ["rebalancer"]
    assert last[-1] == ("ENTRYPOINT", '["rebalancer"]')


@pytest.mark.parametrize(
    ("file", "sent"),
    [
        ("streaming/cli.py", True), ("assignor_core/__init__.py", True), ("conf/ivy.xml", True), ("README.md", True),
        ("deploy/extras/image.lock", True), ("deploy/compose/contents.py", True), ("tests/conftest.py", False),
        ("docs/images/demo.png", False), (".git/config", False), ("secrets/password", False),
    ],
)  # fmt: skip
def test_the_context_holds_what_the_steps_read_and_no_more(file: str, sent: bool) -> None:
    assert is_sent(file, IGNORED) is sent
    read = [path for _, rest in STEPS for path in re.findall(r"(?<=[ /])deploy/[\w/.-]+", rest)]
    assert read
    assert all((PROJECT_ROOT / path).is_file() and is_sent(path, IGNORED) for path in read)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    made: dict[str, Any] = runpy.run_path(str(PROJECT_ROOT / "deploy" / "compose" / "contents.py"))["document"]()
    return made


@pytest.mark.long
def test_the_list_of_contents_has_each_jar_with_its_digest_and_each_package(document: dict[str, Any]) -> None:
    digests = {row["content"] for part in document["components"] for row in part.get("hashes", [])}
    lines = (line.split() for line in CHECKSUMS.read_text().splitlines() if line.strip())
    pinned = {name: digest for digest, name in lines}
    product = {digest for name, digest in pinned.items() if name.split("/")[0] in ("spark", "broker", "agent")}
    assert product
    assert product <= digests
    purls = {part["purl"] for part in document["components"] if "purl" in part}
    assert "pkg:pypi/pyspark@4.2.0" in purls
    assert any(purl.startswith("pkg:maven/org.apache.kafka/kafka_2.13@") for purl in purls)
    assert any(purl.startswith("pkg:maven/org.apache.parquet/parquet-hadoop@") for purl in purls), (
        "Spark's own jars, too"
    )


@pytest.mark.long
def test_the_list_of_contents_has_each_component_once_and_names_the_product(document: dict[str, Any]) -> None:
    rows = [str(sorted(part.items(), key=str)) for part in document["components"]]
    assert len(rows) == len(set(rows))
    assert all(part["name"] and part["type"] == "library" for part in document["components"])
    product = document["metadata"]["component"]
    assert (product["name"], product["type"]) == ("kafka-load-rebalancer", "application")
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")


IMPORT = re.compile(r"^ *(?:from ([a-z_]\w*)[\w.]* import |import ([a-z_]\w*)[\w.]*(?: as \w+)?$)", re.MULTILINE)
CHECKED = ("streaming", "tests", "deploy")


@pytest.mark.long
def test_mypy_passes_over_what_the_lock_does_not_install() -> None:
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    passed_over = {
        pattern.removesuffix(".*")
        for override in project["tool"]["mypy"]["overrides"]
        if override.get("ignore_missing_imports")
        for pattern in override["module"]
    }
    locked = set(re.findall(r"^([\w.-]+)==", (PROJECT_ROOT / "requirements.lock").read_text(), re.MULTILINE))
    installed = {
        module
        for module, distributions in packages_distributions().items()
        if any(re.sub(r"[-_.]+", "-", name).lower() in locked for name in distributions)
    }
    files = [file for folder in CHECKED for file in (PROJECT_ROOT / folder).rglob("*.py")]
    ours = {"assignor_core", *CHECKED, *(file.stem for file in files)}
    imported = {name for file in files for found in IMPORT.findall(file.read_text()) for name in found if name}
    assert "playwright" in imported
    assert imported - set(sys.stdlib_module_names) - installed - ours <= passed_over
