"""Rolls in the tables: what a process that comes later reads, and that two processes never write one event each."""

import pytest

from assignor_core.roll import Roll, RollEvent, RollPolicy
from streaming import tables
from streaming.contract import ROLL
from streaming.control.rolls import RollJournal, roll_lease
from streaming.errors import LeaseLost
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.rolls import last_event, open_roll, read_roll, row_of_roll

NAME = "test"


@pytest.fixture
def journal(tables_in_memory: str) -> RollJournal:
    return RollJournal(tables_in_memory, NAME)


def read(journal: RollJournal) -> Roll | None:
    return open_roll(TableReader(journal.root), NAME)


def test_a_roll_is_read_back_as_it_was_written(journal: RollJournal) -> None:
    assert read(journal) is None
    roll = journal.begin((2, 1), "a person", RollPolicy(margin=1, accepts_single=True), now_ms=1)
    assert read(journal) == roll
    for at_ms, event in enumerate((RollEvent.DEMOTING, RollEvent.RESTARTING, RollEvent.AWAY, RollEvent.UNDEMOTING), 2):
        roll = journal.write(roll, event, f"it is {event}", now_ms=at_ms)
        assert read(journal) == roll
    assert last_event(TableReader(journal.root), roll.roll_id) == (tables.utc(5), "it is undemoting")
    roll = journal.write(roll, RollEvent.RESTARTED, "", now_ms=6)
    assert (roll.restarted, roll.next_broker) == ((2,), 1)
    assert open_roll(TableReader(journal.root), "another cluster") is None
    ended = journal.write(roll, RollEvent.ABORTED, "", now_ms=7)
    assert read(journal) is None
    assert journal.newest(roll) == ended
    assert read(journal) is None


def test_an_abort_can_be_asked_for_by_anybody_and_more_than_once(journal: RollJournal) -> None:
    roll = journal.begin((2, 1), "a person", RollPolicy(), now_ms=1)
    roll = journal.write(roll, RollEvent.DEMOTING, "", now_ms=2)
    for now_ms in (3, 4):
        journal.request_abort(roll, "another person", now_ms=now_ms)
    asked = journal.newest(roll)
    assert (asked.is_abort_requested, asked.next_sequence) == (True, roll.next_sequence)
    assert journal.write(asked, RollEvent.ABORTED, "", now_ms=5).end is RollEvent.ABORTED


def test_of_two_processes_only_one_writes_the_next_event(journal: RollJournal) -> None:
    roll = journal.begin((2, 1), "a person", RollPolicy(), now_ms=1)
    journal.write(roll, RollEvent.DEMOTING, "", now_ms=2)
    with pytest.raises(LeaseLost, match="is carried out by another process"):
        journal.write(roll, RollEvent.DEMOTING, "", now_ms=3)
    with pytest.raises(LeaseLost, match="is gone from the table roll"):
        journal.newest(Roll("another", (1,)))
    assert read_roll(TableReader(journal.root), "another") is None


def test_the_lease_of_rolls_is_no_lease_of_control(tables_in_memory: str) -> None:
    settings = Settings.model_validate({"storage": {"tables": tables_in_memory}, "kafka": {"cluster_name": NAME}})
    first, second = roll_lease(settings), roll_lease(settings)
    assert (first.try_acquire(), second.try_acquire()) == (True, False)
    assert TableReader(tables_in_memory).version("lease") is None
    first.release()
    assert second.try_acquire()


def test_a_roll_whose_row_lacks_its_policy_has_the_defaults(journal: RollJournal) -> None:
    """Rows of an earlier commit have null in these columns."""
    row = row_of_roll(
        Roll("r", (2, 1)), RollEvent.STARTED, kafka_cluster=NAME, event_time=tables.utc(1), detail="", by="a person"
    )
    tables.append(
        journal.root,
        ROLL.name,
        [{**row, "margin": None, "accepts_single": None}],
        transaction_id="roll:r",
        transaction_version=0,
    )
    assert read(journal) == Roll("r", (2, 1), RollPolicy())
