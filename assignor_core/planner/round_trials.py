"""The trials of a round: small changes of a placement at random, in machine code, millions of them.

**Objective.** All is in fair shares. The cost of a placement is what it copies against the first placement, a small
price for each changed partition, and for each broker and column of load a penalty. A load costs nothing up to the
target less `width`. From there the marginal price rises evenly to `slope` at the target, and stays there. In late
rounds the square of what is above the target comes on top, so the worst broker counts most. What is above a broker's
own limit but below the target (where a heavy partition raises the target of all) costs at most `even_slope`.

**Trial.** A trial takes some load from a source broker s and brings it to a target broker t, so two rows of loads
decide. There are six kinds:

1. *hand over*: s gives the leadership of a partition to t, which follows;
2. *move*: s gives a replica to the cheapest of a few brokers;
3. *exchange*: s and t exchange two replicas;
4. *exchange leaderships*: s and t lead a partition each that the other follows, and both leaderships change;
5. *send home*: what has moved goes back, alone or for a replica of its home broker. Copies that are no longer needed
   are refunds, so the search corrects itself without paying twice;
6. *choose an heir*: another follower takes over once the leader is offline. Only with failover headroom, whose price
   any trial may change (`failover_trials`).

The source is drawn among brokers whose loads cost something, mostly. What the source gains is worked out first, and
most trials end there, after some 30 ns.

**Acceptance** is threshold accepting (Dueck and Scheuer, 1990): a trial is accepted if the cost rises by no more than a
threshold, which falls to nothing by the end of the round.

**Walls.** Hard rules are no prices. A trial that breaks one is refused: two replicas on a broker, racks more crowded,
brokers that may not take, give or lead, or are outside the set of a topic, capacities, room on disks, budgets, and no
broker further above its limit than the worst was at first. A replica that has arrived on a broker during the search may
leave it again in any case, and a replica may always go home to a broker in use: neither is part of the plan. Only a
broker outside the set of its topic is no home.

**Same bytes on every machine.** Loads lie on a grid, so sums are exact; all else is computed in one order, without
`fastmath`. Random numbers are those of an own generator (xorshift64*, Vigna 2016) with a fixed start, and trials are
counted, never timed.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.compiled import compiled
from assignor_core.planner.failover_trials import (
    accepts_failover,
    failover_gain_most,
    has_other_heir,
    heir_of,
    try_leader,
    try_replica,
)
from assignor_core.planner.replica_rows import copies_more, holds, number_th, slot_of
from assignor_core.planner.round_task import RoundState, RoundTask

HAND_OVER, MOVE, EXCHANGE, EXCHANGE_LEADERS, NOTHING, CHOOSE_HEIR = 0, 1, 2, 3, 4, 5
"""Kinds of trials; one that goes home is one of the first three, or the last."""
HOME_FROM, HOME_FOR_ANOTHER_FROM = 80, 90
"""Dice of 100 from the first number on send something home, and from the second one on for another replica."""
HAND_OVERS, EXCHANGES_OF_LEADERS, MOVES = 13, 18, 50
"""Dice of 100 below these numbers hand over a leadership, exchange two, or move a replica; others exchange replicas."""
ANYWHERE = 8
"""One of so many trials begins at any broker, whatever its loads cost."""
HEIRS = 4
"""With failover headroom, one of so many trials that do not go home chooses another heir."""
PARTNERS = 6
"""Partitions of the other broker among which an exchange of leaderships seeks one."""


class RoundStep(NamedTuple):
    """Prices and trials of one round; words as in the docstring of the module."""

    slope: float
    width: float
    even_slope: float
    square: float
    copy_part: float
    """Part of the price of copies."""
    change_price: float
    threshold: float
    trials: int
    guided: float
    """Part of the dual's prices."""
    idle_share: float
    """The round ends if a tenth of its trials accepts no more than this share."""
    targets_tried: int
    heavier_percent: int
    """Percent of the trials that take the heavier of two replicas."""


@compiled
def price_loads(task: RoundTask, step: RoundStep, state: RoundState) -> None:
    """Write what the loads of each broker cost."""
    for broker in range(len(state.loads)):
        state.cost[broker] = _cost(task, step, broker, state.loads, broker)


@compiled
def run_round(task: RoundTask, step: RoundStep, state: RoundState) -> int:
    """Make the trials of one round; returns how many were accepted."""
    refresh, tenth = 64 + len(state.cost) // 4, 1 + step.trials // 10
    accepted, before, priced = 0, 0, 0
    for number in range(step.trials):
        if number % refresh == 0:
            priced = _write_priced(task, state)
            has_wish = len(task.lead_price) > 1 or len(task.replicas_most) > 1 or len(task.zones) > 0
            if priced == 0 and state.totals[0] == 0.0 and not has_wish:
                break
        if number % tenth == 0 and number > 0:
            if accepted - before <= step.idle_share * tenth and step.idle_share > 0.0:
                break
            before = accepted
        left = 1.0 - number / step.trials
        threshold = step.threshold * left * left
        kind, p, s, t = _draw(task, step, state, priced)
        if kind == MOVE:
            accepted += _move(task, step, state, threshold, p, s, t)
        elif kind == EXCHANGE:
            accepted += _exchange(task, step, state, threshold, p, s, t)
        elif kind == CHOOSE_HEIR:
            accepted += _choose_heir(task, step, state, threshold, p, t)
        elif kind != NOTHING:
            accepted += _hand_over(task, step, state, threshold, p, s, t, kind == EXCHANGE_LEADERS)
    return accepted


@compiled
def _below(state: RoundState, count: int) -> int:
    """A random number below `count`."""
    x = state.random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state.random[0] = x
    high = (x * np.uint64(2685821657736338717)) >> np.uint64(33)
    return int(np.int64((high * np.uint64(count)) >> np.uint64(31)))


@compiled
def _write_priced(task: RoundTask, state: RoundState) -> int:
    """Write the brokers whose loads cost something and that hold anything; returns how many they are."""
    count = 0
    for broker in range(len(state.cost)):
        is_priced = state.cost[broker] > 0.0 or state.failover[broker] > 0.0
        if is_priced and task.may_give[broker] and state.held_count[broker] > 0:
            state.priced[count] = broker
            count += 1
    return count


@compiled
def _draw(task: RoundTask, step: RoundStep, state: RoundState, priced: int) -> tuple[int, int, int, int]:
    """(kind, partition, source, target) of a trial; the target of a movement may be open (NO_BROKER)."""
    dice, rows = _below(state, 100), state.rows
    if dice >= HOME_FROM and state.totals[0] > 0.0:
        return _draw_home(task, state, dice >= HOME_FOR_ANOTHER_FROM)
    if priced > 0 and _below(state, ANYWHERE) > 0:
        s = int(state.priced[_below(state, priced)])
        if state.held_count[s] == 0:
            return NOTHING, 0, 0, 0
        p = _held_by(task, step, state, s)
    else:
        p = _below(state, len(rows))
        s = int(rows[p, _below(state, rows.shape[1])])
        if s == NO_BROKER:
            return NOTHING, 0, 0, 0
    if not task.is_movable[p]:
        return NOTHING, 0, 0, 0
    if len(task.zones) > 0 and _below(state, HEIRS) == 0:
        return CHOOSE_HEIR, p, int(rows[p, 0]), int(rows[p, _below(state, rows.shape[1])])
    if dice < EXCHANGES_OF_LEADERS:
        # Whichever of its replicas was drawn, the leader gives.
        s = int(rows[p, 0])
        t = int(rows[p, _below(state, rows.shape[1])])
        kind = HAND_OVER if dice < HAND_OVERS else EXCHANGE_LEADERS
        return (NOTHING if s == t or t == NO_BROKER else kind), p, s, t
    if task.takers_begin[task.set_of[p]] == task.takers_begin[task.set_of[p] + 1]:
        return NOTHING, 0, 0, 0
    if dice < MOVES:
        return MOVE, p, s, NO_BROKER
    t = _taker(task, state, p)
    return (NOTHING if s == t else EXCHANGE), p, s, t


@compiled
def _taker(task: RoundTask, state: RoundState, p: int) -> int:
    """A random broker that may take replicas of p; there is one."""
    begin, end = task.takers_begin[task.set_of[p]], task.takers_begin[task.set_of[p] + 1]
    return int(task.takers[begin + _below(state, end - begin)])


@compiled
def _held_by(task: RoundTask, step: RoundStep, state: RoundState, broker: int) -> int:
    """A random partition of `broker`, which holds some; often the heavier of two, as heavy ones fit in few places."""
    count = state.held_count[broker]
    p = int(state.held[broker, _below(state, count)])
    if _below(state, 100) < step.heavier_percent:
        other = int(state.held[broker, _below(state, count)])
        if task.bulk[other] > task.bulk[p]:
            return other
    return p


@compiled
def _draw_home(task: RoundTask, state: RoundState, is_exchange: bool) -> tuple[int, int, int, int]:
    """A trial that sends a replica or a leadership home."""
    p = int(state.changed[_below(state, int(state.totals[0]))])
    if not task.is_movable[p]:
        return NOTHING, 0, 0, 0
    rows, original, away = state.rows, task.original, int(state.foreign[p])
    if away == 0 and rows[p, 0] == original[p, 0]:
        return CHOOSE_HEIR, p, int(rows[p, 0]), heir_of(task, original, p)
    if away == 0:
        return HAND_OVER, p, int(rows[p, 0]), int(original[p, 0])
    s = number_th(rows, original, p, _below(state, away))
    t = number_th(original, rows, p, _below(state, away))
    return (EXCHANGE if is_exchange else MOVE), p, s, t


@compiled
def _hand_over(
    task: RoundTask, step: RoundStep, state: RoundState, threshold: float, p: int, s: int, t: int, for_another: bool
) -> int:
    """s, which leads p, gives the leadership to t, which follows; `for_another` back for one that t leads. Returns 1 if
    that was accepted.
    """
    if not _may_lead(task, p, s, t):
        return 0
    q = NO_BROKER
    if for_another:
        q = _led_by(task, state, t, s)
        if q == NO_BROKER:
            return 0
    for column in range(state.loads.shape[1]):
        state.delta[column] = task.leading[p, column] - task.following[p, column]
    rise = _price_rise(task, step, state, p, 0, t)
    has_spread = len(task.replicas_most) > 1
    if has_spread and (q == NO_BROKER or task.topic_of[p] != task.topic_of[q]):
        rise += _spread_rise(task, state, p, s, t, False, True)
    movements = int(state.changed_place[p] == NO_BROKER)
    if q != NO_BROKER:
        for column in range(state.loads.shape[1]):
            state.delta[column] -= task.leading[q, column] - task.following[q, column]
        rise += _price_rise(task, step, state, q, 0, s)
        if has_spread and task.topic_of[p] != task.topic_of[q]:
            rise += _spread_rise(task, state, q, t, s, False, True)
        movements += int(state.changed_place[q] == NO_BROKER)
    most = threshold + failover_gain_most(task, state)
    cost_s = _cost_of_source(task, step, state, s)
    rise += cost_s - state.cost[s]
    if rise - state.cost[t] > most or not _fits(task, state, s, t):
        return 0
    cost_t = _cost(task, step, t, state.after, 1)
    rise += cost_t - state.cost[t]
    if rise > most or not affords(task.budget, state.totals, movements, 0.0):
        return 0
    if len(task.zones) > 0:
        try_leader(state, 0, p, t)
        if q != NO_BROKER:
            try_leader(state, 1, q, s)
        if not accepts_failover(task, state, threshold - rise, step.change_price, p, q, s, t):
            return 0
    _take_loads(state, s, t, cost_s, cost_t)
    _swap_leader(task, state, p, t)
    if q != NO_BROKER:
        _swap_leader(task, state, q, s)
    return 1


@compiled
def _move(task: RoundTask, step: RoundStep, state: RoundState, threshold: float, p: int, s: int, given: int) -> int:
    """s gives its replica of p to the broker `given`, or to the cheapest of some; returns 1 if that was accepted."""
    if not _may_leave(task, p, s):
        return 0
    slot = slot_of(state.rows, p, s)
    _write_replica(task, state, p, slot, s)
    cost_s = _cost_of_source(task, step, state, s)
    base, most = cost_s - state.cost[s], threshold + failover_gain_most(task, state)
    # No broker's cost falls by what it takes, so what the source gains must pay for the copy.
    has_spread = len(task.replicas_most) > 1 and task.topic_of[p] > 0
    if (
        given == NO_BROKER
        and not has_spread
        and holds(task.original, p, s)
        and base + step.copy_part * task.copy_price[p] > most
    ):
        return 0
    best, chosen, cost_chosen, copies_chosen = most, NO_BROKER, 0.0, 0
    for _ in range(step.targets_tried if given == NO_BROKER else 1):
        t = given if given != NO_BROKER else _taker(task, state, p)
        if t == s or not _may_arrive(task, state, p, s, t):
            continue
        copies = copies_more(task.original, p, s, t)
        rise = base + _price_rise(task, step, state, p, copies, _leader_then(state, p, slot, t))
        if has_spread:
            rise += _spread_rise(task, state, p, s, t, True, slot == 0)
        if rise > best or not _fits(task, state, s, t):
            continue
        cost_t = _cost(task, step, t, state.after, 1)
        rise += cost_t - state.cost[t]
        if rise <= best:
            best, chosen, cost_chosen, copies_chosen = rise, t, cost_t, copies
    if chosen == NO_BROKER:
        return 0
    movements = int(state.changed_place[p] == NO_BROKER)
    if not affords(task.budget, state.totals, movements, copies_chosen * task.sizes[p]):
        return 0
    for column in range(state.loads.shape[1]):
        state.after[1, column] = state.loads[chosen, column] + state.delta[column]
    if len(task.zones) > 0:
        try_replica(state, 0, p, slot, chosen)
        if not accepts_failover(task, state, threshold - best, step.change_price, p, NO_BROKER, s, chosen):
            return 0
    _take_loads(state, s, chosen, cost_s, cost_chosen)
    _shift_replica(task, state, p, slot, s, chosen)
    return 1


@compiled
def _exchange(task: RoundTask, step: RoundStep, state: RoundState, threshold: float, p: int, s: int, t: int) -> int:
    """s gives its replica of p to t for a replica of t, drawn here; returns 1 if that was accepted."""
    if state.held_count[t] == 0:
        return 0
    q = _held_by(task, step, state, t)
    if p == q or not task.is_movable[q] or not _may_leave(task, p, s) or not _may_leave(task, q, t):
        return 0
    if not _may_arrive(task, state, p, s, t) or not _may_arrive(task, state, q, t, s):
        return 0
    slot, other = slot_of(state.rows, p, s), slot_of(state.rows, q, t)
    _write_replica(task, state, p, slot, s)
    _subtract_replica(task, state, q, other, t)
    copies_p = copies_more(task.original, p, s, t)
    copies_q = copies_more(task.original, q, t, s)
    rise = _price_rise(task, step, state, p, copies_p, _leader_then(state, p, slot, t))
    rise += _price_rise(task, step, state, q, copies_q, _leader_then(state, q, other, s))
    if len(task.replicas_most) > 1:
        is_one_topic = task.topic_of[p] == task.topic_of[q]
        is_swap_of_leaders = is_one_topic and slot == 0 and other == 0
        rise += _spread_rise(task, state, p, s, t, not is_one_topic, slot == 0 and not is_swap_of_leaders)
        rise += _spread_rise(task, state, q, t, s, not is_one_topic, other == 0 and not is_swap_of_leaders)
    most = threshold + failover_gain_most(task, state)
    if rise - state.cost[s] - state.cost[t] > most:
        return 0
    cost_s = _cost_of_source(task, step, state, s)
    rise += cost_s - state.cost[s]
    if rise - state.cost[t] > most or not _fits(task, state, s, t):
        return 0
    cost_t = _cost(task, step, t, state.after, 1)
    rise += cost_t - state.cost[t]
    if rise > most:
        return 0
    movements = int(state.changed_place[p] == NO_BROKER) + int(state.changed_place[q] == NO_BROKER)
    if not affords(task.budget, state.totals, movements, copies_p * task.sizes[p] + copies_q * task.sizes[q]):
        return 0
    if len(task.zones) > 0:
        try_replica(state, 0, p, slot, t)
        try_replica(state, 1, q, other, s)
        if not accepts_failover(task, state, threshold - rise, step.change_price, p, q, s, t):
            return 0
    _take_loads(state, s, t, cost_s, cost_t)
    _shift_replica(task, state, p, slot, s, t)
    _shift_replica(task, state, q, other, t, s)
    return 1


@compiled
def _choose_heir(task: RoundTask, step: RoundStep, state: RoundState, threshold: float, p: int, t: int) -> int:
    """The follower t takes over p once the zone of the leader is offline; returns 1 if that was accepted."""
    leader = int(state.rows[p, 0])
    if t == NO_BROKER or not _may_lead(task, p, leader, t) or heir_of(task, state.rows, p) == t:
        return 0
    if task.zones[t] == NO_BROKER or task.zones[t] == task.zones[leader]:
        return 0
    if not affords(task.budget, state.totals, int(state.changed_place[p] == NO_BROKER), 0.0):
        return 0
    rise = _price_rise(task, step, state, p, 0, leader)
    slot = slot_of(state.rows, p, t)
    try_replica(state, 0, p, slot, int(state.rows[p, 1]))
    state.tried[0, 1] = t
    if not accepts_failover(task, state, threshold - rise, step.change_price, p, NO_BROKER, NO_BROKER, NO_BROKER):
        return 0
    state.rows[p, slot], state.rows[p, 1] = state.rows[p, 1], t
    _list_changed(task, state, p)
    return 1


@compiled
def _led_by(task: RoundTask, state: RoundState, leader: int, follower: int) -> int:
    """A movable partition that `leader` leads and `follower` follows, and whose leadership may change; NO_BROKER if a
    few that are drawn are none.
    """
    for _ in range(PARTNERS if state.held_count[leader] > 0 else 0):
        q = int(state.held[leader, _below(state, state.held_count[leader])])
        if state.rows[q, 0] == leader and task.is_movable[q] and holds(state.rows, q, follower):
            return q if _may_lead(task, q, leader, follower) else NO_BROKER
    return NO_BROKER


@compiled
def _may_lead(task: RoundTask, p: int, old: int, new: int) -> bool:
    """Whether the leadership of p may go from `old` to `new`, by all rules but capacity and budgets."""
    return bool(task.may_lead[new]) and (bool(task.may_give[old]) or bool(task.original[p, 0] != old))


@compiled
def _may_leave(task: RoundTask, p: int, s: int) -> bool:
    """Whether the replica of p may leave s."""
    return bool(task.may_give[s]) or not holds(task.original, p, s)


@compiled
def _may_arrive(task: RoundTask, state: RoundState, p: int, s: int, t: int) -> bool:
    """Whether the replica of p on s may go to t, by all rules but capacity and budgets."""
    is_home = holds(task.original, p, t)
    if not (task.may_take[t] or (is_home and task.may_hold[t])) or state.held_count[t] >= state.held.shape[1]:
        return False
    if not is_home and state.inflow[t] + task.sizes[p] > task.room[t]:
        return False
    if task.stays_in_racks[p] and task.racks[t] != task.racks[s]:
        return False
    if not task.members[task.set_of[p], t]:
        return False
    there, here = 0, 0
    for slot in range(state.rows.shape[1]):
        broker = state.rows[p, slot]
        if broker == t:
            return False
        if broker != NO_BROKER and broker != s:
            there += task.racks[broker] == task.racks[t]
            here += task.racks[broker] == task.racks[s]
    return there <= here


@compiled
def _fits(task: RoundTask, state: RoundState, s: int, t: int) -> bool:
    """Whether neither broker would carry more than it may; writes the loads of t. Who carries too much may shed."""
    for column in range(state.loads.shape[1]):
        delta = state.delta[column]
        after = state.loads[t, column] + delta
        state.after[1, column] = after
        if delta > 0.0 and after > task.most[t, column]:
            return False
        if delta < 0.0 and state.after[0, column] > task.most[s, column]:
            return False
    return True


@compiled
def affords(budget: Floats, totals: Floats, movements: int, copied: float) -> bool:
    """Whether the budgets allow so many changed partitions and copied bytes more than there are (`totals`)."""
    if movements > 0 and totals[0] + movements > budget[0]:
        return False
    return bool(copied <= 0.0 or totals[1] + copied <= budget[1])


@compiled
def _cost(task: RoundTask, step: RoundStep, broker: int, loads: Floats, at: int) -> float:
    """What the loads in row `at` cost on `broker`."""
    total = 0.0
    for column in range(loads.shape[1]):
        inverse = task.inverse[broker, column]
        near = (loads[at, column] - task.limit[broker, column]) * inverse + step.width
        if near > 0.0 and inverse > 0.0:
            over = (loads[at, column] - task.target[broker, column]) * inverse
            full = step.slope + step.guided * task.dual_price[broker, column]
            is_raised = (task.target[broker, column] - task.limit[broker, column]) * inverse > 1e-6
            slope = min(step.even_slope, full) if is_raised else full
            part = slope * near * near / (2.0 * step.width) if near < step.width else slope * (near - 0.5 * step.width)
            if over > 0.0:
                part += (full - slope) * over + step.square * over * over
            total += task.weight[column] * part
    return total


@compiled
def _cost_of_source(task: RoundTask, step: RoundStep, state: RoundState, s: int) -> float:
    """What the loads of s cost without `delta`; writes these loads."""
    for column in range(state.loads.shape[1]):
        state.after[0, column] = state.loads[s, column] - state.delta[column]
    return _cost(task, step, s, state.after, 0)


@compiled
def _price_rise(task: RoundTask, step: RoundStep, state: RoundState, p: int, copies: int, leader: int) -> float:
    """By how much the price of p rises with so many copies more and this leader."""
    is_changed = state.foreign[p] + copies > 0 or leader != task.original[p, 0]
    change = int(is_changed) - int(state.changed_place[p] != NO_BROKER)
    rise: float = step.change_price * change + step.copy_part * task.copy_price[p] * copies
    prices, group = task.lead_price, task.lead_group[p]
    rise += prices[group, leader] - prices[group, state.rows[p, 0]]
    return rise


@compiled
def _spread_rise(
    task: RoundTask, state: RoundState, p: int, s: int, t: int, has_replica: bool, has_leader: bool
) -> float:
    """By how much the price of an uneven topic rises if a replica of p, its leadership, or both go from s to t."""
    g = task.topic_of[p]
    if g == 0:
        return 0.0
    rise = 0.0
    if has_replica:
        rise += int(state.topic_replicas[g, t] >= task.replicas_most[g, t]) * task.spread_prices[0]
        rise -= int(state.topic_replicas[g, s] > task.replicas_most[g, s]) * task.spread_prices[0]
    if has_leader:
        rise += int(state.topic_leaders[g, t] >= task.leaders_most[g, t]) * task.spread_prices[0]
        rise -= int(state.topic_leaders[g, s] > task.leaders_most[g, s]) * task.spread_prices[0]
        rise -= int(state.topic_leaders[g, t] < task.leaders_least[g, t]) * task.spread_prices[1]
        rise += int(state.topic_leaders[g, s] <= task.leaders_least[g, s]) * task.spread_prices[1]
    return rise


@compiled
def _leader_then(state: RoundState, p: int, slot: int, t: int) -> int:
    """Who leads p if the replica in `slot` goes to t."""
    return t if slot == 0 else int(state.rows[p, 0])


@compiled
def _write_replica(task: RoundTask, state: RoundState, p: int, slot: int, broker: int) -> None:
    """Write into `delta` what the replica of p in `slot`, on `broker`, carries."""
    for column in range(state.loads.shape[1]):
        state.delta[column] = task.following[p, column] if slot > 0 else task.leading[p, column]
    for at in range(task.read_begin[p], task.read_begin[p + 1]):
        if task.read_racks[at] == task.racks[broker]:
            for column in range(state.loads.shape[1]):
                state.delta[column] += task.read_loads[at, column]


@compiled
def _subtract_replica(task: RoundTask, state: RoundState, q: int, slot: int, broker: int) -> None:
    """Take out of `delta` what the replica of q in `slot`, on `broker`, carries."""
    for column in range(state.loads.shape[1]):
        state.delta[column] -= task.following[q, column] if slot > 0 else task.leading[q, column]
    for at in range(task.read_begin[q], task.read_begin[q + 1]):
        if task.read_racks[at] == task.racks[broker]:
            for column in range(state.loads.shape[1]):
                state.delta[column] -= task.read_loads[at, column]


@compiled
def _take_loads(state: RoundState, s: int, t: int, cost_s: float, cost_t: float) -> None:
    """Give both brokers their loads and costs of `after`."""
    for column in range(state.loads.shape[1]):
        state.loads[s, column] = state.after[0, column]
        state.loads[t, column] = state.after[1, column]
    state.cost[s], state.cost[t] = cost_s, cost_t


@compiled
def _swap_leader(task: RoundTask, state: RoundState, p: int, new: int) -> None:
    """The follower `new` leads p, and the leader takes its slot."""
    slot = slot_of(state.rows, p, new)
    old = state.rows[p, 0]
    state.rows[p, 0], state.rows[p, slot] = new, old
    if task.topic_of[p] > 0:
        state.topic_leaders[task.topic_of[p], old] -= 1
        state.topic_leaders[task.topic_of[p], new] += 1
    _list_changed(task, state, p)


@compiled
def _shift_replica(task: RoundTask, state: RoundState, p: int, slot: int, old: int, new: int) -> None:
    """The replica of p in `slot` goes from `old` to `new`: lists, inflow and totals follow."""
    place = 0
    while state.held[old, place] != p:
        place += 1
    state.held_count[old] -= 1
    state.held[old, place] = state.held[old, state.held_count[old]]
    state.held[new, state.held_count[new]] = p
    state.held_count[new] += 1
    if not holds(task.original, p, old):
        state.inflow[old] -= task.sizes[p]
        state.totals[1] -= task.sizes[p]
        state.foreign[p] -= 1
    if not holds(task.original, p, new):
        state.inflow[new] += task.sizes[p]
        state.totals[1] += task.sizes[p]
        state.foreign[p] += 1
    state.rows[p, slot] = new
    g = task.topic_of[p]
    if g > 0:
        state.topic_replicas[g, old] -= 1
        state.topic_replicas[g, new] += 1
        if slot == 0:
            state.topic_leaders[g, old] -= 1
            state.topic_leaders[g, new] += 1
    _list_changed(task, state, p)


@compiled
def _list_changed(task: RoundTask, state: RoundState, p: int) -> None:
    """Put p into the list of changed partitions, or take p out of it."""
    is_changed = state.foreign[p] > 0 or state.rows[p, 0] != task.original[p, 0]
    is_changed = is_changed or (len(task.zones) > 0 and has_other_heir(task, state.rows, p, p))
    place = state.changed_place[p]
    if is_changed and place == NO_BROKER:
        end = int(state.totals[0])
        state.changed_place[p] = end
        state.changed[end] = p
        state.totals[0] += 1.0
    elif not is_changed and place != NO_BROKER:
        state.totals[0] -= 1.0
        last = state.changed[int(state.totals[0])]
        state.changed_place[last] = place
        state.changed[place] = last
        state.changed_place[p] = NO_BROKER
