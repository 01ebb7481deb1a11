"""Some faults in every run of the tests; `make chaos` strikes with all of them, many times."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assignor_core.live import LivePartition
from streaming.cluster.admin import Cluster
from streaming.demo.brokers import EmbeddedCluster
from tests.chaos.faults import Expectation
from tests.chaos.harness import BROKERS, Run, run_once
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.long, pytest.mark.story]


@pytest.fixture(scope="module")
def four_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("chaos"), BROKERS) as cluster:
        yield cluster


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
    ending = run_once(four_brokers, tmp_path / "run", fault, seed=7, once_started=True)
    assert ending.split(":")[0] in endings, ending


def test_staged_moves_go_on_after_a_kill_and_are_never_below_or_far_above_the_replication_factor(
    four_brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    goal = {0: (3, 4), 2: (4, 3)}  # both from (1, 2)
    settings = {"staged_moves": True, "throttle_bytes_per_sec": 400_000}
    run = Run(four_brokers, tmp_path, random.Random(7), "chaos-staged", goal, settings)
    seen: list[LivePartition] = []
    killed = False
    with run.begun() as record:
        cluster = Cluster(run.admin)
        deadline = time.monotonic() + DEADLINE_S
        while record.execution.last_event != "done":
            assert time.monotonic() < deadline, record.execution.last
            seen.append(cluster.describe().partitions[(run.topic, 0)])
            # The first step is made, the second is under way: the partition is at neither of the plan's ends.
            if not killed and seen[-1].reassigning and seen[-1].target_replicas == (3, 4):
                killed = True
                run.control.kill()
                run.control.wait()
                run.control = run.start_control()
            run.read(record)
            time.sleep(0.1)
        run.check(record, Expectation())
    assert killed
    assert all(2 <= len(look.replicas) <= 3 and len(look.isr) >= 2 for look in seen)
    settled = [look.replicas for look in seen if not look.reassigning and len(look.replicas) == 2]
    # Broker 4 is in the rack of broker 1, so that broker 3 has to come first.
    assert list(dict.fromkeys(settled)) in ([(1, 2), (1, 3), (3, 4)], [(1, 2), (3, 4)], [(1, 2), (1, 3)])
    steps = [(look.adding_replicas, look.removing_replicas) for look in seen if look.reassigning]
    by_turns = [((3,), (2,)), ((4,), (1,))]
    # A step may be over between two looks.
    assert list(dict.fromkeys(steps)) in (by_turns, by_turns[1:])
