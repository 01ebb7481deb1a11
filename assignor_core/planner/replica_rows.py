"""Rows of replicas in machine code: who is in a row, and where.

A row has the brokers of one partition, the leader first, with NO_BROKER behind the last.
"""

from assignor_core.load import NO_BROKER, Ints
from assignor_core.planner.compiled import compiled


@compiled
def holds(rows: Ints, p: int, broker: int) -> bool:
    """Whether `broker` stands in row p."""
    for slot in range(rows.shape[1]):  # noqa: SIM110 - numba compiles no generator
        if rows[p, slot] == broker:
            return True
    return False


@compiled
def slot_of(rows: Ints, p: int, broker: int) -> int:
    """Place of `broker` in row p."""
    slot = 0
    while rows[p, slot] != broker:
        slot += 1
    return slot


@compiled
def copies_more(original: Ints, p: int, old: int, new: int) -> int:
    """How many copies more p has if its replica on `old` goes to `new`: one, none, or one less."""
    return int(not holds(original, p, new)) - int(not holds(original, p, old))


@compiled
def number_th(rows: Ints, others: Ints, p: int, number: int) -> int:
    """The broker with this number among those of row p that its other row does not hold."""
    slot, left = 0, number
    while True:
        broker = int(rows[p, slot])
        if broker != NO_BROKER and not holds(others, p, broker):
            if left == 0:
                return broker
            left -= 1
        slot += 1
