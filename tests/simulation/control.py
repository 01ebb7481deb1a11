"""One control process of a story: lease, turns and client as `run_control` builds them, at the world's clock."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from assignor_core.disks import LogDirDescription
from assignor_core.live import LiveCluster, PartitionKey, ReplicaKey, replica_name
from assignor_core.marker import Marker
from assignor_core.throttles import ThrottledReplicas
from streaming.control.lease import RENEWALS_PER_TTL, Lease
from streaming.control.run import ControlTurns
from streaming.errors import AnotherCluster, LeaseExpired, LeaseLost, TableUnavailable
from streaming.settings import Settings
from streaming.views.identity import check_cluster_id
from tests.simulated_cluster import RequestKind, SimulatedClient
from tests.simulation.stack import Stack
from tests.simulation.world import ERRORS, Actor, Killed, World

REFUSED_RESTART_MS = 5_000
"""After a start that was refused a supervisor starts control again."""
LOOP_SILENT_MAX_MS = 20_000
"""Less than control's own, so that a turn that waits for long enough loses the lease within a story."""
Answer = TypeVar("Answer")
Targets = Mapping[PartitionKey, tuple[int, ...] | None]
"""New replicas by partition; None cancels."""


@dataclass(frozen=True, slots=True)
class Change:
    """A request that changes the cluster: what it does in words, and what it asks for."""

    text: str
    targets: Targets = field(default_factory=dict)
    elected: tuple[PartitionKey, ...] = ()
    within: Mapping[ReplicaKey, str] = field(default_factory=dict)
    """Log dirs by replica, of movements within brokers."""
    late_ms: int = 0
    """How much later than it was sent it is carried out."""


class Watcher:
    """Who judges what a control does; by itself it judges nothing."""

    def asked(self, who: "SimulatedControl", topics: Collection[str] | None) -> None:
        """It has looked at these topics of the cluster, or at all."""

    def looked_at_disks(self, who: "SimulatedControl") -> None:
        """It has looked at log dirs."""

    def changing(self, who: "SimulatedControl", change: "Change") -> None:
        """It is about to change the cluster, and its lease was asked."""

    def arriving_late(self, who: "SimulatedControl", change: "Change") -> None:
        """A request that it gave up is about to be carried out."""

    def changed(self, who: "SimulatedControl") -> None:
        """The request has come back, answered or not."""

    def crashed(self, who: "SimulatedControl", reason: str) -> None:
        """It has ended by itself."""


class WatchedClient(SimulatedClient):
    """The cluster as one control sees it: each call may be struck before and after, each change is judged."""

    def __init__(
        self, world: World, control: "SimulatedControl", watcher: Watcher, may_act: Callable[[], None]
    ) -> None:
        lease = control.lease
        super().__init__(world.addressed, errors=ERRORS, may_act=may_act, kafka_cluster_id=lease.kafka_cluster_id)
        self.faults = world.client_faults
        self._world = world
        self._control = control
        self._watcher = watcher
        self._pending: Change | None = None

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        answer = self._ask(lambda: super(WatchedClient, self).describe(topics))
        self._watcher.asked(self._control, topics)
        return answer

    def markers(self) -> tuple[Marker, ...]:
        return self._ask(super().markers)

    def write_marker(self, marker: Marker, replaced: Collection[Marker] = ()) -> None:
        what = f"mark the cluster{' as released' if marker.is_released else ''}"
        self._change(Change(what), lambda: super(WatchedClient, self).write_marker(marker, replaced))

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        answer = self._ask(lambda: super(WatchedClient, self).log_dirs(brokers, partitions))
        self._watcher.looked_at_disks(self._control)
        return answer

    def throttle_rates(self, brokers: Collection[int] | None = None) -> dict[int, dict[str, int]]:
        return self._ask(lambda: super(WatchedClient, self).throttle_rates(brokers))

    def throttled_replicas(self, topics: Iterable[str]) -> dict[tuple[str, str], str]:
        names = list(topics)
        return self._ask(lambda: super(WatchedClient, self).throttled_replicas(names))

    def reassign(self, targets: Targets) -> None:
        verb = "cancel" if None in targets.values() else "reassign"
        change = Change(f"{verb} {_named(targets)}", targets)
        self._change(change, lambda: super(WatchedClient, self).reassign(targets))

    def elect_preferred(self, partitions: Iterable[PartitionKey]) -> None:
        keys = sorted(partitions)
        change = Change(f"elect {_named(dict.fromkeys(keys))}", elected=tuple(keys))
        self._change(change, lambda: super(WatchedClient, self).elect_preferred(keys))

    def set_throttled_replicas(
        self, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        self._change(
            Change("list throttled replicas"),
            lambda: super(WatchedClient, self).set_throttled_replicas(leaders, followers),
        )

    def set_throttle_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        change = Change(f"throttle {dict(sorted(rates_bytes_per_sec.items()))}")
        self._change(change, lambda: super(WatchedClient, self).set_throttle_rates(rates_bytes_per_sec))

    def clear_throttle(
        self,
        brokers: Collection[int],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,
    ) -> list[int]:
        return self._change(
            Change(f"clear throttle of {sorted(brokers)}"),
            lambda: super(WatchedClient, self).clear_throttle(brokers, leaders, followers, untagged=untagged),
        )

    def log_dir_rates(self, brokers: Collection[int] | None = None) -> dict[int, int]:
        return self._ask(lambda: super(WatchedClient, self).log_dir_rates(brokers))

    def move_to_log_dirs(self, targets: Mapping[ReplicaKey, str]) -> None:
        named = ", ".join(f"{replica_name(replica)} to {path}" for replica, path in sorted(targets.items()))
        self._change(
            Change(f"move {named}", within=targets), lambda: super(WatchedClient, self).move_to_log_dirs(targets)
        )

    def set_log_dir_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        change = Change(f"throttle within brokers {dict(sorted(rates_bytes_per_sec.items()))}")
        self._change(change, lambda: super(WatchedClient, self).set_log_dir_rates(rates_bytes_per_sec))

    def clear_log_dir_rates(self, brokers: Collection[int], *, untagged: bool = False) -> list[int]:
        change = Change(f"clear throttle within {sorted(brokers)}")
        return self._change(change, lambda: super(WatchedClient, self).clear_log_dir_rates(brokers, untagged=untagged))

    def cordon_log_dirs(self, broker_id: int, paths: Collection[str], *, cordoned: bool) -> None:
        change = Change(f"{'cordon' if cordoned else 'uncordon'} {sorted(paths)} of broker {broker_id}")
        self._change(change, lambda: super(WatchedClient, self).cordon_log_dirs(broker_id, paths, cordoned=cordoned))

    def _send(self, request: RequestKind, action: Callable[[], Answer], *, of_controller: bool = False) -> Answer:
        """Judged here, as the lease has just been asked."""
        self._follow_address()
        change, sent_ms = self._pending, self.cluster.now_ms
        if change is None:
            return super()._send(request, action, of_controller=of_controller)
        self._watcher.changing(self._control, change)
        sending = True

        def carried_out() -> Answer:
            if sending:
                return action()
            self._watcher.arriving_late(self._control, replace(change, late_ms=self.cluster.now_ms - sent_ms))
            try:
                return action()
            finally:
                self._watcher.changed(self._control)

        try:
            return super()._send(request, carried_out, of_controller=of_controller)
        finally:
            sending = False

    def _follow_address(self) -> None:
        if self.cluster is not self._world.addressed:
            self.connect(self._world.addressed)

    def _check_cluster(self) -> None:
        self._follow_address()
        super()._check_cluster()
        self._control.checked_ms = self._world.now_ms

    def _ask(self, action: Callable[[], Answer]) -> Answer:
        """Even before a change is sent control may look at the markers."""
        self._world.called("before a look")
        pending, self._pending = self._pending, None
        try:
            answer = action()
        finally:
            self._pending = pending
        self._world.called("after a look")
        return answer

    def _change(self, change: Change, action: Callable[[], Answer]) -> Answer:
        self._world.called(f"before: {change.text}")
        pending, self._pending = self._pending, change
        try:
            answer = action()
        except (ERRORS.refused, ERRORS.unanswered) as error:
            self._world.note(self._control.name, f"{change.text}: {error}")
            raise
        else:
            self._world.note(self._control.name, change.text)
        finally:
            self._pending = pending
            self._watcher.changed(self._control)
        self._world.called(f"after: {change.text}")
        return answer


class SimulatedControl(Actor):
    """Takes turns and renews its lease until it is killed; the world plans both."""

    def __init__(self, name: str, world: World, watcher: Watcher, settings: Settings | None = None) -> None:
        """With `settings` of its own it has other tables than the world's."""
        super().__init__(name)
        settings = settings or world.settings
        self._settings = settings
        self._world = world
        self._watcher = watcher
        self.replaced: Callable[[SimulatedControl], None] = lambda _control: None
        """Called once it has ended, however."""
        self.lease = Lease(
            settings.storage.tables, settings.kafka.cluster_name, settings.control.lease_ms,
            clock=lambda: world.now_ms - self.stood_still_ms, wall_clock=lambda: world.now_ms,
            kafka_cluster_id=world.addressed.contents.cluster_id, loop_silent_max_ms=LOOP_SILENT_MAX_MS,
            new_id=world.new_id,
        )  # fmt: skip
        self.checked_ms = 0
        """When it last saw the right cluster at the address."""
        self._turn, self._keeper = Stack(), Stack()
        self._acting: Stack | None = None
        self._alarm = Actor(f"alarm of {name}")
        self._replaced = False
        world.actors.append(self)
        self._turns = ControlTurns(WatchedClient(world, self, watcher, self.lease.check), self.lease, settings)

    def start(self) -> None:
        """From now on it acts when it is its turn."""
        self._world.note(self.name, "starts")
        try:
            check_cluster_id(self._settings.kafka, self._settings.storage.tables, self.lease.kafka_cluster_id or "")
        except AnotherCluster as error:
            self._world.note(self.name, f"ends: {error}")
            self.ended, self.restart_ms = True, REFUSED_RESTART_MS
            self.replaced(self)
            return
        self._take_turn()
        self._world.plan(self._renewal_ms, self, self._renew)

    def paused(self, duration_ms: int, *, frozen: bool) -> None:
        """Stop here for so long; `frozen` where nothing else of it goes on meanwhile."""
        stack, self.away = self._acting, frozen
        assert stack is not None, "a story in which controls stop runs them on stacks"

        def go_on() -> None:
            self._world.wake(self)
            self._on(stack, stack.go_on)

        # Who is frozen can't wake up itself; and who only waits does not go on while it is frozen.
        self._world.plan(duration_ms, self._alarm if frozen else self, go_on)
        stack.pause()

    def kill(self, restart_ms: int) -> None:
        """End it at once, in the middle of a turn or between two; another one starts `restart_ms` later."""
        self.ended, self.restart_ms = True, restart_ms
        self._replace()

    def end(self) -> None:
        """Leave the turns in which it waits."""
        self.ended = True
        for stack in (self._turn, self._keeper):
            while stack.paused:
                self._on(stack, stack.go_on)
            stack.end()

    @property
    def _renewal_ms(self) -> int:
        return self._settings.control.lease_ms // RENEWALS_PER_TTL

    def _take_turn(self) -> None:
        def turn() -> None:
            wait_ms = self._act(lambda: self._turns.take(now_ms=self._world.now_ms))
            if wait_ms is not None:
                self._world.plan(wait_ms, self, self._take_turn)

        self._begin(self._turn, turn)

    def _renew(self) -> None:
        """What the keeper's thread does."""

        def renew() -> bool:
            try:
                self.lease.renew()
            except (LeaseLost, LeaseExpired, TableUnavailable) as error:
                self._world.note(self.name, f"lease not renewed: {error}")
            return True

        def keep() -> None:
            if self._act(renew):
                self._world.plan(self._renewal_ms, self, self._renew)

        self._begin(self._keeper, keep)

    def _begin(self, stack: Stack, action: Callable[[], None]) -> None:
        self._on(stack, (lambda: stack.run(action)) if self._world.may_pause else action)

    def _on(self, stack: Stack, action: Callable[[], None]) -> None:
        """Act as this process until it has done what it does, or pauses."""
        self._world.running, self._acting = self, stack
        action()
        self._world.running = self._acting = None

    def _act(self, action: Callable[[], Answer]) -> Answer | None:
        """Do something as this process; None where it has ended with it."""
        try:
            return action()
        except Killed:
            self._replace()
        except Exception as error:  # noqa: BLE001 - whatever ends control is what the simulation looks for
            self.ended = True
            self._watcher.crashed(self, f"{type(error).__name__}: {error}")
            self._replace()
        return None

    def _replace(self) -> None:
        """It has ended, in one of its stacks or in both."""
        if not self._replaced:
            self._replaced = True
            self.replaced(self)


def _named(targets: Targets) -> str:
    parts = (
        f"{topic}-{number}" + ("" if replicas is None else f" to {list(replicas)}")
        for (topic, number), replicas in sorted(targets.items())
    )
    return ", ".join(parts)
