"""The lease on S3: never two holders, whatever becomes of the store's answers."""

import threading

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


class Contenders:
    """Controls that take the lease, renew it and give it back, until together they have made so many commits."""

    def __init__(self, root: str, count: int, commits: int) -> None:
        self._root = root
        self._commits = commits
        self._inside: set[int] = set()
        self.meetings: list[set[int]] = []
        """Holders at one moment, where there were two."""
        self.written = 0
        self.unheard = 0
        """Writes of which it is not known whether they were carried out."""
        self.failures: list[BaseException] = []
        threads = [threading.Thread(target=self._guarded, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _guarded(self, number: int) -> None:
        try:
            self._contend(number)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failures.append(error)

    def _contend(self, number: int) -> None:
        lease = Lease(self._root, "main", TTL_MS)
        while self.written < self._commits and not self.failures:
            try:
                if not lease.try_acquire():
                    continue
            except TableUnavailable:
                self.unheard += 1  # somebody else was first, or the answer was lost
                continue
            self._inside.add(number)
            if len(self._inside) > 1:
                self.meetings.append(set(self._inside))
            self._renew(lease)
            lease.check()
            self._inside.discard(number)
            lease.release()
            self.written += 3

    def _renew(self, lease: Lease) -> None:
        """A holder that nobody has followed is never told that it has lost the lease."""
        while True:
            try:
                lease.renew()
            except TableUnavailable:
                self.unheard += 1
            else:
                return


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
    contenders = Contenders(root, 2, COMMITS // 2)
    assert not contenders.failures
    assert not contenders.meetings
    (row,) = tables.read(root, TABLE)
    assert row["sequence"] + 1 >= contenders.written
    assert store.faults


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
