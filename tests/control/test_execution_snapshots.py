"""Movements whose partition is as before are not judged again, and stand where they would stand if they were."""

from contextlib import suppress
from typing import Any, cast

import pytest

from assignor_core.execution.progress import NO_SNAPSHOTS, progress_of
from assignor_core.execution.reconcile import Abort, Done, ElectLeaders, Submit, next_step
from streaming.control.cluster_snapshot import ExecutionSnapshots
from tests.control.test_cluster_snapshot import SECONDS_MAX, TICK_MS, random_story
from tests.simulated_cluster import SimulatedRefusal, SimulatedSilence


@pytest.mark.parametrize("faults_max", [0, 4])
def test_each_look_shows_what_a_look_at_all_movements_shows(faults_max: int) -> None:
    looked = skipped = 0
    for seed in range(1, 21):
        story = random_story(seed, faults_max=faults_max)
        plan, staged, record = story.plan, story.limits.staged, cast("Any", None)
        looks, reference = ExecutionSnapshots(story.client, staged=staged), NO_SNAPSHOTS
        for _ in range(SECONDS_MAX):
            with suppress(SimulatedSilence, SimulatedRefusal):
                live = looks.live(plan, whole=False, now_ms=story.cluster.now_ms)
                look = looks.judged(record, plan, live, story.cluster.now_ms, refused={}, not_elected={})
                reference = reference.after(plan, live, staged=staged)
                assert look.past == reference
                assert dict(look.progress) == progress_of(plan, live, staged=staged, past=reference)
                looked, skipped = looked + 1, skipped + len(looks._settled)
                step = next_step(plan, live, story.limits, worked_ms=0, past=look.past, progress=look.progress)
                match step:
                    case Submit(reassignments):
                        story.client.reassign(dict(reassignments))
                        looks.submitted(reassignments)
                        reference = reference.taken(reassignments)
                    case ElectLeaders(partitions):
                        story.client.elect_preferred(partitions)
                    case Done() | Abort():
                        break
                    case _:
                        pass
            story.cluster.advance(TICK_MS)
    assert looked > 100
    assert skipped > looked, "hardly a movement was settled"
