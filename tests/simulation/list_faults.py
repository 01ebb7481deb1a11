"""Throttles that others change. Brokers hear late of lists of throttled replicas; others set lists to `*`, and remove
lists and rates. In some stories Kafka takes so few bytes of a value that the lists have no room for a whole plan.

Drawn apart, so that the rest of a story is what it would be without these faults.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from unittest import mock

from assignor_core import throttles
from assignor_core.throttles import EVERY_REPLICA, FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.simulation.world import Actor, World

DELAYS_MS = (200, 1_000, 5_000)
DELAYS_MAX = 4
REMOVED_AFTER_MS = 30_000
RATES_REMOVED = (0, 0, 0, 1, 3)
"""So often in a story others remove the rates of a broker."""
LIST_BYTES_MAX = throttles.LIST_BYTES_MAX
VALUE_BYTES = (throttles.VALUE_BYTES_MAX, throttles.VALUE_BYTES_MAX, 24, 40)
"""What Kafka takes of a value; the small ones are as if a plan named a thousand times as many replicas."""


class ListFaults:
    """Those of one story; none of them begins after `faults_ms`."""

    def __init__(self, seed: int, world: World, others: Actor, faults_ms: int) -> None:
        self._random, self._rates_random = Random(f"lists of {seed}"), Random(f"rates of {seed}")
        self._world, self._others, self._faults_ms = world, others, faults_ms
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
            self._plan(at_ms + random.randrange(1, REMOVED_AFTER_MS), self._removing(name, settings))

        for _ in range(self._rates_random.choice(RATES_REMOVED)):
            self._plan(self._rates_random.randrange(self._faults_ms), self._remove_rates)

    def end(self) -> None:
        """Brokers hear of changes at once again."""
        self._world.cluster.contents.list_delay_ms = 0

    def _plan(self, at_ms: int, action: Callable[[], None]) -> None:
        self._world.plan(at_ms, self._others, action)

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
            self._world.note("others", f"rates of broker {broker_id} are removed by others")
            self._world.faults["rates of a broker are removed by others"] += 1

    def _strikes(self, what: str) -> None:
        self._world.lists_changed = True
        self._world.note("others", what)
        self._world.faults[" ".join(word for word in what.split() if not word.startswith("topic-"))] += 1
