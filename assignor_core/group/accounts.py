"""Keeps trace and ledger of a run in step: whatever happens to a process's partitions is entered in both here.

Knows processes and partitions; no messages and no rule of the protocol.
"""

from collections.abc import Sequence
from typing import Any

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.consumer_protocol.messages import ConsumerGroupMember, GroupChange, GroupStep
from assignor_core.group.figures import Ledger
from assignor_core.group.messages import StateChange
from assignor_core.group.process import Process
from assignor_core.group.states import GroupState
from assignor_core.group.trace import Entry, What

AnyProcess = Process[Any]


class Accounts:
    """Writes the trace and the ledger of one run."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.trace: list[Entry] = []

    def note(
        self, now_ms: int, what: What, who: str, detail: str = "", partitions: Sequence[TopicPartition] = ()
    ) -> None:
        """An entry of the trace that changes nobody's partitions."""
        self.trace.append(Entry(now_ms, what, who, detail, partitions))

    def group_moves(self, now_ms: int, change: StateChange, cause: str) -> None:
        """The group has a new state; a rebalance begins with the first sign of it."""
        self.trace.append(
            Entry(now_ms, What.GROUP, "group", cause, state=change.state, generation_id=change.generation_id)
        )
        if change.state is not GroupState.PREPARING_REBALANCE:
            if change.state is not GroupState.STABLE:
                self.ledger.round_begins()
        elif not self.ledger.rebalancing:
            self.ledger.rebalance_begins(now_ms, cause, change.generation_id)

    def epoch_moves(self, now_ms: int, change: GroupChange, cause: str) -> None:
        """A group of the consumer protocol moved on; a rebalance begins with its new epoch."""
        self.trace.append(
            Entry(now_ms, What.GROUP, "group", cause, state=change.state, generation_id=change.group_epoch)
        )
        if change.step is GroupStep.TARGET_COMPUTED:
            self.ledger.round_begins()
        elif change.step is GroupStep.EPOCH_BUMPED and not self.ledger.rebalancing:
            self.ledger.rebalance_begins(now_ms, cause, change.group_epoch - 1)

    def reconciled(self, now_ms: int, process: AnyProcess, member: ConsumerGroupMember) -> None:
        """The coordinator counts other partitions, or another epoch, as a member's."""
        where = f"epoch {member.member_epoch}, {member.state.value}"
        assigned = tuple(sorted(member.assigned))
        self.trace.append(Entry(now_ms, What.EPOCH, process.name, where, assigned, generation_id=member.member_epoch))

    def reads_no_more(self, now_ms: int, process: AnyProcess) -> None:
        """Enter that the process has paused or ended, which the group does not know yet."""
        self.ledger.stops(now_ms, self._read_by(process))

    def ends(self, now_ms: int, process: AnyProcess) -> None:
        """Enter that the process has ended."""
        self.reads_no_more(now_ms, process)
        self.ledger.overlap_ends(now_ms, process.client)

    def resumes(self, now_ms: int, process: AnyProcess) -> None:
        """Enter that a pause is over: the process reads what it owns, or believes to own."""
        if process.is_put_out:
            self.ledger.overlap_begins(now_ms, process.client, len(process.member.owned))
        else:
            self.ledger.takes(now_ms, process.name, process.member.owned)

    def put_out(self, now_ms: int, process: AnyProcess, reason: str, *, runs: bool) -> None:
        """The group does not count on the process any more; if it `runs`, it goes on reading until it notices."""
        owned = self._read_by(process)
        # A process that has ended goes by its address: another one may have its name by now.
        self.note(now_ms, What.PUT_OUT, process.name if process.alive else process.client, reason)
        self.ledger.stops(now_ms, owned)
        if runs:
            self.ledger.overlap_begins(now_ms, process.client, len(owned))

    def gives_up(self, now_ms: int, process: AnyProcess, what: What, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were revoked or lost (`what`), and the process knows."""
        if partitions:
            self.ledger.gives_up(now_ms, process.name, partitions)
            self.note(now_ms, what, process.name, partitions=partitions)
        if not process.member.owned:
            self.ledger.overlap_ends(now_ms, process.client)

    def takes_over(self, now_ms: int, process: AnyProcess, partitions: Sequence[TopicPartition]) -> None:
        """An assignment has arrived; one that was put out meanwhile reads what is not its own.

        A static member that missed a generation stays in the group: what it has kept all the time is its own again.
        """
        if not process.is_put_out:
            owned = process.member.owned
            kept = (tp for tp in owned if tp not in partitions and self.ledger.reader.get(tp) != process.name)
            partitions = [*partitions, *kept]
            self.ledger.overlap_ends(now_ms, process.client)
        if not partitions:
            return
        self.note(now_ms, What.ASSIGNED, process.name, partitions=partitions)
        if process.is_put_out:
            self.ledger.overlap_begins(now_ms, process.client, len(partitions))
        else:
            self.ledger.takes(now_ms, process.name, partitions)

    def _read_by(self, process: AnyProcess) -> list[TopicPartition]:
        """What the process reads now, as the group sees it; its name may live on in another process."""
        reader = self.ledger.reader if process.alive else {}
        return [tp for tp in process.member.owned if reader.get(tp) == process.name]
