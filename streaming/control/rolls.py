"""Writes events of rolling restarts into the table `roll`, each before what it announces is done.

Who carries out a roll holds the lease in `roll_lease`: two processes never act for one roll at the same time.
"""

import uuid
from dataclasses import dataclass

from assignor_core.roll import Roll, RollEvent, RollPolicy
from streaming import tables
from streaming.contract import ROLL, ROLL_LEASE
from streaming.control.journal import owner
from streaming.control.lease import Lease
from streaming.errors import LeaseLost
from streaming.settings import Settings
from streaming.views.rolls import read_roll, row_of_roll


def roll_lease(settings: Settings) -> Lease:
    """The right to carry out the roll of the settings' cluster; it is not taken yet."""
    return Lease(settings.storage.tables, settings.kafka.cluster_name, settings.control.lease_ms, table=ROLL_LEASE.name)


@dataclass(frozen=True, slots=True)
class RollJournal:
    """The rolls of one Kafka cluster in the tables below one root."""

    root: str
    kafka_cluster: str

    def begin(self, brokers: tuple[int, ...], by: str, policy: RollPolicy, *, now_ms: int) -> Roll:
        """A new roll of these brokers in this order. Raises TableUnavailable."""
        roll = Roll(uuid.uuid4().hex[:12], brokers, policy)
        self._append(roll, RollEvent.STARTED, f"{by} asked for the roll", by, now_ms=now_ms)
        return roll

    def write(self, roll: Roll, event: RollEvent, detail: str, *, now_ms: int) -> Roll:
        """The roll after the event, which is stored. Raises LeaseLost if another process has written an event in its
        place, IllegalTransition, TableUnavailable.
        """
        after = roll.after(event)
        if not self._append(roll, event, detail, owner(), now_ms=now_ms):
            raise LeaseLost(f"roll {roll.roll_id} is carried out by another process")
        return after

    def request_abort(self, roll: Roll, by: str, *, now_ms: int) -> None:
        """Ask whoever carries out the roll to end it; an earlier request stays. Raises TableUnavailable."""
        self._append(roll, RollEvent.ABORT_REQUESTED, f"{by} asked to end the roll", by, now_ms=now_ms)

    def newest(self, roll: Roll) -> Roll:
        """The roll as the tables have it now. Raises LeaseLost if its rows are gone, TableUnavailable."""
        newest = read_roll(tables.TableReader(self.root), roll.roll_id)
        if newest is None:
            raise LeaseLost(f"roll {roll.roll_id} is gone from the table {ROLL.name}")
        return newest

    def _append(self, roll: Roll, event: RollEvent, detail: str, by: str, *, now_ms: int) -> bool:
        row = row_of_roll(
            roll, event, kafka_cluster=self.kafka_cluster, event_time=tables.utc(now_ms), detail=detail, by=by
        )
        is_request = event is RollEvent.ABORT_REQUESTED
        transaction = f"roll-abort:{roll.roll_id}" if is_request else f"roll:{roll.roll_id}"
        version = 0 if is_request else row["sequence"]
        return tables.append(self.root, ROLL.name, [row], transaction_id=transaction, transaction_version=version)
