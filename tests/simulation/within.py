"""Stories of full log dirs in mode `apply`: replicas move within their brokers while brokers, disks and control fail.

Two to four brokers with two or three log dirs, of which one or two are above their fill level. Brokers die while they
copy, and some lose what they had copied; targets are filled by others, go offline and come back; others move replicas
within the brokers, too; brokers refuse movements, and to give them up, for a while; a person stops the execution.

1. What control asks for fits above the reserve into the log dir that gets it.
3. Only replicas of an execution that has started and not ended are asked to move; to stay: of one that has started.
4. They go to the log dirs of the plan.
6. In the end no rate and no copy of ours is left, and what the journal calls made lies as planned.
7. No more copies at a time than allowed, and none before its broker has a rate.
8. What is above its fill level and could be relieved is relieved, unless the newest decision shows why not.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Any

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.live import PartitionKey, ReplicaKey, replica_name
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.throttles import LOG_DIR_RATE, is_tagged
from streaming.control.policies import limits
from streaming.control.throttle import RATE_READ_INTERVAL_MS
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.simulated_cluster import (
    Fate,
    LogDir,
    PlannedFault,
    RequestKind,
    SimulatedBroker,
    SimulatedCluster,
    log_dir_moves,
)
from tests.simulated_cluster.log_dir_client import path_of
from tests.simulated_cluster.replication import used_bytes
from tests.simulated_cluster.state import Replica
from tests.simulation.control import Change, SimulatedControl
from tests.simulation.monitor import Monitor
from tests.simulation.others import RateFaults
from tests.simulation.roles import begin
from tests.simulation.story import LOOK_MS, PlayedStory, played
from tests.simulation.world import Actor, Blow, Interruption, World, settings_of
from tests.tables_in_memory import in_memory

MB = 10**6
DISK = 200 * MB
FILL_MAX, GOAL, RESERVE = 0.85, 0.80, 0.10
SIZES = (6 * MB, 15 * MB)
FAULTS_MS = (15_000, 60_000, 150_000)
AT_REST_MS = 300_000
STORY_MS = 1_500_000
"""So long after the faults a pause after an execution that was given up is over, and the rest relieved."""
LONGER_MS = 900_000
"""What is under way then has so long to end: its deadline, and room for its end."""
CALLS_STRUCK = 400
TOLERANCE_BYTES = MB
"""Producers write on between a look and the request."""
TEMPORARY_ERROR = "UnknownError"
ENDS = (Event.DONE.value, Event.ABORTED.value)
EVERYTHING_MADE = "every movement has been made"


def run_within_story(seed: int) -> PlayedStory:
    """The story of a seed from beginning to end."""
    return played(WithinStory(seed))


class WithinMonitor(Monitor):
    """The usual monitor, which also judges movements within brokers."""

    def __post_init__(self) -> None:
        self.moved_by_others: set[ReplicaKey] = set()
        self.person: RateFaults | None = None
        """Who sets rates of their own. Control sees only at its next look at rates that they have removed one."""
        super().__post_init__()

    def changing(self, who: SimulatedControl, change: Change) -> None:
        super().changing(who, change)
        if not change.within:
            return
        begun: dict[ReplicaKey, str] = {}
        open_movements = {row.replica: row for row in self._within(open_only=True)}
        known = {row.replica for row in self._within(open_only=False)}
        for replica, path in sorted(change.within.items()):
            copy = self.copy_of(replica)
            if copy is not None and path_of(copy.log_dir) == path:
                if replica not in known:
                    self.breaks("3 only the plan's replicas", f"{who.name} stops {replica_name(replica)}")
            elif replica not in open_movements:
                self.breaks("3 only the plan's replicas", f"{who.name} moves {replica_name(replica)}")
            elif copy is not None and self._has_just_arrived(open_movements[replica], path, copy):
                continue  # it was to stay where the look showed it; that it is not copied back is judged at the end
            elif open_movements[replica].new_log_dir != path:
                self.breaks("4 the plan as approved", f"{replica_name(replica)} to {path}")
            else:
                begun[replica] = path
                self._placed_by_us.add((replica[1], replica[0]))
        if begun:
            self._judge_begun(who, begun, known)

    def _judge_row(self, table: str, row: Mapping[str, Any]) -> None:
        super()._judge_row(table, row)
        if table == "execution" and row["event"] in ENDS:
            self._judge_left(row["execution_id"], row["throttled_brokers"] or (), row["detail"])

    def _judge_left(self, execution_id: str, owed: Collection[int], detail: str) -> None:
        """What an execution that ends now leaves behind; `owed` are brokers that the journal names with their rates.

        A broker with a person's rate is not among them: what may go on there does so at that rate.
        """
        of_brokers = self.world.cluster.contents.log_dir_rates
        rates = {row for row, rate in of_brokers.items() if is_tagged(rate)} - set(owed)
        if rates and "Kafka refuses to remove the throttle" not in detail:
            self.breaks("6 no throttle is left", f"within brokers {sorted(rates)} at an end: {detail}")
        execution = next(row for row in self.executions() if row.execution_id == execution_id)
        for movement in self._movements_within(execution):
            copy = self.copy_of(movement.replica)
            is_ours = copy is not None and copy.future is not None and movement.replica not in self.moved_by_others
            is_at_rate = movement.broker in owed or (
                movement.broker in of_brokers and not self._is_copied(movement.replica)
            )
            if is_ours and not is_at_rate:
                self.breaks("6 no copy is left", f"{replica_name(movement.replica)} may go on at an end: {detail}")

    def _is_copied(self, replica: ReplicaKey) -> bool:
        """Whether it is copied for us. From a log dir that is offline nothing is: what lies in there is not shown, and
        the last event names it. A copy into one is forgotten by its broker, which may go on with it after a restart.
        """
        copy = self.copy_of(replica)
        if copy is None or copy.future is None or replica in self.moved_by_others:
            return False
        log_dirs = self.world.cluster.placement.brokers[replica[0]].log_dirs
        return not (log_dirs[copy.log_dir].offline or log_dirs[copy.future.log_dir].offline)

    def _has_just_arrived(self, movement: LogDirMovement, path: str, copy: Replica) -> bool:
        """Whether a replica is asked to stay in the log dir that it has left since the look."""
        return path == movement.old_log_dir and path_of(copy.log_dir) == movement.new_log_dir

    def copy_of(self, replica: ReplicaKey) -> Replica | None:
        """The replica as it lies on its broker."""
        row = self.world.cluster.placement.partition(replica[1])
        return None if row is None else row.copies.get(replica[0])

    def judge_end(self) -> None:
        super().judge_end()
        contents = self.world.cluster.contents
        if any(map(is_tagged, contents.log_dir_rates.values())):
            self.breaks("6 no throttle is left", f"within brokers: {contents.log_dir_rates}")
        for movement in self._within(open_only=False):
            copy = self.copy_of(movement.replica)
            ours = copy is not None and copy.future is not None and movement.replica not in self.moved_by_others
            if ours:
                self.breaks("6 no copy is left", f"{replica_name(movement.replica)} is still being copied")
        self._judge_made()
        self._judge_relieved()

    def _within(self, *, open_only: bool) -> Iterator[LogDirMovement]:
        for execution in self.executions():
            if execution.in_progress or (not open_only and execution.started_ms is not None):
                yield from self._movements_within(execution)

    def _movements_within(self, execution: Execution) -> tuple[LogDirMovement, ...]:
        return self._kept(execution).plan.log_dir_movements

    def _judge_begun(self, who: SimulatedControl, begun: Mapping[ReplicaKey, str], ours: set[ReplicaKey]) -> None:
        contents, caps = self.world.cluster.contents, limits(self.world.settings.control)
        copying = begun.keys() | {row for row in ours if self._is_copied(row)}
        per_broker = Counter(broker for broker, _ in copying - self.moved_by_others)
        if per_broker.total() > caps.movements_in_flight_max:
            self.breaks("7 caps hold", f"{per_broker.total()} in flight, {caps.movements_in_flight_max} allowed")
        if max(per_broker.values(), default=0) > caps.movements_per_broker_max:
            self.breaks("7 caps hold", f"{per_broker} by broker, {caps.movements_per_broker_max} allowed")
        unseen = self.person.removed_since(self.world.cluster.now_ms - RATE_READ_INTERVAL_MS) if self.person else set()
        for broker in sorted({broker for broker, _ in begun} - contents.log_dir_rates.keys() - unseen):
            self.breaks("7 nothing copies unthrottled", f"{who.name}: broker {broker} has no rate")
        if self._looked_at_disks_ms.get(who.name) == self.world.cluster.now_ms:
            self._judge_room_within(who, begun)

    def _judge_room_within(self, who: SimulatedControl, begun: Mapping[ReplicaKey, str]) -> None:
        """What is under way already brings the rest of its bytes, too."""
        contents = self.world.cluster.contents
        used = Counter(used_bytes(contents))
        for key, row in contents.partitions():
            for broker, copy in row.copies.items():
                if (broker, key) in begun:
                    continue
                if copy.future is not None:
                    used[broker, copy.future.log_dir] += max(0, copy.end_bytes - copy.future.end_bytes)
        for (broker, key), path in begun.items():
            index = [path_of(row) for row in range(len(contents.brokers[broker].log_dirs))].index(path)
            used[broker, index] += contents.topics[key[0]].partitions[key[1]].size_bytes(broker)
        for broker, index in sorted({(broker, int(path.rsplit("-")[-1])) for (broker, _), path in begun.items()}):
            size_bytes = contents.brokers[broker].log_dirs[index].size_bytes
            if used[broker, index] > (1 - RESERVE) * size_bytes + TOLERANCE_BYTES:
                self.breaks(
                    "1 no log dir is filled above its ceiling",
                    f"{who.name}: {used[broker, index]:,} bytes in {path_of(index)} of broker {broker}",
                )

    def _judge_made(self) -> None:
        """The newest execution that moved a replica says where it lies."""
        newest: dict[ReplicaKey, tuple[Execution, LogDirMovement]] = {}
        for execution in self.executions():
            if execution.started_ms is not None:
                newest |= {row.replica: (execution, row) for row in self._movements_within(execution)}
        for replica, (execution, movement) in sorted(newest.items()):
            copy = self.copy_of(replica)
            made = execution.end is not None and execution.end.detail == EVERYTHING_MADE
            if made and copy and replica not in self.moved_by_others and path_of(copy.log_dir) != movement.new_log_dir:
                self.breaks("6 the journal's account", f"{replica_name(replica)} is not in {movement.new_log_dir}")

    def _judge_relieved(self) -> None:
        decision = self.world.store.tables["decision"].rows[-1]
        if decision["reason"] not in ("given_up", "cooldown"):
            for where in self.to_relieve():
                self.breaks("8 full log dirs are relieved", f"{where}; {decision['reason']}: {decision['detail']}")

    def to_relieve(self) -> Iterator[str]:
        """Log dirs above their fill level from which some replica could go elsewhere, in words."""
        contents = self.world.cluster.contents
        used = used_bytes(contents)
        for broker_id, broker in sorted(contents.brokers.items()):
            shares = {index: used[broker_id, index] / row.size_bytes for index, row in enumerate(broker.log_dirs)}
            for full in (index for index, share in shares.items() if share > FILL_MAX):
                rows = (row for _, row in contents.partitions() if broker_id in row.copies)
                sizes = [row.size_bytes(broker_id) for row in rows if row.copies[broker_id].log_dir == full]
                least = min(sizes, default=DISK)
                roomy = [index for index in shares if index != full and shares[index] + least / DISK < GOAL]
                if roomy:
                    yield f"{path_of(full)} of broker {broker_id} is {shares[full]:.0%} full"


class WithinStory:
    """Everything that follows from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = self._random = Random(f"within {seed}")
        count, dirs = random.randint(2, 4), random.choice((2, 2, 3))
        rate = random.choice((50, 50, 5)) * MB
        cluster = SimulatedCluster(
            f"cluster-{seed}",
            [
                SimulatedBroker(row, None, [LogDir(DISK) for _ in range(dirs)], 100 * MB, rate)
                for row in range(1, count + 1)
            ],
        )
        placed = {number: (number % count + 1, (number + 1) % count + 1) for number in range(12 * count)}
        cluster.create_topic("t", placed, size_bytes=SIZES[0], bytes_in_per_sec=100, retention_bytes=SIZES[0] + MB)
        cluster.create_topic("large", dict(list(placed.items())[: 2 * count]), size_bytes=SIZES[1])
        self.world = World(cluster, _settings(random, in_memory(f"within-{seed}")))
        self.world.draw_release(seed)
        self._full = random.sample(range(1, count + 1), random.choice((1, 1, 2)))
        for broker in self._full:
            self._fill(broker)
        self._monitor = WithinMonitor(self.world, undisturbed=False)
        self._others = Actor("others")

    def run(self) -> PlayedStory:
        """Until what was full has had its time."""
        world, random = self.world, self._random
        for _ in range(random.choice((0, 1, 2, 3))):
            duration_ms = random.choice((100, 2_000, 20_000))
            world.interruptions[random.randrange(1, CALLS_STRUCK)] = Interruption(
                random.choice(list(Blow)), duration_ms
            )
        begin(world, self._monitor, self._others)
        kinds = (
            self._broker_dies, self._target_fills, self._log_dir_fails, self._another_moves, self._refused, self._lost,
            self._stopped,
        )  # fmt: skip
        self._monitor.person = RateFaults(self.seed, world, self._others, max(FAULTS_MS))
        self._monitor.person.plan((LOG_DIR_RATE,))
        faults_ms = random.choice(FAULTS_MS)
        for kind in random.choices(kinds, k=random.choice((0, 1, 2, 4))):
            world.plan(random.randrange(3_000, faults_ms), self._others, kind)
        world.pass_time(max(FAULTS_MS) + 120_000)
        self._end_faults()
        world.pass_time(AT_REST_MS)
        ends_ms = world.cluster.now_ms + STORY_MS
        while self._is_busy(world.cluster.now_ms < ends_ms) and world.cluster.now_ms < ends_ms + LONGER_MS:
            world.pass_time(LOOK_MS)
        self._monitor.judge_end()
        return PlayedStory.of(self.seed, self._monitor, "within")

    def _is_busy(self, may_begin: bool) -> bool:
        """Whether something is under way, or is to be done and may begin yet."""
        monitor = self._monitor
        open_ones = any(not row.ended or row.owes for row in monitor.executions())
        return open_ones or (may_begin and any(True for _ in monitor.to_relieve()))

    def _fill(self, broker: int) -> None:
        """Nine tenths of one log dir are replicas and others' files; the rest of the replicas lies elsewhere."""
        contents = self.world.cluster.contents
        log_dir, filled = contents.brokers[broker].log_dirs[0], 0
        for _, row in contents.partitions():
            if (copy := row.copies.get(broker)) is not None:
                copy.log_dir = 0 if filled < 0.5 * DISK else 1
                filled += row.size_bytes(broker) if copy.log_dir == 0 else 0
        log_dir.other_bytes = round(self._random.uniform(0.87, 0.97) * DISK) - filled

    # Faults.

    def _strikes(self, what: str) -> None:
        self.world.faults[what.replace("broker ", "a broker ", 1) if what[-1].isdigit() else what] += 1
        self.world.note("others", what)
        self._monitor.look(self._others)

    def _broker_dies(self) -> None:
        """It is back before it has failed; some find nothing of the copies that they had begun."""
        cluster, broker, loses = self.world.cluster, self._random.choice(self._full), self._random.random() < 0.5
        if not cluster.contents.brokers[broker].running:
            return
        cluster.kill_broker(broker)
        self.world.note("others", f"broker {broker} dies")
        self._monitor.look(self._others)
        self.world.faults["a broker dies"] += 1

        def restart() -> None:
            if cluster.contents.brokers[broker].running:
                return
            copies = (row.copies.get(broker) for _, row in cluster.contents.partitions())
            futures = [copy for copy in copies if copy is not None and copy.future is not None]
            if loses:
                for copy in futures:
                    copy.future = None
                self.world.faults["a copy is lost at a restart"] += len(futures)
            cluster.restart_broker(broker)
            self.world.note("others", f"broker {broker} is back{' without its copies' if loses and futures else ''}")
            self._monitor.look(self._others)

        self.world.plan(self._random.randrange(5_000, 60_000), self._others, restart)

    def _target_fills(self) -> None:
        """Others write files until little more than the reserve is free, or less."""
        broker = self._random.choice(self._full)
        log_dir = self.world.cluster.contents.brokers[broker].log_dirs[1]
        if log_dir.offline:  # nobody can write there
            return
        used = used_bytes(self.world.cluster.contents)[broker, 1]
        left = self._random.choice((0.08, 0.12, 0.15))
        before, log_dir.other_bytes = (
            log_dir.other_bytes,
            max(log_dir.other_bytes, log_dir.other_bytes + round((1 - left) * DISK) - used),
        )
        self.world.note("others", f"fill {path_of(1)} of broker {broker}")
        self.world.faults["a target is filled by others"] += 1

        def free() -> None:
            log_dir.other_bytes = before

        if self._random.random() < 0.7:
            self.world.plan(self._random.randrange(20_000, 120_000), self._others, free)

    def _log_dir_fails(self) -> None:
        cluster, broker = self.world.cluster, self._random.choice(self._full)
        index = self._random.randrange(len(cluster.contents.brokers[broker].log_dirs))
        if not cluster.contents.brokers[broker].running:
            return
        cluster.fail_log_dir(broker, index)
        self.world.note("others", f"{path_of(index)} of broker {broker} fails")
        self.world.faults["a log dir fails"] += 1
        self._monitor.look(self._others)

        def repair() -> None:
            cluster.repair_log_dir(broker, index)
            if not cluster.contents.brokers[broker].running:
                cluster.restart_broker(broker)
            self.world.note("others", f"{path_of(index)} of broker {broker} is repaired")

        self.world.plan(self._random.randrange(10_000, 90_000), self._others, repair)

    def _another_moves(self) -> None:
        """Half of the time somebody else stops a copy of ours, or asks for another log dir."""
        contents, broker = self.world.cluster.contents, self._random.choice(self._full)
        key = self._random.choice([key for key, row in contents.partitions() if broker in row.copies])
        index = self._random.randrange(len(contents.brokers[broker].log_dirs))
        if contents.brokers[broker].running:
            log_dir_moves.move_to_log_dir(contents, broker, key, index)
            self._monitor.moved_by_others.add((broker, key))
            self.world.note("others", f"move {replica_name((broker, key))} to {path_of(index)}")
            self.world.faults["another moves a replica within its broker"] += 1

    def _refused(self) -> None:
        """Movements are neither begun nor given up for a while."""
        refusals, broker = self.world.client_faults.within_refused, self._random.choice(self._full)
        held = self._held(broker)
        refusals |= {(broker, key): TEMPORARY_ERROR for key in self._random.sample(held, min(8, len(held)))}
        self.world.faults["movements within a broker are refused for a while"] += 1
        self.world.plan(self._random.randrange(5_000, 40_000), self._others, refusals.clear)

    def _lost(self) -> None:
        fate = self._random.choice(list(Fate))
        delay_ms = self._random.randrange(1_000, 30_000)
        self.world.client_faults.planned.append(PlannedFault(fate, RequestKind.MOVE_WITHIN_BROKERS, delay_ms))
        self.world.faults[f"a movement within a broker: {fate.value}"] += 1

    def _stopped(self) -> None:
        for execution in self._monitor.executions():
            if not execution.ended:
                journal_of(self.world.settings).request_abort(execution, "a person", now_ms=self.world.now_ms)
                self.world.faults["a person stops an execution"] += 1

    def _held(self, broker: int) -> list[PartitionKey]:
        return [key for key, row in self.world.cluster.contents.partitions() if broker in row.copies]

    def _end_faults(self) -> None:
        self.world.client_faults.planned.clear()
        self.world.client_faults.within_refused.clear()
        self.world.interruptions.clear()
        self.world.note("others", "faults have ended")


def _settings(random: Random, root: str) -> Settings:
    rate = random.choice((300_000, 1_000_000, 3_000_000))
    trigger = {
        "cooldown_ms": 0, "log_dir_fill_max": FILL_MAX, "enter_ratio": 3.0, "exit_ratio": 2.0, "placement_reasons": [],
    }  # fmt: skip
    control = {
        "mode": "apply",
        "execution_deadline_ms": random.choice((300_000, 600_000)),
        "movements_in_flight_max": random.choice((1, 2, 50)),
        "movements_per_broker_max": random.choice((1, 2, 5)),
        "log_dir_throttle_bytes_per_sec": rate,
        "throttle_min_bytes_per_sec": rate,
        "settle_windows": 1,
    }
    return settings_of(root, trigger=trigger, planner={"disk_reserve": RESERVE}, control=control)
