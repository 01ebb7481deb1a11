"""What must hold of every trace, whatever the scenario: the one checker that all tests use.

Reads the trace alone, so that it does not share a mistake with the simulation.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.trace import Entry, What

_ENDS = frozenset({What.STOPPED, What.CRASHED, What.PUT_OUT, What.FAILED})


def violations(trace: Sequence[Entry]) -> list[str]:
    """What is wrong with a trace, one sentence each; empty if it is sound."""
    return [*_two_owners(trace), *_time_goes_back(trace), *_generations_fall(trace), *_member_epochs_fall(trace)]


def owners_at_end(trace: Iterable[Entry]) -> Mapping[TopicPartition, str]:
    """Who owns each partition after the last entry, as the group sees it."""
    owners: dict[TopicPartition, str] = {}
    for _ in _replayed(trace, owners):
        pass
    return owners


def _two_owners(trace: Sequence[Entry]) -> list[str]:
    """A member that was put out is no owner, even while it does not know."""
    owners: dict[TopicPartition, str] = {}
    return [
        f"at {entry.at_ms} {entry.who} is given {tp}, which {owners[tp]} owns"
        for entry in _replayed(trace, owners)
        if entry.what is What.ASSIGNED
        for tp in entry.partitions
        if owners.get(tp, entry.who) != entry.who
    ]


def _replayed(trace: Iterable[Entry], owners: dict[TopicPartition, str]) -> Iterable[Entry]:
    """Each entry before it takes effect on `owners`; assignments to members that are out have none and are left out."""
    out: set[str] = set()
    for entry in trace:
        if entry.what is What.JOINS:
            out.discard(entry.who)
        if entry.what is What.ASSIGNED and entry.who in out:
            continue
        yield entry
        if entry.what is What.ASSIGNED:
            owners.update(dict.fromkeys(entry.partitions, entry.who))
        elif entry.what in (What.REVOKED, What.LOST):
            for tp in entry.partitions:
                if owners.get(tp) == entry.who:
                    del owners[tp]
        elif entry.what in _ENDS:
            out.add(entry.who)
            for tp in [tp for tp, owner in owners.items() if owner == entry.who]:
                del owners[tp]


def _time_goes_back(trace: Sequence[Entry]) -> list[str]:
    return [f"{later} comes after {earlier}" for earlier, later in pairwise(trace) if later.at_ms < earlier.at_ms]


def _generations_fall(trace: Sequence[Entry]) -> list[str]:
    generations = [entry.generation_id for entry in trace if entry.what is What.GROUP]
    return [
        f"generation {later} comes after {earlier}"
        for earlier, later in pairwise(generations)
        if not earlier <= later <= earlier + 1
    ]


def _member_epochs_fall(trace: Iterable[Entry]) -> Iterable[str]:
    """Of members of the consumer protocol; whoever joins begins anew."""
    epochs: dict[str, int] = {}
    for entry in trace:
        if entry.what is What.JOINS:
            epochs.pop(entry.who, None)
        elif entry.what is What.EPOCH:
            before = epochs.get(entry.who, 0)
            if entry.generation_id < before:
                yield f"{entry.who} comes from epoch {before} to {entry.generation_id}"
            epochs[entry.who] = entry.generation_id
