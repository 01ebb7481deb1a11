"""Three brokers of the oldest release that is supported, in place of those that other tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from streaming.demo.brokers import EmbeddedCluster
from tests.conformance.stages import EmbeddedStage, Stage

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """They run as long as the tests of this folder."""
    with EmbeddedCluster(tmp_path_factory.mktemp("oldest"), jars_of="broker-oldest") as cluster:
        yield cluster


@pytest.fixture
def stage(kafka_cluster: EmbeddedCluster, admin: "KafkaAdminClient") -> Iterator[Stage]:
    """Those brokers with nothing under way."""
    embedded = EmbeddedStage(kafka_cluster, admin)
    try:
        yield embedded
    finally:
        embedded.tidy()
