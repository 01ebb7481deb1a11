"""The plan as a linear program, with replicas in parts: what each load of each broker is worth, and who should move.

If a replica could be split over brokers, the cheapest plan within all goals would be the solution of a linear program.
Its dual has one shadow price for each broker and load: what a plan would save if the goal were a little higher there.
With these prices each replica decides for itself. It stays, or goes where what it brings is cheapest, if the difference
pays for its bytes. The search can't see that: a broker with much disk and little network is within its goals while it
holds replicas that keep little for what is written, so nothing asks it to exchange them for others.

How the prices are found. Each price rises while its broker is above the goal, and falls while it is below, by steps
that grow while the sign stays and shrink when it turns (resilient propagation; Riedmiller and Braun, 1993). At fixed
prices all movers would choose the same cheapest broker, and the next time another one. So a replica is spread over
targets that are nearly as cheap (`blur`), and what counts as near shrinks from step to step.

Of several windows the mean counts: with a column for each hour goals often can't all be met, and prices without end
would move twice the bytes. Leaders may be handed over, too. That two replicas of a partition may not meet is left out,
as is which racks they leave to each other. Nothing moves here (`guided` does that).

Invariants: the same model gives the same prices on any machine. Loads, prices and parts lie on grids, so that products
of matrices are exact in whatever order a machine adds.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.placement import Flags, Indices, on_grid
from assignor_core.planner.search import Search
from assignor_core.resources import LOADS

LOAD_GRID, PRICE_GRID, PART_GRID = 2.0**18, 2.0**10, 2.0**12
PRICE_MAX = 2.0**8
"""In fair shares of disk for a fair share of load; where no placement meets the goals, prices would rise for ever."""
STEPS = 300
LAST_STEPS = 0.9
"""After this part of the steps the prices under which brokers are least above their goals are kept."""
BLUR_FIRST, BLUR_LAST = 2.0, 0.015
"""How much dearer a target may be per fair share of load, and still get a part."""
STEP_FIRST, STEP_LEAST = 0.5, 1e-3
STEP_GROWS, STEP_SHRINKS = 1.15, 0.6
LOOKED_AT_AGAIN = 10
"""After so many steps all replicas are looked at. In between only those that may soon move are: a tenth, mostly."""
SOON = 2.0
"""Replicas may soon move if they would at so many times the blur."""
FULL_STEP = 0.05
"""Fair shares away from the goal at which a price takes its whole step."""
MOVED_PRICE = 0.02
"""What it costs to move a replica or a leadership beside its bytes, in fair shares of disk."""
MOVED_ON_PRICE = MOVED_PRICE / 10
"""The same for a replica that has left its first broker already: it is copied in any case."""
LEAST_NEAR = 1e-12
COMPILED_FROM = 200_000
"""With so many pairs of a replica and a target machine code pays, which takes a third of a second to load. Once it is
there it pays for few pairs, too.
"""
LIGHTEST_LEADERSHIP = 1e-4
"""Leaderships that bring fewer fair shares than this are left to the search."""


class Parts(NamedTuple):
    """What goes where at some prices."""

    movers: Indices
    """M rows of replicas of which a part moves."""
    moved: Floats
    """M x T part of each that goes to each target."""
    handed: Floats
    """H x R part of each leadership that goes to each slot; what is missing stays."""


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """N replicas that may move, to T targets; H leaderships; K loads of B brokers, in mean fair shares."""

    partitions: Indices
    """N."""
    sources: Indices
    """N broker that holds each."""
    loads: Floats
    """N x K."""
    prices: Floats
    """N price of moving each, in fair shares of disk."""
    may_go: Flags
    """N x T: no hard rule forbids it."""
    targets: Indices
    """T brokers."""
    led: Indices
    """H partitions whose leadership may be handed over."""
    holders: Ints
    """H x R brokers that hold them, leader first; 0 where none may lead."""
    may_lead: Flags
    """H x R."""
    leaderships: Floats
    """H x K what goes with each leadership."""
    before: Floats
    """B x K loads as they are."""
    goals: Floats
    """B x K; infinite for brokers that must end empty."""
    sizes: Floats
    """B x K fair share of each broker."""
    columns: tuple[Indices, ...]
    """K: the windows of each load, as columns of the model."""
    unit: Floats
    """K mean fair share of each load, as a part of the whole."""
    by_machine: bool
    """Whether machine code works out prices and loads: decided once, for all replicas."""

    def by_column(self, prices: Floats, count: int) -> Floats:
        """B x C `prices` as those of whole loads in `count` columns, windows alike; 0 for columns without load."""
        of_columns = np.zeros((len(prices), count))
        for load, columns in enumerate(self.columns):
            of_columns[:, columns] = (prices[:, load] / self.sizes[:, load] / self.unit[load] / len(columns))[:, None]
        return of_columns

    @property
    def costs(self) -> Floats:
        """N x T price of moving each there; infinite where a hard rule forbids it."""
        return np.where(self.may_go, self.prices[:, None], np.inf)

    def parts(self, prices: Floats, blur: float) -> Parts:
        """Who goes where at `prices` (B x K, for a fair share of each broker)."""
        of_load = self._of_load(prices)
        here, there, cheapest = self._price_of_each(of_load)
        near = blur * self.loads.sum(axis=1) + LEAST_NEAR
        movers = np.flatnonzero(cheapest < here + near)
        here, near, there = here[movers], near[movers], there[movers]
        least = np.minimum(cheapest[movers], here)
        weights, at_home = _nearness(there, least, near), _nearness(here[:, None], least, near)[:, 0]
        moved = np.rint(weights / (weights.sum(axis=1) + at_home)[:, None] * PART_GRID) / PART_GRID
        return Parts(movers, moved, self._handed(of_load, blur))

    def _of_load(self, prices: Floats) -> Floats:
        """B x K `prices` of a fair share as prices of a unit of load."""
        of_load: Floats = np.rint(prices / self.sizes * PRICE_GRID) / PRICE_GRID
        return of_load

    def _price_of_each(self, of_load: Floats) -> tuple[Floats, Floats, Floats]:
        """N what each replica costs where it is, N x T elsewhere, and N the cheapest of these."""
        here: Floats = (self.loads * of_load[self.sources]).sum(axis=1)
        there: Floats = self.loads @ of_load[self.targets].T
        there += self.costs
        return here, there, there.min(axis=1, initial=np.inf)

    def that_may_move(self, prices: Floats, blur: float) -> "Relaxation":
        """The same without replicas that stay at `prices` (B x K) and at those that differ a little."""
        here, cheapest = self._cheapest(self._of_load(prices))
        rows = np.flatnonzero(cheapest < here + SOON * blur * self.loads.sum(axis=1) + LEAST_NEAR)
        return replace(
            self,
            partitions=self.partitions[rows],
            sources=self.sources[rows],
            loads=self.loads[rows],
            prices=self.prices[rows],
            may_go=self.may_go[rows],
        )

    def _cheapest(self, of_load: Floats) -> tuple[Floats, Floats]:
        """N what each replica costs where it is, and on its cheapest target."""
        if not self.by_machine:
            here, _, cheapest = self._price_of_each(of_load)
            return here, cheapest
        from assignor_core.planner import split_replicas  # machine code

        here, cheapest = np.empty(len(self.loads)), np.empty(len(self.loads))
        on_targets, room = self._on_targets(of_load)
        split_replicas.price_each(
            self.loads, self.sources, self.prices, self.may_go, of_load, on_targets, room, here, cheapest
        )
        return here, cheapest

    def _on_targets(self, of_load: Floats) -> tuple[Floats, Floats]:
        """K x T prices of a unit of load on each target, and room for 2 x T figures."""
        return np.ascontiguousarray(of_load[self.targets].T), np.empty((2, len(self.targets)))

    def loads_at(self, prices: Floats, blur: float) -> Floats:
        """B x K loads if everybody goes where `prices` (B x K) ask for: `loads_with` of these `parts`, to the bit."""
        if not self.by_machine:
            return self.loads_with(self.parts(prices, blur))
        from assignor_core.planner import split_replicas  # machine code

        of_load, after = self._of_load(prices), self.before.copy()
        on_targets, room = self._on_targets(of_load)
        arriving = np.zeros_like(on_targets)
        split_replicas.add_parts(
            self.loads, self.sources, self.prices, self.may_go, of_load, on_targets, blur, LEAST_NEAR, PART_GRID,
            room, arriving, after,
        )  # fmt: skip
        after[self.targets] += arriving.T
        split_replicas.hand_over(
            self.leaderships, self.holders, self.may_lead, of_load, MOVED_PRICE, blur, LEAST_NEAR, PART_GRID,
            np.empty(self.holders.shape[1]), after,
        )  # fmt: skip
        return after

    def _handed(self, of_load: Floats, blur: float) -> Floats:
        prices = np.where(self.may_lead, 0.0, np.inf)
        prices[:, 1:] += MOVED_PRICE
        for column in range(self.leaderships.shape[1]):
            prices += self.leaderships[:, column, None] * of_load[self.holders, column]
        near = blur * self.leaderships.sum(axis=1) + LEAST_NEAR
        weights = _nearness(prices, prices.min(axis=1, initial=np.inf), near)
        handed: Floats = np.rint(weights / weights.sum(axis=1)[:, None] * PART_GRID) / PART_GRID
        handed[:, 0] = 0.0
        return handed

    def loads_with(self, parts: Parts) -> Floats:
        """B x K loads if `parts` move."""
        after = self.before.copy()
        movers, moved, handed = parts
        after[self.targets] += moved.T @ self.loads[movers]
        count, gone = len(after), moved.sum(axis=1)
        for column in range(after.shape[1]):
            after[:, column] -= np.bincount(self.sources[movers], self.loads[movers, column] * gone, minlength=count)
        self._hand_over(after, handed)
        return after

    def _hand_over(self, loads: Floats, handed: Floats) -> None:
        """Change `loads` (B x K) by the parts of leaderships that are handed over (H x R)."""
        for column in range(loads.shape[1]):
            for slot in range(1, handed.shape[1]):
                shifted = handed[:, slot] * self.leaderships[:, column]
                loads[:, column] += np.bincount(self.holders[:, slot], shifted, minlength=len(loads))
                loads[:, column] -= np.bincount(self.holders[:, 0], shifted, minlength=len(loads))

    def shadow_prices(self) -> tuple[Floats, float]:
        """B x K prices under which brokers are hardly above their goals, for a fair share of each, and their blur."""
        prices = np.zeros_like(self.goals)
        steps, signs = np.full_like(prices, STEP_FIRST), np.zeros_like(prices)
        best, least, blur_of_best, some = prices, np.inf, BLUR_LAST, self
        # A power differs in its last bits from one machine to the next.
        blurs: Floats = on_grid(BLUR_FIRST * (BLUR_LAST / BLUR_FIRST) ** np.linspace(0.0, 1.0, STEPS))
        for number, blur in enumerate(blurs.tolist()):
            if number % LOOKED_AT_AGAIN == 0:
                some = self.that_may_move(prices, blur)
            above = (some.loads_at(prices, blur) - self.goals) / self.sizes
            if number >= LAST_STEPS * STEPS:
                excess = float(on_grid(np.maximum(above, 0.0) ** 2).sum())
                if excess < least:
                    best, least, blur_of_best = prices, excess, blur
            turned = np.sign(above) * signs
            signs = np.sign(above)
            steps = np.where(turned > 0, np.minimum(steps * STEP_GROWS, blur), steps)
            steps = np.where(turned < 0, np.maximum(steps * STEP_SHRINKS, STEP_LEAST), steps)
            prices = np.clip(prices + np.clip(above / FULL_STEP, -1.0, 1.0) * steps, 0.0, PRICE_MAX)
        return best, blur_of_best


def _nearness(prices: Floats, least: Floats, near: Floats) -> Floats:
    """N x T weights from 1 for the least price to 0 for what is dearer by `near`."""
    weights: Floats = np.maximum(1.0 - (prices - least[:, None]) / near[:, None], 0.0)
    return np.rint(weights * weights * PART_GRID) / PART_GRID


def relaxation_of(search: Search) -> Relaxation:
    """What the placement of `search` may become, with replicas in parts."""
    problem, placement = search.problem, search.placement
    columns = problem.arrays.columns
    loaded = placement.loads.sum(axis=0) > 0
    of_resources = [columns.of(resource)[loaded[columns.of(resource)]] for resource in LOADS]
    of_resources = [some for some in of_resources if len(some)]

    def means(figures: Floats) -> Floats:
        """Over the windows, of each resource."""
        return np.stack([figures[:, some].sum(axis=1) / len(some) for some in of_resources], axis=1)

    share = means(problem.share)
    has_share: Flags = np.all(share > 0, axis=1)
    unit = share[has_share].mean(axis=0)

    def in_units(loads: Floats) -> Floats:
        scaled: Floats = np.rint(means(loads) / unit * LOAD_GRID) / LOAD_GRID
        return scaled

    may_give: Flags = problem.may_give & has_share
    held = [np.sort(placement.held_by(broker)) for broker in range(len(may_give))]
    held = [some[problem.may_balance[some]] if may_give[broker] else some[:0] for broker, some in enumerate(held)]
    targets = np.flatnonzero(problem.may_take & has_share)
    loads, prices, may_go = [], [], []
    for broker, some in enumerate(held):
        carried = placement.loads_at(some, placement.slots_of(some, broker))
        allowed = problem.allowed_targets(placement, some, broker, targets)
        allowed &= problem.with_room(placement, carried, targets)
        loads.append(carried)
        prices.append(_moving_prices(search, some, broker))
        may_go.append(allowed)
    leaderships = in_units(placement.leading - placement.following)
    led = _led(search, may_give, leaderships)
    holders = placement.replicas[led]
    can_lead: Flags = problem.may_lead & has_share
    may_lead: Flags = (holders != NO_BROKER) & can_lead[holders]
    return Relaxation(
        partitions=np.concatenate(held),
        sources=np.repeat(np.arange(len(held)), [len(some) for some in held]),
        loads=in_units(np.concatenate(loads)),
        prices=np.concatenate(prices),
        may_go=np.concatenate(may_go),
        targets=targets,
        led=led,
        holders=np.where(may_lead, holders, 0),
        may_lead=may_lead,
        leaderships=leaderships[led],
        before=in_units(placement.loads),
        goals=np.where(has_share[:, None], means(problem.goal) / unit, np.inf),
        sizes=np.where(has_share[:, None], share / unit, 1.0),
        columns=tuple(of_resources),
        unit=unit,
        by_machine=sum(map(len, held)) * len(targets) >= COMPILED_FROM,
    )


def _moving_prices(search: Search, partitions: Indices, broker: int) -> Floats:
    """N price of moving the replica of each of `partitions` away from `broker`."""
    placement = search.placement
    is_at_home = (placement.original[partitions] == broker).any(axis=1)
    copied = np.where(is_at_home, placement.disk_bytes[partitions], 0.0)
    return search.spending.in_fair_shares(copied) + np.where(is_at_home, MOVED_PRICE, MOVED_ON_PRICE)


def _led(search: Search, may_give: Flags, leaderships: Floats) -> Indices:
    """Partitions with followers whose leader may hand over."""
    problem, replicas = search.problem, search.placement.replicas
    if replicas.shape[1] < 2:
        return np.arange(0)
    leaders = replicas[:, 0]
    able: Flags = problem.may_balance & (leaders != NO_BROKER) & (replicas[:, 1] != NO_BROKER)
    able &= may_give[leaders] & problem.may_lead[leaders]
    led: Indices = np.flatnonzero(able & (leaderships.max(axis=1, initial=0.0) > LIGHTEST_LEADERSHIP))
    return led
