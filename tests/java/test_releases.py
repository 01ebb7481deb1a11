"""The releases that we know metadata.version levels of, against Kafka's own list."""

import subprocess
from pathlib import Path

import pytest

from streaming.cluster.releases import HIGHEST_LEVELS, NEWEST
from tests.java_programs import program

pytestmark = pytest.mark.java

SOURCE = Path(__file__).with_name("MetadataVersions.java")


def test_the_highest_level_of_each_release_is_kafkas() -> None:
    command = program(SOURCE)
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    highest: dict[str, int] = {}
    for release, level in (line.split() for line in lines):
        highest[release] = max(int(level), highest.get(release, 0))
    assert highest == HIGHEST_LEVELS
    assert list(HIGHEST_LEVELS)[-1] == NEWEST
