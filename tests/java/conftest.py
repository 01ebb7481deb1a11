"""Kafka's own classes in one JVM for all tests of this folder."""

from collections.abc import Iterator

import pytest

from streaming.errors import SetUpIncomplete
from tests.java.oracle import KafkaOracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[KafkaOracle]:
    """One JVM; skips where its jars or a Java compiler are missing."""
    try:
        kafka = KafkaOracle()
    except SetUpIncomplete as error:
        pytest.skip(str(error))
    with kafka:
        yield kafka
