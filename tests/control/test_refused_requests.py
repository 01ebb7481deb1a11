"""Elections and throttles that Kafka refuses to change: the rest goes on, and the end names them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import pytest
import structlog

from assignor_core.execution.accounting import TRIES_MAX
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import ThrottledReplicas
from streaming.control import throttle
from streaming.control.carrier import Carrier
from streaming.control.journal import ExecutionRecord
from streaming.control.run import ControlLoop
from streaming.control.sweeping import REFUSED_AGAIN_MS
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import ClusterRequestFailed, UsageProblem
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster, approve, approve_plan

TRIES = 4
U0: PartitionKey = ("u", 0)
LEADER = Movement("u", 0, (1, 2), (2, 1), 0.0)
LATER = Movement("t", 0, (1,), (3,), 5.0, wave=1)


class Stubborn(NotedCluster):
    """Partition u-0 on brokers 1 and 2 besides; whole requests are refused while the test says so."""

    def __init__(self) -> None:
        super().__init__(moves=True)
        self.cluster.create_topic("u", {0: (1, 2)})
        self.elections_asked = 0
        self.no_elections: str | None = None
        self.no_moves: str | None = None
        self.clear_refused = False
        self.clears = 0

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        if self.no_moves:
            raise ClusterRequestFailed("refused", kafka_error=self.no_moves)
        super().reassign(targets)

    def elect_preferred(self, partitions: Iterable[PartitionKey]) -> None:
        self.elections_asked += 1
        if self.no_elections:
            raise ClusterRequestFailed("refused", kafka_error=self.no_elections)
        super().elect_preferred(partitions)

    def clear_throttle(
        self,
        brokers: Collection[int],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,
    ) -> list[int]:
        self.clears += 1
        if self.clear_refused:
            raise ClusterRequestFailed("throttle of broker 1 can't be changed: PolicyViolationError")
        return super().clear_throttle(brokers, leaders, followers, untagged=untagged)


def approved(settings: Settings, *movements: Movement) -> ExecutionRecord:
    return approve_plan(journal_of(settings), Plan("c", movements, SKEW, SKEW))


def end_of(settings: Settings, cluster: NotedCluster, record: ExecutionRecord, ticks_max: int) -> tuple[str, str]:
    """The event that ends it, and its detail."""
    journal = journal_of(settings)
    carrier = Carrier(executor_of(cluster, journal, settings), journal)
    for look in range(ticks_max):
        carrier.tick(now_ms=NOON_MS + look)
        known = journal.execution(record.execution.execution_id)
        if known.end is not None:
            return known.end.event.value, known.end.detail
    raise AssertionError(f"no end after {ticks_max} ticks: {known.last}")


def test_an_election_that_is_refused_is_tried_again_and_then_the_next_wave_begins(settings: Settings) -> None:
    cluster = Stubborn()
    cluster.faults.elections_refused[U0] = "PreferredLeaderNotAvailableError"
    record = approved(settings, LEADER, LATER)
    end = end_of(settings, cluster, record, TRIES_MAX + 10)
    assert end == (
        "done",
        "2 movements made, 1 keeps its leader, as Kafka refuses the election: u-0 (PreferredLeaderNotAvailableError)",
    )
    assert cluster.elections_asked == TRIES_MAX
    assert cluster.describe().partitions["t", 0].replicas == (3,)
    written = [event.event.value for event in journal_of(settings).execution(record.execution.execution_id).events]
    assert written.count("electing") == 1, "an election that is tried again is no news"


def test_an_election_that_is_refused_for_a_moment_is_made(settings: Settings) -> None:
    cluster = Stubborn()
    cluster.faults.elections_refused[U0] = "PreferredLeaderNotAvailableError"
    record = approved(settings, LEADER)
    with pytest.raises(AssertionError, match="no end after 5 ticks"):
        end_of(settings, cluster, record, 5)
    cluster.faults.elections_refused.clear()
    assert end_of(settings, cluster, record, 5) == ("done", "every movement has been made")
    assert cluster.describe().partitions[U0].leader == 2


def test_a_refusal_of_one_election_keeps_no_other_from_being_made(settings: Settings) -> None:
    cluster = Stubborn()
    cluster.cluster.create_topic("v", {0: (1, 2)})
    cluster.faults.elections_refused[U0] = "UnknownTopicOrPartitionError"  # for good
    record = approved(settings, LEADER, Movement("v", 0, (1, 2), (2, 1), 0.0))
    event, detail = end_of(settings, cluster, record, 10)
    assert (event, detail.split(", ")[0]) == ("done", "2 movements made")
    assert cluster.describe().partitions["v", 0].leader == 2


def test_without_the_right_to_elect_a_plan_of_leaders_alone_is_not_done(settings: Settings) -> None:
    cluster = Stubborn()
    cluster.no_elections = "ClusterAuthorizationFailedError"
    event, detail = end_of(settings, cluster, approved(settings, LEADER), 10)
    assert (event, "u-0 (ClusterAuthorizationFailedError)" in detail) == ("aborted", True)
    assert cluster.elections_asked == 1


def test_without_the_right_to_move_a_plan_ends(settings: Settings) -> None:
    cluster = Stubborn()
    cluster.no_moves = "ClusterAuthorizationFailedError"
    event, detail = end_of(settings, cluster, approved(settings, LEADER, LATER), 10)
    assert (event, "2 skipped: t-0 (ClusterAuthorizationFailedError)" in detail) == ("aborted", True)
    assert cluster.throttle_rates() == {}


@pytest.mark.parametrize(
    ("seconds", "named_s"), [(range(25), (10, 20)), ((0, -3_600, -3_595, -3_590), (-3_600, -3_590))]
)
def test_a_throttle_that_kafka_refuses_to_set_is_named_in_the_journal_though_the_clock_is_set_back(
    settings: Settings, seconds: Sequence[int], named_s: tuple[int, ...]
) -> None:
    cluster, journal = NotedCluster(throttles_refused=True), journal_of(settings)
    record = approve(journal, 0)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    for second in seconds:
        with pytest.raises(ClusterRequestFailed):
            loop.tick(now_ms=NOON_MS + 1_000 * second)
    events = journal.execution(record.execution.execution_id).events[2:]
    assert [(event.event.value, event.at_ms - NOON_MS, event.detail) for event in events] == [
        ("progress", 1_000 * second, "a step failed and is tried again: throttle of topic t can't be changed")
        for second in named_s
    ]


def tick_until(loop: ControlLoop, settings: Settings, record: ExecutionRecord, *, ticks_max: int) -> int:
    """Ticks as control takes them until the execution has ended: a refusal is tried again at the next."""
    for tick in range(ticks_max):
        try:
            loop.tick(now_ms=NOON_MS + tick)
        except ClusterRequestFailed:
            continue
        if journal_of(settings).execution(record.execution.execution_id).ended:
            return tick
    raise AssertionError(f"no end after {ticks_max} ticks")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_throttle_that_kafka_refuses_to_remove_is_named_and_swept_later(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr(throttle, "CLEAR_TRIES_MAX", TRIES)
    cluster = Stubborn()
    first, second = approve(journal_of(settings), 0), approve(journal_of(settings), 1, now_ms=NOON_MS + 1)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    cluster.clear_refused = True
    tick_until(loop, settings, first, ticks_max=TRIES + 5)
    assert cluster.clears == TRIES
    end = journal_of(settings).execution(first.execution.execution_id)
    assert end.last.detail == (
        "every movement has been made; Kafka refuses to remove the throttle: throttle of broker 1 can't be changed: "
        "PolicyViolationError"
    )
    assert (end.owes, end.throttled_brokers) == (True, (1, 2))
    if restarted:
        loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    tick_until(loop, settings, second, ticks_max=TRIES + 5)
    cluster.clears = 0
    for tick in range(10):
        loop.tick(now_ms=NOON_MS + 1_000 + tick)  # goes on to decide
    assert cluster.clears == 2, "for each of both executions: a broker that refuses is left alone for a while"
    cluster.clear_refused = False
    loop.tick(now_ms=NOON_MS + 1_000 + REFUSED_AGAIN_MS)
    assert cluster.throttle_rates() == {}
    swept = journal_of(settings).execution(first.execution.execution_id)
    assert not swept.owes
    assert "throttle of brokers [1, 2] removed after the end" in [event.detail for event in swept.events]


def test_brokers_that_no_longer_have_a_rate_owe_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics alone refused: their lists have no effect without a rate."""
    monkeypatch.setattr(throttle, "CLEAR_TRIES_MAX", TRIES)
    cluster = Stubborn()
    record = approve(journal_of(settings), 0)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS)
    NotedCluster.clear_throttle(cluster, (1, 2), {}, {})
    cluster.clear_refused = True
    tick_until(loop, settings, record, ticks_max=TRIES + 5)
    end = journal_of(settings).execution(record.execution.execution_id)
    assert (end.owes, "Kafka refuses to remove the throttle" in end.last.detail) == (False, True)


def test_a_plan_that_is_approved_without_the_right_to_move_is_refused_once_with_the_reason(settings: Settings) -> None:
    cluster, journal = Stubborn(), journal_of(settings)
    first, second = approved(settings, LATER), approved(settings, LEADER)
    problem, before = "this user may not carry out plans: missing ALTER on cluster", cluster.describe()

    def check_rights() -> None:
        raise UsageProblem(problem)

    carrier = Carrier(executor_of(cluster, journal, settings), journal, check_rights=check_rights)
    with structlog.testing.capture_logs() as logged:
        for tick in range(4):
            assert carrier.tick(now_ms=NOON_MS + tick) is None
    for record in (first, second):
        end = journal.execution(record.execution.execution_id).end
        assert end is not None
        assert (end.event.value, end.detail) == ("refused", problem)
    assert [row["event"] for row in logged] == ["plan_refused"] * 2
    assert cluster.describe() == before


def test_brokers_whose_rates_kafka_does_not_show_owe_them(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "CLEAR_TRIES_MAX", TRIES)
    cluster = Stubborn()
    record = approve(journal_of(settings), 0)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS)
    cluster.clear_refused = True

    def refused(*_: object) -> dict[int, dict[str, int]]:
        raise ClusterRequestFailed("read settings of brokers: ClusterAuthorizationFailedError")

    monkeypatch.setattr(cluster, "throttle_rates", refused)
    journal_of(settings).request_abort(record.execution, "a person", now_ms=NOON_MS)
    tick_until(loop, settings, record, ticks_max=TRIES + 5)
    assert journal_of(settings).execution(record.execution.execution_id).throttled_brokers == (1, 2)
