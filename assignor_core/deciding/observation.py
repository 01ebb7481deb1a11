"""What one decision rests on: taken once per evaluation, from one version of each table and one snapshot of the
cluster.

The shell builds an `Observation` and hands `Evidence` along: what is costly to read and seldom needed. Verdict, plan
and row of one decision thus can't rest on different windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, Self

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.disks import LogDirs
from assignor_core.live import NO_LEADER, LiveCluster, PartitionKey
from assignor_core.load_history.load_memory import NOTHING_REMEMBERED, LoadMemory
from assignor_core.load_history.recurring import NO_HISTORY, RecurringLoad
from assignor_core.load_history.windows import ClosedWindow, SkewWindow, skew_window
from assignor_core.log_dirs.planning import FillPolicy
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.resources import Resource


@dataclass(frozen=True, slots=True)
class Observation:
    """The cluster and its load at one instant."""

    now_ms: int
    live: LiveCluster
    windows: tuple[ClosedWindow, ...]
    """Closed windows, oldest first; at least one."""
    skews: tuple[SkewWindow, ...]
    """Skew of each of `windows` over the brokers that count."""
    drained: frozenset[int] = frozenset()
    """Drained brokers: they must end empty and get no replicas."""
    changed_ms: int = 0
    """End of the newest execution that changed the cluster; 0 where there was none."""
    log_dirs: LogDirs = field(default_factory=dict)
    """Space of each log dir, without a list of replicas, by broker; brokers that do not show it are left out."""
    away_since_ms: Mapping[int, int] = field(default_factory=dict)
    """Time at which each offline broker went offline, ms, as an execution under way has seen."""
    memory: LoadMemory = NOTHING_REMEMBERED
    """Memory of these windows and of earlier ones; see `deciding.load_memory`."""
    recurring: RecurringLoad = NO_HISTORY
    """Memory of these hours of earlier days; see `deciding.recurring`."""
    demoted: frozenset[int] = frozenset()
    """Demoted brokers: they must lead no partition, and their balance does not count."""

    @classmethod
    def of(
        cls,
        live: LiveCluster,
        windows: tuple[ClosedWindow, ...],
        policy: DecisionPolicy,
        *,
        drained: frozenset[int],
        changed_ms: int,
        now_ms: int,
        log_dirs: LogDirs = MappingProxyType({}),
        away_since_ms: Mapping[int, int] = MappingProxyType({}),
        memory: LoadMemory = NOTHING_REMEMBERED,
        recurring: RecurringLoad = NO_HISTORY,
        demoted: frozenset[int] = frozenset(),
    ) -> "Observation":
        """The observation, with the skew of each window by `policy`."""
        counted = brokers_counted(live, drained | demoted)
        skews = tuple(skew_window(window, policy.resources, policy.capacities, counted) for window in windows)
        return cls(
            now_ms, live, windows, skews, drained, changed_ms, log_dirs, away_since_ms, memory, recurring, demoted
        )

    @property
    def counted(self) -> frozenset[int]:
        """Returns the brokers whose balance counts."""
        return brokers_counted(self.live, self.drained | self.demoted)

    @property
    def missing_brokers(self) -> frozenset[int]:
        """Brokers that are not alive and hold replicas that can be re-created."""
        return missing_brokers(self.live)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Further facts on the cluster that a decision needs."""

    reassigning_count: int = 0
    """Partitions that are being reassigned, by anybody, but for those that wait for a broker that is away."""
    changed_ms: int = 0
    """End of the newest execution that changed the cluster; 0 where there was none."""
    missing_brokers: frozenset[int] = frozenset()
    """Brokers that host replicas which could be re-created elsewhere, and are not alive."""
    alive_count: int = 0
    """Brokers that are alive."""
    behind: Mapping[int, str] = field(default_factory=dict)
    """Text on the groups that read from a broker and fall behind, by broker."""
    away_since_ms: Mapping[int, int] = field(default_factory=dict)
    """Time at which each offline broker went offline, ms, as an execution under way has seen."""
    memory: LoadMemory = NOTHING_REMEMBERED
    """Memory of the windows up to the newest."""
    recurring: RecurringLoad = NO_HISTORY
    """Memory of these hours of earlier days."""
    recurring_planned_ms: Mapping[int, int] = field(default_factory=dict)
    """Time of the last plan for a broker's recurring skew, ms, by broker."""


NOTHING_ELSE = Surroundings()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request to the planner: limits and aims of the plan, and the windows it is made for."""

    policy: PlannerPolicy
    windows: tuple[ClosedWindow, ...]
    drained: frozenset[int] = frozenset()
    elections: tuple[PartitionKey, ...] = ()
    """Partitions whose preferred replica is to lead; then the plan holds these elections alone."""
    fill: FillPolicy | None = None
    """If set, the plan relieves log dirs that are above its fill level, and does nothing else."""

    def needing(self, resource: str | None, gain: float) -> Self:
        """Returns this request for a plan that is of use only if it lowers max over mean of `resource` by `gain`.

        `resource` None stands for bytes in.
        """
        policy = replace(self.policy, gain_needed=(resource or Resource.BYTES_IN.value, gain))
        return replace(self, policy=policy)


PAUSE_MIN_MS = 900_000


PAUSE_MAX_MS = 6 * 3_600_000
"""The longest pause after executions that were given up, ms: the time that one execution may take by default."""


AHEAD_MAX_MS = 60_000
"""An execution that ended later than this from now was dated by a clock that was ahead: it would hold back plans until
real time is there, so it makes no pause.
"""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Executions of mode `apply` that ended as aborted, one after the other: how many, and when the last one did.

    Those that a person stopped don't count; one that is done ends the row.
    """

    count: int = 0
    last_ms: int = 0

    @property
    def pause_ms(self) -> int:
        """The pause after the last aborted execution, ms: each aborted execution doubles it.

        >>> [GivenUp(count).pause_ms // 60_000 for count in (0, 1, 2, 3, 50)]
        [0, 15, 30, 60, 360]
        """
        return min(PAUSE_MAX_MS, PAUSE_MIN_MS << min(self.count - 1, 16)) if self.count else 0

    def reason(self, now_ms: int) -> str | None:
        """Why no plan is made now, in words; None if a plan may be made.

        >>> GivenUp(2, last_ms=0).reason(1_000_000)
        'mode apply gave up the last 2 executions and makes no plan for 800 s more'
        """
        left_ms = self.last_ms + self.pause_ms - now_ms
        if not 0 < left_ms <= self.pause_ms + AHEAD_MAX_MS:
            return None
        last = "execution" if self.count == 1 else f"{self.count} executions"
        return f"mode apply gave up the last {last} and makes no plan for {left_ms / 1000:.0f} s more"


class Evidence(Protocol):
    """Further facts that a decision reads only if they can change its result."""

    def groups_behind(self, brokers: frozenset[int]) -> Mapping[int, str]:
        """Returns the brokers of `brokers` on which consumer groups fall behind, with the groups in words."""

    def catch_up_bytes_per_sec(self, windows: tuple[ClosedWindow, ...]) -> Mapping[int, float]:
        """Bytes/s that consumers read from each broker beyond what is produced, to catch up; mean over `windows`."""

    def copied_bytes_of_day(self) -> int:
        """Bytes that plans carried out by mode `apply` have copied in the last 24 hours."""

    def kept_plan(self, plan_id: str) -> KeptPlan | None:
        """Returns the plan with this id; None if the tables have no such plan."""

    def given_up(self) -> GivenUp:
        """Executions of mode `apply` that were given up since one was done."""

    def propose(self, request: PlanRequest) -> ProposedPlan:
        """Makes a plan for the observed cluster; raises NothingToPlanOn."""


def brokers_counted(live: LiveCluster, left_out: frozenset[int]) -> frozenset[int]:
    """Brokers whose balance counts: those that are alive and not `left_out`, as drained and demoted ones are."""
    return frozenset(live.broker_racks) - left_out


def missing_brokers(live: LiveCluster) -> frozenset[int]:
    """Brokers that are not alive and hold replicas of partitions which have a leader: those can be re-created."""
    return live.once("missing_brokers", lambda: _missing_brokers(live))


def _missing_brokers(live: LiveCluster) -> frozenset[int]:
    hosting = {
        broker
        for partition in live.partitions.values()
        if partition.leader != NO_LEADER
        for broker in partition.target_replicas
    }
    return frozenset(hosting - live.broker_racks.keys())
