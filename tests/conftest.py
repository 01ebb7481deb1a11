"""What tests of several folders share: brokers, started once for all of them and ended whatever happens."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from streaming.settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from streaming.demo.brokers import EmbeddedCluster

pytest_plugins = ["tests.lanes"]

# The same examples in every run, so that a failure can be repeated; no deadline, as machines are shared.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator["EmbeddedCluster"]:
    """Three brokers for all tests that use topics of their own."""
    from streaming.demo.brokers import EmbeddedCluster  # the pure tests must not pay for a Kafka client

    with EmbeddedCluster(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture
def settings(kafka_cluster: "EmbeddedCluster", tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a user of those brokers, with tables in a folder of the test's own."""
    folder = tmp_path_factory.mktemp("home")
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "test", "bootstrap_servers": kafka_cluster.bootstrap_servers},
            "storage": {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")},
            "collect": {"jmx_endpoints": kafka_cluster.jmx_endpoints},
        }
    )


@pytest.fixture
def admin(settings: Settings) -> Iterator["KafkaAdminClient"]:
    """An admin client of those brokers."""
    from streaming.cluster.clients import admin_client

    client = admin_client(settings.kafka)
    yield client
    client.close()
