"""Faults of others that have streams of random numbers of their own: the rest of a story is what it would be without.

- Identity and time: another cluster behind the address, topics hidden or made again, paused machines, late requests.
- Throttles that others change: brokers hear late of lists of throttled replicas; others set lists to `*`, and remove
  lists and rates. In some stories Kafka takes so few bytes of a value that the lists have no room for a whole plan.
- A person who sets throttle rates, and tables that are rolled back while an execution is under way.
- An operator who cancels moves of an execution with Kafka's own tool, each time that control asks for them again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from random import Random
from unittest import mock

from assignor_core import throttles
from assignor_core.errors import InputError
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import (
    EVERY_REPLICA,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIR_RATE,
    is_foreign,
)
from streaming.control.obstacles import CANCELS_MAX
from streaming.control.wiring import journal_of
from tests.simulated_cluster import Fate, PlannedFault, RequestKind, SimulatedCluster
from tests.simulation.monitor import Monitor
from tests.simulation.world import Actor, Blow, Interruption, World

OTHER_CLUSTER = "another-cluster"
BEGIN_MS = 20_000
"""A control has the lease by then: the tables know their cluster."""
LATE_MAX_MS = 60_000
EARLY_CALLS = 150
"""Among so many first calls out most executions of a story are carried out."""
TAKEN_OVER_MS = 45_000
"""A stand-by takes the lease over within this time."""
DELAYS_MS = (200, 1_000, 5_000)
DELAYS_MAX = 4
LISTS_REMOVED_AFTER_MS = 30_000
RATES_REMOVED = (0, 0, 0, 1, 3)
"""So often in a story others remove the rates of a broker."""
LIST_BYTES_MAX = throttles.LIST_BYTES_MAX
VALUE_BYTES = (throttles.VALUE_BYTES_MAX, throttles.VALUE_BYTES_MAX, 24, 40)
"""What Kafka takes of a value; the small ones are as if a plan named a thousand times as many replicas."""
RATES_BYTES_PER_SEC = (2_000_000, 10_000_000)
RATES_SET = (0, 0, 0, 1, 3)
"""How often in a story the person sets rates."""
EARLY_MS = 1_000
"""Before control begins anything."""
RATES_REMOVED_AFTER_MS = 60_000
ROLLED_BACK_AFTER_MS = 20_000
CANCEL_LOOK_MS = 500
"""How often the operator lists reassignments."""
CANCELS = (1, 2, 6, 6)
"""So often the operator cancels a move, at most."""


class OwnFaults:
    """What of some kind strikes one story; none of it begins after `faults_ms`."""

    def __init__(self, stream: str, world: World, others: Actor, faults_ms: int) -> None:
        """`stream` names the random numbers."""
        self._random = Random(stream)
        self._world, self._others, self._faults_ms = world, others, faults_ms

    def _plan(self, at_ms: int, action: Callable[[], object]) -> None:
        self._world.plan(at_ms, self._others, action)

    def _tell(self, what: str, kind: str) -> None:
        """One line of the trace, and the kind of a fault that has struck."""
        self._world.note("others", what)
        self._world.faults[kind] += 1


class IdentityFaults(OwnFaults):
    """Faults of identity and of time."""

    def __init__(self, seed: int, world: World, monitor: Monitor, faults_ms: int) -> None:
        super().__init__(f"identity {seed}", world, Actor("others"), faults_ms)
        self._monitor = monitor
        self.leaves_late_work = False
        """Whether what control does after the end of an execution matters to the story."""

    def plan(self) -> None:
        """Plan those that don't depend on a plan of movements."""
        random, world = self._random, self._world
        for number, interruption in sorted(world.interruptions.items()):
            if interruption.blow.freezes and random.random() < 0.5:
                world.interruptions[number] = replace(interruption, clock_stops=True)
        if random.random() < 0.3:
            blow = random.choice((Blow.FREEZE_BEFORE, Blow.FREEZE_AFTER))
            world.interruptions[random.randrange(1, EARLY_CALLS)] = Interruption(blow, TAKEN_OVER_MS, clock_stops=True)
        if random.random() < 0.2:
            self.leaves_late_work = True
            self._for_a_while("another cluster answers at the address", self._lead_away, self._lead_back)
        if random.random() < 0.15:
            topic = random.choice(sorted(world.cluster.contents.topics))
            hidden = world.client_faults.hidden_topics
            self._monitor.touch_topic(topic)
            self.leaves_late_work = True
            self._for_a_while(
                f"{topic} may not be described", partial(hidden.add, topic), partial(hidden.discard, topic), 30_000
            )
        for _ in range(random.choice((0, 0, 0, 0, 0, 1, 3))):
            kind = random.choice((RequestKind.REASSIGN, RequestKind.CHANGE_THROTTLES))
            fault = PlannedFault(Fate.LATE, kind, random.randrange(1_000, LATE_MAX_MS))
            self.leaves_late_work = True
            self._later(
                f"a request is carried out late: {kind.value}", partial(world.client_faults.planned.append, fault)
            )

    def plan_for(self, plan: Plan) -> None:
        """Let a topic of a plan that has just been approved be made again, its partitions where they were."""
        if self._random.random() < 0.15:
            topic = self._random.choice(plan.movements).topic
            made_again = partial(self._strike, f"{topic} of the plan is made again", partial(self._make_again, topic))
            self._plan(self._random.randrange(1_000, 30_000), made_again)

    def end(self) -> None:
        """Faults are over."""
        self._world.other_cluster = None
        self._world.client_faults.hidden_topics.clear()

    def _for_a_while(
        self, what: str, begin: Callable[[], object], end: Callable[[], object], duration_max_ms: int = 60_000
    ) -> None:
        start_ms = self._random.randrange(BEGIN_MS, self._faults_ms // 2)
        self._plan(start_ms, partial(self._strike, what, begin))
        self._plan(start_ms + self._random.randrange(500, duration_max_ms), end)

    def _later(self, what: str, action: Callable[[], object]) -> None:
        delay_ms = self._random.randrange(1_000, self._faults_ms // 2)
        self._plan(delay_ms, partial(self._strike, what, action))

    def _strike(self, what: str, action: Callable[[], object]) -> None:
        action()
        self._tell(what, " ".join(word for word in what.split() if not any(sign.isdigit() for sign in word)))
        self._monitor.look(self._others)

    def _lead_away(self) -> None:
        """A copy of the cluster: only its id is another one."""
        contents = self._world.cluster.contents
        other = SimulatedCluster(OTHER_CLUSTER, deepcopy(list(contents.brokers.values())), contents.release)
        other.contents.topics.update(deepcopy(contents.topics))
        other.contents.throttle_rates.update(deepcopy(contents.throttle_rates))
        self._world.other_cluster, self._world.led_away_ms = other, self._world.now_ms

    def _lead_back(self) -> None:
        self._world.other_cluster = None

    def _make_again(self, topic: str) -> None:
        cluster, before = self._world.cluster, self._world.cluster.contents.topics.get(topic)
        if before is None or any(row.reassigning for row in before.partitions.values()):
            return  # Kafka ends reassignments with the topic: nothing would be left to compare
        replicas = {number: row.replicas for number, row in before.partitions.items()}
        if len({len(row) for row in replicas.values()}) > 1:
            return  # Kafka makes topics with one replication factor
        self._monitor.touch_topic(topic)
        cluster.delete_topic(topic)
        with suppress(InputError):  # a broker has no log dir that is online: it is made with fewer partitions
            cluster.create_topic(topic, replicas)


class ListFaults(OwnFaults):
    """Throttles that others change."""

    def __init__(self, seed: int, world: World, others: Actor, faults_ms: int) -> None:
        super().__init__(f"lists of {seed}", world, others, faults_ms)
        self._rates_random = Random(f"rates of {seed}")
        self._value_bytes_max = Random(f"values of {seed}").choice(VALUE_BYTES)

    @contextmanager
    def bounded_values(self) -> Iterator[None]:
        """Kafka and control know the bound of the story while this lasts."""
        ours = min(self._value_bytes_max, LIST_BYTES_MAX)
        with mock.patch.multiple(throttles, VALUE_BYTES_MAX=self._value_bytes_max, LIST_BYTES_MAX=ours):
            yield

    def plan(self) -> None:
        """Let them happen as time passes."""
        self._world.faults["lists are shorter than plans"] += self._value_bytes_max < max(VALUE_BYTES)
        random, lists_changed = self._random, self._random.choice((0, 0, 1, 3))
        if random.random() < 0.5:
            for _ in range(random.randint(1, DELAYS_MAX)):
                self._plan(random.randrange(self._faults_ms), self._delay(random.choice(DELAYS_MS)))
        for _ in range(lists_changed):
            name = random.choice(sorted(self._world.cluster.placement.topics))
            settings = random.choice(((LEADER_REPLICAS,), (FOLLOWER_REPLICAS,), (LEADER_REPLICAS, FOLLOWER_REPLICAS)))
            at_ms = random.randrange(self._faults_ms)
            self._plan(at_ms, self._setting(name, settings))
            self._plan(at_ms + random.randrange(1, LISTS_REMOVED_AFTER_MS), self._removing(name, settings))

        for _ in range(self._rates_random.choice(RATES_REMOVED)):
            self._plan(self._rates_random.randrange(self._faults_ms), self._remove_rates)

    def end(self) -> None:
        """Brokers hear of changes at once again."""
        self._world.cluster.contents.list_delay_ms = 0

    def _delay(self, delay_ms: int) -> Callable[[], None]:
        def begin() -> None:
            self._world.cluster.contents.list_delay_ms = delay_ms
            self._world.faults["brokers hear late of lists of throttled replicas"] += 1

        return begin

    def _setting(self, name: str, settings: tuple[str, ...]) -> Callable[[], None]:
        def set_lists() -> None:
            if name in self._world.cluster.placement.topics:
                for setting in settings:
                    self._world.cluster.set_throttled_replicas(name, setting, EVERY_REPLICA)
                self._strikes(f"every replica of {name} is throttled by others")

        return set_lists

    def _removing(self, name: str, settings: tuple[str, ...]) -> Callable[[], None]:
        """With all that they hold, as a person or Kafka's own tool does."""

        def remove() -> None:
            if name in self._world.cluster.placement.topics:
                for setting in settings:
                    self._world.cluster.remove_throttled_replicas(name, setting)
                self._strikes(f"throttled replicas of {name} are removed by others")

        return remove

    def _remove_rates(self) -> None:
        """Of a broker that has some, as a person does who takes them for forgotten; one of the two, or both."""
        rates = self._world.cluster.contents.throttle_rates
        if rates:
            broker_id = self._rates_random.choice(sorted(rates))
            for setting in self._rates_random.choice(((LEADER_RATE,), (FOLLOWER_RATE,), (LEADER_RATE, FOLLOWER_RATE))):
                self._world.cluster.set_throttle_rate(broker_id, setting, None)
            self._tell(f"rates of broker {broker_id} are removed by others", "rates of a broker are removed by others")

    def _strikes(self, what: str) -> None:
        self._world.lists_changed = True
        self._tell(what, " ".join(word for word in what.split() if not word.startswith("topic-")))


class RateFaults(OwnFaults):
    """What a person sets."""

    def __init__(self, seed: int, world: World, others: Actor, faults_ms: int) -> None:
        super().__init__(f"rates of a person of {seed}", world, others, faults_ms)
        self._removed_ms: dict[int, int] = {}
        """When the person last removed a rate of their own, by broker."""

    def removed_since(self, when_ms: int) -> set[int]:
        """Brokers whose rate the person has removed since then."""
        return {broker for broker, removed_ms in self._removed_ms.items() if removed_ms >= when_ms}

    def plan(self, settings: tuple[str, ...] = (LEADER_RATE, FOLLOWER_RATE)) -> None:
        """Let the person set some of these rates as time passes: before, during or after executions."""
        for _ in range(self._random.choice(RATES_SET)):
            at_ms = self._random.choice((EARLY_MS, self._random.randrange(self._faults_ms)))
            self._plan(at_ms, lambda: self._set(settings))

    def _set(self, settings: tuple[str, ...]) -> None:
        """On a broker that has rates of control's, if there is one; half of them are removed later."""
        random, contents = self._random, self._world.cluster.contents
        throttled = contents.log_dir_rates if LOG_DIR_RATE in settings else contents.throttle_rates
        broker_id = random.choice(sorted(throttled or contents.brokers))
        chosen = random.sample(settings, random.randint(1, len(settings)))
        rate = random.choice(RATES_BYTES_PER_SEC)
        for setting in chosen:
            self._change(broker_id, setting, rate)
        told = f"a person sets {', '.join(chosen)} of broker {broker_id} to {rate}"
        self._tell(told, "a person sets rates of their own")
        if random.random() < 0.5:
            self._plan(random.randrange(1, RATES_REMOVED_AFTER_MS), lambda: self._remove(broker_id, chosen))

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


class TableFaults(OwnFaults):
    """Whether the table `execution` is rolled back while an execution is under way."""

    def __init__(self, seed: int, world: World, monitor: Monitor, others: Actor, faults_ms: int) -> None:
        super().__init__(f"tables of {seed}", world, others, faults_ms)
        self._monitor = monitor

    def plan_for_approval(self) -> None:
        """In one of ten stories, some seconds after a plan was approved."""
        if self._random.random() < 0.1:
            self._plan(self._random.randrange(1_000, ROLLED_BACK_AFTER_MS), self._roll_back)

    def _roll_back(self) -> None:
        """To before the executions that have begun; what was written stays known as such, as with Delta's RESTORE."""
        begun = {row.execution_id for row in self._monitor.executions() if row.in_progress}
        if not begun:
            return
        table = self._world.store.tables["execution"]
        rows = tuple(row for row in table.rows if row["execution_id"] not in begun)
        self._world.store.tables["execution"] = replace(table, version=table.version + 1, rows=rows)
        self._monitor.forget(begun)
        self._tell("the table execution is rolled back", "the tables are rolled back during an execution")


class OperatorFaults(OwnFaults):
    """An operator who cancels."""

    def __init__(self, seed: int, world: World, monitor: Monitor, others: Actor, faults_ms: int) -> None:
        super().__init__(f"operator of {seed}", world, others, faults_ms)
        self._monitor = monitor

    def plan_for(self, plan: Plan) -> None:
        """Let the operator cancel the longest move of a plan that has just been approved; in three of ten stories."""
        copies = [row for row in plan.movements if row.kind == "replica"]
        if copies and self._random.random() < 0.3:
            longest = max(copies, key=lambda row: row.bytes_to_move)
            self._watch(longest, self._random.choice(CANCELS))

    def abort_paused(self) -> None:
        """Where control waits for a person, the operator ends the execution."""
        for execution in self._monitor.executions():
            waits = execution.paused and max(execution.cancels.values(), default=0) >= CANCELS_MAX
            if waits and not execution.abort_requested:
                journal_of(self._world.settings).request_abort(execution, "a person", now_ms=self._world.now_ms)

    def _watch(self, movement: Movement, left: int) -> None:
        self._plan(CANCEL_LOOK_MS, lambda: self._look(movement, left))

    def _look(self, movement: Movement, left: int) -> None:
        if self._world.cluster.now_ms >= self._faults_ms:
            return
        cancelled = self._is_ours(movement.key) and self._cancel(movement.key)
        if left > cancelled:
            self._watch(movement, left - cancelled)

    def _is_ours(self, key: PartitionKey) -> bool:
        row = self._world.cluster.placement.partition(key)
        return row is not None and row.reassigning and self._monitor.is_ours(key)

    def _cancel(self, key: PartitionKey) -> bool:
        """Whether Kafka took it: not where no old replica is in sync."""
        self._world.cluster.reassign({key: None})
        self._monitor.look(self._others)
        row = self._world.cluster.placement.partition(key)
        if row is None or row.reassigning:
            return False
        self._monitor.operator_cancelled(key)
        self._tell(f"an operator cancels {key[0]}-{key[1]}", "an operator cancels a move of the plan")
        return True
