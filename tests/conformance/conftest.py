"""The stage of a test: simulated in every run, real brokers with the marker `kafka`."""

from collections.abc import Iterator

import pytest

from tests.conformance.stages import EmbeddedStage, SimulatedStage, Stage


@pytest.fixture(params=["simulated", pytest.param("embedded", marks=pytest.mark.kafka)])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A cluster on which nothing is under way."""
    if request.param == "simulated":
        yield SimulatedStage()
        return
    embedded = EmbeddedStage(request.getfixturevalue("kafka_cluster"), request.getfixturevalue("admin"))
    try:
        yield embedded
    finally:
        embedded.tidy()
