"""Planted faults: control with one thing wrong, which the simulation has to catch."""

from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

from assignor_core import marker
from assignor_core.deciding import gates
from assignor_core.deciding.observation import GivenUp
from assignor_core.execution import accounting, progress, reconcile, room, within_brokers
from assignor_core.execution.events import ABORT_SEQUENCE, Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import Progress
from assignor_core.execution.reconcile import Done, Wait
from assignor_core.execution.within_brokers import RoomWithin
from assignor_core.live import LiveCluster
from assignor_core.live_plans import planning
from assignor_core.plan import Plan
from streaming.control import (
    absences,
    automatic,
    cluster_marker,
    cluster_snapshot,
    disk_room,
    executor,
    late_requests,
    log_dir_moves,
    replica_moves,
    run,
    sweeping,
    throttle,
    throttled_lists,
)
from streaming.control import planning as load_planning
from streaming.control.journal import Journal
from streaming.control.lease import Lease
from streaming.control.requests import Requests
from streaming.errors import TableUnavailable
from streaming.pipeline import sums
from streaming.views import identity
from tests.simulated_cluster import client, controller, log_dir_client, requests
from tests.simulated_cluster.state import Release, SimulatedPartition
from tests.simulation.folders import run_folder_story
from tests.simulation.relief import run_relief_story
from tests.simulation.samples import run_sample_story
from tests.simulation.story import Alterations, PlayedStory, run_story
from tests.simulation.within import run_within_story


@dataclass(frozen=True, slots=True)
class Planted:
    """One thing wrong; `invariant` is the one that it has to break: its number, or its whole name if no other may."""

    name: str
    invariant: str
    owner: Any
    attribute: str
    wrong: Callable[[Any], Any]
    """What stands in the place of what is right."""
    seed: int
    """One that catches it. A change of the product may make its story another: then it is one of the first ones."""
    also: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = ()
    """Further places that have to be wrong: owner, attribute, what stands there."""
    story: Callable[[int], PlayedStory] = run_story
    """The kind of story in which it shows."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Control is wrong while this lasts."""
        with ExitStack() as stack:
            for owner, attribute, wrong in ((self.owner, self.attribute, self.wrong), *self.also):
                stack.enter_context(mock.patch.object(owner, attribute, wrong(getattr(owner, attribute))))
            yield

    def caught_by(self, seed: int) -> bool:
        """Whether the story of this seed breaks the invariant; a story ends where its journal makes no sense."""
        with self.planted(), suppress(TableUnavailable):
            broken = {row.invariant for row in self.story(seed).broken}
            return self._is_among(broken)
        return False

    def _is_among(self, broken: Set[str]) -> bool:
        if self.invariant.isdigit():
            return any(name.startswith(f"{self.invariant} ") for name in broken)
        return broken == {self.invariant}


def _uncapped(limits: Any) -> Any:
    return lambda control: replace(
        limits(control),
        movements_in_flight_max=1_000,
        movements_per_topic_max=1_000,
        movements_per_broker_max=1_000,
    )


def _reversed_target(target: Any) -> Any:
    return lambda movement, cluster, limits: tuple(reversed(target(movement, cluster, limits)))


def _foreign_as_ours(progress: Any) -> Any:
    def wrong(*arguments: Any) -> Progress:
        seen: Progress = progress(*arguments)
        return Progress.MOVING if seen is Progress.FOREIGN else seen

    return wrong


def _cancels_all(_moving: Any) -> Any:
    return property(lambda look: sorted(look.live.reassigning()))


def _done_while_moving(next_step: Any) -> Any:
    def wrong(*arguments: Any, **named: Any) -> Any:
        step = next_step(*arguments, **named)
        return Done() if isinstance(step, Wait) else step

    return wrong


def _no_rack(_rack_count: Any) -> Any:
    return lambda _replicas, _racks: 0


def _no_waves(next_step: Any) -> Any:
    def wrong(plan: Plan, *arguments: Any, **named: Any) -> Any:
        return next_step(
            replace(plan, movements=tuple(replace(row, wave=0) for row in plan.movements)), *arguments, **named
        )

    return wrong


def _nothing_left(_clear: Any) -> Any:
    return lambda _self, _execution, _plan: throttle.Remains(())


def _no_bound(rooms: Any) -> Any:
    return lambda *arguments, **named: dict.fromkeys(rooms(*arguments, **named), 1e20)


def _fits_always(_lacking: Any) -> Any:
    return lambda *_, **__: None


def _same_cluster(_compare: Any) -> Any:
    return lambda _expected, _actual: None


def _nothing_late(_look: Any) -> Any:
    return lambda _self, _watched, _now_ms: None


def _only_the_clock(_check: Any) -> Any:
    return lambda lease: lease._check_clock()


def _unlimited_elections(limits: Any) -> Any:
    return lambda settings: replace(limits(settings), elections_at_once_max=1_000)


def _ends_at_once(complete: Any) -> Any:
    """The cluster doesn't wait for the replicas that are added."""

    def wrong(partition: SimulatedPartition, release: Release) -> None:
        before = partition.isr
        partition.isr = tuple(dict.fromkeys((*before, *partition.adding_replicas)))
        complete(partition, release)
        partition.isr = tuple(broker for broker in partition.isr if broker in before) or partition.isr

    return wrong


def _of_other_partitions(partition_loads: Any) -> Any:
    def wrong(*arguments: Any) -> Any:
        loads = partition_loads(*arguments)
        keys = sorted(loads.rates)
        return replace(loads, rates=dict(zip(keys, (loads.rates[key] for key in reversed(keys)), strict=True)))

    return wrong


def _with_hidden_topics(partition_loads: Any) -> Any:
    """Loads of topics that the plan does not know count as if it did."""
    return lambda tables, windows, _topics: partition_loads(tables, windows, {f"topic-{n}" for n in range(10)})


def _begun_twice_in_one_write(append: Any) -> Any:
    """The row that follows the second start is of another execution, so the newest row shows nothing wrong."""

    def wrong(self: Any, name: str, rows: list[dict[str, Any]], *transaction: Any) -> Any:
        if name == "execution" and rows[0]["event"] == Event.STARTED:
            other = {"execution_id": "gone", "event": Event.ABORT_REQUESTED.value, "sequence": ABORT_SEQUENCE}
            rows = [*rows, *rows, {**rows[0], **other}]
        return append(self, name, rows, *transaction)

    return wrong


def _copies_taken_for_ours(silent_max_ms: Any) -> Any:
    """As if only the id of the lease counted."""
    return lambda holder, marker: None if marker.lease_id == holder.lease_id else silent_max_ms(holder, marker)


def _without_excuse(offline: Any) -> Any:
    return lambda live, _lost=(): offline(live)


def _silent_for_idle(build_model: Any) -> Any:
    """A broker that sends nothing is taken for one that carries nothing, and so are its partitions."""
    return lambda *given, **named: replace(build_model(*given, **named), unreported=frozenset(), unknown=frozenset())


def _zeros(with_means: Any) -> Any:
    def wrong(keys: Any, rates: Any) -> Any:
        known = with_means(keys, rates)
        return {key: row if rates.get(key, (None,))[0] is not None else (0.0,) * len(row) for key, row in known.items()}

    return wrong


def _within_taken_for_made(state: Any) -> Any:
    def wrong(*arguments: Any) -> Progress:
        seen: Progress = state(*arguments)
        return Progress.DONE if seen is Progress.MOVING else seen

    return wrong


SLOW_COPIES: Alterations = {
    "control": {"throttle_bytes_per_sec": 1_000_000, "throttle_min_bytes_per_sec": 500_000, "throttle_adaptive": False}
}
"""They last until long after the faults, and nothing else changes their rates."""
PLANTED = (
    Planted("the lease is not asked", "5", Lease, "check", lambda _: lambda _self: None, 15),
    Planted("the throttle is not cleared at the end", "6", throttle.Throttle, "clear", _nothing_left, 3),
    Planted(
        "brokers that were down are not swept", "6", sweeping.Sweeper, "sweep", lambda _: lambda *_, **__: True, 197
    ),
    Planted("waves are no barriers", "1", replica_moves, "next_step", _no_waves, 5),
    Planted("the ceiling of disks is ignored by plans", "1", planning, "rooms", _no_bound, 23),
    Planted("the ceiling of disks is ignored before a submit", "1", room.RoomLeft, "lacking", _fits_always, 30),
    Planted("caps are not kept", "7", replica_moves, "limits", _uncapped, 3),
    Planted("replicas are asked for in another order", "4", reconcile, "_target", _reversed_target, 3),
    Planted("a foreign reassignment is taken for ours", "3", progress, "_progress", _foreign_as_ours, 45),
    Planted("an abort cancels everybody's", "3", cluster_snapshot.ExecutionSnapshot, "moving", _cancels_all, 3),
    Planted(
        "an abort cancels nothing", "6", cluster_snapshot.ExecutionSnapshot, "moving",
        lambda _: property(lambda _snapshot: []), 3,
    ),
    Planted("done is said while partitions move", "6", replica_moves, "next_step", _done_while_moving, 3),
    Planted("racks are ignored on the way", "2", progress, "rack_count", _no_rack, 17),
    Planted("a request without an answer ends control", "6", run, "RETRIED_ERRORS", lambda _: (), 2),
    Planted("elections are not capped", "7 elections at a time", replica_moves, "limits", _unlimited_elections, 18),
    Planted(
        "who sends is not counted", "7 caps of those who send", reconcile, "_busy_brokers",
        lambda _: lambda _live, receiving: tuple(sorted(receiving)), 30,
    ),
    Planted(
        "a move ends before its replicas are in sync", "2 replicas in sync", controller, "_complete", _ends_at_once, 17
    ),
    Planted(
        "rates that others remove are not set again", "7 what copies has its rate", throttle.RateReads,
        "lost", lambda _: lambda *_, **__: set(), 85, story=partial(run_story, altered=SLOW_COPIES),
    ),
    Planted(
        "what no list names is submitted", "7 what is asked for is named", throttled_lists.ThrottledLists,
        "unnamed", lambda _: lambda *_: [], 59,
    ),
    Planted(
        "a throttle is removed in one request, however long", "6", client, "pieces",
        lambda _: lambda *sides: [sides], 39,
    ),
    Planted("rates of others are changed", "10", client, "is_foreign", lambda _: lambda _rate: False, 30),
    Planted(
        "what somebody else has set meanwhile is removed at the end", "10", Execution, "tags_rates",
        lambda _: property(lambda _self: False), 30,
    ),
    Planted(
        "rates of others within brokers are changed", "10", log_dir_client, "is_foreign",
        lambda _: lambda _rate: False, 8, story=run_within_story,
    ),
    Planted(
        "what the tables no longer account for is not removed", "6 no throttle is left", sweeping.StrayRates, "remove",
        lambda _: lambda *_: None, 71,
    ),
    Planted("a refusal that passes counts for good", "6", accounting, "TRIES_MAX", lambda _: 1, 5),
    Planted(
        "the cluster's id is not compared", "4", requests, "cluster_mismatch", _same_cluster, 8,
        also=((executor, "another_cluster", _same_cluster),),
    ),
    Planted(
        "topics' ids are not compared", "4", cluster_snapshot, "topics_made_again", lambda _: lambda _ids, _live: (), 8
    ),
    Planted("the lease's row is not read again", "5", Lease, "check", _only_the_clock, 15),
    Planted(
        "mode apply plans at once after each execution that it gives up", "6", GivenUp, "reason",
        lambda _: lambda _self, _now_ms: None, 5346,
    ),
    Planted("an execution is begun twice in one write", "4", Journal, "_append", _begun_twice_in_one_write, 3),
    Planted("the first start binds the tables", "6", identity, "planned_cluster_id", lambda _: lambda *_: None, 3348),
    Planted(
        "loads of hidden topics count", "8 no broker is made worse than the plan said", load_planning,
        "partition_loads", _with_hidden_topics, 5777,
    ),
    Planted("late requests are not checked for", "6", late_requests.LateRequests, "_check", _nothing_late, 83),
    Planted(
        "plans rest on the load of other partitions", "8 no broker is made worse than the plan said", load_planning,
        "partition_loads", _of_other_partitions, 94,
    ),
    Planted(
        "automatic mode trusts every plan", "8 automatic mode stops", automatic.AutomaticPlans, "_distrust",
        lambda _: lambda _self, _now_ms: None, 5, story=partial(run_story, unfaithful=True),
    ),
    Planted(
        "a copy of the tables is taken for ours", "5 one folder at a time", marker.Holder, "silent_max_ms",
        _copies_taken_for_ours, 17, story=run_folder_story,
    ),
    Planted(
        "an operator's cancel is overruled for ever", "9", Requests, "cancelled_by_others", lambda _: lambda *_: [], 154
    ),
    Planted(
        "markers of others are not asked", "5 one folder at a time", cluster_marker.ClusterMarker, "hold",
        lambda _: lambda _self: True, 4, story=run_folder_story,
    ),
    Planted(
        "a slow turn does not read the markers again", "5 one folder at a time", cluster_marker.ClusterMarker,
        "_before_change", lambda _: lambda _self: None, 795, story=run_folder_story,
    ),
    Planted(
        "a broker that is back is emptied all the same", "4 a broker that is back is not emptied", cluster_snapshot,
        "replaced_broker_back", lambda _: lambda *_: None, 2, story=run_relief_story,
    ),
    Planted(
        "relief waits for what failed brokers held", "8 lost replicas are re-created", gates, "offline",
        _without_excuse, 6, also=((reconcile, "offline", _without_excuse),), story=run_relief_story,
    ),
    Planted(
        "a silent broker counts for an idle one", "8", load_planning, "build_model", _silent_for_idle, 4,
        also=((planning, "_with_means", _zeros),), story=run_sample_story,
    ),
    Planted(
        "an execution waits for failed brokers", "8 lost replicas are re-created", absences.Absences, "in_vain",
        lambda _: lambda *_, **__: None, 2353, story=run_relief_story,
    ),
    Planted(
        "relief waits for what only a failed broker can bring on", "8 lost replicas are re-created", LiveCluster,
        "waiting_for_brokers", lambda _: lambda _self: frozenset(), 9042, story=run_relief_story,
    ),
    Planted(
        "copies go on into a log dir that others fill", "1", disk_room.DiskRoom,
        "overflowing", lambda _: lambda *_: [], 581, story=run_relief_story,
    ),
    Planted(
        "room within a broker is ignored", "1", RoomWithin, "lacking", _fits_always, 20, story=run_within_story
    ),
    Planted(
        "rates within brokers are not removed", "6", throttle.LogDirThrottle, "clear",
        lambda _: lambda _self, _execution: throttle.Remains(()), 1, story=run_within_story,
    ),
    Planted(
        "movements within brokers are not capped", "7", log_dir_moves, "limits", _uncapped, 1,
        story=run_within_story,
    ),
    Planted(
        "movements within brokers are asked for without a rate", "7 nothing copies unthrottled",
        throttle.LogDirThrottle, "keep", lambda _: lambda *_, **__: None, 1, story=run_within_story,
    ),
    Planted(
        "what copies within a broker is taken for made", "6", within_brokers, "_state", _within_taken_for_made, 1,
        story=run_within_story,
    ),
    Planted(
        "an end gives up no copies within brokers", "6", log_dir_moves, "cancellations",
        lambda _: lambda *_: {}, 6, also=((late_requests, "cancellations", lambda _: lambda *_: {}),),
        story=run_within_story,
    ),
    Planted(
        "the weight of a sample has no bound", "8", sums, "WEIGHT_WINDOWS", lambda _: 1_000_000, 1,
        story=run_sample_story,
    ),
)  # fmt: skip

AWAITING_SEEDS = frozenset(
    {
        "mode apply plans at once after each execution that it gives up",
        "an execution waits for failed brokers",
    }
)
"""Faults whose seeds tell another story since the planner has another search (2026-11-29). New seeds are to be sought
for them: `python -m tests.simulation.run --planted` tries.
"""
