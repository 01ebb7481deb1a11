"""A rolling restart: which broker is next, and what to do next for the broker whose turn it is.

One broker is restarted at a time, all brokers of one rack before those of the next. A turn has these phases, and each
is entered by an event that is stored before anything is done:

    demoting -> restarting -> away -> undemoting -> restarted

A process that was killed at any instant continues: `next_step` reads what is left to do off the cluster and the stored
events. An act that was carried out already changes nothing when it is repeated, but for the restart itself: if nobody
has seen the broker away, the command runs again. A broker that is drained, or that a person has demoted, keeps its note
and is not demoted by the roll. The module decides; it sends nothing and knows neither tables nor clocks.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from assignor_core.errors import IllegalTransition
from assignor_core.live import NO_LEADER, LiveCluster
from assignor_core.restart import RestartCheck, restart_check
from assignor_core.wording import counted, first_named

NAMED_MAX = 5
MARGINS = (0, 1)
"""How many more replicas in sync than `min.insync.replicas` each partition must keep during a restart."""
SNAPSHOTS_CAUGHT_UP_MIN = 3
"""How many snapshots in a row must show that a broker is back and has caught up. Any broker may answer the request, and
a broker that has not heard of the restart yet shows what was before.
"""


class RollEvent(StrEnum):
    """What happened in a roll; the value is the name in the table `roll`."""

    STARTED = "started"
    """A person asked for the roll; the order of the brokers is fixed."""
    DEMOTING = "demoting"
    """Leadership is taken off the broker next, by a note and a plan of this roll."""
    RESTARTING = "restarting"
    """The command runs next, or a person restarts the broker."""
    AWAY = "away"
    """The cluster no longer showed the broker."""
    UNDEMOTING = "undemoting"
    """The broker has caught up, or the roll is aborted: the order of replicas of before is brought back next."""
    RESTARTED = "restarted"
    """The turn of the broker is over."""
    ABORT_REQUESTED = "abort_requested"
    """A person asked to end the roll."""
    DONE = "done"
    """All brokers are restarted."""
    ABORTED = "aborted"
    """The roll has ended before that."""


ENDS = frozenset({RollEvent.DONE, RollEvent.ABORTED})
_E = RollEvent
_FOLLOWS: Mapping[RollEvent | None, frozenset[RollEvent]] = {
    None: frozenset({_E.DEMOTING, _E.RESTARTING, _E.DONE, _E.ABORTED}),
    _E.DEMOTING: frozenset({_E.RESTARTING, _E.UNDEMOTING, _E.ABORTED}),
    _E.RESTARTING: frozenset({_E.AWAY, _E.UNDEMOTING, _E.ABORTED}),
    _E.AWAY: frozenset({_E.UNDEMOTING, _E.RESTARTED, _E.ABORTED}),
    _E.UNDEMOTING: frozenset({_E.RESTARTED, _E.ABORTED}),
}
"""Events by the phase in which they may come; None is the time between two turns."""


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """What a person asked for when the roll began; each process that continues the roll keeps to it."""

    margin: int = 0
    accepts_single: bool = False

    def differences(self, margin: int | None, accepts_single: bool | None) -> tuple[str, ...]:
        """Returns a line for each of these values that differs from the policy; None agrees with everything.

        >>> RollPolicy(margin=1).differences(0, None)
        ('--margin is 1, not 0',)
        """
        found = []
        if margin not in (None, self.margin):
            found.append(f"--margin is {self.margin}, not {margin}")
        if accepts_single not in (None, self.accepts_single):
            found.append(f"--accept-single is {'set' if self.accepts_single else 'not set'}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Roll:
    """A roll as its events show it."""

    roll_id: str
    brokers: tuple[int, ...]
    """All brokers of the roll, in the order of their turns."""
    policy: RollPolicy = RollPolicy()
    restarted: tuple[int, ...] = ()
    broker: int | None = None
    """The broker whose turn it is; None between two turns."""
    phase: RollEvent | None = None
    is_demoted_by_roll: bool = False
    """Whether the roll has demoted this broker, and has to end the demotion."""
    is_abort_requested: bool = False
    end: RollEvent | None = None
    next_sequence: int = 1

    @property
    def next_broker(self) -> int | None:
        """The broker whose turn it is or comes next; None if all are restarted.

        >>> Roll("r", (2, 1, 3), restarted=(2,)).next_broker
        1
        """
        if self.broker is not None:
            return self.broker
        return next((broker for broker in self.brokers if broker not in self.restarted), None)

    def after(self, event: RollEvent) -> "Roll":
        """The roll after this event of the broker in turn; raises IllegalTransition.

        >>> Roll("r", (2, 1)).after(RollEvent.DEMOTING).phase.value
        'demoting'
        """
        if event is RollEvent.ABORT_REQUESTED:
            return replace(self, is_abort_requested=True)
        if self.end is not None or event not in _FOLLOWS[self.phase]:
            state = self.end or self.phase or RollEvent.STARTED
            raise IllegalTransition(f"roll {self.roll_id}: event {event} can't follow {state}")
        counted_on = replace(self, next_sequence=self.next_sequence + 1)
        if event in ENDS:
            return replace(counted_on, end=event)
        broker = self.next_broker
        if event is RollEvent.RESTARTED:
            done = (*self.restarted, *(() if broker is None else (broker,)))
            return replace(counted_on, restarted=done, broker=None, phase=None, is_demoted_by_roll=False)
        is_ours = self.is_demoted_by_roll or event is RollEvent.DEMOTING
        return replace(counted_on, broker=broker, phase=event, is_demoted_by_roll=is_ours)


def folded_roll(begun: Roll, events: Iterable[RollEvent]) -> Roll:
    """The roll after its events, oldest first; `begun` is the roll after the first one. Raises IllegalTransition."""
    roll = begun
    for event in events:
        roll = roll.after(event)
    return roll


def roll_order(
    brokers: Collection[int], racks: Mapping[int, str | None], controller: int | None = None
) -> tuple[int, ...]:
    """The brokers rack by rack; the rack of the controller comes last, and the controller is the last of all.

    >>> roll_order([1, 2, 3, 4, 5], {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}, controller=1)
    (2, 5, 3, 4, 1)
    """
    last = racks.get(controller) if controller is not None and controller in brokers else None

    def place(broker: int) -> tuple[bool, str, bool, int]:
        rack = racks.get(broker)
        return (last is not None and rack == last, rack or "", broker == controller, broker)

    return tuple(sorted(set(brokers), key=place))


@dataclass(frozen=True, slots=True)
class TurnView:
    """What one snapshot shows of the broker whose turn it is or comes next."""

    check: RestartCheck
    leaderless: int
    """Partitions of the broker that have no leader."""
    others_away: tuple[int, ...]
    """Other brokers that hold replicas and are offline."""
    is_noted: bool
    """Whether the broker is noted as demoted, or has an order of replicas of before to get back."""
    is_out_of_use: bool
    """Whether the broker is noted as drained or demoted."""
    executing: str | None = None
    """The execution that is under way, in words."""
    is_command_running: bool = False
    command_code: int | None = None
    """What the command that this process has started for this turn ended with; None if it started or ended none."""
    snapshots_caught_up: int = 0
    """Snapshots in a row, this one included, that show the broker alive, with all its replicas in sync and led."""

    @property
    def is_leading(self) -> bool:
        """Whether the broker leads a partition that another broker could lead."""
        return self.check.leaders > len(self.check.single)


class RollAct(StrEnum):
    """What to do next."""

    WAIT = "wait"
    DEMOTE = "demote"
    RESTART = "restart"
    NOTE_AWAY = "note away"
    UNDEMOTE = "undemote"
    NOTE_RESTARTED = "note restarted"
    STOP = "stop"
    """The command failed: this process ends, and the roll stays open."""
    FINISH = "finish"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class RollStep:
    """The next act, and why."""

    act: RollAct
    detail: str = ""


def turn_view(
    broker: int,
    live: LiveCluster,
    in_sync_min: Mapping[str, int],
    *,
    is_noted: bool = False,
    is_out_of_use: bool = False,
    executing: str | None = None,
    is_command_running: bool = False,
    command_code: int | None = None,
    earlier: TurnView | None = None,
) -> TurnView:
    """What `live` shows of the broker; `in_sync_min`: `min.insync.replicas` by topic; `earlier`: the one before."""
    check = restart_check(broker, live, in_sync_min)
    leaderless = sum(row.leader == NO_LEADER for row in live.partitions.values() if broker in row.replicas)
    is_caught_up = check.is_alive and not check.behind and not leaderless
    snapshots_before = earlier.snapshots_caught_up if earlier is not None and earlier.check.broker == broker else 0
    return TurnView(
        check=check,
        leaderless=leaderless,
        others_away=tuple(sorted(live.hosts_away() - {broker})),
        is_noted=is_noted,
        is_out_of_use=is_out_of_use,
        executing=executing,
        is_command_running=is_command_running,
        command_code=command_code,
        snapshots_caught_up=snapshots_before + 1 if is_caught_up else 0,
    )


def next_step(roll: Roll, seen: TurnView | None, *, has_command: bool) -> RollStep:
    """The one next step; `seen` is None if no broker is left. Without a command a person restarts the brokers.

    Order of the rules: end an aborted roll, finish, then by the phase of the broker in turn. Before a broker goes away
    `_obstacle` must find nothing, once before the demotion and again right before the restart.
    """
    if roll.is_abort_requested:
        return _abort_step(roll, seen)
    if seen is None:
        return RollStep(RollAct.FINISH, f"{counted(len(roll.restarted), 'broker is', 'brokers are')} restarted")
    if roll.phase is None:
        return _first_step(seen, roll.policy)
    if roll.phase is RollEvent.DEMOTING:
        return _demoting_step(seen, roll.policy)
    if roll.phase is RollEvent.RESTARTING:
        return _restarting_step(seen, roll.policy, has_command=has_command)
    if roll.phase is RollEvent.AWAY:
        return _away_step(roll, seen)
    if seen.is_noted:
        return RollStep(RollAct.UNDEMOTE, "the broker has caught up and gets its leadership back")
    return RollStep(RollAct.NOTE_RESTARTED, "restarted")


def _first_step(seen: TurnView, policy: RollPolicy) -> RollStep:
    if seen.executing is not None:
        return RollStep(RollAct.WAIT, f"{seen.executing} is under way")
    obstacle = _obstacle(seen, policy)
    if obstacle is not None:
        return RollStep(RollAct.WAIT, obstacle)
    if seen.is_out_of_use:
        return RollStep(RollAct.RESTART, "the broker is noted as drained or demoted already")
    return RollStep(RollAct.DEMOTE, "the broker may be restarted: its leadership is taken off first")


def _demoting_step(seen: TurnView, policy: RollPolicy) -> RollStep:
    if not seen.is_noted or seen.is_leading:
        leaders = counted(seen.check.leaders, "leader is", "leaders are")
        return RollStep(RollAct.DEMOTE, f"{leaders} still on the broker")
    obstacle = _obstacle(seen, policy)
    if obstacle is not None:
        return RollStep(RollAct.WAIT, obstacle)
    return RollStep(RollAct.RESTART, "the broker leads nothing that another broker can lead")


def _restarting_step(seen: TurnView, policy: RollPolicy, *, has_command: bool) -> RollStep:
    if not seen.check.is_alive:
        return RollStep(RollAct.NOTE_AWAY, "the broker is away")
    if seen.command_code:
        return _command_failed(seen.command_code)
    if seen.is_command_running:
        return RollStep(RollAct.WAIT, "the command runs, and the broker has not been seen away yet")
    if seen.command_code == 0:
        return RollStep(RollAct.WAIT, "the command has ended, and the broker has not been seen away yet")
    obstacle = _obstacle(seen, policy)
    if obstacle is not None:
        return RollStep(RollAct.WAIT, f"do not restart the broker yet: {obstacle}")
    if has_command:
        return RollStep(RollAct.RESTART, "the broker was not seen away yet")
    return RollStep(RollAct.WAIT, "restart the broker now: the roll continues once it was away and is back")


def _away_step(roll: Roll, seen: TurnView) -> RollStep:
    if seen.command_code:
        return _command_failed(seen.command_code)
    if not seen.check.is_alive:
        return RollStep(RollAct.WAIT, "the broker is away")
    if seen.is_command_running:
        return RollStep(RollAct.WAIT, "the broker is back, and the command still runs")
    behind = len(seen.check.behind)
    if behind or seen.leaderless:
        late = counted(behind, "replica is", "replicas are")
        leaderless = counted(seen.leaderless, "partition has", "partitions have")
        return RollStep(RollAct.WAIT, f"the broker is back: {late} not in sync on it, {leaderless} no leader")
    if seen.snapshots_caught_up < SNAPSHOTS_CAUGHT_UP_MIN:
        return RollStep(RollAct.WAIT, "the broker is back and has caught up: that is checked again")
    if roll.is_demoted_by_roll:
        return RollStep(RollAct.UNDEMOTE, "the broker has caught up and gets its leadership back")
    return RollStep(RollAct.NOTE_RESTARTED, "restarted")


def _abort_step(roll: Roll, seen: TurnView | None) -> RollStep:
    """End the roll; a demotion of the roll is ended first. A broker that is away can't get its leadership back."""
    if seen is not None and seen.is_command_running:
        return RollStep(RollAct.WAIT, "the command still runs: the roll ends after it")
    if seen is None or not roll.is_demoted_by_roll or not seen.is_noted:
        return RollStep(RollAct.ABORT, "no demotion of the roll is left")
    if not seen.check.is_alive:
        broker = seen.check.broker
        return RollStep(RollAct.ABORT, f"broker {broker} is away and stays demoted: undemote it once it is back")
    return RollStep(RollAct.UNDEMOTE, "the roll is aborted: the broker gets its leadership back")


def _command_failed(code: int) -> RollStep:
    return RollStep(RollAct.STOP, f"the command ended with {code}")


def _obstacle(seen: TurnView, policy: RollPolicy) -> str | None:
    """Why the broker must not go away now; None if it may."""
    return "; ".join(obstacles(seen, policy)) or None


def obstacles(seen: TurnView, policy: RollPolicy) -> tuple[str, ...]:
    """Why the broker must not be restarted now, a line for each reason; empty if it may be."""
    if not seen.check.is_alive:
        return ("the broker is away",)
    if seen.others_away:
        away = first_named(seen.others_away, NAMED_MAX, lambda broker: f"broker {broker}")
        return (f"another broker is away: {away}",)
    stops = seen.check.stops(accepts_single=policy.accepts_single)
    if not policy.margin or not seen.check.at_edge:
        return stops
    at_edge = counted(len(seen.check.at_edge), "partition", "partitions")
    return (*stops, f"{at_edge} without margin: one more broker that fails stops their writes")


def standing_obstacle(broker: int, live: LiveCluster, in_sync_min: Mapping[str, int], policy: RollPolicy) -> str | None:
    """Why the broker may not be restarted even if all replicas are in sync and nothing moves; None if it may be.

    Waiting does not remove such an obstacle: partitions with one replica, or with as many as they need in sync.
    """
    whole = {
        key: replace(
            row, replicas=row.target_replicas, isr=row.target_replicas, leader=row.target_replicas[0],
            adding_replicas=(), removing_replicas=(),
        )
        for key, row in live.partitions.items()
        if broker in row.target_replicas
    }  # fmt: skip
    hosts = {host for row in whole.values() for host in row.replicas}
    racks = {host: live.broker_racks.get(host) for host in hosts | live.broker_racks.keys()}
    return _obstacle(turn_view(broker, LiveCluster(live.cluster_id, racks, whole), in_sync_min), policy)
