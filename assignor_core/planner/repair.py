"""Hard rules first: empties brokers, brings topics to their sets and spreads racks, at the least harm to balance.

Repair goes before balance, since it must be done at any price and decides what room is left. It takes each replica that
breaks a rule once, heaviest first, and puts it where the objective grows least: greedy, one pass, no way back. The
search evens out what that leaves uneven.

A replica that serves consumers of its rack (KIP-392) may have to leave it. Then the replicas that stay serve these
consumers, and in the new rack it serves others, so each target is judged with what all replicas would carry.

Invariants: repair exceeds no capacity and no budget. It crowds a rack only if a broker can't be emptied otherwise. What
finds no target stays as it is, and `obstacles` names it.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.broker_sets import any_broker
from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.compiled import as_compiled_reads, compiled
from assignor_core.planner.placement import GRID, Flags, Indices, Placement
from assignor_core.planner.problem import PULL, Problem, Search, weighted
from assignor_core.planner.replica_rows import copies_more, holds, slot_of
from assignor_core.planner.round_task import budgets_of, price_of_copies, room_of
from assignor_core.planner.round_trials import affords
from assignor_core.resources import Resource

COPY_PRICE = 0.01
"""What a fair share of disk copied weighs against balance where a rack has to be spread."""


def repair(search: Search) -> None:
    """Moves replicas until the placement keeps the hard rules, as far as the policy allows.

    Brokers 1 and 2 stand in rack a and hold both replicas; one of them goes to broker 3 in rack b:

    >>> state = state_of((1, 2), racks="aab")
    >>> repair(state)
    >>> state.placement.replicas.tolist()
    [[0, 2]]
    """
    problem, placement = search.problem, search.placement
    if problem.policy.leaders_only:
        return
    task, state = _task_of(problem, placement), _state_of(placement)
    _empty_brokers(task, state, *_leaving_replicas(problem, placement))
    if problem.arrays.sets is not None:
        _empty_brokers(task, state, *_misplaced_replicas(problem, placement, state.rows))
    _spread_racks(task, state, np.flatnonzero(problem.crowded(state.rows) & problem.movable))
    placement.take(state.rows)


def _leaving_replicas(problem: Problem, placement: Placement) -> tuple[Indices, Indices]:
    """Partitions and brokers of the replicas that must leave, in order.

    What dead brokers held comes first, partitions with the fewest replicas in sync before others: room may not suffice
    for all. Of a partition that has lost two replicas, the second counts as if the first were made. Then the draining
    brokers, one after the other. Among equals the heaviest goes first, so that the light ones fill what is left.
    """
    made = np.zeros(len(problem.movable), dtype=np.int64)
    rows: list[Floats] = [np.zeros((0, 4))]
    for broker in problem.leaving:
        held = placement.held_by(int(broker))
        held = held[problem.movable[held]]
        leads = (placement.replicas[held, 0] == broker)[:, None]
        weight = weighted(np.where(leads, placement.leading[held], placement.following[held]), problem.weight)
        if problem.arrays.dead[broker]:
            turn = problem.arrays.in_sync[held] + made[held]
            made[held] += 1
        else:
            turn = np.full(len(held), problem.arrays.replicas.shape[1] + 1 + broker)
        rows.append(np.stack((turn, -weight, held, np.full(len(held), broker)), axis=1))
    table = np.concatenate(rows)
    order = table[np.lexsort((table[:, 3], table[:, 2], table[:, 1], table[:, 0]))].astype(np.int64)
    return np.ascontiguousarray(order[:, 2]), np.ascontiguousarray(order[:, 3])


def _misplaced_replicas(problem: Problem, placement: Placement, rows: Ints) -> tuple[Indices, Indices]:
    """Partitions and brokers of the replicas that must go to their set, the heaviest first. Where the set has too few
    brokers for all replicas of a partition, all of them stay.
    """
    sets, brokers = problem.arrays.sets, problem.arrays.alive & problem.may_give
    assert sets is not None, "there are sets"
    partitions, slots = np.nonzero(sets.outside(rows) & brokers[rows] & ~sets.is_short[:, None])
    carried = np.where((slots == 0)[:, None], placement.leading[partitions], placement.following[partitions])
    order = np.lexsort((slots, partitions, -weighted(carried, problem.weight)))
    return partitions[order], rows[partitions, slots][order].astype(np.int64)


class _Task(NamedTuple):
    """What stays during a repair: B brokers, P partitions of up to R replicas, C columns of load."""

    original: Ints
    """P x R brokers at first."""
    leading: Floats
    """P x C load of the leader, without what is read in racks."""
    following: Floats
    """P x C load of a follower, without what is read in racks."""
    sizes: Floats
    """P bytes of one copy."""
    copy_price: Floats
    """P fair shares of disk that one copy takes."""
    read_begin: Indices
    """P + 1: consumers of racks `read_begin[p]` to `read_begin[p + 1]` read partition p in their racks."""
    read_racks: Ints
    """N racks that read."""
    read_loads: Floats
    """N x C load that they bring to the replicas of their rack, or to the leader."""
    racks: Ints
    """B."""
    stays_in_racks: Flags
    """P: replicas move only within their racks."""
    set_of: Indices
    """P: the row of `members` that holds for the partition."""
    members: Flags
    """K x B brokers that may hold partitions; all in the first row."""
    dead: Flags
    """B."""
    is_rackless: Flags
    """B: no rack is known, so the broker is a rack of its own."""
    may_take: Flags
    """B."""
    may_give: Flags
    """B."""
    share: Floats
    """B x C fair share; a broker that must end empty has none and no objective."""
    goal: Floats
    """B x C load above which it counts in the objective."""
    ceiling: Floats
    """B x C load that no broker may exceed."""
    is_disk: Flags
    """C: a load that takes nothing, not even what is empty, once it is above the ceiling."""
    weight: Floats
    """C."""
    room: Floats
    """B bytes that may be copied there."""
    budget: Floats
    """Most movements, most bytes."""


class _State(NamedTuple):
    """A placement under repair; mutable arrays."""

    rows: Ints
    """P x R."""
    loads: Floats
    """B x C."""
    inflow: Floats
    """B bytes copied to each broker."""
    totals: Floats
    """Movements, bytes copied."""
    row: Ints
    """R brokers of the partition at hand, as they would be."""
    now: Floats
    """R x C loads of its replicas."""
    then: Floats
    """R x C loads of its replicas, as they would be."""


def _task_of(problem: Problem, placement: Placement) -> _Task:
    arrays, columns = problem.arrays, problem.arrays.columns
    partitions = len(placement.original)
    begin, racks = np.zeros(partitions + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
    loads = np.zeros((0, len(columns.counts)))
    if placement.in_racks is not None:
        reads = placement.in_racks.reads
        begin[1:] = np.cumsum(np.bincount(reads.partitions[reads.rows], minlength=partitions))
        racks, loads = reads.racks, np.zeros((len(reads.racks), len(columns.counts)))
        loads[:, columns.of(Resource.BYTES_OUT)] = reads.rates
    is_disk = np.zeros(len(columns.counts), dtype=np.bool_)
    is_disk[columns.of(Resource.DISK)] = True
    sets = problem.arrays.sets or any_broker(len(arrays.alive), partitions)
    task = _Task(
        original=placement.original,
        leading=placement.leading,
        following=placement.following,
        sizes=placement.disk_bytes,
        copy_price=price_of_copies(placement),
        read_begin=begin,
        read_racks=racks,
        read_loads=loads,
        racks=arrays.racks,
        stays_in_racks=np.full(partitions, problem.policy.keep_racks),
        set_of=sets.set_of,
        members=sets.members,
        dead=arrays.dead,
        is_rackless=np.array([arrays.rack_names[rack].startswith("broker ") for rack in arrays.racks], dtype=np.bool_),
        may_take=problem.may_take,
        may_give=problem.may_give,
        share=problem.share,
        goal=problem.goal,
        ceiling=problem.ceiling,
        is_disk=is_disk,
        weight=problem.weight,
        room=room_of(problem),
        budget=budgets_of(problem.policy),
    )
    return as_compiled_reads(task)


def _state_of(placement: Placement) -> _State:
    replicas, columns = placement.replicas.shape[1], placement.loads.shape[1]
    inflow = placement.inflow()
    return _State(
        rows=placement.replicas.copy(),
        loads=placement.loads.copy(),
        inflow=inflow,
        totals=np.array([float(len(placement.changed())), float(inflow.sum())]),
        row=np.zeros(replicas, dtype=np.int32),
        now=np.zeros((replicas, columns)),
        then=np.zeros((replicas, columns)),
    )


@compiled
def _empty_brokers(task: _Task, state: _State, partitions: Indices, sources: Indices) -> None:
    """Each replica of `partitions` on `sources` (pairwise) goes to its best target, if it has one."""
    for at in range(len(partitions)):
        p = partitions[at]
        slot = slot_of(state.rows, p, sources[at])
        _, target = _best_target(task, state, p, slot, False)
        if target != NO_BROKER:
            _go(task, state, p, slot, target)


@compiled
def _spread_racks(task: _Task, state: _State, partitions: Indices) -> None:
    """Replicas of `partitions` go to racks that hold fewer of them, the one first whose move harms balance least."""
    for at in range(len(partitions)):
        p = partitions[at]
        for _ in range(state.rows.shape[1]):
            least, slot, target = np.inf, 0, NO_BROKER
            # Followers first: of equals the first moves, and leadership stays.
            for candidate in range(state.rows.shape[1] - 1, -1, -1):
                source = state.rows[p, candidate]
                if source == NO_BROKER or not task.may_give[source]:
                    continue
                harm, best = _best_target(task, state, p, candidate, True)
                if best != NO_BROKER and harm < least:
                    least, slot, target = harm, candidate, best
            if target == NO_BROKER:
                break
            _go(task, state, p, slot, target)


@compiled
def _best_target(task: _Task, state: _State, p: int, slot: int, is_spreading: bool) -> tuple[float, int]:
    """How much the move of the replica in `slot` harms balance, and its target: of those in the racks that hold fewest
    other replicas the one that it harms least, or NO_BROKER. With `is_spreading` only racks count that hold fewer than
    that of the source.
    """
    source = state.rows[p, slot]
    here = _others_in_rack(task, state, p, slot, source)
    _write_loads(task, state, p, slot, source, state.now)
    fewest, least, best = state.rows.shape[1] + 1, np.inf, NO_BROKER
    for target in range(len(task.may_take)):
        if not task.may_take[target] or not task.members[task.set_of[p], target]:
            continue
        if not _may_be_copied(task, state, p, source, target):
            continue
        # Kafka shows no rack of a broker that is away; of racks those with the fewest other replicas come first.
        is_kept = task.stays_in_racks[p] and not (task.dead[source] and task.is_rackless[source])
        if is_kept and task.racks[target] != task.racks[source]:
            continue
        others = _others_in_rack(task, state, p, slot, target)
        if others < 0 or others > fewest or (is_spreading and others >= here):
            continue
        _write_loads(task, state, p, slot, target, state.then)
        if not _fits(task, state, slot, source, target):
            continue
        harm = _harm(task, state, slot, source)
        harm += COPY_PRICE * copies_more(task.original, p, source, target) * task.copy_price[p]
        # What rounding alone makes different counts as equal.
        harm = np.rint(harm * GRID) / GRID
        if others < fewest or harm < least:
            fewest, least, best = others, harm, target
    return least, best


@compiled
def _others_in_rack(task: _Task, state: _State, p: int, slot: int, broker: int) -> int:
    """Replicas of p beside that in `slot` in the rack of `broker`; -1 if `broker` holds one of them."""
    count = 0
    for other in range(state.rows.shape[1]):
        holder = state.rows[p, other]
        if other == slot or holder == NO_BROKER:
            continue
        if holder == broker:
            return -1
        count += task.racks[holder] == task.racks[broker]
    return count


@compiled
def _write_loads(task: _Task, state: _State, p: int, slot: int, broker: int, loads: Floats) -> None:
    """Write the replicas of p with `broker` in `slot`, and what each of them carries then (R x C).

    What a rack reads comes from its leader there, else in equal parts from its followers, else from the leader.
    """
    row = state.row
    for other in range(len(row)):
        row[other] = broker if other == slot else state.rows[p, other]
        for column in range(loads.shape[1]):
            load = task.leading[p, column] if other == 0 else task.following[p, column]
            loads[other, column] = load if row[other] != NO_BROKER else 0.0
    for at in range(task.read_begin[p], task.read_begin[p + 1]):
        rack, count = task.read_racks[at], 0
        for other in range(len(row)):
            count += int(row[other] != NO_BROKER and task.racks[row[other]] == rack)
        is_leaders = count == 0 or task.racks[row[0]] == rack
        for other in range(len(row)):
            if row[other] == NO_BROKER or (other > 0 if is_leaders else task.racks[row[other]] != rack):
                continue
            for column in range(loads.shape[1]):
                part = task.read_loads[at, column] if is_leaders else task.read_loads[at, column] / count
                loads[other, column] += np.rint(part * GRID) / GRID


@compiled
def _fits(task: _Task, state: _State, slot: int, source: int, target: int) -> bool:
    """Whether no broker that would carry more exceeds a capacity. One that does already takes what adds nothing."""
    for other in range(len(state.row)):
        broker = state.row[other]
        # A dead broker serves nobody: the others carry already what is read in its rack.
        if broker == NO_BROKER or (broker != target and task.dead[source]):
            continue
        for column in range(state.loads.shape[1]):
            more = state.then[other, column] - (0.0 if other == slot else state.now[other, column])
            must_have_room = more > 0.0 or (broker == target and task.is_disk[column])
            if must_have_room and state.loads[broker, column] + more > task.ceiling[broker, column]:
                return False
    return True


@compiled
def _harm(task: _Task, state: _State, slot: int, source: int) -> float:
    """By how much the objective rises. A source that must end empty has none: what it loses is no gain."""
    harm = 0.0
    for column in range(state.loads.shape[1]):
        harm += _cost(task, state, source, column, -state.now[slot, column])
        for other in range(len(state.row)):
            broker = state.row[other]
            if broker != NO_BROKER:
                more = state.then[other, column] - (0.0 if other == slot else state.now[other, column])
                harm += _cost(task, state, broker, column, more)
    return harm


@compiled
def _cost(task: _Task, state: _State, broker: int, column: int, more: float) -> float:
    """By how much the objective of one load of a broker rises with so much `more`, as in `Problem.cost`."""
    share = task.share[broker, column]
    if more == 0.0 or share == 0.0:
        return 0.0
    load, goal = state.loads[broker, column], task.goal[broker, column]
    excess, away = max(load + more - goal, 0.0) / share, (load + more) / share - 1.0
    excess_before, away_before = max(load - goal, 0.0) / share, load / share - 1.0
    rise: float = excess * excess - excess_before * excess_before + PULL * (away * away - away_before * away_before)
    return rise * float(task.weight[column])


@compiled
def _may_be_copied(task: _Task, state: _State, p: int, source: int, target: int) -> bool:
    """Whether room on the disk of the target and the budgets allow the move."""
    arrives = task.sizes[p] > 0.0 and not holds(task.original, p, target)
    if arrives and state.inflow[target] + task.sizes[p] > task.room[target]:
        return False
    movements, copies = int(not _is_changed(task, state, p)), copies_more(task.original, p, source, target)
    return affords(task.budget, state.totals, movements, copies * task.sizes[p])


@compiled
def _is_changed(task: _Task, state: _State, p: int) -> bool:
    is_changed = False
    for slot in range(state.rows.shape[1]):
        is_changed = is_changed or state.rows[p, slot] != task.original[p, slot]
    return is_changed


@compiled
def _go(task: _Task, state: _State, p: int, slot: int, target: int) -> None:
    """The replica of p in `slot` goes to `target`: loads, inflow and totals follow."""
    source, was_changed = state.rows[p, slot], _is_changed(task, state, p)
    _write_loads(task, state, p, slot, source, state.now)
    _write_loads(task, state, p, slot, target, state.then)
    for other in range(len(state.row)):
        if state.row[other] != NO_BROKER:
            for column in range(state.loads.shape[1]):
                state.loads[state.rows[p, other], column] -= state.now[other, column]
                state.loads[state.row[other], column] += state.then[other, column]
    state.totals[1] += copies_more(task.original, p, source, target) * task.sizes[p]
    if not holds(task.original, p, source):
        state.inflow[source] -= task.sizes[p]
    if not holds(task.original, p, target):
        state.inflow[target] += task.sizes[p]
    state.rows[p, slot] = target
    state.totals[0] += int(_is_changed(task, state, p)) - int(was_changed)
