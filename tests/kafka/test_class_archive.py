"""Brokers start with the classes that were archived before."""

from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.class_archive import archive_path

pytestmark = pytest.mark.kafka


def test_brokers_use_the_archive(kafka_cluster: EmbeddedCluster) -> None:
    if not archive_path().is_file():
        pytest.skip("the set-up has made no archive here")
    for process_id in kafka_cluster.process_ids().values():
        assert str(archive_path().resolve()) in Path(f"/proc/{process_id}/maps").read_text()
