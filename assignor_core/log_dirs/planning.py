"""Which replicas of one broker go to which of its log dirs.

Copies come first and deletions later, so a plan counts on nothing that it frees: each target has room for all that it
gets, whatever the order. Only log dirs that are online and not cordoned are targets. A cordoned one may be relieved.
Log dirs of a broker that show the same size and the same free bytes may lie on one volume: they count as one, of which
one log dir is the target. Once disks that only looked alike differ, the next plan sees that.
The same input gives the same plan: ties are decided by path and partition.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assignor_core.disks import (
    LogDirDescription,
    LogDirs,
    behind_within,
    lacking_bytes,
    largest_replicas,
    log_dir_rooms,
)
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import LiveCluster, PartitionKey, partition_name
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Plan
from assignor_core.policies import knob
from assignor_core.proposed_plan import Observed, ProposedPlan
from assignor_core.wording import counted, first_named

NAMED_MAX = 5
EVEN_WITHIN = 0.05
"""Log dirs of one broker whose fill levels differ by no more than this are even."""


@dataclass(frozen=True, slots=True)
class FillPolicy:
    """Shares of a log dir's volume, 0 to 1."""

    fill_max: float = knob(
        0.85, "Control relieves a log dir that is filled beyond this share, within its broker; null: never.", ge=0, le=1
    )
    margin: float = 0.05
    """Relief brings it so far below `fill_max`, and fills no other beyond that: else it would be due again at once."""
    reserve: float = knob(
        0.10,
        "Copies leave at least this share of each log dir's volume free: no plan and no movement fills it.",
        ge=0,
        le=1,
    )

    @property
    def goal(self) -> float:
        """The fill level that relief aims at, and that no target exceeds."""
        return max(0.0, self.fill_max - self.margin)


@dataclass(frozen=True, slots=True)
class BrokerDisks:
    """One broker and its log dirs with all replicas in them."""

    broker: int
    rows: Sequence[LogDirDescription]
    full_bytes: Mapping[PartitionKey, int] = field(default_factory=dict)
    """What replicas that catch up will hold (see `disks.rooms`)."""
    fixed: Collection[PartitionKey] = ()
    """Replicas that stay where they are: somebody moves them already."""


@dataclass(frozen=True, slots=True)
class WithinBroker:
    """Movements within one broker, and what they leave undone, in words."""

    movements: tuple[LogDirMovement, ...] = ()
    problems: tuple[str, ...] = ()


def is_over(row: LogDirDescription, fill_max: float) -> bool:
    """Whether a log dir is filled beyond a level; no, if it does not show how full it is.

    >>> is_over(LogDirDescription("/a", 1000, 100), 0.85), is_over(LogDirDescription("/a", 1000, 150), 0.85)
    (True, False)
    """
    share = row.used_share
    return share is not None and share > fill_max + 1e-12


def relieve(disks: BrokerDisks, policy: FillPolicy) -> WithinBroker:
    """Bring each log dir above its fill level below it, moving few bytes: at most twice the least that would do, where
    every replica fits everywhere.

    >>> replicas = {("t", 0): 300, ("t", 1): 120, ("t", 2): 40}
    >>> full, free = LogDirDescription("/a", 1000, 100, replicas), LogDirDescription("/b", 1000, 900)
    >>> [(row.partition, row.new_log_dir) for row in relieve(BrokerDisks(1, [full, free]), FillPolicy()).movements]
    [(1, '/b')]
    """
    over = sorted((row for row in disks.rows if is_over(row, policy.fill_max)), key=lambda row: row.path)
    sources = {row.path for row in over}
    rooms = _rooms(disks, max(policy.reserve, 1.0 - policy.goal), without=sources)
    movements: list[LogDirMovement] = []
    problems: list[str] = []
    for row in over:
        assert row.total_bytes is not None
        assert row.usable_bytes is not None
        excess = row.total_bytes - row.usable_bytes - policy.goal * row.total_bytes
        reason = f"{row.path} is {_percent(row)} full, {policy.fill_max:.0%} is allowed"
        chosen = _cover(_movable(disks, row), excess, rooms)
        movements += [_movement(disks, row, key, target, reason) for key, target in chosen]
        left = excess - sum(row.replica_bytes[key] for key, _ in chosen)
        if left > 0:
            problems.append(
                f"log dir {row.path} of broker {disks.broker} keeps {left:,.0f} bytes above {policy.goal:.0%}: "
                "its other log dirs have no room, or nothing in it may move"
            )
    return WithinBroker(tuple(movements), tuple(problems))


def even_out(disks: BrokerDisks, policy: FillPolicy) -> WithinBroker:
    """Bring the fill levels of a broker's log dirs within EVEN_WITHIN of each other, as far as whole replicas can.

    Log dirs above the mean give, those below it get, and none crosses it: so each replica moves once at most.
    """
    rows = {row.path: row for row in disks.rows if row.takes_replicas and row.used_share is not None}
    first = {_volume(row): path for path, row in sorted(rows.items(), reverse=True)}
    volumes = {path: first[_volume(row)] for path, row in rows.items()}
    totals = {path: rows[path].total_bytes or 0 for path in sorted(first.values())}
    used = {path: max(0, total - (rows[path].usable_bytes or 0)) for path, total in totals.items()}
    rooms = _rooms(disks, policy.reserve)
    left = {path: _movable(disks, row) for path, row in rows.items()}
    movements: list[LogDirMovement] = []
    for _ in range(sum(map(len, left.values()))):
        shares = {path: used[volume] / totals[volume] for path, volume in volumes.items()}
        step = _even_step(shares, used, totals, rooms, left, volumes)
        if step is None:
            break
        key, size, source, target = step
        reason = f"{source} is {shares[source]:.0%} full, {target} {shares[target]:.0%}"
        movements.append(_movement(disks, rows[source], key, target, reason))
        left[source].remove((size, key))
        used[volumes[source]] -= size
        used[target] += size
        rooms[target] -= size
    return WithinBroker(tuple(movements))


def empty(disks: BrokerDisks, path: str, policy: FillPolicy) -> WithinBroker:
    """Move everything out of one log dir, largest first; names what finds no room."""
    row = next(row for row in disks.rows if row.path == path)
    rooms = _rooms(disks, policy.reserve, without={path})
    reason = f"{path} is to be emptied"
    movements: list[LogDirMovement] = []
    left_out: list[PartitionKey] = []
    for key, size in sorted(row.replica_bytes.items(), key=lambda item: (-item[1], item[0])):
        target = None if key in disks.fixed else _widest(rooms, size)
        if target is None:
            left_out.append(key)
            continue
        rooms[target] -= size
        movements.append(_movement(disks, row, key, target, reason))
    if not left_out:
        return WithinBroker(tuple(movements))
    named = first_named(sorted(left_out), NAMED_MAX, partition_name)
    keeps = counted(len(left_out), "replica", "replicas")
    problem = f"log dir {path} of broker {disks.broker} keeps {keeps}, as the others have no room"
    return WithinBroker(tuple(movements), (f"{problem}, or they are being moved: {named}",))


def _rooms(disks: BrokerDisks, reserve: float, *, without: Collection[str] = ()) -> dict[str, float]:
    """Bytes that each target may get, by path: without those that do not show what is free, one for each volume."""
    rooms = log_dir_rooms(disks.rows, disks.full_bytes, reserve=reserve)
    sizes = {key: size for row in disks.rows for key, size in row.replica_bytes.items()}
    free: dict[str, float] = {}
    volumes = set()
    for row in sorted(disks.rows, key=lambda row: row.path):
        room, volume = rooms[row.path], _volume(row)
        if room is None or not row.takes_replicas or row.path in without or volume in volumes:
            continue
        volumes.add(volume)
        beside = [other for other in disks.rows if other.path != row.path and _volume(other) == volume]
        arriving = sum(sum(lacking_bytes(other, sizes, disks.full_bytes).values()) for other in beside)
        if room > arriving:
            free[row.path] = room - arriving
    return free


def _volume(row: LogDirDescription) -> tuple[int | None, int | None]:
    """What shows a volume: nothing names it, and log dirs that are on one show the same figures."""
    return row.total_bytes, row.usable_bytes


def _movable(disks: BrokerDisks, row: LogDirDescription) -> list[tuple[int, PartitionKey]]:
    """(bytes, replica) that may leave a log dir and free something there, smallest first."""
    return sorted((size, key) for key, size in row.replica_bytes.items() if size > 0 and key not in disks.fixed)


def _widest(rooms: Mapping[str, float], size: int) -> str | None:
    """The target with the most room that has enough for these bytes; None where none has."""
    path = max(rooms, key=lambda name: (rooms[name], name), default=None)
    return path if path is not None and size <= rooms[path] else None


def _cover(
    movable: Sequence[tuple[int, PartitionKey]], excess: float, rooms: dict[str, float]
) -> list[tuple[PartitionKey, str]]:
    """Replicas that add up to `excess` bytes with few bytes more, each with its target; `rooms` is what is left then.

    Largest first while they are too small to do it alone. At each step the smallest one that does the rest would end
    it: the cheapest of these ends counts. Where nothing reaches `excess`, as much as fits goes.
    """
    begun: list[tuple[int, PartitionKey, str]] = []
    begun_keys: set[PartitionKey] = set()
    begun_bytes = 0
    left, free = excess, dict(rooms)
    best: tuple[int, int, tuple[int, PartitionKey, str]] | None = None
    """(Bytes of all, how many are begun, the end) of the cheapest."""
    for size, key in reversed(movable):
        end = _smallest_end(movable, left, free, begun_keys)
        if end is not None and (best is None or begun_bytes + end[0] < best[0]):
            best = (begun_bytes + end[0], len(begun), end)
        target = _widest(free, size)
        if target is None or size >= left:
            continue
        begun.append((size, key, target))
        begun_keys.add(key)
        begun_bytes += size
        free[target] -= size
        left -= size
    chosen = begun if best is None else [*begun[: best[1]], best[2]]
    for size, _, target in chosen:
        rooms[target] -= size
    return [(key, target) for _, key, target in chosen]


def _smallest_end(
    movable: Sequence[tuple[int, PartitionKey]],
    left: float,
    free: Mapping[str, float],
    begun: Collection[PartitionKey],
) -> tuple[int, PartitionKey, str] | None:
    """The smallest replica that alone frees what is left; larger ones fit no better."""
    first = bisect_left(movable, left, key=lambda row: row[0])
    for place in range(first, len(movable)):
        size, key = movable[place]
        if key not in begun:
            target = _widest(free, size)
            return None if target is None else (size, key, target)
    return None


def _even_step(
    shares: Mapping[str, float],
    used: Mapping[str, int],
    totals: Mapping[str, int],
    rooms: Mapping[str, float],
    left: Mapping[str, Sequence[tuple[int, PartitionKey]]],
    volumes: Mapping[str, str],
) -> tuple[PartitionKey, int, str, str] | None:
    """The largest replica that the fullest log dir can give to the emptiest one; the next pair where there is none.

    `volumes` has the log dir that stands for the volume of each: `used` and `totals` are those of volumes.
    """
    used_sum, total_sum = sum(used.values()), sum(totals.values())
    # Whole bytes, exactly: a replica that crosses the mean by a rounding error would go back and forth.
    above = {path: (used[path] * total_sum - used_sum * totals[path]) // total_sum for path in used}
    below = {path: (used_sum * totals[path] - used[path] * total_sum) // total_sum for path in used}
    for source in sorted(shares, key=lambda path: (-shares[path], path)):
        for target in sorted(rooms, key=lambda path: (shares[path], path)):
            if shares[source] - shares[target] <= EVEN_WITHIN:
                break
            most = min(above[volumes[source]], below[target], rooms[target])
            fitting = bisect_right(left[source], most, key=lambda row: row[0])
            if fitting:
                size, key = left[source][fitting - 1]
                return key, size, source, target
    return None


def _movement(
    disks: BrokerDisks, row: LogDirDescription, key: PartitionKey, target: str, reason: str
) -> LogDirMovement:
    size = float(row.replica_bytes[key])
    return LogDirMovement(disks.broker, key[0], key[1], row.path, target, size, reason)


def _percent(row: LogDirDescription) -> str:
    return f"{row.used_share or 0.0:.0%}"


def propose_within(
    live: LiveCluster,
    log_dirs: LogDirs,
    brokers: Collection[int],
    make: Callable[[BrokerDisks], WithinBroker],
    *,
    cluster_name: str,
    excluded_topics: Collection[str] = (),
) -> ProposedPlan:
    """What `make` plans for each of `brokers`, as one plan; replicas of `excluded_topics` stay where they are.

    Raises NothingToPlanOn for a broker that did not show its log dirs.
    """
    movements: list[LogDirMovement] = []
    problems: list[str] = []
    levels: list[str] = []
    silent = [broker for broker in sorted(brokers) if not log_dirs.get(broker)]
    if silent:
        raise NothingToPlanOn(f"broker {silent[0]} did not show its log dirs")
    for disks in disks_of_brokers(live, log_dirs, brokers, excluded_topics):
        made = make(disks)
        movements += made.movements
        problems += made.problems
        levels.append(_levels(disks, made))
    plan = Plan(cluster_name, (), diagnosis=tuple(levels), problems=tuple(problems), log_dir_movements=tuple(movements))
    return ProposedPlan(plan, Observed.of(plan, live))


def disks_of_brokers(
    live: LiveCluster, log_dirs: LogDirs, brokers: Collection[int], excluded_topics: Collection[str] = ()
) -> Iterator[BrokerDisks]:
    """The log dirs of each of these brokers, as plans need them, in order of their ids.

    Fixed are replicas that somebody moves already, that are not in sync, and those of `excluded_topics`.
    """
    largest, behind = largest_replicas(log_dirs), behind_within(live, log_dirs, brokers)
    for broker in sorted(behind):
        rows, late = log_dirs[broker], behind[broker]
        held = {key for row in rows for key in row.replica_bytes}
        moving = {key for row in rows for key in row.future_replicas} | {key for key in held if key in live.listed}
        excluded = {key for key in held if key[0] in excluded_topics}
        yield BrokerDisks(broker, rows, {key: largest.get(key, 0) for key in late}, moving | set(late) | excluded)


def _levels(disks: BrokerDisks, made: WithinBroker) -> str:
    """How full each log dir is, and how full it will be, for people."""
    change = {row.path: 0.0 for row in disks.rows}
    for movement in made.movements:
        change[movement.old_log_dir] -= movement.bytes_to_move
        change[movement.new_log_dir] += movement.bytes_to_move
    return f"broker {disks.broker}: {', '.join(_level(row, change[row.path]) for row in disks.rows)}"


def _level(row: LogDirDescription, change_bytes: float) -> str:
    share = row.used_share
    if share is None or not row.total_bytes:
        return f"{row.path} {'offline' if row.is_offline else 'unknown'}"
    return f"{row.path} {share:.0%} -> {share + change_bytes / row.total_bytes:.0%}"
