"""The lease on S3: never two holders, whatever becomes of the store's answers."""

import pytest

from streaming import tables
from streaming.control.lease import TABLE, TAKE_OVER_MARGIN_MS, Lease
from streaming.errors import LeaseExpired, LeaseLost, TableUnavailable
from streaming.settings import StorageSettings
from streaming.tables.object_stores import use_object_store
from tests.on_s3.contended import (
    Written,
    append_rows,
    contend,
    problems_of_appends,
    problems_of_lease,
    take_lease_in_turns,
)
from tests.s3 import SOUND, Proxy, commit_lost

pytestmark = pytest.mark.long

COMMITS = 20
PROCESSES = 3
TTL_MS = 600_000
"""Longer than any test: nobody takes over a lease that is held."""


def test_of_contending_processes_one_wins_each_version_and_each_turn(root: str, s3_url: str) -> None:
    """Through no proxy, as between machines. `python -m tests.on_s3 contended` makes 1,000 commits."""
    use_object_store(StorageSettings(tables=root, s3_endpoint=s3_url))
    written = contend(append_rows, root, s3_url, processes=PROCESSES, commits=COMMITS // 2)
    assert problems_of_appends(root, written, lost_answers=False) == []
    written = contend(take_lease_in_turns, root, s3_url, processes=PROCESSES, commits=COMMITS // 2)
    assert problems_of_lease(root, written, lost_answers=False) == []


@pytest.mark.parametrize(
    ("spans", "numbers", "problem"),
    [
        ([(0.0, 1.0)], [0, 1, 1, 2], "more than one process has written [1]"),
        ([(0.0, 1.0)], [0, 2], "2 writes were reported, the row has number 2"),
        ([(0.0, 2.0), (1.5, 3.0)], [0, 1, 2], "1 times a second process held the lease"),
    ],
)
def test_two_winners_are_noticed(
    tables_in_memory: str, spans: list[tuple[float, float]], numbers: list[int], problem: str
) -> None:
    lease = Lease(tables_in_memory, "main", TTL_MS)
    assert lease.try_acquire()
    lease.renew()
    lease.renew()
    assert problems_of_lease(tables_in_memory, [Written(numbers, spans)], lost_answers=False) == [problem]


def test_who_gives_the_lease_back_holds_it_no_more_though_the_answer_is_lost(root: str, store: Proxy) -> None:
    lease = Lease(root, "main", TTL_MS)
    assert lease.try_acquire()
    store.fault = commit_lost(each=1)
    lease.release()
    assert store.faults
    assert not lease.held


def test_answers_that_are_lost_make_no_second_holder(root: str, store: Proxy) -> None:
    store.fault = commit_lost(each=9)
    written = contend(take_lease_in_turns, root, store.url, processes=2, commits=COMMITS)
    assert store.faults
    store.fault = lambda _: SOUND
    assert problems_of_lease(root, written, lost_answers=True) == []
    (row,) = tables.read(root, TABLE)
    assert row["sequence"] + 1 >= sum(len(one.numbers) for one in written)


def test_a_renewal_whose_answer_was_lost_is_not_taken_for_another_holder(root: str, store: Proxy) -> None:
    now_ms = 1_000_000
    lease = Lease(root, "main", 15_000, clock=lambda: now_ms)
    assert lease.try_acquire()
    store.fault = commit_lost(each=1)
    with pytest.raises(TableUnavailable):
        lease.renew()
    store.fault = lambda _: SOUND
    lease.check()
    now_ms += 14_000
    lease.renew()
    now_ms += 14_000
    lease.check()  # counted from the renewal that was heard of


def test_a_renewal_that_was_not_heard_of_does_not_prolong_it(root: str, store: Proxy) -> None:
    now_ms = 1_000_000
    lease = Lease(root, "main", 15_000, clock=lambda: now_ms)
    assert lease.try_acquire()
    now_ms += 10_000
    store.fault = commit_lost(each=1)
    with pytest.raises(TableUnavailable):
        lease.renew()
    store.fault = lambda _: SOUND
    now_ms += 10_000
    with pytest.raises(LeaseExpired):
        lease.check()


def test_a_lease_that_was_taken_unheard_is_taken_at_the_next_try(root: str, store: Proxy) -> None:
    other = Lease(root, "main", 15_000, clock=lambda: 1_000_000)
    assert other.try_acquire()
    other.release()
    lease = Lease(root, "main", 15_000, clock=lambda: 1_000_000)
    store.fault = commit_lost(each=1)
    with pytest.raises(TableUnavailable):
        lease.try_acquire()
    store.fault = lambda _: SOUND
    assert not lease.held
    assert not other.try_acquire()
    assert lease.try_acquire()
    lease.check()


def test_a_holder_that_another_has_followed_loses_it(root: str, store: Proxy) -> None:
    now_ms = 1_000_000
    first, second = (Lease(root, "main", 15_000, clock=lambda: now_ms) for _ in range(2))
    assert first.try_acquire()
    assert not second.try_acquire()
    now_ms += 15_001 + TAKE_OVER_MARGIN_MS
    assert second.try_acquire()
    with pytest.raises(LeaseLost):
        first.renew()
    with pytest.raises(LeaseLost):
        first.check()
    second.check()
