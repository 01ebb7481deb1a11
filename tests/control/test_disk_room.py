"""Room on disks right before each submit, on a simulated cluster: what fits goes, what doesn't waits or is given up."""

from typing import Any

import pytest

from assignor_core.execution.events import Event
from assignor_core.execution.progress import Progress
from assignor_core.execution.reconcile import Limits, Submit, next_step
from assignor_core.execution.room import PATIENCE_MS
from assignor_core.plan import Movement, Plan
from streaming.control.disk_room import DiskAnswers, DiskRoom
from streaming.control.pressure import LagPressure
from streaming.settings import Settings
from tests.control.carried import MB, TICK_MS, Carried
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

DISK = 1_000 * MB
RESERVE = DISK // 10
SIZE = 50 * MB
CLOCK_SET_BACK_MS = (0, 3_600_000)
SELDOM_MS = 10_000
"""Between ticks while nothing is copied."""


class OnDisk(Carried):
    """An execution that moves partitions of 50 MB, one replica each, from broker 1 to broker 2."""

    def __init__(self, tables: str, *, room: int, partitions: int = 2, log_dirs: int = 1, **control: Any) -> None:
        cluster = SimulatedCluster.of(dict.fromkeys((1, 2, 3)), log_dir_bytes=(DISK,) * log_dirs)
        cluster.create_topic("t", dict.fromkeys(range(partitions), (1,)), size_bytes=SIZE)
        self.disk = cluster.contents.brokers[2].log_dirs[0]
        self.disk.other_bytes = DISK - RESERVE - room
        settings = Settings.model_validate({"storage": {"tables": tables}, "control": control})
        movements = tuple(Movement("t", number, (1,), (2,), float(SIZE)) for number in range(partitions))
        super().__init__(settings, cluster, Plan("c", movements, SKEW, SKEW))
        assert self.begin()

    def pass_time(self, duration_ms: int, *, keeps_reserve: bool = True, step_ms: int = TICK_MS) -> bool:
        """Ticks so long; True once it has ended. The reserve of the disk is never touched, unless others take of it."""
        self.step_ms = step_ms
        for _ in range(duration_ms // step_ms):
            if self.tick():
                return True
            shown = SimulatedClient(self.cluster).log_dirs([2])[2][0]
            least = min(RESERVE, DISK - self.disk.other_bytes)
            assert not keeps_reserve or shown.usable_bytes is None or shown.usable_bytes >= least
        return False

    def details(self) -> list[str]:
        """What its events say."""
        return [row.detail for row in self.kept.events]

    @property
    def on_broker_2(self) -> list[int]:
        return [key[1] for key, row in sorted(self.client.describe().partitions.items()) if 2 in row.replicas]


@pytest.mark.long
def test_what_fits_is_submitted_and_the_rest_waits_and_is_given_up_by_name(tables_in_memory: str) -> None:
    carried = OnDisk(tables_in_memory, room=120 * MB, partitions=3)
    assert not carried.pass_time(60_000)
    assert carried.on_broker_2 == [0, 1]
    lack = "needs 50,000,000 bytes on broker 2, whose disks have room for 20,000,000"
    assert carried.last_detail.startswith(f"1 movement waits for room on disks, first t-2: {lack}")
    assert carried.pass_time(PATIENCE_MS + SELDOM_MS, step_ms=SELDOM_MS)
    assert carried.record.execution.last_event is Event.DONE
    assert carried.last_detail == f"2 movements made, 1 skipped: t-2 ({lack})"
    assert carried.on_broker_2 == [0, 1]


@pytest.mark.parametrize("set_back_ms", CLOCK_SET_BACK_MS)
def test_what_waits_goes_on_once_there_is_room(tables_in_memory: str, set_back_ms: int) -> None:
    carried = OnDisk(tables_in_memory, room=10 * MB)
    assert not carried.pass_time(60_000)
    assert carried.on_broker_2 == []
    carried.set_back_ms = set_back_ms
    carried.disk.other_bytes -= 100 * MB  # retention has deleted something
    assert carried.pass_time(60_000)
    assert (carried.last_detail, carried.on_broker_2) == ("every movement has been made", [0, 1])


@pytest.mark.long
def test_time_in_which_it_is_held_back_is_no_time_without_room(
    tables_in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = OnDisk(tables_in_memory, room=20 * MB, partitions=1)
    assert not carried.pass_time(12_000)
    with monkeypatch.context() as held_back:
        held_back.setattr(LagPressure, "reason", lambda *_, **__: "group billing falls behind")
        assert not carried.pass_time(PATIENCE_MS + 300_000, step_ms=SELDOM_MS)
    assert not carried.pass_time(60_000)  # nobody has looked for room meanwhile
    carried.disk.other_bytes -= 100 * MB
    assert carried.pass_time(60_000)
    assert (carried.last_detail, carried.on_broker_2) == ("every movement has been made", [0])


def test_bytes_that_are_still_to_arrive_count(tables_in_memory: str) -> None:
    """A throttle makes the first copy slow: while it has hardly begun, the disk looks as free as before."""
    carried = OnDisk(tables_in_memory, room=80 * MB, movements_in_flight_max=1, throttle_bytes_per_sec=MB)
    assert not carried.pass_time(20_000)
    in_flight = carried.client.describe()
    assert in_flight.reassigning() == {("t", 0)}
    # Another process with higher caps: it knows of the copy only by looking.
    own = carried.settings.model_dump() | {"control": {"throttle_bytes_per_sec": MB}}
    carried.restart(Settings.model_validate(own))
    assert not carried.pass_time(15_000)
    assert carried.client.describe().reassigning() == {("t", 0)}
    assert "waits for room on disks, first t-1" in carried.last_detail


@pytest.mark.parametrize("fault", ["full", "cordoned", "offline"])
def test_the_log_dirs_of_a_broker_are_judged_one_by_one(tables_in_memory: str, fault: str) -> None:
    """Kafka may choose the one that is full; it never chooses one that is offline or cordoned."""
    carried = OnDisk(tables_in_memory, room=10 * MB, log_dirs=2)
    if fault == "cordoned":
        carried.disk.cordoned = True
    if fault == "offline":
        carried.cluster.fail_log_dir(2, 0)
    assert carried.pass_time(60_000) == (fault != "full")
    assert carried.on_broker_2 == ([] if fault == "full" else [0, 1])


def test_a_broker_that_does_not_show_its_disks_receives_only_where_they_have_a_capacity(tables_in_memory: str) -> None:
    carried = OnDisk(tables_in_memory, room=500 * MB)
    shown = carried.client.log_dirs
    carried.client.log_dirs = lambda brokers=None, partitions=None: {  # type: ignore[method-assign]
        broker: rows if broker != 2 else () for broker, rows in shown(brokers, partitions).items()
    }
    assert not carried.pass_time(30_000)
    assert carried.last_detail.endswith("first t-0: broker 2 does not show what is free on its disks")
    planner = {"capacities": {2: {"disk_bytes": DISK}}}
    by_hand = Settings.model_validate({"storage": carried.settings.model_dump()["storage"], "planner": planner})
    carried.restart(by_hand)
    assert carried.pass_time(60_000)
    assert carried.on_broker_2 == [0, 1]


def test_a_frozen_broker_that_the_plan_does_not_need_holds_nothing_up(tables_in_memory: str) -> None:
    carried = OnDisk(tables_in_memory, room=500 * MB, throttle_bytes_per_sec=20 * MB)
    carried.cluster.freeze_broker(3)
    assert carried.pass_time(8_000), "its session lasts longer"
    assert 3 in carried.client.describe().broker_racks
    assert (carried.last_detail, carried.on_broker_2) == ("every movement has been made", [0, 1])


@pytest.mark.parametrize("frozen", [1, 2], ids=["leader", "receiver"])
def test_nothing_is_submitted_to_or_from_a_broker_that_does_not_answer_and_the_rest_goes_on(
    tables_in_memory: str, frozen: int
) -> None:
    """A capacity by hand is no answer either."""
    carried = OnDisk(tables_in_memory, room=500 * MB)
    other = (3, 1) if frozen == 2 else (3, 2)
    carried.cluster.create_topic("u", {0: (other[0],)}, size_bytes=SIZE)
    movements = (*carried.plan.movements, Movement("u", 0, other[:1], other[1:], float(SIZE)))
    plan = Plan("c", movements, SKEW, SKEW)
    by_hand = {"capacities": {2: {"disk_bytes": DISK}}}
    settings = Settings.model_validate({**carried.settings.model_dump(), "planner": by_hand})
    room, live = DiskRoom(DiskAnswers(carried.client), settings.planner), carried.client.describe()
    progress = dict.fromkeys((row.key for row in movements), Progress.PENDING)
    carried.cluster.freeze_broker(frozen)
    found = room.read(plan, live, progress, Limits(), NOON_MS)
    step = next_step(plan, live, Limits(), worked_ms=0, room=found)
    assert step == Submit({("u", 0): other[1:]})
    room.wait(NOON_MS)
    assert f"broker {frozen} did not answer a request for its log dirs" in str(room.held_back(NOON_MS))


def test_a_plan_of_which_nothing_fits_ends_as_aborted(tables_in_memory: str) -> None:
    carried = OnDisk(tables_in_memory, room=0)
    assert carried.pass_time(PATIENCE_MS + 60_000, step_ms=SELDOM_MS)
    assert carried.record.execution.last_event is Event.ABORTED
    assert carried.last_detail.startswith("0 movements made, 2 skipped: t-0 (needs 50,000,000 bytes on broker 2, ")
    assert carried.on_broker_2 == []


@pytest.mark.parametrize("set_back_ms", CLOCK_SET_BACK_MS)
def test_a_copy_is_cancelled_where_others_fill_its_log_dir_and_begun_again_once_there_is_room(
    tables_in_memory: str, set_back_ms: int
) -> None:
    carried = OnDisk(
        tables_in_memory, room=150 * MB, partitions=1, throttle_bytes_per_sec=MB, throttle_min_bytes_per_sec=MB
    )
    assert not carried.pass_time(20_000)
    assert carried.on_broker_2 == [0]
    carried.set_back_ms = set_back_ms
    before = carried.disk.other_bytes
    carried.disk.other_bytes = DISK - 40 * MB
    assert not carried.pass_time(60_000, keeps_reserve=False)
    assert not carried.disk.offline
    assert carried.on_broker_2 == []
    assert "1 move cancelled, as others fill their log dir: t-0" in carried.details()
    carried.disk.other_bytes = before
    assert carried.pass_time(600_000)
    assert carried.on_broker_2 == [0]
    assert not carried.client.throttle_rates()


def test_after_the_clock_was_set_back_progress_is_noted_as_often_as_before(tables_in_memory: str) -> None:
    carried = OnDisk(tables_in_memory, room=150 * MB, partitions=1, throttle_bytes_per_sec=MB)
    assert not carried.pass_time(20_000)
    carried.set_back_ms, noted = 3_600_000, len(carried.details())
    assert not carried.pass_time(20_000)
    assert len(carried.details()) - noted == 2


@pytest.mark.long
def test_a_copy_that_others_leave_no_room_is_named_at_the_end_without_a_throttle(tables_in_memory: str) -> None:
    carried = OnDisk(tables_in_memory, room=150 * MB, throttle_bytes_per_sec=MB, throttle_min_bytes_per_sec=MB)
    assert not carried.pass_time(20_000)
    # Of two that lack some 40 MB each one still fits.
    carried.disk.other_bytes = DISK - 75 * MB
    assert carried.pass_time(PATIENCE_MS + 120_000, keeps_reserve=False)
    assert not carried.disk.offline
    assert len(carried.on_broker_2) == 1
    assert "1 movement made, 1 skipped: t-" in carried.details()[-1]
    assert not carried.client.throttle_rates()
