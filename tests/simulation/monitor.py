"""The invariants of a story, judged on the true state of the cluster whenever something may have changed it.

By their numbers on the page of the design:

1. No log dir that a copy of ours lies in goes offline because it is full; what control plans or asks for fits above the
   reserve into every log dir that may get it; a movement is not submitted before the waves before it are made, and not
   while a later one copies.
2. Nothing acknowledged is lost; a reassignment, its end and its cancelling leave as many sound replicas in sync as
   before; no replica list that we ask for is on fewer racks than the old or the new one.
3. We ask only for partitions of an execution that has started and not ended (to cancel: that has started); we never
   cancel or change a reassignment that another has started before our last look, unless it goes to the plan's replicas
   or to a step on the way to them.
4. Only replica lists of that plan (or on the way to them) are asked for, on the topics and on the cluster that it was
   approved for, by their ids; an execution starts once, not before its time, and approved by enough people.
5. Who changes the cluster holds the newest row of the lease. A request that is carried out late, maybe of a former
   holder, was judged when it was sent; it takes nothing from another who had begun before that, and leaves nothing (6).
6. Once faults have ended each execution ends within a bound, control does not end by itself, no throttle and no
   reassignment of ours is left, and what the journal calls done lies as planned unless another has changed it.
7. In flight, per topic and per broker (receiving and sending), and in elections no more is asked for than allowed. A
   minute after the faults a broker that receives for an execution has its rate. A replica that is asked for is in the
   topic's list of throttled replicas, unless others have changed a list.
8. Automatic mode makes no broker worse than its plan said, and stops after plans that don't deliver (see `promises`).
9. A move that an operator cancels again and again is not asked for for ever: the execution waits for a person.
10. A rate that somebody else has set is neither changed nor removed by control. Rates of control's that the tables no
    longer account for are removed (6).

Not judged here: what another has started after a late request of ours was sent.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assignor_core.execution.accounting import PERMANENT
from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import is_between, rack_count
from assignor_core.live import NO_LEADER, PartitionKey, partition_name
from assignor_core.plan import Movement, plan_from_json
from assignor_core.proposed_plan import KeptPlan
from assignor_core.throttles import (
    EVERY_REPLICA,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LOG_DIR_RATE,
    is_foreign,
    is_tagged,
)
from streaming.control.policies import limits
from streaming.control.wiring import journal_of
from streaming.views.executions import by_age, grown
from tests.simulated_cluster.state import SimulatedPartition
from tests.simulation import disks
from tests.simulation.control import Change, SimulatedControl, Targets, Watcher
from tests.simulation.promises import bad_in_a_row, broken_promise, is_automatic
from tests.simulation.world import Actor, World
from tests.tables_in_memory import MemoryTable

Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Replicas, adding, removing."""
JUDGED_TABLES = ("lease", "plan", "execution")
"""Tables whose rows are judged, each of them: one write may add several."""
CANCELS_BEARABLE = 4
"""Control counts two. It does not count those of moves whose answer was lost, or that a process before it asked for."""


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that did not hold, and where in the trace."""

    invariant: str
    detail: str
    line: int


@dataclass(slots=True)
class Owner:
    """Who has started the reassignment under way, and when."""

    ours: bool
    since_ms: int


@dataclass
class Monitor(Watcher):
    """Watches one story."""

    world: World
    undisturbed: bool
    """Nothing but control changes placement and brokers: what a plan brings is its own doing."""
    broken: list[Broken] = field(default_factory=list)
    touched: set[PartitionKey] = field(default_factory=set)
    """Partitions whose placement another has changed, or whose topic has gone."""
    _owners: dict[PartitionKey, Owner] = field(default_factory=dict)
    _lists: dict[PartitionKey, Lists] = field(default_factory=dict)
    _in_sync: dict[PartitionKey, dict[int, int]] = field(default_factory=dict)
    """Replicas in sync that are not being added, at the last look: their log dirs by broker."""
    _refused: set[PartitionKey] = field(default_factory=set)
    _offline: set[tuple[int, int]] = field(default_factory=set)
    _placed_by_us: set[tuple[PartitionKey, int]] = field(default_factory=set)
    _looked_ms: dict[str, int] = field(default_factory=dict)
    _looked_at_disks_ms: dict[str, int] = field(default_factory=dict)
    _leaders_seen: dict[str, dict[PartitionKey, int] | None] = field(default_factory=dict)
    """Leaders as each control saw them last; None where its metadata may be old."""
    _holder: Actor | None = None
    _starts: Counter[str] = field(default_factory=Counter)
    _names: dict[str, str] = field(default_factory=dict)
    _made_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a topic was first there, by name and id."""
    _changes: int = -1
    """The cluster's own count of them at the last look."""
    _known: dict[str, Execution] = field(default_factory=dict)
    _rows_seen: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    """Rows by table after its last write: what is not among them is new at the next."""
    _rows_of: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Rows of `execution` that have been judged, by execution: deleting them later takes nothing back."""
    _asked_by: dict[PartitionKey, str] = field(default_factory=dict)
    """Who has asked for the newest move of a partition, of the controls."""
    _cancels: Counter[tuple[str, PartitionKey]] = field(default_factory=Counter)
    """How often an operator has cancelled a move that this control had asked for."""
    _foreign_rates: dict[tuple[int, str], int] | None = None
    """Rates of others, by broker and setting, when a request that is not late left a control."""
    _forgotten: set[str] = field(default_factory=set)
    """Executions under way whose rows are gone from the tables: what they move is nobody's any more."""
    _plans: dict[str, tuple[MemoryTable, KeptPlan]] = field(default_factory=dict)
    """Plans by id, and the version of `plan` that they were read from."""

    def __post_init__(self) -> None:
        self.world.observer = self.look
        self.world.store.before = lambda operation, table: self.world.called(f"before {operation} of {table}")
        self.world.store.after = self._written
        self.look(None)

    # What the world and the controls tell.

    def look(self, who: Actor | None) -> None:
        """Whatever may have changed the cluster is over: `who` did it, nobody where only time has passed."""
        contents = self.world.cluster.placement
        if contents.changes == self._changes:
            return  # nothing that is judged below is another than before
        self._changes = contents.changes
        for name, topic in contents.topics.items():
            self._made_ms.setdefault((name, topic.topic_id), self.world.cluster.now_ms)
        present = dict(contents.partitions())
        for key in self._lists.keys() - present.keys():
            self.touched.add(key)
            self._forget(key)
        for key, row in present.items():
            lists = (row.replicas, row.adding_replicas, row.removing_replicas)
            if lists != self._lists.get(key, lists):
                self._replaced(key, row, self._lists[key], who)
            self._lists[key] = lists
            self._judge_replicas(key, row, who)
        self._judge_disks(who)

    def asked(self, who: SimulatedControl, topics: Collection[str] | None) -> None:
        """A control has looked at these topics of the cluster, or at all."""
        contents = self.world.cluster.placement
        self._looked_ms[who.name] = contents.now_ms
        lags = self.world.client_faults.metadata_lag_ms > 0
        if lags or topics is None:
            self._leaders_seen[who.name] = None
        if lags:
            return
        leaders = {key: row.leader for key, row in contents.partitions() if topics is None or key[0] in topics}
        self._leaders_seen[who.name] = (self._leaders_seen.get(who.name) or {}) | leaders

    def looked_at_disks(self, who: SimulatedControl) -> None:
        """A control has looked at log dirs."""
        self._looked_at_disks_ms[who.name] = self.world.cluster.now_ms

    def changing(self, who: SimulatedControl, change: Change) -> None:
        """A request leaves a control that has just asked its lease."""
        self._foreign_rates = self._rates_of_others()
        if who is not self._holder:
            holder = self._holder.name if self._holder else "nobody"
            self.breaks(
                "5 only the holder changes anything", f"{who.name}: {change.text}, while {holder} holds the lease"
            )
        if self.world.other_cluster is not None and self.world.led_away_ms < who.checked_ms:
            self.breaks("4 the cluster as approved", f"{who.name}: {change.text}, on another cluster")
        if not change.targets and not change.elected:
            return
        movements = {row.key: row for row in self._movements(open_only=None not in change.targets.values())}
        self._judge_content(who, change, movements)
        self._judge_room(who, disks.asked_for(self.world.cluster.contents, change.targets), "asks for")
        self._judge_caps(who, change)
        self._judge_named(who, change.targets)
        known = {
            row.key: row for execution in self.executions() if execution.in_progress for row in self._plan_of(execution)
        }
        self._judge_waves(known, change.targets)

    def arriving_late(self, who: SimulatedControl, change: Change) -> None:
        """A request that a control gave up is about to be carried out. It was judged when it was sent; now nobody who
        holds the lease can stop it. What another has started since then may suffer: Kafka knows no condition for that.
        """
        self._foreign_rates = None
        self.look(None)
        self.world.note(who.name, f"{change.text}: carried out {change.late_ms} ms late")
        self.world.lists_changed |= not change.targets
        for key, target in sorted(change.targets.items()):
            self._judge_other(who, key, "cancels" if target is None else "changes", late_ms=change.late_ms)

    def changed(self, who: SimulatedControl) -> None:
        """The request has come back."""
        before, self._foreign_rates = self._foreign_rates, None
        if before is not None and (touched := before.items() - self._rates_of_others().items()):
            self.breaks("10 rates of others stay", f"{who.name} has changed {sorted(touched)}")
        self.look(who)

    def crashed(self, who: SimulatedControl, reason: str) -> None:
        """A control has ended by itself."""
        self.breaks("6 control goes on", f"{who.name} ended: {reason}")

    def is_ours(self, key: PartitionKey) -> bool:
        """Whether a control has started the reassignment under way."""
        owner = self._owners.get(key)
        return owner is not None and owner.ours

    def operator_cancelled(self, key: PartitionKey) -> None:
        """An operator has cancelled a move of ours."""
        self._cancels[self._asked_by.get(key, ""), key] += 1

    def touch_topic(self, name: str) -> None:
        """What the journal says of this topic is not judged: control may not see it."""
        self.touched |= {key for key, _ in self.world.cluster.placement.partitions() if key[0] == name}

    def breaks(self, invariant: str, detail: str) -> None:
        """An invariant does not hold: noted once, and the story goes on."""
        if any(row.invariant == invariant for row in self.broken):
            return  # what follows from the first is no news
        self.world.note("BROKEN", f"{invariant}: {detail}")
        self.broken.append(Broken(invariant, detail, len(self.world.trace) - 1))

    def executions(self) -> list[Execution]:
        """All of the journal, oldest first."""
        return [row for row in self._all_executions() if row.execution_id not in self._forgotten]

    def forget(self, execution_ids: Collection[str]) -> None:
        """The tables were rolled back: the rows of these executions are gone."""
        self._forgotten |= {*execution_ids}
        for key in self._forgotten_keys() & self._owners.keys():
            self._owners[key].ours = False

    @property
    def has_forgotten(self) -> bool:
        """Whether rows of an execution under way are gone."""
        return bool(self._forgotten)

    def judge_rates(self) -> None:
        """Faults have ended some time ago: what receives for an execution has its rates, whoever removed them."""
        contents = self.world.cluster.placement
        for execution in self.executions():
            for movement in self._plan_of(execution) if execution.in_progress else ():
                row, owner = contents.partition(movement.key), self._owners.get(movement.key)
                if row is None or owner is None or not owner.ours:
                    continue
                for broker in sorted({*row.adding_replicas} & {*execution.throttled_brokers}):
                    if self._is_up(broker) and FOLLOWER_RATE not in contents.throttle_rates.get(broker, {}):
                        self.breaks("7 what copies has its rate", f"{movement.key}: broker {broker} has none")

    def judge_end(self) -> None:
        """Faults have ended, and what was to come has had its time."""
        executions = self.executions()
        for row in executions:
            if not row.ended:
                self.breaks("6 a defined end", f"{self._name(row.execution_id)} is {row.phase.value}")
            elif row.owes:
                self.breaks(
                    "6 no throttle is left", f"{self._name(row.execution_id)} owes brokers {row.throttled_brokers}"
                )
        for invariant, detail in self.leftovers():
            self.breaks(invariant, detail)
        self._judge_account(executions)

    # The judgements.

    def _judge_room(self, who: Actor, arriving: Counter[int], verb: str) -> None:
        """Not where time has passed since the look: a control that was frozen meanwhile can't know what has come."""
        now_ms = self.world.cluster.now_ms
        if self._looked_at_disks_ms.get(who.name, now_ms) == now_ms:
            reserve = self.world.settings.planner.disk_reserve
            for line in disks.overfilled(self.world.cluster.contents, arriving, reserve):
                self.breaks("1 no log dir is filled above its ceiling", f"{who.name} {verb} {line}")

    def _judge_content(self, who: SimulatedControl, change: Change, movements: Mapping[PartitionKey, Movement]) -> None:
        for key in (*sorted(change.targets), *change.elected):
            if key not in movements:
                self.breaks("3 only the plan's partitions", f"{who.name} asks for {key}, which no open execution moves")
        for key, target in sorted(change.targets.items()):
            self._judge_other(who, key, "cancels" if target is None else "changes")
            if target is not None and self._cancels[who.name, key] >= CANCELS_BEARABLE:
                self.breaks("9 an operator's cancel", f"{who.name} asks for {key} again, which was cancelled so often")
            if target is not None:
                self._asked_by[key] = who.name
            if target is not None and key in movements:
                self._judge_topic(who, key[0])
                self._judge_target(movements[key], target)

    def _judge_other(self, who: SimulatedControl, key: PartitionKey, verb: str, *, late_ms: int = 0) -> None:
        owner, sent_ms = self._owners.get(key), self.world.cluster.now_ms - late_ms
        looked_ms = min(sent_ms, self._looked_ms.get(who.name, 0))
        if owner and not owner.ours and owner.since_ms < looked_ms and not self._looks_like_ours(key):
            self.breaks("3 nothing of others", f"{who.name} {verb} the reassignment of {key} that another has started")

    def _looks_like_ours(self, key: PartitionKey) -> bool:
        """Another has asked for just what a plan asks for, or for a step on the way: Kafka shows no difference."""
        row, staged = self.world.cluster.placement.partition(key), self.world.settings.control.staged_moves
        target = row.live().target_replicas if row else ()
        return any(
            target == movement.new_replicas
            or (staged and is_between(target, movement.old_replicas, movement.new_replicas))
            for movement in self._movements(open_only=False)
            if movement.key == key
        )

    def _judge_topic(self, who: SimulatedControl, name: str) -> None:
        """Kafka takes names only: a topic that was made again after the look can't be told from the approved one."""
        topic = self.world.cluster.placement.topics.get(name)
        if topic is None:
            return
        made_ms = self._made_ms.get((name, topic.topic_id), 0)
        looked_ms = self._looked_ms.get(who.name, 0) - self.world.client_faults.metadata_lag_ms
        if made_ms < looked_ms and topic.topic_id not in self._topics_approved(name):
            self.breaks("4 the topic as approved", f"{who.name} moves {name}, which was made again")

    def _topics_approved(self, name: str) -> set[str]:
        """Ids of a topic in the plans that are carried out."""
        kept = (self._kept(row).topic_ids for row in self._all_executions() if row.in_progress)
        return {ids[name] for ids in kept if name in ids}

    def _judge_target(self, movement: Movement, target: tuple[int, ...]) -> None:
        old, new = movement.old_replicas, movement.new_replicas
        if target != new and not (self.world.settings.control.staged_moves and is_between(target, old, new)):
            self.breaks("4 the plan as approved", f"{target} asked for {movement}")
        racks = {row.broker_id: row.rack for row in self.world.cluster.placement.brokers.values()}
        if rack_count(target, racks) < min(rack_count(old, racks), rack_count(new, racks)):
            self.breaks("2 racks are never worse", f"{target} on the way from {old} to {new}")

    def _judge_caps(self, who: SimulatedControl, change: Change) -> None:
        """Counted as asked for, on the true state. Who sends is the leader that control saw, where metadata is current:
        a leader may change at any time, and what copies already is not asked for again.
        """
        contents, caps, targets = self.world.cluster.placement, limits(self.world.settings.control), change.targets
        if len(change.elected) > caps.elections_at_once_max:
            self.breaks("7 elections at a time", f"{len(change.elected)} elected, {caps.elections_at_once_max} allowed")
        if not targets or None in targets.values():
            return
        receiving: dict[PartitionKey, set[int]] = {}
        for key, row in contents.partitions():
            target, owner = targets.get(key), self._owners.get(key)
            if target is not None:
                receiving[key] = set(target) - set(row.replicas)
            elif row.reassigning and owner is not None and owner.ours and row.leader != NO_LEADER:
                receiving[key] = set(row.adding_replicas)
        copying = {key: brokers for key, brokers in receiving.items() if brokers}
        # What an execution that has ended could not cancel is work for brokers, and no movement of this one.
        in_flight = copying.keys() & ({row.key for row in self._movements(open_only=True)} | targets.keys())
        per_topic = Counter(topic for topic, _ in in_flight)
        per_broker = Counter(broker for brokers in copying.values() for broker in brokers)
        if len(in_flight) > caps.movements_in_flight_max:
            self.breaks("7 caps hold", f"{len(in_flight)} in flight, {caps.movements_in_flight_max} allowed")
        if max(per_topic.values(), default=0) > caps.topic_max:
            self.breaks("7 caps hold", f"{per_topic} by topic, {caps.topic_max} allowed")
        if max(per_broker.values(), default=0) > caps.movements_per_broker_max:
            self.breaks("7 caps hold", f"{per_broker} received by broker, {caps.movements_per_broker_max} allowed")
        self._judge_senders(copying, copying.keys() & targets.keys(), per_broker, self._leaders_seen.get(who.name))
        leaders_only = sum(
            not receiving[key] and targets[key] != contents.topics[key[0]].partitions[key[1]].replicas
            for key in targets
            if key in receiving
        )
        if leaders_only > caps.elections_at_once_max:
            self.breaks(
                "7 elections at a time", f"{leaders_only} change their leader, {caps.elections_at_once_max} allowed"
            )

    def _judge_named(self, who: SimulatedControl, targets: Targets) -> None:
        """What is copied without an entry in the list is copied without a throttle."""
        for (name, number), target in sorted(targets.items()):
            topic = self.world.cluster.placement.topics.get(name)
            ids = {topic_id for known, topic_id in self._made_ms if known == name}
            if topic is None or len(ids) > 1 or self.world.lists_changed:
                continue
            row, named = topic.partitions[number], topic.throttled_replicas.get(FOLLOWER_REPLICAS, "").split(",")
            for broker in sorted(set(target or ()) - {*row.replicas}):
                if EVERY_REPLICA not in named and f"{number}:{broker}" not in named:
                    self.breaks("7 what is asked for is named", f"{who.name}: {name}-{number} to broker {broker}")

    def _judge_senders(
        self,
        copying: Mapping[PartitionKey, set[int]],
        asked: Collection[PartitionKey],
        received: Counter[int],
        leaders: Mapping[PartitionKey, int] | None,
    ) -> None:
        """Brokers that a request adds work to send and receive no more than allowed."""
        if leaders is None:
            return
        allowed = limits(self.world.settings.control).movements_per_broker_max
        busy = received + Counter(leaders[key] for key in copying if key in leaders)
        added = {broker for key in asked if key in leaders for broker in (*copying[key], leaders[key])}
        above = {broker: busy[broker] for broker in sorted(added) if busy[broker] > allowed}
        if above:
            self.breaks("7 caps of those who send", f"{above} sent and received by broker, {allowed} allowed")

    def _judge_waves(self, movements: Mapping[PartitionKey, Movement], targets: Targets) -> None:
        """Refused partitions are skipped, and what another has changed is no longer the plan's."""
        contents = self.world.cluster.placement
        refused = self.world.client_faults.refused
        self._refused |= {key for key, error in refused.items() if error in PERMANENT}
        unmade = [
            movement.wave
            for key, movement in movements.items()
            if key not in self._refused | self.touched
            and (row := contents.partition(key))
            and (row.reassigning or row.replicas != movement.new_replicas)
        ]
        asked = [movements[key].wave for key, target in targets.items() if target and key in movements]
        if max(asked, default=0) > min(unmade, default=0) and unmade:
            self.breaks("1 waves are barriers", f"waves {sorted(set(asked))} asked for, wave {min(unmade)} is not made")
        later = [
            row.wave
            for key, row in movements.items()
            if (owner := self._owners.get(key)) and owner.ours and row.wave > min(asked, default=row.wave)
        ]
        if later:
            self.breaks("1 waves are barriers", f"wave {min(asked)} asked for, while wave {min(later)} copies")

    def _judge_replicas(self, key: PartitionKey, row: SimulatedPartition, who: Actor | None) -> None:
        """A reassignment, its end and its cancelling leave as many replicas in sync as before: what a fault takes is
        gone before. Where another tool moves the partition nothing is ours.
        """
        if row.lost_bytes:
            self.breaks("2 nothing acknowledged is lost", f"{row.lost_bytes} bytes of {key}")
        before = self._in_sync.get(key, {})
        usable = [broker for broker, log_dir in before.items() if self._is_usable(broker, log_dir)]
        in_sync = {broker: row.copies[broker].log_dir for broker in row.isr if broker not in row.adding_replicas}
        expected = min(len(usable), len(row.replicas) - len(row.adding_replicas))
        judged = key not in self.touched and (who is None or isinstance(who, SimulatedControl))
        if judged and len(in_sync) < expected:
            self.breaks("2 replicas in sync", f"{key} has {sorted(in_sync)}, of {sorted(before)} {usable} are sound")
        self._in_sync[key] = in_sync

    def _is_usable(self, broker_id: int, log_dir: int) -> bool:
        log_dirs = self.world.cluster.placement.brokers[broker_id].log_dirs
        return self._is_up(broker_id) and not log_dirs[log_dir].offline

    def _is_up(self, broker_id: int) -> bool:
        broker = self.world.cluster.placement.brokers[broker_id]
        return broker.running and not broker.fenced

    def _judge_disks(self, who: Actor | None) -> None:
        contents = self.world.cluster.placement
        offline = {
            (broker.broker_id, index)
            for broker in contents.brokers.values()
            for index, log_dir in enumerate(broker.log_dirs)
            if log_dir.offline
        }
        for broker_id, index in sorted(offline - self._offline) if who is None else ():
            ours = [
                key
                for key, row in contents.partitions()
                if (key, broker_id) in self._placed_by_us
                and broker_id in row.copies
                and row.copies[broker_id].log_dir == index
            ]
            if ours:
                self.breaks("1 no log dir is filled by us", f"dir {index} of broker {broker_id} with {ours}")
        self._offline = offline

    def leftovers(self) -> Iterator[tuple[str, str]]:
        """What control has left on the cluster now: the invariant that it would break at the end, and details."""
        contents = self.world.cluster.placement
        moved_by_others = {key for key, owner in self._owners.items() if not owner.ours}
        forgotten = self._forgotten_keys()
        copying = {
            row for key in forgotten if (now := contents.partition(key)) for row in now.replicas if now.reassigning
        }
        for broker, rates in sorted(contents.throttle_rates.items()):
            if broker not in copying and any(map(is_tagged, rates.values())):
                yield "6 no throttle is left", f"{rates} of broker {broker}"
        for name, topic in sorted(contents.topics.items()):
            for setting, text in sorted(topic.throttled_replicas.items()):
                # Entries of a partition that another moves could be another's: they stay.
                entries = () if text == EVERY_REPLICA else text.split(",")
                # Nobody can tell whose entries of an execution are that the tables no longer know.
                if any((name, int(entry.split(":")[0])) not in moved_by_others | forgotten for entry in entries):
                    yield "6 no throttle is left", f"{setting} of {name}: {text}"
        for key, owner in sorted(self._owners.items()):
            row = contents.partition(key)
            # Kafka cancels nothing where no replica that would stay is in sync: the last event names it.
            if owner.ours and key not in forgotten and (row is None or row.leader != NO_LEADER):
                yield "6 no reassignment is left", f"{key} is still moved by us"

    def _judge_automatic(self, execution_id: str) -> None:
        """An event of this execution was written just now."""
        executions = self.executions()
        execution = self._known.get(execution_id)
        if execution is None or not is_automatic(execution):
            return
        if execution.waiting:
            bad = bad_in_a_row(row for row in executions if row is not execution)
            if bad >= self.world.settings.control.bad_plans_max:
                self.breaks(
                    "8 automatic mode stops",
                    f"approves {self._name(execution_id)} after {bad} plans that brought nothing",
                )
        problem = broken_promise(execution, self.world.cluster.placement)
        quiet = self.undisturbed and self.world.hot_broker is None
        if quiet and execution.last_event is Event.DONE and not self._refused and problem:
            self.breaks("8 no broker is made worse than the plan said", f"{self._name(execution_id)}: {problem}")

    def _judge_account(self, executions: list[Execution]) -> None:
        """The newest execution that moved a partition says where it lies, unless rows of a newer one are gone."""
        unjudged = self.touched | self._refused | self._forgotten_keys()
        newest: dict[PartitionKey, tuple[Execution, Movement]] = {}
        for execution in executions:
            if execution.started_ms is not None:
                newest |= {(row.topic, row.partition): (execution, row) for row in self._plan_of(execution)}
        for key, (execution, movement) in sorted(newest.items()):
            row = self.world.cluster.placement.partition(key)
            judged = execution.done_ms is not None and key not in unjudged
            swept = (event.detail for event in execution.events if event.event is Event.SWEPT)
            if any(f" {partition_name(key)} on " in detail for detail in swept):
                continue  # a late step of a staged move: the journal names it
            if judged and row is not None and row.replicas != movement.new_replicas:
                self.breaks("6 the journal's account", f"{key} lies on {row.replicas}, {movement.new_replicas} noted")

    # Bookkeeping.

    def _replaced(self, key: PartitionKey, row: SimulatedPartition, before: Lists, who: Actor | None) -> None:
        """The lists of a partition are others than before."""
        ours = isinstance(who, SimulatedControl)
        begun = row.reassigning and (row.adding_replicas, row.removing_replicas) != before[1:]
        if who is not None and not ours:
            self.touched.add(key)
        if not row.reassigning:
            self._owners.pop(key, None)
        elif begun:
            # Where only time has passed, a request of ours was carried out late.
            is_ours = (ours or who is None) and key not in self._forgotten_keys()
            self._owners[key] = Owner(is_ours, self.world.cluster.now_ms)
        if ours:
            self._placed_by_us |= {(key, broker) for broker in row.adding_replicas}

    def _all_executions(self) -> list[Execution]:
        """With those that the tables no longer know."""
        return sorted(self._known.values(), key=by_age)

    def _forgotten_keys(self) -> set[PartitionKey]:
        """Partitions that an execution moved which the tables no longer know."""
        return {row.key for name in self._forgotten for row in self._plan_of(self._known[name])}

    def _rates_of_others(self) -> dict[tuple[int, str], int]:
        contents = self.world.cluster.placement
        rates = {(broker, key): rate for broker, row in contents.throttle_rates.items() for key, rate in row.items()}
        rates |= {(broker, LOG_DIR_RATE): rate for broker, rate in contents.log_dir_rates.items()}
        return {where: rate for where, rate in rates.items() if is_foreign(rate)}

    def _forget(self, key: PartitionKey) -> None:
        self._lists.pop(key)
        self._in_sync.pop(key, None)
        self._owners.pop(key, None)

    def _written(self, operation: str, table: str) -> None:
        """Rows were written or deleted: by the control that is in a turn, or by the story."""
        if table in JUDGED_TABLES:
            rows, seen = self.world.store.tables[table].rows, set(map(id, self._rows_seen.get(table, ())))
            self._rows_seen[table] = rows
            for row in rows:
                if id(row) not in seen:
                    self._judge_row(table, row)
        self.world.called(f"after {operation} of {table}")

    def _judge_row(self, table: str, row: Mapping[str, Any]) -> None:
        world = self.world
        if table == "lease":
            self._holder = None if row["released"] else world.running
        elif table == "plan" and world.running is not None:
            movements = plan_from_json(json.loads(row["plan_json"])).movements
            self._judge_room(world.running, disks.planned(world.cluster.contents, movements), "plans")
        elif table == "execution":
            name = self._name(row["execution_id"])
            self._rows_of.setdefault(row["execution_id"], []).append(row)
            changed = grown(self._known, [row], self._rows_of.__getitem__)
            self._known |= {execution.execution_id: execution for _, execution in changed}
            world.note(world.running.name if world.running else "person", f"{name} {row['event']}: {row['detail']}")
            self._starts[row["execution_id"]] += row["event"] == Event.STARTED.value
            if self._starts[row["execution_id"]] > 1:
                self.breaks("4 begun once", f"{name} has started {self._starts[row['execution_id']]} times")
            if row["event"] == Event.STARTED.value and row["execution_id"] in self._known:
                self._judge_start(name, self._known[row["execution_id"]])
            self._judge_automatic(row["execution_id"])

    def _judge_start(self, name: str, execution: Execution) -> None:
        """An execution that starts has the approvals that it needs, and its time has come."""
        needed, people = self.world.settings.control.approvals, {row.casefold() for row in execution.approvers}
        if needed > 1 and not is_automatic(execution) and len(people) < needed:
            self.breaks("4 approved by enough people", f"{name} starts, and {execution.approvers} approved it")
        if execution.begins_ms is not None and self.world.now_ms < execution.begins_ms:
            self.breaks("4 not before its time", f"{name} starts {execution.begins_ms - self.world.now_ms} ms early")

    def _name(self, execution_id: str) -> str:
        """Ids are drawn at random: the trace numbers executions as they come."""
        return self._names.setdefault(execution_id, f"execution {len(self._names) + 1}")

    def _movements(self, *, open_only: bool) -> Iterator[Movement]:
        """Of executions that have started; those that have ended are watched for a while, and may be cleared up."""
        for execution in self._all_executions():
            if execution.in_progress or (not open_only and execution.started_ms is not None):
                yield from self._plan_of(execution)

    def _plan_of(self, execution: Execution) -> tuple[Movement, ...]:
        return self._kept(execution).plan.movements

    def _kept(self, execution: Execution) -> KeptPlan:
        table, known = self.world.store.tables["plan"], self._plans.get(execution.plan_id)
        if known is None or known[0] is not table:  # a plan that is made again has the same movements, in other waves
            running, self.world.running = self.world.running, None  # no call out of a control
            try:
                known = table, journal_of(self.world.settings).plan(execution.plan_id)
            finally:
                self.world.running = running
            self._plans[execution.plan_id] = known
        return known[1]
