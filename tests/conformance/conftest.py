"""The stage of a test: simulated in every run, on the wire with the marker `long`, on real brokers with `kafka`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from streaming.cluster.clients import admin_client
from streaming.settings import KafkaSettings
from tests.conformance.disks import Disks, EmbeddedDisks, SimulatedDisks, embedded_disks
from tests.conformance.stages import (
    OLDEST_RELEASE,
    EmbeddedStage,
    SimulatedStage,
    Stage,
    WireStage,
    simulated_cluster,
    wire_fleet,
)
from tests.fleet.process import FleetProcess

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


@pytest.fixture(scope="package")
def wire() -> Iterator[tuple[FleetProcess, "KafkaAdminClient"]]:
    """Three brokers of the simulated cluster on loopback, and a client of them.

    They end with these tests: a thread of the client draws random numbers, which Hypothesis refuses in its own tests.
    """
    with FleetProcess(wire_fleet) as fleet:
        client = admin_client(KafkaSettings(bootstrap_servers=fleet.bootstrap_servers))
        yield fleet, client
        client.close()


@pytest.fixture(
    params=[
        "simulated",
        "simulated oldest release",
        pytest.param("wire", marks=pytest.mark.long),
        pytest.param("embedded", marks=pytest.mark.kafka),
    ]
)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A cluster on which nothing is under way."""
    if request.param.startswith("simulated"):
        yield SimulatedStage(simulated_cluster(OLDEST_RELEASE) if "oldest" in request.param else None)
        return
    if request.param == "wire":
        yield WireStage(*request.getfixturevalue("wire"))
        return
    embedded = EmbeddedStage(request.getfixturevalue("kafka_cluster"), request.getfixturevalue("admin"))
    try:
        yield embedded
    finally:
        embedded.tidy()


@pytest.fixture(scope="module")
def shared_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedDisks]:
    """Three real brokers for all tests of a file, broker 2 with two log dirs."""
    with embedded_disks(tmp_path_factory.mktemp("disks")) as embedded:
        yield embedded


@pytest.fixture(params=["simulated", pytest.param("embedded", marks=[pytest.mark.kafka, pytest.mark.apart])])
def disks(request: pytest.FixtureRequest) -> Iterator[Disks]:
    """The same with two log dirs on broker 2; nothing is under way."""
    if request.param == "simulated":
        yield SimulatedDisks()
        return
    embedded: EmbeddedDisks = request.getfixturevalue("shared_disks")
    try:
        yield embedded
    finally:
        embedded.tidy()
