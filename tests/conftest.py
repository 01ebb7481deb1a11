"""What tests of several folders share: brokers, started once for all of them and ended whatever happens."""

import os
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


# Spark of the tests and of the processes that they start, with the JVM's quick compiler alone: what the other one would
# gain in a minute or two costs as much CPU time as the tests themselves.
os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -XX:TieredStopAtLevel=1".strip()


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
