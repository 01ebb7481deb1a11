"""A log dir above its fill level is a reason for a plan of its own: when it is made, and what it yields to."""

from dataclasses import dataclass, field, replace

import pytest

from assignor_core.deciding.gates import DELETED_AFTER_MS
from assignor_core.deciding.needs import full_in_words, full_log_dirs
from assignor_core.deciding.observation import Observation, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, Mode
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import Decision, step
from assignor_core.disks import FutureReplica, LogDirDescription, LogDirs
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import LiveCluster, LivePartition, Reassignment
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.log_dirs.planning import FillPolicy, WithinBroker, disks_of_brokers, propose_within, relieve
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource
from tests.core.judging import NothingKnown
from tests.core.states import remembered

NOW_MS = 6_000_000
FULL = LogDirDescription("/a", 1_000, 50, {("t", 0): 200, ("t", 1): 300, ("_x", 0): 400})
WIDE = LogDirDescription("/b", 1_000, 950)
LOG_DIRS: LogDirs = {1: (FULL, WIDE), 2: (LogDirDescription("/a", 1_000, 900), WIDE)}
LIVE = LiveCluster(
    "c",
    {1: None, 2: None},
    {key: LivePartition((1, 2), 1, (1, 2)) for key in (("t", 0), ("t", 1), ("_x", 0))},
)
POLICY = DecisionPolicy(fill=FillPolicy())
FRESH = TriggerState()


@dataclass
class Given(NothingKnown):
    """Evidence: plans for log dirs are made, others are none."""

    log_dirs: LogDirs = field(default_factory=lambda: LOG_DIRS)
    requests: list[PlanRequest] = field(default_factory=list)

    def propose(self, request: PlanRequest) -> ProposedPlan:
        self.requests.append(request)
        policy = request.fill
        if policy is None:
            raise NothingToPlanOn("no plan of another kind is asked for here")
        brokers = {broker for broker, _ in full_log_dirs(self.log_dirs, policy.fill_max)}
        return propose_within(LIVE, self.log_dirs, brokers, lambda disks: relieve(disks, policy), cluster_name="c")


def decided(
    policy: DecisionPolicy = POLICY,
    *,
    log_dirs: LogDirs = LOG_DIRS,
    live: LiveCluster = LIVE,
    state: TriggerState = FRESH,
    changed_ms: int = 0,
) -> tuple[TriggerState, Decision]:
    loads: dict[str, dict[int, float]] = {Resource.BYTES_IN: {1: 1e6, 2: 1e6}}
    window = ClosedWindow(NOW_MS - 60_000, NOW_MS, frozenset(LIVE.broker_racks), loads)
    observation = Observation.of(
        live, (window,), policy, drained=frozenset(), changed_ms=changed_ms, now_ms=NOW_MS, log_dirs=log_dirs
    )
    return step(state, observation, policy, Given(log_dirs))


def test_a_full_log_dir_makes_a_plan_within_its_broker() -> None:
    state, decision = decided()
    evaluation, proposed = decision.evaluation, decision.proposed
    assert (evaluation.verdict, evaluation.reason) == (Verdict.PLAN, Reason.LOG_DIR_FULL)
    assert evaluation.detail == "log dirs above 85%: /a of broker 1 (95%)"
    assert proposed is not None
    assert [(row.broker, row.new_log_dir) for row in proposed.plan.log_dir_movements] == [(1, "/b")]
    assert proposed.plan.diagnosis == ("broker 1: /a 95% -> 75%, /b 5% -> 25%",)
    assert decision.may_act
    assert state.cooldown_end_ms > NOW_MS


def test_below_the_level_or_without_the_setting_nothing_is_planned() -> None:
    policies = (replace(POLICY, fill=None), replace(POLICY, fill=FillPolicy(fill_max=0.96)))
    for policy in policies:
        _, decision = decided(policy)
        assert decision.evaluation.reason is not Reason.LOG_DIR_FULL
        assert "log dirs" not in decision.evaluation.detail


def test_what_holds_plans_back_holds_this_one_back() -> None:
    reassigning = replace(LIVE, partitions={("t", 0): LivePartition((1, 2), 1, (1, 2), adding_replicas=(2,))})
    _, decision = decided(live=reassigning)
    assert decision.proposed is None
    _, decision = decided(state=TriggerState(cooldown_end_ms=NOW_MS + 1))
    assert decision.proposed is None
    _, decision = decided(changed_ms=NOW_MS - DELETED_AFTER_MS + 1)
    assert decision.proposed is None, "what has left may not be deleted yet"
    assert decided(changed_ms=NOW_MS - DELETED_AFTER_MS)[1].proposed is not None
    _, decision = decided(replace(POLICY, mode=Mode.OBSERVE))
    assert decision.proposed is None
    assert decision.evaluation.detail.endswith("; mode is observe; log dirs above 85%: /a of broker 1 (95%)")


def test_under_replicated_partitions_elsewhere_do_not_hold_it_back() -> None:
    behind = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): LivePartition((1, 2), 1, (1,))})
    lasting = remembered(lagging_since_ms=(("t", 1, NOW_MS - 600_000),), evaluated_ms=NOW_MS - 60_000)
    _, decision = decided(replace(POLICY, mode=Mode.APPLY), live=behind, state=lasting)
    assert decision.evaluation.reason is Reason.LOG_DIR_FULL
    assert decision.may_act


def test_where_nothing_has_room_the_decision_names_the_log_dir() -> None:
    narrow = {1: (FULL, LogDirDescription("/b", 1_000, 200))}
    state, decision = decided(log_dirs=narrow)
    assert decision.proposed is None
    assert "; log dirs above 85%: /a of broker 1 (95%); " in decision.evaluation.detail
    assert "log dir /a of broker 1 keeps 150 bytes above 80%" in decision.evaluation.detail
    assert state.cooldown_end_ms == 0


@pytest.mark.parametrize("rows", [(FULL,), (replace(FULL, usable_bytes=None), WIDE)], ids=["one log dir", "silent"])
def test_brokers_that_can_not_relieve_themselves_are_left_alone(rows: tuple[LogDirDescription, ...]) -> None:
    assert full_log_dirs({1: rows}, 0.85) == []


def test_what_others_move_and_excluded_topics_stay() -> None:
    live = replace(LIVE, listed={("t", 0): Reassignment((1, 2), (2,))})
    moving = replace(WIDE, future_replicas={("t", 1): FutureReplica(5)})
    (disks,) = disks_of_brokers(live, {1: (FULL, moving)}, {1}, excluded_topics={"_x"})
    assert set(disks.fixed) == {("t", 0), ("t", 1), ("_x", 0)}
    behind = replace(LIVE, partitions={("t", 0): LivePartition((2, 1), 2, (2,))})
    elsewhere = {2: (LogDirDescription("/a", 1_000, 500, {("t", 0): 300}),)}
    (disks,) = disks_of_brokers(behind, {1: (FULL, WIDE), **elsewhere}, {1})
    assert (disks.full_bytes, set(disks.fixed)) == ({("t", 0): 300}, {("t", 0)})


def test_a_broker_that_shows_no_log_dirs_has_no_plan() -> None:
    with pytest.raises(NothingToPlanOn, match="broker 3 did not show its log dirs"):
        propose_within(LIVE, LOG_DIRS, {3}, lambda _disks: WithinBroker(), cluster_name="c")


def test_the_fullest_log_dirs_are_named_first_and_five_at_most() -> None:
    third, last = LogDirDescription("/c", 1_000, 100), LogDirDescription("/z", 1_000, 100)
    log_dirs = {1: (last, third, WIDE), 2: (LogDirDescription("/y", 1_000, 50), WIDE), 3: (third, WIDE)}
    full = [(broker, row.path) for broker, row in full_log_dirs(log_dirs, 0.85)]
    assert full == [(2, "/y"), (1, "/c"), (1, "/z"), (3, "/c")]
    many = {1: tuple(LogDirDescription(f"/{number}", 1_000, 100) for number in range(6))}
    assert full_in_words(many, FillPolicy()) == (
        "log dirs above 85%: /0 of broker 1 (90%), /1 of broker 1 (90%), /2 of broker 1 (90%), /3 of broker 1 (90%), "
        "/4 of broker 1 (90%) and 1 more"
    )
    assert full_in_words(many, None) is None


def test_the_plan_shows_how_full_each_log_dir_is_and_will_be() -> None:
    offline, unknown = LogDirDescription("/off", is_offline=True), LogDirDescription("/old", total_bytes=1_000)
    empty = LogDirDescription("/none", 0, 0)
    moved = WithinBroker((LogDirMovement(1, "t", 1, "/a", "/b", 300.0),))
    rows = {1: (FULL, WIDE, offline, unknown, empty)}
    made = propose_within(LIVE, rows, {1}, lambda _disks: moved, cluster_name="c")
    assert made.plan.diagnosis == ("broker 1: /a 95% -> 65%, /b 5% -> 35%, /off offline, /old unknown, /none unknown",)
    still = propose_within(LIVE, {1: (LogDirDescription("/x", 3, 1),)}, {1}, lambda _: WithinBroker(), cluster_name="c")
    assert still.plan.diagnosis == ("broker 1: /x 67% -> 67%",)


def test_what_nobody_shows_the_size_of_needs_no_room_yet() -> None:
    added = LivePartition((2, 1), 2, (2,), (1,))
    (disks,) = disks_of_brokers(replace(LIVE, partitions={("new", 0): added}), LOG_DIRS, {1})
    assert disks.full_bytes == {("new", 0): 0}
