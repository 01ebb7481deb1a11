"""Plans of movements within brokers on the live cluster: relief of full log dirs, even fill, a log dir to be emptied.

They rest on what brokers show of their log dirs just now, and on no window: how full a volume is needs no mean.
"""

from collections.abc import Callable, Collection, Iterator

from assignor_core.disks import LogDirDescription, LogDirs, behind_within, largest_replicas
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import LiveCluster
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.log_dirs.planning import BrokerDisks, FillPolicy, WithinBroker, is_over
from assignor_core.plan import Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from assignor_core.wording import first_named

NAMED_MAX = 5


def full_log_dirs(log_dirs: LogDirs, fill_max: float) -> list[tuple[int, LogDirDescription]]:
    """(broker, log dir) above the fill level, the fullest first; brokers with one log dir are left out."""
    over = [
        (broker, row)
        for broker, rows in sorted(log_dirs.items())
        if len(rows) > 1
        for row in rows
        if is_over(row, fill_max)
    ]
    return sorted(over, key=lambda item: (-(item[1].used_share or 0.0), item[0], item[1].path))


def full_in_words(log_dirs: LogDirs, policy: FillPolicy | None) -> str | None:
    """Log dirs above the fill level, for people; None where there are none, or nobody wants to know.

    >>> rows = [LogDirDescription("/a", 1000, 50), LogDirDescription("/b", 1000, 900)]
    >>> full_in_words({2: rows}, FillPolicy())
    'log dirs above 85%: /a of broker 2 (95%)'
    """
    over = full_log_dirs(log_dirs, policy.fill_max) if policy is not None else []
    if policy is None or not over:
        return None
    named = first_named(over, NAMED_MAX, lambda item: f"{item[1].path} of broker {item[0]} ({item[1].used_share:.0%})")
    return f"log dirs above {policy.fill_max:.0%}: {named}"


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
