"""The trials of annealing in machine code: small changes of a draft at random, millions of them.

The search scores matrices of candidates. Annealing tries one change after another, each of two brokers or a few: there
one call of numpy costs more than all sums of a trial. In Python and numpy a trial takes 10 us, here 0.1 (`compiled`).

The cost of a draft is what brokers are above `lines`, linear and squared, and the price of what it copies, in fair
shares of disk. Linear, so that the last bit above a line still counts; squared, so that the worst broker counts most.
What is above a broker's own limit but below its line costs a little, too: where a heavy partition raises the lines, the
brokers without it should stay even.

Invariants: the loads of the draft are what its rows put on brokers, to the bit (loads are on a grid). No trial that is
accepted breaks a hard rule; budgets are for the caller to look at. Sums are in one order on every machine (no
`fastmath`), and the generator comes from outside, so a draft has one result.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.compiled import compiled
from assignor_core.planner.draft import Draft, Task, Trial
from assignor_core.planner.placement import Indices

MOVES, EXCHANGES, HANDOVERS = 0.35, 0.25, 0.2
"""Parts of the trials that move a replica, exchange two, hand a leadership over; the others take a movement back."""
FROM_WORST = 0.5
"""Part of movements and exchanges that relieve a broker above its line; the others begin anywhere."""
CHANGED_EACH, WORST_EACH = 2_000, 64
"""After so many trials changed partitions, and brokers above their lines, are looked up anew."""
ROUNDING = 1e-12


@compiled
def price_all(task: Task, draft: Draft) -> None:
    """Costs and prices of all rows and loads."""
    for broker in range(len(draft.loads)):
        draft.costs[broker] = _cost(task, broker, draft.loads, broker)
    for partition in range(len(draft.rows)):
        draft.prices[partition] = _price(task, partition, draft.rows, partition)


@compiled
def turn(task: Task, draft: Draft, trial: Trial, random: np.random.Generator, threshold: float, trials: int) -> None:
    """So many trials; what costs more than `threshold` is refused, which falls to nothing by the last of them."""
    changed_count = worst_count = 0
    for number in range(trials):
        if number % CHANGED_EACH == 0:
            changed_count = _changed(task, draft, trial.changed)
        if number % WORST_EACH == 0:
            worst_count = _above_lines(task, draft, trial.worst)
        kind = random.random()
        if kind < MOVES + EXCHANGES:
            count = _draw_movement(task, draft, trial, random, worst_count, kind >= MOVES)
        elif kind < MOVES + EXCHANGES + HANDOVERS:
            partition = task.movable[_below(random, len(task.movable))]
            slot = _below(random, _width(draft.rows, partition))
            count = _write_handover(task, draft, trial, partition, slot)
        else:
            count = _draw_return(task, draft, trial, random, changed_count)
        if count:
            rise, brokers = _judge(task, draft, trial, count)
            left = 1.0 - number / trials
            if rise <= threshold * left * left and _is_possible(task, draft, trial, brokers):
                _accept(task, draft, trial, count, brokers)


@compiled
def _below(random: np.random.Generator, count: int) -> int:
    return int(random.random() * count)


@compiled
def _draw_movement(
    task: Task, draft: Draft, trial: Trial, random: np.random.Generator, worst_count: int, is_exchange: bool
) -> int:
    """Write a movement into `trial`, or an exchange; the partitions that it changes: none, where a rule forbids it."""
    if len(task.takers) == 0:
        return 0
    if worst_count and random.random() < FROM_WORST:
        source = trial.worst[_below(random, worst_count)]
        if draft.held_count[source] == 0:
            return 0
        partition = draft.held[source, _below(random, draft.held_count[source])]
    else:
        partition = task.movable[_below(random, len(task.movable))]
        source = draft.rows[partition, _below(random, _width(draft.rows, partition))]
    target = task.takers[_below(random, len(task.takers))]
    if not _write_move(task, draft, trial, 0, partition, source, target):
        return 0
    if not is_exchange:
        return 1
    if draft.held_count[target] == 0:
        return 0
    back = draft.held[target, _below(random, draft.held_count[target])]
    return 2 if back != partition and _write_move(task, draft, trial, 1, back, target, source) else 0


@compiled
def _write_handover(task: Task, draft: Draft, trial: Trial, partition: int, slot: int) -> int:
    """Write that the follower in `slot` leads; the partitions that it changes: none, where a rule forbids it."""
    rows = draft.rows
    if slot == 0 or not task.may_lead[rows[partition, slot]] or not task.may_give[rows[partition, 0]]:
        return 0
    _write(trial, 0, partition, rows)
    trial.rows[0, 0], trial.rows[0, slot] = rows[partition, slot], rows[partition, 0]
    return 1


@compiled
def _draw_return(task: Task, draft: Draft, trial: Trial, random: np.random.Generator, changed_count: int) -> int:
    """Write that one replica is back where it was at first, or the whole row if all replicas are there."""
    if changed_count == 0:
        return 0
    partition = trial.changed[_below(random, changed_count)]
    rows, original = draft.rows, task.original
    away = _foreign_count(rows, original, partition)
    if away:
        number = _below(random, away)
        source, home = _foreign(rows, original, partition, number), _foreign(original, rows, partition, number)
        return 1 if _write_move(task, draft, trial, 0, partition, source, home) else 0
    leader, first = rows[partition, 0], original[partition, 0]
    if leader == first and _is_same(rows, partition, original, partition):
        return 0
    if leader != first and not (task.may_lead[first] and task.may_give[leader]):
        return 0
    _write(trial, 0, partition, original)
    return 1


@compiled
def _write(trial: Trial, at: int, partition: int, rows: Ints) -> None:
    trial.partitions[at] = partition
    for slot in range(rows.shape[1]):
        trial.rows[at, slot] = rows[partition, slot]


@compiled
def _write_move(task: Task, draft: Draft, trial: Trial, at: int, partition: int, source: int, target: int) -> bool:
    """Write the movement of a replica, if all rules but capacity allow it."""
    rows, racks = draft.rows, task.racks
    if not task.is_movable[partition]:
        return False
    is_copied = not _holds(task.original, partition, target)
    if is_copied and draft.inflow[target] + task.sizes[partition] > task.room[target]:
        return False
    if not task.may_take[target] or not task.may_give[source] or draft.held_count[target] == draft.held.shape[1]:
        return False
    there = here = 0
    for slot in range(rows.shape[1]):
        broker = rows[partition, slot]
        if broker == target:
            return False
        if broker != NO_BROKER and broker != source:
            there += racks[broker] == racks[target]
            here += racks[broker] == racks[source]
    if there > here and racks[target] != racks[source]:
        return False
    _write(trial, at, partition, rows)
    for slot in range(rows.shape[1]):
        if rows[partition, slot] == source:
            trial.rows[at, slot] = target
    return True


@compiled
def _judge(task: Task, draft: Draft, trial: Trial, count: int) -> tuple[float, int]:
    """(By how much the cost would rise, brokers whose loads would change); writes what these would be."""
    rise, brokers = 0.0, 0
    for at in range(count):
        partition = trial.partitions[at]
        for slot in range(trial.rows.shape[1]):
            before, after = draft.rows[partition, slot], trial.rows[at, slot]
            if before != after:
                loads = task.following if slot else task.leading
                brokers = _add(draft, trial, brokers, before, loads, partition, -1.0)
                brokers = _add(draft, trial, brokers, after, loads, partition, 1.0)
        trial.prices[at] = _price(task, partition, trial.rows, at)
        rise += trial.prices[at] - draft.prices[partition]
    for at in range(brokers):
        broker = trial.brokers[at]
        trial.costs[at] = _cost(task, broker, trial.loads, at)
        rise += trial.costs[at] - draft.costs[broker]
    return rise, brokers


@compiled
def _add(draft: Draft, trial: Trial, brokers: int, broker: int, loads: Floats, partition: int, sign: float) -> int:
    """Add a partition's load to what `broker` would carry; how many brokers the trial concerns then."""
    at = 0
    while at < brokers and trial.brokers[at] != broker:
        at += 1
    if at == brokers:
        trial.brokers[at] = broker
        for column in range(loads.shape[1]):
            trial.loads[at, column] = draft.loads[broker, column]
        brokers += 1
    for column in range(loads.shape[1]):
        trial.loads[at, column] += sign * loads[partition, column]
    return brokers


@compiled
def _is_possible(task: Task, draft: Draft, trial: Trial, brokers: int) -> bool:
    """Whether no broker that would be loaded more would be above its capacity."""
    for at in range(brokers):
        broker = trial.brokers[at]
        for column in range(draft.loads.shape[1]):
            load = trial.loads[at, column]
            if load > task.ceilings[broker, column] and load > draft.loads[broker, column]:
                return False
    return True


@compiled
def _accept(task: Task, draft: Draft, trial: Trial, count: int, brokers: int) -> None:
    for at in range(brokers):
        broker = trial.brokers[at]
        draft.costs[broker] = trial.costs[at]
        for column in range(draft.loads.shape[1]):
            draft.loads[broker, column] = trial.loads[at, column]
    for at in range(count):
        partition = trial.partitions[at]
        for slot in range(trial.rows.shape[1]):
            old, new = draft.rows[partition, slot], trial.rows[at, slot]
            if old != NO_BROKER and not _holds(trial.rows, at, old):
                _drop(draft, old, partition)
                if not _holds(task.original, partition, old):
                    draft.inflow[old] -= task.sizes[partition]
            if new != NO_BROKER and not _holds(draft.rows, partition, new):
                draft.held[new, draft.held_count[new]] = partition
                draft.held_count[new] += 1
                if not _holds(task.original, partition, new):
                    draft.inflow[new] += task.sizes[partition]
        for slot in range(trial.rows.shape[1]):
            draft.rows[partition, slot] = trial.rows[at, slot]
        draft.prices[partition] = trial.prices[at]


@compiled
def _drop(draft: Draft, broker: int, partition: int) -> None:
    place = 0
    while draft.held[broker, place] != partition:
        place += 1
    draft.held_count[broker] -= 1
    draft.held[broker, place] = draft.held[broker, draft.held_count[broker]]


@compiled
def _cost(task: Task, broker: int, loads: Floats, at: int) -> float:
    """Cost of `broker` with the loads of row `at`."""
    total = 0.0
    for column in range(loads.shape[1]):
        over = (loads[at, column] - task.limits[broker, column]) * task.weights[broker, column]
        if over > 0.0:
            total += task.limit_part[0] * (over + over * over)
            over = (loads[at, column] - task.lines[broker, column]) * task.weights[broker, column]
            if over > 0.0:
                total += over + over * over
    return total


@compiled
def _price(task: Task, partition: int, rows: Ints, at: int) -> float:
    """Price of giving a partition the row `at`, in fair shares of disk."""
    copies, is_same = 0, True
    for slot in range(rows.shape[1]):
        broker = rows[at, slot]
        if broker != task.original[partition, slot]:
            is_same = False
            copies += not _holds(task.original, partition, broker)
    return 0.0 if is_same else task.change_price[partition] + copies * task.copy_price[partition]


@compiled
def _changed(task: Task, draft: Draft, changed: Indices) -> int:
    """Write the movable partitions that differ from what they were at first; how many they are."""
    count = 0
    for at in range(len(task.movable)):
        partition = task.movable[at]
        if not _is_same(draft.rows, partition, task.original, partition):
            changed[count] = partition
            count += 1
    return count


@compiled
def _above_lines(task: Task, draft: Draft, worst: Indices) -> int:
    """Write the brokers that are above a line of theirs; how many they are."""
    count = 0
    for broker in range(len(draft.loads)):
        for column in range(draft.loads.shape[1]):
            is_above = draft.loads[broker, column] > task.lines[broker, column] + ROUNDING
            if is_above and task.weights[broker, column] > 0.0:
                worst[count] = broker
                count += 1
                break
    return count


@compiled
def _width(rows: Ints, at: int) -> int:
    """Replicas in a row."""
    width: int = rows.shape[1]
    while rows[at, width - 1] == NO_BROKER:
        width -= 1
    return width


@compiled
def _holds(rows: Ints, at: int, broker: int) -> bool:
    for slot in range(rows.shape[1]):  # noqa: SIM110 - numba compiles no generator
        if rows[at, slot] == broker:
            return True
    return False


@compiled
def _is_same(rows: Ints, at: int, others: Ints, other: int) -> bool:
    for slot in range(rows.shape[1]):  # noqa: SIM110 - the same
        if rows[at, slot] != others[other, slot]:
            return False
    return True


@compiled
def _foreign_count(rows: Ints, others: Ints, at: int) -> int:
    """Brokers of row `at` that its other row does not hold."""
    count = 0
    for slot in range(rows.shape[1]):
        if rows[at, slot] != NO_BROKER and not _holds(others, at, rows[at, slot]):
            count += 1
    return count


@compiled
def _foreign(rows: Ints, others: Ints, at: int, number: int) -> int:
    """One of them, by number."""
    for slot in range(rows.shape[1]):
        if rows[at, slot] != NO_BROKER and not _holds(others, at, rows[at, slot]):
            if number == 0:
                return int(rows[at, slot])
            number -= 1
    return NO_BROKER
