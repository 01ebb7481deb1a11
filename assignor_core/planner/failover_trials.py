"""What trials of a round change of failover headroom, in machine code: what heirs would carry, and what is too much.

`failover` has the model. The table `inherited` holds, by heir and zone, what the heir takes over if the zone goes
offline. A trial takes the pairs of its partitions out of the table, puts in those of the rows as they would be, and
works out anew what the few brokers have too much that this concerns. A refused trial puts back what was there.

What a broker has too much is a sum over all zones. Most brokers have nothing too much, whatever the zone. So each
broker has an upper limit of what it takes over from any zone (`inherited_most`), and only a broker that this could put
above its capacity is looked at zone by zone.

Loads lie on a grid, so taking out and putting back is exact.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.compiled import compiled, compiled_apart
from assignor_core.planner.replica_rows import holds
from assignor_core.planner.round_task import RoundState, RoundTask


@compiled_apart
def price_failovers(task: RoundTask, state: RoundState) -> None:
    """Write what each broker takes over by the rows, and what it has too much; for a state that has none yet."""
    for p in range(len(state.rows)):
        state.touched_count[0] = 0
        _add_row(task, state, state.rows, p, p, 1.0)
    total = 0.0
    for broker in range(len(state.failover)):
        state.failover[broker] = _excess(task, state, broker, NO_BROKER, NO_BROKER)
        total += state.failover[broker]
    state.failover_total[0] = total


@compiled
def failover_gain_most(task: RoundTask, state: RoundState) -> float:
    """The most by which any trial could lower the price of failovers."""
    most: float = task.failover_price[0] * state.failover_total[0]
    return most


@compiled
def try_replica(state: RoundState, at: int, p: int, slot: int, broker: int) -> None:
    """Write the row of p with `broker` in `slot` as one that is tried."""
    for other in range(state.rows.shape[1]):
        state.tried[at, other] = broker if other == slot else state.rows[p, other]


@compiled
def try_leader(state: RoundState, at: int, p: int, new: int) -> None:
    """Write the row of p as one that is tried, in which the follower `new` leads and the leader takes its slot."""
    for other in range(state.rows.shape[1]):
        broker = state.rows[p, other]
        state.tried[at, other] = state.rows[p, 0] if broker == new else broker
    state.tried[at, 0] = new


@compiled_apart
def accepts_failover(
    task: RoundTask, state: RoundState, most: float, change_price: float, p: int, q: int, s: int, t: int
) -> bool:
    """Whether the price of failovers rises by no more than `most` if p has the first of the rows `tried`, q the second,
    and s and t the loads `after`; q, s and t may be NO_BROKER. If so, the table and the excesses are those of the trial
    from now on.
    """
    state.touched_count[0] = 0
    _touch(state, s)
    _touch(state, t)
    rise = 0.0
    for at in range(1 if q == NO_BROKER else 2):
        partition = p if at == 0 else q
        _exchange_rows(task, state, at, partition, 1.0)
        # A partition whose heir alone is another one counts as changed, too.
        if not _has_moved(task, state.tried, at, partition) and has_other_heir(task, state.tried, at, partition):
            rise += change_price
    for place in range(state.touched_count[0]):
        state.tried_excess[place] = _excess(task, state, int(state.touched[place]), s, t)
        rise += task.failover_price[0] * (state.tried_excess[place] - state.failover[state.touched[place]])
    if rise > most:
        for at in range(1 if q == NO_BROKER else 2):
            _exchange_rows(task, state, at, p if at == 0 else q, -1.0)
        return False
    for place in range(state.touched_count[0]):
        broker = state.touched[place]
        state.failover_total[0] += state.tried_excess[place] - state.failover[broker]
        state.failover[broker] = state.tried_excess[place]
    return True


@compiled_apart
def _exchange_rows(task: RoundTask, state: RoundState, at: int, p: int, sign: float) -> None:
    """Take what others take over of p out of the table, and put in what they take over with the row that is tried; the
    reverse if `sign` is negative.
    """
    _add_row(task, state, state.rows, p, p, -sign)
    _add_row(task, state, state.tried, at, p, sign)


@compiled
def heir_of(task: RoundTask, rows: Ints, at: int) -> int:
    """Who leads the partition of row `at` once the zone of its leader is offline, or NO_BROKER (`failover.heirs`)."""
    zone = task.zones[rows[at, 0]]
    if zone == NO_BROKER:
        return NO_BROKER
    for slot in range(1, rows.shape[1]):
        broker = int(rows[at, slot])
        if broker != NO_BROKER and task.zones[broker] != NO_BROKER and task.zones[broker] != zone:
            return broker
    return NO_BROKER


@compiled
def has_other_heir(task: RoundTask, rows: Ints, at: int, p: int) -> bool:
    """Whether row `at` has another heir than p had at first."""
    return heir_of(task, rows, at) != heir_of(task, task.original, p)


@compiled
def _has_moved(task: RoundTask, rows: Ints, at: int, p: int) -> bool:
    """Whether row `at` has another leader than p had at first, or a broker that did not hold p."""
    if rows[at, 0] != task.original[p, 0]:
        return True
    for slot in range(rows.shape[1]):  # noqa: SIM110 - numba compiles no generator
        if not holds(task.original, p, int(rows[at, slot])):
            return True
    return False


@compiled_apart
def _add_row(task: RoundTask, state: RoundState, rows: Ints, at: int, p: int, sign: float) -> None:
    """Add `sign` times what others take over of p, if it has row `at`."""
    leader, heir = int(rows[at, 0]), heir_of(task, rows, at)
    if heir != NO_BROKER:
        _add(task, state, heir, leader, task.leading, p, sign)
    for read in range(task.read_begin[p], task.read_begin[p + 1]):
        holder = NO_BROKER
        for slot in range(rows.shape[1]):
            if rows[at, slot] != NO_BROKER and task.racks[rows[at, slot]] == task.read_racks[read]:
                holder = int(rows[at, slot])
                break
        if holder == NO_BROKER or task.zones[holder] == NO_BROKER:
            continue
        is_with_leader = task.zones[holder] == task.zones[leader] or task.zones[leader] == NO_BROKER
        taker = heir if is_with_leader else leader
        if taker != NO_BROKER:
            _add(task, state, taker, holder, task.read_loads, read, sign)


@compiled
def _add(task: RoundTask, state: RoundState, taker: int, giver: int, loads: Floats, at: int, sign: float) -> None:
    """Add `sign` times the bytes out in row `at` of `loads` to what `taker` takes over from the zone of `giver`."""
    _touch(state, taker)
    zone = task.zones[giver]
    for window in range(len(task.out_columns)):
        column = task.out_columns[window]
        state.inherited[taker, zone, window] += sign * loads[at, column]
        part = state.inherited[taker, zone, window] * task.inverse[taker, column]
        if part > state.inherited_most[taker]:
            state.inherited_most[taker] = part


@compiled
def _touch(state: RoundState, broker: int) -> None:
    """Note that the trial concerns `broker`."""
    if broker == NO_BROKER:
        return
    for place in range(state.touched_count[0]):
        if state.touched[place] == broker:
            return
    state.touched[state.touched_count[0]] = broker
    state.touched_count[0] += 1


@compiled_apart
def _excess(task: RoundTask, state: RoundState, broker: int, s: int, t: int) -> float:
    """Fair shares, summed up over zones, that `broker` has too much; s and t (or NO_BROKER) have the loads `after`."""
    highest = -np.inf
    for window in range(len(task.out_columns)):
        inverse = task.inverse[broker, task.out_columns[window]]
        if inverse > 0.0:
            highest = max(highest, (_load(task, state, broker, s, t, window) - task.usable[broker, window]) * inverse)
    # Rounded, a sum of parts may be a little more than the limit.
    if highest + state.inherited_most[broker] * (1.0 + 1e-9) <= 0.0:
        return 0.0
    total, most = 0.0, 0.0
    for zone in range(state.inherited.shape[1]):
        worst = 0.0
        for window in range(len(task.out_columns)):
            inverse, taken = task.inverse[broker, task.out_columns[window]], state.inherited[broker, zone, window]
            over = _load(task, state, broker, s, t, window) + taken - task.usable[broker, window]
            most = max(most, taken * inverse)
            worst = max(worst, min(taken, over) * inverse)
        total += worst
    state.inherited_most[broker] = most
    return total


@compiled
def _load(task: RoundTask, state: RoundState, broker: int, s: int, t: int, window: int) -> float:
    """Bytes out of `broker`; s and t have the loads `after`."""
    column = task.out_columns[window]
    if broker == s:
        return float(state.after[0, column])
    if broker == t:
        return float(state.after[1, column])
    return float(state.loads[broker, column])
