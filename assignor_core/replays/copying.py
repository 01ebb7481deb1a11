"""A plan while it is carried out: which movements copy, how fast, and which have ended.

The rules are those of `execution.reconcile` (waves, caps, ticks, the deadline) and of the tests' simulated cluster
(copies that press on one throttle share it evenly, producers go on writing), kept in few objects: only what copies now
is looked at, so that a plan of thousands of movements over many hours is replayed in a second. A test holds it against
those two.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from assignor_core.execution.reconcile import Limits
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan

DONE_BYTES = 0.5
"""Bytes left at which a copy counts as finished."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Limits under which plans are carried out."""

    throttle_bytes_per_sec: float
    tick_ms: int = 5_000
    """Time between two ticks, ms: a movement with room begins at the next tick."""
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class _Copy:
    """One new replica that catches up."""

    movement: Movement
    leader: int
    follower: int
    left_bytes: float
    produced_per_sec: float


class Copying:
    """One execution. `leader_of`, `bytes_of` and `produced_of` show a partition as it is when its movement begins."""

    def __init__(
        self,
        plan: Plan,
        pace: Pace,
        *,
        leader_of: Callable[[PartitionKey], int],
        bytes_of: Callable[[PartitionKey], float],
        produced_of: Callable[[PartitionKey], float],
    ) -> None:
        self._pace = pace
        self._leader_of, self._bytes_of, self._produced_of = leader_of, bytes_of, produced_of
        self._pending = deque(sorted(plan.movements, key=lambda row: row.wave))
        self._copies: list[_Copy] = []
        self._flying: dict[PartitionKey, tuple[int, ...]] = {}
        """Brokers that are at work for each movement under way: all of them until its last copy has caught up."""
        self._until_tick_ms = 0.0
        self._has_room = True
        """Whether further movements may begin: some have ended since the last tick, or none has begun yet."""
        self._ended = False
        self.elapsed_ms = 0.0
        self.worked_ms = 0.0
        """Elapsed time without pauses, in which no movement begins and none copies any more; the deadline counts it."""
        self.copied_bytes = 0.0
        """Bytes of movements that have ended, as the plan counts them."""
        self.given_up = False
        """Whether the deadline came first; finished movements stay."""

    @property
    def is_over(self) -> bool:
        """Whether all movements have ended."""
        return self._ended or self.given_up

    def advance(self, duration_ms: float, *, may_begin: bool = True) -> list[Movement]:
        """Let time pass; returns the movements that have ended in it. None begins unless `may_begin`."""
        ended: list[Movement] = []
        left_ms = duration_ms
        while left_ms > 0 and not self.is_over:
            if self._until_tick_ms <= 0:
                if self.worked_ms > self._pace.limits.deadline_ms:
                    self.given_up = True
                    break
                if may_begin and self._has_room:
                    begun = self._begin()
                    self._has_room = bool(begun)
                    ended += begun
                self._until_tick_ms = self._pace.tick_ms
                self._ended = not self._pending and not self._copies
                if self._ended:
                    break
            rates, is_at_work = self._rates(), may_begin or bool(self._copies)
            step_ms = min([left_ms, self._until_tick_ms, *self._caught_up_ms(rates)])
            caught_up = self._copy(rates, step_ms)
            self._has_room = self._has_room or bool(caught_up)
            ended += caught_up
            left_ms -= step_ms
            self._until_tick_ms -= step_ms
            self.elapsed_ms += step_ms
            self.worked_ms += step_ms if is_at_work else 0.0
        self.copied_bytes += sum(movement.bytes_to_move for movement in ended)
        return ended

    def _begin(self) -> list[Movement]:
        """Movements of the wave under way that the caps allow; those that copy nothing end at once."""
        limits = self._pace.limits
        per_topic = Counter(key[0] for key in self._flying)
        per_broker = Counter(broker for brokers in self._flying.values() for broker in brokers)
        wave = min((row.wave for row in (*self._pending, *(c.movement for c in self._copies))), default=0)
        elected: list[Movement] = []
        left: deque[Movement] = deque()
        while self._pending and self._pending[0].wave == wave and len(self._flying) < limits.movements_in_flight_max:
            movement = self._pending.popleft()
            receiving = sorted(set(movement.new_replicas) - set(movement.old_replicas))
            if not receiving and len(elected) < limits.elections_at_once_max:
                elected.append(movement)
                continue
            leader = self._leader_of(movement.key)
            busy = any(per_broker[broker] >= limits.movements_per_broker_max for broker in (*receiving, leader))
            if not receiving or busy or per_topic[movement.topic] >= limits.topic_max:
                left.append(movement)
                continue
            size, produced = self._bytes_of(movement.key), self._produced_of(movement.key)
            self._copies += [_Copy(movement, leader, broker, size, produced) for broker in receiving]
            self._flying[movement.key] = (*receiving, leader)
            per_topic[movement.topic] += 1
            per_broker.update((*receiving, leader))
        self._pending.extendleft(reversed(left))
        return elected

    def _rates(self) -> list[float]:
        """Bytes/s of each copy: its part of its leader's throttle and of its follower's, whichever is less."""
        sent = Counter(copy.leader for copy in self._copies)
        received = Counter(copy.follower for copy in self._copies)
        throttle = self._pace.throttle_bytes_per_sec
        return [throttle / max(sent[copy.leader], received[copy.follower]) for copy in self._copies]

    def _caught_up_ms(self, rates: list[float]) -> list[float]:
        gains = [rate - copy.produced_per_sec for copy, rate in zip(self._copies, rates, strict=True)]
        return [
            max(copy.left_bytes / gain * 1000, 1e-3) for copy, gain in zip(self._copies, gains, strict=True) if gain > 0
        ]

    def _copy(self, rates: list[float], step_ms: float) -> list[Movement]:
        """Copies bytes; returns the movements whose last copy has caught up."""
        for copy, rate in zip(self._copies, rates, strict=True):
            copy.left_bytes += (copy.produced_per_sec - rate) * step_ms / 1000
        caught_up = {copy.movement.key: copy.movement for copy in self._copies if copy.left_bytes <= DONE_BYTES}
        self._copies = [copy for copy in self._copies if copy.left_bytes > DONE_BYTES]
        copying = {copy.movement.key for copy in self._copies}
        ended = [movement for key, movement in caught_up.items() if key not in copying]
        for movement in ended:
            del self._flying[movement.key]
        return ended
