"""A placement in plain lists, for very many small trials: what a change of a few replica lists would cost.

The search scores matrices of candidates. Annealing tries one change after another, tens of thousands of them, each of
two or three brokers: there each call of numpy costs more than the sums themselves. So a draft holds loads and replica
lists as lists, judges a change, and takes it over or forgets it. The placement stays as it is until `Draft.rows` are
applied to it.

The cost of a draft is what brokers are above `lines`, linear and squared, and the price of what it copies, in fair
shares of disk. Linear, so that the last bit above a line still counts; squared, so that the worst broker counts most.
What is above a broker's own limit but below its line costs a little, too: where a heavy partition raises the lines, the
brokers without it should stay even.

Invariants: `loads` is what `rows` puts on brokers, to the bit (loads are on a grid); no accepted trial breaks a hard
rule or a budget.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.search import Search
from assignor_core.planner.spending import TOUCHED_PRICE

EXCESS_WEIGHT = 40.0
"""A fair share above a line costs as much as copying so many fair shares of disk, and its square so many times more."""
LIMIT_PART = 0.1
"""Part of that for what is above a broker's own limit, though not above its line."""
COUNT_WEIGHT = 0.1
"""The same for leaders and replicas, whose caps are soft."""

Row = list[int]


class Change(NamedTuple):
    """A partition, and the replica list it would get."""

    partition: int
    row: Row


class Trial(NamedTuple):
    """What some changes would do."""

    changes: tuple[Change, ...]
    loads: dict[int, list[float]]
    """By broker that they change, its loads then."""
    costs: dict[int, float]
    """By broker with a share, its cost then."""
    prices: list[float]
    """By change, the price of its partition then."""
    rise: float
    """By how much they raise the cost of the draft."""


class Draft:
    """Replica lists, loads and their cost; mutable.

    Broker 1 holds both partitions, and a broker should carry half of all. To move one to broker 2 saves more than it
    costs:

    >>> state = state_of((1,), (1,))
    >>> draft = Draft(Search(state.problem, state.placement), state.problem.limit)
    >>> trial = draft.trial((Change(0, [1]),))
    >>> trial.rise < 0, draft.accept(trial), draft.rows
    (True, None, [[1], [0]])
    """

    def __init__(self, search: Search, lines: Floats) -> None:
        problem, placement = search.problem, search.placement
        counts = problem.arrays.columns.counts
        given = problem.share > 0
        weight = np.where(counts, COUNT_WEIGHT, EXCESS_WEIGHT) / np.where(given, problem.share, 1.0)
        self._weights: list[list[float]] = np.where(given, weight, 0.0).tolist()
        self._limits: list[list[float]] = problem.limit.tolist()
        self._lines: list[list[float]] = np.maximum(lines, problem.limit).tolist()
        self._ceilings: list[list[float]] = problem.ceiling.tolist()
        self._leading: list[list[float]] = placement.leading.tolist()
        self._following: list[list[float]] = placement.following.tolist()
        self._disk: list[float] = search.spending.in_fair_shares(placement.disk_bytes).tolist()
        self.racks: list[int] = problem.arrays.racks.tolist()
        self.may_take: list[bool] = problem.may_take.tolist()
        self.may_give: list[bool] = problem.may_give.tolist()
        self.may_lead: list[bool] = problem.may_lead.tolist()
        self.has_share = [bool(any(flags)) for flags in given.tolist()]
        self.original: list[Row] = [[b for b in row if b != NO_BROKER] for row in placement.original.tolist()]
        self.rows: list[Row] = [[b for b in row if b != NO_BROKER] for row in placement.replicas.tolist()]
        """By partition, its replica list; leader first."""
        self.loads: list[list[float]] = placement.loads.tolist()
        self._columns = range(len(counts))
        self.held: list[list[int]] = [placement.held_by(broker).tolist() for broker in range(len(self.loads))]
        """By broker, the partitions that it holds."""
        for held in self.held:
            held.sort()
        self._places = [{partition: place for place, partition in enumerate(held)} for held in self.held]
        self.costs = [self._cost(broker, load) for broker, load in enumerate(self.loads)]
        """By broker, what it costs to be above its lines."""
        self.prices = [self.price(partition, row) for partition, row in enumerate(self.rows)]
        """By partition, the price of what it copies."""
        self.cost = sum(self.costs) + sum(self.prices)

    def _cost(self, broker: int, load: list[float]) -> float:
        total, weights, limits, lines = 0.0, self._weights[broker], self._limits[broker], self._lines[broker]
        for column in self._columns:
            over = load[column] - limits[column]
            if over <= 0.0:
                continue
            over *= weights[column]
            total += LIMIT_PART * (over + over * over)
            over = load[column] - lines[column]
            if over > 0.0:
                over *= weights[column]
                total += over + over * over
        return total

    def price(self, partition: int, row: Row) -> float:
        """Price of giving `partition` this replica list, in fair shares of disk."""
        original = self.original[partition]
        if row == original:
            return 0.0
        copies = sum(broker not in original for broker in row)
        return TOUCHED_PRICE + copies * self._disk[partition]

    def may_move(self, partition: int, source: int, target: int) -> bool:
        """Whether the replica on `source` may go to `target` by all rules but capacity and budgets."""
        row = self.rows[partition]
        if not self.may_take[target] or not self.may_give[source] or target in row:
            return False
        there, here = self.racks[target], self.racks[source]
        if there == here:
            return True
        others = [self.racks[broker] for broker in row if broker != source]
        return others.count(there) <= others.count(here)

    def trial(self, changes: tuple[Change, ...]) -> Trial:
        """What `changes` would do; each of another partition."""
        loads: dict[int, list[float]] = {}
        prices, rise = [], 0.0
        for partition, row in changes:
            old = self.rows[partition]
            for slot, (before, after) in enumerate(zip(old, row, strict=True)):
                if before == after:
                    continue
                load = self._following[partition] if slot else self._leading[partition]
                for broker, sign in ((before, -1.0), (after, 1.0)):
                    there = loads.get(broker)
                    if there is None:
                        there = loads[broker] = self.loads[broker].copy()
                    for column in self._columns:
                        there[column] += sign * load[column]
            prices.append(self.price(partition, row))
            rise += prices[-1] - self.prices[partition]
        costs = {}
        for broker, load in loads.items():
            if self.has_share[broker]:
                costs[broker] = self._cost(broker, load)
                rise += costs[broker] - self.costs[broker]
        return Trial(changes, loads, costs, prices, rise)

    def is_within_capacity(self, trial: Trial) -> bool:
        """Whether no broker that the trial loads more is above its capacity."""
        return all(
            load <= ceiling or load <= before
            for broker, loads in trial.loads.items()
            for load, ceiling, before in zip(loads, self._ceilings[broker], self.loads[broker], strict=True)
        )

    def accept(self, trial: Trial) -> None:
        """Take the changes of `trial` over."""
        for broker, load in trial.loads.items():
            self.loads[broker] = load
        for broker, cost in trial.costs.items():
            self.costs[broker] = cost
        for (partition, row), price in zip(trial.changes, trial.prices, strict=True):
            old = self.rows[partition]
            for broker in old:
                if broker not in row:
                    self._drop(broker, partition)
            for broker in row:
                if broker not in old:
                    self._places[broker][partition] = len(self.held[broker])
                    self.held[broker].append(partition)
            self.rows[partition], self.prices[partition] = row, price
        self.cost += trial.rise

    def reset(self, rows: list[Row]) -> None:
        """Go back to `rows`."""
        for partition, row in enumerate(rows):
            if row != self.rows[partition]:
                self.accept(self.trial((Change(partition, row),)))
        self.cost = sum(self.costs) + sum(self.prices)

    def _drop(self, broker: int, partition: int) -> None:
        held, places = self.held[broker], self._places[broker]
        place, last = places.pop(partition), held.pop()
        if last != partition:
            held[place], places[last] = last, place
