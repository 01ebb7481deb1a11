"""What the image holds, in the form of CycloneDX 1.6: `python contents.py FILE`, run by the Python of the image.

Components are Python's packages and the jars, those inside pyspark too, each jar with its SHA-256. Debian's packages
are not among them: scanners read these from the image itself. A jar's Maven coordinates are what it holds of itself.
"""

import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streaming.runtime.jars import IVY_MANIFEST, cache_folder

PROJECT = "kafka-load-rebalancer"
COORDINATES = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
VERSION_IN_NAME = re.compile(r"(?P<name>.+?)-(?P<version>\d[^/]*)")
DEPENDENCY = re.compile(r'<dependency org="([^"]+)" name="([^"]+)" rev="([^"]+)"')
ASKED_FOR = {(name, version): group for group, name, version in DEPENDENCY.findall(IVY_MANIFEST.read_text())}
"""Group by name and version: Kafka's jars hold no coordinates."""

Component = dict[str, Any]


def document() -> dict[str, Any]:
    """The whole document; components in the order of their names, so that two of the same image are equal."""
    spark = Path(str(distribution("pyspark").locate_file("pyspark"))) / "jars"
    jars = [*cache_folder().rglob("*.jar"), *spark.glob("*.jar")]
    components = [*map(_package, distributions()), *map(_jar, jars)]
    ours = next(row for row in components if row["name"] == PROJECT)
    others = {json.dumps(row, sort_keys=True): row for row in components if row is not ours}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**ours, "type": "application"}},
        "components": sorted(others.values(), key=lambda row: (row["name"], row.get("version", ""), json.dumps(row))),
    }


def _package(installed: Distribution) -> Component:
    name, version = installed.metadata["Name"], installed.version
    normal = re.sub(r"[-_.]+", "-", name).lower()  # as PyPI does
    return {"type": "library", "name": normal, "version": version, "purl": f"pkg:pypi/{normal}@{quote(version)}"}


def _jar(file: Path) -> Component:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    row: Component = {"type": "library", "hashes": [{"alg": "SHA-256", "content": digest}]}
    coordinates = list(_coordinates(file))
    named = VERSION_IN_NAME.fullmatch(file.stem)
    if named and (named["name"], named["version"]) in ASKED_FOR:
        coordinates = [(ASKED_FOR[named["name"], named["version"]], named["name"], named["version"])]
    if len(coordinates) == 1:  # a jar with those of several holds the classes of others: none of them is its own
        (group, name, version) = coordinates[0]
        purl = f"pkg:maven/{quote(group)}/{quote(name)}@{quote(version)}?type=jar"
        return {**row, "group": group, "name": name, "version": version, "purl": purl}
    return {**row, **(named.groupdict() if named else {"name": file.stem})}


def _coordinates(file: Path) -> Iterator[tuple[str, str, str]]:
    """Group, artifact and version, once for each project whose classes the jar holds."""
    with zipfile.ZipFile(file) as jar:
        for entry in filter(COORDINATES.fullmatch, jar.namelist()):
            lines = jar.read(entry).decode("utf-8", "replace").splitlines()
            values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
            if {"groupId", "artifactId", "version"} <= values.keys():
                yield values["groupId"].strip(), values["artifactId"].strip(), values["version"].strip()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(document(), indent=1) + "\n", encoding="utf-8")
