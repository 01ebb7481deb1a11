"""Some faults in every run of the tests; `make chaos` strikes with all of them, many times."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster
from tests.chaos.harness import BROKERS, run_once

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]


@pytest.fixture(scope="module")
def four_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("chaos"), BROKERS) as cluster:
        yield cluster


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("fault", "endings"),
    [
        ("control_killed_beside_a_stand_by", {"done"}),
        ("control_frozen_beside_a_stand_by", {"done"}),
        ("broker_killed", {"done", "aborted"}),
        ("foreign_reassignment", {"done", "aborted", "refused"}),
    ],
)
def test_after_any_fault_nothing_is_lost_or_left(
    four_brokers: EmbeddedCluster, tmp_path: Path, fault: str, endings: set[str]
) -> None:
    assert run_once(four_brokers, tmp_path / "run", fault, seed=7).split(":")[0] in endings
