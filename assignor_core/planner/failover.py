"""What brokers would carry if another broker, or a whole rack, went offline, and where that is above their capacity.

A *zone* is what goes offline together: one broker, or all brokers of a rack (`failover_headroom`). Of each partition
that the zone leads, Kafka elects the first replica in the list whose broker is alive: the *heir*. The heir serves what
the leader served, so its bytes out grow by as much. Bytes in and disk of an heir stay as they are, since it followed
before. Consumers that read from a follower of the zone read from the other replicas.

Two choices make the figures a little too high rather than too low. Followers in the zone still count as readers, since
they read everything once they are back. Consumers in the zone still count, as they may be started elsewhere.

What a broker has too much is the part of the inherited load that is above its capacity, less `headroom`. A broker that
is above its capacity anyway has too much only by what it inherits. Brokers without a capacity of bytes out have room.

For P partitions there are at most P pairs of a zone and an heir, and as many as replicas where followers serve
consumers, so this module needs memory for these alone. The search needs a table of brokers by zones, which is bounded
(`failover_trials`, `placement.TABLE_MAX`). Nothing moves here.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, has_source, parts_by_slot
from assignor_core.planner.placement import Indices, Placement, heirs
from assignor_core.planner.policy import NAMED_MAX, PlannerPolicy
from assignor_core.planner.problem import Problem
from assignor_core.resources import Resource
from assignor_core.wording import counted, first_named

NOTICEABLE = 1e-6
"""Part of a capacity above which an excess is named."""


def zones_of(arrays: ClusterArrays, policy: PlannerPolicy) -> Indices | None:
    """B: the zone of each broker by number, NO_BROKER for one that is dead; None if `policy` asks for no headroom."""
    if policy.failover_headroom == "none":
        return None
    zones = np.arange(len(arrays.alive)) if policy.failover_headroom == "broker" else arrays.racks.astype(np.int64)
    numbered: Indices = np.where(arrays.dead, NO_BROKER, zones)
    return numbered


class Takeovers(NamedTuple):
    """What K pairs of a zone and a broker carry more if the zone goes offline, as fractions of the total bytes out."""

    zone: Indices
    """K."""
    broker: Indices
    """K."""
    load: Floats
    """K x W, by window."""


def takeovers(placement: Placement, rows: Ints) -> Takeovers:
    """What each broker takes over from each zone by `rows` (P x R); of `placement`, which has zones, only the loads."""
    zones, out = placement.zones, placement.arrays.columns.of(Resource.BYTES_OUT)
    assert zones is not None, "there are zones"
    heir = heirs(rows, zones)
    some = np.flatnonzero(heir != NO_BROKER)
    found = [(zones[rows[some, 0]], heir[some], placement.leading[some][:, out])]
    if placement.in_racks is not None:
        found += _reads_taken_over(placement, rows, zones)
    zone, broker, load = (np.concatenate(parts) for parts in zip(*found, strict=True))
    pair, place = np.unique(zone * len(zones) + broker, return_inverse=True)
    sums = [np.bincount(place.reshape(-1), load[:, window], minlength=len(pair)) for window in range(load.shape[1])]
    return Takeovers(pair // len(zones), pair % len(zones), np.stack(sums, axis=1))


def _reads_taken_over(placement: Placement, rows: Ints, zones: Indices) -> Iterator[tuple[Indices, Indices, Floats]]:
    """Zones, brokers and loads: what consumers of a rack read from another replica once a zone is offline."""
    assert placement.in_racks is not None, "followers serve consumers"
    reads, racks = placement.in_racks.reads, placement.arrays.racks
    row = rows[reads.partitions[reads.rows]]
    zone = np.where(row != NO_BROKER, zones[row], NO_BROKER)
    # What a dead broker leads is led by nobody, so nobody takes over what its followers serve.
    is_led = zone[:, 0] != NO_BROKER
    now = parts_by_slot(row, reads.racks, racks)
    for slot in range(row.shape[1]):
        is_first = is_led & (zone[:, slot] != NO_BROKER) & ~(zone[:, :slot] == zone[:, slot : slot + 1]).any(axis=1)
        left = np.where((zone == zone[:, slot : slot + 1]) | (zone == NO_BROKER), NO_BROKER, row)
        order = np.argsort(left == NO_BROKER, axis=1, kind="stable")
        ordered = np.take_along_axis(left, order, axis=1)
        then = np.where(ordered != NO_BROKER, parts_by_slot(ordered, reads.racks, racks), 0.0)
        more = np.maximum(then - np.take_along_axis(now, order, axis=1), 0.0)
        pair, place = np.nonzero((more > 0.0) & is_first[:, None])
        loads = more[pair, place][:, None] * reads.rates[pair]
        yield zone[pair, slot].astype(np.int64), ordered[pair, place].astype(np.int64), loads


class Excess(NamedTuple):
    """The takeovers that leave a broker above its capacity, and how full the broker would be."""

    zone: Indices
    """K."""
    broker: Indices
    """K."""
    fullness: Floats
    """K loads as a part of what the broker may carry, the worst window."""


def excesses(problem: Problem, placement: Placement, rows: Ints, loads: Floats) -> Excess:
    """The takeovers by `rows` (P x R), which put `loads` (B x C) on brokers, that leave a broker above its capacity."""
    taken, out = takeovers(placement, rows), problem.arrays.columns.of(Resource.BYTES_OUT)
    usable, own = problem.ceiling[taken.broker][:, out], loads[taken.broker][:, out]
    is_above = np.minimum(taken.load, own + taken.load - usable) > NOTICEABLE * np.where(usable < np.inf, usable, 1.0)
    is_above &= problem.arrays.alive[taken.broker][:, None]
    fullness = np.where(is_above, (own + taken.load) / np.where(usable > 0, usable, 1.0), 0.0).max(axis=1, initial=0.0)
    some = np.flatnonzero(is_above.any(axis=1))
    return Excess(taken.zone[some], taken.broker[some], fullness[some])


def failover_lines(problem: Problem, placement: Placement) -> list[str]:
    """What `placement` leaves of failover headroom to be wished for, and what no placement could have: a line each.

    Broker 1 leads all, and half of that is what broker 2 may send; broker 2 would have to send all of it:

    >>> from assignor_core.model import Broker, Capacity
    >>> brokers = tuple(Broker(number, capacity=Capacity(bytes_out_per_sec=30.0)) for number in (1, 2))
    >>> search = search_of(cluster((1, 2), (1, 2), brokers=brokers), PlannerPolicy(failover_headroom="broker"))
    >>> failover_lines(search.problem, search.placement)[1].partition("; ")[0]
    'with broker 1 offline, broker 2 would have 200 % of its bytes out capacity'
    """
    if placement.zones is None:
        return []
    without = _without_capacity(problem)
    if not np.isfinite(problem.ceiling[problem.arrays.alive][:, problem.arrays.columns.of(Resource.BYTES_OUT)]).any():
        return without
    now = excesses(problem, placement, placement.replicas, placement.loads)
    lines = [*without, *_beyond_any_placement(problem, placement)]
    if not len(now.zone):
        return lines
    before = excesses(problem, placement, placement.original, placement.original_loads)
    worst, part = int(np.argmax(now.fullness)), 1.0 - problem.policy.headroom
    who = f"broker {problem.arrays.broker_ids[now.broker[worst]]}"
    full = _percent(float(now.fullness[worst]) * part)
    line = f"with {_named(problem, int(now.zone[worst]))} offline, {who} would have {full} of its bytes out capacity"
    allowed = f", {_percent(part)} is allowed" if part < 1.0 else ""
    cases = counted(len(now.zone), "such case", "such cases")
    lines.append(f"{line}{allowed}; {cases} in all, {len(before.zone)} before this plan")
    if placement.searched_zones is None:
        lines.append(
            f"failover headroom of {len(problem.arrays.alive)} brokers is too much to search for, so this plan only "
            "shows it: set planner.failover_headroom to rack"
        )
    return lines


def _without_capacity(problem: Problem) -> list[str]:
    """Returns a line if brokers have no capacity of bytes out, which failover headroom is measured against."""
    arrays = problem.arrays
    lacking = np.flatnonzero(arrays.alive & ~np.isfinite(arrays.capacity_for(Resource.BYTES_OUT)))
    if not len(lacking):
        return []
    who = "all brokers"
    if len(lacking) < arrays.alive.sum():
        who = "broker " if len(lacking) == 1 else "brokers "
        who += first_named(lacking.tolist(), NAMED_MAX, lambda broker: str(arrays.broker_ids[broker]))
    return [f"failover headroom is unknown for {who}: set bytes_out_per_sec in planner.capacities"]


def _beyond_any_placement(problem: Problem, placement: Placement) -> list[str]:
    """Returns a line if the brokers that remain could not even together send what all partitions with an heir need."""
    arrays, zones = problem.arrays, placement.zones
    assert zones is not None, "there are zones"
    usable = problem.ceiling[:, arrays.columns.of(Resource.BYTES_OUT)]
    if not np.isfinite(usable[arrays.alive]).all():
        return []
    level, zone = failover_bound(problem, placement)
    if level <= 1.0 + NOTICEABLE:
        return []
    asked = _percent(level * (1.0 - problem.policy.headroom))
    needs = f"the bytes out of all partitions are {asked} of what all others have"
    return [f"no placement can do without {_named(problem, zone)}: {needs}: add brokers"]


def _percent(part: float) -> str:
    """A part of a capacity. On the grid of the search a capacity far below the whole load is 0, and its part infinite.

    >>> _percent(1.25), _percent(np.inf)
    ('125 %', 'far above 100 %')
    """
    return f"{part:.0%}".replace("%", " %") if np.isfinite(part) else "far above 100 %"


def failover_bound(problem: Problem, placement: Placement) -> tuple[float, int]:
    """How full the brokers that remain are at least, as a part of what they may carry, if the zone that hurts most goes
    offline; and this zone. No placement is better that has heirs for as many partitions as `placement`. All brokers in
    use must have a capacity.

    >>> from assignor_core.model import Broker, Capacity
    >>> brokers = tuple(Broker(number, capacity=Capacity(bytes_out_per_sec=40.0)) for number in (1, 2))
    >>> search = search_of(cluster((1, 2), (1, 2), brokers=brokers), PlannerPolicy(failover_headroom="broker"))
    >>> level, zone = failover_bound(search.problem, search.placement)
    >>> round(level, 6), zone
    (1.5, 0)
    """
    arrays, zones = problem.arrays, placement.zones
    assert zones is not None, "there are zones"
    out = arrays.columns.of(Resource.BYTES_OUT)
    usable = np.where(arrays.alive[:, None], problem.ceiling[:, out], 0.0)
    carried = (heirs(placement.replicas, zones) != NO_BROKER) & has_source(arrays)
    needed = placement.leading[carried][:, out].sum(axis=0)
    if placement.in_racks is not None:
        reads = placement.in_racks.reads
        needed = needed + (reads.rates * carried[reads.partitions[reads.rows], None]).sum(axis=0)
    inside = np.stack([np.bincount(zones[arrays.alive], usable[arrays.alive, w]) for w in range(len(out))], axis=1)
    left = usable.sum(axis=0) - inside
    is_zone = np.isin(np.arange(len(inside)), zones[arrays.alive])
    full = np.where(needed > 0, np.where(left > 0, needed / np.where(left > 0, left, 1.0), np.inf), 0.0).max(axis=1)
    full = np.where(is_zone, full, 0.0)
    worst = int(np.argmax(full))
    return float(full[worst]), worst


def _named(problem: Problem, zone: int) -> str:
    if problem.policy.failover_headroom == "broker":
        return f"broker {problem.arrays.broker_ids[zone]}"
    return problem.arrays.rack_names[zone]
