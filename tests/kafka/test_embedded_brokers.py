"""Folders of embedded brokers, of which Kafka's own tool formats those of the first alone; how brokers start."""

from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.class_archive import archive_path

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


def test_brokers_start_with_the_classes_that_were_archived_before(kafka_cluster: EmbeddedCluster) -> None:
    if not archive_path().is_file():
        pytest.skip("the set-up has made no archive here")
    for process_id in kafka_cluster.process_ids().values():
        assert str(archive_path().resolve()) in Path(f"/proc/{process_id}/maps").read_text()
