"""Carrying out movements within brokers: where each stands, what to do next, what keeps one from its log dir.

Brokers show it themselves, in DescribeLogDirs, so one snapshot is the truth about a broker that answers. Such a
movement changes no replica list and no leader. What somebody else has moved is left alone and named; the rest goes on.
The module decides; it sends nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from assignor_core.disks import LogDirDescription, LogDirs, behind_within, lacking_bytes, log_dir_rooms, replica_sizes
from assignor_core.execution.accounting import NAMED_MAX, PERMANENT
from assignor_core.execution.progress import MISSING_SNAPSHOTS_MIN, Progress
from assignor_core.execution.reconcile import Abort, Done, Limits, Wait
from assignor_core.execution.room import Waiting, seen_waiting, to_give_up
from assignor_core.live import LiveCluster, ReplicaKey, replica_name
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Plan
from assignor_core.wording import counted, first_named, many

Standing = Mapping[ReplicaKey, Progress]
"""Progress of each movement within a broker. FOREIGN: somebody else moved the replica. GONE: no log dir of the broker
shows the replica.
"""

NOT_THERE = "LogDirNotFoundError"


@dataclass(frozen=True, slots=True)
class MoveWithin:
    """Ask brokers to move these replicas to these log dirs."""

    targets: Mapping[ReplicaKey, str]


StepWithin = MoveWithin | Wait | Done | Abort


@dataclass(frozen=True, slots=True)
class Missed:
    """How many snapshots in a row, of brokers that answer, have not shown a replica. One process counts for itself."""

    snapshots: Mapping[ReplicaKey, int] = field(default_factory=dict)

    def after(self, plan: Plan, log_dirs: LogDirs) -> Self:
        """The counts with one more snapshot."""
        missing = [
            row.replica
            for row in plan.log_dir_movements
            if log_dirs.get(row.broker) and _place_of(row, log_dirs[row.broker]) is None
        ]
        return type(self)({replica: self.snapshots.get(replica, 0) + 1 for replica in missing})


def standing_of(plan: Plan, log_dirs: LogDirs, missed: Missed, skipped: Collection[ReplicaKey] = ()) -> Standing:
    """Returns the progress of each movement within a broker; MISSING also while its broker does not answer.

    A replica in a log dir that went offline is not shown: it counts as gone, as its data can't be copied from there.
    """
    states = {row.replica: _state(row, log_dirs.get(row.broker, ()), missed) for row in plan.log_dir_movements}
    pending = [replica for replica in skipped if states.get(replica) is Progress.PENDING]
    return states | dict.fromkeys(pending, Progress.SKIPPED)


def _state(movement: LogDirMovement, rows: Iterable[LogDirDescription], missed: Missed) -> Progress:
    place = _place_of(movement, rows)
    future = next((row.path for row in rows if movement.key in row.future_replicas), None)
    if place == movement.new_log_dir:
        return Progress.DONE
    if place is None:
        return Progress.GONE if missed.snapshots.get(movement.replica, 0) >= MISSING_SNAPSHOTS_MIN else Progress.MISSING
    if future is not None:
        return Progress.MOVING if future == movement.new_log_dir else Progress.FOREIGN
    return Progress.PENDING if place == movement.old_log_dir else Progress.FOREIGN


def _place_of(movement: LogDirMovement, rows: Iterable[LogDirDescription]) -> str | None:
    """The log dir that shows the replica."""
    return next((row.path for row in rows if movement.key in row.replica_bytes), None)


@dataclass(frozen=True, slots=True)
class RoomWithin:
    """One snapshot of all that lies in the log dirs of some brokers, right before movements are asked for."""

    rooms_bytes: Mapping[int, Mapping[str, float | None]]
    """Bytes that may still be copied to each log dir, by broker and path."""
    replica_bytes: Mapping[ReplicaKey, int]
    obstacles: Mapping[int, str]
    """Why nothing more is copied within a broker for now."""

    @classmethod
    def of(cls, live: LiveCluster, log_dirs: LogDirs, brokers: Collection[int], *, reserve: float) -> Self:
        """What `log_dirs` show; `live` must hold all partitions whose replicas are behind.

        Within a broker that catches up or receives replicas nothing more is copied: its disks are at work, and what
        still arrives is not known.
        """
        obstacles = {broker: f"broker {broker} did not answer a request for its log dirs" for broker in brokers}
        for broker, behind in behind_within(live, log_dirs, brokers).items():
            del obstacles[broker]
            if behind:
                obstacles[broker] = f"broker {broker} catches up with {many(len(behind), 'partition')}"
        return cls(
            {broker: log_dir_rooms(log_dirs[broker], {}, reserve=reserve) for broker in log_dirs},
            replica_sizes(log_dirs),
            obstacles,
        )

    def lacking(self, movement: LogDirMovement, taken: Mapping[tuple[int, str], float]) -> str | None:
        """Why a replica can't go to its log dir now, in words; None if it can. `taken` are bytes that others of the
        same request take there.
        """
        if movement.broker in self.obstacles:
            return self.obstacles[movement.broker]
        path, rooms = movement.new_log_dir, self.rooms_bytes.get(movement.broker, {})
        if path not in rooms:
            return f"broker {movement.broker} shows no log dir {path}"
        room = rooms[path]
        if room is None:
            return f"broker {movement.broker} does not show what is free in {path}"
        needed, left = self.replica_bytes.get(movement.replica, 0), room - taken.get((movement.broker, path), 0.0)
        if needed > left or left <= 0:
            return (
                f"needs {needed:,} bytes in {path} of broker {movement.broker}, which has room for {max(0, left):,.0f}"
            )
        return None


@dataclass(frozen=True, slots=True)
class Hindered:
    """Movements that could not be begun when it was last tried, and for how long; and those that are skipped."""

    waiting: Mapping[ReplicaKey, Waiting] = field(default_factory=dict)
    given_up: Mapping[ReplicaKey, str] = field(default_factory=dict)
    """Movements that were refused for good, or not possible for too long, with the reason; they stay so."""

    def after(self, tried: Collection[ReplicaKey], hindered: Mapping[ReplicaKey, str], now_ms: int) -> Self:
        """What is known after some were tried. Only tries count: what was held back meanwhile may be possible by now.

        >>> t0, hindered = (1, ("t", 0)), Hindered()
        >>> for attempt in range(6):
        ...     hindered = hindered.after([t0], {t0: "KafkaStorageError"}, attempt * 100_000)
        >>> hindered.given_up, hindered.after([t0], {t0: "KafkaStorageError"}, 600_000).given_up
        ({}, {(1, ('t', 0)): 'KafkaStorageError'})
        """
        waiting = {key: row for key, row in self.waiting.items() if key not in tried}
        waiting |= {key: seen_waiting(self.waiting.get(key), now_ms) for key in hindered}
        given_up = {
            key: why
            for key, why in hindered.items()
            if why in PERMANENT or why == NOT_THERE or waiting[key].is_too_long
        }
        return type(self)(waiting, {**given_up, **self.given_up})


def next_step_within(
    plan: Plan,
    standing: Standing,
    limits: Limits,
    *,
    worked_ms: int,
    held_back: str | None = None,
    skipped: Mapping[ReplicaKey, str],
    room: RoomWithin | None = None,
) -> StepWithin:
    """The one next step. Order: give up, else move, else wait, else done.

    `held_back` is why nothing new is begun. `room` is a snapshot of the log dirs; without one the step shows what there
    would be to begin. A plan of which nothing was made is never done.
    """
    moving = moving_within(standing)
    if worked_ms > limits.deadline_ms:
        return Abort(f"not finished after {limits.deadline_ms / 3_600_000:.1f} h of work", ())
    pending = [row for row in plan.log_dir_movements if standing[row.replica] is Progress.PENDING]
    obstacle = held_back
    if pending and held_back is None:
        targets = _to_begin(plan, standing, limits, room)
        if targets:
            return MoveWithin(targets)
        lacking = lacking_within(pending, room)
        obstacle = _lacking_text(lacking) if lacking else None
    silent = sum(state is Progress.MISSING for state in standing.values())
    if pending or moving or silent:
        parts = [obstacle] if obstacle else []
        copying = counted(len(moving), "replica is being copied", "replicas are being copied") + " to another log dir"
        parts += [copying] if moving or not obstacle else []
        if silent:
            parts.append(
                counted(silent, "replica is not shown by its broker", "replicas are not shown by their brokers")
            )
        return Wait("; ".join(parts))
    if not any(state is Progress.DONE for state in standing.values()):
        return Abort(made_within(standing, skipped), ())
    return Done()


def moving_within(standing: Standing) -> list[ReplicaKey]:
    """Replicas that are being copied to the log dir of the plan."""
    return sorted(replica for replica, state in standing.items() if state is Progress.MOVING)


def going_back(plan: Plan, log_dirs: LogDirs) -> list[ReplicaKey]:
    """Replicas that were made as planned and are being copied back: asked to stay, they had arrived meanwhile."""
    futures = {
        (broker, key): row.path for broker, rows in log_dirs.items() for row in rows for key in row.future_replicas
    }
    return [
        row.replica
        for row in plan.log_dir_movements
        if futures.get(row.replica) == row.old_log_dir
        and _place_of(row, log_dirs.get(row.broker, ())) == row.new_log_dir
    ]


def cancellations(plan: Plan, copies: Collection[ReplicaKey], log_dirs: LogDirs) -> dict[ReplicaKey, str]:
    """What to ask for so that brokers give up these copies of the plan: the log dirs that the replicas lie in."""
    moving = (row for row in plan.log_dir_movements if row.replica in copies)
    places = {row.replica: _place_of(row, log_dirs.get(row.broker, ())) for row in moving}
    return {replica: place for replica, place in places.items() if place is not None}


def overflowing(plan: Plan, standing: Standing, log_dirs: LogDirs) -> list[ReplicaKey]:
    """Copies under way to give up, because other writes since their start leave too little room in their log dir.

    Per log dir, copies with most bytes left are given up first, until the remaining copies fit. If a broker does not
    show the free bytes of a log dir, no copy into the log dir is given up.
    """
    moving = {
        row.replica: row.new_log_dir for row in plan.log_dir_movements if standing[row.replica] is Progress.MOVING
    }
    chosen: list[ReplicaKey] = []
    for broker, rows in sorted(log_dirs.items()):
        sizes = {key: size for row in rows for key, size in row.replica_bytes.items()}
        for row in rows:
            left = lacking_bytes(row, sizes, {})
            ours = [key for key in left if moving.get((broker, key)) == row.path]
            chosen += ((broker, key) for key in to_give_up(left, ours, row.usable_bytes))
    return chosen


def lacking_within(pending: Iterable[LogDirMovement], room: RoomWithin | None) -> dict[ReplicaKey, str]:
    """Movements that can't be begun even alone, with the reason."""
    reasons = {} if room is None else {row.replica: room.lacking(row, {}) for row in pending}
    return {replica: reason for replica, reason in reasons.items() if reason is not None}


def made_within(standing: Standing, skipped: Mapping[ReplicaKey, str]) -> str:
    """What was made of a plan in the end, in words; `skipped` with the reasons.

    >>> made_within({(1, ("t", 0)): Progress.DONE, (1, ("t", 1)): Progress.FOREIGN}, {})
    '1 movement made, 1 changed by somebody else: t-1 on broker 1'
    """
    by_state = {state: sorted(key for key in standing if standing[key] is state) for state in set(standing.values())}
    if by_state.keys() <= {Progress.DONE}:
        return "every movement has been made"
    parts = [counted(len(by_state.get(Progress.DONE, ())), "movement made", "movements made")]
    named = {
        Progress.FOREIGN: "changed by somebody else",
        Progress.GONE: "gone, or in a log dir that is offline",
    }
    for state, what in named.items():
        if state in by_state:
            parts.append(f"{len(by_state[state])} {what}: {first_named(by_state[state], NAMED_MAX, replica_name)}")
    if left_out := by_state.get(Progress.SKIPPED):
        names = first_named(left_out, NAMED_MAX, lambda row: f"{replica_name(row)} ({skipped.get(row, 'refused')})")
        parts.append(f"{len(left_out)} skipped: {names}")
    return ", ".join(parts)


def bytes_within(plan: Plan, standing: Standing, log_dirs: LogDirs) -> int:
    """Bytes of finished movements, and what the copies of those under way hold so far."""
    copied = {
        (broker, key): future.size_bytes
        for broker, rows in log_dirs.items()
        for row in rows
        for key, future in row.future_replicas.items()
    }
    total = 0
    for movement in plan.log_dir_movements:
        if standing[movement.replica] is Progress.DONE:
            total += round(movement.bytes_to_move)
        elif standing[movement.replica] is Progress.MOVING:
            total += min(round(movement.bytes_to_move), copied.get(movement.replica, 0))
    return total


def levels_text(log_dirs: LogDirs) -> str:
    """How full the log dirs of some brokers are, for people; those that show it.

    >>> levels_text({2: [LogDirDescription("/a", 1000, 250), LogDirDescription("/b", is_offline=True)]})
    'broker 2: /a 75%, /b offline'
    """
    return "; ".join(f"broker {broker}: {', '.join(map(_level, rows))}" for broker, rows in sorted(log_dirs.items()))


def _level(row: LogDirDescription) -> str:
    if row.is_offline:
        return f"{row.path} offline"
    return f"{row.path} unknown" if row.used_share is None else f"{row.path} {row.used_share:.0%}"


def differences_within(plan: Plan, live: LiveCluster, log_dirs: LogDirs) -> tuple[str, ...]:
    """How the cluster differs from what the plan was made for; empty when it can be started as approved."""
    differences = []
    for movement in plan.log_dir_movements:
        name, rows = replica_name(movement.replica), log_dirs.get(movement.broker)
        if movement.broker not in live.broker_racks:
            differences.append(f"{name}: the broker is not alive")
            continue
        if not rows:
            differences.append(f"{name}: the broker does not show its log dirs")
            continue
        target = next((row for row in rows if row.path == movement.new_log_dir), None)
        state = _state(movement, rows, Missed())
        if state in (Progress.FOREIGN, Progress.MISSING):
            differences.append(f"{name} is in {_place_of(movement, rows)}, planned from {movement.old_log_dir}")
        elif target is None or not target.takes_replicas:
            state_text = "not there" if target is None else "offline" if target.is_offline else "cordoned"
            differences.append(f"{name} would go to {movement.new_log_dir}, which is {state_text}")
    return tuple(differences)


def _to_begin(plan: Plan, standing: Standing, limits: Limits, room: RoomWithin | None) -> dict[ReplicaKey, str]:
    """Pending movements below the caps that have room, in the plan's order. No movement counts on what another frees:
    the planner has proven room for all of them together, so there are no waves.
    """
    moving = moving_within(standing)
    hidden = sum(state is Progress.MISSING for state in standing.values())  # these may be copying, too
    in_flight_left = limits.movements_in_flight_max - len(moving) - hidden
    per_broker = Counter(broker for broker, _ in moving)
    taken: Counter[tuple[int, str]] = Counter()
    chosen: dict[ReplicaKey, str] = {}
    for movement in plan.log_dir_movements:
        if standing[movement.replica] is not Progress.PENDING or in_flight_left <= 0:
            continue
        if per_broker[movement.broker] >= limits.movements_per_broker_max:
            continue
        if room is not None:
            if room.lacking(movement, taken) is not None:
                continue
            taken[movement.broker, movement.new_log_dir] += room.replica_bytes.get(movement.replica, 0)
        chosen[movement.replica] = movement.new_log_dir
        per_broker[movement.broker] += 1
        in_flight_left -= 1
    return chosen


def _lacking_text(lacking: Mapping[ReplicaKey, str]) -> str:
    replica, reason = min(lacking.items())
    return f"{counted(len(lacking), 'movement waits', 'movements wait')}, first {replica_name(replica)}: {reason}"


SILENT = "its broker does not answer"
SOURCE_OFFLINE = "the log dir of the replica is offline"
TARGET_OFFLINE = "the log dir that it is copied to is offline"


def may_go_on(plan: Plan, log_dirs: LogDirs) -> dict[ReplicaKey, str]:
    """Movements of which a copy may be left that `log_dirs` do not show, or that no request can give up, with why.

    A broker gives up no copy whose replica lies in a log dir that is offline: it answers KAFKA_STORAGE_ERROR whatever
    log dir is asked for. It forgets a copy in a log dir that goes offline, but leaves its files there. Once it has
    started with the log dir online again, it goes on with both (Kafka's `ReplicaManager.alterReplicaLogDirs`,
    `handleLogDirFailure` and `maybeAddLogDirFetchers`). A movement that was never begun is among them, if its log dir
    is offline: nobody can see that there is no copy.

    >>> plan = Plan("c", (), log_dir_movements=(LogDirMovement(1, "t", 0, "/a", "/b", 9.0),))
    >>> may_go_on(plan, {1: (LogDirDescription("/a", is_offline=True), LogDirDescription("/b", is_offline=True))})
    {(1, ('t', 0)): 'the log dir that it is copied to is offline'}
    >>> may_go_on(plan, {1: (LogDirDescription("/a", replica_bytes={("t", 0): 9}), LogDirDescription("/b"))})
    {}
    """
    reasons = {row.replica: _reason(row, log_dirs.get(row.broker, ())) for row in plan.log_dir_movements}
    return {replica: reason for replica, reason in reasons.items() if reason is not None}


def _reason(movement: LogDirMovement, rows: Sequence[LogDirDescription]) -> str | None:
    if not rows:
        return SILENT
    place = next((row.path for row in rows if movement.key in row.replica_bytes), None)
    if place not in (None, movement.old_log_dir):
        return None
    target = next((row for row in rows if row.path == movement.new_log_dir), None)
    if target is not None and target.is_offline:
        return TARGET_OFFLINE
    is_copied = target is not None and movement.key in target.future_replicas
    return SOURCE_OFFLINE if place is None and is_copied else None


def may_go_on_text(reasons: Mapping[ReplicaKey, str]) -> str:
    """What an event says of copies that may go on; empty where there are none."""
    if not reasons:
        return ""
    named = first_named(sorted(reasons), NAMED_MAX, lambda replica: f"{replica_name(replica)} ({reasons[replica]})")
    return f"{len(reasons)} may go on, and their brokers keep their rates: {named}"
