"""A person who sets throttle rates on brokers, and tables that are rolled back while an execution is under way.

Drawn apart, so that the rest of a story is what it would be without these faults.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE, LOG_DIR_RATE, is_foreign
from tests.simulation.monitor import Monitor
from tests.simulation.world import Actor, World

RATES = (2_000_000, 10_000_000)
TIMES = (0, 0, 0, 1, 3)
"""How often in a story the person sets rates."""
EARLY_MS = 1_000
"""Before control begins anything."""
REMOVED_AFTER_MS = 60_000
ROLLED_BACK_AFTER_MS = 20_000


class RateFaults:
    """What the person of one story sets."""

    def __init__(self, seed: int, world: World, others: Actor, faults_ms: int) -> None:
        self._random = Random(f"rates of a person of {seed}")
        self._world, self._others, self._faults_ms = world, others, faults_ms
        self._removed_ms: dict[int, int] = {}
        """When the person last removed a rate of their own, by broker."""

    def removed_since(self, when_ms: int) -> set[int]:
        """Brokers whose rate the person has removed since then."""
        return {broker for broker, removed_ms in self._removed_ms.items() if removed_ms >= when_ms}

    def plan(self, settings: tuple[str, ...] = (LEADER_RATE, FOLLOWER_RATE)) -> None:
        """Let the person set some of these rates as time passes: before, during or after executions."""
        for _ in range(self._random.choice(TIMES)):
            at_ms = self._random.choice((EARLY_MS, self._random.randrange(self._faults_ms)))
            self._world.plan(at_ms, self._others, lambda: self._set(settings))

    def _set(self, settings: tuple[str, ...]) -> None:
        """On a broker that has rates of control's, if there is one; half of them are removed later."""
        random, contents = self._random, self._world.cluster.contents
        throttled = contents.log_dir_rates if LOG_DIR_RATE in settings else contents.throttle_rates
        broker_id = random.choice(sorted(throttled or contents.brokers))
        chosen = random.sample(settings, random.randint(1, len(settings)))
        rate = random.choice(RATES)
        for setting in chosen:
            self._change(broker_id, setting, rate)
        self._world.note("others", f"a person sets {', '.join(chosen)} of broker {broker_id} to {rate}")
        self._world.faults["a person sets rates of their own"] += 1
        if random.random() < 0.5:
            delay_ms = random.randrange(1, REMOVED_AFTER_MS)
            self._world.plan(delay_ms, self._others, lambda: self._remove(broker_id, chosen))

    def _remove(self, broker_id: int, settings: list[str]) -> None:
        contents = self._world.cluster.contents
        shown: Mapping[str, int | None] = {
            **contents.throttle_rates.get(broker_id, {}),
            LOG_DIR_RATE: contents.log_dir_rates.get(broker_id),
        }
        for setting in settings:
            if is_foreign(shown.get(setting)):
                self._change(broker_id, setting, None)
                self._removed_ms[broker_id] = self._world.cluster.now_ms

    def _change(self, broker_id: int, setting: str, rate: int | None) -> None:
        if setting == LOG_DIR_RATE:
            self._world.cluster.set_log_dir_rate(broker_id, rate)
        else:
            self._world.cluster.set_throttle_rate(broker_id, setting, rate)


class TableFaults:
    """Whether the table `execution` of one story is rolled back while an execution is under way."""

    def __init__(self, seed: int, world: World, monitor: Monitor, others: Actor) -> None:
        self._random = Random(f"tables of {seed}")
        self._world, self._monitor, self._others = world, monitor, others

    def plan_for_approval(self) -> None:
        """In one of ten stories, some seconds after a plan was approved."""
        if self._random.random() < 0.1:
            self._world.plan(self._random.randrange(1_000, ROLLED_BACK_AFTER_MS), self._others, self._roll_back)

    def _roll_back(self) -> None:
        """To before the executions that have begun; what was written stays known as such, as with Delta's RESTORE."""
        begun = {row.execution_id for row in self._monitor.executions() if row.in_progress}
        if not begun:
            return
        table = self._world.store.tables["execution"]
        rows = tuple(row for row in table.rows if row["execution_id"] not in begun)
        self._world.store.tables["execution"] = replace(table, version=table.version + 1, rows=rows)
        self._monitor.forget(begun)
        self._world.note("others", "the table execution is rolled back")
        self._world.faults["the tables are rolled back during an execution"] += 1
