"""Folders of embedded brokers, of which Kafka's own tool formats those of the first broker alone."""

from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster

pytestmark = pytest.mark.kafka


def test_every_folder_has_an_id_of_its_own_and_names_its_broker(kafka_cluster: EmbeddedCluster) -> None:
    rows = {
        folder: properties(folder / "meta.properties")
        for broker in kafka_cluster.brokers
        for folder in (broker.folder / "data", broker.folder / "metadata")
    }
    assert len({row["directory.id"] for row in rows.values()}) == len(rows)
    assert len({row["cluster.id"] for row in rows.values()}) == 1
    for broker in kafka_cluster.brokers:
        assert {row["node.id"] for folder, row in rows.items() if folder.parent == broker.folder} == {
            str(broker.broker_id)
        }


def properties(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
