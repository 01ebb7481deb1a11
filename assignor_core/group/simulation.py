"""Runs a scenario: one coordinator, processes with their members, a network with delays, and everything that happens.

Owns who is told what and when. The rules are the coordinator's and the members'; the counting is the ledger's.

Heartbeats that would be answered NONE are not simulated: they change nothing but the time a member was last heard of,
which is caught up when it falls silent. So a group that is stable for an hour costs nothing.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assignor_core.assignors import GroupAssignment, GroupSpec, assign
from assignor_core.group.accounts import Accounts
from assignor_core.group.coordinator import Coordinator
from assignor_core.group.event_queue import EventQueue
from assignor_core.group.figures import Ledger, Rebalance, Totals
from assignor_core.group.messages import (
    Answer,
    HeartbeatAnswer,
    JoinAnswer,
    Outcome,
    Protocols,
    Removal,
    Request,
    StateChange,
    SyncAnswer,
)
from assignor_core.group.process import Process
from assignor_core.group.scenario import (
    Crash,
    GrowTopic,
    Happening,
    Pause,
    Scenario,
    Stall,
    Start,
    Stop,
    Subscribe,
    matches,
)
from assignor_core.group.states import ErrorCode, GroupState, MemberState
from assignor_core.group.trace import Entry, What

SETTLE_MAX_MS = 48 * 3_600_000
"""A run that has not come to rest so long after its last event is ended, and says so."""

JOINING = frozenset({MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE})
AGAIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
PUT_OUT = AGAIN | {ErrorCode.FENCED_INSTANCE_ID}


@dataclass(frozen=True, slots=True)
class Run:
    """What a scenario led to. `settled` is False if it was ended before it came to rest."""

    scenario: Scenario
    trace: Sequence[Entry]
    rebalances: Sequence[Rebalance]
    totals: Totals
    end_ms: int
    generation_id: int
    settled: bool


def simulate(scenario: Scenario) -> Run:
    """Let a scenario happen. The same scenario gives the same Run, to the byte.

    >>> from assignor_core.group.member import ConsumerConfig
    >>> from assignor_core.group.scenario import ProcessSpec, TopicSpec
    >>> specs = {name: ProcessSpec(ConsumerConfig(("cooperative-sticky",)), ("t",)) for name in ("a", "b")}
    >>> run = simulate(Scenario("b joins", {"t": TopicSpec(4)}, specs, ((0, Start("a")), (60_000, Start("b")))))
    >>> [(rebalance.rounds, rebalance.revoked, rebalance.moved) for rebalance in run.rebalances]
    [(1, 0, 0), (2, 2, 2)]
    """
    return _Simulation(scenario).run()


class _Simulation:
    """The parts of one run."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._queue = EventQueue()
        self._draws = random.Random(scenario.seed)  # noqa: S311 - no secret
        self._group = Coordinator(initial_rebalance_delay_ms=scenario.initial_rebalance_delay_ms)
        self._specs = dict(scenario.processes)
        self._partitions = {topic: spec.partitions for topic, spec in scenario.topics.items() if spec.partitions}
        self._by_name: dict[str, Process] = {}
        self._by_client: dict[str, Process] = {}
        self._unsettled: set[str] = set()
        self._accounts = Accounts(Ledger({topic: spec.records_per_sec for topic, spec in scenario.topics.items()}))
        self._happens: dict[type, Callable[..., None]] = {
            Start: self._start, Stop: self._stop, Crash: self._crash, Pause: self._pause, Stall: self._stall,
            Subscribe: self._subscribe, GrowTopic: self._grow_topic,
        }  # fmt: skip

    def run(self) -> Run:
        scenario = self._scenario
        for topic, partitions in self._partitions.items():
            self._exist(topic, 0, partitions)
        for at_ms, event in scenario.events:
            self._queue.add(at_ms, self._happen, event)
        last_ms = max(scenario.events[-1][0], scenario.end_ms)
        settled = self._queue.run_until(last_ms + SETTLE_MAX_MS)
        end_ms = max(self._accounts.trace[-1].at_ms, scenario.end_ms)
        totals = self._accounts.ledger.totals(end_ms)
        return Run(
            scenario,
            self._accounts.trace,
            self._accounts.ledger.rebalances,
            totals,
            end_ms,
            self._group.generation_id,
            settled,
        )

    # What the scenario says

    def _happen(self, event: Happening) -> None:
        self._happens[type(event)](event)

    def _start(self, event: Start) -> None:
        old = self._by_name.get(event.name)
        if old is not None and old.alive:
            return
        if event.spec is not None:
            self._specs[event.name] = event.spec
        number = old.number + 1 if old else 1
        process = Process(event.name, number, self._specs[event.name], dict(self._partitions), self._queue.now_ms)
        self._by_name[event.name] = self._by_client[process.client] = process
        self._note(What.STARTED, event.name)
        self._join(process, "starts")

    def _stop(self, event: Stop) -> None:
        process = self._running(event.name)
        if process is None:
            return
        self._note(What.STOPPED, event.name)
        leaving = process.member.leaving("leaves")
        self._end(process)
        if leaving is not None:
            self._ask(self._group.leave, leaving)

    def _crash(self, event: Crash) -> None:
        process = self._running(event.name)
        if process is not None:
            self._note(What.CRASHED, event.name)
            self._end(process)

    def _pause(self, event: Pause) -> None:
        process = self._running(event.name)
        until_ms = self._queue.now_ms + event.pause_ms
        if process is None or until_ms <= process.paused_until_ms:
            return
        self._note(What.PAUSED, event.name)
        self._fall_silent(process)
        process.paused_until_ms = until_ms
        self._accounts.reads_no_more(self._queue.now_ms, process)
        self._queue.add(process.paused_until_ms, self._resume, process)

    def _resume(self, process: Process) -> None:
        if not process.alive or process.paused_until_ms > self._queue.now_ms:
            return
        self._note(What.RESUMED, process.name)
        self._accounts.resumes(self._queue.now_ms, process)
        self._beat_if_it_matters(process)

    def _stall(self, event: Stall) -> None:
        """Past max.poll.interval.ms a dynamic member leaves by itself; a static one falls silent."""
        process = self._running(event.name)
        if process is None:
            return
        process.busy_until_ms = max(process.busy_until_ms, self._queue.now_ms + event.stall_ms)
        limit_ms = process.spec.config.max_poll_interval_ms
        if event.stall_ms > limit_ms:
            self._queue.add(self._queue.now_ms + limit_ms, self._poll_too_late, process)
            self._queue.add(process.busy_until_ms, self._poll_again, process)

    def _poll_too_late(self, process: Process) -> None:
        if not process.alive or process.busy_until_ms <= self._queue.now_ms:
            return
        leaving = process.member.leaving("did not poll in time")
        if leaving is not None:
            self._ask(self._group.leave, leaving)
        else:
            self._fall_silent(process)
            process.silent = True

    def _poll_again(self, process: Process) -> None:
        if process.alive and process.busy_until_ms <= self._queue.now_ms:
            process.silent = False
            self._beat_if_it_matters(process)

    def _subscribe(self, event: Subscribe) -> None:
        process = self._running(event.name)
        if process is not None and process.subscribe(event.topics):
            self._rejoin(process, "subscribes to other topics")

    def _grow_topic(self, event: GrowTopic) -> None:
        before = self._partitions.get(event.topic, 0)
        if event.partitions <= before:
            return
        self._partitions[event.topic] = event.partitions
        self._note(What.TOPIC, event.topic, f"{before} to {event.partitions} partitions")
        self._exist(event.topic, before, event.partitions)
        for process in self._by_name.values():
            if process.alive:
                self._queue.add(process.next_refresh_ms(self._queue.now_ms), self._refresh, process)

    def _refresh(self, process: Process) -> None:
        """A consumer looks at its metadata; it may have to ask for a rebalance."""
        if process.alive and process.paused_until_ms > self._queue.now_ms:
            self._queue.add(process.next_refresh_ms(process.paused_until_ms), self._refresh, process)
        elif process.alive:
            reason = process.see(self._partitions)
            if reason:
                self._rejoin(process, reason)

    # What processes do

    def _rejoin(self, process: Process, reason: str) -> None:
        """Join at the next poll, once; a member that is joining anyway takes the news along or joins after it."""
        if process.member.state in JOINING:
            process.rejoin_reason = process.rejoin_reason or reason
        elif not process.rejoin_planned and process.member.state is not MemberState.FAILED:
            process.rejoin_planned = True
            self._unsettled.add(process.client)
            wait_ms = self._up_to(process.spec.poll_interval_ms)
            self._queue.add(self._queue.now_ms + wait_ms, self._poll, process, reason)

    def _poll(self, process: Process, reason: str) -> None:
        """The consumer polls and finds that it has to join: it gives up what it must, and joins."""
        if not process.alive:
            return
        if process.polls_at_ms(self._queue.now_ms) > self._queue.now_ms:
            self._queue.add(process.polls_at_ms(self._queue.now_ms), self._poll, process, reason)
            return
        if process.member.state not in (MemberState.STABLE, MemberState.UNJOINED):
            process.rejoin_planned = False
            return
        given_up = process.member.give_up_before_joining()
        self._accounts.gives_up(self._queue.now_ms, process, What.REVOKED, given_up)
        wait_ms = process.spec.revoke_ms if given_up else 0
        if wait_ms:
            self._queue.add(self._queue.now_ms + wait_ms, self._join, process, reason)
        else:
            self._join(process, reason)

    def _join(self, process: Process, reason: str) -> None:
        if process.alive and process.polls_at_ms(self._queue.now_ms) > self._queue.now_ms:
            self._queue.add(process.polls_at_ms(self._queue.now_ms), self._join, process, reason)
            return
        process.rejoin_planned, process.rejoin_reason = False, ""
        if not process.alive or process.member.state not in (MemberState.STABLE, MemberState.UNJOINED):
            return
        self._unsettled.add(process.client)
        self._note(What.JOINS, process.name, reason)
        process.join_reason = reason
        self._ask(self._group.join, process.member.join(f"{process.name} {reason}"))

    def _deliver(self, process: Process, answer: Answer) -> None:
        """An answer arrives; a process that is away takes it when it is back."""
        if not process.alive:
            return
        at_ms = process.hears_at_ms(self._queue.now_ms, polling=not isinstance(answer, HeartbeatAnswer))
        if at_ms > self._queue.now_ms:
            self._queue.add(at_ms, self._deliver, process, answer)
        elif isinstance(answer, JoinAnswer):
            self._take_join_answer(process, answer)
        elif isinstance(answer, SyncAnswer):
            self._take_sync_answer(process, answer)
        else:
            self._take_heartbeat_answer(process, answer)
        self._maybe_end_rebalance()

    def _take_join_answer(self, process: Process, answer: JoinAnswer) -> None:
        if process.member.state is not MemberState.PREPARING_REBALANCE:
            return
        if answer.subscriptions is not None:
            topics = {topic for spec in answer.subscriptions.values() for topic in spec.topics}
            process.leads_with(topics, self._partitions)
        sync = process.member.joined(answer, lambda strategy, protocols: self._assign(process, strategy, protocols))
        if sync is not None:
            process.heartbeats_from(self._queue.now_ms, self._up_to(process.spec.heartbeat_late_max_ms))
            process.is_put_out = self._beat_answer(process) in PUT_OUT
            self._ask(self._group.sync, sync)
        else:
            self._join_after_refusal(process, answer.error)

    def _take_sync_answer(self, process: Process, answer: SyncAnswer) -> None:
        if process.member.state is not MemberState.COMPLETING_REBALANCE:
            return
        synced = process.member.synced(answer)
        if answer.error is not ErrorCode.NONE:
            self._join_after_refusal(process, answer.error)
            return
        self._accounts.gives_up(self._queue.now_ms, process, What.REVOKED, synced.revoked)
        self._accounts.takes_over(self._queue.now_ms, process, synced.assigned)
        self._unsettled.discard(process.client)
        reason, process.rejoin_reason = process.rejoin_reason, ""
        if synced.revoked:
            self._unsettled.add(process.client)
            process.rejoin_planned = True
            self._queue.add(self._queue.now_ms + process.spec.revoke_ms, self._join, process, "hands partitions over")
        elif reason:
            self._rejoin(process, reason)
        self._beat_if_it_matters(process)

    def _take_heartbeat_answer(self, process: Process, answer: HeartbeatAnswer) -> None:
        if process.member.state is not MemberState.STABLE:
            return
        if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin(process, "follows a rebalance")
        elif answer.error in AGAIN:
            # Partitions are lost at the next poll, which may be late; until then the process goes on reading.
            self._rejoin_as_new(process, answer.error)
        elif answer.error is not ErrorCode.NONE:
            self._fail(process, answer.error)

    def _rejoin_as_new(self, process: Process, error: ErrorCode) -> None:
        if process.polls_at_ms(self._queue.now_ms) > self._queue.now_ms:
            self._queue.add(process.polls_at_ms(self._queue.now_ms), self._rejoin_as_new, process, error)
        elif process.alive and process.member.state is MemberState.STABLE:
            self._accounts.gives_up(self._queue.now_ms, process, What.LOST, process.member.put_out(error))
            self._rejoin(process, "was put out")

    def _join_after_refusal(self, process: Process, error: ErrorCode) -> None:
        if process.member.state is MemberState.FAILED:
            self._fail(process, error)
            return
        if error in AGAIN:
            self._accounts.gives_up(self._queue.now_ms, process, What.LOST, process.member.put_out(error))
        self._join(process, process.join_reason if error is ErrorCode.MEMBER_ID_REQUIRED else f"after {error.value}")

    def _fail(self, process: Process, error: ErrorCode) -> None:
        """The consumer throws; the process reads nothing from now on."""
        self._accounts.gives_up(self._queue.now_ms, process, What.LOST, process.member.failed())
        self._note(What.FAILED, process.name, error.value)
        self._accounts.ledger.failed += 1
        self._unsettled.discard(process.client)

    def _end(self, process: Process) -> None:
        self._fall_silent(process)
        self._accounts.ends(self._queue.now_ms, process)
        process.alive = False
        process.member.close()
        self._unsettled.discard(process.client)
        self._maybe_end_rebalance()

    # What reaches the coordinator

    def _ask(self, step: Callable[[int, Any], Outcome], request: Request) -> None:
        """Send a request to the coordinator; `step` is what it does when the request arrives."""
        self._send(self._reach, step, request)

    def _reach(self, step: Callable[[int, Any], Outcome], request: Request) -> None:
        self._follow(step(self._queue.now_ms, request))

    def _follow(self, outcome: Outcome) -> None:
        """Deliver what a step of the coordinator led to."""
        for change in outcome.changes:
            # Who was removed stands in the removal: the coordinator knows members by id, people by name.
            names = [self._by_client[gone.client].name for gone in outcome.removals if gone.reason == change.reason]
            self._group_changed(change, " ".join([*names[:1], change.reason]))
        for removal in outcome.removals:
            self._member_removed(removal)
        for timer in outcome.timers:
            self._queue.add(timer.at_ms, lambda timer=timer: self._follow(self._group.timer_elapsed(timer)))
        for client, answer in outcome.answers:
            process = self._by_client[client]
            if process.alive:
                self._send(self._deliver, process, answer)
            if not process.alive or process.silent or process.paused_until_ms > self._queue.now_ms:
                known_id = answer.member_id if isinstance(answer, JoinAnswer) else process.member.member_id
                self._await_session_end(process, known_id)
        if outcome.changes:
            self._maybe_end_rebalance()

    def _group_changed(self, change: StateChange, cause: str) -> None:
        self._accounts.group_moves(self._queue.now_ms, change, cause)
        if change.state is GroupState.PREPARING_REBALANCE:
            for member in self._group.members:
                self._beat_if_it_matters(self._by_client[member.client])

    def _member_removed(self, removal: Removal) -> None:
        process = self._by_client[removal.client]
        process.is_put_out = True
        runs = process.alive and process.paused_until_ms <= self._queue.now_ms
        self._accounts.put_out(self._queue.now_ms, process, removal.reason, runs=runs)
        if runs:
            self._beat_if_it_matters(process)

    def _maybe_end_rebalance(self) -> None:
        at_rest = self._group.state in (GroupState.STABLE, GroupState.EMPTY)
        if at_rest and self._accounts.ledger.rebalancing and not self._unsettled:
            self._accounts.ledger.rebalance_ends(self._queue.now_ms, self._group.generation_id)

    # Heartbeats and sessions

    def _beat_if_it_matters(self, process: Process) -> None:
        """Let the process send its next heartbeat if it would be told something."""
        member = process.member
        if not process.alive or process.silent or process.beat_planned or member.state is not MemberState.STABLE:
            return
        if self._beat_answer(process) is not ErrorCode.NONE:
            process.beat_planned = True
            self._queue.add(process.next_beat_ms(self._queue.now_ms), self._beat, process)

    def _beat_answer(self, process: Process) -> ErrorCode:
        """What a heartbeat of the process would be answered if it arrived now."""
        member = process.member
        return self._group.heartbeat_answer(member.member_id, member.config.group_instance_id, member.generation_id)

    def _beat(self, process: Process) -> None:
        process.beat_planned = False
        if not process.alive or process.silent or process.member.state is not MemberState.STABLE:
            return
        if process.paused_until_ms <= self._queue.now_ms:
            self._ask(self._group.heartbeat, process.member.heartbeat())

    def _fall_silent(self, process: Process) -> None:
        """Its last heartbeat was the one before now; its session ends if it does not come back."""
        if process.member.state in (MemberState.STABLE, MemberState.COMPLETING_REBALANCE):
            self._group.heard(process.last_beat_ms(self._queue.now_ms), process.member.member_id)
        self._await_session_end(process, process.member.member_id)

    def _await_session_end(self, process: Process, member_id: str) -> None:
        """While an answer is owed the session does not run; the answer starts it."""
        end_ms = self._group.session_end_ms(member_id)
        if end_ms is not None:
            self._queue.add(end_ms, self._session_end, process, member_id)

    def _session_end(self, process: Process, member_id: str) -> None:
        """A process that is back by now has been heard of since."""
        if process.alive and not process.silent and process.paused_until_ms <= self._queue.now_ms:
            return
        self._follow(self._group.session_elapsed(self._queue.now_ms, member_id))
        self._await_session_end(process, member_id)

    # Partitions

    def _assign(self, process: Process, strategy: str, protocols: Protocols) -> GroupAssignment:
        """The leader assigns what it knows of."""
        return assign(strategy, GroupSpec(process.known_partitions, protocols))

    def _exist(self, topic: str, before: int, partitions: int) -> None:
        if matches(self._scenario.patterns(), topic):
            self._accounts.ledger.exists(self._queue.now_ms, [(topic, number) for number in range(before, partitions)])

    # Small things

    def _running(self, name: str) -> Process | None:
        process = self._by_name.get(name)
        return process if process is not None and process.alive else None

    def _send(self, call: Callable[..., None], *arguments: object) -> None:
        """Over the network: a message takes its time."""
        delay_ms = self._scenario.network_ms + self._up_to(self._scenario.network_jitter_ms)
        self._queue.add(self._queue.now_ms + delay_ms, call, *arguments)

    def _up_to(self, most_ms: int) -> int:
        """A whole number from 0 to `most_ms`, all as likely; `randint` would take five times as long."""
        return int(self._draws.random() * (most_ms + 1)) if most_ms else 0

    def _note(self, what: What, who: str, detail: str = "") -> None:
        self._accounts.note(self._queue.now_ms, what, who, detail)
