"""An operator who cancels our moves with Kafka's own tool: control asks for them again, and not for ever."""

from collections.abc import Iterator

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.control.run import ControlLoop
from streaming.control.wiring import journal_of
from streaming.notify.occurrences import read_occurrences
from streaming.settings import Settings
from streaming.tables import TableReader
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster, approve_plan

TICKS_MAX = 60
KEY: PartitionKey = ("t", 0)


TWO_MOVES = (Movement("t", 0, (1,), (2,), 1e9), Movement("t", 1, (1,), (3,), 1e9))


class Operated:
    """An execution that moves t-0 and maybe t-1, which copy for long, and the control that carries it out."""

    def __init__(self, settings: Settings, movements: tuple[Movement, ...] = TWO_MOVES) -> None:
        self.cluster, self.journal, self._settings = NotedCluster(brokers=6), journal_of(settings), settings
        self.cluster.cluster.delete_topic("t")
        placed = {row.partition: row.old_replicas for row in movements}
        self.cluster.cluster.create_topic("t", placed, size_bytes=10**9)
        made = Plan("c", movements, SKEW, SKEW)
        self._execution_id = approve_plan(self.journal, made).execution.execution_id
        self._now_ms = NOON_MS
        self.restart()

    @property
    def execution(self) -> Execution:
        return self.journal.execution(self._execution_id)

    def restart(self) -> None:
        self._loop = ControlLoop(self.cluster, self._settings, now_ms=self._now_ms)

    def tick(self) -> None:
        self._now_ms += 1_000
        self._loop.tick(now_ms=self._now_ms)

    def is_moving(self, key: PartitionKey = KEY) -> bool:
        return key in self.cluster.describe().reassigning()

    def until_asked(self) -> bool:
        """Whether control asks for t-0 within a minute."""
        for _ in range(TICKS_MAX):
            if self.is_moving():
                return True
            self.tick()
        return self.is_moving()

    def cancelled(self) -> Iterator[Execution]:
        """The execution after each time that the operator has cancelled t-0 and control had time to ask again."""
        assert self.until_asked()
        while True:
            self.cluster.cancel(KEY)
            asked = self.until_asked()
            yield self.execution
            if not asked:
                return


def told(execution: Execution) -> list[str]:
    return [record.detail for record in execution.events if record.figures.movements_cancelled]


def test_after_two_cancels_nothing_more_is_begun_and_the_execution_pauses(settings: Settings) -> None:
    operated = Operated(settings)
    first, second = operated.cancelled()
    assert told(first) == ["somebody else has cancelled the move of t-0"]
    assert told(second) == told(first) * 2
    assert second.cancels == {0: 2}
    assert operated.is_moving(("t", 1)), "what nobody cancels is brought to its end"
    assert not second.paused
    operated.cluster.cluster.advance(3_600_000)
    for _ in range(3):
        operated.tick()
    paused = operated.execution
    assert paused.paused
    assert paused.last.detail.startswith("somebody else has cancelled the move of t-0 2 times: waits for a person")
    assert operated.cluster.throttle_rates() == {}
    reader, name, end_ms = TableReader(settings.storage.tables), settings.kafka.cluster_name, NOON_MS + 3_600_000
    read = read_occurrences(reader, name, since_ms=NOON_MS, now_ms=end_ms)
    (notified,) = (row for row in read if row.facts.get("event") == "paused")
    assert notified.detail == paused.last.detail


def test_a_control_that_starts_does_not_go_on_either_and_an_abort_ends_it(settings: Settings) -> None:
    operated = Operated(settings)
    *_, last = operated.cancelled()
    assert last.cancels == {0: 2}
    operated.cluster.cluster.advance(3_600_000)
    operated.restart()
    assert not operated.until_asked()
    assert operated.execution.paused
    operated.restart()
    assert not operated.until_asked()
    operated.journal.request_abort(operated.execution, "a person", now_ms=NOON_MS)
    operated.tick()
    assert operated.execution.last_event is Event.ABORTED


def test_one_cancel_before_a_restart_and_one_after_it_count_as_two(settings: Settings) -> None:
    operated = Operated(settings)
    assert next(operated.cancelled()).cancels == {0: 1}
    operated.restart()
    operated.tick()  # what this process has not asked for it does not know as cancelled
    operated.cluster.cancel(KEY)
    assert operated.until_asked()
    operated.cluster.cancel(KEY)
    assert not operated.until_asked()
    assert operated.execution.cancels == {0: 2}


def test_a_staged_move_that_asks_for_another_target_each_time_counts_its_cancels_too(settings: Settings) -> None:
    """Kafka gives the replicas of a cancelled reassignment in another order, from which the next stage follows."""
    control = settings.control.model_copy(update={"staged_moves": True})
    movement = Movement("t", 0, (1, 2, 3), (4, 5, 6), 3e9)
    operated = Operated(settings.model_copy(update={"control": control}), (movement,))
    targets = set()
    for execution in operated.cancelled():
        assert len(execution.events) < TICKS_MAX, "it is asked for again for ever"
        targets.add(operated.cluster.describe().partitions[KEY].replicas)
    assert len(targets) > 1
    assert operated.execution.cancels == {0: 2}
