"""Ports of embedded brokers: the system may hand out a port again as soon as it is given back."""

from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster


class Planned(Exception):
    """All brokers have their ports."""


def test_no_two_brokers_get_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(_: EmbeddedCluster) -> None:
        raise Planned

    monkeypatch.setattr(EmbeddedCluster, "_format_all", planned)
    cluster = EmbeddedCluster(tmp_path / "home", broker_count=100, listeners=("SSL",), ports={7: 9092})
    with pytest.raises(Planned):
        cluster.start()
    ports = [
        port
        for row in cluster.brokers
        for port in (row.port, row.controller_port, row.jmx_port, *row.listener_ports.values())
    ]
    assert len(set(ports)) == len(ports) == 400
    assert cluster.brokers[6].port == 9092
