"""The lease: one holder at a time, taken over from the dead at once and from the silent in time, never doubled."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.metadata import LiveTopic
from streaming.control.lease import LOOP_SILENT_MAX_MS, TABLE, TAKE_OVER_MARGIN_MS, Lease
from streaming.errors import AnotherCluster, LeaseExpired, LeaseLost, TableUnavailable
from streaming.runtime import clocks
from tests.control.clock import Clock
from tests.waiting import until

TTL_MS = 15_000


def lease(root: Path, clock: Clock) -> Lease:
    return Lease(str(root), "main", TTL_MS, clock)


def test_the_second_waits_until_the_first_gives_it_back(tmp_path: Path, clock: Clock) -> None:
    first, second = lease(tmp_path, clock), lease(tmp_path, clock)
    assert first.try_acquire()
    assert not second.try_acquire()
    first.check()
    with pytest.raises(LeaseLost):
        second.check()
    first.release()
    assert second.try_acquire()
    with pytest.raises(LeaseLost):
        first.check()


def test_a_silent_holder_is_taken_over_and_fenced(tmp_path: Path, clock: Clock) -> None:
    first, second = lease(tmp_path, clock), lease(tmp_path, clock)
    first.try_acquire()
    second.try_acquire()
    clock.now_ms += TTL_MS
    with pytest.raises(LeaseExpired):
        first.check()  # stops acting before the other may begin
    assert not second.try_acquire()
    clock.now_ms += TAKE_OVER_MARGIN_MS + 1
    assert second.try_acquire()
    with pytest.raises(LeaseLost):
        first.renew()
    with pytest.raises(LeaseLost):
        first.check()
    second.check()


def test_a_holder_that_renews_is_never_taken_over(tmp_path: Path, clock: Clock) -> None:
    first, second = lease(tmp_path, clock), lease(tmp_path, clock)
    first.try_acquire()
    for _ in range(10):
        clock.now_ms += TTL_MS - 1
        first.check()
        first.renew()
        assert not second.try_acquire()


def test_a_lease_that_ran_out_comes_back_if_nobody_took_it(tmp_path: Path, clock: Clock) -> None:
    first = lease(tmp_path, clock)
    first.try_acquire()
    clock.now_ms += 10 * TTL_MS
    with pytest.raises(LeaseExpired):
        first.check()
    first.renew()
    first.check()


def test_clusters_do_not_share_a_lease(tmp_path: Path, clock: Clock) -> None:
    other = Lease(str(tmp_path), "it's another", TTL_MS, clock)
    assert lease(tmp_path, clock).try_acquire()
    assert other.try_acquire()
    other.renew()
    assert not lease(tmp_path, clock).try_acquire()
    assert len(tables.read(str(tmp_path), TABLE)) == 2


@pytest.mark.long
def test_a_holder_that_was_killed_needs_no_waiting(tmp_path: Path, clock: Clock) -> None:
    code = f"from streaming.control.lease import Lease\nassert Lease({str(tmp_path)!r}, 'main', 600_000).try_acquire()"
    subprocess.run([sys.executable, "-c", code], check=True)  # ends without giving it back
    assert lease(tmp_path, clock).try_acquire()


def rewrite(root: Path, **changes: object) -> None:
    """The next row of the lease, as another process would write it."""
    row = {**tables.read(str(root), TABLE)[0], **changes}
    row["sequence"] += 1
    version = row["sequence"]
    assert tables.replace(
        str(root), TABLE, [row], kafka_cluster="main", transaction_id="lease:main", transaction_version=version
    )


def test_when_a_holder_started_is_told_by_a_clock_that_nobody_sets(tmp_path: Path, clock: Clock) -> None:
    lease(tmp_path, clock).try_acquire()
    row = tables.read(str(tmp_path), TABLE)[0]
    # By the clock on the wall a live holder would look like another process after each step of it.
    assert 0 < row["owner_started_ms"] <= clocks.boot_ms()
    assert not lease(tmp_path, clock).try_acquire()


def test_another_process_with_the_id_of_the_holder_is_not_the_holder(tmp_path: Path, clock: Clock) -> None:
    lease(tmp_path, clock).try_acquire()
    started_ms = tables.read(str(tmp_path), TABLE)[0]["owner_started_ms"]
    rewrite(tmp_path, owner_started_ms=started_ms - 10)
    assert lease(tmp_path, clock).try_acquire()


def test_a_holder_of_an_earlier_version_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    lease(tmp_path, clock).try_acquire()
    namespace = tables.read(str(tmp_path), TABLE)[0]["owner_namespace"].rpartition("/")[0]
    rewrite(tmp_path, owner_namespace=namespace, owner_started_ms=time.time_ns() // 1_000_000)
    second = lease(tmp_path, clock)
    assert not second.try_acquire()
    clock.now_ms += TTL_MS + TAKE_OVER_MARGIN_MS + 1
    assert second.try_acquire()


RIVALS = """
import sys
from multiprocessing import get_context
from streaming.control.lease import Lease
from streaming.errors import TableUnavailable

def rival():
    together.wait(180)
    try:
        answers.put(Lease(sys.argv[1], "main", 600_000).try_acquire())
    except TableUnavailable:
        answers.put(False)
    together.wait(180)  # stays alive until all have tried: the lease of the dead is free

forked = get_context("fork")
together, answers = forked.Barrier(4), forked.SimpleQueue()
rivals = [forked.Process(target=rival, daemon=True) for _ in range(4)]
for process in rivals:
    process.start()
for process in rivals:
    process.join(180)
print(sorted(answers.get() for _ in rivals if not answers.empty()))
"""


@pytest.mark.long
def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    tables.create_table(str(tmp_path), TABLE)
    command = [sys.executable, "-c", RIVALS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "[False, False, False, True]\n", done.stderr


def test_a_folder_that_cannot_be_reached_costs_the_lease_only_in_time(tmp_path: Path, clock: Clock) -> None:
    first = lease(tmp_path, clock)
    first.try_acquire()
    moved = tmp_path.with_name("moved")
    tmp_path.rename(moved)
    tmp_path.write_text("in the place of the folder")
    with pytest.raises(TableUnavailable):
        first.renew()
    with pytest.raises(TableUnavailable):
        first.check()  # whether the row is still ours can't be read
    tmp_path.unlink()
    moved.rename(tmp_path)
    first.renew()
    first.check()


@pytest.mark.parametrize("in_its_place", ["nothing", "an empty folder"])
def test_tables_that_have_gone_are_not_begun_anew(tmp_path: Path, clock: Clock, in_its_place: str) -> None:
    root, away = tmp_path / "tables", tmp_path / "away"
    first, second = lease(root, clock), lease(root, clock)
    assert first.try_acquire()  # at a first start the folder is made
    assert not second.try_acquire()
    root.rename(away)
    if in_its_place == "an empty folder":
        root.mkdir()
    clock.now_ms += TTL_MS + TAKE_OVER_MARGIN_MS + 1
    # Were it made again here, another machine, where it is still mounted, would take over the real one.
    with pytest.raises(TableUnavailable, match="is the folder mounted"):
        first.renew()
    with pytest.raises(TableUnavailable, match="is the folder mounted"):
        second.try_acquire()
    with pytest.raises(LeaseExpired):
        first.check()
    assert not root.exists() or not list(root.iterdir())
    if root.exists():
        root.rmdir()
    away.rename(root)
    first.renew()
    first.check()
    root.rename(away)
    first.release()
    assert not root.exists()


@contextmanager
def nobody_may_enter(folder: Path) -> Iterator[None]:
    """For a while this process can't enter `folder`; root, whom nothing stops, becomes somebody else."""
    folder.chmod(0o000)
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)
        folder.chmod(0o700)


def test_it_is_renewed_again_once_its_folder_can_be_reached_again(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    first = Lease(str(parent / "tables"), "main", 2_000)

    def acts() -> bool:
        try:
            first.check()
        except (LeaseExpired, TableUnavailable):
            return False
        return True

    with first.kept():
        assert first.try_acquire()
        with nobody_may_enter(parent):
            with pytest.raises(TableUnavailable, match="can't be reached: Permission denied"):
                first.renew()
            until("it acts no more", lambda: not acts(), pause_s=0.02)
        until("it acts again", acts, pause_s=0.02)


def test_a_holder_whose_clock_stood_still_reads_that_another_has_taken_over(tmp_path: Path, clock: Clock) -> None:
    """A virtual machine that is paused: its own clock does not show how long it was away."""
    paused_clock = Clock()
    first, second = lease(tmp_path, paused_clock), lease(tmp_path, clock)
    assert first.try_acquire()
    assert not second.try_acquire()
    clock.now_ms += TTL_MS + TAKE_OVER_MARGIN_MS + 1
    assert second.try_acquire()
    with pytest.raises(LeaseLost, match="another process has taken over"):
        first.check()
    assert not first.held
    second.check()


def test_a_slow_write_does_not_lengthen_the_lease(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts from before the write: others have seen the row stand still since then."""
    first, replaced = lease(tmp_path, clock), tables.replace

    def slowly(*arguments: Any, **named: Any) -> bool:
        clock.now_ms += TTL_MS - 1
        return replaced(*arguments, **named)

    for write in (first.try_acquire, first.renew):
        with monkeypatch.context() as slow:
            slow.setattr(tables, "replace", slowly)
            write()
        first.check()
        clock.now_ms += 1
        with pytest.raises(LeaseExpired):
            first.check()


def test_a_lease_that_runs_out_while_its_row_is_read_sends_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, rows = lease(tmp_path, clock), tables.TableReader.rows
    assert first.try_acquire()

    def slowly(*arguments: Any, **named: Any) -> Any:
        clock.now_ms += TTL_MS
        return rows(*arguments, **named)

    monkeypatch.setattr(tables.TableReader, "rows", slowly)
    with pytest.raises(LeaseExpired):
        first.check()


def test_a_holder_whose_main_loop_hangs_loses_the_lease(tmp_path: Path, clock: Clock) -> None:
    ttl_ms = LOOP_SILENT_MAX_MS // 4
    first, second = (Lease(str(tmp_path), "main", ttl_ms, clock) for _ in range(2))
    assert first.try_acquire()
    for _ in range(4):
        clock.now_ms += ttl_ms
        first.renew()  # a long call, of which others wait for the end
        assert not second.try_acquire()
    clock.now_ms += ttl_ms
    with pytest.raises(LeaseExpired, match="the main loop has made no progress for 2250 s"):
        first.renew()
    clock.now_ms += ttl_ms + TAKE_OVER_MARGIN_MS + 1
    assert second.try_acquire()


def test_a_main_loop_that_goes_on_in_time_keeps_the_lease(tmp_path: Path, clock: Clock) -> None:
    first = lease(tmp_path, clock)
    assert first.try_acquire()
    clock.now_ms += LOOP_SILENT_MAX_MS + 1
    with pytest.raises(LeaseExpired):
        first.renew()
    first.progress()
    first.renew()
    first.check()


def of_kafka(root: Path, clock: Clock, kafka_cluster_id: str, *, takes_over: bool = False) -> Lease:
    return Lease(str(root), "main", TTL_MS, clock, kafka_cluster_id=kafka_cluster_id, takes_over_cluster=takes_over)


def test_a_lease_on_another_kafka_cluster_is_refused(tmp_path: Path, clock: Clock) -> None:
    first = of_kafka(tmp_path, clock, "a")
    assert first.try_acquire()
    first.release()
    with pytest.raises(AnotherCluster, match=r"the brokers are Kafka cluster b, .* is for Kafka cluster a"):
        of_kafka(tmp_path, clock, "b").try_acquire()
    assert of_kafka(tmp_path, clock, "a").try_acquire()


def test_a_lease_is_taken_over_for_another_kafka_cluster_where_a_person_wants_it(tmp_path: Path, clock: Clock) -> None:
    first = of_kafka(tmp_path, clock, "a")
    assert first.try_acquire()
    first.release()
    assert of_kafka(tmp_path, clock, "b", takes_over=True).try_acquire()
    assert tables.read(str(tmp_path), TABLE)[0]["kafka_cluster_id"] == "b"


def test_a_row_of_an_earlier_version_is_taken_for_the_cluster_that_answers(tmp_path: Path, clock: Clock) -> None:
    first = lease(tmp_path, clock)
    assert first.try_acquire()
    first.release()
    rewrite(tmp_path, lease_id=None, kafka_cluster_id=None)
    second = of_kafka(tmp_path, clock, "a")
    assert second.try_acquire()
    assert second.lease_id
    assert tables.read(str(tmp_path), TABLE)[0]["kafka_cluster_id"] == "a"


def test_the_id_of_a_lease_stays_and_two_folders_have_two(tmp_path: Path, clock: Clock) -> None:
    first, other = lease(tmp_path / "one", clock), lease(tmp_path / "two", clock)
    assert first.try_acquire()
    assert other.try_acquire()
    assert first.lease_id != other.lease_id
    first.release()
    second = lease(tmp_path / "one", clock)
    assert second.try_acquire()
    assert second.lease_id == first.lease_id


def test_its_files_are_kept_few(tmp_path: Path, clock: Clock) -> None:
    first = lease(tmp_path, clock)
    first.try_acquire()
    for _ in range(5):
        first.renew()
    assert len(tables.open_table(str(tmp_path), TABLE).file_uris()) == 1  # type: ignore[union-attr]
    tables.tidy(str(tmp_path), TABLE)
    first.renew()


def test_no_change_of_the_cluster_is_sent_without_it(tmp_path: Path, clock: Clock) -> None:
    class Reading:
        """An admin client that may be asked and must not be told."""

        def live_topics(self, _names: object) -> list[LiveTopic]:
            return [LiveTopic("t", None, 0, {})]

        def describe_configs(self, _resources: object) -> dict[str, object]:
            return {}

        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} was called")

    cluster = Cluster(Reading(), lease(tmp_path, clock).check)
    with pytest.raises(LeaseLost):
        cluster.reassign({("t", 0): (1,)})
    with pytest.raises(LeaseLost):
        cluster.elect_preferred([("t", 0)])
    with pytest.raises(LeaseLost):
        cluster.set_throttled_replicas({"t": frozenset({(0, 1)})}, {})


def take_in_time(lease: Lease, clock: Clock) -> bool:
    """Whether it gets the lease, after its row was seen to stand still for long enough."""
    assert not lease.try_acquire()  # a holder may live whose newest row is missing
    clock.now_ms += TTL_MS + TAKE_OVER_MARGIN_MS + 1
    return lease.try_acquire()


def test_a_lease_whose_row_was_deleted_is_taken_in_time(tmp_path: Path, clock: Clock) -> None:
    first = lease(tmp_path, clock)
    assert first.try_acquire()
    first.renew()
    first.release()
    assert tables.delete(str(tmp_path), TABLE, tables.of_cluster("main")) == 1
    assert take_in_time(lease(tmp_path, clock), clock)


@pytest.mark.long
@pytest.mark.parametrize("released", [False, True])
def test_a_lease_whose_table_was_restored_is_taken_in_time(tmp_path: Path, clock: Clock, released: bool) -> None:
    first = lease(tmp_path, clock)
    assert first.try_acquire()
    if released:
        first.release()
        assert first.try_acquire()
    before = DeltaTable(tmp_path / TABLE).version() - released
    for _ in range(3):
        first.renew()
    first.release()
    DeltaTable(tmp_path / TABLE).restore(before)
    second, third = lease(tmp_path, clock), lease(tmp_path, clock)
    assert not third.try_acquire()
    assert take_in_time(second, clock)
    assert not third.try_acquire()  # it has seen the row stand still as long, and another was quicker
    second.renew()
    second.check()


def test_a_row_that_was_restored_does_not_give_back_the_lease_of_a_holder_that_lives(
    tmp_path: Path, clock: Clock
) -> None:
    first = lease(tmp_path, clock)
    assert first.try_acquire()
    first.release()
    given_back = DeltaTable(tmp_path / TABLE).version()
    assert first.try_acquire()
    DeltaTable(tmp_path / TABLE).restore(given_back)
    second = lease(tmp_path, clock)
    for _ in range(5):
        assert not second.try_acquire()
        clock.now_ms += TTL_MS // 3
        first.renew()
        first.check()


@pytest.mark.long
@pytest.mark.parametrize("moment", ["_row", "_write"])
@pytest.mark.parametrize("what", ["deleted", "restored", "given back"])
def test_of_two_that_look_at_the_same_time_one_gets_it(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, what: str, moment: str
) -> None:
    """The first takes it right after the second has read the row, or right before the second writes its own."""
    before = lease(tmp_path, clock)
    assert before.try_acquire()
    version = DeltaTable(tmp_path / TABLE).version()
    before.renew()
    before.release()
    if what == "deleted":
        tables.delete(str(tmp_path), TABLE, tables.of_cluster("main"))
    elif what == "restored":
        DeltaTable(tmp_path / TABLE).restore(version)
    first, second = lease(tmp_path, clock), lease(tmp_path, clock)
    if what != "given back":
        assert not first.try_acquire()
        assert not second.try_acquire()
        clock.now_ms += TTL_MS + TAKE_OVER_MARGIN_MS + 1
    call, got = getattr(Lease, moment), []

    def first_is_quicker(own: Lease, *arguments: Any, **given: Any) -> Any:
        answer = call(own, *arguments, **given) if moment == "_row" else None
        if own is second:
            got.append(first.try_acquire())
        return answer if moment == "_row" else call(own, *arguments, **given)

    monkeypatch.setattr(Lease, moment, first_is_quicker)
    got.append(second.try_acquire())
    assert got == [True, False]
    first.check()
