"""A store that refuses, resets, cuts or delays: what is asked of it is done as a whole, or fails in one clear line.

Afterwards a recount shows that nothing is lost, doubled or half done.
"""

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streaming import tables
from streaming.contract import BROKER_LOAD
from streaming.control.lease import TABLE, TAKE_OVER_MARGIN_MS, Lease
from streaming.errors import LeaseExpired, LeaseLost, TableUnavailable
from streaming.pipeline.delta_tables import WindowTable, create_window_table
from streaming.settings import StorageSettings
from streaming.tables import object_stores
from streaming.tables.object_stores import use_object_store
from tests.object_store.test_tables_on_s3 import EXPIRED, START_MS
from tests.pipeline.test_delta_tables import NEVER, arrow, window
from tests.s3 import SOUND, Asked, Fault, Proxy

pytestmark = pytest.mark.long

BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
TIMEOUT_S = 1.0
USUAL_BOUNDS = dict(object_stores.BOUNDS)
FAULTS: Mapping[str, Fault] = {
    "busy": Fault(status=503, body=BUSY),
    "expired": Fault(status=400, body=EXPIRED),
    "reset": Fault(is_reset=True),
    "lost": Fault(is_lost=True),
    "cut": Fault(is_cut=True),
    "slow": Fault(delay_s=1.5 * TIMEOUT_S),
}
BATCHES = 3
WINDOW_BATCHES = 2
LEASE_STEPS = 6
IN_A_ROW = 4
"""Requests that meet a fault before some that don't: a write takes some ten."""
BROKERS = (1, 2, 3)
LEASE_MS = 15_000


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Fault:
    return FAULTS[request.param]


@pytest.fixture
def impatient(root: str, store: Proxy, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The store, asked once more at the most: what is tested is what comes after the last try."""
    monkeypatch.setitem(object_stores.BOUNDS, "max_retries", "1")
    if fault.delay_s:
        monkeypatch.setitem(object_stores.BOUNDS, "timeout", f"{TIMEOUT_S:.0f}s")
    use_object_store(StorageSettings(tables=root, s3_endpoint=store.url))
    return store


def be_sound(store: Proxy, root: str) -> None:
    """No request meets a fault any more, and each may take as long as it does on a busy machine."""
    store.fault = lambda _: SOUND
    object_stores.BOUNDS.update(USUAL_BOUNDS)
    use_object_store(StorageSettings(tables=root, s3_endpoint=store.url))


def now_and_then(fault: Fault) -> Callable[[Asked], Fault]:
    """The fault for some requests in a row, so that the second try meets it too; each time after a longer pause."""
    counted, starts = itertools.count(), list(itertools.accumulate(range(4, 200, 4)))

    def meet(asked: Asked) -> Fault:
        if fault.is_cut and asked.method != "GET":
            return SOUND  # there is nothing to cut
        number = next(counted)
        return fault if any(0 <= number - start < IN_A_ROW for start in starts) else SOUND

    return meet


def check_message(error: TableUnavailable, fault: Fault) -> None:
    message = str(error)
    assert "\n" not in message
    assert "table " in message
    if fault.status == 400:
        assert "ExpiredToken" in message
        assert message.endswith(object_stores.WHAT_TO_DO)


def rows_of_batch(number: int) -> list[dict[str, Any]]:
    same = {"kafka_cluster": f"c{number}", "event_time": tables.utc(START_MS), "intent": "drain", "by": "me"}
    return [{**same, "broker": broker} for broker in BROKERS]


def batches_read(root: str) -> list[int]:
    """Batches of which rows are there; each must be there as a whole, once."""
    brokers: dict[int, list[int]] = {}
    for row in tables.read(root, "broker_intent", columns=["kafka_cluster", "broker"]):
        brokers.setdefault(int(row["kafka_cluster"][1:]), []).append(row["broker"])
    assert all(sorted(found) == list(BROKERS) for found in brokers.values()), brokers
    return sorted(brokers)


def test_appended_rows_are_there_as_a_whole_once_or_not_at_all(root: str, impatient: Proxy, fault: Fault) -> None:
    def append(number: int) -> bool:
        rows = rows_of_batch(number)
        return tables.append(root, "broker_intent", rows, transaction_id=f"t{number}", transaction_version=0)

    append(0)
    acknowledged, unheard, errors = {0}, set[int](), 0
    impatient.fault = now_and_then(fault)
    for number in range(1, BATCHES):
        try:
            append(number)
            acknowledged.add(number)
        except TableUnavailable as error:
            check_message(error, fault)
            unheard.add(number)
        try:
            assert acknowledged <= set(batches_read(root)) <= acknowledged | unheard
        except TableUnavailable as error:
            check_message(error, fault)
            errors += 1
    assert unheard or errors
    be_sound(impatient, root)
    assert acknowledged <= set(batches_read(root)) <= acknowledged | unheard
    for number in unheard:
        append(number)
    assert batches_read(root) == list(range(BATCHES))


def test_windows_of_batches_that_are_repeated_are_those_of_a_recount(root: str, impatient: Proxy, fault: Fault) -> None:
    """A pipeline ends with the error, is started again and repeats the batch."""
    create_window_table(root, BROKER_LOAD)
    uri = tables.table_uri(root, BROKER_LOAD.name)
    table, errors = WindowTable(uri, BROKER_LOAD, rows_max=1_000), 0
    impatient.fault = now_and_then(fault)
    for number in range(WINDOW_BATCHES):
        batch = arrow(*(window(broker, number + 1) for broker in BROKERS))
        for _ in range(100):
            try:
                table.upsert(batch, ("q", number), NEVER)
                break
            except TableUnavailable as error:
                check_message(error, fault)
                errors += 1
                table = WindowTable(uri, BROKER_LOAD, rows_max=1_000)
        else:
            raise AssertionError(f"batch {number} is not written after 100 tries")
    assert errors
    be_sound(impatient, root)
    rows = tables.read(root, BROKER_LOAD.name, columns=["broker", "sample_count"])
    assert sorted((row["broker"], row["sample_count"]) for row in rows) == [
        (broker, WINDOW_BATCHES) for broker in BROKERS
    ]


def may_act(lease: Lease) -> bool:
    try:
        lease.check()
    except (LeaseLost, LeaseExpired, TableUnavailable):
        return False
    return True


def test_of_two_controls_one_at_the_most_holds_the_lease(root: str, impatient: Proxy, fault: Fault) -> None:
    now_ms, chance = 1_000_000, random.Random(3)
    leases = [Lease(root, "main", LEASE_MS, clock=lambda: now_ms) for _ in range(2)]
    assert leases[0].try_acquire()
    assert not leases[1].try_acquire()
    impatient.fault = now_and_then(fault)
    unheard = 0
    for _ in range(LEASE_STEPS):
        lease = chance.choice(leases)
        try:
            if lease.held:
                lease.renew()
            else:
                lease.try_acquire()
        except TableUnavailable as error:
            check_message(error, fault)
            unheard += 1
        except LeaseLost:
            assert not lease.held
        assert sum(map(may_act, leases)) <= 1
        now_ms += chance.choice((1_000, 5_000, LEASE_MS + TAKE_OVER_MARGIN_MS + 1))
    assert unheard
    be_sound(impatient, root)
    for lease in leases:
        lease.release()
    for lease in leases:  # each looks, and the row stands still from then on
        lease.try_acquire()
    now_ms += LEASE_MS + TAKE_OVER_MARGIN_MS + 1
    holders = [lease for lease in leases if not lease.held and lease.try_acquire()] or leases
    assert sum(map(may_act, leases)) == 1
    assert any(may_act(lease) for lease in holders)
    assert len(tables.read(root, TABLE)) == 1
