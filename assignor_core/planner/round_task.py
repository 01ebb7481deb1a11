"""What trials of a round read and change, as plain arrays for compiled code: walls, targets, prices; and the placement.

`RoundTask` stays as it is during a search: where replicas were at first, what each replica carries, which rules are
walls, and what a broker's load may be. `RoundState` is the placement that trials change, with all that follows from it.

Hard rules become walls. A broker that may not take, give or lead has a flag, and so has one outside the set of brokers
that a topic lives on. Capacities, and the rule that no broker
ends further above its limit than the worst was at first, become `most`; room on disks and a limit of inflow become
`room`. Targets are the band on a fair share, or on what is proven for any placement where that is higher.

Consumers that read in their racks (KIP-392) read from a replica there, whoever leads. A replica that moves within the
rack takes over what they read, and what racks without a replica read goes with the leadership. So a partition that
followers serve is free to change within its racks, and `read_loads` has what each rack reads of it. Only a partition
with two replicas in a rack that reads is pinned: there a new leader would change what the other replica serves.

Loads lie on a grid (`placement`), so sums are exact in any order. Nothing here changes a placement of the search.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assignor_core.broker_sets import any_broker
from assignor_core.load import NO_BROKER, Floats, Ints, in_rack
from assignor_core.planner.compiled import as_compiled_reads
from assignor_core.planner.placement import Flags, Indices, Placement, heirs, on_grid
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import Problem, Search
from assignor_core.planner.topic_spread import counts_by_topic
from assignor_core.planner.tuning import Tuning
from assignor_core.resources import Resource

HELD_SPARE = 64
"""A broker may hold twice as many partitions as the fullest does at first, and so many more."""
TOUCHED_MAX = 10
"""Brokers that a trial concerns: two, and of two partitions the leader and the heir, as they are and would be."""
SEED = np.uint64(0x9E3779B97F4A7C15)
"""Each sequence of random numbers starts at this state of the generator."""


class RoundTask(NamedTuple):
    """What stays during a search: B brokers, P partitions of up to R replicas, C columns of load."""

    original: Ints
    """P x R brokers at first, leader first, NO_BROKER behind the last."""
    leading: Floats
    """P x C load of the leader."""
    following: Floats
    """P x C load of a follower."""
    sizes: Floats
    """P bytes of one copy."""
    copy_price: Floats
    """P price of one copy, in fair shares of disk."""
    bulk: Floats
    """P largest part of a fair share that the leader carries of any load."""
    is_movable: Flags
    """P."""
    stays_in_racks: Flags
    """P: replicas move only within their racks."""
    read_begin: Indices
    """P + 1: consumers of racks `read_begin[p]` to `read_begin[p + 1]` read partition p in their racks."""
    read_racks: Ints
    """N racks that read."""
    read_loads: Floats
    """N x C load that a replica in the rack carries for them."""
    fixed: Floats
    """B x C load that no trial changes: what pinned partitions serve to consumers in their racks."""
    racks: Ints
    """B."""
    may_take: Flags
    """B: replicas may be copied there."""
    may_hold: Flags
    """B: replicas may go back there."""
    may_give: Flags
    """B: what was there at first may leave."""
    may_lead: Flags
    """B."""
    set_of: Indices
    """P: the row of `members` that holds for the partition."""
    members: Flags
    """K x B brokers that may hold partitions; all in the first row."""
    takers: Indices
    """Brokers that may take, of one set after the other."""
    takers_begin: Indices
    """K + 1: those of set k are `takers[takers_begin[k]]` to `takers[takers_begin[k + 1] - 1]`."""
    inverse: Floats
    """B x C, 1 over the fair share; 0 where there is none."""
    weight: Floats
    """C."""
    limit: Floats
    """B x C load that a broker should have at most."""
    target: Floats
    """B x C load that a plan is judged by, at least the limit."""
    most: Floats
    """B x C load that no trial exceeds."""
    room: Floats
    """B bytes that may be copied there."""
    budget: Floats
    """Most movements, most bytes."""
    lead_group: Indices
    """P: the row of `lead_price` that holds for the partition."""
    lead_price: Floats
    """K x B price of a leadership, in fair shares of disk; all 0 in the first row."""
    dual_price: Floats
    """B x C price of a fair share of load, by the dual; 0 where it is not used."""
    topic_of: Indices
    """P: the row of the next arrays that holds for the partition; 0 where its topic need not be spread."""
    replicas_most: Floats
    """G x B replicas of a topic that a broker should hold at most."""
    leaders_most: Floats
    """G x B leaders of a topic that a broker should have at most."""
    leaders_least: Floats
    """G x B leaders of a topic that a broker should have at least."""
    spread_prices: Floats
    """Price of one replica or leader more than it should be, and of one leader less."""
    zones: Indices
    """B: brokers with the same number go offline together, a dead one has NO_BROKER; empty where no failover headroom
    is asked for.
    """
    out_columns: Indices
    """W columns of bytes out."""
    usable: Floats
    """B x W bytes out that a broker may send with a zone offline."""
    failover_price: Floats
    """Price of a fair share of bytes out above that, as the only figure."""


class RoundState(NamedTuple):
    """A placement that trials change, and what follows from it; mutable arrays."""

    rows: Ints
    """P x R."""
    loads: Floats
    """B x C."""
    cost: Floats
    """B cost of the loads."""
    held: Ints
    """B x H partitions on each broker, in any order."""
    held_count: Indices
    """B."""
    changed: Indices
    """P: the partitions that are changed come first, in any order."""
    changed_place: Indices
    """P place in `changed`, or NO_BROKER."""
    foreign: Indices
    """P replicas on brokers that did not hold the partition at first."""
    inflow: Floats
    """B bytes copied to each broker."""
    totals: Floats
    """Movements, bytes copied."""
    priced: Indices
    """B: brokers whose loads cost something come first."""
    topic_replicas: Indices
    """G x B replicas of topics that should be spread."""
    topic_leaders: Indices
    """G x B."""
    inherited: Floats
    """B x Z x W bytes out that a broker takes over if a zone goes offline; empty without zones, as all that follows on
    failovers, which is for `failover_trials`.
    """
    inherited_most: Floats
    """B: no less than what the broker takes over from any zone, in fair shares."""
    failover: Floats
    """B fair shares above what the broker may send, summed up over zones."""
    failover_total: Floats
    """The sum of these, as the only figure."""
    tried: Ints
    """2 x R rows of a trial's partitions, as they would be."""
    tried_excess: Floats
    """What the brokers `touched` would have too much."""
    touched: Indices
    """Brokers that a trial concerns."""
    touched_count: Indices
    """How many these are, as the only figure."""
    delta: Floats
    """C load that a trial takes from one broker to the other."""
    after: Floats
    """2 x C loads of both then."""
    random: NDArray[np.uint64]
    """State of the generator of random numbers."""


def task_of(search: Search, targets: Floats, tuning: Tuning) -> RoundTask:
    """Walls, targets and prices of `search`, whose loads should end below `targets` (B x C)."""
    problem, placement, policy = search.problem, search.placement, search.problem.policy
    arrays, share, counts = problem.arrays, problem.share, problem.arrays.columns.counts
    disk = arrays.columns.of(Resource.DISK)
    # A disk above its capacity takes nothing, not even what is empty: sizes are from a moment before.
    has_disk = (placement.loads[:, disk] <= problem.ceiling[:, disk]).all(axis=1)
    may_take = problem.may_take & has_disk & (not policy.leaders_only)
    excess = problem.worst_excess(placement.loads)
    target = np.where(counts, problem.goal, np.maximum(targets, problem.limit))
    most = np.minimum(problem.ceiling, np.maximum(problem.limit + excess * share, target))
    most = np.where(counts, problem.ceiling, most)
    reads, (lead_group, lead_price) = _reads_of(placement), _lead_prices(problem, tuning)
    sets = arrays.sets or any_broker(len(share), len(problem.movable))
    takers = [np.flatnonzero(members & may_take) for members in sets.members]
    task = RoundTask(
        original=placement.original,
        leading=placement.leading + reads.led,
        following=placement.following,
        sizes=placement.disk_bytes,
        copy_price=price_of_copies(placement),
        bulk=_bulk(placement, share[:, ~counts]),
        is_movable=problem.may_balance & ~reads.is_pinned,
        stays_in_racks=(np.diff(reads.begin) > 0) | policy.keep_racks,
        read_begin=reads.begin,
        read_racks=reads.racks,
        read_loads=reads.loads,
        fixed=np.zeros_like(share),
        racks=arrays.racks,
        may_take=may_take,
        may_hold=arrays.alive,
        may_give=problem.may_give,
        may_lead=problem.may_lead,
        set_of=sets.set_of,
        members=sets.members,
        takers=np.concatenate(takers).astype(np.int64),
        takers_begin=np.concatenate(([0], np.cumsum([len(some) for some in takers]))).astype(np.int64),
        inverse=np.where(share > 0, 1.0 / np.where(share > 0, share, 1.0), 0.0),
        weight=np.where(problem.weight < 1.0, tuning.count_weight, 1.0),
        # A replica of thousands costs more to change than it is above: counts are to end below their caps all the same.
        limit=np.where(counts, problem.goal, problem.limit),
        target=target,
        most=most,
        room=room_of(problem),
        budget=budgets_of(policy),
        lead_group=lead_group,
        lead_price=lead_price,
        dual_price=np.zeros_like(share),
        topic_of=problem.spread.topic_of,
        replicas_most=problem.spread.replicas_most,
        leaders_most=problem.spread.leaders_most,
        leaders_least=problem.spread.leaders_least,
        spread_prices=np.array([tuning.spread_price, tuning.least_price]),
        zones=np.zeros(0, dtype=np.int64) if placement.searched_zones is None else placement.searched_zones,
        out_columns=arrays.columns.of(Resource.BYTES_OUT),
        usable=problem.ceiling[:, arrays.columns.of(Resource.BYTES_OUT)],
        failover_price=np.array([tuning.failover_price]),
    )
    task = as_compiled_reads(task)
    return task._replace(fixed=placement.loads - loads_of(task, placement.replicas))


def price_of_copies(placement: Placement) -> Floats:
    """P fair shares of disk that one copy of each partition takes: alike in any unit of bytes."""
    replicas = (placement.original != NO_BROKER).sum(axis=1)
    fair_share = float((placement.disk_bytes * replicas).sum()) / max(1, int(placement.arrays.alive.sum()))
    # Without any bytes on disk a copy costs nothing, in whatever unit.
    return on_grid(placement.disk_bytes / (fair_share if fair_share > 0 else 1.0))


def room_of(problem: Problem) -> Floats:
    """B bytes that may be copied to each broker.

    What leaves a broker makes no room: Kafka deletes it a minute later, and maybe from another of its log dirs.
    """
    most = problem.policy.inflow_max
    room: Floats = np.minimum(problem.arrays.disk_room_bytes, np.inf if most is None else most)
    return room


def budgets_of(policy: PlannerPolicy) -> Floats:
    """Most movements and most bytes of a plan; infinite where the policy sets none."""
    return np.array([np.inf if most is None else float(most) for most in (policy.movements_max, policy.bytes_max)])


def _lead_prices(problem: Problem, tuning: Tuning) -> tuple[Indices, Floats]:
    """(P, K x B) as `lead_group` and `lead_price`: a leadership costs more for each rack that is wanted more."""
    group = np.zeros(len(problem.movable), dtype=np.int64)
    prices: list[Floats] = [np.zeros(len(problem.share))]
    for partitions, ranks in problem.leader_ranks:
        group[partitions] = len(prices)
        prices.append(tuning.leader_rack_price * ranks.astype(np.float64))
    return group, np.stack(prices)


def _bulk(placement: Placement, share: Floats) -> Floats:
    """P largest part of the largest fair share (B x K, counts left out) that the leader carries of any load."""
    largest = share.max(axis=0, initial=0.0)
    parts = placement.leading[:, ~placement.arrays.columns.counts] / np.where(largest > 0, largest, np.inf)
    bulk: Floats = parts.max(axis=1, initial=0.0)
    return bulk


class _Reads(NamedTuple):
    """What consumers read in their racks, of partitions whose replicas are in racks of their own."""

    is_pinned: Flags
    """P: two replicas are in a rack that reads."""
    begin: Indices
    """P + 1, as the next two: see `RoundTask`."""
    racks: Ints
    loads: Floats
    led: Floats
    """P x C load that goes with the leadership, as no replica is in the rack that reads."""


def _reads_of(placement: Placement) -> _Reads:
    partitions, columns = placement.leading.shape
    led, is_pinned = np.zeros((partitions, columns)), np.zeros(partitions, dtype=np.bool_)
    if placement.in_racks is None:
        begin = np.zeros(partitions + 1, dtype=np.int64)
        return _Reads(is_pinned, begin, np.zeros(0, dtype=np.int32), np.zeros((0, columns)), led)
    reads = placement.in_racks.reads
    partition = reads.partitions[reads.rows]
    count = in_rack(placement.replicas[partition], reads.racks, placement.arrays.racks).sum(axis=1)
    is_pinned[partition[count > 1]] = True
    loads = np.zeros((len(partition), columns))
    loads[:, placement.arrays.columns.of(Resource.BYTES_OUT)] = reads.rates
    free = ~is_pinned[partition]
    absent = np.flatnonzero(free & (count == 0))
    np.add.at(led, partition[absent], loads[absent])
    begin = np.concatenate(([0], np.cumsum(np.bincount(partition[free], minlength=partitions)))).astype(np.int64)
    return _Reads(is_pinned, begin, reads.racks[free], loads[free], led)


def state_of_rows(task: RoundTask, rows: Ints) -> RoundState:
    """The state with these rows (P x R) and all that follows from them; costs are for `round_trials`."""
    brokers, columns = task.limit.shape
    held, held_count = held_by_brokers(rows, brokers)
    is_foreign = _is_foreign(task, rows)
    foreign = is_foreign.sum(axis=1)
    some = np.flatnonzero(changed_of(task, rows))
    changed, changed_place = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), NO_BROKER, dtype=np.int64)
    changed[: len(some)], changed_place[some] = some, np.arange(len(some))
    topic_replicas, topic_leaders = counts_by_topic(task.topic_of, rows, *task.replicas_most.shape)
    sizes = np.broadcast_to(task.sizes[:, None], rows.shape)
    return RoundState(
        rows=np.array(rows, dtype=np.int32, order="C"),
        loads=loads_of(task, rows),
        cost=np.zeros(brokers),
        held=held,
        held_count=held_count,
        changed=changed,
        changed_place=changed_place,
        foreign=foreign.astype(np.int64),
        inflow=np.bincount(rows[is_foreign], sizes[is_foreign], minlength=brokers).astype(np.float64),
        totals=np.array([float(len(some)), float((foreign * task.sizes).sum())]),
        priced=np.zeros(brokers, dtype=np.int64),
        topic_replicas=topic_replicas,
        topic_leaders=topic_leaders,
        inherited=np.zeros((len(task.zones), int(task.zones.max(initial=-1)) + 1, len(task.out_columns))),
        inherited_most=np.zeros(brokers),
        failover=np.zeros(brokers),
        failover_total=np.zeros(1),
        tried=np.zeros((2, rows.shape[1]), dtype=np.int32),
        tried_excess=np.zeros(TOUCHED_MAX),
        touched=np.zeros(TOUCHED_MAX, dtype=np.int64),
        touched_count=np.zeros(1, dtype=np.int64),
        delta=np.zeros(columns),
        after=np.zeros((2, columns)),
        random=np.array([SEED], dtype=np.uint64),
    )


def held_by_brokers(rows: Ints, brokers: int) -> tuple[Ints, Indices]:
    """The partitions that each broker holds by these rows (P x R), with room for more (B x H), and how many (B).

    >>> held, count = held_by_brokers(np.array([[0, 1], [1, NO_BROKER]]), 2)
    >>> held[:, :2].tolist(), count.tolist()
    ([[0, -1], [0, 1]], [1, 2])
    """
    partition, slot = np.nonzero(rows != NO_BROKER)
    broker = rows[partition, slot]
    count = np.bincount(broker, minlength=brokers).astype(np.int64)
    held = np.full((brokers, 2 * int(count.max(initial=0)) + HELD_SPARE), NO_BROKER, dtype=np.int32)
    order = np.argsort(broker, kind="stable")
    place = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    held[broker[order], place] = partition[order]
    return held, count


def copies_of(task: RoundTask, rows: Ints) -> Indices:
    """P: replicas on brokers that did not hold the partition at first."""
    count: Indices = _is_foreign(task, rows).sum(axis=1)
    return count


def changed_of(task: RoundTask, rows: Ints) -> Flags:
    """P: the partition has other replicas than at first, another leader, or another heir."""
    changed: Flags = _is_foreign(task, rows).any(axis=1) | (rows[:, 0] != task.original[:, 0])
    if len(task.zones):
        changed |= heirs(rows, task.zones) != heirs(task.original, task.zones)
    return changed


def _is_foreign(task: RoundTask, rows: Ints) -> Flags:
    """P x R."""
    foreign: Flags = (rows != NO_BROKER) & (rows[:, :, None] != task.original[:, None, :]).all(axis=2)
    return foreign


def loads_of(task: RoundTask, rows: Ints) -> Floats:
    """B x C load that these rows (P x R) put on brokers; exact, as all loads lie on a grid."""
    loads = task.fixed.copy()
    for slot in range(rows.shape[1]):
        held = rows[:, slot] != NO_BROKER
        carried = task.following if slot else task.leading
        for column in range(loads.shape[1]):
            loads[:, column] += np.bincount(rows[held, slot], carried[held, column], minlength=len(loads))
    partition = np.repeat(np.arange(len(rows)), np.diff(task.read_begin))
    for slot in range(rows.shape[1]):
        reads = np.flatnonzero(in_rack(rows[partition, slot : slot + 1], task.read_racks, task.racks)[:, 0])
        np.add.at(loads, rows[partition[reads], slot], task.read_loads[reads])
    return loads


def anchored(task: RoundTask, rows: Ints) -> RoundTask:
    """The task as if these rows (P x R) were the first ones; what they copy has used up room."""
    return task._replace(original=rows, room=task.room - state_of_rows(task, rows).inflow)


def part_of(task: RoundTask, some: Indices) -> RoundTask:
    """The task with the partitions `some` alone, as if all others carried nothing."""
    lengths = np.diff(task.read_begin)
    reads = np.flatnonzero(np.isin(np.repeat(np.arange(len(lengths)), lengths), some))
    by_partition = (
        "original",
        "leading",
        "following",
        "sizes",
        "copy_price",
        "bulk",
        "is_movable",
        "stays_in_racks",
        "lead_group",
        "set_of",
        "topic_of",
    )
    fields = {name: getattr(task, name)[some] for name in by_partition}
    fields["read_begin"] = np.concatenate(([0], np.cumsum(lengths[some]))).astype(np.int64)
    fields |= {name: getattr(task, name)[reads] for name in ("read_racks", "read_loads")}
    fields["fixed"] = np.zeros_like(task.fixed)
    return task._replace(**{name: np.ascontiguousarray(field) for name, field in fields.items()})
