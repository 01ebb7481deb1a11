"""Rolls of a simulated cluster under faults: what they never do, and how long they take.

A restart is an orderly one: the broker leaves all in-sync replicas at once and comes back after a while. Looks are
answered by a broker that knows all, or by one that has heard nothing for some seconds. The process that rolls is killed
between any two of its steps, and between the event that it stores and what it announces.

    PYTHONPATH=. python -m tests.simulation.rolls --seeds 1000 --first 0 --story killed

plays such rolls and prints one JSON object.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from assignor_core.live_plans.demotion import propose_demotion, propose_restoration
from assignor_core.plan import Plan
from assignor_core.roll import (
    Roll,
    RollAct,
    RollEvent,
    RollPolicy,
    TurnView,
    folded_roll,
    next_step,
    roll_order,
    turn_view,
)
from streaming.errors import ClusterUnreachable
from tests.control.carried import ERRORS
from tests.simulated_cluster import SimulatedClient, SimulatedCluster, controller
from tests.simulated_cluster.replication import SESSION_TIMEOUT_MS

TOPIC = "t"
RACKS = 5
REPLICAS = 3
BYTES_IN_PER_SEC = 500_000
READ_INTERVAL_MS = 1_000
METADATA_AGE_MAX_MS = 3_000
TURNS_MAX_PER_BROKER = 2_000
SECOND_MS = 1_000
SEEN_AFTER_MS = SESSION_TIMEOUT_MS + METADATA_AGE_MAX_MS + 2 * READ_INTERVAL_MS
"""Time after a crash from which each look shows what the crash has brought about, ms."""


class Killed(Exception):
    """The process that rolls is gone."""


@dataclass
class RollStory:
    """A cluster, and a roll of all its brokers with faults drawn from `seed`."""

    seed: int
    broker_count: int
    margin: int = 0
    needed: int = 2
    """`min.insync.replicas`."""
    kills: float = 0.0
    """Chance that the process is killed at a place where it may be."""
    crashes: bool = False
    """Whether other brokers crash, one at a time."""
    roll: Roll = field(init=False)
    caught_up_ms: dict[int, int] = field(default_factory=dict)
    """How long each broker took to be back in sync, from its restart on."""
    restarts: int = 0
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        brokers = range(1, self.broker_count + 1)
        self.racks: dict[int, str | None] = {broker: f"rack-{broker % RACKS}" for broker in brokers}
        self.cluster = SimulatedCluster.of(self.racks)
        placed = {number: tuple(self._replicas()) for number in range(2 * self.broker_count)}
        self.in_sync_min = {TOPIC: self.needed}
        self.cluster.create_topic(
            TOPIC, placed, bytes_in_per_sec=BYTES_IN_PER_SEC, retention_bytes=10**9,
            min_insync_replicas=self.needed,
        )  # fmt: skip
        old = SimulatedClient(self.cluster, errors=ERRORS)
        old.faults.metadata_lag_ms = METADATA_AGE_MAX_MS
        self.clients = (SimulatedClient(self.cluster, errors=ERRORS), old)
        self.begun = Roll("r", roll_order(brokers, self.racks, controller=1), RollPolicy(self.margin))
        self.roll = self.begun
        self.events: list[RollEvent] = []
        self.demoted: set[int] = set()
        self.before: dict[tuple[str, int], tuple[int, ...]] = {}
        self.restarting: dict[int, int] = {}
        """When the restart of a broker began that is not in sync yet."""
        self.crashed: int | None = None
        self.crashed_ms = 0
        self.view: TurnView | None = None
        self.command_ends_ms: int | None = None

    def _replicas(self) -> Iterator[int]:
        for rack in self.random.sample(sorted(set(self.racks.values()), key=str), REPLICAS):
            yield self.random.choice([broker for broker, of in self.racks.items() if of == rack])

    def run(self) -> int:
        """Roll to the end; how long it took, ms."""
        for _ in range(TURNS_MAX_PER_BROKER * self.broker_count):
            if self.roll.end is not None:
                return self.cluster.now_ms
            self._pass()
            try:
                self._kill_perhaps()
                self._take()
            except ClusterUnreachable:
                continue
            except Killed:
                self.roll = folded_roll(self.begun, self.events)
                self.view = self.command_ends_ms = None
        raise AssertionError(f"seed {self.seed}: not at its end: {self.roll}, {self.view}")

    def _pass(self) -> None:
        """Let a second pass, and look at what is never to happen."""
        if self.crashes and self.crashed is None and self.random.random() < 0.01:
            self._crash()
        self.cluster.advance(READ_INTERVAL_MS)
        brokers = self.cluster.contents.brokers
        kept = self.needed + (0 if self.crashes else self.margin)
        behind = set[int]()
        for key, row in self.cluster.contents.partitions():
            alive = [broker for broker in row.isr if brokers[broker].running]
            behind |= set(row.replicas).difference(alive)
            if len(alive) < kept:
                self.violations.append(f"{key} has {alive} in sync at {self.cluster.now_ms}")
        for broker, began_ms in list(self.restarting.items()):
            if broker not in behind and brokers[broker].running:
                self.caught_up_ms[broker] = self.cluster.now_ms - began_ms
                del self.restarting[broker]
        if self.crashed is not None and self.crashed not in behind and brokers[self.crashed].running:
            self.crashed = None

    def _crash(self) -> None:
        """A broker other than the one in turn, as soon as all replicas are in sync."""
        alive = [row for row, broker in self.cluster.contents.brokers.items() if broker.running]
        if len(alive) < self.broker_count or any(
            len(row.isr) < REPLICAS for _, row in self.cluster.contents.partitions()
        ):
            return
        crashed = self.random.choice(alive)
        self.crashed, self.crashed_ms = crashed, self.cluster.now_ms
        self.cluster.kill_broker(crashed)
        self.cluster.plan(self.random.randrange(10, 90) * SECOND_MS, lambda: self._start(crashed))

    def _start(self, broker: int) -> None:
        if not self.cluster.contents.brokers[broker].running:
            self.cluster.restart_broker(broker)

    def _kill_perhaps(self) -> None:
        if self.random.random() < self.kills:
            raise Killed

    def _take(self) -> None:
        if self.random.random() < 0.02:
            raise ClusterUnreachable("no answer")
        broker = self.roll.next_broker
        seen = None if broker is None else self._seen(broker)
        step = next_step(self.roll, seen, has_command=True)
        noted = {
            RollAct.DEMOTE: RollEvent.DEMOTING, RollAct.RESTART: RollEvent.RESTARTING,
            RollAct.NOTE_AWAY: RollEvent.AWAY, RollAct.UNDEMOTE: RollEvent.UNDEMOTING,
            RollAct.NOTE_RESTARTED: RollEvent.RESTARTED, RollAct.FINISH: RollEvent.DONE,
        }  # fmt: skip
        if step.act is RollAct.WAIT:
            return
        event = noted[step.act]
        if self.roll.phase is not event:
            self.roll = self.roll.after(event)
            self.events.append(event)
        self._kill_perhaps()
        if broker is not None:
            self._act(step.act, broker)

    def _seen(self, broker: int) -> TurnView:
        live = self.random.choice(self.clients).describe()
        now_ms = self.cluster.now_ms
        runs = self.command_ends_ms is not None and now_ms < self.command_ends_ms
        self.view = turn_view(
            broker, live, self.in_sync_min, is_noted=broker in self.demoted, is_out_of_use=False,
            is_command_running=runs, command_code=None if runs or self.command_ends_ms is None else 0,
            earlier=self.view,
        )  # fmt: skip
        return self.view

    def _act(self, act: RollAct, broker: int) -> None:
        live = self.clients[0].describe()
        if act is RollAct.DEMOTE:
            self.before |= {key: row.replicas for key, row in live.partitions.items() if broker in row.replicas}
            self.demoted.add(broker)
            self._carry_out(propose_demotion(live, frozenset({broker}), demoted=frozenset(), cluster_name="c").plan)
        elif act is RollAct.UNDEMOTE:
            back = propose_restoration(live, frozenset({broker}), self.before, demoted=frozenset(), cluster_name="c")
            self._carry_out(back.plan)
            self.demoted.discard(broker)
        elif act is RollAct.RESTART:
            self._restart(broker)
        else:
            self.command_ends_ms = self.command_ends_ms if act is RollAct.NOTE_AWAY else None

    def _carry_out(self, plan: Plan) -> None:
        for row in plan.movements:
            self.cluster.reassign({row.key: row.new_replicas})
            self.cluster.elect_preferred([row.key])

    def _restart(self, broker: int) -> None:
        """The command stops the broker in order, and starts it again; one broker in ten needs minutes."""
        self.restarts += 1
        away_ms = self.random.randrange(20, 60) * SECOND_MS * (10 if self.random.random() < 0.1 else 1)
        self.command_ends_ms = self.cluster.now_ms + self.random.choice((500, away_ms))
        if not self.cluster.contents.brokers[broker].running:
            return
        if self.cluster.now_ms - self.crashed_ms > SEEN_AFTER_MS:
            self._judge(broker)
        self.restarting[broker] = self.cluster.now_ms
        self.cluster.kill_broker(broker)
        controller.fence(self.cluster.contents, broker)
        self.cluster.plan(away_ms, lambda: self._start(broker))

    def _judge(self, broker: int) -> None:
        """No other broker may be away, and each partition must keep its margin, when the restart of a broker begins."""
        away = [row for row, other in self.cluster.contents.brokers.items() if not other.running and row != broker]
        if away:
            self.violations.append(f"broker {broker} is restarted while {away} are away")
        for key, row in self.cluster.contents.partitions():
            kept = set(row.isr) - {broker}
            if broker in row.replicas and len(kept) < self.needed + self.margin:
                self.violations.append(f"broker {broker} is restarted while {key} has {row.isr} in sync")

    @property
    def time_per_catching_up(self) -> float:
        """How long the roll took, per time that its brokers needed to be back in sync after their restarts."""
        return self.cluster.now_ms / sum(self.caught_up_ms.values())

    def broken(self) -> list[str]:
        """What went wrong in the story, which has ended; without a margin a crash may do what a restart must not."""
        found = [line for line in self.violations if self.margin or not self.crashes or line.startswith("broker")]
        brokers = set(range(1, self.broker_count + 1))
        found += [] if set(self.roll.restarted) == brokers else [f"restarted are {self.roll.restarted}"]
        return found + ([f"{sorted(self.demoted)} are still demoted"] if self.demoted else [])


def undisturbed(seed: int, broker_count: int = 15) -> RollStory:
    """A roll in which nothing fails but looks, and some brokers are slow."""
    return RollStory(seed, broker_count, margin=seed % 2, needed=2 - seed % 2)


def killed(seed: int, broker_count: int = 10) -> RollStory:
    """The process that rolls is killed again and again."""
    return RollStory(seed, broker_count, margin=seed % 2, needed=2 - seed % 2, kills=0.05)


def crashing(seed: int, broker_count: int = 10) -> RollStory:
    """Other brokers crash meanwhile, and the roll has no margin."""
    return RollStory(seed, broker_count, needed=1, kills=0.02, crashes=True)


def crashing_with_margin(seed: int, broker_count: int = 10) -> RollStory:
    """Other brokers crash meanwhile, and the roll has a margin for that."""
    return RollStory(seed, broker_count, margin=1, needed=1, kills=0.02, crashes=True)


STORIES: Mapping[str, Callable[..., RollStory]] = {
    row.__name__: row for row in (undisturbed, killed, crashing, crashing_with_margin)
}


def main() -> None:
    """Play stories of one kind and print what broke."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--story", choices=STORIES, default="killed")
    parser.add_argument("--brokers", type=int, default=10)
    given = parser.parse_args()
    ratios, broken = [], []
    for seed in range(given.first, given.first + given.seeds):
        story = STORIES[given.story](seed, given.brokers)
        try:
            story.run()
            broken += [{"seed": seed, "what": line} for line in story.broken()[:3]]
            ratios.append(story.time_per_catching_up)
        except AssertionError as error:
            broken.append({"seed": seed, "what": str(error)})
    figures = {"median": statistics.median(ratios), "max": max(ratios)} if ratios else {}
    print(json.dumps({"stories": given.seeds, "time_per_catching_up": figures, "broken": broken}))


if __name__ == "__main__":
    main()
